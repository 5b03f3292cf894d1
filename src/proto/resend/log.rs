//! A bounded log of numbered byte strings: it keeps the newest, evicts the oldest, and counts every byte that it keeps
//! alive.
//!
//! A short string is copied into a segment. It therefore cannot keep a long allocation alive, and needs no allocation of
//! its own. A long datagram is retained as it is, and counts with the memory that its allocation may have. The last
//! segment reserves all its room for copies. A segment with long datagrams returns the unused part to the allocator once
//! it is full. A segment is evicted as a whole, and its memory is reused for the next one.

use crate::time::Instant;
use crate::wire::{RETAINED_BYTES_MIN, sealed_allocation_max};
use bytes::Bytes;
use std::collections::VecDeque;
use std::mem::size_of;
use std::time::Duration;

/// Maximum size of a segment, in bytes. A full log has at least sixteen segments and evicts at most this number of
/// bytes at once.
const SEGMENT_BYTES_MAX: usize = 256 * 1024;

/// Size of the first segment of a log, in bytes, so that a little-used log is small; later segments grow with the log.
const SEGMENT_BYTES_MIN: usize = 2048;

/// Bytes of a segment for each entry that is reserved with it; the list of entries grows if it needs more.
const BYTES_PER_ENTRY: usize = 1024;

/// Location of an entry in its segment, with its time and `before` value relative to the segment's start.
#[derive(Clone, Copy, Debug)]
struct LogEntry {
    location: EntryLocation,
    /// Milliseconds, rounded up.
    millis: u32,
    before: u32,
}

/// Location of the bytes of an entry in its segment.
#[derive(Clone, Copy, Debug)]
enum EntryLocation {
    /// Byte at which the copy begins, and its length.
    Copied(u32, u32),
    /// Index among the retained datagrams.
    Retained(u32),
}

/// Consecutive entries, with one allocation for all copied bytes.
#[derive(Debug)]
struct LogSegment {
    first: u64,
    started: Instant,
    before: u64,
    entries: Vec<LogEntry>,
    /// Copied strings. The memory is allocated with the first of them.
    bytes: Vec<u8>,
    /// Datagrams that are retained as they are.
    retained: Vec<Bytes>,
    /// Bytes that the retained datagrams keep alive.
    retained_bytes: usize,
    /// Maximum bytes of all strings, unless there is only one.
    bytes_max: usize,
}

impl LogSegment {
    fn new(bytes_max: usize) -> LogSegment {
        LogSegment {
            first: 0,
            started: Instant::ZERO,
            before: 0,
            entries: Vec::with_capacity(entries_in(bytes_max)),
            bytes: Vec::new(),
            retained: Vec::new(),
            retained_bytes: 0,
            bytes_max,
        }
    }

    /// Empties the segment for entries from the number `first` on.
    fn restart(mut self, now: Instant, first: u64, before: u64) -> LogSegment {
        self.entries.clear();
        self.bytes.clear();
        self.retained.clear();
        LogSegment { first, started: now, before, retained_bytes: 0, ..self }
    }

    /// Returns the log entry for a byte string, or `None` if it does not fit in this segment.
    fn entry(&self, now: Instant, before: u64, source: EntrySource<'_>) -> Option<LogEntry> {
        let bytes_after = self.bytes.len() + self.retained_bytes + source.log_bytes();
        if self.bytes_max < bytes_after && !self.entries.is_empty() {
            return None;
        }
        let location = match source {
            EntrySource::Copy(bytes) => {
                EntryLocation::Copied(u32::try_from(self.bytes.len()).ok()?, u32::try_from(bytes.len()).ok()?)
            }
            EntrySource::Retain(_) => EntryLocation::Retained(u32::try_from(self.retained.len()).ok()?),
        };
        let millis = now.since(self.started).as_nanos().div_ceil(1_000_000);
        Some(LogEntry {
            location,
            millis: u32::try_from(millis).ok()?,
            before: u32::try_from(before.checked_sub(self.before)?).ok()?,
        })
    }

