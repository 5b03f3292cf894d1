//! The check of multicasts: those of the other peers, and those of this peer that its own host returns to it.

use super::{NetworkSetup, is_up, names};
use crate::daemon::health::finding::{Check, Finding, Severity};
use crate::proto::stats::{MemberRow, MemberState};
use crate::time::Instant;
use std::collections::BTreeSet;
use std::time::Duration;

/// Number of multicasts of this peer, none of which came back, that is a finding.
const UNRETURNED_MIN: u64 = 2;
/// Minimum time without a returned multicast that is a finding.
const UNRETURNED_TIME: Duration = Duration::from_secs(2);
/// Maximum difference between the times at which peers were last heard that fell silent for one reason. Peers that are
/// killed one after the other differ by more.
const SILENCE_SPREAD: Duration = Duration::from_secs(2);

/// Totals of this peer's multicasts since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MulticastCounts {
    pub(crate) sent: u64,
    /// Number that the host returned to this peer.
    pub(crate) returned: u64,
}

/// Multicasts of this peer that its host should have returned.
#[derive(Debug)]
pub(super) struct ReturnedMulticasts {
    last: MulticastCounts,
    /// Time of the last sample in which multicasts had come back, and the number sent until then.
    returned_at: Instant,
    sent: u64,
    /// Number sent since then and until the sample before.
    missing: u64,
}

impl ReturnedMulticasts {
    /// Creates the state of a peer that starts now.
    pub(super) fn new(now: Instant) -> ReturnedMulticasts {
        ReturnedMulticasts { last: MulticastCounts::default(), returned_at: now, sent: 0, missing: 0 }
    }

    /// Compares the totals with those of the sample before. The multicasts of this moment may still come back.
    pub(super) fn observe(&mut self, now: Instant, counts: MulticastCounts) {
        if self.last.returned != counts.returned {
            (self.returned_at, self.sent) = (now, counts.sent);
        }
        self.missing = self.last.sent.saturating_sub(self.sent);
        self.last = counts;
    }

    fn is_blocked(&self, now: Instant) -> bool {
        UNRETURNED_MIN <= self.missing && UNRETURNED_TIME <= now.since(self.returned_at)
    }
}

/// Returns the finding about multicasts, with the side that is probably at fault.
pub(super) fn check_multicast(
    network: &NetworkSetup,
    now: Instant,
    returned: &ReturnedMulticasts,
    peers: &[MemberRow],
) -> Option<Finding> {
    let NetworkSetup { interface, group, address, has_copies, .. } = network;
    let present = || peers.iter().filter(|peer| is_up(peer));
    let dead: Vec<&MemberRow> = present().filter(|peer| peer.is_multicast_dead).collect();
    let (severity, found, fix) = if returned.is_blocked(now) {
        let others = match dead.is_empty() {
            true => String::new(),
            false => format!(", nor do those of {} arrive", names(&dead)),
        };
        let found = format!("this host does not return this peer's own multicasts to {group} on {interface}{others}");
        let fix = format!(
            "a firewall of this host drops what arrives at UDP port {} (sudo seqcast doctor names the rule), or the host \
             has left the group {} (ip maddr show dev {interface})",
            group.port(),
            group.ip()
        );
        (Severity::Broken, found, fix)
    } else if !dead.is_empty() && *has_copies {
        let found = format!("the heartbeats of {} arrive, the unicast copies of their multicasts do not", names(&dead));
        let fix = format!(
            "add {address} to 'peers' of these hosts; if it is there, allow UDP port {} here (nft list ruleset)",
            group.port()
        );
        (Severity::Warning, found, fix)
    } else if !dead.is_empty() && dead.len() == present().count() {
        let found = format!("the unicasts of {} arrive, their multicasts do not", names(&dead));
        let fix = format!(
            "the switch forwards the group {} no longer: IGMP snooping needs a querier (ip maddr show dev {interface}); or a \
             firewall drops UDP port {} of other hosts (nft list ruleset); {}",
            group.ip(),
            group.port(),
            path_test(&dead)
        );
        (Severity::Broken, found, fix)
    } else if !dead.is_empty() {
        let found = format!("the unicasts of {} arrive, the multicasts do not; those of others do", names(&dead));
        let fix = format!("look at the firewall of that host, and at the switch between; {}", path_test(&dead));
        (Severity::Warning, found, fix)
    } else {
        let silent = silent_together(network, peers)?;
        let hosts: BTreeSet<String> = silent.iter().map(|peer| peer.address.ip().to_string()).collect();
        let found = format!("all {} peers fell silent at once: {}", silent.len(), names(&silent));
        let host = hosts.first()?;
        let fix = match hosts.len() {
            1 => format!("their host is down, or the way to it is broken; look at: ping {host}"),
            _ => format!(
                "look at the cable, the switch port and the VLAN of this host, and at its firewall: \
                 ip -statistics link show {interface}; ping {host}; nft list ruleset"
            ),
        };
        (Severity::Broken, found, fix)
    };
    let effect = "messages are missing here until multicasts arrive again";
    Some(Finding { check: Check::Multicast, severity, found, effect, fix })
}

/// Returns the command that tests the path to the first of these peers.
fn path_test(peers: &[&MemberRow]) -> String {
    let host = peers.first().map_or_else(|| "HOST".to_owned(), |peer| peer.address.ip().to_string());
    format!("seqcast doctor --with {host} tests both directions")
}

/// Returns the peers that fell silent at about the same time without a BYE, if they are at least two of different names
/// and no other peer is heard. On the loopback interface they have ended.
fn silent_together<'a>(network: &NetworkSetup, peers: &'a [MemberRow]) -> Option<Vec<&'a MemberRow>> {
    let is_silent = |peer: &&MemberRow| matches!(peer.state, MemberState::Silent | MemberState::Crashed);
    let last = peers.iter().filter(is_silent).map(|peer| peer.last_heard).min()?;
    let is_meant = |peer: &&MemberRow| is_silent(peer) && peer.last_heard <= last + SILENCE_SPREAD;
    let silent: Vec<&MemberRow> = peers.iter().filter(is_meant).collect();
    let names: BTreeSet<_> = silent.iter().map(|peer| peer.publisher.name.as_ref().map(|name| name.as_str())).collect();
    let is_alone = !network.is_loopback && !peers.iter().any(is_up);
    (is_alone && 1 < names.len()).then_some(silent)
}
