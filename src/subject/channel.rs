//! Channels of Redis clients as subjects and back: one rule for all names that are not subjects.
//!
//! A channel is any bytes. What a subject cannot hold stands in it as `%` and two capital hexadecimal digits: control characters,
//! spaces, bytes that are no UTF-8, a dot that would leave a token empty, `*` and `>` that would be a whole token, and `%`
//! itself. Back, only what this rule writes is undone; everything else stands for itself.

use super::{Subject, SubjectError};
use bytes::Bytes;
use std::borrow::Cow;

/// The subject on which messages of the channel travel.
///
/// # Errors
/// The channel is empty, or as a subject too long or too deep.
pub fn to_subject(channel: &[u8]) -> Result<Subject, SubjectError> {
    let mut text = Vec::with_capacity(channel.len());
    // Where the token that is being written begins.
    let mut token = 0;
    for chunk in channel.utf8_chunks() {
        for (at, byte) in chunk.valid().bytes().enumerate() {
            let is_last =
                at + 1 == chunk.valid().len() && chunk.invalid().is_empty() && ends_with(channel, chunk.valid());
            match byte {
                b'.' if token < text.len() && !is_last => {
                    close_token(&mut text, token);
                    text.push(byte);
                    token = text.len();
                }
                b'.' | b'%' | ..=b' ' | 0x7f => put_escaped(&mut text, byte),
                _ => text.push(byte),
            }
        }
        chunk.invalid().iter().for_each(|byte| put_escaped(&mut text, *byte));
    }
    close_token(&mut text, token);
    Subject::from_bytes(Bytes::from(text))
}

/// Whether this part of the channel is its end.
fn ends_with(channel: &[u8], part: &str) -> bool {
    std::ptr::eq(channel.as_ptr_range().end, part.as_bytes().as_ptr_range().end)
}

/// A token that would be a wildcard is none.
fn close_token(text: &mut Vec<u8>, token: usize) {
    if let [byte @ (b'*' | b'>')] = text[token..] {
        text.truncate(token);
        put_escaped(text, byte);
    }
}

fn put_escaped(text: &mut Vec<u8>, byte: u8) {
    let digit = |digit: u8| if digit < 10 { b'0' + digit } else { b'A' + digit - 10 };
    text.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
}

/// The channel whose messages travel on the subject.
pub fn of_subject(subject: &Subject) -> Cow<'_, [u8]> {
    let text = subject.as_bytes();
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, behind @ ..] = rest {
        let undone = match (byte, behind) {
            (b'%', [high, low, behind @ ..]) => unescaped(*high, *low).map(|byte| (byte, behind)),
            _ => None,
        };
        let (byte, behind) = undone.unwrap_or((*byte, behind));
        out.push(byte);
        rest = behind;
    }
    Cow::Owned(out)
}

/// The byte that these digits stand for, if it is one that is written with digits.
fn unescaped(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    let byte = digit(high)? << 4 | digit(low)?;
    (byte <= b' ' || 0x7f <= byte || matches!(byte, b'%' | b'.' | b'*' | b'>')).then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_channel_comes_back() {
        let letters = *b"a.*>% \xff";
        for len in 1..=5 {
            for code in 0..letters.len().pow(len) {
                let text: Vec<u8> = (0..len).map(|n| letters[code / letters.len().pow(n) % letters.len()]).collect();
                let subject = to_subject(&text).unwrap();
                assert_eq!(of_subject(&subject), text, "{subject}");
            }
        }
    }
}
