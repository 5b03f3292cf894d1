//! What all our SQLite files have in common: how one is told from what others have written, and how a new one is begun.

mod wal;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use wal::WalContents;

/// What every SQLite file begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// What a log of SQLite begins with that takes a file back to what it was; used only until the file is one with a WAL.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// SQLite locks this byte of a file; the page that holds it is never written.
const LOCKED_BYTE: u64 = 1 << 30;

/// How long one waits before trying again while another process writes.
const BUSY_RETRY_PAUSE: Duration = Duration::from_micros(200);
/// How often one tries: for five seconds at least.
const BUSY_RETRIES_MAX: i32 = 25_000;

/// What marks files of one kind as ours, in their header.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileSignature {
    /// Of the kind.
    pub(super) application_id: i32,
    /// Of the tables; a file of any other is refused.
    pub(super) version: i32,
}

/// Why a file cannot be used. Nothing was changed.
#[derive(Debug)]
pub(super) enum SqliteFileError {
    /// It is none of ours: what it is.
    Foreign(&'static str),
    /// Its tables are of this other version.
    Version(i32),
    /// Pages are neither in it nor in its WAL.
    Truncated {
        /// How long it is.
        bytes: u64,
        /// How long it should be.
        wanted: u64,
    },
    /// The system refuses something.
    System(io::Error),
    /// SQLite refuses something.
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

/// Whether to try again, after a pause, while another process writes: the busy handler of files that processes share.
pub(super) fn retry_busy(tries: i32) -> bool {
    thread::sleep(BUSY_RETRY_PAUSE);
    tries < BUSY_RETRIES_MAX
}

/// Whether an error says that the file is damaged: in the words of SQLite, or by a value of another kind than the column has.
pub(super) fn is_corruption(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
        || matches!(error, FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..))
}

/// Whether the file, if there is one that holds anything, begins as SQLite files do. Nothing but that opens it: SQLite may write to
/// what it opens.
pub(super) fn check_header(path: &Path) -> Result<(), SqliteFileError> {
    // To open a pipe would be to wait for somebody who writes to it.
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
        // A crash before anything was written to a new file.
        0 => check_empty(path),
        _ if head == MAGIC => Ok(()),
        // A crash while a new file was begun; SQLite makes it empty again.
        _ if fs::read(sibling_path(path, "-journal")).is_ok_and(|journal| journal.starts_with(&JOURNAL_MAGIC)) => {
            Ok(())
        }
        _ => Err(SqliteFileError::Foreign("another kind of file")),
    }
}

/// Whether nothing waits for a file in which nothing is: SQLite would delete the WAL of one that was cut off or taken away.
fn check_empty(path: &Path) -> Result<(), SqliteFileError> {
    let wanted = WalContents::read(path)?.bytes;
    // Another process that has made the file just now has put something into it before the WAL.
    match fs::metadata(path).map_or(0, |metadata| metadata.len()) {
        0 if wanted != 0 => Err(SqliteFileError::Truncated { bytes: 0, wanted }),
        _ => Ok(()),
    }
}

/// Whether the WAL of a file holds transactions that SQLite does not find, since something before them was changed. Nobody may write
/// meanwhile, and each transaction must have been synchronized (`synchronous=FULL`).
pub(super) fn is_wal_damaged(path: &Path) -> io::Result<bool> {
    Ok(WalContents::read(path)?.is_damaged)
}

/// Whether each page is in the file or in its WAL. A crash while the WAL is written back leaves a short file, and all that it lacks in
/// the WAL; what is cut off a file may be nowhere else.
fn check_pages(path: &Path, connection: &Connection) -> Result<(), SqliteFileError> {
    // As long as one state of the file is read, its pages stay where they are, whoever else writes.
    let state = connection.unchecked_transaction()?;
    let number = |sql: &str| state.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs);
    let (count, page_bytes) = (number("PRAGMA page_count")?, number("PRAGMA page_size")?);
    let bytes = fs::metadata(path)?.len();
    let whole = bytes / page_bytes;
    if whole < count {
        let waiting = WalContents::read(path)?.pages;
        let is_there = |page: u64| waiting.contains(&page) || page == LOCKED_BYTE / page_bytes + 1;
        if !(whole + 1..=count).all(is_there) {
            return Err(SqliteFileError::Truncated { bytes, wanted: count * page_bytes });
        }
    }
    Ok(state.commit()?)
}

/// The name of a file that lies beside it.
pub(super) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl FileSignature {
    /// Whether the file is ours, of this version, and whole, or has no content yet. One that is refused is closed without writing back
    /// what waits in its WAL.
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

    /// Makes the tables and what marks the file as ours, all or nothing, unless they are there.
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
