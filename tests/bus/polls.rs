//! Polls of a publisher's history by real peers on loopback (seed 000): embedded, attached and driven clients.

use crate::support::bus::{PATIENCE, config, config_with_socket, message, serve, wait_for};
use crate::support::command::Place;
use crate::support::exit_code::{DONE, FAILED, TIMED_OUT, UNREACHABLE, USAGE};
use crate::support::wait::wait_until;
use bytes::Bytes;
use seqcast::bus::{Bus, EmbeddedPeer, HistoryError, Poll, PollResult, Question, Refused, Selection, SubscribeOptions};
use seqcast::config::Config;
use seqcast::message::{DeliveryMode, Epoch, PeerRef};
use seqcast::offset::{PollCase, PollReply, Tracker, TrackerAction};
use seqcast::subject::Subject;
use std::time::Duration;

/// Starts two peers of one group that know each other: a publisher and one that polls.
fn pair(name: &str) -> (Bus, Bus, Config) {
    let config = config(name);
    let (publisher, requester) = (Bus::embed(&named(&config, "B.pub")).unwrap(), Bus::embed(&config).unwrap());
    wait_for(&requester, &publisher);
    wait_for(&publisher, &requester);
    (publisher, requester, config)
}

fn named(config: &Config, name: &str) -> Config {
    let mut config = config.clone();
    config.name = name.parse().unwrap();
    config
}

fn publish(bus: &Bus, subject: &str, payloads: std::ops::Range<u32>) {
    payloads.for_each(|number| bus.publish(message(subject, &number.to_string())).unwrap());
    bus.flush(PATIENCE).unwrap();
}

fn peer(name: &str) -> PeerRef {
    name.parse().unwrap()
}

fn subject(text: &str) -> Subject {
    text.parse().unwrap()
}

/// Polls as a client of the seed does. Returns the payloads until nothing is new, and the steps that were no event.
fn follow(bus: &Bus, peer: &PeerRef, name: &str, tracker: &mut Tracker) -> (Vec<Bytes>, Vec<TrackerAction>) {
    let (mut payloads, mut steps) = (Vec::new(), Vec::new());
    loop {
        let PollResult { epoch, answer, .. } =
            bus.poll(peer.clone(), subject(name), tracker.offset(), PATIENCE).expect("an answer");
        let event = answer.events.first();
        let answered = match (answer.case, event, answer.span) {
            (PollCase::Successor, Some(event), _) => PollReply::Event { offset: event.offset, seq: event.seq },
            (PollCase::NoEvent, None, _) => PollReply::NoEvent,
            (PollCase::Recovery, None, Some(span)) => PollReply::Recovery(span),
            other => panic!("{other:?}"),
        };
        match tracker.on_answer(Some(epoch), answer.span, answered) {
            TrackerAction::Deliver { .. } => payloads.push(event.unwrap().message.payload.clone()),
            TrackerAction::Wait => return (payloads, steps),
            step => steps.push(step),
        }
    }
}

#[test]
fn poll_recovers_history_then_follows() {
    let (publisher, requester, _) = pair("recover");
    publish(&publisher, "x.a", 0..5);
    let mut tracker = Tracker::default();
    let (payloads, steps) = follow(&requester, &peer("B.pub"), "x.a", &mut tracker);
    assert_eq!(payloads, ["0", "1", "2", "3", "4"]);
    let [TrackerAction::Recover { span, lost: None }] = steps[..] else { panic!("{steps:?}") };
    assert_eq!((span.last.wrapping_sub(span.first), tracker.offset()), (4, span.last));
    assert!(!tracker.in_recovery());
    publish(&publisher, "x.a", 5..7);
    let epoch = PeerRef::Epoch(publisher.info().epoch);
    assert_eq!(follow(&requester, &epoch, "x.a", &mut tracker), (vec!["5".into(), "6".into()], vec![]));
    // The publisher's own clients get the same answers.
    let (payloads, steps) = follow(&publisher, &peer("B.pub"), "x.a", &mut Tracker::default());
    assert_eq!((payloads.len(), steps.len()), (7, 1));
}

#[test]
fn publisher_restart_is_detected() {
    let (publisher, requester, config) = pair("restart");
    publish(&publisher, "x", 0..3);
    let mut tracker = Tracker::default();
    assert_eq!(follow(&requester, &peer("B.pub"), "x", &mut tracker).0.len(), 3);
    let old = publisher.info().epoch;
    publisher.close();
    wait_until("the requester knows that it left", || {
        requester.poll(old, subject("x"), 0, PATIENCE).unwrap_err() == HistoryError::Gone
    });
    assert_eq!(requester.poll(peer("B.pub"), subject("x"), 0, PATIENCE), Err(HistoryError::Gone));
    let publisher = Bus::embed(&named(&config, "B.pub")).unwrap();
    wait_for(&requester, &publisher);
    let (payloads, steps) = follow(&requester, &peer("B.pub"), "x", &mut tracker);
    assert_eq!((payloads, steps), (vec![], vec![TrackerAction::Restart { span: None }]), "nothing was published since");
    publish(&publisher, "x", 7..9);
    let (payloads, steps) = follow(&requester, &peer("B.pub"), "x", &mut tracker);
    assert_eq!(payloads, ["7", "8"]);
    assert!(matches!(steps[..], [TrackerAction::Recover { .. }]), "{steps:?}");
}

