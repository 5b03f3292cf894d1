//! Signal handling: SIGTERM and SIGINT end the peer. SIGHUP reopens a log file, and reads the configuration again.

#[cfg(feature = "cli")]
use crate::daemon::log_output;
use crate::daemon::tokens::SIGNALS;
use mio::net::UnixStream;
use mio::{Interest, Registry};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::raw::c_int;
use std::os::unix::net::UnixStream as StdStream;

/// Terminal of the session; it cannot be opened once that terminal is closed.
const TERMINAL: &str = "/dev/tty";

/// Streams on which signals arrive as bytes, one stream for each meaning.
#[derive(Debug)]
pub(super) struct Signals {
    terminations: UnixStream,
    hangups: UnixStream,
    had_terminal: bool,
}

/// Numbers of received signals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceivedSignals {
    /// SIGTERM and SIGINT.
    pub(super) terminations: usize,
    /// SIGHUP.
    pub(super) hangups: usize,
}

impl Signals {
    /// Starts to watch for signals.
    pub(super) fn watch(registry: &Registry) -> io::Result<Signals> {
        // A program started with nohup should survive the terminal.
        let hangups: &[c_int] = if is_ignored(SIGHUP) && !logs_to_file() { &[] } else { &[SIGHUP] };
        // A terminal that is closed before it is looked for ends the process: the signal is not watched yet.
        let had_terminal = has_terminal();
        let (terminations, hangups) = (stream(registry, &[SIGTERM, SIGINT])?, stream(registry, hangups)?);
        Ok(Signals { terminations, hangups, had_terminal })
    }

    /// Returns whether the process has lost the terminal that it had when it began to watch for signals.
    pub(super) fn is_terminal_closed(&self) -> bool {
        self.had_terminal && !has_terminal()
    }

    /// Returns the signals received since the last call.
    pub(super) fn take(&mut self) -> ReceivedSignals {
        ReceivedSignals { terminations: drain(&mut self.terminations), hangups: drain(&mut self.hangups) }
    }
}

/// Returns whether the log of this process goes to a file. Only the command line opens one.
pub(super) fn logs_to_file() -> bool {
    #[cfg(feature = "cli")]
    return log_output::is_file();
    #[cfg(not(feature = "cli"))]
    false
}

fn has_terminal() -> bool {
    File::open(TERMINAL).is_ok()
}

fn stream(registry: &Registry, signals: &[c_int]) -> io::Result<UnixStream> {
    let (read, write) = StdStream::pair()?;
    read.set_nonblocking(true)?;
    write.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
    }
    let mut read = UnixStream::from_std(read);
    registry.register(&mut read, SIGNALS, Interest::READABLE)?;
    Ok(read)
}

fn drain(stream: &mut UnixStream) -> usize {
    let mut bytes = [0u8; 16];
    let mut count = 0;
    while let Ok(more @ 1..) = stream.read(&mut bytes) {
        count += more;
    }
    count
}

/// Returns whether this program was started with the signal ignored; false if the system does not report it.
fn is_ignored(signal: c_int) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
