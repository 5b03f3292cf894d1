//! The checks of the running peer, and of what arrives in its group.

use crate::bus::{MemberState, PeerReport};
use crate::doctor::host::HostState;
use crate::doctor::host::running_peer::LocalPeer;
use crate::doctor::host::traffic::{InterfaceTest, LISTEN_TIME};
use crate::doctor::outcome::{CheckOutcome, HostCheck, OutcomeState};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Maximum number of addresses or names that an outcome lists.
const LISTED_MAX: usize = 3;

pub(super) fn check_peer(state: &HostState) -> Vec<CheckOutcome> {
    let (group, port) = (state.setup.group, state.setup.port);
    match &state.peer {
        LocalPeer::NotAsked => {
            let found = format!("not asked; the checks are about {group} port {port}, as the options say");
            vec![CheckOutcome::well(HostCheck::Peer, found)]
        }
        LocalPeer::Absent => {
            let socket = state.socket.display();
            let found = format!("none runs at {socket}; the checks are about {group} port {port}, which it would use");
            vec![CheckOutcome::well(HostCheck::Peer, found)]
        }
        LocalPeer::Unreachable(reason) => {
            let fix = "run this as the user of the peer, or name its socket (--socket)";
            vec![CheckOutcome::unknown(HostCheck::Peer, reason.as_str(), fix)]
        }
        LocalPeer::Running(peer) => {
            let found = format!("{} runs in {group} port {port}, version {}", peer.status.name, peer.status.version);
            // The check of identities has the addresses of both peers, and that of sites has more about the link.
            let findings = peer.findings.iter().filter(|finding| !["names", "link"].contains(&&*finding.check));
            let findings = findings.map(|finding| CheckOutcome {
                state: OutcomeState::Defect(finding.severity),
                effect: Some(finding.effect.clone().into()),
                fix: Some(finding.fix.clone()),
                ..CheckOutcome::well(HostCheck::Peer, format!("it reports ({}): {}", finding.check, finding.found))
            });
            [CheckOutcome::well(HostCheck::Peer, found)].into_iter().chain(findings).collect()
        }
    }
}

pub(super) fn check_traffic(state: &HostState) -> Vec<CheckOutcome> {
    let Some(heard) = state.test.as_ref().and_then(InterfaceTest::heard) else { return Vec::new() };
    let (group, port) = (state.setup.group, state.setup.port);
    let mut outcomes = Vec::new();
    if !heard.foreign.is_empty() {
        outcomes.push(CheckOutcome::warning(
            HostCheck::Traffic,
            format!("datagrams of another program arrive in {group} port {port}, from {}", listed(&heard.foreign)),
            "they take buffer space and time of every peer",
            "choose another group or port on all hosts (keys group and port), or end that program".to_owned(),
        ));
    }
    if !heard.incompatible.is_empty() {
        outcomes.push(CheckOutcome::warning(
            HostCheck::Traffic,
            format!("peers of another version or security mode send here: {}", listed(&heard.incompatible)),
            "peers of different versions do not exchange messages",
            "run the same version of seqcast with the same mode on all hosts".to_owned(),
        ));
    }
    if outcomes.is_empty() {
        let own: BTreeSet<_> =
            state.interfaces.iter().flat_map(|interface| &interface.addresses).map(|a| a.ip).collect();
        let others = heard.peers.iter().filter(|source| !own.contains(&source.ip())).count();
        let seconds = LISTEN_TIME.as_secs_f64();
        let found = match (others, heard.peers.len()) {
            (0, 0) => format!("no peer was heard within {seconds} s"),
            (0, _) => format!("peers of this host were heard, and none of another host, within {seconds} s"),
            (1, _) => "a peer of another host was heard".to_owned(),
            (others, _) => format!("{others} peers of other hosts were heard"),
        };
        outcomes.push(CheckOutcome::well(HostCheck::Traffic, found));
    }
    outcomes
}

