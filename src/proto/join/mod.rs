//! Late join: what a subscriber does to begin in a known place with every publisher, and to get what was published before.
//!
//! [`Join`] runs on the side of the client. It asks each known publisher's history for its subjects, and in a recovery
//! phase of seed 000 for the events of each, from n0 to n1. What comes live of that publisher meanwhile is held; then the
//! seam is closed: what the history has given already is dropped, and nothing between is missed in silence.
//!
//! The seam holds because the subscription was active before the question. What the publisher had multicast by the time of its
//! answer is in its history, as far as that keeps it; whatever it sends later is first heard of later, and so is owed to
//! the subscription. What was under way meanwhile comes from either side, or from both; numbers tell which.

mod part;
mod splice;
#[cfg(test)]
mod tests;

use crate::message::{Delivery, Dseq, Epoch, Loss, Publisher, Reason};
use crate::proto::effect::QuestionFailure;
use crate::proto::history::{ListedSubject, Selection};
use crate::proto::mutant::{Mutant, Mutants};
use crate::proto::question::{Answer, AnswerContent, PollAnswer, Question, Refused};
use crate::subject::Pattern;
use crate::time::WallTime;
use part::{ReplayOutcome, SubjectReplay};
use splice::Splices;
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
/// Live events that are held for publishers whose histories are being read, and their bytes. Then no more are to be
/// handed in.
const HELD_MAX: (usize, usize) = (65_536, 64 << 20);
/// Subjects of all publishers together that are asked for.
const SUBJECTS_MAX: usize = 1_000_000;

/// Why nothing, or not all, came from a publisher's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinFailure {
    /// A question stayed without answer.
    QuestionFailure(QuestionFailure),
    /// It refused.
    Refused(Refused),
    /// There are more subjects than one subscription can begin with: 1,000,000.
    TooManySubjects,
}

impl fmt::Display for JoinFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinFailure::QuestionFailure(reason) => reason.fmt(f),
            JoinFailure::Refused(reason) => reason.fmt(f),
            JoinFailure::TooManySubjects => {
                write!(f, "more than {SUBJECTS_MAX} subjects; subscribe to several narrower patterns apart")
            }
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
    pub unjoined: Option<JoinFailure>,
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
struct JoinSource {
    baseline: Baseline,
    /// The pattern whose subjects are being listed; beyond the last one all are.
    pattern: usize,
    /// Where to go on listing.
    from: u32,
    /// Subjects to be polled, and those that the present question is about.
    parts: VecDeque<SubjectReplay>,
    asked: Vec<SubjectReplay>,
    is_asked: bool,
    /// The number of the next part of the answer.
    part: u16,
    attempts: u32,
    /// Whether the question at hand has brought anything new.
    has_progress: bool,
    is_done: bool,
    /// What came live meanwhile.
    held: VecDeque<JoinEvent>,
}

