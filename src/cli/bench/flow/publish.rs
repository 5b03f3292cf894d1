//! A program that publishes as fast as the bus allows, or at a rate.

use std::time::Duration;

use super::peer::{Peer, window};
use crate::cli::bench::job::{Load, PublishJob, Sent, Told, Word};
use crate::cli::bench::payload::Payloads;
use crate::cli::bench::role::Line;
use crate::cli::exit::{Exit, Failure};
use crate::daemon::clock::Clock;
use crate::subject::Subject;
use crate::time::Instant;

/// Messages published between two turns of a peer that this thread drives, at most.
const BURST: u64 = 1024;
/// The same in bytes of payload.
const BURST_BYTES: u64 = 512 * 1024;
/// For so long after its start a peer sends little, as it may not know all receivers yet: that is not what is measured.
const SETTLE_TIME: Duration = Duration::from_millis(150);
/// How long meeting the other peers may take.
const MEET_TIME: Duration = Duration::from_secs(20);
/// How long a peer is left to itself at most.
const GLANCE: Duration = Duration::from_millis(1);
/// What the subjects begin with.
pub const SUBJECT_PREFIX: &str = "bench.load";

/// Subject number `n`.
pub fn subject(n: u64) -> Subject {
    format!("{SUBJECT_PREFIX}.{n:x}").parse().expect("letters, dots and digits")
}

/// Publishes as the job says; then keeps the peer alive until it is told to end.
///
/// # Errors
/// What is in the way.
pub fn run(job: &PublishJob, line: &mut Line<'_>) -> Result<(), Failure> {
    let subjects: Vec<Subject> = (0..job.load.subjects).map(subject).collect();
    let mut peer = Peer::open(&job.values, job.path, None)?;
    meet(&mut peer, job.subscribers)?;
    let settled = Clock::now().instant + SETTLE_TIME;
    while Clock::now().instant < settled {
        peer.turn(GLANCE)?;
    }
    line.tell(&Told::Ready(peer.ready()?))?;
    while line.hear(Duration::ZERO) != Some(Word::Go) {
        peer.turn(GLANCE)?;
    }
    let (before, start) = (peer.spent().0, Clock::now().instant);
    let (sent, held_up) = publish(&mut peer, &job.load, &subjects, start)?;
    peer.flush()?;
    let seconds = Clock::now().instant.since(start).as_secs_f64();
    let (cpu_ns, rss_bytes) = peer.spent();
    let window = window(&mut peer, "pub")?;
    line.tell(&Told::Sent(Sent { sent, seconds, cpu_ns: cpu_ns - before, held_up, rss_bytes, window }))?;
    // Who misses something asks for it, and heartbeats tell what was last.
    while line.heard() != Some(Word::Stop) {
        peer.turn(GLANCE)?;
    }
    peer.close()
}

/// Waits until so many other peers are known.
///
/// # Errors
/// They are not in time.
pub fn meet(peer: &mut Peer, subscribers: usize) -> Result<(), Failure> {
    let deadline = Clock::now().instant + MEET_TIME;
    loop {
        let met = peer.peers()?;
        if subscribers <= met {
            return Ok(());
        }
        if deadline < Clock::now().instant {
            let text = format!("only {met} of {subscribers} subscribers answered within {MEET_TIME:?}");
            return Err(Failure::new(Exit::Unreachable, text)
                .fix("does multicast get from one to the other? see docs/network.md, and --interface"));
        }
        peer.turn(5 * GLANCE)?;
    }
}

/// Publishes; gives how many, and how often the bus took no more.
fn publish(peer: &mut Peer, load: &Load, subjects: &[Subject], start: Instant) -> Result<(u64, u64), Failure> {
    let until = start + Duration::from_nanos(load.span_ns);
    let mut payloads = Payloads::new(load.bytes, load.is_stamped);
    let burst = (BURST_BYTES / load.bytes as u64).clamp(1, BURST);
    let mut round = subjects.iter().cycle();
    let mut subject = &subjects[0];
    let (mut sent, mut held_up, mut is_full) = (0, 0, false);
    loop {
        let now = Clock::now().instant;
        if until <= now {
            break;
        }
        let due = load.rate.map_or(u64::MAX, |rate| 1 + (now.since(start).as_secs_f64() * rate) as u64);
        for _ in 0..due.saturating_sub(sent).min(burst) {
            // One that the bus did not take waits.
            if !is_full {
                subject = round.next().expect("there is a subject");
                payloads.make(due_at(load, start, sent).unwrap_or(now).as_nanos());
            }
            is_full = !peer.publish(subject, payloads.payload())?;
            if is_full {
                held_up += 1;
                break;
            }
            sent += 1;
        }
        let wait = match due_at(load, start, sent) {
            _ if is_full => GLANCE,
            Some(due) => due.since(now).saturating_sub(peer.late()).min(GLANCE),
            None => Duration::ZERO,
        };
        peer.turn(wait)?;
    }
    Ok((sent, held_up))
}

/// When message `number` is due, if there is a rate.
fn due_at(load: &Load, start: Instant, number: u64) -> Option<Instant> {
    load.rate.map(|rate| start + Duration::from_secs_f64(number as f64 / rate))
}
