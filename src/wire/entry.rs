//! Encoding of a message in a run, and in the records of the history: payload bytes (varint), meta part, payload.

#![expect(clippy::indexing_slicing, reason = "only entries that this module wrote or the decoder checked are read")]

use crate::message::MessageRef;
use bytes::BufMut;

/// Maximum length of a payload or header block that a variable-length number can express: 2^28 - 1 bytes.
pub(crate) const VARINT_MAX: usize = (1 << 28) - 1;

/// A borrowed view of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryParts<'a> {
    /// The reply subject; empty if there is none.
    pub(crate) reply: &'a [u8],
    /// The header fields.
    pub(crate) headers: &'a [u8],
    /// The content.
    pub(crate) payload: &'a [u8],
}

/// Returns the entry that begins at byte `at`, and the start of the next one.
///
/// # Panics
/// Panics unless [`put`] wrote the entry there, or the decoder has checked it.
#[inline]
pub(crate) fn parts(bytes: &[u8], at: usize, meta: bool) -> (EntryParts<'_>, usize) {
    let (payload_bytes, mut at) = varint(bytes, at);
    let (mut reply, mut headers) = (&[][..], &[][..]);
    if meta {
        let end = at + 1 + usize::from(bytes[at]);
        reply = &bytes[at + 1..end];
        let (headers_bytes, start) = varint(bytes, end);
        at = start + headers_bytes;
        headers = &bytes[start..at];
    }
    let end = at + payload_bytes;
    (EntryParts { reply, headers, payload: &bytes[at..end] }, end)
}

/// Returns the variable-length number at `at`, and its end.
#[inline]
fn varint(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let mut value = usize::from(bytes[at] & 0x7f);
    let mut shift = 7;
    while 0x7f < bytes[at] {
        at += 1;
        value |= usize::from(bytes[at] & 0x7f) << shift;
        shift += 7;
    }
    (value, at + 1)
}

/// Returns the bytes of the message as an entry.
#[inline]
pub(crate) fn bytes_of(message: MessageRef<'_>) -> usize {
    let payload = message.payload.len();
    varint_bytes(payload) + meta_bytes(message) + payload
}

/// Returns the bytes of the meta part; 0 if there is none.
#[inline]
pub(crate) fn meta_bytes(message: MessageRef<'_>) -> usize {
    if !message.has_meta() {
        return 0;
    }
    let headers = message.headers.len();
    1 + message.reply.map_or(0, |reply| reply.as_bytes().len()) + varint_bytes(headers) + headers
}

/// Writes the message as an entry.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, message: MessageRef<'_>) {
    put_varint(out, message.payload.len());
    if message.has_meta() {
        put_meta(out, message);
    }
    out.extend_from_slice(message.payload);
}

/// Writes the meta part.
pub(crate) fn put_meta(out: &mut impl BufMut, message: MessageRef<'_>) {
    let reply = message.reply.map_or(&[][..], |reply| reply.as_bytes());
    out.put_u8(u8::try_from(reply.len()).expect("subjects have at most 255 bytes"));
    out.put_slice(reply);
    put_varint(out, message.headers.len());
    out.put_slice(message.headers);
}

/// Writes a variable-length number; at most 28 bits.
#[inline]
pub(crate) fn put_varint(out: &mut impl BufMut, mut value: usize) {
    assert!(value <= VARINT_MAX, "lengths have at most 28 bits");
    while 0x7f < value {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Returns the bytes of a variable-length number.
#[inline]
pub(crate) fn varint_bytes(value: usize) -> usize {
    1 + usize::from(0x7f < value) + usize::from(0x3fff < value) + usize::from(0x1f_ffff < value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Headers, Message};

    #[test]
    fn encoded_entry_decodes_to_the_same() {
        let mut bytes = Vec::new();
        let bare = |size: usize| Message::new("a".parse().unwrap(), vec![size as u8; size]);
        let mut full = bare(300);
        full.reply = Some("r.r".parse().unwrap());
        full.headers = Headers::from_pairs([("k", &*"v".repeat(200))]).unwrap();
        let messages = [bare(0), bare(127), bare(128), bare(20_000), full, bare(1)];
        let mut sizes = Vec::new();
        for message in &messages {
            let before = bytes.len();
            put(&mut bytes, message.into());
            sizes.push(bytes.len() - before);
        }
        assert_eq!(sizes, messages.iter().map(|message| bytes_of(message.into())).collect::<Vec<_>>());
        let mut at = 0;
        for message in &messages {
            let (parts, next) = parts(&bytes, at, MessageRef::from(message).has_meta());
            let reply = message.reply.as_ref().map_or(&[][..], |reply| reply.as_bytes());
            assert_eq!(parts, EntryParts { reply, headers: message.headers.block(), payload: &message.payload });
            at = next;
        }
        assert_eq!(at, bytes.len());
    }
}
