//! The wall clock of another peer, as its stamps show it. It is for people: no decision of the protocol depends on it.

use crate::time::{ClockReading, Instant, WallTime};
use std::time::Duration;

/// Difference between the wall clock of another peer and that of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds by which the other clock is ahead; negative if it is behind. The time that the message was on its way
    /// makes the other clock look behind by as much.
    pub nanos: i64,
    /// Time at which the stamp arrived.
    measured_at: Instant,
}

impl ClockOffset {
    /// Compares the stamp of a message that arrives now with the clock of this peer.
    pub fn new(now: ClockReading, stamp: WallTime) -> ClockOffset {
        let nanos = i128::from(stamp.as_nanos()) - i128::from(now.wall.as_nanos());
        // A stamp is untrusted and may have any value.
        let nanos = i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX });
        ClockOffset { nanos, measured_at: now.instant }
    }

    /// Returns the time since the measurement.
    pub fn age(self, now: Instant) -> Duration {
        now.since(self.measured_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_is_signed_and_bounded() {
        let second = 1_000_000_000;
        let now = ClockReading { instant: Instant::from_nanos(5), wall: WallTime::from_nanos(100 * second) };
        let offset = |nanos| ClockOffset::new(now, WallTime::from_nanos(nanos)).nanos;
        assert_eq!(offset(160 * second), 60_000_000_000);
        assert_eq!(offset(40 * second), -60_000_000_000);
        assert_eq!(offset(u64::MAX), i64::MAX);
        assert_eq!(
            ClockOffset::new(now, WallTime::from_nanos(0)).age(Instant::from_nanos(12)),
            Duration::from_nanos(7)
        );
    }
}
