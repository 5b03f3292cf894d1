//! The checks of the kernel's limits and counters, and of the clock.

use crate::bus::{MemberState, PeerReport};
use crate::daemon::health::finding::{Finding, Severity};
use crate::daemon::multicast::{BufferGrant, SocketOpenError};
use crate::doctor::host::HostState;
use crate::doctor::host::running_peer::LocalPeer;
use crate::doctor::outcome::{CheckOutcome, HostCheck};
use std::time::Duration;

/// Time after which a switch with snooping has forgotten a member that no querier asks: RFC 3376, 8.4.
const MEMBERSHIP_TIME: Duration = Duration::from_secs(260);
/// Number of memberships that the remedy for a full host asks for.
const MEMBERSHIPS_WANTED: u64 = 100;

pub(super) fn check_igmp(state: &HostState) -> Vec<CheckOutcome> {
    let (Ok(chosen), Some(memberships)) = (&state.choice, &state.memberships) else { return Vec::new() };
    if chosen.loopback {
        return Vec::new();
    }
    let (group, name) = (state.setup.group, &chosen.name);
    let protocol = memberships.version.as_ref().map_or("MLD".to_owned(), |version| format!("IGMP {version}"));
    let peer = match &state.peer {
        LocalPeer::Running(peer) => Some(peer),
        LocalPeer::Absent | LocalPeer::Unreachable(_) => None,
    };
    if peer.is_some() && !memberships.groups.contains(&group) {
        let finding = Finding {
            check: HostCheck::Igmp,
            severity: Severity::Broken,
            found: format!("the peer runs, and {name} is no member of {group}"),
            effect: "the switch and the kernel deliver no multicasts of the group",
            fix: format!("restart the peer; look at: ip maddress show dev {name}"),
        };
        return vec![finding.into()];
    }
    if memberships.version.as_deref() == Some("V1") {
        let finding = Finding {
            check: HostCheck::Igmp,
            severity: Severity::Warning,
            found: format!("{name} speaks IGMP V1: an old querier is on the LAN, or force_igmp_version is set"),
            effect: "switches notice late, or never, that a host joins or leaves",
            fix: format!("replace the querier, or: sysctl -w net/ipv4/conf/{name}/force_igmp_version=0"),
        };
        return vec![finding.into()];
    }
    let has_multicasts = peer.is_some_and(|peer| {
        let is_heard = |row: &PeerReport| row.state == MemberState::Up && !row.is_multicast_dead;
        MEMBERSHIP_TIME < peer.status.uptime && peer.peers.iter().any(is_heard)
    });
    let found = match (peer.is_some(), has_multicasts) {
        (true, true) => format!("{name} is a member of {group} ({protocol}), and multicasts have kept arriving"),
        (true, false) => format!("{name} is a member of {group} ({protocol}); a switch needs a querier to remember it"),
        (false, _) => format!("{protocol} on {name}; a switch with snooping needs a querier to remember members"),
    };
    vec![CheckOutcome::well(HostCheck::Igmp, found)]
}

pub(super) fn check_memberships(state: &HostState) -> Vec<CheckOutcome> {
    let is_full = state.test.as_ref().is_some_and(|test| matches!(test.sockets, Err(SocketOpenError::MembershipsMax)));
    let limit = state.memberships_max;
    if is_full {
        let key = "net.ipv4.igmp_max_memberships";
        let finding = Finding {
            check: HostCheck::Memberships,
            severity: Severity::Broken,
            found: format!(
                "a socket may join at most {} multicast groups here",
                limit.map_or("too few".to_owned(), |limit| limit.to_string())
            ),
            effect: "a peer cannot join its group, and does not start",
            fix: format!("sysctl -w {key}={MEMBERSHIPS_WANTED}"),
        };
        return vec![CheckOutcome::from(finding).with_command(format!("sysctl -w {key}={MEMBERSHIPS_WANTED}"))];
    }
    let found = limit.map(|limit| format!("a socket may join {limit} groups; a peer joins one"));
    found.map(|found| CheckOutcome::well(HostCheck::Memberships, found)).into_iter().collect()
}

