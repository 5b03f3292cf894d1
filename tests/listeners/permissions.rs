//! Permissions of accounts, with published client libraries and without.

use super::Peer;
use super::client::{ListenerClient, Nats, Redis};
use crate::support::root;
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::process::Command;

/// An account with permissions, and one without.
const ACCOUNTS: &str = "accounts=user limited password pw publish plant.> subscribe cmd.* ; user free password pw";

/// Runs two clients of a published library, one for each account; returns what happened to them.
fn run(peer: &Peer, scheme: &str, port: u16) -> Value {
    let url = |user: &str| format!("{scheme}://{user}:pw@127.0.0.1:{port}");
    let wanted = json!({ "limited": url("limited"), "free": url("free") });
    let python = root().join("target/clients/python/bin/python3");
    let script = root().join("tests/clients/permissions.py");
    let output = Command::new(python).arg(script).arg(wanted.to_string()).output().expect("tools/test installs it");
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let log = peer.process.stderr_so_far().concat();
    assert!(!log.contains("hidden payload"), "{log}");
    outcome
}

#[test]
fn nats_library_does_only_the_permitted() {
    let peer = Peer::start(&[ACCOUNTS]);
    let outcome = run(&peer, "nats", peer.port(Nats));
    let refused: Vec<&str> = outcome["refused"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let expected = [
        "Subscription to \">\"",
        "Subscription to \"plant.a\"",
        "Subscription to \"cmd.>\" using queue \"workers\"",
        "Subscription to \"_INBOX.>\"",
        "Publish to \"secret.a\"",
        "Publish with Reply of \"secret.a\"",
    ];
    assert_eq!(refused.len(), expected.len(), "{outcome}");
    for (text, expected) in refused.iter().zip(expected) {
        let expected = format!("permissions violation for {}", expected.to_lowercase());
        assert!(text.to_lowercase().contains(&expected), "{text}: {expected}");
    }
    assert_eq!(outcome["received"], json!([["cmd.ask", "from free"]]));
    let observed = json!([["plant.a", "from limited"], ["plant.ask", "from limited"], ["secret.a", "from free"]]);
    assert_eq!(outcome["observed"], observed);
    assert_eq!(outcome["answers"], json!(["answer of limited", "answer of free"]));
    assert_eq!((&outcome["open"], peer.count(Nats, "denied")), (&json!(true), expected.len() as u64));
}

#[test]
fn redis_library_does_only_the_permitted() {
    let peer = Peer::start(&[ACCOUNTS]);
    let outcome = run(&peer, "redis", peer.port(Redis));
    let refused = outcome["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 5, "{outcome}");
    for text in refused {
        assert!(text.as_str().unwrap().starts_with("NoPermissionError: "), "{text}");
    }
    assert_eq!(outcome["received"], json!(["cmd.a"]));
    assert_eq!(outcome["published"], json!([null, null, 0]));
    assert_eq!(outcome["message"], json!(["cmd.a", "from free"]));
    assert_eq!((&outcome["open"], peer.count(Redis, "denied")), (&json!(true), 5));
}

/// Connects a client of an account.
fn enter(peer: &Peer, user: &str) -> ListenerClient {
    let mut client = peer.connect(Nats);
    client.line();
    client.send(format!("CONNECT {{\"verbose\":false,\"user\":\"{user}\",\"pass\":\"pw\"}}\r\n"));
    client.settle();
    client
}

#[test]
fn denials_are_counted_by_client_and_logged_rarely() {
    let peer = Peer::start(&[ACCOUNTS]);
    let mut free = enter(&peer, "free");
    free.subscribe("secret.>", 1);
    let mut limited = enter(&peer, "limited");
    for _ in 0..100 {
        limited.send(b"PUB secret.a 7\r\npayload\r\n");
        limited.expect("-ERR 'Permissions Violation for Publish to \"secret.a\"'");
    }
    limited.settle();
    let rows = peer.rows("clients");
    let of = |account: &str, field: &str| {
        rows.iter().find(|row| row["account"] == account).and_then(|row| row[field].as_u64()).expect("a client")
    };
    assert_eq!((of("limited", "denied"), of("limited", "published"), of("limited", "dropped")), (100, 0, 0));
    assert_eq!((of("free", "denied"), of("free", "delivered"), of("free", "dropped")), (0, 0, 0));
    let denials = || -> Vec<String> {
        peer.process.stderr_so_far().into_iter().filter(|line| line.contains("action denied")).collect()
    };
    wait_until("the 64th denial is logged", || 7 <= denials().len());
    let denials = denials();
    assert_eq!(denials.len(), 7, "the 1st, 2nd, 4th, … 64th: {denials:?}");
    let expected = "this client may not publish on secret.a";
    assert!(denials.iter().all(|line| line.contains(expected) && !line.contains("payload")), "{denials:?}");
    // Another account of the same connection may do more.
    limited.send(b"CONNECT {\"user\":\"free\",\"pass\":\"pw\"}\r\nPUB secret.a 2\r\nhi\r\n");
    assert_eq!(free.message(), ("secret.a".into(), b"hi".into()));
}
