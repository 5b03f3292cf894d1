//! The text of the metrics: values, labels, escapes, and both formats.

use super::*;

fn overview() -> Value {
    let loss = |count: u64| json!({ "count": count, "time": null });
    json!({
        "status": {
            "name": "A.test", "version": "0.1.0", "group": "239.1.2.3", "port": 7500, "interface": "eth0",
            "address": "10.0.0.7", "uptime_ms": 61_500, "phase": "running", "open_to_network": true, "clients": 2, "flow_excluded": ["B"],
            "listeners": [{ "listener": "nats", "clients": 1, "accepted": 4 }], "streams": null,
            "http": { "listener": "http", "clients": 3, "accepted": 5, "published": 7, "dropped": 2, "subscriptions": 1 },
        },
        "health": { "state": "warning", "findings": [{ "check": "clock", "severity": "warning" }] },
        "clients": [
            { "listener": "nats", "queued": 3, "queued_bytes": 300 },
            { "listener": "nats", "queued": 4, "queued_bytes": 900 },
            { "listener": null, "queued": 5, "queued_bytes": 50 },
        ],
        "peers": [
            { "publisher": "B \"x\"\\\n", "epoch": "abc", "state": "up", "last_heard_ms": 250, "kernel_drops": null },
            { "publisher": null, "epoch": "def", "state": "left", "last_heard_ms": 7000, "kernel_drops": 9 },
        ],
        "loss": [{
            "publisher": "B", "epoch": "abc", "msg_loss": loss(7), "reasons": { "DEADLINE": 2 }, "overrun": 1,
            "datagrams": { "delivered": 10, "buffered": 0, "pending": 1, "lost": 2, "unverified": 3 },
        }],
        "outbound": [{ "publisher": "C", "epoch": "fed", "lost": { "min": 3, "max": 8 } }],
        "loss_omitted": 12,
        "counters": [{ "counter": "datagrams_in", "value": 18_446_744_073_709_551_615_u64, "meaning": "Datagrams \"in\"." }],
    })
}

/// Asserts that the text has exactly these samples of a metric.
#[track_caller]
fn assert_samples(text: &str, name: &str, expected: &[&str]) {
    let is_sample = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
    assert_eq!(text.lines().filter(is_sample).collect::<Vec<&str>>(), expected);
}

#[test]
fn metrics_have_the_values_of_the_reports() {
    let text = render(&overview(), true);
    assert_samples(&text, "seqcast_uptime_seconds", &["seqcast_uptime_seconds 61.5"]);
    assert_samples(&text, "seqcast_running", &["seqcast_running 1"]);
    assert_samples(&text, "seqcast_open", &["seqcast_open 1"]);
    assert_samples(&text, "seqcast_health_state", &["seqcast_health_state 2"]);
    assert_samples(
        &text,
        "seqcast_health_finding",
        &["seqcast_health_finding{check=\"clock\",severity=\"warning\"} 1"],
    );
    assert_samples(
        &text,
        "seqcast_listener_accepted_total",
        &[
            "seqcast_listener_accepted_total{listener=\"nats\"} 4",
            "seqcast_listener_accepted_total{listener=\"http\"} 5",
        ],
    );
    assert_samples(&text, "seqcast_http_published_messages_total", &["seqcast_http_published_messages_total 7"]);
    assert_samples(&text, "seqcast_http_dropped_messages_total", &["seqcast_http_dropped_messages_total 2"]);
    assert_samples(&text, "seqcast_http_subscriptions", &["seqcast_http_subscriptions 1"]);
    assert_samples(
        &text,
        "seqcast_client_queue_messages",
        &[
            "seqcast_client_queue_messages{listener=\"local\"} 5",
            "seqcast_client_queue_messages{listener=\"nats\"} 7",
            "seqcast_client_queue_messages{listener=\"redis\"} 0",
            "seqcast_client_queue_messages{listener=\"hat\"} 0",
        ],
    );
    let largest: Vec<&str> =
        text.lines().filter(|line| line.starts_with("seqcast_client_queue_largest_bytes{")).collect();
    assert_eq!(largest[1], "seqcast_client_queue_largest_bytes{listener=\"nats\"} 900");
    assert_samples(
        &text,
        "seqcast_peer_kernel_drops_total",
        &["seqcast_peer_kernel_drops_total{publisher=\"\",epoch=\"def\"} 9"],
    );
    assert_samples(
        &text,
        "seqcast_publisher_loss_reports_total",
        &["seqcast_publisher_loss_reports_total{publisher=\"B\",epoch=\"abc\",reason=\"DEADLINE\"} 2"],
    );
    assert_samples(
        &text,
        "seqcast_receiver_lost_messages",
        &["seqcast_receiver_lost_messages{publisher=\"C\",epoch=\"fed\"} 3"],
    );
    assert_samples(
        &text,
        "seqcast_omitted_rows",
        &[
            "seqcast_omitted_rows{report=\"loss\"} 12",
            "seqcast_omitted_rows{report=\"outbound\"} 0",
            "seqcast_omitted_rows{report=\"peers\"} 0",
            "seqcast_omitted_rows{report=\"streams\"} 0",
            "seqcast_omitted_rows{report=\"consumers\"} 0",
        ],
    );
    assert_samples(&text, "seqcast_datagrams_in_total", &["seqcast_datagrams_in_total 18446744073709551615"]);
}

