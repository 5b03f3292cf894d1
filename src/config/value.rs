//! The kinds of values: reading from text, showing as text, and bounds. Nothing here depends on a key.

use super::host_defaults::HostDefaults;
use super::listeners::AccountError;
use super::rules::{RULES_MAX, RuleError};
use super::streams::StreamSettingsError;
use crate::daemon::interface::{Spec, SpecError};
use crate::message::{DeliveryMode, NameError, PeerName};
use crate::proto::pace::Pace;
use crate::subject::event_type::TypeError;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Returns the words of each part of a list that is one text: a lone `;` separates two parts.
pub(super) fn split_list(text: &str) -> Vec<Vec<&str>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.split(|word| *word == ";").map(<[&str]>::to_vec).collect()
}

/// One way of reading, showing and bounding values.
pub(super) trait ValueFormat {
    /// Type of the parsed value.
    type Value;
    /// Reads a value; `text` has no white space around it.
    fn parse(&self, text: &str, here: &HostDefaults) -> Result<Self::Value, ValueError>;
    /// Returns the value as text that `parse` reads back.
    fn show(&self, value: &Self::Value) -> String;
    /// Returns the allowed values, for the documentation and `config show`.
    fn range(&self) -> String;
    /// Returns whether the file may contain a list of texts, each of which is a value too.
    fn is_list(&self) -> bool {
        false
    }
}

/// Reason why a text is no value of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueError {
    /// The text is empty.
    Empty,
    /// The text is, or once was, no UTF-8: it contains U+FFFD, the replacement character for such bytes.
    Encoding,
    /// Not a size: the text before the unit is no number.
    SizeNumber,
    /// Not a size: the unit is unknown.
    SizeUnit(String),
    /// Neither `auto` nor `off` nor a size.
    Pace,
    /// A duration without a unit.
    DurationUnit(String),
    /// Not a duration, as humantime sees it.
    Duration(String),
    /// Not a whole number.
    NumberFormat,
    /// A number beyond what the machine can count.
    Overflow,
    /// Below the minimum; all three as text, the reason may be empty.
    BelowMin {
        /// The minimum.
        min: String,
        /// Reason for the minimum, if it is not obvious.
        why: &'static str,
    },
    /// Above the maximum.
    AboveMax {
        /// The maximum.
        max: String,
        /// Reason for the maximum, if it is not obvious.
        why: &'static str,
    },
    /// None of the allowed words.
    NotOneOf(&'static [&'static str]),
    /// A planned value that does not exist yet.
    NotSupported,
    /// Not a peer name.
    PeerNameFormat(NameError),
    /// Not an IP address.
    Address,
    /// An IP address outside 224.0.0.0/4 and ff00::/8.
    NotMulticast(IpAddr),
    /// Not the name of an interface, an address or a network.
    Interface(SpecError),
    /// A path too long for a Unix socket.
    SocketPath {
        /// Length of the path in bytes.
        bytes: usize,
    },
    /// A character that no path can contain.
    PathNul,
    /// Neither a path nor the address of a PostgreSQL database.
    StreamStoreLocation,
    /// A history of one message.
    OneMessage,
    /// Not a rule of the history.
    Rule(RuleError),
    /// Not a rule of the journal of events.
    Retention(RuleError),
    /// Not a list of streams; holds the reason.
    StreamsFormat(StreamSettingsError),
    /// Not a pattern of event types.
    EventTypesFormat(TypeError),
    /// Not a list of type patterns.
    TypesForm,
    /// Not a listen address.
    ListenAddressFormat {
        /// The usual port.
        port: u16,
    },
    /// Not an account.
    Account(AccountError),
    /// Not two files.
    TlsFiles,
}

