//! MANIFEST: the content of datagrams without the messages themselves, and its extraction from a datagram.

use super::header::{Header, Kind, number};
use super::reader::Reader;
use super::run::{RecordStart, decode_seq};
use super::{
    CHECK_BYTES, DecodeError, FLAG_CHAIN, FLAG_EVENT, FLAG_STAMP, FLAG_UNSEQ, FRAGMENT, FRAGMENT_TOTAL_MAX,
    NUMBER_LIMIT, PAD, RECORD_HEADER_BYTES, RUN,
};
use crate::message::Dseq;
use crate::seqno::Seq;
use crate::subject::Subject;
use bytes::{BufMut, Bytes};

/// The entry is a part of a message that is larger than a datagram.
const FLAG_PART: u8 = 0x20;
const FLAGS_KNOWN: u8 = FLAG_UNSEQ | FLAG_EVENT | FLAG_CHAIN | FLAG_PART;
/// Bytes of `first`, `before` and `datagrams`.
const START_BYTES: usize = 18;
/// Bytes of the time and the offset of a stamp.
const STAMP_BYTES: usize = 12;
/// Bytes of the number of entries of a datagram.
const ENTRIES_BYTES: usize = 2;

/// Description of datagrams that a publisher can no longer retransmit (R6).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x44  |   flags = 0   |             length            |
/// +---------------+---------------+-------------------------------+
/// |            first: dseq of the first of the datagrams          |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |      before: messages begun in all datagrams before it        |
/// |                                                               |
/// +-------------------------------+-------------------------------+
/// |      datagrams, from 1        |  for each: entries (2)       ...
/// +-------------------------------+-------------------------------+
///
/// entry:
/// +---------------+---------------+-------------------------------+
/// |     flags     | subject bytes |  subject; 0 bytes: as before ...
/// +---------------+---------------+-------------------------------+
/// |                first seq; absent with UNSEQ (8)               |
/// +---------------------------------------------------------------+
/// |          CHAIN: last seq of the frame before (8)              |
/// +-------------------------------+-------------------------------+
/// |       count, from 1 (2)       |  or, with PART: index (4), total (4)
/// +-------------------------------+
///
/// flags = 0x02 CHAIN, 0x04 UNSEQ, 0x08 EVENT, 0x20 PART
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// First described datagram; at least 1.
    pub first: Dseq,
    /// Messages begun in all datagrams of the multicast stream before `first`.
    pub before: u64,
    /// Content of `first` and the datagrams after it: at least one, each in the order of its records.
    pub datagrams: Vec<Vec<Content>>,
}

/// Content of a RUN or a FRAGMENT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Subject on which the messages were published.
    pub subject: Subject,
    /// Number of the first message; `None`: the messages have no numbers.
    pub seq: Option<Seq>,
    /// Last number of the previous frame, if the publisher still knew it; only if `seq` begins a frame.
    pub chain: Option<Seq>,
    /// True if the messages are journalled events.
    pub event: bool,
    /// Extent of the content.
    pub kind: ContentKind,
}

/// Extent of the content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// Whole messages with consecutive numbers.
    Run {
        /// Number of messages; at least 1.
        count: u16,
    },
    /// A part of one message.
    Part {
        /// Index of the part, from 0.
        index: u32,
        /// Bytes of the whole body; more than `index`, at most [`FRAGMENT_TOTAL_MAX`].
        total: u32,
    },
}

impl Content {
    /// Returns the number of messages begun there: all of a run, one in a part with index 0.
    pub fn messages_begun(&self) -> u64 {
        match self.kind {
            ContentKind::Run { count } => u64::from(count),
            ContentKind::Part { index, .. } => u64::from(index == 0),
        }
    }

