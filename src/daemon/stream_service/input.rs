//! Inputs of the stream service, and its messages to clients.

use crate::event::follower::FetchedEvent;
use crate::event::model::{Event, EventId, ServerId};
use crate::event::refusal::EventRefusal;
use crate::event::store::QueryPage;
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::UserName;
use crate::listener::ftn18::call::{Call, Version};
use crate::listener::ftn18::fault::CallFault;
use crate::listener::ftn18::session::{CallId, CallResult, PushId};
use crate::listener::ftn18::stream_service::ConnectionId;
use crate::listener::stream::{StreamAnswer, StreamRefusal, StreamRequest};
use std::fmt;
use std::sync::Arc;

/// An input to the stream service.
pub enum StreamInput {
    /// A client has connected; the callback takes its messages.
    Opened(ConnectionId, ClientCallback),
    /// A client calls.
    Called {
        /// The client.
        conn: ConnectionId,
        /// Number that the client gave the call.
        call: CallId,
        /// Index of the stream in the settings.
        stream: usize,
        /// The user of the client.
        user: UserName,
        /// The call.
        what: Call,
    },
    /// A client has answered a group.
    Answered {
        /// The client.
        conn: ConnectionId,
        /// Its consumer.
        push: PushId,
        /// Number of the group.
        seq: u32,
        /// True if the client accepts the group.
        is_accepted: bool,
    },
    /// A client is gone.
    Closed(ConnectionId),
    /// A program sends a request; the callback takes the answer.
    Requested(StreamRequest, AnswerCallback),
    /// The outcome of a registration.
    Registered {
        /// Number of the registration.
        number: u64,
        /// Id of the event, or the refusal.
        registered: Result<EventId, EventRefusal>,
    },
    /// Events that the replication has fetched, because they did not arrive with an announcement. The journal stores
    /// them next.
    Fetched(Vec<FetchedEvent>),
    /// The journal has stored these events, all of one server, in its order.
    Stored(Vec<Event>),
    /// The journal holds more events of this server.
    JournalGrown(ServerId),
    /// The result of a journal query.
    Found {
        /// Index of the stream.
        stream: usize,
        /// The query covers events after this one.
        after: EventId,
        /// `None` if the journal could not be read.
        found: Option<QueryPage>,
    },
    /// The thread stops.
    Stop,
}

/// A message to a client.
#[derive(Clone, Debug)]
pub enum ClientMessage {
    /// The result of a call.
    CallResult(CallId, Result<CallResult, CallFault>),
    /// A group is pushed.
    Group {
        /// The consumer.
        push: PushId,
        /// Version of the consumer's interface.
        version: Version,
        /// Number of the group.
        seq: u32,
        /// The events.
        events: Arc<Vec<StreamEvent>>,
    },
    /// The push to a consumer ends.
    PushEnd {
        /// The consumer.
        push: PushId,
        /// True if the connection is to be closed.
        is_closed: bool,
    },
}

/// Callback that takes the messages to a client. It must not block.
pub type ClientCallback = Box<dyn Fn(ClientMessage) + Send>;

/// Callback that takes the answer to a request. It must not block.
pub type AnswerCallback = Box<dyn FnOnce(Result<StreamAnswer, StreamRefusal>) + Send>;

impl fmt::Debug for StreamInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamInput::Opened(conn, _) => f.debug_tuple("Opened").field(conn).finish_non_exhaustive(),
            StreamInput::Called { conn, call, stream, user, what } => {
                f.debug_tuple("Called").field(conn).field(call).field(stream).field(user).field(what).finish()
            }
            StreamInput::Answered { conn, push, seq, is_accepted } => {
                f.debug_tuple("Answered").field(conn).field(push).field(seq).field(is_accepted).finish()
            }
            StreamInput::Closed(conn) => f.debug_tuple("Closed").field(conn).finish(),
            StreamInput::Requested(request, _) => f.debug_tuple("Requested").field(request).finish_non_exhaustive(),
            StreamInput::Registered { number, registered } => {
                f.debug_tuple("Registered").field(number).field(registered).finish()
            }
            StreamInput::Fetched(events) => f.debug_tuple("Fetched").field(&events.len()).finish(),
            StreamInput::Stored(events) => f.debug_tuple("Stored").field(&events.len()).finish(),
            StreamInput::JournalGrown(server) => f.debug_tuple("JournalGrown").field(server).finish(),
            StreamInput::Found { stream, after, .. } => {
                f.debug_tuple("Found").field(stream).field(after).finish_non_exhaustive()
            }
            StreamInput::Stop => f.write_str("Stop"),
        }
    }
}