/// Maximum length of the path of a Unix socket, in bytes: `sun_path` has 108 bytes, the last one is 0.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Empty => write!(f, "the value is missing"),
            ValueError::Encoding => write!(f, "not UTF-8"),
            ValueError::SizeNumber => write!(f, "a size starts with a number"),
            ValueError::SizeUnit(unit) => write!(f, "{unit:?} is no unit of size"),
            ValueError::Pace => write!(f, "neither auto nor off nor a size"),
            ValueError::DurationUnit(_) => write!(f, "a time needs a unit"),
            ValueError::Duration(why) => write!(f, "not a time: {why}"),
            ValueError::NumberFormat => write!(f, "not a whole number"),
            ValueError::Overflow => write!(f, "the number is too large"),
            ValueError::BelowMin { min, why } => write!(f, "less than {min}, the least allowed{}", because(why)),
            ValueError::AboveMax { max, why } => write!(f, "more than {max}, the most allowed{}", because(why)),
            ValueError::NotOneOf(words) => write!(f, "must be one of {}", words.join(", ")),
            ValueError::NotSupported => write!(f, "not supported by this build"),
            ValueError::PeerNameFormat(error) => error.fmt(f),
            ValueError::Address => write!(f, "not an IP address"),
            ValueError::NotMulticast(address) => write!(f, "{address} is not a multicast address"),
            ValueError::Interface(error) => error.fmt(f),
            ValueError::SocketPath { bytes } => {
                write!(f, "the path of a Unix socket has at most {SOCKET_PATH_BYTES_MAX} bytes, this one has {bytes}")
            }
            ValueError::PathNul => write!(f, "a path cannot hold the character 0"),
            ValueError::StreamStoreLocation => {
                write!(f, "this is neither a path nor the address of a PostgreSQL database")
            }
            ValueError::OneMessage => write!(
                f,
                "one message is too few: a poll names the message before the one that it wants, and both must be kept"
            ),
            ValueError::Rule(error) | ValueError::Retention(error) => error.fmt(f),
            ValueError::StreamsFormat(error) => error.fmt(f),
            ValueError::EventTypesFormat(error) => error.fmt(f),
            ValueError::TypesForm => write!(f, "not one to {RULES_MAX} patterns of event types with ; between two"),
            ValueError::ListenAddressFormat { .. } => write!(f, "not a place to listen at"),
            ValueError::Account(error) => error.fmt(f),
            ValueError::TlsFiles => write!(f, "two files are wanted: the certificates and the key"),
        }
    }
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

impl ValueError {
    /// Returns the replacement to suggest, if there is one.
    pub fn suggestion(&self, text: &str) -> Option<String> {
        match self {
            ValueError::SizeNumber | ValueError::SizeUnit(_) => {
                Some("write a number of bytes, or a number with kb, mb or gb, such as 10 mb".into())
            }
            ValueError::Pace => Some(match nearest(text, ["auto", "off"].into_iter()) {
                Some(word) => format!("did you mean {word}?"),
                None => "write auto, off, or the most to send in a second, such as 50 mb".into(),
            }),
            ValueError::DurationUnit(number) => Some(format!("write {number} sec or {number} ms")),
            ValueError::Duration(_) => Some("write a number with a unit, such as 250 ms, 60 sec or 5 min".into()),
            ValueError::NotOneOf(words) => {
                nearest(text, words.iter().copied()).map(|word| format!("did you mean {word}?"))
            }
            ValueError::NotSupported => Some("only mode: open is there; keyed modes are to come".into()),
            ValueError::NotMulticast(IpAddr::V4(_)) => Some("use 224.0.0.0 to 239.255.255.255".into()),
            ValueError::Address => Some("write an address such as 239.255.83.67 or ff15::5343".into()),
            ValueError::NotMulticast(IpAddr::V6(_)) => Some("use an address that starts with ff".into()),
            ValueError::OneMessage => Some("write 2 or more, or 0 to keep none".into()),
            ValueError::Rule(error) => error.suggestion(),
            ValueError::Retention(_) => Some("write rules such as plant/* count 1000 size 10 mb time 30 days".into()),
            ValueError::StreamsFormat(error) => error.suggestion(),
            ValueError::EventTypesFormat(_) | ValueError::TypesForm => {
                Some("write patterns such as plant/? ; line/*".into())
            }
            ValueError::Account(error) => error.suggestion(),
            ValueError::ListenAddressFormat { port } => {
                Some(format!("write on, off, {port}, 192.0.2.7 or 192.0.2.7:{port}"))
            }
            ValueError::TlsFiles => Some("write CERTIFICATES.pem KEY.pem".into()),
            ValueError::Interface(_) => Some("write eth0, 192.0.2.7, 192.0.2.0/24, lo or auto".into()),
            _ => None,
        }
    }
}