#[test]
fn many_polls_share_one_message() {
    let (publisher, requester, _) = pair("many");
    for index in 0..100 {
        publish(&publisher, &format!("many.{index}"), 0..4);
    }
    let listed =
        requester.list_history(peer("B.pub"), &"many.*".parse().unwrap(), Selection::default(), PATIENCE).unwrap();
    assert_eq!((listed.epoch, listed.listed.len()), (publisher.info().epoch, 100));
    let newest = Selection { newest: Some(1), age: None };
    let newest = requester.list_history(peer("B.pub"), &"many.7".parse().unwrap(), newest, PATIENCE).unwrap().listed;
    assert!(newest.len() == 1 && newest[0].span.first == newest[0].span.last, "{newest:?}");
    let polls: Vec<Poll> = listed
        .listed
        .iter()
        .map(|row| Poll { subject: row.subject.clone(), offset: row.span.first, count: 2 })
        .collect();
    let polled = requester.poll_many(peer("B.pub"), &polls, PATIENCE).unwrap();
    assert_eq!(polled.len(), 100);
    for (poll, PollResult { epoch, answer, .. }) in polls.iter().zip(&polled) {
        assert_eq!(
            (*epoch, &answer.subject, answer.case),
            (publisher.info().epoch, &poll.subject, PollCase::Successor)
        );
        let payloads: Vec<&Bytes> = answer.events.iter().map(|event| &event.message.payload).collect();
        assert_eq!((payloads, answer.more), (vec![&Bytes::from("1"), &Bytes::from("2")], true));
    }
    assert_eq!(requester.poll_many(peer("B.pub"), &[], PATIENCE), Ok(vec![]));
}

#[test]
fn large_answer_is_fetched_in_parts() {
    let (publisher, requester, _) = pair("pieces");
    let polls: Vec<Poll> =
        (0..40).map(|index| Poll { subject: subject(&format!("big.{index}")), offset: 0, count: 1 }).collect();
    for poll in &polls {
        publisher.publish_blocking(seqcast::message::Message::new(poll.subject.clone(), vec![7; 40_000])).unwrap();
    }
    publisher.flush(PATIENCE).unwrap();
    let spans = requester.poll_many(peer("B.pub"), &polls, PATIENCE).unwrap();
    let polls: Vec<Poll> = spans
        .into_iter()
        .map(|PollResult { answer, .. }| Poll {
            offset: answer.span.unwrap().first.wrapping_sub(1),
            subject: answer.subject,
            count: 1,
        })
        .collect();
    let polled = requester.poll_many(peer("B.pub"), &polls, PATIENCE).unwrap();
    assert!(polled.iter().all(|polled| polled.answer.events[0].message.payload.len() == 40_000));
    assert_eq!(polled.len(), 40);
}

#[test]
fn unanswerable_poll_is_refused_with_the_reason() {
    let (publisher, requester, config) = pair("errors");
    publish(&publisher, "x", 0..2);
    let poll = |peer: PeerRef, name: &str, offset| requester.poll(peer, subject(name), offset, PATIENCE);
    assert_eq!(poll(peer("nobody"), "x", 0), Err(HistoryError::UnknownPeer));
    assert_eq!(poll(PeerRef::Epoch(Epoch::new(5).unwrap()), "x", 0), Err(HistoryError::UnknownPeer));
    let unknown = poll(peer("B.pub"), "y", 77).unwrap().answer;
    assert_eq!((unknown.case, unknown.span), (PollCase::NoEvent, None));
    let span = poll(peer("B.pub"), "x", 0).unwrap().answer.span.unwrap();
    let outside = poll(peer("B.pub"), "x", span.last.wrapping_add(1)).unwrap().answer;
    assert_eq!((outside.case, outside.span), (PollCase::Recovery, Some(span)));
    let one = Poll { subject: subject("x"), offset: 0, count: 1 };
    let too_many = vec![one.clone(); 4097];
    let refused = Err(HistoryError::Refused(Refused::TooMany));
    assert_eq!(requester.poll_many(peer("B.pub"), &too_many, PATIENCE), refused);
    assert!(requester.poll_many(peer("B.pub"), &too_many[1..], PATIENCE).is_ok());
    let nothing = requester.poll_many(peer("B.pub"), &[Poll { count: 0, ..one }], PATIENCE);
    assert_eq!(nothing, Err(HistoryError::Refused(Refused::Malformed)));
    let twin = Bus::embed(&named(&config, "B.pub")).unwrap();
    wait_for(&requester, &twin);
    assert_eq!(poll(peer("B.pub"), "x", 0), Err(HistoryError::Ambiguous));
    assert!(poll(PeerRef::Epoch(twin.info().epoch), "x", 0).is_ok());
    let mut off = named(&config, "off");
    off.history_count = 0;
    let off = Bus::embed(&off).unwrap();
    wait_for(&requester, &off);
    wait_for(&off, &requester);
    assert_eq!(poll(peer("off"), "x", 0), Err(HistoryError::Refused(Refused::Off)));
    requester.close();
    assert_eq!(requester.poll(peer("off"), subject("x"), 0, PATIENCE), Err(HistoryError::Closed));
}

