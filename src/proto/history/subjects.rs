//! Table of subjects with events in the history. It maps a subject to its slot, which keeps the location of each run of
//! events.
//!
//! A slot keeps its number while its subject stays, because the log's records name it. Slots are allocated in chunks. A
//! chunk without subjects is freed, and new subjects go into the lowest chunk with room. A flood of subjects therefore
//! does not retain memory. The index is cut into shards that grow one at a time.

use crate::seqno::Seq;
use foldhash::quality::FixedState;
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::mem::size_of;

/// Number of shards of the index; it bounds the longest pause for growth to 1/64 of the subjects.
const SHARDS: usize = 64;
/// Number of slots in a chunk, the unit of growth.
const CHUNK: usize = 256;
/// Assumed overhead of the allocator for each allocation, in bytes.
const ALLOCATION_BYTES: usize = 16;
/// Minimum capacity of a list of runs that the table shrinks.
const RUNS_SHRUNK_MIN: usize = 16;

/// Bytes that an event counts besides its payload, headers and reply subject.
pub(super) const EVENT_BYTES: usize = 42;

/// Location of a record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordLocation {
    /// The segment.
    pub segment: u32,
    /// Byte of the segment at which it begins.
    pub at: u32,
}

/// Events of one subject in one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventRun {
    pub location: RecordLocation,
    /// Offset of the first of them.
    pub offset: u32,
    /// Bytes of the record, and of the payload, headers and reply subject of its events. They are here, too, because the
    /// record of the oldest events is in no cache when it leaves.
    pub bytes: u32,
    pub content_bytes: u32,
}

/// Number of a subject's slot in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(pub u32);

/// A subject with its events.
pub(super) struct Slot {
    text: Box<[u8]>,
    hash: u64,
    /// Runs of events, from the oldest to the newest, whose offsets follow each other.
    runs: VecDeque<EventRun>,
    /// Sequence number of the newest event.
    pub last_seq: Seq,
    /// Bytes of the events, as they count.
    pub bytes: usize,
    /// Offset of the oldest event, or of the next one if there is none.
    first: u32,
    /// Offset of the next event.
    next: u32,
    /// Index of the limits that apply.
    pub rule: u16,
}

impl Slot {
    /// Returns the subject.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.next.wrapping_sub(self.first) as usize
    }

    /// Returns the runs, from the oldest.
    pub fn runs(&self) -> &VecDeque<EventRun> {
        &self.runs
    }

    /// Returns the number of events of a run.
    pub fn count_of(&self, index: usize) -> usize {
        let end = self.runs.get(index + 1).map_or(self.next, |run| run.offset);
        end.wrapping_sub(self.runs[index].offset) as usize
    }

    /// Returns the bytes of the events of a run, as they count.
    pub fn counted_bytes_of(&self, index: usize) -> usize {
        counted_bytes(self.count_of(index), self.runs[index].content_bytes)
    }

    /// Returns the number of events before this run.
    pub fn count_before(&self, index: usize) -> usize {
        self.runs[index].offset.wrapping_sub(self.first) as usize
    }

    /// Returns the run of the event with this index, from the oldest, and the event's index in it.
    pub fn find(&self, index: usize) -> (EventRun, usize) {
        let run = self.runs.partition_point(|run| run.offset.wrapping_sub(self.first) as usize <= index) - 1;
        (self.runs[run], index - self.count_before(run))
    }

    /// Returns the offset of the next event.
    pub fn next_offset(&self) -> u32 {
        self.next
    }

    /// Sets the offset of the next event of a subject without events.
    pub fn begin_at(&mut self, offset: u32) {
        assert!(self.runs.is_empty(), "offsets follow each other");
        (self.first, self.next) = (offset, offset);
    }

    /// Returns whether `location` is that of the run with this first offset.
    pub fn holds(&self, offset: u32, location: RecordLocation) -> bool {
        self.index_of(offset).is_some_and(|index| self.runs[index].location == location)
    }

    /// Returns the index of the run with this first offset.
    fn index_of(&self, offset: u32) -> Option<usize> {
        // Offsets count modulo 2^32; there are fewer events than that.
        let wanted = offset.wrapping_sub(self.first);
        // The caller visits the log from its oldest record, so the run is the first one, or was removed already.
        if wanted == 0 || self.len() <= wanted as usize {
            return (wanted == 0 && !self.runs.is_empty()).then_some(0);
        }
        self.runs.binary_search_by_key(&wanted, |run| run.offset.wrapping_sub(self.first)).ok()
    }
}

