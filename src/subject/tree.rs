//! The match tree: which of many patterns match a subject, without trying each.
//!
//! A node stands for the tokens that lead to it; below it hang the next literal tokens, `*`, and the values of patterns
//! that end here, with or without a final `>`. Every node is reached by one way only, so a look-up visits a node at most
//! once: never more than there are nodes, and never more than `2^(tokens + 1) - 1`.

use super::{Pattern, SUBJECT_TOKENS_MAX, Subject};
use std::collections::BTreeMap;

/// Patterns, each with any number of different values.
#[derive(Debug)]
pub struct Tree<T> {
    root: Node<T>,
}

#[derive(Debug)]
struct Node<T> {
    /// Values of the patterns that end here; ascending.
    here: Vec<T>,
    /// Values of the patterns that end with `>` after here; ascending.
    rest: Vec<T>,
    any: Option<Box<Node<T>>>,
    tokens: BTreeMap<Box<[u8]>, Node<T>>,
}

impl<T: Ord + Copy> Tree<T> {
    /// A tree without patterns.
    pub fn new() -> Tree<T> {
        Tree { root: Node::new() }
    }

    /// Adds `value` under `pattern`. False if it was there already.
    pub fn insert(&mut self, pattern: &Pattern, value: T) -> bool {
        let mut node = &mut self.root;
        for token in pattern.tokens() {
            match token {
                b">" => return add(&mut node.rest, value),
                b"*" => node = node.any.get_or_insert_with(|| Box::new(Node::new())),
                _ => {
                    // Most tokens are there already; only a new one is copied.
                    if !node.tokens.contains_key(token) {
                        node.tokens.insert(token.into(), Node::new());
                    }
                    node = node.tokens.get_mut(token).expect("added above");
                }
            }
        }
        add(&mut node.here, value)
    }

    /// Removes `value` from under `pattern`, with the nodes that nothing needs any more. False if it was not there.
    pub fn remove(&mut self, pattern: &Pattern, value: T) -> bool {
        self.root.remove(&mut pattern.tokens(), value)
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// Adds to `found`, which is empty, the values of all patterns that match `subject`, ascending; a value that stands
    /// under two matching patterns comes twice.
    pub fn matches(&self, subject: &Subject, found: &mut Vec<T>) {
        self.collect(subject, found);
        if !found.is_sorted() {
            found.sort_unstable();
        }
    }

    /// Adds the values of all matching patterns to `found`; gives the number of nodes visited.
    fn collect(&self, subject: &Subject, found: &mut Vec<T>) -> usize {
        let mut tokens: [&[u8]; SUBJECT_TOKENS_MAX] = [&[]; SUBJECT_TOKENS_MAX];
        let mut depth = 0;
        for token in subject.as_bytes().split(|b| *b == b'.') {
            tokens[depth] = token;
            depth += 1;
        }
        self.root.collect(&tokens[..depth], found)
    }
}

impl<T: Ord + Copy> Default for Tree<T> {
    fn default() -> Tree<T> {
        Tree::new()
    }
}

impl<T: Ord + Copy> Node<T> {
    fn new() -> Node<T> {
        Node { here: Vec::new(), rest: Vec::new(), any: None, tokens: BTreeMap::new() }
    }

    fn is_empty(&self) -> bool {
        self.here.is_empty() && self.rest.is_empty() && self.any.is_none() && self.tokens.is_empty()
    }

    /// As deep as the subject has tokens: at most `SUBJECT_TOKENS_MAX`.
    fn collect(&self, tokens: &[&[u8]], found: &mut Vec<T>) -> usize {
        let Some((token, behind)) = tokens.split_first() else {
            found.extend_from_slice(&self.here);
            return 1;
        };
        found.extend_from_slice(&self.rest);
        let mut visited = 1;
        if let Some(any) = &self.any {
            visited += any.collect(behind, found);
        }
        if let Some(node) = self.tokens.get(*token) {
            visited += node.collect(behind, found);
        }
        visited
    }

