//! The publication and the subscription window: the last number of each stream, bounded by size and time (seed 002).
//!
//! A window has two generations. When the current one is larger than `bytes` (or an entry was refused) and at least
//! `time` old, a rotation makes it the previous one, and what was the previous one before leaves. Use of an entry moves it into the current
//! generation, so only entries that were idle for at least `time` ever leave (reliability.md A8, R11). Those that have to
//! leave do so a few at a time with each call of `rotate_if_due`, so that no rotation of a large window stops
//! the peer; an entry that is used before its turn stays.
//!
//! `bytes_max` is a hard limit: beyond it no new entry is made, while those that exist go on. No loss is missed for it,
//! because detection lives in the datagrams (R9).

mod table;

use crate::message::{Dseq, Stamp};
use crate::proto::WindowSettings;
use crate::proto::mutant::{Mutant, Mutants};
use crate::proto::stats::WindowRow;
use crate::proto::subject_run::SubjectRunKey;
use crate::rng::Rng;
use crate::seqno::{COUNT_MAX, Frame, Seq};
use crate::subject::Subject;
use crate::time::{ClockReading, Instant};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::mem::size_of;
use table::{EntryIndex, Sweep, WindowEntry, WindowTable};

/// The least number of entries that one call of `rotate_if_due` looks at while a rotation is under way.
const SWEEP_STEPS: usize = 2048;
/// The most calls of `rotate_if_due` that one rotation takes.
const SWEEP_CALLS: usize = 64;

/// What to write into a message that is to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// A number of its own.
    Numbered {
        /// The number.
        seq: Seq,
        /// The offset in the subject's history, modulo 2^32 (seed 000). A subject that is new, or comes back after it
        /// left the window, starts at a random one; a full frame does not interrupt the counting.
        offset: u32,
        /// With the first message of a frame: its date and the offset in the history.
        stamp: Option<Stamp>,
        /// The last number of the frame before, if the count ran over.
        chain: Option<Seq>,
    },
    /// No memory is left for another subject: the message goes out without a number (R9).
    Unnumbered,
    /// No frame is left (after 2116, or after the clock was there): the peer must begin a new epoch (R10).
    FramesExhausted,
}

/// The last number of each subject that this peer publishes, and the frames of new ones.
pub struct PubWindow {
    streams: RotatingTable<PubEntry>,
    frame_messages_max: u64,
    /// The highest frame of all entries that have left in this epoch.
    floor: Option<Frame>,
    /// Where the subject numbered last stands, unless it was new; until the next rotation.
    numbered: Option<EntryIndex>,
    mutants: Mutants,
}

impl PubWindow {
    /// An empty window. A frame holds `frame_messages_max` messages, at least 1 and at most 2^35 - 1; `seed` makes
    /// the hash unpredictable.
    pub fn new(settings: WindowSettings, frame_messages_max: u64, seed: u64) -> PubWindow {
        let frame_messages_max = frame_messages_max.clamp(1, COUNT_MAX);
        PubWindow {
            streams: RotatingTable::new(settings, seed),
            frame_messages_max,
            floor: None,
            numbered: None,
            mutants: Mutants::default(),
        }
    }

    /// The same window with a deliberate mistake, for the tests of the simulator's oracle.
    pub fn mutated(self, mutants: Mutants) -> PubWindow {
        PubWindow { mutants, ..self }
    }

