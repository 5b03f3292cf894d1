//! A hub that repeats and reorders messages, and one that is away when gateways start.

use super::durable::{Hub, assert_whole, durable, receive};
use super::hub_proxy::HubProxy;
use super::requests::{Responder, ask_until_answered};
use super::{Gateway, Sites, all_messages, numbers, payload, subscribe};
use crate::support::bus::message;
use crate::support::command::Place;
use crate::support::nats_server::NatsServer;
use crate::support::server_process::free_port;
use crate::support::wait::{let_time_pass, wait_until};
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn repeating_hub_delivers_each_message_once() {
    let hub = Hub::start();
    let proxy = HubProxy::start(&hub.server);
    let exports = ["site=plant1", &hub.address(), "link-live=plant.>", "link-durable=orders.>"];
    let imports = ["site=hq", &format!("link={}", proxy.address()), "link-import=plant.> ; orders.>"];
    let plant = Gateway::start("P.test", Place::new().port(), &exports);
    let hq = Gateway::start("H.test", Place::new().port(), &imports);
    wait_until("the sites carry all shares", || plant.number("shares") + hq.number("shares") == 32);
    wait_until("the importing site reads the stream", || !durable(&hq)["position"].is_null());
    let (publisher, subscriber) = (plant.attach(), hq.attach());
    let (live, stored) = (subscribe(&subscriber, "plant.live.*"), subscribe(&subscriber, "orders.>"));
    let send = |subject: String, number: u64| publisher.publish(message(&subject, &number.to_string()));
    for number in 0..400 {
        send(format!("plant.live.{}", number % 7), number).expect("published");
        send(format!("orders.{}", number % 7), number).expect("published");
        if number % 20 == 0 {
            let_time_pass(Duration::from_millis(20), "manifests come between the messages");
        }
    }
    assert_whole(&receive(&stored, 400), 0..400);
    let arrived = all_messages(&live);
    let delivered = numbers(&arrived).len() as u64;
    for subject in 0..7 {
        let numbers = arrived.iter().map(|message| payload(message).parse::<u64>().expect("a number"));
        let of_subject: Vec<u64> = numbers.filter(|number| number % 7 == subject).collect();
        assert!(of_subject.is_sorted(), "plant.live.{subject}: {of_subject:?}");
    }
    wait_until("what came behind later ones is counted as lost", || {
        let row = hq.site("plant1");
        [&row["lost_min"], &row["lost_max"]] == [400 - delivered; 2] && row["repeated"].as_u64() > Some(0)
    });
    assert!(300 < delivered, "{delivered} of 400");
    let responder = Responder::plain(&hq, "plant.service", "hq");
    assert_eq!(ask_until_answered(&publisher, "plant.service"), "hq");
    let before = responder.answered();
    for _ in 0..40 {
        let request = message("plant.service", "question");
        let answers = publisher.request_many(request, 2, Duration::from_millis(200)).expect("answers");
        assert!(answers.len() <= 1, "the programs get a request once");
    }
    assert!(responder.answered() - before <= 40);
    assert_eq!(stored.recv_timeout(Duration::from_secs(1)).ok(), None, "nothing comes twice");
}

#[test]
fn hub_that_starts_late_is_joined() {
    let (port, files) = (free_port(), Place::new());
    let address = format!("link=nats://127.0.0.1:{port}");
    let exports = ["site=plant1", &address, "link-live=plant.>", "link-durable=orders.>"];
    let plant = Gateway::start("P.test", Place::new().port(), &exports);
    let hq = Gateway::start("H.test", Place::new().port(), &["site=hq", &address, "link-import=plant.> ; orders.>"]);
    let (publisher, subscriber) = (plant.attach(), hq.attach());
    let subscription = subscribe(&subscriber, "plant.>");
    for number in 0..20 {
        for subject in ["plant.x", "orders.x"] {
            publisher.publish(message(subject, &number.to_string())).expect("published");
        }
    }
    wait_until("the spool keeps them", || durable(&plant)["waiting"] == 20);
    assert_eq!(plant.link()["state"], "connecting");
    let files = files.dir().display().to_string();
    let _hub = NatsServer::start_on(port, &["--jetstream", "--store_dir", &files]);
    wait_until("the sites carry all shares", || plant.number("shares") + hq.number("shares") == 32);
    wait_until("the stream has stored them", || durable(&plant)["stored"] == 20 && durable(&plant)["waiting"] == 0);
    publisher.publish(message("plant.x", "20")).expect("published");
    // Live messages do not wait for a hub that was never there.
    assert!(numbers(&all_messages(&subscription)).ends_with(&[20]));
}

