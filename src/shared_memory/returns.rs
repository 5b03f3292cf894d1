//! The return of buffers that came through a ring: the borrower counts in shared memory how often it has given each back.

use super::segment::{RingIndex, Segment};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

/// The counts of the buffers that come through one ring.
#[derive(Clone, Debug)]
pub(crate) struct BufferReturns {
    segment: Arc<Segment>,
    ring: RingIndex,
}

impl BufferReturns {
    pub(super) fn new(segment: Arc<Segment>, ring: RingIndex) -> BufferReturns {
        BufferReturns { segment, ring }
    }

    /// Gives a buffer back, whose bytes this process does not read any more.
    pub(crate) fn give_back(&self, index: u8) {
        self.segment.returned(self.ring, index).fetch_add(1, Release);
    }

    /// Returns how often the other side has given this buffer back, modulo 2^32. It may count wrongly.
    pub(super) fn count(&self, index: u8) -> u32 {
        self.segment.returned(self.ring, index).load(Acquire)
    }
}
