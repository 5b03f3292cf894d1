//! Batched datagram I/O: one `recvmmsg` or `sendmmsg` call moves many datagrams. With UDP_SEGMENT ("GSO"), datagrams of
//! one size to one receiver leave as one buffer, which the kernel or the network card divides. With UDP_GRO, the kernel
//! hands over such a buffer undivided.
//!
//! A received datagram must not pin much more memory than it needs, because a message may be held for seconds. The
//! kernel writes into a slot of 64 KiB. Datagrams of at least a quarter of it stay there if the slot is half full. All
//! others are copied into buffers of their own size. A slot is reused once nothing refers to it.

mod raw_address;
mod segment_peak;

use self::raw_address::{NAME_BYTES, RawAddress};
use self::segment_peak::SegmentPeak;
use crate::time::{ClockReading, Instant, WallTime};
use bytes::{Bytes, BytesMut};
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

/// Maximum number of buffers in one system call. Each holds one datagram, or up to [`SEGMENTS_MAX`] of them.
pub const BATCH_BUFFERS_MAX: usize = 64;

/// Maximum number of datagrams in one buffer. Older kernels accept no more (`UDP_MAX_SEGMENTS`).
pub const SEGMENTS_MAX: usize = 64;

/// Maximum bytes of datagrams in one buffer: the most that one UDP datagram over IPv4 can have.
const SEGMENTS_BYTES_MAX: usize = 65_507;

/// Maximum number of datagrams in one sending system call.
const BATCH_SEGMENTS_MAX: usize = 1024;

/// Number of slots for each buffer of a receiving system call: datagrams of the call before may still be in use.
const SLOTS_PER_BUFFER: usize = 2;

/// Minimum number of buffers that one receiving system call asks for.
const BUFFERS_MIN: usize = 8;

/// A datagram as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Source address that the kernel reports.
    pub from: SocketAddr,
    /// The UDP payload.
    pub bytes: Bytes,
    /// Number of drops by the kernel at this socket, its buffer being full, between the previous arrival and this
    /// datagram. Several datagrams that arrived as one buffer count once.
    pub overrun: u32,
    /// Time at which the kernel received it, if the kernel reports it.
    pub arrived: Option<WallTime>,
    /// True if it arrived at the socket for unicast copies of multicasts.
    pub is_copy: bool,
}

impl ReceivedDatagram {
    /// Converts the kernel's time of arrival to the clock of instants. Returns `None` if the kernel reports none.
    pub fn arrival(&self, now: ClockReading) -> Option<Instant> {
        let socket_dwell = now.wall.as_nanos().saturating_sub(self.arrived?.as_nanos());
        Some(now.instant - Duration::from_nanos(socket_dwell))
    }
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingDatagram {
    /// Destination; `None` for the group.
    pub to: Option<SocketAddr>,
    /// The UDP payload, at most 65,507 bytes.
    pub bytes: Bytes,
}

/// Datagrams of the discarded sender that arrived in the last calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardedDatagrams {
    /// Number of datagrams.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of drops by the kernel that no received datagram reports: they preceded a discarded one.
    pub overrun: u32,
}

/// Reusable buffers for one receiving system call.
#[derive(Debug)]
pub struct RecvBatch {
    slots: Vec<BytesMut>,
    received: Vec<ReceivedDatagram>,
    /// Sender whose datagrams are counted, and never copied out of their slots.
    discarded_sender: Option<SocketAddr>,
    discarded: DiscardedDatagrams,
    /// Number of buffers that the next call asks for: twice the number filled last, since each requested buffer has a
    /// cost.
    wanted: usize,
    is_full: bool,
    segments: SegmentPeak,
}

