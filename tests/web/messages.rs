//! Messages in the page: subscribing and publishing by HTTP.

use super::WebPeer;
use super::client::{HttpReply, connect, send};
use super::page::Lan;
use crate::support::command::parse_json;
use crate::support::exit_code::DONE;
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

/// Maximum number of subscriptions of all pages together.
const SUBSCRIPTIONS_MAX: usize = 16;

/// A subscription by HTTP.
struct PageSubscription(BufReader<TcpStream>);

impl PageSubscription {
    /// Subscribes, and reads the head of the answer.
    fn begin(address: SocketAddr, pattern: &str) -> (PageSubscription, u16) {
        let mut stream = connect(address);
        let request = format!("GET /api/v1/messages?pattern={pattern} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("the connection is open");
        let mut subscription = PageSubscription(BufReader::new(stream));
        let status = subscription.line().split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        while !subscription.line().is_empty() {}
        (subscription, status)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line in time");
        line.trim_end().to_owned()
    }

    /// Returns the next notice.
    fn notice(&mut self) -> Value {
        loop {
            if let Some(data) = self.line().strip_prefix("data: ") {
                return parse_json(data);
            }
        }
    }
}

/// Sends a message to be published, with further headers.
fn publish(address: SocketAddr, headers: &str, body: &str) -> HttpReply {
    let head = format!("POST /api/v1/publish HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n", body.len());
    send(address, format!("{head}{headers}Connection: close\r\n\r\n{body}").as_bytes())
}

#[test]
fn subscription_shows_messages_and_counts_the_rest() {
    let peer = WebPeer::start(&[]);
    let (mut subscription, status) = PageSubscription::begin(peer.address, "plant.%3E");
    assert_eq!(status, 200);
    peer.place.run(&["pub", "plant.line1.speed", "17.5"]).exits(DONE);
    let notice = subscription.notice();
    let shown = ["type", "subject", "payload", "bytes", "is_text"].map(|field| notice[field].clone());
    assert_eq!(shown, [json!("message"), json!("plant.line1.speed"), json!("17.5"), json!(4), json!(true)]);
    assert_eq!(notice["fields"], Value::Null);
    peer.place.run(&["pub", "plant.rv", "--rvmsg", "price=21.5, n:u8=7"]).exits(DONE);
    let notice = subscription.notice();
    assert_eq!((&notice["fields"], &notice["is_text"]), (&json!("price=21.5, n:u8=7"), &json!(false)), "{notice}");
    let count = 3000;
    peer.place.run(&["pub", "plant.flood", "{{count}}", "--count", &count.to_string()]).exits(DONE);
    let (mut messages, mut omitted) = (0, 0);
    while messages + omitted < count {
        let notice = subscription.notice();
        match notice["type"].as_str() {
            Some("message") => messages += 1,
            Some("omitted") => omitted += notice["count"].as_u64().expect("a number"),
            _ => panic!("{notice}"),
        }
    }
    assert_eq!(messages + omitted, count, "each message is shown or counted, once");
    assert!(0 < omitted, "a person cannot read {count} messages at once");
    drop(subscription);
    wait_until("the subscription has ended", || {
        peer.place.show("subs")["rows"].as_array().expect("rows").iter().all(|row| row["pattern"] != "plant.>")
    });
}

#[test]
fn subscription_shows_losses() {
    let lan = Lan::start("page.lossy", 2, 0.3);
    let (mut subscription, status) = PageSubscription::begin(lan.address(), "plant.line1.speed");
    assert_eq!(status, 200);
    let mut notices = Vec::new();
    wait_until("a loss is shown", || {
        // Each burst shows some messages at least.
        (0..20).for_each(|_| lan.publish());
        notices.push(subscription.notice());
        notices.iter().any(|notice| notice["type"] == "loss")
    });
    let loss = notices.iter().find(|notice| notice["type"] == "loss").expect("a loss");
    assert_eq!((&loss["publisher"], &loss["reason"]), (&"line1.page.lossy".into(), &"DISABLED".into()), "{loss}");
}

#[test]
fn invalid_patterns_and_excess_subscriptions_are_refused() {
    let peer = WebPeer::start(&[]);
    for query in ["", "?pattern=", "?pattern=a..b", "?pattern=%zz", "?pattern=%ff", "?pattern=a..b&check=1"] {
        peer.get(&format!("/api/v1/messages{query}")).has_status(400);
    }
    assert_eq!(peer.get("/api/v1/messages?pattern=a.*&check=1").has_status(200).body, "ok\n");
    let begin = || PageSubscription::begin(peer.address, "a");
    let mut subscriptions: Vec<_> = (0..SUBSCRIPTIONS_MAX).map(|_| begin()).collect();
    assert!(subscriptions.iter().all(|(_, status)| *status == 200));
    assert_eq!(begin().1, 503);
    subscriptions.pop();
    wait_until("there is room again", || begin().1 == 200);
}

#[test]
fn pages_publish_only_if_they_may() {
    let message = r#"{"subject":"plant.order","payload":"stop"}"#;
    let read_only = WebPeer::start(&[]);
    let header = "X-Seqcast: publish\r\n";
    assert!(publish(read_only.address, header, message).has_status(403).body.contains("http-publish: yes"));
    assert_eq!(parse_json(&read_only.get("/api/v1/session").body), json!({ "account": null, "can_publish": false }));

    let peer = WebPeer::start(&["http-publish=yes", "message-size=1 kb"]);
    assert_eq!(parse_json(&peer.get("/api/v1/session").body)["can_publish"], true);
    let (mut subscription, _) = PageSubscription::begin(peer.address, "plant.order");
    // Pages of other sites, and forms, which cannot send the header.
    publish(peer.address, "Origin: http://evil.example\r\nX-Seqcast: publish\r\n", message).has_status(403);
    publish(peer.address, "Sec-Fetch-Site: cross-site\r\nX-Seqcast: publish\r\n", message).has_status(403);
    publish(peer.address, "", message).has_status(403);
    peer.get("/api/v1/publish").has_status(405);
    for invalid in ["", "{}", "nonsense", r#"{"subject":"a..b","payload":""}"#, r#"{"subject":"a","payload":"","x":1}"#]
    {
        publish(peer.address, header, invalid).has_status(400);
    }
    let large = json!({ "subject": "plant.order", "payload": "x".repeat(2000) }).to_string();
    assert!(publish(peer.address, header, &large).has_status(400).body.contains("at most 1024 bytes"));
    publish(peer.address, header, &"x".repeat(300_000)).has_status(413);
    publish(peer.address, header, message).has_status(204);
    assert_eq!(subscription.notice()["payload"], "stop", "only the last one was published");
}

#[test]
fn account_does_only_the_permitted() {
    let accounts = "accounts=token free ; token limited publish plant.> subscribe cmd.*";
    let peer = WebPeer::start(&["http-publish=yes", accounts]);
    let get = |token: &str, path: &str| peer.get_with(path, &[("Authorization", &format!("Bearer {token}"))]);
    let subscribes = |pattern: &str| get("limited", &format!("/api/v1/messages?pattern={pattern}&check=1"));
    subscribes("cmd.*").has_status(200);
    subscribes("cmd.stop").has_status(200);
    for pattern in ["%3E", "cmd.%3E", "plant.a"] {
        let denied = subscribes(pattern).has_status(403);
        assert!(denied.body.contains("this client may not subscribe to"), "{denied:?}");
    }
    assert_eq!(get("free", "/api/v1/messages?pattern=%3E&check=1").has_status(200).body, "ok\n");
    let session = |token: &str| parse_json(&get(token, "/api/v1/session").body)["can_publish"].clone();
    assert_eq!((session("free"), session("limited")), (json!(true), json!(true)));
    let publishes = |token: &str, subject: &str| {
        let message = json!({ "subject": subject, "payload": "x" }).to_string();
        publish(peer.address, &format!("X-Seqcast: publish\r\nAuthorization: Bearer {token}\r\n"), &message)
    };
    publishes("limited", "plant.a").has_status(204);
    let denied = publishes("limited", "cmd.stop").has_status(403);
    assert!(denied.body.contains("this client may not publish on cmd.stop"), "{denied:?}");
    publishes("free", "cmd.stop").has_status(204);
    assert_eq!(peer.status()["denied"], 4);
    let rows = || peer.place.show("seqno")["rows"].clone();
    wait_until("both messages are published", || rows().as_array().is_some_and(|rows| rows.len() == 2));
}