/// A fixed number of slots, or an empty chunk without memory.
#[derive(Default)]
struct SlotChunk {
    slots: Box<[Option<Slot>]>,
    /// One bit for each slot, set if it is in use.
    used: [u64; CHUNK / 64],
}

impl SlotChunk {
    /// Returns the first slot that is not in use.
    fn vacant(&self) -> Option<usize> {
        let word = self.used.iter().position(|word| *word != u64::MAX)?;
        Some(word * 64 + self.used[word].trailing_ones() as usize)
    }
}

/// Table described at the head of this file.
pub(super) struct SubjectTable {
    hasher: FixedState,
    shards: Box<[HashTable<SlotId>]>,
    chunks: Vec<SlotChunk>,
    /// Index below which no chunk has room.
    vacant_from: usize,
    len: usize,
    bytes: usize,
}

impl SubjectTable {
    /// Creates an empty table; `seed` makes the locations in the index unpredictable for clients that choose subjects.
    pub fn new(seed: u64) -> SubjectTable {
        SubjectTable {
            hasher: FixedState::with_seed(seed),
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            chunks: Vec::new(),
            vacant_from: 0,
            len: 0,
            bytes: 0,
        }
    }

    /// Returns the number of subjects.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes allocated for subjects and events, with an allowance for the allocator.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the hash that the other functions expect.
    pub fn hash(&self, text: &[u8]) -> u64 {
        self.hasher.hash_one(text)
    }

    /// Returns the slot of a subject.
    pub fn find(&self, hash: u64, text: &[u8]) -> Option<SlotId> {
        self.shards[shard_of(hash)]
            .find(hash, |id| {
                let slot = slot_at(&self.chunks, *id);
                slot.hash == hash && *slot.text == *text
            })
            .copied()
    }

    /// Returns the slot with this number.
    pub fn slot(&self, id: SlotId) -> &Slot {
        slot_at(&self.chunks, id)
    }

    /// Returns the slot with this number, for changes of its public fields.
    pub fn slot_mut(&mut self, id: SlotId) -> &mut Slot {
        slot_at_mut(&mut self.chunks, id)
    }

    /// Returns the maximum number of bytes that one more subject can allocate.
    pub fn insert_bytes(&self, hash: u64, text: &[u8]) -> usize {
        let shard = &self.shards[shard_of(hash)];
        // While a shard grows, the old and the new one exist together.
        let index = if shard.len() < shard.capacity() { 0 } else { (2 * shard.allocation_size()).max(64) };
        index + chunk_bytes() + text.len() + ALLOCATION_BYTES
    }

    /// Adds a subject, without events, that is not in the table yet.
    pub fn insert(&mut self, hash: u64, text: &[u8], rule: u16, first: u32, last_seq: Seq) -> SlotId {
        while self.chunks.get(self.vacant_from).is_some_and(|chunk| chunk.vacant().is_none()) {
            self.vacant_from += 1;
        }
        if self.vacant_from == self.chunks.len() {
            let before = self.chunks.capacity();
            self.chunks.push(SlotChunk::default());
            self.bytes += (self.chunks.capacity() - before) * size_of::<SlotChunk>();
        }
        let chunk = &mut self.chunks[self.vacant_from];
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

        let id = SlotId(u32::try_from(self.vacant_from * CHUNK + at).expect("fewer subjects than 2^32"));
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
        self.vacant_from = self.vacant_from.min(chunk_index);
        self.len -= 1;

        let (chunks, shard) = (&self.chunks, &mut self.shards[shard_of(slot.hash)]);
        let before = shard.allocation_size();
        shard.find_entry(slot.hash, |found| *found == id).expect("every subject is in the index").remove();
        if 64 < shard.capacity() && shard.len() < shard.capacity() / 4 {
            shard.shrink_to(2 * shard.len(), |id| slot_at(chunks, *id).hash);
        }
        self.bytes = self.bytes - before + shard.allocation_size();
    }

    /// Returns the bytes that one more run of a subject will allocate here; the old and the new list exist together
    /// meanwhile.
    pub fn push_bytes(&self, id: SlotId) -> usize {
        let runs = &self.slot(id).runs;
        if runs.len() < runs.capacity() { 0 } else { runs_next(runs) * size_of::<EventRun>() + ALLOCATION_BYTES }
    }

