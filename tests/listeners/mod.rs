//! The listeners of a peer that runs as a process of its own, tested over sockets. Other tests of the listeners have
//! no sockets and cannot show this.

mod accounts;
mod certificates;
pub mod client;
mod hat;
mod input;
mod limits;
mod memory;
mod peers;
mod permissions;
mod repeated;
mod rv;
pub mod rv_client;
mod slow;
mod stop;
mod streams;
mod tls;
mod tls_first;
mod together;
mod websocket;

use crate::support::command::{Place, RunningCommand};
use client::{ListenerClient, Protocol};
use serde_json::Value;

/// A peer with both listeners, at ports that the system chose.
struct Peer {
    place: Place,
    process: RunningCommand,
    ports: [u16; 2],
}

impl Peer {
    /// Starts a peer with these settings.
    fn start(settings: &[&str]) -> Peer {
        Peer::start_at(Place::new(), [0, 0], settings)
    }

    /// Starts a peer with its listeners at these ports; 0 takes any free one.
    fn start_at(place: Place, ports: [u16; 2], settings: &[&str]) -> Peer {
        let [nats, redis] = ports.map(|port| port.to_string());
        let mut arguments = vec!["--nats", &nats, "--redis", &redis];
        settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
        let process = place.peer(&arguments);
        Peer::at(place, process)
    }

    /// Wraps the running peer of a place, with both listeners.
    fn at(place: Place, process: RunningCommand) -> Peer {
        let status = place.show("status");
        let port = |listener: usize| {
            let address = status["status"]["listeners"][listener]["address"].as_str().expect("the listener is open");
            address.rsplit_once(':').expect("an address with a port").1.parse().expect("a port")
        };
        Peer { ports: [port(0), port(1)], place, process }
    }

    /// Returns the port for clients of the protocol.
    fn port(&self, protocol: Protocol) -> u16 {
        self.ports[protocol as usize]
    }

    /// Connects a client that has sent nothing.
    fn connect(&self, protocol: Protocol) -> ListenerClient {
        ListenerClient::connect(protocol, self.port(protocol))
    }

    /// Connects a client and completes its handshake, so that it may publish and subscribe.
    fn client(&self, protocol: Protocol) -> ListenerClient {
        let mut client = self.connect(protocol);
        client.enter();
        client
    }

    /// Returns the rows of a report.
    fn rows(&self, what: &str) -> Vec<Value> {
        self.place.show(what)["rows"].as_array().expect("rows").clone()
    }

    /// Returns the epoch of this run, as reports show it.
    fn epoch(&self) -> String {
        self.place.show("status")["status"]["epoch"].as_str().expect("an epoch").to_owned()
    }

    /// Returns the bytes that the clients of both listeners hold.
    fn client_bytes(&self) -> u64 {
        self.place.show("status")["status"]["listener_bytes"].as_u64().expect("a number")
    }

    /// Returns a number of a listener in `show status`.
    fn count(&self, protocol: Protocol, what: &str) -> u64 {
        let status = self.place.show("status");
        status["status"]["listeners"][protocol as usize][what].as_u64().unwrap_or_else(|| panic!("no {what}: {status}"))
    }
}
