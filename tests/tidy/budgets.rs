//! Sizes of files and functions, and their parameters.

use super::source::{Function, code, functions, without_tests};
use super::{assert_tidy, is_test, rust};
use std::collections::BTreeSet;

/// Maximum number of lines of a file without its tests: beyond that, a second state usually hides inside.
const FILE_LINES_MAX: usize = 500;
/// Maximum number of lines of a function.
const FUNCTION_LINES_MAX: usize = 70;

/// Something that exceeds a limit, and the reason.
struct BudgetException {
    /// A file, or a file and a function of it: `src/a.rs` or `src/a.rs: f`.
    item: &'static str,
    reason: &'static str,
}

const fn exception(item: &'static str, reason: &'static str) -> BudgetException {
    BudgetException { item, reason }
}

/// Exceptions. An entry that is no longer needed fails the check.
const EXCEPTIONS: &[BudgetException] = &[
    exception("src/bus/local_connection.rs", "one connection: its two threads share its state"),
    exception("src/bus/reports.rs", "one structure for each report"),
    exception("src/daemon/clients.rs", "one table: each kind of client has an arm in each function"),
    exception("src/proto/ledger.rs", "the ledger of one stream and its gaps: they change together"),
    exception("src/proto/ledger/forgery.rs: fits", "a number and a count are one position in a stream"),
    exception("src/proto/member_streams.rs: inbox", "a number and a count are one position in a stream"),
    exception("src/proto/rebuild.rs: on_fetched", "a subject and two numbers are one fetched range"),
    exception("src/proto/recv.rs: on_fragment", "a number and an index are one position in a stream"),
    exception("src/proto/recv/repair.rs: on_fetched", "a subject and two numbers are one fetched range"),
    exception("src/sim/final_checks.rs: check_row", "one list of the figures of a row"),
    exception(
        "src/sim/final_checks.rs: check_sub",
        "the delivery status of each message of a subscription, case by case",
    ),
    exception("src/sim/final_checks.rs: delivery_status", "the delivery status of one message, case by case"),
    exception("src/sim/final_checks.rs: lateness", "times of one message"),
    exception("src/sim/fuzz/peer.rs", "one arm for each kind of input"),
    exception("src/sim/joiner.rs: check_numbers", "two numbers are one range"),
    exception("src/sim/joiner.rs: new", "a pattern and a mode are one subscription"),
    exception("src/sim/oracle.rs", "one oracle: its statements read the same records"),
    exception("src/sim/oracle.rs: new", "indices of one run"),
    exception("src/sim/oracle.rs: on_read", "a sender and a socket are one origin"),
    exception("src/sim/oracle/interest.rs: check_receivers", "a run and its time"),
    exception("src/sim/oracle/track.rs: record_contact", "a time and whether it was late"),
    exception("src/sim/scenario.rs", "one arm for each fault"),
    exception("src/sim/scenario.rs: plan_subscriptions", "two times are one span"),
    exception("src/sim/truth.rs", "one record of all that was sent"),
    exception("src/sim/truth.rs: begin", "a number and its chain are one stamp"),
    exception("src/sim/truth.rs: on_control", "a datagram and its bytes; one arm for each record"),
    exception("src/sim/truth.rs: on_data", "a datagram and its bytes"),
    exception("src/sim/truth.rs: publish", "a message and its size"),
    exception("src/sim/truth/rules.rs: check_manifest", "subjects and how strictly they are compared"),
    exception("src/sim/truth/rules.rs: check_number", "each pair names one number"),
    exception("src/sim/world.rs", "one event loop: each kind of event has an arm"),
    exception("src/sim/world.rs: apply_action", "one arm for each action"),
    exception("src/sim/world.rs: apply_effect", "one arm for each effect"),
    exception("src/storage/streams/postgres.rs", "one store: each operation is one transaction"),
    exception("src/sim/fuzz/repair.rs: manifest", "a number and a count are one position in a stream"),
];

/// An item that exceeds a limit, and the complaint.
struct Excess {
    item: String,
    complaint: String,
}

