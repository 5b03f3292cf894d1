//! Tests of the choice of an interface, on made-up hosts.

use super::list::{default_route_v4, default_route_v6, parse_unstable_addresses};
use super::*;

#[test]
fn every_interface_spec_finds_its_interface() {
    let laptop = "lo:l 127.0.0.1 ::1; eth0 192.0.2.2 fd00::2 fe80::2; docker0 172.17.0.1";
    check(laptop, None, "eth0", Family::V4, "eth0 192.0.2.2 (named)");
    check(laptop, None, "eth0", Family::V6, "eth0 fd00::2 (named)");
    check(laptop, None, "lo", Family::V4, "lo 127.0.0.1 (named)");
    check(laptop, None, "lo", Family::V6, "lo ::1 (named)");
    check(laptop, None, "172.17.0.1", Family::V4, "docker0 172.17.0.1 (has the address asked for)");
    check(laptop, None, "192.0.2.0/24", Family::V4, "eth0 192.0.2.2 (has an address in the network asked for)");
    check(laptop, None, "fe80::/10", Family::V6, "eth0 fe80::2 (has an address in the network asked for)");
}

#[test]
fn auto_takes_the_lan_or_refuses() {
    let auto = |there, route, expected| check(there, route, "auto", Family::V4, expected);
    auto(
        "lo:l 127.0.0.1; eth0 192.0.2.2; docker0 172.17.0.1; tun0:p 10.8.0.1",
        Some("tun0"),
        "eth0 192.0.2.2 (auto: the only one that can multicast to a LAN; not docker0, tun0)",
    );
    auto("lo:l 127.0.0.1; veth1 10.9.0.1", None, "veth1 10.9.0.1 (auto: the only one that can multicast to a LAN)");
    auto(
        "eth0 192.0.2.2; wlan0 198.51.100.2",
        Some("wlan0"),
        "wlan0 198.51.100.2 (auto: the default route leaves by it; not eth0)",
    );
    auto(
        "eth0 192.0.2.2; wlan0 198.51.100.2",
        None,
        "'auto' fits several interfaces: eth0 192.0.2.2, wlan0 198.51.100.2; name one of them",
    );
    auto(
        "lo:l 127.0.0.1; eth0:d 192.0.2.2; eth1:u 192.0.2.3; eth2:n 192.0.2.4; eth3 fd00::1",
        None,
        "no interface is up, can multicast and has an IPv4 address beside loopback (lo 127.0.0.1, \
         eth0 192.0.2.2 (down), eth1 192.0.2.3, eth2 192.0.2.4, eth3 fd00::1); for this host alone use lo",
    );
}

#[test]
fn interface_errors_list_candidates_and_remedy() {
    let host = "lo:l 127.0.0.1; eth0:d 192.0.2.2; eth1:n 192.0.2.3; eth2 192.0.2.4";
    let refused = |spec: &str, expected: &str| check(host, None, spec, Family::V4, expected);
    let there = "lo 127.0.0.1, eth0 192.0.2.2 (down), eth1 192.0.2.3, eth2 192.0.2.4";
    refused("eth9", &format!("no interface 'eth9'; name one of: {there}"));
    refused("10.0.0.1", &format!("no interface has the address 10.0.0.1; name one of: {there}"));
    refused("10.0.0.0/8", &format!("no interface has an address in 10.0.0.0/8; name one of: {there}"));
    refused("eth0", "interface 'eth0' is down; switch it on: ip link set eth0 up");
    refused("eth1", "interface 'eth1' cannot multicast; allow it: ip link set eth1 multicast on");
    refused("fd00::1", "fd00::1 is not IPv4, but the group is; use a group and an interface of one kind");
    refused(
        "192.0.2.0/24",
        "'192.0.2.0/24' fits several interfaces: eth0 192.0.2.2 (down), eth1 192.0.2.3, eth2 192.0.2.4; name one of them",
    );
    check(
        host,
        None,
        "eth2",
        Family::V6,
        "interface 'eth2' has no IPv6 address; give it one (ip addr add ADDRESS/BITS dev eth2) or use a group of the other kind",
    );
    check("", None, "eth2", Family::V4, "no interface 'eth2'; name one of: none");
}

