//! What becomes of an item of a stream.

use super::item::{Arrival, Item};
use super::{Context, Kind, Outcome};
use crate::message::{DeliveryMode, Verdict};
use crate::proto::interest::Matched;
use std::sync::Arc;

/// What becomes of an item.
pub(super) enum Judged {
    /// It has to wait.
    Waits,
    /// Nothing: nobody wants it, or it came before, or what it stands for has been told.
    Done,
    /// It is for this peer itself.
    Service,
    /// It is for a member of a queue group that is not here any more.
    Unserved,
    /// All but its first `repeated` messages are handed on.
    Deliver { repeated: usize, verdict: Verdict, offset: Option<u32>, matched: Arc<Matched> },
}

/// What becomes of an item that no subscription here wants.
pub(super) fn unwanted(ctx: &Context<'_>, item: &Item) -> Judged {
    // Members of queue groups are in mode repair.
    let is_unserved = ctx.mode == DeliveryMode::Repair && item.is_for_member(ctx.own);
    if is_unserved { Judged::Unserved } else { Judged::Done }
}

/// Hands on an item that does not wait.
#[inline]
pub(super) fn hand_on(kind: Kind, item: Item, arrival: Arrival, judged: Judged, out: &mut Vec<Outcome>) {
    match judged {
        Judged::Deliver { repeated, verdict, offset, matched } => {
            out.push(Outcome::Deliver { item, repeated, repaired: arrival.repaired, verdict, offset, matched });
        }
        Judged::Service => item.for_each(|message| out.push(Outcome::Service(message))),
        Judged::Unserved => out.push(Outcome::Unserved { item, directed: kind == Kind::Ptp }),
        Judged::Waits | Judged::Done => {}
    }
}
