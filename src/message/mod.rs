//! What travels and what is told: messages, deliveries, losses, and the ids they carry.

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

/// The largest message (payload, headers and reply subject together) that any peer accepts: 8 MiB
/// (reliability.md A12). Configuration may lower it, never raise it.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One run of a peer: 64 random bits drawn at its start, never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch with these bits, or `None` for 0, which means "no epoch" on the wire.
    pub fn new(bits: u64) -> Option<Epoch> {
        (bits != 0).then_some(Epoch(bits))
    }

    /// The 64 bits as they stand on the wire.
    pub fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    /// Sixteen hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The number of a datagram of (peer, epoch, group): 1, 2, 3 … contiguous and never reused;
/// 0 stands for "before the first".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dseq(pub u64);

impl Dseq {
    /// The number after this one. The field cannot run out: 2^64 datagrams last 58,000 years at 10 M/s.
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
    /// The longest name in bytes.
    pub const BYTES_MAX: usize = 64;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is no peer name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Nothing at all.
    Empty,
    /// Longer than [`PeerName::BYTES_MAX`].
    TooLong,
    /// A character outside `A-Z a-z 0-9 . _ -`.
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

/// How a peer is named by those who ask it: by its configured name, which it keeps when it starts again, or by its run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerRef {
    /// The only live peer with this name.
    Name(PeerName),
    /// This run of a peer.
    Epoch(Epoch),
}

impl FromStr for PeerRef {
    type Err = NameError;

    /// 16 hexadecimal digits are an epoch, anything else is a name.
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

/// A program attached to this peer; given by the shell and never reused while the peer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// A subscription; chosen by its client and unique within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubId(pub u32);

/// What the first message of a frame carries beside its number (seed 002; reliability.md A11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The larger of the publisher's wall clock and the start of the frame.
    pub time: WallTime,
    /// The message's offset in the subject's history (seed 000), modulo 2^32.
    pub offset: u32,
}

/// A message as an application gives and gets it. Cloning copies references only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is published on.
    pub subject: Subject,
    /// Where an answer is wanted, if one is.
    pub reply: Option<Subject>,
    /// Header fields.
    pub headers: Headers,
    /// The content, opaque to the bus.
    pub payload: Bytes,
    /// Whether this is a journalled event (design.md section 6) and not a volatile message.
    pub event: bool,
}

/// A message where it lies, as long as it is looked at: nothing is copied and nothing counted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRef<'a> {
    /// What it is published on.
    pub subject: &'a Subject,
    /// Where an answer is wanted, if one is.
    pub reply: Option<&'a Subject>,
    /// The header fields, as [`Headers::block`].
    pub headers: &'a [u8],
    /// The content, opaque to the bus.
    pub payload: &'a [u8],
    /// As [`Message::event`].
    pub event: bool,
}

impl<'a> MessageRef<'a> {
    /// A volatile message without reply subject and headers.
    pub fn new(subject: &'a Subject, payload: &'a [u8]) -> MessageRef<'a> {
        MessageRef { subject, reply: None, headers: &[], payload, event: false }
    }

    /// Whether it has a reply subject or headers.
    #[inline]
    pub fn has_meta(&self) -> bool {
        self.reply.is_some() || !self.headers.is_empty()
    }

    /// Whether it is nothing but subject and payload.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.event && !self.has_meta()
    }

    /// Bytes of payload, headers and reply subject.
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
    /// A volatile message without reply subject and headers.
    pub fn new(subject: Subject, payload: impl Into<Bytes>) -> Message {
        Message { subject, reply: None, headers: Headers::new(), payload: payload.into(), event: false }
    }

    /// The bytes that count against the message limit: payload, headers and reply subject.
    pub fn body_bytes(&self) -> usize {
        MessageRef::from(self).body_bytes()
    }
}

/// Who published: a name for people, the epoch for machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publisher {
    /// The configured name, or `None` until the publisher has said it.
    pub name: Option<PeerName>,
    /// The run of the publisher.
    pub epoch: Epoch,
    /// A small number that this peer gave it, from 1 in the order of first contact; never reused. 0 is this peer;
    /// without a name, one that this peer does not know.
    pub uid: u32,
}

