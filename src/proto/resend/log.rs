//! A bounded log of numbered byte strings: it keeps the newest, evicts the oldest, and owns every byte it counts.
//!
//! The strings are copied into segments. A short one therefore cannot keep a long allocation alive, and an entry needs
//! no allocation of its own. A segment is evicted as a whole, and its memory is reused for the next one.

use crate::time::Instant;
use std::collections::VecDeque;
use std::mem::size_of;
use std::time::Duration;

/// Maximum size of a segment, in bytes. A full log has at least sixteen segments and evicts at most this number of
/// bytes at once.
const SEGMENT_BYTES_MAX: usize = 256 * 1024;

/// Size of the first segment of a log, in bytes, so that a little-used log is small; later segments grow with the log.
const SEGMENT_BYTES_MIN: usize = 2048;

/// Bytes of a segment for each entry that is reserved with it; the list of entries grows if it needs more.
const BYTES_PER_ENTRY: usize = 512;

/// End of an entry in its segment, with its time and `before` value relative to the segment's start.
#[derive(Clone, Copy, Debug)]
struct LogEntry {
    end: u32,
    /// Milliseconds, rounded up.
    millis: u32,
    before: u32,
}

/// Consecutive entries in one allocation.
#[derive(Debug)]
struct LogSegment {
    first: u64,
    started: Instant,
    before: u64,
    entries: Vec<LogEntry>,
    bytes: Vec<u8>,
}

impl LogSegment {
    fn new(bytes: usize) -> LogSegment {
        let entries = Vec::with_capacity(entries_in(bytes));
        LogSegment { first: 0, started: Instant::ZERO, before: 0, entries, bytes: Vec::with_capacity(bytes) }
    }

    /// Empties the segment for entries from the number `first` on.
    fn restart(mut self, now: Instant, first: u64, before: u64) -> LogSegment {
        self.entries.clear();
        self.bytes.clear();
        LogSegment { first, started: now, before, ..self }
    }

    /// Returns the log entry for a byte string, or `None` if it does not fit in this segment.
    fn entry(&self, now: Instant, before: u64, bytes: usize) -> Option<LogEntry> {
        let end = self.bytes.len() + bytes;
        if self.bytes.capacity() < end {
            return None;
        }
        let millis = now.since(self.started).as_nanos().div_ceil(1_000_000);
        Some(LogEntry {
            end: u32::try_from(end).ok()?,
            millis: u32::try_from(millis).ok()?,
            before: u32::try_from(before.checked_sub(self.before)?).ok()?,
        })
    }

    /// Returns the time at which the entry was written, at most a millisecond too late.
    fn time(&self, entry: &LogEntry) -> Instant {
        self.started + Duration::from_millis(u64::from(entry.millis))
    }

    fn get(&self, at: usize) -> Option<(u64, &[u8])> {
        let entry = self.entries.get(at)?;
        let start = at.checked_sub(1).map_or(0, |at| self.entries[at].end as usize);
        Some((self.before + u64::from(entry.before), &self.bytes[start..entry.end as usize]))
    }

    fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<LogEntry>()
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

    /// Returns the bytes of memory that the log has allocated, which never exceed its limit.
    pub fn bytes(&self) -> usize {
        self.heap_bytes + self.segments.capacity() * size_of::<LogSegment>()
    }

    /// Appends an entry with the next number. Neither `before` nor `now` ever decreases. The oldest entries are evicted
    /// for it; an entry larger than the log evicts all entries and is not kept.
    pub fn push(&mut self, now: Instant, before: u64, bytes: &[u8]) {
        let number = self.next;
        self.next += 1;
        let last = self.segments.back();
        let entry = match last.and_then(|segment| segment.entry(now, before, bytes.len())) {
            Some(entry) => entry,
            None => {
                let Some(segment) = self.take_segment(bytes.len()) else { return };
                let segment = segment.restart(now, number, before);
                let entry = segment.entry(now, before, bytes.len()).expect("the new segment has room for the entry");
                self.heap_bytes += segment.heap_bytes();
                self.segments.push_back(segment);
                entry
            }
        };
        let segment = self.segments.back_mut().expect("the last segment has room");
        self.heap_bytes -= segment.heap_bytes();
        segment.bytes.extend_from_slice(bytes);
        segment.entries.push(entry);
        self.heap_bytes += segment.heap_bytes();
        while self.bytes_max < self.bytes() && self.pop().is_some() {}
    }

    /// Returns an empty segment that fits an entry, evicting the oldest entries for it; `None` if there can be none.
    fn take_segment(&mut self, entry_bytes: usize) -> Option<LogSegment> {
        let bytes_max = (self.bytes_max / 16).min(SEGMENT_BYTES_MAX);
        let bytes = self.heap_bytes.max(SEGMENT_BYTES_MIN).min(bytes_max).max(entry_bytes);
        let mut evicted = None;
        let fresh = size_of::<LogSegment>() + bytes + entries_in(bytes) * size_of::<LogEntry>();
        while self.bytes_max < self.bytes() + fresh {
            evicted = Some(self.pop()?);
        }
        let fits = |segment: &LogSegment| segment.bytes.capacity() == bytes;
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
    pub fn find(&self, number: u64) -> Option<(u64, &[u8])> {
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
                log.push(now, before, &text);
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
                let expected = expected.map(|(_, before, text)| (*before, text.as_slice()));
                assert_eq!(log.find(number), expected, "seed {seed} number {number}");
            }
            assert_eq!((log.find(0), log.find(u64::MAX)), (None, None));
        }
    }

    #[test]
    fn log_fills_to_its_limit_and_expires_entries() {
        let mut log = DatagramLog::new(1 << 20, 1);
        for number in 0..10_000 {
            log.push(at(number), number, &[7; 1000]);
        }
        assert!(850 <= log.next() - log.trail(), "of 1 MiB, {} entries of 1000 bytes", log.next() - log.trail());
        log.expire(at(9_999), Duration::from_millis(10));
        assert_eq!(log.trail(), 9_991);
        assert_eq!(log.find(9_990), None);
        assert_eq!(log.find(9_991), Some((9_990, &[7; 1000][..])));
        log.expire(at(20_000), Duration::ZERO);
        assert_eq!((log.trail(), log.bytes()), (10_001, 0), "an empty log keeps no memory");
    }

    #[test]
    fn short_entries_are_counted_with_their_overhead() {
        let mut log = DatagramLog::new(1 << 20, 1);
        for number in 0..200_000 {
            log.push(at(0), number, &[1; 40]);
        }
        let kept = (log.next() - log.trail()) as usize;
        assert!(kept * 52 <= log.bytes() && log.bytes() <= 1 << 20, "{kept} entries in {} bytes", log.bytes());
        assert!(13_000 <= kept, "{kept} entries");
    }
}
