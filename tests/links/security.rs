//! Links of a realm: signatures, certificates, and clients of the cluster that forge or replay messages.

use super::durable::{Hub, assert_whole, delete_stored, durable, publish, receive};
use super::requests::{Responder, ask_until_answered};
use super::{Gateway, all_messages, origin, payload, subscribe};
use crate::listeners::client::{ListenerClient, Nats};
use crate::support::bus::message;
use crate::support::command::Place;
use crate::support::events::{add, finds, rows};
use crate::support::exit_code::DONE;
use crate::support::nats_server::NatsServer;
use crate::support::wait::{let_time_pass, wait_until};
use seqcast::bus::{Notice, SubscribeOptions};
use seqcast::clock::Clock;
use seqcast::link::shares::share_of;
use seqcast::link::signatures::signer::LinkSigner;
use seqcast::message::{Epoch, Headers, Message};
use seqcast::security::ProvenCertificate;
use seqcast::security::batch_signature::BatchCodeKey;
use seqcast::storage::realm::RealmDirectory;
use seqcast::subject::Pattern;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Permissions of a gateway of plant1 that exports `plant.>` and imports `hq.>`.
const PLANT: [&str; 4] = ["plant.>", "hq.>", "_SEQCAST.LINK.*", "_SEQCAST.LINK.SITE.plant1.plant.>"];

/// A realm with an authority, the host H.test, or one without.
struct Realm {
    place: Place,
}

impl Realm {
    fn new(mode: &str) -> Realm {
        let place = Place::new();
        let init = ["init", "--realm", "works", "--mode", mode, "--name", "H.test", "--data-dir", "H.test"];
        place.run(&init).exits(DONE);
        Realm { place }
    }

    /// Lets a host join. The authority permits it to publish on these subjects.
    fn join(&self, name: &str, publish: &[&str]) {
        let invitation = self.place.run(&["realm", "invite", "--data-dir", "H.test"]).exits(DONE).stdout;
        let join = |line: &str| {
            let arguments = ["join", "-", "--name", name, "--data-dir", name];
            self.place.run_with_input(&arguments, line.as_bytes()).exits(DONE).stdout
        };
        let request = join(&invitation);
        if !publish.is_empty() {
            let sign = ["realm", "sign", "-", "--name", name, "--subscribe", ">", "--data-dir", "H.test"];
            let publish: Vec<&str> = publish.iter().flat_map(|pattern| ["--publish", pattern]).collect();
            let sign = [&sign[..], &publish].concat();
            join(&self.place.run_with_input(&sign, request.as_bytes()).exits(DONE).stdout);
        }
    }

    fn gateway(&self, name: &str, hub: &NatsServer, settings: &[&str]) -> Gateway {
        self.gateway_on(name, Place::new().port(), hub, settings)
    }

    fn gateway_on(&self, name: &str, port: u16, hub: &NatsServer, settings: &[&str]) -> Gateway {
        let data_dir = format!("data-dir={}", self.place.dir().join(name).display());
        let link = format!("link={}", hub.address());
        Gateway::start(name, port, &[&[data_dir.as_str(), &link][..], settings].concat())
    }
}

/// Starts plant1, which exports `plant.>` and imports `hq.>`, and hq, which does the contrary with these settings, too.
fn start_sites(realm: &Realm, hub: &NatsServer, of_hq: &[&str]) -> [Gateway; 2] {
    let plant = realm.gateway("P.test", hub, &["site=plant1", "link-live=plant.>", "link-import=hq.>"]);
    let settings = [&["site=hq", "link-live=hq.>", "link-import=plant.>"][..], of_hq].concat();
    let hq = realm.gateway("H.test", hub, &settings);
    wait_until_ready(&[&plant, &hq]);
    [plant, hq]
}

fn wait_until_ready(gateways: &[&Gateway]) {
    wait_until("the gateways carry all shares", || gateways.iter().all(|gateway| gateway.number("shares") == 16));
}

fn security(gateway: &Gateway, field: &str) -> u64 {
    gateway.link()["security"][field].as_u64().unwrap_or_else(|| panic!("{field} in {}", gateway.link()))
}

