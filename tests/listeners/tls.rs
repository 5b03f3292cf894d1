//! Encrypted listeners, with certificates made for the test.

use super::Peer;
use super::accounts::enters;
use super::client::{ListenerClient, Nats, Protocol, Redis};
use crate::support::certificate::certificate;
use crate::support::command::{Place, now};
use crate::support::wait::wait_until;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Starts a peer with both listeners encrypted; returns it and the certificate that its clients must trust.
fn start(optional: &str, settings: &[&str]) -> (Peer, String) {
    let place = Place::new();
    let [certificate, key] = certificate(place.dir(), "listener").map(|path| path.display().to_string());
    let tls = ["nats", "redis"].map(|listener| format!("{listener}-tls={certificate} {key}{optional}"));
    let settings = [&[&tls[0][..], &tls[1]], settings].concat();
    (Peer::start_at(place, [0, 0], &settings), certificate)
}

/// Runs `redis-cli` and returns its output.
fn redis_cli(peer: &Peer, arguments: &[&str]) -> String {
    let port = peer.port(Redis).to_string();
    let output =
        Command::new("redis-cli").args(["-p", &port]).args(arguments).output().expect("redis-cli is installed");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned()
}

#[test]
fn required_encryption_works_with_published_clients() {
    let (peer, certificate) = start("", &[]);
    let [nats, redis] = peer.ports;
    let entered = enters(json!({ "url": format!("tls://127.0.0.1:{nats}"), "ca": certificate }));
    assert_eq!(entered, json!({ "data": "hello", "headers": { "from": "me" }, "encrypted": true }));
    for protocol in [2, 3] {
        let url = format!("rediss://127.0.0.1:{redis}");
        let entered = enters(json!({ "url": url, "ca": certificate, "protocol": protocol }));
        assert_eq!(entered, json!({ "data": "hello", "encrypted": true }));
    }
    assert_eq!(redis_cli(&peer, &["--tls", "--cacert", &certificate, "PUBLISH", "a", "x"]), "0");
    // A client that trusts another certificate does not connect, and does no harm.
    let [other, _] = crate::support::certificate::certificate(peer.place.dir(), "other");
    for url in [format!("tls://127.0.0.1:{nats}"), format!("rediss://127.0.0.1:{redis}")] {
        let entered = enters(json!({ "url": url, "ca": other.display().to_string() }));
        assert!(
            entered["why"].as_str().is_some_and(|reason| reason.to_lowercase().contains("certificate")),
            "{entered}"
        );
    }
}

#[test]
fn unencrypted_client_is_refused_with_the_reason() {
    let (peer, certificate) = start("", &[]);
    let mut nats = peer.connect(Nats);
    let info = nats.line();
    assert!(info.contains("\"tls_required\":true"), "{info}");
    nats.send(b"CONNECT {}\r\nPING\r\n");
    assert_eq!(nats.rest(), "-ERR 'Secure Connection - TLS Required'\r\n");
    // A silent client gets no byte in clear.
    let mut silent = peer.connect(Nats);
    silent.line();
    assert_eq!(silent.rest(), "-ERR 'Secure Connection - TLS Required'\r\n");
    let mut redis = peer.connect(Redis);
    redis.send(b"PING\r\n");
    assert_eq!(redis.rest(), "-ERR this listener takes encrypted connections only\r\n");
    let answer = redis_cli(&peer, &["PING"]);
    assert!(answer.contains("this listener takes encrypted connections only"), "{answer}");
    let url = format!("redis://127.0.0.1:{}", peer.port(Redis));
    let entered = enters(json!({ "url": url }));
    assert!(entered["why"].as_str().is_some_and(|reason| reason.contains("encrypted connections only")), "{entered}");
    for protocol in Protocol::ALL {
        assert!(1 <= peer.count(protocol, "faults"));
    }
    // An invalid handshake ends, too; and one that never ends delays no other client.
    let mut broken = peer.connect(Redis);
    broken.send(b"\x16\x03\x01\0\x05hello");
    broken.rest();
    let mut half = peer.connect(Redis);
    half.send(b"\x16\x03\x01\x02\0\x01");
    assert_eq!(redis_cli(&peer, &["--tls", "--cacert", &certificate, "PING"]), "PONG");
}

#[test]
fn optional_encryption_admits_both_kinds() {
    let (peer, certificate) = start(" optional", &[]);
    let mut nats = peer.connect(Nats);
    let info = nats.line();
    assert!(info.contains("\"tls_available\":true") && !info.contains("tls_required"), "{info}");
    peer.client(Nats).settle();
    peer.client(Redis).settle();
    assert_eq!(redis_cli(&peer, &["PING"]), "PONG");
    assert_eq!(redis_cli(&peer, &["--tls", "--cacert", &certificate, "PING"]), "PONG");
    let entered = enters(json!({ "url": format!("rediss://127.0.0.1:{}", peer.port(Redis)), "ca": certificate }));
    assert_eq!(entered, json!({ "data": "hello", "encrypted": true }));
    let entered = enters(json!({ "url": format!("nats://127.0.0.1:{}", peer.port(Nats)) }));
    assert_eq!((&entered["data"], &entered["encrypted"]), (&json!("hello"), &json!(false)));
    assert!(encrypted_by_choice(&peer, &certificate, 0).contains("PONG"));
}

