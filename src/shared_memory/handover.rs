//! The Unix socket beside a segment: it hands descriptors over, and its bytes are doorbells.

use super::unread_buffers::UNREAD_BUFFERS_MAX;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, send, sendmsg};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Sends these bytes without blocking, with a descriptor beside the first one.
///
/// # Errors
/// The socket has no room for all of them now, or is broken.
pub(crate) fn send_with_descriptor(socket: &impl AsFd, bytes: &[u8], descriptor: &impl AsFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd().as_raw_fd()];
    let control = [ControlMessage::ScmRights(&descriptors)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let socket = socket.as_fd().as_raw_fd();
    match sendmsg::<()>(socket, &[IoSlice::new(bytes)], &control, flags, None)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Maximum memory of the unread bytes in a socket, in bytes, that may precede a descriptor: about 42 doorbells. So a side
/// that does not read its socket keeps no more buffers.
const UNREAD_SOCKET_BYTES_MAX: libc::c_int = 32 * 1024;

/// Sends a descriptor beside a doorbell. Returns false if the socket does not take it now, or has much that the other
/// side has not read.
pub(crate) fn hand_over(socket: &impl AsFd, descriptor: &impl AsFd) -> bool {
    let mut unread: libc::c_int = 0;
    // SAFETY: the pointer is valid for a write of the number.
    let answer = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
    answer == 0 && unread <= UNREAD_SOCKET_BYTES_MAX && send_with_descriptor(socket, &[0], descriptor).is_ok()
}

/// Reads once into `bytes`, and returns the number of bytes and the descriptor beside them. There is none if the other
/// side sent none, or if this process may not have it.
///
/// # Errors
/// The socket is broken, or nothing came in time.
pub(crate) fn receive_with_descriptor(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    receive(socket, bytes).map(|mut received| (received.bytes, received.descriptors.pop()))
}

/// Outcome of one read.
struct ReceivedBytes {
    /// Number of bytes.
    bytes: usize,
    /// Descriptors that came beside them.
    descriptors: Vec<OwnedFd>,
    /// True if further descriptors came, which this process may not have.
    is_cut: bool,
}

fn receive(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<ReceivedBytes> {
    // A control message needs the alignment of its head.
    let mut space = [0u64; 8];
    let mut slice = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: `msghdr` consists of numbers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = space.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&space) as _;
    // SAFETY: the header names `bytes` and `space` with their sizes. Both outlive the call.
    let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    let bytes = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the system has just filled the header.
    let descriptors = unsafe { take_descriptors(&header) };
    Ok(ReceivedBytes { bytes, descriptors, is_cut: header.msg_flags & libc::MSG_CTRUNC != 0 })
}

/// Maximum number of reads of the socket for one descriptor.
const DESCRIPTOR_READS_MAX: usize = 1024;

/// Descriptors that came beside doorbells, in the order in which the other side has sent them. The frames that they
/// belong to come in the same order.
#[derive(Debug, Default)]
pub(crate) struct DescriptorQueue {
    /// `None` stands for a descriptor that this process may not have.
    waiting: VecDeque<Option<OwnedFd>>,
    has_fault: bool,
}

impl DescriptorQueue {
    /// Reads doorbells once into `bytes`, and queues the descriptor beside them. Returns the number of bytes.
    ///
    /// # Errors
    /// The socket is broken, or has no bytes now.
    pub(crate) fn receive(&mut self, socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
        let ReceivedBytes { bytes, mut descriptors, is_cut } = receive(socket, bytes)?;
        match (descriptors.pop(), is_cut) {
            (None, false) => {}
            (None, true) => self.waiting.push_back(None),
            (Some(descriptor), false) if descriptors.is_empty() => self.waiting.push_back(Some(descriptor)),
            (Some(_), _) => self.has_fault = true,
        }
        // Half of the frames can be in the ring, and half of them read from it and not processed.
        self.has_fault |= 2 * UNREAD_BUFFERS_MAX < self.waiting.len();
        Ok(bytes)
    }

    /// Returns whether the other side has sent several descriptors at once, or too many without their frames.
    pub(crate) fn has_fault(&self) -> bool {
        self.has_fault
    }

    /// Returns the number of descriptors that wait for their frames.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the descriptor for the next frame that needs one. Reads the socket until it has come: the other side has sent
    /// it before the frame.
    pub(crate) fn take_from(&mut self, socket: &impl AsFd) -> TakenDescriptor {
        let mut has_doorbells = false;
        for _ in 0..DESCRIPTOR_READS_MAX {
            if self.has_fault || !self.waiting.is_empty() {
                break;
            }
            match self.receive(socket, &mut [0; 256]) {
                Ok(1..) => has_doorbells = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The next read of the caller finds the end.
                Ok(0) | Err(_) => break,
            }
        }
        TakenDescriptor { descriptor: self.waiting.pop_front(), has_doorbells }
    }
}

/// Outcome of [`DescriptorQueue::take_from`].
#[derive(Debug)]
pub(crate) struct TakenDescriptor {
    /// The descriptor: `Some(None)` if this process may not have it, `None` if the other side has sent none.
    pub(crate) descriptor: Option<Option<OwnedFd>>,
    /// True if doorbells were read, for which there may be no event any more.
    pub(crate) has_doorbells: bool,
}

/// Takes all descriptors that came with a message, also if some were cut off.
///
/// # Safety
/// `recvmsg` has filled the header, and nobody has taken its descriptors.
unsafe fn take_descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: the macros stay within the control messages, whose sizes the system has set. It has opened the descriptors
    // for this process, and nobody else has them.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = control.as_ref() {
            if (message.cmsg_level, message.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(control).cast::<RawFd>();
                let bytes = message.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                for index in 0..bytes / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    descriptors
}

/// Wakes the other side. If the socket is full, doorbells that the other side has not read wake it. If it is broken, the
/// connection has ended, as a read shows.
pub(crate) fn send_doorbell(socket: &impl AsFd) {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    while send(socket.as_fd().as_raw_fd(), &[0], flags) == Err(Errno::EINTR) {}
}
