//! `poll`: the client of seed 000 for one subject of one publisher. Prints events, and tells of recovery and restarts.

use std::fmt;
use std::io;
use std::time::Duration;

use super::args::PollOptions;
use super::connect;
use super::event::{HeadersJson, PayloadJson, json};
use super::exit::{Exit, Failure};
use super::interrupt::Interrupt;
use super::output::{Output, Printable, counted, note};
use crate::bus::{AskError, Bus, HistoryEvent, Poll, PollAnswer, Polled};
use crate::daemon::clock::Clock;
use crate::message::{Epoch, PeerRef};
use crate::offset::{Answered, Case, Modulus, Span, Step, Tracker};
use crate::time::Instant;

/// Events that one poll asks for, at most.
const BATCH: u16 = 256;
/// How long to wait before looking whether anybody is still interested.
const GLANCE: Duration = Duration::from_millis(100);

/// An event in JSON.
#[derive(serde::Serialize)]
struct EventJson<'a> {
    r#type: &'static str,
    subject: &'a str,
    offset: u32,
    seq: String,
    epoch: String,
    time: String,
    time_ns: u64,
    recovery: bool,
    #[serde(flatten)]
    payload: PayloadJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<HeadersJson<'a>>,
}

/// What is no event.
#[derive(serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Word {
    /// A recovery phase begins: these events are available.
    Recovery {
        epoch: String,
        first: u32,
        last: u32,
        first_seq: String,
        last_seq: String,
        count: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        lost: Option<u64>,
    },
    /// The recovery phase ended with this event.
    Recovered { offset: u32 },
    /// The publisher is another run than before.
    Restart { epoch: String },
    /// With `--follow`: no answer for now.
    Unanswered { why: &'static str, text: String },
    /// The command ends; where to go on.
    End { offset: u32, events: u64 },
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Recovery { first, last, count, lost, .. } => {
                write!(f, "recovery: {} from offset {first} to {last}", counted(*count, "event"))?;
                match lost {
                    Some(lost) => write!(f, "; {} before them gone", counted(*lost, "message")),
                    None => Ok(()),
                }
            }
            Word::Recovered { offset } => write!(f, "recovered up to offset {offset}"),
            Word::Restart { epoch } => write!(f, "the publisher started again: epoch {epoch}; its offsets are new"),
            Word::Unanswered { text, .. } => write!(f, "{text}; polling on"),
            Word::End { offset, events } => {
                write!(f, "{}; --offset {offset} goes on from here", counted(*events, "event"))
            }
        }
    }
}

/// The client and what it prints.
struct Client<'a> {
    options: &'a PollOptions,
    out: &'a mut Output,
    tracker: Tracker,
    /// Events that were printed.
    events: u64,
}

/// Runs `poll`.
///
/// # Errors
/// What cannot be reached; why there is no answer.
pub fn run(options: &PollOptions, out: &mut Output) -> Result<Exit, Failure> {
    let bus = connect::bus(&options.bus, "poll")?;
    let interrupt = Interrupt::watch()?;
    let deadline = options.wait.map(|wait| Clock::now().instant + wait);
    let tracker = Tracker::new(Modulus::WIRE, options.offset.unwrap_or(0));
    let mut client = Client { options, out, tracker, events: 0 };
    let exit = client.run(&bus, &interrupt, deadline)?;
    let end = Word::End { offset: client.tracker.offset(), events: client.events };
    client.tell(&end)?;
    client.out.flush()?;
    Ok(exit)
}

