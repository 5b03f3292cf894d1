//! `pub`, `sub`, `req` and `reply`: messages between commands.

use crate::support::command::{Outcome, Place, now, parse_json};
use crate::support::exit_code::{DONE, FAILED, TIMED_OUT, UNREACHABLE, USAGE};
use crate::support::wait::{PATIENCE, wait_until, wait_until_some};
use seqcast::clock::Clock;
use seqcast::event::timestamp::Timestamp;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn published_message_reaches_the_subscriber() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    let mut sub = place.start(&["sub", "demo.>", "--count", "2", "--headers"]);
    sub.await_report("listening on demo.>");
    let arguments = ["pub", "demo.hello", "hi there", "-H", "unit: C", "--reply", "answers.here"];
    place.run(&arguments).exits(DONE).reports(&["published 1 message on demo.hello"]).prints("");
    place.run(&["pub", "demo.hello", "bell\x07 \x1b[31m"]).exits(DONE);
    assert_eq!(sub.line(), "demo.hello  hi there");
    let detail = sub.line();
    assert!(detail.starts_with("  from A.0 "), "{detail}");
    assert_eq!([sub.line(), sub.line()], ["  reply answers.here", "  unit: C"]);
    assert_eq!(sub.line(), r"demo.hello  bell\u{7} \u{1b}[31m");
    assert_eq!(sub.ended().code(), Some(DONE));
}

#[test]
fn sub_prints_raw_json_and_timestamps() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    let mut subs = [&["--raw"][..], &["--json", "--timestamp"], &["--timestamp"]].map(|how| {
        let sub = place.start(&[&["sub", "demo.>", "--count", "1"], how].concat());
        sub.await_report("listening on");
        sub
    });
    place.run(&["pub", "demo.x", "a\tb", "-H", "k:v"]).exits(DONE);
    assert_eq!(subs[0].line(), "a\tb");
    let json = parse_json(&subs[1].line());
    assert_eq!(json["type"], "message");
    assert_eq!((&json["subject"], &json["payload"]), (&"demo.x".into(), &"a\tb".into()));
    assert_eq!((&json["user"], &json["publisher"]), (&"A.0".into(), &"A.test".into()));
    assert_eq!((&json["verdict"], &json["headers"]["k"]), (&"direct".into(), &"v".into()));
    let received: Timestamp = json["received"].as_str().expect("a text").parse().unwrap();
    let age = Timestamp::from(Clock::now().wall).as_micros() - received.as_micros();
    assert!((0..PATIENCE.as_micros() as i64).contains(&age), "{json}");
    let offset = json["offset"].as_u64().expect("a number");
    let polled =
        parse_json(place.run(&["poll", "A.test", "demo.x", "--json"]).exits(DONE).stdout.lines().nth(1).unwrap());
    assert_eq!(
        (&polled["type"], &polled["offset"]),
        (&"event".into(), &offset.into()),
        "a poll returns the same offset"
    );
    let timed = subs[2].line();
    assert!(timed.starts_with('[') && timed.ends_with("] demo.x  a\tb"), "{timed}");
    for sub in &mut subs {
        assert_eq!(sub.ended().code(), Some(DONE));
    }
}

#[test]
fn fields_of_rendezvous_messages_are_published_and_printed() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let mut subs = [&["--format", "rvmsg"][..], &["--format", "rvmsg", "--json"], &["--format", "text"]].map(|how| {
        let sub = place.start(&[&["sub", "demo.>", "--count", "2"], how].concat());
        sub.await_report("listening on");
        sub
    });
    place.run(&["pub", "demo.rv", "--rvmsg", "price=21.5, n:u32=7, to={who=IBM}"]).exits(DONE);
    place.run(&["pub", "demo.text", "no fields"]).exits(DONE);
    assert_eq!(subs[0].line(), r#"demo.rv  {price=21.5, n:u32=7, to={who="IBM"}}"#);
    assert_eq!(subs[0].line(), "demo.text  no fields");
    let json = parse_json(&subs[1].line());
    assert_eq!(json["rvmsg"][1], serde_json::json!({ "name": "n", "type": "u32", "value": 7 }));
    assert_eq!(json["rvmsg"][2]["value"][0]["value"], "IBM");
    assert!(json["payload_base64"].is_string(), "{json}");
    assert_eq!(parse_json(&subs[1].line()).get("rvmsg"), None);
    let text = subs[2].line();
    assert!(text.starts_with(r"demo.rv  \u{0}") && text.contains(r"\x99U\xee\xaa"), "{text}");
    assert_eq!(subs[2].line(), "demo.text  no fields");
    for sub in &mut subs {
        assert_eq!(sub.ended().code(), Some(DONE));
    }
    let refused = place.run(&["pub", "demo.rv", "--rvmsg", "n:u8=256"]).exits(USAGE);
    refused.reports(&["\"256\" is not a u8 (0 to 255) (column 6)", "write it like 'price=21.5"]);
}

