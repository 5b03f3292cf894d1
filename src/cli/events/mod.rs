//! `event`: registers events, finds them in the journal, prints them as they come.

pub mod args;
pub mod help;
mod print;

use std::io::{self, IsTerminal};
use std::path::Path;

use bytes::Bytes;

use self::args::{EventAddOptions, EventCommand, EventTailOptions, QueryOptions, TimeArgument};
use self::print::{EventLine, event_json, more_json, table};
use super::connect::{self, Events, StopReason};
use super::event::{self, LossLine};
use super::lines::{LineFailure, process_lines};
use super::publish::{check_size, read};
use crate::bus::{self, Bus, EventError, PendingRegistration, SubscribeOptions};
use crate::clock::Clock;
use crate::event::model::{Event, Json, Payload, Registration};
use crate::event::refusal::EventRefusalKind;
use crate::event::store::{Query, QueryPage, Series, SeriesOrder, ServerQuery, TimeSpan};
use crate::event::timestamp::Timestamp;
use crate::listener::notice;
use crate::subject::Pattern;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note, pluralize};
use crate::terminal::peer;

/// Runs `event`.
///
/// # Errors
/// The input is wrong, the peer refuses it, or the peer cannot be reached.
pub fn run(what: &EventCommand, out: &mut Output) -> Result<Exit, CommandFailure> {
    match what {
        EventCommand::Add(options) => add(options, out),
        EventCommand::Query(options) => query(options, out),
        EventCommand::Tail(options) => tail(options, out),
    }
}

fn add(options: &EventAddOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    if options.lines {
        return add_lines(options, out);
    }
    let bytes = match (&options.payload, &options.file) {
        (Some(text), _) => Some(Bytes::copy_from_slice(text.as_bytes())),
        (None, Some(path)) => Some(read(path)?),
        (None, None) if io::stdin().is_terminal() => None,
        (None, None) => Some(read(Path::new("-"))?).filter(|bytes| !bytes.is_empty()),
    };
    let registration = registration(options, bytes)?;
    let bus = connect::bus(&options.bus, "event")?;
    let events = bus.register(vec![registration]).map_err(|error| failure(&bus, error))?;
    events.iter().try_for_each(|event| print_event(options.json, event, out))?;
    Ok(Exit::Done)
}

/// Registers each line of standard input as the payload of an event in a session of its own.
fn add_lines(options: &EventAddOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = &connect::bus(&options.bus, "event")?;
    let begin = |bytes| {
        let begun = bus.begin_register(vec![registration(options, Some(bytes)).map_err(LineFailure::Line)?]);
        begun.map_err(|error| LineFailure::Fatal(failure(bus, error)))
    };
    let end = |registering: PendingRegistration| {
        registering.wait().map_err(|error| match error {
            EventError::Refused(_) => LineFailure::Line(failure(bus, error)),
            error => LineFailure::Fatal(failure(bus, error)),
        })
    };
    let print = |events: Vec<Event>, out: &mut Output| {
        events.iter().try_for_each(|event| print_event(options.json, event, out))
    };
    let report = |count| {
        if !options.json {
            note(format_args!("{} registered", pluralize(count, "event")));
        }
    };
    process_lines(begin, end, print, report, out)
}

fn registration(options: &EventAddOptions, bytes: Option<Bytes>) -> Result<Registration, CommandFailure> {
    let payload = match (bytes, &options.binary) {
        (None, None) => None,
        (bytes, Some(name)) => {
            Some(Payload::Binary { type_name: name.as_str().into(), bytes: bytes.unwrap_or_default() })
        }
        (Some(bytes), None) => {
            // White space around a JSON text is not part of it, but the end of a file's last line is white space.
            let text = bytes.slice(..bytes.trim_ascii_end().len());
            check_size(&text)?;
            let is_piped = options.payload.is_none() && options.file.is_none() && !options.lines;
            let fix = match is_piped && text.contains(&b'\n') {
                true => "give one JSON text, use --lines if each line is one, or use --binary NAME for other data",
                false => "quote texts as JSON does, '\"like this\"', or use --binary NAME for other data",
            };
            let json = Json::from_bytes(text).map_err(|error| {
                CommandFailure::new(Exit::Usage, format!("the payload cannot be used: {error}")).fix(fix)
            })?;
            Some(Payload::Json(json))
        }
    };
    Ok(Registration { event_type: options.event_type.clone(), source_timestamp: resolve(options.source_time), payload })
}

