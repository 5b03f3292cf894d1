//! Late join on loopback: history first, then live, with nothing missed or twice at the splice; and confirmed starts.

use crate::support::bus::{PATIENCE, config, config_with_socket, message, messages, serve, wait_for};
use crate::support::command::Place;
use crate::support::exit_code::{DONE, TIMED_OUT, USAGE};
use crate::support::wait::{let_time_pass, wait_until};
use seqcast::bus::{
    Bus, DropRule, EmbeddedPeer, JoinFailure, Joined, Notice, Options, RecvError, Selection, SubscribeOptions,
    Subscription,
};
use seqcast::config::Config;
use seqcast::message::{Delivery, LossScope, Verdict};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn named(config: &Config, name: &str) -> Config {
    let mut config = config.clone();
    config.name = name.parse().unwrap();
    config
}

fn publish(bus: &Bus, subject: &str, payloads: std::ops::Range<u32>) {
    payloads.for_each(|number| bus.publish_blocking(message(subject, &number.to_string())).unwrap());
    bus.flush(PATIENCE).unwrap();
}

fn history(newest: Option<u32>) -> SubscribeOptions {
    SubscribeOptions { history: Some(Selection { newest, age: None }), ..SubscribeOptions::default() }
}

/// Reads up to the notice that the subscription has begun.
fn replayed(subscription: &Subscription) -> (Vec<Delivery>, Joined) {
    let mut deliveries = Vec::new();
    loop {
        match subscription.recv_timeout(PATIENCE).expect("it begins in time") {
            Notice::Message(delivery) => deliveries.push(delivery),
            Notice::Joined(joined) => return (deliveries, joined),
            other => panic!("{other:?}"),
        }
    }
}

fn texts(deliveries: &[Delivery], subject: &str) -> Vec<String> {
    let of_subject = deliveries.iter().filter(|delivery| delivery.message.subject.as_str() == subject);
    of_subject.map(|delivery| String::from_utf8(delivery.message.payload.to_vec()).unwrap()).collect()
}

#[test]
fn late_subscriber_receives_history_then_new_messages() {
    let config = config("late");
    let (publisher, reader) = (Bus::embed(&named(&config, "B.pub")).unwrap(), Bus::embed(&config).unwrap());
    wait_for(&reader, &publisher);
    publish(&publisher, "x.a", 0..5);
    publish(&publisher, "x.b", 0..3);
    publish(&publisher, "y", 0..3);
    publish(&reader, "x.a", 100..102);
    let all = reader.subscribe_with(["x.>".parse().unwrap()], &history(None)).unwrap();
    let newest = reader.subscribe_with(["x.*".parse().unwrap(), "x.a".parse().unwrap()], &history(Some(2))).unwrap();
    publish(&publisher, "x.a", 5..7);
    publish(&publisher, "x.c", 0..1);
    publish(&reader, "x.a", 102..103);
    let (mut old, joined) = replayed(&all);
    assert!(
        joined.is_established() && joined.baselines.iter().all(|baseline| baseline.unjoined.is_none()),
        "{joined:?}"
    );
    assert_eq!(joined.baselines.iter().map(|b| b.publisher.uid).collect::<Vec<_>>(), [0, 1], "this peer and the other");
    assert_eq!(old.len() as u64, joined.replayed());
    assert!(old.iter().all(|delivery| delivery.replayed && !delivery.repaired && delivery.seq.is_some()));
    assert!(10 <= old.len(), "{old:?}");
    // Messages published during the join arrive from the history or live.
    let live = messages(&all, 14 - old.len());
    assert!(live.iter().all(|delivery| !delivery.replayed));
    old.extend(live);
    let by = |bus: &Bus| -> Vec<Delivery> {
        old.iter().filter(|delivery| delivery.publisher.epoch == bus.info().epoch).cloned().collect()
    };
    assert_eq!(texts(&by(&publisher), "x.a"), ["0", "1", "2", "3", "4", "5", "6"]);
    assert_eq!(texts(&by(&publisher), "x.b"), ["0", "1", "2"]);
    assert_eq!(texts(&by(&publisher), "x.c"), ["0"]);
    assert_eq!(texts(&by(&reader), "x.a"), ["100", "101", "102"]);
    let firsts = old.iter().filter(|delivery| delivery.verdict == Verdict::First).count();
    assert!(firsts <= 4, "one for each subject of each publisher: {old:?}");
    // The two newest of each subject, as of the time of the history query, and each message once.
    let (old, _) = replayed(&newest);
    assert!(texts(&old, "x.b") == ["1", "2"], "{old:?}");
    assert!(all.try_recv().is_err());
}

/// Maximum number of messages on each subject of the active publisher.
const ROUNDS_MAX: u32 = 60_000;

