//! The shared state in a SQLite file, for several processes of one host.
//!
//! | table | row |
//! |---|---|
//! | `state` | the generation, the count of its last stamp, and the file in which it began; one row |
//! | `object` | an object: `OBJ:data`, `OBJ:last.event.id`, `OBJ:event.worker` |
//! | `event` | an event in `OBJ:events`, in the order of `number` |
//! | `queue` | an entry of `objects.with.events`, in the order of `number` |
//! | `worker` | a worker: its session, and `event.worker:W:object` with the lease |
//! | `process` | an event in `event.worker:W:event`, with its id |
//!
//! Each step is a transaction, and survives a crash of the host once the store returns its outcome: WAL with
//! `synchronous=FULL` (<https://sqlite.org/wal.html>). Only copies and restores of files can therefore lose data. The
//! state records the file in which its generation began, by inode and time of birth. In a copy a new generation must
//! begin. A restore may also overwrite the file in place, or remove the `-wal` file beside it. Only a client that
//! remembers a higher stamp detects such a restore.

mod step;

use super::error::{OrderError, OrderFault};
use crate::event::order::store::{OpOutcome, Store, StoreOp};
use crate::storage::sqlite_file::{
    FileSignature, SqliteFileError, check_header, is_corruption, retry_busy, sibling_path,
};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use step::StepTransaction;

/// "sqor". In version 1 a worker had one event in process, not a batch.
const SIGNATURE: FileSignature = FileSignature { application_id: 0x7371_6f72, version: 2 };

const SCHEMA: &str = "
    CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL, count INTEGER NOT NULL, file TEXT NOT NULL
    ) STRICT;
    CREATE TABLE object (
        name TEXT PRIMARY KEY, data BLOB NOT NULL, last INTEGER, owner TEXT, token INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE event (number INTEGER PRIMARY KEY, object TEXT NOT NULL, payload BLOB NOT NULL) STRICT;
    CREATE INDEX event_object ON event (object, number);
    CREATE TABLE queue (number INTEGER PRIMARY KEY, object TEXT NOT NULL) STRICT;
    CREATE TABLE worker (
        name TEXT PRIMARY KEY, session INTEGER NOT NULL, object TEXT, lease_end INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE process (id INTEGER PRIMARY KEY, worker TEXT NOT NULL, payload BLOB NOT NULL) STRICT;
    CREATE INDEX process_worker ON process (worker, id);
    CREATE INDEX worker_lease ON worker (lease_end, object, name) WHERE object IS NOT NULL;
";

/// A shared state in a file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    /// Identity of the file.
    identity: String,
}

impl SqliteStore {
    /// Returns whether the file exists, or only its WAL remains.
    pub fn exists(path: &Path) -> bool {
        path.exists() || sibling_path(path, "-wal").exists()
    }

    /// Opens the file, or creates it. Other processes of this host may have it open.
    ///
    /// # Errors
    /// The file has no shared state, is damaged, is of another version, or the system refuses to open it. The file is
    /// then unchanged.
    pub fn open(path: &Path) -> Result<SqliteStore, OrderError> {
        let error_of = |fault| OrderError { location: path.display().to_string(), fault };
        let failed = |error| error_of(fault(&error));
        check_header(path).map_err(|error| error_of(file_error(error)))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_handler(Some(retry_busy)).map_err(failed)?;
        SIGNATURE.check(path, &connection).map_err(|error| error_of(file_error(error)))?;
        connection.set_prepared_statement_cache_capacity(64);
        connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        SIGNATURE.create_tables(&mut connection, SCHEMA).map_err(failed)?;
        let identity = identity(path).map_err(|error| error_of(OrderFault::Unreachable(error.to_string())))?;
        Ok(SqliteStore { connection, path: path.to_owned(), identity })
    }
}

impl Store for SqliteStore {
    type Error = OrderError;

    fn apply(&mut self, op: &StoreOp) -> Result<OpOutcome, OrderError> {
        let error_of = |fault| OrderError { location: self.path.display().to_string(), fault };
        if identity(&self.path).ok().as_ref() != Some(&self.identity) {
            return Err(error_of(OrderFault::Replaced));
        }
        let is_reading = matches!(op, StoreOp::ReadMark | StoreOp::Show { .. });
        let behavior = if is_reading { TransactionBehavior::Deferred } else { TransactionBehavior::Immediate };
        let transaction =
            self.connection.transaction_with_behavior(behavior).map_err(|error| error_of(fault(&error)))?;
        let outcome = StepTransaction::begin(&transaction, &self.identity)
            .and_then(|mut steps| {
                let outcome = steps.apply(op)?;
                steps.end()?;
                Ok(outcome)
            })
            .map_err(|error| error_of(fault(&error)))?;
        transaction.commit().map_err(|error| match fault(&error) {
            OrderFault::Other(error) => error_of(OrderFault::Unknown(error)),
            fault => error_of(fault),
        })?;
        Ok(outcome)
    }
}

/// Returns an identity that distinguishes a file from its copies, as far as the file system can: inode and time of
/// birth, since inodes are reused.
fn identity(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    let birth_time = metadata.created().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    Ok(format!("{}-{}", metadata.ino(), birth_time.unwrap_or_default().as_nanos()))
}

fn file_error(error: SqliteFileError) -> OrderFault {
    match error {
        SqliteFileError::Foreign(content) => OrderFault::Foreign(content.into()),
        SqliteFileError::Version(version) => {
            OrderFault::Version { found: version.to_string(), supported: SIGNATURE.version.unsigned_abs() }
        }
        SqliteFileError::Truncated { bytes, wanted } => {
            OrderFault::Damaged(format!("it has {bytes} of {wanted} bytes"))
        }
        SqliteFileError::System(error) => OrderFault::Unreachable(error.to_string()),
        SqliteFileError::Sqlite(error) => fault(&error),
    }
}

fn fault(error: &rusqlite::Error) -> OrderFault {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => OrderFault::Full(error.to_string()),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OrderFault::Busy,
        _ if is_corruption(error) => OrderFault::Damaged(error.to_string()),
        _ => OrderFault::Other(error.to_string()),
    }
}
