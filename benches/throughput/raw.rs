//! What the kernel allows: a sender with nothing but `sendmmsg`, a receiver with nothing but `recvmmsg`, each on a
//! thread of its own, over loopback multicast. Nothing is numbered, checked or kept.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Datagrams in one system call.
const BATCH: usize = 64;
/// Wanted of the kernel for the receive buffer, as the peer does by default; it grants what `net.core.rmem_max` allows.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// How long the receiver waits for the last datagrams.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(100);
/// The largest datagram that the bench sends.
const BUFFER_BYTES: usize = 9216;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 77, 1);

/// What a run came to, in datagrams.
pub struct Outcome {
    pub sent: u64,
    pub received: u64,
}

/// Sends datagrams of `bytes` bytes as fast as they go for `span`.
pub fn run(bytes: usize, span: Duration) -> io::Result<Outcome> {
    let receiver = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    receiver.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    receiver.bind(&SocketAddrV4::new(GROUP, 0).into())?;
    receiver.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST)?;
    receiver.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
    let sender = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
    sender.set_multicast_ttl_v4(0)?;
    sender.connect(&receiver.local_addr()?)?;

    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let received = scope.spawn(|| receive(&receiver));
        let sent = scope.spawn(|| send(&sender, bytes, &over));
        thread::sleep(span);
        over.store(true, Relaxed);
        let sent = sent.join().expect("the sender does not panic")?;
        let received = received.join().expect("the receiver does not panic")?;
        Ok(Outcome { sent, received })
    })
}

fn send(socket: &Socket, bytes: usize, over: &AtomicBool) -> io::Result<u64> {
    let payload = vec![7_u8; bytes];
    let mut slice = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: bytes };
    let mut headers = headers(|_| &raw mut slice);
    let mut sent = 0;
    while !over.load(Relaxed) {
        // SAFETY: all headers point to the one slice, which points to the payload; the kernel only reads, and all of
        // it outlives the call.
        let count = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), BATCH as libc::c_uint, 0) };
        sent += u64::try_from(count).map_err(|_| io::Error::last_os_error())?;
    }
    Ok(sent)
}

/// Receives until nothing has come for [`RECEIVE_TIMEOUT`].
fn receive(socket: &Socket) -> io::Result<u64> {
    let mut buffers = vec![[0_u8; BUFFER_BYTES]; BATCH];
    let mut slices: Vec<libc::iovec> = buffers
        .iter_mut()
        .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() })
        .collect();
    let mut headers = headers(|index| &raw mut slices[index]);
    let mut received = 0;
    loop {
        // SAFETY: each header points to a slice of its own, which points to a buffer of its own; all outlive the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_WAITFORONE,
                ptr::null_mut(),
            )
        };
        match u64::try_from(count) {
            Ok(count) => received += count,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => return Ok(received),
                error => return Err(error),
            },
        }
    }
}

fn headers(mut slice: impl FnMut(usize) -> *mut libc::iovec) -> Vec<libc::mmsghdr> {
    (0..BATCH)
        .map(|index| {
            // SAFETY: all zero bytes are a valid `mmsghdr`: null pointers and lengths of 0.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = slice(index);
            header.msg_hdr.msg_iovlen = 1;
            header
        })
        .collect()
}
