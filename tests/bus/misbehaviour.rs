//! The treatment of slow, silent and misbehaving programs at the local socket, and the end of a peer.

use super::raw_client::{RawClient, welcome};
use crate::support::bus::{PATIENCE, config_with_socket, message, messages, serve, wait_for};
use crate::support::wait::wait_until;
use bytes::BytesMut;
use seqcast::bus::{Bus, OpenError, Options, PublishError, RecvError, RefusalReason, SubscribeError, WaitError};
use seqcast::clock::Clock;
use seqcast::listener::frame::{ByeReason, ClientFrame, PeerFrame, VERSION};
use seqcast::listener::local::PeerEndpoint;
use seqcast::listener::refusal::RequestRefusal;
use seqcast::message::{Message, SubId};
use seqcast::proto::pace::Pace;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn slow_client_loses_only_its_own_messages() {
    let (mut config, _directory) = config_with_socket("slow");
    config.client_queue_count = 500;
    config.client_queue_size = 1 << 20;
    let peer = serve(&config);
    let quick = Bus::attach_as(&config.socket, "quick").unwrap();
    let subscription = quick.subscribe("x".parse().unwrap()).unwrap();
    let mut slow = RawClient::greeted(&config.socket);
    slow.subscribe(7, "x");
    slow.subscribe(8, ">");
    let sent = 20_000u32;
    let reading = std::thread::spawn(move || {
        for (number, delivery) in messages(&subscription, sent as usize).iter().enumerate() {
            assert_eq!(delivery.message.payload[..4], (number as u32).to_be_bytes());
        }
    });
    for number in 0..sent {
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(100, 0);
        peer.publish_blocking(Message::new("x".parse().unwrap(), payload)).unwrap();
        if number % 200 == 199 {
            // The fast client has a queue of 500 too: give it the time that the slow client does not use.
            quick.flush(PATIENCE).unwrap();
        }
    }
    reading.join().unwrap();
    let clients = quick.show("clients").unwrap();
    let row = clients["rows"].as_array().unwrap().iter().find(|row| row["name"] == "raw").unwrap().clone();
    let counted = row["dropped"].as_u64().unwrap();
    assert!(0 < counted, "{clients}");
    let (mut next, mut dropped) = (0u32, [0u64; 2]);
    while next < sent {
        match slow.next().expect("the slow client stays connected") {
            PeerFrame::Message { subs, delivery } => {
                assert_eq!(subs, [SubId(7), SubId(8)], "one frame names both subscriptions");
                assert_eq!(delivery.message.payload[..4], next.to_be_bytes(), "what is missing was reported before");
                next += 1;
            }
            PeerFrame::MessageRun { subs, deliveries } => {
                assert_eq!(subs, [SubId(7), SubId(8)], "one frame names both subscriptions");
                for delivery in deliveries {
                    assert_eq!(
                        delivery.message.payload[..4],
                        next.to_be_bytes(),
                        "what is missing was reported before"
                    );
                    next += 1;
                }
            }
            PeerFrame::Dropped { counts } => {
                assert_eq!(counts.iter().map(|(sub, _)| *sub).collect::<Vec<_>>(), [SubId(7), SubId(8)]);
                assert_eq!(counts[0].1, counts[1].1);
                next += counts[0].1 as u32;
                dropped[0] += counts[0].1;
                dropped[1] += counts[1].1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(dropped[0] + dropped[1], counted);
}

#[test]
fn publisher_sees_full_then_closed() {
    let directory = crate::support::TempDir::new();
    let path = directory.path().join("fake.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let fake = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut listener = PeerEndpoint::new();
        let mut bytes = [0u8; 300];
        while listener.poll_frame().unwrap().is_none() {
            let count = stream.read(&mut bytes).unwrap();
            listener.push(&bytes[..count]);
        }
        let mut out = BytesMut::new();
        welcome(VERSION).encode(&mut out);
        stream.write_all(&out).unwrap();
        stream
    });
    let bus = Bus::attach(&path).unwrap();
    let stream = fake.join().unwrap();
    let big = Message::new("x".parse().unwrap(), vec![7u8; 100_000]);
    let limit = Duration::from_millis(20);
    while bus.publish_timeout(big.clone(), limit) != Err(PublishError::Full) {}
    let payload = |timeout| bus.publish_payload(&big.subject, &big.payload, timeout);
    wait_until("it is full for a payload", || payload(Duration::ZERO) == Err(PublishError::Full));
    wait_until("it is full for a message", || bus.publish(big.clone()) == Err(PublishError::Full));
    // The queue was full a moment ago; since then a message may have left it for the socket.
    let waiting = {
        let bus = bus.clone();
        std::thread::spawn(move || (0..1000).find_map(|_| bus.publish_blocking(big.clone()).err()))
    };
    drop(stream);
    assert_eq!(waiting.join().unwrap(), Some(PublishError::Closed));
    assert_eq!(bus.subscribe("x".parse().unwrap()).unwrap_err(), SubscribeError::Closed);
    assert!(bus.flush(PATIENCE).is_err());
    wait_until("the end is explained", || bus.end_reason().is_some());
}

#[test]
fn next_flush_reports_a_refused_message() {
    let (config, _directory) = config_with_socket("refuse");
    let peer = serve(&config);
    let subscription = peer.subscribe("x".parse().unwrap()).unwrap();
    let bytes_max = u64::try_from(config.message_size).unwrap();
    let mut raw = RawClient::greeted(&config.socket);
    raw.send(&ClientFrame::Publish(Message::new("x".parse().unwrap(), vec![0; config.message_size + 1])));
    raw.send(&ClientFrame::Flush { token: 1 });
    let refused =
        RequestRefusal { sub: None, reason: RefusalReason::MessageTooLarge { bytes: bytes_max + 1, bytes_max } };
    assert_eq!(raw.next(), Some(PeerFrame::Refused(refused.clone())), "the peer says so before it answers");
    assert_eq!(raw.next(), Some(PeerFrame::Flushed { token: 1 }));

    // The library refuses a message that is too large for its peer, so here the peer is a stricter one.
    let directory = crate::support::TempDir::new();
    let path = directory.path().join("fake.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let refusal = refused.clone();
    let fake = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut listener, mut bytes) = (PeerEndpoint::new(), [0u8; 300]);
        let mut flushes = 0;
        while flushes < 2 {
            let mut out = BytesMut::new();
            match listener.poll_frame().unwrap() {
                None => {
                    let count = stream.read(&mut bytes).unwrap();
                    listener.push(&bytes[..count]);
                }
                Some(ClientFrame::Hello { .. }) => welcome(VERSION).encode(&mut out),
                Some(ClientFrame::PublishRun(mut run)) => {
                    while run.publish_next(|_, _| true).is_some() {
                        PeerFrame::Refused(refusal.clone()).encode(&mut out);
                    }
                }
                Some(ClientFrame::Flush { token }) => {
                    flushes += 1;
                    PeerFrame::Flushed { token }.encode(&mut out);
                }
                Some(other) => panic!("{other:?}"),
            }
            stream.write_all(&out).unwrap();
        }
    });
    let bus = Bus::attach(&path).unwrap();
    bus.publish(message("x", "1")).unwrap();
    bus.publish(message("x", "2")).unwrap();
    assert_eq!(bus.flush(PATIENCE), Err(WaitError::Refused(refused.reason)));
    assert_eq!(bus.flush(PATIENCE), Ok(()), "it is reported once");
    fake.join().unwrap();
    assert_eq!(subscription.try_recv(), Err(RecvError::Empty));
}

