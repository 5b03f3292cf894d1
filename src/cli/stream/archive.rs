//! `stream archive`: a reliable consumer that stores events in a file, and accepts the stored events.

use std::time::Duration;

use serde_json::json;

use super::args::ArchiveOptions;
use super::failure;
use super::print::MissedRangeText;
use super::tail::PeerConnection;
use crate::bus::{Bus, StreamError, StreamEvents, StreamRefusalKind, Streams};
use crate::clock::Clock;
use crate::event::stream::model::LIST_EVENTS_MAX;
use crate::event::stream::name::{Consumer, StreamId, StreamName};
use crate::event::stream::store::{ConsumerRow, MissedRange};
use crate::event::timestamp::Timestamp;
use crate::storage::streams::archive::{ArchiveGap, ArchiveSource, ArchiveStore, open};
use crate::storage::streams::error::StreamStorageError as StoreError;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::{Output, note, pluralize};
use crate::terminal::progress::Progress;

/// Time to wait when nothing is new.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

struct Archive {
    target: Box<dyn ArchiveStore>,
    stream: StreamName,
    consumer: Consumer,
    /// Number of events stored.
    events: u64,
    /// Number of events known to be missing.
    missed: u64,
}

pub(super) fn run(options: &ArchiveOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    if options.format().is_none() {
        return Err(CommandFailure::new(Exit::Usage, format!("the format of {} is unknown", options.location()))
            .fix("use an extension such as .db or .jsonl, or --format"));
    }
    let mut peer = PeerConnection::open(&options.bus, options.patience)?;
    let (mut archive, end) = begin(&peer.bus, options)?;
    let mut progress = Progress::new(None, Clock::now().instant);
    let ended = archive.work(&mut peer, options.once.then_some(end), &mut progress);
    progress.clear();
    if options.json {
        out.line(json!({
            "type": "archived",
            "stream": archive.stream.as_str(),
            "events": archive.events,
            "missed": archive.missed,
            "last": archive.target.last().to_string(),
        }))?;
    } else {
        let events = pluralize(archive.events, "event");
        note(format_args!("archived {events} of the stream {}, up to {}", archive.stream, archive.target.last()));
    }
    let is_complete = ended?;
    Ok(if archive.missed == 0 && (is_complete || !options.once) { Exit::Done } else { Exit::Failed })
}

/// Returns the archive, and the last event of the stream.
fn begin(bus: &Bus, options: &ArchiveOptions) -> Result<(Archive, StreamId), CommandFailure> {
    let to_failure = |error| failure(bus, error);
    let Streams { server, streams } = bus.streams(options.scope.stream.as_ref()).map_err(to_failure)?;
    let row = streams.into_iter().next().expect("the peer serves one at least");
    let (stream, end) = (row.settings.name, row.contents.last);
    let consumer = options.scope.consumer(&options.component);
    let find = || -> Result<Option<ConsumerRow>, CommandFailure> {
        let rows = bus.consumers(Some(&stream)).map_err(to_failure)?.rows;
        Ok(rows.into_iter().find(|row| row.consumer == consumer))
    };
    let before = find()?;
    let mut is_new = false;
    let position = match before {
        // A lapsed consumer has not accepted the first event that it missed, nor any after it.
        Some(ConsumerRow { lapsed: Some(MissedRange { first, .. }), .. }) => {
            StreamId::from_number(first.number() - 1).expect("less than an id")
        }
        Some(row) => row.position,
        None => {
            let before = bus.register_consumer(Some(&stream), &consumer).map_err(to_failure)?;
            is_new = before.is_none();
            before.or(find()?).map_or(StreamId::START, |row| row.position)
        }
    };
    let source = ArchiveSource { server, stream: stream.clone() };
    let format = options.format().expect("run refuses an unknown format");
    let opened = open(&options.to, format, &source, position).map_err(store_failure).and_then(|target| {
        let last = target.last();
        let fix = "name the file that belongs to it";
        if end < last {
            let text = format!(
                "{} ends at {last}, but the stream {stream} at {end}: the stream was created again",
                options.location()
            );
            return Err(CommandFailure::new(Exit::Failed, text).fix("archive it to a new file"));
        }
        if last < position && !is_new {
            let text = format!(
                "{consumer} has accepted the stream {stream} up to {position}, but {} ends at {last}",
                options.location()
            );
            return Err(CommandFailure::new(Exit::Failed, text)
                .fix(format!("{fix}, or choose another --component or a new file")));
        }
        Ok(target)
    });
    let target = match opened {
        Ok(target) => target,
        Err(failure) => {
            if is_new {
                // Otherwise events would be retained for a consumer that never reads them.
                bus.remove_consumer(Some(&stream), &consumer).map_err(to_failure)?;
            }
            return Err(failure);
        }
    };
    note(format_args!("{consumer} archives the stream {stream} from {} on to {}", target.last(), options.location()));
    let mut archive = Archive { target, stream, consumer, events: 0, missed: 0 };
    if archive.target.last() < position {
        // The consumer was not registered, so the number of missing events is unknown.
        archive.record_gap(position, None)?;
    }
    Ok((archive, end))
}

