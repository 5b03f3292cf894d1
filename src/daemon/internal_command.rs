//! Commands that the core or a service queues for another part of the engine. The engine processes them after the call
//! in which they arise, so that no service calls another one.

use crate::daemon::event_report::EventReport;
use crate::daemon::event_request::EventServiceCommand;
use crate::daemon::stream_request::StreamServiceCommand;
use crate::message::{ClientId, Epoch};
use crate::subject::Subject;
use bytes::Bytes;
use serde_json::Value;

/// A command for another part of the engine. The budgets of a turn bound the number of commands queued in it.
#[derive(Debug)]
pub(crate) enum InternalCommand {
    /// For the service of events.
    Events(EventServiceCommand),
    /// For the streams.
    Streams(StreamServiceCommand),
    /// For the listeners.
    Listeners(EventReport),
    /// A `show` query of an attached client, with its request number.
    Show {
        /// The client.
        client: ClientId,
        /// Its request number.
        id: u32,
        /// The query.
        query: Value,
    },
    /// A query of another peer for a report of this one, or of a client by the name of this peer.
    AnswerReport {
        /// The peer that asks.
        from: Epoch,
        /// Subject of the answer.
        reply: Subject,
        /// The query, unread.
        query: Bytes,
    },
    /// The peer has begun a new epoch.
    EpochChanged,
    /// The peer has sent its last BYE to the group.
    Stopped,
}
