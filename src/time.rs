//! Points in time as plain values, independent of any clock.
//!
//! State machines get the time as an argument: a [`ClockReading`] or an [`Instant`]. The shell
//! ([`clock`](crate::clock)) or the simulator reads the clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the boot-time clock of one host, in nanoseconds since an arbitrary start.
///
/// It never goes backwards, continues during suspend, and is unrelated to the date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Instant = Instant(0);
    /// The end of the clock's range, later than every event.
    pub const MAX: Instant = Instant(u64::MAX);

    /// Returns the instant `nanos` nanoseconds after the start of the clock.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Returns the nanoseconds since the start of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`; zero if `self` is not later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates at the end of the clock's range (584 years).
    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(span)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    /// Saturates at the start of the clock.
    fn sub(self, span: Duration) -> Instant {
        Instant(self.0.saturating_sub(nanos(span)))
    }
}

/// Wall-clock time in nanoseconds since 1970-01-01 UTC, for display and for the frames of sequence numbers. It may jump
/// either way, and no proof depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

impl WallTime {
    /// 1970-01-01 00:00:00 UTC.
    pub const EPOCH: WallTime = WallTime(0);

    /// Returns the wall time `nanos` nanoseconds after 1970-01-01 UTC. Range: to the year 2554.
    pub const fn from_nanos(nanos: u64) -> WallTime {
        WallTime(nanos)
    }

    /// Returns the nanoseconds since 1970-01-01 UTC.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl fmt::Display for WallTime {
    /// Formats the time of day in UTC, to the millisecond: `20:42:24.431`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0 / 1_000_000;
        let (secs, millis) = (millis / 1000, millis % 1000);
        let (hours, mins, secs) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
        write!(f, "{hours:02}:{mins:02}:{secs:02}.{millis:03}")
    }
}

/// Both clocks of a host, read once per turn of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// The clock on which all decisions are based.
    pub instant: Instant,
    /// The clock for display and dates.
    pub wall: WallTime,
}

/// Returns a duration in nanoseconds, saturating at 584 years.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_saturate_at_both_ends() {
        let second = Duration::from_secs(1);
        assert_eq!(Instant::ZERO - second, Instant::ZERO);
        assert_eq!(Instant::from_nanos(u64::MAX) + second, Instant::from_nanos(u64::MAX));
        assert_eq!(Instant::ZERO.since(Instant::from_nanos(5)), Duration::ZERO);
        assert_eq!(Instant::from_nanos(7).since(Instant::from_nanos(5)), Duration::from_nanos(2));
    }

    #[test]
    fn wall_time_shows_the_time_of_day() {
        let wall = WallTime::from_nanos((20 * 3600 + 42 * 60 + 24) * 1_000_000_000 + 431_999_999);
        assert_eq!(wall.to_string(), "20:42:24.431");
        assert_eq!(WallTime::from_nanos(86_400_000_000_000).to_string(), "00:00:00.000");
    }
}