#[test]
fn stopping_peer_notifies_attached_programs() {
    let (config, _directory) = config_with_socket("stop");
    let peer = serve(&config);
    let bus = Bus::attach(&config.socket).unwrap();
    let subscription = bus.subscribe("x".parse().unwrap()).unwrap();
    bus.publish(message("x", "1")).unwrap();
    bus.flush(PATIENCE).unwrap();
    peer.close();
    assert_eq!(messages(&subscription, 1)[0].message.payload, "1");
    assert_eq!(subscription.recv(), None);
    assert_eq!(bus.end_reason().as_deref(), Some("the peer is stopping"));
    assert_eq!(bus.publish(message("x", "2")), Err(PublishError::Closed));
    assert!(!config.socket.exists(), "the socket goes with its peer");
    let error = Bus::attach(&config.socket).unwrap_err();
    assert!(matches!(error, OpenError::NoPeer { .. }));
    assert!(error.to_string().contains("seqcast peer"), "{error}");
}

#[test]
fn second_peer_on_one_socket_is_refused() {
    let (config, _directory) = config_with_socket("mode");
    drop(UnixListener::bind(&config.socket).unwrap());
    let peer = serve(&config);
    assert_eq!(std::fs::metadata(&config.socket).unwrap().permissions().mode() & 0o777, 0o660);
    let second = Bus::embed_with(&config, &Options { serve: true, ..Options::default() }).unwrap_err().to_string();
    assert!(second.contains("a peer is already running at") && second.contains("use --socket"), "{second}");
    assert!(Bus::attach(&config.socket).is_ok(), "the first one goes on");
    drop(peer);
}

