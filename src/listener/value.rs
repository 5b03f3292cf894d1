//! Values of the bus in the frames of the local protocol: messages, publishers and losses. Encoding and decoding.

use crate::delivery::{Deliveries, RunRef};
use crate::listener::codec::{FrameError, FrameReader, put_bytes8, put_bytes32};
use crate::message::{
    Cause, Count, Delivery, Dseq, Epoch, Headers, Loss, LossScope, Message, MessageOrigin, Publisher, Reason, Verdict,
};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use crate::wire::Run;
use bytes::{BufMut, BytesMut};

/// MESSAGE and MESSAGE RUN: the messages are journalled events.
pub(crate) const FLAG_EVENT: u8 = 0x01;
/// MESSAGE and MESSAGE RUN: a seq follows.
const FLAG_SEQ: u8 = 0x02;
const FLAG_REPAIRED: u8 = 0x04;
/// MESSAGE RUN: each entry has a meta part.
const FLAG_META: u8 = 0x08;
/// MESSAGE and MESSAGE RUN: an offset follows.
const FLAG_OFFSET: u8 = 0x10;
/// MESSAGE and MESSAGE RUN: a member of the realm has sent the messages.
const FLAG_ORIGIN_GROUP: u8 = 0x20;
/// MESSAGE and MESSAGE RUN: their publisher has sent the messages.
const FLAG_ORIGIN_PUBLISHER: u8 = 0x40;

/// Table of (value on the wire, reason), used for both directions.
const REASONS: [(u8, Reason); 11] = [
    (0, Reason::Disabled),
    (1, Reason::Deadline),
    (2, Reason::Expired),
    (3, Reason::Overflow),
    (4, Reason::PublisherGone),
    (5, Reason::Silent),
    (6, Reason::Crashed),
    (7, Reason::Reported),
    (8, Reason::Blackhole),
    (9, Reason::Contradicted),
    (10, Reason::Start),
];

/// Encodes the part of a MESSAGE frame that is the same for all clients.
pub(crate) fn delivery_body(delivery: &Delivery) -> BytesMut {
    let message = &delivery.message;
    let mut out = BytesMut::with_capacity(128 + message.subject.as_bytes().len() + message.body_bytes());
    let flags = flag(FLAG_EVENT, message.event) | flag(FLAG_REPAIRED, delivery.repaired) | origin_flag(delivery.origin);
    put_delivery_header(&mut out, flags, &delivery.publisher, delivery.seq, delivery.offset, delivery.verdict);
    put_content(&mut out, message);
    out
}

/// Appends the part of a MESSAGE RUN frame after the subscriptions.
pub(crate) fn put_run(out: &mut BytesMut, run: &RunRef<'_>) {
    let flags = flag(FLAG_EVENT, run.event) | flag(FLAG_REPAIRED, run.repaired) | flag(FLAG_META, run.meta);
    let flags = flags | origin_flag(run.origin);
    put_delivery_header(out, flags, run.publisher, run.seq, run.offset, run.verdict);
    put_bytes8(out, run.subject.as_bytes());
    out.put_u16(run.count);
    out.put_slice(run.entries);
}

fn flag(flag: u8, is_set: bool) -> u8 {
    if is_set { flag } else { 0 }
}

fn origin_flag(origin: Option<MessageOrigin>) -> u8 {
    match origin {
        None => 0,
        Some(MessageOrigin::Group) => FLAG_ORIGIN_GROUP,
        Some(MessageOrigin::Publisher) => FLAG_ORIGIN_PUBLISHER,
    }
}

/// Appends flags, publisher, sequence number, offset and verdict of a message, or of the first message of a run.
fn put_delivery_header(
    out: &mut BytesMut,
    flags: u8,
    publisher: &Publisher,
    seq: Option<Seq>,
    offset: Option<u32>,
    verdict: Verdict,
) {
    out.put_u8(flags | flag(FLAG_SEQ, seq.is_some()) | flag(FLAG_OFFSET, offset.is_some()));
    put_publisher(out, publisher);
    if let Some(seq) = seq {
        out.put_u64(seq.raw());
    }
    if let Some(offset) = offset {
        out.put_u32(offset);
    }
    match verdict {
        Verdict::Start(wall) => {
            out.put_u8(0);
            out.put_u64(wall.as_nanos());
        }
        Verdict::First => out.put_u8(1),
        Verdict::Next => out.put_u8(2),
        Verdict::Skip(count) => {
            out.put_u8(3);
            put_count(out, count);
        }
        Verdict::Unnumbered => out.put_u8(4),
        Verdict::Direct => out.put_u8(5),
    }
}