    fn decode(reader: &mut Reader<'_>, previous: Option<&Subject>) -> Result<Content, DecodeError> {
        let flags = reader.u8()?;
        let has = |flag: u8| flags & flag != 0;
        if flags & !FLAGS_KNOWN != 0 || has(FLAG_CHAIN) && has(FLAG_UNSEQ) {
            return Err(DecodeError::Flags(flags));
        }
        let subject_bytes = usize::from(reader.u8()?);
        let subject = match previous {
            Some(previous) if subject_bytes == 0 => previous.clone(),
            _ => Subject::from_bytes(reader.bytes(subject_bytes)?).map_err(DecodeError::Subject)?,
        };
        let seq = if has(FLAG_UNSEQ) { None } else { Some(decode_seq(reader)?) };
        let chain = if has(FLAG_CHAIN) { Some(decode_seq(reader)?) } else { None };
        if let (Some(chain), Some(seq)) = (chain, seq)
            && (seq.count() != 1 || seq.frame() <= chain.frame())
        {
            return Err(DecodeError::Chain);
        }
        let kind = if has(FLAG_PART) {
            let (index, total) = (reader.u32()?, reader.u32()?);
            if FRAGMENT_TOTAL_MAX < total as usize {
                return Err(DecodeError::FragmentTotal(total));
            }
            // Every part has at least one byte.
            if total <= index {
                return Err(DecodeError::FragmentIndex(index));
            }
            ContentKind::Part { index, total }
        } else {
            let count = reader.u16()?;
            let following = count.checked_sub(1).ok_or(DecodeError::RunEmpty)?;
            if seq.is_some_and(|seq| seq.forward(u64::from(following)).is_none()) {
                return Err(DecodeError::RunRange);
            }
            ContentKind::Run { count }
        };
        Ok(Content { subject, seq, chain, event: has(FLAG_EVENT), kind })
    }

    fn encode(&self, out: &mut impl BufMut, previous: Option<&Subject>) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let part = matches!(self.kind, ContentKind::Part { .. });
        out.put_u8(
            flag(self.seq.is_none(), FLAG_UNSEQ)
                | flag(self.chain.is_some(), FLAG_CHAIN)
                | flag(self.event, FLAG_EVENT)
                | flag(part, FLAG_PART),
        );
        let subject = if previous == Some(&self.subject) { &[][..] } else { self.subject.as_bytes() };
        out.put_u8(u8::try_from(subject.len()).expect("subjects have at most 255 bytes"));
        out.put_slice(subject);
        for seq in [self.seq, self.chain].into_iter().flatten() {
            out.put_u64(seq.raw());
        }
        match self.kind {
            ContentKind::Run { count } => out.put_u16(count),
            ContentKind::Part { index, total } => {
                out.put_u32(index);
                out.put_u32(total);
            }
        }
    }

    fn encoded_bytes(&self, previous: Option<&Subject>) -> usize {
        let subject = if previous == Some(&self.subject) { 0 } else { self.subject.as_bytes().len() };
        let numbers = self.seq.map_or(0, |_| 8) + self.chain.map_or(0, |_| 8);
        let kind = match self.kind {
            ContentKind::Run { .. } => 2,
            ContentKind::Part { .. } => 8,
        };
        2 + subject + numbers + kind
    }
}

impl Manifest {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Manifest, DecodeError> {
        let first = number(reader.u64()?)?;
        if first == 0 {
            return Err(DecodeError::Number(first));
        }
        let before = number(reader.u64()?)?;
        let count = reader.u16()?;
        if count == 0 {
            return Err(DecodeError::ManifestEmpty);
        }
        let mut datagrams: Vec<Vec<Content>> = Vec::new();
        let mut previous = None;
        let mut messages = before;
        for index in 0..u64::from(count) {
            let dseq = number(first.saturating_add(index))?;
            let contents = decode_datagram(reader, dseq, &mut previous)?;
            messages =
                number(contents.iter().fold(messages, |sum, content| sum.saturating_add(content.messages_begun())))?;
            datagrams.push(contents);
        }
        Ok(Manifest { first: Dseq(first), before, datagrams })
    }

