//! RUN: messages of one subject with consecutive numbers, and the parts that it shares with FRAGMENT.

use super::entry::{self, EntryParts};
use super::reader::Reader;
use super::{DecodeError, FLAG_CHAIN, FLAG_EVENT, FLAG_META, FLAG_STAMP, FLAG_UNSEQ, FLAGS_KNOWN, RUN};
use crate::message::{Headers, Message, Stamp};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use bytes::Bytes;
use std::ops::Range;

/// Messages of one subject; those with a number have consecutive ones.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x01  |     flags     |             length            |
/// +---------------+---------------+-------------------------------+
/// |                first seq; absent with UNSEQ (8)               |
/// +---------------------------------------------------------------+
/// |       STAMP: nanoseconds since 1970 (8), offset (4)           |
/// +---------------------------------------------------------------+
/// |          CHAIN: last seq of the frame before (8)              |
/// +---------------+-----------------------------------------------+
/// | subject bytes |              subject (1 to 255)              ...
/// +---------------+---------------+-------------------------------+
/// |             count             |         count entries        ...
/// +-------------------------------+-------------------------------+
///
/// entry = payload bytes (varint) · META: meta · payload
/// meta  = reply bytes u8 (0: none) · reply · headers bytes (varint) · headers
/// flags = 0x01 STAMP, 0x02 CHAIN, 0x04 UNSEQ, 0x08 EVENT, 0x10 META
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Subject on which the messages are published.
    pub subject: Subject,
    /// Number of the first message; each following message has the next. `None`: the messages have no numbers.
    pub first: Option<Seq>,
    /// Time and offset of the frame, if the first message begins one.
    pub stamp: Option<Stamp>,
    /// Last number of the previous frame, if the publisher still knows it.
    pub chain: Option<Seq>,
    /// True if the messages are journalled events.
    pub event: bool,
    /// Number of messages; at least 1.
    pub count: u16,
    /// True if each entry has a meta part.
    meta: bool,
    /// The entries; `decode` has read each of them.
    entries: Bytes,
}

/// Common start of RUN and FRAGMENT.
pub(super) struct RecordStart {
    pub(super) seq: Option<Seq>,
    pub(super) stamp: Option<Stamp>,
    pub(super) chain: Option<Seq>,
    pub(super) event: bool,
    pub(super) meta: bool,
    pub(super) subject: Subject,
}

impl RecordStart {
    pub(super) fn decode(flags: u8, reader: &mut Reader<'_>) -> Result<RecordStart, DecodeError> {
        let has = |flag: u8| flags & flag != 0;
        if flags & !FLAGS_KNOWN != 0 || has(FLAG_CHAIN) && !has(FLAG_STAMP) || has(FLAG_STAMP) && has(FLAG_UNSEQ) {
            return Err(DecodeError::Flags(flags));
        }
        let seq = if has(FLAG_UNSEQ) { None } else { Some(decode_seq(reader)?) };
        let stamp = if has(FLAG_STAMP) {
            Some(Stamp { time: WallTime::from_nanos(reader.u64()?), offset: reader.u32()? })
        } else {
            None
        };
        if stamp.is_some() && seq.is_some_and(|seq| seq.count() != 1) {
            return Err(DecodeError::StampInside);
        }
        let chain = if has(FLAG_CHAIN) { Some(decode_seq(reader)?) } else { None };
        if let (Some(chain), Some(seq)) = (chain, seq)
            && seq.frame() <= chain.frame()
        {
            return Err(DecodeError::Chain);
        }
        let length = usize::from(reader.u8()?);
        let subject = Subject::from_bytes(reader.bytes(length)?).map_err(DecodeError::Subject)?;
        Ok(RecordStart { seq, stamp, chain, event: has(FLAG_EVENT), meta: has(FLAG_META), subject })
    }
}

/// Decodes a seq from its wire representation.
pub(super) fn decode_seq(reader: &mut Reader<'_>) -> Result<Seq, DecodeError> {
    let raw = reader.u64()?;
    Seq::new(raw).ok_or(DecodeError::Seq(raw))
}