fn health(gateway: &Gateway) -> String {
    gateway.place.show("health")["health"]["findings"].to_string()
}

/// Returns the value of a header field.
fn field<'a>(message: &'a Message, key: &str) -> Option<&'a str> {
    message.headers.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// A client of the cluster that has the keys of a host.
struct Intruder {
    client: ListenerClient,
    signer: LinkSigner,
}

impl Intruder {
    /// Connects with the keys of the host with this name, and announces its certificate.
    fn connect(realm: &Realm, name: &str, hub: &NatsServer) -> Intruder {
        let mut client = ListenerClient::connect(Nats, hub.port());
        client.enter();
        let local = RealmDirectory::new(&realm.place.dir().join(name)).load().expect("the files of the host");
        let certificate = local.certificate.as_ref().expect("a certificate").encode();
        let certificate = ProvenCertificate::new(&certificate, &local.realm.secret);
        let (site, key) = ("plant1".parse().expect("a name"), local.identity.shared_signing_key());
        let code_key = BatchCodeKey::of(&local.realm.secret);
        let mut signer = LinkSigner::new(site, epoch(), key, code_key, certificate);
        signer.on_link(Clock::now().instant, true);
        let announcement = signer.poll(Clock::now(), || None).expect("the announcement");
        let mut intruder = Intruder { client, signer };
        intruder.publish(&announcement);
        intruder
    }

    fn publish(&mut self, message: &Message) {
        let block = [b"NATS/1.0\r\n", &message.headers.block()[..], b"\r\n"].concat();
        let [head, all] = [block.len(), block.len() + message.payload.len()];
        let command = format!("HPUB {} {head} {all}\r\n", message.subject);
        self.client.send([command.as_bytes(), &block, &message.payload, b"\r\n"].concat());
    }

    /// Publishes a message with the signature of the host. Returns it.
    fn publish_signed(&mut self, message: Message) -> Message {
        let signed = self.signer.sign(Clock::now(), vec![message]).remove(0).expect("fields that can be written");
        self.publish(&signed);
        signed
    }
}

fn epoch() -> Epoch {
    Epoch::new(0xe).expect("not 0")
}

/// Returns the first message of a share that the intruder exports in the name of a site.
fn exported(site: &str, subject: &str) -> Message {
    let share = share_of(&subject.parse().expect("a subject"));
    let origin = format!("{site} {} {share} 1 1 1 00000000000000aa A.test - - -", epoch());
    let headers = Headers::from_pairs([("Seqcast-Origin", origin.as_str())]).expect("a field");
    Message { headers, ..message(subject, "of an intruder") }
}

/// Returns a manifest that names this number of messages of a stream.
fn manifest(site: &str, subject: &str, count: u64) -> Message {
    let share = share_of(&subject.parse().expect("a subject"));
    let stream = json!({
        "publisher": "00000000000000aa", "subject": subject, "first": 1, "last": count, "ordinal": count,
    });
    let streams = if count == 0 { json!([]) } else { json!([stream]) };
    let of_share = json!({
        "share": share, "carries": true, "after": 0, "named_to": count, "received": count, "streams": streams,
    });
    let text = json!({ "site": site, "gateway": epoch().to_string(), "shares": [of_share] });
    message(&format!("_SEQCAST.LINK.MANIFEST.{site}"), &text.to_string())
}

fn bye(site: &str, gateway: &str) -> Message {
    let text = json!({ "site": site, "gateway": gateway, "named_to": vec![Value::from(0); 16] });
    message(&format!("_SEQCAST.LINK.BYE.{site}"), &text.to_string())
}