impl RecvBatch {
    /// Makes room for `buffers` buffers in one call: at least 1, at most [`BATCH_BUFFERS_MAX`]. Each of them has two
    /// slots of 64 KiB of address space; memory is used as far as datagrams fill it.
    pub fn new(buffers: usize) -> RecvBatch {
        let buffers = buffers.clamp(1, BATCH_BUFFERS_MAX);
        let slots = (0..SLOTS_PER_BUFFER * buffers).map(|_| BytesMut::with_capacity(SLOT_BYTES)).collect();
        RecvBatch {
            slots,
            received: Vec::with_capacity(buffers),
            discarded_sender: None,
            discarded: DiscardedDatagrams::default(),
            wanted: buffers,
            is_full: false,
            segments: SegmentPeak::NONE,
        }
    }

    /// Discards the datagrams of one sender from the next call on. A peer discards its own multicasts, which the kernel
    /// returns to it.
    pub fn discard_sender(&mut self, sender: SocketAddr) {
        self.discarded_sender = Some(sender);
    }

    /// Takes the counts of discarded datagrams.
    pub fn take_discarded(&mut self) -> DiscardedDatagrams {
        mem::take(&mut self.discarded)
    }

    /// Returns whether the last call filled all buffers that it asked for. More datagrams may then be waiting.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Counts the batch as full if a call before the last one filled all its buffers: more datagrams may be waiting
    /// at the socket of that call.
    pub(super) fn keep_full(&mut self, was_full: bool) {
        self.is_full |= was_full;
    }

    /// Marks the last `count` datagrams as received at the socket for unicast copies.
    pub(super) fn mark_copies(&mut self, count: usize) {
        self.received.iter_mut().rev().take(count).for_each(|datagram| datagram.is_copy = true);
    }

    /// Returns the maximum number of datagrams that recently arrived as one buffer, without discarded ones; at least 1.
    pub(super) fn segments_seen(&self) -> u64 {
        self.segments.peak()
    }

    /// Takes the datagrams of the last call, in order of arrival.
    pub fn drain(&mut self) -> impl Iterator<Item = ReceivedDatagram> + '_ {
        self.received.drain(..)
    }

    /// Makes the first `count` slots free. A slot to which datagrams still refer changes places with a free one, or is
    /// replaced if there is none.
    fn reclaim_slots(&mut self, count: usize) {
        let mut next = count;
        for index in 0..count {
            if self.slots[index].try_reclaim(SLOT_BYTES) {
                continue;
            }
            while next < self.slots.len() && !self.slots[next].try_reclaim(SLOT_BYTES) {
                next += 1;
            }
            if next < self.slots.len() {
                self.slots.swap(index, next);
                next += 1;
            } else {
                self.slots[index] = BytesMut::with_capacity(SLOT_BYTES);
            }
        }
    }

    /// Receives available datagrams without waiting; undrained ones stay in front. Returns the number of datagrams
    /// received, without discarded ones; 0 if there is none. `overruns` is the last known value of the socket's drop
    /// counter.
    pub(super) fn recv(&mut self, socket: BorrowedFd<'_>, overruns: &mut u32) -> io::Result<usize> {
        let count = self.wanted;
        let before = self.received.len();
        let mut names = [const { MaybeUninit::<RawAddress>::uninit() }; BATCH_BUFFERS_MAX];
        let mut controls = [const { MaybeUninit::<ControlBuffer>::uninit() }; BATCH_BUFFERS_MAX];
        let mut slices = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_BUFFERS_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_BUFFERS_MAX];
        self.reclaim_slots(count);
        for (index, slot) in self.slots[..count].iter_mut().enumerate() {
            let room = slot.spare_capacity_mut();
            let slice = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let mut header = empty_header();
            header.msg_hdr.msg_name = ptr::from_mut(names[index].write(RawAddress::EMPTY)).cast();
            header.msg_hdr.msg_namelen = NAME_BYTES;
            header.msg_hdr.msg_iov = slices[index].write(slice);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = ptr::from_mut(controls[index].write(ControlBuffer::EMPTY)).cast();
            header.msg_hdr.msg_controllen = size_of::<ControlBuffer>();
            headers[index].write(header);
        }
        let received_count = retry_interrupted(|| {
            // SAFETY: the first `count` headers were initialised above. Each points to its own name, control buffer and
            // slice; the slice points to the spare capacity of its own slot. All of them outlive the call.
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
        for index in 0..received_count {
            // SAFETY: initialised above for every slot asked for, and `received_count` is at most their number.
            let (header, name) = unsafe { (headers[index].assume_init_ref(), names[index].assume_init_ref()) };
            let ancillary = AncillaryData::from_header(&header.msg_hdr);
            let overrun = ancillary.drops.map_or(0, |drops| counter_increase(overruns, drops));
            let slot = &mut self.slots[index];
            // SAFETY: the kernel wrote `msg_len` bytes at the start of this slot's spare capacity. It never reports
            // more than `iov_len` without MSG_TRUNC among the flags of the call.
            unsafe { slot.set_len(header.msg_len as usize) };
            let from = name.decode().expect("the sender of a UDP datagram has an Internet address");
            let segment = ancillary.segment.filter(|bytes| (1..slot.len()).contains(bytes));
            let datagrams = segment.map_or(1, |bytes| slot.len().div_ceil(bytes)) as u64;
            let unreported = &mut self.discarded.overrun;
            *unreported += overrun;
            if self.discarded_sender == Some(from) {
                self.discarded.datagrams += datagrams;
                self.discarded.bytes += slot.len() as u64;
                slot.clear();
                continue;
            }
            self.segments.on_buffer(datagrams);
            let arrived = ancillary.arrived;
            let push = |bytes| {
                let overrun = mem::take(unreported);
                self.received.push(ReceivedDatagram { from, bytes, overrun, arrived, is_copy: false });
            };
            take_datagrams(slot, segment.unwrap_or(slot.len()), push);
        }
        self.is_full = received_count == count;
        let most = self.slots.len() / SLOTS_PER_BUFFER;
        self.wanted = if self.is_full { most } else { (2 * received_count).clamp(BUFFERS_MIN.min(most), most) };
        Ok(self.received.len() - before)
    }
}

