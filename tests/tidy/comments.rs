//! Comments are sentences or noun phrases: none begins with a clause that has no subject, and quantities have names.

use super::{assert_each, assert_tidy, rust};

/// Words that no comment begins with.
const HEADLESS: [&str; 3] = ["Who", "What", "Whoever"];

/// Words that stand for a quantity without a name.
const UNNAMED: [&str; 3] = ["so many", "so much", "so long"];

/// Returns the text of a line that is a comment as a whole.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

/// Returns whether the words occur in the text as whole words.
fn has_words(text: &str, words: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    let text = text.to_lowercase();
    text.match_indices(words)
        .any(|(at, _)| is_edge(text[..at].chars().next_back()) && is_edge(text[at + words.len()..].chars().next()))
}

fn check_comments(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut was_comment = false;
    for (line, number) in text.lines().zip(1..) {
        let Some(comment) = comment(line) else {
            was_comment = false;
            continue;
        };
        let first = comment.split(' ').next().unwrap_or_default();
        if !was_comment && HEADLESS.contains(&first) {
            complaints.push(format!("{path}:{number}: begins with '{first}', not with a subject or a verb"));
        }
        let unnamed = UNNAMED.iter().filter(|words| has_words(comment, words));
        complaints.extend(unnamed.map(|words| format!("{path}:{number}: says '{words}', and not of what")));
        was_comment = true;
    }
    complaints
}

#[test]
fn comments_have_subjects_and_named_quantities() {
    let files: Vec<_> = rust().into_iter().filter(|file| !file.path.starts_with("tests/tidy/comments")).collect();
    assert!(100 < files.len(), "the source is found");
    assert_each(&files, check_comments);
}

#[test]
fn headless_comments_and_unnamed_quantities_are_noticed() {
    assert_eq!(check_comments("a.rs", "/// Who waits.\nfn f() {}\n//! What is kept.\n").len(), 2);
    assert_eq!(check_comments("a.rs", "    // The limit is so\n    // many of so much.\n").len(), 1);
    assert_tidy(check_comments("a.rs", "/// Returns what is kept.\n/// What follows is a sentence.\nlet who = 1;\n"));
}
