//! The timer of a link: one of the kernel, which wakes the thread once for each time. Timers of the runtime wake it up to
//! twice more, at the boundaries of their wheel: an idle gateway would spend much of its processor time on that.

use crate::time::{Instant, nanos};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The kernel timer, in the form that `AsyncFd` takes.
#[derive(Debug)]
struct TimerDescriptor(TimerFd);

impl AsRawFd for TimerDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// The timer of a link.
#[derive(Debug)]
pub(super) struct LinkTimer(AsyncFd<TimerDescriptor>);

impl LinkTimer {
    /// Creates the timer, inside the runtime of the link.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(super) fn new() -> io::Result<LinkTimer> {
        // The timer uses the same clock as `Clock`.
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        // SAFETY: the timer owns its descriptor, and nothing replaces it.
        let registered = unsafe { AsyncFd::register_with_interest(TimerDescriptor(timer), Interest::READABLE) };
        Ok(LinkTimer(registered.map_err(io::Error::from)?))
    }

    /// Waits until this time. A wait that is dropped has no effect.
    ///
    /// # Errors
    /// The runtime is ending, or the system refuses.
    pub(super) async fn wait_until(&self, at: Instant) -> io::Result<()> {
        // A time of zero would disarm the timer.
        let at = TimeSpec::from(Duration::from_nanos(nanos(at.since(Instant::ZERO)).max(1)));
        self.0.get_ref().0.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        loop {
            let mut ready = self.0.readable().await?;
            // An earlier expiration that was not read counts no more once the timer is set.
            if let Ok(expired) = ready.try_io(|timer| timer.get_ref().0.wait().map_err(io::Error::from)) {
                return expired;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[tokio::test]
    async fn each_wait_ends_at_its_time() {
        let [timer, other] = [LinkTimer::new().unwrap(), LinkTimer::new().unwrap()];
        let in_ms = |ms| Clock::now().instant + Duration::from_millis(ms);
        for dropped in [3_600_000, 1, 3_600_000] {
            tokio::select! {
                biased;
                _ = timer.wait_until(in_ms(dropped)) => panic!("nothing waits for it"),
                () = tokio::task::yield_now() => {}
            }
            other.wait_until(in_ms(2)).await.unwrap();
            let at = in_ms(2);
            timer.wait_until(at).await.unwrap();
            assert!(at <= Clock::now().instant, "an expiration that nobody awaited ends no later wait");
        }
        timer.wait_until(Instant::ZERO).await.unwrap();
    }
}
