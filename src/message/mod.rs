//! Messages, deliveries, losses, and the ids that they carry.

mod headers;
mod subscription_filter;

pub use headers::{HeaderError, Headers};
pub use subscription_filter::{Queue, QueueError, SubscriptionFilter};

use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use bytes::Bytes;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Size limit of a message (payload, headers and reply subject together) that every peer accepts: 8 MiB (reliability.md
/// A12). Configuration may lower it, never raise it.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One run of a peer: 64 random bits drawn at its start, never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// Returns the epoch with these bits, or `None` for 0, which means "no epoch" on the wire.
    pub fn new(bits: u64) -> Option<Epoch> {
        (bits != 0).then_some(Epoch(bits))
    }

    /// Returns the 64 bits in their wire representation.
    pub fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    /// Formats the epoch as sixteen hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Number of a datagram of (peer, epoch, group): 1, 2, 3 … contiguous and never reused; 0 means "before the first".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dseq(pub u64);

impl Dseq {
    /// Returns the next number. The field cannot overflow: 2^64 datagrams last 58,000 years at 10 M/s.
    pub fn next(self) -> Dseq {
        Dseq(self.0 + 1)
    }
}

impl fmt::Display for Dseq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Dseq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The configured name of a peer: 1 to 64 of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(Arc<str>);

impl PeerName {
    /// Maximum length of a name in bytes.
    pub const BYTES_MAX: usize = 64;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Reason for which a text is not a peer name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// The text is empty.
    Empty,
    /// The text is longer than [`PeerName::BYTES_MAX`].
    TooLong,
    /// The text has a character outside `A-Z a-z 0-9 . _ -`.
    Character(char),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Empty => write!(f, "a peer name must not be empty"),
            NameError::TooLong => write!(f, "a peer name has at most {} characters", PeerName::BYTES_MAX),
            NameError::Character(c) => {
                write!(f, "a peer name has only letters, digits, '.', '_' and '-', not {c:?}")
            }
        }
    }
}

impl std::error::Error for NameError {}

impl FromStr for PeerName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<PeerName, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if let Some(c) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || ".-_".contains(*c))) {
            return Err(NameError::Character(c));
        }
        if PeerName::BYTES_MAX < text.len() {
            return Err(NameError::TooLong);
        }
        Ok(PeerName(text.into()))
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reference to a peer in a request: by its configured name, which survives a restart, or by its epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerRef {
    /// The only live peer with this name.
    Name(PeerName),
    /// This epoch of a peer.
    Epoch(Epoch),
}

impl FromStr for PeerRef {
    type Err = NameError;

    /// Parses 16 hexadecimal digits as an epoch, and anything else as a name.
    fn from_str(text: &str) -> Result<PeerRef, NameError> {
        let is_epoch = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = if is_epoch { u64::from_str_radix(text, 16).ok() } else { None };
        match bits.and_then(Epoch::new) {
            Some(epoch) => Ok(PeerRef::Epoch(epoch)),
            None => text.parse().map(PeerRef::Name),
        }
    }
}

impl fmt::Display for PeerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerRef::Name(name) => name.fmt(f),
            PeerRef::Epoch(epoch) => epoch.fmt(f),
        }
    }
}

impl From<Epoch> for PeerRef {
    fn from(epoch: Epoch) -> PeerRef {
        PeerRef::Epoch(epoch)
    }
}

impl From<PeerName> for PeerRef {
    fn from(name: PeerName) -> PeerRef {
        PeerRef::Name(name)
    }
}

/// A program attached to this peer. The shell assigns the id and never reuses it while the peer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// A subscription; its client chooses the id, which is unique within the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubId(pub u32);

/// Time and offset that the first message of a frame carries beside its number (seed 002; reliability.md A11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The larger of the publisher's wall clock and the start of the frame.
    pub time: WallTime,
    /// The message's offset in the subject's history (seed 000), modulo 2^32.
    pub offset: u32,
}