    /// Adds an entry, whose location is the next one.
    fn push(&mut self, entry: LogEntry, source: EntrySource<'_>) {
        match source {
            EntrySource::Retain(datagram) => {
                self.retained_bytes += source.log_bytes();
                self.retained.push(datagram.clone());
            }
            EntrySource::Copy(bytes) => {
                if self.bytes.capacity() < self.bytes.len() + bytes.len() {
                    let room = self.bytes_max.saturating_sub(self.retained_bytes + self.bytes.len());
                    self.bytes.reserve_exact(room.max(bytes.len()));
                }
                self.bytes.extend_from_slice(bytes);
            }
        }
        self.entries.push(entry);
    }

    /// Ends the segment, to which no entry will be added. The room that retained datagrams left unused is returned to the
    /// allocator; a segment of copies alone is nearly full and stays as it is, so that it can be reused.
    fn close(&mut self) {
        if !self.retained.is_empty() {
            self.bytes.shrink_to_fit();
        }
    }

    /// Returns the time at which the entry was written, at most a millisecond too late.
    fn time(&self, entry: &LogEntry) -> Instant {
        self.started + Duration::from_millis(u64::from(entry.millis))
    }

    fn get(&self, at: usize) -> Option<(u64, StoredBytes<'_>)> {
        let entry = self.entries.get(at)?;
        let bytes = match entry.location {
            EntryLocation::Copied(at, length) => StoredBytes::Copied(&self.bytes[at as usize..][..length as usize]),
            EntryLocation::Retained(index) => StoredBytes::Retained(&self.retained[index as usize]),
        };
        Some((self.before + u64::from(entry.before), bytes))
    }

    fn heap_bytes(&self) -> usize {
        let lists = self.entries.capacity() * size_of::<LogEntry>() + self.retained.capacity() * size_of::<Bytes>();
        self.bytes.capacity() + self.retained_bytes + lists
    }
}

