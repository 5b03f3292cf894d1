//! `pub` with lines of standard input: subjects in the lines, JSON lines, malformed lines, the end by a signal.

use crate::support::command::{Outcome, Place, RunningCommand, parse_json, signal, wait_with_output};
use crate::support::exit_code::{DONE, FAILED, USAGE};
use crate::support::wait::{let_time_pass, wait_until, wait_until_some};
use serde_json::Value;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn one_process_publishes_on_many_subjects() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let mut sub = place.start(&["sub", "plant.>", "--json", "--count", "50"]);
    sub.await_report("listening on");
    let lines: String = (1..=50).map(|sensor| format!("plant.{sensor}.temperature\t{sensor}.5 C\n")).collect();
    let arguments = ["pub", "--subject-lines", "-H", "unit:C", "--json"];
    let published = place.run_with_input(&arguments, format!("{lines}\n \n").as_bytes()).exits(DONE).stdout;
    let published = parse_json(&published);
    assert_eq!((&published["subject"], &published["messages"]), (&Value::Null, &50.into()));
    for sensor in 1..=50 {
        let message = parse_json(&sub.line());
        assert_eq!(message["subject"], format!("plant.{sensor}.temperature"));
        assert_eq!((&message["payload"], &message["headers"]["unit"]), (&format!("{sensor}.5 C").into(), &"C".into()));
    }
    assert_eq!(sub.ended().code(), Some(DONE));
    place.run(&["pub", "a.b", "--subject-lines"]).exits(USAGE).reports(&["--subject-lines", "cannot be used with"]);
    place.run(&["pub", "--json-lines", "-H", "a:b"]).exits(USAGE);
    place.run(&["pub"]).exits(USAGE).reports(&["SUBJECT"]);
}

#[test]
fn output_of_sub_can_be_published_again() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let mut recorder = place.start(&["sub", "t.>", "--json", "--count", "3"]);
    recorder.await_report("listening on");
    place.run(&["pub", "t.text", "a \"b\"\tc", "-H", "z:1", "-H", "z:2", "--reply", "answers.here"]).exits(DONE);
    place.run_with_input(&["pub", "t.binary", "--file", "-"], b"\xff\x00\n").exits(DONE);
    place.run(&["pub", "t.empty", ""]).exits(DONE);
    let printed = [recorder.line(), recorder.line(), recorder.line()];
    assert_eq!(recorder.ended().code(), Some(DONE));

    let mut sub = place.start(&["sub", "t.>", "--json", "--count", "3"]);
    sub.await_report("listening on");
    let lines = format!("{}\n{{\"type\":\"dropped\",\"count\":3}}\n{}\n{}", printed[0], printed[1], printed[2]);
    let again = place.run_with_input(&["pub", "--json-lines"], lines.as_bytes()).exits(DONE);
    again.reports(&["published 3 messages (10 bytes); skipped 1 line of other types"]).prints("");
    for before in printed {
        let (before, after) = (parse_json(&before), parse_json(&sub.line()));
        for field in ["subject", "payload", "payload_base64", "reply", "headers"] {
            assert_eq!(before.get(field), after.get(field), "{field} of {before}");
        }
    }
    assert_eq!(sub.ended().code(), Some(DONE));
}