#[test]
fn protocol_violations_are_refused_with_a_reason() {
    let (config, _directory) = config_with_socket("rude");
    let peer = serve(&config);
    let subscription = peer.subscribe("x".parse().unwrap()).unwrap();
    let farewell = |bytes: &[u8]| {
        let mut raw = RawClient::connect(&config.socket);
        raw.stream.write_all(bytes).unwrap();
        let Some(PeerFrame::Bye { reason, text }) = raw.next() else { panic!("no BYE for {bytes:?}") };
        assert_eq!(raw.next(), None);
        (reason, text)
    };
    assert_eq!(farewell(b"GET / HTTP/1.1\r\n\r\n").0, ByeReason::Malformed);
    assert_eq!(farewell(b"\0\0\0\x09\x06\0\0\0\0\0\0\0\x01").0, ByeReason::ProtocolViolation);
    let mut hello = BytesMut::new();
    ClientFrame::Hello { version: VERSION + 1, name: "new".into() }.encode(&mut hello);
    let (reason, text) = farewell(&hello);
    assert_eq!(reason, ByeReason::Incompatible);
    assert!(text.contains("install the same version"), "{text}");

    let mut raw = RawClient::greeted(&config.socket);
    raw.subscribe(1, "x");
    raw.stream.write_all(b"\0\0\0\x02\x7f\0").unwrap();
    assert!(matches!(raw.next(), Some(PeerFrame::Bye { reason: ByeReason::Malformed, .. })));
    wait_until("its subscription ends", || peer.show("subs").unwrap()["rows"].as_array().unwrap().len() == 1);
    peer.publish(message("x", "still here")).unwrap();
    assert_eq!(messages(&subscription, 1)[0].message.payload, "still here");
}

#[test]
fn peer_of_another_version_is_named() {
    let directory = crate::support::TempDir::new();
    let path = directory.path().join("fake.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let fake = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut out = BytesMut::new();
        welcome(VERSION + 1).encode(&mut out);
        stream.write_all(&out).unwrap();
        stream
    });
    let error = Bus::attach(&path).unwrap_err();
    assert!(matches!(error, OpenError::Incompatible { .. }));
    assert!(error.to_string().contains(&format!("version {}", VERSION + 1)), "{error}");
    drop(fake.join().unwrap());
}

#[test]
fn excess_clients_and_subscriptions_name_their_key() {
    let (mut config, _directory) = config_with_socket("many");
    config.client_max = 2;
    config.client_subscriptions_max = 2;
    let _peer = serve(&config);
    let bus = Bus::attach(&config.socket).unwrap();
    let error = Bus::attach(&config.socket).unwrap_err();
    assert!(matches!(&error, OpenError::Refused(text) if text.contains("client-max")), "{error}");
    let _kept: Vec<_> = (0..2).map(|_| bus.subscribe("x".parse().unwrap()).unwrap()).collect();
    let refused = bus.subscribe("x".parse().unwrap()).unwrap_err();
    assert_eq!(refused, SubscribeError::Refused(RefusalReason::TooManySubscriptions { max: 2 }));
}

#[test]
fn silent_program_frees_its_slot() {
    let (mut config, _directory) = config_with_socket("mute");
    config.client_max = 2;
    let _peer = serve(&config);
    let mute = RawClient::connect(&config.socket);
    wait_until("the place is given on", || Bus::attach(&config.socket).is_ok());
    drop(mute);
}

