//! Tests of both ends of a ring in one process, as two processes use it.

use super::segment::{RingIndex, RingWord};
use super::*;
use crate::rng::Rng;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const RING_BYTES: usize = 4096;

/// The ends of both sides of a segment, and a further mapping for the view of the other process.
struct Ends {
    peer: (RingReader, RingWriter),
    client: (RingReader, RingWriter),
    view: Segment,
}

fn ends() -> Ends {
    let (segment, memory) = Segment::create(RING_BYTES).unwrap();
    let open = || Segment::open(memory.as_fd(), RING_BYTES).unwrap();
    Ends { client: rings(open(), RingSide::Client), view: open(), peer: rings(segment, RingSide::Peer) }
}

fn read(reader: &mut RingReader, bytes_max: usize) -> Result<Vec<u8>, RingFault> {
    let mut out = BytesMut::new();
    reader.read(bytes_max, &mut out).map(|_| out.to_vec())
}

#[test]
fn bytes_arrive_in_order_at_any_schedule() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let Ends { mut peer, mut client, .. } = ends();
        let (mut twin, mut next): (VecDeque<u8>, u8) = (VecDeque::new(), 0);
        for _ in 0..2000 {
            if rng.chance(0.5) {
                let bytes: Vec<u8> = (0..rng.below(3000)).map(|n| next.wrapping_add(n as u8)).collect();
                let (first, second) = bytes.split_at(bytes.len() / 3);
                match client.1.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
                    Ok(count) => {
                        assert_eq!(count, bytes.len().min(RING_BYTES - twin.len()), "seed {seed}");
                        twin.extend(&bytes[..count]);
                        next = next.wrapping_add(count as u8);
                    }
                    Err(error) => {
                        assert_eq!((error.kind(), twin.len()), (ErrorKind::WouldBlock, RING_BYTES), "seed {seed}");
                    }
                }
            } else {
                let bytes_max = usize::try_from(rng.below(3000)).unwrap();
                assert_eq!(peer.0.has_bytes(), !twin.is_empty());
                let expected: Vec<u8> = twin.drain(..bytes_max.min(twin.len())).collect();
                assert_eq!(read(&mut peer.0, bytes_max), Ok(expected), "seed {seed}");
            }
            assert_eq!(client.1.unread(), Ok(twin.len() as u64));
        }
        assert!(!client.0.has_bytes(), "the other ring is empty");
    }
}

#[test]
fn impossible_tail_is_refused() {
    let sizes = RING_BYTES as u64;
    for (lie, what) in [(sizes + 101, "ahead"), (99, "back before a byte read"), (149, "back"), (u64::MAX, "far")] {
        let Ends { mut peer, mut client, view } = ends();
        client.1.write_all(&[7; 150]).unwrap();
        assert_eq!(read(&mut peer.0, 100), Ok(vec![7; 100]));
        view.word(RingIndex::ToPeer, RingWord::Tail).store(lie, std::sync::atomic::Ordering::SeqCst);
        assert!(peer.0.has_bytes(), "{what}");
        assert_eq!(read(&mut peer.0, 100), Err(RingFault), "{what}");
        client.1.write_all(b"x").unwrap();
        assert_eq!(read(&mut peer.0, 100), Ok([vec![7; 50], b"x".to_vec()].concat()), "a refused look changes nothing");
    }
}

