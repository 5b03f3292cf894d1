//! Requests of a session to the daemon that all sessions of a listener share.

use crate::message::Message;
use crate::subject::Subject;
use bytes::Bytes;

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

/// A query at the inbox of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RvQuery {
    /// The sessions of the daemon.
    Sessions,
    /// The listens of this session.
    Subscriptions(String),
}
