//! Questions to the history of a peer: the polls of seed 000, alone or many at once, and what there is to poll.

use super::{Bus, WaitError};
use crate::daemon::clock::Clock;
use crate::daemon::mailbox::{AnswerReceiver, AnswerSender, Answered};
use crate::message::{Dseq, Epoch, PeerRef};
use crate::proto::effect::QuestionFailure;
use crate::proto::history::{ListedSubject, Selection};
use crate::proto::question::{Answer, AnswerContent, ITEMS_MAX, LISTED_MAX, Poll, PollAnswer, Question, Refused};
use crate::subject::{Pattern, Subject};
use crate::time::Instant;
use crossbeam_channel::{RecvTimeoutError, TryRecvError};
use std::fmt;
use std::time::Duration;

/// How much longer than its answer one waits for a peer to say that there is none.
const GRACE: Duration = Duration::from_secs(10);

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryError {
    /// No such peer is known.
    UnknownPeer,
    /// Several live peers have this name.
    Ambiguous,
    /// The peer that was asked has left or was given up.
    Gone,
    /// No answer came in time.
    Timeout,
    /// Too many questions wait for an answer, or too many answers to be read; ask again later.
    TooMany,
    /// The peer that was asked refuses.
    Refused(Refused),
    /// The answer does not fit the question: the peer that was asked does not keep to the protocol.
    Misfit,
    /// The bus is closed, or its own peer is gone.
    Closed,
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryError::UnknownPeer => QuestionFailure::UnknownPeer.fmt(f),
            HistoryError::Ambiguous => QuestionFailure::Ambiguous.fmt(f),
            HistoryError::Gone => QuestionFailure::Gone.fmt(f),
            HistoryError::Timeout => QuestionFailure::Timeout.fmt(f),
            HistoryError::TooMany => QuestionFailure::TooMany.fmt(f),
            HistoryError::Refused(Refused::Off) => write!(f, "{} (history-count is 0 there)", Refused::Off),
            HistoryError::Refused(reason) => reason.fmt(f),
            HistoryError::Misfit => write!(f, "the answer does not fit the question"),
            HistoryError::Closed => write!(f, "the bus is closed or its peer is gone; open it again"),
        }
    }
}

impl std::error::Error for HistoryError {}

impl From<QuestionFailure> for HistoryError {
    fn from(reason: QuestionFailure) -> HistoryError {
        match reason {
            QuestionFailure::UnknownPeer => HistoryError::UnknownPeer,
            QuestionFailure::Ambiguous => HistoryError::Ambiguous,
            QuestionFailure::Gone => HistoryError::Gone,
            QuestionFailure::Timeout => HistoryError::Timeout,
            QuestionFailure::TooMany => HistoryError::TooMany,
            QuestionFailure::Malformed => HistoryError::Refused(Refused::Malformed),
        }
    }
}

impl From<WaitError> for HistoryError {
    /// Why a question could not be handed to this client's own peer.
    fn from(error: WaitError) -> HistoryError {
        match error {
            WaitError::Timeout | WaitError::Refused(_) => HistoryError::TooMany,
            WaitError::Closed => HistoryError::Closed,
        }
    }
}

/// The answer to one poll, and who gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollResult {
    /// The run of the publisher: another one than before is a restart.
    pub epoch: Epoch,
    /// The highest datagram that it had multicast: what it published later came in a later one.
    pub high: Dseq,
    /// What it said.
    pub answer: PollAnswer,
}

/// The subjects in a peer's history, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryList {
    /// The run of the publisher.
    pub epoch: Epoch,
    /// The subjects, with what there is of each, in no particular order.
    pub listed: Vec<ListedSubject>,
}

/// A question on its way: its answer comes in one or more parts. Dropping it is no longer to care.
#[derive(Debug)]
pub struct PendingAnswer {
    parts: AnswerReceiver,
    until: Instant,
}

impl PendingAnswer {
    /// A question that is answered within `timeout`, and where its answer goes.
    pub(super) fn new(timeout: Duration) -> (PendingAnswer, AnswerSender) {
        let (answer, parts) = AnswerSender::new(None);
        (PendingAnswer { parts, until: Clock::now().instant + timeout + GRACE }, answer)
    }

    /// Waits for the next part; [`Answer::last`] says whether another one follows.
    ///
    /// Not for [`EmbeddedPeer`](super::EmbeddedPeer): nobody would drive the peer meanwhile.
    ///
    /// # Errors
    /// Why there is none.
    pub fn recv(&self) -> Result<Answer, HistoryError> {
        match self.parts.recv_timeout(self.until.since(Clock::now().instant)) {
            Ok(answer) => check_answer(answer),
            Err(RecvTimeoutError::Timeout) => Err(HistoryError::Timeout),
            Err(RecvTimeoutError::Disconnected) => Err(HistoryError::Closed),
        }
    }

    /// Takes the next part if it is there; `None` if it is not there yet.
    ///
    /// # Errors
    /// Why there will be none.
    pub fn try_recv(&self) -> Result<Option<Answer>, HistoryError> {
        match self.parts.try_recv() {
            Ok(answer) => check_answer(answer).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(HistoryError::Closed),
        }
    }
}

