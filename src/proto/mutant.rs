//! Deliberate mistakes in the protocol, to prove that the simulator's oracle would notice them.
//!
//! A mutant is switched on at run time and only in the unit-test build of this crate: everywhere else
//! [`Mutants::is`] is a constant `false` and the compiler removes the branch. Each mutant but three has a test in
//! `sim::mutants` that fails when the oracle lets it pass. Unit tests prove the three: `QueueUnreachable` and `QueueKept` in
//! `peer/tests/repair/queue.rs`, `EndedForgotten` in `remote_interest/tests.rs`.

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// Never sends heartbeats (R3): tails and lost last messages go unnoticed.
    NoHeartbeat,
    /// A re-created subject takes the clock's frame, without `max(…, floor + 1)` (R10).
    NoFrameFloor,
    /// The baseline is always the first datagram heard, as if every publisher were older than we are (R4).
    BaselineFirstHeard,
    /// The baseline is always 0, as if every publisher were younger than we are (R4).
    BaselineZero,
    /// A peer starts again with the epoch it had before (R1). The simulator makes this mistake, not the core.
    SameEpoch,
    /// On silence the ledger of the epoch is forgotten and begun anew when it is heard again (R8).
    ForgetOnSilence,
    /// A gap is settled the moment it is found, without the grace (R5).
    SettleAtOnce,
    /// An exact count of two or more lost messages of a subject is told one too small (R12).
    CountOneTooFew,
    /// Every skip is told as exactly one lost message ("1" for "unknown").
    SkipIsOne,
    /// A datagram that arrives after its gap was settled is delivered all the same (3.2).
    DeliverLate,
    /// A datagram already received is delivered again.
    DeliverDuplicates,
    /// A control datagram refreshes liveness even if its counter is not newer than the last one accepted (R3).
    StaleHeartbeatRefreshes,
    /// The cumulative count of a datagram leaves out the last message of the datagram before (A2).
    CountOffByOne,
    /// Messages that passed while nobody here subscribed to the subject are told as lost.
    IgnoreContinuity,
    /// The chain of a new frame is ignored: what was lost before the wrap is never told.
    IgnoreChain,
    /// A gap that must give way to a limit is dropped without a word (R9).
    OverflowSilent,
    /// A BYE announces one datagram fewer than were sent, so the last one may be lost unnoticed (R1).
    ByeShort,
    /// A heartbeat announces one datagram more than was sent.
    HighTooHigh,
    /// A held message is released although the gap before it is still open (A3).
    ReleaseEarly,
    /// What is missing is asked for once and never again (R5).
    AskOnce,
    /// What is missing is asked for at once, without the reorder grace (R5).
    AskAtOnce,
    /// What is missing is given up after the reorder grace, though it was asked for (R5).
    GiveUpSoon,
    /// The datagram after the one that was asked for is sent again (R6).
    ResendOther,
    /// What the publisher does not have any more counts as delivered (R6).
    ExpiredDelivered,
    /// Whatever a manifest tells counts as not wanted (R6).
    ManifestUnread,
    /// A subscription that began after a gap was found is told of what was in it (A6).
    ReportToLaterSubscriptions,
    /// A message that was repaired is counted twice (A5).
    RepairedTwice,
    /// The history gives all messages that are asked of it but the first (A7).
    FetchSkipsFirst,
    /// The history is not asked for messages of several datagrams (R6).
    LargeUnasked,
    /// What a datagram that was missing held is handed on at once, whatever is missing before it (A3).
    RepairedFirst,
    /// Whoever asks is answered, whether its address was proven or not (5.6).
    AnswerUnproven,
    /// Answers have no budget (5.6).
    NoBudget,
    /// A receiver does not tell the publisher what it missed.
    SilentReport,
    /// Nobody notices that the multicasts of a member do not arrive (3.4).
    BlackholeUntold,
    /// Subscriptions in mode live wait as long as those in mode repair (A4).
    LiveWaits,
    /// Subscriptions in mode live are owed nothing from before the first contact with a publisher (R4).
    LiveFirstHeard,
    /// Directed messages go to subscriptions in mode repair only.
    DirectedRepairOnly,
    /// A heartbeat names datagrams that are still kept back.
    HeldAnnounced,
    /// A publisher does not heed what receivers have room for.
    PacerDeaf,
    /// A publisher does not heed what receivers still ask for.
    PacerRunsAway,
    /// Who was left behind once is not waited for ever again.
    LeftForGood,
    /// News of subscriptions is applied though something before it is missing.
    NewsAcrossGap,
    /// News of subscriptions is applied though it is older than what is known.
    LateNewsApplied,
    /// Subscriptions that ended are forgotten without a word to those who know them.
    EndedForgotten,
    /// Messages are spared though it is not certain that nobody wants them.
    SpareUncertain,
    /// What a peer wanted that was given up is not wanted any more.
    SpareForgets,
    /// Every peer gives a message to a member of its own of each queue group, whomever the publisher chose.
    QueueOfReceiver,
    /// Requests for subscriptions get no answer while repair takes the whole budget.
    InterestStarves,
    /// A message for a queue group may be assigned to a peer that is silent, or that a later run has replaced.
    QueueUnreachable,
    /// Nobody is told what became of the messages of queue groups.
    QueueUnreported,
    /// A message for a queue group is dropped if the last member here has just left.
    QueueKept,
    /// A late joiner gets live what came from the history already.
    SpliceForgotten,
    /// A late joiner takes the first live message of each subject for one that came from the history.
    SpliceTooFar,
}

/// The mutant that is on, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutants {
    #[cfg(test)]
    on: Option<Mutant>,
}

impl Mutants {
    /// The protocol with this mistake.
    #[cfg(test)]
    pub(crate) fn only(mutant: Mutant) -> Mutants {
        Mutants { on: Some(mutant) }
    }

    /// Whether this mistake is to be made; always false outside the unit-test build.
    #[cfg(test)]
    pub fn is(self, mutant: Mutant) -> bool {
        self.on == Some(mutant)
    }

    /// Whether this mistake is to be made; always false outside the unit-test build.
    #[cfg(not(test))]
    pub const fn is(self, _: Mutant) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_wrong_by_default() {
        assert!(!Mutants::default().is(Mutant::NoHeartbeat));
        assert!(Mutants::only(Mutant::NoHeartbeat).is(Mutant::NoHeartbeat));
        assert!(!Mutants::only(Mutant::NoHeartbeat).is(Mutant::NoFrameFloor));
    }
}
