//! Configuration: YAML text, environment and flags become one checked [`Config`].
//!
//! This is the only place that contains key names and defaults. It reports all errors at once, each with its position,
//! the reason and a remedy. Reading never writes: it creates or changes no file or directory.

mod document;
mod error;
mod events;
mod host_defaults;
mod keys;
mod listeners;
mod place;
mod rules;
mod streams;
mod value;

pub use error::{ConfigError, ConfigErrorKind, ConfigErrors, Excerpt, ValueSource};
pub use host_defaults::HostDefaults;
pub use keys::{Config, KEYS, Key};
pub use listeners::{AccountError, TlsFiles};
pub use place::StreamStoreLocation;
pub use rules::{HistoryOverride, RuleError};
pub use streams::StreamSettingsError;
pub use value::{DatagramSize, LogFormat, LogLevel, Mode, SOCKET_PATH_BYTES_MAX, SlowClient, ValueError};

use crate::proto::history::{HistoryRule, HistorySettings};
use crate::proto::mutant::Mutants;
use crate::proto::pace::PaceSettings;
use crate::proto::resend::RingSettings;
use crate::proto::{Recovery, Settings, WindowSettings};
use crate::seqno::COUNT_MAX;
use document::{Node, SourceSpan, YamlEntry, YamlItem};
use serde::Serialize;
use std::fs;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The one section of the file.
const SECTION: &str = "parameters";

/// Prefix of environment variables of keys: `SEQCAST_PUB_WINDOW_SIZE`.
const ENVIRONMENT_PREFIX: &str = "SEQCAST_";

/// Variables with that prefix that are no keys. They hold the file, the subject that `reply --command` passes to its
/// commands (which may be seqcast commands), and the store of `order`. The store may contain a password.
const ENVIRONMENT_OTHERS: [&str; 3] = ["SEQCAST_CONFIG", "SEQCAST_SUBJECT", "SEQCAST_ORDER_STORE"];

/// Keys whose values may contain secrets. An error about such a value contains neither the value nor the flag that set
/// it.
const SECRET_KEYS: [&str; 2] = ["accounts", "stream-store"];

/// Maximum datagram size that `datagram-size: auto` chooses: a jumbo frame's MTU of 9000 minus IPv4 and UDP headers.
/// The loopback interface could carry 65 kB, but then one lost datagram would contain hundreds of messages.
const DATAGRAM_BYTES_AUTO_MAX: usize = 8972;

/// Minimum datagram size that any setting allows: every IPv4 host must accept it.
const DATAGRAM_BYTES_MIN: usize = 576;

/// Maximum number of incomplete large messages of a publisher; `reassembly-size` bounds their bytes.
const REASSEMBLY_SETS_MAX: usize = 1024;

/// R5: time that a missing datagram may merely be late. With a `reliability` up to this value the receiver requests
/// nothing.
pub(crate) const GRACE: Duration = Duration::from_millis(5);

/// Seed 002: "only one is published per second after the first one is published".
const ADVISORY_INTERVAL: Duration = Duration::from_secs(1);

/// A value with precedence over the file: from a flag or the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The key, with hyphens or underscores.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// Source of the value.
    pub source: ValueSource,
}

impl Override {
    /// Returns an override from a flag of its own, such as `--port 7501`.
    pub fn flag(flag: &str, key: &str, value: &str) -> Override {
        Override { key: key.to_owned(), value: value.to_owned(), source: ValueSource::Flag(format!("{flag} {value}")) }
    }

    /// Returns an override from `--set key=value`.
    pub fn set(key: &str, value: &str) -> Override {
        let is_secret = find(key).is_some_and(|index| SECRET_KEYS.contains(&KEYS[index].name));
        let shown = if is_secret { "***" } else { value };
        Override {
            key: key.to_owned(),
            value: value.to_owned(),
            source: ValueSource::Flag(format!("--set {key}={shown}")),
        }
    }

