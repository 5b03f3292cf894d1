//! Every counter there is, and the rows that `show` prints. Counters only rise.

use crate::message::{ClientId, DeliveryMode, Dseq, Publisher, Reason, SubId, SubscriptionFilter};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use crate::wire::Report;
use std::net::SocketAddr;
use std::time::Duration;

/// A struct of counters that knows their names, with a prefix, and their meanings.
macro_rules! counters {
    ($(#[$attribute:meta])+ $counters:ident, $prefix:literal: $($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(#[$attribute])+
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl $counters {
            /// (name, value, meaning) of each counter, in the order of declaration.
            pub fn rows(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((concat!($prefix, stringify!($name)), self.$name, concat!($($doc),+).trim_ascii()),)+]
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// Counters of the whole peer.
    Counters, "":
    /// Datagrams received, of any kind and quality.
    datagrams_in,
    /// Bytes of UDP payload received.
    bytes_in,
    /// Datagrams sent to the group.
    datagrams_multicast,
    /// Datagrams sent to single peers.
    datagrams_unicast,
    /// Bytes of UDP payload sent.
    bytes_out,
    /// Messages published by local clients.
    messages_published,
    /// Messages received and delivered to at least one subscription.
    messages_delivered,
    /// Deliveries: one message to three subscriptions counts three.
    deliveries,
    /// Messages of local clients delivered on this same peer.
    messages_local,
    /// Discarded: not this protocol (magic).
    discard_foreign,
    /// Discarded: another version of this protocol.
    discard_version,
    /// Discarded: a security mode that this build does not have.
    discard_mode,
    /// Discarded: another group.
    discard_group,
    /// Discarded: the check value does not fit the bytes.
    discard_check,
    /// Discarded: well checked but not decodable.
    discard_malformed,
    /// Discarded: this peer's own multicast, looped back.
    discard_own,
    /// Discarded: an epoch heard from another address than the one it is bound to, or from one that cannot be answered.
    discard_source,
    /// Discarded: a datagram already received.
    discard_duplicate,
    /// Discarded: arrived after its loss was settled.
    discard_late,
    /// Discarded: from before the baseline of this peer.
    discard_before_baseline,
    /// Discarded: from an epoch that has ended.
    discard_old_epoch,
    /// Discarded: a control datagram not newer than the last one accepted.
    discard_stale_control,
    /// Discarded: cumulative counts that contradict what is known.
    discard_contradiction,
    /// Times that accepted datagrams of a publisher were found to be somebody else's, and told as unverified.
    contradicted,
    /// Held back as implausible: a jump of more than 2^20 datagrams, of data or of control.
    discard_quarantined,
    /// BYEs that somebody else said: their epochs went on.
    false_byes,
    /// Discarded: directed to another peer.
    discard_not_for_us,
    /// Discarded: a directed datagram, an answer or a BYE of a peer never heard before.
    discard_stranger,
    /// Discarded: no room for another peer.
    discard_peers_full,
    /// Data records of a kind that this version does not know; their datagrams are unverified.
    unknown_records,
    /// Cross-checks per subject that failed; must stay 0.
    inconsistent,
    /// Pending ranges ended early because a limit was reached.
    overflow_gaps,
    /// Reassemblies given up because a limit was reached.
    overflow_reassembly,
    /// Messages of subjects beyond the hard limit of the subscription window, delivered without per-subject check.
    untracked,
    /// Messages published without a number because the publication window was full.
    published_unnumbered,
    /// What the kernel dropped because a receive buffer was full; datagrams that arrived as one buffer count once.
    kernel_drops,
    /// Times that the multicasts of another peer did not arrive while its unicast words did.
    multicast_dead,
    /// Times that the group was joined anew for that.
    rejoins,
    /// Requests for datagrams sent to publishers.
    requests_sent,
    /// Requests for datagrams received and taken.
    requests_received,
    /// Datagrams sent again.
    resends,
    /// Reports to publishers of how much this peer can take.
    reports_sent,
    /// Such reports received from others.
    reports_received,
    /// Times that a receiver was not waited for any more because it took too little.
    left_behind,
    /// Requests and questions of peers whose address was not proven yet; they were told how to prove it.
    unproven,
    /// Questions to this peer's history that were answered.
    history_questions,
    /// Questions to the history that were refused: too many, or not decodable.
    history_refused,
    /// Records of what this peer's clients subscribe to, sent to the group.
    interest_sent,
    /// Such records sent to single peers that asked.
    interest_answered,
    /// Requests of this peer for what the clients of others subscribe to.
    interest_asked,
    /// Records of what the clients of others subscribe to that told something new.
    interest_taken,
    /// Such records discarded: everything in them was known.
    interest_late,
    /// Such records discarded: something before them is missing, and is asked for.
    interest_gaps,
    /// Such records discarded: there is no room for what the peer's clients subscribe to, and it counts as not known.
    interest_overflow,
    /// Messages that were not sent because nobody at another peer wants them; they are published all the same.
    messages_spared,
    /// Messages for a queue group whose member here had just left it, returned to the publisher, who assigns them to another.
    queue_handed,
    /// Messages for a queue group that no member got: there was none that could be reached, or the message was for more than 64 groups.
    queue_unserved,
    /// Messages for a queue group that were lost on the way to the peer to which this peer assigned them.
    queue_lost,
    /// Messages for a queue group that may not have been served: the peer to which this peer assigned them fell silent, left or crashed
    /// before it confirmed them.
    queue_uncertain,
    /// Requests of local clients that were refused.
    refusals,
    /// Advisories made.
    advisories,
}

/// A count and when it last rose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossTally {
    /// How many.
    pub count: u64,
    /// When it last rose, by the wall clock of this host.
    pub last: Option<WallTime>,
}

impl LossTally {
    /// Counts `more`; 0 leaves the time as it is.
    pub fn add(&mut self, more: u64, at: WallTime) {
        if 0 < more {
            self.count = self.count.saturating_add(more);
            self.last = Some(at);
        }
    }

    /// The sum of both.
    pub fn plus(self, other: LossTally) -> LossTally {
        LossTally { count: self.count.saturating_add(other.count), last: self.last.max(other.last) }
    }
}

/// One publisher in `show loss`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossRow {
    /// Who.
    pub publisher: Publisher,
    /// Multicast messages received more than once.
    pub repeat: LossTally,
    /// Multicast messages received that nobody here subscribes to.
    pub not_sub: LossTally,
    /// Messages received after they were missing and asked for.
    pub repaired: LossTally,
    /// Multicast messages lost (lower bound).
    pub msg_loss: LossTally,
    /// Upper bound less lower bound of `msg_loss`; 0 when all counts are exact.
    pub msg_loss_uncertain: u64,
    /// Messages lost from the directed stream to this peer.
    pub ibx_loss: LossTally,
    /// Messages in missing datagrams that nothing has explained yet, subscribed or not.
    pub unverified: LossTally,
    /// The last reason told of something lost or unverified, to whom it may concern.
    pub reason: Option<Reason>,
    /// How often each reason was told, in the order of [`Reason::ALL`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Datagrams from the baseline to the highest known, by state; they sum to `high - baseline`.
    pub datagrams: DatagramStates,
    /// Missing datagrams that this host's kernel dropped.
    pub overrun: u64,
    /// Cross-checks that failed for this publisher; must stay 0.
    pub inconsistent: u64,
}

/// One receiver in `show loss --outbound`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundRow {
    /// Who missed something, or could have.
    pub receiver: Publisher,
    /// What it says it missed of this peer's multicast stream since it first heard it.
    pub report: Report,
    /// When something in that changed last.
    pub at: WallTime,
}

