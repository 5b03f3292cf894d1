//! Offsets of logged events, seed 000: arithmetic modulo N, the server's answers, and the client's actions.
//!
//! An offset is a number in `0..=N-1`; the next offset after `n` is `s(n) = (n + 1) % N`. Offsets wrap around, so they
//! do not reliably indicate order. A [`HistorySpan`] describes the content of a history.
//!
//! [`HistorySpan::answer`] implements the server's table, and [`Tracker`] the client's. N is 2^32 except in tests. This
//! module is independent of the events and of their transport.

use crate::message::Epoch;
use crate::seqno::Seq;

/// N: offsets are in `0..=N-1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modulus(u64);

impl Modulus {
    /// The N of the seed and of the wire: 2^32.
    pub const WIRE: Modulus = Modulus(1 << 32);

    /// Creates another N, from 2 to 2^32; returns `None` outside that range. Tests use a small N, with which rare cases
    /// are frequent.
    pub fn new(n: u64) -> Option<Modulus> {
        (2 <= n && n <= 1 << 32).then_some(Modulus(n))
    }

    /// Returns s(n), the offset after `n`.
    pub fn successor(self, n: u32) -> u32 {
        self.advance(n, 1)
    }

    /// Returns the offset before `n`.
    pub fn predecessor(self, n: u32) -> u32 {
        self.advance(n, self.0 - 1)
    }

    /// Returns the offset `steps` after `n`.
    pub fn advance(self, n: u32, steps: u64) -> u32 {
        u32::try_from((u64::from(n) + steps % self.0) % self.0).expect("N is at most 2^32")
    }

    /// Returns the number of steps from `from` to `to`: 0 to N-1.
    pub fn distance(self, from: u32, to: u32) -> u64 {
        (u64::from(to) + self.0 - u64::from(from) % self.0) % self.0
    }
}

/// Range of events of one subject in a history: at least one event, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistorySpan {
    /// n0: the offset of the oldest event.
    pub first: u32,
    /// n1: the offset of the newest event.
    pub last: u32,
    /// The number of the oldest event.
    pub first_seq: Seq,
    /// The number of the newest event.
    pub last_seq: Seq,
}

/// The three cases of a poll in the seed, without their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollCase {
    /// Case 1: event `s(n)` is present in history.
    Successor,
    /// Case 2: event `n` is present in history, and event `s(n)` is not; or the history is empty.
    NoEvent,
    /// Case 3: neither event is present in a history with other events.
    Recovery,
}

impl HistorySpan {
    /// Returns the number of events, at least 1.
    pub fn count(&self, modulus: Modulus) -> u64 {
        modulus.distance(self.first, self.last) + 1
    }

    /// Returns whether the event with offset `n` is in the history.
    pub fn contains(&self, modulus: Modulus, n: u32) -> bool {
        modulus.distance(self.first, n) < self.count(modulus)
    }

    /// Returns the server's answer to a poll with offset `n`, from the span of the history; `None` is an empty history.
    pub fn answer(span: Option<HistorySpan>, modulus: Modulus, n: u32) -> PollCase {
        match span {
            None => PollCase::NoEvent,
            Some(span) if span.contains(modulus, modulus.successor(n)) => PollCase::Successor,
            Some(span) if span.contains(modulus, n) => PollCase::NoEvent,
            Some(_) => PollCase::Recovery,
        }
    }
}

/// An answer to a poll, without the content of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollReply {
    /// Case 1, and each further event of a batch: the event with this offset and number.
    Event {
        /// The event's offset.
        offset: u32,
        /// The event's number.
        seq: Seq,
    },
    /// Case 2: nothing new.
    NoEvent,
    /// Case 3: the history does not contain the poll's offset. It holds this span.
    Recovery(HistorySpan),
}

