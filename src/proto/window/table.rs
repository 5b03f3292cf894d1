//! The compact table under both windows: (publisher, subject) to a small entry.
//!
//! Entries with subjects of similar length form a *class*, densely, in small chunks. The last entry of a class replaces
//! a removed one, so there are no holes, no free lists and no compaction. An index of four bytes per entry maps the
//! hash to the location. The index is cut into shards that grow one at a time: growth moves a sixty-fourth of the
//! entries at once, and needs that memory twice.
//!
//! Removal of all entries that meet a condition proceeds in steps, see [`WindowTable::sweep`].

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::mem::size_of;

/// Number of shards of the index; it bounds the longest pause for growth to 1/64 of the entries.
const SHARDS: usize = 64;
/// Granularity in bytes of the stored length of subjects. Larger values waste more on padding, smaller ones more on
/// half-empty chunks.
const GRAIN: usize = 8;
/// Classes by subject length: 0..=7 bytes, 8..=15, …, 248..=255.
const CLASSES: usize = 256 / GRAIN;
/// Number of entries in a chunk, the unit of growth.
const CHUNK: usize = 32;
/// Bits of an [`EntryIndex`] that count within the class; the others name the class.
const SLOT_BITS: u32 = 27;
/// Approximate bytes of an entry in the index: five bytes at a load between 7/16 and 7/8.
const INDEX_BYTES: usize = 9;

const _: () = assert!(CLASSES <= 1 << (32 - SLOT_BITS));
const _: () = assert!(crate::subject::SUBJECT_BYTES_MAX / GRAIN < CLASSES);

/// Entry of a subject in a window.
pub(super) trait WindowEntry: Copy {
    /// Returns the publisher, which is part of the key.
    fn publisher(&self) -> u32;
    /// Returns the generation of the window in which the entry was last used.
    fn generation(&self) -> u8;
    /// Sets the generation.
    fn set_generation(&mut self, generation: u8);
}

/// Index of an entry; valid until the next removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryIndex(u32);

impl EntryIndex {
    fn new(class: usize, slot: usize) -> EntryIndex {
        EntryIndex((class << SLOT_BITS | slot) as u32)
    }

    /// Returns the next index in the class. Its entry was added after this one, unless entries were removed.
    pub fn next(self) -> Option<EntryIndex> {
        let slot = self.slot() + 1;
        (slot < 1 << SLOT_BITS).then(|| EntryIndex::new(self.class(), slot))
    }

    fn class(self) -> usize {
        (self.0 >> SLOT_BITS) as usize
    }

    fn slot(self) -> usize {
        (self.0 & ((1 << SLOT_BITS) - 1)) as usize
    }
}

/// Entries in slots. The texts are stored beside them, each after its length, padded to the stride of the class.
struct EntryChunk<E> {
    entries: Box<[E]>,
    texts: Box<[u8]>,
}

struct LengthClass<E> {
    /// Number of entries in use; they occupy the first slots.
    len: usize,
    chunks: Vec<EntryChunk<E>>,
}

/// Progress of a [`WindowTable::sweep`].
pub(super) struct Sweep {
    class: usize,
    /// Number of slots of the class not visited yet, from the front.
    left: usize,
}

/// Table described at the head of this file.
pub(super) struct WindowTable<E> {
    hasher: FixedState,
    shards: Box<[HashTable<EntryIndex>]>,
    classes: Box<[LengthClass<E>]>,
    len: usize,
    /// Bytes allocated for entries, texts and index.
    bytes: usize,
    bytes_max: usize,
}

