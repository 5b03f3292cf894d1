//! Tests of a connection without its thread, beside a peer written by hand.

use super::*;
use crate::listener::frame::LentPayload;
use crate::message::{Delivery, Epoch, Publisher, Verdict};
use crate::shared_memory::{BUFFER_BYTES_MIN, BufferPool, RingSide, Segment, hand_over, rings};
use std::os::fd::AsFd;

const RING_BYTES: usize = 4096;

/// A connection without its thread, what its driver needs, and the other end of its rings and its socket.
pub(super) struct Ends {
    pub(super) connection: Arc<LocalConnection>,
    pub(super) reader: RingReader,
    pub(super) poll: Poll,
    pub(super) peer: RingReader,
    pub(super) peer_writer: RingWriter,
    pub(super) socket: UnixStream,
}

fn ends() -> Ends {
    ends_with(RING_BYTES)
}

pub(super) fn ends_with(ring_bytes: usize) -> Ends {
    let (segment, memory) = Segment::create(ring_bytes).unwrap();
    let (reader, ring) = rings(Segment::open(memory.as_fd(), ring_bytes).unwrap(), RingSide::Client);
    let (poll, (mut stream, socket)) = (Poll::new().unwrap(), UnixStream::pair().unwrap());
    poll.registry().register(&mut stream, STREAM, Interest::READABLE).unwrap();
    let connection = Arc::new(LocalConnection {
        state: Mutex::new(LocalConnectionState { ring: Some(ring), ..LocalConnectionState::default() }),
        queues: Mutex::default(),
        send_space: Condvar::new(),
        waker: Waker::new(poll.registry(), WAKER).unwrap(),
        stream,
        thread: Mutex::default(),
        thread_request: Condvar::new(),
        is_thread_required: AtomicBool::new(false),
    });
    let (peer, peer_writer) = rings(segment, RingSide::Peer);
    Ends { connection, reader, poll, peer, peer_writer, socket }
}

/// Returns the protocol state after the greeting.
pub(super) fn greeted() -> ClientEndpoint {
    let mut endpoint = ClientEndpoint::new();
    let mut bytes = BytesMut::new();
    PeerFrame::Welcome(Welcome::any()).encode(&mut bytes);
    endpoint.push(&bytes);
    assert!(matches!(endpoint.poll_frame(), Ok(Some(PeerFrame::Welcome(_)))));
    endpoint
}

pub(super) fn delivery(payload: &str) -> Delivery {
    let publisher = Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 };
    Delivery::new(Message::new("x".parse().unwrap(), payload.to_owned()), publisher, None, Verdict::Direct)
}

#[test]
fn space_made_by_one_publisher_wakes_others() {
    let Ends { connection, mut peer, .. } = ends();
    let subject: Subject = "x".parse().unwrap();
    let publish = || connection.publish_payload(&subject, &[7; 100], Duration::ZERO).unwrap();
    // Messages are packed while the peer is behind.
    while lock(&connection.state).out.is_empty() {
        publish();
    }
    let (sender, outcome) = crossbeam_channel::bounded(1);
    let (blocked, large) = (connection.clone(), vec![7; OUT_BYTES_MAX]);
    let thread_subject = subject.clone();
    std::thread::spawn(move || sender.send(blocked.publish_payload(&thread_subject, &large, FOREVER)));
    while lock(&connection.state).writers_waiting == 0 {
        std::thread::yield_now();
    }
    // The peer has read everything, and has not written its doorbell yet.
    peer.read(RING_BYTES, &mut BytesMut::new()).unwrap();
    publish();
    assert_eq!(outcome.recv_timeout(Duration::from_secs(20)), Ok(Ok(())));
}

#[test]
fn ended_connection_releases_its_ring() {
    let Ends { connection, .. } = ends();
    assert!(connection.uses_rings());
    connection.end("the test is over".to_owned());
    assert!(!connection.uses_rings());
}

#[test]
fn doorbell_before_a_buffer_continues_output() {
    let Ends { connection, reader, poll, mut peer, mut peer_writer, socket } = ends();
    let mut driver = ConnectionDriver::new(connection.clone(), poll, greeted(), Some(reader));
    for _ in 0..RING_BYTES / 50 {
        connection.publish_payload(&"x".parse().unwrap(), &[7; 100], Duration::ZERO).unwrap();
    }
    driver.write().unwrap();
    assert_eq!(driver.read(1).unwrap(), None);
    assert!(driver.is_idle(false) && !driver.is_all_written(), "the ring is full");
    // The peer reads, and rings the doorbell. Then it delivers a buffer.
    let mut out = BytesMut::new();
    assert_eq!(peer.read(RING_BYTES, &mut out), Ok(RING_BYTES));
    assert!(peer.take_doorbell_request());
    send_doorbell(&socket);
    let mut pool = BufferPool::default();
    let filled = pool.take(BUFFER_BYTES_MIN, |_| false).unwrap().freeze();
    let buffer = pool.buffer_of(&filled).unwrap();
    assert!(hand_over(&socket, buffer.memory()));
    let payload = LentPayload { bytes: BUFFER_BYTES_MIN, index: buffer.index(), is_new: true };
    let mut frame = BytesMut::new();
    PeerFrame::MessageBuffer { subs: vec![SubId(1)], delivery: delivery(""), payload }.encode(&mut frame);
    peer_writer.write_all(&frame).unwrap();
    assert_eq!(driver.read(1).unwrap(), None);
    assert!(!driver.is_idle(false), "the driver writes before it sleeps");
}
