//! Faults of Hat clients, each of which ends the connection.

use super::sbs::SbsError;
use std::fmt;

/// The reason why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HatFault {
    /// The length of a frame has an invalid number of bytes. Holds the number.
    Length(usize),
    /// A frame is too long.
    TooLong {
        /// Bytes of the frame.
        bytes: u64,
        /// Maximum bytes.
        bytes_max: usize,
    },
    /// A message cannot be decoded.
    Malformed {
        /// Type of the message.
        type_name: &'static str,
        /// Position and kind of the error.
        error: SbsError,
    },
    /// The message has an unknown type. Holds its first characters.
    UnknownType(String),
    /// A message of this type is not allowed now, or not allowed from a client.
    Unexpected(&'static str),
    /// A request ends its own conversation, so that it cannot be answered. Holds the type of the message.
    Ended(&'static str),
    /// The token is missing or wrong.
    Token,
    /// A query, or the subscriptions, have too many types.
    Types {
        /// Number of types.
        count: usize,
        /// Maximum number.
        max: usize,
    },
    /// The types with a `?` in a query, or in the subscriptions, have too many subtypes in total.
    Wildcards {
        /// Number of subtypes.
        subtypes: usize,
        /// Maximum number.
        max: usize,
    },
    /// The query names an event of a server other than the queried one.
    OtherServer {
        /// Server of the event.
        after: i128,
        /// Queried server.
        server: i128,
    },
    /// The client did not authenticate in time.
    AuthTime,
    /// The client sent nothing for too long.
    Idle,
    /// The connection is not encrypted, although the listener requires it.
    NotEncrypted,
}

/// Maximum number of reported characters of an unknown type.
const NAME_CHARS: usize = 60;

impl HatFault {
    /// Returns the fault for a type that does not exist.
    pub(super) fn unknown_type(name: &str) -> HatFault {
        HatFault::UnknownType(name.chars().take(NAME_CHARS).collect())
    }
}

impl fmt::Display for HatFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HatFault::Length(count) => write!(f, "the length of a frame has 1 to 8 bytes, not {count}"),
            HatFault::TooLong { bytes, bytes_max } => {
                write!(f, "a frame has {bytes} bytes, at most {bytes_max} are allowed")
            }
            HatFault::Malformed { type_name, error } => write!(f, "malformed {type_name}: {error}"),
            HatFault::UnknownType(name) => write!(f, "there is no message type {name:?}"),
            HatFault::Unexpected(name) => write!(f, "{name} is not expected now"),
            HatFault::Ended(name) => {
                write!(f, "{name} ends its conversation, so that it cannot be answered")
            }
            HatFault::Token => write!(f, "invalid client token"),
            HatFault::Types { count, max } => {
                write!(f, "{count} event types in one request, at most {max} are allowed")
            }
            HatFault::Wildcards { subtypes, max } => {
                write!(f, "event types with '?' have {subtypes} subtypes together, at most {max} are allowed")
            }
            HatFault::OtherServer { after, server } => {
                write!(f, "a query of server {server} names an event of server {after}")
            }
            HatFault::AuthTime => write!(f, "the client did not authenticate in time"),
            HatFault::Idle => write!(f, "the client was silent for too long"),
            HatFault::NotEncrypted => write!(f, "this listener takes encrypted connections only"),
        }
    }
}

impl std::error::Error for HatFault {}
