//! Globs: the pattern syntax with which Redis clients select many channels at once.
//!
//! `*` matches any run of bytes, including dots; `?` matches one byte; `[abc]`, `[a-z]` and `[^a]` match one byte of a
//! set; `\` makes the next byte literal. An unclosed set extends to the end of the text.
//!
//! Matching never backtracks further than to the previous `*`. The part behind the last `*` can only match at the end
//! of the text. So only the parts between two `*` are tried at several positions. The number of matching steps is at
//! most the length of the text times the length of the longest such part.

use super::SUBJECT_BYTES_MAX;
use std::fmt;

/// Maximum length of a glob in bytes.
pub const GLOB_BYTES_MAX: usize = 255;

/// One token of a glob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum GlobToken {
    /// `*`: any run of bytes.
    Run,
    /// `?`: one byte.
    Any,
    /// This byte.
    Byte(u8),
    /// One byte of a set: a bit for each byte.
    Set(Box<[u64; 4]>),
}

/// A parsed glob. Cloning copies it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Glob {
    /// The original text.
    text: Box<[u8]>,
    tokens: Box<[GlobToken]>,
    /// Index of the last `*`.
    last_run: Option<u8>,
}

const _: () = assert!(GLOB_BYTES_MAX <= u8::MAX as usize);

/// A text that is longer than [`GLOB_BYTES_MAX`]; holds its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobLengthError(pub usize);

impl fmt::Display for GlobLengthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a glob has at most {GLOB_BYTES_MAX} bytes, this one has {}", self.0)
    }
}

impl std::error::Error for GlobLengthError {}

impl Glob {
    /// Creates a glob from any bytes of at most [`GLOB_BYTES_MAX`]; every text is a valid glob.
    ///
    /// # Errors
    /// The text is too long.
    pub fn new(text: &[u8]) -> Result<Glob, GlobLengthError> {
        if GLOB_BYTES_MAX < text.len() {
            return Err(GlobLengthError(text.len()));
        }
        let mut tokens = Vec::new();
        let mut rest = text.iter().copied();
        while let Some(byte) = rest.next() {
            match byte {
                b'*' if tokens.last() == Some(&GlobToken::Run) => {}
                b'*' => tokens.push(GlobToken::Run),
                b'?' => tokens.push(GlobToken::Any),
                b'[' => tokens.push(parse_set(&mut rest)),
                // A backslash at the end is literal.
                b'\\' => tokens.push(GlobToken::Byte(rest.next().unwrap_or(b'\\'))),
                byte => tokens.push(GlobToken::Byte(byte)),
            }
        }
        let last_run = tokens.iter().rposition(|token| *token == GlobToken::Run).map(|position| position as u8);
        Ok(Glob { text: text.into(), tokens: tokens.into(), last_run })
    }

    /// Returns the original text of the glob.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the common prefix of all matching texts.
    pub fn prefix(&self) -> Vec<u8> {
        let literal = |token: &GlobToken| match token {
            GlobToken::Byte(byte) => Some(*byte),
            _ => None,
        };
        self.tokens.iter().map_while(literal).collect()
    }

    /// Returns the maximum number of steps to match the channel of any subject.
    pub fn steps_max(&self) -> usize {
        self.steps_within(SUBJECT_BYTES_MAX)
    }

    /// Returns the maximum number of steps for texts of at most `text_bytes` bytes.
    fn steps_within(&self, text_bytes: usize) -> usize {
        let last = self.last_run.map_or(0, usize::from);
        let parts = self.tokens[..last].split(|token| *token == GlobToken::Run).skip(1);
        // Each token is passed once. At each byte of the text, a part between two `*` may be tried in vain.
        self.tokens.len() + 1 + text_bytes * parts.map(<[GlobToken]>::len).max().unwrap_or(0)
    }

