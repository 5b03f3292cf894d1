//! Code that all SQLite files of seqcast share: it recognizes these files and creates new ones.

mod wal;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use wal::WalContents;

/// First bytes of every SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// First bytes of a SQLite rollback journal; used only until the file is in WAL mode.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// SQLite locks this byte of a file; the page that contains it is never written.
const LOCKED_BYTE: u64 = 1 << 30;

/// Pause between retries while another process writes.
const BUSY_RETRY_PAUSE: Duration = Duration::from_micros(200);
/// Maximum number of retries, which take at least five seconds.
const BUSY_RETRIES_MAX: i32 = 25_000;

/// Signature in the header of all files of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileSignature {
    /// Id of the kind.
    pub(super) application_id: i32,
    /// Version of the tables; a file of any other version is refused.
    pub(super) version: i32,
}

/// Reason why a file cannot be used. The file is unchanged.
#[derive(Debug)]
pub(super) enum SqliteFileError {
    /// The file is not of this kind. Holds a description of the file.
    Foreign(&'static str),
    /// The tables are of this other version.
    Version(i32),
    /// Some pages are neither in the file nor in its WAL.
    Truncated {
        /// Length of the file in bytes.
        bytes: u64,
        /// The length in bytes that it should have.
        wanted: u64,
    },
    /// The system refuses an operation.
    System(io::Error),
    /// SQLite refuses an operation.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for SqliteFileError {
    fn from(error: rusqlite::Error) -> SqliteFileError {
        SqliteFileError::Sqlite(error)
    }
}

impl From<io::Error> for SqliteFileError {
    fn from(error: io::Error) -> SqliteFileError {
        SqliteFileError::System(error)
    }
}

/// Busy handler of files that processes share. While another process writes, it pauses and returns whether to retry.
pub(super) fn retry_busy(tries: i32) -> bool {
    thread::sleep(BUSY_RETRY_PAUSE);
    tries < BUSY_RETRIES_MAX
}

/// Returns whether an error means that the file is damaged: SQLite reports it, or a value has another type than its
/// column.
pub(super) fn is_corruption(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
        || matches!(error, FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..))
}

/// Checks that the file, if it exists and is not empty, begins like a SQLite file. It must run before SQLite opens the
/// file, since SQLite may write to a file that it opens.
pub(super) fn check_header(path: &Path) -> Result<(), SqliteFileError> {
    // Opening a pipe would block until another process writes to it.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(SqliteFileError::Foreign("no regular file"));
    }
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return check_empty(path),
        Err(error) => return Err(error.into()),
    };
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(MAGIC.len() as u64).read_to_end(&mut head)?;
    match head.len() {
        // The process that created the file crashed before its first write.
        0 => check_empty(path),
        _ if head == MAGIC => Ok(()),
        // The process that created the file crashed meanwhile. SQLite empties the file.
        _ if fs::read(sibling_path(path, "-journal")).is_ok_and(|journal| journal.starts_with(&JOURNAL_MAGIC)) => {
            Ok(())
        }
        _ => Err(SqliteFileError::Foreign("another kind of file")),
    }
}

/// Checks that an empty or missing file has no WAL content: SQLite would delete the WAL of a file that was truncated or
/// removed.
fn check_empty(path: &Path) -> Result<(), SqliteFileError> {
    let wanted = WalContents::read(path)?.bytes;
    // Another process that creates the file writes to the file before it writes the WAL.
    match fs::metadata(path).map_or(0, |metadata| metadata.len()) {
        0 if wanted != 0 => Err(SqliteFileError::Truncated { bytes: 0, wanted }),
        _ => Ok(()),
    }
}

/// Returns whether the WAL holds transactions that SQLite does not read because bytes before them were changed. No
/// process may write meanwhile, and each transaction must have been synchronized (`synchronous=FULL`).
pub(super) fn is_wal_damaged(path: &Path) -> io::Result<bool> {
    Ok(WalContents::read(path)?.is_damaged)
}

/// Checks that each page is in the file or in its WAL. A crash during a checkpoint leaves a short file whose missing
/// pages are in the WAL. Pages that any other truncation removed are lost.
fn check_pages(path: &Path, connection: &Connection) -> Result<(), SqliteFileError> {
    // An open read transaction keeps the pages in place, whatever other processes write.
    let state = connection.unchecked_transaction()?;
    let number = |sql: &str| state.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs);
    let (count, page_bytes) = (number("PRAGMA page_count")?, number("PRAGMA page_size")?);
    let bytes = fs::metadata(path)?.len();
    let complete_pages = bytes / page_bytes;
    if complete_pages < count {
        let wal_pages = WalContents::read(path)?.pages;
        let is_present = |page: u64| wal_pages.contains(&page) || page == LOCKED_BYTE / page_bytes + 1;
        if !(complete_pages + 1..=count).all(is_present) {
            return Err(SqliteFileError::Truncated { bytes, wanted: count * page_bytes });
        }
    }
    Ok(state.commit()?)
}

/// Returns the path with `suffix` appended: a file in the same directory.
pub(super) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl FileSignature {
    /// Checks that the file has this signature and is complete, or is still empty. A refused file is closed without a
    /// checkpoint of its WAL.
    pub(super) fn check(self, path: &Path, connection: &Connection) -> Result<(), SqliteFileError> {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        self.check_tables(connection)?;
        check_pages(path, connection)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        Ok(())
    }

    fn check_tables(self, connection: &Connection) -> Result<(), SqliteFileError> {
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0));
        if number("SELECT count(*) FROM sqlite_schema")? == 0 {
            return Ok(());
        }
        if number("PRAGMA application_id")? != self.application_id {
            return Err(SqliteFileError::Foreign("another program's tables"));
        }
        match number("PRAGMA user_version")? {
            version if version == self.version => Ok(()),
            version => Err(SqliteFileError::Version(version)),
        }
    }

    /// Creates the tables and the signature in one transaction, unless the file has tables already.
    pub(super) fn create_tables(self, connection: &mut Connection, schema: &str) -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i32>(0))? == 0 {
            transaction.execute_batch(schema)?;
            transaction.pragma_update(None, "application_id", self.application_id)?;
            transaction.pragma_update(None, "user_version", self.version)?;
        }
        transaction.commit()
    }
}
