//! The match tree, which finds the patterns that match a subject without trying each one.
//!
//! An *edge* leads from a *branch* over one token, which is literal or `*`. The edge holds the values of the patterns
//! that end with this token, and the branch from which longer patterns continue. If only one pattern continues, the
//! edge holds the rest of its text, so most patterns are one edge. One hash table, keyed by branch and token, holds all
//! edges, each in its own cache line with its text and value. The lookup of a new subject waits for memory about once,
//! whatever the number of patterns.
//!
//! Only one path leads to an edge, so a lookup visits each edge at most once. The number of visited edges and tokens of
//! rests is at most the number of tokens of all patterns, and at most `2^(tokens + 1) - 1`.

use super::{Pattern, SUBJECT_TOKENS_MAX, Subject};
use foldhash::quality::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::mem::size_of;

/// Number of shards of the table. Growth moves the edges of one shard at a time, which bounds its pause.
const SHARDS: usize = 16;
/// Root branch, at which all patterns begin.
const ROOT: u32 = 0;
/// Marks an edge without a branch.
const NONE: u32 = u32::MAX;
/// Maximum length of an edge text that is stored inline, in bytes; longer texts are on the heap.
const TEXT_BYTES: usize = 29;

/// A set of patterns, each with any number of different values.
#[derive(Debug)]
pub struct Tree<T> {
    hasher: FixedState,
    shards: Box<[HashTable<Edge<T>>]>,
    branches: Vec<Branch<T>>,
    /// Indices of unused branches.
    unused: Vec<u32>,
}

/// An edge of the tree.
#[derive(Debug)]
#[repr(align(64))]
struct Edge<T> {
    /// Branch at which the edge begins.
    from: u32,
    /// Branch to which the edge leads. It exists if several patterns continue, or once did.
    to: u32,
    /// The token, followed by the rest of the pattern if only one pattern continues.
    text: EdgeText,
    /// Values of the pattern that ends with the text; ascending.
    values: ValueSet<T>,
}

// An edge fills one cache line.
const _: () = assert!(size_of::<Edge<[u32; 2]>>() == 64);

/// A token, and optionally further tokens, joined by dots.
#[derive(Debug)]
enum EdgeText {
    Short { len: u8, token: u8, bytes: [u8; TEXT_BYTES] },
    Long { token: u8, bytes: Box<[u8]> },
}

/// A node of the tree, from which edges lead.
#[derive(Debug)]
struct Branch<T> {
    /// Number of edges from here with literal tokens.
    literals: u32,
    /// True if there is an edge with `*`.
    any: bool,
    /// Values of the patterns that end with `>` here; ascending.
    rest: ValueSet<T>,
}

/// A set of values, ascending. Most sets have one value.
#[derive(Debug)]
enum ValueSet<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Ord + Copy> Tree<T> {
    /// Creates an empty tree; `seed` makes hashing unpredictable for clients that choose the patterns.
    pub fn new(seed: u64) -> Tree<T> {
        Tree {
            hasher: FixedState::with_seed(seed),
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            branches: vec![Branch::new()],
            unused: Vec::new(),
        }
    }

    /// Adds `value` under `pattern`. Returns false if it was present already.
    pub fn insert(&mut self, pattern: &Pattern, value: T) -> bool {
        let (mut at, mut text) = (ROOT, pattern.as_str().as_bytes());
        loop {
            let (token, behind) = split(text);
            if token == b">" {
                return self.branch_mut(at).rest.add(value);
            }
            let Some(edge) = self.edge_mut(at, token) else {
                self.insert_edge(Edge { from: at, to: NONE, text: EdgeText::new(text), values: ValueSet::One(value) });
                return true;
            };
            if edge.text.bytes() == text {
                return edge.values.add(value);
            }
            let to = self.ensure_branch(at, token);
            (at, text) = match behind {
                Some(behind) => (to, behind),
                None => {
                    self.edge_mut(at, token).expect("the edge exists").values = ValueSet::One(value);
                    return true;
                }
            };
        }
    }

    /// Removes `value` from `pattern`, with all branches and edges that become unused. Returns false if it was absent.
    pub fn remove(&mut self, pattern: &Pattern, value: T) -> bool {
        self.remove_from(ROOT, pattern.as_str().as_bytes(), value)
    }

