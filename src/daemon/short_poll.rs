//! The decision whether a wait begins with a short poll. Waking a thread takes some 20 µs, and more if its processor has
//! halted. While messages come sooner one after the other than that, a poll saves the time, at the cost of the
//! processor.

use std::time::Duration;

/// Maximum time of a poll.
const POLL_TIME: Duration = Duration::from_micros(50);
/// Shortest sleep that does not count as short. It exceeds [`POLL_TIME`], since the wake of the sender delays the message
/// as well.
const SHORT_SLEEP: Duration = Duration::from_micros(200);
/// A shorter wait found something that had come before it. It counts neither for polls nor against them.
const IMMEDIATE: Duration = Duration::from_micros(5);
/// Minimum and maximum number of short sleeps between a poll in vain and the next poll.
const PAUSE_MIN: u32 = 16;
const PAUSE_MAX: u32 = 4096;
/// Number of successful polls, for each sleep of the next pause, that halve that pause.
const POLLS_PER_PAUSE: u32 = 64;

/// State of the decision of one thread.
#[derive(Debug)]
pub(crate) struct ShortPoll {
    /// Number of short sleeps that must come before the next poll.
    pause: u32,
    /// The value of `pause` after the next poll in vain.
    next_pause: u32,
    /// Number of successful polls since the last one in vain, or since `next_pause` changed.
    successes: u32,
}

impl ShortPoll {
    /// Makes the state of a thread that has received nothing yet.
    pub(crate) fn new() -> ShortPoll {
        ShortPoll { pause: PAUSE_MIN, next_pause: PAUSE_MIN, successes: 0 }
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
            self.successes = 0;
        } else if IMMEDIATE < waited {
            // A thread that keeps losing its processor has successes between its losses.
            self.successes += 1;
            if POLLS_PER_PAUSE * self.next_pause <= self.successes {
                self.next_pause = (self.next_pause / 2).max(PAUSE_MIN);
                self.successes = 0;
            }
        }
    }

    /// Makes the state of a thread whose next wait polls.
    #[cfg(test)]
    pub(crate) fn polling() -> ShortPoll {
        ShortPoll { pause: 0, ..ShortPoll::new() }
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
        assert_eq!(sleeps(&mut short_poll, SOON), 4096, "another program had the processor");
    }

    #[test]
    fn long_success_makes_polls_frequent() {
        let mut short_poll = ShortPoll::new();
        short_poll.on_poll(POLL_TIME, false);
        short_poll.on_poll(POLL_TIME, false);
        assert_eq!(short_poll.next_pause, 64);
        let polls = |count: u32, waited: Duration, short_poll: &mut ShortPoll| {
            (0..count).for_each(|_| short_poll.on_poll(waited, true));
            short_poll.next_pause
        };
        assert_eq!(polls(64 * 64 - 1, SOON, &mut short_poll), 64);
        assert_eq!(polls(100_000, IMMEDIATE, &mut short_poll), 64, "what had come before says nothing");
        assert_eq!(polls(1, SOON, &mut short_poll), 32);
        assert_eq!(polls(64 * 32, SOON, &mut short_poll), 16);
        assert_eq!(polls(100_000, SOON, &mut short_poll), 16);
    }
}
