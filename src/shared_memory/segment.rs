//! A mapped memfd of fixed size.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Minimum size of a ring, in bytes: a page.
const RING_BYTES_MIN: usize = 4096;
/// Maximum size of a ring, in bytes.
const RING_BYTES_MAX: usize = 1 << 30;

/// Maximum number of buffers of a process for one use.
pub(crate) const BUFFERS_MAX: usize = 128;
/// Maximum index of a buffer.
pub(super) const BUFFER_INDEX_MAX: u8 = (BUFFERS_MAX - 1) as u8;

/// Bytes before the data of the rings. They hold the words of both rings, and the counts of returned buffers.
const HEAD_BYTES: usize = 4096;
/// Bytes between the words of the first ring and those of the second.
const RING_WORDS_BYTES: usize = 1024;
/// Bytes between two words of a ring. Neighbours are on cache lines of their own, and are not fetched in pairs.
const WORD_SPACING_BYTES: usize = 128;
/// Offset of the counts of returned buffers: those of the first ring, then those of the second.
const RETURNED_OFFSET: usize = 2 * RING_WORDS_BYTES;
/// Bytes of the counts of one ring.
const RETURNED_BYTES: usize = BUFFERS_MAX * size_of::<u32>();

/// Seals that fix the size of a segment. A mapping of a memfd that could shrink would end the process that reads it.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// End of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingSide {
    /// The peer: it reads the first ring and writes the second.
    Peer,
    /// The client: it writes the first ring and reads the second.
    Client,
}

/// Ring of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingIndex {
    /// From the client to the peer.
    ToPeer = 0,
    /// From the peer to the client.
    ToClient = 1,
}

/// Word of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingWord {
    /// Number of bytes written since the start.
    Tail = 0,
    /// Number of bytes read since the start.
    Head = 1,
    /// 1 if the reader sleeps until a doorbell.
    ReaderSleeps = 2,
    /// 1 if the writer waits for room until a doorbell.
    WriterWaits = 3,
}

const _: () = assert!(4 * WORD_SPACING_BYTES <= RING_WORDS_BYTES);
const _: () = assert!(RETURNED_OFFSET + 2 * RETURNED_BYTES <= HEAD_BYTES);