#[test]
fn impossible_head_is_refused() {
    for (lie, what) in [(1 << 20, "ahead of the writer"), (99, "back"), (u64::MAX, "far")] {
        let Ends { mut peer, mut client, view } = ends();
        client.1.write_all(&[7; 150]).unwrap();
        read(&mut peer.0, 100).unwrap();
        assert_eq!(client.1.unread(), Ok(50));
        view.word(RingIndex::ToPeer, RingWord::Head).store(lie, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(client.1.unread(), Err(RingFault), "{what}");
        let error = client.1.write(&[0; RING_BYTES]).and_then(|_| client.1.write(&[0; RING_BYTES])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{what}");
    }
}

#[test]
fn waiting_writer_gets_one_doorbell() {
    let Ends { mut peer, mut client, .. } = ends();
    client.1.write_all(&[7; RING_BYTES]).unwrap();
    assert!(!peer.0.take_doorbell_request(), "the writer does not wait yet");
    assert_eq!(client.1.write(b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
    read(&mut peer.0, RING_BYTES / 2 - 1).unwrap();
    assert!(!peer.0.take_doorbell_request(), "less than half of the ring is free");
    read(&mut peer.0, 1).unwrap();
    assert_eq!((peer.0.take_doorbell_request(), peer.0.take_doorbell_request()), (true, false));
    client.1.on_doorbell();
    assert_eq!(client.1.write(&[8; RING_BYTES]).unwrap(), RING_BYTES / 2);
    assert_eq!(client.1.write(b"x").unwrap_err().kind(), ErrorKind::WouldBlock, "it waits again");
    read(&mut peer.0, RING_BYTES).unwrap();
    assert!(peer.0.take_doorbell_request());
}

#[test]
fn sleeping_reader_gets_one_doorbell() {
    let Ends { mut peer, mut client, .. } = ends();
    client.1.write_all(b"x").unwrap();
    assert!(!client.1.take_doorbell_request(), "the reader is awake");
    peer.0.arm();
    assert!(peer.0.has_bytes(), "the last look finds what came before");
    read(&mut peer.0, 10).unwrap();
    client.1.write_all(b"y").unwrap();
    assert!(!client.1.take_doorbell_request(), "reading has withdrawn the request");
    read(&mut peer.0, 10).unwrap();
    peer.0.arm();
    client.1.write_all(b"z").unwrap();
    assert_eq!((client.1.take_doorbell_request(), client.1.take_doorbell_request()), (true, false));
    // A doorbell may come for bytes that were read already. The request must then be made again.
    peer.0.on_doorbell();
    read(&mut peer.0, 10).unwrap();
    peer.0.arm();
    client.1.write_all(b"z").unwrap();
    assert!(client.1.take_doorbell_request());
}

/// Two threads in turn fill and empty a ring through sockets that block, with pauses: a lost doorbell leaves both asleep.
#[test]
fn no_wake_up_is_lost() {
    let Ends { mut peer, mut client, .. } = ends();
    let (a, b) = UnixStream::pair().unwrap();
    a.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    b.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let total: usize = 3_000_000;
    let pause = |rng: &mut Rng| {
        if rng.chance(0.01) {
            (0..rng.below(200)).for_each(|_| std::thread::yield_now());
        }
    };
    let await_doorbell = |stream: &mut UnixStream| {
        let bytes = std::io::Read::read(stream, &mut [0; 64]).expect("a doorbell comes in time");
        assert_ne!(bytes, 0, "the other thread has failed");
    };
    let writing = std::thread::spawn(move || {
        let (mut rng, mut stream, mut sent) = (Rng::new(1), a, 0usize);
        while sent < total {
            let count = (1 + rng.below(1500) as usize).min(total - sent);
            let bytes: Vec<u8> = (sent..sent + count).map(|n| n as u8).collect();
            match client.1.write(&bytes) {
                Ok(count) => {
                    sent += count;
                    if client.1.take_doorbell_request() {
                        send_doorbell(&stream);
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    await_doorbell(&mut stream);
                    client.1.on_doorbell();
                }
            }
            pause(&mut rng);
        }
        stream
    });
    let (mut rng, mut stream, mut received) = (Rng::new(2), b, 0usize);
    while received < total {
        let bytes = read(&mut peer.0, 1 + rng.below(1500) as usize).unwrap();
        if bytes.is_empty() {
            peer.0.arm();
            if !peer.0.has_bytes() {
                await_doorbell(&mut stream);
                peer.0.on_doorbell();
            }
        } else {
            assert!(bytes.iter().enumerate().all(|(index, byte)| *byte == (received + index) as u8));
            received += bytes.len();
            if peer.0.take_doorbell_request() {
                send_doorbell(&stream);
            }
        }
        pause(&mut rng);
    }
    drop(writing.join().unwrap());
}

#[test]
fn segment_that_can_change_its_size_is_refused() {
    let (_segment, memory) = Segment::create(RING_BYTES).unwrap();
    assert!(Segment::open(memory.as_fd(), 2 * RING_BYTES).is_err(), "another size");
    let file = std::fs::File::from(memory);
    assert!(file.set_len(1).is_err() && file.set_len(1 << 20).is_err(), "the seals hold");
    let path = std::env::temp_dir().join(format!("seqcast-{:016x}", crate::clock::random_u64()));
    let plain = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    plain.set_len(4096 + 2 * RING_BYTES as u64).unwrap();
    assert!(Segment::open(plain.as_fd(), RING_BYTES).is_err(), "a file without seals");
    for ring_bytes in [0, 1, 2048, 4095, 5000, 1 << 31, usize::MAX] {
        assert!(Segment::create(ring_bytes).is_err(), "{ring_bytes}");
    }
}

#[test]
fn descriptor_is_handed_over_beside_bytes() {
    let (a, b) = UnixStream::pair().unwrap();
    let (segment, memory) = Segment::create(RING_BYTES).unwrap();
    send_with_descriptor(&a, b"take this", &memory).unwrap();
    drop(memory);
    let mut bytes = [0; 100];
    let (count, received): (usize, Option<OwnedFd>) = receive_with_descriptor(&b, &mut bytes).unwrap();
    assert_eq!(&bytes[..count], b"take this");
    let mut client = rings(Segment::open(received.unwrap().as_fd(), RING_BYTES).unwrap(), RingSide::Client);
    client.1.write_all(b"hello").unwrap();
    assert_eq!(read(&mut rings(segment, RingSide::Peer).0, 100), Ok(b"hello".to_vec()));
    send_doorbell(&a);
    assert!(matches!(receive_with_descriptor(&b, &mut bytes), Ok((1, None))));
}

#[test]
fn message_with_too_many_descriptors_is_read() {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use std::os::fd::AsRawFd;
    let (a, b) = UnixStream::pair().unwrap();
    let descriptors = [a.as_raw_fd(); 100];
    let control = [ControlMessage::ScmRights(&descriptors)];
    sendmsg::<()>(a.as_raw_fd(), &[IoSlice::new(b"many")], &control, MsgFlags::empty(), None).unwrap();
    let (count, descriptor) = receive_with_descriptor(&b, &mut [0; 100]).unwrap();
    assert!(count == 4 && descriptor.is_some());
    // The socket ends only when all its descriptors are closed.
    drop((a, descriptor));
    assert_eq!(std::io::Read::read(&mut &b, &mut [0; 10]).unwrap(), 0, "the others were closed");
}

/// Returns the descriptor of a new buffer for payloads of `bytes` bytes.
fn memory_of_buffer(bytes: usize) -> OwnedFd {
    OwnBuffer::create(0, 0, bytes).unwrap().memory().try_clone().unwrap()
}

/// Fills a buffer with a byte, and returns the payload.
fn fill(mut fresh: FreshBuffer, byte: u8) -> Bytes {
    fresh.as_mut_slice().fill(byte);
    fresh.freeze()
}

/// The peer's end and the client's end of buffers.
struct BufferEnds {
    pool: BufferPool,
    lent: LentBuffers,
    borrowed: BorrowedBuffers,
    view: Segment,
}

fn buffer_ends() -> BufferEnds {
    let Ends { peer, client, view } = ends();
    let lent = LentBuffers::new(peer.1.buffer_returns());
    BufferEnds { pool: BufferPool::default(), lent, borrowed: BorrowedBuffers::new(client.0.buffer_returns()), view }
}

impl BufferEnds {
    fn take(&mut self, bytes: usize) -> Option<FreshBuffer> {
        self.pool.take(bytes, |index| self.lent.is_lent(index))
    }

    /// Lends the payload to the other end, and returns it as that end reads it.
    fn lend(&mut self, payload: &Bytes) -> Bytes {
        let buffer = self.pool.buffer_of(payload).unwrap();
        if !self.lent.is_known(buffer) {
            self.borrowed.open(buffer.index(), Some(buffer.memory().try_clone().unwrap())).unwrap();
        }
        self.lent.lend(buffer);
        self.borrowed.payload(buffer.index(), payload.len()).unwrap().unwrap()
    }
}

#[test]
fn returned_buffer_is_used_again() {
    let mut ends = buffer_ends();
    let bytes = 3 * BUFFER_BYTES_MIN / 2;
    let first = fill(ends.take(bytes).unwrap(), 1);
    let start = first.as_ptr();
    let read = ends.lend(&first);
    assert!(read == vec![1; bytes] && read.as_ptr() != start, "another mapping");
    let second = fill(ends.take(bytes).unwrap(), 2);
    drop(first);
    let third = fill(ends.take(bytes).unwrap(), 3);
    assert!(second.as_ptr() != start && third.as_ptr() != start, "the other end reads the first one");
    drop((second, read));
    let read: Vec<Bytes> = [4, 5].map(|byte| fill(ends.take(bytes - 1).unwrap(), byte)).into();
    assert!(read.iter().any(|payload| payload.as_ptr() == start));
    assert!(read[0] == vec![4; bytes - 1] && read[1] == vec![5; bytes - 1] && third == vec![3; bytes]);
}

#[test]
fn buffer_lent_twice_must_return_twice() {
    let mut ends = buffer_ends();
    let payload = fill(ends.take(BUFFER_BYTES_MIN).unwrap(), 1);
    let (first, second) = (ends.lend(&payload), ends.lend(&payload));
    let start = payload.as_ptr();
    drop((payload, first));
    let other = fill(ends.take(BUFFER_BYTES_MIN).unwrap(), 2);
    assert!(other.as_ptr() != start && second == vec![1; BUFFER_BYTES_MIN]);
    drop((other, second));
    let again: Vec<Bytes> = [3, 4].map(|byte| fill(ends.take(BUFFER_BYTES_MIN).unwrap(), byte)).into();
    assert!(again.iter().any(|payload| payload.as_ptr() == start));
}

#[test]
fn buffer_waits_for_all_of_its_readers() {
    let (mut ends, mut others) = (buffer_ends(), buffer_ends());
    let payload = fill(ends.take(BUFFER_BYTES_MIN).unwrap(), 1);
    let start = payload.as_ptr();
    let read = ends.lend(&payload);
    // The second program returns the buffer more often than it got it.
    others.lent.lend(ends.pool.buffer_of(&payload).unwrap());
    others.view.returned(RingIndex::ToClient, 0).store(5, std::sync::atomic::Ordering::SeqCst);
    drop((payload, read));
    let mut take = |ends: &mut BufferEnds| {
        ends.pool.take(BUFFER_BYTES_MIN, |index| ends.lent.is_lent(index) || others.lent.is_lent(index)).unwrap()
    };
    let other = fill(take(&mut ends), 2);
    assert!(other.as_ptr() != start, "the count of the second program is wrong");
    others.view.returned(RingIndex::ToClient, 0).store(1, std::sync::atomic::Ordering::SeqCst);
    let mut take = |ends: &mut BufferEnds| {
        ends.pool.take(BUFFER_BYTES_MIN, |index| ends.lent.is_lent(index) || others.lent.is_lent(index)).unwrap()
    };
    assert!(take(&mut ends).as_slice().as_ptr() == start);
}

#[test]
fn descriptor_is_sent_once_for_each_buffer() {
    let mut ends = buffer_ends();
    let mut start = None;
    for byte in 0..10 {
        let payload = fill(ends.take(BUFFER_BYTES_MIN).unwrap(), byte);
        let is_known = ends.lent.is_known(ends.pool.buffer_of(&payload).unwrap());
        assert_eq!(is_known, start.is_some(), "{byte}");
        assert!(start.is_none_or(|start| start == payload.as_ptr()), "one buffer is enough");
        start = Some(payload.as_ptr());
        assert_eq!(ends.lend(&payload), vec![byte; BUFFER_BYTES_MIN]);
    }
    assert!(ends.lent.reset_descriptors() && !ends.lent.reset_descriptors());
    ends.borrowed.clear();
    let payload = fill(ends.take(BUFFER_BYTES_MIN).unwrap(), 77);
    assert!(!ends.lent.is_known(ends.pool.buffer_of(&payload).unwrap()));
    assert_eq!(ends.lend(&payload), vec![77; BUFFER_BYTES_MIN]);
}

#[test]
fn buffers_of_other_sizes_make_room() {
    let mut ends = buffer_ends();
    let large: Vec<Bytes> = (0..32).map(|byte| fill(ends.take(8 << 20).unwrap(), byte)).collect();
    assert!(ends.take(BUFFER_BYTES_MIN).is_none(), "256 MiB are in use");
    drop(large);
    let small: Vec<Bytes> = (0..128).map(|byte| fill(ends.take(BUFFER_BYTES_MIN).unwrap(), byte)).collect();
    assert!(ends.take(BUFFER_BYTES_MIN).is_none(), "128 buffers are in use");
    assert!(small.iter().zip(0..).all(|(payload, byte)| payload == &vec![byte; BUFFER_BYTES_MIN]));
    assert_eq!(ends.pool.take_refusal().map(|error| error.to_string()), None);
}

#[test]
fn wrong_counts_keep_no_buffers() {
    use std::sync::atomic::Ordering::SeqCst;
    let mut ends = buffer_ends();
    for index in 0..128 {
        ends.view.returned(RingIndex::ToClient, index).store(u32::MAX, SeqCst);
        assert!(!ends.lent.is_lent(index), "it was never lent");
    }
    let payload = fill(ends.take(BUFFER_BYTES_MIN).unwrap(), 1);
    drop(ends.lend(&payload));
    let index = ends.pool.buffer_of(&payload).unwrap().index();
    assert!(ends.lent.is_lent(index), "the count is not that of the loans");
    ends.view.returned(RingIndex::ToClient, index).store(1, SeqCst);
    assert!(!ends.lent.is_lent(index));
    ends.view.returned(RingIndex::ToClient, index).store(7, SeqCst);
    assert!(!ends.lent.is_lent(index), "it came back before");
}

#[test]
fn kept_buffers_have_limits() {
    let mut ends = buffer_ends();
    let keep = |ends: &mut BufferEnds, bytes: usize| {
        let mut kept: Vec<Bytes> = Vec::new();
        while !ends.lent.is_full(bytes) {
            let payload = fill(ends.take(bytes).unwrap(), 1);
            kept.push(ends.lend(&payload));
        }
        kept.len()
    };
    assert_eq!(keep(&mut ends, BUFFER_BYTES_MIN), 32);
    assert_eq!(keep(&mut ends, 8 << 20), 8, "64 MiB");
}

#[test]
fn buffers_of_an_ended_connection_are_removed() {
    let mut ends = buffer_ends();
    let payload = fill(ends.take(BUFFER_BYTES_MIN).unwrap(), 1);
    let read = ends.lend(&payload);
    let start = payload.as_ptr();
    drop(payload);
    ends.pool.remove_lent(|index| ends.lent.is_lent(index));
    ends.lent = buffer_ends().lent;
    let next = fill(ends.take(BUFFER_BYTES_MIN).unwrap(), 2);
    assert!(read == vec![1; BUFFER_BYTES_MIN] && next == vec![2; BUFFER_BYTES_MIN], "{start:?}");
}

#[test]
fn only_the_owner_writes_a_buffer() {
    use std::os::fd::AsRawFd;
    let memory = memory_of_buffer(BUFFER_BYTES_MIN);
    let file = std::fs::File::from(memory.try_clone().unwrap());
    assert!(std::os::unix::fs::FileExt::write_at(&file, b"x", 0).is_err() && file.set_len(1).is_err());
    let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the call accesses no memory of this process.
    assert_eq!(unsafe { libc::fallocate(memory.as_raw_fd(), flags, 0, 4096) }, -1);
    let (access, descriptor) = (libc::PROT_READ | libc::PROT_WRITE, memory.as_raw_fd());
    // SAFETY: the system chooses an unused range of addresses.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, libc::MAP_SHARED, descriptor, 0) };
    assert_eq!(mapped, libc::MAP_FAILED);
}

#[test]
fn unsuitable_buffers_are_refused() {
    let mut ends = buffer_ends();
    let mut open = |memory: OwnedFd| ends.borrowed.open(0, Some(memory)).unwrap_err().kind();
    assert_eq!(open(std::io::pipe().unwrap().0.into()), ErrorKind::InvalidData);
    let path = std::env::temp_dir().join(format!("seqcast-{:016x}", crate::clock::random_u64()));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    assert_eq!(open(file.into()), ErrorKind::InvalidData, "its size can change");
    ends.borrowed.open(0, Some(memory_of_buffer(BUFFER_BYTES_MIN))).unwrap();
    assert!(ends.borrowed.payload(0, 2 * BUFFER_BYTES_MIN).is_err(), "the payload does not fit");
    // A process without a descriptor gives the buffer back at once.
    ends.borrowed.open(0, None).unwrap();
    for index in [0, 1] {
        assert!(ends.borrowed.payload(index, 1).unwrap().is_none());
        assert_eq!(ends.view.returned(RingIndex::ToClient, index).load(std::sync::atomic::Ordering::SeqCst), 1);
    }
}

#[test]
fn descriptors_keep_their_order_beside_doorbells() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let sizes = [BUFFER_BYTES_MIN, 2 * BUFFER_BYTES_MIN, 3 * BUFFER_BYTES_MIN];
    for bytes in sizes {
        send_doorbell(&ours);
        send_with_descriptor(&ours, &[0], &memory_of_buffer(bytes)).unwrap();
        send_doorbell(&ours);
    }
    let mut queue = DescriptorQueue::default();
    let mut doorbells = 0;
    while let Ok(count) = queue.receive(&theirs, &mut [0; 100]) {
        doorbells += count;
    }
    assert_eq!((doorbells, queue.len(), queue.has_fault()), (9, 3, false));
    for bytes in sizes {
        let memory = queue.take_from(&theirs).descriptor.unwrap().unwrap();
        assert_eq!(check_buffer(memory.as_fd()).unwrap(), bytes);
    }
    let nothing = queue.take_from(&theirs);
    assert!(nothing.descriptor.is_none() && !nothing.has_doorbells);
    send_doorbell(&ours);
    send_with_descriptor(&ours, &[0], &memory_of_buffer(sizes[0])).unwrap();
    let taken = queue.take_from(&theirs);
    assert!(matches!(taken.descriptor, Some(Some(_))) && taken.has_doorbells);
}

#[test]
fn read_buffers_no_longer_count() {
    let mut unread = UnreadBuffers::default();
    (1..=3u64).for_each(|number| unread.push(100 * number, 10));
    for (head, expected) in [(0, (3, 30)), (99, (3, 30)), (100, (2, 20)), (350, (0, 0))] {
        unread.release(head);
        assert_eq!((unread.len(), unread.bytes()), expected, "{head}");
    }
    assert!(unread.is_empty());
}