/// Returns what exceeds a limit in a file.
fn excesses(path: &str, text: &str) -> Vec<Excess> {
    if is_test(path) {
        return Vec::new();
    }
    let product = without_tests(&code(text));
    // Cut tests leave empty lines at the end.
    let lines = text.lines().take(product.trim_end().lines().count()).count();
    let mut found = Vec::new();
    if FILE_LINES_MAX < lines {
        let complaint = format!("{path}: {lines} lines without tests, more than {FILE_LINES_MAX}");
        found.push(Excess { item: path.to_owned(), complaint });
    }
    for Function { name, line, lines, has_tuple_parameter } in functions(&product) {
        let mut complain = |what: String| {
            found.push(Excess { item: format!("{path}: {name}"), complaint: format!("{path}:{line}: {name} {what}") });
        };
        if FUNCTION_LINES_MAX < lines {
            complain(format!("has {lines} lines, more than {FUNCTION_LINES_MAX}"));
        }
        if has_tuple_parameter {
            complain("bundles arguments into a tuple: name the struct".to_owned());
        }
    }
    found
}

/// Complains about what exceeds a limit without an exception, and about exceptions that nothing needs.
fn check_budgets(files: &[(&str, &str)], exceptions: &[BudgetException]) -> Vec<String> {
    let found: Vec<Excess> = files.iter().flat_map(|(path, text)| excesses(path, text)).collect();
    let items: BTreeSet<&str> = found.iter().map(|excess| excess.item.as_str()).collect();
    let is_excepted = |excess: &&Excess| !exceptions.iter().any(|exception| exception.item == excess.item);
    let mut complaints: Vec<String> = found.iter().filter(is_excepted).map(|excess| excess.complaint.clone()).collect();
    for exception in exceptions {
        if exception.reason.is_empty() {
            complaints.push(format!("the exception {} has no reason", exception.item));
        }
        if !items.contains(exception.item) {
            complaints.push(format!("{} needs no exception in tests/tidy/budgets.rs", exception.item));
        }
    }
    complaints
}

/// Complains about a file that does not begin with its purpose.
fn check_purpose(path: &str, text: &str) -> Vec<String> {
    let first = text.lines().find(|line| !line.starts_with("#![") && !line.is_empty());
    // A fuzz target is one line; its body is in `sim::fuzz`.
    let is_one_line = path.starts_with("tools/fuzz/fuzz_targets/");
    if first.is_none_or(|line| !line.starts_with("//!")) && !is_one_line {
        return vec![format!("{path}:1: must begin with '//!' and the purpose of the file")];
    }
    Vec::new()
}

#[test]
fn files_and_functions_stay_within_their_budget() {
    let source = rust();
    let files: Vec<(&str, &str)> = source.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    assert!(100 < files.len(), "the source is found");
    assert_tidy(check_budgets(&files, EXCEPTIONS));
    assert_tidy(files.iter().flat_map(|(path, text)| check_purpose(path, text)).collect());
}

#[test]
fn excess_is_noticed() {
    let check = |text: &str| check_budgets(&[("src/a.rs", text)], &[]);
    let body = |lines: usize| "x();\n".repeat(lines);
    assert_tidy(check(&format!("fn f() {{\n{}}}\n", body(68))));
    assert_eq!(check(&format!("fn f() {{\n{}}}\n", body(69))), ["src/a.rs:1: f has 71 lines, more than 70"]);
    assert_eq!(check(&body(501)), ["src/a.rs: 501 lines without tests, more than 500"]);
    assert_tidy(check(&format!("#[cfg(test)]\nmod tests {{\n{}}}\n", body(501))));
    let tuple = ["src/a.rs:1: f bundles arguments into a tuple: name the struct"];
    assert_eq!(check("fn f<T: Fn(u8) -> u8>(a: u8, (b, c): (u8, T)) -> u8 { 0 }\n"), tuple);
    assert_tidy(check("fn f(a: (u8, u8), b: impl Fn(u8, u8)) {}\n"));
    assert_eq!(check_purpose("src/a.rs", "use x;\n").len(), 1);
}

#[test]
fn exception_without_need_is_noticed() {
    let files = [("src/a.rs", "fn f((a, b): (u8, u8)) {}\n")];
    assert_tidy(check_budgets(&files, &[exception("src/a.rs: f", "a test")]));
    assert_eq!(check_budgets(&files, &[exception("src/a.rs: f", "")]), ["the exception src/a.rs: f has no reason"]);
    let unneeded = ["src/b.rs needs no exception in tests/tidy/budgets.rs"];
    assert_eq!(check_budgets(&files, &[exception("src/a.rs: f", "a test"), exception("src/b.rs", "a test")]), unneeded);
}
