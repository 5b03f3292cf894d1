//! Certificates of clients at the encrypted listeners: required, and mapped to accounts.

use super::Peer;
use super::accounts::enters;
use super::client::{Nats, Protocol, Redis};
use crate::support::certificate::Authority;
use crate::support::command::{Outcome, Place};
use crate::support::exit_code::{CONFIGURATION, DONE};
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A peer with both listeners and the web server, whose clients need certificates.
struct CertifiedPeer {
    peer: Peer,
    authority: Authority,
}

impl CertifiedPeer {
    fn start(settings: &[&str]) -> CertifiedPeer {
        let place = Place::new();
        let authority = Authority::new(place.dir(), "authority");
        let [certificate, key] = authority.sign("listener", "/CN=listener", "IP:127.0.0.1", 2);
        let (certificate, key, ca) = (certificate.display(), key.display(), authority.certificate().display());
        let tls = ["nats", "redis", "http"].map(|name| format!("{name}-tls={certificate} {key} verify {ca}"));
        let settings = [&[&tls[0][..], &tls[1], &tls[2], "http=0"], settings].concat();
        CertifiedPeer { peer: Peer::start_at(place, [0, 0], &settings), authority }
    }

    /// Makes a published client of NATS connect with a certificate, or without one. Returns the outcome.
    fn nats_enters(&self, files: Option<&[PathBuf; 2]>, credentials: &str) -> Value {
        let [cert, key] = [0, 1].map(|index| files.map(|files| &files[index]));
        let url = format!("tls://{credentials}127.0.0.1:{}", self.peer.port(Nats));
        enters(json!({ "url": url, "ca": self.authority.certificate(), "cert": cert, "key": key }))
    }

