//! This peer's own questions to the histories of others, for its clients and for repair, and the fetches of repair that
//! were not sent yet.

use crate::message::{ClientId, Dseq, Epoch, Message};
use crate::proto::question;
use crate::proto::recv::StreamOutcome;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::Instant;
use std::collections::BTreeMap;

/// Maximum number of unanswered questions, of all clients together and for repair.
const QUESTIONS_MAX: usize = 65_536;
/// Number of questions reserved for repair, regardless of the number of questions of clients.
const REPAIR_QUESTIONS_MAX: usize = QUESTIONS_MAX / 2;

/// A poll in text without an answer: its client and its reply subject.
#[derive(Clone, Debug)]
pub(super) struct TextPoll {
    pub client: ClientId,
    pub reply: Subject,
}

/// Messages to fetch from a publisher's history, as part of repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RepairFetch {
    pub epoch: Epoch,
    pub dseq: Dseq,
    pub subject: Subject,
    pub first: Seq,
    pub last: Seq,
}

/// Recipient of an answer.
#[derive(Clone, Debug)]
pub(super) enum AnswerRecipient {
    /// A client, with its own number for the question.
    Client(ClientId, u64),
    /// A client that polls by a request in text.
    Text(TextPoll),
    /// A datagram that is being rebuilt, and its fetches.
    Repair(Dseq, Vec<question::Fetch>),
}

/// A question without an answer.
#[derive(Clone, Debug)]
pub(super) struct PendingQuestion {
    /// Peer whose history is queried.
    pub(super) peer: Epoch,
    /// Recipient of the answer.
    pub(super) requester: AnswerRecipient,
    /// Time at which the question fails.
    pub(super) deadline: Instant,
}

/// Questions of this peer without an answer.
pub(super) struct PendingQuestions {
    /// Fetches of repair from the histories of publishers that were not sent yet.
    pub(super) fetches: Vec<RepairFetch>,
    /// Questions by number.
    pending: BTreeMap<u64, PendingQuestion>,
    /// Number of the last question.
    last: u64,
    /// Lower bound of the deadlines of all questions.
    timeout: Option<Instant>,
    /// Questions and answers that were released at the end of this peer's last epoch, with their senders.
    postponed: Vec<(Epoch, Message)>,
}

impl PendingQuestions {
    /// Creates the state of a peer without questions; their numbers follow `last`.
    pub(super) fn new(last: u64) -> PendingQuestions {
        PendingQuestions { fetches: Vec::new(), pending: BTreeMap::new(), last, timeout: None, postponed: Vec::new() }
    }

    /// Keeps questions and answers of a peer until the next tick.
    pub(super) fn postpone(&mut self, from: Epoch, services: Vec<StreamOutcome>) {
        let message =
            |outcome| if let StreamOutcome::Service(message) = outcome { Some((from, message)) } else { None };
        self.postponed.extend(services.into_iter().filter_map(message));
    }

    /// Returns the questions and answers that were kept until now, with their senders.
    pub(super) fn take_postponed(&mut self) -> Vec<(Epoch, Message)> {
        std::mem::take(&mut self.postponed)
    }

    /// Returns whether a client may send another question.
    pub(super) fn has_room_for_client(&self) -> bool {
        self.pending.len() < QUESTIONS_MAX - REPAIR_QUESTIONS_MAX
    }

    /// Returns whether repair may send another question.
    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < QUESTIONS_MAX
    }

    /// Adds a question and returns its number.
    pub(super) fn add(&mut self, question: PendingQuestion) -> u64 {
        self.last += 1;
        let deadline = question.deadline;
        self.timeout = Some(self.timeout.map_or(deadline, |due| due.min(deadline)));
        self.pending.insert(self.last, question);
        self.last
    }

    /// Returns the question with this number to a peer.
    pub(super) fn find(&self, id: u64, peer: Epoch) -> Option<&PendingQuestion> {
        self.pending.get(&id).filter(|question| question.peer == peer)
    }

    /// Removes a question that has its answer, or that has failed.
    pub(super) fn remove(&mut self, id: u64) -> Option<PendingQuestion> {
        self.pending.remove(&id)
    }

    /// Returns the time at which the next question may fail.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timeout
    }

    /// Removes the questions whose time has passed.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Vec<PendingQuestion> {
        if self.timeout.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let overdue = self.take(|question| question.deadline <= now);
        self.timeout = self.pending.values().map(|question| question.deadline).min();
        overdue
    }

    /// Removes the questions to a peer.
    pub(super) fn take_of_peer(&mut self, peer: Epoch) -> Vec<PendingQuestion> {
        self.take(|question| question.peer == peer)
    }

    fn take(&mut self, is_match: impl Fn(&PendingQuestion) -> bool) -> Vec<PendingQuestion> {
        let ids: Vec<u64> = self.pending.iter().filter(|(_, question)| is_match(question)).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.pending.remove(&id)).collect()
    }

    /// Discards the questions of a client that has disconnected.
    pub(super) fn discard_client(&mut self, client: ClientId) {
        self.pending.retain(|_, question| match &question.requester {
            AnswerRecipient::Client(requester, _) | AnswerRecipient::Text(TextPoll { client: requester, .. }) => {
                *requester != client
            }
            AnswerRecipient::Repair(..) => true,
        });
    }

    /// Checks that no question waits beyond its deadline unnoticed, and that numbers are not reused.
    pub(super) fn assert_invariants(&self) {
        assert!(self.pending.len() <= QUESTIONS_MAX);
        assert!(self.pending.last_key_value().is_none_or(|(id, _)| *id <= self.last), "numbers rise");
        let earliest = self.pending.values().map(|question| question.deadline).min();
        assert!(earliest.is_none_or(|at| self.timeout.is_some_and(|due| due <= at)), "a tick comes for each question");
    }
}
