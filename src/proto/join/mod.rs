//! Late join: a subscriber begins at a known point of every publisher's stream, and gets messages published earlier.
//!
//! [`Join`] runs in the client. It requests the list of subjects from each known publisher's history, and then the
//! retained events of each subject, from the first to the last offset (seed 000). It buffers live messages of that
//! publisher meanwhile. Then it splices both: it drops live messages that the history supplied, and reports every loss
//! in between.
//!
//! The splice is complete because the subscription was active before the question. Messages that the publisher had
//! multicast by the time of its answer are in its history, as far as that retains them. Later messages arrive later,
//! and so are owed to the subscription. Messages in flight arrive by either way, or by both; their numbers reveal the
//! duplicates.

mod event;
mod part;
mod splice;
#[cfg(test)]
mod tests;

pub use event::{Baseline, JoinEvent, JoinFailure, Joined};

use crate::message::{Delivery, Epoch, Loss, Publisher, QuestionFailure, Reason};
use crate::proto::history::{ListedSubject, Selection};
use crate::proto::mutant::{Mutant, Mutants};
use crate::proto::question::{Answer, AnswerContent, PollAnswer, Question, Refused};
use crate::subject::Pattern;
use crate::time::WallTime;
use event::SUBJECTS_MAX;
use part::{ReplayOutcome, SubjectReplay};
use splice::Splices;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of unanswered questions at a time: each answer has at most about one megabyte.
const REQUESTED_MAX: usize = 8;
/// Maximum number of subjects in one question of kind LIST.
const LIST_MAX: u16 = 1024;
/// Maximum number of subjects in one question of kind POLL.
const POLL_MAX: usize = 256;
/// Number of attempts for a question that stays unanswered, or whose answer contains nothing new.
pub const ATTEMPTS: u32 = 3;
/// Maximum number of live events buffered while histories are read, and of their bytes. At this limit the caller must
/// pass no more.
const BUFFERED_MAX: (usize, usize) = (65_536, 64 << 20);
/// State of one publisher.
#[derive(Debug)]
struct JoinSource {
    baseline: Baseline,
    /// Index of the pattern whose subjects are being listed; all are listed if it is beyond the last.
    pattern: usize,
    /// Start of the next listing.
    from: u32,
    /// Subjects to be polled, and those of the current question.
    parts: VecDeque<SubjectReplay>,
    requested: Vec<SubjectReplay>,
    is_requested: bool,
    /// Number of the next part of the answer.
    part: u16,
    attempts: u32,
    /// True if the answers to the current question contained anything new.
    has_progress: bool,
    is_done: bool,
    /// Live events received meanwhile.
    buffered: VecDeque<JoinEvent>,
}

/// Join described at the head of this file. It performs no I/O: it returns questions and events, and takes answers and
/// live events.
#[derive(Debug)]
pub struct Join {
    patterns: Vec<Pattern>,
    /// Selection from the histories; `None` for the baseline alone.
    selection: Option<Selection>,
    sources: BTreeMap<Epoch, JoinSource>,
    /// Epochs in the order in which they became known.
    order: Vec<Epoch>,
    /// True if all publishers known at the start of the subscription have been named.
    is_complete: bool,
    is_reported: bool,
    events: VecDeque<JoinEvent>,
    splices: Splices,
    /// Number of buffered events, and their bytes.
    buffered: (usize, usize),
    mutants: Mutants,
}

