//! Dependencies have licences that ask for a notice at most, and no crate is there twice without a reason.
//!
//! `deny.toml` is the list of both. `cargo deny` reads it too, and knows more; this check needs only Cargo.

use super::assert_tidy;
use crate::support::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

/// A dependency as `cargo tree` resolved it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Dependency {
    name: String,
    version: String,
    licence: String,
}

/// The lists of `deny.toml`.
#[derive(Debug, Default)]
struct Rules {
    licences: BTreeSet<String>,
    /// Name and first parts of the version of each crate of which a newer version is there too.
    skipped: BTreeSet<(String, String)>,
}

/// Returns the texts in quotation marks of a line.
fn quoted(line: &str) -> Vec<String> {
    line.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Reads `deny.toml`. The error is a line that lacks a reason.
fn rules(text: &str) -> Result<Rules, String> {
    let mut rules = Rules::default();
    let mut list = "";
    for line in text.lines().map(str::trim) {
        match line {
            "allow = [" => list = "allow",
            "skip = [" => list = "skip",
            "]" => list = "",
            _ if list == "allow" => rules.licences.extend(quoted(line)),
            _ if list == "skip" => match &quoted(line)[..] {
                [spec, reason] if !reason.is_empty() => {
                    let (name, version) = spec.split_once('@').ok_or(format!("no version in {line}"))?;
                    rules.skipped.insert((name.to_owned(), version.to_owned()));
                }
                _ => return Err(format!("no crate with a reason: {line}")),
            },
            _ => {}
        }
    }
    Ok(rules)
}

/// Reads the lines `name vVERSION …|licence` of `cargo tree`.
fn dependencies(tree: &str) -> BTreeSet<Dependency> {
    let read = |line: &str| {
        let (package, licence) = line.split_once('|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?.to_owned(), words.next()?.trim_start_matches('v').to_owned());
        // A line that repeats an earlier one ends like that.
        Some(Dependency { name, version, licence: licence.trim_end_matches(" (*)").to_owned() })
    };
    tree.lines().filter_map(read).collect()
}

/// Returns whether an expression of SPDX can be met with the allowed licences; a malformed one cannot.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    // A licence with an exception asks for less than the licence itself.
    let spaced = spaced.replace(" WITH LLVM-exception", "");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    any_of(&mut rest, allowed) == Some(true) && rest.is_empty()
}

fn any_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut is_met = all_of(words, allowed)?;
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        is_met |= all_of(words, allowed)?;
    }
    Some(is_met)
}

/// AND binds before OR.
fn all_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut is_met = one_of(words, allowed)?;
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        is_met &= one_of(words, allowed)?;
    }
    Some(is_met)
}

/// A licence, or an expression in parentheses.
fn one_of(words: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    if *first != "(" {
        return Some(allowed.contains(*first));
    }
    let is_met = any_of(words, allowed)?;
    *words = words.strip_prefix(&[")"])?;
    Some(is_met)
}

/// Complains about licences and duplicates that the rules do not allow, and about rules without a use.
fn check_dependencies(rules: &Rules, all: &BTreeSet<Dependency>) -> Vec<String> {
    let refused = all.iter().filter(|one| !is_allowed(&one.licence, &rules.licences));
    let mut complaints: Vec<String> = refused
        .map(|one| format!("{} {}: deny.toml does not allow the licence '{}'", one.name, one.version, one.licence))
        .collect();
    let is_of = |version: &str, skipped: &str| version.strip_prefix(skipped).is_some_and(|rest| rest.starts_with('.'));
    let mut unused = rules.skipped.clone();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in all {
        let skipped = rules.skipped.iter().find(|(name, version)| *name == one.name && is_of(&one.version, version));
        if skipped.is_none_or(|skipped| !unused.remove(skipped)) {
            versions.entry(&one.name).or_default().push(&one.version);
        }
    }
    complaints.extend(unused.iter().map(|(name, version)| format!("deny.toml: {name}@{version} is not there")));
    let many = versions.iter().filter(|(_, versions)| 1 < versions.len());
    complaints.extend(many.map(|(name, versions)| {
        format!("{name} is there in {} versions: {versions:?}; update, or give the reason in deny.toml", versions.len())
    }));
    complaints
}

#[test]
fn dependencies_keep_the_rules_of_deny_toml() {
    let rules = rules(&fs::read_to_string(root().join("deny.toml")).expect("deny.toml")).expect("each has a reason");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["tree", "--locked", "--offline", "--all-features", "--prefix", "none", "--format", "{p}|{l}"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().expect("cargo tree runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all = dependencies(&String::from_utf8(output.stdout).expect("names are text"));
    assert!(100 < all.len(), "the dependencies are found: {all:?}");
    assert_tidy(check_dependencies(&rules, &all));
}

#[test]
fn dependency_check_notices_violations() {
    let rules = rules("allow = [\n\"MIT\",\n\"ISC\",\n]\nskip = [\n{ crate = \"a@0.1\", reason = \"b\" },\n]").unwrap();
    let check = |tree: &str, complaints: usize| {
        let found = check_dependencies(&rules, &dependencies(tree));
        assert_eq!(found.len(), complaints, "{tree}: {found:?}");
    };
    check("a v0.1.2|MIT\na v0.2.0|MIT OR GPL-3.0\na v0.2.0|MIT OR GPL-3.0 (*)", 0);
    check("a v0.2.0|MIT", 1);
    check("a v0.1.2|MIT\na v0.2.0|MIT\na v0.3.0|MIT", 1);
    check("a v0.1.2|MIT\na v0.1.3|MIT\na v0.2.0 (proc-macro)|MIT", 1);
    check("a v0.1.2|GPL-3.0\nb v1.0.0|\nc v1.0.0|MIT\nd v0.10.0|ISC", 2);
    assert!(super::dependencies::rules("skip = [\n{ crate = \"a@0.1\" },\n]").is_err());
}

#[test]
fn licence_expression_is_met_by_allowed_ones() {
    let allowed = ["MIT", "ISC"].map(str::to_owned).into();
    for met in ["MIT", "MIT/GPL", "GPL OR MIT", "GPL AND X OR MIT", "(GPL OR ISC) AND MIT", "MIT WITH LLVM-exception"] {
        assert!(is_allowed(met, &allowed), "{met}");
    }
    for refused in ["", "GPL", "MIT AND GPL", "MIT AND (GPL OR X)", "MIT GPL", "(MIT", "MIT)", "MIT WITH X", "MIT AND"]
    {
        assert!(!is_allowed(refused, &allowed), "{refused}");
    }
}
