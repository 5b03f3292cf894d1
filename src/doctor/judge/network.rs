//! The checks of the interface and of the way to the group.

use crate::daemon::interface::{ChosenInterface, Family, Interface};
use crate::daemon::multicast::SocketOpenError;
use crate::daemon::self_test::{SelfTestError, send_remedy};
use crate::doctor::host::firewall::{FirewallRules, FirewallState};
use crate::doctor::host::procfs::UdpSocketRow;
use crate::doctor::host::traffic::InterfaceTest;
use crate::doctor::host::{HostState, LinkKind};
use crate::doctor::outcome::{CheckOutcome, HostCheck};
use std::net::{IpAddr, SocketAddr};

/// MTU of usual Ethernet, in bytes. A larger one must be the same on all hosts and switches.
const ETHERNET_MTU: usize = 1500;
/// Bytes of UDP payload that usual Ethernet carries over IPv4 and IPv6.
const ETHERNET_DATAGRAM: usize = 1452;

/// Returns the names of the other interfaces that could multicast to a LAN.
fn other_candidates(state: &HostState, chosen: &str) -> Vec<String> {
    let family = Family::of(state.setup.group);
    let is_candidate = |interface: &&Interface| {
        interface.up
            && interface.running
            && interface.multicast
            && !interface.loopback
            && interface.name != chosen
            && interface.address(family).is_some()
    };
    state.interfaces.iter().filter(is_candidate).map(|interface| interface.name.clone()).collect()
}

pub(super) fn check_interface(state: &HostState) -> Vec<CheckOutcome> {
    let chosen = match &state.choice {
        Ok(chosen) => chosen,
        Err(error) => {
            let fix = "name one (--interface NAME, or the key interface); look at: ip -brief address".to_owned();
            let outcome = CheckOutcome::broken(HostCheck::Interface, error.to_string(), "a peer does not start", fix);
            return vec![outcome.with_command("ip -brief address")];
        }
    };
    let ChosenInterface { name, address, .. } = chosen;
    let others = other_candidates(state, name);
    let other_choice = |without: &str| match others.is_empty() {
        true => format!("{without}; look at: ip -brief address"),
        false => format!("for a LAN choose one of: {} (--interface NAME)", others.join(", ")),
    };
    let interface = state.interfaces.iter().find(|interface| interface.name == *name);
    let outcome = if chosen.loopback {
        CheckOutcome::notice(
            HostCheck::Interface,
            format!("{name} {address} leads to this host only"),
            "no other host receives the messages",
            other_choice("no other interface can multicast now: connect one"),
        )
    } else if interface.is_some_and(|interface| !interface.running) {
        CheckOutcome::broken(
            HostCheck::Interface,
            format!("{name} has no carrier"),
            "no datagram leaves or arrives",
            "check the cable, the switch port, or the radio network".to_owned(),
        )
    } else if interface.is_some_and(Interface::is_virtual) && state.link != LinkKind::Veth {
        CheckOutcome::warning(
            HostCheck::Interface,
            format!("{name} {address} belongs to containers, virtual machines or a VPN"),
            "most of these carry no multicast to other hosts",
            other_choice("connect an interface of the LAN"),
        )
    } else {
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(" (also up: {})", others.join(", ")),
        };
        CheckOutcome::well(HostCheck::Interface, format!("{name} {address}, {}{others}", chosen.reason))
    };
    vec![outcome]
}

pub(super) fn check_link(state: &HostState) -> Vec<CheckOutcome> {
    let Ok(chosen) = &state.choice else { return Vec::new() };
    if state.link != LinkKind::Wireless {
        return Vec::new();
    }
    let outcome = CheckOutcome::notice(
        HostCheck::Link,
        format!("{} is a radio network", chosen.name),
        "access points send multicasts slowly and without repetition: datagrams get lost in bursts, and are requested \
         again",
        "connect publishers by cable, or limit them: pub --rate, or the key pace; an access point that isolates its \
         clients forwards nothing"
            .to_owned(),
    );
    vec![outcome]
}

pub(super) fn check_container(state: &HostState) -> Vec<CheckOutcome> {
    if !state.is_container {
        return Vec::new();
    }
    let outcome = match state.link {
        LinkKind::Veth => CheckOutcome::warning(
            HostCheck::Container,
            "this is a container with a network of its own",
            "multicasts reach the containers of the same bridge, and no other host",
            "run the container with the network of its host: --network host".to_owned(),
        ),
        LinkKind::Wireless | LinkKind::Other => {
            CheckOutcome::well(HostCheck::Container, "this container has a network that is no bridge of its host")
        }
    };
    vec![outcome]
}

