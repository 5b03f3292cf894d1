//! Documents name and link files that are there, and their lines fit a page.

use super::{File, assert_each, tree};
use crate::support::root;
use std::path::Path;

/// Folders of the tree that a path in a document begins with.
const FOLDERS: [&str; 5] = ["src/", "tests/", "docs/", "benches/", "tools/"];

/// Maximum characters of a line of prose.
const LINE_CHARACTERS_MAX: usize = 120;

/// Returns the documents of the tree.
fn documents() -> Vec<File> {
    let documents: Vec<_> = tree().into_iter().filter(|file| file.path.ends_with(".md")).collect();
    assert!(10 < documents.len(), "the documents are found");
    documents
}

/// Complains about each path in backticks that is not in the tree.
fn check_paths(document: &str, text: &str, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    // The changelog names files that were there once.
    let lines = text.lines().zip(1..).filter(|_| document != "docs/changelog.md");
    for (line, number) in lines {
        for path in line.split('`').skip(1).step_by(2) {
            let is_path = FOLDERS.iter().any(|folder| path.starts_with(folder)) && !path.contains([' ', '*', '{', ':']);
            if is_path && !path.contains("NAME") && !exists(Path::new(path)) {
                complaints.push(format!("{document}:{number}: there is no {path}"));
            }
        }
    }
    complaints
}

/// Complains about each link to a file that is not in the tree.
fn check_links(document: &str, text: &str, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let dir = Path::new(document).parent().unwrap_or(Path::new(""));
    let mut complaints = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for link in line.split("](").skip(1) {
            let target = link.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !exists(&dir.join(target)) {
                complaints.push(format!("{document}:{number}: links to {target}, which is not there"));
            }
        }
    }
    complaints
}

/// Complains about each line that is too wide. Rows of tables, fenced blocks and lines of one word, such as a URL,
/// cannot be broken.
fn check_widths(document: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut is_fenced = false;
    for (line, number) in text.lines().zip(1..) {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        let is_breakable = !is_fence && !is_fenced && !line.starts_with('|') && line.trim().contains(' ');
        let width = line.chars().count();
        if is_breakable && LINE_CHARACTERS_MAX < width {
            complaints.push(format!("{document}:{number}: {width} characters, more than {LINE_CHARACTERS_MAX}"));
        }
    }
    complaints
}

#[test]
fn files_named_in_documents_exist() {
    let exists = |path: &Path| root().join(path).exists();
    assert_each(&documents(), |document, text| {
        [check_paths(document, text, exists), check_links(document, text, exists)].concat()
    });
}

#[test]
fn lines_of_documents_fit_a_page() {
    assert_each(&documents(), check_widths);
}

#[test]
fn missing_files_are_noticed() {
    let exists = |path: &Path| ["src/lib.rs", "docs/wire.md"].contains(&path.to_str().expect("ASCII"));
    let text = "See `src/lib.rs` and\n`src/none.rs`.\n";
    assert_eq!(check_paths("docs/a.md", text, exists), ["docs/a.md:2: there is no src/none.rs"]);
    assert!(check_paths("docs/changelog.md", text, exists).is_empty());
    let text = "[a](wire.md#x) [b](https://example.org/)\n[c](none.md) [d](#here)";
    assert_eq!(check_links("docs/a.md", text, exists), ["docs/a.md:2: links to none.md, which is not there"]);
}

#[test]
fn wide_lines_are_noticed() {
    let full = format!("{} é", "x".repeat(LINE_CHARACTERS_MAX - 2));
    assert!(check_widths("a.md", &full).is_empty());
    assert_eq!(check_widths("a.md", &format!("\n{full}x")), ["a.md:2: 121 characters, more than 120"]);
    let url = format!("https://example.org/{full}").replace(' ', "/");
    let unbreakable = format!("{url}\n| {full} |\n```text\n{full}x\n```\n");
    assert!(check_widths("a.md", &unbreakable).is_empty());
    assert_eq!(check_widths("a.md", &format!("{unbreakable}{full}x")).len(), 1);
}
