//! `top`: as text where standard output is a pipe, and as a screen on a terminal.

use crate::support::command::{Outcome, Place, wait_with_output};
use crate::support::exit_code::{DONE, UNREACHABLE};
use crate::support::wait::wait_until;
use std::io::Write;

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
    let views: Vec<&str> = ["peers", "subjects", "loss", "clients", "listeners", "lan"]
        .into_iter()
        .filter(|view| text.contains(&format!("\n\n{view}\n")))
        .collect();
    assert_eq!(views.len(), 6, "{text}");
    let row = text.lines().find(|line| line.starts_with("t.a")).expect("the subject is shown");
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert_eq!((cells[1], cells[4]), ("A.test", "7"), "{row}");
    assert!(text.lines().any(|line| line.contains(" sub ") && line.contains("local")), "the client is shown: {text}");
    drop(subscriber);
}

#[test]
fn top_shows_what_other_peers_report() {
    let place = Place::new();
    let _peer = place.peer(&["--name", "A.test"]);
    let port = format!("port={}", place.port());
    let (open, closed) = (Place::new(), Place::new());
    let _open = open.peer_with(&[&port, "name=B.test"]);
    let _closed = closed.peer_with(&[&port, "name=C.test", "remote-reports=no"]);
    let subscriber = open.start(&["sub", "t.>"]);
    let clients = || open.show("clients")["rows"].as_array().unwrap().iter().any(|row| row["name"] == "sub");
    wait_until("the subscriber is there", clients);
    let peers = || place.show("peers")["rows"].as_array().unwrap().iter().filter(|row| row["state"] == "up").count();
    wait_until("the peers know each other", || peers() == 2);
    let text = place.run(&["top", "--once", "--interval", "1ms"]).exits(DONE).stdout;
    let lan = text.split("\n\nlan\n").nth(1).expect("the view is there");
    let row = |name: &str| -> Vec<String> {
        let line = lan.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {lan}"));
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    assert_eq!(row("A.test")[5], "0", "the local peer has a row: {lan}");
    assert_eq!((row("B.test")[4].as_str(), row("B.test")[5].as_str()), ("1", "0"), "{lan}");
    assert_eq!(row("C.test")[1..8], ["-"; 7], "nothing is known of it: {lan}");
    assert!(row("C.test")[8].contains("remote-reports is 'no' there"), "{lan}");
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
    let top = concat!(env!("CARGO_BIN_EXE_seqcast"), " top --view loss");
    let mut child = place.terminal_command(top).spawn().expect("script starts");
    // The terminal keeps the key until the screen reads it.
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"q").unwrap();
    let outcome = Outcome::of(wait_with_output(child, &["top"]), &["top"]).exits(DONE);
    drop(keys);
    assert!(outcome.stdout.contains("A.test") && outcome.stdout.contains("3 loss"), "{outcome:#?}");
    assert!(outcome.stdout.contains("\x1b[?1049l"), "the terminal shows its former content: {outcome:#?}");
}
