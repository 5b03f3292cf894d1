//! Large messages in buffers that programs of one host share: read in place, in order, and safe from programs that
//! misbehave.

use super::shared_memory::{RingClient, rows};
use crate::support::TempDir;
use crate::support::bus::{PATIENCE, config_with_socket, message, messages, serve};
use crate::support::command::{Place, signal};
use crate::support::wait::wait_until;
use bytes::BytesMut;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use seqcast::bus::{AttachOptions, Bus, PublishError};
use seqcast::listener::frame::{ByeReason, ClientFrame, LentPayload, PeerFrame};
use seqcast::message::{Delivery, Epoch, Headers, Message, Publisher, SubId, Verdict};
use seqcast::rng::Rng;
use seqcast::subject::Subject;
use std::fs::{self, File};
use std::io::{IoSlice, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

const MIB: usize = 1 << 20;

fn subject(text: &str) -> Subject {
    text.parse().unwrap()
}

/// Returns whether the bytes are in the memory of a buffer.
fn is_in_place(payload: &[u8]) -> bool {
    let address = payload.as_ptr() as usize;
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("seqcast-buffer")).any(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&address)
    })
}

/// Fills lent memory with a pattern and returns it as the payload of a message.
fn payload(bus: &Bus, bytes: usize, seed: u8) -> bytes::Bytes {
    let mut buffer = bus.loan(bytes).unwrap();
    buffer.iter_mut().zip(0usize..).for_each(|(byte, at)| *byte = seed.wrapping_add((at / 4096) as u8));
    buffer.into_payload()
}

#[test]
fn loaned_payload_is_read_in_place() {
    let (config, _directory) = config_with_socket("loan");
    let peer = serve(&config);
    let buses: Vec<Bus> = (0..4).map(|_| Bus::attach(&config.socket).unwrap()).collect();
    let subscriptions: Vec<_> = buses.iter().map(|bus| bus.subscribe("x".parse().unwrap()).unwrap()).collect();
    let at_peer = peer.subscribe("x".parse().unwrap()).unwrap();
    let options = AttachOptions { shared_memory: false, ..AttachOptions::default() };
    let plain = Bus::attach_with(&config.socket, &options).unwrap();
    let at_socket = plain.subscribe("x".parse().unwrap()).unwrap();
    for bytes in [64 << 10, MIB, 3 * MIB + 1, 8 * MIB] {
        let mut buffer = buses[0].loan(bytes).unwrap();
        assert!(buffer.is_shared());
        buffer.fill(7);
        buffer[bytes - 1] = 8;
        buses[0].publish_loaned(&subject("x"), buffer, PATIENCE).unwrap();
        for subscription in subscriptions.iter().chain([&at_peer, &at_socket]) {
            let delivery = messages(subscription, 1).remove(0);
            let payload = &delivery.message.payload;
            assert_eq!((payload.len(), payload[0], payload[bytes - 1]), (bytes, 7, 8));
            assert_eq!(is_in_place(payload), !std::ptr::eq(subscription, &at_socket), "{bytes}");
        }
    }
}

#[test]
fn large_payloads_keep_order_and_headers() {
    let (mut config, _directory) = config_with_socket("order");
    config.shared_memory = Some(64 << 10);
    let _peer = serve(&config);
    let (a, b) = (Bus::attach(&config.socket).unwrap(), Bus::attach(&config.socket).unwrap());
    let subscription = b.subscribe("x".parse().unwrap()).unwrap();
    let headers = Headers::from_pairs([("k", "v")]).unwrap();
    let mut rng = Rng::new(5);
    for round in 0..20 {
        let sizes: Vec<usize> =
            (0..20).map(|_| [3, 2000, 40_000, 64 << 10, 300_000, MIB][rng.below(6) as usize]).collect();
        for (number, bytes) in sizes.iter().enumerate() {
            let payload = match rng.chance(0.5) {
                true => payload(&a, *bytes, number as u8),
                false => vec![number as u8; *bytes].into(),
            };
            let message =
                Message { headers: headers.clone(), reply: Some(subject("r")), ..Message::new(subject("x"), payload) };
            a.publish_blocking(message).unwrap();
        }
        for (number, delivery) in messages(&subscription, sizes.len()).iter().enumerate() {
            let message = &delivery.message;
            assert_eq!((message.payload[0], message.payload.len()), (number as u8, sizes[number]), "round {round}");
            assert_eq!((&message.headers, &message.reply), (&headers, &Some(subject("r"))));
        }
    }
}

