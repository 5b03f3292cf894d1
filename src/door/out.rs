//! Bytes on their way to a client: small ones gathered, large ones shared by all their receivers.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// Bytes gathered in one buffer before the next is begun.
const GATHER_BYTES: usize = 64 * 1024;
/// From this size on content is shared instead of copied.
pub const SHARE_BYTES: usize = 8 * 1024;
/// Buffers written in one system call.
const SLICES_MAX: usize = 16;

/// Bytes to be written, in order.
#[derive(Debug, Default)]
pub struct Out {
    full: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

impl Out {
    /// Nothing.
    pub fn new() -> Out {
        Out::default()
    }

    /// Appends bytes.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.bytes += bytes.len();
        if GATHER_BYTES <= self.tail.len() {
            self.close_tail();
        }
    }

    /// Appends what is written to the end of the buffer it is given.
    pub fn put_with(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        write(&mut self.tail);
        self.bytes += self.tail.len() - before;
        if GATHER_BYTES <= self.tail.len() {
            self.close_tail();
        }
    }

    /// Appends content, without a copy if it is large.
    pub fn put_shared(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_BYTES {
            return self.put(bytes);
        }
        self.close_tail();
        self.bytes += bytes.len();
        self.full.push_back(bytes.clone());
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Nobody will read any of it.
    pub fn clear(&mut self) {
        *self = Out::default();
    }

    /// Takes everything, as one piece.
    pub fn take(&mut self) -> Vec<u8> {
        self.close_tail();
        let all = self.full.iter().flat_map(|bytes| bytes.iter().copied()).collect();
        self.clear();
        all
    }

    /// Writes until nothing waits or the writer would block; false in the latter case.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write_to(&mut self, writer: &mut impl Write) -> io::Result<bool> {
        loop {
            self.close_tail();
            if self.full.is_empty() {
                return Ok(true);
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            for (slice, bytes) in slices.iter_mut().zip(&self.full) {
                *slice = IoSlice::new(bytes);
            }
            let count = self.full.len().min(SLICES_MAX);
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
            let front = self.full.front_mut().expect("no more was written than there was");
            let taken = written.min(front.len());
            front.advance(taken);
            written -= taken;
            if front.is_empty() {
                self.full.pop_front();
            }
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.full.push_back(self.tail.split().freeze());
        }
    }
}