    pub(super) fn encode(&self, out: &mut impl BufMut) {
        assert!(self.first != Dseq(0) && self.before < NUMBER_LIMIT, "manifests describe datagrams that were sent");
        assert!(!self.datagrams.is_empty(), "a manifest describes a datagram");
        out.put_u64(self.first.0);
        out.put_u64(self.before);
        out.put_u16(u16::try_from(self.datagrams.len()).expect("the builder counts them"));
        let mut previous = None;
        for contents in &self.datagrams {
            put_datagram(out, contents, &mut previous);
        }
    }
}

/// Fills a manifest up to the size of a datagram.
#[derive(Clone, Debug)]
pub struct ManifestBuilder {
    bytes_max: usize,
    /// Bytes of the manifest's own datagram in total.
    bytes: usize,
    manifest: Manifest,
}

impl ManifestBuilder {
    /// Creates a manifest that begins with the datagram `first`, before which `before` messages were begun. Its own
    /// datagram has at most `bytes_max` bytes.
    pub fn new(bytes_max: usize, first: Dseq, before: u64) -> ManifestBuilder {
        let bytes = Header::SHORT_BYTES + RECORD_HEADER_BYTES + START_BYTES + CHECK_BYTES;
        let bytes_max = bytes_max.min(super::DATAGRAM_BYTES_MAX);
        ManifestBuilder { bytes_max, bytes, manifest: Manifest { first, before, datagrams: Vec::new() } }
    }

    /// Adds the content of the next datagram. Returns false if it does not fit; nothing is added then. An empty builder
    /// takes any datagram. The description has at most 24 bytes more than the datagram. The manifest can slightly
    /// exceed a `bytes_max` below 900, if the datagram held two or three long subjects and hardly any payload.
    pub fn push(&mut self, contents: &[Content]) -> bool {
        let mut previous = self.manifest.datagrams.iter().rev().flat_map(|contents| contents.last()).next();
        let mut bytes = self.bytes + ENTRIES_BYTES;
        for content in contents {
            bytes += content.encoded_bytes(previous.map(|content| &content.subject));
            previous = Some(content);
        }
        let is_full = self.bytes_max < bytes || self.manifest.datagrams.len() == usize::from(u16::MAX);
        if is_full && !self.manifest.datagrams.is_empty() {
            return false;
        }
        self.bytes = bytes;
        self.manifest.datagrams.push(contents.to_vec());
        true
    }

    /// Returns the bytes of the manifest's own datagram in total.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether nothing was added yet. Such a manifest cannot be sent.
    pub fn is_empty(&self) -> bool {
        self.manifest.datagrams.is_empty()
    }

    /// Returns the manifest.
    pub fn finish(self) -> Manifest {
        self.manifest
    }
}

/// Returns the content of a datagram of this peer, read from its sealed bytes. Neither the check value nor the messages
/// are checked again. Subjects refer to the memory of `datagram`.
///
/// # Panics
/// Panics unless a [`Builder`](super::Builder) sealed the datagram.
pub fn contents_of(datagram: &Bytes) -> Vec<Content> {
    let content = datagram.slice(..datagram.len().saturating_sub(CHECK_BYTES));
    read_contents(&content).expect("sealed datagrams can be decoded")
}

fn read_contents(content: &Bytes) -> Result<Vec<Content>, DecodeError> {
    let mut reader = Reader::new(content);
    Header::decode(&mut reader)?;
    let mut contents = Vec::new();
    while !reader.is_done() {
        let (record_type, flags, length) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let mut body = reader.record(usize::from(length))?;
        assert!(matches!(record_type, PAD | RUN | FRAGMENT), "a data datagram of our own holds {record_type:#04x}");
        if record_type == PAD {
            continue;
        }
        let RecordStart { seq, chain, event, subject, .. } = RecordStart::decode(flags, &mut body)?;
        let kind = if record_type == RUN {
            ContentKind::Run { count: body.u16()? }
        } else {
            ContentKind::Part { index: body.u32()?, total: body.u32()? }
        };
        contents.push(Content { subject, seq, chain, event, kind });
    }
    Ok(contents)
}