impl Join {
    /// Creates the join of a subscription to `patterns` that has just become active. `selection` is the wanted part of
    /// the histories. With `None` publishers only confirm the baseline.
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
            buffered: (0, 0),
            mutants: Mutants::default(),
        }
    }

    /// Returns the same join with a deliberate mistake, for tests of the oracle.
    pub fn mutated(self, mutants: Mutants) -> Join {
        Join { mutants, ..self }
    }

    /// Adds a known publisher. `None` means that all publishers known when the subscription was made have been named.
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
            requested: Vec::new(),
            is_requested: false,
            part: 0,
            attempts: 0,
            has_progress: false,
            is_done: false,
            buffered: VecDeque::new(),
        };
        self.sources.insert(epoch, source);
        self.order.push(epoch);
    }

    /// Returns the next question and its peer; the answer goes to [`Join::on_answer`]. The caller polls events first,
    /// so that a slow reader does not get more than it reads.
    pub fn poll_question(&mut self) -> Option<(Epoch, Question)> {
        if REQUESTED_MAX <= self.sources.values().filter(|source| source.is_requested).count() {
            return None;
        }
        // All baselines are requested before any retained messages.
        let is_new = |source: &JoinSource| source.is_due() && source.baseline.after.is_none();
        let may_poll = self.events.is_empty() && !self.sources.values().any(is_new);
        let source =
            self.sources.values_mut().find(|source| if may_poll { source.is_due() } else { is_new(source) })?;
        (source.is_requested, source.part, source.has_progress) = (true, 0, false);
        let epoch = source.baseline.publisher.epoch;
        if source.parts.is_empty() {
            let pattern = self.patterns[source.pattern].clone();
            // A baseline needs only the head of the answer.
            let selection = self.selection.unwrap_or(Selection { newest: Some(1), age: None });
            let limit = if self.selection.is_some() { LIST_MAX } else { 1 };
            return Some((epoch, Question::List { pattern, selection, from: source.from, limit }));
        }
        let count = source.parts.len().min(POLL_MAX);
        source.requested = source.parts.drain(..count).collect();
        Some((epoch, Question::Poll(source.requested.iter().map(SubjectReplay::poll).collect())))
    }

    /// Requeues the last question for a publisher, which could not be sent.
    pub fn requeue(&mut self, from: Epoch) {
        if let Some(source) = self.sources.get_mut(&from) {
            source.retry_question();
        }
    }

    /// Handles a part of an answer of a publisher, or the failure of a question. The caller passes earlier live events
    /// first. `now` dates losses. Returns whether further parts of this answer are awaited.
    pub fn on_answer(&mut self, now: WallTime, from: Epoch, answer: Result<Answer, QuestionFailure>) -> bool {
        let attempts_max = self.attempts_max();
        let Some(source) = self.sources.get_mut(&from).filter(|source| source.is_requested) else { return false };
        let answer = match answer {
            // A missing part was lost on its way, and the question with it.
            Ok(answer) if answer.part != source.part => Err(QuestionFailure::Timeout),
            answer => answer,
        };
        match answer {
            Ok(Answer { content: AnswerContent::Refused(reason), high, .. }) => {
                // A publisher without a history reports its position regardless.
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
                    AnswerContent::Fetch { .. } | AnswerContent::Report(_) | AnswerContent::Refused(_) => {
                        Err(MALFORMED)
                    }
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
            Err(reason) => self.fail(now, from, Some(JoinFailure::Unanswered(reason))),
        }
        self.report_if_joined();
        self.is_requested(from)
    }

    /// Returns the number of attempts for each question. Publishers discovered after the join was reported get fewer.
    fn attempts_max(&self) -> u32 {
        if self.is_reported { 1 } else { ATTEMPTS }
    }

    fn is_requested(&self, epoch: Epoch) -> bool {
        self.sources.get(&epoch).is_some_and(|source| source.is_requested)
    }

    /// Ends the join after the connection to the publishers has ended. It sends no further questions.
    pub fn abandon(&mut self, now: WallTime) {
        for epoch in self.order.clone() {
            if self.sources.get(&epoch).is_some_and(|source| !source.is_done) {
                self.fail(now, epoch, Some(JoinFailure::Unanswered(QuestionFailure::Gone)));
            }
        }
        self.on_publisher(None);
    }

    /// Returns the next event for the subscriber.
    pub fn poll_event(&mut self) -> Option<JoinEvent> {
        self.events.pop_front()
    }

    /// Returns whether there is no event for the subscriber.
    pub fn has_no_event(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns whether a publisher's history is still being read, or some publishers may not have been named yet.
    pub fn is_joining(&self) -> bool {
        !self.is_complete || self.sources.values().any(|source| !source.is_done)
    }

    /// Returns whether the buffered events are at their limit, so that the caller must pass no more live events.
    pub fn is_full(&self) -> bool {
        BUFFERED_MAX.0 <= self.buffered.0 || BUFFERED_MAX.1 <= self.buffered.1
    }

    /// Handles a live message.
    pub fn on_message(&mut self, now: WallTime, delivery: Delivery) {
        let epoch = delivery.publisher.epoch;
        match self.sources.get_mut(&epoch).filter(|source| !source.is_done) {
            Some(source) => {
                self.buffered = (self.buffered.0 + 1, self.buffered.1 + delivery.message.body_bytes());
                source.buffered.push_back(JoinEvent::Message(delivery));
            }
            None => self.splices.on_message(now, delivery, &mut self.events),
        }
    }

    /// Handles a live loss.
    pub fn on_loss(&mut self, loss: Loss) {
        match self.sources.get_mut(&loss.publisher.epoch).filter(|source| !source.is_done) {
            Some(source) => {
                self.buffered.0 += 1;
                source.buffered.push_back(JoinEvent::Loss(loss));
            }
            None => self.splices.on_loss(loss, &mut self.events),
        }
    }

    /// Records that live messages were dropped because of the subscriber: messages missing at a splice may be those.
    pub fn on_dropped(&mut self) {
        self.splices.on_dropped();
    }

    /// Handles the point at which all live events were passed: messages missing from a fully read history and from the
    /// live stream are lost.
    pub fn on_idle(&mut self, now: WallTime) {
        if !self.is_joining() {
            self.splices.on_idle(now, &mut self.events);
        }
    }

    /// Returns the baselines, as soon as every publisher known at the start has answered or has failed.
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

    /// Handles the subjects of a part of a listing.
    fn on_listed(
        &mut self,
        from: Epoch,
        listed: Vec<ListedSubject>,
        next: Option<u32>,
        is_last: bool,
    ) -> Result<(), JoinFailure> {
        let Some(source) = self.sources.get_mut(&from) else { return Ok(()) };
        if !source.requested.is_empty() || next.is_some_and(|next| next <= source.from) {
            return Err(MALFORMED);
        }
        if self.selection.is_none() {
            (source.is_requested, source.is_done) = (!is_last, is_last);
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
                () if self.mutants.is(Mutant::SpliceRepeated) => span.first_seq.raw() - 1,
                () if self.mutants.is(Mutant::SpliceTooFar) => span.last_seq.raw() + 1,
                () => span.last_seq.raw(),
            };
            // Several patterns may match one subject.
            if self.splices.begin(from, &subject, until) {
                source.parts.push_back(SubjectReplay::new(subject, span).ok_or(MALFORMED)?);
            }
        }
        if is_last {
            (source.is_requested, source.attempts) = (false, 0);
            match next {
                Some(next) => source.from = next,
                None => (source.pattern, source.from) = (source.pattern + 1, 0),
            }
            source.is_done = source.has_all(&self.patterns);
        }
        Ok(())
    }

    /// Handles a part of the answers to the current polls.
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
        let requested = source.requested.get_mut(first..first + answers.len()).ok_or(MALFORMED)?;
        let publisher = &source.baseline.publisher;
        for (part, answer) in requested.iter_mut().zip(answers) {
            if part.subject != answer.subject || part.is_done() {
                return Err(MALFORMED);
            }
            let left = part.left();
            match part.on_answer(answer, publisher, &mut source.buffered, now) {
                ReplayOutcome::Events(events) => {
                    for event in events {
                        if let JoinEvent::Message(Delivery { replayed: true, .. }) = event {
                            source.baseline.replayed += 1;
                        }
                        self.events.push_back(event);
                    }
                }
                ReplayOutcome::Gap(unreplayed) => {
                    unreplayed
                        .into_iter()
                        .for_each(|unreplayed| self.splices.add_gap(&part.subject, unreplayed, part.lost));
                }
                ReplayOutcome::Mismatch => return Err(MALFORMED),
            }
            source.has_progress |= part.is_done() || part.left() < left;
        }
        if is_last {
            source.attempts = if source.has_progress { 0 } else { source.attempts + 1 };
            if ATTEMPTS <= source.attempts {
                return Err(MALFORMED);
            }
            // The join repeats unfinished polls before anything else.
            source.retry_question();
            source.is_done = source.has_all(&self.patterns);
        }
        Ok(())
    }

    /// Ends the replay of a publisher's history after a failure. Listed events that were not replayed may still arrive
    /// live, or are lost.
    fn fail(&mut self, now: WallTime, from: Epoch, unjoined: Option<JoinFailure>) {
        let Some(source) = self.sources.get_mut(&from) else { return };
        source.retry_question();
        source.is_done = true;
        source.baseline.unjoined = unjoined;
        let reason = match unjoined {
            Some(JoinFailure::Unanswered(QuestionFailure::Gone | QuestionFailure::UnknownPeer)) => {
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

    /// Delivers the buffered live events once a publisher's history has been read.
    fn finish_if_done(&mut self, now: WallTime, from: Epoch) {
        let Some(source) = self.sources.get_mut(&from).filter(|source| source.is_done) else { return };
        for event in std::mem::take(&mut source.buffered) {
            match event {
                JoinEvent::Message(delivery) => self.splices.on_message(now, delivery, &mut self.events),
                JoinEvent::Loss(loss) => self.splices.on_loss(loss, &mut self.events),
                JoinEvent::Joined(_) => {}
            }
        }
        let buffered = self.sources.values().flat_map(|source| &source.buffered);
        self.buffered = buffered.fold((0, 0), |(count, bytes), event| match event {
            JoinEvent::Message(delivery) => (count + 1, bytes + delivery.message.body_bytes()),
            _ => (count + 1, bytes),
        });
    }
}

/// Failure for an answer that does not fit the question.
const MALFORMED: JoinFailure = JoinFailure::Unanswered(QuestionFailure::Malformed);

impl JoinSource {
    /// Returns whether a question to this publisher can be sent now.
    fn is_due(&self) -> bool {
        !self.is_done && !self.is_requested
    }

    /// Returns whether all subjects of the patterns have been listed, and all their events have arrived.
    fn has_all(&self, patterns: &[Pattern]) -> bool {
        patterns.len() <= self.pattern && self.parts.is_empty()
    }

    /// Ends the current question, and requeues its unfinished subjects.
    fn retry_question(&mut self) {
        self.is_requested = false;
        for part in std::mem::take(&mut self.requested).into_iter().rev().filter(|part| !part.is_done()) {
            self.parts.push_front(part);
        }
    }
}
