//! The two ends of a ring.
//!
//! Each end that waits says so in a word of the ring before its last look. The other end, after each change, looks at that
//! word. Between the two steps of either end is a fence, so at least one of them sees the step of the other.

use super::returns::BufferReturns;
use super::segment::{RingIndex, RingSide, RingWord, Segment};
use bytes::BytesMut;
use std::fmt;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// Fault of the other end of a ring: its counter has gone backwards, or is ahead by more than the size of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingFault;

impl fmt::Display for RingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a counter in the shared memory is not possible")
    }
}

impl std::error::Error for RingFault {}

impl From<RingFault> for io::Error {
    fn from(fault: RingFault) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, fault)
    }
}

/// Returns the reader and the writer of one side of a new segment. A side may take them once.
pub(crate) fn rings(segment: Segment, side: RingSide) -> (RingReader, RingWriter) {
    let segment = Arc::new(segment);
    let (reads, writes) = match side {
        RingSide::Peer => (RingIndex::ToPeer, RingIndex::ToClient),
        RingSide::Client => (RingIndex::ToClient, RingIndex::ToPeer),
    };
    let reader = RingReader {
        segment: segment.clone(),
        ring: reads,
        head: 0,
        tail: 0,
        is_armed: false,
        has_read: false,
        is_ended: false,
    };
    (reader, RingWriter { segment, ring: writes, tail: 0, head: 0, is_waiting: false })
}

