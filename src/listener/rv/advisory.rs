//! Advisories of the daemon as messages.
//!
//! Losses arrive from the peer as JSON objects, which serve all other clients. Rendezvous clients get them as RVMSG: the
//! fields that their libraries know come first, in their order and with their types, and those of this bus follow.

use super::envelope::{self, RvLetter};
use super::message::{RvField, RvMessage, RvValue};
use super::subject;
use crate::listener::drop_report::DropReport;
use crate::subject::Subject;
use serde_json::{Map, Value};

/// Prefix of the subjects of all advisories of daemons.
const PREFIX: &str = "_RV.";
/// Maximum number of lost messages that an advisory reports.
const LOST_MAX: u64 = 0x7fff_ffff;
/// Maximum number of subjects that libraries know by their fields.
const KNOWN_SUBJECTS: usize = 9;
/// Beginning of the names of advisories about losses.
const LOSS_NAME: &str = "DATALOSS.";

/// Class of an advisory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvisoryClass {
    /// Normal events.
    Info,
    /// Errors.
    Error,
}

impl AdvisoryClass {
    fn as_str(self) -> &'static str {
        match self {
            AdvisoryClass::Info => "INFO",
            AdvisoryClass::Error => "ERROR",
        }
    }
}

/// Returns the subject of an advisory as text. `name` is its `ADV_NAME`.
pub fn subject_text(class: AdvisoryClass, name: &str) -> String {
    format!("{PREFIX}{}.SYSTEM.{name}", class.as_str())
}

/// Returns the data of an advisory with these fields after the common ones.
pub fn data<'a>(class: AdvisoryClass, name: &'a str, rest: Vec<RvField<'a>>) -> RvMessage<'a> {
    let mut message = RvMessage::default();
    message.push("ADV_CLASS", text(class.as_str()));
    message.push("ADV_SOURCE", text("SYSTEM"));
    message.push("ADV_NAME", text(name));
    message.fields.extend(rest);
    message
}

/// Returns a text as a value.
pub fn text(text: &str) -> RvValue<'_> {
    RvValue::String(text.as_bytes())
}

/// Returns a field without an id.
pub fn field<'a>(name: &'a str, value: RvValue<'a>) -> RvField<'a> {
    RvField { name: name.as_bytes(), id: None, value }
}

/// An advisory as a message for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedAdvisory {
    /// Subject as text.
    pub subject: String,
    /// The data.
    pub data: Vec<u8>,
}

impl EncodedAdvisory {
    /// Returns the advisory as a frame for a client; `None` if the protocol cannot express its subject.
    pub fn frame(&self) -> Option<Vec<u8>> {
        let data = RvMessage::decode(&self.data).expect("an encoded message");
        envelope::frame(self.subject.as_bytes(), RvLetter::Advisory, None, data)
    }
}

/// Converts an advisory of the peer about losses. `None` if the payload is no such advisory.
pub fn of_json(payload: &[u8]) -> Option<EncodedAdvisory> {
    let json: Map<String, Value> = serde_json::from_slice(payload).ok()?;
    let name = string(&json, "ADV_NAME").filter(|name| name.starts_with(LOSS_NAME))?;
    let lost = bounds(&json, "lost").1;
    // No advisory is about nothing: content is unverified, or the publisher fell silent.
    let is_unknown = lost == 0;
    let named = named_subjects(&json);
    let mut rest = vec![field("ADV_DESC", text(if is_unknown { "lost seqno tracking" } else { "lost msgs" }))];
    rest.extend(string(&json, "host").map(|host| field("host", text(host))));
    rest.extend(string(&json, "publisher").map(|name| field("hostid", text(name))));
    rest.push(field("lost", count(if is_unknown { 1 } else { lost })));
    rest.push(field("sub_cnt", count(bounds(&json, "sub_cnt").1)));
    let (known, further) = named.split_at(named.len().min(KNOWN_SUBJECTS));
    rest.extend(subject_fields(known));
    let scid = u16::try_from(bounds(&json, "scid").1).unwrap_or_default();
    rest.push(field("scid", RvValue::IpPort(scid)));
    rest.extend(subject_fields(further));
    rest.extend(own_fields(&json));
    encode(AdvisoryClass::Error, name, rest)
}