/// A size in bytes; `mb` is 1,048,576 bytes.
pub(super) struct SizeFormat {
    pub min: usize,
    pub max: usize,
}

const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("byte", 1),
    ("bytes", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("mib", 1 << 20),
    ("megabytes", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
    ("gib", 1 << 30),
];

/// Reads `4096`, `10 mb`, `10mb`, `1.5 kb`; truncates a fraction of a byte.
pub(super) fn parse_size(text: &str) -> Result<usize, ValueError> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim().to_ascii_lowercase());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let decimal = |part: &str| -> Result<u64, ValueError> {
        match part.parse() {
            Ok(value) => Ok(value),
            Err(_) if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() => Err(ValueError::Overflow),
            Err(_) => Err(ValueError::SizeNumber),
        }
    };
    let (whole, thousandths) = (decimal(whole)?, decimal(fraction)?);
    let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or(ValueError::SizeUnit(unit))?.1;
    let tenths = 10u128.checked_pow(u32::try_from(fraction.len()).unwrap_or(u32::MAX)).ok_or(ValueError::Overflow)?;
    let bytes = u128::from(whole) * u128::from(scale) + u128::from(thousandths) * u128::from(scale) / tenths;
    usize::try_from(bytes).map_err(|_| ValueError::Overflow)
}

