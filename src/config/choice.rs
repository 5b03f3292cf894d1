//! Formats of values that are one of a few words.

use super::host_defaults::HostDefaults;
use super::value_error::ValueError;
use super::value_format::ValueFormat;
use crate::message::DeliveryMode;
use std::fmt;

/// One of a few words.
pub(super) struct ChoiceFormat<T: 'static> {
    pub words: &'static [&'static str],
    pub values: &'static [T],
    /// Words of features that do not exist yet.
    pub planned: &'static [&'static str],
}

impl<T: Copy + PartialEq> ValueFormat for ChoiceFormat<T> {
    type Value = T;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<T, ValueError> {
        if self.planned.contains(&text) {
            return Err(ValueError::NotSupported);
        }
        let index = self.words.iter().position(|word| *word == text).ok_or(ValueError::NotOneOf(self.words))?;
        Ok(self.values[index])
    }

    fn show(&self, value: &T) -> String {
        let index = self.values.iter().position(|v| v == value).expect("every value has its word");
        self.words[index].to_owned()
    }

    fn range(&self) -> String {
        self.words.join(", ")
    }
}

/// Admission of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Any peer on the network; datagrams carry a check against damage, not against forgery.
    Open,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&MODE.show(self))
    }
}

pub(super) const MODE: ChoiceFormat<Mode> =
    ChoiceFormat { words: &["open"], values: &[Mode::Open], planned: &["realm", "pki"] };

/// Yes or no. Every such key accepts all of these words, as YAML users expect.
pub(super) const YES_NO: ChoiceFormat<bool> = ChoiceFormat {
    words: &["yes", "no", "on", "off", "true", "false"],
    values: &[true, false, true, false, true, false],
    planned: &[],
};

/// On or off; it differs from [`YES_NO`] only in how a value is shown.
pub(super) const ON_OFF: ChoiceFormat<bool> =
    ChoiceFormat { words: &["on", "off", "yes", "no", "true", "false"], values: YES_NO.values, planned: &[] };

/// Treatment of a slow client of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowClient {
    /// The listener drops messages and reports their number to the client.
    DropAndNotify,
    /// The listener closes the connection.
    Close,
}

pub(super) const SLOW_CLIENT: ChoiceFormat<SlowClient> =
    ChoiceFormat { words: &["tell", "close"], values: &[SlowClient::DropAndNotify, SlowClient::Close], planned: &[] };

pub(super) const DELIVERY: ChoiceFormat<DeliveryMode> =
    ChoiceFormat { words: &["repair", "live"], values: &[DeliveryMode::Repair, DeliveryMode::Live], planned: &[] };

/// Lowest severity that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Failures that stop something from working.
    Error,
    /// Conditions that an operator should examine.
    Warn,
    /// Events of the peer as a whole.
    Info,
    /// Events of each remote peer and client.
    Debug,
    /// Everything.
    Trace,
}

pub(super) const LOG_LEVEL: ChoiceFormat<LogLevel> = ChoiceFormat {
    words: &["error", "warn", "info", "debug", "trace"],
    values: &[LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace],
    planned: &[],
};

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&LOG_LEVEL.show(self))
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

pub(super) const LOG_FORMAT: ChoiceFormat<LogFormat> =
    ChoiceFormat { words: &["text", "json"], values: &[LogFormat::Text, LogFormat::Json], planned: &[] };
