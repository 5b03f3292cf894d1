//! Payloads as clients of Hat write them: bytes with a type, or JSON that may hold numbers that JSON does not know.

use super::sbs::{Malformed, Reader, put_bytes, put_count, put_text};
use super::value::EventError;
use crate::event::model::{Json, Payload};
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;

/// The type name of a binary payload that holds a text which would be JSON, were it not for `NaN`, `Infinity` or `-Infinity`.
pub const LAX_JSON: &str = "json+nan";

/// What Python's `json` writes and reads that is no JSON. The longer of two that begin alike comes first.
const LITERALS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];

/// Reads a payload of at most so many bytes, name and all.
pub(super) fn read(reader: &mut Reader<'_>, bytes_max: usize) -> Result<Result<Payload, EventError>, Malformed> {
    if reader.choice(2)? == 0 {
        let (type_name, bytes) = (reader.text()?, reader.bytes()?);
        return Ok(binary(type_name, bytes, bytes_max));
    }
    let text = reader.text()?;
    Ok(json(text, bytes_max))
}

fn binary(type_name: &str, bytes: &[u8], bytes_max: usize) -> Result<Payload, EventError> {
    // A byte of the name is written as three at most.
    check_size(bytes.len() + 3 * type_name.len(), bytes_max)?;
    if type_name == LAX_JSON {
        return Err(EventError::Reserved);
    }
    Ok(Payload::Binary { type_name: type_name.into(), bytes: Bytes::copy_from_slice(bytes) })
}

fn json(text: &str, bytes_max: usize) -> Result<Payload, EventError> {
    check_size(text.len(), bytes_max)?;
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    match Json::from_bytes(bytes.clone()) {
        Ok(json) => Ok(Payload::Json(json)),
        Err(_) if is_lax(text.as_bytes()) => Ok(Payload::Binary { type_name: LAX_JSON.into(), bytes }),
        Err(error) => Err(EventError::Json(error)),
    }
}

fn check_size(bytes: usize, bytes_max: usize) -> Result<(), EventError> {
    if bytes_max < bytes { Err(EventError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
}

/// Appends a payload.
pub(super) fn put(out: &mut BytesMut, payload: &Payload) {
    match payload {
        Payload::Binary { type_name, bytes } if &**type_name != LAX_JSON || !is_lax(bytes) => {
            put_count(out, 0);
            put_text(out, type_name);
            put_bytes(out, bytes);
        }
        payload => {
            put_count(out, 1);
            put_bytes(out, payload.bytes());
        }
    }
}

/// Whether it would be JSON if `null` stood in place of each of the literals that JSON does not know, and is none as it is.
fn is_lax(text: &[u8]) -> bool {
    let is_json = |text: Cow<'_, [u8]>| Json::from_bytes(Bytes::from(text.into_owned())).is_ok();
    match replaced(text) {
        Cow::Borrowed(_) => false,
        text => is_json(text),
    }
}

/// The text with `null` in place of the literals, which it may be without; those in strings stay.
fn replaced(text: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let (mut at, mut copied, mut is_string) = (0, 0, false);
    while at < text.len() {
        let rest = &text[at..];
        at += match (rest[0], is_string) {
            (b'"', _) => {
                is_string = !is_string;
                1
            }
            (b'\\', true) => 2,
            (b'-' | b'I' | b'N', false) => match LITERALS.iter().find(|literal| rest.starts_with(literal)) {
                Some(literal) => {
                    out.extend_from_slice(&text[copied..at]);
                    out.extend_from_slice(b"null");
                    copied = at + literal.len();
                    literal.len()
                }
                None => 1,
            },
            _ => 1,
        };
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(&text[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(payload: &Payload) -> Result<Payload, EventError> {
        let mut out = BytesMut::new();
        put(&mut out, payload);
        let mut reader = Reader::new(&out);
        let read = read(&mut reader, 100).unwrap();
        reader.end().unwrap();
        read
    }

    #[test]
    fn json_with_numbers_that_json_does_not_know_comes_back_as_it_was() {
        for text in ["NaN", "[1, NaN]", " -Infinity ", "{\"NaN\": Infinity}", "[\"\\\"\", NaN, \"\\\\\", NaN]"] {
            let expected = Payload::Binary { type_name: LAX_JSON.into(), bytes: text.into() };
            assert_eq!(json(text, 100), Ok(expected.clone()));
            let mut out = BytesMut::new();
            put(&mut out, &expected);
            assert_eq!(out[..2], [0x81, 0x80 + text.len() as u8], "{text}: written as JSON");
            assert_eq!(read_back(&expected), Ok(expected));
        }
        for text in ["\"NaN\"", "[\"\\\"NaN\", 1]", "{\"a\": \"-Infinity\"}"] {
            assert!(matches!(json(text, 100), Ok(Payload::Json(_))), "{text}");
        }
        for text in ["", "nan", "1NaN", "-NaN", "+Infinity", "NaNNaN", "{NaN: 1}", "NaN \"", "[NaN", "Inf", "\"\\"] {
            assert!(matches!(json(text, 100), Err(EventError::Json(_))), "{text}");
        }
    }

    #[test]
    fn what_only_bears_the_name_of_such_json_stays_binary() {
        for bytes in [&b"{}"[..], b"NaN NaN", b"\xff"] {
            let payload = Payload::Binary { type_name: LAX_JSON.into(), bytes: bytes.into() };
            assert_eq!(read_back(&payload), Err(EventError::Reserved), "{bytes:?}");
        }
    }

    #[test]
    fn payloads_have_a_limit() {
        assert!(json(&"1".repeat(100), 100).is_ok());
        let error = EventError::TooLarge { bytes: 101, bytes_max: 100 };
        assert_eq!(json(&"1".repeat(101), 100), Err(error.clone()));
        assert!(binary("n", &[0; 97], 100).is_ok());
        assert_eq!(binary("n", &[0; 98], 100), Err(error));
    }
}
