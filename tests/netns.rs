//! Peers on several hosts, with faults made by the kernel. The tests compare sent, delivered and reported messages
//! one by one.
//!
//! Each test runs itself again inside namespaces of its own ([`lan::in_namespaces`]), where a bridge connects two or
//! three hosts. The test listens at the bridge, before any fault, and so knows all sent datagrams ([`tap`]).
//! [`account`] compares every subscriber's output with these. A machine without namespaces fails these tests: no other
//! test shows real loss.

mod account;
mod beacon;
mod bench;
mod capture;
mod client;
mod copies;
mod deb;
mod doctor;
mod events;
mod health;
mod keys;
pub mod lan;
mod links;
mod listeners;
mod mtu;
mod queue;
mod repair;
mod rv;
mod streams;
mod suppression;
mod systemd;
mod tap;
mod top;

use crate::support::wait::{let_time_pass, wait_until, wait_until_some};
use account::{Account, account};
use bytes::Bytes;
use lan::{Host, Lan, Peer, Process, in_namespaces};
use seqcast::config::{Config, Security};
use seqcast::daemon::batch::{BATCH_BUFFERS_MAX, OutgoingDatagram, ReceivedDatagram, RecvBatch};
use seqcast::daemon::multicast::Sockets;
use seqcast::daemon::self_test;
use seqcast::message::Epoch;
use seqcast::proto::effect::Path;
use seqcast::wire::{self, DiscardReason, Header, Kind};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;
use tap::{SentStreams, Tap};

/// Returns the configuration of a peer of this process, to be started on a host.
fn config_of(name: &str) -> Config {
    let mut config = Config::default();
    config.name = name.parse().expect("it is a name");
    (config.group, config.port) = (group(), PORT);
    config.interface = "eth0".parse().expect("it is an interface");
    config.security = Security::Open;
    config.data_dir = format!("/run/state-{name}").into();
    config
}

#[test]
fn injected_faults_have_their_effect() {
    in_namespaces("netns::injected_faults_have_their_effect", || {
        let lan = Lan::new(2);
        let [from, to] = [lan.hosts[0], lan.hosts[1]];
        for group in [group(), group_v6()] {
            let mut sender = from.sockets(group, PORT);
            let mut receiver = to.sockets(group, PORT);
            let mut exchange = |count| {
                let batch: Vec<OutgoingDatagram> =
                    (1..=40).map(|dseq| OutgoingDatagram { to: None, bytes: datagram(dseq) }).collect();
                assert_eq!(sender.send_batch(&batch).expect("a LAN takes them"), batch.len());
                arrived(&mut receiver, count)
            };
            let all: Vec<u64> = (1..=40).collect();
            assert_eq!(exchange(40), (all.clone(), 0));

            to.fault(&format!("{DATA} {DSEQ} {{ 1, 7, 40 }} counter name hits drop"));
            let without: Vec<u64> = all.iter().copied().filter(|dseq| ![1, 7, 40].contains(dseq)).collect();
            assert_eq!(exchange(37), (without, 0));
            wait_until("three are hit", || to.hits() == 3);
            assert_eq!(to.heal(), 3);

            to.fault(&format!("{DATA} {DSEQ} 30-35 counter name hits {FLIP_COUNT}"));
            let without: Vec<u64> = all.iter().copied().filter(|dseq| !(30..=35).contains(dseq)).collect();
            assert_eq!((exchange(40), to.heal()), ((without, 6), 6));

            to.fault("meta l4proto udp counter name hits drop");
            assert_eq!(exchange(0), (Vec::new(), 0));
            wait_until("all are hit", || to.hits() == 40);
            assert_eq!(to.heal(), 40);

            lan.duplicate(&from, &to, &format!("{DATA} {DSEQ} {{ 3, 4 }}"));
            let mut twice = exchange(42).0;
            twice.sort_unstable();
            let mut expected = [all.clone(), vec![3, 4]].concat();
            expected.sort_unstable();
            assert_eq!((twice, lan.heal()), (expected, 2));
        }
    });
}

