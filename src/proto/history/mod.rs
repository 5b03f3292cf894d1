//! The history: the most recent events of each subject that this peer publishes, for polls (seed 000) and for repair
//! (reliability.md A7, the second way).
//!
//! Every event is a record in one `log`, and its place is kept with its subject in a table (`subjects`). Recording
//! one is one look-up and one copy. Bounds hold for each subject (count, bytes, time, by the first rule whose
//! pattern matches) and for the whole (bytes, all tables included); at each of them the oldest events leave first. A subject without
//! events leaves the table. The offsets of a subject's events follow each other without a gap.

mod log;
mod subjects;
#[cfg(test)]
mod tests;

use crate::message::{Headers, MESSAGE_BYTES_MAX, Message};
use crate::offset::{Case, Modulus, Span};
use crate::seqno::Seq;
use crate::subject::{Pattern, Subject};
use crate::time::{Instant, Now, Wall};
use bytes::Bytes;
use log::{Log, RECORD_BYTES, Record};
use std::collections::BTreeMap;
use std::time::Duration;
use subjects::{Slot, SlotId, Subjects};

/// The largest message that is kept, in bytes of payload, headers and reply subject: an answer with this message alone
/// is no larger than a message may be.
pub const EVENT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1024;

/// The smallest and the largest segment of the log. Small ones waste less at the ends, large ones are fewer.
const SEGMENT_BYTES: (usize, usize) = (4 * 1024, 128 * 1024);
/// The log has about so many segments.
const SEGMENTS: usize = 512;
/// No event may take more than one part in so many of the whole history.
const SHARE: usize = 4;
/// Subjects that are remembered for having no history.
const OFF_MAX: usize = 4096;
/// Records that leave for their age with one call of `on_tick`; bounds the pause.
const EXPIRE_STEPS: usize = 4096;
/// Subjects that one call of `list` looks at; bounds the pause.
const LIST_STEPS: usize = 4096;

/// The bounds of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    /// M: events of each subject; at least 2, or 0 for none.
    pub count_max: u32,
    /// Bytes of the events of each subject: payload, headers, reply subject and 42 bytes each.
    pub bytes_max: usize,
    /// How long an event stays.
    pub time: Duration,
    /// Bytes of all events, subjects and tables together.
    pub total_bytes_max: usize,
    /// Other bounds for some subjects; the first whose pattern matches holds.
    pub overrides: Vec<HistoryRule>,
}

/// Bounds for the subjects that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRule {
    /// Which subjects.
    pub pattern: Pattern,
    /// M: events of each subject; at least 2, or 0 for none.
    pub count_max: u32,
    /// Bytes of the events of each subject, as in [`HistorySettings::bytes_max`].
    pub bytes_max: usize,
    /// How long an event stays.
    pub time: Duration,
}

/// An event, as it is given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEvent {
    /// Its number.
    pub seq: Seq,
    /// Its offset.
    pub offset: u32,
    /// When it was published.
    pub time: Wall,
    /// What was published.
    pub message: Message,
}

/// The answer to a poll with one offset (seed 000).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Case 1: the event after the offset.
    Event(HistoryEvent),
    /// Case 2: nothing new. The span is `None` if nothing is kept of the subject.
    NoEvent(Option<Span>),
    /// Case 3: the offset is not known, this is what there is.
    Recovery(Span),
}

/// Which part of what is kept of a subject, from its newest event back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// At most so many events.
    pub newest: Option<u32>,
    /// No older than this, by the publisher's own clock.
    pub age: Option<Duration>,
}

/// A subject in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The subject.
    pub subject: Subject,
    /// What was selected of it.
    pub span: Span,
}

/// Some subjects in the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The subjects, in no particular order.
    pub listed: Vec<Listed>,
    /// Where to go on, unless that was all.
    pub next: Option<u32>,
}

/// What is kept of one subject, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// The subject.
    pub subject: Subject,
    /// The events.
    pub span: Span,
    /// How many events.
    pub count: u64,
    /// Bytes of the events, as in [`HistorySettings::bytes_max`].
    pub bytes: u64,
    /// When the oldest was published.
    pub oldest: Wall,
    /// When the newest was published.
    pub newest: Wall,
}

/// The whole history, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryTotals {
    /// Subjects with events.
    pub subjects: u64,
    /// Events. Some may be too old to be given out, and leave soon.
    pub events: u64,
    /// Bytes allocated for events, subjects and tables.
    pub bytes: u64,
    /// The limit of those.
    pub bytes_max: u64,
    /// Events that left for the bounds of their subject in count and bytes, or because the subject's offsets began anew.
    pub replaced: u64,
    /// Events that left for their age.
    pub expired: u64,
    /// Events that left for the limit of all bytes.
    pub evicted: u64,
    /// Messages that were too large to be kept; nothing before them is kept either.
    pub too_large: u64,
}

