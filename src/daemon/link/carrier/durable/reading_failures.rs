//! Failures of readers of the stream, and the messages that cause them.
//!
//! The client library gives its connection up when it receives a message whose header fields are malformed, and drops
//! messages with some status lines. A reader of the stream would fail at such a message for ever.

use std::time::Duration;

/// Number of readers that fail at the same place until the next message is read by itself.
const FAILURES_MIN: u32 = 2;
/// Time from which a reader has worked: its failure is no sequel of the failure before.
const WORKING_TIME: Duration = Duration::from_secs(30);

/// The last failures.
#[derive(Debug, Default)]
pub(super) struct ReadingFailures {
    /// Number of readers that have failed at the same place, one after the other.
    count: u32,
    /// Stream sequence of the last message that these have read.
    read_to: u64,
    /// Highest stream sequence of a message that was read by itself, because readers fail there.
    single: u64,
}

impl ReadingFailures {
    /// Notes that a reader has failed, which worked for some time and read up to a stream sequence.
    pub(super) fn on_failure(&mut self, worked: Duration, read_to: u64) {
        let is_sequel = worked < WORKING_TIME && self.read_to == read_to;
        (self.count, self.read_to) = (if is_sequel { self.count.saturating_add(1) } else { 1 }, read_to);
    }

    /// Returns the stream sequence up to which, and one message further, no reader is used, if there is one.
    pub(super) fn single_behind(&self) -> Option<u64> {
        let suspected = (FAILURES_MIN <= self.count).then_some(self.read_to);
        suspected.max(self.single.checked_sub(1))
    }

    /// Notes that messages up to a stream sequence were read by themselves.
    pub(super) fn on_single(&mut self, sequence: u64) {
        self.single = self.single.max(sequence);
        // There may be another one behind it.
        if self.read_to < sequence {
            (self.count, self.read_to) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_where_readers_fail_is_read_alone() {
        let mut failures = ReadingFailures::default();
        let fail = |failures: &mut ReadingFailures, secs, read_to| {
            failures.on_failure(Duration::from_secs(secs), read_to);
            failures.single_behind()
        };
        assert_eq!(fail(&mut failures, 3_600, 9), None);
        assert_eq!(fail(&mut failures, 3_600, 9), None, "two outages of a stream without messages");
        assert_eq!(fail(&mut failures, 1, 7), None, "another place");
        assert_eq!([fail(&mut failures, 1, 9), fail(&mut failures, 1, 9)], [None, Some(9)]);
        failures.on_single(10);
        assert_eq!(failures.single_behind(), Some(9), "no reader begins before it again");
        assert_eq!(fail(&mut failures, 1, 10), Some(9));
        failures.on_single(10);
        assert_eq!(fail(&mut failures, 1, 10), Some(10), "the next one is such a message, too");
    }
}