    /// Returns whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.branch(ROOT).is_empty()
    }

    /// Adds to `found`, which is empty, the values of all patterns that match `subject`, ascending. A value under two
    /// matching patterns appears twice.
    pub fn matches(&self, subject: &Subject, found: &mut Vec<T>) {
        let all = self.matches_within(subject, found, usize::MAX);
        assert!(all, "no lookup takes as many steps");
    }

    /// Works as [`Tree::matches`], but in fewer than `steps` steps: edges and tokens visited, and values found. Returns
    /// false if the steps do not suffice; `found` then has the values found until then.
    pub fn matches_within(&self, subject: &Subject, found: &mut Vec<T>, steps: usize) -> bool {
        if self.collect::<false>(subject, found, steps) == 0 {
            return false;
        }
        if !found.is_sorted() {
            found.sort_unstable();
        }
        true
    }

    /// Works as [`Tree::matches`], but a last `>` matches zero or more tokens: `a.>` matches `a` too.
    pub fn matches_from_zero(&self, subject: &Subject, found: &mut Vec<T>) {
        self.collect::<true>(subject, found, usize::MAX);
        if !found.is_sorted() {
            found.sort_unstable();
        }
    }

    /// Adds the values of all matching patterns to `found`, in at most `steps` steps. Returns the number of steps left.
    /// With `FROM_ZERO` a last `>` also matches zero tokens.
    fn collect<const FROM_ZERO: bool>(&self, subject: &Subject, found: &mut Vec<T>, steps: usize) -> usize {
        let bytes = subject.as_bytes();
        let mut ends = [0; SUBJECT_TOKENS_MAX];
        let mut depth = 0;
        for (at, byte) in bytes.iter().enumerate() {
            if *byte == b'.' {
                ends[depth] = at as u8;
                depth += 1;
            }
        }
        ends[depth] = bytes.len() as u8;
        let mut lookup = TreeLookup::<T, FROM_ZERO> { tree: self, bytes, ends: &ends[..=depth], found, steps };
        lookup.visit_branch(ROOT, 0, 0);
        lookup.steps
    }

    /// Returns the branch to which the edge leads. An edge without one gets a new branch, to which the rest of its text
    /// moves.
    fn ensure_branch(&mut self, from: u32, token: &[u8]) -> u32 {
        let edge = self.edge_mut(from, token).expect("the edge exists");
        if edge.to != NONE {
            return edge.to;
        }
        let to = self.unused.pop().unwrap_or_else(|| {
            self.branches.push(Branch::new());
            u32::try_from(self.branches.len() - 1).expect("fewer patterns than 2^27")
        });
        let edge = self.edge_mut(from, token).expect("the edge exists");
        edge.to = to;
        let Some(rest) = edge.text.rest().map(EdgeText::new) else { return to };
        edge.text = EdgeText::new(token);
        let values = std::mem::replace(&mut edge.values, ValueSet::Many(Vec::new()));
        match rest.token() {
            b">" => self.branch_mut(to).rest = values,
            _ => self.insert_edge(Edge { from: to, to: NONE, text: rest, values }),
        }
        to
    }

    /// Adds an edge that does not exist yet.
    fn insert_edge(&mut self, edge: Edge<T>) {
        self.branch_mut(edge.from).count(edge.text.token(), 1);
        let hash = self.hash(edge.from, edge.text.token());
        let hasher = &self.hasher;
        self.shards[shard_of(hash)].insert_unique(hash, edge, |edge| hash_of(hasher, edge.from, edge.text.token()));
    }

    /// Removes `value` from the pattern with this text, from branch `at` on. Recurses once for each token of the
    /// pattern: at most `SUBJECT_TOKENS_MAX` deep.
    fn remove_from(&mut self, at: u32, text: &[u8], value: T) -> bool {
        let (token, behind) = split(text);
        if token == b">" {
            return self.branch_mut(at).rest.remove(value);
        }
        let Some(edge) = self.edge_mut(at, token) else { return false };
        let to = edge.to;
        let removed = match behind {
            _ if edge.text.bytes() == text => edge.values.remove(value),
            Some(behind) if to != NONE => self.remove_from(to, behind, value),
            _ => false,
        };
        let is_bare = to == NONE || self.branch(to).is_empty();
        if is_bare && to != NONE {
            self.unused.push(to);
            self.edge_mut(at, token).expect("the edge exists").to = NONE;
        }
        if is_bare && self.edge_mut(at, token).expect("the edge exists").values.all().is_empty() {
            self.remove_edge(at, token);
        }
        removed
    }

    /// Removes an edge.
    fn remove_edge(&mut self, from: u32, token: &[u8]) {
        self.branch_mut(from).count(token, -1);
        let hash = self.hash(from, token);
        let (hasher, shard) = (&self.hasher, &mut self.shards[shard_of(hash)]);
        let Ok(entry) = shard.find_entry(hash, |edge| edge.is(from, token)) else {
            unreachable!("only an existing edge is removed")
        };
        entry.remove();
        if 64 < shard.capacity() && shard.len() < shard.capacity() / 4 {
            shard.shrink_to(2 * shard.len(), |edge| hash_of(hasher, edge.from, edge.text.token()));
        }
    }

    fn edge(&self, from: u32, token: &[u8]) -> Option<&Edge<T>> {
        let hash = self.hash(from, token);
        self.shards[shard_of(hash)].find(hash, |edge| edge.is(from, token))
    }

    fn edge_mut(&mut self, from: u32, token: &[u8]) -> Option<&mut Edge<T>> {
        let hash = self.hash(from, token);
        self.shards[shard_of(hash)].find_mut(hash, |edge| edge.is(from, token))
    }

    fn branch(&self, id: u32) -> &Branch<T> {
        &self.branches[id as usize]
    }

    fn branch_mut(&mut self, id: u32) -> &mut Branch<T> {
        &mut self.branches[id as usize]
    }

    fn hash(&self, from: u32, token: &[u8]) -> u64 {
        hash_of(&self.hasher, from, token)
    }
}

