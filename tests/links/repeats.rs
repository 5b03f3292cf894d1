//! Two gateways deliver a message of another site, and each peer of the LAN drops the second one.

use super::{Gateway, all_messages, payload, subscribe};
use crate::support::command::Place;
use crate::support::wait::{let_time_pass, wait_until};
use seqcast::bus::{Bus, SubscribeOptions};
use seqcast::message::{Headers, Message};
use std::ops::Range;
use std::time::Duration;

/// Publishes messages of a publisher in another site as a gateway does.
fn import(gateway: &Bus, number: u64, subject: &str, numbers: Range<u64>) {
    for seq in numbers {
        let point = format!("{number:016x} 1 {seq} 1 {seq}");
        let value = format!("plant1 {point} b41c09e2aa70d355 A.test {:016x} - -", 0x5c19_adc0_0000_0000 + seq);
        let headers = Headers::from_pairs([("Seqcast-Origin", &*value)]).expect("a field");
        let payload = format!("{seq} of gateway {number}");
        let message = Message::new(subject.parse().expect("a subject"), payload.into_bytes());
        gateway.publish_blocking(Message { headers, ..message }).expect("published");
    }
}

fn wait_until_acquainted(peers: &[Gateway]) {
    wait_until("the peers know each other", || {
        let known = |peer: &Gateway| peer.place.show("peers")["rows"].as_array().map_or(0, Vec::len);
        peers.iter().all(|peer| known(peer) + 1 == peers.len())
    });
}

#[test]
fn groups_get_messages_of_two_gateways_once() {
    let port = Place::new().port();
    let peers = [1, 2, 3].map(|number| Gateway::start(&format!("G{number}.test"), port, &[]));
    wait_until_acquainted(&peers);
    let programs = peers.each_ref().map(Gateway::attach);
    let options = SubscribeOptions { queue: Some("workers".parse().expect("a name")), ..SubscribeOptions::default() };
    let members = programs
        .each_ref()
        .map(|program| program.subscribe_with(["plant.>".parse().expect("a pattern")], &options).expect("subscribed"));
    // A peer knows the members at other peers a moment later.
    let_time_pass(Duration::from_secs(1), "the peers announce their members");
    for number in [1, 2] {
        // Each message is one of another stream, so none is recognized by others of its stream.
        (1..60).for_each(|seq| import(&programs[number as usize - 1], number, &format!("plant.{seq}"), seq..seq + 1));
        let mut numbers: Vec<u64> = Vec::new();
        for member in &members {
            numbers.extend(all_messages(member).iter().map(|delivery| {
                payload(delivery).split(' ').next().and_then(|seq| seq.parse::<u64>().ok()).expect("a number")
            }));
        }
        numbers.sort_unstable();
        let expected: Vec<u64> = if number == 1 { (1..60).collect() } else { Vec::new() };
        assert_eq!(numbers, expected, "of gateway {number}");
    }
}

#[test]
fn messages_of_two_gateways_are_delivered_once() {
    let port = Place::new().port();
    let peers = [1, 2, 3].map(|number| Gateway::start(&format!("G{number}.test"), port, &[]));
    let programs = [0, 1, 2].map(|peer| peers[peer].attach());
    let subscriptions = programs.each_ref().map(|program| subscribe(program, "plant.>"));
    wait_until_acquainted(&peers);
    import(&programs[0], 1, "plant.press", 1..5);
    let first: Vec<Vec<String>> =
        subscriptions.iter().map(|subscription| all_messages(subscription).iter().map(payload).collect()).collect();
    // The second one did not receive the last datagram.
    import(&programs[1], 2, "plant.press", 3..8);
    let of_first = ["1 of gateway 1", "2 of gateway 1", "3 of gateway 1", "4 of gateway 1"];
    let of_second = ["5 of gateway 2", "6 of gateway 2", "7 of gateway 2"];
    for (subscription, first) in subscriptions.iter().zip(first) {
        assert_eq!(first, of_first);
        assert_eq!(all_messages(subscription).iter().map(payload).collect::<Vec<_>>(), of_second);
    }
    let late = subscribe(&programs[2], "plant.>");
    import(&programs[1], 2, "plant.press", 8..9);
    assert_eq!(all_messages(&late).iter().map(payload).collect::<Vec<_>>(), ["8 of gateway 2"]);
    for peer in &peers {
        let rows = peer.place.show("counters")["rows"].take();
        let dropped = rows.as_array().into_iter().flatten().find(|row| row["counter"] == "link_repeats_dropped");
        assert_eq!(dropped.expect("a row")["value"], 2);
    }
}
