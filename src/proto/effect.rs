//! `Input` and `Effect`: events for the core, and what its shell must do. Requests are inputs; publishing, requests
//! and reports also have direct calls of `Peer`.

use crate::delivery::Deliveries;
use crate::message::{
    ClientId, Delivery, DeliveryMode, Dseq, Epoch, Loss, Message, PeerName, Publisher, QuestionFailure, Refusal, SubId,
    SubscriptionFilter, Target, Targets,
};
use crate::proto::advisory::Advisory;
use crate::proto::certified::{CertifiedPeer, OwnCertificate};
use crate::proto::question::{Answer, Question};
use crate::subject::Subject;
use crate::time::Instant;
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;

/// Path by which a datagram arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Through the multicast group.
    Multicast,
    /// Through the unicast inbox.
    Unicast,
}

/// A datagram of another peer, with the time of its arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivedDatagram {
    /// The sender's unicast address, as the kernel reports it.
    pub from: SocketAddr,
    /// Socket on which the datagram arrived.
    pub path: Path,
    /// The UDP payload.
    pub bytes: Bytes,
    /// Time of its arrival if the socket reports it, otherwise of its reading.
    pub arrived: Instant,
}

/// A position in what a peer has published to the group; from [`Peer::published`](crate::proto::peer::Peer::published).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedPosition {
    pub(crate) epoch: Epoch,
    /// Datagram that contains the end of the published messages.
    pub(crate) last: Dseq,
}

/// Inputs of the core.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A datagram arrived.
    Datagram {
        /// The sender's unicast address, as the kernel reports it.
        from: SocketAddr,
        /// Socket on which the datagram arrived.
        path: Path,
        /// The UDP payload.
        bytes: Bytes,
    },
    /// Multicasts of this peer came back, and were discarded unread. They are only counted.
    OwnDatagrams {
        /// Number of datagrams.
        datagrams: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The kernel's drop counter of a receive socket rose by `drops` since the last such input of that socket. This
    /// input precedes the datagram that carried the counter, unless that datagram was this peer's own.
    Overrun {
        /// The socket.
        path: Path,
        /// Number of drops because the receive buffer was full, as the kernel counts: a buffer of several datagrams
        /// counts once.
        drops: u64,
        /// Maximum number of datagrams that the drops can represent.
        datagrams_max: u64,
    },
    /// Fill level of the fullest local subscription queue whose reader has not lost anything yet. The shell reports it
    /// repeatedly while it is significant, and once more after that.
    Backlog {
        /// Fill level in parts of 1,024.
        fullness: u64,
    },
    /// A local client sends a request.
    ClientRequest {
        /// The client.
        client: ClientId,
        /// The request.
        request: ClientRequest,
    },
    /// A local client has disconnected; its subscriptions end.
    Detach {
        /// The client.
        client: ClientId,
    },
    /// A datagram that waited for the keys of its sender, or for the proof of its origin.
    Deferred(ArrivedDatagram),
    /// A peer has proven its identity. This input precedes its first datagram. Without such inputs every peer may publish
    /// on every subject.
    Authenticated {
        /// Epoch of the peer.
        epoch: Epoch,
        /// Statements of its certificate.
        certified: CertifiedPeer,
    },
    /// The host of this peer has this certificate from now on. It applies to what clients request afterwards. Without
    /// this input they may use every subject.
    OwnCertificate(OwnCertificate),
    /// Inputs from now on arrived at this instant or later, and may have waited unread since. Without this input,
    /// datagrams count as arriving when they are handed in.
    Arrived {
        /// The socket.
        path: Path,
        /// Earliest arrival time of the next datagram.
        at: Instant,
    },
    /// The peer's inbox has another address from now on. The peer begins a new epoch, because an epoch has one address
    /// (wire.md W2). Datagrams that were not sent yet belong to the former epoch: the shell discards them.
    AddressChanged,
    /// Time has passed: the deadline was reached, or the shell has nothing more to hand in and open datagrams
    /// should leave.
    Tick,
    /// Begin a graceful stop: flush, send BYE, then [`Effect::Stopped`].
    Stop,
}

/// Requests of a local client.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientRequest {
    /// Publish a message. A subject of the form `_INBOX.<epoch of a known peer>.…` is sent to that peer alone.
    Publish(Message),
    /// Subscribe; ignored if the client already has this `sub`.
    Subscribe {
        /// The client's id of the subscription.
        sub: SubId,
        /// Filter of the subscription.
        wanted: SubscriptionFilter,
        /// Delivery mode; members of queue groups are in mode `repair`.
        mode: DeliveryMode,
        /// True if publishers are reported to it ([`Effect::PublisherKnown`]), for [`Join`](crate::proto::join::Join).
        /// Not allowed for members of queue groups.
        wants_discovery: bool,
    },
    /// Query a peer's history. The answer comes as [`Effect::Answer`] with the same number, in one or more parts.
    QueryHistory {
        /// The client's number of the request.
        id: u64,
        /// The peer whose history is queried: this peer itself or another.
        peer: Epoch,
        /// The question.
        question: Question,
        /// Maximum time to wait for the answer.
        timeout: Duration,
    },
    /// Sets whether the client's own subscriptions get its messages and count as their receivers; the default is true.
    Echo(bool),
    /// End a subscription; unknown ones are ignored.
    Unsubscribe {
        /// The client's id of the subscription.
        sub: SubId,
    },
}

