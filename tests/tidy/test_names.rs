//! Names of tests: a condition and its expected result in a few words, not a saying.

use super::source::tests;
use super::{assert_each, assert_tidy, rust};

/// Words with which no name of a test begins.
const SAYINGS: [&str; 3] = ["who_", "what_", "whoever_"];

/// Maximum number of words in the name of a test; `_` separates them.
const WORDS_MAX: usize = 8;

/// Complains about tests whose names begin like a saying.
fn check_test_names(path: &str, text: &str) -> Vec<String> {
    let begins = |name: &str| SAYINGS.iter().any(|saying| name.starts_with(saying));
    let sayings = tests(text).into_iter().filter(|test| begins(&test.name));
    sayings.map(|test| format!("{path}: {} names no condition and result", test.name)).collect()
}

/// Complains about tests whose names have more than [`WORDS_MAX`] words.
fn check_length(path: &str, text: &str) -> Vec<String> {
    let is_long = |name: &str| WORDS_MAX < name.split('_').count();
    let long = tests(text).into_iter().filter(|test| is_long(&test.name));
    long.map(|test| format!("{path}: {} has more than {WORDS_MAX} words", test.name)).collect()
}

#[test]
fn test_names_begin_with_no_saying() {
    assert_each(&rust(), check_test_names);
}

#[test]
fn test_names_have_at_most_eight_words() {
    let files = rust();
    assert!(100 < files.len(), "the source is found");
    assert_each(&files, check_length);
}

#[test]
fn saying_is_noticed() {
    let check = |name: &str| check_test_names("tests/a.rs", &format!("#[test]\nfn {name}() {{}}\n"));
    assert_tidy(check("lost_tail_is_reported"));
    assert_tidy(check("whole_message_is_delivered"));
    assert_eq!(check("who_waits_gets_it"), ["tests/a.rs: who_waits_gets_it names no condition and result"]);
}

#[test]
fn long_test_name_is_noticed() {
    let check = |name: &str| check_length("tests/a.rs", &format!("#[test]\nfn {name}() {{}}\n"));
    assert_tidy(check("restart_of_the_publisher_starts_a_new_baseline"));
    assert_eq!(check("a_b_c_d_e_f_g_h_i"), ["tests/a.rs: a_b_c_d_e_f_g_h_i has more than 8 words"]);
    let helper = "#[test]\nfn a() {}\nfn a_b_c_d_e_f_g_h_i() {}\n";
    assert_tidy(check_length("tests/a.rs", helper));
}
