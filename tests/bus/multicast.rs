//! The sockets of a peer on the loopback interface of this host.

use crate::support::wait::{PATIENCE, wait_until};
use bytes::Bytes;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use seqcast::clock::{Clock, random_u64};
use seqcast::config::InterfaceSpec;
use seqcast::daemon::batch::{BATCH_BUFFERS_MAX, OutgoingDatagram, ReceivedDatagram, RecvBatch};
use seqcast::daemon::interface::{ChosenInterface, Family, choose};
use seqcast::daemon::multicast::{SocketOpenError, SocketOptions, Sockets};
use seqcast::daemon::self_test;
use seqcast::proto::effect::Path;
use socket2::{Domain, Socket, Type};
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Proves: W3, W6
#[test]
fn peers_of_one_host_receive_each_multicast_once() {
    let (group, port) = fresh_group();
    let mut first = open(group, port);
    let mut second = open(group, port);
    send(&mut first, &["one", "two"]);
    send(&mut second, &["three"]);
    for sockets in [&mut first, &mut second] {
        assert_eq!(texts(&receive(sockets, Path::Multicast, 3)), ["one", "two", "three"]);
        assert_silent(sockets);
    }
}

/// Proves: W2
#[test]
fn datagrams_come_from_the_inbox_and_are_answerable() {
    let (group, port) = fresh_group();
    let mut requester = open(group, port);
    let mut answerer = open(group, port);
    send(&mut requester, &["who is there?"]);
    let question = receive(&mut answerer, Path::Multicast, 1).remove(0);
    assert_eq!(question.from, requester.inbox_address());
    let answer = OutgoingDatagram { to: Some(question.from), bytes: Bytes::from_static(b"me") };
    assert_eq!(answerer.send_batch(&[answer]).expect("loopback takes it"), 1);
    let answer = receive(&mut requester, Path::Unicast, 1).remove(0);
    assert_eq!((answer.from, &answer.bytes[..]), (answerer.inbox_address(), &b"me"[..]));
}

#[test]
fn arrival_time_is_that_of_the_kernel() {
    let (group, port) = fresh_group();
    let mut sockets = open(group, port);
    let deadline = Clock::now().instant + PATIENCE;
    loop {
        let before = Clock::now();
        send(&mut sockets, &["unread"]);
        let after = Clock::now();
        while Clock::now().instant.since(after.instant) < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        let arrived = receive(&mut sockets, Path::Multicast, 1)[0].arrived.expect("the socket requests arrival times");
        assert!(before.wall <= arrived, "{before:?} {arrived:?}");
        if arrived <= after.wall {
            return;
        }
        // The first socket that requests arrival times makes the kernel record them, a moment later. Until then the
        // kernel reports the time of the request.
        assert!(after.instant < deadline, "{after:?} {arrived:?}");
    }
}

/// Proves: W6
#[test]
fn groups_on_one_port_do_not_mix() {
    let (group, port) = fresh_group();
    let (other, _) = fresh_group();
    let mut here = open(group, port);
    let mut there = open(other, port);
    send(&mut here, &["here"]);
    send(&mut there, &["there"]);
    assert_eq!(texts(&receive(&mut here, Path::Multicast, 1)), ["here"]);
    assert_eq!(texts(&receive(&mut there, Path::Multicast, 1)), ["there"]);
    assert_silent(&mut here);
    assert_silent(&mut there);
}

/// Proves: W7
#[test]
fn self_test_passes_and_loses_nothing() {
    let (group, port) = fresh_group();
    let mut other = open(group, port);
    let mut tested = open(group, port);
    send(&mut other, &["early"]);
    let hello = OutgoingDatagram { to: Some(tested.inbox_address()), bytes: Bytes::from_static(b"direct") };
    assert_eq!(other.send_batch(&[hello]).expect("loopback takes it"), 1);
    let meanwhile = self_test::run(&mut tested, random_u64(), PATIENCE).expect("loopback carries multicast");
    let mut meanwhile: Vec<(Path, Bytes)> = meanwhile.into_iter().map(|(path, got)| (path, got.bytes)).collect();
    meanwhile.sort_by_key(|(path, _)| *path == Path::Unicast);
    let expected = [(Path::Multicast, Bytes::from_static(b"early")), (Path::Unicast, Bytes::from_static(b"direct"))];
    assert_eq!(meanwhile, expected);
    assert_silent(&mut tested);
}

