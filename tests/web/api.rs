//! The page's files, the reports in JSON, and the live snapshots.

use super::WebPeer;
use super::client::{HttpReply, connect, exchange};
use super::metrics::peer_with_traffic;
use super::page::Lan;
use crate::support::bus::message;
use crate::support::command::{Place, parse_json};
use crate::support::exit_code::DONE;
use crate::support::wait::wait_until;
use seqcast::daemon::show::REPORTS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

/// Maximum number of viewers of a peer.
const VIEWERS_MAX: usize = 32;

/// A viewer of the live snapshots.
struct Viewer(BufReader<TcpStream>);

impl Viewer {
    /// Connects, and reads the head of the answer.
    fn connect(address: SocketAddr) -> (Viewer, u16) {
        let mut stream = connect(address);
        let request = format!("GET /api/v1/live HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("the connection is open");
        let mut viewer = Viewer(BufReader::new(stream));
        let status = viewer.line().split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        while !viewer.line().is_empty() {}
        (viewer, status)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line in time");
        line.trim_end().to_owned()
    }

    /// Returns the next event: its name and its content.
    fn event(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let line = self.line();
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, parse_json(data));
            }
        }
    }

    /// Returns the next snapshot.
    fn snapshot(&mut self) -> Value {
        loop {
            match self.event() {
                (name, content) if name == "snapshot" => return content,
                _ => {}
            }
        }
    }
}

#[test]
fn page_is_served_with_a_strict_policy() {
    let peer = WebPeer::start(&[]);
    let page = peer.get("/").has_status(200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'self';")));
    assert_eq!(
        (page.header("x-content-type-options"), page.header("x-frame-options")),
        (Some("nosniff"), Some("deny"))
    );
    assert!(page.body.contains("<html lang=\"en\">"));
    assert!(peer.get("/uplot.LICENSE").has_status(200).body.starts_with("The MIT License (MIT)"));
    assert_eq!(peer.get("/app.js").has_status(200).header("content-type"), Some("text/javascript; charset=utf-8"));
}

#[test]
fn reports_have_the_fields_of_show() {
    /// Returns the names of all fields, with the place of each.
    fn fields(value: &Value, at: &str, names: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => object.iter().for_each(|(name, value)| {
                names.insert(format!("{at}/{name}"));
                fields(value, &format!("{at}/{name}"), names);
            }),
            Value::Array(rows) => rows.iter().for_each(|row| fields(row, at, names)),
            _ => {}
        }
    }
    let (peer, _other, _second) = peer_with_traffic();
    for report in REPORTS {
        let served = peer.get(&format!("/api/v1/{report}")).has_status(200);
        assert_eq!(served.header("content-type"), Some("application/json"));
        let shown = match report {
            "outbound" => parse_json(&peer.place.run(&["show", "loss", "--outbound", "--json"]).exits(DONE).stdout),
            "loss_by_subject" => {
                parse_json(&peer.place.run(&["show", "loss", "--by-subject", "--json"]).exits(DONE).stdout)
            }
            report => peer.place.show(report),
        };
        let [mut served_fields, mut shown_fields] = [BTreeSet::new(), BTreeSet::new()];
        fields(&parse_json(&served.body), "", &mut served_fields);
        fields(&shown, "", &mut shown_fields);
        // The command itself is a client for a moment.
        assert!(served_fields.is_subset(&shown_fields) && !served_fields.is_empty(), "{report}: {served:?}");
    }
    assert_eq!(parse_json(&peer.get("/api/v1/seqno?limit=0").body)["rows"], Value::Array(Vec::new()));
}

#[test]
fn viewers_get_a_snapshot_a_second() {
    let (peer, other, _second) = peer_with_traffic();
    let (mut viewer, status) = Viewer::connect(peer.address);
    assert_eq!(status, 200);
    let first = viewer.snapshot();
    assert_eq!(first["status"]["name"], "A.test");
    assert_eq!((&first["peers"][0]["publisher"], &first["peers"][0]["messages_in"]), (&"B.test".into(), &1.into()));
    assert_eq!(first["counters"]["messages_published"], 1);
    assert!(first["history_totals"]["bytes_max"].is_u64() && first["windows"][1]["window"] == "sub", "{first}");
    other.run(&["pub", "plant.line2.speed", "19"]).exits(DONE);
    let mut last = viewer.snapshot();
    wait_until("the message is shown", || {
        let next = viewer.snapshot();
        let passed = next["time"].as_u64().unwrap() - last["time"].as_u64().unwrap();
        assert!((500..=20_000).contains(&passed), "{passed} ms between two snapshots");
        last = next;
        // The summaries of the other peer are messages, too.
        last["loss"][0]["datagrams"]["delivered"].as_u64() > first["loss"][0]["datagrams"]["delivered"].as_u64()
            && 2 <= last["peers"][0]["messages_in"].as_u64().unwrap()
    });
}

