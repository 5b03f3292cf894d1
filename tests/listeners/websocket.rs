//! NATS over WebSocket: the published clients in Node and in a browser, encryption, origins, and hostile clients.

use crate::support::certificate::certificate;
use crate::support::command::{PATIENCE, Place, RunningCommand, parse_json};
use crate::support::root;
use crate::support::wait::wait_until;
use crate::support::websocket::WebSocket;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

/// A peer with a listener for WebSockets of NATS.
struct SocketPeer {
    place: Place,
    process: RunningCommand,
    address: SocketAddr,
}

impl SocketPeer {
    fn start(settings: &[&str]) -> SocketPeer {
        SocketPeer::start_at(Place::new(), settings)
    }

    fn start_at(place: Place, settings: &[&str]) -> SocketPeer {
        let mut arguments = vec!["--nats-ws", "0"];
        settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
        let process = place.peer(&arguments);
        let address = status(&place)["address"].as_str().expect("an address").parse().expect("an address");
        SocketPeer { place, process, address }
    }

    fn status(&self) -> Value {
        status(&self.place)
    }

    /// Opens a WebSocket.
    fn open(&self) -> WebSocket {
        WebSocket::connect(self.address, "/", PATIENCE).expect("the listener answers")
    }

    /// Sends bytes, and returns everything until the peer closes the connection.
    fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).expect("the peer listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
        stream.write_all(bytes).expect("the connection is open");
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            // The peer closes before it has read everything.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            read => drop(read.expect("the end in time")),
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Returns the part of `show status` about the listener for WebSockets.
fn status(place: &Place) -> Value {
    let listeners = place.show("status")["status"]["listeners"].clone();
    let mut listeners = listeners.as_array().expect("listeners").iter();
    listeners.find(|listener| listener["listener"] == "nats-ws").expect("the listener is open").clone()
}

/// Runs a program of the published clients, and returns the lines that it prints.
fn run(place: &Place, program: &str, arguments: &[&str], authority: Option<&Path>) -> Vec<Value> {
    let mut command = Command::new("node");
    command.arg(root().join("target/clients/node").join(program)).args(arguments);
    place.set_environment(&mut command);
    command.envs(authority.map(|file| ("NODE_EXTRA_CA_CERTS", file)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = RunningCommand::new(command.spawn().expect("tools/test has installed the client"), &[program]);
    wait_until("the client is done", || running.has_ended());
    assert!(running.ended().success(), "{:?}", running.stderr_so_far());
    running.all_lines().iter().map(|line| parse_json(line)).collect()
}

/// Asserts that a client has used the bus in each way.
fn assert_used(report: &Value) {
    let sum = (0..300_000_u64).fold(0, |sum, at| (sum + at % 251) % 65521);
    let text = b"17.5".iter().map(|byte| u64::from(*byte)).sum::<u64>();
    let expected = json!([
        { "subject": "ws.text", "bytes": 4, "sum": text, "unit": "m/s" },
        { "subject": "ws.empty", "bytes": 0, "sum": 0, "unit": null },
        { "subject": "ws.large", "bytes": 300_000, "sum": sum, "unit": null },
    ]);
    assert_eq!(report["received"], expected, "{report}");
    assert_eq!((&report["reply"], &report["missing"]), (&json!("hello"), &json!("no responders")), "{report}");
}

#[test]
fn published_client_in_node_uses_the_bus() {
    let peer = SocketPeer::start(&["accounts=user bob password pwd", "nats=0"]);
    let server = format!("ws://{}", peer.address);
    assert_used(&run(&peer.place, "nats_websocket.mjs", &[&server, "bob", "pwd"], None)[0]);
    let refused = run(&peer.place, "nats_websocket.mjs", &[&server, "bob", "wrong"], None);
    assert!(refused[0]["error"].as_str().is_some_and(|error| error.contains("Authorization")), "{refused:?}");
    let names: Vec<Value> = peer.place.show("status")["status"]["listeners"]
        .as_array()
        .expect("listeners")
        .iter()
        .map(|listener| listener["listener"].clone())
        .collect();
    assert_eq!(names, ["nats", "nats-ws"]);
}

#[test]
fn encrypted_websockets_work_with_the_published_client() {
    let place = Place::new();
    let [certificate, key] = certificate(place.dir(), "socket");
    let tls = format!("nats-ws-tls={} {}", certificate.display(), key.display());
    let peer = SocketPeer::start_at(place, &[&tls]);
    let server = format!("wss://{}", peer.address);
    assert_used(&run(&peer.place, "nats_websocket.mjs", &[&server], Some(&certificate))[0]);
    assert_eq!(peer.status()["tls"], "required");
    let plain = peer.exchange(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(!plain.contains("101"), "{plain}");
}

#[test]
fn browser_client_needs_a_listed_site() {
    let listed = Place::new();
    let peer = SocketPeer::start(&[&format!("nats-ws-origins=http://127.0.0.1:{}", listed.port())]);
    let (directory, server) = (peer.place.dir().display().to_string(), format!("ws://{}", peer.address));
    let arguments = ["/usr/bin/chromium", &directory, &server, &listed.port().to_string()];
    let reports = run(&peer.place, "nats_page.mjs", &arguments, None);
    let of = |site: &str| reports.iter().find(|report| report["site"] == site).expect("a report");
    assert_used(of("listed"));
    assert!(of("foreign")["error"].is_string(), "{reports:?}");
    assert_eq!(peer.status()["refusals_by_kind"], json!({ "foreign origin": 1 }));
}

#[test]
fn protocol_is_a_stream_in_any_frames() {
    let mut peer = SocketPeer::start(&[]);
    let mut socket = peer.open();
    assert!(socket.read().expect("INFO").starts_with("INFO {"));
    // A text in pieces, with a ping between them; then binary messages that end anywhere.
    socket.push_frame(0x01, b"CONNECT {\"verbose\":false}\r\nSUB a");
    socket.push_frame(0x89, b"ping");
    socket.push_frame(0x80, b" 1\r\nPI");
    for byte in b"NG\r\nPUB a 5\r\nhello\r\nPING\r\n" {
        socket.push_frame(0x82, &[*byte]);
    }
    let mut received = String::new();
    while received.matches("PONG\r\n").count() < 2 {
        received += socket.read().expect("an answer");
    }
    assert_eq!(received, "PONG\r\nMSG a 1 5\r\nhello\r\nPONG\r\n");
    let clients = peer.place.show("clients")["rows"].clone();
    assert!(clients.as_array().expect("rows").iter().any(|client| client["listener"] == "nats-ws"), "{clients}");
    peer.process.signal("TERM");
    let error = loop {
        // A client of another protocol version gets no INFO about the stop.
        if let Err(error) = socket.read() {
            break error.to_string();
        }
    };
    assert_eq!(error, "closed with code 1001");
    assert!(peer.process.ended().success());
}

#[test]
fn hostile_clients_are_refused_and_counted() {
    let peer = SocketPeer::start(&["tls-timeout=500 ms"]);
    let mut calm = peer.open();
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: c2VxY2FzdCBmb3IgdGVzdA==\r\n";
    let request = |lines: &str| format!("GET / HTTP/1.1\r\n{lines}{upgrade}\r\n");
    let host = format!("Host: {}\r\n", peer.address);
    for (bytes, status) in [
        ("CONNECT {}\r\n".to_owned(), "400"),
        (format!("GET / HTTP/1.1\r\n{host}\r\n"), "400"),
        (request("Host: evil.example\r\n"), "421"),
        (request(&format!("{host}Origin: http://evil.example\r\n")), "403"),
        (request(&format!("{host}Origin: http://127.0.0.1:1\r\n")), "403"),
        (format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(9000)), "431"),
    ] {
        let answer = peer.exchange(bytes.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes:?}: {answer}");
    }
    // Half a request, for ever.
    assert_eq!(peer.exchange(b"GET / HTTP/1.1\r\n"), "");
    let mut broken = peer.open();
    broken.push_frame(0x83, b"");
    let error = loop {
        if let Err(error) = broken.read() {
            break error.to_string();
        }
    };
    assert_eq!(error, "closed with code 1002");
    let refusals = json!({
        "no WebSocket": 2, "foreign host": 1, "foreign origin": 2, "long WebSocket request": 1,
        "no WebSocket in time": 1, "WebSocket protocol": 1,
    });
    wait_until("all refusals are counted", || peer.status()["refusals_by_kind"] == refusals);
    assert!(calm.read().expect("INFO").starts_with("INFO {"));
    calm.push("PING\r\n");
    assert_eq!(calm.read().expect("an answer"), "PONG\r\n");
}

#[test]
fn clients_beyond_the_limit_get_a_status() {
    let peer = SocketPeer::start(&["listener-client-max=1"]);
    let mut first = peer.open();
    assert!(first.read().expect("INFO").starts_with("INFO {"));
    assert!(peer.exchange(b"").starts_with("HTTP/1.1 503 "));
    assert_eq!(peer.status()["refused"], 1);
}

#[test]
fn slow_websocket_delays_nobody() {
    let peer = SocketPeer::start(&["client-queue-size=1 mb", "message-size=512 kb"]);
    let mut slow = peer.open();
    slow.push("CONNECT {\"verbose\":false}\r\nSUB flood 1\r\nPING\r\n");
    while !slow.read().expect("an answer").contains("PONG") {}
    let text = "x".repeat(1000);
    peer.place.run(&["pub", "flood", &text, "--count", "30000"]).exits(crate::support::exit_code::DONE);
    let mut other = peer.open();
    other.push("CONNECT {}\r\nPING\r\n");
    while !other.read().expect("an answer").contains("PONG") {}
    wait_until("the slow client loses messages", || peer.status()["slow"] == 1);
    let report = peer.process.await_report("client does not read fast enough");
    assert!(report.contains("nats-ws"), "the log names the listener: {report}");
    // The frames that wait for it are whole: one that was written in part continues.
    slow.push("PING\r\n");
    let mut last = String::new();
    while !last.ends_with("PONG\r\n") {
        last = slow.read().expect("a whole frame").to_owned();
    }
}
