//! Context of a stream for one input, and the outcomes that it produces.

use crate::message::{Count, DeliveryMode, Dseq, Epoch, Message, MissingDatagrams, Reason, Verdict};
use crate::proto::interest::{InterestTable, MatchSet};
use crate::proto::ledger::SettledRange;
use crate::proto::list_pools::ListPools;
use crate::proto::loss::LossCounters;
use crate::proto::mutant::Mutants;
use crate::proto::run_delivery::RunDelivery;
use crate::proto::stats::Counters;
use crate::proto::stream_item::StreamItem;
use crate::proto::window::{StreamIndex, SubWindow};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::{ClockReading, Instant};
use std::sync::Arc;

/// Context of a stream for one input.
pub struct ReceiveContext<'a> {
    /// The time.
    pub now: ClockReading,
    /// The publisher's number in the subscription window.
    pub uid: u32,
    /// Last sequence number of each stream.
    pub window: &'a mut SubWindow,
    /// Result of the look-up of the current run.
    pub lookup: Option<RunLookup>,
    /// Lists of earlier datagrams, for later ones.
    pub lists: &'a mut ListPools,
    /// Local subscriptions.
    pub interest: &'a mut InterestTable,
    /// Mode of the subscriptions that the stream serves.
    pub mode: DeliveryMode,
    /// Prefix of the subjects that belong to this peer alone.
    pub inbox: &'a str,
    /// Epoch of this run, as stamps of queue groups name it.
    pub own: Epoch,
    /// True if the publisher may publish on every subject, so that no run needs to be checked.
    pub permits_all: bool,
    /// Counters of the whole peer.
    pub counters: &'a mut Counters,
    /// Counters of this publisher.
    pub losses: &'a mut LossCounters,
    /// Earliest arrival of the current datagram, at most the time at which it can have been sent.
    pub arrived: Instant,
    /// Time at which a gap found now is settled.
    pub deadline: Instant,
    /// Deadline up to which gaps are settled: now, or the time at which the publisher was last heard, for its silence
    /// does not count (A1).
    pub settled_to: Instant,
    /// Reason with which such a gap is settled.
    pub reason: Reason,
    /// Number of known receivers of the multicast stream.
    pub receivers: usize,
    /// Kernel drops that no gap explains yet.
    pub overrun: &'a mut u64,
    /// Start of the publisher's window time. A subject that it re-created after this instant cannot have been in its
    /// window (R11).
    pub recent: Instant,
    /// Number of messages that a frame holds before the count wraps.
    pub frame_messages_max: u64,
    /// Deliberate mistakes, in tests of the oracle.
    pub mutants: Mutants,
}

/// Result of the look-ups for a run before its disposition. All runs of a datagram are looked up one after the other,
/// so that their memory accesses overlap.
#[derive(Clone, Debug)]
pub struct RunLookup {
    /// Subscriptions that match it.
    pub matched: Option<Arc<MatchSet>>,
    /// Location of its stream in the window, if a subscription matches and the stream has an entry.
    pub index: Option<StreamIndex>,
}

/// Outcome of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamOutcome {
    /// Messages to deliver.
    Deliver {
        /// A run, or a reassembled large message.
        item: StreamItem,
        /// Number of messages at its front that were received before.
        repeated: usize,
        /// True if they were missing at first, and were requested.
        repaired: bool,
        /// Verdict on the first one delivered; the others follow it.
        verdict: Verdict,
        /// Offset of the first message of their frame in the history, if it is known.
        offset: Option<u32>,
        /// Subscriptions that match them.
        matched: Arc<MatchSet>,
    },
    /// Runs of a datagram to deliver together.
    DeliverRuns {
        /// Items of the datagram, all of which are runs.
        items: Vec<StreamItem>,
        /// The runs to deliver; at least one.
        runs: Vec<RunDelivery>,
    },
    /// Lost messages of a subject.
    Lost {
        /// The subject.
        subject: Subject,
        /// The lowest number.
        first: Seq,
        /// The highest number.
        last: Seq,
        /// Number of lost messages.
        count: Count,
        /// Subscriptions that began up to this instant are owed `count` messages; later ones are owed at most that
        /// number.
        since: Instant,
        /// Subscriptions that match them.
        matched: Arc<MatchSet>,
        /// Reason of the loss.
        reason: Reason,
        /// Missing datagrams that held them, by the last one of each range.
        missing: Vec<(Dseq, MissingDatagrams)>,
    },
    /// Missing datagrams whose content is unknown.
    Unverified {
        /// The range.
        range: SettledRange,
        /// Messages in it that are unexplained.
        messages: Count,
    },
    /// Messages to fetch from the publisher's history, because it no longer has their datagram.
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
    /// Messages without subscriptions here, one of them for a member of a queue group here.
    Unserved {
        /// The messages.
        item: StreamItem,
        /// True if they were sent to this peer alone.
        directed: bool,
    },
    /// A question to this peer's history, or an answer to one of its own.
    Service(Message),
    /// Lost messages that were directed to this peer.
    InboxLost {
        /// Number of lost messages.
        messages: u64,
        /// Reason of the loss.
        reason: Reason,
        /// Missing datagrams that held them.
        missing: MissingDatagrams,
    },
}
