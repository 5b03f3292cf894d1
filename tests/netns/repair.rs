//! Tests of repair: `reliability` is 2 s here, and each delivery is compared with the sent messages.
//!
//! The virtual cables carry no buffers of several datagrams, so each that a rule hits is one datagram.

use crate::netns::lan::{Host, Lan, in_namespaces};
use crate::netns::{Account, DATA, ONE_IN_TEN, PORT, Pair, config_of, group, group_v6, settled_by_epoch};
use crate::support::wait::{let_time_pass, wait_until};
use seqcast::bus::{Bus, Notice, RecvError, Subscription};
use seqcast::clock::Clock;
use seqcast::message::Message;
use seqcast::rng::Rng;
use seqcast::subject::Subject;
use serde_json::Value;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

/// Settings under which missing datagrams are requested.
const REPAIR: &[&str] = &["reliability=2 sec"];

/// Each of three hosts hears nine in ten of the datagrams that the others send to the group or to it: data,
/// heartbeats, requests and retransmissions. 50,000 messages a second on twelve subjects: 2 MB/s, of which a tenth is
/// missing at each of two receivers; answers may take 8 MB/s (`resend-rate`).
#[test]
fn million_messages_survive_ten_percent_loss() {
    in_namespaces("netns::repair::million_messages_survive_ten_percent_loss", || {
        let lan = Lan::new(3);
        let members: Vec<Member> = (0..).zip(&lan.hosts).map(|(number, host)| Member::new(*host, number)).collect();
        for member in &members {
            wait_until("the peers have met", || member.rows("peers").len() == 2);
            member.host.fault(&format!("udp dport != 0 {ONE_IN_TEN} counter name hits drop"));
        }
        let repaired: Vec<u64> = thread::scope(|scope| {
            for member in &members {
                scope.spawn(|| member.publish_all());
            }
            let readers: Vec<_> = members.iter().map(|member| scope.spawn(|| member.read_all())).collect();
            readers.into_iter().map(|reader| reader.join().expect("everything arrives")).collect()
        });
        for (member, repaired) in members.iter().zip(repaired) {
            let (hits, unread) = (member.host.heal(), member.host.kernel_drops());
            let rows = member.rows("loss");
            println!("{hits} datagrams dropped, {unread} unread, {repaired} messages repaired");
            assert_eq!(rows.len(), 2);
            for row in &rows {
                let states = &row["datagrams"];
                assert_eq!((&row["lost"], &row["inconsistencies"]), (&0.into(), &0.into()), "{row}");
                assert_eq!((&states["lost"], &states["unverified"]), (&0.into(), &0.into()), "{row}");
                let high = states["high"].as_u64().expect("it is counted");
                assert!(high / 20 < hits, "a tenth of {high} datagrams, and of more, is dropped: {hits}");
            }
            assert!(0 < repaired, "the fault has hit");
        }
    });
}

/// Number of publishers, and of subjects of each.
const PUBLISHERS: u64 = 3;
const SUBJECTS: u64 = 4;
/// Number of messages on each subject: a million and a little in all.
const MESSAGES: u64 = 83_400;
/// Rounds of one message on each subject of a publisher, between two pauses.
const ROUNDS: u64 = 4;
/// A pause; 16 messages of each publisher every 960 us are 50,000 a second together.
const PAUSE: Duration = Duration::from_micros(960);
/// Maximum time without any arrival while messages are awaited.
const QUIET: Duration = Duration::from_secs(20);

/// A peer of this process on a host.
struct Member {
    host: Host,
    number: u64,
    bus: Bus,
    subscription: Subscription,
}

impl Member {
    fn new(host: Host, number: u64) -> Member {
        let mut config = config_of(&format!("M{number}.test"));
        config.reliability = Duration::from_secs(2);
        (config.client_queue_count, config.client_queue_size) = (2_000_000, 1 << 30);
        let bus = host.within(move || Bus::embed(&config)).expect("a peer can be started");
        let others = (0..PUBLISHERS).filter(|other| *other != number);
        let patterns = others.map(|other| format!("t.{other}.*").parse().expect("it is a pattern"));
        let subscription = bus.subscribe_all(patterns).expect("it is a subscription like others");
        Member { host, number, bus, subscription }
    }

    fn rows(&self, what: &str) -> Vec<Value> {
        let report = self.bus.show(what).expect("the peer answers");
        report["rows"].as_array().unwrap_or_else(|| panic!("no rows: {report}")).clone()
    }

    /// Publishes everything at its pace.
    fn publish_all(&self) {
        let subject = |at| format!("t.{}.{at}", self.number).parse().expect("it is a subject");
        let subjects: Vec<Subject> = (0..SUBJECTS).map(subject).collect();
        let mut next = Clock::now().instant;
        for n in 0..MESSAGES {
            for (at, subject) in (0..).zip(&subjects) {
                let message = Message::new(subject.clone(), payload(self.number, at, n));
                self.bus.publish_blocking(message).expect("the peer takes it");
            }
            if n % ROUNDS == 0 {
                next = next + PAUSE;
                let_time_pass(next.since(Clock::now().instant), "the load has a rate");
            }
        }
    }

