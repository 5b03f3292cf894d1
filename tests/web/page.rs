//! The page in a real headless browser: a calm, a lossy and an empty LAN.

use crate::support::TempDir;
use crate::support::bus::{message, wait_for};
use crate::support::command::{Place, RunningCommand, now, parse_json};
use crate::support::root;
use crate::support::wait::{wait_until, wait_until_some};
use seqcast::bus::{Bus, DropRule, Options, Subscription};
use seqcast::config::Config;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Minimum bytes of a screenshot with content.
const SCREENSHOT_BYTES_MIN: u64 = 20_000;

/// Interval between two messages of each peer while the browser runs.
const TURN_INTERVAL: Duration = Duration::from_millis(100);

/// Peers of one group, of which the first has a web server.
pub struct Lan {
    pub peers: Vec<Bus>,
    _subscriptions: Vec<Subscription>,
    _directory: TempDir,
}

impl Lan {
    /// Starts a LAN of `count` peers. The first two drop this share of the datagrams that they receive.
    pub fn start(name: &str, count: usize, chance: f64) -> Lan {
        Lan::start_with(name, count, chance, count)
    }

    /// Starts the same LAN, in which the peers from `closed` on report nothing to others.
    pub fn start_with(name: &str, count: usize, chance: f64, closed: usize) -> Lan {
        let (mut config, directory) = crate::support::bus::config_with_socket(name);
        config.http = Some(([127, 0, 0, 1], 0).into());
        if 0.0 < chance {
            // Nothing is requested again.
            config.reliability = Duration::from_millis(5);
        }
        let rule = (0.0 < chance).then_some(DropRule { seed: 3, chance, burst: 1 });
        let embed = |config: &Config, drop: Option<DropRule>| {
            Bus::embed_with(config, &Options { serve: true, drop, ..Options::default() }).expect("a peer on loopback")
        };
        let mut peers = vec![embed(&config, rule)];
        for number in 1..count {
            let name = format!("line{number}.{name}").parse().expect("a peer name");
            let socket = directory.path().join(format!("{number}.sock"));
            let mut other = config.clone();
            (other.name, other.socket, other.http) = (name, socket, None);
            other.remote_reports = number < closed;
            peers.push(embed(&other, rule.filter(|_| number == 1)));
            wait_for(&peers[0], &peers[number]);
            wait_for(&peers[number], &peers[0]);
        }
        let listening = if 1 < count { &peers[..2] } else { &[] };
        let subscribe = |peer: &Bus| peer.subscribe("plant.>".parse().unwrap()).expect("a subscription");
        let subscriptions = listening.iter().map(subscribe).collect();
        Lan { peers, _subscriptions: subscriptions, _directory: directory }
    }

    /// Returns the address of the web server.
    pub fn address(&self) -> SocketAddr {
        let what = || "the web server listens".to_owned();
        wait_until_some(what, || self.peers[0].show("status").ok()?["status"]["http"]["address"].as_str()?.parse().ok())
    }

    /// Publishes a message of each peer to the others.
    pub fn publish(&self) {
        for (number, peer) in self.peers.iter().enumerate() {
            peer.publish_blocking(message(&format!("plant.line{number}.speed"), "17.5")).expect("the peer runs");
        }
    }

    /// Reports that 40 messages of another site are lost, as a gateway does, from one peer to the first one. The LAN has a
    /// gateway as long as the subscription exists.
    pub fn report_site_loss(&self, gateway: usize) -> Subscription {
        let gateway = &self.peers[gateway];
        let subscription = gateway.subscribe("_SEQCAST.LINK.*".parse().unwrap()).expect("a subscription");
        wait_until("the first peer listens to gateways", || {
            let subs = self.peers[0].show("subs").expect("the peer answers");
            subs["rows"].as_array().expect("rows").iter().any(|row| row["pattern"] == "_SEQCAST.LINK.LOSS")
        });
        let origin = "plant1 6b1f90a2c3d4e5f6 3 1207 1102 18 b41c09e2aa70d355 A.test 5c19adc000000007 4711 b8335b8";
        let report = json!({ "subject": "plant.7", "origin": origin, "follows": true, "lost_min": 40, "lost_max": 40 });
        gateway.publish_blocking(message("_SEQCAST.LINK.LOSS", &report.to_string())).expect("the peer runs");
        subscription
    }

