//! Queue of datagrams to be sent: in batches, and in order while the socket's buffer is full.

use crate::daemon::batch::OutgoingDatagram;
use crate::daemon::multicast::Sockets;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Number of waiting datagrams at which local publishers are blocked: about half a second at 10 Mbit/s.
const BACKLOG_DATAGRAMS: usize = 512;
/// Maximum number of waiting datagrams: a message of 8 MiB in small datagrams must fit. Beyond it, unicasts to other
/// peers are discarded; those peers request again.
const DATAGRAMS_MAX: usize = 32 * 1024;

/// A datagram that the system refused to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusedSend {
    /// Destination; `None` for the group.
    pub(crate) to: Option<SocketAddr>,
    /// Error number of the system.
    pub(crate) errno: i32,
}

/// Waiting datagrams, and counts of those that were not sent.
#[derive(Debug, Default)]
pub(crate) struct TransmitQueue {
    queue: VecDeque<OutgoingDatagram>,
    /// Number of datagrams ever enqueued.
    enqueued: u64,
    /// True if the last attempt sent nothing, until the socket is writable.
    is_blocked: bool,
    /// Number of datagrams that the system refused, or that waited when their epoch ended.
    pub(crate) errors: u64,
    /// The last refused datagram since [`TransmitQueue::take_refused`].
    refused: Option<RefusedSend>,
    /// Number of unicasts discarded because too many datagrams waited.
    pub(crate) overflow: u64,
}

impl TransmitQueue {
    pub(crate) fn push(&mut self, outgoing: OutgoingDatagram) {
        if DATAGRAMS_MAX <= self.queue.len() && outgoing.to.is_some() {
            self.overflow += 1;
        } else {
            self.queue.push_back(outgoing);
            self.enqueued += 1;
        }
    }

    /// Returns the number of datagrams ever enqueued, for [`TransmitQueue::has_sent`].
    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued
    }

    /// Returns whether the first `count` datagrams ever enqueued have left the queue.
    pub(crate) fn has_sent(&self, count: u64) -> bool {
        count + self.queue.len() as u64 <= self.enqueued
    }

    /// Returns whether local publishers should be blocked.
    pub(crate) fn is_backlogged(&self) -> bool {
        BACKLOG_DATAGRAMS <= self.queue.len()
    }

    /// Returns whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of waiting datagrams.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether the queue waits for the socket to become writable.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Takes the last datagram that the system refused since the last call.
    pub(crate) fn take_refused(&mut self) -> Option<RefusedSend> {
        self.refused.take()
    }

    /// Discards all waiting datagrams, which belong to an epoch that has ended. The new socket is writable.
    pub(crate) fn discard(&mut self) {
        self.errors += self.queue.len() as u64;
        self.queue.clear();
        self.is_blocked = false;
    }

    /// Records that the socket is writable.
    pub(crate) fn on_writable(&mut self) {
        self.is_blocked = false;
    }

    /// Sends until the queue is empty or the socket's buffer is full. A datagram that the system refuses is abandoned:
    /// receivers detect it as a loss, as if the network had dropped it.
    pub(crate) fn flush(&mut self, sockets: &mut Sockets) {
        while !self.queue.is_empty() && !self.is_blocked {
            match sockets.send_batch(self.queue.as_slices().0) {
                Ok(0) => self.is_blocked = true,
                Ok(sent) => drop(self.queue.drain(..sent)),
                Err(error) => {
                    let refused = self.queue.pop_front();
                    self.errors += 1;
                    self.refused = refused
                        .zip(error.raw_os_error())
                        .map(|(datagram, errno)| RefusedSend { to: datagram.to, errno });
                    // Only errors whose count is a power of two are logged: a dead network must not fill the log.
                    if self.errors.is_power_of_two() {
                        tracing::warn!(%error, errors = self.errors, "datagram refused by the system");
                    }
                }
            }
        }
    }
}