#[test]
fn expired_wait_exits_27() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    place.run(&["sub", "demo.>", "--wait", "100ms"]).exits(TIMED_OUT).prints("");
    place.run(&["sub", "demo.>", "--count", "1", "--wait", "100ms"]).exits(TIMED_OUT).prints("");
    let silent = place.start(&["sub", "nobody.answers"]);
    silent.await_report("listening on");
    place
        .run(&["req", "nobody.answers", "?", "--wait", "100ms"])
        .exits(TIMED_OUT)
        .reports(&["no reply", "nobody.answers"]);
    place.run(&["reply", "nobody.asks", "x", "--wait", "100ms"]).exits(TIMED_OUT);
    place.run(&["sub", "demo.>", "--count", "0", "--wait", "5s"]).exits(DONE).prints("");
}

#[test]
fn request_without_responder_ends_at_once_unless_patient() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    for embed in [&[][..], &["--embed"]] {
        let outcome = place.run(&[&["req", "nobody.here", "?", "--wait", "1m"], embed].concat()).exits(UNREACHABLE);
        outcome.reports(&["no client on the LAN or in another site subscribes to nobody.here", "--patient"]).prints("");
    }
    place.run(&["req", "nobody.here", "--patient", "--wait", "100ms"]).exits(TIMED_OUT).reports(&["no reply"]);
    let mut patient = place.start(&["req", "demo.late", "?", "--patient", "--wait", "1m"]);
    let clients = || place.run(&["show", "subs"]).exits(DONE).stdout;
    wait_until_some(|| format!("the request waits: {}", clients()), || clients().contains("_INBOX.").then_some(()));
    let mut reply = place.start(&["reply", "demo.late", "at last", "--count", "1"]);
    assert_eq!((patient.line().as_str(), patient.ended().code()), ("at last", Some(DONE)));
    assert_eq!(reply.ended().code(), Some(DONE));
}

#[test]
fn requests_are_answered() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    let mut fixed = place.start(&["reply", "demo.fixed", "answer {{count}}", "--count", "2"]);
    let mut echo = place.start(&["reply", "demo.echo.>", "--echo", "--count", "1", "--json"]);
    let mut command =
        place.start(&["reply", "demo.sh", "--command", "printf '%s:' $SEQCAST_SUBJECT; cat; echo", "--count", "1"]);
    for reply in [&fixed, &echo, &command] {
        reply.await_report("answering");
    }
    let request = |arguments: &[&str]| place.run(&[&["req", "--wait", "1m"], arguments].concat()).exits(DONE);
    request(&["demo.fixed", "?"]).prints("answer 1\n");
    let json = parse_json(&request(&["demo.fixed", "?", "--json"]).stdout);
    assert_eq!((&json["type"], &json["payload"]), (&"message".into(), &"answer 2".into()));
    request(&["demo.echo.x", "-5"]).prints("-5\n");
    assert_eq!(parse_json(&echo.line())["payload"], "-5");
    request(&["demo.sh", "in", "--raw"]).prints("demo.sh:in\n");
    for reply in [&mut fixed, &mut echo, &mut command] {
        assert_eq!(reply.ended().code(), Some(DONE));
    }
}

#[test]
fn request_waits_for_all_wanted_replies() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let repliers = ["one", "two"].map(|text| {
        let reply = place.start(&["reply", "demo.who", text]);
        reply.await_report("answering");
        reply
    });
    let outcome = place.run(&["req", "demo.who", "--replies", "2", "--wait", "1m"]).exits(DONE);
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["one", "two"]);
    // The third never comes. The delay of the first two depends on the machine.
    let mut waits = ["300ms", "3s", "30s"].into_iter();
    let outcome = loop {
        let wait = waits.next().expect("two replies within 30 s");
        let outcome = place.run(&["req", "demo.who", "--replies", "3", "--wait", wait]).exits(TIMED_OUT);
        if outcome.stdout.lines().count() == 2 {
            break outcome;
        }
    };
    assert!(outcome.stderr.contains("2 of 3"), "{outcome:#?}");
    drop(repliers);
}

