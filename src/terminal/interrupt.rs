//! Ctrl-C and SIGTERM: they end the waiting or the work of a command, which then ends in order.

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

/// Maximum time after a signal at which a sleep ends.
const SLEEP_STEP: Duration = Duration::from_millis(50);

/// Flag that the user wants the command to end. One flag serves the whole process: the console runs many commands in turn.
#[derive(Clone, Debug)]
pub struct Interrupt {
    is_raised: Arc<AtomicBool>,
    /// True if a signal ends the process.
    is_released: Arc<AtomicBool>,
}

impl Interrupt {
    /// Watches for the signals: from now on they set the flag, and do not end the process.
    ///
    /// # Errors
    /// The system refuses to.
    pub fn watch() -> io::Result<Interrupt> {
        static WATCHED: OnceLock<Interrupt> = OnceLock::new();
        if let Some(interrupt) = WATCHED.get() {
            interrupt.is_released.store(false, Ordering::Relaxed);
            return Ok(interrupt.clone());
        }
        let interrupt = Interrupt::new();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&interrupt.is_released))?;
            signal_hook::flag::register(signal, Arc::clone(&interrupt.is_raised))?;
        }
        Ok(WATCHED.get_or_init(|| interrupt).clone())
    }

    /// Clears the flag, and lets signals end the process until `watch` is called again. The console does so between two
    /// commands.
    pub fn release(&self) {
        self.is_released.store(true, Ordering::Relaxed);
        self.is_raised.store(false, Ordering::Relaxed);
    }

    fn new() -> Interrupt {
        Interrupt { is_raised: Arc::new(AtomicBool::new(false)), is_released: Arc::new(AtomicBool::new(false)) }
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

    /// Runs work that cannot be stopped on a thread of its own, and waits for its result; returns `None` within 50 ms of
    /// a signal. The work then continues, and its result is dropped.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn wait_for<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Option<T>> {
        let (sender, result) = sync_channel(1);
        let worker = thread::Builder::new().name("work".into()).spawn(move || drop(sender.send(work())))?;
        while !self.is_raised() {
            match result.recv_timeout(SLEEP_STEP) {
                Ok(result) => return Ok(Some(result)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match worker.join() {
                    Err(panic) => resume_unwind(panic),
                    Ok(()) => unreachable!("work that ends sends its result"),
                },
            }
        }
        Ok(None)
    }

    /// Returns the flag that a signal sets; setting it has the same effect.
    pub fn flag(&self) -> &AtomicBool {
        &self.is_raised
    }

    /// Returns whether a signal came.
    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_ends_a_sleep() {
        let interrupt = Interrupt::new();
        let handle = interrupt.clone();
        let signal = thread::spawn(move || handle.flag().store(true, Ordering::Relaxed));
        // Without the signal the test would not end.
        interrupt.sleep(Duration::from_secs(100_000));
        signal.join().unwrap();
        assert!(interrupt.is_raised());
    }

    #[test]
    fn signal_ends_the_wait_for_work() {
        let interrupt = Interrupt::new();
        assert_eq!(interrupt.wait_for(|| 7).unwrap(), Some(7));
        let (end, endless) = sync_channel::<()>(1);
        let handle = interrupt.clone();
        let signal = thread::spawn(move || handle.flag().store(true, Ordering::Relaxed));
        // Without the signal the test would not end.
        assert_eq!(interrupt.wait_for(move || endless.recv()).unwrap(), None);
        signal.join().unwrap();
        drop(end);
    }
}
