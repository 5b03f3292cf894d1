//! Frames from a client to its peer.

use super::lent_payload::LentPayload;
use super::limits::VERSION;
#[cfg(doc)]
use super::peer_frame::PeerFrame;
use crate::listener::codec::{FrameError, FrameReader, put_bytes8, put_frame, truncate255};
use crate::listener::event::EventRequest;
use crate::listener::publish_run::{PUBLISH_RUN, PublishRun};
use crate::listener::session_request::ReceiverCondition;
use crate::listener::stream::StreamRequest;
use crate::listener::value::{content, decode_code, encode_code, put_content, without_payload};
use crate::message::{DeliveryMode, Message, PeerRef, Queue, SubId};
use crate::subject::{Pattern, Subject};
use bytes::{BufMut, Bytes, BytesMut};

const HELLO: u8 = 0x01;
const PUBLISH: u8 = 0x02;
const SUBSCRIBE: u8 = 0x03;
const UNSUBSCRIBE: u8 = 0x04;
const SHOW: u8 = 0x05;
const FLUSH: u8 = 0x06;
const HISTORY: u8 = 0x07;
const AWAIT: u8 = 0x09;
const EVENTS: u8 = 0x0a;
const STREAMS: u8 = 0x0b;
const SHARED_MEMORY: u8 = 0x0c;
const PUBLISH_BUFFER: u8 = 0x0d;
const BUFFERS_LOST: u8 = 0x0e;

/// SUBSCRIBE: the peer announces publishers to the subscription.
const FLAG_DISCOVERY: u8 = 0x01;

/// First bytes after the kind of a client's first frame. They distinguish another program from an old version of
/// seqcast.
const MAGIC: u32 = 0x5343_4c50; // "SCLP"

const MODES: [(u8, Option<DeliveryMode>); 3] =
    [(0, None), (1, Some(DeliveryMode::Repair)), (2, Some(DeliveryMode::Live))];

const CONDITIONS: [(u8, ReceiverCondition); 2] = [(0, ReceiverCondition::Absent), (1, ReceiverCondition::Present)];

/// A frame from a client to its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFrame {
    /// The first frame: the client's name and protocol version.
    Hello {
        /// The client's protocol version.
        version: u16,
        /// Name of the client, for logs and `show clients`; at most 255 bytes, may be empty.
        name: String,
    },
    /// Publishes a message. The peer answers only if it refuses the message.
    Publish(Message),
    /// Publishes a message whose payload is in a buffer of the client.
    PublishBuffer {
        /// The message, without its payload.
        message: Message,
        /// The buffer that it is in.
        payload: LentPayload,
    },
    /// Publishes messages, as if each had its own frame.
    PublishRun(PublishRun),
    /// Begins a subscription; answered by [`PeerFrame::Subscribed`] or [`PeerFrame::Refused`].
    Subscribe {
        /// The client's number for the subscription.
        sub: SubId,
        /// Pattern of the subjects to match.
        pattern: Pattern,
        /// Queue group of the subscription, if it is a member of one.
        queue: Option<Queue>,
        /// Delivery mode after a loss; `None` for the mode in the peer's configuration (`delivery`).
        mode: Option<DeliveryMode>,
        /// True if the peer announces publishers with [`PeerFrame::Discovered`].
        wants_discovery: bool,
    },
    /// Ends a subscription without an answer. Messages already on their way still arrive.
    Unsubscribe {
        /// Number of the subscription.
        sub: SubId,
    },
    /// Requests a report; answered by [`PeerFrame::Shown`].
    Show {
        /// The client's number for the query.
        id: u32,
        /// Query in JSON: `{"show": "loss"}`.
        query: Bytes,
    },
    /// Requests a notification once all earlier messages have left the peer's socket.
    Flush {
        /// Token that [`PeerFrame::Flushed`] returns.
        token: u64,
    },
    /// Queries the history of a peer; answered by [`PeerFrame::Answered`], in one or more parts.
    History {
        /// The client's number for the query.
        id: u64,
        /// Timeout for the answer, in milliseconds.
        timeout_ms: u32,
        /// Peer to query: this peer or another one.
        peer: PeerRef,
        /// Query in its wire format (docs/wire.md, "History service").
        question: Bytes,
    },
    /// Requests [`PeerFrame::Awaited`] once the condition holds, unless the timeout expires first.
    Await {
        /// Subscription that is notified. The wait ends with the subscription.
        sub: SubId,
        /// Condition to wait for.
        condition: ReceiverCondition,
        /// Timeout, in milliseconds.
        timeout_ms: u32,
        /// Subject of the condition.
        subject: Subject,
    },
    /// Registers or queries events; answered by [`PeerFrame::Events`].
    Events {
        /// The client's number for the request.
        id: u64,
        /// The request.
        request: EventRequest,
    },
    /// Sends a request about streams and their consumers; answered by [`PeerFrame::Streams`].
    Streams {
        /// The client's number for the request.
        id: u64,
        /// The request.
        request: StreamRequest,
    },
    /// Requests shared memory for all further frames; answered by [`PeerFrame::Segment`], before which the client sends
    /// nothing else.
    SharedMemory,
    /// The client lacks a buffer of the peer, which then sends the descriptors of its buffers again.
    BuffersLost,
}

impl ClientFrame {
    /// Returns the size in bytes of the payload that is in a buffer.
    pub(crate) fn lent_bytes(&self) -> usize {
        match self {
            ClientFrame::PublishBuffer { payload, .. } => payload.bytes,
            _ => 0,
        }
    }

