//! Requests and answers between a listener and the peer, independent of the client protocol.

use crate::listener::event::EventRequest;
use crate::listener::permissions::Denial;
#[cfg(feature = "listeners")]
use crate::listener::rv::request::RvRequest;
use crate::message::{Count, Headers, PeerName, SubId, SubscriptionFilter};
use crate::subject::Subject;
use std::net::SocketAddr;

/// A request of a client to the peer. Commands that the protocol session answers itself are not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRequest<'a> {
    /// Publishes a message.
    Publish(Publish<'a>),
    /// Begins a subscription. The session assigns its number.
    Subscribe {
        /// The number.
        sub: SubId,
        /// Filter of the subscription.
        filter: SubscriptionFilter,
    },
    /// Ends a subscription.
    Unsubscribe {
        /// Its number.
        sub: SubId,
    },
    /// Enables or disables echo. With echo, the client's own subscriptions receive its messages and count as
    /// receivers. Echo is on at first.
    Echo(bool),
    /// Requests, for each subject, the number of subscriptions on the LAN that would receive a message on it. A queue
    /// group counts once. The peer answers with `on_counts`.
    Count {
        /// The subjects.
        subjects: Vec<Subject>,
    },
    /// Requests the subscriptions of all clients of this peer. The peer answers with `on_subscription_list`.
    List,
    /// Requests the facts about the peer. The peer answers with `on_server_facts`.
    ServerFacts,
    /// Requests the clients of this listener. The peer answers with `on_clients`.
    Clients {
        /// Number of the only client to report; `None` for all.
        only: Option<u32>,
    },
    /// Reports that the client is authenticated, or that no authentication is required. The limits of unauthenticated
    /// clients end.
    Admitted {
        /// Account of the client, for people: a user name, or a kind of credentials.
        account: String,
    },
    /// Reports the name that the client gave itself, for people.
    Named {
        /// The name.
        name: String,
    },
    /// Sends a request about events to the journal. The peer answers with `on_registered`, `on_answered` or
    /// `on_refusal`.
    Events(JournalRequest),
    /// Passes a request to the daemon that all Rendezvous sessions share.
    #[cfg(feature = "listeners")]
    Rv(RvRequest),
    /// Reports a refused request to the operator, since the protocol cannot send the reason to the client.
    Refused {
        /// Kind of refusal, for counters; one of a fixed set.
        kind: &'static str,
        /// Reason of the refusal.
        reason: String,
    },
    /// Reports to the operator that the session has refused an action that the client's account does not permit.
    Denied(Denial),
    /// Closes the connection of another client, or of this one.
    Kill {
        /// Its number, as in [`ClientFacts::id`].
        client: u32,
    },
    /// Writes all pending output and then closes the connection.
    Close,
}

impl SessionRequest<'_> {
    /// Returns the same request without a borrow of the parser's buffer.
    ///
    /// # Panics
    /// Panics on a publish request.
    pub fn detached(self) -> SessionRequest<'static> {
        match self {
            SessionRequest::Publish(_) => panic!("a publish request borrows the parser's buffer"),
            SessionRequest::Subscribe { sub, filter } => SessionRequest::Subscribe { sub, filter },
            SessionRequest::Unsubscribe { sub } => SessionRequest::Unsubscribe { sub },
            SessionRequest::Echo(is_on) => SessionRequest::Echo(is_on),
            SessionRequest::Count { subjects } => SessionRequest::Count { subjects },
            SessionRequest::List => SessionRequest::List,
            SessionRequest::ServerFacts => SessionRequest::ServerFacts,
            SessionRequest::Clients { only } => SessionRequest::Clients { only },
            SessionRequest::Admitted { account } => SessionRequest::Admitted { account },
            SessionRequest::Named { name } => SessionRequest::Named { name },
            SessionRequest::Events(request) => SessionRequest::Events(request),
            #[cfg(feature = "listeners")]
            SessionRequest::Rv(request) => SessionRequest::Rv(request),
            SessionRequest::Refused { kind, reason } => SessionRequest::Refused { kind, reason },
            SessionRequest::Denied(denial) => SessionRequest::Denied(denial),
            SessionRequest::Kill { client } => SessionRequest::Kill { client },
            SessionRequest::Close => SessionRequest::Close,
        }
    }
}

