//! The log of a peer that is a program of its own: one line per event, as text or as JSON.

use crate::config::{Config, LogFormat, LogLevel};
use crate::daemon::log_file::LogFile;
use crate::daemon::log_levels::LogLevels;
use crate::daemon::recent_lines::RecentLines;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, registry, reload};

/// Log file of this process, if it logs to a file.
static FILE: OnceLock<Mutex<LogFile>> = OnceLock::new();
/// Filter of the log of this process.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Last lines of the log of this process.
static RECENT: Mutex<RecentLines> = Mutex::new(RecentLines::new());

/// Writer of log lines from any thread: to the log file, or to standard error if there is none.
struct Appender(Option<&'static Mutex<LogFile>>);

impl Appender {
    fn new() -> Appender {
        Appender(FILE.get())
    }
}

impl Write for Appender {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        lock(&RECENT).push(line);
        match self.0 {
            Some(file) => lock(file).write(line),
            // A part of a line would otherwise be written, and kept, twice.
            None => io::stderr().write_all(line).map(|()| line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.map_or(Ok(()), |file| lock(file).flush())
    }
}

fn lock<T>(shared: &'static Mutex<T>) -> MutexGuard<'static, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reason why the log could not be opened.
#[derive(Debug)]
pub enum LogError {
    /// The file cannot be written.
    File {
        /// Path of the log file.
        path: PathBuf,
        /// Error that the system returned.
        error: io::Error,
    },
    /// This process has a log already.
    AlreadyStarted,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::File { path, error } => {
                write!(f, "cannot write the log {}: {error}; set log-file to another place", path.display())
            }
            LogError::AlreadyStarted => write!(f, "this process has a log already"),
        }
    }
}

impl std::error::Error for LogError {}

/// Opens the log of this process, as configured: to standard error, or appended to a file.
///
/// # Errors
/// The file cannot be written, or the process has a log already.
pub fn start(config: &Config) -> Result<(), LogError> {
    if let Some(path) = &config.log_file {
        let file = LogFile::open(path, config.log_format);
        let file = file.map_err(|error| LogError::File { path: path.clone(), error })?;
        FILE.set(Mutex::new(file)).map_err(|_| LogError::AlreadyStarted)?;
    }
    let (filter, handle) = reload::Layer::new(targets(&LogLevels::new(config.log_level)));
    // A log without a reader must not end the peer: reporting such an error on standard error would panic.
    let lines =
        layer().with_target(false).log_internal_errors(false).with_ansi(!is_file() && io::stderr().is_terminal());
    let lines = lines.with_writer(Appender::new);
    let lines = match config.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    registry().with(filter).with(lines).try_init().map_err(|_| LogError::AlreadyStarted)?;
    FILTER.set(handle).map_err(|_| LogError::AlreadyStarted)
}

fn targets(levels: &LogLevels) -> Targets {
    let modules = levels.modules().map(|(module, level)| (module, level_filter(level)));
    let own = Targets::new().with_default(level_filter(levels.default_level())).with_targets(modules);
    // The link logs what its client reports, in its own words.
    match levels.default_level() {
        LogLevel::Debug | LogLevel::Trace => own,
        _ => own.with_target("async_nats", LevelFilter::OFF),
    }
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Returns whether [`start`] has opened the log of this process.
pub(super) fn is_started() -> bool {
    FILTER.get().is_some()
}

/// Returns the last lines of the log of this process, oldest first.
pub(super) fn recent_lines() -> Vec<String> {
    lock(&RECENT).lines()
}

/// Applies these levels from now on.
pub(super) fn apply(levels: &LogLevels) {
    if let Some(filter) = FILTER.get()
        && let Err(error) = filter.reload(targets(levels))
    {
        tracing::warn!(%error, "the log level stays as it is");
    }
}

/// Returns whether the log of this process goes to a file.
pub(super) fn is_file() -> bool {
    FILE.get().is_some()
}

/// Reopens the log under its name, as log rotation requires.
pub(super) fn reopen() {
    let Some(file) = FILE.get() else { return };
    let opened = {
        let mut file = lock(file);
        file.reopen().map_err(|error| LogError::File { path: file.path().to_owned(), error })
    };
    match opened {
        Ok(()) => tracing::info!("log opened anew"),
        Err(error) => tracing::warn!(%error, "the log stays in the file that it was in"),
    }
}