    /// Returns the number of messages that a peer lost.
    pub fn lost(&self, peer: usize) -> u64 {
        let loss = self.peers[peer].show("loss").expect("the peer answers");
        loss["rows"].as_array().expect("rows").iter().filter_map(|row| row["msg_loss"]["count"].as_u64()).sum()
    }
}

/// Runs the browser on LANs, and returns what it reports. Each `turn` runs beside it.
fn browse(place: &Place, lans: &[(&str, &Lan)], turn: impl Fn()) -> Vec<Value> {
    let mut command = Command::new("node");
    command.arg(root().join("target/clients/node/web_page.mjs")).arg("/usr/bin/chromium").arg(place.dir());
    for (name, lan) in lans {
        command.arg(name).arg(format!("http://{}/", lan.address()));
    }
    place.set_environment(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("tools/test has installed the client");
    let mut browser = RunningCommand::new(child, &["web_page.mjs"]);
    let mut next = now();
    wait_until("the browser is done", || {
        if next <= now() {
            turn();
            next = now() + TURN_INTERVAL;
        }
        browser.has_ended()
    });
    assert!(browser.ended().success(), "{:?}", browser.stderr_so_far());
    browser.all_lines().iter().map(|line| parse_json(line)).collect()
}

#[test]
fn page_works_in_a_browser() {
    let (calm, empty) = (Lan::start("calm", 4, 0.0), Lan::start("empty", 1, 0.0));
    let lossy = Lan::start_with("lossy", 4, 0.1, 3);
    lossy.publish();
    wait_until("messages are lost", || {
        lossy.publish();
        0 < lossy.lost(0) && 0 < lossy.lost(1)
    });
    let _gateway = lossy.report_site_loss(2);
    let place = Place::new();
    let reports = browse(&place, &[("calm", &calm), ("lossy", &lossy), ("empty", &empty)], || {
        calm.publish();
        lossy.publish();
    });
    let of = |kind: &str| -> BTreeMap<String, &Value> {
        let such = reports.iter().filter(|report| report["kind"] == kind);
        such.map(|report| (report["lan"].as_str().unwrap().to_owned(), &report["detail"])).collect()
    };
    for fault in ["axe", "keyboard", "console", "script", "request", "outside"] {
        assert!(
            of(fault).is_empty(),
            "{:#?}",
            reports.iter().filter(|report| report["kind"] == fault).collect::<Vec<_>>()
        );
    }
    let verdicts = of("verdict");
    assert_eq!(verdicts["calm"], "All messages arrive");
    assert_eq!(verdicts["lossy"], "Messages are being lost");
    assert_eq!(verdicts["empty"], "No other peer is here");
    let nodes = |lan: &str| of("nodes")[lan].as_array().expect("nodes").clone();
    assert_eq!([nodes("calm").len(), nodes("lossy").len(), nodes("empty").len()], [4, 4, 1]);
    assert!(nodes("lossy").iter().any(|node| node.as_str().unwrap().contains("losing")), "{:?}", nodes("lossy"));
    // Pairs of two peers of which neither has the web server: publisher, receiver and state of each line.
    let between = |lan: &str, state: &str| {
        let lines = of("lines")[lan].as_array().expect("lines").clone();
        let names = ["line1", "line2", "line3"].map(|name| format!("{name}.{lan}"));
        let is_between = |title: &str| names.iter().filter(|name| title.contains(name.as_str())).count() == 2;
        lines.iter().filter(|line| line["state"] == state && is_between(line["title"].as_str().unwrap())).count()
    };
    assert_eq!((between("calm", "good"), between("calm", "bad")), (6, 0), "all peers report");
    assert_eq!((between("lossy", "bad"), between("lossy", "unknown")), (2, 2), "one peer loses, one reports nothing");
    let silent = nodes("lossy").iter().filter(|node| node.as_str().unwrap().contains("remote-reports is 'no'")).count();
    assert_eq!(silent, 1, "{:?}", nodes("lossy"));
    assert_eq!(of("own report")["lossy"], "Health Clients");
    let screenshots: Vec<&Value> = reports.iter().filter(|report| report["kind"] == "screenshot").collect();
    assert_eq!(screenshots.len(), 14);
    for screenshot in screenshots {
        assert!(SCREENSHOT_BYTES_MIN <= screenshot["detail"]["bytes"].as_u64().unwrap(), "{screenshot}");
    }
}
