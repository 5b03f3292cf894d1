//! `doctor`: the reasons why messages do not arrive, each with its consequence and its remedy.
//!
//! Reading the system (`host`) and judging it (`judge`) are separate, so that tables of made-up hosts test every
//! judgement.

mod host;
mod judge;
mod outcome;
mod path;
mod remedy;
mod report;
mod setup;
mod target;

pub use target::PathTarget;

use self::host::HostState;
use self::outcome::{CheckOutcome, HostCheck};
use self::path::PathReport;
use self::report::ReportParts;
use self::setup::PeerSetup;
use crate::clock::Clock;
use crate::config::Config;
use crate::daemon::health::finding::{Finding, Severity};
use crate::daemon::interface::{self, ChosenInterface, Family};
use crate::daemon::multicast::SocketOpenError;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::Output;
use crate::terminal::progress::Progress;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

/// Options of the checks.
#[derive(Clone, Debug, Default)]
pub struct HostChecks {
    /// True if a running peer at the socket of the configuration decides which network is checked.
    pub asks_peer: bool,
    /// True to print the remedies instead of the report.
    pub prints_remedies: bool,
    /// True to carry out the harmless remedies.
    pub applies_remedies: bool,
    /// Another host, on which a peer or a doctor answers, to check the path to it.
    pub other: Option<PathTarget>,
    /// True to print a JSON object.
    pub json: bool,
}

/// Checks this host, and the path to another one, and prints the report. The exit code is [`Exit::Failed`] if something
/// is broken, or if a remedy that was asked for fails.
///
/// # Errors
/// Standard output cannot be written.
pub fn check_host(config: &Config, options: &HostChecks, out: &mut Output) -> Result<Exit, CommandFailure> {
    let state = host::read(config, options.asks_peer);
    let mut outcomes = judge::judge(&state);
    let path = options.other.as_ref().and_then(|other| check_path(&state, other, &mut outcomes));
    let applied = options.applies_remedies.then(|| remedy::raise_limits(&outcomes, Path::new("/proc/sys")));
    let parts = ReportParts { applied: applied.as_deref(), path: path.as_ref() };
    if options.json {
        out.line(report::json(&state.setup, &outcomes, parts))?;
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

/// Checks this host, with the network of the peer that runs at the socket of the configuration, if there is one. Returns
/// the report that `doctor --json` prints.
pub fn host_report(config: &Config) -> Value {
    let state = host::read(config, true);
    report::json(&state.setup, &judge::judge(&state), ReportParts::default())
}

/// Checks the path to another host. Returns its counts if a peer or a doctor answers there.
fn check_path(state: &HostState, other: &PathTarget, outcomes: &mut Vec<CheckOutcome>) -> Option<PathReport> {
    let Ok(chosen) = &state.choice else { return None };
    let setup = &state.setup;
    let name = other.host();
    let broken = |found: String, effect, fix: String| {
        CheckOutcome::from(Finding { check: HostCheck::Unicast, severity: Severity::Broken, found, effect, fix })
    };
    let unknown = "nothing is known about the path to it";
    let address = match other.resolve(&state.peer, chosen, setup.port) {
        Ok(address) => address,
        Err(error) => {
            let found = format!("the address of '{name}' is unknown: {error}");
            outcomes.push(broken(found, unknown, "give its address instead: --with ADDRESS".to_owned()));
            return None;
        }
    };
    // The check of the port or of the memberships has reported why there are no sockets.
    let mut sockets = path::open(setup, chosen, 0).ok()?;
    let progress = Progress::activity(format!("testing the path to {address}"), Clock::now().instant);
    let probed = path::probe(&mut sockets, chosen, address);
    drop(progress);
    match probed {
        Ok(Some(report)) => {
            outcomes.extend(path::judge(name, setup.port, &report));
            Some(report)
        }
        Ok(None) => {
            let fix = format!(
                "start a peer there without path-tests: off, or: seqcast doctor --listen --interface NAME; on both hosts \
                 admit UDP port {}, and look at: ping {}",
                address.port(),
                address.ip()
            );
            outcomes.push(broken(format!("no peer and no doctor answers at {address}"), unknown, fix));
            None
        }
        Err(error) => {
            let found = format!("the system refuses to send to {address}: {error}");
            outcomes.push(broken(found, unknown, format!("look at: ip route get {}", address.ip())));
            None
        }
    }
}

/// Options of the listening side.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenOptions {
    /// True if a running peer at the socket of the configuration decides on the interface and the group.
    pub asks_peer: bool,
    /// UDP port at which the doctor answers; the port of the group if there is none.
    pub port: Option<u16>,
    /// True to print objects of JSON.
    pub json: bool,
}

/// Answers the doctors of other hosts until the user ends it.
///
/// # Errors
/// The group cannot be joined on the interface, or standard output cannot be written.
pub fn listen(config: &Config, options: &ListenOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let (_, setup) = host::find_peer(config, options.asks_peer);
    let chosen = interface::choose(&setup.interface, Family::of(setup.group))
        .map_err(|error| CommandFailure::new(Exit::Unreachable, error))?;
    let port = options.port.unwrap_or(setup.port);
    let mut sockets = path::open(&setup, &chosen, port).map_err(|error| match error {
        SocketOpenError::InboxBusy(address) => port_failure(&setup, &chosen, address),
        error => CommandFailure::new(Exit::Failed, error),
    })?;
    let interrupt = Interrupt::watch()?;
    let address = sockets.inbox_address();
    match options.json {
        true => {
            out.line(json!({ "type": "listening", "address": address, "group": setup.group, "port": setup.port }))?
        }
        false => out.line(format_args!(
            "listening at {address} and in {} port {}; on the other host run: seqcast doctor --with {address}",
            setup.group, setup.port
        ))?,
    }
    out.flush()?;
    path::listen(
        &mut sockets,
        || interrupt.is_raised(),
        |prober| {
            match options.json {
                true => out.line(json!({ "type": "prober", "address": prober }))?,
                false => out.line(format_args!("{prober} checks the path to this host"))?,
            }
            out.flush()
        },
    )?;
    Ok(Exit::Done)
}

/// Returns the failure of a listener whose address is in use, usually by the running peer, which then answers as well.
fn port_failure(setup: &PeerSetup, chosen: &ChosenInterface, address: SocketAddr) -> CommandFailure {
    let sockets = path::open(setup, chosen, 0);
    let is_answered = sockets.is_ok_and(|mut sockets| path::is_answered(&mut sockets, address).unwrap_or(false));
    if is_answered {
        let found = format!("a peer or a doctor of this host answers at {address} already");
        let fix = format!("on the other host run: seqcast doctor --with {address}");
        return CommandFailure::new(Exit::Failed, found).fix(fix);
    }
    let other_port = address.port().wrapping_add(1).max(1);
    CommandFailure::new(Exit::Failed, format!("{address} is in use"))
        .fix(format!("choose another port: --bind {other_port}, and on the other host --with HOST:PORT"))
}
