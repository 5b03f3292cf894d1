//! `decode`: prints the datagrams of a packet capture as the peers' own decoder reads them.

pub mod args;
pub(super) mod capture;
mod capture_writer;
mod key_log;
mod report;
mod text;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use self::args::DecodeOptions;
use self::capture::{Capture, CapturedDatagram};
use self::capture_writer::CaptureWriter;
use crate::security::Suite;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note, pluralize};
use crate::wire::{self, Beacon, DiscardReason};

/// Numbers of the datagrams of a capture.
#[derive(Debug, Default)]
pub(super) struct DatagramTotals {
    decoded: u64,
    opened: u64,
    discarded: u64,
    foreign: u64,
}

/// Runs `decode`.
///
/// # Errors
/// A file cannot be read or written, or the capture is none, or is damaged.
pub fn run(options: &DecodeOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let name = options.file.display();
    let damage = |error| CommandFailure::new(Exit::Failed, format_args!("{name}: {error}"));
    let mut capture = Capture::new(open(&options.file)?)
        .map_err(|error| damage(error).fix("record one, for example with 'tcpdump -w FILE udp'"))?;
    let keys = options.keys.as_deref().map(key_log::read).transpose()?;
    let written = options.write.as_deref().unwrap_or(Path::new(""));
    let refusal = |error: io::Error| CommandFailure::new(Exit::Failed, format_args!("{}: {error}", written.display()));
    let mut writer = options.write.as_deref().map(CaptureWriter::create).transpose().map_err(refusal)?;
    let mut totals = DatagramTotals::default();
    let result = loop {
        match capture.next_datagram() {
            Ok(Some(datagram)) => {
                let opened = keys.as_ref().and_then(|keys| keys.open(&datagram.payload));
                if let Some(fields) = describe(&datagram, opened.as_ref(), &mut totals) {
                    if options.json { out.line(Value::Object(fields)) } else { text::print(&fields, out) }?;
                    if let Some(writer) = &mut writer {
                        writer.write(&datagram, opened.as_ref().unwrap_or(&datagram.payload)).map_err(refusal)?;
                    }
                }
            }
            Ok(None) => break Ok(Exit::Done),
            Err(error) => break Err(damage(error)),
        }
    };
    out.flush()?;
    writer.map_or(Ok(()), CaptureWriter::finish).map_err(refusal)?;
    let opened = if keys.is_some() { format!(" ({} opened with keys)", totals.opened) } else { String::new() };
    note(format_args!(
        "{} decoded{opened}, {} discarded; {} of other protocols, {} without a whole UDP datagram",
        pluralize(totals.decoded, "datagram"),
        totals.discarded,
        totals.foreign,
        pluralize(capture.skipped(), "packet"),
    ));
    result
}

/// Opens the capture; `-` is standard input.
fn open(path: &Path) -> Result<Box<dyn Read + Send>, CommandFailure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path)
        .map_err(|error| CommandFailure::new(Exit::Failed, format_args!("{}: {error}", path.display())))?;
    Ok(Box::new(file))
}

/// Counts a datagram, and returns its fields, unless it is of another protocol. `opened` is the datagram of open mode
/// that was sealed in it, if a key opens it.
pub(super) fn describe(
    datagram: &CapturedDatagram,
    opened: Option<&Bytes>,
    totals: &mut DatagramTotals,
) -> Option<Map<String, Value>> {
    let payload = opened.unwrap_or(&datagram.payload);
    totals.opened += u64::from(opened.is_some());
    let mut fields = Map::new();
    fields.insert("frame".to_owned(), datagram.frame.into());
    let time = UNIX_EPOCH + Duration::from_nanos(datagram.time.as_nanos());
    fields.insert("time".to_owned(), humantime::format_rfc3339_nanos(time).to_string().into());
    fields.insert("source".to_owned(), datagram.source.to_string().into());
    fields.insert("destination".to_owned(), datagram.destination.to_string().into());
    fields.insert("bytes".to_owned(), datagram.payload.len().into());
    if opened.is_some() {
        fields.insert("opened".to_owned(), true.into());
    }
    let decoded = match wire::decode(payload.clone()) {
        Ok(decoded) => {
            let records: Vec<Value> = decoded.records.iter().map(report::record_json).collect();
            Ok((report::header_fields(&decoded.header), records))
        }
        Err(DiscardReason::Foreign) => Beacon::decode(payload).map(|beacon| report::beacon_fields(&beacon)),
        Err(reason) => Err(reason),
    };
    match decoded {
        Ok((header, records)) => {
            totals.decoded += 1;
            fields.extend(header);
            fields.insert("records".to_owned(), records.into());
        }
        Err(DiscardReason::Foreign) => {
            totals.foreign += 1;
            return None;
        }
        Err(reason) => {
            totals.discarded += 1;
            if let (DiscardReason::Mode(_), Some(header)) = (&reason, wire::unchecked_header(payload)) {
                fields.extend(report::header_fields(&header));
            }
            fields.insert("discarded".to_owned(), json!(reason.as_str()));
            let text = match reason {
                DiscardReason::Mode(mode) if Suite::of_mode(mode).is_some() => {
                    "it is sealed, and no key opens it; --keys reads the key log of a peer".to_owned()
                }
                _ => reason.to_string(),
            };
            fields.insert("reason".to_owned(), text.into());
        }
    }
    Some(fields)
}
