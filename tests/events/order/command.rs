//! `seqcast order …` from the user's view: with the store of one host and with Redis, through the bus and the
//! journal.

use crate::support::command::{Place, RunningCommand, parse_json};
use crate::support::exit_code::{DONE, FAILED, UNREACHABLE, USAGE};
use crate::support::redis_server::RedisServer;
use seqcast::event::order::stamp::{Generation, OrderStamp};
use serde_json::Value;
use std::collections::BTreeMap;

fn push(place: &Place, store: &[&str], object: &str, events: &[&str]) {
    let arguments = [&["order", "push", object, "--state", "{}"][..], events, store].concat();
    place.run(&arguments).exits(DONE).reports(&["queued"]);
}

/// Returns the next event: object and pushed data; checks that it names the one before.
#[track_caller]
fn next(tail: &RunningCommand, last: &mut BTreeMap<String, String>) -> (String, Value) {
    let line = parse_json(&tail.line());
    assert_eq!(line["type"], "event", "{line}");
    let (name, id) = (line["object"].as_str().unwrap().to_owned(), line["id"].as_str().unwrap().to_owned());
    assert_eq!(line["prev"].as_str().map(str::to_owned), last.insert(name.clone(), id), "{line}");
    (name, line["event"].clone())
}

/// Checks that pushed events are sent in order, though one worker is killed in the middle, and the next one has
/// another name.
fn check_a_round(place: &Place, store: &[&str]) {
    let _peer = place.peer(&["--set", "server-id=7"]);
    let tail = place.start(&["order", "tail", "--json"]);
    tail.await_report("listening on order/?");
    let worker = |name: &str| {
        let running = place.start(&[&["order", "work", name, "--lease", "1s", "--journal"], store].concat());
        running.await_report("sends events of type order/OBJECT");
        running
    };
    let mut last = BTreeMap::new();
    push(place, store, "work:1", &["1", "2", "3"]);
    let first = worker("w1");
    let seen: Vec<_> = (0..3).map(|_| next(&tail, &mut last)).collect();
    assert_eq!(seen, [1, 2, 3].map(|n| ("work:1".to_owned(), Value::from(n))));
    first.signal("KILL");
    drop(first);
    for n in 4..24 {
        push(place, store, &format!("work:{}", n % 2), &[&n.to_string()]);
    }
    let mut second = worker("w2");
    let mut seen: Vec<_> = (4..24).map(|_| next(&tail, &mut last)).collect();
    seen.sort_by_key(|(object, _)| object.clone());
    let of = |rest: i32| (4..24).filter(move |n| n % 2 == rest).map(move |n| (format!("work:{rest}"), Value::from(n)));
    assert_eq!(seen, of(0).chain(of(1)).collect::<Vec<_>>());
    let shown = place.run(&[&["order", "show", "work:1"], store].concat()).exits(DONE).stdout;
    assert!(shown.contains("objects queued  0\n") && shown.contains("\nwork:1 | "), "{shown}");
    second.signal("TERM");
    assert_eq!(second.ended().code(), Some(DONE));
    second.await_report("sent 20 events");
    let shown = place.run(&[&["order", "show", "work:1", "--json"], store].concat()).exits(DONE).stdout;
    let shown = parse_json(&shown);
    assert_eq!(shown["objects"][0]["last"].as_str(), last.get("work:1").map(String::as_str), "{shown}");
    // The sent events are in the journal, too, for late consumers.
    let found = place.run(&["event", "query", "order/work:1", "--json"]).exits(DONE).stdout;
    assert_eq!(found.lines().count(), 3 + 10);
}

#[test]
fn local_store_keeps_the_order() {
    check_a_round(&Place::new(), &[]);
}

#[test]
fn redis_store_keeps_the_order() {
    let place = Place::new();
    let server = RedisServer::durable(place.dir());
    let url = server.url();
    check_a_round(&place, &["--store", &url]);
}