/// Asks the other end of a ring for a doorbell by one of its words, unless it was asked already. The caller looks at the
/// ring once more before it sleeps.
#[inline]
fn request_doorbell(segment: &Segment, ring: RingIndex, word: RingWord, is_requested: &mut bool) {
    if !std::mem::replace(is_requested, true) {
        segment.word(ring, word).store(1, Relaxed);
        fence(SeqCst);
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(crate) struct RingReader {
    segment: Arc<Segment>,
    ring: RingIndex,
    /// Number of bytes read.
    head: u64,
    /// Number of bytes written, by the last look.
    tail: u64,
    /// True if the writer was asked for a doorbell, and nothing was read since.
    is_armed: bool,
    /// True if bytes were read since the last look for a waiting writer.
    has_read: bool,
    /// True if the stream ends at `tail`.
    is_ended: bool,
}

impl RingReader {
    /// Returns how this side gives back the buffers that come through the ring.
    pub(crate) fn buffer_returns(&self) -> BufferReturns {
        BufferReturns::new(self.segment.clone(), self.ring)
    }

    /// Returns whether the ring seems to have bytes. A wrong counter counts as bytes, so that the next read reports it.
    #[inline]
    pub(crate) fn has_bytes(&self) -> bool {
        let tail = if self.is_ended { self.tail } else { self.segment.word(self.ring, RingWord::Tail).load(Relaxed) };
        self.head != tail
    }

    /// Ends the stream at its present tail, since its writer has gone. Bytes that come later are not read.
    ///
    /// # Errors
    /// The counter of the writer is not possible.
    pub(crate) fn end_stream(&mut self) -> Result<(), RingFault> {
        self.load_tail()?;
        self.is_ended = true;
        Ok(())
    }

    /// Loads the counter of the writer, unless the stream has ended.
    fn load_tail(&mut self) -> Result<(), RingFault> {
        if !self.is_ended {
            let tail = self.segment.word(self.ring, RingWord::Tail).load(Acquire);
            if tail < self.tail || (self.segment.ring_bytes() as u64) < tail - self.head {
                return Err(RingFault);
            }
            self.tail = tail;
        }
        Ok(())
    }

    /// Appends at most `bytes_max` bytes to `out` and returns their number. They leave the ring.
    ///
    /// # Errors
    /// The counter of the writer is not possible.
    pub(crate) fn read(&mut self, bytes_max: usize, out: &mut BytesMut) -> Result<usize, RingFault> {
        self.load_tail()?;
        let count = bytes_max.min(usize::try_from(self.tail - self.head).expect("at most the size of the ring"));
        if count == 0 {
            return Ok(0);
        }
        if std::mem::take(&mut self.is_armed) {
            self.segment.word(self.ring, RingWord::ReaderSleeps).store(0, Relaxed);
        }
        self.segment.copy_out(self.ring, self.head, count, out);
        self.head += count as u64;
        self.has_read = true;
        self.segment.word(self.ring, RingWord::Head).store(self.head, Release);
        Ok(count)
    }

    /// Asks the writer for a doorbell at its next write. The caller looks at [`RingReader::has_bytes`] once more before
    /// it sleeps.
    #[inline]
    pub(crate) fn arm(&mut self) {
        request_doorbell(&self.segment, self.ring, RingWord::ReaderSleeps, &mut self.is_armed);
    }

    /// Records that a doorbell has come, for which the writer has withdrawn the request.
    pub(crate) fn on_doorbell(&mut self) {
        self.is_armed = false;
    }

    /// Returns whether the writer waits and is to get a doorbell, which it gets once half of the ring is free. The caller
    /// asks after it has read, before it sleeps at the latest.
    pub(crate) fn take_doorbell_request(&mut self) -> bool {
        // A writer that begins to wait later finds that everything was read, or there are more bytes to read.
        if !self.has_read || self.segment.ring_bytes() as u64 / 2 < self.tail - self.head {
            return false;
        }
        self.has_read = false;
        fence(SeqCst);
        let waits = self.segment.word(self.ring, RingWord::WriterWaits);
        waits.load(Relaxed) != 0 && waits.swap(0, Relaxed) != 0
    }
}

/// The writing end of a ring. Its [`Write`] implementation fails with `WouldBlock` if the ring is full; the reader then
/// rings the doorbell once it has made room.
#[derive(Debug)]
pub(crate) struct RingWriter {
    segment: Arc<Segment>,
    ring: RingIndex,
    /// Number of bytes written.
    tail: u64,
    /// Number of bytes read, by the last look.
    head: u64,
    /// True if the reader was asked for a doorbell since the last write.
    is_waiting: bool,
}

impl RingWriter {
    /// Returns how the other side gives back the buffers that are lent through the ring.
    pub(crate) fn buffer_returns(&self) -> BufferReturns {
        BufferReturns::new(self.segment.clone(), self.ring)
    }

    /// Returns the number of bytes that the reader has not read yet.
    ///
    /// # Errors
    /// The counter of the reader is not possible.
    #[inline]
    pub(crate) fn unread(&mut self) -> Result<u64, RingFault> {
        let head = self.segment.word(self.ring, RingWord::Head).load(Acquire);
        if head < self.head || self.tail < head {
            return Err(RingFault);
        }
        self.head = head;
        Ok(self.tail - head)
    }

    /// Returns the position up to which the reader has read.
    ///
    /// # Errors
    /// The counter of the reader is not possible.
    pub(crate) fn head(&mut self) -> Result<u64, RingFault> {
        self.unread()?;
        Ok(self.head)
    }

    /// Returns the position up to which bytes are written.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Asks the reader for a doorbell when it has read. The caller looks at [`RingWriter::unread`] once more before it
    /// waits.
    #[inline]
    pub(crate) fn await_reader(&mut self) {
        request_doorbell(&self.segment, self.ring, RingWord::WriterWaits, &mut self.is_waiting);
    }

    /// Records that a doorbell has come, for which the reader has withdrawn the request.
    pub(crate) fn on_doorbell(&mut self) {
        self.is_waiting = false;
    }

    /// Returns whether the reader sleeps and is to get a doorbell. The caller asks after each write.
    #[inline]
    pub(crate) fn take_doorbell_request(&self) -> bool {
        fence(SeqCst);
        let sleeps = self.segment.word(self.ring, RingWord::ReaderSleeps);
        sleeps.load(Relaxed) != 0 && sleeps.swap(0, Relaxed) != 0
    }

    /// Returns whether no byte fits now. If so, the reader rings the doorbell when some do.
    ///
    /// # Errors
    /// The counter of the reader is not possible.
    pub(crate) fn is_full(&mut self) -> Result<bool, RingFault> {
        Ok(self.room()? == 0)
    }

    /// Returns the number of bytes that fit now. If none fit, the reader rings the doorbell when some do.
    fn room(&mut self) -> Result<usize, RingFault> {
        let ring_bytes = self.segment.ring_bytes() as u64;
        let mut room = ring_bytes - (self.tail - self.head);
        if room <= ring_bytes / 2 {
            room = ring_bytes - self.unread()?;
        }
        if room == 0 {
            self.await_reader();
            room = ring_bytes - self.unread()?;
        }
        Ok(usize::try_from(room).expect("at most the size of the ring"))
    }
}

impl Write for RingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let room = self.room()?;
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if std::mem::take(&mut self.is_waiting) {
            self.segment.word(self.ring, RingWord::WriterWaits).store(0, Relaxed);
        }
        let mut left = room;
        for slice in slices {
            let count = slice.len().min(left);
            self.segment.copy_in(self.ring, self.tail, &slice[..count]);
            self.tail += count as u64;
            left -= count;
        }
        self.segment.word(self.ring, RingWord::Tail).store(self.tail, Release);
        Ok(room - left)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
