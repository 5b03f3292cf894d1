//! Sites that a real nats-server joins: each is a LAN of its own on this host.

mod bad_hub;
mod durable;
mod events;
mod hub_proxy;
mod permissions;
mod repeats;
mod requests;
mod security;
mod stream_subjects;

use crate::listeners::client::{ListenerClient, Nats};
use crate::support::bus::message;
use crate::support::certificate::Authority;
use crate::support::command::{Place, RunningCommand, now, parse_json};
use crate::support::exit_code::{CONFIGURATION, DONE};
use crate::support::nats_server::NatsServer;
use crate::support::wait::{let_time_pass, wait_until};
use seqcast::bus::{Bus, Notice, Subscription};
use seqcast::message::Delivery;
use seqcast::subject::Pattern;
use serde_json::{Value, json};
use std::time::Duration;

/// Time without a message after which no further one is awaited.
const SILENCE: Duration = Duration::from_secs(2);

/// A gateway.
struct Gateway {
    place: Place,
    process: RunningCommand,
}

impl Gateway {
    /// Starts a gateway of a site on the LAN with this port.
    fn start(name: &str, port: u16, settings: &[&str]) -> Gateway {
        let place = Place::new();
        let [name, port] = [format!("name={name}"), format!("port={port}")];
        let process = place.peer_with(&[&[name.as_str(), &port][..], settings].concat());
        Gateway { place, process }
    }

    fn link(&self) -> Value {
        self.place.show("links")["link"].clone()
    }

    fn number(&self, field: &str) -> u64 {
        self.link()[field].as_u64().unwrap_or(0)
    }

    /// Returns the row of another site.
    fn site(&self, name: &str) -> Value {
        let rows = self.place.show("links")["rows"].as_array().cloned().unwrap_or_default();
        rows.into_iter().find(|row| row["site"] == name).unwrap_or_default()
    }

    fn attach(&self) -> Bus {
        Bus::attach(self.place.socket()).expect("the peer listens")
    }
}

/// Two sites: one with several gateways that exports `plant.>` and imports `hq.>`, and one with a gateway that does the
/// contrary.
struct Sites {
    plant: Vec<Gateway>,
    hq: Gateway,
}

impl Sites {
    fn start(hub: &NatsServer, gateways: usize) -> Sites {
        let address = format!("link={}", hub.address());
        let (plant_lan, hq_lan) = (Place::new(), Place::new());
        let plant = (0..gateways).map(|index| {
            let settings = ["site=plant1", &address, "link-live=plant.>", "link-import=hq.>"];
            Gateway::start(&format!("P{index}.test"), plant_lan.port(), &settings)
        });
        let plant: Vec<Gateway> = plant.collect();
        let hq =
            Gateway::start("H.test", hq_lan.port(), &["site=hq", &address, "link-live=hq.>", "link-import=plant.>"]);
        let sites = Sites { plant, hq };
        wait_until("all gateways carry shares", || {
            let shares: Vec<u64> = sites.plant.iter().map(|gateway| gateway.number("shares")).collect();
            shares.iter().sum::<u64>() == 16 && !shares.contains(&0) && sites.hq.number("shares") == 16
        });
        sites
    }

    /// Kills the hub, runs `publish`, and starts the hub again once the gateways do not retain the messages any more.
    fn outlast_standby(&self, hub: NatsServer, publish: impl FnOnce()) -> NatsServer {
        let port = hub.kill();
        wait_until("the gateway has noticed", || self.plant[0].link()["state"] == "connecting");
        publish();
        let_time_pass(Duration::from_secs(6), "a message is retained for 5 s");
        let hub = NatsServer::start_on(port, &[]);
        wait_until("the gateways have returned", || {
            [&self.plant[0], &self.hq].iter().all(|gateway| gateway.number("shares") == 16)
        });
        hub
    }
}

fn subscribe(bus: &Bus, pattern: &str) -> Subscription {
    bus.subscribe(pattern.parse::<Pattern>().expect("a pattern")).expect("subscribed")
}

