//! UDP sockets for the raw rates, set up as well as a program can.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::bench::host;
use crate::bench::job::ReadyReport;
use crate::config::Config;
use crate::daemon::interface::{ChosenInterface, Family, choose};
use crate::terminal::exit::{CommandFailure, Exit};

/// Requested size of the receive buffer, in bytes. Without privileges the kernel grants `net.core.rmem_max`.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// Requested size of the send buffer, in bytes.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// Returns the interface that the configuration selects.
///
/// # Errors
/// There is no such interface.
pub fn interface(config: &Config) -> Result<ChosenInterface, CommandFailure> {
    choose(&config.interface, Family::of(config.group)).map_err(|error| CommandFailure::new(Exit::Unreachable, error))
}

/// Returns the report of a process whose raw sockets use this interface; it has neither a receive buffer nor segments.
pub fn ready_report(chosen: ChosenInterface) -> ReadyReport {
    ReadyReport {
        host: host::host_info(),
        interface: chosen.name,
        mtu: chosen.mtu,
        receive_buffer: None,
        datagram_bytes: None,
        segments: None,
    }
}

/// Opens a socket that receives the group at this port. Returns it with the receive buffer that the kernel granted, in
/// bytes.
///
/// # Errors
/// The kernel refuses a step.
pub fn receiver(config: &Config, chosen: &ChosenInterface, port: u16) -> Result<(Socket, u64), CommandFailure> {
    let open = || {
        let address = scoped(config.group, port, chosen.index);
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // Several receivers of a fan-out receive the same group.
        socket.set_reuse_address(true)?;
        let wanted = RECEIVE_BUFFER_BYTES.max(config.receive_buffer);
        setsockopt(&socket, sockopt::RcvBufForce, &wanted)
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &wanted))?;
        socket.bind(&address.into())?;
        match config.group {
            IpAddr::V4(group) => {
                socket.set_multicast_all_v4(false)?;
                socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(chosen.index))?;
            }
            IpAddr::V6(group) => {
                socket.set_multicast_all_v6(false)?;
                socket.join_multicast_v6(&group, chosen.index)?;
            }
        }
        // The kernel doubles the requested size, for its own bookkeeping.
        let granted = socket.recv_buffer_size()? / 2;
        Ok((socket, granted as u64))
    };
    open().map_err(|error| refused("receive raw datagrams", &error))
}

/// Opens a socket that sends to the group at this port.
///
/// # Errors
/// The kernel refuses a step.
pub fn sender(config: &Config, chosen: &ChosenInterface, port: u16) -> Result<Socket, CommandFailure> {
    let open = || {
        let group = scoped(config.group, port, chosen.index);
        let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
        let wanted = SEND_BUFFER_BYTES;
        setsockopt(&socket, sockopt::SndBufForce, &wanted)
            .or_else(|_| setsockopt(&socket, sockopt::SndBuf, &wanted))?;
        match chosen.address {
            IpAddr::V4(address) => {
                socket.set_multicast_if_v4(&address)?;
                socket.set_multicast_loop_v4(true)?;
                socket.set_multicast_ttl_v4(config.ttl.into())?;
            }
            IpAddr::V6(_) => {
                socket.set_multicast_if_v6(chosen.index)?;
                socket.set_multicast_loop_v6(true)?;
                socket.set_multicast_hops_v6(config.ttl.into())?;
            }
        }
        socket.bind(&scoped(chosen.address, 0, chosen.index).into())?;
        socket.connect(&group.into())?;
        Ok(socket)
    };
    open().map_err(|error| refused("send raw datagrams", &error))
}

/// Returns the port next to one.
pub fn next_port(port: u16) -> u16 {
    port.checked_add(1).unwrap_or(port - 1)
}

/// Returns a failure to do `what`.
pub fn refused(what: &str, error: &io::Error) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("cannot {what}: {error}"))
}

fn scoped(ip: IpAddr, port: u16, index: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, index)),
    }
}
