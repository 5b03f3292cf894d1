//! The socket for unicast copies of multicasts: it is bound to the interface's address and the group's port.
//!
//! A peer whose multicasts do not reach this host can send a copy of each to this host (key `peers`). Copies count as
//! multicasts: they do not arrive at the inbox, where the multicasts of a peer would seem to be missing.
//!
//! The path tests of other hosts arrive here, too, because they know this address in advance. Their answers leave from it.

use super::{SocketOpenError, SocketOptions, Sockets, bind_error, enable_ancillary_data, open};
use super::{prepare_sending, scoped_address, set_buffer_size};
use crate::daemon::batch::{self, RecvBatch};
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// An open socket for copies.
#[derive(Debug)]
pub(super) struct CopySocket {
    socket: UdpSocket,
    /// Last known value of the socket's drop counter.
    overruns: u32,
    /// True if the socket may be readable.
    is_readable: bool,
}

impl CopySocket {
    /// Opens the socket. Only one socket of a host gets the copies, so the port is not shared.
    pub(super) fn open(options: &SocketOptions<'_>) -> Result<CopySocket, SocketOpenError> {
        let SocketOptions { interface, port, .. } = *options;
        let address = scoped_address(interface.address, port, interface.index);
        let socket = open(address)?;
        set_buffer_size(&socket, true, options.receive_buffer)?;
        socket.bind(&address.into()).map_err(|error| bind_error(error, address, SocketOpenError::CopiesBusy))?;
        prepare_sending(&SockRef::from(&socket), options)?;
        enable_ancillary_data(&socket)?;
        // Kernels before 5.0 lack GRO, which only saves time.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        Ok(CopySocket { socket: UdpSocket::from_std(socket.into()), overruns: 0, is_readable: true })
    }

    /// Registers the socket for readability.
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    /// Ends the registration of the socket.
    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut self.socket)
    }

    /// Returns the socket, to wait for it.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Receives copies into `batch` behind the datagrams in it, if there can be any. Returns their number.
    pub(super) fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        if !self.is_readable {
            return Ok(0);
        }
        let was_full = batch.is_full();
        let received = batch.recv(self.socket.as_fd(), &mut self.overruns)?;
        self.is_readable = batch.is_full();
        batch.keep_full(was_full);
        batch.mark_copies(received);
        Ok(received)
    }

    /// Returns the number of drops that no received datagram has reported.
    pub(super) fn overrun(&mut self) -> io::Result<u32> {
        batch::overrun(self.socket.as_fd(), &mut self.overruns)
    }
}

impl Sockets {
    /// Records that the socket for copies may be readable. Copies are received with the multicasts.
    pub fn on_copies_readable(&mut self) {
        if let Some(copies) = &mut self.copies {
            copies.is_readable = true;
        }
    }

    /// Takes the reason why no copies can be received, if the socket could not be opened.
    pub(crate) fn take_copies_error(&mut self) -> Option<SocketOpenError> {
        self.copies_error.take()
    }

    /// Returns the addresses to which copies for these hosts are sent, without this host.
    pub(crate) fn copy_addresses(&self, hosts: &[IpAddr]) -> Vec<SocketAddr> {
        let others = hosts.iter().filter(|host| **host != self.inbox_address.ip());
        others.map(|host| scoped_address(*host, self.group_address.port(), self.index)).collect()
    }
}
