//! The arguments of `event`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::help;
use crate::cli::bus_options::BusOptions;
use crate::cli::tail_options::TailOptions;
use crate::event::model::{EventId, ServerId};
use crate::event::timestamp::Timestamp;
use crate::subject::event_type::{EventType, TypePattern};

/// `seqcast event`.
#[derive(Args, Clone, Debug)]
pub struct EventOptions {
    /// The command.
    #[command(subcommand)]
    pub what: EventCommand,
}

/// The commands of `seqcast event`.
#[derive(Clone, Debug, Subcommand)]
pub enum EventCommand {
    /// Register an event: the peer stores it, then acknowledges it, then multicasts it.
    #[command(after_help = help::EVENT_ADD)]
    Add(EventAddOptions),
    /// Find events in the journal of the peer.
    #[command(after_help = help::EVENT_QUERY)]
    Query(QueryOptions),
    /// Print events of all peers as they arrive, and known losses.
    #[command(after_help = help::EVENT_TAIL)]
    Tail(EventTailOptions),
}

impl EventCommand {
    /// Returns the options of the bus.
    pub fn bus(&mut self) -> &mut BusOptions {
        match self {
            EventCommand::Add(options) => &mut options.bus,
            EventCommand::Query(options) => &mut options.bus,
            EventCommand::Tail(options) => &mut options.bus,
        }
    }
}

/// `seqcast event add`.
#[derive(Args, Clone, Debug)]
pub struct EventAddOptions {
    /// The type: subtypes with / between them, such as plant/7/alarm.
    #[arg(value_name = "TYPE")]
    pub event_type: EventType,
    /// The payload, a JSON text; without it standard input, unless it is a terminal; empty input gives an event
    /// without payload.
    pub payload: Option<String>,
    /// Take the payload from this file; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "lines"])]
    pub file: Option<PathBuf>,
    /// Read standard input: each line is the payload of an event.
    #[arg(long, conflicts_with = "payload")]
    pub lines: bool,
    /// The payload is no JSON, but opaque bytes; NAME, which may be empty, describes their format.
    #[arg(long, value_name = "NAME")]
    pub binary: Option<String>,
    /// Time at which the event occurred: 2026-11-22T15:04:05.5Z, now, or a time back from now, such as 90s.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub source_time: Option<TimeArgument>,
    /// Print the event as a line of JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast event query`.
#[derive(Args, Clone, Debug)]
pub struct QueryOptions {
    /// The types: ? matches one subtype, a last * any number of them; without patterns all.
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<TypePattern>,
    /// Only the last event of each type.
    #[arg(long, conflicts_with_all = ["server", "from", "to", "source_from", "source_to", "by_source_time", "reverse", "limit", "after"])]
    pub latest: bool,
    /// The events of one server, in the order of their ids.
    #[arg(long, value_name = "ID", value_parser = server, conflicts_with_all = ["patterns", "from", "to", "source_from", "source_to", "by_source_time", "reverse"])]
    pub server: Option<ServerId>,
    /// Registered at this time or later: 2026-11-22T15:04:05Z, or a time back from now, such as 90s.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<TimeArgument>,
    /// Registered at this time or earlier.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to: Option<TimeArgument>,
    /// Occurred at this time or later, by the time of the source.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub source_from: Option<TimeArgument>,
    /// Occurred at this time or earlier, by the time of the source.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub source_to: Option<TimeArgument>,
    /// In the order in which they occurred; those without a source time are left out.
    #[arg(long)]
    pub by_source_time: bool,
    /// From the latest to the earliest.
    #[arg(long)]
    pub reverse: bool,
    /// Maximum number of events; the journal returns at most 4096 at a time.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Only events after the one with this id.
    #[arg(long, value_name = "ID")]
    pub after: Option<EventId>,
    /// Print a line of JSON for each event.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// `seqcast event tail`.
#[derive(Args, Clone, Debug)]
pub struct EventTailOptions {
    /// The types: ? matches one subtype, a last * any number of them.
    #[arg(value_name = "PATTERN", required = true)]
    pub patterns: Vec<TypePattern>,
    /// End and form of the output.
    #[command(flatten)]
    pub tail: TailOptions,
    /// Options of the bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// A point in time, or a span before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeArgument {
    /// The point in time.
    Absolute(Timestamp),
    /// The span before now.
    BeforeNow(Duration),
}

impl TimeArgument {
    /// Returns the point in time, if `now` is the current time; the earliest possible one if the span reaches further
    /// back.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            TimeArgument::Absolute(timestamp) => timestamp,
            TimeArgument::BeforeNow(span) => {
                let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
                Timestamp::from_micros(now.as_micros().saturating_sub(micros)).unwrap_or(Timestamp::MIN)
            }
        }
    }
}

/// Reads a time: as RFC 3339 writes it, `now`, or a time back from now.
fn parse_time(text: &str) -> Result<TimeArgument, String> {
    if text == "now" {
        return Ok(TimeArgument::BeforeNow(Duration::ZERO));
    }
    match (humantime::parse_duration(text), text.parse()) {
        (Ok(span), _) => Ok(TimeArgument::BeforeNow(span)),
        (_, Ok(timestamp)) => Ok(TimeArgument::Absolute(timestamp)),
        (_, Err(error)) => Err(format!("{error}; or now, or a time back from now, such as 90s")),
    }
}

fn server(text: &str) -> Result<ServerId, String> {
    text.parse().map(ServerId).map_err(|_| format!("a server is a number from 0 to {}", u32::MAX))
}