/// Returns the number of drops at a socket that no received datagram has reported yet, and updates the known counter.
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
    Ok(counter_increase(overruns, memory[SK_MEMINFO_DROPS]))
}

/// Returns the increase of the wrapping counter. A datagram received after the counter was read may carry an older
/// value, which counts as no increase.
fn counter_increase(known: &mut u32, drops: u32) -> u32 {
    let increase = drops.wrapping_sub(*known);
    if u32::MAX / 2 < increase {
        return 0;
    }
    *known = drops;
    increase
}

/// Sends the first datagrams of `batch`, as far as the send buffer takes them. Returns their number; 0 if the buffer is
/// full. An error concerns the first datagram. `segments` says whether datagrams may leave as one buffer. It is set to
/// false if that turns out not to work.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    group: SocketAddr,
    batch: &[OutgoingDatagram],
    segments: &mut bool,
) -> io::Result<usize> {
    match send_buffers(socket, group, batch, *segments) {
        Err(error) if *segments && 1 < segment_count(batch) && is_segmentation_error(&error) => {
            let sent = send_buffers(socket, group, batch, false)?;
            if 0 < sent {
                tracing::info!(%error, "datagrams leave one by one: the kernel does not divide buffers on this way");
                *segments = false;
            }
            Ok(sent)
        }
        outcome => outcome,
    }
}

/// Returns whether an error can mean that the kernel does not divide buffers on this path. The causes are cards that
/// cannot add checksums (EIO), interfaces whose MTU is smaller than the datagrams (EINVAL, EMSGSIZE), and kernels
/// without support (EOPNOTSUPP). An unreachable network or a firewall is no such cause.
fn is_segmentation_error(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE | libc::EOPNOTSUPP))
}

