//! The manual pages.

use crate::support::command::Place;
use crate::support::exit_code::{DONE, FAILED};
use std::process::Command;

/// Returns the verbs that a help text lists.
fn verbs(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let verbs = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned));
    // A continued line of a description is indented further.
    verbs.filter(|verb| !verb.is_empty() && verb != "help").collect()
}

#[test]
fn every_verb_has_a_manual_page() {
    let place = Place::new();
    let directory = place.dir().join("pages");
    std::fs::create_dir(&directory).unwrap();
    place.run(&["man", "pages"]).exits(DONE).reports(&["wrote", "pages"]);
    let mut pages = Vec::new();
    let mut commands = vec![Vec::new()];
    while let Some(command) = commands.pop() {
        let words: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let below = verbs(&place.run(&words).exits(DONE).stdout);
        commands.extend(below.into_iter().map(|verb| [command.clone(), vec![verb]].concat()));
        let name = [vec!["seqcast".to_owned()], command].concat().join("-");
        let page = directory.join(format!("{name}.1"));
        assert!(page.exists(), "{name} has no page");
        pages.push(page);
    }
    assert!(40 < pages.len(), "{pages:?}");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), pages.len());
    let groff = |arguments: &[&str]| {
        let output =
            Command::new("groff").args(["-man", "-Kutf8", "-Tutf8", "-ww"]).args(arguments).args(&pages).output();
        output.expect("groff starts (groff-base)")
    };
    let checked = groff(&["-z"]);
    assert_eq!(String::from_utf8_lossy(&checked.stderr), "", "groff finds faults");
    let printed = String::from_utf8(groff(&["-P-cbou"]).stdout).unwrap();
    assert!(printed.contains("seqcast sub demo.hello 'demo.*.state' --timestamp"), "an example is missing");
}

#[test]
fn unwritable_directory_of_pages_is_named() {
    Place::new().run(&["man", "missing"]).exits(FAILED).reports(&["missing/seqcast.1", "fix: name a directory"]);
}
