//! Limits on the work that handshakes cause.
//!
//! Strangers can replay what they have recorded, so nothing that they can replay takes from a budget: a nonce counts
//! once. Members can use up the budgets of their own addresses only, or the total for a second.

use super::handshake_datagram::NONCE_BYTES;
use crate::proto::resend::TokenBucket;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Maximum number of REQUESTs that this peer answers each second, and at once.
const REQUEST_RATE: u64 = 2000;
/// Maximum number of handshakes of each second, and at once, that this peer begins, and that it answers.
const RATE: u64 = 500;
/// The same, with one IP address.
const ADDRESS_RATE: u64 = 100;
/// Time in which at most one refusal of a host is reported.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of hosts whose last refusal is remembered. Refusals of others are not reported meanwhile.
const REFUSALS_MAX: usize = 256;
/// Number of addresses from which those without recent handshakes are removed.
const ADDRESSES_MAX: usize = 1024;
/// Maximum number of remembered nonces.
const NONCES_MAX: usize = 4096;

/// Budgets of handshakes, and the datagrams that have taken from them.
#[derive(Debug)]
pub(super) struct HandshakeLimits {
    requests: TokenBucket,
    pub(super) begun: HandshakeBudget,
    pub(super) answered: HandshakeBudget,
    nonces: RecentNonces,
    /// Time of the last reported refusal of each host.
    refusals: BTreeMap<IpAddr, Instant>,
}

impl HandshakeLimits {
    pub(super) fn new(now: Instant) -> HandshakeLimits {
        HandshakeLimits {
            requests: TokenBucket::full(now),
            begun: HandshakeBudget::new(now),
            answered: HandshakeBudget::new(now),
            nonces: RecentNonces::default(),
            refusals: BTreeMap::new(),
        }
    }

    /// Returns whether one more REQUEST can be answered, and counts it.
    pub(super) fn allow_request(&mut self, now: Instant) -> bool {
        self.requests.take_one(now, REQUEST_RATE)
    }

    /// Returns whether the refusal of a host is reported, and remembers it if so.
    pub(super) fn allow_refusal(&mut self, now: Instant, address: IpAddr) -> bool {
        self.refusals.retain(|_, reported| now.since(*reported) < REFUSAL_INTERVAL);
        let is_allowed = self.refusals.len() < REFUSALS_MAX && !self.refusals.contains_key(&address);
        if is_allowed {
            self.refusals.insert(address, now);
        }
        is_allowed
    }

    /// Returns whether the nonce of a REQUEST or an INIT is new, and remembers it.
    pub(super) fn is_new(&mut self, nonce: [u8; NONCE_BYTES]) -> bool {
        self.nonces.insert(nonce)
    }
}

/// Budget of handshakes: in all, and for each address.
#[derive(Debug)]
pub(super) struct HandshakeBudget {
    total: TokenBucket,
    by_address: BTreeMap<IpAddr, TokenBucket>,
}

impl HandshakeBudget {
    fn new(now: Instant) -> HandshakeBudget {
        HandshakeBudget { total: TokenBucket::full(now), by_address: BTreeMap::new() }
    }

    /// Returns whether one more handshake with a host is allowed, and counts it.
    pub(super) fn allow(&mut self, now: Instant, address: IpAddr) -> bool {
        if ADDRESSES_MAX <= self.by_address.len() {
            self.by_address.retain(|_, bucket| {
                bucket.refill(now, ADDRESS_RATE, ADDRESS_RATE);
                !bucket.has(ADDRESS_RATE)
            });
        }
        let of_address = self.by_address.entry(address).or_insert_with(|| TokenBucket::full(now));
        of_address.refill(now, ADDRESS_RATE, ADDRESS_RATE);
        // A host that has used up its own budget takes nothing from the total.
        of_address.has(1) && self.total.take_one(now, RATE) && of_address.take_one(now, ADDRESS_RATE)
    }
}

/// The last nonces of REQUESTs and INITs that were handled.
#[derive(Debug, Default)]
struct RecentNonces {
    known: BTreeSet<[u8; NONCE_BYTES]>,
    order: VecDeque<[u8; NONCE_BYTES]>,
}

impl RecentNonces {
    fn insert(&mut self, nonce: [u8; NONCE_BYTES]) -> bool {
        let is_new = self.known.insert(nonce);
        if is_new {
            self.order.push_back(nonce);
            if NONCES_MAX < self.order.len() {
                let oldest = self.order.pop_front().expect("one was added");
                self.known.remove(&oldest);
            }
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_refill_evenly_for_each_address() {
        let mut limits = HandshakeLimits::new(Instant::ZERO);
        let ip = |number: u32| IpAddr::from(number.to_be_bytes());
        let mut allowed =
            |at: Duration, number| (0..1000).filter(|_| limits.begun.allow(Instant::ZERO + at, ip(number))).count();
        assert_eq!([1, 2, 3, 4, 5, 6].map(|number| allowed(Duration::ZERO, number)), [100, 100, 100, 100, 100, 0]);
        assert_eq!(allowed(Duration::from_millis(100), 1), 10, "no burst at the turn of a second");
        assert_eq!(allowed(Duration::from_millis(200), 6), 90);
        let begun = &mut limits.begun;
        for number in 0..100_000u32 {
            begun.allow(Instant::ZERO + Duration::from_secs(9) + Duration::from_millis(2) * number, ip(number));
        }
        assert!(begun.by_address.len() <= ADDRESSES_MAX, "{}", begun.by_address.len());
    }

    #[test]
    fn refusal_is_reported_once_in_ten_seconds() {
        let mut limits = HandshakeLimits::new(Instant::ZERO);
        let ip = |number: u32| IpAddr::from(number.to_be_bytes());
        let mut reported =
            |secs: u64, number| limits.allow_refusal(Instant::ZERO + Duration::from_secs(secs), ip(number));
        assert_eq!([0, 1, 9, 10, 19].map(|secs| reported(secs, 1)), [true, false, false, true, false]);
        assert_eq!((0..1000).filter(|number| reported(19, 10 + number)).count(), REFUSALS_MAX - 1);
        assert!(reported(29, 5));
    }

    #[test]
    fn nonce_counts_once_while_it_is_remembered() {
        let mut limits = HandshakeLimits::new(Instant::ZERO);
        let nonce = |number: u32| std::array::from_fn(|at| number.to_be_bytes()[at % 4]);
        for number in 0..5000 {
            assert!(limits.is_new(nonce(number)) && !limits.is_new(nonce(number)), "{number}");
        }
        assert!(!limits.is_new(nonce(1000)) && limits.is_new(nonce(1)));
        assert_eq!((limits.nonces.known.len(), limits.nonces.order.len()), (NONCES_MAX, NONCES_MAX));
    }
}
