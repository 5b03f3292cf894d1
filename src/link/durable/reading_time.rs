//! Time for which messages wait for earlier ones.

use crate::time::Instant;
use std::time::Duration;

/// A clock that stands still while a gateway has no room to read on: the message for which others wait may be in the
/// stream and is not read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadingTime {
    /// Time for which it has stood still before.
    stopped_for: Duration,
    /// Time since which it stands still.
    stopped_at: Option<Instant>,
}

impl ReadingTime {
    /// Stops the clock, or lets it run.
    pub(super) fn set_running(&mut self, now: Instant, is_running: bool) {
        if is_running {
            self.stopped_for += self.stopped_at.take().map_or(Duration::ZERO, |stopped_at| now.since(stopped_at));
        } else {
            self.stopped_at.get_or_insert(now);
        }
    }

    /// Returns what the clock shows.
    pub(super) fn at(&self, now: Instant) -> Instant {
        let real = self.stopped_at.unwrap_or(now);
        Instant::ZERO + real.since(Instant::ZERO).saturating_sub(self.stopped_for)
    }

    /// Returns the time at which the clock shows this; `None` while it stands still.
    pub(super) fn when(&self, shown: Instant) -> Option<Instant> {
        self.stopped_at.is_none().then(|| shown + self.stopped_for)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_counts_the_time_in_which_it_runs() {
        let at = |secs: u64| Instant::ZERO + Duration::from_secs(secs);
        let mut time = ReadingTime::default();
        assert_eq!((time.at(at(7)), time.when(at(9))), (at(7), Some(at(9))));
        time.set_running(at(10), false);
        time.set_running(at(12), false);
        assert_eq!((time.at(at(25)), time.when(at(11))), (at(10), None));
        time.set_running(at(30), true);
        time.set_running(at(40), true);
        assert_eq!((time.at(at(42)), time.when(at(22))), (at(22), Some(at(42))));
    }
}
