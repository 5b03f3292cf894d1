//! Messages and losses as JSON objects in one line, whose fields never change: for `seqcast sub --json` and the bus by
//! HTTP.

use crate::event::timestamp::Timestamp;
use crate::message::{Cause, Count, Delivery, Headers, Loss, LossScope, Message, MessageOrigin, Publisher, Verdict};
use crate::time::WallTime;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

/// Maximum size in bytes of a byte of a text in JSON.
pub const ESCAPED_BYTES: usize = 6;
/// Maximum size in bytes of the names of all fields of a message, of its publisher, its times and its numbers.
pub const FIELDS_BYTES: usize = 2048;

/// A message in JSON.
#[derive(Serialize)]
struct MessageJson<'a> {
    r#type: &'static str,
    subject: &'a str,
    #[serde(flatten)]
    payload: PayloadJson<'a>,
    #[serde(flatten)]
    publisher: PublisherJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u32>,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<CountJson>,
    /// Present only if true.
    #[serde(skip_serializing_if = "Option::is_none")]
    repaired: Option<bool>,
    /// Present only if true.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<bool>,
    /// Absent in open mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'static str>,
    received: String,
    /// Present only if the message carried it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<HeadersJson<'a>>,
    /// Fields of a message of Rendezvous, if they are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    rvmsg: Option<Value>,
}

/// A payload in JSON: as text if it is UTF-8, else in Base64.
#[derive(Serialize)]
pub struct PayloadJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl<'a> From<&'a [u8]> for PayloadJson<'a> {
    fn from(bytes: &'a [u8]) -> PayloadJson<'a> {
        let payload = std::str::from_utf8(bytes).ok();
        PayloadJson { payload, payload_base64: payload.is_none().then(|| BASE64_STANDARD.encode(bytes)) }
    }
}

/// A publisher in JSON, as in the peer's reports: the name in tables, the configured name, the epoch.
#[derive(Serialize)]
pub struct PublisherJson<'a> {
    user: String,
    publisher: Option<&'a str>,
    epoch: String,
}

impl<'a> From<&'a Publisher> for PublisherJson<'a> {
    fn from(publisher: &'a Publisher) -> PublisherJson<'a> {
        PublisherJson {
            user: publisher.to_string(),
            publisher: publisher.name.as_ref().map(|name| name.as_str()),
            epoch: publisher.epoch.to_string(),
        }
    }
}

/// A count in JSON: a number, or `{"min":…,"max":…}` if it is not known exactly.
#[derive(Serialize)]
#[serde(untagged)]
pub enum CountJson {
    /// The number.
    Exact(u64),
    /// Bounds of the number.
    Between {
        /// Lower bound.
        min: u64,
        /// Upper bound.
        max: u64,
    },
}

impl From<Count> for CountJson {
    fn from(count: Count) -> CountJson {
        match count {
            Count::Exact(count) => CountJson::Exact(count),
            Count::Between { min, max } => CountJson::Between { min, max },
        }
    }
}

/// Headers in JSON: an object of texts; a key that occurs more than once has an array.
pub struct HeadersJson<'a>(pub &'a Headers);

impl Serialize for HeadersJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields: Vec<(&str, Vec<&str>)> = Vec::new();
        for (key, value) in self.0.iter() {
            match fields.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => fields.push((key, vec![value])),
            }
        }
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (key, values) in &fields {
            match values.as_slice() {
                [one] => map.serialize_entry(key, one)?,
                several => map.serialize_entry(key, several)?,
            }
        }
        map.end()
    }
}

/// A loss in JSON.
#[derive(Serialize)]
struct LossJson<'a> {
    r#type: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    publisher: PublisherJson<'a>,
    reason: &'static str,
    cause: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    overrun_datagrams: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_datagrams: Option<u64>,
    time: String,
    #[serde(flatten)]
    what: MissingJson<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum MissingJson<'a> {
    Messages { subject: &'a str, first: String, last: String, count: CountJson },
    Datagrams { first: u64, last: u64, messages: CountJson },
    Tail { after: u64 },
    Inbox { messages: u64 },
}

/// A notice that this client was too slow, in JSON.
#[derive(Serialize)]
struct DroppedJson {
    r#type: &'static str,
    count: u64,
}

