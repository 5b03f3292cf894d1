//! The levels of the log while the peer runs: one for everything, and others for parts of the program, until the peer
//! ends or for a time.

use crate::config::LogLevel;
use crate::time::Instant;
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Longest time for which a level can be set.
pub const DURATION_MAX: Duration = Duration::from_secs(7 * 86_400);

/// A part of the program whose level can be set: its name, and the modules that it consists of.
#[derive(Debug, PartialEq, Eq)]
pub struct LogTarget {
    /// Name of the part.
    pub name: &'static str,
    /// Events that it logs, for people.
    pub meaning: &'static str,
    /// Paths of the modules. A longer path wins over a shorter one that it begins with.
    pub modules: &'static [&'static str],
}

/// All parts of the program that log.
pub static LOG_TARGETS: [LogTarget; 9] = [
    target(
        "core",
        "other peers, losses, messages without receivers",
        &["seqcast::daemon::engine_core", "seqcast::daemon::log", "seqcast::daemon::unserved_report"],
    ),
    target(
        "clients",
        "attached and embedded programs",
        &[
            "seqcast::bus",
            "seqcast::daemon::clients",
            "seqcast::daemon::engine_core::local_clients",
            "seqcast::daemon::local_socket",
        ],
    ),
    target(
        "network",
        "the UDP sockets and their interface, beacons, and the checks of host and network",
        &[
            "seqcast::daemon::batch",
            "seqcast::daemon::beacon",
            "seqcast::daemon::engine::interface_tracking",
            "seqcast::daemon::engine::network",
            "seqcast::daemon::engine_core::receive",
            "seqcast::daemon::health",
            "seqcast::daemon::multicast",
            "seqcast::daemon::path_test",
            "seqcast::daemon::transmit_queue",
        ],
    ),
    target(
        "listeners",
        "clients of NATS, Redis, Hat and Rendezvous",
        &["seqcast::daemon::listeners", "seqcast::listener"],
    ),
    target(
        "events",
        "the journal of events and its replication",
        &["seqcast::daemon::events", "seqcast::storage::journal"],
    ),
    target(
        "streams",
        "event streams and their clients",
        &["seqcast::daemon::stream_service", "seqcast::storage::streams"],
    ),
    target(
        "http",
        "the web server and all connections by HTTP",
        &["seqcast::daemon::http_server", "seqcast::daemon::web"],
    ),
    target("links", "the link to other sites", &["seqcast::daemon::link", "seqcast::daemon::site_loss_monitor"]),
    target(
        "daemon",
        "start, stop, signals, configuration, systemd",
        &[
            "seqcast::daemon::engine",
            "seqcast::daemon::key_log",
            "seqcast::daemon::log_output",
            "seqcast::daemon::protection",
            "seqcast::daemon::realm_writer",
            "seqcast::daemon::systemd",
        ],
    ),
];

const fn target(name: &'static str, meaning: &'static str, modules: &'static [&'static str]) -> LogTarget {
    LogTarget { name, meaning, modules }
}

/// Name of everything without a level of its own.
const ALL: &str = "all";

const LEVELS: [LogLevel; 5] = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];

/// A level for everything, or for a part of the program: `debug` or `all=debug`, `core=debug`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDirective {
    /// Index of the part in [`LOG_TARGETS`]; `None` for everything without a level of its own.
    target: Option<usize>,
    /// The level.
    level: LogLevel,
}

/// Reason why a text is no directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDirectiveError {
    /// There is no such part.
    Target(String),
    /// There is no such level.
    Level(String),
}

impl fmt::Display for LogDirectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogDirectiveError::Target(text) => {
                let names: Vec<&str> = [ALL].into_iter().chain(LOG_TARGETS.iter().map(|target| target.name)).collect();
                write!(f, "there is no target {text:?}; use one of {}", names.join(", "))
            }
            LogDirectiveError::Level(text) => {
                write!(f, "{text:?} is no level; use one of {}", LEVELS.map(|level| level.to_string()).join(", "))
            }
        }
    }
}

impl std::error::Error for LogDirectiveError {}

impl FromStr for LogDirective {
    type Err = LogDirectiveError;

