//! Datagrams on their way into the socket: sent in batches, kept in order while the socket's buffer is full.

use crate::daemon::batch::OutgoingDatagram;
use crate::daemon::multicast::Sockets;
use std::collections::VecDeque;

/// Datagrams that wait before local publishers are held up: about half a second at 10 Mbit/s.
const BACKLOG_DATAGRAMS: usize = 512;
/// Datagrams that wait at most: a message of 8 MiB in small datagrams must fit. Beyond it answers to other peers are
/// discarded; they ask again.
const DATAGRAMS_MAX: usize = 32 * 1024;

/// The datagrams that wait, and what became of those that did not go.
#[derive(Debug, Default)]
pub(crate) struct TransmitQueue {
    queue: VecDeque<OutgoingDatagram>,
    /// Datagrams that were ever in the queue.
    enqueued: u64,
    /// The last attempt took nothing; wait for the socket to become writable.
    is_blocked: bool,
    /// Datagrams that the system refused.
    pub(crate) errors: u64,
    /// Datagrams to single peers discarded because too many waited.
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

    /// How many datagrams have come so far, for [`TransmitQueue::has_sent`].
    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued
    }

    /// Whether the first so many datagrams have left.
    pub(crate) fn has_sent(&self, count: u64) -> bool {
        count + self.queue.len() as u64 <= self.enqueued
    }

    /// Whether local publishers should be held up.
    pub(crate) fn is_backlogged(&self) -> bool {
        BACKLOG_DATAGRAMS <= self.queue.len()
    }

    /// Whether everything has left.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Datagrams that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether it waits for the socket to become writable.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// The socket can take more.
    pub(crate) fn on_writable(&mut self) {
        self.is_blocked = false;
    }

    /// Sends until nothing waits or the socket's buffer is full. A datagram that the system refuses is given up: it is
    /// lost like one that the network dropped, and found missing like one.
    pub(crate) fn flush(&mut self, sockets: &mut Sockets) {
        while !self.queue.is_empty() && !self.is_blocked {
            match sockets.send_batch(self.queue.as_slices().0) {
                Ok(0) => self.is_blocked = true,
                Ok(sent) => drop(self.queue.drain(..sent)),
                Err(error) => {
                    self.queue.pop_front();
                    self.errors += 1;
                    // One line for the first and then for each power of two: a dead network must not fill the log.
                    if self.errors.is_power_of_two() {
                        tracing::warn!(%error, errors = self.errors, "datagram refused by the system");
                    }
                }
            }
        }
    }
}