/// Returns a delivered message as one line of JSON. `received` is the time at which this program took it.
pub fn message_json(delivery: &Delivery, received: WallTime) -> String {
    message_json_with(delivery, received, None)
}

/// Works as [`message_json`], and adds the fields of a message of Rendezvous.
pub fn message_json_with(delivery: &Delivery, received: WallTime, rvmsg: Option<Value>) -> String {
    let message = &delivery.message;
    // The publisher sends its time only with the message that begins the numbering of a subject.
    let sent = match delivery.verdict {
        Verdict::Start(sent) => Some(Timestamp::from(sent).to_string()),
        _ => None,
    };
    let (verdict, missing) = match delivery.verdict {
        Verdict::Start(_) => ("start", None),
        Verdict::First => ("first", None),
        Verdict::Next => ("next", None),
        Verdict::Skip(count) => ("skip", Some(count.into())),
        Verdict::Unnumbered => ("unnumbered", None),
        Verdict::Direct => ("direct", None),
    };
    json(&MessageJson {
        r#type: "message",
        subject: message.subject.as_str(),
        payload: message.payload[..].into(),
        publisher: (&delivery.publisher).into(),
        seq: delivery.seq.map(|seq| seq.to_string()),
        offset: delivery.offset,
        verdict,
        missing,
        repaired: delivery.repaired.then_some(true),
        replayed: delivery.replayed.then_some(true),
        origin: delivery.origin.map(MessageOrigin::as_str),
        received: Timestamp::from(received).to_string(),
        sent,
        reply: message.reply.as_ref().map(|reply| reply.as_str()),
        headers: (!message.headers.is_empty()).then_some(HeadersJson(&message.headers)),
        rvmsg,
    })
}