/// Returns the messages up to a silence.
fn all_messages(subscription: &Subscription) -> Vec<Delivery> {
    let mut messages = Vec::new();
    while let Ok(notice) = subscription.recv_timeout(SILENCE) {
        match notice {
            Notice::Message(delivery) => messages.push(delivery),
            other => panic!("nothing is missing on this LAN: {other:?}"),
        }
    }
    messages
}

fn payload(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.message.payload).into_owned()
}

/// Returns the words of the header field with the origin.
fn origin(delivery: &Delivery) -> Vec<String> {
    let (_, value) =
        delivery.message.headers.iter().find(|(key, _)| *key == "Seqcast-Origin").expect("an imported message");
    value.split(' ').map(str::to_owned).collect()
}

#[test]
fn messages_cross_once_with_their_publisher() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 2);
    let [publisher, subscriber] = [sites.plant[0].attach(), sites.hq.attach()];
    let subscription = subscribe(&subscriber, "plant.>");
    for number in 0..200 {
        publisher.publish(message(&format!("plant.{}", number % 40), &number.to_string())).expect("published");
    }
    let messages = all_messages(&subscription);
    assert_eq!(numbers(&messages), (0..200).collect::<Vec<u64>>(), "each message arrives once");
    let publisher_epoch = sites.plant[0].place.show("status")["status"]["epoch"].clone();
    for message in &messages {
        let words = origin(message);
        assert_eq!([&words[0], &words[7]], ["plant1", "P0.test"]);
        assert_eq!(words[6], publisher_epoch);
    }
    let exported: u64 = sites.plant.iter().map(|gateway| gateway.number("exported")).sum();
    assert_eq!(exported, 200, "the two gateways share the subjects");
    assert!(sites.plant.iter().all(|gateway| 0 < gateway.number("exported")));
    wait_until("the importing site counts them", || sites.hq.site("plant1")["imported"] == 200);
    assert_eq!(sites.hq.site("plant1")["lost_min"], 0);
}

#[test]
fn clients_of_the_cluster_take_part() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 1);
    let mut client = ListenerClient::connect(Nats, hub.port());
    client.enter();
    client.subscribe("hq.>", 1);
    let (subscriber, publisher) = (sites.hq.attach(), sites.hq.attach());
    let subscription = subscribe(&subscriber, "plant.>");
    publisher.publish(message("hq.orders", "7")).expect("published");
    assert_eq!(client.message(), ("hq.orders".into(), b"7".into()));
    client.send(Nats.publish("plant.x", "of a client"));
    client.send(Nats.publish("other.x", "of a client"));
    let messages = all_messages(&subscription);
    assert_eq!(messages.iter().map(payload).collect::<Vec<String>>(), ["of a client"]);
    // The exporting site of the subject neither imports nor exports it.
    assert_eq!((sites.hq.number("of_clients"), sites.plant[0].number("of_clients")), (1, 0));
    assert_eq!(sites.plant[0].number("exported"), 0);
}

#[test]
fn outage_beyond_the_standby_is_reported_exactly() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 1);
    let [publisher, subscriber] = [sites.plant[0].attach(), sites.hq.attach()];
    let subscription = subscribe(&subscriber, "plant.>");
    let publish = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            publisher.publish(message(&format!("plant.{}", number % 5), &number.to_string())).expect("published");
        }
    };
    publish(0..50);
    assert_eq!(all_messages(&subscription).len(), 50);
    let hub = sites.outlast_standby(hub, || publish(50..90));
    publish(90..100);
    let after = all_messages(&subscription);
    assert_eq!(after.len(), 10, "{after:?}");
    let row = sites.hq.site("plant1");
    assert_eq!((&row["imported"], &row["lost_min"], &row["lost_max"]), (&60.into(), &40.into(), &40.into()));
    drop(hub);
}

