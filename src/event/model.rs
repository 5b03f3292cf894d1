//! Events, their identity and their natural order.

use super::timestamp::Timestamp;
use crate::subject::event_type::EventType;
use bytes::Bytes;
use serde::de::IgnoredAny;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Id of a server that creates events. The operator configures it; no two servers of a LAN have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of an event. Ids are ordered by server, session and instance; that is the natural order of one server's
/// events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The server that created the event.
    pub server: ServerId,
    /// One processing of a request to register events, counted from 1 by the server; 0 means "before the first".
    pub session: u64,
    /// Position in the session, counted from 1; 0 means "before the first".
    pub instance: u64,
}

impl EventId {
    /// Returns whether an event can have this id: neither its session nor its instance is 0.
    pub fn is_of_event(self) -> bool {
        self.session != 0 && self.instance != 0
    }
}

impl fmt::Display for EventId {
    /// Writes server, session and instance in decimal: `7/42/1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.server, self.session, self.instance)
    }
}

/// Error of a text that is not an event id. An id is three numbers of 32, 64 and 64 bits with a `/` between them. Each
/// is decimal, without a sign and without leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdError;

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the id of an event is written as server/session/instance, three numbers like 7/42/1")
    }
}

impl std::error::Error for IdError {}

impl FromStr for EventId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<EventId, IdError> {
        let mut parts = text.split('/');
        let mut next = || parse_number(parts.next()?);
        let (server, session, instance) = (next().ok_or(IdError)?, next().ok_or(IdError)?, next().ok_or(IdError)?);
        let server = ServerId(u32::try_from(server).map_err(|_| IdError)?);
        if parts.next().is_some() { Err(IdError) } else { Ok(EventId { server, session, instance }) }
    }
}

/// Parses a decimal number in its canonical form, without a sign and without leading zeros.
fn parse_number(text: &str) -> Option<u64> {
    let is_canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_canonical { text.parse().ok() } else { None }
}

/// A JSON text in its original form. Cloning copies a reference only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Bytes);

/// The reason why bytes are not a valid JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonError {
    /// The bytes are not UTF-8.
    Encoding,
    /// JSON does not allow a byte at its position.
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Number of bytes of the line that the parser had read.
        column: usize,
    },
    /// Arrays and objects are nested deeper than [`JSON_DEPTH_MAX`].
    Depth {
        /// Number of bytes before the array or object that is too deep.
        at: usize,
    },
}

/// Maximum depth of arrays and objects in an event's JSON. Stock clients of Hat recurse once per level. They lose their
/// connection each time that they read an event of about 1,000 levels.
pub const JSON_DEPTH_MAX: usize = 900;

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonError::Encoding => write!(f, "a JSON text must be UTF-8"),
            JsonError::Syntax { line, column } => write!(f, "not JSON: see line {line}, column {column}"),
            JsonError::Depth { at } => {
                write!(f, "JSON is nested deeper than {JSON_DEPTH_MAX} levels: see byte {at}")
            }
        }
    }
}

impl std::error::Error for JsonError {}

impl Json {
    /// Checks the JSON of a new event. Every protocol, command and peer passes the JSON of its events to this function.
    /// The text must be one value of JSON (RFC 8259); `NaN` and `Infinity` are not allowed.
    ///
    /// # Errors
    /// Returns the error of the text: it is not JSON, or it is nested too deep.
    pub fn from_bytes(bytes: Bytes) -> Result<Json, JsonError> {
        let json = Json::from_stored(bytes)?;
        match find_too_deep(&json.0) {
            None => Ok(json),
            Some(at) => Err(JsonError::Depth { at }),
        }
    }

    /// Returns whether the text is nested deeper than [`JSON_DEPTH_MAX`] allows for new events.
    pub fn is_too_deep(&self) -> bool {
        find_too_deep(&self.0).is_some()
    }

