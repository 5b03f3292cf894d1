//! Counters of the peer, and the rows that `show` prints. Counters only rise. Those of resends are in `resend::answer`,
//! those of one publisher's losses in `loss`.

use crate::message::{ClientId, Count, DeliveryMode, Dseq, PeerName, Publisher, Reason, SubId, SubscriptionFilter};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use crate::wire::Report;
use std::net::SocketAddr;
use std::time::Duration;

/// Declares a struct of counters with their prefixed names and their meanings.
macro_rules! counters {
    ($(#[$attribute:meta])+ $counters:ident, $prefix:literal: $($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(#[$attribute])+
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl $counters {
            /// Returns the name, value and meaning of each counter, in the order of declaration.
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
    /// Datagrams received, valid or not. This peer's own data count once for each buffer, if the kernel cuts them.
    datagrams_in,
    /// Bytes of UDP payload received. Of this peer's own data only the headers count, if the kernel cuts them.
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
    /// Messages received for subscriptions here that their publisher may not publish: they are not delivered.
    messages_denied,
    /// Deliveries to subscriptions: one message to three subscriptions counts three.
    deliveries,
    /// Messages of local clients delivered on this same peer.
    messages_local,
    /// Datagrams discarded because they are not of this protocol (wrong magic).
    discard_foreign,
    /// Datagrams discarded because they are of another version of this protocol.
    discard_version,
    /// Datagrams discarded because this build does not support their security mode.
    discard_mode,
    /// Datagrams discarded because they are of another group.
    discard_group,
    /// Datagrams discarded because their check value does not fit their bytes.
    discard_check,
    /// Datagrams discarded because they cannot be decoded although their check value fits.
    discard_malformed,
    /// Datagrams discarded because they are this peer's own multicasts, looped back. A buffer that the kernel cut
    /// counts once.
    discard_own,
    /// Datagrams discarded because their epoch is bound to another address, or because their address cannot be
    /// answered.
    discard_source,
    /// Datagrams discarded because they were received before.
    discard_duplicate,
    /// Datagrams discarded because they arrived after their loss was settled.
    discard_late,
    /// Datagrams discarded because they are from before the baseline of this peer.
    discard_before_baseline,
    /// Datagrams discarded because their epoch has ended.
    discard_old_epoch,
    /// Control datagrams discarded because they are not newer than the last one accepted.
    discard_stale_control,
    /// Datagrams and records discarded because they contradict what was accepted before, such as cumulative counts.
    discard_contradiction,
    /// Times that accepted datagrams of a publisher proved to be forged, and were reported as unverified.
    forgeries_detected,
    /// Datagrams held back as implausible: a jump of more than 2^20 datagrams, of data or of control.
    discard_quarantined,
    /// Forged BYEs: the epochs that they named continued.
    forged_byes,
    /// Peers that announced the name in the certificate of another host.
    foreign_names,
    /// Times that a peer had forged subscriptions of this peer's clients, which this peer replaced.
    interest_forgeries,
    /// Datagrams and records discarded because they are directed to another peer.
    discard_other_receiver,
    /// Directed datagrams, answers and BYEs discarded because their peer is unknown.
    discard_unknown_peer,
    /// Datagrams discarded because the limit of peers is reached.
    discard_peers_full,
    /// Data records of a kind that this version does not know; their datagrams are unverified.
    unknown_records,
    /// Cross-checks per subject that failed; must stay 0.
    inconsistencies,
    /// Pending ranges ended early because a limit was reached.
    overflow_gaps,
    /// Reassemblies given up because a limit was reached.
    overflow_reassembly,
    /// Messages of subjects beyond the hard limit of the subscription window, delivered without per-subject check.
    messages_untracked,
    /// Messages published without a number because the publication window was full.
    messages_unnumbered,
    /// Drops by the kernel because a receive buffer was full; datagrams that arrived as one buffer count once.
    kernel_drops,
    /// Times that the multicast of another peer did not arrive while its unicast did.
    multicast_dead,
    /// Times that the group was joined anew because multicast of a peer did not arrive.
    rejoins,
    /// Requests for datagrams sent to publishers.
    requests_sent,
    /// Requests for datagrams received and accepted.
    requests_received,
    /// Datagrams retransmitted.
    resends,
    /// Reports of this peer's receive window, sent to publishers.
    reports_sent,
    /// Reports of receive windows received from other peers.
    reports_received,
    /// Times that this peer excluded a receiver from flow control because the receiver was too slow.
    flow_exclusions,
    /// Requests of peers with an unproven address; each got the token with which to prove it.
    requests_unproven,
    /// History requests that this peer answered.
    history_answered,
    /// History requests that this peer refused: too many, or not decodable.
    history_refused,
    /// Records of this peer's advertised subscriptions, sent to the group.
    interest_sent,
    /// Records of this peer's advertised subscriptions, sent to single peers on request.
    interest_answered,
    /// Requests of this peer for the advertised subscriptions of others.
    interest_requested,
    /// Records of others' advertised subscriptions that contained a change.
    interest_applied,
    /// Records of advertised subscriptions discarded because they contain no change.
    interest_stale,
    /// Records of advertised subscriptions discarded because one before them is missing, which this peer requests.
    interest_gaps,
    /// Records of advertised subscriptions discarded because of the limit; the peer's subscriptions count as unknown.
    interest_overflow,
    /// Messages suppressed because no subscription of another peer matches; they count as published.
    messages_suppressed,
    /// Messages for a queue group whose member here had just left it, returned to the publisher, which assigns them to
    /// another member.
    queue_returned,
    /// Messages for a queue group that no member received: no member could be reached, or the message was for more than
    /// 64 groups.
    queue_unserved,
    /// Messages for a queue group that were lost on the way to the peer to which this peer assigned them.
    queue_lost,
    /// Messages for a queue group that may not have been served: the peer to which this peer assigned them fell silent,
    /// left or crashed before it confirmed them.
    queue_uncertain,
    /// Requests of local clients that were refused.
    refusals,
    /// Advisories published.
    advisories,
}

/// A count and the time of its last increase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossTally {
    /// Current count.
    pub count: u64,
    /// Time of the last increase, by the wall clock of this host.
    pub last: Option<WallTime>,
}

impl LossTally {
    /// Adds `more` to the count; 0 leaves the time unchanged.
    pub fn add(&mut self, more: u64, at: WallTime) {
        if 0 < more {
            self.count = self.count.saturating_add(more);
            self.last = Some(at);
        }
    }

    /// Returns the sum of both counts, with the later time.
    pub fn plus(self, other: LossTally) -> LossTally {
        LossTally { count: self.count.saturating_add(other.count), last: self.last.max(other.last) }
    }
}

/// One publisher in `show loss`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossRow {
    /// The publisher.
    pub publisher: Publisher,
    /// Multicast messages received more than once.
    pub repeat: LossTally,
    /// Multicast messages received that no client of this peer subscribes to.
    pub not_sub: LossTally,
    /// Messages received after they were missing and requested.
    pub repaired: LossTally,
    /// Multicast messages lost (lower bound).
    pub msg_loss: LossTally,
    /// Upper bound less lower bound of `msg_loss`; 0 when all counts are exact.
    pub msg_loss_uncertain: u64,
    /// Messages lost from the directed stream to this peer.
    pub ibx_loss: LossTally,
    /// Messages in missing datagrams that nothing has explained yet, subscribed or not.
    pub unverified: LossTally,
    /// Reason of the last reported loss or unverified range, whether or not a subscription was concerned.
    pub reason: Option<Reason>,
    /// Number of reports for each reason, in the order of [`Reason::ALL`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Datagrams from the baseline to the highest known, by state; they sum to `high - baseline`.
    pub datagrams: DatagramStates,
    /// Missing datagrams that this host's kernel dropped.
    pub overrun: u64,
    /// Cross-checks that failed for this publisher; must stay 0.
    pub inconsistencies: u64,
}

impl LossRow {
    /// Returns the number of multicast messages lost, as exactly as it is known.
    pub fn lost(&self) -> Count {
        Count::from_bounds(self.msg_loss.count, self.msg_loss.count.saturating_add(self.msg_loss_uncertain))
    }
}

/// One receiver in `show loss --outbound`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundRow {
    /// Receiver that missed something, or could have.
    pub receiver: Publisher,
    /// The receiver's report on what it missed of this peer's streams since its first contact.
    pub report: Report,
    /// Time of the last change of the report.
    pub at: WallTime,
}