/// Returns the rows of `show loss` about other sites, without their times. `options` are those of the command.
fn site_losses(peer: &Gateway, options: &[&str]) -> Vec<Value> {
    let shown = peer.place.run(&[&["show", "loss", "--json"], options].concat()).exits(DONE).stdout;
    let rows = parse_json(&shown)["sites"].as_array().cloned().unwrap_or_default();
    let without_time = |mut row: Value| {
        assert!(row["time"].is_string() && row["time_ns"].is_u64(), "{row}");
        row.as_object_mut().expect("a row").retain(|field, _| !field.starts_with("time"));
        row
    };
    rows.into_iter().map(without_time).collect()
}

#[test]
fn loss_of_a_site_is_shown_and_advised() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 1);
    let port = sites.hq.place.show("status")["status"]["port"].as_u64().expect("a port");
    let other = Gateway::start("Q.test", port as u16, &[]);
    let listens = |peer: &Gateway| {
        let subs = peer.place.show("subs")["rows"].as_array().cloned().unwrap_or_default();
        subs.iter().any(|row| row["pattern"] == "_SEQCAST.LINK.LOSS")
    };
    wait_until("the peers of the LAN listen to the gateway", || [&sites.hq, &other].into_iter().all(listens));
    assert_eq!(site_losses(&other, &[]), Vec::<Value>::new());
    let [publisher, subscriber] = [sites.plant[0].attach(), other.attach()];
    let subscription = subscribe(&subscriber, "plant.>");
    let advisories = subscribe(&subscriber, "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST");
    let publish = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            publisher.publish(message("plant.7", &number.to_string())).expect("published");
        }
    };
    publish(0..10);
    assert_eq!(all_messages(&subscription).len(), 10);
    let hub = sites.outlast_standby(hub, || publish(10..50));
    publish(50..51);
    assert_eq!(numbers(&all_messages(&subscription)), [50]);
    let epoch = sites.plant[0].place.show("status")["status"]["epoch"].clone();
    let row = json!({ "site": "plant1", "publisher": "P0.test", "epoch": epoch, "lost": 40, "tails": 0 });
    let mut by_subject = row.clone();
    (by_subject["kind"], by_subject["subject"]) = ("subject".into(), "plant.7".into());
    for peer in [&sites.hq, &other] {
        wait_until("the loss has a row", || !site_losses(peer, &[]).is_empty());
        assert_eq!(site_losses(peer, &[]), std::slice::from_ref(&row));
        assert_eq!(site_losses(peer, &["--by-subject"]), std::slice::from_ref(&by_subject));
    }
    let advised: Vec<Value> = all_messages(&advisories)
        .iter()
        .map(|advisory| serde_json::from_slice(&advisory.message.payload).expect("JSON"))
        .filter(|advisory: &Value| advisory["site"].is_string())
        .collect();
    let [advisory] = &advised[..] else { panic!("one advisory is due: {advised:?}") };
    for (field, expected) in [
        ("ADV_NAME", json!("DATALOSS.INBOUND.BCAST")),
        ("lost", json!(40)),
        ("sub_cnt", json!(1)),
        ("sub1", json!("plant.7")),
        ("lost1", json!(40)),
        ("site", json!("plant1")),
        ("publisher", json!("P0.test")),
        ("epoch", epoch),
        ("tails", json!(0)),
    ] {
        assert_eq!(advisory[field], expected, "{field}: {advisory}");
    }
    drop(hub);
}

#[test]
fn death_of_the_only_gateway_is_shown() {
    let hub = NatsServer::start(&[]);
    let mut sites = Sites::start(&hub, 1);
    let [publisher, subscriber] = [sites.plant[0].attach(), sites.hq.attach()];
    let subscription = subscribe(&subscriber, "plant.>");
    publisher.publish(message("plant.7", "1")).expect("published");
    assert_eq!(all_messages(&subscription).len(), 1);
    sites.plant.pop().expect("the gateway").process.signal("KILL");
    wait_until("the tail has a row", || !site_losses(&sites.hq, &[]).is_empty());
    let lost = json!({ "min": 0, "max": null });
    let row = json!({ "site": "plant1", "publisher": null, "epoch": null, "lost": lost, "tails": 1 });
    assert_eq!(site_losses(&sites.hq, &[]), [row]);
    assert_eq!(site_losses(&sites.hq, &["--by-subject"])[0]["kind"], "tail");
    wait_until("the gateway counts it", || sites.hq.site("plant1")["tails"] == 1);
}