/// Writes the content of a datagram of this peer in the compact form of a MANIFEST. The function runs for every
/// datagram sent, so it converts bytes to bytes without decoding subjects.
///
/// # Panics
/// Panics unless a [`Builder`](super::Builder) sealed the datagram.
pub fn put_contents(datagram: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u16(0);
    let header =
        if datagram.get(4) == Some(&Kind::Directed.to_wire()) { Header::BYTES_MAX } else { Header::SHORT_BYTES };
    let mut rest = datagram.get(header..datagram.len().saturating_sub(CHECK_BYTES)).unwrap_or_default();
    let (mut entries, mut previous) = (0u16, &[][..]);
    while let [record_type, flags, high, low, bodies @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (body, next) = bodies.split_at_checked(length).expect("records of sealed datagrams are complete");
        rest = next;
        if *record_type != PAD {
            previous = put_content(*record_type, *flags, body, previous, out).expect("sealed datagrams can be decoded");
            entries += 1;
        }
    }
    assert!(rest.is_empty() && datagram.len() > header, "a sealed datagram ends with a record");
    let count = out.get_mut(start..start + ENTRIES_BYTES).expect("the count field was written before");
    count.copy_from_slice(&entries.to_be_bytes());
}

/// Writes the entry for the body of a RUN or FRAGMENT and returns its subject.
fn put_content<'a>(record_type: u8, flags: u8, body: &'a [u8], previous: &[u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let has = |flag: u8| flags & flag != 0;
    let (part, kind_bytes) = match record_type {
        RUN => (0, 2),
        FRAGMENT => (FLAG_PART, 8),
        _ => return None,
    };
    let (seq, rest) = body.split_at_checked(if has(FLAG_UNSEQ) { 0 } else { 8 })?;
    let (_, rest) = rest.split_at_checked(if has(FLAG_STAMP) { STAMP_BYTES } else { 0 })?;
    let (chain, rest) = rest.split_at_checked(if has(FLAG_CHAIN) { 8 } else { 0 })?;
    let (subject_bytes, rest) = rest.split_first()?;
    let (subject, rest) = rest.split_at_checked(usize::from(*subject_bytes))?;
    let written = if subject == previous { &[][..] } else { subject };
    let written_bytes = if written.is_empty() { 0 } else { *subject_bytes };
    out.extend_from_slice(&[flags & (FLAG_UNSEQ | FLAG_EVENT | FLAG_CHAIN) | part, written_bytes]);
    for bytes in [written, seq] {
        out.extend_from_slice(bytes);
    }
    if !chain.is_empty() {
        out.extend_from_slice(chain);
    }
    out.extend_from_slice(rest.get(..kind_bytes)?);
    Some(subject)
}

/// Reads the output of [`put_contents`]. Subjects refer to the memory of `bytes`.
///
/// # Panics
/// Panics if the bytes are anything else.
pub fn decode_contents(bytes: &Bytes) -> Vec<Content> {
    let mut reader = Reader::new(bytes);
    let contents = decode_datagram(&mut reader, NUMBER_LIMIT, &mut None).expect("written contents can be decoded");
    assert!(reader.is_done(), "the contents end with the bytes");
    contents
}

/// Reads the content of the datagram `dseq`.
fn decode_datagram(
    reader: &mut Reader<'_>,
    dseq: u64,
    previous: &mut Option<Subject>,
) -> Result<Vec<Content>, DecodeError> {
    let mut contents = Vec::new();
    for record in 0..reader.u16()? {
        let content = Content::decode(reader, previous.as_ref())?;
        if let ContentKind::Part { index, .. } = content.kind {
            if dseq <= u64::from(index) {
                return Err(DecodeError::FragmentIndex(index));
            }
            if index != 0 && record != 0 {
                return Err(DecodeError::FragmentOrder);
            }
        }
        *previous = Some(content.subject.clone());
        contents.push(content);
    }
    Ok(contents)
}

fn put_datagram<'a>(out: &mut impl BufMut, contents: &'a [Content], previous: &mut Option<&'a Subject>) {
    out.put_u16(u16::try_from(contents.len()).expect("a datagram has room for fewer records"));
    for content in contents {
        content.encode(out, *previous);
        *previous = Some(&content.subject);
    }
}
