//! The checks, as a state machine: observations in, changes of findings out. It reads no clock and asks no system.

mod clock_skew;
mod kernel_drops;
mod keys;
mod multicast;
mod path_mtu;
mod requests;
mod unicast;

pub(crate) use self::keys::{ForgedPeer, UntrustedPeer};
pub(crate) use self::multicast::MulticastCounts;
pub(crate) use self::requests::RequestTotals;

use self::clock_skew::check_skew;
use self::kernel_drops::KernelDrops;
use self::keys::{
    InterestForgeries, certificate_finding, check_identity, check_open, check_origin, check_permissions, check_trust,
    is_copied, is_impersonated,
};
use self::multicast::{ReturnedMulticasts, check_multicast};
use self::path_mtu::check_mtu;
use self::requests::UnansweredRequests;
use self::unicast::check_unicast;
use super::finding::{Check, Finding, Severity};
use crate::daemon::beacon::ForeignPeer;
use crate::daemon::event_request::ServerIdConflict;
use crate::daemon::interface::InterfaceState;
use crate::daemon::multicast::BufferGrant;
use crate::daemon::self_test::send_remedy;
use crate::daemon::transmit_queue::RefusedSend;
use crate::message::Epoch;
use crate::proto::effect::DeniedPublication;
use crate::proto::peer::PathLimit;
use crate::proto::stats::{MemberRow, MemberState};
use crate::time::{ClockReading, Instant, WallTime};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Time after the start within which another peer is usually heard: several heartbeats.
const DISCOVERY_TIME: Duration = Duration::from_secs(10);
/// Time for which a check that observes single events keeps its finding after the last event.
const EVENT_TIME: Duration = Duration::from_secs(30);
/// Minimum step of the wall clock against the monotonic one that is a finding.
const CLOCK_STEP_MIN: Duration = Duration::from_secs(1);
/// Maximum number of peers that a finding names.
const NAMES_MAX: usize = 3;

/// The network of the peer.
#[derive(Clone, Debug)]
pub(crate) struct NetworkSetup {
    /// Name of the peer.
    pub(crate) name: String,
    /// Name of the interface.
    pub(crate) interface: String,
    /// True if the interface leads to this host only.
    pub(crate) is_loopback: bool,
    /// Address of the interface from which datagrams leave.
    pub(crate) address: IpAddr,
    /// The group with its port.
    pub(crate) group: SocketAddr,
    /// Hops of a multicast; 0 keeps it on this host.
    pub(crate) ttl: u8,
    /// True if other hosts get unicast copies instead of multicasts (key `peers`).
    pub(crate) has_copies: bool,
    /// True if datagrams are neither sealed nor authenticated.
    pub(crate) is_open: bool,
    /// Time for which this peer requests a missing datagram.
    pub(crate) reliability: Duration,
}

/// One sample of what the checks judge.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub(crate) interface: InterfaceState,
    /// The last datagram that the system has refused since the sample before.
    pub(crate) refused: Option<RefusedSend>,
    /// The other peers, as in `show peers`.
    pub(crate) peers: Vec<MemberRow>,
    /// Peers of other groups, in the order in which their beacons were first heard.
    pub(crate) foreign_peers: Vec<ForeignPeer>,
    pub(crate) multicasts: MulticastCounts,
    /// Totals of the datagrams of each publisher that were missing.
    pub(crate) requests: Vec<(Epoch, RequestTotals)>,
    /// Number of datagrams that the kernel has dropped at the sockets of this peer since its start.
    pub(crate) kernel_drops: u64,
    /// The receive buffer of the group socket.
    pub(crate) receive_buffer: BufferGrant,
    /// The peer that holds the server id of this one.
    pub(crate) server_id_conflict: Option<ServerIdConflict>,
    /// The peer that was last refused since the sample before.
    pub(crate) untrusted: Option<UntrustedPeer>,
    /// The last message that was denied since the sample before.
    pub(crate) denied: Option<DeniedPublication>,
    /// The peer in whose name another member has published last since the sample before.
    pub(crate) forged: Option<ForgedPeer>,
    /// Number of times that another peer had forged subscriptions of this one.
    pub(crate) interest_forgeries: u64,
    /// Reason why others refuse the certificate of this host, and the remedy after `; `.
    pub(crate) certificate_problem: Option<String>,
    /// Size of datagrams that do not arrive at some peers.
    pub(crate) path_limit: Option<PathLimit>,
    /// Problem of the link to other sites, as a sentence without a full stop.
    pub(crate) link_problem: Option<String>,
}

