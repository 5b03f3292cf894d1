//! The local socket of a running peer: attached programs, and the treatment of misbehaving ones.

use crate::support::bus::{PATIENCE, config_with_socket, message, messages, serve, two_configs, wait_for};
use crate::support::wait::wait_until;
use bytes::BytesMut;
use seqcast::bus::{
    Bus, DropRule, EmbeddedPeer, Notice, OpenError, Options, PublishError, RecvError, RefusalReason, RequestError,
    RequestOptions, Selection, SubscribeError, SubscribeOptions, Subscription, WaitError,
};
use seqcast::daemon::clock::Clock;
use seqcast::listener::frame::{ByeReason, ClientFrame, PeerFrame, VERSION, Welcome};
use seqcast::listener::local::{ClientEndpoint, PeerEndpoint};
use seqcast::listener::refusal::RequestRefusal;
use seqcast::listener::session_request::ReceiverCondition;
use seqcast::message::{Delivery, DeliveryMode, Headers, Message, SubId};
use seqcast::proto::pace::Pace;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A handwritten client: it sends and reads only as the test commands.
struct Raw {
    stream: UnixStream,
    caller: ClientEndpoint,
}

impl Raw {
    fn connect(path: &Path) -> Raw {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Raw { stream, caller: ClientEndpoint::new() }
    }

    fn greeted(path: &Path) -> Raw {
        let mut raw = Raw::connect(path);
        raw.send(&ClientFrame::Hello { version: VERSION, name: "raw".into() });
        assert!(matches!(raw.next(), Some(PeerFrame::Welcome(_))));
        raw
    }