/// Next action of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackerAction {
    /// Deliver the event, which is the next one, and poll again at once.
    Deliver {
        /// True if the event belongs to a recovery phase, which its event n1 ends.
        recovery: bool,
    },
    /// No new event exists. Poll again later.
    Wait,
    /// Events were lost, or this client has received none yet. A recovery phase over `span` begins. Poll again at once.
    Recover {
        /// Available events; the phase ends with the last one.
        span: HistorySpan,
        /// Number of events lost between the last one received and the first one available, if known.
        lost: Option<u64>,
    },
    /// The publisher has a new epoch, so the previous offsets are void. Poll again at once. If the publisher has events
    /// already, a recovery phase over `span` begins.
    Restart {
        /// Available events.
        span: Option<HistorySpan>,
    },
    /// The answer does not belong to the poll that this client would send now. Poll again.
    Unexpected,
}

/// State of a client that polls one subject of one publisher; implements the seed's table of next actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracker {
    modulus: Modulus,
    /// n: the offset of the last event received; 0 before the first one.
    offset: u32,
    /// Number of that event, if it was received in this epoch of the publisher.
    seq: Option<Seq>,
    /// Epoch of the publisher in its last answer; always `None` in a client that ignores epochs.
    epoch: Option<Epoch>,
    /// n1 of the recovery phase.
    recovery: Option<u32>,
}

impl Default for Tracker {
    fn default() -> Tracker {
        Tracker::new(Modulus::WIRE, 0)
    }
}

impl Tracker {
    /// Creates the tracker of a client whose last event has offset `offset`; 0 for a client without events.
    pub fn new(modulus: Modulus, offset: u32) -> Tracker {
        Tracker { modulus, offset: modulus.advance(offset, 0), seq: None, epoch: None, recovery: None }
    }

    /// Returns the offset to poll with. A transport error does not change it.
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// Returns the number of the last event, if it was received in this epoch of the publisher.
    pub fn seq(&self) -> Option<Seq> {
        self.seq
    }

    /// Returns whether the next events belong to a recovery phase.
    pub fn in_recovery(&self) -> bool {
        self.recovery.is_some()
    }

    /// Handles an answer to the poll with [`Tracker::offset`], from a publisher in `epoch` whose history of the subject
    /// now holds `span`. The events of a batch are handled one by one, each with the same `epoch` and `span`.
    ///
    /// A client that ignores epochs passes `None`. A restart is then detected by offset only, with the seed's
    /// probabilities.
    pub fn on_answer(&mut self, epoch: Option<Epoch>, span: Option<HistorySpan>, reply: PollReply) -> TrackerAction {
        let before = std::mem::replace(&mut self.epoch, epoch);
        if before.is_some() && before != epoch {
            // The restart is certain, even if the offsets happen to match.
            self.seq = None;
            self.offset = 0;
            self.recovery = None;
            if let Some(span) = span {
                self.start_recovery(span);
            }
            return TrackerAction::Restart { span };
        }
        match reply {
            PollReply::Event { offset, seq } if offset == self.modulus.successor(self.offset) => {
                let recovery = self.in_recovery();
                self.offset = offset;
                self.seq = Some(seq);
                self.recovery = self.recovery.filter(|last| *last != offset);
                TrackerAction::Deliver { recovery }
            }
            PollReply::Event { .. } => TrackerAction::Unexpected,
            PollReply::NoEvent => {
                // The other events of the phase have left the history, so the phase ends.
                self.recovery = None;
                TrackerAction::Wait
            }
            PollReply::Recovery(span) => {
                let lost = self.seq.and_then(|seq| lost_between(seq, span.first_seq));
                self.start_recovery(span);
                TrackerAction::Recover { span, lost }
            }
        }
    }

    /// Starts a recovery phase: the next event is `span.first`, and a poll returns the event after its offset.
    fn start_recovery(&mut self, span: HistorySpan) {
        self.offset = self.modulus.predecessor(span.first);
        self.recovery = Some(span.last);
    }
}

/// Returns the number of messages between two ascending numbers of one frame; `None` otherwise.
fn lost_between(seq: Seq, next: Seq) -> Option<u64> {
    let is_counted = seq.frame() == next.frame() && seq < next;
    is_counted.then(|| next.count() - seq.count() - 1)
}

#[cfg(test)]
mod tests;
