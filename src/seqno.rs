//! The time-framed 64-bit sequence number of seed 002.
//!
//! ```text
//!  63                           35 34                             0
//! +-------------------------------+--------------------------------+
//! |        frame (29 bits)        |         count (35 bits)        |
//! +-------------------------------+--------------------------------+
//! ```
//!
//! A frame is the wall time divided by 2^33 ns (8.589934592 s); the count starts at 1 and never is 0.
//! The 29 bits last until 2116-02-20 23:53:38 UTC (the seed rounds both figures).

use crate::time::WallTime;
use std::fmt;
use std::num::NonZeroU64;

/// Bits of the count within a frame.
pub const COUNT_BITS: u32 = 35;
/// The largest count within a frame: 2^35 - 1 messages.
pub const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
/// The largest frame: 29 bits.
pub const FRAME_MAX: u32 = (1 << (64 - COUNT_BITS)) - 1;
/// The length of a frame is `1 << FRAME_SHIFT` nanoseconds.
pub const FRAME_SHIFT: u32 = 33;

/// A span of 2^33 ns in which a subject's numbering started; `0..=FRAME_MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(u32);

impl Frame {
    /// Returns the frame that contains `wall`; times after the last frame stay in the last frame.
    pub fn at(wall: WallTime) -> Frame {
        Frame(u32::try_from(wall.as_nanos() >> FRAME_SHIFT).unwrap_or(FRAME_MAX).min(FRAME_MAX))
    }

    /// Returns the frame with this number, or `None` above `FRAME_MAX`.
    pub fn new(number: u32) -> Option<Frame> {
        (number <= FRAME_MAX).then_some(Frame(number))
    }

    /// Returns the frame's number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Returns the next frame, or `None` after the last.
    pub fn next(self) -> Option<Frame> {
        Frame::new(self.0 + 1)
    }

    /// Returns the wall time at which the frame starts.
    pub fn start(self) -> WallTime {
        WallTime::from_nanos(u64::from(self.0) << FRAME_SHIFT)
    }

    /// Returns the first sequence number of the frame: `((ns >> 33) << 35) + 1`.
    pub fn first(self) -> Seq {
        Seq::from_parts(self, 1).expect("the first count is 1")
    }
}

/// Number of a message within (publisher, epoch, subject). Its count is never 0, so an absent number takes no extra
/// space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(NonZeroU64);

impl Seq {
    /// Returns the number with this wire representation, or `None` if its count is 0.
    pub fn new(raw: u64) -> Option<Seq> {
        NonZeroU64::new(raw).filter(|_| raw & COUNT_MAX != 0).map(Seq)
    }

    /// Returns the number `count` of `frame`, or `None` unless `1 <= count <= COUNT_MAX`.
    pub fn from_parts(frame: Frame, count: u64) -> Option<Seq> {
        if COUNT_MAX < count {
            return None;
        }
        Seq::new((u64::from(frame.0) << COUNT_BITS) + count)
    }

    /// Returns the 64 bits in their wire representation.
    pub fn raw(self) -> u64 {
        self.0.get()
    }

    /// Returns the time frame in which the numbering started.
    pub fn frame(self) -> Frame {
        Frame((self.raw() >> COUNT_BITS) as u32)
    }

    /// Returns the position within the frame, from 1.
    pub fn count(self) -> u64 {
        self.raw() & COUNT_MAX
    }

    /// Returns the number `steps` further within the same frame, or `None` past its end.
    pub fn forward(self, steps: u64) -> Option<Seq> {
        Seq::from_parts(self.frame(), self.count().checked_add(steps)?)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.frame().0, self.count())
    }
}

impl fmt::Display for Seq {
    /// Formats the number as seed 002 does: `0x5c19adc000000001`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specification_example_gives_the_specified_number() {
        let wall = WallTime::from_nanos(1_659_131_646 * 1_000_000_000);
        assert_eq!(wall.as_nanos(), 0x1706_6b71_0b70_6c00);
        assert_eq!(Frame::at(wall).first().raw(), 0x5c19_adc0_0000_0001);
        assert_eq!(Frame::at(wall).first().to_string(), "0x5c19adc000000001");
    }

    #[test]
    fn frame_saturates_at_the_ends_of_its_field() {
        for (nanos, frame) in [
            (0, 0),
            ((1 << 33) - 1, 0),
            (1 << 33, 1),
            ((u64::from(FRAME_MAX) << 33) - 1, FRAME_MAX - 1),
            (u64::from(FRAME_MAX) << 33, FRAME_MAX),
            // 2116-02-20 23:53:38 UTC is the end of the last frame; later times stay in it.
            (1 << 62, FRAME_MAX),
            (u64::MAX, FRAME_MAX),
        ] {
            assert_eq!(Frame::at(WallTime::from_nanos(nanos)).number(), frame, "{nanos}");
        }
        assert_eq!((1u64 << 62) / 1_000_000_000, 4_611_686_018, "the end of the field, in seconds since 1970");
        assert_eq!(Frame::new(FRAME_MAX).unwrap().next(), None);
        assert_eq!(Frame::new(FRAME_MAX + 1), None);
        assert_eq!(Frame::new(3).unwrap().start().as_nanos(), 3 << 33);
    }

    #[test]
    fn number_outside_the_count_field_is_refused() {
        let frame = Frame::new(5).unwrap();
        assert_eq!(Seq::from_parts(frame, 0), None);
        assert_eq!(Seq::from_parts(frame, COUNT_MAX + 1), None);
        let last = Seq::from_parts(frame, COUNT_MAX).unwrap();
        assert_eq!(last.forward(1), None, "the count wraps into a new frame, never into the field above it");
        assert_eq!(last.forward(u64::MAX), None);
        assert_eq!(frame.first().forward(COUNT_MAX - 1), Some(last));
        assert_eq!(Seq::new(5 << COUNT_BITS), None);
        assert_eq!(Seq::new(u64::MAX).unwrap().forward(1), None, "nor past the end of all frames");
        assert_eq!((last.frame(), last.count()), (frame, COUNT_MAX));
        assert!(last < frame.next().unwrap().first());
    }
}