#[test]
fn messages_and_requests_cross_in_a_realm() {
    for mode in ["pki", "realm"] {
        let (hub, realm) = (NatsServer::start(&[]), Realm::new(mode));
        realm.join("P.test", if mode == "pki" { &PLANT } else { &[] });
        let [plant, hq] = start_sites(&realm, &hub, &[]);
        let mut client = ListenerClient::connect(Nats, hub.port());
        client.enter();
        client.subscribe("plant.>", 1);
        let [publisher, subscriber] = [plant.attach(), hq.attach()];
        let subscription = subscribe(&subscriber, "plant.>");
        for number in 0..300 {
            let text = format!("{number}");
            publisher.publish(message(&format!("plant.{}", number % 40), &text)).expect("published");
        }
        let messages = all_messages(&subscription);
        assert_eq!(super::numbers(&messages), (0..300).collect::<Vec<u64>>(), "{mode}: {}", hq.link());
        for message in &messages {
            assert_eq!(origin(message)[0], "plant1");
            assert_eq!(field(&message.message, "Seqcast-Signature"), None);
        }
        let _responder = Responder::plain(&hq, "plant.service", "hq");
        wait_until("hq answers", || {
            let reply = publisher.request("plant.service".parse().expect("a subject"), "?", Duration::from_secs(5));
            reply.is_ok_and(|reply| reply.message.payload == "hq")
        });
        for gateway in [&plant, &hq] {
            let counts = ["unsigned", "bad_signatures", "stale", "repeated", "denied", "untrusted"];
            assert_eq!(counts.map(|count| security(gateway, count)), [0; 6], "{mode}");
            assert!(0 < security(gateway, "verified") && 0 < security(gateway, "signed"));
        }
        let row = hq.site("plant1");
        assert_eq!((&row["lost_min"], &row["tails"]), (&0.into(), &0.into()), "{row}");
        let is_signed = (0..20).any(|_| client.line().starts_with("Seqcast-Signature: "));
        assert!(is_signed, "clients of the cluster can verify");
    }
}

#[test]
fn events_cross_in_a_realm() {
    let (hub, realm, lan) = (NatsServer::start(&[]), Realm::new("realm"), Place::new());
    ["P.test", "F.test"].iter().for_each(|name| realm.join(name, &[]));
    let plant = realm.gateway("P.test", &hub, &["site=plant1", "link-events=plant/*", "server-id=7"]);
    let hq = realm.gateway_on("H.test", lan.port(), &hub, &["site=hq", "link-events-import=*"]);
    let data_dir = format!("data-dir={}", realm.place.dir().join("F.test").display());
    let follower = Gateway::start("F.test", lan.port(), &[data_dir.as_str(), "server-id=8", "event-follow=*"]);
    wait_until_ready(&[&plant, &hq]);
    add(&plant.place, "plant/1", 1..=300);
    finds(&follower.place, &rows("plant/1", 1..=300));
    for gateway in [&plant, &hq] {
        assert_eq!(["unsigned", "bad_signatures", "denied"].map(|count| security(gateway, count)), [0; 3]);
        assert!(0 < security(gateway, "verified") && 0 < security(gateway, "signed"));
    }
}

#[test]
fn imported_wildcard_leaves_system_messages_alone() {
    let (hub, realm) = (NatsServer::start(&[]), Realm::new("pki"));
    realm.join("P.test", &PLANT);
    let plant = realm.gateway("P.test", &hub, &["site=plant1", "link-live=plant.>", "link-import=hq.>"]);
    let hq = realm.gateway("H.test", &hub, &["site=hq", "link-live=hq.>", "link-import=>"]);
    wait_until_ready(&[&plant, &hq]);
    let [publisher, subscriber] = [plant.attach(), hq.attach()];
    let subscription = subscribe(&subscriber, "plant.>");
    for number in 0..20 {
        publisher.publish(message("plant.x", &number.to_string())).expect("published");
        let_time_pass(Duration::from_millis(50), "manifests come between the messages");
    }
    assert_eq!(super::numbers(&all_messages(&subscription)), (0..20).collect::<Vec<u64>>());
    let _responder = Responder::plain(&hq, "plant.service", "hq");
    assert_eq!(ask_until_answered(&publisher, "plant.service"), "hq");
    assert_eq!(["repeated", "denied", "unsigned"].map(|count| security(&hq, count)), [0; 3]);
    assert_eq!(hq.site("plant1")["lost_min"], 0);
}

