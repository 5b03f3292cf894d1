//! The size of a scenario: most are ordinary, some are long, some are busy (docs/simulator.md has the costs).

use super::{FaultKind, Faults, SECOND};
use crate::rng::Rng;

/// One scenario out of this number is long.
const LONG_SHARE: u64 = 16;
/// One of the other scenarios out of this number is busy.
const BUSY_SHARE: u64 = 64;

/// The kinds of size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScenarioSize {
    /// Two to five hosts for about a minute.
    Ordinary,
    /// Two to four hosts for about an hour, with few events, epochs and subscriptions that come and go, and clocks
    /// that drift.
    Long,
    /// 20 to 50 hosts for some seconds.
    Busy,
}

impl ScenarioSize {
    /// Draws the size of the scenario of a seed.
    pub(super) fn draw(seed: u64) -> ScenarioSize {
        let mut rng = Rng::new(seed ^ 0x5_12e5);
        if rng.below(LONG_SHARE) == 0 {
            ScenarioSize::Long
        } else if rng.below(BUSY_SHARE) == 0 {
            ScenarioSize::Busy
        } else {
            ScenarioSize::Ordinary
        }
    }

    /// Returns the drawn faults; a long scenario gets some of the kinds that suit it as well.
    pub(super) fn with_faults(self, seed: u64, faults: Faults) -> Faults {
        if self != ScenarioSize::Long {
            return faults;
        }
        let mut rng = Rng::new(seed ^ 0xfa_175);
        let kinds =
            [FaultKind::Skew, FaultKind::Resubscribe, FaultKind::CrashSoon, FaultKind::CrashLate, FaultKind::Stop];
        kinds.into_iter().fold(faults, |sum, kind| if rng.chance(0.6) { sum.with(kind) } else { sum })
    }

    /// Returns the number of hosts; `ordinary` of an ordinary scenario.
    pub(super) fn hosts(self, rng: &mut Rng, ordinary: usize) -> usize {
        match self {
            ScenarioSize::Ordinary => ordinary,
            ScenarioSize::Long => ordinary.min(4),
            ScenarioSize::Busy => rng.between(20, 50) as usize,
        }
    }

    /// Returns the time in nanoseconds at which the faults end; `ordinary` in an ordinary scenario.
    pub(super) fn heal_at(self, rng: &mut Rng, ordinary: u64) -> u64 {
        match self {
            ScenarioSize::Ordinary => ordinary,
            ScenarioSize::Long => rng.between(3400, 3700) * SECOND,
            ScenarioSize::Busy => rng.between(10, 16) * SECOND,
        }
    }

    /// Returns the factor of the time between two events at a host, relative to an ordinary scenario.
    pub(super) fn interval_factor(self) -> u64 {
        match self {
            ScenarioSize::Ordinary => 1,
            ScenarioSize::Long => 40,
            ScenarioSize::Busy => 12,
        }
    }

    /// Returns the probability that a host's peer ends once more, in scenarios in which peers end.
    pub(super) fn next_life(self) -> f64 {
        if self == ScenarioSize::Long { 0.9 } else { 0.6 }
    }

    /// Returns the range in seconds within which a host that joins late starts.
    pub(super) fn late_start(self) -> (u64, u64) {
        match self {
            ScenarioSize::Ordinary => (5, 40),
            ScenarioSize::Long => (5, 2000),
            ScenarioSize::Busy => (2, 8),
        }
    }
}