/// A subject with its losses.
struct NamedSubject {
    /// Name of the field with the subject.
    sub: String,
    /// Name of the field with the number.
    lost: String,
    text: Vec<u8>,
    count: u64,
}

/// Returns the subjects with losses, in the order of the advisory.
fn named_subjects(json: &Map<String, Value>) -> Vec<NamedSubject> {
    let named = |number: usize| {
        let (sub, lost) = (format!("sub{number}"), format!("lost{number}"));
        let subject: Subject = string(json, &sub)?.parse().ok()?;
        Some(NamedSubject { text: subject::of_subject(&subject), count: bounds(json, &lost).1, sub, lost })
    };
    (1..).map_while(named).collect()
}

/// Returns the fields of these subjects.
fn subject_fields(named: &[NamedSubject]) -> impl Iterator<Item = RvField<'_>> {
    named.iter().flat_map(|NamedSubject { sub, lost, text, count: lost_count }| {
        [field(sub, RvValue::String(text)), field(lost, count(*lost_count))]
    })
}

/// Returns the fields that only this bus has.
fn own_fields(json: &Map<String, Value>) -> Vec<RvField<'_>> {
    let texts = ["site", "publisher", "user", "epoch", "reason", "cause"];
    let numbers = [
        "repaired",
        "kernel_drops",
        "network_drops",
        "unverified",
        "unverified_first",
        "unverified_last",
        "tails",
        "subjects_omitted",
    ];
    let mut fields: Vec<RvField<'_>> =
        texts.into_iter().filter_map(|name| Some(field(name, text(string(json, name)?)))).collect();
    let number = |name| Some(field(name, RvValue::U64(json.get(name)?.as_u64()?)));
    fields.extend(numbers.into_iter().filter_map(number));
    if json.get("lost").is_some_and(Value::is_object) {
        let (min, max) = bounds(json, "lost");
        fields.push(field("lost_min", RvValue::U64(min)));
        fields.push(field("lost_max", RvValue::U64(max)));
    }
    fields
}

/// Returns the advisory to a client that does not read fast enough. Libraries know the fields up to `reason`.
pub fn slow_consumer(report: &DropReport) -> Option<EncodedAdvisory> {
    let named = |(index, (subject, lost)): (usize, &(Subject, u64))| NamedSubject {
        sub: format!("sub{}", index + 1),
        lost: format!("lost{}", index + 1),
        text: subject::of_subject(subject),
        count: *lost,
    };
    let named: Vec<NamedSubject> = report.subjects.iter().take(KNOWN_SUBJECTS).enumerate().map(named).collect();
    let mut rest = vec![
        field("ADV_DESC", text("the client does not read fast enough and has lost messages")),
        field("waiting", count(report.waiting)),
        field("dropped", count(report.dropped)),
        field("bytes_dropped", count(report.dropped_bytes)),
        field("reason", text("size limit")),
        field("sub_cnt", count(report.subjects.len() as u64)),
    ];
    rest.extend(subject_fields(&named));
    encode(AdvisoryClass::Error, "CLIENT.SLOWCONSUMER", rest)
}

/// Encodes an advisory.
pub fn encode(class: AdvisoryClass, name: &str, rest: Vec<RvField<'_>>) -> Option<EncodedAdvisory> {
    let mut bytes = Vec::new();
    data(class, name, rest).encode(&mut bytes).ok()?;
    Some(EncodedAdvisory { subject: subject_text(class, name), data: bytes })
}

fn string<'a>(json: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    json.get(name)?.as_str()
}

/// Returns the lower and the upper bound of a number.
fn bounds(json: &Map<String, Value>, name: &str) -> (u64, u64) {
    let Some(value) = json.get(name) else { return (0, 0) };
    let bound = |name| value.get(name).and_then(Value::as_u64).unwrap_or_default();
    // Nothing bounds the number if the upper bound is null.
    value.as_u64().map_or_else(|| (bound("min"), bound("max").max(bound("min"))), |exact| (exact, exact))
}

