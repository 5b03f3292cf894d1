//! Values in messages: types, times, ids and events.
//!
//! ```text
//! type         array of texts
//! timestamp    seconds integer · microseconds integer, which are added; both from 1970
//! id           server, session, instance: integers
//! payload      choice: (type text · bytes) · JSON text
//! registration type · source timestamp optional · payload optional
//! event        id · type · timestamp · source timestamp optional · payload optional
//! ```

use super::sbs::{SbsError, SbsErrorKind, SbsReader, put_bytes, put_count, put_integer, put_optional, put_text};
use crate::event::model::{Event, EventId, Json, JsonError, Payload, Registration, ServerId};
use crate::event::timestamp::Timestamp;
use crate::subject::SUBJECT_TOKENS_MAX;
use crate::subject::event_type::{EventType, TypeError, TypePattern};
use bytes::{Bytes, BytesMut};
use std::fmt;

/// Maximum bytes of an event's headers on the bus, without the name of its payload's type.
const HEADERS_BYTES_MAX: usize = 256;
const SECOND_MICROS: i128 = 1_000_000;

/// The reason why an event cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationError {
    /// Its type is invalid.
    Type(TypeError),
    /// Its source timestamp is outside the years 0000 to 9999. Holds microseconds since 1970.
    SourceTime(i128),
    /// Its JSON payload is invalid.
    Json(JsonError),
    /// Its payload is too large.
    TooLarge {
        /// Bytes of the payload and of its type's name, of which each byte counts three.
        bytes: usize,
        /// Maximum bytes.
        bytes_max: usize,
    },
}

impl fmt::Display for RegistrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistrationError::Type(error) => error.fmt(f),
            RegistrationError::SourceTime(micros) => {
                write!(f, "the source timestamp {micros} µs from 1970 is not in the years 0000 to 9999")
            }
            RegistrationError::Json(error) => error.fmt(f),
            RegistrationError::TooLarge { bytes, bytes_max } => {
                write!(f, "the payload has {bytes} bytes, at most {bytes_max} are allowed")
            }
        }
    }
}

impl std::error::Error for RegistrationError {}

/// Reads a list of texts into `list`, replacing its content. Of a list longer than any pattern, stores only as many
/// elements as prove that it is too long.
pub(super) fn subtypes<'a>(reader: &mut SbsReader<'a>, list: &mut Vec<&'a str>) -> Result<(), SbsError> {
    list.clear();
    for _ in 0..reader.count(1)? {
        let subtype = reader.text()?;
        if list.len() <= SUBJECT_TOKENS_MAX + 1 {
            list.push(subtype);
        }
    }
    Ok(())
}

/// Appends a type.
fn put_type(out: &mut BytesMut, event_type: &EventType) {
    put_count(out, event_type.subtypes().count());
    event_type.subtypes().for_each(|subtype| put_text(out, &subtype));
}

/// Appends the pattern of a type.
pub(super) fn put_pattern(out: &mut BytesMut, pattern: &TypePattern) {
    // A subtype contains no '/'.
    let text = pattern.to_string();
    put_count(out, text.split('/').count());
    text.split('/').for_each(|subtype| put_text(out, subtype));
}

/// Reads a timestamp, in microseconds since 1970.
pub(super) fn micros(reader: &mut SbsReader<'_>) -> Result<i128, SbsError> {
    Ok(reader.integer()? * SECOND_MICROS + reader.integer()?)
}

/// Returns the time this number of microseconds after 1970, if it is in range.
pub(super) fn time(micros: i128) -> Option<Timestamp> {
    Timestamp::from_micros(i64::try_from(micros).ok()?).ok()
}

/// Appends a timestamp.
pub(super) fn put_time(out: &mut BytesMut, time: Timestamp) {
    let micros = i128::from(time.as_micros());
    put_integer(out, micros.div_euclid(SECOND_MICROS));
    put_integer(out, micros.rem_euclid(SECOND_MICROS));
}

/// Reads server, session and instance, even if no event can have them.
pub(super) fn id(reader: &mut SbsReader<'_>) -> Result<[i128; 3], SbsError> {
    Ok([reader.integer()?, reader.integer()?, reader.integer()?])
}

/// Appends an id.
pub(super) fn put_id(out: &mut BytesMut, id: EventId) {
    put_integer(out, id.server.0.into());
    put_integer(out, id.session.into());
    put_integer(out, id.instance.into());
}

