//! Retention of events in a journal.

use crate::event::timestamp::Timestamp;
use crate::subject::event_type::{EventType, TypePattern};
use std::time::Duration;

/// The rules by which a journal removes events. An event belongs to the first rule that matches its type. The journal
/// retains an event without a rule forever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The rules. The first one that matches applies.
    pub rules: Vec<Rule>,
}

/// Limits for all events of a rule together. Beyond them, the journal removes the earliest events in the natural order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Pattern of the types to which the rule applies.
    pub pattern: TypePattern,
    /// Maximum age of an event, by its timestamp.
    pub age: Option<Duration>,
    /// Maximum number of events.
    pub count: Option<u64>,
    /// Maximum total bytes of their payloads.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Returns the index of the rule for events of the type, if a rule matches.
    pub fn rule(&self, event_type: &EventType) -> Option<usize> {
        self.rules.iter().position(|rule| rule.pattern.matches(event_type))
    }
}

impl Rule {
    /// Returns whether the earliest event of the rule must be removed. `earliest` is its timestamp, `count` the number
    /// of the rule's events, and `bytes` the size of their payloads.
    pub fn is_exceeded(&self, now: Timestamp, earliest: Timestamp, count: u64, bytes: u64) -> bool {
        let age_micros = i128::from(now.as_micros()) - i128::from(earliest.as_micros());
        self.age.is_some_and(|age| (age.as_micros() as i128) < age_micros)
            || self.count.is_some_and(|max| max < count)
            || self.bytes.is_some_and(|max| max < bytes)
    }
}
