//! `GET /sub/PATTERN` as a WebSocket.

use super::super::WebPeer;
use super::super::client::{connect, read_to_end};
use super::super::page::Lan;
use super::{post, subscribe};
use crate::support::command::{PATIENCE, parse_json};
use crate::support::wait::wait_until;
use crate::support::websocket::WebSocket;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;

fn open(address: SocketAddr, path: &str) -> WebSocket {
    WebSocket::connect(address, path, PATIENCE).expect("the subscription begins")
}

fn notice(socket: &mut WebSocket) -> Value {
    parse_json(socket.read().expect("a message"))
}

/// Returns the text of the error with which the server ends a connection.
fn end(socket: &mut WebSocket) -> String {
    socket.read().expect_err("the server closes").to_string()
}

#[test]
fn messages_are_texts_with_the_fields_of_sub() {
    let mut peer = WebPeer::start(&[]);
    let mut socket = open(peer.address, "/sub/plant.%3E");
    let subscriber = subscribe(&peer, "plant.>");
    post(&peer, "/pub/plant.a", "Seqcast-Header-Unit: m/s\r\n", b"17.5").has_status(204);
    post(&peer, "/pub/plant.b", "", b"\xff\x00").has_status(204);
    for _ in 0..2 {
        let (mut message, mut printed) = (notice(&mut socket), parse_json(&subscriber.line()));
        for message in [&mut message, &mut printed] {
            assert!(message["received"].take().is_string());
        }
        assert_eq!(message, printed);
    }
    let status = peer.status();
    assert_eq!((&status["subscriptions"], &status["clients"]), (&json!(1), &json!(1)), "{status}");
    peer.process.signal("TERM");
    assert_eq!(end(&mut socket), "closed with code 1001");
    assert!(peer.process.ended().success());
}

#[test]
fn losses_are_messages_of_their_own() {
    let lan = Lan::start("socket.lossy", 2, 0.3);
    let mut socket = open(lan.address(), "/sub/plant.line1.speed");
    let mut loss = Value::Null;
    wait_until("a loss of messages is reported", || {
        (0..20).for_each(|_| lan.publish());
        loss = notice(&mut socket);
        loss["type"] == "loss" && loss["kind"] == "messages"
    });
    let shown = ["subject", "publisher"].map(|field| loss[field].as_str().expect("a text"));
    assert_eq!(shown, ["plant.line1.speed", "line1.socket.lossy"]);
    assert!(1 <= loss["count"].as_u64().expect("an exact number"), "{loss}");
}

#[test]
fn refused_sockets_get_an_answer_by_http() {
    let peer = WebPeer::start(&["accounts=token free ; token limited subscribe cmd.*"]);
    let ask = |path: &str, headers: &str| -> u16 {
        let mut stream = connect(peer.address);
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: c2VxY2FzdCBmb3IgdGVzdA==\r\n";
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{upgrade}{headers}\r\n", peer.address);
        stream.write_all(head.as_bytes()).expect("the connection is open");
        let mut answer = [0; 12];
        std::io::Read::read_exact(&mut stream, &mut answer).expect("an answer");
        String::from_utf8_lossy(&answer[9..]).parse().expect("a status")
    };
    let (free, limited) = ("Authorization: Bearer free\r\n", "Authorization: Bearer limited\r\n");
    assert_eq!(ask("/sub/a", ""), 401);
    assert_eq!(ask("/sub/a", free), 101);
    assert_eq!(ask("/sub/cmd.a", limited), 101);
    assert_eq!(ask("/sub/a", limited), 403);
    assert_eq!(ask("/sub/a..b", free), 400);
    assert_eq!(ask("/sub/a?format=payload", free), 400);
    // Browsers send the Origin with every WebSocket.
    assert_eq!(ask("/sub/a", &format!("{free}Origin: http://evil.example\r\n")), 403);
    wait_until("the subscriptions have ended", || peer.status()["subscriptions"] == 0);
}

#[test]
fn client_that_sends_is_closed_with_a_reason() {
    let peer = WebPeer::start(&[]);
    let close = |opcode: u8, payload: &[u8]| {
        let mut socket = open(peer.address, "/sub/a");
        socket.push_frame(opcode, payload);
        end(&mut socket)
    };
    assert_eq!(close(0x81, b"hello"), "closed with code 1003");
    assert_eq!(close(0x82, &vec![0; 65 << 10]), "closed with code 1009");
    assert_eq!(close(0x83, b""), "closed with code 1002");
    assert_eq!(close(0x88, &1000_u16.to_be_bytes()), "closed with code 1000");
    let mut pinged = open(peer.address, "/sub/a");
    pinged.push_frame(0x89, b"here");
    pinged.push_frame(0x88, &1000_u16.to_be_bytes());
    assert_eq!(end(&mut pinged), "closed with code 1000");
    let ended = peer.status()["ended"].clone();
    assert_eq!(ended["this WebSocket only sends: publish by POST /pub/SUBJECT"], 1, "{ended}");
    wait_until("the subscriptions have ended", || peer.status()["subscriptions"] == 0);
    // A half frame is no reason to hold anything but the connection.
    let mut half = connect(peer.address);
    half.write_all(b"GET /sub/a HTTP/1.1\r\nUpgrade: websocket\r\n\r\n").expect("the connection is open");
    assert!(read_to_end(&mut half).starts_with(b"HTTP/1.1 400"));
}
