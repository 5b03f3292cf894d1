//! Delivery of large messages to attached clients. Those with shared memory read the payload in place.

use super::{ClientTransport, Clients};
use crate::listener::value::delivery_body;
use crate::message::{Delivery, Message, Target};
use crate::shared_memory::SealedBuffer;
use crate::time::ClockReading;
use bytes::Bytes;
use std::sync::Arc;

/// Minimum size in bytes of a payload that is copied into a buffer for the clients with shared memory, unless it is one.
const COPIED_BYTES_MIN: usize = 256 * 1024;
/// Minimum number of subscriptions with shared memory for such a copy. The new pages of a buffer cost more than the copies
/// for fewer.
const COPY_READERS_MIN: usize = 3;

impl Clients {
    /// Delivers a large message to the attached clients among the targets.
    pub(super) fn deliver_large(&mut self, now: ClockReading, to: &[Target], delivery: &Delivery) {
        let shared = self.buffer_for(to, &delivery.message.payload).map(|buffer| {
            let message = Message { payload: Bytes::new(), ..delivery.message.clone() };
            (buffer, delivery_body(&Delivery { message, ..delivery.clone() }))
        });
        let mut body = None;
        self.push_attached(now, to, |connection, subs| {
            if let Some((buffer, body)) = &shared
                && let Some(outcome) = connection.push_buffer(subs, body, buffer)
            {
                return outcome;
            }
            connection.outbox.push_message(subs, body.get_or_insert_with(|| delivery_body(delivery).freeze()))
        });
    }

    /// Returns the buffer that the payload is, or a copy of it in a new one, if clients among the targets can read it in
    /// place.
    fn buffer_for(&self, to: &[Target], payload: &Bytes) -> Option<Arc<SealedBuffer>> {
        let has_rings = |target: &Target| match self.map.get(&target.client).map(|client| &client.kind) {
            Some(ClientTransport::Attached(connection)) => connection.uses_rings(),
            _ => false,
        };
        let readers = to.iter().filter(|target| has_rings(target)).count();
        if readers == 0 {
            return None;
        }
        let buffer = SealedBuffer::of(payload);
        if buffer.is_some() || payload.len() < COPIED_BYTES_MIN || readers < COPY_READERS_MIN {
            return buffer;
        }
        let copy = SealedBuffer::copy(payload).ok()?;
        SealedBuffer::of(&copy)
    }
}