/// A lookup in progress.
struct TreeLookup<'a, T, const FROM_ZERO: bool> {
    tree: &'a Tree<T>,
    /// The subject.
    bytes: &'a [u8],
    /// End positions of the subject's tokens.
    ends: &'a [u8],
    found: &'a mut Vec<T>,
    /// Number of steps left: edges and tokens of rests to visit, and values to find.
    steps: usize,
}

impl<'a, T: Ord + Copy, const FROM_ZERO: bool> TreeLookup<'a, T, FROM_ZERO> {
    /// Visits a branch with the token of this index, which begins at byte `start`. Recurses once for each token of the
    /// subject.
    fn visit_branch(&mut self, at: u32, index: usize, start: usize) {
        let branch = self.tree.branch(at);
        self.add_values(&branch.rest);
        if branch.any {
            self.visit_edge(at, b"*", index);
        }
        if branch.literals != 0 {
            self.visit_edge(at, &self.bytes[start..usize::from(self.ends[index])], index);
        }
    }

    /// Visits an edge whose token matches the token of this index, if the edge exists.
    fn visit_edge(&mut self, from: u32, token: &[u8], index: usize) {
        if self.steps == 0 {
            return;
        }
        let Some(edge) = self.tree.edge(from, token) else { return };
        self.steps -= 1;
        let start = usize::from(self.ends[index]) + 1;
        match (edge.text.rest(), index + 1 == self.ends.len()) {
            (None, true) => {
                self.add_values(&edge.values);
                if FROM_ZERO && edge.to != NONE {
                    self.add_values(&self.tree.branch(edge.to).rest);
                }
            }
            (Some(b">"), true) if FROM_ZERO => self.add_values(&edge.values),
            (None, false) if edge.to != NONE => self.visit_branch(edge.to, index + 1, start),
            (Some(rest), false) if self.is_match(rest, start) => self.add_values(&edge.values),
            _ => {}
        }
    }

    fn add_values(&mut self, values: &'a ValueSet<T>) {
        self.found.extend_from_slice(values.all());
        self.steps = self.steps.saturating_sub(values.all().len());
    }

    /// Returns whether the rest of a pattern matches the rest of the subject.
    fn is_match(&mut self, pattern: &[u8], start: usize) -> bool {
        let mut subject = self.bytes[start..].split(|byte| *byte == b'.');
        for wanted in pattern.split(|byte| *byte == b'.') {
            self.steps = self.steps.saturating_sub(1);
            match subject.next() {
                Some(_) if wanted == b">" => return true,
                None if FROM_ZERO && wanted == b">" => return true,
                Some(token) if wanted == b"*" || wanted == token => {}
                _ => return false,
            }
        }
        subject.next().is_none()
    }
}

impl<T> Edge<T> {
    fn is(&self, from: u32, token: &[u8]) -> bool {
        self.from == from && self.text.token() == token
    }
}

impl EdgeText {
    /// Creates an edge text from at least one token.
    fn new(text: &[u8]) -> EdgeText {
        let token = split(text).0.len() as u8;
        let mut bytes = [0; TEXT_BYTES];
        match bytes.get_mut(..text.len()) {
            Some(short) => {
                short.copy_from_slice(text);
                EdgeText::Short { len: text.len() as u8, token, bytes }
            }
            None => EdgeText::Long { token, bytes: text.into() },
        }
    }

    /// Returns the whole text.
    fn bytes(&self) -> &[u8] {
        match self {
            EdgeText::Short { len, bytes, .. } => &bytes[..usize::from(*len)],
            EdgeText::Long { bytes, .. } => bytes,
        }
    }

