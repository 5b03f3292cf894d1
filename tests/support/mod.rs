//! Helpers that several test modules share.

pub mod bus;
pub mod certificate;
pub mod command;
pub mod dissector;
pub mod events;
pub mod exit_code;
pub mod nats_server;
pub mod postgres_server;
pub mod redis_server;
pub mod server_process;
pub mod wait;
pub mod websocket;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the top of the source tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A fresh directory that is removed with the value.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates one below the system's directory for temporary files.
    pub fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("seqcast-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a fresh directory for temporary files");
        TempDir(path)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file in a fresh directory");
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A failure here must not hide the failure of a test; leftovers lie among the temporary files.
        drop(fs::remove_dir_all(&self.0));
    }
}
