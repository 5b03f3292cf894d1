//! The recovery phase of one subject: its events from n0 to n1, in order, or word of those that are gone.

use super::JoinEvent;
use crate::message::{Cause, Count, Delivery, Loss, Missing, Publisher, Reason, Verdict};
use crate::offset::{Case, Modulus, Span};
use crate::proto::question::{Poll, PollAnswer};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Wall;

/// What is wanted of one subject.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) subject: Subject,
    /// The offset of the event before the next one, to poll with.
    offset: u32,
    /// What was listed: n1 ends the phase.
    span: Span,
    /// The number of the last event that came, or was told to be lost.
    seq: Option<Seq>,
    /// Events lost since the last one that came.
    lost: u64,
    is_done: bool,
}

impl Part {
    pub(super) fn new(subject: Subject, span: Span) -> Part {
        let offset = Modulus::WIRE.predecessor(span.first);
        Part { subject, offset, span, seq: None, lost: 0, is_done: false }
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// How many events are still to come.
    fn left(&self) -> u64 {
        Modulus::WIRE.distance(self.offset, self.span.last)
    }

    pub(super) fn poll(&self) -> Poll {
        let count = u16::try_from(self.left()).unwrap_or(u16::MAX);
        Poll { subject: self.subject.clone(), offset: self.offset, count }
    }

    /// Takes the answer to the poll. `None` if it is no answer to it.
    pub(super) fn on_answer(&mut self, answer: PollAnswer, publisher: &Publisher, now: Wall) -> Option<Vec<JoinEvent>> {
        let mut found = Vec::new();
        match (answer.case, answer.span) {
            (Case::Successor, _) => {
                for event in answer.events {
                    let fits = event.offset == Modulus::WIRE.successor(self.offset) && !self.is_done;
                    if !fits || self.seq.is_some_and(|seq| event.seq <= seq) {
                        return None;
                    }
                    let follows = self.seq.is_some_and(|seq| seq.forward(1) == Some(event.seq));
                    let verdict = match std::mem::take(&mut self.lost) {
                        0 if follows => Verdict::Next,
                        0 => Verdict::First,
                        lost => Verdict::Skip(Count::Exact(lost)),
                    };
                    self.offset = event.offset;
                    self.seq = Some(event.seq);
                    self.is_done = self.left() == 0;
                    found.push(JoinEvent::Message(Delivery {
                        message: event.message,
                        publisher: publisher.clone(),
                        seq: Some(event.seq),
                        verdict,
                        repaired: false,
                        replayed: true,
                    }));
                }
            }
            // The history has moved on; if its subject began anew, nothing of what was listed is left.
            (Case::Recovery, Some(span))
                if span.first_seq <= self.span.last_seq && self.gone_before(&span) < self.left() =>
            {
                let gone = self.gone_before(&span);
                let before = Seq::new(span.first_seq.raw() - 1).unwrap_or(self.span.first_seq);
                found.extend(self.lose(gone, before, publisher, Reason::Expired, now).map(JoinEvent::Loss));
                self.offset = Modulus::WIRE.predecessor(span.first);
            }
            _ => found.extend(self.give_up(publisher, Reason::Expired, now).map(JoinEvent::Loss)),
        }
        Some(found)
    }

    /// How many of the events that are still to come lie before a span.
    fn gone_before(&self, span: &Span) -> u64 {
        Modulus::WIRE.distance(Modulus::WIRE.successor(self.offset), span.first)
    }

    /// Nothing more comes: tells the rest as lost.
    pub(super) fn give_up(&mut self, publisher: &Publisher, reason: Reason, now: Wall) -> Option<Loss> {
        self.is_done = true;
        self.lose(self.left(), self.span.last_seq, publisher, reason, now)
    }

    fn lose(&mut self, count: u64, last: Seq, publisher: &Publisher, reason: Reason, now: Wall) -> Option<Loss> {
        if count == 0 {
            return None;
        }
        let first = self.seq.map_or(self.span.first_seq, |seq| seq.forward(1).unwrap_or(seq));
        let last = last.max(first);
        self.seq = Some(last);
        self.lost += count;
        let what = Missing::Messages { subject: self.subject.clone(), first, last, count: Count::Exact(count) };
        Some(Loss { publisher: publisher.clone(), what, reason, cause: Cause::Network, at: now })
    }
}
