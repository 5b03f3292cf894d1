//! The history: the most recent events of each subject that this peer publishes, for polls (seed 000) and for repair
//! (`docs/loss-accounting.md`, A7).
//!
//! The `log` stores events in records; events of one subject published together share a record. A table (`subjects`)
//! keeps the locations of the records with their subject. Recording an event takes at most one look-up. Short records
//! are copied; long ones refer to their datagram, and are copied once it holds little else that is retained.
//! Limits apply to each subject (count, bytes, time, by the first pattern that matches) and to the whole (bytes, all
//! tables included). At each limit the oldest events leave first. A subject without events leaves the table. The
//! offsets of a subject's events follow each other without a gap.

mod event;
mod listing;
mod log;
mod record;
mod retained;
mod settings;
mod subjects;
#[cfg(test)]
mod tests;

pub use event::{HistoryEvent, ListedSubject, Listing, Selection};
pub use listing::{HistoryRow, HistoryTotals};
pub use retained::{RetainedEvent, RetainedEvents};
pub use settings::{HistoryRule, HistorySettings};

use crate::message::{MESSAGE_BYTES_MAX, Message, MessageRef};
use crate::proto::subject_run::SubjectRunKey;
use crate::seqno::Seq;
use crate::subject::Pattern;
use crate::time::{ClockReading, Instant};
use crate::wire::entry;
use bytes::Bytes;
use log::HistoryLog;
use record::{HEAD_BYTES, LogRecord};
use settings::HistoryLimits;
use std::time::Duration;
use subjects::{EVENT_BYTES, EventRun, Slot, SlotId, SubjectTable};

/// Maximum size of a retained message, in bytes of payload, headers and reply subject. An answer with this message
/// alone is no larger than a message may be.
pub const EVENT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1024;

/// Minimum and maximum size of a segment of the log, in bytes. Small ones waste less at the ends; large ones are fewer.
const SEGMENT_BYTES: (usize, usize) = (4 * 1024, 128 * 1024);
/// Approximate number of segments of the log.
const SEGMENTS: usize = 512;
/// Maximum number of events of one record. The search for an event in it starts at the first.
const RUN_COUNT_MAX: usize = 32;
/// Divisor of a segment's bytes: a record of several events takes at most about this fraction of it, because the end of
/// a segment that is smaller than the next record may stay unused.
const RUNS_PER_SEGMENT: usize = 16;
/// Divisor of a subject's limits: a record takes at most this fraction of them, because the oldest run leaves as a
/// whole.
const RUN_SHARE: usize = 4;
/// Minimum bytes of the entries of a record that refers to its datagram. A smaller one is copied: the reference and its
/// part of the datagram take no less.
const REFERENCE_ENTRIES_MIN: usize = 256;
/// Minimum limit of the whole history, in bytes, with which it refers to datagrams: 64 of the longest. Each segment that
/// refers to a datagram counts all of it, which a smaller history has no room for. It copies.
const REFERENCE_TOTAL_MIN: usize = 4 << 20;
/// Divisor of the limit of the whole history: an event takes at most this fraction of it.
const SHARE: usize = 4;
/// Maximum number of subjects that are remembered as having no history.
const OFF_MAX: usize = 4096;
/// Number of records, dead ones among them, whose subjects are read together before they are evicted.
const READ_AHEAD: usize = 16;
/// Maximum number of records that one call of `on_tick` expires; bounds the pause.
const EXPIRE_STEPS: usize = 4096;

/// Messages of one subject to be retained together: publication of the first of them, and location of their entries.
#[derive(Clone, Copy, Debug)]
pub struct RunStart {
    /// Time of publication.
    pub now: ClockReading,
    /// Its sequence number.
    pub seq: Seq,
    /// Its offset.
    pub offset: u32,
    /// Location of its entry in the open datagram, which has at least
    /// [`RETAINED_BYTES_MIN`](crate::wire::RETAINED_BYTES_MIN) bytes already; `None` if the entries are to be copied.
    pub datagram_location: Option<usize>,
}

/// Entries to be recorded together.
#[derive(Clone, Copy)]
struct Entries {
    /// Number of entries, at least 1.
    count: u16,
    /// Bytes of payload, headers and reply subject.
    content_bytes: usize,
    /// Total bytes.
    bytes: usize,
    event: bool,
    meta: bool,
}

