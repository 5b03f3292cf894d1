//! TLS before INFO at the NATS listener, and the time of a handshake.

use super::Peer;
use super::accounts::enters;
use super::client::{ListenerClient, Nats, Redis};
use crate::support::certificate::certificate;
use crate::support::command::{Place, now};
use crate::support::exit_code::CONFIGURATION;
use crate::support::wait::let_time_pass;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Starts a peer with both listeners encrypted; returns it and the certificate that its clients must trust.
fn start(clients: &str, settings: &[&str]) -> (Peer, String) {
    let place = Place::new();
    let [certificate, key] = certificate(place.dir(), "listener").map(|path| path.display().to_string());
    let tls = ["nats", "redis"].map(|listener| format!("{listener}-tls={certificate} {key}{clients}"));
    let settings = [&[&tls[0][..], &tls[1]], settings].concat();
    (Peer::start_at(place, [0, 0], &settings), certificate)
}

/// Makes a published client connect that begins with the handshake, or waits for INFO.
fn enters_tls(peer: &Peer, certificate: &str, is_first: bool) -> Value {
    let url = format!("tls://127.0.0.1:{}", peer.port(Nats));
    enters(json!({ "url": url, "ca": certificate, "tls_first": is_first }))
}

#[test]
fn handshake_before_info_works_with_published_clients() {
    let echo = json!({ "data": "hello", "headers": { "from": "me" }, "encrypted": true });
    // Handshakes take long on a busy machine.
    let (peer, certificate) = start("", &["nats-tls-first=yes", "tls-timeout=30 sec"]);
    assert_eq!(enters_tls(&peer, &certificate, true), echo);
    // The first bytes of `openssl s_client` are a handshake, and INFO is the first data.
    let port = peer.port(Nats);
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}"), "-CAfile"]).arg(&certificate);
    openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut openssl = openssl.spawn().expect("openssl is installed");
    // The peer closes the connection after an unknown operation.
    openssl.stdin.take().expect("a pipe").write_all(b"END\r\n").expect("it reads");
    let output = openssl.wait_with_output().expect("a process of our own");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("INFO {\"server_id\":"), "{output:?}");
    // A client that waits for INFO gets none.
    let (peer, _) = start("", &["nats-tls-first=yes", "tls-timeout=300 ms"]);
    assert_eq!(peer.connect(Nats).rest(), "-ERR 'Secure Connection - TLS Required'\r\n");
    let mut plain = peer.connect(Nats);
    plain.send(b"CONNECT {}\r\n");
    assert_eq!(plain.rest(), "-ERR 'Secure Connection - TLS Required'\r\n");
    // Both orders. The first PING is due after 2.0 to 2.4 s, and the time of the handshake does not count.
    let (peer, certificate) = start("", &["nats-tls-first=3 sec", "tls-timeout=30 sec"]);
    assert_eq!(enters_tls(&peer, &certificate, true), echo);
    assert_eq!(enters_tls(&peer, &certificate, false), echo);
    // Without the key a handshake that comes first fails.
    let (peer, certificate) = start("", &[]);
    assert!(enters_tls(&peer, &certificate, true)["why"].is_string());
}

#[test]
fn time_to_authenticate_begins_after_the_handshake() {
    // The handshake begins after the 2 s that a client has to authenticate.
    let account = "accounts=user alice password s3cret";
    let (peer, certificate) = start("", &["nats-tls-first=3 sec", "tls-timeout=30 sec", account]);
    let url = format!("tls://alice:s3cret@127.0.0.1:{}", peer.port(Nats));
    assert_eq!(enters(json!({ "url": url, "ca": certificate }))["data"], "hello");
    // A client that encrypts only if it wants gets INFO first, and then has the whole time.
    let (peer, _) = start(" optional", &["nats-tls-first=3 sec", account]);
    let begun = now();
    let answers = peer.connect(Nats).rest();
    assert!(answers.starts_with("INFO {") && answers.ends_with("-ERR 'Authentication Timeout'\r\n"), "{answers}");
    let waited = now().since(begun);
    assert!(Duration::from_millis(4_900) <= waited, "{waited:?}");
}

#[test]
fn time_of_a_handshake_begins_with_info() {
    let (peer, _) = start("", &["nats-tls-first=1 sec", "tls-timeout=700 ms"]);
    let begun = now();
    let answers = peer.connect(Nats).rest();
    assert!(
        answers.starts_with("INFO {") && answers.ends_with("-ERR 'Secure Connection - TLS Required'\r\n"),
        "{answers}"
    );
    let waited = now().since(begun);
    assert!(Duration::from_millis(1_650) <= waited, "{waited:?}");
    // The same holds for a handshake that begins later than its timeout.
    let (peer, _) = start("", &["nats-tls-first=10 sec", "tls-timeout=700 ms"]);
    let mut late = peer.connect(Nats);
    let_time_pass(Duration::from_secs(1), "the client is slow to begin");
    let begun = now();
    late.send(b"\x16\x03\x01\x02\0\x01");
    late.rest();
    let waited = now().since(begun);
    assert!(Duration::from_millis(650) <= waited, "{waited:?}");
}

#[test]
fn info_comes_after_the_time_or_a_byte() {
    let (peer, _) = start(" optional", &["nats-tls-first=300 ms"]);
    let begun = now();
    let mut silent = peer.connect(Nats);
    assert!(silent.line().starts_with("INFO {"));
    let waited = now().since(begun);
    assert!(Duration::from_millis(250) <= waited, "{waited:?}");
    // The time is longer than this test may take.
    let (peer, _) = start(" optional", &["nats-tls-first=10 sec"]);
    let begun = now();
    let mut hasty = peer.connect(Nats);
    hasty.send(b"CONNECT {\"verbose\":false}\r\nPING\r\n");
    assert!(hasty.line().starts_with("INFO {"));
    hasty.expect("PONG");
    peer.client(Redis).settle();
    assert!(now().since(begun) < Duration::from_secs(9));
}

#[test]
fn silent_client_is_closed_after_the_tls_timeout() {
    let (peer, _) = start("", &["tls-timeout=200 ms"]);
    let begun = now();
    let mut clients = [Nats, Redis].map(|protocol| peer.connect(protocol));
    let mut half = peer.connect(Redis);
    half.send(b"\x16\x03\x01\x02\0\x01");
    let [nats, redis] = clients.each_mut().map(ListenerClient::rest);
    assert!(nats.ends_with("-ERR 'Secure Connection - TLS Required'\r\n"), "{nats}");
    assert_eq!(redis, "-ERR this listener takes encrypted connections only\r\n");
    half.rest();
    // By default it is 2 seconds.
    let took = now().since(begun);
    assert!((Duration::from_millis(150)..Duration::from_millis(1900)).contains(&took), "{took:?}");
}

#[test]
fn order_without_effect_is_refused() {
    let place = Place::new();
    let [certificate, key] = certificate(place.dir(), "listener").map(|path| path.display().to_string());
    let peer = ["peer", "--nats", "0", "--set", "nats-tls-first=yes"];
    place
        .run(&peer)
        .exits(CONFIGURATION)
        .reports(&["nats-tls-first: no handshake can come first", "fix: write nats-tls"]);
    let optional = format!("nats-tls={certificate} {key} optional");
    let refused = place.run(&[&peer[..], &["--set", &optional]].concat()).exits(CONFIGURATION);
    refused.reports(&["would wait for INFO in vain", "nats-tls-first: auto"]);
}
