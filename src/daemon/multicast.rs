//! The sockets of a peer: the group socket receives multicasts, and the inbox receives unicasts and sends all
//! datagrams. A third one receives copies of multicasts that others send by unicast.
//!
//! The group socket is bound to the group's own address, so that two groups on one port do not mix. Other peers on this
//! host share it. The inbox is bound to the interface's address and to a port of its own. Every datagram leaves from
//! it, so the source address of a multicast is the unicast address of its sender.

mod copy_socket;
mod own_filter;
mod socket_open_error;

pub use socket_open_error::SocketOpenError;

use self::copy_socket::CopySocket;
use crate::daemon::batch::{self, OutgoingDatagram, RecvBatch};
use crate::daemon::interface::ChosenInterface;
use crate::proto::effect::Path;
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Options for opening the sockets.
#[derive(Clone, Debug)]
pub struct SocketOptions<'a> {
    /// The multicast group; of the same family as the interface's address.
    pub group: IpAddr,
    /// Its UDP port; not 0.
    pub port: u16,
    /// Interface on which the group is joined and from which datagrams are sent.
    pub interface: &'a ChosenInterface,
    /// The UDP port of the inbox; 0 lets the kernel choose one.
    pub inbox_port: u16,
    /// Maximum number of routers that a multicast may cross, plus one; 1 stays on the LAN, 0 on this host.
    pub ttl: u8,
    /// Requested receive buffer of each socket, in bytes.
    pub receive_buffer: usize,
    /// Requested send buffer, in bytes.
    pub send_buffer: usize,
}

/// Requested and granted size of a socket buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferGrant {
    /// True for the receive buffer, false for the send buffer.
    pub receive: bool,
    /// Bytes requested.
    pub wanted: usize,
    /// Bytes granted: half of the size that the kernel reports, which includes its own bookkeeping.
    pub granted: usize,
}

impl BufferGrant {
    /// Returns whether the kernel granted less than requested.
    pub fn is_short(&self) -> bool {
        self.granted < self.wanted
    }
}

impl fmt::Display for BufferGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, limit) = if self.receive { ("receive", "rmem_max") } else { ("send", "wmem_max") };
        write!(f, "{name} buffer: {} bytes wanted, {} granted", self.wanted, self.granted)?;
        if self.is_short() {
            write!(f, "; to grant it: sysctl -w net.core.{limit}={}", self.wanted)?;
        }
        Ok(())
    }
}

/// The open sockets of one peer.
#[derive(Debug)]
pub struct Sockets {
    group: UdpSocket,
    inbox: UdpSocket,
    /// Socket for unicast copies of multicasts; `None` on the loopback interface, or if it could not be opened.
    copies: Option<CopySocket>,
    copies_error: Option<SocketOpenError>,
    group_address: SocketAddr,
    inbox_address: SocketAddr,
    interface: String,
    index: u32,
    ttl: u8,
    receive_granted: BufferGrant,
    send_granted: BufferGrant,
    group_overruns: u32,
    inbox_overruns: u32,
    /// True if several datagrams may leave as one buffer, which the kernel or the card divides (GSO).
    segments: bool,
    /// True if several datagrams may arrive as one buffer (GRO).
    coalesces: bool,
    /// True if the kernel cuts this peer's own data to its headers before it queues them.
    truncates_own_data: bool,
}

