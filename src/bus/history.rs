//! Requests to the history of a peer: the polls of seed 000, alone or many at once, and the list of subjects that can
//! be polled. Queries for reports of other peers take the same way.

use super::{Bus, WaitError};
use crate::clock::Clock;
use crate::daemon::mailbox::{AnswerReceiver, AnswerResult, AnswerSender};
use crate::daemon::report_assembly::{AssemblyError, ReportAssembly};
use crate::message::{Dseq, Epoch, PeerRef, QuestionFailure};
use crate::proto::history::{ListedSubject, Selection};
use crate::proto::question::{
    Answer, AnswerContent, ITEMS_MAX, LISTED_MAX, Poll, PollAnswer, QUERY_BYTES_MAX, Question, Refused,
};
use crate::subject::{Pattern, Subject};
use crate::time::Instant;
use crossbeam_channel::{RecvTimeoutError, TryRecvError};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Time that the caller waits, beyond the time limit of the answer, for the peer to report that there is none.
const GRACE: Duration = Duration::from_secs(10);

/// Reason why a request to a history, or a query for a report of another peer, has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryError {
    /// No such peer is known.
    UnknownPeer,
    /// Several live peers have this name.
    Ambiguous,
    /// The requested peer has left or has expired.
    Gone,
    /// The answer did not arrive in time.
    Timeout,
    /// Too many requests await an answer, or too many answers are unread; the caller must retry later.
    TooMany,
    /// The certificate of this host does not let its programs receive the subjects.
    Denied,
    /// The requested peer refuses.
    Refused(Refused),
    /// The answer does not fit the request: the requested peer violates the protocol.
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
            HistoryError::Denied => QuestionFailure::Denied.fmt(f),
            HistoryError::Refused(Refused::Off) => write!(f, "{} (history-count is 0 there)", Refused::Off),
            HistoryError::Refused(Refused::NoReports) => {
                write!(f, "{} (remote-reports is 'no' there)", Refused::NoReports)
            }
            HistoryError::Refused(reason) => reason.fmt(f),
            HistoryError::Misfit => {
                write!(f, "the answer does not fit the request; the requested peer is faulty, update it")
            }
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
            QuestionFailure::Denied => HistoryError::Denied,
            QuestionFailure::Malformed => HistoryError::Refused(Refused::Malformed),
        }
    }
}

impl From<AssemblyError> for HistoryError {
    fn from(error: AssemblyError) -> HistoryError {
        match error {
            AssemblyError::Refused(reason) => HistoryError::Refused(reason),
            AssemblyError::PartLost => HistoryError::Timeout,
            AssemblyError::Misfit => HistoryError::Misfit,
        }
    }
}

impl From<WaitError> for HistoryError {
    /// Converts the reason why a request could not be submitted to this client's own peer.
    fn from(error: WaitError) -> HistoryError {
        match error {
            WaitError::Timeout | WaitError::Refused(_) => HistoryError::TooMany,
            WaitError::Closed => HistoryError::Closed,
        }
    }
}

/// The answer to one poll, with the publisher that sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollResult {
    /// Run of the publisher: another epoch than before means a restart.
    pub epoch: Epoch,
    /// Highest datagram that the publisher had multicast: messages published later came in a later one.
    pub high: Dseq,
    /// Answer of the publisher.
    pub answer: PollAnswer,
}

/// The subjects in a peer's history, with the publisher's epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryList {
    /// Run of the publisher.
    pub epoch: Epoch,
    /// The subjects, with their retained messages, in no particular order.
    pub listed: Vec<ListedSubject>,
}

/// An outstanding request: its answer comes in one or more parts. Dropping the handle cancels the request.
#[derive(Debug)]
pub struct PendingAnswer {
    parts: AnswerReceiver,
    until: Instant,
}

impl PendingAnswer {
    /// Returns a request that is answered within `timeout`, and the sender of its answer.
    pub(super) fn new(timeout: Duration) -> (PendingAnswer, AnswerSender) {
        let (sender, parts) = AnswerSender::new(None);
        (PendingAnswer { parts, until: Clock::now().instant + timeout + GRACE }, sender)
    }

    /// Waits for the next part; [`Answer::last`] reports whether another one follows.
    ///
    /// Do not call it for [`EmbeddedPeer`](super::EmbeddedPeer): no thread would drive the peer meanwhile.
    ///
    /// # Errors
    /// Returns the reason why there is no part.
    pub fn recv(&self) -> Result<Answer, HistoryError> {
        match self.parts.recv_timeout(self.until.since(Clock::now().instant)) {
            Ok(answer) => check_answer(answer),
            Err(RecvTimeoutError::Timeout) => Err(HistoryError::Timeout),
            Err(RecvTimeoutError::Disconnected) => Err(HistoryError::Closed),
        }
    }

    /// Takes the next part if it is there; returns `None` if it has not arrived yet.
    ///
    /// # Errors
    /// Returns the reason why there will be no part.
    pub fn try_recv(&self) -> Result<Option<Answer>, HistoryError> {
        match self.parts.try_recv() {
            Ok(answer) => check_answer(answer).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(HistoryError::Closed),
        }
    }
}

/// An outstanding query for a report of another peer. Dropping the handle cancels the query.
#[derive(Debug)]
pub struct PendingReport {
    parts: PendingAnswer,
    assembly: ReportAssembly,
}