/// Change of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HealthChange {
    /// A check has found something new.
    Raised(Finding),
    /// A check finds nothing any more; the text says what is well again.
    Cleared(Check, String),
}

/// A finding and the time at which it was raised.
#[derive(Clone, Debug)]
pub(crate) struct ActiveFinding {
    pub(crate) finding: Finding,
    pub(crate) since: WallTime,
}

/// The findings about one peer's host and network.
#[derive(Debug)]
pub(crate) struct HealthMonitor {
    network: NetworkSetup,
    started: Instant,
    findings: BTreeMap<Check, ActiveFinding>,
    /// True once another peer was heard.
    has_heard_peer: bool,
    /// Clocks of the sample before.
    last: ClockReading,
    /// The last step of the wall clock: its time, its span, and whether it went back.
    clock_step: Option<(Instant, Duration, bool)>,
    /// The last datagram that the system refused, and its time.
    refused: Option<(Instant, RefusedSend)>,
    /// The last peer that was refused, and the time.
    untrusted: Option<(Instant, UntrustedPeer)>,
    /// The last message that was denied, and the time.
    denied: Option<(Instant, DeniedPublication)>,
    /// The last peer in whose name another member has published, and the time.
    forged: Option<(Instant, ForgedPeer)>,
    interest_forgeries: InterestForgeries,
    returned: ReturnedMulticasts,
    requests: UnansweredRequests,
    kernel_drops: KernelDrops,
}

impl HealthMonitor {
    /// Creates a monitor of a peer that starts now.
    pub(crate) fn new(network: NetworkSetup, now: ClockReading) -> HealthMonitor {
        HealthMonitor {
            network,
            started: now.instant,
            findings: BTreeMap::new(),
            has_heard_peer: false,
            last: now,
            clock_step: None,
            refused: None,
            untrusted: None,
            denied: None,
            forged: None,
            interest_forgeries: InterestForgeries::default(),
            returned: ReturnedMulticasts::new(now.instant),
            requests: UnansweredRequests::default(),
            kernel_drops: KernelDrops::default(),
        }
    }

    /// Returns the network of the peer.
    pub(crate) fn network(&self) -> &NetworkSetup {
        &self.network
    }

    /// Records the interface and the address that the peer uses from now on.
    pub(crate) fn set_interface(&mut self, name: &str, address: IpAddr) {
        name.clone_into(&mut self.network.interface);
        self.network.address = address;
    }

    /// Returns the present findings, in the order of the checks.
    pub(crate) fn findings(&self) -> impl Iterator<Item = &ActiveFinding> {
        self.findings.values()
    }

    /// Returns the severity of the worst finding; `None` if there is none.
    pub(crate) fn worst(&self) -> Option<Severity> {
        self.findings.values().map(|active| active.finding.severity).max()
    }

