//! The process of a server that a test starts.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

/// A server that is killed, as by `kill -9`, with the value.
pub struct ServerProcess(Child);

impl ServerProcess {
    /// Starts the program, without its output.
    pub fn start(program: &str, command: &mut Command) -> ServerProcess {
        let started = command.stdout(Stdio::null()).spawn();
        ServerProcess(started.unwrap_or_else(|error| panic!("{program} (tools/test installs it): {error}")))
    }

    /// Sends it a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.0.kill().expect("a process of our own");
        self.0.wait().expect("a process of our own");
    }
}

/// Returns a port on which nothing listens.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port()
}

/// Sends a process a signal by its name.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -{name} {pid}");
}
