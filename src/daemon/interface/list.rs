//! The interfaces of this host and its default route, as the system reports them.

use super::{Family, Interface, InterfaceAddress};
use crate::config::INTERFACE_NAME_BYTES_MAX;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::SockaddrStorage;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// Lists every interface of this host.
pub fn list() -> io::Result<Vec<Interface>> {
    let mut interfaces: Vec<Interface> = Vec::new();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).or_else(|_| UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)))?;
    let unstable = unstable_addresses();
    for entry in getifaddrs()? {
        let position = match interfaces.iter().position(|interface| interface.name == entry.interface_name) {
            Some(position) => position,
            None => {
                let index = if_nametoindex(entry.interface_name.as_str());
                let mtu = mtu_of(&socket, &entry.interface_name);
                // An interface that disappeared during the listing is omitted.
                let (Ok(index), Ok(mtu)) = (index, mtu) else { continue };
                interfaces.push(new_interface(entry.interface_name, index, mtu, entry.flags));
                interfaces.len() - 1
            }
        };
        if let Some(ip) = entry.address.as_ref().and_then(ip_of) {
            interfaces[position].addresses.push(InterfaceAddress { ip, stable: !unstable.contains(&ip) });
        }
    }
    Ok(interfaces)
}

/// Makes an interface without addresses.
fn new_interface(name: String, index: u32, mtu: usize, flags: InterfaceFlags) -> Interface {
    Interface {
        name,
        index,
        mtu,
        up: flags.contains(InterfaceFlags::IFF_UP),
        running: flags.contains(InterfaceFlags::IFF_RUNNING),
        multicast: flags.contains(InterfaceFlags::IFF_MULTICAST),
        loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
        point_to_point: flags.contains(InterfaceFlags::IFF_POINTOPOINT),
        addresses: Vec::new(),
    }
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

/// Returns the MTU that the kernel reports for this network namespace; files below `/sys` may show another namespace.
fn mtu_of(socket: &UdpSocket, name: &str) -> io::Result<usize> {
    let mut name_chars = [0; libc::IFNAMSIZ];
    for (to, from) in name_chars.iter_mut().zip(name.bytes().take(INTERFACE_NAME_BYTES_MAX)) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let mut request = libc::ifreq { ifr_name: name_chars, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_mtu: 0 } };
    // SAFETY: SIOCGIFMTU reads the terminated name and writes `ifru_mtu` of the given `ifreq`, which outlives the call.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the ioctl succeeded, so `ifru_mtu` is the field of the union that was written last.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Returns the interface of the default route with the best metric, from the kernel's tables. Without a readable table
/// it returns none: `auto` then asks the user instead of guessing.
pub(super) fn default_route(family: Family) -> Option<String> {
    match family {
        Family::V4 => default_route_v4(&fs::read_to_string("/proc/self/net/route").ok()?),
        Family::V6 => default_route_v6(&fs::read_to_string("/proc/self/net/ipv6_route").ok()?),
    }
}

/// Parses the IPv4 table. Columns: interface, destination, gateway, flags, references, uses, metric, mask, …
pub(super) fn default_route_v4(table: &str) -> Option<String> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        match columns[..] {
            [name, "00000000", _, _, _, _, metric, "00000000", ..] => Some((metric.parse::<u32>().ok()?, name)),
            _ => None,
        }
    });
    routes.min_by_key(|(metric, _)| *metric).map(|(_, name)| name.to_owned())
}

/// Parses the IPv6 table. Columns: destination, its bits, source, its bits, next hop, metric, references, uses, flags,
/// interface; all but the last hexadecimal. The kernel's own "unreachable" entry names `lo`.
pub(super) fn default_route_v6(table: &str) -> Option<String> {
    let routes = table.lines().filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        match columns[..] {
            [destination, "00", _, _, _, metric, _, _, _, name]
                if destination.bytes().all(|digit| digit == b'0') && name != "lo" =>
            {
                Some((u32::from_str_radix(metric, 16).ok()?, name))
            }
            _ => None,
        }
    });
    routes.min_by_key(|(metric, _)| *metric).map(|(_, name)| name.to_owned())
}

/// Returns the IPv6 addresses that expire or are not usable yet; none if the kernel has no IPv6.
fn unstable_addresses() -> Vec<IpAddr> {
    parse_unstable_addresses(&fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default())
}

/// Parses the table of IPv6 addresses. Columns: address, interface index, prefix, scope, flags (all hexadecimal), name.
pub(super) fn parse_unstable_addresses(table: &str) -> Vec<IpAddr> {
    let unstable = table.lines().filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [address, _, _, _, flags, ..] = columns[..] else { return None };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let bits = u128::from_str_radix(address, 16).ok()?;
        (flags & ADDRESS_FLAGS_UNSTABLE != 0).then(|| IpAddr::V6(Ipv6Addr::from_bits(bits)))
    });
    unstable.collect()
}

/// `IFA_F_TEMPORARY`, `IFA_F_DADFAILED`, `IFA_F_DEPRECATED` and `IFA_F_TENTATIVE` of linux/if_addr.h.
const ADDRESS_FLAGS_UNSTABLE: u32 = 0x01 | 0x08 | 0x20 | 0x40;