/// Memory shared with another process, which may write to it at any time.
#[derive(Debug)]
pub(crate) struct Segment {
    base: NonNull<u8>,
    ring_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone within the process and stays at its address until it is dropped. The
// methods access it only by atomics and by copies of bytes, as the other process does.
unsafe impl Send for Segment {}
// SAFETY: as above. Two copies at once can mix bytes, which the other process can do as well.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes a segment with two rings of `ring_bytes` bytes, a power of two, and returns it with its descriptor. All of
    /// its memory is allocated at once, so that a later access does not fail for want of memory. The other process can
    /// still release pages, which the system then allocates anew at the next access. The seals do not forbid that.
    ///
    /// # Errors
    /// The system has no memfd, no descriptor or no memory left.
    pub(crate) fn create(ring_bytes: usize) -> io::Result<(Segment, OwnedFd)> {
        check_ring_bytes(ring_bytes)?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero byte.
        let descriptor = check_call(unsafe { libc::memfd_create(c"seqcast".as_ptr(), flags) })?;
        // SAFETY: the system has just opened the descriptor, and nobody else has it.
        let memory = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let bytes = libc::off_t::try_from(segment_bytes(ring_bytes)).expect("at most 2 GiB and a page");
        // SAFETY: the call accesses no memory of this process.
        check_call(unsafe { libc::fallocate(memory.as_raw_fd(), 0, 0, bytes) })?;
        // SAFETY: as above.
        check_call(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Ok((Segment::map(memory.as_fd(), ring_bytes)?, memory))
    }

    /// Maps a segment that another process has made with [`Segment::create`].
    ///
    /// # Errors
    /// The descriptor is no such segment, or cannot be mapped.
    pub(crate) fn open(memory: BorrowedFd<'_>, ring_bytes: usize) -> io::Result<Segment> {
        check_ring_bytes(ring_bytes)?;
        // SAFETY: the call accesses no memory of this process.
        let seals = check_call(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) })?;
        // SAFETY: `stat` consists of numbers, for which zero is a value.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is valid for a write of the whole structure.
        check_call(unsafe { libc::fstat(memory.as_raw_fd(), &raw mut status) })?;
        if seals & SEALS != SEALS || usize::try_from(status.st_size).ok() != Some(segment_bytes(ring_bytes)) {
            return Err(invalid("the segment has another size, or can change it"));
        }
        Segment::map(memory, ring_bytes)
    }

    fn map(memory: BorrowedFd<'_>, ring_bytes: usize) -> io::Result<Segment> {
        let bytes = segment_bytes(ring_bytes);
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: the system chooses an unused range of addresses, so that no other memory changes.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, memory.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| invalid("the segment was mapped at address 0"))?;
        Ok(Segment { base, ring_bytes })
    }

    /// Returns the size of each ring, in bytes.
    pub(super) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Returns a word of a ring.
    #[inline]
    pub(super) fn word(&self, ring: RingIndex, word: RingWord) -> &AtomicU64 {
        let offset = ring as usize * RING_WORDS_BYTES + word as usize * WORD_SPACING_BYTES;
        // SAFETY: the offset is below HEAD_BYTES and a multiple of 8, and the mapping begins at a page. It lives as long
        // as `self`. The other process, too, accesses the word only as a whole; if it does not, the value is arbitrary,
        // and every value of the type is valid.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Returns the number of times that the reader of a ring has given the buffer with this index back, modulo 2^32.
    #[inline]
    pub(super) fn returned(&self, ring: RingIndex, index: u8) -> &AtomicU32 {
        assert!(usize::from(index) < BUFFERS_MAX, "an index is below BUFFERS_MAX");
        let offset = RETURNED_OFFSET + ring as usize * RETURNED_BYTES + usize::from(index) * size_of::<u32>();
        // SAFETY: the offset is below HEAD_BYTES and a multiple of 4; the rest is as for `word`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Copies `bytes` into a ring from the position `at` on, which may be anywhere in the stream. `bytes` is at most as
    /// long as the ring.
    #[inline]
    pub(super) fn copy_in(&self, ring: RingIndex, at: u64, bytes: &[u8]) {
        let (start, first) = self.span(at, bytes.len());
        // SAFETY: `span` keeps both parts within the ring, which is within the mapping. `bytes` is memory of this process
        // and does not overlap with the mapping. No reference to bytes of the mapping exists.
        unsafe {
            let ring = self.ring_start(ring);
            ptr::copy_nonoverlapping(bytes.as_ptr(), ring.add(start), first);
            ptr::copy_nonoverlapping(bytes.as_ptr().add(first), ring, bytes.len() - first);
        }
    }

    /// Appends `count` bytes of a ring, from the position `at` on, to `out`. `count` is at most the size of the ring.
    #[inline]
    pub(super) fn copy_out(&self, ring: RingIndex, at: u64, count: usize, out: &mut bytes::BytesMut) {
        let (start, first) = self.span(at, count);
        out.reserve(count);
        let end = out.len() + count;
        // SAFETY: `span` keeps both parts within the ring, which is within the mapping, and `out` has room for `count`
        // bytes behind its end, which does not overlap with the mapping. Afterwards they are initialized. The other
        // process may change the bytes meanwhile: the copies then are arbitrary, and any byte is valid.
        unsafe {
            let ring = self.ring_start(ring);
            let to = out.as_mut_ptr().add(out.len());
            ptr::copy_nonoverlapping(ring.add(start), to, first);
            ptr::copy_nonoverlapping(ring, to.add(first), count - first);
            out.set_len(end);
        }
    }

    /// Returns where `count` bytes from the position `at` on begin in a ring, and how many of them precede its end.
    fn span(&self, at: u64, count: usize) -> (usize, usize) {
        assert!(count <= self.ring_bytes, "a ring is copied at most once");
        let start = usize::try_from(at & (self.ring_bytes as u64 - 1)).expect("below the size of the ring");
        (start, count.min(self.ring_bytes - start))
    }

    /// Returns the first byte of a ring.
    fn ring_start(&self, ring: RingIndex) -> *mut u8 {
        // SAFETY: the mapping has `HEAD_BYTES` bytes and two rings behind them.
        unsafe { self.base.as_ptr().add(HEAD_BYTES + ring as usize * self.ring_bytes) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and no pointer into it outlives this value.
        let answer = unsafe { libc::munmap(self.base.as_ptr().cast(), segment_bytes(self.ring_bytes)) };
        debug_assert_eq!(answer, 0, "a mapped range can be unmapped");
    }
}

/// Returns the size of a segment with two rings of this size, in bytes.
fn segment_bytes(ring_bytes: usize) -> usize {
    HEAD_BYTES + 2 * ring_bytes
}

fn check_ring_bytes(ring_bytes: usize) -> io::Result<()> {
    match ring_bytes.is_power_of_two() && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) {
        true => Ok(()),
        false => Err(invalid("the size of a ring is not possible")),
    }
}

pub(super) fn check_call(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

pub(super) fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
