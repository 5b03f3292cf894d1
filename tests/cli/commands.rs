//! The built command from the user's view: exit codes, standard output, standard error.

use crate::support::command::{Place, RunningCommand, parse_json};
use crate::support::exit_code::{CONFIGURATION, DONE, FAILED, UNREACHABLE, USAGE};
use crate::support::wait::wait_until_some;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

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
        let outcome = place.run(arguments).exits(USAGE).reports(parts);
        assert_eq!(outcome.stdout, "", "{outcome:#?}");
        if !arguments.contains(&"--json") {
            let lines: Vec<&str> = outcome.stderr.lines().collect();
            let [problem, remedy] = lines[..] else { panic!("a failure has two lines: {outcome:#?}") };
            assert!(problem.starts_with("seqcast: ") && remedy.starts_with("  fix: "), "{outcome:#?}");
        }
    }
    place.run(&[]).exits(USAGE).reports(&["Usage: seqcast", "\nseqcast: the command is incomplete\n  fix: "]);
}

#[test]
fn failures_with_json_are_one_object() {
    let place = Place::new();
    std::fs::write(place.dir().join("wrong.yaml"), "parameters:\n  prot: 1\n").unwrap();
    let socket = place.socket().display().to_string();
    for (arguments, exit, error, fix) in [
        (&["show", "losses", "--json"][..], USAGE, "unrecognized subcommand 'losses'", Some("use 'loss'")),
        (&["sub", "--json"], USAGE, "required arguments", Some("usage: seqcast sub")),
        (&["show", "--json"], USAGE, "requires a subcommand", Some("usage: seqcast show")),
        (&["show", "loss", "--json"], UNREACHABLE, &*socket, Some("start one with 'seqcast peer'")),
        (&["pub", "a", "--file", "none", "--json", "--embed"], FAILED, "none cannot be read", Some("readable file")),
        (&["config", "show", "wrong.yaml", "--json"], CONFIGURATION, "prot: unknown key", Some("did you mean port?")),
    ] {
        let outcome = place.run(arguments).exits(exit);
        assert_eq!(outcome.stdout, "", "{outcome:#?}");
        let failure = parse_json(&outcome.stderr);
        assert!(failure["error"].as_str().unwrap().contains(error), "{outcome:#?}");
        assert_eq!(failure["exit"], exit, "{outcome:#?}");
        assert_eq!(failure["fix"].as_str().is_some(), fix.is_some(), "{outcome:#?}");
        assert!(fix.is_none_or(|fix| failure["fix"].as_str().unwrap().contains(fix)), "{outcome:#?}");
    }
    let lines = b"show losses --json\nshow 'los --json\nshow loss --json\n";
    let _peer = place.peer(&["--name", "A.test"]);
    let outcome = place.run_with_input(&["console"], lines).exits(USAGE);
    assert!(outcome.stderr.starts_with("{\"error\":\"unrecognized subcommand 'losses'"), "{outcome:#?}");
}

#[test]
fn help_goes_to_standard_output_with_examples() {
    let place = Place::new();
    let help = place.run(&["--help"]).exits(DONE).reports(&[]);
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
    let json = parse_json(&place.run(&["version", "--json"]).exits(DONE).stdout);
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
fn show_answers_in_text_and_in_json() {
    let place = Place::new();
    let _a = place.peer(&["--name", "A.test"]);
    let sub = place.start(&["sub", "demo.>", "--json"]);
    sub.await_report("listening on");
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
    assert!(place.run(&["show", "counters"]).exits(DONE).stdout.contains("inconsistencies"));
    assert!(place.run(&["show", "clients"]).exits(DONE).stdout.contains("sub"));
    assert!(place.run(&["health"]).exits(DONE).stdout.starts_with("ok: "));
    let health = parse_json(&place.run(&["health", "--json"]).exits(DONE).stdout);
    assert_eq!(health, json!({ "show": "health", "health": { "state": "ok", "findings": [] } }));
    let status = place.run(&["show", "status"]).exits(DONE).stdout;
    assert!(status.contains("A.test") && status.contains("running"), "{status}");
    for what in seqcast::daemon::show::REPORTS {
        let words = match what {
            "outbound" => vec!["loss", "--outbound"],
            "loss_by_subject" => vec!["loss", "--by-subject"],
            what => vec![what],
        };
        let answer = parse_json(&place.run(&[&["show"], &words[..], &["--json"]].concat()).exits(DONE).stdout);
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
    let outcome = outcome.reports(&["'subs'", "empty token", "' is not closed"]).prints(&format!("{version}\n"));
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
        let json = parse_json(&demo(&[more, &["--json"]].concat()));
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
    // Requests are repeated three or four times within that time, and six answers in ten are dropped.
    for receiver in receivers(&["--drop", "60%", "--reliability", "100ms"]) {
        assert!(0 < count(&receiver, "lost"), "{receiver}");
    }
    let json = parse_json(&place.run(&["demo", "loss", "--drop", "0", "--count", "200", "--json"]).exits(DONE).stdout);
    assert!(json["receivers"].as_array().unwrap().iter().all(|receiver| receiver["delivered"] == 200), "{json}");
}

#[test]
fn slow_demo_ends_at_a_signal() {
    let place = Place::new();
    // The second message would be due in a hundred seconds.
    let mut demo = place.start(&["demo", "loss", "--rate", "0.01/s"]);
    demo.await_report("three peers on loopback");
    demo.signal("INT");
    assert_eq!(demo.ended().code(), Some(FAILED));
    demo.await_report("interrupted");
}

#[test]
fn signal_between_two_commands_ends_the_console() {
    let place = Place::new();
    let mut child = place.command(&["console"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut console = RunningCommand::new(child, &["console"]);
    input.write_all(b"version\n").unwrap();
    assert!(console.line().starts_with("seqcast "));
    // The first signal may still concern the command.
    wait_until_some(
        || "the console ends".to_owned(),
        || {
            console.signal("TERM");
            console.has_ended().then_some(())
        },
    );
    assert_eq!(console.ended().code(), None, "ended by the signal");
}

#[test]
fn console_prompt_has_the_format_of_the_seed() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    let console = concat!(env!("CARGO_BIN_EXE_seqcast"), " console");
    let mut script = place.terminal_command(console).spawn().expect("script starts");
    let mut keyboard = script.stdin.take().unwrap();
    let mut script = RunningCommand::new(script, &["console"]);
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
