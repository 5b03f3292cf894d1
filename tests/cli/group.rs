//! Verbs that ask the other peers of the group: `ping`, `trace`, `subjects --published`, `show --at`.

use crate::support::command::{Place, RunningCommand, parse_json};
use crate::support::exit_code::{DONE, FAILED, UNREACHABLE};
use crate::support::wait::wait_until;
use serde_json::Value;

/// Two peers of one group on this host. The local one is the place's.
struct PeerPair {
    place: Place,
    _local: RunningCommand,
    other: RunningCommand,
}

impl PeerPair {
    fn new(other_settings: &[&str]) -> PeerPair {
        let place = Place::new();
        let local = place.peer(&["--name", "A.test"]);
        let other = place.start(&[&["peer", "--name", "B.test", "--socket", "other.sock"], other_settings].concat());
        let pair = PeerPair { place, _local: local, other };
        wait_until("the peers have met", || pair.has_row("peers", "publisher", "B.test"));
        pair
    }

    /// Returns whether a report of the local peer has a row with this value.
    fn has_row(&self, report: &str, field: &str, value: &str) -> bool {
        self.place.show(report)["rows"].as_array().unwrap().iter().any(|row| row[field] == value)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        parse_json(&self.place.run(&[arguments, &["--json"]].concat()).exits(DONE).stdout)
    }
}

#[test]
fn ping_measures_round_trip_and_clock() {
    let pair = PeerPair::new(&[]);
    let outcome = pair.place.run(&["ping", "B.test", "--count", "3", "--interval", "1ms", "--json"]).exits(DONE);
    let lines: Vec<Value> = outcome.stdout.lines().map(parse_json).collect();
    assert_eq!(lines.len(), 4, "{outcome:#?}");
    for (number, answer) in (1..).zip(&lines[..3]) {
        assert_eq!(
            (&answer["type"], &answer["number"], &answer["peer"]),
            (&"answer".into(), &number.into(), &"B.test".into())
        );
        let [round_trip, offset, uncertainty] =
            ["round_trip_us", "clock_offset_us", "clock_uncertainty_us"].map(|field| answer[field].as_f64().unwrap());
        assert!(0.0 < round_trip, "{answer}");
        // Both peers read the same clock, so the true offset is 0.
        assert!(offset.abs() <= uncertainty + 1.0, "{answer}");
    }
    assert_eq!(
        (&lines[3]["type"], &lines[3]["sent"], &lines[3]["answered"]),
        (&"summary".into(), &3.into(), &3.into())
    );

    let outcome = pair.place.run(&["ping", "A.test", "--count", "1"]).exits(DONE);
    assert!(outcome.stdout.contains("A.test (") && outcome.stdout.contains("1 sent, 1 answered; round trip"));
    pair.place.run(&["ping", "C.test", "--count", "1"]).exits(UNREACHABLE).reports(&["C.test", "name one of"]);
}

#[test]
fn trace_names_receivers_of_a_subject() {
    let pair = PeerPair::new(&[]);
    let _subscriber = pair.place.start(&["sub", "t.>", "--socket", "other.sock"]);
    let subs = || pair.json(&["show", "subs", "--socket", "other.sock"]);
    wait_until("the subscription is in force", || !subs()["rows"].as_array().unwrap().is_empty());
    pair.place.run(&["pub", "t.a", "x", "--count", "5"]).exits(DONE);
    let received = || pair.json(&["trace", "t.a"])["rows"].as_array().unwrap().clone();
    wait_until("everything is received", || received().len() == 2 && received()[1]["behind"] == 0);
    let rows = received();
    assert_eq!((&rows[0]["state"], &rows[0]["peer"]), (&"published".into(), &"A.test".into()));
    assert_eq!(
        (&rows[1]["state"], &rows[1]["peer"], &rows[1]["clients"]),
        (&"received".into(), &"B.test".into(), &1.into())
    );
    assert_eq!(
        (&rows[1]["publisher"], &rows[1]["lost"], &rows[1]["seq"]),
        (&"A.test".into(), &0.into(), &rows[0]["seq"])
    );
    let nothing = pair.place.run(&["trace", "t.none"]).exits(DONE);
    assert_eq!(nothing.stdout, "no peer publishes or has received t.none\n");
}

