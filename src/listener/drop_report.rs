//! Report of the messages that a client lost because it reads too slowly.

use crate::subject::Subject;

/// Messages that a client lost since its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropReport {
    /// Number of messages that wait for the client.
    pub waiting: u64,
    /// Number of messages dropped.
    pub dropped: u64,
    /// Size of these messages in bytes.
    pub dropped_bytes: u64,
    /// The first subjects with a drop in alphabetical order, each with its number of messages. Further ones count in
    /// `dropped` only.
    pub subjects: Vec<(Subject, u64)>,
}
