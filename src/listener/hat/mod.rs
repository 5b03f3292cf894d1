//! The Hat listener: clients of Hat Event Server (seed 004) register events, subscribe to them and query them.
//!
//! | layer | file |
//! |---|---|
//! | SBS, the encoding of values | [`sbs`] |
//! | frames, and chatter: numbered messages in conversations | [`chatter`] |
//! | messages of clients, and messages of servers | [`client_message`], [`server_message`] |
//! | components of messages | [`value`] |
//! | one client | [`session`] |
//! | the same client in the interface that all listeners share | [`client`] |
//!
//! # What differs from the reference
//!
//! - The protocol has a refusal for a registration, and for no other request. A client whose request is invalid is
//!   disconnected. If the request merely cannot find anything, its answer is empty.
//! - A type has at least one subtype, and fits into a subject. A registration of another type fails, and a query for it
//!   finds nothing. The same holds for patterns that match no type: `?` and `*` in a longer subtype, or a `*` that is
//!   not the last.
//! - A payload of the JSON kind must be JSON. `NaN` and `Infinity`, which Python accepts and Hat's own client refuses,
//!   are not.
//! - With accounts configured, a client must have a token. Without accounts, any token is accepted.
//! - A session of another peer may arrive in several messages: on the bus each event is a message of its own
//!   ([`client`]).
//! - JSON nested deeper than 900 levels is refused: stock clients cannot read it (`event::model::JSON_DEPTH_MAX`).
//! - An event is stored before any client receives it, so a request for persisted events makes no difference.

pub mod chatter;
pub mod client;
pub mod client_message;
pub mod sbs;
pub mod server_message;
pub mod session;
#[cfg(test)]
mod tests;
pub mod value;

pub use chatter::{ChatterMessage, ChatterParser};
pub use client::HatClient;
pub use session::{HatAction, HatSession, RequestId};

use crate::event::model::{JsonError, ServerId};
use crate::event::store::TYPES_MAX;
use crate::listener::access::Access;
use crate::message::MESSAGE_BYTES_MAX;
use crate::subject::SUBJECT_BYTES_MAX;
use std::fmt;
use std::time::Duration;

/// Settings and limits of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Accounts that may use it. A token is a credential by itself; with the name of the client it is the password of a
    /// user. Keys are not accepted here.
    pub access: Access,
    /// The server that registers the events.
    pub server: ServerId,
    /// True if an event announces each client that connects, and another one that it disconnects.
    pub announces: bool,
    /// Maximum size of a frame in bytes. A larger one ends the connection.
    pub frame_bytes_max: usize,
    /// Maximum size of a frame in bytes for an unauthenticated client.
    pub unauthenticated_bytes_max: usize,
    /// Maximum size of an event in bytes, as a message on the bus. Registering a larger one fails.
    pub message_bytes_max: usize,
    /// Maximum number of events of a registration; a larger registration fails.
    pub registrations_max: usize,
    /// Maximum number of subscriptions of a client, and of types of a query. More of them end the connection.
    pub types_max: usize,
    /// Maximum number of subtypes in all patterns with a `?` of one request together; more end the connection. It
    /// bounds the steps that a client adds to each lookup of a type, whether for subscriptions or for a query. 2,048
    /// steps take some 10 µs.
    pub wildcard_subtypes_max: usize,
    /// Maximum number of unanswered requests of a client. At the limit no further message is read.
    pub requests_max: usize,
    /// Maximum bytes of unanswered requests; the last one may exceed it.
    pub requests_bytes_max: usize,
    /// Time within which a client must authenticate. Then the connection is closed.
    pub auth_time: Duration,
    /// Time without a message after which the client is pinged. After the same time without an answer its connection
    /// ends.
    pub ping_interval: Duration,
}

impl Default for Settings {
    /// Returns settings without access control, with pings as the reference sends them.
    fn default() -> Settings {
        Settings {
            access: Access::default(),
            server: ServerId(1),
            announces: true,
            frame_bytes_max: 16 << 20,
            unauthenticated_bytes_max: UNAUTHENTICATED_BYTES,
            message_bytes_max: MESSAGE_BYTES_MAX,
            registrations_max: 64 << 10,
            types_max: TYPES,
            wildcard_subtypes_max: 2048,
            requests_max: 64,
            requests_bytes_max: 16 << 20,
            auth_time: Duration::from_secs(10),
            ping_interval: Duration::from_secs(20),
        }
    }
}

