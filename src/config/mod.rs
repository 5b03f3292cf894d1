//! Configuration: YAML text, environment and flags become one checked [`Config`].
//!
//! This is the only place that contains key names and defaults. It reports all errors at once, each with its position,
//! the reason and a remedy. Reading never writes: it creates or changes no file or directory.
//!
//! ```
//! use seqcast::config::{Config, Override};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::from_text("param.yaml", "parameters:\n  port: 7501\n  heartbeat: 500 ms\n")?;
//! assert_eq!((config.port, config.heartbeat.as_millis()), (7501, 500));
//!
//! // Flags and the environment win over the file.
//! let config = Config::resolve(None, &[Override::set("port", "7502")])?;
//! assert_eq!(config.port, 7502);
//!
//! let errors = Config::from_text("param.yaml", "parameters:\n  prot: 7501\n").unwrap_err();
//! assert!(errors.to_string().starts_with("param.yaml:2:"), "{errors}");
//! # Ok(())
//! # }
//! ```

mod checks;
mod choice;
mod core_settings;
mod document;
mod draft;
mod error;
mod events;
mod host_defaults;
mod interface;
mod keys;
mod link_overlaps;
mod links;
mod listeners;
mod local_socket;
mod network;
mod origins;
mod overrides;
mod path;
mod peers;
mod quantity;
mod reload;
mod rules;
mod spelling;
mod stream_store;
mod streams;
mod value_error;
mod value_format;

pub use choice::{Cipher, HttpPublish, LogFormat, LogLevel, OriginCheck, OriginProof, Security, SlowClient};
#[cfg(feature = "cli")]
pub(crate) use core_settings::GRACE;
pub use error::{ConfigError, ConfigErrorKind, ConfigErrors, Excerpt, ValueSource};
pub use host_defaults::HostDefaults;
pub use interface::{INTERFACE_NAME_BYTES_MAX, InterfaceSpec, InterfaceSpecError, Subnet};
pub use keys::{Config, KEYS, Key};
pub use link_overlaps::LinkOverlap;
pub use links::HubAddress;
pub use listeners::{TlsClients, TlsFiles, TlsFirst};
pub use network::DatagramSize;
pub use overrides::Override;
pub use quantity::parse_size;
pub use reload::{ConfigChange, ConfigOrigin};
pub use rules::HistoryOverride;
pub use spelling::nearest;
pub use stream_store::StreamStoreLocation;
pub use value_error::{AccountError, RuleError, SOCKET_PATH_BYTES_MAX, StreamSettingsError, ValueError};

use draft::Draft;
use serde::Serialize;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

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
        Config::defaults(&HostDefaults::of_this_host())
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
        let mut draft = Draft::new(HostDefaults::of_this_host());
        draft.read_text(name, text);
        draft.finish()
    }

    /// Combines the defaults of this host, the file if there is one, and the overrides in their order; later values
    /// win.
    ///
    /// # Errors
    /// Returns all errors in any of them.
    pub fn resolve(file: Option<&Path>, overrides: &[Override]) -> Result<Config, ConfigErrors> {
        let mut draft = Draft::new(HostDefaults::of_this_host());
        if let Some(path) = file {
            let name = path.display().to_string();
            match read_file(path) {
                Ok(bytes) => draft.read_bytes(&name, bytes),
                Err(reason) => {
                    let fix = "name a file that exists and that this user may read";
                    draft.fail_file(&name, reason, Some(fix.to_owned()));
                }
            }
        }
        for over in overrides {
            draft.read_override(over);
        }
        draft.finish()
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

/// Returns the bytes of a configuration file, or the reason why it cannot be read. Pipes are refused because opening
/// one may block forever.
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
