//! The state of this host, read once: everything that the checks judge.

pub(crate) mod firewall;
pub(crate) mod hubs;
pub(crate) mod procfs;
pub(crate) mod running_peer;
pub(crate) mod traffic;

use self::firewall::FirewallState;
use self::hubs::HubProbe;
use self::procfs::{MembershipTable, UdpSocketRow};
use self::running_peer::LocalPeer;
use self::traffic::InterfaceTest;
use super::setup::PeerSetup;
use crate::config::Config;
use crate::daemon::interface::{self, ChooseError, ChosenInterface, Family, Interface};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::thread;

/// Maximum number of interfaces beside the chosen one that are tested.
const OTHER_INTERFACES_MAX: usize = 8;

/// Everything that the checks judge.
#[derive(Debug)]
pub(crate) struct HostState {
    pub(crate) setup: PeerSetup,
    /// The local socket at which a peer was looked for.
    pub(crate) socket: PathBuf,
    pub(crate) peer: LocalPeer,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) choice: Result<ChosenInterface, ChooseError>,
    /// Kind of the chosen interface.
    pub(crate) link: LinkKind,
    /// True if this program runs in a container.
    pub(crate) is_container: bool,
    /// UDP sockets of this host, without those of this program.
    pub(crate) udp_sockets: Vec<UdpSocketRow>,
    /// Datagrams that the kernel dropped at all UDP sockets since the start of the host.
    pub(crate) receive_buffer_errors: Option<u64>,
    /// Memberships of the chosen interface, without those of this program.
    pub(crate) memberships: Option<MembershipTable>,
    /// Maximum number of IPv4 groups that a socket may join.
    pub(crate) memberships_max: Option<u64>,
    /// Filter of source addresses on the chosen interface: 0 off, 1 strict, 2 loose.
    pub(crate) rp_filter: u64,
    /// Result of looking up the route to the group.
    pub(crate) route: io::Result<()>,
    /// Test of the chosen interface; `None` if there is none.
    pub(crate) test: Option<InterfaceTest>,
    /// Tests of the other interfaces.
    pub(crate) other_tests: Vec<InterfaceTest>,
    pub(crate) firewall: FirewallState,
    /// True if a time service keeps the wall clock; `None` if the system does not say.
    pub(crate) is_clock_kept: Option<bool>,
    /// Servers of the cluster that joins sites; none if the peer is connected with one of them, or is no gateway.
    pub(crate) hubs: Vec<HubProbe>,
}

/// Kind of an interface, as far as it matters for multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// A radio network.
    Wireless,
    /// One end of a cable between two network namespaces, as containers have.
    Veth,
    /// Any other kind.
    Other,
}

/// Returns the peer of this host and the network to check. It is that of the peer if `asks_peer` and one runs at the
/// socket of the configuration, and otherwise that of the configuration.
pub(crate) fn find_peer(config: &Config, asks_peer: bool) -> (LocalPeer, PeerSetup) {
    let peer = if asks_peer { running_peer::read(&config.socket) } else { LocalPeer::NotAsked };
    let setup = peer.running().map_or_else(|| PeerSetup::of_config(config), |peer| PeerSetup::of_peer(&peer.status));
    (peer, setup)
}

/// Reads the state of this host. [`find_peer`] chooses the network. Takes about 1.2 seconds.
pub(crate) fn read(config: &Config, asks_peer: bool) -> HostState {
    let socket = config.socket.clone();
    let (peer, setup) = find_peer(config, asks_peer);
    let family = Family::of(setup.group);
    let choice = interface::choose(&setup.interface, family);
    let interfaces = interface::list().unwrap_or_default();
    let name = choice.as_ref().map_or("", |chosen| chosen.name.as_str()).to_owned();
    // These tables are read before this program opens sockets of its own.
    let udp_sockets = procfs::udp_sockets();
    let memberships = procfs::memberships(&name, setup.group.is_ipv4());
    let others: Vec<ChosenInterface> = interfaces
        .iter()
        .filter(|interface| interface.name != name)
        .filter_map(|interface| traffic::choice_of(interface, family))
        .take(OTHER_INTERFACES_MAX)
        .collect();
    let hubs = match peer.running() {
        Some(running) => running.unconnected_hubs(),
        None => config.link.iter().map(ToString::to_string).collect(),
    };
    let (test, other_tests, firewall, hubs) = thread::scope(|scope| {
        let setup = &setup;
        let hubs = scope.spawn(|| hubs::probe(&hubs));
        let firewall = scope.spawn(|| firewall::read(setup.group, setup.port));
        let others: Vec<_> =
            others.iter().map(|other| scope.spawn(move || traffic::test(setup, other, false))).collect();
        let test = choice.as_ref().ok().map(|chosen| traffic::test(setup, chosen, true));
        let others = others.into_iter().map(|other| other.join().expect("a test of an interface does not panic"));
        let firewall = firewall.join().expect("reading the rules does not panic");
        (test, others.collect(), firewall, hubs.join().expect("a test of a server does not panic"))
    });
    HostState {
        link: link_kind(Path::new("/sys/class/net"), &name),
        is_container: is_container(),
        receive_buffer_errors: procfs::receive_buffer_errors(),
        memberships_max: procfs::sysctl("net/ipv4/igmp_max_memberships"),
        rp_filter: rp_filter(&name),
        route: choice.as_ref().map_or(Ok(()), |chosen| look_up_route(&setup, chosen)),
        is_clock_kept: is_clock_kept(),
        setup,
        socket,
        peer,
        interfaces,
        choice,
        udp_sockets,
        memberships,
        test,
        other_tests,
        firewall,
        hubs,
    }
}