/// The ledger of one datagram stream: each datagram from baseline to highest is in exactly one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramStates {
    /// The baseline: everything after it is owed.
    pub baseline: Dseq,
    /// The highest datagram known to exist.
    pub high: Dseq,
    /// Arrived and wholly handed on.
    pub delivered: u64,
    /// Arrived, with messages that wait for an earlier datagram.
    pub held: u64,
    /// Of those delivered or held: missing at first, and asked for.
    pub repaired: u64,
    /// Known missing, still awaited.
    pub pending: u64,
    /// Missing, content known, reported.
    pub lost: u64,
    /// Missing, content not wholly known.
    pub unverified: u64,
}

impl DatagramStates {
    /// Datagrams that were missing at first, whatever became of them: repaired, pending, lost or unverified.
    pub fn missing(&self) -> u64 {
        self.repaired + self.pending + self.lost + self.unverified
    }
}

/// How another peer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// Heard within the silence timeout.
    Up,
    /// Not heard for the silence timeout.
    Silent,
    /// Said BYE.
    Left,
    /// Ended without BYE.
    Crashed,
}

impl MemberState {
    /// The name in tables and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            MemberState::Up => "up",
            MemberState::Silent => "silent",
            MemberState::Left => "left",
            MemberState::Crashed => "crashed",
        }
    }
}

