//! Functions of the C library and of the allocator that count their work. The linker resolves them to these
//! definitions, in this program only.

use nix::sys::resource::{UsageWho, getrusage};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static COPIED_BYTES: AtomicU64 = AtomicU64::new(0);
static TRANSFERRED_BYTES: AtomicU64 = AtomicU64::new(0);
static SYSTEM_CALLS: AtomicU64 = AtomicU64::new(0);

/// Work that this program did.
#[derive(Clone, Copy, Default)]
pub struct Work {
    /// Number of calls that allocated or reallocated.
    pub allocations: u64,
    /// Bytes copied by this program.
    pub copied_bytes: u64,
    /// Bytes copied by the kernel from or to this program.
    pub transferred_bytes: u64,
    /// Number of system calls for datagrams, events and wake-ups.
    pub system_calls: u64,
    /// Number of pages that this program touched for the first time since it got them from the kernel.
    pub page_faults: u64,
}

impl Work {
    fn total() -> Work {
        Work {
            allocations: ALLOCATIONS.load(Relaxed),
            copied_bytes: COPIED_BYTES.load(Relaxed),
            transferred_bytes: TRANSFERRED_BYTES.load(Relaxed),
            system_calls: SYSTEM_CALLS.load(Relaxed),
            page_faults: page_faults(),
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Work) {
        self.allocations += more.allocations;
        self.copied_bytes += more.copied_bytes;
        self.transferred_bytes += more.transferred_bytes;
        self.system_calls += more.system_calls;
        self.page_faults += more.page_faults;
    }
}

fn page_faults() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a program may ask for its own usage");
    usage.minor_page_faults().unsigned_abs()
}

/// Returns the work that `task` does, and its result.
pub fn count<T>(task: impl FnOnce() -> T) -> (Work, T) {
    let before = Work::total();
    let result = task();
    let after = Work::total();
    let work = Work {
        allocations: after.allocations - before.allocations,
        copied_bytes: after.copied_bytes - before.copied_bytes,
        transferred_bytes: after.transferred_bytes - before.transferred_bytes,
        system_calls: after.system_calls - before.system_calls,
        page_faults: after.page_faults - before.page_faults,
    };
    (work, result)
}

/// Allocator that counts the calls that allocate or reallocate.
struct CountingAllocator;

// SAFETY: every call goes to the system's allocator unchanged; the counter touches no allocated memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Copies forwards. The loop cannot be a call of `memcpy`, which this function is.
///
/// # Safety
/// That of `memcpy`; the regions may overlap if `to` is below `from`.
#[inline(always)]
unsafe fn copy_forwards(to: *mut u8, from: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for both regions; the direction flag is clear by the calling convention.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") bytes => _, inout("rdi") to => _, inout("rsi") from => _);
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..bytes {
        // SAFETY: the caller vouches for both regions.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) }
    }
}

/// Copies as the function of the C library, and counts the bytes.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    COPIED_BYTES.fetch_add(bytes as u64, Relaxed);
    // SAFETY: the caller keeps the contract of `memcpy`.
    unsafe { copy_forwards(to, from, bytes) }
    to
}

/// Copies as the function of the C library, and counts the bytes.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    COPIED_BYTES.fetch_add(bytes as u64, Relaxed);
    if bytes <= (to as usize).wrapping_sub(from as usize) {
        // SAFETY: the caller keeps the contract of `memmove`, and `to` is below `from` or beyond its region.
        unsafe { copy_forwards(to, from, bytes) }
        return to;
    }
    for at in (0..bytes).rev() {
        // SAFETY: the caller keeps the contract of `memmove`.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) }
    }
    to
}

/// Makes a system call and converts its result as the C library does.
macro_rules! system_call {
    ($number:ident $(, $argument:expr)*) => {{
        SYSTEM_CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of the function with this name, which is that of the system call.
        unsafe { libc::syscall(libc::$number $(, $argument)*) }
    }};
}