    fn remove(&mut self, tokens: &mut dyn Iterator<Item = &[u8]>, value: T) -> bool {
        match tokens.next() {
            None => take(&mut self.here, value),
            Some(b">") => take(&mut self.rest, value),
            Some(b"*") => {
                let Some(any) = &mut self.any else { return false };
                let removed = any.remove(tokens, value);
                if any.is_empty() {
                    self.any = None;
                }
                removed
            }
            Some(token) => {
                let Some(node) = self.tokens.get_mut(token) else { return false };
                let removed = node.remove(tokens, value);
                if node.is_empty() {
                    self.tokens.remove(token);
                }
                removed
            }
        }
    }
}

/// Adds to an ascending list; false if it was there.
fn add<T: Ord>(values: &mut Vec<T>, value: T) -> bool {
    match values.binary_search(&value) {
        Ok(_) => false,
        Err(at) => {
            values.insert(at, value);
            true
        }
    }
}

/// Removes from an ascending list; false if it was not there.
fn take<T: Ord>(values: &mut Vec<T>, value: T) -> bool {
    match values.binary_search(&value) {
        Ok(at) => {
            values.remove(at);
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    /// All subjects and patterns of up to three tokens over two letters: every pattern alone and all together.
    #[test]
    fn small_spaces_match_as_pattern_by_pattern() {
        let all = |letters: &[&str]| {
            let mut texts: Vec<String> = vec![String::new()];
            let mut out = Vec::new();
            for _ in 0..3 {
                texts =
                    texts.iter().flat_map(|head| letters.iter().map(move |token| format!("{head}.{token}"))).collect();
                out.extend(texts.iter().map(|text| text[1..].to_owned()));
            }
            out
        };
        let subjects: Vec<Subject> = all(&["a", "b"]).iter().map(|text| text.parse().unwrap()).collect();
        let patterns: Vec<Pattern> = all(&["a", "b", "*", ">"]).iter().filter_map(|text| text.parse().ok()).collect();
        let mut whole = Tree::new();
        for (value, pattern) in patterns.iter().enumerate() {
            let mut alone = Tree::new();
            assert!(alone.insert(pattern, value) && !alone.insert(pattern, value));
            assert!(whole.insert(pattern, value));
            for subject in &subjects {
                assert_eq!(!matches(&alone, subject).is_empty(), pattern.matches(subject), "{pattern} {subject}");
            }
            assert!(alone.remove(pattern, value) && !alone.remove(pattern, value) && alone.is_empty());
        }
        for subject in &subjects {
            let expected: Vec<usize> = (0..patterns.len()).filter(|n| patterns[*n].matches(subject)).collect();
            assert_eq!(matches(&whole, subject), expected, "{subject}");
        }
    }

    /// Random inserts and removals of deep patterns.
    #[test]
    fn the_tree_is_its_twin() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut tree = Tree::new();
            let mut twin: BTreeSet<(Pattern, u64)> = BTreeSet::new();
            for step in 0..600 {
                let deepest = if rng.chance(0.2) { 32 } else { 5 };
                let depth = rng.between(1, deepest);
                let mut draw = |tokens: &[&str], last: &str| {
                    let mut text: Vec<&str> =
                        (0..depth).map(|_| tokens[rng.below(tokens.len() as u64) as usize]).collect();
                    if rng.chance(0.2) {
                        *text.last_mut().unwrap() = last;
                    }
                    text.join(".")
                };
                let subject: Subject = draw(&["a", "bb", "c"], "d").parse().unwrap();
                let entry: (Pattern, u64) = (draw(&["a", "bb", "*", "*"], ">").parse().unwrap(), rng.below(3));
                if rng.chance(0.7) {
                    assert_eq!(tree.insert(&entry.0, entry.1), twin.insert(entry), "seed {seed} step {step}");
                } else {
                    let entry = twin.range(entry.clone()..).next().unwrap_or(&entry).clone();
                    assert_eq!(tree.remove(&entry.0, entry.1), twin.remove(&entry), "seed {seed} step {step}");
                }
                let mut expected: Vec<u64> =
                    twin.iter().filter(|(pattern, _)| pattern.matches(&subject)).map(|(_, value)| *value).collect();
                expected.sort_unstable();
                assert_eq!(matches(&tree, &subject), expected, "seed {seed} step {step} {subject}");
            }
            for (pattern, value) in twin {
                assert!(tree.remove(&pattern, value));
            }
            assert!(tree.is_empty(), "seed {seed}: nodes are left over");
        }
    }

    /// The worst set of patterns: `a` or `*` at each of the first twelve places, then `*` to the greatest depth.
    #[test]
    fn the_cost_of_a_match_is_bounded_by_the_nodes() {
        let mut tree = Tree::new();
        let width = 12;
        for bits in 0..1_u32 << width {
            let head = (0..width).map(|n| if bits >> n & 1 == 1 { "a" } else { "*" });
            let text: Vec<&str> = head.chain(std::iter::repeat_n("*", SUBJECT_TOKENS_MAX - width)).collect();
            tree.insert(&text.join(".").parse().unwrap(), bits);
        }
        let nodes = (1 << (width + 1)) - 1 + (SUBJECT_TOKENS_MAX - width) * (1 << width);
        let subject: Subject = vec!["a"; SUBJECT_TOKENS_MAX].join(".").parse().unwrap();
        let mut found = Vec::new();
        assert_eq!(tree.collect(&subject, &mut found), nodes);
        assert_eq!(found.len(), 1 << width, "each node visited served a match");
        let other: Subject = vec!["b"; SUBJECT_TOKENS_MAX].join(".").parse().unwrap();
        found.clear();
        assert_eq!(tree.collect(&other, &mut found), SUBJECT_TOKENS_MAX + 1);
    }

    fn matches<T: Ord + Copy>(tree: &Tree<T>, subject: &Subject) -> Vec<T> {
        let mut found = Vec::new();
        tree.matches(subject, &mut found);
        found
    }
}
