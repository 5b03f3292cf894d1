//! `seqcast stream …` and `seqcast consumer …` from the user's view.

use crate::support::command::{Outcome, Place, RunningCommand, parse_json};
use crate::support::exit_code::{DONE, FAILED, TIMED_OUT, UNREACHABLE, USAGE};
use crate::support::wait::{wait_until, wait_until_some};
use rusqlite::Connection;
use seqcast::bus::{Bus, ResetPosition as At, StreamError, StreamRefusalKind};
use seqcast::event::model::Json;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::thread;

fn peer(place: &Place, settings: &[&str]) -> RunningCommand {
    place.peer_with(&[&["ftn18=0", "server-id=7"], settings].concat())
}

#[track_caller]
fn end(mut peer: RunningCommand) {
    peer.signal("TERM");
    assert_eq!(peer.ended().code(), Some(DONE));
}

#[track_caller]
fn add(place: &Place, kind: &str, data: &str) -> String {
    place.run(&["stream", "add", kind, data]).exits(DONE).stdout.trim_end().to_owned()
}

/// Returns id and data of the events, one in each line of JSON.
#[track_caller]
fn rows(outcome: &Outcome) -> Vec<(String, String)> {
    let row = |line: &str| {
        let line = parse_json(line);
        (line["id"].as_str().expect("a text").to_owned(), line["data"].to_string())
    };
    outcome.stdout.lines().map(row).collect()
}

fn strings(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(id, data)| ((*id).to_owned(), (*data).to_owned())).collect()
}

#[test]
fn events_are_added_polled_and_accepted() {
    let place = Place::new();
    let peer = peer(&place, &["streams=main ; plant"]);
    place.run(&["consumer", "add", "C"]).exits(DONE).reports(&["local:C is registered for the stream main"]);
    place.run(&["consumer", "add", "C"]).exits(DONE).reports(&["before"]);
    assert_eq!(add(&place, "DEPOSIT", "{\"amount\": \"1.50\"}"), "1");
    let added = place.run(&["stream", "add", "LEVEL", "2", "--stream", "main", "--json"]).exits(DONE);
    assert_eq!(parse_json(&added.stdout)["id"], "2");
    place.run_with_input(&["stream", "add", "LEVEL"], b"[\n3\n]\n").exits(DONE).prints("3\n");
    let lines: String = (4..=1500).map(|number| format!("{number}\n")).collect();
    let many = place.run_with_input(&["stream", "add", "MANY", "--lines"], lines.as_bytes()).exits(DONE);
    assert_eq!(many.stdout, lines, "each has the id of its number");
    let polled = place.run(&["stream", "poll", "C", "--limit", "2"]).exits(DONE).reports(&["--last 2"]);
    let text: Vec<&str> = polled.stdout.lines().collect();
    assert!(text[0].starts_with("id | time ") && text[2].ends_with("Z | DEPOSIT | {\"amount\": \"1.50\"}"), "{text:?}");
    let poll =
        |arguments: &[&str]| rows(&place.run(&[&["stream", "poll", "C", "--json"], arguments].concat()).exits(DONE));
    assert_eq!(poll(&["--limit", "3", "--want", "LEVEL"]), strings(&[("2", "2"), ("3", "[3]")]));
    assert_eq!(poll(&["--limit", "1"]), strings(&[("2", "2")]), "what was not wanted is accepted");
    assert_eq!(poll(&["--last", "2", "--limit", "1"]), strings(&[("3", "[3]")]));
    assert_eq!(poll(&["--accept", "--limit", "1400"]).len(), 1400);
    assert_eq!(poll(&["--accept"]).first(), strings(&[("1403", "1403")]).first());
    assert_eq!(poll(&[]), []);
    // The first events are gone; a consumer that is not registered gets the retained ones.
    assert_eq!(add(&place, "DEPOSIT", "null"), "1501");
    let live = place.run(&["stream", "poll", "LIVE", "--want", "DEPOSIT", "--json"]).exits(DONE);
    assert_eq!(rows(&live).last(), strings(&[("1501", "null")]).last());
    let event = parse_json(live.stdout.lines().last().unwrap());
    assert_eq!([&event["type"], &event["stream"], &event["event_type"]], ["event", "main", "DEPOSIT"]);
    assert_eq!(event["origin"], "7/1501/1");
    let listed = place.run(&["stream", "list", "--json"]).exits(DONE);
    let listed = parse_json(&listed.stdout);
    assert_eq!((&listed["server"], &listed["streams"][0]["last"]), (&7.into(), &"1501".into()), "{listed}");
    assert_eq!(listed["streams"][1]["stream"], "plant");
    let table = place.run(&["stream", "list", "--stream", "plant"]).exits(DONE).stdout;
    assert!(table.starts_with("stream | last | events") && table.lines().count() == 3, "{table}");
    end(peer);
}

