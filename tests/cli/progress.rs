//! The progress of long work, on a terminal that `script` provides.

use crate::support::command::{Outcome, Place};
use crate::support::exit_code::{DONE, FAILED};
use std::process::Stdio;

/// Runs the command on a terminal, and returns everything that it printed there.
#[track_caller]
fn on_terminal(place: &Place, arguments: &str, exit: i32) -> String {
    let mut script = place.terminal_command(&format!("{} {arguments}", env!("CARGO_BIN_EXE_seqcast")));
    let output = script.stdin(Stdio::null()).output().expect("script starts");
    Outcome::of(output, &[arguments]).exits(exit).stdout
}

/// Returns the lines that stay on the terminal: a control sequence removes the progress.
fn remaining_lines(printed: &str) -> Vec<&str> {
    printed.lines().map(|line| line.rsplit("\x1b[2K").next().unwrap_or(line)).collect()
}

#[test]
fn known_total_is_shown_as_a_bar() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    let printed = on_terminal(&place, "pub a.b hi --count 300 --rate 200/s", DONE);
    assert!(printed.contains(" %  published ") && printed.contains(" of 300 messages"), "{printed:?}");
    assert!(printed.contains("left"), "{printed:?}");
    let lines = remaining_lines(&printed);
    assert!(lines.iter().any(|line| line.contains("published 300 messages on a.b")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(" left")), "the progress stays: {lines:?}");
}

#[test]
fn bench_shows_its_runs_on_a_terminal_only() {
    let place = Place::new();
    let arguments = "bench throughput --no-raw --secs 0.1 --runs 2";
    let printed = on_terminal(&place, arguments, DONE);
    assert!(printed.contains("run 1: messages of 64 bytes") && printed.contains("run 2: "), "{printed:?}");
    let lines = remaining_lines(&printed);
    assert!(!lines.iter().any(|line| line.contains("run 2: ")), "the progress stays: {lines:?}");
    let arguments: Vec<&str> = arguments.split(' ').collect();
    assert_eq!(place.run(&arguments).exits(DONE).stderr, "");
}

#[test]
fn doctor_names_the_host_that_it_tests() {
    let place = Place::new();
    // Nobody answers at that port.
    let arguments = format!("doctor --interface lo --with 127.0.0.1:{}", place.port());
    let printed = on_terminal(&place, &arguments, FAILED);
    let text = format!("testing the path to 127.0.0.1:{}", place.port());
    assert!(printed.contains(&text), "{printed:?}");
    assert!(!remaining_lines(&printed).iter().any(|line| line.contains(&text)), "the progress stays: {printed:?}");
}