#[test]
fn clients_publish_on_named_subjects_only() {
    let (hub, realm) = (NatsServer::start(&[]), Realm::new("pki"));
    realm.join("P.test", &PLANT);
    let [plant, hq] = start_sites(&realm, &hub, &["link-import-clients=plant.erp.>"]);
    let subscriber = hq.attach();
    let subscription = subscribe(&subscriber, "plant.>");
    plant.attach().publish(message("plant.x", "genuine")).expect("published");
    wait_until("the site is known", || hq.site("plant1")["imported"] == 1);
    let gateway = plant.link()["gateway"].as_str().expect("an epoch").to_owned();
    let mut stranger = Intruder::connect(&realm, "H.test", &hub);
    for forged in [
        message("plant.x", "of a stranger"),
        exported("plant1", "plant.erp.x"),
        manifest("plant1", "plant.x", 0),
        manifest("plant1", "plant.x", 1000),
        bye("plant1", &gateway),
        message("plant.erp.x", "of a client"),
    ] {
        stranger.publish(&forged);
    }
    let messages = all_messages(&subscription);
    assert_eq!(messages.iter().map(payload).collect::<Vec<String>>(), ["genuine", "of a client"]);
    wait_until("they are counted", || security(&hq, "unsigned") == 5);
    // The gateway counts as silent after 6 s if it were believed to have ended.
    let_time_pass(Duration::from_secs(7), "a BYE counts after 6 s");
    plant.attach().publish(message("plant.x", "later")).expect("published");
    assert_eq!(all_messages(&subscription).iter().map(payload).collect::<Vec<String>>(), ["later"]);
    let row = hq.site("plant1");
    assert_eq!((&row["lost_min"], &row["tails"], &row["imported"]), (&0.into(), &0.into(), &2.into()), "{row}");
    assert_eq!(hq.number("of_clients"), 1);
}

#[test]
fn compromised_site_is_limited_by_its_certificate() {
    let (hub, realm) = (NatsServer::start(&[]), Realm::new("pki"));
    realm.join("P.test", &["plant.>", "_SEQCAST.LINK.*", "_SEQCAST.LINK.SITE.plant1"]);
    let hq = realm.gateway("H.test", &hub, &["site=hq", "link-live=hq.>", "link-import=plant.> ; cmd.> ; lab.>"]);
    wait_until_ready(&[&hq]);
    let subscriber = hq.attach();
    let patterns = ["plant.>", "cmd.>", "lab.>"].map(|text| text.parse::<Pattern>().expect("a pattern"));
    let subscription = subscriber.subscribe_with(patterns, &SubscribeOptions::default()).expect("subscribed");
    let mut intruder = Intruder::connect(&realm, "P.test", &hub);
    intruder.publish_signed(manifest("plant1", "cmd.stop", 0));
    intruder.publish_signed(manifest("plant1", "plant.y", 0));
    let genuine = intruder.publish_signed(exported("plant1", "plant.x"));
    for forged in [
        exported("lab", "lab.x"),
        exported("lab", "plant.x"),
        exported("plant1", "cmd.stop"),
        manifest("lab", "lab.x", 7),
        bye("lab", "000000000000000e"),
    ] {
        intruder.publish_signed(forged);
    }
    // A manifest counts for the subjects that the certificate permits, and for no others.
    intruder.publish_signed(manifest("plant1", "cmd.stop", 5));
    intruder.publish_signed(manifest("plant1", "plant.y", 3));
    // A signature does not fit another message.
    intruder.publish(&Message { subject: "plant.z".parse().expect("a subject"), ..genuine });
    let messages = all_messages(&subscription);
    assert_eq!(messages.iter().map(|message| message.message.subject.as_str()).collect::<Vec<&str>>(), ["plant.x"]);
    wait_until("they are counted", || security(&hq, "denied") == 5 && security(&hq, "bad_signatures") == 1);
    let row = hq.site("plant1");
    assert_eq!((&row["imported"], &row["lost_min"], &row["lost_max"]), (&1.into(), &3.into(), &3.into()), "{row}");
    assert_eq!(hq.site("lab"), Value::Null, "nobody has spoken for it");
    // Messages of different subscriptions of the gateway have no order.
    let named = ["wrong signature", "does not permit its message"];
    wait_until("health names the last one", || named.iter().any(|text| health(&hq).contains(text)));
}

