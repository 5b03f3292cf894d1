//! Receiving side of one datagram stream: which messages are delivered, in what order, and which losses are reported
//! before them.
//!
//! A message is released at once if its number directly follows the last one of its subject. Otherwise it waits until
//! every gap before its datagram is settled (A3). Decisions leave as [`StreamOutcome`]s.

mod disposition;
mod forgery;
mod outcome;
mod proven_loss;
mod reorder_buffer;
mod repair;
#[cfg(test)]
mod tests;

pub use outcome::{ReceiveContext, RunLookup, StreamOutcome};

use crate::message::{Count, Dseq, Reason};
use crate::proto::fragment::{AbandonedMessage, FragmentOutcome, Reassembly};
use crate::proto::ledger::{Acceptance, GapContext, Ledger, SettledRange};
use crate::proto::mutant::Mutant;
use crate::proto::nak::NakScheduler;
use crate::proto::rebuild::{Rebuild, Rebuilds};
use crate::proto::stream_item::{Arrival, ItemRef, StreamItem};
use crate::time::Instant;
use crate::wire::{Fragment, Record};
use disposition::{Disposition, push_delivery};
use reorder_buffer::{Position, ReorderBuffer};
use std::collections::BTreeMap;
use std::time::Duration;

/// End of the inbox subject for history requests.
pub const HISTORY: &str = "HISTORY";
/// Middle of the inbox subjects for answers; the number of the request follows.
pub const ANSWERS: &str = "H.";

/// Kind of a datagram stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The publisher's multicast stream. `birth` is the publisher's start, less the margin of R4, if this peer listened
    /// before that. Everything from the first datagram is then owed.
    Bcast {
        /// Earliest possible start time of the publisher.
        birth: Option<Instant>,
    },
    /// The publisher's directed stream to this peer. All messages are for this peer and have no numbers of their own.
    Ptp,
}

/// Receiving side of one stream.
#[derive(Clone, Debug)]
pub struct RecvStream {
    kind: StreamKind,
    ledger: Ledger,
    nak_scheduler: NakScheduler,
    reorder_buffer: ReorderBuffer,
    reassembly: Reassembly,
    rebuilds: Rebuilds,
    /// Datagrams rebuilt from manifests that lost a wanted message, kept while any of their messages is buffered. The
    /// flag is true if the datagram counts as repaired until then.
    partially_lost: BTreeMap<Dseq, bool>,
    /// Scratch buffer of lookups for a datagram's records; empty between calls, and keeps its capacity.
    lookup: Vec<Option<RunLookup>>,
    /// True if an entry of this publisher may have been evicted from the subscription window, so that "first" proves
    /// nothing.
    evicted: bool,
    /// Time at which numbers were last found to be forged. Earlier per-subject state proves nothing.
    corrected: Option<Instant>,
}

impl RecvStream {
    /// Creates a stream that is owed everything after the ledger's baseline.
    pub fn new(kind: StreamKind, ledger: Ledger, nak_scheduler: NakScheduler, reassembly: Reassembly) -> RecvStream {
        RecvStream {
            kind,
            ledger,
            nak_scheduler,
            reorder_buffer: ReorderBuffer::default(),
            reassembly,
            rebuilds: Rebuilds::default(),
            partially_lost: BTreeMap::new(),
            lookup: Vec::new(),
            evicted: false,
            corrected: None,
        }
    }

    /// Returns the ledger of datagram numbers.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the earliest start time of the publisher, if the stream is owed from its first datagram.
    pub fn birth(&self) -> Option<Instant> {
        match self.kind {
            StreamKind::Bcast { birth } => birth,
            StreamKind::Ptp => None,
        }
    }

    /// Corrects the send time of the datagrams so far, which were in flight longer by `by`.
    pub fn on_older(&mut self, by: Duration) {
        self.ledger.on_older(by);
    }

    /// Returns the bytes of messages that wait for an earlier datagram, or for the rest of their own.
    pub fn buffered_bytes(&self) -> usize {
        self.reorder_buffer.bytes() + self.rebuilds.bytes()
    }

