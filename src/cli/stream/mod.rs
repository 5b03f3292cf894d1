//! `stream` and `consumer`: adds events to streams, reads them, manages consumers.

mod archive;
pub mod args;
mod consumer;
pub mod help;
mod print;
mod tail;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::Path;

use bytes::Bytes;
use serde_json::json;

use self::args::{ConsumerCommand, ListOptions, StreamAddOptions, StreamCommand, StreamPollOptions};
use super::connect;
use super::lines::{LineFailure, process_lines};
use super::publish::{check_size, read};
use crate::bus::{Bus, PendingStreamEvent, StreamError, StreamEvents, StreamRefusalKind as Kind, Streams};
use crate::event::model::Json;
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::{StreamId, StreamName, StreamType};
use crate::listener::stream::json::stream_json;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note, pluralize};
use crate::terminal::peer;

/// Client name with which the commands attach.
const NAME: &str = "stream";

/// Runs `stream`.
///
/// # Errors
/// The input is wrong, the peer refuses it, or the peer cannot be reached.
pub fn run(what: &StreamCommand, out: &mut Output) -> Result<Exit, CommandFailure> {
    match what {
        StreamCommand::Add(options) => add(options, out),
        StreamCommand::Poll(options) => poll(options, out),
        StreamCommand::Tail(options) => tail::run(options, out),
        StreamCommand::List(options) => list(options, out),
        StreamCommand::Archive(options) => archive::run(options, out),
    }
}

/// Runs `consumer`.
///
/// # Errors
/// The peer refuses the command, or cannot be reached.
pub fn run_consumer(what: &ConsumerCommand, out: &mut Output) -> Result<Exit, CommandFailure> {
    consumer::run(what, out)
}

/// Returns the name of the selected stream.
fn stream(bus: &Bus, stream: Option<&StreamName>) -> Result<StreamName, CommandFailure> {
    let Streams { streams, .. } = bus.streams(stream).map_err(|error| failure(bus, error))?;
    let first = streams.into_iter().next().expect("the peer serves one at least");
    Ok(first.settings.name)
}

fn wanted(kinds: &[StreamType]) -> Option<BTreeSet<StreamType>> {
    (!kinds.is_empty()).then(|| kinds.iter().cloned().collect())
}

fn add(options: &StreamAddOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = |options: &StreamAddOptions| connect::bus(&options.bus, NAME);
    if options.lines {
        return add_lines(options, &bus(options)?, out);
    }
    let bytes = match (&options.data, &options.file) {
        (Some(text), _) => Bytes::copy_from_slice(text.as_bytes()),
        (None, Some(path)) => read(path)?,
        (None, None) if io::stdin().is_terminal() => {
            return Err(CommandFailure::new(Exit::Usage, "there is no data")
                .fix("give a JSON text as an argument, --file FILE, or --lines to type one on each line"));
        }
        (None, None) => read(Path::new("-"))?,
    };
    let is_piped = options.data.is_none() && options.file.is_none();
    let data = data(bytes, is_piped)?;
    let bus = bus(options)?;
    let stream = stream(&bus, options.stream.as_ref())?;
    let id = bus.add_event(Some(&stream), &options.kind, data).map_err(|error| failure(&bus, error))?;
    print_added(options, &stream, id, out)?;
    Ok(Exit::Done)
}

fn data(bytes: Bytes, is_piped: bool) -> Result<Json, CommandFailure> {
    // White space around a JSON text is not part of it, but the end of a file's last line is white space.
    let text = bytes.slice(..bytes.trim_ascii_end().len());
    check_size(&text)?;
    let fix = match is_piped && text.contains(&b'\n') {
        true => "give one JSON text, or use --lines if each line is one",
        false => "quote texts as JSON does, '\"like this\"'; null is an empty value",
    };
    Json::from_bytes(text)
        .map_err(|error| CommandFailure::new(Exit::Usage, format!("the data cannot be used: {error}")).fix(fix))
}

fn print_added(options: &StreamAddOptions, stream: &StreamName, id: StreamId, out: &mut Output) -> io::Result<()> {
    match options.json {
        true => out.line(json!({
            "type": "added", "stream": stream.as_str(), "id": id.to_string(), "event_type": options.kind.as_str(),
        })),
        false => out.line(id),
    }
}

