//! Answers to requests, their outcomes, and the counters of both.

use super::recently_resent::ResendTarget;
use crate::message::{Dseq, Epoch};
use crate::proto::stats::counters;
use crate::wire::{ExpiryNotice, Manifest};
use bytes::Bytes;

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResendAnswer {
    /// The datagram, byte for byte as it was sent.
    Resend {
        /// Its receiver.
        to: ResendTarget,
        /// True if it is of the directed stream to the requester.
        directed: bool,
        /// Its number in the stream.
        dseq: Dseq,
        /// The datagram.
        bytes: Bytes,
        /// The requester, if the datagram was resent to it shortly before.
        repeated_for: Option<Epoch>,
    },
    /// Contents of datagrams of the multicast stream.
    Manifest {
        /// Its receiver.
        to: Epoch,
        /// The record to send.
        manifest: Manifest,
    },
    /// Datagrams about which the publisher knows nothing any more.
    Expired {
        /// Its receiver.
        to: Epoch,
        /// The record to send.
        expired: ExpiryNotice,
    },
}

/// Outcome of a request, in datagrams except for `beyond_high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOutcome {
    /// Datagrams to be answered, some perhaps requested before.
    pub accepted: u64,
    /// Ranges that end with datagrams not sent yet; these are never missing.
    pub beyond_high: u64,
    /// Datagrams that were just resent: the requester sent the request before they arrived.
    pub suppressed: u64,
    /// Datagrams beyond the limits; all of them if the request was refused.
    pub refused: u64,
}

counters! {
    /// Counters of requests and answers; they never fall.
    #[derive(Copy)]
    ResendCounters, "resend_":
    /// Requests received, including refused ones.
    requests,
    /// Requests refused because their sender sends too many, or because too many peers request.
    requests_refused,
    /// Requested ranges that end with datagrams not sent yet.
    beyond_high,
    /// Requested datagrams not resent because they had just been resent.
    suppressed,
    /// Requested datagrams beyond the limits, without those of refused requests.
    over_limit,
    /// Datagrams resent to one requester.
    resent_unicast,
    /// Datagrams resent to the group.
    resent_multicast,
    /// Requested datagrams answered with a manifest of their content.
    manifests,
    /// Requested datagrams answered with EXPIRED, because nothing is known of them any more.
    expired,
    /// Bytes of all answers.
    bytes,
    /// Times that answers had to wait for the budget.
    waits,
}
