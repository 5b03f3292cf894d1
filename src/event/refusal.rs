//! Refusals of requests about events, worded for all protocols.

use super::model::{SESSION_EVENTS_MAX, TYPE_NAME_BYTES_MAX};
use super::store::QueryError;
use crate::subject::event_type::EventType;
use std::fmt;

/// The reason why a peer refuses a request about events. A refused request has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRefusal {
    /// Kind of the refusal, for programs.
    pub kind: EventRefusalKind,
    /// Text for people: the problem and its remedy.
    pub text: String,
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventRefusalKind {
    /// The request is invalid. Retrying it is pointless.
    Invalid,
    /// This peer has no journal, or cannot use it.
    Unavailable,
    /// The disk is full. The client may retry later.
    Full,
    /// Too many requests are pending. The client may retry soon.
    Busy,
    /// The peer is stopping.
    Stopping,
}

impl EventRefusalKind {
    /// Returns the name for counters.
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
    /// Refuses a request because the maximum number of requests is pending.
    pub fn busy() -> EventRefusal {
        let text =
            "too many requests about events are pending at the peer: wait for answers before sending more".into();
        EventRefusal { kind: EventRefusalKind::Busy, text }
    }

    /// Refuses a request because the peer is stopping.
    pub fn stopping() -> EventRefusal {
        EventRefusal { kind: EventRefusalKind::Stopping, text: "the peer is stopping".into() }
    }

    /// Refuses a request because this build has no event service.
    pub fn absent() -> EventRefusal {
        let text = "the peer was built without the feature 'events'".into();
        EventRefusal { kind: EventRefusalKind::Unavailable, text }
    }

    /// Refuses an action that the certificate of this host does not permit.
    pub fn denied(action: &str) -> EventRefusal {
        let text = format!(
            "the certificate of this host does not let its programs {action}; sign a new request of this host with patterns \
             for their subjects (seqcast realm sign)"
        );
        EventRefusal { kind: EventRefusalKind::Invalid, text }
    }

    /// Refuses an event that is larger than the message limit of the peer.
    pub fn too_large(event_type: &EventType, bytes: usize, bytes_max: usize) -> EventRefusal {
        let text = format!(
            "the event {event_type} has {bytes} bytes; at most {bytes_max} fit a message of the bus (key message-size)"
        );
        EventRefusal { kind: EventRefusalKind::Invalid, text }
    }

    /// Refuses a request for more events than one session may have.
    pub fn too_many(count: usize) -> EventRefusal {
        let text = format!("the request has {count} events, at most {SESSION_EVENTS_MAX} are allowed: split it");
        EventRefusal { kind: EventRefusalKind::Invalid, text }
    }

    /// Refuses a binary payload whose type has too long a name.
    pub fn long_type_name(event_type: &EventType, bytes: usize) -> EventRefusal {
        let text = format!(
            "the payload of the event {event_type} has a type name of {bytes} bytes, at most {TYPE_NAME_BYTES_MAX} are allowed"
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
