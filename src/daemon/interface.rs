//! The choice of the peer's network interface: by name, address, network or `auto`, with readable reasons.
//!
//! Listing asks the system. Choosing is a pure function of the list, so tests cover every answer and every error
//! without such interfaces on the machine.

mod list;
mod state;
mod watch;

pub use list::list;
pub(crate) use state::{InterfaceState, state_of, successor};
pub(crate) use watch::InterfaceWatch;

use crate::config::{INTERFACE_NAME_BYTES_MAX, InterfaceSpec, Subnet};
use std::fmt;
use std::io;
use std::net::IpAddr;

/// Address family; the group's address decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Returns the bytes of the IP and UDP headers before the payload of a datagram.
    fn header_bytes(self) -> usize {
        match self {
            Family::V4 => 20 + 8,
            Family::V6 => 40 + 8,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Family::V4 { "IPv4" } else { "IPv6" })
    }
}

/// One address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// False for IPv6 addresses that expire or are not usable yet: temporary, tentative, deprecated.
    pub stable: bool,
}

/// One interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// The largest IP packet in bytes.
    pub mtu: usize,
    /// True if the administrator has switched it on.
    pub up: bool,
    /// True if it has a carrier.
    pub running: bool,
    /// True if it reports multicast support. `lo` does not report it but supports multicast.
    pub multicast: bool,
    /// True for the loopback interface.
    pub loopback: bool,
    /// True for a tunnel with one other end.
    pub point_to_point: bool,
    /// Its addresses in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
}

impl Interface {
    /// Returns the address to use for a family: stable before temporary, wide before link-local, then the kernel's
    /// order.
    pub(crate) fn address(&self, family: Family) -> Option<IpAddr> {
        let of_family = self.addresses.iter().filter(|address| Family::of(address.ip) == family);
        of_family.min_by_key(|address| (!address.stable, is_link_local(address.ip))).map(|address| address.ip)
    }

    /// Returns whether a container, a virtual machine monitor or a VPN made the interface: it is rarely the intended
    /// LAN.
    pub(crate) fn is_virtual(&self) -> bool {
        self.point_to_point || VIRTUAL_PREFIXES.iter().any(|prefix| self.name.starts_with(prefix))
    }
}

/// Reason for the choice of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceReason {
    /// The configuration names the interface.
    Named,
    /// The interface has the requested address.
    HasAddress,
    /// The interface has an address in the requested network.
    InNetwork,
    /// `auto`: no other interface can multicast to a LAN.
    Only,
    /// `auto`: several interfaces fit, and the default route leaves by this one.
    DefaultRoute,
}

impl fmt::Display for ChoiceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChoiceReason::Named => "named",
            ChoiceReason::HasAddress => "has the address asked for",
            ChoiceReason::InNetwork => "has an address in the network asked for",
            ChoiceReason::Only => "auto: the only one that can multicast to a LAN",
            ChoiceReason::DefaultRoute => "auto: the default route leaves by it",
        })
    }
}

/// The interface that the peer uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenInterface {
    /// Its name.
    pub name: String,
    /// The kernel's number for it; the scope of link-local IPv6 addresses.
    pub index: u32,
    /// The address of the inbox, thus the source of every datagram.
    pub address: IpAddr,
    /// The largest IP packet in bytes.
    pub mtu: usize,
    /// True if the interface leads only to this host.
    pub loopback: bool,
    /// The reason.
    pub reason: ChoiceReason,
    /// `auto`: names of the other usable interfaces, including those passed over as virtual.
    pub others: Vec<String>,
}

impl ChosenInterface {
    /// Returns whether other hosts can reach the address: the interface leads to them, or `lo` has an address that they
    /// can route to this host.
    pub fn is_reached_by_other_hosts(&self) -> bool {
        !(self.loopback && self.address.is_loopback())
    }

    /// Returns whether the address is global unicast, so that the Internet may reach it.
    pub fn has_public_address(&self) -> bool {
        is_public(self.address)
    }

    /// Returns the maximum bytes of UDP payload in one IP packet, without fragments.
    pub fn payload_bytes_max(&self) -> usize {
        self.mtu.saturating_sub(Family::of(self.address).header_bytes()).min(UDP_PAYLOAD_BYTES_MAX)
    }
}

impl fmt::Display for ChosenInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({}", self.name, self.address, self.reason)?;
        if !self.others.is_empty() {
            write!(f, "; not {}", self.others.join(", "))?;
        }
        write!(f, ")")
    }
}

