//! Tests of the checks of a running peer: each fault is made by the kernel, and the peer names it and its end.

use super::lan::{Host, Lan, Peer, Process, in_namespaces};
use super::{ONE_IN_TEN, group, group_v6, wait_until, wait_until_some};
use seqcast::clock::Clock;
use seqcast::message::Message;
use serde_json::Value;
use std::net::IpAddr;
use std::time::Duration;

/// A peer whose health is observed, and another one that it hears.
struct Pair {
    lan: Lan,
    observed: Peer,
    other: Peer,
}

impl Pair {
    fn new() -> Pair {
        Pair::with(group(), &[])
    }

    /// Starts the pair with settings of the observed peer.
    fn with(group: IpAddr, settings: &[&str]) -> Pair {
        let lan = Lan::new(2);
        let observed = lan.hosts[0].start_peer("A.health", group, settings);
        let other = lan.hosts[1].start_peer("B.health", group, &[]);
        wait_until("the peers hear each other", || observed.rows("peers").iter().any(|row| row["state"] == "up"));
        Pair { lan, observed, other }
    }

    fn host(&self) -> Host {
        self.lan.hosts[0]
    }

    /// Waits until a check has a finding that contains a text.
    fn await_finding(&self, check: &str, part: &str) -> Value {
        let is_meant = |finding: &&Value| finding["check"] == check && finding["found"].to_string().contains(part);
        let find = || self.observed.findings().iter().find(is_meant).cloned();
        wait_until_some(|| format!("a finding of {check} with {part:?}"), find)
    }

    /// Waits until the observed peer logs a text, which must happen within this time.
    fn await_log(&self, text: &str, bound: Duration) {
        await_log(&self.observed, text, bound);
    }

    /// Publishes a message at each peer and waits until a subscriber at the other one prints it. Each subscriber began
    /// before the fault.
    fn exchange(&self, subscribers: &[Process; 2], payload: &str) {
        let peers = [&self.observed, &self.other];
        for (publisher, subscriber) in peers.into_iter().zip(subscribers.iter().rev()) {
            publisher.publish_one("t", payload);
            wait_until("the message arrives", || subscriber.lines().iter().any(|line| line.contains(payload)));
        }
    }

    /// Waits until a check has no finding, and the log says so once.
    fn await_end(&self, check: &str, text: &str) {
        wait_until("the finding has ended", || {
            self.observed.findings().iter().all(|finding| finding["check"] != check)
        });
        let lines = self.observed.log();
        assert_eq!(lines.iter().filter(|line| line.contains(text)).count(), 1, "{text}: {lines:#?}");
    }
}

/// Time within which a peer names a fault that ends the connection to other peers.
const WITHIN: Duration = Duration::from_secs(5);

/// Waits until a peer logs a text, which must happen within this time.
fn await_log(peer: &Peer, text: &str, bound: Duration) {
    let start = Clock::now().instant;
    wait_until(text, || peer.log().iter().any(|line| line.contains(text)));
    let elapsed = Clock::now().instant.since(start);
    assert!(elapsed <= bound, "{text:?} was logged after {elapsed:?}");
}

impl Peer {
    pub(super) fn findings(&self) -> Vec<Value> {
        let report = self.report("health");
        let findings = report["health"]["findings"].as_array().expect("a list").iter();
        // The peers of these tests are open on purpose.
        findings.filter(|finding| finding["check"] != "open").cloned().collect()
    }
}

#[test]
fn failed_interface_is_named_until_it_returns() {
    in_namespaces("netns::health::failed_interface_is_named_until_it_returns", || {
        let pair = Pair::new();
        let ip = |arguments: &[&str]| drop(pair.host().run("ip", arguments));
        ip(&["link", "set", "eth0", "down"]);
        let finding = pair.await_finding("interface", "eth0 is down");
        assert_eq!((&finding["severity"], &finding["fix"]), (&"broken".into(), &"ip link set eth0 up".into()));
        assert_eq!(pair.observed.report("health")["health"]["state"], "broken");
        ip(&["link", "set", "eth0", "up"]);
        pair.await_end("interface", "eth0 is back");
        wait_until("the other peer is heard again", || {
            pair.observed.rows("peers").iter().all(|row| row["state"] == "up")
        });
    });
}

