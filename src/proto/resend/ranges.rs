//! A set of numbers as ranges: few, sorted, disjoint, not adjacent.

use std::collections::VecDeque;

/// A set of numbers. Its memory grows with the number of ranges, not with their length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    ranges: VecDeque<(u64, u64)>,
}

impl Ranges {
    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the lowest number.
    pub fn first(&self) -> Option<u64> {
        self.ranges.front().map(|(first, _)| *first)
    }

    /// Returns the number of ranges.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the ranges in ascending order: the first and the last number of each.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().copied()
    }

    /// Returns whether the set contains this number.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|(_, last)| *last < number);
        self.ranges.get(at).is_some_and(|(first, _)| *first <= number)
    }

    /// Adds the numbers `first..=last`; none if that range is empty. `last` is below `u64::MAX`.
    pub fn insert(&mut self, first: u64, last: u64) {
        if last < first {
            return;
        }
        // From here to `to`, ranges overlap the new one or touch it.
        let from = self.ranges.partition_point(|(_, end)| end + 1 < first);
        let to = self.ranges.partition_point(|(start, _)| *start <= last + 1);
        if to <= from {
            self.ranges.insert(from, (first, last));
            return;
        }
        self.ranges[from] = (first.min(self.ranges[from].0), last.max(self.ranges[to - 1].1));
        self.ranges.drain(from + 1..to);
    }

    /// Removes a number. Returns false if the set did not contain it.
    pub fn remove(&mut self, number: u64) -> bool {
        let at = self.ranges.partition_point(|(_, last)| *last < number);
        let Some((first, last)) = self.ranges.get(at).copied().filter(|(first, _)| *first <= number) else {
            return false;
        };
        match (first < number, number < last) {
            (false, false) => drop(self.ranges.remove(at)),
            (false, true) => self.ranges[at].0 = number + 1,
            (true, false) => self.ranges[at].1 = number - 1,
            (true, true) => {
                self.ranges[at].1 = number - 1;
                self.ranges.insert(at + 1, (number + 1, last));
            }
        }
        true
    }

    /// Removes and returns the lowest range, or the part of it below `end`.
    pub fn pop_below(&mut self, end: u64) -> Option<(u64, u64)> {
        let (first, last) = self.ranges.front().copied().filter(|(first, _)| *first < end)?;
        if last < end {
            self.ranges.pop_front();
            return Some((first, last));
        }
        self.ranges[0].0 = end;
        Some((first, end - 1))
    }

    /// Drops the highest ranges beyond `count` ranges, and returns the number of numbers in them.
    pub fn truncate(&mut self, count: usize) -> u64 {
        let mut dropped = 0;
        while count < self.ranges.len() {
            let (first, last) = self.ranges.pop_back().expect("there are more than `count`");
            dropped += last - first + 1;
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    /// Compares the set with a plain one, which stores every number by itself.
    #[test]
    fn random_ranges_agree_with_a_plain_set() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut ranges = Ranges::default();
            let mut model = BTreeSet::new();
            for _ in 0..100 {
                let (a, b) = (rng.between(1, 60), rng.between(1, 60));
                match rng.below(4) {
                    0 | 1 => {
                        let b = if rng.chance(0.5) { a + b % 3 } else { b };
                        ranges.insert(a, b);
                        model.extend(a..=b);
                    }
                    2 => assert_eq!(ranges.remove(a), model.remove(&a), "seed {seed}"),
                    _ if rng.chance(0.2) => {
                        let mut popped = BTreeSet::new();
                        while let Some((first, last)) = ranges.pop_below(a) {
                            popped.extend(first..=last);
                        }
                        let rest = model.split_off(&a);
                        assert_eq!(popped, model, "seed {seed}");
                        model = rest;
                    }
                    _ => {
                        let dropped = ranges.truncate(4) as usize;
                        let kept = model.len() - dropped;
                        model = model.into_iter().take(kept).collect();
                    }
                }
                let listed: Vec<u64> = ranges.iter().flat_map(|(first, last)| first..=last).collect();
                assert_eq!(listed, model.iter().copied().collect::<Vec<_>>(), "seed {seed}");
                let apart = ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.1 + 1 < b.0);
                assert!(apart && ranges.count() <= 60, "seed {seed}: {ranges:?}");
                assert_eq!(ranges.first(), model.first().copied());
                assert_eq!(ranges.is_empty(), model.is_empty());
                assert_eq!(ranges.contains(a), model.contains(&a));
            }
        }
    }
}
