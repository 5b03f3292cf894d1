//! Why a request about events is refused, in the words of all who may ask.

use super::model::{SESSION_EVENTS_MAX, TYPE_NAME_BYTES_MAX};
use super::store::QueryError;
use crate::subject::event_type::EventType;
use std::fmt;

/// Why a request about events is refused. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub kind: Kind,
    /// For people: what is wrong and what mends it.
    pub text: String,
}

/// What kind of thing is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
    /// Name for counters.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid",
            Kind::Unavailable => "unavailable",
            Kind::Full => "disk full",
            Kind::Busy => "busy",
            Kind::Stopping => "stopping",
        }
    }
}

impl Refusal {
    /// So many requests wait already.
    pub fn busy() -> Refusal {
        let text = "too many requests about events wait at the peer: wait for answers before asking more".into();
        Refusal { kind: Kind::Busy, text }
    }

    /// The peer takes no more requests.
    pub fn stopping() -> Refusal {
        Refusal { kind: Kind::Stopping, text: "the peer is stopping".into() }
    }

    /// An event of the request is larger than the peer's messages may be.
    pub fn too_large(event_type: &EventType, bytes: usize, bytes_max: usize) -> Refusal {
        let text = format!(
            "the event {event_type} takes {bytes} bytes; at most {bytes_max} fit a message of the bus (key message-size)"
        );
        Refusal { kind: Kind::Invalid, text }
    }

    /// A request is for more events than one session may have.
    pub fn too_many(count: usize) -> Refusal {
        let text = format!("a request for {count} events: one may be for {SESSION_EVENTS_MAX}, make several of it");
        Refusal { kind: Kind::Invalid, text }
    }

    /// The name of the type of a binary payload is too long.
    pub fn long_type_name(event_type: &EventType, bytes: usize) -> Refusal {
        let text = format!(
            "the payload of the event {event_type} has a type whose name takes {bytes} bytes, of at most {TYPE_NAME_BYTES_MAX}"
        );
        Refusal { kind: Kind::Invalid, text }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl std::error::Error for Refusal {}

impl From<QueryError> for Refusal {
    fn from(error: QueryError) -> Refusal {
        Refusal { kind: Kind::Invalid, text: error.to_string() }
    }
}
