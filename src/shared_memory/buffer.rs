//! Buffers of large messages: memfds that their owner writes again and again, and that other processes only read.
//!
//! A buffer keeps its pages, so a message needs neither new memory nor new mappings. The seals forbid other processes to
//! write it or to change its size. Its owner does not write it while a reader may use it.

use super::returns::BufferReturns;
use super::segment::{check_call, invalid};
use bytes::Bytes;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

/// Minimum size of a payload that passes in a buffer, in bytes.
pub(crate) const BUFFER_BYTES_MIN: usize = 64 * 1024;

/// Seals that fix the size of a buffer: an access to a mapping beyond the end would end the process.
const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
/// Seals of a buffer: only mappings that exist already can write it, and only its owner has one.
const SEALS: libc::c_int = SIZE_SEALS | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;

/// A mapping of a whole memfd.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is memory of the process, and belongs to this value alone.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference only permits to read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps memory with all of its pages.
    fn new(memory: BorrowedFd<'_>, bytes: usize, access: libc::c_int) -> io::Result<Mapping> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: the system chooses an unused range of addresses, so that no other memory changes.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, memory.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| invalid("the buffer was mapped at address 0"))?;
        Ok(Mapping { base, bytes })
    }

    /// Returns the first `bytes` bytes.
    ///
    /// # Safety
    /// Nobody writes them as long as the returned reference is used.
    unsafe fn first_bytes(&self, bytes: usize) -> &[u8] {
        assert!(bytes <= self.bytes, "a payload is not larger than its buffer");
        // SAFETY: the range is mapped as long as `self`, and the caller prevents writes.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and no reference to it outlives this value.
        let answer = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(answer, 0, "a mapped range can be unmapped");
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A buffer of this process.
#[derive(Debug)]
pub(crate) struct OwnBuffer {
    memory: OwnedFd,
    mapping: Mapping,
    index: u8,
    serial: u64,
}

impl OwnBuffer {
    /// Makes a buffer of `bytes` bytes, at least one. All of its memory is allocated at once, so that a later access does
    /// not fail for want of memory.
    ///
    /// # Errors
    /// The system has no memfd, no descriptor, no memory left, or no seal against future writes (Linux before 5.1).
    pub(super) fn create(index: u8, serial: u64, bytes: usize) -> io::Result<OwnBuffer> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero byte.
        let descriptor = check_call(unsafe { libc::memfd_create(c"seqcast-buffer".as_ptr(), flags) })?;
        // SAFETY: the system has just opened the descriptor, and nobody else has it.
        let memory = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let length = libc::off_t::try_from(bytes).map_err(|_| invalid("the size of a buffer is not possible"))?;
        // SAFETY: the call accesses no memory of this process.
        check_call(unsafe { libc::fallocate(memory.as_raw_fd(), 0, 0, length) })?;
        let mapping = Mapping::new(memory.as_fd(), bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: as above.
        check_call(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Ok(OwnBuffer { memory, mapping, index, serial })
    }

    /// Returns the index among the buffers of its owner.
    pub(crate) fn index(&self) -> u8 {
        self.index
    }

    /// Returns a number that no other buffer of its owner has. A buffer that replaces another has its index.
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    /// Returns the descriptor.
    pub(crate) fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// Returns whether these bytes begin where the buffer does.
    pub(super) fn holds(&self, payload: &Bytes) -> bool {
        ptr::eq(self.mapping.base.as_ptr(), payload.as_ptr())
    }
}

/// A buffer that is being filled with a payload.
#[derive(Debug)]
pub(crate) struct FreshBuffer {
    buffer: Arc<OwnBuffer>,
    payload_bytes: usize,
}

impl FreshBuffer {
    /// Makes the value for a buffer with room for `payload_bytes` bytes.
    ///
    /// # Safety
    /// This process has no payload in the buffer, and no other process reads it.
    pub(super) unsafe fn new(buffer: Arc<OwnBuffer>, payload_bytes: usize) -> FreshBuffer {
        assert!(payload_bytes <= buffer.mapping.bytes, "the payload fits");
        FreshBuffer { buffer, payload_bytes }
    }

    /// Returns the bytes of the payload for writing. At first they are those of an earlier payload, or 0.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped as long as `self`, which is borrowed exclusively. There is no other value for the
        // buffer, and nobody reads it, as the caller of `new` has promised.
        unsafe { slice::from_raw_parts_mut(self.buffer.mapping.base.as_ptr(), self.payload_bytes) }
    }

    /// Returns the bytes of the payload.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the payload is written only through `self`.
        unsafe { self.buffer.mapping.first_bytes(self.payload_bytes) }
    }

    /// Returns the payload. Its bytes do not change any more.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for FreshBuffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// A mapping of a buffer of the other side, and what is needed to give it back.
#[derive(Debug)]
struct BorrowedPayload {
    mapping: Arc<Mapping>,
    payload_bytes: usize,
    index: u8,
    returns: BufferReturns,
}

impl AsRef<[u8]> for BorrowedPayload {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the owner of the buffer, whom this process trusts, writes it only after it was given back. The seals
        // forbid that others write it.
        unsafe { self.mapping.first_bytes(self.payload_bytes) }
    }
}

