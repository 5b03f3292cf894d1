//! The buffers that the other side of a connection may read.

use super::buffer::OwnBuffer;
use super::returns::BufferReturns;
use super::segment::{BUFFER_INDEX_MAX, BUFFERS_MAX};

/// Maximum number of buffers that the other side of a connection may keep at a time.
const KEPT_BUFFERS_MAX: usize = 32;
/// Maximum bytes of these buffers, unless it is a single one.
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The buffers that were lent through one ring. The owner compares the number of loans with that of returns.
#[derive(Debug)]
pub(crate) struct LentBuffers {
    returns: BufferReturns,
    /// By index.
    lent: Vec<LentBuffer>,
}

/// Loans of the buffers with one index.
#[derive(Clone, Copy, Debug, Default)]
struct LentBuffer {
    /// Number of loans since the start, modulo 2^32.
    loans: u32,
    /// Number of loans when the other side had given all of them back, by the last look.
    ended_loans: u32,
    /// Serial number of the buffer that the other side has; `None` if it must get the descriptor.
    serial: Option<u64>,
    /// Size of the buffer, in bytes.
    bytes: usize,
}

impl LentBuffers {
    /// Makes the value for the buffers that are given back through `returns` by the other side.
    pub(crate) fn new(returns: BufferReturns) -> LentBuffers {
        LentBuffers { returns, lent: vec![LentBuffer::default(); BUFFERS_MAX] }
    }

    /// Returns whether the other side may still read the buffer with this index. If it counts wrongly, only its own
    /// payloads are in danger, and it keeps no buffer that it has not got.
    pub(crate) fn is_lent(&mut self, index: u8) -> bool {
        let lent = &mut self.lent[usize::from(index)];
        if lent.loans != lent.ended_loans && lent.loans == self.returns.count(index) {
            lent.ended_loans = lent.loans;
        }
        lent.loans != lent.ended_loans
    }

    /// Returns whether the other side keeps as many buffers as it may, with a further one of `bytes` bytes.
    pub(crate) fn is_full(&mut self, bytes: usize) -> bool {
        let (mut count, mut kept) = (0, 0);
        for index in 0..=BUFFER_INDEX_MAX {
            if self.is_lent(index) {
                count += 1;
                kept += self.lent[usize::from(index)].bytes;
            }
        }
        0 < count && (KEPT_BUFFERS_MAX <= count || KEPT_BYTES_MAX < kept + bytes)
    }

    /// Returns whether the other side has the descriptor of this buffer.
    pub(crate) fn is_known(&self, buffer: &OwnBuffer) -> bool {
        self.lent[usize::from(buffer.index())].serial == Some(buffer.serial())
    }

    /// Records that the other side gets a payload in this buffer.
    pub(crate) fn lend(&mut self, buffer: &OwnBuffer) {
        let lent = &mut self.lent[usize::from(buffer.index())];
        lent.loans = lent.loans.wrapping_add(1);
        (lent.serial, lent.bytes) = (Some(buffer.serial()), buffer.bytes());
    }

    /// Records that the other side has no descriptors any more. Returns whether it had any.
    pub(crate) fn reset_descriptors(&mut self) -> bool {
        let mut had_any = false;
        for lent in &mut self.lent {
            had_any |= lent.serial.take().is_some();
        }
        had_any
    }
}