impl PendingReport {
    /// Waits for the report.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn recv(mut self) -> Result<Value, HistoryError> {
        loop {
            let part = self.parts.recv()?;
            if let Some(report) = self.assembly.add(part)? {
                return Ok(report);
            }
        }
    }

    /// Takes the report if it is there; returns `None` if it has not arrived yet.
    ///
    /// # Errors
    /// Returns the reason why there will be none.
    pub fn try_recv(&mut self) -> Result<Option<Value>, HistoryError> {
        while let Some(part) = self.parts.try_recv()? {
            if let Some(report) = self.assembly.add(part)? {
                return Ok(Some(report));
            }
        }
        Ok(None)
    }
}

/// Turns a refusal into an error.
fn check_answer(answer: AnswerResult) -> Result<Answer, HistoryError> {
    match answer? {
        Answer { content: AnswerContent::Refused(reason), .. } => Err(HistoryError::Refused(reason)),
        answer => Ok(answer),
    }
}

/// Rejects a request that the peer could not even receive.
pub(super) fn check_question(question: &Question) -> Result<(), HistoryError> {
    let items = match question {
        Question::Poll(polls) => polls.len(),
        Question::Fetch(fetches) => fetches.len(),
        Question::List { .. } => return Ok(()),
        Question::Report(query) if query.is_empty() || QUERY_BYTES_MAX < query.len() => {
            return Err(HistoryError::Refused(Refused::Malformed));
        }
        Question::Report(_) => return Ok(()),
    };
    match items {
        0 => Err(HistoryError::Refused(Refused::Malformed)),
        items if items <= ITEMS_MAX => Ok(()),
        _ => Err(HistoryError::Refused(Refused::TooMany)),
    }
}

impl Bus {
    /// Polls a publisher's history of a subject (seed 000) for the successor of the event with this offset. A client
    /// without events polls with 0; [`Tracker`](crate::offset::Tracker) keeps the client's table. `peer` may be this
    /// bus's own.
    ///
    /// # Errors
    /// Returns the reason why there is no answer.
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

    /// Sends many polls like [`Bus::poll`] in one message, at most [`ITEMS_MAX`], each with its own maximum number of
    /// successors. Returns an answer for each poll, in the same order. `timeout` covers the whole call.
    ///
    /// # Errors
    /// Returns the reason why there is no answer, or not to all polls.
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
        let mut results = Vec::with_capacity(polls.len());
        // A peer may answer only a part of a request whose answer is large; the rest is requested again.
        while results.len() < polls.len() {
            let rest = polls.get(results.len()..).unwrap_or_default();
            let before = results.len();
            let pending = self.request_history(peer.clone(), Question::Poll(rest.to_vec()), time_left(deadline)?)?;
            loop {
                let Answer { epoch, high, last, content, .. } = pending.recv()?;
                let AnswerContent::Poll { first, answers } = content else { return Err(HistoryError::Misfit) };
                let fits = usize::from(first) == results.len() - before
                    && answers.len() <= polls.len() - results.len()
                    && answers.iter().zip(&polls[results.len()..]).all(|(answer, poll)| answer.subject == poll.subject);
                if !fits || answers.is_empty() {
                    return Err(HistoryError::Misfit);
                }
                results.extend(answers.into_iter().map(|answer| PollResult { epoch, high, answer }));
                if last {
                    break;
                }
            }
        }
        Ok(results)
    }

    /// Lists the subjects in a publisher's history that match the pattern, restricted to the selected messages.
    /// `Selection::default()` selects all. `timeout` covers the whole call.
    ///
    /// # Errors
    /// Returns the reason why there is no answer, or not all of it.
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
            let pending = self.request_history(peer, question, time_left(deadline)?)?;
            let mut parts = 0;
            let (epoch, next) = loop {
                let Answer { epoch, part, last, content, .. } = pending.recv()?;
                let AnswerContent::List { listed, next } = content else { return Err(HistoryError::Misfit) };
                // A missing part was lost on its way.
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

    /// Queries a peer for one of its reports, as [`Bus::query`] queries the bus's own peer. The peer may be any of the
    /// group; it refuses if its `remote-reports` is off. `timeout` covers the whole call.
    ///
    /// # Errors
    /// Returns the reason why there is no report.
    pub fn query_peer(
        &self,
        peer: impl Into<PeerRef>,
        query: &Value,
        timeout: Duration,
    ) -> Result<Value, HistoryError> {
        self.request_report(peer, query, timeout)?.recv()
    }

    /// Queries a peer for one of its reports without waiting; many queries can be outstanding at once.
    ///
    /// # Errors
    /// The query is empty or too large, or this bus's own peer did not accept it.
    pub fn request_report(
        &self,
        peer: impl Into<PeerRef>,
        query: &Value,
        timeout: Duration,
    ) -> Result<PendingReport, HistoryError> {
        let parts = self.request_history(peer, Question::Report(query.to_string().into()), timeout)?;
        Ok(PendingReport { parts, assembly: ReportAssembly::default() })
    }

    /// Requests messages of a peer's history without waiting; many requests can be outstanding at once.
    ///
    /// # Errors
    /// The request is empty or too large, or this bus's own peer did not accept it.
    pub fn request_history(
        &self,
        peer: impl Into<PeerRef>,
        question: Question,
        timeout: Duration,
    ) -> Result<PendingAnswer, HistoryError> {
        check_question(&question)?;
        let (pending, answer) = PendingAnswer::new(timeout);
        self.shared.link.request_history(peer.into(), question, timeout, timeout, answer)?;
        Ok(pending)
    }
}

/// Returns the remaining time until the deadline.
fn time_left(deadline: Instant) -> Result<Duration, HistoryError> {
    let time_left = deadline.since(Clock::now().instant);
    if time_left.is_zero() { Err(HistoryError::Timeout) } else { Ok(time_left) }
}
