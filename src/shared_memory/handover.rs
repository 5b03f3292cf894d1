//! The Unix socket beside a segment: it hands the descriptor over, and its bytes are doorbells.

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, send, sendmsg};
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

/// Reads once into `bytes`, and returns the number of bytes and the descriptor beside them. There is none if the other
/// side sent none, or if this process may not have it.
///
/// # Errors
/// The socket is broken, or nothing came in time.
pub(crate) fn receive_with_descriptor(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
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
    let count = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the system has just filled the header.
    Ok((count, unsafe { take_descriptors(&header) }.pop()))
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
