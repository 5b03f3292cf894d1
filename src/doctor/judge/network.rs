//! The checks of the interface and of the way to the group.

use crate::daemon::health::finding::{Finding, Severity};
use crate::daemon::interface::{ChosenInterface, Family, Interface};
use crate::daemon::multicast::SocketOpenError;
use crate::daemon::self_test::{SelfTestError, send_remedy};
use crate::doctor::host::firewall::FirewallState;
use crate::doctor::host::{HostState, LinkKind};
use crate::doctor::outcome::{CheckOutcome, HostCheck};
use std::net::IpAddr;

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
    vec![interface(state)]
}

fn interface(state: &HostState) -> CheckOutcome {
    let defect = |severity, found: String, effect, fix: String| {
        CheckOutcome::from(Finding { check: HostCheck::Interface, severity, found, effect, fix })
    };
    let chosen = match &state.choice {
        Ok(chosen) => chosen,
        Err(error) => {
            let fix = "name one (--interface NAME, or the key interface); look at: ip -brief address".to_owned();
            return defect(Severity::Broken, error.to_string(), "a peer does not start", fix)
                .with_command("ip -brief address");
        }
    };
    let ChosenInterface { name, address, .. } = chosen;
    let others = other_candidates(state, name);
    if chosen.loopback {
        let found = format!("{name} {address} leads to this host only");
        let fix = match others.is_empty() {
            true => "no other interface can multicast now; connect one, and look at: ip -brief address".to_owned(),
            false => format!("for a LAN choose one of: {} (--interface NAME)", others.join(", ")),
        };
        return defect(Severity::Notice, found, "no other host receives the messages", fix);
    }
    let interface = state.interfaces.iter().find(|interface| interface.name == *name);
    if interface.is_some_and(|interface| !interface.running) {
        let fix = "check the cable, the switch port, or the radio network".to_owned();
        return defect(Severity::Broken, format!("{name} has no carrier"), "no datagram leaves or arrives", fix);
    }
    if interface.is_some_and(Interface::is_virtual) && state.link != LinkKind::Veth {
        let found = format!("{name} {address} belongs to containers, virtual machines or a VPN");
        let fix = match others.is_empty() {
            true => "connect an interface of the LAN; look at: ip -brief address".to_owned(),
            false => format!("choose another one: {} (--interface NAME)", others.join(", ")),
        };
        return defect(Severity::Warning, found, "most of these carry no multicast to other hosts", fix);
    }
    let others = match others.is_empty() {
        true => String::new(),
        false => format!(" (also up: {})", others.join(", ")),
    };
    CheckOutcome::well(HostCheck::Interface, format!("{name} {address}, {}{others}", chosen.reason))
}

pub(super) fn check_link(state: &HostState) -> Vec<CheckOutcome> {
    let Ok(chosen) = &state.choice else { return Vec::new() };
    if state.link != LinkKind::Wireless {
        return Vec::new();
    }
    let finding = Finding {
        check: HostCheck::Link,
        severity: Severity::Notice,
        found: format!("{} is a radio network", chosen.name),
        effect: "access points send multicasts slowly and without repetition: datagrams get lost in bursts, and are \
                 requested again",
        fix: "connect publishers by cable, or limit them: pub --rate, or the key pace; an access point that isolates \
              its clients forwards nothing"
            .to_owned(),
    };
    vec![finding.into()]
}

pub(super) fn check_container(state: &HostState) -> Vec<CheckOutcome> {
    if !state.is_container {
        return Vec::new();
    }
    let outcome = match state.link {
        LinkKind::Veth => Finding {
            check: HostCheck::Container,
            severity: Severity::Warning,
            found: "this is a container with a network of its own".to_owned(),
            effect: "multicasts reach the containers of the same bridge, and no other host",
            fix: "run the container with the network of its host: --network host".to_owned(),
        }
        .into(),
        LinkKind::Wireless | LinkKind::Other => {
            CheckOutcome::well(HostCheck::Container, "this container has a network that is no bridge of its host")
        }
    };
    vec![outcome]
}

