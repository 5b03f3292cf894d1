//! Frames of the local protocol, version 6: both directions, encoding and decoding. `docs/local-protocol.md`
//! describes them for people.
//!
//! ```text
//!  0               4       5
//! +---------------+-------+----------------------------+
//! |  length u32   | kind  |  body, `length` - 1 bytes  |   numbers are big-endian
//! +---------------+-------+----------------------------+
//! ```

use crate::delivery::{Deliveries, RunRef};
use crate::event::refusal::EventRefusal;
use crate::listener::codec::{FrameError, FrameReader, cut255, put_bytes8};
use crate::listener::event::{EventAnswer, EventRequest};
use crate::listener::publish_run::{PUBLISH_RUN, PublishRun};
use crate::listener::refusal::{RequestRefusal, put_refused, refused};
use crate::listener::session_request::ReceiverCondition;
use crate::listener::stream::{StreamAnswer, StreamRefusal, StreamRequest};
use crate::listener::value::{
    code, content, decoded, delivery, delivery_body, epoch, loss, publisher, put_content, put_loss, put_publisher,
    put_run, run,
};
use crate::message::{
    Delivery, DeliveryMode, Epoch, Loss, MESSAGE_BYTES_MAX, Message, PeerName, PeerRef, Publisher, QuestionFailure,
    Queue, SubId,
};
use crate::subject::{Pattern, SUBJECT_BYTES_MAX, Subject};
use bytes::{BufMut, Bytes, BytesMut};

/// Version of the local protocol that this build implements. The peer and the client must have the same version.
pub const VERSION: u16 = 6;

/// Maximum size of a frame, in bytes after the length field: the largest message and 1 MiB for all other fields.
pub const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 1024 * 1024;

/// Maximum number of subscriptions in one MESSAGE, MESSAGE RUN, LOSS or DROPPED frame. Further subscriptions go into
/// further frames.
pub const FRAME_SUBS_MAX: usize = 4096;

const _: () = assert!(
    FRAME_SUBS_MAX * 12 + 2 * SUBJECT_BYTES_MAX + PeerName::BYTES_MAX + 256 < FRAME_BYTES_MAX - MESSAGE_BYTES_MAX,
    "a full list of subscriptions must fit beside the largest message"
);

/// Bytes of the length field.
pub(crate) const LENGTH_BYTES: usize = 4;

const HELLO: u8 = 0x01;
const PUBLISH: u8 = 0x02;
const SUBSCRIBE: u8 = 0x03;
const UNSUBSCRIBE: u8 = 0x04;
const SHOW: u8 = 0x05;
const FLUSH: u8 = 0x06;
const ASK: u8 = 0x07;
const AWAIT: u8 = 0x09;
const EVENTS: u8 = 0x0a;
const STREAMS: u8 = 0x0b;
const WELCOME: u8 = 0x81;
const MESSAGE: u8 = 0x82;
const LOSS: u8 = 0x83;
const DROPPED: u8 = 0x84;
const REFUSED: u8 = 0x85;
const SHOWN: u8 = 0x86;
const FLUSHED: u8 = 0x87;
const BYE: u8 = 0x88;
const SUBSCRIBED: u8 = 0x89;
const ANSWERED: u8 = 0x8a;
const KNOWN: u8 = 0x8b;
const MESSAGE_RUN: u8 = 0x8c;
const AWAITED: u8 = 0x8d;
const EVENTS_ANSWER: u8 = 0x8e;
const STREAMS_ANSWER: u8 = 0x8f;

/// SUBSCRIBE: the peer announces publishers to the subscription.
const FLAG_NEWS: u8 = 0x01;

/// First bytes of a client's first frame. They distinguish an unrelated program from an old version of the protocol.
const MAGIC: u32 = 0x5343_4c50; // "SCLP"

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
        /// True if the peer announces publishers with [`PeerFrame::Known`].
        news: bool,
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
    Ask {
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
        what: ReceiverCondition,
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
}