#[test]
fn named_route_makes_ipv6_work_on_loopback() {
    in_namespaces("netns::named_route_makes_ipv6_work_on_loopback", || {
        lan::run(Command::new("ip").args(["link", "set", "lo", "up"]));
        let route = ["-6", "route", "add", "local", "ff00::/8", "dev", "lo", "table", "local"];
        lan::run(Command::new("ip").args(route));
        let test = "bus::multicast::ipv6_group_works_or_names_the_remedy";
        let this = std::env::current_exe().expect("a test knows its own file");
        let out = lan::run(Command::new(this).args(["--exact", test, "--nocapture"]));
        assert!(out.contains("1 passed") && !out.contains("no IPv6"), "{out}");
    });
}

#[test]
fn self_test_names_the_fault() {
    in_namespaces("netns::self_test_names_the_fault", || {
        let lan = Lan::new(1);
        let host = lan.hosts[0];
        for (group, shown) in [(group(), "239.255.83.67:7500"), (group_v6(), "[ff15::5343%2]:7500")] {
            let mut sockets = host.sockets(group, PORT);
            let mut test = |timeout| self_test::run(&mut sockets, 7, timeout);
            let (long, short) = (Duration::from_secs(60), Duration::from_millis(300));
            assert_eq!(test(long).expect("a LAN carries multicast"), []);

            host.forbid("input", "udp dport 7500");
            let silence = test(short).expect_err("the probe is dropped").to_string();
            let expected = format!(
                "a probe to the group {shown} on eth0 does not come back (waited 300ms, received 0 datagrams of others); \
                 probably a firewall drops it: allow UDP port 7500 (nft list ruleset), or use another interface (ip -brief addr)"
            );
            assert_eq!(silence, expected);
            host.allow();

            host.forbid("output", "udp dport 7500");
            let refused = test(short).expect_err("the probe is refused").to_string();
            let expected = format!(
                "cannot send to the group {shown} on eth0: Operation not permitted (os error 1); a firewall forbids it; \
                 look at: nft list ruleset"
            );
            assert_eq!(refused, expected);
            host.allow();
            assert_eq!(test(long).expect("a LAN carries multicast again"), []);
        }
    });
}

#[test]
fn random_loss_on_three_hosts_is_accounted_for() {
    in_namespaces("netns::random_loss_on_three_hosts_is_accounted_for", || {
        let lan = Lan::new(3);
        let tap = Tap::new(group(), PORT);
        let hosts = [lan.hosts[0], lan.hosts[1], lan.hosts[2]];
        let names = ["A.test", "B.test", "C.test"];
        let peers: Vec<Peer> =
            hosts.iter().zip(names).map(|(host, name)| host.start_peer(name, group(), &[])).collect();
        let subs: Vec<Process> = peers.iter().map(|peer| peer.subscribe("t.>")).collect();
        let load = [(0, "t.a.one"), (0, "t.a.two"), (1, "t.b"), (2, "t.c")];
        load.iter().for_each(|(peer, subject)| peers[*peer].publish_one(subject, "opening"));
        subs.iter().for_each(|sub| assert_eq!(settled(&tap, sub, |all| all.delivered == 4).lost, 0));
        for host in hosts {
            host.fault(&format!("{DATA} {ONE_IN_TEN} counter name hits drop\n{CONTROL} {ONE_IN_TEN} drop"));
        }
        let publishers = load.map(|(peer, subject)| peers[peer].publish(subject, 1000, 500));
        publishers.into_iter().for_each(Process::finish);
        wait_until("all is sent", || load.iter().all(|(_, subject)| tap.count(subject) == 1001));
        for sub in &subs {
            settled(&tap, sub, |_| true);
        }
        let hits = hosts.map(|host| host.heal());
        // The next message of each subject proves the content of the missing datagrams.
        load.iter().for_each(|(peer, subject)| peers[*peer].publish_one(subject, "closing"));
        for (((sub, peer), host), hits) in subs.iter().zip(&peers).zip(hosts).zip(hits) {
            let all = settled(&tap, sub, |all| all.delivered + all.lost == 4008);
            assert_missing(all.datagrams_missing, hits, &host);
            assert!(0 < hits, "the fault has hit");
            assert_eq!(lost_of_all(peer), all.lost, "show loss agrees");
            assert_eq!(peer.counter("inconsistencies"), 0);
        }
    });
}

