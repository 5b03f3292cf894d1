//! The publication and the subscription window: the last number of each subject, bounded by size and time (seed
//! 002). The windows of flow control are in `src/proto/pace`.
//!
//! A window has two generations. A rotation is due when the current one is larger than `bytes` (or an entry was
//! refused) and at least `time` old. It makes the current generation the previous one, and evicts the entries of the
//! previous one. Use of an entry moves it into the current generation, so only entries that were idle for at least
//! `time` are evicted (A8, R11). Each call of `rotate_if_due` evicts a limited number of entries, so
//! that no rotation of a large window stops the peer. An entry that is used before its turn stays.
//!
//! `bytes_max` is a hard limit: beyond it no new entry is made, while existing ones remain. The limit hides no loss,
//! because detection relies on the datagrams (R9).

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

/// Minimum number of entries that one call of `rotate_if_due` visits during a rotation.
const SWEEP_STEPS: usize = 2048;
/// Maximum number of calls of `rotate_if_due` that one rotation takes.
const SWEEP_CALLS: usize = 64;

/// Numbering of a message to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// A sequence number of its own.
    Numbered {
        /// The number.
        seq: Seq,
        /// The offset in the subject's history, modulo 2^32 (seed 000). A subject that is new, or returns after its
        /// eviction, starts at a random offset; a full frame does not interrupt the counting.
        offset: u32,
        /// Date of the frame and offset in the history, with the first message of a frame.
        stamp: Option<Stamp>,
        /// Last number of the frame before, if the count overflowed.
        chain: Option<Seq>,
    },
    /// No memory is left for another subject: the message is sent without a number (R9).
    Unnumbered,
    /// No frame is left (after 2116, or after the clock reached that time): the peer must begin a new epoch (R10).
    FramesExhausted,
}

/// Last number of each subject that this peer publishes, and the frames of new ones.
pub struct PubWindow {
    streams: RotatingTable<PubEntry>,
    frame_messages_max: u64,
    /// Highest frame of all entries that were evicted in this epoch.
    floor: Option<Frame>,
    /// Index of the subject numbered last, unless it was new; valid until the next rotation.
    numbered: Option<EntryIndex>,
    mutants: Mutants,
}

impl PubWindow {
    /// Creates an empty window. A frame holds `frame_messages_max` messages, at least 1 and at most 2^35 - 1; `seed`
    /// makes the hash unpredictable.
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

    /// Returns the same window with a deliberate mistake, for the tests of the simulator's oracle.
    pub fn mutated(self, mutants: Mutants) -> PubWindow {
        PubWindow { mutants, ..self }
    }

    /// Returns the next number of `subject`. A clock that is set back never lowers a number: a new frame follows every
    /// frame that was evicted from the window (R10).
    pub fn number<'a>(&mut self, subject: impl Into<SubjectRunKey<'a>>, now: ClockReading, rng: &mut Rng) -> Numbering {
        let key = subject.into();
        let stamp = |frame: Frame, offset| Stamp { time: now.wall.max(frame.start()), offset };
        self.numbered = self.streams.index_of(OWN, key);
        if let Some(index) = self.numbered {
            let entry = self.streams.table.entry_mut(index);
            let last = entry.last;
            if last.count() < self.frame_messages_max {
                entry.last = last.forward(1).expect("the count is below its maximum");
                return Numbering::Numbered { seq: entry.last, offset: entry.offset_last(), stamp: None, chain: None };
            }
            let clock = Frame::at(now.wall);
            // Rule: frame
            // The first message of the next frame names the number that it continues.
            let Some(next) = last.frame().next() else { return Numbering::FramesExhausted };
            let frame = clock.max(next);
            entry.last = frame.first();
            // Offsets count modulo 2^32.
            entry.offset = entry.offset.wrapping_add(last.count() as u32);
            let (seq, offset) = (entry.last, entry.offset);
            return Numbering::Numbered { seq, offset, stamp: Some(stamp(frame, offset)), chain: Some(last) };
        }
        // Rule: frame
        // The frame is above the floor, so that no new message looks repeated.
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

    /// Returns the note of the subject numbered last. The caller must check that the note still applies.
    pub fn noted(&mut self) -> Option<u32> {
        let [a, b, c] = self.streams.table.entry_mut(self.numbered?).note;
        ([a, b, c] != NO_NOTE).then_some(u32::from_le_bytes([a, b, c, 0]))
    }

    /// Notes a number of 24 bits for the subject numbered last. A larger number, or one for a new subject, is not kept.
    pub fn note(&mut self, number: u32) {
        if let ([a, b, c, 0], Some(index)) = (number.to_le_bytes(), self.numbered) {
            self.streams.table.entry_mut(index).note = [a, b, c];
        }
    }

    /// Returns the number of messages that may follow one with this number in its frame.
    pub fn room_after(&self, seq: Seq) -> u64 {
        self.frame_messages_max.saturating_sub(seq.count())
    }

    /// Advances the subject by `count` numbers, for which its frame must have room.
    ///
    /// # Panics
    /// If the subject has no number yet, or there is no room.
    pub fn advance(&mut self, key: SubjectRunKey<'_>, count: u64) {
        let entry = self.streams.touch(OWN, key).expect("the subject was given a number just now");
        entry.last = entry.last.forward(count).expect("there is room in the frame");
    }

    /// Starts a due rotation, and evicts a limited number of idle entries. The peer calls it once per turn of the loop;
    /// it costs nothing when nothing is due.
    pub fn rotate_if_due(&mut self, now: Instant) {
        let floor = &mut self.floor;
        self.numbered = None;
        self.streams.rotate_if_due(now, |entry| *floor = (*floor).max(Some(entry.last.frame())));
    }

    /// Returns the size and the history of the window.
    pub fn row(&self) -> WindowRow {
        self.streams.row()
    }

    /// Returns the last number of a subject, if the window has it. It may leave no later for that.
    pub fn last(&self, subject: &Subject) -> Option<Seq> {
        self.streams.peek(OWN, subject.as_bytes()).map(|slot| slot.last)
    }

    /// Returns all subjects with their last numbers. The order is arbitrary, yet the same in each run.
    pub fn iter(&self) -> impl Iterator<Item = (Subject, Seq)> {
        self.streams.table.iter().map(|(text, entry)| (subject_of(text), entry.last))
    }
}