#[test]
fn departed_clients_leave_nothing_behind() {
    let (config, _directory) = config_with_socket("churn");
    let peer = serve(&config);
    let witness = peer.subscribe("keep".parse().unwrap()).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let path = config.socket.clone();
            std::thread::spawn(move || {
                for round in 0..25 {
                    let bus = Bus::attach_as(&path, "guest").unwrap();
                    let subscription = bus.subscribe("churn.>".parse().unwrap()).unwrap();
                    bus.publish(message(&format!("churn.{thread}"), "x")).unwrap();
                    bus.publish(message("keep", "x")).unwrap();
                    match round % 3 {
                        // The client leaves after all its output, in the middle of a frame, or without reading.
                        0 => bus.flush(PATIENCE).unwrap(),
                        1 => {
                            let mut raw = RawClient::greeted(&path);
                            raw.stream.write_all(b"\0\0\x01\0\x02").unwrap();
                        }
                        _ => drop(RawClient::connect(&path)),
                    }
                    drop(subscription);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(messages(&witness, 100).len(), 100, "what was published before leaving has arrived");
    let rows = |what: &str| peer.show(what).unwrap()["rows"].as_array().unwrap().len();
    wait_until("only the embedded client is left", || rows("clients") == 1 && rows("subs") == 1);
}

/// Publishes more than the network may carry in minutes.
fn publish_too_much(bus: &Bus) {
    (0..8).for_each(|_| drop(bus.publish(Message::new("much".parse().unwrap(), vec![7u8; 1 << 20]))));
}

#[test]
fn idle_client_is_served_while_publishers_wait() {
    let (mut config, _directory) = config_with_socket("wait");
    config.pace = Pace::Rate(20_000);
    let peer = serve(&config);
    let publisher = Bus::attach(&config.socket).unwrap();
    publish_too_much(&publisher);
    publish_too_much(&peer);
    assert_eq!(publisher.flush(Duration::from_millis(200)), Err(WaitError::Timeout), "publishers are blocked");
    let other = Bus::attach(&config.socket).unwrap();
    for bus in [&other, &peer] {
        let subscription = bus.subscribe("x".parse().unwrap()).unwrap();
        assert!(bus.show("status").unwrap()["status"]["epoch"].is_string());
        drop(subscription);
    }
    // A stop does not wait for minutes either.
    let start = Clock::now().instant;
    peer.close();
    assert!(Clock::now().instant.since(start) < Duration::from_secs(10));
}

#[test]
fn backpressured_publishers_take_turns() {
    let (mut config, _directory) = config_with_socket("turns");
    config.pace = Pace::Rate(2_000_000);
    let peer = serve(&config);
    let is_over = Arc::new(AtomicBool::new(false));
    let publishing = ["low", "high"].map(|name| {
        let (bus, is_over) = (Bus::attach_as(&config.socket, name).unwrap(), is_over.clone());
        std::thread::spawn(move || {
            let message = Message::new("turn".parse().unwrap(), vec![7u8; 1000]);
            while !is_over.load(Ordering::Relaxed) {
                drop(bus.publish_timeout(message.clone(), Duration::from_millis(20)));
            }
        })
    });
    let published = |name: &str| {
        let clients = peer.show("clients").unwrap();
        let row = clients["rows"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
        row["published"].as_u64().unwrap()
    };
    wait_until("both have published", || 1000 < published("low") && 1000 < published("high"));
    let ratio = published("high") as f64 / published("low") as f64;
    assert!((0.2..5.0).contains(&ratio), "{ratio}");
    // Messages published before a flush leave, though other clients keep publishing.
    let flushing = Bus::attach(&config.socket).unwrap();
    flushing.publish(message("flush", "me")).unwrap();
    assert_eq!(flushing.flush(PATIENCE), Ok(()));
    is_over.store(true, Ordering::Relaxed);
    for thread in publishing {
        thread.join().unwrap();
    }
}

#[test]
fn messages_published_before_a_stop_are_sent() {
    let (mut config, _directory) = config_with_socket("drain");
    config.pace = Pace::Rate(8_000_000);
    let (peer, hearer) = (Bus::embed(&config).unwrap(), Bus::embed(&config).unwrap());
    let subscription = hearer.subscribe("last".parse().unwrap()).unwrap();
    wait_for(&peer, &hearer);
    // About half a second's worth.
    (0..4000).for_each(|_| peer.publish_blocking(Message::new("last".parse().unwrap(), vec![7u8; 1000])).unwrap());
    peer.close();
    assert_eq!(messages(&subscription, 4000).len(), 4000);
}
