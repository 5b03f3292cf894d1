//! The built command from the user's view: exit codes, standard output, standard error.

use crate::support::command::{Outcome, PATIENCE, Place, Running, now};
use crate::support::wait::{wait_until, wait_until_some};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

const DONE: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const CONFIGURATION: i32 = 3;
const UNREACHABLE: i32 = 4;
const TIMED_OUT: i32 = 27;

#[track_caller]
fn object(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(value.is_object(), "{line}");
    value
}

#[test]
fn wrong_arguments_exit_2_with_a_remedy() {
    let place = Place::new();
    for (arguments, parts) in [
        (&["pubb", "a.b", "x"][..], &["unrecognized subcommand 'pubb'", "'pub'"][..]),
        (&["sub"], &["<PATTERN>..."]),
        (&["sub", "a.>", "--cuont", "1"], &["'--cuont'", "'--count'"]),
        (&["pub", "a..b", "x"], &["empty token at byte 2"]),
        (&["pub", "a.*", "x"], &["wildcards", "subscribed to, not published on"]),
        (&["sub", "a.>.b"], &["must be the last token"]),
        (&["pub", "a b", "x"], &["space or control character at byte 1"]),
        (&["pub", "a", "x", "-H", "no colon"], &["KEY:VALUE"]),
        (&["pub", "a", "x", "-H", "k k:v"], &["printable ASCII"]),
        (&["pub", "a", "x", "--rate", "0"], &["messages a second above 0"]),
        (&["pub", "a", "x", "--lines"], &["cannot be used with"]),
        (&["sub", "a", "--wait", "soon"], &["a time looks like"]),
        (&["sub", "a", "--raw", "--json"], &["cannot be used with"]),
        (&["reply", "a"], &["--echo"]),
        (&["sub", "a", "--queue", "two words"], &["space or control character at byte 3", "queue group"]),
        (&["reply", "a", "x", "--queue", ""], &["queue group must not be empty"]),
        (&["sub", "a", "--queue", "q", "--live"], &["'--queue <NAME>'", "cannot be used with", "'--live'"]),
        (&["sub", "a", "--queue", "q", "--history", "all"], &["cannot be used with", "'--history"]),
        (&["sub", "a", "--queue", "q", "--confirm"], &["cannot be used with", "'--confirm'"]),
        (&["show", "losses"], &["'loss'"]),
        (&["demo", "loss", "--drop", "100%"], &["below 100"]),
        (&["demo", "loss", "--reliability", "soon"], &["a time looks like"]),
        (&["pub", "a", "x", "--name", "B"], &["--name", "--embed"]),
        (&["config", "check"], &["no configuration file", "SEQCAST_CONFIG"]),
    ] {
        let outcome = place.run(arguments).exits(USAGE).says(parts);
        assert_eq!(outcome.stdout, "", "{outcome:#?}");
    }
    assert!(place.run(&[]).exits(USAGE).stderr.contains("Usage: seqcast"));
}

#[test]
fn help_goes_to_standard_output_with_examples() {
    let place = Place::new();
    let help = place.run(&["--help"]).exits(DONE).says(&[]);
    for part in ["seqcast pub demo.hello", "0 done, 1 failed", "27 timed out", "completion", "NO_COLOR"] {
        assert!(help.stdout.contains(part), "{part:?} is not in {}", help.stdout);
    }
    assert!(place.run(&["help", "show"]).exits(DONE).stdout.contains("seqcast show loss"));
}

#[test]
fn version_is_that_of_the_crate() {
    let place = Place::new();
    let version = env!("CARGO_PKG_VERSION");
    place.run(&["version"]).exits(DONE).prints(&format!("seqcast {version}\n"));
    place.run(&["--version"]).exits(DONE).prints(&format!("seqcast {version}\n"));
    let json = object(&place.run(&["version", "--json"]).exits(DONE).stdout);
    assert_eq!(json["version"], version);
    assert_eq!((&json["name"], &json["wire"]), (&"seqcast".into(), &1.into()));
}

#[test]
fn completions_know_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completion", shell]).exits(DONE).stdout;
        assert!(script.contains("demo") && script.contains("seqno"), "{shell}: {script}");
    }
    let script = place.run(&["completion", "bash"]).stdout;
    std::fs::write(place.dir().join("completion"), script).unwrap();
    let sourced = std::process::Command::new("bash").arg("-n").arg(place.dir().join("completion")).status();
    assert!(sourced.unwrap().success());
    place.run(&["completion", "tcsh"]).exits(USAGE);
}

