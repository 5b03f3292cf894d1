//! Event streams in a PostgreSQL database: the behaviour of a peer while the server is away, and after.

use super::{add, call, peer, poll, register};
use crate::support::TempDir;
use crate::support::command::Place;
use crate::support::exit_code::{CONFIGURATION, DONE, FAILED};
use crate::support::postgres_server::PostgresServer;
use crate::support::wait::{wait_until, wait_until_some};
use serde_json::json;
use std::fs;
use std::thread;

/// Waits until calls fail. The process that serves the peer may outlive the others of a server that is killed for a
/// moment.
fn await_disconnect(place: &Place) {
    wait_until("the server is killed", || {
        call(place, "/", "futoin.evt.poll:1.1:pollEvents", &json!({ "component": "LIVE" }))["e"] == "InternalError"
    });
}

/// Waits until the peer is connected again. It retries a second after a refusal.
fn await_reconnect(place: &Place) {
    wait_until("the server is back", || {
        call(place, "/", "futoin.evt.poll:1.1:pollEvents", &json!({ "component": "LIVE" }))["e"] != "InternalError"
    });
}

#[test]
fn peer_survives_its_database_without_losing_events() {
    let (dir, place) = (TempDir::new(), Place::new());
    let server = PostgresServer::start(dir.path());
    // Other data is in the same database.
    let store = format!("stream-store={}", server.schema("streams"));
    let none = format!("stream-store=postgres://postgres@127.0.0.1:{}/none", server.port());
    place.run(&["peer", "--set", "ftn18=0", "--set", &none]).exits(FAILED).reports(&["\"none\" does not exist"]);
    let mut running = peer(&place, &[&store]);
    register(&place, "/", "C");
    (1..=5).for_each(|number| assert_eq!(add(&place, "/", "A", &json!(number)), number));
    // A restart.
    let mut server = server.restart();
    await_reconnect(&place);
    assert_eq!(poll(&place, "/", "C", Some(2)).first(), Some(&(3, "A 3".into())));
    server.kill();
    await_disconnect(&place);
    for (f, p) in
        [("poll:1.1:pollEvents", json!({ "component": "C" })), ("gen:1.1:addEvent", json!({ "type": "A", "data": 0 }))]
    {
        let refused = call(&place, "/", &format!("futoin.evt.{f}"), &p);
        assert_eq!(refused["e"], "InternalError", "{refused}");
        assert!(refused["edesc"].as_str().is_some_and(|text| text.contains("cannot be used")), "{refused}");
    }
    // Events of the bus wait in the journal.
    place.run(&["event", "add", "main/A", "6"]).exits(DONE);
    let server = server.restart();
    let what = || format!("the event of the bus is stored; the peer said {:?}", running.stderr_so_far());
    wait_until_some(what, || (server.sql("SELECT last FROM streams.seqcast_streams") == "6").then_some(()));
    assert_eq!(add(&place, "/", "A", &json!(7)), 7);
    running.signal("TERM");
    running.ended();
    let _peer = peer(&place, &[&store]);
    let rest: Vec<(u64, String)> = (3..=7).map(|number| (number, format!("A {number}"))).collect();
    assert_eq!(poll(&place, "/", "C", None), rest, "positions last, and nothing stands there twice");
}

/// The server is killed while events are added: acknowledged events have their reported ids, and no event is there
/// twice.
#[test]
fn killed_database_loses_no_event() {
    const EACH: u64 = 150;
    let (dir, place) = (TempDir::new(), Place::new());
    let server = PostgresServer::start(dir.path());
    let _peer = peer(&place, &[&format!("stream-store={}", server.url())]);
    let mut answered: Vec<(u64, u64)> = Vec::new();
    let server = thread::scope(|scope| {
        let adding = |from: u64| {
            let place = &place;
            move || {
                let mut answered = Vec::new();
                for number in from..from + EACH {
                    let p = json!({ "type": "A", "data": number });
                    let done = call(place, "/", "futoin.evt.gen:1.1:addEvent", &p);
                    match done["r"].as_str() {
                        Some(id) => answered.push((id.parse().expect("a number"), number)),
                        None => assert_eq!(done["e"], "InternalError", "{done}"),
                    }
                }
                answered
            }
        };
        let adding: Vec<_> = (0..4).map(|of| scope.spawn(adding(of * EACH))).collect();
        let mut server = server;
        for _ in 0..3 {
            let before = server.sql("SELECT last FROM seqcast_streams");
            while server.sql("SELECT last FROM seqcast_streams") == before
                && !adding.iter().all(thread::ScopedJoinHandle::is_finished)
            {}
            server.kill();
            await_disconnect(&place);
            server = server.restart();
        }
        adding.into_iter().for_each(|added| answered.extend(added.join().expect("it ends")));
        server
    });
    // The last one comes behind all that waited.
    let p = json!({ "type": "B", "data": null });
    wait_until("the database is back", || call(&place, "/", "futoin.evt.gen:1.1:addEvent", &p).get("r").is_some());
    let mut rows: Vec<(u64, String)> = Vec::new();
    while rows.last().is_none_or(|(_, text)| !text.starts_with('B')) {
        let more = poll(&place, "/", "LIVE", rows.last().map(|(id, _)| *id));
        assert!(!more.is_empty(), "{rows:?}");
        rows.extend(more);
    }
    assert_eq!(server.sql("SELECT last FROM seqcast_streams"), rows.len().to_string());
    assert!(rows.iter().map(|(id, _)| *id).eq(1..=rows.len() as u64));
    for (id, number) in answered {
        assert_eq!(rows[id as usize - 1].1, format!("A {number}"));
    }
    let mut texts: Vec<String> = rows.into_iter().map(|(_, text)| text).collect();
    texts.sort();
    let count = texts.len();
    texts.dedup();
    assert_eq!(texts.len(), count);
}