#[test]
fn losses_of_other_sites_are_in_snapshots() {
    let lan = Lan::start("sites", 2, 0.0);
    let _gateway = lan.report_site_loss(1);
    let (mut viewer, _) = Viewer::connect(lan.address());
    let mut last = Value::Null;
    wait_until("the loss is shown", || {
        last = viewer.snapshot();
        last["loss_sites"][0]["lost"] == 40
    });
    let row = &last["loss_by_subject_sites"][0];
    assert_eq!(
        [&row["site"], &row["publisher"], &row["epoch"], &row["subject"]],
        ["plant1", "A.test", "b41c09e2aa70d355", "plant.7"]
    );
    let advised = last["advisories"].as_array().expect("a list").iter();
    assert!(advised.clone().any(|advisory| advisory["content"]["site"] == "plant1"), "{advised:?}");
}

#[test]
fn viewers_get_the_summaries_of_other_peers() {
    let lan = Lan::start_with("asked", 4, 0.2, 3);
    wait_until("a peer loses messages", || {
        lan.publish();
        lan.lost(1) != 0
    });
    let answered = |peer: usize| {
        let counters = lan.peers[peer].counters().expect("the peer runs");
        counters.into_iter().find(|row| row.name == "history_answered").expect("the counter is there").value
    };
    assert_eq!(answered(1), 0, "without viewers nobody is asked");
    let epoch = |peer: usize| lan.peers[peer].info().epoch.to_string();
    let (mut viewer, _) = Viewer::connect(lan.address());
    let mut reports: BTreeMap<String, Value> = BTreeMap::new();
    let read = |viewer: &mut Viewer, reports: &mut BTreeMap<String, Value>| {
        let snapshot = viewer.snapshot();
        for report in snapshot["reports"].as_array().expect("reports") {
            reports.insert(report["epoch"].as_str().expect("an epoch").to_owned(), report.clone());
        }
    };
    // An answer may be lost, too; then the peer is asked again.
    wait_until("two peers report, and one refuses", || {
        read(&mut viewer, &mut reports);
        let is = |peer: usize, state: &str| reports.get(&epoch(peer)).is_some_and(|report| report["state"] == state);
        is(1, "reported") && is(2, "reported") && is(3, "no_reports")
    });
    assert_eq!(reports[&epoch(3)]["rows"], Value::Null);
    assert_eq!(reports[&epoch(1)]["summary"]["clients"], 1);
    wait_until("the page has the numbers of 'show' at the other peer", || {
        read(&mut viewer, &mut reports);
        let shown = lan.peers[1].show("loss").expect("the peer answers");
        let shown = shown["rows"].as_array().expect("rows");
        let Some(rows) = reports[&epoch(1)]["rows"].as_array() else { return false };
        let is_same = |shown: &Value, row: &Value| {
            let fields = [(&shown["lost"], &row["lost"]), (&shown["ibx_loss"]["count"], &row["inbox_lost"])];
            let repairs = [(&shown["repaired"]["count"], &row["repaired"]), (&shown["epoch"], &row["epoch"])];
            fields.iter().chain(&repairs).all(|(shown, row)| shown == row)
        };
        shown.len() == 3 && shown.iter().all(|shown| rows.iter().any(|row| is_same(shown, row)))
    });
    wait_until("a loss has its subject", || {
        lan.publish();
        let snapshot = viewer.snapshot();
        let rows = snapshot["loss_by_subject"].as_array().expect("rows");
        rows.iter().any(|row| row["subject"].as_str().is_some_and(|subject| subject.starts_with("plant.line")))
    });
    let asked = answered(1);
    assert!((1..60).contains(&asked), "{asked} questions");

    // Another viewer gets at once what is known.
    let (mut second, _) = Viewer::connect(lan.address());
    let (name, known) = second.event();
    assert_eq!((name.as_str(), known.as_array().map(Vec::len)), ("reports", Some(3)));
}

