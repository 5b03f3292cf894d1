//! Queue of datagrams to be sent: in batches, and in order while the socket's buffer is full.
//!
//! With the key `peers` each multicast is also sent by unicast to each listed host, as a copy. The queue counts
//! multicasts, not copies. It makes copies of some multicasts at a time, ordered by host, so that they can leave as one
//! buffer.

use crate::daemon::batch::OutgoingDatagram;
use crate::daemon::multicast::Sockets;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Number of waiting datagrams at which local publishers are blocked: about half a second at 10 Mbit/s.
const BACKLOG_DATAGRAMS: usize = 512;
/// Maximum number of waiting datagrams: a message of 8 MiB in small datagrams must fit. Beyond it, unicasts to other
/// peers are discarded; those peers request again.
const DATAGRAMS_MAX: usize = 32 * 1024;

/// Bytes and number of waiting datagrams that are sent before more are made: about four buffers of the kernel, which
/// the caches of a processor hold.
const BATCH_BYTES: usize = 250_000;
const BATCH_DATAGRAMS: usize = 256;

/// Maximum number of multicasts that are copied at a time.
const COPIED_MAX: usize = 64;

/// A datagram that the system refused to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusedSend {
    /// Destination; `None` for the group.
    pub(crate) to: Option<SocketAddr>,
    /// Error number of the system.
    pub(crate) errno: i32,
}

/// Waiting datagrams, and counts of those that were not sent.
#[derive(Debug)]
pub(crate) struct TransmitQueue {
    queue: VecDeque<OutgoingDatagram>,
    /// Addresses to which each multicast is copied.
    copies_to: Vec<SocketAddr>,
    /// Copies that are still to be sent, of the datagrams at the front of the queue.
    copies: VecDeque<OutgoingDatagram>,
    /// Number of multicasts at the front of the queue of which copies were made.
    copied: usize,
    /// Number of datagrams ever enqueued.
    enqueued: u64,
    /// Bytes of the waiting datagrams.
    bytes: usize,
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
    /// Creates an empty queue that copies each multicast to these addresses.
    pub(crate) fn new(copies_to: Vec<SocketAddr>) -> TransmitQueue {
        TransmitQueue {
            queue: VecDeque::new(),
            copies_to,
            copies: VecDeque::new(),
            copied: 0,
            enqueued: 0,
            bytes: 0,
            is_blocked: false,
            errors: 0,
            refused: None,
            overflow: 0,
        }
    }

    /// Sets the addresses to which later multicasts are copied.
    pub(crate) fn copy_to(&mut self, copies_to: Vec<SocketAddr>) {
        self.copies_to = copies_to;
    }

    pub(crate) fn push(&mut self, outgoing: OutgoingDatagram) {
        if DATAGRAMS_MAX <= self.queue.len() && outgoing.to.is_some() {
            self.overflow += 1;
        } else {
            self.bytes += outgoing.bytes.len();
            self.queue.push_back(outgoing);
            self.enqueued += 1;
        }
    }

