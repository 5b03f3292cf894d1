//! What a desk is asked for the shell to do, and how it is set up.

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

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// How streams are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The streams; calls name them by their place here.
    pub streams: Vec<StreamSettings>,
    /// Whether other peers may serve the same streams from the same store. Each event is fed by the one that is first.
    pub is_shared: bool,
    /// Groups that a consumer has not accepted, at most.
    pub groups_max: usize,
    /// How long an event waits for others at most before it is pushed.
    pub delay: Duration,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEffect {
    /// Register these, as a session of their own; [`StreamService::on_registered`] hears of it.
    Register {
        /// Which request.
        number: u64,
        /// What; at least one.
        registrations: Vec<Registration>,
    },
    /// Find events in the journal; [`StreamService::on_found`] takes them.
    Find {
        /// For this stream.
        stream: usize,
        /// Of the server of this id, behind it.
        after: EventId,
    },
    /// A call is done.
    CallResult {
        /// Of this connection.
        conn: ConnectionId,
        /// Which call.
        call: CallId,
        /// What came of it.
        done: Result<CallResult, CallFault>,
    },
    /// A request of a program is answered.
    Answered {
        /// Which request.
        number: u64,
        /// What came of it.
        answer: Result<StreamAnswer, StreamRefusal>,
    },
    /// A group is to be pushed; [`StreamService::on_answer`] hears of the answer.
    Group {
        /// Over this connection.
        conn: ConnectionId,
        /// To this consumer.
        push: PushId,
        /// The version of its interface.
        version: Version,
        /// The number of the group.
        seq: u32,
        /// The events.
        events: Arc<Vec<StreamEvent>>,
    },
    /// Nothing more is pushed to this consumer; if it wants more, it has to come again.
    PushEnd {
        /// Over this connection.
        conn: ConnectionId,
        /// To this consumer.
        push: PushId,
        /// Whether the connection is to be closed, so that the consumer notices.
        is_closed: bool,
    },
    /// People are to be told.
    StreamNotice(StreamNotice),
}

/// What people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamNotice {
    /// A consumer has lapsed, or missed more since.
    Lapsed {
        /// Of this stream.
        stream: StreamName,
        /// Who.
        consumer: Consumer,
        /// What it missed now.
        missed: MissedRange,
    },
    /// What was posted is never registered: its number, and why.
    SetAside(u64, String),
    /// The store failed; it is tried again.
    Failed(String),
}

impl fmt::Display for StreamNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamNotice::Lapsed { stream, consumer, missed } => write!(
                f,
                "the consumer {consumer} of the stream {stream} has lapsed: it has not accepted {} events, {} to {}, and they are \
                 gone; it goes on behind them when it registers again",
                missed.count, missed.first, missed.last
            ),
            StreamNotice::SetAside(number, why) => write!(
                f,
                "number {number} of what applications have posted is set aside, and stands in no stream: {why}; see the column \
                 refused of seqcast_outbox"
            ),
            StreamNotice::Failed(error) => write!(f, "streams cannot be stored: {error}; it is tried again"),
        }
    }
}
