//! Schedule of a receiver's requests to a publisher for missing datagrams (A1, A9).
//!
//! The first request follows the reorder grace and a random wait. Of many receivers that miss the same datagram, few
//! then send a request before the answer has reached all. Requests repeat at growing intervals until the gap is
//! settled.

use crate::proto::mutant::{Mutant, Mutants};
use crate::rng::Rng;
use crate::time::Instant;
use std::time::Duration;

/// Minimum time between two requests for the same datagram.
const RETRY_MIN: Duration = Duration::from_millis(5);
/// Minimum time between two requests about the same stream. Ranges that become due meanwhile go with the next request.
/// A publisher accepts a thousand requests a second from each receiver, and ignores further ones.
pub const REQUEST_SPACING: Duration = Duration::from_millis(2);
/// Maximum time between two requests for the same datagram.
pub const RETRY_MAX: Duration = Duration::from_millis(640);
/// Share of each receiver in the maximum time between two requests, which is thus shorter with few receivers. The
/// requests of few receivers cost the publisher little, and the publisher may be waiting for them.
const RETRY_STEP: Duration = Duration::from_millis(10);
/// Minimum span from which the random wait is drawn.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// Maximum span from which the random wait is drawn.
const BACKOFF_MAX: Duration = Duration::from_millis(100);
/// Maximum number of receivers that send requests without a random wait.
const FEW: usize = 4;

/// Request timing of one stream.
#[derive(Clone, Debug)]
pub struct NakScheduler {
    grace: Duration,
    /// True if requests are enabled.
    is_on: bool,
    /// Number of receivers of the stream, as far as known.
    receivers: usize,
    /// Smoothed round trip time: from a request to its first answer.
    round_trip: Duration,
    rng: Rng,
    mutants: Mutants,
}

impl NakScheduler {
    /// Creates a scheduler without measurements. `grace` is the time in which datagrams may overtake each other.
    pub fn new(grace: Duration, is_on: bool, rng: Rng) -> NakScheduler {
        NakScheduler { grace, is_on, receivers: 1, round_trip: Duration::ZERO, rng, mutants: Mutants::default() }
    }

    /// Adds a deliberate mistake, in tests of the oracle.
    pub fn mutated(self, mutants: Mutants) -> NakScheduler {
        NakScheduler { mutants, ..self }
    }

    /// Returns whether requests are enabled.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Sets the number of receivers of the stream, including this one.
    pub fn on_receivers(&mut self, receivers: usize) {
        self.receivers = receivers;
    }

    /// Returns the time of the first request for a gap found now; `None` if repair is off.
    pub fn first(&mut self, now: Instant) -> Option<Instant> {
        let grace = if self.mutants.is(Mutant::RequestAtOnce) { Duration::ZERO } else { self.grace };
        self.is_on.then(|| now + grace + self.backoff())
    }

    /// Returns the time of the next request, after `requests` requests.
    pub fn retry_at(&mut self, now: Instant, requests: u32) -> Option<Instant> {
        let base = RETRY_MIN.max(self.round_trip * 2);
        let most =
            (RETRY_STEP * u32::try_from(self.receivers.max(FEW)).unwrap_or(u32::MAX)).clamp(base, RETRY_MAX.max(base));
        let wait = base.saturating_mul(1 << requests.saturating_sub(1).min(16)).min(most);
        // A quarter of the wait is random, so that receivers whose requests coincided do not coincide again.
        let part = u64::try_from(wait.as_nanos() / 4).unwrap_or(u64::MAX);
        let is_over = self.mutants.is(Mutant::RequestOnce);
        (self.is_on && !is_over).then(|| now + wait - Duration::from_nanos(self.rng.below(part.max(1))))
    }

    /// Returns whether a datagram that arrives now was missing for longer than the grace. Some receiver then requested
    /// it (A5).
    pub fn is_repaired(&self, found: Instant, now: Instant) -> bool {
        self.is_on && found + self.grace < now
    }

    /// Handles the first answer to an unrepeated request, which arrived after `elapsed`.
    pub fn on_answer(&mut self, elapsed: Duration) {
        let elapsed = elapsed.min(RETRY_MAX / 2);
        self.round_trip = if self.round_trip.is_zero() { elapsed } else { (self.round_trip * 7 + elapsed) / 8 };
    }

    /// Draws a random wait whose density rises exponentially (RFC 5401, section 3.2.2). With the number of receivers
    /// known, only a few of them draw a short one.
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
    fn few_of_a_thousand_receivers_request_early() {
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
            // The second request makes the answer multicast; requests within 300 us of it are in vain.
            let in_vain = waits.iter().filter(|at| **at <= waits[1] + Duration::from_micros(300)).count();
            assert!(in_vain <= 10, "seed {seed}: {in_vain}");
        }
    }

    /// Proves: W108, W109
    #[test]
    fn requests_begin_after_grace_at_growing_intervals() {
        let mut nak_scheduler = NakScheduler::new(millis(5), true, Rng::new(1));
        assert_eq!(nak_scheduler.first(Instant::ZERO), Some(Instant::ZERO + millis(5)));
        let mut waits = Vec::new();
        for requests in 1..12 {
            let wait = nak_scheduler.retry_at(Instant::ZERO, requests).unwrap().since(Instant::ZERO);
            let whole = millis(5 << (requests - 1)).min(millis(40));
            assert!(whole * 3 / 4 <= wait && wait <= whole, "{requests}: {wait:?}");
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
