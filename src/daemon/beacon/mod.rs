//! Beacons: this peer announces its group to the peers of other groups on the LAN, and hears theirs. A wrong group or
//! port on one host is thus noticed on both sides.
//!
//! Beacons only inform: without the socket, or on an interface that carries none, the peer works as usual.

mod exchange;
mod socket;

pub(crate) use self::exchange::ForeignPeer;

use self::exchange::BeaconExchange;
use self::socket::{BeaconSocket, discovery_address};
use crate::config::Config;
use crate::daemon::interface::ChosenInterface;
use crate::message::{Epoch, PeerName};
use crate::time::Instant;
use crate::wire::Beacon;
use std::net::IpAddr;

/// Maximum number of datagrams that are received at once. Others wait in the receive buffer, or are dropped there.
const RECEIVED_MAX: usize = 64;

/// The beacons of a peer and of the peers of other groups.
#[derive(Debug)]
pub(crate) struct Beacons {
    socket: BeaconSocket,
    exchange: BeaconExchange,
    name: PeerName,
    group: IpAddr,
    port: u16,
    /// Number of beacons sent.
    sent: u64,
    /// Number of beacons of other peers.
    received: u64,
    /// Number of received datagrams that are no beacon.
    discarded: u64,
}

impl Beacons {
    /// Opens the socket for beacons. Returns `None` if beacons are switched off, if the interface leads to this host
    /// only, or if the socket cannot be opened, which is logged.
    pub(crate) fn open(config: &Config, interface: &ChosenInterface, now: Instant) -> Option<Beacons> {
        if !config.beacon || interface.loopback {
            return None;
        }
        let (group, port) = (config.group, config.port);
        let to = discovery_address(group, interface.index);
        match BeaconSocket::open(to, interface, config.ttl) {
            Ok(socket) => Some(Beacons {
                socket,
                exchange: BeaconExchange::new(group, port, now),
                name: config.name.clone(),
                group,
                port,
                sent: 0,
                received: 0,
                discarded: 0,
            }),
            Err(error) => {
                tracing::warn!(
                    %error,
                    address = %to,
                    "no socket for beacons: peers of other groups on this LAN are not noticed; beacon: off does without"
                );
                None
            }
        }
    }

    /// Moves to an interface with another address or another number. If the socket cannot be opened there, which is
    /// logged, the former one stays.
    pub(crate) fn move_to(&mut self, interface: &ChosenInterface, ttl: u8) {
        match BeaconSocket::open(discovery_address(self.group, interface.index), interface, ttl) {
            Ok(socket) => self.socket = socket,
            Err(error) => tracing::warn!(%error, "no new socket for beacons"),
        }
    }

    /// Receives beacons, and sends one if it is due. `epoch` is the present one of this peer.
    pub(crate) fn exchange(&mut self, now: Instant, epoch: Epoch) {
        for _ in 0..RECEIVED_MAX {
            match self.socket.recv() {
                Ok(Some((from, bytes))) => match Beacon::decode(&bytes) {
                    Ok(beacon) if beacon.epoch == epoch => {}
                    Ok(beacon) => {
                        self.received += 1;
                        self.exchange.on_beacon(now, from, beacon);
                    }
                    Err(_) => self.discarded += 1,
                },
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "beacons not received");
                    break;
                }
            }
        }
        self.exchange.expire(now);
        if self.exchange.poll_send(now) {
            let beacon = Beacon { epoch, name: self.name.clone(), group: self.group, port: self.port };
            match self.socket.send(&beacon) {
                Ok(()) => self.sent += 1,
                Err(error) => tracing::debug!(%error, "beacon not sent"),
            }
        }
    }

    /// Returns the peers of other groups, in the order in which they were first heard.
    pub(crate) fn foreign_peers(&self) -> &[ForeignPeer] {
        self.exchange.peers()
    }

    /// Returns the numbers of beacons sent, of beacons received from other peers, and of received datagrams that are no
    /// beacon.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.sent, self.received, self.discarded]
    }
}
