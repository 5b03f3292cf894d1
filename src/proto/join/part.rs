//! The recovery phase of one subject: its events from n0 to n1, in order, or word of those that are gone.

use super::JoinEvent;
use super::splice::ReplayGap;
use crate::message::{Cause, Count, Delivery, Loss, LossScope, Publisher, Reason, Verdict};
use crate::offset::{HistorySpan, Modulus, PollCase};
use crate::proto::history::HistoryEvent;
use crate::proto::question::{Poll, PollAnswer};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use std::collections::VecDeque;

/// What is wanted of one subject.
#[derive(Debug)]
pub(super) struct SubjectReplay {
    pub(super) subject: Subject,
    /// The offset of the event before the next one, to poll with.
    offset: u32,
    /// What was listed: n1 ends the phase.
    span: HistorySpan,
    /// The number of the last event that came, or was told to be lost.
    seq: Option<Seq>,
    /// Events told as lost since the last one that came.
    pub(super) lost: u64,
    is_done: bool,
}

/// What an answer led to.
pub(super) enum ReplayOutcome {
    /// These events, in order.
    Events(Vec<JoinEvent>),
    /// Nothing more comes.
    ReplayGap(Option<ReplayGap>),
    /// It is no answer to the poll.
    Misfit,
}

impl SubjectReplay {
    /// `None` if the span cannot be.
    pub(super) fn new(subject: Subject, span: HistorySpan) -> Option<SubjectReplay> {
        let offset = Modulus::WIRE.predecessor(span.first);
        let HistorySpan { first_seq, last_seq, .. } = span;
        let counted = (first_seq.frame() == last_seq.frame()).then(|| last_seq.count().checked_sub(first_seq.count()));
        let fits = match counted {
            Some(numbers) => numbers == Some(span.count(Modulus::WIRE) - 1),
            None => first_seq < last_seq,
        };
        fits.then_some(SubjectReplay { subject, offset, span, seq: None, lost: 0, is_done: false })
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// How many events are still to come.
    pub(super) fn left(&self) -> u64 {
        Modulus::WIRE.distance(self.offset, self.span.last)
    }

    pub(super) fn poll(&self) -> Poll {
        let count = u16::try_from(self.left()).unwrap_or(u16::MAX);
        Poll { subject: self.subject.clone(), offset: self.offset, count }
    }

    /// Takes the answer to the poll. `held` is what came live of this publisher meanwhile.
    pub(super) fn on_answer(
        &mut self,
        answer: PollAnswer,
        publisher: &Publisher,
        held: &mut VecDeque<JoinEvent>,
        now: WallTime,
    ) -> ReplayOutcome {
        match (answer.case, answer.span) {
            (PollCase::Successor, _) => {
                let mut events = Vec::with_capacity(answer.events.len());
                for event in answer.events {
                    let follows = event.offset == Modulus::WIRE.successor(self.offset) && !self.is_done;
                    let rises = self.seq.is_none_or(|seq| seq < event.seq) && event.seq <= self.span.last_seq;
                    if !follows || !rises {
                        return ReplayOutcome::Misfit;
                    }
                    events.push(JoinEvent::Message(self.take(event, publisher)));
                }
                ReplayOutcome::Events(events)
            }
            // The history has moved on; if its subject began anew, nothing of what was listed is left.
            (PollCase::Recovery, Some(span))
                if span.first_seq <= self.span.last_seq && (1..self.left()).contains(&self.gone_before(&span)) =>
            {
                let events = self.skip_to(&span, publisher, held, now);
                ReplayOutcome::Events(events)
            }
            _ => ReplayOutcome::ReplayGap(self.abandon(publisher, Reason::Expired)),
        }
    }

    fn take(&mut self, HistoryEvent { seq, offset, message, .. }: HistoryEvent, publisher: &Publisher) -> Delivery {
        let verdict = self.verdict();
        (self.offset, self.seq) = (offset, Some(seq));
        self.is_done = self.left() == 0;
        let publisher = publisher.clone();
        let offset = Some(offset);
        Delivery { message, publisher, seq: Some(seq), offset, verdict, repaired: false, replayed: true }
    }

    /// What is said of the next event. That it is the next one its offset says, whatever its number.
    fn verdict(&mut self) -> Verdict {
        match (std::mem::take(&mut self.lost), self.seq) {
            (0, None) => Verdict::First,
            (0, Some(_)) => Verdict::Next,
            (lost, _) => Verdict::Skip(Count::Exact(lost)),
        }
    }

    /// How many of the events that are still to come lie before a span.
    fn gone_before(&self, span: &HistorySpan) -> u64 {
        Modulus::WIRE.distance(Modulus::WIRE.successor(self.offset), span.first)
    }

    /// The number of the next event, if it is of the same frame as the one before.
    fn next(&self) -> Seq {
        self.seq.map_or(self.span.first_seq, |seq| seq.forward(1).unwrap_or(seq))
    }

    /// The events before a span have left the history. Some may have come live meanwhile; the others are lost.
    fn skip_to(
        &mut self,
        span: &HistorySpan,
        publisher: &Publisher,
        held: &mut VecDeque<JoinEvent>,
        now: WallTime,
    ) -> Vec<JoinEvent> {
        let (gone, first) = (self.gone_before(span), self.next());
        self.offset = Modulus::WIRE.predecessor(span.first);
        let before = Seq::new(span.first_seq.raw() - 1);
        let Some(last) = before.filter(|last| last.frame() == first.frame() && first <= *last) else {
            // They end with their frame, or in a later one.
            let last = before.or_else(|| first.forward(gone - 1)).unwrap_or(first).max(first);
            return vec![self.lose(first, last, gone, publisher, now)];
        };
        let mut events = Vec::new();
        let mut next = first;
        for mut delivery in rescue(held, &self.subject, first, last) {
            let Some(seq) = delivery.seq.filter(|seq| next <= *seq) else { continue };
            if next < seq {
                let last = Seq::new(seq.raw() - 1).unwrap_or(next);
                events.push(self.lose(next, last, seq.count() - next.count(), publisher, now));
            }
            delivery.verdict = self.verdict();
            // It stands in for the one that was to come from the history.
            delivery.replayed = true;
            self.seq = Some(seq);
            next = seq.forward(1).unwrap_or(seq);
            events.push(JoinEvent::Message(delivery));
        }
        if next <= last {
            events.push(self.lose(next, last, last.count() + 1 - next.count(), publisher, now));
        }
        events
    }

    fn lose(&mut self, first: Seq, last: Seq, count: u64, publisher: &Publisher, at: WallTime) -> JoinEvent {
        self.seq = Some(last);
        self.lost += count;
        let what = LossScope::Messages { subject: self.subject.clone(), first, last, count: Count::Exact(count) };
        let (publisher, reason, cause) = (publisher.clone(), Reason::Expired, Cause::Network);
        JoinEvent::Loss(Loss { publisher, what, reason, cause, at })
    }

    /// Nothing more comes from the history: what is left of it.
    pub(super) fn abandon(&mut self, publisher: &Publisher, reason: Reason) -> Option<ReplayGap> {
        let count = self.left();
        self.is_done = true;
        let (first, publisher) = (self.next(), publisher.clone());
        (0 < count).then(|| ReplayGap { publisher, first, last: self.span.last_seq.max(first), count, reason })
    }
}

/// Takes out what came live of a subject with numbers from `first` to `last`, in order.
fn rescue(held: &mut VecDeque<JoinEvent>, subject: &Subject, first: Seq, last: Seq) -> Vec<Delivery> {
    let is_it = |event: &JoinEvent| {
        matches!(event, JoinEvent::Message(delivery) if delivery.message.subject == *subject
            && delivery.seq.is_some_and(|seq| first <= seq && seq <= last))
    };
    let (found, rest): (Vec<JoinEvent>, Vec<JoinEvent>) = held.drain(..).partition(is_it);
    held.extend(rest);
    let message = |event| if let JoinEvent::Message(delivery) = event { Some(delivery) } else { None };
    found.into_iter().filter_map(message).collect()
}
