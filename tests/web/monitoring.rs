//! Prometheus from Debian scrapes a peer, and the dashboard and the alert rules use metrics that exist.

use super::WebPeer;
use super::client::send;
use super::metrics::{peer_with_traffic, scrape};
use crate::support::command::{Place, RunningCommand, parse_json};
use crate::support::root;
use crate::support::wait::{wait_until, wait_until_some};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};

const RULES: &str = "config/grafana/alerts.yaml";
const DASHBOARD: &str = "config/grafana/dashboard.json";

/// Runs `promtool` with this input, and asserts that it finds no fault.
#[track_caller]
fn promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("tools/test has installed prometheus");
    child.stdin.take().expect("standard input is a pipe").write_all(input.as_bytes()).expect("promtool reads all");
    let output = child.wait_with_output().expect("promtool ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
}

/// Starts Prometheus, which scrapes this target once a second.
fn prometheus(place: &Place, target: SocketAddr) -> (RunningCommand, SocketAddr) {
    // Prometheus takes no port 0. Another program could take this one meanwhile, which is unlikely.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let rules = root().join(RULES);
    let config = format!(
        "global:\n  scrape_interval: 1s\nrule_files:\n  - {}\nscrape_configs:\n  - job_name: seqcast\n    \
         static_configs:\n      - targets: ['{target}']\n",
        rules.display()
    );
    fs::write(place.dir().join("prometheus.yml"), config).expect("a file in a fresh directory");
    let mut command = Command::new("prometheus");
    let listen = format!("--web.listen-address={address}");
    command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", &listen]);
    command.current_dir(place.dir()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = RunningCommand::new(command.spawn().expect("tools/test has installed prometheus"), &["prometheus"]);
    wait_until("Prometheus listens", || std::net::TcpStream::connect(address).is_ok());
    (process, address)
}

/// Asks Prometheus for the value of a metric.
fn query(address: SocketAddr, metric: &str) -> Option<Value> {
    let head = format!("GET /api/v1/query?query={metric} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    let reply = send(address, head.as_bytes());
    if reply.status != 200 {
        return None;
    }
    Some(parse_json(&reply.body)["data"]["result"].get(0)?.clone())
}

#[test]
fn prometheus_scrapes_a_peer() {
    let (peer, _other, _second) = peer_with_traffic();
    let place = Place::new();
    let (process, address) = prometheus(&place, peer.address);
    let what = || format!("Prometheus has scraped the peer: {:?}", process.stderr_so_far());
    let up = wait_until_some(what, || query(address, "up").filter(|row| row["value"][1] == "1"));
    assert_eq!(up["metric"]["instance"], peer.address.to_string());
    let published = query(address, "seqcast_messages_published_total").expect("a counter");
    assert_eq!(published["value"][1], "1", "{published}");
    let heard = query(address, "seqcast_peer_messages_total").expect("a metric of the other peer");
    assert_eq!((&heard["metric"]["publisher"], &heard["value"][1]), (&"B.test".into(), &"1".into()), "{heard}");
}

#[test]
fn promtool_accepts_metrics_and_rules() {
    let peer = WebPeer::start(&[]);
    let reply = peer.get("/metrics").has_status(200);
    assert!(reply.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    promtool(&["check", "metrics"], &reply.body);
    let rules = root().join(RULES);
    promtool(&["check", "rules", rules.to_str().expect("a path of text")], "");
}

#[test]
fn dashboard_and_rules_use_existing_metrics() {
    let families = scrape(&WebPeer::start(&[]));
    let suffix = |kind: &str| match kind {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    };
    let names: BTreeSet<String> =
        families.iter().map(|(name, family)| format!("{name}{}", suffix(&family.kind))).collect();
    for path in [RULES, DASHBOARD] {
        let text = fs::read_to_string(root().join(path)).expect("a file of the tree");
        let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let used: BTreeSet<&str> = parts.filter(|word| word.starts_with("seqcast_")).collect();
        assert!(5 < used.len(), "{path} uses {used:?}");
        for name in used {
            assert!(names.contains(name), "{path} uses {name}, which no peer has");
        }
    }
    let dashboard = parse_json(&fs::read_to_string(root().join(DASHBOARD)).expect("a file of the tree"));
    let panels = dashboard["panels"].as_array().expect("panels");
    let has_query = |panel: &&Value| panel["targets"].as_array().is_some_and(|targets| !targets.is_empty());
    assert!(panels.iter().filter(|panel| panel["type"] != "row").all(|panel| has_query(&panel)));
}
