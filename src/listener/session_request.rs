//! What a listener and the peer say to each other, whatever protocol the client speaks.

use crate::listener::event::EventRequest;
use crate::message::{Count, Headers, PeerName, SubId, SubscriptionFilter};
use crate::subject::Subject;
use std::net::SocketAddr;

/// What a client asks of the peer. What its protocol answers by itself never gets here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRequest<'a> {
    /// Publish a message.
    Publish(Publish<'a>),
    /// Begin a subscription; its number is the session's.
    Subscribe {
        /// The number.
        sub: SubId,
        /// What it gets.
        wanted: SubscriptionFilter,
    },
    /// End a subscription.
    Unsubscribe {
        /// Its number.
        sub: SubId,
    },
    /// Whether its own subscriptions get what the client publishes, and count as receivers of it: they do at first.
    Echo(bool),
    /// How many subscriptions on the LAN, those of queue groups counted once for each group, would get a message on each of
    /// these subjects: answered by `on_counts`.
    Count {
        /// The subjects.
        subjects: Vec<Subject>,
    },
    /// The subscriptions of all clients of this peer: answered by `on_listed`.
    List,
    /// What there is to know about the peer: answered by `on_server_facts`.
    ServerFacts,
    /// The clients of this listener: answered by `on_clients`.
    Clients {
        /// This one only.
        only: Option<u32>,
    },
    /// The client has proven who it is, or needs not; the limits of strangers end.
    Admitted {
        /// Its account, for people: a user name, or a kind of credentials.
        account: String,
    },
    /// The client's name for itself, for people.
    Named {
        /// The name.
        name: String,
    },
    /// Ask the journal something about events: answered by `on_events_answered`.
    Events(JournalRequest),
    /// Something that the client asked for was refused, which the protocol tells it without the reason: for people.
    Refused {
        /// Kind of refusal, for counters; one of a fixed set.
        kind: &'static str,
        /// Why.
        reason: String,
    },
    /// End another client, or this one.
    Kill {
        /// Its number, as in [`ClientFacts::id`].
        client: u32,
    },
    /// Write what there is to write, then close.
    Close,
}

impl SessionRequest<'_> {
    /// The same, whatever becomes of the bytes that it was read from.
    ///
    /// # Panics
    /// If it publishes.
    pub fn detached(self) -> SessionRequest<'static> {
        match self {
            SessionRequest::Publish(_) => panic!("what is published is handed on where it was read"),
            SessionRequest::Subscribe { sub, wanted } => SessionRequest::Subscribe { sub, wanted },
            SessionRequest::Unsubscribe { sub } => SessionRequest::Unsubscribe { sub },
            SessionRequest::Echo(is_on) => SessionRequest::Echo(is_on),
            SessionRequest::Count { subjects } => SessionRequest::Count { subjects },
            SessionRequest::List => SessionRequest::List,
            SessionRequest::ServerFacts => SessionRequest::ServerFacts,
            SessionRequest::Clients { only } => SessionRequest::Clients { only },
            SessionRequest::Admitted { account } => SessionRequest::Admitted { account },
            SessionRequest::Named { name } => SessionRequest::Named { name },
            SessionRequest::Events(ask) => SessionRequest::Events(ask),
            SessionRequest::Refused { kind, reason } => SessionRequest::Refused { kind, reason },
            SessionRequest::Kill { client } => SessionRequest::Kill { client },
            SessionRequest::Close => SessionRequest::Close,
        }
    }
}

/// What a client asks of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRequest {
    /// The session's number for the request.
    pub id: u64,
    /// The request.
    pub request: EventRequest,
}

/// A connection that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The client's number.
    pub client: u32,
    /// Where it comes from.
    pub from: SocketAddr,
    /// Where the listener listens.
    pub listen: SocketAddr,
    /// What a client signs to prove that it has a key; never the same twice.
    pub nonce: [u8; 16],
    /// Whether the connection is encrypted.
    pub is_secure: bool,
}

/// A message to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// What to publish on.
    pub subject: Subject,
    /// Where an answer is wanted, if one is.
    pub reply: Option<Subject>,
    /// Header fields.
    pub headers: Headers,
    /// The content, where it was read.
    pub payload: &'a [u8],
    /// Whether the session is to be told how many receivers there are: by `on_published`.
    pub wants_receivers: bool,
}

/// How many subscriptions a message goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverCount {
    /// On the whole LAN, as far as is known; those of a queue group count once.
    pub count: u64,
    /// Whether 0 is the truth, because the subscriptions of all peers are known; true with every other count.
    pub is_certain: bool,
}

/// What a client can await of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverCondition {
    /// That certainly no subscription on the LAN gets a message on it.
    Absent,
    /// That some subscription does.
    Present,
}

/// What a listener tells its clients about the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// The peer.
    pub peer: PeerName,
    /// Its epoch, as text: a name for this run that is never used again.
    pub epoch: String,
    /// Where the listener listens.
    pub listen: SocketAddr,
    /// Its process.
    pub pid: u32,
    /// How long the peer has been running, in seconds.
    pub uptime_secs: u64,
    /// Clients of this listener that are connected.
    pub clients: usize,
    /// Clients of this listener since the start.
    pub clients_total: u64,
    /// Clients that were turned away since the start.
    pub clients_refused: u64,
    /// Messages that clients of all listeners have published since the start.
    pub published: u64,
    /// Messages that clients of all listeners did not get because they did not read, since the start; for each subscription.
    pub dropped: u64,
}

/// What is known about a client of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFacts {
    /// Its number.
    pub id: u32,
    /// Where it comes from.
    pub from: SocketAddr,
    /// Its name for itself; may be empty.
    pub name: String,
    /// How long it has been connected, in seconds.
    pub age_secs: u64,
    /// State of its Redis connection; the default for a client of another protocol.
    pub resp: RespState,
    /// The account it proved to be; empty if it needed none.
    pub account: String,
    /// Bytes that it has sent and not ended.
    pub unread_bytes: usize,
    /// Bytes that wait to be written to it.
    pub queued_bytes: usize,
    /// Messages of its subscriptions that were lost, whatever the cause, as far as its session counts them.
    pub lost: Count,
    /// Of these, those that it did not get because it did not read.
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

/// A subscription of some client of this peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSubscription {
    /// What it gets.
    pub wanted: SubscriptionFilter,
}

impl ListedSubscription {
    /// Whether it names exactly one subject.
    pub fn is_exact(&self) -> bool {
        self.wanted.glob.is_none() && self.wanted.pattern.tokens().all(|token| token != b"*" && token != b">")
    }
}