    fn from_str(text: &str) -> Result<LogDirective, LogDirectiveError> {
        let (target, level) = match text.split_once('=') {
            Some((ALL, level)) => (None, level),
            Some((target, level)) => (Some(target), level),
            None => (None, text),
        };
        let index = |name: &str| LOG_TARGETS.iter().position(|target| target.name == name);
        let target = target.map(|name| index(name).ok_or_else(|| LogDirectiveError::Target(name.to_owned())));
        let level = LEVELS.into_iter().find(|known| known.to_string() == level);
        Ok(LogDirective {
            target: target.transpose()?,
            level: level.ok_or_else(|| LogDirectiveError::Level(text.rsplit('=').next().unwrap_or(text).to_owned()))?,
        })
    }
}

impl fmt::Display for LogDirective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target {
            Some(index) => write!(f, "{}={}", LOG_TARGETS[index].name, self.level),
            None => write!(f, "{}", self.level),
        }
    }
}

/// The level of one part.
#[derive(Clone, Copy, Debug, Default)]
struct TargetLevel {
    /// Level without end; `None` if the part has none of its own.
    lasting: Option<LogLevel>,
    /// Level that wins over it until its end.
    temporary: Option<TemporaryLevel>,
}

#[derive(Clone, Copy, Debug)]
struct TemporaryLevel {
    level: LogLevel,
    end: Instant,
}

impl TargetLevel {
    fn level(&self) -> Option<LogLevel> {
        self.temporary.map(|temporary| temporary.level).or(self.lasting)
    }
}

/// The levels of the log of this process.
#[derive(Debug)]
pub(crate) struct LogLevels {
    /// Level of everything without one of its own; always has a lasting one.
    all: TargetLevel,
    /// Levels of the parts, in the order of [`LOG_TARGETS`].
    targets: [TargetLevel; LOG_TARGETS.len()],
}

impl LogLevels {
    /// Returns the levels of a log in which everything has this level.
    pub(crate) fn new(level: LogLevel) -> LogLevels {
        let all = TargetLevel { lasting: Some(level), temporary: None };
        LogLevels { all, targets: [TargetLevel::default(); LOG_TARGETS.len()] }
    }

    /// Sets a level until `end`, or until it is set again. A level without end cancels one that has an end.
    pub(crate) fn set(&mut self, directive: LogDirective, end: Option<Instant>) {
        let target = match directive.target {
            Some(index) => &mut self.targets[index],
            None => &mut self.all,
        };
        match end {
            Some(end) => target.temporary = Some(TemporaryLevel { level: directive.level, end }),
            None => *target = TargetLevel { lasting: Some(directive.level), temporary: None },
        }
    }

    /// Sets the level of everything. One that is set for a time stays until then.
    pub(crate) fn set_lasting(&mut self, level: LogLevel) {
        self.all.lasting = Some(level);
    }

