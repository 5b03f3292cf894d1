//! Memory that all clients hold together.

use super::Peer;
use super::client::{ListenerClient, Nats, Protocol, Redis};
use super::slow::{SETTINGS, SUBJECT, flood, reader};
use crate::support::wait::wait_until;

const MEMORY: u64 = 4 << 20;

fn peer() -> Peer {
    Peer::start(&[&SETTINGS[..], &["message-size=1 mb", "listener-memory=4 mb"]].concat())
}

fn evicted(peer: &Peer) -> u64 {
    Protocol::ALL.iter().map(|protocol| peer.count(*protocol, "evicted")).sum()
}

#[test]
fn largest_holder_of_incomplete_commands_is_closed() {
    const LEFT: usize = 1024;
    let peer = peer();
    let mut subscriber = peer.client(Nats);
    subscriber.subscribe("a", 1);
    let mut clients: Vec<ListenerClient> = (0..12).map(|index| peer.client(Protocol::ALL[index % 2])).collect();
    // Each sends more than those before, so that one of the last is evicted.
    let payload = |index: usize| vec![b'x'; (450 + 40 * index) << 10];
    let mut sent_bytes = 0;
    for (index, client) in clients.iter_mut().enumerate() {
        let command = client.protocol.publish("a", payload(index));
        sent_bytes += (command.len() - LEFT) as u64;
        client.try_send(&command[..command.len() - LEFT]);
        wait_until("what it sent is read", || {
            assert!(peer.client_bytes() <= MEMORY, "{}", peer.client_bytes());
            evicted(&peer) != 0 || sent_bytes <= peer.client_bytes() + (1 << 10)
        });
    }
    wait_until("the peer has evicted the clients beyond the limit", || 4 <= evicted(&peer));
    assert!(evicted(&peer) <= 9, "{}", evicted(&peer));
    let rows = peer.rows("clients");
    assert_eq!(rows.iter().filter_map(|row| row["unread_bytes"].as_u64()).sum::<u64>(), peer.client_bytes());
    assert!(peer.process.stderr_so_far().iter().any(|line| line.contains("see listener-memory")));
    // The first client can end the command that it has begun.
    let first = &mut clients[0];
    let command = first.protocol.publish("a", payload(0));
    first.send(&command[command.len() - LEFT..]);
    assert_eq!(subscriber.message().1.len(), payload(0).len());
    drop(clients);
    wait_until("the clients hold no bytes", || peer.client_bytes() == 0);
}

#[test]
fn reader_loses_nothing_while_others_fill_memory() {
    const SLEEPERS: usize = 12;
    let peer = peer();
    let sleepers: Vec<ListenerClient> = (0..SLEEPERS)
        .map(|index| {
            let mut sleeper = peer.client(Protocol::ALL[index % 2]);
            sleeper.subscribe(SUBJECT, 1);
            sleeper
        })
        .collect();
    // Each of them would hold a quarter.
    let (has_read, reading) = reader(&peer, Nats);
    flood(&peer, Redis, &has_read);
    reading.join().expect("the reader got everything, in order");
    assert!(peer.client_bytes() <= MEMORY, "{}", peer.client_bytes());
    let evicted = evicted(&peer);
    assert!((1..=SLEEPERS as u64 - 3).contains(&evicted), "{evicted}");
    drop(sleepers);
}

#[test]
fn message_queued_for_many_is_stored_once() {
    const READERS: usize = 12;
    let peer = Peer::start(&["message-size=1 mb", "client-queue-size=1 mb", "listener-memory=4 mb"]);
    let mut readers: Vec<ListenerClient> = (0..READERS)
        .map(|index| {
            let mut reader = peer.client(Protocol::ALL[index % 2]);
            reader.subscribe("large", 1);
            reader
        })
        .collect();
    let mut publisher = peer.client(Nats);
    // None of them reads yet, and the system takes a part only.
    let payload = vec![b'x'; 900 << 10];
    for _ in 0..3 {
        publisher.send(Nats.publish("large", &payload));
        publisher.settle();
    }
    assert_eq!(evicted(&peer), 0);
    for reader in &mut readers {
        assert_eq!(reader.message().1, payload);
    }
    drop((readers, publisher));
    wait_until("the clients hold no bytes", || peer.client_bytes() == 0);
}

#[test]
fn finished_large_command_frees_its_memory() {
    let peer = Peer::start(&["message-size=8 mb"]);
    for protocol in Protocol::ALL {
        let (mut client, mut subscriber) = (peer.client(protocol), peer.client(Nats));
        subscriber.subscribe("a", 1);
        let (large, small) = (vec![b'x'; 7 << 20], protocol.publish("a", "y"));
        let (begun, end) = small.split_at(small.len() - 2);
        client.send([protocol.publish("a", &large), begun.to_vec()].concat());
        assert_eq!(subscriber.message().1, large);
        wait_until("the peer holds the begun command only", || {
            let unread: u64 = peer.rows("clients").iter().map(|row| row["unread_bytes"].as_u64().unwrap()).sum();
            (begun.len() as u64..1024).contains(&unread)
        });
        client.send(end);
        assert_eq!(subscriber.message().1, b"y");
    }
}