pub(super) fn check_port(state: &HostState) -> Vec<CheckOutcome> {
    let port = state.setup.port;
    let busy = state.test.as_ref().and_then(|test| match &test.sockets {
        Err(error @ (SocketOpenError::GroupBusy(_) | SocketOpenError::NoPermission(_))) => Some(error.to_string()),
        _ => None,
    });
    let find = format!("ss -ulnp 'sport = {port}'");
    let is_wildcard = |ip: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || state.setup.group.is_ipv4());
    let others: Vec<String> = state
        .udp_sockets
        .iter()
        .filter(|socket| socket.local.port() == port && is_wildcard(socket.local.ip()))
        .map(|socket| format!("{} of user {}", socket.local, socket.uid))
        .collect();
    let outcome = if let Some(found) = busy {
        let effect = "a peer does not start";
        let fix = format!("end the program that holds it ({find}), or choose another port (--port)");
        let finding = Finding { check: HostCheck::Port, severity: Severity::Broken, found, effect, fix };
        CheckOutcome::from(finding).with_command(find)
    } else if !others.is_empty() {
        let finding = Finding {
            check: HostCheck::Port,
            severity: Severity::Warning,
            found: format!("another program uses the port {port} on all addresses: {}", others.join(", ")),
            effect: "it receives the datagrams of this group, and may send others to the port",
            fix: format!("choose another port on all hosts (--port), or end that program: {find}"),
        };
        CheckOutcome::from(finding).with_command(find)
    } else {
        let is_group = |socket: &&_| is_bound_to(socket, state.setup.group, port);
        let found = match state.udp_sockets.iter().filter(is_group).count() {
            0 => format!("UDP port {port} is free"),
            1 => format!("UDP port {port} is used by one peer of this host"),
            count => format!("UDP port {port} is shared by {count} peers of this host"),
        };
        CheckOutcome::well(HostCheck::Port, found)
    };
    vec![outcome]
}

fn is_bound_to(socket: &crate::doctor::host::procfs::UdpSocketRow, group: IpAddr, port: u16) -> bool {
    socket.local.ip() == group && socket.local.port() == port
}