/// Adds each line of standard input as the data of an event.
fn add_lines(options: &StreamAddOptions, bus: &Bus, out: &mut Output) -> Result<Exit, CommandFailure> {
    let stream = stream(bus, options.stream.as_ref())?;
    let begin = |bytes| {
        let begun = bus.begin_add_event(Some(&stream), &options.kind, data(bytes, false).map_err(LineFailure::Line)?);
        begun.map_err(|error| LineFailure::Fatal(failure(bus, error)))
    };
    let end = |adding: PendingStreamEvent| {
        adding.wait().map_err(|error| match error {
            StreamError::Refused(_) => LineFailure::Line(failure(bus, error)),
            error => LineFailure::Fatal(failure(bus, error)),
        })
    };
    let print = |id, out: &mut Output| print_added(options, &stream, id, out);
    let report = |count| {
        if !options.json {
            note(format_args!("{} added", pluralize(count, "event")));
        }
    };
    process_lines(begin, end, print, report, out)
}

fn poll(options: &StreamPollOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    if options.accept && options.component.is_live() {
        return Err(CommandFailure::new(Exit::Usage, "the component LIVE is not registered, and accepts no events")
            .fix("leave out --accept, or register another component with 'seqcast consumer add'"));
    }
    let bus = connect::bus(&options.bus, NAME)?;
    let stream = stream(&bus, options.scope.stream.as_ref())?;
    let consumer = options.scope.consumer(&options.component);
    let want = wanted(&options.want);
    let mut events: Vec<StreamEvent> = Vec::new();
    let limit = options.limit as usize;
    let polled = bus.poll_stream(Some(&stream), &consumer, options.last, want.as_ref(), options.limit);
    let mut page = polled.map_err(|error| failure(&bus, error))?;
    loop {
        let is_end = page.events.is_empty();
        events.append(&mut page.events);
        if is_end || limit <= events.len() {
            break;
        }
        // Another poll would accept the events read so far.
        let left = u32::try_from(limit - events.len()).expect("less than the limit");
        page = read_on(&bus, &stream, page.covered, want.as_ref(), left)?;
    }
    if options.json {
        events.iter().try_for_each(|event| out.line(print::event_json(&stream, event)))?;
    } else {
        out.bytes(print::events(&events).to_string().as_bytes())?;
    }
    out.flush()?;
    let Some(last) = events.last().map(|event| event.id) else { return Ok(Exit::Done) };
    if options.accept {
        bus.accept_events(Some(&stream), &consumer, last).map_err(|error| failure(&bus, error))?;
    }
    if !read_on(&bus, &stream, last, want.as_ref(), 1)?.events.is_empty() {
        match options.accept {
            true => note("more follows: poll again"),
            false => note(format_args!("more follows: --last {last} accepts these events and continues")),
        }
    }
    Ok(Exit::Done)
}

fn read_on(
    bus: &Bus,
    stream: &StreamName,
    after: StreamId,
    want: Option<&BTreeSet<StreamType>>,
    events_max: u32,
) -> Result<StreamEvents, CommandFailure> {
    bus.read_stream(Some(stream), after, want, events_max).map_err(|error| failure(bus, error))
}

fn list(options: &ListOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = connect::bus(&options.bus, NAME)?;
    let Streams { server, streams } = bus.streams(options.stream.as_ref()).map_err(|error| failure(&bus, error))?;
    if options.json {
        let rows: Vec<_> = streams.iter().map(stream_json).collect();
        out.line(json!({ "server": server.0, "streams": rows }))?;
    } else {
        out.bytes(print::streams(&streams).to_string().as_bytes())?;
    }
    Ok(Exit::Done)
}

fn failure(bus: &Bus, error: StreamError) -> CommandFailure {
    match error {
        StreamError::Closed => peer::end_failure(bus),
        StreamError::Timeout => CommandFailure::new(Exit::TimedOut, error),
        StreamError::Refused(refusal) => {
            let exit = if refusal.kind == Kind::Stopping { Exit::Unreachable } else { Exit::Failed };
            let is_unknown = matches!(refusal.kind, Kind::NotRegistered | Kind::Lapsed(_));
            let failure = CommandFailure::new(exit, refusal);
            if is_unknown {
                failure.fix("seqcast consumer add; it takes the same --user and --stream")
            } else {
                failure
            }
        }
    }
}
