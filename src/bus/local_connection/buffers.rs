//! Large messages of an attached program: their payloads are buffers, which both sides read in place.

use super::{ConnectionDriver, LocalConnection, LocalConnectionState, violation};
use crate::bus::PublishError;
use crate::listener::frame::ClientFrame;
use crate::message::{Delivery, Message, SubId};
use crate::shared_memory::{SealedBuffer, TakenDescriptor, UNREAD_BUFFERS_MAX, hand_over};
use bytes::Bytes;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// Maximum bytes of the buffers whose frames the peer has not read yet.
const UNREAD_BYTES_MAX: usize = 64 * 1024 * 1024;

impl LocalConnection {
    /// Returns the buffer that a payload is, if the peer can read it in place.
    pub(super) fn buffer_of(&self, payload: &Bytes) -> Option<Arc<SealedBuffer>> {
        SealedBuffer::of(payload).filter(|_| self.uses_rings())
    }

    /// Publishes a message whose payload is this buffer. If the socket does not take the descriptor now, the payload is
    /// copied as usual.
    pub(super) fn publish_buffer(
        &self,
        message: Message,
        buffer: &SealedBuffer,
        timeout: Duration,
    ) -> Result<(), PublishError> {
        let payload_bytes = message.payload.len();
        let mut state = self.buffer_space(payload_bytes, timeout)?;
        if hand_over(&self.stream, buffer.memory()) {
            state.push(&ClientFrame::PublishBuffer {
                message: Message { payload: Bytes::new(), ..message },
                payload_bytes,
            });
            let tail = state.ring.as_ref().map_or(0, |ring| ring.tail());
            let end = tail + state.out.len() as u64;
            state.unread_buffers.push(end, payload_bytes);
        } else {
            state.push(&ClientFrame::Publish(message));
        }
        self.submit(state, false);
        Ok(())
    }

    /// Waits at most `timeout` until the queue has room for a frame, and the peer may get a buffer of `bytes` bytes.
    fn buffer_space(
        &self,
        bytes: usize,
        timeout: Duration,
    ) -> Result<MutexGuard<'_, LocalConnectionState>, PublishError> {
        self.await_space(timeout, |state| state.is_full(0) || state.has_too_many_buffers(bytes))
    }
}

impl LocalConnectionState {
    /// Returns whether the peer must read the frames of earlier buffers before it gets one of `bytes` bytes. If so, it
    /// rings the doorbell when it has read.
    fn has_too_many_buffers(&mut self, bytes: usize) -> bool {
        self.release_buffers();
        if !self.exceeds_unread_buffers(bytes) {
            return false;
        }
        self.ring.iter_mut().for_each(|ring| ring.await_reader());
        self.release_buffers();
        self.exceeds_unread_buffers(bytes)
    }

    fn exceeds_unread_buffers(&self, bytes: usize) -> bool {
        let unread = &self.unread_buffers;
        !unread.is_empty() && (UNREAD_BUFFERS_MAX <= unread.len() || UNREAD_BYTES_MAX < unread.bytes() + bytes)
    }

    fn release_buffers(&mut self) {
        // A wrong counter ends the connection when the ring is used.
        if !self.unread_buffers.is_empty()
            && let Some(Ok(head)) = self.ring.as_mut().map(|ring| ring.head())
        {
            self.unread_buffers.release(head);
        }
    }
}

impl ConnectionDriver {
    /// Handles a message whose payload is a buffer. Returns the reason if the peer violates the protocol.
    pub(super) fn on_buffer(&mut self, subs: &[SubId], mut delivery: Delivery, payload_bytes: usize) -> Option<String> {
        let memory = match self.take_descriptor() {
            Ok(Some(memory)) => memory,
            Ok(None) => return Some(violation("a message came without the descriptor of its buffer")),
            Err(error) => return Some(violation(error)),
        };
        let payload = match memory.map_or(Ok(None), |memory| SealedBuffer::open(memory, payload_bytes, true)) {
            Ok(Some(payload)) => payload,
            Err(error) => return Some(violation(error)),
            Ok(None) => {
                tracing::warn!("a large message is lost: the program has no descriptor or no memory left (ulimit -n)");
                self.shared.on_dropped(subs.iter().map(|sub| (*sub, 1)));
                return None;
            }
        };
        delivery.message.payload = payload;
        self.shared.on_messages(subs, &delivery.into(), &mut self.unnotified);
        None
    }

    /// Takes the next descriptor; `Some(None)` if this process may not have it.
    fn take_descriptor(&mut self) -> io::Result<Option<Option<OwnedFd>>> {
        let TakenDescriptor { descriptor, has_doorbells } = self.descriptors.take_from(&self.shared.stream);
        if has_doorbells {
            // One of them may say that output or publishers need wait no longer.
            self.is_readable = true;
            self.on_doorbell()?;
        }
        Ok(descriptor)
    }
}
