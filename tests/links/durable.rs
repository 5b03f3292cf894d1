//! Durable messages between sites: through the stream (JetStream) of a real nats-server.

use super::{Gateway, numbers, payload, subscribe};
use crate::listeners::client::{ListenerClient, Nats};
use crate::support::bus::message;
use crate::support::command::{Place, now};
use crate::support::nats_server::NatsServer;
use crate::support::wait::{let_time_pass, wait_until};
use seqcast::bus::{Bus, Notice, Subscription};
use seqcast::message::{Delivery, LossScope};
use serde_json::Value;
use std::ops::Range;
use std::time::Duration;

/// A hub with JetStream, whose files outlive it.
pub(super) struct Hub {
    pub(super) server: NatsServer,
    files: Place,
}

impl Hub {
    pub(super) fn start() -> Hub {
        Hub::start_with(&[])
    }

    /// Starts a hub whose server has these further arguments.
    pub(super) fn start_with(arguments: &[&str]) -> Hub {
        let files = Place::new();
        let directory = files.dir().display().to_string();
        let arguments = [&["--jetstream", "--store_dir", &directory], arguments].concat();
        Hub { server: NatsServer::start(&arguments), files }
    }

    pub(super) fn address(&self) -> String {
        format!("link={}", self.server.address())
    }

    /// Kills the server. Returns what starts it again.
    fn kill(self) -> impl FnOnce() -> Hub {
        let Hub { server, files } = self;
        let port = server.kill();
        move || {
            let directory = files.dir().display().to_string();
            Hub { server: NatsServer::start_on(port, &["--jetstream", "--store_dir", &directory]), files }
        }
    }
}

/// A site that exports `orders.>`, and one that imports it, with this number of gateways each.
struct DurableSites {
    plant: Vec<Gateway>,
    hq: Vec<Gateway>,
}

impl DurableSites {
    fn start(hub: &Hub, gateways: usize, settings: &[&str]) -> DurableSites {
        let address = hub.address();
        let lan = |site: &str, key: &str| -> Vec<Gateway> {
            let (lan, site_setting) = (Place::new(), format!("site={site}"));
            let own = [&[site_setting.as_str(), &address, key][..], settings].concat();
            (0..gateways).map(|index| Gateway::start(&format!("{site}-{index}.test"), lan.port(), &own)).collect()
        };
        let sites =
            DurableSites { plant: lan("plant1", "link-durable=orders.>"), hq: lan("hq", "link-import=orders.>") };
        sites.wait_until_ready();
        sites
    }

    /// Waits until each gateway carries some of the shares, and one of them reads the stream.
    fn wait_until_ready(&self) {
        let shares = |site: &[Gateway]| site.iter().map(|gateway| gateway.number("shares")).sum::<u64>();
        let carry = |site: &[Gateway]| shares(site) == 16 && site.iter().all(|gateway| 0 < gateway.number("shares"));
        wait_until("all gateways carry shares", || carry(&self.plant) && carry(&self.hq));
        wait_until("a gateway reads the stream", || self.hq.iter().any(|hq| !durable(hq)["position"].is_null()));
    }

    fn publisher(&self) -> Bus {
        self.plant[0].attach()
    }

    fn stored(&self) -> u64 {
        self.plant.iter().map(|gateway| durable(gateway)["stored"].as_u64().unwrap_or(0)).sum()
    }
}

pub(super) fn durable(gateway: &Gateway) -> Value {
    gateway.link()["durable"].clone()
}

pub(super) fn publish(publisher: &Bus, numbers: Range<u64>) {
    for number in numbers {
        publisher.publish(message(&format!("orders.{}", number % 7), &number.to_string())).expect("published");
    }
}

