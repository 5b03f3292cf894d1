//! RESEND_REQUEST and EXPIRED: requested datagrams, and datagrams that are no longer available.

use super::header::{Header, number};
use super::reader::Reader;
use super::{CHECK_BYTES, DATAGRAM_BYTES_MAX, DecodeError, RECORD_HEADER_BYTES};
use crate::message::{Dseq, Epoch};
use bytes::{BufMut, BytesMut};

/// RESEND_REQUEST: the requester wants only the manifests of the datagrams.
pub(super) const FLAG_MANIFESTS_ONLY: u8 = 0x01;
/// RESEND_REQUEST and EXPIRED: the ranges are of the directed stream to the requester.
pub(super) const FLAG_DIRECTED: u8 = 0x02;
/// RESEND_REQUEST: the requester does not receive multicast.
pub(super) const FLAG_UNICAST: u8 = 0x04;
/// Bytes of a range.
const RANGE_BYTES: usize = 16;
/// Bytes of the epoch and of the count before the ranges.
const START_BYTES: usize = 10;
/// The count field can express every number of ranges that fits a datagram.
const _: () = assert!(DATAGRAM_BYTES_MAX / RANGE_BYTES <= u16::MAX as usize);

/// A range of consecutive datagrams of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// First datagram; at least 1.
    pub first: Dseq,
    /// Last datagram; at least `first`.
    pub last: Dseq,
}

impl Range {
    /// Returns the number of datagrams; at least 1.
    pub fn datagrams(&self) -> u64 {
        self.last.0 - self.first.0 + 1
    }
}

/// Request of a receiver for datagrams that it misses (R5).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x43  |     flags     |             length            |
/// +---------------+---------------+-------------------------------+
/// |              epoch of the requested publisher                 |
/// |                                                               |
/// +-------------------------------+-------------------------------+
/// |        count, from 1          |      count ranges            ...
/// +-------------------------------+-------------------------------+
///
/// range = first u64 · last u64; ascending and disjoint
/// flags = 0x01 MANIFESTS_ONLY, 0x02 DIRECTED, never both; 0x04 UNICAST; others are ignored
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResendRequest {
    /// Epoch of the requested publisher. A publisher that restarted at the same address does not answer.
    pub epoch: Epoch,
    /// True if the ranges are of the directed stream to the requester, and not of the multicast stream.
    pub directed: bool,
    /// True if only the content of the datagrams is requested (A4); never with `directed`, for which none is kept.
    pub manifests_only: bool,
    /// True if the requester does not receive the publisher's multicast, so that an answer to the group would not reach
    /// it.
    pub unicast: bool,
    /// Requested ranges: at least one, ascending and disjoint.
    pub ranges: Vec<Range>,
}

impl ResendRequest {
    /// Returns the number of ranges that fit a request whose datagram has at most `bytes_max` bytes.
    pub fn ranges_max(bytes_max: usize) -> usize {
        ranges_max(bytes_max)
    }

    pub(super) fn decode(flags: u8, reader: &mut Reader<'_>) -> Result<ResendRequest, DecodeError> {
        let (directed, manifests_only) = (flags & FLAG_DIRECTED != 0, flags & FLAG_MANIFESTS_ONLY != 0);
        if directed && manifests_only {
            return Err(DecodeError::Flags(flags));
        }
        let unicast = flags & FLAG_UNICAST != 0;
        let epoch = Epoch::new(reader.u64()?).ok_or(DecodeError::Epoch)?;
        let ranges = decode_ranges(reader)?;
        Ok(ResendRequest { epoch, directed, manifests_only, unicast, ranges })
    }

    /// Writes the body and returns the record's flags.
    pub(super) fn encode(&self, out: &mut BytesMut) -> u8 {
        assert!(!(self.directed && self.manifests_only), "no manifests are kept of directed streams");
        out.put_u64(self.epoch.bits());
        put_ranges(out, &self.ranges);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.manifests_only, FLAG_MANIFESTS_ONLY)
            | flag(self.directed, FLAG_DIRECTED)
            | flag(self.unicast, FLAG_UNICAST)
    }
}

/// Notice of a publisher that it knows nothing about these requested datagrams any more (R6).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-------------------------------+
/// |  type = 0x45  |     flags     |             length            |
/// +---------------+---------------+-------------------------------+
/// |       DIRECTED: epoch of the receiver of the stream           |
/// |                                                               |
/// +-------------------------------+-------------------------------+
/// |        count, from 1          |      count ranges            ...
/// +-------------------------------+-------------------------------+
///
/// range = first u64 · last u64; ascending and disjoint
/// flags = 0x02 DIRECTED; others are ignored
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiryNotice {
    /// Receiver of the directed stream of the ranges; `None`: they are of the multicast stream. A peer that restarted
    /// at the same address recognizes by it that they are not of its own stream.
    pub receiver: Option<Epoch>,
    /// Ranges that are no longer available: at least one, ascending and disjoint.
    pub ranges: Vec<Range>,
}

impl ExpiryNotice {
    /// Returns the number of ranges that fit an EXPIRED whose datagram has at most `bytes_max` bytes.
    pub fn ranges_max(bytes_max: usize) -> usize {
        ranges_max(bytes_max)
    }

    pub(super) fn decode(flags: u8, reader: &mut Reader<'_>) -> Result<ExpiryNotice, DecodeError> {
        let receiver =
            if flags & FLAG_DIRECTED != 0 { Some(Epoch::new(reader.u64()?).ok_or(DecodeError::Epoch)?) } else { None };
        Ok(ExpiryNotice { receiver, ranges: decode_ranges(reader)? })
    }

    /// Writes the body and returns the record's flags.
    pub(super) fn encode(&self, out: &mut BytesMut) -> u8 {
        if let Some(receiver) = self.receiver {
            out.put_u64(receiver.bits());
        }
        put_ranges(out, &self.ranges);
        if self.receiver.is_some() { FLAG_DIRECTED } else { 0 }
    }
}

fn ranges_max(bytes_max: usize) -> usize {
    let room = bytes_max.min(DATAGRAM_BYTES_MAX);
    room.saturating_sub(Header::SHORT_BYTES + RECORD_HEADER_BYTES + START_BYTES + CHECK_BYTES) / RANGE_BYTES
}

fn decode_ranges(reader: &mut Reader<'_>) -> Result<Vec<Range>, DecodeError> {
    let count = usize::from(reader.u16()?);
    if count == 0 {
        return Err(DecodeError::Ranges);
    }
    if reader.left() / RANGE_BYTES < count {
        return Err(DecodeError::Truncated);
    }
    let mut ranges = Vec::with_capacity(count);
    let mut before = 0;
    for _ in 0..count {
        let (first, last) = (number(reader.u64()?)?, number(reader.u64()?)?);
        if first <= before || last < first {
            return Err(DecodeError::Ranges);
        }
        before = last;
        ranges.push(Range { first: Dseq(first), last: Dseq(last) });
    }
    Ok(ranges)
}

fn put_ranges(out: &mut BytesMut, ranges: &[Range]) {
    assert!(!ranges.is_empty(), "requests and expiry notices name datagrams");
    out.put_u16(u16::try_from(ranges.len()).expect("no more ranges than a datagram holds"));
    let mut before = Dseq(0);
    for &Range { first, last } in ranges {
        assert!(before < first && first <= last, "ranges are ascending and disjoint");
        out.put_u64(first.0);
        out.put_u64(last.0);
        before = last;
    }
}
