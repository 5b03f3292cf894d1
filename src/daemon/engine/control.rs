//! Commands beside reports: the levels of the log, the configuration, and what a report of a defect needs.

use super::Engine;
use crate::config::LogLevel;
use crate::daemon::log_levels::{DURATION_MAX, LogDirective, LogDirectiveError};
#[cfg(feature = "cli")]
use crate::daemon::log_output;
use crate::time::ClockReading;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// Reason why a level of the log is not set.
enum LogCommandError {
    /// The peer runs inside another program, which has the log.
    NoLog,
    /// The level is no text.
    NotText,
    /// There is no such level or target.
    Directive(LogDirectiveError),
    /// The time is no number of milliseconds within the limits.
    Duration,
}

impl fmt::Display for LogCommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogCommandError::NoLog => {
                write!(f, "this peer has no log of its own; set the level in the program that runs the peer")
            }
            LogCommandError::NotText => write!(f, "a level is a text; write one such as \"core=debug\""),
            LogCommandError::Directive(error) => error.fmt(f),
            LogCommandError::Duration => {
                write!(f, "a level lasts at least 1 ms and at most 7 days; leave out the time to set it for good")
            }
        }
    }
}

/// Returns the last lines of the log of this process; none if the peer has no log of its own.
fn recent_log_lines() -> Vec<String> {
    #[cfg(feature = "cli")]
    return log_output::recent_lines();
    #[cfg(not(feature = "cli"))]
    Vec::new()
}

impl Engine {
    /// Answers a query of a program of this host: a `show` query or a command. Other peers can send `show` queries only
    /// (`remote_reports.rs`).
    pub(super) fn answer_local(&mut self, now: ClockReading, query: &Value) -> Value {
        self.control(now, query).unwrap_or_else(|| self.show(now, query))
    }

    /// Carries out a command and returns its answer; `None` if the query is no command.
    fn control(&mut self, now: ClockReading, query: &Value) -> Option<Value> {
        if query.get("reload").is_some() {
            return Some(self.control_reload());
        }
        if query.get("debug").is_some() {
            return Some(
                json!({ "debug": { "config": self.running_config.config.show(), "log": recent_log_lines() } }),
            );
        }
        query
            .get("log")
            .map(|command| self.control_log(now, command).unwrap_or_else(|error| json!({ "error": error.to_string() })))
    }

    /// Sets a level of the log if the command names one, and returns all levels.
    fn control_log(&mut self, now: ClockReading, command: &Value) -> Result<Value, LogCommandError> {
        let Some(levels) = &mut self.log_levels else {
            return Err(LogCommandError::NoLog);
        };
        if let Some(text) = command.get("level") {
            let text = text.as_str().ok_or(LogCommandError::NotText)?;
            let directive: LogDirective = text.parse().map_err(LogCommandError::Directive)?;
            let time = match command.get("for_ms") {
                None | Some(Value::Null) => None,
                Some(millis) => Some(millis.as_u64().map(Duration::from_millis).ok_or(LogCommandError::Duration)?),
            };
            if time.is_some_and(|time| time.is_zero() || DURATION_MAX < time) {
                return Err(LogCommandError::Duration);
            }
            levels.set(directive, time.map(|time| now.instant + time));
            self.apply_log_levels();
            tracing::info!(level = %directive, seconds = time.map(|time| time.as_secs_f64()), "log level set");
        }
        Ok(json!({ "log": self.log_levels.as_ref().map(|levels| levels.report(now.instant)) }))
    }

    /// Ends the levels of the log whose time is over.
    pub(super) fn expire_log_levels(&mut self, now: ClockReading) {
        if self.log_levels.as_mut().is_some_and(|levels| levels.expire(now.instant)) {
            self.apply_log_levels();
            tracing::info!("log level reverted");
        }
    }

    /// Applies the level of a configuration that was read again. Levels that are set for a time stay.
    pub(super) fn set_configured_log_level(&mut self, level: LogLevel) {
        if let Some(levels) = &mut self.log_levels {
            levels.set_lasting(level);
            self.apply_log_levels();
        }
    }

    fn apply_log_levels(&self) {
        #[cfg(feature = "cli")]
        self.log_levels.iter().for_each(log_output::apply);
    }
}
