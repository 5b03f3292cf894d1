//! Deliveries: messages on their way to a client, with their position in the stream.

use super::{Count, Headers, Message, Publisher};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use bytes::Bytes;

/// Relation of a message's number to the previous one of its subject: the verdicts of seed 002 that lead to a delivery.
/// The other two verdicts, "repeated" and "not subscribed", only increase a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The publisher started the numbering here and dates it.
    Start(WallTime),
    /// The first message received of the subject, at an arbitrary position in its numbering.
    First,
    /// The message follows the previous one.
    Next,
    /// This number of messages is missing before the message; a [`Loss`](super::Loss) has just reported them.
    Skip(Count),
    /// The publisher had no memory left to number this subject (A8). Messages are in the order of their datagrams.
    Unnumbered,
    /// The message was published by a client of this peer, or sent to this peer alone.
    Direct,
}

/// Behaviour of a subscription when messages are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryMode {
    /// The peer requests missing messages. Meanwhile it delivers no later message of the subject, for at most
    /// `reliability`.
    #[default]
    Repair,
    /// The peer delivers later messages after the reorder grace, and reports the number of missing ones.
    Live,
}

impl DeliveryMode {
    /// Returns the other mode.
    pub fn other(self) -> DeliveryMode {
        match self {
            DeliveryMode::Repair => DeliveryMode::Live,
            DeliveryMode::Live => DeliveryMode::Repair,
        }
    }

    /// Returns the name in configuration, tables and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryMode::Repair => "repair",
            DeliveryMode::Live => "live",
        }
    }
}

/// Proof of the publisher of a message when it is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageOrigin {
    /// It is proven that a member of the realm has sent it.
    Group,
    /// It is proven that its publisher has sent it.
    Publisher,
}

impl MessageOrigin {
    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            MessageOrigin::Group => "group",
            MessageOrigin::Publisher => "publisher",
        }
    }
}

/// A message on its way to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// The publisher.
    pub publisher: Publisher,
    /// Number of the message. `None` with [`Verdict::Unnumbered`], and with [`Verdict::Direct`] unless the message was
    /// sent to all peers.
    pub seq: Option<Seq>,
    /// Offset in the history of the subject, for polls (seed 000). `None` if unknown: the publisher sends the offset
    /// only with the first message of a frame.
    pub offset: Option<u32>,
    /// Relation of the message to the previous one of its subject.
    pub verdict: Verdict,
    /// True if the message was missing at first and arrived on request.
    pub repaired: bool,
    /// True if the message is part of the history with which a subscription began.
    pub replayed: bool,
    /// Proof of its publisher. `None` in open mode, and if it is replayed.
    pub origin: Option<MessageOrigin>,
}

impl Delivery {
    /// Creates a delivery that was neither repaired nor replayed, without proof of its publisher.
    pub fn new(message: Message, publisher: Publisher, seq: Option<Seq>, verdict: Verdict) -> Delivery {
        Delivery { message, publisher, seq, offset: None, verdict, repaired: false, replayed: false, origin: None }
    }
}

/// A borrowed view of a delivery: nothing is copied or reference-counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRef<'a> {
    /// Subject on which the message is published.
    pub subject: &'a Subject,
    /// Subject to which an answer is requested, in UTF-8; empty if none.
    pub reply: &'a [u8],
    /// The header fields, as [`Headers::block`].
    pub headers: &'a [u8],
    /// The content, opaque to the bus.
    pub payload: &'a [u8],
    /// True for a journalled event.
    pub event: bool,
    /// As [`Delivery::publisher`].
    pub publisher: &'a Publisher,
    /// As [`Delivery::seq`].
    pub seq: Option<Seq>,
    /// As [`Delivery::offset`].
    pub offset: Option<u32>,
    /// As [`Delivery::verdict`].
    pub verdict: Verdict,
    /// As [`Delivery::repaired`].
    pub repaired: bool,
    /// As [`Delivery::replayed`].
    pub replayed: bool,
    /// As [`Delivery::origin`].
    pub origin: Option<MessageOrigin>,
}

impl DeliveryRef<'_> {
    /// Returns an owned copy.
    pub fn to_delivery(&self) -> Delivery {
        let reply = Some(self.reply).filter(|reply| !reply.is_empty());
        let message = Message {
            subject: self.subject.detached(),
            reply: reply.map(|reply| Subject::from_bytes(Bytes::copy_from_slice(reply)).expect("checked before")),
            headers: Headers::from_block(Bytes::copy_from_slice(self.headers)),
            payload: Bytes::copy_from_slice(self.payload),
            event: self.event,
        };
        let DeliveryRef { publisher, seq, offset, verdict, repaired, replayed, origin, .. } = *self;
        Delivery { message, publisher: publisher.clone(), seq, offset, verdict, repaired, replayed, origin }
    }
}

impl<'a> From<&'a Delivery> for DeliveryRef<'a> {
    fn from(delivery: &'a Delivery) -> DeliveryRef<'a> {
        let Delivery { message, publisher, seq, offset, verdict, repaired, replayed, origin } = delivery;
        DeliveryRef {
            subject: &message.subject,
            reply: message.reply.as_ref().map_or(&[], |reply| reply.as_bytes()),
            headers: message.headers.block(),
            payload: &message.payload,
            event: message.event,
            publisher,
            seq: *seq,
            offset: *offset,
            verdict: *verdict,
            repaired: *repaired,
            replayed: *replayed,
            origin: *origin,
        }
    }
}