#[test]
fn checked_configuration_has_no_side_effects() {
    let place = Place::new();
    let file = |name: &str, text: &[u8]| {
        std::fs::write(place.dir().join(name), text).unwrap();
        name.to_owned()
    };
    let good = file("good.yaml", b"parameters:\n  pub-window-size: 10 mb\n  pub_window_time: 60 sec\n");
    let bad = file("bad.yaml", b"parameters:\n  pub-window-tme: 60 sec\n  pub-window-time: 2 sec\n");
    let binary = file("binary.yaml", b"\x7fELF\x00\x01");
    let before = listing(&place);
    place.run(&["config", "check", &good]).exits(DONE).prints("good.yaml: no errors\n");
    let told = place.run(&["config", "check", &bad]).exits(CONFIGURATION);
    let told = told.says(&["2 errors", "bad.yaml:2:3: pub-window-tme", "pub-window-time", "bad.yaml:3:", "10 sec"]);
    assert_eq!(told.stdout, "");
    let json = object(&place.run(&["config", "check", &bad, "--json"]).exits(CONFIGURATION).stdout);
    assert_eq!(json["ok"], false);
    assert_eq!(json["errors"].as_array().map(Vec::len), Some(2), "{json}");
    assert_eq!(json["errors"][0]["line"], 2);
    place.run(&["config", "check", &binary]).exits(CONFIGURATION).says(&["binary.yaml"]);
    place.run(&["config", "check", "missing.yaml"]).exits(CONFIGURATION).says(&["missing.yaml", "cannot be read"]);
    let shown = place.run(&["config", "show", &good]).exits(DONE).stdout;
    let row = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
    assert!(row("pub-window-time").contains("good.yaml:3"), "{shown}");
    assert!(row("port").contains("$SEQCAST_PORT") && row("heartbeat").ends_with("default"), "{shown}");
    let json = object(&place.run(&["config", "show", "--json"]).exits(DONE).stdout);
    assert!(json["keys"].as_array().unwrap().iter().any(|row| row["key"] == "heartbeat"), "{json}");
    assert_eq!(listing(&place), before);
}

#[test]
fn environment_variable_without_key_is_refused() {
    let place = Place::new();
    let told = |name: &str, value: &OsStr| {
        let mut command = place.command(&["config", "show"]);
        Outcome::of(command.env(name, value).output().unwrap(), &["config", "show"])
    };
    told("SEQCAST_PROT", OsStr::new("1")).exits(CONFIGURATION).says(&["$SEQCAST_PROT: prot: unknown key", "port"]);
    told("SEQCAST_NAME", OsStr::from_bytes(b"a\xffb")).exits(CONFIGURATION).says(&["$SEQCAST_NAME: name", "not UTF-8"]);
    told("SEQCAST_SUBJECT", OsStr::new("what reply --command says")).exits(DONE);
}

#[test]
fn unusable_listener_files_are_reported_before_it_opens() {
    let place = Place::new();
    let write = |name: &str, text: String| std::fs::write(place.dir().join(name), text).unwrap();
    write("no.pem", "nothing".into());
    write("tls.yaml", "parameters:\n  nats: 0\n  nats-tls: none.pem none.pem\n  redis-tls: no.pem no.pem\n".into());
    let told = place.run(&["config", "check", "tls.yaml"]).exits(CONFIGURATION);
    let told = told.says(&[
        "2 errors",
        "tls.yaml:3:",
        "nats-tls: cannot read none.pem",
        "redis-tls: no.pem holds no certificate",
    ]);
    assert_eq!(told.stdout, "");
    let json = object(&place.run(&["config", "check", "tls.yaml", "--json"]).exits(CONFIGURATION).stdout);
    assert_eq!((&json["ok"], &json["errors"][1]["line"]), (&false.into(), &4.into()), "{json}");
    place.run(&["peer", "--config", "tls.yaml"]).exits(CONFIGURATION).says(&["nats-tls: cannot read none.pem"]);
}