    /// Returns the time at which the next level ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.each().filter_map(|target| Some(target.temporary?.end)).min()
    }

    /// Ends the levels whose time is over. Returns whether there were any.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let is_due = self.deadline().is_some_and(|deadline| deadline <= now);
        for target in self.targets.iter_mut().chain([&mut self.all]) {
            target.temporary = target.temporary.filter(|temporary| now < temporary.end);
        }
        is_due
    }

    fn each(&self) -> impl Iterator<Item = &TargetLevel> {
        self.targets.iter().chain([&self.all])
    }

    /// Returns the level of everything without a level of its own.
    pub(crate) fn default_level(&self) -> LogLevel {
        self.all.level().expect("it always has a lasting level")
    }

    /// Returns every module with its level.
    #[cfg(any(test, feature = "cli"))]
    pub(crate) fn modules(&self) -> impl Iterator<Item = (&'static str, LogLevel)> {
        LOG_TARGETS.iter().zip(&self.targets).flat_map(|(target, own)| {
            let level = own.level().unwrap_or(self.default_level());
            target.modules.iter().map(move |module| (*module, level))
        })
    }

    /// Returns the levels as JSON: first that of everything, then those of the parts.
    pub(crate) fn report(&self, now: Instant) -> Value {
        let row = |name: &str, meaning: &str, target: &TargetLevel, otherwise: LogLevel| {
            json!({
                "target": name,
                "level": target.level().unwrap_or(otherwise).to_string(),
                "reverts_to": target.temporary.map(|_| target.lasting.unwrap_or(otherwise).to_string()),
                "reverts_in_ms": target.temporary.map(|temporary| temporary.end.since(now).as_millis() as u64),
                "meaning": meaning,
            })
        };
        let all = row(ALL, "everything without a level of its own", &self.all, self.default_level());
        let targets = LOG_TARGETS.iter().zip(&self.targets);
        let targets = targets.map(|(target, own)| row(target.name, target.meaning, own, self.default_level()));
        [all].into_iter().chain(targets).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn directive(text: &str) -> LogDirective {
        text.parse().unwrap()
    }

    fn level(levels: &LogLevels, module: &str) -> String {
        levels.modules().find(|(name, _)| *name == module).unwrap().1.to_string()
    }

    #[test]
    fn directives_are_read_as_written() {
        for text in ["debug", "core=trace", "daemon=error"] {
            assert_eq!(directive(text).to_string(), text);
        }
        let error = |text: &str| text.parse::<LogDirective>().unwrap_err().to_string();
        assert_eq!(error("loud"), "\"loud\" is no level; use one of error, warn, info, debug, trace");
        assert_eq!(error("core=loud"), "\"loud\" is no level; use one of error, warn, info, debug, trace");
        assert!(error("cor=debug").starts_with("there is no target \"cor\"; use one of all, core, clients, network"));
        assert!(error("").contains("is no level") && error("=debug").contains("no target \"\""));
    }

    #[test]
    fn levels_revert_after_their_time() {
        let mut levels = LogLevels::new(LogLevel::Info);
        let minute = Duration::from_secs(60);
        levels.set(directive("core=warn"), None);
        levels.set(directive("core=debug"), Some(NOW + minute));
        levels.set(directive("error"), Some(NOW + 2 * minute));
        let [core, daemon] = ["seqcast::daemon::log", "seqcast::daemon::engine"];
        assert_eq!([level(&levels, core), level(&levels, daemon)], ["debug", "error"]);
        assert_eq!(levels.report(NOW)[1]["reverts_to"], "warn");
        assert_eq!(levels.report(NOW)[0]["reverts_in_ms"], 120_000);
        assert!(!levels.expire(NOW));
        assert!(levels.expire(NOW + minute));
        assert_eq!([level(&levels, core), level(&levels, daemon)], ["warn", "error"]);
        assert_eq!(levels.deadline(), Some(NOW + 2 * minute));
        assert!(levels.expire(NOW + 2 * minute));
        assert_eq!([level(&levels, core), level(&levels, daemon)], ["warn", "info"]);
        assert_eq!(levels.deadline(), None);
    }

    #[test]
    fn lasting_level_cancels_temporary_one() {
        let mut levels = LogLevels::new(LogLevel::Info);
        levels.set(directive("trace"), Some(NOW + DURATION_MAX));
        levels.set(directive("warn"), None);
        assert_eq!((levels.default_level(), levels.deadline()), (LogLevel::Warn, None));
    }

    /// Returns the names of the modules below a folder of the sources that log.
    fn logging_modules(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let modules = entries.flat_map(|path| match path.is_dir() {
            true => logging_modules(&path),
            false => {
                let is_logging =
                    std::fs::read_to_string(&path).is_ok_and(|text| text.contains(concat!("tracing", "::")));
                let below = path.strip_prefix(SOURCES).unwrap().with_extension("");
                let below = below.to_str().unwrap().trim_end_matches("/mod").replace('/', "::");
                Vec::from_iter(is_logging.then(|| format!("seqcast::{below}")))
            }
        });
        modules.collect()
    }

    const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

    #[test]
    fn every_module_that_logs_has_a_target() {
        let covers = |path: &&str, module: &str| {
            module.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let all = || LOG_TARGETS.iter().flat_map(|target| target.modules);
        let modules = logging_modules(Path::new(SOURCES));
        assert!(10 < modules.len(), "{modules:?}");
        let missing: Vec<&String> = modules.iter().filter(|module| !all().any(|path| covers(path, module))).collect();
        assert!(missing.is_empty(), "no log target has {missing:?}");
    }
}