    /// Adds the newest `count` events of a subject, up to the number `last_seq`. The offset of `run` follows that of the
    /// newest event.
    pub fn push(&mut self, id: SlotId, run: EventRun, count: u16, last_seq: Seq) {
        let slot = slot_at_mut(&mut self.chunks, id);
        if slot.runs.len() == slot.runs.capacity() {
            let before = runs_bytes(&slot.runs);
            slot.runs.reserve_exact(runs_next(&slot.runs) - slot.runs.len());
            self.bytes = self.bytes - before + runs_bytes(&slot.runs);
        }
        assert_eq!(run.offset, slot.next, "offsets follow each other");
        slot.runs.push_back(run);
        slot.next = slot.next.wrapping_add(count.into());
        slot.last_seq = last_seq;
        slot.bytes += counted_bytes(count.into(), run.content_bytes);
    }

    /// Removes the oldest run of a subject. Returns it with the number of its events; `None` if there is none.
    pub fn pop(&mut self, id: SlotId) -> Option<(EventRun, usize)> {
        let slot = slot_at_mut(&mut self.chunks, id);
        let run = slot.runs.pop_front()?;
        let first = slot.runs.front().map_or(slot.next, |run| run.offset);
        let count = first.wrapping_sub(run.offset) as usize;
        slot.first = first;
        slot.bytes -= counted_bytes(count, run.content_bytes);
        if RUNS_SHRUNK_MIN < slot.runs.capacity() && slot.runs.len() < slot.runs.capacity() / 4 {
            let before = runs_bytes(&slot.runs);
            slot.runs.shrink_to(2 * slot.runs.len());
            self.bytes = self.bytes - before + runs_bytes(&slot.runs);
        }
        Some((run, count))
    }

    /// Updates the location of a run that has moved within the log.
    pub fn relocate(&mut self, id: SlotId, offset: u32, location: RecordLocation) {
        let slot = slot_at_mut(&mut self.chunks, id);
        let index = slot.index_of(offset).expect("only live records move");
        slot.runs[index].location = location;
    }

    /// Returns the slot with this number, if it is in use.
    pub fn get(&self, id: SlotId) -> Option<&Slot> {
        self.chunks.get(id.0 as usize / CHUNK)?.slots.get(id.0 as usize % CHUNK)?.as_ref()
    }

    /// Returns the subjects in up to `steps` slots from number `from` on, and the start of the next scan unless this
    /// was the end.
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

    /// Returns all subjects. The order is arbitrary, yet the same in each run.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().flat_map(|chunk| chunk.slots.iter().flatten())
    }
}

/// Returns the bytes of events, as they count. `content_bytes` are their payload, headers and reply subject.
pub(super) fn counted_bytes(count: usize, content_bytes: u32) -> usize {
    count * EVENT_BYTES + content_bytes as usize
}

/// Returns the next number of runs to reserve: one alone, then a quarter more, so that little is unused.
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

/// Returns the shard of a hash. It uses bits that the shard's table does not use: the table takes the lowest bits for
/// the bucket and the highest seven as tag.
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

fn slot_at(chunks: &[SlotChunk], id: SlotId) -> &Slot {
    chunks[id.0 as usize / CHUNK].slots[id.0 as usize % CHUNK].as_ref().expect("only slots in use have numbers")
}

fn slot_at_mut(chunks: &mut [SlotChunk], id: SlotId) -> &mut Slot {
    chunks[id.0 as usize / CHUNK].slots[id.0 as usize % CHUNK].as_mut().expect("only slots in use have numbers")
}

// Size of a subject beyond its text and its runs.
const _: () = assert!(size_of::<Option<Slot>>() <= 88);

#[cfg(test)]
impl SubjectTable {
    /// Returns the value that `bytes` must have, computed from the tables.
    pub fn allocated_bytes(&self) -> usize {
        let chunk = |chunk: &SlotChunk| if chunk.slots.is_empty() { 0 } else { chunk_bytes() };
        let slot = |slot: &Slot| slot.text.len() + ALLOCATION_BYTES + runs_bytes(&slot.runs);
        let index: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        let list = self.chunks.capacity() * size_of::<SlotChunk>();
        index + list + self.chunks.iter().map(chunk).sum::<usize>() + self.iter().map(slot).sum::<usize>()
    }
}
