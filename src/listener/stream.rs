//! Streams and their consumers in the frames of the local protocol: requests and answers; encoding and decoding.

use crate::event::model::{Json, JsonError, ServerId};
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::stream::store::{ConsumerRow, Contents, MissedRange, Policy, StreamLimits, StreamSettings};
use crate::listener::codec::{FrameError, FrameReader, put_bytes8, put_bytes32};
use crate::listener::event::{id, put_id, put_time, put_types, read_types, time};
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::BTreeSet;
use std::fmt;
use std::str::{self, FromStr};
use std::time::Duration;

/// Minimum number of bytes of an event: its id, time and origin, and the lengths of its type and data.
const EVENT_BYTES_MIN: usize = 8 + 8 + 20 + 1 + 4;
/// Minimum number of bytes of a consumer: the lengths of its names, four numbers, and a flag for a lapsed consumer.
const CONSUMER_BYTES_MIN: usize = 2 + 4 * 8 + 1;
/// Minimum number of bytes of a stream: the length of its name, its types, its limits and four numbers.
const STREAM_BYTES_MIN: usize = 1 + 4 + 1 + 4 * 8;

const LIST: u8 = 0;
const ADD: u8 = 1;
const POLL: u8 = 2;
const READ: u8 = 3;
const ACCEPT: u8 = 4;
const CONSUMERS: u8 = 5;
const REGISTER: u8 = 6;
const RESET: u8 = 7;
const REMOVE: u8 = 8;

/// Code of a refusal. It is distinct from the codes of requests, which begin the answers to them.
const REFUSED: u8 = 0xff;

/// Flags of optional fields.
const LAST: u8 = 0x01;
const WANT: u8 = 0x02;
const AGE: u8 = 0x01;
const BYTES: u8 = 0x02;
const BLOCK: u8 = 0x04;

const START: u8 = 0;
const END: u8 = 1;
const AT: u8 = 2;

/// A request about a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// Name of the stream. `None` selects the first stream of the configuration, or all streams for `List`.
    pub stream: Option<StreamName>,
    /// The operation.
    pub what: StreamOperation,
}

/// Operations on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamOperation {
    /// Lists streams and their contents.
    List,
    /// Adds an event.
    Add {
        /// Its type.
        kind: StreamType,
        /// Its data.
        data: Json,
    },
    /// Reads the events after the position that a consumer has accepted.
    Poll {
        /// The consumer.
        consumer: Consumer,
        /// Position that the consumer accepts with this request.
        last: Option<StreamId>,
        /// Types that the consumer wants; `None` for all. The consumer accepts events of other types automatically.
        want: Option<BTreeSet<StreamType>>,
        /// Maximum number of events.
        events_max: u32,
    },
    /// Reads the events after a position, without a consumer.
    Read {
        /// Position before the first event to read.
        after: StreamId,
        /// Types of the events; `None` for all.
        want: Option<BTreeSet<StreamType>>,
        /// Maximum number of events.
        events_max: u32,
    },
    /// Accepts all events up to this position for a consumer.
    Accept(Consumer, StreamId),
    /// Lists the registered consumers.
    Consumers,
    /// Registers a consumer, or resumes a lapsed one.
    Register(Consumer),
    /// Sets the position of a consumer.
    Reset(Consumer, ResetPosition),
    /// Removes a consumer.
    Remove(Consumer),
}

/// A position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetPosition {
    /// Before the first retained event.
    Start,
    /// After the last event.
    End,
    /// After the event with this id.
    Behind(StreamId),
}

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
    /// Server of the peer. The id of an event belongs to a stream of one server.
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
    /// Position where the read began. It is the accepted position if that is later than the requested one.
    pub after: StreamId,
    /// The events.
    pub events: Vec<StreamEvent>,
    /// Position up to which the answer is complete: it has all wanted events after `after`.
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
        let text = "too many requests about streams wait at the peer: wait for answers before asking more";
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
}

