//! Events of a server in one site stand in the journals of followers in another one.

use super::Gateway;
use crate::support::command::{Place, RunningCommand};
use crate::support::events::{add, finds, rows};
use crate::support::nats_server::NatsServer;
use crate::support::wait::wait_until;
use serde_json::Value;

/// A site with a server that exports events, and a site whose gateways serve a follower.
struct EventSites {
    plant: Gateway,
    hq: Vec<Gateway>,
    follower: Place,
    _follower: RunningCommand,
}

impl EventSites {
    fn start(hub: &NatsServer, gateways: usize, export: &str, import: &str) -> EventSites {
        let link = format!("link={}", hub.address());
        let [export, import] = [format!("link-events={export}"), format!("link-events-import={import}")];
        let plant = Gateway::start("P.test", Place::new().port(), &["site=plant1", &link, &export, "server-id=7"]);
        let follower = Place::new();
        let port = follower.port();
        let hq =
            (0..gateways).map(|index| Gateway::start(&format!("H{index}.test"), port, &["site=hq", &link, &import]));
        let hq: Vec<Gateway> = hq.collect();
        let peer = follower.peer_with(&["name=F.test", "server-id=8", "event-follow=*"]);
        wait_until("the gateways carry shares", || {
            plant.number("shares") + hq.iter().map(|gateway| gateway.number("shares")).sum::<u64>() == 32
        });
        EventSites { plant, hq, follower, _follower: peer }
    }

    /// Returns the follower's row of the server.
    fn row(&self) -> Value {
        let rows = self.follower.show("status")["status"]["events"]["followed"].as_array().cloned();
        rows.unwrap_or_default().into_iter().find(|row| row["server"] == 7).unwrap_or_default()
    }
}

#[test]
fn events_keep_their_identity_across_an_outage() {
    let hub = NatsServer::start(&[]);
    let sites = EventSites::start(&hub, 1, "plant/*", "*");
    add(&sites.plant.place, "plant/1", 1..=300);
    finds(&sites.follower, &rows("plant/1", 1..=300));
    wait_until("the follower is up to date", || sites.row()["state"] == "live");
    assert_eq!(sites.row()["site"], "plant1");
    let port = hub.kill();
    wait_until("the gateway has noticed", || sites.plant.link()["state"] == "connecting");
    // More than one page holds.
    add(&sites.plant.place, "plant/1", 301..=3500);
    let _hub = NatsServer::start_on(port, &[]);
    finds(&sites.follower, &rows("plant/1", 1..=3500));
    add(&sites.plant.place, "plant/2", 3501..=3510);
    let expected = [rows("plant/1", 1..=3500), rows("plant/2", 3501..=3510)].concat();
    finds(&sites.follower, &expected);
    assert_eq!(sites.plant.link()["events"]["conflict"], Value::Null);
}

#[test]
fn events_cross_once_after_a_gateway_is_killed() {
    let hub = NatsServer::start(&[]);
    let mut sites = EventSites::start(&hub, 2, "*", "plant/*");
    add(&sites.plant.place, "plant/1", 1..=100);
    finds(&sites.follower, &rows("plant/1", 1..=100));
    let imported = |gateway: &Gateway| gateway.link()["events"]["imported"].as_u64().unwrap_or(0);
    wait_until("one of the gateways counts them", || sites.hq.iter().any(|gateway| 0 < imported(gateway)));
    let carrying = sites.hq.iter().position(|gateway| 0 < imported(gateway)).expect("one of them");
    let killed = sites.hq.remove(carrying);
    killed.process.signal("KILL");
    add(&sites.plant.place, "plant/1", 101..=400);
    finds(&sites.follower, &rows("plant/1", 1..=400));
    wait_until("the other gateway has imported them", || 0 < imported(&sites.hq[0]));
}

#[test]
fn types_that_are_not_named_do_not_cross() {
    let hub = NatsServer::start(&[]);
    let sites = EventSites::start(&hub, 1, "plant/* ; line/*", "plant/* ; secret/*");
    for (event_type, numbers) in [("secret/1", 1..=5), ("line/1", 6..=10), ("plant/1", 11..=15)] {
        add(&sites.plant.place, event_type, numbers);
    }
    finds(&sites.follower, &rows("plant/1", 11..=15));
    // Events that come live are filtered as those in pages.
    wait_until("the follower is up to date", || sites.row()["state"] == "live");
    for (event_type, numbers) in [("secret/1", 16..=20), ("line/1", 21..=25), ("plant/1", 26..=30)] {
        add(&sites.plant.place, event_type, numbers);
    }
    finds(&sites.follower, &[rows("plant/1", 11..=15), rows("plant/1", 26..=30)].concat());
    wait_until("the position is known", || sites.row()["session"] == 30);
}

#[test]
fn server_id_of_two_sites_is_reported() {
    let hub = NatsServer::start(&[]);
    let link = format!("link={}", hub.address());
    let keys = [link.as_str(), "link-events=*", "link-events-import=*", "event-follow=*", "server-id=7"];
    // Another peer of each site follows.
    let followers = [Place::new(), Place::new()];
    let sites = [("plant1", &followers[0]), ("hq", &followers[1])].map(|(site, follower)| {
        let name = format!("site={site}");
        Gateway::start("A.test", follower.port(), &[&[name.as_str()][..], &keys].concat())
    });
    let _peers = [("server-id=8", &followers[0]), ("server-id=9", &followers[1])]
        .map(|(id, follower)| follower.peer_with(&["name=F.test", id, "event-follow=*"]));
    add(&sites[0].place, "of/plant", 1..=3);
    add(&sites[1].place, "of/hq", 1..=2);
    wait_until("both gateways name it", || {
        let is_named = |gateway: &Gateway| {
            let conflict = gateway.link()["events"]["conflict"].as_str().unwrap_or_default().to_owned();
            conflict.contains("server 7") && conflict.contains("server-id")
        };
        sites.iter().all(is_named)
    });
    finds(&followers[0], &rows("of/plant", 1..=3));
    finds(&followers[1], &rows("of/hq", 1..=2));
}
