//! Streams, their events and their consumers as the commands print them: rows of tables, lines of text, JSON whose
//! fields never change.

use std::fmt;

use serde_json::value::RawValue;

use crate::bus::StreamRow;
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::StreamName;
use crate::event::stream::store::{ConsumerRow, MissedRange};
use crate::terminal::output::{EscapedText, json};
use crate::terminal::table::{Column, TextTable};

const EVENTS: [Column; 4] =
    [Column::new("id"), Column::new("time").left(), Column::new("type").left(), Column::new("data").left()];

const STREAMS: [Column; 8] = [
    Column::new("stream").left(),
    Column::new("last"),
    Column::new("events"),
    Column::new("bytes"),
    Column::new("consumers"),
    Column::new("limits").left(),
    Column::new("policy").left(),
    Column::new("types").left(),
];

const CONSUMERS: [Column; 7] = [
    Column::new("stream").left(),
    Column::new("user").left(),
    Column::new("component").left(),
    Column::new("position"),
    Column::new("lag"),
    Column::new("last request").left(),
    Column::new("lapsed").left(),
];

/// An event in JSON.
#[derive(serde::Serialize)]
struct StreamEventJson<'a> {
    r#type: &'static str,
    stream: &'a str,
    id: String,
    event_type: &'a str,
    time: String,
    origin: String,
    /// Data as it was added.
    data: &'a RawValue,
}

/// Returns an event as one line of JSON. Data in several lines becomes one line.
pub fn event_json(stream: &StreamName, of: &StreamEvent) -> String {
    // A line feed in a JSON text occurs between its parts only, where a blank has the same meaning.
    let text = of.data.as_str().replace(['\n', '\r'], " ");
    json(&StreamEventJson {
        r#type: "event",
        stream: stream.as_str(),
        id: of.id.to_string(),
        event_type: of.kind.as_str(),
        time: of.time.to_string(),
        origin: of.origin.to_string(),
        data: serde_json::from_str(&text).expect("it was checked when it was added"),
    })
}

/// An event as a line of text.
pub struct StreamEventLine<'a>(pub &'a StreamEvent);

impl fmt::Display for StreamEventLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StreamEvent { id, kind, data, time, .. } = self.0;
        write!(f, "{id}  {time}  {kind}  {}", EscapedText(data.bytes()))
    }
}

/// Returns events as a table.
pub fn events(events: &[StreamEvent]) -> TextTable {
    let mut table = TextTable::new(&EVENTS);
    for StreamEvent { id, kind, data, time, .. } in events {
        table.row(vec![id.to_string(), time.to_string(), kind.to_string(), EscapedText(data.bytes()).to_string()]);
    }
    table
}

/// Returns streams as a table.
pub fn streams(rows: &[StreamRow]) -> TextTable {
    let mut table = TextTable::new(&STREAMS);
    for StreamRow { settings, contents, consumers } in rows {
        let limits = &settings.limits;
        let age = limits.age.map(|age| humantime::format_duration(age).to_string());
        let limit: Vec<String> = age.into_iter().chain(limits.bytes.map(|bytes| format!("{bytes} bytes"))).collect();
        let types: Vec<String> = settings.types.iter().map(ToString::to_string).collect();
        table.row(vec![
            settings.name.to_string(),
            contents.last.to_string(),
            contents.events.to_string(),
            contents.bytes.to_string(),
            consumers.to_string(),
            if limit.is_empty() { "-".into() } else { limit.join(", ") },
            limits.policy.as_str().into(),
            if types.is_empty() { "-".into() } else { EscapedText(types.join(" ").as_bytes()).to_string() },
        ]);
    }
    table
}

/// Returns consumers of streams as a table.
pub fn consumers(rows: &[(StreamName, ConsumerRow)]) -> TextTable {
    let mut table = TextTable::new(&CONSUMERS);
    for (stream, row) in rows {
        table.row(vec![
            stream.to_string(),
            EscapedText(row.consumer.user.as_str().as_bytes()).to_string(),
            row.consumer.component.to_string(),
            row.position.to_string(),
            row.lag.to_string(),
            row.last_request.to_string(),
            row.lapsed.map_or("-".into(), |missed| MissedRangeText(missed).to_string()),
        ]);
    }
    table
}

/// The events that a consumer missed, for people.
pub struct MissedRangeText(pub MissedRange);

impl fmt::Display for MissedRangeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissedRange { first, last, count } = self.0;
        match count {
            1 => write!(f, "missed the event {first}"),
            count => write!(f, "missed {count} events, {first} to {last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::model::Json;
    use bytes::Bytes;

    #[test]
    fn data_is_printed_unchanged_in_one_line() {
        let event = StreamEvent {
            id: "12".parse().unwrap(),
            kind: "LEVEL".parse().unwrap(),
            data: Json::from_bytes(Bytes::from_static(b"{\n \"v\": 1.50}")).unwrap(),
            time: "2026-11-22T15:04:05.5Z".parse().unwrap(),
            origin: "7/42/1".parse().unwrap(),
        };
        assert_eq!(
            event_json(&"main".parse().unwrap(), &event),
            "{\"type\":\"event\",\"stream\":\"main\",\"id\":\"12\",\"event_type\":\"LEVEL\",\
             \"time\":\"2026-11-22T15:04:05.500000Z\",\"origin\":\"7/42/1\",\"data\":{  \"v\": 1.50}}"
        );
        assert_eq!(StreamEventLine(&event).to_string(), "12  2026-11-22T15:04:05.500000Z  LEVEL  {\\n \"v\": 1.50}");
    }
}
