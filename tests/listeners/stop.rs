//! Peers that end, in order or by a kill.

use super::Peer;
use super::client::{Nats, Protocol, Redis};
use crate::support::bus::PATIENCE;
use crate::support::command::{Place, now};

#[test]
fn stop_is_announced_after_queued_output() {
    const COUNT: usize = 20_000;
    let mut peer = Peer::start(&[]);
    let mut subscribers = Protocol::ALL.map(|protocol| {
        let mut subscriber = peer.client(protocol);
        subscriber.subscribe("last", 1);
        subscriber
    });
    let mut publisher = peer.client(Nats);
    let messages: Vec<u8> = (0..COUNT).flat_map(|number| Nats.publish("last", format!("{number:0100}"))).collect();
    publisher.send(messages);
    publisher.settle();
    peer.process.signal("TERM");
    let info = publisher.line();
    assert!(info.starts_with("INFO {") && info.contains("\"ldm\":true"), "{info}");
    for subscriber in &mut subscribers {
        for number in 0..COUNT {
            assert_eq!(subscriber.message().1, format!("{number:0100}").into_bytes());
        }
    }
    let [nats, redis] = &mut subscribers;
    let rest = nats.rest();
    assert!(rest.starts_with("INFO {") && rest.contains("\"ldm\":true") && rest.ends_with("}\x20\r\n"), "{rest}");
    assert_eq!(redis.rest(), "");
    assert_eq!(publisher.rest(), "");
    assert_eq!(peer.process.ended().code(), Some(0));
}

#[test]
fn slow_client_does_not_delay_a_stop() {
    let mut peer = Peer::start(&[]);
    let mut sleeper = peer.client(Redis);
    sleeper.subscribe("much", 1);
    let mut publisher = peer.client(Nats);
    for _ in 0..200 {
        publisher.send(Nats.publish("much", vec![b'x'; 64 << 10]));
    }
    publisher.settle();
    let begun = now();
    peer.process.signal("TERM");
    assert_eq!(peer.process.ended().code(), Some(0));
    assert!(now().since(begun) < PATIENCE / 2, "a stop takes seconds");
    let lines = peer.process.stderr_so_far();
    assert!(lines.iter().any(|line| line.contains("stopped before the clients had read all")), "{lines:?}");
    assert!(sleeper.rest().contains("much"));
}

#[test]
fn killed_peer_restarts_at_the_same_ports() {
    // Ports that the system never assigns by itself.
    let ports = [Place::new().port(), Place::new().port()];
    let peer = Peer::start_at(Place::new(), ports, &[]);
    let mut clients = Protocol::ALL.map(|protocol| peer.client(protocol));
    let Peer { place, mut process, .. } = peer;
    process.signal("KILL");
    process.ended();
    for client in &mut clients {
        assert_eq!(client.rest(), "");
    }
    // The other ends are still open.
    let peer = Peer::start_at(place, ports, &[]);
    assert_eq!(peer.ports, ports);
    for protocol in Protocol::ALL {
        peer.client(protocol).settle();
    }
    drop(clients);
}