/// Two sites of which the first has two gateways, and a publisher there that does not rest.
struct BusySites {
    sites: Sites,
    publisher: Bus,
    subscription: Subscription,
    /// Number of messages so far.
    sent: u64,
    _subscriber: Bus,
}

impl BusySites {
    /// Starts the sites. Returns once more than 500 messages have crossed.
    fn start(hub: &NatsServer) -> BusySites {
        let sites = Sites::start(hub, 2);
        let [publisher, subscriber] = [sites.plant[0].attach(), sites.hq.attach()];
        let subscription = subscribe(&subscriber, "plant.>");
        let mut busy = BusySites { sites, publisher, subscription, sent: 0, _subscriber: subscriber };
        busy.publish_until(|sites| 500 < sites.hq.site("plant1")["imported"].as_u64().unwrap_or(0));
        busy
    }

    /// Publishes a message each 5 ms, with a number that goes up, until the condition holds; at most 20 s. Returns the
    /// time that it took.
    fn publish_until(&mut self, is_done: impl Fn(&Sites) -> bool) -> Duration {
        let start = now();
        while !is_done(&self.sites) {
            assert!(now() < start + Duration::from_secs(20), "it takes too long");
            for _ in 0..20 {
                let message = message(&format!("plant.{}", self.sent % 40), &self.sent.to_string());
                self.publisher.publish(message).expect("published");
                self.sent += 1;
                let_time_pass(Duration::from_millis(5), "the rate of the publisher");
            }
        }
        now().since(start)
    }

    /// Sends this signal to the second gateway, and publishes until the first one carries all shares. Returns the second
    /// one, and the time that it took.
    fn hand_over(&mut self, signal: &str) -> (Gateway, Duration) {
        let other = self.sites.plant.pop().expect("the second gateway");
        other.process.signal(signal);
        (other, self.publish_until(|sites| sites.plant[0].number("shares") == 16))
    }

    /// Checks that each message has arrived once, and that no loss is counted.
    fn assert_whole(&self) {
        let arrived = numbers(&all_messages(&self.subscription)).len() as u64;
        let row = self.sites.hq.site("plant1");
        assert_eq!(arrived, self.sent, "the other gateway retained what this one had not exported: {row}");
        assert_eq!(["lost_min", "lost_max", "tails"].map(|field| &row[field]), [0, 0, 0], "{row}");
    }
}

/// Returns the numbers of messages in order, and checks that none came twice.
fn numbers(messages: &[Delivery]) -> Vec<u64> {
    let mut numbers: Vec<u64> = messages.iter().map(|message| payload(message).parse().expect("a number")).collect();
    numbers.sort_unstable();
    let arrived = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), arrived, "nothing comes twice");
    numbers
}

#[test]
fn killed_gateway_is_replaced_without_a_loss() {
    let hub = NatsServer::start(&[]);
    let mut busy = BusySites::start(&hub);
    let (_killed, time) = busy.hand_over("KILL");
    // Its last announcement may have come 0.6 s before it died, and this machine may be busy.
    assert!(time < Duration::from_secs(6), "the take-over took {time:?}");
    let end = now() + Duration::from_millis(500);
    busy.publish_until(|_| end < now());
    busy.assert_whole();
}

#[test]
fn stopped_gateway_hands_over_without_a_loss() {
    let hub = NatsServer::start(&[]);
    let mut busy = BusySites::start(&hub);
    let (mut stopped, time) = busy.hand_over("TERM");
    assert!(time < Duration::from_secs(2), "it said that it leaves, but the take-over took {time:?}");
    assert!(stopped.process.ended().success());
    busy.assert_whole();
    assert_eq!(busy.sites.plant[0].link()["conflict"], Value::Null);
}

