//! Events that cross, by their types and their sizes.

use crate::event::model::{Event, EventId};
use crate::listener::replication::{HEAD_BYTES, event_bytes};
use crate::subject::event_type::TypePattern;

/// Types of events that a gateway lets out of its site, and into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayedTypes {
    /// Types that leave the site.
    pub exports: Vec<TypePattern>,
    /// Types that the site takes from others.
    pub imports: Vec<TypePattern>,
}

impl RelayedTypes {
    /// Returns whether any event may cross.
    pub fn is_any(&self) -> bool {
        !self.exports.is_empty() || !self.imports.is_empty()
    }
}

/// Takes out the events whose type matches none of the patterns.
pub(super) fn retain_types(events: &mut Vec<Event>, types: &[TypePattern]) {
    events.retain(|event| types.iter().any(|pattern| pattern.matches(&event.event_type)));
}

/// Result of [`fit`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fitting {
    /// Events that fit no message, not even alone. They are taken out.
    pub(super) too_large: Vec<EventId>,
    /// The last event that is left, if later ones were cut off.
    pub(super) cut_after: Option<EventId>,
}

/// Cuts a list of events to what fits a message with `bytes_max` bytes of payload.
pub(super) fn fit(events: &mut Vec<Event>, bytes_max: usize) -> Fitting {
    let bytes_max = bytes_max.saturating_sub(HEAD_BYTES);
    let too_large = events.extract_if(.., |event| bytes_max < event_bytes(event)).map(|event| event.id).collect();
    let mut bytes = 0;
    let count = events
        .iter()
        .take_while(|event| {
            bytes += event_bytes(event);
            bytes <= bytes_max
        })
        .count();
    let is_cut = count < events.len();
    events.truncate(count);
    Fitting { too_large, cut_after: events.last().filter(|_| is_cut).map(|event| event.id) }
}