/// Returns the first addresses, and the number of further ones.
fn listed(sources: &BTreeSet<SocketAddr>) -> String {
    let first: Vec<String> = sources.iter().take(LISTED_MAX).map(ToString::to_string).collect();
    match sources.len().saturating_sub(LISTED_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// A counter of datagrams that a peer cannot use.
struct DiscardCounter {
    name: &'static str,
    /// Property of the datagrams.
    property: &'static str,
    /// Remedy, with `INTERFACE` and `PORT` for those of the peer.
    fix: &'static str,
}

const DISCARD_COUNTERS: [DiscardCounter; 6] = [
    DiscardCounter {
        name: "discard_version",
        property: "of another version",
        fix: "run the same version of seqcast on all hosts",
    },
    DiscardCounter {
        name: "discard_mode",
        property: "with another security mode",
        fix: "give all peers the same mode and keys",
    },
    DiscardCounter { name: "discard_group", property: "of another group", fix: "give each group a port of its own" },
    DiscardCounter {
        name: "discard_check",
        property: "with damaged bytes",
        fix: "look for a faulty card or cable: ethtool -S INTERFACE",
    },
    DiscardCounter {
        name: "discard_malformed",
        property: "that are malformed",
        fix: "find their sender: tcpdump -n udp port PORT",
    },
    DiscardCounter {
        name: "forgeries_detected",
        property: "that were forged",
        fix: "find their sender: tcpdump -n udp port PORT",
    },
];

pub(super) fn check_datagrams(state: &HostState) -> Vec<CheckOutcome> {
    let Some(peer) = state.peer.running() else { return Vec::new() };
    let count = |name: &str| peer.counters.get(name).copied().unwrap_or(0);
    let (interface, port) = (&peer.status.interface, state.setup.port.to_string());
    let mut outcomes: Vec<CheckOutcome> = Vec::new();
    for DiscardCounter { name, property, fix } in DISCARD_COUNTERS {
        let count = count(name);
        if 0 < count {
            outcomes.push(CheckOutcome::warning(
                HostCheck::Datagrams,
                format!("the peer has discarded {count} datagrams {property}"),
                "their content does not arrive",
                fix.replace("INTERFACE", interface).replace("PORT", &port),
            ));
        }
    }
    if outcomes.is_empty() {
        let found = format!("the peer can use what arrives: {} datagrams so far", count("datagrams_in"));
        outcomes.push(CheckOutcome::well(HostCheck::Datagrams, found));
    }
    outcomes
}

pub(super) fn check_identity(state: &HostState) -> Vec<CheckOutcome> {
    let Some(peer) = state.peer.running() else { return Vec::new() };
    let mut outcomes = Vec::new();
    let is_twin = |row: &&PeerReport| row.has_duplicate_name && row.state == MemberState::Up;
    let twin = |row: &PeerReport| {
        let name =
            row.publisher.name.as_ref().map_or_else(|| row.publisher.to_string(), |name| name.as_str().to_owned());
        format!("{name} at {}", row.address)
    };
    let twins: Vec<String> = peer.peers.iter().filter(is_twin).map(twin).collect();
    if !twins.is_empty() {
        outcomes.push(CheckOutcome::warning(
            HostCheck::Identity,
            format!("live peers share a name: {}", twins.join(", ")),
            "reports do not distinguish them",
            "give each peer its own (key name); a copied data directory needs a server-id of its own, too".to_owned(),
        ));
    }
    let moved = peer.counters.get("discard_source").copied().unwrap_or(0);
    if 0 < moved {
        outcomes.push(CheckOutcome::warning(
            HostCheck::Identity,
            format!("{moved} datagrams carried the epoch of a peer and came from another address"),
            "they are discarded: their sender may be a copy of a peer, or behind a translated address",
            format!("find the sender: tcpdump -n udp port {}; peers must not be behind NAT", state.setup.port),
        ));
    }
    if outcomes.is_empty() {
        outcomes.push(CheckOutcome::well(HostCheck::Identity, "each peer has a name and an address of its own"));
    }
    outcomes
}
