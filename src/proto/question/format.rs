//! Kinds and flags of questions and answers, and the encoding of subjects that both share.

use bytes::{BufMut, BytesMut};

pub(super) const POLL: u8 = 0x01;
pub(super) const FETCH: u8 = 0x02;
pub(super) const LIST: u8 = 0x03;
pub(super) const REPORT: u8 = 0x04;
/// Bit that is set in the kind of an answer.
pub(super) const ANSWER: u8 = 0x80;
pub(super) const REFUSED: u8 = 0xff;

pub(super) const FLAG_LAST: u8 = 0x01;
pub(super) const FLAG_NEXT: u8 = 0x02;
/// Bits of a case byte that hold the number of the case; 0 in a FETCH.
pub(super) const CASE_BITS: u8 = 0x03;
pub(super) const FLAG_SPAN: u8 = 0x04;
pub(super) const FLAG_MORE: u8 = 0x08;
pub(super) const FLAG_EVENT: u8 = 0x08;
pub(super) const FLAG_META: u8 = 0x10;

/// Writer of subjects that writes a repeated subject only once.
#[derive(Default)]
pub(super) struct SubjectWriter {
    before: Vec<u8>,
}

impl SubjectWriter {
    /// Writes a subject, or 0 if it is the preceding one.
    pub(super) fn put(&mut self, out: &mut BytesMut, text: &[u8]) {
        if self.before == text {
            out.put_u8(0);
            return;
        }
        put_text(out, text);
        self.before.clear();
        self.before.extend_from_slice(text);
    }
}

/// Writes the length of a text and its bytes.
pub(super) fn put_text(out: &mut BytesMut, text: &[u8]) {
    out.put_u8(u8::try_from(text.len()).expect("subjects and patterns have at most 255 bytes"));
    out.put_slice(text);
}
