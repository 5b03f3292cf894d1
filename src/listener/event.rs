//! Encoding and decoding of events and queries in frames of the local protocol. Replication between peers uses the same
//! encoding of events.

use crate::event::model::{Event, EventId, Json, JsonError, Payload, Registration, ServerId};
use crate::event::refusal::{EventRefusal, EventRefusalKind};
use crate::event::store::{ANSWER_BYTES_MAX, EVENT_BYTES, Query, Series, SeriesOrder, ServerQuery, TimeSpan};
use crate::event::timestamp::Timestamp;
use crate::listener::codec::{FrameError, FrameReader, put_bytes8, put_bytes32};
use crate::listener::value::{decode_code, encode_code};
use crate::subject::Subject;
use crate::subject::event_type::{EventType, TypePattern};
use bytes::{BufMut, Bytes, BytesMut};
use std::str;

/// Minimum number of bytes of an entry: the length of a type, flags, and the length or absence of all other fields.
const ENTRY_BYTES_MIN: usize = 3;
/// Maximum number of bytes of a part of an answer, unless a single event is larger.
const PART_BYTES: usize = 1 << 20;
/// Approximate overhead of an event in a part, in bytes, in addition to its payload.
const PART_EVENT_BYTES: usize = 512;
/// Maximum number of parts of an answer. Two consecutive parts together hold more than [`PART_BYTES`]. An event
/// counts at most [`PART_EVENT_BYTES`] / [`EVENT_BYTES`] times as much here as in the answer. The last event of an
/// answer may have any size.
pub(crate) const PARTS_MAX: usize = 2 * (PART_EVENT_BYTES / EVENT_BYTES) * (ANSWER_BYTES_MAX / PART_BYTES) + 2;

/// Flags of an entry.
const SOURCE_TIME: u8 = 0x01;
const JSON: u8 = 0x02;
const BINARY: u8 = 0x04;

/// Flags of a query: each marks an optional part that follows, in this order.
const TYPES: u16 = 0x0001;
const FROM: u16 = 0x0002;
const TO: u16 = 0x0004;
const SOURCE_FROM: u16 = 0x0008;
const SOURCE_TO: u16 = 0x0010;
const AFTER: u16 = 0x0020;
const LIMIT: u16 = 0x0040;
/// Flags of a query without a part that follows.
const BY_SOURCE_TIME: u16 = 0x0080;
const DESCENDING: u16 = 0x0100;

const LATEST: u8 = 0;
const SERIES: u8 = 1;
const SERVER: u8 = 2;

const REGISTER: u8 = 0;
const QUERY: u8 = 1;

/// Codes of refusals, distinct from [`REGISTER`] and [`QUERY`], which begin an answer.
const KINDS: [(u8, EventRefusalKind); 5] = [
    (2, EventRefusalKind::Invalid),
    (3, EventRefusalKind::Unavailable),
    (4, EventRefusalKind::Full),
    (5, EventRefusalKind::Busy),
    (6, EventRefusalKind::Stopping),
];

/// A request of a client about events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventRequest {
    /// Registers these events in one session.
    Register(Vec<Registration>),
    /// Queries events.
    Query(Query),
}

/// Answer to an event request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAnswer {
    /// The events are stored.
    Registered(RegisteredSession),
    /// A part of the events found.
    Found(EventAnswerPart),
}

impl EventRequest {
    /// Appends the request.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        match self {
            EventRequest::Register(registrations) => {
                out.put_u8(REGISTER);
                put_registrations(out, registrations);
            }
            EventRequest::Query(query) => {
                out.put_u8(QUERY);
                put_query(out, query);
            }
        }
    }

    /// Reads a request.
    pub(crate) fn read(reader: &mut FrameReader) -> Result<EventRequest, FrameError> {
        match reader.u8()? {
            REGISTER => Ok(EventRequest::Register(registrations(reader)?)),
            QUERY => Ok(EventRequest::Query(query(reader)?)),
            _ => Err(FrameError::Value("request")),
        }
    }
}