    /// Judges a sample and returns the changes since the sample before.
    pub(crate) fn update(&mut self, now: ClockReading, seen: &Observation) -> Vec<HealthChange> {
        self.has_heard_peer |= seen.peers.iter().any(is_up);
        self.observe_clock(now);
        self.returned.observe(now.instant, seen.multicasts);
        self.requests.observe(now.instant, &seen.requests);
        self.kernel_drops.observe(now.instant, seen.kernel_drops);
        self.interest_forgeries.observe(now.instant, seen.interest_forgeries);
        let is_usable = seen.interface == InterfaceState::Usable;
        // An unusable interface explains refused datagrams, also those between its last sample and this one.
        let was_usable = !self.findings.contains_key(&Check::Interface);
        self.refused = seen.refused.map(|refused| (now.instant, refused)).or(self.refused);
        self.refused = self.refused.filter(|_| is_usable && was_usable);
        self.untrusted = seen.untrusted.clone().map(|peer| (now.instant, peer)).or(self.untrusted.take());
        self.denied = seen.denied.clone().map(|denied| (now.instant, denied)).or(self.denied.take());
        self.forged = seen.forged.clone().map(|peer| (now.instant, peer)).or(self.forged.take());
        // It explains also what the next four checks would find.
        let explained = |finding: Option<Finding>| finding.filter(|_| is_usable);
        let found = [
            (Check::Interface, self.check_interface(&seen.interface)),
            (Check::Sending, explained(self.check_sending(now.instant))),
            (Check::Multicast, explained(check_multicast(&self.network, now.instant, &self.returned, &seen.peers))),
            (Check::Unicast, explained(check_unicast(&self.network, &seen.peers))),
            (Check::Requests, explained(self.requests.check(&self.network, now.instant, &seen.peers))),
            (Check::Peers, explained(self.check_presence(now.instant))),
            (Check::KernelDrops, self.kernel_drops.check(now.instant, &seen.receive_buffer)),
            (Check::Clock, self.check_clock(now.instant)),
            (Check::Skew, check_skew(&self.network, &seen.peers)),
            (Check::Names, check_names(&self.network, &seen.peers)),
            (Check::Identity, check_identity(&self.network, &seen.peers)),
            (Check::ServerId, seen.server_id_conflict.as_ref().map(server_id_finding)),
            (Check::Certificate, seen.certificate_problem.as_deref().map(certificate_finding)),
            (Check::Trust, check_trust(now.instant, self.untrusted.as_ref())),
            (Check::Permissions, check_permissions(now.instant, self.denied.as_ref())),
            (Check::Origin, check_origin(now.instant, self.forged.as_ref())),
            (Check::Interest, self.interest_forgeries.check(now.instant)),
            (Check::Open, check_open(&self.network)),
            (Check::Groups, self.check_groups(&seen.foreign_peers)),
            (Check::Mtu, seen.path_limit.as_ref().map(check_mtu)),
            (Check::Link, seen.link_problem.clone().map(link_finding)),
        ];
        found.into_iter().filter_map(|(check, finding)| self.replace(now.wall, check, finding)).collect()
    }

    /// Replaces the finding of a check. Returns the change, unless only the words of a finding differ.
    fn replace(&mut self, at: WallTime, check: Check, finding: Option<Finding>) -> Option<HealthChange> {
        let Some(finding) = finding else {
            self.findings.remove(&check)?;
            return Some(HealthChange::Cleared(check, self.recovery_text(check)));
        };
        match self.findings.get_mut(&check) {
            Some(active) if active.finding.severity == finding.severity => {
                active.finding = finding;
                None
            }
            _ => {
                self.findings.insert(check, ActiveFinding { finding: finding.clone(), since: at });
                Some(HealthChange::Raised(finding))
            }
        }
    }

    fn recovery_text(&self, check: Check) -> String {
        let NetworkSetup { interface, address, .. } = &self.network;
        match check {
            Check::Interface => format!("{interface} is back, with the address {address}"),
            Check::Sending => "the system sends all datagrams again".to_owned(),
            Check::Multicast => "the multicasts of the other peers arrive again".to_owned(),
            Check::Unicast => "the unicasts of the other peers arrive again".to_owned(),
            Check::Requests => "no requests for missing datagrams stay unanswered any more".to_owned(),
            Check::Peers => "another peer is heard".to_owned(),
            Check::KernelDrops => "the kernel drops no datagrams any more".to_owned(),
            Check::Clock => "the clock of this host has made no further step".to_owned(),
            Check::Skew => "the clocks of the other peers agree with that of this host again".to_owned(),
            Check::Names => "each peer has a name of its own again".to_owned(),
            Check::ServerId => "no other peer has the server id of this peer any more".to_owned(),
            Check::Identity => "the keys of each host are its own again".to_owned(),
            Check::Certificate => "the certificate of this host is valid again".to_owned(),
            Check::Trust => "no peer was refused for a while".to_owned(),
            Check::Permissions => "no message was denied for a while".to_owned(),
            Check::Origin => "no data in the name of another peer was found for a while".to_owned(),
            Check::Interest => "no forged subscriptions in the name of this peer were found for a while".to_owned(),
            Check::Open => "other hosts cannot reach this open peer any more".to_owned(),
            Check::Groups => "no peer of another group is heard on this LAN any more".to_owned(),
            Check::Mtu => "datagrams of all sizes arrive".to_owned(),
            Check::Link => "the link is connected with the cluster, and has no fault".to_owned(),
        }
    }

