//! Two programs that send a message to and fro: the one-way latency is half of the round trip.

use std::time::Duration;

use super::peer::BenchPeer;
use super::publish::wait_for_peers;
use crate::bus::{NoticeRef, Subscription};
use crate::cli::bench::job::{PingJob, PingReport, ProcessCommand, ProcessReport};
use crate::cli::bench::latencies::Latencies;
use crate::cli::bench::meter::warm_up;
use crate::cli::bench::payload::{fill, read};
use crate::cli::bench::role::ControlChannel;
use crate::cli::exit::CommandFailure;
use crate::daemon::clock::Clock;

/// Subject of the message, and of its way back.
const PING: &str = "bench.ping";
const PONG: &str = "bench.pong";
/// Time after which a message that is not back counts as lost.
const LOST_TIME: Duration = Duration::from_secs(2);
/// Maximum wait for events between two checks for commands.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sends one message after the other and measures.
///
/// # Errors
/// The peer, or the measurement, fails.
pub fn ping(job: &PingJob, line: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let mut peer = BenchPeer::open(&job.values, job.path, None)?;
    let subscription = peer.subscribe(vec![PONG.parse().expect("a pattern")])?;
    wait_for_peers(&mut peer, 1)?;
    line.report(&ProcessReport::ReadyReport(peer.ready()?))?;
    while line.try_receive() != Some(ProcessCommand::Go) {
        peer.drive(POLL_INTERVAL / 10)?;
    }
    let subject = PING.parse().expect("a subject");
    let mut payload = vec![0; job.bytes];
    let (mut latencies, mut lost) = (Latencies::new(), 0);
    let start = Clock::now().instant;
    let (counted, until) = (start + warm_up(job.span()), start + job.span());
    let mut thrown = start;
    for number in 0.. {
        if until <= thrown {
            break;
        }
        fill(&mut payload, number, None);
        thrown = Clock::now().instant;
        while !peer.publish(&subject, &payload)? {
            peer.drive(Duration::ZERO)?;
        }
        match await_pong(&mut peer, &subscription, number, wait(job))? {
            true if counted <= thrown => latencies.record(Clock::now().instant.since(thrown) / 2),
            true => {}
            false => lost += 1,
        }
    }
    line.report(&ProcessReport::PingReport(PingReport { latencies: latencies.quantiles(), lost }))?;
    while line.wait() != ProcessCommand::Stop {}
    drop(subscription);
    peer.close()
}

/// Returns the maximum wait for one event.
fn wait(job: &PingJob) -> Duration {
    if job.is_busy { Duration::ZERO } else { POLL_INTERVAL }
}

/// Waits until message `number` is back. Returns false if it is not back in time.
fn await_pong(
    peer: &mut BenchPeer,
    subscription: &Subscription,
    number: u64,
    wait: Duration,
) -> Result<bool, CommandFailure> {
    let deadline = Clock::now().instant + LOST_TIME;
    let mut is_back = false;
    loop {
        peer.receive(subscription, wait, |event| {
            if let NoticeRef::Message(delivery) = event {
                is_back |= read(delivery.payload, false).is_some_and(|(back, _)| back == number);
            }
        })?;
        if is_back || deadline < Clock::now().instant {
            return Ok(is_back);
        }
    }
}

/// Sends every message back.
///
/// # Errors
/// The peer, or the measurement, fails.
pub fn pong(job: &PingJob, line: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let mut peer = BenchPeer::open(&job.values, job.path, None)?;
    let subscription = peer.subscribe(vec![PING.parse().expect("a pattern")])?;
    line.report(&ProcessReport::ReadyReport(peer.ready()?))?;
    let subject = PONG.parse().expect("a subject");
    while line.try_receive() != Some(ProcessCommand::Stop) {
        let mut came = None;
        peer.receive(&subscription, wait(job), |event| {
            if let NoticeRef::Message(delivery) = event {
                came = Some(delivery.payload.to_vec());
            }
        })?;
        if let Some(payload) = came {
            while !peer.publish(&subject, &payload)? {
                peer.drive(Duration::ZERO)?;
            }
        }
    }
    drop(subscription);
    peer.close()
}
