//! Hashes of states that ignore irrelevant differences between stamps, and between workers.
//!
//! A worker's steps depend on the equality of stamps, and on their generations. So states that differ in the counts
//! alone are one. Each stamp is hashed as its generation and its position among the stamps of the state, by first
//! appearance. Workers' steps do not depend on their names either, if these differ.

use std::hash::Hasher;

/// Minimum number of a stamp; no other number in a state is as large.
const STAMP_MIN: u64 = 1 << 38;

/// Bits of a stamp that are its generation.
const GENERATION: u64 = !(STAMP_MIN - 1);

/// The relation under which states are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateRelation {
    /// Equal states only.
    Same,
    /// States that differ in the numbers of stamps.
    Stamps,
    /// States that differ in the numbers of stamps and in the names of workers.
    Workers,
}

/// A hasher of 128 bits.
#[derive(Clone)]
pub struct StateHasher {
    relation: StateRelation,
    lanes: [u64; 2],
    stamps: Vec<u64>,
}

impl StateHasher {
    /// Returns a hasher for the digests of this relation.
    pub fn new(relation: StateRelation) -> StateHasher {
        StateHasher { relation, lanes: [1, 2], stamps: Vec::new() }
    }

    /// Returns all bits of the hash.
    pub fn wide(&self) -> u128 {
        u128::from(self.lanes[0]) << 64 | u128::from(self.lanes[1])
    }

    fn mix(&mut self, word: u64) {
        for (lane, factor) in self.lanes.iter_mut().zip([0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93]) {
            let mixed = (*lane ^ word).wrapping_mul(factor);
            *lane = mixed.rotate_left(29) ^ (mixed >> 32);
        }
    }
}

impl Hasher for StateHasher {
    fn finish(&self) -> u64 {
        self.lanes[0]
    }

    fn write(&mut self, bytes: &[u8]) {
        // Capital letters are the names of workers.
        if self.relation == StateRelation::Workers && matches!(bytes, [b'A'..=b'Z']) {
            return;
        }
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u64(&mut self, word: u64) {
        if word < STAMP_MIN || self.relation == StateRelation::Same {
            return self.mix(word);
        }
        let position = self.stamps.iter().position(|stamp| *stamp == word).unwrap_or_else(|| {
            self.stamps.push(word);
            self.stamps.len() - 1
        });
        self.mix(word & GENERATION | position as u64);
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }
}
