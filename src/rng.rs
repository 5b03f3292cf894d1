//! A small seeded generator: the only source of randomness in the protocol core and in the simulator.
//!
//! The algorithm is SplitMix64 (Steele, Lea, Flood 2014). Its state is one word, every seed is good, and a fork is
//! independent of its parent. It is not for secrets.

/// A deterministic generator; the same seed gives the same numbers on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates a generator from `seed`, which may have any value.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns the next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns a number in `0..bound`, or 0 if `bound` is 0. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in `low..=high`; `low` if the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Returns true with the given probability (0.0 to 1.0).
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// Returns an independent generator, so that the draws of one component do not shift those of another.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_gives_the_published_numbers() {
        // The reference outputs of SplitMix64 for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn drawn_numbers_reach_and_respect_their_bounds() {
        let mut rng = Rng::new(7);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[usize::try_from(rng.between(0, 4)).unwrap()] = true;
            assert_eq!(rng.below(0), 0);
            assert_eq!(rng.between(9, 9), 9);
        }
        assert_eq!(seen, [true; 5]);
        assert!(!rng.chance(0.0));
        assert!(rng.chance(1.0));
    }
}