    /// Appends the frame, with its length, to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        put_frame(out, |out| match self {
            ClientFrame::PublishRun(run) => run.put(out),
            ClientFrame::Hello { version, name } => {
                out.put_u8(HELLO);
                out.put_u32(MAGIC);
                out.put_u16(*version);
                put_bytes8(out, truncate255(name).as_bytes());
            }
            ClientFrame::Publish(message) => {
                out.put_u8(PUBLISH);
                out.put_u8(0);
                put_content(out, message);
            }
            ClientFrame::PublishBuffer { message, payload } => {
                out.put_u8(PUBLISH_BUFFER);
                out.put_u8(0);
                payload.put(out);
                put_content(out, message);
            }
            ClientFrame::Subscribe { sub, pattern, queue, mode, wants_discovery } => {
                out.put_u8(SUBSCRIBE);
                out.put_u32(sub.0);
                put_bytes8(out, pattern.as_str().as_bytes());
                out.put_u8(encode_code(&MODES, mode));
                out.put_u8(if *wants_discovery { FLAG_DISCOVERY } else { 0 });
                put_bytes8(out, queue.as_ref().map_or("", |queue| queue.as_str()).as_bytes());
            }
            ClientFrame::Unsubscribe { sub } => {
                out.put_u8(UNSUBSCRIBE);
                out.put_u32(sub.0);
            }
            ClientFrame::Show { id, query } => {
                out.put_u8(SHOW);
                out.put_u32(*id);
                out.put_slice(query);
            }
            ClientFrame::Flush { token } => {
                out.put_u8(FLUSH);
                out.put_u64(*token);
            }
            ClientFrame::History { id, timeout_ms, peer, question } => {
                out.put_u8(HISTORY);
                out.put_u64(*id);
                out.put_u32(*timeout_ms);
                put_bytes8(out, peer.to_string().as_bytes());
                out.put_slice(question);
            }
            ClientFrame::Await { sub, condition, timeout_ms, subject } => {
                out.put_u8(AWAIT);
                out.put_u32(sub.0);
                out.put_u8(encode_code(&CONDITIONS, condition));
                out.put_u32(*timeout_ms);
                put_bytes8(out, subject.as_bytes());
            }
            ClientFrame::Events { id, request } => {
                out.put_u8(EVENTS);
                out.put_u64(*id);
                request.put(out);
            }
            ClientFrame::Streams { id, request } => {
                out.put_u8(STREAMS);
                out.put_u64(*id);
                request.put(out);
            }
            ClientFrame::SharedMemory => out.put_u8(SHARED_MEMORY),
            ClientFrame::BuffersLost => out.put_u8(BUFFERS_LOST),
        });
    }

    /// Reads one frame, without its length. Subjects, headers and payloads are slices of it.
    ///
    /// # Errors
    /// Returns the error of the frame. A HELLO of another version is read only up to its version.
    pub fn decode(frame: Bytes) -> Result<ClientFrame, FrameError> {
        let mut reader = FrameReader::new(frame);
        let frame = match reader.u8()? {
            HELLO => {
                if reader.u32()? != MAGIC {
                    return Err(FrameError::Value("magic"));
                }
                let version = reader.u16()?;
                if version != VERSION {
                    return Ok(ClientFrame::Hello { version, name: String::new() });
                }
                ClientFrame::Hello { version, name: reader.text8("name")? }
            }
            PUBLISH => {
                if reader.u8()? != 0 {
                    return Err(FrameError::Value("flags"));
                }
                ClientFrame::Publish(content(&mut reader, false)?)
            }
            PUBLISH_BUFFER => {
                if reader.u8()? != 0 {
                    return Err(FrameError::Value("flags"));
                }
                let payload = LentPayload::read(&mut reader)?;
                ClientFrame::PublishBuffer { message: without_payload(content(&mut reader, false)?)?, payload }
            }
            PUBLISH_RUN => ClientFrame::PublishRun(PublishRun::decode(reader.rest())?),
            SUBSCRIBE => ClientFrame::Subscribe {
                sub: SubId(reader.u32()?),
                pattern: pattern(&mut reader)?,
                mode: decode_code(&MODES, reader.u8()?, "mode")?,
                wants_discovery: reader.flag(FLAG_DISCOVERY)?,
                queue: queue(&mut reader)?,
            },
            UNSUBSCRIBE => ClientFrame::Unsubscribe { sub: SubId(reader.u32()?) },
            SHOW => ClientFrame::Show { id: reader.u32()?, query: reader.rest() },
            FLUSH => ClientFrame::Flush { token: reader.u64()? },
            HISTORY => ClientFrame::History {
                id: reader.u64()?,
                timeout_ms: reader.u32()?,
                peer: reader.text8("peer")?.parse()?,
                question: reader.rest(),
            },
            AWAIT => ClientFrame::Await {
                sub: SubId(reader.u32()?),
                condition: decode_code(&CONDITIONS, reader.u8()?, "condition")?,
                timeout_ms: reader.u32()?,
                subject: Subject::from_bytes(reader.bytes8()?)?,
            },
            EVENTS => ClientFrame::Events { id: reader.u64()?, request: EventRequest::read(&mut reader)? },
            STREAMS => ClientFrame::Streams { id: reader.u64()?, request: StreamRequest::read(&mut reader)? },
            SHARED_MEMORY => ClientFrame::SharedMemory,
            BUFFERS_LOST => ClientFrame::BuffersLost,
            kind => return Err(FrameError::Kind(kind)),
        };
        reader.end()?;
        Ok(frame)
    }
}

fn pattern(reader: &mut FrameReader) -> Result<Pattern, FrameError> {
    Ok(reader.text8("pattern")?.parse()?)
}

/// Reads the name of a queue group; an empty name yields `None`.
fn queue(reader: &mut FrameReader) -> Result<Option<Queue>, FrameError> {
    let name = reader.bytes8()?;
    if name.is_empty() { Ok(None) } else { Ok(Some(Queue::from_bytes(name)?)) }
}
