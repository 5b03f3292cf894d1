//! Tests of the checks, sample by sample.

use super::*;
use crate::event::model::ServerId;
use crate::message::{Epoch, Publisher};

fn network() -> NetworkSetup {
    NetworkSetup {
        name: "A.test".to_owned(),
        interface: "eth0".to_owned(),
        is_loopback: false,
        address: [10, 0, 0, 7].into(),
        group: ([239, 1, 2, 3], 7500).into(),
        ttl: 1,
        has_copies: false,
        is_open: false,
        reliability: Duration::from_secs(2),
    }
}

fn at(millis: u64) -> ClockReading {
    const WALL_MILLIS: u64 = 1_700_000_000_000;
    ClockReading {
        instant: Instant::from_nanos(millis * 1_000_000),
        wall: WallTime::from_nanos((WALL_MILLIS + millis) * 1_000_000),
    }
}

/// Returns a peer that is up, by its name and its number here.
fn peer(user: &str) -> MemberRow {
    let (name, uid) = user.split_once('.').unwrap();
    MemberRow {
        publisher: Publisher {
            name: Some(name.parse().unwrap()),
            epoch: Epoch::new(7).unwrap(),
            uid: uid.parse().unwrap(),
        },
        address: ([10, 0, 0, 8], 9).into(),
        state: MemberState::Up,
        uptime: Duration::ZERO,
        last_heard: Duration::ZERO,
        messages_in: 0,
        datagrams_in: 0,
        lost: 0,
        unverified: 0,
        duplicate_name: false,
        member: None,
        has_foreign_name: false,
        is_multicast_dead: false,
        is_unicast_absent: false,
        is_proven: true,
        flow_exclusion: None,
        flow_exclusion_count: 0,
        kernel_drops: None,
        clock_offset: None,
    }
}

fn seen(peers: &[MemberRow]) -> Observation {
    Observation {
        interface: InterfaceState::Usable,
        refused: None,
        peers: peers.to_vec(),
        foreign_peers: Vec::new(),
        multicasts: MulticastCounts::default(),
        requests: Vec::new(),
        kernel_drops: 0,
        receive_buffer: BufferGrant { receive: true, wanted: 4_194_304, granted: 212_992 },
        server_id_conflict: None,
        untrusted: None,
        denied: None,
        forged: None,
        interest_forgeries: 0,
        certificate_problem: None,
        path_limit: None,
        link_problem: None,
    }
}

/// Returns the checks whose findings have begun (+) and ended (-).
fn changes(monitor: &mut HealthMonitor, millis: u64, seen: &Observation) -> Vec<String> {
    let line = |change: HealthChange| match change {
        HealthChange::Raised(finding) => format!("+{} {}", finding.check.as_str(), finding.severity.as_str()),
        HealthChange::Cleared(check, _) => format!("-{}", check.as_str()),
    };
    monitor.update(at(millis), seen).into_iter().map(line).collect()
}

#[test]
fn healthy_peer_has_no_finding() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    for second in 1..60 {
        assert_eq!(changes(&mut monitor, second * 1000, &seen(&[peer("B.1")])), [""; 0]);
    }
    assert_eq!(monitor.worst(), None);
}

#[test]
fn unusable_interface_is_raised_and_cleared_once() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let down = Observation { interface: InterfaceState::Down, ..seen(&[peer("B.1")]) };
    assert_eq!(changes(&mut monitor, 1000, &down), ["+interface broken"]);
    assert_eq!(changes(&mut monitor, 2000, &down), [""; 0]);
    let text = |monitor: &HealthMonitor| monitor.findings().next().unwrap().finding.to_string();
    assert!(text(&monitor).starts_with("eth0 is down: ") && text(&monitor).ends_with("ip link set eth0 up"));
    let moved = Observation { interface: InterfaceState::AddressGone(vec![[10, 0, 0, 9].into()]), ..down };
    assert_eq!(changes(&mut monitor, 3000, &moved), [""; 0]);
    assert!(text(&monitor).starts_with("eth0 has the address 10.0.0.9 instead of 10.0.0.7"));
    let back = monitor.update(at(4000), &seen(&[peer("B.1")]));
    assert_eq!(back, [HealthChange::Cleared(Check::Interface, "eth0 is back, with the address 10.0.0.7".to_owned())]);
}