/// Returns whether a report shows a peer that is up at this address.
fn is_up_at(rows: &[Value], address: &str) -> bool {
    let is_at = |row: &Value| row["address"].as_str().is_some_and(|text| text.starts_with(address));
    rows.iter().any(|row| row["state"] == "up" && is_at(row))
}

/// Takes the address of the observed peer's host away, and gives it the next one, which the peer then uses.
/// `shown` begins the peer's new address; `scope` matches its multicasts with the configured number of hops.
fn change_address(group: IpAddr, former: &str, next: &str, shown: &str, scope: &str) {
    let pair = Pair::with(group, &["ttl=3"]);
    let subscribers = [pair.observed.subscribe("t"), pair.other.subscribe("t")];
    pair.exchange(&subscribers, "before");
    let (program, service) = (pair.observed.attach(), pair.other.attach());
    pair.host().run("ip", &["address", "delete", former, "dev", "eth0"]);
    pair.await_log("eth0 has no address; it had ", Duration::from_secs(2));
    pair.host().run("ip", &["address", "add", next, "dev", "eth0", "nodad"]);
    pair.await_log("this peer continues with it", Duration::from_secs(2));
    let status = pair.observed.report("status")["status"].take();
    assert!(status["inbox"].as_str().unwrap().starts_with(shown), "{status}");
    pair.lan.fault(&pair.host(), &format!("udp dport 7500 {scope} counter name hits"));
    pair.exchange(&subscribers, "after");
    assert_ne!(pair.lan.heal(), 0, "multicasts leave with the configured number of hops");
    // A program that attached before the change names the former epoch in its inbox.
    let inbox = program.inbox();
    let replies = program.subscribe(inbox.clone().into()).expect("the program is attached");
    service.publish(Message::new(inbox, "reply")).expect("the service is attached");
    wait_until("the reply arrives", || replies.try_recv().is_ok());
    assert!(is_up_at(&pair.other.rows("peers"), shown), "the other peer shows the new address");
    wait_until("no finding is left", || pair.observed.findings().is_empty());
}

#[test]
fn changed_address_is_followed_within_two_seconds() {
    in_namespaces("netns::health::changed_address_is_followed_within_two_seconds", || {
        let scope = "ip saddr 10.75.0.99 ip ttl 3";
        change_address(group(), "10.75.0.1/24", "10.75.0.99/24", "10.75.0.99:", scope);
    });
}

#[test]
fn changed_ipv6_address_is_followed_within_two_seconds() {
    in_namespaces("netns::health::changed_ipv6_address_is_followed_within_two_seconds", || {
        let scope = "ip6 saddr fd75::99 ip6 hoplimit 3";
        change_address(group_v6(), "fd75::1/64", "fd75::99/64", "[fd75::99]:", scope);
    });
}

#[test]
fn replaced_network_card_is_joined_again() {
    in_namespaces("netns::health::replaced_network_card_is_joined_again", || {
        let pair = Pair::with(group(), &["inbox-port=7600"]);
        let subscribers = [pair.observed.subscribe("t"), pair.other.subscribe("t")];
        pair.exchange(&subscribers, "before");
        let epoch = pair.observed.report("status")["status"]["epoch"].clone();
        pair.host().run("ip", &["link", "delete", "eth0"]);
        pair.await_log("eth0 is gone", Duration::from_secs(2));
        pair.lan.replace_card(&pair.host());
        pair.await_end("interface", "eth0 is back, with the address 10.75.0.1");
        pair.exchange(&subscribers, "after");
        assert_eq!(pair.observed.report("status")["status"]["epoch"], epoch, "the address is the same");
    });
}