    /// Gives the next number of `subject`. A clock that is set back never lowers one: a new frame comes after every
    /// frame that has left the window (R10).
    pub fn number<'a>(&mut self, subject: impl Into<SubjectRunKey<'a>>, now: ClockReading, rng: &mut Rng) -> Numbering {
        let key = subject.into();
        let stamp = |frame: Frame, offset| Stamp { time: now.wall.max(frame.start()), offset };
        self.numbered = self.streams.place(OWN, key);
        if let Some(place) = self.numbered {
            let entry = self.streams.table.entry_mut(place);
            let last = entry.last;
            if last.count() < self.frame_messages_max {
                entry.last = last.forward(1).expect("the count is below its maximum");
                return Numbering::Numbered { seq: entry.last, offset: entry.offset_last(), stamp: None, chain: None };
            }
            let clock = Frame::at(now.wall);
            // Rule: frame
            // The next frame says which number it continues.
            let Some(next) = last.frame().next() else { return Numbering::FramesExhausted };
            let frame = clock.max(next);
            entry.last = frame.first();
            // Offsets count modulo 2^32.
            entry.offset = entry.offset.wrapping_add(last.count() as u32);
            let (seq, offset) = (entry.last, entry.offset);
            return Numbering::Numbered { seq, offset, stamp: Some(stamp(frame, offset)), chain: Some(last) };
        }
        // Rule: frame
        // Above the floor, so that nothing that is new looks repeated.
        let clock = Frame::at(now.wall);
        let frame = match self.floor.map(Frame::next) {
            None => clock,
            Some(_) if self.mutants.is(Mutant::NoFrameFloor) => clock,
            Some(Some(next)) => clock.max(next),
            Some(None) => return Numbering::FramesExhausted,
        };
        let entry = PubEntry { last: frame.first(), offset: rng.next_u32(), generation: 0, note: NO_NOTE };
        self.numbered = None;
        if !self.streams.insert(key.text(), entry) {
            return Numbering::Unnumbered;
        }
        let (seq, offset) = (entry.last, entry.offset);
        Numbering::Numbered { seq, offset, stamp: Some(stamp(frame, offset)), chain: None }
    }

    /// What was noted for the subject numbered last. Where that lies is for whoever noted it to check.
    pub fn noted(&mut self) -> Option<u32> {
        let [a, b, c] = self.streams.table.entry_mut(self.numbered?).note;
        ([a, b, c] != NO_NOTE).then_some(u32::from_le_bytes([a, b, c, 0]))
    }

    /// Notes a number of 24 bits for the subject numbered last; one that is larger, or for a new subject, is not kept.
    pub fn note(&mut self, number: u32) {
        if let ([a, b, c, 0], Some(place)) = (number.to_le_bytes(), self.numbered) {
            self.streams.table.entry_mut(place).note = [a, b, c];
        }
    }

    /// How many messages may follow one with this number in its frame.
    pub fn room_after(&self, seq: Seq) -> u64 {
        self.frame_messages_max.saturating_sub(seq.count())
    }

    /// Takes `count` numbers that follow the last one of the subject, of those for which there is room in its frame.
    ///
    /// # Panics
    /// If the subject has no number yet, or there is no room.
    pub fn advance(&mut self, key: SubjectRunKey<'_>, count: u64) {
        let entry = self.streams.touch(OWN, key).expect("the subject was given a number just now");
        entry.last = entry.last.forward(count).expect("there is room in the frame");
    }

    /// Rotates if size and time ask for it, and lets a limited number of idle entries leave. To be called once
    /// per turn of the loop; costs nothing when there is nothing to do.
    pub fn rotate_if_due(&mut self, now: Instant) {
        let floor = &mut self.floor;
        self.numbered = None;
        self.streams.rotate_if_due(now, |entry| *floor = (*floor).max(Some(entry.last.frame())));
    }

    /// Size and history of the window.
    pub fn row(&self) -> WindowRow {
        self.streams.row()
    }

    /// All subjects with the last number given, in no particular order, which yet is the same in each run.
    pub fn iter(&self) -> impl Iterator<Item = (Subject, Seq)> {
        self.streams.table.iter().map(|(text, entry)| (subject_of(text), entry.last))
    }
}

/// What loss accounting keeps of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubEntry {
    /// The last number received.
    pub last: Seq,
    /// The datagram it came in.
    pub dseq: Dseq,
    /// When.
    pub at: Instant,
    /// The offset of the first message of its frame in the publisher's history; `None` if that was not told.
    pub offset: Option<u32>,
}

/// Where an entry of the subscription window stands.
#[derive(Clone, Copy, Debug)]
pub struct StreamIndex(EntryIndex);

/// The last number received of each (publisher, subject).
pub struct SubWindow {
    streams: RotatingTable<SubSlot>,
}

impl SubWindow {
    /// An empty window; `seed` makes the hash unpredictable.
    pub fn new(settings: WindowSettings, seed: u64) -> SubWindow {
        SubWindow { streams: RotatingTable::new(settings, seed) }
    }

    /// Where the entry of a stream stands, until one leaves. Several that are sought one after the other are waited for together:
    /// none depends on what another finds in memory.
    pub fn seek(&mut self, publisher: u32, subject: &Subject) -> Option<StreamIndex> {
        self.streams.seek(publisher, subject.as_bytes()).map(StreamIndex)
    }

