//! The table of subjects that have events in the history: a subject to its slot, and in the slot the place of each run of
//! events.
//!
//! A slot keeps its number as long as its subject stays, for the log's records name it. Slots stand in chunks; a chunk
//! without subjects is given back, and new subjects go into the lowest chunk with room, so that the memory of a flood of
//! subjects does not stay. The index is cut into shards that grow one at a time.

use crate::seqno::Seq;
use foldhash::quality::FixedState;
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::mem::size_of;

/// Shards of the index: bounds the longest pause for growth to 1/64 of the subjects.
const SHARDS: usize = 64;
/// Slots in a chunk: what the table grows by.
const CHUNK: usize = 256;
/// What the allocator is taken to need for each piece of memory, beside the bytes asked for.
const ALLOCATION_BYTES: usize = 16;
/// The smallest list of runs that is ever made smaller.
const RUNS_SHRUNK_MIN: usize = 16;

/// Where a record stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordLocation {
    /// The segment.
    pub segment: u32,
    /// The byte of the segment at which it begins.
    pub at: u32,
}

/// Events of one subject in one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventRun {
    pub place: RecordLocation,
    /// The offset of the first of them.
    pub offset: u32,
}

/// The number of a subject in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(pub u32);

/// One subject.
pub(super) struct Slot {
    text: Box<[u8]>,
    hash: u64,
    /// The events, from the oldest to the newest, whose offsets follow each other.
    runs: VecDeque<EventRun>,
    /// The number of the newest event.
    pub last_seq: Seq,
    /// Bytes of the events, as they count.
    pub bytes: usize,
    /// The offset of the oldest event; or of the one to come, if there is none.
    first: u32,
    /// The offset of the one to come.
    next: u32,
    /// Which limits hold.
    pub rule: u16,
}

impl Slot {
    /// The subject.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// How many events.
    pub fn len(&self) -> usize {
        self.next.wrapping_sub(self.first) as usize
    }

    /// The runs, from the oldest.
    pub fn runs(&self) -> &VecDeque<EventRun> {
        &self.runs
    }

    /// How many events a run of this subject has.
    pub fn count_of(&self, index: usize) -> usize {
        let end = self.runs.get(index + 1).map_or(self.next, |run| run.offset);
        end.wrapping_sub(self.runs[index].offset) as usize
    }

    /// How many events there are before this run.
    pub fn count_before(&self, index: usize) -> usize {
        self.runs[index].offset.wrapping_sub(self.first) as usize
    }

    /// The run that the event with this index, from the oldest, is in, and its index there.
    pub fn find(&self, index: usize) -> (EventRun, usize) {
        let run = self.runs.partition_point(|run| run.offset.wrapping_sub(self.first) as usize <= index) - 1;
        (self.runs[run], index - self.count_before(run))
    }

    /// The offset of the event that comes next.
    pub fn next_offset(&self) -> u32 {
        self.next
    }

    /// Says which offset comes next, of a subject without events.
    pub fn begin_at(&mut self, offset: u32) {
        assert!(self.runs.is_empty(), "offsets follow each other");
        (self.first, self.next) = (offset, offset);
    }

    /// Whether `place` is that of the run with this first offset.
    pub fn holds(&self, offset: u32, place: RecordLocation) -> bool {
        self.index_of(offset).is_some_and(|index| self.runs[index].place == place)
    }

    /// The run with this first offset.
    fn index_of(&self, offset: u32) -> Option<usize> {
        // Offsets count modulo 2^32; there are fewer events than that.
        let wanted = offset.wrapping_sub(self.first);
        // Who asks goes through the log from its oldest record: it is the first run, or has left already.
        if wanted == 0 || self.len() <= wanted as usize {
            return (wanted == 0 && !self.runs.is_empty()).then_some(0);
        }
        self.runs.binary_search_by_key(&wanted, |run| run.offset.wrapping_sub(self.first)).ok()
    }
}

/// Some slots, or none and no memory.
#[derive(Default)]
struct SlotChunk {
    slots: Box<[Option<Slot>]>,
    /// A bit for each slot in use.
    used: [u64; CHUNK / 64],
}

impl SlotChunk {
    /// The first slot that is not in use.
    fn vacant(&self) -> Option<usize> {
        let word = self.used.iter().position(|word| *word != u64::MAX)?;
        Some(word * 64 + self.used[word].trailing_ones() as usize)
    }
}

/// See the head of this file.
pub(super) struct SubjectTable {
    hasher: FixedState,
    shards: Box<[HashTable<SlotId>]>,
    chunks: Vec<SlotChunk>,
    /// No chunk below this one has room.
    roomy: usize,
    len: usize,
    bytes: usize,
}

