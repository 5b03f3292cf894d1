//! Tests of the checks of a running peer: each fault is made by the kernel, and the peer names it and its end.

use super::lan::{Host, Lan, Peer, in_namespaces};
use super::{group, wait_until, wait_until_some};
use serde_json::Value;

/// A peer whose health is observed, and another one that it hears.
struct Pair {
    lan: Lan,
    observed: Peer,
    _other: Peer,
}

impl Pair {
    fn new() -> Pair {
        let lan = Lan::new(2);
        let observed = lan.hosts[0].start_peer("A.health", group(), &[]);
        let other = lan.hosts[1].start_peer("B.health", group(), &[]);
        wait_until("the peers hear each other", || observed.rows("peers").iter().any(|row| row["state"] == "up"));
        Pair { lan, observed, _other: other }
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

    /// Waits until a check has no finding, and the log says so once.
    fn await_end(&self, check: &str, text: &str) {
        wait_until("the finding has ended", || {
            self.observed.findings().iter().all(|finding| finding["check"] != check)
        });
        let lines = self.observed.log();
        assert_eq!(lines.iter().filter(|line| line.contains(text)).count(), 1, "{text}: {lines:#?}");
    }
}

impl Peer {
    pub(super) fn findings(&self) -> Vec<Value> {
        let report = self.report("health");
        report["health"]["findings"].as_array().expect("a list").clone()
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

        ip(&["address", "add", "10.75.0.99/24", "dev", "eth0"]);
        ip(&["address", "delete", "10.75.0.1/24", "dev", "eth0"]);
        let finding = pair.await_finding("interface", "10.75.0.1");
        assert!(finding["found"].as_str().unwrap().starts_with("eth0 has "), "{finding}");
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
        let finding = pair.await_finding("multicast", "B");
        assert_eq!(finding["severity"], "broken");
        pair.host().heal();
        pair.await_end("multicast", "the multicasts of the other peers arrive again");
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