    fn check_interface(&self, state: &InterfaceState) -> Option<Finding> {
        let NetworkSetup { interface, address, .. } = &self.network;
        let (found, fix) = match state {
            InterfaceState::Usable => return None,
            InterfaceState::Absent => (
                format!("{interface} is gone"),
                "look at: ip -brief link; the peer continues by itself once the interface is back".to_owned(),
            ),
            InterfaceState::Down => (format!("{interface} is down"), format!("ip link set {interface} up")),
            InterfaceState::NoCarrier => (
                format!("{interface} has no carrier"),
                "check the cable, the switch port, or the radio network".to_owned(),
            ),
            InterfaceState::AddressGone(others) => {
                let others: Vec<String> = others.iter().map(ToString::to_string).collect();
                match others.is_empty() {
                    true => (
                        format!("{interface} has no address; it had {address}"),
                        format!("look at the DHCP client, or: ip addr add ADDRESS/BITS dev {interface}"),
                    ),
                    // The peer follows another address by itself, unless its configuration excludes that.
                    false => (
                        format!("{interface} has the address {} instead of {address}", others.join(", ")),
                        format!(
                            "ip addr add {address}/BITS dev {interface}, or set the key 'interface' to {interface}: \
                             a peer that is given a name follows the address"
                        ),
                    ),
                }
            }
        };
        let effect = "this peer sends and receives nothing";
        Some(Finding { check: Check::Interface, severity: Severity::Broken, found, effect, fix })
    }

    fn check_sending(&self, now: Instant) -> Option<Finding> {
        let (_, refused) = self.refused.filter(|(at, _)| now.since(*at) < EVENT_TIME)?;
        let NetworkSetup { interface, group, .. } = &self.network;
        let what = match refused.to {
            None => format!("multicasts to {group} on {interface}"),
            Some(to) => format!("unicasts to {to}"),
        };
        let error = std::io::Error::from_raw_os_error(refused.errno);
        Some(Finding {
            check: Check::Sending,
            severity: Severity::Broken,
            found: format!("the system refuses to send {what}: {error}"),
            effect: "other peers miss what this peer publishes, or cannot get it repaired",
            fix: send_remedy(Some(refused.errno), refused.to.unwrap_or(*group), interface),
        })
    }

    fn check_presence(&self, now: Instant) -> Option<Finding> {
        let NetworkSetup { interface, is_loopback, group, ttl, has_copies, .. } = &self.network;
        if self.has_heard_peer || *is_loopback || now.since(self.started) < DISCOVERY_TIME {
            return None;
        }
        let fix = match ttl {
            _ if *has_copies => format!(
                "start a peer on a host of 'peers' that names this host in its own 'peers'; if one runs there, a firewall \
                 drops UDP port {}",
                group.port()
            ),
            0 => "ttl: 0 keeps multicasts on this host; set ttl: 1 for a LAN".to_owned(),
            _ => format!(
                "start a peer on another host with the same group and port; if one runs there, a firewall or a switch drops \
                 UDP port {} or the group {}: seqcast doctor --with HOST tests the path",
                group.port(),
                group.ip()
            ),
        };
        Some(Finding {
            check: Check::Peers,
            severity: Severity::Notice,
            found: format!("no other peer was heard on {interface} in the group {group}"),
            effect: "messages reach programs of this host only",
            fix,
        })
    }

