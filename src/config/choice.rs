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
}

impl<T: Copy + PartialEq> ValueFormat for ChoiceFormat<T> {
    type Value = T;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<T, ValueError> {
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

/// Admission of other peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Members of the realm of this host. Without a realm any peer of this host on loopback; elsewhere no peer starts.
    Auto,
    /// Members of a realm whose hosts sign their own certificates.
    Realm,
    /// Members of a realm whose authority signs the certificates.
    Pki,
    /// Any peer on the network; datagrams carry a check against damage, not against forgery.
    Open,
}

pub(super) const SECURITY: ChoiceFormat<Security> = ChoiceFormat {
    words: &["auto", "realm", "pki", "open"],
    values: &[Security::Auto, Security::Realm, Security::Pki, Security::Open],
};

/// Cipher of the datagrams that a keyed peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// The one that is faster on the processor.
    Auto,
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

pub(super) const CIPHER: ChoiceFormat<Cipher> = ChoiceFormat {
    words: &["auto", "aes-256-gcm", "chacha20-poly1305"],
    values: &[Cipher::Auto, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305],
};

/// Proof of the publisher of a message, for its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginProof {
    /// The keys of the group, which every member has.
    Group,
    /// Signatures of this host over what it publishes.
    Signed,
}

pub(super) const ORIGIN: ChoiceFormat<OriginProof> =
    ChoiceFormat { words: &["group", "signed"], values: &[OriginProof::Group, OriginProof::Signed] };

/// Treatment of messages of publishers that sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginCheck {
    /// They are delivered at once. Those that turn out to be forged are reported.
    Report,
    /// They are delivered once their signature is verified.
    Hold,
}

pub(super) const ORIGIN_CHECK: ChoiceFormat<OriginCheck> =
    ChoiceFormat { words: &["report", "hold"], values: &[OriginCheck::Report, OriginCheck::Hold] };

/// Yes or no. Every such key accepts all of these words, as YAML users expect.
pub(super) const YES_NO: ChoiceFormat<bool> = ChoiceFormat {
    words: &["yes", "no", "on", "off", "true", "false"],
    values: &[true, false, true, false, true, false],
};

/// On or off; it differs from [`YES_NO`] only in how a value is shown.
pub(super) const ON_OFF: ChoiceFormat<bool> =
    ChoiceFormat { words: &["on", "off", "yes", "no", "true", "false"], values: YES_NO.values };

/// Treatment of a slow client of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowClient {
    /// The listener drops messages and reports their number to the client.
    DropAndNotify,
    /// The listener closes the connection.
    Close,
}

pub(super) const SLOW_CLIENT: ChoiceFormat<SlowClient> =
    ChoiceFormat { words: &["tell", "close"], values: &[SlowClient::DropAndNotify, SlowClient::Close] };

/// Clients that may publish by HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpPublish {
    /// Clients that have authenticated, and those of this host if nobody must. The page publishes nothing.
    Auto,
    /// Every client that the web server admits, and the page.
    All,
    /// No client.
    Nobody,
}

pub(super) const HTTP_PUBLISH: ChoiceFormat<HttpPublish> = ChoiceFormat {
    words: &["auto", "yes", "no", "on", "off", "true", "false"],
    values: &[
        HttpPublish::Auto,
        HttpPublish::All,
        HttpPublish::Nobody,
        HttpPublish::All,
        HttpPublish::Nobody,
        HttpPublish::All,
        HttpPublish::Nobody,
    ],
};

pub(super) const DELIVERY: ChoiceFormat<DeliveryMode> =
    ChoiceFormat { words: &["repair", "live"], values: &[DeliveryMode::Repair, DeliveryMode::Live] };

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
    ChoiceFormat { words: &["text", "json"], values: &[LogFormat::Text, LogFormat::Json] };