#[test]
fn large_file_is_published_in_lent_memory() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let lent = || {
        let rows = place.show("counters");
        let rows = rows["rows"].as_array().expect("rows").clone();
        rows.iter().find(|row| row["counter"] == "payloads_lent").expect("the counter exists")["value"].clone()
    };
    let mut sub = place.start(&["sub", "f.*", "--json", "--count", "5"]);
    sub.await_report("listening on");
    let path = place.dir().join("image");
    let content: String = (0..1 << 17).map(|number| format!("{number:07}\n")).collect();
    std::fs::write(&path, &content).expect("the directory is writable");
    let file = path.to_str().expect("text");
    place.run(&["pub", "f.file", "--file", file, "--count", "2"]).exits(DONE).reports(&["(2097152 bytes)"]);
    assert_eq!(lent(), 2, "a file has a known size");
    place.run_with_input(&["pub", "f.pipe", "--file", "-"], content.as_bytes()).exits(DONE);
    assert_eq!(lent(), 3);
    place.run_with_input(&["pub", "f.small", "--file", "-"], &content.as_bytes()[..60_000]).exits(DONE);
    place.run(&["pub", "f.embedded", "--file", file, "--embed", "--port", &place.port().to_string()]).exits(DONE);
    assert_eq!(lent(), 3, "small payloads and those of other peers are copied");
    for (subject, bytes) in
        [("f.file", 1 << 20), ("f.file", 1 << 20), ("f.pipe", 1 << 20), ("f.small", 60_000), ("f.embedded", 1 << 20)]
    {
        let message = parse_json(&sub.line());
        assert_eq!((&message["subject"], &message["payload"]), (&subject.into(), &content[..bytes].into()));
    }
    assert_eq!(sub.ended().code(), Some(DONE));
}

#[test]
fn malformed_line_ends_the_command_with_its_number() {
    let place = Place::new();
    let _peer = place.peer(&["--set", "message-size=1 kb"]);
    let sub = place.start(&["sub", "a.>"]);
    sub.await_report("listening on");
    let large = format!("a.1 x\na.2 {}\n", "x".repeat(1025));
    for (arguments, lines, reports) in [
        (
            &["pub", "--subject-lines"][..],
            "a.1 x\n\na..2 y\na.3 z\n",
            &["line 3: \"a..2\" is no subject", "tail -n +3"][..],
        ),
        (&["pub", "--subject-lines"], &large, &["line 2: the message has 1025 bytes", "message-size", "tail -n +2"]),
        (
            &["pub", "--json-lines"],
            "{\"subject\":\"a.1\",\"payload\":\"x\"}\n{\"subject\":7}\n",
            &["line 2: invalid type"],
        ),
    ] {
        let outcome = place.run_with_input(arguments, lines.as_bytes()).exits(FAILED).prints("");
        outcome.reports(&["published 1 message (1 byte)", "are published"]).reports(reports);
        assert_eq!(sub.line(), "a.1  x");
    }
    let outcome = place.run_with_input(&["pub", "--subject-lines"], b" a.1 x\n").exits(FAILED);
    outcome.reports(&["line 1: the line begins with a blank", "nothing is published"]);
    place.run(&["pub", "a.last", "y"]).exits(DONE);
    assert_eq!(sub.line(), "a.last  y", "no message follows a malformed line");
}

#[test]
fn lone_publisher_learns_how_to_reach_others() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let nobody = ["nobody is there", "subscribes to a.b", "reaches this host only", "fix: ", "--interface NAME"];
    place.run(&["pub", "a.b", "x"]).exits(DONE).reports(&["no known subscriber"]).reports(&nobody).prints("");
    place.run(&["show", "peers"]).exits(DONE).reports(&["this peer knows no other peer", "--interface NAME"]);

    let local = place.start(&["sub", "a.*", "--queue", "q"]);
    local.await_report("listening on");
    let outcome = place.run(&["pub", "a.b", "x"]).exits(DONE);
    assert_eq!(outcome.stderr, "published 1 message on a.b (1 byte); 1 known subscriber\n");
    place.run(&["pub", "c", "x"]).exits(DONE).reports(&["nobody is there"]);

    let remote = place.start(&["sub", "a.>", "--embed", "--name", "B.test"]);
    remote.await_report("listening on");
    let receivers = || parse_json(&place.run(&["pub", "a.b", "x", "--json"]).exits(DONE).stdout)["receivers"].take();
    wait_until("the subscription of the other peer is known", || receivers() == 2);
    let outcome = place.run(&["pub", "c", "x"]).exits(DONE);
    assert_eq!(outcome.stderr, "published 1 message on c (1 byte); no known subscriber\n");
    assert_eq!(place.run(&["show", "peers"]).exits(DONE).stderr, "");
}

