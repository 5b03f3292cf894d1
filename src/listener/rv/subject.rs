//! Mapping of Rendezvous subjects to subjects of the bus and back.
//!
//! The elements of a subject are the tokens of its subject on the bus, escaped as Redis channels are: bytes that are not
//! UTF-8, spaces, control characters, and `*` and `>` alone. So a message sent to a wildcard subject is delivered to a
//! listen of the same text. A token that stands for an element which the protocol cannot express, such as an empty one,
//! is passed on as it is written.

use super::message::{ELEMENT_BYTES_MAX, RvDecodeError, RvRawField, RvValue, kind};
use crate::subject::{Pattern, Subject, SubjectError, channel};
use bytes::Bytes;

/// Prefix of point-to-point subjects, which a listen to `>` does not match.
pub const INBOX_PREFIX: &[u8] = b"_INBOX.";
/// Prefix of subjects whose messages stay with the clients of one daemon.
pub const LOCAL_PREFIX: &[u8] = b"_LOCAL.";
/// Prefix of advisories.
pub const ADVISORY_PREFIX: &[u8] = b"_RV.";

/// Returns the elements of a subject field as text with dots.
///
/// # Errors
/// The data is no subject.
pub fn text(data: &[u8]) -> Result<Vec<u8>, RvDecodeError> {
    let field = RvRawField { name: b"", id: None, kind: kind::SUBJECT, data, bytes: data };
    match field.value()? {
        RvValue::Subject(elements) => Ok(elements.join(&b'.')),
        _ => Err(RvDecodeError::Subject),
    }
}

/// Returns the subject of the bus for a text with dots.
///
/// # Errors
/// The text has an empty element or a NUL, or the subject is too long or too deep.
pub fn to_subject(text: &[u8]) -> Result<Subject, SubjectError> {
    check(text)?;
    channel::to_subject(text)
}

/// Returns the pattern of the bus for a listen to this text with dots. A whole element `*` matches one element, and a
/// last element `>` one or more.
///
/// # Errors
/// The same as of [`to_subject`].
pub fn to_pattern(text: &[u8]) -> Result<Pattern, SubjectError> {
    let subject = to_subject(text)?;
    let count = text.split(|byte| *byte == b'.').count();
    let token = |(index, (element, token)): (usize, (&[u8], &str))| match element {
        b"*" => "*".to_owned(),
        b">" if index + 1 == count => ">".to_owned(),
        _ => token.to_owned(),
    };
    let elements = text.split(|byte| *byte == b'.').zip(subject.as_str().split('.'));
    let tokens: Vec<String> = elements.enumerate().map(token).collect();
    Pattern::from_bytes(Bytes::from(tokens.join(".")))
}

/// Returns an error if the text has an element that is empty or has a NUL.
fn check(text: &[u8]) -> Result<(), SubjectError> {
    let mut at = 0;
    for element in text.split(|byte| *byte == b'.') {
        if element.is_empty() {
            return Err(if text.is_empty() { SubjectError::Empty } else { SubjectError::EmptyToken(at) });
        }
        if let Some(nul) = element.iter().position(|byte| *byte == 0) {
            return Err(SubjectError::Character(at + nul));
        }
        at += element.len() + 1;
    }
    Ok(())
}

/// Returns the text with dots for a subject of the bus.
pub fn of_subject(subject: &Subject) -> Vec<u8> {
    if !subject.as_bytes().contains(&b'%') {
        return subject.as_bytes().to_vec();
    }
    let decoded = channel::of_subject(subject);
    let tokens = subject.as_bytes().split(|byte| *byte == b'.').zip(decoded.split(|byte| *byte == b'.'));
    let element = |(token, element): (_, &'_ [u8])| -> Vec<u8> {
        let token: &[u8] = token;
        if element.is_empty() || element.contains(&0) { token.to_vec() } else { element.to_vec() }
    };
    tokens.map(element).collect::<Vec<_>>().join(&b'.')
}

/// Returns the elements of a text with dots, if a subject field can express them.
pub fn elements(text: &[u8]) -> Option<Vec<&[u8]>> {
    let elements: Vec<&[u8]> = text.split(|byte| *byte == b'.').collect();
    elements.iter().all(|element| (1..=ELEMENT_BYTES_MAX).contains(&element.len())).then_some(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip_through_subjects() {
        for (text, expected) in [
            (&b"RSF.REC.PAC.NaE"[..], "RSF.REC.PAC.NaE"),
            (b"_INBOX.7F000001.660F1FE5A2E8E.3", "_INBOX.7F000001.660F1FE5A2E8E.3"),
            (b"two words.\xff", "two%20words.%FF"),
            (b"a.*.>", "a.%2A.%3E"),
            (b"a*b.c>", "a*b.c>"),
            (b"x.>.y", "x.%3E.y"),
            (b"%.50%20", "%25.50%2520"),
        ] {
            let subject = to_subject(text).unwrap();
            assert_eq!(subject.as_str(), expected);
            assert_eq!(of_subject(&subject), text, "{expected}");
        }
    }

    #[test]
    fn inexpressible_texts_are_refused() {
        for text in [&b""[..], b".a", b"a..b", b"a.", b"a\0b", &[b'x'; 256], &b"a.".repeat(33)[..65]] {
            assert!(to_subject(text).is_err() && to_pattern(text).is_err(), "{}", text.escape_ascii());
        }
        assert!(to_subject(&b"a.".repeat(32)[..63]).is_ok());
    }

    #[test]
    fn listens_match_as_documented() {
        for (text, pattern, subject, expected) in [
            (&b"RUN.>"[..], "RUN.>", "RUN.a.b", true),
            (b"RUN.>", "RUN.>", "RUN", false),
            (b"a.*", "a.*", "a.%2A", true),
            (b"a.*", "a.*", "a.b", true),
            (b"x.>.y", "x.%3E.y", "x.a.y", false),
            (b"x.>.y", "x.%3E.y", "x.%3E.y", true),
            (b"a*b", "a*b", "aab", false),
            (b"f(x){1}|^$.*", "f(x){1}|^$.*", "f(x){1}|^$.y", true),
        ] {
            let found = to_pattern(text).unwrap();
            assert_eq!(found.as_str(), pattern);
            assert_eq!(found.matches(&subject.parse().unwrap()), expected, "{pattern} {subject}");
        }
    }

    #[test]
    fn foreign_subjects_remain_valid_elements() {
        for (subject, expected) in
            [("%.a", &b"%.a"[..]), ("a.%00b", b"a.%00b"), ("v1%2E2.x", b"v1%2E2.x"), ("a.b%20", b"a.b ")]
        {
            assert_eq!(of_subject(&subject.parse().unwrap()), expected);
            assert!(elements(expected).is_some());
        }
        assert_eq!(elements(&[b'x'; 254]), None);
    }
}
