//! Table tests of the checks, on made-up hosts: each change of a healthy host gives its outcome.

use super::super::host::firewall::{FirewallRules, FirewallState};
use super::super::host::hubs::HubProbe;
use super::super::host::procfs::{MembershipTable, UdpSocketRow};
use super::super::host::running_peer::{LocalPeer, PeerFinding, RunningPeer};
use super::super::host::traffic::{HeardTraffic, InterfaceTest, SocketTest};
use super::super::host::{HostState, LinkKind};
use super::super::setup::PeerSetup;
use super::judge;
use crate::config::{Config, InterfaceSpec};
use crate::daemon::health::finding::Severity;
use crate::daemon::interface::tests::host;
use crate::daemon::interface::{ChoiceReason, ChooseError, ChosenInterface, Interface};
use crate::daemon::multicast::{BufferGrant, SocketOpenError};
use crate::daemon::self_test::SelfTestError;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

#[test]
fn healthy_host_has_no_defect() {
    for outcome in judge(&healthy()) {
        assert_eq!(outcome.state.as_str(), "ok", "{outcome:?}");
    }
    let mut state = healthy();
    state.peer = running();
    for outcome in judge(&state) {
        assert_eq!(outcome.state.as_str(), "ok", "{outcome:?}");
    }
}

#[test]
fn interface_defects_are_named() {
    check("interface broken", "no interface 'eth9'", |state| {
        state.choice = Err(ChooseError::NoSuchName { name: "eth9".into(), interfaces: Vec::new() });
    });
    check("interface notice", "leads to this host only", |state| {
        let chosen = state.choice.as_mut().unwrap();
        (chosen.name, chosen.loopback) = ("lo".into(), true);
    });
    check("interface broken", "no carrier", |state| state.interfaces[0].running = false);
    check("interface warning", "containers, virtual machines or a VPN", |state| {
        state.interfaces[0].name = rename(state, "wg0")
    });
    check("interface warning", "containers, virtual machines or a VPN", |state| {
        state.interfaces[0].point_to_point = true
    });
    check("link notice", "radio", |state| state.link = LinkKind::Wireless);
    check("container warning", "network of its own", |state| {
        (state.is_container, state.link) = (true, LinkKind::Veth);
    });
}

#[test]
fn defects_towards_the_group_are_named() {
    check("port broken", "the group's port is busy", |state| {
        state.test.as_mut().unwrap().sockets = Err(SocketOpenError::GroupBusy("239.255.83.67:7500".parse().unwrap()));
    });
    check("port warning", "0.0.0.0:7500 of user 7", |state| {
        state.udp_sockets.push(UdpSocketRow { local: "0.0.0.0:7500".parse().unwrap(), uid: 7, drops: 0 });
    });
    check("route broken", "no way to 239.255.83.67 by eth0", |state| {
        state.route = Err(io::Error::from_raw_os_error(libc::ENETUNREACH));
    });
    check("self_test broken", "does not come back", |state| {
        sockets(state).probe = Err(SelfTestError::Silence {
            group: "239.255.83.67:7500".parse().unwrap(),
            interface: "eth0".into(),
            timeout: Duration::from_secs(1),
            received_count: 0,
        });
    });
    check("self_test broken", "refuses to send", |state| {
        sockets(state).probe = Err(SelfTestError::Send {
            group: "239.255.83.67:7500".parse().unwrap(),
            interface: "eth0".into(),
            error: io::Error::from_raw_os_error(libc::EPERM),
        });
    });
    let rules = |drops: &[&str], is_closed| {
        let drops = drops.iter().map(|rule| (*rule).to_owned()).collect();
        FirewallState::Rules(FirewallRules { drops, is_closed, accepts_group: false })
    };
    check("firewall warning", "udp drop", |state| state.firewall = rules(&["udp drop"], false));
    check("firewall warning", "no rule names the UDP port 7500", |state| state.firewall = rules(&[], true));
    check("firewall unknown", "only root", |state| state.firewall = FirewallState::NeedsRoot);
    check("ttl warning", "this host", |state| state.setup.ttl = 0);
    check("mtu warning", "9000 bytes do not fit", |state| state.setup.datagram_bytes = Some(9000));
    check("mtu notice", "is 9000", |state| state.choice.as_mut().unwrap().mtu = 9000);
}