#[test]
fn firewall_that_forbids_sending_is_named() {
    in_namespaces("netns::health::firewall_that_forbids_sending_is_named", || {
        let pair = Pair::new();
        pair.host().forbid("output", "udp dport 7500");
        let finding = pair.await_finding("sending", "refuses to send multicasts to 239.255.83.67:7500 on eth0");
        assert!(finding["fix"].as_str().unwrap().contains("nft list ruleset"), "{finding}");
        pair.host().allow();
        pair.await_end("sending", "the system sends all datagrams again");
    });
}

#[test]
fn multicasts_that_do_not_arrive_are_named() {
    in_namespaces("netns::health::multicasts_that_do_not_arrive_are_named", || {
        let pair = Pair::new();
        pair.host().fault("udp dport 7500 counter name hits drop");
        pair.await_log("the unicasts of B.1 arrive, their multicasts do not", WITHIN);
        assert_eq!(pair.await_finding("multicast", "B")["severity"], "broken");
        pair.host().heal();
        pair.await_end("multicast", "the multicasts of the other peers arrive again");

        // The firewall of this host drops its own multicasts, too. The words of a finding change without a line of the
        // log.
        pair.host().forbid("input", "udp dport 7500");
        pair.await_finding("multicast", "this host does not return this peer's own multicasts to 239.255.83.67:7500");
        pair.host().allow();
        wait_until("no finding is left", || pair.observed.findings().is_empty());
    });
}

#[test]
fn peers_that_fall_silent_together_are_named() {
    in_namespaces("netns::health::peers_that_fall_silent_together_are_named", || {
        let lan = Lan::new(3);
        let start = |number: usize, name| lan.hosts[number].start_peer(name, group(), &[]);
        let (observed, mut killed, _other) = (start(0, "A.health"), start(1, "B.health"), start(2, "C.health"));
        let are_up = |count| observed.rows("peers").iter().filter(|row| row["state"] == "up").count() == count;
        wait_until("the peers hear each other", || are_up(2));
        killed.kill();
        wait_until("the peer is silent", || are_up(1));
        let _again = start(1, "B.health");
        wait_until("the peers hear each other again", || are_up(2));
        assert_eq!(observed.findings(), [] as [Value; 0], "one peer that was killed is no fault of the network");

        lan.hosts[0].fault("meta l4proto udp counter name hits drop");
        await_log(&observed, "all 2 peers fell silent at once", WITHIN);
        lan.hosts[0].heal();
        wait_until("no finding is left", || observed.findings().is_empty());
    });
}

#[test]
fn blocked_sender_is_named_on_both_sides() {
    in_namespaces("netns::health::blocked_sender_is_named_on_both_sides", || {
        let lan = Lan::new(3);
        // With a shorter heartbeat peers fall silent sooner.
        let heartbeat = "heartbeat=250 ms";
        let sender = lan.hosts[0].start_peer("A.health", group(), &[heartbeat, "forget=1 sec"]);
        let receivers = ["B.health", "C.health"].into_iter().zip(&lan.hosts[1..]);
        let receivers: Vec<Peer> = receivers.map(|(name, host)| host.start_peer(name, group(), &[heartbeat])).collect();
        wait_until("the peers hear each other", || {
            sender.rows("peers").iter().filter(|row| row["state"] == "up").count() == 2
        });
        lan.hosts[0].fault("meta l4proto udp counter name hits drop");
        await_log(&sender, "all 2 peers fell silent at once", WITHIN);
        // The sender still announces itself to them, until it gives them up.
        let text = "on the host 10.75.0.1 arrive, their unicasts do not";
        await_log(&receivers[0], text, Duration::from_secs(15));
        lan.hosts[0].heal();
        wait_until("no finding is left", || receivers[0].findings().is_empty() && sender.findings().is_empty());
    });
}

