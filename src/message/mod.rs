//! Messages, deliveries and losses, and the ids in them.
//!
//! ```
//! use seqcast::message::{Headers, Message};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let headers = Headers::from_pairs([("unit", "celsius")])?;
//! let message = Message { headers, ..Message::new("plant.7.temperature".parse()?, "21.5") };
//! assert_eq!(message.headers.iter().collect::<Vec<_>>(), [("unit", "celsius")]);
//! // Payload, headers and reply subject count against the size limit.
//! assert_eq!(message.body_bytes(), "21.5".len() + "unit: celsius\r\n".len());
//! # Ok(())
//! # }
//! ```

mod delivery;
mod headers;
mod loss;
mod refusal;
mod subscription_filter;

pub use delivery::{Delivery, DeliveryMode, DeliveryRef, MessageOrigin, Verdict};
pub use headers::{HeaderError, Headers};
pub use loss::{Cause, Count, Loss, LossScope, MissingDatagrams, Reason};
pub use refusal::{QuestionFailure, Refusal};
pub use subscription_filter::{Queue, QueueError, SubscriptionFilter};

use crate::subject::Subject;
use crate::time::WallTime;
use bytes::Bytes;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Size limit of a message (payload, headers and reply subject together) that every peer accepts: 8 MiB (A12).
/// Configuration may lower it, never raise it.
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

/// Number of a datagram, counted from 1 for each peer, epoch and group, without gaps or reuse. 0 means "before the
/// first".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dseq(pub u64);

impl Dseq {
    /// Returns the next number. It cannot overflow: 2^64 datagrams last 58,000 years at 10 million per second.
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

/// Id of a program attached to this peer. The shell assigns the id and never reuses it while the peer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// Id of a subscription. Its client chooses the id, which is unique within the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubId(pub u32);

/// One matching subscription, to which a message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The client.
    pub client: ClientId,
    /// The client's id of the subscription.
    pub sub: SubId,
}

/// All subscriptions that match one subject. The messages of a run share one list.
pub type Targets = Arc<[Target]>;

/// Time and offset that the first message of a frame carries in addition to its number (seed 002; A11).
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
    /// Subject on which the message is published.
    pub subject: Subject,
    /// Subject to which an answer is requested, if any.
    pub reply: Option<Subject>,
    /// Header fields.
    pub headers: Headers,
    /// The content, opaque to the bus.
    pub payload: Bytes,
    /// True for a journalled event, false for a volatile message.
    pub event: bool,
}

/// A borrowed view of a message: nothing is copied or reference-counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRef<'a> {
    /// Subject on which the message is published.
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

    /// Returns whether the message has a reply subject or headers.
    #[inline]
    pub fn has_meta(&self) -> bool {
        self.reply.is_some() || !self.headers.is_empty()
    }

    /// Returns whether the message consists only of a subject and a payload.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.event && !self.has_meta()
    }

    /// Returns the size of payload, headers and reply subject in bytes.
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

    /// Returns the size in bytes that counts against the message limit: payload, headers and reply subject.
    pub fn body_bytes(&self) -> usize {
        MessageRef::from(self).body_bytes()
    }
}

/// Identity of a publisher: a name for people, the epoch for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publisher {
    /// The configured name, or `None` until the publisher has announced it.
    pub name: Option<PeerName>,
    /// Epoch of the publisher.
    pub epoch: Epoch,
    /// Small number that this peer assigned to the publisher, from 1 in the order of first contact, and never reuses. 0
    /// is this peer. 0 without a name is a publisher that this peer does not know.
    pub uid: u32,
}

impl fmt::Display for Publisher {
    /// Formats the publisher as in the seed's `show loss`: the user part of the name, a dot and the number, as in
    /// `B.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.name.as_ref().map_or("?", |n| n.as_str().split('.').next().unwrap_or("?"));
        write!(f, "{user}.{}", self.uid)
    }
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
    fn headers_keep_order_and_refuse_malformed_lines() {
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
