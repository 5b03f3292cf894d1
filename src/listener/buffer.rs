//! The bytes of a client on their way to be commands.

/// Of a buffer that is larger nothing is kept that is done with, and all of it counts as held.
pub(crate) const LARGE_BYTES: usize = 256 * 1024;

/// What has come from a client and is not done with.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Before it lies what is done with.
    start: usize,
    /// So much memory at most is kept while there is nothing in it: a client that does nothing costs little.
    kept_bytes: usize,
}

impl Buffer {
    /// Nothing has come yet.
    pub(crate) fn new(kept_bytes: usize) -> Buffer {
        Buffer { bytes: Vec::new(), start: 0, kept_bytes }
    }

    /// Takes bytes as they came.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // At most as much is moved as was read.
        if self.bytes.len() <= 2 * self.start {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// What is not done with.
    #[inline]
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// So many more bytes are done with.
    #[inline]
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
            if self.kept_bytes < self.bytes.capacity() {
                self.bytes = Vec::new();
            }
        } else if LARGE_BYTES < self.start {
            self.bytes = self.rest().to_vec();
            self.start = 0;
        }
    }

    /// Bytes that are held.
    pub(crate) fn held_bytes(&self) -> usize {
        held_bytes(self.bytes.capacity(), self.rest().len())
    }
}

/// Bytes that are held where there is memory for so many, and so many are in use.
pub(crate) fn held_bytes(capacity: usize, used: usize) -> usize {
    if LARGE_BYTES < capacity { capacity } else { used }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::VecDeque;

    #[test]
    fn it_is_its_twin() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (mut buffer, mut twin) = (Buffer::new(100), VecDeque::new());
            let size = |rng: &mut Rng| if rng.chance(0.05) { 600_000 } else { rng.below(300) };
            for byte in 0..400 {
                if rng.chance(0.5) {
                    let bytes = vec![byte as u8; size(&mut rng) as usize];
                    buffer.push(&bytes);
                    twin.extend(bytes);
                } else {
                    let count = size(&mut rng).min(twin.len() as u64) as usize;
                    buffer.skip(count);
                    twin.drain(..count);
                }
                assert!(buffer.rest().iter().eq(&twin), "seed {seed}");
                assert!(twin.len() <= buffer.held_bytes(), "seed {seed}");
            }
        }
    }

    #[test]
    fn memory_of_what_is_done_with_is_given_back() {
        let mut buffer = Buffer::new(100);
        buffer.push(&[1; 100]);
        buffer.skip(100);
        assert_eq!((buffer.held_bytes(), buffer.bytes.capacity()), (0, 100));
        buffer.push(&[1; 101]);
        buffer.skip(101);
        assert_eq!((buffer.held_bytes(), buffer.bytes.capacity()), (0, 0));
        buffer.push(&[1; 2 * LARGE_BYTES]);
        buffer.skip(LARGE_BYTES);
        assert!(2 * LARGE_BYTES <= buffer.held_bytes(), "all of it counts");
        buffer.skip(LARGE_BYTES - 3);
        assert_eq!((buffer.held_bytes(), buffer.rest()), (3, &[1; 3][..]), "though more follows");
    }
}