impl<E: WindowEntry> WindowTable<E> {
    /// Creates an empty table that never allocates more than `bytes_max` bytes for its entries. `seed` makes the
    /// locations in the index unpredictable for peers and clients that choose subjects.
    pub fn new(bytes_max: usize, seed: u64) -> WindowTable<E> {
        WindowTable {
            hasher: FixedState::with_seed(seed),
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            classes: (0..CLASSES).map(|_| LengthClass { len: 0, chunks: Vec::new() }).collect(),
            len: 0,
            bytes: 0,
            bytes_max,
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes allocated for entries, texts and index. The empty table needs a further 4 KiB.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the approximate bytes that one entry needs.
    pub fn entry_bytes(text: &[u8]) -> usize {
        size_of::<E>() + stride(class_of(text)) + INDEX_BYTES
    }

    /// Returns the index of the entry of (`publisher`, `text`), whose hash is `hash`.
    pub fn find(&self, hash: u64, publisher: u32, text: &[u8]) -> Option<EntryIndex> {
        let class = class_of(text);
        self.shards[shard_of(hash)]
            .find(hash, |index| {
                index.class() == class && {
                    let (entry, found) = self.at(*index);
                    found == text && entry.publisher() == publisher
                }
            })
            .copied()
    }

    /// Returns whether the entry of (`publisher`, `text`) is at `index`, which may be outdated.
    pub fn is_at(&self, index: EntryIndex, publisher: u32, text: &[u8]) -> bool {
        index.slot() < self.classes[index.class()].len && {
            let (entry, found) = self.at(index);
            entry.publisher() == publisher && found == text
        }
    }

    /// Returns the entry at `index`.
    pub fn entry_mut(&mut self, index: EntryIndex) -> &mut E {
        &mut self.classes[index.class()].chunks[index.slot() / CHUNK].entries[index.slot() % CHUNK]
    }

    /// Adds an entry with this hash that is not in the table yet. Returns false without a change if the limit does not
    /// allow it.
    pub fn insert(&mut self, hash: u64, text: &[u8], entry: E) -> bool {
        let class = class_of(text);
        let shard = &mut self.shards[shard_of(hash)];
        // While the index grows, the old and the new one exist together.
        let index_bytes = if shard.len() < shard.capacity() { 0 } else { (2 * shard.allocation_size()).max(64) };
        let slot = self.classes[class].len;
        let chunk_bytes = self.classes[class].growth(class);
        let within_limit = index_bytes + chunk_bytes <= self.bytes_max.saturating_sub(self.bytes);
        if !within_limit || 1 << SLOT_BITS <= slot {
            return false;
        }
        self.bytes += self.classes[class].push(class, text, entry);
        self.len += 1;
        let before = shard.allocation_size();
        let (classes, hasher) = (&self.classes, &self.hasher);
        shard.insert_unique(hash, EntryIndex::new(class, slot), |index| hash_at(classes, hasher, *index));
        self.bytes = self.bytes - before + shard.allocation_size();
        true
    }

    /// Starts a sweep of all entries.
    pub fn start_sweep(&self) -> Sweep {
        Sweep { class: 0, left: self.classes[0].len }
    }

    /// Visits up to `steps` further entries, in a fixed order, and removes those for which `is_evicted` holds. Returns
    /// false when all entries present at the start have been visited; it may skip entries that were added since.
    pub fn sweep(&mut self, sweep: &mut Sweep, steps: usize, mut is_evicted: impl FnMut(&E) -> bool) -> bool {
        for _ in 0..steps {
            while sweep.left == 0 {
                if sweep.class + 1 == CLASSES {
                    return false;
                }
                sweep.class += 1;
                sweep.left = self.classes[sweep.class].len;
            }
            // The sweep goes from back to front, so an entry that moves into a hole was already visited.
            sweep.left -= 1;
            let index = EntryIndex::new(sweep.class, sweep.left);
            if is_evicted(self.at(index).0) {
                self.remove(index);
            }
        }
        true
    }

    /// Returns all entries with their texts, in an order that depends only on the operations on the table.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &E)> {
        self.classes.iter().enumerate().flat_map(move |(class, content)| {
            (0..content.len).map(move |slot| {
                let (entry, text) = self.at(EntryIndex::new(class, slot));
                (text, entry)
            })
        })
    }

    fn remove(&mut self, index: EntryIndex) {
        let (class, slot) = (index.class(), index.slot());
        let hash = self.hash_of(index);
        let last = EntryIndex::new(class, self.classes[class].len - 1);
        let moved = (last != index).then(|| self.hash_of(last));
        self.shard_mut(hash).find_entry(hash, |found| *found == index).expect("every entry is in the index").remove();
        if let Some(hash) = moved {
            *self.shard_mut(hash).find_mut(hash, |found| *found == last).expect("every entry is in the index") = index;
        }
        self.bytes -= self.classes[class].swap_remove(class, slot);
        self.len -= 1;

        let (classes, hasher) = (&self.classes, &self.hasher);
        let shard = &mut self.shards[shard_of(hash)];
        if 64 < shard.capacity() && shard.len() < shard.capacity() / 4 {
            let before = shard.allocation_size();
            shard.shrink_to(2 * shard.len(), |index| hash_at(classes, hasher, *index));
            self.bytes = self.bytes - before + shard.allocation_size();
        }
    }

    fn shard_mut(&mut self, hash: u64) -> &mut HashTable<EntryIndex> {
        &mut self.shards[shard_of(hash)]
    }

    pub fn at(&self, index: EntryIndex) -> (&E, &[u8]) {
        at(&self.classes, index)
    }

    /// Returns the hash that the other functions expect.
    pub fn hash(&self, publisher: u32, text: &[u8]) -> u64 {
        self.hasher.hash_one((publisher, text))
    }

    fn hash_of(&self, index: EntryIndex) -> u64 {
        hash_at(&self.classes, &self.hasher, index)
    }
}

impl<E: WindowEntry> LengthClass<E> {
    /// Returns the bytes that one more entry will allocate.
    fn growth(&self, class: usize) -> usize {
        if self.len < self.chunks.len() * CHUNK {
            return 0;
        }
        let list = if self.chunks.len() < self.chunks.capacity() { 0 } else { self.chunks_next() };
        chunk_bytes::<E>(class) + list * size_of::<EntryChunk<E>>()
    }

