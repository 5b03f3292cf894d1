//! The processes of a run: the cluster, and the gateways of two sites.

use crate::{Outcome, now};
use seqcast::bench::host::{cpu_ns_of, rss_bytes};
use seqcast::bus::Bus;
use serde_json::Value;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Timeout of everything that succeeds.
pub const PATIENCE: Duration = Duration::from_secs(60);
const NODES: usize = 3;

/// A process that this program started.
pub struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Outcome<Process> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ok(Process(child.map_err(|error| format!("{program} does not start: {error}"))?))
    }

    /// Returns the processor time that it has used, user and kernel.
    pub fn processor_time(&self) -> Duration {
        Duration::from_nanos(cpu_ns_of(self.0.id()))
    }

    /// Returns the memory in use, in bytes.
    pub fn memory(&self) -> u64 {
        rss_bytes(self.0.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A cluster of nats-server with JetStream, and its files.
pub struct Cluster {
    nodes: Vec<Process>,
    ports: Vec<u16>,
    pub directory: PathBuf,
}

impl Cluster {
    /// Starts the nodes, and waits until they serve clients and have joined.
    pub fn start() -> Outcome<Cluster> {
        let directory = std::env::temp_dir().join(format!("seqcast-bench-links-{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut cluster = Cluster { nodes: Vec::new(), ports: free_ports(NODES)?, directory };
        let inner = free_ports(NODES)?;
        let routes: Vec<String> = inner.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        for (number, (port, inner)) in cluster.ports.iter().zip(inner).enumerate() {
            let (files, settings) = (cluster.file(&format!("node{number}")), cluster.file(&format!("{number}.conf")));
            let text = format!(
                "server_name: node{number}\nlisten: \"127.0.0.1:{port}\"\n\
                 jetstream {{ store_dir: \"{}\", max_mem: 64MB, max_file: 8GB }}\n\
                 cluster {{ name: hub, listen: \"127.0.0.1:{inner}\", no_advertise: true, routes: [{}] }}\n",
                files.display(),
                routes.join(", ")
            );
            fs::write(&settings, text).map_err(|error| error.to_string())?;
            cluster.nodes.push(Process::start(Command::new("nats-server").arg("-c").arg(&settings))?);
        }
        for port in &cluster.ports {
            until("a node serves clients", || Ok(TcpStream::connect(("127.0.0.1", *port)).is_ok()))?;
        }
        Ok(cluster)
    }

    /// Returns the address of a node.
    pub fn address(&self, node: usize) -> String {
        format!("nats://127.0.0.1:{}", self.ports[node])
    }

    /// Returns the processor time that all nodes have used.
    pub fn processor_time(&self) -> Duration {
        self.nodes.iter().map(Process::processor_time).sum()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// A LAN on loopback, with one peer.
pub struct Site {
    name: &'static str,
    port: u16,
    socket: PathBuf,
    settings: Vec<String>,
    pub peer: Option<Process>,
}

impl Site {
    /// Creates a site whose peer has these settings.
    pub fn new(cluster: &Cluster, name: &'static str, settings: &[String]) -> Outcome<Site> {
        let socket = cluster.file(&format!("{name}.sock"));
        Ok(Site { name, port: free_ports(1)?[0], socket, settings: settings.to_vec(), peer: None })
    }

    /// Puts the peer on the LAN of another one, which is the same site then.
    pub fn on_lan_of(mut self, other: &Site) -> Site {
        self.port = other.port;
        self
    }

    /// Starts the peer.
    pub fn start(&mut self) -> Outcome<()> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seqcast"));
        command.args(["peer", "--interface", "lo", "--port", &self.port.to_string(), "--log-level", "error"]);
        command.arg("--socket").arg(&self.socket).args(["--set", &format!("name={}.test", self.name)]);
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        self.peer = Some(Process::start(&mut command)?);
        until("the peer serves programs", || Ok(Bus::attach(&self.socket).is_ok()))
    }

    /// Waits until the peer carries all shares, and reads the stream if `reads`.
    pub fn wait_until_ready(&self, reads: bool) -> Outcome<()> {
        let program = self.attach()?;
        until("the gateway carries all shares", || {
            let link = link(&program)?;
            Ok(link["shares"] == 16 && (!reads || !link["durable"]["position"].is_null()))
        })
    }

    /// Connects a program.
    pub fn attach(&self) -> Outcome<Bus> {
        Bus::attach(&self.socket).map_err(|error| error.to_string())
    }

    /// Returns the processor time that the peer has used.
    pub fn processor_time(&self) -> Duration {
        self.peer.as_ref().map_or(Duration::ZERO, Process::processor_time)
    }
}

/// Returns the report of the link of a program's peer.
pub fn link(program: &Bus) -> Outcome<Value> {
    program.show("links").map(|mut report| report["link"].take()).map_err(|error| error.to_string())
}

/// Waits until a condition holds.
pub fn until(what: &str, holds: impl Fn() -> Outcome<bool>) -> Outcome<()> {
    let begun = now();
    while !holds()? {
        if PATIENCE < now().since(begun) {
            return Err(format!("not within {} s: {what}", PATIENCE.as_secs()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns ports that are free at present.
fn free_ports(count: usize) -> Outcome<Vec<u16>> {
    let bind = |_| TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string());
    let listeners: Vec<TcpListener> = (0..count).map(bind).collect::<Outcome<_>>()?;
    listeners.iter().map(|free| Ok(free.local_addr().map_err(|error| error.to_string())?.port())).collect()
}
