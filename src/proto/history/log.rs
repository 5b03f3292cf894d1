//! The log of all retained messages, in the order of time. A record holds consecutive messages of one subject; a
//! segment holds records.
//!
//! A segment is filled once. Dead records stay in it as garbage until the whole segment is released, or until it is
//! *packed*. Packing moves its live records, in order, to the end of the segment before, or into a smaller one that
//! replaces it. The order of time therefore holds over the whole log, and the oldest records are always in the first
//! segment. The table of subjects knows which records are live.

use super::subjects::{RecordLocation, SlotId, SubjectTable, counted_bytes};
use crate::seqno::Seq;
use crate::time::{Instant, WallTime};
use std::mem::size_of;

/// Bytes of a record before its entries:
/// slot 4, bytes 4, content bytes 4, count 2, event 1, meta 1, offset 4, seq 8, instant 8, wall 8.
pub(super) const HEAD_BYTES: usize = 44;
/// End of the list of segments.
const NONE: u32 = u32::MAX;
/// Assumed overhead of the allocator for each allocation, in bytes.
const ALLOCATION_BYTES: usize = 16;
/// Divisor of a segment's bytes: the log packs a segment only if at least this fraction of it is garbage.
const GARBAGE_PARTS: usize = 4;

/// Head of a record: a run of events of one subject that were published at one time, with consecutive numbers and
/// offsets. The events follow it as the entries of a RUN on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogRecord {
    pub slot: SlotId,
    /// Bytes of the whole record.
    pub bytes: u32,
    /// Bytes of payload, headers and reply subject of its events.
    pub content_bytes: u32,
    /// Number of events; at least 1.
    pub count: u16,
    /// True if they are journalled events.
    pub event: bool,
    /// True if each entry has a meta part.
    pub meta: bool,
    /// Offset of the first event.
    pub offset: u32,
    /// Sequence number of the first event.
    pub seq: Seq,
    pub instant: Instant,
    pub wall: WallTime,
}

impl LogRecord {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0..4].copy_from_slice(&self.slot.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.content_bytes.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.count.to_be_bytes());
        bytes[14] = u8::from(self.event);
        bytes[15] = u8::from(self.meta);
        bytes[16..20].copy_from_slice(&self.offset.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.seq.raw().to_be_bytes());
        bytes[28..36].copy_from_slice(&self.instant.as_nanos().to_be_bytes());
        bytes[36..44].copy_from_slice(&self.wall.as_nanos().to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEAD_BYTES]) -> LogRecord {
        let u32_at = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        LogRecord {
            slot: SlotId(u32_at(0)),
            bytes: u32_at(4),
            content_bytes: u32_at(8),
            count: u16::from_be_bytes([bytes[12], bytes[13]]),
            event: bytes[14] != 0,
            meta: bytes[15] != 0,
            offset: u32_at(16),
            seq: Seq::new(u64_at(20)).expect("only numbers are stored"),
            instant: Instant::from_nanos(u64_at(28)),
            wall: WallTime::from_nanos(u64_at(36)),
        }
    }

    /// Returns the bytes of its events, as they count.
    pub fn counted_bytes(&self) -> usize {
        counted_bytes(self.count.into(), self.content_bytes)
    }
}

struct HistorySegment {
    /// Records; never more than the capacity that it was made with.
    bytes: Vec<u8>,
    /// Bytes of the records that are live.
    live_bytes: usize,
    before: u32,
    after: u32,
}

/// Log described at the head of this file.
pub(super) struct HistoryLog {
    segments: Vec<HistorySegment>,
    /// Oldest segment, and the one that is being filled.
    first: u32,
    last: u32,
    /// Segments without records and memory, linked by `after`.
    unused: u32,
    /// Bytes of the first segment that hold no live record.
    dead_bytes: usize,
    segment_bytes: usize,
    bytes: usize,
    live_bytes: usize,
}

impl HistoryLog {
    /// Creates an empty log. A segment has `segment_bytes`, or the bytes that its only record needs if they are more.
    pub fn new(segment_bytes: usize) -> HistoryLog {
        HistoryLog {
            segments: Vec::new(),
            first: NONE,
            last: NONE,
            unused: NONE,
            dead_bytes: 0,
            segment_bytes,
            bytes: 0,
            live_bytes: 0,
        }
    }

    /// Returns the bytes allocated, with an allowance for the allocator.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the garbage makes packing due although there is room.
    pub fn is_wasteful(&self) -> bool {
        2 * self.live_bytes + 16 * self.segment_bytes < self.bytes
    }

    /// Returns the oldest segment.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Returns whether a record of `bytes` fits into the segment that is being filled.
    pub fn has_room(&self, bytes: usize) -> bool {
        let last = self.segments.get(self.last as usize);
        last.is_some_and(|last| bytes <= last.bytes.capacity() - last.bytes.len())
    }