impl SubjectTable {
    /// An empty table; `seed` makes the places in the index unpredictable for whoever chooses the subjects.
    pub fn new(seed: u64) -> SubjectTable {
        SubjectTable {
            hasher: FixedState::with_seed(seed),
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            chunks: Vec::new(),
            roomy: 0,
            len: 0,
            bytes: 0,
        }
    }

    /// Subjects in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes allocated, with an allowance for the allocator: what grows with subjects and events.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The hash that the other functions want.
    pub fn hash(&self, text: &[u8]) -> u64 {
        self.hasher.hash_one(text)
    }

    /// The slot of a subject.
    pub fn find(&self, hash: u64, text: &[u8]) -> Option<SlotId> {
        self.shards[shard_of(hash)]
            .find(hash, |id| {
                let slot = slot_at(&self.chunks, *id);
                slot.hash == hash && *slot.text == *text
            })
            .copied()
    }

    /// The slot with this number.
    pub fn slot(&self, id: SlotId) -> &Slot {
        slot_at(&self.chunks, id)
    }

    /// The slot with this number, to change what is public of it.
    pub fn slot_mut(&mut self, id: SlotId) -> &mut Slot {
        slot_at_mut(&mut self.chunks, id)
    }

    /// The most bytes that one more subject can allocate.
    pub fn insert_bytes(&self, hash: u64, text: &[u8]) -> usize {
        let shard = &self.shards[shard_of(hash)];
        // While a shard grows, the old and the new one exist side by side.
        let index = if shard.len() < shard.capacity() { 0 } else { (2 * shard.allocation_size()).max(64) };
        index + chunk_bytes() + text.len() + ALLOCATION_BYTES
    }

    /// Adds a subject, without events, that is not in the table yet.
    pub fn insert(&mut self, hash: u64, text: &[u8], rule: u16, first: u32, last_seq: Seq) -> SlotId {
        while self.chunks.get(self.roomy).is_some_and(|chunk| chunk.vacant().is_none()) {
            self.roomy += 1;
        }
        if self.roomy == self.chunks.len() {
            let before = self.chunks.capacity();
            self.chunks.push(SlotChunk::default());
            self.bytes += (self.chunks.capacity() - before) * size_of::<SlotChunk>();
        }
        let chunk = &mut self.chunks[self.roomy];
        if chunk.slots.is_empty() {
            chunk.slots = (0..CHUNK).map(|_| None).collect();
            self.bytes += chunk_bytes();
        }
        let at = chunk.vacant().expect("the chunk has room");
        let slot =
            Slot { text: text.into(), hash, runs: VecDeque::new(), last_seq, bytes: 0, first, next: first, rule };
        chunk.slots[at] = Some(slot);
        chunk.used[at / 64] |= 1 << (at % 64);
        self.len += 1;
        self.bytes += text.len() + ALLOCATION_BYTES;

        let id = SlotId(u32::try_from(self.roomy * CHUNK + at).expect("fewer subjects than 2^32"));
        let (chunks, shard) = (&self.chunks, &mut self.shards[shard_of(hash)]);
        let before = shard.allocation_size();
        shard.insert_unique(hash, id, |id| slot_at(chunks, *id).hash);
        self.bytes = self.bytes - before + shard.allocation_size();
        id
    }

    /// Removes a subject that has no events.
    pub fn remove(&mut self, id: SlotId) {
        let chunk_index = id.0 as usize / CHUNK;
        let (chunk, at) = (&mut self.chunks[chunk_index], id.0 as usize % CHUNK);
        let slot = chunk.slots[at].take().expect("only slots in use have numbers");
        assert!(slot.runs.is_empty(), "a subject with events stays");
        self.bytes -= slot.text.len() + ALLOCATION_BYTES + runs_bytes(&slot.runs);
        chunk.used[at / 64] &= !(1 << (at % 64));
        if chunk.used == [0; CHUNK / 64] {
            chunk.slots = Box::default();
            self.bytes -= chunk_bytes();
        }
        self.roomy = self.roomy.min(chunk_index);
        self.len -= 1;

        let (chunks, shard) = (&self.chunks, &mut self.shards[shard_of(slot.hash)]);
        let before = shard.allocation_size();
        shard.find_entry(slot.hash, |found| *found == id).expect("every subject is in the index").remove();
        if 64 < shard.capacity() && shard.len() < shard.capacity() / 4 {
            shard.shrink_to(2 * shard.len(), |id| slot_at(chunks, *id).hash);
        }
        self.bytes = self.bytes - before + shard.allocation_size();
    }

    /// The bytes that one more run of a subject will allocate here, for the old list and the new one exist side by side.
    pub fn push_bytes(&self, id: SlotId) -> usize {
        let runs = &self.slot(id).runs;
        if runs.len() < runs.capacity() { 0 } else { runs_next(runs) * size_of::<EventRun>() + ALLOCATION_BYTES }
    }

