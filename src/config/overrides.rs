//! Values with precedence over the file, from flags and from the environment.

use super::error::ValueSource;
use super::keys::{KEYS, SECRET_KEYS, find_key};

/// Prefix of environment variables of keys: `SEQCAST_PUB_WINDOW_SIZE`.
const ENVIRONMENT_PREFIX: &str = "SEQCAST_";

/// Variables with that prefix that are no keys. They contain the path of the configuration file, the subject that
/// `reply --command` passes to its commands (which may be seqcast commands), and the location of the store of `order`.
/// That location may contain a password.
const ENVIRONMENT_OTHERS: [&str; 3] = ["SEQCAST_CONFIG", "SEQCAST_SUBJECT", "SEQCAST_ORDER_STORE"];

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
        let is_secret = find_key(key).is_some_and(|index| SECRET_KEYS.contains(&KEYS[index].name));
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
        let as_override = |(name, value): (String, String)| {
            let key = name.strip_prefix(ENVIRONMENT_PREFIX).filter(|_| !ENVIRONMENT_OTHERS.contains(&name.as_str()))?;
            Some(Override {
                key: key.to_ascii_lowercase().replace('_', "-"),
                value,
                source: ValueSource::Environment(name),
            })
        };
        let mut overrides: Vec<Override> = variables.filter_map(as_override).collect();
        overrides.sort_by(|a, b| a.key.cmp(&b.key));
        overrides
    }
}
