//! `Input` and `Effect`: the whole contract of the core with the outside.

use crate::message::{ClientId, DeliveryMode, Dseq, Epoch, Loss, Message, Publisher, SubId, SubscriptionFilter};
use crate::proto::advisory::Advisory;
use crate::proto::delivery::Deliveries;
use crate::proto::question::{Answer, Question};
use crate::subject::SubjectError;
use crate::time::Instant;
use bytes::Bytes;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The way a datagram came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Through the multicast group.
    Multicast,
    /// Through the unicast inbox.
    Unicast,
}

/// A place in what a peer has published to the group; from [`Peer::published`](crate::proto::peer::Peer::published).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedPosition {
    pub(crate) epoch: Epoch,
    /// The datagram with which it ends.
    pub(crate) last: Dseq,
}

/// What enters the core.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A datagram arrived.
    Datagram {
        /// The sender's unicast address, as the kernel tells it.
        from: SocketAddr,
        /// The socket it came in by.
        path: Path,
        /// The UDP payload.
        bytes: Bytes,
    },
    /// The kernel's drop counter of a receive socket rose by this many since the last such input of that socket. Comes before
    /// the datagram that carried the news.
    Overrun {
        /// Which socket.
        path: Path,
        /// What was dropped because the receive buffer was full, as the kernel counts: a buffer of several datagrams
        /// counts once.
        drops: u64,
        /// The most datagrams that this can have been.
        datagrams_max: u64,
    },
    /// How full the fullest queue of a local subscription is whose reader has yet to lose something; told again and again
    /// while it is worth telling, and once more when it is not.
    Backlog {
        /// In parts of 1,024.
        fullness: u64,
    },
    /// A local client asks for something.
    ClientRequest {
        /// Who asks.
        client: ClientId,
        /// What for.
        request: ClientRequest,
    },
    /// A local client is gone; its subscriptions end.
    Detach {
        /// Who.
        client: ClientId,
    },
    /// What is handed in from now on arrived at this instant or later; it may have lain unread since. Where this never
    /// comes, datagrams are taken to arrive when they are handed in.
    Arrived {
        /// The socket.
        path: Path,
        /// When the next datagram arrived.
        at: Instant,
    },
    /// Time has passed: the deadline was reached, or the shell has nothing more to hand in and open datagrams
    /// should leave.
    Tick,
    /// Begin a graceful stop: flush, say BYE, then [`Effect::Stopped`].
    Stop,
}

/// What a local client can ask for.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientRequest {
    /// Publish a message. A subject of the form `_INBOX.<epoch of a known peer>.…` is sent to that peer alone.
    Publish(Message),
    /// Subscribe; ignored if the client already has this `sub`.
    Subscribe {
        /// The client's name for it.
        sub: SubId,
        /// What it gets.
        wanted: SubscriptionFilter,
        /// What it gets when something is missing; members of queue groups are in mode `repair`.
        mode: DeliveryMode,
        /// Whether it is told of publishers ([`Effect::PublisherKnown`]), for [`Join`](crate::proto::join::Join); not members of queue
        /// groups.
        news: bool,
    },
    /// Ask a peer's history; the answer comes as [`Effect::Answered`] with the same number, in one or more parts.
    Ask {
        /// The client's number for the question.
        id: u64,
        /// Whom: this peer itself or another.
        peer: Epoch,
        /// What.
        question: Question,
        /// How long to wait for the answer.
        timeout: Duration,
    },
    /// Whether the client's own subscriptions get what it publishes, and count as receivers of it: they do at first.
    Echo(bool),
    /// End a subscription; unknown ones are ignored.
    Unsubscribe {
        /// The client's name for it.
        sub: SubId,
    },
}

/// One matching subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Whose.
    pub client: ClientId,
    /// Which.
    pub sub: SubId,
}

/// All subscriptions that match one subject; shared by the messages of a run.
pub type Targets = Arc<[Target]>;

/// Why the core refused a client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The message is larger than the limit.
    MessageTooLarge {
        /// Its size: payload, headers and reply subject.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The client, or all clients together, have too many subscriptions.
    TooManySubscriptions {
        /// The limit that was reached.
        max: usize,
    },
    /// Matching the globs of the client, or of all clients together, would take too many steps.
    TooManyGlobSteps {
        /// The limit that would be passed: steps for one message.
        max: usize,
    },
    /// The subject cannot be published on by a client.
    Subject(SubjectError),
    /// A member of a queue group cannot be in mode `live`: a share of what nobody repairs would be a share of nothing known.
    QueueLive,
    /// A member of a queue group cannot be told of publishers: what they keep is nobody's share, and of what is new it gets its
    /// share only, in which gaps mean nothing.
    QueueNews,
    /// The peer is stopping.
    Stopping,
}