    /// Returns the overrides of the environment: `SEQCAST_` and the key in capitals, `SEQCAST_INBOX_PORT=7600`. Every
    /// variable with this prefix counts as a key, so that a wrong name is reported. `SEQCAST_CONFIG`,
    /// `SEQCAST_SUBJECT` and `SEQCAST_ORDER_STORE` do not.
    pub fn environment() -> Vec<Override> {
        Override::of_variables(std::env::vars_os().map(|(name, value)| {
            // Invalid UTF-8 becomes U+FFFD, which no key accepts.
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        }))
    }

    fn of_variables(variables: impl Iterator<Item = (String, String)>) -> Vec<Override> {
        let meant = |(name, value): (String, String)| {
            let key = name.strip_prefix(ENVIRONMENT_PREFIX).filter(|_| !ENVIRONMENT_OTHERS.contains(&name.as_str()))?;
            Some(Override {
                key: key.to_ascii_lowercase().replace('_', "-"),
                value,
                source: ValueSource::Environment(name),
            })
        };
        let mut overrides: Vec<Override> = variables.filter_map(meant).collect();
        overrides.sort_by(|a, b| a.key.cmp(&b.key));
        overrides
    }
}

/// One row of `config show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigRow {
    /// The key.
    pub key: &'static str,
    /// Effective value, as text.
    pub value: String,
    /// Source of the value.
    #[serde(serialize_with = "as_text")]
    pub source: ValueSource,
    /// Default value, as text.
    pub default: &'static str,
    /// Allowed values.
    pub range: String,
    /// Purpose of the key.
    pub meaning: &'static str,
}

fn as_text<S: serde::Serializer>(source: &ValueSource, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(source)
}

impl Default for Config {
    /// Returns every key at its default. It is the same on every host and for every user, because it depends on neither
    /// the environment nor the system: the keys that are `auto` have the values of [`HostDefaults::default`].
    fn default() -> Config {
        Config::defaults(&HostDefaults::default())
    }
}

impl Config {
    /// Returns every key at its default on this host: the keys that are `auto` depend on the host name, the user id,
    /// `$XDG_RUNTIME_DIR`, `$XDG_STATE_HOME` and `$HOME`. The command line uses the same values.
    pub fn for_this_host() -> Config {
        Config::defaults(&HostDefaults::here())
    }

