//! Detection of contradictory datagrams with the publisher's epoch: another sender forged one of them.
//!
//! A publisher never contradicts itself. The ledger discards a datagram that contradicts its state, for it may be the
//! forged one. Two such datagrams that agree with each other show that a forged one was accepted before. The ledger
//! then continues from their numbers.

use super::Ledger;
use crate::message::Dseq;
use std::cmp::Ordering;

/// Number of recently accepted datagrams that the ledger remembers, to find the last genuine one among them.
const MARKS: usize = 8;

/// State for the detection of forged datagrams.
#[derive(Clone, Debug)]
pub(super) struct AcceptedMarks {
    /// Accepted datagrams, each with the messages begun up to its end; the oldest is overwritten.
    accepted: [(Dseq, u64); MARKS],
    next: usize,
    /// Last claim discarded because it contradicted the ledger.
    discarded: Option<(Dseq, u64)>,
}

impl AcceptedMarks {
    /// Creates the state before any datagram above `baseline` is accepted.
    pub(super) fn new(baseline: (Dseq, u64)) -> AcceptedMarks {
        AcceptedMarks { accepted: [baseline; MARKS], next: 0, discarded: None }
    }

    /// Records an accepted datagram.
    #[inline]
    pub(super) fn on_accepted(&mut self, dseq: Dseq, after: u64) {
        self.accepted[self.next] = (dseq, after);
        self.next = (self.next + 1) % MARKS;
    }

    /// Returns the highest accepted datagram below `dseq` that agrees with `before` messages begun below `dseq`.
    fn last_genuine(&self, dseq: Dseq, before: u64) -> Option<(Dseq, u64)> {
        let claim = NumberClaim { dseq, before: Some(before), after: before };
        self.accepted.iter().filter(|mark| mark.0 < dseq && claim.fits(**mark)).max().copied()
    }

    /// Returns the messages begun in a recently accepted datagram, if they are known.
    fn messages_of(&self, dseq: Dseq) -> Option<u64> {
        let after = self.accepted.iter().find(|mark| mark.0 == dseq)?.1;
        let before = self.accepted.iter().find(|mark| mark.0.next() == dseq)?.1;
        after.checked_sub(before)
    }
}

/// Claim about the publisher's numbers, by a datagram or an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberClaim {
    /// Number of the datagram, or the announced highest number.
    pub dseq: Dseq,
    /// Number of messages begun below that datagram; `None` for an announcement.
    pub before: Option<u64>,
    /// Number of messages begun up to its end.
    pub after: u64,
}

impl NumberClaim {
    /// Returns whether this claim and an accepted datagram, with the messages begun up to its end, can both be the
    /// publisher's own.
    fn fits(&self, (accepted, count): (Dseq, u64)) -> bool {
        match accepted.cmp(&self.dseq) {
            Ordering::Less if accepted.next() == self.dseq => {
                self.before.map_or(count <= self.after, |before| before == count)
            }
            Ordering::Less => count <= self.before.unwrap_or(self.after),
            Ordering::Equal => count == self.after,
            Ordering::Greater => self.after <= count,
        }
    }
}

/// Datagrams that another sender may have forged, and the genuine messages missing there. Empty if `first` is above
/// `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgedRange {
    /// Lowest number.
    pub first: Dseq,
    /// Highest number.
    pub last: Dseq,
    /// Maximum number of messages that the publisher's own datagrams of these numbers held.
    pub messages: u64,
}

impl Ledger {
    /// Handles a discarded claim that contradicts the ledger. Returns whether the ledger is wrong: an accepted datagram
    /// contradicts the claim, and the previously discarded claim does not.
    pub fn on_contradiction(&mut self, claim: NumberClaim) -> bool {
        let agrees = self.marks.discarded.is_some_and(|earlier| earlier.0 <= claim.dseq && claim.fits(earlier));
        self.marks.discarded = Some((claim.dseq, claim.after));
        let mut accepted = self.marks.accepted.iter().chain([&self.arrived]);
        agrees && self.states.baseline < claim.dseq && accepted.any(|mark| !claim.fits(*mark))
    }

    /// Returns the maximum number of messages of a recently accepted datagram; `u64::MAX` if it is no longer known.
    pub fn messages_of(&self, dseq: Dseq) -> u64 {
        self.marks.messages_of(dseq).unwrap_or(u64::MAX)
    }

    /// Retracts the state of datagrams from `dseq` on, below which `before` messages begin: the publisher has not sent
    /// them yet. None of them may be buffered.
    pub fn retract_from(&mut self, dseq: Dseq, before: u64) {
        let below = Dseq(dseq.0 - 1);
        if self.states.high <= below {
            return;
        }
        self.retract(below, before);
        // Datagrams that arrived count as delivered; the location of abandoned content is unknown.
        let s = &mut self.states;
        let sum = s.delivered + s.buffered + s.pending + s.lost + s.unverified;
        let mut excess = sum - (s.high.0 - s.baseline.0);
        for state in [&mut s.delivered, &mut s.lost, &mut s.unverified] {
            let taken = excess.min(*state);
            *state -= taken;
            excess -= taken;
        }
        s.repaired = s.repaired.min(s.delivered);
    }

    /// Resumes at `dseq`, below which `before` messages begin, once nothing below it is awaited. Returns the datagrams
    /// below it that are not the publisher's own, or never arrived.
    pub fn resume_at(&mut self, dseq: Dseq, before: u64) -> ForgedRange {
        let below = Dseq(dseq.0 - 1);
        let last_genuine = self.marks.last_genuine(dseq, before).unwrap_or((self.states.baseline, 0));
        self.states.unverified += below.0 - self.states.high.0;
        (self.states.high, self.count, self.arrived) = (below, before, (below, before));
        self.marks = AcceptedMarks::new(self.arrived);
        ForgedRange { first: last_genuine.0.next(), last: below, messages: before.saturating_sub(last_genuine.1) }
    }
}
