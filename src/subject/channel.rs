//! Mapping of Redis channels to subjects and back. The same rule maps all other names that are not subjects.
//!
//! A channel consists of any bytes; dots separate its tokens, as in a subject. Bytes that a token of a subject cannot
//! hold are written as `%` and two capital hexadecimal digits. These are control characters, spaces, bytes that are not
//! UTF-8, `*` and `>` that would be a whole token, and a `%` that would begin an escape. An empty token is written as
//! `%` alone. The reverse mapping decodes only these escapes; all other bytes are literal. So a channel has the same
//! number of tokens as its subject, and channels that begin with the same whole tokens have subjects that do too.
//! `docs/subjects.md` shows this mapping for all kinds of names.

use super::{Pattern, Subject, SubjectError};
use bytes::Bytes;
use std::borrow::Cow;

/// Returns the subject of the channel.
///
/// # Errors
/// The subject of the channel is too long or too deep.
pub fn to_subject(channel: &[u8]) -> Result<Subject, SubjectError> {
    Subject::from_bytes(Bytes::from(escape_tokens(channel.split(|byte| *byte == b'.'), IS_ESCAPED)))
}

/// Returns a pattern that matches the subjects of all channels that begin with these bytes. It also matches those of
/// other channels that begin with the same whole tokens.
///
/// # Errors
/// No channel with this prefix has a subject: it would be too long or too deep.
pub fn to_pattern(prefix: &[u8]) -> Result<Pattern, SubjectError> {
    let Some(last) = prefix.iter().rposition(|byte| *byte == b'.') else {
        return Pattern::from_bytes(Bytes::from_static(b">"));
    };
    let mut text = escape_tokens(prefix[..last].split(|byte| *byte == b'.'), IS_ESCAPED);
    text.extend_from_slice(b".>");
    Pattern::from_bytes(Bytes::from(text))
}

/// Returns whether this byte may be escaped in the subject of a channel.
const IS_ESCAPED: fn(u8) -> bool = |byte| byte != b'.' && is_escaped(byte);

/// Returns whether this byte may be escaped in any subject.
pub(super) fn is_escaped(byte: u8) -> bool {
    byte <= b' ' || 0x7f <= byte || matches!(byte, b'%' | b'.' | b'*' | b'>')
}

/// Returns the text of the subject with these tokens. A `%` stays literal unless it would begin an escape of a byte for
/// which `is_escaped` holds.
pub(super) fn escape_tokens<'a>(tokens: impl Iterator<Item = &'a [u8]>, is_escaped: fn(u8) -> bool) -> Vec<u8> {
    let mut text = Vec::new();
    for (index, token) in tokens.enumerate() {
        if 0 < index {
            text.push(b'.');
        }
        put_token(&mut text, token, is_escaped);
    }
    text
}

/// Appends the escaped form of a token.
pub(super) fn put_token(text: &mut Vec<u8>, token: &[u8], is_escaped: fn(u8) -> bool) {
    match token {
        b"" => text.push(b'%'),
        [byte @ (b'*' | b'>' | b'%')] => put_escaped(text, *byte),
        token => put_bytes(text, token, is_escaped),
    }
}

/// Appends the escaped form of the bytes of a token.
fn put_bytes(text: &mut Vec<u8>, token: &[u8], is_escaped: fn(u8) -> bool) {
    let mut at = 0;
    for chunk in token.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            at += 1;
            match byte {
                b'%' if decode_escape(&token[at..]).is_some_and(is_escaped) => put_escaped(text, byte),
                // A name whose tokens are not separated by dots may have a dot in a token.
                b'.' | ..=b' ' | 0x7f => put_escaped(text, byte),
                _ => text.push(byte),
            }
        }
        chunk.invalid().iter().for_each(|byte| put_escaped(text, *byte));
        at += chunk.invalid().len();
    }
}

/// Writes the byte as `%` and two capital hexadecimal digits.
pub(crate) fn put_escaped(text: &mut Vec<u8>, byte: u8) {
    let digit = |digit: u8| if digit < 10 { b'0' + digit } else { b'A' + digit - 10 };
    text.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
}

/// Returns the channel of the subject.
pub fn of_subject(subject: &Subject) -> Cow<'_, [u8]> {
    let text = subject.as_bytes();
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    for (index, token) in text.split(|byte| *byte == b'.').enumerate() {
        if 0 < index {
            out.push(b'.');
        }
        put_unescaped(&mut out, token, IS_ESCAPED);
    }
    Cow::Owned(out)
}

