//! Notifications of the kernel that an interface or an address has changed (rtnetlink).

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of a notification that are read. The rest is discarded: a list of the interfaces says more.
const NOTIFICATION_BYTES: usize = 64;

/// A socket on which the kernel reports changes of interfaces and addresses.
#[derive(Debug)]
pub(crate) struct InterfaceWatch {
    socket: OwnedFd,
}

impl InterfaceWatch {
    /// Begins to watch, before the interface is chosen, so that no change is missed. An event with `token` reports a
    /// change; the caller then calls [`InterfaceWatch::take`].
    pub(crate) fn open(registry: &Registry, token: Token) -> io::Result<InterfaceWatch> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        // Process id 0 lets the kernel choose the address of the socket.
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups.cast_unsigned()))?;
        registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
        Ok(InterfaceWatch { socket })
    }

    /// Takes all pending notifications and returns whether there were any.
    pub(crate) fn take(&self) -> bool {
        let mut is_changed = false;
        let mut bytes = [0; NOTIFICATION_BYTES];
        loop {
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                // After an overflow the kernel has lost notifications (ENOBUFS), and sends later ones again.
                Ok(_) | Err(Errno::ENOBUFS) => is_changed = true,
                Err(Errno::EINTR) => {}
                Err(_) => return is_changed,
            }
        }
    }
}