/// The bounds of one rule.
#[derive(Clone, Copy)]
struct Limits {
    count_max: usize,
    bytes_max: usize,
    time: Duration,
}

/// See the head of this file.
pub struct History {
    subjects: Subjects,
    log: Log,
    /// The patterns of the rules, in order.
    patterns: Box<[Pattern]>,
    /// The bounds for all other subjects, then those of the rules.
    limits: Box<[Limits]>,
    /// The longest time of all rules.
    time_max: Duration,
    total_bytes_max: usize,
    /// Hashes of subjects without a history, each in the place that its lowest bits name; empty if all have one.
    off: Box<[u64]>,
    is_off: bool,
    /// The subject recorded last: often it is the next one, too.
    recent: Option<SlotId>,
    /// Until then nothing is too old for all rules.
    fresh_until: Instant,
    now: Instant,
    totals: HistoryTotals,
}

impl History {
    /// An empty history; `seed` makes the hash unpredictable.
    ///
    /// # Panics
    /// If a rule has a count of 1, or there are more than 65,000 rules.
    pub fn new(settings: &HistorySettings, seed: u64) -> History {
        let limits = |count_max: u32, bytes_max: usize, time: Duration| {
            assert_ne!(count_max, 1, "a history that is on has at least two events");
            Limits { count_max: count_max as usize, bytes_max, time }
        };
        let default = limits(settings.count_max, settings.bytes_max, settings.time);
        let rules = settings.overrides.iter().map(|rule| limits(rule.count_max, rule.bytes_max, rule.time));
        let limits: Box<[Limits]> = std::iter::once(default).chain(rules).collect();
        assert!(limits.len() <= 65_000, "rules have numbers of 16 bits");
        let some_off = limits.iter().any(|limits| limits.count_max == 0);
        // A hash in a place that it does not belong to stands for none.
        let off = if some_off { (0..OFF_MAX as u64).map(|at| !at).collect() } else { Box::default() };
        let segment_bytes = (settings.total_bytes_max / SEGMENTS).clamp(SEGMENT_BYTES.0, SEGMENT_BYTES.1);
        History {
            subjects: Subjects::new(seed),
            log: Log::new(segment_bytes),
            patterns: settings.overrides.iter().map(|rule| rule.pattern.clone()).collect(),
            time_max: limits.iter().map(|limits| limits.time).max().unwrap_or_default(),
            total_bytes_max: settings.total_bytes_max,
            off,
            is_off: limits.iter().all(|limits| limits.count_max == 0),
            limits,
            recent: None,
            fresh_until: Instant::ZERO,
            now: Instant::ZERO,
            totals: HistoryTotals { bytes_max: settings.total_bytes_max as u64, ..HistoryTotals::default() },
        }
    }

    /// Whether no subject has a history.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// Keeps a message that was given this number and this offset. If the offset does not follow that of the
    /// subject's last message, the subject was created anew and what was kept of it before goes.
    pub fn record(&mut self, now: Now, seq: Seq, offset: u32, message: &Message) {
        if self.is_off {
            return;
        }
        self.now = self.now.max(now.instant);
        let text = message.subject.as_bytes();
        let is_recent = |id: &SlotId| self.subjects.get(*id).is_some_and(|slot| slot.text() == text);
        let Some(id) = self.recent.filter(is_recent).or_else(|| self.enter(text, offset, seq)) else { return };
        self.recent = Some(id);
        if !self.append(now, id, seq, offset, message) {
            while self.take_oldest(id) {
                self.totals.replaced += 1;
            }
            self.subjects.remove(id);
        }
    }

