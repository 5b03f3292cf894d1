//! Reading the configuration and the files of the realm again while the peer runs.

use super::Engine;
use super::options::Options;
use crate::clock::Clock;
use crate::config::{Config, ConfigChange, ConfigErrors, ConfigOrigin};
use crate::daemon::signals::{Signals, logs_to_file};
use crate::time::WallTime;
use serde_json::{Value, json};

/// Function that applies the value of a key from a configuration that was read again.
type ApplyKey = fn(&mut Engine, &Config);

/// Keys that change while the peer runs. All others need a restart.
const RUN_TIME_KEYS: [(&str, ApplyKey); 5] = [
    ("delivery", |engine, new| engine.core.set_delivery(new.delivery)),
    ("busy-poll", |engine, new| engine.busy_poll.time = new.busy_poll),
    ("client-max", |engine, new| engine.core.set_clients_max(new.client_max)),
    ("remote-reports", |engine, new| engine.remote_reports.allow(new.remote_reports)),
    ("log-level", |engine, new| engine.set_configured_log_level(new.log_level)),
];

/// The configuration that the peer runs with.
#[derive(Debug)]
pub(super) struct RunningConfig {
    pub(super) config: Config,
    /// Origin of the configuration; `None` if the program that runs the peer has made it.
    origin: Option<ConfigOrigin>,
    /// Time at which it was last read.
    loaded: WallTime,
    /// Keys that differ in the configuration that was last read, and need a restart.
    pending: Vec<&'static str>,
}

impl RunningConfig {
    pub(super) fn new(config: &Config, options: &Options) -> RunningConfig {
        RunningConfig {
            config: config.clone(),
            origin: options.config_origin.clone(),
            loaded: Clock::now().wall,
            pending: Vec::new(),
        }
    }

    /// Returns the file, if the configuration was read from one.
    fn file(&self) -> Option<String> {
        Some(self.origin.as_ref()?.file.as_ref()?.display().to_string())
    }

    /// Adds the fields of `show status`.
    pub(super) fn add_status(&self, status: &mut Value) {
        status["config_file"] = json!(self.file());
        status["config_loaded"] = json!(self.loaded.to_string());
        status["config_loaded_ns"] = json!(self.loaded.as_nanos());
        status["restart_needed"] = json!(self.pending);
    }
}

/// Reason why the configuration was not read again.
enum ReloadError {
    /// The peer was started without a file.
    NoFile,
    /// The configuration is wrong.
    Refused(ConfigErrors),
    /// The files of the realm cannot be used. Holds the reason, with its remedy.
    Realm(String),
}

/// Differences in the files that were read again.
#[derive(Default)]
struct ReloadOutcome {
    applied: Vec<ConfigChange>,
    restart_needed: Vec<ConfigChange>,
    /// Names of what differs in the files of the realm; `None` in open mode.
    realm: Option<Vec<&'static str>>,
}

impl Engine {
    /// Reads the configuration again, and answers the command.
    pub(super) fn control_reload(&mut self) -> Value {
        let rows = |changes: &[ConfigChange]| -> Value {
            changes.iter().map(|change| json!({ "key": change.key, "old": change.old, "new": change.new })).collect()
        };
        match self.reload() {
            Ok(outcome) => json!({ "reload": {
                "file": self.running_config.file(),
                "applied": rows(&outcome.applied),
                "restart_needed": rows(&outcome.restart_needed),
                "realm": outcome.realm,
            }}),
            Err(ReloadError::NoFile) => json!({
                "error": "this peer was started without a configuration file; \
                    name one with --config or SEQCAST_CONFIG when it starts",
            }),
            Err(ReloadError::Refused(errors)) => json!({ "refused": errors.0, "refused_text": errors.to_string() }),
            Err(ReloadError::Realm(reason)) => json!({ "realm_refused": reason }),
        }
    }

