//! The memory that all listener clients hold together: incomplete input and unwritten output.

use super::connection::ListenerConnection;
use crate::delivery::Deliveries;
use crate::listener::output_buffer::COMMON_BYTES;
use crate::message::Delivery;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of all listener clients. A large payload counts once, however many clients it waits for. Other data shared
/// without a copy counts for each client.
#[derive(Debug)]
pub(crate) struct ListenerMemory {
    /// Bytes that clients hold alone, all clients together.
    own_bytes: usize,
    /// Bytes of shared payloads that wait for at least one client.
    common_bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl ListenerMemory {
    /// Makes an empty account with a limit of approximately `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> ListenerMemory {
        ListenerMemory { own_bytes: 0, common_bytes: Arc::default(), bytes_max }
    }

    /// Returns the bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.own_bytes + self.common_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether deliveries should be written at once, so that only clients that do not read hold much.
    pub(crate) fn is_scarce(&self) -> bool {
        self.bytes_max / 2 <= self.bytes()
    }

    /// Returns whether the client may take more. Beyond the limit each of the `clients` may still hold its share.
    pub(crate) fn has_share(&self, connection: &ListenerConnection, clients: usize) -> bool {
        !self.is_full() || connection.held_bytes() <= self.bytes_max / clients.max(1)
    }

    /// Returns whether the limit is reached and clients must be evicted.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes_max <= self.bytes()
    }

    /// Returns the messages, with large payloads counted as long as they wait for any client.
    pub(crate) fn count_payloads(&self, deliveries: &Deliveries) -> Vec<Deliveries> {
        let mut largest = 0;
        deliveries.clone().visit(|delivery| largest = largest.max(delivery.payload.len()));
        if largest < COMMON_BYTES {
            return vec![deliveries.clone()];
        }
        let count = |mut delivery: Delivery| {
            let payload = &mut delivery.message.payload;
            if COMMON_BYTES <= payload.len() {
                self.common_bytes.fetch_add(payload.len(), Ordering::Relaxed);
                let counted = CountedPayload { payload: payload.clone(), sum: Arc::clone(&self.common_bytes) };
                *payload = Bytes::from_owner(counted);
            }
            Deliveries::from(delivery)
        };
        deliveries.clone().map(count).collect()
    }

    /// Updates the bytes counted for a client.
    pub(crate) fn update(&mut self, connection: &mut ListenerConnection) {
        self.change(connection, connection.own_bytes());
    }

    /// Removes the bytes counted for a departed client.
    pub(crate) fn release(&mut self, connection: &mut ListenerConnection) {
        self.change(connection, 0);
    }

    fn change(&mut self, connection: &mut ListenerConnection, bytes: usize) {
        self.own_bytes = self.own_bytes - std::mem::replace(&mut connection.accounted_bytes, bytes) + bytes;
    }
}

/// A payload whose bytes count until no client's output contains it.
struct CountedPayload {
    payload: Bytes,
    sum: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for CountedPayload {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

impl Drop for CountedPayload {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.payload.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::output_buffer::OutputBuffer;
    use crate::message::{Epoch, Message, Publisher, Verdict};

    fn deliveries(bytes: usize) -> Deliveries {
        let message = Message::new("a".parse().unwrap(), vec![b'x'; bytes]);
        let publisher = Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 0 };
        Delivery {
            message,
            publisher,
            seq: None,
            offset: None,
            verdict: Verdict::Direct,
            repaired: false,
            replayed: false,
            origin: None,
        }
        .into()
    }

    #[test]
    fn large_payload_counts_once_until_fully_written() {
        let memory = ListenerMemory::new(1 << 30);
        for (bytes, expected) in [(COMMON_BYTES - 1, 0), (COMMON_BYTES, COMMON_BYTES), (1 << 20, 1 << 20)] {
            let counted = memory.count_payloads(&deliveries(bytes));
            assert_eq!((counted.len(), memory.bytes()), (1, expected), "{bytes}");
            let mut outs = [OutputBuffer::new(), OutputBuffer::new()];
            for out in &mut outs {
                for delivery in counted[0].clone() {
                    out.put(b"head");
                    out.put_payload(&delivery.message.payload);
                }
                assert_eq!((out.len(), out.uncounted_len()), (4 + bytes, 4 + bytes - expected));
            }
            drop(counted);
            let [first, mut last] = outs;
            drop(first);
            assert_eq!(memory.bytes(), expected);
            assert!(last.write_to(&mut Vec::new()).unwrap());
            assert_eq!((last.uncounted_len(), memory.bytes()), (0, 0));
        }
    }
}