/// A message as an application publishes and receives it. Cloning copies references only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Subject on which it is published.
    pub subject: Subject,
    /// Subject to which an answer is requested, if any.
    pub reply: Option<Subject>,
    /// Header fields.
    pub headers: Headers,
    /// The content, opaque to the bus.
    pub payload: Bytes,
    /// True for a journalled event (design.md section 6), false for a volatile message.
    pub event: bool,
}

/// A borrowed view of a message: nothing is copied or reference-counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRef<'a> {
    /// Subject on which it is published.
    pub subject: &'a Subject,
    /// Subject to which an answer is requested, if any.
    pub reply: Option<&'a Subject>,
    /// The header fields, as [`Headers::block`].
    pub headers: &'a [u8],
    /// The content, opaque to the bus.
    pub payload: &'a [u8],
    /// As [`Message::event`].
    pub event: bool,
}

impl<'a> MessageRef<'a> {
    /// Creates a volatile message without reply subject and headers.
    pub fn new(subject: &'a Subject, payload: &'a [u8]) -> MessageRef<'a> {
        MessageRef { subject, reply: None, headers: &[], payload, event: false }
    }

    /// Returns whether it has a reply subject or headers.
    #[inline]
    pub fn has_meta(&self) -> bool {
        self.reply.is_some() || !self.headers.is_empty()
    }

    /// Returns whether it consists only of subject and payload.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.event && !self.has_meta()
    }

    /// Returns the bytes of payload, headers and reply subject.
    pub fn body_bytes(&self) -> usize {
        self.payload.len() + self.headers.len() + self.reply.map_or(0, |reply| reply.as_bytes().len())
    }
}

impl<'a> From<&'a Message> for MessageRef<'a> {
    fn from(message: &'a Message) -> MessageRef<'a> {
        let Message { subject, reply, headers, payload, event } = message;
        MessageRef { subject, reply: reply.as_ref(), headers: headers.block(), payload, event: *event }
    }
}

impl Message {
    /// Creates a volatile message without reply subject and headers.
    pub fn new(subject: Subject, payload: impl Into<Bytes>) -> Message {
        Message { subject, reply: None, headers: Headers::new(), payload: payload.into(), event: false }
    }

    /// Returns the bytes that count against the message limit: payload, headers and reply subject.
    pub fn body_bytes(&self) -> usize {
        MessageRef::from(self).body_bytes()
    }
}

/// Identity of a publisher: a name for people, the epoch for machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publisher {
    /// The configured name, or `None` until the publisher has announced it.
    pub name: Option<PeerName>,
    /// Epoch of the publisher.
    pub epoch: Epoch,
    /// A small number that this peer assigned to it, from 1 in the order of first contact; never reused. 0 is this
    /// peer; 0 without a name is a publisher unknown to this peer.
    pub uid: u32,
}

impl fmt::Display for Publisher {
    /// Formats it as in the seed's `show loss`: the user part of the name, a dot, the number: `B.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.name.as_ref().map_or("?", |n| n.as_str().split('.').next().unwrap_or("?"));
        write!(f, "{user}.{}", self.uid)
    }
}

/// A number that is exact, or known to lie between two bounds. It is never 1 to mean "unknown".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The exact number.
    Exact(u64),
    /// At least `min`, at most `max`.
    Between {
        /// Smallest possible number.
        min: u64,
        /// Largest possible number.
        max: u64,
    },
}

impl Count {
    /// Creates a count from its bounds; `Exact` if both agree.
    pub fn from_bounds(min: u64, max: u64) -> Count {
        if min == max { Count::Exact(min) } else { Count::Between { min, max: max.max(min) } }
    }

    /// Returns the smallest possible number.
    pub fn min(self) -> u64 {
        match self {
            Count::Exact(count) => count,
            Count::Between { min, .. } => min,
        }
    }

    /// Returns the largest possible number.
    pub fn max(self) -> u64 {
        match self {
            Count::Exact(count) => count,
            Count::Between { max, .. } => max,
        }
    }

