//! Positions of streams of messages in the report `seqno`, and the messages between two of them.

use serde_json::Value;

/// Position of the messages of one publisher on one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubjectPosition {
    /// Frame of the last message.
    pub frame: u64,
    /// Number of messages in that frame.
    pub count: u64,
}

impl SubjectPosition {
    /// Reads the position of a row.
    pub fn of(row: &Value) -> SubjectPosition {
        let number = |name: &str| row[name].as_u64().unwrap_or_default();
        SubjectPosition { frame: number("frame"), count: number("count") }
    }

    /// Returns the number of messages since an earlier position. Of an earlier frame they are not counted.
    pub fn messages_since(self, before: SubjectPosition) -> u64 {
        if self.frame == before.frame { self.count.saturating_sub(before.count) } else { self.count }
    }
}
