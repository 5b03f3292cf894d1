//! Documents name and link files that are there, and their lines fit a page.

use super::{File, assert_each, tree};
use crate::support::root;
use std::fs;
use std::path::{Component, Path, PathBuf};

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

/// Returns the path without its `..`: `docs/../config/param.yaml` is `config/param.yaml`.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            resolved.pop();
        } else {
            resolved.push(part);
        }
    }
    resolved
}

/// Returns the anchors of the headings of a document, as links name them: `## The wire, 1` is `the-wire-1`.
fn anchors(text: &str) -> Vec<String> {
    let heading = |line: &str| line.starts_with('#').then(|| line.trim_start_matches('#').trim().to_lowercase());
    let is_kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
    text.lines()
        .filter_map(heading)
        .map(|line| line.chars().filter(is_kept).collect::<String>().replace(' ', "-"))
        .collect()
}

/// Complains about each link to a file that is not in the tree, or to a heading that is not in the document. `read`
/// returns the text of a file of the tree.
fn check_links(document: &str, text: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let dir = Path::new(document).parent().unwrap_or(Path::new(""));
    let mut complaints = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for link in line.split("](").skip(1) {
            let link = link.split([')', ' ']).next().unwrap_or_default();
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if file.is_empty() { PathBuf::from(document) } else { resolved(&dir.join(file)) };
            let target = if file.is_empty() { Some(text.to_owned()) } else { read(&path) };
            let fault = match target {
                _ if link.contains("://") => continue,
                None => "is not there",
                Some(target) if !anchor.is_empty() && !anchors(&target).contains(&anchor.to_owned()) => {
                    "has no such heading"
                }
                Some(_) => continue,
            };
            complaints.push(format!("{document}:{number}: links to {link}: {} {fault}", path.display()));
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
fn documents_name_existing_files_and_headings() {
    let exists = |path: &Path| root().join(path).exists();
    let read = |path: &Path| fs::read_to_string(root().join(path)).ok();
    assert_each(&documents(), |document, text| {
        [check_paths(document, text, exists), check_links(document, text, read)].concat()
    });
}

#[test]
fn lines_of_documents_fit_a_page() {
    assert_each(&documents(), check_widths);
}

#[test]
fn missing_files_and_headings_are_noticed() {
    let exists = |path: &Path| path == Path::new("src/lib.rs");
    let text = "See `src/lib.rs` and\n`src/none.rs`.\n";
    assert_eq!(check_paths("docs/a.md", text, exists), ["docs/a.md:2: there is no src/none.rs"]);
    assert!(check_paths("docs/changelog.md", text, exists).is_empty());
    let read = |path: &Path| match path.to_str() {
        Some("docs/wire.md") => Some("# The wire, `v1`\n".to_owned()),
        Some("config/param.yaml") => Some(String::new()),
        _ => None,
    };
    let good = "[a](wire.md#the-wire-v1) [b](https://example.org/#x)\n[c](#here) [d](../config/param.yaml)\n## Here\n";
    assert_eq!(check_links("docs/a.md", good, read), [""; 0]);
    let bad = "[a](wire.md#x)\n[b](none.md) [c](#x)\n";
    let expected = [
        "docs/a.md:1: links to wire.md#x: docs/wire.md has no such heading",
        "docs/a.md:2: links to none.md: docs/none.md is not there",
        "docs/a.md:2: links to #x: docs/a.md has no such heading",
    ];
    assert_eq!(check_links("docs/a.md", bad, read), expected);
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
