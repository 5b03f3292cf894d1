//! Ledger of one datagram stream: each datagram from the baseline to the highest known is delivered, buffered, pending,
//! lost or unverified (`docs/loss-accounting.md`, "Terms"). It also counts the messages in the missing datagrams.
//!
//! The ledger works on numbers and counts alone. It never looks into a datagram, so no limit on per-subject state can
//! prevent detection (R9).

mod forgery;
mod settled;

pub use forgery::{ForgedRange, NumberClaim};
pub use settled::{SettledRange, UnexplainedMessages};

use crate::message::{Count, Dseq, MissingDatagrams, Reason};
use crate::proto::nak::{NakScheduler, REQUEST_SPACING};
use crate::proto::stats::DatagramStates;
use crate::time::Instant;
use forgery::AcceptedMarks;
use settled::{SettledRanges, earlier};
use std::collections::VecDeque;
use std::time::Duration;

/// A range of datagrams known missing and still awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DatagramGap {
    first: u64,
    last: u64,
    /// Number of messages begun before `first`, according to the lower neighbour.
    before: u64,
    /// Number of messages begun up to and including `last`, according to the upper neighbour.
    after: u64,
    /// Arrival time of the last datagram before the gap. The missing datagrams were sent later than that, less the
    /// latency.
    since: Instant,
    /// Arrival time of the datagram that revealed the gap.
    found: Instant,
    /// Time at which the gap is settled.
    deadline: Instant,
    /// Number of datagrams in the gap that this host's kernel dropped.
    overrun: u64,
    /// Time of the next request to the publisher; `None` if no request is needed any more.
    request_at: Option<Instant>,
    /// Number of requests sent for the gap.
    requests: u32,
    /// Time of the last request.
    requested_at: Instant,
    /// True if the content is known from a manifest and is fetched in another way.
    is_known: bool,
}

impl DatagramGap {
    fn datagrams(&self) -> u64 {
        self.last - self.first + 1
    }

    fn messages(&self) -> u64 {
        self.after - self.before
    }
}

/// Outcome of adding a datagram, or an announcement of one, to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// The next datagram or a later one; all datagrams in between are now pending.
    Fresh,
    /// The datagram was missing.
    Filled,
    /// The datagram was missing, and was requested by this peer or by another.
    Repaired,
    /// The datagram is at or before the baseline.
    BeforeBaseline,
    /// The datagram was received before.
    Duplicate,
    /// The datagram's range was settled before it arrived.
    Late,
    /// The datagram's counts contradict those of its neighbours.
    Contradiction,
}

/// Context of a gap that is found now.
#[derive(Debug)]
pub struct GapContext<'a> {
    /// Current time.
    pub now: Instant,
    /// Earliest possible arrival time of the datagram that reveals the gap.
    pub arrived: Instant,
    /// Time at which the gap is settled.
    pub deadline: Instant,
    /// Schedule of requests to the publisher.
    pub nak_scheduler: &'a mut NakScheduler,
    /// Number of kernel drops not yet accounted for; those that explain the gap are subtracted.
    pub overrun: &'a mut u64,
}

/// The ledger of one (publisher, epoch, group), or of one directed stream.
#[derive(Clone, Debug)]
pub struct Ledger {
    states: DatagramStates,
    /// Number of messages begun in all datagrams up to `states.high`.
    count: u64,
    /// The highest datagram that arrived or that a manifest lists, or the baseline, with the messages begun up to it.
    /// Datagrams above it were only announced.
    arrived: (Dseq, u64),
    marks: AcceptedMarks,
    /// Time at which `states.high` was last known to be the highest.
    high_at: Instant,
    /// True if arriving datagrams are known to have been sent recently.
    is_dated: bool,
    /// Time at which the datagram accepted last was first known to exist.
    reached: Instant,
    /// Arrival time of the last datagram before the gap that was filled last.
    since: Instant,
    gaps: VecDeque<DatagramGap>,
    settled: SettledRanges,
    /// Earliest time of the next request to the publisher.
    request_at: Option<Instant>,
    /// Time before which no further request is sent, even if one is due.
    request_after: Instant,
    /// Highest datagram up to which the publisher can retransmit nothing any more.
    expired_to: Dseq,
    /// Maximum number of ranges in `gaps`, and in `settled`.
    ranges_max: usize,
}

impl Ledger {
    /// Creates a ledger that owes everything after `baseline`, up to which `count` messages were begun.
    pub fn new(baseline: Dseq, count: u64, now: Instant, ranges_max: usize) -> Ledger {
        Ledger {
            states: DatagramStates { baseline, high: baseline, ..DatagramStates::default() },
            count,
            arrived: (baseline, count),
            marks: AcceptedMarks::new((baseline, count)),
            high_at: now,
            is_dated: true,
            reached: now,
            since: now,
            gaps: VecDeque::new(),
            settled: SettledRanges::new(baseline, ranges_max.max(1)),
            request_at: None,
            request_after: now,
            expired_to: Dseq(0),
            ranges_max: ranges_max.max(1),
        }
    }

