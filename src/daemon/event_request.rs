//! Requesters of the journal of events, the cost of their requests, and what the journal reports to the engine.

use crate::daemon::answer_parts::PartSender;
use crate::event::model::{Event, EventId, ServerId};
use crate::event::refusal::EventRefusal;
use crate::event::store::QueryPage;
use crate::listener::event::{EventAnswer, EventRequest};
use crate::message::{ClientId, Publisher};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A service thread that registers events.
pub(crate) trait RegistrationReceiver: fmt::Debug + Send + Sync {
    /// Reports that an event was stored under this id, or refused. Must not wait.
    fn on_registered(&self, number: u64, registered: Result<EventId, EventRefusal>);
}

/// The requester of an event request.
#[derive(Clone, Debug)]
pub(crate) enum EventRequester {
    /// An attached program, with its request number.
    Attached(ClientId, u64),
    /// A program in the same process.
    Embedded(ClientId, PartSender<Result<EventAnswer, EventRefusal>>),
    /// A client of a listener, with its request number.
    Listener(ClientId, u64),
    /// A thread of another service, with its request number.
    Service {
        /// Client under which the thread requests.
        client: ClientId,
        /// Number of the request.
        number: u64,
        /// The receiver of the outcome.
        outcome: Arc<dyn RegistrationReceiver>,
    },
    /// The peer itself, which reports something by an event.
    Internal,
}

impl EventRequester {
    /// Returns the client that requests.
    pub(crate) fn client(&self) -> ClientId {
        match self {
            EventRequester::Attached(client, _)
            | EventRequester::Embedded(client, _)
            | EventRequester::Listener(client, _) => *client,
            EventRequester::Service { client, .. } => *client,
            EventRequester::Internal => ClientId(0),
        }
    }
}

/// The result of a journal operation.
#[derive(Debug)]
pub(crate) enum JournalReply {
    /// The stored events.
    Registered(Vec<Event>),
    /// The events found.
    Found(QueryPage),
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) struct EventCompletion {
    pub(crate) requester: EventRequester,
    pub(crate) result: Result<JournalReply, EventRefusal>,
    /// Cost to release, if this is the last part of the outcome.
    pub(crate) ended: Option<EventRequestCost>,
}

/// Cost of a request, from its arrival until its events are published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRequestCost {
    pub(crate) client: ClientId,
    pub(crate) bytes: usize,
}

/// Another peer that registers events under the server id of this peer, which therefore registers none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerIdConflict {
    pub(crate) server: ServerId,
    pub(crate) other: Publisher,
    /// Address of the other peer's host, if it was heard.
    pub(crate) other_host: Option<IpAddr>,
    /// Address of this peer's host.
    pub(crate) own_host: IpAddr,
}

impl ServerIdConflict {
    /// Remedy of the conflict.
    pub(crate) const FIX: &'static str = "set another server-id here, or end that peer, and start this one again";
}

impl fmt::Display for ServerIdConflict {
    /// Formats both peers, as a sentence without a full stop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Publisher { name, epoch, .. } = &self.other;
        match name {
            Some(name) => write!(f, "the peer {name} ({epoch})")?,
            None => write!(f, "the peer {epoch}")?,
        }
        if let Some(host) = self.other_host {
            write!(f, " on the host {host}")?;
        }
        let ServerIdConflict { server, own_host, .. } = self;
        write!(f, " registers events of server {server} too, and did so before this peer on the host {own_host}")
    }
}

/// A command for the service of events.
#[derive(Debug)]
pub(crate) enum EventServiceCommand {
    /// Registers or queries events.
    Request { requester: EventRequester, request: EventRequest },
    /// Reports that the journal has completed a request.
    Completed(Box<EventCompletion>),
    /// Reports that events can be registered under the server id of this peer, or names the peer that has the id. Sent
    /// once that is known, and again whenever it changes.
    ClaimDecided(Result<(), Publisher>),
    /// Ends a request whose events are published.
    Ended(EventRequestCost),
}
