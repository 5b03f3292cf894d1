//! The buffers of a process.

use super::buffer::{FreshBuffer, OwnBuffer};
use super::segment::{BUFFER_INDEX_MAX, BUFFERS_MAX};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Acquire, fence};

/// Maximum bytes of the buffers of a pool.
const POOL_BYTES_MAX: usize = 256 * 1024 * 1024;
/// A buffer is used for payloads of at least this part of its size.
const PART_MIN: usize = 4;

/// Buffers that are used again and again: the most recently used ones first, whose pages are in the caches.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    /// In the order of their last use.
    buffers: Vec<Arc<OwnBuffer>>,
    bytes: usize,
    serial: u64,
    /// True if the system has refused a buffer. No more are made until the pool is cleared.
    is_refused: bool,
    /// True if a refusal of the system was reported.
    is_refusal_reported: bool,
    /// Refusal of the system that was not reported yet.
    refusal: Option<io::Error>,
}

impl BufferPool {
    /// Returns a buffer for a payload of `payload_bytes` bytes, at least one. Returns `None` if all buffers are in use, or
    /// the system refuses more.
    ///
    /// `is_lent` says whether another process may read the buffers with an index. For that the caller records each loan in
    /// [`LentBuffers`](super::LentBuffers), asks those of all connections, and calls [`BufferPool::remove_lent`] when one
    /// ends.
    pub(crate) fn take(&mut self, payload_bytes: usize, mut is_lent: impl FnMut(u8) -> bool) -> Option<FreshBuffer> {
        let sizes = payload_bytes..=PART_MIN * payload_bytes;
        let is_fit = |buffer: &Arc<OwnBuffer>| sizes.contains(&buffer.bytes()) && is_free(buffer, &mut is_lent);
        let buffer = match self.buffers.iter().rposition(is_fit) {
            Some(at) => self.buffers.remove(at),
            None => self.create(payload_bytes, is_lent)?,
        };
        self.buffers.push(buffer.clone());
        // The thread that dropped the last payload has read it before.
        fence(Acquire);
        // SAFETY: the pool had the only reference to the buffer, and it is lent to nobody.
        Some(unsafe { FreshBuffer::new(buffer, payload_bytes) })
    }

    /// Makes a buffer, for which free ones of other sizes make room.
    fn create(&mut self, payload_bytes: usize, mut is_lent: impl FnMut(u8) -> bool) -> Option<Arc<OwnBuffer>> {
        if self.is_refused {
            return None;
        }
        let bytes = buffer_bytes(payload_bytes);
        let is_free_buffer = |buffer: &&Arc<OwnBuffer>| is_free(buffer, &mut is_lent);
        let free_bytes: usize = self.buffers.iter().filter(is_free_buffer).map(|buffer| buffer.bytes()).sum();
        if POOL_BYTES_MAX < self.bytes - free_bytes + bytes {
            return None;
        }
        while POOL_BYTES_MAX < self.bytes + bytes || self.buffers.len() == BUFFERS_MAX {
            let oldest = self.buffers.iter().position(|buffer| is_free(buffer, &mut is_lent))?;
            self.bytes -= self.buffers.remove(oldest).bytes();
        }
        let mut is_used = |index| self.buffers.iter().any(|buffer| buffer.index() == index) || is_lent(index);
        let index = (0..=BUFFER_INDEX_MAX).find(|index| !is_used(*index))?;
        match OwnBuffer::create(index, self.serial, bytes) {
            Ok(buffer) => {
                self.serial += 1;
                self.bytes += bytes;
                Some(Arc::new(buffer))
            }
            Err(error) => {
                (self.refusal, self.is_refused) = (Some(error), true);
                None
            }
        }
    }

    /// Returns the first refusal of the system, once.
    pub(crate) fn take_refusal(&mut self) -> Option<io::Error> {
        let refusal = self.refusal.take()?;
        (!std::mem::replace(&mut self.is_refusal_reported, true)).then_some(refusal)
    }

    /// Returns the buffer that a payload begins in, if it is one of the pool. Nobody writes it as long as the payload
    /// exists.
    pub(crate) fn buffer_of(&self, payload: &Bytes) -> Option<&Arc<OwnBuffer>> {
        self.buffers.iter().rev().find(|buffer| buffer.holds(payload))
    }

    /// Removes the buffers for which `is_lent` holds, whose readers do not give them back any more.
    pub(crate) fn remove_lent(&mut self, mut is_lent: impl FnMut(u8) -> bool) {
        self.buffers.retain(|buffer| !is_lent(buffer.index()));
        self.bytes = self.buffers.iter().map(|buffer| buffer.bytes()).sum();
    }

    /// Frees the memory of all buffers, as soon as nobody uses it any more.
    pub(crate) fn clear(&mut self) {
        self.buffers.clear();
        (self.bytes, self.is_refused) = (0, false);
    }
}

/// Returns whether this process has no payload in a buffer, and no other process may read it.
fn is_free(buffer: &Arc<OwnBuffer>, is_lent: impl FnOnce(u8) -> bool) -> bool {
    Arc::strong_count(buffer) == 1 && !is_lent(buffer.index())
}

/// Returns the size of a buffer for payloads of about `payload_bytes` bytes: at most a quarter more.
fn buffer_bytes(payload_bytes: usize) -> usize {
    payload_bytes.next_multiple_of((payload_bytes.next_power_of_two() / 8).max(4096))
}