    /// Marks the send time of the first datagram as unknown, because it may be a retransmission for another receiver.
    /// Gaps may then have begun at any time, until the highest datagram is announced.
    pub fn undated(self) -> Ledger {
        Ledger { high_at: Instant::ZERO, is_dated: false, ..self }
    }

    /// Returns a ledger of the same stream that owes only what follows the highest datagram known.
    pub fn tail(&self, now: Instant) -> Ledger {
        let ledger = Ledger::new(self.states.high, self.count, now, self.ranges_max);
        Ledger { high_at: self.high_at, is_dated: self.is_dated, ..ledger }
    }

    /// Returns the highest datagram known to exist.
    pub fn high(&self) -> Dseq {
        self.states.high
    }

    /// Returns the number of messages begun in all datagrams up to the highest known.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time at which the datagram accepted last was first known to exist. That is its arrival, or the time
    /// at which the gap that it fills was found. Later datagrams may have arrived since, and earlier ones may be
    /// missing.
    pub fn reached(&self) -> Instant {
        self.reached
    }

    /// Returns the time after which the datagram that filled a gap last was sent, less the latency.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Returns the lowest datagram that is not settled. Every datagram below it is delivered, lost or unverified, or is
    /// buffered without a gap before it.
    pub fn frontier(&self) -> Dseq {
        self.gaps.front().map_or(self.states.high.next(), |gap| Dseq(gap.first))
    }

    /// Corrects the send time of the highest datagram, which the publisher sent earlier by `by`.
    pub fn on_older(&mut self, by: Duration) {
        self.high_at = self.high_at - by;
    }