#[test]
fn timeout_differs_from_departure() {
    let config = config("waits");
    let requester = Bus::embed(&config).unwrap();
    let mut silent = EmbeddedPeer::open(&named(&config, "silent")).unwrap();
    wait_until("the peers meet", || {
        silent.drive(Duration::from_millis(1)).unwrap();
        requester.show("peers").unwrap()["rows"][0]["publisher"] == "silent"
    });
    // No thread drives the peer: its sockets receive, and it does not answer.
    let poll = requester.poll(peer("silent"), subject("x"), 0, Duration::from_millis(100));
    assert_eq!(poll, Err(HistoryError::Timeout));
}

#[test]
fn attached_and_driven_clients_poll_alike() {
    let (config, _directory) = config_with_socket("attached");
    let peer_of_requester = serve(&config);
    let attached = Bus::attach(&config.socket).unwrap();
    let mut driven = EmbeddedPeer::open(&named(&config, "B.pub")).unwrap();
    driven.publish(message("x", "0")).unwrap();
    let epoch = driven.info().epoch.to_string();
    wait_until("the peers meet", || {
        driven.drive(Duration::from_millis(1)).unwrap();
        let peers = peer_of_requester.show("peers").unwrap();
        peers["rows"].as_array().unwrap().iter().any(|row| row["epoch"] == epoch && row["publisher"] == "B.pub")
    });
    let polls = vec![Poll { subject: subject("x"), offset: 0, count: 1 }];
    let pending = attached.request_history(peer("B.pub"), Question::Poll(polls.clone()), PATIENCE).unwrap();
    let mut answer = None;
    wait_until("the answer comes", || {
        driven.drive(Duration::from_millis(1)).unwrap();
        answer = answer.take().or(pending.try_recv().unwrap());
        answer.is_some()
    });
    assert_eq!(answer.unwrap().epoch, driven.info().epoch);
    assert_eq!(attached.poll(peer("nobody"), subject("x"), 0, PATIENCE), Err(HistoryError::UnknownPeer));
    publish(&attached, "y", 0..3);
    let listed = attached.list_history(peer("attached"), &">".parse().unwrap(), Selection::default(), PATIENCE);
    assert_eq!(listed.unwrap().listed.len(), 1);
    assert_eq!(follow(&attached, &peer("attached"), "y", &mut Tracker::default()).0, ["0", "1", "2"]);
    // The other way round, with this thread alone to drive the peer.
    let pending = driven.request_history(peer("attached"), Question::Poll(polls), PATIENCE).unwrap();
    wait_until("the answer comes", || {
        driven.drive(Duration::from_millis(1)).unwrap();
        pending.try_recv().unwrap().is_some()
    });
    assert_eq!(
        driven.request_history(peer("attached"), Question::Poll(vec![]), PATIENCE).unwrap_err().to_string(),
        "the question cannot be read"
    );
    driven.close().unwrap();
}

#[test]
fn delivery_mode_decides_about_missing_messages() {
    let (mut config, _directory) = config_with_socket("modes");
    config.delivery = DeliveryMode::Live;
    let embedded = serve(&config);
    let attached = Bus::attach(&config.socket).unwrap();
    for bus in [&embedded, &attached] {
        for (mode, shown) in
            [(None, "live"), (Some(DeliveryMode::Repair), "repair"), (Some(DeliveryMode::Live), "live")]
        {
            let options = SubscribeOptions { mode, ..SubscribeOptions::default() };
            let _subscription = bus.subscribe_with(["x".parse().unwrap()], &options).unwrap();
            let subs = bus.show("subs").unwrap();
            assert_eq!(subs["rows"][0]["mode"], shown, "{subs}");
            drop(_subscription);
            wait_until("it ends", || bus.show("subs").unwrap()["rows"].as_array().unwrap().is_empty());
        }
    }
}