/// Returns `10 mb`, `64 kb`, `1000 bytes`: the largest unit that divides the size.
pub(super) fn show_size(bytes: usize) -> String {
    let units = [("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)];
    match units.iter().find(|(_, scale)| bytes != 0 && bytes.is_multiple_of(*scale)) {
        Some((unit, scale)) => format!("{} {unit}", bytes / scale),
        None if bytes == 1 => "1 byte".into(),
        None => format!("{bytes} bytes"),
    }
}

impl ValueFormat for SizeFormat {
    type Value = usize;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<usize, ValueError> {
        in_range(parse_size(text)?, self.min, self.max, show_size, "")
    }

    fn show(&self, value: &usize) -> String {
        show_size(*value)
    }

    fn range(&self) -> String {
        format!("{} to {}", show_size(self.min), show_size(self.max))
    }
}

/// Publish rate: `auto`, `off`, or a size per second.
pub(super) struct PaceFormat {
    pub rate: SizeFormat,
}

impl ValueFormat for PaceFormat {
    type Value = Pace;

    fn parse(&self, text: &str, here: &HostDefaults) -> Result<Pace, ValueError> {
        match text {
            "auto" => Ok(Pace::Auto),
            "off" => Ok(Pace::Off),
            _ => {
                let rate = text.strip_suffix("/s").unwrap_or(text).trim_end();
                let rate = self.rate.parse(rate, here).map_err(|error| match error {
                    ValueError::SizeNumber => ValueError::Pace,
                    error => error,
                })?;
                Ok(Pace::Rate(rate as u64))
            }
        }
    }

    fn show(&self, pace: &Pace) -> String {
        match pace {
            Pace::Auto => "auto".into(),
            Pace::Off => "off".into(),
            Pace::Rate(rate) => format!("{}/s", show_size(usize::try_from(*rate).unwrap_or(usize::MAX))),
        }
    }

    fn range(&self) -> String {
        format!("auto, off, or {} a second", self.rate.range())
    }
}

/// A span of time, with its unit.
pub(super) struct DurationFormat {
    pub min: Duration,
    pub max: Duration,
    /// Reason for `min`, if it is not obvious.
    pub why: &'static str,
}

fn show_span(span: Duration) -> String {
    match (span.as_secs(), span.subsec_nanos()) {
        (0, 0) => "0 sec".into(),
        (86_400, 0) => "1 day".into(),
        (secs, 0) if secs.is_multiple_of(86_400) => format!("{} days", secs / 86_400),
        (secs, 0) => format!("{secs} sec"),
        (_, nanos) if nanos % 1_000_000 == 0 => format!("{} ms", span.as_millis()),
        _ => humantime::format_duration(span).to_string(),
    }
}

impl ValueFormat for DurationFormat {
    type Value = Duration;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Duration, ValueError> {
        if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.bytes().any(|b| b.is_ascii_digit()) {
            return Err(ValueError::DurationUnit(text.to_owned()));
        }
        let span = humantime::parse_duration(text).map_err(|error| ValueError::Duration(error.to_string()))?;
        in_range(span, self.min, self.max, show_span, self.why)
    }

    fn show(&self, value: &Duration) -> String {
        show_span(*value)
    }

    fn range(&self) -> String {
        format!("{} to {}", show_span(self.min), show_span(self.max))
    }
}

/// A whole number.
pub(super) struct NumberFormat<T> {
    pub min: T,
    pub max: T,
}

impl<T: Copy + PartialOrd + fmt::Display + TryFrom<u64>> ValueFormat for NumberFormat<T> {
    type Value = T;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<T, ValueError> {
        let digits: String = text.chars().filter(|c| !matches!(c, ',' | '_')).collect();
        if digits.is_empty() || digits.bytes().any(|b| !b.is_ascii_digit()) {
            return Err(ValueError::NumberFormat);
        }
        let above = || ValueError::AboveMax { max: self.max.to_string(), why: "" };
        let number = digits.parse::<u64>().ok().and_then(|n| T::try_from(n).ok()).ok_or_else(above)?;
        in_range(number, self.min, self.max, |n| n.to_string(), "")
    }

    fn show(&self, value: &T) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        format!("{} to {}", self.min, self.max)
    }
}

/// Number of retained messages of a subject: 0, or at least two (seed 000, "Sizes and Probabilities").
pub(super) struct HistoryCountFormat {
    pub max: usize,
}

impl ValueFormat for HistoryCountFormat {
    type Value = usize;

    fn parse(&self, text: &str, here: &HostDefaults) -> Result<usize, ValueError> {
        match (NumberFormat { min: 0, max: self.max }).parse(text, here)? {
            1 => Err(ValueError::OneMessage),
            count => Ok(count),
        }
    }

    fn show(&self, value: &usize) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        format!("0, or 2 to {}", self.max)
    }
}

fn in_range<T: Copy + PartialOrd>(
    value: T,
    min: T,
    max: T,
    show: impl Fn(T) -> String,
    why: &'static str,
) -> Result<T, ValueError> {
    if value < min {
        return Err(ValueError::BelowMin { min: show(min), why });
    }
    if max < value {
        return Err(ValueError::AboveMax { max: show(max), why: "" });
    }
    Ok(value)
}

/// A peer name; `auto` is the host's name.
pub(super) struct PeerNameFormat;

impl ValueFormat for PeerNameFormat {
    type Value = PeerName;

    fn parse(&self, text: &str, here: &HostDefaults) -> Result<PeerName, ValueError> {
        if text == "auto" { Ok(here.peer_name()) } else { text.parse().map_err(ValueError::PeerNameFormat) }
    }

    fn show(&self, value: &PeerName) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        format!("1 to {} of A-Z a-z 0-9 . _ -; auto is the name of the host", PeerName::BYTES_MAX)
    }
}

/// A multicast address.
pub(super) struct GroupFormat;

