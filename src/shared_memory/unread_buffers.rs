//! The buffers that were handed over, and whose frames the other side has not read yet.

use std::collections::VecDeque;

/// Maximum number of buffers that one side has handed over, and whose frames the other side has not read yet.
pub(crate) const UNREAD_BUFFERS_MAX: usize = 32;

/// Buffers handed over, in order.
#[derive(Debug, Default)]
pub(crate) struct UnreadBuffers {
    frames: VecDeque<BufferFrame>,
    bytes: usize,
}

/// Frame of a buffer.
#[derive(Debug)]
struct BufferFrame {
    /// Position in the ring at which the frame ends.
    end: u64,
    /// Size of the buffer, in bytes.
    bytes: usize,
}

impl UnreadBuffers {
    /// Adds a buffer of `bytes` bytes whose frame ends at the position `end` of the ring.
    pub(crate) fn push(&mut self, end: u64, bytes: usize) {
        self.frames.push_back(BufferFrame { end, bytes });
        self.bytes += bytes;
    }

    /// Removes the buffers whose frames end up to the position `head`, since the other side has read up to there.
    pub(crate) fn release(&mut self, head: u64) {
        while let Some(frame) = self.frames.front()
            && frame.end <= head
        {
            self.bytes -= frame.bytes;
            self.frames.pop_front();
        }
    }

    /// Returns the number of buffers.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of bytes of all buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