    /// Returns the next number of chunks to reserve: an eighth more, so that little is unused.
    fn chunks_next(&self) -> usize {
        self.chunks.len() + self.chunks.len() / 8 + 1
    }

    /// Appends an entry; returns the bytes allocated.
    fn push(&mut self, class: usize, text: &[u8], entry: E) -> usize {
        let mut bytes = 0;
        if self.len == self.chunks.len() * CHUNK {
            let before = self.chunks.capacity();
            if self.chunks.len() == before {
                self.chunks.reserve_exact(self.chunks_next() - before);
            }
            self.chunks
                .push(EntryChunk { entries: vec![entry; CHUNK].into(), texts: vec![0; CHUNK * stride(class)].into() });
            bytes = chunk_bytes::<E>(class) + (self.chunks.capacity() - before) * size_of::<EntryChunk<E>>();
        }
        let (chunk, slot) = (&mut self.chunks[self.len / CHUNK], self.len % CHUNK);
        chunk.entries[slot] = entry;
        let cell = &mut chunk.texts[slot * stride(class)..][..stride(class)];
        cell[0] = u8::try_from(text.len()).expect("a subject has at most 255 bytes");
        cell[1..=text.len()].copy_from_slice(text);
        self.len += 1;
        bytes
    }

    /// Moves the last entry into `slot`; returns the bytes freed.
    fn swap_remove(&mut self, class: usize, slot: usize) -> usize {
        let (last, stride) = (self.len - 1, stride(class));
        if slot != last {
            self.chunks[slot / CHUNK].entries[slot % CHUNK] = self.chunks[last / CHUNK].entries[last % CHUNK];
            let mut cell = [0; CLASSES * GRAIN];
            let cell = &mut cell[..stride];
            cell.copy_from_slice(&self.chunks[last / CHUNK].texts[last % CHUNK * stride..][..stride]);
            self.chunks[slot / CHUNK].texts[slot % CHUNK * stride..][..stride].copy_from_slice(cell);
        }
        self.len = last;
        if last % CHUNK != 0 {
            return 0;
        }
        let before = self.chunks.capacity();
        self.chunks.pop();
        if 2 * self.chunks.len() <= before {
            self.chunks.shrink_to_fit();
        }
        chunk_bytes::<E>(class) + (before - self.chunks.capacity()) * size_of::<EntryChunk<E>>()
    }
}

fn class_of(text: &[u8]) -> usize {
    text.len() / GRAIN
}

/// Returns the bytes of a text with its length and its padding.
fn stride(class: usize) -> usize {
    (class + 1) * GRAIN
}

fn chunk_bytes<E>(class: usize) -> usize {
    CHUNK * (size_of::<E>() + stride(class))
}

/// Returns the shard of a hash. It uses bits that the shard's table does not use: the table takes the lowest bits for
/// the bucket and the highest seven as tag.
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

fn at<E>(classes: &[LengthClass<E>], index: EntryIndex) -> (&E, &[u8]) {
    let (chunk, slot) = (&classes[index.class()].chunks[index.slot() / CHUNK], index.slot() % CHUNK);
    let cell = &chunk.texts[slot * stride(index.class())..][..stride(index.class())];
    (&chunk.entries[slot], &cell[1..=usize::from(cell[0])])
}

fn hash_at<E: WindowEntry>(classes: &[LengthClass<E>], hasher: &FixedState, index: EntryIndex) -> u64 {
    let (entry, text) = at(classes, index);
    hasher.hash_one((entry.publisher(), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeMap;

    #[derive(Clone, Copy)]
    struct Probe {
        value: u64,
        publisher: u32,
    }

    impl WindowEntry for Probe {
        fn publisher(&self) -> u32 {
            self.publisher
        }

        fn generation(&self) -> u8 {
            0
        }

        fn set_generation(&mut self, _generation: u8) {}
    }

    /// Random inserts, look-ups and sweeps against a map; every key of a small space, so that all of it collides and
    /// comes back.
    #[test]
    fn table_agrees_with_a_map() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut table: WindowTable<Probe> = WindowTable::new(usize::MAX, rng.next_u64());
            let mut model: BTreeMap<(u32, Vec<u8>), u64> = BTreeMap::new();
            for step in 0..4000 {
                let len = [1, 7, 8, 9, 255][rng.below(5) as usize];
                let mut text = vec![b'x'; len];
                text[0] = rng.below(200) as u8;
                let key = (rng.below(3) as u32, text);
                let hash = table.hash(key.0, &key.1);
                match table.find(hash, key.0, &key.1) {
                    Some(index) => assert_eq!(Some(&table.entry_mut(index).value), model.get(&key), "seed {seed}"),
                    None => {
                        assert!(!model.contains_key(&key), "seed {seed} step {step}");
                        assert!(table.insert(hash, &key.1, Probe { value: step, publisher: key.0 }));
                        model.insert(key, step);
                    }
                }
                if rng.chance(0.002) {
                    let below = rng.below(step + 1);
                    let mut sweep = table.start_sweep();
                    while table.sweep(&mut sweep, 7, |entry| entry.value < below) {}
                    model.retain(|_, value| below <= *value);
                }
                assert_eq!(table.len(), model.len());
            }
            let all: BTreeMap<_, _> =
                table.iter().map(|(text, entry)| ((entry.publisher, text.to_vec()), entry.value)).collect();
            assert_eq!(all, model, "seed {seed}");
            let mut sweep = table.start_sweep();
            while table.sweep(&mut sweep, usize::MAX, |_| true) {}
            assert_eq!(table.len(), 0);
            assert!(table.bytes() < 64 * 400, "an empty table keeps only small shards: {}", table.bytes());
        }
    }

    #[test]
    fn table_stays_within_limit_and_reuses_freed_memory() {
        let limit = 40_000;
        let mut table = WindowTable::new(limit, 1);
        for round in 0..5 {
            let len = [10, 200, 30, 3, 100][round];
            let mut added = 0;
            for n in 0..5000_u32 {
                let mut text = vec![b'y'; len];
                text[..3].copy_from_slice(&n.to_be_bytes()[1..]);
                added += usize::from(table.insert(table.hash(0, &text), &text, Probe { value: 0, publisher: 0 }));
                assert!(table.bytes() <= limit, "{} bytes", table.bytes());
            }
            assert_eq!(added, table.len());
            assert!(
                limit / 2 < added * WindowTable::<Probe>::entry_bytes(&vec![0; len]),
                "round {round}: only {added}"
            );
            let mut sweep = table.start_sweep();
            while table.sweep(&mut sweep, 100, |_| true) {}
        }
    }
}
