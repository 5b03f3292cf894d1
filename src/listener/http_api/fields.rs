//! Headers of messages as header fields of HTTP.
//!
//! The field `Seqcast-Header-NAME` is the header `NAME` of the message, and `Content-Type` is the header of that name.
//! All other fields belong to HTTP. Names have no upper case in HTTP, so those of a published message are lower case.

use crate::message::{Delivery, HeaderError, Headers, Message};
use crate::subject::{Subject, SubjectError};
use bytes::Bytes;
use std::fmt;

/// Prefix of the fields that are headers of the message, in lower case.
pub const HEADER_PREFIX: &str = "seqcast-header-";
/// Field with the reply subject of a published message, in lower case.
pub const REPLY_FIELD: &str = "seqcast-reply";
/// Field with the type of the payload, in lower case.
const CONTENT_TYPE: &str = "content-type";
/// Maximum bytes of the headers of a reply. Clients refuse much longer heads.
pub const FIELDS_BYTES_MAX: usize = 16 << 10;
/// Type that programs such as curl write for any body. It says nothing about the payload.
const FORM: &str = "application/x-www-form-urlencoded";
/// Prefix of the names of headers that only the bus writes, in lower case.
const RESERVED_PREFIX: &str = "seqcast-";

/// Reason why the header fields of a request make no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldFault {
    /// The value of a field is not UTF-8.
    Encoding(String),
    /// A field is no header of a message.
    Header(HeaderError),
    /// The bus reserves the name of a header.
    Reserved(String),
    /// The reply subject is no subject.
    Reply(SubjectError),
    /// There are two reply subjects.
    TwoReplies,
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldFault::Encoding(name) => write!(f, "the value of {name} is not UTF-8"),
            FieldFault::Header(error) => error.fmt(f),
            FieldFault::Reserved(name) => write!(f, "only the bus writes headers such as {name}"),
            FieldFault::Reply(error) => write!(f, "{REPLY_FIELD}: {error}"),
            FieldFault::TwoReplies => write!(f, "{REPLY_FIELD}: a message has one reply subject"),
        }
    }
}

impl std::error::Error for FieldFault {}

/// Makes the message of a request with these header fields. The names are in lower case.
///
/// # Errors
/// A field that belongs to the message is invalid.
pub fn parse_message<'a>(
    subject: Subject,
    fields: impl Iterator<Item = (&'a str, &'a [u8])>,
    payload: Bytes,
) -> Result<Message, FieldFault> {
    let (mut pairs, mut reply) = (Vec::new(), None);
    for (name, value) in fields {
        let text = || std::str::from_utf8(value).map_err(|_| FieldFault::Encoding(name.to_owned()));
        if name == REPLY_FIELD {
            let parsed = text()?.parse().map_err(FieldFault::Reply)?;
            if reply.replace(parsed).is_some() {
                return Err(FieldFault::TwoReplies);
            }
        } else if let Some(header) = name.strip_prefix(HEADER_PREFIX) {
            if header.starts_with(RESERVED_PREFIX) {
                return Err(FieldFault::Reserved(header.to_owned()));
            }
            pairs.push((header, text()?));
        } else if name == CONTENT_TYPE && !value.starts_with(FORM.as_bytes()) {
            pairs.push((name, text()?));
        }
    }
    let headers = Headers::from_pairs(pairs).map_err(FieldFault::Header)?;
    Ok(Message { reply, headers, ..Message::new(subject, payload) })
}

/// Returns the type of a message's payload: that of its header, and otherwise text if it is UTF-8.
pub fn content_type(message: &Message) -> &str {
    match message.headers.field(CONTENT_TYPE) {
        Some(own) => own,
        None if std::str::from_utf8(&message.payload).is_ok() => "text/plain; charset=utf-8",
        None => "application/octet-stream",
    }
}