pub(super) fn check_port(state: &HostState) -> Vec<CheckOutcome> {
    let group = SocketAddr::new(state.setup.group, state.setup.port);
    let port = group.port();
    let busy = state.test.as_ref().and_then(|test| match &test.sockets {
        Err(error @ (SocketOpenError::GroupBusy(_) | SocketOpenError::NoPermission(_))) => Some(error.to_string()),
        _ => None,
    });
    let listing = format!("ss -ulnp 'sport = {port}'");
    let is_wildcard = |ip: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || group.is_ipv4());
    let is_other = |socket: &&UdpSocketRow| socket.local.port() == port && is_wildcard(socket.local.ip());
    let others: Vec<String> = state
        .udp_sockets
        .iter()
        .filter(is_other)
        .map(|socket| format!("{} of user {}", socket.local, socket.uid))
        .collect();
    let outcome = if let Some(found) = busy {
        let fix = format!("end the program that holds it ({listing}), or choose another port (--port)");
        CheckOutcome::broken(HostCheck::Port, found, "a peer does not start", fix).with_command(listing)
    } else if !others.is_empty() {
        CheckOutcome::warning(
            HostCheck::Port,
            format!("another program uses the port {port} on all addresses: {}", others.join(", ")),
            "it receives the datagrams of this group, and may send others to the port",
            format!("choose another port on all hosts (--port), or end that program: {listing}"),
        )
        .with_command(listing)
    } else {
        let found = match state.udp_sockets.iter().filter(|socket| socket.local == group).count() {
            0 => format!("UDP port {port} is free"),
            1 => format!("UDP port {port} is used by one peer of this host"),
            count => format!("UDP port {port} is shared by {count} peers of this host"),
        };
        CheckOutcome::well(HostCheck::Port, found)
    };
    vec![outcome]
}

pub(super) fn check_route(state: &HostState) -> Vec<CheckOutcome> {
    let Ok(chosen) = &state.choice else { return Vec::new() };
    let group = state.setup.group;
    let outcome = match &state.route {
        Ok(()) => CheckOutcome::well(HostCheck::Route, format!("{group} leaves by {}", chosen.name)),
        Err(error) => {
            let remedy = send_remedy(error.raw_os_error(), (group, state.setup.port).into(), &chosen.name);
            let outcome = CheckOutcome::broken(
                HostCheck::Route,
                format!("the system has no way to {group} by {}: {error}", chosen.name),
                "no multicast leaves this host",
                remedy.clone(),
            );
            match remedy.split_once(": ") {
                Some((_, command)) => outcome.with_command(command),
                None => outcome,
            }
        }
    };
    vec![outcome]
}

pub(super) fn check_self_test(state: &HostState) -> Vec<CheckOutcome> {
    let Some(test) = &state.test else { return Vec::new() };
    let group = state.setup.group;
    let others = other_results(state);
    let broken = |found: String, fix: String| {
        let effect = "a peer does not start, since it would receive no multicasts";
        CheckOutcome::broken(HostCheck::SelfTest, found, effect, fix)
    };
    let port = state.setup.port;
    let outcome = match test.sockets.as_ref().map(|test| &test.probe) {
        // The check of the port, or that of the memberships, reports these.
        Err(SocketOpenError::GroupBusy(_) | SocketOpenError::NoPermission(_) | SocketOpenError::MembershipsMax) => {
            return Vec::new();
        }
        Err(error) => broken(error.to_string(), format!("look at: ip addr show {}", test.interface)),
        Ok(Err(SelfTestError::Silence { .. })) => {
            let found = format!("a probe to {group} on {} does not come back{others}", test.interface);
            let fix = format!("a firewall probably drops it: allow UDP port {port}; look at: nft list ruleset");
            broken(found, fix).with_command("nft list ruleset")
        }
        Ok(Err(SelfTestError::Send { error, .. })) => {
            let remedy = send_remedy(error.raw_os_error(), (group, port).into(), &test.interface);
            broken(format!("the system refuses to send to {group} on {}: {error}{others}", test.interface), remedy)
        }
        Ok(Err(SelfTestError::Receive(error))) => {
            broken(format!("receiving fails: {error}"), format!("look at: ip addr show {}", test.interface))
        }
        Ok(Ok(_)) => {
            let found = format!("a probe to {group} comes back on {}{others}", test.interface);
            CheckOutcome::well(HostCheck::SelfTest, found)
        }
    };
    vec![outcome]
}

/// Returns the interfaces beside the chosen one on which a probe came back, or those on which none did.
fn other_results(state: &HostState) -> String {
    let (well, failed): (Vec<&InterfaceTest>, Vec<&InterfaceTest>) =
        state.other_tests.iter().partition(|test| test.heard().is_some());
    let names =
        |tests: &[&InterfaceTest]| tests.iter().map(|test| test.interface.as_str()).collect::<Vec<_>>().join(", ");
    match (well.is_empty(), failed.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("; also on {}", names(&well)),
        (_, false) => format!("; but not on {}", names(&failed)),
    }
}