impl ValueFormat for GroupFormat {
    type Value = IpAddr;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<IpAddr, ValueError> {
        let address: IpAddr = text.parse().map_err(|_| ValueError::Address)?;
        if address.is_multicast() { Ok(address) } else { Err(ValueError::NotMulticast(address)) }
    }

    fn show(&self, value: &IpAddr) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        "224.0.0.0 to 239.255.255.255, or an IPv6 address in ff00::/8".into()
    }
}

/// Interface on which the group is joined; the shell finds it among the host's interfaces.
pub(super) struct InterfaceFormat;

impl ValueFormat for InterfaceFormat {
    type Value = Spec;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Spec, ValueError> {
        let text = if text == "loopback" { "lo" } else { text };
        text.parse().map_err(ValueError::Interface)
    }

    fn show(&self, value: &Spec) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        "a name (eth0; lo or loopback), an address, a network (192.0.2.0/24), or auto".into()
    }
}

/// Size of the largest datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramSize {
    /// The payload that the interface's MTU carries without IP fragments.
    Auto,
    /// Bytes of UDP payload.
    Bytes(usize),
}

/// A [`DatagramSize`].
pub(super) struct DatagramSizeFormat {
    pub size: SizeFormat,
}

impl ValueFormat for DatagramSizeFormat {
    type Value = DatagramSize;

    fn parse(&self, text: &str, here: &HostDefaults) -> Result<DatagramSize, ValueError> {
        if text == "auto" { Ok(DatagramSize::Auto) } else { self.size.parse(text, here).map(DatagramSize::Bytes) }
    }

    fn show(&self, value: &DatagramSize) -> String {
        match value {
            DatagramSize::Auto => "auto".into(),
            DatagramSize::Bytes(bytes) => show_size(*bytes),
        }
    }

    fn range(&self) -> String {
        format!("{}, or auto", self.size.range())
    }
}

/// The path of the Unix socket; `auto` depends on the user.
pub(super) struct SocketPathFormat;

impl ValueFormat for SocketPathFormat {
    type Value = PathBuf;

    fn parse(&self, text: &str, here: &HostDefaults) -> Result<PathBuf, ValueError> {
        let path = if text == "auto" { here.socket() } else { PathBuf::from(text) };
        let bytes = path.as_os_str().len();
        if SOCKET_PATH_BYTES_MAX < bytes {
            return Err(ValueError::SocketPath { bytes });
        }
        if text.contains('\0') { Err(ValueError::PathNul) } else { Ok(path) }
    }

    fn show(&self, value: &PathBuf) -> String {
        value.display().to_string()
    }

    fn range(&self) -> String {
        "a path of at most 107 bytes; auto is $XDG_RUNTIME_DIR/seqcast.sock, else /tmp/seqcast-UID/seqcast.sock".into()
    }
}

/// The path of a file, or `none`.
pub(super) struct FilePathFormat;

impl ValueFormat for FilePathFormat {
    type Value = Option<PathBuf>;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Option<PathBuf>, ValueError> {
        match text {
            "none" => Ok(None),
            _ if text.contains('\0') => Err(ValueError::PathNul),
            _ => Ok(Some(PathBuf::from(text))),
        }
    }

    fn show(&self, value: &Option<PathBuf>) -> String {
        value.as_ref().map_or_else(|| "none".into(), |path| path.display().to_string())
    }

    fn range(&self) -> String {
        "a path, or none for standard error".into()
    }
}

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
        let place = self.words.iter().position(|word| *word == text).ok_or(ValueError::NotOneOf(self.words))?;
        Ok(self.values[place])
    }

    fn show(&self, value: &T) -> String {
        let place = self.values.iter().position(|v| v == value).expect("every value has its word");
        self.words[place].to_owned()
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

/// Yes or no. Every key accepts every word that any key accepts for it, as YAML users expect.
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

/// Returns the candidate that is closest to `word`, if it is close: at most a third of the letters differ, or one
/// begins with the other.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if 64 < word.len() {
        return None;
    }
    let begins = |a: &str, b: &str| 3 <= b.len() && a.starts_with(b);
    let distance = |candidate: &str| match begins(word, candidate) || begins(candidate, word) {
        true => 1,
        false => edit_distance(word, candidate),
    };
    let best = candidates.map(|candidate| (distance(candidate), candidate)).min()?;
    (best.0 <= 1.max(word.chars().count().max(best.1.len()) / 3)).then_some(best.1)
}

