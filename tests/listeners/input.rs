//! Invalid input from clients.

use super::Peer;
use super::client::{ListenerClient, Nats, Protocol, Redis, command};
use crate::support::wait::wait_until;
use std::fs;

/// The largest message of these peers.
const MESSAGE_BYTES: usize = 64 << 10;

fn peer() -> Peer {
    Peer::start(&["message-size=64 kb", "hold-size=1 mb", "reassembly-size=1 mb", "client-queue-size=1 mb"])
}

/// Uninvolved clients, which are served all the time.
struct Bystanders(Vec<(ListenerClient, ListenerClient)>);

impl Bystanders {
    fn new(peer: &Peer) -> Bystanders {
        let pair = |protocol| {
            let mut subscriber = peer.client(protocol);
            subscriber.subscribe("others", 1);
            (subscriber, peer.client(protocol))
        };
        Bystanders(Protocol::ALL.map(pair).into())
    }

    #[track_caller]
    fn are_served(&mut self) {
        for publisher in 0..self.0.len() {
            let protocol = self.0[publisher].1.protocol;
            self.0[publisher].1.send(protocol.publish("others", "x"));
            for (subscriber, _) in &mut self.0 {
                assert_eq!(subscriber.message(), ("others".into(), b"x".into()));
            }
            if protocol == Redis {
                self.0[publisher].1.expect(":2");
            }
        }
    }
}

/// Returns invalid inputs, each with its error, and whether the connection ends.
fn nats_mistakes() -> Vec<(Vec<u8>, &'static str, bool)> {
    let with = |begin: &[u8], byte: u8, count: usize| [begin, &vec![byte; count], b"\r\n"].concat();
    vec![
        (with(b"PUB ", b'a', 5000), "-ERR 'maximum control line exceeded'", true),
        (with(b"SUB ", b'a', 1 << 20), "-ERR 'maximum control line exceeded'", true),
        (format!("PUB a {}\r\n", MESSAGE_BYTES + 1).into(), "-ERR 'Maximum Payload Violation'", true),
        (format!("HPUB a 12 {}\r\n", MESSAGE_BYTES + 1).into(), "-ERR 'Maximum Payload Violation'", true),
        (b"PUB a 999999999\r\n".into(), "-ERR 'Maximum Payload Violation'", true),
        (
            b"PUB a 99999999999999999999\r\n".into(),
            "-ERR 'Parser Error: bad size in PUB: PUB <subject> [reply] <bytes>'",
            true,
        ),
        (b"PUB a 1\r\nxyz\r\n".into(), "-ERR 'Unknown Protocol Operation'", true),
        (b"PUB a\r\n".into(), "-ERR 'Parser Error: PUB is PUB <subject> [reply] <bytes>'", true),
        (b"\x16\x03\x01\x02\0\x01\0".into(), "-ERR 'Unknown Protocol Operation'", true),
        (vec![0xff; 100_000], "-ERR 'Unknown Protocol Operation'", true),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".into(), "-ERR 'Unknown Protocol Operation'", true),
        (
            b"CONNECT {\"user\":\r\n".into(),
            "-ERR 'Parser Error: CONNECT is not followed by JSON (line 1, column 8)'",
            true,
        ),
        (b"PUB a..b 1\r\nx\r\n".into(), "-ERR 'Invalid Publish Subject'", false),
        (b"PUB a.* 1\r\nx\r\n".into(), "-ERR 'Invalid Publish Subject'", false),
        (b"PUB \xff\xfe 1\r\nx\r\n".into(), "-ERR 'Invalid Publish Subject'", false),
        (b"PUB .a 0\r\n\r\n".into(), "-ERR 'Invalid Publish Subject'", false),
        (b"PUB a b..c 1\r\nx\r\n".into(), "-ERR 'Invalid Reply Subject'", false),
        (b"SUB a.>.b 1\r\n".into(), "-ERR 'Invalid Subject'", false),
        (b"SUB \xc3\x28 1\r\n".into(), "-ERR 'Invalid Subject'", false),
        (b"HPUB a 4 4\r\nabcd\r\n".into(), "-ERR 'Invalid Headers'", false),
    ]
}

fn redis_mistakes() -> Vec<(Vec<u8>, &'static str, bool)> {
    vec![
        (vec![b'x'; 70_000], "-ERR Protocol error: too big inline request", true),
        (
            format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n${}\r\n", MESSAGE_BYTES + 1).into(),
            "-ERR Protocol error: invalid bulk length",
            true,
        ),
        (b"*3\r\n$-5\r\n".into(), "-ERR Protocol error: invalid bulk length", true),
        (b"*2000000000\r\n".into(), "-ERR Protocol error: invalid multibulk length", true),
        (b"*1\r\nPING\r\n".into(), "-ERR Protocol error: expected '$', got 'P'", true),
        (b"*1\r\n\0\0\0".into(), "-ERR Protocol error: expected '$', got ' '", true),
        ([&b"*"[..], &[b'1'; 100]].concat(), "-ERR Protocol error: too big mbulk count string", true),
        (b"ECHO \"x\r\n".into(), "-ERR Protocol error: unbalanced quotes in request", true),
        (
            b"\x16\x03\x01\x02\0\x01\0\n".into(),
            "-ERR unknown command '\u{16}\u{3}\u{1}\u{2}\0\u{1}\0', with args beginning with: ",
            false,
        ),
        (b"GET a\r\n".into(), "-ERR unknown command 'GET', with args beginning with: 'a' ", false),
        (command(&[b"PUBLISH", b"a"]), "-ERR wrong number of arguments for 'publish' command", false),
    ]
}

