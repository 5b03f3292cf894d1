//! Tests wait for conditions: only the helpers of `tests/support/wait.rs` may sleep.
//!
//! Test code is everything in `tests/`, and what `src/` compiles for tests only. Benches and examples are neither.

use super::source::{code, without_tests};
use super::{assert_each, is_test, rust};

/// The one file whose helpers sleep.
const HELPERS: &str = "tests/support/wait.rs";

/// Functions that only let time pass.
const SLEEPS: [&str; 5] = ["sleep", "sleep_ms", "sleep_until", "park_timeout", "park_timeout_ms"];

/// Advice in the complaint.
const ADVICE: &str = "wait for a condition (wait_until), or say why time must pass (let_time_pass)";

/// Returns whether `line` names the function. A method of the same name, as in `mailbox.sleep(…)`, is another one.
fn names(line: &str, function: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(function).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + function.len()..].chars().next();
        !before.is_some_and(|c| is_part(c) || c == '.') && !after.is_some_and(is_part)
    })
}

/// Complains about test code that names a function of [`SLEEPS`].
fn check_waits(path: &str, text: &str) -> Vec<String> {
    let has_tests = path.starts_with("tests/") || path.starts_with("src/");
    if !has_tests || path == HELPERS {
        return Vec::new();
    }
    let blanked = code(text);
    let product = if is_test(path) { String::new() } else { without_tests(&blanked) };
    let mut product = product.lines();
    let mut complaints = Vec::new();
    for (index, line) in blanked.lines().enumerate() {
        // A line of the product remains when the tests are cut off.
        let is_product = product.next().is_some_and(|kept| kept == line);
        let found = SLEEPS.into_iter().find(|function| !is_product && names(line, function));
        complaints.extend(found.map(|function| format!("{path}:{}: {function} in a test; {ADVICE}", index + 1)));
    }
    complaints
}

#[test]
fn only_the_helpers_for_waiting_sleep() {
    assert_each(&rust(), check_waits);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_in_test_code_is_refused() {
        let check = |path: &str, text: &str, expected: usize| {
            assert_eq!(check_waits(path, text).len(), expected, "{path}: {text}")
        };
        check("tests/a.rs", "thread::sleep(PAUSE);\nstd::thread::sleep(x);", 2);
        check("tests/a/b.rs", "use std::thread::{self, sleep};", 1);
        check("tests/support/a.rs", "tokio::time::sleep(x).await; sleep(y);", 1);
        check("tests/a.rs", "thread::park_timeout(x);\nthread::park();", 1);
        check("src/a/tests.rs", "thread::sleep(PAUSE);", 1);
        check("src/a/tests/b.rs", "thread::sleep(PAUSE);", 1);
        check("src/a.rs", "f();\n#[cfg(test)]\nmod tests {\n    fn f() { thread::sleep(x) }\n}", 1);
        let complaint = format!("tests/a.rs:2: sleep in a test; {ADVICE}");
        assert_eq!(check_waits("tests/a.rs", "\nsleep(x);"), [complaint]);
    }

    #[test]
    fn sleep_outside_test_code_is_allowed() {
        let check = |path: &str, text: &str| assert_eq!(check_waits(path, text), [""; 0], "{path}: {text}");
        check(HELPERS, "thread::sleep(POLL_INTERVAL);");
        check("src/a.rs", "thread::sleep(PAUSE);\n#[cfg(test)]\nmod tests {}");
        check("benches/a.rs", "thread::sleep(PAUSE);");
        check("examples/a.rs", "thread::sleep(PAUSE);");
        check("tests/a.rs", "// thread::sleep(x)\nlet text = \"time.sleep(1)\";");
        check("tests/a.rs", "mailbox.sleep(true); sleeper.read(); let asleep = is_sleeping();");
    }
}
