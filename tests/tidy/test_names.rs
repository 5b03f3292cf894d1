//! Names of tests: a condition and its expected result, not a saying.

use super::source::tests;
use super::{File, assert_tidy, rust};

/// Words with which no name of a test begins.
const SAYINGS: [&str; 3] = ["who_", "what_", "whoever_"];

/// Folders with tests that still have such names. The list may only become shorter.
const EXCEPTIONS: &[&str] =
    &["src/daemon/", "src/event/", "src/listener/", "src/proto/", "src/sim/", "src/subject/", "src/wire/"];

/// Complains about tests whose names begin like a saying, and about exceptions that need none.
fn check_test_names(files: &[File], exceptions: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut needed = vec![false; exceptions.len()];
    for file in files {
        let exception = exceptions.iter().position(|folder| file.path.starts_with(folder));
        for test in tests(&file.text) {
            if !SAYINGS.iter().any(|saying| test.name.starts_with(saying)) {
                continue;
            }
            match exception {
                Some(index) => needed[index] = true,
                None => complaints.push(format!("{}: {} names no condition and result", file.path, test.name)),
            }
        }
    }
    let stale = exceptions.iter().zip(&needed).filter(|(_, needed)| !**needed);
    complaints.extend(stale.map(|(folder, _)| format!("EXCEPTIONS: no test in {folder} needs it")));
    complaints
}

#[test]
fn test_names_begin_with_no_saying() {
    let files = rust();
    assert!(100 < files.len(), "the tests are found");
    assert_tidy(check_test_names(&files, EXCEPTIONS));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, name: &str, exceptions: &[&str], expected: &[&str]) {
        let files = [File { path: path.to_owned(), text: format!("#[test]\nfn {name}() {{}}\n") }];
        assert_eq!(check_test_names(&files, exceptions), expected);
    }

    #[test]
    fn saying_is_refused_outside_its_exception() {
        check("tests/a.rs", "lost_tail_is_reported", &[], &[]);
        check("tests/a.rs", "whole_message_is_delivered", &[], &[]);
        check("tests/a.rs", "who_waits_gets_it", &[], &["tests/a.rs: who_waits_gets_it names no condition and result"]);
        check("src/b/c.rs", "what_is_lost_is_told", &["src/b/"], &[]);
    }

    #[test]
    fn stale_exception_is_refused() {
        check("src/b/c.rs", "loss_is_reported", &["src/b/"], &["EXCEPTIONS: no test in src/b/ needs it"]);
    }
}