    /// Returns whether datagrams are awaited.
    pub fn is_waiting(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Returns whether there are more pending ranges than allowed. The oldest must then be settled.
    pub fn is_over_limit(&self) -> bool {
        self.ranges_max < self.gaps.len()
    }

    /// Returns the states of all datagrams, which sum to `high - baseline`.
    pub fn states(&self) -> DatagramStates {
        self.states
    }

    /// Returns the number of messages in settled ranges that nothing has explained yet.
    pub fn unexplained(&self) -> u64 {
        self.settled.unexplained()
    }

    /// Adds a received datagram with `messages` begun in it, after `before` in all earlier ones.
    pub fn on_datagram(&mut self, found: &mut GapContext<'_>, dseq: Dseq, before: u64, messages: u64) -> Acceptance {
        let Some(after) = before.checked_add(messages) else { return Acceptance::Contradiction };
        if dseq <= self.states.baseline {
            return Acceptance::BeforeBaseline;
        }
        if self.contradicts_announcements(dseq, before, after) {
            self.retract(self.arrived.0, self.arrived.1);
        }
        if self.states.high < dseq {
            let contiguous = dseq == self.states.high.next();
            if before < self.count || (contiguous && before != self.count) {
                return Acceptance::Contradiction;
            }
            if !contiguous {
                self.open(found, Dseq(dseq.0 - 1), before);
            }
            self.reached = found.arrived;
            self.states.high = dseq;
            self.count = after;
            self.on_proven(dseq, after);
            self.marks.on_accepted(dseq, after);
            if self.is_dated {
                self.high_at = self.high_at.max(found.arrived);
            }
            self.states.delivered += 1;
            return Acceptance::Fresh;
        }
        let at = self.gaps.partition_point(|gap| gap.last < dseq.0);
        if self.gaps.get(at).is_some_and(|gap| gap.first <= dseq.0) {
            return self.fill(found, at, dseq.0, before, after);
        }
        if self.settled.at(dseq).is_none() {
            return Acceptance::Duplicate;
        }
        self.on_proven(dseq, after);
        Acceptance::Late
    }

    /// Records that a datagram exists, with `after` messages begun up to its end. A datagram is stronger evidence than
    /// an announcement.
    fn on_proven(&mut self, dseq: Dseq, after: u64) {
        if self.arrived.0 < dseq {
            self.arrived = (dseq, after);
        }
    }

    /// Handles an announcement that `high` datagrams with `count` messages exist (a heartbeat or a BYE). Returns
    /// whether it agrees with the ledger.
    pub fn on_control(&mut self, found: &mut GapContext<'_>, high: Dseq, count: u64) -> bool {
        if high < self.states.high {
            let is_newer = self.arrived.0 < high && self.arrived.1 <= count || (high, count) == self.arrived;
            if is_newer && self.settled.evicted_to() <= high {
                self.retract(high, count);
                return true;
            }
            // Datagrams above the announced one were sent after the announcement.
            self.is_dated |= count <= self.count;
            return count <= self.count;
        }
        if high == self.states.high {
            if count == self.count {
                self.on_dated(found.arrived);
            }
            return count == self.count;
        }
        if count < self.count {
            return false;
        }
        self.open(found, high, count);
        self.states.high = high;
        self.count = count;
        self.on_dated(found.arrived);
        true
    }

    /// Returns whether an arriving datagram, which agrees with those that arrived before, disproves an earlier
    /// announcement.
    fn contradicts_announcements(&self, dseq: Dseq, before: u64, after: u64) -> bool {
        let fits_arrived = self.arrived.1 <= before && (self.arrived.0.next() < dseq || self.arrived.1 == before);
        if dseq <= self.arrived.0 || self.states.high < dseq || !fits_arrived || dseq <= self.settled.evicted_to() {
            return false;
        }
        if let Some(fits) = self.fits(dseq, before, after - before) {
            return !fits;
        }
        self.settled.at(dseq).is_some_and(|range| range.messages < after - before)
    }

    /// Retracts the announcements of datagrams above `high`, where no datagram arrived. A later control message or a
    /// datagram shows that only `count` messages and `high` datagrams exist. Announced values never shrink, so one of
    /// the control messages was forged. The forgery must not cost datagrams that are still to be sent.
    fn retract(&mut self, high: Dseq, count: u64) {
        while let Some(gap) = self.gaps.back_mut().filter(|gap| high.0 < gap.last) {
            let kept = (high.0 + 1).saturating_sub(gap.first);
            self.states.pending -= gap.datagrams() - kept;
            if kept == 0 {
                self.gaps.pop_back();
                continue;
            }
            (gap.last, gap.after) = (high.0, count.max(gap.before));
            gap.overrun = gap.overrun.min(kept);
        }
        let retracted = self.settled.retract(high, count.saturating_sub(self.arrived.1));
        self.states.unverified -= retracted.unverified + retracted.explained;
        self.states.lost = self.states.lost - retracted.lost + retracted.explained;
        (self.states.high, self.count) = (high, count);
        self.expired_to = self.expired_to.min(high);
    }

    /// Records that the highest datagram was still the highest when the control message was sent.
    fn on_dated(&mut self, arrived: Instant) {
        self.high_at = self.high_at.max(arrived);
        self.is_dated = true;
    }

    fn open(&mut self, found: &mut GapContext<'_>, last: Dseq, after: u64) {
        let first = self.states.high.0 + 1;
        let datagrams = last.0 - self.states.high.0;
        let dropped = datagrams.min(*found.overrun);
        *found.overrun -= dropped;
        self.states.pending += datagrams;
        let request_at = found.nak_scheduler.first(found.now);
        self.request_at = earlier(self.request_at, request_at);
        self.gaps.push_back(DatagramGap {
            first,
            last: last.0,
            before: self.count,
            after,
            since: self.high_at,
            found: found.now,
            deadline: found.deadline,
            overrun: dropped,
            request_at,
            requests: 0,
            requested_at: found.now,
            is_known: false,
        });
    }

    fn fill(&mut self, found: &mut GapContext<'_>, at: usize, dseq: u64, before: u64, after: u64) -> Acceptance {
        let gap = self.gaps[at];
        let fits = gap.before <= before
            && after <= gap.after
            && (gap.first < dseq || gap.before == before)
            && (dseq < gap.last || gap.after == after);
        if !fits {
            return Acceptance::Contradiction;
        }
        self.on_proven(Dseq(dseq), after);
        self.marks.on_accepted(Dseq(dseq), after);
        (self.reached, self.since) = (found.arrived.min(gap.found), gap.since);
        if gap.requests == 1 && dseq == gap.first && !gap.is_known {
            found.nak_scheduler.on_answer(found.now.since(gap.requested_at));
        }
        self.take_out(at, dseq, before, after, gap.overrun);
        // Answers arrive in order. While they arrive, the datagrams that follow are not requested again.
        if let Some(upper) = self.gaps.get_mut(at + usize::from(gap.first < dseq))
            && upper.first == dseq + 1
            && 0 < upper.requests
            && upper.request_at.is_some()
        {
            upper.request_at = upper.request_at.max(found.nak_scheduler.retry_at(found.now, 1));
        }
        self.states.delivered += 1;
        if gap.requests == 0 && !found.nak_scheduler.is_repaired(gap.found, found.now) {
            return Acceptance::Filled;
        }
        self.states.repaired += 1;
        Acceptance::Repaired
    }

    /// Removes one datagram from a gap; the rest of the gap stays in one or two parts. At most `overrun` datagrams of
    /// both parts together count as dropped by the kernel.
    fn take_out(&mut self, at: usize, dseq: u64, before: u64, after: u64, overrun: u64) {
        let gap = self.gaps[at];
        let below = overrun.min(dseq - gap.first);
        let lower = DatagramGap { last: dseq - 1, after: before, overrun: below, ..gap };
        let upper =
            DatagramGap { first: dseq + 1, before: after, overrun: (overrun - below).min(gap.last - dseq), ..gap };
        self.gaps.remove(at);
        if dseq < gap.last {
            self.gaps.insert(at, upper);
        }
        if gap.first < dseq {
            self.gaps.insert(at, lower);
        }
        self.states.pending -= 1;
    }

    /// Returns whether the content of this pending datagram, with `messages` begun in it after `before`, agrees with
    /// its neighbours. Returns `None` if it is not pending.
    pub fn fits(&self, dseq: Dseq, before: u64, messages: u64) -> Option<bool> {
        let after = before.checked_add(messages)?;
        let gap = self.gaps.get(self.gap_of(dseq)?)?;
        Some(
            gap.before <= before
                && after <= gap.after
                && (gap.first < dseq.0 || gap.before == before)
                && (dseq.0 < gap.last || gap.after == after),
        )
    }

    /// Returns the time at which a pending datagram was found missing; `None` if it is not pending.
    pub fn found(&self, dseq: Dseq) -> Option<Instant> {
        Some(self.gaps.get(self.gap_of(dseq)?)?.found)
    }

    /// Returns whether this datagram is missing and still awaited.
    pub fn is_pending(&self, dseq: Dseq) -> bool {
        self.gap_of(dseq).is_some()
    }

    fn gap_of(&self, dseq: Dseq) -> Option<usize> {
        let at = self.gaps.partition_point(|gap| gap.last < dseq.0);
        self.gaps.get(at).is_some_and(|gap| gap.first <= dseq.0).then_some(at)
    }

    /// Records that the content of a pending datagram is known. It stays pending, as a gap of its own, and is not
    /// requested again.
    pub fn on_content_known(&mut self, dseq: Dseq, before: u64, messages: u64) {
        let Some(at) = self.gap_of(dseq) else { return };
        self.on_proven(dseq, before + messages);
        let gap = self.gaps[at];
        let overrun = gap.overrun.min(1);
        self.take_out(at, dseq.0, before, before + messages, gap.overrun - overrun);
        let known = DatagramGap {
            first: dseq.0,
            last: dseq.0,
            before,
            after: before + messages,
            overrun,
            request_at: None,
            is_known: true,
            ..gap
        };
        self.gaps.insert(at + usize::from(gap.first < dseq.0), known);
        self.states.pending += 1;
    }

    /// Records that the publisher can retransmit nothing up to `last` any more, because it evicts the oldest first. A
    /// gap among these datagrams is settled as soon as everything before it is.
    pub fn on_expired(&mut self, last: Dseq) {
        self.expired_to = self.expired_to.max(last.min(self.states.high));
    }

    fn is_expired(&self, gap: &DatagramGap) -> bool {
        !gap.is_known && gap.last <= self.expired_to.0
    }

    /// Returns the datagram of the oldest gap if its content is known.
    pub fn known_first(&self) -> Option<Dseq> {
        self.gaps.front().filter(|gap| gap.is_known).map(|gap| Dseq(gap.first))
    }

    /// Returns the earliest time of the next request to the publisher.
    pub fn request_deadline(&self) -> Option<Instant> {
        self.request_at.map(|at| at.max(self.request_after))
    }

    /// Calls `request` with every range that is due for a request, until `request` has no space left.
    pub fn send_due_requests(
        &mut self,
        now: Instant,
        nak_scheduler: &mut NakScheduler,
        mut request: impl FnMut(Dseq, Dseq) -> bool,
    ) {
        if self.request_deadline().is_none_or(|at| now < at) {
            return;
        }
        self.request_at = None;
        let mut has_room = true;
        for gap in &mut self.gaps {
            let first = gap.first.max(self.expired_to.0 + 1);
            if gap.last < first {
                gap.request_at = None;
            }
            if has_room && gap.request_at.is_some_and(|at| at <= now) {
                has_room = request(Dseq(first), Dseq(gap.last));
                if has_room {
                    self.request_after = now + REQUEST_SPACING;
                    gap.requests += 1;
                    gap.requested_at = now;
                    gap.request_at = nak_scheduler.retry_at(now, gap.requests);
                }
            }
            self.request_at = earlier(self.request_at, gap.request_at);
        }
    }

    /// Ends all requests, because no more retransmissions arrive. Missing datagrams are settled at `deadline` at the
    /// latest.
    pub fn expedite(&mut self, deadline: Instant) {
        for gap in &mut self.gaps {
            gap.deadline = gap.deadline.min(deadline);
            gap.request_at = None;
        }
    }

    /// Resumes requests because the publisher is alive after all. Missing datagrams are awaited until `deadline`.
    pub fn resume(&mut self, now: Instant, deadline: Instant, nak_scheduler: &mut NakScheduler) {
        for gap in &mut self.gaps {
            gap.deadline = gap.deadline.max(deadline);
            if gap.request_at.is_none() && !gap.is_known {
                gap.request_at = nak_scheduler.first(now);
                self.request_at = earlier(self.request_at, gap.request_at);
            }
        }
    }

    /// Extends the deadlines of earlier gaps by the time during which the publisher was not heard, which does not count
    /// (A1).
    pub fn postpone(&mut self, now: Instant, by: Duration) {
        for gap in self.gaps.iter_mut().filter(|gap| gap.found < now) {
            gap.deadline = gap.deadline + by;
        }
    }

    /// Marks a received datagram as buffered: some of its messages wait in the reorder buffer.
    pub fn buffer(&mut self) {
        self.states.delivered -= 1;
        self.states.buffered += 1;
    }

    /// Marks a buffered datagram as delivered: its last message has left the reorder buffer.
    pub fn release(&mut self) {
        self.states.buffered -= 1;
        self.states.delivered += 1;
    }

    /// Marks a delivered, perhaps repaired, datagram as lost: a wanted part of it is lost, and its content is known.
    pub fn mark_lost(&mut self, was_repaired: bool) {
        self.states.delivered -= 1;
        self.states.repaired -= u64::from(was_repaired);
        self.states.lost += 1;
    }

    /// Returns the time at which the next gap is settled.
    pub fn deadline(&self) -> Option<Instant> {
        self.gaps.front().map(|gap| if self.is_expired(gap) { gap.found } else { gap.deadline })
    }

    /// Returns whether the oldest gap must be settled, if gaps with a deadline up to `to` are due.
    pub fn is_due(&self, to: Instant) -> bool {
        self.gaps.front().is_some_and(|gap| self.is_expired(gap) || gap.deadline <= to)
    }

    /// Gives up the oldest gap, for `reason` or because the publisher no longer has it.
    pub fn settle_first(&mut self, reason: Reason) -> Option<SettledRange> {
        // Rule: gap
        let is_expired = self.is_expired(self.gaps.front()?);
        self.settle_oldest(if is_expired { Reason::Expired } else { reason })
    }

    /// Gives up the oldest gap, whatever its deadline.
    pub fn settle_oldest(&mut self, reason: Reason) -> Option<SettledRange> {
        let gap = self.gaps.pop_front()?;
        let datagrams = gap.datagrams();
        let range = SettledRange {
            first: Dseq(gap.first),
            last: Dseq(gap.last),
            messages: gap.messages(),
            unexplained: gap.messages(),
            since: gap.since,
            overrun: gap.overrun,
            reason,
            is_content: false,
        };
        self.states.pending -= datagrams;
        if range.unexplained == 0 {
            self.states.lost += datagrams;
        } else {
            self.states.unverified += datagrams;
        }
        self.settled.push(range);
        Some(range)
    }

    /// Returns the number of unexplained messages of a range just settled, even if the limit has already evicted the
    /// range.
    pub fn unexplained_in(&self, settled: &SettledRange) -> Count {
        self.settled.unexplained_in(settled)
    }

    /// Returns the messages missing between two datagrams that arrived; `recent` divides old from recent.
    pub fn unexplained_between(&self, after: Dseq, before: Dseq, recent: Instant) -> UnexplainedMessages {
        self.settled.unexplained_between(after, before, recent)
    }

    /// Returns the settled ranges between two datagrams that arrived, each by its last datagram.
    pub fn missing_between(&self, after: Dseq, before: Dseq) -> Vec<(Dseq, MissingDatagrams)> {
        self.settled.missing_between(after, before)
    }

    /// Explains `messages` of the settled ranges between two datagrams that arrived (R12). Returns false if the ranges
    /// hold fewer: the numbers of the subject and the counts of the datagrams then disagree.
    pub fn explain(&mut self, after: Dseq, before: Dseq, messages: u64) -> bool {
        let explained = self.settled.explain(after, before, messages);
        self.states.unverified -= explained.datagrams;
        self.states.lost += explained.datagrams;
        explained.agrees
    }

    /// Returns this pending datagram as a missing one.
    pub fn missing_at(&self, dseq: Dseq) -> MissingDatagrams {
        let overrun = self.gap_of(dseq).map_or(0, |at| self.gaps[at].overrun.min(1));
        MissingDatagrams { datagrams: 1, overrun }
    }

    /// Returns whether the invariants hold that are checked in constant time. They hold after every change.
    #[inline]
    pub fn is_intact(&self) -> bool {
        let s = &self.states;
        let sum = s.delivered + s.buffered + s.pending + s.lost + s.unverified;
        s.high.0 - s.baseline.0 == sum
            && (s.pending == 0) == self.gaps.is_empty()
            && self.arrived.0 <= s.high
            && self.arrived.1 <= self.count
            && self.gaps.back().is_none_or(|gap| gap.first <= gap.last && gap.last <= s.high.0)
            && self.gaps.front().is_none_or(|gap| s.baseline.0 < gap.first)
    }

    /// Describes the state for the message of a failed check.
    #[cold]
    pub fn summary(&self) -> String {
        format!(
            "{:?}, arrived {:?}, count {}, {} gaps from {:?} to {:?}",
            self.states,
            self.arrived,
            self.count,
            self.gaps.len(),
            self.gaps.front(),
            self.gaps.back()
        )
    }

    /// Asserts that every datagram from the baseline to the highest known is in exactly one state.
    pub fn assert_invariants(&self) {
        let s = &self.states;
        self.settled.assert_invariants();
        assert_eq!(s.high.0 - s.baseline.0, s.delivered + s.buffered + s.pending + s.lost + s.unverified, "{s:?}");
        assert_eq!(s.pending, self.gaps.iter().map(DatagramGap::datagrams).sum::<u64>());
        assert!(self.arrived.0 <= s.high && self.arrived.1 <= self.count);
    }
}

#[cfg(test)]
impl Ledger {
    /// Breaks the sum of the states.
    pub fn break_states(&mut self) {
        self.states.delivered += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Cause;
    use crate::rng::Rng;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// Calls `with` with the context of a gap found at `now`, with `overrun` kernel drops. The deadline is 100 ns
    /// later.
    fn found<T>(now: u64, overrun: &mut u64, with: impl FnOnce(&mut GapContext<'_>) -> T) -> T {
        let nak_scheduler = &mut NakScheduler::new(Duration::from_nanos(10), true, Rng::new(now));
        with(&mut GapContext { now: at(now), arrived: at(now), deadline: at(now + 100), nak_scheduler, overrun })
    }

    fn arrive(ledger: &mut Ledger, dseq: u64, before: u64, messages: u64) -> Acceptance {
        found(0, &mut 0, |found| ledger.on_datagram(found, Dseq(dseq), before, messages))
    }

    fn announce(ledger: &mut Ledger, high: u64, count: u64) -> bool {
        found(1, &mut 0, |found| ledger.on_control(found, Dseq(high), count))
    }

    fn settle_due(ledger: &mut Ledger, now: u64) -> Option<SettledRange> {
        if ledger.deadline()? <= at(now) { ledger.settle_first(Reason::Deadline) } else { None }
    }

    /// Proves: W75, W78, W86
    #[test]
    fn gap_is_settled_with_its_exact_message_count() {
        let mut ledger = Ledger::new(Dseq(0), 0, at(0), 8);
        assert_eq!(arrive(&mut ledger, 1, 0, 2), Acceptance::Fresh);
        assert_eq!(arrive(&mut ledger, 5, 9, 1), Acceptance::Fresh);
        assert_eq!(ledger.frontier(), Dseq(2));
        assert_eq!(arrive(&mut ledger, 3, 4, 1), Acceptance::Filled);
        assert_eq!(arrive(&mut ledger, 3, 4, 1), Acceptance::Duplicate);
        assert_eq!(settle_due(&mut ledger, 99), None);
        let low = settle_due(&mut ledger, 100).unwrap();
        assert_eq!((low.first, low.last, low.unexplained), (Dseq(2), Dseq(2), 2));
        let high = settle_due(&mut ledger, 100).unwrap();
        assert_eq!((high.first, high.last, high.unexplained), (Dseq(4), Dseq(4), 4));
        assert_eq!(settle_due(&mut ledger, 100), None);
        assert_eq!(arrive(&mut ledger, 2, 2, 2), Acceptance::Late);
        assert_eq!(ledger.unexplained(), 6);
        ledger.assert_invariants();
        assert!(ledger.explain(Dseq(1), Dseq(3), 2));
        assert_eq!((ledger.states().lost, ledger.states().unverified), (1, 1));
        assert!(!ledger.explain(Dseq(1), Dseq(3), 1), "no message is left to explain there");
        ledger.assert_invariants();
    }

    /// Proves: W64, W75
    #[test]
    fn announced_tail_opens_gap_and_contradictions_are_refused() {
        let mut ledger = Ledger::new(Dseq(4), 10, at(0), 8);
        assert_eq!(arrive(&mut ledger, 4, 9, 1), Acceptance::BeforeBaseline);
        assert_eq!(arrive(&mut ledger, 5, 11, 1), Acceptance::Contradiction);
        assert_eq!(arrive(&mut ledger, 6, 9, 1), Acceptance::Contradiction);
        assert_eq!(arrive(&mut ledger, 6, u64::MAX, 1), Acceptance::Contradiction);
        assert!(announce(&mut ledger, 7, 15));
        assert!(!announce(&mut ledger, 7, 16));
        assert!(!announce(&mut ledger, 8, 14));
        assert_eq!(arrive(&mut ledger, 5, 11, 1), Acceptance::Contradiction, "the gap begins at 10 messages");
        assert_eq!(arrive(&mut ledger, 7, 13, 2), Acceptance::Filled);
        assert_eq!(arrive(&mut ledger, 6, 12, 4), Acceptance::Contradiction, "more than the gap holds");
        assert_eq!(ledger.states().pending, 2);
        ledger.assert_invariants();
    }

    #[test]
    fn inconsistent_state_is_detected_and_described() {
        let mut ledger = Ledger::new(Dseq(4), 10, at(0), 8);
        assert_eq!(arrive(&mut ledger, 5, 10, 1), Acceptance::Fresh);
        assert!(ledger.is_intact());
        ledger.break_states();
        assert!(!ledger.is_intact(), "one datagram too many");
        let text = ledger.summary();
        assert!(text.contains("delivered: 2") && text.contains("count 11"), "{text}");
    }

    /// Proves: W65
    #[test]
    fn datagram_revokes_claims_of_announcements_alone() {
        for is_settled in [false, true] {
            let mut ledger = Ledger::new(Dseq(4), 10, at(0), 8);
            assert!(announce(&mut ledger, 30, 10));
            if is_settled {
                settle_due(&mut ledger, 200).expect("the announcement opened a gap");
            }
            assert_eq!(
                arrive(&mut ledger, 6, 11, 2),
                Acceptance::Fresh,
                "the datagram has messages, the announcement had none"
            );
            assert_eq!((ledger.high(), ledger.count(), ledger.states().pending), (Dseq(6), 13, 1));
            ledger.assert_invariants();
        }
    }

    /// Proves: W65
    #[test]
    fn later_announcement_revokes_claims_of_earlier_one() {
        let mut ledger = Ledger::new(Dseq(4), 10, at(0), 8);
        assert_eq!(arrive(&mut ledger, 5, 10, 1), Acceptance::Fresh);
        assert!(announce(&mut ledger, 9, 20));
        settle_due(&mut ledger, 200).expect("the announcement opened a gap");
        assert!(announce(&mut ledger, 40, 60));
        assert!(announce(&mut ledger, 7, 13));
        assert_eq!((ledger.high(), ledger.count()), (Dseq(7), 13));
        assert_eq!((ledger.states().pending, ledger.states().unverified), (0, 2));
        ledger.assert_invariants();
        assert_eq!(arrive(&mut ledger, 8, 13, 1), Acceptance::Fresh);
        assert!(announce(&mut ledger, 7, 13), "arrived datagrams are not retracted");
        assert_eq!(ledger.high(), Dseq(8));
        ledger.assert_invariants();
    }

    #[test]
    fn kernel_drops_explain_gaps_up_to_their_number() {
        let mut ledger = Ledger::new(Dseq(0), 0, at(0), 8);
        let mut overrun = 3;
        found(0, &mut overrun, |found| ledger.on_datagram(found, Dseq(3), 2, 1));
        assert_eq!(overrun, 1);
        found(0, &mut overrun, |found| ledger.on_datagram(found, Dseq(6), 5, 1));
        assert_eq!(overrun, 0);
        let causes: Vec<Cause> =
            std::iter::from_fn(|| ledger.settle_oldest(Reason::Disabled)).map(|r| r.missing().cause()).collect();
        assert_eq!(causes, [Cause::LocalOverrun { datagrams: 2 }, Cause::Mixed { overrun: 1, network: 1 }]);
    }

    #[test]
    fn ambiguous_loss_is_resolved_by_a_complete_explanation() {
        let mut ledger = Ledger::new(Dseq(0), 0, at(0), 8);
        for dseq in [1, 3, 5] {
            arrive(&mut ledger, dseq, dseq - 1, 1);
        }
        while ledger.settle_oldest(Reason::Disabled).is_some() {}
        assert!(ledger.explain(Dseq(1), Dseq(5), 1), "the message was in 2 or in 4");
        assert_eq!((ledger.unexplained(), ledger.states().unverified), (1, 2));
        assert!(ledger.explain(Dseq(3), Dseq(5), 1));
        assert_eq!((ledger.unexplained(), ledger.states().unverified, ledger.states().lost), (0, 0, 2));
        assert!(!ledger.explain(Dseq(1), Dseq(3), 1));
        ledger.assert_invariants();
    }

    #[test]
    fn gaps_are_undated_until_the_highest_is_announced() {
        let first = Ledger::new(Dseq(0), 0, at(7), 8).undated();
        let mut ledger = first.tail(at(8));
        arrive(&mut ledger, 2, 1, 1);
        arrive(&mut ledger, 4, 3, 1);
        assert!(announce(&mut ledger, 4, 4));
        found(9, &mut 0, |found| ledger.on_datagram(found, Dseq(6), 5, 1));
        let since: Vec<Instant> =
            std::iter::from_fn(|| ledger.settle_oldest(Reason::Disabled)).map(|range| range.since).collect();
        assert_eq!(since, [at(0), at(0), at(1)]);
    }

    /// Proves: W79, overflow
    #[test]
    fn ranges_beyond_limit_are_dropped_but_stay_counted() {
        let mut ledger = Ledger::new(Dseq(0), 0, at(0), 2);
        for dseq in [2, 4, 6, 8] {
            arrive(&mut ledger, dseq, dseq - 1, 1);
        }
        assert!(ledger.is_over_limit());
        while ledger.settle_oldest(Reason::Overflow).is_some() {}
        assert_eq!(ledger.unexplained(), 4);
        assert_eq!(ledger.unexplained_between(Dseq(0), Dseq(8), at(0)).messages, 4);
        assert!(ledger.explain(Dseq(0), Dseq(8), 3));
        assert_eq!(ledger.unexplained(), 1);
        assert!(ledger.explain(Dseq(6), Dseq(8), 1));
        assert_eq!(ledger.unexplained(), 0);
        ledger.assert_invariants();
    }

    #[test]
    fn ranges_are_requested_until_they_arrive_as_repaired() {
        let mut ledger = Ledger::new(Dseq(0), 0, at(0), 8);
        arrive(&mut ledger, 5, 4, 1);
        let nak_scheduler = &mut NakScheduler::new(Duration::from_nanos(10), true, Rng::new(1));
        let mut requested = |ledger: &mut Ledger, now: Instant, room: usize| {
            let mut ranges = Vec::new();
            ledger.send_due_requests(now, nak_scheduler, |first, last| {
                let has_room = ranges.len() < room;
                if has_room {
                    ranges.push((first.0, last.0));
                }
                has_room
            });
            ranges
        };
        assert_eq!(ledger.request_deadline(), Some(at(10)));
        assert_eq!(requested(&mut ledger, at(9), 9), []);
        assert_eq!(arrive(&mut ledger, 2, 1, 1), Acceptance::Filled, "the datagram was only late");
        assert_eq!(requested(&mut ledger, at(10), 1), [(1, 1)], "a request has room for one range");
        let next = at(10) + REQUEST_SPACING;
        assert_eq!(ledger.request_deadline(), Some(next));
        assert_eq!(requested(&mut ledger, at(11), 9), [], "ranges that become due meanwhile go with the next request");
        assert_eq!(requested(&mut ledger, next, 9), [(3, 4)]);
        assert_eq!(requested(&mut ledger, next, 9), []);
        assert_eq!(arrive(&mut ledger, 3, 2, 1), Acceptance::Repaired);
        assert_eq!(ledger.states().repaired, 1);
        let retry_at = ledger.request_deadline().unwrap();
        assert_eq!(requested(&mut ledger, retry_at + Duration::from_millis(10), 9), [(1, 1), (4, 4)]);
        let missing = |states: DatagramStates| states.repaired + states.pending + states.lost + states.unverified;
        let before = missing(ledger.states());
        ledger.mark_lost(true);
        assert_eq!(
            (ledger.states().lost, missing(ledger.states())),
            (1, before),
            "a part of the repaired datagram is lost"
        );
        ledger.assert_invariants();
    }

    /// Proves: W107, W122
    #[test]
    fn known_datagrams_are_not_requested_and_expired_settle() {
        let mut ledger = Ledger::new(Dseq(0), 0, at(0), 8);
        arrive(&mut ledger, 6, 5, 1);
        assert_eq!(
            (ledger.fits(Dseq(4), 3, 1), ledger.fits(Dseq(4), 3, 3), ledger.fits(Dseq(6), 5, 1)),
            (Some(true), Some(false), None)
        );
        ledger.on_content_known(Dseq(4), 3, 1);
        ledger.assert_invariants();
        ledger.on_expired(Dseq(3));
        let nak_scheduler = &mut NakScheduler::new(Duration::from_nanos(10), true, Rng::new(1));
        let mut ranges = Vec::new();
        ledger.send_due_requests(at(50), nak_scheduler, |first, last| {
            ranges.push((first.0, last.0));
            true
        });
        assert_eq!(ranges, [(5, 5)]);
        assert_eq!(ledger.known_first(), None);
        let gone = settle_due(&mut ledger, 1).unwrap();
        assert_eq!((gone.first, gone.last, gone.reason, gone.unexplained), (Dseq(1), Dseq(3), Reason::Expired, 3));
        assert_eq!(ledger.known_first(), Some(Dseq(4)));
        ledger.postpone(at(60), Duration::from_nanos(30));
        assert_eq!(ledger.deadline(), Some(at(130)), "the publisher was silent for 30 ns");
        assert_eq!(arrive(&mut ledger, 4, 3, 1), Acceptance::Filled);
        ledger.mark_lost(false);
        assert_eq!(settle_due(&mut ledger, 129), None);
        assert_eq!(settle_due(&mut ledger, 130).unwrap().reason, Reason::Deadline);
        let states = ledger.states();
        assert_eq!((states.delivered, states.lost, states.unverified, states.pending), (1, 1, 4, 0));
        ledger.assert_invariants();
    }

    /// Compares with a trivially correct model: one state for each datagram in a plain vector.
    /// Proves: W74, number
    #[test]
    fn random_ledgers_agree_with_a_plain_state_list() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let messages: Vec<u64> = (0..200).map(|_| rng.below(3)).collect();
            let mut sum = 0;
            let add = |count: &u64| {
                sum += count;
                sum - count
            };
            let before: Vec<u64> = messages.iter().map(add).collect();
            let mut ledger = Ledger::new(Dseq(0), 0, at(0), 1000);
            let mut model = vec!['-'; 201];
            let mut high = 0;
            for now in 0..400 {
                let dseq = rng.between(1, 200.min(high + 4));
                let expected = match model[dseq as usize] {
                    '-' if high < dseq => Acceptance::Fresh,
                    'p' => Acceptance::Filled,
                    'd' => Acceptance::Duplicate,
                    _ => Acceptance::Late,
                };
                let counts = (before[dseq as usize - 1], messages[dseq as usize - 1]);
                let got = found(now, &mut 0, |found| ledger.on_datagram(found, Dseq(dseq), counts.0, counts.1));
                let got = if got == Acceptance::Repaired { Acceptance::Filled } else { got };
                assert_eq!(got, expected, "seed {seed} dseq {dseq}");
                for skipped in high + 1..dseq {
                    model[skipped as usize] = 'p';
                }
                if matches!(expected, Acceptance::Fresh | Acceptance::Filled) {
                    model[dseq as usize] = 'd';
                }
                high = high.max(dseq);
                while let Some(range) = settle_due(&mut ledger, now) {
                    let real: u64 = (range.first.0..=range.last.0).map(|d| messages[d as usize - 1]).sum();
                    assert_eq!(range.unexplained, real, "seed {seed}");
                    for settled in range.first.0..=range.last.0 {
                        assert_eq!(model[settled as usize], 'p', "seed {seed}");
                        model[settled as usize] = 's';
                    }
                }
                let count = |state| model.iter().filter(|s| **s == state).count() as u64;
                let states = ledger.states();
                assert_eq!((states.delivered, states.pending), (count('d'), count('p')), "seed {seed}");
                assert_eq!(states.lost + states.unverified, count('s'), "seed {seed}");
                ledger.assert_invariants();
            }
        }
    }
}
