//! Deliberate mistakes in the protocol, to prove that the simulator's oracle would notice them.
//!
//! A mutant is switched on at run time, and only in builds with the feature `sim` and in the unit-test build of this
//! crate. Everywhere else [`Mutants::is`] is a constant `false`, and the compiler removes the branch. Each mutant but
//! three has a test in `tests/sim/mutants.rs`, which fails if the oracle does not notice the mutant. Unit tests prove
//! the three: `QueueUnreachable` and `QueueMessageDropped` in `peer/tests/repair/queue.rs`, `EndedInterestDropped` in
//! `remote_interest/tests.rs`.

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// Never sends heartbeats (R3): tails and lost last messages go unnoticed.
    NoHeartbeat,
    /// A re-created subject takes the clock's frame, without `max(…, floor + 1)` (R10).
    NoFrameFloor,
    /// The baseline is always the first datagram received, as if every publisher were older than this peer (R4).
    BaselineFirstHeard,
    /// The baseline is always 0, as if every publisher were younger than this peer (R4).
    BaselineZero,
    /// A peer starts again with the epoch it had before (R1). The simulator makes this mistake, not the core.
    SameEpoch,
    /// On silence the ledger of the epoch is dropped, and a new one begins when the epoch is heard again (R8).
    ForgetOnSilence,
    /// A gap is settled the moment it is found, without the grace (R5).
    SettleAtOnce,
    /// An exact count of two or more lost messages of a subject is reported one too small (R12).
    CountOneTooFew,
    /// Every skip is reported as exactly one lost message ("1" for "unknown").
    SkipIsOne,
    /// A datagram that arrives after its gap was settled is delivered all the same (3.2).
    DeliverLate,
    /// A datagram already received is delivered again.
    DeliverDuplicates,
    /// A control datagram refreshes liveness even if its counter is not newer than the last one accepted (R3).
    StaleHeartbeatRefreshes,
    /// The cumulative count of a datagram leaves out the last message of the datagram before (A2).
    CountOffByOne,
    /// Messages that arrived while no client here subscribed to the subject are reported as lost.
    IgnoreContinuity,
    /// The chain of a new frame is ignored: messages lost before the wrap are never reported.
    IgnoreChain,
    /// A gap evicted because of a limit is dropped without a report (R9).
    OverflowSilent,
    /// A BYE announces one datagram fewer than were sent, so the last one may be lost unnoticed (R1).
    ByeShort,
    /// A heartbeat announces one datagram more than was sent.
    HighTooHigh,
    /// A buffered message is released although the gap before it is still open (A3).
    ReleaseEarly,
    /// Missing datagrams are requested once and never again (R5).
    RequestOnce,
    /// Missing datagrams are requested at once, without the reorder grace (R5).
    RequestAtOnce,
    /// Missing datagrams are given up after the reorder grace, although they were requested (R5).
    GiveUpSoon,
    /// The datagram after the requested one is retransmitted (R6).
    ResendOther,
    /// Datagrams that the publisher no longer has count as delivered (R6).
    ExpiredDelivered,
    /// Everything in a manifest counts as not wanted (R6).
    ManifestUnread,
    /// Losses in a gap are reported to a subscription that began after the gap was found (A6).
    ReportToLaterSubscriptions,
    /// A message that was repaired is counted twice (A5).
    RepairedTwice,
    /// The history returns all requested messages but the first (A7).
    FetchSkipsFirst,
    /// Messages of several datagrams are not requested from the history (R6).
    LargeNotRequested,
    /// The content of a repaired datagram is released at once, even if datagrams before it are missing (A3).
    RepairedFirst,
    /// Every peer is answered, even with an unproven address (W102).
    AnswerUnproven,
    /// Answers have no budget (W114).
    NoBudget,
    /// A receiver does not report its losses to the publisher.
    SilentReport,
    /// Missing multicast of a member goes unnoticed (3.4).
    BlackholeUnreported,
    /// Subscriptions in mode live wait as long as those in mode repair (A4).
    LiveWaits,
    /// Subscriptions in mode live are owed nothing from before the first contact with a publisher (R4).
    LiveFirstHeard,
    /// Directed messages go to subscriptions in mode repair only.
    DirectedRepairOnly,
    /// A heartbeat announces datagrams that the pacer still queues.
    QueuedAnnounced,
    /// A publisher ignores the receive capacity of receivers.
    PacerIgnoresReports,
    /// A publisher ignores pending requests of receivers.
    PacerIgnoresRequests,
    /// A receiver excluded from flow control once is never waited for again.
    ExcludedForever,
    /// A change of advertised subscriptions is applied although an earlier one is missing.
    InterestAcrossGap,
    /// A change of advertised subscriptions is applied although it is older than the table.
    StaleInterestApplied,
    /// Ended subscriptions are evicted without notice to the peers that know them.
    EndedInterestDropped,
    /// Messages are suppressed although it is not certain that no peer wants them.
    SuppressUncertain,
    /// The subscriptions of a peer that was given up no longer count as wanted.
    SuppressForgets,
    /// Every peer gives a message to its own member of each queue group, whichever peer the publisher chose.
    QueueOfReceiver,
    /// Requests for advertised subscriptions get no answer while repair uses the whole budget.
    InterestStarves,
    /// A message for a queue group may be assigned to a peer that is silent, or that a later run has replaced.
    QueueUnreachable,
    /// The outcome of queue-group messages is not reported.
    QueueUnreported,
    /// A message for a queue group is dropped if the last member here has just left.
    QueueMessageDropped,
    /// A late joiner receives live messages that it already received from the history.
    SpliceRepeated,
    /// A late joiner mistakes the first live message of each subject for one from the history.
    SpliceTooFar,
}

/// The active mutant, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutants {
    #[cfg(any(test, feature = "sim"))]
    on: Option<Mutant>,
}

impl Mutants {
    /// Returns the set with this one mutant.
    #[cfg(any(test, feature = "sim"))]
    pub fn only(mutant: Mutant) -> Mutants {
        Mutants { on: Some(mutant) }
    }

    /// Returns whether this mistake is active; always false without the feature `sim`.
    #[cfg(any(test, feature = "sim"))]
    pub fn is(self, mutant: Mutant) -> bool {
        self.on == Some(mutant)
    }

    /// Returns whether this mistake is active; always false without the feature `sim`.
    #[cfg(not(any(test, feature = "sim")))]
    pub const fn is(self, _: Mutant) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mutant_is_active_by_default() {
        assert!(!Mutants::default().is(Mutant::NoHeartbeat));
        assert!(Mutants::only(Mutant::NoHeartbeat).is(Mutant::NoHeartbeat));
        assert!(!Mutants::only(Mutant::NoHeartbeat).is(Mutant::NoFrameFloor));
    }
}