#[test]
fn blackout_of_two_seconds_is_accounted_for() {
    in_namespaces("netns::blackout_of_two_seconds_is_accounted_for", || {
        let pair = Pair::new(group(), &[]);
        let load = pair.publisher.publish("t.x", 1500, 500);
        wait_until("the stream flows", || 200 < pair.tap.count("t.x"));
        pair.there.fault("meta l4proto udp counter name hits drop");
        let before = pair.tap.count("t.x");
        let_time_pass(Duration::from_secs(2), "the blackout lasts two seconds");
        let meanwhile = (pair.tap.count("t.x") - before) as u64;
        let hits = pair.there.heal();
        load.finish();
        wait_until("all is sent", || pair.tap.count("t.x") == 1500);
        // On a slow machine the blackout may have lasted to the end of the stream.
        pair.publisher.publish_one("t.x", "closing");
        let all = pair.settled(|all| all.delivered + all.lost == 1501);
        assert!(0 < meanwhile && meanwhile / 2 < all.lost, "{all:?}, {meanwhile} sent meanwhile");
        assert!(all.datagrams_missing <= hits + pair.there.kernel_drops(), "{all:?}, {hits} dropped");
        assert_eq!(lost_of_all(&pair.subscriber), all.lost, "show loss agrees");
    });
}

#[test]
fn drop_of_the_last_message_is_reported() {
    in_namespaces("netns::drop_of_the_last_message_is_reported", || {
        let pair = Pair::new(group(), &[]);
        pair.publisher.publish_one("t.x", "one");
        pair.publisher.publish_one("t.x", "two");
        assert_eq!(pair.settled(|all| all.delivered == 2).lost, 0);
        pair.there.fault(&format!("{DATA} {DSEQ} {} counter name hits drop", pair.tap.high() + 1));
        pair.publisher.publish_one("t.x", "last");
        // Nothing follows it: a heartbeat announces that it was sent, and no peer knows its content.
        let all = pair.settled(|all| all.unverified == 1);
        assert_eq!((all.delivered, all.lost, pair.there.heal()), (2, 0, 1));
        pair.publisher.publish_one("t.x", "after all");
        let all = pair.settled(|all| all.delivered == 3);
        assert_eq!((all.lost, all.unverified), (1, 0));
    });
}

#[test]
fn drop_of_the_first_message_is_reported() {
    in_namespaces("netns::drop_of_the_first_message_is_reported", || {
        let pair = Pair::new(group(), &[]);
        pair.there.fault(&format!("{DATA} {DSEQ} 1 counter name hits drop"));
        pair.publisher.publish_one("t.x", "first");
        let all = pair.settled(|all| all.unverified == 1);
        assert_eq!((all.delivered, all.lost, pair.there.heal()), (0, 0, 1));
        pair.publisher.publish_one("t.x", "second");
        let all = pair.settled(|all| all.delivered == 1);
        assert_eq!((all.lost, all.unverified), (1, 0));
    });
}

