//! The decision whether a wait begins with a short poll. Waking a thread takes some 20 µs, and more if its processor has
//! halted. While messages come sooner one after the other than that, a poll saves the time, at the cost of the
//! processor.

use std::time::Duration;

/// Maximum time of a poll.
const POLL_TIME: Duration = Duration::from_micros(50);
/// Maximum time of a sleep after which a poll instead of it might have succeeded: the message came late as well because
/// its sender was asleep.
const SHORT_SLEEP: Duration = Duration::from_micros(200);
/// Maximum time of a wait for something that had come before it, which says nothing about the next wait.
const IMMEDIATE: Duration = Duration::from_micros(5);
/// Minimum and maximum number of short sleeps between a poll in vain and the next poll.
const PAUSE_MIN: u32 = 16;
const PAUSE_MAX: u32 = 4096;

/// State of the decision of one thread.
#[derive(Debug)]
pub(crate) struct ShortPoll {
    /// Number of short sleeps that must come before the next poll.
    pause: u32,
    /// The value of `pause` after the next poll in vain.
    next_pause: u32,
}

impl ShortPoll {
    /// Makes the state of a thread that has received nothing yet.
    pub(crate) fn new() -> ShortPoll {
        ShortPoll { pause: PAUSE_MIN, next_pause: PAUSE_MIN }
    }

    /// Returns the time for which the next wait should poll before it sleeps; zero if it should sleep at once.
    pub(crate) fn time(&self) -> Duration {
        if self.pause == 0 { POLL_TIME } else { Duration::ZERO }
    }

    /// Records a poll that took `waited`. It has failed if nothing came, or if the thread did not get its processor back
    /// in time, because other programs used it.
    pub(crate) fn on_poll(&mut self, waited: Duration, has_come: bool) {
        if !has_come || 2 * POLL_TIME < waited {
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(PAUSE_MAX);
        } else if IMMEDIATE < waited {
            self.next_pause = (self.next_pause / 2).max(PAUSE_MIN);
        }
    }

    /// Records a sleep without a poll.
    pub(crate) fn on_sleep(&mut self, slept: Duration) {
        if (IMMEDIATE..SHORT_SLEEP).contains(&slept) {
            self.pause = self.pause.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(40);

    /// Returns the number of sleeps of `slept` before the next poll; at most 10,000.
    fn sleeps(short_poll: &mut ShortPoll, slept: Duration) -> u32 {
        let is_asleep = |count: &u32| {
            let is_asleep = short_poll.time().is_zero() && *count < 10_000;
            short_poll.on_sleep(slept);
            is_asleep
        };
        (0..).take_while(is_asleep).count() as u32
    }

    #[test]
    fn only_short_sleeps_lead_to_polls() {
        for (micros, expected) in [(0, 10_000), (4, 10_000), (5, 16), (199, 16), (200, 10_000), (50_000, 10_000)] {
            assert_eq!(sleeps(&mut ShortPoll::new(), Duration::from_micros(micros)), expected, "{micros}");
        }
    }

    #[test]
    fn polls_in_vain_become_rare() {
        let mut short_poll = ShortPoll::new();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            pauses.push(sleeps(&mut short_poll, SOON));
            short_poll.on_poll(POLL_TIME, false);
        }
        assert_eq!(pauses, [16, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]);
        sleeps(&mut short_poll, SOON);
        for _ in 0..20 {
            assert_eq!(short_poll.time(), POLL_TIME, "success leads to further polls");
            short_poll.on_poll(SOON, true);
        }
        short_poll.on_poll(Duration::from_millis(3), true);
        assert_eq!(sleeps(&mut short_poll, SOON), 16, "another program had the processor");
    }
}
