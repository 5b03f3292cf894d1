//! Ranges of a ledger that were given up, and later proofs about the messages in them (R12).
//!
//! Above a limit the oldest ranges are evicted; their unexplained messages stay counted.

use crate::message::{Count, Dseq, MissingDatagrams, Reason};
use crate::time::Instant;
use std::collections::VecDeque;

/// A range that was given up. Later messages may still prove its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledRange {
    /// First datagram.
    pub first: Dseq,
    /// Last datagram.
    pub last: Dseq,
    /// Number of messages begun in it, according to its neighbours.
    pub messages: u64,
    /// Number of these messages that are unexplained.
    pub unexplained: u64,
    /// Lower bound of the send time of its messages, less the latency.
    pub since: Instant,
    /// Number of its datagrams that this host's kernel dropped.
    pub overrun: u64,
    /// Reason for which it was given up.
    pub reason: Reason,
    /// True if the datagram arrived, or its content is known, and only a message in it has no number.
    pub is_content: bool,
}

impl SettledRange {
    /// Returns the range of a datagram with an unnumbered message: a large one that begins in it, or a lost one.
    pub fn of_content(dseq: Dseq, now: Instant, reason: Reason) -> SettledRange {
        SettledRange {
            first: dseq,
            last: dseq,
            messages: 1,
            unexplained: 1,
            since: now,
            overrun: 0,
            reason,
            is_content: true,
        }
    }

    /// Returns the range of the datagrams up to `last`, with `messages` begun in them, which were sent before the first
    /// contact.
    pub fn before_contact(last: Dseq, messages: u64) -> SettledRange {
        SettledRange {
            first: Dseq(1),
            last,
            messages,
            unexplained: messages,
            since: Instant::ZERO,
            overrun: 0,
            reason: Reason::Start,
            is_content: false,
        }
    }

    /// Returns the number of its missing datagrams, and of those that the kernel dropped.
    pub fn missing(&self) -> MissingDatagrams {
        // A range of known content is not missing.
        MissingDatagrams { datagrams: if self.is_content { 0 } else { self.datagrams() }, overrun: self.overrun }
    }

    /// Returns the number of its datagrams, missing or not.
    pub(super) fn datagrams(&self) -> u64 {
        self.last.0 - self.first.0 + 1
    }
}

/// Missing messages between two datagrams that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnexplainedMessages {
    /// Number of unexplained messages in settled ranges.
    pub messages: u64,
    /// Number of these that may have been sent before `recent`.
    pub old: u64,
    /// Reason for which the last of those ranges was given up.
    pub reason: Option<Reason>,
    /// Lower bound of the send time of the messages, less the latency.
    pub since: Option<Instant>,
}

/// Effect of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    /// True if the ranges held enough messages; otherwise the subject's numbers and the datagrams' counts disagree.
    pub agrees: bool,
    /// Number of datagrams whose messages are now all explained: they were unverified and are lost.
    pub datagrams: u64,
}

/// Datagrams that a retraction removes from the settled ranges, by their former state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Retraction {
    pub lost: u64,
    pub unverified: u64,
    /// Number of datagrams that stay, and whose messages are now all explained: they were unverified and are lost.
    pub explained: u64,
}

/// Settled ranges of one ledger, oldest first.
#[derive(Clone, Debug)]
pub(super) struct SettledRanges {
    ranges: VecDeque<SettledRange>,
    /// Sum of `unexplained` over `ranges`.
    unexplained: u64,
    /// Unexplained messages of ranges that the limit evicted, all at or before `evicted_to`.
    evicted_unexplained: u64,
    evicted_to: Dseq,
    /// Missing datagrams of those ranges.
    evicted_missing: MissingDatagrams,
    /// Number of messages proven lost that lie in an unknown one of several ranges.
    floating: u64,
    ranges_max: usize,
}

impl SettledRanges {
    /// Creates an empty list; all ranges will lie above `baseline`.
    pub fn new(baseline: Dseq, ranges_max: usize) -> SettledRanges {
        SettledRanges {
            ranges: VecDeque::new(),
            unexplained: 0,
            evicted_unexplained: 0,
            evicted_to: baseline,
            evicted_missing: MissingDatagrams::default(),
            floating: 0,
            ranges_max,
        }
    }

    /// Returns the highest datagram of an evicted range, or the baseline.
    pub fn evicted_to(&self) -> Dseq {
        self.evicted_to
    }

    /// Returns the number of unexplained messages.
    pub fn unexplained(&self) -> u64 {
        (self.unexplained + self.evicted_unexplained).saturating_sub(self.floating)
    }

    /// Adds a range above all others.
    pub fn push(&mut self, range: SettledRange) {
        if self.ranges_max <= self.ranges.len()
            && let Some(oldest) = self.ranges.pop_front()
        {
            self.unexplained -= oldest.unexplained;
            self.evicted_unexplained += oldest.unexplained;
            self.evicted_to = oldest.last;
            self.evicted_missing = self.evicted_missing.plus(oldest.missing());
        }
        self.unexplained += range.unexplained;
        self.ranges.push_back(range);
    }

    /// Returns the range that contains this datagram.
    pub fn at(&self, dseq: Dseq) -> Option<&SettledRange> {
        let at = self.ranges.partition_point(|range| range.last < dseq);
        self.ranges.get(at).filter(|range| range.first <= dseq)
    }

