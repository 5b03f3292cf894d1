//! The last lines of the log, for reports of defects.

use std::collections::VecDeque;

/// Maximum number of lines that are kept.
const LINES_MAX: usize = 1_000;
/// Maximum number of bytes of all kept lines together.
const BYTES_MAX: usize = 256 * 1024;

/// The last lines of a log, oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentLines {
    lines: VecDeque<String>,
    bytes: usize,
}

impl RecentLines {
    pub(super) const fn new() -> RecentLines {
        RecentLines { lines: VecDeque::new(), bytes: 0 }
    }

    /// Keeps a line, without the escape sequences that colour it on a terminal. Old lines make room for it.
    pub(super) fn push(&mut self, line: &[u8]) {
        let mut line = without_escapes(&String::from_utf8_lossy(line));
        let end = (0..=BYTES_MAX.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or_default();
        line.truncate(end);
        self.bytes += line.len();
        self.lines.push_back(line);
        while LINES_MAX < self.lines.len() || BYTES_MAX < self.bytes {
            let oldest = self.lines.pop_front().expect("one line alone is within the limits");
            self.bytes -= oldest.len();
        }
    }

    /// Returns the lines.
    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

/// Returns the text without its line end and without sequences such as `ESC [ 2 m`.
fn without_escapes(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for (index, part) in line.trim_end_matches('\n').split("\x1b[").enumerate() {
        match (index, part.find(|c: char| c.is_ascii_alphabetic())) {
            (0, _) => text.push_str(part),
            (_, Some(end)) => text.push_str(&part[end + 1..]),
            (_, None) => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_line_ends_are_removed() {
        let mut recent = RecentLines::new();
        recent.push(b"\x1b[2m2026-11-25\x1b[0m \x1b[32m INFO\x1b[0m peer started\n");
        recent.push(b"plain");
        assert_eq!(recent.lines(), ["2026-11-25  INFO peer started", "plain"]);
    }

    #[test]
    fn old_lines_make_room_for_new_ones() {
        let mut recent = RecentLines::new();
        for number in 0..LINES_MAX + 5 {
            recent.push(format!("{number}\n").as_bytes());
        }
        assert_eq!((recent.lines().len(), recent.lines()[0].as_str()), (LINES_MAX, "5"));
        recent.push("é".repeat(BYTES_MAX).as_bytes());
        assert_eq!((recent.lines().len(), recent.bytes), (1, BYTES_MAX));
        recent.push(b"x");
        assert_eq!((recent.lines(), recent.bytes), (vec!["x".to_owned()], 1));
    }
}
