//! Messages and losses as `sub`, `req` and `demo` print them: a line of text, or a JSON object whose fields never
//! change.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::loss_text::{cause_text, reason_text};
use crate::bus::{Baseline, Joined};
use crate::event::timestamp::Timestamp;
use crate::message::{Cause, Count, Delivery, Headers, Loss, LossScope, MessageOrigin, Publisher, Verdict};
use crate::terminal::output::{EscapedText, json, pluralize};
use crate::time::WallTime;

/// A message in JSON.
#[derive(serde::Serialize)]
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
}

/// A payload in JSON: as text if it is UTF-8, else in Base64.
#[derive(serde::Serialize)]
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
#[derive(serde::Serialize)]
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
#[derive(serde::Serialize)]
#[serde(untagged)]
enum CountJson {
    Exact(u64),
    Between { min: u64, max: u64 },
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
pub(super) struct HeadersJson<'a>(pub &'a Headers);

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

/// The start of a subscription, in JSON.
#[derive(serde::Serialize)]
struct JoinedJson<'a> {
    r#type: &'static str,
    publishers: Vec<BaselineJson<'a>>,
}

#[derive(serde::Serialize)]
struct BaselineJson<'a> {
    #[serde(flatten)]
    publisher: PublisherJson<'a>,
    after: Option<u64>,
    replayed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A loss in JSON.
#[derive(serde::Serialize)]
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

#[derive(serde::Serialize)]
#[serde(untagged)]
enum MissingJson<'a> {
    Messages { subject: &'a str, first: String, last: String, count: CountJson },
    Datagrams { first: u64, last: u64, messages: CountJson },
    Tail { after: u64 },
    Inbox { messages: u64 },
}

/// A notice that this client was too slow, in JSON.
#[derive(serde::Serialize)]
struct DroppedJson {
    r#type: &'static str,
    count: u64,
}

/// Returns a delivered message as one line of JSON. `received` is the time at which this program took it.
pub fn message_json(delivery: &Delivery, received: WallTime) -> String {
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
    })
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

/// Returns the start of a subscription as one line of JSON.
pub fn joined_json(joined: &Joined) -> String {
    let publishers = joined.baselines.iter().map(|baseline| BaselineJson {
        publisher: (&baseline.publisher).into(),
        after: baseline.after.map(|after| after.0),
        replayed: baseline.replayed,
        problem: baseline.unjoined.map(|unjoined| unjoined.to_string()),
    });
    json(&JoinedJson { r#type: "joined", publishers: publishers.collect() })
}

/// The start of a subscription as one line of text, with a further one for each publisher that did not answer
/// completely.
#[derive(Clone, Copy, Debug)]
pub struct JoinedLine<'a>(pub &'a Joined);

impl fmt::Display for JoinedLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let publishers = pluralize(self.0.baselines.len() as u64, "publisher");
        write!(f, "joined {publishers}, {} replayed", pluralize(self.0.replayed(), "message"))?;
        for Baseline { publisher, unjoined, .. } in &self.0.baselines {
            if let Some(unjoined) = unjoined {
                write!(f, "\nno history, or not all, from {publisher}: {unjoined}")?;
            }
        }
        Ok(())
    }
}

/// A message as one line of text: subject, two spaces, payload.
#[derive(Clone, Copy, Debug)]
pub struct MessageLine<'a>(pub &'a Delivery);

impl fmt::Display for MessageLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = &self.0.message;
        write!(f, "{}  {}", EscapedText(message.subject.as_bytes()), EscapedText(&message.payload))
    }
}

/// A loss as one line of text: `!` and the lost messages, or `?` and the unverified ones.
#[derive(Clone, Copy, Debug)]
pub struct LossLine<'a>(pub &'a Loss);

impl LossLine<'_> {
    /// Returns whether messages are proven lost; otherwise they are unverified.
    pub fn is_lost(&self) -> bool {
        matches!(self.0.what, LossScope::Messages { .. } | LossScope::Inbox { .. })
    }
}

impl fmt::Display for LossLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let publisher = &self.0.publisher;
        match &self.0.what {
            LossScope::Messages { subject, first, last, count } => {
                let subject = EscapedText(subject.as_bytes());
                write!(f, "! lost {} on {subject} from {publisher}: ", count_of_messages(*count))?;
                match first == last {
                    true => write!(f, "{first}")?,
                    false => write!(f, "{first}..{last}")?,
                }
            }
            LossScope::Datagrams { first, last, messages } => write!(
                f,
                "? unverified: {} from {publisher} in {}",
                count_of_messages(*messages),
                if first == last { format!("datagram {first}") } else { format!("datagrams {first}..{last}") }
            )?,
            LossScope::Tail { after } => {
                write!(f, "? unverified: anything from {publisher} after datagram {after}")?;
            }
            LossScope::Inbox { messages } => {
                write!(f, "! lost {} to this peer's inbox from {publisher}", pluralize(*messages, "message"))?;
            }
        }
        let reason = reason_text(self.0.reason);
        match self.0.cause {
            Cause::Network => write!(f, " ({reason})"),
            cause => write!(f, " ({reason}; {})", cause_text(cause)),
        }
    }
}