impl Client<'_> {
    fn run(&mut self, bus: &Bus, interrupt: &Interrupt, deadline: Option<Instant>) -> Result<Exit, Failure> {
        let mut unanswered = None;
        loop {
            let wanted = self.options.count.map_or(u64::MAX, |count| count - self.events.min(count));
            if wanted == 0 {
                return Ok(Exit::Done);
            }
            let poll = Poll {
                subject: self.options.subject.clone(),
                offset: self.tracker.offset(),
                count: u16::try_from(wanted).map_or(BATCH, |wanted| wanted.min(BATCH)),
            };
            let is_new = match bus.poll_many(self.options.peer.clone(), &[poll], self.options.timeout) {
                Ok(polled) => {
                    unanswered = None;
                    self.take(polled)?
                }
                // A transport error: poll again with the same offset.
                Err(error) if self.options.follow && is_passing(&error) => {
                    if unanswered.as_ref() != Some(&error) {
                        self.tell(&Word::Unanswered { why: why(&error), text: error.to_string() })?;
                    }
                    unanswered = Some(error);
                    false
                }
                Err(error) => return Err(failure(bus, &self.options.peer, &error)),
            };
            match is_new {
                true => {}
                false if !self.options.follow => return Ok(Exit::Done),
                false => self.out.flush()?,
            }
            if let Some(exit) = self.pause(is_new, interrupt, deadline)? {
                return Ok(exit);
            }
        }
    }

    /// Takes an answer. Whether there may be more at once.
    fn take(&mut self, polled: Vec<Polled>) -> io::Result<bool> {
        let mut is_new = false;
        for Polled { epoch, answer, .. } in polled {
            let PollAnswer { case, span, events, .. } = answer;
            match (case, span) {
                (Case::Successor, _) => {
                    for event in &events {
                        let answered = Answered::Event { offset: event.offset, seq: event.seq };
                        let step = self.tracker.on_answer(Some(epoch), span, answered);
                        is_new = true;
                        if let Step::Take { recovery } = step {
                            self.print(event, epoch, recovery)?;
                        } else {
                            self.tell_step(epoch, step)?;
                            break;
                        }
                    }
                }
                (Case::Recovery, Some(span)) => {
                    let step = self.tracker.on_answer(Some(epoch), Some(span), Answered::Recovery(span));
                    self.tell_step(epoch, step)?;
                    is_new = true;
                }
                _ => {
                    let step = self.tracker.on_answer(Some(epoch), span, Answered::NoEvent);
                    is_new |= step != Step::Wait;
                    self.tell_step(epoch, step)?;
                }
            }
        }
        Ok(is_new)
    }

    fn print(&mut self, event: &HistoryEvent, epoch: Epoch, recovery: bool) -> io::Result<()> {
        self.events += 1;
        let message = &event.message;
        if self.options.raw {
            self.out.bytes(&message.payload)?;
            self.out.bytes(b"\n")?;
        } else if self.options.json {
            self.out.line(json(&EventJson {
                r#type: "event",
                subject: message.subject.as_str(),
                offset: event.offset,
                seq: event.seq.to_string(),
                epoch: epoch.to_string(),
                time: event.time.to_string(),
                time_ns: event.time.as_nanos(),
                recovery,
                payload: message.payload[..].into(),
                reply: message.reply.as_ref().map(|reply| reply.as_str()),
                headers: (!message.headers.is_empty()).then_some(HeadersJson(&message.headers)),
            }))?;
        } else {
            self.out.line(format_args!("{}  {}", event.offset, Printable(&message.payload)))?;
        }
        match recovery && !self.tracker.in_recovery() {
            true => self.tell(&Word::Recovered { offset: event.offset }),
            false => Ok(()),
        }
    }

    fn tell_step(&mut self, epoch: Epoch, step: Step) -> io::Result<()> {
        let recovery = |span: Span, lost| Word::Recovery {
            epoch: epoch.to_string(),
            first: span.first,
            last: span.last,
            first_seq: span.first_seq.to_string(),
            last_seq: span.last_seq.to_string(),
            count: span.count(Modulus::WIRE),
            lost,
        };
        match step {
            Step::Recover { span, lost } => self.tell(&recovery(span, lost)),
            Step::Restarted { span } => {
                self.tell(&Word::Restart { epoch: epoch.to_string() })?;
                span.map_or(Ok(()), |span| self.tell(&recovery(span, None)))
            }
            Step::Take { .. } | Step::Wait | Step::Stray => Ok(()),
        }
    }

    /// Tells it in JSON among the events, or to people.
    fn tell(&mut self, word: &Word) -> io::Result<()> {
        if self.options.json {
            return self.out.line(json(word));
        }
        self.out.flush()?;
        note(word);
        Ok(())
    }

    /// Waits until the next poll is due, at once if there is something new. Gives how the command ends, if it does.
    fn pause(
        &mut self,
        is_new: bool,
        interrupt: &Interrupt,
        deadline: Option<Instant>,
    ) -> Result<Option<Exit>, Failure> {
        let due = Clock::now().instant + if is_new { Duration::ZERO } else { self.options.interval };
        loop {
            let now = Clock::now().instant;
            if interrupt.has_come() {
                return Ok(Some(if self.options.count.is_some() { Exit::Failed } else { Exit::Done }));
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(Some(Exit::TimedOut));
            }
            if self.out.is_closed() {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
            }
            let until = deadline.map_or(due, |deadline| deadline.min(due));
            if due <= now {
                return Ok(None);
            }
            std::thread::sleep(until.since(now).min(GLANCE));
        }
    }
}

/// Whether it may be otherwise with the next poll.
fn is_passing(error: &AskError) -> bool {
    matches!(error, AskError::UnknownPeer | AskError::Gone | AskError::Timeout | AskError::TooMany)
}

fn why(error: &AskError) -> &'static str {
    match error {
        AskError::UnknownPeer => "unknown-peer",
        AskError::Ambiguous => "ambiguous",
        AskError::Gone => "gone",
        AskError::Timeout => "timeout",
        AskError::TooMany => "too-many",
        AskError::Refused(_) => "refused",
        AskError::Misfit => "misfit",
        AskError::Closed => "closed",
    }
}

fn failure(bus: &Bus, peer: &PeerRef, error: &AskError) -> Failure {
    let exit = match error {
        AskError::UnknownPeer | AskError::Gone | AskError::Closed => Exit::Unreachable,
        AskError::Timeout => Exit::TimedOut,
        AskError::Ambiguous | AskError::TooMany | AskError::Refused(_) | AskError::Misfit => Exit::Failed,
    };
    let failure = Failure::new(exit, format!("{peer}: {error}"));
    let peers = match error {
        AskError::UnknownPeer | AskError::Ambiguous | AskError::Gone => known(bus),
        _ => None,
    };
    match peers {
        Some(peers) => failure.fix(format!("name one of {peers}")),
        None => failure,
    }
}

/// The peers that can be asked: this one and those that are up.
fn known(bus: &Bus) -> Option<String> {
    let shown = bus.show("peers").ok()?;
    let live = shown["rows"].as_array()?.iter().filter(|row| row["state"] == "up");
    let peer = |row: &serde_json::Value| {
        Some(format!("{} ({})", row["publisher"].as_str().unwrap_or("?"), row["epoch"].as_str()?))
    };
    let own = format!("{} ({})", bus.info().peer, bus.info().epoch);
    Some(std::iter::once(own).chain(live.filter_map(peer)).collect::<Vec<_>>().join(", "))
}