pub(super) fn check_firewall(state: &HostState) -> Vec<CheckOutcome> {
    let outcome = match &state.firewall {
        FirewallState::NeedsRoot => {
            let fix = "run it again as root: sudo seqcast doctor";
            CheckOutcome::unknown(HostCheck::Firewall, "only root may list the rules", fix)
        }
        FirewallState::Unreadable => {
            let fix = "install nftables to have the rules checked";
            CheckOutcome::unknown(HostCheck::Firewall, "no program lists the rules here", fix)
        }
        FirewallState::Rules(rules) => judge_rules(rules, state.setup.group, state.setup.port),
    };
    vec![outcome]
}

fn judge_rules(rules: &FirewallRules, group: IpAddr, port: u16) -> CheckOutcome {
    if !rules.drops.is_empty() {
        let listing = "nft -a list ruleset";
        CheckOutcome::warning(
            HostCheck::Firewall,
            format!("rules drop UDP, multicasts or IGMP: {}", rules.drops.join(" | ")),
            "datagrams of the group may be dropped in silence",
            format!("admit UDP port {port} and IGMP before these rules, or remove them; look at: {listing}"),
        )
        .with_command(listing)
    } else if rules.is_closed && !rules.accepts_group {
        let family = if group.is_ipv4() { "ip" } else { "ip6" };
        let accept = format!("nft add rule inet filter input {family} daddr {group} udp dport {port} accept");
        CheckOutcome::warning(
            HostCheck::Firewall,
            format!("the firewall drops what no rule admits, and no rule names the UDP port {port} or the group"),
            "datagrams of other hosts may be dropped in silence",
            accept.clone(),
        )
        .with_command(accept)
    } else {
        CheckOutcome::well(HostCheck::Firewall, format!("no rule drops UDP port {port}, multicasts or IGMP"))
    }
}

pub(super) fn check_ttl(state: &HostState) -> Vec<CheckOutcome> {
    // The check of the interface says how far loopback reaches.
    if state.choice.as_ref().is_ok_and(|chosen| chosen.loopback) {
        return Vec::new();
    }
    let outcome = match state.setup.ttl {
        0 => CheckOutcome::warning(
            HostCheck::Ttl,
            "ttl: 0 keeps multicasts on this host",
            "no other host receives the messages",
            "set the key ttl to 1 for a LAN, and restart the peer".to_owned(),
        ),
        1 => CheckOutcome::well(HostCheck::Ttl, "multicasts stay on the LAN (ttl: 1); behind a router none arrive"),
        ttl => CheckOutcome::well(HostCheck::Ttl, format!("multicasts cross at most {} routers (ttl: {ttl})", ttl - 1)),
    };
    vec![outcome]
}

pub(super) fn check_mtu(state: &HostState) -> Vec<CheckOutcome> {
    let Ok(chosen) = &state.choice else { return Vec::new() };
    let ChosenInterface { name, mtu, .. } = chosen;
    let payload = chosen.payload_bytes_max();
    let outcome = match state.setup.datagram_bytes {
        Some(bytes) if payload < bytes => CheckOutcome::warning(
            HostCheck::Mtu,
            format!("datagrams of {bytes} bytes do not fit the MTU of {name}: {mtu}, thus {payload} bytes"),
            "they travel in fragments, and the loss of one fragment loses the datagram",
            "set the key datagram-size to auto, and restart the peer".to_owned(),
        ),
        _ if ETHERNET_MTU < *mtu && !chosen.loopback => CheckOutcome::notice(
            HostCheck::Mtu,
            format!("the MTU of {name} is {mtu}, more than usual Ethernet carries"),
            "if a switch or another host carries less, large datagrams get lost and small ones arrive",
            format!("give all hosts and switches the same MTU, or set the key datagram-size to {ETHERNET_DATAGRAM}"),
        ),
        _ => CheckOutcome::well(HostCheck::Mtu, format!("datagrams fit the MTU of {name} ({mtu})")),
    };
    vec![outcome]
}

pub(super) fn check_reverse_path(state: &HostState) -> Vec<CheckOutcome> {
    let Ok(chosen) = &state.choice else { return Vec::new() };
    let others = other_candidates(state, &chosen.name);
    if chosen.loopback || others.is_empty() || state.setup.group.is_ipv6() {
        return Vec::new();
    }
    let name = &chosen.name;
    if state.rp_filter != 1 {
        let found = format!("{name} accepts sources whose route leaves by another interface");
        return vec![CheckOutcome::well(HostCheck::ReversePath, found)];
    }
    // The name of an interface may contain a dot, so slashes separate the parts of the key.
    let command = format!("sysctl -w net/ipv4/conf/{name}/rp_filter=2");
    let outcome = CheckOutcome::warning(
        HostCheck::ReversePath,
        format!("{name} drops datagrams from sources whose route leaves by {}", others.join(" or ")),
        "multicasts of such hosts are dropped in silence",
        command.clone(),
    );
    vec![outcome.with_command(command)]
}