#[test]
fn refused_datagrams_are_found_for_half_a_minute() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let refused = |errno| Observation { refused: Some(RefusedSend { to: None, errno }), ..seen(&[peer("B.1")]) };
    assert_eq!(changes(&mut monitor, 1000, &refused(libc::EPERM)), ["+sending broken"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert!(finding.found.contains("multicasts to 239.1.2.3:7500 on eth0"), "{finding}");
    assert!(finding.fix.contains("firewall"), "{finding}");
    assert_eq!(changes(&mut monitor, 30_000, &seen(&[peer("B.1")])), [""; 0]);
    assert_eq!(changes(&mut monitor, 31_000, &seen(&[peer("B.1")])), ["-sending"]);
    // An interface that is down explains it.
    let down = Observation { interface: InterfaceState::Down, ..refused(libc::ENETUNREACH) };
    assert_eq!(changes(&mut monitor, 32_000, &down), ["+interface broken"]);
}

#[test]
fn dead_multicast_names_the_likely_side() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let dead = |name| MemberRow { is_multicast_dead: true, ..peer(name) };
    assert_eq!(changes(&mut monitor, 1000, &seen(&[dead("B.1"), peer("C.2")])), ["+multicast warning"]);
    assert_eq!(changes(&mut monitor, 2000, &seen(&[dead("B.1"), dead("C.2")])), ["+multicast broken"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert!(finding.found.contains("B.1, C.2") && finding.fix.contains("UDP port 7500"), "{finding}");
    assert!(finding.fix.contains("seqcast doctor --with 10.0.0.8 tests"), "{finding}");
    assert_eq!(changes(&mut monitor, 3000, &seen(&[peer("B.1"), peer("C.2")])), ["-multicast"]);
    let mut copying = HealthMonitor::new(NetworkSetup { has_copies: true, ..network() }, at(0));
    assert_eq!(changes(&mut copying, 1000, &seen(&[dead("B.1"), dead("C.2")])), ["+multicast warning"]);
    let finding = copying.findings().next().unwrap().finding.clone();
    assert!(finding.fix.contains("add 10.0.0.7 to 'peers' of these hosts"), "{finding}");
}

/// Returns a peer that was last heard this number of milliseconds ago.
fn silent(user: &str, millis: u64) -> MemberRow {
    MemberRow { state: MemberState::Silent, last_heard: Duration::from_millis(millis), ..peer(user) }
}

#[test]
fn peers_that_fall_silent_together_are_found() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let named = |row: MemberRow, name: &str, host: u8| MemberRow {
        publisher: Publisher { name: Some(name.parse().unwrap()), ..row.publisher },
        address: ([10, 0, 0, host], 9).into(),
        ..row
    };
    let (b, c) = (named(silent("B.1", 3600), "B.x", 8), named(silent("C.2", 4400), "C.x", 9));
    assert_eq!(changes(&mut monitor, 1000, &seen(&[b.clone(), c.clone()])), ["+multicast broken"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert!(finding.found.starts_with("all 2 peers fell silent at once: B.1, C.2"), "{finding}");
    assert!(finding.fix.contains("the switch port"), "{finding}");
    // Peers of one host have the host in common.
    let other = named(c.clone(), "C.x", 8);
    assert_eq!(changes(&mut monitor, 2000, &seen(&[b.clone(), other])), [""; 0]);
    assert!(monitor.findings().next().unwrap().finding.fix.contains("ping 10.0.0.8"));
    for healthy in [
        vec![b.clone(), peer("C.2")],
        // One peer was killed, or one after the other, or one that had been started again.
        vec![b.clone()],
        vec![b.clone(), named(silent("C.2", 5700), "C.x", 9)],
        vec![b.clone(), named(silent("C.2", 3600), "B.x", 9)],
        // A peer that sent BYE has left.
        vec![b.clone(), MemberRow { state: MemberState::Left, ..c.clone() }],
    ] {
        let mut monitor = HealthMonitor::new(network(), at(0));
        assert_eq!(changes(&mut monitor, 1000, &seen(&healthy)), [""; 0], "{healthy:?}");
    }
    let mut loopback = HealthMonitor::new(NetworkSetup { is_loopback: true, ..network() }, at(0));
    assert_eq!(changes(&mut loopback, 1000, &seen(&[b, c])), [""; 0]);
}

#[test]
fn own_multicasts_that_do_not_return_are_found() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let dead = MemberRow { is_multicast_dead: true, ..peer("B.1") };
    let counted = |sent, returned| Observation {
        multicasts: MulticastCounts { sent, returned },
        ..seen(std::slice::from_ref(&dead))
    };
    let alive = |sent, returned| Observation { peers: vec![peer("B.1")], ..counted(sent, returned) };
    assert_eq!(changes(&mut monitor, 1000, &alive(4, 4)), [""; 0]);
    // A burst of this moment still comes back.
    assert_eq!(changes(&mut monitor, 2000, &alive(900, 4)), [""; 0]);
    assert_eq!(changes(&mut monitor, 3000, &alive(901, 900)), [""; 0]);
    assert_eq!(changes(&mut monitor, 4000, &alive(902, 900)), [""; 0]);
    assert_eq!(changes(&mut monitor, 5000, &alive(903, 900)), [""; 0]);
    assert_eq!(changes(&mut monitor, 6000, &counted(904, 900)), ["+multicast broken"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert!(finding.found.contains("does not return") && finding.found.ends_with("nor do those of B.1 arrive"));
    assert!(finding.fix.contains("UDP port 7500"), "{finding}");
    assert_eq!(changes(&mut monitor, 7000, &alive(905, 901)), ["-multicast"]);
}

#[test]
fn lonely_peer_is_noticed_after_ten_seconds() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    assert_eq!(changes(&mut monitor, 9_900, &seen(&[])), [""; 0]);
    assert_eq!(changes(&mut monitor, 10_000, &seen(&[])), ["+peers notice"]);
    assert_eq!(changes(&mut monitor, 11_000, &seen(&[peer("B.1")])), ["-peers"]);
    // Peers that were heard once may leave.
    assert_eq!(changes(&mut monitor, 90_000, &seen(&[])), [""; 0]);
    let mut loopback = HealthMonitor::new(NetworkSetup { is_loopback: true, ..network() }, at(0));
    assert_eq!(changes(&mut loopback, 60_000, &seen(&[])), [""; 0]);
    let mut local = HealthMonitor::new(NetworkSetup { ttl: 0, ..network() }, at(0));
    local.update(at(10_000), &seen(&[]));
    assert!(local.findings().next().unwrap().finding.fix.contains("ttl: 1"));
}

#[test]
fn clock_step_is_a_finding_in_both_directions() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let seen = seen(&[peer("B.1")]);
    let shifted = |millis, shift: i64| {
        let wall = at(millis).wall.as_nanos().checked_add_signed(shift * 1_000_000_000).unwrap();
        ClockReading { wall: WallTime::from_nanos(wall), ..at(millis) }
    };
    assert_eq!(monitor.update(shifted(1000, 0), &seen), []);
    let raised = monitor.update(shifted(2000, -3600), &seen);
    assert!(matches!(&raised[..], [HealthChange::Raised(finding)] if finding.found.ends_with("went back by 60 min")));
    assert_eq!(monitor.update(shifted(3000, -3600), &seen), [], "the same step is no second one");
    assert_eq!(monitor.update(shifted(32_000, -3600), &seen).len(), 1, "the finding has ended");
    let raised = monitor.update(shifted(33_000, -3598), &seen);
    assert!(matches!(&raised[..], [HealthChange::Raised(finding)] if finding.found.ends_with("went forward by 2 s")));
    // A suspended host is no clock step: both clocks may stand still or go on.
    assert_eq!(monitor.update(shifted(34_000, -3598), &seen), []);
}

#[test]
fn peer_without_unicasts_is_found_after_its_start() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let absent = |seconds| MemberRow { is_unicast_absent: true, uptime: Duration::from_secs(seconds), ..peer("B.1") };
    assert_eq!(changes(&mut monitor, 1000, &seen(&[absent(4)])), [""; 0]);
    assert_eq!(changes(&mut monitor, 2000, &seen(&[absent(5)])), ["+unicast warning"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert!(finding.found.contains("B.1 on the host 10.0.0.8 arrive, their unicasts do not"), "{finding}");
    let silent = MemberRow { state: MemberState::Silent, ..absent(6) };
    assert_eq!(changes(&mut monitor, 3000, &seen(&[silent])), ["-unicast"]);
}

#[test]
fn kernel_drops_are_found_while_they_grow() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let dropped = |kernel_drops| Observation { kernel_drops, ..seen(&[peer("B.1")]) };
    assert_eq!(changes(&mut monitor, 1000, &dropped(7)), ["+kernel_drops warning"]);
    assert_eq!(changes(&mut monitor, 2000, &dropped(12)), [""; 0]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert!(finding.found.contains("12 datagrams") && finding.found.contains("212992 bytes"), "{finding}");
    assert!(finding.fix.contains("sysctl -w net.core.rmem_max=4194304"), "{finding}");
    assert_eq!(changes(&mut monitor, 31_000, &dropped(12)), [""; 0]);
    assert_eq!(changes(&mut monitor, 32_000, &dropped(12)), ["-kernel_drops"]);
    let granted = BufferGrant { receive: true, wanted: 4_194_304, granted: 4_194_304 };
    let full = Observation { receive_buffer: granted, ..dropped(13) };
    assert_eq!(changes(&mut monitor, 33_000, &full), ["+kernel_drops warning"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert!(finding.found.contains("dropped 1 datagram,") && finding.fix.contains("'receive-buffer'"), "{finding}");
}

#[test]
fn clock_skew_names_both_peers() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let skewed = |user, seconds: i64, age| MemberRow {
        clock_offset: Some((seconds * 1_000_000_000, Duration::from_secs(age))),
        ..peer(user)
    };
    assert_eq!(changes(&mut monitor, 1000, &seen(&[skewed("B.1", 8, 1), skewed("C.2", -8, 1)])), [""; 0]);
    // The message was on its way for some milliseconds.
    let late = MemberRow { clock_offset: Some((59_997_000_000, Duration::from_secs(1))), ..peer("B.1") };
    assert_eq!(changes(&mut monitor, 2000, &seen(&[late])), ["+skew warning"]);
    let text = |monitor: &HealthMonitor| monitor.findings().next().unwrap().finding.found.clone();
    let expected = "the clock of B.1 on the host 10.0.0.8 is 60 s ahead of that of A.test on the host 10.0.0.7";
    assert_eq!(text(&monitor), expected);
    monitor.update(at(3000), &seen(&[skewed("B.1", 60, 1), skewed("C.2", -7200, 1)]));
    assert!(text(&monitor).starts_with("the clock of C.2 on the host 10.0.0.8 is 2 h behind that of A.test"));
    assert!(text(&monitor).ends_with("the clocks of 1 more peers differ by a time frame or more, too"));
    assert_eq!(changes(&mut monitor, 4000, &seen(&[skewed("B.1", 60, 601)])), ["-skew"]);
}

#[test]
fn duplicate_names_are_listed_up_to_three() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let doubles: Vec<MemberRow> =
        (0..5).map(|index| MemberRow { duplicate_name: true, ..peer(&format!("B.{index}")) }).collect();
    assert_eq!(changes(&mut monitor, 1000, &seen(&doubles)), ["+names warning"]);
    let found = &monitor.findings().next().unwrap().finding.found;
    assert!(found.contains("B.0 on the host 10.0.0.8, B.1 on the host") && found.ends_with(" and 2 more"), "{found}");
}

#[test]
fn duplicate_server_id_names_both_hosts() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let conflict = ServerIdConflict {
        server: ServerId(7),
        other: peer("B.1").publisher,
        other_host: Some([10, 0, 0, 8].into()),
        own_host: [10, 0, 0, 7].into(),
    };
    let seen = Observation { server_id_conflict: Some(conflict), ..seen(&[peer("B.1")]) };
    assert_eq!(changes(&mut monitor, 1000, &seen), ["+server_id warning"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    for part in ["the peer B (", "on the host 10.0.0.8 registers events of server 7 too", "on the host 10.0.0.7"] {
        assert!(finding.found.contains(part), "{finding}");
    }
}

#[test]
fn peer_of_another_group_names_the_keys() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let foreign = |group: [u8; 4], port| ForeignPeer::example("B", [10, 0, 0, 8].into(), group.into(), port);
    let of =
        |foreign_peers: &[ForeignPeer]| Observation { foreign_peers: foreign_peers.to_vec(), ..seen(&[peer("B.1")]) };
    assert_eq!(changes(&mut monitor, 1000, &of(&[foreign([239, 1, 2, 3], 7501)])), ["+groups notice"]);
    let text = |monitor: &HealthMonitor| monitor.findings().next().unwrap().finding.to_string();
    let expected = "a peer B (10.0.0.8) of group 239.1.2.3 port 7501 is on this LAN: the two do not hear each other; \
                    if they belong together, set port: 7501 here, or port: 7500 there; if not, set beacon: off";
    assert_eq!(text(&monitor), expected);
    changes(&mut monitor, 2000, &of(&[foreign([239, 9, 9, 9], 7500)]));
    assert!(text(&monitor).contains("set group: 239.9.9.9 here, or group: 239.1.2.3 there"));
    changes(&mut monitor, 3000, &of(&[foreign([239, 9, 9, 9], 7501), foreign([239, 9, 9, 9], 7502)]));
    assert!(text(&monitor).contains("set group: 239.9.9.9 and port: 7501 here, or group: 239.1.2.3 and port: 7500"));
    assert!(text(&monitor).contains("is on this LAN, and 1 more of other groups"));
    assert_eq!(changes(&mut monitor, 4000, &of(&[])), ["-groups"]);
}

#[test]
fn size_that_does_not_arrive_is_named() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let receiver = |user: &str| (peer(user).publisher, peer(user).address);
    let of = |failing, arriving, users: &[&str]| {
        let receivers = users.iter().map(|user| receiver(user)).collect();
        Observation { path_limit: Some(PathLimit { failing, arriving, receivers }), ..seen(&[peer("B.1")]) }
    };
    assert_eq!(changes(&mut monitor, 1000, &of(1472, 1400, &["B.1"])), ["+mtu warning"]);
    let text = |monitor: &HealthMonitor| monitor.findings().next().unwrap().finding.to_string();
    let expected = "datagrams of 1472 bytes do not arrive at B.1 on the host 10.0.0.8, those of 1400 bytes do; this \
                    peer sends no larger ones until it is restarted: messages sent before came late or were lost; \
                    raise the MTU on the way to that host, or set datagram-size: 1400 bytes; to measure the path, run: \
                    seqcast doctor --with 10.0.0.8";
    assert_eq!(text(&monitor), expected);
    assert_eq!(changes(&mut monitor, 2000, &of(1400, 1200, &["B.1", "C.2", "D.3", "E.4"])), [""; 0]);
    let found = "datagrams of 1400 bytes do not arrive at B.1 on the host 10.0.0.8, C.2 on the host 10.0.0.8, D.3 on \
                 the host 10.0.0.8 and 1 more, those of 1200 bytes do";
    assert!(text(&monitor).contains(found), "{}", text(&monitor));
}

#[test]
fn publisher_that_answers_no_request_is_found() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let totals = |repaired, missed, unrepaired_reports| Observation {
        requests: vec![(Epoch::new(7).unwrap(), RequestTotals { repaired, missed, unrepaired_reports })],
        ..seen(&[peer("B.1")])
    };
    // Too few, and others that need no request: the publisher has nothing to answer with.
    assert_eq!(changes(&mut monitor, 1000, &totals(0, 2, 1)), [""; 0]);
    assert_eq!(changes(&mut monitor, 2000, &totals(5, 20, 1)), [""; 0]);
    assert_eq!(changes(&mut monitor, 3000, &totals(5, 90, 1)), [""; 0]);
    assert_eq!(changes(&mut monitor, 4000, &totals(5, 93, 2)), ["+requests warning"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert!(finding.found.ends_with("of B.1 on the host 10.0.0.8 stay unanswered"), "{finding}");
    assert!(finding.fix.contains("admit UDP from 10.0.0.7"), "{finding}");
    assert_eq!(changes(&mut monitor, 5000, &totals(6, 93, 2)), ["-requests"], "an answer has come");
    assert_eq!(changes(&mut monitor, 6000, &totals(6, 99, 3)), ["+requests warning"]);
    assert_eq!(changes(&mut monitor, 35_000, &totals(6, 99, 3)), [""; 0]);
    assert_eq!(changes(&mut monitor, 36_000, &totals(6, 99, 3)), ["-requests"], "nothing was requested for long");
    let silent = MemberRow { state: MemberState::Silent, ..peer("B.1") };
    let silent = Observation { peers: vec![silent], ..totals(6, 109, 4) };
    assert_eq!(changes(&mut monitor, 37_000, &silent), [""; 0], "nothing of the publisher arrives");
    let hasty = NetworkSetup { reliability: Duration::from_millis(100), ..network() };
    let mut hasty = HealthMonitor::new(hasty, at(0));
    assert_eq!(changes(&mut hasty, 1000, &totals(0, 9, 3)), [""; 0], "the answers may only be late");
}

#[test]
fn open_peer_beyond_loopback_is_found() {
    let open = NetworkSetup { is_open: true, ..network() };
    let findings = |network: NetworkSetup| changes(&mut HealthMonitor::new(network, at(0)), 1000, &seen(&[]));
    assert_eq!(findings(open.clone()), ["+open notice"]);
    let loopback = NetworkSetup { is_loopback: true, ..open };
    assert_eq!(findings(loopback.clone()), ["+open notice"], "lo has an address that others can reach");
    let alone = NetworkSetup { address: [127, 0, 0, 1].into(), ..loopback };
    assert_eq!(findings(alone), [""; 0]);
}

#[test]
fn copied_keys_differ_from_shared_names() {
    let namesake = |host: u8| MemberRow { duplicate_name: true, address: ([10, 0, 0, host], 9).into(), ..peer("B.1") };
    let findings = |is_open: bool, peers: &[MemberRow]| {
        changes(&mut HealthMonitor::new(NetworkSetup { is_open, ..network() }, at(0)), 1000, &seen(peers))
    };
    assert_eq!(findings(false, &[namesake(8), namesake(9)]), ["+identity warning"]);
    assert_eq!(findings(false, &[namesake(8), namesake(8)]), ["+names warning"], "two peers of one host");
    assert_eq!(findings(true, &[namesake(8), namesake(9)]), ["+names warning", "+open notice"]);
}

#[test]
fn impostor_is_named_and_no_copy() {
    let impostor = MemberRow {
        duplicate_name: true,
        member: Some("C.test".parse().unwrap()),
        has_foreign_name: true,
        address: ([10, 0, 0, 9], 9).into(),
        ..peer("B.2")
    };
    let honest = MemberRow { duplicate_name: true, member: Some("B".parse().unwrap()), ..peer("B.1") };
    let mut monitor = HealthMonitor::new(network(), at(0));
    assert_eq!(changes(&mut monitor, 1000, &seen(&[honest.clone(), impostor])), ["+identity warning"]);
    let found = &monitor.findings().next().unwrap().finding.found;
    assert_eq!(found, "the peer B.2 on the host 10.0.0.9 announces the name of another host; it is a peer of C.test");
    let single = MemberRow { duplicate_name: false, ..honest };
    assert_eq!(changes(&mut monitor, 2000, &seen(&[single])), ["-identity"]);
}

#[test]
fn forged_data_is_named_for_half_a_minute() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let forged = Some(ForgedPeer { address: ([10, 0, 0, 9], 4000).into(), name: "B.test".to_owned() });
    assert_eq!(changes(&mut monitor, 1000, &Observation { forged, ..seen(&[]) }), ["+origin broken"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert_eq!(finding.found, "a member of the realm has sent data in the name of B.test at 10.0.0.9:4000");
    assert_eq!(changes(&mut monitor, 40_000, &seen(&[])), ["+peers notice", "-origin"]);
}

#[test]
fn forged_subscriptions_are_found_for_half_a_minute() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let sample = |interest_forgeries| Observation { interest_forgeries, ..seen(&[peer("B.1")]) };
    assert_eq!(changes(&mut monitor, 1000, &sample(0)), [""; 0]);
    assert_eq!(changes(&mut monitor, 2000, &sample(2)), ["+interest broken"]);
    assert_eq!(changes(&mut monitor, 31_000, &sample(2)), [""; 0]);
    assert_eq!(changes(&mut monitor, 33_000, &sample(2)), ["-interest"]);
}

#[test]
fn refused_peer_is_named_for_half_a_minute() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let untrusted =
        UntrustedPeer { address: ([10, 0, 0, 9], 4000).into(), reason: "its certificate expired; sign it".to_owned() };
    let refusal = Observation { untrusted: Some(untrusted), ..seen(&[]) };
    assert_eq!(changes(&mut monitor, 1000, &refusal), ["+trust warning"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert_eq!(finding.found, "the peer at 10.0.0.9:4000 is not trusted: its certificate expired");
    assert_eq!(finding.fix, "sign it");
    assert_eq!(changes(&mut monitor, 5000, &seen(&[])), [""; 0]);
    assert_eq!(changes(&mut monitor, 40_000, &seen(&[])), ["+peers notice", "-trust"]);
    let problem = Observation { certificate_problem: Some("it expired; sign it".to_owned()), ..seen(&[]) };
    assert_eq!(changes(&mut monitor, 41_000, &problem), ["+certificate broken"]);
}

#[test]
fn denied_message_is_named_for_half_a_minute() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let denied = DeniedPublication {
        publisher: peer("sensor.1").publisher,
        member: Some("B.test".parse().unwrap()),
        subject: "cmd.stop".parse().unwrap(),
    };
    let sample = Observation { denied: Some(denied), ..seen(&[]) };
    assert_eq!(changes(&mut monitor, 1000, &sample), ["+permissions warning"]);
    let finding = monitor.findings().next().unwrap().finding.clone();
    assert_eq!(finding.found, "sensor.1 publishes on cmd.stop, which the certificate of B.test does not permit");
    assert!(finding.fix.starts_with("sign a new request of B.test"), "{}", finding.fix);
    assert_eq!(changes(&mut monitor, 40_000, &seen(&[])), ["+peers notice", "-permissions"]);
}

#[test]
fn link_problem_is_found_until_it_ends() {
    let mut monitor = HealthMonitor::new(network(), at(0));
    let found = "the link is connecting: IO error".to_owned();
    let without = Observation { link_problem: Some(found.clone()), ..seen(&[peer("B.1")]) };
    assert_eq!(changes(&mut monitor, 1000, &without), ["+link warning"]);
    assert!(monitor.findings().any(|active| active.finding.found == found));
    assert_eq!(changes(&mut monitor, 2000, &seen(&[peer("B.1")])), ["-link"]);
}