    /// Returns the JSON of a stored event, which may be nested deeper than that of new events.
    ///
    /// # Errors
    /// Returns the error of the text.
    pub fn from_stored(bytes: Bytes) -> Result<Json, JsonError> {
        let text = std::str::from_utf8(&bytes).map_err(|_| JsonError::Encoding)?;
        // The parser builds no value and uses no stack, however deep the nesting is.
        match serde_json::from_str::<IgnoredAny>(text) {
            Ok(IgnoredAny) => Ok(Json(bytes)),
            Err(error) => Err(JsonError::Syntax { line: error.line(), column: error.column() }),
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked on construction")
    }

    /// Returns the text as bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

/// Returns the position of the first array or object of a JSON text that is nested too deep.
fn find_too_deep(text: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string, mut is_escaped) = (0, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if JSON_DEPTH_MAX < depth {
                    return Some(at);
                }
            }
            b']' | b'}' if !in_string => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Maximum number of events of one session, and thus of one request.
pub const SESSION_EVENTS_MAX: usize = 4096;
/// Maximum length of the name of a binary payload's type, in bytes.
pub const TYPE_NAME_BYTES_MAX: usize = 255;

/// The payload of an event. Cloning copies references only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Bytes that are opaque between source and reader.
    Binary {
        /// Name of the format of the bytes; any text.
        type_name: Arc<str>,
        /// The bytes.
        bytes: Bytes,
    },
    /// A JSON text.
    Json(Json),
}

impl Payload {
    /// Returns the payload's bytes as they travel and are stored.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Payload::Binary { bytes, .. } => bytes,
            Payload::Json(json) => json.bytes(),
        }
    }

    /// Returns the size of the payload in bytes, including the name of its type.
    pub fn size(&self) -> usize {
        match self {
            Payload::Binary { type_name, bytes } => type_name.len() + bytes.len(),
            Payload::Json(json) => json.bytes().len(),
        }
    }
}

/// An event that a client asks a server to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Type of the event.
    pub event_type: EventType,
    /// Time at which the event occurred, according to its source.
    pub source_timestamp: Option<Timestamp>,
    /// Payload of the event.
    pub payload: Option<Payload>,
}

/// An event. Cloning copies references only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Identity of the event; two events with the same id are the same event.
    pub id: EventId,
    /// Type of the event.
    pub event_type: EventType,
    /// Time at which the server registered the event. It is the same for all events of a session, and never less than
    /// in an earlier session of the server.
    pub timestamp: Timestamp,
    /// Time at which the event occurred, according to its source.
    pub source_timestamp: Option<Timestamp>,
    /// Payload of the event.
    pub payload: Option<Payload>,
}

impl Event {
    /// Returns the size of the payload in bytes, including the name of its type.
    pub fn payload_size(&self) -> usize {
        self.payload.as_ref().map_or(0, Payload::size)
    }

    /// Compares two events in the natural order of seed 004. Events of one server are ordered by session and instance.
    /// Those of different servers are ordered by timestamp. If the timestamps are equal, the event registered first is
    /// the lesser.
    ///
    /// No peer can determine which of two servers registered first, so the local order of arrival decides. The arrival
    /// of an event is a number that this peer assigns once, rising with each new event that it receives. Other peers
    /// may assign other arrivals, as the seed allows. The order is total if the arrivals of each server's events rise
    /// with their ids.
    pub fn natural_cmp(&self, arrival: u64, other: &Event, other_arrival: u64) -> Ordering {
        if self.id.server == other.id.server {
            return self.id.cmp(&other.id);
        }
        self.timestamp.cmp(&other.timestamp).then(arrival.cmp(&other_arrival))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn event(id: &str, micros: i64) -> Event {
        let timestamp = Timestamp::from_micros(micros).unwrap();
        Event {
            id: id.parse().unwrap(),
            event_type: "a/b".parse().unwrap(),
            timestamp,
            source_timestamp: None,
            payload: None,
        }
    }

    #[test]
    fn id_has_one_text_form() {
        for text in ["0/0/0", "7/42/1", "4294967295/18446744073709551615/18446744073709551615"] {
            assert_eq!(text.parse::<EventId>().unwrap().to_string(), text);
        }
        for text in ["", "1/2", "1/2/3/4", "1/2/", "1/2/3/", "+1/2/3", "01/2/3", "1/2/-3", "1/2/x", " 1/2/3", "1/00/3"]
        {
            assert_eq!(text.parse::<EventId>(), Err(IdError), "{text}");
        }
        for text in ["4294967296/1/1", "1/18446744073709551616/1", "1/1/18446744073709551616"] {
            assert_eq!(text.parse::<EventId>(), Err(IdError), "{text}");
        }
        for (text, is_of_event) in [("0/1/1", true), ("1/0/1", false), ("1/1/0", false)] {
            assert_eq!(text.parse::<EventId>().unwrap().is_of_event(), is_of_event, "{text}");
        }
    }

    #[test]
    fn valid_json_keeps_its_original_form() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let (deep, in_text) = (nested(900), format!("[\"{}\\\\\\\"[\"]", "[{".repeat(5000)));
        for (text, at) in [(nested(901), 900), (format!("[\"\\\\\",{}]", nested(900)), 905), (nested(100_000), 900)] {
            assert_eq!(Json::from_bytes(text.into()), Err(JsonError::Depth { at }));
        }
        let stored = nested(100_000);
        assert_eq!(Json::from_stored(stored.clone().into()).unwrap().as_str(), stored, "it takes no stack");
        for text in ["null", " {\"v\": 1.0e5}\n", "\"\\u00e4\u{7f}\"", "[1,2]", &deep, &in_text] {
            assert_eq!(Json::from_bytes(Bytes::copy_from_slice(text.as_bytes())).unwrap().as_str(), text);
        }
        for (text, line, column) in [
            ("", 1, 0),
            ("{", 1, 1),
            ("1 2", 1, 3),
            ("[1,\n x]", 2, 2),
            ("NaN", 1, 1),
            ("Infinity", 1, 1),
            ("\"\u{1}\"", 1, 1),
        ] {
            let found = Json::from_bytes(Bytes::copy_from_slice(text.as_bytes()));
            assert_eq!(found, Err(JsonError::Syntax { line, column }), "{text:?}");
        }
        assert_eq!(Json::from_bytes(Bytes::from_static(b"\"\xff\"")), Err(JsonError::Encoding));
    }