/// Returns the maximum number of datagrams of `bytes` bytes in one buffer.
fn segments_in_buffer(bytes: usize) -> usize {
    SEGMENTS_BYTES_MAX.checked_div(bytes).map_or(1, |count| count.clamp(1, SEGMENTS_MAX))
}

/// Returns the number of datagrams at the start of `batch` that can leave as one buffer. These are datagrams of one
/// size to one receiver, and one shorter datagram behind them.
fn segment_count(batch: &[OutgoingDatagram]) -> usize {
    let Some(first) = batch.first() else { return 0 };
    let size = first.bytes.len();
    let most = segments_in_buffer(size);
    let fits = |outgoing: &&OutgoingDatagram| outgoing.to == first.to && outgoing.bytes.len() == size;
    let equal = batch.iter().take(most).take_while(fits).count();
    let is_end = |last: &OutgoingDatagram| last.to == first.to && (1..size).contains(&last.bytes.len());
    equal + usize::from(equal < most && batch.get(equal).is_some_and(is_end))
}

fn send_buffers(
    socket: BorrowedFd<'_>,
    group: SocketAddr,
    batch: &[OutgoingDatagram],
    divides: bool,
) -> io::Result<usize> {
    let mut names = [const { MaybeUninit::<RawAddress>::uninit() }; BATCH_BUFFERS_MAX];
    let mut slices = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH_SEGMENTS_MAX];
    let mut controls = [const { MaybeUninit::<ControlBuffer>::uninit() }; BATCH_BUFFERS_MAX];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_BUFFERS_MAX];
    let mut lengths = [0u8; BATCH_BUFFERS_MAX];
    let (mut buffers, mut datagrams) = (0, 0);
    while buffers < BATCH_BUFFERS_MAX && datagrams < batch.len() {
        let rest = &batch[datagrams..];
        let count = if divides { segment_count(rest) } else { 1 };
        if BATCH_SEGMENTS_MAX < datagrams + count {
            break;
        }
        let slice_of = |outgoing: &OutgoingDatagram| libc::iovec {
            iov_base: outgoing.bytes.as_ptr().cast_mut().cast(),
            iov_len: outgoing.bytes.len(),
        };
        let datagram_slices = &mut slices[datagrams..datagrams + count];
        for (slice, outgoing) in datagram_slices.iter_mut().zip(rest) {
            slice.write(slice_of(outgoing));
        }
        let name = names[buffers].write(RawAddress::EMPTY);
        let mut header = empty_header();
        header.msg_hdr.msg_namelen = name.encode(rest[0].to.unwrap_or(group));
        header.msg_hdr.msg_name = ptr::from_mut(name).cast();
        header.msg_hdr.msg_iov = datagram_slices.as_mut_ptr().cast();
        header.msg_hdr.msg_iovlen = count;
        if 1 < count {
            let control = controls[buffers].write(ControlBuffer::EMPTY);
            header.msg_hdr.msg_control = ptr::from_mut(control).cast();
            header.msg_hdr.msg_controllen = control.request_segmentation(rest[0].bytes.len());
        }
        headers[buffers].write(header);
        lengths[buffers] = u8::try_from(count).expect("at most 64");
        (buffers, datagrams) = (buffers + 1, datagrams + count);
    }
    let sent = retry_interrupted(|| {
        // SAFETY: the first `buffers` headers were initialised above. Each points to its own name, control message and
        // slices. The slices point to the bytes of its datagrams, which the kernel only reads. All of them outlive the
        // call.
        unsafe {
            libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), buffers as libc::c_uint, libc::MSG_DONTWAIT)
        }
    })?;
    Ok(lengths[..sent].iter().map(|count| usize::from(*count)).sum())
}