/// A frame from a peer to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerFrame {
    /// The answer to HELLO.
    Welcome(Welcome),
    /// Confirms that the subscription is active. It covers every message that this peer receives from now on.
    Subscribed {
        /// Number of the subscription.
        sub: SubId,
    },
    /// A message for these subscriptions of the client.
    Message {
        /// Subscriptions: at least one, at most [`FRAME_SUBS_MAX`].
        subs: Vec<SubId>,
        /// The message.
        delivery: Delivery,
    },
    /// Messages of one subject for these subscriptions of the client. Their sequence numbers, if present, are
    /// consecutive.
    MessageRun {
        /// Subscriptions: at least one, at most [`FRAME_SUBS_MAX`].
        subs: Vec<SubId>,
        /// The messages. Only messages that arrived as a run can be encoded.
        deliveries: Deliveries,
    },
    /// A loss that concerns these subscriptions of the client.
    Loss {
        /// Subscriptions: at least one, at most [`FRAME_SUBS_MAX`].
        subs: Vec<SubId>,
        /// The loss.
        loss: Loss,
    },
    /// Marks the position where the peer dropped messages or loss reports, because the client read too slowly.
    Dropped {
        /// Pairs of a subscription and its number of drops; at most [`FRAME_SUBS_MAX`].
        counts: Vec<(SubId, u64)>,
    },
    /// Refuses a request. The connection stays open.
    Refused(RequestRefusal),
    /// The answer to SHOW.
    Shown {
        /// Number of the query.
        id: u32,
        /// The answer, in JSON.
        answer: Bytes,
    },
    /// Confirms that all messages published before FLUSH have left the peer's socket.
    Flushed {
        /// Token of the request.
        token: u64,
    },
    /// A part of the answer to ASK, or a failure.
    Answered {
        /// Number of the query.
        id: u64,
        /// The part in its wire format, or the reason of the failure. The part itself marks whether it is the last
        /// one.
        answer: Result<Bytes, QuestionFailure>,
    },
    /// Announces a publisher of which the subscription is not guaranteed to receive every message. The frame precedes
    /// all messages of that publisher.
    Known {
        /// Subscription that requested publisher announcements.
        sub: SubId,
        /// The publisher. `None` follows the last publisher that was known when the subscription was made.
        publisher: Option<Publisher>,
    },
    /// Reports that the condition of AWAIT holds.
    Awaited {
        /// Number of the subscription.
        sub: SubId,
    },
    /// The answer to EVENTS: a confirmation that they are stored, one or more parts of a query's result, or a
    /// refusal.
    Events {
        /// The number of the request.
        id: u64,
        /// The answer, or a part of it.
        answer: Result<EventAnswer, EventRefusal>,
    },
    /// The answer to STREAMS, or a refusal.
    Streams {
        /// The number of the request.
        id: u64,
        /// The answer.
        answer: Result<StreamAnswer, StreamRefusal>,
    },
    /// Ends the connection.
    Bye {
        /// Reason, for programs.
        reason: ByeReason,
        /// Reason, for people; at most 255 bytes.
        text: String,
    },
}

/// The peer's side of the greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The peer's protocol version: [`VERSION`].
    pub version: u16,
    /// The peer's name.
    pub peer: PeerName,
    /// The peer's epoch when the connection began.
    pub epoch: Epoch,
    /// Number of the group, as in every datagram.
    pub group: u16,
    /// The UDP port of the group.
    pub port: u16,
    /// Number that the peer assigned to this client.
    pub client: u32,
    /// Maximum size of a message that can be published, in bytes of payload, headers and reply subject.
    pub message_bytes_max: u32,
    /// Version of the peer's program.
    pub software: String,
}

/// Reason why the peer ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByeReason {
    /// The peer stops.
    Stopping,
    /// The client sent bytes that cannot be decoded.
    Malformed,
    /// The client sent a frame that is not allowed at this point.
    ProtocolViolation,
    /// The client has another protocol version.
    Incompatible,
    /// The peer has too many clients.
    TooManyClients,
}

const MODES: [(u8, Option<DeliveryMode>); 3] =
    [(0, None), (1, Some(DeliveryMode::Repair)), (2, Some(DeliveryMode::Live))];

const AWAITS: [(u8, ReceiverCondition); 2] = [(0, ReceiverCondition::Absent), (1, ReceiverCondition::Present)];

/// Codes of failures. The code 0 marks a part of an answer.
const UNANSWERED: [(u8, QuestionFailure); 6] = [
    (1, QuestionFailure::UnknownPeer),
    (2, QuestionFailure::Ambiguous),
    (3, QuestionFailure::Gone),
    (4, QuestionFailure::Timeout),
    (5, QuestionFailure::TooMany),
    (6, QuestionFailure::Malformed),
];

