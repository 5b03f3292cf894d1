//! Decides what happens to an item of a stream: it is delivered, waits, is dropped, or goes to a service.

use super::proven_loss::ProvenLoss;
use super::{ANSWERS, HISTORY, ReceiveContext, RecvStream, RunLookup, StreamKind, StreamOutcome};
use crate::delivery::RunPosition;
use crate::message::{Count, DeliveryMode, Dseq, MissingDatagrams, Verdict};
use crate::proto::continuity::{Continuity, SeqPosition, Skip};
use crate::proto::fragment::AbandonedMessage;
use crate::proto::interest::MatchSet;
use crate::proto::ledger::SettledRange;
use crate::proto::mutant::Mutant;
use crate::proto::run_delivery::RunDelivery;
use crate::proto::stream_item::{Arrival, ItemRef, StreamItem};
use crate::proto::window::{StreamIndex, SubEntry};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::wire::Record;
use std::sync::Arc;

/// Disposition of an item.
pub(super) enum Disposition {
    /// The item must wait.
    Wait,
    /// The item is dropped: no subscription matches it, it is a repetition, or its loss has been reported.
    Drop,
    /// The item is for this peer itself.
    Service,
    /// The item is for a departed member of a queue group.
    Unserved,
    /// All but the first `repeated` messages are delivered.
    Deliver { repeated: usize, verdict: Verdict, offset: Option<u32>, matched: Arc<MatchSet> },
}

/// Returns the disposition of an item without subscriptions here.
pub(super) fn unwanted(ctx: &ReceiveContext<'_>, item: &StreamItem) -> Disposition {
    // Members of queue groups are in mode repair.
    let is_unserved = ctx.mode == DeliveryMode::Repair && item.is_for_member(ctx.own);
    if is_unserved { Disposition::Unserved } else { Disposition::Drop }
}

/// Delivers an item that need not wait.
#[inline]
pub(super) fn push_delivery(
    kind: StreamKind,
    item: StreamItem,
    arrival: Arrival,
    judged: Disposition,
    out: &mut Vec<StreamOutcome>,
) {
    match judged {
        Disposition::Deliver { repeated, verdict, offset, matched } => {
            out.push(StreamOutcome::Deliver { item, repeated, repaired: arrival.repaired, verdict, offset, matched });
        }
        Disposition::Service => item.for_each(|message| out.push(StreamOutcome::Service(message))),
        Disposition::Unserved => out.push(StreamOutcome::Unserved { item, directed: kind == StreamKind::Ptp }),
        Disposition::Wait | Disposition::Drop => {}
    }
}

/// An item with a number that subscriptions here match.
struct NumberedItem<'a> {
    at: ItemRef<'a>,
    /// Number of its first message.
    position: SeqPosition,
    matched: Arc<MatchSet>,
    /// Last number of its subject, with its location in the window.
    seen: Option<(StreamIndex, SubEntry)>,
}