/// Two peers of one bus, with one database: one stream, one position of each consumer.
#[test]
fn peers_share_the_streams_of_one_database() {
    let (dir, here, there) = (TempDir::new(), Place::new(), Place::new());
    let server = PostgresServer::start(dir.path());
    let (store, port) = (format!("stream-store={}", server.url()), format!("port={}", here.port()));
    let _here = peer(&here, &["server-id=7", &port, &store]);
    let _there = peer(&there, &["server-id=8", &port, &store]);
    register(&here, "/", "C");
    let places = [&here, &there];
    for number in 1..=50 {
        assert_eq!(add(places[number as usize % 2], "/", "A", &json!(number)), number);
    }
    let rows: Vec<(u64, String)> = (1..=50).map(|number| (number, format!("A {number}"))).collect();
    assert_eq!(poll(&there, "/", "C", None), rows);
    assert_eq!(poll(&there, "/", "C", Some(20)), rows[20..]);
    assert_eq!(poll(&here, "/", "C", None), rows[20..]);
    // One of them claims the events that an application posts.
    server.sql(
        "INSERT INTO seqcast_outbox (stream, type, data) SELECT 'main', 'P', to_json(n) FROM generate_series(1, 30) n",
    );
    let what = || format!("the outbox is empty: {}", server.sql("TABLE seqcast_outbox"));
    wait_until_some(what, || (server.sql("SELECT count(*) FROM seqcast_outbox") == "0").then_some(()));
    assert_eq!(server.sql("SELECT last FROM seqcast_streams"), "80");
    let mut posted: Vec<String> = poll(&here, "/", "C", Some(50)).into_iter().map(|(_, text)| text).collect();
    posted.sort();
    posted.dedup();
    assert_eq!(posted.len(), 30);
}

#[test]
fn unusable_database_is_reported_without_its_password() {
    let place = Place::new();
    let unreachable = "stream-store=postgres://seqcast:s3cret@127.0.0.1:1/plant";
    let refused = place.run(&["peer", "--set", "ftn18=0", "--set", unreachable]).exits(FAILED);
    assert!(refused.stderr.contains("postgres://127.0.0.1:1/plant cannot be used"), "{}", refused.stderr);
    let file = place.dir().join("right.yaml");
    fs::write(&file, format!("parameters:\n  {}\n", unreachable.replace('=', ": ")))
        .expect("a file in a fresh directory");
    let shown = place.run(&["config", "show", &file.display().to_string()]).exits(DONE);
    assert!(shown.stdout.contains("postgres://seqcast:***@127.0.0.1:1/plant"), "{}", shown.stdout);
    let file = place.dir().join("wrong.yaml");
    fs::write(&file, "parameters:\n  stream-store: postgres:/u:s3cret@h\n").expect("a file in a fresh directory");
    let wrong = place.run(&["config", "check", &file.display().to_string()]).exits(CONFIGURATION);
    assert!(wrong.stderr.contains("wrong.yaml:2"), "{}", wrong.stderr);
    for text in [refused.stderr, shown.stdout, shown.stderr, wrong.stderr] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

/// An archive is in a database, whatever is killed meanwhile, and continues when the server is back.
#[test]
fn stream_is_archived_to_a_database() {
    let (dir, place) = (TempDir::new(), Place::new());
    let mut server = PostgresServer::start(dir.path());
    let _peer = peer(&place, &["server-id=7"]);
    let to = server.url().replace("postgres@", "postgres:s3cret@");
    let add_lines = |from: u64| {
        let lines: String = (from..from + 1500).map(|number| format!("{number}\n")).collect();
        place.run_with_input(&["stream", "add", "A", "--lines"], lines.as_bytes()).exits(DONE);
    };
    for round in 0..3 {
        let mut archiving = place.start(&["stream", "archive", "--to", &to]);
        let report = archiving.await_report("archives the stream main");
        assert!(report.contains(":***@") && !report.contains("s3cret"), "{report}");
        add_lines(1 + 1500 * round);
        archiving.signal("KILL");
        archiving.ended();
    }
    server.kill();
    let refused = place.run(&["stream", "archive", "--once", "--to", &to]).exits(FAILED);
    assert!(refused.stderr.contains("cannot be used") && !refused.stderr.contains("s3cret"), "{}", refused.stderr);
    let server = server.restart();
    place.run(&["stream", "archive", "--once", "--to", &to]).exits(DONE);
    place.run(&["stream", "archive", "--once", "--to", &to]).exits(DONE).reports(&["archived 0 events"]);
    let found = server.sql("SELECT count(*), sum(id), sum(data::bigint) FROM stream_archive_event");
    let sum = 4500 * 4501 / 2;
    assert_eq!(found, format!("4500|{sum}|{sum}"));
}
