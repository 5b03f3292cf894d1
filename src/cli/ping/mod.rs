//! `ping`: measures the round trip to another peer, and the difference of the clocks.

pub mod args;

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use self::args::PingOptions;
use super::connect;
use crate::bus::HistoryError;
use crate::clock::Clock;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{EscapedText, Output};
use crate::terminal::peer;
use crate::time::{ClockReading, WallTime};

/// An answer of the other peer.
#[derive(Clone, Debug, PartialEq)]
struct Pong {
    /// Name of the peer that answered.
    peer: String,
    /// Its epoch.
    epoch: String,
    /// Time from the question to the answer.
    round_trip: Duration,
    /// Clock of the other host less that of this one, in nanoseconds, at half of the round trip.
    clock_offset_nanos: i128,
}

impl Pong {
    /// Reads an answer to a question that was sent at `sent` and answered at `received`.
    fn read(answer: &Value, sent: ClockReading, received: ClockReading) -> Option<Pong> {
        let remote = WallTime::from_nanos(answer["wall_ns"].as_u64()?);
        let round_trip = received.instant.since(sent.instant);
        let middle = i128::from(sent.wall.as_nanos()) + round_trip.as_nanos() as i128 / 2;
        Some(Pong {
            peer: answer["peer"].as_str()?.to_owned(),
            epoch: answer["epoch"].as_str()?.to_owned(),
            round_trip,
            clock_offset_nanos: i128::from(remote.as_nanos()) - middle,
        })
    }
}

impl fmt::Display for Pong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |nanos: i128| nanos as f64 / 1e6;
        let round_trip = self.round_trip.as_nanos() as i128;
        write!(
            f,
            "{} ({}): {:.3} ms, clock {:+.3} ms ±{:.3}",
            EscapedText(self.peer.as_bytes()),
            EscapedText(self.epoch.as_bytes()),
            millis(round_trip),
            millis(self.clock_offset_nanos),
            millis(round_trip / 2)
        )
    }
}

/// Round trips so far.
#[derive(Debug, Default)]
struct PingSummary {
    /// Number of questions that were answered, or not answered in time.
    sent: u64,
    answered: u64,
    sum: Duration,
    min: Option<Duration>,
    max: Duration,
}

impl PingSummary {
    fn add(&mut self, round_trip: Duration) {
        self.answered += 1;
        self.sum += round_trip;
        self.min = Some(self.min.map_or(round_trip, |min| min.min(round_trip)));
        self.max = self.max.max(round_trip);
    }

    fn mean(&self) -> Option<Duration> {
        self.sum.checked_div(u32::try_from(self.answered).unwrap_or(u32::MAX))
    }
}

impl fmt::Display for PingSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sent, {} answered", self.sent, self.answered)?;
        let (Some(min), Some(mean)) = (self.min, self.mean()) else { return Ok(()) };
        let [min, mean, max] = [min, mean, self.max].map(|span| span.as_secs_f64() * 1e3);
        write!(f, "; round trip min/mean/max {min:.3}/{mean:.3}/{max:.3} ms")
    }
}

/// Runs `ping`.
///
/// # Errors
/// The local peer cannot be reached, or the other one is unknown or refuses.
pub fn run(options: &PingOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let interrupt = Interrupt::watch()?;
    let bus = connect::attach(options.socket.as_ref(), "ping")?;
    let mut summary = PingSummary::default();
    while !interrupt.is_raised() && !out.is_closed() {
        let (asked, peer, timeout) = (bus.clone(), options.peer.clone(), options.timeout);
        let question = move || {
            let sent = Clock::now();
            let answer = asked.query_peer(peer, &json!({ "ping": {} }), timeout);
            (sent, answer, Clock::now())
        };
        let Some((sent, answer, received)) = interrupt.wait_for(question)? else { break };
        summary.sent += 1;
        match answer {
            Ok(answer) => {
                let pong = Pong::read(&answer, sent, received)
                    .ok_or_else(|| peer::question_failure(&bus, &options.peer, &HistoryError::Misfit))?;
                summary.add(pong.round_trip);
                match options.json {
                    true => out.line(pong_json(summary.sent, &pong))?,
                    false => out.line(&pong)?,
                }
            }
            Err(HistoryError::Timeout) => match options.json {
                true => out.line(json!({ "type": "unanswered", "number": summary.sent }))?,
                false => out.line(format_args!("no answer within {}", humantime::format_duration(options.timeout)))?,
            },
            Err(error) => {
                out.flush()?;
                return Err(peer::question_failure(&bus, &options.peer, &error));
            }
        }
        out.flush()?;
        if options.count.is_some_and(|count| count <= summary.sent) {
            break;
        }
        interrupt.sleep(options.interval);
    }
    match options.json {
        true => out.line(summary_json(&summary))?,
        false => out.line(&summary)?,
    }
    Ok(match (summary.answered, options.count) {
        (_, Some(count)) if summary.sent < count => Exit::Failed,
        (0, _) => Exit::TimedOut,
        _ => Exit::Done,
    })
}

fn micros(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e3
}

fn pong_json(number: u64, pong: &Pong) -> Value {
    json!({
        "type": "answer",
        "number": number,
        "peer": pong.peer,
        "epoch": pong.epoch,
        "round_trip_us": micros(pong.round_trip),
        "clock_offset_us": pong.clock_offset_nanos as f64 / 1e3,
        "clock_uncertainty_us": micros(pong.round_trip / 2),
    })
}

fn summary_json(summary: &PingSummary) -> Value {
    json!({
        "type": "summary",
        "sent": summary.sent,
        "answered": summary.answered,
        "min_us": summary.min.map(micros),
        "mean_us": summary.mean().map(micros),
        "max_us": summary.min.map(|_| micros(summary.max)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    #[test]
    fn clock_offset_is_taken_at_mid_round_trip() {
        let reading = |millis: u64| ClockReading {
            instant: Instant::from_nanos(millis * 1_000_000),
            wall: WallTime::from_nanos((1_000 + millis) * 1_000_000),
        };
        let answer = json!({ "peer": "B", "epoch": "0000000000000001", "wall_ns": 1_107_000_000_u64 });
        let pong = Pong::read(&answer, reading(100), reading(104)).unwrap();
        assert_eq!(pong.to_string(), "B (0000000000000001): 4.000 ms, clock +5.000 ms ±2.000");
        assert_eq!(Pong::read(&json!({ "peer": "B" }), reading(0), reading(1)), None);
    }

    #[test]
    fn summary_counts_unanswered_questions() {
        let mut summary = PingSummary { sent: 3, ..PingSummary::default() };
        assert_eq!(summary.to_string(), "3 sent, 0 answered");
        summary.add(Duration::from_millis(2));
        summary.add(Duration::from_millis(4));
        assert_eq!(summary.to_string(), "3 sent, 2 answered; round trip min/mean/max 2.000/3.000/4.000 ms");
    }
}
