//! Buffers of large messages: a memfd for each, written once, then sealed, and mapped by all of its readers.
//!
//! The seals forbid any change of the contents and of the size. So a reader refers to the bytes in place, although
//! another process has written them.

use super::segment::{check_call, invalid};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Minimum size of a buffer, in bytes. A copy of less costs no more than the system calls for a memfd.
pub(crate) const BUFFER_BYTES_MIN: usize = 64 * 1024;
/// Maximum number of buffers whose descriptors this process holds to hand them on.
const SHAREABLE_BUFFERS_MAX: usize = 128;

/// Seals of a buffer: neither its contents nor its size can change.
const SEALS: libc::c_int = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// The buffers of this process that can be handed on, by the address of their first byte.
static SHAREABLE_BUFFERS: Mutex<BTreeMap<usize, Weak<SealedBuffer>>> = Mutex::new(BTreeMap::new());

fn shareable_buffers() -> MutexGuard<'static, BTreeMap<usize, Weak<SealedBuffer>>> {
    // No code panics while it holds the lock.
    SHAREABLE_BUFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    fn new(memory: BorrowedFd<'_>, bytes: usize, access: libc::c_int, flags: libc::c_int) -> io::Result<Mapping> {
        // SAFETY: the system chooses an unused range of addresses, so that no other memory changes.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, memory.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| invalid("the buffer was mapped at address 0"))?;
        Ok(Mapping { base, bytes })
    }

    /// Maps memory to read it. The mapping is private, since old kernels do not share memory that is sealed.
    fn to_read(memory: BorrowedFd<'_>, bytes: usize, flags: libc::c_int) -> io::Result<Mapping> {
        Mapping::new(memory, bytes, libc::PROT_READ, libc::MAP_PRIVATE | flags)
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range is mapped as long as `self`. Its bytes do not change: either the seals forbid it, or the
        // descriptor has never left this process, and the only other mapping has gone or is borrowed through `self`.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
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

/// A new buffer that its only owner writes.
#[derive(Debug)]
pub(crate) struct WritableBuffer {
    memory: OwnedFd,
    mapping: Mapping,
}

impl WritableBuffer {
    /// Makes a buffer of `bytes` bytes, at least one. All of its memory is allocated at once, so that a later access does
    /// not fail for want of memory.
    ///
    /// # Errors
    /// The system has no memfd, no descriptor or no memory left.
    pub(crate) fn create(bytes: usize) -> io::Result<WritableBuffer> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero byte.
        let descriptor = check_call(unsafe { libc::memfd_create(c"seqcast-buffer".as_ptr(), flags) })?;
        // SAFETY: the system has just opened the descriptor, and nobody else has it.
        let memory = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let length = libc::off_t::try_from(bytes).map_err(|_| invalid("the size of a buffer is not possible"))?;
        // SAFETY: the call accesses no memory of this process.
        check_call(unsafe { libc::fallocate(memory.as_raw_fd(), 0, 0, length) })?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let mapping = Mapping::new(memory.as_fd(), bytes, access, libc::MAP_SHARED | libc::MAP_POPULATE)?;
        Ok(WritableBuffer { memory, mapping })
    }

    /// Returns the bytes for writing.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped as long as `self`, which is borrowed exclusively. No other process has the memory.
        unsafe { slice::from_raw_parts_mut(self.mapping.base.as_ptr(), self.mapping.bytes) }
    }

    /// Returns the bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.mapping.as_ref()
    }

    /// Seals the buffer and returns its bytes, with which [`SealedBuffer::of`] finds it. If the system refuses, or this
    /// process has as many buffers as it hands on, the bytes are ordinary ones.
    pub(crate) fn seal(self) -> Bytes {
        self.seal_shareable().map_or_else(|bytes| bytes, SealedBuffer::into_bytes)
    }

    /// Seals the buffer so that it can be handed on, or returns ordinary bytes.
    fn seal_shareable(self) -> Result<Arc<SealedBuffer>, Bytes> {
        let WritableBuffer { memory, mapping } = self;
        let Ok(readable) = Mapping::to_read(memory.as_fd(), mapping.bytes, 0) else {
            return Err(Bytes::copy_from_slice(mapping.as_ref()));
        };
        drop(mapping);
        // SAFETY: the call accesses no memory of this process.
        match check_call(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, SEALS) }) {
            Ok(_) => SealedBuffer::register(memory, readable).map_err(Bytes::from_owner),
            Err(_) => Err(Bytes::from_owner(readable)),
        }
    }
}

/// A sealed buffer that can be handed on to other processes.
#[derive(Debug)]
pub(crate) struct SealedBuffer {
    memory: OwnedFd,
    mapping: Mapping,
}

/// Owner of the bytes of a payload.
struct BufferOwner(Arc<SealedBuffer>);

impl AsRef<[u8]> for BufferOwner {
    fn as_ref(&self) -> &[u8] {
        self.0.mapping.as_ref()
    }
}

