//! Exact accounting of queue groups between two peers: assignments to members of the other peer, and their outcome.
//!
//! The assigning peer counts assignments by the datagram that carries them. The assigned peer reports, per stream, the
//! datagram up to which everything is settled. It also reports the number of assignments up to there that it served,
//! and the number that it returned. The difference is lost (docs/wire.md 10.8).

use crate::message::Dseq;
use crate::proto::ledger::Ledger;
use crate::wire::{QueueReport, ShareCount};
use std::collections::VecDeque;

/// Maximum number of datagrams with assignments that are remembered for one stream. Beyond that the oldest are settled
/// together with their followers.
const PENDING_MAX: usize = 65_536;

/// Assignments to one peer in one stream, as the sender of the stream counts them.
#[derive(Clone, Debug, Default)]
pub struct Assignments {
    /// Datagrams that complete assigned messages, and the number of assignments up to each. Both rise.
    pending: VecDeque<(Dseq, u64)>,
    totals: AssignmentTotals,
}

/// Sums of [`Assignments`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssignmentTotals {
    /// Last datagram with an assignment.
    last: Dseq,
    /// Number of all assignments.
    total: u64,
    /// Number of assignments in datagrams that the receiver has settled.
    settled: u64,
    /// Number of assignments reported as lost.
    lost: u64,
    /// Number of assignments up to which all are settled or reported as uncertain.
    abandoned: u64,
    /// Number of messages that the receiver returned and that arrived.
    returned: u64,
}

impl Assignments {
    /// Continues the accounting of a receiver that departed and is heard again.
    pub fn resume(totals: AssignmentTotals) -> Assignments {
        Assignments { pending: [(totals.last, totals.total)].into(), totals }
    }

    /// Returns the sums.
    pub fn totals(&self) -> AssignmentTotals {
        self.totals
    }

    /// Counts one assignment whose message ends in this datagram.
    pub fn assign(&mut self, dseq: Dseq) {
        self.totals.total += 1;
        self.totals.last = dseq;
        match self.pending.back_mut() {
            Some((last, total)) if *last == dseq => *total = self.totals.total,
            _ => self.pending.push_back((dseq, self.totals.total)),
        }
        if PENDING_MAX < self.pending.len() {
            self.pending.pop_front();
        }
    }

    /// Counts a message that the receiver returned. Returns false if it cannot have been assigned to it.
    pub fn on_returned(&mut self) -> bool {
        let is_plausible = self.totals.returned < self.totals.total;
        self.totals.returned += u64::from(is_plausible);
        is_plausible
    }

    /// Handles a report of the receiver. Returns the number of assignments that it newly reveals as lost.
    pub fn on_report(&mut self, report: ShareCount) -> u64 {
        while let Some((_, total)) = self.pending.front().filter(|(dseq, _)| *dseq <= report.settled) {
            self.totals.settled = *total;
            self.pending.pop_front();
        }
        self.totals.abandoned = self.totals.abandoned.max(self.totals.settled);
        let missing = self.totals.settled.saturating_sub(report.served.saturating_add(report.returned));
        let newly = missing.saturating_sub(self.totals.lost);
        self.totals.lost += newly;
        newly
    }

    /// Stops waiting for a report. Returns the number of assignments that may not have been served and were not
    /// reported as such.
    pub fn abandon(&mut self) -> u64 {
        let newly = self.totals.total - self.totals.abandoned;
        self.totals.abandoned = self.totals.total;
        newly
    }

    /// Returns whether a report is awaited.
    pub fn is_waiting(&self) -> bool {
        self.totals.abandoned < self.totals.total
    }
}

/// Assignments of one stream, as its receiver counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedShares {
    served: u64,
    returned: u64,
    /// Counts at the last time at which the stream awaited nothing.
    report: ShareCount,
}

impl ReceivedShares {
    /// Counts an assignment that a local member received.
    pub fn on_served(&mut self) {
        self.served += 1;
    }

    /// Counts an assignment that this peer returns to the publisher.
    pub fn on_returned(&mut self) {
        self.returned += 1;
    }

    /// Records the counts for the next report if the stream awaits nothing. They then cover exactly the datagrams sent
    /// up to its highest one.
    pub fn note(&mut self, ledger: &Ledger) {
        if !ledger.is_waiting() {
            self.report = ShareCount { settled: ledger.high(), served: self.served, returned: self.returned };
        }
    }
}

/// Returns the report of both streams, the multicast stream first.
pub fn report(shares: &[ReceivedShares; 2]) -> QueueReport {
    QueueReport { multicast: shares[0].report, directed: shares[1].report }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(settled: u64, served: u64, returned: u64) -> ShareCount {
        ShareCount { settled: Dseq(settled), served, returned }
    }

    /// Proves: W157
    #[test]
    fn unserved_assignments_are_lost_once_settled() {
        let mut assignments = Assignments::default();
        [1, 1, 2, 5].into_iter().for_each(|dseq| assignments.assign(Dseq(dseq)));
        assert_eq!(assignments.on_report(count(1, 1, 0)), 1);
        assert_eq!(assignments.on_report(count(1, 1, 0)), 0, "reported once");
        assert_eq!(assignments.on_report(count(4, 1, 1)), 0);
        assert!(assignments.is_waiting());
        assert_eq!(assignments.abandon(), 1);
        assert_eq!(assignments.abandon(), 0);
        assert_eq!(assignments.on_report(count(5, 1, 1)), 1, "the last assignment was not served");
        assert!(!assignments.is_waiting());
    }

    #[test]
    fn old_assignments_beyond_the_bound_are_settled_later() {
        let mut assignments = Assignments::default();
        (1..=PENDING_MAX as u64 + 3).for_each(|dseq| assignments.assign(Dseq(dseq)));
        assert_eq!(assignments.pending.len(), PENDING_MAX);
        assert_eq!(assignments.on_report(count(3, 0, 0)), 0);
        assert_eq!(assignments.on_report(count(4, 0, 0)), 4);
    }

    /// Proves: W153
    #[test]
    fn more_returns_than_assignments_are_refused() {
        let mut assignments = Assignments::default();
        assignments.assign(Dseq(1));
        assert!(assignments.on_returned() && !assignments.on_returned());
    }

    #[test]
    fn resumed_assignments_are_not_reported_twice() {
        let mut before = Assignments::default();
        before.assign(Dseq(7));
        assert_eq!(before.abandon(), 1);
        let mut after = Assignments::resume(before.totals());
        assert_eq!(after.on_report(count(9, 1, 0)), 0);
        after.assign(Dseq(10));
        assert_eq!(after.on_report(count(10, 1, 0)), 1);
    }
}