    /// The slot of a subject, made if need be. `None` if it has no history, or there is no room for one.
    fn enter(&mut self, text: &[u8], offset: u32, seq: Seq) -> Option<SlotId> {
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

    /// Appends to the subject in this slot. False if the message is too large for one of the bounds.
    fn append(&mut self, now: Now, id: SlotId, seq: Seq, offset: u32, message: &Message) -> bool {
        let bytes = RECORD_BYTES + message.body_bytes();
        let slot = self.subjects.slot(id);
        let limits = self.limits[usize::from(slot.rule)];
        let bytes_max = limits.bytes_max.min(self.total_bytes_max / SHARE).min(RECORD_BYTES + EVENT_BYTES_MAX);
        if bytes_max < bytes {
            self.totals.too_large += 1;
            return false;
        }
        if slot.next_offset() != offset {
            while self.take_oldest(id) {
                self.totals.replaced += 1;
            }
            self.subjects.slot_mut(id).first = offset;
        }
        while self.subjects.slot(id).is_full(limits.count_max, limits.bytes_max - bytes) {
            self.take_oldest(id);
            self.totals.replaced += 1;
        }
        if limits.time < self.time_max {
            self.expire(id, limits.time);
        }
        if !self.log.has_room(bytes) {
            if self.log.is_wasteful() {
                self.log.pack(&mut self.subjects);
            }
            let open_bytes = self.log.open_bytes(bytes);
            if !self.make_room(open_bytes, Some(id)) {
                self.totals.evicted += 1;
                return false;
            }
            self.log.open(bytes);
        }
        // Making room may take events of this very subject, and the segment just opened is never taken.
        let push_bytes = self.subjects.push_bytes(id);
        if push_bytes != 0 && !self.make_room(push_bytes, Some(id)) {
            self.totals.evicted += 1;
            return false;
        }
        let place = self.log.append(now, id, seq, offset, message);
        self.subjects.push(id, seq, place);
        self.totals.events += 1;
        true
    }

    /// The rule of a subject that is not in the table; `None` if it has no history.
    fn rule_of(&mut self, hash: u64, text: &[u8]) -> Option<u16> {
        let place = hash as usize % OFF_MAX;
        if self.off.get(place) == Some(&hash) {
            return None;
        }
        let rule = self.patterns.iter().position(|pattern| pattern.matches_text(text)).map_or(0, |index| index + 1);
        if self.limits[rule].count_max == 0 {
            self.off[place] = hash;
            return None;
        }
        Some(rule as u16)
    }

    /// Frees memory until `bytes` more are within the limit: packs what is half empty, else gives up the oldest segment.
    /// The slot `kept` stays even without events. False if there is nothing more to free.
    fn make_room(&mut self, bytes: usize, kept: Option<SlotId>) -> bool {
        while self.total_bytes_max < self.bytes() + bytes {
            if !self.log.pack(&mut self.subjects) && !self.evict_segment(kept) {
                return false;
            }
        }
        true
    }

    /// Gives up all events in the oldest segment. False if there is none, or it holds no event.
    fn evict_segment(&mut self, kept: Option<SlotId>) -> bool {
        let Some(first) = self.log.first() else { return false };
        let mut evicted = false;
        // The segment goes, or is emptied, with the last of its events.
        while let Some((place, record)) = self.log.oldest(&self.subjects, usize::MAX)
            && place.segment == first
        {
            self.take_oldest(record.slot);
            self.forget_if_empty(record.slot, kept);
            self.totals.evicted += 1;
            evicted = true;
            if self.log.first() != Some(first) {
                break;
            }
        }
        evicted
    }

    /// Takes the oldest event from a subject; false if there is none.
    fn take_oldest(&mut self, id: SlotId) -> bool {
        let Some(place) = self.subjects.pop(id) else { return false };
        self.log.discard(place);
        self.totals.events -= 1;
        true
    }

    fn forget_if_empty(&mut self, id: SlotId, kept: Option<SlotId>) {
        if self.subjects.slot(id).len() == 0 && kept != Some(id) {
            self.subjects.remove(id);
        }
    }

    /// Takes the events from a subject that are older than `time`.
    fn expire(&mut self, id: SlotId, time: Duration) {
        while let Some(oldest) = self.subjects.slot(id).oldest()
            && self.log.instant(oldest) + time < self.now
        {
            self.take_oldest(id);
            self.totals.expired += 1;
        }
    }

    /// Lets events leave that are older than all rules allow, a limited number with each call. To be called once per turn of the
    /// loop; costs nothing when there is nothing to do. Events that are too old by their own rule are not given
    /// out in any case.
    pub fn on_tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.now <= self.fresh_until {
            return;
        }
        for _ in 0..EXPIRE_STEPS {
            let Some((_, record)) = self.log.oldest(&self.subjects, EXPIRE_STEPS) else { return };
            if self.now <= record.instant + self.time_max {
                // What comes later is younger.
                self.fresh_until = record.instant + self.time_max;
                return;
            }
            self.take_oldest(record.slot);
            self.forget_if_empty(record.slot, None);
            self.totals.expired += 1;
        }
    }

    /// Bytes allocated for events, subjects and tables, with an allowance for the allocator.
    pub fn bytes(&self) -> usize {
        self.subjects.bytes() + self.log.bytes()
    }