#[test]
fn kernel_drops_are_counted_exactly() {
    let (group, port) = fresh_group();
    let interface = lo(Family::V4);
    let mut slow = Sockets::open(&SocketOptions { receive_buffer: 4096, ..options(group, port, &interface) }).unwrap();
    let mut sender = open(group, port);
    let sent: u32 = 1000;
    for _ in 0..sent {
        send(&mut sender, &["a message that finds no room"]);
    }
    let overrun = |received: &[ReceivedDatagram]| received.iter().map(|one| one.overrun).sum::<u32>();
    let count = |received: &[ReceivedDatagram]| u32::try_from(received.len()).unwrap();
    let (mut received, mut overrun_later) = (Vec::new(), 0);
    // A busy kernel hands datagrams over later than within the sender's call.
    wait_until("each is received or counted", || {
        received.extend(drain(&mut slow, Path::Multicast));
        // The socket knows of drops after the last datagram as well.
        overrun_later += slow.overrun(Path::Multicast).unwrap();
        assert!(count(&received) + overrun(&received) + overrun_later <= sent);
        count(&received) + overrun(&received) + overrun_later == sent
    });
    assert!(count(&received) < sent, "a buffer of 4 KiB does not hold {sent} datagrams");
    assert_eq!(slow.overrun(Path::Multicast).unwrap(), 0);
    // Without being asked, it reports them with the next datagram that finds room.
    for _ in 0..sent {
        send(&mut sender, &["a message that finds no room"]);
    }
    let (mut received, mut sent) = (drain(&mut slow, Path::Multicast), sent);
    wait_until("each is received or reported with one that is", || {
        send(&mut sender, &["one more"]);
        sent += 1;
        received.extend(drain(&mut slow, Path::Multicast));
        assert!(count(&received) + overrun(&received) <= sent);
        count(&received) + overrun(&received) == sent
    });
    assert_eq!(received.last().map(|last| &last.bytes[..]), Some(&b"one more"[..]));
}

