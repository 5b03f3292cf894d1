//! Disposition of an item of a stream.

use super::item::{Arrival, StreamItem};
use super::{ReceiveContext, RecvStream, StreamKind, StreamOutcome};
use crate::message::{Count, DeliveryMode, Dseq, MissingDatagrams, Verdict};
use crate::proto::continuity::{SeqPosition, Skip};
use crate::proto::interest::MatchSet;
use crate::proto::ledger::SettledRange;
use std::sync::Arc;

/// Disposition of an item.
pub(super) enum Disposition {
    /// The item must wait.
    Waits,
    /// The item is dropped: no subscription wants it, or it is a repetition, or its loss has been reported.
    Done,
    /// The item is for this peer itself.
    Service,
    /// The item is for a departed member of a queue group.
    Unserved,
    /// All but the first `repeated` messages are delivered.
    Deliver { repeated: usize, verdict: Verdict, offset: Option<u32>, matched: Arc<MatchSet> },
}

/// Returns the disposition of an item that no subscription here wants.
pub(super) fn unwanted(ctx: &ReceiveContext<'_>, item: &StreamItem) -> Disposition {
    // Members of queue groups are in mode repair.
    let is_unserved = ctx.mode == DeliveryMode::Repair && item.is_for_member(ctx.own);
    if is_unserved { Disposition::Unserved } else { Disposition::Done }
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
        Disposition::Waits | Disposition::Done => {}
    }
}

impl RecvStream {
    /// Judges an item whose messages have no number. It waits until everything before its datagram is settled.
    pub(super) fn judge_unnumbered(
        &mut self,
        ctx: &mut ReceiveContext<'_>,
        (dseq, arrival): (Dseq, Arrival),
        item: &StreamItem,
        matched: Arc<MatchSet>,
        settled: bool,
        out: &mut Vec<StreamOutcome>,
    ) -> Disposition {
        if !settled {
            return Disposition::Waits;
        }
        let verdict = if self.kind == StreamKind::Ptp { Verdict::Direct } else { Verdict::Unnumbered };
        let owed = matched.at(arrival.reached);
        match item {
            StreamItem::AbandonedMessage(_) | StreamItem::GoneMessages(_)
                if owed.is_none() && self.kind != StreamKind::Ptp => {}
            StreamItem::AbandonedMessage(doomed) if !doomed.begun => {} // counted among the messages of its first datagram
            StreamItem::AbandonedMessage(doomed) if self.kind == StreamKind::Ptp => {
                ctx.losses.ibx_loss.add(1, ctx.now.wall);
                out.push(StreamOutcome::Inbox {
                    messages: 1,
                    reason: doomed.reason(ctx.reason),
                    missing: MissingDatagrams::default(),
                });
            }
            StreamItem::AbandonedMessage(doomed) => {
                // A missing datagram may still arrive; a message begun in this one is certain.
                let range = SettledRange::of_content(doomed.first, ctx.now.instant, doomed.reason(ctx.reason));
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
        Disposition::Done
    }

    /// Returns the messages missing before the first received message of a subject, which need not be the first one
    /// sent. They are owed if this peer wanted the subject before the publisher started and would remember earlier
    /// messages.
    pub(super) fn missing_since_birth(
        &self,
        place: &SeqPosition,
        matched: &MatchSet,
        interrupted: bool,
    ) -> Option<Skip> {
        match self.kind {
            StreamKind::Bcast { birth: Some(birth) } if matched.oldest <= birth && !self.evicted && !interrupted => {
                if place.stamp.is_some() {
                    None
                } else {
                    place.missing_of_frame()
                }
            }
            _ => None,
        }
    }
}