#[test]
fn consumers_are_listed_reset_and_removed() {
    let place = Place::new();
    let peer = peer(&place, &["streams=main ; plant"]);
    for (user, stream) in [("alice", "main"), ("bob", "main"), ("bob", "plant")] {
        place.run(&["consumer", "add", "C", "--user", user, "--stream", stream]).exits(DONE);
    }
    for _ in 0..3 {
        add(&place, "A", "1");
    }
    place.run(&["stream", "poll", "C", "--user", "alice", "--limit", "2", "--accept"]).exits(DONE);
    let listed = parse_json(&place.run(&["consumer", "list", "--json"]).exits(DONE).stdout);
    let lags: Vec<(&str, &str, &Value)> = listed["consumers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| (row["stream"].as_str().unwrap(), row["user"].as_str().unwrap(), &row["lag"]))
        .collect();
    assert_eq!(lags, [("main", "alice", &1.into()), ("main", "bob", &3.into()), ("plant", "bob", &0.into())]);
    let table = place.run(&["consumer", "list", "--stream", "main"]).exits(DONE).stdout;
    assert!(
        table.starts_with("stream | user  | component | position | lag | last request") && table.lines().count() == 4
    );
    let reset = |to: &str| {
        let outcome = place.run(&["consumer", "reset", "C", "--user", "alice", "--to", to, "--json"]).exits(DONE);
        parse_json(&outcome.stdout)["position"].as_str().expect("a text").to_owned()
    };
    assert_eq!([reset("start"), reset("end"), reset("1"), reset("99")], ["0", "3", "1", "3"]);
    let removed = place.run(&["consumer", "remove", "C", "--user", "alice", "--json"]).exits(DONE);
    assert_eq!(parse_json(&removed.stdout)["type"], "removed");
    let missing = place.run(&["consumer", "remove", "C", "--user", "alice"]).exits(FAILED);
    missing.reports(&["alice:C is no consumer of the stream main", "seqcast consumer add"]);
    end(peer);
}

#[test]
fn lapsed_consumer_gets_the_range_it_missed() {
    let place = Place::new();
    let peer = peer(&place, &["streams=main policy lapse size 10 b"]);
    place.run(&["consumer", "add", "C"]).exits(DONE);
    for _ in 0..8 {
        add(&place, "A", "\"abc\"");
    }
    let poll = || place.run(&["stream", "poll", "C"]);
    let what = || format!("the consumer lapses; it polls {:?}", poll());
    let lapsed = wait_until_some(what, || Some(poll()).filter(|outcome| outcome.code == Some(FAILED)));
    lapsed.reports(&["local:C has lapsed: 6 events of the stream main, 1 to 6", "seqcast consumer add"]);
    let listed = parse_json(&place.run(&["consumer", "list", "--json"]).exits(DONE).stdout);
    assert_eq!(listed["consumers"][0]["lapsed"]["last"], "6", "{listed}");
    let again = parse_json(&place.run(&["consumer", "add", "C", "--json"]).exits(DONE).stdout);
    assert_eq!((&again["missed"]["count"], &again["is_new"]), (&6.into(), &false.into()), "{again}");
    let polled = place.run(&["stream", "poll", "C", "--json"]).exits(DONE);
    assert_eq!(rows(&polled), strings(&[("7", "\"abc\""), ("8", "\"abc\"")]));
    end(peer);
}

/// A command that follows a stream continues when the peer is started anew.
#[test]
fn tail_follows_a_stream_through_a_restart() {
    let place = Place::new();
    let mut first = peer(&place, &[]);
    add(&place, "A", "1");
    let tail = place.start(&["stream", "tail", "--from", "1", "--want", "A", "--json", "--patience", "60s"]);
    assert_eq!(parse_json(&tail.line())["id"], "1");
    add(&place, "B", "2");
    add(&place, "A", "3");
    assert_eq!(parse_json(&tail.line())["data"], 3);
    first.signal("KILL");
    first.ended();
    tail.await_report("the peer does not answer");
    let second = peer(&place, &[]);
    tail.await_report("the peer answers again");
    add(&place, "A", "4");
    assert_eq!(parse_json(&tail.line())["id"], "4");
    let mut tail = tail;
    tail.signal("INT");
    assert_eq!(tail.ended().code(), Some(DONE));
    place.run(&["stream", "tail", "--wait", "100ms"]).exits(TIMED_OUT).prints("");
    let counted = place.run(&["stream", "tail", "--from", "3", "--count", "2"]).exits(DONE).stdout;
    assert!(counted.starts_with("3  ") && counted.lines().nth(1).is_some_and(|line| line.ends_with("Z  A  4")));
    end(second);
}

#[test]
fn wrong_arguments_are_refused_with_a_remedy() {
    let place = Place::new();
    place.run(&["stream", "list"]).exits(UNREACHABLE).reports(&["no peer answers"]);
    let without = place.peer(&[]);
    for command in [&["stream", "list"][..], &["stream", "add", "A", "1"], &["consumer", "add", "C"]] {
        place.run(command).exits(FAILED).reports(&["serves no event streams", "--ftn18"]);
    }
    end(without);
    let peer = peer(&place, &["message-size=20 kb"]);
    let large = format!("\"{}\"", "x".repeat(30_000));
    fs::write(place.dir().join("large"), &large).unwrap();
    for (arguments, code, parts) in [
        (&["stream", "add", "deposit", "1"][..], USAGE, &["1 to 16 of A-Z and _"][..]),
        (&["stream", "add", "A", "x"], USAGE, &["the data cannot be used"]),
        (&["stream", "add", "A"], USAGE, &["the data cannot be used"]),
        (&["stream", "add", "A", "1", "--stream", "no"], FAILED, &["there is no stream no; the streams are main"]),
        (&["stream", "add", "A", "1", "--stream", "No"], USAGE, &["the name of a stream"]),
        (&["stream", "add", "A", "--file", "large"], FAILED, &["main/A has", "message-size"]),
        (&["stream", "poll", "a-b"], USAGE, &["a component is"]),
        (&["stream", "poll", "C"], FAILED, &["local:C is no consumer", "seqcast consumer add"]),
        (&["stream", "poll", "LIVE", "--accept"], USAGE, &["accepts no events"]),
        (&["stream", "poll", "C", "--last", "0"], USAGE, &["the id of an event"]),
        (&["stream", "tail", "--from", "x"], USAGE, &["the id of an event"]),
        (&["consumer", "add", "C", "--user", "a:b"], USAGE, &["a user is"]),
        (&["consumer", "add", "LIVE"], FAILED, &["choose another component"]),
        (&["consumer", "reset", "C", "--to", "start"], FAILED, &["local:C is no consumer"]),
        (&["consumer", "reset", "C", "--to", "0"], USAGE, &["or start, or end"]),
        (&["consumer", "reset", "C"], USAGE, &["--to"]),
    ] {
        place.run(arguments).exits(code).reports(parts);
    }
    let partly = place.run_with_input(&["stream", "add", "A", "--lines"], b"1\nx\n3\n").exits(USAGE);
    partly.prints("1\n").reports(&["line 2: the data cannot be used", "1 event added"]);
    end(peer);
}

/// The same calls from a program, many at a time; and from one with a peer of its own, which serves no streams.
#[test]
fn library_adds_reads_and_manages_consumers() {
    let place = Place::new();
    let peer = peer(&place, &[]);
    let bus = Bus::attach(place.socket()).expect("the peer is there");
    let consumer = "alice:C".parse().unwrap();
    let value = |number: u64| Json::from_bytes(number.to_string().into()).unwrap();
    assert_eq!(bus.register_consumer(None, &consumer), Ok(None));
    let adding: Vec<_> =
        (1..=500).map(|n| bus.begin_add_event(None, &"A".parse().unwrap(), value(n)).unwrap()).collect();
    let ids: Vec<u64> = adding.into_iter().map(|adding| adding.wait().expect("it is stored").number()).collect();
    assert_eq!(ids, (1..=500).collect::<Vec<u64>>());
    let polled = bus.poll_stream(None, &consumer, None, None, 1000).unwrap();
    assert_eq!((polled.events.len(), polled.covered.number()), (500, 500));
    let at = polled.events[99].id;
    assert_eq!(bus.accept_events(None, &consumer, at), Ok(at));
    assert_eq!(bus.consumers(None).unwrap().rows[0].lag, 400);
    assert_eq!(bus.reset_consumer(None, &consumer, At::End).map(|id| id.number()), Ok(500));
    assert_eq!(bus.remove_consumer(None, &consumer), Ok(()));
    let Err(StreamError::Refused(refusal)) = bus.accept_events(None, &consumer, at) else { panic!("it is removed") };
    assert_eq!(refusal.kind, StreamRefusalKind::NotRegistered);
    // Pending answers beyond the limit of one program are refused, and the program continues.
    let answers: Vec<_> = thread::scope(|scope| {
        let read = || bus.read_stream(None, seqcast::event::stream::name::StreamId::START, None, 1000);
        let threads: Vec<_> = (0..40).map(|_| scope.spawn(read)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for answer in answers {
        match answer {
            Ok(_) => {}
            Err(StreamError::Refused(refusal)) => assert_eq!(refusal.kind, StreamRefusalKind::Busy),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(bus.streams(None).is_ok());
    drop(bus);
    end(peer);
}

/// Adds `count` events, whose data are numbers from `from` on.
#[track_caller]
fn add_many(place: &Place, from: u64, count: u64) {
    let lines: String = (from..from + count).map(|number| format!("{number}\n")).collect();
    place.run_with_input(&["stream", "add", "A", "--lines"], lines.as_bytes()).exits(DONE);
}

/// Returns ids and data in an archive of lines, and its gaps.
#[track_caller]
fn archived(place: &Place, name: &str) -> (Vec<(u64, String)>, Vec<Value>) {
    let text = fs::read_to_string(place.dir().join(name)).expect("an archive");
    let lines: Vec<Value> = text.lines().map(parse_json).collect();
    assert_eq!(lines[0]["type"], "archive", "{text}");
    let (events, gaps): (Vec<Value>, Vec<Value>) = lines.into_iter().skip(1).partition(|line| line["type"] == "event");
    let row = |line: &Value| (line["id"].as_str().unwrap().parse().unwrap(), line["data"].to_string());
    (events.iter().map(row).collect(), gaps)
}

fn numbers(count: u64) -> Vec<(u64, String)> {
    (1..=count).map(|number| (number, number.to_string())).collect()
}

/// Returns ids and data in an archive of SQLite.
fn archived_rows(place: &Place, name: &str) -> Vec<(u64, String)> {
    let connection = Connection::open(place.dir().join(name)).expect("an archive");
    let mut select = connection.prepare("SELECT id, data FROM event ORDER BY id").expect("its table");
    let rows = select.query_map([], |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

#[track_caller]
fn archive(place: &Place, arguments: &[&str]) -> Outcome {
    place.run(&[&["stream", "archive", "--once", "--json"], arguments].concat())
}

#[test]
fn archive_stores_each_event_once_and_accepts_it() {
    let place = Place::new();
    let peer = peer(&place, &["streams=main ; plant"]);
    for (component, file) in [("a", "a.db"), ("b", "b.jsonl")] {
        archive(&place, &["--component", component, "--to", file]).exits(DONE);
    }
    add_many(&place, 1, 2500);
    for (component, file) in [("a", "a.db"), ("b", "b.jsonl")] {
        for (events, last) in [(2500, "2500"), (0, "2500")] {
            let done = parse_json(&archive(&place, &["--component", component, "--to", file]).exits(DONE).stdout);
            assert_eq!((&done["events"], &done["last"], &done["missed"]), (&events.into(), &last.into(), &0.into()));
        }
    }
    assert_eq!(archived_rows(&place, "a.db"), numbers(2500));
    assert_eq!(archived(&place, "b.jsonl"), (numbers(2500), vec![]));
    wait_until("the stream lets go of what is archived", || {
        parse_json(&place.run(&["stream", "list", "--json"]).exits(DONE).stdout)["streams"][0]["events"] == 0
    });
    // A new file begins at the position of the consumer.
    add_many(&place, 2501, 1);
    archive(&place, &["--component", "b", "--to", "c", "--format", "lines"]).exits(DONE);
    assert_eq!(archived(&place, "c").0, [(2501, "2501".to_owned())]);
    for (arguments, code, parts) in [
        (&["--to", "x.txt"][..], USAGE, &["--format"][..]),
        (
            &["--to", "b.jsonl", "--component", "b"],
            FAILED,
            &["has accepted the stream main up to 2501", "ends at 2500"],
        ),
        (&["--to", "a.db", "--stream", "plant"], FAILED, &["an archive of the stream main of the server 7"]),
        (&["--to", "none/a.db"], FAILED, &["none/a.db"]),
    ] {
        archive(&place, arguments).exits(code).reports(parts);
    }
    let listed = parse_json(&place.run(&["consumer", "list", "--json"]).exits(DONE).stdout);
    assert_eq!(listed["consumers"].as_array().map(Vec::len), Some(2), "a failed one keeps nothing: {listed}");
    end(peer);
}

/// However often the archive and the peer are killed, no event is missing and none is stored twice.
#[test]
fn killed_archive_continues_at_its_position() {
    for file in ["a.jsonl", "a.db"] {
        let place = Place::new();
        let mut running = peer(&place, &[]);
        let mut archiving = place.start(&["stream", "archive", "--to", file]);
        archiving.await_report("archives the stream main");
        for round in 0..6 {
            add_many(&place, 1 + round * 700, 700);
            archiving.signal("KILL");
            archiving.ended();
            if round == 3 {
                running.signal("KILL");
                running.ended();
                running = peer(&place, &[]);
            }
            archiving = place.start(&["stream", "archive", "--to", file]);
            archiving.await_report("archives the stream main");
        }
        archiving.signal("INT");
        archiving.ended();
        archive(&place, &["--to", file]).exits(DONE);
        let found = if file == "a.db" { archived_rows(&place, file) } else { archived(&place, file).0 };
        assert_eq!(found, numbers(4200), "{file}");
        end(running);
    }
}

#[test]
fn archive_reports_missed_events() {
    let place = Place::new();
    let peer = peer(&place, &["streams=main policy lapse size 10 b"]);
    archive(&place, &["--to", "a.jsonl"]).exits(DONE);
    let advised = place.start(&["sub", "_RV.ERROR.SYSTEM.STREAM.LAPSED"]);
    advised.await_report("listening");
    let lapsed = || {
        let listed = parse_json(&place.run(&["consumer", "list", "--json"]).exits(DONE).stdout);
        listed["consumers"][0]["lapsed"]["last"] == "7"
    };
    add_many(&place, 10, 8);
    place.run(&["stream", "add", "A", "\"abcdef\""]).exits(DONE);
    wait_until("the archive's consumer lapses", lapsed);
    let advisory = advised.line();
    for part in ["STREAM.LAPSED", r#""component":"archive""#, r#""first":"1""#] {
        assert!(advisory.contains(part), "{advisory}");
    }
    let outcome = archive(&place, &["--to", "a.jsonl"]).exits(FAILED).reports(&["missed 7 events, 1 to 7"]);
    assert_eq!(parse_json(&outcome.stdout)["missed"], 7);
    let (events, gaps) = archived(&place, "a.jsonl");
    assert_eq!(events, [(8, "17".to_owned()), (9, "\"abcdef\"".to_owned())]);
    assert_eq!(
        (gaps.len(), &gaps[0]["first"], &gaps[0]["last"], &gaps[0]["count"]),
        (1, &"1".into(), &"7".into(), &7.into())
    );
    archive(&place, &["--to", "a.jsonl"]).exits(DONE);
    // An operator sets the consumer's position: events in between may be missing, and the file says so.
    let mut archiving = place.start(&["stream", "archive", "--to", "a.jsonl"]);
    archiving.await_report("archives the stream main");
    archiving.signal("STOP");
    add_many(&place, 20, 1);
    place.run(&["consumer", "reset", "archive", "--to", "end"]).exits(DONE);
    archiving.signal("CONT");
    archiving.await_report("events 10 to 10 of the stream main may be missing");
    archiving.signal("INT");
    assert_eq!(archiving.ended().code(), Some(FAILED));
    assert_eq!(archived(&place, "a.jsonl").1[1]["count"], Value::Null);
    end(peer);
}

/// The file is on a small disk of the command's own.
#[test]
fn archive_accepts_only_what_a_full_disk_stored() {
    for file in ["small/a.jsonl", "small/a.db"] {
        let place = Place::new();
        let peer = peer(&place, &[]);
        place.run(&["consumer", "add", "archive"]).exits(DONE);
        let lines = format!("\"{}\"\n", "x".repeat(2000)).repeat(1500);
        place.run_with_input(&["stream", "add", "A", "--lines"], lines.as_bytes()).exits(DONE);
        fs::create_dir(place.dir().join("small")).unwrap();
        let script = "mount -t tmpfs -o size=1500k tmpfs small && exec \"$0\" \"$@\"";
        let mut command = std::process::Command::new("unshare");
        command.args(["-rm", "sh", "-c", script, env!("CARGO_BIN_EXE_seqcast")]);
        let arguments = ["stream", "archive", "--once", "--json", "--to", file];
        command.args(arguments);
        place.set_environment(&mut command);
        command.stdin(Stdio::null());
        let outcome = Outcome::of(command.output().expect("unshare is there"), &arguments);
        let outcome = outcome.exits(FAILED).reports(&["has no room", "make room"]);
        let stored: u64 = parse_json(&outcome.stdout)["last"].as_str().unwrap().parse().unwrap();
        let listed = parse_json(&place.run(&["consumer", "list", "--json"]).exits(DONE).stdout);
        let position: u64 = listed["consumers"][0]["position"].as_str().unwrap().parse().unwrap();
        assert!(position <= stored && stored < 1500, "{position} accepted, {stored} stored");
        end(peer);
    }
}

/// The command prints the id of each line at once, from a terminal or from a slow program, and can be ended.
#[test]
fn lines_are_added_as_they_arrive() {
    let place = Place::new();
    let peer = peer(&place, &[]);
    for arguments in [["stream", "add", "A", "--lines"], ["event", "add", "a/b", "--lines"]] {
        let mut child = place.command(&arguments).stdin(Stdio::piped()).spawn().expect("the command starts");
        let mut input = child.stdin.take().expect("it is a pipe");
        let mut adding = RunningCommand::new(child, &arguments);
        for _ in 0..2 {
            input.write_all(b"[1]\n").expect("it reads");
            assert!(!adding.line().is_empty());
        }
        adding.signal("INT");
        assert_eq!(adding.ended().code(), Some(FAILED));
    }
    end(peer);
}

/// Events beyond the limit are refused at once, however many are in transit.
#[test]
fn blocking_stream_refuses_beyond_its_size() {
    let place = Place::new();
    let peer = peer(&place, &["streams=main size 1 kb policy block"]);
    place.run(&["consumer", "add", "C"]).exits(DONE);
    let lines: String = (0..200).map(|_| format!("\"{}\"\n", "x".repeat(98))).collect();
    let added = place.run_with_input(&["stream", "add", "A", "--lines"], lines.as_bytes()).exits(FAILED);
    added.reports(&["line 12", "the stream main is full"]);
    let polled = place.run(&["stream", "poll", "C", "--json"]).exits(DONE);
    assert_eq!(rows(&polled).len(), 11, "those that were added until there were 1,024 bytes");
    end(peer);
}