    /// Records that an entry of this publisher was evicted from the subscription window.
    pub fn on_evicted(&mut self) {
        self.evicted = true;
    }

    /// Handles a datagram that arrived, with `before` messages begun in all earlier ones.
    pub fn on_datagram(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        dseq: Dseq,
        before: u64,
        mut records: Vec<Record>,
        out: &mut Vec<StreamOutcome>,
    ) -> Acceptance {
        let messages = records.iter().map(Record::messages_begun).sum();
        let mut accept = self.ledger.on_datagram(&mut found(&mut self.nak_scheduler, ctx), dseq, before, messages);
        if accept == Acceptance::Contradiction && self.is_corrected(ctx, dseq, before, messages, out) {
            accept = self.ledger.on_datagram(&mut found(&mut self.nak_scheduler, ctx), dseq, before, messages);
        }
        match accept {
            Acceptance::Duplicate if ctx.mutants.is(Mutant::DeliverDuplicates) => accept = Acceptance::Filled,
            Acceptance::Late if ctx.mutants.is(Mutant::DeliverLate) => accept = Acceptance::Filled,
            Acceptance::Fresh | Acceptance::Filled | Acceptance::Repaired => {}
            _ => {
                ctx.lists.put_records(records);
                return accept;
            }
        }
        let rebuild = self.rebuilds.remove(dseq);
        let arrival = Arrival { reached: self.ledger.reached(), repaired: accept == Acceptance::Repaired };
        ctx.losses.messages_in += messages;
        ctx.losses.datagrams_in += 1;
        let direct = accept == Acceptance::Fresh && !self.ledger.is_waiting() && self.reorder_buffer.is_empty()
            || accept == Acceptance::Repaired && ctx.mutants.is(Mutant::RepairedFirst);
        let mut lookup = std::mem::take(&mut self.lookup);
        if self.kind != StreamKind::Ptp && 1 < records.len() {
            lookup.extend(records.iter().map(|record| look_up(ctx, record)));
        }
        let is_in_order = direct && self.kind != StreamKind::Ptp && !arrival.repaired;
        if is_in_order && ctx.permits_all && is_batch(&records, &lookup) {
            self.on_runs(ctx, dseq, arrival, records, &mut lookup, out);
        } else {
            for (index, record) in records.drain(..).enumerate() {
                ctx.lookup = lookup.get_mut(index).and_then(Option::take);
                let at = (dseq, index as u32 + 1);
                match record {
                    Record::Run(run) => self.release_or_buffer(ctx, at, arrival, StreamItem::Run(run), direct, out),
                    Record::Fragment(fragment) => self.on_fragment(ctx, at, arrival, fragment, direct, out),
                    _ => {}
                }
            }
            ctx.lists.put_records(records);
        }
        ctx.lookup = None;
        lookup.clear();
        self.lookup = lookup;
        if let Some(fetched) = rebuild.as_ref().and_then(Rebuild::whole) {
            // The fetched message arrived just before.
            self.on_large_fetched(ctx, dseq, fetched.clone(), out);
        }
        if ctx.mutants.is(Mutant::SettleAtOnce) {
            while let Some(range) = self.ledger.settle_oldest(ctx.reason) {
                out.push(StreamOutcome::Unverified { range, messages: Count::Exact(range.unexplained) });
            }
        }
        self.abandon_incomplete(ctx, out);
        if accept != Acceptance::Fresh || !self.ledger.is_waiting() {
            self.release(ctx, out);
        }
        self.complete_ready(ctx, out);
        while self.ledger.is_over_limit() {
            self.overflow(ctx, out);
        }
        accept
    }

