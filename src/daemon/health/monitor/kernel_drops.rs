//! The check of datagrams that the kernel drops because a receive buffer is full.

use super::EVENT_TIME;
use crate::daemon::health::finding::{Check, Finding, Severity};
use crate::daemon::multicast::BufferGrant;
use crate::time::Instant;

/// Drops of the kernel at the sockets of this peer.
#[derive(Debug, Default)]
pub(super) struct KernelDrops {
    /// Total since the start of the peer, in the last sample.
    total: u64,
    /// Number since the first of the present finding.
    recent: u64,
    /// Time of the last sample in which the total has grown.
    grown_at: Option<Instant>,
}

impl KernelDrops {
    /// Compares the total with that of the sample before.
    pub(super) fn observe(&mut self, now: Instant, total: u64) {
        if self.total < total {
            let before = if self.is_recent(now) { self.recent } else { 0 };
            (self.recent, self.grown_at) = (before + (total - self.total), Some(now));
        }
        self.total = total;
    }

    fn is_recent(&self, now: Instant) -> bool {
        self.grown_at.is_some_and(|at| now.since(at) < EVENT_TIME)
    }

    /// Returns the finding, with the size of the receive buffer and what increases it.
    pub(super) fn check(&self, now: Instant, buffer: &BufferGrant) -> Option<Finding> {
        if !self.is_recent(now) {
            return None;
        }
        let BufferGrant { wanted, granted, .. } = buffer;
        let dropped = match self.recent {
            1 => "1 datagram".to_owned(),
            count => format!("{count} datagrams"),
        };
        let fix = match buffer.is_short() {
            true => format!(
                "grant the {wanted} bytes asked for: sysctl -w net.core.rmem_max={wanted}; then restart the peer"
            ),
            false => format!(
                "run less on this host, or enlarge the buffer: sysctl -w net.core.rmem_max={0}, set the key 'receive-buffer' to \
                 {0} bytes, and restart the peer",
                2 * wanted
            ),
        };
        Some(Finding {
            check: Check::KernelDrops,
            severity: Severity::Warning,
            found: format!(
                "the kernel of this host has dropped {dropped}, because the receive buffer of {granted} bytes was full"
            ),
            effect: "the peer requests them again, and reports what it does not get as lost",
            fix,
        })
    }
}
