//! A daemon of the bench: a process with a directory for its socket.

use std::path::PathBuf;

use super::child::{Launch, Process};
use super::job::{DaemonJob, Drop as Dropped, Job, PeerSettings, ProcessCommand};
use super::temporary_directory;
use crate::terminal::exit::{CommandFailure, Exit};
use crate::terminal::interrupt::Interrupt;

/// A daemon and the directory of its socket. Both end with this value.
pub struct DaemonProcess {
    /// The process; `None` once it has ended.
    process: Option<Process>,
    pid: u32,
    directory: PathBuf,
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.send(ProcessCommand::Stop);
        }
        // A directory that cannot be removed remains among the temporary files.
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

impl DaemonProcess {
    /// Starts a daemon in a directory of its own, and waits until programs can attach to it.
    ///
    /// # Errors
    /// Returns why the daemon cannot start.
    pub fn start(
        launch: Launch<'_>,
        settings: &PeerSettings,
        drop: Option<Dropped>,
        interrupt: &Interrupt,
    ) -> Result<DaemonProcess, CommandFailure> {
        let directory = temporary_directory::create()?;
        let mut daemon = DaemonProcess { process: None, pid: 0, directory };
        let mut process = Process::start(launch, &Job::Daemon(DaemonJob { values: daemon.settings(settings), drop }))?;
        let ready = process.ready(interrupt)?;
        ready.map_err(|why| CommandFailure::new(Exit::Failed, why))?;
        (daemon.pid, daemon.process) = (process.id(), Some(process));
        Ok(daemon)
    }

    /// Returns these settings with the socket of this daemon.
    pub fn settings(&self, settings: &PeerSettings) -> PeerSettings {
        settings.with("bench", "socket", &self.socket().to_string_lossy())
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("peer.sock")
    }

    /// Returns the number of its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}