    /// Returns the bytes that a new segment for a record of `bytes` allocates.
    pub fn open_bytes(&self, bytes: usize) -> usize {
        let list = if self.unused == NONE && self.segments.len() == self.segments.capacity() {
            self.segments_next() * size_of::<HistorySegment>()
        } else {
            0
        };
        self.segment_bytes.max(bytes) + ALLOCATION_BYTES + list
    }

    /// Begins a new segment, with room for a record of `bytes`.
    pub fn open(&mut self, bytes: usize) {
        let before = self.last;
        // The unused rest at its end is freed, if it is large.
        if let Some(last) = self.segments.get_mut(before as usize)
            && self.segment_bytes / 8 < last.bytes.capacity() - last.bytes.len()
        {
            self.bytes -= last.bytes.capacity();
            last.bytes.shrink_to_fit();
            self.bytes += last.bytes.capacity();
        }
        let fresh = HistorySegment {
            bytes: Vec::with_capacity(self.segment_bytes.max(bytes)),
            live_bytes: 0,
            before,
            after: NONE,
        };
        self.bytes += fresh.bytes.capacity() + ALLOCATION_BYTES;
        let id = match self.segments.get_mut(self.unused as usize) {
            Some(unused) => {
                let id = self.unused;
                self.unused = unused.after;
                *unused = fresh;
                id
            }
            None => {
                if self.segments.len() == self.segments.capacity() {
                    let more = self.segments_next() - self.segments.len();
                    self.bytes -= self.segments.capacity() * size_of::<HistorySegment>();
                    self.segments.reserve_exact(more);
                    self.bytes += self.segments.capacity() * size_of::<HistorySegment>();
                }
                self.segments.push(fresh);
                self.segments.len() as u32 - 1
            }
        };
        match self.segments.get_mut(before as usize) {
            Some(before) => before.after = id,
            None => (self.first, self.dead_bytes) = (id, 0),
        }
        self.last = id;
        // The segment holds no live record any more.
        if before != NONE && self.segments[before as usize].live_bytes == 0 {
            self.release(before);
        }
    }

    /// Appends a record, whose entries `put` writes behind its head; there must be room for it.
    pub fn append(&mut self, record: &LogRecord, put: impl FnOnce(&mut Vec<u8>)) -> RecordLocation {
        let bytes = record.bytes as usize;
        let segment = &mut self.segments[self.last as usize];
        let at = segment.bytes.len();
        assert!(bytes <= segment.bytes.capacity() - at, "the caller has opened a segment with room");
        segment.bytes.extend_from_slice(&record.encode());
        put(&mut segment.bytes);
        assert_eq!(segment.bytes.len(), at + bytes, "the head holds the length of the record");
        segment.live_bytes += bytes;
        self.live_bytes += bytes;
        RecordLocation { segment: self.last, at: at as u32 }
    }

    /// Returns the head of a record, and the entries that follow it.
    pub fn record(&self, location: RecordLocation) -> (LogRecord, &[u8]) {
        let bytes = &self.segments[location.segment as usize].bytes[location.at as usize..];
        let (head, rest) = bytes.split_first_chunk().expect("records begin with a head");
        let record = LogRecord::decode(head);
        (record, &rest[..record.bytes as usize - HEAD_BYTES])
    }

    /// Returns the time at which the events of a record were recorded.
    pub fn instant(&self, location: RecordLocation) -> Instant {
        self.record(location).0.instant
    }

    /// Returns the record in `segment` that begins at byte `at`, or `None` at its end.
    pub fn record_at(&self, segment: u32, at: usize) -> Option<(RecordLocation, LogRecord)> {
        let head = self.segments[segment as usize].bytes.get(at..)?.first_chunk()?;
        let record = LogRecord::decode(head);
        Some((RecordLocation { segment, at: at as u32 }, record))
    }

    /// Marks a record of `bytes` as garbage. A segment of nothing but garbage is released.
    pub fn discard(&mut self, location: RecordLocation, bytes: usize) {
        let segment = &mut self.segments[location.segment as usize];
        segment.live_bytes -= bytes;
        self.live_bytes -= bytes;
        if segment.live_bytes != 0 {
            return;
        }
        if location.segment != self.last {
            self.release(location.segment);
            return;
        }
        // The segment is filled again from its start.
        segment.bytes.clear();
        if self.first == self.last {
            self.dead_bytes = 0;
        }
    }

    /// Returns the oldest live record, after skipping at most `steps` dead ones before it.
    pub fn oldest(&mut self, subjects: &SubjectTable, steps: usize) -> Option<(RecordLocation, LogRecord)> {
        let first = self.first()?;
        for _ in 0..steps {
            let (location, record) = self.record_at(first, self.dead_bytes)?;
            if is_live(subjects, location, &record) {
                return Some((location, record));
            }
            self.dead_bytes += record.bytes as usize;
        }
        None
    }

