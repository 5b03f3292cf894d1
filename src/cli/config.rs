//! The configuration that a command uses, and `config check|show`.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::args::{ConfigFile, DaemonOptions};
use super::bus_options::PeerOptions;
use crate::config::{Config, ConfigError, ConfigErrors, ConfigOrigin, ConfigRow, LinkOverlap, Override};
use crate::daemon::listeners;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::Output;
use crate::terminal::output::json;
use crate::terminal::table::{Column, TextTable};

/// The environment variable that names the configuration file.
pub const CONFIG_VARIABLE: &str = "SEQCAST_CONFIG";

/// Maximum number of hints that `config check` prints.
const HINTS_MAX: usize = 100;

/// Returns the effective configuration: defaults, then the file that `--config` or SEQCAST_CONFIG names, then the
/// environment, then the flags.
///
/// # Errors
/// Returns all errors in any of them.
pub fn resolve(options: &PeerOptions) -> Result<Config, CommandFailure> {
    load(&origin(options, []))
}

/// Returns what the configuration of the daemon is read from.
pub fn daemon_origin(options: &DaemonOptions) -> ConfigOrigin {
    let texts = [
        ("--nats", "nats", options.nats.as_deref()),
        ("--nats-ws", "nats-ws", options.nats_ws.as_deref()),
        ("--redis", "redis", options.redis.as_deref()),
        ("--hat", "hat", options.hat.as_deref()),
        ("--rv", "rv", options.rv.as_deref()),
        ("--ftn18", "ftn18", options.ftn18.as_deref()),
        ("--http", "http", options.http.as_deref()),
        ("--busy-poll", "busy-poll", options.busy_poll.as_deref()),
        ("--log-level", "log-level", options.log_level.as_deref()),
        ("--log-format", "log-format", options.log_format.as_deref()),
    ];
    origin(&options.peer, flag_overrides(texts))
}

/// Reads a configuration.
///
/// # Errors
/// Returns all errors in it.
pub fn load(origin: &ConfigOrigin) -> Result<Config, CommandFailure> {
    origin.load().map_err(failure)
}

fn origin(options: &PeerOptions, more: impl IntoIterator<Item = Override>) -> ConfigOrigin {
    let file = options.config.clone().or_else(named_file);
    let mut overrides = Override::environment();
    overrides.extend(flags(options));
    overrides.extend(more);
    ConfigOrigin { file, overrides }
}

/// Returns the overrides of the flags, in the order of the help; `--set` last.
fn flags(options: &PeerOptions) -> Vec<Override> {
    let socket = options.socket.as_ref().map(|path| path.to_string_lossy().into_owned());
    let texts = [
        ("--name", "name", options.name.as_deref()),
        ("--interface", "interface", options.interface.as_deref()),
        ("--open", "security", options.open.then_some("open")),
        ("--group", "group", options.group.as_deref()),
        ("--port", "port", options.port.as_deref()),
        ("--socket", "socket", socket.as_deref()),
    ];
    let settings = options.settings.iter().map(|setting| Override::set(&setting.key, &setting.value));
    flag_overrides(texts).chain(settings).collect()
}

/// Returns the overrides of the given flags: flag, key, value.
fn flag_overrides<'a>(
    texts: impl IntoIterator<Item = (&'a str, &'a str, Option<&'a str>)>,
) -> impl Iterator<Item = Override> {
    texts.into_iter().filter_map(|(flag, key, value)| Some(Override::flag(flag, key, value?)))
}

fn named_file() -> Option<PathBuf> {
    std::env::var_os(CONFIG_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from)
}

fn failure(errors: ConfigErrors) -> CommandFailure {
    match errors.0.as_slice() {
        [error] => {
            let problem = ConfigError { suggestion: None, ..error.clone() };
            let failure = CommandFailure::new(Exit::Configuration, format!("1 error in the configuration\n{problem}"));
            CommandFailure { fix: error.suggestion.clone(), ..failure }
        }
        several => {
            let text = format!("{} errors in the configuration\n{errors}", several.len());
            CommandFailure::new(Exit::Configuration, text)
        }
    }
}

