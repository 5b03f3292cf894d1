//! `poll`: the client of seed 000 for one subject of one publisher. Prints events, and reports recovery and restarts.

use std::fmt;
use std::io;
use std::time::Duration;

use super::args::PollOptions;
use super::connect;
use crate::bus::{Bus, HistoryError, HistoryEvent, Poll, PollAnswer, PollResult};
use crate::clock::Clock;
use crate::listener::notice::{HeadersJson, PayloadJson};
use crate::message::Epoch;
use crate::offset::{HistorySpan, Modulus, PollCase, PollReply, Tracker, TrackerAction};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::json;
use crate::terminal::output::{EscapedText, Output, note, pluralize};
use crate::terminal::peer;
use crate::time::Instant;

/// Maximum number of events that one poll requests.
const BATCH: u16 = 256;
/// Interval between checks whether the user has interrupted the command, or the output is closed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An event in JSON.
#[derive(serde::Serialize)]
struct HistoryEventJson<'a> {
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

/// A notice beside the events.
#[derive(serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PollNotice {
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
    /// The publisher has another epoch than before.
    Restart { epoch: String },
    /// With `--follow`: the publisher does not answer at present.
    Unanswered { why: &'static str, text: String },
    /// The command ends; the offset to resume from.
    End { offset: u32, events: u64 },
}

impl fmt::Display for PollNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PollNotice::Recovery { first, last, count, lost, .. } => {
                write!(f, "recovery: {} from offset {first} to {last}", pluralize(*count, "event"))?;
                match lost {
                    Some(lost) => write!(f, "; {} before them are no longer retained", pluralize(*lost, "message")),
                    None => Ok(()),
                }
            }
            PollNotice::Recovered { offset } => write!(f, "recovered up to offset {offset}"),
            PollNotice::Restart { epoch } => {
                write!(f, "the publisher started again: epoch {epoch}; its offsets are new")
            }
            PollNotice::Unanswered { text, .. } => write!(f, "{text}; polling continues"),
            PollNotice::End { offset, events } => {
                write!(f, "{}; --offset {offset} continues from here", pluralize(*events, "event"))
            }
        }
    }
}

/// The client with its output.
struct PollClient<'a> {
    options: &'a PollOptions,
    out: &'a mut Output,
    tracker: Tracker,
    /// Number of events printed.
    events: u64,
}

/// Runs `poll`.
///
/// # Errors
/// The peer cannot be reached, or does not answer.
pub fn run(options: &PollOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let interrupt = Interrupt::watch()?;
    let bus = connect::bus(&options.bus, "poll")?;
    let deadline = options.wait.map(|wait| Clock::now().instant + wait);
    let tracker = Tracker::new(Modulus::WIRE, options.offset.unwrap_or(0));
    let mut client = PollClient { options, out, tracker, events: 0 };
    let exit = client.run(&bus, &interrupt, deadline)?;
    let end = PollNotice::End { offset: client.tracker.offset(), events: client.events };
    client.report(&end)?;
    client.out.flush()?;
    Ok(exit)
}

