//! A real nats-server of a test's own.

use super::command::signal;
use super::wait::wait_until;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A server that is killed with the value.
pub struct NatsServer {
    child: Child,
    port: u16,
}

impl NatsServer {
    /// Starts a server on a free port.
    pub fn start(arguments: &[&str]) -> NatsServer {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        NatsServer::start_on(port, arguments)
    }

    /// Starts a server on this port.
    pub fn start_on(port: u16, arguments: &[&str]) -> NatsServer {
        let child = Command::new("nats-server")
            .args(["--addr", "127.0.0.1", "--port", &port.to_string()])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server is installed: tools/test installs it");
        let server = NatsServer { child, port };
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
        signal(self.child.id(), name);
    }

    /// Kills it as `kill -9` does; returns the port.
    pub fn kill(mut self) -> u16 {
        self.end();
        self.port
    }

    fn end(&mut self) {
        self.child.kill().expect("a process of our own");
        self.child.wait().expect("a process of our own");
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.end();
    }
}
