//! The servers that are compared.

use crate::Outcome;
use crate::client::Protocol;
use std::env;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A server that this program started.
pub struct Server {
    pub name: String,
    pub address: String,
    pub child: Child,
    directory: PathBuf,
}

impl Server {
    /// Starts the server that the protocol belongs to, if it can be installed.
    pub fn foreign(protocol: Protocol) -> Outcome<Option<Server>> {
        let (name, port) = match protocol {
            Protocol::Nats => ("nats-server", free_port()?),
            Protocol::Redis => ("redis-server", free_port()?),
            Protocol::Rv => return Ok(None),
        };
        let port_text = port.to_string();
        let arguments: &[&str] = match protocol {
            Protocol::Rv => &[],
            Protocol::Nats => &["-a", "127.0.0.1", "-p", &port_text],
            Protocol::Redis => &["--bind", "127.0.0.1", "--port", &port_text, "--save", "", "--appendonly", "no"],
        };
        Server::start(name, PathBuf::from(name), arguments, port).map(Some)
    }

    /// Starts a peer with that listener and these settings.
    pub fn peer(protocol: Protocol, settings: &[&str]) -> Outcome<Server> {
        let (port, group) = (free_port()?, free_port()?);
        let socket = env::temp_dir().join(format!("seqcast-listeners-{}-{port}.sock", std::process::id()));
        let listener = format!("{}={port}", protocol.name());
        let (group, socket) = (group.to_string(), socket.display().to_string());
        let mut arguments =
            vec!["peer", "--port", &group, "--socket", &socket, "--set", &listener, "--log-level", "error"];
        settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
        Server::start("seqcast", PathBuf::from(env!("CARGO_BIN_EXE_seqcast")), &arguments, port)
    }

    fn start(name: &str, program: PathBuf, arguments: &[&str], port: u16) -> Outcome<Server> {
        let directory = env::temp_dir().join(format!("seqcast-listeners-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let child = Command::new(&program)
            .args(arguments)
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{} does not start: {error}; install it to compare with it", program.display()))?;
        Ok(Server { name: name.to_owned(), address: format!("127.0.0.1:{port}"), child, directory })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns a port that is free at present.
pub fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    Ok(listener.local_addr().map_err(|error| error.to_string())?.port())
}