    /// What is kept of a subject; `None` if that is nothing.
    pub fn kept(&self, subject: &[u8]) -> Option<Kept<'_>> {
        if self.is_off {
            return None;
        }
        let id = self.subjects.find(self.subjects.hash(subject), subject)?;
        Kept::new(self, self.subjects.slot(id))
    }

    /// Answers a poll with offset `n`, as in the seed's table.
    pub fn poll(&self, subject: &Subject, n: u32) -> Polled {
        let Some(kept) = self.kept(subject.as_bytes()) else { return Polled::NoEvent(None) };
        match Span::answer(Some(kept.span), Modulus::WIRE, n) {
            Case::Successor => Polled::Event(kept.held(kept.index_after(n)).event(subject)),
            Case::NoEvent => Polled::NoEvent(Some(kept.span)),
            Case::Recovery => Polled::Recovery(kept.span),
        }
    }

    /// Up to `count_max` events that follow offset `n` and together have at most `bytes_max` bytes, though one
    /// at least; and whether there are more. Nothing if a poll with `n` gives no event.
    pub fn successors(
        &self,
        subject: &Subject,
        n: u32,
        count_max: usize,
        bytes_max: usize,
    ) -> (Vec<HistoryEvent>, bool) {
        let Some(kept) = self.kept(subject.as_bytes()) else { return (Vec::new(), false) };
        if Span::answer(Some(kept.span), Modulus::WIRE, n) != Case::Successor {
            return (Vec::new(), false);
        }
        let (mut events, mut bytes) = (Vec::new(), 0);
        for index in kept.index_after(n)..kept.len() {
            let held = kept.held(index);
            bytes += held.body_bytes();
            if count_max <= events.len() || !events.is_empty() && bytes_max < bytes {
                return (events, true);
            }
            events.push(held.event(subject));
        }
        (events, false)
    }

    /// The events of a subject whose numbers are from `first` to `last`.
    pub fn by_seq(&self, subject: &Subject, first: Seq, last: Seq) -> Vec<HistoryEvent> {
        let Some(kept) = self.kept(subject.as_bytes()) else { return Vec::new() };
        (kept.index_of(first)..kept.index_past(last)).map(|index| kept.held(index).event(subject)).collect()
    }

    /// Up to `limit` subjects that match `pattern`, with what is selected of them. `from` is 0 at first, then what the
    /// listing before gave as next. A subject that is in the history all the time is listed exactly once. One call looks at a limited
    /// number of subjects, so a listing that is not the last may hold few, or none.
    pub fn list(&self, pattern: &Pattern, selection: Selection, from: u32, limit: usize) -> Listing {
        let listed = |slot| {
            let span = Kept::new(self, slot)?.select(selection)?;
            let subject = Subject::from_bytes(Bytes::copy_from_slice(slot.text())).expect("only subjects are stored");
            Some(Listed { subject, span })
        };
        let mut listing = Listing::default();
        if let Ok(subject) = pattern.as_str().parse::<Subject>() {
            let text = subject.as_bytes();
            let id = self.subjects.find(self.subjects.hash(text), text);
            listing.listed.extend(id.filter(|_| from == 0).and_then(|id| listed(self.subjects.slot(id))));
            return listing;
        }
        let (slots, next) = self.subjects.scan(from, LIST_STEPS);
        for (id, slot) in slots {
            if listing.listed.len() == limit {
                listing.next = Some(id.0);
                return listing;
            }
            if pattern.matches_text(slot.text()) {
                listing.listed.extend(listed(slot));
            }
        }
        listing.next = next;
        listing
    }

    /// The first `limit` subjects that match, in their order, for people, and how many more there are. Looks at all.
    pub fn rows(&self, pattern: &Pattern, limit: usize) -> (Vec<HistoryRow>, u64) {
        let mut first: BTreeMap<&[u8], &Slot> = BTreeMap::new();
        let mut omitted = 0;
        for slot in self.subjects.iter().filter(|slot| pattern.matches_text(slot.text())) {
            first.insert(slot.text(), slot);
            if limit < first.len() {
                first.pop_last();
                omitted += 1;
            }
        }
        let row = |slot: &Slot| {
            let kept = Kept::new(self, slot)?;
            Some(HistoryRow {
                subject: Subject::from_bytes(Bytes::copy_from_slice(slot.text())).expect("only subjects are stored"),
                span: kept.span,
                count: kept.len() as u64,
                bytes: slot.bytes as u64,
                oldest: kept.held(0).time,
                newest: kept.held(kept.len() - 1).time,
            })
        };
        (first.into_values().filter_map(row).collect(), omitted)
    }

    /// The whole history, for people.
    pub fn totals(&self) -> HistoryTotals {
        HistoryTotals { subjects: self.subjects.len() as u64, bytes: self.bytes() as u64, ..self.totals }
    }
}

