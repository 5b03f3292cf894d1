//! Encoding of events on the bus. An event travels as a message on the subject of its type. The message is marked as an
//! event and has these header fields.
//!
//! | field | value |
//! |---|---|
//! | `Seqcast-Event` | the id: `7/42/1` |
//! | `Seqcast-Event-Time` | the timestamp: `2026-11-22T15:04:05.123456Z` |
//! | `Seqcast-Source-Time` | the source timestamp; absent if there is none |
//! | `Seqcast-Payload` | `json`, or `binary` and the type's name after a space, if not empty; absent without payload |
//!
//! In the name, `%` and all bytes but printable ASCII are written as `%` and two capital hexadecimal digits. The
//! payload of the message is the JSON text or the bytes. Other fields are ignored. Received messages are not trusted:
//! the decoder refuses a message unless all of its fields are valid.

use super::model::{Event, EventId, IdError, Json, JsonError, Payload, Registration};
use super::timestamp::{Timestamp, TimestampError};
use crate::message::{Headers, Message};
use crate::subject::Subject;
use crate::subject::channel::{decode_escape, put_escaped};
use crate::subject::event_type::EventType;
use bytes::Bytes;
use std::fmt;

const ID: &str = "Seqcast-Event";
const TIME: &str = "Seqcast-Event-Time";
const SOURCE_TIME: &str = "Seqcast-Source-Time";
const PAYLOAD: &str = "Seqcast-Payload";
/// Maximum number of bytes that encode one byte of a name.
const ESCAPED_BYTES: usize = 3;

/// The reason why a message is not an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// The message is not marked as an event.
    NotMarked,
    /// No type has this subject.
    Subject(Subject),
    /// This header field is missing.
    Missing(&'static str),
    /// This header field appears twice.
    Repeated(&'static str),
    /// The id is invalid.
    Id(IdError),
    /// The id is reserved: its session or instance is 0.
    Reserved(EventId),
    /// This header field is not a valid time.
    Time(&'static str, TimestampError),
    /// The field `Seqcast-Payload` is invalid.
    Payload,
    /// The message has a payload, but no field `Seqcast-Payload`.
    Unexplained,
    /// The payload is not a JSON text.
    Json(JsonError),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::NotMarked => write!(f, "the message is not marked as an event"),
            MessageError::Subject(subject) => write!(f, "no event type has the subject {subject}"),
            MessageError::Missing(key) => write!(f, "the event lacks the header {key}"),
            MessageError::Repeated(key) => write!(f, "the event has the header {key} twice"),
            MessageError::Id(error) => write!(f, "header {ID}: {error}"),
            MessageError::Reserved(id) => {
                write!(f, "header {ID}: {id} is the id of no event, sessions and instances begin at 1")
            }
            MessageError::Time(key, error) => write!(f, "header {key}: {error}"),
            MessageError::Payload => write!(f, "header {PAYLOAD} must be 'json', or 'binary' and an escaped name"),
            MessageError::Unexplained => write!(f, "the event has a payload and lacks the header {PAYLOAD}"),
            MessageError::Json(error) => write!(f, "the payload of the event: {error}"),
        }
    }
}

impl std::error::Error for MessageError {}

impl From<&Event> for Message {
    /// Returns the message that carries the event. The payload is not copied.
    fn from(event: &Event) -> Message {
        let (id, time) = (event.id.to_string(), event.timestamp.to_string());
        let source_time = event.source_timestamp.map(|time| time.to_string());
        let (kind, payload) = match &event.payload {
            None => (None, Bytes::new()),
            Some(Payload::Json(json)) => (Some("json".to_owned()), json.bytes().clone()),
            Some(Payload::Binary { type_name, bytes }) => (Some(binary_field(type_name)), bytes.clone()),
        };
        let optional = [(SOURCE_TIME, &source_time), (PAYLOAD, &kind)];
        let optional = optional.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?)));
        let headers = Headers::from_pairs([(ID, id.as_str()), (TIME, &time)].into_iter().chain(optional));
        let headers = headers.expect("the values are printable ASCII");
        Message { headers, event: true, ..Message::new(event.event_type.subject().clone(), payload) }
    }
}

impl Event {
    /// Decodes the event of a message. The payload is not copied.
    ///
    /// # Errors
    /// Returns the reason why the message is not an event.
    pub fn of_message(message: &Message) -> Result<Event, MessageError> {
        if !message.event {
            return Err(MessageError::NotMarked);
        }
        let event_type =
            EventType::of_subject(&message.subject).ok_or_else(|| MessageError::Subject(message.subject.clone()))?;
        let [id, time, source_time, kind] = find_fields(&message.headers)?;
        let id: EventId = id.ok_or(MessageError::Missing(ID))?.parse().map_err(MessageError::Id)?;
        if !id.is_of_event() {
            return Err(MessageError::Reserved(id));
        }
        let parse = |key, text: &str| text.parse().map_err(|error| MessageError::Time(key, error));
        let timestamp: Timestamp = parse(TIME, time.ok_or(MessageError::Missing(TIME))?)?;
        let source_timestamp = source_time.map(|text| parse(SOURCE_TIME, text)).transpose()?;
        let payload = decode_payload(kind, &message.payload)?;
        Ok(Event { id, event_type, timestamp, source_timestamp, payload })
    }
}

