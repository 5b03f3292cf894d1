//! DATALOSS advisories: their sums, and the time of the next one (seed 002, "Notification of message loss").

use crate::message::{Cause, Count, Dseq, MissingDatagrams, Publisher, Reason};
use crate::proto::ledger::SettledRange;
use crate::subject::Subject;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Subject of an advisory about multicast messages.
pub const INBOUND_BCAST: &str = "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST";
/// Subject of an advisory about messages directed to this peer alone.
pub const INBOUND_PTP: &str = "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.PTP";
/// Subject of an advisory about multicast messages of this peer that another peer lost.
pub const OUTBOUND_BCAST: &str = "_RV.ERROR.SYSTEM.DATALOSS.OUTBOUND.BCAST";
/// Subject of an advisory about messages that this peer directed to another peer, which lost them.
pub const OUTBOUND_PTP: &str = "_RV.ERROR.SYSTEM.DATALOSS.OUTBOUND.PTP";

/// Stream that an advisory is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdvisoryStream {
    /// The publisher's multicast stream.
    Bcast,
    /// The publisher's directed stream to this peer.
    Ptp,
    /// This peer's multicast stream, as the other peer has lost it.
    OutboundBcast,
    /// This peer's directed stream to the other peer.
    OutboundPtp,
}

impl AdvisoryStream {
    /// All streams.
    pub const ALL: [AdvisoryStream; 4] =
        [AdvisoryStream::Bcast, AdvisoryStream::Ptp, AdvisoryStream::OutboundBcast, AdvisoryStream::OutboundPtp];

    /// Returns the subject of the advisories.
    pub fn subject(self) -> &'static str {
        match self {
            AdvisoryStream::Bcast => INBOUND_BCAST,
            AdvisoryStream::Ptp => INBOUND_PTP,
            AdvisoryStream::OutboundBcast => OUTBOUND_BCAST,
            AdvisoryStream::OutboundPtp => OUTBOUND_PTP,
        }
    }

    /// Returns whether the other peer lost the data.
    pub fn is_outbound(self) -> bool {
        matches!(self, AdvisoryStream::OutboundBcast | AdvisoryStream::OutboundPtp)
    }
}

/// Content of one advisory: the sums since the previous one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advisory {
    /// Stream of the advisory.
    pub stream: AdvisoryStream,
    /// Publisher of the lost data; of an outbound stream the receiver that lost it.
    pub publisher: Publisher,
    /// Messages proven lost: the sum of the lower bounds.
    pub lost_min: u64,
    /// Messages proven lost: the sum of the upper bounds; equal to `lost_min` if all counts are exact.
    pub lost_max: u64,
    /// Number of unexplained messages, subscribed or not, in datagrams newly found missing.
    pub unverified: u64,
    /// First and last such datagram, if any.
    pub unverified_datagrams: Option<(u64, u64)>,
    /// The named subjects in the order of their first loss, each with (lower, upper) bound of its count.
    pub subjects: Vec<(Subject, u64, u64)>,
    /// Number of different subjects with a loss; more than `subjects.len()` if the limit cut the list.
    pub subjects_count: u64,
    /// Last reported reason.
    pub reason: Reason,
    /// Location at which the datagrams of the lost or unverified messages went missing; each datagram counts once.
    pub cause: Cause,
    /// The group's port: the seed's `scid`.
    pub scid: u16,
}

/// Sums up the losses of one stream of one publisher. The first loss is reported at once, then at most one advisory
/// with sums in each interval. The last one is flushed.
#[derive(Clone, Debug)]
pub struct Throttle {
    stream: AdvisoryStream,
    sums: Option<Sums>,
    next: Instant,
}

/// Sums since the last advisory.
#[derive(Clone, Debug, Default)]
struct Sums {
    lost_min: u64,
    lost_max: u64,
    unverified: u64,
    unverified_datagrams: Option<(u64, u64)>,
    subjects: Vec<(Subject, u64, u64)>,
    /// Index in `subjects`, or `None` for a subject beyond the limit.
    indices: BTreeMap<Subject, Option<usize>>,
    /// Number of different subjects beyond the limit of `indices`; an upper bound, because they are not distinguished.
    uncounted: u64,
    /// Ranges of missing datagrams that are counted in `missing`, by their last datagram.
    ranges: BTreeSet<Dseq>,
    missing: MissingDatagrams,
    reason: Option<Reason>,
}

