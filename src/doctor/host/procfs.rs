//! The kernel's tables of sockets, memberships and counters below `/proc/net`, as values.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A UDP socket of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UdpSocketRow {
    /// Address to which it is bound.
    pub(crate) local: SocketAddr,
    /// User id of its owner.
    pub(crate) uid: u32,
    /// Number of datagrams that the kernel dropped at it.
    pub(crate) drops: u64,
}

/// Memberships of one interface in multicast groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MembershipTable {
    /// Version of IGMP on the interface, such as `V3`; `None` for IPv6.
    pub(crate) version: Option<String>,
    /// The groups.
    pub(crate) groups: Vec<IpAddr>,
}

/// Reads the UDP sockets of this network namespace.
pub(super) fn udp_sockets() -> Vec<UdpSocketRow> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    ["/proc/self/net/udp", "/proc/self/net/udp6"].iter().flat_map(|path| parse_udp_sockets(&read(path))).collect()
}

/// Reads the memberships of an interface in groups of one family. Returns `None` if the kernel shows no such table.
pub(super) fn memberships(interface: &str, is_ipv4: bool) -> Option<MembershipTable> {
    match is_ipv4 {
        true => Some(parse_igmp(&fs::read_to_string("/proc/self/net/igmp").ok()?, interface)),
        false => Some(parse_igmp6(&fs::read_to_string("/proc/self/net/igmp6").ok()?, interface)),
    }
}

/// Reads the number of datagrams that the kernel dropped at all UDP sockets because their buffers were full.
pub(super) fn receive_buffer_errors() -> Option<u64> {
    parse_receive_buffer_errors(&fs::read_to_string("/proc/self/net/snmp").ok()?)
}

/// Reads a number below `/proc/sys`.
pub(super) fn sysctl(path: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/{path}")).ok()?.trim().parse().ok()
}

/// Parses a table of UDP sockets. Columns: number, local address, remote address, state, queues, timer, retransmits,
/// user, timeout, inode, references, pointer, drops.
fn parse_udp_sockets(table: &str) -> Vec<UdpSocketRow> {
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, _, _, _, _, uid, _, _, _, _, drops] = columns[..] else { return None };
        Some(UdpSocketRow { local: parse_address(local)?, uid: uid.parse().ok()?, drops: drops.parse().ok()? })
    };
    table.lines().filter_map(row).collect()
}

/// Parses `0100007F:1D4C`: each word of the address in the byte order of this host, then the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Parses the IPv4 memberships. A line that begins with a number is an interface: number, name, `:`, groups, version.
/// The indented lines below it are its groups.
fn parse_igmp(table: &str, interface: &str) -> MembershipTable {
    let mut memberships = MembershipTable::default();
    let mut is_meant = false;
    for line in table.lines().skip(1) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        if !line.starts_with(char::is_whitespace) {
            is_meant = columns.get(1).is_some_and(|name| name.trim_end_matches(':') == interface);
            if is_meant {
                memberships.version = columns.last().map(|version| (*version).to_owned());
            }
        } else if is_meant && let Some(word) = columns.first().and_then(|word| u32::from_str_radix(word, 16).ok()) {
            memberships.groups.push(IpAddr::V4(Ipv4Addr::from(word.to_ne_bytes())));
        }
    }
    memberships
}

/// Parses the IPv6 memberships. Columns: interface number, name, group, users, flags, timer.
fn parse_igmp6(table: &str, interface: &str) -> MembershipTable {
    let group = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [_, name, group, ..] = columns[..] else { return None };
        let bits = u128::from_str_radix(group, 16).ok()?;
        (name == interface).then(|| IpAddr::V6(Ipv6Addr::from_bits(bits)))
    };
    MembershipTable { version: None, groups: table.lines().filter_map(group).collect() }
}

/// Parses the counters of UDP: a line of names, then a line of values.
fn parse_receive_buffer_errors(table: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == "RcvbufErrors")?;
    values.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_table_gives_addresses_and_drops() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let (group, zero) = (word([239, 255, 83, 67]), "00000000".repeat(4));
        let table = format!(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout \
             inode ref pointer drops\n\
             12: {group}:1D4C 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 5 2 0 17\n\
             13: {zero}:1D4C {zero}:0000 07 00000000:00000000 00:00000000 00000000     0        0 6 2 0 0\n\
             garbage\n"
        );
        let expected = [
            UdpSocketRow { local: "239.255.83.67:7500".parse().unwrap(), uid: 1000, drops: 17 },
            UdpSocketRow { local: "[::]:7500".parse().unwrap(), uid: 0, drops: 0 },
        ];
        assert_eq!(parse_udp_sockets(&table), expected);
    }

    #[test]
    fn membership_tables_give_groups_of_the_interface() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let table = format!(
            "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n1\tlo        :     1      V3\n\
             \t\t\t\t{}     1 0:00000000\t\t0\n4\teth0      :     1      V2\n\t\t\t\t{}     1 0:00000000\t\t0\n",
            word([224, 0, 0, 1]),
            word([239, 1, 2, 3])
        );
        let eth0 = MembershipTable { version: Some("V2".into()), groups: vec!["239.1.2.3".parse().unwrap()] };
        assert_eq!(parse_igmp(&table, "eth0"), eth0);
        assert_eq!(parse_igmp(&table, "eth1"), MembershipTable::default());
        let table = "4    eth0            ff150000000000000000000000005343     1 00000004 0\n\
                     5    eth1            ff020000000000000000000000000001     1 0000000C 0\n";
        assert_eq!(parse_igmp6(table, "eth0").groups, ["ff15::5343".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn counter_of_full_buffers_is_found_by_name() {
        let table = "Ip: A B\nIp: 1 2\nUdp: InDatagrams RcvbufErrors\nUdp: 134 7\nUdpLite: RcvbufErrors\nUdpLite: 9\n";
        assert_eq!(parse_receive_buffer_errors(table), Some(7));
        assert_eq!(parse_receive_buffer_errors("Udp: InDatagrams\nUdp: 1\n"), None);
    }
}
