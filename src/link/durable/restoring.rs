//! Messages that the cluster has confirmed and lost: the site that waits for them requests them, and the site that has
//! exported them stores them once more.

use super::DurableGateway;
use super::restore_request::{MissingMessages, RestoreRequest};
use crate::link::site_name::SiteName;
use crate::link::stream_counts::LinkStreamKey;
use crate::seqno::Seq;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// Maximum number of gaps whose messages are to be stored once more.
const GAPS_MAX: usize = 1_024;
/// Time after which a request is out of date. The importer repeats it.
const REQUEST_AGE_MAX: Duration = Duration::from_secs(5);

/// Requested messages that wait until the state of the stream is known: gaps that do not overlap, so that what hostile
/// requests cost does not grow with their number.
#[derive(Debug, Default)]
pub(super) struct RequestedMessages {
    /// The gaps, by their streams and the messages behind them.
    gaps: BTreeMap<(LinkStreamKey, Seq), RequestedGap>,
}

#[derive(Debug)]
struct RequestedGap {
    /// Time of the last request.
    at: Instant,
    missing: MissingMessages,
}

impl RequestedMessages {
    /// Adds messages, if there is room.
    fn put(&mut self, now: Instant, mut missing: MissingMessages) {
        for key in self.overlapping(&missing) {
            if let Some(other) = self.gaps.remove(&key) {
                missing.merge(&other.missing);
            }
        }
        if GAPS_MAX <= self.gaps.len() {
            self.gaps.retain(|_, gap| now.since(gap.at) < REQUEST_AGE_MAX);
        }
        if self.gaps.len() < GAPS_MAX {
            let key = (missing.stream.clone(), missing.before);
            self.gaps.insert(key, RequestedGap { at: now, missing });
        }
    }

    /// Returns the keys of the gaps that overlap this one.
    fn overlapping(&self, missing: &MissingMessages) -> Vec<(LinkStreamKey, Seq)> {
        let later = self.gaps.range((missing.begin(), Bound::Unbounded));
        let overlaps = |gap: &RequestedGap| {
            gap.missing.stream == missing.stream && gap.missing.after.is_none_or(|after| after < missing.before)
        };
        later.take_while(|(_, gap)| overlaps(gap)).map(|(key, _)| key.clone()).collect()
    }

    /// Removes and returns those that are not out of date.
    fn take(&mut self, now: Instant) -> impl Iterator<Item = MissingMessages> {
        let gaps = std::mem::take(&mut self.gaps).into_values();
        gaps.filter(move |gap| now.since(gap.at) < REQUEST_AGE_MAX).map(|gap| gap.missing)
    }
}

impl DurableGateway {
    /// Returns the requests for messages that this gateway misses, one for each site, if it is time for them.
    pub(in crate::link) fn restore_requests(&mut self, now: Instant) -> BTreeMap<SiteName, RestoreRequest> {
        self.import.restore_requests(now)
    }

    /// Handles a request of another site. [`DurableGateway::on_stream_state`] carries it out: messages that the stream has
    /// removed by its limits are not stored again.
    pub(in crate::link) fn on_restore_request(&mut self, now: Instant, request: &RestoreRequest) {
        request.messages().for_each(|missing| self.requested.put(now, missing));
    }

    /// Handles the present state of the stream: the sequences of its first message and of its last one. Stores messages
    /// once more that were requested before.
    pub fn on_stream_state(&mut self, now: Instant, first: u64, last: u64) {
        for missing in self.requested.take(now) {
            self.counts.restored += self.spool.restore(now, &missing, first);
        }
        self.spool.on_stream_end(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Epoch;
    use crate::seqno::Frame;

    fn seq(number: u64) -> Seq {
        Seq::from_parts(Frame::new(7).unwrap(), number).unwrap()
    }

    fn missing(subject: &str, after: Option<u64>, before: u64, count_max: u64) -> MissingMessages {
        let stream = LinkStreamKey { publisher: Epoch::new(9).unwrap(), subject: subject.parse().unwrap() };
        MissingMessages { stream, after: after.map(seq), before: seq(before), count_max }
    }

    #[test]
    fn requested_gaps_do_not_overlap() {
        let (a, b) = ("orders.a", "orders.b");
        let cases: [(&str, &[MissingMessages], &[MissingMessages]); 6] = [
            ("the same", &[missing(a, Some(3), 7, 3), missing(a, Some(3), 7, 3)], &[missing(a, Some(3), 7, 3)]),
            (
                "neighbours",
                &[missing(a, Some(7), 9, 1), missing(a, Some(3), 7, 3)],
                &[missing(a, Some(3), 7, 3), missing(a, Some(7), 9, 1)],
            ),
            (
                "other streams",
                &[missing(b, Some(3), 7, 3), missing(a, Some(3), 7, 3)],
                &[missing(a, Some(3), 7, 3), missing(b, Some(3), 7, 3)],
            ),
            ("one in another", &[missing(a, Some(3), 9, 5), missing(a, Some(4), 6, 1)], &[missing(a, Some(3), 9, 6)]),
            ("with the begin", &[missing(a, None, 4, 2), missing(a, Some(2), 8, 1)], &[missing(a, None, 8, u64::MAX)]),
            (
                "several",
                &[missing(a, Some(1), 3, 1), missing(a, Some(5), 9, 3), missing(a, Some(2), 6, 3)],
                &[missing(a, Some(1), 9, 7)],
            ),
        ];
        for (what, requested, expected) in cases {
            let mut gaps = RequestedMessages::default();
            requested.iter().for_each(|missing| gaps.put(Instant::ZERO, missing.clone()));
            assert_eq!(gaps.take(Instant::ZERO).collect::<Vec<_>>(), expected, "{what}");
        }
    }

    #[test]
    fn requested_gaps_are_bounded_and_expire() {
        let mut gaps = RequestedMessages::default();
        let put =
            |gaps: &mut RequestedMessages, now, number: u64| gaps.put(now, missing("a", Some(number), number + 1, 1));
        (1..=2_000).for_each(|number| put(&mut gaps, Instant::ZERO, number));
        assert_eq!(gaps.gaps.len(), GAPS_MAX);
        let later = Instant::ZERO + REQUEST_AGE_MAX;
        put(&mut gaps, later, 3_000);
        assert_eq!(gaps.take(later).collect::<Vec<_>>(), [missing("a", Some(3_000), 3_001, 1)]);
        put(&mut gaps, Instant::ZERO, 1);
        assert_eq!(gaps.take(later).count(), 0);
    }
}
