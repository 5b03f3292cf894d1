//! A finding about this host or its network.

use std::fmt;

/// Subject of a finding. A peer has at most one finding for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    /// The peer's network interface and its address.
    Interface,
    /// Datagrams that the system refuses to send.
    Sending,
    /// Multicasts of other peers.
    Multicast,
    /// Unicasts of other peers.
    Unicast,
    /// Requests for missing datagrams of other peers.
    Requests,
    /// Presence of other peers.
    Peers,
    /// Datagrams that the kernel of this host drops.
    KernelDrops,
    /// The wall clock of this host.
    Clock,
    /// The wall clocks of other peers.
    Skew,
    /// Names of peers.
    Names,
    /// The server id under which this peer registers events.
    ServerId,
    /// Keys that several hosts have.
    Identity,
    /// The certificate of this host.
    Certificate,
    /// Peers that this one refuses.
    Trust,
    /// Messages that certificates do not permit.
    Permissions,
    /// Data in the name of other peers.
    Origin,
    /// Forged subscriptions in the name of this peer.
    Interest,
    /// Protection of the datagrams.
    Open,
    /// Peers of other groups on this LAN.
    Groups,
    /// Size of the datagrams that arrive at other peers.
    Mtu,
    /// The link to other sites.
    Link,
}

impl Check {
    /// Returns the name in JSON, in tables and in the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Check::Interface => "interface",
            Check::Sending => "sending",
            Check::Multicast => "multicast",
            Check::Unicast => "unicast",
            Check::Requests => "requests",
            Check::Peers => "peers",
            Check::KernelDrops => "kernel_drops",
            Check::Clock => "clock",
            Check::Skew => "skew",
            Check::Names => "names",
            Check::ServerId => "server_id",
            Check::Identity => "identity",
            Check::Certificate => "certificate",
            Check::Trust => "trust",
            Check::Permissions => "permissions",
            Check::Origin => "origin",
            Check::Interest => "interest",
            Check::Open => "open",
            Check::Groups => "groups",
            Check::Mtu => "mtu",
            Check::Link => "link",
        }
    }
}

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Normal for the first peer of a LAN, or intended; worth a look otherwise.
    Notice,
    /// The peer works, with a defect.
    Warning,
    /// The peer cannot reach others, or cannot be reached.
    Broken,
}

impl Severity {
    /// Returns the name in JSON and in tables.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Broken => "broken",
        }
    }
}

/// A defect that a check found, with its consequence and its remedy. `C` names the checks of a running peer, or those of
/// another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding<C = Check> {
    pub(crate) check: C,
    pub(crate) severity: Severity,
    /// The defect, as a sentence without a full stop.
    pub(crate) found: String,
    /// Consequence for the messages.
    pub(crate) effect: &'static str,
    /// Remedy: a command or a change.
    pub(crate) fix: String,
}

impl<C> fmt::Display for Finding<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.found, self.effect, self.fix)
    }
}