/// Returns the fields of the answer for a reply: its publisher, and its headers as far as they fit
/// [`FIELDS_BYTES_MAX`].
pub fn reply_fields(reply: &Delivery) -> Vec<(String, String)> {
    let mut fields = vec![("seqcast-epoch".to_owned(), reply.publisher.epoch.to_string())];
    if let Some(name) = &reply.publisher.name {
        fields.push(("seqcast-publisher".to_owned(), name.to_string()));
    }
    let mut room = FIELDS_BYTES_MAX;
    for (name, value) in reply.message.headers.iter() {
        let bytes = HEADER_PREFIX.len() + name.len() + value.len();
        if room < bytes {
            break;
        }
        if !name.eq_ignore_ascii_case(CONTENT_TYPE) {
            room -= bytes;
            fields.push((format!("{HEADER_PREFIX}{}", name.to_ascii_lowercase()), value.to_owned()));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Epoch, Publisher, Verdict};

    #[test]
    fn reply_has_its_headers_as_fields() {
        let publisher = Publisher { name: Some("B.test".parse().unwrap()), epoch: Epoch::new(0xabc).unwrap(), uid: 1 };
        let reply = |headers: &[(&str, &str)], payload: &'static [u8]| {
            let headers = Headers::from_pairs(headers.iter().copied()).unwrap();
            let message = Message { headers, ..Message::new("a".parse().unwrap(), payload) };
            Delivery::new(message, publisher.clone(), None, Verdict::Direct)
        };
        let json = reply(&[("Content-Type", "application/json"), ("Unit", "m/s")], b"{}");
        assert_eq!(content_type(&json.message), "application/json");
        let expected =
            [("seqcast-epoch", "0000000000000abc"), ("seqcast-publisher", "B.test"), ("seqcast-header-unit", "m/s")];
        let fields = reply_fields(&json);
        assert_eq!(fields.iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>(), expected);
        assert_eq!(content_type(&reply(&[], b"17.5").message), "text/plain; charset=utf-8");
        assert_eq!(content_type(&reply(&[], b"\xff").message), "application/octet-stream");
        let long = "x".repeat(FIELDS_BYTES_MAX / 2);
        assert_eq!(reply_fields(&reply(&[("a", &long), ("b", &long), ("c", "1")], b"")).len(), 3, "what fits");
    }

    fn parse(fields: &[(&str, &[u8])]) -> Result<Message, FieldFault> {
        parse_message("plant.a".parse().unwrap(), fields.iter().copied(), Bytes::from_static(b"17.5"))
    }

    #[test]
    fn fields_of_the_message_become_headers() {
        let message = parse(&[
            ("host", b"127.0.0.1"),
            ("content-type", b"text/plain"),
            ("user-agent", b"\xff"),
            ("seqcast-header-unit", b"m/s"),
            ("seqcast-header-note", "Grüße".as_bytes()),
            ("seqcast-reply", b"_INBOX.a"),
        ])
        .unwrap();
        let headers = vec![("content-type", "text/plain"), ("unit", "m/s"), ("note", "Grüße")];
        assert_eq!(message.headers.iter().collect::<Vec<_>>(), headers);
        assert_eq!(message.reply, Some("_INBOX.a".parse().unwrap()));
        let form: [(&str, &[u8]); 1] = [("content-type", b"application/x-www-form-urlencoded; charset=UTF-8")];
        assert!(parse(&form).unwrap().headers.is_empty(), "curl writes it for any body");
    }

    #[test]
    fn invalid_fields_are_refused() {
        let reply: (&str, &[u8]) = ("seqcast-reply", b"a");
        for (fields, expected) in [
            (vec![("seqcast-header-a", &b"\xff"[..])], FieldFault::Encoding("seqcast-header-a".into())),
            (vec![("seqcast-header-", b"x")], FieldFault::Header(HeaderError::Key(String::new()))),
            (vec![("seqcast-header-seqcast-seq", b"1")], FieldFault::Reserved("seqcast-seq".into())),
            (vec![("seqcast-reply", b"a..b")], FieldFault::Reply(SubjectError::EmptyToken(2))),
            (vec![("seqcast-reply", b"a.>")], FieldFault::Reply(SubjectError::Wildcard)),
            (vec![reply, reply], FieldFault::TwoReplies),
        ] {
            assert_eq!(parse(&fields), Err(expected), "{fields:?}");
        }
    }
}
