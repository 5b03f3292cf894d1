//! The network of the peer that is checked: that of the running peer, or the one that its configuration asks for.

use crate::bus::StatusReport;
use crate::config::{Config, DatagramSize, InterfaceSpec};
use std::net::IpAddr;

/// Network of a peer, as far as the checks need it.
#[derive(Clone, Debug)]
pub(crate) struct PeerSetup {
    pub(crate) group: IpAddr,
    /// UDP port of the group.
    pub(crate) port: u16,
    /// Hops of a multicast; 0 keeps it on this host.
    pub(crate) ttl: u8,
    pub(crate) interface: InterfaceSpec,
    /// Size limit of a datagram, in bytes of UDP payload; `None` if it follows the MTU.
    pub(crate) datagram_bytes: Option<usize>,
    /// Requested receive buffer of each socket, in bytes.
    pub(crate) receive_buffer: usize,
    /// Requested send buffer, in bytes.
    pub(crate) send_buffer: usize,
}

impl PeerSetup {
    /// Returns the network that a peer with this configuration uses.
    pub(crate) fn of_config(config: &Config) -> PeerSetup {
        PeerSetup {
            group: config.group,
            port: config.port,
            ttl: config.ttl,
            interface: config.interface.clone(),
            datagram_bytes: match config.datagram_size {
                DatagramSize::Auto => None,
                DatagramSize::Bytes(bytes) => Some(bytes),
            },
            receive_buffer: config.receive_buffer,
            send_buffer: config.send_buffer,
        }
    }

    /// Returns the network of a running peer.
    pub(crate) fn of_peer(status: &StatusReport) -> PeerSetup {
        PeerSetup {
            group: status.group,
            port: status.port,
            ttl: status.ttl,
            interface: InterfaceSpec::Name(status.interface.clone()),
            datagram_bytes: Some(status.datagram_bytes),
            receive_buffer: status.receive_buffer_wanted,
            send_buffer: status.send_buffer_wanted,
        }
    }
}
