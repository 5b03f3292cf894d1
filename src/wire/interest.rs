//! INTEREST and INTEREST_REQUEST: the advertised subscriptions of a peer.

use super::header::{Header, number};
use super::reader::Reader;
use super::{CHECK_BYTES, DecodeError, RECORD_HEADER_BYTES, entry};
use crate::message::{Epoch, Queue, SubscriptionFilter};
use crate::subject::Pattern;
use crate::subject::glob::Glob;
use bytes::{BufMut, Bytes, BytesMut};

/// The entry has a glob.
const ENTRY_GLOB: u8 = 0x01;
/// The entry is of a queue group.
const ENTRY_QUEUE: u8 = 0x02;
/// Minimum bytes of an entry: flags, a pattern of one byte, a count.
const ENTRY_BYTES_MIN: usize = 4;
/// Bytes of the versions and the count of entries.
const START_BYTES: usize = 34;
/// Maximum count of subscriptions in an entry; larger counts are clipped to it.
pub const INTEREST_COUNT_MAX: u32 = (1 << 28) - 1;

/// Number of a peer's subscriptions with the same filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestEntry {
    /// Filter of the subscriptions.
    pub wanted: SubscriptionFilter,
    /// Number of subscriptions; 0 if none is left. At most [`INTEREST_COUNT_MAX`].
    pub count: u32,
}

impl InterestEntry {
    /// Returns the bytes of the entry in a record.
    pub fn bytes(&self) -> usize {
        let SubscriptionFilter { pattern, glob, queue } = &self.wanted;
        let text = |bytes: Option<usize>| bytes.map_or(0, |bytes| 1 + bytes);
        1 + text(Some(pattern.as_str().len()))
            + text(glob.as_ref().map(|glob| glob.text().len()))
            + text(queue.as_ref().map(|queue| queue.as_str().len()))
            + entry::varint_bytes(self.count as usize)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<InterestEntry, DecodeError> {
        let flags = reader.u8()?;
        if flags & !(ENTRY_GLOB | ENTRY_QUEUE) != 0 {
            return Err(DecodeError::Flags(flags));
        }
        // The entry is copied, so that it does not keep the datagram in memory.
        let mut text = || {
            let length = usize::from(reader.u8()?);
            Ok(Bytes::copy_from_slice(&reader.bytes(length)?))
        };
        let pattern = Pattern::from_bytes(text()?).map_err(DecodeError::Subject)?;
        let glob = match flags & ENTRY_GLOB {
            0 => None,
            _ => Some(Glob::new(&text()?).expect("a glob of at most 255 bytes is short enough")),
        };
        let queue = match flags & ENTRY_QUEUE {
            0 => None,
            _ => Some(Queue::from_bytes(text()?).map_err(DecodeError::Queue)?),
        };
        let count = u32::try_from(reader.varint()?).expect("variable-length numbers have at most 28 bits");
        Ok(InterestEntry { wanted: SubscriptionFilter { pattern, glob, queue }, count })
    }

    fn encode(&self, out: &mut BytesMut) {
        let SubscriptionFilter { pattern, glob, queue } = &self.wanted;
        out.put_u8(glob.as_ref().map_or(0, |_| ENTRY_GLOB) | queue.as_ref().map_or(0, |_| ENTRY_QUEUE));
        let glob = glob.as_ref().map(Glob::text);
        let queue = queue.as_ref().map(|queue| queue.as_str().as_bytes());
        for text in [Some(pattern.as_str().as_bytes()), glob, queue].into_iter().flatten() {
            out.put_u8(u8::try_from(text.len()).expect("patterns, globs and names have at most 255 bytes"));
            out.put_slice(text);
        }
        entry::put_varint(out, self.count as usize);
    }
}

/// All entries of the sender whose last change has a version above `after`, up to `upto`.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x48  |   flags = 0   |             length            |
/// +---------------+---------------+-------------------------------+
/// |     after: entries up to this version are not covered         |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |          upto: entries up to this version are covered         |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |             high: the version of the last change              |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |     base: entries that ended up to this version are optional  |
/// |                                                               |
/// +-------------------------------+-------------------------------+
/// |        count, from 0          |      count entries           ...
/// +-------------------------------+-------------------------------+
///
/// entry = entry flags u8 · pattern · GLOB: glob · QUEUE: queue group · subscriptions (varint)
/// pattern, glob, queue group = length u8 · bytes
/// entry flags = 0x01 GLOB, 0x02 QUEUE
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Versions up to this are not covered.
    pub after: u64,
    /// Versions up to this are covered; above `after`.
    pub upto: u64,
    /// Version of the last change of all; at least `upto`.
    pub high: u64,
    /// Version up to which ended entries may be absent: the record is for tables begun at that version or later. 0:
    /// none is absent.
    pub base: u64,
    /// The entries; none if every entry that changed in this span changed again later.
    pub entries: Vec<InterestEntry>,
}

impl Interest {
    /// Returns the bytes available for entries in a datagram of at most `bytes_max` bytes. One entry alone may take
    /// more.
    pub fn room(bytes_max: usize) -> usize {
        bytes_max.saturating_sub(Header::SHORT_BYTES + RECORD_HEADER_BYTES + START_BYTES + CHECK_BYTES)
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Interest, DecodeError> {
        let mut next = || number(reader.u64()?);
        let (after, upto, high, base) = (next()?, next()?, next()?, next()?);
        if upto <= after || high < upto || high < base {
            return Err(DecodeError::Versions);
        }
        let count = usize::from(reader.u16()?);
        if reader.left() / ENTRY_BYTES_MIN < count {
            return Err(DecodeError::Truncated);
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(InterestEntry::decode(reader)?);
        }
        Ok(Interest { after, upto, high, base, entries })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        assert!(self.after < self.upto && self.upto.max(self.base) <= self.high, "versions ascend up to the highest");
        [self.after, self.upto, self.high, self.base].into_iter().for_each(|version| out.put_u64(version));
        out.put_u16(u16::try_from(self.entries.len()).expect("no more entries than a datagram holds"));
        self.entries.iter().for_each(|entry| entry.encode(out));
    }
}

/// Request of a peer for the entries of another.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x49  |   flags = 0   |             length            |
/// +---------------+---------------+-------------------------------+
/// |              epoch of the requested peer                      |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |          from: entries up to this version are known           |
/// |                                                               |
/// +---------------------------------------------------------------+
/// |      base: the high when the table was begun; 0: at first     |
/// |                                                               |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterestRequest {
    /// Epoch of the requested peer.
    pub epoch: Epoch,
    /// Version up to which the requester knows everything.
    pub from: u64,
    /// Version before which ended entries are absent from the requester's table.
    pub base: u64,
}

impl InterestRequest {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<InterestRequest, DecodeError> {
        let epoch = Epoch::new(reader.u64()?).ok_or(DecodeError::Epoch)?;
        let (from, base) = (number(reader.u64()?)?, number(reader.u64()?)?);
        Ok(InterestRequest { epoch, from, base })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.epoch.bits());
        out.put_u64(self.from);
        out.put_u64(self.base);
    }
}
