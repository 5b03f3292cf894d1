//! Index of event patterns. It finds the patterns that match a type without trying each one.

use crate::subject::event_type::{EventType, TypePattern};
use crate::subject::tree::Tree;

/// Patterns of event types, each with any number of different values: queries, or subscriptions.
#[derive(Debug)]
pub struct PatternIndex<T> {
    /// Patterns by their subject patterns; a last `>` matches zero or more tokens.
    tree: Tree<T>,
}

impl<T: Ord + Copy> PatternIndex<T> {
    /// Creates an index without patterns. `seed` makes hashing unpredictable for clients that choose the patterns.
    pub fn new(seed: u64) -> PatternIndex<T> {
        PatternIndex { tree: Tree::new(seed) }
    }

    /// Adds `value` under `pattern`. Returns false if it was present already.
    pub fn insert(&mut self, pattern: &TypePattern, value: T) -> bool {
        self.tree.insert(pattern.from_zero(), value)
    }

    /// Removes `value` from `pattern`. Returns false if it was absent.
    pub fn remove(&mut self, pattern: &TypePattern, value: T) -> bool {
        self.tree.remove(pattern.from_zero(), value)
    }

    /// Returns whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Replaces the content of `values` by the values of all patterns that match the type, ascending. A value appears
    /// once, even if several of its patterns match. The time depends on the number of matching patterns, and hardly on
    /// the total number of patterns.
    pub fn matches(&self, event_type: &EventType, values: &mut Vec<T>) {
        values.clear();
        self.tree.matches_from_zero(event_type.subject(), values);
        values.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    fn draw(rng: &mut Rng, words: &[&str], last: &str) -> String {
        let mut subtypes: Vec<&str> =
            (0..rng.between(1, 5)).map(|_| words[rng.below(words.len() as u64) as usize]).collect();
        if rng.chance(0.4) {
            *subtypes.last_mut().unwrap() = last;
        }
        subtypes.join("/")
    }

    /// Compares a look-up after each random insert and removal with trying all patterns.
    #[test]
    fn index_equals_trying_all_patterns() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let mut pattern_index = PatternIndex::new(1);
            let mut twin: BTreeSet<(TypePattern, u32)> = BTreeSet::new();
            let (mut values, mut found) = (Vec::new(), 0);
            for step in 0..500 {
                let pattern: TypePattern = draw(&mut rng, &["a", "b.c", "", "?"], "*").parse().unwrap();
                let entry = (pattern, rng.below(4) as u32);
                if rng.chance(0.7) {
                    assert_eq!(pattern_index.insert(&entry.0, entry.1), twin.insert(entry), "seed {seed} step {step}");
                } else {
                    let entry = twin.range(entry.clone()..).next().unwrap_or(&entry).clone();
                    assert_eq!(pattern_index.remove(&entry.0, entry.1), twin.remove(&entry), "seed {seed} step {step}");
                }
                let event_type: EventType = draw(&mut rng, &["a", "b.c", ""], "d").parse().unwrap();
                let matching = twin.iter().filter(|(pattern, _)| pattern.matches(&event_type));
                let expected: BTreeSet<u32> = matching.map(|(_, value)| *value).collect();
                pattern_index.matches(&event_type, &mut values);
                assert!(expected.iter().eq(&values), "seed {seed} step {step} {event_type}: {values:?} {expected:?}");
                found += values.len();
            }
            assert!(100 < found, "seed {seed}: {found} found");
            for (pattern, value) in twin {
                assert!(pattern_index.remove(&pattern, value));
            }
            assert!(pattern_index.is_empty(), "seed {seed}");
        }
    }

    /// Several patterns of one client match: it is found once, until the last of them is removed.
    #[test]
    fn value_with_several_matching_patterns_is_found_once() {
        let [exact, open, any]: [TypePattern; 3] = ["a", "a/*", "*"].map(|text| text.parse().unwrap());
        let event_type: EventType = "a".parse().unwrap();
        for (first, second) in [(&exact, &open), (&open, &exact)] {
            let mut pattern_index = PatternIndex::new(1);
            assert!(pattern_index.insert(&exact, 1) && pattern_index.insert(&open, 1) && pattern_index.insert(&any, 1));
            assert!(
                !pattern_index.insert(&exact, 1) && !pattern_index.insert(&open, 1) && !pattern_index.insert(&any, 1)
            );
            let mut values = Vec::new();
            for pattern in [first, second] {
                pattern_index.matches(&event_type, &mut values);
                assert_eq!(values, [1]);
                assert!(pattern_index.remove(pattern, 1) && !pattern_index.remove(pattern, 1));
            }
            pattern_index.matches(&event_type, &mut values);
            assert_eq!(values, [1]);
            assert!(pattern_index.remove(&any, 1) && pattern_index.is_empty());
            pattern_index.matches(&event_type, &mut values);
            assert!(values.is_empty());
        }
    }
}
