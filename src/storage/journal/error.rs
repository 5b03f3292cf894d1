//! Errors of a journal's file, whose texts name the remedy.

use crate::event::model::{EventId, ServerId};
use crate::storage::sqlite_file::{FileSignature, SqliteFileError, is_corruption};
use rusqlite::{ErrorCode, ffi};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of servers that an error names if a query names an unknown server.
const SERVERS_NAMED: usize = 16;

/// Reason why a journal cannot be opened. The file is unchanged.
#[derive(Debug)]
pub enum JournalOpenError {
    /// The file is not a journal of events.
    Foreign(PathBuf),
    /// The file was written by another version of this program.
    Version {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        version: i32,
        /// The version that this program supports.
        supported: i32,
    },
    /// The file is shorter than its pages require.
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length of the file in bytes.
        bytes: u64,
        /// The length in bytes that it should have.
        wanted: u64,
    },
    /// The file is damaged.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// Another peer writes to it.
    InUse(PathBuf),
    /// The disk has too little space to open the file.
    Full(PathBuf),
    /// The system or SQLite refuses an operation.
    Refused {
        /// The file of the operation.
        path: PathBuf,
        /// Error message of the system or SQLite.
        reason: String,
    },
}

impl JournalOpenError {
    pub(super) fn file_error(path: &Path, signature: FileSignature, file_error: SqliteFileError) -> JournalOpenError {
        match file_error {
            SqliteFileError::Foreign(_) => JournalOpenError::Foreign(path.to_owned()),
            SqliteFileError::Version(version) => {
                JournalOpenError::Version { path: path.to_owned(), version, supported: signature.version }
            }
            SqliteFileError::Truncated { bytes, wanted } => {
                JournalOpenError::Truncated { path: path.to_owned(), bytes, wanted }
            }
            SqliteFileError::System(error) => JournalOpenError::of_system(path, error),
            SqliteFileError::Sqlite(error) => JournalOpenError::of_sqlite(path, error),
        }
    }

    pub(super) fn of_system(path: &Path, error: io::Error) -> JournalOpenError {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => JournalOpenError::Full(path),
            _ => JournalOpenError::Refused { path, reason: error.to_string() },
        }
    }

    pub(super) fn of_sqlite(path: &Path, error: rusqlite::Error) -> JournalOpenError {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            _ if is_full(&error) => JournalOpenError::Full(path),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                JournalOpenError::Damaged { path, reason: error.to_string() }
            }
            _ => JournalOpenError::Refused { path, reason: error.to_string() },
        }
    }
}

impl fmt::Display for JournalOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No repair of a file may cause event ids to be assigned twice.
        const REMEDY: &str = "nothing was changed. To start a new journal, move the file and its -wal away, and change server-id unless that is \
            auto. Or restore a copy with its -wal, and set a server-id that was never used: the ids assigned since the copy would \
            be assigned again";
        match self {
            JournalOpenError::Foreign(path) => {
                write!(
                    f,
                    "{} is no journal of events; set data-dir to another place, or move the file away",
                    path.display()
                )
            }
            JournalOpenError::Version { path, version, supported } => write!(
                f,
                "the journal {} has version {version}, this program knows {supported}; start the program that wrote it",
                path.display()
            ),
            JournalOpenError::Truncated { path, bytes, wanted } => {
                write!(f, "the journal {} has {bytes} of {wanted} bytes; {REMEDY}", path.display())
            }
            JournalOpenError::Damaged { path, reason } => {
                write!(f, "the journal {} is damaged ({reason}); {REMEDY}", path.display())
            }
            JournalOpenError::InUse(path) => {
                write!(f, "another peer uses the journal {}; stop it, or give each its own data-dir", path.display())
            }
            JournalOpenError::Full(path) => {
                write!(f, "the disk of the journal {} is full; make room, then try again", path.display())
            }
            JournalOpenError::Refused { path, reason } => write!(
                f,
                "cannot open the journal {}: {reason}; let this user read and write it and its directory, or set data-dir to another place",
                path.display()
            ),
        }
    }
}

impl std::error::Error for JournalOpenError {}

/// Reason why a journal rejects an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The disk is full. The operation had no effect and can be repeated.
    Full,
    /// The file is damaged. Holds a description of the damage.
    Damaged(String),
    /// An event id has a session or an instance of 2^63 or more, which the file cannot store.
    Range,
    /// A query names an event that the journal does not store, or no longer stores.
    NoEvent(EventId),
    /// A query names a server of which the journal never stored an event. The list has the servers of stored events.
    NoServer(ServerId, Vec<ServerId>),
    /// SQLite refuses the operation. Holds its message.
    Sqlite(String),
    /// Too many requests are pending. The request had no effect.
    Busy,
    /// The journal's writer thread has panicked. The outcome of the request is unknown.
    Ended,
}

impl StoreError {
    /// Returns the error for a value that no version of this program writes.
    pub(super) fn damaged(what: &str) -> StoreError {
        StoreError::Damaged(format!("it holds {what} with an invalid value"))
    }
}

/// Returns whether the disk has no space for the file, its WAL, or the WAL's index.
fn is_full(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| (error.code, error.extended_code));
    code.is_some_and(|(code, extended)| code == ErrorCode::DiskFull || extended == ffi::SQLITE_IOERR_SHMSIZE)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        match error {
            error if is_full(&error) => StoreError::Full,
            error if is_corruption(&error) => StoreError::Damaged(error.to_string()),
            error => StoreError::Sqlite(error.to_string()),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Full => write!(f, "the disk of the journal is full: make room, then try again"),
            StoreError::Damaged(reason) => write!(
                f,
                "the journal, events.db in the peer's data-dir, is damaged ({reason}), and the request was not done: stop the peer, then restore a copy of it, or move it and its -wal \
                 away and change server-id"
            ),
            StoreError::Range => write!(f, "an id in which a number is 2^63 or more cannot be stored"),
            StoreError::NoEvent(id) => write!(
                f,
                "the journal does not hold the event {id}, or no longer: query from a time instead of an event"
            ),
            StoreError::NoServer(server, known) => {
                write!(f, "the journal has no events of server {server}; it has ")?;
                let names: Vec<String> = known.iter().take(SERVERS_NAMED).map(ServerId::to_string).collect();
                match names.len() {
                    0 => write!(f, "none at all"),
                    named if named < known.len() => write!(f, "those of {} and others", names.join(", ")),
                    _ => write!(f, "those of {}", names.join(", ")),
                }
            }
            StoreError::Sqlite(error) => write!(
                f,
                "the journal refused the request ({error}): look at its disk and at the rights of its directory, then try again"
            ),
            StoreError::Busy => {
                write!(f, "too many requests wait for the journal: wait for answers before sending more")
            }
            StoreError::Ended => write!(
                f,
                "the thread of the journal has ended (see the standard error of the peer); whether the events were stored is \
                 unknown: restart the peer, then check"
            ),
        }
    }
}

impl std::error::Error for StoreError {}