    /// Lets `redis-cli` send PING with a certificate, or without one. Returns its output.
    fn redis_ping(&self, files: Option<&[PathBuf; 2]>, credentials: &[&str]) -> String {
        let mut client = Command::new("redis-cli");
        client.args(["--no-auth-warning", "-p", &self.peer.port(Redis).to_string(), "--tls", "--cacert"]);
        client.arg(self.authority.certificate()).args(credentials);
        if let Some([certificate, key]) = files {
            client.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        let output = client.arg("PING").output().expect("redis-cli is installed");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned()
    }

    /// Returns how many refusals of a kind a listener has counted.
    fn refusals(&self, protocol: Protocol, kind: &str) -> u64 {
        let status = self.peer.place.show("status");
        status["status"]["listeners"][protocol as usize]["refusals_by_kind"][kind].as_u64().unwrap_or(0)
    }

    /// Sends text over a connection of `openssl s_client` to a port. Returns the output once the peer has closed.
    fn s_client(&self, port: u16, text: &str, arguments: &[&Path]) -> String {
        let mut client = Command::new("openssl");
        client.args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}"), "-CAfile"]);
        client.arg(self.authority.certificate()).args(arguments);
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        client.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = client.wait_with_output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

#[test]
fn certificate_is_required_and_maps_to_an_account() {
    let accounts = "accounts=certificate alice@plant.example ; certificate device-7 ; certificate spiffe://plant/9 ; \
                    certificate bob ; user carol password s3cret";
    let peer = CertifiedPeer::start(&[accounts]);
    let sign = |name, subject, names| peer.authority.sign(name, subject, names, 2);
    let email = sign("email", "/CN=nobody", "DNS:other,email:alice@plant.example");
    for files in [
        &email,
        &sign("dns", "/CN=nobody", "email:nobody@plant.example,DNS:device-7"),
        &sign("uri", "/CN=nobody", "URI:spiffe://plant/9"),
        &sign("common", "/O=Plant/CN=bob", "IP:127.0.0.1"),
    ] {
        assert_eq!(peer.redis_ping(Some(files), &[]), "PONG", "{files:?}");
    }
    let echo = json!({ "data": "hello", "headers": { "from": "me" }, "encrypted": true });
    assert_eq!(peer.nats_enters(Some(&email), ""), echo);
    // Credentials are examined if there are any.
    let entered = peer.nats_enters(Some(&email), "carol:wrong@");
    assert!(entered["why"].as_str().is_some_and(|reason| reason.contains("Authorization Violation")), "{entered}");
    let answer = peer.redis_ping(Some(&email), &["--user", "carol", "--pass", "wrong"]);
    assert!(answer.contains("WRONGPASS"), "{answer}");
    // A verified certificate without an account.
    let stranger = sign("stranger", "/CN=stranger", "DNS:stranger");
    let entered = peer.nats_enters(Some(&stranger), "");
    assert!(entered["why"].as_str().is_some_and(|reason| reason.contains("Authorization Violation")), "{entered}");
    assert_eq!(peer.redis_ping(Some(&stranger), &[]), "NOAUTH Authentication required.");
    assert_eq!(peer.redis_ping(Some(&stranger), &["--user", "carol", "--pass", "s3cret"]), "PONG");
    // No certificate, one of another authority, and an expired one.
    let foreign = Authority::new(peer.peer.place.dir(), "other").sign("foreign", "/CN=bob", "DNS:bob", 2);
    let expired = peer.authority.sign("expired", "/CN=bob", "DNS:bob", -1);
    for (files, kind) in [
        (None, "no client certificate"),
        (Some(&foreign), "foreign client certificate"),
        (Some(&expired), "outdated client certificate"),
    ] {
        let answer = peer.redis_ping(files, &["--user", "carol", "--pass", "s3cret"]);
        assert!(!answer.contains("PONG"), "{kind}: {answer}");
        wait_until(&format!("{kind} is counted"), || 1 <= peer.refusals(Redis, kind));
    }
    assert!(peer.nats_enters(None, "carol:s3cret@")["why"].is_string());
    wait_until("it is counted", || 1 <= peer.refusals(Nats, "no client certificate"));
    let log = peer.peer.process.stderr_so_far().join("\n");
    assert!(log.contains("the client has no certificate, which this listener requires"), "{log}");
    assert!(log.contains("comes from another authority") && log.contains("has expired, or is not valid yet"), "{log}");
}

#[test]
fn certificate_has_the_permissions_of_its_account() {
    let accounts = "accounts=certificate device-7 publish plant.> subscribe enter ; user carol password s3cret";
    let peer = CertifiedPeer::start(&[accounts]);
    let files = peer.authority.sign("device", "/CN=device-7", "IP:127.0.0.1", 2);
    // The published client publishes on `enter`.
    let entered = peer.nats_enters(Some(&files), "");
    let reason = entered["why"].as_str().unwrap_or_default().to_lowercase();
    assert!(reason.contains("permissions violation for publish to \"enter\""), "{entered}");
    assert_eq!(peer.peer.count(Nats, "denied"), 1);
    assert_eq!(peer.nats_enters(Some(&files), "carol:s3cret@")["data"], "hello");
    let arguments = [Path::new("-cert"), &files[0], Path::new("-key"), &files[1]];
    let commands = ["PUBLISH plant.a x", "PUBLISH cmd.a x", "SUBSCRIBE cmd.a", "AUTH carol s3cret", "PUBLISH cmd.a x"];
    let commands = [&commands[..], &["RESET", "PUBLISH cmd.a x", "CLIENT INFO", "QUIT", ""]].concat().join("\r\n");
    let answer = peer.s_client(peer.peer.port(Redis), &commands, &arguments);
    let answers: Vec<&str> = answer.lines().filter(|line| line.starts_with(['-', '+', ':'])).collect();
    let denied = "-NOPERM this user has no permissions to access one of the channels used as arguments";
    assert_eq!(answers, [":0", denied, denied, "+OK", ":0", "+RESET", denied, "+OK"], "{answer}");
    assert!(answer.contains(" user=device-7 "), "{answer}");
    assert_eq!(peer.peer.count(Redis, "denied"), 3);
}

#[test]
fn certificate_alone_suffices_without_accounts() {
    let peer = CertifiedPeer::start(&[]);
    let files = peer.authority.sign("client", "/CN=anyone", "DNS:anyone", 2);
    assert_eq!(peer.nats_enters(Some(&files), "")["data"], "hello");
    let redis = peer.peer.port(Redis);
    let [certificate, key] = [&files[0], &files[1]].map(PathBuf::as_path);
    let arguments = [Path::new("-cert"), certificate, Path::new("-key"), key];
    let answer = peer.s_client(redis, "PING\r\nQUIT\r\n", &arguments);
    assert!(answer.contains("+PONG"), "{answer}");
    let answer = peer.s_client(redis, "PING\r\nQUIT\r\n", &[]);
    assert!(answer.contains("certificate required") && !answer.contains("PONG"), "{answer}");
    let info = peer.peer.connect(Nats).line();
    assert!(info.contains("\"tls_required\":true,\"tls_verify\":true"), "{info}");
    // The web server.
    let status = peer.peer.place.show("status");
    assert_eq!(status["status"]["listeners"][0]["tls"], "verify", "{status}");
    let url = format!("https://{}/healthz", status["status"]["http"]["address"].as_str().expect("an address"));
    let curl = |arguments: &[&Path]| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "30", "--cacert"]).arg(peer.authority.certificate()).arg(&url).args(arguments);
        let output = curl.output().expect("curl is installed");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (is_answered, answer) = curl(&[Path::new("--cert"), certificate, Path::new("--key"), key]);
    assert!(is_answered, "{answer}");
    let (is_answered, answer) = curl(&[]);
    assert!(!is_answered && answer.contains("certificate required"), "{answer}");
}

#[test]
fn unusable_authorities_of_clients_are_named() {
    let place = Place::new();
    let authority = Authority::new(place.dir(), "authority");
    let [certificate, key] = authority.sign("listener", "/CN=listener", "IP:127.0.0.1", 2);
    let text = place.dir().join("text");
    fs::write(&text, "no PEM\n").unwrap();
    let refused = |value: &str| -> Outcome {
        let files = format!("nats-tls={} {} {value}", certificate.display(), key.display());
        place.run(&["peer", "--nats", "0", "--set", &files]).exits(CONFIGURATION)
    };
    refused("verify missing").reports(&["nats-tls: ", "cannot read missing"]);
    refused(&format!("verify {}", text.display())).reports(&["holds no certificate in PEM"]);
    refused("verify").reports(&["verify CA.pem"]);
    // Without certificates or accounts other hosts may not reach a listener.
    let ca = authority.certificate().display();
    for (clients, code) in [(String::new(), CONFIGURATION), (format!("verify {ca}"), DONE)] {
        let tls = format!("{} {} {clients}", certificate.display(), key.display());
        let file = place.dir().join("peer.yaml");
        fs::write(&file, format!("parameters:\n  nats: 0.0.0.0\n  nats-tls: {tls}\n")).unwrap();
        place.run(&["config", "check", &file.display().to_string()]).exits(code);
    }
}
