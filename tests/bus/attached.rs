//! Programs that are attached to a running peer through its local socket.

use super::raw_client::RawClient;
use crate::support::bus::{PATIENCE, config_with_socket, message, messages, serve, two_configs, wait_for};
use crate::support::wait::wait_until;
use seqcast::bus::{
    Bus, EmbeddedPeer, Notice, Options, PublishError, RecvError, RefusalReason, RequestError, RequestOptions,
    Selection, SubscribeError, SubscribeOptions, Subscription,
};
use seqcast::listener::frame::{ClientFrame, PeerFrame};
use seqcast::listener::refusal::RequestRefusal;
use seqcast::listener::session_request::ReceiverCondition;
use seqcast::message::{Delivery, DeliveryMode, Headers, Message, SubId};
use std::time::Duration;

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
    let (requester, responder) = (Bus::attach(&config.socket).unwrap(), Bus::attach(&other.socket).unwrap());
    wait_for(&requester, &responder);
    wait_for(&responder, &requester);
    let questions = responder.subscribe("sum".parse().unwrap()).unwrap();
    let thread = std::thread::spawn(move || {
        let question = messages(&questions, 1).remove(0);
        responder.reply_to(&question, "42").unwrap();
        responder.flush(PATIENCE).unwrap();
        assert_eq!(responder.reply_to(&question_without_reply(), "42"), Err(PublishError::NoReplySubject));
    });
    assert_eq!(requester.request("sum".parse().unwrap(), "6*7", PATIENCE).unwrap().message.payload, "42");
    thread.join().unwrap();
}

#[test]
fn request_without_responder_fails_unless_patient() {
    let (config, other, _directory) = two_configs();
    let (one, two) = (serve(&config), serve(&other));
    let (requester, responder) = (Bus::attach(&config.socket).unwrap(), Bus::attach(&other.socket).unwrap());
    wait_for(&one, &two);
    wait_for(&two, &one);
    for bus in [&one, &requester] {
        let knows = |pattern: &str| {
            let rows = bus.show("interest").unwrap()["rows"].as_array().unwrap().clone();
            rows.iter().any(|row| row["pattern"] == pattern)
        };
        let request = |timeout| bus.request_many(message("sum", ""), 2, timeout);
        assert_eq!(request(PATIENCE), Err(RequestError::NoResponders));
        let silent = responder.subscribe(">".parse().unwrap()).unwrap();
        wait_until("it is known", || knows(">"));
        assert_eq!(request(Duration::from_millis(30)), Ok(Vec::new()), "it could answer");
        drop(silent);
        wait_until("its end is known", || !knows(">"));

        let options = RequestOptions { patient: true };
        let mut replies = bus.request_with(message("sum", "6*7"), &options, PATIENCE).unwrap();
        assert_eq!(replies.recv_timeout(Duration::from_millis(50)), Err(RequestError::Timeout));
        let questions = responder.subscribe("sum".parse().unwrap()).unwrap();
        let thread = {
            let responder = responder.clone();
            std::thread::spawn(move || {
                let question = messages(&questions, 1).remove(0);
                responder.reply_to(&question, question.message.payload.clone()).unwrap();
                assert_eq!(
                    questions.recv_timeout(Duration::from_millis(20)),
                    Err(RecvError::Empty),
                    "the responder receives one request"
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
    let mut raw = RawClient::greeted(&config.socket);
    raw.subscribe(1, "a");
    raw.subscribe(2, "b");
    let mut flushes = |sub, condition, timeout_ms, subject: &str| {
        raw.send(&ClientFrame::Await { sub: SubId(sub), condition, timeout_ms, subject: subject.parse().unwrap() });
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
        condition: ReceiverCondition::Absent,
        timeout_ms: 60_000,
        subject: "c".parse().unwrap(),
    });
    assert_eq!(raw.next(), Some(PeerFrame::Awaited { sub: SubId(2) }), "as soon as the peer knows all other peers");
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
        deliveries.iter().map(|delivery| delivery.offset.expect("the publisher reports it")).collect()
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
    let with_history = SubscribeOptions { history: Some(Selection::default()), ..member.clone() };
    let confirmed = SubscribeOptions { confirm: true, ..member.clone() };
    for bus in [&embedded, &attached] {
        let subscribe = |options| bus.subscribe_with(["a", "b"].map(|pattern| pattern.parse().unwrap()), options);
        for (options, reason) in [
            (&live, RefusalReason::QueueLive),
            (&with_history, RefusalReason::QueueDiscovery),
            (&confirmed, RefusalReason::QueueDiscovery),
        ] {
            let error = subscribe(options).unwrap_err();
            assert_eq!(error, SubscribeError::Refused(reason));
            assert!(error.to_string().contains("leave out"), "{error}");
        }
        assert_eq!(bus.show("subs").unwrap()["rows"], serde_json::json!([]), "nothing is left of it");
        drop(subscribe(&repairing).unwrap());
        let _member = subscribe(&member).unwrap();
        wait_until("that of before has ended", || bus.show("subs").unwrap()["rows"].as_array().unwrap().len() == 2);
        assert_eq!(bus.show("subs").unwrap()["rows"][0]["mode"], "repair", "whatever is configured");
    }
    wait_until("all have ended", || embedded.show("subs").unwrap()["rows"] == serde_json::json!([]));
    let mut raw = RawClient::greeted(&config.socket);
    raw.send_subscribe(1, "a", Some("q"), Some(DeliveryMode::Live), false);
    assert_eq!(
        raw.next(),
        Some(PeerFrame::Refused(RequestRefusal { sub: Some(SubId(1)), reason: RefusalReason::QueueLive }))
    );
    raw.send_subscribe(2, "a", Some("q"), None, true);
    assert_eq!(
        raw.next(),
        Some(PeerFrame::Refused(RequestRefusal { sub: Some(SubId(2)), reason: RefusalReason::QueueDiscovery }))
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
        origin: None,
    }
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
