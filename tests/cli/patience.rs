//! `sub --patience` and `reply --patience`: their peer is killed and started again.

use crate::support::command::{Place, RunningCommand, now, parse_json};
use crate::support::exit_code::{DONE, FAILED, TIMED_OUT, UNREACHABLE, USAGE};
use std::fs;
use std::os::unix::net::UnixListener;
use std::time::Duration;

#[test]
fn subscriber_survives_a_restart_of_its_peer() {
    let place = Place::new();
    let peer = place.peer(&["--name", "A.test"]);
    let mut sub = place.start(&["sub", "demo.>", "--patience", "10m", "--json", "--history", "all", "--count", "2"]);
    assert_eq!(parse_json(&sub.line())["type"], "joined");
    place.run(&["pub", "demo.a", "before"]).exits(DONE);
    assert_eq!(parse_json(&sub.line())["payload"], "before");

    killed(peer);
    let gone = parse_json(&sub.line());
    assert_eq!((&gone["type"], &gone["state"]), (&"peer".into(), &"gone".into()), "{gone}");
    sub.await_report("waiting up to 10m for it");
    let _peer = place.peer(&["--name", "A.test"]);
    sub.await_report("the peer is back after");
    let back = parse_json(&sub.line());
    assert_eq!((&back["type"], &back["state"], &back["restarted"]), (&"peer".into(), &"back".into(), &true.into()));
    assert!(back["away_ms"].is_u64() && back["since"].as_str() <= back["time"].as_str(), "{back}");

    // The subscription is active, and counts on.
    place.run(&["pub", "demo.b", "after"]).exits(DONE);
    assert_eq!(parse_json(&sub.line())["payload"], "after");
    assert_eq!(sub.ended().code(), Some(DONE));
}

#[test]
fn replier_survives_a_restart_of_its_peer() {
    let place = Place::new();
    let peer = place.peer(&[]);
    let mut reply = place.start(&["reply", "demo.n", "answer {{count}}", "--patience", "10m", "--queue", "q"]);
    reply.await_report("answering");
    let request = || place.run(&["req", "demo.n", "?", "--wait", "1m", "--patient"]).exits(DONE).stdout;
    assert_eq!(request(), "answer 1\n");
    let mut peer = Some(peer);
    for number in 2..=3 {
        killed(peer.take().expect("a peer runs"));
        reply.await_report("waiting up to 10m for it");
        peer = Some(place.peer(&[]));
        let report = reply.await_report("the peer is back after");
        assert!(report.contains("has restarted; requests and answers from"), "{report}");
        assert_eq!(request(), format!("answer {number}\n"));
    }
    reply.signal("TERM");
    assert_eq!(reply.ended().code(), Some(DONE));
}

#[test]
fn signal_ends_the_wait_for_a_peer() {
    let place = Place::new();
    for (arguments, report, signal, code) in [
        (&["sub", "a", "--patience", "10m"][..], "listening on", "INT", DONE),
        (&["sub", "a", "--patience", "10m", "--count", "1"], "listening on", "TERM", FAILED),
        (&["reply", "a", "x", "--patience", "10m"], "answering", "TERM", DONE),
    ] {
        let peer = place.peer(&[]);
        let mut command = place.start(arguments);
        command.await_report(report);
        killed(peer);
        command.await_report("waiting up to 10m for it");
        // This peer accepts a connection and never answers, which blocks an attempt to attach.
        drop(fs::remove_file(place.socket()));
        let hung_peer = UnixListener::bind(place.socket()).unwrap();
        let _connection = hung_peer.accept().unwrap();
        let start = now();
        command.signal(signal);
        assert_eq!(command.ended().code(), Some(code), "{arguments:?}");
        assert!(now().since(start) < Duration::from_secs(4), "the attempt to attach would take 5 s");
        fs::remove_file(place.socket()).unwrap();
    }
}

#[test]
fn peer_that_stays_away_ends_the_command() {
    let place = Place::new();
    for (arguments, code, reports) in [
        (&["sub", "a", "--patience", "300ms"][..], UNREACHABLE, "did not come back within 300ms"),
        (&["reply", "a", "x", "--patience", "300ms"], UNREACHABLE, "did not come back within 300ms"),
        (&["sub", "a", "--patience", "10m", "--wait", "5s"], TIMED_OUT, "waiting up to 10m"),
        (&["sub", "a"], UNREACHABLE, "the peer is gone"),
    ] {
        let peer = place.peer(&[]);
        let mut command = place.start(arguments);
        command.await_report(if arguments[0] == "sub" { "listening on" } else { "answering" });
        killed(peer);
        command.await_report(reports);
        assert_eq!(command.ended().code(), Some(code), "{arguments:?}");
    }
    place.run(&["sub", "a", "--patience", "1m", "--embed"]).exits(USAGE).reports(&["--embed"]);
}

/// Kills a peer, and waits until it is gone.
fn killed(mut peer: RunningCommand) {
    peer.signal("KILL");
    peer.ended();
}
