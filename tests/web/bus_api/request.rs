//! `POST /req/SUBJECT`.

use super::super::WebPeer;
use super::super::client::{HttpReply, connect, exchange, read_to_end};
use super::super::page::Lan;
use super::{curl, post, subscribe};
use crate::support::bus::wait_for;
use crate::support::wait::wait_until;
use seqcast::bus::Notice;
use seqcast::message::{Headers, Message};
use serde_json::json;
use std::io::Write;
use std::time::Duration;

#[test]
fn curl_gets_the_reply_of_a_command() {
    let peer = WebPeer::start(&[]);
    let responder = peer.place.start(&["reply", "svc.upper", "--command", "tr a-z A-Z"]);
    responder.await_report("answering requests");
    let head = curl(&peer, &["--data", "hello", "--include"], "/req/svc.upper?timeout=20s");
    let (head, body) = head.split_once("\r\n\r\n").expect("a head");
    assert_eq!((head.lines().next(), body), (Some("HTTP/1.1 200 OK"), "HELLO"));
    for field in
        ["content-type: text/plain; charset=utf-8", "seqcast-epoch: ", "content-security-policy: default-src 'none'"]
    {
        assert!(head.lines().any(|line| line.starts_with(field)), "{head}");
    }
    let status = peer.status();
    assert_eq!((&status["bus_requests"], &status["bus_replies"]), (&json!(1), &json!(1)), "{status}");
    let rows = peer.place.show("subs")["rows"].clone();
    assert!(rows.as_array().expect("rows").iter().all(|row| !row["pattern"].as_str().unwrap().starts_with("_INBOX")));
}

#[test]
fn reply_of_another_peer_keeps_its_headers() {
    let lan = Lan::start("req", 2, 0.0);
    let responder = lan.peers[1].subscribe("svc.*".parse().unwrap()).expect("a subscription");
    wait_for(&lan.peers[0], &lan.peers[1]);
    let answer = |lan: &Lan| {
        let Ok(Notice::Message(request)) = responder.recv_timeout(Duration::from_secs(20)) else { panic!("a request") };
        let headers = Headers::from_pairs([("Content-Type", "application/json"), ("Unit", "m/s")]).unwrap();
        let reply = request.message.reply.clone().expect("a reply subject");
        let message = Message { headers, ..Message::new(reply, request.message.payload.clone()) };
        lan.peers[1].publish_blocking(message).expect("the peer runs");
        request
    };
    let address = lan.address();
    let body = "\u{1}{}";
    let head = format!("POST /req/svc.a HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n", body.len());
    let text = format!("{head}Seqcast-Header-Trace: 7\r\nConnection: close\r\n\r\n{body}");
    let reply = std::thread::scope(|scope| {
        let asked = scope.spawn(|| HttpReply::parse(&exchange(address, text.as_bytes())));
        let request = answer(&lan);
        assert_eq!(request.message.headers.iter().collect::<Vec<_>>(), [("trace", "7")]);
        asked.join().expect("an answer").has_status(200)
    });
    assert_eq!(reply.body, body);
    let fields = ["content-type", "seqcast-publisher", "seqcast-header-unit"].map(|name| reply.header(name));
    assert_eq!(fields, [Some("application/json"), Some("line1.req"), Some("m/s")]);
}

#[test]
fn missing_replies_have_a_status_and_a_reason() {
    let peer = WebPeer::start(&[]);
    let refused = post(&peer, "/req/nobody?timeout=20s", "", b"x").has_status(503);
    assert_eq!(refused.body, "no program on the LAN or in another site subscribes to nobody\n");
    assert_eq!(refused.header("seqcast-reason"), Some("no-responders"));
    let _silent = subscribe(&peer, "silent");
    let late = post(&peer, "/req/silent?timeout=50ms", "", b"x").has_status(504);
    assert_eq!((late.body.as_str(), late.header("seqcast-reason")), ("no reply within 50 ms\n", Some("timeout")));
    for query in ["timeout=5", "timeout=0s", "timeout=61s", "wait=1s", "timeout=1s&timeout=1s"] {
        post(&peer, &format!("/req/silent?{query}"), "", b"x").has_status(400);
    }
    let refused = post(&peer, "/req/silent", "Seqcast-Reply: a\r\n", b"x").has_status(400);
    assert!(refused.body.contains("leave out seqcast-reply"), "{refused:?}");
    peer.get("/req/silent").has_status(405);
    let status = peer.status();
    assert_eq!((&status["no_responders"], &status["timeouts"]), (&json!(1), &json!(1)), "{status}");
}

#[test]
fn account_requests_only_the_permitted() {
    let peer = WebPeer::start(&["accounts=token free ; token limited publish svc.>"]);
    let ask = |token: &str, path: &str| post(&peer, path, &format!("Authorization: Bearer {token}\r\n"), b"x").status;
    assert_eq!([ask("limited", "/req/cmd.stop"), ask("wrong", "/req/svc.a")], [403, 401]);
    assert_eq!(ask("limited", "/req/svc.a"), 503, "the reply would reach it, but nobody is there");
    let foreign = "Authorization: Bearer free\r\nOrigin: http://evil.example\r\n";
    post(&peer, "/req/svc.a", foreign, b"x").has_status(403);
}

#[test]
fn request_ends_with_its_client_and_its_peer() {
    let mut peer = WebPeer::start(&[]);
    let _silent = subscribe(&peer, "silent");
    let begin = || {
        let mut stream = connect(peer.address);
        let head =
            format!("POST /req/silent?timeout=60s HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", peer.address);
        stream.write_all(head.as_bytes()).expect("the connection is open");
        stream
    };
    let inboxes = || {
        let rows = peer.place.show("subs")["rows"].clone();
        let is_inbox = |row: &&serde_json::Value| row["pattern"].as_str().expect("a text").starts_with("_INBOX");
        rows.as_array().expect("rows").iter().filter(is_inbox).count()
    };
    let leaving = begin();
    wait_until("the request is published", || inboxes() == 1);
    drop(leaving);
    wait_until("the request has ended", || inboxes() == 0);
    let mut waiting = begin();
    wait_until("the request is published", || inboxes() == 1);
    peer.process.signal("TERM");
    let answer = HttpReply::parse(&read_to_end(&mut waiting)).has_status(503);
    assert!(answer.body.contains("stopping"), "{answer:?}");
    assert!(peer.process.ended().success());
}
