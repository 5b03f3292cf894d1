//! What all clients hold together.

use super::Peer;
use super::slow::{SETTINGS, SUBJECT, flood, reader};
use super::talk::{Nats, Protocol, Redis, Talk};
use crate::support::bus::eventually;

const MEMORY: u64 = 4 << 20;

fn peer() -> Peer {
    Peer::start(&[&SETTINGS[..], &["message-size=1 mb", "door-memory=4 mb"]].concat())
}

fn evicted(peer: &Peer) -> u64 {
    Protocol::ALL.iter().map(|protocol| peer.count(*protocol, "evicted")).sum()
}

#[test]
fn who_holds_most_of_half_commands_is_closed() {
    const LEFT: usize = 1024;
    let peer = peer();
    let mut subscriber = peer.client(Nats);
    subscriber.subscribe("a", 1);
    let mut clients: Vec<Talk> = (0..12).map(|index| peer.client(Protocol::ALL[index % 2])).collect();
    // Each sends more than those before, so that one of the last has to go.
    let payload = |index: usize| vec![b'x'; (450 + 40 * index) << 10];
    let mut held = 0;
    for (index, client) in clients.iter_mut().enumerate() {
        let command = client.protocol.publish("a", payload(index));
        held += (command.len() - LEFT) as u64;
        client.try_send(&command[..command.len() - LEFT]);
        eventually("what it sent is read", || {
            assert!(peer.held() <= MEMORY, "{}", peer.held());
            evicted(&peer) != 0 || held <= peer.held() + (1 << 10)
        });
    }
    eventually("those beyond have gone", || 4 <= evicted(&peer));
    assert!(evicted(&peer) <= 6, "{}", evicted(&peer));
    let rows = peer.rows("clients");
    assert_eq!(rows.iter().filter_map(|row| row["unread_bytes"].as_u64()).sum::<u64>(), peer.held());
    assert!(peer.process.stderr_so_far().iter().any(|line| line.contains("see door-memory")));
    // Who was there first can end what it has begun.
    let first = &mut clients[0];
    let command = first.protocol.publish("a", payload(0));
    first.send(&command[command.len() - LEFT..]);
    assert_eq!(subscriber.message().1.len(), payload(0).len());
    drop(clients);
    eventually("nothing is held", || peer.held() == 0);
}

#[test]
fn who_reads_loses_nothing_when_others_hold_as_much_as_they_may() {
    const SLEEPERS: usize = 12;
    let peer = peer();
    let sleepers: Vec<Talk> = (0..SLEEPERS)
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
    assert!(peer.held() <= MEMORY, "{}", peer.held());
    let gone = evicted(&peer);
    assert!((1..=SLEEPERS as u64 - 3).contains(&gone), "{gone}");
    let left = peer.rows("clients").iter().filter(|row| row["dropped"] != 0).count() as u64;
    assert!(left <= SLEEPERS as u64 - gone, "only sleepers lose anything: {left}");
    drop(sleepers);
}
