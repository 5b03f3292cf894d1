//! Findings about keys: a peer without them, a certificate that others refuse, peers that this one refuses, messages that
//! certificates do not permit, and a host that was copied.

use super::super::finding::{Check, Finding, Severity};
use super::{EVENT_TIME, NetworkSetup, is_up};
use crate::proto::effect::DeniedPublication;
use crate::proto::stats::MemberRow;
use crate::time::Instant;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// A peer that has the secret of the realm and is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UntrustedPeer {
    /// Its address.
    pub(crate) address: SocketAddr,
    /// The problem and the remedy, with `; ` between them.
    pub(crate) reason: String,
}

/// A peer in whose name another member of the realm has published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForgedPeer {
    /// Its address.
    pub(crate) address: SocketAddr,
    /// Name in its certificate.
    pub(crate) name: String,
}

pub(super) fn check_open(network: &NetworkSetup) -> Option<Finding> {
    let NetworkSetup { interface, address, is_loopback, is_open, .. } = network;
    (*is_open && !(*is_loopback && address.is_loopback())).then(|| Finding {
        check: Check::Open,
        severity: Severity::Notice,
        found: format!("this peer is open, and other hosts can reach it at {address} on {interface}"),
        effect: "any of them can read every message and publish any",
        fix:
            "make each host a member of a realm (seqcast init, seqcast join), then start the peers without --open and \
              security: open"
                .to_owned(),
    })
}

/// Returns the finding about this host's own certificate. `problem` has the remedy after `; `.
pub(super) fn certificate_finding(problem: &str) -> Finding {
    let (found, fix) = problem.split_once("; ").unwrap_or((problem, "look at: seqcast realm show"));
    Finding {
        check: Check::Certificate,
        severity: Severity::Broken,
        found: found.to_owned(),
        effect: "peers with the same time refuse this one",
        fix: fix.to_owned(),
    }
}

/// Returns the finding about the peer that was last refused.
pub(super) fn check_trust(now: Instant, last: Option<&(Instant, UntrustedPeer)>) -> Option<Finding> {
    let (_, UntrustedPeer { address, reason }) = last.filter(|(at, _)| now.since(*at) < EVENT_TIME)?;
    let (problem, fix) = reason.split_once("; ").unwrap_or((reason, "look at: seqcast realm show, on both hosts"));
    Some(Finding {
        check: Check::Trust,
        severity: Severity::Warning,
        found: format!("the peer at {address} is not trusted: {problem}"),
        effect: "the two do not hear each other",
        fix: fix.to_owned(),
    })
}

/// Returns the finding about the message that was last denied.
pub(super) fn check_permissions(now: Instant, last: Option<&(Instant, DeniedPublication)>) -> Option<Finding> {
    let (_, DeniedPublication { publisher, member, subject }) = last.filter(|(at, _)| now.since(*at) < EVENT_TIME)?;
    let member = member.as_ref().map_or("?", |name| name.as_str());
    Some(Finding {
        check: Check::Permissions,
        severity: Severity::Warning,
        found: format!("{publisher} publishes on {subject}, which the certificate of {member} does not permit"),
        effect: "its messages there are not delivered here",
        fix: format!(
            "sign a new request of {member} with a pattern for the subject (seqcast realm sign), or find the program there \
             that publishes it"
        ),
    })
}

/// Returns the finding about forged data.
pub(super) fn check_origin(now: Instant, last: Option<&(Instant, ForgedPeer)>) -> Option<Finding> {
    let (_, ForgedPeer { address, name }) = last.filter(|(at, _)| now.since(*at) < EVENT_TIME)?;
    Some(Finding {
        check: Check::Origin,
        severity: Severity::Broken,
        found: format!("a member of the realm has sent data in the name of {name} at {address}"),
        effect: "programs may have received messages that this peer has not published",
        fix: "the sender has forged this address, so do not exclude that host: compare the Ethernet addresses in a capture of \
              its datagrams, and exclude the host that sends the others (seqcast realm revoke NAME, or in the mode realm \
              seqcast realm rotate)"
            .to_owned(),
    })
}