    /// Reads until all messages of the others have come: once, in order, byte for byte. Returns the number of
    /// repaired ones.
    fn read_all(&self) -> u64 {
        let mut next = [[0; SUBJECTS as usize]; PUBLISHERS as usize];
        let (mut count, mut repaired) = (0, 0);
        while count < (PUBLISHERS - 1) * SUBJECTS * MESSAGES {
            let delivery = match self.subscription.recv_timeout(QUIET) {
                Ok(Notice::Message(delivery)) => delivery,
                Err(RecvError::Empty) => panic!("nothing comes any more: {next:?}, {:?}", self.rows("loss")),
                other => panic!("after {count} messages: {other:?}"),
            };
            let subject = delivery.message.subject.as_str();
            let mut numbers = subject.split('.').skip(1).map(|token| token.parse::<u64>().expect("it is a number"));
            let (from, at) = (numbers.next().expect("a publisher"), numbers.next().expect("a subject"));
            let n = &mut next[from as usize][at as usize];
            let expected = payload(from, at, *n);
            assert!(delivery.message.payload == expected, "message {n} of {subject} is {delivery:?}");
            *n += 1;
            count += 1;
            repaired += u64::from(delivery.repaired);
        }
        repaired
    }
}

/// Returns the content of a message: 8 to 55 bytes that no other message has, save by chance.
fn payload(publisher: u64, subject: u64, n: u64) -> Vec<u8> {
    let mut rng = Rng::new((n * SUBJECTS + subject) * PUBLISHERS + publisher);
    let chunks = rng.between(1, 6);
    let mut bytes: Vec<u8> = (0..chunks).flat_map(|_| rng.next_u64().to_be_bytes()).collect();
    bytes.truncate(bytes.len() - rng.below(8) as usize * usize::from(1 < chunks));
    bytes
}

#[test]
fn blackout_of_two_seconds_is_repaired() {
    in_namespaces("netns::repair::blackout_of_two_seconds_is_repaired", || {
        let pair = Pair::new(group(), REPAIR);
        // On a busy machine the stream is noticed late.
        let load = pair.publisher.publish("t.x", 3000, 500);
        wait_until("the stream flows", || 200 < pair.tap.count("t.x"));
        pair.there.fault("meta l4proto udp counter name hits drop");
        let before = pair.tap.count("t.x");
        let_time_pass(Duration::from_secs(2), "the blackout lasts two seconds");
        let meanwhile = pair.tap.count("t.x") - before;
        assert!(0 < meanwhile && 0 < pair.there.heal(), "the fault has hit");
        load.finish();
        assert_all_delivered(&pair, 3000);
    });
}

#[test]
fn partition_of_three_seconds_is_repaired() {
    in_namespaces("netns::repair::partition_of_three_seconds_is_repaired", || {
        let pair = Pair::new(group(), REPAIR);
        let load = pair.publisher.publish("t.x", 2500, 500);
        wait_until("the stream flows", || 200 < pair.tap.count("t.x"));
        for host in [pair.here, pair.there] {
            host.fault("meta l4proto udp counter name hits drop");
        }
        let_time_pass(Duration::from_secs(3), "the partition lasts three seconds");
        assert!(0 < pair.here.heal(), "the subscriber spoke in vain");
        assert!(0 < pair.there.heal(), "so did the publisher");
        load.finish();
        assert_all_delivered(&pair, 2500);
    });
}

#[test]
fn subscriber_stopped_for_five_seconds_receives_everything() {
    in_namespaces("netns::repair::subscriber_stopped_for_five_seconds_receives_everything", || {
        let pair = Pair::new(group(), &["reliability=2 sec", "receive-buffer=256 kb"]);
        pair.stop_subscriber();
        assert_all_delivered(&pair, 3500);
        assert!(0 < pair.there.kernel_drops(), "a buffer of 256 KiB does not hold 5 s of the stream");
    });
}