/// Runs a minimal NATS client that encrypts by choice; those of the libraries do so only if they must. It is then
/// silent for `silence` seconds. Returns its output.
fn encrypted_by_choice(peer: &Peer, certificate: &str, silence: u64) -> String {
    let script = "import socket, ssl, sys, time
plain = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
assert plain.recv(4096).startswith(b'INFO {')
secure = ssl.create_default_context(cafile=sys.argv[2]).wrap_socket(plain, server_hostname='127.0.0.1')
secure.do_handshake()
time.sleep(float(sys.argv[3]))
secure.sendall(b'CONNECT {\"verbose\":false}\\r\\nPING\\r\\n')
data = part = secure.recv(4096)
while part and b'PONG' not in data:
    part = secure.recv(4096)
    data += part
print(data.decode())";
    let port = peer.port(Nats).to_string();
    let output = Command::new("python3")
        .args(["-c", script, &port, certificate, &silence.to_string()])
        .output()
        .expect("python3 is installed");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn large_messages_pass_encrypted() {
    let (peer, certificate) = start(" optional", &["accounts=user alice password s3cret"]);
    let large = "x".repeat(3 << 20);
    let file = peer.place.dir().join("large");
    fs::write(&file, &large).unwrap();
    let mut subscriber = peer.connect(Redis);
    subscriber.send(b"AUTH alice s3cret\r\n");
    subscriber.expect("+OK");
    subscriber.subscribe("large", 1);
    let command = format!(
        "redis-cli --tls --cacert {certificate} --user alice --pass s3cret --no-auth-warning -p {} -x PUBLISH large < {}",
        peer.port(Redis),
        file.display()
    );
    let output = Command::new("bash").args(["-c", &command]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1", "{output:?}");
    assert_eq!(subscriber.message().1, large.into_bytes());
}

#[test]
fn unusable_tls_files_are_named_before_start() {
    let place = Place::new();
    let [certificate, key] = certificate(place.dir(), "a");
    let [_, other] = self::certificate(place.dir(), "b");
    let text = place.dir().join("text");
    fs::write(&text, "no PEM at all\n").unwrap();
    let missing = place.dir().join("missing");
    let shown = |path: &Path| path.display().to_string();
    let begun = now();
    for (certificate, key, parts) in [
        (&missing, &key, &[&shown(&missing)[..], "cannot read"][..]),
        (&certificate, &missing, &[&shown(&missing), "cannot read"]),
        (&text, &key, &[&shown(&text), "holds no certificate in PEM"]),
        (&certificate, &text, &[&shown(&text), "holds no private key in PEM"]),
        (&certificate, &certificate, &[&shown(&certificate), "holds no private key in PEM"]),
        (&certificate, &other, &["the certificate and the key cannot be used"]),
    ] {
        for listener in ["nats", "redis"] {
            let setting = format!("{listener}-tls={} {}", shown(certificate), shown(key));
            let outcome = place.run(&["peer", &format!("--{listener}"), "0", "--set", &setting]);
            outcome.exits(3).reports(&[&format!("{listener}-tls: ")]).reports(parts);
        }
    }
    assert!(now().since(begun) < Duration::from_secs(60));
}

#[test]
fn unfinished_handshake_is_closed_in_time() {
    const FLOOD: usize = 100;
    let (peer, certificate) = start("", &["listener-unauthenticated-max=8"]);
    let begun = now();
    // Nothing, and the beginning of a handshake.
    let mut unauthenticated: Vec<ListenerClient> = Vec::new();
    for protocol in Protocol::ALL {
        unauthenticated.push(peer.connect(protocol));
        let mut half = peer.connect(protocol);
        half.send(b"\x16\x03\x01\x02\0\x01");
        unauthenticated.push(half);
    }
    let mut texts = unauthenticated.iter_mut().map(ListenerClient::rest);
    let mut text = || texts.next().expect("one of each");
    assert!(text().ends_with("\r\n-ERR 'Secure Connection - TLS Required'\r\n"));
    // In the middle of a handshake the peer can only end the connection, without an error text.
    let nats_half = text();
    assert!(nats_half.starts_with("INFO {") && !nats_half.contains("-ERR"), "{nats_half:?}");
    assert_eq!(text(), "-ERR this listener takes encrypted connections only\r\n");
    assert!(!text().contains("-ERR"));
    assert!((2..5).contains(&now().since(begun).as_secs()));
    for protocol in Protocol::ALL {
        assert_eq!((peer.count(protocol, "faults"), peer.count(protocol, "clients")), (2, 0));
    }
    // The oldest connections are evicted for new ones, which all connect.
    let flood: Vec<ListenerClient> = (0..FLOOD).map(|index| peer.connect(Protocol::ALL[index % 2])).collect();
    wait_until("all of them have been taken in", || peer.count(Nats, "accepted") == FLOOD as u64 / 2 + 2);
    assert_eq!(redis_cli(&peer, &["--tls", "--cacert", &certificate, "PING"]), "PONG");
    assert!(peer.count(Nats, "clients") + peer.count(Redis, "clients") <= 8);
    drop(flood);
    // A client that has encrypted counts as authenticated, and has no deadline.
    let (peer, certificate) = start(" optional", &[]);
    let mut half = peer.connect(Redis);
    half.send(b"\x16\x03\x01\x02\0\x01");
    assert!(encrypted_by_choice(&peer, &certificate, 3).contains("PONG"));
    // A handshake that has begun has a deadline.
    assert!(!half.rest().contains("-ERR"));
    peer.client(Redis).settle();
}
