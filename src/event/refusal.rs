//! Why a request about events is refused, in the words of all who may ask.

use super::model::{SESSION_EVENTS_MAX, TYPE_NAME_BYTES_MAX};
use super::store::QueryError;
use crate::subject::event_type::EventType;
use std::fmt;

/// Why a request about events is refused. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRefusal {
    /// For programs.
    pub kind: EventRefusalKind,
    /// For people: what is wrong and what mends it.
    pub text: String,
}

/// What kind of thing is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventRefusalKind {
    /// The request cannot be done, now or later.
    Invalid,
    /// This peer has no journal, or one that cannot be used.
    Unavailable,
    /// The disk is full. The same request can be made again later.
    Full,
    /// Too many requests wait. The same request can be made again soon.
    Busy,
    /// The peer is stopping.
    Stopping,
}

impl EventRefusalKind {
    /// Name for counters.
    pub fn as_str(self) -> &'static str {
        match self {
            EventRefusalKind::Invalid => "invalid",
            EventRefusalKind::Unavailable => "unavailable",
            EventRefusalKind::Full => "disk full",
            EventRefusalKind::Busy => "busy",
            EventRefusalKind::Stopping => "stopping",
        }
    }
}

impl EventRefusal {
    /// So many requests wait already.
    pub fn busy() -> EventRefusal {
        let text = "too many requests about events wait at the peer: wait for answers before asking more".into();
        EventRefusal { kind: EventRefusalKind::Busy, text }
    }

    /// The peer takes no more requests.
    pub fn stopping() -> EventRefusal {
        EventRefusal { kind: EventRefusalKind::Stopping, text: "the peer is stopping".into() }
    }

    /// An event of the request is larger than the peer's messages may be.
    pub fn too_large(event_type: &EventType, bytes: usize, bytes_max: usize) -> EventRefusal {
        let text = format!(
            "the event {event_type} takes {bytes} bytes; at most {bytes_max} fit a message of the bus (key message-size)"
        );
        EventRefusal { kind: EventRefusalKind::Invalid, text }
    }

    /// A request is for more events than one session may have.
    pub fn too_many(count: usize) -> EventRefusal {
        let text = format!("a request for {count} events: one may be for {SESSION_EVENTS_MAX}, make several of it");
        EventRefusal { kind: EventRefusalKind::Invalid, text }
    }

    /// The name of the type of a binary payload is too long.
    pub fn long_type_name(event_type: &EventType, bytes: usize) -> EventRefusal {
        let text = format!(
            "the payload of the event {event_type} has a type whose name takes {bytes} bytes, of at most {TYPE_NAME_BYTES_MAX}"
        );
        EventRefusal { kind: EventRefusalKind::Invalid, text }
    }
}

impl fmt::Display for EventRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl std::error::Error for EventRefusal {}

impl From<QueryError> for EventRefusal {
    fn from(error: QueryError) -> EventRefusal {
        EventRefusal { kind: EventRefusalKind::Invalid, text: error.to_string() }
    }
}