#[test]
fn reverse_path_filter_matters_with_two_interfaces() {
    let strict = |state: &mut HostState| state.rp_filter = 1;
    let mut alone = healthy();
    strict(&mut alone);
    assert!(judge(&alone).iter().all(|outcome| outcome.check != "reverse_path"));
    check("reverse_path warning", "whose route leaves by eth1", |state| {
        strict(state);
        let second = Interface { name: "eth1".into(), ..state.interfaces[0].clone() };
        state.interfaces.push(second);
    });
}

#[test]
fn limits_and_drops_are_named() {
    check("igmp warning", "IGMP V1", |state| state.memberships.as_mut().unwrap().version = Some("V1".into()));
    check("igmp broken", "no member of 239.255.83.67", |state| {
        state.peer = running();
        state.memberships.as_mut().unwrap().groups.clear();
    });
    check("memberships broken", "at most 0 multicast groups", |state| {
        state.memberships_max = Some(0);
        state.test.as_mut().unwrap().sockets = Err(SocketOpenError::MembershipsMax);
    });
    check("buffers warning", "asked for a receive buffer of 4 MiB, and got 208 KiB", |state| {
        let short = BufferGrant { receive: true, wanted: 4 << 20, granted: 212_992 };
        sockets(state).granted = [short, BufferGrant { receive: false, ..short }];
    });
    check("drops warning", "dropped 5 datagrams at the sockets of peers", |state| state.udp_sockets[0].drops = 5);
    check("drops notice", "dropped 9 datagrams of any programs", |state| state.receive_buffer_errors = Some(9));
    check("clock notice", "no time service", |state| state.is_clock_kept = Some(false));
}

#[test]
fn reports_of_the_running_peer_are_named() {
    check("peer ok", "none runs at", |_| ());
    check("peer ok", "not asked; the checks are about 239.255.83.67 port 7500", |state| {
        state.peer = LocalPeer::NotAsked
    });
    check("peer unknown", "no permission", |state| state.peer = LocalPeer::Unreachable("no permission".into()));
    let with = |change: fn(&mut RunningPeer)| {
        move |state: &mut HostState| {
            let LocalPeer::Running(mut peer) = running() else { unreachable!("it runs") };
            change(&mut peer);
            state.peer = LocalPeer::Running(peer);
        }
    };
    check(
        "peer broken",
        "it reports (interface): eth0 is down",
        with(|peer| {
            peer.findings.push(PeerFinding {
                check: "interface".into(),
                severity: Severity::Broken,
                found: "eth0 is down".into(),
                effect: "it is mute".into(),
                fix: "ip link set eth0 up".into(),
            });
        }),
    );
    let count = |name: &'static str| {
        move |state: &mut HostState| {
            state.peer = running();
            let LocalPeer::Running(peer) = &mut state.peer else { unreachable!("it runs") };
            peer.counters.insert(name.into(), 3);
        }
    };
    check("datagrams warning", "3 datagrams of another version", count("discard_version"));
    check("datagrams warning", "3 datagrams of another group", count("discard_group"));
    check("datagrams warning", "3 datagrams with damaged bytes", count("discard_check"));
    check("identity warning", "3 datagrams carried the epoch of a peer", count("discard_source"));
    check(
        "identity warning",
        "live peers share a name: B.1 at 10.0.0.2:5",
        with(|peer| {
            peer.peers[0].has_duplicate_name = true;
        }),
    );
    check("buffers warning", "got 208 KiB", with(|peer| peer.status.receive_buffer = 212_992));
}

