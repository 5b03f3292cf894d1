//! Disposition of an item of a stream.

use super::item::{Arrival, StreamItem};
use super::{ReceiveContext, StreamKind, StreamOutcome};
use crate::message::{DeliveryMode, Verdict};
use crate::proto::interest::MatchSet;
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