impl EventAnswer {
    /// Appends an answer or a refusal.
    pub(crate) fn put(answer: &Result<EventAnswer, EventRefusal>, out: &mut BytesMut) {
        match answer {
            Ok(EventAnswer::Registered(session)) => {
                out.put_u8(REGISTER);
                put_session(out, session);
            }
            Ok(EventAnswer::Found(part)) => {
                out.put_u8(QUERY);
                put_part(out, part);
            }
            Err(refusal) => {
                out.put_u8(encode_code(&KINDS, &refusal.kind));
                put_bytes32(out, refusal.text.as_bytes());
            }
        }
    }

    /// Reads an answer or a refusal.
    pub(crate) fn read(reader: &mut FrameReader) -> Result<Result<EventAnswer, EventRefusal>, FrameError> {
        match reader.u8()? {
            REGISTER => Ok(Ok(EventAnswer::Registered(session(reader)?))),
            QUERY => Ok(Ok(EventAnswer::Found(part(reader)?))),
            kind => {
                let kind = decode_code(&KINDS, kind, "answer")?;
                let text = String::from_utf8(reader.bytes32()?.to_vec()).map_err(|_| FrameError::Value("text"))?;
                Ok(Err(EventRefusal { kind, text }))
            }
        }
    }
}

/// Result of a request to register events: the session whose number is part of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredSession {
    /// Server that registered the events.
    pub server: ServerId,
    /// Session of the events; 0 if the request had no events.
    pub session: u64,
    /// Timestamp of all events of the session.
    pub timestamp: Timestamp,
}

/// A part of the answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventAnswerPart {
    /// Events, in the requested order.
    pub events: Vec<Event>,
    /// True if this is the last part.
    pub is_last: bool,
    /// True if more events match than the limit of the query, or of the journal, allows.
    pub more_follows: bool,
}

/// Splits an answer into parts that each fit a frame.
pub(crate) fn split_answer(events: Vec<Event>, more_follows: bool) -> Vec<EventAnswerPart> {
    let mut parts = vec![EventAnswerPart { events: Vec::new(), is_last: false, more_follows }];
    let mut bytes = 0;
    for event in events {
        let size = event.payload_size() + PART_EVENT_BYTES;
        if PART_BYTES < bytes + size && 0 < bytes {
            parts.push(EventAnswerPart { events: Vec::new(), is_last: false, more_follows });
            bytes = 0;
        }
        bytes += size;
        parts.last_mut().expect("the list has a part").events.push(event);
    }
    parts.last_mut().expect("the list has a part").is_last = true;
    parts
}

fn put_registrations(out: &mut BytesMut, registrations: &[Registration]) {
    out.put_u32(u32::try_from(registrations.len()).expect("a frame has fewer bytes"));
    for Registration { event_type, source_timestamp, payload } in registrations {
        put_entry(out, event_type, *source_timestamp, payload.as_ref());
    }
}

fn registrations(reader: &mut FrameReader) -> Result<Vec<Registration>, FrameError> {
    let count = reader.count32(ENTRY_BYTES_MIN)?;
    (0..count).map(|_| registration(reader, Json::from_bytes)).collect()
}

fn put_session(out: &mut BytesMut, session: &RegisteredSession) {
    out.put_u32(session.server.0);
    out.put_u64(session.session);
    put_time(out, session.timestamp);
}

fn session(reader: &mut FrameReader) -> Result<RegisteredSession, FrameError> {
    Ok(RegisteredSession { server: ServerId(reader.u32()?), session: reader.u64()?, timestamp: time(reader)? })
}

fn put_part(out: &mut BytesMut, part: &EventAnswerPart) {
    out.put_u8(u8::from(part.is_last));
    out.put_u8(u8::from(part.more_follows));
    put_events(out, &part.events);
}

