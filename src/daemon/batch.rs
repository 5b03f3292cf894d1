//! Many datagrams in one system call: `recvmmsg` and `sendmmsg`.
//!
//! What is received must not pin more memory than it needs, because a message may be held for seconds: a datagram is
//! received into a slot of 64 KiB, and unless it fills at least half of it, it is copied into a buffer of its own size and
//! the slot is used again.

use crate::time::Wall;
use bytes::{Bytes, BytesMut};
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// The most datagrams in one system call.
pub const BATCH_DATAGRAMS_MAX: usize = 64;

/// Datagrams that are asked for at least.
const FEW: usize = 8;

/// A datagram as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender, as the kernel tells it.
    pub from: SocketAddr,
    /// The UDP payload.
    pub bytes: Bytes,
    /// Datagrams that the kernel dropped at this socket, its buffer being full, since the last one that arrived and before
    /// this one.
    pub overrun: u32,
    /// When the kernel got it, if it says so.
    pub arrived: Option<Wall>,
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiver; `None` for the group.
    pub to: Option<SocketAddr>,
    /// The UDP payload, at most 65,507 bytes.
    pub bytes: Bytes,
}

/// Buffers for one receiving system call; used again and again.
#[derive(Debug)]
pub struct RecvBatch {
    slots: Vec<BytesMut>,
    received: Vec<Received>,
    /// How many the next call asks for: twice as many as came last, for each that is asked for has its cost.
    wanted: usize,
    is_full: bool,
}

impl RecvBatch {
    /// Room for `datagrams` at once: at least 1, at most [`BATCH_DATAGRAMS_MAX`]. Each slot is 64 KiB of address space;
    /// memory is used as far as datagrams fill it.
    pub fn new(datagrams: usize) -> RecvBatch {
        let datagrams = datagrams.clamp(1, BATCH_DATAGRAMS_MAX);
        let slots = (0..datagrams).map(|_| BytesMut::with_capacity(SLOT_BYTES)).collect();
        RecvBatch { slots, received: Vec::with_capacity(datagrams), wanted: datagrams, is_full: false }
    }

    /// Whether the last call got as many as it asked for: there may be more.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Takes out what the last call received, in order of arrival.
    pub fn drain(&mut self) -> impl Iterator<Item = Received> + '_ {
        self.received.drain(..)
    }

    /// Receives what is there without waiting; what was not drained before stays in front. Returns how many datagrams
    /// came, 0 if there is none. `overruns` is the socket's drop counter as known so far.
    pub(super) fn recv(&mut self, socket: BorrowedFd<'_>, overruns: &mut u32) -> io::Result<usize> {
        let count = self.wanted;
        let mut names = [const { MaybeUninit::<Name>::uninit() }; BATCH_DATAGRAMS_MAX];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH_DATAGRAMS_MAX];
        let mut slices = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_DATAGRAMS_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_DATAGRAMS_MAX];
        for (index, slot) in self.slots[..count].iter_mut().enumerate() {
            let room = slot.spare_capacity_mut();
            let slice = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let mut header = empty_header();
            header.msg_hdr.msg_name = ptr::from_mut(names[index].write(Name::EMPTY)).cast();
            header.msg_hdr.msg_namelen = NAME_BYTES;
            header.msg_hdr.msg_iov = slices[index].write(slice);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = ptr::from_mut(controls[index].write(Control::EMPTY)).cast();
            header.msg_hdr.msg_controllen = size_of::<Control>();
            headers[index].write(header);
        }
        let came = retried(|| {
            // SAFETY: the first `count` headers were initialised above; each points to its own name, control buffer and
            // slice, which points to the spare capacity of its own slot. All of them outlive the call.
            unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    headers.as_mut_ptr().cast(),
                    count as libc::c_uint,
                    libc::MSG_DONTWAIT,
                    ptr::null_mut(),
                )
            }
        })?;
        for index in 0..came {
            // SAFETY: initialised above for every slot asked for, and `came` is at most their number.
            let (header, name) = unsafe { (headers[index].assume_init_ref(), names[index].assume_init_ref()) };
            let told = Told::by_kernel(&header.msg_hdr);
            let overrun = told.drops.map_or(0, |drops| rise(overruns, drops));
            // SAFETY: the kernel wrote `msg_len` bytes at the start of this slot's spare capacity; it never says more
            // than `iov_len` without MSG_TRUNC among the flags of the call.
            let bytes = unsafe { taken(&mut self.slots[index], header.msg_len as usize) };
            let from = name.decode().expect("the sender of a UDP datagram has an Internet address");
            self.received.push(Received { from, bytes, overrun, arrived: told.arrived });
        }
        self.is_full = came == count;
        let most = self.slots.len();
        self.wanted = if self.is_full { most } else { (2 * came).clamp(FEW.min(most), most) };
        Ok(came)
    }
}

