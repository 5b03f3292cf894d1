//! The newest control datagram of one peer, by number. The receiver ignores older ones. One forged number must not make
//! all later datagrams look old (docs/wire.md W60).
//!
//! The uptime of an honest peer never falls while its numbers rise. So a lower number with a later uptime proves that
//! one of two datagrams was forged. A late or replayed datagram proves nothing: its uptime is earlier too.

use crate::time::{Instant, nanos};
use std::time::Duration;

/// Largest plausible jump of the number. A peer sends at least one and at most some thousands of control datagrams a
/// second.
const JUMP_MAX: u64 = 1 << 20;
/// Maximum lead of an uptime over the reference. The datagram that set the reference may have waited to be read. One
/// forged datagram therefore makes honest ones look old for at most this time.
const AHEAD_MAX: Duration = Duration::from_secs(60);
/// Divisor of the maximum clock drift between the two hosts: at most one part in this number.
const DRIFT_PART: u32 = 1000;

/// The newest control datagram accepted from a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewestControl {
    number: u64,
    /// Uptime in milliseconds at which that datagram was sealed, as it claims.
    uptime_ms: u32,
    /// Reference: an uptime, and the time at which the peer had it at the latest.
    reference: (u32, Instant),
    /// Number of a datagram that contradicts the newest. A second datagram that follows the claim is accepted.
    claim: Option<u64>,
    /// True if a second datagram has confirmed the first number.
    is_confirmed: bool,
}

impl NewestControl {
    /// Returns the number of the newest datagram; 0 if there is none.
    pub fn number(self) -> u64 {
        self.number
    }

    /// Records the newest datagram, which claims to be sealed at `uptime_ms`.
    pub fn accept(&mut self, now: Instant, number: u64, uptime_ms: u32) {
        let was_none = self.number == 0;
        (self.number, self.uptime_ms) = (number, uptime_ms);
        let (uptime, elapsed) = self.since_reference(now, uptime_ms);
        if was_none {
            self.reference = (uptime_ms, now);
        } else if elapsed <= uptime + elapsed / DRIFT_PART {
            // A datagram with a shorter transit time sets the reference. A forged one can claim that, so the reference
            // advances by at most twice the time that has passed.
            let uptime_max = u64::from(self.reference.0) + 2 * (nanos(elapsed) / 1_000_000);
            self.reference = (uptime_ms.min(u32::try_from(uptime_max).unwrap_or(u32::MAX)), now);
        }
    }

    /// Returns the time by which the uptime is later than that of the reference, and the time since the reference.
    fn since_reference(self, now: Instant, uptime_ms: u32) -> (Duration, Duration) {
        let (uptime_then, at) = self.reference;
        (Duration::from_millis(u64::from(uptime_ms.saturating_sub(uptime_then))), now.since(at))
    }

    /// Returns whether a datagram has a lower number and a later uptime than the newest: one of the two was forged.
    pub fn is_contradicted(self, number: u64, uptime_ms: u32) -> bool {
        number <= self.number && self.uptime_ms < uptime_ms
    }

    /// Returns whether the receiver reads a datagram of this number and uptime; it may still be older than the newest.
    /// A number far from the newest, or an uptime far ahead of it, is quarantined until a second datagram agrees. If
    /// two datagrams in turn have lower numbers and later uptimes than the newest, the newest was forged, and the
    /// second one replaces it.
    pub fn admits(&mut self, now: Instant, number: u64, uptime_ms: u32) -> bool {
        if self.number == 0 {
            return true;
        }
        let (uptime, elapsed) = self.since_reference(now, uptime_ms);
        let is_far = self.number.saturating_add(JUMP_MAX) < number
            || elapsed + elapsed / DRIFT_PART + AHEAD_MAX < uptime
            || !self.is_confirmed && number.saturating_add(JUMP_MAX) < self.number;
        let is_contradiction = self.is_contradicted(number, uptime_ms);
        if !is_far && !is_contradiction {
            self.is_confirmed |= self.number < number;
            self.claim = None;
            return true;
        }
        let agrees = |claim: u64| claim < number && number - claim <= JUMP_MAX;
        if self.claim.is_some_and(agrees) {
            (self.number, self.claim, self.is_confirmed) = (number - 1, None, true);
            self.reference = (uptime_ms, now);
            return true;
        }
        self.claim = Some(number);
        !is_far
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u32) -> Instant {
        Instant::ZERO + Duration::from_millis(u64::from(millis))
    }