/// Checks that nothing of the publisher is lost, and that nothing is reported but its silence.
fn assert_all_delivered(pair: &Pair, count: u64) {
    wait_until("all is sent", || pair.tap.count("t.x") as u64 == count);
    let all = pair.settled(|all| all.delivered == count);
    assert_eq!((all.lost, all.unverified, all.tail), (0, 0, 0), "{all:?}");
    let is_reported = |line: &&String| line.contains(r#""type":"loss""#) && !line.contains(r#""kind":"tail""#);
    assert_eq!(pair.sub.lines().iter().find(is_reported), None, "everything was repaired");
    assert_eq!(pair.subscriber.counter("inconsistencies"), 0);
}

/// The subscriber gets exact reports of messages that the killed run had sent and no peer retains. It gets every
/// message of the new run.
#[test]
fn restarted_publisher_is_accounted_for_under_loss() {
    in_namespaces("netns::repair::restarted_publisher_is_accounted_for_under_loss", || {
        let mut pair = Pair::new(group(), REPAIR);
        pair.there.fault(&format!("{DATA} {ONE_IN_TEN} counter name hits drop"));
        let load = pair.publisher.publish("t.x", 2000, 500);
        wait_until("the stream flows", || 200 < pair.tap.count("t.x"));
        pair.publisher.kill();
        drop(load);
        let before = pair.tap.sent();
        pair.publisher = pair.here.start_peer("A.test", group(), REPAIR);
        pair.publisher.publish("t.x", 500, 500).finish();
        wait_until("all is sent", || pair.tap.sent().values().any(|stream| stream.count("t.x") == 500));
        // The former run is accounted for once the new one is known to be its successor.
        let accounts = settled_by_epoch(&pair.tap, &pair.sub, |accounts| {
            accounts.len() == 2 && accounts.values().all(|one| 0 < one.delivered)
        });
        for (epoch, one) in &accounts {
            let Account { delivered, lost, unverified, tail, .. } = *one;
            match before.get(epoch) {
                // Datagrams that were missing when it was killed cannot be retransmitted any more.
                Some(stream) => {
                    assert_eq!(delivered + lost + unverified + tail, stream.count("t.x") as u64, "{one:?}");
                    assert!(lost + unverified + tail < 20, "the rest was repaired while it lived: {one:?}");
                }
                None => assert_eq!((delivered, lost, unverified, tail), (500, 0, 0, 0), "{one:?}"),
            }
        }
        assert!(0 < pair.there.heal(), "the fault has hit");
        assert_eq!(pair.subscriber.counter("inconsistencies"), 0);
    });
}

#[test]
fn snooping_timeout_of_an_ipv4_host_is_survived() {
    in_namespaces("netns::repair::snooping_timeout_of_an_ipv4_host_is_survived", || {
        check_membership_timeout(group(), IGMP)
    });
}

#[test]
fn snooping_timeout_of_an_ipv6_host_is_survived() {
    in_namespaces("netns::repair::snooping_timeout_of_an_ipv6_host_is_survived", || {
        check_membership_timeout(group_v6(), MLD)
    });
}

/// Checks a switch that no longer receives the membership reports of the subscriber's host, which the rule `reports`
/// matches. The membership ages out: multicasts no longer arrive, unicasts do. Nothing is lost, and the path failure
/// is reported within two heartbeats. The host repeats its membership report until the switch receives it.
fn check_membership_timeout(group: IpAddr, reports: &str) {
    let lan = Lan::new(2);
    lan.snoop();
    // The switch learns of the host every few seconds, and later on a busy machine.
    let pair = Pair::on(&lan, group, ["A.test", "B.test"], &["reliability=30 sec"]);
    wait_until("the switch knows both", || [pair.here, pair.there].iter().all(|host| lan.has_member(host, group)));
    let advisories = pair.subscriber.subscribe("_RV.ERROR.SYSTEM.DATALOSS.>");
    let load = pair.publisher.publish("t.x", 7000, 500);
    wait_until("the stream flows", || 200 < pair.tap.count("t.x"));
    assert_eq!(pair.subscriber.counter("multicast_dead"), 0);
    lan.fault(&pair.there, &format!("{reports} counter name hits drop"));
    // Queries of the switch must not remind the host either, which reports only by itself from now on.
    let to_group = format!("udp dport {PORT} counter name hits");
    pair.there.fault(&format!("{reports} drop\n{to_group}"));
    let (mut last_heard, mut undetected, mut hits) = (Clock::now().instant, Clock::now().instant, 0);
    wait_until("the missing multicasts are detected", || {
        let now = Clock::now().instant;
        let hits_before = std::mem::replace(&mut hits, pair.there.hits());
        if hits_before != hits {
            last_heard = now;
        }
        let is_detected = pair.subscriber.counter("multicast_dead") == 1;
        if !is_detected {
            undetected = now;
        }
        is_detected
    });
    // Answers take long on a busy machine, so the time of the last one without the detection counts.
    let detection_time = undetected.since(last_heard);
    println!("detected {detection_time:?} after the last multicast, of {hits}");
    assert!(
        100 < hits && detection_time <= 2 * HEARTBEAT + LOOKING,
        "{hits} multicasts came; it took {detection_time:?}"
    );
    wait_until("the group is joined anew", || 0 < pair.subscriber.counter("rejoins"));
    // The kernel sends a membership report up to a second after the join.
    wait_until("the switch drops a report of the host", || 0 < lan.hits());
    assert!(!lan.has_member(&pair.there, group), "the switch has not received its report yet");
    lan.heal();
    wait_until("the switch receives it", || lan.has_member(&pair.there, group));
    pair.there.heal();
    load.finish();
    assert_all_delivered(&pair, 7000);
    let advised = |line: &String| line.contains("INBOUND.BCAST") && line.contains("MCAST_BLACKHOLE");
    wait_until("an advisory says so", || advisories.lines().iter().any(advised));
    // On a busy machine the switch may receive the next report late, too.
    assert!(1 <= pair.subscriber.counter("multicast_dead"));
}

/// Matches the membership messages of hosts and switches.
const IGMP: &str = "ip protocol igmp";
const MLD: &str = "meta l4proto ipv6-icmp icmpv6 type { 130, 131, 132, 143 }";

/// The default interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Maximum time between two readings of the counters of the switch and the peer.
const LOOKING: Duration = Duration::from_millis(250);