    fn send(&mut self, frame: &ClientFrame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    fn subscribe(&mut self, sub: u32, pattern: &str) {
        self.send_subscribe(sub, pattern, None, None, false);
        assert_eq!(self.next(), Some(PeerFrame::Subscribed { sub: SubId(sub) }));
    }

    fn send_subscribe(&mut self, sub: u32, pattern: &str, queue: Option<&str>, mode: Option<DeliveryMode>, news: bool) {
        let (pattern, queue) = (pattern.parse().unwrap(), queue.map(|name| name.parse().unwrap()));
        self.send(&ClientFrame::Subscribe { sub: SubId(sub), pattern, queue, mode, news });
    }

    /// Returns the next frame; `None` at the end of the connection.
    fn next(&mut self) -> Option<PeerFrame> {
        let mut bytes = [0u8; 65_536];
        loop {
            if let Some(frame) = self.caller.poll_frame().unwrap() {
                return Some(frame);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.caller.push(&bytes[..count]),
                // A connection that is closed with bytes unread ends like this.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn attached_and_embedded_programs_reach_each_other() {
    let (config, _directory) = config_with_socket("hear");
    let embedded = serve(&config);
    let (a, b) = (Bus::attach(&config.socket).unwrap(), Bus::attach_as(&config.socket, "bee").unwrap());
    assert_eq!(a.info().epoch, embedded.info().epoch);
    assert_eq!((a.info().port, a.info().peer.as_str()), (config.port, "hear"));
    let all = [&embedded, &a, &b];
    let subscriptions = all.map(|bus| bus.subscribe_all(["x.*", "x.>"].map(|p| p.parse().unwrap())).unwrap());
    for (index, bus) in all.into_iter().enumerate() {
        bus.publish(message(&format!("x.{index}"), "hello")).unwrap();
        bus.flush(PATIENCE).unwrap();
    }
    for subscription in &subscriptions {
        let subjects: Vec<String> =
            messages(subscription, 3).iter().map(|delivery| delivery.message.subject.to_string()).collect();
        assert_eq!(subjects, ["x.0", "x.1", "x.2"]);
    }
    let clients = a.show("clients").unwrap();
    let names: Vec<&str> =
        clients["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!((names[0], names[2]), ("embedded", "bee"));
    assert_eq!(clients["rows"][1]["pid"], std::process::id());
    drop(subscriptions);
    wait_until("the subscriptions end", || a.show("subs").unwrap()["rows"].as_array().unwrap().is_empty());
    drop(b);
    wait_until("the client is gone", || a.show("clients").unwrap()["rows"].as_array().unwrap().len() == 2);
}

#[test]
fn requests_cross_two_peers_between_attached_programs() {
    let (config, other, _directory) = two_configs();
    let (_one, _two) = (serve(&config), serve(&other));
    let (asking, answering) = (Bus::attach(&config.socket).unwrap(), Bus::attach(&other.socket).unwrap());
    wait_for(&asking, &answering);
    wait_for(&answering, &asking);
    let questions = answering.subscribe("sum".parse().unwrap()).unwrap();
    let thread = std::thread::spawn(move || {
        let question = messages(&questions, 1).remove(0);
        answering.reply_to(&question, "42").unwrap();
        answering.flush(PATIENCE).unwrap();
        assert_eq!(answering.reply_to(&question_without_reply(), "42"), Err(PublishError::NoReplyWanted));
    });
    assert_eq!(asking.request("sum".parse().unwrap(), "6*7", PATIENCE).unwrap().message.payload, "42");
    thread.join().unwrap();
}

#[test]
fn request_without_responder_fails_unless_patient() {
    let (config, other, _directory) = two_configs();
    let (one, two) = (serve(&config), serve(&other));
    let (asking, answering) = (Bus::attach(&config.socket).unwrap(), Bus::attach(&other.socket).unwrap());
    wait_for(&one, &two);
    wait_for(&two, &one);
    for bus in [&one, &asking] {
        let knows = |pattern: &str| {
            let rows = bus.show("interest").unwrap()["rows"].as_array().unwrap().clone();
            rows.iter().any(|row| row["pattern"] == pattern)
        };
        let ask = |timeout| bus.request_many(message("sum", ""), 2, timeout);
        assert_eq!(ask(PATIENCE), Err(RequestError::NoResponders));
        let silent = answering.subscribe(">".parse().unwrap()).unwrap();
        wait_until("it is known", || knows(">"));
        assert_eq!(ask(Duration::from_millis(30)), Ok(Vec::new()), "it could answer");
        drop(silent);
        wait_until("its end is known", || !knows(">"));

        let options = RequestOptions { patient: true };
        let mut replies = bus.request_with(message("sum", "6*7"), &options, PATIENCE).unwrap();
        assert_eq!(replies.recv_timeout(Duration::from_millis(50)), Err(RequestError::Timeout));
        let questions = answering.subscribe("sum".parse().unwrap()).unwrap();
        let thread = {
            let answering = answering.clone();
            std::thread::spawn(move || {
                let question = messages(&questions, 1).remove(0);
                answering.reply_to(&question, question.message.payload.clone()).unwrap();
                assert_eq!(
                    questions.recv_timeout(Duration::from_millis(20)),
                    Err(RecvError::Empty),
                    "it is asked once"
                );
            })
        };
        let Ok(Notice::Message(reply)) = replies.recv_timeout(PATIENCE) else { panic!("no reply") };
        assert_eq!(reply.message.payload, "6*7");
        thread.join().unwrap();
        wait_until("its end is known", || !knows("sum"));
    }
}

#[test]
fn subscription_receives_each_condition_once() {
    let (config, _directory) = config_with_socket("await");
    let peer = serve(&config);
    let mut raw = Raw::greeted(&config.socket);
    raw.subscribe(1, "a");
    raw.subscribe(2, "b");
    let mut flushes = |sub, what, timeout_ms, subject: &str| {
        raw.send(&ClientFrame::Await { sub: SubId(sub), what, timeout_ms, subject: subject.parse().unwrap() });
    };
    flushes(1, ReceiverCondition::Present, 60_000, "c");
    flushes(2, ReceiverCondition::Present, 60_000, "c");
    flushes(2, ReceiverCondition::Present, 0, "c");
    flushes(1, ReceiverCondition::Absent, 60_000, "a");
    flushes(2, ReceiverCondition::Present, 60_000, "a");
    assert_eq!(raw.next(), Some(PeerFrame::Awaited { sub: SubId(2) }), "it is so already");
    raw.send(&ClientFrame::Unsubscribe { sub: SubId(1) });
    raw.send(&ClientFrame::Flush { token: 7 });
    assert_eq!(raw.next(), Some(PeerFrame::Flushed { token: 7 }));
    let somebody = peer.subscribe("c".parse().unwrap()).unwrap();
    assert_eq!(raw.next(), Some(PeerFrame::Awaited { sub: SubId(2) }));
    drop(somebody);
    let subs = || peer.show("subs").unwrap()["rows"].as_array().unwrap().len();
    wait_until("it has ended", || subs() == 1);
    raw.send(&ClientFrame::Await {
        sub: SubId(2),
        what: ReceiverCondition::Absent,
        timeout_ms: 60_000,
        subject: "c".parse().unwrap(),
    });
    assert_eq!(raw.next(), Some(PeerFrame::Awaited { sub: SubId(2) }), "as soon as the peer knows who else is there");
}

#[test]
fn queue_group_members_share_messages_across_attachments() {
    let (config, directory) = config_with_socket("share");
    let mut other = config.clone();
    other.name = "other".parse().unwrap();
    other.socket = directory.path().join("other.sock");
    let (one, two) = (serve(&config), serve(&other));
    wait_for(&one, &two);
    wait_for(&two, &one);
    let (attached, far) = (Bus::attach(&config.socket).unwrap(), Bus::attach(&other.socket).unwrap());
    let options = SubscribeOptions { queue: Some("q".parse().unwrap()), ..SubscribeOptions::default() };
    let members: Vec<Subscription> = [&one, &attached, &far]
        .map(|bus| bus.subscribe_with(["work.*", "work.>"].map(|pattern| pattern.parse().unwrap()), &options).unwrap())
        .into();
    let all = far.subscribe("work.>".parse().unwrap()).unwrap();
    let members_known = |bus: &Bus| {
        let rows = bus.show("interest").unwrap()["rows"].as_array().unwrap().clone();
        rows.iter().filter(|row| row["queue"] == "q").map(|row| row["subscriptions"].as_u64().unwrap()).sum::<u64>()
    };
    wait_until("the members are known", || (members_known(&one), members_known(&two)) == (2, 4));
    for (index, bus) in [&one, &attached, &far].into_iter().enumerate() {
        (0..200).for_each(|number| bus.publish_blocking(message("work.x", &format!("{index}.{number}"))).unwrap());
    }
    let mut expected: Vec<_> =
        messages(&all, 600).into_iter().map(|delivery| delivery.message.payload.to_vec()).collect();
    let mut got = Vec::new();
    wait_until("all the work is given out", || {
        for (index, member) in members.iter().enumerate() {
            while let Ok(Notice::Message(delivery)) = member.try_recv() {
                assert!(delivery.message.headers.is_empty(), "stamps are not for clients");
                got.push((delivery.message.payload.to_vec(), index));
            }
        }
        600 <= got.len()
    });
    for index in 0..members.len() {
        let share = got.iter().filter(|(_, member)| *member == index).count();
        assert!((120..280).contains(&share), "member {index} got {share} of 600");
    }
    let mut given: Vec<_> = got.into_iter().map(|(payload, _)| payload).collect();
    given.sort_unstable();
    expected.sort_unstable();
    assert_eq!(given, expected, "each of them once");
    let shown = attached.show("subs").unwrap();
    assert!(shown["rows"].as_array().unwrap().iter().all(|row| row["queue"] == "q" && row["mode"] == "repair"));
}

#[test]
fn poll_continues_from_a_delivered_offset() {
    let (config, directory) = config_with_socket("offsets");
    let mut other = config.clone();
    other.name = "other".parse().unwrap();
    other.socket = directory.path().join("other.sock");
    let (one, two) = (serve(&config), serve(&other));
    wait_for(&one, &two);
    wait_for(&two, &one);
    let (near, far) = (Bus::attach(&config.socket).unwrap(), Bus::attach(&other.socket).unwrap());
    let subscriptions = [&one, &near, &two, &far].map(|bus| bus.subscribe("x".parse().unwrap()).unwrap());
    (0..50).for_each(|number| near.publish_blocking(message("x", &number.to_string())).unwrap());
    let headers = Headers::from_pairs([("k", "v")]).unwrap();
    near.publish_blocking(Message { headers, ..message("x", "50") }).unwrap();
    let got = subscriptions.map(|subscription| messages(&subscription, 51));
    let offsets = |deliveries: &[Delivery]| -> Vec<u32> {
        deliveries.iter().map(|delivery| delivery.offset.expect("the publisher has told it")).collect()
    };
    let first = offsets(&got[0])[0];
    for deliveries in &got {
        assert_eq!(offsets(deliveries), (0..51).map(|number| first.wrapping_add(number)).collect::<Vec<u32>>());
    }
    let polled = far.poll(one.info().epoch, "x".parse().unwrap(), first.wrapping_add(49), PATIENCE).unwrap();
    assert_eq!(polled.answer.events[0].message, got[3][50].message);
}

#[test]
fn invalid_queue_subscription_is_refused() {
    let (mut config, _directory) = config_with_socket("refused");
    config.delivery = DeliveryMode::Live;
    let embedded = serve(&config);
    let attached = Bus::attach(&config.socket).unwrap();
    let member = SubscribeOptions { queue: Some("q".parse().unwrap()), ..SubscribeOptions::default() };
    let live = SubscribeOptions { mode: Some(DeliveryMode::Live), ..member.clone() };
    let repairing = SubscribeOptions { mode: Some(DeliveryMode::Repair), ..member.clone() };
    let late = SubscribeOptions { history: Some(Selection::default()), ..member.clone() };
    let confirmed = SubscribeOptions { confirm: true, ..member.clone() };
    for bus in [&embedded, &attached] {
        let subscribe = |options| bus.subscribe_with(["a", "b"].map(|pattern| pattern.parse().unwrap()), options);
        for (options, why) in [
            (&live, RefusalReason::QueueLive),
            (&late, RefusalReason::QueueNews),
            (&confirmed, RefusalReason::QueueNews),
        ] {
            let error = subscribe(options).unwrap_err();
            assert_eq!(error, SubscribeError::Refused(why));
            assert!(error.to_string().contains("leave out"), "{error}");
        }
        assert_eq!(bus.show("subs").unwrap()["rows"], serde_json::json!([]), "nothing is left of it");
        drop(subscribe(&repairing).unwrap());
        let _member = subscribe(&member).unwrap();
        wait_until("that of before has ended", || bus.show("subs").unwrap()["rows"].as_array().unwrap().len() == 2);
        assert_eq!(bus.show("subs").unwrap()["rows"][0]["mode"], "repair", "whatever is configured");
    }
    wait_until("all have ended", || embedded.show("subs").unwrap()["rows"] == serde_json::json!([]));
    let mut raw = Raw::greeted(&config.socket);
    raw.send_subscribe(1, "a", Some("q"), Some(DeliveryMode::Live), false);
    assert_eq!(
        raw.next(),
        Some(PeerFrame::Refused(RequestRefusal { sub: Some(SubId(1)), why: RefusalReason::QueueLive }))
    );
    raw.send_subscribe(2, "a", Some("q"), None, true);
    assert_eq!(
        raw.next(),
        Some(PeerFrame::Refused(RequestRefusal { sub: Some(SubId(2)), why: RefusalReason::QueueNews }))
    );
}

fn question_without_reply() -> seqcast::message::Delivery {
    seqcast::message::Delivery {
        message: message("a", ""),
        publisher: seqcast::message::Publisher { name: None, epoch: seqcast::message::Epoch::new(1).unwrap(), uid: 1 },
        seq: None,
        offset: None,
        verdict: seqcast::message::Verdict::Direct,
        repaired: false,
        replayed: false,
    }
}

#[test]
fn slow_client_loses_only_its_own_messages() {
    let (mut config, _directory) = config_with_socket("slow");
    config.client_queue_count = 500;
    config.client_queue_size = 1 << 20;
    let peer = serve(&config);
    let quick = Bus::attach_as(&config.socket, "quick").unwrap();
    let subscription = quick.subscribe("x".parse().unwrap()).unwrap();
    let mut slow = Raw::greeted(&config.socket);
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
            // The quick one has a queue of 500 too: give it the time that the slow one does not use.
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
                assert_eq!(delivery.message.payload[..4], next.to_be_bytes(), "what is missing was told before");
                next += 1;
            }
            PeerFrame::MessageRun { subs, deliveries } => {
                assert_eq!(subs, [SubId(7), SubId(8)], "one frame names both subscriptions");
                for delivery in deliveries {
                    assert_eq!(delivery.message.payload[..4], next.to_be_bytes(), "what is missing was told before");
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
    let back = loop {
        match bus.publish_timeout(big.clone(), Duration::from_millis(20)) {
            Ok(()) => {}
            Err(PublishError::Full(back)) => break back,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(*back, big, "the message comes back");
    wait_until("it is full", || matches!(bus.publish(big.clone()), Err(PublishError::Full(_))));
    // It was full a moment ago; a message on its way to the socket may have left room for another one since.
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

fn welcome(version: u16) -> PeerFrame {
    PeerFrame::Welcome(Welcome {
        version,
        peer: "fake".parse().unwrap(),
        epoch: seqcast::message::Epoch::new(1).unwrap(),
        group: 1,
        port: 1,
        client: 1,
        message_bytes_max: 1 << 20,
        software: "0".into(),
    })
}

#[test]
fn next_flush_reports_a_refused_message() {
    let (config, _directory) = config_with_socket("refuse");
    let peer = serve(&config);
    let subscription = peer.subscribe("x".parse().unwrap()).unwrap();
    let bytes_max = u64::try_from(config.message_size).unwrap();
    let mut raw = Raw::greeted(&config.socket);
    raw.send(&ClientFrame::Publish(Message::new("x".parse().unwrap(), vec![0; config.message_size + 1])));
    raw.send(&ClientFrame::Flush { token: 1 });
    let refused = RequestRefusal { sub: None, why: RefusalReason::MessageTooLarge { bytes: bytes_max + 1, bytes_max } };
    assert_eq!(raw.next(), Some(PeerFrame::Refused(refused.clone())), "the peer says so before it answers");
    assert_eq!(raw.next(), Some(PeerFrame::Flushed { token: 1 }));

    // The library refuses a message that is too large for its peer, so here the peer is a stricter one.
    let directory = crate::support::TempDir::new();
    let path = directory.path().join("fake.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let said = refused.clone();
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
                Some(ClientFrame::PublishRun(mut run)) => drop(run.publish_each(|_, _| {
                    PeerFrame::Refused(said.clone()).encode(&mut out);
                    true
                })),
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
    assert_eq!(bus.flush(PATIENCE), Err(WaitError::Refused(refused.why)));
    assert_eq!(bus.flush(PATIENCE), Ok(()), "it is told once");
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
        let mut raw = Raw::connect(&config.socket);
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

    let mut raw = Raw::greeted(&config.socket);
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
        welcome(9).encode(&mut out);
        stream.write_all(&out).unwrap();
        stream
    });
    let error = Bus::attach(&path).unwrap_err();
    assert!(matches!(error, OpenError::Incompatible { .. }));
    assert!(error.to_string().contains("version 9"), "{error}");
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
    let mute = Raw::connect(&config.socket);
    wait_until("the place is given on", || Bus::attach(&config.socket).is_ok());
    drop(mute);
}

#[test]
fn reports_have_the_documented_fields() {
    let (config, directory) = config_with_socket("show");
    let mut other = config.clone();
    other.socket = directory.path().join("other.sock");
    other.name = "other".parse().unwrap();
    let (peer, second) = (serve(&config), serve(&other));
    wait_for(&peer, &second);
    let _subscription = peer.subscribe("a.>".parse().unwrap()).unwrap();
    second.publish(message("a.b", "1")).unwrap();
    peer.publish(message("c", "1")).unwrap();
    wait_until("the message is counted", || 2 == peer.show("seqno").unwrap()["rows"].as_array().unwrap().len());
    let page = std::fs::read_to_string(crate::support::root().join("docs/local-protocol.md")).unwrap();
    let attached = Bus::attach(&config.socket).unwrap();
    wait_until("the other says what it missed", || {
        !peer.show("outbound").unwrap()["rows"].as_array().unwrap().is_empty()
    });
    let _wanted = second.subscribe("w".parse().unwrap()).unwrap();
    wait_until("what the other wants is known", || {
        !peer.show("interest").unwrap()["rows"].as_array().unwrap().is_empty()
    });
    for what in seqcast::daemon::show::REPORTS {
        let answer = attached.show(what).unwrap();
        assert_eq!(answer["show"], what);
        let object = match answer["rows"].as_array() {
            Some(rows) => rows.last().unwrap_or_else(|| panic!("{what} has no rows")),
            None => &answer[what],
        };
        let chapter = page.split("\n### ").find(|part| part.starts_with(&format!("`{what}`"))).expect(what);
        for field in object.as_object().unwrap().keys() {
            assert!(chapter.contains(&format!("`{field}`")), "docs/local-protocol.md: {what} does not name {field}");
        }
    }
    let wrong = attached.query(serde_json::json!({ "show": "history", "pattern": "a..b" })).unwrap();
    assert!(wrong["error"].as_str().unwrap().contains("empty token"), "{wrong}");
    let limited = attached.query(serde_json::json!({ "show": "history", "limit": 0 })).unwrap();
    assert_eq!((&limited["rows"], &limited["omitted"]), (&Value::Array(Vec::new()), &1.into()));
    let limited = attached.query(serde_json::json!({ "show": "seqno", "limit": 0 })).unwrap();
    assert_eq!(limited["rows"], Value::Array(Vec::new()));
    assert!(attached.show("nothing").unwrap()["error"].as_str().unwrap().contains("status, loss"));
    assert!(attached.query(Value::Null).unwrap()["error"].is_string());
}

#[test]
fn advisories_reach_attached_programs_as_json() {
    let (mut config, _directory) = config_with_socket("advice");
    // Nothing is requested again.
    config.reliability = Duration::from_millis(5);
    let options =
        Options { serve: true, drop: Some(DropRule { seed: 3, chance: 0.2, burst: 1 }), ..Options::default() };
    let _peer = Bus::embed_with(&config, &options).unwrap();
    let bus = Bus::attach(&config.socket).unwrap();
    let advisories = bus.subscribe("_RV.ERROR.SYSTEM.DATALOSS.>".parse().unwrap()).unwrap();
    let _data = bus.subscribe("x".parse().unwrap()).unwrap();
    let publisher = serve_in_group_of(&config);
    wait_for(&bus, &publisher);
    let mut told = None;
    wait_until("a loss is advised", || {
        for _ in 0..10 {
            publisher.publish_blocking(message("x", "data")).unwrap();
            publisher.flush(PATIENCE).unwrap();
        }
        while let Ok(event) = advisories.try_recv() {
            if let Notice::Message(delivery) = event {
                let json: Value = serde_json::from_slice(&delivery.message.payload).unwrap();
                if json["lost"].as_u64().is_some_and(|lost| 0 < lost) {
                    assert_eq!(delivery.message.headers.iter().collect::<Vec<_>>(), [("mtype", "A")]);
                    told = Some(json);
                }
            }
        }
        told.is_some()
    });
    let told = told.unwrap();
    assert_eq!((&told["sub1"], &told["sub_cnt"], &told["scid"]), (&"x".into(), &1.into(), &config.port.into()));
    assert_eq!(told["host"], "127.0.0.1");
    assert_eq!(told["publisher"], "source");
    assert_eq!(told["epoch"], publisher.info().epoch.to_string());
}

#[test]
fn publisher_sees_the_losses_of_others() {
    let (mut config, _directory) = config_with_socket("outbound");
    let publisher = serve(&config);
    let bus = Bus::attach(&config.socket).unwrap();
    let advisories = bus.subscribe("_RV.ERROR.SYSTEM.DATALOSS.OUTBOUND.BCAST".parse().unwrap()).unwrap();
    config.name = "lossy.receiver".parse().unwrap();
    // Nothing is requested again.
    config.reliability = Duration::from_millis(5);
    let options = Options { drop: Some(DropRule { seed: 3, chance: 0.2, burst: 1 }), ..Options::default() };
    let receiver = Bus::embed_with(&config, &options).unwrap();
    let _data = receiver.subscribe("x".parse().unwrap()).unwrap();
    wait_for(&receiver, &publisher);
    let mut told = None;
    wait_until("a loss is advised to the publisher", || {
        for _ in 0..10 {
            bus.publish_blocking(message("x", "data")).unwrap();
            bus.flush(PATIENCE).unwrap();
        }
        while let Ok(event) = advisories.try_recv() {
            if let Notice::Message(delivery) = event {
                let json: Value = serde_json::from_slice(&delivery.message.payload).unwrap();
                told = Some(json).filter(|json| json["lost"].as_u64().is_some_and(|lost| 0 < lost)).or(told.take());
            }
        }
        told.is_some()
    });
    let told = told.unwrap();
    assert_eq!((&told["ADV_NAME"], &told["reason"]), (&"DATALOSS.OUTBOUND.BCAST".into(), &"REPORTED".into()));
    assert_eq!((&told["publisher"], &told["sub_cnt"]), (&"lossy.receiver".into(), &0.into()));
    assert_eq!(told["epoch"], receiver.info().epoch.to_string());
    let rows = bus.show("outbound").unwrap()["rows"].take();
    let row = rows.as_array().unwrap().iter().find(|row| row["publisher"] == "lossy.receiver").unwrap();
    let count = |name: &str| row[name].as_u64().unwrap();
    // If a number is not certain yet, it is reported as a range.
    let most = row["lost"].as_u64().or(row["lost"]["max"].as_u64());
    assert!(told["lost"].as_u64() <= most, "{told} and {row}");
    assert!(count("repaired") == 0 && count("pending") + count("unverified") <= count("missing"), "{row}");
}

fn serve_in_group_of(config: &seqcast::config::Config) -> Bus {
    let mut config = config.clone();
    config.name = "source".parse().unwrap();
    Bus::embed(&config).unwrap()
}

#[test]
fn driven_peer_serves_other_threads() {
    let (config, _directory) = config_with_socket("threads");
    let mut embedded = EmbeddedPeer::open_with(&config, &Options { serve: true, ..Options::default() }).unwrap();
    let bus = embedded.bus();
    let path = config.socket.clone();
    let user = std::thread::spawn(move || {
        let attached = Bus::attach(path).unwrap();
        let subscription = attached.subscribe("x".parse().unwrap()).unwrap();
        bus.publish(message("x", "from a thread")).unwrap();
        messages(&subscription, 1).remove(0).message.payload
    });
    while !user.is_finished() {
        assert!(embedded.drive(Duration::from_millis(5)).unwrap());
    }
    assert_eq!(user.join().unwrap(), "from a thread");
    embedded.close().unwrap();
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
                        // It leaves in order, with everything sent; or in the middle of a frame; or without reading.
                        0 => bus.flush(PATIENCE).unwrap(),
                        1 => {
                            let mut raw = Raw::greeted(&path);
                            raw.stream.write_all(b"\0\0\x01\0\x02").unwrap();
                        }
                        _ => drop(Raw::connect(&path)),
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
    assert_eq!(publisher.flush(Duration::from_millis(200)), Err(WaitError::Timeout), "publishers are held up");
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