#[test]
fn metrics_of_a_link_cover_its_parts() {
    let mut overview = overview();
    let durable = json!({
        "stream": "SEQCAST", "open": true, "fault": "the stream stores no message: it is full", "waiting": 7, "stored": 90,
        "discarded": 2, "position": null,
    });
    overview["status"]["link"] = json!({
        "state": "connected", "shares": 9, "exported": 120, "requests_sent": 4, "no_responders": 1, "events": null,
        "durable": durable, "sites": [{ "site": "hq", "imported": 60, "repeated": 3, "lost_min": 40, "tails": 0 }],
    });
    let text = render(&overview, true);
    for (name, samples) in [
        ("seqcast_link_connected", &["seqcast_link_connected 1"][..]),
        ("seqcast_link_requests_sent_total", &["seqcast_link_requests_sent_total 4"]),
        ("seqcast_link_no_responders_total", &["seqcast_link_no_responders_total 1"]),
        ("seqcast_link_repeated_total", &["seqcast_link_repeated_total{site=\"hq\"} 3"]),
        ("seqcast_link_events_exported_total", &[]),
        ("seqcast_link_durable_open", &["seqcast_link_durable_open 1"]),
        ("seqcast_link_durable_fault", &["seqcast_link_durable_fault 1"]),
        ("seqcast_link_durable_waiting_messages", &["seqcast_link_durable_waiting_messages 7"]),
        ("seqcast_link_durable_discarded_total", &["seqcast_link_durable_discarded_total 2"]),
        ("seqcast_link_durable_position", &[]),
        ("seqcast_link_verified_total", &[]),
    ] {
        assert_samples(&text, name, samples);
    }
    let events = json!({ "servers": 2, "exported": 5, "imported": 6, "dropped": 1 });
    let durable = json!({ "open": false, "fault": null, "position": 88 });
    (overview["status"]["link"]["events"], overview["status"]["link"]["durable"]) = (events, durable);
    overview["status"]["link"]["security"] = json!({ "certificates": 3, "verified": 90, "repeated": 8, "denied": 1 });
    let text = render(&overview, true);
    assert_samples(&text, "seqcast_link_certificates", &["seqcast_link_certificates 3"]);
    assert_samples(&text, "seqcast_link_verified_total", &["seqcast_link_verified_total 90"]);
    assert_samples(&text, "seqcast_link_replayed_total", &["seqcast_link_replayed_total 8"]);
    assert_samples(&text, "seqcast_link_event_servers", &["seqcast_link_event_servers 2"]);
    assert_samples(&text, "seqcast_link_events_imported_total", &["seqcast_link_events_imported_total 6"]);
    assert_samples(&text, "seqcast_link_durable_open", &["seqcast_link_durable_open 0"]);
    assert_samples(&text, "seqcast_link_durable_fault", &["seqcast_link_durable_fault 0"]);
    assert_samples(&text, "seqcast_link_durable_position", &["seqcast_link_durable_position 88"]);
}

#[test]
fn streams_and_consumers_keep_to_the_limit() {
    let stream = |number: usize| json!({ "stream": format!("s{number}"), "events": number, "bytes": 10 });
    let consumer = |number: usize| {
        let lapsed = (number == 1).then(|| json!({ "first": "1", "last": "5", "count": 4 }));
        json!({ "stream": "s0", "user": format!("u{number}"), "component": "c", "lag": number, "lapsed": lapsed })
    };
    let consumers: Vec<Value> = (0..=ROWS_MAX).map(consumer).collect();
    let report = json!({ "streams": [stream(0), stream(7)], "consumers": consumers, "omitted": 20 });
    let mut overview = overview();
    add_streams(&mut overview, report);
    let text = render(&overview, true);
    assert_samples(
        &text,
        "seqcast_stream_events",
        &["seqcast_stream_events{stream=\"s0\"} 0", "seqcast_stream_events{stream=\"s7\"} 7"],
    );
    let lines = |name: &str| text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect::<Vec<&str>>();
    let lags = lines("seqcast_consumer_lag_events");
    assert_eq!(
        (lags.len(), lags[3]),
        (ROWS_MAX, r#"seqcast_consumer_lag_events{stream="s0",user="u3",component="c"} 3"#)
    );
    let missed = lines("seqcast_consumer_missed_events");
    assert_eq!(missed[1], r#"seqcast_consumer_missed_events{stream="s0",user="u1",component="c"} 4"#);
    assert!(missed[2].ends_with(" 0"), "{}", missed[2]);
    assert!(text.contains("seqcast_omitted_rows{report=\"consumers\"} 21\n"), "{text}");
}

#[test]
fn labels_and_help_are_escaped() {
    let text = render(&overview(), true);
    assert!(text.contains("seqcast_peer_up{publisher=\"B \\\"x\\\"\\\\\\n\",epoch=\"abc\"} 1\n"), "{text}");
    assert!(text.contains("# HELP seqcast_datagrams_in Datagrams \\\"in\\\".\n"), "{text}");
    assert!(text.ends_with("\n# EOF\n"));
}

#[test]
fn older_format_names_families_like_their_samples() {
    let text = render(&overview(), false);
    for line in [
        "# TYPE seqcast_datagrams_in_total counter\n# HELP seqcast_datagrams_in_total Datagrams \"in\".\n",
        "# TYPE seqcast_peer_info gauge\n",
        "\nseqcast_peer_info{name=\"A.test\",version=\"0.1.0\",group=\"239.1.2.3\",interface=\"eth0\",address=\"10.0.0.7\",port=\"7500\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(render(&overview(), true).contains("# TYPE seqcast_peer info\n"));
}

#[test]
fn absent_reports_have_no_samples() {
    let text = render(&json!({ "status": { "phase": "stopping" } }), true);
    assert_samples(&text, "seqcast_running", &["seqcast_running 0"]);
    assert_samples(&text, "seqcast_peer_up", &[]);
    assert_samples(&text, "seqcast_history_bytes", &[]);
    assert_samples(&text, "seqcast_link_connected", &[]);
    assert_samples(&text, "seqcast_link_durable_fault", &[]);
}
