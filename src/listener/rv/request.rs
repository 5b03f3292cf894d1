//! Requests of a session to the daemon that all sessions of a listener share.

use super::message::{RvMessage, RvValue};
use crate::message::Message;
use crate::subject::Subject;
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
    /// A program has queried the daemon.
    Queried {
        /// Subject of the answer.
        reply: Subject,
        /// The query.
        query: RvQuery,
    },
    /// A message is to be delivered to the clients of this peer alone.
    PublishLocal(Message),
}

impl RvRequest {
    /// Reads a message at the daemon's inbox. Returns `None` if it is no query, is too large, or wants no answer.
    pub fn of_query(message: &Message) -> Option<RvRequest> {
        let reply = message.reply.clone().filter(|_| message.payload.len() <= QUERY_BYTES_MAX)?;
        let query = RvMessage::decode(&message.payload).ok()?;
        let text = |name: &[u8]| match query.get(name) {
            Some(RvValue::String(text)) => *text,
            _ => b"",
        };
        let query = match (text(b"op"), text(b"what")) {
            (b"get", b"sessions") => RvQuery::Sessions,
            (b"get", b"subscriptions") => {
                RvQuery::Subscriptions(String::from_utf8_lossy(text(b"session")).into_owned())
            }
            _ => return None,
        };
        Some(RvRequest::Queried { reply, query })
    }
}

/// A query at the inbox of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RvQuery {
    /// The sessions of the daemon.
    Sessions,
    /// The listens of this session.
    Subscriptions(String),
}
