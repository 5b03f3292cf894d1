//! The servers that are measured: a peer, and the published implementation.

use seqcast::clock::Clock;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Timeout of everything that succeeds.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The kernel's unit of processor time, as programs see it: `getconf CLK_TCK`.
const TICKS_PER_SECOND: f64 = 100.0;

/// A server that this program started, with a directory of its own.
pub struct Server {
    pub name: &'static str,
    pub address: SocketAddr,
    /// Name of the call that polls the maximum number of events.
    pub poll: &'static str,
    child: Child,
    directory: PathBuf,
}

impl Server {
    /// Starts a peer with these settings.
    pub fn peer(settings: &[&str]) -> Server {
        let (port, group) = (free_port(), free_port().to_string());
        let directory = directory(port);
        let (listener, data) = (format!("ftn18={port}"), format!("data-dir={}", directory.display()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_seqcast"));
        command.args(["peer", "--interface", "lo", "--port", &group, "--log-level", "error", "--socket"]);
        command.arg(directory.join("peer.sock"));
        for setting in [&listener, &data].into_iter().map(String::as_str).chain(settings.iter().copied()) {
            command.args(["--set", setting]);
        }
        command.env("XDG_STATE_HOME", &directory);
        Server::start("seqcast", "futoin.evt.poll:1.1", command, port, directory)
    }

    /// Starts the published implementation, by its script.
    pub fn reference(script: &Path) -> Server {
        let port = free_port();
        let directory = directory(port);
        let mut command = Command::new("node");
        command.arg(script).arg(port.to_string()).arg(directory.join("events.db"));
        command.env("NODE_ENV", "production");
        let mut server = Server::start("reference", "futoin.evt.poll:1.0", command, port, directory);
        // It listens before it knows all calls.
        let out = server.child.stdout.take().expect("standard output is a pipe");
        assert_eq!(BufReader::new(out).lines().next().expect("a line").expect("a text"), "ready");
        server
    }

    fn start(name: &'static str, poll: &'static str, mut command: Command, port: u16, directory: PathBuf) -> Server {
        let log = fs::File::create(directory.join("log")).expect("a file of our own");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let server = Server { name, address, poll, child, directory };
        let begun = Clock::now().instant;
        while TcpStream::connect(address).is_err() {
            assert!(Clock::now().instant.since(begun) < PATIENCE, "{name} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Returns the path of a file in the server's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the processor time that the server has used, user and kernel.
    pub fn processor_time(&self) -> Duration {
        processor_time(&self.child.id().to_string())
    }

    /// Returns the present memory of the server, in bytes.
    pub fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).expect("it is there");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        1024 * line.and_then(|number| number.parse::<u64>().ok()).expect("a number of kilobytes")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// Returns the processor time of a process: a number, or `self`.
pub fn processor_time(process: &str) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it is there");
    // The name before the last bracket may hold anything; user and system time are the 12th and 13th behind it.
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks: f64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Duration::from_secs_f64(ticks / TICKS_PER_SECOND)
}

fn directory(port: u16) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("seqcast-bench-streams-{}-{port}", std::process::id()));
    fs::create_dir(&directory).expect("a directory of our own");
    directory
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port()
}