impl StreamRequest {
    /// Appends the request.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        let what = match &self.what {
            StreamOperation::List => LIST,
            StreamOperation::Add { .. } => ADD,
            StreamOperation::Poll { .. } => POLL,
            StreamOperation::Read { .. } => READ,
            StreamOperation::Accept(..) => ACCEPT,
            StreamOperation::Consumers => CONSUMERS,
            StreamOperation::Register(_) => REGISTER,
            StreamOperation::Reset(..) => RESET,
            StreamOperation::Remove(_) => REMOVE,
        };
        out.put_u8(what);
        put_bytes8(out, self.stream.as_ref().map_or("", |stream| stream.as_str()).as_bytes());
        match &self.what {
            StreamOperation::List | StreamOperation::Consumers => {}
            StreamOperation::Add { kind, data } => {
                put_bytes8(out, kind.as_str().as_bytes());
                put_bytes32(out, data.bytes());
            }
            StreamOperation::Poll { consumer, last, want, events_max } => {
                put_consumer(out, consumer);
                put_read_range(out, *last, want.as_ref(), *events_max);
            }
            StreamOperation::Read { after, want, events_max } => {
                put_read_range(out, Some(*after), want.as_ref(), *events_max)
            }
            StreamOperation::Accept(consumer, up_to) => {
                put_consumer(out, consumer);
                out.put_u64(up_to.number());
            }
            StreamOperation::Register(consumer) | StreamOperation::Remove(consumer) => put_consumer(out, consumer),
            StreamOperation::Reset(consumer, place) => {
                put_consumer(out, consumer);
                match place {
                    ResetPosition::Start => out.put_u8(START),
                    ResetPosition::End => out.put_u8(END),
                    ResetPosition::Behind(id) => {
                        out.put_u8(AT);
                        out.put_u64(id.number());
                    }
                }
            }
        }
    }

    /// Reads a request.
    pub(crate) fn read(reader: &mut FrameReader) -> Result<StreamRequest, FrameError> {
        let what = reader.u8()?;
        let name = reader.bytes8()?;
        let stream = if name.is_empty() { None } else { Some(parsed(&name, "stream")?) };
        let what = match what {
            LIST => StreamOperation::List,
            ADD => {
                let kind = parsed(&reader.bytes8()?, "type")?;
                StreamOperation::Add { kind, data: json(reader, Json::from_bytes)? }
            }
            POLL => {
                let consumer = consumer(reader)?;
                let (last, want, events_max) = read_range(reader)?;
                StreamOperation::Poll { consumer, last, want, events_max }
            }
            READ => {
                let (after, want, events_max) = read_range(reader)?;
                StreamOperation::Read { after: after.ok_or(FrameError::Value("flags"))?, want, events_max }
            }
            ACCEPT => StreamOperation::Accept(consumer(reader)?, stream_id(reader)?),
            CONSUMERS => StreamOperation::Consumers,
            REGISTER => StreamOperation::Register(consumer(reader)?),
            RESET => {
                let consumer = consumer(reader)?;
                let place = match reader.u8()? {
                    START => ResetPosition::Start,
                    END => ResetPosition::End,
                    AT => ResetPosition::Behind(stream_id(reader)?),
                    _ => return Err(FrameError::Value("place")),
                };
                StreamOperation::Reset(consumer, place)
            }
            REMOVE => StreamOperation::Remove(consumer(reader)?),
            _ => return Err(FrameError::Value("request")),
        };
        Ok(StreamRequest { stream, what })
    }
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
            Err(StreamRefusal { kind, text }) => {
                out.put_u8(REFUSED);
                put_refusal_kind(out, *kind);
                put_bytes32(out, text.as_bytes());
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
            REGISTER => StreamAnswer::Registered(boolean(reader)?.then(|| row(reader)).transpose()?),
            RESET => StreamAnswer::Position(stream_id(reader)?),
            REMOVE => StreamAnswer::Removed,
            REFUSED => {
                let kind = refusal_kind(reader)?;
                let text = String::from_utf8(reader.bytes32()?.to_vec()).map_err(|_| FrameError::Value("text"))?;
                return Ok(Err(StreamRefusal { kind, text }));
            }
            _ => return Err(FrameError::Value("answer")),
        }))
    }
}

fn put_numbers(out: &mut BytesMut, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.put_u64(*number));
}

fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u32(u32::try_from(count).expect("a frame has fewer bytes"));
}

fn put_consumer(out: &mut BytesMut, Consumer { user, component }: &Consumer) {
    put_bytes8(out, user.as_str().as_bytes());
    put_bytes8(out, component.as_str().as_bytes());
}

fn consumer(reader: &mut FrameReader) -> Result<Consumer, FrameError> {
    let user = parsed(&reader.bytes8()?, "user")?;
    Ok(Consumer { user, component: parsed(&reader.bytes8()?, "component")? })
}

fn put_read_range(out: &mut BytesMut, last: Option<StreamId>, want: Option<&BTreeSet<StreamType>>, events_max: u32) {
    out.put_u8(if last.is_some() { LAST } else { 0 } | if want.is_some() { WANT } else { 0 });
    last.iter().for_each(|last| out.put_u64(last.number()));
    if let Some(want) = want {
        put_count(out, want.len());
        want.iter().for_each(|kind| put_bytes8(out, kind.as_str().as_bytes()));
    }
    out.put_u32(events_max);
}