/// A change in the state of another peer; for logs and `show peers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberEvent {
    /// First contact with this epoch.
    Up,
    /// The peer sent a BYE.
    Left,
    /// The peer was not heard for the silence timeout.
    Silent,
    /// The peer was heard again after silence.
    Resumed,
    /// The peer was given up without BYE: forgotten, or followed by a new epoch.
    Crashed,
    /// Another live epoch uses the same name.
    DuplicateName,
    /// The peer announces the name in the certificate of another host.
    ForeignName,
    /// The peer knows subscriptions of this peer that another one has forged. It may have suppressed messages for clients
    /// here.
    InterestForged,
    /// The peer's unicast arrives, and its multicast does not.
    MulticastDead,
    /// The peer's multicast arrives again.
    MulticastRestored,
    /// The peer receives this peer's multicast more slowly than the floor, and is excluded from flow control. This is
    /// reported the first time, and then whenever the number of times is a power of two.
    FlowExcluded,
    /// The excluded peer has caught up, and flow control waits for it again.
    CaughtUp,
}

/// A message that its publisher may not publish, and that therefore goes to no client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedPublication {
    /// The publisher.
    pub publisher: Publisher,
    /// Name in its certificate, if that is known.
    pub member: Option<PeerName>,
    /// Subject of the message.
    pub subject: Subject,
}

/// Reason why a running peer begins a new epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochChange {
    /// The time frames of its sequence numbers ran out (R10).
    FramesExhausted,
    /// Its address changed ([`Input::AddressChanged`]).
    AddressChanged,
}

/// Outputs of the core.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send to the multicast group.
    Multicast(Bytes),
    /// Send to one peer's inbox.
    Unicast {
        /// An address from which a datagram of that peer came.
        to: SocketAddr,
        /// The UDP payload.
        bytes: Bytes,
    },
    /// Deliver messages of one subject to clients.
    Deliver {
        /// Every matching subscription; at least one.
        to: Targets,
        /// The messages; at least one.
        deliveries: Deliveries,
    },
    /// Members of queue groups at other peers get this message, which has header fields, and no member here does. If it
    /// comes again, this peer may have to recognize it.
    AssignedElsewhere(Delivery),
    /// Report a loss to clients, before any later message of the subject.
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
        /// Content of the advisory.
        advisory: Advisory,
    },
    /// A client's request was refused.
    Refuse {
        /// The client.
        client: ClientId,
        /// The subscription, if the request was for one.
        sub: Option<SubId>,
        /// The reason.
        refusal: Refusal,
    },
    /// An answer to [`ClientRequest::QueryHistory`], a part of one, or its failure.
    Answer {
        /// The client that sent the request.
        client: ClientId,
        /// The client's number of the request.
        id: u64,
        /// The part, or the reason for which there is none.
        answer: Result<Answer, QuestionFailure>,
    },
    /// Another peer, or a client of this one, asks for a report of this peer.
    /// [`Peer::answer_report`](crate::proto::peer::Peer::answer_report) answers.
    QueryReport {
        /// Peer that asks; its address is proven. This peer itself for its own clients.
        from: Epoch,
        /// Subject of the answer.
        reply: Subject,
        /// The query, unread.
        query: Bytes,
    },
    /// This peer has discovered a publisher whose messages the subscription is not fully owed. The first is this peer
    /// itself, then come the publishers already known, then each new one. This effect precedes every delivery from that
    /// publisher.
    PublisherKnown {
        /// The subscription, which requested publisher reports.
        to: Target,
        /// The publisher. `None`: all publishers known when the subscription was made have been reported. A peer that
        /// has just started delays this until others had time to answer it.
        publisher: Option<Publisher>,
    },
    /// The state of another peer changed.
    Member {
        /// The peer.
        publisher: Publisher,
        /// The change.
        event: MemberEvent,
    },
    /// The certificate of another peer does not permit what the peer has published. This is reported at most once in 10 s
    /// for each peer.
    Denied(DeniedPublication),
    /// Leave the group and join it anew: the multicast of others does not arrive, and a switch may have dropped this
    /// host's membership.
    Rejoin,
    /// This peer began a new epoch.
    NewEpoch {
        /// The new epoch.
        epoch: Epoch,
        /// The reason.
        change: EpochChange,
    },
    /// The graceful stop is complete: nothing more will be sent.
    Stopped,
}
