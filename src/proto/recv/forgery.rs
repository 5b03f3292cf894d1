//! Correction of a stream in which another sender forged datagrams in the publisher's name.

use super::{ReceiveContext, RecvStream, StreamKind, StreamOutcome};
use crate::message::{Count, Dseq, MissingDatagrams, Reason};
use crate::proto::continuity::Continuity;
use crate::proto::ledger::{ForgedRange, Ledger, NumberClaim, SettledRange};
use crate::proto::stream_item::ItemRef;
use crate::proto::window::SubEntry;

impl RecvStream {
    /// Handles a datagram that contradicts the ledger. Returns whether the ledger was wrong and now accepts it.
    pub(super) fn is_corrected(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        dseq: Dseq,
        before: u64,
        messages: u64,
        out: &mut Vec<StreamOutcome>,
    ) -> bool {
        let Some(after) = before.checked_add(messages) else { return false };
        let is_wrong = self.ledger.on_contradiction(NumberClaim { dseq, before: Some(before), after });
        if is_wrong {
            self.correct(ctx, dseq, before, out);
        }
        is_wrong
    }

    /// Handles an announced highest datagram that contradicts the ledger. Returns whether the ledger was wrong and now
    /// agrees.
    pub(super) fn is_corrected_by_announcement(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        high: Dseq,
        count: u64,
        out: &mut Vec<StreamOutcome>,
    ) -> bool {
        let is_wrong = self.ledger.on_contradiction(NumberClaim { dseq: high, before: None, after: count });
        if is_wrong {
            self.correct(ctx, high.next(), count, out);
        }
        is_wrong
    }

    /// Corrects a stream that accepted forged datagrams. Items that wait for others are reported or delivered, and the
    /// stream continues at `dseq`. The publisher's own datagrams with the forged numbers are reported as unverified.
    fn correct(&mut self, ctx: &mut ReceiveContext<'_>, dseq: Dseq, before: u64, out: &mut Vec<StreamOutcome>) {
        self.drop_buffered_from(dseq);
        self.ledger.retract_from(dseq, before);
        self.settle(ctx, Reason::Contradicted, out, Ledger::is_waiting);
        self.release(ctx, out);
        let ForgedRange { first, last, messages } = self.ledger.resume_at(dseq, before);
        (self.corrected, self.evicted) = (Some(ctx.now.instant), true);
        ctx.counters.forgeries_detected += 1;
        if let StreamKind::Bcast { birth } = &mut self.kind {
            *birth = None;
        }
        if messages == 0 || last < first {
            return;
        }
        match self.kind {
            StreamKind::Ptp => {
                let (reason, missing) = (Reason::Contradicted, MissingDatagrams::default());
                ctx.losses.ibx_loss.add(messages, ctx.now.wall);
                out.push(StreamOutcome::InboxLost { messages, reason, missing });
            }
            StreamKind::Bcast { .. } => {
                let range =
                    SettledRange { last, ..SettledRange::of_content(first, ctx.now.instant, Reason::Contradicted) };
                out.push(StreamOutcome::Unverified { range, messages: Count::from_bounds(0, messages) });
            }
        }
    }

    /// Drops the buffered items of datagrams from `dseq` on, which the publisher has yet to send.
    fn drop_buffered_from(&mut self, dseq: Dseq) {
        for datagram in self.reorder_buffer.drop_from(dseq) {
            self.partially_lost.remove(&datagram);
            self.ledger.release();
        }
    }

    /// Returns whether the window entry of a subject is not the publisher's own. Either it is older than a correction,
    /// or a later datagram uses its number again. In the latter case its datagram is reported as unverified.
    pub(super) fn is_forged(
        &self,
        ctx: &mut ReceiveContext<'_>,
        entry: &SubEntry,
        ItemRef { dseq, arrival, item }: ItemRef<'_>,
        judged: Continuity,
        out: &mut Vec<StreamOutcome>,
    ) -> bool {
        if self.corrected.is_some_and(|corrected| entry.at <= corrected) {
            return true;
        }
        let is_later = judged == Continuity::Repeat && entry.dseq < dseq && !arrival.repaired && !item.is_absent();
        if is_later && dseq < self.ledger.frontier() {
            ctx.counters.forgeries_detected += 1;
            let range = SettledRange::of_content(entry.dseq, ctx.now.instant, Reason::Contradicted);
            let messages = Count::from_bounds(0, self.ledger.messages_of(entry.dseq));
            out.push(StreamOutcome::Unverified { range, messages });
        }
        is_later
    }
}