/// Returns the JSON of a message, cut where the content of its payload belongs: text as JSON escapes it if the payload
/// is UTF-8, and Base64 otherwise.
pub fn message_json_around_payload(delivery: &Delivery, received: WallTime) -> (String, String) {
    let is_text = std::str::from_utf8(&delivery.message.payload).is_ok();
    let mut empty = delivery.clone();
    empty.message.payload = Bytes::new();
    let whole = message_json(&empty, received);
    // Quotes in a subject are escaped, so that this is the first field of that name.
    let (head, tail) = whole.split_once(r#","payload":""#).expect("an empty payload is a text");
    let name = if is_text { "payload" } else { "payload_base64" };
    (format!(r#"{head},"{name}":""#), tail.to_owned())
}

/// Returns an upper bound for the size of the JSON of a message without its payload, in bytes.
pub fn message_json_overhead_bytes(message: &Message) -> usize {
    let others = message.body_bytes() - message.payload.len() + message.subject.as_bytes().len();
    FIELDS_BYTES + ESCAPED_BYTES * others
}

/// Returns an upper bound for the size of the JSON of a message in bytes.
pub fn message_json_bytes(message: &Message) -> usize {
    let payload = match std::str::from_utf8(&message.payload) {
        Ok(text) => text.bytes().map(escaped_bytes).sum(),
        Err(_) => message.payload.len().div_ceil(3) * 4,
    };
    payload + message_json_overhead_bytes(message)
}

/// Returns the size of a byte of a text in JSON.
fn escaped_bytes(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => ESCAPED_BYTES,
        _ => 1,
    }
}

/// Returns a loss as one line of JSON.
pub fn loss_json(loss: &Loss) -> String {
    let (kind, what) = match &loss.what {
        LossScope::Messages { subject, first, last, count } => (
            "messages",
            MissingJson::Messages {
                subject: subject.as_str(),
                first: first.to_string(),
                last: last.to_string(),
                count: (*count).into(),
            },
        ),
        LossScope::Datagrams { first, last, messages } => {
            ("datagrams", MissingJson::Datagrams { first: first.0, last: last.0, messages: (*messages).into() })
        }
        LossScope::Tail { after } => ("tail", MissingJson::Tail { after: after.0 }),
        LossScope::Inbox { messages } => ("inbox", MissingJson::Inbox { messages: *messages }),
    };
    json(&LossJson {
        r#type: "loss",
        kind,
        publisher: (&loss.publisher).into(),
        reason: loss.reason.as_str(),
        cause: loss.cause.as_str(),
        overrun_datagrams: (loss.cause != Cause::Network).then(|| loss.cause.overrun()),
        network_datagrams: Some(loss.cause.network()).filter(|datagrams| 0 < *datagrams),
        time: loss.at.to_string(),
        what,
    })
}

/// Returns one line of JSON which reports that `count` messages were dropped because this client read too slowly.
pub fn dropped_json(count: u64) -> String {
    json(&DroppedJson { r#type: "dropped", count })
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("maps have text keys and writing to a string does not fail")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Epoch, Message};
    use crate::seqno::Seq;

    #[test]
    fn message_json_has_the_agreed_fields() {
        let mut delivery = delivery(b"hi", Verdict::Next);
        let received = WallTime::from_nanos(2_000_000_999);
        assert_eq!(
            message_json(&delivery, received),
            r#"{"type":"message","subject":"a.b","payload":"hi","user":"B.1","publisher":"B.test","epoch":"0000000000000abc","seq":"0x5c19adc000000005","verdict":"next","received":"1970-01-01T00:00:02.000000Z"}"#
        );
        delivery.message.payload = b"\xff\x00".as_slice().into();
        delivery.message.reply = Some("r".parse().unwrap());
        delivery.message.headers = Headers::from_pairs([("k", "1"), ("x", "\"y\""), ("k", "2")]).unwrap();
        delivery.verdict = Verdict::Skip(Count::Between { min: 0, max: 7 });
        delivery.publisher.name = None;
        assert_eq!(
            message_json(&delivery, received),
            r#"{"type":"message","subject":"a.b","payload_base64":"/wA=","user":"?.1","publisher":null,"epoch":"0000000000000abc","seq":"0x5c19adc000000005","verdict":"skip","missing":{"min":0,"max":7},"received":"1970-01-01T00:00:02.000000Z","reply":"r","headers":{"k":["1","2"],"x":"\"y\""}}"#
        );
        delivery.repaired = true;
        assert!(
            message_json(&delivery, received).contains(r#""missing":{"min":0,"max":7},"repaired":true,"received":"#)
        );
        (delivery.repaired, delivery.origin) = (false, Some(MessageOrigin::Publisher));
        assert!(message_json(&delivery, received).contains(r#""origin":"publisher","received":"#));
        delivery.origin = None;
        let verdicts =
            [Verdict::Start(WallTime::from_nanos(1_000_001_999)), Verdict::First, Verdict::Unnumbered, Verdict::Direct];
        for (verdict, word) in verdicts.into_iter().zip(["start", "first", "unnumbered", "direct"]) {
            delivery.verdict = verdict;
            let json = message_json(&delivery, received);
            assert!(json.contains(&format!(r#""verdict":"{word}""#)), "{word}");
            let has_time = json.contains(r#","sent":"1970-01-01T00:00:01.000001Z","#);
            assert_eq!((has_time, json.contains("sent")), (word == "start", word == "start"), "{json}");
        }
    }

    #[test]
    fn size_of_a_message_in_json_is_bounded() {
        for payload in [&b""[..], b"text", b"\x01\x1f\n\"\\", b"\xff\x00\x01", "Grüße".as_bytes()] {
            let mut delivery = delivery(payload, Verdict::Skip(Count::Between { min: 0, max: u64::MAX }));
            delivery.message.subject = "a.\"payload\":\"\"".parse().unwrap();
            delivery.message.reply = Some("r".parse().unwrap());
            delivery.message.headers = Headers::from_pairs([("k", "1"), ("x", "\"y\""), ("k", "2")]).unwrap();
            let received = WallTime::from_nanos(2_000_000_999);
            let whole = message_json(&delivery, received);
            let bound = message_json_bytes(&delivery.message);
            assert!((whole.len()..=whole.len() + FIELDS_BYTES + 200).contains(&bound), "{bound} {whole}");
            let (head, tail) = message_json_around_payload(&delivery, received);
            assert!(whole.starts_with(&head) && whole.ends_with(&tail), "{head} {tail} {whole}");
        }
    }

    fn delivery(payload: &'static [u8], verdict: Verdict) -> Delivery {
        Delivery {
            message: Message::new("a.b".parse().unwrap(), payload),
            publisher: Publisher { name: Some("B.test".parse().unwrap()), epoch: Epoch::new(0xabc).unwrap(), uid: 1 },
            seq: Seq::new(0x5c19_adc0_0000_0005),
            offset: None,
            verdict,
            repaired: false,
            replayed: false,
            origin: None,
        }
    }
}
