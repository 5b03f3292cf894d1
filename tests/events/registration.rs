//! Events with an identity, as a user of the command sees them: registration, queries, live events, and refusals.

use crate::support::command::{Outcome, Place, RunningCommand, signal};
use crate::support::exit_code::{DONE, FAILED, UNREACHABLE, USAGE};
use crate::support::wait::wait_until_some;
use seqcast::bus::{Bus, PublishError};
use seqcast::event::model::{Payload, Registration};
use seqcast::event::store::Query;
use seqcast::message::Message;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns the ids of the events, one in each line of JSON.
#[track_caller]
fn ids(outcome: &Outcome) -> Vec<String> {
    outcome.stdout.lines().map(|line| field(line, "id")).collect()
}

#[track_caller]
fn field(line: &str, name: &str) -> String {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}")).to_owned()
}

/// Stops a peer in order.
#[track_caller]
fn end(mut peer: RunningCommand) {
    peer.signal("TERM");
    assert_eq!(peer.ended().code(), Some(DONE));
}

#[test]
fn added_event_is_stored_delivered_and_found() {
    let place = Place::new();
    let peer = place.peer(&["--set", "server-id=7"]);
    let mut tail = place.start(&["event", "tail", "plant/?/alarm", "--count", "2", "--wait", "60s"]);
    let subscriber = place.start(&["sub", "plant.>", "--count", "3", "--wait", "60s", "--json"]);
    tail.await_report("listening on");
    subscriber.await_report("listening on");
    let add = |arguments: &[&str]| place.run(&[&["event", "add"], arguments].concat()).exits(DONE);
    let first = add(&["plant/7/alarm", "{\"level\": 3}"]);
    assert!(first.stdout.starts_with("7/1/1  2"), "{}", first.stdout);
    assert!(first.stdout.ends_with("Z  plant/7/alarm  {\"level\": 3}\n"), "{}", first.stdout);
    let second = add(&["plant/8/alarm", "--source-time", "2026-11-22T16:04:05.5+01:00", "--json"]);
    assert_eq!(field(&second.stdout, "source_time"), "2026-11-22T15:04:05.500000Z");
    fs::write(place.dir().join("p.bin"), b"\x00\xff").unwrap();
    add(&["plant/7/photo", "--file", "p.bin", "--binary", "jpeg"]);
    let lines = [tail.line(), tail.line()];
    assert!(lines[0].starts_with("7/1/1 ") && lines[1].starts_with("7/2/1 "), "{lines:?}");
    assert_eq!(tail.ended().code(), Some(DONE));
    let seen = [subscriber.line(), subscriber.line(), subscriber.line()].concat();
    assert!(seen.contains("\"Seqcast-Event\":\"7/3/1\"") && seen.contains("plant.7.photo"), "{seen}");

    let found = place.run(&["event", "query", "plant/*"]).exits(DONE).stdout;
    let rows: Vec<&str> = found.lines().collect();
    assert!(rows[0].starts_with("id    | time ") && rows[0].ends_with("| payload"), "{found}");
    assert!(rows[2].ends_with("| -                           | plant/7/alarm | {\"level\": 3}"), "{found}");
    assert!(rows[4].ends_with("| plant/7/photo | 2 bytes of type 'jpeg'") && rows.len() == 5, "{found}");
    let query = |arguments: &[&str]| ids(&place.run(&[&["event", "query", "--json"], arguments].concat()).exits(DONE));
    assert_eq!(query(&["--reverse"]), ["7/3/1", "7/2/1", "7/1/1"]);
    assert_eq!(query(&["--latest", "plant/?/alarm"]), ["7/1/1", "7/2/1"]);
    assert_eq!(query(&["--server", "7", "--after", "7/1/1"]), ["7/2/1", "7/3/1"]);
    assert_eq!(query(&["--by-source-time"]), ["7/2/1"]);
    assert_eq!(query(&["--from", "1h", "--to", "30 min"]), [""; 0]);
    assert_eq!(query(&["--server", "7", "--after", "7/3/1"]), [""; 0]);
    assert_eq!(query(&["--after", "7/3/1"]), [""; 0]);
    place
        .run(&["event", "query", "--server", "8"])
        .exits(FAILED)
        .reports(&["no events of server 8; it has those of 7"]);
    place.run(&["event", "query", "--after", "7/9/1"]).exits(FAILED).reports(&["does not hold the event 7/9/1"]);
    let part =
        place.run(&["event", "query", "--limit", "1", "--json"]).exits(DONE).reports(&["--after 7/1/1 continues"]);
    let (event, more) = part.stdout.split_once('\n').unwrap();
    assert_eq!(field(event, "id"), "7/1/1");
    assert_eq!(more, "{\"type\":\"more_follows\",\"after\":\"7/1/1\"}\n");
    let piped = place.run_with_input(&["event", "add", "piped", "--json"], b"{\"from\": \"a pipe\"}\n").exits(DONE);
    assert!(piped.stdout.ends_with("\"payload\":{\"from\": \"a pipe\"}}\n"), "{}", piped.stdout);
    let status = place.run(&["show", "status"]).exits(DONE).stdout;
    assert!(status.contains("event server   | 7\n") && status.contains("events.db\n"), "{status}");
    end(peer);
}