#[test]
fn repliers_of_a_queue_group_share_the_requests() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let mut repliers = ["one", "two"].map(|text| {
        let reply = place.start(&["reply", "demo.who", text, "--queue", "clocks", "--json"]);
        reply.await_report("answering");
        reply
    });
    for _ in 0..20 {
        // If both repliers received a request, it would have two answers.
        let outcome = place.run(&["req", "demo.who", "--wait", "1m"]).exits(DONE);
        assert!(["one\n", "two\n"].contains(&outcome.stdout.as_str()), "{outcome:#?}");
    }
    repliers.iter().for_each(|reply| reply.signal("INT"));
    let answered = repliers.iter_mut().map(|reply| {
        assert_eq!(reply.ended().code(), Some(DONE));
        reply.lines_so_far().len()
    });
    assert_eq!(answered.sum::<usize>(), 20);
}

#[test]
fn interrupted_commands_fail_before_their_count() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    for (arguments, report, code) in [
        (&["reply", "a", "x"][..], "answering", DONE),
        (&["reply", "a", "x", "--count", "1"], "answering", FAILED),
        (&["sub", "a", "--count", "1"], "listening on", FAILED),
    ] {
        let mut command = place.start(arguments);
        command.await_report(report);
        command.signal("INT");
        assert_eq!(command.ended().code(), Some(code), "{arguments:?}");
    }
    let subscriber = place.start(&["sub", "a"]);
    subscriber.await_report("listening on");
    let mut request = place.start(&["req", "a", "x", "--wait", "1h"]);
    subscriber.line();
    request.signal("INT");
    assert_eq!(request.ended().code(), Some(FAILED));
    assert_eq!(request.stderr_so_far(), [""; 0], "the time is not over");
}

#[test]
fn signal_ends_the_command_of_a_replier() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let mut reply = place.start(&["reply", "a", "--command", "echo begun >&2; exec sleep 3600"]);
    reply.await_report("answering");
    place.run(&["pub", "a", "x", "--reply", "r"]).exits(DONE);
    reply.await_report("begun");
    reply.signal("TERM");
    assert_eq!(reply.ended().code(), Some(DONE));
}

#[test]
fn slow_publisher_ends_at_a_signal() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let subscriber = place.start(&["sub", "a", "--count", "1"]);
    subscriber.await_report("listening on");
    // The second message would be due in a hundred seconds.
    let mut publisher = place.start(&["pub", "a", "x", "--count", "2", "--rate", "0.01"]);
    subscriber.line();
    publisher.signal("TERM");
    assert_eq!(publisher.ended().code(), Some(FAILED));
}

#[test]
fn pub_reads_lines_files_and_templates() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    std::fs::write(place.dir().join("one.bin"), b"\x00\xff").unwrap();
    std::fs::write(place.dir().join("two.txt"), "two\nlines\n").unwrap();
    let sub = place.start(&["sub", "t.>", "--json", "--count", "10"]);
    sub.await_report("listening on");
    place.run(&["pub", "t.count", "n {{count}}", "--count", "3"]).exits(DONE).reports(&["3 messages"]);
    place.run_with_input(&["pub", "t.lines"], b"first\n\nlast").exits(DONE).reports(&["3 messages"]);
    place.run_with_input(&["pub", "t.some", "--lines", "--count", "1"], b"x\r\ny\n").exits(DONE);
    place.run(&["pub", "t.file", "--file", "one.bin", "two.txt"]).exits(DONE).reports(&["2 messages"]);
    let json = place.run_with_input(&["pub", "t.stdin", "--file", "-", "--json"], b"all\nof it").exits(DONE).stdout;
    let json = parse_json(&json);
    assert_eq!((&json["messages"], &json["bytes"]), (&1.into(), &9.into()));
    let expected = [
        ("t.count", "n 1"),
        ("t.count", "n 2"),
        ("t.count", "n 3"),
        ("t.lines", "first"),
        ("t.lines", ""),
        ("t.lines", "last"),
        ("t.some", "x"),
        ("t.file", "AP8="),
        ("t.file", "two\nlines\n"),
        ("t.stdin", "all\nof it"),
    ];
    for (subject, payload) in expected {
        let message = parse_json(&sub.line());
        let text = message.get("payload").or_else(|| message.get("payload_base64"));
        assert_eq!((&message["subject"], text), (&subject.into(), Some(&payload.into())), "{message}");
    }
}