#[test]
fn revoked_gateway_is_not_heard_any_more() {
    let (hub, realm) = (NatsServer::start(&[]), Realm::new("pki"));
    realm.join("P.test", &PLANT);
    let [plant, hq] = start_sites(&realm, &hub, &[]);
    let [publisher, subscriber] = [plant.attach(), hq.attach()];
    let subscription = subscribe(&subscriber, "plant.>");
    publisher.publish(message("plant.x", "before")).expect("published");
    assert_eq!(all_messages(&subscription).iter().map(payload).collect::<Vec<String>>(), ["before"]);
    realm.place.run(&["realm", "revoke", "P.test", "--data-dir", "H.test"]).exits(DONE);
    hq.place.run(&["config", "reload"]).exits(DONE);
    wait_until("hq has noticed", || 0 < security(&hq, "untrusted"));
    publisher.publish(message("plant.x", "after")).expect("published");
    assert_eq!(all_messages(&subscription).len(), 0);
    assert!(health(&hq).contains("revoked"), "{}", health(&hq));
}

/// A site that exports `orders.>` to the stream, and one that imports it, in a realm.
struct RealmSites {
    hub: Hub,
    realm: Realm,
    /// The LAN of the importing site.
    lan: Place,
}

impl RealmSites {
    fn new() -> RealmSites {
        let realm = Realm::new("pki");
        realm.join("P.test", &["orders.>", "_SEQCAST.LINK.*", "_SEQCAST.LINK.SITE.plant1"]);
        RealmSites { hub: Hub::start(), realm, lan: Place::new() }
    }

    /// Starts both. The second one reads the stream.
    fn start(&self) -> [Gateway; 2] {
        let settings = ["site=plant1", "link-durable=orders.>"];
        let sites = [self.realm.gateway("P.test", &self.hub.server, &settings), self.start_hq()];
        wait_until("hq reads the stream", || !durable(&sites[1])["position"].is_null());
        sites
    }

    fn start_hq(&self) -> Gateway {
        let settings = ["site=hq", "link-import=orders.>"];
        self.realm.gateway_on("H.test", self.lan.port(), &self.hub.server, &settings)
    }
}

#[test]
fn durable_messages_verify_after_their_gateway_ended() {
    let sites = RealmSites::new();
    let [plant, hq] = sites.start();
    plant.attach().publish(message("orders.0", "first")).expect("published");
    wait_until("hq has it", || hq.site("plant1")["imported"] == 1);
    let_time_pass(Duration::from_secs(1), "the position is stored");
    drop(hq);
    let publisher = plant.attach();
    publish(&publisher, 0..200);
    wait_until("the stream has them", || durable(&plant)["stored"] == 201);
    drop((publisher, plant));
    let mut stranger = Intruder::connect(&sites.realm, "P.test", &sites.hub.server);
    stranger.publish(&message("orders.0", "of a stranger"));
    stranger.publish_signed(exported("hq", "orders.0"));
    // It comes before the position is read.
    let hq = sites.start_hq();
    let subscriber = hq.attach();
    let subscription = subscribe(&subscriber, "orders.>");
    let mut messages = Vec::new();
    wait_until("hq delivers the rest", || {
        while let Ok(notice) = subscription.recv_timeout(Duration::from_millis(200)) {
            if let Notice::Message(delivery) = notice {
                messages.push(delivery);
            }
        }
        200 <= messages.len()
    });
    assert_eq!(super::numbers(&messages), (0..200).collect::<Vec<u64>>());
    let proofs = ["Seqcast-Signature", "Seqcast-Certificate", "Seqcast-Durable", "Seqcast-Stored"];
    for message in &messages {
        assert!(proofs.iter().all(|key| field(&message.message, key).is_some()), "{message:?}");
    }
    wait_until("the others are refused", || (security(&hq, "unsigned"), security(&hq, "denied")) == (1, 1));
    assert_eq!(hq.site("plant1")["lost_min"], 0);
}

