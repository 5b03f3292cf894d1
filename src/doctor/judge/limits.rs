//! The checks of the kernel's limits and counters, and of the clock.

use crate::bus::{MemberState, PeerReport};
use crate::daemon::multicast::{BufferGrant, SocketOpenError};
use crate::doctor::host::HostState;
use crate::doctor::host::running_peer::RunningPeer;
use crate::doctor::host::traffic::InterfaceTest;
use crate::doctor::outcome::{CheckOutcome, HostCheck};
use crate::terminal::output::byte_text;
use std::net::SocketAddr;
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
    let peer = state.peer.running();
    let is_heard = |row: &PeerReport| row.state == MemberState::Up && !row.is_multicast_dead;
    let outcome = if peer.is_some() && !memberships.groups.contains(&group) {
        CheckOutcome::broken(
            HostCheck::Igmp,
            format!("the peer runs, and {name} is no member of {group}"),
            "the switch and the kernel deliver no multicasts of the group",
            format!("restart the peer; look at: ip maddress show dev {name}"),
        )
    } else if memberships.version.as_deref() == Some("V1") {
        CheckOutcome::warning(
            HostCheck::Igmp,
            format!("{name} speaks IGMP V1: an old querier is on the LAN, or force_igmp_version is set"),
            "switches notice late, or never, that a host joins or leaves",
            format!("replace the querier, or: sysctl -w net/ipv4/conf/{name}/force_igmp_version=0"),
        )
    } else {
        CheckOutcome::well(
            HostCheck::Igmp,
            match peer {
                None => format!("{protocol} on {name}; a switch with snooping needs a querier to remember members"),
                Some(peer) if MEMBERSHIP_TIME < peer.status.uptime && peer.peers.iter().any(is_heard) => {
                    format!("{name} is a member of {group} ({protocol}), and multicasts have kept arriving")
                }
                Some(_) => {
                    format!("{name} is a member of {group} ({protocol}); a switch needs a querier to remember it")
                }
            },
        )
    };
    vec![outcome]
}

pub(super) fn check_memberships(state: &HostState) -> Vec<CheckOutcome> {
    let is_full = state.test.as_ref().is_some_and(|test| matches!(test.sockets, Err(SocketOpenError::MembershipsMax)));
    let outcome = match state.memberships_max {
        limit if is_full => {
            let limit = limit.map_or("too few".to_owned(), |limit| limit.to_string());
            let command = format!("sysctl -w net.ipv4.igmp_max_memberships={MEMBERSHIPS_WANTED}");
            CheckOutcome::broken(
                HostCheck::Memberships,
                format!("a socket may join at most {limit} multicast groups here"),
                "a peer cannot join its group, and does not start",
                command.clone(),
            )
            .with_command(command)
        }
        Some(limit) => {
            CheckOutcome::well(HostCheck::Memberships, format!("a socket may join {limit} groups; a peer joins one"))
        }
        None => return Vec::new(),
    };
    vec![outcome]
}

pub(super) fn check_buffers(state: &HostState) -> Vec<CheckOutcome> {
    let granted = match (state.peer.running(), &state.test) {
        (Some(RunningPeer { status, .. }), _) => {
            let receive = (true, status.receive_buffer_wanted, status.receive_buffer);
            let send = (false, status.send_buffer_wanted, status.send_buffer);
            [receive, send].map(|(receive, wanted, granted)| BufferGrant { receive, wanted, granted })
        }
        (None, Some(InterfaceTest { sockets: Ok(test), .. })) => test.granted,
        (None, _) => return Vec::new(),
    };
    let short: Vec<CheckOutcome> = granted.iter().filter(|grant| grant.is_short()).map(short_buffer).collect();
    if !short.is_empty() {
        return short;
    }
    let [receive, send] = granted.map(|grant| byte_text(grant.granted as u64));
    vec![CheckOutcome::well(HostCheck::Buffers, format!("receive {receive}, send {send}, as asked for"))]
}

/// Returns the outcome for a buffer that is smaller than the peer asked for.
fn short_buffer(grant: &BufferGrant) -> CheckOutcome {
    let BufferGrant { receive, wanted, granted } = *grant;
    let text = |bytes: usize| byte_text(bytes as u64);
    let (buffer, key, effect) = match receive {
        true => ("receive", "net.core.rmem_max", "the kernel drops datagrams while the peer is busy"),
        false => ("send", "net.core.wmem_max", "the peer sends in smaller bursts, thus more slowly"),
    };
    CheckOutcome::warning(
        HostCheck::Buffers,
        format!("asked for a {buffer} buffer of {}, and got {}", text(wanted), text(granted)),
        effect,
        format!("sysctl -w {key}={wanted}"),
    )
    .with_limit(key, wanted as u64)
}

pub(super) fn check_drops(state: &HostState) -> Vec<CheckOutcome> {
    let group = SocketAddr::new(state.setup.group, state.setup.port);
    let inbox = state.peer.running().map(|peer| peer.status.inbox);
    let is_of_peer = |local: SocketAddr| local == group || Some(local) == inbox;
    let at_peers: u64 =
        state.udp_sockets.iter().filter(|socket| is_of_peer(socket.local)).map(|socket| socket.drops).sum();
    let outcome = match (at_peers, state.receive_buffer_errors) {
        (1.., _) => {
            let wanted = state.setup.receive_buffer.saturating_mul(2) as u64;
            CheckOutcome::warning(
                HostCheck::Drops,
                format!("the kernel has dropped {at_peers} datagrams at the sockets of peers: their buffers were full"),
                "messages are requested again, or lost with the cause LOCAL_OVERRUN",
                format!(
                    "sysctl -w net.core.rmem_max={wanted}, set the key receive-buffer to as much, restart the peer"
                ),
            )
            .with_limit("net.core.rmem_max", wanted)
        }
        (0, Some(errors @ 1..)) => CheckOutcome::notice(
            HostCheck::Drops,
            format!("the kernel has dropped {errors} datagrams of any programs since the start of the host"),
            "a peer that ran earlier may have missed some; the present sockets have missed none",
            "look at: nstat -az UdpRcvbufErrors".to_owned(),
        ),
        (0, _) => CheckOutcome::well(HostCheck::Drops, "the kernel has dropped no datagram for lack of buffer space"),
    };
    vec![outcome]
}

pub(super) fn check_clock(state: &HostState) -> Vec<CheckOutcome> {
    let command = "timedatectl set-ntp true";
    let outcome = match state.is_clock_kept {
        Some(true) => CheckOutcome::well(HostCheck::Clock, "a time service keeps the clock of this host"),
        Some(false) => CheckOutcome::notice(
            HostCheck::Clock,
            "no time service keeps the clock of this host",
            "stamps differ between hosts; beyond 10 s the time frames of sequence numbers do, too",
            command.to_owned(),
        )
        .with_command(command),
        None => return Vec::new(),
    };
    vec![outcome]
}
