//! One report of every peer of the group: of the local peer, and of the others that are up. Silent peers are named.

use serde_json::Value;

use crate::bus::Bus;
use crate::message::PeerRef;
use crate::terminal::exit::CommandFailure;
use crate::terminal::interrupt::Interrupt;
use crate::terminal::output::note;
use crate::terminal::peer;

/// A peer of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPeer {
    /// Name of the peer; its epoch while its name is unknown.
    pub name: String,
    /// Epoch, as in reports.
    pub epoch: String,
    /// True for the local peer.
    pub is_local: bool,
    /// True if nothing has been heard of it for a few heartbeats, so that no answer can be expected.
    pub is_silent: bool,
}

/// Returns the local peer, then the others that are up or silent.
///
/// # Errors
/// The local peer does not answer.
pub fn peers(bus: &Bus) -> Result<Vec<GroupPeer>, CommandFailure> {
    let info = bus.info();
    let local =
        GroupPeer { name: info.peer.to_string(), epoch: info.epoch.to_string(), is_local: true, is_silent: false };
    let report = peer::show(bus, serde_json::json!({ "show": "peers" }))?;
    let rows = report["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let others = rows.iter().filter(|row| row["state"] == "up" || row["state"] == "silent").filter_map(|row| {
        let epoch = row["epoch"].as_str()?;
        Some(GroupPeer {
            name: row["publisher"].as_str().unwrap_or(epoch).to_owned(),
            epoch: epoch.to_owned(),
            is_local: false,
            is_silent: row["state"] == "silent",
        })
    });
    Ok(std::iter::once(local).chain(others).collect())
}

/// Queries each of the peers for a report, and returns those that came. The other peers are named on standard error.
///
/// # Errors
/// The local peer does not answer, or the user ends the command.
pub fn query_all<'p>(
    bus: &Bus,
    peers: &'p [GroupPeer],
    query: &Value,
    interrupt: &Interrupt,
) -> Result<Vec<(&'p GroupPeer, Value)>, CommandFailure> {
    let mut reports = Vec::new();
    for of in peers {
        if of.is_local {
            reports.push((of, peer::show(bus, query.clone())?));
            continue;
        }
        if of.is_silent {
            note(format_args!("{}: no report: the peer is silent", of.name));
            continue;
        }
        let Ok(epoch) = of.epoch.parse::<PeerRef>() else { continue };
        let (asked, query) = (bus.clone(), query.clone());
        let report = interrupt.wait_for(move || peer::show_of(&asked, &epoch, &query))?;
        match report.ok_or_else(CommandFailure::interrupted)? {
            Ok(report) => reports.push((of, report)),
            Err(failure) => note(format_args!("{}: no report: {}", of.name, failure.text)),
        }
    }
    Ok(reports)
}
