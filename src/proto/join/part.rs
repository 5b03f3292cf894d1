//! Recovery phase of one subject: its events from n0 to n1, in order, or reports of their loss.

use super::event::JoinEvent;
use super::splice::ReplayGap;
use crate::message::{Cause, Count, Delivery, Loss, LossScope, Publisher, Reason, Verdict};
use crate::offset::{HistorySpan, Modulus, PollCase};
use crate::proto::history::HistoryEvent;
use crate::proto::question::{Poll, PollAnswer};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use std::collections::VecDeque;

/// Replay of one subject.
#[derive(Debug)]
pub(super) struct SubjectReplay {
    pub(super) subject: Subject,
    /// Offset of the event before the next one, to poll with.
    offset: u32,
    /// Listed span: n1 ends the phase.
    span: HistorySpan,
    /// Sequence number of the last event that arrived, or was reported as lost.
    seq: Option<Seq>,
    /// Number of events reported as lost since the last one that arrived.
    pub(super) lost: u64,
    is_done: bool,
}

/// Outcome of an answer.
pub(super) enum ReplayOutcome {
    /// Events to deliver, in order.
    Events(Vec<JoinEvent>),
    /// The end of the replay, with the remaining gap.
    Gap(Option<ReplayGap>),
    /// The answer does not fit the poll.
    Mismatch,
}

impl SubjectReplay {
    /// Creates the replay of a subject; `None` if the span is impossible.
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

    /// Returns the number of outstanding events.
    pub(super) fn left(&self) -> u64 {
        Modulus::WIRE.distance(self.offset, self.span.last)
    }

    pub(super) fn poll(&self) -> Poll {
        let count = u16::try_from(self.left()).unwrap_or(u16::MAX);
        Poll { subject: self.subject.clone(), offset: self.offset, count }
    }

    /// Handles the answer to the poll. `buffered` are the live events of this publisher received meanwhile.
    pub(super) fn on_answer(
        &mut self,
        answer: PollAnswer,
        publisher: &Publisher,
        buffered: &mut VecDeque<JoinEvent>,
        now: WallTime,
    ) -> ReplayOutcome {
        match (answer.case, answer.span) {
            (PollCase::Successor, _) => {
                let mut events = Vec::with_capacity(answer.events.len());
                for event in answer.events {
                    let follows = event.offset == Modulus::WIRE.successor(self.offset) && !self.is_done;
                    let rises = self.seq.is_none_or(|seq| seq < event.seq) && event.seq <= self.span.last_seq;
                    if !follows || !rises {
                        return ReplayOutcome::Mismatch;
                    }
                    events.push(JoinEvent::Message(self.take(event, publisher)));
                }
                ReplayOutcome::Events(events)
            }
            // The history has advanced. If its subject began anew, it retains none of the listed events.
            (PollCase::Recovery, Some(span))
                if span.first_seq <= self.span.last_seq && (1..self.left()).contains(&self.expired_before(&span)) =>
            {
                let events = self.skip_to(&span, publisher, buffered, now);
                ReplayOutcome::Events(events)
            }
            _ => ReplayOutcome::Gap(self.abandon(publisher, Reason::Expired)),
        }
    }

    fn take(&mut self, HistoryEvent { seq, offset, message, .. }: HistoryEvent, publisher: &Publisher) -> Delivery {
        let verdict = self.verdict();
        (self.offset, self.seq) = (offset, Some(seq));
        self.is_done = self.left() == 0;
        let publisher = publisher.clone();
        let offset = Some(offset);
        Delivery { offset, replayed: true, ..Delivery::new(message, publisher, Some(seq), verdict) }
    }

    /// Returns the verdict on the next event. Its offset, not its number, shows that it is the next one.
    fn verdict(&mut self) -> Verdict {
        match (std::mem::take(&mut self.lost), self.seq) {
            (0, None) => Verdict::First,
            (0, Some(_)) => Verdict::Next,
            (lost, _) => Verdict::Skip(Count::Exact(lost)),
        }
    }

