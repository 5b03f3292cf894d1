//! A program that publishes as fast as the bus allows, or at a rate.

use std::time::Duration;

use super::peer::{BenchPeer, window};
use crate::bench::args::BenchPath;
use crate::bench::control_channel::ControlChannel;
use crate::bench::job::{Load, ProcessCommand, ProcessReport, PublishJob, SendReport};
use crate::bench::payload::PayloadGenerator;
use crate::clock::Clock;
use crate::message::Message;
use crate::subject::Subject;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::time::Instant;

/// Maximum number of messages published between two turns of a peer that this thread drives.
const BURST: u64 = 1024;
/// The same limit in bytes of payload.
const BURST_BYTES: u64 = 512 * 1024;
/// Time after its start in which a peer sends little, as it may not know all receivers yet. The bench does not measure
/// it.
const SETTLE_TIME: Duration = Duration::from_millis(150);
/// Number of heartbeats before which a peer suppresses no message.
const SUPPRESSION_HEARTBEATS: u32 = 5;
/// Time limit for discovering the other peers.
const PEER_DISCOVERY_TIME: Duration = Duration::from_secs(20);
/// Maximum time for which a peer is not driven.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Prefix of the subjects.
pub const SUBJECT_PREFIX: &str = "bench.load";

/// Returns subject number `n`.
pub fn subject(n: u64) -> Subject {
    format!("{SUBJECT_PREFIX}.{n:x}").parse().expect("letters, dots and digits")
}

/// Publishes as the job specifies; then keeps the peer alive until a command ends it.
///
/// # Errors
/// The peer, or publishing, fails.
pub fn run(job: &PublishJob, channel: &mut ControlChannel<'_>) -> Result<(), CommandFailure> {
    let subjects: Vec<Subject> = (0..job.load.subjects).map(subject).collect();
    let mut peer = BenchPeer::open(&job.values, job.path, None)?;
    wait_for_peers(&mut peer, job.subscribers)?;
    let settled = Clock::now().instant + settle_time(job)?;
    while Clock::now().instant < settled {
        peer.drive(POLL_INTERVAL)?;
    }
    channel.report(&ProcessReport::Ready(peer.ready()?))?;
    while channel.receive_timeout(Duration::ZERO) != Some(ProcessCommand::Go) {
        peer.drive(POLL_INTERVAL)?;
    }
    let (before, start) = (peer.resource_usage().0 + peer.shared_cpu_ns(), Clock::now().instant);
    let (sent, held_up) = publish(&mut peer, &job.load, &subjects, start)?;
    peer.flush()?;
    let seconds = Clock::now().instant.since(start).as_secs_f64();
    let (cpu_ns, rss_bytes) = peer.resource_usage();
    let window = window(&mut peer, "pub")?;
    channel.report(&ProcessReport::Sent(SendReport {
        sent,
        seconds,
        cpu_ns: cpu_ns + peer.shared_cpu_ns() - before,
        held_up,
        rss_bytes,
        window,
    }))?;
    // Receivers still request missing datagrams, and heartbeats report the last one.
    while channel.try_receive() != Some(ProcessCommand::Stop) {
        peer.drive(POLL_INTERVAL)?;
    }
    peer.close()
}

/// Returns the time after the start of the program in which its peer may send more than later.
fn settle_time(job: &PublishJob) -> Result<Duration, CommandFailure> {
    let config = job.values.config()?;
    // A peer suppresses no message at first. Peers inside the programs have others that want the messages.
    let is_suppressed = config.interest && job.path == BenchPath::Host;
    Ok(if is_suppressed { SETTLE_TIME + SUPPRESSION_HEARTBEATS * config.heartbeat } else { SETTLE_TIME })
}

/// Waits until `subscribers` other peers are known. Programs that share a peer have subscribed already.
///
/// # Errors
/// The peers are not known in time.
pub fn wait_for_peers(peer: &mut BenchPeer, subscribers: usize) -> Result<(), CommandFailure> {
    let deadline = Clock::now().instant + PEER_DISCOVERY_TIME;
    while !peer.is_shared() {
        let met = peer.peers()?;
        if subscribers <= met {
            return Ok(());
        }
        if deadline < Clock::now().instant {
            let text = format!("only {met} of {subscribers} subscribers answered within {PEER_DISCOVERY_TIME:?}");
            return Err(CommandFailure::new(Exit::Unreachable, text).fix(
                "check --interface, the firewalls of both hosts, and the multicast forwarding of the switch between",
            ));
        }
        peer.drive(5 * POLL_INTERVAL)?;
    }
    Ok(())
}

/// Publishes; returns the number of messages, and the number of times that the bus was backpressured.
fn publish(
    peer: &mut BenchPeer,
    load: &Load,
    subjects: &[Subject],
    start: Instant,
) -> Result<(u64, u64), CommandFailure> {
    let until = start + Duration::from_nanos(load.span_ns);
    let mut payloads = PayloadGenerator::new(load.bytes, load.is_stamped);
    let burst = (BURST_BYTES / load.bytes as u64).clamp(1, BURST);
    let mut round = subjects.iter().cycle();
    let mut subject = &subjects[0];
    let (mut sent, mut held_up, mut is_full) = (0, 0, false);
    let has_loans = peer.loan(load.bytes).is_some();
    let mut loaned = None;
    loop {
        let now = Clock::now().instant;
        if until <= now {
            break;
        }
        let due = load.rate.map_or(u64::MAX, |rate| 1 + (now.since(start).as_secs_f64() * rate) as u64);
        let waiting = due.saturating_sub(sent).min(burst);
        for _ in 0..waiting {
            // A message that the bus did not accept is published again.
            if !is_full {
                subject = round.next().expect("there is a subject");
                let due = load.due_at(start, sent).unwrap_or(now).as_nanos();
                loaned = has_loans.then(|| peer.loan(load.bytes)).flatten().map(|mut buffer| {
                    payloads.make_in(&mut buffer, due);
                    Message::new(subject.clone(), buffer.into_payload())
                });
                if loaned.is_none() {
                    payloads.make(due);
                }
            }
            is_full = !match &loaned {
                Some(message) => peer.publish_loaned(message)?,
                None => peer.publish(subject, payloads.payload())?,
            };
            if is_full {
                held_up += 1;
                break;
            }
            sent += 1;
        }
        let wait = match load.due_at(start, sent) {
            _ if is_full => POLL_INTERVAL,
            Some(due) => due.since(now).saturating_sub(peer.timer_slack()).min(POLL_INTERVAL),
            None => Duration::ZERO,
        };
        peer.drive(wait)?;
        if waiting == 0 {
            // The publisher looks at the clock until the next message is due. Others may need its processor.
            std::thread::yield_now();
        }
    }
    Ok((sent, held_up))
}
