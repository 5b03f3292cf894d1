//! Subjects that the stream of the hub keeps: gateways get each message on them once.

use super::durable::{assert_whole, durable, publish, receive};
use super::{Gateway, all_messages, numbers, payload, subscribe};
use crate::listeners::client::{ListenerClient, Nats};
use crate::support::bus::message;
use crate::support::command::Place;
use crate::support::nats_server::NatsServer;
use crate::support::server_process::free_port;
use crate::support::wait::wait_until;
use crate::web::client::send;
use serde_json::Value;
use std::net::SocketAddr;

/// A hub with a stream, and with monitoring.
struct MonitoredHub {
    server: NatsServer,
    monitoring: u16,
    _files: Place,
}

impl MonitoredHub {
    fn start() -> MonitoredHub {
        let (files, monitoring) = (Place::new(), free_port());
        let (directory, port) = (files.dir().display().to_string(), monitoring.to_string());
        let server = NatsServer::start(&["--jetstream", "--store_dir", &directory, "--http_port", &port]);
        MonitoredHub { server, monitoring, _files: files }
    }

    /// Starts a gateway on a LAN of its own.
    fn gateway(&self, name: &str, settings: &[&str]) -> Gateway {
        let address = format!("link={}", self.server.address());
        Gateway::start(name, Place::new().port(), &[&[address.as_str()], settings].concat())
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
    let mut client = ListenerClient::connect(Nats, hub.server.port());
    client.enter();
    client.send(Nats.publish("$JS.API.STREAM.DELETE.SEQCAST", ""));
    wait_until("hq subscribes again", || hub.subscribers("orders.>") == 1);
    client.send(Nats.publish("orders.1", "of a client"));
    assert_eq!(receive(&orders, 1).iter().map(payload).collect::<Vec<String>>(), ["of a client"]);
}

#[test]
fn live_exports_of_stored_subjects_cross() {
    let hub = MonitoredHub::start();
    let durable_site = hub.gateway("P.test", &["site=plant1", "link-durable=orders.>"]);
    wait_until("the stream is open", || durable(&durable_site)["open"] == true);
    let live_site = hub.gateway("Q.test", &["site=plant2", "link-live=orders.eu.>"]);
    let hq = hub.gateway("H.test", &["site=hq", "link-import=orders.>"]);
    wait_until("hq reads the stream", || !durable(&hq)["position"].is_null());
    wait_until("nobody subscribes any more", || hub.subscribers("orders.>") == 0);
    assert_eq!(hub.subscribers("orders.eu.>"), 1, "gateways of the live site hear each other");
    let (publisher, subscriber) = (live_site.attach(), hq.attach());
    let subscription = subscribe(&subscriber, "orders.>");
    let publish_live = |text: &str| publisher.publish(message("orders.eu.1", text)).expect("published");
    ["1", "2", "3"].into_iter().for_each(publish_live);
    let lost = || (hq.site("plant2")["lost_min"].as_u64(), hq.site("plant2")["lost_max"].as_u64());
    wait_until("the first ones are reported", || lost() == (Some(3), Some(3)));
    wait_until("hq subscribes again", || hub.subscribers("orders.>") == 1);
    ["4", "5"].into_iter().for_each(publish_live);
    publish(&durable_site.attach(), 6..8);
    let messages = all_messages(&subscription);
    assert_eq!(numbers(&messages), [4, 5, 6, 7]);
    assert_eq!(lost(), (Some(3), Some(3)));
}