#[test]
fn sessions_continue_after_a_stop_or_kill() {
    let place = Place::new();
    let add = || ids(&place.run(&["event", "add", "a/b", "1", "--json"]).exits(DONE)).remove(0);
    let mut peer = place.peer(&[]);
    let first = add();
    let server = first.strip_suffix("/1/1").expect("the first session of a server that was drawn").to_owned();
    assert!(65_536 <= server.parse::<u32>().unwrap(), "{server}");
    for session in 2..6 {
        match session % 2 {
            0 => end(peer),
            _ => {
                peer.signal("KILL");
                drop(peer);
            }
        }
        peer = place.peer(&[]);
        assert_eq!(add(), format!("{server}/{session}/1"));
    }
    end(peer);
    let journal = place.dir().join("state/seqcast");
    let mut names: Vec<_> = fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["events.db", "events.db-lock"], "an orderly stop leaves no more");
}

#[test]
fn lines_become_sessions_and_wrong_line_is_named() {
    let place = Place::new();
    let peer = place.peer(&["--set", "server-id=7"]);
    let lines: String = (1..=3000).map(|n| format!("{n}\n")).collect();
    let added = place.run_with_input(&["event", "add", "n", "--lines", "--json"], lines.as_bytes()).exits(DONE);
    let expected: Vec<String> = (1..=3000).map(|session| format!("7/{session}/1")).collect();
    assert_eq!(ids(&added), expected);
    let added = place.run_with_input(&["event", "add", "n", "--lines"], b"1\n2\nthree\n4\n").exits(USAGE);
    let added = added.reports(&["line 3", "not JSON", "--binary"]);
    assert_eq!(added.stdout.lines().count(), 2, "{}", added.stdout);
    let found = ids(&place.run(&["event", "query", "--after", "7/2999/1", "--json"]).exits(DONE));
    assert_eq!(found, ["7/3000/1", "7/3001/1", "7/3002/1"]);
    end(peer);
}

/// Input behind the refused line was read already. It is registered and its ids printed, so that the user does not
/// register it again.
#[test]
fn refused_line_is_numbered_and_registered_events_printed() {
    let place = Place::new();
    let peer = place.peer(&["--set", "server-id=7", "--set", "message-size=64 kb"]);
    let large = format!("\"{}\"", "x".repeat(65 << 10));
    let lines: String = (1..=200).map(|n| if n == 3 { format!("{large}\n") } else { format!("{n}\n") }).collect();
    let added = place.run_with_input(&["event", "add", "n", "--lines", "--json"], lines.as_bytes()).exits(FAILED);
    let added = added.reports(&["line 3: the event n has", "message-size"]);
    let found = place.run(&["event", "query", "--json"]).exits(DONE);
    assert_eq!(ids(&added), ids(&found));
    assert_eq!(added.stdout, found.stdout);
    end(peer);
}

/// A stopping peer first multicasts all acknowledged events, however many they are.
#[test]
fn event_acknowledged_before_a_stop_reaches_subscribers() {
    let (here, there) = (Place::new(), Place::new());
    let _here = here.peer(&["--set", "server-id=1"]);
    let peer = there.peer(&[&format!("--port={}", here.port()), "--set", "server-id=2"]);
    let mut tail = here.start(&["event", "tail", "*", "--count", "4000", "--json", "--wait", "60s"]);
    tail.await_report("listening on");
    there.run(&["event", "add", "warm/up"]).exits(DONE);
    assert_eq!(field(&tail.line(), "id"), "2/1/1");
    let bus = Bus::attach(there.socket()).unwrap();
    let one = Registration { event_type: "n".parse().unwrap(), source_timestamp: None, payload: None };
    assert_eq!(bus.register(vec![one; 3999]).unwrap().len(), 3999);
    end(peer);
    assert_eq!(tail.ended().code(), Some(DONE), "all of them came");
}