pub(super) fn check_route(state: &HostState) -> Vec<CheckOutcome> {
    let Ok(chosen) = &state.choice else { return Vec::new() };
    let group = state.setup.group;
    let outcome = match &state.route {
        Ok(()) => CheckOutcome::well(HostCheck::Route, format!("{group} leaves by {}", chosen.name)),
        Err(error) => {
            let remedy = send_remedy(error.raw_os_error(), (group, state.setup.port).into(), &chosen.name);
            let finding = Finding {
                check: HostCheck::Route,
                severity: Severity::Broken,
                found: format!("the system has no way to {group} by {}: {error}", chosen.name),
                effect: "no multicast leaves this host",
                fix: remedy.clone(),
            };
            let outcome = CheckOutcome::from(finding);
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
    let results: Vec<(bool, &str)> =
        state.other_tests.iter().map(|other| (other.heard().is_some(), other.interface.as_str())).collect();
    let names = |is_well: bool| -> Vec<&str> {
        results.iter().filter(|(well, _)| *well == is_well).map(|(_, name)| *name).collect()
    };
    let others = match (names(true), names(false)) {
        (well, failed) if failed.is_empty() && well.is_empty() => String::new(),
        (well, failed) if failed.is_empty() => format!("; also on {}", well.join(", ")),
        (_, failed) => format!("; but not on {}", failed.join(", ")),
    };
    let broken = |found: String, fix: String| {
        let effect = "a peer does not start, since it would receive no multicasts";
        CheckOutcome::from(Finding { check: HostCheck::SelfTest, severity: Severity::Broken, found, effect, fix })
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

pub(super) fn check_firewall(state: &HostState) -> Vec<CheckOutcome> {
    let port = state.setup.port;
    let rules = match &state.firewall {
        FirewallState::NeedsRoot => {
            let fix = "run it again as root: sudo seqcast doctor";
            return vec![CheckOutcome::unknown(HostCheck::Firewall, "only root may list the rules", fix)];
        }
        FirewallState::Unreadable => {
            let fix = "install nftables to have the rules checked";
            return vec![CheckOutcome::unknown(HostCheck::Firewall, "no program lists the rules here", fix)];
        }
        FirewallState::Rules(rules) => rules,
    };
    let group = state.setup.group;
    let family = if group.is_ipv4() { "ip" } else { "ip6" };
    let accept = format!("nft add rule inet filter input {family} daddr {group} udp dport {port} accept");
    let outcome = if !rules.drops.is_empty() {
        let finding = Finding {
            check: HostCheck::Firewall,
            severity: Severity::Warning,
            found: format!("rules drop UDP, multicasts or IGMP: {}", rules.drops.join(" | ")),
            effect: "datagrams of the group may be dropped in silence",
            fix: format!(
                "admit UDP port {port} and IGMP before these rules, or remove them; look at: nft -a list ruleset"
            ),
        };
        CheckOutcome::from(finding).with_command("nft -a list ruleset")
    } else if rules.is_closed && !rules.accepts_group {
        let finding = Finding {
            check: HostCheck::Firewall,
            severity: Severity::Warning,
            found: format!(
                "the firewall drops what no rule admits, and no rule names the UDP port {port} or the group"
            ),
            effect: "datagrams of other hosts may be dropped in silence",
            fix: accept.clone(),
        };
        CheckOutcome::from(finding).with_command(accept)
    } else {
        CheckOutcome::well(HostCheck::Firewall, format!("no rule drops UDP port {port}, multicasts or IGMP"))
    };
    vec![outcome]
}

pub(super) fn check_ttl(state: &HostState) -> Vec<CheckOutcome> {
    // The check of the interface says how far loopback reaches.
    if state.choice.as_ref().is_ok_and(|chosen| chosen.loopback) {
        return Vec::new();
    }
    let outcome = match state.setup.ttl {
        0 => Finding {
            check: HostCheck::Ttl,
            severity: Severity::Warning,
            found: "ttl: 0 keeps multicasts on this host".to_owned(),
            effect: "no other host receives the messages",
            fix: "set the key ttl to 1 for a LAN, and restart the peer".to_owned(),
        }
        .into(),
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
        Some(bytes) if payload < bytes => Finding {
            check: HostCheck::Mtu,
            severity: Severity::Warning,
            found: format!("datagrams of {bytes} bytes do not fit the MTU of {name}: {mtu}, thus {payload} bytes"),
            effect: "they travel in fragments, and the loss of one fragment loses the datagram",
            fix: "set the key datagram-size to auto, and restart the peer".to_owned(),
        }
        .into(),
        _ if ETHERNET_MTU < *mtu && !chosen.loopback => {
            let finding = Finding {
                check: HostCheck::Mtu,
                severity: Severity::Notice,
                found: format!("the MTU of {name} is {mtu}, more than usual Ethernet carries"),
                effect: "if a switch or another host carries less, large datagrams get lost and small ones arrive",
                fix: format!(
                    "give all hosts and switches the same MTU, or set the key datagram-size to {ETHERNET_DATAGRAM}"
                ),
            };
            finding.into()
        }
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
    let finding = Finding {
        check: HostCheck::ReversePath,
        severity: Severity::Warning,
        found: format!("{name} drops datagrams from sources whose route leaves by {}", others.join(" or ")),
        effect: "multicasts of such hosts are dropped in silence",
        fix: command.clone(),
    };
    vec![CheckOutcome::from(finding).with_command(command)]
}
