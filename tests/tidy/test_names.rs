//! Names of tests: a condition and its expected result, not a saying.

use super::source::tests;
use super::{assert_each, assert_tidy, rust};

/// Words with which no name of a test begins.
const SAYINGS: [&str; 3] = ["who_", "what_", "whoever_"];

/// Complains about tests whose names begin like a saying.
fn check_test_names(path: &str, text: &str) -> Vec<String> {
    let begins = |name: &str| SAYINGS.iter().any(|saying| name.starts_with(saying));
    let sayings = tests(text).into_iter().filter(|test| begins(&test.name));
    sayings.map(|test| format!("{path}: {} names no condition and result", test.name)).collect()
}

#[test]
fn test_names_begin_with_no_saying() {
    assert_each(&rust(), check_test_names);
}

#[test]
fn saying_is_noticed() {
    let check = |name: &str| check_test_names("tests/a.rs", &format!("#[test]\nfn {name}() {{}}\n"));
    assert_tidy(check("lost_tail_is_reported"));
    assert_tidy(check("whole_message_is_delivered"));
    assert_eq!(check("who_waits_gets_it"), ["tests/a.rs: who_waits_gets_it names no condition and result"]);
}