    /// Returns the number of outstanding events before a span.
    fn expired_before(&self, span: &HistorySpan) -> u64 {
        Modulus::WIRE.distance(Modulus::WIRE.successor(self.offset), span.first)
    }

    /// Returns the number of the next event, if it is of the same frame as the one before.
    fn next(&self) -> Seq {
        self.seq.map_or(self.span.first_seq, |seq| seq.forward(1).unwrap_or(seq))
    }

    /// Skips the events before a span, which the history has evicted. Some may have arrived live meanwhile; the others
    /// are lost.
    fn skip_to(
        &mut self,
        span: &HistorySpan,
        publisher: &Publisher,
        buffered: &mut VecDeque<JoinEvent>,
        now: WallTime,
    ) -> Vec<JoinEvent> {
        let (expired, first) = (self.expired_before(span), self.next());
        self.offset = Modulus::WIRE.predecessor(span.first);
        let before = Seq::new(span.first_seq.raw() - 1);
        let Some(last) = before.filter(|last| last.frame() == first.frame() && first <= *last) else {
            // The events end with their frame, or in a later one.
            let last = before.or_else(|| first.forward(expired - 1)).unwrap_or(first).max(first);
            return vec![self.report_lost(first, last, expired, publisher, now)];
        };
        let mut events = Vec::new();
        let mut next = first;
        for mut delivery in take_buffered(buffered, &self.subject, first, last) {
            let Some(seq) = delivery.seq.filter(|seq| next <= *seq) else { continue };
            if next < seq {
                let last = Seq::new(seq.raw() - 1).unwrap_or(next);
                events.push(self.report_lost(next, last, seq.count() - next.count(), publisher, now));
            }
            delivery.verdict = self.verdict();
            // The live message replaces the event of the history.
            delivery.replayed = true;
            self.seq = Some(seq);
            next = seq.forward(1).unwrap_or(seq);
            events.push(JoinEvent::Message(delivery));
        }
        if next <= last {
            events.push(self.report_lost(next, last, last.count() + 1 - next.count(), publisher, now));
        }
        events
    }

    fn report_lost(&mut self, first: Seq, last: Seq, count: u64, publisher: &Publisher, at: WallTime) -> JoinEvent {
        self.seq = Some(last);
        self.lost += count;
        let what = LossScope::Messages { subject: self.subject.clone(), first, last, count: Count::Exact(count) };
        let (publisher, reason, cause) = (publisher.clone(), Reason::Expired, Cause::Network);
        JoinEvent::Loss(Loss { publisher, what, reason, cause, at })
    }

    /// Ends the replay and returns the remaining gap.
    pub(super) fn abandon(&mut self, publisher: &Publisher, reason: Reason) -> Option<ReplayGap> {
        let count = self.left();
        self.is_done = true;
        let (first, publisher) = (self.next(), publisher.clone());
        (0 < count).then(|| ReplayGap { publisher, first, last: self.span.last_seq.max(first), count, reason })
    }
}

/// Removes and returns the live messages of a subject with numbers from `first` to `last`, in order.
fn take_buffered(buffered: &mut VecDeque<JoinEvent>, subject: &Subject, first: Seq, last: Seq) -> Vec<Delivery> {
    let is_skipped = |event: &JoinEvent| {
        matches!(event, JoinEvent::Message(delivery) if delivery.message.subject == *subject
            && delivery.seq.is_some_and(|seq| first <= seq && seq <= last))
    };
    let (found, rest): (Vec<JoinEvent>, Vec<JoinEvent>) = buffered.drain(..).partition(is_skipped);
    buffered.extend(rest);
    let message = |event| if let JoinEvent::Message(delivery) = event { Some(delivery) } else { None };
    found.into_iter().filter_map(message).collect()
}
