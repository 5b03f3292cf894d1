//! Counters of the requests to the web server.

use crate::listener::permissions::Denial;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start. They only rise.
#[derive(Debug, Default)]
pub(super) struct RequestCounts {
    /// Number of requests.
    pub(super) requests: AtomicU64,
    /// Number of requests with wrong credentials, or without any although accounts are configured.
    pub(super) unauthorized: AtomicU64,
    /// Number of requests refused because they use a foreign name of this host, or come from a page of another site.
    pub(super) foreign: AtomicU64,
    /// Number of requests that the account of the client does not permit.
    pub(super) denied: AtomicU64,
    /// Number of requests that are not valid.
    pub(super) invalid: AtomicU64,
    /// Number of requests refused because too many wait, or publishers wait for the network.
    pub(super) busy: AtomicU64,
    /// Number of messages published.
    pub(super) published: AtomicU64,
    /// Number of messages sent to subscriptions.
    pub(super) delivered: AtomicU64,
    /// Number of loss reports sent to subscriptions.
    pub(super) losses: AtomicU64,
    /// Number of messages and loss reports that subscriptions lost because their clients read too slowly.
    pub(super) dropped: AtomicU64,
    /// Number of requests on the bus.
    pub(super) bus_requests: AtomicU64,
    /// Number of replies to them.
    pub(super) bus_replies: AtomicU64,
    /// Number of requests that nobody subscribed to.
    pub(super) no_responders: AtomicU64,
    /// Number of requests without a reply in time.
    pub(super) timeouts: AtomicU64,
}

impl RequestCounts {
    /// Counts a request that is refused because of its name or its page, and logs the first, second, fourth … one.
    pub(super) fn on_foreign(&self, reason: &str) {
        let count = self.foreign.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(listener = "http", count, reason, "request refused");
        }
    }

    /// Counts a request that the account of the client does not permit, and logs the first, second, fourth … one.
    pub(super) fn on_denied(&self, denial: &Denial) {
        let denied = self.denied.fetch_add(1, Ordering::Relaxed) + 1;
        if denied.is_power_of_two() {
            tracing::warn!(listener = "http", reason = %denial, denied, "action denied: see accounts, and seqcast realm show");
        } else {
            tracing::debug!(listener = "http", reason = %denial, "action denied");
        }
    }
}
