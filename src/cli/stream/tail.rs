//! `stream tail`: prints events as they come, and survives a restart of the peer.

use std::io;
use std::time::Duration;

use super::args::StreamTailOptions;
use super::print::{StreamEventLine, event_json};
use super::{NAME, failure, wanted};
use crate::bus::{Bus, StreamError, StreamEvents, StreamRefusalKind, Streams};
use crate::cli::bus_options::BusOptions;
use crate::cli::connect;
use crate::clock::Clock;
use crate::event::stream::model::LIST_EVENTS_MAX;
use crate::event::stream::name::{StreamId, StreamName};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{Output, note};
use crate::terminal::peer;

/// Time to wait when nothing is new.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Delay before the command tries to attach again.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Connection to a peer that may go away and come back.
pub(super) struct PeerConnection<'a> {
    options: &'a BusOptions,
    /// Time that the peer may be away.
    patience: Duration,
    pub(super) bus: Bus,
    pub(super) interrupt: Interrupt,
}

impl<'a> PeerConnection<'a> {
    pub(super) fn open(options: &'a BusOptions, patience: Duration) -> Result<PeerConnection<'a>, CommandFailure> {
        let bus = connect::bus(options, NAME)?;
        Ok(PeerConnection { options, patience, bus, interrupt: Interrupt::watch()? })
    }

    /// Sends a request to the peer; waits for it if it does not answer. Returns `None` if the user ends the command.
    pub(super) fn request<T>(
        &mut self,
        mut request: impl FnMut(&Bus) -> Result<T, StreamError>,
    ) -> Result<Option<Result<T, StreamError>>, CommandFailure> {
        let mut since = None;
        while !self.interrupt.is_raised() {
            let is_absent = |error: &StreamError| match error {
                StreamError::Closed => true,
                StreamError::Timeout => false,
                StreamError::Refused(refusal) => refusal.kind == StreamRefusalKind::Stopping,
            };
            match request(&self.bus) {
                Err(error) if is_absent(&error) && !self.options.embed => {
                    let now = Clock::now().instant;
                    let absent_since = *since.get_or_insert_with(|| {
                        note("the peer does not answer; waiting for it");
                        now
                    });
                    if self.patience <= now.since(absent_since) {
                        return Err(peer::end_failure(&self.bus));
                    }
                    std::thread::sleep(RETRY_INTERVAL);
                    if let Ok(bus) = connect::bus(self.options, NAME) {
                        self.bus = bus;
                    }
                }
                answer => {
                    if since.is_some() {
                        note("the peer answers again");
                    }
                    return Ok(Some(answer));
                }
            }
        }
        Ok(None)
    }
}

pub(super) fn run(options: &StreamTailOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    if options.tail.count == Some(0) {
        return Ok(Exit::Done);
    }
    let mut peer = PeerConnection::open(&options.bus, options.patience)?;
    let (stream, mut after) = begin(&peer.bus, options)?;
    let want = wanted(&options.want);
    let deadline = options.tail.deadline();
    note(format_args!("following the stream {stream}"));
    let mut left = options.tail.count;
    loop {
        let events_max = left.map_or(u64::MAX, |left| left).min(LIST_EVENTS_MAX as u64) as u32;
        let answered = peer.request(|bus| bus.read_stream(Some(&stream), after, want.as_ref(), events_max))?;
        let Some(answer) = answered else { break };
        let answer = match answer {
            // The peer has too many readers at present.
            Err(StreamError::Refused(refusal)) if refusal.kind == StreamRefusalKind::Busy => {
                StreamEvents { after, events: Vec::new(), covered: after }
            }
            answer => answer.map_err(|error| failure(&peer.bus, error))?,
        };
        let StreamEvents { events, covered, .. } = answer;
        for event in &events {
            if options.tail.json { out.line(event_json(&stream, event))? } else { out.line(StreamEventLine(event))? }
        }
        after = covered.max(after);
        left = left.map(|left| left - events.len() as u64);
        if left == Some(0) {
            out.flush()?;
            return Ok(Exit::Done);
        }
        if events.is_empty() {
            out.flush()?;
            if out.is_closed() {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
            }
            let wait =
                deadline.map_or(POLL_INTERVAL, |deadline| deadline.since(Clock::now().instant).min(POLL_INTERVAL));
            if wait.is_zero() {
                return Ok(Exit::TimedOut);
            }
            std::thread::sleep(wait);
        }
    }
    Ok(if left.is_some() { Exit::Failed } else { Exit::Done })
}

/// Returns the selected stream, and the position before the first event to print.
fn begin(bus: &Bus, options: &StreamTailOptions) -> Result<(StreamName, StreamId), CommandFailure> {
    let Streams { streams, .. } = bus.streams(options.stream.as_ref()).map_err(|error| failure(bus, error))?;
    let row = streams.into_iter().next().expect("the peer serves one at least");
    let before = |id: StreamId| StreamId::from_number(id.number() - 1).expect("less than an id");
    Ok((row.settings.name, options.from.map_or(row.contents.last, before)))
}