/// Appends the subject, the reply subject and the headers, and then the payload, which extends to the end of the
/// frame.
pub(crate) fn put_content(out: &mut BytesMut, message: &Message) {
    put_bytes8(out, message.subject.as_bytes());
    put_bytes8(out, message.reply.as_ref().map_or(&[], |reply| reply.as_bytes()));
    put_bytes32(out, message.headers.block());
    out.put_slice(&message.payload);
}

/// Checks that a message whose payload is in a buffer has no other payload.
pub(crate) fn without_payload(message: Message) -> Result<Message, FrameError> {
    match message.payload.len() {
        0 => Ok(message),
        bytes => Err(FrameError::Trailing(bytes)),
    }
}

pub(crate) fn put_publisher(out: &mut BytesMut, publisher: &Publisher) {
    out.put_u64(publisher.epoch.bits());
    out.put_u32(publisher.uid);
    put_bytes8(out, publisher.name.as_ref().map_or("", |name| name.as_str()).as_bytes());
}

fn put_count(out: &mut BytesMut, count: Count) {
    out.put_u64(count.min());
    out.put_u64(count.max());
}

pub(crate) fn put_loss(out: &mut BytesMut, loss: &Loss) {
    put_publisher(out, &loss.publisher);
    out.put_u8(encode_code(&REASONS, &loss.reason));
    match loss.cause {
        Cause::Network => out.put_u8(0),
        Cause::LocalOverrun { datagrams } => {
            out.put_u8(1);
            out.put_u64(datagrams);
        }
        Cause::Mixed { overrun, network } => {
            out.put_u8(2);
            out.put_u64(overrun);
            out.put_u64(network);
        }
    }
    out.put_u64(loss.at.as_nanos());
    match &loss.what {
        LossScope::Messages { subject, first, last, count } => {
            out.put_u8(0);
            put_bytes8(out, subject.as_bytes());
            out.put_u64(first.raw());
            out.put_u64(last.raw());
            put_count(out, *count);
        }
        LossScope::Datagrams { first, last, messages } => {
            out.put_u8(1);
            out.put_u64(first.0);
            out.put_u64(last.0);
            put_count(out, *messages);
        }
        LossScope::Tail { after } => {
            out.put_u8(2);
            out.put_u64(after.0);
        }
        LossScope::Inbox { messages } => {
            out.put_u8(3);
            out.put_u64(*messages);
        }
    }
}

pub(crate) fn delivery(reader: &mut FrameReader) -> Result<Delivery, FrameError> {
    let DeliveryHeader { flags, publisher, seq, offset, verdict, origin } =
        delivery_header(reader, FLAG_EVENT | FLAG_REPAIRED)?;
    let message = content(reader, flags & FLAG_EVENT != 0)?;
    let repaired = flags & FLAG_REPAIRED != 0;
    Ok(Delivery { message, publisher, seq, offset, verdict, repaired, replayed: false, origin })
}

/// Reads the part of a MESSAGE RUN frame after the subscriptions.
pub(crate) fn run(reader: &mut FrameReader) -> Result<Deliveries, FrameError> {
    let DeliveryHeader { flags, publisher, seq, offset, verdict, origin } =
        delivery_header(reader, FLAG_EVENT | FLAG_REPAIRED | FLAG_META)?;
    let subject = Subject::from_bytes(reader.bytes8()?)?;
    let count = reader.u16()?;
    let has = |flag: u8| flags & flag != 0;
    let run = Run::of_entries(subject, seq, has(FLAG_EVENT), has(FLAG_META), count, reader.rest())?;
    let mut deliveries = Deliveries::of_run(run, publisher, verdict, has(FLAG_REPAIRED));
    deliveries.set_first_offset(offset);
    deliveries.set_origin(origin);
    Ok(deliveries)
}

/// Fields that [`put_delivery_header`] writes.
struct DeliveryHeader {
    flags: u8,
    publisher: Publisher,
    seq: Option<Seq>,
    offset: Option<u32>,
    verdict: Verdict,
    origin: Option<MessageOrigin>,
}