impl Sockets {
    /// Opens both sockets and joins the group.
    pub fn open(options: &SocketOptions<'_>) -> Result<Sockets, SocketOpenError> {
        let SocketOptions { group, port, interface, .. } = *options;
        if !group.is_multicast() {
            return Err(SocketOpenError::NotMulticast(group));
        }
        if port == 0 {
            return Err(SocketOpenError::NoPort);
        }
        if group.is_ipv4() != interface.address.is_ipv4() {
            return Err(SocketOpenError::OtherFamily { group, address: interface.address });
        }
        let group_address = scoped_address(group, port, interface.index);
        let (group_socket, receive_granted) = open_group(options, group_address)?;
        let (inbox_socket, send_granted) = open_inbox(options)?;
        // Kernels before 4.18 lack GSO, and kernels before 5.0 lack GRO. Both only save time.
        let segments = setsockopt(&inbox_socket, sockopt::UdpGsoSegment, &0).is_ok();
        let coalesces =
            [&group_socket, &inbox_socket].map(|socket| setsockopt(socket, sockopt::UdpGroSegment, &true).is_ok());
        let (copies, copies_error) = match interface.loopback {
            true => (None, None),
            false => CopySocket::open(options).map_or_else(|error| (None, Some(error)), |copies| (Some(copies), None)),
        };
        let inbox: std::net::UdpSocket = inbox_socket.into();
        let inbox_address = inbox.local_addr().map_err(system("read the inbox's address"))?;
        let truncates_own_data = own_filter::attach(&SockRef::from(&group_socket), inbox_address);
        Ok(Sockets {
            group: UdpSocket::from_std(group_socket.into()),
            inbox: UdpSocket::from_std(inbox),
            copies,
            copies_error,
            group_address,
            inbox_address,
            interface: interface.name.clone(),
            index: interface.index,
            ttl: options.ttl,
            receive_granted,
            send_granted,
            group_overruns: 0,
            inbox_overruns: 0,
            segments,
            coalesces: coalesces == [true; 2],
            truncates_own_data,
        })
    }

    /// Returns the group's address and port.
    pub fn group_address(&self) -> SocketAddr {
        self.group_address
    }

    /// Returns the inbox's address and port: the source of every sent datagram.
    pub fn inbox_address(&self) -> SocketAddr {
        self.inbox_address
    }

    /// Returns the name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns the receive buffer of the group socket and the send buffer of the inbox: requested and granted.
    pub fn granted(&self) -> [BufferGrant; 2] {
        [self.receive_granted, self.send_granted]
    }

    /// Returns whether several datagrams leave (UDP_SEGMENT) and may arrive (UDP_GRO) as one buffer. The first becomes
    /// false once it turns out not to work on this path.
    pub fn offloads(&self) -> [bool; 2] {
        [self.segments, self.coalesces]
    }

    /// Returns whether the kernel cuts this peer's own data to its headers before it queues them at the group socket.
    pub fn truncates_own_data(&self) -> bool {
        self.truncates_own_data
    }

    /// Returns the capacity of the group socket's receive buffer in bytes as receive windows count them: each datagram
    /// with [`WINDOW_DATAGRAM_BYTES`](crate::wire::WINDOW_DATAGRAM_BYTES) more than its payload. Linux allows twice the
    /// granted bytes and counts the memory behind each datagram. Measurements used datagrams of 60 to 65,000 bytes. By
    /// this measure a buffer held at least 1.02 times the grant (8,000 bytes in 16,644), mostly 1.1 to 2 times. An
    /// eighth is reserved for unpaced traffic, and for network cards whose buffers are larger than necessary.
    pub fn room_bytes(&self) -> u64 {
        let granted = self.receive_granted.granted as u64;
        granted - granted / 8
    }

