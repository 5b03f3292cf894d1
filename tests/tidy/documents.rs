//! Documents name files that are there.

use super::{assert_each, tree};
use crate::support::root;

/// Folders of the tree that a path in a document begins with.
const FOLDERS: [&str; 5] = ["src/", "tests/", "docs/", "benches/", "tools/"];

/// Complains of each path in backticks that is not in the tree.
fn check_paths(document: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for path in line.split('`').skip(1).step_by(2) {
            let is_path = FOLDERS.iter().any(|folder| path.starts_with(folder)) && !path.contains([' ', '*', '{', ':']);
            if is_path && !path.contains("NAME") && !root().join(path).exists() {
                complaints.push(format!("{document}:{number}: there is no {path}"));
            }
        }
    }
    complaints
}

#[test]
fn files_named_in_documents_exist() {
    // The changelog names files that were there once.
    let is_checked = |path: &str| path.ends_with(".md") && path != "docs/changelog.md";
    let documents: Vec<_> = tree().into_iter().filter(|file| is_checked(&file.path)).collect();
    assert!(10 < documents.len(), "the documents are found");
    assert_each(&documents, check_paths);
}

#[test]
fn missing_files_are_noticed() {
    let text = "See `src/proto`, `src/lib.rs` and `src/none.rs`.\n";
    assert_eq!(check_paths("docs/x.md", text), ["docs/x.md:1: there is no src/none.rs"]);
}