/// The ledger of one datagram stream: each datagram from baseline to highest is in exactly one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramStates {
    /// Baseline; every datagram after it is owed.
    pub baseline: Dseq,
    /// Highest datagram known to exist.
    pub high: Dseq,
    /// Arrived, and released completely.
    pub delivered: u64,
    /// Arrived, with messages that wait in the reorder buffer for an earlier datagram.
    pub buffered: u64,
    /// Delivered or buffered datagrams that were missing at first and were requested.
    pub repaired: u64,
    /// Known missing, still awaited.
    pub pending: u64,
    /// Missing, content known, reported.
    pub lost: u64,
    /// Missing, content not wholly known.
    pub unverified: u64,
}

impl DatagramStates {
    /// Returns the number of datagrams that were missing at first: repaired, pending, lost or unverified.
    pub fn missing(&self) -> u64 {
        self.repaired + self.pending + self.lost + self.unverified
    }
}

/// Liveness state of another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberState {
    /// The peer was heard within the silence timeout.
    Up,
    /// The peer was not heard for the silence timeout.
    Silent,
    /// The peer left with a BYE.
    Left,
    /// The peer ended without a BYE.
    Crashed,
}

impl MemberState {
    /// Returns the name in tables and JSON.
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
    /// The peer.
    pub publisher: Publisher,
    /// The address its datagrams come from.
    pub address: SocketAddr,
    /// Liveness state.
    pub state: MemberState,
    /// Uptime, from the peer's announcement and the time since.
    pub uptime: Duration,
    /// Time since the last new datagram from the peer.
    pub last_heard: Duration,
    /// Messages received from it, wanted or not.
    pub messages_in: u64,
    /// Datagrams received from it and accepted.
    pub datagrams_in: u64,
    /// Messages proven lost (lower bound).
    pub lost: u64,
    /// Messages not yet explained.
    pub unverified: u64,
    /// True if another live epoch has the same name.
    pub duplicate_name: bool,
    /// Name in the certificate of its host; `None` in open mode.
    pub member: Option<PeerName>,
    /// True if it announces the name in the certificate of another host.
    pub has_foreign_name: bool,
    /// True if the peer's unicast arrives and its multicast does not (wire.md W111).
    pub is_multicast_dead: bool,
    /// True if no unicast of the peer has arrived for 3.5 of its heartbeats, or since the first contact.
    pub is_unicast_absent: bool,
    /// True if the peer has proven its address.
    pub is_proven: bool,
    /// Time since the peer was excluded from flow control because it was too slow, and whether it ever reported its
    /// receive window. `None` while it takes part.
    pub flow_exclusion: Option<(Duration, bool)>,
    /// Number of times that the peer was excluded from flow control.
    pub flow_exclusion_count: u64,
    /// Datagrams dropped by the peer's system for lack of buffer space, by its last report; datagrams that arrived as
    /// one buffer count once.
    pub kernel_drops: Option<u64>,
    /// Nanoseconds by which the wall clock of the peer is ahead of that of this one, and the time since a stamp of the
    /// peer showed that.
    pub clock_offset: Option<(i64, Duration)>,
}

