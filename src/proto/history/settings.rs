//! Settings of the history, and the limits of one rule that follow from them.

use crate::subject::Pattern;
use std::time::Duration;

/// Limits of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    /// M: maximum number of events of each subject; at least 2, or 0 for none.
    pub count_max: u32,
    /// Maximum bytes of the events of each subject: payload, headers, reply subject and 42 bytes each.
    pub bytes_max: usize,
    /// Maximum age of an event.
    pub time: Duration,
    /// Maximum bytes of all events, subjects and tables together.
    pub total_bytes_max: usize,
    /// Other limits for some subjects; the first rule whose pattern matches applies.
    pub overrides: Vec<HistoryRule>,
}

/// Limits for the subjects that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRule {
    /// Pattern of the subjects.
    pub pattern: Pattern,
    /// M: maximum number of events of each subject; at least 2, or 0 for none.
    pub count_max: u32,
    /// Maximum bytes of the events of each subject, as in [`HistorySettings::bytes_max`].
    pub bytes_max: usize,
    /// Maximum age of an event.
    pub time: Duration,
}

/// Limits of one rule.
#[derive(Clone, Copy)]
pub(super) struct HistoryLimits {
    pub(super) count_max: usize,
    pub(super) bytes_max: usize,
    /// Maximum bytes of each event.
    pub(super) event_bytes_max: usize,
    pub(super) time: Duration,
    /// Maximum number of events of one record, and of their content bytes if there are several. An event that may be
    /// too large is alone.
    pub(super) run_count_max: usize,
    pub(super) run_bytes_max: usize,
}
