//! When a receiver asks a publisher for what it misses (reliability.md A1, A9).
//!
//! The first time after the reorder grace and a random wait, so that of many receivers that miss the same datagram few
//! ask before the answer has come to all; then again and again at growing intervals until the gap is settled.

use crate::proto::mutant::{Mutant, Mutants};
use crate::rng::Rng;
use crate::time::Instant;
use std::time::Duration;

/// The least time between two requests for the same datagram.
const RETRY_MIN: Duration = Duration::from_millis(5);
/// The least time between two requests about the same stream. What is due meanwhile goes with the next one: a publisher looks
/// at a thousand requests a second of each receiver, and what it does not look at is asked for in vain.
pub const REQUEST_SPACING: Duration = Duration::from_millis(2);
/// The longest time between two requests for the same datagram.
pub const RETRY_MAX: Duration = Duration::from_millis(640);
/// The same where there are few receivers, for each of them: what they ask for costs the publisher little, and it may wait for that.
const RETRY_STEP: Duration = Duration::from_millis(10);
/// The random wait is drawn from this span at least, where it is needed at all.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// And from this at most.
const BACKOFF_MAX: Duration = Duration::from_millis(100);
/// So few receivers may ask at once.
const FEW: usize = 4;

/// The waits of one stream.
#[derive(Clone, Debug)]
pub struct NakScheduler {
    grace: Duration,
    /// Whether anything is asked for at all.
    is_on: bool,
    /// Receivers of the stream, as far as known.
    receivers: usize,
    /// Smoothed round trip time: from a request to its first answer.
    round_trip: Duration,
    rng: Rng,
    mutants: Mutants,
}

impl NakScheduler {
    /// Nothing measured yet. `grace` is the time in which datagrams may overtake each other.
    pub fn new(grace: Duration, is_on: bool, rng: Rng) -> NakScheduler {
        NakScheduler { grace, is_on, receivers: 1, round_trip: Duration::ZERO, rng, mutants: Mutants::default() }
    }

    /// The same with a deliberate mistake, in tests of the oracle.
    pub fn mutated(self, mutants: Mutants) -> NakScheduler {
        NakScheduler { mutants, ..self }
    }

    /// Whether anything is asked for at all.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// How many receivers the stream has, this one included.
    pub fn on_receivers(&mut self, receivers: usize) {
        self.receivers = receivers;
    }

    /// When to ask for a gap found now; never if repair is off.
    pub fn first(&mut self, now: Instant) -> Option<Instant> {
        let grace = if self.mutants.is(Mutant::AskAtOnce) { Duration::ZERO } else { self.grace };
        self.is_on.then(|| now + grace + self.backoff())
    }

    /// When to ask again, after `asked` requests.
    pub fn retry_at(&mut self, now: Instant, asked: u32) -> Option<Instant> {
        let base = RETRY_MIN.max(self.round_trip * 2);
        let most =
            (RETRY_STEP * u32::try_from(self.receivers.max(FEW)).unwrap_or(u32::MAX)).clamp(base, RETRY_MAX.max(base));
        let wait = base.saturating_mul(1 << asked.saturating_sub(1).min(16)).min(most);
        // A quarter of chance, so that receivers that asked together do not do so again.
        let part = u64::try_from(wait.as_nanos() / 4).unwrap_or(u64::MAX);
        let is_over = self.mutants.is(Mutant::AskOnce);
        (self.is_on && !is_over).then(|| now + wait - Duration::from_nanos(self.rng.below(part.max(1))))
    }

    /// Whether what comes now was missing for longer than it may simply be late: somebody asked for it (A5).
    pub fn is_repaired(&self, found: Instant, now: Instant) -> bool {
        self.is_on && found + self.grace < now
    }

    /// The first answer to a request that was not repeated came after `elapsed`.
    pub fn on_answer(&mut self, elapsed: Duration) {
        let elapsed = elapsed.min(RETRY_MAX / 2);
        self.round_trip = if self.round_trip.is_zero() { elapsed } else { (self.round_trip * 7 + elapsed) / 8 };
    }

    /// A random wait whose density rises exponentially (RFC 5401, section 3.2.2): with the number of receivers known,
    /// only a few of them draw a short one.
    fn backoff(&mut self) -> Duration {
        // Rule: suppress
        if self.receivers <= FEW {
            return Duration::ZERO;
        }
        let span = (self.round_trip * 20).clamp(BACKOFF_MIN, BACKOFF_MAX);
        let lambda = (self.receivers as f64).ln() + 1.0;
        let chance = self.rng.below(1 << 53) as f64 / (1u64 << 53) as f64;
        span.mul_f64((chance * lambda.exp_m1()).ln_1p() / lambda)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Proves: W108, suppress
    #[test]
    fn of_a_thousand_receivers_few_ask_in_the_first_moments() {
        for seed in 0..20 {
            let mut waits: Vec<Instant> = (0..1000)
                .map(|receiver| {
                    let mut nak_scheduler = NakScheduler::new(millis(5), true, Rng::new(seed * 1000 + receiver));
                    nak_scheduler.on_receivers(1000);
                    nak_scheduler.first(Instant::ZERO).unwrap()
                })
                .collect();
            waits.sort();
            let last = Instant::ZERO + millis(15);
            assert!(Instant::ZERO + millis(5) <= waits[0] && waits[999] <= last, "{waits:?}");
            // The second one makes the answer multicast; who asks within 300 us of that asks in vain.
            let in_vain = waits.iter().filter(|at| **at <= waits[1] + Duration::from_micros(300)).count();
            assert!(in_vain <= 10, "seed {seed}: {in_vain}");
        }
    }

    /// Proves: W108, W109
    #[test]
    fn few_receivers_ask_after_the_grace_and_then_at_growing_intervals() {
        let mut nak_scheduler = NakScheduler::new(millis(5), true, Rng::new(1));
        assert_eq!(nak_scheduler.first(Instant::ZERO), Some(Instant::ZERO + millis(5)));
        let mut waits = Vec::new();
        for asked in 1..12 {
            let wait = nak_scheduler.retry_at(Instant::ZERO, asked).unwrap().since(Instant::ZERO);
            let whole = millis(5 << (asked - 1)).min(millis(40));
            assert!(whole * 3 / 4 <= wait && wait <= whole, "{asked}: {wait:?}");
            waits.push(wait);
        }
        for (receivers, most) in [(4, 40), (10, 100), (1000, 640)] {
            nak_scheduler.on_receivers(receivers);
            let wait = nak_scheduler.retry_at(Instant::ZERO, 20).unwrap().since(Instant::ZERO);
            assert!(millis(most) * 3 / 4 <= wait && wait <= millis(most), "{receivers}: {wait:?}");
        }
        nak_scheduler.on_answer(millis(20));
        assert_eq!(nak_scheduler.round_trip, millis(20));
        assert!(millis(30) <= nak_scheduler.retry_at(Instant::ZERO, 1).unwrap().since(Instant::ZERO));
        let mut off = NakScheduler::new(millis(5), false, Rng::new(1));
        assert_eq!((off.first(Instant::ZERO), off.retry_at(Instant::ZERO, 3)), (None, None));
    }
}
