//! Records of the log: their heads, and the location of their entries.

use super::subjects::{SlotId, counted_bytes};
use crate::seqno::Seq;
use crate::time::{Instant, WallTime};
use bytes::Bytes;

/// Bytes of a record before its entries:
/// slot 4, bytes 4, content bytes 4, count 2, event 1, meta 1, offset 4, seq 8, instant 8, wall 8.
pub(super) const HEAD_BYTES: usize = 44;
/// Bytes behind the head of a record whose entries lie in a datagram: index of the datagram 4, its byte 4.
const REFERENCE_BYTES: usize = 8;

/// Head of a record: a run of events of one subject that were published at one time, with consecutive numbers and
/// offsets. The events follow it as the entries of a RUN on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogRecord {
    pub slot: SlotId,
    /// Bytes of the head and the entries.
    pub bytes: u32,
    /// Bytes of payload, headers and reply subject of its events.
    pub content_bytes: u32,
    /// Number of events; at least 1.
    pub count: u16,
    /// True if they are journalled events.
    pub event: bool,
    /// True if each entry has a meta part.
    pub meta: bool,
    /// True if a reference to its entries in a datagram follows the head.
    pub is_reference: bool,
    /// Offset of the first event.
    pub offset: u32,
    /// Sequence number of the first event.
    pub seq: Seq,
    pub instant: Instant,
    pub wall: WallTime,
}

impl LogRecord {
    /// Returns the encoded head.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0..4].copy_from_slice(&self.slot.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.content_bytes.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.count.to_be_bytes());
        bytes[14] = u8::from(self.event);
        bytes[15] = u8::from(self.meta) | u8::from(self.is_reference) << 1;
        bytes[16..20].copy_from_slice(&self.offset.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.seq.raw().to_be_bytes());
        bytes[28..36].copy_from_slice(&self.instant.as_nanos().to_be_bytes());
        bytes[36..44].copy_from_slice(&self.wall.as_nanos().to_be_bytes());
        bytes
    }

    /// Decodes a head.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> LogRecord {
        let u32_at = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        LogRecord {
            slot: SlotId(u32_at(0)),
            bytes: u32_at(4),
            content_bytes: u32_at(8),
            count: u16::from_be_bytes([bytes[12], bytes[13]]),
            event: bytes[14] != 0,
            meta: bytes[15] & 1 != 0,
            is_reference: bytes[15] & 2 != 0,
            offset: u32_at(16),
            seq: Seq::new(u64_at(20)).expect("only numbers are stored"),
            instant: Instant::from_nanos(u64_at(28)),
            wall: WallTime::from_nanos(u64_at(36)),
        }
    }

    /// Returns the bytes that it takes in the log.
    pub fn stored_bytes(&self) -> usize {
        if self.is_reference { HEAD_BYTES + REFERENCE_BYTES } else { self.bytes as usize }
    }

    /// Returns the bytes of its events, as they count.
    pub fn counted_bytes(&self) -> usize {
        counted_bytes(self.count.into(), self.content_bytes)
    }

    /// Returns the record at the start of `bytes`; `None` at the end of a segment.
    pub fn first(bytes: &[u8]) -> Option<LogRecord> {
        bytes.first_chunk().map(LogRecord::decode)
    }

    /// Returns the entries of this record, which is at the start of `bytes` in a segment with these datagrams. Only a
    /// live record, whose datagram is sealed, surely has them.
    pub fn entries<'a>(&self, bytes: &'a [u8], datagrams: &'a [Bytes]) -> &'a [u8] {
        let rest = &bytes[HEAD_BYTES..];
        let entries_bytes = self.bytes as usize - HEAD_BYTES;
        if !self.is_reference {
            return &rest[..entries_bytes];
        }
        let u32_at = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().expect("four bytes")) as usize;
        &datagrams[u32_at(0)][u32_at(4)..][..entries_bytes]
    }
}
