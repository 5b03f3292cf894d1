//! What becomes of a stream in which somebody else sent datagrams in the publisher's name.

use super::item::{Arrival, Item};
use super::{Context, Kind, Outcome, Recv};
use crate::message::{Count, Dseq, MissingDatagrams, Reason};
use crate::proto::ledger::{Claim, Forged, Ledger, Settled};
use crate::proto::stream::Judgement;
use crate::proto::window::SubEntry;

impl Recv {
    /// A datagram contradicts the ledger. Whether the ledger was wrong, and now lets it in.
    pub(super) fn is_corrected(
        &mut self,
        ctx: &mut Context<'_>,
        (dseq, before): (Dseq, u64),
        messages: u64,
        out: &mut Vec<Outcome>,
    ) -> bool {
        let Some(after) = before.checked_add(messages) else { return false };
        let is_wrong = self.ledger.on_contradiction(Claim { dseq, before: Some(before), after });
        if is_wrong {
            self.correct(ctx, (dseq, before), out);
        }
        is_wrong
    }

    /// Word of the highest datagram contradicts the ledger. Whether the ledger was wrong, and now agrees.
    pub(super) fn is_corrected_by_word(
        &mut self,
        ctx: &mut Context<'_>,
        high: Dseq,
        count: u64,
        out: &mut Vec<Outcome>,
    ) -> bool {
        let is_wrong = self.ledger.on_contradiction(Claim { dseq: high, before: None, after: count });
        if is_wrong {
            self.correct(ctx, (high.next(), count), out);
        }
        is_wrong
    }

    /// Datagrams were accepted that the publisher did not send. What waits for others is told or handed on, and the stream goes on at
    /// `dseq`; what the publisher sent in their place is told as unverified.
    fn correct(&mut self, ctx: &mut Context<'_>, (dseq, before): (Dseq, u64), out: &mut Vec<Outcome>) {
        self.drop_held_from(dseq);
        self.ledger.retract_from(dseq, before);
        self.settle(ctx, Reason::Contradicted, out, Ledger::is_waiting);
        self.release(ctx, out);
        let Forged { first, last, messages } = self.ledger.go_on_at(dseq, before);
        (self.corrected, self.evicted) = (Some(ctx.now.instant), true);
        ctx.counters.contradicted += 1;
        if let Kind::Bcast { birth } = &mut self.kind {
            *birth = None;
        }
        if messages == 0 || last < first {
            return;
        }
        match self.kind {
            Kind::Ptp => {
                let (reason, missing) = (Reason::Contradicted, MissingDatagrams::default());
                ctx.losses.ibx_loss.add(messages, ctx.now.wall);
                out.push(Outcome::Inbox { messages, reason, missing });
            }
            Kind::Bcast { .. } => {
                let range = Settled { last, ..Settled::of_content(first, ctx.now.instant, Reason::Contradicted) };
                out.push(Outcome::Unverified { range, messages: Count::from_bounds(0, messages) });
            }
        }
    }

    /// Forgets what is held of datagrams from `dseq` on, which the publisher has yet to send.
    fn drop_held_from(&mut self, dseq: Dseq) {
        for datagram in self.held.drop_from(dseq) {
            self.partly.remove(&datagram);
            self.ledger.release();
        }
    }

    /// Whether what is remembered of a subject is not the publisher's own: it is from before a correction, or says that a number was
    /// used before which a later datagram uses. The datagram remembered is then told as unverified.
    pub(super) fn is_untrue(
        &self,
        ctx: &mut Context<'_>,
        entry: &SubEntry,
        (dseq, arrival): (Dseq, Arrival),
        item: &Item,
        judged: Judgement,
        out: &mut Vec<Outcome>,
    ) -> bool {
        if self.corrected.is_some_and(|corrected| entry.at <= corrected) {
            return true;
        }
        let is_later = judged == Judgement::Repeat && entry.dseq < dseq && !arrival.repaired && !item.is_absent();
        if is_later && dseq < self.ledger.frontier() {
            ctx.counters.contradicted += 1;
            let range = Settled::of_content(entry.dseq, ctx.now.instant, Reason::Contradicted);
            let messages = Count::from_bounds(0, self.ledger.messages_of(entry.dseq));
            out.push(Outcome::Unverified { range, messages });
        }
        is_later
    }
}
