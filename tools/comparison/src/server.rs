//! The servers that some systems need, as processes that end with the measurement.

use anyhow::{Context, Result, bail};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time in which a server must accept connections.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running server. It is killed when this is dropped.
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts a program whose standard input stays open until this is dropped.
    pub fn start(command: &mut Command) -> Result<Server> {
        let program = command.get_program().to_owned();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.with_context(|| format!("{} cannot be started: is it installed?", program.display()))?;
        Ok(Server { child })
    }

    /// Waits until it accepts connections at a port of this host.
    pub fn await_port(self, port: u16) -> Result<Server> {
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if START_TIMEOUT < begin.elapsed() {
                bail!("nothing listens at port {port} after {START_TIMEOUT:?}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(self)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended by itself, or it ends now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port of this host that nothing used a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
