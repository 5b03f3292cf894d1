//! Frames from a peer to its client.

use super::lent_payload::LentPayload;
use crate::delivery::{Deliveries, RunRef};
use crate::event::refusal::EventRefusal;
use crate::listener::codec::{FrameError, FrameReader, put_bytes8, put_frame, truncate255};
use crate::listener::event::EventAnswer;
use crate::listener::refusal::{RequestRefusal, put_refusal, refusal};
use crate::listener::stream::{StreamAnswer, StreamRefusal};
use crate::listener::value::{
    decode_code, delivery, delivery_body, encode_code, epoch, loss, publisher, put_loss, put_publisher, put_run, run,
    without_payload,
};
use crate::message::{Delivery, Epoch, Loss, PeerName, Publisher, QuestionFailure, SubId};
use bytes::{BufMut, Bytes, BytesMut};

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
const DISCOVERED: u8 = 0x8b;
const MESSAGE_RUN: u8 = 0x8c;
const AWAITED: u8 = 0x8d;
const EVENTS_ANSWER: u8 = 0x8e;
const STREAMS_ANSWER: u8 = 0x8f;
const SEGMENT: u8 = 0x90;
const MESSAGE_BUFFER: u8 = 0x91;
const BUFFERS_FREED: u8 = 0x92;

/// Codes of failures. The code 0 marks a part of an answer.
const FAILURES: [(u8, QuestionFailure); 7] = [
    (1, QuestionFailure::UnknownPeer),
    (2, QuestionFailure::Ambiguous),
    (3, QuestionFailure::Gone),
    (4, QuestionFailure::Timeout),
    (5, QuestionFailure::TooMany),
    (6, QuestionFailure::Malformed),
    (7, QuestionFailure::Denied),
];

/// Codes of refused segments. The code 0 marks a segment.
const SEGMENT_REFUSALS: [(u8, SegmentRefusalReason); 4] = [
    (1, SegmentRefusalReason::Off),
    (2, SegmentRefusalReason::LimitReached),
    (3, SegmentRefusalReason::UnreadOutput),
    (4, SegmentRefusalReason::System),
];

const BYE_REASONS: [(u8, ByeReason); 5] = [
    (0, ByeReason::Stopping),
    (1, ByeReason::Malformed),
    (2, ByeReason::ProtocolViolation),
    (3, ByeReason::Incompatible),
    (4, ByeReason::TooManyClients),
];

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
        /// Subscriptions: at least one, at most [`FRAME_SUBS_MAX`](super::FRAME_SUBS_MAX).
        subs: Vec<SubId>,
        /// The message.
        delivery: Delivery,
    },
    /// A message for these subscriptions of the client, whose payload is in a buffer of the peer.
    MessageBuffer {
        /// Subscriptions: at least one, at most [`FRAME_SUBS_MAX`](super::FRAME_SUBS_MAX).
        subs: Vec<SubId>,
        /// The message, without its payload.
        delivery: Delivery,
        /// The buffer that it is in.
        payload: LentPayload,
    },
    /// The peer has freed its buffers, and lends none of those that the client has got again.
    BuffersFreed,
    /// Messages of one subject for these subscriptions of the client. Their sequence numbers, if present, are
    /// consecutive.
    MessageRun {
        /// Subscriptions: at least one, at most [`FRAME_SUBS_MAX`](super::FRAME_SUBS_MAX).
        subs: Vec<SubId>,
        /// The messages. Only messages that arrived as a run can be encoded.
        deliveries: Deliveries,
    },
    /// A loss that concerns these subscriptions of the client.
    Loss {
        /// Subscriptions: at least one, at most [`FRAME_SUBS_MAX`](super::FRAME_SUBS_MAX).
        subs: Vec<SubId>,
        /// The loss.
        loss: Loss,
    },
    /// Marks the position where the peer dropped messages or loss reports, because the client read too slowly.
    Dropped {
        /// Pairs of a subscription and its number of drops; at most [`FRAME_SUBS_MAX`](super::FRAME_SUBS_MAX).
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
    /// A part of the answer to HISTORY, or a failure.
    Answered {
        /// Number of the query.
        id: u64,
        /// The part in its wire format, or the reason of the failure. The part itself marks whether it is the last
        /// one.
        answer: Result<Bytes, QuestionFailure>,
    },
    /// Announces a publisher whose messages the subscription is not guaranteed to receive completely. The frame
    /// precedes all messages of that publisher.
    Discovered {
        /// Subscription that requested publisher announcements.
        sub: SubId,
        /// The publisher. `None` marks the end of the publishers that were known when the subscription began.
        publisher: Option<Publisher>,
    },
    /// Reports that the condition of AWAIT holds.
    Awaited {
        /// Number of the subscription.
        sub: SubId,
    },
    /// The answer to EVENTS: the confirmation that the events are stored, a part of the answer to a query, or a
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
    /// The answer to SHARED MEMORY: the size of each ring in bytes, or a refusal. The descriptor of the segment comes
    /// beside the first byte of the frame. All later frames come through the ring.
    Segment(Result<u32, SegmentRefusal>),
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
    /// The peer's protocol version: [`VERSION`](super::VERSION).
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
    /// Maximum size of payload, headers and reply subject of a published message together, in bytes.
    pub message_bytes_max: u32,
    /// Version of the program seqcast of the peer.
    pub software: String,
    /// True if the client may request shared memory.
    pub offers_shared_memory: bool,
}