const TYPES: usize = TYPES_MAX;
const UNAUTHENTICATED_BYTES: usize = 512 << 10;

// The first message of a client has room for the maximum number of subscriptions, with some bytes for the length of
// each subtype.
const _: () = assert!(TYPES * 3 * SUBJECT_BYTES_MAX / 2 < UNAUTHENTICATED_BYTES);

/// The reason why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HatFault {
    /// The length of a frame has an invalid number of bytes, namely this one.
    Length(usize),
    /// A frame is too long.
    TooLong {
        /// Bytes of the frame.
        bytes: u64,
        /// Maximum bytes.
        bytes_max: usize,
    },
    /// Bytes that cannot be decoded.
    Malformed {
        /// Type of the message.
        type_name: &'static str,
        /// Position and kind of the error.
        error: sbs::SbsError,
    },
    /// The message has an unknown type. Holds its first characters.
    UnknownType(String),
    /// A message of this type is not allowed now, or not allowed from a client.
    Unexpected(&'static str),
    /// A request in a conversation that it ends itself, which leaves no place for an answer.
    Ended(&'static str),
    /// The token is missing or wrong.
    Token,
    /// One query, or the subscriptions, have too many types.
    Types {
        /// Number of types.
        count: usize,
        /// Maximum number.
        max: usize,
    },
    /// The types with a `?` in one query, or in the subscriptions, have too many subtypes together.
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

/// Number of characters of an unknown type that are reported.
const NAME_CHARS: usize = 60;

impl HatFault {
    fn unknown_type(name: &str) -> HatFault {
        HatFault::UnknownType(name.chars().take(NAME_CHARS).collect())
    }
}

impl fmt::Display for HatFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HatFault::Length(count) => write!(f, "the length of a frame has 1 to 8 bytes, not {count}"),
            HatFault::TooLong { bytes, bytes_max } => write!(f, "a frame of {bytes} bytes, {bytes_max} are allowed"),
            HatFault::Malformed { type_name, error } => write!(f, "malformed {type_name}: {error}"),
            HatFault::UnknownType(name) => write!(f, "there is no message type {name:?}"),
            HatFault::Unexpected(name) => write!(f, "{name} is not expected now"),
            HatFault::Ended(name) => {
                write!(f, "{name} in a conversation that it ends, which leaves no place for an answer")
            }
            HatFault::Token => write!(f, "invalid client token"),
            HatFault::Types { count, max } => write!(f, "{count} event types at once, {max} are allowed"),
            HatFault::Wildcards { subtypes, max } => {
                write!(f, "event types with '?' have {subtypes} subtypes together, {max} are allowed")
            }
            HatFault::OtherServer { after, server } => {
                write!(f, "what follows an event of server {after} was asked of server {server}")
            }
            HatFault::AuthTime => write!(f, "the client did not say in time who it is"),
            HatFault::Idle => write!(f, "nothing was heard of the client for too long"),
            HatFault::NotEncrypted => write!(f, "this listener takes encrypted connections only"),
        }
    }
}

impl std::error::Error for HatFault {}

/// The reason why a registration fails. The client learns only that it fails. Events are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationRefusal {
    /// The server is about to stop, or not ready.
    Status(server_message::Status),
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
        error: value::RegistrationError,
    },
}

impl RegistrationRefusal {
    /// Returns the name of the kind of refusal, for counters.
    pub fn kind(&self) -> &'static str {
        match self {
            RegistrationRefusal::Status(_) => "status",
            RegistrationRefusal::TooMany { .. } => "too many events",
            RegistrationRefusal::Event { error: value::RegistrationError::Type(_), .. } => "event type",
            RegistrationRefusal::Event { error: value::RegistrationError::SourceTime(_), .. } => "source time",
            RegistrationRefusal::Event { error: value::RegistrationError::Json(JsonError::Depth { .. }), .. } => {
                "JSON depth"
            }
            RegistrationRefusal::Event { error: value::RegistrationError::Json(_), .. } => "JSON",
            RegistrationRefusal::Event { error: value::RegistrationError::TooLarge { .. }, .. } => "event size",
        }
    }
}

impl fmt::Display for RegistrationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistrationRefusal::Status(status) => write!(f, "events are not registered while the server is {status}"),
            RegistrationRefusal::TooMany { count, max } => write!(f, "{count} events at once, {max} are allowed"),
            RegistrationRefusal::Event { number, error } => write!(f, "event {number}: {error}"),
        }
    }
}

impl std::error::Error for RegistrationRefusal {}