/// An active publisher, a receiver that loses one datagram in twenty, and subscribers that come one after the other.
#[test]
fn replay_joins_live_messages_without_gap_under_loss() {
    let mut config = config("seam");
    config.history_count = 100_000;
    // On a busy machine repairs take longer than the two seconds of the default.
    config.reliability = Duration::from_secs(30);
    let options = Options { drop: Some(DropRule { seed: 3, chance: 0.05, burst: 1 }), ..Options::default() };
    let publisher = Bus::embed(&named(&config, "B.pub")).unwrap();
    let reader = Bus::embed_with(&config, &options).unwrap();
    wait_for(&reader, &publisher);
    let (is_over, rounds, sent) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(u32::MAX));
    let await_rounds = |count| {
        let goal = ROUNDS_MAX.min(rounds.load(Ordering::Relaxed) + count);
        wait_until("the publisher goes on", || goal <= rounds.load(Ordering::Relaxed));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) && number < ROUNDS_MAX {
                for subject in 0..3 {
                    publisher.publish_blocking(message(&format!("seam.{subject}"), &number.to_string())).unwrap();
                }
                number += 1;
                rounds.store(number, Ordering::Relaxed);
                if number % 5 == 0 {
                    let_time_pass(Duration::from_millis(1), "the load has a rate that all readers can follow");
                }
            }
            publisher.flush(PATIENCE).unwrap();
            sent.store(number, Ordering::Relaxed);
        });
        let mut readers = Vec::new();
        for _ in 0..8 {
            await_rounds(200);
            let subscription = reader.subscribe_with(["seam.*".parse().unwrap()], &history(None)).unwrap();
            readers.push(scope.spawn(|| read_all(subscription, &sent)));
        }
        await_rounds(1000);
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            let (live, replayed, joined) = reader.join().unwrap();
            assert!(0 < live && 0 < replayed, "{live} live, {replayed} replayed");
            assert_eq!((joined.baselines.len(), joined.replayed()), (2, replayed), "{joined:?}");
        }
    });
}

/// Reads until each of three subjects has come to its end, one number after the other.
fn read_all(subscription: Subscription, sent: &AtomicU32) -> (u64, u64, Joined) {
    let mut next: BTreeMap<String, u32> = BTreeMap::new();
    let (mut live, mut replayed, mut joined) = (0, 0, None);
    wait_until("everything comes", || {
        while let Ok(event) = subscription.recv_timeout(Duration::from_millis(100)) {
            match event {
                Notice::Message(delivery) => {
                    *if delivery.replayed { &mut replayed } else { &mut live } += 1;
                    let next = next.entry(delivery.message.subject.to_string()).or_default();
                    assert_eq!(delivery.message.payload, next.to_string(), "{delivery:?}");
                    *next += 1;
                }
                Notice::Joined(notice) => assert!(joined.replace(notice).is_none()),
                // A gap may be reported before its messages come from the history; no message is lost.
                Notice::Loss(loss) => assert!(!matches!(loss.what, LossScope::Messages { .. }), "{loss:?}"),
                other => panic!("{other:?}"),
            }
        }
        next.len() == 3 && next.values().all(|next| *next == sent.load(Ordering::Relaxed))
    });
    (live, replayed, joined.expect("it has begun"))
}

#[test]
fn new_peer_joins_after_discovering_the_others() {
    let config = config("start");
    let publisher = Bus::embed(&named(&config, "B.pub")).unwrap();
    publish(&publisher, "x", 0..4);
    let reader = Bus::embed(&config).unwrap();
    let subscription = reader.subscribe_with(["x".parse().unwrap()], &history(None)).unwrap();
    let (old, joined) = replayed(&subscription);
    assert_eq!((texts(&old, "x").len(), joined.baselines.len()), (4, 2), "{joined:?}");
    // The subscription also queries a publisher that becomes known later and has published before.
    let confirmed = SubscribeOptions { confirm: true, ..SubscribeOptions::default() };
    let subscription = reader.subscribe_with(["x".parse().unwrap()], &confirmed).unwrap();
    let joined = subscription.wait_established(PATIENCE).unwrap().unwrap();
    assert!(joined.is_established() && joined.baselines.len() == 2 && joined.replayed() == 0, "{joined:?}");
    publish(&publisher, "x", 4..5);
    assert!(matches!(subscription.recv_timeout(PATIENCE), Ok(Notice::Joined(notice)) if notice == joined));
    assert_eq!(texts(&messages(&subscription, 1), "x"), ["4"]);
    let plain = reader.subscribe("x".parse().unwrap()).unwrap();
    assert_eq!(plain.wait_established(PATIENCE), Ok(None));
}

