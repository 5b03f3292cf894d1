//! Health of the peer: it checks its host and its network while it runs, logs each change once, and shows the present
//! findings in `show health`.

pub(crate) mod finding;
mod monitor;

use self::finding::{Check, Severity};
use self::monitor::{
    ForgedPeer, HealthChange, HealthMonitor, MulticastCounts, NetworkSetup, Observation, RequestTotals, UntrustedPeer,
};
use crate::config::Config;
use crate::daemon::beacon::Beacons;
use crate::daemon::engine_core::EngineCore;
use crate::daemon::event_request::ServerIdConflict;
use crate::daemon::interface::{ChosenInterface, InterfaceState};
use crate::time::{ClockReading, Instant};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The checks of a running peer.
#[derive(Debug)]
pub(super) struct Health {
    monitor: HealthMonitor,
    /// Beacons of this peer and of peers of other groups; `None` if it sends and hears none.
    beacons: Option<Beacons>,
    next_sample: Instant,
}

impl Health {
    /// Starts the checks of a peer on this interface.
    pub(super) fn new(
        config: &Config,
        chosen: &ChosenInterface,
        group: SocketAddr,
        is_open: bool,
        now: ClockReading,
    ) -> Health {
        let network = NetworkSetup {
            name: config.name.to_string(),
            interface: chosen.name.clone(),
            is_loopback: chosen.loopback,
            address: chosen.address,
            group,
            ttl: config.ttl,
            has_copies: !config.peers.is_empty(),
            is_open,
            reliability: config.reliability,
        };
        Health {
            monitor: HealthMonitor::new(network, now),
            beacons: Beacons::open(config, chosen, now.instant),
            next_sample: now.instant + SAMPLE_INTERVAL,
        }
    }

    /// Records that the interface has another state or another address, which the next turn judges.
    pub(super) fn on_interface(&mut self, chosen: &ChosenInterface, now: Instant) {
        self.monitor.set_interface(&chosen.name, chosen.address);
        self.next_sample = now;
    }

    /// Moves the beacons to an interface with another address or another number.
    pub(super) fn move_beacons(&mut self, chosen: &ChosenInterface) {
        if let Some(beacons) = &mut self.beacons {
            beacons.move_to(chosen, self.monitor.network().ttl);
        }
    }

    /// Returns the time of the next sample.
    pub(super) fn deadline(&self) -> Instant {
        self.next_sample
    }

    /// Takes a sample if one is due, and logs what has changed.
    pub(super) fn on_turn(
        &mut self,
        core: &mut EngineCore,
        interface: &InterfaceState,
        conflict: Option<&ServerIdConflict>,
        link_problem: impl FnOnce() -> Option<String>,
        now: ClockReading,
    ) {
        if now.instant < self.next_sample {
            return;
        }
        self.next_sample = now.instant + SAMPLE_INTERVAL;
        if let Some(beacons) = &mut self.beacons {
            beacons.exchange(now.instant, core.peer.epoch());
        }
        let counters = core.peer.counters();
        let multicasts = MulticastCounts { sent: counters.datagrams_multicast, returned: counters.discard_own };
        let observation = Observation {
            interface: interface.clone(),
            refused: core.transmit_queue.take_refused(),
            peers: core.peer.member_rows(now),
            foreign_peers: self.beacons.as_ref().map_or(Vec::new(), |beacons| beacons.foreign_peers().to_vec()),
            multicasts,
            requests: core.peer.loss_rows().iter().map(|row| (row.publisher.epoch, RequestTotals::of(row))).collect(),
            kernel_drops: counters.kernel_drops,
            receive_buffer: core.sockets.granted()[0],
            server_id_conflict: conflict.cloned(),
            untrusted: core.protection.take_untrusted().map(|(address, reason)| UntrustedPeer { address, reason }),
            denied: core.protection.take_denied(),
            forged: core.protection.take_forged().map(|(address, name)| ForgedPeer { address, name: name.to_string() }),
            interest_forgeries: counters.interest_forgeries,
            certificate_problem: core.protection.certificate_problem(now.wall),
            path_limit: core.peer.path_limit().cloned(),
            link_problem: link_problem(),
        };
        for change in self.monitor.update(now, &observation) {
            log(&change);
        }
    }

    /// Answers `show health`.
    pub(super) fn report(&self) -> Value {
        let findings = self.monitor.findings().map(|active| {
            let finding = &active.finding;
            json!({
                "check": finding.check.as_str(),
                "severity": finding.severity.as_str(),
                "found": finding.found,
                "effect": finding.effect,
                "fix": finding.fix,
                "since": active.since.to_string(),
            })
        });
        json!({
            "state": self.monitor.worst().map_or("ok", Severity::as_str),
            "findings": findings.collect::<Vec<Value>>(),
        })
    }

    /// Returns the numbers of beacons sent and received, and of received datagrams that are no beacon.
    pub(super) fn beacon_counts(&self) -> [u64; 3] {
        self.beacons.as_ref().map_or([0; 3], Beacons::counts)
    }
}

fn log(change: &HealthChange) {
    match change {
        HealthChange::Raised(finding) => {
            let check = finding.check.as_str();
            match finding.severity {
                Severity::Notice if finding.check == Check::Open => tracing::warn!(check, "{finding}"),
                Severity::Notice => tracing::info!(check, "{finding}"),
                Severity::Warning => tracing::warn!(check, "{finding}"),
                Severity::Broken => tracing::error!(check, "{finding}"),
            }
        }
        HealthChange::Cleared(check, text) => tracing::info!(check = check.as_str(), "{text}"),
    }
}
