//! Budgets of checks that others can cause at any rate.

use crate::time::Instant;
use std::time::Duration;

/// Number of checks that are allowed in an interval of time.
#[derive(Debug)]
pub(super) struct CheckBudget {
    checks_max: u32,
    interval: Duration,
    used: u32,
    since: Instant,
}

impl CheckBudget {
    /// Creates a budget of this number of checks in each interval.
    pub(super) fn new(checks_max: u32, interval: Duration) -> CheckBudget {
        CheckBudget { checks_max, interval, used: 0, since: Instant::ZERO }
    }

    /// Returns whether another check is allowed now, and counts it.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        if self.interval <= now.since(self.since) {
            (self.used, self.since) = (0, now);
        }
        let is_allowed = self.used < self.checks_max;
        self.used += u32::from(is_allowed);
        is_allowed
    }
}
