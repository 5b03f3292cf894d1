//! Upper bound of the time at which a datagram was sealed. It follows from the uptime in the datagram and from the
//! recent datagram of that publisher with the shortest transit time.
//!
//! The reference is the datagram of the last seconds with the shortest transit time. All times are of the receiver's
//! clock. The receiver limits the uptime that a datagram may claim, so that one forged datagram cannot make all others
//! look old.

use crate::time::Instant;
use std::time::Duration;

/// Unit to which publishers round their uptime down.
const UPTIME_UNIT: Duration = Duration::from_millis(1);
/// Minimum time for which a reference is used; while datagrams arrive, the maximum is twice that.
const WINDOW: Duration = Duration::from_secs(5);
/// Maximum age of a reference. A machine may have been suspended together with its clock since, so that the two clocks
/// have diverged.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Lead over all other datagrams beyond which a claimed shorter transit time needs a second datagram that agrees.
const PLAUSIBLE: Duration = Duration::from_secs(1);
/// Maximum difference between two datagrams that agree.
const AGREEMENT: Duration = Duration::from_millis(500);

/// A datagram: time at which it was read, and the publisher's uptime in milliseconds when it was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    at: Instant,
    uptime_ms: u32,
}

impl Sample {
    /// Returns the latest time at which a datagram of this uptime was sealed, except for rounding, and the maximum
    /// drift of the clocks.
    fn latest(self, uptime_ms: u32) -> (Instant, Duration) {
        let apart = Duration::from_millis(u64::from(uptime_ms.abs_diff(self.uptime_ms)));
        let drift = apart / 1000;
        match self.uptime_ms <= uptime_ms {
            true => (self.at + apart + drift, drift),
            false => ((self.at + drift) - apart, drift),
        }
    }
}

/// Latest possible time at which a datagram was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealTime {
    /// The datagram was not sealed after this.
    pub latest: Instant,
    /// Minimum additional transit time of the previous datagrams, beyond what was known.
    pub older: Duration,
}

/// Datagrams of one publisher with the shortest transit time.
#[derive(Clone, Debug)]
pub struct Transit {
    /// Datagram with the shortest transit since `began`.
    current: Sample,
    /// Datagram with the shortest transit of the previous window.
    previous: Option<Sample>,
    began: Instant,
    /// A datagram that claims an implausible uptime, until another one agrees or disagrees.
    claim: Option<Sample>,
}

impl Transit {
    /// Creates the state from the first datagram received.
    pub fn new(now: Instant, uptime_ms: u32) -> Transit {
        Transit { current: Sample { at: now, uptime_ms }, previous: None, began: now, claim: None }
    }

    /// Handles a datagram read now, which arrived at `arrived` at the earliest and was sealed at this uptime.
    pub fn on_datagram(&mut self, now: Instant, arrived: Instant, uptime_ms: u32) -> SealTime {
        let sample = Sample { at: now, uptime_ms };
        let unknown = SealTime { latest: arrived, older: Duration::ZERO };
        if uptime_ms.max(self.current.uptime_ms) == u32::MAX {
            return unknown;
        }
        self.rotate(now, sample);
        let (latest, drift) = self.latest(uptime_ms);
        if latest < now {
            return SealTime { latest: arrived.min(latest + UPTIME_UNIT), ..unknown };
        }
        let lead = latest.since(now);
        if PLAUSIBLE < lead && !self.is_confirmed(sample) {
            self.claim = Some(sample);
        } else {
            // The lead of a confirmed claim was reported with the first datagram.
            let older = if self.claim.take().is_some() { Duration::ZERO } else { lead.saturating_sub(2 * drift) };
            (self.current, self.previous) = (sample, None);
            return SealTime { older, ..unknown };
        }
        SealTime { older: lead.saturating_sub(2 * drift), ..unknown }
    }

    /// Begins a new window when the present one is over, unless the datagram claims an implausible uptime. Samples that
    /// are too old are dropped.
    fn rotate(&mut self, now: Instant, sample: Sample) {
        if AGE_MAX < now.since(self.current.at) {
            *self = Transit { claim: self.claim, ..Transit::new(now, sample.uptime_ms) };
        } else if WINDOW <= now.since(self.began) && self.current.latest(sample.uptime_ms).0.since(now) <= PLAUSIBLE {
            (self.previous, self.current, self.began) = (Some(self.current), sample, now);
        }
        self.previous = self.previous.filter(|previous| now.since(previous.at) <= AGE_MAX);
    }

    fn latest(&self, uptime_ms: u32) -> (Instant, Duration) {
        let current = self.current.latest(uptime_ms);
        let previous = self.previous.map(|previous| previous.latest(uptime_ms));
        previous.map_or(current, |previous| previous.min(current))
    }

    /// Returns whether a datagram agrees with the claim of another one that was sealed before it.
    fn is_confirmed(&self, sample: Sample) -> bool {
        self.claim.is_some_and(|claim| {
            let (latest, drift) = claim.latest(sample.uptime_ms);
            let apart = latest.since(sample.at).max(sample.at.since(latest));
            claim.uptime_ms < sample.uptime_ms && apart <= AGREEMENT + drift
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn receive(transit: &mut Transit, millis: u64, uptime_ms: u32) -> SealTime {
        transit.on_datagram(at(millis), at(millis), uptime_ms)
    }

    /// Proves: W73
    #[test]
    fn delayed_datagram_is_dated_by_its_uptime() {
        let mut transit = Transit::new(at(1000), 0);
        assert_eq!(receive(&mut transit, 1100, 100).latest, at(1100));
        let late = receive(&mut transit, 4000, 200).latest;
        assert!(at(1200) <= late && late <= at(1202), "{late:?}");
    }

    /// Proves: W161, W73
    #[test]
    fn forged_uptime_does_not_age_later_datagrams() {
        let mut transit = Transit::new(at(1000), 0);
        receive(&mut transit, 1100, 100);
        receive(&mut transit, 1200, 60_200);
        for millis in (1300..20_000).step_by(100) {
            let sealed = receive(&mut transit, millis, (millis - 1000) as u32).latest;
            assert!(at(millis - 20) <= sealed, "at {millis}: {sealed:?}");
        }
    }

    /// Proves: W73
    #[test]
    fn backward_clock_is_followed_within_two_windows() {
        let mut transit = Transit::new(at(1000), 10_000);
        for millis in (1100..3000).step_by(100) {
            receive(&mut transit, millis, (millis + 9000) as u32);
        }
        for millis in (3000..20_000).step_by(100) {
            let sealed = receive(&mut transit, millis, (millis + 4000) as u32).latest;
            assert!(millis <= 13_000 || at(millis - 20) <= sealed, "at {millis}: {sealed:?}");
        }
    }

    /// Proves: W73
    #[test]
    fn two_fresh_datagrams_correct_delayed_first_contact() {
        let mut transit = Transit::new(at(9000), 0);
        let fresh = receive(&mut transit, 9100, 4000);
        assert!(
            Duration::from_millis(3890) <= fresh.older,
            "the first datagram was in flight for that time: {fresh:?}"
        );
        assert_eq!(receive(&mut transit, 9200, 4100).older, Duration::ZERO, "the delay was reported before");
        let late = receive(&mut transit, 9300, 200).latest;
        assert!(late <= at(5310), "{late:?}");
    }
}