#[test]
fn peers_without_history_or_departed_are_named() {
    let config = config("off");
    let mut without = named(&config, "B.off");
    without.history_count = 0;
    let (publisher, reader) = (Bus::embed(&without).unwrap(), Bus::embed(&config).unwrap());
    wait_for(&reader, &publisher);
    publish(&publisher, "x", 0..3);
    // Messages in transit would be new to the subscription.
    wait_until("they have come", || reader.show("peers").unwrap()["rows"][0]["messages_in"] == 3);
    let subscription = reader.subscribe_with(["x".parse().unwrap()], &history(None)).unwrap();
    let (old, joined) = replayed(&subscription);
    assert!(old.is_empty() && joined.is_established(), "{joined:?}");
    assert!(matches!(joined.baselines[1].unjoined, Some(JoinFailure::Refused(_))), "{joined:?}");
    publish(&publisher, "x", 3..4);
    assert_eq!(texts(&messages(&subscription, 1), "x"), ["3"]);
    publisher.close();
    wait_until("it has left", || reader.show("peers").unwrap()["rows"][0]["state"] == "left");
    let subscription = reader.subscribe_with(["x".parse().unwrap()], &history(None)).unwrap();
    assert_eq!(replayed(&subscription).1.baselines.len(), 1, "only this peer is left");
}

#[test]
fn driven_peer_joins_without_waiting() {
    let config = config("driven");
    let publisher = Bus::embed(&named(&config, "B.pub")).unwrap();
    publish(&publisher, "x", 0..4);
    let mut reader = EmbeddedPeer::open(&config).unwrap();
    let subscription = reader.subscribe_with("x".parse().unwrap(), &history(Some(3))).unwrap();
    let mut old = Vec::new();
    wait_until("the history comes", || {
        reader.drive(Duration::from_millis(1)).unwrap();
        match subscription.try_recv() {
            Ok(Notice::Message(delivery)) => old.push(delivery),
            Ok(Notice::Joined(_)) => return true,
            Ok(other) => panic!("{other:?}"),
            Err(_) => {}
        }
        false
    });
    assert_eq!(texts(&old, "x"), ["1", "2", "3"]);
}

#[test]
fn waiting_reader_does_not_block_others() {
    let bus = Bus::embed(&config("readers")).unwrap();
    let confirmed = SubscribeOptions { confirm: true, ..SubscribeOptions::default() };
    let subscription = bus.subscribe_with(["x".parse().unwrap()], &confirmed).unwrap();
    let (begun, waiting) = std::sync::mpsc::sync_channel(64);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (subscription, begun) = (&subscription, begun.clone());
                scope.spawn(move || {
                    let mut messages = 0;
                    begun.send(()).unwrap();
                    loop {
                        match subscription.recv().unwrap() {
                            Notice::Message(delivery) if delivery.message.payload == "end" => return messages,
                            Notice::Message(_) => messages += 1,
                            Notice::Joined(_) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        (0..2).for_each(|_| waiting.recv().unwrap());
        // Both readers wait for the first message, while this thread waits for the confirmed start.
        assert!(subscription.wait_established(PATIENCE).unwrap().unwrap().is_established());
        assert!(matches!(subscription.try_recv(), Err(RecvError::Empty) | Ok(Notice::Joined(_))));
        publish(&bus, "x", 0..1000);
        (0..2).for_each(|_| bus.publish_blocking(message("x", "end")).unwrap());
        assert_eq!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u32>(), 1000);
    });
}

#[test]
fn attached_program_joins_late() {
    let (config, _directory) = config_with_socket("attached");
    let publisher = Bus::embed(&named(&config, "B.pub")).unwrap();
    let peer = serve(&config);
    wait_for(&peer, &publisher);
    publish(&publisher, "x", 0..3000);
    let bus = Bus::attach(&config.socket).unwrap();
    let subscription = bus.subscribe_with(["x".parse().unwrap()], &history(Some(500))).unwrap();
    let (old, _) = replayed(&subscription);
    assert_eq!((old.len(), texts(&old, "x").first().map(String::as_str)), (500, Some("2500")));
    // The subscription can be read before all messages have arrived.
    peer.close();
    assert!(subscription.recv().is_none());
}

#[test]
fn sub_prints_history_and_confirms() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "B.test"]);
    place.run(&["pub", "x.y", "n{{count}}", "--count", "5"]).exits(DONE);
    place
        .run(&["sub", "x.y", "--history", "3", "--count", "3", "--wait", "30s"])
        .exits(DONE)
        .prints("x.y  n3\nx.y  n4\nx.y  n5\n");
    let outcome =
        place.run(&["sub", "x.y", "--history", "1", "--confirm", "--json", "--wait", "1500ms"]).exits(TIMED_OUT);
    let lines: Vec<serde_json::Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["payload"], &lines[0]["replayed"]), (&"n5".into(), &true.into()));
    assert_eq!((&lines[1]["type"], &lines[1]["publishers"][0]["replayed"]), (&"joined".into(), &1.into()));
    place
        .run(&["sub", "x", "--confirm", "--wait", "1500ms"])
        .exits(TIMED_OUT)
        .reports(&["joined 1 publisher, 0 messages"]);
    place.run(&["sub", "x", "--history", "0"]).exits(USAGE).reports(&["--history", "from 1"]);
    place.run(&["sub", "x", "--history", "soon"]).exits(USAGE).reports(&["'all'", "10 min"]);
}