#[test]
fn unreadable_tls_files_of_each_listener_are_reported() {
    let place = Place::new();
    for key in ["nats-tls", "redis-tls", "hat-tls", "ftn18-tls"] {
        let check = |files: &str| {
            std::fs::write(place.dir().join("tls.yaml"), format!("parameters:\n  {key}: {files}\n")).unwrap();
            place.run(&["config", "check", "tls.yaml"])
        };
        check("none").exits(DONE);
        check("none.pem none.pem").exits(CONFIGURATION).says(&[&format!("{key}: cannot read none.pem")]);
    }
}

/// Returns the process id of a peer.
fn pid(peer: &Place) -> u64 {
    let status = object(&peer.run(&["show", "status", "--json"]).exits(DONE).stdout);
    status["status"]["pid"].as_u64().expect("a number")
}

/// Returns the processor time of a process, in ticks of the system's clock.
fn processor_ticks(pid: u64) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").expect("the name stands in parentheses");
    let fields: Vec<u64> = fields.split(' ').skip(11).take(2).map(|field| field.parse().unwrap()).collect();
    fields.iter().sum()
}

#[test]
fn idle_busy_poll_uses_the_processor() {
    let (busy, idle) = (Place::new(), Place::new());
    let _peers = [busy.peer(&["--set", "busy-poll=1 hour"]), idle.peer(&["--set", "busy-poll=0 sec"])];
    let (busy, idle) = (pid(&busy), pid(&idle));
    wait_until("the busy peer takes a second", || 100 <= processor_ticks(busy));
    let ticks = processor_ticks(idle);
    assert!(ticks < 50, "{ticks} of the idle peer");
}

fn listing(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.dir()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn wrong_configuration_stops_every_command_that_needs_it() {
    let place = Place::new();
    for arguments in [
        &["peer", "--set", "heartbeet=1s"][..],
        &["peer", "--config", "missing.yaml"],
        &["peer", "--port", "70000"],
        &["sub", "a.>", "--embed", "--group", "10.0.0.1"],
    ] {
        place.run(arguments).exits(CONFIGURATION).says(&["error"]);
    }
    place.run(&["peer", "--set", "heartbeet=1s"]).says(&["heartbeat"]);
}

#[test]
fn missing_peer_exits_4_with_a_remedy() {
    let place = Place::new();
    for arguments in [
        &["pub", "a.b", "x"][..],
        &["sub", "a.b"],
        &["req", "a.b", "x"],
        &["reply", "a.b", "--echo"],
        &["show", "loss"],
        &["show", "peers", "--json"],
    ] {
        let outcome = place.run(arguments).exits(UNREACHABLE).says(&["peer.sock", "start one with 'seqcast peer'"]);
        assert_eq!(outcome.stdout, "");
    }
    std::fs::write(place.dir().join("file"), "no socket").unwrap();
    place.run(&["pub", "a.b", "x", "--socket", "file"]).exits(UNREACHABLE).says(&["file"]);
    // Another user may have put a socket of his own in a directory of the default name.
    let default = format!("seqcast-{}", nix::unistd::getuid());
    std::fs::create_dir(place.dir().join(&default)).unwrap();
    std::fs::set_permissions(place.dir().join(&default), Permissions::from_mode(0o777)).unwrap();
    let socket = format!("{default}/seqcast.sock");
    place.run(&["pub", "a.b", "x", "--socket", &socket]).exits(UNREACHABLE).says(&["mode 777", "chmod 700"]);
    place.run(&["peer", "--socket", &socket]).exits(FAILED).says(&["mode 777", "chmod 700"]);
}

#[test]
fn published_message_reaches_the_subscriber() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    let mut sub = place.start(&["sub", "demo.>", "--count", "2", "--headers"]);
    sub.said("listening on demo.>");
    let arguments = ["pub", "demo.hello", "hi there", "-H", "unit: C", "--reply", "answers.here"];
    place.run(&arguments).exits(DONE).says(&["published 1 message on demo.hello"]).prints("");
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
    let mut subs = [&["--raw"][..], &["--json"], &["--timestamp"]].map(|how| {
        let sub = place.start(&[&["sub", "demo.>", "--count", "1"], how].concat());
        sub.said("listening on");
        sub
    });
    place.run(&["pub", "demo.x", "a\tb", "-H", "k:v"]).exits(DONE);
    assert_eq!(subs[0].line(), "a\tb");
    let json = object(&subs[1].line());
    assert_eq!(json["type"], "message");
    assert_eq!((&json["subject"], &json["payload"]), (&"demo.x".into(), &"a\tb".into()));
    assert_eq!((&json["user"], &json["publisher"]), (&"A.0".into(), &"A.test".into()));
    assert_eq!((&json["verdict"], &json["headers"]["k"]), (&"direct".into(), &"v".into()));
    let offset = json["offset"].as_u64().expect("a number");
    let kept = object(place.run(&["poll", "A.test", "demo.x", "--json"]).exits(DONE).stdout.lines().nth(1).unwrap());
    assert_eq!((&kept["type"], &kept["offset"]), (&"event".into(), &offset.into()), "a poll names it so");
    let timed = subs[2].line();
    assert!(timed.starts_with('[') && timed.ends_with("] demo.x  a\tb"), "{timed}");
    for sub in &mut subs {
        assert_eq!(sub.ended().code(), Some(DONE));
    }
}

