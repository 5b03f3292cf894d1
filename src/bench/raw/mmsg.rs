//! Many buffers in one system call: `sendmmsg` and `recvmmsg` on buffers that are reused.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::ptr;

use socket2::Socket;

/// Maximum number of buffers in one system call.
pub const BUFFERS: usize = 64;
/// Buffer size above that of any UDP datagram, so that none is ever truncated.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Buffers to send.
#[derive(Debug)]
pub struct SendBuffers {
    /// The buffers; each is sent completely.
    pub buffers: Vec<Vec<u8>>,
}

impl SendBuffers {
    /// Creates `count` buffers of `bytes` bytes.
    pub fn new(count: usize, bytes: usize) -> SendBuffers {
        SendBuffers { buffers: vec![vec![0; bytes]; count.clamp(1, BUFFERS)] }
    }

    /// Sends all buffers, waiting for room.
    ///
    /// # Errors
    /// Returns the kernel's error for the first buffer that it refuses.
    pub fn send(&mut self, socket: &Socket) -> io::Result<()> {
        self.send_first(self.buffers.len(), socket)
    }

    /// Sends the first `count` buffers, waiting for room.
    ///
    /// # Errors
    /// Returns the kernel's error for the first buffer that it refuses.
    pub fn send_first(&mut self, count: usize, socket: &Socket) -> io::Result<()> {
        let mut slices: Vec<libc::iovec> = self.buffers[..count]
            .iter()
            .map(|buffer| libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() })
            .collect();
        let mut headers: Vec<libc::mmsghdr> = slices.iter_mut().map(header).collect();
        let mut sent = 0;
        while sent < headers.len() {
            let rest = &mut headers[sent..];
            // SAFETY: each header points to its own slice, which points to its own buffer, only read by the kernel; all
            // of them outlive the call.
            let count = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as libc::c_uint, 0) };
            match usize::try_from(count) {
                Ok(count) => sent += count,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }
}

/// Buffers to receive into.
#[derive(Debug)]
pub struct ReceiveBuffers {
    buffers: Vec<Vec<u8>>,
    /// Bytes in each buffer, and in each of its datagrams but the last if it contains several.
    filled: Vec<(usize, Option<usize>)>,
    /// Number of datagrams that the kernel has dropped at the socket so far, as reported with the last one.
    pub drops: u32,
}

impl ReceiveBuffers {
    /// Creates `count` buffers, each for the largest datagram.
    pub fn new(count: usize) -> ReceiveBuffers {
        let count = count.clamp(1, BUFFERS);
        ReceiveBuffers { buffers: vec![vec![0; RECEIVE_BYTES]; count], filled: Vec::with_capacity(count), drops: 0 }
    }

    /// Receives the available datagrams; waits for the first according to the timeout of the socket. Without a
    /// datagram the result is empty.
    ///
    /// # Errors
    /// Returns the kernel's error, except that nothing came in time.
    pub fn receive(&mut self, socket: &Socket) -> io::Result<()> {
        self.filled.clear();
        let mut controls = [const { MmsgControlBuffer([0; 64]) }; BUFFERS];
        let mut slices: Vec<libc::iovec> = self
            .buffers
            .iter_mut()
            .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() })
            .collect();
        let mut headers: Vec<libc::mmsghdr> = slices
            .iter_mut()
            .zip(&mut controls)
            .map(|(slice, control)| {
                let mut header = header(slice);
                header.msg_hdr.msg_control = ptr::from_mut(control).cast();
                header.msg_hdr.msg_controllen = size_of::<MmsgControlBuffer>();
                header
            })
            .collect();
        // SAFETY: each header points to its own control buffer and slice, which points to its own buffer; all of them
        // outlive the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_WAITFORONE,
                ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return match io::Error::last_os_error() {
                error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
                error => Err(error),
            };
        };
        for header in &headers[..count] {
            let (segment, drops) = parse_control(&header.msg_hdr);
            self.drops = drops.unwrap_or(self.drops);
            self.filled.push((header.msg_len as usize, segment));
        }
        Ok(())
    }

    /// Returns the datagrams of each buffer of the last call.
    pub fn datagrams(&self) -> impl Iterator<Item = std::slice::Chunks<'_, u8>> {
        self.buffers
            .iter()
            .zip(&self.filled)
            .map(|(buffer, (bytes, segment))| buffer[..*bytes].chunks(segment.unwrap_or(*bytes).max(1)))
    }
}

/// Space for the control messages that a socket may request, with the kernel's alignment.
#[repr(C, align(8))]
struct MmsgControlBuffer([u8; 64]);

/// Returns the size of the datagrams in a buffer, if it contains several, and the count of drops, if it is reported.
fn parse_control(header: &libc::msghdr) -> (Option<usize>, Option<u32>) {
    let (mut segment, mut drops) = (None, None);
    // SAFETY: the kernel has filled `msg_control` with `msg_controllen` bytes of well-formed control messages.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !control.is_null() {
        // SAFETY: the macros return either null or the address of a whole control message inside the buffer.
        let (level, kind, data) = unsafe { ((*control).cmsg_level, (*control).cmsg_type, libc::CMSG_DATA(control)) };
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: the data of this kind is one int; it may stand unaligned.
                segment = usize::try_from(unsafe { ptr::read_unaligned(data.cast::<libc::c_int>()) }).ok();
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: the data of this kind is one u32; it may stand unaligned.
                drops = Some(unsafe { ptr::read_unaligned(data.cast::<u32>()) });
            }
            _ => {}
        }
        // SAFETY: as above.
        control = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
    (segment, drops)
}

fn header(slice: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: all zero bytes are a valid `mmsghdr`: null pointers and lengths of 0.
    let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
    header.msg_hdr.msg_iov = slice;
    header.msg_hdr.msg_iovlen = 1;
    header
}