impl Throttle {
    /// Creates a throttle with nothing to report.
    pub fn new(stream: AdvisoryStream) -> Throttle {
        Throttle { stream, sums: None, next: Instant::ZERO }
    }

    fn sums(&mut self, reason: Reason) -> &mut Sums {
        let sums = self.sums.get_or_insert_default();
        sums.reason = Some(reason);
        sums
    }

    /// Adds lost messages of a subject, in these ranges of datagrams; at most `subjects_max` subjects are named.
    pub fn on_lost(
        &mut self,
        subject: &Subject,
        count: Count,
        reason: Reason,
        missing: &[(Dseq, MissingDatagrams)],
        subjects_max: usize,
    ) {
        let sums = self.sums(reason);
        missing.iter().for_each(|(last, missing)| sums.add_range(*last, *missing));
        // A hostile publisher may claim any numbers.
        sums.lost_min = sums.lost_min.saturating_add(count.min());
        sums.lost_max = sums.lost_max.saturating_add(count.max());
        match sums.indices.get(subject) {
            Some(Some(at)) => {
                let (_, min, max) = &mut sums.subjects[*at];
                *min = min.saturating_add(count.min());
                *max = max.saturating_add(count.max());
            }
            Some(None) => {}
            None if sums.subjects.len() < subjects_max => {
                sums.indices.insert(subject.clone(), Some(sums.subjects.len()));
                sums.subjects.push((subject.clone(), count.min(), count.max()));
            }
            None if sums.indices.len() < DISTINCT_SUBJECTS_MAX => {
                sums.indices.insert(subject.clone(), None);
            }
            None => sums.uncounted += 1,
        }
    }

    /// Adds missing datagrams of unknown content.
    pub fn on_unverified(&mut self, range: &SettledRange, messages: Count) {
        let sums = self.sums(range.reason);
        sums.add_range(range.last, range.missing());
        sums.unverified = sums.unverified.saturating_add(messages.max());
        let (first, last) = sums.unverified_datagrams.unwrap_or((range.first.0, range.last.0));
        sums.unverified_datagrams = Some((first.min(range.first.0), last.max(range.last.0)));
    }

    /// Adds lost messages that were directed to this peer.
    pub fn on_inbox(&mut self, messages: u64, reason: Reason, missing: MissingDatagrams) {
        let sums = self.sums(reason);
        sums.missing = sums.missing.plus(missing);
        sums.lost_min = sums.lost_min.saturating_add(messages);
        sums.lost_max = sums.lost_max.saturating_add(messages);
    }

    /// Adds another peer's report of further losses of this peer's data: messages (lower and upper bound), and
    /// datagrams of unknown content. `missing` are the datagrams that held them. `is_new` is true for their first
    /// report, because an advisory counts each datagram once.
    pub fn on_report(&mut self, min: u64, max: u64, unverified: u64, missing: MissingDatagrams, is_new: bool) {
        if max == 0 && unverified == 0 {
            return;
        }
        let sums = self.sums(Reason::Reported);
        if is_new || sums.missing == MissingDatagrams::default() {
            sums.missing = sums.missing.plus(missing);
        }
        sums.lost_min = sums.lost_min.saturating_add(min);
        sums.lost_max = sums.lost_max.saturating_add(max);
        sums.unverified = sums.unverified.saturating_add(unverified);
    }

    /// Records that the publisher fell silent or crashed.
    pub fn on_tail(&mut self, reason: Reason) {
        self.sums(reason);
    }

    /// Returns the earliest time of the next advisory, if there is a loss to report.
    pub fn deadline(&self) -> Option<Instant> {
        self.sums.as_ref().map(|_| self.next)
    }

    /// Returns the next advisory, if there is a loss to report and the interval has passed or `flush` is set.
    pub fn take_due(
        &mut self,
        now: Instant,
        interval: Duration,
        flush: bool,
        publisher: &Publisher,
        scid: u16,
    ) -> Option<Advisory> {
        // Rule: advisory-throttle
        if now < self.deadline()? && !flush {
            return None;
        }
        let sums = self.sums.take()?;
        self.next = now + interval;
        Some(Advisory {
            stream: self.stream,
            publisher: publisher.clone(),
            lost_min: sums.lost_min,
            lost_max: sums.lost_max,
            unverified: sums.unverified,
            unverified_datagrams: sums.unverified_datagrams,
            subjects: sums.subjects,
            subjects_count: sums.indices.len() as u64 + sums.uncounted,
            reason: sums.reason?,
            cause: sums.missing.cause(),
            scid,
        })
    }
}