#[test]
fn messages_cross_once_to_several_importing_gateways() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 2);
    let [publisher, subscriber] = [sites.hq.attach(), sites.plant[1].attach()];
    let subscription = subscribe(&subscriber, "hq.>");
    for number in 0..200 {
        publisher.publish(message(&format!("hq.{}", number % 40), &number.to_string())).expect("published");
    }
    assert_eq!(numbers(&all_messages(&subscription)), (0..200).collect::<Vec<u64>>());
    let imported = |gateway: &Gateway| gateway.site("hq")["imported"].as_u64().unwrap_or(0);
    wait_until("they count them", || sites.plant.iter().map(imported).sum::<u64>() == 200);
    assert!(sites.plant.iter().all(|gateway| 0 < imported(gateway)), "the two gateways share the subjects");
}

#[test]
fn message_too_large_for_a_site_is_reported() {
    let hub = NatsServer::start(&[]);
    let address = format!("link={}", hub.address());
    let plant = Gateway::start("P.test", Place::new().port(), &["site=plant1", &address, "link-live=plant.>"]);
    let settings = ["site=hq", &address, "link-import=plant.>", "message-size=64kb"];
    let hq = Gateway::start("H.test", Place::new().port(), &settings);
    wait_until("the sites carry all shares", || plant.number("shares") + hq.number("shares") == 32);
    let (publisher, subscriber) = (plant.attach(), hq.attach());
    let subscription = subscribe(&subscriber, "plant.>");
    for bytes in [1_000, 100_000, 1_001] {
        publisher.publish(message("plant.x", &"x".repeat(bytes))).expect("published");
    }
    let sizes: Vec<usize> = all_messages(&subscription).iter().map(|message| message.message.payload.len()).collect();
    assert_eq!(sizes, [1_000, 1_001]);
    let row = hq.site("plant1");
    assert_eq!((hq.number("refused"), &row["lost_min"], &row["lost_max"]), (1, &1.into(), &1.into()));
}

#[test]
fn silent_hub_is_left_within_seconds() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 1);
    hub.signal("STOP");
    let stopped = now();
    wait_until("the gateway has noticed", || {
        sites.plant[0].link()["state"] == "connecting" && sites.plant[0].number("shares") == 0
    });
    let time = now().since(stopped);
    assert!(time < Duration::from_secs(8), "the third ping is due after 2.25 s, and it was noticed after {time:?}");
    hub.signal("CONT");
    wait_until("it carries again", || sites.plant[0].number("shares") == 16);
}

#[test]
fn wrong_credentials_are_named() {
    let hub = NatsServer::start(&["--user", "gateway", "--pass", "right"]);
    let credentials = |place: &Place, word: &str| {
        let path = place.dir().join("link.credentials");
        std::fs::write(&path, format!("user gateway password {word}\n")).expect("a file");
        path.display().to_string()
    };
    let files = Place::new();
    let address = format!("link={}", hub.address());
    for (word, state) in [("right", "connected"), ("wrong", "connecting")] {
        let file = format!("link-credentials={}", credentials(&files, word));
        let settings = ["site=plant1", &address, "link-live=plant.>", &file];
        let gateway = Gateway::start("P.test", Place::new().port(), &settings);
        let is_refused = |link: &Value| link["fault"].as_str().is_some_and(|fault| fault.contains("authorization"));
        wait_until("the outcome is shown", || {
            let link = gateway.link();
            link["state"] == state && (word == "right" || is_refused(&link))
        });
    }
}

#[test]
fn cluster_of_another_authority_is_refused() {
    let files = Place::new();
    let [own, other] = ["own", "other"].map(|name| Authority::new(files.dir(), name));
    let [certificate, key] = own.sign("hub", "/CN=hub", "IP:127.0.0.1", 2);
    let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
    let hub = NatsServer::start(&["--tls", "--tlscert", &certificate, "--tlskey", &key]);
    let address = format!("link={}", hub.address());
    for (authority, state) in [(&own, "connected"), (&other, "connecting")] {
        let authorities = format!("link-tls-ca={}", authority.certificate().display());
        let settings = ["site=plant1", &address, "link-live=plant.>", &authorities];
        let gateway = Gateway::start("P.test", Place::new().port(), &settings);
        wait_until("the outcome is shown", || {
            let link = gateway.link();
            let is_named = link["fault"].as_str().is_some_and(|fault| fault.contains("unknown authority"));
            link["state"] == state && is_named == (state == "connecting")
        });
    }
}