/// History described at the head of this file.
pub struct History {
    subjects: SubjectTable,
    log: HistoryLog,
    /// Patterns of the rules, in order.
    patterns: Box<[Pattern]>,
    /// Limits for all other subjects, then those of the rules.
    limits: Box<[HistoryLimits]>,
    /// Longest time of all rules.
    time_max: Duration,
    total_bytes_max: usize,
    /// True if long records refer to their datagram.
    has_references: bool,
    /// Hashes of subjects without a history, each at the index that its lowest bits name; empty if all have one.
    off: Box<[u64]>,
    is_off: bool,
    /// Slot of the subject recorded last, which is often recorded next, too, and its subject run.
    recent: Option<(SlotId, Option<u64>)>,
    /// Time up to which no event is too old for all rules.
    fresh_until: Instant,
    now: Instant,
    totals: HistoryTotals,
}

impl History {
    /// Creates an empty history; `seed` makes the hash unpredictable.
    ///
    /// # Panics
    /// If a rule has a count of 1, or there are more than 65,000 rules.
    pub fn new(settings: &HistorySettings, seed: u64) -> History {
        let segment_bytes = (settings.total_bytes_max / SEGMENTS).clamp(SEGMENT_BYTES.0, SEGMENT_BYTES.1);
        let limits = |count_max: u32, bytes_max: usize, time: Duration| {
            let share_bytes = bytes_max.min(settings.total_bytes_max / SHARE);
            assert_ne!(count_max, 1, "a history that is on has at least two events");
            HistoryLimits {
                count_max: count_max as usize,
                bytes_max,
                run_count_max: (count_max as usize / RUN_SHARE).clamp(1, RUN_COUNT_MAX),
                run_bytes_max: (share_bytes / RUN_SHARE).min(segment_bytes / RUNS_PER_SEGMENT),
                event_bytes_max: share_bytes.min(EVENT_BYTES + EVENT_BYTES_MAX),
                time,
            }
        };
        let default = limits(settings.count_max, settings.bytes_max, settings.time);
        let rules = settings.overrides.iter().map(|rule| limits(rule.count_max, rule.bytes_max, rule.time));
        let limits: Box<[HistoryLimits]> = std::iter::once(default).chain(rules).collect();
        assert!(limits.len() <= 65_000, "rules have numbers of 16 bits");
        let some_off = limits.iter().any(|limits| limits.count_max == 0);
        // A hash at an index that it does not belong to marks an empty entry.
        let off = if some_off { (0..OFF_MAX as u64).map(|at| !at).collect() } else { Box::default() };
        History {
            subjects: SubjectTable::new(seed),
            log: HistoryLog::new(segment_bytes),
            patterns: settings.overrides.iter().map(|rule| rule.pattern.clone()).collect(),
            time_max: limits.iter().map(|limits| limits.time).max().unwrap_or_default(),
            total_bytes_max: settings.total_bytes_max,
            has_references: REFERENCE_TOTAL_MIN <= settings.total_bytes_max,
            off,
            is_off: limits.iter().all(|limits| limits.count_max == 0),
            limits,
            recent: None,
            fresh_until: Instant::ZERO,
            now: Instant::ZERO,
            totals: HistoryTotals { bytes_max: settings.total_bytes_max as u64, ..HistoryTotals::default() },
        }
    }

    /// Returns whether no subject has a history.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Retains a message with this number and offset. If the offset does not follow that of the subject's last message,
    /// the subject was created anew, and its earlier events are dropped.
    pub fn record(&mut self, now: ClockReading, seq: Seq, offset: u32, message: &Message) {
        let start = RunStart { now, seq, offset, datagram_location: None };
        self.record_in(SubjectRunKey::from(&message.subject), None, start, message.into());
    }

    /// Retains a message of a subject run. Returns the subject's slot, if it has one, as a hint that speeds up the next
    /// look-up.
    pub fn record_in(
        &mut self,
        key: SubjectRunKey<'_>,
        slot: Option<u32>,
        start: RunStart,
        message: MessageRef<'_>,
    ) -> Option<u32> {
        let id = self.slot_of(key, slot.map(SlotId), start)?;
        let entries = Entries {
            count: 1,
            content_bytes: message.body_bytes(),
            bytes: entry::bytes_of(message),
            event: message.event,
            meta: message.has_meta(),
        };
        self.append(id, start, entries, |out| entry::put(out, message));
        Some(id.0)
    }

