//! Budget for answers: token buckets, in integers.
//!
//! The rate is a quarter of the live rate, or a fixed minimum rate if that is higher (wire.md W114).

use crate::time::{Instant, nanos};
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum burst after a pause, in bytes: 256 KiB (wire.md W114).
pub const BURST_BYTES: u64 = 256 * 1024;

/// Divisor of the live rate: answers may take this fraction of it.
const SHARE: u64 = 4;

/// Number of slots over which the live rate is averaged: one second in total, so that a short burst can be repaired
/// after it.
const SLOTS: usize = 20;
/// Duration of one slot, in which the rate is constant.
pub const SLOT: Duration = Duration::from_millis(50);
const SLOTS_PER_SECOND: u64 = 20;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Token bucket. Rate and limit are arguments, because they change with the other traffic.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// Tokens times 10^9, so that a rate of one token per second adds 1 each nanosecond.
    level: u64,
    at: Instant,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub fn full(now: Instant) -> TokenBucket {
        TokenBucket { level: u64::MAX, at: now }
    }

    /// Adds the tokens since the last refill, at `rate` tokens per second, up to `burst` tokens.
    pub fn refill(&mut self, now: Instant, rate: u64, burst: u64) {
        let added = rate.saturating_mul(nanos(now.since(self.at)));
        self.level = self.level.saturating_add(added).min(burst.saturating_mul(NANOS_PER_SECOND));
        self.at = self.at.max(now);
    }

    /// Returns whether the bucket has `tokens` tokens.
    pub fn has(&self, tokens: u64) -> bool {
        tokens.saturating_mul(NANOS_PER_SECOND) <= self.level
    }

    /// Takes `tokens` tokens, which the bucket must have.
    pub fn take(&mut self, tokens: u64) {
        assert!(self.has(tokens), "the bucket has the tokens");
        self.level -= tokens * NANOS_PER_SECOND;
    }

    /// Takes a token if there is one; returns whether there was. The bucket gets `rate` tokens per second, and holds those
    /// of one second.
    pub fn take_one(&mut self, now: Instant, rate: u64) -> bool {
        self.refill(now, rate, rate);
        let has_token = self.has(1);
        if has_token {
            self.take(1);
        }
        has_token
    }

    /// Returns the time at which the bucket has `tokens` tokens at `rate` per second, which is not 0; never before the
    /// last refill.
    pub fn ready_at(&self, tokens: u64, rate: u64) -> Instant {
        let lacking = tokens.saturating_mul(NANOS_PER_SECOND).saturating_sub(self.level);
        self.at + Duration::from_nanos(lacking.div_ceil(rate))
    }
}

/// Budget of all answers together.
#[derive(Clone, Debug)]
pub struct ResendBudget {
    bucket: TokenBucket,
    rate_min: u64,
    /// Live bytes of each of the last slots, the open one last.
    slots: VecDeque<u64>,
    /// End of the open slot.
    slot_end: Instant,
    /// Sum of all slots but the open one: the rate in bytes per second.
    live_rate: u64,
    /// Live rate at the time when live data began to wait for answers; `None` while it does not wait.
    paused_rate: Option<u64>,
}

impl ResendBudget {
    /// Creates a full budget, which gets at least `rate_min` bytes per second, and at least 1.
    pub fn new(now: Instant, rate_min: u64) -> ResendBudget {
        let slots = VecDeque::from(vec![0; SLOTS + 1]);
        ResendBudget {
            bucket: TokenBucket::full(now),
            rate_min: rate_min.max(1),
            slots,
            slot_end: now + SLOT,
            live_rate: 0,
            paused_rate: None,
        }
    }

    /// Counts `bytes` of live data.
    pub fn on_sent(&mut self, now: Instant, bytes: usize) {
        self.advance(now);
        *self.slots.back_mut().expect("there is always an open slot") += bytes as u64;
    }

    /// Sets whether live data waits for answers. The rate does not fall while it waits.
    pub fn pause(&mut self, now: Instant, is_paused: bool) {
        self.advance(now);
        self.paused_rate = is_paused.then(|| self.paused_rate.unwrap_or(self.live_rate));
    }

    /// Returns the rate of answers in bytes per second, constant within a slot.
    pub fn rate(&self) -> u64 {
        // Rule: budget
        self.rate_min.max(self.live_rate.max(self.paused_rate.unwrap_or(0)) / SHARE)
    }

    /// Closes the slots that have ended, and refills each at its own rate.
    fn advance(&mut self, now: Instant) {
        // After `SLOTS` + 1 slots without data the budget no longer changes.
        for _ in 0..=SLOTS {
            if now < self.slot_end {
                return;
            }
            self.bucket.refill(self.slot_end, self.rate(), BURST_BYTES);
            let oldest = self.slots.pop_front().expect("the number of slots is constant");
            let closed = self.slots.back().copied().expect("there is always an open slot");
            self.slots.push_back(0);
            self.live_rate = self.live_rate - oldest + closed;
            self.slot_end = self.slot_end + SLOT;
        }
        if self.slot_end <= now {
            let ended = nanos(now.since(self.slot_end)) / nanos(SLOT) + 1;
            self.slot_end = self.slot_end + Duration::from_nanos(ended * nanos(SLOT));
        }
    }

