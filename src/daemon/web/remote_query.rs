//! A query for a report of another peer, whose answer is looked for without waiting.

use crate::clock::Clock;
use crate::daemon::mailbox::{AnswerReceiver, AnswerSender, EngineCommand, Mailbox};
use crate::daemon::report_assembly::{AssemblyError, ReportAssembly};
use crate::message::{ClientId, Epoch, PeerRef, QuestionFailure};
use crate::proto::question::{Question, Refused};
use crate::time::Instant;
use crossbeam_channel::TryRecvError;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Reason why there is no report of another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryFailure {
    /// The other peer is not known, has left, or does not answer in time.
    Failed(QuestionFailure),
    /// The other peer refuses.
    Refused(Refused),
    /// The answer is no such report: the other peer has another version.
    Misfit,
    /// This peer does not answer.
    NoAnswer,
    /// Too many requests of pages wait.
    TooManyRequests,
}

impl QueryFailure {
    /// State of a peer that reports nothing to others.
    pub(super) const NO_REPORTS: &str = "no_reports";

    /// Returns the state of the other peer for pages.
    pub(super) fn state(self) -> &'static str {
        match self {
            QueryFailure::Refused(Refused::NoReports) => QueryFailure::NO_REPORTS,
            QueryFailure::Refused(Refused::Busy) => "busy",
            QueryFailure::Refused(_) | QueryFailure::Misfit => "unknown_query",
            QueryFailure::Failed(_) => "no_answer",
            QueryFailure::NoAnswer | QueryFailure::TooManyRequests => "not_asked",
        }
    }
}

impl fmt::Display for QueryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryFailure::Failed(failure) => failure.fmt(f),
            QueryFailure::Refused(Refused::NoReports) => {
                write!(f, "{} (remote-reports is 'no' there)", Refused::NoReports)
            }
            QueryFailure::Refused(reason) => reason.fmt(f),
            QueryFailure::Misfit => write!(f, "the peer answers with another report; update the older of both peers"),
            QueryFailure::NoAnswer => write!(f, "this peer cannot ask at present: it waits for the network, or stops"),
            QueryFailure::TooManyRequests => write!(f, "too many pages ask other peers; try again"),
        }
    }
}

/// A query that is under way.
#[derive(Debug)]
pub(super) struct RemoteQuery {
    answers: AnswerReceiver,
    assembly: ReportAssembly,
    /// Time after which the local peer should have reported that there is no answer.
    until: Instant,
}

impl RemoteQuery {
    /// Sends a query.
    ///
    /// # Errors
    /// The local peer does not accept it at present.
    pub(super) fn send(
        mailbox: &Mailbox,
        client: ClientId,
        epoch: Epoch,
        query: &Value,
        timeout: Duration,
    ) -> Result<RemoteQuery, QueryFailure> {
        let (answer, answers) = AnswerSender::new(None);
        let question = Question::Report(query.to_string().into());
        let command = EngineCommand::QueryHistory { client, peer: PeerRef::Epoch(epoch), question, timeout, answer };
        mailbox.push(command, Duration::ZERO).map_err(|_| QueryFailure::NoAnswer)?;
        Ok(RemoteQuery { answers, assembly: ReportAssembly::default(), until: Clock::now().instant + 2 * timeout })
    }

    /// Returns the report or the reason why there is none, once either is known.
    pub(super) fn poll(&mut self) -> Option<Result<Value, QueryFailure>> {
        loop {
            let part = match self.answers.try_recv() {
                Ok(part) => part.map_err(QueryFailure::Failed),
                Err(TryRecvError::Empty) if Clock::now().instant < self.until => return None,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => Err(QueryFailure::NoAnswer),
            };
            let added = part.and_then(|part| {
                self.assembly.add(part).map_err(|error| match error {
                    AssemblyError::Refused(reason) => QueryFailure::Refused(reason),
                    AssemblyError::PartLost => QueryFailure::Failed(QuestionFailure::Timeout),
                    AssemblyError::Misfit => QueryFailure::Misfit,
                })
            });
            if let Some(outcome) = added.transpose() {
                return Some(outcome);
            }
        }
    }
}