#[test]
fn kept_payloads_do_not_change() {
    let (mut config, _directory) = config_with_socket("kept");
    config.client_queue_size = 1 << 30;
    let _peer = serve(&config);
    let buses: Vec<Bus> = (0..3).map(|_| Bus::attach(&config.socket).unwrap()).collect();
    let subscriptions: Vec<_> = buses.iter().map(|bus| bus.subscribe("x".parse().unwrap()).unwrap()).collect();
    let mut rng = Rng::new(9);
    let mut kept: Vec<(u8, bytes::Bytes)> = Vec::new();
    for round in 0..200u32 {
        let bytes = [64 << 10, 300_000, MIB][rng.below(3) as usize];
        buses[0].publish_blocking(Message::new(subject("x"), payload(&buses[0], bytes, round as u8))).unwrap();
        for subscription in &subscriptions {
            kept.push((round as u8, messages(subscription, 1).remove(0).message.payload));
        }
        while 60 < kept.len() || (!kept.is_empty() && rng.chance(0.7)) {
            let (seed, payload) = kept.swap_remove(rng.below(kept.len() as u64) as usize);
            let expected = |at: usize| seed.wrapping_add((at / 4096) as u8);
            assert!(payload.iter().zip(0..).all(|(byte, at)| *byte == expected(at)), "round {round}");
        }
    }
    // A payload outlives its connection, and the memory is not written again.
    buses[0].publish_blocking(Message::new(subject("x"), payload(&buses[0], MIB, 3))).unwrap();
    let last = messages(&subscriptions[2], 1).remove(0).message.payload;
    drop((kept, subscriptions));
    buses[1].close();
    buses[2].close();
    let next = buses[0].subscribe("x".parse().unwrap()).unwrap();
    for _ in 0..50 {
        buses[0].publish_blocking(Message::new(subject("x"), vec![0xff; MIB])).unwrap();
        messages(&next, 1);
    }
    assert!(last.len() == MIB && last.iter().zip(0..).all(|(byte, at)| *byte == 3u8.wrapping_add((at / 4096) as u8)));
}

#[test]
fn received_payload_is_published_again() {
    let (config, _directory) = config_with_socket("again");
    let peer = serve(&config);
    let bus = Bus::attach(&config.socket).unwrap();
    let (first, second) = (bus.subscribe("a".parse().unwrap()).unwrap(), peer.subscribe("b".parse().unwrap()).unwrap());
    let loaned = payload(&bus, MIB, 1);
    for _ in 0..3 {
        bus.publish(Message::new(subject("a"), loaned.clone())).unwrap();
    }
    for delivery in messages(&first, 3) {
        bus.publish(Message::new(subject("b"), delivery.message.payload)).unwrap();
        assert_eq!(messages(&second, 1)[0].message.payload, loaned);
    }
}

#[test]
fn loan_without_shared_memory_is_ordinary_memory() {
    let (mut config, _directory) = config_with_socket("ordinary");
    config.message_size = MIB;
    let peer = serve(&config);
    let options = AttachOptions { shared_memory: false, ..AttachOptions::default() };
    let plain = Bus::attach_with(&config.socket, &options).unwrap();
    let subscription = peer.subscribe("x".parse().unwrap()).unwrap();
    for bus in [&peer, &plain] {
        let mut buffer = bus.loan(MIB).unwrap();
        assert!(!buffer.is_shared());
        buffer[5] = 5;
        bus.publish_loaned(&subject("x"), buffer, PATIENCE).unwrap();
        let delivery = messages(&subscription, 1).remove(0);
        assert_eq!((delivery.message.payload.len(), delivery.message.payload[5]), (MIB, 5));
        let too_large = PublishError::TooLarge { bytes: MIB + 1, bytes_max: MIB };
        assert_eq!(bus.loan(MIB + 1).unwrap_err(), too_large);
    }
    assert!(!Bus::attach(&config.socket).unwrap().loan(1000).unwrap().is_shared(), "small payloads are copied");
}