    /// Retracts the settled datagrams above `high`. At most `messages` messages remain in the rest of the range at
    /// `high`.
    pub fn retract(&mut self, high: Dseq, messages: u64) -> Retraction {
        let mut retracted = Retraction::default();
        while let Some(range) = self.ranges.back_mut().filter(|range| high < range.last) {
            let kept = (high.0 + 1).saturating_sub(range.first.0);
            let dropped = range.datagrams() - kept;
            *(if range.unexplained == 0 { &mut retracted.lost } else { &mut retracted.unverified }) += dropped;
            if kept == 0 {
                self.unexplained -= range.unexplained;
                self.ranges.pop_back();
                continue;
            }
            let unexplained = range.unexplained.min(messages);
            self.unexplained -= range.unexplained - unexplained;
            if unexplained == 0 && 0 < range.unexplained {
                retracted.explained += kept;
            }
            (range.last, range.unexplained) = (high, unexplained);
            range.messages = range.messages.min(messages);
            range.overrun = range.overrun.min(kept);
        }
        retracted
    }

    /// Returns the number of unexplained messages of a range just settled, even if the limit has already evicted the
    /// range.
    pub fn unexplained_in(&self, settled: &SettledRange) -> Count {
        let at = self.ranges.partition_point(|range| range.first < settled.first);
        let kept = self.ranges.get(at).filter(|range| range.first == settled.first);
        let most = kept.map_or(settled.unexplained, |range| range.unexplained);
        Count::from_bounds(most.saturating_sub(self.floating), most)
    }

    /// Returns the missing messages between two datagrams that arrived; `recent` separates old from recent ones.
    pub fn unexplained_between(&self, after: Dseq, before: Dseq, recent: Instant) -> UnexplainedMessages {
        let mut sum = UnexplainedMessages::default();
        if after < self.evicted_to {
            sum.messages = self.evicted_unexplained;
            sum.old = self.evicted_unexplained;
        }
        for range in self.between(after, before) {
            sum.messages += range.unexplained;
            sum.reason = Some(range.reason);
            sum.since = earlier(sum.since, Some(range.since));
            if range.since <= recent {
                sum.old += range.unexplained;
            }
        }
        sum
    }

    /// Returns the settled ranges between two datagrams that arrived, each by its last datagram.
    pub fn missing_between(&self, after: Dseq, before: Dseq) -> Vec<(Dseq, MissingDatagrams)> {
        let evicted = (after < self.evicted_to).then_some((self.evicted_to, self.evicted_missing));
        let ranges = self.between(after, before).map(|range| (range.last, range.missing()));
        evicted.into_iter().chain(ranges).collect()
    }

    fn between(&self, after: Dseq, before: Dseq) -> impl Iterator<Item = &SettledRange> {
        let at = self.ranges.partition_point(|range| range.last <= after);
        self.ranges.range(at..).take_while(move |range| range.last < before)
    }

    /// Explains `messages` in the settled ranges between two datagrams that are now known (R12).
    pub fn explain(&mut self, after: Dseq, before: Dseq, messages: u64) -> Explanation {
        let sum = self.unexplained_between(after, before, Instant::ZERO).messages;
        if sum < messages {
            return Explanation { agrees: false, datagrams: 0 };
        }
        let from = self.ranges.partition_point(|range| range.last <= after);
        let to = self.ranges.partition_point(|range| range.last < before);
        let open = (from..to).filter(|at| 0 < self.ranges[*at].unexplained).count();
        let known = self.evicted_unexplained == 0 || self.evicted_to <= after;
        let mut datagrams = 0;
        if sum == messages && known {
            for at in from..to {
                datagrams += self.reduce(at, self.ranges[at].unexplained);
            }
        } else if open == 1 && known {
            let at = (from..to).find(|at| 0 < self.ranges[*at].unexplained).expect("one is open");
            datagrams += self.reduce(at, messages);
        } else {
            self.floating += messages;
        }
        let balanced = self.balance();
        Explanation { datagrams: datagrams + balanced.datagrams, ..balanced }
    }

    /// Explains messages of one range; returns its datagrams if that explains all.
    fn reduce(&mut self, at: usize, messages: u64) -> u64 {
        let range = &mut self.ranges[at];
        if range.unexplained == 0 {
            return 0;
        }
        range.unexplained -= messages;
        self.unexplained -= messages;
        if range.unexplained == 0 { range.datagrams() } else { 0 }
    }

    /// Explains every range when the floating messages account for all unexplained ones.
    fn balance(&mut self) -> Explanation {
        if self.floating == 0 || self.floating < self.unexplained + self.evicted_unexplained {
            return Explanation { agrees: true, datagrams: 0 };
        }
        let agrees = self.unexplained + self.evicted_unexplained == self.floating;
        let datagrams = (0..self.ranges.len()).map(|at| self.reduce(at, self.ranges[at].unexplained)).sum();
        self.evicted_unexplained = 0;
        self.evicted_missing = MissingDatagrams::default();
        self.floating = 0;
        Explanation { agrees, datagrams }
    }

    /// Checks that the stored sum is that of the ranges.
    pub fn assert_invariants(&self) {
        assert_eq!(self.unexplained, self.ranges.iter().map(|range| range.unexplained).sum::<u64>());
    }
}

/// Returns the earlier of two optional instants; `None` means never.
pub(super) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}