#[test]
fn published_subjects_of_all_peers_have_rates() {
    let pair = PeerPair::new(&[]);
    pair.place.run(&["pub", "s.here", "x"]).exits(DONE);
    pair.place.run(&["pub", "s.there", "x", "--socket", "other.sock"]).exits(DONE);
    let _running = pair.place.start(&["pub", "s.fast", "x", "--count", "1000000", "--rate", "200/s"]);
    let rows = || {
        let report = pair.json(&["subjects", "s.>", "--published", "--interval", "200ms"]);
        report["rows"].as_array().unwrap().clone()
    };
    wait_until("the fast subject leads", || {
        rows().first().is_some_and(|row| row["subject"] == "s.fast" && 0.0 < row["rate"].as_f64().unwrap())
    });
    let mut found: Vec<String> = rows().iter().map(|row| format!("{} {}", row["subject"], row["publisher"])).collect();
    found.sort();
    let expected = [("s.fast", "A.test"), ("s.here", "A.test"), ("s.there", "B.test")];
    assert_eq!(found, expected.map(|(subject, publisher)| format!("\"{subject}\" \"{publisher}\"")));
    let table = pair.place.run(&["subjects", "s.h*", "--published", "--interval", "1ms"]);
    table.exits(DONE).prints("subject | publisher | messages/s | last\n--------+-----------+------------+-----\n");
}

#[test]
fn report_of_another_peer_is_shown() {
    let pair = PeerPair::new(&[]);
    assert_eq!(pair.json(&["show", "status", "--at", "B.test"])["status"]["name"], "B.test");
    assert!(pair.place.run(&["health", "--at", "B.test"]).exits(DONE).stdout.starts_with("ok"));
    pair.place.run(&["show", "loss", "--at", "C.test"]).exits(UNREACHABLE).reports(&["C.test", "name one of"]);
}

#[test]
fn peer_without_remote_reports_is_named() {
    let pair = PeerPair::new(&["--set", "remote-reports=no"]);
    pair.place.run(&["show", "status", "--at", "B.test"]).exits(FAILED).reports(&["remote-reports is 'no' there"]);
    pair.place.run(&["trace", "a"]).exits(FAILED).reports(&["B.test: no report"]);
    pair.place.run(&["subjects", "--published", "--interval", "1ms"]).exits(FAILED).reports(&["B.test: no report"]);
}

#[test]
fn interrupt_ends_the_wait_for_an_answer() {
    let pair = PeerPair::new(&["--set", "heartbeat=100 ms"]);
    let arguments = ["ping", "B.test", "--timeout", "1h", "--interval", "1ms", "--count", "1000000"];
    let mut ping = pair.place.start(&arguments);
    ping.line();
    pair.other.signal("STOP");
    wait_until("the peer is silent", || pair.has_row("peers", "state", "silent"));
    ping.signal("INT");
    assert_eq!(ping.ended().code(), Some(FAILED));
    let summary = std::iter::repeat_with(|| ping.line()).find(|line| line.contains(" sent, ")).unwrap();
    let [sent, answered] = [" sent", " answered"].map(|word| summary.split(word).next().unwrap().rsplit(' ').next());
    assert_eq!(sent, answered, "{summary}");
}

#[test]
fn interrupt_ends_the_wait_for_a_report() {
    // The stopped peer does not become silent, so it is asked.
    let pair = PeerPair::new(&["--set", "heartbeat=60 sec"]);
    pair.other.signal("STOP");
    for arguments in [&["trace", "a.b"][..], &["subjects", "--published"]] {
        let mut command = pair.place.start(arguments);
        wait_until("the command is attached", || pair.has_row("clients", "name", arguments[0]));
        command.signal("INT");
        assert_eq!(command.ended().code(), Some(FAILED));
        assert_eq!((command.lines_so_far(), command.stderr_so_far()), (vec![], vec![]), "{arguments:?}");
    }
}

#[test]
fn interrupt_ends_the_wait_for_a_poll() {
    let pair = PeerPair::new(&["--set", "heartbeat=60 sec"]);
    pair.other.signal("STOP");
    for (more, code) in [(&["--follow"][..], DONE), (&["--count", "1"], FAILED)] {
        let mut poll = pair.place.start(&[&["poll", "B.test", "a.b", "--timeout", "1h"], more].concat());
        wait_until("the command is attached", || pair.has_row("clients", "name", "poll"));
        poll.signal("INT");
        assert_eq!(poll.ended().code(), Some(code), "{more:?}");
        poll.await_report("0 events; --offset 0 continues from here");
    }
}

#[test]
fn silent_peer_is_named_and_not_asked() {
    let pair = PeerPair::new(&["--set", "heartbeat=100 ms"]);
    pair.other.signal("STOP");
    wait_until("the peer is silent", || pair.has_row("peers", "state", "silent"));
    let outcome = pair.place.run(&["trace", "a"]).exits(FAILED).prints("no peer publishes or has received a\n");
    assert_eq!(outcome.stderr, "B.test: no report: the peer is silent\n");
    let outcome = pair.place.run(&["subjects", "--published", "--interval", "1ms"]).exits(FAILED);
    assert_eq!(outcome.stderr, "B.test: no report: the peer is silent\n");
}