/// Changes the healthy host into one with a gateway whose link has these fields, and rows of losses of other sites.
fn gateway(fields: serde_json::Value, losses: serde_json::Value) -> impl FnOnce(&mut HostState) {
    move |state| {
        state.peer = running();
        let LocalPeer::Running(peer) = &mut state.peer else { unreachable!("it runs") };
        peer.link = json!({
            "site": "plant1", "gateway": "1f6e2c5a90b3d874", "hubs": ["nats://hub1:4222"], "state": "connected",
            "fault": null, "conflict": null, "exports": ["plant.>"], "imports": [], "unsent": 0, "unread": 0,
        });
        for (field, value) in fields.as_object().expect("fields") {
            peer.link[field] = value.clone();
        }
        peer.site_losses = losses.as_array().expect("rows").clone();
    }
}

#[test]
fn defects_of_the_link_are_named() {
    let none = || json!([]);
    check("sites ok", "it exports plant.> and imports nothing", gateway(json!({}), none()));
    for (fields, found) in [
        (json!({ "state": "connecting" }), "no server of the cluster answers"),
        (json!({ "state": "failed", "fault": "the peer has ended" }), "the link is failed: the peer has ended"),
        (json!({ "state": "connecting", "fault": "authorization violation" }), "refuses the credentials"),
        (json!({ "fault": "permissions violation" }), "the cluster refuses: permissions violation"),
        (json!({ "conflict": "another LAN is called plant1, too" }), "another LAN is called plant1"),
        (json!({ "unsent": 3 }), "3 messages were not exported"),
        (json!({ "unread": 4 }), "4 messages of the cluster were dropped"),
        (json!({ "requests_dropped": 5 }), "5 messages that are requests or replies were dropped"),
        (json!({ "events": { "too_large": 6 } }), "6 messages with events were not relayed"),
        (json!({ "durable": { "unstored": 7 } }), "7 messages on durable subjects were not stored"),
        (
            json!({ "durable": { "open": false, "fault": "the stream is full" } }),
            "durable messages: the stream is full",
        ),
    ] {
        check("sites warning", found, gateway(fields, none()));
    }
    let loss = |site: &str, lost: serde_json::Value, tails: u64| json!({ "site": site, "lost": lost, "tails": tails });
    let losses = json!([loss("hq", json!(40), 0), loss("hq", json!(2), 0), loss("oslo", json!({ "min": 3 }), 1)]);
    check("sites warning", "42 messages of site hq were lost", gateway(json!({}), losses.clone()));
    check("sites warning", "at least 3 messages of site oslo", gateway(json!({}), losses));
}

#[test]
fn servers_of_a_cluster_are_reached_or_named() {
    let probe =
        |failure: Option<&str>| HubProbe { address: "nats://hub1:4222".into(), failure: failure.map(str::to_owned) };
    check("sites ok", "nats://hub1:4222 of the cluster accepts connections", |state| state.hubs = vec![probe(None)]);
    check("sites warning", "nats://hub1:4222 of the cluster is not reached: refused", |state| {
        state.hubs = vec![probe(Some("refused"))];
    });
}

#[test]
fn foreign_datagrams_are_named_with_their_sources() {
    let source = || ["10.0.0.9:4000".parse().unwrap()].into();
    check("traffic warning", "another program arrive in 239.255.83.67 port 7500, from 10.0.0.9:4000", |state| {
        sockets(state).probe.as_mut().unwrap().foreign = source();
    });
    check("traffic warning", "another version or security mode send here: 10.0.0.9:4000", |state| {
        sockets(state).probe.as_mut().unwrap().incompatible = source();
    });
    check("traffic ok", "a peer of another host was heard", |state| {
        sockets(state).probe.as_mut().unwrap().peers = source();
    });
}

/// Changes a healthy host and expects one outcome with this check and state, whose text contains `found`. What is not
/// well has a remedy.
fn check(expected: &str, found: &str, change: impl FnOnce(&mut HostState)) {
    let mut state = healthy();
    change(&mut state);
    let outcomes = judge(&state);
    let named = |outcome: &&_| -> String {
        let outcome: &super::CheckOutcome = outcome;
        format!("{} {}", outcome.check, outcome.state.as_str())
    };
    let outcome = outcomes.iter().find(|outcome| named(outcome) == expected && outcome.found.contains(found));
    let outcome = outcome.unwrap_or_else(|| panic!("no {expected} with {found:?} in {outcomes:#?}"));
    assert!(expected.ends_with("ok") || outcome.fix.is_some(), "{outcome:?}");
}