    /// Reads a file. Keys that it does not have are as in [`Config::for_this_host`].
    ///
    /// # Errors
    /// Returns all errors in the file.
    pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
        Config::resolve(Some(path), &[])
    }

    /// Reads the text of a file like [`Config::load`]; errors refer to it as `name`.
    ///
    /// # Errors
    /// Returns all errors in the text.
    pub fn from_text(name: &str, text: &str) -> Result<Config, ConfigErrors> {
        let mut draft = Draft::new(HostDefaults::here());
        draft.read_text(name, text);
        draft.finish()
    }

    /// Combines the defaults of this host, the file if there is one, and the overrides in their order; later values
    /// win.
    ///
    /// # Errors
    /// Returns all errors in any of them.
    pub fn resolve(file: Option<&Path>, overrides: &[Override]) -> Result<Config, ConfigErrors> {
        let mut draft = Draft::new(HostDefaults::here());
        if let Some(path) = file {
            let name = path.display().to_string();
            match read_file(path) {
                Ok(bytes) => draft.read_bytes(&name, bytes),
                Err(reason) => draft.fail_file(&name, reason, None),
            }
        }
        for over in overrides {
            draft.read_override(over);
        }
        draft.finish()
    }

    /// Returns the settings of the core, for an interface that carries `payload_bytes` of UDP payload without IP
    /// fragments
    /// ([`ChosenInterface::payload_bytes_max`](crate::daemon::interface::ChosenInterface::payload_bytes_max)).
    pub fn settings(&self, payload_bytes: usize) -> Settings {
        Settings {
            name: self.name.clone(),
            group: self.port,
            datagram_bytes_max: self.datagram_bytes(payload_bytes),
            message_bytes_max: self.message_size,
            heartbeat: self.heartbeat,
            reliability: self.reliability,
            recovery: Recovery {
                grace: GRACE,
                ring: RingSettings {
                    bytes_max: self.resend_size,
                    time: self.resend_time,
                    manifest_bytes_max: self.resend_size,
                },
                resend_rate_min: self.resend_rate as u64,
                history: self.history(),
                linger: self.linger,
            },
            forget: self.forget,
            pub_window: WindowSettings {
                bytes: self.pub_window_size,
                time: self.pub_window_time,
                bytes_max: self.pub_window_max,
            },
            sub_window: WindowSettings {
                bytes: self.sub_window_size,
                time: self.sub_window_time,
                bytes_max: self.sub_window_max,
            },
            frame_messages_max: COUNT_MAX,
            hold_bytes_max: self.hold_size,
            reassembly_bytes_max: self.reassembly_size,
            reassembly_sets_max: REASSEMBLY_SETS_MAX,
            gaps_max: self.gaps_max,
            peers_max: self.peers_max,
            client_subscriptions_max: self.client_subscriptions_max,
            subscriptions_max: self.subscriptions_max,
            interest_max: self.interest_max,
            spares: self.interest,
            match_cache_max: self.match_cache,
            advisory_interval: ADVISORY_INTERVAL,
            advisory_subjects_max: self.advisory_subjects,
            pace: PaceSettings {
                pace: self.pace,
                floor: self.pace_floor as u64,
                ..PaceSettings::auto(self.receive_buffer as u64)
            },
            mutants: Mutants::default(),
        }
    }

    fn history(&self) -> HistorySettings {
        let count_max = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let rule = |rule: &HistoryOverride| HistoryRule {
            pattern: rule.pattern.clone(),
            count_max: count_max(rule.count.unwrap_or(self.history_count)),
            bytes_max: rule.size.unwrap_or(self.history_subject_size),
            time: rule.time.unwrap_or(self.history_time),
        };
        HistorySettings {
            count_max: count_max(self.history_count),
            bytes_max: self.history_subject_size,
            time: self.history_time,
            total_bytes_max: self.history_size,
            overrides: self.history_rules.iter().map(rule).collect(),
        }
    }

    /// Returns the bytes of UDP payload of the largest datagram, if the interface carries `payload_bytes` without IP
    /// fragments.
    pub fn datagram_bytes(&self, payload_bytes: usize) -> usize {
        match self.datagram_size {
            DatagramSize::Bytes(bytes) => bytes,
            DatagramSize::Auto => payload_bytes.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_AUTO_MAX),
        }
    }

    /// Returns every key with its effective value and the value's source.
    pub fn show(&self) -> Vec<ConfigRow> {
        let row = |(key, source): (&Key, &ValueSource)| ConfigRow {
            key: key.name,
            value: (key.value)(self),
            source: source.clone(),
            default: key.default,
            range: (key.range)(),
            meaning: key.meaning,
        };
        KEYS.iter().zip(&self.sources).map(row).collect()
    }
}

