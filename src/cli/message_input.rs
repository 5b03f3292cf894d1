//! Messages as lines of text: `SUBJECT PAYLOAD`, or JSON objects as `sub --json` prints them.

use std::borrow::Cow;
use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::message::{Headers, MESSAGE_BYTES_MAX, Message};
use crate::subject::Subject;

/// Size limit of a line of JSON. JSON writes each byte of a message in six bytes at most; the rest is room for the
/// fields that describe the delivery.
pub const JSON_LINE_BYTES_MAX: usize = 6 * MESSAGE_BYTES_MAX + 64 * 1024;

/// Values of `type` of the lines of `sub --json` that are no messages.
const OTHER_TYPES: [&str; 4] = ["loss", "joined", "dropped", "peer"];

/// Reads a line `SUBJECT PAYLOAD`. The blanks between the two belong to neither; the payload may be absent, which means
/// that it is empty, and may hold any bytes.
///
/// # Errors
/// Returns the reason why the line begins with no subject.
pub fn subject_line(line: &Bytes) -> Result<Message, String> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let subject_bytes = line.iter().position(is_blank).unwrap_or(line.len());
    let rest = line.slice(subject_bytes..);
    let blanks = rest.iter().take_while(|byte| is_blank(byte)).count();
    let subject = Subject::from_bytes(line.slice(..subject_bytes)).map_err(|error| match subject_bytes {
        0 => "the line begins with a blank, not with a subject".to_owned(),
        _ => format!("{:?} is no subject: {error}", String::from_utf8_lossy(&line[..subject_bytes])),
    })?;
    Ok(Message::new(subject, rest.slice(blanks..)))
}

/// Reads a line of JSON. Returns `None` for the lines of `sub --json` that are no messages, such as reports of loss.
///
/// # Errors
/// Returns the reason why the line is no message.
pub fn json_line(line: &[u8]) -> Result<Option<Message>, String> {
    if JSON_LINE_BYTES_MAX <= line.len() {
        return Err(format!("the line has {JSON_LINE_BYTES_MAX} bytes or more, above every message-size"));
    }
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("the line is no JSON object".to_owned());
    }
    let input: MessageInput<'_> = match serde_json::from_slice(line) {
        Ok(input) => input,
        // Lines of other types have fields that no message has.
        Err(error) => match serde_json::from_slice::<TypeInput<'_>>(line) {
            Ok(TypeInput { r#type: Some(other) }) if OTHER_TYPES.contains(&&*other) => return Ok(None),
            Ok(TypeInput { r#type: Some(other) }) if other != "message" => return Err(foreign_type(&other)),
            _ => return Err(json_error(&error)),
        },
    };
    match input.r#type.as_deref() {
        None | Some("message") => {}
        Some(other) if OTHER_TYPES.contains(&other) => return Ok(None),
        Some(other) => return Err(foreign_type(other)),
    }
    let payload = match (input.payload, input.payload_base64) {
        (Some(text), None) => Bytes::from(text.into_owned()),
        (None, Some(text)) => {
            let bytes = BASE64_STANDARD.decode(&*text);
            bytes.map_err(|error| format!("\"payload_base64\" is no Base64: {error}"))?.into()
        }
        (Some(_), Some(_)) => return Err("\"payload\" and \"payload_base64\" exclude each other".to_owned()),
        (None, None) => return Err("\"payload\" (a text) or \"payload_base64\" is missing".to_owned()),
    };
    let parse = |field: &str, text: &str| {
        text.parse::<Subject>().map_err(|error| format!("\"{field}\" {text:?} is no subject: {error}"))
    };
    let mut message = Message::new(parse("subject", &input.subject)?, payload);
    message.reply = input.reply.map(|reply| parse("reply", &reply)).transpose()?;
    let fields = input.headers.unwrap_or_default().0;
    let pairs = fields.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    message.headers = Headers::from_pairs(pairs).map_err(|error| error.to_string())?;
    Ok(Some(message))
}

fn foreign_type(other: &str) -> String {
    format!("the \"type\" {other:?} is no message; leave it out, or let it be \"message\"")
}

/// Returns the text of an error without the line number, which is always 1.
fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let at = format!(" at line {} column {}", error.line(), error.column());
    format!("{} (column {})", text.strip_suffix(&at).unwrap_or(&text), error.column())
}

/// The type of a line of JSON, whatever its other fields.
#[derive(Deserialize)]
struct TypeInput<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
}

/// The fields of a message that `sub --json` prints. Those that describe its delivery are accepted and not used; any
/// other field is an error, since a misspelt one must not go unnoticed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageInput<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
    subject: Cow<'a, str>,
    payload: Option<Cow<'a, str>>,
    payload_base64: Option<Cow<'a, str>>,
    reply: Option<Cow<'a, str>>,
    headers: Option<HeadersInput>,
    #[serde(rename = "user")]
    _user: Option<IgnoredAny>,
    #[serde(rename = "publisher")]
    _publisher: Option<IgnoredAny>,
    #[serde(rename = "epoch")]
    _epoch: Option<IgnoredAny>,
    #[serde(rename = "seq")]
    _seq: Option<IgnoredAny>,
    #[serde(rename = "offset")]
    _offset: Option<IgnoredAny>,
    #[serde(rename = "verdict")]
    _verdict: Option<IgnoredAny>,
    #[serde(rename = "missing")]
    _missing: Option<IgnoredAny>,
    #[serde(rename = "repaired")]
    _repaired: Option<IgnoredAny>,
    #[serde(rename = "replayed")]
    _replayed: Option<IgnoredAny>,
    #[serde(rename = "origin")]
    _origin: Option<IgnoredAny>,
    #[serde(rename = "received")]
    _received: Option<IgnoredAny>,
    #[serde(rename = "sent")]
    _sent: Option<IgnoredAny>,
    #[serde(rename = "rvmsg")]
    _rvmsg: Option<IgnoredAny>,
}

