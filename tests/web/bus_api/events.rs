//! `GET /sub/PATTERN` as server-sent events.

use super::super::WebPeer;
use super::super::page::Lan;
use super::event_reader::EventReader;
use super::{curl, post, subscribe};
use crate::support::command::{RunningCommand, parse_json};
use crate::support::exit_code::DONE;
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// Maximum number of subscriptions.
const SUBSCRIPTIONS_MAX: usize = 128;

#[test]
fn events_have_the_fields_of_sub() {
    let peer = WebPeer::start(&[]);
    let mut reader = EventReader::begin(peer.address, "/sub/plant.%3E");
    for line in ["content-type: text/event-stream", "x-accel-buffering: no", "cache-control: no-store"] {
        assert!(reader.head.lines().any(|field| field == line), "{}", reader.head);
    }
    let subscriber = subscribe(&peer, "plant.>");
    let fields = "Seqcast-Header-Unit: m/s\r\nSeqcast-Reply: answers.7\r\n";
    post(&peer, "/pub/plant.a", fields, "Grüße\r\n".as_bytes()).has_status(204);
    post(&peer, "/pub/plant.b", "", b"\xff\x00").has_status(204);
    post(&peer, "/pub/other", "", b"").has_status(204);
    for expected in [("payload", "Grüße\r\n"), ("payload_base64", "/wA=")] {
        let (name, mut event) = reader.event();
        assert_eq!((name.as_str(), event[expected.0].as_str()), ("message", Some(expected.1)));
        let mut printed = parse_json(&subscriber.line());
        for message in [&mut event, &mut printed] {
            assert!(message["received"].take().is_string());
        }
        assert_eq!(event, printed, "both interfaces name the fields alike");
    }
    let status = peer.status();
    let counts = ["subscriptions", "delivered", "dropped"].map(|count| status[count].clone());
    assert_eq!(counts, [json!(1), json!(2), json!(0)], "{status}");
    drop(reader);
    wait_until("the subscription has ended", || peer.status()["subscriptions"] == 0);
    let rows = peer.place.show("subs")["rows"].clone();
    assert_eq!(rows.as_array().expect("rows").iter().filter(|row| row["pattern"] == "plant.>").count(), 1);
}