/// See the head of this file. Nothing in it waits: it gives questions, takes answers and live events, and gives events.
#[derive(Debug)]
pub struct Join {
    patterns: Vec<Pattern>,
    /// What is wanted of the histories; `None` for nothing but the place where it begins.
    selection: Option<Selection>,
    sources: BTreeMap<Epoch, JoinSource>,
    /// In the order in which they became known.
    order: Vec<Epoch>,
    /// Whether all publishers that were known at first have been named.
    is_complete: bool,
    is_reported: bool,
    events: VecDeque<JoinEvent>,
    splices: Splices,
    /// Events that are held, and their bytes.
    held: (usize, usize),
    mutants: Mutants,
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
            is_reported: false,
            events: VecDeque::new(),
            splices: Splices::default(),
            held: (0, 0),
            mutants: Mutants::default(),
        }
    }

    /// The same with a deliberate mistake, in tests of the oracle.
    pub fn mutated(self, mutants: Mutants) -> Join {
        Join { mutants, ..self }
    }

    /// A publisher is known; `None`: those that were known when the subscription was made have all been named.
    pub fn on_publisher(&mut self, publisher: Option<Publisher>) {
        let Some(publisher) = publisher else {
            self.is_complete = true;
            return self.report_if_joined();
        };
        let epoch = publisher.epoch;
        if self.sources.contains_key(&epoch) || self.is_reported && self.selection.is_none() {
            return;
        }
        let source = JoinSource {
            baseline: Baseline { publisher, after: None, replayed: 0, unjoined: None },
            pattern: 0,
            from: 0,
            parts: VecDeque::new(),
            asked: Vec::new(),
            is_asked: false,
            part: 0,
            attempts: 0,
            has_progress: false,
            is_done: false,
            held: VecDeque::new(),
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
        // Where each of them begins comes before what was there before.
        let is_new = |source: &JoinSource| source.is_due() && source.baseline.after.is_none();
        let may_poll = self.events.is_empty() && !self.sources.values().any(is_new);
        let source =
            self.sources.values_mut().find(|source| if may_poll { source.is_due() } else { is_new(source) })?;
        (source.is_asked, source.part, source.has_progress) = (true, 0, false);
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
        Some((epoch, Question::Poll(source.asked.iter().map(SubjectReplay::poll).collect())))
    }

    /// The question that was given last for a publisher could not be asked: it is given again.
    pub fn requeue(&mut self, from: Epoch) {
        if let Some(source) = self.sources.get_mut(&from) {
            source.retry_question();
        }
    }

    /// A part of an answer of a publisher, or why there is none. What came live before it has to be handed in before.
    /// `now` dates what is found to be lost. Gives whether further parts of this answer are awaited.
    pub fn on_answer(&mut self, now: WallTime, from: Epoch, answer: Result<Answer, QuestionFailure>) -> bool {
        let attempts_max = self.attempts_max();
        let Some(source) = self.sources.get_mut(&from).filter(|source| source.is_asked) else { return false };
        let answer = match answer {
            // A part that is missing was lost on its way, and the question with it.
            Ok(answer) if answer.part != source.part => Err(QuestionFailure::Timeout),
            answer => answer,
        };
        match answer {
            Ok(Answer { content: AnswerContent::Refused(reason), high, .. }) => {
                // One that keeps no history says where it stands all the same.
                source.baseline.after.get_or_insert(high);
                let is_reported = reason != Refused::Off || self.selection.is_some();
                self.fail(now, from, is_reported.then_some(JoinFailure::Refused(reason)));
            }
            Ok(answer) => {
                source.part = source.part.wrapping_add(1);
                source.baseline.after.get_or_insert(answer.high);
                let is_last = answer.last;
                let taken = match answer.content {
                    AnswerContent::List { listed, next } => self.on_listed(from, listed, next, is_last),
                    AnswerContent::Poll { first, answers } => self.on_polled(now, from, first, answers, is_last),
                    AnswerContent::Fetch { .. } | AnswerContent::Refused(_) => Err(MALFORMED),
                };
                match taken {
                    Ok(()) => self.finish_if_done(now, from),
                    Err(unjoined) => self.fail(now, from, Some(unjoined)),
                }
            }
            Err(QuestionFailure::Timeout | QuestionFailure::TooMany)
                if source.has_progress || source.attempts + 1 < attempts_max =>
            {
                source.attempts = if source.has_progress { 0 } else { source.attempts + 1 };
                source.retry_question();
            }
            Err(reason) => self.fail(now, from, Some(JoinFailure::QuestionFailure(reason))),
        }
        self.report_if_joined();
        self.is_asked(from)
    }

    /// One that becomes known later is not waited for as long.
    fn attempts_max(&self) -> u32 {
        if self.is_reported { 1 } else { ATTEMPTS }
    }

    fn is_asked(&self, epoch: Epoch) -> bool {
        self.sources.get(&epoch).is_some_and(|source| source.is_asked)
    }

    /// The way to the publishers has ended: nothing more is asked.
    pub fn abandon(&mut self, now: WallTime) {
        for epoch in self.order.clone() {
            if self.sources.get(&epoch).is_some_and(|source| !source.is_done) {
                self.fail(now, epoch, Some(JoinFailure::QuestionFailure(QuestionFailure::Gone)));
            }
        }
        self.on_publisher(None);
    }

    /// What there is to hand on.
    pub fn poll_event(&mut self) -> Option<JoinEvent> {
        self.events.pop_front()
    }

    /// Whether there is nothing to hand on.
    pub fn has_no_event(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether the history of some publisher is still being read, or some may not have been named yet.
    pub fn is_joining(&self) -> bool {
        !self.is_complete || self.sources.values().any(|source| !source.is_done)
    }

    /// Whether so much is held that no more live events are to be handed in for now.
    pub fn is_full(&self) -> bool {
        HELD_MAX.0 <= self.held.0 || HELD_MAX.1 <= self.held.1
    }

    /// Takes a message that came live.
    pub fn on_message(&mut self, now: WallTime, delivery: Delivery) {
        let epoch = delivery.publisher.epoch;
        match self.sources.get_mut(&epoch).filter(|source| !source.is_done) {
            Some(source) => {
                self.held = (self.held.0 + 1, self.held.1 + delivery.message.body_bytes());
                source.held.push_back(JoinEvent::Message(delivery));
            }
            None => self.splices.on_message(now, delivery, &mut self.events),
        }
    }

    /// Takes a loss that was told live.
    pub fn on_loss(&mut self, loss: Loss) {
        match self.sources.get_mut(&loss.publisher.epoch).filter(|source| !source.is_done) {
            Some(source) => {
                self.held.0 += 1;
                source.held.push_back(JoinEvent::Loss(loss));
            }
            None => self.splices.on_loss(loss, &mut self.events),
        }
    }

    /// Live messages were dropped because the subscriber did not read fast enough: what is missing at a seam may be those.
    pub fn on_dropped(&mut self) {
        self.splices.on_dropped();
    }

    /// All that came live has been handed in: what did not come from a history that was read to its end, nor live, is lost.
    pub fn on_idle(&mut self, now: WallTime) {
        if !self.is_joining() {
            self.splices.on_idle(now, &mut self.events);
        }
    }

    /// Where the subscription begins, as soon as every publisher known at first has answered or will not.
    pub fn baselines(&self) -> Option<Joined> {
        let is_settled = |source: &JoinSource| source.is_done || source.baseline.after.is_some();
        (self.is_complete && self.sources.values().all(is_settled)).then(|| self.joined())
    }

    fn joined(&self) -> Joined {
        Joined { baselines: self.order.iter().map(|epoch| self.sources[epoch].baseline.clone()).collect() }
    }

    fn report_if_joined(&mut self) {
        if !self.is_reported && !self.is_joining() {
            self.is_reported = true;
            self.events.push_back(JoinEvent::Joined(self.joined()));
        }
    }

    /// Takes the subjects of a part of a listing.
    fn on_listed(
        &mut self,
        from: Epoch,
        listed: Vec<ListedSubject>,
        next: Option<u32>,
        is_last: bool,
    ) -> Result<(), JoinFailure> {
        let Some(source) = self.sources.get_mut(&from) else { return Ok(()) };
        if !source.asked.is_empty() || next.is_some_and(|next| next <= source.from) {
            return Err(MALFORMED);
        }
        if self.selection.is_none() {
            (source.is_asked, source.is_done) = (!is_last, is_last);
            return Ok(());
        }
        for ListedSubject { subject, span } in listed {
            if !self.patterns[source.pattern].matches(&subject) {
                return Err(MALFORMED);
            }
            if SUBJECTS_MAX <= self.splices.len() {
                return Err(JoinFailure::TooManySubjects);
            }
            let until = match () {
                () if self.mutants.is(Mutant::SpliceForgotten) => span.first_seq.raw() - 1,
                () if self.mutants.is(Mutant::SpliceTooFar) => span.last_seq.raw() + 1,
                () => span.last_seq.raw(),
            };
            // Several patterns may match one subject.
            if self.splices.begin(from, &subject, until) {
                source.parts.push_back(SubjectReplay::new(subject, span).ok_or(MALFORMED)?);
            }
        }
        if is_last {
            (source.is_asked, source.attempts) = (false, 0);
            match next {
                Some(next) => source.from = next,
                None => (source.pattern, source.from) = (source.pattern + 1, 0),
            }
            source.is_done = source.has_all(&self.patterns);
        }
        Ok(())
    }

    /// Takes a part of the answers to the polls at hand.
    fn on_polled(
        &mut self,
        now: WallTime,
        from: Epoch,
        first: u16,
        answers: Vec<PollAnswer>,
        is_last: bool,
    ) -> Result<(), JoinFailure> {
        let Some(source) = self.sources.get_mut(&from) else { return Ok(()) };
        let first = usize::from(first);
        let asked = source.asked.get_mut(first..first + answers.len()).ok_or(MALFORMED)?;
        let publisher = &source.baseline.publisher;
        for (part, answer) in asked.iter_mut().zip(answers) {
            if part.subject != answer.subject || part.is_done() {
                return Err(MALFORMED);
            }
            let left = part.left();
            match part.on_answer(answer, publisher, &mut source.held, now) {
                ReplayOutcome::Events(events) => {
                    for event in events {
                        if let JoinEvent::Message(Delivery { replayed: true, .. }) = event {
                            source.baseline.replayed += 1;
                        }
                        self.events.push_back(event);
                    }
                }
                ReplayOutcome::ReplayGap(unreplayed) => {
                    unreplayed
                        .into_iter()
                        .for_each(|unreplayed| self.splices.add_gap(&part.subject, unreplayed, part.lost));
                }
                ReplayOutcome::Misfit => return Err(MALFORMED),
            }
            source.has_progress |= part.is_done() || part.left() < left;
        }
        if is_last {
            source.attempts = if source.has_progress { 0 } else { source.attempts + 1 };
            if ATTEMPTS <= source.attempts {
                return Err(MALFORMED);
            }
            // What is not all there is asked for again, before anything else.
            source.retry_question();
            source.is_done = source.has_all(&self.patterns);
        }
        Ok(())
    }

    /// Nothing more comes of a publisher's history: what was listed and has not come may still come live, or is lost.
    fn fail(&mut self, now: WallTime, from: Epoch, unjoined: Option<JoinFailure>) {
        let Some(source) = self.sources.get_mut(&from) else { return };
        source.retry_question();
        source.is_done = true;
        source.baseline.unjoined = unjoined;
        let reason = match unjoined {
            Some(JoinFailure::QuestionFailure(QuestionFailure::Gone | QuestionFailure::UnknownPeer)) => {
                Reason::PublisherGone
            }
            _ => Reason::Deadline,
        };
        for mut part in std::mem::take(&mut source.parts) {
            if let Some(unreplayed) = part.abandon(&source.baseline.publisher, reason) {
                self.splices.add_gap(&part.subject, unreplayed, part.lost);
            }
        }
        self.finish_if_done(now, from);
    }

    /// A publisher's history has been read: what came live meanwhile follows.
    fn finish_if_done(&mut self, now: WallTime, from: Epoch) {
        let Some(source) = self.sources.get_mut(&from).filter(|source| source.is_done) else { return };
        for event in std::mem::take(&mut source.held) {
            match event {
                JoinEvent::Message(delivery) => self.splices.on_message(now, delivery, &mut self.events),
                JoinEvent::Loss(loss) => self.splices.on_loss(loss, &mut self.events),
                JoinEvent::Joined(_) => {}
            }
        }
        let held = self.sources.values().flat_map(|source| &source.held);
        self.held = held.fold((0, 0), |(count, bytes), event| match event {
            JoinEvent::Message(delivery) => (count + 1, bytes + delivery.message.body_bytes()),
            _ => (count + 1, bytes),
        });
    }
}

/// An answer that does not fit the question.
const MALFORMED: JoinFailure = JoinFailure::QuestionFailure(QuestionFailure::Malformed);

impl JoinSource {
    /// Whether there is something to ask it now.
    fn is_due(&self) -> bool {
        !self.is_done && !self.is_asked
    }

    /// Whether all subjects of the patterns have been listed, and all their events have come.
    fn has_all(&self, patterns: &[Pattern]) -> bool {
        patterns.len() <= self.pattern && self.parts.is_empty()
    }

    /// The question at hand is over. What is not all there is asked for again.
    fn retry_question(&mut self) {
        self.is_asked = false;
        for part in std::mem::take(&mut self.asked).into_iter().rev().filter(|part| !part.is_done()) {
            self.parts.push_front(part);
        }
    }
}
