//! Clients that do not read while others publish.

use super::Peer;
use super::client::{ListenerClient, Nats, Protocol, Redis, command};
use crate::support::bus::PATIENCE;
use crate::support::wait::wait_until;
use serde_json::Value;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

const ADVISORY: &str = "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST";
pub(super) const SUBJECT: &str = "flood";
/// Number of messages that are published at once; a client that reads has room for them.
const BURST: usize = 10_000;
const BURSTS: usize = 100;
/// Settings with small queues, which are soon full.
pub(super) const SETTINGS: [&str; 4] =
    ["message-size=64 kb", "hold-size=1 mb", "reassembly-size=1 mb", "client-queue-size=1 mb"];

/// Starts a subscriber that reads, in a thread of its own. It reports each burst that it has read, and returns what
/// it got.
pub(super) fn reader(peer: &Peer, protocol: Protocol) -> (Receiver<()>, JoinHandle<()>) {
    let mut client = peer.client(protocol);
    client.subscribe(SUBJECT, 1);
    let (sender, receiver) = sync_channel(BURSTS);
    let read = move || {
        for number in 0..BURST * BURSTS {
            assert_eq!(client.message(), (SUBJECT.to_owned(), payload(number)));
            if (number + 1) % BURST == 0 {
                sender.send(()).expect("the test waits for it");
            }
        }
    };
    (receiver, std::thread::spawn(read))
}

fn payload(number: usize) -> Vec<u8> {
    format!("{number:016}").into_bytes()
}

/// Publishes a million small messages, no faster than the reader reads.
pub(super) fn flood(peer: &Peer, protocol: Protocol, has_read: &Receiver<()>) {
    let mut publisher = peer.client(protocol);
    for burst in 0..BURSTS {
        let numbers = burst * BURST..(burst + 1) * BURST;
        publisher.send(numbers.flat_map(|number| protocol.publish(SUBJECT, payload(number))).collect::<Vec<u8>>());
        if protocol == Redis {
            (0..BURST).for_each(|_| assert!(publisher.line().starts_with(':')));
        }
        has_read.recv_timeout(PATIENCE).expect("a client that reads gets all messages");
    }
}

/// Returns the row of the one client that has dropped messages.
fn dropper(peer: &Peer) -> Option<Value> {
    let rows = peer.rows("clients");
    let mut droppers = rows.into_iter().filter(|row| row["dropped"] != 0);
    let dropper = droppers.next();
    assert!(droppers.next().is_none(), "only the client that does not read loses messages");
    dropper
}

#[track_caller]
fn check_reported_loss(protocol: Protocol) {
    let peer = Peer::start(&SETTINGS);
    let mut sleeper = peer.client(protocol);
    sleeper.subscribe(SUBJECT, 1);
    sleeper.subscribe(ADVISORY, 2);
    let (has_read, reading) = reader(&peer, protocol);
    flood(&peer, protocol, &has_read);
    reading.join().expect("the reader got everything, in order");
    let dropped = dropper(&peer).expect("the client that does not read loses messages")["dropped"].as_u64().unwrap();
    assert_eq!(peer.count(protocol, "slow"), 1);
    // It reads again: first the queued messages, then the number of missing ones.
    let mut received = 0;
    let advisory = loop {
        let (subject, advisory) = sleeper.message();
        if subject == ADVISORY {
            break advisory;
        }
        assert_eq!((subject.as_str(), advisory), (SUBJECT, payload(received)), "in order up to the loss");
        received += 1;
    };
    let advisory: Value = serde_json::from_slice(&advisory).expect("JSON");
    assert_eq!(
        (&advisory["reason"], &advisory["sub1"], &advisory["lost1"]),
        (&"slow-client".into(), &SUBJECT.into(), &advisory["lost"])
    );
    assert_eq!(advisory["lost"], dropped, "{advisory}");
    assert_eq!(received as u64 + dropped, (BURST * BURSTS) as u64, "received + lost = published");
    // From then on it gets everything again.
    let mut publisher = peer.client(protocol);
    publisher.send(protocol.publish(SUBJECT, "after"));
    assert_eq!(sleeper.message(), (SUBJECT.to_owned(), b"after".to_vec()));
    assert_eq!(dropper(&peer).expect("it is remembered")["dropped"], dropped);
}

#[test]
fn slow_nats_client_loses_exactly_the_reported_number() {
    check_reported_loss(Nats);
}

#[test]
fn slow_redis_client_loses_exactly_the_reported_number() {
    check_reported_loss(Redis);
}

/// Returns the next message: its subject and its payload.
fn next(client: &mut ListenerClient) -> (String, String) {
    if client.protocol == Nats {
        let (subject, payload) = client.message();
        return (subject, String::from_utf8(payload).expect("text"));
    }
    let parts: usize = client.line()[1..].parse().expect("a number of parts");
    let lines: Vec<String> = (0..2 * parts).map(|_| client.line()).collect();
    (lines[2 * parts - 3].clone(), lines[2 * parts - 1].clone())
}

/// Returns a message that is large by its headers or by its payload.
fn large(protocol: Protocol) -> Vec<u8> {
    let text = "x".repeat(60_000);
    match protocol {
        Nats => {
            let headers = format!("NATS/1.0\r\nA: {text}\r\n\r\n");
            format!("HPUB {SUBJECT} {0} {0}\r\n{headers}\r\n", headers.len()).into_bytes()
        }
        Redis => Nats.publish(SUBJECT, text),
    }
}