/// Returns the number of letters to insert, remove or replace to turn `a` into `b`; swapped neighbours count once.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = 1 < i && 1 < j && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swapped = if swapped { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                replaced.min(swapped).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1)
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(host: &str) -> HostDefaults {
        HostDefaults { host: host.into(), runtime_dir: None, state_dir: None, uid: 7 }
    }

    #[test]
    fn sizes_are_binary_and_need_no_space() {
        let check =
            |text: &str, expected: Result<usize, ValueError>| assert_eq!(parse_size(text), expected, "{text:?}");
        check("10 mb", Ok(10_485_760));
        check("10mb", Ok(10_485_760));
        check("10 MiB", Ok(10_485_760));
        check("4 megabytes", Ok(4 << 20));
        check("1.5 kb", Ok(1536));
        check("0.001 kb", Ok(1));
        check("512", Ok(512));
        check("512 bytes", Ok(512));
        check("0", Ok(0));
        check("2 GB", Ok(2 << 30));
        check("", Err(ValueError::SizeNumber));
        check("mb", Err(ValueError::SizeNumber));
        check("-1 mb", Err(ValueError::SizeNumber));
        check("1. mb", Err(ValueError::SizeNumber));
        check("1.2.3 mb", Err(ValueError::SizeNumber));
        check("10 mbit", Err(ValueError::SizeUnit("mbit".into())));
        check("99999999999999999999", Err(ValueError::Overflow));
        check("18446744073709551615 gb", Err(ValueError::Overflow));
        check(&format!("0.{}1", "0".repeat(45)), Err(ValueError::Overflow));
    }

    #[test]
    fn shown_sizes_and_times_are_read_back() {
        for bytes in [0, 1, 1000, 1024, 1536, 65_507, 10 << 20, 3 << 30] {
            assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
        }
        let kind = DurationFormat { min: Duration::ZERO, max: Duration::MAX, why: "" };
        for millis in [0u64, 1, 5, 250, 1000, 1500, 60_000, 86_400_000, 90_000_000] {
            let span = Duration::from_millis(millis);
            assert_eq!(kind.parse(&kind.show(&span), &here("")), Ok(span));
        }
        let span = Duration::from_nanos(1_234_567);
        assert_eq!(kind.parse(&kind.show(&span), &here("")), Ok(span));
    }

    #[test]
    fn the_host_name_becomes_a_peer_name() {
        assert_eq!(here("box.example.org").peer_name().as_str(), "box.example.org");
        assert_eq!(here("Bürö 7").peer_name().as_str(), "B-r--7");
        assert_eq!(here("").peer_name().as_str(), "peer");
        assert_eq!(here(&"x".repeat(200)).peer_name().as_str().len(), PeerName::BYTES_MAX);
    }

    #[test]
    fn the_nearest_word_is_near() {
        let words = ["pub-window-size", "pub-window-time", "sub-window-size", "port", "ttl"];
        assert_eq!(nearest("pub-windw-size", words.into_iter()), Some("pub-window-size"));
        assert_eq!(nearest("prot", words.into_iter()), Some("port"));
        assert_eq!(nearest("tll", words.into_iter()), Some("ttl"));
        assert_eq!(nearest("ports", words.into_iter()), Some("port"));
        assert_eq!(nearest("sub-window", words.into_iter()), Some("sub-window-size"));
        assert_eq!(nearest("colour", words.into_iter()), None);
        assert_eq!(nearest(&"p".repeat(1000), words.into_iter()), None);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("abcd", "acbd"), 1);
    }
}
