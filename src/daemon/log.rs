//! The log: one line per fact, as text or as JSON.

use crate::config::{Config, LogFormat, LogLevel};
use crate::message::{Count, Publisher};
use crate::proto::advisory::Advisory;
use crate::proto::effect::MemberEvent;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Mutex;
use tracing::level_filters::LevelFilter;

/// Why the log could not be opened.
#[derive(Debug)]
pub enum LogError {
    /// The file cannot be written.
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// This process has a log already.
    Twice,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::File { path, error } => {
                write!(f, "cannot write the log {}: {error}; set log-file to another place", path.display())
            }
            LogError::Twice => write!(f, "this process has a log already"),
        }
    }
}

impl std::error::Error for LogError {}

/// Opens the log of this process, as configured: to standard error, or appended to a file.
///
/// # Errors
/// The file cannot be written, or there is a log already.
pub fn start(config: &Config) -> Result<(), LogError> {
    let level = match config.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // A log that nobody reads any more must not end the peer: telling of that on standard error would panic.
    let builder = tracing_subscriber::fmt().with_max_level(level).with_target(false).log_internal_errors(false);
    let to_file = match &config.log_file {
        None => None,
        Some(path) => {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            Some(opened.map_err(|error| LogError::File { path: path.clone(), error })?)
        }
    };
    let colour = to_file.is_none() && io::stderr().is_terminal();
    let builder = builder.with_ansi(colour);
    let started = match (config.log_format, to_file) {
        (LogFormat::Text, None) => builder.with_writer(io::stderr).try_init(),
        (LogFormat::Text, Some(file)) => builder.with_writer(Mutex::new(file)).try_init(),
        (LogFormat::Json, None) => builder.json().flatten_event(true).with_writer(io::stderr).try_init(),
        (LogFormat::Json, Some(file)) => builder.json().flatten_event(true).with_writer(Mutex::new(file)).try_init(),
    };
    started.map_err(|_| LogError::Twice)
}

/// News of another peer.
pub(crate) fn member(publisher: &Publisher, event: MemberEvent) {
    let (name, epoch, uid) = (name(publisher), publisher.epoch, publisher.uid);
    match event {
        MemberEvent::Up => tracing::info!(peer = name, %epoch, uid, "peer up"),
        MemberEvent::Left => tracing::info!(peer = name, %epoch, uid, "peer left"),
        MemberEvent::Heard => tracing::info!(peer = name, %epoch, uid, "peer heard again"),
        MemberEvent::Silent => tracing::warn!(peer = name, %epoch, uid, "peer silent"),
        MemberEvent::Crashed => tracing::warn!(peer = name, %epoch, uid, "peer crashed"),
        MemberEvent::MulticastBack => tracing::info!(peer = name, %epoch, uid, "multicasts of a peer arrive again"),
        MemberEvent::MulticastDead => {
            tracing::warn!(peer = name, %epoch, uid, "multicasts of a peer do not arrive, its unicasts do; see docs/network.md");
        }
        MemberEvent::LeftBehind => {
            tracing::warn!(peer = name, %epoch, uid, "peer takes too little of what is sent and is not waited for; see 'show peers'");
        }
        MemberEvent::CaughtUp => tracing::info!(peer = name, %epoch, uid, "peer has caught up"),
        MemberEvent::DuplicateName => {
            tracing::warn!(peer = name, %epoch, uid, "two peers have the same name; give each its own (key 'name')");
        }
    }
}

/// A loss, summed up as in the advisory that goes to the clients: the first at once, then one line a second.
pub(crate) fn advisory(advisory: &Advisory) {
    let Advisory { publisher, subjects_count, unverified, reason, cause, .. } = advisory;
    let lost = Count::from_bounds(advisory.lost_min, advisory.lost_max);
    tracing::warn!(
        peer = name(publisher),
        epoch = %publisher.epoch,
        uid = publisher.uid,
        %lost,
        subjects = subjects_count,
        unverified,
        %reason,
        cause = cause.as_str(),
        "loss"
    );
}

fn name(publisher: &Publisher) -> &str {
    publisher.name.as_ref().map_or("?", |name| name.as_str())
}