#[test]
fn page_of_a_peer_gets_its_own_reports() {
    let lan = Lan::start_with("detail", 4, 0.0, 3);
    let get = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", lan.address());
        HttpReply::parse(&exchange(lan.address(), request.as_bytes()))
    };
    let epoch = |peer: usize| lan.peers[peer].info().epoch.to_string();
    let report = parse_json(&get(&format!("/api/v1/peers/{}", epoch(1))).has_status(200).body);
    assert_eq!(
        (&report["status"]["name"], &report["health"]["state"]),
        (&"line1.detail".into(), &"ok".into()),
        "{report}"
    );
    for (rows, count) in [("loss", 3), ("clients", 1), ("subs", 1)] {
        assert_eq!(report[rows].as_array().map(Vec::len), Some(count), "{rows}: {report}");
    }
    let refused = get(&format!("/api/v1/peers/{}", epoch(3))).has_status(403);
    assert_eq!(refused.body, "the peer reports nothing to others (remote-reports is 'no' there)\n");
    get("/api/v1/peers/00000000000000ab").has_status(404);
    for path in ["", "line1.detail", "00000000000000AB", "0", "00000000000000ab/status"] {
        get(&format!("/api/v1/peers/{path}")).has_status(404);
    }
}

#[test]
fn viewers_beyond_the_limit_are_refused() {
    let mut peer = WebPeer::start(&[]);
    let mut viewers: Vec<Viewer> = (0..VIEWERS_MAX)
        .map(|_| {
            let (viewer, status) = Viewer::connect(peer.address);
            assert_eq!(status, 200);
            viewer
        })
        .collect();
    assert_eq!(peer.status()["viewers"], VIEWERS_MAX);
    assert_eq!(peer.get("/api/v1/live").has_status(503).body, "too many pages show this peer: close one of them\n");
    viewers.pop();
    wait_until("a viewer has left", || peer.status()["viewers"] == VIEWERS_MAX - 1);
    // All of them get the same snapshot, and none delays the stop of the peer.
    let times: BTreeSet<u64> = viewers.iter_mut().map(|viewer| viewer.snapshot()["time"].as_u64().unwrap()).collect();
    assert!(times.len() <= 2, "{times:?}");
    peer.process.signal("TERM");
    assert!(peer.process.ended().success());
}

#[test]
fn only_own_advisories_are_shown() {
    let lan = Lan::start("advised", 2, 0.3);
    let address = lan.address();
    let rows = || {
        let request = format!("GET /api/v1/advisories HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let reply = HttpReply::parse(&exchange(address, request.as_bytes())).has_status(200);
        parse_json(&reply.body)["rows"].as_array().expect("rows").clone()
    };
    // Any program can publish such a message.
    let forged = message("_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST", r#"{"ADV_NAME":"FORGED"}"#);
    lan.peers.iter().for_each(|peer| peer.publish_blocking(forged.clone()).expect("the peer runs"));
    let mut found = Vec::new();
    wait_until("a loss is shown", || {
        lan.publish();
        found = rows();
        found.iter().any(|row| row["content"]["lost"].as_u64().is_some_and(|lost| 0 < lost))
    });
    assert!(found.iter().all(|row| row["content"]["ADV_NAME"] != "FORGED"), "{found:?}");
    assert!(found.iter().all(|row| row["subject"].as_str().unwrap().starts_with("_RV.")), "{found:?}");
}

#[test]
fn streams_are_shown_with_the_lag_of_consumers() {
    let place = Place::new();
    let ports = [format!("ftn18={}", place.port() - 8000), "server-id=7".to_owned()];
    let settings: Vec<&str> = ports.iter().map(String::as_str).collect();
    let listener = format!("http={}", place.port());
    let _peer = place.peer_with_listener(&[&[listener.as_str()], &settings[..]].concat());
    let address = SocketAddr::from(([127, 0, 0, 1], place.port()));
    place.run(&["consumer", "add", "PLANT"]).exits(DONE);
    place.run(&["stream", "add", "LEVEL", r#"{"v":1}"#]).exits(DONE);
    let request = format!("GET /api/v1/streams HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let reply = HttpReply::parse(&exchange(address, request.as_bytes())).has_status(200);
    let answer = parse_json(&reply.body);
    assert_eq!(
        (&answer["streams"][0]["stream"], &answer["streams"][0]["events"]),
        (&"main".into(), &1.into()),
        "{answer}"
    );
    assert_eq!(
        (&answer["consumers"][0]["user"], &answer["consumers"][0]["lag"]),
        (&"local".into(), &1.into()),
        "{answer}"
    );
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let metrics = HttpReply::parse(&exchange(address, request.as_bytes())).has_status(200).body;
    for line in [
        r#"seqcast_stream_events{stream="main"} 1"#,
        r#"seqcast_consumer_lag_events{stream="main",user="local",component="PLANT"} 1"#,
        r#"seqcast_consumer_missed_events{stream="main",user="local",component="PLANT"} 0"#,
    ] {
        assert!(metrics.lines().any(|sample| sample == line), "no {line} in {metrics}");
    }
}