/// A request of a client to the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRequest {
    /// The session's number for the request.
    pub id: u64,
    /// The request.
    pub request: EventRequest,
}

/// Facts about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The client's number.
    pub client: u32,
    /// Remote address of the client.
    pub from: SocketAddr,
    /// Local address of the listener.
    pub listen: SocketAddr,
    /// Nonce that a client signs to prove that it has a key. A nonce is never used twice.
    pub nonce: [u8; 16],
    /// True if the connection is encrypted.
    pub is_secure: bool,
}

impl ConnectionInfo {
    /// Returns an unpredictable number.
    pub fn seed(&self) -> u64 {
        let (half, _) = self.nonce.split_first_chunk().expect("16 bytes");
        u64::from_le_bytes(*half)
    }
}

/// A message to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Subject to publish on.
    pub subject: Subject,
    /// Reply subject, if an answer is wanted.
    pub reply: Option<Subject>,
    /// Header fields.
    pub headers: Headers,
    /// Payload, borrowed from the parser's buffer.
    pub payload: &'a [u8],
    /// True if the peer must report the number of receivers to the session with `on_published`.
    pub wants_receivers: bool,
}

/// Number of subscriptions to which a message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverCount {
    /// Number of known subscriptions on the whole LAN. A queue group counts once.
    pub count: u64,
    /// True if the count is not 0, or if it is 0 and the subscriptions of all peers are known.
    pub is_certain: bool,
}

/// A condition on the receivers of a subject that a client can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverCondition {
    /// It is certain that no subscription on the LAN receives a message on the subject.
    Absent,
    /// At least one subscription receives a message on the subject.
    Present,
}

/// Facts about the peer that a listener reports to its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// Name of the peer.
    pub peer: PeerName,
    /// Epoch of the peer, as text. Each run of a peer has a new epoch.
    pub epoch: String,
    /// Local address of the listener.
    pub listen: SocketAddr,
    /// Process id of the peer.
    pub pid: u32,
    /// Time since the start of the peer, in seconds.
    pub uptime_secs: u64,
    /// Number of connected clients of this listener.
    pub clients: usize,
    /// Number of clients of this listener since the start.
    pub clients_total: u64,
    /// Number of refused clients since the start.
    pub clients_refused: u64,
    /// Number of messages that the clients of all listeners have published since the start.
    pub published: u64,
    /// Number of messages that slow clients of all listeners have lost since the start. A message counts once for
    /// each subscription.
    pub dropped: u64,
}

/// Facts about a client of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFacts {
    /// Number of the client.
    pub id: u32,
    /// Remote address of the client.
    pub from: SocketAddr,
    /// Name that the client gave itself; may be empty.
    pub name: String,
    /// Time since the client connected, in seconds.
    pub age_secs: u64,
    /// State of its Redis connection; the default for a client of another protocol.
    pub resp: RespState,
    /// Account that the client is authenticated as; empty if none was required.
    pub account: String,
    /// Number of received bytes that do not yet form a complete command.
    pub unread_bytes: usize,
    /// Number of bytes queued for the client.
    pub queued_bytes: usize,
    /// Number of messages of its subscriptions that were lost for any cause, as far as its session counts them.
    pub lost: Count,
    /// Number of these messages that were lost because the client did not read.
    pub dropped: u64,
}

/// State of a Redis connection, as `CLIENT LIST` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RespState {
    /// Name of the last command, or `None` before the first one and after an unknown one.
    pub last_command: Option<&'static str>,
    /// Time since the last command, in seconds.
    pub idle_secs: u64,
    /// Version of RESP that the client speaks.
    pub version: u8,
    /// Number of subscriptions to channels, to globs and to shard channels.
    pub subscriptions: [usize; 3],
}

/// A subscription of any client of this peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSubscription {
    /// Filter of the subscription.
    pub filter: SubscriptionFilter,
}

impl ListedSubscription {
    /// Returns whether the subscription names exactly one subject.
    pub fn is_exact(&self) -> bool {
        self.filter.glob.is_none() && self.filter.pattern.tokens().all(|token| token != b"*" && token != b">")
    }
}