#[test]
fn expired_wait_exits_27() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    place.run(&["sub", "demo.>", "--wait", "100ms"]).exits(TIMED_OUT).prints("");
    place.run(&["sub", "demo.>", "--count", "1", "--wait", "0.1"]).exits(TIMED_OUT).prints("");
    let silent = place.start(&["sub", "nobody.answers"]);
    silent.said("listening on");
    place
        .run(&["req", "nobody.answers", "?", "--wait", "100ms"])
        .exits(TIMED_OUT)
        .says(&["no reply", "nobody.answers"]);
    place.run(&["reply", "nobody.asks", "x", "--wait", "100ms"]).exits(TIMED_OUT);
    place.run(&["sub", "demo.>", "--count", "0", "--wait", "5s"]).exits(DONE).prints("");
}

#[test]
fn request_without_responder_ends_at_once_unless_patient() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    for embed in [&[][..], &["--embed"]] {
        let outcome = place.run(&[&["req", "nobody.here", "?", "--wait", "1m"], embed].concat()).exits(UNREACHABLE);
        outcome.says(&["nobody on the LAN is subscribed to nobody.here", "--patient"]).prints("");
    }
    place.run(&["req", "nobody.here", "--patient", "--wait", "100ms"]).exits(TIMED_OUT).says(&["no reply"]);
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
        place.start(&["reply", "demo.sh", "--command", "printf '%s:' $SEQCAST_SUBJECT; cat", "--count", "1"]);
    for reply in [&fixed, &echo, &command] {
        reply.said("answering");
    }
    let ask = |arguments: &[&str]| place.run(&[&["req", "--wait", "1m"], arguments].concat()).exits(DONE);
    ask(&["demo.fixed", "?"]).prints("answer 1\n");
    let json = object(&ask(&["demo.fixed", "?", "--json"]).stdout);
    assert_eq!((&json["type"], &json["payload"]), (&"message".into(), &"answer 2".into()));
    ask(&["demo.echo.x", "-5"]).prints("-5\n");
    assert_eq!(object(&echo.line())["payload"], "-5");
    ask(&["demo.sh", "in", "--raw"]).prints("demo.sh:in\n");
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
        reply.said("answering");
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
        reply.said("answering");
        reply
    });
    for _ in 0..20 {
        // If both were asked, there would be two answers to some.
        let outcome = place.run(&["req", "demo.who", "--wait", "1m"]).exits(DONE);
        assert!(["one\n", "two\n"].contains(&outcome.stdout.as_str()), "{outcome:#?}");
    }
    repliers.iter().for_each(|reply| reply.signal("INT"));
    let asked = repliers.iter_mut().map(|reply| {
        assert_eq!(reply.ended().code(), Some(DONE));
        reply.lines_so_far().len()
    });
    assert_eq!(asked.sum::<usize>(), 20);
}

