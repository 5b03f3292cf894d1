//! `doctor`: the reasons why messages do not arrive, each with its consequence and its remedy.
//!
//! Reading the system (`host`) and judging it (`judge`) are separate, so that tables of made-up hosts test every
//! judgement.

mod host;
mod judge;
mod outcome;
mod remedy;
mod report;
mod setup;

use crate::config::Config;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::Output;
use std::path::Path;

/// Options of the checks of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostChecks {
    /// True if a running peer at the socket of the configuration decides which network is checked.
    pub asks_peer: bool,
    /// True to print the remedies instead of the report.
    pub prints_remedies: bool,
    /// True to carry out the harmless remedies.
    pub applies_remedies: bool,
    /// True to print a JSON object.
    pub json: bool,
}

/// Checks this host and prints the report. The exit code is [`Exit::Failed`] if something is broken, or if a remedy
/// that was asked for fails.
///
/// # Errors
/// Standard output cannot be written.
pub fn check_host(config: &Config, options: &HostChecks, out: &mut Output) -> Result<Exit, CommandFailure> {
    let state = host::read(config, options.asks_peer);
    let outcomes = judge::judge(&state);
    let applied = options.applies_remedies.then(|| remedy::raise_limits(&outcomes, Path::new("/proc/sys")));
    if options.json {
        out.line(report::json(&state.setup, &outcomes, applied.as_deref()))?;
    } else if let Some(applied) = &applied {
        for limit in applied {
            out.line(limit)?;
        }
        if applied.is_empty() {
            out.line("nothing to do: no remedy is only a larger limit; --fix alone prints them all")?;
        }
    } else if options.prints_remedies {
        for line in remedy::script(&outcomes) {
            out.line(line)?;
        }
    } else {
        out.bytes(report::text(&outcomes).as_bytes())?;
    }
    let has_failed = applied.is_some_and(|applied| applied.iter().any(|limit| limit.error.is_some()));
    Ok(if has_failed || report::is_broken(&outcomes) { Exit::Failed } else { Exit::Done })
}
