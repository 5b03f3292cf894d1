//! Rows of `show` about a member, and this peer's report on what it missed of the member.

use super::Member;
use crate::proto::stats::{LossRow, MemberRow};
use crate::time::Instant;
use crate::wire::{NUMBER_LIMIT, Report};

impl Member {
    /// Returns the row of `show loss`. Losses of subscriptions in both modes count for each, as in advisories.
    pub fn loss_row(&self) -> LossRow {
        let (ledger, live) = (self.bcast.ledger(), &self.live_losses);
        let row = self.losses.row(self.publisher.clone(), ledger.unexplained(), ledger.states());
        LossRow {
            msg_loss: row.msg_loss.plus(live.msg_loss),
            msg_loss_uncertain: row.msg_loss_uncertain.saturating_add(live.msg_loss_uncertain),
            inconsistencies: row.inconsistencies + live.inconsistencies,
            ..row
        }
    }

    /// Returns the report on what this peer missed of the member's streams.
    pub fn own_report(&self) -> Report {
        let row = self.loss_row();
        let (states, lost) = (row.datagrams, row.lost());
        Report {
            missing: states.missing(),
            repaired: states.repaired,
            pending: states.pending,
            unverified: states.unverified,
            lost_min: lost.min(),
            lost_max: lost.max(),
            overrun: row.overrun,
            directed_lost: row.ibx_loss.count.min(NUMBER_LIMIT - 1),
        }
    }

    /// Returns the row of `show peers`.
    pub fn row(&self, now: Instant) -> MemberRow {
        MemberRow {
            publisher: self.publisher.clone(),
            address: self.address,
            state: self.state,
            uptime: self.ended.unwrap_or(now).since(self.started),
            last_heard: now.since(self.last_heard),
            messages_in: self.losses.messages_in,
            datagrams_in: self.losses.datagrams_in,
            lost: self.loss_row().msg_loss.count,
            unverified: self.bcast.ledger().unexplained(),
            duplicate_name: self.duplicate_name,
            member: self.certificate.certified.name.clone(),
            has_foreign_name: self.certificate.has_foreign_name,
            is_multicast_dead: self.liveness.is_dead(),
            is_unicast_absent: self.liveness.is_unicast_absent(now, self.heartbeat),
            flow_exclusion: self.receiver.exclusion().map(|lagging| (now.since(lagging.since), lagging.has_reported)),
            is_proven: self.proof.is_proven,
            flow_exclusion_count: self.receiver.exclusion_count(),
            kernel_drops: self.receiver.report().map(|report| report.dropped),
            clock_offset: self.clock_offset.map(|offset| (offset.nanos, offset.age(now))),
        }
    }
}