/// Returns the filter that the kernel applies: the stricter request wins, and loose counts as more than strict.
fn rp_filter(interface: &str) -> u64 {
    let of = |name: &str| procfs::sysctl(&format!("net/ipv4/conf/{name}/rp_filter")).unwrap_or(0);
    of("all").max(if interface.is_empty() { 0 } else { of(interface) })
}

/// Looks up the route to the group as a send would, without sending.
fn look_up_route(setup: &PeerSetup, chosen: &ChosenInterface) -> io::Result<()> {
    let group = match setup.group {
        IpAddr::V4(_) => SocketAddr::new(setup.group, setup.port),
        IpAddr::V6(group) => SocketAddr::V6(SocketAddrV6::new(group, setup.port, 0, chosen.index)),
    };
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    match chosen.address {
        IpAddr::V4(address) => socket.set_multicast_if_v4(&address)?,
        IpAddr::V6(_) => socket.set_multicast_if_v6(chosen.index)?,
    }
    socket.connect(&group.into())
}

/// Returns the kind of an interface from its folder below `interfaces`. A cable between namespaces has the number of
/// its other end as its link, and no type. A tunnel may have the number 0 as its link.
fn link_kind(interfaces: &Path, name: &str) -> LinkKind {
    let folder = interfaces.join(name);
    let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default().trim().to_owned();
    if name.is_empty() {
        LinkKind::Other
    } else if folder.join("wireless").exists() || folder.join("phy80211").exists() {
        LinkKind::Wireless
    } else if ![text("ifindex"), "0".to_owned()].contains(&text("iflink")) && !text("uevent").contains("DEVTYPE=") {
        LinkKind::Veth
    } else {
        LinkKind::Other
    }
}

/// Returns whether Docker, Podman or another runtime has marked this file system or environment as a container.
fn is_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists())
        || std::env::var_os("container").is_some()
        || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Returns whether the kernel knows that a time service keeps the wall clock.
fn is_clock_kept() -> Option<bool> {
    // SAFETY: all fields of `timex` are integers, for which zero is a valid value.
    let mut time: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: with no modes the call only writes to `time`, which outlives it.
    let state = unsafe { libc::adjtimex(&raw mut time) };
    (0 <= state).then_some(time.status & libc::STA_UNSYNC == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_of_an_interface_gives_its_kind() {
        let place = tempdir();
        let kind = |name: &str, files: &[(&str, &str)]| {
            let folder = place.join(name);
            fs::create_dir_all(&folder).unwrap();
            for (file, text) in files {
                fs::write(folder.join(file), text).unwrap();
            }
            link_kind(&place, name)
        };
        assert_eq!(kind("eth0", &[("iflink", "2\n"), ("ifindex", "2\n"), ("uevent", "IFINDEX=2\n")]), LinkKind::Other);
        assert_eq!(kind("eth1", &[("iflink", "9\n"), ("ifindex", "3\n"), ("uevent", "IFINDEX=3\n")]), LinkKind::Veth);
        let vlan = [("iflink", "2\n"), ("ifindex", "4\n"), ("uevent", "DEVTYPE=vlan\n")];
        assert_eq!(kind("eth0.7", &vlan), LinkKind::Other);
        let tunnel = [("iflink", "0\n"), ("ifindex", "5\n"), ("uevent", "IFINDEX=5\n")];
        assert_eq!(kind("gre1", &tunnel), LinkKind::Other);
        assert_eq!(kind("wlan0", &[("phy80211", "")]), LinkKind::Wireless);
        fs::remove_dir_all(place).unwrap();
    }

    fn tempdir() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("seqcast-doctor-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }
}
