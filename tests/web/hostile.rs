//! Hostile HTTP: malformed, huge and slow requests, strange paths, and too many connections.

use super::WebPeer;
use super::client::{HttpReply, connect, exchange, read_to_end};
use crate::support::wait::wait_until;
use std::io::Write;

/// Maximum number of connections of a server.
const CONNECTIONS_MAX: usize = 256;

#[test]
fn malformed_requests_are_refused() {
    let peer = WebPeer::start(&[]);
    let host = format!("Host: {}", peer.address);
    let huge = format!("GET /healthz HTTP/1.1\r\n{host}\r\nX-Huge: {}\r\n\r\n", "x".repeat(64 << 10));
    let many = format!("GET /healthz HTTP/1.1\r\n{host}\r\n{}\r\n", "X: y\r\n".repeat(200));
    let long = format!("GET /{} HTTP/1.1\r\n{host}\r\n\r\n", "a".repeat(100_000));
    let twice = format!("GET /healthz HTTP/1.1\r\n{host}\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    let requests: [&[u8]; 9] = [
        b"\r\n\r\nnonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: \xff\xfe\r\nConnection: close\r\n\r\n",
        huge.as_bytes(),
        many.as_bytes(),
        long.as_bytes(),
        twice.as_bytes(),
    ];
    for request in requests {
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        let reply = HttpReply::parse(&exchange(peer.address, request));
        assert!([400, 414, 421, 431].contains(&reply.status), "{shown:?}: {reply:?}");
    }
    peer.get("/healthz").has_status(200);
}

#[test]
fn strange_paths_name_nothing() {
    let peer = WebPeer::start(&[]);
    for path in [
        "//healthz",
        "/healthz/",
        "/healthz/../metrics",
        "/%68ealthz",
        "/../../../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/metrics%00",
        "/%ff%fe",
        "/METRICS",
        "/index.html",
        "/page/app.js",
        "/api/v1/",
        "/api/v1/../../metrics",
        "/api/v1/nothing",
    ] {
        peer.get(path).has_status(404);
    }
    peer.get("/metrics?x=%ff").has_status(200);
    let post =
        format!("POST /metrics HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", peer.address);
    assert_eq!(
        HttpReply::parse(&exchange(peer.address, post.as_bytes())).has_status(405).header("allow"),
        Some("get, head")
    );
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let peer = WebPeer::start(&[]);
    let mut open: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect(peer.address)).collect();
    wait_until("all connections are open", || peer.status()["clients"] == CONNECTIONS_MAX);
    let mut refused = connect(peer.address);
    assert!(read_to_end(&mut refused).is_empty(), "a further one ends at once");
    assert_eq!(peer.status()["refused"], 1);
    // A connection of these is served all the same.
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", peer.address);
    open[0].write_all(request.as_bytes()).expect("the connection is open");
    HttpReply::parse(&read_to_end(&mut open[0])).has_status(200);
}