impl RecvStream {
    /// Judges an item, and reports the messages missing before it. `settled` is true if no gap before it is open.
    pub(super) fn judge(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        at: ItemRef<'_>,
        settled: bool,
        out: &mut Vec<StreamOutcome>,
    ) -> Disposition {
        let item = at.item;
        if self.kind == StreamKind::Ptp && is_service(item.subject(), ctx.inbox) {
            return if settled { Disposition::Service } else { Disposition::Wait };
        }
        if self.kind == StreamKind::Ptp
            && let StreamItem::AbandonedMessage(abandoned) = item
        {
            return judge_abandoned_directed(ctx, abandoned, settled, out);
        }
        let (matched, lookup) = match ctx.lookup.take() {
            Some(RunLookup { matched, index }) => (matched, index),
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
        let Some(position) = item.position().filter(|_| self.kind != StreamKind::Ptp) else {
            return self.judge_unnumbered(ctx, at, matched, settled, out);
        };
        let chain = position.chain.filter(|_| !ctx.mutants.is(Mutant::IgnoreChain));
        let seen = ctx.window.find(ctx.uid, item.subject(), lookup);
        let numbered = NumberedItem { at, position: SeqPosition { chain, ..position }, matched, seen };
        self.judge_numbered(ctx, numbered, settled, out)
    }

    /// Judges the runs of a datagram that follows everything before it, without queue groups and metadata. Those before
    /// the first report of a loss are delivered together.
    pub(super) fn on_runs(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        dseq: Dseq,
        arrival: Arrival,
        mut records: Vec<Record>,
        lookup: &mut [Option<RunLookup>],
        out: &mut Vec<StreamOutcome>,
    ) {
        let item = |record| if let Record::Run(run) = record { Some(StreamItem::Run(run)) } else { None };
        let mut items = ctx.lists.take_items(records.len());
        items.extend(records.drain(..).filter_map(item));
        ctx.lists.put_records(records);
        // Most datagrams may be for other peers, and these allocate nothing.
        let is_wanted = |lookup: &&RunLookup| lookup.matched.is_some();
        let mut runs = ctx.lists.take_runs(lookup.iter().flatten().filter(is_wanted).count());
        let start = out.len();
        for (index, item) in items.iter().enumerate() {
            ctx.lookup = lookup.get_mut(index).and_then(Option::take);
            match self.judge(ctx, ItemRef { dseq, arrival, item }, true, out) {
                Disposition::Deliver { repeated, verdict, offset, matched } if out.len() == start => {
                    let position = RunPosition { repeated: repeated as u16, verdict, offset };
                    runs.push(RunDelivery { index: index as u32, position, matched });
                }
                Disposition::Drop => {}
                disposition => push_delivery(self.kind, item.clone(), arrival, disposition, out),
            }
        }
        if runs.is_empty() {
            ctx.lists.put_items(items);
            ctx.lists.put_runs(runs);
        } else {
            out.insert(start, StreamOutcome::DeliverRuns { items, runs });
        }
    }

    /// Compares the number of an item with the last number of its subject. Also returns whether the last number proves
    /// nothing.
    fn continuity_of(
        &self,
        ctx: &mut ReceiveContext<'_>,
        numbered: &NumberedItem<'_>,
        out: &mut Vec<StreamOutcome>,
    ) -> (Continuity, bool) {
        let entry = numbered.seen.map(|(_, entry)| entry);
        // Messages that arrived without a local subscription are owed to no subscription. That includes messages of the
        // instant at which the subscription began, because they may have arrived before it.
        let interrupted =
            entry.is_some_and(|entry| entry.at <= numbered.matched.oldest) && !ctx.mutants.is(Mutant::IgnoreContinuity);
        let continuity = numbered.position.judge(entry.as_ref());
        let is_forged = entry.is_some_and(|entry| self.is_forged(ctx, &entry, numbered.at, continuity, out));
        let interrupted = interrupted || is_forged;
        let continuity = match continuity {
            Continuity::Skip(_) | Continuity::Restart if interrupted => Continuity::First,
            continuity if !is_forged => continuity,
            _ => Continuity::First,
        };
        (continuity, interrupted)
    }

    /// Judges an item by the last number of its subject.
    fn judge_numbered(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        numbered: NumberedItem<'_>,
        settled: bool,
        out: &mut Vec<StreamOutcome>,
    ) -> Disposition {
        let (continuity, interrupted) = self.continuity_of(ctx, &numbered, out);
        let NumberedItem { at, position, matched, seen } = numbered;
        let ItemRef { dseq, arrival, item } = at;
        let entry = seen.map(|(_, entry)| entry);
        let mut repeated = 0;
        let (verdict, skip) = match continuity {
            Continuity::Repeat => {
                let last = entry.expect("a repetition has an entry").last;
                repeated = repeated_of(position.seq, item.count(), last);
                if !item.is_absent() {
                    ctx.losses.repeat.add(repeated, ctx.now.wall);
                }
                match item {
                    _ if repeated == item.count() => return Disposition::Drop,
                    StreamItem::GoneMessages(gone) => {
                        let rest = StreamItem::GoneMessages(Box::new(gone.clone().skip(repeated)));
                        return self.judge(ctx, ItemRef { item: &rest, ..at }, settled, out);
                    }
                    _ => (Verdict::Next, None),
                }
            }
            // Rule: release
            // While the first datagram of an abandoned message is awaited, it is unknown whether that
            // datagram or the item accounts for the message.
            Continuity::Follows if !settled && item.is_headless() => return Disposition::Wait,
            Continuity::Follows => (Verdict::Next, None),
            _ if !settled => return Disposition::Wait,
            Continuity::First => (Verdict::First, self.missing_since_birth(&position, &matched, interrupted)),
            Continuity::Restart => (Verdict::First, None),
            Continuity::Skip(skip) => (Verdict::First, Some(skip)),
        };
        let offset = position.offset_of_frame(entry.as_ref());
        // A message in flight when a subscription began is not owed to it (A6), however long it was awaited. The same
        // holds for its loss.
        let owed = Arc::clone(&matched).at(arrival.reached);
        let later = Some(&matched).filter(|_| ctx.mutants.is(Mutant::ReportToLaterSubscriptions));
        let proven = ProvenLoss::of(item, position.seq, skip);
        let lost = proven.and_then(|proven| self.report_lost(ctx, at, entry, proven, later.or(owed.as_ref()), out));
        if let Some(last) = position.seq.forward(item.count() - 1) {
            // The current time would be wrong: messages since then may have been dropped because no client wanted them
            // yet.
            let entry = SubEntry { last, dseq, at: arrival.reached, offset };
            match seen {
                Some((index, _)) => ctx.window.renew(index, entry),
                None => self.record_last(ctx, item, entry),
            }
        }
        let verdict = match (lost, position.stamp) {
            (Some(count), _) => Verdict::Skip(count),
            (None, Some(stamp)) if repeated == 0 => Verdict::Start(stamp.time),
            (None, _) => verdict,
        };
        match owed.filter(|_| !item.is_absent()) {
            Some(matched) => Disposition::Deliver { repeated: repeated as usize, verdict, offset, matched },
            None => unwanted(ctx, item),
        }
    }

    /// Records the item's number as the first and last one received of its subject.
    fn record_last(&mut self, ctx: &mut ReceiveContext<'_>, item: &StreamItem, entry: SubEntry) {
        if !ctx.window.insert(ctx.uid, item.subject(), entry) {
            self.evicted = true;
            ctx.counters.messages_untracked += item.count();
        }
    }

    /// Judges an item whose messages have no number. It waits until everything before its datagram is settled.
    pub(super) fn judge_unnumbered(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        at: ItemRef<'_>,
        matched: Arc<MatchSet>,
        settled: bool,
        out: &mut Vec<StreamOutcome>,
    ) -> Disposition {
        if !settled {
            return Disposition::Wait;
        }
        let ItemRef { dseq, arrival, item } = at;
        let verdict = if self.kind == StreamKind::Ptp { Verdict::Direct } else { Verdict::Unnumbered };
        let owed = matched.at(arrival.reached);
        match item {
            StreamItem::AbandonedMessage(_) | StreamItem::GoneMessages(_)
                if owed.is_none() && self.kind != StreamKind::Ptp => {}
            // It is counted among the messages of its first datagram.
            StreamItem::AbandonedMessage(abandoned) if !abandoned.begun => {}
            StreamItem::AbandonedMessage(abandoned) => {
                // A missing datagram may still arrive; a message begun in this one is certain.
                let range = SettledRange::of_content(abandoned.first, ctx.now.instant, abandoned.reason(ctx.reason));
                out.push(StreamOutcome::Unverified { range, messages: Count::Exact(1) });
            }
            StreamItem::GoneMessages(gone) => {
                let range = SettledRange::of_content(dseq, ctx.now.instant, gone.reason);
                out.push(StreamOutcome::Unverified { range, messages: Count::Exact(gone.count) });
            }
            _ => {
                return match owed {
                    Some(matched) => Disposition::Deliver { repeated: 0, verdict, offset: None, matched },
                    None => unwanted(ctx, item),
                };
            }
        }
        Disposition::Drop
    }

    /// Returns the messages missing before the first received message of a subject, which need not be the first one
    /// sent. They are owed if a client here subscribed before the publisher started, and this peer would remember
    /// earlier messages.
    pub(super) fn missing_since_birth(
        &self,
        position: &SeqPosition,
        matched: &MatchSet,
        interrupted: bool,
    ) -> Option<Skip> {
        match self.kind {
            StreamKind::Bcast { birth: Some(birth) } if matched.oldest <= birth && !self.evicted && !interrupted => {
                if position.stamp.is_some() {
                    None
                } else {
                    position.missing_of_frame()
                }
            }
            _ => None,
        }
    }
}

/// Counts a large directed message that will never be complete, whether or not a subscription here matches it. It may
/// be one that a peer without members of its queue group returned, and the ledger counts the messages of missing
/// datagrams in the same way. The loss waits until everything before the message is settled.
fn judge_abandoned_directed(
    ctx: &mut ReceiveContext<'_>,
    abandoned: &AbandonedMessage,
    settled: bool,
    out: &mut Vec<StreamOutcome>,
) -> Disposition {
    if !settled {
        return Disposition::Wait;
    }
    // Otherwise it is counted among the messages of its first datagram.
    if abandoned.begun {
        ctx.losses.ibx_loss.add(1, ctx.now.wall);
        let reason = abandoned.reason(ctx.reason);
        out.push(StreamOutcome::InboxLost { messages: 1, reason, missing: MissingDatagrams::default() });
    }
    Disposition::Drop
}

/// Returns whether a message is for this peer itself and for none of its clients.
fn is_service(subject: &Subject, inbox: &str) -> bool {
    let rest = subject.as_bytes().strip_prefix(inbox.as_bytes());
    rest.is_some_and(|rest| rest == HISTORY.as_bytes() || rest.starts_with(ANSWERS.as_bytes()))
}

/// Returns the number of messages at or below `last` among the `count` messages from `first` on.
fn repeated_of(first: Seq, count: u64, last: Seq) -> u64 {
    if last.frame() == first.frame() { count.min(last.count() + 1 - first.count()) } else { count }
}