    /// Reopens the log and reads the configuration again, as SIGHUP requests. If the terminal of the peer has been
    /// closed, the signal comes from the system, and ends the peer.
    pub(super) fn on_hangup(&mut self) {
        if self.signals.as_ref().is_some_and(Signals::is_terminal_closed) && !logs_to_file() {
            tracing::info!("the terminal was closed");
            self.pending_signals += 1;
            return;
        }
        reopen_log();
        drop(self.reload());
    }

    /// Reads the configuration and the files of the realm again, and notifies systemd of the begin and the end.
    fn reload(&mut self) -> Result<ReloadOutcome, ReloadError> {
        if let Some(systemd) = &mut self.systemd {
            systemd.notify_reloading();
        }
        let outcome = self.read_files();
        if let Some(systemd) = &mut self.systemd {
            systemd.notify_reloaded();
        }
        outcome
    }

    /// Reads the configuration and the files of the realm again. They are applied as a whole or not at all, but for the
    /// keys that need a restart.
    fn read_files(&mut self) -> Result<ReloadOutcome, ReloadError> {
        let config = self.read_configuration()?;
        let realm = self.core.protection.reload(Clock::now().wall).map_err(|reason| {
            tracing::error!(reason, "files of the realm refused; everything stays as it was");
            ReloadError::Realm(reason)
        })?;
        for name in realm.iter().flatten() {
            tracing::info!(changed = name, "realm read again");
        }
        match config {
            None if realm.is_none() => {
                tracing::info!("there is no configuration file to read again");
                Err(ReloadError::NoFile)
            }
            None => Ok(ReloadOutcome { realm, ..ReloadOutcome::default() }),
            Some(new) => Ok(ReloadOutcome { realm, ..self.apply_configuration(&new) }),
        }
    }

    /// Reads and checks the configuration; returns `None` if the peer was started without a file.
    fn read_configuration(&self) -> Result<Option<Config>, ReloadError> {
        let origin = self.running_config.origin.as_ref().filter(|origin| origin.file.is_some());
        let Some(origin) = origin else { return Ok(None) };
        let checked = origin.load().and_then(check_files);
        checked.map(Some).map_err(|errors| {
            tracing::error!(%errors, "configuration refused; the previous one stays in use");
            ReloadError::Refused(errors)
        })
    }

    /// Applies a configuration, but for the keys that need a restart.
    fn apply_configuration(&mut self, new: &Config) -> ReloadOutcome {
        let changes = self.running_config.config.changes(new);
        let (applied, restart_needed): (Vec<ConfigChange>, Vec<ConfigChange>) =
            changes.into_iter().partition(|change| RUN_TIME_KEYS.iter().any(|(key, _)| *key == change.key));
        self.running_config.config.adopt(new, &RUN_TIME_KEYS.map(|(key, _)| key));
        for (key, apply) in RUN_TIME_KEYS {
            if applied.iter().any(|change| change.key == key) {
                apply(self, new);
            }
        }
        for change in &applied {
            tracing::info!(key = change.key, old = change.old, new = change.new, "configuration changed");
        }
        for change in &restart_needed {
            tracing::warn!(key = change.key, old = change.old, new = change.new, "configuration key needs a restart");
        }
        tracing::info!(changed = applied.len(), restart_needed = restart_needed.len(), "configuration read again");
        self.running_config.loaded = Clock::now().wall;
        self.running_config.pending = restart_needed.iter().map(|change| change.key).collect();
        ReloadOutcome { applied, restart_needed, realm: None }
    }
}

/// Returns the configuration, if the files that it names can be used.
fn check_files(config: Config) -> Result<Config, ConfigErrors> {
    #[cfg(feature = "listeners")]
    return crate::daemon::listeners::check_configured_files(config);
    #[cfg(not(feature = "listeners"))]
    Ok(config)
}

fn reopen_log() {
    #[cfg(feature = "cli")]
    crate::daemon::log_output::reopen();
}