/// Appends the bytes that a token of a subject encodes. Only escapes of bytes for which `is_escaped` holds are decoded.
pub(super) fn put_unescaped(out: &mut Vec<u8>, token: &[u8], is_escaped: fn(u8) -> bool) {
    let mut rest = if token == b"%" { b"" } else { token };
    while let [first, behind @ ..] = rest {
        let byte = if *first == b'%' { decode_escape(behind).filter(|byte| is_escaped(*byte)) } else { None };
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
}

/// Decodes the two hexadecimal digits at the start of the text, which follow a `%`.
pub(crate) fn decode_escape(text: &[u8]) -> Option<u8> {
    let digit = |digit: &u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    Some(digit(text.first()?)? << 4 | digit(text.get(1)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::subject::event_type::{self, EventType, TypePattern};
    use crate::subject::glob::Glob;

    /// Returns all texts of `len` of these letters.
    fn texts(letters: &[u8], len: u32) -> impl Iterator<Item = Vec<u8>> {
        let text = move |code: usize| (0..len).map(|n| letters[code / letters.len().pow(n) % letters.len()]).collect();
        (0..letters.len().pow(len)).map(text)
    }

    #[test]
    fn channels_round_trip_through_distinct_subjects() {
        for len in 0..=6 {
            for text in texts(b"a.*% 2A\xff", len) {
                let subject = to_subject(&text).unwrap();
                assert_eq!(of_subject(&subject), text, "{subject}");
                let tokens = |text: &[u8]| text.split(|byte| *byte == b'.').count();
                assert_eq!(tokens(&text), tokens(subject.as_bytes()), "{subject}");
            }
        }
        let mut rng = Rng::new(5);
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..rng.below(12)).map(|_| rng.below(256) as u8).collect();
            assert_eq!(of_subject(&to_subject(&text).unwrap()), text);
        }
    }

    #[test]
    fn channel_of_plain_subject_is_the_subject() {
        for text in ["a", "RSF.REC.PAC.NaE", "grün.ß", "a*.b>c", "100%", "a%zz.%2", "%41", "a%2Eb"] {
            let subject: Subject = text.parse().unwrap();
            assert_eq!(
                (of_subject(&subject).as_ref(), to_subject(text.as_bytes())),
                (text.as_bytes(), Ok(subject.clone()))
            );
        }
    }

    /// Checks that a pattern made from the prefix of a glob misses nothing that the glob matches.
    #[test]
    fn prefix_pattern_matches_every_channel_of_glob() {
        let letters = *b"a.*% \xff";
        for prefix_len in 0..=3 {
            for prefix in texts(&letters, prefix_len) {
                let pattern = to_pattern(&prefix).unwrap();
                for len in 0..=2 {
                    for rest in texts(&letters, len) {
                        let channel = [&prefix[..], &rest].concat();
                        let subject = to_subject(&channel).unwrap();
                        assert!(pattern.matches(&subject), "{prefix:?} {channel:?}: {pattern} {subject}");
                    }
                }
            }
        }
        let glob = Glob::new(b"news.eu.*").unwrap();
        assert_eq!(to_pattern(&glob.prefix()).unwrap().as_str(), "news.eu.>");
    }

    /// Returns the cells of each row of the page's tables that has `cells` of them.
    fn rows(cells: usize) -> Vec<Vec<&'static str>> {
        let page = include_str!("../../docs/subjects.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'));
        let rows = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
        rows.filter(|row| row.len() == cells && row.iter().any(|cell| cell.contains('`'))).collect()
    }

    /// Returns the texts between back-quotes in a cell.
    fn names(cell: &str) -> impl Iterator<Item = &str> {
        cell.split('`').skip(1).step_by(2)
    }

    #[test]
    fn names_are_as_the_page_says() {
        let bytes = |text: &str| match text {
            r"\xff\x00" => vec![0xff, 0],
            text => text.as_bytes().to_vec(),
        };
        let rows = rows(3);
        assert_eq!(rows.len(), 20);
        for row in rows {
            let subject: Subject = names(row[2]).next().unwrap().parse().unwrap();
            let event_type = names(row[1]).next();
            match names(row[0]).next().map(bytes) {
                Some(channel) => {
                    assert_eq!(
                        (to_subject(&channel).as_ref(), of_subject(&subject).as_ref()),
                        (Ok(&subject), &channel[..])
                    );
                }
                // Its channel is another name, and the round trip succeeds all the same.
                None => assert_eq!(to_subject(&of_subject(&subject)), Ok(subject.clone())),
            }
            if let Some(event_type) = event_type {
                assert_eq!(event_type::to_subject(event_type).as_ref(), Ok(&subject));
                assert_eq!(event_type::of_subject(&subject).as_deref(), Some(event_type));
            }
            assert_eq!(EventType::of_subject(&subject), event_type.map(|text| text.parse().unwrap()), "{subject}");
        }
    }

    #[test]
    fn patterns_match_as_the_page_says() {
        let rows = rows(4);
        assert_eq!(rows.len(), 17);
        for row in rows {
            let text = names(row[1]).next().unwrap();
            let matches = |name: &str| {
                let subject: Subject = name.parse().unwrap();
                if row[0].starts_with("NATS") {
                    return text.parse::<Pattern>().unwrap().matches(&subject);
                }
                if row[0] == "event types" {
                    let pattern: TypePattern = text.parse().unwrap();
                    return EventType::of_subject(&subject).is_some_and(|event_type| pattern.matches(&event_type));
                }
                assert_eq!(row[0], "Redis");
                let glob = Glob::new(text.as_bytes()).unwrap();
                to_pattern(&glob.prefix()).unwrap().matches(&subject) && glob.matches(&of_subject(&subject))
            };
            names(row[2]).for_each(|name| assert!(matches(name), "{text} {name}"));
            names(row[3]).for_each(|name| assert!(!matches(name), "{text} {name}"));
        }
    }

    #[test]
    fn limits_are_those_of_subjects() {
        assert_eq!(to_subject(&[b'x'; 256]), Err(SubjectError::TooLong(256)));
        assert_eq!(to_subject(&[b' '; 86]), Err(SubjectError::TooLong(258)));
        assert_eq!(to_subject(&[b'.'; 32]), Err(SubjectError::TooDeep));
        assert_eq!(to_subject(b"").unwrap().as_str(), "%");
    }
}
