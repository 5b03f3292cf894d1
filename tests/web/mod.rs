//! The web server of a peer that runs as a process of its own, as programs and browsers reach it.

mod access;
mod api;
mod bus_api;
pub mod client;
mod health;
mod hostile;
mod messages;
mod metrics;
mod monitoring;
mod page;

use crate::support::command::{Place, RunningCommand};
use client::{HttpReply, send};
use serde_json::Value;
use std::net::SocketAddr;

/// A peer with a web server at the place's port.
struct WebPeer {
    place: Place,
    process: RunningCommand,
    address: SocketAddr,
}

impl WebPeer {
    /// Starts a peer with these settings.
    fn start(settings: &[&str]) -> WebPeer {
        let place = Place::new();
        let address = SocketAddr::from(([127, 0, 0, 1], place.port()));
        let process = place.peer_with_listener(&[&[format!("http={}", place.port()).as_str()], settings].concat());
        WebPeer { place, process, address }
    }

    /// Reads a resource.
    #[track_caller]
    fn get(&self, path: &str) -> HttpReply {
        self.get_with(path, &[])
    }

    /// Reads a resource with further headers.
    #[track_caller]
    fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> HttpReply {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}Connection: close\r\n\r\n", self.address);
        send(self.address, head.as_bytes())
    }

    /// Returns the part of `show status` about the web server.
    fn status(&self) -> Value {
        self.place.show("status")["status"]["http"].clone()
    }
}