    /// Retains `count` plain messages of one subject that were published at one time, with consecutive numbers and
    /// offsets. `entries` are their entries in a RUN.
    pub fn record_run(&mut self, key: SubjectRunKey<'_>, first: RunStart, count: usize, entries: &[u8]) {
        let (mut taken, mut from) = (0, 0);
        while taken < count {
            let start = RunStart {
                // Offsets count modulo 2^32.
                offset: first.offset.wrapping_add(taken as u32),
                seq: first.seq.forward(taken as u64).expect("the numbers of a run are in one frame"),
                datagram_location: first.datagram_location.map(|at| at + from),
                ..first
            };
            let Some(id) = self.slot_of(key, None, start) else { return };
            let limits = &self.limits[usize::from(self.subjects.slot(id).rule)];
            let mut part = Entries { count: 0, content_bytes: 0, bytes: 0, event: false, meta: false };
            let mut at = from;
            for _ in 0..(count - taken).min(limits.run_count_max) {
                let (parts, next) = entry::parts(entries, at, false);
                let is_too_large = limits.event_bytes_max < EVENT_BYTES + parts.payload.len();
                let is_full = limits.run_bytes_max < part.content_bytes + parts.payload.len();
                if 0 < part.count && (is_full || is_too_large) {
                    break;
                }
                part.count += 1;
                part.content_bytes += parts.payload.len();
                (part.bytes, at) = (next - from, next);
                if is_too_large {
                    break;
                }
            }
            self.append(id, start, part, |out| out.extend_from_slice(&entries[from..at]));
            (taken, from) = (taken + usize::from(part.count), at);
        }
    }

    /// Retains the datagram that was open, if records refer to it. Their entries cannot be read before. The oldest
    /// events are evicted for it.
    pub fn attach(&mut self, datagram: &Bytes) {
        // Each segment that leaves may be one that refers to the datagram. If none is left, none refers to it.
        while self.log.awaits_datagram()
            && self.total_bytes_max < self.bytes() + self.log.attach_bytes(datagram.len())
            && self.free_memory(None)
        {}
        self.log.attach(datagram);
    }

    /// Returns the slot of the subject, adding it if needed; `slot` is a hint. `None` if the subject has no history, or
    /// there is no room for it.
    fn slot_of(
        &mut self,
        key: SubjectRunKey<'_>,
        slot: Option<SlotId>,
        RunStart { now, seq, offset, .. }: RunStart,
    ) -> Option<SlotId> {
        if self.is_off {
            return None;
        }
        self.now = self.now.max(now.instant);
        let (text, subject_run) = (key.text(), key.subject_run());
        let is_in = |id: SlotId| self.subjects.get(id).is_some_and(|slot| slot.text() == text);
        let id = match self.recent {
            Some((id, recent)) if subject_run.is_some() && subject_run == recent && self.subjects.get(id).is_some() => {
                id
            }
            recent => match slot.or(recent.map(|(id, _)| id)).filter(|id| is_in(*id)) {
                Some(id) => id,
                None => self.find_or_insert(text, offset, seq)?,
            },
        };
        self.recent = Some((id, subject_run));
        Some(id)
    }

    /// Returns the slot of a subject, adding it if needed. `None` if it has no history, or there is no room for it.
    fn find_or_insert(&mut self, text: &[u8], offset: u32, seq: Seq) -> Option<SlotId> {
        let hash = self.subjects.hash(text);
        if let Some(id) = self.subjects.find(hash, text) {
            return Some(id);
        }
        let rule = self.rule_of(hash, text)?;
        let bytes = self.subjects.insert_bytes(hash, text);
        if !self.make_room(bytes, None) {
            self.totals.evicted += 1;
            return None;
        }
        Some(self.subjects.insert(hash, text, rule, offset, seq))
    }

