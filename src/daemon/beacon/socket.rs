//! The socket for beacons. It is not watched for input: the peer looks at it once a second, so no number of beacons can
//! wake the engine.

use crate::daemon::interface::ChosenInterface;
use crate::daemon::multicast::{join, scoped_address, set_multicast_interface};
use crate::wire::Beacon;
use bytes::Bytes;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Group of beacons of peers whose group is IPv4; it ends with "SB".
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 83, 66);
/// Group of beacons of peers whose group is IPv6.
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x5342);
/// UDP port of beacons.
const PORT: u16 = 7499;

/// Returns the address to which the peers of a group send beacons, on the interface with this index.
pub(super) fn discovery_address(group: IpAddr, index: u32) -> SocketAddr {
    let discovery = match group {
        IpAddr::V4(_) => GROUP_V4.into(),
        IpAddr::V6(_) => GROUP_V6.into(),
    };
    scoped_address(discovery, PORT, index)
}

/// An open socket that sends and receives beacons on one interface.
#[derive(Debug)]
pub(super) struct BeaconSocket {
    socket: UdpSocket,
    to: SocketAddr,
}

impl BeaconSocket {
    /// Opens the socket for beacons to an address.
    ///
    /// # Errors
    /// The system refuses the socket, its port, or the membership.
    pub(super) fn open(to: SocketAddr, interface: &ChosenInterface, ttl: u8) -> io::Result<BeaconSocket> {
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        if to.is_ipv6() {
            socket.set_only_v6(true)?;
            socket.set_multicast_all_v6(false)?;
            socket.set_multicast_if_v6(interface.index)?;
            socket.set_multicast_hops_v6(ttl.into())?;
        } else {
            socket.set_multicast_all_v4(false)?;
            set_multicast_interface(&socket, interface.index)?;
            socket.set_multicast_ttl_v4(ttl.into())?;
        }
        // A socket that is bound to a multicast address sends from the address of its interface.
        socket.bind(&to.into())?;
        join(&SockRef::from(&socket), to.ip(), interface.index)?;
        Ok(BeaconSocket { socket: socket.into(), to })
    }

    /// Sends a beacon.
    ///
    /// # Errors
    /// The system refuses it.
    pub(super) fn send(&self, beacon: &Beacon) -> io::Result<()> {
        self.socket.send_to(&beacon.encode(), self.to).map(|_| ())
    }

    /// Receives a datagram without waiting, with the IP address of its sender; `None` if none is left. Of one longer
    /// than a beacon, the first bytes are returned, which are no beacon.
    ///
    /// # Errors
    /// The system reports an error of the socket.
    pub(super) fn recv(&self) -> io::Result<Option<(IpAddr, Bytes)>> {
        let mut buffer = [0; Beacon::BYTES_MAX + 1];
        match self.socket.recv_from(&mut buffer) {
            Ok((bytes, from)) => Ok(Some((from.ip(), Bytes::copy_from_slice(&buffer[..bytes])))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}