impl Archive {
    /// Archives until the user ends it, or everything up to `end` is stored and accepted. Returns false if the user has
    /// ended it.
    fn work(
        &mut self,
        peer: &mut PeerConnection<'_>,
        end: Option<StreamId>,
        progress: &mut Progress,
    ) -> Result<bool, CommandFailure> {
        let start = Clock::now().instant;
        loop {
            let (stream, consumer, last) = (self.stream.clone(), self.consumer.clone(), self.target.last());
            // The poll accepts the stored events.
            let poll = |bus: &Bus| bus.poll_stream(Some(&stream), &consumer, Some(last), None, LIST_EVENTS_MAX as u32);
            let Some(polled) = peer.request(poll)? else { return Ok(false) };
            let StreamEvents { after, events, .. } = match polled {
                Ok(page) => page,
                Err(StreamError::Refused(refusal)) => match refusal.kind {
                    StreamRefusalKind::Lapsed(missed) => {
                        self.on_lapse(&peer.bus, missed)?;
                        continue;
                    }
                    StreamRefusalKind::Busy => {
                        std::thread::sleep(POLL_INTERVAL);
                        continue;
                    }
                    _ => return Err(failure(&peer.bus, StreamError::Refused(refusal))),
                },
                Err(error) => return Err(failure(&peer.bus, error)),
            };
            if end.is_some_and(|end| end <= last || events.is_empty() && after <= last) {
                return Ok(true);
            }
            if last < after {
                // Another client has set the consumer's position.
                self.record_gap(after, None)?;
            }
            self.target.store(&events).map_err(store_failure)?;
            self.events += events.len() as u64;
            let now = Clock::now().instant;
            progress.show(now, self.events, || self.progress(&peer.bus, now.since(start)));
            if events.is_empty() {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// Returns the progress, for people.
    fn progress(&self, bus: &Bus, span: Duration) -> String {
        let rate = self.events as f64 / span.as_secs_f64();
        let rows = bus.consumers(Some(&self.stream)).map(|consumers| consumers.rows).unwrap_or_default();
        let behind = rows.iter().find(|row| row.consumer == self.consumer).map_or(0, |row| row.lag);
        format!("{} archived, {rate:.0} a second, {behind} behind", pluralize(self.events, "event"))
    }

    /// Records the missing events in the archive, and resumes after them.
    fn on_lapse(&mut self, bus: &Bus, missed: MissedRange) -> Result<(), CommandFailure> {
        self.record_missed(missed)?;
        let before = bus.register_consumer(Some(&self.stream), &self.consumer).map_err(|error| failure(bus, error))?;
        // More events may have been removed meanwhile.
        match before.and_then(|row| row.lapsed) {
            Some(MissedRange { last, count, .. }) if missed.last < last => {
                self.record_gap(last, Some(count.saturating_sub(missed.count)))
            }
            _ => Ok(()),
        }
    }

    fn record_missed(&mut self, missed: MissedRange) -> Result<(), CommandFailure> {
        if missed.last <= self.target.last() {
            return Ok(());
        }
        // Events that were stored, but not accepted before their removal, are not missing.
        let stored_here = self.target.count_from(missed.first).map_err(store_failure)?;
        self.record_gap(missed.last, Some(missed.count - stored_here.min(missed.count)))
    }

    /// Records that everything after the stored events and up to `last` is missing.
    fn record_gap(&mut self, last: StreamId, count: Option<u64>) -> Result<(), CommandFailure> {
        let first = StreamId::from_number(self.target.last().number() + 1).expect("there is one after it");
        let detected = Timestamp::from(Clock::now().wall);
        self.target.store_gap(ArchiveGap { first, last, count, detected }).map_err(store_failure)?;
        let (consumer, stream) = (&self.consumer, &self.stream);
        match count {
            Some(count) => {
                let missed = MissedRangeText(MissedRange { first, last, count });
                note(format_args!(
                    "! {consumer} had lapsed and {missed} of the stream {stream}: the archive contains a note"
                ));
            }
            None => note(format_args!(
                "! {consumer} had no position: events {first} to {last} of the stream {stream} may be missing; the archive contains a note"
            )),
        }
        self.missed += count.unwrap_or(1).max(1);
        Ok(())
    }
}

fn store_failure(error: StoreError) -> CommandFailure {
    CommandFailure::new(Exit::Failed, error)
}
