//! The log of all retained messages, in the order of time. A record holds consecutive messages of one subject; a
//! segment holds records.
//!
//! The entries of a record follow its head, or lie in a datagram that its segment retains. A record may refer to the
//! datagram that is still open: the log gets it once it is sealed ([`HistoryLog::attach`]). Until then its entries
//! cannot be read.
//!
//! A segment is filled once. Dead records stay in it as garbage until the whole segment is released, or until it is
//! *packed*. Packing moves its live records, in order, to the end of the segment before, or into a smaller one that
//! replaces it; entries in datagrams are copied then. The order of time therefore holds over the whole log, and the
//! oldest records are always in the first segment. The table of subjects knows which records are live.

use super::record::LogRecord;
use super::subjects::{RecordLocation, SubjectTable};
use crate::time::Instant;
use crate::wire::sealed_allocation_max;
use bytes::Bytes;
use std::mem::size_of;

/// Divisor of a segment's bytes that gives its capacity for records if the first of them refers to a datagram.
const REFERENCES_PER_SEGMENT: usize = 16;
/// Minimum of that capacity, in bytes. The references to one datagram then lie in few segments, each of which counts it.
const REFERENCES_BYTES_MIN: usize = 4096;
/// Initial capacity of a segment's list of datagrams.
const DATAGRAMS_MIN: usize = 4;
/// End of the list of segments.
const NONE: u32 = u32::MAX;
/// Assumed overhead of the allocator for each allocation, in bytes.
const ALLOCATION_BYTES: usize = 16;
/// Divisor of a segment's bytes: the log packs a segment only if at least this fraction of it is garbage.
const GARBAGE_PARTS: usize = 4;

struct HistorySegment {
    /// Records; never more than the capacity that it was made with.
    bytes: Vec<u8>,
    /// Datagrams to which records refer.
    datagrams: Vec<Bytes>,
    /// Bytes that the datagrams keep allocated.
    datagram_bytes: usize,
    /// True if records refer to the datagram that is still open: it will be the next one in `datagrams`.
    awaits_datagram: bool,
    /// Bytes of the heads and entries of the records that are live.
    live_bytes: usize,
    before: u32,
    after: u32,
}

impl HistorySegment {
    fn new(bytes: usize, before: u32, after: u32) -> HistorySegment {
        HistorySegment {
            bytes: Vec::with_capacity(bytes),
            datagrams: Vec::new(),
            datagram_bytes: 0,
            awaits_datagram: false,
            live_bytes: 0,
            before,
            after,
        }
    }

    /// Returns the bytes in use, by live records or not.
    fn used_bytes(&self) -> usize {
        self.bytes.len() + self.datagram_bytes
    }

    /// Returns the bytes allocated.
    fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.datagram_bytes + self.datagrams.capacity() * size_of::<Bytes>()
    }

    /// Removes all records, which are dead.
    fn clear(&mut self) {
        self.bytes.clear();
        (self.datagrams, self.datagram_bytes, self.awaits_datagram) = (Vec::new(), 0, false);
    }
}

/// Log described at the head of this file.
pub(super) struct HistoryLog {
    segments: Vec<HistorySegment>,
    /// Oldest segment, and the one that is being filled.
    first: u32,
    last: u32,
    /// Segments without records and memory, linked by `after`.
    unused: u32,
    /// Number of segments that await the open datagram.
    awaiting: usize,
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
            awaiting: 0,
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

    /// Returns whether a record fits into the segment that is being filled.
    pub fn has_room(&self, record: &LogRecord) -> bool {
        let last = self.segments.get(self.last as usize);
        last.is_some_and(|last| {
            let is_full = last.datagram_bytes != 0 && self.segment_bytes < last.used_bytes() + record.bytes as usize;
            !is_full && record.stored_bytes() <= last.bytes.capacity() - last.bytes.len()
        })
    }

    /// Returns the capacity of a new segment for a record.
    fn capacity_for(&self, record: &LogRecord) -> usize {
        match record.is_reference {
            true => (self.segment_bytes / REFERENCES_PER_SEGMENT).max(REFERENCES_BYTES_MIN),
            false => self.segment_bytes.max(record.bytes as usize),
        }
    }