/// Returns the test of the chosen interface.
fn sockets(state: &mut HostState) -> &mut SocketTest {
    state.test.as_mut().unwrap().sockets.as_mut().unwrap()
}

/// Gives the chosen interface another name, and returns it.
fn rename(state: &mut HostState, name: &str) -> String {
    state.choice.as_mut().unwrap().name = name.to_owned();
    name.to_owned()
}

/// Returns a host with one interface, on which nothing is wrong and no peer runs.
fn healthy() -> HostState {
    let mut config = Config::default();
    config.interface = InterfaceSpec::Name("eth0".into());
    let grant = |receive, bytes| BufferGrant { receive, wanted: bytes, granted: bytes };
    HostState {
        setup: PeerSetup::of_config(&config),
        socket: config.socket.clone(),
        peer: LocalPeer::Absent,
        interfaces: host("eth0 10.0.0.1"),
        choice: Ok(ChosenInterface {
            name: "eth0".into(),
            index: 1,
            address: [10, 0, 0, 1].into(),
            mtu: 1500,
            loopback: false,
            reason: ChoiceReason::Named,
            others: Vec::new(),
        }),
        link: LinkKind::Other,
        is_container: false,
        udp_sockets: vec![UdpSocketRow { local: "239.255.83.67:7500".parse().unwrap(), uid: 0, drops: 0 }],
        receive_buffer_errors: Some(0),
        memberships: Some(MembershipTable { version: Some("V3".into()), groups: vec![config.group] }),
        memberships_max: Some(20),
        rp_filter: 0,
        route: Ok(()),
        test: Some(InterfaceTest {
            interface: "eth0".into(),
            sockets: Ok(SocketTest {
                granted: [grant(true, 4 << 20), grant(false, 1 << 20)],
                probe: Ok(HeardTraffic::default()),
            }),
        }),
        other_tests: Vec::new(),
        firewall: FirewallState::Rules(FirewallRules::default()),
        is_clock_kept: Some(true),
        hubs: Vec::new(),
    }
}

/// Returns a running peer that hears one other peer.
fn running() -> LocalPeer {
    let status = json!({
        "name": "A.1", "epoch": "1f6e2c5a90b3d874", "version": "1", "pid": 1, "uptime_ms": 600_000, "phase": "running",
        "group": "239.255.83.67", "port": 7500, "ttl": 1, "inbox": "10.0.0.1:5", "interface": "eth0",
        "address": "10.0.0.1", "interface_reason": "named", "loopback": false, "mtu": 1500, "datagram_bytes": 1472,
        "message_bytes_max": 1, "receive_buffer": 4 << 20, "receive_buffer_wanted": 4 << 20, "send_buffer": 1 << 20,
        "send_buffer_wanted": 1 << 20, "socket": null, "clients": 0, "send_queue": 0, "flow_excluded": [],
        "transport": "multicast", "copies_to": [], "open_to_network": false,
    });
    let other = json!({
        "user": "B.1", "publisher": "B.1", "epoch": "2f6e2c5a90b3d874", "uid": 1, "address": "10.0.0.2:5",
        "state": "up", "uptime_ms": 1, "last_heard_ms": 1, "messages_in": 0, "datagrams_in": 0, "lost": 0,
        "unverified": 0, "duplicate_name": false, "multicast_dead": false, "proven": true, "flow_exclusion": null,
        "flow_exclusion_count": 0, "kernel_drops": 0, "reached_by": "multicast",
    });
    LocalPeer::Running(Box::new(RunningPeer {
        status: serde_json::from_value(status).expect("a status"),
        peers: vec![serde_json::from_value(other).expect("a peer")],
        counters: BTreeMap::new(),
        findings: Vec::new(),
        link: serde_json::Value::Null,
        site_losses: Vec::new(),
    }))
}