    /// Adds the newest events of a subject: so many, up to this number, which count so many bytes.
    pub fn push(&mut self, id: SlotId, place: RecordLocation, count: u16, last_seq: Seq, bytes: usize) {
        let slot = slot_at_mut(&mut self.chunks, id);
        if slot.runs.len() == slot.runs.capacity() {
            let before = runs_bytes(&slot.runs);
            slot.runs.reserve_exact(runs_next(&slot.runs) - slot.runs.len());
            self.bytes = self.bytes - before + runs_bytes(&slot.runs);
        }
        slot.runs.push_back(EventRun { place, offset: slot.next });
        slot.next = slot.next.wrapping_add(count.into());
        slot.last_seq = last_seq;
        slot.bytes += bytes;
    }

    /// Takes the oldest run from a subject, whose events count so many bytes.
    pub fn pop(&mut self, id: SlotId, bytes: usize) {
        let slot = slot_at_mut(&mut self.chunks, id);
        slot.runs.pop_front().expect("the oldest run was looked at before");
        slot.first = slot.runs.front().map_or(slot.next, |run| run.offset);
        slot.bytes -= bytes;
        if RUNS_SHRUNK_MIN < slot.runs.capacity() && slot.runs.len() < slot.runs.capacity() / 4 {
            let before = runs_bytes(&slot.runs);
            slot.runs.shrink_to(2 * slot.runs.len());
            self.bytes = self.bytes - before + runs_bytes(&slot.runs);
        }
    }

    /// A run has moved within the log.
    pub fn relocate(&mut self, id: SlotId, offset: u32, place: RecordLocation) {
        let slot = slot_at_mut(&mut self.chunks, id);
        let index = slot.index_of(offset).expect("only what is live moves");
        slot.runs[index].place = place;
    }

    /// The slot with this number, if it is in use.
    pub fn get(&self, id: SlotId) -> Option<&Slot> {
        self.chunks.get(id.0 as usize / CHUNK)?.slots.get(id.0 as usize % CHUNK)?.as_ref()
    }

    /// Up to `steps` places for subjects from number `from` on, with the subjects that are in them; and where to
    /// go on, unless that was the end.
    pub fn scan(&self, from: u32, steps: usize) -> (impl Iterator<Item = (SlotId, &Slot)>, Option<u32>) {
        let end = self.chunks.len() * CHUNK;
        let start = (from as usize).min(end);
        let stop = start.saturating_add(steps).min(end);
        let slots = (start..stop).filter_map(|at| {
            let id = SlotId(at as u32);
            Some((id, self.get(id)?))
        });
        (slots, (stop < end).then_some(stop as u32))
    }

    /// All subjects, in no particular order, which yet is the same in each run.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().flat_map(|chunk| chunk.slots.iter().flatten())
    }
}

/// The number of runs to make room for next: one alone, then a quarter more, so that little is unused.
fn runs_next(runs: &VecDeque<EventRun>) -> usize {
    match runs.capacity() {
        0 => 1,
        capacity => capacity + (capacity / 4).max(3),
    }
}

fn runs_bytes(runs: &VecDeque<EventRun>) -> usize {
    match runs.capacity() {
        0 => 0,
        capacity => capacity * size_of::<EventRun>() + ALLOCATION_BYTES,
    }
}

fn chunk_bytes() -> usize {
    CHUNK * size_of::<Option<Slot>>() + ALLOCATION_BYTES
}

/// From bits that the shard's own table does not use: it takes the lowest for the bucket and the highest seven as tag.
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

fn slot_at(chunks: &[SlotChunk], id: SlotId) -> &Slot {
    chunks[id.0 as usize / CHUNK].slots[id.0 as usize % CHUNK].as_ref().expect("only slots in use have numbers")
}

fn slot_at_mut(chunks: &mut [SlotChunk], id: SlotId) -> &mut Slot {
    chunks[id.0 as usize / CHUNK].slots[id.0 as usize % CHUNK].as_mut().expect("only slots in use have numbers")
}

// What a subject costs beyond its text and its runs.
const _: () = assert!(size_of::<Option<Slot>>() <= 88);

#[cfg(test)]
impl SubjectTable {
    /// What `bytes` has to be, counted anew.
    pub fn allocated_bytes(&self) -> usize {
        let chunk = |chunk: &SlotChunk| if chunk.slots.is_empty() { 0 } else { chunk_bytes() };
        let slot = |slot: &Slot| slot.text.len() + ALLOCATION_BYTES + runs_bytes(&slot.runs);
        let index: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        let list = self.chunks.capacity() * size_of::<SlotChunk>();
        index + list + self.chunks.iter().map(chunk).sum::<usize>() + self.iter().map(slot).sum::<usize>()
    }
}
