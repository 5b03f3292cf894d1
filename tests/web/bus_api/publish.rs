//! `POST /pub/SUBJECT`.

use super::super::WebPeer;
use super::super::client::{HttpReply, send};
use super::{curl, post, subscribe};
use crate::support::command::parse_json;
use serde_json::json;

#[test]
fn curl_publishes_with_headers() {
    let peer = WebPeer::start(&[]);
    let subscriber = subscribe(&peer, ">");
    let fields = ["--header", "Seqcast-Header-Unit: m/s", "--header", "Seqcast-Reply: answers.7"];
    let printed = curl(&peer, &[&["--data", "17.5", "--write-out", "%{http_code}"][..], &fields].concat(), "/pub/a.b");
    assert_eq!(printed, "204");
    let message = parse_json(&subscriber.line());
    let shown = ["subject", "payload", "reply", "headers"].map(|field| message[field].clone());
    assert_eq!(shown, [json!("a.b"), json!("17.5"), json!("answers.7"), json!({ "unit": "m/s" })]);
    // A binary payload arrives byte for byte, and an escaped subject as it is meant.
    post(&peer, "/pub/a%2Fb.%C3%A4", "Content-Type: image/png\r\n", b"\xff\x00\r\n").has_status(204);
    let message = parse_json(&subscriber.line());
    let shown = ["subject", "payload_base64", "headers"].map(|field| message[field].clone());
    assert_eq!(shown, [json!("a/b.ä"), json!("/wANCg=="), json!({ "content-type": "image/png" })]);
    post(&peer, "/pub/a", "", b"").has_status(204);
    assert_eq!(parse_json(&subscriber.line())["payload"], "");
    assert_eq!(peer.status()["published"], 3);
}

#[test]
fn invalid_messages_are_refused_with_a_sentence() {
    let peer = WebPeer::start(&["message-size=1 kb"]);
    for (path, headers, text) in [
        ("/pub/", "", "a subject must not be empty"),
        ("/pub/a..b", "", "empty token at byte 2"),
        ("/pub/a.*", "", "are wildcards"),
        ("/pub/a%20b", "", "space or control character at byte 1"),
        ("/pub/a/b", "", "dots separate the tokens"),
        ("/pub/a%zz", "", "two hexadecimal digits"),
        ("/pub/a%ff", "", "not UTF-8"),
        ("/pub/a?retain=1", "", "no parameter \"retain\""),
        ("/pub/a", "Seqcast-Reply: b..c\r\n", "seqcast-reply: empty token"),
        ("/pub/a", "Seqcast-Header-Seqcast-Seq: 1\r\n", "only the bus writes headers"),
    ] {
        let refused = post(&peer, path, headers, b"x").has_status(400);
        assert!(refused.body.contains(text), "{path} {headers}: {refused:?}");
    }
    assert_eq!(peer.get("/pub/a").has_status(405).header("allow"), Some("post"));
    let large = post(&peer, "/pub/a", "", &[b'x'; 1025]).has_status(413);
    assert_eq!(large.body, "a message has at most 1024 bytes with its headers: see message-size\n");
    post(&peer, "/pub/a", "Seqcast-Header-A: b\r\n", &[b'x'; 1020]).has_status(413);
    let chunks = format!(
        "POST /pub/a HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n401\r\n{}\r\n0\r\n\r\n",
        peer.address,
        "x".repeat(0x401)
    );
    send(peer.address, chunks.as_bytes()).has_status(413);
    let broken = chunks.replace("401\r\n", "no number\r\n");
    let refused = send(peer.address, broken.as_bytes()).has_status(400);
    assert_eq!(refused.body, "the body breaks HTTP, or ends too early\n");
    post(&peer, "/pub/a", "", &[b'x'; 1024]).has_status(204);
    let status = peer.status();
    assert_eq!((&status["invalid"], &status["published"]), (&json!(14), &json!(1)), "{status}");
}

#[test]
fn foreign_pages_publish_only_from_listed_sites() {
    let closed = WebPeer::start(&[]);
    for page in ["Origin: http://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        // A form of another site can send this without asking first.
        post(&closed, "/pub/a", &format!("{page}Content-Type: text/plain\r\n"), b"x").has_status(403);
    }
    assert_eq!((&closed.status()["foreign"], &closed.status()["published"]), (&json!(3), &json!(0)));

    let peer = WebPeer::start(&["http-origins=https://panel.example"]);
    let panel = "Origin: https://panel.example\r\nSec-Fetch-Site: cross-site\r\n";
    let published = post(&peer, "/pub/a", panel, b"x").has_status(204);
    assert_eq!(published.header("access-control-allow-origin"), Some("https://panel.example"));
    let refused = post(&peer, "/pub/a..b", panel, b"x").has_status(400);
    assert_eq!(refused.header("access-control-allow-origin"), Some("https://panel.example"), "the page reads why");
    post(&peer, "/pub/a", "Origin: http://evil.example\r\n", b"x").has_status(403);
    let ask = |path: &str, origin: &str| -> HttpReply {
        let head = format!("OPTIONS {path} HTTP/1.1\r\nHost: {}\r\nOrigin: {origin}\r\n", peer.address);
        let asked = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n";
        send(peer.address, format!("{head}{asked}Connection: close\r\n\r\n").as_bytes())
    };
    let admitted = ask("/pub/a", "https://panel.example").has_status(204);
    assert_eq!(admitted.header("access-control-allow-headers"), Some("content-type"));
    ask("/pub/a", "http://evil.example").has_status(403);
    // The list is for the bus alone.
    ask("/api/v1/publish", "https://panel.example").has_status(403);
    assert_eq!(peer.get_with("/metrics", &[("Origin", "https://panel.example")]).status, 403);
}

#[test]
fn account_publishes_only_the_permitted() {
    let accounts = "accounts=token free ; token limited publish plant.> subscribe cmd.*";
    let peer = WebPeer::start(&[accounts]);
    post(&peer, "/pub/plant.a", "", b"x").has_status(401);
    let limited = |path: &str, more: &str| post(&peer, path, &format!("Authorization: Bearer limited\r\n{more}"), b"x");
    limited("/pub/plant.a", "").has_status(204);
    assert!(limited("/pub/cmd.stop", "").has_status(403).body.contains("may not publish on cmd.stop"));
    limited("/pub/plant.a", "Seqcast-Reply: cmd.b\r\n").has_status(204);
    let refused = limited("/pub/plant.a", "Seqcast-Reply: other\r\n").has_status(403);
    assert!(refused.body.contains("may not request answers on other"), "{refused:?}");
    curl(&peer, &["--fail", "--user", "token:free", "--data", "x"], "/pub/cmd.stop");
    let status = peer.status();
    let counts = ["published", "denied", "unauthorized"].map(|count| status[count].clone());
    assert_eq!(counts, [json!(3), json!(2), json!(1)]);
    let off = WebPeer::start(&["http-publish=no"]);
    assert!(post(&off, "/pub/a", "", b"x").has_status(403).body.contains("http-publish: yes"));
}