impl Sums {
    /// Counts a range of missing datagrams, if it has not been counted since the last advisory. Several subjects may
    /// have lost messages in it. Ranges beyond [`RANGES_MAX`] are not counted.
    fn add_range(&mut self, last: Dseq, missing: MissingDatagrams) {
        if self.ranges.len() < RANGES_MAX && self.ranges.insert(last) {
            self.missing = self.missing.plus(missing);
        }
    }
}

/// Maximum number of ranges of missing datagrams that are distinguished in one advisory; bounds the memory of a second
/// of heavy loss.
const RANGES_MAX: usize = 65_536;
/// Maximum number of subjects that are distinguished in one advisory, named or not; bounds the memory of a second of
/// heavy loss.
const DISTINCT_SUBJECTS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Epoch;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn take(throttle: &mut Throttle, millis: u64, flush: bool) -> Option<Advisory> {
        let publisher = Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 };
        throttle.take_due(at(millis), Duration::from_secs(1), flush, &publisher, 7500)
    }

    fn lose(throttle: &mut Throttle, subject: &str, count: u64) {
        throttle.on_lost(&subject.parse().unwrap(), Count::Exact(count), Reason::Disabled, &[], 2);
    }

    /// Proves: advisory-throttle
    #[test]
    fn losses_are_summed_into_one_advisory_a_second() {
        let mut throttle = Throttle::new(AdvisoryStream::Bcast);
        assert_eq!(take(&mut throttle, 5000, true), None, "nothing to report");
        lose(&mut throttle, "a", 1);
        assert_eq!(take(&mut throttle, 5000, false).unwrap().lost_min, 1);
        for subject in ["a", "b", "a", "c", "d", "c"] {
            lose(&mut throttle, subject, 2);
        }
        assert_eq!(take(&mut throttle, 5999, false), None);
        assert_eq!(throttle.deadline(), Some(at(6000)));
        let second = take(&mut throttle, 6000, false).unwrap();
        assert_eq!((second.lost_min, second.lost_max, second.subjects_count), (12, 12, 4));
        let named: Vec<(&str, u64)> = second.subjects.iter().map(|(s, min, _)| (s.as_str(), *min)).collect();
        assert_eq!(named, [("a", 4), ("b", 2)], "named up to the limit, the rest counted");
        lose(&mut throttle, "a", 3);
        assert_eq!(take(&mut throttle, 6001, true).unwrap().lost_min, 3, "a stop flushes");
        assert_eq!((take(&mut throttle, 9000, false), throttle.deadline()), (None, None));
    }

    #[test]
    fn each_missing_datagram_counts_once_in_an_advisory() {
        let mut throttle = Throttle::new(AdvisoryStream::Bcast);
        let missing = |datagrams, overrun| MissingDatagrams { datagrams, overrun };
        let lose = |throttle: &mut Throttle, ranges: &[(Dseq, MissingDatagrams)], millis| {
            for subject in ["a", "b"] {
                throttle.on_lost(&subject.parse().unwrap(), Count::Exact(9), Reason::Disabled, ranges, 9);
            }
            take(throttle, millis, false).unwrap().cause
        };
        let (dropped, lost) = ((Dseq(9), missing(3, 3)), (Dseq(12), missing(2, 0)));
        assert_eq!(lose(&mut throttle, &[dropped], 5000), Cause::LocalOverrun { datagrams: 3 });
        assert_eq!(lose(&mut throttle, &[dropped, lost], 6000), Cause::Mixed { overrun: 3, network: 2 });
        assert_eq!(lose(&mut throttle, &[lost], 7000), Cause::Network);
    }

    #[test]
    fn unknown_content_is_never_counted_as_lost() {
        let mut throttle = Throttle::new(AdvisoryStream::Bcast);
        let first = SettledRange::of_content(crate::message::Dseq(7), at(0), Reason::Disabled);
        let range = SettledRange { last: crate::message::Dseq(9), ..first };
        throttle.on_unverified(&range, Count::Exact(5));
        let advisory = take(&mut throttle, 1, false).unwrap();
        assert_eq!((advisory.lost_max, advisory.unverified, advisory.unverified_datagrams), (0, 5, Some((7, 9))));
        throttle.on_tail(Reason::Silent);
        assert_eq!(take(&mut throttle, 2000, false).unwrap().reason, Reason::Silent);
    }
}