    /// Returns whether the number is exact.
    pub fn is_exact(self) -> bool {
        matches!(self, Count::Exact(_))
    }
}

impl fmt::Display for Count {
    /// Formats it as `7`, or `0..7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Exact(count) => write!(f, "{count}"),
            Count::Between { min, max } => write!(f, "{min}..{max}"),
        }
    }
}

/// Position of a message's number relative to the previous one: the verdicts of seed 002 that lead to a delivery. The
/// other two, "repeated" and "not subscribed", lead to a counter only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The publisher started the numbering here and dates it.
    Start(WallTime),
    /// The first message received of the subject, at an arbitrary position in its numbering.
    First,
    /// The message follows the previous one.
    Next,
    /// This number of messages is missing before it; a [`Loss`] has just reported them.
    Skip(Count),
    /// The publisher had no memory left to number this subject (reliability.md R9); order is by datagram.
    Unnumbered,
    /// Published by a client of this same peer, or directed to this peer alone.
    Direct,
}

/// Behaviour of a subscription when messages are missing (design.md section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryMode {
    /// Missing messages are requested; meanwhile their subject waits, for `reliability` at most.
    #[default]
    Repair,
    /// Arriving messages are delivered after the reorder grace, with the number missing.
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

/// A message on its way to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// The publisher.
    pub publisher: Publisher,
    /// Number of the message; `None` with [`Verdict::Unnumbered`], and with [`Verdict::Direct`] unless it was sent to
    /// all.
    pub seq: Option<Seq>,
    /// Offset in the history of the subject, which a poll names (seed 000). `None` if unknown: the publisher sends it
    /// with the first message of a frame.
    pub offset: Option<u32>,
    /// Position of the message in its stream.
    pub verdict: Verdict,
    /// True if it was missing at first and arrived on request.
    pub repaired: bool,
    /// True if it is part of the history with which a subscription began.
    pub replayed: bool,
}

impl Delivery {
    /// Creates a delivery that was neither repaired nor replayed.
    pub fn new(message: Message, publisher: Publisher, seq: Option<Seq>, verdict: Verdict) -> Delivery {
        Delivery { message, publisher, seq, offset: None, verdict, repaired: false, replayed: false }
    }
}

/// A borrowed view of a delivery: nothing is copied or reference-counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRef<'a> {
    /// Subject on which it is published.
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
        let DeliveryRef { publisher, seq, offset, verdict, repaired, replayed, .. } = *self;
        Delivery { message, publisher: publisher.clone(), seq, offset, verdict, repaired, replayed }
    }
}

impl<'a> From<&'a Delivery> for DeliveryRef<'a> {
    fn from(delivery: &'a Delivery) -> DeliveryRef<'a> {
        let Delivery { message, publisher, seq, offset, verdict, repaired, replayed } = delivery;
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
        }
    }
}

/// Reason for which something counts as lost or unverified (reliability.md 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Repair is off: the loss is reported after the reorder grace.
    Disabled,
    /// The loss was not repaired within `reliability`.
    Deadline,
    /// The publisher has evicted it from its history.
    Expired,
    /// A limit of this peer was reached.
    Overflow,
    /// The publisher left (BYE) or was given up.
    PublisherGone,
    /// The publisher was not heard for the silence timeout; the loss may still close.
    Silent,
    /// The publisher's epoch ended without BYE.
    Crashed,
    /// The receiver of this peer's data reported the loss without a reason.
    Reported,
    /// The publisher's unicast arrives and its multicast does not (reliability.md 3.4). In advisories only.
    Blackhole,
    /// Datagrams in the publisher's name contradict each other, so one of them is forged.
    Contradicted,
    /// Sent before the first contact with a publisher of unknown age, so it is unknown if it is owed.
    Start,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 11] = [
        Reason::Disabled,
        Reason::Deadline,
        Reason::Expired,
        Reason::Overflow,
        Reason::PublisherGone,
        Reason::Silent,
        Reason::Crashed,
        Reason::Reported,
        Reason::Blackhole,
        Reason::Contradicted,
        Reason::Start,
    ];

    /// Returns the name in logs, JSON and advisories.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Disabled => "DISABLED",
            Reason::Deadline => "DEADLINE",
            Reason::Expired => "EXPIRED",
            Reason::Overflow => "OVERFLOW",
            Reason::PublisherGone => "PUBLISHER_GONE",
            Reason::Silent => "SILENT",
            Reason::Crashed => "CRASHED",
            Reason::Reported => "REPORTED",
            Reason::Blackhole => "MCAST_BLACKHOLE",
            Reason::Contradicted => "CONTRADICTED",
            Reason::Start => "START",
        }
    }
}