const BYE_REASONS: [(u8, ByeReason); 5] = [
    (0, ByeReason::Stopping),
    (1, ByeReason::Malformed),
    (2, ByeReason::ProtocolViolation),
    (3, ByeReason::Incompatible),
    (4, ByeReason::TooManyClients),
];

impl ClientFrame {
    /// Appends the frame, with its length, to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        framed(out, |out| match self {
            ClientFrame::PublishRun(run) => run.put(out),
            ClientFrame::Hello { version, name } => {
                out.put_u8(HELLO);
                out.put_u32(MAGIC);
                out.put_u16(*version);
                put_bytes8(out, cut255(name).as_bytes());
            }
            ClientFrame::Publish(message) => {
                out.put_u8(PUBLISH);
                out.put_u8(0);
                put_content(out, message);
            }
            ClientFrame::Subscribe { sub, pattern, queue, mode, news } => {
                out.put_u8(SUBSCRIBE);
                out.put_u32(sub.0);
                put_bytes8(out, pattern.as_str().as_bytes());
                out.put_u8(code(&MODES, mode));
                out.put_u8(if *news { FLAG_NEWS } else { 0 });
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
            ClientFrame::Ask { id, timeout_ms, peer, question } => {
                out.put_u8(ASK);
                out.put_u64(*id);
                out.put_u32(*timeout_ms);
                put_bytes8(out, peer.to_string().as_bytes());
                out.put_slice(question);
            }
            ClientFrame::Await { sub, what, timeout_ms, subject } => {
                out.put_u8(AWAIT);
                out.put_u32(sub.0);
                out.put_u8(code(&AWAITS, what));
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
        });
    }

    /// Reads one frame, without its length. Subjects, headers and payloads are slices of it.
    ///
    /// # Errors
    /// Names the rule that the bytes break. A HELLO of another version is read only up to its version.
    pub fn decode(frame: Bytes) -> Result<ClientFrame, FrameError> {
        let mut reader = FrameReader::new(frame);
        let read = match reader.u8()? {
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
            PUBLISH_RUN => ClientFrame::PublishRun(PublishRun::decode(reader.rest())?),
            SUBSCRIBE => ClientFrame::Subscribe {
                sub: SubId(reader.u32()?),
                pattern: pattern(&mut reader)?,
                mode: decoded(&MODES, reader.u8()?, "mode")?,
                news: flag(&mut reader, FLAG_NEWS)?,
                queue: queue(&mut reader)?,
            },
            UNSUBSCRIBE => ClientFrame::Unsubscribe { sub: SubId(reader.u32()?) },
            SHOW => ClientFrame::Show { id: reader.u32()?, query: reader.rest() },
            FLUSH => ClientFrame::Flush { token: reader.u64()? },
            ASK => ClientFrame::Ask {
                id: reader.u64()?,
                timeout_ms: reader.u32()?,
                peer: reader.text8("peer")?.parse()?,
                question: reader.rest(),
            },
            AWAIT => ClientFrame::Await {
                sub: SubId(reader.u32()?),
                what: decoded(&AWAITS, reader.u8()?, "what")?,
                timeout_ms: reader.u32()?,
                subject: Subject::from_bytes(reader.bytes8()?)?,
            },
            EVENTS => ClientFrame::Events { id: reader.u64()?, request: EventRequest::read(&mut reader)? },
            STREAMS => ClientFrame::Streams { id: reader.u64()?, request: StreamRequest::read(&mut reader)? },
            kind => return Err(FrameError::Kind(kind)),
        };
        reader.end()?;
        Ok(read)
    }
}

