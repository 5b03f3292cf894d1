//! Three LANs with a router each, and a network that joins the routers and the hosts of a cluster.

use crate::netns::lan::{Host, insert_card, run};
use crate::support::wait::wait_until;
use std::process::Command;

/// Number of sites.
pub const SITES: usize = 3;
/// Hosts of a site.
const HOSTS: usize = 4;
/// Hosts of the cluster.
const NODES: usize = 3;
/// Hosts are numbered by the last byte of their address. A site has a subnet of 16.
const SUBNET: usize = 16;
/// Offset of a router in the subnet of its site.
const ROUTER: usize = 14;
/// Subnet of the cluster.
const HUB: usize = 64;
/// Offset of the first router in the subnet of the cluster.
const ROUTERS: usize = 8;

/// Matches one datagram in twenty.
pub const ONE_IN_TWENTY: &str = "numgen random mod 100 < 5";

/// The LANs, and the network between them.
pub struct Wan {
    pub lans: Vec<SiteLan>,
    /// Hosts of the cluster.
    pub nodes: Vec<Host>,
}

/// The LAN of a site.
#[derive(Clone, Copy)]
pub struct SiteLan {
    pub hosts: [Host; HOSTS],
    router: Host,
}

impl Wan {
    /// Creates the hosts, the switches and the routes. Hosts of two sites do not reach each other.
    pub fn new() -> Wan {
        let mut script = String::from(
            "mount -t tmpfs tmpfs /run
             ip link set lo up
             ip link add wan type bridge mcast_snooping 0
             ip link set wan up\n",
        );
        let nodes: Vec<Host> = (1..=NODES).map(|node| Host::numbered(HUB + node)).collect();
        for node in &nodes {
            script += &insert_host(*node, "", "wan");
        }
        let lans: Vec<SiteLan> = (1..=SITES).map(SiteLan::of_site).collect();
        for (site, lan) in (1..).zip(&lans) {
            script += &lan.insertion(site, &nodes);
        }
        run(Command::new("sh").args(["-e", "-c", &script]));
        let hosts = lans.iter().flat_map(|lan| lan.hosts.into_iter().chain([lan.router])).chain(nodes.iter().copied());
        for host in hosts {
            // The kernel takes a while to notice a cable.
            wait_until("the host is on its switch", || host.run("ip", &["link", "show", "eth0"]).contains("state UP"));
        }
        Wan { lans, nodes }
    }
}

impl SiteLan {
    fn of_site(site: usize) -> SiteLan {
        let first = SUBNET * site;
        SiteLan { hosts: [1, 2, 3, 4].map(|host| Host::numbered(first + host)), router: Host::numbered(first + ROUTER) }
    }

    /// Returns the commands that create the LAN and its routes.
    fn insertion(&self, site: usize, nodes: &[Host]) -> String {
        let (router, outside) = (self.router, HUB + ROUTERS + site);
        let name = router.namespace();
        let mut script = format!(
            "ip netns add {name}
             ip -n {name} link set lo up
             {}
             ip -n {name} addr add 10.75.0.{outside}/28 dev eth0
             ip -n {name} link set eth0 up
             ip netns exec {name} sysctl -q -w net.ipv4.ip_forward=1
             ip -n {name} link add lan type bridge mcast_snooping 0
             ip -n {name} addr add {}/28 dev lan
             ip -n {name} link set lan up\n",
            insert_card(router, "", "wan"),
            router.address(),
        );
        for host in self.hosts {
            script += &insert_host(host, &format!("-n {name}"), "lan");
            script += &format!("ip -n {} route add default via {}\n", host.namespace(), router.address());
        }
        for node in nodes {
            let subnet = SUBNET * site;
            script += &format!("ip -n {} route add 10.75.0.{subnet}/28 via 10.75.0.{outside}\n", node.namespace());
        }
        script
    }

    /// Begins to lose one datagram in twenty on the LAN, and one in twenty of the packets between the LAN and the
    /// cluster.
    pub fn lose(&self) {
        for host in self.hosts {
            host.fault(&format!("meta l4proto udp {ONE_IN_TWENTY} counter name hits drop"));
        }
        self.router.forbid("forward", ONE_IN_TWENTY);
    }

    /// Ends the losses. Returns the number of datagrams that were lost on the LAN.
    pub fn heal(&self) -> u64 {
        self.router.allow();
        self.hosts.iter().map(Host::heal).sum()
    }

    /// Cuts the LAN off from the cluster.
    pub fn cut(&self) {
        self.router.forbid("forward", "meta l4proto tcp");
    }

    /// Ends the cut. One packet in twenty is still lost.
    pub fn join(&self) {
        self.router.allow();
        self.router.forbid("forward", ONE_IN_TWENTY);
    }
}

/// Returns the commands that create a host with its address on a switch, which is in the namespace of `ip`'s options.
fn insert_host(host: Host, options: &str, switch: &str) -> String {
    let name = host.namespace();
    format!(
        "ip netns add {name}
         ip -n {name} link set lo up
         {}
         ip -n {name} addr add {}/28 dev eth0
         ip -n {name} link set eth0 up\n",
        insert_card(host, options, switch),
        host.address(),
    )
}
