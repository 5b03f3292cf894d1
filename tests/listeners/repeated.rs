//! Publishes that repeat the one before apart from the payload, which the peer publishes without parsing them again.
//! Their effects equal those of publishes that differ from each other.

use super::Peer;
use super::client::{ListenerClient, Nats, Protocol, Redis, command};
use crate::support::command::Place;
use crate::support::wait::wait_until;

/// `datagram-size` of the publishing peer.
const DATAGRAM_BYTES: usize = 1400;

/// The effects of the same publishes.
#[derive(Debug, PartialEq)]
struct Effects {
    /// Messages that a client of another peer received.
    received: Vec<(String, Vec<u8>)>,
    /// Lines that the publisher received.
    answers: Vec<String>,
    published: u64,
    denied: u64,
}

/// Starts two peers that know each other; the first one publishes at most 4 MB a second, so that it must wait.
fn pair() -> [Peer; 2] {
    let place = Place::new();
    let (port, size) = (format!("port={}", place.port()), format!("datagram-size={DATAGRAM_BYTES} bytes"));
    let accounts = "accounts=user limited password pw publish plant.> subscribe plant.>";
    let settings = ["name=A.test", &port, &size, accounts, "pace=4 mb"];
    let publisher = Peer::start_at(place, [0, 0], &settings);
    let peers = [publisher, Peer::start_at(Place::new(), [0, 0], &["name=B.test", &port])];
    wait_until("the peers know each other", || peers.iter().all(|peer| peer.rows("peers").len() == 1));
    peers
}

/// Returns the payloads: a single one, empty ones, many that fill a datagram together, and ones larger than a datagram.
fn payloads() -> Vec<Vec<u8>> {
    let numbered = |count: usize, bytes: usize| (0..count).map(move |number| format!("{number:0>bytes$}").into_bytes());
    let empty = std::iter::repeat_n(Vec::new(), 1000);
    numbered(1, 7).chain(empty).chain(numbered(5000, 100)).chain(numbered(300, 3 * DATAGRAM_BYTES)).collect()
}

/// Connects a client with the account `limited`, and gives it a name.
fn enter(peer: &Peer, protocol: Protocol, name: &str) -> ListenerClient {
    let mut client = peer.connect(protocol);
    match protocol {
        Nats => {
            client.line();
            let options = format!("{{\"verbose\":false,\"name\":\"{name}\",\"user\":\"limited\",\"pass\":\"pw\"}}");
            client.send(format!("CONNECT {options}\r\n"));
        }
        Redis => {
            client.send(format!("AUTH limited pw\r\nCLIENT SETNAME {name}\r\n"));
            client.expect("+OK");
            client.expect("+OK");
        }
    }
    client.settle();
    client
}

/// Returns the bytes of a publish. It differs from those of [`Protocol::publish`] in a blank or in the case of a letter.
fn unlike(protocol: Protocol, subject: &str, payload: &[u8]) -> Vec<u8> {
    match protocol {
        Nats => [format!("PUB {subject}  {}\r\n", payload.len()).as_bytes(), payload, b"\r\n"].concat(),
        Redis => command(&[b"publish", subject.as_bytes(), payload]),
    }
}

/// Publishes everything at once as an account with permissions. Publishes repeat if `repeats`; otherwise each differs
/// from the one before.
fn publish([peer, other]: &[Peer; 2], protocol: Protocol, repeats: bool) -> Effects {
    let mut subscriber = other.client(protocol);
    subscriber.subscribe("plant.a", 1);
    let name = format!("{protocol:?}-{repeats}");
    let mut client = enter(peer, protocol, &name);
    let payloads = payloads();
    let (denied, permitted) = (payloads[..20].iter(), payloads.iter());
    let all = denied.map(|payload| ("secret.a", payload)).chain(permitted.map(|payload| ("plant.a", payload)));
    let mut bytes = Vec::new();
    for (index, (subject, payload)) in all.enumerate() {
        bytes.extend(match repeats || index % 2 == 0 {
            true => protocol.publish(subject, payload),
            false => unlike(protocol, subject, payload),
        });
    }
    client.send(bytes);
    let received = payloads.iter().map(|_| subscriber.message()).collect();
    client.send(b"PING\r\n");
    let answers = answers(&mut client);
    let row = peer.rows("clients").into_iter().find(|row| row["name"] == *name).expect("it is connected");
    let count = |field: &str| row[field].as_u64().expect("a number");
    Effects { received, answers, published: count("published"), denied: count("denied") }
}

/// Returns the lines before the answer to a PING.
fn answers(client: &mut ListenerClient) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match &client.line()[..] {
            "PONG" | "+PONG" => return lines,
            "PING" => {}
            line => lines.push(line.to_owned()),
        }
    }
}

#[test]
fn repeated_publishes_equal_single_ones() {
    let peers = pair();
    for protocol in Protocol::ALL {
        let [repeated, single] = [true, false].map(|repeats| publish(&peers, protocol, repeats));
        let expected: Vec<(String, Vec<u8>)> =
            payloads().into_iter().map(|payload| ("plant.a".into(), payload)).collect();
        assert!(repeated.received == expected, "every message arrives in order");
        assert_eq!((repeated.published, repeated.denied), (expected.len() as u64, 20));
        let counts = repeated.answers.iter().filter(|answer| *answer == ":1").count();
        assert_eq!(counts, if protocol == Redis { expected.len() } else { 0 }, "each is answered by a count");
        assert_eq!(repeated.answers.len() - counts, 20, "each denied one is answered by an error");
        assert!(repeated == single, "{:?} {:?}", repeated.answers, single.answers);
    }
}

#[test]
fn repeated_publishes_are_answered_as_requested() {
    let [peer, _other] = pair();
    let mut client = enter(&peer, Redis, "quiet");
    let publishes = Redis.publish("plant.a", "x").repeat(3);
    for (mode, expected) in [("SKIP", &[":0", ":0"][..]), ("OFF", &[]), ("ON", &["+OK", ":0", ":0", ":0"])] {
        client.send([format!("CLIENT REPLY {mode}\r\n").as_bytes(), &publishes].concat());
        if mode != "OFF" {
            client.send("PING\r\n");
            assert_eq!(answers(&mut client), expected, "{mode}");
        }
    }
}

#[test]
fn publisher_receives_its_own_repeated_messages() {
    let [peer, _other] = pair();
    let mut client = peer.connect(Redis);
    client.send("HELLO 3 AUTH limited pw\r\n");
    client.settle_after_hello();
    client.subscribe("plant.a", 1);
    let payloads: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
    client.send(payloads.iter().flat_map(|payload| Redis.publish("plant.a", payload)).collect::<Vec<u8>>());
    client.send("PING\r\n");
    let lines = answers(&mut client);
    assert_eq!(lines.iter().filter(|line| *line == ":1").count(), 300, "each is answered by a count");
    assert_eq!(
        lines.iter().filter(|line| payloads.contains(line)).collect::<Vec<_>>(),
        payloads.iter().collect::<Vec<_>>()
    );
}