/// Returns the TTL of the next datagram of the group that a socket of another program receives on loopback.
fn received_ttl(listener: &Socket) -> i32 {
    let mut bytes = [0; 100];
    let mut iov = [IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!(i32);
    let received = recvmsg::<()>(listener.as_raw_fd(), &mut iov, Some(&mut space), MsgFlags::empty());
    let received = received.expect("loopback delivers it in time");
    let ttl = |message| if let ControlMessageOwned::Ipv4Ttl(ttl) = message { Some(ttl) } else { None };
    received.cmsgs().expect("there is room for it").find_map(ttl).expect("the socket requests arrival times")
}

#[test]
fn multicasts_carry_the_ttl() {
    for ttl in [1, 4] {
        let (group, port) = fresh_group();
        let listener = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
        listener.set_reuse_address(true).expect("the group's port is shared");
        listener.set_reuse_port(true).expect("the group's port is shared");
        listener.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
        setsockopt(&listener, sockopt::Ipv4RecvTtl, &true).expect("Linux tells the TTL");
        listener.bind(&SocketAddr::new(group, port).into()).expect("a port of this test alone");
        let IpAddr::V4(address) = group else { panic!("{group} is an IPv4 address") };
        listener.join_multicast_v4(&address, &Ipv4Addr::LOCALHOST).expect("the group can be joined on loopback");
        let interface = lo(Family::V4);
        let mut sockets = Sockets::open(&SocketOptions { ttl, ..options(group, port, &interface) }).unwrap();
        send(&mut sockets, &["x"]);
        assert_eq!(received_ttl(&listener), i32::from(ttl));
    }
}

#[test]
fn buffers_have_the_wanted_sizes() {
    let (group, port) = fresh_group();
    let interface = lo(Family::V4);
    for (receive_buffer, send_buffer) in [(65_536, 32_768), (32_768, 65_536)] {
        let wanted = SocketOptions { receive_buffer, send_buffer, ..options(group, port, &interface) };
        let granted = Sockets::open(&wanted).unwrap().granted();
        assert_eq!(granted.map(|granted| granted.granted), [receive_buffer, send_buffer]);
    }
}

#[test]
fn short_buffer_is_reported_with_the_remedy() {
    let (group, port) = fresh_group();
    let interface = lo(Family::V4);
    let fine = Sockets::open(&SocketOptions { receive_buffer: 65_536, ..options(group, port, &interface) }).unwrap();
    let [receive, send] = fine.granted();
    assert!(!receive.is_short() && !send.is_short(), "{receive}, {send}");
    assert_eq!(receive.to_string(), "receive buffer: 65536 bytes wanted, 65536 granted");
    let mut short = receive;
    short.granted = 1000;
    assert!(short.is_short());
    assert_eq!(
        short.to_string(),
        "receive buffer: 65536 bytes wanted, 1000 granted; to grant it: sysctl -w net.core.rmem_max=65536"
    );
}

#[test]
fn unusable_socket_is_refused_with_the_remedy() {
    let (group, port) = fresh_group();
    let interface = lo(Family::V4);
    let good = options(group, port, &interface);
    let refused = |options: &SocketOptions<'_>| Sockets::open(options).expect_err("it cannot be opened");

    let unicast = refused(&SocketOptions { group: "192.0.2.7".parse().unwrap(), ..good.clone() });
    assert!(matches!(unicast, SocketOpenError::NotMulticast(_)), "{unicast}");
    let portless = refused(&SocketOptions { port: 0, ..good.clone() });
    assert!(matches!(portless, SocketOpenError::NoPort), "{portless}");
    let mixed = refused(&SocketOptions { group: "ff15::1".parse().unwrap(), ..good.clone() });
    assert!(matches!(mixed, SocketOpenError::OtherFamily { .. }), "{mixed}");

    let holder = UdpSocket::bind((group, 0)).unwrap();
    let busy = refused(&SocketOptions { port: holder.local_addr().unwrap().port(), ..good.clone() });
    assert!(matches!(busy, SocketOpenError::GroupBusy(_)), "{busy}");
    let holder = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let inbox_port = holder.local_addr().unwrap().port();
    let busy = refused(&SocketOptions { inbox_port, ..good.clone() });
    let expected = format!("the inbox's port is busy: 127.0.0.1:{inbox_port} is held by another program");
    assert!(busy.to_string().starts_with(&expected), "{busy}");

    let mut absent = interface.clone();
    absent.address = "203.0.113.77".parse().unwrap();
    let refusal = refused(&SocketOptions { interface: &absent, ..good.clone() });
    assert!(matches!(refusal, SocketOpenError::NoSuchAddress(_)), "{refusal}");
    let mut missing = interface.clone();
    missing.index = 0x7fff_0000;
    let missing = refused(&SocketOptions { interface: &missing, ..good });
    assert!(matches!(missing, SocketOpenError::Join { .. }), "{missing}");
}

/// The kernel gives the loopback interface no route for IPv6 multicasts; without one, or without IPv6, the refusal
/// must say so. The tests in network namespaces run this test again on a host that has the route.
#[test]
fn ipv6_group_works_or_names_the_remedy() {
    let interface = match choose(&InterfaceSpec::Name("lo".into()), Family::V6) {
        Ok(interface) => interface,
        Err(error) => {
            println!("no IPv6 here: {error}");
            assert!(UdpSocket::bind("[::1]:0").is_err(), "{error}, yet ::1 can be bound");
            return;
        }
    };
    let (_, port) = fresh_group();
    for (position, scope) in ["ff02", "ff15"].into_iter().enumerate() {
        let group: IpAddr = format!("{scope}::{:x}:{position}", random_u64() & 0xffff).parse().unwrap();
        let open =
            || Sockets::open(&options(group, port, &interface)).unwrap_or_else(|error| panic!("{group}: {error}"));
        let (mut first, mut second) = (open(), open());
        if let Err(error) = self_test::run(&mut first, random_u64(), PATIENCE) {
            println!("no IPv6 multicast on lo here: {error}");
            let remedy = "Network is unreachable (os error 101); there is no route; add one: \
                          ip -6 route add local ff00::/8 dev lo table local";
            assert!(error.to_string().ends_with(remedy), "{error}");
            return;
        }
        // The probe is heard by every peer of the group on this host, and is foreign to it.
        assert_eq!(receive(&mut second, Path::Multicast, 1)[0].from, first.inbox_address());
        send(&mut first, &["six"]);
        let got = receive(&mut second, Path::Multicast, 1).remove(0);
        assert_eq!((got.from, &got.bytes[..]), (first.inbox_address(), &b"six"[..]));
    }
}

/// Returns a group and a port that other tests, running at the same time, are unlikely to use.
fn fresh_group() -> (IpAddr, u16) {
    let [a, b, c, d, ..] = random_u64().to_be_bytes();
    let port = 20_000 + u16::from_be_bytes([c, d]) % 10_000;
    (IpAddr::V4(Ipv4Addr::new(239, 255, a, b)), port)
}

fn lo(family: Family) -> ChosenInterface {
    choose(&InterfaceSpec::Name("lo".into()), family).expect("this host has a loopback interface")
}

fn options(group: IpAddr, port: u16, interface: &ChosenInterface) -> SocketOptions<'_> {
    SocketOptions { group, port, interface, inbox_port: 0, ttl: 1, receive_buffer: 1 << 17, send_buffer: 1 << 17 }
}

