//! Report of messages for queue groups that no member got: a log line, at most one a second.

use crate::time::Instant;
use std::time::Duration;

/// Minimum time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Number of reported messages, and the time of the last report.
#[derive(Debug, Default)]
pub(crate) struct UnservedReport {
    /// Number of messages in all lines so far.
    reported: u64,
    /// Time of the last line.
    last: Option<Instant>,
}

impl UnservedReport {
    /// Logs the number of messages that no member got since the last line, if there are any and the last line is old
    /// enough. `total` counts them since the start.
    pub(crate) fn report(&mut self, now: Instant, total: u64) {
        if let Some(messages) = self.take_due(now, total) {
            tracing::warn!(messages, total, "messages for queue groups went to no member: see queue_unserved");
        }
    }

    fn take_due(&mut self, now: Instant, total: u64) -> Option<u64> {
        let count = total - self.reported;
        if count == 0 || self.last.is_some_and(|last| now.since(last) < INTERVAL) {
            return None;
        }
        (self.reported, self.last) = (total, Some(now));
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unserved_messages_are_reported_once_a_second() {
        let mut report = UnservedReport::default();
        let steps = [(0, 0, None), (5, 3, Some(3)), (6, 4, None), (1004, 9, None), (1005, 9, Some(6)), (9000, 9, None)];
        for (millis, total, expected) in steps {
            let now = Instant::ZERO + Duration::from_millis(millis);
            assert_eq!(report.take_due(now, total), expected, "after {millis} ms");
        }
    }
}
