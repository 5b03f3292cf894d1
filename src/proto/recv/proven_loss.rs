//! Losses that the number of an item proves: the messages missing before it, and the item itself if it represents lost
//! messages.

use super::{ReceiveContext, RecvStream, StreamKind, StreamOutcome};
use crate::message::Count;
use crate::proto::continuity::{Skip, UnprovenLoss};
use crate::proto::interest::MatchSet;
use crate::proto::ledger::UnexplainedMessages;
use crate::proto::mutant::Mutant;
use crate::proto::stream_item::{ItemRef, StreamItem};
use crate::proto::window::SubEntry;
use crate::seqno::Seq;
use std::sync::Arc;

/// Messages that the number of an item proves to be lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProvenLoss {
    /// Messages that began in missing datagrams.
    skip: Skip,
    /// Number of messages lost with the item that did not begin in missing datagrams.
    known: u64,
}

impl ProvenLoss {
    /// Returns the messages missing before an item with this number, after `skip`, and with it; `None` if there are
    /// none.
    pub(super) fn of(item: &StreamItem, seq: Seq, skip: Option<Skip>) -> Option<ProvenLoss> {
        let (skip, known) = match (skip, item) {
            (skip, StreamItem::AbandonedMessage(abandoned)) => {
                let first = skip.map_or(seq, |skip| skip.first);
                let (before, rest) = skip.map_or((0, UnprovenLoss::None), |skip| (skip.messages, skip.rest));
                let messages = before + u64::from(!abandoned.begun);
                (Skip { first, last: seq, messages, rest }, u64::from(abandoned.begun))
            }
            (skip, StreamItem::GoneMessages(gone)) => {
                let last = seq.forward(gone.count - 1).unwrap_or(seq);
                let first = skip.map_or(seq, |skip| skip.first);
                let (messages, rest) = skip.map_or((0, UnprovenLoss::None), |skip| (skip.messages, skip.rest));
                (Skip { first, last, messages, rest }, gone.count)
            }
            (Some(skip), _) => (skip, 0),
            (None, _) => return None,
        };
        Some(ProvenLoss { skip, known })
    }
}

impl RecvStream {
    /// Reports the messages proven missing before an item, and the item itself if it is absent, to the subscriptions
    /// `owed` it. Returns the number of messages; `None` if no subscription is owed any of it.
    pub(super) fn report_lost(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        at: ItemRef<'_>,
        entry: Option<SubEntry>,
        proven: ProvenLoss,
        owed: Option<&Arc<MatchSet>>,
        out: &mut Vec<StreamOutcome>,
    ) -> Option<Count> {
        let (ItemRef { dseq, item, .. }, ProvenLoss { skip, known }) = (at, proven);
        let after = entry.map_or(self.ledger.states().baseline, |entry| entry.dseq);
        let between = self.ledger.unexplained_between(after, dseq, ctx.recent);
        let missing = self.ledger.missing_between(after, dseq);
        if !self.ledger.explain(after, dseq, skip.messages) {
            // Rule: cross-check
            ctx.counters.inconsistencies += 1;
            ctx.losses.inconsistencies += 1;
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
            (None, StreamItem::AbandonedMessage(abandoned), _) if skip.messages + known == 1 => abandoned.reached,
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
            StreamItem::AbandonedMessage(abandoned) if abandoned.by_limit || abandoned.gone.is_some() => {
                abandoned.reason(ctx.reason)
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
}

/// Returns the number of messages that a skip covers. `to_wrap` is the number of additional missing messages that would
/// mean that the count has wrapped meanwhile.
pub(super) fn count_of(skip: &Skip, between: &UnexplainedMessages, to_wrap: u64) -> Count {
    let all = between.messages.max(skip.messages);
    match skip.rest {
        UnprovenLoss::None => Count::Exact(skip.messages),
        UnprovenLoss::Earlier if all < skip.messages.saturating_add(to_wrap) => {
            Count::from_bounds(skip.messages, (skip.messages + between.old).min(all))
        }
        UnprovenLoss::Earlier | UnprovenLoss::Any => Count::from_bounds(skip.messages, all),
    }
}
