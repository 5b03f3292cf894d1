//! DATALOSS advisories: what is summed, and when the next one may go out (seed 002, "Notification of message loss").

use crate::message::{Cause, Publisher, Reason};
use crate::subject::Subject;

/// The subject of an advisory about multicast messages.
pub const INBOUND_BCAST: &str = "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST";
/// The subject of an advisory about messages directed to this peer alone.
pub const INBOUND_PTP: &str = "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.PTP";

/// Which stream an advisory is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// The publisher's multicast stream.
    Bcast,
    /// Its directed stream to this peer.
    Ptp,
}

/// The content of one advisory: the sums since the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advisory {
    /// Which stream.
    pub stream: Stream,
    /// Whose data.
    pub publisher: Publisher,
    /// Messages proven lost: the sum of the lower bounds.
    pub lost_min: u64,
    /// Messages proven lost: the sum of the upper bounds; equal to `lost_min` if all counts are exact.
    pub lost_max: u64,
    /// Messages that nothing has explained yet, subscribed or not, in datagrams newly found missing.
    pub unverified: u64,
    /// The first and last such datagram, if any.
    pub unverified_datagrams: Option<(u64, u64)>,
    /// The named subjects in the order of their first loss, each with (lower, upper) bound of its count.
    pub subjects: Vec<(Subject, u64, u64)>,
    /// How many different subjects lost something; more than `subjects.len()` if the limit cut the list.
    pub subjects_count: u64,
    /// The last reason given.
    pub reason: Reason,
    /// The last cause given; overruns are summed.
    pub cause: Cause,
    /// The group's port: the seed's `scid`.
    pub scid: u16,
}
