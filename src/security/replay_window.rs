//! The filter of replayed control datagrams, as in RFC 6479. The ledger of the core does the same for data, without a
//! window.
//!
//! Every member has the keys of control datagrams to the group. One of them with a forged number far ahead must not make
//! those of the sender look old. So such a number has a window of its own, beside that of the numbers before it, until a
//! datagram to this peer alone proves that the sender has reached it: only the sender can seal that one. Each number
//! belongs to one of the two windows, so none is accepted twice.

/// Number of recent numbers that are remembered.
const WINDOW: u64 = 2048;
const WORD_BITS: u64 = 64;
/// One word more than the window has, so that a word can be cleared before its numbers are in the window.
const WORDS: usize = (WINDOW / WORD_BITS) as usize + 1;

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
    /// as replayed. Only numbers of authentic datagrams may be passed.
    pub(super) fn accept(&mut self, number: u64) -> bool {
        if WINDOW <= self.highest.saturating_sub(number) || number < self.first {
            return false;
        }
        self.advance(number);
        let (word, bit) = (&mut self.words[index(number / WORD_BITS)], 1 << (number % WORD_BITS));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Moves the window up to a number, unless it has got that far.
    fn advance(&mut self, number: u64) {
        let (block, last_block) = (number / WORD_BITS, self.highest / WORD_BITS);
        for cleared in (last_block.saturating_add(1)..=block).rev().take(WORDS) {
            self.words[index(cleared)] = 0;
        }
        self.highest = self.highest.max(number);
    }

    /// Returns whether the window would still hold the numbers that follow the highest one if it moved to this number.
    fn is_near(&self, number: u64) -> bool {
        number < self.highest.saturating_add(WINDOW)
    }
}

/// The numbers of control datagrams of one sender to the group that were accepted.
#[derive(Clone, Debug)]
pub(super) struct GroupReplayWindow {
    /// Numbers below those of `provisional`.
    proven: ReplayWindow,
    /// Numbers from one on that was far ahead, and may be forged.
    provisional: Option<ReplayWindow>,
}

impl GroupReplayWindow {
    /// Creates the window of a sender whose numbers below `first` are old.
    pub(super) fn starting_at(first: u64) -> GroupReplayWindow {
        GroupReplayWindow { proven: ReplayWindow::starting_at(first), provisional: None }
    }

    /// Returns whether a number is new, and remembers it. A number far ahead begins the provisional window; while there is
    /// one, further such numbers are discarded.
    pub(super) fn accept(&mut self, number: u64) -> bool {
        let window = match &mut self.provisional {
            Some(provisional) if provisional.first <= number => provisional,
            None if !self.proven.is_near(number) => self.provisional.insert(ReplayWindow::starting_at(number)),
            _ => &mut self.proven,
        };
        window.is_near(number) && window.accept(number)
    }

    /// Handles the number of a datagram that only the sender can seal. Both kinds have numbers in common.
    pub(super) fn on_proven(&mut self, number: u64) {
        if let Some(provisional) = self.provisional.take_if(|provisional| provisional.first <= number) {
            self.proven = provisional;
        }
        self.proven.advance(number);
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

    /// Proves: W176
    #[test]
    fn forged_number_far_ahead_shuts_out_nothing() {
        for forged in [100 + WINDOW, 1 << 40, (1 << 63) - 1] {
            let mut window = GroupReplayWindow::starting_at(100);
            assert!(!window.accept(99) && window.accept(100) && window.accept(forged) && !window.accept(forged));
            assert!(!window.accept(100 + 2 * WINDOW), "only one number begins a window");
            for number in 101..100 + WINDOW {
                window.on_proven(number - 1);
                assert!(window.accept(number) && !window.accept(number), "{number}, forged {forged}");
            }
            assert!(!window.accept(forged) && !window.accept(100));
        }
    }

    /// Proves: W176
    #[test]
    fn number_far_ahead_counts_once_proven() {
        let far = 1 << 30;
        let mut window = GroupReplayWindow::starting_at(1);
        assert!(window.accept(1) && window.accept(far) && window.accept(far + 1), "those that follow it do not wait");
        assert!(!window.accept(far + 2 * WINDOW) && window.accept(2));
        window.on_proven(far + 2);
        assert!(!window.accept(3) && !window.accept(far) && !window.accept(far + 1) && window.accept(far + 3));
        assert!(window.accept(far + 2 * WINDOW + 3), "the next one may be far ahead again");
        // CONTROL to one receiver may be far ahead, too.
        window.on_proven(far + 100 * WINDOW);
        assert!(!window.accept(far + 4) && window.accept(far + 100 * WINDOW + 1));
    }

    /// Proves: W176
    #[test]
    fn no_number_is_accepted_twice() {
        let mut rng = Rng::new(7);
        for run in 0..200 {
            let (mut window, mut seen, mut sent) = (GroupReplayWindow::starting_at(1), BTreeSet::new(), 1u64);
            for _ in 0..500 {
                sent += [0, 1, 10, WINDOW - 1, 3 * WINDOW][rng.below(5) as usize];
                let number = match rng.below(4) {
                    0 => sent + 1 + rng.below(4 * WINDOW),
                    1 => sent.saturating_sub(rng.below(4 * WINDOW)),
                    _ => sent,
                };
                if rng.chance(0.1) {
                    window.on_proven(sent);
                }
                assert!(!window.accept(number) || seen.insert(number), "{number} in run {run}");
            }
        }
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