// Counters are indexed by the position of the reason in the list.
const _: () = {
    let mut at = 0;
    while at < Reason::ALL.len() {
        assert!(Reason::ALL[at] as usize == at, "the list is in the order of declaration");
        at += 1;
    }
    assert!(Reason::Start as usize + 1 == Reason::ALL.len(), "the last reason ends the list");
};

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Location at which datagrams went missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Between the publisher and this host, as far as this host can determine.
    Network,
    /// This host's kernel dropped the missing datagrams because the receive buffer was full.
    LocalOverrun {
        /// Datagrams that the kernel's drop counter accounts for.
        datagrams: u64,
    },
    /// Both: this host's kernel dropped a part of the missing datagrams, and the others never reached it.
    Mixed {
        /// Datagrams that the kernel's drop counter accounts for.
        overrun: u64,
        /// All other missing datagrams.
        network: u64,
    },
}

/// Number of missing datagrams, and the part of them that this host's kernel dropped. The cause of each loss is decided
/// here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingDatagrams {
    /// Number of missing datagrams; 0 if the loss is in no datagram, or in unknown ones.
    pub datagrams: u64,
    /// Number of missing datagrams that the kernel's drop counter accounts for.
    pub overrun: u64,
}

impl MissingDatagrams {
    /// Returns the sum of both.
    pub fn plus(self, other: MissingDatagrams) -> MissingDatagrams {
        MissingDatagrams {
            datagrams: self.datagrams.saturating_add(other.datagrams),
            overrun: self.overrun.saturating_add(other.overrun),
        }
    }

    /// Returns the cause for which these datagrams went missing.
    pub fn cause(self) -> Cause {
        match (self.overrun, self.datagrams.saturating_sub(self.overrun)) {
            (0, _) => Cause::Network,
            (datagrams, 0) => Cause::LocalOverrun { datagrams },
            (overrun, network) => Cause::Mixed { overrun, network },
        }
    }
}

impl Cause {
    /// Returns the number of missing datagrams that this host's kernel dropped.
    pub fn overrun(&self) -> u64 {
        match *self {
            Cause::Network => 0,
            Cause::LocalOverrun { datagrams: overrun } | Cause::Mixed { overrun, .. } => overrun,
        }
    }

    /// Returns the number of missing datagrams that this host's kernel did not drop, in addition to those that it did.
    pub fn network(&self) -> u64 {
        match *self {
            Cause::Network | Cause::LocalOverrun { .. } => 0,
            Cause::Mixed { network, .. } => network,
        }
    }

    /// Returns the name in logs, JSON and advisories.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Network => "NETWORK",
            Cause::LocalOverrun { .. } => "LOCAL_OVERRUN",
            Cause::Mixed { .. } => "MIXED",
        }
    }
}

/// A loss, or an unverified range; delivered beside the messages, in stream order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The publisher whose data is lost.
    pub publisher: Publisher,
    /// Extent of the loss.
    pub what: LossScope,
    /// Reason of the loss.
    pub reason: Reason,
    /// Cause of the loss, as far as known.
    pub cause: Cause,
    /// Time at which the loss was settled.
    pub at: WallTime,
}

