//! `/metrics`: the text formats, and the equality of its numbers with the reports of `show`.

use super::WebPeer;
use crate::support::exit_code::DONE;
use crate::support::root;
use crate::support::wait::wait_until_some;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A metric with its samples, read from the text format of OpenMetrics.
#[derive(Debug, Default)]
pub struct ParsedFamily {
    pub kind: String,
    pub help: String,
    /// Values, by name and labels as they stand in the text.
    pub samples: BTreeMap<String, f64>,
}

/// Reads the text of OpenMetrics, and checks its grammar: each family has its type and its help before its samples,
/// which follow each other and have the suffix of their type.
pub fn parse(text: &str) -> BTreeMap<String, ParsedFamily> {
    let mut families: BTreeMap<String, ParsedFamily> = BTreeMap::new();
    let mut current = String::new();
    let body = text.strip_suffix("# EOF\n").expect("the text ends with EOF");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(["counter", "gauge", "info"].contains(&kind), "{line}");
            current = name.to_owned();
            let family = ParsedFamily { kind: kind.to_owned(), ..ParsedFamily::default() };
            assert!(families.insert(current.clone(), family).is_none(), "{line} stands twice");
            continue;
        }
        let family = families.get_mut(&current).unwrap_or_else(|| panic!("{line} before any type"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert_eq!(name, current);
            family.help = help.to_owned();
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line} is no sample"));
        let name = sample.split('{').next().expect("a name");
        let suffix = BTreeMap::from([("counter", "_total"), ("gauge", ""), ("info", "_info")])[family.kind.as_str()];
        assert_eq!(name, format!("{current}{suffix}"), "{line}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{line}");
        let value: f64 = value.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(family.samples.insert(sample.to_owned(), value).is_none(), "{line} stands twice");
    }
    assert!(families.values().all(|family| !family.help.is_empty()));
    families
}

/// Scrapes the metrics of a peer.
pub fn scrape(peer: &WebPeer) -> BTreeMap<String, ParsedFamily> {
    let reply = peer.get_with("/metrics", &[("Accept", "application/openmetrics-text; version=1.0.0")]).has_status(200);
    assert!(
        reply
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("application/openmetrics-text; version=1.0.0"))
    );
    parse(&reply.body)
}

/// Starts a peer with a second one on the same group, and some traffic between them.
pub fn peer_with_traffic() -> (WebPeer, crate::support::command::Place, crate::support::command::RunningCommand) {
    let peer = WebPeer::start(&["name=A.test"]);
    let other = crate::support::command::Place::new();
    let port = format!("port={}", peer.place.port());
    let second = other.peer_with(&[&port, "name=B.test"]);
    peer.place.run(&["pub", "plant.line1.speed", "17"]).exits(DONE);
    other.run(&["pub", "plant.line2.speed", "18"]).exits(DONE);
    wait_until_some(
        || format!("both peers know each other: {}", peer.place.show("peers")),
        || (peer.place.show("peers")["rows"].as_array()?.first()?["messages_in"] == 1).then_some(()),
    );
    (peer, other, second)
}

#[test]
fn every_counter_of_the_peer_is_a_metric() {
    let (peer, _other, _second) = peer_with_traffic();
    // Both are read at different times: the counters at first are at most those of the metrics, and these at most those
    // at last.
    let rows = |report: &Value| -> BTreeMap<String, f64> {
        let rows = report["rows"].as_array().expect("rows");
        rows.iter().map(|row| (row["counter"].as_str().unwrap().to_owned(), row["value"].as_f64().unwrap())).collect()
    };
    let first = rows(&peer.place.show("counters"));
    let families = scrape(&peer);
    let report = peer.place.show("counters");
    let last = rows(&report);
    assert!(70 < last.len());
    for row in report["rows"].as_array().unwrap() {
        let name = row["counter"].as_str().unwrap();
        let family = &families[&format!("seqcast_{name}")];
        let value = family.samples[&format!("seqcast_{name}_total")];
        assert!(first[name] <= value && value <= last[name], "{name}: {} <= {value} <= {}", first[name], last[name]);
        assert_eq!((family.kind.as_str(), family.help.as_str()), ("counter", row["meaning"].as_str().unwrap()));
    }
    assert_eq!(families["seqcast_messages_published"].samples["seqcast_messages_published_total"], 1.0);
}

#[test]
fn metrics_about_peers_equal_the_reports() {
    let (peer, _other, _second) = peer_with_traffic();
    let families = scrape(&peer);
    let of = |name: &str| &families[name].samples;
    let row = &peer.place.show("peers")["rows"][0];
    let labels = format!("{{publisher=\"B.test\",epoch=\"{}\"}}", row["epoch"].as_str().unwrap());
    assert_eq!(of("seqcast_peer_messages")[&format!("seqcast_peer_messages_total{labels}")], 1.0);
    assert_eq!(of("seqcast_peer_up")[&format!("seqcast_peer_up{labels}")], 1.0);
    assert_eq!(of("seqcast_publisher_lost_messages")[&format!("seqcast_publisher_lost_messages_total{labels}")], 0.0);
    assert_eq!(of("seqcast_peers")["seqcast_peers{state=\"up\"}"], 1.0);
    let loss = &peer.place.show("loss")["rows"][0];
    let delivered = labels.replace('}', ",state=\"delivered\"}");
    let delivered = of("seqcast_publisher_datagrams")[&format!("seqcast_publisher_datagrams{delivered}")];
    assert!(1.0 <= delivered && delivered <= loss["datagrams"]["delivered"].as_f64().unwrap(), "{loss}");
    let windows = peer.place.show("windows");
    for window in windows["rows"].as_array().unwrap() {
        let label = format!("{{window={}}}", window["window"]);
        assert_eq!(
            of("seqcast_window_subjects")[&format!("seqcast_window_subjects{label}")],
            window["subjects"].as_f64().unwrap()
        );
        assert_eq!(
            of("seqcast_window_max_bytes")[&format!("seqcast_window_max_bytes{label}")],
            window["bytes_max"].as_f64().unwrap()
        );
    }
    let totals = &peer.place.run(&["show", "history", "--json"]).exits(DONE).stdout;
    let totals: Value = serde_json::from_str(totals).unwrap();
    assert_eq!(
        of("seqcast_history_messages")["seqcast_history_messages"],
        totals["totals"]["events"].as_f64().unwrap()
    );
    assert_eq!(
        of("seqcast_listener_accepted")["seqcast_listener_accepted_total{listener=\"http\"}"],
        peer.status()["accepted"].as_f64().unwrap()
    );
    assert_eq!(of("seqcast_omitted_rows").values().sum::<f64>(), 0.0);
}

#[test]
fn documented_metrics_are_those_of_a_peer() {
    let peer = WebPeer::start(&[]);
    let suffix = |kind: &str| BTreeMap::from([("counter", "_total"), ("gauge", ""), ("info", "_info")])[kind];
    let row = |(name, family): (&String, &ParsedFamily)| {
        format!("| `{name}{}` | {} | {} |", suffix(&family.kind), family.kind, family.help)
    };
    let expected: BTreeSet<String> = scrape(&peer).iter().map(row).collect();
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).expect("docs/metrics.md");
    let documented: BTreeSet<String> =
        page.lines().filter(|line| line.starts_with("| `seqcast_")).map(str::to_owned).collect();
    let missing: Vec<&String> = expected.difference(&documented).collect();
    let absent: Vec<&String> = documented.difference(&expected).collect();
    assert!(missing.is_empty() && absent.is_empty(), "docs/metrics.md lacks {missing:#?} and has {absent:#?}");
}