fn part(reader: &mut FrameReader) -> Result<EventAnswerPart, FrameError> {
    let (is_last, more_follows) = (boolean(reader)?, boolean(reader)?);
    Ok(EventAnswerPart { events: events(reader)?, is_last, more_follows })
}

/// Appends the number of events and the events.
pub(super) fn put_events(out: &mut BytesMut, events: &[Event]) {
    out.put_u32(u32::try_from(events.len()).expect("a frame has fewer bytes"));
    for event in events {
        put_id(out, event.id);
        put_time(out, event.timestamp);
        put_entry(out, &event.event_type, event.source_timestamp, event.payload.as_ref());
    }
}

/// Reads the number of events and the events.
pub(super) fn events(reader: &mut FrameReader) -> Result<Vec<Event>, FrameError> {
    let count = reader.count32(ENTRY_BYTES_MIN)?;
    let event = |reader: &mut FrameReader| {
        let (id, timestamp) = (id(reader)?, time(reader)?);
        if !id.is_of_event() {
            return Err(FrameError::Value("id"));
        }
        let Registration { event_type, source_timestamp, payload } = registration(reader, Json::from_stored)?;
        Ok(Event { id, event_type, timestamp, source_timestamp, payload })
    };
    (0..count).map(|_| event(reader)).collect()
}

/// Appends a query.
fn put_query(out: &mut BytesMut, query: &Query) {
    match query {
        Query::Latest(types) => {
            out.put_u8(LATEST);
            out.put_u16(if types.is_some() { TYPES } else { 0 });
            types.iter().for_each(|types| put_types(out, types));
        }
        Query::Series(series) => {
            out.put_u8(SERIES);
            put_series(out, series);
        }
        Query::Server(ServerQuery { server, after, limit }) => {
            out.put_u8(SERVER);
            out.put_u32(server.0);
            out.put_u16(flag(AFTER, after.is_some()) | flag(LIMIT, limit.is_some()));
            after.iter().for_each(|after| put_id(out, *after));
            limit.iter().for_each(|limit| out.put_u64(*limit as u64));
        }
    }
}

fn put_series(out: &mut BytesMut, series: &Series) {
    let Series { types, time, source_time, by, is_descending, after, limit } = series;
    let times = [(FROM, time.from), (TO, time.to), (SOURCE_FROM, source_time.from), (SOURCE_TO, source_time.to)];
    let mut flags = flag(TYPES, types.is_some()) | flag(AFTER, after.is_some()) | flag(LIMIT, limit.is_some());
    flags |= flag(BY_SOURCE_TIME, *by == SeriesOrder::SourceTime) | flag(DESCENDING, *is_descending);
    flags |= times.iter().fold(0, |flags, (bit, time)| flags | flag(*bit, time.is_some()));
    out.put_u16(flags);
    types.iter().for_each(|types| put_types(out, types));
    times.iter().filter_map(|(_, time)| *time).for_each(|time| put_time(out, time));
    after.iter().for_each(|after| put_id(out, *after));
    limit.iter().for_each(|limit| out.put_u64(*limit as u64));
}

/// Reads a query. [`Query::check`] validates its meaning.
fn query(reader: &mut FrameReader) -> Result<Query, FrameError> {
    let kind = reader.u8()?;
    let server = if kind == SERVER { ServerId(reader.u32()?) } else { ServerId(0) };
    let flags = reader.u16()?;
    let known = match kind {
        LATEST => TYPES,
        SERIES => 2 * DESCENDING - 1,
        SERVER => AFTER | LIMIT,
        _ => return Err(FrameError::Value("question")),
    };
    if flags & !known != 0 {
        return Err(FrameError::Value("flags"));
    }
    let has = |flag: u16| flags & flag != 0;
    let types = has(TYPES).then(|| read_types(reader)).transpose()?;
    let mut next_time = |flag| has(flag).then(|| time(reader)).transpose();
    let time = TimeSpan { from: next_time(FROM)?, to: next_time(TO)? };
    let source_time = TimeSpan { from: next_time(SOURCE_FROM)?, to: next_time(SOURCE_TO)? };
    let after = has(AFTER).then(|| id(reader)).transpose()?;
    let limit = has(LIMIT).then(|| reader.u64()).transpose()?;
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(match kind {
        LATEST => Query::Latest(types),
        SERVER => Query::Server(ServerQuery { server, after, limit }),
        _ => {
            let by = if has(BY_SOURCE_TIME) { SeriesOrder::SourceTime } else { SeriesOrder::Time };
            Query::Series(Series { types, time, source_time, by, is_descending: has(DESCENDING), after, limit })
        }
    })
}

