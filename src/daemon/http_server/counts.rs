//! Counters of the connections of an HTTP server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Counters since the start. They only rise, except `open`.
#[derive(Debug)]
pub(crate) struct ConnectionCounts {
    /// Name of the listener, for the log.
    listener: &'static str,
    /// Number of open connections.
    pub(crate) open: AtomicUsize,
    /// Number of accepted connections.
    pub(crate) accepted: AtomicU64,
    /// Number of connections refused because of the connection limit.
    pub(crate) refused: AtomicU64,
    /// Number of connections that the server ended, by reason.
    ended: Mutex<BTreeMap<&'static str, u64>>,
}

impl ConnectionCounts {
    /// Creates the counters of a listener.
    pub(crate) fn new(listener: &'static str) -> ConnectionCounts {
        ConnectionCounts {
            listener,
            open: AtomicUsize::default(),
            accepted: AtomicU64::default(),
            refused: AtomicU64::default(),
            ended: Mutex::default(),
        }
    }

    /// Counts a connection that the server ends, and logs the first, second, fourth … one of each reason.
    pub(crate) fn on_ended(&self, reason: &'static str) {
        let count = self.count(reason);
        if count.is_power_of_two() {
            tracing::warn!(listener = self.listener, reason, count, "connection ended");
        }
    }

    /// Counts a connection that the server ends because no request has come. Browsers keep idle connections, so this is
    /// nothing to warn of.
    pub(crate) fn on_idle(&self, reason: &'static str) {
        let count = self.count(reason);
        tracing::debug!(listener = self.listener, reason, count, "idle connection ended");
    }

    /// Counts a connection, and returns the number of those that the server ended for this reason.
    fn count(&self, reason: &'static str) -> u64 {
        // A panic between the two lines leaves a count that is too low by one.
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let count = ended.entry(reason).or_default();
        *count += 1;
        *count
    }

    /// Returns the number of connections that the server ended, by reason.
    pub(crate) fn ended(&self) -> BTreeMap<&'static str, u64> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Guard that counts a connection as open until it is dropped.
pub(crate) struct ConnectionGuard(Arc<ConnectionCounts>);

impl ConnectionGuard {
    pub(crate) fn new(counts: &Arc<ConnectionCounts>) -> ConnectionGuard {
        counts.open.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(Arc::clone(counts))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
