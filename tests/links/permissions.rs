//! Gateways whose users at the hub have the permissions that docs/links.md names, and no others.

use super::durable::{assert_whole, durable, receive};
use super::requests::{Responder, ask_until_answered};
use super::{Gateway, all_messages, numbers, subscribe};
use crate::support::bus::message;
use crate::support::command::Place;
use crate::support::events::{add, finds, rows};
use crate::support::nats_server::NatsServer;
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::fs;

/// Returns the subjects in the table of permissions whose rows begin with this verb, for the gateways of a site.
fn documented(verb: &str, site: &str) -> Vec<String> {
    let page = include_str!("../../docs/links.md");
    let (_, section) = page.split_once("### Permissions at the hub").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the end of the section");
    let rows = section.lines().filter_map(|line| line.strip_prefix(&format!("| {verb} ")));
    let cells = rows.filter_map(|row| row.split('|').next());
    // Every second part is in code style.
    let subjects = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    subjects.map(|subject| subject.replace("plant1", site)).collect()
}

/// Returns the user of a site's gateways with these permissions, and those for the subjects that cross.
fn user(site: &str) -> Value {
    let permitted = |verb: &str| {
        let crossing = ["plant.>", "orders.>", "hq.>"].map(str::to_owned);
        documented(verb, site).into_iter().chain(crossing).collect::<Vec<String>>()
    };
    let permissions = json!({ "publish": permitted("publish"), "subscribe": permitted("subscribe") });
    json!({ "user": site, "password": "word", "permissions": permissions })
}

#[test]
fn documented_permissions_at_the_hub_suffice() {
    assert!(3 < documented("publish", "hq").len() && !documented("subscribe", "hq").is_empty());
    let files = Place::new();
    let users = ["plant1", "hq"].map(user);
    let config = json!({
        "jetstream": { "store_dir": files.dir().join("jetstream") },
        "authorization": { "users": users },
    });
    let path = files.dir().join("hub.conf");
    fs::write(&path, config.to_string()).expect("a file");
    let hub = NatsServer::start(&["--config", &path.display().to_string()]);
    let address = format!("link={}", hub.address());
    let start = |site: &str, name: &str, lan: &Place, keys: &[&str]| {
        let credentials = files.dir().join(format!("{site}.credentials"));
        fs::write(&credentials, format!("user {site} password word\n")).expect("a file");
        let own = [format!("site={site}"), format!("link-credentials={}", credentials.display())];
        let keys = [&[own[0].as_str(), &own[1], &address][..], keys].concat();
        Gateway::start(name, lan.port(), &keys)
    };
    let (plant_lan, follower) = (Place::new(), Place::new());
    let exports = ["link-live=plant.>", "link-durable=orders.>", "link-import=hq.>"];
    let plant =
        start("plant1", "P.test", &plant_lan, &[&exports[..], &["link-events=plant/*", "server-id=7"]].concat());
    let imports = ["link-live=hq.>", "link-import=plant.> ; orders.>", "link-events-import=*"];
    let hq = start("hq", "H.test", &follower, &imports);
    let _follower = follower.peer_with(&["name=F.test", "server-id=8", "event-follow=*"]);
    wait_until("the sites carry all shares", || plant.number("shares") + hq.number("shares") == 32);
    wait_until("the importing site reads the stream", || !durable(&hq)["position"].is_null());

    let (publisher, subscriber) = (plant.attach(), hq.attach());
    let (live, stored) = (subscribe(&subscriber, "plant.>"), subscribe(&subscriber, "orders.>"));
    for number in 0..20 {
        publisher.publish(message("plant.x", &number.to_string())).expect("published");
        publisher.publish(message(&format!("orders.{}", number % 7), &number.to_string())).expect("published");
    }
    assert_whole(&receive(&stored, 20), 0..20);
    assert_eq!(numbers(&all_messages(&live)), (0..20).collect::<Vec<u64>>());
    let _responder = Responder::plain(&hq, "plant.service", "hq");
    assert_eq!(ask_until_answered(&publisher, "plant.service"), "hq");
    add(&plant.place, "plant/1", 1..=30);
    finds(&follower, &rows("plant/1", 1..=30));
    wait_until("the position is stored", || durable(&hq)["position"].as_u64() >= Some(20));
    for gateway in [&plant, &hq] {
        let link = gateway.link();
        assert_eq!([&link["fault"], &link["durable"]["fault"]], [&Value::Null; 2], "{link}");
    }
}