/// Extent of a [`Loss`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossScope {
    /// Messages of one subject that the publisher sent and this peer will not deliver: *lost*.
    Messages {
        /// The subject.
        subject: Subject,
        /// Lowest missing number.
        first: Seq,
        /// Highest missing number.
        last: Seq,
        /// Number of missing messages.
        count: Count,
    },
    /// Datagrams whose content is not known: *unverified* until a later message of a subject proves their content. An
    /// incomplete large message without a number (A8) is reported by the datagram in which it began.
    Datagrams {
        /// The first datagram.
        first: Dseq,
        /// The last datagram.
        last: Dseq,
        /// Number of unexplained messages of any subject in them, subscribed or not. It is exact, unless a loss
        /// reported before may lie in these or in other datagrams.
        messages: Count,
    },
    /// The publisher fell silent, so it is unknown if anything follows this datagram. With [`Reason::Silent`] it may be
    /// heard again; with [`Reason::Crashed`] it will not.
    Tail {
        /// Highest datagram known.
        after: Dseq,
    },
    /// Messages directed to this peer alone (replies, polls): the inbox loss of `show loss`.
    Inbox {
        /// Number of messages; exact.
        messages: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!("A.test-1_b".parse::<PeerName>().unwrap().as_str(), "A.test-1_b");
        assert_eq!("".parse::<PeerName>(), Err(NameError::Empty));
        assert_eq!("a b".parse::<PeerName>(), Err(NameError::Character(' ')));
        assert_eq!("ä".parse::<PeerName>(), Err(NameError::Character('ä')));
        assert_eq!("x".repeat(65).parse::<PeerName>(), Err(NameError::TooLong));
    }

    #[test]
    fn peers_are_named_by_name_or_by_epoch() {
        let epoch = Epoch::new(0xabc).unwrap();
        assert_eq!("0000000000000abc".parse(), Ok(PeerRef::Epoch(epoch)));
        for name in ["B.test", "0000000000000000", "0000000000000abcd", "+00000000000abcd"] {
            match name.parse::<PeerRef>() {
                Ok(PeerRef::Name(parsed)) => assert_eq!(parsed.as_str(), name),
                other => assert_eq!((name, other), ("+00000000000abcd", Err(NameError::Character('+')))),
            }
        }
        assert_eq!(PeerRef::from(epoch).to_string().parse(), Ok(PeerRef::from(epoch)));
    }

    #[test]
    fn headers_keep_order_and_refuse_what_would_break_lines() {
        let headers = Headers::from_pairs([("A", "1"), ("b", "two words"), ("A", "")]).unwrap();
        assert_eq!(headers.block().as_ref(), b"A: 1\r\nb: two words\r\nA: \r\n");
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("A", "1"), ("b", "two words"), ("A", "")]);
        assert_eq!(Headers::from_pairs([("a b", "")]), Err(HeaderError::Key("a b".into())));
        assert_eq!(Headers::from_pairs([("", "")]), Err(HeaderError::Key(String::new())));
        assert_eq!(Headers::from_pairs([("a", "x\r\nb: y")]), Err(HeaderError::Value("a".into())));
        let foreign = Headers::from_block(Bytes::from_static(b"\xff\xfe: 1\r\nno colon\r\nok:1"));
        assert_eq!(foreign.iter().collect::<Vec<_>>(), [("ok", "1")]);
    }

    #[test]
    fn counts_never_pretend() {
        assert_eq!(Count::from_bounds(3, 3), Count::Exact(3));
        assert_eq!(Count::from_bounds(0, 7).to_string(), "0..7");
        assert_eq!((Count::Exact(4).min(), Count::Exact(4).max()), (4, 4));
    }

    #[test]
    fn publishers_show_as_in_the_seed() {
        let epoch = Epoch::new(0xabc).unwrap();
        let named = Publisher { name: Some("B.test".parse().unwrap()), epoch, uid: 1 };
        assert_eq!(named.to_string(), "B.1");
        assert_eq!(Publisher { name: None, epoch, uid: 4 }.to_string(), "?.4");
        assert_eq!(epoch.to_string(), "0000000000000abc");
    }
}
