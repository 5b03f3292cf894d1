//! Globs, the third pattern syntax: how Redis clients name many channels at once.
//!
//! `*` is any run of bytes, dots too; `?` one byte; `[abc]`, `[a-z]` and `[^a]` one byte of a set; `\` takes away the meaning
//! of the byte after it. A set that is not closed goes to the end of the text. Matching never goes back further than to the last
//! `*`, so it takes at most as many steps as text and glob have bytes, multiplied.

use std::fmt;

/// The longest glob in bytes.
pub const GLOB_BYTES_MAX: usize = 255;

/// One place of a glob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Piece {
    /// `*`.
    Run,
    /// `?`.
    Any,
    /// This byte.
    Byte(u8),
    /// One byte of a set: a bit for each.
    Set(Box<[u64; 4]>),
}

/// A glob, ready to match. Cloning copies it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Glob {
    text: Box<[u8]>,
    pieces: Box<[Piece]>,
}

/// A text that is longer than [`GLOB_BYTES_MAX`]; holds its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobTooLong(pub usize);

impl fmt::Display for GlobTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a glob has at most {GLOB_BYTES_MAX} bytes, this one has {}", self.0)
    }
}

impl std::error::Error for GlobTooLong {}

impl Glob {
    /// Takes any bytes of at most [`GLOB_BYTES_MAX`]; each of them means something.
    ///
    /// # Errors
    /// The text is too long.
    pub fn new(text: &[u8]) -> Result<Glob, GlobTooLong> {
        if GLOB_BYTES_MAX < text.len() {
            return Err(GlobTooLong(text.len()));
        }
        let mut pieces = Vec::new();
        let mut rest = text.iter().copied();
        while let Some(byte) = rest.next() {
            match byte {
                b'*' if pieces.last() == Some(&Piece::Run) => {}
                b'*' => pieces.push(Piece::Run),
                b'?' => pieces.push(Piece::Any),
                b'[' => pieces.push(set(&mut rest)),
                // At the end it stands for itself.
                b'\\' => pieces.push(Piece::Byte(rest.next().unwrap_or(b'\\'))),
                byte => pieces.push(Piece::Byte(byte)),
            }
        }
        Ok(Glob { text: text.into(), pieces: pieces.into() })
    }

    /// The glob as it was given.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The bytes with which every text begins that matches.
    pub fn prefix(&self) -> Vec<u8> {
        let literal = |piece: &Piece| match piece {
            Piece::Byte(byte) => Some(*byte),
            _ => None,
        };
        self.pieces.iter().map_while(literal).collect()
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_counted(text).0
    }

    /// The same, with the number of steps it took.
    fn matches_counted(&self, text: &[u8]) -> (bool, usize) {
        let (mut at, mut piece, mut steps) = (0, 0, 0);
        // Behind the last `*`, and where in the text it ends for now.
        let mut back: Option<(usize, usize)> = None;
        loop {
            steps += 1;
            let goes_on = match (self.pieces.get(piece), text.get(at)) {
                (None, None) => return (true, steps),
                (Some(Piece::Run), _) => {
                    back = Some((piece + 1, at));
                    piece += 1;
                    continue;
                }
                (Some(Piece::Any), Some(_)) => true,
                (Some(Piece::Byte(wanted)), Some(byte)) => wanted == byte,
                (Some(Piece::Set(set)), Some(byte)) => has(set, *byte),
                (None, Some(_)) | (Some(_), None) => false,
            };
            match (goes_on, &mut back) {
                (true, _) => {
                    at += 1;
                    piece += 1;
                }
                (false, Some((behind, end))) if *end < text.len() => {
                    *end += 1;
                    (piece, at) = (*behind, *end);
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

/// The set that begins behind a `[`.
fn set(rest: &mut (impl Iterator<Item = u8> + Clone)) -> Piece {
    let mut set = [0; 4];
    let is_negated = rest.clone().next() == Some(b'^');
    if is_negated {
        rest.next();
    }
    while let Some(first) = rest.next() {
        let first = match first {
            b']' => break,
            b'\\' => rest.next().unwrap_or(b'\\'),
            byte => byte,
        };
        let mut ahead = rest.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some(b'-'), Some(last)) => {
                *rest = ahead;
                last
            }
            _ => first,
        };
        (first.min(last)..=first.max(last)).for_each(|byte| set[usize::from(byte / 64)] |= 1 << (byte % 64));
    }
    Piece::Set(Box::new(if is_negated { set.map(|word: u64| !word) } else { set }))
}

fn has(set: &[u64; 4], byte: u8) -> bool {
    set[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
}