pub(super) fn check_buffers(state: &HostState) -> Vec<CheckOutcome> {
    let granted = match (&state.peer, &state.test) {
        (LocalPeer::Running(peer), _) => {
            let status = &peer.status;
            let receive = (true, status.receive_buffer_wanted, status.receive_buffer);
            let send = (false, status.send_buffer_wanted, status.send_buffer);
            [receive, send].map(|(receive, wanted, granted)| BufferGrant { receive, wanted, granted })
        }
        (_, Some(test)) => match &test.sockets {
            Ok(test) => test.granted,
            Err(_) => return Vec::new(),
        },
        (_, None) => return Vec::new(),
    };
    let short = granted.iter().filter(|grant| grant.is_short()).map(|grant| {
        let (buffer, key, effect) = match grant.receive {
            true => ("receive", "net.core.rmem_max", "the kernel drops datagrams while the peer is busy"),
            false => ("send", "net.core.wmem_max", "the peer sends in smaller bursts, thus more slowly"),
        };
        let BufferGrant { wanted, granted, .. } = *grant;
        let finding = Finding {
            check: HostCheck::Buffers,
            severity: Severity::Warning,
            found: format!("asked for a {buffer} buffer of {}, and got {}", size(wanted), size(granted)),
            effect,
            fix: format!("sysctl -w {key}={wanted}"),
        };
        CheckOutcome::from(finding).with_limit(key, wanted as u64)
    });
    let short: Vec<CheckOutcome> = short.collect();
    if !short.is_empty() {
        return short;
    }
    let [receive, send] = granted.map(|grant| size(grant.granted));
    vec![CheckOutcome::well(HostCheck::Buffers, format!("receive {receive}, send {send}, as asked for"))]
}

/// Returns a number of bytes as text: `416 KiB`, `4 MiB`.
fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

pub(super) fn check_drops(state: &HostState) -> Vec<CheckOutcome> {
    let inbox = match &state.peer {
        LocalPeer::Running(peer) => Some(peer.status.inbox),
        LocalPeer::Absent | LocalPeer::Unreachable(_) => None,
    };
    let (group, port) = (state.setup.group, state.setup.port);
    let is_peer = |local: std::net::SocketAddr| (local.ip(), local.port()) == (group, port) || Some(local) == inbox;
    let rows = state.udp_sockets.iter().filter(|socket| is_peer(socket.local));
    let at_peers: u64 = rows.map(|socket| socket.drops).sum();
    let outcome = if 0 < at_peers {
        let wanted = state.setup.receive_buffer.saturating_mul(2) as u64;
        let finding = Finding {
            check: HostCheck::Drops,
            severity: Severity::Warning,
            found: format!(
                "the kernel has dropped {at_peers} datagrams at the sockets of peers: their buffers were full"
            ),
            effect: "messages are requested again, or lost with the cause LOCAL_OVERRUN",
            fix: format!(
                "sysctl -w net.core.rmem_max={wanted}, set the key receive-buffer to as much, restart the peer"
            ),
        };
        CheckOutcome::from(finding).with_limit("net.core.rmem_max", wanted)
    } else {
        match state.receive_buffer_errors {
            Some(errors @ 1..) => Finding {
                check: HostCheck::Drops,
                severity: Severity::Notice,
                found: format!("the kernel has dropped {errors} datagrams of any programs since the start of the host"),
                effect: "a peer that ran earlier may have missed some; the present sockets have missed none",
                fix: "look at: nstat -az UdpRcvbufErrors".to_owned(),
            }
            .into(),
            _ => CheckOutcome::well(HostCheck::Drops, "the kernel has dropped no datagram for lack of buffer space"),
        }
    };
    vec![outcome]
}

pub(super) fn check_clock(state: &HostState) -> Vec<CheckOutcome> {
    let outcome = match state.is_clock_kept {
        Some(true) => CheckOutcome::well(HostCheck::Clock, "a time service keeps the clock of this host"),
        Some(false) => {
            let command = "timedatectl set-ntp true";
            let finding = Finding {
                check: HostCheck::Clock,
                severity: Severity::Notice,
                found: "no time service keeps the clock of this host".to_owned(),
                effect: "stamps differ between hosts; beyond 10 s the time frames of sequence numbers do, too",
                fix: command.to_owned(),
            };
            CheckOutcome::from(finding).with_command(command)
        }
        None => return Vec::new(),
    };
    vec![outcome]
}