/// The answer of `config check --json`.
#[derive(Serialize)]
struct CheckJson<'a> {
    file: String,
    ok: bool,
    errors: &'a [ConfigError],
    /// Exported and imported subjects that overlap; none if there is an error.
    hints: Vec<HintJson<'a>>,
}

/// A hint of `config check --json`.
#[derive(Serialize)]
struct HintJson<'a> {
    keys: [&'static str; 2],
    patterns: [&'a str; 2],
    /// Pattern of exactly the subjects that both match.
    common: &'a str,
    found: String,
    effect: &'static str,
    fix: &'static str,
}

impl HintJson<'_> {
    fn of(overlap: &LinkOverlap) -> HintJson<'_> {
        HintJson {
            keys: [overlap.key, "link-import"],
            patterns: [overlap.export.as_str(), overlap.import.as_str()],
            common: overlap.common.as_str(),
            found: overlap.to_string(),
            effect: LinkOverlap::EFFECT,
            fix: LinkOverlap::FIX,
        }
    }
}

/// The answer of `config show --json`.
#[derive(Serialize)]
struct ShowJson {
    file: Option<String>,
    keys: Vec<ConfigRow>,
}

/// Checks the file, and those that it names, alone: neither environment nor flags can hide an error in it.
///
/// # Errors
/// No file is named, or it has errors.
pub fn check(options: &ConfigFile, out: &mut Output) -> Result<Exit, CommandFailure> {
    let Some(file) = options.file.clone().or_else(named_file) else {
        return Err(CommandFailure::new(Exit::Usage, "there is no configuration file to check")
            .fix(format!("name one: seqcast config check config/param.yaml (or set {CONFIG_VARIABLE})")));
    };
    let checked = Config::load(&file).and_then(listeners::check_configured_files);
    let mut overlaps = checked.as_ref().map_or(Vec::new(), Config::link_overlaps);
    let omitted = overlaps.len().saturating_sub(HINTS_MAX);
    overlaps.truncate(HINTS_MAX);
    if options.json {
        let errors = checked.as_ref().err().map_or(&[][..], |errors| &errors.0);
        let hints = overlaps.iter().map(HintJson::of).collect();
        out.line(json(&CheckJson { file: path_text(&file), ok: checked.is_ok(), errors, hints }))?;
        return Ok(if checked.is_ok() { Exit::Done } else { Exit::Configuration });
    }
    checked.map_err(failure)?;
    out.line(format_args!("{}: no errors", file.display()))?;
    for overlap in &overlaps {
        out.line(format_args!("hint: {overlap}"))?;
    }
    if 0 < omitted {
        out.line(format_args!("hint: {omitted} further patterns overlap"))?;
    }
    if !overlaps.is_empty() {
        out.line(format_args!("  why: {}", LinkOverlap::EFFECT))?;
        out.line(format_args!("  fix: {}", LinkOverlap::FIX))?;
    }
    Ok(Exit::Done)
}

/// Prints every key with its effective value and its source.
///
/// # Errors
/// The configuration is wrong.
pub fn show(options: &ConfigFile, out: &mut Output) -> Result<Exit, CommandFailure> {
    let file = options.file.clone().or_else(named_file);
    let keys = resolve(&PeerOptions { config: file.clone(), ..PeerOptions::default() })?.show();
    if options.json {
        out.line(json(&ShowJson { file: file.as_deref().map(path_text), keys }))?;
        return Ok(Exit::Done);
    }
    let mut table =
        TextTable::new(&[Column::new("key").left(), Column::new("value").left(), Column::new("source").left()]);
    for row in keys {
        table.row(vec![row.key.to_owned(), row.value, row.source.to_string()]);
    }
    out.bytes(table.to_string().as_bytes())?;
    Ok(Exit::Done)
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}