/// Returns the bytes of a file, or the reason why it cannot be one. Pipes are refused because opening one may block
/// forever.
fn read_file(path: &Path) -> Result<Vec<u8>, ConfigErrorKind> {
    let unreadable = |error: io::Error| ConfigErrorKind::Unreadable(plain(&error));
    let kind = fs::metadata(path).map_err(unreadable)?.file_type();
    if kind.is_dir() {
        return Err(ConfigErrorKind::NotAFile("a directory"));
    }
    if !kind.is_file() {
        return Err(ConfigErrorKind::NotAFile("a pipe, a socket or a device"));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(document::FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// Returns the text of an error without the number at its end.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// A configuration under construction.
struct Draft {
    here: HostDefaults,
    config: Config,
    /// Excerpt of each value in the file, in the order of `KEYS`.
    excerpts: Vec<Option<Excerpt>>,
    /// Keys whose value was refused; no further errors are reported about them.
    refused: Vec<bool>,
    errors: Vec<ConfigError>,
}

impl Draft {
    fn new(here: HostDefaults) -> Draft {
        let config = Config::defaults(&here);
        Draft { here, config, excerpts: vec![None; KEYS.len()], refused: vec![false; KEYS.len()], errors: Vec::new() }
    }

    fn read_bytes(&mut self, name: &str, bytes: Vec<u8>) {
        if document::FILE_BYTES_MAX < bytes.len() as u64 {
            return self.fail_file(name, ConfigErrorKind::TooLarge { max: document::FILE_BYTES_MAX }, None);
        }
        match String::from_utf8(bytes) {
            Ok(text) => self.read_text(name, &text),
            Err(error) => {
                let offset = error.utf8_error().valid_up_to();
                self.fail_file(name, ConfigErrorKind::Binary { offset }, Some("is this the right file?".into()));
            }
        }
    }

    fn read_text(&mut self, name: &str, text: &str) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        if let Some(offset) = text.find(control) {
            return self.fail_file(name, ConfigErrorKind::Binary { offset }, Some("is this the right file?".into()));
        }
        let file = File { name: name.into(), text };
        match document::parse(text) {
            Ok(Node::Nothing) => {
                let suggestion = format!("write '{SECTION}:' and keys below it; leave out the file for the defaults");
                self.fail_file(name, ConfigErrorKind::Empty, Some(suggestion));
            }
            Ok(Node::Map(entries)) => self.read_sections(&file, entries),
            Ok(_) => self.fail_file(name, ConfigErrorKind::NotAMap, Some(format!("begin with '{SECTION}:'"))),
            Err(broken) => match broken.place {
                Some(place) => self.errors.push(file.error(place, "", ConfigErrorKind::Broken(broken.reason), None)),
                None => self.fail_file(name, ConfigErrorKind::Broken(broken.reason), None),
            },
        }
    }

    fn read_sections(&mut self, file: &File<'_>, entries: Vec<YamlEntry>) {
        let mut first = None;
        for entry in entries {
            let place = entry.key_place;
            if entry.key != SECTION {
                let key = find(&entry.key);
                let (name, reason, suggestion) = match key {
                    Some(index) => {
                        let below = format!("write it below '{SECTION}:', two spaces further in");
                        (KEYS[index].name, ConfigErrorKind::Misplaced, Some(below))
                    }
                    None => {
                        let near = value::nearest(&entry.key, [SECTION].into_iter());
                        (
                            entry.key.as_str(),
                            ConfigErrorKind::UnknownKey,
                            Some(near.map_or(format!("the only section is '{SECTION}:'"), |near| {
                                format!("did you mean {near}?")
                            })),
                        )
                    }
                };
                self.errors.push(file.error(place, name, reason, suggestion));
                continue;
            }
            if let Some(first) = first {
                self.errors.push(file.error(
                    place,
                    SECTION,
                    ConfigErrorKind::Duplicate { first },
                    Some("merge the two".into()),
                ));
            }
            first = first.or(Some(place.line));
            match entry.value {
                Node::Map(entries) => self.read_keys(file, entries),
                Node::Nothing => {}
                _ => self.errors.push(file.error(entry.value_place, SECTION, ConfigErrorKind::NotAMap, None)),
            }
        }
    }

    fn read_keys(&mut self, file: &File<'_>, entries: Vec<YamlEntry>) {
        for entry in entries {
            let Some(index) = find(&entry.key) else {
                let suggestion = suggest(&entry.key);
                self.errors.push(file.error(entry.key_place, &entry.key, ConfigErrorKind::UnknownKey, suggestion));
                continue;
            };
            let key = &KEYS[index];
            if let ValueSource::File { line: first, .. } = self.config.sources[index] {
                let suggestion = Some("remove one of the two".to_owned());
                self.errors.push(file.error(
                    entry.key_place,
                    key.name,
                    ConfigErrorKind::Duplicate { first },
                    suggestion,
                ));
                continue;
            }
            let at = entry.value_place;
            self.config.sources[index] = file.source(entry.key_place.line, at.column);
            self.excerpts[index] = Some(file.excerpt(at));
            let refused = match entry.value {
                Node::Text(text) => match self.put(index, &text) {
                    Ok(()) => continue,
                    Err(error) => value_error(key, &text, error),
                },
                Node::Nothing => {
                    (ConfigErrorKind::Value { text: String::new(), error: ValueError::Empty }, Some(missing(key)))
                }
                Node::List(items) if (key.is_list)() => {
                    self.read_list(file, index, items, at);
                    continue;
                }
                Node::List(_) => (ConfigErrorKind::List, Some(missing(key))),
                Node::Map(_) => (ConfigErrorKind::Map, Some(missing(key))),
            };
            self.refused[index] = true;
            self.errors.push(file.error(at, key.name, refused.0, refused.1));
        }
    }

    /// Reads the items of a list, each a value; together they are one text with `;` between them.
    fn read_list(&mut self, file: &File<'_>, index: usize, items: Vec<YamlItem>, at: SourceSpan) {
        let key = &KEYS[index];
        let (mut texts, mut places) = (Vec::new(), Vec::new());
        for item in items {
            let refused = match item.value {
                Node::Text(text) => match self.put(index, &text) {
                    Ok(()) => {
                        texts.push(text);
                        places.push(item.place);
                        continue;
                    }
                    Err(error) => value_error(key, &text, error),
                },
                Node::Nothing => {
                    (ConfigErrorKind::Value { text: String::new(), error: ValueError::Empty }, Some(item_of(key)))
                }
                Node::List(_) => (ConfigErrorKind::List, Some(item_of(key))),
                Node::Map(_) => (ConfigErrorKind::Map, Some(item_of(key))),
            };
            self.refused[index] = true;
            self.errors.push(file.error(item.place, key.name, refused.0, refused.1));
        }
        let joined = |texts: &[String]| if texts.is_empty() { key.default.to_owned() } else { texts.join(" ; ") };
        let Err(error) = self.put(index, &joined(&texts)) else { return };
        // Each item is valid alone; this finds the first that conflicts with those before it.
        let counts: Vec<usize> = (1..texts.len()).collect();
        let wrong = counts.partition_point(|count| self.put(index, &joined(&texts[..*count])).is_ok());
        let (reason, suggestion) = value_error(key, &joined(&texts[wrong..]), error);
        self.errors.push(file.error(places.get(wrong).copied().unwrap_or(at), key.name, reason, suggestion));
    }

    fn read_override(&mut self, over: &Override) {
        let error = |key: &str, reason, suggestion| ConfigError {
            source: over.source.clone(),
            key: key.to_owned(),
            reason,
            suggestion,
            excerpt: None,
        };
        let Some(index) = find(&over.key) else {
            return self.errors.push(error(&over.key, ConfigErrorKind::UnknownKey, suggest(&over.key)));
        };
        self.config.sources[index] = over.source.clone();
        self.excerpts[index] = None;
        self.refused[index] = false;
        if let Err(refused) = self.put(index, &over.value) {
            let (reason, suggestion) = value_error(&KEYS[index], &over.value, refused);
            self.refused[index] = true;
            self.errors.push(error(KEYS[index].name, reason, suggestion));
        }
    }

    fn put(&mut self, index: usize, text: &str) -> Result<(), ValueError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ValueError::Empty);
        }
        if text.contains(char::REPLACEMENT_CHARACTER) {
            return Err(ValueError::Encoding);
        }
        (KEYS[index].put)(&mut self.config, text, &self.here)
    }

    fn fail_file(&mut self, name: &str, reason: ConfigErrorKind, suggestion: Option<String>) {
        let source = ValueSource::File { name: name.into(), line: 0, column: 0 };
        self.errors.push(ConfigError { source, key: String::new(), reason, suggestion, excerpt: None });
    }

    /// Checks the values that must not be less than that of another key.
    fn check_pairs(&mut self) {
        const WINDOW: &str = "the hard limit cannot be below the size at which the window rotates";
        const FITS: &str = "the largest message must fit";
        const PART: &str = "the limit for one cannot be above the limit for all";
        let config = &self.config;
        let pairs = [
            ("pub-window-max", config.pub_window_max, "pub-window-size", config.pub_window_size, WINDOW),
            ("sub-window-max", config.sub_window_max, "sub-window-size", config.sub_window_size, WINDOW),
            ("hold-size", config.hold_size, "message-size", config.message_size, FITS),
            ("reassembly-size", config.reassembly_size, "message-size", config.message_size, FITS),
            ("client-queue-size", config.client_queue_size, "message-size", config.message_size, FITS),
            (
                "subscriptions-max",
                config.subscriptions_max,
                "client-subscriptions-max",
                config.client_subscriptions_max,
                PART,
            ),
        ];
        for (key, value, other, least, why) in pairs {
            let (upper, lower) = (find(key).expect("a key"), find(other).expect("a key"));
            if least <= value || self.refused[upper] || self.refused[lower] {
                continue;
            }
            let shown = |index: usize| (KEYS[index].value)(&self.config);
            let suggestion = format!("raise {key} to {}, or lower {other}", shown(lower));
            let reason = ConfigErrorKind::Conflict { key, value: shown(upper), other, least: shown(lower), why };
            self.fail_key(self.changeable(upper, lower), reason, suggestion);
        }
    }

    /// Returns the key to report an error about two keys at: the one that is not at its default, so that the user can
    /// change it.
    fn changeable(&self, first: usize, second: usize) -> usize {
        if self.config.sources[first] == ValueSource::Default { second } else { first }
    }

    /// Reports an error in the effective value of a key.
    fn fail_key(&mut self, index: usize, reason: ConfigErrorKind, suggestion: String) {
        self.errors.push(ConfigError {
            source: self.config.sources[index].clone(),
            key: KEYS[index].name.to_owned(),
            reason,
            suggestion: Some(suggestion),
            excerpt: self.excerpts[index].clone(),
        });
    }

    /// Checks that the maximum memory of one client of a listener fits. The client may hold a full queue, a message of
    /// the same size, and its own incomplete input in a buffer of twice that size.
    fn check_listener_memory(&mut self) {
        const PARTS: usize = 4;
        let config = &self.config;
        let least = config.client_queue_size.saturating_mul(PARTS);
        let (upper, lower) = (find("listener-memory").expect("a key"), find("client-queue-size").expect("a key"));
        let has_listeners = config.nats.is_some() || config.redis.is_some() || config.hat.is_some();
        if !has_listeners || least <= config.listener_memory || self.refused[upper] || self.refused[lower] {
            return;
        }
        let (value, least) = (value::show_size(config.listener_memory), value::show_size(least));
        let suggestion = format!("raise listener-memory to {least}, or lower client-queue-size");
        let why = "what one client of a listener may hold must fit";
        let reason = ConfigErrorKind::Conflict {
            key: "listener-memory",
            value,
            other: "four times client-queue-size",
            least,
            why,
        };
        self.fail_key(self.changeable(upper, lower), reason, suggestion);
    }

    /// Checks that a listener that other hosts can reach has accounts, or is explicitly open.
    fn check_listeners(&mut self) {
        let config = &self.config;
        let listeners = [
            ("nats", config.nats, config.nats_open),
            ("redis", config.redis, config.redis_open),
            ("hat", config.hat, config.hat_open),
            ("ftn18", config.ftn18, config.ftn18_open),
        ];
        for (key, listen, is_open) in listeners {
            let index = find(key).expect("a key");
            let Some(address) = listen.filter(|address| !address.ip().is_loopback()) else { continue };
            if is_open || !self.config.accounts.is_empty() || self.refused[index] {
                continue;
            }
            let suggestion = format!("write accounts: user NAME password WORD, or {key}-open: yes to let in anyone");
            self.fail_key(index, ConfigErrorKind::Unguarded { address }, suggestion);
        }
    }

    /// Checks that no two listeners share an address.
    fn check_places(&mut self) {
        let listeners = [("nats", self.config.nats), ("redis", self.config.redis), ("hat", self.config.hat)];
        let listeners: Vec<_> = listeners.into_iter().filter_map(|(key, place)| Some((key, place?))).collect();
        let overlap = |a: SocketAddr, b: SocketAddr| {
            let is_same = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
            is_same && a.port() == b.port() && a.port() != 0
        };
        for (index, (key, address)) in listeners.iter().enumerate() {
            if let Some((other, place)) = listeners[..index].iter().find(|(_, place)| overlap(*place, *address)) {
                let reason = ConfigErrorKind::AddressConflict { address: *address, other, place: *place };
                self.fail_key(find(key).expect("a key"), reason, "give one of the two another port".to_owned());
            }
        }
    }

    fn finish(mut self) -> Result<Config, ConfigErrors> {
        self.check_pairs();
        self.check_listener_memory();
        self.check_listeners();
        self.check_places();
        if self.errors.is_empty() { Ok(self.config) } else { Err(ConfigErrors(self.errors)) }
    }
}