    /// Adds a fragment of a large message, and releases the message if it is complete.
    fn on_fragment(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        (dseq, index): Position,
        arrival: Arrival,
        fragment: Fragment,
        direct: bool,
        out: &mut Vec<StreamOutcome>,
    ) {
        // A message that began before the baseline is not owed.
        if dseq.0 <= self.ledger.states().baseline.0 + u64::from(fragment.index) {
            return;
        }
        let is_head = fragment.index == 0;
        let first = Dseq(dseq.0 - u64::from(fragment.index));
        // The complete message came from the history and waits for the datagram in which it begins.
        if !is_head && self.rebuilds.has_fetched(first) {
            return;
        }
        // The last fragment is the first record of its datagram; the first fragment is the last record.
        let is_settled = dseq < self.ledger.frontier() && self.reorder_buffer.is_empty();
        let mut is_abandoned = false;
        match self.reassembly.on_fragment(dseq, arrival.reached, arrival.repaired, fragment) {
            FragmentOutcome::Incomplete if is_head => self.rebuilds.on_head(dseq),
            FragmentOutcome::Incomplete => is_abandoned = is_settled && self.abandon_below(dseq),
            FragmentOutcome::Abandoned if is_head => self.reorder_buffer.on_late_first_fragment(dseq),
            FragmentOutcome::Abandoned => {}
            FragmentOutcome::Complete(whole) => {
                self.rebuilds.drop_large(first);
                let at = (whole.dseq, if whole.dseq == dseq { index } else { 0 });
                let arrival = Arrival { reached: whole.reached, repaired: whole.repaired };
                self.release_or_buffer(
                    ctx,
                    at,
                    arrival,
                    StreamItem::ReassembledMessage(Box::new(whole)),
                    direct && at.0 == dseq,
                    out,
                );
            }
            FragmentOutcome::Contradiction(abandoned) => {
                ctx.counters.discard_contradiction += 1;
                if let Some(abandoned) = abandoned {
                    self.buffer_abandoned(abandoned);
                    is_abandoned = is_settled;
                }
            }
        }
        // The loss is reported before the later messages of this datagram are delivered.
        if is_abandoned {
            self.release(ctx, out);
        }
    }

    /// Releases an item, or buffers it.
    fn release_or_buffer(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        at: Position,
        arrival: Arrival,
        item: StreamItem,
        direct: bool,
        out: &mut Vec<StreamOutcome>,
    ) {
        let settled = direct || at.0 < self.ledger.frontier() && self.reorder_buffer.is_empty();
        let settled = settled || ctx.mutants.is(Mutant::ReleaseEarly);
        let followers = self.reorder_buffer.followers_of(&item);
        match self.judge(ctx, ItemRef { dseq: at.0, arrival, item: &item }, settled, out) {
            Disposition::Wait => self.buffer(at, arrival, item),
            disposition => {
                push_delivery(self.kind, item, arrival, disposition, out);
                self.reorder_buffer.on_item_removed(followers);
            }
        }
    }

    fn buffer(&mut self, at: Position, arrival: Arrival, item: StreamItem) {
        if !self.reorder_buffer.has(at.0) {
            self.ledger.buffer();
        }
        self.reorder_buffer.insert(at, arrival, item);
    }

    fn buffer_abandoned(&mut self, abandoned: AbandonedMessage) {
        self.rebuilds.drop_large(abandoned.first);
        let index = if abandoned.at_end { u32::MAX } else { 0 };
        let at = (abandoned.dseq, index);
        let arrival = Arrival { reached: abandoned.reached, repaired: false };
        self.buffer(at, arrival, StreamItem::AbandonedMessage(Box::new(abandoned)));
        self.reorder_buffer.judge_again(at);
    }

    /// Gives up large messages that lack a settled datagram, or that exceed a limit.
    fn abandon_incomplete(&mut self, ctx: &mut ReceiveContext<'_>, out: &mut Vec<StreamOutcome>) {
        let mut any = self.abandon_below(self.ledger.frontier());
        while let Some(abandoned) = self.reassembly.take_abandoned_by_limit() {
            ctx.counters.overflow_reassembly += 1;
            self.buffer_abandoned(abandoned);
            any = true;
        }
        if any {
            self.release(ctx, out);
        }
    }