    /// Returns the state after ten datagrams, one each 100 ms.
    fn newest() -> NewestControl {
        let mut newest = NewestControl::default();
        for number in 1..=10 {
            let uptime_ms = 100 * number as u32;
            assert!(newest.admits(at(uptime_ms), number, uptime_ms));
            newest.accept(at(uptime_ms), number, uptime_ms);
        }
        newest
    }

    /// Proves: W60
    #[test]
    fn forged_number_is_replaced_by_two_later_datagrams() {
        for (forged, uptime_ms, later) in [(10 + JUMP_MAX, 1_000, 1_100), (500, 60_000, 60_100)] {
            let mut newest = newest();
            assert!(newest.admits(at(1_050), forged, uptime_ms));
            newest.accept(at(1_050), forged, uptime_ms);
            assert!(
                newest.admits(at(later), 11, later) && newest.number() == forged,
                "one datagram may be the forged one"
            );
            assert!(
                newest.admits(at(later + 100), 12, later + 100) && newest.number() == 11,
                "two datagrams outweigh the forged one"
            );
        }
    }

    /// Proves: W60
    #[test]
    fn late_and_replayed_datagrams_do_not_advance_number() {
        let mut newest = newest();
        for number in [3, 4, 5, 9, 10] {
            assert!(newest.admits(at(2_000), number, 100 * number as u32));
            assert_eq!(newest.number(), 10);
        }
    }

    /// Proves: W60
    #[test]
    fn long_delayed_datagram_does_not_quarantine_its_successor() {
        let mut newest = newest();
        // The datagram was sealed at 1.2 s and is read 90 s later; the next one is read at once.
        assert!(newest.admits(at(91_200), 11, 1_200));
        newest.accept(at(91_200), 11, 1_200);
        assert!(newest.admits(at(91_300), 12, 91_300) && newest.number() == 11);
    }

    /// Proves: W60
    #[test]
    fn plausible_forged_uptime_sets_no_reference() {
        let mut newest = newest();
        assert!(newest.admits(at(1_000), 11, 61_000));
        newest.accept(at(1_000), 11, 61_000);
        assert!(!newest.admits(at(1_000), 12, 121_000), "the datagram is quarantined");
        // Datagrams of the peer itself are accepted again once its uptime is later.
        assert!(newest.admits(at(61_100), 700, 61_100));
        newest.accept(at(61_100), 700, 61_100);
        assert_eq!(newest.number(), 700);
    }

    /// Proves: W60
    #[test]
    fn datagram_without_uptime_sets_no_reference() {
        let mut newest = newest();
        assert!(newest.admits(at(1_000), 11, 0));
        newest.accept(at(1_000), 11, 0);
        assert!(newest.admits(at(90_000), 12, 90_000), "an honest datagram does not lead the reference");
    }

    /// Proves: W60
    #[test]
    fn implausible_number_or_uptime_needs_second_datagram() {
        for (number, uptime_ms) in [(JUMP_MAX + 100, 1_100), (11, 62_000), (11, u32::MAX)] {
            let mut newest = newest();
            assert!(!newest.admits(at(1_100), number, uptime_ms), "the datagram is quarantined");
            assert!(newest.admits(at(1_200), number + 1, uptime_ms));
            assert_eq!(newest.number(), number);
        }
    }
}
