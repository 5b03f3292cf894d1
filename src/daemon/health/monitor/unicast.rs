//! The check of unicasts: a peer whose multicasts arrive and whose unicasts do not probably hears nothing of this one.

use super::{NetworkSetup, is_up, named_hosts};
use crate::daemon::health::finding::{Check, Finding, Severity};
use crate::proto::stats::MemberRow;
use std::time::Duration;

/// Minimum time since a peer was started after which its unicasts are missed. Both sides first prove their addresses.
const START_TIME: Duration = Duration::from_secs(5);

/// Returns the finding about peers whose multicasts arrive and whose unicasts do not.
pub(super) fn check_unicast(network: &NetworkSetup, peers: &[MemberRow]) -> Option<Finding> {
    let is_meant = |peer: &&MemberRow| is_up(peer) && peer.is_unicast_absent && START_TIME <= peer.uptime;
    let absent: Vec<&MemberRow> = peers.iter().filter(is_meant).collect();
    let host = absent.first()?.address.ip();
    Some(Finding {
        check: Check::Unicast,
        severity: Severity::Warning,
        found: format!("the multicasts of {} arrive, their unicasts do not", named_hosts(&absent)),
        effect: "probably those peers hear nothing of this one, so nothing that is missing here or there is repaired",
        fix: format!(
            "run 'seqcast health' on the host {host}, and look at the firewalls of both hosts (nft list ruleset): UDP to \
             the address {} of this host, and all UDP of this host there, must pass; seqcast doctor --with {host} tests \
             both directions",
            network.address
        ),
    })
}
