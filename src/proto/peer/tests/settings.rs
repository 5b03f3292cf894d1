//! Settings of a peer, each with two values that lead to two outcomes.

use super::*;

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns a publisher with these settings that begins at 1000, whose HELLO the subscriber hears.
fn publisher_of(settings: Settings, subscriber: &mut Host) -> Host {
    let mut publisher = Host::of(settings, 2, 1000);
    publisher.tick(1000).iter().for_each(|hello| subscriber.receive(1000, publisher.address, hello));
    subscriber.drain();
    publisher
}

/// Returns a subscriber of `a` that begins at 0.
fn subscriber() -> Host {
    let mut host = Host::new("S.test", 1, 0);
    host.subscribe(0, "a");
    host
}

#[test]
fn name_in_use_by_another_peer_is_reported() {
    for (name, reports) in [("P.test", 2), ("Q.test", 0)] {
        let (mut s, mut p) = pair("a", 1000);
        let mut other = Host::new(name, 3, 1000);
        for millis in (1000..4000).step_by(10) {
            for host in [&mut p, &mut other] {
                host.tick(millis).iter().for_each(|datagram| s.receive(millis, host.address, datagram));
            }
            s.tick_quietly(millis);
        }
        let is_report = |effect: &Effect| matches!(effect, Effect::Member { event: MemberEvent::DuplicateName, .. });
        assert_eq!(s.drain().iter().filter(|effect| is_report(effect)).count(), reports, "{name}");
    }
}

#[test]
fn datagrams_of_another_port_are_discarded() {
    for (port, delivered) in [(7500, &["a"][..]), (7501, &[])] {
        let (mut s, mut p) = pair_of(Settings { group: port, ..settings("S.test") }, "a", 1000);
        s.receive(1001, p.address, &p.publish(1001, "a"));
        assert_eq!(s.take_reports(), delivered, "{port}");
    }
}

#[test]
fn silence_follows_the_publishers_heartbeat() {
    for (heartbeat, silent_at) in [(millis(1000), 4501), (millis(100), 1351)] {
        let mut s = subscriber();
        let mut p = publisher_of(Settings { heartbeat, ..settings("P.test") }, &mut s);
        s.receive(1001, p.address, &p.publish(1001, "a"));
        assert_eq!(s.take_reports(), ["a"]);
        s.tick_quietly(silent_at - 1);
        assert_eq!(s.take_reports(), [""; 0], "{heartbeat:?}");
        s.tick_quietly(silent_at);
        assert_eq!(s.take_reports(), ["SILENT after 1"], "{heartbeat:?}");
    }
}

#[test]
fn silent_peer_is_given_up_after_forget_time() {
    for (forget, crashed_at) in [(millis(10_000), 11_001), (millis(60_000), 61_001)] {
        let (mut s, mut p) = pair_of(Settings { forget, ..settings("S.test") }, "a", 1000);
        s.receive(1001, p.address, &p.publish(1001, "a"));
        s.tick_quietly(4501);
        assert_eq!(s.take_reports(), ["a", "SILENT after 1"]);
        s.tick_quietly(crashed_at - 1);
        assert_eq!(s.take_reports(), [""; 0], "{forget:?}");
        s.tick_quietly(crashed_at);
        assert_eq!(s.take_reports(), ["CRASHED after 1"], "{forget:?}");
    }
}

#[test]
fn message_above_the_size_limit_is_refused() {
    for message_size in [1000, 2000] {
        let mut p = Host::of(Settings { message_bytes_max: message_size, ..settings("P.test") }, 2, 1000);
        let mut refusals = |bytes: usize| {
            let request = ClientRequest::Publish(Message::new("a".parse().unwrap(), vec![7; bytes]));
            p.peer.handle(at(1000), Input::ClientRequest { client: CLIENT, request });
            p.drain().into_iter().filter(|effect| matches!(effect, Effect::Refuse { .. })).collect::<Vec<_>>()
        };
        assert_eq!(refusals(message_size), []);
        let refusal = Refusal::MessageTooLarge { bytes: message_size + 1, bytes_max: message_size };
        assert_eq!(refusals(message_size + 1), [Effect::Refuse { client: CLIENT, sub: None, refusal }]);
    }
}

