//! The Unix socket of the peer, and the connection of one attached client.

use crate::config::Config;
use crate::daemon::client_process::ClientProcess;
use crate::daemon::connection_state::{ConnectionState, ReadOutcome};
use crate::daemon::local_rings::LocalRings;
use crate::daemon::outbox::{ClientOutbox, PushOutcome};
use crate::daemon::subscription_queue::QueueLimits;
use crate::listener::frame::{ClientFrame, LentPayload};
use crate::listener::local::{LocalFault, PeerEndpoint, ProtocolViolation};
use crate::message::SubId;
use crate::shared_memory::{OwnBuffer, hand_over};
use crate::subject::Subject;
use mio::net::{UnixListener, UnixStream};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Gid, Group};
use std::fmt;
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Mode of the socket until it has its group: its owner may connect.
const PRIVATE_MODE: u32 = 0o600;
/// Mode of the directories created for the socket.
const DIRECTORY_MODE: u32 = 0o700;
/// Number of tries to lock the directory, and their interval: one second in total.
const LOCK_TRIES: u32 = 50;
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Reason why the Unix socket could not be opened. The text names the fix.
#[derive(Debug)]
#[non_exhaustive]
pub enum SocketError {
    /// Another peer listens on the socket.
    Running(PathBuf),
    /// A file that is no socket has the name.
    NotASocket(PathBuf),
    /// The default directory is not one that this user would have created.
    Directory(DirectoryError),
    /// The configured group cannot be used.
    Group(GroupError),
    /// The system refused another operation.
    System {
        /// Operation that failed.
        step: &'static str,
        /// Path of the socket.
        path: PathBuf,
        /// Error that the system returned.
        error: io::Error,
    },
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketError::Running(path) => {
                write!(f, "a peer is already running at {}; use --socket to run another one beside it", path.display())
            }
            SocketError::NotASocket(path) => {
                write!(f, "{} exists and is no socket; remove it or use --socket", path.display())
            }
            SocketError::Directory(error) => error.fmt(f),
            SocketError::Group(error) => write!(f, "socket-group: {error}"),
            SocketError::System { step, path, error } => {
                write!(f, "cannot {step} {}: {error}; use --socket for another place", path.display())
            }
        }
    }
}

impl std::error::Error for SocketError {}

/// Reason why the socket cannot have the configured group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// The host has no group of this name.
    Unknown(String),
    /// The user of the peer is not a member of the group of this name.
    NotMember(String),
    /// The system cannot look up the group of this name; holds its error.
    Lookup(String, nix::errno::Errno),
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::Unknown(name) => {
                write!(f, "there is no group {name} on this host; create it (groupadd {name}), or write another one")
            }
            GroupError::NotMember(name) => {
                write!(f, "the user of the peer is not a member of {name}; add it to the group, or write another one")
            }
            GroupError::Lookup(name, error) => write!(f, "cannot look up the group {name}: {error}"),
        }
    }
}

impl std::error::Error for GroupError {}

/// Finds a group by its name or its number.
///
/// # Errors
/// There is no group of this name, or the system cannot look it up.
pub(crate) fn find_group(name: &str) -> Result<Gid, GroupError> {
    if let Ok(number) = name.parse() {
        return Ok(Gid::from_raw(number));
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(GroupError::Unknown(name.to_owned())),
        Err(error) => Err(GroupError::Lookup(name.to_owned(), error)),
    }
}

/// Users that may connect to the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketAccess {
    /// Mode of the file.
    pub(crate) mode: u32,
    /// Name or number of its group; `None` leaves it to the system.
    pub(crate) group: Option<String>,
}

impl SocketAccess {
    /// Returns the access that a configuration permits.
    pub(crate) fn of(config: &Config) -> SocketAccess {
        SocketAccess { mode: config.socket_mode, group: config.socket_group.clone() }
    }

    /// Gives the file at this path its group and its mode.
    fn apply(&self, path: &Path) -> Result<(), SocketError> {
        let system = |step| move |error| SocketError::System { step, path: path.to_owned(), error };
        if let Some(name) = &self.group {
            let group = find_group(name).map_err(SocketError::Group)?;
            std::os::unix::fs::chown(path, None, Some(group.as_raw())).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => SocketError::Group(GroupError::NotMember(name.clone())),
                _ => system("set the group of")(error),
            })?;
        }
        fs::set_permissions(path, Permissions::from_mode(self.mode)).map_err(system("set the mode of"))
    }
}

