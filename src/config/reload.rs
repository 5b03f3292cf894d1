//! Reading the same configuration again, and comparing it with the one in use.

use super::{Config, ConfigErrors, KEYS, Override};
use std::path::PathBuf;

/// Origin of a configuration, so that it can be read again.
#[derive(Clone, Debug, Default)]
pub struct ConfigOrigin {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Values of the environment and of flags, which win over the file. Later ones win.
    pub overrides: Vec<Override>,
}

impl ConfigOrigin {
    /// Reads the configuration.
    ///
    /// # Errors
    /// Returns all errors in it.
    pub fn load(&self) -> Result<Config, ConfigErrors> {
        Config::resolve(self.file.as_deref(), &self.overrides)
    }
}

/// A key whose value differs between two configurations. Values are as `config show` prints them, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The key.
    pub key: &'static str,
    /// Its value in the first configuration.
    pub old: String,
    /// Its value in the other one.
    pub new: String,
}

impl Config {
    /// Returns the keys whose values differ in `new`, in the order of [`KEYS`]. Shown without their secrets, the values
    /// of a secret key may look alike.
    pub fn changes(&self, new: &Config) -> Vec<ConfigChange> {
        let changed = KEYS.iter().filter(|key| !(key.is_equal)(self, new));
        changed.map(|key| ConfigChange { key: key.name, old: (key.value)(self), new: (key.value)(new) }).collect()
    }

    /// Adopts the values of these keys, and their sources, from another configuration.
    pub fn adopt(&mut self, new: &Config, keys: &[&str]) {
        for (index, key) in KEYS.iter().enumerate().filter(|(_, key)| keys.contains(&key.name)) {
            (key.copy)(self, new);
            self.sources[index].clone_from(&new.sources[index]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_secrets_are_noticed_and_not_shown() {
        let config = |text: &str| Config::from_text("x", &format!("parameters:\n  {text}\n")).unwrap();
        let old = config("accounts: user alice password s3cret");
        let changes = old.changes(&config("accounts: user alice password s4cret"));
        let shown = "user alice password ***".to_owned();
        assert_eq!(changes, [ConfigChange { key: "accounts", old: shown.clone(), new: shown }]);
        assert_eq!(old.changes(&old.clone()), []);
        let changes = Config::for_this_host().changes(&config("linger: 1 sec\n  ttl: 2"));
        assert_eq!(changes.iter().map(|change| change.key).collect::<Vec<_>>(), ["ttl", "linger"]);
    }

    #[test]
    fn adopted_keys_have_the_new_value_and_source() {
        let (mut running, new) =
            (Config::for_this_host(), Config::from_text("x", "parameters:\n  ttl: 2\n  linger: 1 sec\n").unwrap());
        running.adopt(&new, &["ttl"]);
        assert_eq!(running.changes(&new).iter().map(|change| change.key).collect::<Vec<_>>(), ["linger"]);
        let source = |config: &Config| config.show().into_iter().find(|row| row.key == "ttl").unwrap().source;
        assert_eq!(source(&running), source(&new));
    }
}