    fn check_groups(&self, foreign: &[ForeignPeer]) -> Option<Finding> {
        let (own_group, own_port) = (self.network.group.ip(), self.network.group.port());
        let ForeignPeer { address, name, group, port, .. } = foreign.first()?;
        let mut found = format!("a peer {name} ({address}) of group {group} port {port} is on this LAN");
        if 1 < foreign.len() {
            found += &format!(", and {} more of other groups", foreign.len() - 1);
        }
        let (here, there) = if *group == own_group {
            (format!("port: {port}"), format!("port: {own_port}"))
        } else if *port == own_port {
            (format!("group: {group}"), format!("group: {own_group}"))
        } else {
            (format!("group: {group} and port: {port}"), format!("group: {own_group} and port: {own_port}"))
        };
        Some(Finding {
            check: Check::Groups,
            severity: Severity::Notice,
            found,
            effect: "the two do not hear each other",
            fix: format!("if they belong together, set {here} here, or {there} there; if not, set beacon: off"),
        })
    }

    /// Compares the progress of the wall clock with that of the monotonic clock since the sample before.
    fn observe_clock(&mut self, now: ClockReading) {
        let elapsed = now.instant.since(self.last.instant);
        let expected = self.last.wall.as_nanos().saturating_add(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
        let step = Duration::from_nanos(now.wall.as_nanos().abs_diff(expected));
        if CLOCK_STEP_MIN <= step {
            self.clock_step = Some((now.instant, step, now.wall.as_nanos() < expected));
        }
        self.last = now;
    }

    fn check_clock(&self, now: Instant) -> Option<Finding> {
        let (_, step, is_back) = self.clock_step.filter(|(at, ..)| now.since(*at) < EVENT_TIME)?;
        let (direction, effect) = match is_back {
            true => ("back", "the stamps of events stand still until the clock has reached its former time"),
            false => ("forward", "the stamps of messages and events jump; sequence numbers begin a new time frame"),
        };
        Some(Finding {
            check: Check::Clock,
            severity: Severity::Warning,
            found: format!("the clock of this host went {direction} by {}", span_text(step)),
            effect,
            fix: "let a time service slew the clock instead of setting it; look at: timedatectl timesync-status"
                .to_owned(),
        })
    }
}

/// Returns a span of time in one unit, rounded to seconds.
fn span_text(span: Duration) -> String {
    match (span + Duration::from_millis(500)).as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// Returns whether the peer is heard.
fn is_up(peer: &MemberRow) -> bool {
    peer.state == MemberState::Up
}

fn check_names(network: &NetworkSetup, peers: &[MemberRow]) -> Option<Finding> {
    let duplicates = peers.iter().filter(|peer| peer.duplicate_name && is_up(peer));
    let duplicates: Vec<&MemberRow> =
        duplicates.filter(|peer| !is_copied(network, peers, peer) && !is_impersonated(peers, peer)).collect();
    (!duplicates.is_empty()).then(|| Finding {
        check: Check::Names,
        severity: Severity::Warning,
        found: format!("two live peers have the same name: {}", named_hosts(&duplicates)),
        effect: "reports do not distinguish them",
        fix: "give each peer its own (key 'name')".to_owned(),
    })
}

fn server_id_finding(conflict: &ServerIdConflict) -> Finding {
    Finding {
        check: Check::ServerId,
        severity: Severity::Warning,
        found: conflict.to_string(),
        effect: "no events are registered here",
        fix: ServerIdConflict::FIX.to_owned(),
    }
}

fn link_finding(found: String) -> Finding {
    Finding {
        check: Check::Link,
        severity: Severity::Warning,
        found,
        effect: "messages of other sites may not arrive here, or those of this site there",
        fix: "see 'seqcast link status' and docs/links.md".to_owned(),
    }
}

/// Returns the first names, and the number of further ones.
fn names(peers: &[&MemberRow]) -> String {
    list(peers, |peer| peer.publisher.to_string())
}

/// Returns the first names, each with the address of its host, and the number of further ones.
fn named_hosts(peers: &[&MemberRow]) -> String {
    list(peers, |peer| format!("{} on the host {}", peer.publisher, peer.address.ip()))
}

fn list<T>(peers: &[T], text: impl Fn(&T) -> String) -> String {
    let first: Vec<String> = peers.iter().take(NAMES_MAX).map(text).collect();
    match peers.len().saturating_sub(NAMES_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests;
