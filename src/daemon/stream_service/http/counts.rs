//! Counters of the HTTP server.

use crate::listener::ftn18::fault::CallFault;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Counters since the start. They only rise, except `clients`.
#[derive(Debug, Default)]
pub struct HttpCounts {
    /// Number of open connections.
    pub clients: AtomicUsize,
    /// Number of accepted connections.
    pub accepted: AtomicU64,
    /// Number of connections refused because of the connection limit.
    pub refused: AtomicU64,
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
    /// Number of connections that the server ended, by reason.
    pub(super) ended: Mutex<BTreeMap<&'static str, u64>>,
}

impl HttpCounts {
    /// Counts a connection that the server ends, and logs the first, second, fourth … one of each reason.
    pub(super) fn on_ended(&self, reason: &'static str) {
        // A panic between the two lines leaves a count that is too low by one.
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let count = ended.entry(reason).or_default();
        *count += 1;
        if count.is_power_of_two() {
            tracing::warn!(listener = "ftn18", reason, count, "connection ended");
        }
    }

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

    /// Returns the number of connections that the server ended, by reason.
    pub fn ended(&self) -> BTreeMap<&'static str, u64> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Guard that counts a connection until it is dropped.
pub(super) struct ConnectionGuard(Arc<HttpCounts>);

impl ConnectionGuard {
    pub(super) fn new(counts: &Arc<HttpCounts>) -> ConnectionGuard {
        counts.clients.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(Arc::clone(counts))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}