/// Returns the count of a system call: repeats the call after a signal, and returns 0 if it would block.
fn retry_interrupted(mut call: impl FnMut() -> libc::c_int) -> io::Result<usize> {
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

/// Takes the datagrams of `segment` bytes that were received into `slot`, and leaves it without content. They refer to
/// the slot if that pins at most four times their memory.
fn take_datagrams(slot: &mut BytesMut, segment: usize, mut take: impl FnMut(Bytes)) {
    if SLOT_BYTES / 4 <= segment && SLOT_BYTES / 2 <= slot.len() {
        let mut datagrams = slot.split().freeze();
        while segment < datagrams.len() {
            take(datagrams.split_to(segment));
        }
        // The last one may have any size.
        let is_short = datagrams.len() < SLOT_BYTES / 4;
        take(if is_short { Bytes::copy_from_slice(&datagrams) } else { datagrams });
        return;
    }
    match slot.len() {
        // A datagram may be empty.
        0 => take(Bytes::new()),
        _ => slot.chunks(segment).for_each(|datagram| take(Bytes::copy_from_slice(datagram))),
    }
    slot.clear();
}

/// Ancillary data that the kernel delivers with a datagram.
#[derive(Clone, Copy, Debug, Default)]
struct AncillaryData {
    /// Counter of drops at the socket before this datagram; absent before the first drop.
    drops: Option<u32>,
    /// Arrival time.
    arrived: Option<WallTime>,
    /// Size in bytes of each datagram in the buffer but the last, if the buffer holds several.
    segment: Option<usize>,
}

impl AncillaryData {
    fn from_header(header: &libc::msghdr) -> AncillaryData {
        let mut ancillary = AncillaryData::default();
        // SAFETY: the kernel has filled `msg_control` with `msg_controllen` bytes of well-formed control messages.
        let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !control.is_null() {
            // SAFETY: the macros return either null or the address of a whole control message inside the buffer.
            let (level, kind, data) =
                unsafe { ((*control).cmsg_level, (*control).cmsg_type, libc::CMSG_DATA(control)) };
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    // SAFETY: the data of this kind is one u32, which may be unaligned.
                    ancillary.drops = Some(unsafe { ptr::read_unaligned(data.cast::<u32>()) });
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    // SAFETY: the data of this kind is one timespec, which may be unaligned.
                    let time = unsafe { ptr::read_unaligned(data.cast::<libc::timespec>()) };
                    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
                    ancillary.arrived = u64::try_from(nanos).ok().map(WallTime::from_nanos);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    // SAFETY: the data of this kind is one int, which may be unaligned.
                    let bytes = unsafe { ptr::read_unaligned(data.cast::<libc::c_int>()) };
                    ancillary.segment = usize::try_from(bytes).ok();
                }
                _ => {}
            }
            // SAFETY: as above.
            control = unsafe { libc::CMSG_NXTHDR(header, control) };
        }
        ancillary
    }
}

/// Buffer for the requested control messages: a u32, a time and an int, aligned as the kernel requires.
#[repr(C, align(8))]
struct ControlBuffer([u8; 96]);

impl ControlBuffer {
    const EMPTY: ControlBuffer = ControlBuffer([0; 96]);

    /// Asks the kernel to divide the buffer into datagrams of `bytes` each. Returns the length of the control message.
    fn request_segmentation(&mut self, bytes: usize) -> usize {
        let size = u16::try_from(bytes).expect("UDP datagrams have less than 64 KiB");
        // SAFETY: the buffer is aligned for a control message and, as asserted below, long enough for one of a u16.
        unsafe {
            let header = self.0.as_mut_ptr().cast::<libc::cmsghdr>();
            (*header).cmsg_level = libc::SOL_UDP;
            (*header).cmsg_type = libc::UDP_SEGMENT;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
            ptr::write_unaligned(libc::CMSG_DATA(header).cast::<u16>(), size);
            libc::CMSG_SPACE(size_of::<u16>() as u32) as usize
        }
    }
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: all zero bytes are a valid `mmsghdr`: null pointers and lengths of 0.
    unsafe { mem::zeroed() }
}

