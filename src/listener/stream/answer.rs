//! Answers to requests about streams.

use super::fields::{
    ADD, CONSUMERS, LIST, READ, REGISTER, REMOVE, RESET, consumer, json, missed_range, parse_field, put_consumer,
    put_count, put_missed, put_numbers, stream_id,
};
use super::stream_refusal::{StreamRefusal, put_refusal, refusal};
use crate::event::model::{Json, ServerId};
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::StreamId;
use crate::event::stream::store::{ConsumerRow, Contents, Policy, StreamLimits, StreamSettings};
use crate::listener::codec::{FrameError, FrameReader, put_bytes8, put_bytes32};
use crate::listener::event::{id, put_id, put_time, put_types, read_types, time};
use bytes::{BufMut, BytesMut};
use std::time::Duration;

/// Minimum number of bytes of an event: its id, time and origin, and the lengths of its type and data.
const EVENT_BYTES_MIN: usize = 8 + 8 + 20 + 1 + 4;
/// Minimum number of bytes of a consumer: the lengths of its names, four numbers, and a flag for a lapsed consumer.
const CONSUMER_BYTES_MIN: usize = 2 + 4 * 8 + 1;
/// Minimum number of bytes of a stream: the length of its name, its types, its limits and four numbers.
const STREAM_BYTES_MIN: usize = 1 + 4 + 1 + 4 * 8;

/// Code of a refusal. It is distinct from the codes of requests, which begin the answers to them.
const REFUSED: u8 = 0xff;

/// Flags of optional fields of a stream's limits.
const AGE: u8 = 0x01;
const BYTES: u8 = 0x02;
const BLOCK: u8 = 0x04;

/// Answer to a stream request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAnswer {
    /// The streams.
    Streams(Streams),
    /// The event is stored with this id.
    Added(StreamId),
    /// The events found.
    Events(StreamEvents),
    /// The registered consumers.
    Consumers(Consumers),
    /// The consumer is registered. The row is its earlier state, if it was registered before.
    Registered(Option<ConsumerRow>),
    /// Position up to which the consumer has accepted.
    Position(StreamId),
    /// The consumer is no longer registered.
    Removed,
}

/// The streams of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// Server of the peer. Ids of events are unique within a stream of one server.
    pub server: ServerId,
    /// Streams, in the order of the configuration.
    pub streams: Vec<StreamRow>,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRow {
    /// Configured settings.
    pub settings: StreamSettings,
    /// Contents of the stream.
    pub contents: Contents,
    /// Number of registered consumers.
    pub consumers: u64,
}

/// Events of a stream, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvents {
    /// Position after which the read began: the requested position, or the accepted one if that is later.
    pub after: StreamId,
    /// The events.
    pub events: Vec<StreamEvent>,
    /// Position up to which the answer is complete: it has all wanted events after `after` up to this position.
    pub covered: StreamId,
}

/// The consumers of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumers {
    /// Rows, in the order of the consumers' names.
    pub rows: Vec<ConsumerRow>,
    /// Number of consumers omitted because they exceed the limit of an answer.
    pub omitted: u64,
}

impl StreamAnswer {
    /// Appends an answer or a refusal.
    pub(crate) fn put(answer: &Result<StreamAnswer, StreamRefusal>, out: &mut BytesMut) {
        match answer {
            Ok(StreamAnswer::Streams(streams)) => {
                out.put_u8(LIST);
                put_streams(out, streams);
            }
            Ok(StreamAnswer::Added(id)) => {
                out.put_u8(ADD);
                out.put_u64(id.number());
            }
            Ok(StreamAnswer::Events(StreamEvents { after, events, covered })) => {
                out.put_u8(READ);
                out.put_u64(after.number());
                out.put_u64(covered.number());
                put_count(out, events.len());
                events.iter().for_each(|event| put_event(out, event));
            }
            Ok(StreamAnswer::Consumers(Consumers { rows, omitted })) => {
                out.put_u8(CONSUMERS);
                out.put_u64(*omitted);
                put_count(out, rows.len());
                rows.iter().for_each(|row| put_row(out, row));
            }
            Ok(StreamAnswer::Registered(before)) => {
                out.put_u8(REGISTER);
                out.put_u8(u8::from(before.is_some()));
                before.iter().for_each(|row| put_row(out, row));
            }
            Ok(StreamAnswer::Position(id)) => {
                out.put_u8(RESET);
                out.put_u64(id.number());
            }
            Ok(StreamAnswer::Removed) => out.put_u8(REMOVE),
            Err(refusal) => {
                out.put_u8(REFUSED);
                put_refusal(out, refusal);
            }
        }
    }