#[test]
fn pub_reads_lines_files_and_templates() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    std::fs::write(place.dir().join("one.bin"), b"\x00\xff").unwrap();
    std::fs::write(place.dir().join("two.txt"), "two\nlines\n").unwrap();
    let sub = place.start(&["sub", "t.>", "--json", "--count", "10"]);
    sub.said("listening on");
    place.run(&["pub", "t.count", "n {{count}}", "--count", "3"]).exits(DONE).says(&["3 messages"]);
    place.run_with_input(&["pub", "t.lines"], b"first\n\nlast").exits(DONE).says(&["3 messages"]);
    place.run_with_input(&["pub", "t.some", "--lines", "--count", "1"], b"x\r\ny\n").exits(DONE);
    place.run(&["pub", "t.file", "--file", "one.bin", "two.txt"]).exits(DONE).says(&["2 messages"]);
    let json = place.run_with_input(&["pub", "t.stdin", "--file", "-", "--json"], b"all\nof it").exits(DONE).stdout;
    let json = object(&json);
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
        let message = object(&sub.line());
        let text = message.get("payload").or_else(|| message.get("payload_base64"));
        assert_eq!((&message["subject"], text), (&subject.into(), Some(&payload.into())), "{message}");
    }
}

#[test]
fn unpublishable_input_is_refused() {
    let place = Place::new();
    let _peer = place.peer(&["--set", "message-size=1 kb"]);
    place.run(&["pub", "a.b", "--file", "missing.txt"]).exits(FAILED).says(&["missing.txt", "No such file"]);
    place.run(&["pub", "a.b", "--file", "."]).exits(FAILED).says(&["cannot be read"]);
    std::fs::write(place.dir().join("large"), vec![b'x'; 1025]).unwrap();
    place.run(&["pub", "a.b", "--file", "large"]).exits(FAILED).says(&["1025", "1024", "message-size"]);
    place.run(&["pub", "a.b", &"x".repeat(1024)]).exits(DONE);
}

#[test]
fn publish_rate_is_kept() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let start = now();
    place.run(&["pub", "a.b", "x", "--count", "51", "--rate", "100/s"]).exits(DONE).says(&["51 messages"]);
    assert!(Duration::from_millis(500) <= now().since(start), "{:?}", now().since(start));
}

#[test]
fn closed_pipe_is_no_error() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let mut head = std::process::Command::new("bash");
    place.surround(&mut head);
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
        place.surround(&mut bash);
        let output = bash.arg("-c").arg(format!("set -o pipefail; '{seqcast}' {arguments}")).output().unwrap();
        assert!(output.status.code() == Some(code) && output.stderr.is_empty(), "{arguments}: {output:?}");
    }
}

#[test]
fn embedded_peer_needs_no_daemon() {
    let place = Place::new();
    let mut sub = place.start(&["sub", "demo.>", "--embed", "--name", "B.test", "--count", "1", "--json"]);
    sub.said("listening on");
    place.run(&["pub", "demo.hello", "across", "--embed", "--name", "C.test"]).exits(DONE);
    let json = object(&sub.line());
    assert_eq!(
        (&json["payload"], &json["publisher"], &json["user"]),
        (&"across".into(), &"C.test".into(), &"C.1".into())
    );
    assert_eq!(json["verdict"], "start");
    assert_eq!(sub.ended().code(), Some(DONE));
}