#[test]
fn blocked_sender_is_named_when_requests_fail() {
    in_namespaces("netns::health::blocked_sender_is_named_when_requests_fail", || {
        let lan = Lan::new(2);
        let sender = lan.hosts[0].start_peer("A.health", group(), &[]);
        let receiver = lan.hosts[1].start_peer("B.health", group(), &["reliability=2 sec"]);
        wait_until("the peers hear each other", || is_up_at(&receiver.rows("peers"), "10.75.0.1"));
        let subscriber = receiver.subscribe("t");
        lan.hosts[1].fault(&format!("ip daddr 239.255.83.67 {ONE_IN_TEN} counter name hits drop"));
        sender.publish("t", 300, 1000).finish();
        wait_until("losses are repaired", || {
            receiver.rows("loss").iter().any(|row| row["repaired"]["count"].as_u64() != Some(0))
        });
        assert_eq!(receiver.findings(), [] as [Value; 0], "losses that are repaired are no finding");

        lan.hosts[0].fault("meta l4proto udp counter name hits drop");
        sender.publish("t", 300, 1000).finish();
        await_log(&receiver, "missing datagrams of A.1 on the host 10.75.0.1 stay unanswered", WITHIN);
        lan.hosts[0].heal();
        wait_until("requests are answered again", || {
            sender.publish("t", 30, 1000).finish();
            receiver.findings().iter().all(|finding| finding["check"] != "requests")
        });
        drop(subscriber);
    });
}

#[test]
fn kernel_drops_are_named_with_their_remedy() {
    in_namespaces("netns::health::kernel_drops_are_named_with_their_remedy", || {
        let pair = Pair::with(group(), &["receive-buffer=64 kb"]);
        let subscriber = pair.observed.subscribe("t");
        pair.observed.process().signal("STOP");
        // The publisher stops waiting for a peer that stands still.
        pair.other.publish("t", 20_000, 100_000).finish();
        wait_until("the kernel drops datagrams", || 0 < pair.host().kernel_drops());
        pair.observed.process().signal("CONT");
        pair.await_log("the kernel of this host has dropped", WITHIN);
        let finding = pair.await_finding("kernel_drops", "the receive buffer of");
        assert!(finding["fix"].as_str().unwrap().contains("sysctl -w net.core.rmem_max="), "{finding}");
        drop(subscriber);
    });
}

#[test]
fn clock_skew_is_named_and_shown() {
    in_namespaces("netns::health::clock_skew_is_named_and_shown", || {
        let lan = Lan::new(2);
        let observed = lan.hosts[0].start_peer("A.health", group(), &[]);
        let skewed = lan.hosts[1].start_peer_with_clock("B.health", group(), &[], "+60s");
        wait_until("the peers hear each other", || is_up_at(&observed.rows("peers"), "10.75.0.2"));
        assert_eq!(observed.rows("peers")[0]["clock_skew"], Value::Null, "no stamp has arrived");
        skewed.publish_one("t", "with a stamp");
        let expected = "the clock of B.1 on the host 10.75.0.2 is 60 s ahead of that of A.health on the host 10.75.0.1";
        await_log(&observed, expected, WITHIN);
        let ahead = observed.rows("peers")[0]["clock_skew"]["ahead_ms"].as_i64().expect("it is measured");
        assert!((55_000..=60_001).contains(&ahead), "{ahead} ms");
    });
}

#[test]
fn first_peer_of_a_lan_gets_a_notice() {
    in_namespaces("netns::health::first_peer_of_a_lan_gets_a_notice", || {
        let lan = Lan::new(2);
        let first = lan.hosts[0].start_peer("A.health", group(), &[]);
        let notice = wait_until_some(|| "the notice".to_owned(), || first.findings().first().cloned());
        assert_eq!((&notice["check"], &notice["severity"]), (&"peers".into(), &"notice".into()));
        assert!(notice["fix"].as_str().unwrap().contains("UDP port 7500"), "{notice}");
        let _second = lan.hosts[1].start_peer("B.health", group(), &[]);
        wait_until("the notice has ended", || first.findings().is_empty());
    });
}
