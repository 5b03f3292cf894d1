//! The only module that reads the system's clocks and its randomness.
//!
//! All other code takes [`ClockReading`] and seeds as arguments. The instants come from the boot-time clock, which
//! advances during suspend: a peer that slept through its silence timeout must notice.

use crate::time::{ClockReading, Instant, WallTime};
use std::io;

/// The clocks of this host.
#[derive(Clone, Copy, Debug)]
pub struct Clock;

impl Clock {
    /// Reads both clocks. Costs two calls into the vDSO, no system call.
    pub fn now() -> ClockReading {
        ClockReading {
            instant: Instant::from_nanos(read(libc::CLOCK_BOOTTIME)),
            wall: WallTime::from_nanos(read(libc::CLOCK_REALTIME)),
        }
    }
}

/// Returns the microseconds of the monotonic clock, by which systemd orders notifications. It stands still during
/// suspend.
pub fn monotonic_micros() -> u64 {
    read(libc::CLOCK_MONOTONIC) / 1000
}

/// Returns 64 random bits from the kernel, for epochs and seeds. Early after boot it waits until the kernel has
/// gathered enough entropy.
///
/// # Panics
/// Panics if the kernel has no `getrandom` (before Linux 3.17): without randomness there is no epoch, hence no proof.
pub fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    fill_random(&mut bytes);
    u64::from_be_bytes(bytes)
}

/// Fills `bytes`, at most 256, with random bits from the kernel, for keys. It waits as [`random_u64`] does.
///
/// # Panics
/// The same as of [`random_u64`].
pub fn fill_random(bytes: &mut [u8]) {
    loop {
        // SAFETY: the pointer and the length describe `bytes`, which outlives the call.
        let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if usize::try_from(filled) == Ok(bytes.len()) {
            return;
        }
        let error = io::Error::last_os_error();
        assert!(error.kind() == io::ErrorKind::Interrupted, "the kernel gives no random bits: {error}");
    }
}

/// Returns the nanoseconds of one clock; times before its start count as the start.
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write one timespec to.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(answer, 0, "Linux has had this clock since 2.6.39: {}", io::Error::last_os_error());
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_advance_and_the_date_is_plausible() {
        let first = Clock::now();
        let mut second = first;
        while second.instant == first.instant {
            second = Clock::now();
        }
        assert!(first.instant < second.instant);
        let year_2020 = WallTime::from_nanos(1_577_836_800_000_000_000);
        assert!(year_2020 < first.wall);
    }

    #[test]
    fn random_words_differ() {
        assert_ne!(random_u64(), random_u64());
    }
}
