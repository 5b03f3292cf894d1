//! Clients of both listeners at one peer, and the largest message.

use super::Peer;
use super::client::{ListenerClient, Nats, Redis, command};
use crate::support::root;
use serde_json::{Value, json};
use std::process::Command;

/// Connects a client of every kind: NATS, RESP2, RESP3.
fn clients(peer: &Peer) -> [ListenerClient; 3] {
    let mut newer = peer.client(Redis);
    newer.send(b"HELLO 3\r\n");
    newer.expect("%7");
    newer.settle_after_hello();
    [peer.client(Nats), peer.client(Redis), newer]
}

#[test]
fn clients_of_both_listeners_reach_each_other() {
    let peer = Peer::start(&[]);
    let mut subscribers = clients(&peer);
    subscribers.iter_mut().for_each(|client| client.subscribe("plant.7.temp", 1));
    let mut publishers = clients(&peer);
    for (index, publisher) in publishers.iter_mut().enumerate() {
        let payload = [b"\0\r\n$5\r\nMSG ", &[index as u8][..]].concat();
        publisher.send(publisher.protocol.publish("plant.7.temp", &payload));
        if publisher.protocol == Redis {
            publisher.expect(":3");
        }
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.message(), ("plant.7.temp".into(), payload.clone()));
        }
    }
    // All see one order, whichever client publishes.
    for round in 0..100 {
        for publisher in &mut publishers {
            publisher.send(publisher.protocol.publish("plant.7.temp", round.to_string()));
        }
    }
    let orders = subscribers.map(|mut subscriber| (0..300).map(|_| subscriber.message().1).collect::<Vec<_>>());
    assert!(orders.iter().all(|order| *order == orders[0]));
}

#[test]
fn receiver_counts_include_clients_of_both_listeners() {
    let peer = Peer::start(&[]);
    let mut nats = peer.client(Nats);
    nats.subscribe("plant.*.temp", 1);
    let mut redis = peer.client(Redis);
    redis.send(command(&[b"PSUBSCRIBE", b"plant.?.t*"]));
    assert_eq!(redis.push()[0], b"psubscribe");
    let globs: Vec<_> = peer.rows("subs").iter().map(|row| row["glob"].clone()).collect();
    assert!(globs.contains(&"plant.?.t*".into()) && globs.contains(&Value::Null), "{globs:?}");
    let mut publisher = peer.client(Redis);
    publisher.send(Redis.publish("plant.7.temp", "21.5"));
    publisher.expect(":2");
    assert_eq!(nats.message(), ("plant.7.temp".into(), b"21.5".into()));
    for text in ["*4", "$8", "pmessage", "$10", "plant.?.t*", "$12", "plant.7.temp", "$4", "21.5"] {
        redis.expect(text);
    }
    publisher.send(b"PUBSUB NUMPAT\r\nPUBSUB NUMSUB plant.7.temp\r\n");
    for text in [":2", "*2", "$12", "plant.7.temp", ":2"] {
        publisher.expect(text);
    }
    // A request that a Redis client cannot answer, while there is no other responder.
    let mut requester = peer.client(Nats);
    requester.subscribe("reply.1", 7);
    requester.send(b"PUB nobody.there reply.1 1\r\nx\r\n");
    requester.expect("HMSG reply.1 7 16 16");
    requester.expect("NATS/1.0 503");
}

/// nats-core reads every field of INFO that nats-server sends, and does not connect without `go`.
#[test]
fn nats_core_publishes_subscribes_and_requests() {
    let peer = Peer::start(&[]);
    let installed = root().join("target/clients");
    let mut command = Command::new(installed.join("python/bin/python3"));
    command.arg(root().join("tests/clients/nats_core.py")).arg(format!("nats://127.0.0.1:{}", peer.port(Nats)));
    let output = command.env("PYTHONPATH", installed.join("nats-core")).output().expect("tools/test installs it");
    let text = String::from_utf8_lossy(&output.stdout);
    let parsed: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let expected = json!({ "data": "hello", "from": "core", "response": "re:ping", "nobody": "no responders" });
    assert_eq!(parsed, expected);
}

#[test]
fn no_echo_request_without_others_gets_503() {
    let peer = Peer::start(&[]);
    let mut client = peer.connect(Nats);
    client.line();
    client.send(b"CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true,\"echo\":false}\r\n");
    for (sid, subject) in ["reply.1", "work", "work q"].iter().enumerate() {
        client.send(format!("SUB {subject} {sid}\r\n"));
    }
    client.settle();
    let request = b"PUB work reply.1 1\r\nx\r\n";
    client.send(request);
    client.expect("HMSG reply.1 0 16 16");
    for text in ["NATS/1.0 503", "", ""] {
        client.expect(text);
    }
    // A member of its group gets every one of its messages.
    let mut other = peer.client(Nats);
    other.send(b"SUB work q 1\r\n");
    other.settle();
    for _ in 0..50 {
        client.send(request);
        assert_eq!(other.message(), ("work".into(), b"x".into()));
    }
    client.settle();
}

#[test]
fn largest_message_passes_and_one_byte_more_fails() {
    const BYTES: usize = 64 << 10;
    const NATS_BYTES: usize = BYTES - 255;
    let peer = Peer::start(&["message-size=64 kb"]);
    let mut info = peer.connect(Nats);
    let line = info.line();
    assert!(line.contains("\"max_payload\":65281"), "{line}");
    let mut subscribers = clients(&peer);
    subscribers.iter_mut().for_each(|client| client.subscribe("large", 1));
    for (protocol, bytes_max) in [(Nats, NATS_BYTES), (Redis, BYTES)] {
        for bytes in [bytes_max - 1, bytes_max] {
            let mut publisher = peer.client(protocol);
            publisher.send(protocol.publish("large", vec![b'x'; bytes]));
            if protocol == Redis {
                publisher.expect(":3");
            }
            for subscriber in &mut subscribers {
                assert_eq!(subscriber.message().1.len(), bytes);
            }
            publisher.settle();
        }
        let mut publisher = peer.client(protocol);
        publisher.try_send(protocol.publish("large", vec![b'x'; bytes_max + 1]));
        let error = match protocol {
            Nats => "-ERR 'Maximum Payload Violation'\r\n",
            Redis => "-ERR Protocol error: invalid bulk length\r\n",
        };
        assert_eq!(publisher.rest(), error);
    }
    // The reply subject is part of the message; there is room for the longest one.
    let mut requester = peer.client(Nats);
    let (reply, rest) = ("r".repeat(255), NATS_BYTES);
    requester.send([format!("PUB large {reply} {rest}\r\n").as_bytes(), &vec![b'x'; rest], b"\r\n"].concat());
    requester.settle();
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.message().1.len(), rest);
    }
}