/// Bytes of a new entry.
#[derive(Clone, Copy, Debug)]
pub enum EntrySource<'a> {
    /// Bytes that the log copies.
    Copy(&'a [u8]),
    /// A sealed datagram that the log retains. Its allocation is no larger than [`sealed_allocation_max`].
    Retain(&'a Bytes),
}

impl<'a> EntrySource<'a> {
    /// Returns the source of a sealed datagram: a long one is retained.
    pub fn of_datagram(datagram: &'a Bytes) -> EntrySource<'a> {
        if RETAINED_BYTES_MIN <= datagram.len() { EntrySource::Retain(datagram) } else { EntrySource::Copy(datagram) }
    }

    /// Returns the bytes of memory that the entry takes in a log.
    fn log_bytes(self) -> usize {
        match self {
            EntrySource::Copy(bytes) => bytes.len(),
            EntrySource::Retain(datagram) => sealed_allocation_max(datagram.len()),
        }
    }
}

/// Bytes of an entry in the log.
#[derive(Clone, Copy, Debug)]
pub enum StoredBytes<'a> {
    /// A copy in a segment.
    Copied(&'a [u8]),
    /// A datagram in the memory in which it was sealed.
    Retained(&'a Bytes),
}

impl<'a> StoredBytes<'a> {
    /// Returns the bytes, which are copied once more unless they are a retained datagram.
    pub fn to_bytes(self) -> Bytes {
        match self {
            StoredBytes::Copied(bytes) => Bytes::copy_from_slice(bytes),
            StoredBytes::Retained(datagram) => datagram.clone(),
        }
    }

    /// Returns the bytes.
    pub fn as_slice(self) -> &'a [u8] {
        match self {
            StoredBytes::Copied(bytes) => bytes,
            StoredBytes::Retained(datagram) => datagram,
        }
    }
}

/// Returns the number of entries reserved with a segment of this size.
fn entries_in(bytes: usize) -> usize {
    (bytes / BYTES_PER_ENTRY).max(1)
}

/// Log described at the head of this file.
#[derive(Debug)]
pub struct DatagramLog {
    segments: VecDeque<LogSegment>,
    /// Number of entries at the start of the first segment that were removed.
    removed: usize,
    /// Number of the next entry.
    next: u64,
    /// Bytes allocated by the segments.
    heap_bytes: usize,
    bytes_max: usize,
}

impl DatagramLog {
    /// Creates an empty log of at most `bytes_max` bytes, whose first entry will have the number `next`.
    pub fn new(bytes_max: usize, next: u64) -> DatagramLog {
        DatagramLog { segments: VecDeque::new(), removed: 0, next, heap_bytes: 0, bytes_max }
    }

    /// Returns the number of the oldest entry, or that of the next one if there is none.
    pub fn trail(&self) -> u64 {
        self.segments.front().map_or(self.next, |segment| segment.first + self.removed as u64)
    }

    /// Returns the number of the next entry.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the bytes of memory that the log keeps allocated, which never exceed its limit.
    pub fn bytes(&self) -> usize {
        self.heap_bytes + self.segments.capacity() * size_of::<LogSegment>()
    }

    /// Appends an entry with the next number. Neither `before` nor `now` ever decreases. The oldest entries are evicted
    /// for it; an entry larger than the log evicts all entries and is not kept.
    pub fn push(&mut self, now: Instant, before: u64, source: EntrySource<'_>) {
        let number = self.next;
        self.next += 1;
        let last = self.segments.back();
        let entry = match last.and_then(|segment| segment.entry(now, before, source)) {
            Some(entry) => entry,
            None => {
                self.close_last();
                let Some(segment) = self.take_segment(source) else { return };
                let segment = segment.restart(now, number, before);
                let entry = segment.entry(now, before, source).expect("the new segment has room for the entry");
                self.heap_bytes += segment.heap_bytes();
                self.segments.push_back(segment);
                entry
            }
        };
        let segment = self.segments.back_mut().expect("the last segment has room");
        self.heap_bytes -= segment.heap_bytes();
        segment.push(entry, source);
        self.heap_bytes += segment.heap_bytes();
        while self.bytes_max < self.bytes() && self.pop().is_some() {}
    }

    /// Ends the last segment, before another one begins.
    fn close_last(&mut self) {
        if let Some(last) = self.segments.back_mut() {
            self.heap_bytes -= last.heap_bytes();
            last.close();
            self.heap_bytes += last.heap_bytes();
        }
    }

    /// Returns an empty segment for an entry, evicting the oldest entries for it; `None` if there can be none.
    fn take_segment(&mut self, source: EntrySource<'_>) -> Option<LogSegment> {
        let bytes_max = (self.bytes_max / 16).min(SEGMENT_BYTES_MAX);
        let bytes = self.heap_bytes.max(SEGMENT_BYTES_MIN).min(bytes_max).max(source.log_bytes());
        // The memory for copies is allocated with the first of them.
        let (copied, retained) = match source {
            EntrySource::Copy(_) => (bytes, 0),
            EntrySource::Retain(_) => (0, source.log_bytes() + size_of::<Bytes>()),
        };
        let fresh = size_of::<LogSegment>() + copied + retained + entries_in(bytes) * size_of::<LogEntry>();
        let mut evicted = None;
        while self.bytes_max < self.bytes() + fresh {
            evicted = Some(self.pop()?);
        }
        let fits = |segment: &LogSegment| segment.bytes_max == bytes && segment.bytes.capacity() == copied;
        Some(evicted.filter(fits).unwrap_or_else(|| LogSegment::new(bytes)))
    }

    /// Removes the oldest segment. An empty log keeps no memory at all.
    fn pop(&mut self) -> Option<LogSegment> {
        let segment = self.segments.pop_front()?;
        self.heap_bytes -= segment.heap_bytes();
        self.removed = 0;
        if self.segments.is_empty() {
            self.segments = VecDeque::new();
        }
        Some(segment)
    }

    /// Removes all entries written `time` ago or earlier, at most a millisecond late.
    pub fn expire(&mut self, now: Instant, time: Duration) {
        while let Some(segment) = self.segments.front() {
            let is_over = |entry: &LogEntry| segment.time(entry) + time <= now;
            let entries = &segment.entries[self.removed..];
            if !is_over(entries.last().expect("a segment is never left empty")) {
                if is_over(&entries[0]) {
                    self.removed += entries.partition_point(is_over);
                }
                return;
            }
            self.pop();
        }
    }

    /// Returns the entry with this number, and its `before` value.
    pub fn find(&self, number: u64) -> Option<(u64, StoredBytes<'_>)> {
        if number < self.trail() || self.next <= number {
            return None;
        }
        let at = self.segments.partition_point(|segment| segment.first <= number).checked_sub(1)?;
        let segment = &self.segments[at];
        segment.get(usize::try_from(number - segment.first).ok()?)
    }

    /// Checks that the counted bytes are the allocated ones.
    pub fn assert_invariants(&self) {
        assert_eq!(self.heap_bytes, self.segments.iter().map(LogSegment::heap_bytes).sum::<usize>());
        assert!(self.bytes() <= self.bytes_max, "{} of at most {} bytes", self.bytes(), self.bytes_max);
        let mut next = self.segments.front().map_or(self.next, |segment| segment.first);
        for segment in &self.segments {
            assert!(segment.first == next && !segment.entries.is_empty(), "segments are contiguous and not empty");
            next += segment.entries.len() as u64;
        }
        assert_eq!(next, self.next);
        assert!(self.trail() <= self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Compares the log with a plain list, of which the log holds the end, unchanged.
    #[test]
    fn random_logs_agree_with_a_plain_list() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let bytes_max = [0, 100, 3000, 20_000, 300_000, 8_000_000][rng.below(6) as usize];
            let length_max = [0, 20, 1400, 9000][rng.below(4) as usize];
            let first = rng.between(1, 1000);
            let mut log = DatagramLog::new(bytes_max, first);
            let mut model: Vec<(Instant, u64, Vec<u8>)> = Vec::new();
            let (mut now, mut before) = (at(rng.below(1000)), rng.below(1 << 40));
            let mut expired = 0;
            for _ in 0..600 {
                now = now + Duration::from_nanos(rng.below(5_000_000));
                if rng.chance(0.01) {
                    now = now + Duration::from_secs(60 * 86_400);
                }
                let text = vec![rng.next_u64() as u8; rng.between(0, length_max) as usize];
                let datagram = Bytes::from(text.clone());
                log.push(now, before, EntrySource::of_datagram(&datagram));
                model.push((now, before, text));
                before += rng.below(40) + if rng.chance(0.01) { 1 << 33 } else { 0 };
                if rng.chance(0.1) {
                    let time = Duration::from_millis(rng.below(300));
                    log.expire(now, time);
                    // Times are rounded up to whole milliseconds of a segment.
                    let late = time + Duration::from_millis(1);
                    expired = model.iter().filter(|(written, _, _)| *written + late <= now).count();
                }
                log.assert_invariants();
                assert_eq!(log.next(), first + model.len() as u64);
                assert!(first + expired as u64 <= log.trail(), "seed {seed}");
                let number = rng.between(first, log.next());
                let expected = model.get((number - first) as usize).filter(|_| log.trail() <= number);
                let expected = expected.map(|(_, before, text)| (*before, Bytes::from(text.clone())));
                let found = log.find(number).map(|(before, bytes)| (before, bytes.to_bytes()));
                assert_eq!(found, expected, "seed {seed} number {number}");
            }
            assert!(log.find(0).is_none() && log.find(u64::MAX).is_none());
        }
    }

    #[test]
    fn log_fills_to_its_limit_and_expires_entries() {
        let mut log = DatagramLog::new(1 << 20, 1);
        for number in 0..10_000 {
            log.push(at(number), number, EntrySource::Copy(&[7; 1000]));
        }
        assert!(850 <= log.next() - log.trail(), "of 1 MiB, {} entries of 1000 bytes", log.next() - log.trail());
        log.expire(at(9_999), Duration::from_millis(10));
        assert_eq!(log.trail(), 9_991);
        assert!(log.find(9_990).is_none());
        let (before, bytes) = log.find(9_991).unwrap();
        assert_eq!((before, bytes.as_slice()), (9_990, &[7; 1000][..]));
        log.expire(at(20_000), Duration::ZERO);
        assert_eq!((log.trail(), log.bytes()), (10_001, 0), "an empty log keeps no memory");
    }

    #[test]
    fn short_entries_are_counted_with_their_overhead() {
        let mut log = DatagramLog::new(1 << 20, 1);
        for number in 0..200_000 {
            log.push(at(0), number, EntrySource::Copy(&[1; 40]));
        }
        let kept = (log.next() - log.trail()) as usize;
        assert!(kept * 60 <= log.bytes() && log.bytes() <= 1 << 20, "{kept} entries in {} bytes", log.bytes());
        assert!(13_000 <= kept, "{kept} entries");
    }

    #[test]
    fn long_entries_are_retained_without_a_copy() {
        let mut log = DatagramLog::new(1 << 20, 1);
        let datagrams: Vec<Bytes> = (0..1000).map(|number| Bytes::from(vec![number as u8; 8000])).collect();
        for (number, datagram) in datagrams.iter().enumerate() {
            log.push(at(0), number as u64, EntrySource::of_datagram(datagram));
            log.assert_invariants();
        }
        let kept = (log.next() - log.trail()) as usize;
        assert!(95 <= kept && kept * 8000 <= log.bytes(), "{kept} entries in {} bytes", log.bytes());
        for number in log.trail()..log.next() {
            let (_, StoredBytes::Retained(bytes)) = log.find(number).unwrap() else { panic!("{number} was copied") };
            assert_eq!(bytes.as_ptr(), datagrams[number as usize - 1].as_ptr());
        }
        assert!(datagrams[..1000 - kept].iter().all(Bytes::is_unique), "evicted entries keep nothing alive");
    }

    /// Fills a log with datagrams whose lengths repeat. Returns the number of datagrams that it keeps, and their bytes.
    fn fill(bytes_max: usize, lengths: &[usize]) -> (usize, usize) {
        let mut log = DatagramLog::new(bytes_max, 0);
        let length_of = |number: u64| lengths[number as usize % lengths.len()];
        let mut sent = 0;
        while sent < 3 * bytes_max {
            let length = length_of(log.next());
            log.push(at(0), log.next(), EntrySource::of_datagram(&Bytes::from(vec![1; length])));
            sent += length;
        }
        log.assert_invariants();
        let kept = log.trail()..log.next();
        (kept.clone().count(), kept.map(length_of).sum())
    }

    #[test]
    fn mixed_lengths_fill_the_log() {
        let (kept, bytes) = fill(1 << 20, &[100, 8000]);
        assert!(200 <= kept, "{kept} datagrams, {bytes} bytes");
        let mut lengths = [8000; 40];
        lengths[7] = 100;
        let (kept, bytes) = fill(1 << 20, &lengths);
        assert!(850_000 <= bytes, "{kept} datagrams, {bytes} bytes");
        let (kept, bytes) = fill(16 << 20, &[100, 1472]);
        assert!(13 << 20 <= bytes, "{kept} datagrams, {bytes} bytes");
        let (kept, bytes) = fill(16 << 20, &[1400]);
        assert!((16 << 20) * 19 / 20 <= bytes, "{kept} datagrams, {bytes} bytes");
    }
}
