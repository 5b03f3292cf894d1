//! Times at which a peer sends its HELLO.

use crate::time::Instant;
use std::time::Duration;

/// Time from each of the first HELLOs to the next one, so that one of them soon arrives at every peer.
const FIRST_INTERVALS: [Duration; 4] =
    [Duration::from_millis(20), Duration::from_millis(40), Duration::from_millis(80), Duration::from_millis(160)];
/// Time between two later HELLOs.
const INTERVAL: Duration = Duration::from_secs(1);

/// The schedule of the HELLOs of an epoch at one address.
#[derive(Debug)]
pub(super) struct HelloSchedule {
    sent: usize,
    /// Time of the next HELLO.
    pub(super) due: Instant,
}

impl HelloSchedule {
    /// Begins with a HELLO that is due at once.
    pub(super) fn new() -> HelloSchedule {
        HelloSchedule { sent: 0, due: Instant::ZERO }
    }

    /// Schedules the next HELLO after one was sent.
    pub(super) fn on_sent(&mut self, now: Instant) {
        self.due = now + FIRST_INTERVALS.get(self.sent).copied().unwrap_or(INTERVAL);
        self.sent += 1;
    }
}
