//! Reasons for which a peer refuses a client's request, or cannot answer it.

use crate::subject::{Pattern, Subject, SubjectError};
use std::fmt;

/// Reason for which the core refuses a client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The message is larger than the limit.
    MessageTooLarge {
        /// Size of payload, headers and reply subject, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// The client, or all clients together, have too many subscriptions.
    TooManySubscriptions {
        /// The limit that was reached.
        max: usize,
    },
    /// Matching the globs of the client, or of all clients together, would take too many steps for each message.
    TooManyGlobSteps {
        /// The limit that would be exceeded, in steps for one message.
        max: usize,
    },
    /// The certificate of this host does not let its programs publish on this subject.
    PublishDenied(Subject),
    /// The certificate of this host does not let its programs subscribe to this pattern.
    SubscribeDenied(Pattern),
    /// Clients cannot publish on this subject.
    Subject(SubjectError),
    /// A member of a queue group cannot be in mode `live`: without repair of losses, its share of the messages would be
    /// unknown.
    QueueLive,
    /// A member of a queue group cannot request announcements of publishers. Members do not share retained messages. A
    /// member gets only its share of new messages, in which a gap proves no loss.
    QueueDiscovery,
    /// The peer is stopping.
    Stopping,
}

/// Reason for which a history request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuestionFailure {
    /// No such peer is known.
    UnknownPeer,
    /// Several live peers have this name.
    Ambiguous,
    /// The peer has left or was given up, or this peer is stopping.
    Gone,
    /// No answer came in time.
    Timeout,
    /// Too many requests are unanswered, or the client has not read too many answers.
    TooMany,
    /// The request cannot be decoded.
    Malformed,
    /// The certificate of this host does not let its programs receive the subjects.
    Denied,
}

impl QuestionFailure {
    /// Returns the name in headers and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            QuestionFailure::UnknownPeer => "unknown-peer",
            QuestionFailure::Ambiguous => "ambiguous",
            QuestionFailure::Gone => "gone",
            QuestionFailure::Timeout => "timeout",
            QuestionFailure::TooMany => "too-many",
            QuestionFailure::Malformed => "malformed",
            QuestionFailure::Denied => "denied",
        }
    }
}

impl fmt::Display for QuestionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuestionFailure::UnknownPeer => "no such peer is known; 'seqcast show peers' lists those that are",
            QuestionFailure::Ambiguous => {
                "several live peers have this name; name one by its epoch ('seqcast show peers')"
            }
            QuestionFailure::Gone => "the peer has left or was given up",
            QuestionFailure::Timeout => "no answer came in time",
            QuestionFailure::TooMany => "too many questions have no answer yet, or too many answers wait to be read",
            QuestionFailure::Malformed => "the question cannot be read",
            QuestionFailure::Denied => {
                "the certificate of this host does not let its programs receive these subjects (seqcast realm show)"
            }
        })
    }
}
