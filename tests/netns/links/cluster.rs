//! A cluster of nats-server with JetStream. Clients of other hosts reach each node by a relay.

use super::relay;
use crate::listeners::client::{ListenerClient, Nats};
use crate::netns::lan::{Host, Process, run, show_log_after_failure};
use crate::support::wait::wait_until;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

/// Port of the relay of each node.
const PORT: u16 = 4222;
/// Port at which a node serves its relay.
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4333);
/// Size of the disk of a node.
const DISK: &str = "128m";

/// A node of the cluster.
pub struct Node {
    host: Host,
    server: Option<Process>,
}

impl Node {
    /// Starts the nodes of a cluster on these hosts.
    pub fn start_cluster(hosts: &[Host]) -> Vec<Node> {
        let routes: Vec<String> = hosts.iter().map(|host| format!("nats://{}:6222", host.address())).collect();
        let nodes = hosts.iter().map(|host| {
            let mut node = Node { host: *host, server: None };
            node.prepare(&routes.join(", "));
            node.start();
            node
        });
        nodes.collect()
    }

    /// Returns the value of the key `link` for gateways of a cluster.
    pub fn addresses(hosts: &[Host]) -> String {
        let addresses: Vec<String> = hosts.iter().map(|host| format!("nats://{}:{PORT}", host.address())).collect();
        addresses.join(", ")
    }

    fn prepare(&self, routes: &str) {
        let (name, disk) = (self.host.namespace(), self.disk());
        fs::create_dir(&disk).expect("/run can be written");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={DISK}"), "tmpfs", &disk]));
        // Servers that a node advertises would be used without their relays.
        let text = format!(
            "server_name: {name}
             listen: \"{SERVER}\"
             jetstream {{ store_dir: \"{disk}\", max_mem: 16MB, max_file: 1GB }}
             cluster {{ name: hub, listen: \"0.0.0.0:6222\", no_advertise: true, routes: [{routes}] }}\n"
        );
        fs::write(self.file("conf"), text).expect("/run can be written");
        relay::start(self.host, SocketAddr::from((self.host.address(), PORT)), SERVER);
    }

    /// Starts the node, and waits until it serves clients.
    pub fn start(&mut self) {
        let [settings, log] = [self.file("conf"), self.file("log")];
        self.server = Some(self.host.start("nats-server", &["-c", &settings, "-l", &log]));
        let host = self.host;
        wait_until("the node serves clients", || host.within(|| TcpStream::connect(SERVER).is_ok()));
    }

    /// Connects a client without a library to the node, without delay.
    pub fn connect(&self) -> ListenerClient {
        self.host.within(|| {
            let mut client = ListenerClient::connect_to(Nats, SERVER);
            client.enter();
            client
        })
    }

    /// Kills the node.
    pub fn kill(&mut self) {
        drop(self.server.take());
    }

    /// Leaves no room on the disk of the node.
    pub fn fill_disk(&self) {
        let mut filler = fs::File::create(self.filler()).expect("there is room for a name");
        let block = vec![1; 64 << 10];
        let full = std::iter::repeat_with(|| filler.write_all(&block)).find_map(Result::err);
        assert_eq!(full.map(|error| error.kind()), Some(ErrorKind::StorageFull), "{}", self.disk());
    }

    /// Makes room on the disk of the node again.
    pub fn clear_disk(&self) {
        fs::remove_file(self.filler()).expect("the disk was filled");
    }

    fn disk(&self) -> String {
        format!("/run/disk-{}", self.host.namespace())
    }

    fn filler(&self) -> String {
        format!("{}/filler", self.disk())
    }

    fn file(&self, extension: &str) -> String {
        format!("/run/{}.{extension}", self.host.namespace())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        show_log_after_failure(&self.host.namespace(), Path::new(&self.file("log")));
    }
}
