//! The Hat listener: clients of Hat Event Server (seed 004) register events, subscribe to them and ask for them.
//!
//! | layer | file |
//! |---|---|
//! | SBS, the encoding of values | [`sbs`] |
//! | frames, and chatter: numbered messages in conversations | [`chatter`] |
//! | what clients say, and what servers say | [`client_message`], [`server_message`] |
//! | what that is made of | [`value`] |
//! | one client | [`session`] |
//! | the same, as the shell sees the clients of all listeners | [`client`] |
//!
//! # What differs from the reference
//!
//! - The protocol has an answer that says no to a registration, and none to anything else: whoever asks for what makes no sense is
//!   disconnected, or, if nothing can be found with it, gets nothing.
//! - A type has at least one subtype, and fits into a subject. A registration of another one fails; asking for it finds nothing.
//!   So does asking for what no type can hold: `?` and `*` in a longer subtype, or a `*` that is not the last.
//! - A payload that is called JSON must be JSON: `NaN` and `Infinity`, which Python knows and Hat's own client refuses, are none.
//! - Where there are accounts, a client must have a token. Where there are none, any will do.
//! - A session of another peer may be told in several messages: on the bus each event is one of its own ([`client`]).
//! - JSON that is nested deeper than 900 levels is refused: stock clients cannot read it (`event::model::JSON_DEPTH_MAX`).
//! - An event is stored before anybody is told of it, so it makes no difference whether a client asks for persisted ones.

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

/// What the listener allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who may use it: a token stands for itself, and with the name of the client for the password of a user. Keys prove nothing here.
    pub access: Access,
    /// The server that registers the events.
    pub server: ServerId,
    /// Whether an event tells of each client that comes, and one that it goes.
    pub announces: bool,
    /// The largest frame in bytes. A larger one ends the connection.
    pub frame_bytes_max: usize,
    /// That of a client that has not proven who it is.
    pub unauthenticated_bytes_max: usize,
    /// The largest event in bytes, as a message on the bus. Registering a larger one fails.
    pub message_bytes_max: usize,
    /// The most events of a registration; one of more fails.
    pub registrations_max: usize,
    /// The most subscriptions of a client, and the most types of a query; more of them end the connection.
    pub types_max: usize,
    /// How many subtypes those of them that hold a `?` may have together; more end the connection. It bounds what a client adds to looking
    /// up a type, by whom its events are wanted, or whether they are asked for: at most so many steps, of which 2,048 take some 10 µs.
    pub wildcard_subtypes_max: usize,
    /// The most requests of a client that wait for their answers. Then nothing more is read of it.
    pub requests_max: usize,
    /// The same for their size in bytes; the last one may exceed it.
    pub requests_bytes_max: usize,
    /// How long a client may take to say who it is. Then the connection is closed.
    pub auth_time: Duration,
    /// After so long without a message a client is asked whether it is there; after once more the same it is taken for gone.
    pub ping_interval: Duration,
}

impl Default for Settings {
    /// Everyone may use it, with pings as the reference sends them.
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

// The first message of a client can hold as many subscriptions as it may have, with some bytes for the length of each subtype.
const _: () = assert!(TYPES * 3 * SUBJECT_BYTES_MAX / 2 < UNAUTHENTICATED_BYTES);

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HatFault {
    /// The length of a frame has so many bytes.
    Length(usize),
    /// A frame is too long.
    TooLong {
        /// It has so many bytes,
        bytes: u64,
        /// of at most so many.
        bytes_max: usize,
    },
    /// Bytes mean nothing.
    Malformed {
        /// In a message of this type.
        type_name: &'static str,
        /// Where and why.
        error: sbs::SbsError,
    },
    /// There is no such type of messages. Holds the first characters of it.
    UnknownType(String),
    /// A message of this type makes no sense now, or not of a client.
    Unexpected(&'static str),
    /// A question in a conversation that it ends itself: nobody would take the answer.
    Ended(&'static str),
    /// No token, or a wrong one.
    Token,
    /// So many types in one question, or for subscriptions.
    Types {
        /// So many,
        count: usize,
        /// of at most so many.
        max: usize,
    },
    /// Types with a `?` in one question, or for subscriptions, that have too many subtypes together.
    Wildcards {
        /// So many,
        subtypes: usize,
        /// of at most so many.
        max: usize,
    },
    /// What stands behind an event of one server is asked of another one.
    OtherServer {
        /// The server of the event,
        after: i128,
        /// and the one that is asked for.
        server: i128,
    },
    /// The client did not say in time who it is.
    AuthTime,
    /// Nothing was heard of the client for too long.
    Idle,
    /// The connection must be encrypted and is not.
    NotEncrypted,
}

/// Characters of an unknown type that are told.
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

/// Why a registration fails. The client hears only that it does. Events are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationRefusal {
    /// The server is about to stop, or not ready.
    Status(server_message::Status),
    /// Too many events at once.
    TooMany {
        /// So many,
        count: usize,
        /// of at most so many.
        max: usize,
    },
    /// An event cannot be registered.
    Event {
        /// Which.
        number: usize,
        /// Why.
        error: value::RegistrationError,
    },
}

impl RegistrationRefusal {
    /// Name of the kind of refusal, for counters.
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
