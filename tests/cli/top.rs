//! `top`: as text where standard output is a pipe, and as a screen on a terminal.

use crate::support::command::{Outcome, Place, wait_with_output};
use crate::support::exit_code::{DONE, UNREACHABLE};
use crate::support::wait::wait_until;
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn piped_top_prints_every_view_once() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    let subscriber = place.start(&["sub", "t.>"]);
    wait_until("the subscription is in force", || !place.show("subs")["rows"].as_array().unwrap().is_empty());
    place.run(&["pub", "t.a", "x", "--count", "7"]).exits(DONE);
    let outcome = place.run(&["top", "--interval", "1ms"]).exits(DONE);
    let text = &outcome.stdout;
    assert!(text.starts_with("A.test  239.253.") && text.contains("health ok"), "{text}");
    let views: Vec<&str> = ["peers", "subjects", "loss", "clients", "listeners"]
        .into_iter()
        .filter(|view| text.contains(&format!("\n\n{view}\n")))
        .collect();
    assert_eq!(views.len(), 5, "{text}");
    let row = text.lines().find(|line| line.starts_with("t.a")).expect("the subject is shown");
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert_eq!((cells[1], cells[3]), ("A.test", "7"), "{row}");
    assert!(text.lines().any(|line| line.contains(" sub ") && line.contains("local")), "the client is shown: {text}");
    drop(subscriber);
}

#[test]
fn top_without_a_peer_says_so() {
    Place::new().run(&["top", "--once"]).exits(UNREACHABLE).reports(&["seqcast: ", "fix:"]);
}

#[test]
fn key_ends_top_on_a_terminal() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    // `script` runs the command on a terminal of its own.
    let mut command = Command::new("script");
    place.set_environment(&mut command);
    let top = format!("stty cols 80 rows 24; exec {} top --view loss", env!("CARGO_BIN_EXE_seqcast"));
    command.args(["-qefc", &top, "/dev/null"]).env("TERM", "xterm");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The terminal keeps the key until the screen reads it.
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"q").unwrap();
    let outcome = Outcome::of(wait_with_output(child, &["top"]), &["top"]).exits(DONE);
    drop(keys);
    assert!(outcome.stdout.contains("A.test") && outcome.stdout.contains("3 loss"), "{outcome:#?}");
    assert!(outcome.stdout.contains("\x1b[?1049l"), "the terminal shows its former content: {outcome:#?}");
}