    /// Moves to an interface with another address or another number. The inbox stays open, with its port, while its
    /// address does. Datagrams that were not read from a closed socket are lost. The sockets must not be registered.
    ///
    /// # Errors
    /// A socket cannot be opened on the interface. The sockets then stay as they were.
    pub(super) fn move_to(&mut self, options: &SocketOptions<'_>) -> Result<(), SocketOpenError> {
        let interface = options.interface;
        let is_bound_to_number = matches!(interface.address, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if interface.address != self.inbox_address.ip() || is_bound_to_number {
            *self = Sockets::open(options)?;
            return Ok(());
        }
        let group_address = scoped_address(options.group, options.port, interface.index);
        let (group, receive_granted) = open_group(options, group_address)?;
        prepare_sending(&SockRef::from(&self.inbox), options)?;
        if let Some(copies) = &self.copies {
            prepare_sending(&SockRef::from(&copies.as_fd()), options)?;
        }
        let coalesces = self.coalesces && setsockopt(&group, sockopt::UdpGroSegment, &true).is_ok();
        self.truncates_own_data = own_filter::attach(&SockRef::from(&group), self.inbox_address);
        self.group = UdpSocket::from_std(group.into());
        (self.group_address, self.receive_granted) = (group_address, receive_granted);
        (self.interface, self.index) = (interface.name.clone(), interface.index);
        (self.group_overruns, self.coalesces) = (0, coalesces);
        Ok(())
    }

    /// Ends the registration of the sockets.
    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut self.group)?;
        registry.deregister(&mut self.inbox)?;
        self.copies.as_mut().map_or(Ok(()), |socket| socket.deregister(registry))
    }

    /// Registers the sockets for readability: those of the group, the inbox and the copies. The events are
    /// edge-triggered: the caller must read until a socket is empty.
    pub fn register(&mut self, registry: &Registry, [group, inbox, copies]: [Token; 3]) -> io::Result<()> {
        registry.register(&mut self.group, group, Interest::READABLE)?;
        registry.register(&mut self.inbox, inbox, Interest::READABLE)?;
        self.copies.as_mut().map_or(Ok(()), |socket| socket.register(registry, copies))
    }

    /// Registers the inbox for writability after a send that took nothing, or ends that registration: otherwise every
    /// sent datagram causes an event.
    pub fn watch_writable(&mut self, registry: &Registry, inbox: Token, is_wanted: bool) -> io::Result<()> {
        let interest = if is_wanted { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        registry.reregister(&mut self.inbox, inbox, interest)
    }

    /// Leaves the group and joins it again, so that the switches see the membership once more (IGMP or MLD). While
    /// another program of this host is in the group on the same interface, the switches see nothing, because the host
    /// never leaves.
    ///
    /// # Errors
    /// The interface refuses the membership, or is gone. A later call may restore the membership that this call left.
    pub fn rejoin(&mut self) -> io::Result<()> {
        let socket = SockRef::from(&self.group);
        let group = self.group_address.ip();
        let left = match group {
            IpAddr::V4(group) => socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(self.index)),
            IpAddr::V6(group) => socket.leave_multicast_v6(&group, self.index),
        };
        // A failed leave is ignored: a missing membership does not prevent a join, and the join reports one that still
        // exists.
        drop(left);
        join(&socket, group, self.index)
    }

    /// Receives datagrams from one socket into `batch` without waiting. Returns their number; 0 if none is left.
    pub fn recv_batch(&mut self, path: Path, batch: &mut RecvBatch) -> io::Result<usize> {
        match path {
            Path::Multicast => {
                let received = batch.recv(self.group.as_fd(), &mut self.group_overruns)?;
                Ok(received + self.copies.as_mut().map_or(Ok(0), |copies| copies.recv(batch))?)
            }
            Path::Unicast => batch.recv(self.inbox.as_fd(), &mut self.inbox_overruns),
        }
    }

    /// Returns the number of datagrams that the kernel dropped at one socket and no received datagram has reported. The
    /// caller asks once a socket is empty. The core then knows of local drops before other datagrams reveal the gap.
    pub fn overrun(&mut self, path: Path) -> io::Result<u32> {
        match path {
            Path::Multicast => {
                let at_group = batch::overrun(self.group.as_fd(), &mut self.group_overruns)?;
                Ok(at_group + self.copies.as_mut().map_or(Ok(0), CopySocket::overrun)?)
            }
            Path::Unicast => batch::overrun(self.inbox.as_fd(), &mut self.inbox_overruns),
        }
    }

    /// Sends the first datagrams of `batch` and returns their number. The number is smaller than the batch if the send
    /// buffer is full or one system call takes no more. It is 0 if nothing can be sent now. An error concerns the first
    /// datagram, which the caller should drop and count.
    pub fn send_batch(&mut self, batch: &[OutgoingDatagram]) -> io::Result<usize> {
        batch::send(self.inbox.as_fd(), self.group_address, batch, &mut self.segments)
    }

    /// Sends the answer to a datagram of a path test. It leaves from the socket for copies, where that datagram arrived.
    /// `ttl` is the number of hops of a multicast: the test is about the network, whether or not the peer uses
    /// multicast there. Returns whether the system took it.
    ///
    /// # Errors
    /// The system refuses it.
    #[cfg(feature = "listeners")]
    pub(crate) fn answer_path_test(&self, answer: OutgoingDatagram, may_fragment: bool, ttl: u8) -> io::Result<bool> {
        let Some(copies) = &self.copies else { return Ok(false) };
        forbid_fragments(&copies.as_fd(), self.group_address, !may_fragment)?;
        if answer.to.is_none() {
            set_ttl(&SockRef::from(&copies.as_fd()), self.group_address.ip(), ttl)?;
        }
        batch::send(copies.as_fd(), self.group_address, &[answer], &mut false).map(|sent| sent == 1)
    }

    /// Waits until one of the sockets can be read, for at most `timeout` (rounded up to milliseconds).
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let copies = self.copies.as_ref().map(CopySocket::as_fd);
        let sockets = [self.group.as_fd(), self.inbox.as_fd()].into_iter().chain(copies);
        let mut fds: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::POLLIN)).collect();
        match poll(&mut fds, timeout) {
            Ok(ready) => Ok(0 < ready),
            Err(nix::Error::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the system refuse datagrams that are larger than the MTU, and mark the others as not to be fragmented; or
    /// makes it send them in fragments, as usual.
    #[cfg(feature = "cli")]
    pub(crate) fn forbid_fragments(&self, is_forbidden: bool) -> io::Result<()> {
        forbid_fragments(&self.inbox, self.group_address, is_forbidden)
    }

    /// Returns the configured multicast TTL.
    pub(super) fn ttl(&self) -> u8 {
        self.ttl
    }

    /// Sets the TTL of all later multicasts.
    pub(super) fn limit_ttl(&self, ttl: u8) -> io::Result<()> {
        set_ttl(&SockRef::from(&self.inbox), self.group_address.ip(), ttl)
    }
}

/// Opens the socket that receives the group's multicasts.
fn open_group(options: &SocketOptions<'_>, address: SocketAddr) -> Result<(Socket, BufferGrant), SocketOpenError> {
    let socket = open(address)?;
    // Either option lets peers on one host share the port; with both set, programs that know only one can join in.
    socket.set_reuse_address(true).map_err(system("share the group's port"))?;
    socket.set_reuse_port(true).map_err(system("share the group's port"))?;
    let granted = set_buffer_size(&socket, true, options.receive_buffer)?;
    socket.bind(&address.into()).map_err(|error| bind_error(error, address, SocketOpenError::GroupBusy))?;
    let limited = match options.group {
        IpAddr::V4(_) => socket.set_multicast_all_v4(false),
        IpAddr::V6(_) => socket.set_multicast_all_v6(false),
    };
    let joined = limited.and_then(|()| join(&SockRef::from(&socket), options.group, options.interface.index));
    joined.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM) => SocketOpenError::MembershipsMax,
        _ => SocketOpenError::Join { group: options.group, interface: options.interface.name.clone(), error },
    })?;
    enable_ancillary_data(&socket)?;
    Ok((socket, granted))
}