fn flag(flag: u16, is_set: bool) -> u16 {
    if is_set { flag } else { 0 }
}

fn boolean(reader: &mut FrameReader) -> Result<bool, FrameError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FrameError::Value("flag")),
    }
}

pub(super) fn put_types(out: &mut BytesMut, types: &[TypePattern]) {
    out.put_u32(u32::try_from(types.len()).expect("a frame has fewer bytes"));
    types.iter().for_each(|pattern| put_bytes32(out, pattern.to_string().as_bytes()));
}

pub(super) fn read_types(reader: &mut FrameReader) -> Result<Vec<TypePattern>, FrameError> {
    let count = reader.count32(4)?;
    let pattern = |text: Bytes| str::from_utf8(&text).ok()?.parse().ok();
    (0..count).map(|_| pattern(reader.bytes32()?).ok_or(FrameError::Value("types"))).collect()
}

pub(super) fn put_id(out: &mut BytesMut, id: EventId) {
    out.put_u32(id.server.0);
    out.put_u64(id.session);
    out.put_u64(id.instance);
}

pub(super) fn id(reader: &mut FrameReader) -> Result<EventId, FrameError> {
    Ok(EventId { server: ServerId(reader.u32()?), session: reader.u64()?, instance: reader.u64()? })
}

pub(super) fn put_time(out: &mut BytesMut, time: Timestamp) {
    out.put_i64(time.as_micros());
}

pub(super) fn time(reader: &mut FrameReader) -> Result<Timestamp, FrameError> {
    Timestamp::from_micros(reader.u64()?.cast_signed()).map_err(|_| FrameError::Value("time"))
}

/// Appends the fields of an event that its source sets. The type is encoded as the subject of its events.
fn put_entry(out: &mut BytesMut, event_type: &EventType, source: Option<Timestamp>, payload: Option<&Payload>) {
    put_bytes8(out, event_type.subject().as_bytes());
    let kind = match payload {
        None => 0,
        Some(Payload::Json(_)) => JSON,
        Some(Payload::Binary { .. }) => BINARY,
    };
    out.put_u8(kind | if source.is_some() { SOURCE_TIME } else { 0 });
    source.iter().for_each(|time| put_time(out, *time));
    if let Some(Payload::Binary { type_name, .. }) = payload {
        put_bytes32(out, type_name.as_bytes());
    }
    payload.iter().for_each(|payload| put_bytes32(out, payload.bytes()));
}