#[test]
fn killed_publisher_restarts_with_a_new_epoch() {
    in_namespaces("netns::killed_publisher_restarts_with_a_new_epoch", || {
        let mut pair = Pair::new(group(), &[]);
        let load = pair.publisher.publish("t.x", 2000, 500);
        wait_until("the stream flows", || 200 < pair.tap.count("t.x"));
        pair.publisher.kill();
        drop(load);
        let before = pair.tap.sent();
        pair.publisher = pair.here.start_peer("A.test", group(), &[]);
        pair.publisher.publish("t.x", 200, 500).finish();
        wait_until("all is sent", || pair.tap.sent().values().any(|stream| stream.count("t.x") == 200));
        let accounts =
            settled_by_epoch(&pair.tap, &pair.sub, |accounts| accounts.values().all(|one| 0 < one.delivered));
        for (epoch, one) in &accounts {
            if before.contains_key(epoch) {
                // All that the old run sent has arrived. Only the old run knew of messages that it accepted and did
                // not send.
                assert_eq!((one.lost, one.unverified, one.tail), (0, 0, 0), "{one:?}");
            } else {
                assert_eq!(
                    (one.delivered, one.lost, one.unverified),
                    (200, 0, 0),
                    "nothing of the new one is a repeat"
                );
            }
        }
        assert_eq!(accounts.len(), 2);
        let crashed =
            |line: &String| line.contains(r#""reason":"CRASHED""#) && before.keys().any(|old| line.contains(old));
        wait_until("the old one is reported as crashed", || pair.sub.lines().iter().any(crashed));
    });
}

#[test]
fn duplicates_are_delivered_once() {
    in_namespaces("netns::duplicates_are_delivered_once", || {
        let pair = Pair::new(group(), &[]);
        pair.lan.duplicate(&pair.here, &pair.there, &format!("{DATA} {ONE_IN_TEN}"));
        pair.publisher.publish("t.x", 1000, 1000).finish();
        let all = pair.settled(|all| all.delivered == 1000);
        assert_eq!((all.lost, all.unverified), (0, 0));
        let twice = pair.lan.heal();
        assert!(0 < twice, "the fault has hit");
        wait_until("each is counted", || pair.subscriber.counter("discard_duplicate") == twice);
    });
}

#[test]
fn flipped_bytes_are_discarded() {
    in_namespaces("netns::flipped_bytes_are_discarded", || {
        let pair = Pair::new(group(), &[]);
        // One byte each of magic, version, mode, kind, group, dseq, count and the first record's content.
        let bytes = [0, 2, 3, 4, 6, 16, 24, 41];
        let flips = bytes.map(|byte| format!("{DATA} {ONE_IN_FIFTY} counter name hits {} accept", flip(byte)));
        pair.there.fault(&flips.join("\n"));
        pair.publisher.publish("t.x", 1000, 500).finish();
        wait_until("all is sent", || pair.tap.count("t.x") == 1000);
        let hits = pair.there.heal();
        pair.publisher.publish_one("t.x", "closing");
        let all = pair.settled(|all| all.delivered + all.lost == 1001);
        assert!(0 < hits, "the fault has hit");
        assert_missing(all.datagrams_missing, hits, &pair.there);
        let refused = ["discard_foreign", "discard_version", "discard_mode", "discard_check"];
        let refused = refused.map(|name| pair.subscriber.counter(name)).iter().sum::<u64>();
        let unread = pair.there.kernel_drops();
        assert!(refused <= hits && hits <= refused + unread, "{hits} altered, {refused} refused, {unread} unread");
    });
}

#[test]
fn stopped_subscriber_accounts_for_kernel_drops() {
    in_namespaces("netns::stopped_subscriber_accounts_for_kernel_drops", || {
        let pair = Pair::new(group(), &["receive-buffer=16 kb"]);
        let inbound = pair.subscriber.subscribe("_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST");
        let outbound = pair.publisher.subscribe("_RV.ERROR.SYSTEM.DATALOSS.OUTBOUND.BCAST");
        pair.stop_subscriber();
        wait_until("all is sent", || pair.tap.count("t.x") == 3500);
        pair.publisher.publish_one("t.x", "closing");
        let all = pair.settled(|all| all.delivered + all.lost == 3501);
        assert!(0 < all.lost, "a buffer of 16 KiB does not hold 5 s of the stream");
        assert_eq!(all.network_reports, 0, "the network lost nothing: {all:?}");
        let overrun = |row: &serde_json::Value| row["overrun"].as_u64().expect("overruns are counted");
        let overruns: u64 = pair.subscriber.rows("loss").iter().map(overrun).sum();
        assert_eq!(overruns, all.datagrams_missing, "each missing datagram is the kernel's");
        // The kernel also dropped heartbeats. Its count comes with the next datagram at each socket.
        wait_until("each drop is counted", || pair.subscriber.counter("kernel_drops") == pair.there.kernel_drops());
        assert!(all.datagrams_missing <= pair.there.kernel_drops(), "{all:?}");
        // Every other surface names the same cause: the log, and the advisories on both hosts.
        // A silence of the publisher, which loses nothing, may be reported before the datagrams are missed.
        let is_loss = |line: &String| line.contains("cause=") && !line.contains("reason=SILENT");
        let logged: Vec<String> = pair.subscriber.log().into_iter().filter(is_loss).collect();
        assert!(!logged.is_empty() && logged.iter().all(|line| line.contains("LOCAL_OVERRUN")), "{logged:?}");
        for advisories in [&inbound, &outbound] {
            let drops = || advisories.lines().iter().filter_map(|line| kernel_drops_of(line)).collect::<Vec<u64>>();
            wait_until("both hosts publish advisories", || !drops().is_empty());
            assert!(drops().iter().all(|drops| (1..=all.datagrams_missing).contains(drops)), "{:?}", drops());
        }
    });
}

/// Returns the number of datagrams that the kernel dropped according to an advisory, which must name no other cause.
/// Returns `None` for a line that is no message, and for a silence, which loses nothing.
fn kernel_drops_of(line: &str) -> Option<u64> {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("it is JSON");
    let line = json(line);
    if line["type"] != "message" {
        return None;
    }
    let advisory = json(line["payload"].as_str().expect("an advisory has a payload"));
    if advisory["reason"] == "SILENT" {
        return None;
    }
    assert_eq!(advisory["cause"], "LOCAL_OVERRUN", "{advisory}");
    advisory["kernel_drops"].as_u64()
}

#[test]
fn ipv6_groups_on_one_port_do_not_mix() {
    in_namespaces("netns::ipv6_groups_on_one_port_do_not_mix", || {
        let pair = Pair::new(group_v6(), &[]);
        let other = "ff15::5343:2".parse().expect("it is an address");
        let other = Pair::on(&pair.lan, other, ["C.test", "D.test"], &[]);
        pair.there.fault(&format!("{DATA} {ONE_IN_TEN} counter name hits drop"));
        let load = [&pair, &other].map(|pair| pair.publisher.publish("t.x", 500, 500));
        load.into_iter().for_each(Process::finish);
        wait_until("all is sent", || pair.tap.count("t.x") == 500 && other.tap.count("t.x") == 500);
        let hits = pair.there.heal();
        pair.publisher.publish_one("t.x", "closing");
        other.publisher.publish_one("t.x", "closing");
        // A message of the other group would be one that was never sent.
        let here = pair.settled(|all| all.delivered + all.lost == 501);
        let there = other.settled(|all| all.delivered + all.lost == 501);
        assert_missing(here.datagrams_missing + there.datagrams_missing, hits, &pair.there);
        assert!(0 < hits, "the fault has hit");
    });
}

/// A publisher on one host and a subscriber on another, which started first.
struct Pair {
    lan: Lan,
    tap: Tap,
    here: Host,
    there: Host,
    publisher: Peer,
    subscriber: Peer,
    sub: Process,
}

impl Pair {
    /// Creates a pair on a LAN of two hosts; `settings` are those of the subscriber's peer.
    fn new(group: IpAddr, settings: &[&str]) -> Pair {
        Pair::on(&Lan::new(2), group, ["A.test", "B.test"], settings)
    }

    /// Creates a pair on an existing LAN; publisher and subscriber have these names.
    fn on(lan: &Lan, group: IpAddr, names: [&str; 2], settings: &[&str]) -> Pair {
        let [here, there] = [lan.hosts[0], lan.hosts[1]];
        let tap = Tap::new(group, PORT);
        let subscriber = there.start_peer(names[1], group, settings);
        let sub = subscriber.subscribe("t.>");
        // A subscriber that listened for longer than that before the publisher started is owed all of it, the first
        // message too (R4).
        let_time_pass(2 * BASELINE_MARGIN, "the subscriber must have listened for longer than the margin");
        let publisher = here.start_peer(names[0], group, &[]);
        Pair { lan: lan.clone(), tap, here, there, publisher, subscriber, sub }
    }

    /// Publishes 3500 messages in 7 s, in the midst of which the subscriber's peer pauses for 5 s.
    fn stop_subscriber(&self) {
        let load = self.publisher.publish("t.x", 3500, 500);
        wait_until("the stream flows", || 200 < self.tap.count("t.x"));
        self.subscriber.process().signal("STOP");
        let_time_pass(Duration::from_secs(5), "the subscriber stands still for five seconds");
        self.subscriber.process().signal("CONT");
        load.finish();
    }

    fn settled(&self, condition: impl Fn(&Account) -> bool) -> Account {
        settled(&self.tap, &self.sub, condition)
    }
}

/// Waits until everything sent is accounted for at a subscriber and the condition holds. Returns the sum over all
/// publishers.
fn settled(tap: &Tap, sub: &Process, condition: impl Fn(&Account) -> bool) -> Account {
    let all = |accounts: &BTreeMap<String, Account>| accounts.values().fold(Account::default(), Account::plus);
    all(&settled_by_epoch(tap, sub, |accounts| condition(&all(accounts))))
}

fn settled_by_epoch(
    tap: &Tap,
    sub: &Process,
    condition: impl Fn(&BTreeMap<String, Account>) -> bool,
) -> BTreeMap<String, Account> {
    let so_far = RefCell::new(String::new());
    let what = || format!("everything is accounted for; so far: {}", so_far.borrow());
    wait_until_some(what, || {
        let lines = sub.lines();
        let sent: SentStreams = tap.sent();
        let answer = account(&sent, &lines, "t.");
        let settled = answer.as_ref().is_ok_and(&condition);
        *so_far.borrow_mut() = format!("{answer:?}");
        answer.ok().filter(|_| settled)
    })
}

/// Checks that each datagram that a fault has taken is accounted for. No others are missing but those for which the
/// host's kernel had no room while its peer was kept from running.
#[track_caller]
fn assert_missing(missing: u64, hits: u64, host: &Host) {
    let unread = host.kernel_drops();
    assert!(hits <= missing && missing <= hits + unread, "{missing} missing, {hits} dropped, {unread} unread");
}

/// Returns the number of messages of all publishers that `show loss` reports as lost.
fn lost_of_all(peer: &Peer) -> u64 {
    peer.rows("loss").iter().map(|row| row["lost"].as_u64().expect("losses are exact here")).sum()
}

/// Returns a data datagram of a made-up publisher.
fn datagram(dseq: u64) -> Bytes {
    let header = Header {
        kind: Kind::Data,
        group: PORT,
        epoch: Epoch::new(0x5eed).expect("it is not 0"),
        number: dseq,
        count: dseq - 1,
        uptime_ms: 0,
        receiver: None,
    };
    let mut builder = wire::Builder::new(1400);
    let message = seqcast::message::Message::new("t.x".parse().expect("it is a subject"), "made up");
    assert!(builder.push(&wire::Entry { message: (&message).into(), seq: None, stamp: None, chain: None }));
    builder.seal(&header)
}

/// Returns the dseqs that arrive at a socket, `count` or more, and the number of datagrams that fail their check.
fn arrived(sockets: &mut Sockets, count: usize) -> (Vec<u64>, usize) {
    let mut batch = RecvBatch::new(BATCH_BUFFERS_MAX);
    let mut all: Vec<ReceivedDatagram> = Vec::new();
    let mut drain = |sockets: &mut Sockets| {
        while sockets.recv_batch(Path::Multicast, &mut batch).expect("receiving works") != 0 {
            all.extend(batch.drain());
        }
        all.len()
    };
    wait_until("they arrive", || count <= drain(sockets));
    // Unwanted datagrams would arrive soon.
    while sockets.wait(Duration::from_millis(100)).expect("waiting works") {
        drain(sockets);
    }
    let decoded: Vec<_> = all.into_iter().map(|one| wire::decode(one.bytes)).collect();
    let altered = decoded.iter().filter(|one| matches!(one, Err(DiscardReason::Check))).count();
    let whole: Vec<u64> = decoded.iter().filter_map(|one| one.as_ref().ok()).map(|one| one.header.number).collect();
    assert_eq!(whole.len() + altered, decoded.len(), "{decoded:?}");
    (whole, altered)
}

/// Returns an nftables statement that replaces one byte of the UDP payload by 0xff, which none of those named here
/// is.
fn flip(byte: usize) -> String {
    format!("@th,{},8 set 0xff", 64 + 8 * byte)
}

fn group() -> IpAddr {
    "239.255.83.67".parse().expect("it is an address")
}

fn group_v6() -> IpAddr {
    "ff15::5343".parse().expect("it is an address")
}

/// The port of the group, in the matches below as well.
const PORT: u16 = 7500;

/// Matches data datagrams of the protocol: the magic and kind 0. Positions count in bits from the UDP header.
const DATA: &str = "udp dport 7500 @th,64,16 0x5343 @th,96,8 0";

/// Matches control datagrams of the protocol that go to the group: kind 2.
const CONTROL: &str = "udp dport 7500 @th,64,16 0x5343 @th,96,8 2";

/// Prefix of a match for one dseq, a range or a set of them.
const DSEQ: &str = "@th,192,64";

/// Alters the first byte of the header's count.
const FLIP_COUNT: &str = "@th,256,8 set 0xff";

/// The margin of R4 between the starts of a subscriber and of a publisher; its part for clocks is negligible here.
const BASELINE_MARGIN: Duration = Duration::from_millis(100);

const ONE_IN_TEN: &str = "numgen random mod 10 0";

const ONE_IN_FIFTY: &str = "numgen random mod 50 0";
