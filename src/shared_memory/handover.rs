//! The Unix socket beside a segment: it hands the descriptor over, and its bytes are doorbells.

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, send, sendmsg};
use std::io::{self, IoSlice, IoSliceMut};
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

/// Reads once into `bytes`, and returns the number of bytes and the descriptor beside them, if there is one.
///
/// # Errors
/// The socket is broken, or nothing came in time.
pub(crate) fn receive_with_descriptor(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = cmsg_space!([RawFd; 1]);
    let mut slices = [IoSliceMut::new(bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(socket.as_fd().as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    let mut descriptor = None;
    for control in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            for received in descriptors {
                // SAFETY: the system has just opened the descriptor for this process, and nobody else has it. All but
                // the last one are closed.
                descriptor = Some(unsafe { OwnedFd::from_raw_fd(received) });
            }
        }
    }
    Ok((received.bytes, descriptor))
}

/// Wakes the other side. If the socket is full, doorbells that the other side has not read wake it. If it is broken, the
/// connection has ended, as a read shows.
pub(crate) fn ring_doorbell(socket: &impl AsFd) {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    while send(socket.as_fd().as_raw_fd(), &[0], flags) == Err(Errno::EINTR) {}
}
