//! Numbers of the datagrams that a peer has sent to the group. A receiver of its keys learns which ones are old.

use crate::time::Instant;
use crate::wire::Kind;
use std::collections::VecDeque;
use std::time::Duration;

/// Minimum age of the numbers that a receiver of the keys gets: what was sent later may still be on its way.
const AGE_MIN: Duration = Duration::from_secs(2);
/// Minimum time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// Numbers of the next datagrams to the group, of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NextNumbers {
    pub(super) data: u64,
    pub(super) control: u64,
}

/// The numbers of an epoch, now and some seconds ago.
#[derive(Debug, Default)]
pub(super) struct SentNumbers {
    next: NextNumbers,
    /// Samples in the order of time. At most one is older than the minimum age.
    samples: VecDeque<(Instant, NextNumbers)>,
}

impl SentNumbers {
    /// Records that a datagram is sent to the group, maybe again.
    pub(super) fn on_sent(&mut self, kind: Kind, number: u64) {
        let next = match kind {
            Kind::Data => &mut self.next.data,
            Kind::Control => &mut self.next.control,
            Kind::Directed => return,
        };
        *next = (*next).max(number.saturating_add(1));
    }

    /// Takes a sample, if it is time.
    pub(super) fn on_tick(&mut self, now: Instant) {
        if self.samples.back().is_none_or(|(at, _)| SAMPLE_INTERVAL <= now.since(*at)) {
            self.samples.push_back((now, self.next));
        }
        while self.samples.get(1).is_some_and(|(at, _)| AGE_MIN <= now.since(*at)) {
            self.samples.pop_front();
        }
    }

    /// Returns the last numbers that are at least 2 s old; zeros if there are none.
    pub(super) fn settled(&self, now: Instant) -> NextNumbers {
        let old = self.samples.iter().rev().find(|(at, _)| AGE_MIN <= now.since(*at));
        old.map(|(_, next)| *next).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_at_least_two_seconds_old() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut numbers = SentNumbers::default();
        for millis in (0..10_000).step_by(10) {
            numbers.on_sent(Kind::Data, millis);
            numbers.on_sent(Kind::Data, millis / 2);
            numbers.on_sent(Kind::Control, millis / 10);
            numbers.on_sent(Kind::Directed, 1 << 40);
            numbers.on_tick(at(millis));
            let settled = numbers.settled(at(millis));
            let newest = millis.saturating_sub(2000);
            assert!(
                settled.data <= newest + 1 && newest.saturating_sub(500) <= settled.data,
                "{settled:?} at {millis}"
            );
            assert!(numbers.samples.len() <= 6, "{}", numbers.samples.len());
        }
        assert_eq!(numbers.settled(at(9_990)), NextNumbers { data: 7501, control: 751 });
        assert_eq!(numbers.settled(at(1_000_000)), NextNumbers { data: 9501, control: 951 });
    }
}
