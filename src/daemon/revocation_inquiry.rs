//! The inquiry for newer lists of revoked hosts: which peers have announced one, which of them is asked next, and its
//! answer. The peers take turns, so that one that announces a list and gives none does not delay the others.

use crate::daemon::mailbox::{AnswerReceiver, AnswerSender};
use crate::daemon::report_assembly::{AssemblyError, ReportAssembly};
use crate::message::{Epoch, QuestionFailure};
use crate::security::realm::{RevocationList, RevocationListError};
use crate::time::Instant;
use crossbeam_channel::TryRecvError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::time::Duration;

/// Maximum time for which an answer is awaited.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Time between two questions. A peer announces its list each second, so no question is repeated by itself.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of peers that are remembered until they are asked.
const ANNOUNCED_MAX: usize = 256;
/// Field of the question and of the answer.
const FIELD: &str = "revocations";

/// Returns the query for the list of a peer.
pub(crate) fn query() -> Value {
    json!({ FIELD: {} })
}

/// Returns whether a query is one for the list.
pub(crate) fn is_query(query: &Value) -> bool {
    query.get(FIELD).is_some()
}

/// Returns the answer to the query.
pub(crate) fn answer(list: Option<&RevocationList>) -> Value {
    json!({ FIELD: list.map(RevocationList::to_base64) })
}

/// Reason why a peer gives no list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InquiryFailure {
    /// The peer does not answer.
    NoAnswer(QuestionFailure),
    /// The answer is refused, incomplete or of another kind.
    Misfit(AssemblyError),
    /// The answer has no list.
    NoList,
    /// The list cannot be read.
    Malformed(RevocationListError),
}

impl fmt::Display for InquiryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InquiryFailure::NoAnswer(failure) => failure.fmt(f),
            InquiryFailure::Misfit(AssemblyError::Refused(reason)) => reason.fmt(f),
            InquiryFailure::Misfit(AssemblyError::PartLost) => f.write_str("a part of the answer is lost"),
            InquiryFailure::Misfit(AssemblyError::Misfit) => f.write_str("the answer is none to this question"),
            InquiryFailure::NoList => f.write_str("the answer has no list"),
            InquiryFailure::Malformed(error) => error.fmt(f),
        }
    }
}

/// A question without an answer.
struct PendingInquiry {
    peer: Epoch,
    answers: AnswerReceiver,
    assembly: ReportAssembly,
    /// Time after which the core should have reported that there is no answer.
    until: Instant,
}

/// The inquiry of one peer.
#[derive(Default)]
pub(crate) struct RevocationInquiry {
    /// Revisions that other peers have announced, since they were asked last.
    announced: BTreeMap<Epoch, u64>,
    last_asked: Option<Epoch>,
    /// Time from which the next peer may be asked; `None` before the first.
    due: Option<Instant>,
    pending: Option<PendingInquiry>,
}

impl RevocationInquiry {
    /// Records that a peer has a newer list than this one.
    pub(crate) fn on_announced(&mut self, peer: Epoch, revision: u64) {
        if self.announced.len() < ANNOUNCED_MAX || self.announced.contains_key(&peer) {
            self.announced.insert(peer, revision);
        }
    }

    /// Returns the peer to ask now, with the sender of its answer; `revision` is that of the present list.
    pub(crate) fn next_question(&mut self, now: Instant, revision: u64) -> Option<(Epoch, AnswerSender)> {
        self.announced.retain(|_, announced| revision < *announced);
        if self.pending.is_some() || self.due.is_some_and(|due| now < due) {
            return None;
        }
        let after = self.last_asked.map_or(Bound::Unbounded, Bound::Excluded);
        let mut following = self.announced.range((after, Bound::Unbounded));
        let peer = *following.next().or_else(|| self.announced.first_key_value())?.0;
        self.announced.remove(&peer);
        self.last_asked = Some(peer);
        self.due = Some(now + INTERVAL);
        let (sender, answers) = AnswerSender::new(None);
        let until = now + 2 * ANSWER_TIME;
        self.pending = Some(PendingInquiry { peer, answers, assembly: ReportAssembly::default(), until });
        Some((peer, sender))
    }

    /// Returns the peer that was asked and its list, or the reason why it gives none, once either is known.
    pub(crate) fn take_answer(&mut self, now: Instant) -> Option<(Epoch, Result<RevocationList, InquiryFailure>)> {
        let PendingInquiry { peer, answers, assembly, until } = self.pending.as_mut()?;
        let outcome = loop {
            let part = match answers.try_recv() {
                Ok(part) => part.map_err(InquiryFailure::NoAnswer),
                Err(TryRecvError::Empty) if now < *until => return None,
                Err(TryRecvError::Empty) => Err(InquiryFailure::NoAnswer(QuestionFailure::Timeout)),
                Err(TryRecvError::Disconnected) => Err(InquiryFailure::NoAnswer(QuestionFailure::Gone)),
            };
            let added = part.and_then(|part| assembly.add(part).map_err(InquiryFailure::Misfit));
            if let Some(outcome) = added.transpose() {
                break outcome;
            }
        };
        let peer = *peer;
        self.pending = None;
        Some((peer, outcome.and_then(|answer| list_of(&answer))))
    }

    /// Returns the time at which the next peer is to be asked, or the question has failed.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.pending {
            Some(pending) => Some(pending.until),
            None if self.announced.is_empty() => None,
            None => Some(self.due.unwrap_or(Instant::ZERO)),
        }
    }
}