/// Joins the group on an interface. The host reports the membership to the switches if it is new.
pub(super) fn join(socket: &SockRef<'_>, group: IpAddr, index: u32) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index)),
        IpAddr::V6(group) => socket.join_multicast_v6(&group, index),
    }
}

/// Opens the inbox, which also sends all datagrams.
fn open_inbox(options: &SocketOptions<'_>) -> Result<(Socket, BufferGrant), SocketOpenError> {
    let interface = options.interface;
    let address = scoped_address(interface.address, options.inbox_port, interface.index);
    let socket = open(address)?;
    set_buffer_size(&socket, true, options.receive_buffer)?;
    let granted = set_buffer_size(&socket, false, options.send_buffer)?;
    socket.bind(&address.into()).map_err(|error| bind_error(error, address, SocketOpenError::InboxBusy))?;
    prepare_sending(&SockRef::from(&socket), options)?;
    enable_ancillary_data(&socket)?;
    Ok((socket, granted))
}

/// Makes a socket send multicasts on the interface, and only as far as the TTL allows.
fn prepare_sending(socket: &SockRef<'_>, options: &SocketOptions<'_>) -> Result<(), SocketOpenError> {
    let SocketOptions { interface, ttl, .. } = *options;
    let prepared = match options.group {
        IpAddr::V4(_) => {
            set_multicast_interface(socket, interface.index).and_then(|()| socket.set_multicast_loop_v4(true))
        }
        IpAddr::V6(_) => socket.set_multicast_if_v6(interface.index).and_then(|()| socket.set_multicast_loop_v6(true)),
    };
    let prepared = prepared.and_then(|()| set_ttl(socket, options.group, ttl));
    prepared.map_err(system("prepare a socket for sending to the group"))
}