impl PollClient<'_> {
    fn run(&mut self, bus: &Bus, interrupt: &Interrupt, deadline: Option<Instant>) -> Result<Exit, CommandFailure> {
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
            let (asked, peer, timeout) = (bus.clone(), self.options.peer.clone(), self.options.timeout);
            let Some(answer) = interrupt.wait_for(move || asked.poll_many(peer, &[poll], timeout))? else {
                return Ok(self.exit_at_signal());
            };
            let is_new = match answer {
                Ok(polled) => {
                    unanswered = None;
                    self.handle_answer(polled)?
                }
                // A transport error: poll again with the same offset.
                Err(error) if self.options.follow && is_transient(&error) => {
                    if unanswered.as_ref() != Some(&error) {
                        self.report(&PollNotice::Unanswered { why: why(&error), text: error.to_string() })?;
                    }
                    unanswered = Some(error);
                    false
                }
                Err(error) => return Err(peer::question_failure(bus, &self.options.peer, &error)),
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

    /// Handles an answer. Returns whether the next poll may return more at once.
    fn handle_answer(&mut self, polled: Vec<PollResult>) -> io::Result<bool> {
        let mut is_new = false;
        for PollResult { epoch, answer, .. } in polled {
            let PollAnswer { case, span, events, .. } = answer;
            match (case, span) {
                (PollCase::Successor, _) => {
                    for event in &events {
                        let answered = PollReply::Event { offset: event.offset, seq: event.seq };
                        let step = self.tracker.on_answer(Some(epoch), span, answered);
                        is_new = true;
                        if let TrackerAction::Deliver { recovery } = step {
                            self.print(event, epoch, recovery)?;
                        } else {
                            self.report_step(epoch, step)?;
                            break;
                        }
                    }
                }
                (PollCase::Recovery, Some(span)) => {
                    let step = self.tracker.on_answer(Some(epoch), Some(span), PollReply::Recovery(span));
                    self.report_step(epoch, step)?;
                    is_new = true;
                }
                _ => {
                    let step = self.tracker.on_answer(Some(epoch), span, PollReply::NoEvent);
                    is_new |= step != TrackerAction::Wait;
                    self.report_step(epoch, step)?;
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
            self.out.line(json(&HistoryEventJson {
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
            self.out.line(format_args!("{}  {}", event.offset, EscapedText(&message.payload)))?;
        }
        match recovery && !self.tracker.in_recovery() {
            true => self.report(&PollNotice::Recovered { offset: event.offset }),
            false => Ok(()),
        }
    }

    fn report_step(&mut self, epoch: Epoch, step: TrackerAction) -> io::Result<()> {
        let recovery = |span: HistorySpan, lost| PollNotice::Recovery {
            epoch: epoch.to_string(),
            first: span.first,
            last: span.last,
            first_seq: span.first_seq.to_string(),
            last_seq: span.last_seq.to_string(),
            count: span.count(Modulus::WIRE),
            lost,
        };
        match step {
            TrackerAction::Recover { span, lost } => self.report(&recovery(span, lost)),
            TrackerAction::Restart { span } => {
                self.report(&PollNotice::Restart { epoch: epoch.to_string() })?;
                span.map_or(Ok(()), |span| self.report(&recovery(span, None)))
            }
            TrackerAction::Deliver { .. } | TrackerAction::Wait | TrackerAction::Unexpected => Ok(()),
        }
    }

    /// Reports a notice: in JSON among the events, or as text for people.
    fn report(&mut self, notice: &PollNotice) -> io::Result<()> {
        if self.options.json {
            return self.out.line(json(notice));
        }
        self.out.flush()?;
        note(notice);
        Ok(())
    }

    fn exit_at_signal(&self) -> Exit {
        if self.options.count.is_some() { Exit::Failed } else { Exit::Done }
    }

    /// Waits until the next poll is due, which is at once if there is something new. Returns the exit code if the
    /// command ends.
    fn pause(
        &mut self,
        is_new: bool,
        interrupt: &Interrupt,
        deadline: Option<Instant>,
    ) -> Result<Option<Exit>, CommandFailure> {
        let due = Clock::now().instant + if is_new { Duration::ZERO } else { self.options.interval };
        loop {
            let now = Clock::now().instant;
            if interrupt.is_raised() {
                return Ok(Some(self.exit_at_signal()));
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
            std::thread::sleep(until.since(now).min(POLL_INTERVAL));
        }
    }
}

/// Returns whether the next poll may succeed.
fn is_transient(error: &HistoryError) -> bool {
    matches!(error, HistoryError::UnknownPeer | HistoryError::Gone | HistoryError::Timeout | HistoryError::TooMany)
}

fn why(error: &HistoryError) -> &'static str {
    match error {
        HistoryError::UnknownPeer => "unknown-peer",
        HistoryError::Ambiguous => "ambiguous",
        HistoryError::Gone => "gone",
        HistoryError::Timeout => "timeout",
        HistoryError::TooMany => "too-many",
        HistoryError::Denied => "denied",
        HistoryError::Refused(_) => "refused",
        HistoryError::Misfit => "misfit",
        HistoryError::Closed => "closed",
    }
}