/// A consumer that misses an event finds it in the journal.
#[test]
fn missed_event_is_fetched_from_the_journal() {
    let place = Place::new();
    let _peer = place.peer(&["--set", "server-id=7"]);
    let begin = OrderStamp::begin(Generation::new(7).unwrap());
    let stamps: Vec<OrderStamp> = std::iter::successors(Some(begin), |stamp| stamp.next()).take(10).collect();
    let envelope = |event: usize, id: usize, prev: Option<usize>| {
        let stamp = |n: usize| stamps[n].number();
        let prev = prev.map_or(String::new(), |prev| format!("\"prev\":\"{}\",", stamp(prev)));
        format!("{{\"object\":\"a\",\"id\":\"{}\",{prev}\"token\":\"{}\",\"event\":{event}}}", stamp(id), stamp(1))
    };
    // They are stored, and multicast before anybody listens.
    place.run(&["event", "add", "order/a", &envelope(1, 4, Some(2))]).exits(DONE);
    let tail = place.start(&["order", "tail", "--json", "--patience", "1s"]);
    tail.await_report("listening");
    let mut last = BTreeMap::new();
    for envelope in [envelope(0, 2, None), envelope(2, 5, Some(4))] {
        place.run(&["pub", "order.a", &envelope]).exits(DONE);
    }
    let seen: Vec<Value> = (0..3).map(|_| next(&tail, &mut last).1).collect();
    assert_eq!(seen, [0, 1, 2].map(Value::from));
    // An event that no peer has is reported as missing.
    place.run(&["pub", "order.a", &envelope(9, 8, Some(7))]).exits(DONE);
    let missing = parse_json(&tail.line());
    assert_eq!((&missing["type"], &missing["id"]), (&"missing".into(), &stamps[7].number().to_string().into()));
    assert_eq!(parse_json(&tail.line())["event"], 9);
    place.run(&["pub", "order.a", "not ordered"]).exits(DONE);
    tail.await_report("no ordered event");
}

#[test]
fn wrong_arguments_are_refused_with_a_remedy() {
    let place = Place::new();
    std::fs::write(
        place.dir().join("letter"),
        "this is somebody's letter, longer than the header of any file\n".repeat(9),
    )
    .unwrap();
    for (arguments, code, parts) in [
        (&["push", "a", "1"][..], USAGE, &["--state"][..]),
        (&["push", "", "1", "--state", ""], USAGE, &["at least one character"]),
        (&["push", "a", "1", "--state", "", "--store", "http://x"], USAGE, &["redis://", "rediss://"]),
        (&["show", "--store", "letter"], FAILED, &["letter holds other data"]),
        (
            &["show", "--store", "redis://127.0.0.1:1"],
            UNREACHABLE,
            &["127.0.0.1:1", "cannot be reached", "nothing was done"],
        ),
        (
            &["push", "a", "1", "--state", "", "--store", "redis://127.0.0.1:1", "--patience", "200ms"],
            UNREACHABLE,
            &["cannot be reached"],
        ),
        (&["work", "w"], UNREACHABLE, &["no peer answers"]),
        (&["work", "w", "--lease", "1ms"], USAGE, &["a lease is at least 100 ms"]),
    ] {
        place.run(&[&["order"], arguments].concat()).exits(code).reports(parts);
    }
    let server = RedisServer::start(place.dir(), &["--requirepass", "s3cret"]);
    let url = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let refused = place.run(&["order", "show", "--store", &url]).exits(FAILED).reports(&["credentials"]);
    assert!(!refused.stderr.contains("wrong@"), "{}", refused.stderr);
    let place = Place::new();
    place.run(&["order", "show"]).exits(FAILED).reports(&[
        "there is no shared state in",
        "order.db",
        "push or work first",
    ]);
    place.run(&["order", "show", "--store", ""]).exits(USAGE).reports(&["names no store"]);
}

/// A worker whose peer goes away ends, though it has nothing to send, and events wait for the next one.
#[test]
fn worker_without_peer_loses_nothing() {
    let place = Place::new();
    let mut peer = place.peer(&[]);
    let mut worker = place.start(&["order", "work", "w", "--lease", "500ms"]);
    worker.await_report("sends events");
    peer.signal("TERM");
    assert_eq!(peer.ended().code(), Some(DONE));
    assert_eq!(worker.ended().code(), Some(UNREACHABLE));
    worker.await_report("the peer is gone");
    push(&place, &[], "a", &["1", "2"]);
    let shown = parse_json(&place.run(&["order", "show", "--json"]).exits(DONE).stdout);
    assert_eq!((&shown["objects"][0]["object"], &shown["objects"][0]["queued"]), (&"a".into(), &2.into()), "{shown}");
    let _peer = place.peer(&[]);
    let tail = place.start(&["order", "tail", "--json"]);
    tail.await_report("listening");
    let _worker = place.start(&["order", "work", "w", "--lease", "500ms"]);
    for n in [1, 2] {
        assert_eq!(parse_json(&tail.line())["event"], n);
    }
}
