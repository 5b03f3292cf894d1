//! `consumer`: registers consumers of streams, shows their progress, resets and removes them.

use serde_json::json;

use super::args::{ConsumerCommand, ListOptions, RegistrationOptions, ResetOptions};
use super::print::{self, MissedRangeText};
use super::{NAME, failure, stream};
use crate::bus::{Bus, Consumers, Streams};
use crate::cli::connect;
use crate::event::stream::name::{Consumer, StreamName};
use crate::event::stream::store::ConsumerRow;
use crate::listener::stream::json::{consumer_json, missed_json};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note, pluralize};

pub(super) fn run(what: &ConsumerCommand, out: &mut Output) -> Result<Exit, CommandFailure> {
    match what {
        ConsumerCommand::Add(options) => add(options, out),
        ConsumerCommand::List(options) => list(options, out),
        ConsumerCommand::Reset(options) => reset(options, out),
        ConsumerCommand::Remove(options) => remove(options, out),
    }
}

fn row(bus: &Bus, stream: &StreamName, consumer: &Consumer) -> Result<Option<ConsumerRow>, CommandFailure> {
    let Consumers { rows, .. } = bus.consumers(Some(stream)).map_err(|error| failure(bus, error))?;
    Ok(rows.into_iter().find(|row| row.consumer == *consumer))
}

fn add(options: &RegistrationOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = connect::bus(&options.bus, NAME)?;
    let stream = stream(&bus, options.scope.stream.as_ref())?;
    let consumer = options.scope.consumer(&options.component);
    let before = bus.register_consumer(Some(&stream), &consumer).map_err(|error| failure(&bus, error))?;
    let missed = before.as_ref().and_then(|row| row.lapsed);
    let row = row(&bus, &stream, &consumer)?;
    if options.json {
        out.line(json!({
            "type": "registered",
            "stream": stream.as_str(),
            "user": consumer.user.as_str(),
            "component": consumer.component.as_str(),
            "is_new": before.is_none(),
            "missed": missed.map(missed_json),
            "position": row.as_ref().map(|row| row.position.to_string()),
            "lag": row.as_ref().map(|row| row.lag),
        }))?;
        return Ok(Exit::Done);
    }
    let lag = row.map_or(String::new(), |row| format!(": {} behind", pluralize(row.lag, "event")));
    match (before, missed) {
        (None, _) => note(format_args!("{consumer} is registered for the stream {stream}{lag}")),
        (Some(_), None) => note(format_args!("{consumer} was registered for the stream {stream} before{lag}")),
        (Some(_), Some(missed)) => {
            note(format_args!("! {consumer} had lapsed and {} of the stream {stream}", MissedRangeText(missed)));
            note(format_args!("it resumes{lag}"));
        }
    }
    Ok(Exit::Done)
}

fn list(options: &ListOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = connect::bus(&options.bus, NAME)?;
    let Streams { streams, .. } = bus.streams(options.stream.as_ref()).map_err(|error| failure(&bus, error))?;
    let mut found = Vec::new();
    let mut omitted_total = 0;
    for stream in streams {
        let name = stream.settings.name;
        let Consumers { rows, omitted } = bus.consumers(Some(&name)).map_err(|error| failure(&bus, error))?;
        omitted_total += omitted;
        found.extend(rows.into_iter().map(|row| (name.clone(), row)));
    }
    if options.json {
        let rows: Vec<_> = found.iter().map(|(stream, row)| consumer_json(stream, row)).collect();
        out.line(json!({ "consumers": rows, "omitted": omitted_total }))?;
    } else {
        out.bytes(print::consumers(&found).to_string().as_bytes())?;
        out.flush()?;
        if 0 < omitted_total {
            note(format_args!("{} more", pluralize(omitted_total, "consumer")));
        }
    }
    Ok(Exit::Done)
}

fn reset(options: &ResetOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = connect::bus(&options.bus, NAME)?;
    let stream = stream(&bus, options.scope.stream.as_ref())?;
    let consumer = options.scope.consumer(&options.component);
    let position = bus.reset_consumer(Some(&stream), &consumer, options.to).map_err(|error| failure(&bus, error))?;
    if options.json {
        out.line(json!({
            "type": "reset",
            "stream": stream.as_str(),
            "user": consumer.user.as_str(),
            "component": consumer.component.as_str(),
            "position": position.to_string(),
        }))?;
    } else {
        note(format_args!("{consumer} continues after {position} of the stream {stream}"));
    }
    Ok(Exit::Done)
}

fn remove(options: &RegistrationOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let bus = connect::bus(&options.bus, NAME)?;
    let stream = stream(&bus, options.scope.stream.as_ref())?;
    let consumer = options.scope.consumer(&options.component);
    bus.remove_consumer(Some(&stream), &consumer).map_err(|error| failure(&bus, error))?;
    if options.json {
        out.line(json!({
            "type": "removed",
            "stream": stream.as_str(),
            "user": consumer.user.as_str(),
            "component": consumer.component.as_str(),
        }))?;
    } else {
        note(format_args!("{consumer} is no longer a consumer of the stream {stream}"));
    }
    Ok(Exit::Done)
}
