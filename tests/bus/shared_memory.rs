//! Shared memory between a peer and its programs: the layout, the fallback to the socket, and programs that misbehave.
//!
//! The handwritten client reads and writes the memory as a file, by the layout in `docs/local-protocol.md`.

use super::raw_client::RawClient;
use crate::support::TempDir;
use crate::support::bus::{PATIENCE, config_with_socket, message, messages, serve};
use crate::support::command::{Place, signal};
use crate::support::wait::{let_time_pass, wait_until};
use bytes::BytesMut;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send};
use seqcast::bus::{AttachOptions, Bus, Notice, PublishError};
use seqcast::config::Config;
use seqcast::listener::frame::{ByeReason, ClientFrame, PeerFrame, SegmentRefusalReason};
use seqcast::listener::local::ClientEndpoint;
use seqcast::message::{Message, SubId};
use seqcast::proto::pace::Pace;
use seqcast::rng::Rng;
use serde_json::Value;
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Offsets of the words of a ring, and of the second ring.
const TAIL: u64 = 0;
const HEAD: u64 = 128;
const READER_SLEEPS: u64 = 256;
const WRITER_WAITS: u64 = 384;
const SECOND: u64 = 1024;
/// Offset of the data of the first ring.
const DATA: u64 = 4096;

/// A handwritten client with shared memory.
pub(super) struct RingClient {
    pub(super) raw: RawClient,
    memory: File,
    ring_bytes: u64,
    endpoint: ClientEndpoint,
    tail: u64,
    head: u64,
}

impl RingClient {
    pub(super) fn greeted(config: &Config) -> RingClient {
        let mut raw = RawClient::greeted(&config.socket);
        raw.send(&ClientFrame::SharedMemory);
        let (mut bytes, mut space) = ([0u8; 100], nix::cmsg_space!([RawFd; 1]));
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg::<()>(raw.stream.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::empty()).unwrap();
        let Some(ControlMessageOwned::ScmRights(descriptors)) = received.cmsgs().unwrap().next() else {
            panic!("a descriptor comes with the answer")
        };
        let count = received.bytes;
        // SAFETY: the system has just opened the descriptor for this test.
        let memory = File::from(unsafe { OwnedFd::from_raw_fd(descriptors[0]) });
        let Ok(PeerFrame::Segment(Ok(ring_bytes))) = PeerFrame::decode(bytes[4..count].to_vec().into()) else {
            panic!("{:?}", &bytes[..count])
        };
        let ring_bytes = u64::from(ring_bytes);
        assert_eq!(memory.metadata().unwrap().len(), DATA + 2 * ring_bytes);
        let mut endpoint = ClientEndpoint::new();
        let mut welcome = BytesMut::new();
        super::raw_client::welcome(seqcast::listener::frame::VERSION).encode(&mut welcome);
        endpoint.push(&welcome);
        assert!(endpoint.poll_frame().unwrap().is_some());
        RingClient { raw, memory, ring_bytes, endpoint, tail: 0, head: 0 }
    }

