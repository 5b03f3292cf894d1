//! NATS publishes that repeat the line of the one before, which the peer publishes without parsing them again. Their
//! effects equal those of publishes whose lines differ.

use super::Peer;
use super::client::{ListenerClient, Nats};
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
    let accounts = "accounts=user limited password pw publish plant.>";
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

/// Publishes everything at once as an account with permissions. Lines repeat if `repeats`; otherwise each differs from
/// the one before by a blank.
fn publish([peer, other]: &[Peer; 2], repeats: bool) -> Effects {
    let mut subscriber = other.client(Nats);
    subscriber.subscribe("plant.>", 1);
    let mut client = peer.connect(Nats);
    client.line();
    let name = if repeats { "repeats" } else { "differs" };
    let connect = format!("CONNECT {{\"verbose\":false,\"name\":\"{name}\",\"user\":\"limited\",\"pass\":\"pw\"}}\r\n");
    client.send(connect);
    client.settle();
    let payloads = payloads();
    let (denied, permitted) = (payloads[..20].iter(), payloads.iter());
    let all = denied.map(|payload| ("secret.a", payload)).chain(permitted.map(|payload| ("plant.a", payload)));
    let mut bytes = Vec::new();
    for (index, (subject, payload)) in all.enumerate() {
        let blanks = if repeats || index % 2 == 0 { " " } else { "  " };
        bytes.extend_from_slice(format!("PUB {subject}{blanks}{}\r\n", payload.len()).as_bytes());
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(b"\r\n");
    }
    client.send(bytes);
    let received = payloads.iter().map(|_| subscriber.message()).collect();
    client.send(b"PING\r\n");
    let answers = answers(&mut client);
    let row = peer.rows("clients").into_iter().find(|row| row["name"] == name).expect("it is connected");
    let count = |field: &str| row[field].as_u64().expect("a number");
    Effects { received, answers, published: count("published"), denied: count("denied") }
}

/// Returns the lines up to the answer to a PING.
fn answers(client: &mut ListenerClient) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "PONG") {
        lines.push(client.line());
    }
    lines.into_iter().filter(|line| line != "PING").collect()
}

#[test]
fn repeated_publishes_equal_single_ones() {
    let peers = pair();
    let [repeated, single] = [true, false].map(|repeats| publish(&peers, repeats));
    let expected: Vec<(String, Vec<u8>)> = payloads().into_iter().map(|payload| ("plant.a".into(), payload)).collect();
    assert!(repeated.received == expected, "every message arrives in order");
    assert_eq!((repeated.published, repeated.denied, repeated.answers.len()), (expected.len() as u64, 20, 21));
    assert!(repeated == single, "{:?} {:?}", repeated.answers, single.answers);
}
