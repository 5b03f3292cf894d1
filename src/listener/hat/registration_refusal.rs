//! Refusals of registrations.

use super::server_message::Status;
use super::value::RegistrationError;
use crate::event::model::JsonError;
use std::fmt;

/// The reason why a registration fails. The client learns only that it fails. Events are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationRefusal {
    /// The server is about to stop, or not ready.
    Status(Status),
    /// The registration has too many events.
    TooMany {
        /// Number of events.
        count: usize,
        /// Maximum number.
        max: usize,
    },
    /// An event cannot be registered.
    Event {
        /// Number of the event.
        number: usize,
        /// The reason.
        error: RegistrationError,
    },
}

impl RegistrationRefusal {
    /// Returns the name of the kind of refusal, for counters.
    pub fn kind(&self) -> &'static str {
        match self {
            RegistrationRefusal::Status(_) => "status",
            RegistrationRefusal::TooMany { .. } => "too many events",
            RegistrationRefusal::Event { error: RegistrationError::Type(_), .. } => "event type",
            RegistrationRefusal::Event { error: RegistrationError::SourceTime(_), .. } => "source time",
            RegistrationRefusal::Event { error: RegistrationError::Json(JsonError::Depth { .. }), .. } => "JSON depth",
            RegistrationRefusal::Event { error: RegistrationError::Json(_), .. } => "JSON",
            RegistrationRefusal::Event { error: RegistrationError::TooLarge { .. }, .. } => "event size",
        }
    }
}

impl fmt::Display for RegistrationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistrationRefusal::Status(status) => write!(f, "events are not registered while the server is {status}"),
            RegistrationRefusal::TooMany { count, max } => {
                write!(f, "{count} events in one registration, at most {max} are allowed")
            }
            RegistrationRefusal::Event { number, error } => write!(f, "event {number}: {error}"),
        }
    }
}

impl std::error::Error for RegistrationRefusal {}
