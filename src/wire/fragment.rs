//! FRAGMENT: a part of a message that is larger than a datagram, with splitting and reassembly of the body.

use super::reader::Reader;
use super::run::{EntryMeta, RecordStart};
use super::{DecodeError, entry, queue};
use crate::message::{MESSAGE_BYTES_MAX, Message, MessageRef, Stamp};
use crate::seqno::Seq;
use crate::subject::Subject;
use bytes::Bytes;
use std::borrow::Cow;

/// Maximum body of a fragmented message in bytes: the largest message, plus the lengths of its meta part.
pub const FRAGMENT_TOTAL_MAX: usize = MESSAGE_BYTES_MAX + 64 * 1024;

/// A part of a message. The parts are in consecutive datagrams, one in each.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x02  |     flags     |             length            |
/// +---------------+---------------+-------------------------------+
/// |                   seq; absent with UNSEQ (8)                  |
/// +---------------------------------------------------------------+
/// |       STAMP: nanoseconds since 1970 (8), offset (4)           |
/// +---------------------------------------------------------------+
/// |          CHAIN: last seq of the frame before (8)              |
/// +---------------+-----------------------------------------------+
/// | subject bytes |              subject (1 to 255)              ...
/// +---------------+-----------------------------------------------+
/// |                        index, from 0                          |
/// +---------------------------------------------------------------+
/// |                    total bytes of the body                    |
/// +---------------------------------------------------------------+
/// |                offset of the chunk in the body                |
/// +---------------------------------------------------------------+
/// |             chunk: the rest, at least one byte               ...
/// +---------------------------------------------------------------+
///
/// body = META: reply bytes u8 (0: none) · reply · headers bytes (varint) · headers; then the payload
/// flags as in RUN; all parts of a message repeat seq, stamp, chain and flags
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Subject on which the message is published.
    pub subject: Subject,
    /// Number of the message, if it has one.
    pub seq: Option<Seq>,
    /// Time and offset of the frame, if the message begins one.
    pub stamp: Option<Stamp>,
    /// Last number of the previous frame, if the publisher still knows it.
    pub chain: Option<Seq>,
    /// True if the message is a journalled event.
    pub event: bool,
    /// True if the body begins with a meta part.
    pub meta: bool,
    /// Index of the part: the datagram's dseq less that of the first part.
    pub index: u32,
    /// Bytes of the whole body; at most [`FRAGMENT_TOTAL_MAX`].
    pub total: u32,
    /// Offset of the chunk in the body, in bytes.
    pub offset: u32,
    /// The part itself; never empty.
    pub chunk: Bytes,
}

impl Fragment {
    pub(super) fn decode(flags: u8, reader: &mut Reader<'_>) -> Result<Fragment, DecodeError> {
        let RecordStart { seq, stamp, chain, event, meta, subject } = RecordStart::decode(flags, reader)?;
        let (index, total, offset) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let chunk = reader.bytes(reader.left())?;
        if chunk.is_empty() {
            return Err(DecodeError::FragmentEmpty);
        }
        if FRAGMENT_TOTAL_MAX < total as usize {
            return Err(DecodeError::FragmentTotal(total));
        }
        if (total as usize).checked_sub(offset as usize).is_none_or(|room| room < chunk.len()) {
            return Err(DecodeError::FragmentRange);
        }
        // Each earlier part has at least one byte.
        if (index == 0) != (offset == 0) || offset < index {
            return Err(DecodeError::FragmentIndex(index));
        }
        Ok(Fragment { subject, seq, stamp, chain, event, meta, index, total, offset, chunk })
    }

    /// Returns whether the message ends here.
    pub fn is_last(&self) -> bool {
        self.offset as usize + self.chunk.len() == self.total as usize
    }
}

/// Returns the body of a message as its fragments carry it, and whether it begins with a meta part.
pub fn body_of(message: MessageRef<'_>) -> (bool, Cow<'_, [u8]>) {
    if !message.has_meta() {
        return (false, message.payload.into());
    }
    let mut body = Vec::with_capacity(entry::meta_bytes(message) + message.payload.len());
    entry::put_meta(&mut body, message);
    body.extend_from_slice(message.payload);
    (true, body.into())
}

/// Returns the message whose fragments carried `body`; it refers to the memory of `body`.
///
/// # Errors
/// [`DecodeError`] if the meta part cannot be read, or the message is larger than [`MESSAGE_BYTES_MAX`].
pub fn assemble(subject: Subject, event: bool, meta: bool, body: Bytes) -> Result<Message, DecodeError> {
    let mut reader = Reader::new(&body);
    let meta = EntryMeta::decode(&mut reader, meta)?;
    let (reply, headers) = (meta.reply(&reader)?, meta.headers(&reader));
    let payload = reader.bytes(reader.left())?;
    let message = Message { subject, reply, headers, payload, event };
    // The stamps that the publishing peer put before the headers do not count against the client's limit.
    let bytes = message.body_bytes() - queue::stamp_bytes(message.headers.block());
    if MESSAGE_BYTES_MAX < bytes { Err(DecodeError::MessageTooLarge(bytes)) } else { Ok(message) }
}