impl PeerFrame {
    /// Appends the frame, with its length, to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            PeerFrame::Message { subs, delivery } => {
                let body = delivery_body(delivery);
                put_message_head(out, subs, body.len());
                out.put_slice(&body);
            }
            PeerFrame::MessageRun { subs, deliveries } => {
                put_message_run(out, subs, &deliveries.run().expect("only runs are put there"));
            }
            PeerFrame::Loss { subs, loss } => framed(out, |out| {
                out.put_u8(LOSS);
                put_subs(out, subs);
                put_loss(out, loss);
            }),
            PeerFrame::Welcome(welcome) => framed(out, |out| put_welcome(out, welcome)),
            PeerFrame::Refused(refused) => framed(out, |out| {
                out.put_u8(REFUSED);
                put_refused(out, refused);
            }),
            PeerFrame::Dropped { counts } => framed(out, |out| {
                out.put_u8(DROPPED);
                out.put_u32(u32::try_from(counts.len()).expect("at most FRAME_SUBS_MAX"));
                for (sub, count) in counts {
                    out.put_u32(sub.0);
                    out.put_u64(*count);
                }
            }),
            PeerFrame::Subscribed { sub } => framed(out, |out| {
                out.put_u8(SUBSCRIBED);
                out.put_u32(sub.0);
            }),
            PeerFrame::Awaited { sub } => framed(out, |out| {
                out.put_u8(AWAITED);
                out.put_u32(sub.0);
            }),
            PeerFrame::Shown { id, answer } => framed(out, |out| {
                out.put_u8(SHOWN);
                out.put_u32(*id);
                out.put_slice(answer);
            }),
            PeerFrame::Flushed { token } => framed(out, |out| {
                out.put_u8(FLUSHED);
                out.put_u64(*token);
            }),
            PeerFrame::Answered { id, answer } => framed(out, |out| {
                out.put_u8(ANSWERED);
                out.put_u64(*id);
                match answer {
                    Ok(part) => {
                        out.put_u8(0);
                        out.put_slice(part);
                    }
                    Err(why) => out.put_u8(code(&UNANSWERED, why)),
                }
            }),
            PeerFrame::Known { sub, publisher } => framed(out, |out| {
                out.put_u8(KNOWN);
                out.put_u32(sub.0);
                out.put_u8(u8::from(publisher.is_some()));
                if let Some(publisher) = publisher {
                    put_publisher(out, publisher);
                }
            }),
            PeerFrame::Events { id, answer } => framed(out, |out| {
                out.put_u8(EVENTS_ANSWER);
                out.put_u64(*id);
                EventAnswer::put(answer, out);
            }),
            PeerFrame::Streams { id, answer } => framed(out, |out| {
                out.put_u8(STREAMS_ANSWER);
                out.put_u64(*id);
                StreamAnswer::put(answer, out);
            }),
            PeerFrame::Bye { reason, text } => framed(out, |out| {
                out.put_u8(BYE);
                out.put_u8(code(&BYE_REASONS, reason));
                put_bytes8(out, cut255(text).as_bytes());
            }),
        }
    }

    /// Reads one frame, without its length. Subjects, headers and payloads are slices of it.
    ///
    /// # Errors
    /// Names the rule that the bytes break.
    pub fn decode(frame: Bytes) -> Result<PeerFrame, FrameError> {
        let mut reader = FrameReader::new(frame);
        let read = match reader.u8()? {
            WELCOME => PeerFrame::Welcome(welcome(&mut reader)?),
            MESSAGE => PeerFrame::Message { subs: subs(&mut reader)?, delivery: delivery(&mut reader)? },
            MESSAGE_RUN => PeerFrame::MessageRun { subs: subs(&mut reader)?, deliveries: run(&mut reader)? },
            LOSS => PeerFrame::Loss { subs: subs(&mut reader)?, loss: loss(&mut reader)? },
            DROPPED => {
                let count = reader.count32(12)?;
                let mut counts = Vec::with_capacity(count);
                for _ in 0..count {
                    counts.push((SubId(reader.u32()?), reader.u64()?));
                }
                PeerFrame::Dropped { counts }
            }
            REFUSED => PeerFrame::Refused(refused(&mut reader)?),
            SHOWN => PeerFrame::Shown { id: reader.u32()?, answer: reader.rest() },
            FLUSHED => PeerFrame::Flushed { token: reader.u64()? },
            BYE => {
                PeerFrame::Bye { reason: decoded(&BYE_REASONS, reader.u8()?, "reason")?, text: reader.text8("text")? }
            }
            SUBSCRIBED => PeerFrame::Subscribed { sub: SubId(reader.u32()?) },
            AWAITED => PeerFrame::Awaited { sub: SubId(reader.u32()?) },
            EVENTS_ANSWER => PeerFrame::Events { id: reader.u64()?, answer: EventAnswer::read(&mut reader)? },
            STREAMS_ANSWER => PeerFrame::Streams { id: reader.u64()?, answer: StreamAnswer::read(&mut reader)? },
            ANSWERED => PeerFrame::Answered {
                id: reader.u64()?,
                answer: match reader.u8()? {
                    0 => Ok(reader.rest()),
                    why => Err(decoded(&UNANSWERED, why, "why")?),
                },
            },
            KNOWN => {
                let sub = SubId(reader.u32()?);
                let publisher = if flag(&mut reader, 1)? { Some(publisher(&mut reader)?) } else { None };
                PeerFrame::Known { sub, publisher }
            }
            kind => return Err(FrameError::Kind(kind)),
        };
        reader.end()?;
        Ok(read)
    }
}

