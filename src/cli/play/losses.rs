//! `play --losses`: the holes of a recording.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value};

use super::args::{PartPosition, PlayOptions};
use super::recording_file::RecordingFile;
use crate::cli::recording::ChannelKind;
use crate::cli::recording::reader::RecordedChannel;
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
/// The file cannot be read.
pub fn run(file: &mut RecordingFile<'_>, options: &PlayOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let mut holes = HolesJson { r#type: "holes", ..HolesJson::default() };
    let mut first = None;
    while let Some(message) = file.next_message()? {
        let first = *first.get_or_insert(message.log_time);
        let kind = match file.channel(&message) {
            RecordedChannel::Notice(kind @ (ChannelKind::Loss | ChannelKind::Drop)) => *kind,
            _ => continue,
        };
        let Ok(Value::Object(fields)) = serde_json::from_slice(file.data(&message)) else { continue };
        let is_within = options.position_of(message.log_time, first) == PartPosition::Within;
        if is_within && is_selected(options, fields.get("subject")) {
            holes.add(kind, &fields);
            print(fields, message.log_time, options.json, out)?;
        }
    }
    (holes.damaged, holes.truncated) = (file.damaged, file.is_truncated);
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
    Ok(if holes.truncated || 0 < holes.damaged { Exit::Failed } else { Exit::Done })
}

/// Prints a loss or drop: its JSON object, or its text with its time.
fn print(fields: Map<String, Value>, log_time: u64, json: bool, out: &mut Output) -> io::Result<()> {
    if json {
        return out.line(Value::Object(fields));
    }
    let text = fields.get("text").and_then(Value::as_str).unwrap_or("! a loss without text");
    let time = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(log_time));
    out.alarm(format_args!("{time}  {}", EscapedText(text.as_bytes())), text.starts_with('!'))
}

/// Returns whether `--subjects` selects a loss. A loss without subject concerns any subject.
fn is_selected(options: &PlayOptions, subject: Option<&Value>) -> bool {
    let subject = subject.and_then(Value::as_str).map(str::parse::<Subject>);
    !matches!(subject, Some(Ok(subject)) if !options.selects(&subject))
}

impl HolesJson {
    fn add(&mut self, kind: ChannelKind, fields: &Map<String, Value>) {
        let number = |key: &str| fields.get(key).and_then(Value::as_u64);
        if kind == ChannelKind::Drop {
            self.dropped = self.dropped.saturating_add(number("count").unwrap_or(0));
            return;
        }
        self.losses += 1;
        let count = match fields.get("kind").and_then(Value::as_str) {
            Some("messages") => fields.get("count"),
            Some("inbox") => fields.get("messages"),
            // The datagrams of the other kinds may contain no messages.
            _ => None,
        };
        let bound =
            |key: &str| count.and_then(|count| count.as_u64().or_else(|| count.get(key)?.as_u64())).unwrap_or(0);
        self.lost_min = self.lost_min.saturating_add(bound("min"));
        self.lost_max = self.lost_max.saturating_add(bound("max"));
    }
}
