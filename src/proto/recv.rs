//! Receiving side of one datagram stream: which messages are delivered, in what order, and which losses are reported
//! before them.
//!
//! A message is released iff its number directly follows the last one of its subject. Otherwise it is held until every
//! gap before its datagram is settled (reliability.md A3). Decisions leave as [`StreamOutcome`]s.

mod disposition;
mod forgery;
mod item;
mod outcome;
mod reorder_buffer;
mod repair;
#[cfg(test)]
mod tests;

pub use item::{FetchedMessages, GoneMessages, StreamItem};
pub use outcome::{ReceiveContext, RunLookup, StreamOutcome};

use crate::message::{Count, Dseq, Reason, Verdict};
use crate::proto::continuity::{Continuity, SeqPosition, Skip, UnprovenLoss};
use crate::proto::fragment::{AbandonedMessage, FragmentOutcome, Reassembly};
use crate::proto::interest::MatchSet;
use crate::proto::ledger::{Acceptance, GapContext, Ledger, SettledRange, UnexplainedMessages};
use crate::proto::mutant::Mutant;
use crate::proto::nak::NakScheduler;
use crate::proto::rebuild::{Rebuild, Rebuilds};
use crate::proto::window::SubEntry;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Instant;
use crate::wire::{Fragment, Record};
use disposition::{Disposition, push_delivery, unwanted};
use item::Arrival;
use reorder_buffer::{Position, ReorderBuffer};
use std::collections::BTreeMap;
use std::sync::Arc;
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
    held: ReorderBuffer,
    reassembly: Reassembly,
    rebuilds: Rebuilds,
    /// Datagrams rebuilt from manifests that lost a wanted message, kept while any of their messages is held. The flag
    /// is true if the datagram counts as repaired until then.
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
            held: ReorderBuffer::default(),
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

    /// Returns the publisher's start, since when everything is owed, if the stream is owed from its first datagram.
    pub fn birth(&self) -> Option<Instant> {
        match self.kind {
            StreamKind::Bcast { birth } => birth,
            StreamKind::Ptp => None,
        }
    }

    /// Corrects the send time of the datagrams so far: they were in flight longer by `by`.
    pub fn on_older(&mut self, by: Duration) {
        self.ledger.on_older(by);
    }

    /// Returns the bytes of messages that wait for an earlier datagram, or for the rest of their own.
    pub fn held_bytes(&self) -> usize {
        self.held.bytes() + self.rebuilds.bytes()
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
        records: Vec<Record>,
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
            _ => return accept,
        }
        let rebuild = self.rebuilds.remove(dseq);
        let arrival = Arrival { reached: self.ledger.reached(), repaired: accept == Acceptance::Repaired };
        ctx.losses.messages_in += messages;
        ctx.losses.datagrams_in += 1;
        let direct = accept == Acceptance::Fresh && !self.ledger.is_waiting() && self.held.is_empty()
            || accept == Acceptance::Repaired && ctx.mutants.is(Mutant::RepairedFirst);
        let mut lookup = std::mem::take(&mut self.lookup);
        if self.kind != StreamKind::Ptp && 1 < records.len() {
            lookup.extend(records.iter().map(|record| match record {
                Record::Run(run) => {
                    let matched = ctx.interest.matches(&run.subject, ctx.mode);
                    let place = matched.as_ref().and_then(|_| ctx.window.seek(ctx.uid, &run.subject));
                    Some(RunLookup { matched, place })
                }
                _ => None,
            }));
        }
        for (index, record) in records.into_iter().enumerate() {
            ctx.lookup = lookup.get_mut(index).and_then(Option::take);
            let index = index as u32 + 1;
            match record {
                Record::Run(run) => self.take(ctx, (dseq, index), arrival, StreamItem::Run(run), direct, out),
                Record::Fragment(fragment) => self.join(ctx, (dseq, index), arrival, fragment, direct, out),
                _ => {}
            }
        }
        ctx.lookup = None;
        lookup.clear();
        self.lookup = lookup;
        if let Some(fetched) = rebuild.as_ref().and_then(Rebuild::whole) {
            // The fetched message arrived just before.
            self.place_large(ctx, dseq, fetched.clone(), out);
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

    fn join(
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
        match self.reassembly.on_fragment(dseq, arrival.reached, arrival.repaired, fragment) {
            FragmentOutcome::Waiting if is_head => self.rebuilds.on_head(dseq),
            FragmentOutcome::Waiting => {}
            FragmentOutcome::GivenUp if is_head => self.held.on_late_head(dseq),
            FragmentOutcome::GivenUp => {}
            FragmentOutcome::ReassembledMessage(whole) => {
                self.rebuilds.drop_large(first);
                let at = (whole.dseq, if whole.dseq == dseq { index } else { 0 });
                let arrival = Arrival { reached: whole.reached, repaired: whole.repaired };
                self.take(ctx, at, arrival, StreamItem::ReassembledMessage(whole), direct && at.0 == dseq, out);
            }
            FragmentOutcome::Contradiction(doomed) => {
                ctx.counters.discard_contradiction += 1;
                if let Some(doomed) = doomed {
                    self.hold_abandoned(doomed);
                }
            }
        }
    }

    /// Hands an item on, or holds it.
    fn take(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        at: Position,
        arrival: Arrival,
        item: StreamItem,
        direct: bool,
        out: &mut Vec<StreamOutcome>,
    ) {
        let settled = direct || at.0 < self.ledger.frontier() && self.held.is_empty();
        let settled = settled || ctx.mutants.is(Mutant::ReleaseEarly);
        let followers = self.held.followers_of(&item);
        match self.judge(ctx, at.0, arrival, &item, settled, out) {
            Disposition::Waits => self.hold(at, arrival, item),
            disposition => {
                push_delivery(self.kind, item, arrival, disposition, out);
                self.held.on_gone(followers);
            }
        }
    }

    fn hold(&mut self, at: Position, arrival: Arrival, item: StreamItem) {
        if !self.held.has(at.0) {
            self.ledger.hold();
        }
        self.held.insert(at, arrival, item);
    }

    fn hold_abandoned(&mut self, doomed: AbandonedMessage) {
        self.rebuilds.drop_large(doomed.first);
        let index = if doomed.at_end { u32::MAX } else { 0 };
        let at = (doomed.dseq, index);
        let arrival = Arrival { reached: doomed.reached, repaired: false };
        self.hold(at, arrival, StreamItem::AbandonedMessage(doomed));
        self.held.judge_again(at);
    }

    /// Gives up large messages that lack a settled datagram, or that exceed a limit.
    fn abandon_incomplete(&mut self, ctx: &mut ReceiveContext<'_>, out: &mut Vec<StreamOutcome>) {
        let mut any = self.hold_abandoned_below_frontier();
        while let Some(doomed) = self.reassembly.take_abandoned_by_limit() {
            ctx.counters.overflow_reassembly += 1;
            self.hold_abandoned(doomed);
            any = true;
        }
        if any {
            self.release(ctx, out);
        }
    }

    /// Holds each large message that lacks a settled datagram and is not requested from the history. Returns whether
    /// there were any.
    fn hold_abandoned_below_frontier(&mut self) -> bool {
        let (mut any, frontier) = (false, self.ledger.frontier());
        while let Some(first) = self.rebuilds.headless_below(frontier) {
            self.rebuilds.drop_large(first);
        }
        while let Some(doomed) =
            self.reassembly.take_abandoned_below(frontier, |first| self.rebuilds.large(first).is_some())
        {
            self.hold_abandoned(doomed);
            any = true;
        }
        any
    }

    /// Hands on, in order, the items that no longer have to wait.
    fn release(&mut self, ctx: &mut ReceiveContext<'_>, out: &mut Vec<StreamOutcome>) {
        let frontier = self.ledger.frontier();
        while let Some((at, arrival, item)) = self.held.pop(frontier) {
            let followers = self.held.followers_of(&item);
            match self.judge(ctx, at.0, arrival, &item, at.0 < frontier, out) {
                Disposition::Waits => {
                    self.held.insert(at, arrival, item);
                    continue;
                }
                disposition => push_delivery(self.kind, item, arrival, disposition, out),
            }
            self.held.on_gone(followers);
            if !self.held.has(at.0) {
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
        if !fits && self.is_corrected_by_word(ctx, high, count, out) {
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
                    out.push(StreamOutcome::Inbox {
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

    /// Judges an item, and reports the messages missing before it. `settled` is true if no gap before it is open.
    fn judge(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        dseq: Dseq,
        arrival: Arrival,
        item: &StreamItem,
        settled: bool,
        out: &mut Vec<StreamOutcome>,
    ) -> Disposition {
        if self.kind == StreamKind::Ptp && is_service(item.subject(), ctx.inbox) {
            return if settled { Disposition::Service } else { Disposition::Waits };
        }
        let (matched, lookup) = match ctx.lookup.take() {
            Some(RunLookup { matched, place }) => (matched, place),
            // There is one directed stream for both modes.
            None if self.kind == StreamKind::Ptp && !ctx.mutants.is(Mutant::DirectedRepairOnly) => {
                (ctx.interest.matches_any(item.subject()), None)
            }
            None => (ctx.interest.matches(item.subject(), ctx.mode), None),
        };
        let Some(matched) = matched else {
            if !item.is_absent() && ctx.interest.matches(item.subject(), ctx.mode.other()).is_none() {
                ctx.losses.not_sub.add(item.count(), ctx.now.wall);
            }
            return unwanted(ctx, item);
        };
        let Some(place) = item.place().filter(|_| self.kind != StreamKind::Ptp) else {
            return self.judge_unnumbered(ctx, (dseq, arrival), item, matched, settled, out);
        };
        let chain = place.chain.filter(|_| !ctx.mutants.is(Mutant::IgnoreChain));
        let place = SeqPosition { chain, ..place };
        let seen = ctx.window.find(ctx.uid, item.subject(), lookup);
        let entry = seen.map(|(_, entry)| entry);
        // Messages that passed without a local subscription are owed to no subscription. That includes messages of the
        // instant at which the subscription began, because they may have come before.
        let interrupted =
            entry.is_some_and(|entry| entry.at <= matched.oldest) && !ctx.mutants.is(Mutant::IgnoreContinuity);
        let disposition = place.judge(entry.as_ref());
        let is_untrue = entry.is_some_and(|entry| self.is_untrue(ctx, &entry, (dseq, arrival), item, disposition, out));
        let interrupted = interrupted || is_untrue;
        let disposition = match disposition {
            Continuity::Skip(_) | Continuity::Restart if interrupted => Continuity::First,
            disposition if !is_untrue => disposition,
            _ => Continuity::First,
        };
        let mut repeated = 0;
        let (verdict, skip) = match disposition {
            Continuity::Repeat => {
                let last = entry.expect("repeats something").last;
                repeated = repeated_of(place.seq, item.count(), last);
                if !item.is_absent() {
                    ctx.losses.repeat.add(repeated, ctx.now.wall);
                }
                match item {
                    _ if repeated == item.count() => return Disposition::Done,
                    StreamItem::GoneMessages(gone) => {
                        let rest = StreamItem::GoneMessages(gone.clone().skip(repeated));
                        return self.judge(ctx, dseq, arrival, &rest, settled, out);
                    }
                    _ => (Verdict::Next, None),
                }
            }
            // Rule: release
            // While the datagram that begins an abandoned message is awaited, it is unknown which of them accounts for
            // it.
            Continuity::Follows if !settled && item.is_headless() => return Disposition::Waits,
            Continuity::Follows => (Verdict::Next, None),
            _ if !settled => return Disposition::Waits,
            Continuity::First => (Verdict::First, self.missing_since_birth(&place, &matched, interrupted)),
            Continuity::Restart => (Verdict::First, None),
            Continuity::Skip(skip) => (Verdict::First, Some(skip)),
        };
        let offset = place.offset_of_frame(entry.as_ref());
        // A message in flight when a subscription began is not for it (A6), however long it was awaited. The same holds
        // for its loss.
        let owed = Arc::clone(&matched).at(arrival.reached);
        let later = Some(&matched).filter(|_| ctx.mutants.is(Mutant::ReportToLaterSubscriptions));
        let lost = self.lose(ctx, (dseq, item, place), entry, skip, later.or(owed.as_ref()), out);
        if let Some(last) = place.seq.forward(item.count() - 1) {
            // The current time would be wrong: messages since then may have been dropped because no client wanted them
            // yet.
            let entry = SubEntry { last, dseq, at: arrival.reached, offset };
            match seen {
                Some((place, _)) => ctx.window.renew(place, entry),
                None => self.record_last(ctx, item, entry),
            }
        }
        let verdict = match (lost, place.stamp) {
            (Some(count), _) => Verdict::Skip(count),
            (None, Some(stamp)) if repeated == 0 => Verdict::Start(stamp.time),
            (None, _) => verdict,
        };
        match owed.filter(|_| !item.is_absent()) {
            Some(matched) => Disposition::Deliver { repeated: repeated as usize, verdict, offset, matched },
            None => unwanted(ctx, item),
        }
    }

    /// Reports the messages proven missing before an item, and the item itself if it is absent, to the subscriptions
    /// `owed` it. Returns the number of messages; `None` if nothing is missing or no subscription is owed any of it.
    fn lose(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        (dseq, item, place): (Dseq, &StreamItem, SeqPosition),
        entry: Option<SubEntry>,
        skip: Option<Skip>,
        owed: Option<&Arc<MatchSet>>,
        out: &mut Vec<StreamOutcome>,
    ) -> Option<Count> {
        // Messages lost with the item, though they began in no missing datagram; the skip covers all others.
        let (skip, known) = match (skip, item) {
            (skip, StreamItem::AbandonedMessage(doomed)) => {
                let first = skip.map_or(place.seq, |skip| skip.first);
                let (before, rest) = skip.map_or((0, UnprovenLoss::None), |skip| (skip.messages, skip.rest));
                let messages = before + u64::from(!doomed.begun);
                (Skip { first, last: place.seq, messages, rest }, u64::from(doomed.begun))
            }
            (skip, StreamItem::GoneMessages(gone)) => {
                let last = place.seq.forward(gone.count - 1).unwrap_or(place.seq);
                let first = skip.map_or(place.seq, |skip| skip.first);
                let (messages, rest) = skip.map_or((0, UnprovenLoss::None), |skip| (skip.messages, skip.rest));
                (Skip { first, last, messages, rest }, gone.count)
            }
            (Some(skip), _) => (skip, 0),
            (None, _) => return None,
        };
        let after = entry.map_or(self.ledger.states().baseline, |entry| entry.dseq);
        let between = self.ledger.unexplained_between(after, dseq, ctx.recent);
        let missing = self.ledger.missing_between(after, dseq);
        if !self.ledger.explain(after, dseq, skip.messages) {
            // Rule: cross-check
            ctx.counters.inconsistent += 1;
            ctx.losses.inconsistent += 1;
        }
        let matched = owed?;
        let to_wrap = ctx.frame_messages_max - entry.map_or(0, |entry| entry.last.count().min(ctx.frame_messages_max));
        let mut count = count_of(&skip, &between, to_wrap);
        count = Count::from_bounds(count.min() + known, count.max() + known);
        let since = match (entry, item, self.kind) {
            (entry, StreamItem::GoneMessages(gone), _) if skip.messages == 0 => {
                entry.map_or(gone.since, |e| e.at.max(gone.since))
            }
            (Some(entry), ..) => between.since.map_or(entry.at, |since| since.min(entry.at)),
            (None, StreamItem::AbandonedMessage(doomed), _) if skip.messages + known == 1 => doomed.reached,
            (None, _, StreamKind::Bcast { birth: Some(birth) }) => birth,
            _ => ctx.now.instant,
        };
        if matched.plain().is_none_or(|plain| since < plain.oldest) {
            // No subscription is certainly owed them: members of queue groups get only their share.
            count = Count::from_bounds(0, count.max());
        }
        match count {
            Count::Exact(all) if 2 <= all && ctx.mutants.is(Mutant::CountOneTooFew) => count = Count::Exact(all - 1),
            _ if ctx.mutants.is(Mutant::SkipIsOne) => count = Count::Exact(1),
            _ => {}
        }
        let reason = match item {
            StreamItem::AbandonedMessage(doomed) if doomed.by_limit || doomed.gone.is_some() => {
                doomed.reason(ctx.reason)
            }
            StreamItem::GoneMessages(gone) => gone.reason,
            _ => between.reason.unwrap_or(ctx.reason),
        };
        ctx.losses.on_lost(count, ctx.now.wall);
        let mut missing = missing;
        if let StreamItem::GoneMessages(gone) = item {
            missing.push((dseq, gone.missing));
        }
        out.push(StreamOutcome::Lost {
            subject: item.subject().detached(),
            first: skip.first,
            last: skip.last,
            count,
            since,
            matched: matched.clone(),
            reason,
            missing,
        });
        Some(count)
    }

    /// Records the item's number as the first and last one received of its subject.
    fn record_last(&mut self, ctx: &mut ReceiveContext<'_>, item: &StreamItem, entry: SubEntry) {
        if !ctx.window.insert(ctx.uid, item.subject(), entry) {
            self.evicted = true;
            ctx.counters.untracked += item.count();
        }
    }

    /// Returns whether the ledger and the reorder buffer keep the invariants that are cheap to check.
    #[inline]
    pub fn is_intact(&self) -> bool {
        self.ledger.is_intact() && self.held.is_intact(self.ledger.states().held)
    }

    /// Describes the ledger and the reorder buffer for the message of a failed check.
    #[cold]
    pub fn summary(&self) -> String {
        let culprit = if self.ledger.is_intact() { "reorder buffer" } else { "ledger" };
        format!("{culprit} broken; ledger: {}; reorder buffer: {}", self.ledger.summary(), self.held.summary())
    }

    /// Asserts that the ledger's states sum to its range, and that nothing is held that could be handed on.
    pub fn assert_invariants(&self) {
        self.ledger.assert_invariants();
        self.held.assert_invariants();
        self.rebuilds.assert_invariants();
        assert!(self.held.is_empty() || self.ledger.is_waiting());
        assert_eq!(self.ledger.states().held, self.held.datagrams());
    }
}

/// Returns whether a message is for this peer itself and for none of its clients.
fn is_service(subject: &Subject, inbox: &str) -> bool {
    let rest = subject.as_bytes().strip_prefix(inbox.as_bytes());
    rest.is_some_and(|rest| rest == HISTORY.as_bytes() || rest.starts_with(ANSWERS.as_bytes()))
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

/// Returns the number of messages at or below `last` among the `count` messages from `first` on.
fn repeated_of(first: Seq, count: u64, last: Seq) -> u64 {
    if last.frame() == first.frame() { count.min(last.count() + 1 - first.count()) } else { count }
}

/// Returns the number of messages that a skip covers. `to_wrap` is the number of additional missing messages that would
/// mean that the count has wrapped meanwhile.
fn count_of(skip: &Skip, between: &UnexplainedMessages, to_wrap: u64) -> Count {
    let all = between.messages.max(skip.messages);
    match skip.rest {
        UnprovenLoss::None => Count::Exact(skip.messages),
        UnprovenLoss::Earlier if all < skip.messages.saturating_add(to_wrap) => {
            Count::from_bounds(skip.messages, (skip.messages + between.old).min(all))
        }
        UnprovenLoss::Earlier | UnprovenLoss::Any => Count::from_bounds(skip.messages, all),
    }
}