/// Reason why no interface was chosen. The text lists the interfaces and names the fix.
#[derive(Debug)]
pub enum ChooseError {
    /// The system refused to list its interfaces.
    List(io::Error),
    /// No interface has this name.
    NoSuchName {
        /// The requested name.
        name: String,
        /// All interfaces of the host.
        interfaces: Vec<Interface>,
    },
    /// No interface has this address, or one in this network.
    NoSuchAddress {
        /// The requested interface.
        spec: InterfaceSpec,
        /// All interfaces of the host.
        interfaces: Vec<Interface>,
    },
    /// The requested address or network and the group are of two families.
    OtherFamily {
        /// The requested interface.
        spec: InterfaceSpec,
        /// The family of the group.
        family: Family,
    },
    /// The interface is switched off.
    Down(String),
    /// The interface cannot multicast.
    NoMulticast(String),
    /// The interface has no address of the group's family.
    NoAddress {
        /// The interface.
        name: String,
        /// The family of the group.
        family: Family,
    },
    /// `auto`: no interface can multicast to a LAN.
    NoneFit {
        /// The family of the group.
        family: Family,
        /// All interfaces of the host.
        interfaces: Vec<Interface>,
    },
    /// Several interfaces fit, and nothing decides between them.
    Ambiguous {
        /// The requested interface.
        spec: InterfaceSpec,
        /// The interfaces that fit.
        candidates: Vec<Interface>,
    },
}

impl fmt::Display for ChooseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChooseError::List(error) => write!(f, "cannot list the network interfaces: {error}"),
            ChooseError::NoSuchName { name, interfaces } => {
                write!(f, "no interface '{name}'; name one of: {}", List(interfaces))
            }
            ChooseError::NoSuchAddress { spec: spec @ InterfaceSpec::Subnet(_), interfaces } => {
                write!(f, "no interface has an address in {spec}; name one of: {}", List(interfaces))
            }
            ChooseError::NoSuchAddress { spec, interfaces } => {
                write!(f, "no interface has the address {spec}; name one of: {}", List(interfaces))
            }
            ChooseError::OtherFamily { spec, family } => {
                write!(f, "{spec} is not {family}, but the group is; use a group and an interface of one kind")
            }
            ChooseError::Down(name) => {
                write!(f, "interface '{name}' is down; switch it on: ip link set {name} up")
            }
            ChooseError::NoMulticast(name) => {
                write!(f, "interface '{name}' cannot multicast; allow it: ip link set {name} multicast on")
            }
            ChooseError::NoAddress { name, family } => write!(
                f,
                "interface '{name}' has no {family} address; give it one (ip addr add ADDRESS/BITS dev {name}) or use a group of the other kind"
            ),
            ChooseError::NoneFit { family, interfaces } => write!(
                f,
                "no interface is up, can multicast and has an {family} address beside loopback ({}); for this \
                 host alone use lo",
                List(interfaces)
            ),
            ChooseError::Ambiguous { spec, candidates } => {
                write!(f, "'{spec}' fits several interfaces: {}; name one of them", List(candidates))
            }
        }
    }
}

impl std::error::Error for ChooseError {}

/// Interfaces with their addresses as a phrase: `lo 127.0.0.1, eth0 192.0.2.2 (down)`.
struct List<'a>(&'a [Interface]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, interface) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str(&interface.name)?;
            for address in &interface.addresses {
                write!(f, " {}", address.ip)?;
            }
            f.write_str(if interface.up { "" } else { " (down)" })?;
        }
        Ok(())
    }
}

/// Chooses among the interfaces of this host.
pub fn choose(spec: &InterfaceSpec, family: Family) -> Result<ChosenInterface, ChooseError> {
    let interfaces = list().map_err(ChooseError::List)?;
    choose_from(&interfaces, list::default_route(family).as_deref(), spec, family)
}

/// Chooses among the given interfaces. `default_route` is the interface by which the default route of the family
/// leaves.
fn choose_from(
    interfaces: &[Interface],
    default_route: Option<&str>,
    spec: &InterfaceSpec,
    family: Family,
) -> Result<ChosenInterface, ChooseError> {
    match spec {
        InterfaceSpec::Auto => choose_auto(interfaces, default_route, family),
        InterfaceSpec::Name(name) => match interfaces.iter().find(|interface| interface.name == *name) {
            None => Err(ChooseError::NoSuchName { name: name.clone(), interfaces: interfaces.to_vec() }),
            Some(interface) => match interface.address(family) {
                None => Err(ChooseError::NoAddress { name: name.clone(), family }),
                Some(address) => check_usable(interface, address, ChoiceReason::Named),
            },
        },
        InterfaceSpec::Address(address) => {
            let network = Subnet { address: *address, prefix: if address.is_ipv4() { 32 } else { 128 } };
            choose_in(interfaces, network, spec, family, ChoiceReason::HasAddress)
        }
        InterfaceSpec::Subnet(network) => choose_in(interfaces, *network, spec, family, ChoiceReason::InNetwork),
    }
}