/// Deletes the messages with these sequences from the stream.
pub(super) fn delete_stored(hub: &NatsServer, sequences: &[u64]) {
    let mut client = ListenerClient::connect(Nats, hub.port());
    client.enter();
    client.subscribe("deleted", 1);
    for sequence in sequences {
        let request = format!(r#"{{"seq":{sequence}}}"#);
        client.send(format!("PUB $JS.API.STREAM.MSG.DELETE.SEQCAST deleted {}\r\n{request}\r\n", request.len()));
        assert!(String::from_utf8_lossy(&client.message().1).contains(r#""success":true"#), "{sequence} is deleted");
    }
}

/// Returns the messages until this number has come, at most for a minute.
pub(super) fn receive(subscription: &Subscription, count: usize) -> Vec<Delivery> {
    let end = now() + Duration::from_secs(60);
    let mut messages = Vec::new();
    while messages.len() < count && now() < end {
        match subscription.recv_timeout(Duration::from_secs(1)) {
            Ok(Notice::Message(delivery)) => messages.push(delivery),
            // A gateway that was killed may have sent more.
            Ok(Notice::Loss(loss)) if matches!(loss.what, LossScope::Tail { .. }) => {}
            Ok(other) => panic!("nothing is missing on this LAN: {other:?}"),
            Err(_) => {}
        }
    }
    messages
}

/// Checks that the messages with these numbers came once, in the order of each subject.
pub(super) fn assert_whole(messages: &[Delivery], expected: Range<u64>) {
    assert_eq!(numbers(messages), expected.collect::<Vec<u64>>());
    for subject in 0..7 {
        let numbers = messages.iter().map(|message| payload(message).parse::<u64>().expect("a number"));
        let of_subject: Vec<u64> = numbers.filter(|number| number % 7 == subject).collect();
        assert!(of_subject.is_sorted(), "orders.{subject}: {of_subject:?}");
    }
}

#[test]
fn durable_messages_outlast_an_outage() {
    let hub = Hub::start();
    let sites = DurableSites::start(&hub, 1, &[]);
    let (publisher, subscriber) = (sites.publisher(), sites.hq[0].attach());
    let subscription = subscribe(&subscriber, "orders.>");
    publish(&publisher, 0..100);
    let mut messages = receive(&subscription, 100);
    let restart = hub.kill();
    wait_until("the gateway has noticed", || sites.plant[0].link()["state"] == "connecting");
    publish(&publisher, 100..400);
    let_time_pass(Duration::from_secs(7), "a live message would be retained for 5 s");
    let hub = restart();
    sites.wait_until_ready();
    publish(&publisher, 400..500);
    messages.extend(receive(&subscription, 400));
    assert_whole(&messages, 0..500);
    let place = messages[0].message.headers.iter().find(|(key, _)| *key == "Seqcast-Stored").map(|(_, value)| value);
    assert!(place.is_some_and(|place| place.starts_with("SEQCAST 1 ")), "{place:?}");
    wait_until("all are stored", || sites.stored() == 500 && durable(&sites.plant[0])["waiting"] == 0);
    wait_until("all are counted", || sites.hq[0].site("plant1")["imported"] == 500);
    assert_eq!(sites.hq[0].site("plant1")["lost_max"], 0);
    drop(hub);
}

#[test]
fn subjects_of_a_later_site_are_read() {
    let hub = Hub::start();
    let address = hub.address();
    let start = |name: &str, settings: &[&str]| {
        let own = [format!("site={name}"), address.clone()];
        let settings: Vec<&str> = own.iter().map(String::as_str).chain(settings.iter().copied()).collect();
        Gateway::start(&format!("{name}.test"), Place::new().port(), &settings)
    };
    let plant = start("plant1", &["link-durable=orders.0"]);
    wait_until("there is a stream", || durable(&plant)["open"] == true);
    let hq = start("hq", &["link-import=orders.*"]);
    wait_until("the gateway reads the stream", || !durable(&hq)["position"].is_null());
    let subscriber = hq.attach();
    let subscription = subscribe(&subscriber, "orders.>");
    let later = start("plant2", &["link-durable=orders.1"]);
    wait_until("the stream has the subjects of both", || {
        later.number("shares") == 16 && durable(&later)["open"] == true
    });
    let publishers = [plant.attach(), later.attach()];
    let send = |number: u64| {
        let bus = &publishers[(number % 7) as usize];
        bus.publish(message(&format!("orders.{}", number % 7), &number.to_string())).expect("published");
    };
    let numbers = || (0..700).filter(|number| number % 7 < 2);
    for number in numbers() {
        send(number);
        let_time_pass(Duration::from_millis(10), "the reader has passed them when it notices the subject");
    }
    let messages = receive(&subscription, 200);
    assert_eq!(super::numbers(&messages), numbers().collect::<Vec<u64>>());
    for subject in ["orders.0", "orders.1"] {
        let of_subject = messages.iter().filter(|delivery| delivery.message.subject.to_string() == subject);
        assert!(
            of_subject.map(|delivery| payload(delivery).parse::<u64>().expect("a number")).is_sorted(),
            "{subject}"
        );
    }
    assert_eq!(subscription.recv_timeout(Duration::from_secs(1)).ok(), None, "nothing comes twice");
    assert_eq!(hq.site("plant2")["lost_max"], 0);
}

#[test]
fn killed_gateways_lose_and_repeat_no_durable_message() {
    let hub = Hub::start();
    let mut sites = DurableSites::start(&hub, 2, &[]);
    let (publisher, subscriber) = (sites.publisher(), sites.hq[0].attach());
    let subscription = subscribe(&subscriber, "orders.>");
    let mut sent = 0;
    let mut publish_for = |sites: &DurableSites, time: Duration| {
        let end = now() + time;
        while now() < end {
            publish(&publisher, sent..sent + 20);
            sent += 20;
            let_time_pass(Duration::from_millis(20), "the rate of the publisher");
        }
        (sent, sites.stored())
    };
    publish_for(&sites, Duration::from_secs(2));
    for site in [&mut sites.plant, &mut sites.hq] {
        let killed = site.pop().expect("the second gateway");
        killed.process.signal("KILL");
    }
    publish_for(&sites, Duration::from_secs(4));
    sites.wait_until_ready();
    let (sent, _) = publish_for(&sites, Duration::from_secs(1));
    assert_whole(&receive(&subscription, sent as usize), 0..sent);
    assert_eq!(subscription.recv_timeout(Duration::from_secs(2)).ok(), None, "nothing comes twice");
}

#[test]
fn restarted_site_continues_at_its_position() {
    let hub = Hub::start();
    let mut sites = DurableSites::start(&hub, 1, &[]);
    let publisher = sites.publisher();
    publish(&publisher, 0..50);
    wait_until("they are delivered", || sites.hq[0].site("plant1")["imported"] == 50);
    let mut stopped = sites.hq.pop().expect("the gateway");
    stopped.process.signal("TERM");
    assert!(stopped.process.ended().success());
    publish(&publisher, 50..120);
    let settings = ["site=hq", &hub.address(), "link-import=orders.>"];
    let lan = Place::new();
    let listener = Gateway::start("listener.test", lan.port(), &[]);
    let subscriber = listener.attach();
    let subscription = subscribe(&subscriber, "orders.>");
    sites.hq.push(Gateway::start("hq-1.test", lan.port(), &settings));
    sites.wait_until_ready();
    publish(&publisher, 120..130);
    assert_whole(&receive(&subscription, 80), 50..130);
    assert_eq!(subscription.recv_timeout(Duration::from_secs(1)).ok(), None, "nothing comes twice");
}

#[test]
fn messages_that_the_stream_has_lost_come_again() {
    let hub = Hub::start();
    let mut sites = DurableSites::start(&hub, 2, &[]);
    let publisher = sites.publisher();
    publish(&publisher, 0..50);
    wait_until("they are delivered", || {
        sites.hq.iter().map(|hq| hq.site("plant1")["imported"].as_u64().unwrap_or(0)).sum::<u64>() == 50
    });
    let_time_pass(Duration::from_secs(1), "the position is stored");
    sites.hq.iter_mut().for_each(|hq| hq.process.signal("TERM"));
    sites.hq.drain(..).for_each(|mut hq| assert!(hq.process.ended().success()));
    publish(&publisher, 50..120);
    wait_until("they are stored", || {
        120 <= sites.stored() && sites.plant.iter().all(|plant| durable(plant)["waiting"] == 0)
    });
    // Several gaps in each stream.
    let lost: Vec<u64> = (61..91).chain([96, 102]).collect();
    delete_stored(&hub.server, &lost);
    let lan = Place::new();
    let listener = Gateway::start("listener.test", lan.port(), &[]);
    let subscriber = listener.attach();
    let subscription = subscribe(&subscriber, "orders.>");
    let settings = ["site=hq", &hub.address(), "link-import=orders.>"];
    sites.hq.push(Gateway::start("hq-2.test", lan.port(), &settings));
    sites.wait_until_ready();
    publish(&publisher, 120..130);
    assert_whole(&receive(&subscription, 80), 50..130);
    assert_eq!(sites.hq[0].site("plant1")["lost_max"], 0);
    // Each gateway stores again what is still missing, and the stream keeps one of both.
    wait_until("both gateways have stored messages again", || {
        let restored = |gateway: &Gateway| durable(gateway)["restored"].as_u64().unwrap_or(0);
        let counts: Vec<u64> = sites.plant.iter().map(restored).collect();
        lost.len() as u64 <= counts.iter().sum::<u64>() && !counts.contains(&0)
    });
}

#[test]
fn clients_of_the_cluster_use_the_stream() {
    let hub = Hub::start();
    let sites = DurableSites::start(&hub, 1, &[]);
    let mut client = ListenerClient::connect(Nats, hub.server.port());
    client.enter();
    client.subscribe("orders.>", 1);
    let subscriber = sites.hq[0].attach();
    let subscription = subscribe(&subscriber, "orders.>");
    publish(&sites.publisher(), 0..1);
    assert_eq!(client.message(), ("orders.0".into(), b"0".into()));
    client.send(Nats.publish("orders.0", "1"));
    let messages = receive(&subscription, 2);
    assert_whole(&messages, 0..2);
    wait_until("it is counted", || sites.hq[0].number("of_clients") == 1);
    assert_eq!(subscription.recv_timeout(Duration::from_secs(1)).ok(), None, "it comes from the stream only");
}

#[test]
fn full_spool_is_reported_exactly() {
    let hub = Hub::start();
    let sites = DurableSites::start(&hub, 1, &["link-spool-size=1mb"]);
    let (publisher, subscriber) = (sites.publisher(), sites.hq[0].attach());
    let subscription = subscribe(&subscriber, "orders.>");
    let send = |text: &str| publisher.publish(message("orders.x", text)).expect("published");
    send("first");
    assert_eq!(receive(&subscription, 1).len(), 1);
    let restart = hub.kill();
    wait_until("the gateway has noticed", || sites.plant[0].link()["state"] == "connecting");
    let large = "x".repeat(50_000);
    (0..40).for_each(|_| send(&large));
    wait_until("the spool is full", || durable(&sites.plant[0])["unstored"].as_u64().is_some_and(|count| 0 < count));
    let _hub = restart();
    sites.wait_until_ready();
    wait_until("the spool is empty", || durable(&sites.plant[0])["waiting"] == 0);
    send("last");
    let mut delivered = 0;
    wait_until("the last message has come", || {
        receive(&subscription, 1).iter().any(|delivery| {
            delivered += 1;
            payload(delivery) == "last"
        })
    });
    let lost = 42 - 1 - delivered;
    assert!(0 < lost, "the spool took 1 MB of 2 MB");
    wait_until("the loss is counted", || 0 < sites.hq[0].site("plant1")["lost_min"].as_u64().unwrap_or(0));
    let row = sites.hq[0].site("plant1");
    assert_eq!((&row["lost_min"], &row["lost_max"]), (&lost.into(), &lost.into()), "{row}");
}

#[test]
fn full_stream_holds_messages_up() {
    let hub = Hub::start();
    let mut client = ListenerClient::connect(Nats, hub.server.port());
    client.enter();
    let stream = r#"{"name":"SEQCAST","subjects":["orders.>"],"retention":"limits","storage":"file",
        "discard":"new","max_bytes":20000}"#;
    client.send(Nats.publish("$JS.API.STREAM.CREATE.SEQCAST", stream));
    let sites = DurableSites::start(&hub, 1, &[]);
    let (publisher, subscriber) = (sites.publisher(), sites.hq[0].attach());
    let subscription = subscribe(&subscriber, "orders.>");
    let payload_of = |number: usize| format!("{number:01000}");
    (0..40).for_each(|number| publisher.publish(message("orders.x", &payload_of(number))).expect("published"));
    wait_until("the fault is shown", || {
        durable(&sites.plant[0])["fault"].as_str().is_some_and(|fault| fault.contains("stores nothing: "))
    });
    let mut messages = Vec::new();
    wait_until("all messages have come", || {
        while let Ok(Notice::Message(delivery)) = subscription.recv_timeout(Duration::from_millis(500)) {
            messages.push(delivery);
        }
        if sites.stored() == messages.len() as u64 {
            client.send(Nats.publish("$JS.API.STREAM.PURGE.SEQCAST", "{}"));
        }
        messages.len() == 40
    });
    let payloads: Vec<String> = messages.iter().map(payload).collect();
    assert_eq!(payloads, (0..40).map(payload_of).collect::<Vec<_>>());
    wait_until("only the limits differ", || {
        durable(&sites.plant[0])["fault"].as_str().is_some_and(|fault| fault.contains("link-stream-size"))
    });
    assert_eq!(sites.hq[0].site("plant1")["lost_max"], 0);
}

#[test]
fn catching_up_keeps_to_the_rate() {
    let hub = Hub::start();
    let sites = DurableSites::start(&hub, 1, &["link-rate=64kb"]);
    let (publisher, subscriber) = (sites.publisher(), sites.hq[0].attach());
    let subscription = subscribe(&subscriber, "orders.>");
    let start = now();
    let large = "x".repeat(32_000);
    (0..9).for_each(|_| publisher.publish(message("orders.x", &large)).expect("published"));
    assert_eq!(receive(&subscription, 9).len(), 9);
    let time = now().since(start);
    assert!(Duration::from_secs(3) < time, "8 messages of 32,000 bytes take 4 s at 64 KiB/s, and took {time:?}");
}

#[test]
fn stream_with_other_settings_is_named() {
    let hub = Hub::start();
    let settings = |extra: &'static [&'static str]| {
        let own = ["site=plant1", &hub.address(), "link-durable=orders.>"].map(str::to_owned);
        own.into_iter().chain(extra.iter().map(|setting| (*setting).to_owned())).collect::<Vec<String>>()
    };
    let fault_of = |extra| {
        let settings = settings(extra);
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let gateway = Gateway::start("P.test", Place::new().port(), &settings);
        let mut fault = String::new();
        wait_until("the stream is open", || {
            let durable = durable(&gateway);
            fault = durable["fault"].as_str().unwrap_or_default().to_owned();
            durable["open"] == true || !fault.is_empty()
        });
        fault
    };
    assert_eq!(fault_of(&["link-stream-size=2mb"]), "");
    let fault = fault_of(&["link-stream-size=4mb", "link-stream-time=1 day", "link-stream-copies=1"]);
    for part in ["link-stream-size", "2097152", "link-stream-time", "604800 s", "nats stream edit SEQCAST"] {
        assert!(fault.contains(part), "{part}: {fault}");
    }
    assert!(!fault.contains("link-stream-copies"), "{fault}");
    let fault = fault_of(&["link-stream=OTHER"]);
    assert!(fault.contains("subjects overlap"), "the same subjects in two streams: {fault}");
    let fault = fault_of(&["link-stream=MANY", "link-durable=many.>", "link-stream-copies=3"]);
    assert!(fault.contains("replicas"), "a single server keeps one copy: {fault}");
    let mut client = ListenerClient::connect(Nats, hub.server.port());
    client.enter();
    let stream = r#"{"name":"WORK","subjects":["work.>"],"retention":"workqueue","storage":"file"}"#;
    client.send(Nats.publish("$JS.API.STREAM.CREATE.WORK", stream));
    wait_until("the stream of another kind is named", || {
        fault_of(&["link-stream=WORK", "link-durable=work.>"]).contains("write another name as link-stream")
    });
}

#[test]
fn hub_without_jetstream_is_named() {
    let server = NatsServer::start(&[]);
    let settings = ["site=plant1", &format!("link={}", server.address()), "link-durable=orders.>"];
    let gateway = Gateway::start("P.test", Place::new().port(), &settings);
    wait_until("the fault is shown", || {
        durable(&gateway)["fault"].as_str().is_some_and(|fault| fault.contains("start its servers with --jetstream"))
    });
    wait_until("it lasts, so health names it", || {
        let health = gateway.place.show("health")["health"].clone();
        let findings = health["findings"].as_array().cloned().unwrap_or_default();
        findings.iter().any(|finding| {
            let found = finding["found"].as_str().unwrap_or_default();
            finding["check"] == "link" && found.starts_with("durable messages: the cluster has no JetStream")
        })
    });
}
