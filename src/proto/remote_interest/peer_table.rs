//! The table of the subscriptions that one other peer advertises.

use super::{STEP_MAX, VERSION_MAX};
use crate::message::SubscriptionFilter;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Minimum time between two requests.
pub(super) const REQUEST_INTERVAL: Duration = Duration::from_millis(20);

/// Advertised subscriptions of one peer.
#[derive(Debug)]
pub(super) struct PeerTable {
    /// Address from which the entries came.
    pub(super) source: Option<IpAddr>,
    /// Version of the latest announcement, or of a later record if that is higher. `None` before the first.
    pub(super) high: Option<u64>,
    /// Version of the latest announcement, or 2^20 more than that of the one before if that is less; 0 before the first.
    pub(super) announced: u64,
    /// Version up to which the table is complete.
    pub(super) complete: u64,
    /// Highest complete version that was reported to the peer.
    pub(super) reported: u64,
    /// Version before which ended subscriptions are absent from the table.
    pub(super) base: u64,
    /// Indices of the entries.
    pub(super) indices: BTreeSet<u32>,
    /// New table that is being built.
    pub(super) fresh: Option<PendingTable>,
    /// Time since which the table lacks the announced version without progress.
    pub(super) stale_since: Option<Instant>,
    /// Time at which its entries last exceeded a limit, until there is room again.
    pub(super) overflowed: Option<Instant>,
    /// Earliest time of the next request to the peer.
    pub(super) request_at: Instant,
    pub(super) interval: Duration,
}

/// A new table that is not yet as complete as the old one.
#[derive(Debug)]
pub(super) struct PendingTable {
    pub(super) base: u64,
    pub(super) complete: u64,
    pub(super) entries: BTreeMap<SubscriptionFilter, u32>,
}

impl PeerTable {
    /// Creates the table of a peer that has announced nothing yet.
    pub(super) fn new() -> PeerTable {
        PeerTable {
            source: None,
            high: None,
            announced: 0,
            complete: 0,
            reported: 0,
            base: 0,
            indices: BTreeSet::new(),
            fresh: None,
            stale_since: None,
            overflowed: None,
            request_at: Instant::ZERO,
            interval: REQUEST_INTERVAL,
        }
    }

    /// Returns the number of entries of the old and the new table.
    pub(super) fn len(&self) -> usize {
        self.indices.len() + self.fresh.as_ref().map_or(0, |fresh| fresh.entries.len())
    }

    /// Returns whether the table has all entries that the peer has announced.
    pub(super) fn is_known(&self) -> bool {
        self.high.is_some_and(|high| high == self.complete && high < VERSION_MAX)
    }

    /// Handles the version of an announcement that is newer than all before. It replaces also a higher version, which may
    /// be forged. So a table that is complete beyond the announcement is not known.
    pub(super) fn on_announcement(&mut self, now: Instant, version: u64) {
        // Nor may forged announcements use up the versions.
        (self.high, self.announced) = (Some(version), version.min(self.announced.saturating_add(STEP_MAX)));
        self.update_staleness(now, false);
    }

    /// Handles the highest version in a record. Records arrive in any order.
    pub(super) fn on_high(&mut self, now: Instant, high: u64) {
        self.high = self.high.max(Some(high));
        self.update_staleness(now, false);
    }

    /// Returns whether the peer may have reached a version since its last announcement. One forged record must not use up
    /// the versions.
    pub(super) fn is_plausible(&self, version: u64) -> bool {
        version <= self.announced.saturating_add(STEP_MAX) && version < VERSION_MAX
    }

    /// Updates the time since which the table lacks the announced version. Progress restarts that time.
    pub(super) fn update_staleness(&mut self, now: Instant, is_progress: bool) {
        if self.is_known() || self.high.is_none() {
            (self.stale_since, self.interval) = (None, REQUEST_INTERVAL);
        } else if self.stale_since.is_none() || is_progress {
            (self.stale_since, self.interval, self.overflowed) = (Some(now), REQUEST_INTERVAL, None);
            if is_progress {
                self.request_at = now + REQUEST_INTERVAL;
            }
        }
    }

    /// Returns the time of the next request to the peer, if the table lacks the announced version.
    pub(super) fn request_deadline(&self, grace: Duration) -> Option<Instant> {
        Some((self.stale_since? + grace).max(self.request_at))
    }
}
