//! What a stream needs for one input, and what it decides.

use super::item::StreamItem;
use crate::message::{Count, DeliveryMode, Dseq, Epoch, Message, MissingDatagrams, Reason, Verdict};
use crate::proto::interest::{InterestTable, MatchSet};
use crate::proto::ledger::SettledRange;
use crate::proto::loss::LossCounters;
use crate::proto::mutant::Mutants;
use crate::proto::stats::Counters;
use crate::proto::window::{StreamIndex, SubWindow};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::{ClockReading, Instant};
use std::sync::Arc;

/// What a stream needs of its surroundings for one input.
pub struct ReceiveContext<'a> {
    /// The time.
    pub now: ClockReading,
    /// The publisher's number in the subscription window.
    pub uid: u32,
    /// The last number of each stream.
    pub window: &'a mut SubWindow,
    /// What was sought before of the run at hand.
    pub lookup: Option<RunLookup>,
    /// Who wants what.
    pub interest: &'a mut InterestTable,
    /// Whose subscriptions count.
    pub mode: DeliveryMode,
    /// The prefix of subjects that belong to this peer alone.
    pub inbox: &'a str,
    /// This run, as stamps of queue groups name it.
    pub own: Epoch,
    /// Counters of the whole peer.
    pub counters: &'a mut Counters,
    /// Counters of this publisher.
    pub losses: &'a mut LossCounters,
    /// When the datagram at hand arrived, at the earliest, and not later than it can have been sent.
    pub arrived: Instant,
    /// When a gap found now is settled.
    pub deadline: Instant,
    /// Gaps due until then are settled: now, or when the publisher was last heard, for its silence does not count (A1).
    pub settled_to: Instant,
    /// Why a gap is settled then.
    pub reason: Reason,
    /// Receivers of the multicast stream, as far as known.
    pub receivers: usize,
    /// Kernel drops that no gap explains yet.
    pub overrun: &'a mut u64,
    /// What was sent after this instant is younger than the publisher's window time, so a subject that it re-created
    /// cannot have been in it (R11).
    pub recent: Instant,
    /// Messages that a frame holds before the count wraps.
    pub frame_messages_max: u64,
    /// Deliberate mistakes, in tests of the oracle.
    pub mutants: Mutants,
}

/// What is looked up of a run before it is judged: all runs of a datagram one after the other, so that their memory is waited for
/// together.
#[derive(Clone, Debug)]
pub struct RunLookup {
    /// Who wants it.
    pub matched: Option<Arc<MatchSet>>,
    /// Where its stream stands in the window, if somebody wants it and it stands there.
    pub place: Option<StreamIndex>,
}

/// What a stream decided.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamOutcome {
    /// Hand on these messages.
    Deliver {
        /// A run, or a large message made whole.
        item: StreamItem,
        /// Messages at its front that were received before.
        repeated: usize,
        /// Whether they were missing at first, and asked for.
        repaired: bool,
        /// The verdict on the first one handed on; the others follow it.
        verdict: Verdict,
        /// The offset of the first message of their frame in the history, if it is known.
        offset: Option<u32>,
        /// Who wants them.
        matched: Arc<MatchSet>,
    },
    /// Messages of a subject are lost.
    Lost {
        /// The subject.
        subject: Subject,
        /// The lowest number.
        first: Seq,
        /// The highest number.
        last: Seq,
        /// How many.
        count: Count,
        /// Subscriptions that began later than this are owed at most so many.
        since: Instant,
        /// Who wants them.
        matched: Arc<MatchSet>,
        /// Why.
        reason: Reason,
        /// The missing datagrams that held them, by the last one of each range.
        missing: Vec<(Dseq, MissingDatagrams)>,
    },
    /// Datagrams are missing and their content is not known.
    Unverified {
        /// The range.
        range: SettledRange,
        /// Messages in it that nothing has explained.
        messages: Count,
    },
    /// Ask the publisher's history for messages whose datagram it does not have any more.
    Fetch {
        /// The datagram.
        dseq: Dseq,
        /// The subject.
        subject: Subject,
        /// The lowest number.
        first: Seq,
        /// The highest number, of the same frame.
        last: Seq,
    },
    /// Messages that nobody here wants any more, though one of them is for a member of a queue group here.
    Unserved {
        /// The messages.
        item: StreamItem,
        /// Whether they were sent to this peer alone.
        directed: bool,
    },
    /// A question to this peer's history, or an answer to one of its own.
    Service(Message),
    /// Messages directed to this peer are lost.
    Inbox {
        /// How many.
        messages: u64,
        /// Why.
        reason: Reason,
        /// The missing datagrams that held them.
        missing: MissingDatagrams,
    },
}
