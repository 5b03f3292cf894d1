//! Readings of the stream that end at the same message.

/// Number of readings that end at the same message before it is read by itself.
const FAILURES_MIN: u32 = 2;

/// Where the last readings of the stream have failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockedReading {
    /// Stream sequence of the last message that was read.
    read_to: u64,
    /// Number of failures behind it.
    failures: u32,
}

impl BlockedReading {
    /// Notes that a reading has failed behind a stream sequence.
    pub(super) fn on_failure(&mut self, read_to: u64) {
        let failures = if self.read_to == read_to { self.failures.saturating_add(1) } else { 1 };
        *self = BlockedReading { read_to, failures };
    }

    /// Returns the stream sequence behind which a message ends each reading, if there seems to be one.
    pub(super) fn blocked_behind(&self) -> Option<u64> {
        (FAILURES_MIN <= self.failures).then_some(self.read_to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_at_one_message_block() {
        let mut blocked = BlockedReading::default();
        let after = [7, 9, 9, 9, 12].map(|read_to| {
            blocked.on_failure(read_to);
            blocked.blocked_behind()
        });
        assert_eq!(after, [None, None, Some(9), Some(9), None]);
    }
}