/// Datagrams dropped at a socket that no datagram has told of yet; from now on they are known.
pub(super) fn overrun(socket: BorrowedFd<'_>, overruns: &mut u32) -> io::Result<u32> {
    let mut memory = [0u32; SK_MEMINFO_VARS];
    let mut bytes = size_of_val(&memory) as libc::socklen_t;
    // SAFETY: SO_MEMINFO writes u32s, at most `bytes` of them in bytes, to `memory`; both outlive the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            memory.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(rise(overruns, memory[SK_MEMINFO_DROPS]))
}

/// How much the counter, which wraps, has risen. A datagram received after its socket was asked tells of the time before.
fn rise(known: &mut u32, drops: u32) -> u32 {
    let risen = drops.wrapping_sub(*known);
    if u32::MAX / 2 < risen {
        return 0;
    }
    *known = drops;
    risen
}

/// Sends the beginning of `batch`, as much of it as the send buffer takes, and returns how many datagrams that is; 0 if
/// the buffer is full. An error concerns the first datagram.
pub(super) fn send(socket: BorrowedFd<'_>, group: SocketAddr, batch: &[Outgoing]) -> io::Result<usize> {
    let batch = &batch[..batch.len().min(BATCH_DATAGRAMS_MAX)];
    let mut names = [const { MaybeUninit::<Name>::uninit() }; BATCH_DATAGRAMS_MAX];
    let mut slices = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_DATAGRAMS_MAX];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_DATAGRAMS_MAX];
    for (index, outgoing) in batch.iter().enumerate() {
        let name = names[index].write(Name::EMPTY);
        let slice = libc::iovec { iov_base: outgoing.bytes.as_ptr().cast_mut().cast(), iov_len: outgoing.bytes.len() };
        let mut header = empty_header();
        header.msg_hdr.msg_namelen = name.encode(outgoing.to.unwrap_or(group));
        header.msg_hdr.msg_name = ptr::from_mut(name).cast();
        header.msg_hdr.msg_iov = slices[index].write(slice);
        header.msg_hdr.msg_iovlen = 1;
        headers[index].write(header);
    }
    retried(|| {
        // SAFETY: the first `batch.len()` headers were initialised above; each points to its own name and slice, which
        // points to the bytes of its datagram, only read by the kernel. All of them outlive the call.
        unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                batch.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        }
    })
}

/// The count that a system call returns; again after a signal; 0 when it would have to wait.
fn retried(mut call: impl FnMut() -> libc::c_int) -> io::Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(0),
            _ => return Err(error),
        }
    }
}

/// The first `len` bytes received into `slot`, which is empty and whole again afterwards.
///
/// # Safety
/// The first `len` bytes of the slot's spare capacity are initialised, and it has that many.
unsafe fn taken(slot: &mut BytesMut, len: usize) -> Bytes {
    // SAFETY: what this function demands.
    unsafe { slot.set_len(len) };
    if SLOT_BYTES / 2 <= len {
        return mem::replace(slot, BytesMut::with_capacity(SLOT_BYTES)).freeze();
    }
    let bytes = Bytes::copy_from_slice(slot);
    slot.clear();
    bytes
}

/// What the kernel tells beside a datagram.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The count of datagrams dropped at the socket before this one; not told before the first drop.
    drops: Option<u32>,
    /// When it arrived.
    arrived: Option<Wall>,
}

impl Told {
    fn by_kernel(header: &libc::msghdr) -> Told {
        let mut told = Told::default();
        // SAFETY: the kernel has filled `msg_control` with `msg_controllen` bytes of well-formed control messages.
        let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !control.is_null() {
            // SAFETY: the macros return either null or the address of a whole control message inside the buffer.
            let (level, kind, data) =
                unsafe { ((*control).cmsg_level, (*control).cmsg_type, libc::CMSG_DATA(control)) };
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    // SAFETY: the data of this kind is one u32; it may stand unaligned.
                    told.drops = Some(unsafe { ptr::read_unaligned(data.cast::<u32>()) });
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    // SAFETY: the data of this kind is one timespec; it may stand unaligned.
                    let time = unsafe { ptr::read_unaligned(data.cast::<libc::timespec>()) };
                    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
                    told.arrived = u64::try_from(nanos).ok().map(Wall::from_nanos);
                }
                _ => {}
            }
            // SAFETY: as above.
            control = unsafe { libc::CMSG_NXTHDR(header, control) };
        }
        told
    }
}