fn list_of(answer: &Value) -> Result<RevocationList, InquiryFailure> {
    let text = answer[FIELD].as_str().ok_or(InquiryFailure::NoList)?;
    RevocationList::from_base64(text).map_err(InquiryFailure::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Dseq;
    use crate::proto::question::{ANSWER_BYTES_MAX, Answer, AnswerContent, PART_BYTES_MAX, Refused};
    use crate::security::realm::{HostIdentity, REVOCATION_LIST_BYTES_MAX, RevocationListFields, SigningKey};

    // The answer has 4 characters for 3 bytes, and less than 64 around them.
    const _: () = assert!(REVOCATION_LIST_BYTES_MAX.div_ceil(3) * 4 + 64 <= ANSWER_BYTES_MAX);

    fn epoch(number: u64) -> Epoch {
        Epoch::new(number).unwrap()
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn list() -> RevocationList {
        let fingerprint = HostIdentity::from_seed(&[1; 32]).keys().fingerprint();
        let hosts = [(fingerprint, "B.test".parse().unwrap())].into();
        let fields = RevocationListFields { realm: "plant1".parse().unwrap(), revision: 3, hosts };
        RevocationList::sign(fields, &SigningKey::from_seed(&[9; 32])).unwrap()
    }

    /// Returns the parts of an answer as a peer sends them.
    fn parts(answer: &Value) -> Vec<Answer> {
        let bytes = answer.to_string().into_bytes();
        let count = bytes.len().div_ceil(PART_BYTES_MAX);
        let part = |(number, bytes): (usize, &[u8])| {
            let content = AnswerContent::Report(bytes.to_vec().into());
            let part = u16::try_from(number).unwrap();
            Answer { epoch: epoch(1), high: Dseq(0), part, last: number + 1 == count, content }
        };
        bytes.chunks(PART_BYTES_MAX).enumerate().map(part).collect()
    }

    #[test]
    fn peers_are_asked_in_turn_once_a_second() {
        let mut inquiry = RevocationInquiry::default();
        assert_eq!((inquiry.deadline(), inquiry.next_question(at(0), 2).is_some()), (None, false));
        let mut asked = Vec::new();
        for millis in (0..6000).step_by(100) {
            (1..=3).for_each(|peer| inquiry.on_announced(epoch(peer), 2 + peer));
            if let Some((peer, sender)) = inquiry.next_question(at(millis), 3) {
                asked.push((millis, peer));
                assert!(inquiry.next_question(at(millis + 5000), 3).is_none(), "one question at a time");
                assert!(sender.send(Err(QuestionFailure::Timeout)));
                let failure = InquiryFailure::NoAnswer(QuestionFailure::Timeout);
                assert_eq!(inquiry.take_answer(at(millis)), Some((peer, Err(failure))));
            }
        }
        // Peer 1 has no newer list than revision 3.
        let expected = [2, 3, 2, 3, 2, 3].map(epoch);
        assert_eq!(asked, (0..6000).step_by(1000).zip(expected).collect::<Vec<_>>());
        assert_eq!(inquiry.deadline(), Some(at(6000)));
        assert!(inquiry.next_question(at(9000), 5).is_none());
        assert_eq!(inquiry.deadline(), None);
    }

    #[test]
    fn remembered_announcements_have_a_bound() {
        let mut inquiry = RevocationInquiry::default();
        (1..2 * ANNOUNCED_MAX as u64).for_each(|peer| inquiry.on_announced(epoch(peer), 1));
        assert_eq!(inquiry.announced.len(), ANNOUNCED_MAX);
    }

    #[test]
    fn question_without_answer_fails_in_time() {
        let mut inquiry = RevocationInquiry::default();
        inquiry.on_announced(epoch(1), 3);
        let (peer, _sender) = inquiry.next_question(at(0), 0).unwrap();
        let until = inquiry.deadline().unwrap();
        assert_eq!(inquiry.take_answer(at(5000)), None);
        let failure = InquiryFailure::NoAnswer(QuestionFailure::Timeout);
        assert_eq!(inquiry.take_answer(until), Some((peer, Err(failure))));
    }

    #[test]
    fn answer_is_a_list_or_a_failure() {
        let ask = |parts: Vec<Answer>| {
            let mut inquiry = RevocationInquiry::default();
            inquiry.on_announced(epoch(1), 3);
            let (_, sender) = inquiry.next_question(at(0), 0).unwrap();
            assert_eq!(inquiry.take_answer(at(0)), None);
            assert!(parts.into_iter().all(|part| sender.send(Ok(part))));
            drop(sender);
            inquiry.take_answer(at(0)).unwrap().1
        };
        let answered = answer(Some(&list()));
        assert!(is_query(&query()));
        assert_eq!(ask(parts(&answered)), Ok(list()));
        let long = json!({ FIELD: list().to_base64(), "padding": "x".repeat(2 * PART_BYTES_MAX) });
        assert_eq!(ask(parts(&long)), Ok(list()));
        let refusal = Answer { content: AnswerContent::Refused(Refused::Unknown), ..parts(&answered).remove(0) };
        let cases = [
            (parts(&answer(None)), InquiryFailure::NoList),
            (parts(&json!({ "error": "no" })), InquiryFailure::NoList),
            (parts(&json!({ FIELD: "AAAA" })), InquiryFailure::Malformed(RevocationListError::Truncated)),
            (parts(&json!({ FIELD: "?" })), InquiryFailure::Malformed(RevocationListError::Base64)),
            (vec![refusal], InquiryFailure::Misfit(AssemblyError::Refused(Refused::Unknown))),
            (parts(&long)[1..].to_vec(), InquiryFailure::Misfit(AssemblyError::PartLost)),
            (parts(&long)[..1].to_vec(), InquiryFailure::NoAnswer(QuestionFailure::Gone)),
        ];
        for (parts, expected) in cases {
            assert_eq!(ask(parts), Err(expected));
        }
    }
}