    /// Refills the bucket up to now, and returns whether `bytes` may be spent.
    pub fn has(&mut self, now: Instant, bytes: u64) -> bool {
        self.advance(now);
        self.bucket.refill(now, self.rate(), BURST_BYTES);
        self.bucket.has(bytes)
    }

    /// Spends `bytes`, which [`ResendBudget::has`] has allowed.
    pub fn spend(&mut self, bytes: u64) {
        self.bucket.take(bytes);
    }

    /// Returns the time at which `bytes` may be spent, if the rate stays the same.
    pub fn ready_at(&self, bytes: u64) -> Instant {
        self.bucket.ready_at(bytes, self.rate())
    }
}

const _: () = assert!(SLOTS as u64 == SLOTS_PER_SECOND && SLOT.as_millis() as u64 * SLOTS_PER_SECOND == 1000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// Checks that a spender without restraint never exceeds, over any span of time, one burst plus a quarter of the
    /// live rate. The minimum rate replaces that quarter if it is higher. The model remembers all sent bytes and adds
    /// them up each time.
    /// Proves: W114, budget
    #[test]
    fn any_time_span_stays_within_rate_and_burst() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let rate_min = rng.between(0, 2_000_000);
            let mut budget = ResendBudget::new(at(0), rate_min);
            // Bytes of live data, bytes spent, and bytes allowed, in each slot of 50 ms.
            let (mut live, mut spent, mut allowed) = (vec![0u64; 200], vec![0u64; 200], vec![0u64; 200]);
            let mut speed = 0;
            let mut micros = 0;
            while micros < 10_000_000 {
                let slot = (micros / 50_000) as usize;
                if rng.chance(0.003) {
                    speed = [0, 0, 10_000, 60_000][rng.below(4) as usize];
                }
                if 0 < speed {
                    budget.on_sent(at(micros), speed);
                    live[slot] += speed as u64;
                }
                let bytes = rng.between(1, 65_507);
                while !rng.chance(0.1) && budget.has(at(micros), bytes) {
                    budget.spend(bytes);
                    spent[slot] += bytes;
                }
                micros += if rng.chance(0.001) { rng.below(3_000_000) } else { rng.below(3000) };
            }
            for slot in 0..200usize {
                let rate = live[slot.saturating_sub(20)..slot].iter().sum::<u64>() / 4;
                allowed[slot] = rate.max(rate_min).max(1).div_ceil(20);
            }
            for from in 0..200 {
                for to in from..200 {
                    let (spent, allowed): (u64, u64) = (spent[from..=to].iter().sum(), allowed[from..=to].iter().sum());
                    assert!(spent <= allowed + BURST_BYTES, "seed {seed} slots {from}..={to}: {spent} > {allowed}");
                }
            }
        }
    }

    #[test]
    fn rate_is_kept_while_live_data_is_paused() {
        let mut budget = ResendBudget::new(at(0), 1000);
        for millis in 0..2000 {
            budget.on_sent(at(millis * 1000), 4000);
        }
        budget.pause(at(2_000_000), true);
        budget.on_sent(at(5_000_000), 0);
        assert_eq!(budget.rate(), 1_000_000);
        budget.pause(at(5_000_000), true);
        assert_eq!(budget.rate(), 1_000_000);
        budget.pause(at(5_000_000), false);
        assert_eq!(budget.rate(), 1000);
    }

    #[test]
    fn budget_follows_the_live_rate_within_a_second() {
        let mut budget = ResendBudget::new(at(0), 1000);
        for millis in 0..3000 {
            budget.on_sent(at(millis * 1000), 4000);
        }
        assert_eq!(budget.rate(), 1_000_000);
        assert!(budget.has(at(3_000_000), BURST_BYTES) && !budget.has(at(3_000_000), BURST_BYTES + 1));
        budget.spend(BURST_BYTES);
        assert_eq!(budget.ready_at(1000), at(3_001_000));
        assert!(!budget.has(at(3_000_999), 1000) && budget.has(at(3_001_000), 1000));
        budget.on_sent(at(4_100_000), 0);
        assert_eq!(budget.rate(), 1000);
        budget.on_sent(at(90_000_000), 7);
        assert_eq!(budget.rate(), 1000);
    }

    #[test]
    fn bucket_fills_to_its_limit_under_any_clock() {
        let mut bucket = TokenBucket::full(at(0));
        bucket.refill(at(0), 10, 5);
        assert!(bucket.has(5) && !bucket.has(6));
        bucket.take(5);
        assert_eq!(bucket.ready_at(1, 10), at(100_000));
        bucket.refill(at(99_999), 10, 5);
        assert!(!bucket.has(1));
        bucket.refill(at(100_000), 10, 5);
        assert!(bucket.has(1));
        bucket.refill(at(0), 10, 5);
        assert!(bucket.has(1));
        bucket.refill(Instant::from_nanos(u64::MAX), u64::MAX, 5);
        assert!(bucket.has(5) && !bucket.has(6));
    }
}