#[test]
fn unusable_files_of_a_link_end_the_start() {
    let place = Place::new();
    let empty = place.dir().join("empty.pem");
    std::fs::write(&empty, "").expect("a file");
    let missing = place.dir().join("missing");
    let [empty, missing] = [empty, missing].map(|path| path.display().to_string());
    for (key, file, reason) in [
        ("link-tls-ca", &empty, "it holds no certificate in PEM"),
        ("link-tls-ca", &missing, "No such file or directory"),
        ("link-credentials", &empty, "neither a .creds file nor the seed of a user nor a line user NAME password WORD"),
        ("link-credentials", &"/dev/zero".to_owned(), "it is no file"),
    ] {
        let file = format!("{key}={file}");
        let settings = ["site=plant1", "link=tls://127.0.0.1:1", "link-live=plant.>", &file];
        let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        place.run(&[&["peer"][..], &arguments].concat()).exits(CONFIGURATION).reports(&[key, reason]);
    }
}

#[test]
fn site_name_of_two_lans_is_reported() {
    let hub = NatsServer::start(&[]);
    let settings = ["site=plant1", &format!("link={}", hub.address()), "link-live=plant.>"];
    let gateways = ["A.test", "B.test"].map(|name| Gateway::start(name, Place::new().port(), &settings));
    wait_until("both report it", || {
        gateways.iter().all(|gateway| gateway.link()["conflict"].as_str().is_some_and(|text| text.contains("plant1")))
    });
}

/// Returns the processor time of a process, in ticks of the system's clock, 100 a second.
fn processor_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("the name stands in parentheses");
    fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("a number")).sum()
}

#[test]
fn idle_gateways_leave_the_processor_alone() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 2);
    let ticks = || sites.plant.iter().map(|gateway| processor_ticks(gateway.process.pid())).sum::<u64>();
    let before = ticks();
    let_time_pass(Duration::from_secs(4), "processor time is measured");
    // A loop that never rests takes at least a quarter of a processor, also on a busy machine.
    let used = ticks() - before;
    assert!(used < 80, "two idle gateways took {used} ticks in 4 s");
}

#[test]
fn link_without_a_cluster_is_a_finding() {
    let settings = ["site=plant1", "link=nats://127.0.0.1:1", "link-live=plant.>"];
    let gateway = Gateway::start("P.test", Place::new().port(), &settings);
    wait_until("health names the link", || {
        let health = gateway.place.show("health")["health"].clone();
        let findings = health["findings"].as_array().cloned().unwrap_or_default();
        findings.iter().any(|finding| {
            let found = finding["found"].as_str().unwrap_or_default();
            finding["check"] == "link" && found.starts_with("the link is connecting: ")
        })
    });
}

#[test]
fn reports_of_links_have_the_documented_fields() {
    let hub = NatsServer::start(&[]);
    let sites = Sites::start(&hub, 1);
    sites.plant[0].attach().publish(message("plant.x", "1")).expect("published");
    wait_until("the site is known", || sites.hq.site("plant1")["imported"] == 1);
    let page = std::fs::read_to_string(crate::support::root().join("docs/local-protocol.md")).expect("the page");
    let chapter = page.split("\n### ").find(|part| part.starts_with("`links`")).expect("the chapter");
    for object in [sites.hq.link(), sites.hq.site("plant1")] {
        for field in object.as_object().expect("an object").keys() {
            assert!(chapter.contains(&format!("`{field}`")), "docs/local-protocol.md does not name {field}");
        }
    }
    let status = sites.hq.place.run(&["link", "status"]).exits(0).stdout;
    for part in ["connected", "plant1", "requests sent", "durable messages", "SEQCAST", "unstored"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    let alone = Place::new();
    let _peer = alone.peer(&[]);
    alone
        .run(&["link", "status"])
        .exits(1)
        .prints("this peer is no gateway: the key link names the servers of a cluster\n");
}