    /// Returns the bytes that a new segment for a record allocates.
    pub fn open_bytes(&self, record: &LogRecord) -> usize {
        let list = if self.unused == NONE && self.segments.len() == self.segments.capacity() {
            self.segments_next() * size_of::<HistorySegment>()
        } else {
            0
        };
        self.capacity_for(record) + ALLOCATION_BYTES + list
    }

    /// Begins a new segment, with room for a record.
    pub fn open(&mut self, record: &LogRecord) {
        let before = self.last;
        // The unused rest at its end is freed, if it is large.
        if let Some(last) = self.segments.get_mut(before as usize)
            && self.segment_bytes / 8 < last.bytes.capacity() - last.bytes.len()
        {
            self.bytes -= last.bytes.capacity();
            last.bytes.shrink_to_fit();
            self.bytes += last.bytes.capacity();
        }
        let fresh = HistorySegment::new(self.capacity_for(record), before, NONE);
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

    /// Appends a record; there must be room for it. `put` writes its entries behind its head, unless they lie in the
    /// open datagram, from byte `datagram_location` of it on.
    pub fn append(
        &mut self,
        record: &LogRecord,
        datagram_location: Option<u32>,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> RecordLocation {
        let segment = &mut self.segments[self.last as usize];
        let at = segment.bytes.len();
        assert!(record.stored_bytes() <= segment.bytes.capacity() - at, "the caller has opened a segment with room");
        segment.bytes.extend_from_slice(&record.encode());
        match datagram_location {
            Some(byte) => {
                segment.bytes.extend_from_slice(&(segment.datagrams.len() as u32).to_be_bytes());
                segment.bytes.extend_from_slice(&byte.to_be_bytes());
                self.awaiting += usize::from(!segment.awaits_datagram);
                segment.awaits_datagram = true;
            }
            None => put(&mut segment.bytes),
        }
        assert_eq!(segment.bytes.len(), at + record.stored_bytes(), "the head holds the length of the record");
        segment.live_bytes += record.bytes as usize;
        self.live_bytes += record.bytes as usize;
        RecordLocation { segment: self.last, at: at as u32 }
    }

    /// Returns whether records refer to the datagram that is still open.
    pub fn awaits_datagram(&self) -> bool {
        self.awaiting != 0
    }

    /// Returns the bytes that [`HistoryLog::attach`] allocates at most for a datagram of `bytes`.
    pub fn attach_bytes(&self, bytes: usize) -> usize {
        let (mut id, mut seen, mut total) = (self.last, 0, 0);
        while seen < self.awaiting {
            let segment = &self.segments[id as usize];
            if segment.awaits_datagram {
                let datagrams = &segment.datagrams;
                let is_full = datagrams.len() == datagrams.capacity();
                let list = if is_full { datagrams.len().max(DATAGRAMS_MIN) * size_of::<Bytes>() } else { 0 };
                total += sealed_allocation_max(bytes) + list;
                seen += 1;
            }
            id = segment.before;
        }
        total
    }

    /// Retains the datagram that was open in each segment that awaits it.
    pub fn attach(&mut self, datagram: &Bytes) {
        let mut id = self.last;
        while self.awaiting != 0 {
            let segment = &mut self.segments[id as usize];
            id = segment.before;
            if !std::mem::take(&mut segment.awaits_datagram) {
                continue;
            }
            self.bytes -= segment.heap_bytes();
            if segment.datagrams.len() == segment.datagrams.capacity() {
                segment.datagrams.reserve_exact(segment.datagrams.len().max(DATAGRAMS_MIN));
            }
            segment.datagrams.push(datagram.clone());
            segment.datagram_bytes += sealed_allocation_max(datagram.len());
            self.bytes += segment.heap_bytes();
            self.awaiting -= 1;
        }
    }

    /// Returns the head of a record, and its entries.
    pub fn record(&self, location: RecordLocation) -> (LogRecord, &[u8]) {
        let segment = &self.segments[location.segment as usize];
        let bytes = &segment.bytes[location.at as usize..];
        let record = LogRecord::first(bytes).expect("records begin with a head");
        (record, record.entries(bytes, &segment.datagrams))
    }

    /// Returns the time at which the events of a record were recorded.
    pub fn instant(&self, location: RecordLocation) -> Instant {
        self.record_at(location.segment, location.at as usize).expect("records begin with a head").1.instant
    }

    /// Returns the record in `segment` that begins at byte `at`, or `None` at its end.
    pub fn record_at(&self, segment: u32, at: usize) -> Option<(RecordLocation, LogRecord)> {
        let record = LogRecord::first(self.segments[segment as usize].bytes.get(at..)?)?;
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
        self.bytes -= segment.heap_bytes();
        self.awaiting -= usize::from(segment.awaits_datagram);
        segment.clear();
        self.bytes += segment.heap_bytes();
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
            self.dead_bytes += record.stored_bytes();
        }
        None
    }

    /// Returns the next records of the first segment, live or not.
    pub fn next_records(&self, count: usize) -> impl Iterator<Item = LogRecord> + '_ {
        let mut at = self.dead_bytes;
        (0..count).map_while(move |_| {
            let (_, record) = self.record_at(self.first()?, at)?;
            at += record.stored_bytes();
            Some(record)
        })
    }

