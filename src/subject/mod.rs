//! Subjects and the patterns that match them.
//!
//! A subject is 1 to 255 bytes of UTF-8 in 1 to 32 tokens joined by `.`. No token is empty, `*` or `>`, and no token
//! has control characters or spaces. In a pattern, the token `*` matches exactly one token, and a final `>` one or
//! more.
//!
//! ```
//! use seqcast::subject::{Pattern, Subject};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let subject: Subject = "plant.7.temperature".parse()?;
//! assert!("plant.*.temperature".parse::<Pattern>()?.matches(&subject));
//! assert!("plant.>".parse::<Pattern>()?.matches(&subject));
//! assert!(!"plant.*".parse::<Pattern>()?.matches(&subject));
//! assert!("plant..temperature".parse::<Subject>().is_err());
//! # Ok(())
//! # }
//! ```

pub mod channel;
pub mod event_type;
pub mod glob;
pub mod pattern_set;
pub mod permitted_subjects;
pub mod tree;

use bytes::Bytes;
use std::fmt;
use std::str::FromStr;

/// Maximum length of a subject or pattern in bytes; it fits the wire's one-byte length field.
pub const SUBJECT_BYTES_MAX: usize = 255;
/// Maximum number of tokens in a subject or pattern; bounds the depth of matching.
pub const SUBJECT_TOKENS_MAX: usize = 32;

/// A valid subject. Cloning copies a reference only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(Bytes);

/// Reason for which a text is not a subject or pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubjectError {
    /// The text is empty.
    Empty,
    /// The text is longer than [`SUBJECT_BYTES_MAX`]. Holds its length.
    TooLong(usize),
    /// The text has more than [`SUBJECT_TOKENS_MAX`] tokens.
    TooDeep,
    /// A token is empty: the text has a dot at its start or end, or two dots in a row. Holds the position in bytes.
    EmptyToken(usize),
    /// The text has a space or control character. Holds its position in bytes.
    Character(usize),
    /// A token of a subject is `*` or `>`, which only patterns have.
    Wildcard,
    /// `>` before the last token of a pattern.
    InnerTail,
    /// The text is not UTF-8.
    Encoding,
}

impl fmt::Display for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubjectError::Empty => write!(f, "a subject must not be empty"),
            SubjectError::TooLong(len) => {
                write!(f, "a subject has at most {SUBJECT_BYTES_MAX} bytes, this one has {len}")
            }
            SubjectError::TooDeep => write!(f, "a subject has at most {SUBJECT_TOKENS_MAX} tokens"),
            SubjectError::EmptyToken(at) => {
                write!(f, "empty token at byte {at}: a subject must not begin or end with '.' or hold '..'")
            }
            SubjectError::Character(at) => {
                write!(f, "space or control character at byte {at}: not allowed in a subject")
            }
            SubjectError::Wildcard => {
                write!(f, "'*' and '>' are wildcards: they can be subscribed to, not published on")
            }
            SubjectError::InnerTail => write!(f, "'>' matches all the rest and must be the last token"),
            SubjectError::Encoding => write!(f, "a subject must be UTF-8"),
        }
    }
}

impl std::error::Error for SubjectError {}

/// Returns a word with this byte in each position.
const fn repeat_byte(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Returns a word with the highest bit set in each byte that is 0 in `word`.
fn zeros(word: u64) -> u64 {
    !(((word & repeat_byte(0x7f)) + repeat_byte(0x7f)) | word | repeat_byte(0x7f))
}

/// Returns whether the bytes are a subject of the common kind that needs no further check: printable ASCII without `*`
/// and `>`. It checks eight bytes at a time, because every subject that arrives is checked here.
fn is_plain(bytes: &[u8]) -> bool {
    if bytes.is_empty() || SUBJECT_BYTES_MAX < bytes.len() {
        return false;
    }
    let (words, rest) = bytes.as_chunks::<8>();
    // The dots on both sides detect empty tokens: no two dots may be neighbours.
    let mut last = [b'x'; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = b'.';
    let (mut odd, mut dots, mut before) = (0, 0, 0x80);
    for word in words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word)) {
        let low = word & repeat_byte(0x7f);
        let is_graphic = (low + repeat_byte(0x7f - b' ')) & !(low + repeat_byte(1));
        let dot = zeros(word ^ repeat_byte(b'.'));
        odd |= (word | !is_graphic) & repeat_byte(0x80);
        odd |= zeros(word ^ repeat_byte(b'*')) | zeros(word ^ repeat_byte(b'>')) | dot & (dot << 8 | before);
        // One counter byte for each position, which counts at most the number of words.
        dots += dot >> 7;
        before = dot >> 56;
    }
    // The highest byte of the product is the sum of all counters; it includes the dot behind the last token.
    odd == 0 && dots.wrapping_mul(repeat_byte(1)) >> 56 <= SUBJECT_TOKENS_MAX as u64
}

