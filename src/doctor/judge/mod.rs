//! The checks: functions from the state of the host to an outcome. They ask no system.

mod limits;
mod network;
mod peer;
mod sites;
#[cfg(test)]
mod tests;

use super::host::HostState;
use super::outcome::CheckOutcome;

/// All checks, in the order of the report.
const CHECKS: [fn(&HostState) -> Vec<CheckOutcome>; 20] = [
    peer::check_peer,
    network::check_interface,
    network::check_link,
    network::check_container,
    network::check_port,
    network::check_route,
    network::check_self_test,
    network::check_firewall,
    network::check_ttl,
    network::check_mtu,
    network::check_reverse_path,
    limits::check_igmp,
    limits::check_memberships,
    limits::check_buffers,
    limits::check_drops,
    peer::check_traffic,
    peer::check_datagrams,
    peer::check_identity,
    limits::check_clock,
    sites::check_sites,
];

/// Judges the state of the host.
pub(crate) fn judge(state: &HostState) -> Vec<CheckOutcome> {
    CHECKS.iter().flat_map(|check| check(state)).collect()
}