#[test]
fn protocol_errors_are_answered_and_others_served() {
    let peer = peer();
    let mut others = Bystanders::new(&peer);
    let mut closed = [0, 0];
    for (protocol, mistakes) in [(Nats, nats_mistakes()), (Redis, redis_mistakes())] {
        for (bytes, error, is_closed) in mistakes {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
            let mut client = peer.client(protocol);
            client.try_send(&bytes);
            if is_closed {
                assert_eq!(client.rest(), format!("{error}\r\n"), "{protocol:?} {shown:?}");
                closed[protocol as usize] += 1;
            } else {
                assert_eq!(client.line(), error, "{protocol:?} {shown:?}");
                client.settle();
            }
            others.are_served();
        }
    }
    for protocol in Protocol::ALL {
        assert_eq!(peer.count(protocol, "faults"), closed[protocol as usize]);
        assert_eq!(peer.count(protocol, "clients"), 2, "nobody of those is left");
    }
}

#[test]
fn invalid_channels_are_refused_by_name() {
    let peer = peer();
    let mut client = peer.client(Redis);
    for channel in [&[b'a'; 300][..], &[b'.'; 40]] {
        client.send(command(&[b"PUBLISH", channel, b"x"]));
        let line = client.line();
        assert!(line.starts_with("-ERR "), "{line}");
        client.settle();
        client.send(command(&[b"SUBSCRIBE", channel]));
        let line = client.line();
        assert!(line.starts_with("-ERR "), "{line}");
        client.settle();
    }
    // A channel that is not UTF-8 is valid all the same, and arrives unchanged.
    let mut subscriber = peer.client(Redis);
    subscriber.send(command(&[b"SUBSCRIBE", b"\xff\xfe a\n"]));
    subscriber.push();
    client.send(command(&[b"PUBLISH", b"\xff\xfe a\n", b"\0\r\n"]));
    client.expect(":1");
    assert_eq!(subscriber.push(), [b"message".to_vec(), b"\xff\xfe a\n".to_vec(), b"\0\r\n".to_vec()]);
}

#[test]
fn half_closed_client_receives_its_answers() {
    let peer = peer();
    for protocol in Protocol::ALL {
        let mut client = peer.client(protocol);
        client.send(b"PING\r\n".repeat(1000));
        client.send(protocol.publish("last", "x"));
        client.stop_talking();
        let answers = match protocol {
            Nats => "PONG\r\n".repeat(1000),
            Redis => "+PONG\r\n".repeat(1000) + ":0\r\n",
        };
        assert_eq!(client.rest(), answers);
        wait_until("it is gone", || peer.count(protocol, "clients") == 0);
    }
}

#[test]
fn random_bytes_do_not_harm_others() {
    let peer = peer();
    let mut others = Bystanders::new(&peer);
    let mut rng = seqcast::rng::Rng::new(11);
    for round in 0..100 {
        let protocol = Protocol::ALL[round % 2];
        let mut client = peer.connect(protocol);
        // Half of them begin with valid input.
        if round % 4 < 2 {
            client.enter();
            client.send(protocol.publish("junk", "x"));
        }
        let bytes: Vec<u8> = (0..rng.below(5000)).map(|_| rng.next_u64() as u8).collect();
        client.try_send(&bytes);
        if round % 10 == 0 {
            others.are_served();
        }
    }
    others.are_served();
    wait_until("all of them are gone", || Protocol::ALL.iter().all(|protocol| peer.count(*protocol, "clients") == 2));
}

#[test]
fn unfinished_command_uses_little_memory() {
    const CLIENTS: usize = 100;
    // Maximum payload that a NATS client may send.
    const PAYLOAD_BYTES: usize = MESSAGE_BYTES - 255;
    let peer = peer();
    let mut others = Bystanders::new(&peer);
    let before = resident_bytes(&peer);
    let half = |protocol: Protocol| {
        let whole = protocol.publish("half", vec![b'x'; PAYLOAD_BYTES]);
        whole[..whole.len() - 3].to_vec()
    };
    let halves = Protocol::ALL.map(half);
    let mut clients: Vec<ListenerClient> = Vec::new();
    for index in 0..CLIENTS {
        let protocol = Protocol::ALL[index % 2];
        let mut client = peer.client(protocol);
        client.send(&halves[index % 2]);
        clients.push(client);
    }
    others.are_served();
    // A buffer may be twice as large as its content.
    let used = resident_bytes(&peer).saturating_sub(before);
    let memory_max = CLIENTS * (3 * MESSAGE_BYTES) + (8 << 20);
    assert!(used < memory_max, "{used} bytes are held for {CLIENTS} clients");
    for client in &mut clients {
        assert!(!client.has_ended(), "they have all the time");
    }
    // Each of them may still continue.
    let mut subscriber = peer.client(Nats);
    subscriber.subscribe("half", 1);
    clients[0].send(b"x\r\n");
    assert_eq!(subscriber.message().1.len(), PAYLOAD_BYTES);
    drop(clients);
    wait_until("they are gone", || peer.count(Nats, "clients") + peer.count(Redis, "clients") == 5);
}

/// Returns the resident memory of a peer in bytes.
fn resident_bytes(peer: &Peer) -> usize {
    let status = peer.place.show("status");
    let text = fs::read_to_string(format!("/proc/{}/status", status["status"]["pid"])).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has it");
    line.trim_end_matches("kB").trim().parse::<usize>().expect("a number") << 10
}