    /// Returns the first token.
    fn token(&self) -> &[u8] {
        match self {
            EdgeText::Short { token, bytes, .. } => &bytes[..usize::from(*token)],
            EdgeText::Long { token, bytes } => &bytes[..usize::from(*token)],
        }
    }

    /// Returns the text after the first token.
    fn rest(&self) -> Option<&[u8]> {
        self.bytes().get(self.token().len() + 1..)
    }
}

impl<T> Branch<T> {
    fn new() -> Branch<T> {
        Branch { literals: 0, any: false, rest: ValueSet::Many(Vec::new()) }
    }

    fn is_empty(&self) -> bool {
        self.literals == 0 && !self.any && self.rest.all().is_empty()
    }

    /// Adds `change` to the number of edges with this token: 1 or -1.
    fn count(&mut self, token: &[u8], change: i32) {
        match token {
            b"*" => self.any = 0 < change,
            _ => self.literals = self.literals.checked_add_signed(change).expect("only counted edges are removed"),
        }
    }
}

impl<T> ValueSet<T> {
    fn all(&self) -> &[T] {
        match self {
            ValueSet::One(value) => std::slice::from_ref(value),
            ValueSet::Many(values) => values,
        }
    }
}

impl<T: Ord + Copy> ValueSet<T> {
    /// Adds a value. Returns false if it was present.
    fn add(&mut self, value: T) -> bool {
        let Err(at) = self.all().binary_search(&value) else { return false };
        match self {
            ValueSet::Many(values) if values.is_empty() => *self = ValueSet::One(value),
            ValueSet::Many(values) => values.insert(at, value),
            ValueSet::One(other) if at == 0 => *self = ValueSet::Many(vec![value, *other]),
            ValueSet::One(other) => *self = ValueSet::Many(vec![*other, value]),
        }
        true
    }

    /// Removes a value. Returns false if it was absent.
    fn remove(&mut self, value: T) -> bool {
        let Ok(at) = self.all().binary_search(&value) else { return false };
        match self {
            ValueSet::One(_) => *self = ValueSet::Many(Vec::new()),
            ValueSet::Many(values) => {
                values.remove(at);
                if let [one] = values[..] {
                    *self = ValueSet::One(one);
                }
            }
        }
        true
    }
}

fn hash_of(hasher: &FixedState, from: u32, token: &[u8]) -> u64 {
    hasher.hash_one((from, token))
}

/// Selects the shard by bits that its table does not use. The table uses the lowest bits for the bucket, and the
/// highest seven as a tag.
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