type ReadRange = (Option<StreamId>, Option<BTreeSet<StreamType>>, u32);

fn read_range(reader: &mut FrameReader) -> Result<ReadRange, FrameError> {
    let flags = reader.u8()?;
    if flags & !(LAST | WANT) != 0 {
        return Err(FrameError::Value("flags"));
    }
    let last = if flags & LAST == 0 { None } else { Some(stream_id(reader)?) };
    let want = match flags & WANT {
        0 => None,
        _ => {
            let count = reader.count32(2)?;
            Some((0..count).map(|_| parsed(&reader.bytes8()?, "want")).collect::<Result<_, _>>()?)
        }
    };
    Ok((last, want, reader.u32()?))
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
        let name = parsed(&reader.bytes8()?, "stream")?;
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
    let kind = parsed(&reader.bytes8()?, "type")?;
    Ok(StreamEvent { id, kind, data: json(reader, Json::from_stored)?, time, origin })
}

fn put_row(out: &mut BytesMut, row: &ConsumerRow) {
    put_consumer(out, &row.consumer);
    out.put_u64(row.position.number());
    put_time(out, row.registered);
    put_time(out, row.heard);
    out.put_u64(row.behind);
    out.put_u8(u8::from(row.lapsed.is_some()));
    row.lapsed.iter().for_each(|missed| put_missed(out, *missed));
}

fn row(reader: &mut FrameReader) -> Result<ConsumerRow, FrameError> {
    let (consumer, position) = (consumer(reader)?, stream_id(reader)?);
    let (registered, heard, behind) = (time(reader)?, time(reader)?, reader.u64()?);
    let lapsed = boolean(reader)?.then(|| missed(reader)).transpose()?;
    Ok(ConsumerRow { consumer, position, lapsed, registered, heard, behind })
}

fn put_missed(out: &mut BytesMut, MissedRange { first, last, count }: MissedRange) {
    put_numbers(out, &[first.number(), last.number(), count]);
}

fn missed(reader: &mut FrameReader) -> Result<MissedRange, FrameError> {
    Ok(MissedRange { first: stream_id(reader)?, last: stream_id(reader)?, count: reader.u64()? })
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
        7 => Kind::Lapsed(missed(reader)?),
        _ => return Err(FrameError::Value("why")),
    })
}

fn boolean(reader: &mut FrameReader) -> Result<bool, FrameError> {
    crate::listener::frame::flag(reader, 1)
}

fn json(reader: &mut FrameReader, check: fn(Bytes) -> Result<Json, JsonError>) -> Result<Json, FrameError> {
    check(reader.bytes32()?).map_err(|_| FrameError::Value("JSON"))
}

fn stream_id(reader: &mut FrameReader) -> Result<StreamId, FrameError> {
    StreamId::from_number(reader.u64()?).ok_or(FrameError::Value("id"))
}

fn parsed<T: FromStr>(text: &Bytes, field: &'static str) -> Result<T, FrameError> {
    str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(FrameError::Value(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let check = |bytes: &'static [u8], expected: FrameError| {
            assert_eq!(
                StreamRequest::read(&mut FrameReader::new(Bytes::from_static(bytes))),
                Err(expected),
                "{bytes:?}"
            );
        };
        check(b"", FrameError::Short);
        check(b"\x09\0", FrameError::Value("request"));
        check(b"\x00\x04Main", FrameError::Value("stream"));
        check(b"\x01\0\x01a\0\0\0\x011", FrameError::Value("type"));
        check(b"\x01\0\x01A\0\0\0\x01{", FrameError::Value("JSON"));
        check(b"\x01\0\x01A\xff\xff\xff\xff1", FrameError::Short);
        check(b"\x02\0\x01u\x02a-\0", FrameError::Value("component"));
        check(b"\x02\0\x03u:v\x01a\0", FrameError::Value("user"));
        check(b"\x02\0\x01u\x01a\x04", FrameError::Value("flags"));
        check(b"\x02\0\x01u\x01a\x02\xff\xff\xff\xff", FrameError::Short);
        check(b"\x02\0\x01u\x01a\x02\0\0\0\x01\x01a\0\0", FrameError::Value("want"));
        check(b"\x03\0\0\0\0\0\x01", FrameError::Value("flags"));
        check(b"\x04\0\x01u\x01a\xff\xff\xff\xff\xff\xff\xff\xff", FrameError::Value("id"));
        check(b"\x07\0\x01u\x01a\x03", FrameError::Value("place"));
    }

    #[test]
    fn lists_are_not_believed_to_be_longer_than_what_is_there() {
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
        check(b"\xff\x08", FrameError::Value("why"));
    }
}