#[track_caller]
fn has_no_more_room_with_many_subscriptions(protocol: Protocol) {
    const SUBSCRIPTIONS: usize = 2000;
    let peer = Peer::start(&SETTINGS);
    let mut sleeper = peer.client(protocol);
    match protocol {
        Nats => {
            let subs: String = (0..SUBSCRIPTIONS).map(|sid| format!("SUB {SUBJECT} {sid}\r\n")).collect();
            sleeper.send(subs);
            sleeper.settle();
        }
        Redis => {
            let globs: Vec<String> = (0..SUBSCRIPTIONS).map(|number| format!("[f{number}]lood")).collect();
            let words: Vec<&[u8]> = globs.iter().map(String::as_bytes).collect();
            sleeper.send(command(&[&[&b"PSUBSCRIBE"[..]], &words[..]].concat()));
            (0..SUBSCRIPTIONS).for_each(|_| drop(sleeper.push()));
        }
    }
    sleeper.subscribe(ADVISORY, 1_000_000);
    let mut publisher = peer.client(Nats);
    publisher.send(large(protocol));
    publisher.settle();
    let row = dropper(&peer).expect("there is no room for all of it");
    assert!(row["queued_bytes"].as_u64().unwrap() < 4 << 20, "{row}");
    // It gets the messages that there was room for, and the number of the others.
    let mut received = 0;
    let advisory = loop {
        let (subject, advisory) = next(&mut sleeper);
        if subject == ADVISORY {
            break advisory;
        }
        received += 1;
    };
    let advisory: Value = serde_json::from_str(&advisory).expect("JSON");
    assert_eq!(advisory["lost"], row["dropped"], "{advisory}");
    assert_eq!(received + advisory["lost"].as_u64().unwrap(), SUBSCRIPTIONS as u64, "received + lost = subscriptions");
    // Small ones get to all of them, in order.
    publisher.send((0..3).flat_map(|number| Nats.publish(SUBJECT, payload(number))).collect::<Vec<u8>>());
    for number in 0..3 {
        for _ in 0..SUBSCRIPTIONS {
            assert_eq!(next(&mut sleeper).1.into_bytes(), payload(number));
        }
    }
}

#[test]
fn full_nats_queue_accepts_what_fits() {
    has_no_more_room_with_many_subscriptions(Nats);
}

#[test]
fn full_redis_queue_accepts_what_fits() {
    has_no_more_room_with_many_subscriptions(Redis);
}

#[test]
fn slow_client_is_closed_if_configured() {
    let peer = Peer::start(&[&SETTINGS[..], &["slow-client=close"]].concat());
    let mut sleepers = Protocol::ALL.map(|protocol| {
        let mut sleeper = peer.client(protocol);
        sleeper.subscribe(SUBJECT, 1);
        sleeper
    });
    let (has_read, reading) = reader(&peer, Nats);
    flood(&peer, Nats, &has_read);
    reading.join().expect("the reader got everything, in order");
    for protocol in Protocol::ALL {
        assert_eq!(peer.count(protocol, "slow"), 1);
    }
    wait_until("they are gone", || peer.count(Nats, "clients") + peer.count(Redis, "clients") == 0);
    let lines = peer.process.stderr_so_far();
    assert_eq!(lines.iter().filter(|line| line.contains("client closed, as slow-client says")).count(), 2);
    for sleeper in &mut sleepers {
        // Bytes that the system had already accepted for it may still come.
        let rest = sleeper.rest();
        assert!(rest.len() < BURST * BURSTS * 16 && !rest.contains("after"));
    }
}

#[test]
fn refused_client_that_does_not_read_is_closed() {
    let peer = Peer::start(&SETTINGS);
    let mut publisher = peer.client(Nats);
    for (protocol, wrong) in [(Nats, &b"FOO\r\n"[..]), (Redis, b"*1\r\nPING\r\n")] {
        let mut sleeper = peer.client(protocol);
        sleeper.subscribe(SUBJECT, 1);
        let mut rounds = 0;
        while dropper(&peer).is_none() {
            rounds += 1;
            assert!(rounds < 100, "100 MB have room");
            publisher.send(Nats.publish(SUBJECT, vec![b'x'; 60_000]).repeat(17));
            publisher.settle();
        }
        // Its error waits behind the output that it does not read.
        sleeper.send(wrong);
        wait_until("it is gone", || peer.count(Nats, "clients") + peer.count(Redis, "clients") == 1);
        assert_eq!(peer.count(protocol, "faults"), 1);
    }
}

#[test]
fn unread_answers_are_bounded_and_delivered_later() {
    let peer = Peer::start(&SETTINGS);
    for protocol in Protocol::ALL {
        let mut client: ListenerClient = peer.client(protocol);
        client.may_stall();
        // Both protocols have this command.
        let requests = b"PING\r\n".repeat(10_000);
        // Answers wait, and no more requests are read: the client's own writing stops.
        let mut sent = 0_usize;
        while client.sends(&requests) {
            sent += 1;
            assert!(sent < 10_000, "the peer reads 600 MB of requests of a client that does not read");
        }
        let row = peer.rows("clients").into_iter().max_by_key(|row| row["queued_bytes"].as_u64()).unwrap();
        assert!(row["queued_bytes"].as_u64().unwrap() < 4 << 20, "{row}");
        peer.client(protocol).settle();
        // After it has read, it has an answer to each.
        let answer = if protocol == Nats { "PONG" } else { "+PONG" };
        (0..sent * 10_000).for_each(|_| client.expect(answer));
    }
}
