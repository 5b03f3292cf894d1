//! Messages of programs as payloads and headers of the bus, and back.
//!
//! The payload is the data of the field `data`, byte for byte. Two headers hold the rest of the envelope:
//! `rv-data` has the type code of data that is no RVMSG, and `rv-envelope` has the further fields of the envelope in
//! base64. A payload without `rv-data` is passed to clients as the message it is, or as opaque bytes. The header
//! `mtype: A` marks an advisory.

use super::envelope::is_own_field;
use super::message::{HEAD_BYTES, MAGIC, RvRawField, fields, kind};
use super::settings::ENVELOPE_BYTES;
use crate::message::Headers;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Header with the type code of data that is no RVMSG.
const DATA_HEADER: &str = "rv-data";
/// Header with the further fields of the envelope.
const ENVELOPE_HEADER: &str = "rv-envelope";
/// Maximum size of that header in bytes. Each receiver decodes it.
const ENVELOPE_HEADER_BYTES_MAX: usize = ENVELOPE_BYTES.div_ceil(3) * 4;
/// Header that marks an advisory, with the value `A`.
const ADVISORY_HEADER: &str = "mtype";

/// Headers of a message, as an envelope needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RvHeaders {
    /// Type code of data that is no RVMSG.
    pub kind: Option<u8>,
    /// Further fields of the envelope.
    pub others: Vec<u8>,
    /// True if the message is an advisory.
    pub is_advisory: bool,
}

impl RvHeaders {
    /// Returns the headers for a message with this field `data` and these further fields.
    pub fn new(data: Option<&RvRawField<'_>>, others: Vec<u8>) -> RvHeaders {
        let kind = data.map(|data| data.kind).filter(|kind| *kind != kind::MESSAGE);
        // Bytes that are no message are opaque anyway.
        let is_implied = |kind: &u8| {
            let payload = data.map_or(&[][..], |data| data.data);
            *kind == kind::OPAQUE && !payload.is_empty() && !is_message(payload)
        };
        RvHeaders { kind: kind.filter(|kind| !is_implied(kind)), others, is_advisory: false }
    }

    /// Reads the headers of a message. Anything that an envelope cannot express is ignored.
    pub fn of(headers: &Headers) -> RvHeaders {
        let mut found = RvHeaders::default();
        for (key, value) in headers.iter() {
            match key {
                DATA_HEADER => found.kind = value.parse().ok().filter(|kind| *kind != kind::MESSAGE),
                ENVELOPE_HEADER if value.len() <= ENVELOPE_HEADER_BYTES_MAX => {
                    found.others = STANDARD_NO_PAD.decode(value).unwrap_or_default();
                }
                ADVISORY_HEADER => found.is_advisory |= value == "A",
                _ => {}
            }
        }
        if !are_fields(&found.others) {
            found.others.clear();
        }
        found
    }

    /// Returns the headers for the bus.
    pub fn to_headers(&self) -> Headers {
        let kind = self.kind.map(|kind| kind.to_string());
        let others = (!self.others.is_empty()).then(|| STANDARD_NO_PAD.encode(&self.others));
        let advisory = self.is_advisory.then(|| "A".to_owned());
        let pairs = [(ADVISORY_HEADER, &advisory), (DATA_HEADER, &kind), (ENVELOPE_HEADER, &others)];
        let pairs = pairs.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?)));
        Headers::from_pairs(pairs).expect("digits and base64 are valid in headers")
    }

    /// Returns the type code of the field `data` for this payload; `None` if the envelope has no such field.
    pub fn kind_of(&self, payload: &[u8]) -> Option<u8> {
        match self.kind {
            Some(kind) if is_data(kind, payload) => Some(kind),
            _ if is_message(payload) => Some(kind::MESSAGE),
            _ if payload.is_empty() => None,
            _ => Some(kind::OPAQUE),
        }
    }
}

/// Returns whether the bytes begin as a message of their length. Its fields are not examined.
#[inline]
pub fn is_message(payload: &[u8]) -> bool {
    let Some([a, b, c, d, magic @ ..]) = payload.first_chunk::<HEAD_BYTES>() else { return false };
    u32::from_be_bytes([*a, *b, *c, *d]) as usize == payload.len() && u32::from_be_bytes(*magic) == MAGIC
}

/// Returns whether the bytes are valid data of a field of this type. The elements of arrays of strings and messages are
/// not examined: each receiver would do that.
fn is_data(kind: u8, data: &[u8]) -> bool {
    if matches!(kind, kind::STRINGS | kind::MESSAGES) {
        return size_of::<u32>() <= data.len();
    }
    RvRawField { name: b"data", id: None, kind, data, bytes: data }.value().is_ok()
}

/// Returns whether the bytes are fields that an envelope may have beside its own.
fn are_fields(bytes: &[u8]) -> bool {
    let Some(length) = bytes.len().checked_add(HEAD_BYTES).and_then(|length| u32::try_from(length).ok()) else {
        return false;
    };
    let message = [&length.to_be_bytes(), &MAGIC.to_be_bytes()[..], bytes].concat();
    fields(&message).is_ok_and(|mut fields| fields.all(|field| field.is_ok_and(|field| !is_own_field(field.name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(kind: u8, data: &[u8]) -> RvRawField<'_> {
        RvRawField { name: b"data", id: None, kind, data, bytes: data }
    }

    #[test]
    fn types_of_data_round_trip() {
        let message = b"\0\0\0\x08\x99\x55\xee\xaa";
        for (kind, data) in [
            (kind::MESSAGE, &message[..]),
            (kind::OPAQUE, message),
            (kind::OPAQUE, b"text"),
            (kind::OPAQUE, b""),
            (kind::STRING, b"text\0"),
            (kind::STRING, b"{}\0"),
            (kind::INT, b"\0\0\0\x07"),
            (kind::SUBJECT, b"\x01\x03a\0"),
        ] {
            let headers = RvHeaders::new(Some(&field(kind, data)), Vec::new()).to_headers();
            assert_eq!(RvHeaders::of(&headers).kind_of(data), Some(kind), "{kind} {}", data.escape_ascii());
        }
        assert!(RvHeaders::new(Some(&field(kind::MESSAGE, message)), Vec::new()).to_headers().is_empty());
        assert!(RvHeaders::new(None, Vec::new()).to_headers().is_empty());
        assert_eq!(RvHeaders::default().kind_of(b""), None);
    }

    #[test]
    fn headers_that_lie_are_ignored() {
        let of = |key: &str, value: &str| RvHeaders::of(&Headers::from_pairs([(key, value)]).unwrap());
        assert_eq!(of(DATA_HEADER, "11").kind_of(b"abc"), Some(kind::OPAQUE));
        assert_eq!(of(DATA_HEADER, "1").kind_of(b"abc"), Some(kind::OPAQUE));
        assert_eq!(of(DATA_HEADER, "300").kind_of(b"abc"), Some(kind::OPAQUE));
        let other = STANDARD_NO_PAD.encode(b"\x02x\0\x09\x01\x01");
        assert_eq!(of(ENVELOPE_HEADER, &other).others, b"\x02x\0\x09\x01\x01");
        for bytes in [&b"\x02x\0\x09\x01"[..], b"\x05data\0\x09\x01\x01", b"\x04sub\0\x09\x01\x01"] {
            assert_eq!(of(ENVELOPE_HEADER, &STANDARD_NO_PAD.encode(bytes)).others, b"");
        }
        assert_eq!(of(ENVELOPE_HEADER, "??").others, b"");
    }
}
