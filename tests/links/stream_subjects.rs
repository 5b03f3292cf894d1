//! Subjects that the stream of the hub keeps: gateways get each message on them once.

use super::durable::{Hub, assert_whole, durable, publish, receive};
use super::{Gateway, numbers, payload, subscribe};
use crate::listeners::client::{ListenerClient, Nats};
use crate::support::bus::message;
use crate::support::command::Place;
use crate::support::server_process::free_port;
use crate::support::wait::{let_time_pass, wait_until};
use crate::web::client::send;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// A hub with a stream, and with monitoring.
struct MonitoredHub {
    nats: Hub,
    monitoring: u16,
}

impl MonitoredHub {
    fn start() -> MonitoredHub {
        let monitoring = free_port();
        MonitoredHub { nats: Hub::start_with(&["--http_port", &monitoring.to_string()]), monitoring }
    }

    /// Starts a gateway on a LAN of its own.
    fn gateway(&self, name: &str, settings: &[&str]) -> Gateway {
        self.gateway_on(name, &Place::new(), settings)
    }

    fn gateway_on(&self, name: &str, lan: &Place, settings: &[&str]) -> Gateway {
        Gateway::start(name, lan.port(), &[&[self.nats.address().as_str()], settings].concat())
    }

    /// Starts a site that exports `orders.>` to the stream, and one that exports `orders.eu.>` live.
    fn sites(&self) -> [Gateway; 2] {
        let durable_site = self.gateway("P.test", &["site=plant1", "link-durable=orders.>"]);
        wait_until("the stream is open", || durable(&durable_site)["open"] == true);
        [durable_site, self.gateway("Q.test", &["site=plant2", "link-live=orders.eu.>"])]
    }

    /// Returns how many connections subscribe to the pattern.
    fn subscribers(&self, pattern: &str) -> usize {
        let head = b"GET /connz?subs=1 HTTP/1.0\r\n\r\n";
        let answer = send(SocketAddr::from(([127, 0, 0, 1], self.monitoring)), head);
        let document: Value = serde_json::from_str(&answer.body).expect("JSON");
        let connections = document["connections"].as_array().cloned().unwrap_or_default();
        let subscribes = |connection: &Value| {
            connection["subscriptions_list"]
                .as_array()
                .is_some_and(|list| list.iter().any(|subject| subject == pattern))
        };
        connections.iter().filter(|connection| subscribes(connection)).count()
    }
}

/// Counts of gateways about the site plant2.
struct Account {
    imported: u64,
    lost: u64,
    lost_max: u64,
}

impl Account {
    fn of<'a>(gateways: impl IntoIterator<Item = &'a Gateway>) -> Account {
        let rows: Vec<Value> = gateways.into_iter().map(|gateway| gateway.site("plant2")).collect();
        let sum = |field: &str| rows.iter().map(|row| row[field].as_u64().unwrap_or(0)).sum();
        Account { imported: sum("imported"), lost: sum("lost_min"), lost_max: sum("lost_max") }
    }

    /// Returns whether this number of messages is accounted for, of which some are lost.
    fn is_of(&self, count: u64) -> bool {
        0 < self.lost && self.lost == self.lost_max && self.imported + self.lost == count
    }
}

#[test]
fn stored_subjects_have_no_subscription() {
    let hub = MonitoredHub::start();
    let hq = hub.gateway("H.test", &["site=hq", "link-import=orders.> ; plant.>"]);
    wait_until("hq subscribes", || hub.subscribers("orders.>") == 1);
    let plant = hub.gateway("P.test", &["site=plant1", "link-durable=orders.>", "link-live=plant.>"]);
    wait_until("hq reads the stream", || !durable(&hq)["position"].is_null());
    wait_until("neither gets copies beside it", || hub.subscribers("orders.>") == 0);
    assert_eq!(hub.subscribers("plant.>"), 2, "live messages come by subscriptions");
    let (publisher, subscriber) = (plant.attach(), hq.attach());
    let [orders, lives] = ["orders.>", "plant.>"].map(|pattern| subscribe(&subscriber, pattern));
    publish(&publisher, 0..50);
    publisher.publish(message("plant.1", "live")).expect("published");
    assert_whole(&receive(&orders, 50), 0..50);
    assert_eq!(receive(&lives, 1).len(), 1);
    drop((publisher, plant));
    let mut client = ListenerClient::connect(Nats, hub.nats.server.port());
    client.enter();
    client.send(Nats.publish("$JS.API.STREAM.DELETE.SEQCAST", ""));
    wait_until("hq subscribes again", || hub.subscribers("orders.>") == 1);
    client.send(Nats.publish("orders.1", "of a client"));
    assert_eq!(receive(&orders, 1).iter().map(payload).collect::<Vec<String>>(), ["of a client"]);
}

#[test]
fn live_export_on_stored_subjects_restores_subscription() {
    let hub = MonitoredHub::start();
    let [durable_site, live_site] = hub.sites();
    let hq = hub.gateway("H.test", &["site=hq", "link-import=orders.>"]);
    wait_until("hq reads the stream", || !durable(&hq)["position"].is_null());
    wait_until("nobody subscribes any more", || hub.subscribers("orders.>") == 0);
    assert_eq!(hub.subscribers("orders.eu.>"), 1, "gateways of the live site hear each other");
    let (publisher, subscriber) = (live_site.attach(), hq.attach());
    let subscription = subscribe(&subscriber, "orders.>");
    let publish_live = |text: &str| publisher.publish(message("orders.eu.1", text)).expect("published");
    ["1", "2", "3"].into_iter().for_each(publish_live);
    wait_until("the first ones are reported", || Account::of([&hq]).is_of(3));
    let Account { lost, imported, .. } = Account::of([&hq]);
    wait_until("hq subscribes again", || hub.subscribers("orders.>") == 1);
    ["4", "5"].into_iter().for_each(publish_live);
    publish(&durable_site.attach(), 6..8);
    let messages = receive(&subscription, imported as usize + 4);
    assert!(numbers(&messages).ends_with(&[4, 5, 6, 7]), "{messages:?}");
    let account = Account::of([&hq]);
    assert_eq!((account.lost, account.lost_max), (lost, lost));
}

#[test]
fn losses_on_stored_subjects_are_reported_once() {
    let hub = MonitoredHub::start();
    let [_durable_site, live_site] = hub.sites();
    let lan = Place::new();
    let mut hq: Vec<Gateway> = ["G.test", "H.test"]
        .map(|name| hub.gateway_on(name, &lan, &["site=hq", "link-import=orders.>"]))
        .into_iter()
        .collect();
    wait_until("both carry shares", || hq.iter().all(|gateway| 0 < gateway.number("shares")));
    wait_until("nobody subscribes any more", || hub.subscribers("orders.>") == 0);
    let publisher = live_site.attach();
    (0..3).for_each(|_| publisher.publish(message("orders.eu.1", "live")).expect("published"));
    wait_until("they are reported", || Account::of(&hq).is_of(3));
    let_time_pass(Duration::from_secs(6), "the other gateway keeps the manifests for 5 s");
    let reporter = hq.iter().position(|gateway| 0 < Account::of([gateway]).lost).expect("one of them has reported");
    drop(hq.swap_remove(reporter));
    wait_until("the other one takes over", || hq[0].number("shares") == 16);
    let_time_pass(Duration::from_secs(2), "it reports by then");
    assert_eq!(Account::of(&hq).lost, 0);
}
