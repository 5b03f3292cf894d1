//! Settings of the Hat listener.

use crate::event::model::ServerId;
use crate::event::store::TYPES_MAX;
use crate::listener::access::Access;
use crate::message::MESSAGE_BYTES_MAX;
use crate::subject::SUBJECT_BYTES_MAX;
use std::time::Duration;

/// Settings and limits of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Accounts that may use the listener. The token of a client is the token of an account, or the password of the
    /// account with the client's name. The listener does not support keys.
    pub access: Access,
    /// The server that registers the events.
    pub server: ServerId,
    /// True if the listener registers an event for each connection and each disconnection of a client.
    pub announces: bool,
    /// Maximum size of a frame in bytes. A larger one ends the connection.
    pub frame_bytes_max: usize,
    /// Maximum size of a frame in bytes for an unauthenticated client.
    pub unauthenticated_bytes_max: usize,
    /// Maximum size of an event in bytes, as a message on the bus. Registering a larger one fails.
    pub message_bytes_max: usize,
    /// Maximum number of events of a registration; a larger registration fails.
    pub registrations_max: usize,
    /// Maximum number of subscriptions of a client, and of types of a query. A larger number ends the connection.
    pub types_max: usize,
    /// Maximum total number of subtypes in the patterns with a `?` of one request. A larger number ends the connection.
    /// It bounds the steps that a client adds to each lookup of a type, whether for subscriptions or for a query. 2,048
    /// steps take some 10 µs.
    pub wildcard_subtypes_max: usize,
    /// Maximum number of unanswered requests of a client. At the limit no further message is read.
    pub requests_max: usize,
    /// Maximum bytes of unanswered requests, which the last one may exceed.
    pub requests_bytes_max: usize,
    /// Time within which a client must authenticate. After it, the connection is closed.
    pub auth_time: Duration,
    /// Time without a message after which the listener sends a ping. After the same time without an answer the
    /// connection is closed.
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
