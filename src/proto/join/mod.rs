//! Late join: what a subscriber does to begin in a known place with every publisher, and to get what was published before.
//!
//! [`Join`] runs on the side of the client. It asks each known publisher's history for its subjects, and in a recovery
//! phase of seed 000 for the events of each, from n0 to n1. What comes live meanwhile waits outside; then [`Join::on_live`] closes the
//! seam: what the history has given already is dropped, and nothing between is missed in silence.
//!
//! The seam holds because the subscription was active before the question. The publisher's history holds everything up to its highest
//! datagram at the time of the answer; whatever it sends later is first heard of later, and so is owed to the
//! subscription. What was under way meanwhile comes from either side, or from both; numbers tell which.

mod part;
mod seam;
#[cfg(test)]
mod tests;

use crate::message::{Delivery, Dseq, Epoch, Loss, Publisher, Reason};
use crate::offset::Case;
use crate::proto::effect::Unanswered;
use crate::proto::history::{Listed, Selection};
use crate::proto::question::{Answer, AnswerContent, PollAnswer, Question, Refused};
use crate::subject::Pattern;
use crate::time::Wall;
use part::Part;
use seam::Seams;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Questions without an answer at the same time: each answer has about one megabyte at most.
const ASKED_MAX: usize = 8;
/// Subjects in one question of kind LIST.
const LIST_MAX: u16 = 1024;
/// Subjects in one question of kind POLL.
const POLL_MAX: usize = 256;
/// How often a question is asked that stays without answer, or whose answer brings nothing new.
const ATTEMPTS: u32 = 3;

/// Why nothing, or not all, came from a publisher's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjoined {
    /// A question stayed without answer.
    Unanswered(Unanswered),
    /// It refused.
    Refused(Refused),
}

impl fmt::Display for Unjoined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unjoined::Unanswered(reason) => reason.fmt(f),
            Unjoined::Refused(reason) => reason.fmt(f),
        }
    }
}

/// Where a subscription begins with one publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// The publisher.
    pub publisher: Publisher,
    /// The highest datagram that it had multicast when it answered: everything later is delivered, or told as missing.
    /// `None` if it has not answered.
    pub after: Option<Dseq>,
    /// Messages of its history that were handed on.
    pub replayed: u64,
    /// Why there are none, or not all that were asked for.
    pub unjoined: Option<Unjoined>,
}

/// Where a subscription begins: with all publishers that were known when it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// In the order in which they became known.
    pub baselines: Vec<Baseline>,
}

impl Joined {
    /// Whether every publisher has said where the subscription begins.
    pub fn is_established(&self) -> bool {
        self.baselines.iter().all(|baseline| baseline.after.is_some())
    }

    /// Messages of all histories that were handed on.
    pub fn replayed(&self) -> u64 {
        self.baselines.iter().map(|baseline| baseline.replayed).sum()
    }
}

/// What a subscriber gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinEvent {
    /// A message, from a history or live.
    Message(Delivery),
    /// A loss, in a history or live.
    Loss(Loss),
    /// The subscription has begun with all publishers that were known when it was made; all that follows is live, but for
    /// the histories of publishers that become known later.
    Joined(Joined),
}

/// A publisher.
#[derive(Debug)]
struct Source {
    baseline: Baseline,
    /// The pattern whose subjects are being listed; beyond the last one all are.
    pattern: usize,
    /// Where to go on listing.
    from: u32,
    /// Subjects to be polled, and those that the present question is about.
    parts: VecDeque<Part>,
    asked: Vec<Part>,
    is_asked: bool,
    attempts: u32,
    /// Whether the question at hand has brought anything new.
    has_progress: bool,
    is_done: bool,
}

/// See the head of this file. Nothing in it waits: it gives questions, takes answers, and gives events.
#[derive(Debug)]
pub struct Join {
    patterns: Vec<Pattern>,
    /// What is wanted of the histories; `None` for nothing but the place where it begins.
    selection: Option<Selection>,
    sources: BTreeMap<Epoch, Source>,
    /// In the order in which they became known.
    order: Vec<Epoch>,
    /// Whether all publishers that were known at first have been named.
    is_complete: bool,
    is_told: bool,
    events: VecDeque<JoinEvent>,
    seams: Seams,
}

impl Join {
    /// A subscription to `patterns` that has just become active. `selection` is what is wanted of the histories; with `None`
    /// that is nothing, and publishers only confirm where it begins.
    pub fn new(patterns: Vec<Pattern>, selection: Option<Selection>) -> Join {
        Join {
            patterns,
            selection,
            sources: BTreeMap::new(),
            order: Vec::new(),
            is_complete: false,
            is_told: false,
            events: VecDeque::new(),
            seams: Seams::default(),
        }
    }