#[test]
fn lost_messages_come_again_in_a_realm() {
    let sites = RealmSites::new();
    let [plant, hq] = sites.start();
    let_time_pass(Duration::from_secs(1), "the position is stored");
    drop(hq);
    publish(&plant.attach(), 0..50);
    wait_until("the stream has them", || durable(&plant)["stored"] == 50);
    delete_stored(&sites.hub.server, &(11..=30).collect::<Vec<u64>>());
    let hq = sites.start_hq();
    let subscriber = hq.attach();
    assert_whole(&receive(&subscribe(&subscriber, "orders.>"), 50), 0..50);
    wait_until("they are counted", || durable(&plant)["restored"] == 20);
    assert_eq!(hq.site("plant1")["lost_max"], 0);
}

#[test]
fn certificate_limits_what_a_site_exports() {
    let (hub, realm) = (NatsServer::start(&[]), Realm::new("pki"));
    realm.join("P.test", &["plant.>", "hq.>", "_SEQCAST.LINK.*", "_SEQCAST.LINK.SITE.plant1.plant.a.>"]);
    let [plant, hq] = start_sites(&realm, &hub, &[]);
    let [publisher, subscriber] = [plant.attach(), hq.attach()];
    let subscription = subscribe(&subscriber, "plant.>");
    for subject in ["plant.a.1", "plant.b.1", "plant.a.2"] {
        publisher.publish(message(subject, subject)).expect("published");
    }
    let messages = all_messages(&subscription);
    assert_eq!(messages.iter().map(payload).collect::<Vec<String>>(), ["plant.a.1", "plant.a.2"]);
    assert_eq!(hq.site("plant1")["lost_min"], 0, "what is not exported is not lost");
    wait_until("health names the pattern", || health(&plant).contains("link-live 'plant.>'"));
    // Without a permission for its site, a host is no gateway.
    realm.join("N.test", &["plant.>", "_SEQCAST.LINK.*"]);
    let data_dir = format!("data-dir={}", realm.place.dir().join("N.test").display());
    let settings = ["name=N.test", "site=plant1", "link=nats://127.0.0.1:1", "link-live=plant.>", &data_dir];
    let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let refused = Place::new().run(&[&["peer"][..], &arguments].concat());
    assert_ne!(refused.code, Some(DONE));
    refused.reports(&["_SEQCAST.LINK.SITE.plant1", "does not permit"]);
}

#[test]
fn certificate_limits_what_a_site_imports() {
    let (hub, realm) = (Hub::start(), Realm::new("pki"));
    realm.join("P.test", &["hq.a.>", "orders.a.>", "_SEQCAST.LINK.*", "_SEQCAST.LINK.SITE.plant1"]);
    let plant = realm.gateway("P.test", &hub.server, &["site=plant1", "link-import=hq.> ; orders.>"]);
    let hq = realm.gateway("H.test", &hub.server, &["site=hq", "link-live=hq.>", "link-durable=orders.>"]);
    wait_until_ready(&[&plant, &hq]);
    wait_until("plant1 reads the stream", || !durable(&plant)["position"].is_null());
    let [publisher, subscriber] = [hq.attach(), plant.attach()];
    for (pattern, lost) in [("hq.>", 1), ("orders.>", 2)] {
        let subscription = subscribe(&subscriber, pattern);
        let subjects = ["a.1", "b.1", "a.2"].map(|end| pattern.replace('>', end));
        for subject in &subjects {
            publisher.publish(message(subject, subject)).expect("published");
        }
        let messages = receive(&subscription, 2);
        let delivered: BTreeSet<String> = messages.iter().map(payload).collect();
        assert_eq!(delivered, BTreeSet::from([subjects[0].clone(), subjects[2].clone()]));
        wait_until("the third one is refused", || plant.number("refused") == lost);
        let row = plant.site("hq");
        assert_eq!((&row["lost_min"], &row["lost_max"]), (&lost.into(), &lost.into()), "{row}");
    }
}
