//! The table of subjects that have events in the history: a subject to its slot, and in the slot the place of each event.
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
/// The smallest list of places that is ever made smaller.
const PLACES_SHRUNK_MIN: usize = 16;

/// Where an event stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The segment.
    pub segment: u32,
    /// The byte of the segment at which its record begins.
    pub at: u32,
    /// Bytes of its record.
    pub bytes: u32,
}

/// The number of a subject in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(pub u32);

/// One subject.
pub(super) struct Slot {
    text: Box<[u8]>,
    hash: u64,
    /// The events, from the oldest to the newest, whose offsets follow each other.
    places: VecDeque<Place>,
    /// The number of the newest event.
    pub last_seq: Seq,
    /// Bytes of the events' records.
    pub bytes: usize,
    /// The offset of the oldest event; or of the one to come, if there is none.
    pub first: u32,
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
        self.places.len()
    }

    /// The event with this index, from the oldest.
    pub fn place(&self, index: usize) -> Place {
        self.places[index]
    }

    /// The oldest event.
    pub fn oldest(&self) -> Option<Place> {
        self.places.front().copied()
    }

    /// Whether the oldest event has to go before there is one more, within these bounds.
    pub fn is_full(&self, count_max: usize, bytes_max: usize) -> bool {
        !self.places.is_empty() && (count_max <= self.places.len() || bytes_max < self.bytes)
    }

    /// The offset of the event that comes next.
    pub fn next_offset(&self) -> u32 {
        // Offsets count modulo 2^32; there are fewer events than that.
        self.first.wrapping_add(self.places.len() as u32)
    }

    /// Whether `place` is that of the event with this offset.
    pub fn holds(&self, offset: u32, place: Place) -> bool {
        self.places.get(offset.wrapping_sub(self.first) as usize) == Some(&place)
    }
}

/// Some slots, or none and no memory.
#[derive(Default)]
struct Chunk {
    slots: Box<[Option<Slot>]>,
    /// A bit for each slot in use.
    used: [u64; CHUNK / 64],
}

impl Chunk {
    /// The first slot that is not in use.
    fn vacant(&self) -> Option<usize> {
        let word = self.used.iter().position(|word| *word != u64::MAX)?;
        Some(word * 64 + self.used[word].trailing_ones() as usize)
    }
}

/// See the head of this file.
pub(super) struct Subjects {
    hasher: FixedState,
    shards: Box<[HashTable<SlotId>]>,
    chunks: Vec<Chunk>,
    /// No chunk below this one has room.
    roomy: usize,
    len: usize,
    bytes: usize,
}

impl Subjects {
    /// An empty table; `seed` makes the places in the index unpredictable for whoever chooses the subjects.
    pub fn new(seed: u64) -> Subjects {
        Subjects {
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
            self.chunks.push(Chunk::default());
            self.bytes += (self.chunks.capacity() - before) * size_of::<Chunk>();
        }
        let chunk = &mut self.chunks[self.roomy];
        if chunk.slots.is_empty() {
            chunk.slots = (0..CHUNK).map(|_| None).collect();
            self.bytes += chunk_bytes();
        }
        let at = chunk.vacant().expect("the chunk has room");
        let slot = Slot { text: text.into(), hash, places: VecDeque::new(), last_seq, bytes: 0, first, rule };
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
        assert!(slot.places.is_empty(), "a subject with events stays");
        self.bytes -= slot.text.len() + ALLOCATION_BYTES + places_bytes(&slot.places);
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

    /// The bytes that one more event of a subject will allocate here, for the old list and the new one exist side by side.
    pub fn push_bytes(&self, id: SlotId) -> usize {
        let places = &self.slot(id).places;
        if places.len() < places.capacity() { 0 } else { places_next(places) * size_of::<Place>() + ALLOCATION_BYTES }
    }

    /// Adds the newest event of a subject.
    pub fn push(&mut self, id: SlotId, seq: Seq, place: Place) {
        let slot = slot_at_mut(&mut self.chunks, id);
        if slot.places.len() == slot.places.capacity() {
            let before = places_bytes(&slot.places);
            slot.places.reserve_exact(places_next(&slot.places) - slot.places.len());
            self.bytes = self.bytes - before + places_bytes(&slot.places);
        }
        slot.places.push_back(place);
        slot.last_seq = seq;
        slot.bytes += place.bytes as usize;
    }

    /// Takes the oldest event from a subject.
    pub fn pop(&mut self, id: SlotId) -> Option<Place> {
        let slot = slot_at_mut(&mut self.chunks, id);
        let place = slot.places.pop_front()?;
        slot.first = slot.first.wrapping_add(1);
        slot.bytes -= place.bytes as usize;
        if PLACES_SHRUNK_MIN < slot.places.capacity() && slot.places.len() < slot.places.capacity() / 4 {
            let before = places_bytes(&slot.places);
            slot.places.shrink_to(2 * slot.places.len());
            self.bytes = self.bytes - before + places_bytes(&slot.places);
        }
        Some(place)
    }

    /// An event has moved within the log.
    pub fn relocate(&mut self, id: SlotId, offset: u32, place: Place) {
        let slot = slot_at_mut(&mut self.chunks, id);
        slot.places[offset.wrapping_sub(slot.first) as usize] = place;
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

/// The number of places to make room for next: one alone, then a quarter more, so that little is unused.
fn places_next(places: &VecDeque<Place>) -> usize {
    match places.capacity() {
        0 => 1,
        capacity => capacity + (capacity / 4).max(3),
    }
}

fn places_bytes(places: &VecDeque<Place>) -> usize {
    match places.capacity() {
        0 => 0,
        capacity => capacity * size_of::<Place>() + ALLOCATION_BYTES,
    }
}

fn chunk_bytes() -> usize {
    CHUNK * size_of::<Option<Slot>>() + ALLOCATION_BYTES
}

/// From bits that the shard's own table does not use: it takes the lowest for the bucket and the highest seven as tag.
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

fn slot_at(chunks: &[Chunk], id: SlotId) -> &Slot {
    chunks[id.0 as usize / CHUNK].slots[id.0 as usize % CHUNK].as_ref().expect("only slots in use have numbers")
}

fn slot_at_mut(chunks: &mut [Chunk], id: SlotId) -> &mut Slot {
    chunks[id.0 as usize / CHUNK].slots[id.0 as usize % CHUNK].as_mut().expect("only slots in use have numbers")
}

// What a subject costs beyond its text and its events' places.
const _: () = assert!(size_of::<Option<Slot>>() <= 88);

#[cfg(test)]
impl Subjects {
    /// What `bytes` has to be, counted anew.
    pub fn allocated_bytes(&self) -> usize {
        let chunk = |chunk: &Chunk| if chunk.slots.is_empty() { 0 } else { chunk_bytes() };
        let slot = |slot: &Slot| slot.text.len() + ALLOCATION_BYTES + places_bytes(&slot.places);
        let index: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        let list = self.chunks.capacity() * size_of::<Chunk>();
        index + list + self.chunks.iter().map(chunk).sum::<usize>() + self.iter().map(slot).sum::<usize>()
    }
}
