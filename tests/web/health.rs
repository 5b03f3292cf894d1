//! `/healthz` and `/readyz`.

use super::WebPeer;
use super::client::{connect, send};
use crate::support::command::Place;
use crate::support::exit_code::{CONFIGURATION, FAILED};
use crate::support::wait::wait_until;
use std::net::{SocketAddr, TcpListener, TcpStream};

#[test]
fn healthy_peer_is_live_and_ready() {
    let peer = WebPeer::start(&[]);
    assert_eq!(peer.get("/healthz").has_status(200).body, "ok\n");
    assert_eq!(peer.get("/readyz").has_status(200).body, "ready\n");
    let status = peer.status();
    assert_eq!((&status["listener"], &status["requests"]), (&"http".into(), &2.into()), "{status}");
    assert_eq!(status["address"], peer.address.to_string());
    let banner = peer.process.stderr_so_far().join("\n");
    assert!(banner.contains(&format!("  http       {} (anyone)", peer.address)), "{banner}");
}

#[test]
fn flag_opens_the_server_on_loopback() {
    let place = Place::new();
    let _peer = place.peer(&["--http", "0"]);
    wait_until("the server listens", || !place.show("status")["status"]["http"].is_null());
    let address = place.show("status")["status"]["http"]["address"].as_str().expect("an address").to_owned();
    let address: SocketAddr = address.parse().expect("an address");
    assert!(address.ip().is_loopback());
    let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n", address.port());
    send(address, request.as_bytes()).has_status(200);
}

#[test]
fn peer_without_the_key_has_no_server() {
    let place = Place::new();
    let _peer = place.peer(&[]);
    assert!(place.show("status")["status"]["http"].is_null());
    assert!(TcpStream::connect(("127.0.0.1", place.port())).is_err());
}

#[test]
fn unusable_address_and_files_are_named() {
    let place = Place::new();
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = other.local_addr().expect("an address").to_string();
    let refused = place.run(&["peer", "--http", &address]).exits(FAILED);
    refused.reports(&[&format!("another program listens at {address}\n  fix: stop it"), "http: "]);
    let refused = place.run(&["peer", "--http", "0", "--set", "http-tls=none.pem none.pem"]).exits(CONFIGURATION);
    refused.reports(&["http-tls: cannot read none.pem"]);
    place.run(&["peer", "--http", "0.0.0.0"]).exits(CONFIGURATION).reports(&["accounts: user NAME", "http-open: yes"]);
}

#[test]
fn stopping_peer_closes_idle_connections() {
    let mut peer = WebPeer::start(&[]);
    let mut idle = connect(peer.address);
    peer.process.signal("TERM");
    assert!(super::client::read_to_end(&mut idle).is_empty());
    assert!(peer.process.ended().success());
}
