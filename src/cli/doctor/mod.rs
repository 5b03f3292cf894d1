//! `doctor`: which network to check, and with which options.

pub mod args;

use self::args::DoctorOptions;
use super::bus_options::PeerOptions;
use super::connect;
use crate::doctor::{self, HostChecks, ListenOptions};
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::output::Output;

/// Runs `doctor`.
///
/// # Errors
/// The configuration is wrong, or standard output cannot be written.
pub fn run(options: &DoctorOptions, out: &mut Output) -> Result<Exit, CommandFailure> {
    let config = connect::config_of_peer(&options.peer)?;
    let asks_peer = !names_a_network(&options.peer);
    if options.listen {
        return doctor::listen(&config, &ListenOptions { asks_peer, port: options.bind, json: options.json }, out);
    }
    let checks = HostChecks {
        asks_peer,
        prints_remedies: options.fix,
        applies_remedies: options.yes,
        other: options.with.clone(),
        json: options.json,
    };
    doctor::check_host(&config, &checks, out)
}

/// Returns whether the options name a network of their own, so that a running peer does not matter.
fn names_a_network(options: &PeerOptions) -> bool {
    let PeerOptions { config, name: _, interface, open: _, group, port, socket: _, settings } = options;
    config.is_some() || interface.is_some() || group.is_some() || port.is_some() || !settings.is_empty()
}