fn delivery_header(reader: &mut FrameReader, flags_known: u8) -> Result<DeliveryHeader, FrameError> {
    let flags = reader.u8()?;
    let flags_of_origin = FLAG_ORIGIN_GROUP | FLAG_ORIGIN_PUBLISHER;
    if flags & !(flags_known | FLAG_SEQ | FLAG_OFFSET | flags_of_origin) != 0 {
        return Err(FrameError::Value("flags"));
    }
    let origin = match flags & flags_of_origin {
        0 => None,
        FLAG_ORIGIN_GROUP => Some(MessageOrigin::Group),
        FLAG_ORIGIN_PUBLISHER => Some(MessageOrigin::Publisher),
        _ => return Err(FrameError::Value("flags")),
    };
    let publisher = publisher(reader)?;
    let seq = if flags & FLAG_SEQ != 0 { Some(seq(reader)?) } else { None };
    let offset = if flags & FLAG_OFFSET != 0 { Some(reader.u32()?) } else { None };
    let verdict = match reader.u8()? {
        0 => Verdict::Start(WallTime::from_nanos(reader.u64()?)),
        1 => Verdict::First,
        2 => Verdict::Next,
        3 => Verdict::Skip(count(reader)?),
        4 => Verdict::Unnumbered,
        5 => Verdict::Direct,
        _ => return Err(FrameError::Value("verdict")),
    };
    Ok(DeliveryHeader { flags, publisher, seq, offset, verdict, origin })
}

pub(crate) fn content(reader: &mut FrameReader, event: bool) -> Result<Message, FrameError> {
    let subject = Subject::from_bytes(reader.bytes8()?)?;
    let reply = reader.bytes8()?;
    let reply = if reply.is_empty() { None } else { Some(Subject::from_bytes(reply)?) };
    let headers = Headers::from_block(reader.bytes32()?);
    Ok(Message { subject, reply, headers, payload: reader.rest(), event })
}

pub(crate) fn publisher(reader: &mut FrameReader) -> Result<Publisher, FrameError> {
    let (epoch, uid) = (epoch(reader)?, reader.u32()?);
    let name = reader.text8("name")?;
    let name = if name.is_empty() { None } else { Some(name.parse()?) };
    Ok(Publisher { name, epoch, uid })
}

fn count(reader: &mut FrameReader) -> Result<Count, FrameError> {
    let (min, max) = (reader.u64()?, reader.u64()?);
    if max < min { Err(FrameError::Value("count")) } else { Ok(Count::from_bounds(min, max)) }
}

fn seq(reader: &mut FrameReader) -> Result<Seq, FrameError> {
    Seq::new(reader.u64()?).ok_or(FrameError::Value("seq"))
}

pub(crate) fn epoch(reader: &mut FrameReader) -> Result<Epoch, FrameError> {
    Epoch::new(reader.u64()?).ok_or(FrameError::Value("epoch"))
}

pub(crate) fn loss(reader: &mut FrameReader) -> Result<Loss, FrameError> {
    let publisher = publisher(reader)?;
    let reason = decode_code(&REASONS, reader.u8()?, "reason")?;
    let cause = match reader.u8()? {
        0 => Cause::Network,
        1 => Cause::LocalOverrun { datagrams: reader.u64()? },
        2 => Cause::Mixed { overrun: reader.u64()?, network: reader.u64()? },
        _ => return Err(FrameError::Value("cause")),
    };
    let at = WallTime::from_nanos(reader.u64()?);
    let what = match reader.u8()? {
        0 => LossScope::Messages {
            subject: Subject::from_bytes(reader.bytes8()?)?,
            first: seq(reader)?,
            last: seq(reader)?,
            count: count(reader)?,
        },
        1 => {
            let (first, last) = (Dseq(reader.u64()?), Dseq(reader.u64()?));
            LossScope::Datagrams { first, last, messages: count(reader)? }
        }
        2 => LossScope::Tail { after: Dseq(reader.u64()?) },
        3 => LossScope::Inbox { messages: reader.u64()? },
        _ => return Err(FrameError::Value("missing")),
    };
    Ok(Loss { publisher, what, reason, cause, at })
}

pub(crate) fn encode_code<T: PartialEq>(table: &[(u8, T)], value: &T) -> u8 {
    table.iter().find(|(_, v)| v == value).map(|(code, _)| *code).expect("the table has every variant")
}

pub(crate) fn decode_code<T: Copy>(table: &[(u8, T)], code: u8, field: &'static str) -> Result<T, FrameError> {
    table.iter().find(|(c, _)| *c == code).map(|(_, value)| *value).ok_or(FrameError::Value(field))
}