/// Header fields in their order. In JSON they are an object of texts, or of arrays of texts for keys that occur several
/// times.
#[derive(Default)]
struct HeadersInput(Vec<(String, String)>);

/// The value of a key of the headers.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the value of a header is a text or an array of texts")]
enum HeaderValue {
    One(String),
    Several(Vec<String>),
}

impl<'de> Deserialize<'de> for HeadersInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HeadersInput, D::Error> {
        struct HeadersVisitor;

        impl<'de> Visitor<'de> for HeadersVisitor {
            type Value = HeadersInput;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object whose values are texts or arrays of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeadersInput, A::Error> {
                let mut fields = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    let values = match map.next_value()? {
                        HeaderValue::One(value) => vec![value],
                        HeaderValue::Several(values) => values,
                    };
                    fields.extend(values.into_iter().map(|value| (key.clone(), value)));
                }
                Ok(HeadersInput(fields))
            }
        }

        deserializer.deserialize_map(HeadersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::notice::{dropped_json, message_json};
    use crate::message::{Delivery, Epoch, MessageOrigin, Publisher, Verdict};
    use crate::time::WallTime;

    #[test]
    fn subject_lines_are_split_at_blanks() {
        for (line, subject, payload) in [
            ("a.b hi there", "a.b", "hi there"),
            ("a.b  as 'sub' prints it ", "a.b", "as 'sub' prints it "),
            ("a.b\t21.5", "a.b", "21.5"),
            ("a.b", "a.b", ""),
            ("a.b ", "a.b", ""),
        ] {
            let message = subject_line(&Bytes::from_static(line.as_bytes())).unwrap();
            assert_eq!((message.subject.as_str(), &message.payload[..]), (subject, payload.as_bytes()), "{line:?}");
        }
        assert_eq!(subject_line(&Bytes::from_static(b"a.b \xff\0")).unwrap().payload, &b"\xff\0"[..]);
        for (line, part) in [(" a.b x", "begins with a blank"), ("a..b x", "\"a..b\" is no subject: empty token")] {
            let error = subject_line(&Bytes::from_static(line.as_bytes())).unwrap_err();
            assert!(error.contains(part), "{line:?}: {error}");
        }
    }

    #[test]
    fn printed_message_is_accepted_back() {
        let time = WallTime::from_nanos(7);
        let publisher = Publisher { name: None, epoch: Epoch::new(7).unwrap(), uid: 3 };
        let headers = Headers::from_pairs([("z", "1"), ("z", "\"2\""), ("a", "\u{e9}")]).unwrap();
        for payload in [&b""[..], b"hi\t\"there\"\x00", b"\xff\xfe\x00", "\u{2028}\u{1f600}".as_bytes()] {
            let mut message = Message::new("a.b".parse().unwrap(), payload);
            for (reply, headers) in [(None, Headers::new()), (Some("r.1".parse().unwrap()), headers.clone())] {
                (message.reply, message.headers) = (reply, headers);
                let mut delivery = Delivery::new(message.clone(), publisher.clone(), None, Verdict::Start(time));
                (delivery.offset, delivery.repaired, delivery.replayed) = (Some(7), true, true);
                delivery.origin = Some(MessageOrigin::Group);
                let line = message_json(&delivery, time);
                assert_eq!(json_line(line.as_bytes()), Ok(Some(message.clone())), "{line}");
            }
        }
        assert_eq!(json_line(dropped_json(3).as_bytes()), Ok(None));
        assert_eq!(json_line(br#"{"type":"loss","kind":"tail","after":7}"#), Ok(None));
        let typed = json_line(br#" {"payload":"x","subject":"a"} "#).unwrap().unwrap();
        assert_eq!(typed, Message::new("a".parse().unwrap(), "x"));
    }

    #[test]
    fn malformed_json_names_its_mistake() {
        for (line, part) in [
            (r#"{"subject":"a","payload":"x""#, "EOF while parsing an object (column 28)"),
            (r#"{"subject":"a","playload":"x"}"#, "unknown field `playload`"),
            (r#"{"subject":"a","payload":21.5}"#, "invalid type: floating point `21.5`, expected a string (column 29)"),
            (r#"{"subject":"a"}"#, "\"payload\" (a text) or \"payload_base64\" is missing"),
            (r#"{"subject":"a","payload":"x","payload_base64":""}"#, "exclude each other"),
            (r#"{"subject":"a","payload_base64":"%"}"#, "\"payload_base64\" is no Base64"),
            (r#"{"payload":"x"}"#, "missing field `subject`"),
            (r#"{"subject":"a..b","payload":"x"}"#, "\"subject\" \"a..b\" is no subject: empty token"),
            (r#"{"subject":"a","payload":"x","reply":"*"}"#, "\"reply\" \"*\" is no subject"),
            (r#"{"subject":"a","payload":"x","headers":{"a b":"c"}}"#, "header key \"a b\""),
            (r#"{"subject":"a","payload":"x","headers":{"a":"b\nc"}}"#, "must not hold a line break"),
            (r#"{"type":"event","subject":"a","payload":"x"}"#, "the \"type\" \"event\" is no message"),
            (r#"{"type":"archived","stream":"a"}"#, "the \"type\" \"archived\" is no message"),
            (r#"{"subject":"a","payload":"x","headers":{"a":1}}"#, "the value of a header is a text"),
            (r#"["message","a","x"]"#, "no JSON object"),
            ("21.5", "no JSON object"),
        ] {
            let error = json_line(line.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
        assert!(json_line(&vec![b' '; JSON_LINE_BYTES_MAX]).unwrap_err().contains("above every message-size"));
    }
}
