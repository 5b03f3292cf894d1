//! Datagrams that bear the publisher's epoch and contradict each other: somebody else sent one of them.
//!
//! A publisher never contradicts itself. A datagram that contradicts what is known is discarded, for it may be the forged one. Two that
//! agree with each other show that the forged one came before and was accepted: the ledger then goes on from their numbers.

use super::Ledger;
use crate::message::Dseq;
use std::cmp::Ordering;

/// Datagrams accepted last that are kept, to find the last true one among them.
const MARKS: usize = 8;

/// What the ledger needs to find out which datagrams were forged.
#[derive(Clone, Debug)]
pub(super) struct AcceptedMarks {
    /// Datagrams, each with the messages begun up to its end; the oldest is overwritten.
    accepted: [(Dseq, u64); MARKS],
    next: usize,
    /// What was discarded last because it contradicted the ledger.
    discarded: Option<(Dseq, u64)>,
}

impl AcceptedMarks {
    /// Nothing was accepted above `baseline`.
    pub(super) fn new(baseline: (Dseq, u64)) -> AcceptedMarks {
        AcceptedMarks { accepted: [baseline; MARKS], next: 0, discarded: None }
    }

    /// A datagram was accepted.
    #[inline]
    pub(super) fn on_accepted(&mut self, dseq: Dseq, after: u64) {
        self.accepted[self.next] = (dseq, after);
        self.next = (self.next + 1) % MARKS;
    }

    /// The highest datagram accepted below `dseq` that fits `before` messages begun below that.
    fn last_true(&self, dseq: Dseq, before: u64) -> Option<(Dseq, u64)> {
        let claim = NumberClaim { dseq, before: Some(before), after: before };
        self.accepted.iter().filter(|mark| mark.0 < dseq && claim.fits(**mark)).max().copied()
    }

    /// Messages begun in a datagram that was accepted lately, if that is known.
    fn messages_of(&self, dseq: Dseq) -> Option<u64> {
        let after = self.accepted.iter().find(|mark| mark.0 == dseq)?.1;
        let before = self.accepted.iter().find(|mark| mark.0.next() == dseq)?.1;
        after.checked_sub(before)
    }
}

/// What a datagram says of the publisher's numbers, or word of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberClaim {
    /// Its number.
    pub dseq: Dseq,
    /// Messages begun below it; a word does not tell that.
    pub before: Option<u64>,
    /// Messages begun up to its end.
    pub after: u64,
}

impl NumberClaim {
    /// Whether both this and an accepted datagram, with the messages begun up to its end, can be the publisher's own.
    fn fits(&self, (accepted, count): (Dseq, u64)) -> bool {
        match accepted.cmp(&self.dseq) {
            Ordering::Less if accepted.next() == self.dseq => self.before.map_or(count <= self.after, |it| it == count),
            Ordering::Less => count <= self.before.unwrap_or(self.after),
            Ordering::Equal => count == self.after,
            Ordering::Greater => self.after <= count,
        }
    }
}

/// Datagrams that somebody else may have sent, and what is missing in their place. None if the first is above the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgedRange {
    /// The first of them.
    pub first: Dseq,
    /// The last of them.
    pub last: Dseq,
    /// The most messages that the publisher's own datagrams of these numbers held.
    pub messages: u64,
}

impl Ledger {
    /// A claim was discarded because it contradicts the ledger. Tells whether the ledger is wrong: an accepted datagram contradicts it,
    /// and the claim that was discarded before does not.
    pub fn on_contradiction(&mut self, claim: NumberClaim) -> bool {
        let agrees = self.marks.discarded.is_some_and(|earlier| earlier.0 <= claim.dseq && claim.fits(earlier));
        self.marks.discarded = Some((claim.dseq, claim.after));
        let mut accepted = self.marks.accepted.iter().chain([&self.arrived]);
        agrees && self.states.baseline < claim.dseq && accepted.any(|mark| !claim.fits(*mark))
    }

    /// The most messages that a datagram accepted lately can hold; `u64::MAX` if that is not known any more.
    pub fn messages_of(&self, dseq: Dseq) -> u64 {
        self.marks.messages_of(dseq).unwrap_or(u64::MAX)
    }

    /// Takes back what is known of datagrams from `dseq` on, below which `before` messages begin: the publisher has not sent them yet.
    /// Nothing may be held of them.
    pub fn retract_from(&mut self, dseq: Dseq, before: u64) {
        let below = Dseq(dseq.0 - 1);
        if self.states.high <= below {
            return;
        }
        self.retract(below, before);
        // What arrived of them counts as delivered; of given-up content it is not known where it lay.
        let s = &mut self.states;
        let sum = s.delivered + s.held + s.pending + s.lost + s.unverified;
        let mut excess = sum - (s.high.0 - s.baseline.0);
        for state in [&mut s.delivered, &mut s.lost, &mut s.unverified] {
            let taken = excess.min(*state);
            *state -= taken;
            excess -= taken;
        }
        s.repaired = s.repaired.min(s.delivered);
    }

    /// Goes on at `dseq`, below which `before` messages begin, once nothing below it is awaited. Returns the datagrams below it that
    /// are not the publisher's own, or never came.
    pub fn resume_at(&mut self, dseq: Dseq, before: u64) -> ForgedRange {
        let below = Dseq(dseq.0 - 1);
        let last_true = self.marks.last_true(dseq, before).unwrap_or((self.states.baseline, 0));
        self.states.unverified += below.0 - self.states.high.0;
        (self.states.high, self.count, self.arrived) = (below, before, (below, before));
        self.marks = AcceptedMarks::new(self.arrived);
        ForgedRange { first: last_true.0.next(), last: below, messages: before.saturating_sub(last_true.1) }
    }
}
