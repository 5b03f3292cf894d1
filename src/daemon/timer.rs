//! The timer that ends a wait without events: a kernel timer that is set rarely.
//!
//! Every datagram moves deadlines, mostly to later. Setting and clearing a kernel timer for each would cost more than
//! the rest of a turn. That is worst on virtual machines, where reading the hardware clock involves the host. So a
//! timer stays set while it is early enough, and occasionally wakes the loop in vain.

use crate::time::{Instant, nanos};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The timer of one loop.
#[derive(Debug)]
pub(crate) struct Timer {
    timer: TimerFd,
    /// Time at which the timer fires.
    set: Option<Instant>,
}

impl Timer {
    /// Makes a timer that is not set. An event with `token` reports that it fired.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Timer> {
        // The timer uses the same clock as `Clock`.
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        registry.register(&mut SourceFd(&timer.as_fd().as_raw_fd()), token, Interest::READABLE)?;
        Ok(Timer { timer, set: None })
    }

    /// Makes the timer fire at `deadline`, rounded up to milliseconds, or earlier. All work due in the same millisecond
    /// is done in the same turn.
    pub(crate) fn set(&mut self, deadline: Instant) -> io::Result<()> {
        if self.set.is_some_and(|set| set <= deadline) {
            return Ok(());
        }
        // A time of zero would disarm the timer.
        let millis = nanos(deadline.since(Instant::ZERO)).div_ceil(1_000_000).max(1);
        let at = TimeSpec::from(Duration::from_millis(millis));
        self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        self.set = Some(deadline);
        Ok(())
    }

    /// Records that the timer fired. Its counter need not be read: each expiration causes an event of its own.
    pub(crate) fn on_event(&mut self) {
        self.set = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use mio::{Events, Poll};

    fn now() -> Instant {
        Clock::now().instant
    }

    /// Waits for the timer, which must not fire before `at`.
    fn wait(poll: &mut Poll, timer: &mut Timer, at: Instant) {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_secs(30))).unwrap();
        assert_eq!(events.iter().map(|event| event.token()).collect::<Vec<_>>(), [Token(7)]);
        assert!(at <= now());
        timer.on_event();
    }

    #[test]
    fn timer_fires_repeatedly_at_the_earliest_deadline() {
        let mut poll = Poll::new().unwrap();
        let mut timer = Timer::new(poll.registry(), Token(7)).unwrap();
        for millis in [1, 2] {
            let at = now() + Duration::from_millis(millis);
            timer.set(at + Duration::from_secs(3600)).unwrap();
            timer.set(at).unwrap();
            timer.set(at + Duration::from_millis(1)).unwrap();
            assert_eq!(timer.set, Some(at));
            wait(&mut poll, &mut timer, at);
        }
        timer.set(Instant::ZERO).unwrap();
        wait(&mut poll, &mut timer, Instant::ZERO);
    }
}