impl fmt::Display for Publisher {
    /// As in the seed's `show loss`: the user part of the name, a dot, the number: `B.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.name.as_ref().map_or("?", |n| n.as_str().split('.').next().unwrap_or("?"));
        write!(f, "{user}.{}", self.uid)
    }
}

/// How many: known, or known to lie between two numbers. Never "1" for "unknown".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Exactly so many.
    Exact(u64),
    /// At least `min`, at most `max`.
    Between {
        /// The smallest possible number.
        min: u64,
        /// The largest possible number.
        max: u64,
    },
}

impl Count {
    /// `Exact` if both bounds agree.
    pub fn from_bounds(min: u64, max: u64) -> Count {
        if min == max { Count::Exact(min) } else { Count::Between { min, max: max.max(min) } }
    }

    /// The smallest possible number.
    pub fn min(self) -> u64 {
        match self {
            Count::Exact(count) => count,
            Count::Between { min, .. } => min,
        }
    }

    /// The largest possible number.
    pub fn max(self) -> u64 {
        match self {
            Count::Exact(count) => count,
            Count::Between { max, .. } => max,
        }
    }

    /// Whether the number is known.
    pub fn is_exact(self) -> bool {
        matches!(self, Count::Exact(_))
    }
}

impl fmt::Display for Count {
    /// `7`, or `0..7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Exact(count) => write!(f, "{count}"),
            Count::Between { min, max } => write!(f, "{min}..{max}"),
        }
    }
}

/// What a message's number says, seen from the one before it: the verdicts of seed 002 that lead to a
/// delivery. The other two, "repeated" and "not subscribed", lead to a counter only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The publisher started the numbering here and dates it.
    Start(WallTime),
    /// The first message received of the subject, somewhere in its numbering.
    First,
    /// It follows the one before.
    Next,
    /// So many are missing before it; the loss was told as a [`Loss`] just before.
    Skip(Count),
    /// The publisher had no memory left to number this subject (reliability.md R9); order is by datagram.
    Unnumbered,
    /// Published by a client of this same peer, or directed to this peer alone.
    Direct,
}

/// What a subscription gets when something is missing (design.md section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryMode {
    /// What is missing is asked for; meanwhile its subject waits, for `reliability` at most.
    #[default]
    Repair,
    /// What comes is handed on after the reorder grace, with the number missing.
    Live,
}

impl DeliveryMode {
    /// The one that it is not.
    pub fn other(self) -> DeliveryMode {
        match self {
            DeliveryMode::Repair => DeliveryMode::Live,
            DeliveryMode::Live => DeliveryMode::Repair,
        }
    }

    /// The name in configuration, tables and JSON.
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
    /// Who published it.
    pub publisher: Publisher,
    /// Its number; `None` with [`Verdict::Unnumbered`], and with [`Verdict::Direct`] unless it went to all.
    pub seq: Option<Seq>,
    /// Its offset in the history of the subject, which a poll names (seed 000); `None` where it is not known: the publisher tells it with
    /// the first message of a frame.
    pub offset: Option<u32>,
    /// Its place in its stream.
    pub verdict: Verdict,
    /// Whether it was missing at first, and came because it was asked for.
    pub repaired: bool,
    /// Whether it is part of what a subscription that began with history was first given.
    pub replayed: bool,
}

impl Delivery {
    /// One that came as it was sent: neither asked for again nor from a history.
    pub fn new(message: Message, publisher: Publisher, seq: Option<Seq>, verdict: Verdict) -> Delivery {
        Delivery { message, publisher, seq, offset: None, verdict, repaired: false, replayed: false }
    }
}

/// A delivery where it lies, as long as it is looked at: nothing is copied and nothing counted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRef<'a> {
    /// What it is published on.
    pub subject: &'a Subject,
    /// Where an answer is wanted, in UTF-8; empty if none is.
    pub reply: &'a [u8],
    /// The header fields, as [`Headers::block`].
    pub headers: &'a [u8],
    /// The content, opaque to the bus.
    pub payload: &'a [u8],
    /// Whether this is a journalled event.
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
    /// A copy that can be kept.
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