    /// A publisher is known; `None`: those that were known when the subscription was made have all been named.
    pub fn on_known(&mut self, publisher: Option<Publisher>) {
        let Some(publisher) = publisher else {
            self.is_complete = true;
            return self.tell_if_joined();
        };
        let epoch = publisher.epoch;
        if self.sources.contains_key(&epoch) || self.is_told && self.selection.is_none() {
            return;
        }
        let source = Source {
            baseline: Baseline { publisher, after: None, replayed: 0, unjoined: None },
            pattern: 0,
            from: 0,
            parts: VecDeque::new(),
            asked: Vec::new(),
            is_asked: false,
            attempts: 0,
            has_progress: false,
            is_done: false,
        };
        self.sources.insert(epoch, source);
        self.order.push(epoch);
    }

    /// The next question to ask, and whom; its answer goes to [`Join::on_answer`]. Events are to be taken first, so that
    /// a slow reader is not given more than it reads.
    pub fn poll_question(&mut self) -> Option<(Epoch, Question)> {
        if ASKED_MAX <= self.sources.values().filter(|source| source.is_asked).count() {
            return None;
        }
        let may_poll = self.events.is_empty();
        let is_due =
            |source: &&mut Source| !source.is_done && !source.is_asked && (may_poll || source.baseline.after.is_none());
        let source = self.sources.values_mut().find(is_due)?;
        source.is_asked = true;
        source.has_progress = false;
        let epoch = source.baseline.publisher.epoch;
        if source.parts.is_empty() {
            let pattern = self.patterns[source.pattern].clone();
            // A place to begin needs no more of the answer than its head.
            let selection = self.selection.unwrap_or(Selection { newest: Some(1), age: None });
            let limit = if self.selection.is_some() { LIST_MAX } else { 1 };
            return Some((epoch, Question::List { pattern, selection, from: source.from, limit }));
        }
        let count = source.parts.len().min(POLL_MAX);
        source.asked = source.parts.drain(..count).collect();
        Some((epoch, Question::Poll(source.asked.iter().map(Part::poll).collect())))
    }

    /// A part of an answer of a publisher, or why there is none. `now` dates what is found to be lost.
    pub fn on_answer(&mut self, now: Wall, from: Epoch, answer: Result<Answer, Unanswered>) {
        let Some(source) = self.sources.get_mut(&from).filter(|source| source.is_asked) else { return };
        let answer = match answer {
            Ok(Answer { content: AnswerContent::Refused(reason), high, .. }) => {
                // One that keeps no history says where it stands all the same.
                source.baseline.after.get_or_insert(high);
                return self.fail(
                    now,
                    from,
                    (reason != Refused::Off || self.selection.is_some()).then_some(Unjoined::Refused(reason)),
                );
            }
            Ok(answer) => answer,
            Err(Unanswered::Timeout | Unanswered::TooMany) if source.attempts + 1 < ATTEMPTS => {
                source.attempts += 1;
                return source.ask_again();
            }
            Err(reason) => return self.fail(now, from, Some(Unjoined::Unanswered(reason))),
        };
        source.baseline.after.get_or_insert(answer.high);
        let fits = match answer.content {
            AnswerContent::List { listed, next } => self.on_listed(from, listed, next, answer.last),
            AnswerContent::Poll { first, answers } => {
                self.on_polled(now, from, usize::from(first), answers, answer.last)
            }
            AnswerContent::Fetch { .. } | AnswerContent::Refused(_) => false,
        };
        if !fits {
            self.fail(now, from, Some(Unjoined::Unanswered(Unanswered::Malformed)));
        }
        self.tell_if_joined();
    }

    /// The way to the publishers has ended: nothing more is asked.
    pub fn give_up(&mut self, now: Wall) {
        for epoch in self.order.clone() {
            if self.sources.get(&epoch).is_some_and(|source| !source.is_done) {
                self.fail(now, epoch, Some(Unjoined::Unanswered(Unanswered::Gone)));
            }
        }
        self.on_known(None);
    }

    /// What there is to hand on.
    pub fn poll_event(&mut self) -> Option<JoinEvent> {
        self.events.pop_front()
    }

    /// Whether what comes live has to wait.
    pub fn is_joining(&self) -> bool {
        !self.is_complete || self.sources.values().any(|source| !source.is_done)
    }

    /// Takes a message that came live, when nothing is being joined any more.
    pub fn on_live(&mut self, now: Wall, delivery: Delivery) {
        self.seams.on_message(now, delivery, &mut self.events);
    }