    /// Gives up each large message that lacks a datagram below `settled` and is not requested from the history. Returns
    /// whether there were any.
    fn abandon_below(&mut self, settled: Dseq) -> bool {
        let mut any = false;
        while let Some(first) = self.rebuilds.headless_below(settled) {
            self.rebuilds.drop_large(first);
        }
        while let Some(abandoned) =
            self.reassembly.take_abandoned_below(settled, |first| self.rebuilds.large(first).is_some())
        {
            self.buffer_abandoned(abandoned);
            any = true;
        }
        any
    }

    /// Releases, in order, the items that need not wait any more.
    fn release(&mut self, ctx: &mut ReceiveContext<'_>, out: &mut Vec<StreamOutcome>) {
        let frontier = self.ledger.frontier();
        while let Some((at, arrival, item)) = self.reorder_buffer.pop(frontier) {
            let followers = self.reorder_buffer.followers_of(&item);
            match self.judge(ctx, ItemRef { dseq: at.0, arrival, item: &item }, at.0 < frontier, out) {
                Disposition::Wait => {
                    self.reorder_buffer.insert(at, arrival, item);
                    continue;
                }
                disposition => push_delivery(self.kind, item, arrival, disposition, out),
            }
            self.reorder_buffer.on_item_removed(followers);
            if !self.reorder_buffer.has(at.0) {
                self.ledger.release();
                self.settle_partial(at.0);
            }
        }
    }

    /// Handles an announcement that `high` datagrams with `count` messages exist. Returns false if it contradicts the
    /// ledger.
    pub fn on_control(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        high: Dseq,
        count: u64,
        out: &mut Vec<StreamOutcome>,
    ) -> bool {
        let mut fits = self.ledger.on_control(&mut found(&mut self.nak_scheduler, ctx), high, count);
        if !fits && self.is_corrected_by_announcement(ctx, high, count, out) {
            fits = self.ledger.on_control(&mut found(&mut self.nak_scheduler, ctx), high, count);
        }
        while self.ledger.is_over_limit() {
            self.overflow(ctx, out);
        }
        fits
    }

    /// Settles the gaps whose deadline has passed.
    pub fn on_deadline(&mut self, ctx: &mut ReceiveContext<'_>, out: &mut Vec<StreamOutcome>) {
        let (to, reason) = (ctx.settled_to, ctx.reason);
        self.settle(ctx, reason, out, |ledger| ledger.is_due(to));
    }

    /// Settles the oldest gap because a limit was reached (R9).
    pub fn overflow(&mut self, ctx: &mut ReceiveContext<'_>, out: &mut Vec<StreamOutcome>) {
        // Rule: overflow
        let mut gaps = 1;
        self.settle(ctx, Reason::Overflow, out, |_| std::mem::take(&mut gaps) == 1);
        ctx.counters.overflow_gaps += 1;
        if ctx.mutants.is(Mutant::OverflowSilent) {
            out.retain(|outcome| !matches!(outcome, StreamOutcome::Unverified { .. }));
        }
    }

    /// Settles every gap because the stream ends.
    pub fn end(&mut self, ctx: &mut ReceiveContext<'_>, reason: Reason, out: &mut Vec<StreamOutcome>) {
        self.settle(ctx, reason, out, Ledger::is_waiting);
    }

    /// Settles gaps, oldest first, while `is_due`. A datagram whose content is known counts as lost and no longer as
    /// unknown.
    fn settle(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        reason: Reason,
        out: &mut Vec<StreamOutcome>,
        mut is_due: impl FnMut(&Ledger) -> bool,
    ) {
        let mut ranges = Vec::new();
        while self.ledger.is_waiting() && is_due(&self.ledger) {
            if let Some(dseq) = self.ledger.known_first() {
                self.on_settled(ctx, std::mem::take(&mut ranges), out);
                if let Some(rebuild) = self.rebuilds.abandon(dseq, reason) {
                    self.complete(ctx, dseq, rebuild, out);
                }
            } else {
                ranges.extend(self.ledger.settle_first(reason));
            }
        }
        self.on_settled(ctx, ranges, out);
        self.complete_ready(ctx, out);
    }