#[test]
fn unpublishable_input_is_refused() {
    let place = Place::new();
    let _peer = place.peer(&["--set", "message-size=1 kb"]);
    place.run(&["pub", "a.b", "--file", "missing.txt"]).exits(FAILED).reports(&["missing.txt", "No such file"]);
    place.run(&["pub", "a.b", "--file", "."]).exits(FAILED).reports(&["cannot be read"]);
    std::fs::write(place.dir().join("large"), vec![b'x'; 1025]).unwrap();
    place.run(&["pub", "a.b", "--file", "large"]).exits(FAILED).reports(&["1025", "1024", "message-size"]);
    place.run(&["pub", "a.b", &"x".repeat(1024)]).exits(DONE);
}

#[test]
fn publish_rate_is_kept() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let start = now();
    place.run(&["pub", "a.b", "x", "--count", "51", "--rate", "100/s"]).exits(DONE).reports(&["51 messages"]);
    assert!(Duration::from_millis(500) <= now().since(start), "{:?}", now().since(start));
}

#[test]
fn closed_pipe_is_no_error() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let mut head = std::process::Command::new("bash");
    place.set_environment(&mut head);
    let seqcast = env!("CARGO_BIN_EXE_seqcast");
    head.arg("-c")
        .arg(format!("set -o pipefail; '{seqcast}' sub 'a.>' 2>listening | head -n 1; echo ${{PIPESTATUS[0]}}"));
    let head = head.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the subscriber listens", || {
        !std::fs::read_to_string(place.dir().join("listening")).unwrap_or_default().is_empty()
    });
    // One message only: the subscriber must notice by itself that its reader is gone.
    place.run(&["pub", "a.b", "one"]).exits(DONE);
    let output = head.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a.b  one\n0\n");
    for (arguments, code) in [
        ("config show | true", DONE),
        ("--help | true", DONE),
        ("pub 'a.b' x 2>&1 >/dev/null | true", DONE),
        ("pub 'a..b' x 2>&1 >/dev/null | true", USAGE),
        ("sub 'a.>' --wait 50ms 2>&1 >/dev/null | true", TIMED_OUT),
    ] {
        let mut bash = std::process::Command::new("bash");
        place.set_environment(&mut bash);
        let output = bash.arg("-c").arg(format!("set -o pipefail; '{seqcast}' {arguments}")).output().unwrap();
        assert!(output.status.code() == Some(code) && output.stderr.is_empty(), "{arguments}: {output:?}");
    }
}

#[test]
fn unusable_standard_streams_are_named() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let full = "seqcast: standard output cannot be written: No space left on device (os error 28)\n  fix: make room";
    for (arguments, report) in [
        ("config show >/dev/full", full),
        ("--help >/dev/full", full),
        ("pub a.b --lines </", "seqcast: standard input cannot be read: Is a directory"),
        ("console </", "seqcast: standard input cannot be read: Is a directory"),
    ] {
        let mut bash = std::process::Command::new("bash");
        place.set_environment(&mut bash);
        let output = bash.args(["-c", &format!("'{}' {arguments}", env!("CARGO_BIN_EXE_seqcast"))]).output().unwrap();
        Outcome::of(output, &[arguments]).exits(FAILED).reports(&[report]);
    }
}

#[test]
fn embedded_peer_needs_no_daemon() {
    let place = Place::new();
    let mut sub = place.start(&["sub", "demo.>", "--embed", "--name", "B.test", "--count", "1", "--json"]);
    sub.await_report("listening on");
    place.run(&["pub", "demo.hello", "across", "--embed", "--name", "C.test"]).exits(DONE);
    let json = parse_json(&sub.line());
    assert_eq!(
        (&json["payload"], &json["publisher"], &json["user"]),
        (&"across".into(), &"C.test".into(), &"C.1".into())
    );
    // The clocks are the same one, so the message cannot arrive before it was sent.
    let time = |field: &str| json[field].as_str().expect("a text").parse::<Timestamp>().unwrap();
    assert_eq!(json["verdict"], "start");
    assert!(time("sent") <= time("received"), "{json}");
    assert_eq!(sub.ended().code(), Some(DONE));
}

#[test]
fn invalid_utf8_line_is_accepted_as_payload() {
    let place = Place::new();
    let mut child = place.command(&["pub", "a.b"]).stdin(Stdio::piped()).spawn().unwrap();
    drop(child.stdin.take().unwrap().write_all(b"\xff\xfe\n"));
    assert_eq!(child.wait().unwrap().code(), Some(UNREACHABLE));
}
