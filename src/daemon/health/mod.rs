//! Health of the peer: it checks its host and its network while it runs, logs each change once, and shows the present
//! findings in `show health`.

pub(crate) mod finding;
mod monitor;

use self::finding::Severity;
use self::monitor::{HealthChange, HealthMonitor, InterfaceState, NetworkSetup, Observation};
use crate::daemon::beacon::Beacons;
use crate::daemon::engine_core::EngineCore;
use crate::daemon::interface::{self, ChosenInterface, Interface};
use crate::time::{ClockReading, Instant};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
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
    /// True if the list of interfaces could not be read; this is logged once.
    has_list_failed: bool,
}

impl Health {
    /// Starts the checks of a peer on this interface.
    pub(super) fn new(
        chosen: &ChosenInterface,
        group: SocketAddr,
        ttl: u8,
        beacons: Option<Beacons>,
        now: ClockReading,
    ) -> Health {
        let network = NetworkSetup {
            interface: chosen.name.clone(),
            is_loopback: chosen.loopback,
            address: chosen.address,
            group,
            ttl,
        };
        Health {
            monitor: HealthMonitor::new(network, now),
            beacons,
            next_sample: now.instant + SAMPLE_INTERVAL,
            has_list_failed: false,
        }
    }

    /// Returns the time of the next sample.
    pub(super) fn deadline(&self) -> Instant {
        self.next_sample
    }

    /// Takes a sample if one is due, and logs what has changed.
    pub(super) fn on_turn(&mut self, core: &mut EngineCore, now: ClockReading) {
        if now.instant < self.next_sample {
            return;
        }
        self.next_sample = now.instant + SAMPLE_INTERVAL;
        if let Some(beacons) = &mut self.beacons {
            beacons.exchange(now.instant, core.peer.epoch());
        }
        let observation = Observation {
            interface: self.interface_state(),
            refused: core.transmit_queue.take_refused(),
            peers: core.peer.member_rows(now),
            foreign_peers: self.beacons.as_ref().map_or(Vec::new(), |beacons| beacons.foreign_peers().to_vec()),
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

    fn interface_state(&mut self) -> InterfaceState {
        match interface::list() {
            Ok(interfaces) => {
                let NetworkSetup { interface, address, .. } = self.monitor.network();
                state_of(&interfaces, interface, *address)
            }
            Err(error) => {
                if !self.has_list_failed {
                    self.has_list_failed = true;
                    tracing::warn!(%error, "the network interfaces cannot be listed, so their changes are not noticed");
                }
                InterfaceState::Usable
            }
        }
    }
}

/// Returns the state of the interface with a name, which had this address.
fn state_of(interfaces: &[Interface], name: &str, address: IpAddr) -> InterfaceState {
    let Some(interface) = interfaces.iter().find(|interface| interface.name == name) else {
        return InterfaceState::Absent;
    };
    let addresses = || interface.addresses.iter().map(|entry| entry.ip);
    if !interface.up {
        InterfaceState::Down
    } else if !interface.running {
        InterfaceState::NoCarrier
    } else if !addresses().any(|ip| ip == address) {
        InterfaceState::AddressGone(addresses().filter(|ip| ip.is_ipv4() == address.is_ipv4()).collect())
    } else {
        InterfaceState::Usable
    }
}

fn log(change: &HealthChange) {
    match change {
        HealthChange::Raised(finding) => {
            let check = finding.check.as_str();
            match finding.severity {
                Severity::Notice => tracing::info!(check, "{finding}"),
                Severity::Warning => tracing::warn!(check, "{finding}"),
                Severity::Broken => tracing::error!(check, "{finding}"),
            }
        }
        HealthChange::Cleared(check, text) => tracing::info!(check = check.as_str(), "{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::interface::InterfaceAddress;

    #[test]
    fn interface_state_names_the_first_defect() {
        let usable = Interface {
            name: "eth0".to_owned(),
            index: 2,
            mtu: 1500,
            up: true,
            running: true,
            multicast: true,
            loopback: false,
            point_to_point: false,
            addresses: vec![InterfaceAddress { ip: [10, 0, 0, 7].into(), stable: true }],
        };
        let state = |interface: &Interface| state_of(std::slice::from_ref(interface), "eth0", [10, 0, 0, 7].into());
        assert_eq!(state(&usable), InterfaceState::Usable);
        assert_eq!(state(&Interface { up: false, running: false, ..usable.clone() }), InterfaceState::Down);
        assert_eq!(state(&Interface { running: false, ..usable.clone() }), InterfaceState::NoCarrier);
        assert_eq!(state(&Interface { name: "eth1".to_owned(), ..usable.clone() }), InterfaceState::Absent);
        let moved = InterfaceAddress { ip: [10, 0, 0, 8].into(), stable: true };
        let other = Interface { addresses: vec![moved], ..usable };
        assert_eq!(state(&other), InterfaceState::AddressGone(vec![[10, 0, 0, 8].into()]));
    }
}