/// Why a question to a peer stays without answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuestionFailure {
    /// No such peer is known.
    UnknownPeer,
    /// Several live peers have this name.
    Ambiguous,
    /// The peer has left or was given up, or this peer is stopping.
    Gone,
    /// No answer came in time.
    Timeout,
    /// Too many questions have no answer yet, or too many answers wait to be read.
    TooMany,
    /// The question cannot be read.
    Malformed,
}

impl QuestionFailure {
    /// The name in headers and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            QuestionFailure::UnknownPeer => "unknown-peer",
            QuestionFailure::Ambiguous => "ambiguous",
            QuestionFailure::Gone => "gone",
            QuestionFailure::Timeout => "timeout",
            QuestionFailure::TooMany => "too-many",
            QuestionFailure::Malformed => "malformed",
        }
    }
}

impl fmt::Display for QuestionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuestionFailure::UnknownPeer => "no such peer is known; 'seqcast show peers' lists those that are",
            QuestionFailure::Ambiguous => {
                "several live peers have this name; name one by its epoch ('seqcast show peers')"
            }
            QuestionFailure::Gone => "the peer has left or was given up",
            QuestionFailure::Timeout => "no answer came in time",
            QuestionFailure::TooMany => "too many questions have no answer yet, or too many answers wait to be read",
            QuestionFailure::Malformed => "the question cannot be read",
        })
    }
}

/// What happened to another peer; for logs and `show peers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberEvent {
    /// First contact with this epoch.
    Up,
    /// It said BYE.
    Left,
    /// Nothing heard for the silence timeout.
    Silent,
    /// Heard again after silence.
    Resumed,
    /// Given up without BYE: forgotten, or followed by a new epoch.
    Crashed,
    /// Another live epoch uses the same name.
    DuplicateName,
    /// Its unicast words come, its multicasts do not.
    MulticastDead,
    /// Its multicasts come again.
    MulticastRestored,
    /// It takes multicasts of this peer more slowly than the floor, and is not waited for. Told the first time and then each
    /// time that their number is a power of two.
    LeftBehind,
    /// It has come close again after that, and is waited for.
    CaughtUp,
}

/// What leaves the core.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send to the multicast group.
    Multicast(Bytes),
    /// Send to one peer's inbox.
    Unicast {
        /// An address that a datagram of that peer came from.
        to: SocketAddr,
        /// The UDP payload.
        bytes: Bytes,
    },
    /// Hand messages of one subject to clients.
    Deliver {
        /// Every matching subscription; at least one.
        to: Targets,
        /// The messages; at least one.
        deliveries: Deliveries,
    },
    /// Tell clients of a loss, before any later message of the subject.
    Report {
        /// The subscriptions it concerns; for [`LossScope::Messages`](crate::message::LossScope) those that match the
        /// subject, otherwise one of each client that has any.
        to: Targets,
        /// The loss.
        loss: Loss,
    },
    /// Publish a DATALOSS advisory to the clients that subscribe to its subject.
    Advise {
        /// The subscriptions that match the advisory's subject; may be empty, for the log alone.
        to: Targets,
        /// Its content.
        advisory: Advisory,
    },
    /// A client's request was refused.
    Refuse {
        /// Whose.
        client: ClientId,
        /// The subscription in question, if it was one.
        sub: Option<SubId>,
        /// Why.
        refusal: Refusal,
    },
    /// An answer to [`ClientRequest::Ask`], or a part of one, or word that none will come.
    Answered {
        /// Who asked.
        client: ClientId,
        /// The client's number for the question.
        id: u64,
        /// The part, or why there is none.
        answer: Result<Answer, QuestionFailure>,
    },
    /// A publisher is known that this subscription is not owed all messages of: first this peer itself, then those that are heard,
    /// later each that becomes known. Comes before anything of it is delivered.
    PublisherKnown {
        /// The subscription, one that asked for news.
        to: Target,
        /// The publisher; `None`: those that were known when the subscription was made have all been named. A peer that has
        /// just started waits with this until others had the time to answer it.
        publisher: Option<Publisher>,
    },
    /// News of another peer.
    Member {
        /// Which.
        publisher: Publisher,
        /// What.
        event: MemberEvent,
    },
    /// Leave the group and join it anew: multicasts of others do not arrive, and a switch may have forgotten that this
    /// host wants them.
    Rejoin,
    /// This peer began a new epoch because its frames ran out (reliability.md R10).
    NewEpoch(Epoch),
    /// The graceful stop is complete: nothing more will be sent.
    Stopped,
}