/// Why something counts as lost or unverified (reliability.md 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Repair is off: reported after the reorder grace.
    Disabled,
    /// Not repaired within `reliability`.
    Deadline,
    /// The publisher's history has moved on.
    Expired,
    /// A limit of this peer was reached.
    Overflow,
    /// The publisher left (BYE) or was given up.
    PublisherGone,
    /// Nothing heard for the silence timeout; may close again.
    Silent,
    /// The publisher's epoch ended without BYE.
    Crashed,
    /// The receiver of this peer's data said so, and not why.
    Reported,
    /// The publisher's unicast words come and its multicasts do not (reliability.md 3.4). In advisories only.
    Blackhole,
    /// Datagrams in the publisher's name contradict each other, so somebody else sent one of them.
    Contradicted,
    /// Sent before the first contact with a publisher whose age is not known, so nobody can tell whether it is owed.
    Start,
}

impl Reason {
    /// All of them.
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

    /// The name in logs, JSON and advisories.
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

// A counter for each reason stands at its place in the list.
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

/// Where datagrams went missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Between the publisher and this host, as far as this host can tell.
    Network,
    /// This host's kernel dropped so many of the missing datagrams because the receive buffer was full.
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

/// Number of missing datagrams, and how many of them this host's kernel dropped. The cause of each loss is decided here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingDatagrams {
    /// Number of missing datagrams; 0 if the loss lies in none, or in unknown ones.
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

    /// Returns where these datagrams went missing.
    pub fn cause(self) -> Cause {
        match (self.overrun, self.datagrams.saturating_sub(self.overrun)) {
            (0, _) => Cause::Network,
            (datagrams, 0) => Cause::LocalOverrun { datagrams },
            (overrun, network) => Cause::Mixed { overrun, network },
        }
    }
}

impl Cause {
    /// Number of missing datagrams that this host's kernel dropped.
    pub fn overrun(&self) -> u64 {
        match *self {
            Cause::Network => 0,
            Cause::LocalOverrun { datagrams: overrun } | Cause::Mixed { overrun, .. } => overrun,
        }
    }

    /// Number of missing datagrams that this host's kernel did not drop, beside those that it did.
    pub fn network(&self) -> u64 {
        match *self {
            Cause::Network | Cause::LocalOverrun { .. } => 0,
            Cause::Mixed { network, .. } => network,
        }
    }

    /// The name in logs, JSON and advisories.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Network => "NETWORK",
            Cause::LocalOverrun { .. } => "LOCAL_OVERRUN",
            Cause::Mixed { .. } => "MIXED",
        }
    }
}

/// A loss, or what cannot be told from one; a value beside the messages, in stream order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Whose data.
    pub publisher: Publisher,
    /// What is known of it.
    pub what: LossScope,
    /// Why.
    pub reason: Reason,
    /// Whose fault, as far as known.
    pub cause: Cause,
    /// When it was settled.
    pub at: WallTime,
}

/// What a [`Loss`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossScope {
    /// Messages of one subject that the publisher sent and this peer will not deliver: *lost*.
    Messages {
        /// The subject.
        subject: Subject,
        /// The lowest missing number.
        first: Seq,
        /// The highest missing number.
        last: Seq,
        /// How many.
        count: Count,
    },
    /// Datagrams whose content is not known: *unverified* until a later message of a subject proves what was in them.
    /// A large message without a number (A8) that will never be whole is told by the datagram in which it began.
    Datagrams {
        /// The first datagram.
        first: Dseq,
        /// The last datagram.
        last: Dseq,
        /// Messages of any subject in them, subscribed or not, that nothing has explained yet. Exact, unless a loss
        /// told before may lie in these or in other datagrams.
        messages: Count,
    },
    /// The publisher fell silent: whether anything exists after this datagram cannot be known.
    /// With [`Reason::Silent`] it may be heard again; with [`Reason::Crashed`] it will not.
    Tail {
        /// The highest datagram known.
        after: Dseq,
    },
    /// Messages directed to this peer alone (replies, polls): the inbox loss of `show loss`.
    Inbox {
        /// How many. Exact.
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