/// Number of SO_MEMINFO values requested, and the index of the drop counter among them.
const SK_MEMINFO_VARS: usize = SK_MEMINFO_DROPS + 1;
const SK_MEMINFO_DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

/// Size of a slot in bytes: larger than any UDP datagram (65,527 bytes over IPv6), so that none is truncated.
const SLOT_BYTES: usize = 64 * 1024;

// SAFETY: CMSG_SPACE only computes.
const _: () = assert!(
    unsafe { 2 * libc::CMSG_SPACE(size_of::<u32>() as u32) + libc::CMSG_SPACE(size_of::<libc::timespec>() as u32) }
        as usize
        <= size_of::<ControlBuffer>()
);

#[cfg(test)]
mod tests {
    use super::segment_peak::SPAN_BUFFERS;
    use super::*;
    use nix::sys::socket::{setsockopt, sockopt};
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn only_segmentation_errors_disable_segmentation() {
        let errors = [libc::EINVAL, libc::EIO, libc::EMSGSIZE, libc::EOPNOTSUPP, libc::ENETUNREACH, libc::EPERM];
        let verdicts = errors.map(|error| is_segmentation_error(&io::Error::from_raw_os_error(error)));
        assert_eq!(verdicts, [true, true, true, true, false, false]);
    }

    #[test]
    fn batch_arrives_complete_and_in_order() {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let group = to.local_addr().unwrap();
        let sizes = [0, 1, 1400, SLOT_BYTES / 2 - 1, SLOT_BYTES / 2, 65_507, 3];
        let batch: Vec<OutgoingDatagram> = (0u8..)
            .zip(sizes)
            .map(|(index, bytes)| OutgoingDatagram { to: None, bytes: Bytes::from(vec![index; bytes]) })
            .collect();
        assert_eq!(send(from.as_fd(), group, &batch, &mut false).unwrap(), batch.len());
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
    fn large_datagrams_keep_their_slot_while_in_use() {
        let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        setsockopt(&to, sockopt::UdpGroSegment, &true).unwrap();
        let group = to.local_addr().unwrap();
        let (mut recv_batch, mut held, mut places) = (RecvBatch::new(1), Vec::new(), Vec::new());
        for index in 0..6u8 {
            let batch = [0, 1].map(|part| OutgoingDatagram { to: None, bytes: vec![2 * index + part; 32_600].into() });
            assert_eq!(send(from.as_fd(), group, &batch, &mut true).unwrap(), 2);
            assert_eq!(recv_batch.recv(to.as_fd(), &mut 0).unwrap(), 2);
            let received: Vec<Bytes> = recv_batch.drain().map(|received| received.bytes).collect();
            assert_eq!(received, batch.map(|sent| sent.bytes));
            assert_eq!(received[0].as_ptr().wrapping_add(32_600), received[1].as_ptr(), "both are in the slot");
            places.push(received[0].as_ptr());
            // Datagrams of the first buffers stay in use.
            held.extend(received.into_iter().take(if index < 3 { 1 } else { 0 }));
        }
        assert_eq!(held, [0, 2, 4].map(|content| vec![content; 32_600]), "no slot in use is written to");
        assert!(places[3] == places[4] && places[4] == places[5] && !places[..3].contains(&places[5]));
    }

    #[test]
    fn short_last_datagram_leaves_the_slot() {
        let take = |bytes: usize| {
            let mut slot = BytesMut::from(&vec![7; bytes][..]);
            let start = slot.as_ptr();
            let mut taken: Vec<Bytes> = Vec::new();
            take_datagrams(&mut slot, 32_600, |datagram| taken.push(datagram));
            assert_eq!(taken.concat().len(), bytes);
            assert_eq!(taken[0].as_ptr(), start);
            taken[1].as_ptr() == start.wrapping_add(32_600)
        };
        assert_eq!([200, SLOT_BYTES / 4 - 1, SLOT_BYTES / 4].map(|last| take(32_600 + last)), [false, false, true]);
    }

    #[test]
    fn datagrams_of_the_discarded_sender_are_only_counted() {
        let [own, other, to] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        setsockopt(&to, sockopt::UdpGroSegment, &true).unwrap();
        let group = to.local_addr().unwrap();
        let batch = [1400, 1400, 1400, 77].map(|bytes| outgoing(None, bytes));
        assert_eq!(send(own.as_fd(), group, &batch, &mut true).unwrap(), batch.len());
        assert_eq!(send(other.as_fd(), group, &batch[3..], &mut true).unwrap(), 1);
        let mut recv_batch = RecvBatch::new(BATCH_BUFFERS_MAX);
        recv_batch.discard_sender(own.local_addr().unwrap());
        assert_eq!(recv_batch.recv(to.as_fd(), &mut 0).unwrap(), 1);
        let from: Vec<SocketAddr> = recv_batch.drain().map(|received| received.from).collect();
        assert_eq!(from, [other.local_addr().unwrap()]);
        let counts = DiscardedDatagrams { datagrams: 4, bytes: 3 * 1400 + 77, overrun: 0 };
        assert_eq!((recv_batch.take_discarded(), recv_batch.take_discarded()), (counts, DiscardedDatagrams::default()));
    }

    #[test]
    fn discarded_buffers_do_not_lower_the_peak() {
        let [own, other, to] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        setsockopt(&to, sockopt::UdpGroSegment, &true).unwrap();
        let group = to.local_addr().unwrap();
        let mut recv_batch = RecvBatch::new(BATCH_BUFFERS_MAX);
        recv_batch.discard_sender(own.local_addr().unwrap());
        let batch = [100, 100, 100].map(|bytes| outgoing(None, bytes));
        assert_eq!(send(other.as_fd(), group, &batch, &mut true).unwrap(), batch.len());
        assert_eq!(recv_batch.recv(to.as_fd(), &mut 0).unwrap(), 3);
        for _ in 0..3 * SPAN_BUFFERS {
            own.send_to(&[7; 36], group).unwrap();
            assert_eq!(recv_batch.recv(to.as_fd(), &mut 0).unwrap(), 0);
        }
        assert_eq!(recv_batch.take_discarded().datagrams, u64::from(3 * SPAN_BUFFERS));
        assert_eq!(recv_batch.segments_seen(), 3);
    }

    #[test]
    fn kernel_drops_before_discarded_datagrams_are_reported() {
        let [own, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        setsockopt(&to, sockopt::RcvBuf, &4096).unwrap();
        setsockopt(&to, sockopt::RxqOvfl, &1).unwrap();
        let group = to.local_addr().unwrap();
        let (mut recv_batch, mut overruns) = (RecvBatch::new(BATCH_BUFFERS_MAX), 0);
        recv_batch.discard_sender(own.local_addr().unwrap());
        let mut counts = DiscardedDatagrams::default();
        for sent in [100, 1] {
            (0..sent).for_each(|_| assert_eq!(own.send_to(&[7; 900], group).unwrap(), 900));
            assert_eq!(recv_batch.recv(to.as_fd(), &mut overruns).unwrap(), 0);
            let taken = recv_batch.take_discarded();
            counts.datagrams += taken.datagrams;
            counts.overrun += taken.overrun;
        }
        assert!(0 < counts.overrun, "{counts:?}");
        assert_eq!(counts.datagrams + u64::from(counts.overrun), 101);
    }

    fn outgoing(to: Option<u16>, bytes: usize) -> OutgoingDatagram {
        OutgoingDatagram {
            to: to.map(|port| SocketAddr::from(([127, 0, 0, 1], port))),
            bytes: Bytes::from(vec![7; bytes]),
        }
    }

    #[test]
    fn equal_datagrams_and_a_shorter_last_leave_together() {
        let check = |sizes: &[usize], expected: usize| {
            let batch: Vec<OutgoingDatagram> = sizes.iter().map(|bytes| outgoing(None, *bytes)).collect();
            assert_eq!(segment_count(&batch), expected, "{sizes:?}");
        };
        check(&[], 0);
        check(&[900], 1);
        check(&[900, 900, 900], 3);
        check(&[900, 900, 100, 900], 3);
        check(&[900, 900, 901], 2);
        check(&[900, 900, 0], 2);
        check(&[0, 0], 1);
        check(&[65_507, 65_507], 1);
        check(&[32_000, 32_000, 1000], 2);
        check(&[600; 100], SEGMENTS_MAX);
        check(&[1400; 100], 46);
        assert_eq!(segment_count(&[outgoing(None, 900), outgoing(Some(9), 900)]), 1);
        assert_eq!(segment_count(&[outgoing(Some(9), 900), outgoing(Some(9), 900), outgoing(Some(8), 1)]), 2);
    }

    #[test]
    fn segmented_buffer_arrives_as_its_datagrams() {
        for coalesces in [false, true] {
            let from = UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = UdpSocket::bind("127.0.0.1:0").unwrap();
            if coalesces {
                setsockopt(&to, sockopt::UdpGroSegment, &true).unwrap();
            }
            let group = to.local_addr().unwrap();
            let sizes = [1400; 60].into_iter().chain([77, 1400, 1400, 3, 0, 5000, 5000]);
            let batch: Vec<OutgoingDatagram> = (0u8..)
                .zip(sizes)
                .map(|(index, bytes)| OutgoingDatagram { to: None, bytes: Bytes::from(vec![index; bytes]) })
                .collect();
            let mut segments = true;
            assert_eq!(send(from.as_fd(), group, &batch, &mut segments).unwrap(), batch.len());
            assert!(segments, "loopback accepts segmented buffers");
            let (mut recv_batch, mut overruns, mut received) = (RecvBatch::new(BATCH_BUFFERS_MAX), 0, Vec::new());
            while recv_batch.recv(to.as_fd(), &mut overruns).unwrap() != 0 {
                received.extend(recv_batch.drain().map(|received| received.bytes));
            }
            let sent: Vec<Bytes> = batch.into_iter().map(|outgoing| outgoing.bytes).collect();
            assert_eq!(received, sent, "coalesced: {coalesces}");
        }
    }

    #[test]
    fn datagrams_leave_singly_where_segmentation_fails() {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        // The kernel refuses to segment datagrams without checksums.
        let on: libc::c_int = 1;
        // SAFETY: SO_NO_CHECK reads one int, which pointer and length describe and which outlives the call.
        let answer = unsafe {
            libc::setsockopt(
                from.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        assert_eq!(answer, 0);
        let batch: Vec<OutgoingDatagram> = (0..3).map(|_| outgoing(None, 900)).collect();
        let mut segments = true;
        assert_eq!(send(from.as_fd(), to.local_addr().unwrap(), &batch, &mut segments).unwrap(), 3);
        assert!(!segments, "not tried again");
    }

    #[test]
    fn drop_counter_wraps_and_older_values_are_ignored() {
        let mut known = u32::MAX - 1;
        assert_eq!(counter_increase(&mut known, 3), 5);
        assert_eq!(counter_increase(&mut known, 3), 0);
        assert_eq!(counter_increase(&mut known, 1), 0);
        assert_eq!(counter_increase(&mut known, 4), 1);
    }

    #[test]
    fn send_error_concerns_the_first_datagram() {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let group = from.local_addr().unwrap();
        let fine = OutgoingDatagram { to: None, bytes: Bytes::from_static(b"fine") };
        let large = OutgoingDatagram { to: None, bytes: Bytes::from(vec![0; 65_508]) };
        assert_eq!(send(from.as_fd(), group, &[fine, large.clone()], &mut true).unwrap(), 1);
        assert_eq!(send(from.as_fd(), group, &[large], &mut true).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!(send(from.as_fd(), group, &[], &mut true).unwrap(), 0);
    }
}
