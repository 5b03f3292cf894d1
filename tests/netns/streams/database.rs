//! A PostgreSQL server that is killed now and then. It runs outside of the namespaces, because it refuses to run as
//! root, which the user in there is.

use super::{now, secs};
use crate::support::TempDir;
use crate::support::postgres_server::PostgresServer;
use seqcast::rng::Rng;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Environment variable with the address of the server.
pub const URL: &str = "STREAM_CHECK_POSTGRES";

/// The server, until this is dropped.
pub struct Database {
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<u64>>,
    _dir: TempDir,
}

/// Starts it, and kills it at random as long as faults happen.
pub fn start() -> (Vec<(&'static str, String)>, Database) {
    let dir = TempDir::new();
    let server = PostgresServer::start(dir.path());
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("a directory of our own");
    // The address is its socket, which is there in every network namespace.
    let socket = dir.path().display().to_string().replace('/', "%2F");
    let url = format!("postgres://postgres@{socket}:{}/postgres", server.port());
    let (end, ended) = sync_channel(1);
    let thread = thread::spawn(move || {
        let (mut server, mut rng, mut kills, begun) = (server, Rng::new(1), 0, now());
        let mut wait = |from, to| ended.recv_timeout(Duration::from_millis(rng.between(from, to)));
        while now().since(begun) < secs() {
            let Err(RecvTimeoutError::Timeout) = wait(500, 10_000) else { return kills };
            server.kill();
            kills += 1;
            let is_over = wait(0, 2_000) != Err(RecvTimeoutError::Timeout);
            server = server.restart();
            if is_over {
                return kills;
            }
        }
        // It serves until all consumers have everything.
        let _ = ended.recv();
        kills
    });
    (vec![(URL, url)], Database { end: Some(end), thread: Some(thread), _dir: dir })
}

impl Drop for Database {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let kills = thread.join().expect("whoever kills the server does not panic");
            println!("PostgreSQL was killed {kills} times");
        }
    }
}