#[test]
fn signal_ends_the_wait_for_a_line() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let sub = place.start(&["sub", "a.>"]);
    sub.await_report("listening on");
    for (arguments, line, signal) in [
        (&["pub", "a.b"][..], "x\n", "INT"),
        (&["pub", "--subject-lines"], "a.b x\n", "TERM"),
        (&["pub", "--json-lines"], "{\"subject\":\"a.b\",\"payload\":\"x\"}\n", "INT"),
    ] {
        let mut child = place.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        // The pipe stays open: only the signal can end the command.
        let mut stdin = child.stdin.take().unwrap();
        let mut publisher = RunningCommand::new(child, arguments);
        stdin.write_all(line.as_bytes()).unwrap();
        assert_eq!(sub.line(), "a.b  x");
        publisher.signal(signal);
        assert_eq!(publisher.ended().code(), Some(FAILED), "{arguments:?}");
        publisher.await_report("published 1 message");
    }
}

#[test]
fn signal_ends_the_wait_for_a_busy_peer() {
    let place = Place::new();
    let peer = place.peer(&[]);
    let arguments = ["pub", "a.b", "--lines"];
    let mut child = place.command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"first\n").unwrap();
    wait_until("the first line is published", || {
        place.show("clients")["rows"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["name"] == "pub" && row["published"] == 1)
    });
    peer.signal("STOP");
    // More than the socket of the peer takes.
    let lines = [&[b'x'; 999][..], b"\n"].concat().repeat(16_000);
    let writer = std::thread::spawn(move || drop(stdin.write_all(&lines)));
    let_time_pass(Duration::from_millis(500), "a publisher that waits for its peer reports nothing");
    signal(child.id(), "INT");
    let_time_pass(Duration::from_millis(300), "the publisher notices the signal while its peer is busy");
    peer.signal("CONT");
    let outcome = Outcome::of(wait_with_output(child, &arguments), &arguments).exits(FAILED);
    assert!(outcome.reports(&["published "]).stderr.lines().all(|line| !line.starts_with("seqcast: ")));
    writer.join().unwrap();
}

#[test]
fn interrupted_command_leaves_typed_lines_to_the_console() {
    let place = Place::new();
    let _peer = place.peer(&["--set", "data-dir=journal"]);
    let console = concat!(env!("CARGO_BIN_EXE_seqcast"), " console");
    let mut script = place.terminal_command(console).spawn().expect("script starts");
    let keyboard = script.stdin.take().unwrap();
    let mut script = RunningCommand::new(script, &["console"]);
    let screen = || std::fs::read_to_string(place.dir().join("screen")).unwrap_or_default();
    let await_screen = |part: &str| {
        let what = || format!("the screen shows {part:?}: {}", screen());
        wait_until_some(what, || screen().contains(part).then_some(()));
    };
    let mut lines = 0;
    let mut type_line = |line: &str| {
        lines += 1;
        await_screen(&format!("[{lines}]> "));
        (&keyboard).write_all(format!("{line}\r").as_bytes()).unwrap();
    };
    for (command, client) in [("event add t --lines", "event"), ("pub a.b --lines", "pub")] {
        type_line(command);
        let is_attached = || {
            let rows = place.show("clients")["rows"].take();
            rows.as_array().unwrap().iter().any(|row| row["name"] == client).then_some(())
        };
        wait_until_some(|| format!("{client} is attached"), is_attached);
        // Ctrl-C at the terminal.
        (&keyboard).write_all(b"\x03").unwrap();
    }
    type_line("version");
    type_line("quit");
    assert_eq!(script.ended().code(), Some(FAILED), "that of the interrupted commands");
    await_screen(concat!("seqcast ", env!("CARGO_PKG_VERSION")));
}
