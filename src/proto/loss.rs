//! The counters of `show loss` for one publisher.

use crate::message::{Count, Publisher, Reason};
use crate::proto::stats::{DatagramStates, LossRow, LossTally};
use crate::time::WallTime;

/// Loss counters of one publisher. Counters only rise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossCounters {
    /// Messages received more than once.
    pub repeat: LossTally,
    /// Messages received that no client of this peer subscribes to.
    pub not_sub: LossTally,
    /// Messages received after they were missing and requested (A5).
    pub repaired: LossTally,
    /// Messages lost: the sum of the lower bounds.
    pub msg_loss: LossTally,
    /// The sum of upper less lower bounds.
    pub msg_loss_uncertain: u64,
    /// Messages lost from the directed stream.
    pub ibx_loss: LossTally,
    /// Messages sent before the first contact with a publisher whose age was not known.
    pub before_contact: u64,
    /// Time at which a datagram was last settled as unverified.
    pub unverified_at: Option<WallTime>,
    /// Last reported reason of a lost or unverified range.
    pub reason: Option<Reason>,
    /// Number of reports for each reason, in the order of [`Reason::ALL`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Missing datagrams that this host's kernel dropped.
    pub overrun: u64,
    /// Cross-checks that failed (R12); must stay 0.
    pub inconsistencies: u64,
    /// Messages received, wanted or not.
    pub messages_in: u64,
    /// Datagrams accepted.
    pub datagrams_in: u64,
}

impl LossCounters {
    /// Counts messages proven lost.
    pub fn on_lost(&mut self, count: Count, at: WallTime) {
        self.msg_loss.add(count.min(), at);
        // A hostile publisher may claim any numbers.
        self.msg_loss_uncertain = self.msg_loss_uncertain.saturating_add(count.max() - count.min());
    }

    /// Counts a report of a lost or unverified range with its reason.
    pub fn on_reported(&mut self, reason: Reason) {
        self.reason = Some(reason);
        self.reasons[reason as usize] += 1;
    }

    /// Returns the row of `show loss`.
    pub fn row(&self, publisher: Publisher, unexplained: u64, datagrams: DatagramStates) -> LossRow {
        LossRow {
            publisher,
            repeat: self.repeat,
            not_sub: self.not_sub,
            repaired: self.repaired,
            msg_loss: self.msg_loss,
            msg_loss_uncertain: self.msg_loss_uncertain,
            ibx_loss: self.ibx_loss,
            unverified: LossTally { count: unexplained.saturating_add(self.before_contact), last: self.unverified_at },
            reason: self.reason,
            reasons: self.reasons,
            datagrams,
            overrun: self.overrun,
            inconsistencies: self.inconsistencies,
        }
    }
}
