//! Encoding of ordered events on the bus and in a journal. An ordered event is an event of seed 004 with a JSON
//! payload, so that any client of any listener can read it.
//!
//! The type is a given prefix with the object as its last subtype: `order/work:1`. In the object, `%`, `?`, `*` and `/`
//! are written as `%` and two capital hexadecimal digits. The payload is a JSON object:
//!
//! | field | value |
//! |---|---|
//! | `object` | the name of the object, unescaped |
//! | `id`, `token` | stamps, as decimal texts, because many readers of JSON round numbers of 64 bits |
//! | `prev` | the same for the id of the previous event; absent for the first event |
//! | `event` | the event as it was pushed, if that was JSON |
//! | `event_base64` | otherwise, its bytes |

use super::name::Object;
use super::stamp::OrderStamp;
use super::worker::OrderedEvent;
use crate::event::model::{Json, Payload, Registration};
use crate::subject::event_type::{EventType, TypeError};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    object: Cow<'a, str>,
    id: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prev: Option<Cow<'a, str>>,
    token: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_base64: Option<Cow<'a, str>>,
}

/// The reason why a payload is not an ordered event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// The payload is not a JSON object with these fields. Holds the message of the JSON parser.
    Form(String),
    /// The name of the object is invalid.
    Object,
    /// This field is not a stamp.
    OrderStamp(&'static str),
    /// `prev` is not less than `id`.
    Order,
    /// The payload has neither `event` nor `event_base64`, or both, or the latter is invalid.
    Event,
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnvelopeError::Form(error) => write!(f, "no ordered event: {error}"),
            EnvelopeError::Object => write!(f, "no ordered event: its object has no valid name"),
            EnvelopeError::OrderStamp(field) => write!(f, "no ordered event: its {field} is no stamp"),
            EnvelopeError::Order => write!(f, "no ordered event: prev must be less than id"),
            EnvelopeError::Event => write!(f, "no ordered event: it must have either event or event_base64"),
        }
    }
}

impl std::error::Error for EnvelopeError {}

/// Returns the type of an object's events: the prefix, and the object as its last subtype.
///
/// # Errors
/// The type is too long for the bus.
pub fn event_type(prefix: &EventType, object: &Object) -> Result<EventType, TypeError> {
    let is_escaped = |c: char| matches!(c, '%' | '?' | '*' | '/');
    let escaped = |c: char| if is_escaped(c) { format!("%{:02X}", u32::from(c)) } else { c.to_string() };
    let last: String = object.as_str().chars().map(escaped).collect();
    let head: Vec<Cow<'_, str>> = prefix.subtypes().collect();
    EventType::new(head.iter().map(AsRef::as_ref).chain([last.as_str()]))
}

impl OrderedEvent {
    /// Returns the event of seed 004 that carries this ordered event, to be registered or published.
    ///
    /// # Errors
    /// The errors are those of [`event_type`].
    pub fn registration(&self, prefix: &EventType) -> Result<Registration, TypeError> {
        let event: Option<&RawValue> = serde_json::from_slice(&self.payload).ok();
        let envelope = Envelope {
            object: self.object.as_str().into(),
            id: self.id.number().to_string().into(),
            prev: self.prev.map(|prev| prev.number().to_string().into()),
            token: self.token.number().to_string().into(),
            event,
            event_base64: event.is_none().then(|| BASE64_STANDARD.encode(&self.payload).into()),
        };
        let text = serde_json::to_vec(&envelope).expect("texts are valid JSON");
        let json = Json::from_bytes(text.into()).expect("serde writes JSON");
        let event_type = event_type(prefix, &self.object)?;
        Ok(Registration { event_type, source_timestamp: None, payload: Some(Payload::Json(json)) })
    }

