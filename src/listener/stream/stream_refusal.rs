//! Refusals of requests about streams.

use super::fields::{missed_range, put_missed};
use crate::event::stream::store::MissedRange;
use crate::listener::codec::{FrameError, FrameReader, put_bytes32};
use bytes::{BufMut, BytesMut};
use std::fmt;

/// Reason why a request about streams was refused. A refused request has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRefusal {
    /// Kind of refusal, for programs.
    pub kind: StreamRefusalKind,
    /// Text for people: the problem and its remedy.
    pub text: String,
}

/// Kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamRefusalKind {
    /// The request can never succeed.
    Invalid,
    /// The store or the journal cannot be used.
    Unavailable,
    /// Too many requests are pending, or the stream is full. The client can retry the same request later.
    Busy,
    /// The peer is stopping.
    Stopping,
    /// The peer serves no streams.
    NotServed,
    /// The peer serves no stream of this name.
    UnknownStream,
    /// The consumer is not registered.
    NotRegistered,
    /// The consumer has lapsed. It must register again before it can continue.
    Lapsed(MissedRange),
}

impl fmt::Display for StreamRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl std::error::Error for StreamRefusal {}

impl StreamRefusal {
    /// Returns a refusal of this kind.
    pub fn new(kind: StreamRefusalKind, text: impl Into<String>) -> StreamRefusal {
        StreamRefusal { kind, text: text.into() }
    }

    /// Returns the refusal for too many pending requests.
    pub fn busy() -> StreamRefusal {
        let text = "too many requests about streams are pending at the peer: wait for answers before sending more";
        StreamRefusal::new(StreamRefusalKind::Busy, text)
    }

    /// Returns the refusal of a peer that is stopping.
    pub fn stopping() -> StreamRefusal {
        StreamRefusal::new(StreamRefusalKind::Stopping, "the peer is stopping")
    }

    /// Returns the refusal of a peer that serves no streams.
    pub fn not_served() -> StreamRefusal {
        let text = "the peer serves no event streams: start it with --ftn18, or set ftn18";
        StreamRefusal::new(StreamRefusalKind::NotServed, text)
    }

    /// Returns the refusal of a peer whose build has no streams.
    pub fn absent() -> StreamRefusal {
        StreamRefusal::new(StreamRefusalKind::NotServed, "the peer was built without the feature 'streams'")
    }
}

/// Appends a refusal.
pub(super) fn put_refusal(out: &mut BytesMut, StreamRefusal { kind, text }: &StreamRefusal) {
    put_refusal_kind(out, *kind);
    put_bytes32(out, text.as_bytes());
}

/// Reads a refusal.
pub(super) fn refusal(reader: &mut FrameReader) -> Result<StreamRefusal, FrameError> {
    let kind = refusal_kind(reader)?;
    let text = String::from_utf8(reader.bytes32()?.to_vec()).map_err(|_| FrameError::Value("text"))?;
    Ok(StreamRefusal { kind, text })
}

fn put_refusal_kind(out: &mut BytesMut, kind: StreamRefusalKind) {
    use StreamRefusalKind as Kind;
    out.put_u8(match kind {
        Kind::Invalid => 0,
        Kind::Unavailable => 1,
        Kind::Busy => 2,
        Kind::Stopping => 3,
        Kind::NotServed => 4,
        Kind::UnknownStream => 5,
        Kind::NotRegistered => 6,
        Kind::Lapsed(_) => 7,
    });
    if let Kind::Lapsed(missed) = kind {
        put_missed(out, missed);
    }
}

fn refusal_kind(reader: &mut FrameReader) -> Result<StreamRefusalKind, FrameError> {
    use StreamRefusalKind as Kind;
    Ok(match reader.u8()? {
        0 => Kind::Invalid,
        1 => Kind::Unavailable,
        2 => Kind::Busy,
        3 => Kind::Stopping,
        4 => Kind::NotServed,
        5 => Kind::UnknownStream,
        6 => Kind::NotRegistered,
        7 => Kind::Lapsed(missed_range(reader)?),
        _ => return Err(FrameError::Value("reason")),
    })
}
