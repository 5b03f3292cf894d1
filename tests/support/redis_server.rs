//! A real redis-server of a test's own.

use super::server_process::{ServerProcess, free_port};
use super::wait::wait_until;
use redis::{Client, Connection};
use std::path::Path;
use std::process::Command;

/// A server that is killed with the value.
pub struct RedisServer {
    process: ServerProcess,
    port: u16,
}

impl RedisServer {
    /// Starts a server on a free port that keeps its data in `dir`; `arguments` as redis-server knows them.
    pub fn start(dir: &Path, arguments: &[&str]) -> RedisServer {
        RedisServer::start_on(free_port(), dir, arguments)
    }

    /// Starts a server that loses no acknowledged write.
    pub fn durable(dir: &Path) -> RedisServer {
        RedisServer::start(dir, DURABLE)
    }

    /// Starts a server as `start` does, on this port.
    pub fn start_on(port: u16, dir: &Path, arguments: &[&str]) -> RedisServer {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(dir);
        command.args(["--save", "", "--loglevel", "warning", "--repl-diskless-sync-delay", "0"]).args(arguments);
        let process = ServerProcess::start("redis-server", &mut command);
        let server = RedisServer { process, port };
        // It answers LOADING before it can be used.
        wait_until(&format!("redis-server on port {port} answers"), || {
            let answers = |mut connection: Connection| redis::cmd("DBSIZE").exec(&mut connection).is_ok();
            server.client().get_connection().is_ok_and(answers) || server.needs_password()
        });
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    fn client(&self) -> Client {
        Client::open(self.url()).expect("an address")
    }

    fn needs_password(&self) -> bool {
        let Ok(mut connection) = self.client().get_connection() else { return false };
        redis::cmd("DBSIZE").exec(&mut connection).is_err_and(|error| error.code() == Some("NOAUTH"))
    }

    pub fn connection(&self) -> Connection {
        self.client().get_connection().expect("it answers")
    }

    /// Runs one command with its arguments.
    pub fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.connection()).expect("a command that it knows")
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

/// Arguments with which every answered write is on the disk.
pub const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];
