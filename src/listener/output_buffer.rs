//! Output queued for a client. Small pieces are copied into one buffer; all receivers share large pieces.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// Size at which the buffer of small pieces is queued and a new one begins, in bytes.
const GATHER_BYTES: usize = 64 * 1024;
/// Minimum size of content that is shared instead of copied, in bytes.
pub const SHARE_BYTES: usize = 8 * 1024;
/// Minimum size of a message payload that is counted once for all queues that share it, in bytes.
pub const COMMON_BYTES: usize = 64 * 1024;
/// Maximum number of buffers written in one system call.
const SLICES_MAX: usize = 16;

/// Queue of bytes to write, in order.
#[derive(Debug, Default)]
pub struct OutputBuffer {
    /// Chunks before the tail.
    chunks: VecDeque<OutputChunk>,
    /// Small pieces at the end of the queue.
    tail: BytesMut,
    /// Number of queued bytes.
    bytes: usize,
    /// Number of queued bytes that the sender of their payload counts.
    common_bytes: usize,
}

#[derive(Debug)]
struct OutputChunk {
    bytes: Bytes,
    /// True if the sender of the payload counts the chunk, once for all queues that share it.
    is_common: bool,
}

impl OutputBuffer {
    /// Returns an empty buffer.
    pub fn new() -> OutputBuffer {
        OutputBuffer::default()
    }

    /// Appends bytes.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.put_with(|tail| tail.extend_from_slice(bytes));
    }

    /// Appends these pieces one after the other.
    #[inline]
    pub fn put_all(&mut self, pieces: &[&[u8]]) {
        self.put_with(|tail| {
            tail.reserve(pieces.iter().map(|piece| piece.len()).sum());
            pieces.iter().for_each(|piece| tail.extend_from_slice(piece));
        });
    }

    /// Appends the bytes that `write` adds to the end of the buffer it receives.
    #[inline]
    pub fn put_with(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        write(&mut self.tail);
        self.bytes += self.tail.len() - before;
        if GATHER_BYTES <= self.tail.len() {
            self.close_tail();
        }
    }

    /// Appends content; large content is shared instead of copied.
    pub fn put_shared(&mut self, bytes: &Bytes) {
        self.put_piece(bytes, false);
    }

    /// Appends the payload of a message; a large payload is shared instead of copied. A payload of at least
    /// [`COMMON_BYTES`] is counted by the caller that delivers the message to all its receivers.
    pub fn put_payload(&mut self, payload: &Bytes) {
        self.put_piece(payload, COMMON_BYTES <= payload.len());
    }

    fn put_piece(&mut self, bytes: &Bytes, is_common: bool) {
        if bytes.len() < SHARE_BYTES {
            return self.put(bytes);
        }
        self.close_tail();
        self.bytes += bytes.len();
        self.common_bytes += if is_common { bytes.len() } else { 0 };
        self.chunks.push_back(OutputChunk { bytes: bytes.clone(), is_common });
    }

    /// Inserts bytes behind the first `offset` queued bytes.
    ///
    /// # Panics
    /// If fewer bytes are queued.
    pub fn insert(&mut self, offset: usize, bytes: Vec<u8>) {
        self.close_tail();
        let (mut index, mut rest) = (0, offset);
        while 0 < rest {
            let chunk = &mut self.chunks[index];
            if rest < chunk.bytes.len() {
                let head = OutputChunk { bytes: chunk.bytes.split_to(rest), is_common: chunk.is_common };
                self.chunks.insert(index, head);
                rest = 0;
            } else {
                rest -= chunk.bytes.len();
            }
            index += 1;
        }
        self.bytes += bytes.len();
        self.chunks.insert(index, OutputChunk { bytes: bytes.into(), is_common: false });
    }

    /// Returns the number of queued bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the number of queued bytes that count for this queue alone.
    pub fn uncounted_len(&self) -> usize {
        self.bytes - self.common_bytes
    }

    /// Returns whether no bytes are queued.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Discards all queued bytes.
    pub fn clear(&mut self) {
        *self = OutputBuffer::default();
    }

    /// Removes all queued bytes and returns them in one vector.
    pub fn take(&mut self) -> Vec<u8> {
        self.close_tail();
        let all = self.chunks.iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
        self.clear();
        all
    }

    /// Writes until the queue is empty or the writer would block. Returns true if the queue is empty.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write_to(&mut self, writer: &mut impl Write) -> io::Result<bool> {
        loop {
            self.close_tail();
            if self.chunks.is_empty() {
                return Ok(true);
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            for (slice, piece) in slices.iter_mut().zip(&self.chunks) {
                *slice = IoSlice::new(&piece.bytes);
            }
            let count = self.chunks.len().min(SLICES_MAX);
            match writer.write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.on_written(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn on_written(&mut self, mut written: usize) {
        self.bytes -= written;
        while 0 < written {
            let front = self.chunks.front_mut().expect("at most the queued bytes are written");
            let taken = written.min(front.bytes.len());
            front.bytes.advance(taken);
            written -= taken;
            self.common_bytes -= if front.is_common { taken } else { 0 };
            if front.bytes.is_empty() {
                self.chunks.pop_front();
            }
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(OutputChunk { bytes: self.tail.split().freeze(), is_common: false });
        }
    }
}