impl Registration {
    /// Returns the maximum size of the event's message in bytes: payload and headers, for any id and times. The result
    /// includes space for the other fields of an answer to a query.
    pub fn message_bytes(&self) -> usize {
        /// Space for all other fields. Keys, numbers and times take at most 250 bytes.
        const FIELDS_BYTES: usize = 512;
        let name = match &self.payload {
            Some(Payload::Binary { type_name, .. }) => ESCAPED_BYTES * type_name.len(),
            Some(Payload::Json(_)) | None => 0,
        };
        FIELDS_BYTES + name + self.payload.as_ref().map_or(0, |payload| payload.bytes().len())
    }
}

/// Returns the values of an event's header fields, in the order of the table.
fn find_fields(headers: &Headers) -> Result<[Option<&str>; 4], MessageError> {
    const KEYS: [&str; 4] = [ID, TIME, SOURCE_TIME, PAYLOAD];
    let mut values = [None; KEYS.len()];
    for (key, value) in headers.iter() {
        let Some(at) = KEYS.iter().position(|wanted| *wanted == key) else { continue };
        if values[at].replace(value).is_some() {
            return Err(MessageError::Repeated(KEYS[at]));
        }
    }
    Ok(values)
}

/// Decodes the payload, whose format the field value `kind` names.
fn decode_payload(kind: Option<&str>, bytes: &Bytes) -> Result<Option<Payload>, MessageError> {
    let name = match kind {
        None if bytes.is_empty() => return Ok(None),
        None => return Err(MessageError::Unexplained),
        Some("json") => {
            return Json::from_bytes(bytes.clone()).map(|json| Some(Payload::Json(json))).map_err(MessageError::Json);
        }
        Some("binary") => "",
        Some(kind) => kind.strip_prefix("binary ").filter(|name| !name.is_empty()).ok_or(MessageError::Payload)?,
    };
    let type_name = decode_name(name).ok_or(MessageError::Payload)?;
    Ok(Some(Payload::Binary { type_name: type_name.into(), bytes: bytes.clone() }))
}

/// Returns the field value for a binary payload whose type has this name.
fn binary_field(type_name: &str) -> String {
    let mut text = b"binary".to_vec();
    if !type_name.is_empty() {
        text.push(b' ');
    }
    for byte in type_name.bytes() {
        if is_plain(byte) { text.push(byte) } else { put_escaped(&mut text, byte) }
    }
    String::from_utf8(text).expect("printable ASCII")
}

/// Returns whether a byte of a name is written unescaped.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'%'
}

