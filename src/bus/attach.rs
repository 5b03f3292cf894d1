//! Attaching to the peer that runs on this host.

use super::local_connection::LocalConnection;
use super::peer_link::PeerLink;
use super::{Bus, Info, OpenError};
use crate::daemon::subscription_queue::QueueLimits;
use crate::subject::permitted_subjects::PermittedSubjects;
use std::path::Path;

/// Maximum number of notices queued for a subscription of an attached bus: enough small messages for the time that its
/// thread waits for a processor. The byte limit bounds the memory.
const QUEUE_COUNT_MAX: usize = 1_000_000;
/// Maximum bytes queued for a subscription of an attached bus.
const QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Options of a connection to the peer of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Name of the program in `show clients` and in the log of the peer, at most 255 bytes; `None`: the name of its file.
    pub name: Option<String>,
    /// True if messages pass through shared memory when the peer offers it, and else through the socket.
    pub shared_memory: bool,
}

impl Default for AttachOptions {
    fn default() -> AttachOptions {
        AttachOptions { name: None, shared_memory: true }
    }
}

impl Bus {
    /// Attaches to the peer that listens on the Unix socket `path`.
    ///
    /// # Errors
    /// No peer answers there, or it refuses.
    pub fn attach(path: impl AsRef<Path>) -> Result<Bus, OpenError> {
        Bus::attach_with(path, &AttachOptions::default())
    }

    /// Attaches like [`Bus::attach`], under a name that `show clients` and the peer's log contain.
    ///
    /// # Errors
    /// No peer answers there, or it refuses.
    pub fn attach_as(path: impl AsRef<Path>, name: &str) -> Result<Bus, OpenError> {
        Bus::attach_with(path, &AttachOptions { name: Some(name.to_owned()), ..AttachOptions::default() })
    }

    /// Attaches like [`Bus::attach`], with options.
    ///
    /// # Errors
    /// No peer answers there, or it refuses.
    pub fn attach_with(path: impl AsRef<Path>, options: &AttachOptions) -> Result<Bus, OpenError> {
        let name = options.name.clone().unwrap_or_else(|| {
            let program = std::env::args_os().next();
            let name = program.as_deref().map(Path::new).and_then(Path::file_name).map(|name| name.to_string_lossy());
            name.unwrap_or_default().into_owned()
        });
        let (local_connection, welcome) = LocalConnection::open(path.as_ref(), &name, options.shared_memory)?;
        let info = Info::from_welcome(welcome, local_connection.uses_rings());
        let limits = QueueLimits { count_max: QUEUE_COUNT_MAX, bytes_max: QUEUE_BYTES_MAX };
        let (link, publish) = (PeerLink::LocalConnection(local_connection), PermittedSubjects::all());
        Ok(Bus::new(link, info, limits, publish))
    }
}