/// A refusal is no answer.
fn check_answer(answer: Answered) -> Result<Answer, HistoryError> {
    match answer? {
        Answer { content: AnswerContent::Refused(reason), .. } => Err(HistoryError::Refused(reason)),
        answer => Ok(answer),
    }
}

/// Checks what the peer could not even be asked.
pub(super) fn check_question(question: &Question) -> Result<(), HistoryError> {
    let items = match question {
        Question::Poll(polls) => polls.len(),
        Question::Fetch(fetches) => fetches.len(),
        Question::List { .. } => return Ok(()),
    };
    match items {
        0 => Err(HistoryError::Refused(Refused::Malformed)),
        items if items <= ITEMS_MAX => Ok(()),
        _ => Err(HistoryError::Refused(Refused::TooMany)),
    }
}

impl Bus {
    /// Polls a publisher's history of a subject (seed 000): what follows the event with this offset? A client without
    /// events polls with 0; [`Tracker`](crate::offset::Tracker) keeps the client's table. `peer` may be this bus's own.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn poll(
        &self,
        peer: impl Into<PeerRef>,
        subject: Subject,
        offset: u32,
        timeout: Duration,
    ) -> Result<PollResult, HistoryError> {
        let mut answers = self.poll_many(peer, &[Poll { subject, offset, count: 1 }], timeout)?;
        answers.pop().ok_or(HistoryError::Misfit)
    }

    /// As [`Bus::poll`], with many polls in one message, at most [`ITEMS_MAX`], each for up to so many successors. Gives
    /// an answer for each poll, in the same order. `timeout` is for all of it.
    ///
    /// # Errors
    /// Why there is no answer, or not to all polls.
    pub fn poll_many(
        &self,
        peer: impl Into<PeerRef>,
        polls: &[Poll],
        timeout: Duration,
    ) -> Result<Vec<PollResult>, HistoryError> {
        let (peer, deadline) = (peer.into(), Clock::now().instant + timeout);
        if ITEMS_MAX < polls.len() {
            return Err(HistoryError::Refused(Refused::TooMany));
        }
        let mut polled = Vec::with_capacity(polls.len());
        // A peer need not answer all of a question whose answer is large; the rest is asked again.
        while polled.len() < polls.len() {
            let rest = polls.get(polled.len()..).unwrap_or_default();
            let before = polled.len();
            let asked = self.ask(peer.clone(), Question::Poll(rest.to_vec()), time_left(deadline)?)?;
            loop {
                let Answer { epoch, high, last, content, .. } = asked.recv()?;
                let AnswerContent::Poll { first, answers } = content else { return Err(HistoryError::Misfit) };
                let fits = usize::from(first) == polled.len() - before
                    && answers.len() <= polls.len() - polled.len()
                    && answers.iter().zip(&polls[polled.len()..]).all(|(answer, poll)| answer.subject == poll.subject);
                if !fits || answers.is_empty() {
                    return Err(HistoryError::Misfit);
                }
                polled.extend(answers.into_iter().map(|answer| PollResult { epoch, high, answer }));
                if last {
                    break;
                }
            }
        }
        Ok(polled)
    }

    /// Which subjects a publisher's history holds, of those that match the pattern. Of each only what is selected;
    /// `Selection::default()` is all. `timeout` is for all of it.
    ///
    /// # Errors
    /// Why there is no answer, or not all of it.
    pub fn list_history(
        &self,
        peer: impl Into<PeerRef>,
        pattern: &Pattern,
        selection: Selection,
        timeout: Duration,
    ) -> Result<HistoryList, HistoryError> {
        let (mut peer, deadline) = (peer.into(), Clock::now().instant + timeout);
        let (mut from, mut all) = (0, Vec::new());
        loop {
            let question = Question::List { pattern: pattern.clone(), selection, from, limit: LISTED_MAX };
            let asked = self.ask(peer, question, time_left(deadline)?)?;
            let mut parts = 0;
            let (epoch, next) = loop {
                let Answer { epoch, part, last, content, .. } = asked.recv()?;
                let AnswerContent::List { listed, next } = content else { return Err(HistoryError::Misfit) };
                // A part that is missing was lost on its way.
                if part != parts {
                    return Err(HistoryError::Timeout);
                }
                parts += 1;
                all.extend(listed);
                if last {
                    break (epoch, next);
                }
            };
            match next {
                None => return Ok(HistoryList { epoch, listed: all }),
                Some(next) if next <= from => return Err(HistoryError::Misfit),
                Some(next) => (from, peer) = (next, epoch.into()),
            }
        }
    }

    /// Asks a peer's history without waiting; many questions can be on their way at once.
    ///
    /// # Errors
    /// The question holds too much or nothing; it could not be handed to the own peer.
    pub fn ask(
        &self,
        peer: impl Into<PeerRef>,
        question: Question,
        timeout: Duration,
    ) -> Result<PendingAnswer, HistoryError> {
        check_question(&question)?;
        let (asked, answer) = PendingAnswer::new(timeout);
        self.shared.link.ask(peer.into(), question, (timeout, timeout), answer)?;
        Ok(asked)
    }
}

/// The time that is left.
fn time_left(deadline: Instant) -> Result<Duration, HistoryError> {
    let time_left = deadline.since(Clock::now().instant);
    if time_left.is_zero() { Err(HistoryError::Timeout) } else { Ok(time_left) }
}
