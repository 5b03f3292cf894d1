//! Reasons why the sockets of a peer cannot be opened.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Reason why the sockets could not be opened. The text names the fix.
#[derive(Debug)]
pub enum SocketOpenError {
    /// The group's address is no multicast address.
    NotMulticast(IpAddr),
    /// The group's port is 0.
    NoPort,
    /// The group and the interface's address are of two families.
    OtherFamily {
        /// The group.
        group: IpAddr,
        /// The interface's address.
        address: IpAddr,
    },
    /// The kernel has no IPv6.
    NoIpv6,
    /// Another program holds the group's port and does not share it.
    GroupBusy(SocketAddr),
    /// Another program, perhaps another peer, holds the inbox's port.
    InboxBusy(SocketAddr),
    /// Another program, usually another peer of this host, receives the unicast copies of multicasts.
    CopiesBusy(SocketAddr),
    /// The user may not use the port.
    NoPermission(SocketAddr),
    /// The interface does not have the address any more, or not yet.
    NoSuchAddress(SocketAddr),
    /// The host has reached the maximum number of group memberships of one socket, or of the kernel.
    MembershipsMax,
    /// The interface refused the membership.
    Join {
        /// The group.
        group: IpAddr,
        /// The interface.
        interface: String,
        /// Error that the kernel returned.
        error: io::Error,
    },
    /// The kernel refused another operation.
    System {
        /// Operation that failed.
        step: &'static str,
        /// Error that the kernel returned.
        error: io::Error,
    },
}

impl fmt::Display for SocketOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketOpenError::NotMulticast(group) => write!(
                f,
                "the group {group} is no multicast address; use one of 239.0.0.0 to 239.255.255.255, or ff15::/16 for IPv6"
            ),
            SocketOpenError::NoPort => write!(f, "the group's port is 0; use one from 1024 to 65535"),
            SocketOpenError::OtherFamily { group, address } => {
                write!(f, "the group {group} and the interface's address {address} are not both IPv4 or both IPv6")
            }
            SocketOpenError::NoIpv6 => {
                write!(f, "this kernel has no IPv6; use an IPv4 group such as 239.255.75.0, or boot with IPv6")
            }
            SocketOpenError::GroupBusy(address) => write!(
                f,
                "the group's port is busy: {address} is held by a program that does not share it; find it \
                 (ss -ulnp 'sport = {}') or choose another port",
                address.port()
            ),
            SocketOpenError::InboxBusy(address) => write!(
                f,
                "the inbox's port is busy: {address} is held by another program, perhaps another peer; find it \
                 (ss -ulnp 'sport = {}'), or let the kernel choose with inbox port 0",
                address.port()
            ),
            SocketOpenError::CopiesBusy(address) => write!(
                f,
                "another peer of this host receives the unicast copies at {address} already; attach programs to that peer"
            ),
            SocketOpenError::NoPermission(address) => {
                write!(f, "no permission to use {address}; choose a port from 1024 to 65535")
            }
            SocketOpenError::NoSuchAddress(address) => {
                write!(f, "the address {} is not usable on this host now; look at: ip addr", address.ip())
            }
            SocketOpenError::MembershipsMax => write!(
                f,
                "this host has joined as many multicast groups as it may; raise the limit: \
                 sysctl -w net.ipv4.igmp_max_memberships=100"
            ),
            SocketOpenError::Join { group, interface, error } => {
                write!(f, "cannot join {group} on {interface}: {error}; look at: ip link show {interface}")
            }
            SocketOpenError::System { step, error } => write!(f, "cannot {step}: {error}"),
        }
    }
}

impl std::error::Error for SocketOpenError {}
