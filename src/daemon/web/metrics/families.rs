//! The metrics beside the counters of the peer and those of its link: their names, kinds, meanings, and the report that
//! each comes from.

use super::rules::{
    CONSUMER, array, datagrams, excluded, findings, health, listeners, missed, omitted, open, peer_info, peers, queues,
    reasons, running, up,
};
use super::samples::{MetricKind, MetricSample, PEER_LABELS, rows, single};
use serde_json::Value;

use MetricKind::{Counter, Gauge, Info};
use SampleSource::{Each, Field, Rule};

/// Milliseconds of a second.
const MILLIS: u32 = 1000;

/// A metric.
pub(super) struct MetricFamily {
    /// Name without prefix and suffix.
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    /// Meaning, with the unit.
    pub(super) help: &'static str,
    source: SampleSource,
}

/// Origin of the samples of a metric.
pub(super) enum SampleSource {
    /// The number at this pointer, divided by the second number.
    Field(&'static str, u32),
    /// In each row of the array at the first pointer the number at the last one.
    Each(&'static str, &'static [(&'static str, &'static str)], &'static str),
    /// Samples that need a rule of their own.
    Rule(fn(&Value) -> Vec<MetricSample>),
}

impl MetricFamily {
    /// Returns the samples in an overview of the reports.
    pub(super) fn samples(&self, overview: &Value) -> Vec<MetricSample> {
        match self.source {
            Field(pointer, divisor) => overview.pointer(pointer).map_or(Vec::new(), |value| single(value, divisor)),
            Each(list, labels, pointer) => rows(array(overview, list), labels, pointer, divisor_of(pointer)),
            Rule(rule) => rule(overview),
        }
    }
}

/// Returns the divisor that turns a field into the unit of its metric: times become seconds.
fn divisor_of(pointer: &str) -> u32 {
    if pointer.ends_with("_ms") { MILLIS } else { 1 }
}

/// Makes a metric. `name` has neither prefix nor suffix, and `help` names the unit.
pub(super) const fn family(
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    source: SampleSource,
) -> MetricFamily {
    MetricFamily { name, kind, help, source }
}

const WINDOW: &[(&str, &str)] = &[("window", "/window")];
const STREAM: &[(&str, &str)] = &[("stream", "/stream")];

/// All metrics beside the counters of the peer and those of its link.
pub(super) const FAMILIES: &[MetricFamily] = &[
    family("peer", Info, "Name, version, group and interface of this peer; the value is 1.", Rule(peer_info)),
    family(
        "uptime_seconds",
        Gauge,
        "Time since the start of this peer, in seconds.",
        Field("/status/uptime_ms", MILLIS),
    ),
    family("running", Gauge, "1 while the peer runs, 0 while it stops.", Rule(running)),
    family(
        "health_state",
        Gauge,
        "Worst finding of the health checks: 0 none, 1 notice, 2 warning, 3 broken.",
        Rule(health),
    ),
    family("health_finding", Gauge, "1 for each present finding of the health checks.", Rule(findings)),
    family(
        "open",
        Gauge,
        "1 if other hosts can read every message and publish any, since this peer is open; 0 otherwise.",
        Rule(open),
    ),
    family("clients", Gauge, "Connected clients of this peer.", Field("/status/clients", 1)),
    family("send_queue_datagrams", Gauge, "Datagrams that wait for the network.", Field("/status/send_queue", 1)),
    family(
        "receive_buffer_bytes",
        Gauge,
        "Receive buffer granted by the kernel, in bytes.",
        Field("/status/receive_buffer", 1),
    ),
    family(
        "receive_buffer_wanted_bytes",
        Gauge,
        "Receive buffer requested from the kernel, in bytes.",
        Field("/status/receive_buffer_wanted", 1),
    ),
    family(
        "listener_memory_bytes",
        Gauge,
        "Incomplete input and queued output of the clients of NATS, Redis, Hat and Rendezvous, in bytes.",
        Field("/status/listener_bytes", 1),
    ),
    family(
        "listener_clients",
        Gauge,
        "Open connections, by listener.",
        Rule(|overview| listeners(overview, "/clients")),
    ),
    family(
        "listener_accepted",
        Counter,
        "Accepted connections, by listener.",
        Rule(|overview| listeners(overview, "/accepted")),
    ),
    family(
        "listener_refused",
        Counter,
        "Connections for which there was no room, by listener.",
        Rule(|overview| listeners(overview, "/refused")),
    ),
    family(
        "listener_unauthorized",
        Counter,
        "Connections or requests without valid credentials, by listener.",
        Rule(|overview| listeners(overview, "/unauthorized")),
    ),
    family(
        "listener_denied",
        Counter,
        "Actions that the accounts of clients do not permit, by listener.",
        Rule(|overview| listeners(overview, "/denied")),
    ),
    family(
        "listener_slow",
        Counter,
        "Times that a client began to lose messages because it read too slowly, by listener.",
        Rule(|overview| listeners(overview, "/slow")),
    ),
    family(
        "listener_evicted",
        Counter,
        "Clients closed because all together held too much memory, by listener.",
        Rule(|overview| listeners(overview, "/evicted")),
    ),
    family(
        "client_queue_messages",
        Gauge,
        "Messages that wait for clients, by listener; programs of the local socket are 'local'.",
        Rule(|overview| queues(overview, "queued", false)),
    ),
    family(
        "client_queue_bytes",
        Gauge,
        "Bytes that wait for clients, by listener.",
        Rule(|overview| queues(overview, "queued_bytes", false)),
    ),
    family(
        "client_queue_largest_bytes",
        Gauge,
        "Bytes that wait for the client with the longest queue, by listener.",
        Rule(|overview| queues(overview, "queued_bytes", true)),
    ),
    family(
        "client_dropped_messages",
        Gauge,
        "Messages that the connected clients lost because they read too slowly, by listener.",
        Rule(|overview| queues(overview, "dropped", false)),
    ),
    family("http_requests", Counter, "Requests to the web server.", Field("/status/http/requests", 1)),
    family("http_invalid", Counter, "Requests to the web server that are not valid.", Field("/status/http/invalid", 1)),
    family(
        "http_busy",
        Counter,
        "Requests refused because too many waited, or publishers waited for the network.",
        Field("/status/http/busy", 1),
    ),
    family(
        "http_foreign",
        Counter,
        "Requests refused because of a foreign name of this host, or a page of another site.",
        Field("/status/http/foreign", 1),
    ),
    family("http_published_messages", Counter, "Messages published by HTTP.", Field("/status/http/published", 1)),
    family("http_subscriptions", Gauge, "Present subscriptions by HTTP.", Field("/status/http/subscriptions", 1)),
    family(
        "http_delivered_messages",
        Counter,
        "Messages sent to subscriptions by HTTP.",
        Field("/status/http/delivered", 1),
    ),
    family(
        "http_dropped_messages",
        Counter,
        "Messages and loss reports that subscriptions by HTTP lost because they read too slowly.",
        Field("/status/http/dropped", 1),
    ),
    family("http_bus_requests", Counter, "Requests on the bus by HTTP.", Field("/status/http/bus_requests", 1)),
    family(
        "http_bus_replies",
        Counter,
        "Replies to requests on the bus by HTTP.",
        Field("/status/http/bus_replies", 1),
    ),
    family(
        "http_no_responders",
        Counter,
        "Requests on the bus by HTTP that nobody subscribed to.",
        Field("/status/http/no_responders", 1),
    ),
    family(
        "http_timeouts",
        Counter,
        "Requests on the bus by HTTP without a reply in time.",
        Field("/status/http/timeouts", 1),
    ),
    family("peers", Gauge, "Other peers, by state.", Rule(peers)),
    family(
        "peers_excluded",
        Gauge,
        "Peers that are excluded from flow control because they are too slow.",
        Rule(excluded),
    ),
    family("peer_up", Gauge, "1 if the other peer was heard within its silence timeout.", Rule(up)),
    family(
        "peer_last_heard_seconds",
        Gauge,
        "Time since the last datagram of the other peer, in seconds.",
        Each("/peers", PEER_LABELS, "/last_heard_ms"),
    ),
    family(
        "peer_messages",
        Counter,
        "Messages received from the other peer.",
        Each("/peers", PEER_LABELS, "/messages_in"),
    ),
    family(
        "peer_datagrams",
        Counter,
        "Datagrams received from the other peer.",
        Each("/peers", PEER_LABELS, "/datagrams_in"),
    ),
    family(
        "peer_kernel_drops",
        Counter,
        "Datagrams dropped by the kernel of the other peer, by its last report.",
        Each("/peers", PEER_LABELS, "/kernel_drops"),
    ),
    family(
        "peer_flow_exclusions",
        Counter,
        "Times that the other peer was excluded from flow control.",
        Each("/peers", PEER_LABELS, "/flow_exclusion_count"),
    ),
    family(
        "peer_multicast_dead",
        Gauge,
        "1 if the unicast of the other peer arrives and its multicast does not.",
        Each("/peers", PEER_LABELS, "/multicast_dead"),
    ),
    family(
        "publisher_lost_messages",
        Counter,
        "Messages to the group lost from the publisher, lower bound.",
        Each("/loss", PEER_LABELS, "/msg_loss/count"),
    ),
    family(
        "publisher_lost_uncertain_messages",
        Gauge,
        "Upper bound less lower bound of the messages lost from the publisher.",
        Each("/loss", PEER_LABELS, "/msg_loss_uncertain"),
    ),
    family(
        "publisher_lost_direct_messages",
        Counter,
        "Messages lost from the publisher's stream to this peer alone.",
        Each("/loss", PEER_LABELS, "/ibx_loss/count"),
    ),
    family(
        "publisher_repaired_messages",
        Counter,
        "Messages of the publisher received after they were missing and requested.",
        Each("/loss", PEER_LABELS, "/repaired/count"),
    ),
    family(
        "publisher_repeated_messages",
        Counter,
        "Messages of the publisher received more than once.",
        Each("/loss", PEER_LABELS, "/repeat/count"),
    ),
    family(
        "publisher_unverified_messages",
        Gauge,
        "Messages of the publisher in missing datagrams that nothing has explained.",
        Each("/loss", PEER_LABELS, "/unverified/count"),
    ),
    family(
        "publisher_datagrams",
        Gauge,
        "Datagrams of the publisher's stream to the group, by state.",
        Rule(datagrams),
    ),
    family(
        "publisher_overrun_datagrams",
        Counter,
        "Missing datagrams of the publisher that the kernel of this host dropped.",
        Each("/loss", PEER_LABELS, "/overrun"),
    ),
    family(
        "publisher_loss_reports",
        Counter,
        "Reports of losses and unverified ranges of the publisher, by reason.",
        Rule(reasons),
    ),
    family(
        "receiver_missing_datagrams",
        Gauge,
        "Datagrams of this peer that the other peer missed at first, by its last report.",
        Each("/outbound", PEER_LABELS, "/missing"),
    ),
    family(
        "receiver_pending_datagrams",
        Gauge,
        "Datagrams of this peer that the other peer still awaits, by its last report.",
        Each("/outbound", PEER_LABELS, "/pending"),
    ),
    family(
        "receiver_lost_messages",
        Gauge,
        "Messages to the group of this peer that the other peer lost, lower bound, by its last report.",
        Each("/outbound", PEER_LABELS, "/lost"),
    ),
    family(
        "receiver_lost_inbox_messages",
        Gauge,
        "Messages of this peer to the other peer alone that it lost, by its last report.",
        Each("/outbound", PEER_LABELS, "/inbox_lost"),
    ),
    family(
        "window_subjects",
        Gauge,
        "Subjects in the window of published (pub) or subscribed (sub) subjects.",
        Each("/windows", WINDOW, "/subjects"),
    ),
    family("window_bytes", Gauge, "Memory of the window, in bytes.", Each("/windows", WINDOW, "/bytes")),
    family("window_max_bytes", Gauge, "Hard limit of the window, in bytes.", Each("/windows", WINDOW, "/bytes_max")),
    family(
        "window_evicted_subjects",
        Counter,
        "Subjects evicted from the window.",
        Each("/windows", WINDOW, "/evicted"),
    ),
    family("history_subjects", Gauge, "Subjects with retained messages.", Field("/history_totals/subjects", 1)),
    family("history_messages", Gauge, "Retained messages.", Field("/history_totals/events", 1)),
    family("history_bytes", Gauge, "Bytes of the retained messages.", Field("/history_totals/bytes", 1)),
    family(
        "history_max_bytes",
        Gauge,
        "Limit of the bytes of the retained messages.",
        Field("/history_totals/bytes_max", 1),
    ),
    family(
        "history_evicted_messages",
        Counter,
        "Retained messages evicted because all together were too large.",
        Field("/history_totals/evicted", 1),
    ),
    family("stream_events", Gauge, "Events in the stream.", Each("/streams", STREAM, "/events")),
    family("stream_bytes", Gauge, "Bytes of the events in the stream.", Each("/streams", STREAM, "/bytes")),
    family(
        "consumer_lag_events",
        Gauge,
        "Events of the stream that the consumer has not accepted yet.",
        Each("/consumers", CONSUMER, "/lag"),
    ),
    family(
        "consumer_missed_events",
        Gauge,
        "Events removed before the consumer accepted them; it gets no further ones until it registers again.",
        Rule(missed),
    ),
    family(
        "omitted_rows",
        Gauge,
        "Rows of a report that have no samples here because there are too many.",
        Rule(omitted),
    ),
];