/// Reason why the default directory of the socket, `/tmp/seqcast-UID`, cannot be trusted: anyone may create a file of
/// that name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It belongs to another user, or is no directory.
    NotOurs(PathBuf),
    /// Other users may write to it; the number is its mode.
    Writable(PathBuf, u32),
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectoryError::NotOurs(path) => {
                write!(f, "{} is not a directory of this user; remove it or use --socket", path.display())
            }
            DirectoryError::Writable(path, mode) => {
                let path = path.display();
                write!(f, "others may write in {path} (mode {mode:o}); chmod 700 {path}, or use --socket")
            }
        }
    }
}

/// Checks the directory of this socket if it exists and has the name of the default one. Any other directory is the
/// user's choice.
pub(crate) fn check_directory(socket: &Path) -> Result<(), DirectoryError> {
    let uid = nix::unistd::getuid().as_raw();
    let is_default = |directory: &&Path| directory.file_name().is_some_and(|name| *name == *format!("seqcast-{uid}"));
    let Some(directory) = socket.parent().filter(is_default) else { return Ok(()) };
    // An inaccessible directory cannot be used either; the attempt to use it reports that.
    let Ok(metadata) = fs::symlink_metadata(directory) else { return Ok(()) };
    let mode = metadata.mode() & 0o777;
    match () {
        () if !metadata.is_dir() || metadata.uid() != uid => Err(DirectoryError::NotOurs(directory.to_owned())),
        () if mode & 0o022 != 0 => Err(DirectoryError::Writable(directory.to_owned(), mode)),
        () => Ok(()),
    }
}

/// The listening socket. Dropping it removes its file, unless another socket has replaced the file.
#[derive(Debug)]
pub(crate) struct LocalSocket {
    pub(crate) socket: UnixListener,
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
}

impl LocalSocket {
    /// Listens at `path` for the users that `access` permits. Creates the directory if it is missing, and replaces the
    /// socket of a peer that crashed.
    pub(crate) fn bind(path: &Path, access: &SocketAccess) -> Result<LocalSocket, SocketError> {
        let system = |step| move |error| SocketError::System { step, path: path.to_owned(), error };
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory)
            .map_err(system("make the directory of"))?;
        check_directory(path).map_err(SocketError::Directory)?;
        let _guard = lock_directory(directory);
        remove_stale_socket(path)?;
        let open = || {
            let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM.nonblocking(), None)?;
            // Linux gives the file the mode of the socket, less the umask. So the socket is never open to other users
            // than configured, not even briefly.
            File::from(OwnedFd::from(socket.try_clone()?)).set_permissions(Permissions::from_mode(PRIVATE_MODE))?;
            socket.bind(&socket2::SockAddr::unix(path)?)?;
            Ok(socket)
        };
        let socket = open().map_err(system("listen at"))?;
        let file = fs::symlink_metadata(path).map_err(system("look at"))?;
        let listener = UnixListener::from_std(OwnedFd::from(socket.try_clone().map_err(system("listen at"))?).into());
        // From here on the file is removed if anything fails.
        let local = LocalSocket { socket: listener, path: path.to_owned(), identity: (file.dev(), file.ino()) };
        access.apply(path)?;
        socket.listen(BACKLOG).map_err(system("listen at"))?;
        Ok(local)
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.identity);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "socket file not removed");
        }
    }
}

/// Locks the directory of the socket. Two peers that start at once must not both find a stale socket and remove each
/// other's, so each holds the lock while it looks. If the lock is not available in time, the peer starts without it.
fn lock_directory(directory: &Path) -> Option<File> {
    let file = File::open(directory).ok()?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    tracing::debug!(directory = %directory.display(), "another program holds a lock on the directory");
    None
}