/// Reads flags of which only `flag` may be set, and returns whether it is.
pub(crate) fn flag(reader: &mut FrameReader, flag: u8) -> Result<bool, FrameError> {
    match reader.u8()? {
        0 => Ok(false),
        flags if flags == flag => Ok(true),
        _ => Err(FrameError::Value("flags")),
    }
}

/// Appends a length and the bytes that `write` appends after it.
fn framed(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32(0);
    write(out);
    let bytes = u32::try_from(out.len() - start - LENGTH_BYTES).expect("frames are far below 4 GiB");
    out[start..start + LENGTH_BYTES].copy_from_slice(&bytes.to_be_bytes());
}

/// Appends the part of a MESSAGE frame that differs between clients. The caller appends the delivery's body of
/// `body_bytes` bytes.
pub(crate) fn put_message_head(out: &mut BytesMut, subs: &[SubId], body_bytes: usize) {
    let bytes = 1 + 4 + 4 * subs.len() + body_bytes;
    out.put_u32(u32::try_from(bytes).expect("messages are limited to 8 MiB"));
    out.put_u8(MESSAGE);
    put_subs(out, subs);
}

/// Appends a MESSAGE RUN frame.
pub(crate) fn put_message_run(out: &mut BytesMut, subs: &[SubId], run: &RunRef<'_>) {
    framed(out, |out| {
        out.put_u8(MESSAGE_RUN);
        put_subs(out, subs);
        put_run(out, run);
    });
}

fn put_subs(out: &mut BytesMut, subs: &[SubId]) {
    out.put_u32(u32::try_from(subs.len()).expect("at most FRAME_SUBS_MAX"));
    for sub in subs {
        out.put_u32(sub.0);
    }
}

fn put_welcome(out: &mut BytesMut, welcome: &Welcome) {
    out.put_u8(WELCOME);
    out.put_u16(welcome.version);
    put_bytes8(out, welcome.peer.as_str().as_bytes());
    out.put_u64(welcome.epoch.bits());
    out.put_u16(welcome.group);
    out.put_u16(welcome.port);
    out.put_u32(welcome.client);
    out.put_u32(welcome.message_bytes_max);
    put_bytes8(out, cut255(&welcome.software).as_bytes());
}

fn pattern(reader: &mut FrameReader) -> Result<Pattern, FrameError> {
    Ok(reader.text8("pattern")?.parse()?)
}

/// Reads the name of a queue group; an empty name yields `None`.
fn queue(reader: &mut FrameReader) -> Result<Option<Queue>, FrameError> {
    let name = reader.bytes8()?;
    if name.is_empty() { Ok(None) } else { Ok(Some(Queue::from_bytes(name)?)) }
}

fn subs(reader: &mut FrameReader) -> Result<Vec<SubId>, FrameError> {
    let count = reader.count32(4)?;
    if count == 0 {
        return Err(FrameError::Value("subscriptions"));
    }
    (0..count).map(|_| Ok(SubId(reader.u32()?))).collect()
}

fn welcome(reader: &mut FrameReader) -> Result<Welcome, FrameError> {
    Ok(Welcome {
        version: reader.u16()?,
        peer: reader.text8("peer")?.parse()?,
        epoch: epoch(reader)?,
        group: reader.u16()?,
        port: reader.u16()?,
        client: reader.u32()?,
        message_bytes_max: reader.u32()?,
        software: reader.text8("software")?,
    })
}