#[test]
fn curl_reads_payloads_alone() {
    let peer = WebPeer::start(&[]);
    let mut command = Command::new("curl");
    let url = format!("http://{}/sub/a?format=payload", peer.address);
    command.args(["--silent", "--no-buffer", "--max-time", "60", &url]).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("curl is installed");
    let reader = RunningCommand::new(child, &["curl"]);
    assert_eq!([reader.line(), reader.line(), reader.line()], ["retry: 1000", ": subscribed", ""]);
    for payload in ["17.5", "a\nb", "\r"] {
        curl(&peer, &["--data-binary", payload], "/pub/a");
    }
    let lines: Vec<String> = (0..10).map(|_| reader.line()).collect();
    let expected = [
        "event: message",
        "data: 17.5",
        "",
        "event: message",
        "data: a",
        "data: b",
        "",
        "event: base64",
        "data: DQ==",
        "",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn losses_are_events_with_counts() {
    let lan = Lan::start("events.lossy", 2, 0.3);
    let mut reader = EventReader::begin(lan.address(), "/sub/plant.line1.speed");
    let mut events: Vec<(String, Value)> = Vec::new();
    // On a busy machine a manifest may be late; then the count of a loss is a range, and the next loss is awaited.
    let is_exact_loss =
        |(name, loss): &&(String, Value)| name == "loss" && loss["kind"] == "messages" && loss["count"].is_u64();
    wait_until("an exact loss of messages is reported", || {
        // Each burst shows some messages at least.
        (0..20).for_each(|_| lan.publish());
        events.push(reader.event());
        events.iter().any(|event| is_exact_loss(&event))
    });
    let (_, loss) = events.iter().find(is_exact_loss).expect("a loss");
    let shown = ["subject", "publisher", "reason", "cause"].map(|field| loss[field].as_str().expect("a text"));
    assert_eq!(shown, ["plant.line1.speed", "line1.events.lossy", "DISABLED", "NETWORK"], "{loss}");
    assert!(1 <= loss["count"].as_u64().expect("an exact number"), "{loss}");
}

#[test]
fn slow_reader_learns_what_it_missed() {
    let peer = WebPeer::start(&["client-queue-size=64 mb", "client-queue-count=1000000"]);
    let mut slow = EventReader::begin(peer.address, "/sub/flood");
    let subscriber = subscribe(&peer, "flood");
    let (count, size) = (40_000_u64, 500);
    let text = format!("{{{{count}}}} {}", "x".repeat(size));
    peer.place.run(&["pub", "flood", &text, "--count", &count.to_string()]).exits(DONE);
    (0..count).for_each(|_| drop(subscriber.line()));
    let (mut messages, mut dropped, mut last) = (0, 0, 0);
    while messages + dropped < count {
        let (name, event) = slow.event();
        match name.as_str() {
            "message" => {
                let text = event["payload"].as_str().expect("a text");
                let number: u64 = text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
                messages += 1;
                assert!(last < number + 1, "messages keep their order");
                last = number + 1;
            }
            "dropped" => dropped += event["count"].as_u64().expect("a number"),
            _ => panic!("{name}: {event}"),
        }
    }
    assert_eq!(messages + dropped, count, "each message arrives or is counted, once");
    assert!(0 < dropped, "more than all buffers hold");
    let status = peer.status();
    assert_eq!((&status["delivered"], &status["dropped"]), (&json!(messages), &json!(dropped)), "{status}");
}

#[test]
fn queue_group_shares_the_messages() {
    let peer = WebPeer::start(&[]);
    let readers = [(); 2].map(|()| EventReader::begin(peer.address, "/sub/work?queue=workers&format=json"));
    let count = 40;
    (0..count).for_each(|number| drop(post(&peer, "/pub/work", "", format!("{number}").as_bytes()).has_status(204)));
    wait_until("all messages are sent", || peer.status()["delivered"] == count);
    peer.process.signal("TERM");
    let shares = readers.map(|reader| reader.rest().matches("event: message").count());
    assert_eq!(shares.iter().sum::<usize>(), count, "{shares:?}");
    assert!(shares.iter().all(|share| 0 < *share), "both work: {shares:?}");
}

#[test]
fn invalid_subscriptions_are_refused_with_a_sentence() {
    let peer = WebPeer::start(&[]);
    for (path, text) in [
        ("/sub/", "must not be empty"),
        ("/sub/a..b", "empty token"),
        ("/sub/%3E.a", "must be the last token"),
        ("/sub/a/b", "dots separate the tokens"),
        ("/sub/a?format=xml", "format is json or payload"),
        ("/sub/a?delivery=fast", "delivery is repair or live"),
        ("/sub/a?queue=", "queue group must not be empty"),
        ("/sub/a?delivery=live&queue=q", "queue group"),
        ("/sub/a?last=1", "no parameter \"last\""),
    ] {
        let refused = peer.get(path).has_status(400);
        assert!(refused.body.contains(text), "{path}: {refused:?}");
    }
    assert_eq!(post(&peer, "/sub/a", "", b"").has_status(405).header("allow"), Some("get, head"));
    let mut readers: Vec<_> = (0..SUBSCRIPTIONS_MAX).map(|_| EventReader::begin(peer.address, "/sub/a")).collect();
    let refused = peer.get("/sub/a").has_status(503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    readers.pop();
    wait_until("there is room again", || EventReader::begin_with(peer.address, "/sub/a", "").status == 200);
}

#[test]
fn account_subscribes_only_to_the_permitted() {
    let peer = WebPeer::start(&["accounts=user bob password pwd publish plant.> subscribe cmd.*"]);
    let bob = "Authorization: Basic Ym9iOnB3ZA==\r\n";
    let status = |path: &str, headers: &str| EventReader::begin_with(peer.address, path, headers).status;
    assert_eq!(status("/sub/cmd.*", ""), 401);
    assert_eq!(status("/sub/cmd.*", bob), 200);
    assert_eq!(status("/sub/cmd.%3E", bob), 403);
    assert_eq!(status("/sub/plant.a", bob), 403);
    assert_eq!(status("/sub/cmd.a", "Origin: http://evil.example\r\n"), 403);
    assert_eq!(peer.status()["denied"], 2);
}

#[test]
fn stopping_peer_ends_subscriptions_cleanly() {
    let mut peer = WebPeer::start(&[]);
    let mut reader = EventReader::begin(peer.address, "/sub/a");
    post(&peer, "/pub/a", "", b"last").has_status(204);
    assert_eq!(reader.event().1["payload"], "last");
    peer.process.signal("TERM");
    assert!(reader.rest().ends_with("0\r\n\r\n"), "the last chunk is empty");
    assert!(peer.process.ended().success());
}

#[test]
fn idle_subscription_gets_comments() {
    let peer = WebPeer::start(&[]);
    let mut reader = EventReader::begin(peer.address, "/sub/a");
    while reader.line() != ": alive" {}
}

#[test]
fn equal_subscriptions_get_every_message() {
    let peer = WebPeer::start(&[]);
    let mut readers = [(); 2].map(|()| EventReader::begin(peer.address, "/sub/a?delivery=live"));
    post(&peer, "/pub/a", "", b"1").has_status(204);
    let payloads = readers.each_mut().map(|reader| reader.event().1["payload"].clone());
    assert_eq!(payloads, ["1", "1"]);
}