    /// Reads an answer or a refusal.
    pub(crate) fn read(reader: &mut FrameReader) -> Result<Result<StreamAnswer, StreamRefusal>, FrameError> {
        Ok(Ok(match reader.u8()? {
            LIST => StreamAnswer::Streams(streams(reader)?),
            ADD => StreamAnswer::Added(stream_id(reader)?),
            READ => {
                let (after, covered) = (stream_id(reader)?, stream_id(reader)?);
                let count = reader.count32(EVENT_BYTES_MIN)?;
                let events = (0..count).map(|_| event(reader)).collect::<Result<_, _>>()?;
                StreamAnswer::Events(StreamEvents { after, events, covered })
            }
            CONSUMERS => {
                let omitted = reader.u64()?;
                let count = reader.count32(CONSUMER_BYTES_MIN)?;
                let rows = (0..count).map(|_| row(reader)).collect::<Result<_, _>>()?;
                StreamAnswer::Consumers(Consumers { rows, omitted })
            }
            REGISTER => StreamAnswer::Registered(reader.flag(1)?.then(|| row(reader)).transpose()?),
            RESET => StreamAnswer::Position(stream_id(reader)?),
            REMOVE => StreamAnswer::Removed,
            REFUSED => return Ok(Err(refusal(reader)?)),
            _ => return Err(FrameError::Value("answer")),
        }))
    }
}

fn put_streams(out: &mut BytesMut, Streams { server, streams }: &Streams) {
    out.put_u32(server.0);
    put_count(out, streams.len());
    for StreamRow { settings: StreamSettings { name, types, limits }, contents, consumers } in streams {
        put_bytes8(out, name.as_str().as_bytes());
        put_types(out, types);
        let block = if limits.policy == Policy::Block { BLOCK } else { 0 };
        let age = if limits.age.is_some() { AGE } else { 0 };
        out.put_u8(block | age | if limits.bytes.is_some() { BYTES } else { 0 });
        let micros = |age: Duration| u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        limits.age.iter().for_each(|age| out.put_u64(micros(*age)));
        limits.bytes.iter().for_each(|bytes| out.put_u64(*bytes));
        put_numbers(out, &[contents.last.number(), contents.events, contents.bytes, *consumers]);
    }
}

fn streams(reader: &mut FrameReader) -> Result<Streams, FrameError> {
    let server = ServerId(reader.u32()?);
    let count = reader.count32(STREAM_BYTES_MIN)?;
    let stream = |reader: &mut FrameReader| {
        let name = parse_field(&reader.bytes8()?, "stream")?;
        let types = read_types(reader)?;
        let flags = reader.u8()?;
        if flags & !(AGE | BYTES | BLOCK) != 0 {
            return Err(FrameError::Value("flags"));
        }
        let age = if flags & AGE == 0 { None } else { Some(Duration::from_micros(reader.u64()?)) };
        let bytes = if flags & BYTES == 0 { None } else { Some(reader.u64()?) };
        let policy = if flags & BLOCK == 0 { Policy::Lapse } else { Policy::Block };
        let settings = StreamSettings { name, types, limits: StreamLimits { age, bytes, policy } };
        let contents = Contents { last: stream_id(reader)?, events: reader.u64()?, bytes: reader.u64()? };
        Ok(StreamRow { settings, contents, consumers: reader.u64()? })
    };
    Ok(Streams { server, streams: (0..count).map(|_| stream(reader)).collect::<Result<_, _>>()? })
}

fn put_event(out: &mut BytesMut, event: &StreamEvent) {
    out.put_u64(event.id.number());
    put_time(out, event.time);
    put_id(out, event.origin);
    put_bytes8(out, event.kind.as_str().as_bytes());
    put_bytes32(out, event.data.bytes());
}

fn event(reader: &mut FrameReader) -> Result<StreamEvent, FrameError> {
    let (id, time, origin) = (stream_id(reader)?, time(reader)?, id(reader)?);
    let kind = parse_field(&reader.bytes8()?, "type")?;
    Ok(StreamEvent { id, kind, data: json(reader, Json::from_stored)?, time, origin })
}

fn put_row(out: &mut BytesMut, row: &ConsumerRow) {
    put_consumer(out, &row.consumer);
    out.put_u64(row.position.number());
    put_time(out, row.registered);
    put_time(out, row.last_request);
    out.put_u64(row.lag);
    out.put_u8(u8::from(row.lapsed.is_some()));
    row.lapsed.iter().for_each(|missed| put_missed(out, *missed));
}

fn row(reader: &mut FrameReader) -> Result<ConsumerRow, FrameError> {
    let (consumer, position) = (consumer(reader)?, stream_id(reader)?);
    let (registered, last_request, lag) = (time(reader)?, time(reader)?, reader.u64()?);
    let lapsed = reader.flag(1)?.then(|| missed_range(reader)).transpose()?;
    Ok(ConsumerRow { consumer, position, lapsed, registered, last_request, lag })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn count_beyond_the_frame_is_refused() {
        let check = |bytes: &'static [u8], expected: FrameError| {
            assert_eq!(
                StreamAnswer::read(&mut FrameReader::new(Bytes::from_static(bytes))),
                Err(expected),
                "{bytes:?}"
            );
        };
        check(b"\x00\0\0\0\x01\xff\xff\xff\xff", FrameError::Short);
        check(b"\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff", FrameError::Short);
        check(b"\x05\0\0\0\0\0\0\0\0\xff\xff\xff\xff", FrameError::Short);
        check(b"\x06\x02", FrameError::Value("flags"));
        check(b"\x02", FrameError::Value("answer"));
        check(b"\xff\x08", FrameError::Value("reason"));
    }
}