/// Sets the TTL of the multicasts of a socket.
fn set_ttl(socket: &SockRef<'_>, group: IpAddr, ttl: u8) -> io::Result<()> {
    match group {
        IpAddr::V4(_) => socket.set_multicast_ttl_v4(ttl.into()),
        IpAddr::V6(_) => socket.set_multicast_hops_v6(ttl.into()),
    }
}

/// Makes the system refuse datagrams that are larger than the MTU, and mark the others as not to be fragmented; or makes
/// it send them in fragments, as usual.
#[cfg(feature = "listeners")]
fn forbid_fragments(socket: &impl AsFd, group: SocketAddr, is_forbidden: bool) -> io::Result<()> {
    let (level, name, forbidden, usual) = match group {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE, libc::IP_PMTUDISC_WANT),
        SocketAddr::V6(_) => {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_WANT)
        }
    };
    let value: libc::c_int = if is_forbidden { forbidden } else { usual };
    let bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both options read an int, which pointer and length describe and which outlives the call.
    let answer = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), bytes) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a non-blocking UDP socket of the address's family.
fn open(address: SocketAddr) -> Result<Socket, SocketOpenError> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        Ok(socket)
    };
    open().map_err(|error: io::Error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) if address.is_ipv6() => SocketOpenError::NoIpv6,
        _ => SocketOpenError::System { step: "open a UDP socket", error },
    })
}

/// Requests a buffer of `wanted` bytes: beyond the system's limit if the user may exceed it, otherwise up to the limit.
fn set_buffer_size(socket: &Socket, receive: bool, wanted: usize) -> Result<BufferGrant, SocketOpenError> {
    let sized = if receive {
        setsockopt(socket, sockopt::RcvBufForce, &wanted).or_else(|_| setsockopt(socket, sockopt::RcvBuf, &wanted))
    } else {
        setsockopt(socket, sockopt::SndBufForce, &wanted).or_else(|_| setsockopt(socket, sockopt::SndBuf, &wanted))
    };
    sized.map_err(|error| SocketOpenError::System { step: "size a buffer", error: error.into() })?;
    let doubled = if receive { socket.recv_buffer_size() } else { socket.send_buffer_size() };
    let granted = doubled.map_err(system("read the size of a buffer"))? / 2;
    Ok(BufferGrant { receive, wanted, granted })
}

/// Makes the kernel report with each datagram the drop counter of the socket and the arrival time.
fn enable_ancillary_data(socket: &Socket) -> Result<(), SocketOpenError> {
    let set =
        setsockopt(socket, sockopt::RxqOvfl, &1).and_then(|()| setsockopt(socket, sockopt::ReceiveTimestampns, &true));
    set.map_err(|error| SocketOpenError::System {
        step: "make the kernel report drops and arrival times",
        error: error.into(),
    })
}

/// Makes multicasts leave by one interface. The interface is given by number, because another one may have the same
/// address.
pub(super) fn set_multicast_interface(socket: &Socket, index: u32) -> io::Result<()> {
    let request = libc::ip_mreqn {
        imr_multiaddr: libc::in_addr { s_addr: 0 },
        imr_address: libc::in_addr { s_addr: 0 },
        imr_ifindex: i32::try_from(index).expect("the kernel's interface numbers are below 2^31"),
    };
    // SAFETY: IP_MULTICAST_IF reads an `ip_mreqn`, which pointer and length describe and which outlives the call.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_IF,
            (&raw const request).cast(),
            size_of::<libc::ip_mreqn>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the address with its port. An IPv6 address gets the interface as its scope, which the kernel applies where
/// needed.
pub(super) fn scoped_address(ip: IpAddr, port: u16, index: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, index)),
    }
}

fn bind_error(error: io::Error, address: SocketAddr, busy: impl Fn(SocketAddr) -> SocketOpenError) -> SocketOpenError {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => busy(address),
        Some(libc::EACCES | libc::EPERM) => SocketOpenError::NoPermission(address),
        Some(libc::EADDRNOTAVAIL) => SocketOpenError::NoSuchAddress(address),
        _ => SocketOpenError::System { step: "bind a UDP socket", error },
    }
}

fn system(step: &'static str) -> impl Fn(io::Error) -> SocketOpenError {
    move |error| SocketOpenError::System { step, error }
}
