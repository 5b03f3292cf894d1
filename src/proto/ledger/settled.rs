//! The ranges of a ledger that were given up on, and what later messages prove about the messages in them (R12).
//!
//! The oldest ranges are forgotten above a limit; what was unexplained in them stays counted.

use super::earlier;
use crate::message::{Count, Dseq, MissingDatagrams, Reason};
use crate::time::Instant;
use std::collections::VecDeque;

/// A range that was given up on. What was in it may still be proven by later messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledRange {
    /// First datagram.
    pub first: Dseq,
    /// Last datagram.
    pub last: Dseq,
    /// Messages begun in it, as its neighbours say.
    pub messages: u64,
    /// Of these, messages that nothing has explained yet.
    pub unexplained: u64,
    /// Its messages were sent later than this, less the latency.
    pub since: Instant,
    /// Datagrams of it that this host's kernel dropped.
    pub overrun: u64,
    /// Why it was given up.
    pub reason: Reason,
    /// The datagram arrived, or its content is known; only a message in it has no number.
    pub is_content: bool,
}

impl SettledRange {
    /// A datagram with a message that has no number to name it by: a large one that begins in it, or a lost one.
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

    /// The datagrams up to `last`, with `messages` begun in them, which were sent before the first contact.
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

    /// Number of its missing datagrams, and how many of them the kernel dropped.
    pub fn missing(&self) -> MissingDatagrams {
        // One that stands for content that is known is not missing.
        MissingDatagrams { datagrams: if self.is_content { 0 } else { self.datagrams() }, overrun: self.overrun }
    }

    /// Number of its datagrams, missing or not.
    pub(super) fn datagrams(&self) -> u64 {
        self.last.0 - self.first.0 + 1
    }
}

/// What is missing between two datagrams that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnexplainedMessages {
    /// Messages in settled ranges that nothing has explained yet.
    pub messages: u64,
    /// Of these, messages that may have been sent before `recent`.
    pub old: u64,
    /// Why the last of those ranges was given up.
    pub reason: Option<Reason>,
    /// The messages were sent later than this, less the latency.
    pub since: Option<Instant>,
}

/// What an explanation changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    /// There were that many messages; otherwise the numbers of the subject and the counts of the datagrams disagree.
    pub agrees: bool,
    /// Datagrams whose messages are now all explained: they were unverified and are lost.
    pub datagrams: u64,
}

/// Datagrams that a retraction takes out of the settled ranges, by the state in which they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Retraction {
    pub lost: u64,
    pub unverified: u64,
    /// Datagrams that stay, and whose messages are now all explained: they were unverified and are lost.
    pub explained: u64,
}

/// The settled ranges of one ledger, oldest first.
#[derive(Clone, Debug)]
pub(super) struct SettledRanges {
    ranges: VecDeque<SettledRange>,
    /// The sum of `unexplained` over `ranges`.
    unexplained: u64,
    /// Unexplained messages of ranges that left because of the limit, all at or before `forgotten_to`.
    forgotten: u64,
    forgotten_to: Dseq,
    /// Datagrams of those ranges.
    forgotten_missing: MissingDatagrams,
    /// Messages proven lost that lie in one of several ranges, it is not known which.
    floating: u64,
    ranges_max: usize,
}

impl SettledRanges {
    /// No range; all of them will lie above `baseline`.
    pub fn new(baseline: Dseq, ranges_max: usize) -> SettledRanges {
        SettledRanges {
            ranges: VecDeque::new(),
            unexplained: 0,
            forgotten: 0,
            forgotten_to: baseline,
            forgotten_missing: MissingDatagrams::default(),
            floating: 0,
            ranges_max,
        }
    }

    /// The highest datagram of a range that is forgotten, or the baseline.
    pub fn forgotten_to(&self) -> Dseq {
        self.forgotten_to
    }

    /// Messages that nothing has explained yet.
    pub fn unexplained(&self) -> u64 {
        (self.unexplained + self.forgotten).saturating_sub(self.floating)
    }

    /// Adds a range above all others.
    pub fn push(&mut self, range: SettledRange) {
        if self.ranges_max <= self.ranges.len()
            && let Some(oldest) = self.ranges.pop_front()
        {
            self.unexplained -= oldest.unexplained;
            self.forgotten += oldest.unexplained;
            self.forgotten_to = oldest.last;
            self.forgotten_missing = self.forgotten_missing.plus(oldest.missing());
        }
        self.unexplained += range.unexplained;
        self.ranges.push_back(range);
    }

    /// The range in which this datagram lies.
    pub fn at(&self, dseq: Dseq) -> Option<&SettledRange> {
        let at = self.ranges.partition_point(|range| range.last < dseq);
        self.ranges.get(at).filter(|range| range.first <= dseq)
    }

    /// Takes back what was settled of datagrams above `high`: `messages` at most stand in what stays of the range at `high`.
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

    /// How many messages of a range just settled nothing has explained yet, though the limit may have taken it already.
    pub fn unexplained_in(&self, settled: &SettledRange) -> Count {
        let at = self.ranges.partition_point(|range| range.first < settled.first);
        let kept = self.ranges.get(at).filter(|range| range.first == settled.first);
        let most = kept.map_or(settled.unexplained, |range| range.unexplained);
        Count::from_bounds(most.saturating_sub(self.floating), most)
    }

    /// What is missing between two datagrams that arrived; `recent` divides old from recent.
    pub fn unexplained_between(&self, after: Dseq, before: Dseq, recent: Instant) -> UnexplainedMessages {
        let mut sum = UnexplainedMessages::default();
        if after < self.forgotten_to {
            sum.messages = self.forgotten;
            sum.old = self.forgotten;
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
        let forgotten = (after < self.forgotten_to).then_some((self.forgotten_to, self.forgotten_missing));
        let ranges = self.between(after, before).map(|range| (range.last, range.missing()));
        forgotten.into_iter().chain(ranges).collect()
    }

    fn between(&self, after: Dseq, before: Dseq) -> impl Iterator<Item = &SettledRange> {
        let at = self.ranges.partition_point(|range| range.last <= after);
        self.ranges.range(at..).take_while(move |range| range.last < before)
    }

    /// `messages` that stood in the settled ranges between two datagrams are now known (R12).
    pub fn explain(&mut self, after: Dseq, before: Dseq, messages: u64) -> Explanation {
        let sum = self.unexplained_between(after, before, Instant::ZERO).messages;
        if sum < messages {
            return Explanation { agrees: false, datagrams: 0 };
        }
        let from = self.ranges.partition_point(|range| range.last <= after);
        let to = self.ranges.partition_point(|range| range.last < before);
        let open = (from..to).filter(|at| 0 < self.ranges[*at].unexplained).count();
        let known = self.forgotten == 0 || self.forgotten_to <= after;
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

    /// When floating messages account for all that is unexplained, every range is explained.
    fn balance(&mut self) -> Explanation {
        if self.floating == 0 || self.floating < self.unexplained + self.forgotten {
            return Explanation { agrees: true, datagrams: 0 };
        }
        let agrees = self.unexplained + self.forgotten == self.floating;
        let datagrams = (0..self.ranges.len()).map(|at| self.reduce(at, self.ranges[at].unexplained)).sum();
        self.forgotten = 0;
        self.forgotten_missing = MissingDatagrams::default();
        self.floating = 0;
        Explanation { agrees, datagrams }
    }

    /// The sum over the ranges is what is kept as the sum.
    pub fn assert_invariants(&self) {
        assert_eq!(self.unexplained, self.ranges.iter().map(|range| range.unexplained).sum::<u64>());
    }
}
