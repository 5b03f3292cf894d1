//! The streams from and to a member as they begin: with the baseline of R4, or from a known position.

use crate::message::Dseq;
use crate::proto::Settings;
use crate::proto::contact::{Contact, is_older, margin};
use crate::proto::fragment::Reassembly;
use crate::proto::ledger::Ledger;
use crate::proto::mutant::Mutant;
use crate::proto::nak::NakScheduler;
use crate::proto::recv::{RecvStream, StreamKind};
use crate::proto::resend::{Ring, RingSettings};
use crate::rng::Rng;
use crate::time::Instant;
use std::time::Duration;

/// Bytes of the directed stream to one peer that are kept for retransmission.
const DIRECTED_RING_BYTES: usize = 256 << 10;

/// Creates the multicast stream of a member, with the baseline of R4. Everything is owed if this peer listened before
/// the publisher started. Otherwise the data after the first contact is owed, which arrived at `arrived` at the
/// earliest.
pub fn broadcast(
    settings: &Settings,
    contact: Contact,
    arrived: Instant,
    listening: Instant,
    rng: &mut Rng,
) -> RecvStream {
    let uptime = Duration::from_millis(u64::from(contact.uptime_ms));
    let age = arrived.since(listening);
    let older = contact.is_fresh && is_older(contact.uptime_ms, age);
    // Rule: baseline
    let owed_all = match () {
        () if settings.mutants.is(Mutant::BaselineFirstHeard) => false,
        () if settings.mutants.is(Mutant::BaselineZero) => true,
        () => older,
    };
    let (birth, below, count) = if owed_all {
        (Some(arrived - uptime - margin(age)), Dseq(0), 0)
    } else {
        (None, contact.below, contact.count)
    };
    let ledger = Ledger::new(below, count, arrived, settings.gaps_max);
    let ledger = if owed_all || contact.control.is_some() { ledger } else { ledger.undated() };
    RecvStream::new(StreamKind::Bcast { birth }, ledger, nak_scheduler(settings, rng), reassembly(settings))
}

/// Creates a directed stream to this peer that continues after datagram `high` and `count` messages. A new stream is
/// owed from its first datagram.
pub fn inbox(settings: &Settings, now: Instant, (high, count): (Dseq, u64), rng: &mut Rng) -> RecvStream {
    let ledger = Ledger::new(high, count, now, settings.gaps_max);
    RecvStream::new(StreamKind::Ptp, ledger, nak_scheduler(settings, rng), reassembly(settings))
}

/// Creates the retransmit ring of a directed stream whose last datagram so far was `high`. The ring is small, because
/// there may be many.
pub fn directed_ring(settings: &Settings, high: Dseq) -> Ring {
    let bytes_max = settings.recovery.ring.bytes_max.min(DIRECTED_RING_BYTES);
    Ring::new(RingSettings { bytes_max, manifest_bytes_max: 0, ..settings.recovery.ring }, high)
}

/// Creates the request schedule of a stream.
pub fn nak_scheduler(settings: &Settings, rng: &mut Rng) -> NakScheduler {
    NakScheduler::new(settings.recovery.grace, settings.repairs(), rng.fork()).mutated(settings.mutants)
}

/// Creates the reassembly buffer of a stream.
pub fn reassembly(settings: &Settings) -> Reassembly {
    Reassembly::new(settings.reassembly_bytes_max, settings.reassembly_sets_max)
}
