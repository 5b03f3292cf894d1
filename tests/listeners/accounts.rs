//! Authentication, with published client libraries and without.

use super::Peer;
use super::client::{ListenerClient, Nats, Protocol, Redis};
use crate::support::root;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// An account of each kind. The first half of the key pair is [`SEED`].
const ACCOUNTS: &str = "accounts=user alice password s3cret ; token t0ken headers ; \
                        nkey UB43KVROR7TFJ6KAPCYRF2FJROTZAH4FHLTJLPWX4DRZCC5NASLGJBFE ; user default password plain";
const SEED: &str = "SUAACAQDAQCQMBYIBEFAWDANBYHRAEISCMKBKFQXDAMRUGY4DUPB6IC5CQ";
/// Seed of another pair.
const OTHER_SEED: &str = "SUAAEAYEAUDAOCAJBIFQYDIOB4IBCEQTCQKRMFYYDENBWHA5DYPSAIOM6Y";

/// Makes a published client library connect, receive its own message, and leave; returns its output.
pub fn enters(wanted: Value) -> Value {
    let python = root().join("target/clients/python/bin/python3");
    let script = root().join("tests/clients/enter.py");
    let output = Command::new(python).arg(script).arg(wanted.to_string()).output().expect("tools/test installs it");
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn each_kind_of_account_admits_its_clients() {
    let peer = Peer::start(&[ACCOUNTS]);
    let [nats, redis] = peer.ports;
    for (credentials, seed) in [("alice:s3cret@", None), ("t0ken@", None), ("", Some(SEED)), ("default:plain@", None)] {
        let entered = enters(json!({ "url": format!("nats://{credentials}127.0.0.1:{nats}"), "seed": seed }));
        assert_eq!(entered["data"], "hello", "{credentials} {entered}");
        assert_eq!(entered["headers"]["from"], "me", "{entered}");
    }
    for credentials in ["alice:s3cret@", ":plain@", "default:plain@", ":t0ken@"] {
        for protocol in [2, 3] {
            let url = format!("redis://{credentials}127.0.0.1:{redis}");
            let entered = enters(json!({ "url": url, "protocol": protocol }));
            assert_eq!(entered["data"], "hello", "{credentials} {entered}");
        }
    }
    for arguments in [&["-a", "plain"][..], &["--user", "alice", "--pass", "s3cret"], &["-3", "-a", "t0ken"]] {
        assert_eq!(redis_cli(&peer, arguments), "PONG", "{arguments:?}");
    }
    for protocol in Protocol::ALL {
        assert_eq!((peer.count(protocol, "unauthorized"), peer.count(protocol, "faults")), (0, 0));
    }
}

fn redis_cli(peer: &Peer, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["--no-auth-warning", "-p", &peer.port(Redis).to_string()]).args(arguments).arg("PING");
    let output = command.output().expect("redis-cli is installed");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn wrong_credentials_are_refused_and_counted() {
    let peer = Peer::start(&[ACCOUNTS]);
    let [nats, redis] = peer.ports;
    let mut refused = 0;
    for (credentials, seed) in
        [("alice:wrong@", None), ("wrong@", None), ("bob:s3cret@", None), ("", Some(OTHER_SEED)), ("", None)]
    {
        let entered = enters(json!({ "url": format!("nats://{credentials}127.0.0.1:{nats}"), "seed": seed }));
        let reason = entered["why"].as_str().unwrap_or_else(|| panic!("{credentials} came in: {entered}"));
        assert!(reason.contains("Authorization Violation"), "{reason}");
        refused += 1;
    }
    // A valid key with an invalid signature, a signature of something else, and malformed values.
    let key = "UB43KVROR7TFJ6KAPCYRF2FJROTZAH4FHLTJLPWX4DRZCC5NASLGJBFE";
    for (nkey, signature) in [(key, ""), (key, "AAAA"), (key, &"A".repeat(86)[..]), ("U", "!"), ("", "")] {
        let mut client = peer.connect(Nats);
        assert!(client.line().contains("\"nonce\":\""));
        client.send(format!("CONNECT {}\r\nPING\r\n", json!({ "nkey": nkey, "sig": signature })));
        assert_eq!(client.rest(), "-ERR 'Authorization Violation'\r\n", "{nkey} {signature}");
        refused += 1;
    }
    assert_eq!(peer.count(Nats, "unauthorized"), refused);
    for credentials in ["alice:wrong@", ":wrong@", "bob:s3cret@"] {
        let entered = enters(json!({ "url": format!("redis://{credentials}127.0.0.1:{redis}") }));
        let reason = entered["why"].as_str().unwrap_or_else(|| panic!("{credentials} came in: {entered}"));
        assert!(reason.contains("invalid username-password pair"), "{reason}");
    }
    let entered = enters(json!({ "url": format!("redis://127.0.0.1:{redis}") }));
    assert!(entered["why"].as_str().is_some_and(|reason| reason.contains("AuthenticationError")), "{entered}");
    assert!(4 <= peer.count(Redis, "unauthorized"));
    guesses_end(&peer);
}

/// Checks that a client that tries many passwords has to reconnect again and again.
fn guesses_end(peer: &Peer) {
    let mut client = peer.connect(Redis);
    for _ in 0..100 {
        client.try_send(b"AUTH alice guess\r\n");
    }
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    assert_eq!(client.rest(), wrong.repeat(10));
}

#[test]
fn unauthenticated_client_is_not_served() {
    let peer = Peer::start(&[ACCOUNTS]);
    let mut listener = enter(&peer, Nats);
    listener.subscribe(">", 1);
    for bytes in [&b"PUB a 1\r\nx\r\n"[..], b"SUB a 1\r\n", b"PING\r\n", b"PUB a 99999999\r\n"] {
        let mut client = peer.connect(Nats);
        client.line();
        client.send(bytes);
        assert_eq!(client.rest(), "-ERR 'Authorization Violation'\r\n");
    }
    let mut client = peer.connect(Redis);
    for line in ["PUBLISH a x", "SUBSCRIBE a", "PUBSUB CHANNELS", "INFO", "CLIENT LIST"] {
        client.send(format!("{line}\r\n"));
        client.expect("-NOAUTH Authentication required.");
    }
    // Nor may it make the peer buffer much.
    client.send(b"*2\r\n$4\r\nAUTH\r\n$100000\r\n");
    assert_eq!(client.rest(), "-ERR Protocol error: unauthenticated bulk length\r\n");
    let mut publisher = enter(&peer, Redis);
    publisher.send(Redis.publish("b", "only this"));
    assert_eq!(listener.message(), ("b".into(), b"only this".into()));
}

/// Connects a client with the right password.
fn enter(peer: &Peer, protocol: Protocol) -> ListenerClient {
    let mut client = peer.connect(protocol);
    match protocol {
        Nats => {
            client.line();
            client.send(b"CONNECT {\"verbose\":false,\"headers\":true,\"user\":\"alice\",\"pass\":\"s3cret\"}\r\n");
        }
        Redis => {
            client.send(b"AUTH alice s3cret\r\n");
            client.expect("+OK");
        }
    }
    client.settle();
    client
}

#[test]
fn only_accounts_with_headers_receive_bus_headers() {
    let peer = Peer::start(&[ACCOUNTS, "name=here.test"]);
    let mut plain = enter(&peer, Nats);
    plain.subscribe("a", 1);
    let mut annotated = peer.connect(Nats);
    annotated.line();
    annotated.send(b"CONNECT {\"verbose\":false,\"headers\":true,\"auth_token\":\"t0ken\"}\r\n");
    annotated.settle();
    annotated.subscribe("a", 1);
    let mut publisher = enter(&peer, Redis);
    publisher.send(Redis.publish("a", "x"));
    publisher.expect(":2");
    assert_eq!(plain.message(), ("a".into(), b"x".into()));
    let head = annotated.line();
    assert!(head.starts_with("HMSG a 1 "), "{head}");
    annotated.expect("NATS/1.0");
    annotated.expect("Seqcast-Publisher: here.test");
    let epoch = annotated.line();
    let digits = epoch.strip_prefix("Seqcast-Epoch: ").unwrap_or_else(|| panic!("{epoch}"));
    assert!(digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{epoch}");
    let seq = annotated.line();
    let digits = seq.strip_prefix("Seqcast-Seq: ").unwrap_or_else(|| panic!("{seq}"));
    assert!(digits.parse::<u64>().is_ok_and(|seq| 0 < seq), "{seq}");
    let offset = annotated.line();
    assert!(offset.strip_prefix("Seqcast-Offset: ").is_some_and(|digits| digits.parse::<u32>().is_ok()), "{offset}");
    annotated.expect("");
    annotated.expect("x");
    // Headers in the bus's own name are not passed on from a publisher.
    plain.send(b"HPUB a 43 44\r\nNATS/1.0\r\nSeqcast-Lost: 7\r\nseqcast-x: y\r\n\r\ny\r\n");
    assert_eq!(plain.message(), ("a".into(), b"y".into()));
    plain.settle();
}

#[test]
fn secrets_appear_in_no_report_or_log() {
    let peer = Peer::start(&[ACCOUNTS, "log-level=trace"]);
    let clients = Protocol::ALL.map(|protocol| enter(&peer, protocol));
    Protocol::ALL.iter().for_each(|_| drop(peer.process.await_report("client admitted")));
    let mut texts = peer.process.stderr_so_far();
    let rows: Vec<Value> = peer.rows("clients").into_iter().filter(|row| row["listener"].is_string()).collect();
    let accounts: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row["listener"].as_str().unwrap_or("-"), row["account"].as_str().unwrap_or("-")))
        .collect();
    assert!(rows.iter().all(|row| row["address"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:"))));
    assert_eq!(accounts, [("nats", "alice"), ("redis", "alice")]);
    drop(clients);
    for what in ["status", "clients", "subs", "counters"] {
        texts.push(peer.place.show(what).to_string());
    }
    let file = peer.place.dir().join("param.yaml");
    fs::write(&file, format!("parameters:\n  {}\n", ACCOUNTS.replacen('=', ": ", 1))).unwrap();
    let shown = peer.place.run(&["config", "show", &file.display().to_string()]).exits(0).stdout;
    assert!(shown.contains("user alice password ***"), "{shown}");
    texts.push(shown);
    for text in texts {
        assert!(!["s3cret", "t0ken", "plain"].iter().any(|secret| text.contains(secret)), "{text}");
    }
}