#[test]
fn oversized_request_is_refused_as_a_whole() {
    let place = Place::new();
    let peer = place.peer(&["--set", "server-id=7"]);
    let bus = Bus::attach(place.socket()).unwrap();
    let named = |name: usize| {
        let payload = Payload::Binary { type_name: "x".repeat(name).as_str().into(), bytes: vec![1].into() };
        Registration { event_type: "n".parse().unwrap(), source_timestamp: None, payload: Some(payload) }
    };
    for (requested, part) in [(vec![named(1); 4097], "at most 4096"), (vec![named(1), named(256)], "256 bytes")] {
        let refused = bus.register(requested).unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(bus.register(vec![named(255); 4096]).unwrap()[4095].id.to_string(), "7/1/4096");
    assert_eq!(bus.find_events(Query::Latest(None)).unwrap().events.len(), 1);
    assert_eq!(
        bus.publish(Message { event: true, ..Message::new("a".parse().unwrap(), "") }),
        Err(PublishError::Event)
    );
    end(peer);
}

#[test]
fn wrong_event_is_refused_and_not_stored() {
    let place = Place::new();
    let peer = place.peer(&["--set", "server-id=7", "--set", "message-size=64 kb"]);
    for (arguments, code, parts) in [
        (&["add", "a/?"][..], USAGE, &["subtype 2 holds '?'"][..]),
        (&["add", "a", "{x"], USAGE, &["not JSON: see line 1, column 2", "fix:"]),
        (&["add", "a", "--file", "none"], FAILED, &["none cannot be read"]),
        (&["add", "a", "1", "--source-time", "soon"], USAGE, &["a time is written like", "such as 90s"]),
        (&["query", "a/*/b"], USAGE, &["'*', which must be the last"]),
        (&["query", "--from", "now", "--to", "1h"], USAGE, &["swap the two"]),
        (&["query", "--server", "1", "--after", "2/1/1"], USAGE, &["2/1/1 is no event of server 1"]),
        (&["query", "--latest", "--limit", "1"], USAGE, &["cannot be used with"]),
        (&["query", "--after", "x"], USAGE, &["server/session/instance"]),
        (&["tail"], USAGE, &["<PATTERN>"]),
    ] {
        place.run(&[&["event"], arguments].concat()).exits(code).reports(parts);
    }
    let large = format!("\"{}\"", "x".repeat(65 << 10));
    fs::write(place.dir().join("large"), large).unwrap();
    place.run(&["event", "add", "a", "--file", "large"]).exits(FAILED).reports(&["the event a has", "message-size"]);
    assert_eq!(ids(&place.run(&["event", "query", "--json"]).exits(DONE)), [""; 0]);
    assert_eq!(ids(&place.run(&["event", "add", "a", "--json"]).exits(DONE)), ["7/1/1"], "no session was used up");
    end(peer);
    place.run(&["event", "query"]).exits(UNREACHABLE).reports(&["no peer answers", "seqcast peer"]);
}

#[test]
fn unusable_journal_is_reported() {
    let place = Place::new();
    fs::create_dir(place.dir().join("data")).unwrap();
    fs::write(place.dir().join("data/events.db"), "this is somebody's letter, and longer than any header\n".repeat(9))
        .unwrap();
    let set = ["--set", "data-dir=data"];
    place
        .run(&[&["peer", "--set", "server-id=7"][..], &set].concat())
        .exits(FAILED)
        .reports(&["is no journal of events"]);
    let peer = place.peer(&set);
    for command in [&["event", "add", "a"][..], &["event", "query"]] {
        place.run(command).exits(FAILED).reports(&["is no journal of events", "data-dir"]);
    }
    place.run(&["pub", "a", "x"]).exits(DONE);
    end(peer);
    let letter = fs::read_to_string(place.dir().join("data/events.db")).unwrap();
    assert!(letter.starts_with("this is somebody's letter"), "it was left alone");
    let other = Place::new();
    let taken = other.peer(&["--set", "server-id=8"]);
    let data = format!("data-dir={}", other.dir().join("state/seqcast").display());
    place
        .run(&["peer", "--set", "server-id=7", "--set", &data])
        .exits(FAILED)
        .reports(&["another peer uses the journal"]);
    end(taken);
    fs::write(place.dir().join("file"), "").unwrap();
    let peer = place.peer(&["--set", "data-dir=file/data"]);
    place.run(&["event", "add", "a"]).exits(FAILED).reports(&["cannot make the directory file/data", "set data-dir"]);
    end(peer);
}

/// Two peers, each with a journal of its own: both see all events, and each finds its own.
#[test]
fn events_of_another_peer_reach_subscribers() {
    let (here, there) = (Place::new(), Place::new());
    let port = format!("--port={}", here.port());
    let peers = [here.peer(&["--set", "server-id=1"]), there.peer(&[&port, "--set", "server-id=2"])];
    let mut tail = here.start(&["event", "tail", "*", "--count", "2", "--json", "--wait", "60s"]);
    tail.await_report("listening on");
    there.run(&["event", "add", "a/b", "[1]"]).exits(DONE);
    there.run(&["pub", "a.b", "no event"]).exits(DONE);
    here.run(&["event", "add", "a/b", "[2]"]).exits(DONE);
    assert_eq!([field(&tail.line(), "id"), field(&tail.line(), "id")], ["2/1/1", "1/1/1"]);
    assert_eq!(tail.ended().code(), Some(DONE));
    assert_eq!(ids(&there.run(&["event", "query", "--json"]).exits(DONE)), ["2/1/1"]);
    peers.into_iter().for_each(end);
}

#[test]
fn expired_events_are_removed_without_reusing_sessions() {
    let place = Place::new();
    let rules = "event-retention=a/* count 5 ; b time 1 sec";
    let peer = place.peer(&["--set", "server-id=7", "--set", rules]);
    let lines: String = (1..=40).map(|n| format!("{n}\n")).collect();
    place.run_with_input(&["event", "add", "a/x", "--lines"], lines.as_bytes()).exits(DONE);
    place.run(&["event", "add", "b"]).exits(DONE);
    place.run(&["event", "add", "c"]).exits(DONE);
    let expected = ["7/36/1", "7/37/1", "7/38/1", "7/39/1", "7/40/1", "7/42/1"];
    let found = || ids(&place.run(&["event", "query", "--json"]).exits(DONE));
    wait_until_some(
        || format!("the others are removed; left are {:?}", found()),
        || (found() == expected).then_some(()),
    );
    let status: Value = serde_json::from_str(&place.run(&["show", "status", "--json"]).exits(DONE).stdout).unwrap();
    let removed: Vec<&Value> =
        status["status"]["events"]["retention"].as_array().unwrap().iter().map(|rule| &rule["removed"]).collect();
    assert_eq!(removed, [35, 1]);
    end(peer);
    let peer = place.peer(&["--set", "server-id=7", "--set", rules]);
    assert_eq!(ids(&place.run(&["event", "add", "a", "--json"]).exits(DONE)), ["7/43/1"]);
    end(peer);
}

/// The data directory is a small disk of the peer's own, with a file on it that can be removed. A peer that is killed
/// is started anew.
#[test]
fn full_disk_refuses_events_until_there_is_space() {
    let place = Place::new();
    fs::create_dir(place.dir().join("data")).unwrap();
    let script = "mount -t tmpfs -o size=1500k tmpfs data && head -c 700000 /dev/zero >data/fill && \
                  while \"$0\" \"$@\"; code=$?; [ $code = 137 ]; do :; done; exit $code";
    let mut command = Command::new("unshare");
    // All processes of the namespace end with the command.
    command.args(["-rmpf", "--kill-child", "sh", "-c", script, env!("CARGO_BIN_EXE_seqcast")]);
    command.args(["peer", "--set", "server-id=7", "--set", "data-dir=data"]);
    place.set_environment(&mut command);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unshare is there");
    let outside = child.id();
    let disk = PathBuf::from(format!("/proc/{outside}/root"));
    let mut shell = place.reachable(RunningCommand::new(child, &["peer"]));
    let peer = || child_of(child_of(outside)?);
    fs::write(place.dir().join("large"), format!("\"{}\"", "x".repeat(20_000))).unwrap();
    let mut stored = 0;
    let refused = loop {
        let outcome = place.run(&["event", "add", "a", "--file", "large", "--json"]);
        if outcome.code != Some(DONE) {
            break outcome;
        }
        stored += 1;
        assert_eq!(ids(&outcome), [format!("7/{stored}/1")]);
    };
    refused.exits(FAILED).reports(&["the disk of the journal is full", "make room"]);
    let found = || ids(&place.run(&["event", "query", "--json"]).exits(DONE)).len();
    assert!(5 < stored && found() == stored, "{stored}");
    place.run(&["pub", "a", "x"]).exits(DONE);
    // The stored events are in the WAL, for which there is no room in the file.
    let killed = peer().expect("the peer runs");
    signal(killed, "KILL");
    let what = || format!("the peer starts again; it said {:?}", shell.stderr_so_far());
    wait_until_some(what, || peer().filter(|peer| *peer != killed));
    shell = place.reachable(shell);
    assert_eq!(found(), stored);
    let refused = place.run(&["event", "add", "a", "--file", "large"]).exits(FAILED);
    refused.reports(&["the disk of the journal is full", "make room"]);
    let fill = disk.join(place.dir().strip_prefix("/").unwrap()).join("data/fill");
    fs::remove_file(fill).expect("the disk of a process of this user");
    let added = place.run(&["event", "add", "b", "--json"]).exits(DONE);
    assert_eq!(ids(&added), [format!("7/{}/1", stored + 1)], "what was refused took no session");
    assert_eq!(found(), stored + 1);
    signal(peer().expect("the peer runs"), "TERM");
    assert_eq!(shell.ended().code(), Some(DONE));
}

/// Returns the only child of a process.
fn child_of(process: u32) -> Option<u32> {
    fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?.trim().parse().ok()
}