/// Returns the point in time of an argument.
fn resolve(when: Option<TimeArgument>) -> Option<Timestamp> {
    when.map(|when| when.resolve(Timestamp::from(Clock::now().wall)))
}

fn query(options: &QueryOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let types = (!options.patterns.is_empty()).then(|| options.patterns.clone());
    let query = match options.server {
        _ if options.latest => Query::Latest(types),
        Some(server) => Query::Server(ServerQuery { server, after: options.after, limit: options.limit }),
        None => Query::Series(Series {
            types,
            time: TimeSpan { from: resolve(options.from), to: resolve(options.to) },
            source_time: TimeSpan { from: resolve(options.source_from), to: resolve(options.source_to) },
            by: if options.by_source_time { SeriesOrder::SourceTime } else { SeriesOrder::Time },
            is_descending: options.reverse,
            after: options.after,
            limit: options.limit,
        }),
    };
    query.check().map_err(|error| CommandFailure::new(Exit::Usage, error))?;
    let bus = connect::bus(&options.bus, "event")?;
    let QueryPage { events, more_follows } = bus.find_events(query).map_err(|error| failure(&bus, error))?;
    let last = events.last().map(|event| event.id).filter(|_| more_follows);
    if options.json {
        events.iter().try_for_each(|event| out.line(event_json(event)))?;
        last.iter().try_for_each(|last| out.line(more_json((!options.latest).then_some(*last))))?;
    } else {
        out.bytes(table(&events).to_string().as_bytes())?;
    }
    out.flush()?;
    match last {
        Some(_) if options.latest => note("more follows: request fewer types at a time"),
        Some(last) => note(format_args!("more follows: --after {last} continues from here")),
        None => {}
    }
    Ok(Exit::Done)
}

fn tail(options: &EventTailOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    if options.tail.count == Some(0) {
        return Ok(Exit::Done);
    }
    let bus = connect::bus(&options.bus, "event")?;
    let patterns: Vec<Pattern> = options.patterns.iter().flat_map(|pattern| pattern.subject_patterns()).collect();
    let mut events = Events::subscribe(&bus, &patterns, &SubscribeOptions::default(), options.tail.wait)?;
    let names: Vec<String> = options.patterns.iter().map(ToString::to_string).collect();
    note(format_args!("listening on {}", names.join(" ")));
    let mut left = options.tail.count;
    loop {
        match events.next(out)? {
            Ok(bus::Notice::Message(delivery)) => {
                // Other messages may share a subject with events.
                let Ok(event) = Event::of_message(&delivery.message) else { continue };
                print_event(options.tail.json, &event, out)?;
                left = left.map(|left| left - 1);
                if left == Some(0) {
                    out.flush()?;
                    return Ok(Exit::Done);
                }
            }
            Ok(bus::Notice::Loss(loss)) if options.tail.json => out.line(notice::loss_json(&loss))?,
            Ok(bus::Notice::Loss(loss)) => out.alarm(LossLine(&loss), LossLine(&loss).is_lost())?,
            Ok(bus::Notice::Dropped(count)) if options.tail.json => out.line(notice::dropped_json(count))?,
            Ok(bus::Notice::Dropped(count)) => out.alarm(event::dropped_line(count), true)?,
            Ok(bus::Notice::Joined(_)) => {}
            Err(StopReason::TimedOut) => return Ok(Exit::TimedOut),
            Err(StopReason::Interrupted) => return Ok(if left.is_some() { Exit::Failed } else { Exit::Done }),
        }
    }
}

fn print_event(json: bool, event: &Event, out: &mut Output) -> io::Result<()> {
    if json { out.line(event_json(event)) } else { out.line(EventLine(event)) }
}

fn failure(bus: &Bus, error: EventError) -> CommandFailure {
    match error {
        EventError::Closed => peer::end_failure(bus),
        EventError::Timeout => CommandFailure::new(Exit::TimedOut, error),
        EventError::TooMany => CommandFailure::new(Exit::Failed, error),
        EventError::Refused(refusal) if refusal.kind == EventRefusalKind::Stopping => {
            CommandFailure::new(Exit::Unreachable, refusal)
        }
        EventError::Refused(refusal) => CommandFailure::new(Exit::Failed, refusal),
    }
}