fn value_error(key: &Key, text: &str, error: ValueError) -> (ConfigErrorKind, Option<String>) {
    let suggestion = match error {
        ValueError::Empty => missing(key),
        _ => error.suggestion(text.trim()).unwrap_or_else(|| format!("allowed: {}", (key.range)())),
    };
    // A text that is no account may be most of one, with its secret.
    let text = if SECRET_KEYS.contains(&key.name) && !text.trim().is_empty() { "…" } else { text };
    (ConfigErrorKind::Value { text: text.to_owned(), error }, Some(suggestion))
}

fn missing(key: &Key) -> String {
    format!("write {}: {}", key.name, key.example)
}

fn item_of(key: &Key) -> String {
    format!("write - {}", key.example)
}

/// Returns the index of a key in `KEYS`; underscores count as hyphens.
fn find(name: &str) -> Option<usize> {
    let name = name.replace('_', "-");
    KEYS.iter().position(|key| key.name == name)
}

/// Renamed keys: the old name and the new one.
const RENAMED: [(&str, &str); 3] = [
    ("door-client-max", "listener-client-max"),
    ("door-memory", "listener-memory"),
    ("door-stranger-max", "listener-unauthenticated-max"),
];

/// Returns what to write instead of an unknown key.
fn suggest(name: &str) -> Option<String> {
    let name = name.replace('_', "-").to_ascii_lowercase();
    if let Some((_, new)) = RENAMED.iter().find(|(old, _)| *old == name) {
        return Some(format!("it was renamed: write {new}"));
    }
    Some(match value::nearest(&name, KEYS.iter().map(|key| key.name)) {
        Some(near) => format!("did you mean {near}?"),
        None => "'seqcast config show' lists the keys that there are".to_owned(),
    })
}

/// Text that contains the entries.
struct File<'a> {
    name: Arc<str>,
    text: &'a str,
}

impl File<'_> {
    fn source(&self, line: usize, column: usize) -> ValueSource {
        ValueSource::File { name: self.name.clone(), line, column }
    }

    fn excerpt(&self, at: SourceSpan) -> Excerpt {
        let line = self.text.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
        Excerpt::new(line, at.column.saturating_sub(1), at.width)
    }

    fn error(&self, at: SourceSpan, key: &str, reason: ConfigErrorKind, suggestion: Option<String>) -> ConfigError {
        // The line contains the secret.
        let excerpt = (!SECRET_KEYS.contains(&key)).then(|| self.excerpt(at));
        ConfigError { source: self.source(at.line, at.column), key: key.to_owned(), reason, suggestion, excerpt }
    }
}