    /// The entry of a stream and where it stands, if there is one; it then stays for another `time` at least. `sought` is where it
    /// was found before, if it was.
    pub fn find(
        &mut self,
        publisher: u32,
        subject: &Subject,
        sought: Option<StreamIndex>,
    ) -> Option<(StreamIndex, SubEntry)> {
        let place = match sought {
            Some(StreamIndex(place)) => {
                self.streams.enter(place, subject.as_bytes());
                place
            }
            None => self.streams.place(publisher, subject.into())?,
        };
        Some((StreamIndex(place), self.streams.table.entry_mut(place).entry))
    }

    /// Replaces an entry that was found, since when nothing was called but this.
    pub fn renew(&mut self, place: StreamIndex, entry: SubEntry) {
        self.streams.table.entry_mut(place.0).entry = entry;
    }

    /// Adds an entry, or replaces the one that is there. False, and nothing done, if the hard limit allows no new one.
    pub fn insert(&mut self, publisher: u32, subject: &Subject, entry: SubEntry) -> bool {
        if let Some(slot) = self.streams.touch(publisher, subject.into()) {
            slot.entry = entry;
            return true;
        }
        self.streams.insert(subject.as_bytes(), SubSlot { entry, publisher, generation: 0 })
    }

    /// Rotates if size and time ask for it, and lets a limited number of idle entries leave. To be called once
    /// per turn of the loop; costs nothing when there is nothing to do.
    ///
    /// Gives the publishers whose entries left in this very call, ascending, each once.
    pub fn rotate_if_due(&mut self, now: Instant) -> Vec<u32> {
        let mut publishers = BTreeSet::new();
        self.streams.rotate_if_due(now, |slot| {
            publishers.insert(slot.publisher);
        });
        publishers.into_iter().collect()
    }

    /// Size and history of the window.
    pub fn row(&self) -> WindowRow {
        self.streams.row()
    }

    /// All streams, in no particular order, which yet is the same in each run.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Subject, SubEntry)> {
        self.streams.table.iter().map(|(text, slot)| (slot.publisher, subject_of(text), slot.entry))
    }
}

/// The publisher in the keys of the publication window.
const OWN: u32 = 0;

#[derive(Clone, Copy)]
struct PubEntry {
    last: Seq,
    /// The offset of the first message of the current frame.
    offset: u32,
    generation: u8,
    /// What somebody else wants to find again with the subject; `NO_NOTE` if nobody does.
    note: [u8; 3],
}

const NO_NOTE: [u8; 3] = [0xff; 3];

impl PubEntry {
    /// The offset of the last message; modulo 2^32, as are the counts of messages that are cut here.
    fn offset_last(&self) -> u32 {
        self.offset.wrapping_add((self.last.count() - 1) as u32)
    }
}

#[derive(Clone, Copy)]
struct SubSlot {
    entry: SubEntry,
    publisher: u32,
    generation: u8,
}

// The limits of 48 and 128 bytes beyond the subject's bytes rest on these.
const _: () = assert!(size_of::<PubEntry>() == 16 && size_of::<SubSlot>() == 40);

impl WindowEntry for PubEntry {
    fn publisher(&self) -> u32 {
        OWN
    }

    fn generation(&self) -> u8 {
        self.generation
    }

    fn enter(&mut self, generation: u8) {
        self.generation = generation;
    }
}

impl WindowEntry for SubSlot {
    fn publisher(&self) -> u32 {
        self.publisher
    }

    fn generation(&self) -> u8 {
        self.generation
    }

    fn enter(&mut self, generation: u8) {
        self.generation = generation;
    }
}

/// The entry used last.
#[derive(Clone, Copy)]
struct RecentEntry {
    place: EntryIndex,
    /// The streak it was used for; streaks are of one publisher.
    subject_run: Option<u64>,
}

/// Whether entries are looked up in the order in which they were added, as they are for who publishes on its subjects in turn.
/// Then the next one is known before its hash is.
#[derive(Clone, Copy, Default)]
struct LookupOrder {
    /// The one found last.
    last: Option<EntryIndex>,
    /// Whether it stood behind the one before.
    holds: bool,
}

/// A table with two generations.
struct RotatingTable<E> {
    table: WindowTable<E>,
    /// Where the entry used last stood: often it is the next one, too.
    recent: Option<RecentEntry>,
    order: LookupOrder,
    settings: WindowSettings,
    /// The current generation; the one before it is the previous one. Counts modulo 256.
    generation: u8,
    /// Bytes of the entries in the current generation.
    current_bytes: usize,
    /// Whether the hard limit has refused an entry since the last rotation: the previous generation may hold so much
    /// that the current one can never reach its size.
    refused: bool,
    /// When the window last rotated, or when it was first asked to.
    rotated: Option<Instant>,
    /// The rotation under way, and how many entries each call looks at.
    sweep: Option<(Sweep, usize)>,
    rotations: u64,
    evicted: u64,
}

