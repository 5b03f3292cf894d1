//! Peers that suppress messages without a subscriber (`interest: on`). Such messages never reach the network, and no
//! subscriber misses anything.

use super::config_of;
use super::lan::{Host, Lan, in_namespaces};
use crate::support::wait::{let_time_pass, wait_until};
use seqcast::bus::{Bus, Notice};
use seqcast::message::Message;
use std::time::Duration;

/// Number of messages without a subscriber.
const UNWANTED: u64 = 1_000;
/// Number of subscriptions that begin one after the other, and of messages after each.
const ROUNDS: u64 = 20;
const MESSAGES: u64 = 20;
/// Maximum number of subscriptions that begin before all peers have confirmed them. For one in two hundred, repeated
/// loss uses up its two seconds.
const UNCONFIRMED_MAX: u64 = 3;
/// Fault that drops nearly a third of the arriving datagrams.
const LOSS: &str = "udp dport != 0 numgen random mod 100 < 30 counter name hits drop";

fn open(host: Host, number: u64) -> Bus {
    let mut config = config_of(&format!("S{number}.test"));
    config.interest = true;
    config.heartbeat = Duration::from_millis(100);
    // A lost datagram is repaired, however often it is lost again.
    config.reliability = Duration::from_secs(20);
    host.within(move || Bus::embed(&config)).expect("a peer can be started")
}

fn counter(bus: &Bus, name: &str) -> u64 {
    let report = bus.show("counters").expect("the peer answers");
    let rows = report["rows"].as_array().expect("there are rows");
    let row = rows.iter().find(|row| row["counter"] == name).unwrap_or_else(|| panic!("no {name} in {report}"));
    row["value"].as_u64().expect("counters are numbers")
}

#[test]
fn unwanted_messages_are_suppressed_and_wanted_ones_complete() {
    in_namespaces("netns::suppression::unwanted_messages_are_suppressed_and_wanted_ones_complete", || {
        let lan = Lan::new(3);
        let buses: Vec<Bus> = (0..).zip(&lan.hosts).map(|(number, host)| open(*host, number)).collect();
        let met = |bus: &Bus| bus.show("peers").expect("the peer answers")["rows"].as_array().map(Vec::len) == Some(2);
        wait_until("the peers have met", || buses.iter().all(met));
        let [publisher, reader, _] = &buses[..] else { panic!("three of them") };
        let publish = |subject: &str, number: u64| {
            let message = Message::new(subject.parse().expect("a subject"), number.to_string());
            publisher.publish_blocking(message).expect("the peer takes it");
        };
        let_time_pass(Duration::from_millis(700), "a peer suppresses nothing in its first 500 ms");
        let own = publisher.subscribe("unwanted".parse().expect("a pattern")).expect("it is a subscription");
        let sent = counter(publisher, "datagrams_multicast");
        (0..UNWANTED).for_each(|number| publish("unwanted", number));
        publisher.flush(Duration::from_secs(5)).expect("there is nothing to wait for");
        assert_eq!(counter(publisher, "messages_suppressed"), UNWANTED);
        assert!(counter(publisher, "datagrams_multicast") < sent + 20, "heartbeats alone");
        for number in 0..UNWANTED {
            let event = own.recv_timeout(Duration::from_secs(5)).expect("a subscriber at the same peer gets it");
            let Notice::Message(delivery) = event else { panic!("{event:?}") };
            assert_eq!(delivery.message.payload, number.to_string());
        }
        for host in &lan.hosts {
            host.fault(LOSS);
        }
        let mut unconfirmed = 0;
        for round in 0..ROUNDS {
            let subject = format!("round.{round}");
            let subscription = reader.subscribe(subject.parse().expect("a pattern")).expect("it is a subscription");
            let is_unconfirmed = unconfirmed < counter(reader, "subscriptions_unconfirmed");
            unconfirmed += u64::from(is_unconfirmed);
            (0..MESSAGES).for_each(|number| publish(&subject, number));
            if is_unconfirmed {
                continue;
            }
            for number in 0..MESSAGES {
                let event = subscription.recv_timeout(Duration::from_secs(20)).expect("everything comes");
                let Notice::Message(delivery) = event else { panic!("{round}: {event:?}") };
                assert_eq!(delivery.message.payload, number.to_string(), "{round}");
            }
        }
        assert!(20 < lan.hosts.iter().map(Host::heal).sum::<u64>(), "the fault was there");
        assert!(unconfirmed <= UNCONFIRMED_MAX, "{unconfirmed} subscriptions did not stand in time");
        let suppressed = counter(publisher, "messages_suppressed") - UNWANTED;
        assert!(suppressed <= unconfirmed * MESSAGES, "{suppressed} messages that somebody wanted");
    });
}