    /// Appends to the subject in this slot. If that exceeds one of the limits by itself, no earlier events are retained
    /// either.
    fn append(&mut self, id: SlotId, start: RunStart, entries: Entries, put: impl FnOnce(&mut Vec<u8>)) {
        if !self.try_append(id, start, entries, put) {
            while let Some(count) = self.take_oldest(id) {
                self.totals.replaced += count;
            }
            self.subjects.remove(id);
        }
    }

    /// Appends as [`History::append`] does. Returns false if the entries are too large.
    fn try_append(&mut self, id: SlotId, start: RunStart, entries: Entries, put: impl FnOnce(&mut Vec<u8>)) -> bool {
        let RunStart { now, seq, offset, datagram_location } = start;
        let slot = self.subjects.slot(id);
        let limits = self.limits[usize::from(slot.rule)];
        if limits.event_bytes_max < EVENT_BYTES + entries.content_bytes && entries.count == 1 {
            self.totals.too_large += u64::from(entries.count);
            return false;
        }
        if slot.next_offset() != offset {
            while let Some(count) = self.take_oldest(id) {
                self.totals.replaced += count;
            }
            self.subjects.slot_mut(id).begin_at(offset);
        }
        let has_reference = self.has_references && REFERENCE_ENTRIES_MIN <= entries.bytes;
        let datagram_location = datagram_location.filter(|_| has_reference);
        let record = LogRecord {
            slot: id,
            bytes: u32::try_from(HEAD_BYTES + entries.bytes).expect("messages have less than 4 GiB"),
            content_bytes: entries.content_bytes as u32,
            count: entries.count,
            event: entries.event,
            meta: entries.meta,
            is_reference: datagram_location.is_some(),
            offset,
            seq,
            instant: now.instant,
            wall: now.wall,
        };
        self.replace(id, entries.count.into(), record.counted_bytes());
        if limits.time < self.time_max {
            self.expire(id, limits.time);
        }
        if !self.log.has_room(&record) {
            if self.log.is_wasteful() {
                self.log.compact(&mut self.subjects);
            }
            let open_bytes = self.log.open_bytes(&record);
            if !self.make_room(open_bytes, Some(id)) {
                self.totals.evicted += u64::from(entries.count);
                return false;
            }
            self.log.open(&record);
        }
        // Making room may evict events of this very subject, but never the segment just opened.
        let push_bytes = self.subjects.push_bytes(id);
        if push_bytes != 0 && !self.make_room(push_bytes, Some(id)) {
            self.totals.evicted += u64::from(entries.count);
            return false;
        }
        let location = self.log.append(&record, datagram_location.map(|at| at as u32), put);
        let last = seq.forward(u64::from(entries.count) - 1).expect("the numbers of a run are in one frame");
        let LogRecord { bytes, content_bytes, count, .. } = record;
        self.subjects.push(id, EventRun { location, offset, bytes, content_bytes }, count, last);
        self.totals.events += u64::from(entries.count);
        true
    }

    /// Removes the oldest runs of a subject that exceed its limits once `coming` events of `coming_bytes` bytes are
    /// added.
    fn replace(&mut self, id: SlotId, coming: usize, coming_bytes: usize) {
        loop {
            let slot = self.subjects.slot(id);
            let limits = &self.limits[usize::from(slot.rule)];
            if slot.runs().is_empty() {
                return;
            }
            let younger = slot.len() - slot.count_of(0) + coming;
            if younger < limits.count_max {
                if slot.bytes + coming_bytes <= limits.bytes_max {
                    return;
                }
                if slot.bytes - slot.counted_bytes_of(0) + coming_bytes < limits.bytes_max {
                    return;
                }
            }
            self.totals.replaced += self.take_oldest(id).unwrap_or(0);
        }
    }

    /// Returns the rule of a subject that is not in the table; `None` if it has no history.
    fn rule_of(&mut self, hash: u64, text: &[u8]) -> Option<u16> {
        let index = hash as usize % OFF_MAX;
        if self.off.get(index) == Some(&hash) {
            return None;
        }
        let rule = self.patterns.iter().position(|pattern| pattern.matches_text(text)).map_or(0, |rule| rule + 1);
        if self.limits[rule].count_max == 0 {
            self.off[index] = hash;
            return None;
        }
        Some(rule as u16)
    }