/// Checks the common rules of subjects and patterns; `wildcards` allows `*` and `>`.
fn check(bytes: &[u8], wildcards: bool) -> Result<(), SubjectError> {
    if is_plain(bytes) { Ok(()) } else { check_tokens(bytes, wildcards) }
}

/// Checks any subject or pattern, token by token.
fn check_tokens(bytes: &[u8], wildcards: bool) -> Result<(), SubjectError> {
    if bytes.is_empty() {
        return Err(SubjectError::Empty);
    }
    if SUBJECT_BYTES_MAX < bytes.len() {
        return Err(SubjectError::TooLong(bytes.len()));
    }
    if !bytes.is_ascii() && std::str::from_utf8(bytes).is_err() {
        return Err(SubjectError::Encoding);
    }
    if let Some(at) = bytes.iter().position(|b| *b <= b' ' || *b == 0x7f) {
        return Err(SubjectError::Character(at));
    }
    let (mut at, mut tokens) = (0, 0);
    let mut tail = false;
    for token in bytes.split(|b| *b == b'.') {
        if token.is_empty() {
            return Err(SubjectError::EmptyToken(at));
        }
        if tail {
            return Err(SubjectError::InnerTail);
        }
        if token == b"*" || token == b">" {
            if !wildcards {
                return Err(SubjectError::Wildcard);
            }
            tail = token == b">";
        }
        at += token.len() + 1;
        tokens += 1;
    }
    if SUBJECT_TOKENS_MAX < tokens { Err(SubjectError::TooDeep) } else { Ok(()) }
}

impl Subject {
    /// Creates a subject from received bytes.
    ///
    /// # Errors
    /// Returns the reason for which the bytes are not a subject.
    pub fn from_bytes(bytes: Bytes) -> Result<Subject, SubjectError> {
        check(&bytes, false)?;
        Ok(Subject(bytes))
    }

    /// Returns the subject's bytes (UTF-8).
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the subject as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked on construction")
    }

    /// Returns whether both refer to the same bytes in memory. This comparison is fast. Equal subjects may differ in
    /// it.
    pub fn is_same(&self, other: &Subject) -> bool {
        self.0.as_ptr() == other.0.as_ptr() && self.0.len() == other.0.len()
    }

    /// Returns a copy that does not retain the memory of a whole datagram.
    pub fn detached(&self) -> Subject {
        Subject(Bytes::copy_from_slice(&self.0))
    }
}

impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Subject, SubjectError> {
        Subject::from_bytes(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A pattern of subjects, as in a subscription: `a.*.c` or `a.>`. Cloning copies a reference only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Bytes);

impl Pattern {
    /// Creates a pattern from received bytes.
    ///
    /// # Errors
    /// Returns the reason for which the bytes are not a pattern.
    pub fn from_bytes(bytes: Bytes) -> Result<Pattern, SubjectError> {
        check(&bytes, true)?;
        Ok(Pattern(bytes))
    }

    /// Returns the pattern as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked on construction")
    }

    /// Returns the pattern's tokens, in order.
    pub fn tokens(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'.')
    }

    /// Returns whether the pattern matches `subject`, with at most one comparison per token.
    pub fn matches(&self, subject: &Subject) -> bool {
        self.matches_text(subject.as_bytes())
    }

    /// Returns whether the pattern matches the subject with these bytes, which the caller has validated.
    pub fn matches_text(&self, subject: &[u8]) -> bool {
        let mut pattern = self.tokens();
        let mut subject = subject.split(|b| *b == b'.');
        loop {
            match (pattern.next(), subject.next()) {
                (Some(b">"), Some(_)) | (None, None) => return true,
                (Some(b"*"), Some(_)) => {}
                (Some(wanted), Some(token)) if wanted == token => {}
                _ => return false,
            }
        }
    }

    /// Returns whether a subject exists that both patterns match.
    pub fn intersects(&self, other: &Pattern) -> bool {
        let (mut own, mut others) = (self.tokens(), other.tokens());
        loop {
            match (own.next(), others.next()) {
                (Some(b">"), Some(_)) | (Some(_), Some(b">")) | (None, None) => return true,
                (Some(a), Some(b)) if a == b || a == b"*" || b == b"*" => {}
                _ => return false,
            }
        }
    }

    /// Returns the pattern of the subjects that both patterns match; `None` if there are none.
    pub fn intersection(&self, other: &Pattern) -> Option<Pattern> {
        let (mut own, mut others) = (self.tokens(), other.tokens());
        let mut common: Vec<&[u8]> = Vec::new();
        loop {
            match (own.next(), others.next()) {
                (None, None) => break,
                (Some(b">"), Some(token)) => {
                    common.push(token);
                    common.extend(others);
                    break;
                }
                (Some(token), Some(b">")) => {
                    common.push(token);
                    common.extend(own);
                    break;
                }
                (Some(b"*"), Some(token)) | (Some(token), Some(b"*")) => common.push(token),
                (Some(a), Some(b)) if a == b => common.push(a),
                _ => return None,
            }
        }
        // A text that is too long matches no subject, since none is as long.
        Pattern::from_bytes(common.join(&b'.').into()).ok()
    }
}