#[test]
fn unstable_addresses_are_the_last_choice() {
    let unstable = parse_unstable_addresses(
        "00000000000000000000000000000001 01 80 10 80       lo\n\
         fd000000000000000000000000000099 02 40 00 01     eth0\n\
         fd000000000000000000000000000002 02 40 00 80     eth0\n",
    );
    assert_eq!(unstable, ["fd00::99".parse::<IpAddr>().unwrap()]);
    let mut there = host("eth0 fd00::99 fe80::2");
    there[0].addresses[0].stable = false;
    assert_eq!(there[0].address(Family::V6), Some("fe80::2".parse().unwrap()));
    there[0].addresses.remove(1);
    assert_eq!(there[0].address(Family::V6), Some("fd00::99".parse().unwrap()));
}

#[test]
fn default_route_with_least_metric_is_chosen() {
    let v4 = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
              wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
              eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
              eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    assert_eq!(default_route_v4(v4).as_deref(), Some("eth0"));
    let zero = "00000000000000000000000000000000";
    let v6 = format!(
        "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth0\n\
         {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 lo\n"
    );
    assert_eq!(default_route_v6(&v6).as_deref(), Some("eth0"));
    assert_eq!(default_route_v4("garbage\nmore garbage\n"), None);
}

#[test]
fn this_host_lists_its_loopback() {
    let there = list().expect("interfaces can be listed");
    let lo = there.iter().find(|interface| interface.loopback).expect("every host has a loopback interface");
    assert!(0 < lo.index);
    assert!(1280 <= lo.mtu, "{lo:?}");
}

#[test]
fn public_addresses_are_global_unicast() {
    for (is_expected, addresses) in [
        (
            true,
            "1.1.1.1 11.0.0.1 100.63.0.1 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 198.17.0.1 198.20.0.1 2001:4860::1 3fff:1000::1",
        ),
        (false, "10.0.0.1 100.64.0.1 100.127.0.1 127.0.0.1 169.254.1.1 172.16.0.1 172.31.0.1 192.168.1.1 192.0.0.1"),
        (false, "192.0.2.1 198.18.0.1 198.19.0.1 203.0.113.1 239.255.0.1 255.255.255.255 0.0.0.0 ::ffff:10.0.0.1"),
        (false, "240.0.0.1 ::1 :: fd00::1 fe80::1 ff02::1 2001:2::1 2001:db8::1 3fff:fff::1 1fff::1 4000::1"),
    ] {
        for address in addresses.split(' ') {
            assert_eq!(is_public(address.parse().unwrap()), is_expected, "{address}");
        }
    }
}

#[test]
fn payload_limit_leaves_room_for_headers() {
    let there = host("eth0 192.0.2.2 fd00::2; lo:l 127.0.0.1");
    let payload = |there: &[Interface], name: &str, family| {
        choose_from(there, None, &name.parse().unwrap(), family).unwrap().payload_bytes_max()
    };
    assert_eq!(payload(&there, "eth0", Family::V4), 1472);
    assert_eq!(payload(&there, "eth0", Family::V6), 1452);
    assert_eq!(payload(&there, "lo", Family::V4), 65_507);
}

/// Chooses on a made-up host and compares the choice, or the error, as text.
fn check(there: &str, route: Option<&str>, spec: &str, family: Family, expected: &str) {
    let spec: InterfaceSpec = spec.parse().unwrap();
    let answer = match choose_from(&host(there), route, &spec, family) {
        Ok(chosen) => chosen.to_string(),
        Err(error) => error.to_string(),
    };
    assert_eq!(answer, expected, "{spec} of {there}");
}

/// Returns interfaces from `name:flags address …; …`. The flags are l for loopback, d for down, u for unplugged, n for no
/// multicast, and p for point to point.
pub(crate) fn host(text: &str) -> Vec<Interface> {
    let new_interface = text.split(';').filter(|part| !part.trim().is_empty()).enumerate();
    new_interface
        .map(|(position, part)| {
            let mut words = part.split_whitespace();
            let first = words.next().unwrap();
            let (name, flags) = first.split_once(':').unwrap_or((first, ""));
            let loopback = flags.contains('l');
            Interface {
                name: name.into(),
                index: u32::try_from(position).unwrap() + 1,
                mtu: if loopback { 65_536 } else { 1500 },
                up: !flags.contains('d'),
                running: !flags.contains(['d', 'u']),
                multicast: !flags.contains(['l', 'n']),
                loopback,
                point_to_point: flags.contains('p'),
                addresses: words.map(|ip| InterfaceAddress { ip: ip.parse().unwrap(), stable: true }).collect(),
            }
        })
        .collect()
}
