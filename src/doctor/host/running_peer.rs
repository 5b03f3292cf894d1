//! The running peer of this host, as it reports itself over its local socket.

use crate::bus::{AttachOptions, Bus, OpenError, PeerReport, StatusReport};
use crate::daemon::health::finding::Severity;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The peer at the local socket.
#[derive(Debug)]
pub(crate) enum LocalPeer {
    /// The options name a network, so no peer was asked.
    NotAsked,
    /// No peer listens at the socket.
    Absent,
    /// A peer may listen there, and does not answer this program; holds the reason.
    Unreachable(String),
    /// The peer has answered.
    Running(Box<RunningPeer>),
}

impl LocalPeer {
    /// Returns the reports of the peer, if it runs and answers.
    pub(crate) fn running(&self) -> Option<&RunningPeer> {
        match self {
            LocalPeer::Running(peer) => Some(peer),
            LocalPeer::NotAsked | LocalPeer::Absent | LocalPeer::Unreachable(_) => None,
        }
    }
}

/// Reports of a running peer.
#[derive(Debug)]
pub(crate) struct RunningPeer {
    pub(crate) status: StatusReport,
    /// The other peers of the group.
    pub(crate) peers: Vec<PeerReport>,
    /// Counters by name.
    pub(crate) counters: BTreeMap<String, u64>,
    /// Findings of the peer's own checks.
    pub(crate) findings: Vec<PeerFinding>,
    /// The link to other sites, as in `show links`; null if the peer is no gateway.
    pub(crate) link: Value,
    /// Rows of `show loss` about other sites.
    pub(crate) site_losses: Vec<Value>,
}

impl RunningPeer {
    /// Returns the servers of the cluster, if the peer is a gateway and is not connected with one of them.
    pub(crate) fn unconnected_hubs(&self) -> Vec<String> {
        let hubs = self.link["hubs"].as_array().filter(|_| self.link["state"] != "connected");
        hubs.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }
}

/// A finding of the peer's own checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerFinding {
    pub(crate) check: String,
    pub(crate) severity: Severity,
    pub(crate) found: String,
    pub(crate) effect: String,
    pub(crate) fix: String,
}

/// Asks the peer at a local socket for its reports.
pub(super) fn read(socket: &Path) -> LocalPeer {
    let options = AttachOptions { name: Some("doctor".to_owned()), shared_memory: false };
    let bus = match Bus::attach_with(socket, &options) {
        Ok(bus) => bus,
        Err(OpenError::NoPeer { .. }) => return LocalPeer::Absent,
        Err(error) => return LocalPeer::Unreachable(error.to_string()),
    };
    reports(&bus).map_or_else(LocalPeer::Unreachable, |peer| LocalPeer::Running(Box::new(peer)))
}

fn reports(bus: &Bus) -> Result<RunningPeer, String> {
    let text = |error: crate::bus::ReportError| error.to_string();
    let health = bus.show("health").map_err(|error| error.to_string())?;
    let findings = health["health"]["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let mut links = bus.show("links").map_err(|error| error.to_string())?;
    let losses = bus.show("loss").map_err(|error| error.to_string())?;
    Ok(RunningPeer {
        status: bus.status().map_err(text)?,
        peers: bus.peers().map_err(text)?.rows,
        counters: bus.counters().map_err(text)?.into_iter().map(|row| (row.name, row.value)).collect(),
        findings: findings.iter().filter_map(finding).collect(),
        link: links["link"].take(),
        site_losses: losses["sites"].as_array().cloned().unwrap_or_default(),
    })
}

/// Reads a finding of `show health`. A severity that this version does not know counts as a warning.
fn finding(row: &Value) -> Option<PeerFinding> {
    let text = |field: &str| row[field].as_str().map(str::to_owned);
    let name = text("severity")?;
    let known = [Severity::Notice, Severity::Warning, Severity::Broken];
    Some(PeerFinding {
        check: text("check")?,
        severity: known.into_iter().find(|severity| severity.as_str() == name).unwrap_or(Severity::Warning),
        found: text("found")?,
        effect: text("effect")?,
        fix: text("fix")?,
    })
}