/// One peer in `show peers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// Who.
    pub publisher: Publisher,
    /// The address its datagrams come from.
    pub address: SocketAddr,
    /// How it is doing.
    pub state: MemberState,
    /// How long it has been running, by its own word and the time since.
    pub uptime: Duration,
    /// How long since something new came from it.
    pub last_heard: Duration,
    /// Messages received from it, wanted or not.
    pub messages_in: u64,
    /// Datagrams received from it and accepted.
    pub datagrams_in: u64,
    /// Messages proven lost (lower bound).
    pub lost: u64,
    /// Messages not yet explained.
    pub unverified: u64,
    /// Whether another live epoch has the same name.
    pub duplicate_name: bool,
    /// Whether its unicast words come and its multicasts do not (reliability.md 3.4).
    pub is_multicast_dead: bool,
    /// Whether it has proven its address.
    pub is_proven: bool,
    /// For how long this peer has not waited for it any more because it took too little, and whether it ever told how much it
    /// can take; `None` while it is waited for.
    pub left_behind: Option<(Duration, bool)>,
    /// How often it was left behind so far.
    pub times_left: u64,
    /// What its system dropped for want of room, by its last report; datagrams that arrived as one buffer count once.
    pub kernel_drops: Option<u64>,
}

/// One subscription in `show subs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubRow {
    /// Whose.
    pub client: ClientId,
    /// Which.
    pub sub: SubId,
    /// What it gets.
    pub wanted: SubscriptionFilter,
    /// What it gets when something is missing.
    pub mode: DeliveryMode,
    /// Deliveries made to it.
    pub deliveries: u64,
}

/// What clients of another peer subscribe to, in `show interest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRow {
    /// The other peer.
    pub publisher: Publisher,
    /// What is wanted.
    pub wanted: SubscriptionFilter,
    /// How many subscriptions want it.
    pub count: u32,
    /// Whether all that the peer's clients subscribe to is known.
    pub is_complete: bool,
}

/// One stream in `show seqno`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeqnoRow {
    /// `None` for subjects that this peer publishes.
    pub publisher: Option<Publisher>,
    /// The subject.
    pub subject: Subject,
    /// The last number given or received.
    pub last: Seq,
}

/// One window in `show windows`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowRow {
    /// Entries in both generations.
    pub subjects: u64,
    /// Memory in use, in bytes, by the window's own account.
    pub bytes: u64,
    /// The size beyond which it rotates once its time has passed, in bytes.
    pub size: u64,
    /// The hard limit in bytes.
    pub bytes_max: u64,
    /// The time an entry stays at least.
    pub time: Duration,
    /// Rotations so far.
    pub rotations: u64,
    /// Entries that left so far.
    pub evicted: u64,
}