/// Chooses the only interface with an address in `network`.
fn choose_in(
    interfaces: &[Interface],
    network: Subnet,
    spec: &InterfaceSpec,
    family: Family,
    reason: ChoiceReason,
) -> Result<ChosenInterface, ChooseError> {
    if Family::of(network.address) != family {
        return Err(ChooseError::OtherFamily { spec: spec.clone(), family });
    }
    let inside = |interface: &Interface| interface.addresses.iter().map(|a| a.ip).find(|ip| network.contains(*ip));
    let candidates: Vec<Interface> =
        interfaces.iter().filter(|interface| inside(interface).is_some()).cloned().collect();
    match &candidates[..] {
        [] => Err(ChooseError::NoSuchAddress { spec: spec.clone(), interfaces: interfaces.to_vec() }),
        [one] => check_usable(one, inside(one).expect("a candidate has an address in the network"), reason),
        _ => Err(ChooseError::Ambiguous { spec: spec.clone(), candidates }),
    }
}

/// Chooses the interface that leads to the LAN: physical ones before virtual ones, then the one of the default route.
fn choose_auto(
    interfaces: &[Interface],
    default_route: Option<&str>,
    family: Family,
) -> Result<ChosenInterface, ChooseError> {
    let is_usable = |interface: &&Interface| {
        interface.up
            && interface.running
            && interface.multicast
            && !interface.loopback
            && interface.address(family).is_some()
    };
    let (virtual_interfaces, physical_interfaces): (Vec<&Interface>, Vec<&Interface>) =
        interfaces.iter().filter(is_usable).partition(|interface| interface.is_virtual());
    let candidates = if physical_interfaces.is_empty() { &virtual_interfaces } else { &physical_interfaces };
    let routed = candidates.iter().find(|interface| Some(interface.name.as_str()) == default_route);
    let (one, reason) = match (&candidates[..], routed) {
        ([], _) => return Err(ChooseError::NoneFit { family, interfaces: interfaces.to_vec() }),
        ([one], _) => (*one, ChoiceReason::Only),
        (_, Some(one)) => (*one, ChoiceReason::DefaultRoute),
        (several, None) => {
            let candidates = several.iter().copied().cloned().collect();
            return Err(ChooseError::Ambiguous { spec: InterfaceSpec::Auto, candidates });
        }
    };
    let address = one.address(family).expect("a usable interface has an address");
    let mut chosen = check_usable(one, address, reason)?;
    let others = physical_interfaces.iter().chain(&virtual_interfaces).filter(|interface| interface.name != one.name);
    chosen.others = others.map(|interface| interface.name.clone()).collect();
    Ok(chosen)
}

/// Makes the choice if the interface is usable.
fn check_usable(interface: &Interface, address: IpAddr, reason: ChoiceReason) -> Result<ChosenInterface, ChooseError> {
    let name = interface.name.clone();
    if !interface.up {
        return Err(ChooseError::Down(name));
    }
    if !interface.multicast && !interface.loopback {
        return Err(ChooseError::NoMulticast(name));
    }
    let Interface { index, mtu, loopback, .. } = *interface;
    Ok(ChosenInterface { name, index, address, mtu, loopback, reason, others: Vec::new() })
}

/// Returns whether an address is global unicast by the registries of special-purpose addresses (RFC 6890).
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let is_special = match (a, b, c) {
                (0 | 10 | 127 | 240..=255, ..) => true,
                // RFC 6598 and RFC 2544.
                (100, 64..=127, _) | (198, 18 | 19, _) => true,
                (192, 0, 0) => true,
                _ => v4.is_private() || v4.is_link_local() || v4.is_documentation() || v4.is_multicast(),
            };
            !is_special
        }
        IpAddr::V6(v6) => {
            let [first, second, ..] = v6.segments();
            // 2000::/3, without 2001::/23 for protocols, and 2001:db8::/32 and 3fff::/20 for documentation.
            (0x2000..0x4000).contains(&first)
                && !(first == 0x2001 && (second < 0x200 || second == 0xdb8))
                && (first, second >> 12) != (0x3fff, 0)
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

// The kernel's limit includes the terminating zero.
const _: () = assert!(INTERFACE_NAME_BYTES_MAX == libc::IFNAMSIZ - 1);

/// The 16-bit length of an IPv4 packet less its IP and UDP headers.
const UDP_PAYLOAD_BYTES_MAX: usize = 65_535 - 20 - 8;

/// Name prefixes of interfaces made by Docker, Podman, Kubernetes networks, libvirt, VMware, VirtualBox, LXC,
/// WireGuard, Tailscale, ZeroTier and OpenVPN. A bridge named `br0` is usually the LAN; Docker's are `br-<hash>`.
const VIRTUAL_PREFIXES: [&str; 18] = [
    "docker",
    "br-",
    "veth",
    "virbr",
    "vnet",
    "vmnet",
    "vboxnet",
    "lxc",
    "lxd",
    "podman",
    "cni",
    "cali",
    "flannel",
    "tun",
    "tap",
    "wg",
    "tailscale",
    "zt",
];

#[cfg(test)]
pub(crate) mod tests;
