//! Refused requests in the frames of the local protocol.

use crate::listener::codec::{FrameError, FrameReader, put_bytes8, truncate255};
use crate::message::{Refusal, SubId};
use bytes::{BufMut, BytesMut};
use std::fmt;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRefusal {
    /// The subscription in question; `None` for a PUBLISH.
    pub sub: Option<SubId>,
    /// Reason of the refusal.
    pub reason: RefusalReason,
}

/// Reason why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The message is too large.
    MessageTooLarge {
        /// Its size in bytes.
        bytes: u64,
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// The client, or all clients together, have too many subscriptions.
    TooManySubscriptions {
        /// The limit.
        max: u64,
    },
    /// The certificate of the peer's host does not permit to publish on this subject.
    PublishDenied(String),
    /// The certificate of the peer's host does not permit to subscribe to this pattern.
    SubscribeDenied(String),
    /// Clients cannot publish on this subject; holds the reason for people.
    Subject(String),
    /// A member of a queue group cannot be in mode `live`.
    QueueLive,
    /// A member of a queue group cannot request history or announcements of publishers.
    QueueDiscovery,
    /// The payload is a buffer, and the peer has no room for its descriptor or its mapping.
    BufferLost,
    /// The peer is stopping.
    Stopping,
}

impl From<&Refusal> for RefusalReason {
    fn from(refusal: &Refusal) -> RefusalReason {
        match refusal {
            Refusal::MessageTooLarge { bytes, bytes_max } => {
                RefusalReason::MessageTooLarge { bytes: *bytes as u64, bytes_max: *bytes_max as u64 }
            }
            Refusal::TooManySubscriptions { max } => RefusalReason::TooManySubscriptions { max: *max as u64 },
            Refusal::TooManyGlobSteps { .. } => {
                unreachable!("only clients of listeners have globs")
            }
            Refusal::PublishDenied(subject) => RefusalReason::PublishDenied(subject.to_string()),
            Refusal::SubscribeDenied(pattern) => RefusalReason::SubscribeDenied(pattern.to_string()),
            Refusal::Subject(error) => RefusalReason::Subject(error.to_string()),
            Refusal::QueueLive => RefusalReason::QueueLive,
            Refusal::QueueDiscovery => RefusalReason::QueueDiscovery,
            Refusal::Stopping => RefusalReason::Stopping,
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusalReason::MessageTooLarge { bytes, bytes_max } => {
                write!(f, "the message has {bytes} bytes; the limit of the peer is {bytes_max} (message-size)")
            }
            RefusalReason::TooManySubscriptions { max } => {
                write!(f, "too many subscriptions: the limit of {max} is reached; end some, or subscribe to a pattern")
            }
            RefusalReason::PublishDenied(subject) => write!(
                f,
                "the certificate of this host does not let its programs publish on {subject}; sign a new request of this \
                 host with a pattern for it (seqcast realm sign)"
            ),
            RefusalReason::SubscribeDenied(pattern) => write!(
                f,
                "the certificate of this host does not let its programs subscribe to {pattern}; subscribe to less (seqcast \
                 realm show), or sign a new request of this host (seqcast realm sign)"
            ),
            RefusalReason::Subject(reason) => reason.fmt(f),
            RefusalReason::QueueLive => write!(
                f,
                "a member of a queue group cannot be in mode live, because missing messages must be repaired to find its \
                 share: leave out the mode, or the queue group"
            ),
            RefusalReason::QueueDiscovery => write!(
                f,
                "a member of a queue group receives its share of new messages only: leave out history and confirmation, or \
                 the queue group"
            ),
            RefusalReason::BufferLost => write!(
                f,
                "the peer has no descriptor or no memory left for a large message: raise its limit of open files (ulimit \
                 -n)"
            ),
            RefusalReason::Stopping => write!(f, "the peer is stopping"),
        }
    }
}

/// Appends the body of a REFUSED frame.
pub(crate) fn put_refusal(out: &mut BytesMut, refusal: &RequestRefusal) {
    out.put_u8(u8::from(refusal.sub.is_some()));
    out.put_u32(refusal.sub.map_or(0, |sub| sub.0));
    match &refusal.reason {
        RefusalReason::MessageTooLarge { bytes, bytes_max } => {
            out.put_u8(0);
            out.put_u64(*bytes);
            out.put_u64(*bytes_max);
        }
        RefusalReason::TooManySubscriptions { max } => {
            out.put_u8(1);
            out.put_u64(*max);
        }
        RefusalReason::Subject(reason) => {
            out.put_u8(2);
            put_bytes8(out, truncate255(reason).as_bytes());
        }
        RefusalReason::Stopping => out.put_u8(3),
        RefusalReason::QueueLive => out.put_u8(4),
        RefusalReason::QueueDiscovery => out.put_u8(5),
        RefusalReason::PublishDenied(subject) => {
            out.put_u8(6);
            put_bytes8(out, truncate255(subject).as_bytes());
        }
        RefusalReason::SubscribeDenied(pattern) => {
            out.put_u8(7);
            put_bytes8(out, truncate255(pattern).as_bytes());
        }
        RefusalReason::BufferLost => out.put_u8(8),
    }
}

/// Reads the body of a REFUSED frame.
pub(crate) fn refusal(reader: &mut FrameReader) -> Result<RequestRefusal, FrameError> {
    let has_sub = reader.flag(1)?;
    let sub = SubId(reader.u32()?);
    let reason = match reader.u8()? {
        0 => RefusalReason::MessageTooLarge { bytes: reader.u64()?, bytes_max: reader.u64()? },
        1 => RefusalReason::TooManySubscriptions { max: reader.u64()? },
        2 => RefusalReason::Subject(reader.text8("text")?),
        3 => RefusalReason::Stopping,
        4 => RefusalReason::QueueLive,
        5 => RefusalReason::QueueDiscovery,
        6 => RefusalReason::PublishDenied(reader.text8("text")?),
        7 => RefusalReason::SubscribeDenied(reader.text8("text")?),
        8 => RefusalReason::BufferLost,
        _ => return Err(FrameError::Value("reason")),
    };
    Ok(RequestRefusal { sub: has_sub.then_some(sub), reason })
}