/// Decodes a name; returns `None` unless `text` is its canonical encoding.
fn decode_name(text: &str) -> Option<String> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, next) = match first {
            b'%' => (decode_escape(tail).filter(|byte| !is_plain(*byte))?, &tail[2..]),
            byte if is_plain(*byte) => (*byte, tail),
            _ => return None,
        };
        name.push(byte);
        rest = next;
    }
    String::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::ServerId;
    use crate::rng::Rng;

    fn event(type_text: &str, source_micros: Option<i64>, payload: Option<Payload>) -> Event {
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        Event {
            id: EventId { server: ServerId(7), session: 42, instance: 1 },
            event_type: type_text.parse().unwrap(),
            timestamp: at(1_700_000_000_000_005),
            source_timestamp: source_micros.map(at),
            payload,
        }
    }

    fn binary_payload(type_name: &str, bytes: &'static [u8]) -> Option<Payload> {
        Some(Payload::Binary { type_name: type_name.into(), bytes: Bytes::from_static(bytes) })
    }

    fn json(text: &'static str) -> Option<Payload> {
        Some(Payload::Json(Json::from_bytes(Bytes::from_static(text.as_bytes())).unwrap()))
    }

    #[test]
    fn event_is_encoded_as_the_table_says() {
        const HEAD: &str = "Seqcast-Event: 7/42/1\r\nSeqcast-Event-Time: 2023-11-14T22:13:20.000005Z\r\n";
        let check = |event: Event, subject: &str, fields: &str, payload: &'static [u8]| {
            let message = Message {
                headers: Headers::from_block(Bytes::from(format!("{HEAD}{fields}"))),
                event: true,
                ..Message::new(subject.parse().unwrap(), payload)
            };
            assert_eq!(Message::from(&event), message);
            assert_eq!(Event::of_message(&message), Ok(event));
        };
        check(event("a/b", None, None), "a.b", "", b"");
        check(
            event("v1.2//", Some(-1), None),
            "v1%2E2.%.%",
            "Seqcast-Source-Time: 1969-12-31T23:59:59.999999Z\r\n",
            b"",
        );
        check(event("a", None, json("{\"v\": 1}")), "a", "Seqcast-Payload: json\r\n", b"{\"v\": 1}");
        check(event("a", None, binary_payload("t", b"\x00\xff")), "a", "Seqcast-Payload: binary t\r\n", b"\x00\xff");
        check(event("a", None, binary_payload("", b"")), "a", "Seqcast-Payload: binary\r\n", b"");
        let odd = binary_payload(" 100%\r\nß", b"x");
        check(event("a", None, odd), "a", "Seqcast-Payload: binary %20100%25%0D%0A%C3%9F\r\n", b"x");
    }

    /// Checks the event with `line` in place of the field's line, without that line, or with an additional one.
    fn check_refused(key: &str, line: &str, expected: MessageError) {
        let mut message = Message::from(&event("a/b", Some(5), binary_payload("t", b"x")));
        let others = message.headers.iter().filter(|(other, _)| *other != key);
        let others: String = others.map(|(key, value)| format!("{key}: {value}\r\n")).collect();
        message.headers = Headers::from_block(Bytes::from(format!("{line}{others}")));
        assert_eq!(Event::of_message(&message), Err(expected), "{line}");
    }

    #[test]
    fn invalid_header_is_refused_by_name() {
        for key in [ID, TIME] {
            check_refused(key, "", MessageError::Missing(key));
            check_refused(key, &format!("{}: x\r\n", key.to_lowercase()), MessageError::Missing(key));
        }
        for key in [ID, TIME, SOURCE_TIME, PAYLOAD] {
            check_refused("", &format!("{key}: x\r\n"), MessageError::Repeated(key));
        }
        check_refused(PAYLOAD, "", MessageError::Unexplained);
        for id in ["", "7/42", "7/42/1 ", "7/42/1/1", "4294967296/1/1", "-7/42/1"] {
            check_refused(ID, &format!("{ID}: {id}\r\n"), MessageError::Id(IdError));
        }
        for id in ["7/0/1", "7/1/0"] {
            check_refused(ID, &format!("{ID}: {id}\r\n"), MessageError::Reserved(id.parse().unwrap()));
        }
        for key in [TIME, SOURCE_TIME] {
            check_refused(key, &format!("{key}: now\r\n"), MessageError::Time(key, TimestampError::Form));
            check_refused(
                key,
                &format!("{key}: 2026-02-30T00:00:00Z\r\n"),
                MessageError::Time(key, TimestampError::Date),
            );
        }
        for kind in [
            "",
            "JSON",
            "json ",
            "text",
            "binary ",
            "binaryt",
            "binary a b",
            "binary ß",
            "binary %",
            "binary %4",
            "binary %41",
            "binary %0a",
            "binary %FF",
            "binary \u{1}",
        ] {
            check_refused(PAYLOAD, &format!("{PAYLOAD}: {kind}\r\n"), MessageError::Payload);
        }
        check_refused(
            PAYLOAD,
            &format!("{PAYLOAD}: json\r\n"),
            MessageError::Json(JsonError::Syntax { line: 1, column: 1 }),
        );
    }

    #[test]
    fn message_without_an_event_is_refused() {
        let message = Message::from(&event("a", None, None));
        assert_eq!(Event::of_message(&Message { event: false, ..message.clone() }), Err(MessageError::NotMarked));
        for subject in ["a/b", "a?", "a*", "%FF", "x%2Ay"] {
            let subject: Subject = subject.parse().unwrap();
            let refused = Err(MessageError::Subject(subject.clone()));
            assert_eq!(Event::of_message(&Message { subject, ..message.clone() }), refused);
        }
    }

    /// Headers of an event with some bytes changed, lost or duplicated: every accepted one is encoded in the same way
    /// again.
    #[test]
    fn decoded_event_is_encoded_unchanged() {
        let mut rng = Rng::new(8);
        let events = [event("a/b", Some(5), binary_payload("t %", b"x")), event("a", None, json("[1]"))];
        let mut count = 0;
        for _ in 0..40_000 {
            let mut message = Message::from(&events[rng.below(2) as usize]);
            let mut block = message.headers.block().to_vec();
            for _ in 0..rng.below(4) {
                let at = rng.below(block.len() as u64) as usize;
                match rng.below(3) {
                    0 => block[at] = b" %/0129:-ZT\r\n\xc3"[rng.below(14) as usize],
                    1 => drop(block.remove(at)),
                    _ => block.insert(at, block[at]),
                }
            }
            message.headers = Headers::from_block(block.into());
            if let Ok(event) = Event::of_message(&message) {
                assert_eq!(Event::of_message(&Message::from(&event)), Ok(event));
                count += 1;
            }
        }
        assert!(10_000 < count && count < 39_000, "{count} were events");
    }
}