impl FromStr for Pattern {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Pattern, SubjectError> {
        Pattern::from_bytes(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<Subject> for Pattern {
    fn from(subject: Subject) -> Pattern {
        Pattern(subject.0)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_and_patterns_are_checked() {
        let deep = vec!["x"; SUBJECT_TOKENS_MAX + 1].join(".");
        let long = "x".repeat(SUBJECT_BYTES_MAX + 1);
        for (text, subject, pattern) in [
            ("a", None, None),
            ("RSF.REC.PAC.NaE", None, None),
            ("_RV.ERROR.SYSTEM", None, None),
            ("a*.b>c", None, None),
            ("grün.ß", None, None),
            ("a.*", Some(SubjectError::Wildcard), None),
            (">", Some(SubjectError::Wildcard), None),
            (">.a", Some(SubjectError::Wildcard), Some(SubjectError::InnerTail)),
            ("", Some(SubjectError::Empty), Some(SubjectError::Empty)),
            (".a", Some(SubjectError::EmptyToken(0)), Some(SubjectError::EmptyToken(0))),
            ("a..b", Some(SubjectError::EmptyToken(2)), Some(SubjectError::EmptyToken(2))),
            ("a.", Some(SubjectError::EmptyToken(2)), Some(SubjectError::EmptyToken(2))),
            ("a b", Some(SubjectError::Character(1)), Some(SubjectError::Character(1))),
            ("a\u{7f}", Some(SubjectError::Character(1)), Some(SubjectError::Character(1))),
            (&deep, Some(SubjectError::TooDeep), Some(SubjectError::TooDeep)),
            (&long, Some(SubjectError::TooLong(256)), Some(SubjectError::TooLong(256))),
        ] {
            assert_eq!(text.parse::<Subject>().err(), subject, "{text}");
            assert_eq!(text.parse::<Pattern>().err(), pattern, "{text}");
        }
        assert_eq!(Subject::from_bytes(Bytes::from_static(b"\xff")), Err(SubjectError::Encoding));
    }

    /// Checks that the fast check accepts nothing that the slow one rejects: all texts of up to six relevant letters,
    /// and depths.
    #[test]
    fn plain_text_is_a_subject() {
        let letters = *b"a.*> \x7f\xc3";
        for len in 0..=6 {
            for code in 0..letters.len().pow(len) {
                let text: Vec<u8> = (0..len).map(|n| letters[code / letters.len().pow(n) % letters.len()]).collect();
                assert!(!is_plain(&text) || check_tokens(&text, false).is_ok(), "{text:?}");
                let simple = text.iter().all(|b| matches!(b, b'a' | b'.'));
                assert_eq!(is_plain(&text), simple && check_tokens(&text, false).is_ok(), "{text:?}");
            }
        }
        // Subjects that span several of the checked words.
        let mut rng = crate::rng::Rng::new(1);
        for _ in 0..100_000 {
            let odd = rng.below(3);
            let text: Vec<u8> = (0..rng.below(40))
                .map(|_| match rng.below(24) {
                    0 if odd != 0 => letters[rng.below(letters.len() as u64) as usize],
                    1..5 => b'.',
                    _ => b'!' + (rng.below(94) as u8),
                })
                .collect();
            let simple = text.iter().all(|b| b.is_ascii_graphic() && !matches!(b, b'*' | b'>'));
            assert_eq!(is_plain(&text), simple && check_tokens(&text, false).is_ok(), "{text:?}");
        }
        for tokens in [31, 32, 33, 127, 128, 129] {
            let text = vec!["x"; tokens].join(".").into_bytes();
            assert_eq!(is_plain(&text), check_tokens(&text, false).is_ok(), "{tokens} tokens");
        }
        for bytes in [254, 255, 256] {
            let text = vec![b'x'; bytes];
            assert_eq!(is_plain(&text), check_tokens(&text, false).is_ok(), "{bytes} bytes");
        }
    }

    #[test]
    fn patterns_match_by_token() {
        for (pattern, subject, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.b.c", false),
            ("a.b.c", "a.b", false),
            ("a.*", "a.b", true),
            ("a.*", "a", false),
            ("a.*", "a.b.c", false),
            ("*.b", "a.b", true),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            (">", "a", true),
            ("*.>", "a", false),
            ("a*", "ab", false),
        ] {
            let (p, s): (Pattern, Subject) = (pattern.parse().unwrap(), subject.parse().unwrap());
            assert_eq!(p.matches(&s), expected, "{pattern} {subject}");
        }
    }
}
