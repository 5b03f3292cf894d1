//! Requests of a session to the daemon that all sessions of a listener share.

use super::message::{RvMessage, RvValue};
use crate::message::Message;
use bytes::Bytes;

/// Maximum size of a query at the daemon's inbox in bytes.
const QUERY_BYTES_MAX: usize = 4096;

/// A request of a session to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RvRequest {
    /// The session has begun.
    Started {
        /// Name of the user; a label only.
        user: String,
        /// Name of the session.
        session: String,
        /// True if the client counts as part of the daemon's own session.
        is_shared: bool,
    },
    /// The client listens to a subject.
    Listened {
        /// The subject as text.
        text: Bytes,
        /// Reply subject of the listen as text.
        reply: Option<Bytes>,
    },
    /// The client has cancelled a listen.
    Cancelled {
        /// The subject as text.
        text: Bytes,
    },
    /// A message is to be delivered to the clients of this peer alone.
    PublishLocal(Message),
}

/// A query at the inbox of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RvQuery {
    /// The sessions of the daemon.
    Sessions,
    /// The listens of this session.
    Subscriptions(String),
}

impl RvQuery {
    /// Reads a message at the daemon's inbox. Returns `None` if it is no query or is too large.
    pub fn of(message: &Message) -> Option<RvQuery> {
        if QUERY_BYTES_MAX < message.payload.len() {
            return None;
        }
        let query = RvMessage::decode(&message.payload).ok()?;
        let text = |name: &[u8]| match query.get(name) {
            Some(RvValue::String(text)) => *text,
            _ => b"",
        };
        match (text(b"op"), text(b"what")) {
            (b"get", b"sessions") => Some(RvQuery::Sessions),
            (b"get", b"subscriptions") => {
                Some(RvQuery::Subscriptions(String::from_utf8_lossy(text(b"session")).into_owned()))
            }
            _ => None,
        }
    }
}