#[test]
fn peer_reports_its_choices_and_leaves_on_sigterm() {
    let place = Place::new();
    let mut peer = place.peer(&["--name", "A.test"]);
    let port = place.port().to_string();
    peer.said("traffic is not encrypted");
    let said = peer.stderr_so_far().join("\n");
    for part in ["peer A.test, epoch", &format!("port {port}: this host only"), "interface  lo 127.0.0.1", "peer.sock"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    place.run(&["peer", "--name", "B.test"]).exits(FAILED).says(&["already running", "peer.sock", "--socket"]);
    peer.signal("TERM");
    assert_eq!(peer.ended().code(), Some(DONE));
    assert!(!place.socket().exists(), "the socket stays behind");
}

#[test]
fn peer_with_an_unread_log_keeps_running() {
    let place = Place::new();
    let mut peer = place.command(&["peer"]).spawn().unwrap();
    drop(peer.stderr.take());
    let deadline = now() + PATIENCE;
    let mut published = false;
    while !published && now() < deadline && matches!(peer.try_wait(), Ok(None)) {
        published = place.run(&["pub", "a.b", "x"]).code == Some(DONE);
    }
    let ended = peer.try_wait().unwrap();
    drop(peer.kill());
    peer.wait().unwrap();
    assert!(published && ended.is_none(), "published: {published}, ended: {ended:?}");
}

#[test]
fn unusable_interface_and_port_are_named() {
    let place = Place::new();
    place.run(&["peer", "--interface", "nosuch0"]).exits(UNREACHABLE).says(&["nosuch0", "lo"]);
    let busy = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    let inbox = format!("inbox-port={port}");
    place.run(&["peer", "--set", &inbox]).exits(FAILED).says(&[&port.to_string()]);
}

#[test]
fn show_answers_in_text_and_in_json() {
    let place = Place::new();
    let _a = place.peer(&["--name", "A.test"]);
    let sub = place.start(&["sub", "demo.>", "--json"]);
    sub.said("listening on");
    place.run(&["pub", "demo.hello", "{{count}}", "--count", "3", "--embed", "--name", "B.test"]).exits(DONE);
    for _ in 0..3 {
        sub.line();
    }
    let loss = place.run(&["show", "loss"]).exits(DONE).stdout;
    let mut lines = loss.lines();
    assert!(
        lines.next().unwrap().starts_with("user | repeat | rep time | not sub | not time |  msg loss | "),
        "{loss}"
    );
    assert!(
        lines.nth(1).unwrap().starts_with(" B.1 |      0 |          |       0 |          |         0 | "),
        "{loss}"
    );
    let in_full = place.run(&["show", "loss", "-v"]).exits(DONE).stdout;
    assert!(in_full.starts_with(&loss) && in_full.contains("missing = repaired + pending + lost"), "{in_full}");
    let outbound = place.run(&["show", "loss", "--outbound"]).exits(DONE).stdout;
    assert!(outbound.starts_with("receiver | missing | repaired"), "{outbound}");
    place.run(&["pub", "demo.kept", "{{count}}", "--count", "3"]).exits(DONE);
    let history = place.run(&["show", "history", "demo.*"]).exits(DONE).stdout;
    assert!(history.contains("\ndemo.kept |      3 |") && history.contains("\nall subjects"), "{history}");
    let history = place.run(&["show", "history", "other.>"]).exits(DONE).stdout;
    assert!(!history.contains("demo.kept") && history.contains("\nevents       | 3\n"), "{history}");
    place.run(&["show", "history", "a..b"]).exits(USAGE);
    let peers = place.run(&["show", "peers"]).exits(DONE).stdout;
    assert!(peers.contains("B.test") && peers.contains("left"), "{peers}");
    assert!(place.run(&["show", "subs"]).exits(DONE).stdout.contains("demo.>"));
    assert!(place.run(&["show", "seqno"]).exits(DONE).stdout.contains("demo.hello"));
    assert!(place.run(&["show", "windows"]).exits(DONE).stdout.contains("4194304"));
    assert!(place.run(&["show", "counters"]).exits(DONE).stdout.contains("inconsistent"));
    assert!(place.run(&["show", "clients"]).exits(DONE).stdout.contains("sub"));
    let status = place.run(&["show", "status"]).exits(DONE).stdout;
    assert!(status.contains("A.test") && status.contains("running"), "{status}");
    for what in seqcast::daemon::show::REPORTS {
        let words = if what == "outbound" { vec!["loss", "--outbound"] } else { vec![what] };
        let answer = object(&place.run(&[&["show"], &words[..], &["--json"]].concat()).exits(DONE).stdout);
        assert_eq!(answer["show"], what);
    }
}

#[test]
fn console_reads_commands_from_a_pipe() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    let lines = b"# a comment\n\nsho los\nsho st\npub demo.x 'hi there'\nversion\nquit\nnot reached\n";
    let outcome = place.run_with_input(&["console"], lines).exits(DONE);
    let version = concat!("seqcast ", env!("CARGO_PKG_VERSION"));
    assert!(outcome.stdout.starts_with("user | repeat"), "{outcome:#?}");
    assert!(outcome.stdout.contains("\nname           | A.test\n"), "{outcome:#?}");
    assert!(outcome.stdout.ends_with(&format!("{version}\n")), "{outcome:#?}");
    assert!(outcome.stderr.contains("published 1 message"), "{outcome:#?}");
    let outcome = place.run_with_input(&["console"], b"show s\npub a..b x\npub 'open\nver\n").exits(USAGE);
    let outcome = outcome.says(&["'subs'", "empty token", "' is not closed"]).prints(&format!("{version}\n"));
    assert!(!outcome.stdout.contains("]>"), "no prompt without a terminal");
    assert!(place.run_with_input(&["console"], b"help\n").exits(DONE).stdout.contains("quit"));
}

