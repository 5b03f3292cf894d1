//! Events of a join, and the position at which each publisher's stream begins for the subscriber.

use crate::message::{Delivery, Dseq, Loss, Publisher, QuestionFailure};
use crate::proto::question::Refused;
use std::fmt;

/// Maximum number of subjects of all publishers together.
pub(super) const SUBJECTS_MAX: usize = 1_000_000;

/// Reason for which a publisher's history supplied nothing, or not everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinFailure {
    /// A question stayed unanswered.
    Unanswered(QuestionFailure),
    /// The publisher refused.
    Refused(Refused),
    /// There are more subjects than one subscription can begin with: 1,000,000.
    TooManySubjects,
}

impl fmt::Display for JoinFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinFailure::Unanswered(reason) => reason.fmt(f),
            JoinFailure::Refused(reason) => reason.fmt(f),
            JoinFailure::TooManySubjects => {
                write!(f, "more than {SUBJECTS_MAX} subjects; subscribe to several narrower patterns apart")
            }
        }
    }
}

/// Start of a subscription with one publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// The publisher.
    pub publisher: Publisher,
    /// Highest datagram that it had multicast when it answered: everything later is delivered, or reported as missing.
    /// `None` if it has not answered.
    pub after: Option<Dseq>,
    /// Number of messages delivered from its history.
    pub replayed: u64,
    /// Reason for which some or all requested messages are missing.
    pub unjoined: Option<JoinFailure>,
}

/// Start of a subscription with all publishers that were known when it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// Baselines in the order in which the publishers became known.
    pub baselines: Vec<Baseline>,
}

impl Joined {
    /// Returns whether every publisher has reported its baseline.
    pub fn is_established(&self) -> bool {
        self.baselines.iter().all(|baseline| baseline.after.is_some())
    }

    /// Returns the number of messages delivered from all histories.
    pub fn replayed(&self) -> u64 {
        self.baselines.iter().map(|baseline| baseline.replayed).sum()
    }
}

/// An event for the subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinEvent {
    /// A message, from a history or live.
    Message(Delivery),
    /// A loss, in a history or live.
    Loss(Loss),
    /// The subscription has begun with all publishers that were known when it was made. Later events are live, except
    /// for the histories of publishers that become known later.
    Joined(Joined),
}
