//! The bus by HTTP, as programs and scripts use it.

mod browser;
mod event_reader;
mod events;
mod large;
mod publish;
mod request;
mod websocket;

use super::WebPeer;
use super::client::{HttpReply, send};
use crate::support::command::RunningCommand;
use std::process::Command;

/// Sends a request with a body and further header lines.
#[track_caller]
fn post(peer: &WebPeer, path: &str, headers: &str, body: &[u8]) -> HttpReply {
    let head = format!("POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n", peer.address, body.len());
    send(peer.address, &[format!("{head}{headers}Connection: close\r\n\r\n").as_bytes(), body].concat())
}

/// Runs curl on a path of a peer, and returns what it prints.
#[track_caller]
fn curl(peer: &WebPeer, arguments: &[&str], path: &str) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "30"]).args(arguments);
    let output = command.arg(format!("http://{}{path}", peer.address)).output().expect("tools/test has installed curl");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("a text")
}

/// Subscribes by the command line.
fn subscribe(peer: &WebPeer, pattern: &str) -> RunningCommand {
    let subscriber = peer.place.start(&["sub", pattern, "--json"]);
    subscriber.await_report("listening on");
    subscriber
}