    /// Returns whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_counted(text).0
    }

    /// Returns whether the whole text matches, with the number of steps taken.
    pub fn matches_counted(&self, text: &[u8]) -> (bool, usize) {
        let (mut at, mut token, mut steps) = (0, 0, 0);
        // Index of the token after the previous `*`, and the end of the run that this `*` matches in the text.
        let mut backtrack: Option<(usize, usize)> = None;
        loop {
            steps += 1;
            let is_match = match (self.tokens.get(token), text.get(at)) {
                (None, None) => return (true, steps),
                (Some(GlobToken::Run), _) if self.last_run.is_some_and(|last| usize::from(last) == token) => {
                    token += 1;
                    match text.len().checked_sub(self.tokens.len() - token).filter(|position| at <= *position) {
                        Some(position) => (at, backtrack) = (position, None),
                        None => return (false, steps),
                    }
                    continue;
                }
                (Some(GlobToken::Run), _) => {
                    backtrack = Some((token + 1, at));
                    token += 1;
                    continue;
                }
                (Some(GlobToken::Any), Some(_)) => true,
                (Some(GlobToken::Byte(wanted)), Some(byte)) => wanted == byte,
                (Some(GlobToken::Set(set)), Some(byte)) => contains(set, *byte),
                (None, Some(_)) | (Some(_), None) => false,
            };
            match (is_match, &mut backtrack) {
                (true, _) => {
                    at += 1;
                    token += 1;
                }
                (false, Some((behind, end))) if *end < text.len() => {
                    *end += 1;
                    (token, at) = (*behind, *end);
                }
                (false, _) => return (false, steps),
            }
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Parses the set that begins after a `[`.
fn parse_set(rest: &mut (impl Iterator<Item = u8> + Clone)) -> GlobToken {
    let mut set = [0; 4];
    let is_negated = rest.clone().next() == Some(b'^');
    if is_negated {
        rest.next();
    }
    while let Some(first) = rest.next() {
        let mut ahead = rest.clone();
        let (first, last) = match (first, ahead.next(), ahead.next()) {
            (b']', ..) => break,
            // An escaped byte begins no range.
            (b'\\', Some(byte), _) => {
                rest.next();
                (byte, byte)
            }
            (_, Some(b'-'), Some(last)) => {
                *rest = ahead;
                (first, last)
            }
            _ => (first, first),
        };
        (first.min(last)..=first.max(last)).for_each(|byte| set[usize::from(byte / 64)] |= 1 << (byte % 64));
    }
    GlobToken::Set(Box::new(if is_negated { set.map(|word: u64| !word) } else { set }))
}

/// Returns whether the byte is in the set.
fn contains(set: &[u64; 4], byte: u8) -> bool {
    set[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Matches by a reference implementation that tries every way to cut the text. It follows Redis's own matcher.
    fn twin(glob: &[u8], text: &[u8]) -> bool {
        match (glob, text) {
            ([], _) => text.is_empty(),
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|at| twin(rest, &text[at..])),
            (_, []) => false,
            ([b'?', rest @ ..], [_, behind @ ..]) => twin(rest, behind),
            ([b'[', rest @ ..], [byte, behind @ ..]) => {
                let (negated, mut rest) = match rest {
                    [b'^', rest @ ..] => (true, rest),
                    rest => (false, rest),
                };
                let mut found = false;
                loop {
                    rest = match rest {
                        [] => break,
                        [b']', rest @ ..] => {
                            return found != negated && twin(rest, behind);
                        }
                        [b'\\', one, rest @ ..] => {
                            found |= one == byte;
                            rest
                        }
                        [low, b'-', high, rest @ ..] => {
                            found |= (low.min(high)..=low.max(high)).contains(&byte);
                            rest
                        }
                        [one, rest @ ..] => {
                            found |= one == byte;
                            rest
                        }
                    };
                }
                found != negated && behind.is_empty()
            }
            ([b'\\', one, rest @ ..], [byte, behind @ ..]) | ([one, rest @ ..], [byte, behind @ ..]) => {
                one == byte && twin(rest, behind)
            }
        }
    }

    fn check(glob: &[u8], text: &[u8]) {
        let made = Glob::new(glob).unwrap();
        let (matches, steps) = made.matches_counted(text);
        assert_eq!(matches, twin(glob, text), "{made} {}", text.escape_ascii());
        assert!(steps <= made.steps_within(text.len()), "{steps} steps for {made} {}", text.escape_ascii());
        assert!(!matches || text.starts_with(&made.prefix()), "{made} {}", text.escape_ascii());
    }

    #[test]
    fn globs_match_as_their_slow_twin_does() {
        let mut rng = Rng::new(3);
        let mut text = |letters: &[u8], len_max: u64| -> Vec<u8> {
            (0..rng.below(len_max)).map(|_| letters[rng.below(letters.len() as u64) as usize]).collect()
        };
        for _ in 0..200_000 {
            check(&text(b"aabbc*?.", 9), &text(b"abc.", 9));
            check(&text(b"ab*?[^]-\\c", 9), &text(b"abc-]^\\", 6));
        }
    }

    #[test]
    fn known_globs() {
        for (glob, text, expected) in [
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[b-a]llo", "hallo", true),
            ("news.*", "news.eu.de", true),
            ("news.*", "news.", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("[ab", "a", true),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(Glob::new(glob.as_bytes()).unwrap().matches(text.as_bytes()), expected, "{glob} {text}");
        }
        assert_eq!(Glob::new(&[b'*'; 256]), Err(GlobLengthError(256)));
    }

    /// Checks globs that are exponential for naive matchers, and the worst ones for this matcher.
    #[test]
    fn worst_globs_stay_within_their_step_bound() {
        let text = [&[b'a'; 254][..], b"b"].concat();
        for (glob, steps_max) in [
            ("*a".repeat(127), 1000),
            (format!("*{}*", "a".repeat(127) + "c"), 33_000),
            (format!("*{}*", "?".repeat(253)), 65_000),
            ("*.eu".to_owned(), 5),
            ("news.*".to_owned(), 7),
            ("*".to_owned(), 2),
        ] {
            let glob = Glob::new(glob.as_bytes()).unwrap();
            let (_, steps) = glob.matches_counted(&text);
            assert!(steps <= glob.steps_max() && glob.steps_max() <= steps_max, "{glob}: {steps} {}", glob.steps_max());
        }
    }
}
