//! Two programs that send a message to and fro: the one-way latency is half of the round trip.

use std::time::Duration;

use super::peer::BenchPeer;
use super::publish::wait_for_peers;
use crate::bench::control_channel::ControlChannel;
use crate::bench::job::{PingJob, ProcessCommand, ProcessReport};
use crate::bench::payload::read;
use crate::bench::round_trip::{EchoPath, EmptyPolls, measure};
use crate::bus::{NoticeRef, Subscription};
use crate::clock::Clock;
use crate::subject::Subject;
use crate::terminal::exit::CommandFailure;
use crate::time::Instant;

/// Subject of the message, and of its way back.
const PING: &str = "bench.ping";
const PONG: &str = "bench.pong";
/// Time after which a message that is not back counts as lost.
const LOST_TIME: Duration = Duration::from_secs(2);
/// Maximum wait for events between two checks for commands.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A peer whose messages another one sends back.
struct BusEchoPath {
    peer: BenchPeer,
    /// Subscription to the messages that are sent back.
    subscription: Subscription,
    /// Subject of the way there.
    subject: Subject,
    /// Maximum wait for one event.
    wait: Duration,
    empty_polls: EmptyPolls,
}

impl EchoPath for BusEchoPath {
    fn send(&mut self, payload: &[u8]) -> Result<(), CommandFailure> {
        while !self.peer.publish(&self.subject, payload)? {
            self.peer.drive(Duration::ZERO)?;
        }
        Ok(())
    }

    fn await_echo(&mut self, number: u64, sent_at: Instant) -> Result<bool, CommandFailure> {
        let deadline = sent_at + LOST_TIME;
        let mut is_back = false;
        loop {
            let events = self.peer.receive(&self.subscription, self.wait, |event| {
                if let NoticeRef::Message(delivery) = event {
                    is_back |= read(delivery.payload, false).is_some_and(|(back, _)| back == number);
                }
            })?;
            self.empty_polls.record(0 < events);
            if is_back || deadline < Clock::now().instant {
                return Ok(is_back);
            }
        }
    }
}

/// Sends one message after the other and measures.
///
/// # Errors
/// The peer, or the measurement, fails.
pub fn ping(job: &PingJob, channel: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let mut peer = BenchPeer::open(&job.values, job.path, None)?;
    let subscription = peer.subscribe(vec![PONG.parse().expect("a pattern")])?;
    wait_for_peers(&mut peer, 1)?;
    channel.report(&ProcessReport::Ready(peer.ready()?))?;
    while channel.try_receive() != Some(ProcessCommand::Go) {
        peer.drive(POLL_INTERVAL / 10)?;
    }
    let subject: Subject = PING.parse().expect("a subject");
    let mut path = BusEchoPath { peer, subscription, subject, wait: wait(job), empty_polls: EmptyPolls::default() };
    let report = measure(&mut path, job)?;
    channel.report(&ProcessReport::Pinged(report))?;
    while channel.wait() != ProcessCommand::Stop {}
    drop(path.subscription);
    path.peer.close()
}

/// Returns the maximum wait for one event.
fn wait(job: &PingJob) -> Duration {
    if job.is_busy { Duration::ZERO } else { POLL_INTERVAL }
}

/// Sends every message back.
///
/// # Errors
/// The peer, or the measurement, fails.
pub fn pong(job: &PingJob, channel: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let mut peer = BenchPeer::open(&job.values, job.path, None)?;
    let subscription = peer.subscribe(vec![PING.parse().expect("a pattern")])?;
    channel.report(&ProcessReport::Ready(peer.ready()?))?;
    let subject = PONG.parse().expect("a subject");
    let mut empty_polls = EmptyPolls::default();
    while channel.try_receive() != Some(ProcessCommand::Stop) {
        let mut received = None;
        let events = peer.receive(&subscription, wait(job), |event| {
            if let NoticeRef::Message(delivery) = event {
                received = Some(delivery.payload.to_vec());
            }
        })?;
        empty_polls.record(0 < events);
        if let Some(payload) = received {
            while !peer.publish(&subject, &payload)? {
                peer.drive(Duration::ZERO)?;
            }
        }
    }
    drop(subscription);
    peer.close()
}