/// A socket address as the kernel reads and writes it.
#[repr(C)]
#[derive(Clone, Copy)]
union Name {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    const EMPTY: Name = Name {
        v6: libc::sockaddr_in6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// Writes an address and returns how many bytes it takes.
    fn encode(&mut self, address: SocketAddr) -> libc::socklen_t {
        match address {
            SocketAddr::V4(address) => {
                self.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                size_of::<libc::sockaddr_in>() as libc::socklen_t
            }
            SocketAddr::V6(address) => {
                self.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                NAME_BYTES
            }
        }
    }

    /// The address the kernel wrote; `None` if it is of no Internet family.
    fn decode(&self) -> Option<SocketAddr> {
        // SAFETY: every variant starts with the family, every byte of the union is initialised (EMPTY), and all of its
        // fields are plain integers.
        match i32::from(unsafe { self.family }) {
            libc::AF_INET => {
                // SAFETY: as above.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { self.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id)))
            }
            _ => None,
        }
    }
}

/// Room for the two control messages that are asked for, a u32 and a time, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

impl Control {
    const EMPTY: Control = Control([0; 64]);
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: all zero bytes are a valid `mmsghdr`: null pointers and lengths of 0.
    unsafe { mem::zeroed() }
}

/// Where the drop counter stands among the numbers of SO_MEMINFO, and how many are asked for.
const SK_MEMINFO_VARS: usize = SK_MEMINFO_DROPS + 1;
const SK_MEMINFO_DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

/// Bytes of the larger of the two addresses.
const NAME_BYTES: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;

/// Larger than any UDP datagram (65,527 bytes over IPv6), so that none is ever cut.
const SLOT_BYTES: usize = 64 * 1024;

const _: () = assert!(size_of::<Name>() == NAME_BYTES as usize);
// SAFETY: CMSG_SPACE only computes.
const _: () = assert!(unsafe { libc::CMSG_SPACE(size_of::<u32>() as u32) } as usize <= size_of::<Control>());

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn addresses_keep_all_their_parts() {
        for text in ["192.0.2.7:7500", "[fe80::1%3]:9", "[2001:db8::2]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut name = Name::EMPTY;
            name.encode(address);
            assert_eq!(name.decode(), Some(address));
        }
        assert_eq!(Name::EMPTY.decode(), None);
    }

    #[test]
    fn a_batch_arrives_in_order_and_whole() {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let group = to.local_addr().unwrap();
        let sizes = [0, 1, 1400, SLOT_BYTES / 2 - 1, SLOT_BYTES / 2, 65_507, 3];
        let batch: Vec<Outgoing> = (0u8..)
            .zip(sizes)
            .map(|(index, bytes)| Outgoing { to: None, bytes: Bytes::from(vec![index; bytes]) })
            .collect();
        assert_eq!(send(from.as_fd(), group, &batch).unwrap(), batch.len());
        let mut recv_batch = RecvBatch::new(3);
        let mut overruns = 0;
        let mut received = Vec::new();
        for counts in [(3, true), (3, true), (1, false)] {
            let count = recv_batch.recv(to.as_fd(), &mut overruns).unwrap();
            assert_eq!((count, recv_batch.is_full()), counts);
            received.extend(recv_batch.drain());
        }
        for (received, sent) in received.iter().zip(&batch) {
            assert_eq!(received.bytes, sent.bytes);
            assert_eq!((received.from, received.overrun), (from.local_addr().unwrap(), 0));
        }
        assert_eq!(recv_batch.recv(to.as_fd(), &mut overruns).unwrap(), 0);
    }

    #[test]
    fn the_drop_counter_may_wrap_and_old_news_is_none() {
        let mut known = u32::MAX - 1;
        assert_eq!(rise(&mut known, 3), 5);
        assert_eq!(rise(&mut known, 3), 0);
        assert_eq!(rise(&mut known, 1), 0);
        assert_eq!(rise(&mut known, 4), 1);
    }

    #[test]
    fn an_error_concerns_the_first_datagram() {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let group = from.local_addr().unwrap();
        let fine = Outgoing { to: None, bytes: Bytes::from_static(b"fine") };
        let large = Outgoing { to: None, bytes: Bytes::from(vec![0; 65_508]) };
        assert_eq!(send(from.as_fd(), group, &[fine, large.clone()]).unwrap(), 1);
        assert_eq!(send(from.as_fd(), group, &[large]).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!(send(from.as_fd(), group, &[]).unwrap(), 0);
    }
}
