//! Metrics that are no plain field of a report: sums, states, and rows with more labels.

use super::samples::{MetricSample, PEER_LABELS, labels_of, rows, sample};
use serde_json::Value;

/// Labels of the rows about consumers.
pub(super) const CONSUMER: &[(&str, &str)] = &[("stream", "/stream"), ("user", "/user"), ("component", "/component")];

/// Returns the rows at a pointer; none if there is no array.
pub(super) fn array<'a>(overview: &'a Value, pointer: &str) -> &'a [Value] {
    overview.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the identity of this peer.
pub(super) fn peer_info(overview: &Value) -> Vec<MetricSample> {
    let status = &overview["status"];
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let (port, labels) = (status["port"].to_string(), ["name", "version", "group", "interface", "address"]);
    let labels: Vec<(&'static str, &str)> = labels.into_iter().map(|label| (label, text(label))).collect();
    vec![sample(&[labels, vec![("port", port.as_str())]].concat(), 1)]
}

/// Returns whether the peer runs.
pub(super) fn running(overview: &Value) -> Vec<MetricSample> {
    vec![sample(&[], u8::from(overview["status"]["phase"] == "running"))]
}

/// Returns whether the peer is open to other hosts.
pub(super) fn open(overview: &Value) -> Vec<MetricSample> {
    vec![sample(&[], u8::from(overview["status"]["open_to_network"] == true))]
}

/// Returns the number of the health state.
pub(super) fn health(overview: &Value) -> Vec<MetricSample> {
    let states = ["ok", "notice", "warning", "broken"];
    let state = states.iter().position(|state| overview["health"]["state"] == *state);
    state.map(|state| sample(&[], state)).into_iter().collect()
}

/// Returns each present finding.
pub(super) fn findings(overview: &Value) -> Vec<MetricSample> {
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap_or_default().to_owned();
    let row =
        |finding: &Value| sample(&[("check", &text(finding, "check")), ("severity", &text(finding, "severity"))], 1);
    array(overview, "/health/findings").iter().map(row).collect()
}

/// Returns whether the link is connected with the cluster; nothing without a link.
pub(super) fn link_connected(overview: &Value) -> Vec<MetricSample> {
    let state = overview["status"]["link"]["state"].as_str();
    state.map(|state| sample(&[], u8::from(state == "connected"))).into_iter().collect()
}

/// Returns whether the stream for durable messages can be used; nothing without a link.
pub(super) fn stream_open(overview: &Value) -> Vec<MetricSample> {
    let is_open = overview["status"]["link"]["durable"]["open"].as_bool();
    is_open.map(|is_open| sample(&[], u8::from(is_open))).into_iter().collect()
}

/// Returns whether that stream has a fault; nothing without a link.
pub(super) fn stream_fault(overview: &Value) -> Vec<MetricSample> {
    let durable = overview["status"]["link"]["durable"].as_object();
    let has_fault = durable.map(|durable| durable.get("fault").is_some_and(Value::is_string));
    has_fault.map(|has_fault| sample(&[], u8::from(has_fault))).into_iter().collect()
}

/// Returns a number of each other site.
pub(super) fn sites(overview: &Value, value: &str) -> Vec<MetricSample> {
    rows(array(overview, "/status/link/sites"), &[("site", "/site")], value, 1)
}

/// Returns a number of each open listener.
pub(super) fn listeners(overview: &Value, value: &str) -> Vec<MetricSample> {
    let others = [&overview["status"]["streams"], &overview["status"]["http"]];
    let all = array(overview, "/status/listeners").iter().chain(others);
    rows(all, &[("listener", "/listener")], value, 1)
}

/// Returns a number of the clients of each listener: the sum, or the largest one.
pub(super) fn queues(overview: &Value, field: &str, is_largest: bool) -> Vec<MetricSample> {
    let listeners = ["local", "nats", "redis", "hat"];
    let numbers = |listener: &str| {
        let clients = array(overview, "/clients").iter();
        let of = clients.filter(move |client| client["listener"].as_str().unwrap_or("local") == listener);
        of.filter_map(move |client| client[field].as_u64()).collect::<Vec<u64>>()
    };
    let value = |numbers: Vec<u64>| match is_largest {
        true => numbers.into_iter().max().unwrap_or(0),
        false => numbers.into_iter().sum(),
    };
    listeners.iter().map(|listener| sample(&[("listener", listener)], value(numbers(listener)))).collect()
}

/// Returns the number of other peers in each state.
pub(super) fn peers(overview: &Value) -> Vec<MetricSample> {
    let count = |state: &str| array(overview, "/peers").iter().filter(|peer| peer["state"] == state).count();
    ["up", "silent", "left", "crashed"].iter().map(|state| sample(&[("state", state)], count(state))).collect()
}

/// Returns the number of excluded peers.
pub(super) fn excluded(overview: &Value) -> Vec<MetricSample> {
    vec![sample(&[], array(overview, "/status/flow_excluded").len())]
}

/// Returns whether each peer is up.
pub(super) fn up(overview: &Value) -> Vec<MetricSample> {
    let of_peer = |peer: &Value| MetricSample {
        labels: labels_of(peer, PEER_LABELS),
        value: u8::from(peer["state"] == "up").to_string(),
    };
    array(overview, "/peers").iter().map(of_peer).collect()
}

/// Returns the datagrams of each publisher by state.
pub(super) fn datagrams(overview: &Value) -> Vec<MetricSample> {
    let states = ["delivered", "buffered", "pending", "lost", "unverified"];
    let of_row = |row: &Value| states.map(|state| with_label(row, "state", state, &row["datagrams"][state]));
    array(overview, "/loss").iter().flat_map(of_row).collect()
}

/// Returns the loss reports of each publisher by reason.
pub(super) fn reasons(overview: &Value) -> Vec<MetricSample> {
    let of_row = |row: &Value| {
        let reasons = row["reasons"].as_object().into_iter().flatten();
        reasons.map(|(reason, count)| with_label(row, "reason", reason, count)).collect::<Vec<MetricSample>>()
    };
    array(overview, "/loss").iter().flat_map(of_row).collect()
}

/// Returns a number of a publisher, with a further label.
fn with_label(row: &Value, name: &'static str, value: &str, number: &Value) -> MetricSample {
    let mut labels = labels_of(row, PEER_LABELS);
    labels.push((name, value.to_owned()));
    MetricSample { labels, value: number.to_string() }
}

/// Returns the missed events of each consumer.
pub(super) fn missed(overview: &Value) -> Vec<MetricSample> {
    let of_row = |row: &Value| MetricSample {
        labels: labels_of(row, CONSUMER),
        value: row["lapsed"]["count"].as_u64().unwrap_or(0).to_string(),
    };
    array(overview, "/consumers").iter().map(of_row).collect()
}

/// Returns the number of rows of each report that have no samples.
pub(super) fn omitted(overview: &Value) -> Vec<MetricSample> {
    let count = |report: &str| overview[format!("{report}_omitted")].as_u64().unwrap_or(0);
    let reports = ["loss", "outbound", "peers", "streams", "consumers"];
    reports.iter().map(|report| sample(&[("report", report)], count(report))).collect()
}
