//! Rules of the protocol: each has a test that names it, and the rules of loss accounting also have a place in the
//! code.
//!
//! A rule is named by its number in `docs/wire.md` (W1, W2 …), or by its name in the table of `src/proto/mod.rs`. The
//! line `/// Proves: W1, gap` in the doc comment of a `#[test]` function says that this test shows these rules;
//! anywhere else the line is refused. The line `// Rule: gap` in the code of the product says that the rule is kept
//! there.

use super::source::{code, tests, without_tests};
use super::{assert_tidy, is_test, rust};
use crate::support::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Rules of `docs/wire.md` that no test shows, and the reason. The list may only become shorter.
const UNPROVEN: &[(&str, &str)] = &[];

/// Returns the names of the rules of loss accounting, as the table in the documentation of the core lists them: ``//!
/// | `name` | …``.
fn named_rules(core: &str) -> BTreeSet<String> {
    let name = |line: &str| Some(line.trim().strip_prefix("//! | `")?.split_once('`')?.0.to_owned());
    core.lines().filter_map(name).collect()
}

/// Returns the numbers of the rules of the specification: `- **W1** …`.
fn numbered_rules(page: &str) -> BTreeSet<String> {
    let number = |line: &str| {
        let (number, _) = line.strip_prefix("- **W")?.split_once("**")?;
        number.parse::<u32>().is_ok().then(|| format!("W{number}"))
    };
    page.lines().filter_map(number).collect()
}

/// Complains about the first rule of the specification that does not follow the one before it: numbers rise by one,
/// from 1 on.
fn check_order(page: &str) -> Option<String> {
    let number = |line: &str| line.strip_prefix("- **W")?.split_once("**")?.0.parse::<u32>().ok();
    let wrong = (1..).zip(page.lines().filter_map(number)).find(|(expected, number)| expected != number);
    wrong.map(|(expected, number)| format!("docs/wire.md: W{number} stands where W{expected} should"))
}

/// Returns the rules in a mark, which are separated by commas.
fn rules_of(mark: &str) -> impl Iterator<Item = String> {
    mark.split(',').map(|rule| rule.trim().to_owned())
}

/// Returns the rules that the tests of a file prove, each with the name of its test; and complaints about marks in
/// other places.
fn proofs(path: &str, text: &str) -> (Vec<(String, String)>, Vec<String>) {
    let tests = tests(text);
    let (mut proofs, mut complaints) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_proof = line.starts_with("//") && line.trim_start_matches(['/', '!', ' ']).starts_with("Proves:");
        let owner = tests.iter().find(|test| test.head.contains(&index));
        match (line.strip_prefix("/// Proves: "), owner) {
            (Some(mark), Some(test)) => proofs.extend(rules_of(mark).map(|rule| (rule, test.name.clone()))),
            _ if is_proof => complaints
                .push(format!("{path}:{}: '/// Proves: ' belongs in the doc comment of a #[test] function", index + 1)),
            _ => {}
        }
    }
    (proofs, complaints)
}

/// Returns the rules that the product's code in a file keeps; and complaints about marks in other places.
fn rule_marks(path: &str, text: &str) -> (Vec<String>, Vec<String>) {
    let product_lines = without_tests(&code(text)).trim_end().lines().count();
    let is_product = |index| !is_test(path) && !path.starts_with("src/sim/") && index < product_lines;
    let (mut rules, mut complaints) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let Some(mark) = line.trim().strip_prefix("// Rule:") else { continue };
        if is_product(index) {
            rules.extend(rules_of(mark));
        } else {
            let line = index + 1;
            complaints.push(format!("{path}:{line}: '// Rule:' marks code of the product; a test has '/// Proves: '"));
        }
    }
    (rules, complaints)
}

/// Complains about rules without a test or without code, marks that name no rule, and wrong entries of `unproven`.
fn check_rules(page: &str, files: &[(&str, &str)], unproven: &[(&str, &str)]) -> Vec<String> {
    let core = files.iter().find(|(path, _)| *path == "src/proto/mod.rs").map_or("", |(_, text)| text);
    let (named, numbered) = (named_rules(core), numbered_rules(page));
    let mut complaints: Vec<String> = check_order(page).into_iter().collect();
    let mut proven: BTreeMap<String, String> = BTreeMap::new();
    let mut in_code = BTreeSet::new();
    for (path, text) in files {
        let (found, wrong) = proofs(path, text);
        complaints.extend(wrong);
        for (rule, test) in found {
            if !named.contains(&rule) && !numbered.contains(&rule) {
                complaints.push(format!("{path}: the test {test} proves {rule}, which is no rule"));
            }
            proven.insert(rule, test);
        }
        let (found, wrong) = rule_marks(path, text);
        complaints.extend(wrong);
        let unknown = found.iter().filter(|rule| !named.contains(*rule));
        complaints.extend(unknown.map(|rule| format!("{path}: src/proto/mod.rs declares no rule {rule}")));
        in_code.extend(found);
    }
    complaints.extend(named.difference(&in_code).map(|rule| format!("no code carries '// Rule: {rule}'")));
    for rule in named.union(&numbered) {
        let is_listed = unproven.iter().any(|(entry, _)| entry == rule);
        match proven.get(rule) {
            Some(test) if is_listed => complaints.push(format!("UNPROVEN: the test {test} proves {rule}")),
            None if !is_listed => complaints.push(format!("no test carries '/// Proves: {rule}'")),
            _ => {}
        }
    }
    for (index, (rule, reason)) in unproven.iter().enumerate() {
        if !numbered.contains(*rule) {
            complaints.push(format!("UNPROVEN: {rule} is no rule of docs/wire.md"));
        }
        if reason.is_empty() || unproven[..index].iter().any(|(earlier, _)| earlier == rule) {
            complaints.push(format!("UNPROVEN: {rule} needs one entry with a reason"));
        }
    }
    complaints
}

