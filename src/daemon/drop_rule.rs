//! Deliberate drops of received datagrams: for demonstrations and tests of loss on a host without any.

use crate::rng::Rng;

/// Rule that selects the received datagrams to drop. The same seed selects the same positions in a sequence of
/// datagrams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DropRule {
    /// Seed of the random generator.
    pub seed: u64,
    /// The probability that a datagram begins a burst of drops; from 0 to 1.
    pub chance: f64,
    /// Number of datagrams in a burst, at least 1.
    pub burst: u32,
}

/// The state of a rule in use.
#[derive(Debug)]
pub(crate) struct Dropper {
    rule: DropRule,
    rng: Rng,
    /// Number of datagrams left to drop in the current burst.
    left: u32,
    /// Number of datagrams dropped so far.
    pub(crate) dropped: u64,
}

impl Dropper {
    pub(crate) fn new(rule: DropRule) -> Dropper {
        Dropper { rule, rng: Rng::new(rule.seed), left: 0, dropped: 0 }
    }

    /// Returns whether the next datagram must be dropped, and counts it.
    pub(crate) fn drops(&mut self) -> bool {
        if self.left == 0 && self.rng.chance(self.rule.chance) {
            self.left = self.rule.burst.max(1);
        }
        let drops = 0 < self.left;
        self.left = self.left.saturating_sub(1);
        self.dropped += u64::from(drops);
        drops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_their_length_and_repeat_by_seed() {
        let rule = DropRule { seed: 7, chance: 0.02, burst: 5 };
        let verdicts = |rule| {
            let mut dropper = Dropper::new(rule);
            (0..10_000).map(|_| dropper.drops()).collect::<Vec<bool>>()
        };
        assert_eq!(verdicts(rule), verdicts(rule));
        let share = verdicts(rule).iter().filter(|drop| **drop).count();
        assert!((700..1200).contains(&share), "{share}");
        let runs = verdicts(rule);
        let bursts: Vec<&[bool]> = runs.chunk_by(|a, b| a == b).filter(|run| run[0]).collect();
        assert!(bursts[..bursts.len() - 1].iter().all(|burst| burst.len() % 5 == 0));
        assert!(!verdicts(DropRule { chance: 0.0, ..rule }).contains(&true));
        assert!(!verdicts(DropRule { chance: 1.0, ..rule }).contains(&false));
    }
}
