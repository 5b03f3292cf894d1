//! Stamps, the numbers that the shared state assigns: generation and count in one.

use std::fmt;

/// Number of bits that count stamps within a generation: 2.7e11 stamps last five months at 20,000 events a second.
const COUNT_BITS: u32 = 38;
/// Last count of a generation.
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
/// Last generation. With its 25 bits a stamp has 63 bits, so it is a positive number in every store.
const GENERATION_MAX: u32 = (1 << 25) - 1;
/// Time in milliseconds after which the clock yields the next generation: 25 bits last for 68 years.
const STEP_MS: u64 = 64_000;
/// 2026-01-01 00:00:00 UTC in milliseconds since 1970, the origin of generations drawn from the clock.
const BEGIN_MS: u64 = 1_767_225_600_000;

/// One uninterrupted lifetime of the shared state. After each loss or rollback of the state, a new and higher
/// generation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(u32);

impl Generation {
    /// Returns the generation with this number, 1 to 2^25 - 1.
    pub fn new(number: u32) -> Option<Generation> {
        (1 <= number && number <= GENERATION_MAX).then_some(Generation(number))
    }

    /// Returns the generation to begin after `known`, the highest generation that the caller remembers. It is at least
    /// the generation of the clock, so that generations rise even without `known`. `now_ms` is in milliseconds since
    /// 1970-01-01 UTC. Returns `None` after the last generation.
    pub fn after(known: Option<Generation>, now_ms: u64) -> Option<Generation> {
        let clock = u32::try_from(now_ms.saturating_sub(BEGIN_MS) / STEP_MS).unwrap_or(GENERATION_MAX);
        let next = known.map_or(1, |known| known.0 + 1);
        Generation::new(next.max(clock.min(GENERATION_MAX)))
    }

    /// Returns its number.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number that the shared state assigned, 63 bits: the generation in the upper 25, the count in the lower 38.
///
/// Ids of events, tokens of owners and sessions of workers are stamps of one sequence. So no two are equal, and the
/// greater of two was assigned later. An event stamped by the owner with token `t` or by a later owner has an id above
/// `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderStamp(u64);

impl OrderStamp {
    /// Returns the position before a generation's first stamp, which is assigned to no event, owner or worker.
    pub fn begin(generation: Generation) -> OrderStamp {
        OrderStamp(u64::from(generation.0) << COUNT_BITS)
    }

    /// Returns the stamp of this number, as returned by [`number`](OrderStamp::number); `None` if its generation is 0
    /// or it has 64 bits.
    pub fn from_number(number: u64) -> Option<OrderStamp> {
        let generation = u32::try_from(number >> COUNT_BITS).ok().and_then(Generation::new);
        generation.map(|_| OrderStamp(number))
    }

    /// Returns the stamp after this one; `None` if the generation has no more.
    pub fn next(self) -> Option<OrderStamp> {
        (self.count() < COUNT_MAX).then_some(OrderStamp(self.0 + 1))
    }

    /// Returns whether its generation can assign `count` further stamps.
    pub fn is_followed_by(self, count: u64) -> bool {
        count <= COUNT_MAX - self.count()
    }

    /// Returns the number, 2^38 to 2^63 - 1.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the generation that assigned it.
    pub fn generation(self) -> Generation {
        Generation(u32::try_from(self.0 >> COUNT_BITS).expect("a stamp has 63 bits"))
    }

    /// Returns the number of stamps that its generation had assigned, including this one; below 2^38.
    pub fn count(self) -> u64 {
        self.0 & COUNT_MAX
    }
}

impl fmt::Display for OrderStamp {
    /// Writes the number in decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_consists_of_generation_and_count() {
        for (generation, count, number) in
            [(1, 0, 1 << 38), (1, 7, (1 << 38) + 7), (GENERATION_MAX, COUNT_MAX, (1 << 63) - 1)]
        {
            let stamp = OrderStamp::from_number(number).unwrap();
            assert_eq!((stamp.generation().number(), stamp.count(), stamp.number()), (generation, count, number));
        }
        for number in [0, 1, (1 << 38) - 1, 1 << 63, u64::MAX] {
            assert_eq!(OrderStamp::from_number(number), None, "{number}");
        }
        let before_last = OrderStamp::from_number((4 << 38) - 2).unwrap();
        assert!(before_last.is_followed_by(1) && !before_last.is_followed_by(2));
        let begin = OrderStamp::begin(Generation::new(3).unwrap());
        assert_eq!(begin.next().map(OrderStamp::number), Some((3 << 38) + 1));
        assert_eq!(OrderStamp::from_number((4 << 38) - 1).unwrap().next(), None, "the generation is used up");
    }

    #[test]
    fn generation_rises_by_memory_or_by_the_clock() {
        let generation = |number| Generation::new(number);
        let hour = BEGIN_MS + 3_600_000;
        for (known, now_ms, expected) in [
            (None, 0, generation(1)),
            (None, BEGIN_MS + STEP_MS, generation(1)),
            (None, hour, generation(56)),
            (generation(7), 0, generation(8)),
            (generation(7), hour, generation(56)),
            (generation(56), hour, generation(57)),
            (generation(57), u64::MAX, generation(GENERATION_MAX)),
            (generation(GENERATION_MAX), hour, None),
        ] {
            assert_eq!(Generation::after(known, now_ms), expected, "{known:?} {now_ms}");
        }
        assert_eq!((generation(0), generation(GENERATION_MAX + 1)), (None, None));
    }
}
