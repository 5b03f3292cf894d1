//! `decode`: prints the datagrams of a packet capture as the peers' own decoder reads them.

pub mod args;
pub(super) mod capture;
mod report;
mod text;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use self::args::DecodeOptions;
use self::capture::{Capture, CapturedDatagram};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note, pluralize};
use crate::wire::{self, Beacon, DiscardReason};

/// Numbers of the datagrams of a capture.
#[derive(Debug, Default)]
pub(super) struct DatagramTotals {
    decoded: u64,
    discarded: u64,
    foreign: u64,
}

/// Runs `decode`.
///
/// # Errors
/// The file cannot be read, or is no capture, or is damaged.
pub fn run(options: &DecodeOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let name = options.file.display();
    let damage = |error| CommandFailure::new(Exit::Failed, format_args!("{name}: {error}"));
    let mut capture = Capture::new(open(&options.file)?)
        .map_err(|error| damage(error).fix("record one, for example with 'tcpdump -w FILE udp'"))?;
    let mut totals = DatagramTotals::default();
    let result = loop {
        match capture.next_datagram() {
            Ok(Some(datagram)) => {
                if let Some(fields) = describe(&datagram, &mut totals) {
                    if options.json { out.line(Value::Object(fields)) } else { text::print(&fields, out) }?;
                }
            }
            Ok(None) => break Ok(Exit::Done),
            Err(error) => break Err(damage(error)),
        }
    };
    out.flush()?;
    note(format_args!(
        "{} decoded, {} discarded; {} of other protocols, {} without a whole UDP datagram",
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

/// Counts a datagram, and returns its fields, unless it is of another protocol.
pub(super) fn describe(datagram: &CapturedDatagram, totals: &mut DatagramTotals) -> Option<Map<String, Value>> {
    let payload = &datagram.payload;
    let mut fields = Map::new();
    fields.insert("frame".to_owned(), datagram.frame.into());
    let time = UNIX_EPOCH + Duration::from_nanos(datagram.time.as_nanos());
    fields.insert("time".to_owned(), humantime::format_rfc3339_nanos(time).to_string().into());
    fields.insert("source".to_owned(), datagram.source.to_string().into());
    fields.insert("destination".to_owned(), datagram.destination.to_string().into());
    fields.insert("bytes".to_owned(), payload.len().into());
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
            fields.insert("reason".to_owned(), json!(reason.to_string()));
        }
    }
    Some(fields)
}