#[test]
fn large_message_takes_fewer_large_datagrams() {
    for (datagram_size, datagrams) in [(1400, 4), (9000, 1)] {
        let limited = Settings { datagram_bytes_max: datagram_size, ..settings("P.test") };
        let mut p = publisher_of(limited, &mut subscriber());
        let sent = p.publish_large(1001, "a", 5000);
        assert_eq!(sent.len(), datagrams);
        assert!(sent.iter().all(|bytes| bytes.len() <= datagram_size));
    }
}

#[test]
fn gap_ends_early_above_the_hold_limit() {
    for (hold_size, overflows, delivered) in [(500, 1, &["a+1"][..]), (64 << 20, 0, &[])] {
        let (mut s, mut p) = pair_of(Settings { hold_bytes_max: hold_size, ..settings("S.test") }, "a", 1000);
        s.receive(1001, p.address, &p.publish(1001, "a"));
        assert_eq!(s.take_reports(), ["a"]);
        let _lost = p.publish(1001, "a");
        let held = p.publish_large(1001, "a", 1000);
        s.receive(1001, p.address, &held[0]);
        let reports = s.take_reports();
        let last = reports.last().map(String::as_str);
        assert_eq!((last, s.peer.counters().overflow_gaps), (delivered.first().copied(), overflows), "{reports:?}");
    }
}

#[test]
fn incomplete_message_above_reassembly_limit_is_given_up() {
    for (reassembly_size, reports) in [(2000, &["lost a 1-1 1 OVERFLOW", "a"][..]), (64 << 20, &["a", "a"])] {
        let limited = Settings { reassembly_bytes_max: reassembly_size, ..settings("S.test") };
        let (mut s, mut p) = pair_of(limited, "a", 1000);
        let (taken, whole) = (p.publish_large(1001, "a", 2000), p.publish_large(1002, "a", 2000));
        for datagram in [&taken[0], &whole[1], &whole[0], &taken[1]] {
            s.receive(1002, p.address, datagram);
        }
        s.tick_quietly(1010);
        assert_eq!(s.take_reports(), reports);
    }
}

#[test]
fn oldest_gap_ends_early_above_the_limit() {
    for (gaps_max, overflows) in [(1, 1), (2, 0)] {
        let (mut s, mut p) = pair_of(Settings { gaps_max, ..settings("S.test") }, "a", 1000);
        let datagrams: Vec<Bytes> = (0..5).map(|_| p.publish(1001, "a")).collect();
        for heard in [0, 2, 4] {
            s.receive(1001, p.address, &datagrams[heard]);
        }
        assert_eq!(s.peer.counters().overflow_gaps, overflows, "{gaps_max} gaps");
    }
}

#[test]
fn peers_are_followed_up_to_the_limit() {
    for peers_max in [1, 2] {
        let (mut s, _) = pair_of(Settings { peers_max, ..settings("S.test") }, "a", 1000);
        let mut other = Host::new("Q.test", 3, 1000);
        other.tick(1000).iter().for_each(|hello| s.receive(1000, other.address, hello));
        assert_eq!(s.peer.member_rows(at(1000)).len(), peers_max);
    }
}

#[test]
fn advisory_names_subjects_up_to_the_limit() {
    for (advisory_subjects, named) in [(1, 1), (64, 3)] {
        let limited = Settings { advisory_subjects_max: advisory_subjects, ..settings("S.test") };
        let (mut s, mut p) = pair_of(limited, ">", 1000);
        s.receive(1001, p.address, &p.publish(1001, "a b c"));
        let _lost = p.publish(1002, "a b c");
        s.receive(1003, p.address, &p.publish(1003, "a b c"));
        s.tick_quietly(1008);
        let advised: Vec<Effect> = s.drain().into_iter().filter(|e| matches!(e, Effect::Advise { .. })).collect();
        let [Effect::Advise { advisory, .. }] = &advised[..] else { panic!("{advised:?}") };
        assert_eq!((advisory.subjects.len(), advisory.subjects_count), (named, 3));
    }
}