/// Returns the first token, and the text after it.
fn split(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == b'.') {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    /// Compares all subjects and patterns of up to three tokens over two letters: every pattern alone and all together.
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
        let mut whole = Tree::new(1);
        for (value, pattern) in patterns.iter().enumerate() {
            let mut alone = Tree::new(1);
            assert!(alone.insert(pattern, value) && !alone.insert(pattern, value));
            assert!(whole.insert(pattern, value));
            for subject in &subjects {
                assert_eq!(!matches(&alone, subject).is_empty(), pattern.matches(subject), "{pattern} {subject}");
                let from_zero = !matches_from_zero(&alone, subject).is_empty();
                assert_eq!(from_zero, is_match_from_zero(pattern, subject), "{pattern} {subject}");
            }
            assert!(alone.remove(pattern, value) && !alone.remove(pattern, value) && alone.is_empty());
        }
        for subject in &subjects {
            let expected: Vec<usize> = (0..patterns.len()).filter(|n| patterns[*n].matches(subject)).collect();
            assert_eq!(matches(&whole, subject), expected, "{subject}");
            let from_zero: Vec<usize> =
                (0..patterns.len()).filter(|n| is_match_from_zero(&patterns[*n], subject)).collect();
            assert_eq!(matches_from_zero(&whole, subject), from_zero, "{subject}");
        }
    }

    /// Inserts and removes deep patterns at random.
    #[test]
    fn the_tree_is_its_twin() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut tree = Tree::new(1);
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
                // Too long to be stored inline in an edge.
                let long = "x".repeat(TEXT_BYTES + 1);
                let long = if depth < 6 { &*long } else { "e" };
                let subject: Subject = draw(&["a", "bb", "c", long], "d").parse().unwrap();
                let entry: (Pattern, u64) = (draw(&["a", "bb", "*", "*", long], ">").parse().unwrap(), rng.below(3));
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
                let from_zero = twin.iter().filter(|(pattern, _)| is_match_from_zero(pattern, &subject));
                let mut from_zero: Vec<u64> = from_zero.map(|(_, value)| *value).collect();
                from_zero.sort_unstable();
                assert_eq!(matches_from_zero(&tree, &subject), from_zero, "seed {seed} step {step} {subject}");
            }
            for (pattern, value) in twin {
                assert!(tree.remove(&pattern, value));
            }
            assert!(tree.is_empty(), "seed {seed}");
            assert!(tree.shards.iter().all(HashTable::is_empty), "seed {seed}: edges are left over");
            assert_eq!(tree.unused.len() + 1, tree.branches.len(), "seed {seed}: branches are left over");
        }
    }

    /// Checks that a single pattern is split for others, and that tables grow and shrink.
    #[test]
    fn many_patterns_are_found_and_leave_nothing() {
        let mut tree = Tree::new(2);
        let patterns: Vec<Pattern> = (0..20_000)
            .map(|n| match n % 4 {
                0 => format!("plant.{}", n / 8),
                1 => format!("plant.{}.*.temperature", n / 8),
                2 => format!("plant.{}.line.{n}", n / 8),
                _ => format!("plant.{}.>", n / 8),
            })
            .map(|text| text.parse().unwrap())
            .collect();
        for (value, pattern) in patterns.iter().enumerate() {
            assert!(tree.insert(pattern, value));
        }
        let find = |tree: &Tree<usize>, text: &str| matches(tree, &text.parse().unwrap());
        assert_eq!(find(&tree, "plant.1000"), [8000, 8004]);
        assert_eq!(find(&tree, "plant.1000.line.temperature"), [8001, 8003, 8005, 8007]);
        assert_eq!(find(&tree, "plant.1000.line.8002"), [8002, 8003, 8007]);
        assert_eq!(find(&tree, "plant.1000.line"), [8003, 8007]);
        for (value, pattern) in patterns.iter().enumerate() {
            assert!(tree.remove(pattern, value) && !tree.remove(pattern, value));
        }
        assert!(tree.is_empty() && tree.shards.iter().all(|shard| shard.is_empty() && shard.capacity() < 200));
        assert_eq!(tree.unused.len() + 1, tree.branches.len());
    }

    /// Uses the worst set of patterns: `a` or `*` at each of the first twelve positions, then `*` to the greatest
    /// depth.
    #[test]
    fn match_cost_is_bounded_by_the_patterns() {
        let mut tree = Tree::new(1);
        let width = 12;
        for bits in 0..1_u32 << width {
            let head = (0..width).map(|n| if bits >> n & 1 == 1 { "a" } else { "*" });
            let text: Vec<&str> = head.chain(std::iter::repeat_n("*", SUBJECT_TOKENS_MAX - width)).collect();
            tree.insert(&text.join(".").parse().unwrap(), bits);
        }
        // All edges and tokens of patterns, and the values found.
        let steps = (1 << (width + 1)) - 2 + (SUBJECT_TOKENS_MAX - width) * (1 << width) + (1 << width);
        let subject: Subject = vec!["a"; SUBJECT_TOKENS_MAX].join(".").parse().unwrap();
        let mut found = Vec::new();
        assert_eq!(tree.collect::<false>(&subject, &mut found, usize::MAX), usize::MAX - steps);
        assert_eq!(found.len(), 1 << width, "each step served a match");
        found.clear();
        assert!(!tree.matches_within(&subject, &mut found, 1000) && found.len() <= 1000);
        let other: Subject = vec!["b"; SUBJECT_TOKENS_MAX].join(".").parse().unwrap();
        found.clear();
        assert_eq!(tree.collect::<false>(&other, &mut found, usize::MAX), usize::MAX - SUBJECT_TOKENS_MAX - 1);
        assert!(!tree.matches_within(&other, &mut found, SUBJECT_TOKENS_MAX));
    }

    fn matches<T: Ord + Copy>(tree: &Tree<T>, subject: &Subject) -> Vec<T> {
        let mut found = Vec::new();
        tree.matches(subject, &mut found);
        found
    }
    fn matches_from_zero<T: Ord + Copy>(tree: &Tree<T>, subject: &Subject) -> Vec<T> {
        let mut found = Vec::new();
        tree.matches_from_zero(subject, &mut found);
        found
    }

    /// Returns the reference result: with a last `>`, a pattern also matches what it matches without.
    fn is_match_from_zero(pattern: &Pattern, subject: &Subject) -> bool {
        let head = pattern.as_str().strip_suffix(".>").map(|head| head.parse::<Pattern>().unwrap());
        pattern.matches(subject) || head.is_some_and(|head| head.matches(subject))
    }
}
