//! Parser for inline commands: a line of words between spaces, with quotation marks as in a shell.

use super::command::ArgumentRange;
use super::fault::RedisFault;

/// Splits a line into words. Appends their bytes to `bytes` and their ranges to `spans`. Between `"` it decodes the
/// escapes `\n`, `\r`, `\t`, `\b`, `\a` and `\x41`; between `'` only `\'`.
pub(super) fn split(line: &[u8], bytes: &mut Vec<u8>, spans: &mut Vec<ArgumentRange>) -> Result<(), RedisFault> {
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok(());
        }
        let start = bytes.len();
        rest = argument(rest, bytes)?;
        spans.push(ArgumentRange::new(start, bytes.len()));
    }
}

/// Appends the argument at the start and returns the rest.
fn argument<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], RedisFault> {
    while let [first, tail @ ..] = rest {
        match first {
            b'"' | b'\'' => {
                rest = quoted(*first, tail, bytes)?;
                let ends = rest.first().is_none_or(|byte| byte.is_ascii_whitespace());
                return if ends { Ok(rest) } else { Err(RedisFault::Quotes) };
            }
            byte if byte.is_ascii_whitespace() => return Ok(rest),
            byte => bytes.push(*byte),
        }
        rest = tail;
    }
    Ok(rest)
}

/// Appends the bytes before the closing mark and returns the rest after it.
fn quoted<'a>(mark: u8, mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], RedisFault> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    loop {
        let (byte, tail) = match (mark, rest) {
            (_, []) => return Err(RedisFault::Quotes),
            (_, [byte, tail @ ..]) if *byte == mark => return Ok(tail),
            (b'\'', [b'\\', b'\'', tail @ ..]) => (b'\'', tail),
            (b'"', [b'\\', byte, tail @ ..]) => match (byte, tail) {
                (b'x', [high, low, further @ ..]) => match (digit(*high), digit(*low)) {
                    (Some(high), Some(low)) => (high << 4 | low, further),
                    _ => (b'x', tail),
                },
                (b'n', _) => (b'\n', tail),
                (b'r', _) => (b'\r', tail),
                (b't', _) => (b'\t', tail),
                (b'b', _) => (8, tail),
                (b'a', _) => (7, tail),
                _ => (*byte, tail),
            },
            (_, [byte, tail @ ..]) => (*byte, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
}
