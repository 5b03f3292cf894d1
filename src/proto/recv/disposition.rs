//! What becomes of an item of a stream.

use super::item::{Arrival, StreamItem};
use super::{ReceiveContext, StreamKind, StreamOutcome};
use crate::message::{DeliveryMode, Verdict};
use crate::proto::interest::MatchSet;
use std::sync::Arc;

/// What becomes of an item.
pub(super) enum Disposition {
    /// It has to wait.
    Waits,
    /// Nothing: nobody wants it, or it came before, or what it stands for has been told.
    Done,
    /// It is for this peer itself.
    Service,
    /// It is for a member of a queue group that is not here any more.
    Unserved,
    /// All but its first `repeated` messages are handed on.
    Deliver { repeated: usize, verdict: Verdict, offset: Option<u32>, matched: Arc<MatchSet> },
}

/// What becomes of an item that no subscription here wants.
pub(super) fn unwanted(ctx: &ReceiveContext<'_>, item: &StreamItem) -> Disposition {
    // Members of queue groups are in mode repair.
    let is_unserved = ctx.mode == DeliveryMode::Repair && item.is_for_member(ctx.own);
    if is_unserved { Disposition::Unserved } else { Disposition::Done }
}

/// Hands on an item that does not wait.
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