    /// Takes a loss that was told live, when nothing is being joined any more.
    pub fn on_loss(&mut self, loss: Loss) {
        self.events.extend(self.seams.on_loss(loss).map(JoinEvent::Loss));
    }

    /// Live messages were dropped because the subscriber did not read fast enough: what is missing at a seam may be those.
    pub fn on_dropped(&mut self) {
        self.seams.on_dropped();
    }

    /// Where the subscription begins, as soon as every publisher known at first has answered or will not.
    pub fn baselines(&self) -> Option<Joined> {
        let is_settled = |source: &Source| source.is_done || source.baseline.after.is_some();
        (self.is_complete && self.sources.values().all(is_settled)).then(|| self.joined())
    }

    fn joined(&self) -> Joined {
        Joined { baselines: self.order.iter().map(|epoch| self.sources[epoch].baseline.clone()).collect() }
    }

    fn tell_if_joined(&mut self) {
        if !self.is_told && !self.is_joining() {
            self.is_told = true;
            self.events.push_back(JoinEvent::Joined(self.joined()));
        }
    }

    /// Takes the subjects of a part of a listing. False if it does not fit the question.
    fn on_listed(&mut self, from: Epoch, listed: Vec<Listed>, next: Option<u32>, is_last: bool) -> bool {
        let Some(source) = self.sources.get_mut(&from) else { return false };
        if !source.asked.is_empty() || next.is_some_and(|next| next <= source.from) {
            return false;
        }
        if self.selection.is_none() {
            source.is_asked = !is_last;
            source.is_done = is_last;
            return true;
        }
        for Listed { subject, span } in listed {
            // Several patterns may match one subject.
            if self.seams.begin(from, &subject, &span) {
                source.parts.push_back(Part::new(subject, span));
            }
        }
        if is_last {
            source.is_asked = false;
            source.attempts = 0;
            match next {
                Some(next) => source.from = next,
                None => (source.pattern, source.from) = (source.pattern + 1, 0),
            }
            source.is_done = self.patterns.len() <= source.pattern && source.parts.is_empty();
        }
        true
    }

    /// Takes a part of the answers to the polls at hand. False if they do not fit.
    fn on_polled(&mut self, now: Wall, from: Epoch, first: usize, answers: Vec<PollAnswer>, is_last: bool) -> bool {
        let Some(source) = self.sources.get_mut(&from) else { return false };
        let Some(asked) = source.asked.get_mut(first..first + answers.len()) else { return false };
        for (part, answer) in asked.iter_mut().zip(answers) {
            if part.subject != answer.subject {
                return false;
            }
            source.has_progress |= answer.case != Case::Successor || !answer.events.is_empty();
            let publisher = &source.baseline.publisher;
            let Some(found) = part.on_answer(answer, publisher, now) else { return false };
            for event in found {
                if let JoinEvent::Message(_) = event {
                    source.baseline.replayed += 1;
                }
                self.events.push_back(event);
            }
        }
        if is_last {
            source.is_asked = false;
            source.attempts = if source.has_progress { 0 } else { source.attempts + 1 };
            // What is not all there is asked for again, before anything else.
            for part in std::mem::take(&mut source.asked).into_iter().rev() {
                if !part.is_done() {
                    source.parts.push_front(part);
                }
            }
            source.is_done = self.patterns.len() <= source.pattern && source.parts.is_empty();
            return source.attempts < ATTEMPTS;
        }
        true
    }

    /// Nothing more comes of a publisher's history: what was listed and has not come is lost.
    fn fail(&mut self, now: Wall, from: Epoch, unjoined: Option<Unjoined>) {
        let Some(source) = self.sources.get_mut(&from) else { return };
        source.is_asked = false;
        source.is_done = true;
        source.baseline.unjoined = unjoined;
        let reason = match unjoined {
            Some(Unjoined::Unanswered(Unanswered::Gone | Unanswered::UnknownPeer)) => Reason::PublisherGone,
            _ => Reason::Deadline,
        };
        let parts = std::mem::take(&mut source.asked).into_iter().chain(std::mem::take(&mut source.parts));
        for mut part in parts.filter(|part| !part.is_done()) {
            self.events.extend(part.give_up(&source.baseline.publisher, reason, now).map(JoinEvent::Loss));
        }
        self.tell_if_joined();
    }
}

impl Source {
    /// The question at hand is asked once more.
    fn ask_again(&mut self) {
        self.is_asked = false;
        for part in std::mem::take(&mut self.asked).into_iter().rev().filter(|part| !part.is_done()) {
            self.parts.push_front(part);
        }
    }
}