    /// Returns the next records of the first segment, live or not.
    pub fn next_records(&self, count: usize) -> impl Iterator<Item = LogRecord> + '_ {
        let mut at = self.dead_bytes;
        (0..count).map_while(move |_| {
            let (_, record) = self.record_at(self.first()?, at)?;
            at += record.bytes as usize;
            Some(record)
        })
    }

    /// Packs the segment with the most garbage, if it has enough. Returns false if there is none.
    pub fn compact(&mut self, subjects: &mut SubjectTable) -> bool {
        let mut most = None;
        let mut id = self.first;
        while id != self.last {
            let segment = &self.segments[id as usize];
            let garbage_bytes = segment.bytes.len() - segment.live_bytes;
            let has_much_garbage = segment.bytes.len() <= GARBAGE_PARTS * garbage_bytes;
            if has_much_garbage && most.is_none_or(|(bytes, _)| bytes < garbage_bytes) {
                most = Some((garbage_bytes, id));
            }
            id = segment.after;
        }
        let Some((_, id)) = most else { return false };
        self.compact_segment(id, subjects);
        true
    }

    fn compact_segment(&mut self, id: u32, subjects: &mut SubjectTable) {
        let HistorySegment { live_bytes, before, .. } = self.segments[id as usize];
        let joins = before != NONE && self.segments[before as usize].bytes.len() + live_bytes <= self.segment_bytes;
        let to = if joins { before } else { id };
        let old = std::mem::take(&mut self.segments[id as usize].bytes);
        self.bytes -= old.capacity();
        let packed = &mut self.segments[to as usize];
        self.bytes -= packed.bytes.capacity();
        packed.bytes.reserve_exact(live_bytes);
        self.bytes += packed.bytes.capacity();
        let mut at = 0;
        while let Some(head) = old[at..].first_chunk() {
            let record = LogRecord::decode(head);
            let location = RecordLocation { segment: id, at: at as u32 };
            if is_live(subjects, location, &record) {
                let moved = RecordLocation { segment: to, at: packed.bytes.len() as u32 };
                packed.bytes.extend_from_slice(&old[at..][..record.bytes as usize]);
                subjects.relocate(record.slot, record.offset, moved);
            }
            at += record.bytes as usize;
        }
        if self.first == to && !joins {
            self.dead_bytes = 0;
        }
        if joins {
            packed.live_bytes += live_bytes;
            self.segments[id as usize].live_bytes = 0;
            self.release(id);
        }
    }

    /// Removes a segment whose records are all dead or have moved.
    fn release(&mut self, id: u32) {
        let unused = HistorySegment { bytes: Vec::new(), live_bytes: 0, before: NONE, after: self.unused };
        let segment = std::mem::replace(&mut self.segments[id as usize], unused);
        assert_eq!(segment.live_bytes, 0, "only segments without live records are released");
        self.unused = id;
        self.bytes -= segment.bytes.capacity() + ALLOCATION_BYTES;
        match self.segments.get_mut(segment.before as usize) {
            Some(before) => before.after = segment.after,
            None => (self.first, self.dead_bytes) = (segment.after, 0),
        }
        match self.segments.get_mut(segment.after as usize) {
            Some(after) => after.before = segment.before,
            None => self.last = segment.before,
        }
    }

    fn segments_next(&self) -> usize {
        self.segments.len() + self.segments.len() / 4 + 4
    }
}

/// Returns whether the subject still points to this record.
fn is_live(subjects: &SubjectTable, location: RecordLocation, record: &LogRecord) -> bool {
    subjects.get(record.slot).is_some_and(|slot| slot.holds(record.offset, location))
}

#[cfg(test)]
impl HistoryLog {
    /// Returns every record, live or not, in order.
    pub fn records(&self) -> Vec<(RecordLocation, LogRecord)> {
        let mut all = Vec::new();
        let mut id = self.first;
        while id != NONE {
            let mut at = 0;
            while let Some((location, record)) = self.record_at(id, at) {
                all.push((location, record));
                at += record.bytes as usize;
            }
            id = self.segments[id as usize].after;
        }
        all
    }

    /// Returns the value that `bytes` must have, computed from the segments.
    pub fn allocated_bytes(&self) -> usize {
        let segment = |segment: &HistorySegment| match segment.bytes.capacity() {
            0 => 0,
            capacity => capacity + ALLOCATION_BYTES,
        };
        let list = self.segments.capacity() * size_of::<HistorySegment>();
        self.segments.iter().map(segment).sum::<usize>() + list
    }
}
