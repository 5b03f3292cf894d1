//! Accounts, encryption, names of the host, and pages of other sites.

use super::WebPeer;
use super::client::send;
use crate::support::certificate::certificate;
use crate::support::command::now;
use std::process::Command;
use std::time::Duration;

#[test]
fn foreign_names_and_pages_are_refused() {
    let peer = WebPeer::start(&[]);
    let with_host = |host: &str, path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        send(peer.address, head.as_bytes())
    };
    // A foreign site has resolved its name to this host.
    let refused = with_host("evil.example:80", "/metrics").has_status(421);
    assert!(refused.body.contains("no name of this host"), "{refused:?}");
    with_host("127.0.0.1", "http://evil.example/metrics").has_status(421);
    with_host("localhost", "/metrics").has_status(200);
    for header in [("Origin", "http://evil.example"), ("Origin", "null"), ("Sec-Fetch-Site", "cross-site")] {
        let refused = peer.get_with("/metrics", &[header]).has_status(403);
        assert_eq!(refused.header("access-control-allow-origin"), None);
    }
    let own = format!("http://{}", peer.address);
    peer.get_with("/metrics", &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")]).has_status(200);
    assert_eq!(peer.status()["foreign"], 5);
}

#[test]
fn accounts_are_required_for_everything_but_liveness() {
    let peer = WebPeer::start(&["accounts=user alice password s3cret ; token t0ken"]);
    peer.get("/healthz").has_status(200);
    for path in ["/readyz", "/metrics", "/no-such-path"] {
        let refused = peer.get(path).has_status(401);
        assert!(refused.header("www-authenticate").is_some_and(|challenge| challenge.starts_with("basic realm=")));
    }
    // `alice:s3cret` and `alice:wrong`.
    peer.get_with("/metrics", &[("Authorization", "Basic YWxpY2U6czNjcmV0")]).has_status(200);
    peer.get_with("/metrics", &[("Authorization", "Bearer t0ken")]).has_status(200);
    let started = now();
    peer.get_with("/metrics", &[("Authorization", "Basic YWxpY2U6d3Jvbmc=")]).has_status(401);
    assert!(Duration::from_secs(1) <= now().since(started), "wrong credentials are refused late");
    assert_eq!(peer.status()["unauthorized"], 4);
    // With accounts a name cannot be abused, since a foreign page has no credentials.
    let head =
        "GET /metrics HTTP/1.1\r\nHost: plant.example\r\nAuthorization: Bearer t0ken\r\nConnection: close\r\n\r\n";
    send(peer.address, head.as_bytes()).has_status(200);
}

#[test]
fn encryption_is_required_unless_optional() {
    let place = crate::support::TempDir::new();
    let [certificate, key] = certificate(place.path(), "web");
    for (word, plain_status) in [("", None), (" optional", Some(200))] {
        let peer = WebPeer::start(&[&format!("http-tls={} {}{word}", certificate.display(), key.display())]);
        let url = format!("https://{}/healthz", peer.address);
        let mut curl = Command::new("curl");
        let output = curl.args(["--silent", "--show-error", "--cacert"]).arg(&certificate).arg(&url).output();
        let output = output.expect("tools/test has installed curl");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{output:?}");
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", peer.address);
        let reply = super::client::exchange(peer.address, request.as_bytes());
        match plain_status {
            Some(status) => drop(super::client::HttpReply::parse(&reply).has_status(status)),
            None => assert!(!reply.starts_with(b"HTTP/"), "{reply:?}"),
        }
        assert_eq!(peer.status()["tls"], if word.is_empty() { "required" } else { "optional" });
    }
}
