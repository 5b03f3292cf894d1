//! Events of a peer, as the command line registers and finds them.

use super::command::Place;
use super::exit_code::DONE;
use super::wait::wait_until_some;
use serde_json::Value;
use std::ops::RangeInclusive;

/// Registers numbers, each as one event.
pub fn add(place: &Place, event_type: &str, numbers: RangeInclusive<u32>) {
    let lines: String = numbers.map(|number| format!("{number}\n")).collect();
    place.run_with_input(&["event", "add", event_type, "--lines"], lines.as_bytes()).exits(DONE);
}

/// Returns the rows of these events of server 7, each of which was a session.
pub fn rows(event_type: &str, numbers: RangeInclusive<u32>) -> Vec<String> {
    numbers.map(|number| format!("7/{number}/1 {event_type} {number}")).collect()
}

/// Returns all events that the peer of this place finds, in the order of their times.
pub fn found(place: &Place) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut arguments = vec!["event".to_owned(), "query".to_owned(), "--json".to_owned()];
    loop {
        let arguments_now: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let outcome = place.run(&arguments_now).exits(DONE);
        arguments.truncate(3);
        for line in outcome.stdout.lines() {
            let event: Value = serde_json::from_str(line).expect("a line of JSON");
            if event["type"] == "more_follows" {
                arguments.extend(["--after".to_owned(), event["after"].as_str().expect("an id").to_owned()]);
                continue;
            }
            let text = |key: &str| event[key].as_str().expect("a text");
            found.push(format!("{} {} {}", text("id"), text("event_type"), event["payload"]));
        }
        if arguments.len() == 3 {
            return found;
        }
    }
}

/// Waits until the peer finds all of these, and nothing else, in this order.
#[track_caller]
pub fn finds(place: &Place, expected: &[String]) {
    let shown = |found: &[String]| format!("{} events of {}, the last {:?}", found.len(), expected.len(), found.last());
    let what = || format!("everything is found; {}", shown(&found(place)));
    let found = wait_until_some(what, || {
        let found = found(place);
        assert!(found.len() <= expected.len(), "{}", shown(&found));
        Some(found).filter(|found| found.len() == expected.len())
    });
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
}
