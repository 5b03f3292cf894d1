//! An attacker on the LAN of keyed peers, who forges datagrams with code of its own. At first it has no key of their
//! realm, then all the keys that a member has got.
//!
//! Two hosts publish to each other throughout. The attacker, on a third host, has recorded everything that arrived at
//! the victim, and sends with any source address. The fourth host is the one that reflected datagrams would hit. The
//! test prints a table of what each attempt achieves; `ATTACK_FACTOR=10` makes each attempt ten times as long.

mod attempts;
mod experiment;
mod forged;
mod member_attempts;
mod member_experiment;
mod member_forgeries;
mod member_keys;
mod raw_network;
mod revoked_host;
mod traffic;

use crate::netns::lan::{Lan, Process, in_namespaces, run};
use crate::support::command::{PATIENCE, now};
use crate::support::wait::wait_until;
use experiment::{ATTACKER, Experiment, GROUP, PORT, PUBLISHER, VICTIM};
use forged::{CONTROL, DATA, ForgedHeader, KEYED, OPEN};
use member_experiment::MemberExperiment;
use member_keys::SenderSecret;
use raw_network::{RawSender, Sniffer, UdpDatagram};
use revoked_host::RevokedHost;
use std::net::SocketAddrV4;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

#[test]
fn attackers_without_the_right_key_change_nothing() {
    in_namespaces("attack::attackers_without_the_right_key_change_nothing", || {
        let mut experiment = Experiment::new();
        attempts::send_open_datagrams(&mut experiment);
        attempts::send_keyed_datagrams(&mut experiment);
        attempts::send_changed_datagrams(&mut experiment);
        attempts::replay_datagrams(&mut experiment);
        attempts::replay_other_group(&mut experiment);
        attempts::start_other_realm(&mut experiment);
        attempts::reflect_datagrams(&mut experiment);
        attempts::flood_victim(&mut experiment);
        let secrets =
            experiment::keys_of_member(&experiment.lan.hosts[2], [experiment.publisher(), experiment.victim()]);
        member_attempts::send_as_member(&mut experiment, &secrets);
        attempts::restart_publisher(&mut experiment);
        attempts::restart_victim(&mut experiment);
        member_attempts::send_with_old_keys(&mut experiment, &secrets);
        experiment.conclude();
    });
}

#[test]
fn forgeries_of_a_member_are_bounded() {
    in_namespaces("attack::forgeries_of_a_member_are_bounded", || {
        let mut experiment = MemberExperiment::new();
        member_forgeries::forge_data(&mut experiment);
        member_forgeries::forge_announcements(&mut experiment);
        member_forgeries::forge_subscriptions(&mut experiment);
        member_forgeries::forge_addressed_records(&mut experiment);
        member_forgeries::forge_lasting(&mut experiment);
    });
}

#[test]
fn keys_of_a_revoked_host_are_worthless() {
    in_namespaces("attack::keys_of_a_revoked_host_are_worthless", || {
        let mut revoked = RevokedHost::new();
        revoked.forge_before_revocation();
        revoked.revoke();
        revoked.forge_after_revocation();
        revoked.start_again();
    });
}

#[test]
fn members_meet_during_a_flood() {
    in_namespaces("attack::members_meet_during_a_flood", || {
        let lan = Lan::new(3);
        experiment::make_realm();
        let first = experiment::start(&lan.hosts[0], "A.test", &[]);
        let subscriber = first.subscribe("t.>");
        let sender = RawSender::new(&lan.hosts[2], ATTACKER);
        let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let (packets, end) = (attempts::unknown_epochs(20_000), now() + PATIENCE);
                for packet in packets.iter().cycle() {
                    if stop.load(Ordering::Relaxed) || end < now() {
                        break;
                    }
                    sender.send(packet, SocketAddrV4::new(GROUP, PORT));
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
            wait_until("the flood has begun", || 0 < sent.load(Ordering::Relaxed));
            let began = now();
            let second = experiment::start(&lan.hosts[1], "B.test", &[]);
            experiment::await_acquaintance([&first, &second]);
            second.publish_one("t.a", "after the handshake");
            wait_until("a message is delivered", || subscriber.lines().iter().any(|line| line.contains("handshake")));
            stop.store(true, Ordering::Relaxed);
            println!("{:?} from the start to a delivered message, {sent:?} forged datagrams", now().since(began));
        });
    });
}

