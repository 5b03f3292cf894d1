//! How long events are kept.

use crate::event::timestamp::Timestamp;
use crate::subject::event_type::{EventType, TypePattern};
use std::time::Duration;

/// What is to be removed from a journal. An event belongs to the first rule that matches its type; one that belongs to none is kept
/// for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// In the order in which they are tried.
    pub rules: Vec<Rule>,
}

/// Limits for the events that belong to it, all together. What is too much is removed from the earliest in the natural order on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The types that it is for.
    pub pattern: TypePattern,
    /// Events whose timestamp is longer ago are removed.
    pub age: Option<Duration>,
    /// So many are kept at most.
    pub count: Option<u64>,
    /// Their payloads have so many bytes at most, all together.
    pub bytes: Option<u64>,
}

impl Retention {
    /// The index of the rule that events of the type belong to.
    pub fn rule(&self, event_type: &EventType) -> Option<usize> {
        self.rules.iter().position(|rule| rule.pattern.matches(event_type))
    }
}

impl Rule {
    /// Whether the earliest event is to go, with this timestamp, if so many belong to the rule with payloads of so many bytes.
    pub fn is_exceeded(&self, now: Timestamp, earliest: Timestamp, count: u64, bytes: u64) -> bool {
        let age_micros = i128::from(now.as_micros()) - i128::from(earliest.as_micros());
        self.age.is_some_and(|age| (age.as_micros() as i128) < age_micros)
            || self.count.is_some_and(|most| most < count)
            || self.bytes.is_some_and(|most| most < bytes)
    }
}
