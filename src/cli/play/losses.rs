//! `play --losses`: the holes of a recording.

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;

use super::args::PlayOptions;
use super::{open, read_failure, report_damage, report_truncation};
use crate::cli::recording::ChannelKind;
use crate::cli::recording::reader::{RecordedChannel, RecordingEvent};
use crate::subject::Subject;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{EscapedText, Output, json, note, pluralize};

/// The summary in JSON.
#[derive(Default, Serialize)]
struct HolesJson {
    r#type: &'static str,
    losses: u64,
    lost_min: u64,
    lost_max: u64,
    dropped: u64,
    damaged: u64,
    truncated: bool,
}

/// Prints the losses and drops in a file.
///
/// # Errors
/// The file cannot be read, or is no recording.
pub fn run(options: &PlayOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let path = &options.file;
    let mut reader = open(path)?;
    let mut holes = HolesJson { r#type: "holes", ..HolesJson::default() };
    let mut first = None;
    loop {
        let message = match reader.next_event().map_err(|error| read_failure(path, &error))? {
            RecordingEvent::Message(message) => message,
            RecordingEvent::Damage(damage) => {
                report_damage(path, &damage, holes.damaged);
                holes.damaged += 1;
                continue;
            }
            RecordingEvent::End => break,
            RecordingEvent::Truncated(offset) => {
                report_truncation(path, offset);
                holes.truncated = true;
                break;
            }
        };
        let first = *first.get_or_insert(message.log_time);
        let kind = match reader.channel(&message) {
            RecordedChannel::Notice(kind @ (ChannelKind::Loss | ChannelKind::Drop)) => *kind,
            _ => continue,
        };
        let is_early = options.from.is_some_and(|from| message.log_time < from.nanos(first));
        let is_late = options.until.is_some_and(|until| until.nanos(first) <= message.log_time);
        let Ok(Value::Object(fields)) = serde_json::from_slice(reader.data(&message)) else { continue };
        if is_early || is_late || !is_wanted(options, fields.get("subject")) {
            continue;
        }
        holes.add(kind, &fields);
        if options.json {
            out.line(Value::Object(fields))?;
        } else {
            let text = fields.get("text").and_then(Value::as_str).unwrap_or("! a loss without text");
            let time = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(message.log_time));
            out.alarm(format_args!("{time}  {}", EscapedText(text.as_bytes())), text.starts_with('!'))?;
        }
    }
    let exit = if holes.truncated || 0 < holes.damaged { Exit::Failed } else { Exit::Done };
    if options.json {
        out.line(json(&holes))?;
    } else {
        out.flush()?;
        let lost = match (holes.lost_min, holes.lost_max) {
            (min, max) if min == max => pluralize(min, "message"),
            (min, max) => format!("{min}..{max} messages"),
        };
        let reports = pluralize(holes.losses, "loss report");
        note(format_args!("{reports}: {lost} lost on the bus, {} dropped by the recorder", holes.dropped));
    }
    Ok(exit)
}

/// Returns whether a loss concerns a wanted subject. A loss without subject concerns any.
fn is_wanted(options: &PlayOptions, subject: Option<&Value>) -> bool {
    let Some(Ok(subject)) = subject.and_then(Value::as_str).map(str::parse::<Subject>) else { return true };
    options.subjects.is_empty() || options.subjects.iter().any(|pattern| pattern.matches(&subject))
}

impl HolesJson {
    fn add(&mut self, kind: ChannelKind, fields: &serde_json::Map<String, Value>) {
        let number = |key: &str| fields.get(key).and_then(Value::as_u64);
        if kind == ChannelKind::Drop {
            self.dropped = self.dropped.saturating_add(number("count").unwrap_or(0));
            return;
        }
        self.losses += 1;
        let count = match fields.get("kind").and_then(Value::as_str) {
            Some("messages") => fields.get("count"),
            Some("inbox") => fields.get("messages"),
            // It is unknown whether these are lost.
            _ => None,
        };
        let bound =
            |key: &str| count.and_then(|count| count.as_u64().or_else(|| count.get(key)?.as_u64())).unwrap_or(0);
        self.lost_min = self.lost_min.saturating_add(bound("min"));
        self.lost_max = self.lost_max.saturating_add(bound("max"));
    }
}
