//! A real nats-server of a test's own.

use super::server_process::{ServerProcess, free_port};
use super::wait::wait_until;
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// A server that is killed with the value.
pub struct NatsServer {
    process: ServerProcess,
    port: u16,
}

impl NatsServer {
    /// Starts a server on a free port.
    pub fn start(arguments: &[&str]) -> NatsServer {
        NatsServer::start_on(free_port(), arguments)
    }

    /// Starts a server on this port.
    pub fn start_on(port: u16, arguments: &[&str]) -> NatsServer {
        let mut command = Command::new("nats-server");
        command.args(["--addr", "127.0.0.1", "--port", &port.to_string()]).args(arguments).stderr(Stdio::null());
        let process = ServerProcess::start("nats-server", &mut command);
        let server = NatsServer { process, port };
        wait_until(&format!("nats-server listens on port {port}"), || TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    }

    /// Returns the value of the key `link`.
    pub fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends it a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Kills it as `kill -9` does; returns the port.
    pub fn kill(self) -> u16 {
        self.port
    }
}
