//! Reasons for which a peer refuses a client's request, or has no answer to it.

use crate::subject::SubjectError;
use std::fmt;

/// Reason for which the core refuses a client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The message is larger than the limit.
    MessageTooLarge {
        /// Size in bytes: payload, headers and reply subject.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The client, or all clients together, have too many subscriptions.
    TooManySubscriptions {
        /// The limit that was reached.
        max: usize,
    },
    /// Matching the globs of the client, or of all clients together, would take too many steps.
    TooManyGlobSteps {
        /// The limit that would be exceeded: steps for one message.
        max: usize,
    },
    /// The subject cannot be published on by a client.
    Subject(SubjectError),
    /// A member of a queue group cannot be in mode `live`: its share of messages would be unknown if nobody repaired
    /// losses.
    QueueLive,
    /// Publishers cannot be reported to a member of a queue group. Retained messages are not shared among members, and
    /// a member gets only its share of new messages, in which gaps mean nothing.
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
    /// Too many requests are unanswered, or too many answers wait to be read.
    TooMany,
    /// The request cannot be decoded.
    Malformed,
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
        })
    }
}