/// Location of the optional parts of a message.
pub(crate) struct EntryMeta {
    reply: Range<usize>,
    headers: Range<usize>,
}

impl EntryMeta {
    /// Reads the meta part, or returns an empty one if there is none.
    pub(crate) fn decode(reader: &mut Reader<'_>, meta: bool) -> Result<EntryMeta, DecodeError> {
        if !meta {
            return Ok(EntryMeta { reply: 0..0, headers: 0..0 });
        }
        let reply_bytes = usize::from(reader.u8()?);
        let reply = reader.span(reply_bytes)?;
        let headers_bytes = reader.varint()?;
        let headers = reader.span(headers_bytes)?;
        Ok(EntryMeta { reply, headers })
    }

    /// Returns the reply subject after checking it.
    pub(crate) fn reply(&self, reader: &Reader<'_>) -> Result<Option<Subject>, DecodeError> {
        if self.reply.is_empty() {
            return Ok(None);
        }
        Subject::from_bytes(reader.slice(self.reply.clone())).map(Some).map_err(DecodeError::Reply)
    }

    /// Returns the header fields.
    pub(crate) fn headers(&self, reader: &Reader<'_>) -> Headers {
        Headers::from_block(reader.slice(self.headers.clone()))
    }
}

/// Reads one entry and returns the location of its meta part and its payload.
fn decode_entry(reader: &mut Reader<'_>, meta: bool) -> Result<(EntryMeta, Range<usize>), DecodeError> {
    let payload_bytes = reader.varint()?;
    let meta = EntryMeta::decode(reader, meta)?;
    let payload = reader.span(payload_bytes)?;
    Ok((meta, payload))
}

/// Reads `count` entries and checks them.
fn check_entries(reader: &mut Reader<'_>, count: u16, meta: bool) -> Result<(), DecodeError> {
    for _ in 0..count {
        if meta {
            decode_entry(reader, meta)?.0.reply(reader)?;
        } else {
            let payload_bytes = reader.varint()?;
            reader.span(payload_bytes)?;
        }
    }
    Ok(())
}

/// Returns an error unless `count` is at least 1 and that many numbers exist from `first` on.
fn check_range(first: Option<Seq>, count: u16) -> Result<(), DecodeError> {
    let following = count.checked_sub(1).ok_or(DecodeError::RunEmpty)?;
    match first {
        Some(first) if first.forward(u64::from(following)).is_none() => Err(DecodeError::RunRange),
        _ => Ok(()),
    }
}

impl Run {
    pub(super) fn decode(flags: u8, reader: &mut Reader<'_>) -> Result<Run, DecodeError> {
        let RecordStart { seq: first, stamp, chain, event, meta, subject } = RecordStart::decode(flags, reader)?;
        let count = reader.u16()?;
        check_range(first, count)?;
        let mut check = reader.clone();
        check_entries(&mut check, count, meta)?;
        let entries = reader.bytes(reader.left().saturating_sub(check.left()))?;
        Ok(Run { subject, first, stamp, chain, event, count, meta, entries })
    }

    /// Creates a run from entries that did not arrive in a datagram: these entries and nothing else.
    ///
    /// # Errors
    /// The same as for a run in a datagram.
    pub(crate) fn of_entries(
        subject: Subject,
        first: Option<Seq>,
        event: bool,
        meta: bool,
        count: u16,
        entries: Bytes,
    ) -> Result<Run, DecodeError> {
        check_range(first, count)?;
        let mut reader = Reader::new(&entries);
        check_entries(&mut reader, count, meta)?;
        reader.finish(RUN)?;
        Ok(Run { subject, first, stamp: None, chain: None, event, count, meta, entries })
    }

    /// Creates a run of locally packed entries, at least one: messages that consist only of a payload.
    pub(crate) fn of_packed(subject: Subject, first: Option<Seq>, count: u16, entries: Bytes) -> Run {
        Run { subject, first, stamp: None, chain: None, event: false, count, meta: false, entries }
    }

