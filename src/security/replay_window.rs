//! The filter of replayed control datagrams, as in RFC 6479. The ledger of the core does the same for data, without a
//! window.

/// Number of recent numbers that are remembered.
const WINDOW: u64 = 2048;
const WORD_BITS: u64 = 64;
/// One word more than the window has, so that a word can be cleared before its numbers are in the window.
const WORDS: usize = (WINDOW / WORD_BITS) as usize + 1;

/// Maximum distance of a number from the highest one. A member that forges numbers of another one must not move the
/// window out of its reach.
const STEP_MAX: u64 = 1 << 20;

/// The control numbers of one sender that were accepted.
#[derive(Clone, Debug)]
pub(super) struct ReplayWindow {
    /// The lowest number that is accepted.
    first: u64,
    highest: u64,
    words: [u64; WORDS],
}

impl ReplayWindow {
    /// Creates the window of a sender whose numbers below `first` are old.
    pub(super) fn starting_at(first: u64) -> ReplayWindow {
        ReplayWindow { first, highest: first.saturating_sub(1), words: [0; WORDS] }
    }

    /// Returns whether a number is new, and remembers it. Numbers that are old, or 2,048 or more below the highest, count
    /// as replayed, and those that are far above it, except for the first one, as forged. Only numbers of authentic
    /// datagrams may be passed.
    pub(super) fn accept(&mut self, number: u64) -> bool {
        let is_too_high = 0 < self.highest && self.highest.saturating_add(STEP_MAX) < number;
        if WINDOW <= self.highest.saturating_sub(number) || number < self.first || is_too_high {
            return false;
        }
        let (block, last_block) = (number / WORD_BITS, self.highest / WORD_BITS);
        if last_block < block {
            for cleared in (last_block + 1..=block).rev().take(WORDS) {
                self.words[index(cleared)] = 0;
            }
            self.highest = number;
        }
        self.highest = self.highest.max(number);
        let (word, bit) = (&mut self.words[index(block)], 1 << (number % WORD_BITS));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Returns the index of the word that stores a block of 64 numbers.
fn index(block: u64) -> usize {
    (block % WORDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn number_far_above_the_highest_is_refused() {
        let mut window = ReplayWindow::starting_at(100);
        assert!(!window.accept(99) && !window.accept(100 + STEP_MAX) && window.accept(99 + STEP_MAX));
        let mut window = ReplayWindow::starting_at(0);
        assert!(window.accept(1 << 40) && !window.accept(u64::MAX) && !window.accept((1 << 40) + STEP_MAX + 1));
        assert!(window.accept((1 << 40) + 1) && window.accept((1 << 40) + 1 + STEP_MAX));
        let mut window = ReplayWindow::starting_at(0);
        assert!(window.accept(u64::MAX) && !window.accept(u64::MAX) && window.accept(u64::MAX - 1));
    }

    #[test]
    fn window_agrees_with_a_set_of_numbers() {
        let mut rng = Rng::new(7);
        for step in [1, 3, 100, 3000, 200_000] {
            let (mut window, mut seen, mut highest) = (ReplayWindow::starting_at(0), BTreeSet::new(), 0u64);
            for _ in 0..20_000 {
                let number = match rng.below(3) {
                    0 => highest + 1 + rng.below(step),
                    1 => highest.saturating_sub(rng.below(2 * WINDOW)).max(1),
                    _ => highest.saturating_sub(rng.below(10)).max(1),
                };
                let expected = highest < number + WINDOW && seen.insert(number);
                assert_eq!(window.accept(number), expected, "{number} after {highest}, steps of {step}");
                highest = highest.max(number);
            }
        }
    }
}
