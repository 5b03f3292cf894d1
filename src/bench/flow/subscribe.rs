//! A program that reads as fast as it can, and compares the received messages with the published ones.

use std::time::Duration;

use serde_json::Value;

use super::peer::{BenchPeer, window};
use super::publish::{SUBJECT_PREFIX, subject};
use crate::bench::control_channel::ControlChannel;
use crate::bench::job::{ProcessCommand, ProcessReport, ReceiveReport, SubscribeJob};
use crate::bench::latencies::Latencies;
use crate::bench::meter::RateMeter;
use crate::bench::payload::{SequenceChecker, read};
use crate::bus::{NoticeRef, Subscription};
use crate::clock::Clock;
use crate::subject::Pattern;
use crate::terminal::exit::CommandFailure;
use crate::time::Instant;

/// Maximum wait for events between two checks for commands.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Interval between checks whether everything is accounted for, once no more messages arrive.
const QUIET_TIME: Duration = Duration::from_millis(100);
/// Time limit for the explanation of missing messages.
const SETTLE_TIME: Duration = Duration::from_secs(30);

/// The received messages.
struct ReceiveTally {
    checker: SequenceChecker,
    repaired: u64,
    dropped: u64,
    /// Latencies of all messages, and of the repaired ones, if the payloads contain their due time.
    latencies: Option<[Latencies; 2]>,
}

impl ReceiveTally {
    fn record(&mut self, event: NoticeRef<'_>) {
        match event {
            NoticeRef::Message(delivery) => {
                let content = read(delivery.payload, self.latencies.is_some());
                self.checker.record(content.map(|(number, _)| number));
                self.repaired += u64::from(delivery.repaired);
                if let (Some([all, repaired]), Some((_, due))) = (&mut self.latencies, content) {
                    let latency = Clock::now().instant.since(Instant::from_nanos(due));
                    all.record(latency);
                    if delivery.repaired {
                        repaired.record(latency);
                    }
                }
            }
            NoticeRef::Dropped(count) => self.dropped += count,
            // The peer's own account contains them, with the unverified ones.
            NoticeRef::Loss(_) | NoticeRef::Joined(_) => {}
        }
    }
}

/// The peer's account of the messages that were not delivered.
#[derive(Clone, Copy, Default)]
struct Losses {
    lost: u64,
    lost_max: u64,
    unverified: u64,
}

impl Losses {
    fn of(peer: &mut BenchPeer) -> Result<Losses, CommandFailure> {
        let answer = peer.show("loss")?;
        let mut losses = Losses::default();
        for row in answer["rows"].as_array().into_iter().flatten() {
            let lost = number(&row["msg_loss"]["count"]);
            losses.lost += lost;
            losses.lost_max += lost + number(&row["msg_loss_uncertain"]);
            losses.unverified += number(&row["unverified"]["count"]);
        }
        Ok(losses)
    }
}

/// Reads until every published message has been delivered, or is accounted for.
///
/// # Errors
/// The peer, or reading, fails.
pub fn run(job: &SubscribeJob, channel: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let mut peer = BenchPeer::open(&job.values, job.path, job.drop)?;
    let patterns: Vec<Pattern> = match job.is_each {
        true => (0..job.load.subjects).map(|number| subject(number).into()).collect(),
        false => vec![format!("{SUBJECT_PREFIX}.>").parse().expect("a pattern")],
    };
    let subscription = peer.subscribe(patterns)?;
    channel.report(&ProcessReport::Ready(peer.ready()?))?;
    let before = peer.resource_usage().0;
    let checker = SequenceChecker::new(job.load.subjects);
    let latencies = job.load.is_stamped.then(|| [Latencies::new(), Latencies::new()]);
    let mut tally = ReceiveTally { checker, repaired: 0, dropped: 0, latencies };
    let mut meter = RateMeter::new(Duration::from_nanos(job.load.span_ns), job.load.subjects);
    let sent = loop {
        let events = peer.receive(&subscription, POLL_INTERVAL, |event| tally.record(event))?;
        if 0 < events {
            meter.read(Clock::now().instant, tally.checker.received);
        }
        match channel.try_receive() {
            Some(ProcessCommand::Finish { sent }) => break sent,
            Some(ProcessCommand::Stop) => return Ok(()),
            Some(ProcessCommand::Go) | None => {}
        }
    };
    let losses = settle(&mut peer, &subscription, sent, &mut tally, &mut meter)?;
    let counters = peer.show("counters")?;
    let (cpu_ns, rss_bytes) = peer.resource_usage();
    let [latencies, repair_latencies] =
        tally.latencies.map(|both| both.map(|latencies| latencies.quantiles())).unwrap_or_default();
    channel.report(&ProcessReport::Received(Box::new(ReceiveReport {
        received: tally.checker.received,
        per_s: meter.per_s(),
        lost: losses.lost,
        lost_max: losses.lost_max,
        unverified: losses.unverified,
        dropped: tally.dropped,
        repaired: tally.repaired,
        kernel_drops: counter(&counters, "kernel_drops"),
        dropped_by_rule: counter(&counters, "dropped_by_rule"),
        segments: 0,
        cpu_ns: cpu_ns - before,
        rss_bytes,
        window: window(&mut peer, "sub")?,
        latencies,
        repair_latencies,
        faults: tally.checker.faults(),
    })))?;
    drop(subscription);
    peer.close()
}

/// Reads the remaining messages.
fn settle(
    peer: &mut BenchPeer,
    subscription: &Subscription,
    sent: u64,
    tally: &mut ReceiveTally,
    meter: &mut RateMeter,
) -> Result<Losses, CommandFailure> {
    let start = Clock::now().instant;
    let (deadline, mut last) = (start + SETTLE_TIME, start);
    let mut losses = Losses::default();
    let is_missing = |tally: &ReceiveTally| tally.checker.received + tally.dropped < sent;
    while is_missing(tally) {
        let events = peer.receive(subscription, POLL_INTERVAL, |event| tally.record(event))?;
        let now = Clock::now().instant;
        if 0 < events {
            meter.read(now, tally.checker.received);
            last = now;
        } else if QUIET_TIME <= now.since(last) {
            losses = Losses::of(peer)?;
            let accounted = tally.checker.received + tally.dropped + losses.lost + losses.unverified;
            if sent <= accounted || deadline <= now {
                break;
            }
            last = now;
        }
    }
    // A message that arrives now is one too many, and shows as such.
    peer.receive(subscription, POLL_INTERVAL, |event| tally.record(event))?;
    if !is_missing(tally) {
        losses = Losses::of(peer)?;
    }
    Ok(losses)
}

fn counter(counters: &Value, name: &str) -> u64 {
    let rows = counters["rows"].as_array().into_iter().flatten();
    rows.filter(|row| row["counter"] == name).map(|row| number(&row["value"])).sum()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
