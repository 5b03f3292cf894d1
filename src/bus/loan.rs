//! Memory for large payloads that programs of this host read in place.

use super::{Bus, PublishError, check_size};
use crate::message::Message;
use crate::shared_memory::{BUFFER_BYTES_MIN, FreshBuffer};
use crate::subject::Subject;
use bytes::{Bytes, BytesMut};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Memory that a program fills with the payload of a message. Its bytes are arbitrary at first: 0, or those of an earlier
/// payload of the program.
///
/// With shared memory, a payload of at least 64 KiB is written here once. The peer copies it once, and all subscribers of
/// this host read it in place. Else this is ordinary memory, and the payload is copied as usual.
pub struct LoanedBuffer {
    memory: LoanedMemory,
}

enum LoanedMemory {
    Shared(FreshBuffer),
    Ordinary(BytesMut),
}

impl LoanedBuffer {
    /// Returns the contents as the payload of messages. They may be published several times, also with a reply subject and
    /// headers. The memory is lent again once the last reference to them is gone and the peer has read them.
    pub fn into_payload(self) -> Bytes {
        match self.memory {
            LoanedMemory::Shared(buffer) => buffer.freeze(),
            LoanedMemory::Ordinary(bytes) => bytes.freeze(),
        }
    }

    /// Returns whether the peer can read the payload in this memory.
    pub fn is_shared(&self) -> bool {
        matches!(self.memory, LoanedMemory::Shared(_))
    }
}

impl Deref for LoanedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            LoanedMemory::Shared(buffer) => buffer.as_slice(),
            LoanedMemory::Ordinary(bytes) => bytes,
        }
    }
}

impl DerefMut for LoanedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            LoanedMemory::Shared(buffer) => buffer.as_mut_slice(),
            LoanedMemory::Ordinary(bytes) => bytes,
        }
    }
}

impl fmt::Debug for LoanedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoanedBuffer")
            .field("bytes", &self.len())
            .field("is_shared", &self.is_shared())
            .finish_non_exhaustive()
    }
}

impl Bus {
    /// Lends memory for a payload of `bytes` bytes. Publish it with [`Bus::publish_loaned`], or make a message with
    /// [`LoanedBuffer::into_payload`].
    ///
    /// A program has at most 128 loans and payloads in shared memory at a time, of together 256 MiB. Further loans are
    /// ordinary memory. The shared memory remains with the program until it closes its connection.
    ///
    /// # Errors
    /// [`PublishError::TooLarge`] if no message can be so large. A system that has no shared memory left lends ordinary
    /// memory.
    pub fn loan(&self, bytes: usize) -> Result<LoanedBuffer, PublishError> {
        check_size(bytes, self.shared.info.message_bytes_max)?;
        let shared = if BUFFER_BYTES_MIN <= bytes { self.shared.link.fresh_buffer(bytes) } else { None };
        let memory = match shared {
            Some(buffer) => LoanedMemory::Shared(buffer),
            None => LoanedMemory::Ordinary(BytesMut::zeroed(bytes)),
        };
        Ok(LoanedBuffer { memory })
    }

    /// Publishes lent memory as the payload of a message, waiting at most `timeout` for room in the queue.
    ///
    /// # Errors
    /// The same as of [`Bus::publish_timeout`]. The payload is lost then; a caller that wants to keep it publishes a
    /// message with [`LoanedBuffer::into_payload`].
    pub fn publish_loaned(
        &self,
        subject: &Subject,
        buffer: LoanedBuffer,
        timeout: Duration,
    ) -> Result<(), PublishError> {
        self.publish_timeout(Message::new(subject.clone(), buffer.into_payload()), timeout)
    }
}
