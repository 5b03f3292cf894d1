//! A share of a gateway of another site, as this site knows it.

use super::manifest::LinkManifest;
use super::position::StreamPoint;
use crate::message::Count;

/// State of a share of a gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedShare {
    /// Number in the share at first contact. Later messages are owed to this site.
    pub(super) baseline: u64,
    /// Event of the ledger at first contact.
    pub(super) contact: u64,
    /// All streams with messages up to this number were named.
    pub(super) named_to: u64,
    /// Number of whole rounds to request from the gateway, although it does not carry the share: it alone can account
    /// for the messages of a dead one.
    pub(super) awaited_rounds: usize,
    /// Whether these rounds account for a gateway that has died.
    pub(super) follows_death: bool,
    /// Highest number that is known of the gateway.
    pub(super) highest: u64,
    /// Streams that began up to this number may be unknown because they were evicted.
    pub(super) evicted_to: u64,
    /// Whether a stream that another gateway counted was evicted since the last manifest. This gateway may have counted
    /// it under a number that is not known yet.
    pub(super) is_evicting: bool,
    /// Number at the end of the round that is arriving, and the parts of it that have arrived.
    round: Option<(u64, u32)>,
}

impl ReceivedShare {
    /// Begins the state at the first contact.
    pub(super) fn new(baseline: u64, named_to: u64, contact: u64) -> ReceivedShare {
        ReceivedShare {
            baseline,
            contact,
            named_to,
            awaited_rounds: 0,
            follows_death: false,
            highest: baseline,
            evicted_to: 0,
            is_evicting: false,
            round: None,
        }
    }

    /// Accounts for a manifest as a part of its round. Returns true if the round is whole.
    pub(super) fn on_part(&mut self, manifest: &LinkManifest) -> bool {
        let LinkManifest { after, named_to, part, parts, .. } = manifest;
        let arrived = match self.round.take() {
            _ if *part == 0 => Some(0),
            Some((round, arrived)) if round == *named_to => Some(arrived),
            _ => None,
        };
        if self.named_to < *after || arrived != Some(*part) {
            return false;
        }
        self.round = Some((*named_to, part + 1));
        if part + 1 < *parts {
            return false;
        }
        self.named_to = self.named_to.max(*named_to);
        true
    }

    /// Notes the last number that the gateway has given.
    pub(super) fn on_received(&mut self, received: u64) {
        self.highest = self.highest.max(received);
        if std::mem::take(&mut self.is_evicting) {
            self.evicted_to = self.highest;
        }
    }

    /// Returns the number of missing messages of a stream of which nothing was received. The gateway has counted
    /// `count` messages that this site did not receive; at most `owed` of them came after the first contact, if the
    /// stream is older than that. An evicted stream may have been received.
    pub(super) fn missing_at_first(&self, point: &StreamPoint, count: u64, owed: u64) -> Count {
        let is_new = self.baseline < point.first_number;
        let count = if is_new { count } else { count.min(owed) };
        match is_new {
            _ if point.first_number <= self.evicted_to => Count::from_bounds(0, count),
            true => Count::Exact(count),
            false => Count::from_bounds(count.min(1), count),
        }
    }

    /// Returns whether this site was owed, or has received, all messages of the count to which a point belongs.
    pub(super) fn owes(&self, point: &StreamPoint) -> bool {
        self.baseline.max(self.evicted_to) < point.first_number
    }
}