fn open(group: IpAddr, port: u16) -> Sockets {
    let interface = lo(Family::of(group));
    Sockets::open(&options(group, port, &interface)).expect("the group can be joined on loopback")
}

fn send(sockets: &mut Sockets, payloads: &[&'static str]) {
    let batch: Vec<OutgoingDatagram> =
        payloads.iter().map(|text| OutgoingDatagram { to: None, bytes: Bytes::from_static(text.as_bytes()) }).collect();
    assert_eq!(sockets.send_batch(&batch).expect("loopback takes it"), batch.len());
}

/// Returns the datagrams that one socket has now.
fn drain(sockets: &mut Sockets, path: Path) -> Vec<ReceivedDatagram> {
    let mut batch = RecvBatch::new(BATCH_BUFFERS_MAX);
    let mut all = Vec::new();
    while sockets.recv_batch(path, &mut batch).expect("receiving works") != 0 {
        all.extend(batch.drain());
    }
    all
}

/// Returns at least `count` datagrams of one socket.
fn receive(sockets: &mut Sockets, path: Path, count: usize) -> Vec<ReceivedDatagram> {
    let deadline = Clock::now().instant + PATIENCE;
    let mut all = Vec::new();
    loop {
        all.extend(drain(sockets, path));
        let left = deadline.since(Clock::now().instant);
        if count <= all.len() || left.is_zero() {
            assert_eq!(all.len(), count, "{all:?}");
            return all;
        }
        sockets.wait(left).expect("waiting works");
    }
}

/// Checks that nothing arrived. Loopback delivers within the sender's system call, so nothing comes later.
fn assert_silent(sockets: &mut Sockets) {
    assert_eq!(drain(sockets, Path::Multicast), []);
    assert_eq!(drain(sockets, Path::Unicast), []);
}

fn texts(received: &[ReceivedDatagram]) -> Vec<&str> {
    received.iter().map(|one| std::str::from_utf8(&one.bytes).expect("the tests send text")).collect()
}