/// Refusal of shared memory. The connection goes on with the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRefusal {
    /// Reason, for programs.
    pub reason: SegmentRefusalReason,
    /// Reason, for people; at most 255 bytes.
    pub text: String,
}

/// Reason why a client gets no shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentRefusalReason {
    /// The configuration of the peer switches it off.
    Off,
    /// All clients together have as much as the configuration permits.
    LimitReached,
    /// The client has not read all output of the peer.
    UnreadOutput,
    /// The system of the peer refused it.
    System,
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

impl PeerFrame {
    /// Appends the frame, with its length, to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        put_frame(out, |out| self.put(out));
    }

    /// Appends the kind and the body of the frame.
    fn put(&self, out: &mut BytesMut) {
        match self {
            PeerFrame::Message { subs, delivery } => {
                out.put_u8(MESSAGE);
                put_subs(out, subs);
                out.put_slice(&delivery_body(delivery));
            }
            PeerFrame::BuffersFreed => out.put_u8(BUFFERS_FREED),
            PeerFrame::MessageBuffer { subs, delivery, payload } => {
                put_message_buffer_body(out, subs, &delivery_body(delivery), *payload);
            }
            PeerFrame::MessageRun { subs, deliveries } => {
                put_message_run_body(out, subs, &deliveries.run().expect("the frame holds a run"));
            }
            PeerFrame::Loss { subs, loss } => {
                out.put_u8(LOSS);
                put_subs(out, subs);
                put_loss(out, loss);
            }
            PeerFrame::Welcome(welcome) => put_welcome(out, welcome),
            PeerFrame::Refused(refusal) => {
                out.put_u8(REFUSED);
                put_refusal(out, refusal);
            }
            PeerFrame::Dropped { counts } => put_dropped(out, counts),
            PeerFrame::Subscribed { sub } => {
                out.put_u8(SUBSCRIBED);
                out.put_u32(sub.0);
            }
            PeerFrame::Awaited { sub } => {
                out.put_u8(AWAITED);
                out.put_u32(sub.0);
            }
            PeerFrame::Shown { id, answer } => {
                out.put_u8(SHOWN);
                out.put_u32(*id);
                out.put_slice(answer);
            }
            PeerFrame::Flushed { token } => {
                out.put_u8(FLUSHED);
                out.put_u64(*token);
            }
            PeerFrame::Answered { id, answer } => put_history_answer(out, *id, answer.as_ref()),
            PeerFrame::Discovered { sub, publisher } => {
                out.put_u8(DISCOVERED);
                out.put_u32(sub.0);
                out.put_u8(u8::from(publisher.is_some()));
                publisher.iter().for_each(|publisher| put_publisher(out, publisher));
            }
            PeerFrame::Events { id, answer } => {
                out.put_u8(EVENTS_ANSWER);
                out.put_u64(*id);
                EventAnswer::put(answer, out);
            }
            PeerFrame::Streams { id, answer } => {
                out.put_u8(STREAMS_ANSWER);
                out.put_u64(*id);
                StreamAnswer::put(answer, out);
            }
            PeerFrame::Segment(answer) => put_segment(out, answer),
            PeerFrame::Bye { reason, text } => {
                out.put_u8(BYE);
                out.put_u8(encode_code(&BYE_REASONS, reason));
                put_bytes8(out, truncate255(text).as_bytes());
            }
        }
    }

    /// Reads one frame, without its length. Subjects, headers and payloads are slices of it.
    ///
    /// # Errors
    /// Returns the error of the frame.
    pub fn decode(frame: Bytes) -> Result<PeerFrame, FrameError> {
        let mut reader = FrameReader::new(frame);
        let frame = match reader.u8()? {
            WELCOME => PeerFrame::Welcome(welcome(&mut reader)?),
            MESSAGE => PeerFrame::Message { subs: subs(&mut reader)?, delivery: delivery(&mut reader)? },
            MESSAGE_BUFFER => message_buffer(&mut reader)?,
            BUFFERS_FREED => PeerFrame::BuffersFreed,
            MESSAGE_RUN => PeerFrame::MessageRun { subs: subs(&mut reader)?, deliveries: run(&mut reader)? },
            LOSS => PeerFrame::Loss { subs: subs(&mut reader)?, loss: loss(&mut reader)? },
            DROPPED => PeerFrame::Dropped { counts: dropped(&mut reader)? },
            REFUSED => PeerFrame::Refused(refusal(&mut reader)?),
            SHOWN => PeerFrame::Shown { id: reader.u32()?, answer: reader.rest() },
            FLUSHED => PeerFrame::Flushed { token: reader.u64()? },
            BYE => PeerFrame::Bye {
                reason: decode_code(&BYE_REASONS, reader.u8()?, "reason")?,
                text: reader.text8("text")?,
            },
            SUBSCRIBED => PeerFrame::Subscribed { sub: SubId(reader.u32()?) },
            AWAITED => PeerFrame::Awaited { sub: SubId(reader.u32()?) },
            EVENTS_ANSWER => PeerFrame::Events { id: reader.u64()?, answer: EventAnswer::read(&mut reader)? },
            STREAMS_ANSWER => PeerFrame::Streams { id: reader.u64()?, answer: StreamAnswer::read(&mut reader)? },
            SEGMENT => PeerFrame::Segment(segment(&mut reader)?),
            ANSWERED => PeerFrame::Answered {
                id: reader.u64()?,
                answer: match reader.u8()? {
                    0 => Ok(reader.rest()),
                    code => Err(decode_code(&FAILURES, code, "status")?),
                },
            },
            DISCOVERED => {
                let sub = SubId(reader.u32()?);
                let publisher = if reader.flag(1)? { Some(publisher(&mut reader)?) } else { None };
                PeerFrame::Discovered { sub, publisher }
            }
            kind => return Err(FrameError::Kind(kind)),
        };
        reader.end()?;
        Ok(frame)
    }
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
    put_frame(out, |out| put_message_run_body(out, subs, run));
}