    /// Frees memory until `bytes` more are within the limit. The slot `retained` stays even without events. Returns
    /// false if there is nothing more to free.
    fn make_room(&mut self, bytes: usize, retained: Option<SlotId>) -> bool {
        while self.total_bytes_max < self.bytes() + bytes {
            if !self.free_memory(retained) {
                return false;
            }
        }
        true
    }

    /// Compacts a segment with much garbage if there is one, and otherwise evicts the oldest segment. The slot
    /// `retained` stays even without events. Returns false if there is nothing to free.
    fn free_memory(&mut self, retained: Option<SlotId>) -> bool {
        self.log.compact(&mut self.subjects) || self.evict_segment(retained)
    }

    /// Evicts all events in the oldest segment. Returns false if there is none, or it holds no event.
    fn evict_segment(&mut self, retained: Option<SlotId>) -> bool {
        let Some(first) = self.log.first() else { return false };
        let mut evicted: usize = 0;
        // The log removes or empties the segment with the last of its events.
        while let Some((location, record)) = self.log.oldest(&self.subjects, usize::MAX)
            && location.segment == first
        {
            if evicted.is_multiple_of(READ_AHEAD) {
                self.read_ahead();
            }
            self.totals.evicted += self.take_oldest(record.slot).unwrap_or(0);
            self.remove_if_empty(record.slot, retained);
            evicted += 1;
            if self.log.first() != Some(first) {
                break;
            }
        }
        0 < evicted
    }

    /// Reads the subjects of the oldest records, dead ones among them, which are in no cache. The waits for memory thus
    /// overlap.
    fn read_ahead(&self) {
        for record in self.log.next_records(READ_AHEAD) {
            std::hint::black_box(self.subjects.get(record.slot).and_then(|slot| slot.runs().front()).copied());
        }
    }

    /// Removes the oldest run from a subject and returns the number of its events; `None` if there is none.
    fn take_oldest(&mut self, id: SlotId) -> Option<u64> {
        let (run, count) = self.subjects.pop(id)?;
        self.log.discard(run.location, run.bytes as usize);
        self.totals.events -= count as u64;
        Some(count as u64)
    }

    fn remove_if_empty(&mut self, id: SlotId, retained: Option<SlotId>) {
        if self.subjects.slot(id).len() == 0 && retained != Some(id) {
            self.subjects.remove(id);
        }
    }

    /// Removes the events of a subject that are older than `time`.
    fn expire(&mut self, id: SlotId, time: Duration) {
        while let Some(oldest) = self.subjects.slot(id).runs().front()
            && self.log.instant(oldest.location) + time < self.now
        {
            self.totals.expired += self.take_oldest(id).unwrap_or(0);
        }
    }

    /// Removes events that are older than all rules allow, a limited number with each call. The peer calls it once per
    /// turn of the loop; it costs nothing when nothing is due. Readers never get events that are too old by their own
    /// rule.
    pub fn on_tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.now <= self.fresh_until {
            return;
        }
        for _ in 0..EXPIRE_STEPS {
            let Some((_, record)) = self.log.oldest(&self.subjects, EXPIRE_STEPS) else { return };
            if self.now <= record.instant + self.time_max {
                // Later records are younger.
                self.fresh_until = record.instant + self.time_max;
                return;
            }
            self.totals.expired += self.take_oldest(record.slot).unwrap_or(0);
            self.remove_if_empty(record.slot, None);
        }
    }

    /// Returns the bytes allocated for events, subjects and tables, with an allowance for the allocator.
    pub fn bytes(&self) -> usize {
        self.subjects.bytes() + self.log.bytes()
    }

    /// Returns the retained events of a subject; `None` if there are none.
    pub fn retained(&self, subject: &[u8]) -> Option<RetainedEvents<'_>> {
        if self.is_off {
            return None;
        }
        let id = self.subjects.find(self.subjects.hash(subject), subject)?;
        self.retained_in(self.subjects.slot(id))
    }

    /// Returns the retained events in a slot; `None` if there are none.
    fn retained_in<'a>(&'a self, slot: &'a Slot) -> Option<RetainedEvents<'a>> {
        RetainedEvents::new(&self.log, &self.limits[usize::from(slot.rule)], self.now, slot)
    }
}