/// One subscription in `show subs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubRow {
    /// The client.
    pub client: ClientId,
    /// The client's id of the subscription.
    pub sub: SubId,
    /// Filter of the subscription.
    pub wanted: SubscriptionFilter,
    /// Delivery mode of the subscription.
    pub mode: DeliveryMode,
    /// Number of deliveries to the subscription.
    pub deliveries: u64,
}

/// An advertised subscription of another peer, in `show interest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRow {
    /// The other peer.
    pub publisher: Publisher,
    /// Filter of the subscription.
    pub wanted: SubscriptionFilter,
    /// Number of subscriptions with this filter.
    pub count: u32,
    /// True if all advertised subscriptions of the peer are known.
    pub is_complete: bool,
}

/// One stream in `show seqno`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeqnoRow {
    /// `None` for subjects that this peer publishes.
    pub publisher: Option<Publisher>,
    /// The subject.
    pub subject: Subject,
    /// The last number published or received.
    pub last: Seq,
}

/// One window in `show windows`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowRow {
    /// Entries in both generations.
    pub subjects: u64,
    /// Memory in use, in bytes, as the window counts it.
    pub bytes: u64,
    /// The size beyond which it rotates once its time has passed, in bytes.
    pub size: u64,
    /// The hard limit in bytes.
    pub bytes_max: u64,
    /// Minimum time that an entry stays.
    pub time: Duration,
    /// Rotations so far.
    pub rotations: u64,
    /// Entries evicted so far.
    pub evicted: u64,
}
