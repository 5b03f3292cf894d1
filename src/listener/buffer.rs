//! Received bytes of a client that are not yet commands.

/// Size above which a buffer is large, in bytes. A large buffer releases consumed bytes, and its whole capacity counts
/// as held.
pub(crate) const LARGE_BYTES: usize = 256 * 1024;

/// Received bytes of a client that are not yet consumed.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Offset of the first unconsumed byte.
    start: usize,
    /// Maximum capacity that an empty buffer retains, in bytes. It bounds the memory of idle clients.
    idle_bytes_max: usize,
}

impl Buffer {
    /// Returns an empty buffer.
    pub(crate) fn new(idle_bytes_max: usize) -> Buffer {
        Buffer { bytes: Vec::new(), start: 0, idle_bytes_max }
    }

    /// Appends received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // A move never copies more bytes than were consumed.
        if self.bytes.len() <= 2 * self.start {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the unconsumed bytes.
    #[inline]
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Marks the next `bytes` bytes as consumed.
    #[inline]
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
            if self.idle_bytes_max < self.bytes.capacity() {
                self.bytes = Vec::new();
            }
        } else if LARGE_BYTES < self.start {
            self.bytes = self.rest().to_vec();
            self.start = 0;
        }
    }

    /// Returns the number of held bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        held_bytes(self.bytes.capacity(), self.rest().len())
    }
}

/// Returns the number of held bytes of a buffer with this capacity and this number of bytes in use.
pub(crate) fn held_bytes(capacity: usize, used: usize) -> usize {
    if LARGE_BYTES < capacity { capacity } else { used }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::VecDeque;

    #[test]
    fn random_operations_equal_a_plain_queue() {
        // Each seed has about ten large pushes and ten large skips.
        for seed in 0..20 {
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
                // Iterators compare byte by byte, which is slow without optimisation; slices are compared at once.
                assert!(buffer.rest() == twin.make_contiguous(), "seed {seed}");
                assert!(twin.len() <= buffer.held_bytes(), "seed {seed}");
            }
        }
    }

    #[test]
    fn consumed_memory_is_released() {
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