impl<E: WindowEntry> RotatingTable<E> {
    fn new(settings: WindowSettings, seed: u64) -> RotatingTable<E> {
        RotatingTable {
            table: WindowTable::new(settings.bytes_max, seed),
            recent: None,
            order: LookupOrder::default(),
            settings,
            generation: 0,
            current_bytes: 0,
            refused: false,
            rotated: None,
            sweep: None,
            rotations: 0,
            evicted: 0,
        }
    }

    /// The entry, moved into the current generation.
    fn touch(&mut self, publisher: u32, key: SubjectRunKey<'_>) -> Option<&mut E> {
        let place = self.place(publisher, key)?;
        Some(self.table.entry_mut(place))
    }

    /// Where the entry stands, moved into the current generation; until the next rotation.
    fn place(&mut self, publisher: u32, key: SubjectRunKey<'_>) -> Option<EntryIndex> {
        let (text, subject_run) = (key.text(), key.subject_run());
        let recent = match self.recent {
            Some(recent) if subject_run.is_some() && subject_run == recent.subject_run => recent,
            _ => RecentEntry { place: self.seek(publisher, text)?, subject_run },
        };
        self.recent = Some(recent);
        self.enter(recent.place, text);
        Some(recent.place)
    }

    /// Moves an entry into the current generation.
    fn enter(&mut self, place: EntryIndex, text: &[u8]) {
        let entry = self.table.entry_mut(place);
        if entry.generation() != self.generation {
            entry.enter(self.generation);
            self.current_bytes += WindowTable::<E>::entry_bytes(text);
        }
    }

    /// Where the entry stands; it stays in its generation.
    fn seek(&mut self, publisher: u32, text: &[u8]) -> Option<EntryIndex> {
        let next = self.order.last.and_then(EntryIndex::next);
        let is_next = |place: &EntryIndex| self.order.holds && self.table.is_at(*place, publisher, text);
        let place = match next.filter(is_next) {
            Some(next) => next,
            None => self.table.find(self.table.hash(publisher, text), publisher, text)?,
        };
        self.order = LookupOrder { last: Some(place), holds: next == Some(place) };
        Some(place)
    }

    fn insert(&mut self, text: &[u8], mut entry: E) -> bool {
        entry.enter(self.generation);
        let hash = self.table.hash(entry.publisher(), text);
        let inserted = self.table.insert(hash, text, entry);
        if inserted {
            self.current_bytes += WindowTable::<E>::entry_bytes(text);
        }
        self.refused |= !inserted;
        inserted
    }

    fn rotate_if_due(&mut self, now: Instant, mut left: impl FnMut(&E)) {
        let rotated = *self.rotated.get_or_insert(now);
        let large = self.settings.bytes < self.current_bytes || self.refused;
        if large && self.settings.time <= now.since(rotated) && self.sweep.is_none() {
            self.generation = self.generation.wrapping_add(1);
            self.current_bytes = 0;
            self.refused = false;
            self.rotated = Some(now);
            self.rotations += 1;
            let steps = SWEEP_STEPS.max(self.table.len() / SWEEP_CALLS + 1);
            self.sweep = Some((self.table.start_sweep(), steps));
        }
        let Some((sweep, steps)) = &mut self.sweep else { return };
        let kept = [self.generation, self.generation.wrapping_sub(1)];
        let (evicted, recent) = (&mut self.evicted, &mut self.recent);
        // Rule: evict
        let more = self.table.sweep(sweep, *steps, |entry| {
            let leaves = !kept.contains(&entry.generation());
            if leaves {
                // What stays may move.
                *recent = None;
                *evicted += 1;
                left(entry);
            }
            leaves
        });
        if !more {
            self.sweep = None;
        }
    }

    fn row(&self) -> WindowRow {
        WindowRow {
            subjects: self.table.len() as u64,
            bytes: self.table.bytes() as u64,
            size: self.settings.bytes as u64,
            bytes_max: self.settings.bytes_max as u64,
            time: self.settings.time,
            rotations: self.rotations,
            evicted: self.evicted,
        }
    }
}

fn subject_of(text: &[u8]) -> Subject {
    Subject::from_bytes(Bytes::copy_from_slice(text)).expect("only subjects are stored")
}

#[cfg(test)]
mod tests;