    pub(super) fn word(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, offset).unwrap();
        u64::from_ne_bytes(bytes)
    }

    pub(super) fn set_word(&self, offset: u64, value: u64) {
        self.memory.write_all_at(&value.to_ne_bytes(), offset).unwrap();
    }

    /// Writes bytes to the ring, for which it must have room, and wakes the peer.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.write_silently(bytes);
        self.send_doorbell();
    }

    /// Writes bytes to the ring without a doorbell.
    fn write_silently(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.memory.write_all_at(&[*byte], DATA + self.tail % self.ring_bytes).unwrap();
            self.tail += 1;
        }
        self.set_word(TAIL, self.tail);
    }

    /// Writes a doorbell, which a full socket discards. Returns false then.
    pub(super) fn send_doorbell(&mut self) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match send(self.raw.stream.as_raw_fd(), &[0], flags) {
            Err(Errno::EAGAIN) => false,
            sent => sent.unwrap() == 1,
        }
    }

    pub(super) fn send(&mut self, frame: &ClientFrame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        self.write(&bytes);
    }

    /// Reads what the ring has into the protocol parser.
    pub(super) fn read(&mut self) {
        let tail = self.word(SECOND + TAIL);
        assert!(self.head <= tail && tail - self.head <= self.ring_bytes);
        while self.head < tail {
            let start = self.head % self.ring_bytes;
            let mut bytes = vec![0; (tail - self.head).min(self.ring_bytes - start) as usize];
            self.memory.read_exact_at(&mut bytes, DATA + self.ring_bytes + start).unwrap();
            self.endpoint.push(&bytes);
            self.head += bytes.len() as u64;
        }
        self.set_word(SECOND + HEAD, self.head);
        if self.word(SECOND + WRITER_WAITS) != 0 {
            self.set_word(SECOND + WRITER_WAITS, 0);
            self.send_doorbell();
        }
    }

    /// Returns the next frame of the peer, which it announces by a doorbell.
    pub(super) fn next(&mut self) -> PeerFrame {
        loop {
            if let Some(frame) = self.endpoint.poll_frame().unwrap() {
                return frame;
            }
            self.set_word(SECOND + READER_SLEEPS, 1);
            if self.word(SECOND + TAIL) == self.head {
                assert_ne!(self.raw.stream.read(&mut [0; 100]).unwrap(), 0, "the peer stays");
            }
            self.read();
        }
    }

    pub(super) fn subscribe(&mut self, sub: u32, pattern: &str) {
        let pattern = pattern.parse().unwrap();
        self.send(&ClientFrame::Subscribe {
            sub: SubId(sub),
            pattern,
            queue: None,
            mode: None,
            wants_discovery: false,
        });
        assert_eq!(self.next(), PeerFrame::Subscribed { sub: SubId(sub) });
    }

    /// Waits until the peer closes the connection.
    pub(super) fn await_end(&mut self) {
        loop {
            match self.raw.stream.read(&mut [0; 4096]) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

pub(super) fn rows(bus: &Bus, report: &str) -> Vec<Value> {
    bus.show(report).unwrap()["rows"].as_array().unwrap().clone()
}

fn counter(bus: &Bus, name: &str) -> u64 {
    let rows = rows(bus, "counters");
    rows.iter().find(|row| row["counter"] == name).unwrap()["value"].as_u64().unwrap()
}

fn path(bus: &Bus, name: &str) -> Value {
    rows(bus, "clients").iter().find(|row| row["name"] == name).unwrap()["path"].clone()
}

#[test]
fn attached_programs_use_shared_memory_by_default() {
    let (config, _directory) = config_with_socket("shm");
    let peer = serve(&config);
    let bus = Bus::attach_as(&config.socket, "rings").unwrap();
    let plain = AttachOptions { name: Some("plain".into()), shared_memory: false };
    let plain = Bus::attach_with(&config.socket, &plain).unwrap();
    assert_eq!((bus.info().uses_shared_memory, plain.info().uses_shared_memory), (true, false));
    assert_eq!((path(&peer, "rings"), path(&peer, "plain")), ("shm".into(), "socket".into()));
    assert_eq!(path(&peer, "embedded"), Value::Null);
    assert_eq!(counter(&peer, "shared_memory_refused"), 0);
}

#[test]
fn documented_layout_carries_both_directions() {
    let (mut config, _directory) = config_with_socket("layout");
    config.shared_memory = Some(64 << 10);
    let peer = serve(&config);
    let mut client = RingClient::greeted(&config);
    assert_eq!(client.ring_bytes, 32 << 10);
    client.subscribe(3, "up.>");
    let subscription = peer.subscribe("down.>".parse().unwrap()).unwrap();
    // More than the ring holds passes in both directions.
    for number in 0..40u32 {
        let payload = vec![number as u8; 3000];
        client.send(&ClientFrame::Publish(Message::new("down.x".parse().unwrap(), payload.clone())));
        assert_eq!(messages(&subscription, 1)[0].message.payload, payload);
        peer.publish_blocking(Message::new("up.x".parse().unwrap(), payload.clone())).unwrap();
        let payloads: Vec<Vec<u8>> = match client.next() {
            PeerFrame::Message { delivery, .. } => vec![delivery.message.payload.to_vec()],
            PeerFrame::MessageRun { deliveries, .. } => deliveries.map(|d| d.message.payload.to_vec()).collect(),
            other => panic!("{other:?}"),
        };
        assert_eq!(payloads, [payload]);
    }
}

#[test]
fn large_messages_pass_through_a_small_ring() {
    let (mut config, _directory) = config_with_socket("large");
    config.shared_memory = Some(64 << 10);
    let _peer = serve(&config);
    let (a, b) = (Bus::attach(&config.socket).unwrap(), Bus::attach(&config.socket).unwrap());
    assert!(a.info().uses_shared_memory && b.info().uses_shared_memory);
    let subscription = b.subscribe("x".parse().unwrap()).unwrap();
    let mut rng = Rng::new(7);
    let payloads: Vec<Vec<u8>> =
        [1, 100, 40_000, 1 << 20, 20_000, 8 << 20, 16_385, 3].map(|size| vec![rng.next_u32() as u8; size]).into();
    for payload in &payloads {
        a.publish_blocking(Message::new("x".parse().unwrap(), payload.clone())).unwrap();
    }
    for (delivery, payload) in messages(&subscription, payloads.len()).iter().zip(&payloads) {
        assert_eq!(delivery.message.payload.len(), payload.len());
        assert!(delivery.message.payload == *payload);
    }
}

#[test]
fn programs_without_shared_memory_use_the_socket() {
    let (mut config, _directory) = config_with_socket("limit");
    (config.shared_memory, config.shared_memory_max) = (Some(1 << 20), 1 << 20);
    let peer = serve(&config);
    let first = Bus::attach_as(&config.socket, "first").unwrap();
    let second = Bus::attach_as(&config.socket, "second").unwrap();
    assert_eq!((path(&peer, "first"), path(&peer, "second")), ("shm".into(), "socket".into()));
    assert!(!second.info().uses_shared_memory);
    assert_eq!(counter(&peer, "shared_memory_refused"), 1);
    let subscription = second.subscribe("x".parse().unwrap()).unwrap();
    first.publish(message("x", "from memory to the socket")).unwrap();
    assert_eq!(messages(&subscription, 1)[0].message.payload, "from memory to the socket");
    // The memory of a client that has left is free for the next one.
    first.close();
    drop(first);
    wait_until("the first client is gone", || rows(&peer, "clients").len() == 2);
    assert!(Bus::attach_as(&config.socket, "third").unwrap().info().uses_shared_memory);

    let (mut config, _directory) = config_with_socket("off");
    config.shared_memory = None;
    let peer = serve(&config);
    let bus = Bus::attach_as(&config.socket, "bus").unwrap();
    assert!(!bus.info().uses_shared_memory, "WELCOME does not offer it");
    assert_eq!((path(&peer, "bus"), counter(&peer, "shared_memory_refused")), ("socket".into(), 0));
    let mut raw = RawClient::greeted(&config.socket);
    raw.send(&ClientFrame::SharedMemory);
    let Some(PeerFrame::Segment(Err(refusal))) = raw.next() else { panic!("a refusal") };
    assert_eq!(refusal.reason, SegmentRefusalReason::Off);
    assert!(refusal.text.contains("shared-memory"), "{}", refusal.text);
    raw.subscribe(1, "x");
}

#[test]
fn repeated_or_hasty_request_ends_the_connection() {
    let (config, _directory) = config_with_socket("twice");
    let _peer = serve(&config);
    let mut client = RingClient::greeted(&config);
    client.send(&ClientFrame::SharedMemory);
    assert!(matches!(client.next(), PeerFrame::Bye { reason: ByeReason::ProtocolViolation, .. }));
    client.await_end();
    let (mut off, _directory_of_off) = config_with_socket("refused");
    off.shared_memory = None;
    let _refusing = serve(&off);
    let mut refused = RawClient::greeted(&off.socket);
    refused.send(&ClientFrame::SharedMemory);
    assert!(matches!(refused.next(), Some(PeerFrame::Segment(Err(_)))));
    refused.send(&ClientFrame::SharedMemory);
    assert!(matches!(refused.next(), Some(PeerFrame::Bye { reason: ByeReason::ProtocolViolation, .. })));
    let mut hasty = RawClient::greeted(&config.socket);
    let mut bytes = BytesMut::new();
    ClientFrame::SharedMemory.encode(&mut bytes);
    ClientFrame::Flush { token: 1 }.encode(&mut bytes);
    hasty.stream.write_all(&bytes).unwrap();
    assert!(matches!(hasty.next(), Some(PeerFrame::Bye { reason: ByeReason::ProtocolViolation, .. })));
}

/// A peer written by hand that grants shared memory without a descriptor, as if the client had no room for one.
#[test]
fn missing_descriptor_leads_to_the_socket() {
    let directory = TempDir::new();
    let path = directory.path().join("fake.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let peer = std::thread::spawn(move || {
        let mut bytes = [0; 1000];
        let mut welcome = super::raw_client::welcome(seqcast::listener::frame::VERSION);
        let PeerFrame::Welcome(offer) = &mut welcome else { panic!("a greeting") };
        offer.offers_shared_memory = true;
        let send = |stream: &mut UnixStream, frame: &PeerFrame| {
            let mut bytes = BytesMut::new();
            frame.encode(&mut bytes);
            stream.write_all(&bytes).unwrap();
        };
        let mut first = listener.accept().unwrap().0;
        assert_ne!(first.read(&mut bytes).unwrap(), 0, "a greeting");
        send(&mut first, &welcome);
        assert_ne!(first.read(&mut bytes).unwrap(), 0, "a request for shared memory");
        send(&mut first, &PeerFrame::Segment(Ok(4096)));
        let mut second = listener.accept().unwrap().0;
        assert_ne!(second.read(&mut bytes).unwrap(), 0, "a second greeting");
        send(&mut second, &welcome);
        assert_eq!(second.read(&mut bytes).unwrap_or(0), 0, "no second request");
    });
    let bus = Bus::attach(&path).unwrap();
    assert!(!bus.info().uses_shared_memory);
    bus.close();
    peer.join().unwrap();
}

#[test]
fn scribbling_client_harms_only_itself() {
    let (mut config, _directory) = config_with_socket("scribble");
    config.shared_memory = Some(64 << 10);
    let peer = serve(&config);
    let witness = Bus::attach_as(&config.socket, "witness").unwrap();
    let subscription = witness.subscribe("keep".parse().unwrap()).unwrap();
    let lies = [u64::MAX, 1 << 63, (32 << 10) + 1, 1];
    for lie in lies {
        // A tail that is ahead by too much, or, if it is possible, an unreadable frame.
        let mut client = RingClient::greeted(&config);
        client.set_word(TAIL, lie);
        client.memory.write_all_at(&[0xff; 4096], DATA).unwrap();
        if lie == 1 {
            client.set_word(TAIL, 4096);
        }
        client.send_doorbell();
        let PeerFrame::Bye { reason, .. } = client.next() else { panic!("a reason") };
        assert_eq!(reason, if lie == 1 { ByeReason::Malformed } else { ByeReason::ProtocolViolation });
        client.await_end();
        // A head that is ahead of what the peer has written.
        let mut client = RingClient::greeted(&config);
        client.subscribe(1, "much");
        client.set_word(SECOND + HEAD, lie.max(1 << 20));
        for _ in 0..100 {
            witness.publish_blocking(Message::new("much".parse().unwrap(), vec![7; 1000])).unwrap();
        }
        client.await_end();
    }
    // A client that writes to all of the memory while the peer uses it, again and again.
    for seed in 0..10 {
        let mut rng = Rng::new(seed);
        let mut client = RingClient::greeted(&config);
        client.subscribe(1, ">");
        for _ in 0..300 {
            let offset = if rng.chance(0.5) { rng.below(2048) } else { rng.below(DATA + 2 * client.ring_bytes - 64) };
            let noise: Vec<u8> = (0..rng.below(64)).map(|_| rng.next_u32() as u8).collect();
            client.memory.write_all_at(&noise, offset).unwrap();
            if client.raw.stream.write_all(&[0]).is_err() {
                break;
            }
            witness.publish_blocking(message("keep", "going")).unwrap();
            messages(&subscription, 1);
        }
    }
    wait_until("the others are gone", || rows(&peer, "clients").len() == 2);
    witness.publish(message("keep", "well")).unwrap();
    assert_eq!(messages(&subscription, 1)[0].message.payload, "well");
}

#[test]
fn unread_ring_drops_are_counted_exactly() {
    let (mut config, _directory) = config_with_socket("unread");
    (config.client_queue_count, config.client_queue_size) = (500, 1 << 20);
    config.shared_memory = Some(64 << 10);
    let peer = serve(&config);
    let mut slow = RingClient::greeted(&config);
    slow.subscribe(7, "x");
    let sent = 10_000u64;
    for number in 0..sent {
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(100, 0);
        peer.publish_blocking(Message::new("x".parse().unwrap(), payload)).unwrap();
    }
    peer.flush(PATIENCE).unwrap();
    let row = rows(&peer, "clients").into_iter().find(|row| row["name"] == "raw").unwrap();
    let counted = row["dropped"].as_u64().unwrap();
    assert!(0 < counted && row["queued_bytes"].as_u64().unwrap() <= 1 << 20, "{row}");
    let (mut next, mut dropped) = (0u64, 0u64);
    let number_of = |payload: &[u8]| u64::from_be_bytes(payload[..8].try_into().unwrap());
    while next < sent {
        match slow.next() {
            PeerFrame::Message { delivery, .. } => {
                assert_eq!(number_of(&delivery.message.payload), next);
                next += 1;
            }
            PeerFrame::MessageRun { deliveries, .. } => {
                for delivery in deliveries {
                    assert_eq!(number_of(&delivery.message.payload), next);
                    next += 1;
                }
            }
            PeerFrame::Dropped { counts } => {
                next += counts[0].1;
                dropped += counts[0].1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((next, dropped), (sent, counted));
}

#[test]
fn messages_before_the_end_of_a_client_arrive() {
    let (config, _directory) = config_with_socket("last");
    let peer = serve(&config);
    let subscription = peer.subscribe("last".parse().unwrap()).unwrap();
    for round in 0..20 {
        let bus = Bus::attach(&config.socket).unwrap();
        for number in 0..500 {
            bus.publish(message("last", &format!("{round} {number}"))).unwrap();
        }
        bus.close();
        let last = messages(&subscription, 500).pop().unwrap();
        assert_eq!(last.message.payload, format!("{round} 499"));
    }
}

#[test]
fn clients_killed_with_full_rings_leave_nothing() {
    let (mut config, _directory) = config_with_socket("full");
    config.pace = Pace::Rate(20_000);
    config.shared_memory = Some(64 << 10);
    // Room for the three programs below and no more.
    config.shared_memory_max = 3 * (64 << 10);
    let peer = serve(&config);
    let place = Place::new();
    let socket = config.socket.to_str().unwrap();
    let sub = place.command(&["sub", ">", "--socket", socket]).spawn().unwrap();
    wait_until("it subscribes", || rows(&peer, "subs").len() == 1);
    signal(sub.id(), "STOP");
    let mut publisher = place.command(&["pub", "x", "--lines", "--socket", socket]);
    let mut publisher = publisher.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = publisher.stdin.take().unwrap();
    let writing = std::thread::spawn(move || {
        let line = [vec![b'x'; 1000], vec![b'\n']].concat();
        while lines.write_all(&line).is_ok() {}
    });
    let queued = || rows(&peer, "clients").iter().map(|row| row["queued_bytes"].as_u64().unwrap()).sum::<u64>();
    wait_until("both rings are full, since output waits and publishers are blocked", || {
        100_000 < queued() && peer.flush(Duration::from_millis(50)).is_err()
    });
    assert!(rows(&peer, "clients").iter().filter(|row| row["path"] == "shm").count() == 2);
    for mut child in [sub, publisher] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    writing.join().unwrap();
    wait_until("both are gone", || rows(&peer, "clients").len() == 1);
    let next: Vec<Bus> = (0..3).map(|_| Bus::attach(&config.socket).unwrap()).collect();
    assert!(next.iter().all(|bus| bus.info().uses_shared_memory), "their memory is free again");
}

/// Requests reports of the counters until more than 1 MiB of answers waits, which the client does not read. The peer then
/// reads no more requests. Returns the number of requests.
fn backpressure(client: &mut RingClient, peer: &Bus) -> u32 {
    let unread = |bus: &Bus| {
        let row = rows(bus, "clients").into_iter().find(|row| row["name"] == "raw").unwrap();
        row["queued_bytes"].as_u64().unwrap()
    };
    let mut count = 0;
    let mut request = || {
        client.send(&ClientFrame::Show { id: count, query: r#"{"show":"counters"}"#.into() });
        count += 1;
    };
    // Bytes that the ring has taken count until their span of up to 256 KiB is written, so the limit comes early.
    wait_until("answers wait", || {
        request();
        3 << 18 < unread(peer)
    });
    // An answer has more than 2 KiB.
    (0..256).for_each(|_| request());
    count
}

#[test]
fn client_gone_with_unread_answers_is_removed() {
    let (config, _directory) = config_with_socket("gone");
    let peer = serve(&config);
    let subscription = peer.subscribe("last".parse().unwrap()).unwrap();
    let mut client = RingClient::greeted(&config);
    backpressure(&mut client, &peer);
    client.send(&ClientFrame::Publish(message("last", "words")));
    drop(client);
    wait_until("the client is gone", || rows(&peer, "clients").len() == 1);
    assert_eq!(messages(&subscription, 1)[0].message.payload, "words");
    // A program that keeps the memory and closes the socket cannot go on in it.
    let mut client = RingClient::greeted(&config);
    backpressure(&mut client, &peer);
    client.raw.stream.shutdown(std::net::Shutdown::Write).unwrap();
    wait_until("it is gone as well", || rows(&peer, "clients").len() == 1);
}

#[test]
fn unread_doorbells_do_not_stop_a_connection() {
    let (config, _directory) = config_with_socket("doorbells");
    let peer = serve(&config);
    let mut client = RingClient::greeted(&config);
    let count = backpressure(&mut client, &peer);
    // Many more doorbells than a socket takes if nobody reads them.
    let mut sent = 0;
    wait_until("the peer reads doorbells", || {
        sent += (0..1000).filter(|_| client.send_doorbell()).count();
        2000 < sent
    });
    for id in 0..count {
        assert!(matches!(client.next(), PeerFrame::Shown { id: shown, .. } if shown == id));
    }
}

#[test]
fn polling_peer_needs_no_doorbell() {
    let (mut config, _directory) = config_with_socket("polling");
    config.busy_poll = PATIENCE;
    let peer = serve(&config);
    let subscription = peer.subscribe("x".parse().unwrap()).unwrap();
    let mut client = RingClient::greeted(&config);
    for number in 0..20 {
        let text = number.to_string();
        let mut bytes = BytesMut::new();
        ClientFrame::Publish(message("x", &text)).encode(&mut bytes);
        let_time_pass(Duration::from_millis(2), "the peer has nothing to do and polls");
        assert_eq!(client.word(READER_SLEEPS), 0, "the peer does not ask for doorbells");
        client.write_silently(&bytes);
        assert_eq!(messages(&subscription, 1)[0].message.payload, text);
    }
}

#[test]
fn close_after_an_answer_ends_in_time() {
    let (config, _directory) = config_with_socket("close");
    let _peer = serve(&config);
    for shared_memory in [true, false] {
        for _ in 0..300 {
            let options = AttachOptions { name: None, shared_memory };
            let bus = Bus::attach_with(&config.socket, &options).unwrap();
            bus.show("status").unwrap();
            let (sender, is_closed) = std::sync::mpsc::sync_channel(1);
            std::thread::spawn(move || {
                drop(bus);
                sender.send(())
            });
            is_closed.recv_timeout(Duration::from_secs(20)).expect("the close wakes the thread of the connection");
        }
    }
}

#[test]
fn killed_peer_ends_its_clients() {
    let place = Place::new();
    let peer = place.peer(&[]);
    let bus = Bus::attach(place.socket()).unwrap();
    assert!(bus.info().uses_shared_memory);
    let subscription = bus.subscribe("x".parse().unwrap()).unwrap();
    bus.publish(message("x", "before")).unwrap();
    assert_eq!(messages(&subscription, 1)[0].message.payload, "before");
    signal(peer.pid(), "KILL");
    assert!(matches!(subscription.recv(), None | Some(Notice::Dropped(_))));
    wait_until("publishing fails", || bus.publish(message("x", "after")) == Err(PublishError::Closed));
    assert_eq!(bus.end_reason().as_deref(), Some("the peer closed the connection"));
}

#[test]
fn rings_carry_messages_of_many_threads() {
    let (mut config, _directory) = config_with_socket("threads");
    config.shared_memory = Some(64 << 10);
    let _peer = serve(&config);
    let (a, b) = (Bus::attach(&config.socket).unwrap(), Bus::attach(&config.socket).unwrap());
    let subscription = b.subscribe("t.*".parse().unwrap()).unwrap();
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let bus = a.clone();
            std::thread::spawn(move || {
                let mut rng = Rng::new(thread);
                for number in 0..5000u32 {
                    let mut payload = number.to_be_bytes().to_vec();
                    payload.resize(4 + rng.below(300) as usize, 0);
                    bus.publish_blocking(Message::new(format!("t.{thread}").parse().unwrap(), payload)).unwrap();
                    if rng.chance(0.002) {
                        let_time_pass(Duration::from_micros(rng.below(3000)), "the peer falls asleep");
                    }
                }
            })
        })
        .collect();
    let mut next = [0u32; 4];
    for delivery in messages(&subscription, 20_000) {
        let thread: usize = delivery.message.subject.to_string()[2..].parse().unwrap();
        assert_eq!(delivery.message.payload[..4], next[thread].to_be_bytes());
        next[thread] += 1;
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