#[test]
fn every_rule_has_a_test_that_names_it() {
    let page = fs::read_to_string(root().join("docs/wire.md")).expect("docs/wire.md");
    let files = rust();
    let files: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    assert_tidy(check_rules(&page, &files, UNPROVEN));
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: (&str, &str) = ("src/proto/mod.rs", "//! | rule | says |\n//! |---|---|\n//! | `gap` | wait |\n");
    const MARKED: (&str, &str) = ("src/proto/a.rs", "// Rule: gap\nx();\n");
    const PAGE: &str = "- **W1** A rule.\n- **W2** A second one; see W3.\n";

    fn check(files: &[(&str, &str)], unproven: &[(&str, &str)], expected: &[&str]) {
        let files = [&[CORE], files].concat();
        assert_eq!(check_rules(PAGE, &files, unproven), expected);
    }

    #[test]
    fn rule_without_test_or_code_is_named() {
        let test = ("tests/b.rs", "/// Proves: W1, gap\n#[test]\nfn b() {}\n");
        let other =
            ("src/c.rs", "#[cfg(test)]\nmod tests {\n    /// B.\n    /// Proves: W2\n    #[test]\n    fn c() {}\n}");
        check(&[MARKED, test, other], &[], &[]);
        check(&[MARKED, test], &[], &["no test carries '/// Proves: W2'"]);
        check(&[MARKED, test], &[("W2", "a reason")], &[]);
        check(&[test, other], &[], &["no code carries '// Rule: gap'"]);
    }

    #[test]
    fn rule_out_of_order_is_named() {
        assert_eq!(check_order(PAGE), None);
        let page = "- **W1** A rule.\n- **W3** Another.\n- **W2** A third.\n";
        assert_eq!(check_order(page), Some("docs/wire.md: W3 stands where W2 should".to_owned()));
    }

    #[test]
    fn mark_outside_its_place_is_refused() {
        let all = ("tests/b.rs", "/// Proves: W1, W2, gap\n#[test]\nfn b() {}\n");
        let place = "src/d.rs:1: '/// Proves: ' belongs in the doc comment of a #[test] function";
        for text in ["/// Proves: W1\nfn helper() {}", "// Proves: W1\n#[test]\nfn d() {}", "//! Proves: W1\n"] {
            check(&[MARKED, all, ("src/d.rs", text)], &[], &[place]);
        }
        let place = "1: '// Rule:' marks code of the product; a test has '/// Proves: '";
        for path in ["tests/d.rs", "src/sim/d.rs", "src/proto/d/tests.rs"] {
            check(&[MARKED, all, (path, "// Rule: gap\n#[test]\nfn d() {}")], &[], &[&format!("{path}:{place}")]);
        }
    }

    #[test]
    fn entry_that_is_wrong_is_refused() {
        let all = ("tests/b.rs", "/// Proves: W1, W2, gap\n#[test]\nfn b() {}\n");
        check(&[MARKED, all], &[("W1", "a reason")], &["UNPROVEN: the test b proves W1"]);
        check(&[MARKED, all], &[("W9999", "a reason")], &["UNPROVEN: W9999 is no rule of docs/wire.md"]);
        let one = ("tests/b.rs", "/// Proves: W1, gap\n#[test]\nfn b() {}\n");
        check(&[MARKED, one], &[("W2", "")], &["UNPROVEN: W2 needs one entry with a reason"]);
        let unknown = ("tests/c.rs", "/// Proves: nonsense\n#[test]\nfn c() {}\n");
        check(&[MARKED, all, unknown], &[], &["tests/c.rs: the test c proves nonsense, which is no rule"]);
        let unknown = ("src/c.rs", "// Rule: nonsense\nx();\n");
        check(&[MARKED, all, unknown], &[], &["src/c.rs: src/proto/mod.rs declares no rule nonsense"]);
    }
}
