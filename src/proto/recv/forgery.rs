//! What becomes of a stream in which somebody else sent datagrams in the publisher's name.

use super::item::{Arrival, StreamItem};
use super::{ReceiveContext, RecvStream, StreamKind, StreamOutcome};
use crate::message::{Count, Dseq, MissingDatagrams, Reason};
use crate::proto::continuity::Continuity;
use crate::proto::ledger::{ForgedRange, Ledger, NumberClaim, SettledRange};
use crate::proto::window::SubEntry;

impl RecvStream {
    /// A datagram contradicts the ledger. Whether the ledger was wrong, and now lets it in.
    pub(super) fn is_corrected(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        (dseq, before): (Dseq, u64),
        messages: u64,
        out: &mut Vec<StreamOutcome>,
    ) -> bool {
        let Some(after) = before.checked_add(messages) else { return false };
        let is_wrong = self.ledger.on_contradiction(NumberClaim { dseq, before: Some(before), after });
        if is_wrong {
            self.correct(ctx, (dseq, before), out);
        }
        is_wrong
    }

    /// Word of the highest datagram contradicts the ledger. Whether the ledger was wrong, and now agrees.
    pub(super) fn is_corrected_by_word(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        high: Dseq,
        count: u64,
        out: &mut Vec<StreamOutcome>,
    ) -> bool {
        let is_wrong = self.ledger.on_contradiction(NumberClaim { dseq: high, before: None, after: count });
        if is_wrong {
            self.correct(ctx, (high.next(), count), out);
        }
        is_wrong
    }

    /// Datagrams were accepted that the publisher did not send. What waits for others is told or handed on, and the stream goes on at
    /// `dseq`; what the publisher sent in their place is told as unverified.
    fn correct(&mut self, ctx: &mut ReceiveContext<'_>, (dseq, before): (Dseq, u64), out: &mut Vec<StreamOutcome>) {
        self.drop_held_from(dseq);
        self.ledger.retract_from(dseq, before);
        self.settle(ctx, Reason::Contradicted, out, Ledger::is_waiting);
        self.release(ctx, out);
        let ForgedRange { first, last, messages } = self.ledger.resume_at(dseq, before);
        (self.corrected, self.evicted) = (Some(ctx.now.instant), true);
        ctx.counters.contradicted += 1;
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
                out.push(StreamOutcome::Inbox { messages, reason, missing });
            }
            StreamKind::Bcast { .. } => {
                let range =
                    SettledRange { last, ..SettledRange::of_content(first, ctx.now.instant, Reason::Contradicted) };
                out.push(StreamOutcome::Unverified { range, messages: Count::from_bounds(0, messages) });
            }
        }
    }

    /// Forgets what is held of datagrams from `dseq` on, which the publisher has yet to send.
    fn drop_held_from(&mut self, dseq: Dseq) {
        for datagram in self.held.drop_from(dseq) {
            self.partially_lost.remove(&datagram);
            self.ledger.release();
        }
    }

    /// Whether what is remembered of a subject is not the publisher's own: it is from before a correction, or says that a number was
    /// used before which a later datagram uses. The datagram remembered is then told as unverified.
    pub(super) fn is_untrue(
        &self,
        ctx: &mut ReceiveContext<'_>,
        entry: &SubEntry,
        (dseq, arrival): (Dseq, Arrival),
        item: &StreamItem,
        judged: Continuity,
        out: &mut Vec<StreamOutcome>,
    ) -> bool {
        if self.corrected.is_some_and(|corrected| entry.at <= corrected) {
            return true;
        }
        let is_later = judged == Continuity::Repeat && entry.dseq < dseq && !arrival.repaired && !item.is_absent();
        if is_later && dseq < self.ledger.frontier() {
            ctx.counters.contradicted += 1;
            let range = SettledRange::of_content(entry.dseq, ctx.now.instant, Reason::Contradicted);
            let messages = Count::from_bounds(0, self.ledger.messages_of(entry.dseq));
            out.push(StreamOutcome::Unverified { range, messages });
        }
        is_later
    }
}