/// Subscriptions in the name of this peer that another one has forged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InterestForgeries {
    /// Number of times that other peers had them.
    count: u64,
    /// Time of the last one.
    last: Option<Instant>,
}

impl InterestForgeries {
    /// Handles the number of times so far.
    pub(super) fn observe(&mut self, now: Instant, count: u64) {
        if self.count < count {
            (self.count, self.last) = (count, Some(now));
        }
    }

    /// Returns the finding, for a while after the last time.
    pub(super) fn check(&self, now: Instant) -> Option<Finding> {
        self.last.filter(|at| now.since(*at) < EVENT_TIME)?;
        Some(Finding {
            check: Check::Interest,
            severity: Severity::Broken,
            found: "somebody has sent subscriptions in the name of this peer; the log names the peers that had them".to_owned(),
            effect: "those peers may have suppressed messages for programs here, until they got the right subscriptions",
            fix: "compare the Ethernet addresses in a capture of INTEREST datagrams, and exclude the host that sends the \
                  forged ones; until then set interest: off on all peers"
                .to_owned(),
        })
    }
}

/// Returns whether peers on several hosts have the name of this one. In a realm a name belongs to one pair of keys.
pub(super) fn is_copied(network: &NetworkSetup, peers: &[MemberRow], peer: &MemberRow) -> bool {
    !network.is_open && 1 < hosts_of_namesakes(network, peers, peer).len()
}

fn hosts_of_namesakes(network: &NetworkSetup, peers: &[MemberRow], peer: &MemberRow) -> BTreeSet<IpAddr> {
    let name = &peer.publisher.name;
    // A peer that deceives has other keys.
    let others = peers.iter().filter(|other| is_up(other) && other.publisher.name == *name && !other.has_foreign_name);
    let is_own = name.as_ref().is_some_and(|name| name.as_str() == network.name);
    others.map(|other| other.address.ip()).chain(is_own.then_some(network.address)).collect()
}

/// Returns whether a peer that is up announces the name of this one, which is in the certificate of another host.
pub(super) fn is_impersonated(peers: &[MemberRow], peer: &MemberRow) -> bool {
    let name = &peer.publisher.name;
    peers.iter().any(|other| other.has_foreign_name && is_up(other) && other.publisher.name == *name)
}

/// Returns the finding about a peer that announces the name of another host.
fn impostor_finding(peer: &MemberRow) -> Finding {
    let member = peer.member.as_ref().map_or("?", |name| name.as_str());
    let name = peer.publisher.name.as_ref().map_or("?", |name| name.as_str());
    Finding {
        check: Check::Identity,
        severity: Severity::Warning,
        found: format!(
            "the peer {} on the host {} announces the name of another host; it is a peer of {member}",
            peer.publisher,
            peer.address.ip()
        ),
        effect: "reports show what it publishes under that name",
        fix: format!("on the host of {member}, give the peer a name of its own (key 'name') instead of {name}"),
    }
}

pub(super) fn check_identity(network: &NetworkSetup, peers: &[MemberRow]) -> Option<Finding> {
    if let Some(impostor) = peers.iter().find(|peer| peer.has_foreign_name && is_up(peer)) {
        return Some(impostor_finding(impostor));
    }
    let is_duplicate = |peer: &&MemberRow| peer.duplicate_name && is_up(peer);
    let peer = peers.iter().filter(is_duplicate).find(|peer| is_copied(network, peers, peer))?;
    let hosts: Vec<String> = hosts_of_namesakes(network, peers, peer).iter().map(IpAddr::to_string).collect();
    let name = peer.publisher.name.as_ref().map_or("?", |name| name.as_str());
    Some(Finding {
        check: Check::Identity,
        severity: Severity::Warning,
        found: format!("several hosts have the keys of {name}: {}; one is a copy of the other", hosts.join(", ")),
        effect: "reports do not distinguish them, and each can read what is meant for another",
        fix: "on the copy, move the directory 'realm' of data-dir away, and make keys of its own under another name: seqcast \
              join - --name NAME"
            .to_owned(),
    })
}