/// Returns a number of messages as a value.
fn count(count: u64) -> RvValue<'static> {
    RvValue::U32(u32::try_from(count.min(LOST_MAX)).expect("the number is limited"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(json: &str) -> (String, String) {
        shown(&of_json(json.as_bytes()).unwrap())
    }

    fn shown(advisory: &EncodedAdvisory) -> (String, String) {
        let message = RvMessage::decode(&advisory.data).unwrap();
        let show = |value: &RvValue<'_>| match value {
            RvValue::String(text) => format!("{:?}", String::from_utf8_lossy(text)),
            other => format!("{other:?}"),
        };
        let fields = message.fields.iter();
        let fields: Vec<_> =
            fields.map(|field| format!("{}={}", String::from_utf8_lossy(field.name), show(&field.value))).collect();
        (advisory.subject.clone(), fields.join(" "))
    }

    #[test]
    fn standard_fields_come_first_in_their_order() {
        let (subject, fields) = decoded(
            r#"{"ADV_CLASS":"ERROR","ADV_SOURCE":"SYSTEM","ADV_NAME":"DATALOSS.INBOUND.BCAST","ADV_DESC":"lost msgs",
            "lost":7,"sub_cnt":2,"sub1":"LOSS.A","lost1":6,"sub2":"x%20y","lost2":1,"scid":7510,"host":"10.0.0.2",
            "user":"B.1","publisher":"B.test","epoch":"0abc","reason":"DISABLED","cause":"NETWORK","unverified":0}"#,
        );
        assert_eq!(subject, "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST");
        assert_eq!(
            fields,
            concat!(
                r#"ADV_CLASS="ERROR" ADV_SOURCE="SYSTEM" ADV_NAME="DATALOSS.INBOUND.BCAST" ADV_DESC="lost msgs" "#,
                r#"host="10.0.0.2" hostid="B.test" lost=U32(7) sub_cnt=U32(2) sub1="LOSS.A" lost1=U32(6) sub2="x y" "#,
                r#"lost2=U32(1) scid=IpPort(7510) publisher="B.test" user="B.1" epoch="0abc" reason="DISABLED" "#,
                r#"cause="NETWORK" unverified=U64(0)"#
            )
        );
    }

    #[test]
    fn uncertain_losses_have_bounds() {
        let (_, fields) = decoded(r#"{"ADV_NAME":"DATALOSS.INBOUND.PTP","lost":{"min":2,"max":9999999999},"scid":1}"#);
        assert!(fields.contains("lost=U32(2147483647)"), "{fields}");
        assert!(fields.ends_with("lost_min=U64(2) lost_max=U64(9999999999)"), "{fields}");
        for reason in [r#""unverified":4"#, r#""reason":"SILENT""#] {
            let (_, fields) = decoded(&format!(r#"{{"ADV_NAME":"DATALOSS.INBOUND.BCAST","lost":0,{reason}}}"#));
            assert!(fields.contains(r#"ADV_DESC="lost seqno tracking" lost=U32(1)"#), "{fields}");
        }
    }

    #[test]
    fn slow_client_learns_its_waiting_and_lost_messages() {
        let subjects = vec![("a".parse().unwrap(), 4), ("b".parse().unwrap(), 1)];
        let report = DropReport { waiting: 17, dropped: 5, dropped_bytes: 320, subjects };
        let (subject, fields) = shown(&slow_consumer(&report).unwrap());
        assert_eq!(subject, "_RV.ERROR.SYSTEM.CLIENT.SLOWCONSUMER");
        let expected = r#"waiting=U32(17) dropped=U32(5) bytes_dropped=U32(320) reason="size limit" sub_cnt=U32(2) sub1="a" lost1=U32(4) sub2="b" lost2=U32(1)"#;
        assert!(fields.ends_with(expected), "{fields}");
    }

    #[test]
    fn other_payloads_are_no_advisories() {
        for payload in [
            &b""[..],
            b"{}",
            b"[]",
            b"\0\0\0\x08\x99\x55\xee\xaa",
            br#"{"ADV_NAME":1}"#,
            br#"{"ADV_NAME":"STREAM.LAPSED"}"#,
        ] {
            assert_eq!(of_json(payload), None);
        }
    }
}