/// Loss accounting state of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubEntry {
    /// Last number received.
    pub last: Seq,
    /// Datagram that held it.
    pub dseq: Dseq,
    /// Time of its arrival.
    pub at: Instant,
    /// Offset of the first message of its frame in the publisher's history; `None` if that is unknown.
    pub offset: Option<u32>,
}

/// Index of an entry of the subscription window.
#[derive(Clone, Copy, Debug)]
pub struct StreamIndex(EntryIndex);

/// Last number received of each (publisher, subject).
pub struct SubWindow {
    streams: RotatingTable<SubSlot>,
}

impl SubWindow {
    /// Creates an empty window; `seed` makes the hash unpredictable.
    pub fn new(settings: WindowSettings, seed: u64) -> SubWindow {
        SubWindow { streams: RotatingTable::new(settings, seed) }
    }

    /// Returns the index of a stream's entry, valid until the next eviction. Consecutive look-ups overlap their memory
    /// accesses, because none depends on the result of another.
    pub fn seek(&mut self, publisher: u32, subject: &Subject) -> Option<StreamIndex> {
        self.streams.seek(publisher, subject.as_bytes()).map(StreamIndex)
    }

    /// Returns the entry of a stream and its index, if there is one, and keeps it for at least another `time`. `sought`
    /// is its index from an earlier look-up, if there was one.
    pub fn find(
        &mut self,
        publisher: u32,
        subject: &Subject,
        sought: Option<StreamIndex>,
    ) -> Option<(StreamIndex, SubEntry)> {
        let index = match sought {
            Some(StreamIndex(index)) => {
                self.streams.move_to_current(index, subject.as_bytes());
                index
            }
            None => self.streams.index_of(publisher, subject.into())?,
        };
        Some((StreamIndex(index), self.streams.table.entry_mut(index).entry))
    }

    /// Replaces a found entry. The caller makes no other call in between.
    pub fn renew(&mut self, index: StreamIndex, entry: SubEntry) {
        self.streams.table.entry_mut(index.0).entry = entry;
    }

    /// Adds or replaces an entry. Returns false without a change if the hard limit allows no new one.
    pub fn insert(&mut self, publisher: u32, subject: &Subject, entry: SubEntry) -> bool {
        if let Some(slot) = self.streams.touch(publisher, subject.into()) {
            slot.entry = entry;
            return true;
        }
        self.streams.insert(subject.as_bytes(), SubSlot { entry, publisher, generation: 0 })
    }

    /// Starts a due rotation, and evicts a limited number of idle entries. The peer calls it once per turn of the loop;
    /// it costs nothing when nothing is due.
    ///
    /// Returns the publishers of the entries evicted in this very call, ascending, each once.
    pub fn rotate_if_due(&mut self, now: Instant) -> Vec<u32> {
        let mut publishers = BTreeSet::new();
        self.streams.rotate_if_due(now, |slot| {
            publishers.insert(slot.publisher);
        });
        publishers.into_iter().collect()
    }

    /// Returns the size and the history of the window.
    pub fn row(&self) -> WindowRow {
        self.streams.row()
    }

    /// Returns the last number of a publisher's subject, if the window has it. It may leave no later for that.
    pub fn last(&self, publisher: u32, subject: &Subject) -> Option<Seq> {
        self.streams.peek(publisher, subject.as_bytes()).map(|slot| slot.entry.last)
    }

    /// Returns all streams. The order is arbitrary, yet the same in each run.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Subject, SubEntry)> {
        self.streams.table.iter().map(|(text, slot)| (slot.publisher, subject_of(text), slot.entry))
    }
}

/// Publisher in the keys of the publication window.
const OWN: u32 = 0;

