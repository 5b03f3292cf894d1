//! Ctrl-C and SIGTERM: they end the waiting or the work of a command, which then ends in order.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};

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

    /// Returns the flag that a signal sets; setting it has the same effect.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Returns whether a signal came.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