impl Drop for BorrowedPayload {
    fn drop(&mut self) {
        self.returns.give_back(self.index);
    }
}

/// The buffers of the other side that this process maps. The other side is a peer, which this process trusts.
#[derive(Debug)]
pub(crate) struct BorrowedBuffers {
    /// By index; `None` if this process has not got it.
    mappings: Vec<Option<Arc<Mapping>>>,
    returns: BufferReturns,
}

impl BorrowedBuffers {
    /// Makes the value for a connection whose buffers are given back through `returns`.
    pub(crate) fn new(returns: BufferReturns) -> BorrowedBuffers {
        BorrowedBuffers { mappings: Vec::new(), returns }
    }

    /// Maps a new buffer in place of an earlier one with its index. `None` stands for a descriptor that this process may
    /// not have.
    ///
    /// # Errors
    /// The descriptor is no buffer.
    pub(crate) fn open(&mut self, index: u8, memory: Option<OwnedFd>) -> io::Result<()> {
        let at = usize::from(index);
        if self.mappings.len() <= at {
            self.mappings.resize(at + 1, None);
        }
        self.mappings[at] = None;
        let Some(memory) = memory else { return Ok(()) };
        let bytes = check_buffer(memory.as_fd())?;
        self.mappings[at] = Mapping::new(memory.as_fd(), bytes, libc::PROT_READ).ok().map(Arc::new);
        Ok(())
    }

    /// Returns the payload of `payload_bytes` bytes in a buffer, which is given back with it. Returns `None`, and gives the
    /// buffer back, if this process could not map it.
    ///
    /// # Errors
    /// The payload is larger than the buffer.
    pub(crate) fn payload(&self, index: u8, payload_bytes: usize) -> io::Result<Option<Bytes>> {
        let Some(mapping) = self.mappings.get(usize::from(index)).and_then(Option::as_ref) else {
            self.returns.give_back(index);
            return Ok(None);
        };
        if mapping.bytes < payload_bytes {
            return Err(invalid("the payload is larger than its buffer"));
        }
        let (mapping, returns) = (mapping.clone(), self.returns.clone());
        Ok(Some(Bytes::from_owner(BorrowedPayload { mapping, payload_bytes, index, returns })))
    }

    /// Unmaps all buffers without a payload, since their owner does not use them again.
    pub(crate) fn clear(&mut self) {
        self.mappings.clear();
    }
}

/// Returns the size of a buffer that another process has made.
///
/// # Errors
/// The descriptor is no memfd, or its size can change, or is 0.
pub(crate) fn check_buffer(memory: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: the call accesses no memory of this process.
    let seals = check_call(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) })
        .map_err(|_| invalid("the descriptor of a buffer is no memfd"))?;
    if seals & SIZE_SEALS != SIZE_SEALS {
        return Err(invalid("the size of a buffer is not sealed"));
    }
    // SAFETY: `stat` consists of numbers, for which zero is a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for a write of the whole structure.
    check_call(unsafe { libc::fstat(memory.as_raw_fd(), &raw mut status) })?;
    match usize::try_from(status.st_size) {
        Ok(bytes @ 1..) => Ok(bytes),
        _ => Err(invalid("a buffer is empty")),
    }
}