/// Reads an event to be registered, of at most `message_bytes_max` bytes as a message on the bus. `list` is a reusable
/// buffer.
pub(super) fn registration<'a>(
    reader: &mut SbsReader<'a>,
    message_bytes_max: usize,
    list: &mut Vec<&'a str>,
) -> Result<Result<Registration, RegistrationError>, SbsError> {
    let payload_bytes_max = message_bytes_max.saturating_sub(HEADERS_BYTES_MAX);
    subtypes(reader, list)?;
    let micros = reader.optional(micros)?;
    let payload = reader.optional(|reader| payload(reader, payload_bytes_max))?;
    let validate = || {
        let event_type = EventType::new(list.iter().copied()).map_err(RegistrationError::Type)?;
        let source_timestamp =
            micros.map(|micros| time(micros).ok_or(RegistrationError::SourceTime(micros))).transpose()?;
        Ok(Registration { event_type, source_timestamp, payload: payload.transpose()? })
    };
    Ok(validate())
}

/// Reads a payload of at most `bytes_max` bytes, including its type's name, of which each byte counts three.
fn payload(reader: &mut SbsReader<'_>, bytes_max: usize) -> Result<Result<Payload, RegistrationError>, SbsError> {
    let is_binary = reader.choice(2)? == 0;
    let type_name = if is_binary { reader.text()? } else { "" };
    let bytes = if is_binary { reader.bytes()? } else { reader.text()?.as_bytes() };
    // A byte of the name is encoded as at most three.
    let size = bytes.len() + 3 * type_name.len();
    if bytes_max < size {
        return Ok(Err(RegistrationError::TooLarge { bytes: size, bytes_max }));
    }
    let bytes = Bytes::copy_from_slice(bytes);
    Ok(match is_binary {
        true => Ok(Payload::Binary { type_name: type_name.into(), bytes }),
        false => Json::from_bytes(bytes).map(Payload::Json).map_err(RegistrationError::Json),
    })
}

fn put_payload(out: &mut BytesMut, payload: &Payload) {
    match payload {
        Payload::Binary { type_name, bytes } => {
            put_count(out, 0);
            put_text(out, type_name);
            put_bytes(out, bytes);
        }
        Payload::Json(json) => {
            put_count(out, 1);
            put_bytes(out, json.bytes());
        }
    }
}

/// Appends an event to be registered.
pub(super) fn put_registration(out: &mut BytesMut, registration: &Registration) {
    put_type(out, &registration.event_type);
    put_content(out, registration.source_timestamp, registration.payload.as_ref());
}

fn put_content(out: &mut BytesMut, source_timestamp: Option<Timestamp>, payload: Option<&Payload>) {
    put_optional(out, source_timestamp, put_time);
    put_optional(out, payload, put_payload);
}

/// Reads events.
pub(super) fn events(reader: &mut SbsReader<'_>) -> Result<Vec<Event>, SbsError> {
    // An event has at least three numbers, a type, a time of two numbers, and markers for no source timestamp and no
    // payload.
    let count = reader.count(8)?;
    let mut list = Vec::new();
    (0..count).map(|_| event(reader, &mut list)).collect()
}

fn event<'a>(reader: &mut SbsReader<'a>, list: &mut Vec<&'a str>) -> Result<Event, SbsError> {
    let invalid_value = SbsError { at: reader.at(), kind: SbsErrorKind::Meaningless };
    let server = ServerId(reader.number()?);
    let id = EventId { server, session: reader.number()?, instance: reader.number()? };
    subtypes(reader, list)?;
    let event_type = EventType::new(list.iter().copied()).map_err(|_| invalid_value)?;
    let timestamp = time(micros(reader)?).ok_or(invalid_value)?;
    let source_timestamp = reader.optional(micros)?.map(|micros| time(micros).ok_or(invalid_value)).transpose()?;
    let payload = reader.optional(|reader| payload(reader, usize::MAX))?.transpose().map_err(|_| invalid_value)?;
    Ok(Event { id, event_type, timestamp, source_timestamp, payload })
}

/// Appends events.
pub(super) fn put_events<'a>(out: &mut BytesMut, events: impl ExactSizeIterator<Item = &'a Event>) {
    put_count(out, events.len());
    for event in events {
        put_id(out, event.id);
        put_type(out, &event.event_type);
        put_time(out, event.timestamp);
        put_content(out, event.source_timestamp, event.payload.as_ref());
    }
}