fn count_transferred(headers: *const libc::mmsghdr, count: libc::c_long) {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the kernel has written the length of the first `count` headers.
        let bytes = unsafe { (*headers.add(at)).msg_len };
        TRANSFERRED_BYTES.fetch_add(bytes.into(), Relaxed);
    }
}

/// Sends as the function of the C library, and counts the bytes.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    socket: libc::c_int,
    headers: *mut libc::mmsghdr,
    count: libc::c_uint,
    flags: libc::c_int,
) -> libc::c_int {
    let sent = system_call!(SYS_sendmmsg, socket, headers, count, flags);
    count_transferred(headers, sent);
    sent as libc::c_int
}

/// Receives as the function of the C library, and counts the bytes.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    socket: libc::c_int,
    headers: *mut libc::mmsghdr,
    count: libc::c_uint,
    flags: libc::c_int,
    timeout: *mut libc::timespec,
) -> libc::c_int {
    let received = system_call!(SYS_recvmmsg, socket, headers, count, flags, timeout);
    count_transferred(headers, received);
    received as libc::c_int
}

/// Waits as the function of the C library, and counts the call.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    epoll: libc::c_int,
    events: *mut libc::epoll_event,
    count: libc::c_int,
    timeout: libc::c_int,
) -> libc::c_int {
    let no_mask = std::ptr::null::<libc::sigset_t>();
    system_call!(SYS_epoll_pwait, epoll, events, count, timeout, no_mask, size_of::<u64>()) as libc::c_int
}

/// Reads an option as the function of the C library, and counts the call.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    socket: libc::c_int,
    level: libc::c_int,
    name: libc::c_int,
    value: *mut libc::c_void,
    bytes: *mut libc::socklen_t,
) -> libc::c_int {
    system_call!(SYS_getsockopt, socket, level, name, value, bytes) as libc::c_int
}

/// Writes as the function of the C library, and counts the call and the bytes.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: libc::c_int, bytes: *const libc::c_void, count: usize) -> isize {
    let written = system_call!(SYS_write, file, bytes, count) as isize;
    TRANSFERRED_BYTES.fetch_add(u64::try_from(written).unwrap_or(0), Relaxed);
    written
}

/// Reads as the function of the C library, and counts the call and the bytes.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(file: libc::c_int, bytes: *mut libc::c_void, count: usize) -> isize {
    let read = system_call!(SYS_read, file, bytes, count) as isize;
    TRANSFERRED_BYTES.fetch_add(u64::try_from(read).unwrap_or(0), Relaxed);
    read
}

/// Sends as the function of the C library, and counts the call and the bytes.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(socket: libc::c_int, header: *const libc::msghdr, flags: libc::c_int) -> isize {
    let sent = system_call!(SYS_sendmsg, socket, header, flags) as isize;
    TRANSFERRED_BYTES.fetch_add(u64::try_from(sent).unwrap_or(0), Relaxed);
    sent
}

/// Receives as the function of the C library, and counts the call and the bytes.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(socket: libc::c_int, header: *mut libc::msghdr, flags: libc::c_int) -> isize {
    let received = system_call!(SYS_recvmsg, socket, header, flags) as isize;
    TRANSFERRED_BYTES.fetch_add(u64::try_from(received).unwrap_or(0), Relaxed);
    received
}

/// Waits as the function of the C library, and counts the call.
///
/// # Safety
/// That of the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(files: *mut libc::pollfd, count: libc::nfds_t, timeout: libc::c_int) -> libc::c_int {
    let time = libc::timespec { tv_sec: (timeout / 1000).into(), tv_nsec: (timeout % 1000 * 1_000_000).into() };
    let limit = if timeout < 0 { std::ptr::null() } else { &raw const time };
    let no_mask = std::ptr::null::<libc::sigset_t>();
    system_call!(SYS_ppoll, files, count, limit, no_mask, size_of::<u64>()) as libc::c_int
}
