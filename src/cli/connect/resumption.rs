//! The end of an outage of the local peer: a command attaches again, subscribes again, and reports what it may have
//! missed.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::bus::{Bus, SubscribeOptions, Subscription};
use crate::cli::bus_options::BusOptions;
use crate::clock::Clock;
use crate::event::timestamp::Timestamp;
use crate::message::Epoch;
use crate::subject::Pattern;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::{Output, json, note};
use crate::terminal::peer;
use crate::time::{ClockReading, Instant};

/// Delay before the next attempt to attach.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between checks whether the command is to end while the peer is away.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// How a command subscribes again after an outage.
#[derive(Clone, Debug)]
pub struct Resumption {
    /// The bus of the command.
    pub bus: BusOptions,
    /// Client name with which it attaches.
    pub name: &'static str,
    /// The patterns of its subscription.
    pub patterns: Vec<Pattern>,
    /// Delivery mode and queue group. History and confirmation belong to the first subscription alone: a second history
    /// would repeat messages.
    pub options: SubscribeOptions,
    /// Maximum time that the peer may be away.
    pub patience: Duration,
    /// True if outages are also reported as lines of JSON.
    pub json: bool,
    /// Kind of traffic that may be missing after an outage, in the plural.
    pub missing: &'static str,
}

/// Reason why the wait for the peer ended.
pub enum OutageEnd {
    /// The peer is back, and the command has subscribed again.
    Resumed(Bus, Box<Subscription>),
    /// The time of the command has expired.
    TimedOut,
    /// The user has ended the command.
    Interrupted,
}

/// The start or the end of an outage, in JSON.
#[derive(Serialize)]
struct OutageJson<'a> {
    r#type: &'static str,
    state: &'static str,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(flatten)]
    end: Option<OutageEndJson>,
}

/// The end of an outage, in JSON.
#[derive(Serialize)]
struct OutageEndJson {
    since: String,
    away_ms: u64,
    epoch: String,
    restarted: bool,
}

impl Resumption {
    /// Waits until the peer of `bus`, which is gone, is back, at most until `deadline`. Reports the outage on standard
    /// error, and with `json` in the output too.
    ///
    /// # Errors
    /// The peer does not come back in time, or standard output is closed.
    pub fn wait(
        &self,
        bus: &Bus,
        deadline: Option<Instant>,
        interrupt: &Interrupt,
        out: &mut Output,
    ) -> Result<OutageEnd, CommandFailure> {
        let begin = Clock::now();
        let reason = peer::end_failure(bus).text;
        let patience = humantime::format_duration(self.patience);
        note(format_args!("{reason}; waiting up to {patience} for it"));
        if self.json {
            out.line(begin_json(begin, &reason))?;
        }
        let attempts = self.start_attempts()?;
        let mut last_failure = None;
        loop {
            out.flush()?;
            let now = Clock::now();
            if out.is_closed() {
                return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
            }
            if interrupt.is_raised() {
                return Ok(OutageEnd::Interrupted);
            }
            if deadline.is_some_and(|deadline| deadline <= now.instant) {
                return Ok(OutageEnd::TimedOut);
            }
            if begin.instant + self.patience <= now.instant {
                let failure = last_failure.unwrap_or_else(|| CommandFailure::new(Exit::Unreachable, &reason));
                let text = format!("the peer did not come back within {patience}: {}", failure.text);
                return Err(CommandFailure { exit: Exit::Unreachable, text, ..failure });
            }
            match attempts.recv_timeout(CHECK_INTERVAL) {
                Ok(Ok((resumed, subscription))) => {
                    self.report_end(begin, bus.info().epoch, resumed.info().epoch, out)?;
                    return Ok(OutageEnd::Resumed(resumed, Box::new(subscription)));
                }
                Ok(Err(failure)) => last_failure = Some(failure),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the attempts end with one that succeeds"),
            }
        }
    }

    /// Starts a thread that tries until it succeeds, or the receiver is gone. A peer that accepts a connection and does
    /// not answer blocks an attempt for seconds, and must not delay the end of the command.
    fn start_attempts(&self) -> io::Result<Receiver<Result<(Bus, Subscription), CommandFailure>>> {
        let (sender, receiver) = sync_channel(1);
        let resumption = self.clone();
        thread::Builder::new().name("reconnect".into()).spawn(move || {
            loop {
                let attempt = resumption.attempt();
                let is_last = attempt.is_ok();
                if sender.send(attempt).is_err() || is_last {
                    return;
                }
                thread::sleep(RETRY_INTERVAL);
            }
        })?;
        Ok(receiver)
    }

    fn attempt(&self) -> Result<(Bus, Subscription), CommandFailure> {
        let bus = super::bus(&self.bus, self.name)?;
        let subscription = bus
            .subscribe_with(self.patterns.iter().cloned(), &self.options)
            .map_err(|error| CommandFailure::new(Exit::Unreachable, error))?;
        Ok((bus, subscription))
    }

    fn report_end(&self, begin: ClockReading, before: Epoch, epoch: Epoch, out: &mut Output) -> io::Result<()> {
        let end = Clock::now();
        let away = end.instant.since(begin.instant);
        let away_ms = u64::try_from(away.as_millis()).unwrap_or(u64::MAX);
        let restarted = if before == epoch { "" } else { ", and has restarted" };
        note(format_args!(
            "the peer is back after {}{restarted}; {} from shortly before {} to {} may be missing",
            humantime::format_duration(Duration::from_millis(away_ms)),
            self.missing,
            begin.wall,
            end.wall
        ));
        if self.json {
            let end_json = OutageEndJson {
                since: Timestamp::from(begin.wall).to_string(),
                away_ms,
                epoch: epoch.to_string(),
                restarted: before != epoch,
            };
            out.line(outage_json("back", end, None, Some(end_json)))?;
        }
        Ok(())
    }
}

fn begin_json(begin: ClockReading, reason: &str) -> String {
    outage_json("gone", begin, Some(reason), None)
}

fn outage_json(state: &'static str, now: ClockReading, reason: Option<&str>, end: Option<OutageEndJson>) -> String {
    json(&OutageJson { r#type: "peer", state, time: Timestamp::from(now.wall).to_string(), reason, end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::WallTime;

    #[test]
    fn outage_json_has_the_agreed_fields() {
        let now = ClockReading { wall: WallTime::from_nanos(3_000_000_000), ..ClockReading::default() };
        assert_eq!(
            begin_json(now, "the peer is gone: it stopped"),
            r#"{"type":"peer","state":"gone","time":"1970-01-01T00:00:03.000000Z","reason":"the peer is gone: it stopped"}"#
        );
        let end = OutageEndJson {
            since: "1970-01-01T00:00:01.000000Z".to_owned(),
            away_ms: 2000,
            epoch: "0000000000000abc".to_owned(),
            restarted: true,
        };
        assert_eq!(
            outage_json("back", now, None, Some(end)),
            r#"{"type":"peer","state":"back","time":"1970-01-01T00:00:03.000000Z","since":"1970-01-01T00:00:01.000000Z","away_ms":2000,"epoch":"0000000000000abc","restarted":true}"#
        );
    }
}
