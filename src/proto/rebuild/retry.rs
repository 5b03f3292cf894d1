//! Repetition of history requests that stay unanswered.

use crate::time::Instant;
use std::time::Duration;

/// First interval between two history requests; it doubles each time.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(40);
/// Maximum interval, unless the first one is longer.
const RETRY_INTERVAL_MAX: Duration = Duration::from_millis(640);

/// Timer of repeated history requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryTimer {
    /// Time of the next request.
    pub(super) at: Instant,
    wait: Duration,
}

impl RetryTimer {
    /// Creates a timer for a request sent now, which may take `wait`.
    pub(super) fn after(now: Instant, wait: Duration) -> RetryTimer {
        RetryTimer { at: now + wait, wait }
    }

    /// Returns whether the request is due, and schedules the next one.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.at <= now;
        if is_due {
            *self = RetryTimer::after(now, (self.wait * 2).min(RETRY_INTERVAL_MAX.max(self.wait)));
        }
        is_due
    }
}