#[test]
fn poll_command_follows_a_restarted_publisher() {
    let place = Place::new();
    let mut publisher = place.peer(&["--name", "B.test"]);
    place.run(&["pub", "x.y", "n{{count}}", "--count", "3"]).exits(DONE);
    let outcome = place.run(&["poll", "B.test", "x.y"]).exits(DONE);
    let offsets: Vec<u32> =
        outcome.stdout.lines().map(|line| line.split("  ").next().unwrap().parse().unwrap()).collect();
    let payloads: Vec<&str> = outcome.stdout.lines().map(|line| line.split("  ").nth(1).unwrap()).collect();
    assert_eq!((payloads, offsets[2]), (vec!["n1", "n2", "n3"], offsets[0].wrapping_add(2)));
    let outcome = outcome.reports(&["recovery: 3 events", "recovered up to", "3 events"]);
    assert!(outcome.stderr.contains(&format!("--offset {} continues", offsets[2])), "{outcome:?}");
    let first = offsets[0].to_string();
    place.run(&["poll", "B.test", "x.y", "--offset", &first, "--count", "1", "--raw"]).exits(DONE).prints("n2\n");
    place
        .run(&["poll", "B.test", "other", "--json"])
        .exits(DONE)
        .prints("{\"type\":\"end\",\"offset\":0,\"events\":0}\n");

    // Another peer of the group polls it over the network, and continues after its restart.
    let requester = place.start(&["poll", "B.test", "x.y", "--embed", "--name", "C.test", "--follow", "--json"]);
    let next = |kind: &str| loop {
        let line: serde_json::Value = serde_json::from_str(&requester.line()).unwrap();
        if line["type"] != "unanswered" {
            assert_eq!(line["type"], kind, "{line}");
            return line;
        }
    };
    let recovery = next("recovery");
    assert_eq!((&recovery["first"], &recovery["last"]), (&offsets[0].into(), &offsets[2].into()));
    for payload in ["n1", "n2", "n3"] {
        let event = next("event");
        assert_eq!((&event["payload"], &event["recovery"]), (&payload.into(), &true.into()));
    }
    assert_eq!(next("recovered")["offset"], offsets[2]);
    publisher.signal("TERM");
    publisher.ended();
    drop(publisher);
    let _publisher = place.peer(&["--name", "B.test"]);
    place.run(&["pub", "x.y", "new"]).exits(DONE);
    assert_ne!(next("restart")["epoch"], recovery["epoch"]);
    next("recovery");
    assert_eq!(next("event")["payload"], "new");
}

#[test]
fn poll_command_names_unknown_peers() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "B.test", "--set", "history-count=0"]);
    place
        .run(&["poll", "C.test", "x"])
        .exits(UNREACHABLE)
        .reports(&["C.test: no such peer", "fix: name one of B.test ("]);
    place.run(&["poll", "B.test", "x"]).exits(FAILED).reports(&["keeps no history", "history-count"]);
    place.run(&["poll", "B.test", "x", "--offset", "4294967296"]).exits(USAGE).reports(&["4294967296"]);
    place.run(&["poll", "B test", "x"]).exits(USAGE).reports(&["peer name"]);
    place.run(&["poll", "B.test", "x", "--wait", "1s"]).exits(USAGE).reports(&["--follow"]);
    place.run(&["poll", "C.test", "x", "--follow", "--wait", "100ms"]).exits(TIMED_OUT).reports(&["polling continues"]);
}

#[test]
fn poll_by_request_is_answered() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "B.test"]);
    place.run(&["pub", "x.y", "hi"]).exits(DONE);
    let request = |arguments: &[&str]| -> serde_json::Value {
        let outcome = place.run(&[&["req", "--json"], arguments].concat()).exits(DONE);
        serde_json::from_str(&outcome.stdout).unwrap()
    };
    let recovery = request(&["_POLL.B_test.x.y"]);
    assert_eq!(recovery["headers"]["Seqcast-Case"], "recovery");
    let first: u32 = recovery["headers"]["Seqcast-First"].as_str().unwrap().parse().unwrap();
    let event = request(&["_POLL.B_test.x.y", &first.wrapping_sub(1).to_string(), "-H", "count:5"]);
    assert_eq!((&event["payload"], &event["headers"]["Seqcast-Case"]), (&"hi".into(), &"event".into()));
    assert_eq!(request(&["_POLL.B_test.x.y", &first.to_string()])["headers"]["Seqcast-Case"], "none");
    assert_eq!(request(&["_POLL.nobody.x.y"])["headers"]["Seqcast-Error"], "unknown-peer");
}
