//! What can be wrong with a journal's file, and what mends it.

use crate::daemon::sqlite_file::{FileSignature, SqliteFileError, is_corruption};
use crate::event::model::{EventId, ServerId};
use rusqlite::{ErrorCode, ffi};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Servers that are named at most where one that is not known is asked for.
const SERVERS_NAMED: usize = 16;

/// Why a journal cannot be opened. Nothing was changed or deleted.
#[derive(Debug)]
pub enum JournalOpenError {
    /// The file is no journal of events.
    Foreign(PathBuf),
    /// The file is of another version of this program.
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        version: i32,
        /// The one that this program knows.
        known: i32,
    },
    /// The file ends before its end.
    Truncated {
        /// Which file.
        path: PathBuf,
        /// How long it is.
        bytes: u64,
        /// How long it should be.
        wanted: u64,
    },
    /// The file is damaged.
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What was found, in the words of SQLite.
        why: String,
    },
    /// Another peer writes to it.
    InUse(PathBuf),
    /// The disk has no room for what a file needs to be opened.
    Full(PathBuf),
    /// The system or SQLite refuses something.
    Refused {
        /// Of which file.
        path: PathBuf,
        /// What it said.
        why: String,
    },
}

impl JournalOpenError {
    pub(super) fn file_error(path: &Path, mark: FileSignature, file_error: SqliteFileError) -> JournalOpenError {
        match file_error {
            SqliteFileError::Foreign(_) => JournalOpenError::Foreign(path.to_owned()),
            SqliteFileError::Version(version) => {
                JournalOpenError::Version { path: path.to_owned(), version, known: mark.version }
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
            _ => JournalOpenError::Refused { path, why: error.to_string() },
        }
    }

    pub(super) fn of_sqlite(path: &Path, error: rusqlite::Error) -> JournalOpenError {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            _ if is_full(&error) => JournalOpenError::Full(path),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                JournalOpenError::Damaged { path, why: error.to_string() }
            }
            _ => JournalOpenError::Refused { path, why: error.to_string() },
        }
    }
}

impl fmt::Display for JournalOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is done to a file must not make ids come again.
        const KEPT: &str = "nothing was changed. Begin anew: move it away, with the -wal beside it, and change server-id unless that is \
            auto. Or restore a copy, with the -wal that lay beside it, and set a server-id that was never used: ids given since the copy \
            would come again";
        match self {
            JournalOpenError::Foreign(path) => {
                write!(
                    f,
                    "{} is no journal of events: set data-dir to another place, or move the file away",
                    path.display()
                )
            }
            JournalOpenError::Version { path, version, known } => write!(
                f,
                "the journal {} has version {version}, this program knows {known}: start the program that wrote it",
                path.display()
            ),
            JournalOpenError::Truncated { path, bytes, wanted } => {
                write!(f, "the journal {} has {bytes} of {wanted} bytes; {KEPT}", path.display())
            }
            JournalOpenError::Damaged { path, why } => {
                write!(f, "the journal {} is damaged ({why}); {KEPT}", path.display())
            }
            JournalOpenError::InUse(path) => {
                write!(f, "another peer uses the journal {}: stop it, or give each its own data-dir", path.display())
            }
            JournalOpenError::Full(path) => {
                write!(f, "no room on the disk of the journal {}: make room, then try again", path.display())
            }
            JournalOpenError::Refused { path, why } => write!(
                f,
                "cannot open the journal {}: {why}; let this user read and write it and its directory, or set data-dir to another place",
                path.display()
            ),
        }
    }
}

impl std::error::Error for JournalOpenError {}

/// Why a journal cannot do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The disk is full. What was asked is not done; it can be asked again.
    Full,
    /// The file is damaged: what was found.
    Damaged(String),
    /// A session or an instance of 2^63 or more, which a file cannot hold.
    Range,
    /// A question names an event that is not there, or not any more.
    NoEvent(EventId),
    /// A question names a server of which there never was an event; those of which there were.
    NoServer(ServerId, Vec<ServerId>),
    /// SQLite refuses it, in its words.
    Sqlite(String),
    /// So many requests wait that no other is taken.
    Busy,
    /// The thread that writes the journal has panicked. Whether what it was asked is done is not known.
    Ended,
}

impl StoreError {
    /// In the file stands what no program of ours writes.
    pub(super) fn damaged(what: &str) -> StoreError {
        StoreError::Damaged(format!("it holds {what} that cannot be one"))
    }
}

/// Whether there is no room, be it for the file, its WAL, or the index of that.
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
            StoreError::Full => write!(f, "no room on the disk of the journal: make room, then try again"),
            StoreError::Damaged(why) => write!(
                f,
                "the journal, events.db in the peer's data-dir, is damaged ({why}), and this was not done: stop the peer, then begin anew or restore a copy as \
                 docs/events.md says"
            ),
            StoreError::Range => write!(f, "an id in which a number is 2^63 or more cannot be stored"),
            StoreError::NoEvent(id) => write!(
                f,
                "the journal does not hold the event {id}, or not any more: ask from a time on, not from an event"
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
                "the journal refused this ({error}): look at its disk and at the rights of its directory, then try again"
            ),
            StoreError::Busy => {
                write!(f, "too many requests wait for the journal: wait for answers before asking more")
            }
            StoreError::Ended => write!(
                f,
                "the thread of the journal has ended (see what the peer has told on standard error); whether this was stored is not \
                 known: restart the peer, then look"
            ),
        }
    }
}

impl std::error::Error for StoreError {}
