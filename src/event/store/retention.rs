//! Retention of events in a journal.

use crate::event::timestamp::Timestamp;
use crate::subject::event_type::{EventType, TypePattern};
use std::time::Duration;

/// The rules that decide which events a journal removes. An event belongs to the first rule that matches its type. An
/// event that belongs to none is kept forever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The rules, in the order in which they are tried.
    pub rules: Vec<Rule>,
}

/// Limits for all events of a rule together. The excess is removed, beginning with the earliest event in the natural
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Pattern of the types that the rule applies to.
    pub pattern: TypePattern,
    /// Maximum age, by timestamp; older events are removed.
    pub age: Option<Duration>,
    /// Maximum number of events.
    pub count: Option<u64>,
    /// Maximum bytes of their payloads, all together.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Returns the index of the rule that events of the type belong to.
    pub fn rule(&self, event_type: &EventType) -> Option<usize> {
        self.rules.iter().position(|rule| rule.pattern.matches(event_type))
    }
}

impl Rule {
    /// Returns whether the earliest event of the rule, with timestamp `earliest`, must be removed. `count` and `bytes`
    /// are the number of the rule's events and the bytes of their payloads.
    pub fn is_exceeded(&self, now: Timestamp, earliest: Timestamp, count: u64, bytes: u64) -> bool {
        let age_micros = i128::from(now.as_micros()) - i128::from(earliest.as_micros());
        self.age.is_some_and(|age| (age.as_micros() as i128) < age_micros)
            || self.count.is_some_and(|most| most < count)
            || self.bytes.is_some_and(|most| most < bytes)
    }
}