/// Sends a descriptor several times in one message, beside a doorbell.
fn send_descriptors(client: &RingClient, descriptors: &[RawFd]) -> bool {
    let control = [ControlMessage::ScmRights(descriptors)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(client.raw.stream.as_raw_fd(), &[IoSlice::new(&[0])], &control, flags, None).is_ok()
}

/// Seals that fix the size of a memfd.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// Makes a memfd; `None` if the system has none with these flags.
fn new_memory(flags: libc::c_uint) -> Option<File> {
    // SAFETY: the name ends with a zero byte.
    let descriptor = unsafe { libc::memfd_create(c"seqcast-test".as_ptr(), libc::MFD_ALLOW_SEALING | flags) };
    // SAFETY: the system has just opened the descriptor for this test.
    (0 <= descriptor).then(|| File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

fn seal(memory: &File, seals: libc::c_int) {
    // SAFETY: the call accesses no memory.
    assert_eq!(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
}

fn memfd(bytes: usize, seals: libc::c_int) -> OwnedFd {
    let mut memory = new_memory(0).unwrap();
    memory.write_all(&vec![1; bytes]).unwrap();
    seal(&memory, seals);
    memory.into()
}

/// Makes a memfd of fixed size without any page.
fn empty_memory(bytes: usize, flags: libc::c_uint) -> Option<OwnedFd> {
    let memory = new_memory(flags)?;
    memory.set_len(bytes as u64).ok()?;
    seal(&memory, SEALS);
    Some(memory.into())
}

fn frame(bytes: usize, index: u8, is_new: bool) -> ClientFrame {
    let payload = LentPayload { bytes, index, is_new };
    ClientFrame::PublishBuffer { message: Message::new(subject("x"), ""), payload }
}

/// Checks that the peer gives a reason and ends the connection.
fn assert_ended(client: &mut RingClient, part: &str) {
    let PeerFrame::Bye { reason, text } = client.next() else { panic!("a reason") };
    assert_eq!(reason, ByeReason::ProtocolViolation, "{text}");
    assert!(text.contains(part), "{text}");
    client.await_end();
}

#[test]
fn wrong_descriptors_end_only_their_client() {
    let (config, _directory) = config_with_socket("wrong");
    let peer = serve(&config);
    let subscription = peer.subscribe("x".parse().unwrap()).unwrap();
    let path = std::env::temp_dir().join(format!("seqcast-large-{}", std::process::id()));
    fs::write(&path, vec![1; MIB]).unwrap();
    let wrong = vec![
        OwnedFd::from(File::open(&path).unwrap()),
        std::io::pipe().unwrap().0.into(),
        File::open("/dev/zero").unwrap().into(),
        memfd(MIB, 0),
        memfd(MIB, SEALS & !libc::F_SEAL_SHRINK),
        memfd(MIB - 1, SEALS),
        memfd(0, SEALS),
    ];
    fs::remove_file(&path).unwrap();
    for descriptor in wrong {
        let mut client = RingClient::greeted(&config);
        assert!(send_descriptors(&client, &[descriptor.as_raw_fd()]));
        client.send(&frame(MIB, 0, true));
        assert_ended(&mut client, "no memfd of fixed size");
    }
    let mut client = RingClient::greeted(&config);
    client.send(&frame(MIB, 0, true));
    assert_ended(&mut client, "without the descriptor");
    let mut client = RingClient::greeted(&config);
    assert!(send_descriptors(&client, &[memfd(MIB, SEALS).as_raw_fd()]));
    client.send(&frame(MIB, 5, true));
    assert_eq!(messages(&subscription, 1)[0].message.payload, vec![1; MIB]);
    client.send(&frame(MIB, 4, false));
    assert_ended(&mut client, "without the descriptor");
    let mut raw = super::raw_client::RawClient::greeted(&config.socket);
    raw.send(&frame(MIB, 0, true));
    assert!(matches!(raw.next(), Some(PeerFrame::Bye { reason: ByeReason::ProtocolViolation, .. })));
}

#[test]
fn payload_is_read_once_from_writable_memory() {
    let (config, _directory) = config_with_socket("scribble");
    let peer = serve(&config);
    let subscription = peer.subscribe("x".parse().unwrap()).unwrap();
    let memory = memfd(MIB, SEALS);
    let file = File::from(memory.try_clone().unwrap());
    let mut client = RingClient::greeted(&config);
    assert!(send_descriptors(&client, &[memory.as_raw_fd()]));
    client.send(&frame(MIB, 7, true));
    let first = messages(&subscription, 1).remove(0).message.payload;
    file.write_all_at(&vec![2; MIB], 0).unwrap();
    assert_eq!(first, vec![1; MIB], "the peer has copied it");
    client.send(&frame(MIB / 2, 7, false));
    assert_eq!(messages(&subscription, 1)[0].message.payload, vec![2; MIB / 2]);
    // Holes, and huge pages that the system does not have, read as zeros.
    let mut hollow = vec![empty_memory(MIB, 0).unwrap()];
    hollow.extend(empty_memory(2 * MIB, libc::MFD_HUGETLB));
    for memory in hollow {
        assert!(send_descriptors(&client, &[memory.as_raw_fd()]));
        client.send(&frame(MIB, 7, true));
        assert_eq!(messages(&subscription, 1)[0].message.payload, vec![0; MIB]);
    }
}

/// Returns the number of descriptors of this process for the memory of this descriptor.
fn descriptors_of(memory: &OwnedFd) -> usize {
    let inode = |path: &str| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let own = inode(&format!("/proc/self/fd/{}", memory.as_raw_fd()));
    let entries = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.ok()?.path().to_str().map(inode));
    entries.filter(|other| *other == own).count()
}

#[test]
fn descriptors_without_frames_end_their_client() {
    let (config, _directory) = config_with_socket("bomb");
    let peer = serve(&config);
    let bomb = memfd(1, 0);
    let mut client = RingClient::greeted(&config);
    let mut sent = 0;
    while sent < 1000 && send_descriptors(&client, &[bomb.as_raw_fd()]) {
        sent += 1;
        peer.show("status").unwrap();
    }
    assert!(64 < sent && sent < 1000, "{sent}");
    assert_ended(&mut client, "too many without their frames");
    let mut client = RingClient::greeted(&config);
    assert!(send_descriptors(&client, &[bomb.as_raw_fd(); 200]));
    assert_ended(&mut client, "several descriptors");
    drop(client);
    wait_until("all descriptors are closed", || descriptors_of(&bomb) == 1);
}

#[test]
fn unread_buffers_count_into_the_queue_limit() {
    let (mut config, _directory) = config_with_socket("slow");
    (config.client_queue_count, config.client_queue_size) = (500, 16 << 20);
    let peer = serve(&config);
    let mut slow = RingClient::greeted(&config);
    slow.subscribe(7, "x");
    let bus = Bus::attach(&config.socket).unwrap();
    let sent = 100u64;
    for _ in 0..sent {
        bus.publish_blocking(Message::new(subject("x"), payload(&bus, MIB, 1))).unwrap();
    }
    bus.flush(PATIENCE).unwrap();
    let row = || rows(&peer, "clients").into_iter().find(|row| row["name"] == "raw").unwrap();
    let counted = row()["dropped"].as_u64().unwrap();
    let queued = row()["queued_bytes"].as_u64().unwrap();
    assert!(0 < counted && (12 << 20..=16 << 20).contains(&queued), "{}", row());
    bus.publish_blocking(message("x", "last")).unwrap();
    let (mut read, mut dropped, mut reports) = (0, 0, 0);
    while read + dropped < sent + 1 {
        match slow.next() {
            PeerFrame::MessageBuffer { payload, .. } => {
                assert_eq!(payload.bytes, MIB);
                read += 1;
            }
            PeerFrame::Message { .. } | PeerFrame::MessageRun { .. } => read += 1,
            PeerFrame::Dropped { counts } => {
                dropped += counts[0].1;
                reports += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(counted <= dropped && dropped <= counted + 1, "{counted} {dropped}");
    assert_eq!(reports, 1, "one span of drops has one report");
    assert_eq!(read + dropped, sent + 1);
    wait_until("nothing waits", || row()["queued_bytes"] == 0);
}

/// Returns the number of buffers that a process maps.
fn mapped(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter(|line| line.contains("seqcast-buffer")).count()
}

#[test]
fn killed_programs_leave_no_buffers() {
    let place = Place::new();
    let peer = place.peer(&[]);
    let socket = place.socket();
    let bus = Bus::attach(&socket).unwrap();
    let mut sub = place.command(&["sub", "x", "--raw", "--socket", socket.to_str().unwrap()]).spawn().unwrap();
    wait_until("it subscribes", || rows(&bus, "subs").len() == 1);
    signal(sub.id(), "STOP");
    for _ in 0..20 {
        bus.publish_blocking(Message::new(subject("x"), payload(&bus, MIB, 1))).unwrap();
    }
    bus.flush(PATIENCE).unwrap();
    sub.kill().unwrap();
    sub.wait().unwrap();
    wait_until("the client is gone", || rows(&bus, "clients").len() == 1);
    wait_until("the peer maps no buffer, after five seconds", || mapped(peer.pid()) == 0);
    bus.close();
    wait_until("the peer has no descriptor of a buffer", || {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", peer.pid())).unwrap();
        let mut links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        !links.any(|link| link.to_string_lossy().contains("seqcast-buffer"))
    });
}

#[test]
fn subscriber_without_descriptors_counts_the_loss() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let socket = place.socket();
    let bus = Bus::attach(&socket).unwrap();
    let sub = place.start(&["sub", "x", "--json", "--socket", socket.to_str().unwrap()]);
    wait_until("it subscribes", || rows(&bus, "subs").len() == 1);
    limit_descriptors(sub.pid(), 3);
    for _ in 0..3 {
        bus.publish_blocking(Message::new(subject("x"), payload(&bus, MIB, 1))).unwrap();
    }
    bus.publish_blocking(message("x", "small")).unwrap();
    let (mut dropped, mut line) = (0, String::new());
    while !line.contains("small") {
        line = sub.line();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        dropped += value["count"].as_u64().or(value["dropped"].as_u64()).unwrap_or(0);
    }
    assert_eq!(dropped, 3, "{line}");
    limit_descriptors(sub.pid(), 100);
    bus.publish_blocking(Message::new(subject("x"), payload(&bus, MIB, 1))).unwrap();
    assert!(MIB < sub.line().len(), "it gets the descriptor again");
}

#[test]
fn peer_without_descriptors_refuses_and_recovers() {
    let place = Place::new();
    let peer = place.peer(&[]);
    let [a, b] = [(); 2].map(|()| Bus::attach(place.socket()).unwrap());
    let subscription = b.subscribe("x".parse().unwrap()).unwrap();
    limit_descriptors(peer.pid(), 3);
    for _ in 0..3 {
        a.publish_blocking(Message::new(subject("x"), payload(&a, MIB, 1))).unwrap();
    }
    let refused = a.flush(PATIENCE).unwrap_err().to_string();
    assert!(refused.contains("ulimit -n"), "{refused}");
    limit_descriptors(peer.pid(), 100);
    a.publish_blocking(Message::new(subject("x"), payload(&a, MIB, 2))).unwrap();
    assert_eq!(messages(&subscription, 1)[0].message.payload[0], 2);
}

/// Sets the number of descriptors that a process may open further ones below.
fn limit_descriptors(pid: u32, count: u64) {
    let limit = libc::rlimit { rlim_cur: count, rlim_max: 1000 };
    // SAFETY: the structure outlives the call, which changes only a limit of the child.
    let answer = unsafe { libc::prlimit(pid as i32, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(answer, 0);
}

#[test]
fn publisher_waits_while_the_peer_is_behind() {
    let (mut config, _directory) = config_with_socket("behind");
    config.pace = seqcast::proto::pace::Pace::Rate(10_000_000);
    let peer = serve(&config);
    let bus = Bus::attach(&config.socket).unwrap();
    let subscription = peer.subscribe("x".parse().unwrap()).unwrap();
    let mut published = 0;
    let full = loop {
        match bus.publish(Message::new(subject("x"), payload(&bus, 64 << 10, 1))) {
            Ok(()) => published += 1,
            Err(error) => break error,
        }
        assert!(published < 10_000);
    };
    assert_eq!(full, PublishError::Full);
    // The peer reads on meanwhile.
    let full = loop {
        match bus.publish_loaned(&subject("x"), bus.loan(64 << 10).unwrap(), Duration::from_millis(1)) {
            Ok(()) => published += 1,
            Err(error) => break error,
        }
        assert!(published < 10_000);
    };
    assert_eq!(full, PublishError::Full);
    for _ in 0..10 {
        bus.publish_blocking(Message::new(subject("x"), payload(&bus, 64 << 10, 2))).unwrap();
    }
    assert_eq!(messages(&subscription, published + 10).len(), published + 10);
}

/// Sends a frame through the socket, with a descriptor if there is one.
fn send_frame(stream: &UnixStream, frame: &PeerFrame, descriptor: Option<RawFd>) {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    let descriptors: Vec<RawFd> = descriptor.into_iter().collect();
    let control = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() { &[][..] } else { &control };
    sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&bytes)], control, MsgFlags::empty(), None).unwrap();
}

/// A peer written by hand that sends one message in a buffer, which may be a wrong one.
fn serve_buffer(listener: &UnixListener, buffer: Option<&OwnedFd>) -> UnixStream {
    let mut stream = listener.accept().unwrap().0;
    let mut welcome = super::raw_client::welcome(seqcast::listener::frame::VERSION);
    let PeerFrame::Welcome(offer) = &mut welcome else { panic!("a greeting") };
    offer.offers_shared_memory = true;
    assert_ne!(stream.read(&mut [0; 1000]).unwrap(), 0, "a greeting");
    send_frame(&stream, &welcome, None);
    assert_ne!(stream.read(&mut [0; 1000]).unwrap(), 0, "a request for shared memory");
    let memory = File::from(memfd(3 * 4096, SEALS | libc::F_SEAL_SEAL));
    memory.write_all_at(&[0; 3 * 4096], 0).unwrap();
    send_frame(&stream, &PeerFrame::Segment(Ok(4096)), Some(memory.as_raw_fd()));
    // The subscription comes through the first ring, and the answer goes into the second.
    let mut frames = BytesMut::new();
    PeerFrame::Subscribed { sub: SubId(0) }.encode(&mut frames);
    let publisher = Publisher { name: None, epoch: Epoch::new(1).unwrap(), uid: 1 };
    let delivery = Delivery::new(Message::new(subject("x"), ""), publisher, None, Verdict::Direct);
    let payload = LentPayload { bytes: MIB, index: 0, is_new: true };
    PeerFrame::MessageBuffer { subs: vec![SubId(0)], delivery, payload }.encode(&mut frames);
    wait_until("the subscription comes", || {
        let mut tail = [0; 8];
        memory.read_exact_at(&mut tail, 0).unwrap();
        tail != [0; 8]
    });
    if let Some(buffer) = buffer {
        let descriptors = [buffer.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&descriptors)];
        sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&[0])], &control, MsgFlags::empty(), None).unwrap();
    }
    memory.write_all_at(&frames, 4096 + 4096).unwrap();
    memory.write_all_at(&(frames.len() as u64).to_ne_bytes(), 1024).unwrap();
    stream.write_all(&[0]).unwrap();
    stream
}

#[test]
fn wrong_buffer_of_a_peer_ends_the_connection() {
    let directory = TempDir::new();
    let path = directory.path().join("fake.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let buffers = [Some(memfd(MIB, SEALS)), Some(memfd(MIB, 0)), Some(memfd(1, SEALS)), None];
    for (buffer, is_right) in buffers.iter().zip([true, false, false, false]) {
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve_buffer(&listener, buffer.as_ref()));
            let bus = Bus::attach(&path).unwrap();
            let subscription = bus.subscribe("x".parse().unwrap()).unwrap();
            let _stream = serving.join().unwrap();
            if is_right {
                assert_eq!(messages(&subscription, 1)[0].message.payload, vec![1; MIB]);
            } else {
                assert_eq!(subscription.recv(), None);
                let reason = bus.end_reason().unwrap();
                assert!(reason.contains("violates the local protocol"), "{reason}");
            }
        });
    }
}
