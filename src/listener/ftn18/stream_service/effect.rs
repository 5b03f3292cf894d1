//! Effects that the stream service requests of the shell, and its settings.

#[cfg(doc)]
use super::StreamService;
use crate::event::model::{EventId, Registration};
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::{Consumer, StreamName};
use crate::event::stream::store::{MissedRange, StreamSettings};
use crate::listener::ftn18::call::Version;
use crate::listener::ftn18::fault::CallFault;
use crate::listener::ftn18::session::{CallId, CallResult, PushId};
use crate::listener::stream::{StreamAnswer, StreamRefusal};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Id of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Origin of a call, to which its result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOrigin {
    /// Connection of the call.
    pub conn: ConnectionId,
    /// Id of the call on that connection.
    pub call: CallId,
}

/// Settings of the stream service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The streams; calls name them by their index here.
    pub streams: Vec<StreamSettings>,
    /// True if other peers may serve the same streams from the same store. The first peer that has an event feeds it.
    pub is_shared: bool,
    /// Maximum number of groups that a consumer has not accepted.
    pub groups_max: usize,
    /// Maximum time that an event waits for others before it is pushed.
    pub delay: Duration,
}

/// An effect that the service requests of the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEffect {
    /// Register these events in a session of their own, and pass the result to [`StreamService::on_registered`].
    Register {
        /// Number of the request.
        number: u64,
        /// The registrations, at least one.
        registrations: Vec<Registration>,
    },
    /// Find events in the journal, and pass them to [`StreamService::on_found`].
    Find {
        /// Index of the stream.
        stream: usize,
        /// Position after which events are wanted, in the journal of its server.
        after: EventId,
    },
    /// Return the result of a call.
    CallCompleted {
        /// Connection of the call.
        conn: ConnectionId,
        /// Id of the call.
        call: CallId,
        /// Its result.
        result: Result<CallResult, CallFault>,
    },
    /// Answer a request of an attached program.
    Answered {
        /// Number of the request.
        number: u64,
        /// Its result.
        answer: Result<StreamAnswer, StreamRefusal>,
    },
    /// Push a group, and pass the consumer's answer to [`StreamService::on_answer`].
    Group {
        /// Connection of the consumer.
        conn: ConnectionId,
        /// Id of the consumer's push.
        push: PushId,
        /// Version of its interface.
        version: Version,
        /// Number of the group.
        seq: u32,
        /// Its events.
        events: Arc<Vec<StreamEvent>>,
    },
    /// End the push to this consumer, which must reconnect to continue.
    PushEnd {
        /// Connection of the consumer.
        conn: ConnectionId,
        /// Id of the consumer's push.
        push: PushId,
        /// True if the connection must be closed, so that the consumer detects the end.
        is_closed: bool,
    },
    /// Report a notice to people.
    Notice(StreamNotice),
}

/// A notice for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamNotice {
    /// A consumer has lapsed, or has missed more events since.
    Lapsed {
        /// The stream.
        stream: StreamName,
        /// The consumer.
        consumer: Consumer,
        /// Events missed now.
        missed: MissedRange,
    },
    /// A posted event cannot be registered. Holds its number and the reason.
    Quarantined(u64, String),
    /// The store failed; the operation is retried.
    Failed(String),
}

impl fmt::Display for StreamNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamNotice::Lapsed { stream, consumer, missed } => write!(
                f,
                "the consumer {consumer} of the stream {stream} has lapsed: it has not accepted {} events, {} to {}, which are \
                 removed; it continues after them when it registers again",
                missed.count, missed.first, missed.last
            ),
            StreamNotice::Quarantined(number, reason) => write!(
                f,
                "the posted event {number} cannot be registered and is in no stream: {reason}; see the column refused of \
                 seqcast_outbox"
            ),
            StreamNotice::Failed(error) => write!(f, "the store of streams fails: {error}; the operation is retried"),
        }
    }
}
