//! Large messages of an attached program: each side writes their payloads into buffers that it lends to the other.

use super::{ConnectionDriver, LocalConnection, LocalConnectionState, lock, violation};
use crate::bus::PublishError;
use crate::listener::frame::{ClientFrame, LentPayload};
use crate::message::{Delivery, Message, SubId};
use crate::shared_memory::{
    BUFFER_BYTES_MIN, BufferPool, FreshBuffer, LentBuffers, OwnBuffer, RingWriter, TakenDescriptor, UNREAD_BUFFERS_MAX,
    hand_over,
};
use bytes::Bytes;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// Maximum bytes of the payloads in buffers whose frames the peer has not read yet.
const UNREAD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The buffers of a program.
#[derive(Debug)]
pub(super) struct ProgramBuffers {
    pool: BufferPool,
    /// The buffers that the peer may read.
    lent: LentBuffers,
}

impl ProgramBuffers {
    /// Makes the value for the buffers that are lent through this ring.
    pub(super) fn new(ring: &RingWriter) -> ProgramBuffers {
        ProgramBuffers { pool: BufferPool::default(), lent: LentBuffers::new(ring.buffer_returns()) }
    }

    /// Records that the peer lacks descriptors.
    pub(super) fn reset_descriptors(&mut self) {
        self.lent.reset_descriptors();
    }
}

impl LocalConnection {
    /// Returns a buffer for a payload of `bytes` bytes, at least one. There is none without shared memory, or if too many
    /// are in use.
    pub(in crate::bus) fn fresh_buffer(&self, bytes: usize) -> Option<FreshBuffer> {
        let mut state = lock(&self.state);
        let ProgramBuffers { pool, lent } = state.buffers.as_mut()?;
        let fresh = pool.take(bytes, |index| lent.is_lent(index));
        if let Some(error) = pool.take_refusal() {
            tracing::warn!(%error, "the system has no shared memory for large messages, so they are copied");
        }
        fresh
    }

    /// Returns the buffer of this program that a payload is in.
    pub(super) fn buffer_of(&self, payload: &Bytes) -> Option<Arc<OwnBuffer>> {
        if payload.len() < BUFFER_BYTES_MIN {
            return None;
        }
        lock(&self.state).buffers.as_ref()?.pool.buffer_of(payload).cloned()
    }

    /// Publishes a message whose payload is in this buffer. If the socket does not take the descriptor now, the payload is
    /// copied as usual.
    pub(super) fn publish_buffer(
        &self,
        message: Message,
        buffer: &OwnBuffer,
        timeout: Duration,
    ) -> Result<(), PublishError> {
        let bytes = message.payload.len();
        let mut state = self.buffer_space(bytes, timeout)?;
        if let Some(payload) = state.lend(buffer, bytes, || hand_over(&self.stream, buffer.memory())) {
            let message = Message { payload: Bytes::new(), ..message };
            state.push(&ClientFrame::PublishBuffer { message, payload });
            let tail = state.ring.as_ref().map_or(0, |ring| ring.tail());
            let end = tail + state.out.len() as u64;
            state.unread_buffers.push(end, bytes);
        } else {
            state.push(&ClientFrame::Publish(message));
        }
        self.submit(state, false);
        Ok(())
    }

    /// Waits at most `timeout` until the queue has room for a frame, and the peer may get a payload of `bytes` bytes in a
    /// buffer.
    fn buffer_space(
        &self,
        bytes: usize,
        timeout: Duration,
    ) -> Result<MutexGuard<'_, LocalConnectionState>, PublishError> {
        self.await_space(timeout, |state| state.is_full(0) || state.has_too_many_buffers(bytes))
    }
}

impl LocalConnectionState {
    /// Lends a buffer with a payload of `bytes` bytes to the peer. Returns `None` if the peer cannot get it now.
    fn lend(&mut self, buffer: &OwnBuffer, bytes: usize, hand_over: impl FnOnce() -> bool) -> Option<LentPayload> {
        let lent = &mut self.buffers.as_mut()?.lent;
        let is_new = !lent.is_known(buffer);
        if is_new && !hand_over() {
            return None;
        }
        lent.lend(buffer);
        Some(LentPayload { bytes, index: buffer.index(), is_new })
    }

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
    /// Handles a message whose payload is in a buffer of the peer. Returns the reason if the peer violates the protocol.
    pub(super) fn on_buffer(&mut self, subs: &[SubId], mut delivery: Delivery, lent: LentPayload) -> Option<String> {
        let payload = match self.borrow_payload(lent) {
            Ok(payload) => payload,
            Err(error) => return Some(violation(error)),
        };
        match payload {
            Some(payload) => {
                delivery.message.payload = payload;
                self.shared.on_messages(subs, &delivery.into(), &mut self.unnotified);
            }
            None => {
                tracing::warn!("a large message is lost: the program has no descriptor or no memory left (ulimit -n)");
                self.shared.on_dropped(subs.iter().map(|sub| (*sub, 1)));
                // If the connection has ended, nobody needs to know.
                let _ = self.shared.send(&ClientFrame::BuffersLost, |_| {});
            }
        }
        None
    }

    /// Returns the payload in a buffer of the peer; `None` if this process may not have the buffer.
    fn borrow_payload(&mut self, lent: LentPayload) -> io::Result<Option<Bytes>> {
        let fault = |text: &'static str| io::Error::new(io::ErrorKind::InvalidData, text);
        let memory = if lent.is_new { Some(self.take_descriptor()?) } else { None };
        let Some(borrowed) = &mut self.borrowed else { return Err(fault("there is no shared memory")) };
        if let Some(memory) = memory {
            let memory = memory.ok_or_else(|| fault("a message came without the descriptor of its buffer"))?;
            borrowed.open(lent.index, memory)?;
        }
        borrowed.payload(lent.index, lent.bytes)
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
