//! Ctrl-C and SIGTERM: they end the waiting or the work of a command, which then ends in order.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

/// Maximum time after a signal at which a sleep ends.
const SLEEP_STEP: Duration = Duration::from_millis(50);

/// Flag that the user wants the command to end. Watching begins with the first value of a process and never stops: the
/// console runs many commands in turn.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches for the signals; earlier ones do not count.
    ///
    /// # Errors
    /// The system refuses to.
    pub fn watch() -> io::Result<Interrupt> {
        static WATCHED: OnceLock<Interrupt> = OnceLock::new();
        if let Some(interrupt) = WATCHED.get() {
            interrupt.0.store(false, Ordering::Relaxed);
            return Ok(interrupt.clone());
        }
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(WATCHED.get_or_init(|| Interrupt(flag)).clone())
    }

    /// Sleeps for `span`; returns within 50 ms of a signal.
    pub fn sleep(&self, span: Duration) {
        let mut left = span;
        while !left.is_zero() && !self.is_raised() {
            let step = left.min(SLEEP_STEP);
            thread::sleep(step);
            left -= step;
        }
    }

    /// Returns the flag that a signal sets; setting it has the same effect.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Returns whether a signal came.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_ends_a_sleep() {
        let interrupt = Interrupt(Arc::new(AtomicBool::new(false)));
        let handle = interrupt.clone();
        let signal = thread::spawn(move || handle.flag().store(true, Ordering::Relaxed));
        // Without the signal the test would not end.
        interrupt.sleep(Duration::from_secs(100_000));
        signal.join().unwrap();
        assert!(interrupt.is_raised());
    }
}
