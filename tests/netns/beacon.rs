//! Tests of beacons: peers of two groups on one LAN notice each other.

use super::lan::{Lan, Peer, in_namespaces};
use super::{group, group_v6, wait_until, wait_until_some};
use serde_json::Value;

/// Waits until a peer has a finding about another group, and returns it.
fn groups_finding(peer: &Peer) -> Value {
    let find = || peer.findings().iter().find(|finding| finding["check"] == "groups").cloned();
    wait_until_some(|| "a finding about another group".to_owned(), find)
}

#[test]
fn peer_of_another_port_is_named_until_corrected() {
    in_namespaces("netns::beacon::peer_of_another_port_is_named_until_corrected", || {
        let lan = Lan::new(3);
        let first = lan.hosts[0].start_peer("A.beacon", group(), &[]);
        let silent = lan.hosts[2].start_peer("C.beacon", group(), &["port=7502", "beacon=off"]);
        let mut wrong = lan.hosts[1].start_peer("B.beacon", group(), &["port=7501"]);
        let finding = groups_finding(&first);
        assert_eq!(finding["severity"], "notice");
        assert_eq!(finding["found"], "a peer B.beacon (10.75.0.2) of group 239.255.83.67 port 7501 is on this LAN");
        let fix = "if they belong together, set port: 7501 here, or port: 7500 there; if not, set beacon: off";
        assert_eq!(finding["fix"], fix);
        assert_eq!((silent.counter("beacons_sent"), silent.counter("beacons_received")), (0, 0));

        wrong.kill();
        let _corrected = lan.hosts[1].start_peer("B.beacon", group(), &[]);
        wait_until("the finding has ended", || first.findings().is_empty());
        let text = "no peer of another group is heard on this LAN any more";
        assert_eq!(first.log().iter().filter(|line| line.contains(text)).count(), 1);
        assert_eq!(first.counter("beacons_sent"), 1);
    });
}

#[test]
fn ipv6_peer_of_another_group_is_named() {
    in_namespaces("netns::beacon::ipv6_peer_of_another_group_is_named", || {
        let lan = Lan::new(2);
        let first = lan.hosts[0].start_peer("A.beacon", group_v6(), &[]);
        let other = "ff15::7777".parse().expect("an address");
        let _other = lan.hosts[1].start_peer("B.beacon", other, &[]);
        let finding = groups_finding(&first);
        assert_eq!(finding["found"], "a peer B.beacon (fd75::2) of group ff15::7777 port 7500 is on this LAN");
    });
}