fn put_message_run_body(out: &mut BytesMut, subs: &[SubId], run: &RunRef<'_>) {
    out.put_u8(MESSAGE_RUN);
    put_subs(out, subs);
    put_run(out, run);
}

/// Appends a MESSAGE BUFFER frame. `body` is the delivery's body without its payload.
pub(crate) fn put_message_buffer(out: &mut BytesMut, subs: &[SubId], body: &[u8], payload: LentPayload) {
    put_frame(out, |out| put_message_buffer_body(out, subs, body, payload));
}

fn put_message_buffer_body(out: &mut BytesMut, subs: &[SubId], body: &[u8], payload: LentPayload) {
    out.put_u8(MESSAGE_BUFFER);
    put_subs(out, subs);
    payload.put(out);
    out.put_slice(body);
}

fn message_buffer(reader: &mut FrameReader) -> Result<PeerFrame, FrameError> {
    let (subs, payload) = (subs(reader)?, LentPayload::read(reader)?);
    let mut delivery = delivery(reader)?;
    delivery.message = without_payload(delivery.message)?;
    Ok(PeerFrame::MessageBuffer { subs, delivery, payload })
}

fn put_subs(out: &mut BytesMut, subs: &[SubId]) {
    out.put_u32(u32::try_from(subs.len()).expect("at most FRAME_SUBS_MAX"));
    for sub in subs {
        out.put_u32(sub.0);
    }
}

fn put_dropped(out: &mut BytesMut, counts: &[(SubId, u64)]) {
    out.put_u8(DROPPED);
    out.put_u32(u32::try_from(counts.len()).expect("at most FRAME_SUBS_MAX"));
    for (sub, count) in counts {
        out.put_u32(sub.0);
        out.put_u64(*count);
    }
}

fn dropped(reader: &mut FrameReader) -> Result<Vec<(SubId, u64)>, FrameError> {
    let count = reader.count32(12)?;
    (0..count).map(|_| Ok((SubId(reader.u32()?), reader.u64()?))).collect()
}

fn put_history_answer(out: &mut BytesMut, id: u64, answer: Result<&Bytes, &QuestionFailure>) {
    out.put_u8(ANSWERED);
    out.put_u64(id);
    match answer {
        Ok(part) => {
            out.put_u8(0);
            out.put_slice(part);
        }
        Err(failure) => out.put_u8(encode_code(&FAILURES, failure)),
    }
}

fn put_segment(out: &mut BytesMut, answer: &Result<u32, SegmentRefusal>) {
    out.put_u8(SEGMENT);
    match answer {
        Ok(ring_bytes) => {
            out.put_u8(0);
            out.put_u32(*ring_bytes);
        }
        Err(refusal) => {
            out.put_u8(encode_code(&SEGMENT_REFUSALS, &refusal.reason));
            put_bytes8(out, truncate255(&refusal.text).as_bytes());
        }
    }
}

fn segment(reader: &mut FrameReader) -> Result<Result<u32, SegmentRefusal>, FrameError> {
    Ok(match reader.u8()? {
        0 => Ok(reader.u32()?),
        code => {
            Err(SegmentRefusal { reason: decode_code(&SEGMENT_REFUSALS, code, "status")?, text: reader.text8("text")? })
        }
    })
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
    put_bytes8(out, truncate255(&welcome.software).as_bytes());
    out.put_u8(u8::from(welcome.offers_shared_memory));
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
        offers_shared_memory: reader.flag(1)?,
    })
}

#[cfg(test)]
impl Welcome {
    /// Returns the facts about a peer of a test.
    pub(crate) fn any() -> Welcome {
        Welcome {
            version: super::VERSION,
            peer: "A.test".parse().expect("a name"),
            epoch: Epoch::new(7).expect("not 0"),
            group: 7500,
            port: 7500,
            client: 3,
            message_bytes_max: 8 << 20,
            software: "0.1.0".into(),
            offers_shared_memory: false,
        }
    }
}
