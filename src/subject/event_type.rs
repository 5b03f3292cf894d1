//! Event types of seed 004 as subjects and back: `a/b/c` travels on `a.b.c`, escaped by the rule of
//! [`channel`](super::channel), and a dot in a subtype as `%2E`.

use super::channel::{is_escaped, put_unescaped, text};
use super::{Subject, SubjectError};
use bytes::Bytes;

/// The subject on which events of the type travel; subtypes are separated by `/`.
///
/// # Errors
/// The type is as a subject too long or too deep.
pub fn to_subject(event_type: &str) -> Result<Subject, SubjectError> {
    Subject::from_bytes(Bytes::from(text(event_type.as_bytes().split(|byte| *byte == b'/'), is_escaped)))
}

/// The type whose events travel on the subject; `None` if no type has it: it stands for bytes that are no UTF-8, or it holds a `/`.
pub fn of_subject(subject: &Subject) -> Option<String> {
    let mut out = Vec::with_capacity(subject.as_bytes().len());
    for (index, token) in subject.as_bytes().split(|byte| *byte == b'.').enumerate() {
        if token.contains(&b'/') {
            return None;
        }
        if 0 < index {
            out.push(b'/');
        }
        put_unescaped(&mut out, token, is_escaped);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_comes_back() {
        let letters = ['a', '/', '.', '%', '2', 'E', ' ', 'ß'];
        for len in 0..=5 {
            for code in 0..letters.len().pow(len) {
                let text: String = (0..len).map(|n| letters[code / letters.len().pow(n) % letters.len()]).collect();
                let subject = to_subject(&text).unwrap();
                assert_eq!(of_subject(&subject).as_ref(), Some(&text), "{subject}");
            }
        }
        for subject in ["a/b", "%FF"] {
            assert_eq!(of_subject(&subject.parse().unwrap()), None, "{subject}");
        }
    }
}