#[derive(Clone, Copy)]
struct PubEntry {
    last: Seq,
    /// Offset of the first message of the current frame.
    offset: u32,
    generation: u8,
    /// Note that the caller attached to the subject; `NO_NOTE` if there is none.
    note: [u8; 3],
}

const NO_NOTE: [u8; 3] = [0xff; 3];

impl PubEntry {
    /// Returns the offset of the last message modulo 2^32, like the truncated message counts.
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

// The limits of 48 and 128 bytes beyond the subject's bytes depend on these sizes.
const _: () = assert!(size_of::<PubEntry>() == 16 && size_of::<SubSlot>() == 40);

impl WindowEntry for PubEntry {
    fn publisher(&self) -> u32 {
        OWN
    }

    fn generation(&self) -> u8 {
        self.generation
    }

    fn set_generation(&mut self, generation: u8) {
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

    fn set_generation(&mut self, generation: u8) {
        self.generation = generation;
    }
}

/// Entry used last.
#[derive(Clone, Copy)]
struct RecentEntry {
    index: EntryIndex,
    /// Subject run that it was used for; subject runs are of one publisher.
    subject_run: Option<u64>,
}

/// Tracker of look-ups in the order in which entries were added, as by a publisher that uses its subjects in turn. The
/// next entry is then found without a hash.
#[derive(Clone, Copy, Default)]
struct LookupOrder {
    /// Entry found last.
    last: Option<EntryIndex>,
    /// True if it directly followed the one before.
    holds: bool,
}

/// A table with two generations.
struct RotatingTable<E> {
    table: WindowTable<E>,
    /// Index of the entry used last, which is often used next, too.
    recent: Option<RecentEntry>,
    order: LookupOrder,
    settings: WindowSettings,
    /// Number of the current generation, modulo 256; its predecessor is the previous generation.
    generation: u8,
    /// Bytes of the entries in the current generation.
    current_bytes: usize,
    /// True if the hard limit has refused an entry since the last rotation. The previous generation may be so large
    /// that the current one can never reach the size that makes a rotation due.
    refused: bool,
    /// Time of the last rotation, or of the first call.
    rotated: Option<Instant>,
    /// Rotation in progress, and the number of entries that each call visits.
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

    /// Returns the entry, moved into the current generation.
    fn touch(&mut self, publisher: u32, key: SubjectRunKey<'_>) -> Option<&mut E> {
        let index = self.index_of(publisher, key)?;
        Some(self.table.entry_mut(index))
    }

    /// Returns the entry, and does not move it into the current generation.
    fn peek(&self, publisher: u32, text: &[u8]) -> Option<&E> {
        let index = self.table.find(self.table.hash(publisher, text), publisher, text)?;
        Some(self.table.at(index).0)
    }

    /// Returns the index of the entry, moved into the current generation; valid until the next rotation.
    fn index_of(&mut self, publisher: u32, key: SubjectRunKey<'_>) -> Option<EntryIndex> {
        let (text, subject_run) = (key.text(), key.subject_run());
        let recent = match self.recent {
            Some(recent) if subject_run.is_some() && subject_run == recent.subject_run => recent,
            _ => RecentEntry { index: self.seek(publisher, text)?, subject_run },
        };
        self.recent = Some(recent);
        self.move_to_current(recent.index, text);
        Some(recent.index)
    }

    /// Moves an entry into the current generation.
    fn move_to_current(&mut self, index: EntryIndex, text: &[u8]) {
        let entry = self.table.entry_mut(index);
        if entry.generation() != self.generation {
            entry.set_generation(self.generation);
            self.current_bytes += WindowTable::<E>::entry_bytes(text);
        }
    }

    /// Returns the index of the entry, which stays in its generation.
    fn seek(&mut self, publisher: u32, text: &[u8]) -> Option<EntryIndex> {
        let next = self.order.last.and_then(EntryIndex::next);
        let is_next = |index: &EntryIndex| self.order.holds && self.table.is_at(*index, publisher, text);
        let index = match next.filter(is_next) {
            Some(next) => next,
            None => self.table.find(self.table.hash(publisher, text), publisher, text)?,
        };
        self.order = LookupOrder { last: Some(index), holds: next == Some(index) };
        Some(index)
    }

    fn insert(&mut self, text: &[u8], mut entry: E) -> bool {
        entry.set_generation(self.generation);
        let hash = self.table.hash(entry.publisher(), text);
        let inserted = self.table.insert(hash, text, entry);
        if inserted {
            self.current_bytes += WindowTable::<E>::entry_bytes(text);
        }
        self.refused |= !inserted;
        inserted
    }

    fn rotate_if_due(&mut self, now: Instant, mut on_evicted: impl FnMut(&E)) {
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
        let retained = [self.generation, self.generation.wrapping_sub(1)];
        let (evicted, recent) = (&mut self.evicted, &mut self.recent);
        // Rule: evict
        let more = self.table.sweep(sweep, *steps, |entry| {
            let is_evicted = !retained.contains(&entry.generation());
            if is_evicted {
                // Remaining entries may move.
                *recent = None;
                *evicted += 1;
                on_evicted(entry);
            }
            is_evicted
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