/// Removes a socket on which no process listens.
fn remove_stale_socket(path: &Path) -> Result<(), SocketError> {
    let system = |step| move |error| SocketError::System { step, path: path.to_owned(), error };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system("look at")(error)),
        Ok(file) if !file.file_type().is_socket() => return Err(SocketError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    // The socket does not block: a peer too busy to accept is running too, and the kernel answers "would block".
    let connect = || {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM.nonblocking(), None)?;
        socket.connect(&socket2::SockAddr::unix(path)?)
    };
    match connect() {
        Ok(()) => Err(SocketError::Running(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(SocketError::Running(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(system("remove the stale socket"))?;
            tracing::info!(path = %path.display(), "removed the socket of a peer that crashed");
            Ok(())
        }
        Err(error) => Err(system("try the socket")(error)),
    }
}

/// Connection of one attached client: its stream, its protocol state, and its unwritten output.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    pub(crate) endpoint: PeerEndpoint,
    pub(crate) outbox: ClientOutbox,
    /// Process of the client, if the kernel reports it.
    pub(crate) process: Option<ClientProcess>,
    pub(crate) flow: ConnectionState,
    /// True once the client has sent its HELLO.
    pub(crate) is_greeted: bool,
    /// Frame that precedes all buffered input and must wait while publishers are blocked.
    pub(crate) waiting: Option<ClientFrame>,
    /// Subject of the last run of messages; the next run often has the same one.
    pub(crate) subject: Option<Subject>,
    /// True once the client has requested shared memory.
    pub(crate) has_requested_memory: bool,
    /// Rings that carry the frames in place of the stream, if the peer has granted the request.
    pub(crate) rings: Option<LocalRings>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream, limits: QueueLimits) -> Connection {
        Connection {
            process: getsockopt(&stream, PeerCredentials)
                .ok()
                .map(|credentials| ClientProcess::new(credentials.pid(), credentials.uid())),
            stream,
            endpoint: PeerEndpoint::new(),
            outbox: ClientOutbox::new(limits),
            flow: ConnectionState::new(),
            is_greeted: false,
            waiting: None,
            subject: None,
            has_requested_memory: false,
            rings: None,
        }
    }

    /// Returns whether the client may have input that the engine can process now. Doorbells never wait.
    pub(crate) fn has_input(&self, is_publish_blocked: bool) -> bool {
        if self.rings.is_some() && self.flow.is_readable {
            return true;
        }
        let must_wait = self.flow.is_closing || (is_publish_blocked && self.waiting.is_some());
        !must_wait && !self.outbox.is_backpressured() && (self.flow.has_buffered_input || self.is_readable())
    }

    /// Wakes the client if it has shared memory and waits until its ring is read.
    pub(crate) fn wake_waiting_writer(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.wake_waiting_writer(&self.stream);
        }
    }

    /// Returns whether a read may have an outcome.
    pub(crate) fn is_readable(&self) -> bool {
        !self.flow.is_closing && self.rings.as_ref().map_or(self.flow.is_readable, LocalRings::has_input)
    }

    /// Reads pending doorbells through `scratch`, if the client has shared memory. At the end of the socket the output
    /// is discarded.
    ///
    /// # Errors
    /// Returns the fault of the client in the shared memory.
    pub(crate) fn read_doorbells(&mut self, scratch: &mut [u8]) -> Result<ReadOutcome, LocalFault> {
        let Some(rings) = &mut self.rings else { return Ok(ReadOutcome::Nothing) };
        let outcome = rings.read_doorbells(&mut self.flow, &mut self.stream, scratch);
        if self.flow.is_write_closed() {
            self.outbox.discard();
        }
        outcome
    }

    /// Stores a detached copy of the last run's subject.
    pub(crate) fn cache_subject(&mut self, subject: &Subject) {
        if self.subject.as_ref() != Some(subject) {
            self.subject = Some(subject.detached());
        }
    }

    /// Reads once through `scratch` into the protocol parser.
    ///
    /// # Errors
    /// Returns the fault of the client in the shared memory.
    pub(crate) fn read(&mut self, scratch: &mut [u8]) -> Result<ReadOutcome, LocalFault> {
        match &mut self.rings {
            Some(rings) => rings.read(&mut self.endpoint),
            None => Ok(self.flow.read(&mut self.stream, false, scratch, |bytes| self.endpoint.push(bytes))),
        }
    }

    /// Copies the payload of the client's present frame, which is in a buffer, into `payload`. Returns false if this
    /// process may not have the buffer.
    ///
    /// # Errors
    /// The client has sent no buffer, or something else.
    pub(crate) fn read_buffer(&mut self, lent: LentPayload, payload: &mut [u8]) -> Result<bool, LocalFault> {
        match &mut self.rings {
            Some(rings) => rings.read_buffer(&mut self.flow, &self.stream, lent, payload),
            None => Err(LocalFault::ProtocolViolation(ProtocolViolation::BufferMissing)),
        }
    }

    /// Returns whether the client has room for a payload of `bytes` bytes, and may get it in a buffer.
    pub(crate) fn can_borrow(&mut self, bytes: usize) -> bool {
        self.release_buffers();
        self.outbox.has_room(bytes) && self.rings.as_mut().is_some_and(|rings| !rings.lent.is_full(bytes))
    }

    /// Queues a message whose payload of `payload_bytes` bytes is in a buffer, and lends the buffer to the client. `body` is
    /// the body without the payload. Returns `None` if the client cannot have the buffer now.
    pub(crate) fn push_buffer(
        &mut self,
        subs: &[SubId],
        body: &[u8],
        buffer: &OwnBuffer,
        payload_bytes: usize,
    ) -> Option<PushOutcome> {
        let rings = self.rings.as_mut()?;
        let is_new = !rings.lent.is_known(buffer);
        let payload = LentPayload { bytes: payload_bytes, index: buffer.index(), is_new };
        let (tail, stream, lent) = (rings.tail(), &self.stream, &mut rings.lent);
        self.outbox.push_buffer(subs, body, payload, tail, || {
            let is_lent = !lent.is_full(payload_bytes) && (!is_new || hand_over(stream, buffer.memory()));
            if is_lent {
                lent.lend(buffer);
            }
            is_lent
        })
    }

    /// Stops counting the buffers whose frames the client has read.
    pub(crate) fn release_buffers(&mut self) {
        // A wrong counter ends the connection when the ring is used.
        if self.outbox.has_unread_buffers()
            && let Some(Ok(head)) = self.rings.as_mut().map(LocalRings::head)
        {
            self.outbox.on_read(head);
        }
    }

    /// Writes pending output, as far as the stream takes it. Returns false at the end of a connection that the peer
    /// closes.
    pub(crate) fn write(&mut self) -> bool {
        let is_open = self.flow.write(|| match &mut self.rings {
            Some(rings) => rings.write(&mut self.outbox, &self.stream),
            None => self.outbox.write_to(&mut self.stream),
        });
        if self.flow.is_write_closed() {
            self.outbox.discard();
        }
        is_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::random_u64;

    fn temporary_path() -> PathBuf {
        std::env::temp_dir().join(format!("seqcast-{:016x}", random_u64()))
    }

    fn bind(path: &Path) -> Result<LocalSocket, SocketError> {
        LocalSocket::bind(path, &SocketAccess { mode: 0o660, group: None })
    }

    #[test]
    fn socket_has_the_mode_and_group() {
        let directory = temporary_path();
        let path = directory.join("peer.sock");
        let group = nix::unistd::getgid().to_string();
        for mode in [0o600, 0o660, 0o666] {
            let access = SocketAccess { mode, group: Some(group.clone()) };
            let _listener = LocalSocket::bind(&path, &access).unwrap();
            let file = fs::metadata(&path).unwrap();
            assert_eq!((file.permissions().mode() & 0o777, file.gid().to_string()), (mode, group.clone()));
        }
        let access = SocketAccess { mode: 0o660, group: Some("no-such-group".to_owned()) };
        let error = LocalSocket::bind(&path, &access).unwrap_err();
        assert!(matches!(&error, SocketError::Group(GroupError::Unknown(name)) if name == "no-such-group"), "{error}");
        assert!(!path.exists(), "a peer that does not start leaves no socket");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn socket_is_private_and_removed_with_its_peer() {
        let directory = temporary_path();
        let path = directory.join("deep").join("peer.sock");
        let listener = bind(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap()), mode(&directory)), (0o660, 0o700, 0o700));
        let text = bind(&path).unwrap_err().to_string();
        assert!(text.contains("already running") && text.contains("--socket"), "{text}");
        drop(listener);
        assert!(!path.exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn default_directory_writable_by_others_is_refused() {
        let above = temporary_path();
        let directory = above.join(format!("seqcast-{}", nix::unistd::getuid()));
        let path = directory.join("peer.sock");
        assert_eq!(check_directory(&path), Ok(()), "a missing directory is created");
        drop(bind(&path).unwrap());
        for mode in [0o720, 0o702] {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            let text = bind(&path).unwrap_err().to_string();
            assert!(text.contains(&format!("mode {mode:o}")) && text.contains("chmod 700"), "{text}");
        }
        fs::set_permissions(&directory, Permissions::from_mode(0o750)).unwrap();
        drop(bind(&path).unwrap());
        let elsewhere = above.join("elsewhere");
        fs::rename(&directory, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &directory).unwrap();
        let Err(SocketError::Directory(error)) = bind(&path) else { panic!("a link is refused") };
        assert_eq!(error, DirectoryError::NotOurs(directory));
        fs::set_permissions(&elsewhere, Permissions::from_mode(0o777)).unwrap();
        drop(bind(&elsewhere.join("peer.sock")).unwrap());
        fs::remove_dir_all(above).unwrap();
    }

    #[test]
    fn stale_socket_is_replaced_and_other_files_kept() {
        let directory = temporary_path();
        fs::create_dir(&directory).unwrap();
        let path = directory.join("peer.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a crashed peer leaves its socket");
        let first = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = bind(&path).unwrap();
        drop(first);
        assert!(path.exists(), "the first one must not remove the second one's socket");
        drop(second);
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&path), Err(SocketError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_dir_all(directory).unwrap();
    }
}
