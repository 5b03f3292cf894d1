//! Large messages in subscriptions by HTTP, and subscriptions that wait.

use super::super::WebPeer;
use super::super::client::connect;
use super::event_reader::EventReader;
use super::{post, subscribe};
use crate::support::command::{PATIENCE, Place, RunningCommand, now, parse_json, signal};
use crate::support::wait::{let_time_pass, wait_until};
use crate::support::websocket::WebSocket;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time for which a slow reader reads slowly.
const SLOW_TIME: Duration = Duration::from_secs(10);
/// Bytes that a slow reader reads at once.
const READ_BYTES: usize = 8 << 10;
/// Pause between its reads: it reads about 160 kB a second.
const READ_PAUSE: Duration = Duration::from_millis(50);

#[test]
fn large_messages_arrive_whole() {
    let peer = WebPeer::start(&[]);
    let url = |format: &str| format!("http://{}/sub/big?format={format}", peer.address);
    let readers = ["json", "payload"].map(|format| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--no-buffer", "--max-time", "60", &url(format)]).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("curl is installed");
        let reader = RunningCommand::new(child, &["curl"]);
        while reader.line() != ": subscribed" {}
        reader
    });
    let mut socket = WebSocket::connect(peer.address, "/sub/big", PATIENCE).expect("the server answers");
    let text = "\u{1}\"Grüße\" ".repeat(40_000);
    let binary = [0xff, 0x00, 0x01].repeat(100_001);
    post(&peer, "/pub/big", "", text.as_bytes()).has_status(204);
    post(&peer, "/pub/big", "", &binary).has_status(204);
    let data = |reader: &RunningCommand| loop {
        if let Some(data) = reader.line().strip_prefix("data: ") {
            return data.to_owned();
        }
    };
    let [json, payload] = &readers;
    let first = parse_json(&data(json));
    assert!(first["payload"] == text, "the text in JSON");
    let second = parse_json(&data(json));
    let base64 = second["payload_base64"].as_str().expect("a text");
    assert_eq!((base64.len(), &base64[..8]), (400_004, "/wAB/wAB"));
    assert!(data(payload) == text, "the text alone");
    assert!(data(payload) == base64, "the binary payload alone");
    for expected in [&first, &second] {
        let mut received = parse_json(socket.read().expect("a text"));
        received["received"] = expected["received"].clone();
        assert!(received == *expected, "the same by WebSocket");
    }
    let status = peer.status();
    assert_eq!((&status["delivered"], &status["dropped"]), (&6.into(), &0.into()), "{status}");
}

/// Reads slowly for [`SLOW_TIME`] and then fast, until `bytes` are read or the connection ends. Returns the number of
/// bytes read.
fn read_slowly(mut stream: TcpStream, bytes: usize) -> usize {
    let (started, mut received, mut buffer) = (now(), 0, vec![0; READ_BYTES]);
    while received < bytes {
        match stream.read(&mut buffer).expect("bytes in time") {
            0 => break,
            read => received += read,
        }
        if now().since(started) < SLOW_TIME {
            let_time_pass(READ_PAUSE, "the client reads slowly");
        }
    }
    received
}

#[test]
fn slow_reader_of_a_large_message_gets_all() {
    let peer = WebPeer::start(&["message-size=8 mb"]);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: c2VxY2FzdCBmb3IgdGVzdA==\r\n";
    // Each byte of the payload has six in JSON, more than the buffers of the system hold.
    let payload = vec![1; 8_000_000];
    let readers = ["", upgrade].map(|headers| {
        let mut stream = connect(peer.address);
        let request = format!("GET /sub/big HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", peer.address);
        stream.write_all(request.as_bytes()).expect("the connection is open");
        let bytes = 6 * payload.len();
        std::thread::spawn(move || read_slowly(stream, bytes))
    });
    wait_until("both have subscribed", || peer.status()["subscriptions"] == 2);
    let subscriber = subscribe(&peer, "other");
    post(&peer, "/pub/big", "", &payload).has_status(204);
    post(&peer, "/pub/other", "", b"at once").has_status(204);
    assert_eq!(parse_json(&subscriber.line())["payload"], "at once");
    for reader in readers {
        let received = reader.join().expect("the connection stands");
        assert!(6 * payload.len() <= received, "{received} bytes");
    }
}

#[test]
fn waiting_subscription_delays_no_reports() {
    let port = format!("port={}", Place::new().port());
    let peer = WebPeer::start(&[&port, "name=A.test", "interest=on"]);
    let other = Place::new();
    let mut silent = other.peer_with(&[&port, "name=B.test", "interest=on"]);
    wait_until("the peers know each other", || {
        peer.place.show("peers")["rows"].as_array().is_some_and(|rows| rows.len() == 1)
    });
    signal(silent.pid(), "STOP");
    let address = peer.address;
    let subscription = std::thread::spawn(move || EventReader::begin_with(address, "/sub/x", "").status);
    wait_until("the engine has the subscription", || {
        let rows = peer.place.show("subs")["rows"].clone();
        rows.as_array().expect("rows").iter().any(|row| row["pattern"] == "x")
    });
    peer.get("/api/v1/status").has_status(200);
    assert!(!subscription.is_finished(), "the subscription waits for the other peer");
    assert_eq!(subscription.join().expect("an answer"), 200);
    signal(silent.pid(), "CONT");
    silent.signal("TERM");
    assert!(silent.ended().success());
}
