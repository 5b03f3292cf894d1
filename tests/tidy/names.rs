//! Checks that one name has one meaning: outside tests no two types of the crate share a name.

use super::source::{code, without_tests};
use super::{assert_tidy, is_test, rust};
use std::collections::BTreeMap;

/// Names that each module may have, always written with the module.
const PER_MODULE: [&str; 2] = ["Settings", "Error"];

/// Returns the name of the type that a line at the top level of a file declares.
fn declared_type(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(')')?.1.trim_start(),
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let (keyword, rest) = rest.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_type && !name.is_empty()).then_some(name)
}

/// Complains about each name that two of these files declare as a type.
fn check_names(files: &[(String, String)]) -> Vec<String> {
    let mut declared: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in files {
        for name in text.lines().filter_map(declared_type) {
            declared.entry(name).or_default().push(path);
        }
    }
    let is_shared = |(name, paths): &(&str, Vec<&str>)| 1 < paths.len() && !PER_MODULE.contains(name);
    declared.into_iter().filter(is_shared).map(|(name, paths)| format!("{name} is a type in {paths:?}")).collect()
}

#[test]
fn types_have_unique_names() {
    let source = rust().into_iter().filter(|file| !is_test(&file.path));
    let files: Vec<(String, String)> = source.map(|file| (file.path, without_tests(&code(&file.text)))).collect();
    assert!(100 < files.len(), "the source is found");
    assert_tidy(check_names(&files));
}

#[test]
fn two_types_of_one_name_are_noticed() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let both = [file("a.rs", "pub(crate) struct Gap;\n"), file("b.rs", "enum Gap {\n")];
    assert_eq!(check_names(&both), [r#"Gap is a type in ["a.rs", "b.rs"]"#]);
    let allowed = [file("a.rs", "pub struct Settings {\n    type Gap = u8;\n"), file("b.rs", "struct Settings;\n")];
    assert_eq!(check_names(&allowed), [""; 0]);
}