#[test]
fn demo_accounts_for_every_message() {
    let place = Place::new();
    let demo = |more: &[&str]| {
        let arguments = ["demo", "loss", "--count", "5000", "--rate", "20000/s", "--seed", "7"];
        place.run(&[&arguments, more].concat()).exits(DONE).stdout
    };
    let text = demo(&["--drop", "5%"]);
    assert!(text.contains("sent = delivered + lost + unverified"), "{text}");
    assert!(text.contains("user | repeat | rep time"), "{text}");
    let count = |receiver: &Value, name: &str| receiver[name].as_u64().unwrap();
    let receivers = |more: &[&str]| {
        let json = object(&demo(&[more, &["--json"]].concat()));
        assert_eq!((&json["ok"], &json["sent"]), (&true.into(), &5000.into()));
        let receivers = json["receivers"].as_array().unwrap().clone();
        for receiver in &receivers {
            let [delivered, lost] = ["delivered", "lost"].map(|name| count(receiver, name));
            assert_eq!(delivered + lost + count(receiver, "unverified"), 5000, "{receiver}");
            assert!(0 < count(receiver, "dropped_datagrams"), "{receiver}");
        }
        receivers
    };
    for receiver in receivers(&["--drop", "5%", "--reliability", "30s"]) {
        assert_eq!(count(&receiver, "delivered"), 5000, "all is got back: {receiver}");
        assert!(0 < count(&receiver, "repaired"), "{receiver}");
    }
    for receiver in receivers(&["--drop", "5%", "--reliability", "5ms"]) {
        assert!(0 < count(&receiver, "lost") && count(&receiver, "repaired") == 0, "{receiver}");
    }
    // The number of repaired messages within that time depends on the machine, but all losses are reported.
    assert_eq!(receivers(&["--drop", "60%", "--reliability", "200ms"]).len(), 2);
    let json = object(&place.run(&["demo", "loss", "--drop", "0", "--count", "200", "--json"]).exits(DONE).stdout);
    assert!(json["receivers"].as_array().unwrap().iter().all(|receiver| receiver["delivered"] == 200), "{json}");
}

#[test]
fn invalid_utf8_line_is_accepted_as_payload() {
    let place = Place::new();
    let mut child = place.command(&["pub", "a.b"]).stdin(Stdio::piped()).spawn().unwrap();
    drop(child.stdin.take().unwrap().write_all(b"\xff\xfe\n"));
    assert_eq!(child.wait().unwrap().code(), Some(UNREACHABLE));
}

#[test]
fn console_prompt_has_the_format_of_the_seed() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    let mut script = std::process::Command::new("script");
    place.surround(&mut script);
    script.env("TERM", "xterm").args(["-qefc", concat!(env!("CARGO_BIN_EXE_seqcast"), " console"), "screen"]);
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut script = script.spawn().expect("script starts");
    let mut keyboard = script.stdin.take().unwrap();
    let mut script = Running::new(script, &["console"]);
    let screen = || std::fs::read_to_string(place.dir().join("screen")).unwrap_or_default();
    for (number, line) in ["sho los", "bogus", "quit"].iter().enumerate() {
        // Input typed before its prompt appears is not read.
        let prompt = format!("[{}]> ", number + 1);
        wait_until_some(
            || format!("the screen shows {prompt:?}: {}", screen()),
            || screen().contains(&prompt).then_some(()),
        );
        keyboard.write_all(format!("{line}\r").as_bytes()).unwrap();
    }
    assert_eq!(script.ended().code(), Some(USAGE), "that of the command that failed");
    for part in ["A.test[", "]@", "user | repeat | rep time", "unrecognized subcommand 'bogus'"] {
        assert!(screen().contains(part), "{part:?} is not in {}", screen());
    }
    let history = std::fs::read_to_string(place.dir().join("state/seqcast/history")).unwrap();
    assert!(history.ends_with("sho los\nbogus\nquit\n"), "{history}");
}