/// Publishes a message whose header is this text, as a client of the hub.
fn publish_with_header(port: u16, subject: &str, header: &str) {
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("the hub listens");
    let length = header.len();
    let text =
        format!("CONNECT {{\"verbose\":false,\"headers\":true}}\r\nHPUB {subject} {length} {length}\r\n{header}\r\n");
    client.write_all(text.as_bytes()).expect("the hub reads");
}

/// The client library ends the connection when a message has header fields that it cannot read, and connects again.
#[test]
fn malformed_header_fields_cost_a_connection_only() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 1);
    let [publisher, subscriber] = [sites.plant[0].attach(), sites.hq.attach()];
    let subscription = subscribe(&subscriber, "plant.>");
    let publish = |number: u64| publisher.publish(message("plant.x", &number.to_string())).expect("published");
    (0..10).for_each(publish);
    let before = all_messages(&subscription).len() as u64;
    publish_with_header(hub.port(), "plant.x", "abcde");
    wait_until("the connection has ended", || sites.hq.number("shares") == 0);
    (10..15).for_each(publish);
    wait_until("the gateways have returned", || {
        [&sites.plant[0], &sites.hq].iter().all(|gateway| gateway.number("shares") == 16)
    });
    (15..20).for_each(publish);
    let after = numbers(&all_messages(&subscription));
    assert!(before == 10 && after.ends_with(&[15, 16, 17, 18, 19]), "{after:?}");
    let lost = 20 - before - after.len() as u64;
    let row = sites.hq.site("plant1");
    assert_eq!([&row["imported"], &row["lost_min"], &row["lost_max"]], [20 - lost, lost, lost]);
}

/// A reader of the stream would lose its connection, or the message, at the same place for ever.
#[test]
fn unreadable_stored_messages_are_stepped_over() {
    let hub = Hub::start();
    let address = hub.address();
    let exports = ["site=plant1", &address, "link-durable=orders.>"];
    let plant = Gateway::start("P.test", Place::new().port(), &exports);
    let hq = Gateway::start("H.test", Place::new().port(), &["site=hq", &address, "link-import=orders.>"]);
    wait_until("the sites carry all shares", || plant.number("shares") + hq.number("shares") == 32);
    wait_until("the importing site reads the stream", || !durable(&hq)["position"].is_null());
    let (publisher, subscriber) = (plant.attach(), hq.attach());
    let subscription = subscribe(&subscriber, "orders.*");
    let publish = |number: u64| {
        publisher.publish(message(&format!("orders.{}", number % 7), &number.to_string())).expect("published");
    };
    let send = |header: &str| publish_with_header(hub.server.port(), "orders.x.y", header);
    let loses_connection = || wait_until("a reader has lost its connection", || hq.number("shares") == 0);
    (0..20).for_each(publish);
    assert_whole(&receive(&subscription, 20), 0..20);
    send("abcde");
    loses_connection();
    send("abcde");
    (20..40).for_each(publish);
    assert_whole(&receive(&subscription, 20), 20..40);
    // The client library takes it for one of its own.
    send("NATS/1.0 100\r\n\r\n");
    (40..60).for_each(publish);
    assert_whole(&receive(&subscription, 20), 40..60);
    wait_until("the gateway has returned", || hq.number("shares") == 16);
    // Nothing comes behind the last one.
    send("abcde");
    loses_connection();
    wait_until("it is counted", || durable(&hq)["invalid"] == 3 && hq.number("shares") == 16);
    for _ in 0..10 {
        let_time_pass(Duration::from_millis(500), "a reader that began before it would lose its connection");
        assert_eq!(hq.number("shares"), 16);
    }
}