fn registration(
    reader: &mut FrameReader,
    json: fn(Bytes) -> Result<Json, JsonError>,
) -> Result<Registration, FrameError> {
    let subject = Subject::from_bytes(reader.bytes8()?)?;
    let event_type = EventType::of_subject(&subject).ok_or(FrameError::Value("type"))?;
    let flags = reader.u8()?;
    let source_timestamp = if flags & SOURCE_TIME == 0 { None } else { Some(time(reader)?) };
    let payload = match flags & !SOURCE_TIME {
        0 => None,
        JSON => Some(Payload::Json(json(reader.bytes32()?).map_err(|_| FrameError::Value("JSON"))?)),
        BINARY => {
            let type_name = reader.bytes32()?;
            let type_name = str::from_utf8(&type_name).map_err(|_| FrameError::Value("payload type"))?.into();
            Some(Payload::Binary { type_name, bytes: reader.bytes32()? })
        }
        _ => return Err(FrameError::Value("flags")),
    };
    Ok(Registration { event_type, source_timestamp, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::store::QueryPageBuilder;

    /// An answer much larger than a frame is split into parts that fit, in order.
    #[test]
    fn large_answer_is_split_into_frames() {
        let event = |instance: u64, bytes: usize| Event {
            id: EventId { server: ServerId(1), session: 1, instance },
            event_type: "a".parse().unwrap(),
            timestamp: Timestamp::MIN,
            source_timestamp: None,
            payload: Some(Payload::Binary { type_name: "".into(), bytes: vec![0; bytes].into() }),
        };
        let sizes = [0, 600_000, 600_000, 8 << 20, 0, 0];
        let events: Vec<Event> = (1..).zip(sizes).map(|(instance, bytes)| event(instance, bytes)).collect();
        let parts = split_answer(events, true);
        let shape: Vec<(Vec<u64>, bool, bool)> = parts
            .iter()
            .map(|part| (part.events.iter().map(|event| event.id.instance).collect(), part.is_last, part.more_follows))
            .collect();
        let expected =
            [(vec![1, 2], false, true), (vec![3], false, true), (vec![4], false, true), (vec![5, 6], true, true)];
        assert_eq!(shape, expected);
        assert_eq!(
            split_answer(Vec::new(), false),
            [EventAnswerPart { events: Vec::new(), is_last: true, more_follows: false }]
        );
    }

    #[test]
    fn largest_answer_has_a_bounded_number_of_parts() {
        let event = |bytes: usize| Event {
            id: EventId { server: ServerId(1), session: 1, instance: 1 },
            event_type: "a".parse().unwrap(),
            timestamp: Timestamp::MIN,
            source_timestamp: None,
            payload: Some(Payload::Binary { type_name: "".into(), bytes: vec![0; bytes].into() }),
        };
        // The first case has many small events. The second has small events between events that fill a part.
        for (sizes, parts_min) in [([0, 0], 31), ([0, PART_BYTES - PART_EVENT_BYTES], 16)] {
            let mut answering = QueryPageBuilder::new(&Query::Latest(None));
            while sizes.into_iter().all(|bytes| answering.take(event(bytes))) {}
            let count = split_answer(answering.end().events, true).len();
            assert!(parts_min <= count && count <= PARTS_MAX, "{count} parts of events of {sizes:?} bytes");
        }
    }

    #[test]
    fn malformed_event_frame_is_refused() {
        let check = |bytes: &'static [u8], expected: FrameError| {
            assert_eq!(
                EventRequest::read(&mut FrameReader::new(Bytes::from_static(bytes))),
                Err(expected),
                "{bytes:?}"
            );
        };
        check(b"\x02", FrameError::Value("request"));
        check(b"\x00\0\0\x01\0", FrameError::Short);
        check(b"\x00\0\0\0\x01\x01?\0", FrameError::Value("type"));
        check(b"\x00\0\0\0\x01\x01a\x06", FrameError::Value("flags"));
        check(b"\x00\0\0\0\x01\x01a\x02\0\0\0\x01{", FrameError::Value("JSON"));
        check(b"\x00\0\0\0\x01\x01a\x01\x7f\xff\xff\xff\xff\xff\xff\xff", FrameError::Value("time"));
        check(b"\x01\x03\0\0", FrameError::Value("question"));
        check(b"\x01\x00\0\x02", FrameError::Value("flags"));
        check(b"\x01\x01\x02\0", FrameError::Value("flags"));
        check(b"\x01\x00\0\x01\0\0\0\x01\0\0\0\x03*/a", FrameError::Value("types"));
    }
}