/// A member has the group keys of every other one. Here a log of keys gives them to the attacker.
#[test]
fn member_that_forges_is_reported() {
    in_namespaces("attack::member_that_forges_is_reported", || {
        let lan = Lan::new(4);
        experiment::make_realm();
        experiment::join_realm("C.test");
        let sniffer = Sniffer::new(&lan.hosts[1], VICTIM, 10_000);
        let publisher = experiment::start(&lan.hosts[0], "A.test", &["origin=signed", "key-log=/run/keys.log"]);
        let victim = experiment::start(&lan.hosts[1], "B.test", &[]);
        let holder = experiment::start(&lan.hosts[3], "C.test", &["origin-check=hold"]);
        experiment::await_acquaintance([&publisher, &victim]);
        wait_until("the holder knows them", || holder.rows("peers").len() == 2);
        let (subscriber, bus) = (victim.subscribe("t.>"), publisher.attach());
        let strict_subscriber = holder.subscribe("t.>");
        publisher.publish_one("t.a", "genuine 0");
        wait_until("its signature is verified", || 0 < victim.counter("origin_verified"));
        wait_until("it was recorded", || experiment::observe(&sniffer.recorded(), PUBLISHER).is_some());
        let observed = experiment::observe(&sniffer.recorded(), PUBLISHER).expect("it was recorded");

        let secrets = SenderSecret::read_log("/run/keys.log");
        let is_own = |secret: &&SenderSecret| secret.epoch == observed.epoch && secret.receiver.is_none();
        let secret = secrets.iter().find(is_own).expect("the publisher has logged it");
        let header = ForgedHeader {
            mode: KEYED[0],
            kind: DATA,
            flags: 0,
            group: PORT,
            epoch: observed.epoch,
            number: observed.data + 1,
            count: 0,
            uptime_ms: forged::UPTIME_MS,
            receiver: 0,
        };
        let (from, to) = (observed.inbox, SocketAddrV4::new(GROUP, PORT));
        let payload = secret.seal(header, &forged::encode_run("t.a", "forged"));
        let packet = UdpDatagram { from, to, payload }.packet();
        let (sender, read) = (RawSender::new(&lan.hosts[2], ATTACKER), victim.counter("datagrams_in"));
        sender.send(&packet, to);
        wait_until("the forged datagram has opened", || read < victim.counter("datagrams_in"));
        assert_eq!((victim.counter("origin_forged"), victim.counter("keyed_discard_forged")), (0, 0));

        let (subject, published) = ("t.a".parse().expect("a subject"), now());
        for number in 1..=100 {
            let payload = format!("genuine {number}");
            bus.publish_payload(&subject, payload.as_bytes(), PATIENCE).expect("the peer takes it");
        }
        wait_until("the forgery is reported", || victim.counter("origin_forged") == 1);
        println!("{:?} from the genuine datagram to the report", now().since(published));
        // The number is signed now.
        sender.send(&packet, to);
        wait_until("it is discarded", || victim.counter("origin_forged") == 2);
        let log = victim.log();
        assert!(log.iter().any(|line| line.contains("a member of the realm forges")), "{log:?}");
        let findings = || victim.report("health")["health"]["findings"].as_array().cloned().unwrap_or_default();
        wait_until("it is a finding", || {
            findings().iter().any(|finding| finding["check"] == "origin" && finding["severity"] == "broken")
        });
        let has = |subscriber: &Process, text: &str| subscriber.lines().iter().any(|line| line.contains(text));
        let all_genuine = |subscriber: &Process| (0..=100).all(|n| has(subscriber, &format!("genuine {n}\"")));
        wait_until("the honest messages are delivered", || all_genuine(&subscriber));
        // The other receiver has held the forged datagram, and the genuine one took its place.
        wait_until("they are delivered there, too", || all_genuine(&strict_subscriber));
        wait_until("the forgery is reported there", || holder.counter("origin_forged") == 2);
        assert!(!has(&strict_subscriber, "forged"), "{:?}", strict_subscriber.lines());
        assert!(!has(&strict_subscriber, "\"loss\""), "{:?}", strict_subscriber.lines());
        for (subscriber, proof) in [(&subscriber, "group"), (&strict_subscriber, "publisher")] {
            let origin = format!("\"origin\":\"{proof}\"");
            let messages = subscriber.lines().into_iter().filter(|line| line.contains("\"genuine "));
            assert!(messages.clone().all(|line| line.contains(&origin)), "{:?}", subscriber.lines());
        }
        let lost = holder.rows("loss");
        assert!(lost.iter().all(|row| row["lost"] == 0), "{lost:?}");
    });
}

/// The attempts of the other test prove something only if the bytes of this attacker are right.
#[test]
fn same_attacker_deceives_open_peers() {
    in_namespaces("attack::same_attacker_deceives_open_peers", || {
        let lan = Lan::new(3);
        let victim = lan.hosts[0].start_peer("A.test", GROUP.into(), &["security=open"]);
        let subscriber = victim.subscribe("t.>");
        let sender = RawSender::new(&lan.hosts[2], ATTACKER);
        let send = |number: u64, kind: u8, records: &[u8]| {
            let header = ForgedHeader {
                mode: OPEN,
                kind,
                flags: 0,
                group: PORT,
                epoch: 0x5eed,
                number,
                count: u64::from(kind != DATA),
                uptime_ms: forged::UPTIME_MS,
                receiver: 0,
            };
            let (from, to) = (SocketAddrV4::new(ATTACKER, 4000), SocketAddrV4::new(GROUP, PORT));
            sender.send(&UdpDatagram { from, to, payload: header.open(records) }.packet(), to);
        };
        send(1, DATA, &forged::encode_run("t.a", "forged"));
        wait_until("the forged message is delivered", || subscriber.lines().iter().any(|line| line.contains("forged")));
        let state = |state: &str| victim.rows("peers").iter().any(|row| row["state"] == state);
        wait_until("a peer is up that does not exist", || state("up"));
        let records = forged::control_records("X.test", 0x5eed, 1);
        let bye = records.iter().find(|(name, _)| *name == "BYE").expect("BYE is a control record");
        send(2, CONTROL, &bye.1);
        wait_until("a forged BYE ends it", || !state("up"));
        assert_eq!(victim.counter("discard_malformed"), 0);
        // The peer can decode each other record, too.
        let received = || victim.counter("datagrams_in") - victim.counter("discard_own");
        let before = received();
        for (number, (_, record)) in (3..).zip(&records) {
            send(number, CONTROL, record);
        }
        wait_until("all are received", || before + records.len() as u64 <= received());
        assert_eq!(victim.counter("discard_malformed"), 0);
    });
}

/// Runs commands of a shell in the directory `/run`, with the built program as `seqcast`.
fn shell(script: &str) -> String {
    let program = format!("seqcast() {{ {} \"$@\"; }}\n", env!("CARGO_BIN_EXE_seqcast"));
    run(Command::new("sh").args(["-ec", &(program + script)]).current_dir("/run"))
}