    /// Visits the messages after the first `skipped` ones: reply subject, header fields and payload of each.
    #[inline]
    pub(crate) fn visit(&self, skipped: u16, each: impl FnMut(EntryParts<'_>)) {
        let skipped = skipped.min(self.count);
        let start = self.visit_from(0, skipped.into(), |_| {});
        self.visit_from(start, (self.count - skipped).into(), each);
    }

    /// Visits the `count` messages from the location `at` on. Returns the location behind them.
    #[inline]
    fn visit_from(&self, mut at: usize, count: usize, mut each: impl FnMut(EntryParts<'_>)) -> usize {
        let (entries, meta) = (&self.entries[..], self.meta);
        for _ in 0..count {
            let (parts, next) = entry::parts(entries, at, meta);
            at = next;
            each(parts);
        }
        at
    }

    /// Returns whether `predicate` holds for the header fields of one of the `count` messages from the location `at` on.
    #[inline]
    fn any_headers_from(&self, at: usize, count: usize, predicate: impl Fn(&[u8]) -> bool) -> bool {
        let mut any = false;
        if self.meta {
            self.visit_from(at, count, |parts| any |= predicate(parts.headers));
        }
        any
    }

    /// Returns whether each entry has a meta part.
    pub(crate) fn has_meta(&self) -> bool {
        self.meta
    }

    /// Returns the bytes of the entries: the memory that a buffered run keeps, apart from its datagram's other records.
    pub fn entry_bytes(&self) -> usize {
        self.entries.len()
    }

    /// Returns the messages in order. Each refers to the datagram's memory.
    pub fn messages(&self) -> RunMessages {
        self.clone().into_messages()
    }

    /// Converts the run into its messages.
    #[inline]
    pub fn into_messages(self) -> RunMessages {
        RunMessages { left: self.count, run: self, at: 0 }
    }
}

/// Iterator over the messages of a run.
#[derive(Clone, Debug)]
pub struct RunMessages {
    run: Run,
    /// Location of the next entry.
    at: usize,
    left: u16,
}

impl RunMessages {
    /// Visits up to `count` of the remaining messages without consuming them: reply subject, header fields and payload
    /// of each.
    pub(crate) fn visit(&self, count: usize, mut each: impl FnMut(&Run, EntryParts<'_>)) {
        self.run.visit_from(self.at, count.min(self.left.into()), |parts| each(&self.run, parts));
    }

    /// Copies the subject and the entries, so that the messages do not keep the memory of a whole datagram.
    pub(crate) fn detach(&mut self) {
        self.run.subject = self.run.subject.detached();
        self.run.entries = Bytes::copy_from_slice(&self.run.entries);
    }

    /// Returns whether `predicate` holds for the header fields of any remaining message.
    #[inline]
    pub(crate) fn any_headers(&self, predicate: impl Fn(&[u8]) -> bool) -> bool {
        self.run.any_headers_from(self.at, self.left.into(), predicate)
    }

    /// Returns the run, and the bytes of the next `count` entries in it, or of all remaining entries if fewer.
    pub(crate) fn rest(&self, count: usize) -> (&Run, &[u8]) {
        let entries = self.run.entries.get(self.at..).expect("the location of an entry or the end");
        if usize::from(self.left) <= count {
            return (&self.run, entries);
        }
        let mut end = 0;
        for _ in 0..count {
            end = entry::parts(entries, end, self.run.meta).1;
        }
        (&self.run, entries.get(..end).expect("the end of an entry"))
    }

    fn next_parts(&mut self) -> Option<(Option<Subject>, Headers, Bytes)> {
        self.left = self.left.checked_sub(1)?;
        let mut reader = Reader::at(&self.run.entries, self.at);
        let (meta, payload) = decode_entry(&mut reader, self.run.meta).expect("decode has read every entry");
        self.at = payload.end;
        let reply = meta.reply(&reader).expect("decode has checked every reply subject");
        Some((reply, meta.headers(&reader), reader.slice(payload)))
    }
}

impl Iterator for RunMessages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let (reply, headers, payload) = self.next_parts()?;
        Some(Message { subject: self.run.subject.clone(), reply, headers, payload, event: self.run.event })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for RunMessages {}
