//! Counters of the requests to the HTTP server.

use crate::listener::ftn18::fault::CallFault;
use crate::listener::permissions::Denial;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counters since the start. They only rise, except `open_websockets`.
#[derive(Debug, Default)]
pub struct HttpCounts {
    /// Number of calls, group answers and clients refused because too many requests of all clients waited.
    pub busy: AtomicU64,
    /// Number of requests by POST, and of calls in a URL.
    pub requests: AtomicU64,
    /// Number of WebSockets since the start.
    pub websockets: AtomicU64,
    /// Number of open WebSockets.
    pub(super) open_websockets: AtomicUsize,
    /// Number of messages on WebSockets that were not a JSON object, and were dropped.
    pub malformed: AtomicU64,
    /// Number of calls that the account of the caller does not permit.
    pub denied: AtomicU64,
}

impl HttpCounts {
    /// Counts a request that is not taken because too many wait, and logs the first, second, fourth … one.
    pub(super) fn on_busy(&self) {
        let count = self.busy.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(listener = "ftn18", count, "request refused: too many requests of all clients wait");
        }
    }

    /// Counts a message that is dropped because it is no JSON object. Logs the first, second, fourth … one with its
    /// fault.
    pub(super) fn on_malformed(&self, fault: &CallFault) {
        let count = self.malformed.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(listener = "ftn18", count, reason = fault.text, "message dropped");
        }
    }

    /// Counts a call that the account of the caller does not permit, and logs the first, second, fourth … one.
    pub(super) fn on_denied(&self, denial: &Denial) {
        let denied = self.denied.fetch_add(1, Ordering::Relaxed) + 1;
        if denied.is_power_of_two() {
            tracing::warn!(listener = "ftn18", reason = %denial, denied, "action denied: see accounts, and seqcast realm show");
        } else {
            tracing::debug!(listener = "ftn18", reason = %denial, "action denied");
        }
    }
}