    /// The seed's definition, branch by branch.
    fn twin((e1, arrival1): &(Event, u64), (e2, arrival2): &(Event, u64)) -> Ordering {
        if e1.id == e2.id {
            Ordering::Equal
        } else if e1.id.server == e2.id.server && e1.id.session == e2.id.session && e1.id.instance < e2.id.instance {
            Ordering::Less
        } else if e1.id.server == e2.id.server && e1.id.session == e2.id.session && e1.id.instance > e2.id.instance {
            Ordering::Greater
        } else if e1.id.server == e2.id.server && e1.id.session < e2.id.session {
            Ordering::Less
        } else if e1.id.server == e2.id.server && e1.id.session > e2.id.session {
            Ordering::Greater
        } else if e1.timestamp < e2.timestamp {
            Ordering::Less
        } else if e1.timestamp > e2.timestamp {
            Ordering::Greater
        } else if arrival1 < arrival2 {
            Ordering::Less
        } else {
            Ordering::Greater
        }
    }

    fn check((one, arrival): &(Event, u64), (other, other_arrival): &(Event, u64), expected: Ordering) {
        assert_eq!(one.natural_cmp(*arrival, other, *other_arrival), expected, "{one:?} {other:?}");
        assert_eq!(other.natural_cmp(*other_arrival, one, *arrival), expected.reverse(), "{other:?} {one:?}");
    }

    #[test]
    fn natural_order_follows_the_seed() {
        for (one, other, expected) in [
            // Within one server, neither time nor arrival counts.
            ((event("1/5/2", 9), 9), (event("1/5/3", 3), 3), Ordering::Less),
            ((event("1/4/9", 9), 9), (event("1/5/3", 3), 3), Ordering::Less),
            ((event("1/5/3", 9), 9), (event("1/5/3", 9), 9), Ordering::Equal),
            // Between two servers, sessions and instances do not count.
            ((event("2/9/9", 3), 9), (event("1/5/3", 4), 3), Ordering::Less),
            ((event("2/9/9", 3), 3), (event("1/5/3", 3), 9), Ordering::Less),
            ((event("1/5/3", 3), 9), (event("2/5/3", 3), 3), Ordering::Greater),
        ] {
            assert_eq!(twin(&one, &other), expected);
            check(&one, &other, expected);
        }
    }

    /// Draws events of `servers` servers. For each server the sessions, timestamps and arrivals rise.
    fn draw(rng: &mut Rng, servers: u64) -> Vec<(Event, u64)> {
        let mut at: Vec<(u64, u64, i64)> = (0..servers).map(|_| (1, 0, rng.below(3) as i64)).collect();
        let next = |arrival: u64| {
            let server = rng.below(servers);
            let (session, instance, micros) = &mut at[server as usize];
            if rng.chance(0.5) {
                *session += rng.between(1, 2);
                (*instance, *micros) = (0, *micros + rng.below(2) as i64);
            }
            *instance += 1;
            (event(&format!("{server}/{session}/{instance}"), *micros), arrival)
        };
        (0..12).map(next).collect()
    }

    #[test]
    fn natural_order_is_total() {
        let mut rng = Rng::new(4);
        for round in 0..400 {
            let events = draw(&mut rng, 1 + round % 4);
            let is_less = |one: &(Event, u64), other: &(Event, u64)| {
                one.0.natural_cmp(one.1, &other.0, other.1) == Ordering::Less
            };
            for a in &events {
                for b in &events {
                    check(a, b, twin(a, b));
                    assert!(events.iter().all(|c| !is_less(a, b) || !is_less(b, c) || is_less(a, c)), "{events:?}");
                }
            }
        }
    }
}
