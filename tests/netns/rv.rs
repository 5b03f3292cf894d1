//! Rendezvous clients on two hosts, with losses between them.

use super::lan::{Lan, Peer, in_namespaces};
use super::{ONE_IN_TEN, PORT, group};
use crate::listeners::rv_client::{RvClient, RvFrame};
use crate::support::wait::wait_until;
use std::net::SocketAddr;

/// Starts a peer with a Rendezvous listener on each host, and a client of each that listens to `flow.>`.
fn start(lan: &Lan, settings: &[&str]) -> (Vec<Peer>, [RvClient; 2]) {
    let settings = [&["rv=0.0.0.0", "rv-open=yes"], settings].concat();
    let hosts = lan.hosts.iter().enumerate();
    let peers: Vec<Peer> =
        hosts.map(|(index, host)| host.start_peer(&format!("P{}", index + 1), group(), &settings)).collect();
    wait_until("all know each other", || peers.iter().all(|peer| peer.rows("peers").len() == 1));
    let clients = [1, 2].map(|number| {
        let mut client = RvClient::enter(SocketAddr::from(([10, 75, 0, number], 7500)), PORT);
        client.listen("flow.>", None);
        client.settle();
        client
    });
    (peers, clients)
}

#[test]
fn clients_miss_nothing_at_ten_percent_loss() {
    in_namespaces("netns::rv::clients_miss_nothing_at_ten_percent_loss", || {
        const COUNT: usize = 5_000;
        let lan = Lan::new(2);
        let (peers, [mut first, mut second]) = start(&lan, &["reliability=60 sec"]);
        for host in &lan.hosts {
            host.fault(&format!("udp dport != 0 {ONE_IN_TEN} counter name hits drop"));
        }
        // Each sends while both read.
        for number in 0..COUNT {
            first.publish("flow.a", &number.to_string());
            second.publish("flow.b", &number.to_string());
        }
        for client in [&mut first, &mut second] {
            let mut next = [0, 0];
            while next != [COUNT; 2] {
                let frame = client.frame();
                let at =
                    ["flow.a", "flow.b"].iter().position(|subject| *subject == frame.subject).expect("no advisory");
                assert_eq!(frame.field("text"), Some(&next[at].to_string()[..]), "{}", frame.subject);
                next[at] += 1;
            }
        }
        assert!(20 < lan.hosts.iter().map(|host| host.heal()).sum::<u64>(), "the fault was there");
        for peer in &peers {
            assert!(peer.rows("loss").iter().all(|row| row["msg_loss"]["count"] == 0));
        }
    });
}

#[test]
fn losses_are_reported_as_messages_of_fields() {
    in_namespaces("netns::rv::losses_are_reported_as_messages_of_fields", || {
        let lan = Lan::new(2);
        let (_peers, [mut first, mut second]) = start(&lan, &[]);
        first.publish("flow.a", "before");
        second.await_frame(|frame| frame.field("text") == Some("before"));
        lan.hosts[1].fault("udp dport 7500 counter name hits drop");
        for number in 0..25 {
            first.publish("flow.a", &number.to_string());
        }
        wait_until("they were dropped", || 0 < lan.hosts[1].hits());
        lan.hosts[1].heal();
        first.publish("flow.a", "after");
        // The receiver has not listened to the advisory.
        // Losses whose subjects are not known yet may be reported first.
        let is_known = |frame: &RvFrame| frame.field("ADV_DESC") == Some("lost msgs");
        let advisory = second.await_frame(|frame| frame.subject != "flow.a" && is_known(frame));
        assert_eq!((&advisory.subject[..], &advisory.letter[..]), ("_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST", "A"));
        for (name, value) in [
            ("ADV_CLASS", "ERROR"),
            ("ADV_SOURCE", "SYSTEM"),
            ("ADV_NAME", "DATALOSS.INBOUND.BCAST"),
            ("ADV_DESC", "lost msgs"),
            ("host", "10.75.0.1"),
            ("hostid", "P1"),
            ("lost", "25"),
            ("sub_cnt", "1"),
            ("sub1", "flow.a"),
            ("lost1", "25"),
            ("scid", "7500"),
            ("publisher", "P1"),
        ] {
            assert_eq!(advisory.field(name), Some(value), "{name}: {advisory:?}");
        }
        assert!(["reason", "cause", "repaired"].iter().all(|name| advisory.field(name).is_some()), "{advisory:?}");
        let outbound = first.await_frame(|frame| frame.subject.contains("DATALOSS") && is_known(frame));
        assert_eq!(outbound.subject, "_RV.ERROR.SYSTEM.DATALOSS.OUTBOUND.BCAST");
        assert_eq!(outbound.field("lost"), Some("25"), "{outbound:?}");
    });
}
