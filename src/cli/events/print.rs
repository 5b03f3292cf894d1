//! Events as `event` prints them: rows of a table, lines of text, JSON objects whose fields never change.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::value::RawValue;

use crate::event::model::{Event, EventId, Payload};
use crate::terminal::output::{EscapedText, json, pluralize};
use crate::terminal::table::{Column, TextTable};

const COLUMNS: [Column; 5] = [
    Column::new("id").left(),
    Column::new("time").left(),
    Column::new("source time").left(),
    Column::new("type").left(),
    Column::new("payload").left(),
];

/// An event in JSON.
#[derive(serde::Serialize)]
struct EventJson<'a> {
    r#type: &'static str,
    id: String,
    event_type: String,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_time: Option<String>,
    /// Payload as it was registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    /// Format and bytes of a payload that is no JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// Returns an event as one line of JSON. A JSON payload in several lines becomes one line.
pub fn event_json(event: &Event) -> String {
    let mut line = EventJson {
        r#type: "event",
        id: event.id.to_string(),
        event_type: event.event_type.to_string(),
        time: event.timestamp.to_string(),
        source_time: event.source_timestamp.map(|time| time.to_string()),
        payload: None,
        payload_type: None,
        payload_base64: None,
    };
    let text;
    match &event.payload {
        None => {}
        Some(Payload::Json(payload)) => {
            // A line feed in a JSON text occurs between its parts only, where a blank has the same meaning.
            text = payload.as_str().replace(['\n', '\r'], " ");
            line.payload = Some(serde_json::from_str(&text).expect("it was checked when it was registered"));
            return json(&line);
        }
        Some(Payload::Binary { type_name, bytes }) => {
            line.payload_type = Some(type_name);
            line.payload_base64 = Some(BASE64_STANDARD.encode(bytes));
        }
    }
    json(&line)
}

/// Returns a line of JSON which reports that there are more events than an answer holds. It contains the event after
/// which they begin, if that can be requested.
pub fn more_json(last: Option<EventId>) -> String {
    #[derive(serde::Serialize)]
    struct MoreJson {
        r#type: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    }
    json(&MoreJson { r#type: "more_follows", after: last.map(|last| last.to_string()) })
}

/// An event as a line of text.
pub struct EventLine<'a>(pub &'a Event);

impl fmt::Display for EventLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { id, event_type, timestamp, .. } = self.0;
        let event_type = event_type.to_string();
        write!(f, "{id}  {timestamp}  {}", EscapedText(event_type.as_bytes()))?;
        if let Some(payload) = &self.0.payload {
            write!(f, "  {}", PayloadText(payload))?;
        }
        Ok(())
    }
}

/// A payload for people.
struct PayloadText<'a>(&'a Payload);

impl fmt::Display for PayloadText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Payload::Json(json) => EscapedText(json.bytes()).fmt(f),
            Payload::Binary { type_name, bytes } => {
                write!(f, "{} of type '{}'", pluralize(bytes.len() as u64, "byte"), EscapedText(type_name.as_bytes()))
            }
        }
    }
}

/// Returns events as a table.
pub fn table(events: &[Event]) -> TextTable {
    let mut table = TextTable::new(&COLUMNS);
    for event in events {
        table.row(vec![
            event.id.to_string(),
            event.timestamp.to_string(),
            event.source_timestamp.map_or("-".into(), |time| time.to_string()),
            EscapedText(event.event_type.to_string().as_bytes()).to_string(),
            event.payload.as_ref().map_or("-".into(), |payload| PayloadText(payload).to_string()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::Json;
    use bytes::Bytes;

    fn event(payload: Option<Payload>) -> Event {
        Event {
            id: "7/42/1".parse().unwrap(),
            event_type: "plant/7".parse().unwrap(),
            timestamp: "2026-11-22T15:04:05.5Z".parse().unwrap(),
            source_timestamp: None,
            payload,
        }
    }

    #[test]
    fn payload_is_printed_unchanged_in_one_line() {
        let json = Json::from_bytes(Bytes::from_static(b"{\n \"v\": 1.50,\r\n\"w\":\"a\\nb\"}")).unwrap();
        let line = event_json(&event(Some(Payload::Json(json))));
        assert_eq!(
            line,
            "{\"type\":\"event\",\"id\":\"7/42/1\",\"event_type\":\"plant/7\",\
             \"time\":\"2026-11-22T15:04:05.500000Z\",\"payload\":{  \"v\": 1.50,  \"w\":\"a\\nb\"}}"
        );
        let binary = Payload::Binary { type_name: "t".into(), bytes: Bytes::from_static(b"\x00\xff") };
        assert!(
            event_json(&event(Some(binary.clone()))).ends_with("\"payload_type\":\"t\",\"payload_base64\":\"AP8=\"}")
        );
        assert_eq!(
            EventLine(&event(Some(binary))).to_string(),
            "7/42/1  2026-11-22T15:04:05.500000Z  plant/7  2 bytes of type 't'"
        );
        assert_eq!(EventLine(&event(None)).to_string(), "7/42/1  2026-11-22T15:04:05.500000Z  plant/7");
    }
}