    /// Decodes an ordered event from a payload of the network, which is not trusted.
    ///
    /// # Errors
    /// Returns the reason why the payload is not an ordered event.
    pub fn of_payload(bytes: &[u8]) -> Result<OrderedEvent, EnvelopeError> {
        let envelope: Envelope<'_> =
            serde_json::from_slice(bytes).map_err(|error| EnvelopeError::Form(error.to_string()))?;
        let stamp = |field, text: &str| {
            let number = text.parse().ok().filter(|number: &u64| number.to_string() == text);
            number.and_then(OrderStamp::from_number).ok_or(EnvelopeError::OrderStamp(field))
        };
        let (id, token) = (stamp("id", &envelope.id)?, stamp("token", &envelope.token)?);
        let prev = envelope.prev.map(|prev| stamp("prev", &prev)).transpose()?;
        if prev.is_some_and(|prev| id <= prev) {
            return Err(EnvelopeError::Order);
        }
        let payload = match (envelope.event, envelope.event_base64) {
            (Some(event), None) => Bytes::copy_from_slice(event.get().as_bytes()),
            (None, Some(text)) => BASE64_STANDARD.decode(text.as_bytes()).map_err(|_| EnvelopeError::Event)?.into(),
            _ => return Err(EnvelopeError::Event),
        };
        let object = Object::new(&envelope.object).map_err(|_| EnvelopeError::Object)?;
        Ok(OrderedEvent { object, id, prev, token, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::order::stamp::Generation;

    fn stamp(count: usize) -> OrderStamp {
        let begin = OrderStamp::begin(Generation::new(7).unwrap());
        (0..count).fold(begin, |stamp, _| stamp.next().unwrap())
    }

    fn event(object: &str, prev: Option<usize>, payload: &'static [u8]) -> OrderedEvent {
        let (object, payload) = (Object::new(object).unwrap(), Bytes::from_static(payload));
        OrderedEvent { object, id: stamp(3), prev: prev.map(stamp), token: stamp(1), payload }
    }

    #[test]
    fn encoded_event_is_decoded_unchanged() {
        let prefix: EventType = "order".parse().unwrap();
        for (object, prev, payload, event_type) in [
            ("work:1", None, &b"{\"v\": 1.50}"[..], "order/work:1"),
            ("a/b?*%", Some(2), b"\"x\"", "order/a%2Fb%3F%2A%25"),
            ("\u{e4} b", Some(1), b"no JSON \xff", "order/\u{e4} b"),
            ("x", None, b"", "order/x"),
        ] {
            let event = event(object, prev, payload);
            let registration = event.registration(&prefix).unwrap();
            assert_eq!(registration.event_type.to_string(), event_type);
            let Some(Payload::Json(json)) = registration.payload else { panic!("it has a payload") };
            assert_eq!(OrderedEvent::of_payload(json.bytes()), Ok(event));
        }
        assert!(event(&"/".repeat(100), None, b"1").registration(&prefix).is_err(), "three bytes for each character");
    }

    #[test]
    fn malformed_envelope_is_refused_by_name() {
        let check = |text: &str, expected: EnvelopeError| {
            assert_eq!(OrderedEvent::of_payload(text.as_bytes()), Err(expected), "{text}");
        };
        let of =
            |head: &str, rest: &str| format!("{{\"object\":\"a\",{head},\"token\":\"{}\",{rest}}}", stamp(1).number());
        let id = format!("\"id\":\"{}\"", stamp(3).number());
        assert!(OrderedEvent::of_payload(of(&id, "\"event\":1").as_bytes()).is_ok());
        check(&of(&id, "\"event\":1,\"event_base64\":\"\""), EnvelopeError::Event);
        check(&of(&id, "\"event_base64\":\"?\""), EnvelopeError::Event);
        check(&of("\"id\":\"01\"", "\"event\":1"), EnvelopeError::OrderStamp("id"));
        check(&of("\"id\":\"1\"", "\"event\":1"), EnvelopeError::OrderStamp("id"));
        check(&of(&id, &format!("\"event\":1,\"prev\":\"{}\"", stamp(3).number())), EnvelopeError::Order);
        check(&of(&id, "\"event\":1").replace("\"a\"", "\"\""), EnvelopeError::Object);
        assert!(matches!(OrderedEvent::of_payload(b"[]"), Err(EnvelopeError::Form(_))));
    }
}