/// What is kept of one subject: at least one event, none of them too old.
#[derive(Clone, Copy)]
pub struct Kept<'a> {
    history: &'a History,
    slot: &'a Slot,
    /// Events at the front that are too old.
    skipped: usize,
    /// The events.
    pub span: Span,
}

impl<'a> Kept<'a> {
    fn new(history: &'a History, slot: &'a Slot) -> Option<Kept<'a>> {
        let time = history.limits[usize::from(slot.rule)].time;
        let is_too_old = |record: &Record| record.instant + time < history.now;
        let mut first = history.log.record(slot.oldest()?).0;
        let mut skipped = 0;
        if is_too_old(&first) {
            skipped = partition(slot.len(), |index| is_too_old(&history.log.record(slot.place(index)).0));
            if skipped == slot.len() {
                return None;
            }
            first = history.log.record(slot.place(skipped)).0;
        }
        let last = slot.next_offset().wrapping_sub(1);
        let span = Span { first: first.offset, last, first_seq: first.seq, last_seq: slot.last_seq };
        Some(Kept { history, slot, skipped, span })
    }

    /// How many events; at least 1.
    pub fn len(&self) -> usize {
        self.slot.len() - self.skipped
    }

    /// Never: what is kept is at least one event.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The event with this index, from the oldest.
    ///
    /// # Panics
    /// If there are fewer events.
    pub fn held(&self, index: usize) -> Held<'a> {
        let (record, body) = self.history.log.record(self.slot.place(self.skipped + index));
        let (reply, rest) = body.split_at(usize::from(record.reply_bytes));
        let (headers, payload) = rest.split_at(record.headers_bytes as usize);
        let Record { seq, offset, wall: time, event, .. } = record;
        Held { seq, offset, time, event, reply, headers, payload }
    }

    /// The index of the event after the one with offset `n`; beyond the last if there is none.
    pub fn index_after(&self, n: u32) -> usize {
        n.wrapping_add(1).wrapping_sub(self.span.first) as usize
    }

    /// The index of the first event whose number is `seq` or higher.
    pub fn index_of(&self, seq: Seq) -> usize {
        partition(self.len(), |index| self.held(index).seq < seq)
    }

    /// The index after the last event whose number is `seq` or lower.
    pub fn index_past(&self, seq: Seq) -> usize {
        partition(self.len(), |index| self.held(index).seq <= seq)
    }

    /// The part that is selected, if it has any event.
    pub fn select(&self, selection: Selection) -> Option<Span> {
        let newest = selection.newest.map_or(0, |newest| self.len().saturating_sub(newest as usize));
        let young = selection.age.map_or(0, |age| {
            let since = self.history.now - age;
            partition(self.len(), |index| self.instant(index) < since)
        });
        let index = newest.max(young);
        if self.len() <= index {
            return None;
        }
        let first = self.held(index);
        Some(Span { first: first.offset, first_seq: first.seq, ..self.span })
    }

    fn instant(&self, index: usize) -> Instant {
        self.history.log.instant(self.slot.place(self.skipped + index))
    }
}

/// An event where it lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    /// Its number.
    pub seq: Seq,
    /// Its offset.
    pub offset: u32,
    /// When it was published.
    pub time: Wall,
    /// Whether it is a journalled event.
    pub event: bool,
    /// The reply subject; empty if there is none.
    pub reply: &'a [u8],
    /// The header fields.
    pub headers: &'a [u8],
    /// The content.
    pub payload: &'a [u8],
}

impl Held<'_> {
    /// Bytes of payload, headers and reply subject.
    pub fn body_bytes(&self) -> usize {
        self.reply.len() + self.headers.len() + self.payload.len()
    }

    /// A copy that can be given out.
    pub fn event(&self, subject: &Subject) -> HistoryEvent {
        let reply = (!self.reply.is_empty())
            .then(|| Subject::from_bytes(Bytes::copy_from_slice(self.reply)).expect("only messages are recorded"));
        let message = Message {
            subject: subject.clone(),
            reply,
            headers: Headers::from_block(Bytes::copy_from_slice(self.headers)),
            payload: Bytes::copy_from_slice(self.payload),
            event: self.event,
        };
        HistoryEvent { seq: self.seq, offset: self.offset, time: self.time, message }
    }
}

/// How many of the first numbers below `len` fulfil a condition that none fulfils after one that does not.
fn partition(len: usize, condition: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if condition(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