/// Returns one line of text which reports that `count` messages were dropped because this client read too slowly.
pub fn dropped_line(count: u64) -> String {
    format!("! dropped {} here: this program reads too slowly (client-queue-size)", pluralize(count, "message"))
}

fn count_of_messages(count: Count) -> String {
    match count {
        Count::Exact(count) => pluralize(count, "message"),
        between => format!("{between} messages"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Dseq, Epoch, Message, Reason};
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
    fn losses_are_shown_in_text_and_json() {
        let messages = LossScope::Messages {
            subject: "a.b".parse().unwrap(),
            first: Seq::new(0x5c19_adc0_0000_0005).unwrap(),
            last: Seq::new(0x5c19_adc0_0000_0007).unwrap(),
            count: Count::Exact(3),
        };
        check(
            messages,
            "! lost 3 messages on a.b from B.1: 0x5c19adc000000005..0x5c19adc000000007 (repair is off)",
            r#""kind":"messages","user":"B.1","publisher":"B.test","epoch":"0000000000000abc","reason":"DISABLED","cause":"NETWORK","time":"00:00:01.000","subject":"a.b","first":"0x5c19adc000000005","last":"0x5c19adc000000007","count":3}"#,
        );
        check(
            LossScope::Datagrams { first: Dseq(4), last: Dseq(4), messages: Count::Exact(1) },
            "? unverified: 1 message from B.1 in datagram 4 (repair is off)",
            r#""time":"00:00:01.000","first":4,"last":4,"messages":1}"#,
        );
        check(
            LossScope::Tail { after: Dseq(9) },
            "? unverified: anything from B.1 after datagram 9 (repair is off)",
            r#""time":"00:00:01.000","after":9}"#,
        );
        check(
            LossScope::Inbox { messages: 2 },
            "! lost 2 messages to this peer's inbox from B.1 (repair is off)",
            r#""time":"00:00:01.000","messages":2}"#,
        );
        assert_eq!(dropped_json(5), r#"{"type":"dropped","count":5}"#);
        assert_eq!(dropped_line(1), "! dropped 1 message here: this program reads too slowly (client-queue-size)");
    }

    #[test]
    fn kernel_drops_are_named_as_cause() {
        let mut loss =
            loss(LossScope::Datagrams { first: Dseq(4), last: Dseq(6), messages: Count::Between { min: 2, max: 30 } });
        loss.cause = Cause::LocalOverrun { datagrams: 2 };
        assert_eq!(
            LossLine(&loss).to_string(),
            "? unverified: 2..30 messages from B.1 in datagrams 4..6 (repair is off; dropped by this host's kernel: 2)"
        );
        assert!(loss_json(&loss).contains(r#""cause":"LOCAL_OVERRUN","overrun_datagrams":2,"time""#));
        loss.cause = Cause::Mixed { overrun: 2, network: 1 };
        assert!(LossLine(&loss).to_string().ends_with("(repair is off; partly dropped by this host's kernel: 2 of 3)"));
        assert!(loss_json(&loss).contains(r#""cause":"MIXED","overrun_datagrams":2,"network_datagrams":1,"#));
    }

    fn check(what: LossScope, text: &str, json_end: &str) {
        let loss = loss(what);
        assert_eq!(LossLine(&loss).to_string(), text);
        let json = loss_json(&loss);
        assert!(json.starts_with(r#"{"type":"loss","kind":"#) && json.ends_with(json_end), "{json}");
    }

    fn loss(what: LossScope) -> Loss {
        let at = WallTime::from_nanos(1_000_000_000);
        Loss { publisher: publisher(), what, reason: Reason::Disabled, cause: Cause::Network, at }
    }

    fn delivery(payload: &'static [u8], verdict: Verdict) -> Delivery {
        Delivery {
            message: Message::new("a.b".parse().unwrap(), payload),
            publisher: publisher(),
            seq: Seq::new(0x5c19_adc0_0000_0005),
            offset: None,
            verdict,
            repaired: false,
            replayed: false,
            origin: None,
        }
    }

    fn publisher() -> Publisher {
        Publisher { name: Some("B.test".parse().unwrap()), epoch: Epoch::new(0xabc).unwrap(), uid: 1 }
    }
}