    /// Returns the addresses to which each multicast is copied.
    pub(crate) fn copies_to(&self) -> &[SocketAddr] {
        &self.copies_to
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

    /// Returns whether the waiting datagrams make up a batch. The publisher should send them before it makes more, since
    /// they would leave the caches.
    pub(crate) fn is_batch_full(&self) -> bool {
        BATCH_BYTES <= self.bytes || BATCH_DATAGRAMS <= self.queue.len()
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

    /// Discards all waiting datagrams with their copies, since they belong to an epoch that has ended. The new socket is
    /// writable.
    pub(crate) fn discard(&mut self) {
        self.errors += self.queue.len() as u64;
        self.queue.clear();
        self.copies.clear();
        (self.bytes, self.copied, self.is_blocked) = (0, 0, false);
    }

    /// Records that the socket is writable.
    pub(crate) fn on_writable(&mut self) {
        self.is_blocked = false;
    }

    /// Sends until the queue is empty or the socket's buffer is full. A datagram that the system refuses is abandoned:
    /// receivers detect it as a loss, as if the network had dropped it.
    pub(crate) fn flush(&mut self, sockets: &mut Sockets) {
        while !self.queue.is_empty() && !self.is_blocked {
            match sockets.send_batch(self.next_batch()) {
                Ok(0) => self.is_blocked = true,
                Ok(sent) => drop(self.take(sent)),
                Err(error) => {
                    let refused = self.take(1);
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

    /// Returns the datagrams to send next, at least one if the queue is not empty: copies before their multicasts.
    fn next_batch(&mut self) -> &[OutgoingDatagram] {
        if self.copies_to.is_empty() && self.copied == 0 {
            return self.queue.as_slices().0;
        }
        if self.copied == 0 {
            let multicasts = self.queue.iter().take(COPIED_MAX).take_while(|datagram| datagram.to.is_none());
            self.copied = multicasts.clone().count();
            for to in &self.copies_to {
                let copies =
                    multicasts.clone().map(|multicast| OutgoingDatagram { to: Some(*to), ..multicast.clone() });
                self.copies.extend(copies);
            }
        }
        if !self.copies.is_empty() {
            return self.copies.as_slices().0;
        }
        let front = self.queue.as_slices().0;
        let unicasts = || front.iter().take_while(|datagram| datagram.to.is_some()).count();
        let count = if 0 < self.copied { self.copied.min(front.len()) } else { unicasts() };
        &front[..count]
    }

    /// Removes the first `count` datagrams of the last batch, and returns the last one of them.
    fn take(&mut self, count: usize) -> Option<OutgoingDatagram> {
        if !self.copies.is_empty() {
            return self.copies.drain(..count).next_back();
        }
        self.copied = self.copied.saturating_sub(count);
        let mut last = None;
        for datagram in self.queue.drain(..count) {
            self.bytes -= datagram.bytes.len();
            last = Some(datagram);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const HOSTS: [u8; 2] = [8, 9];

    fn host(number: u8) -> SocketAddr {
        ([10, 0, 0, number], 7500).into()
    }

    /// Returns all datagrams in the order in which the queue sends them, at most `batch_max` at a time: destination
    /// (0: the group) and content.
    fn sent(copies_to: Vec<SocketAddr>, datagrams: &[(u8, u8)], batch_max: usize) -> Vec<(u8, u8)> {
        let mut queue = TransmitQueue::new(copies_to);
        for (to, content) in datagrams {
            let to = Some(*to).filter(|to| *to != 0).map(host);
            queue.push(OutgoingDatagram { to, bytes: Bytes::copy_from_slice(&[*content]) });
        }
        let mut sent = Vec::new();
        while !queue.is_empty() {
            let before = queue.len();
            let batch = queue.next_batch();
            let count = batch.len().min(batch_max);
            sent.extend(batch[..count].iter().map(|datagram| {
                let to = datagram.to.map_or(0, |to| to.ip().to_string().rsplit('.').next().unwrap().parse().unwrap());
                (to, datagram.bytes[0])
            }));
            assert!(0 < count && queue.take(count).is_some());
            assert_eq!(queue.has_sent(queue.enqueued()), queue.is_empty());
            assert!(queue.len() <= before);
        }
        sent
    }

    #[test]
    fn each_multicast_is_copied_to_each_address() {
        let datagrams = [(0, 1), (0, 2), (7, 3), (7, 4), (0, 5)];
        let expected = [(8, 1), (8, 2), (9, 1), (9, 2), (0, 1), (0, 2), (7, 3), (7, 4), (8, 5), (9, 5), (0, 5)];
        for batch_max in 1..12 {
            assert_eq!(sent(HOSTS.map(host).to_vec(), &datagrams, batch_max), expected, "{batch_max}");
            assert_eq!(sent(Vec::new(), &datagrams, batch_max), datagrams, "{batch_max}");
        }
        let many: Vec<(u8, u8)> = (0..200).map(|content| (0, content)).collect();
        let copied = sent(HOSTS.map(host).to_vec(), &many, 50);
        for to in [0, 8, 9] {
            let of = |datagrams: &[(u8, u8)]| datagrams.iter().filter(|one| one.0 == to).map(|one| one.1).collect();
            let contents: Vec<u8> = of(&copied);
            assert_eq!(contents, (0..200).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn batch_is_full_by_bytes_or_number() {
        let mut queue = TransmitQueue::new(Vec::new());
        let datagram = |bytes: usize| OutgoingDatagram { to: None, bytes: vec![0; bytes].into() };
        for (bytes, datagrams) in [(0, 256), (100, 256), (1472, 170), (8972, 28), (32_600, 8), (65_507, 4)] {
            for _ in 0..datagrams {
                assert!(!queue.is_batch_full(), "{} of {bytes} bytes", queue.len());
                queue.push(datagram(bytes));
            }
            assert!(queue.is_batch_full() && !queue.is_backlogged());
            queue.take(1);
            assert!(!queue.is_batch_full(), "{bytes}");
            queue.take(datagrams - 1);
        }
        for discards in [true, false] {
            (0..8).for_each(|index| queue.push(datagram(if index == 0 { 100 } else { 32_600 })));
            assert!(!queue.is_batch_full(), "a datagram of 100 bytes is first");
            queue.push(datagram(32_600));
            assert!(queue.is_batch_full());
            if discards {
                queue.discard();
                assert!(!queue.is_batch_full());
            }
        }
    }

    #[test]
    fn discarded_multicast_leaves_no_copies() {
        let mut queue = TransmitQueue::new(HOSTS.map(host).to_vec());
        let multicast = |content: u8| OutgoingDatagram { to: None, bytes: Bytes::copy_from_slice(&[content]) };
        queue.push(multicast(1));
        assert_eq!(queue.next_batch().len(), 2, "its copies leave first");
        queue.take(1);
        queue.discard();
        queue.push(multicast(2));
        let copies: Vec<u8> = queue.next_batch().iter().map(|datagram| datagram.bytes[0]).collect();
        assert_eq!(copies, [2, 2]);
    }
}