impl SealedBuffer {
    /// Returns the buffer that these bytes are, if they are all bytes of one.
    pub(crate) fn of(payload: &Bytes) -> Option<Arc<SealedBuffer>> {
        if payload.len() < BUFFER_BYTES_MIN {
            return None;
        }
        let buffer = shareable_buffers().get(&(payload.as_ptr() as usize))?.upgrade()?;
        (buffer.mapping.bytes == payload.len()).then_some(buffer)
    }

    /// Copies bytes into a new buffer.
    ///
    /// # Errors
    /// The system has no memfd, no descriptor or no memory left, or this process has as many buffers as it hands on.
    pub(crate) fn copy(payload: &[u8]) -> io::Result<Arc<SealedBuffer>> {
        let too_many = || io::Error::other("this process hands on no more buffers");
        if SHAREABLE_BUFFERS_MAX <= shareable_buffers().len() {
            return Err(too_many());
        }
        let mut buffer = WritableBuffer::create(payload.len())?;
        buffer.as_mut_slice().copy_from_slice(payload);
        buffer.seal_shareable().map_err(|_| too_many())
    }

    /// Returns the bytes, which own the buffer.
    fn into_bytes(self: Arc<SealedBuffer>) -> Bytes {
        Bytes::from_owner(BufferOwner(self))
    }

    /// Maps a buffer of `bytes` bytes that another process has sealed, and returns its bytes; `None` if the system does
    /// not let this process map it. With `is_read_now`, all of its pages are mapped at once.
    ///
    /// # Errors
    /// The descriptor is no such buffer.
    pub(crate) fn open(memory: OwnedFd, bytes: usize, is_read_now: bool) -> io::Result<Option<Bytes>> {
        let flags = if is_read_now { libc::MAP_POPULATE } else { 0 };
        let mapped = check_sealed(memory.as_fd(), bytes).and_then(|()| Mapping::to_read(memory.as_fd(), bytes, flags));
        match mapped {
            Ok(mapping) => {
                let payload = SealedBuffer::register(memory, mapping);
                Ok(Some(payload.map_or_else(Bytes::from_owner, SealedBuffer::into_bytes)))
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Registers a buffer, so that [`SealedBuffer::of`] finds it. Returns the mapping alone, and closes the descriptor, if
    /// this process has as many buffers as it hands on.
    fn register(memory: OwnedFd, mapping: Mapping) -> Result<Arc<SealedBuffer>, Mapping> {
        let mut shareable = shareable_buffers();
        if SHAREABLE_BUFFERS_MAX <= shareable.len() {
            return Err(mapping);
        }
        let address = mapping.base.as_ptr() as usize;
        let buffer = Arc::new(SealedBuffer { memory, mapping });
        shareable.insert(address, Arc::downgrade(&buffer));
        Ok(buffer)
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.mapping.bytes
    }

    /// Returns the descriptor.
    pub(crate) fn memory(&self) -> &OwnedFd {
        &self.memory
    }
}

impl Drop for SealedBuffer {
    fn drop(&mut self) {
        // The address is free for another mapping only after this.
        shareable_buffers().remove(&(self.mapping.base.as_ptr() as usize));
    }
}

/// Checks that this memory is a memfd of `bytes` bytes that nobody can change any more, and that an access to it needs no
/// further memory. Memory of huge pages could lack a page, and the access would end this process.
fn check_sealed(memory: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // SAFETY: the call accesses no memory of this process.
    let seals = check_call(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) })
        .map_err(|_| invalid("the descriptor of a message is no memfd"))?;
    if seals & SEALS != SEALS {
        return Err(invalid("the memfd of a message is not sealed"));
    }
    // SAFETY: `stat` and `statfs` consist of numbers, for which zero is a value.
    let (mut status, mut system): (libc::stat, libc::statfs) = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for a write of the whole structure.
    check_call(unsafe { libc::fstat(memory.as_raw_fd(), &raw mut status) })?;
    // SAFETY: as above.
    check_call(unsafe { libc::fstatfs(memory.as_raw_fd(), &raw mut system) })?;
    if system.f_type != libc::TMPFS_MAGIC {
        return Err(invalid("the memfd of a message has huge pages"));
    }
    if bytes == 0 || usize::try_from(status.st_size).ok() != Some(bytes) {
        return Err(invalid("the memfd of a message has another size than its frame says"));
    }
    // The number of blocks is no proof: it includes those behind the end of the file.
    // SAFETY: the call accesses no memory of this process. Nobody uses the offset of the file that it changes.
    let hole = unsafe { libc::lseek(memory.as_raw_fd(), 0, libc::SEEK_HOLE) };
    if hole < 0 {
        return Err(io::Error::last_os_error());
    }
    if hole != status.st_size {
        return Err(invalid("the memfd of a message is not completely allocated and written"));
    }
    Ok(())
}