    fn on_settled(&mut self, ctx: &mut ReceiveContext<'_>, ranges: Vec<SettledRange>, out: &mut Vec<StreamOutcome>) {
        if ranges.is_empty() {
            return;
        }
        self.abandon_incomplete(ctx, out);
        self.complete_ready(ctx, out);
        self.release(ctx, out);
        for range in ranges {
            ctx.losses.overrun += range.overrun;
            let messages = self.ledger.unexplained_in(&range);
            match self.kind {
                StreamKind::Ptp if 0 < range.unexplained => {
                    let all = Count::Exact(range.unexplained);
                    ctx.losses.ibx_loss.add(range.unexplained, ctx.now.wall);
                    self.ledger.explain(Dseq(range.first.0 - 1), range.last.next(), all.min());
                    out.push(StreamOutcome::InboxLost {
                        messages: all.min(),
                        reason: range.reason,
                        missing: range.missing(),
                    });
                }
                StreamKind::Bcast { .. }
                    if range.reason == Reason::Expired && ctx.mutants.is(Mutant::ExpiredDelivered) => {}
                StreamKind::Bcast { .. } if 0 < messages.max() => {
                    ctx.losses.unverified_at = Some(ctx.now.wall);
                    out.push(StreamOutcome::Unverified { range, messages });
                }
                _ => {}
            }
        }
    }

    /// Returns whether the ledger and the reorder buffer keep the invariants that are cheap to check.
    #[inline]
    pub fn is_intact(&self) -> bool {
        self.ledger.is_intact() && self.reorder_buffer.is_intact(self.ledger.states().buffered)
    }

    /// Describes the ledger and the reorder buffer for the message of a failed check.
    #[cold]
    pub fn summary(&self) -> String {
        let culprit = if self.ledger.is_intact() { "reorder buffer" } else { "ledger" };
        format!(
            "{culprit} broken; ledger: {}; reorder buffer: {}",
            self.ledger.summary(),
            self.reorder_buffer.summary()
        )
    }

    /// Asserts that the ledger's states sum to its range, and that no item is buffered that could be released.
    pub fn assert_invariants(&self) {
        self.ledger.assert_invariants();
        self.reorder_buffer.assert_invariants();
        self.rebuilds.assert_invariants();
        assert!(self.reorder_buffer.is_empty() || self.ledger.is_waiting());
        assert_eq!(self.ledger.states().buffered, self.reorder_buffer.datagrams());
    }
}

/// Looks up the subscriptions and the stream of a run; `None` for other records.
#[inline]
fn look_up(ctx: &mut ReceiveContext<'_>, record: &Record) -> Option<RunLookup> {
    let Record::Run(run) = record else { return None };
    let matched = ctx.interest.matches(&run.subject, ctx.mode);
    let index = matched.as_ref().and_then(|_| ctx.window.seek(ctx.uid, &run.subject));
    Some(RunLookup { matched, index })
}

/// Returns whether all records are runs without reply subjects and header fields, for subscriptions in no queue group.
fn is_batch(records: &[Record], lookup: &[Option<RunLookup>]) -> bool {
    let is_plain = |record: &Record| matches!(record, Record::Run(run) if !run.has_meta());
    let is_for_queue = |lookup: &RunLookup| lookup.matched.as_ref().is_some_and(|matched| matched.has_queues());
    1 < records.len() && records.iter().all(is_plain) && !lookup.iter().flatten().any(is_for_queue)
}

/// Creates the context of a gap that `ctx` reveals.
fn found<'a>(nak_scheduler: &'a mut NakScheduler, ctx: &'a mut ReceiveContext<'_>) -> GapContext<'a> {
    nak_scheduler.on_receivers(ctx.receivers);
    GapContext {
        now: ctx.now.instant,
        arrived: ctx.arrived,
        deadline: ctx.deadline,
        nak_scheduler,
        overrun: ctx.overrun,
    }
}