    /// Packs the segment with the most garbage, if it has enough. Returns false if there is none.
    pub fn compact(&mut self, subjects: &mut SubjectTable) -> bool {
        let mut most = None;
        let mut id = self.first;
        while id != self.last {
            let segment = &self.segments[id as usize];
            // The entries of a live record may lie in the datagram that is still open.
            let garbage_bytes = segment.used_bytes().saturating_sub(segment.live_bytes);
            let has_much_garbage = !segment.awaits_datagram && segment.used_bytes() <= GARBAGE_PARTS * garbage_bytes;
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
        let joins = before != NONE && self.segments[before as usize].used_bytes() + live_bytes <= self.segment_bytes;
        let to = if joins { before } else { id };
        let segment = &mut self.segments[id as usize];
        self.bytes -= segment.heap_bytes();
        let (old, datagrams) = (std::mem::take(&mut segment.bytes), std::mem::take(&mut segment.datagrams));
        segment.datagram_bytes = 0;
        self.bytes += segment.heap_bytes();
        let packed = &mut self.segments[to as usize];
        self.bytes -= packed.heap_bytes();
        packed.bytes.reserve_exact(live_bytes);
        self.bytes += packed.heap_bytes();
        let mut at = 0;
        while let Some(record) = LogRecord::first(&old[at..]) {
            let location = RecordLocation { segment: id, at: at as u32 };
            if is_live(subjects, location, &record) {
                let moved = RecordLocation { segment: to, at: packed.bytes.len() as u32 };
                packed.bytes.extend_from_slice(&LogRecord { is_reference: false, ..record }.encode());
                packed.bytes.extend_from_slice(record.entries(&old[at..], &datagrams));
                subjects.relocate(record.slot, record.offset, moved);
            }
            at += record.stored_bytes();
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
        let unused = HistorySegment::new(0, NONE, self.unused);
        let segment = std::mem::replace(&mut self.segments[id as usize], unused);
        assert_eq!(segment.live_bytes, 0, "only segments without live records are released");
        self.unused = id;
        self.awaiting -= usize::from(segment.awaits_datagram);
        self.bytes -= segment.heap_bytes() + ALLOCATION_BYTES;
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
                at += record.stored_bytes();
            }
            id = self.segments[id as usize].after;
        }
        all
    }

    /// Returns the bytes of the heads and entries of the live records.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Returns the value that `awaiting` must have, computed from the segments, and its value.
    pub fn awaiting_segments(&self) -> [usize; 2] {
        [self.segments.iter().filter(|segment| segment.awaits_datagram).count(), self.awaiting]
    }

    /// Returns the value that `bytes` must have, computed from the segments.
    pub fn allocated_bytes(&self) -> usize {
        let segment = |segment: &HistorySegment| match segment.heap_bytes() {
            0 => 0,
            bytes => bytes + ALLOCATION_BYTES,
        };
        let list = self.segments.capacity() * size_of::<HistorySegment>();
        self.segments.iter().map(segment).sum::<usize>() + list
    }
}
