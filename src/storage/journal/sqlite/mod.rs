//! The journal of events in a SQLite file, which the program `sqlite3` can open, too.
//!
//! | table | row |
//! |---|---|
//! | `event` | an event |
//! | `type` | the subject of an event type that has events, with the usage of those in the index tables |
//! | `server` | a server with its last session that was ever stored |
//! | `by_id`, `by_type`, `by_time`, `by_source_time` | an index entry: the position of an event in that order |
//! | `filled` | one row: the arrival up to which the index tables hold the events |
//! | `drawn` | one row, if `server-id` is `auto`: the id drawn for the server that owns this file |
//!
//! The column `arrival` of an event is its position in the order in which this peer received the events. A JSON payload
//! is a text. A binary payload is a blob, whose type's name is in `payload_type`. The usage of a type is the number of
//! its events, the bytes of their payloads, and a lower bound of their times.
//!
//! Times are microseconds since 1970. Appended events survive a crash of the host once [`Journal::append`] returns:
//! WAL with `synchronous=FULL` (<https://sqlite.org/wal.html>).
//!
//! An append only writes rows after the last row of `event`. The entries of the index tables are scattered over the
//! file. The writer therefore adds some thousand events to them at once, so that one page write covers many events.
//! Queries scan the events that are not indexed yet (the *tail*) one by one.

mod append;
mod index;
mod query;
mod row;
mod series;
mod trim;
mod types;
mod usage;

pub use query::QueryCursor;

use super::error::{JournalOpenError, StoreError};
use crate::event::model::{Event, EventId, ServerId};
use crate::event::store::retention::Retention;
use crate::event::store::{Journal, LastSession, Query, QueryPage};
use crate::event::timestamp::Timestamp;
use crate::storage::sqlite_file::{FileSignature, check_header, is_wal_damaged, sibling_path};
use index::WriterCache;
use row::{timestamp, unsigned};
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};
use std::fs::{File, TryLockError};
use std::path::Path;
use usage::RetentionUsage;

/// "sqca".
const SIGNATURE: FileSignature = FileSignature { application_id: 0x7371_6361, version: 2 };
/// Number of events at which the tail is moved into the index tables. A query scans a tail of this size in a fraction
/// of a millisecond. An append that moves the tail takes some milliseconds more.
const TAIL_EVENTS: usize = 4096;
/// Maximum number of cached prepared statements.
const STATEMENT_CACHE_SIZE: usize = 64;

const SCHEMA: &str = "
    CREATE TABLE type (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        subject TEXT NOT NULL UNIQUE,
        events INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0,
        first INTEGER NOT NULL DEFAULT 9223372036854775807
    ) STRICT;
    CREATE TABLE server (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, time INTEGER NOT NULL) STRICT;
    CREATE TABLE event (
        arrival INTEGER PRIMARY KEY,
        server INTEGER NOT NULL,
        session INTEGER NOT NULL,
        instance INTEGER NOT NULL,
        type INTEGER NOT NULL,
        time INTEGER NOT NULL,
        source_time INTEGER,
        payload_type TEXT,
        payload ANY
    ) STRICT;
    CREATE TABLE by_id (
        server INTEGER, session INTEGER, instance INTEGER, arrival INTEGER NOT NULL,
        PRIMARY KEY (server, session, instance)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE by_type (
        type INTEGER, time INTEGER, arrival INTEGER, PRIMARY KEY (type, time, arrival)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE by_time (time INTEGER, arrival INTEGER, PRIMARY KEY (time, arrival)) STRICT, WITHOUT ROWID;
    CREATE TABLE by_source_time (
        source_time INTEGER, time INTEGER, arrival INTEGER, PRIMARY KEY (source_time, time, arrival)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE filled (arrival INTEGER NOT NULL) STRICT;
    INSERT INTO filled VALUES (0);
    CREATE TABLE drawn (one INTEGER PRIMARY KEY CHECK (one = 1), server INTEGER NOT NULL) STRICT;
";

/// A journal in a file.
#[derive(Debug)]
pub struct SqliteJournal {
    connection: Connection,
    /// Cache of the content of the file; `None` after an append that was rolled back.
    cache: Option<WriterCache>,
    /// Retention usage; `None` until retention runs, and after a rollback of a change to it.
    usage: Option<RetentionUsage>,
    /// Number of events at which the tail is moved into the index tables.
    tail_events: usize,
    /// Lock of the process on the journal, released when the connection is closed.
    _lock: File,
}

impl SqliteJournal {
    /// Opens the file, or creates it. The process locks the journal until it drops this value or ends. The lock is on a
    /// file with the suffix `-lock` beside the journal, which remains there.
    ///
    /// # Errors
    /// The file is in use, is not a journal, is damaged, is of another version, or the system refuses to open it. The
    /// file is then unchanged.
    pub fn open(path: &Path) -> Result<SqliteJournal, JournalOpenError> {
        let lock = lock(path)?;
        let file_error = |file_error| JournalOpenError::file_error(path, SIGNATURE, file_error);
        check_header(path).map_err(file_error)?;
        if is_wal_damaged(path).map_err(|error| JournalOpenError::of_system(path, error))? {
            let reason = "its -wal file does not hold what was written".to_owned();
            return Err(JournalOpenError::Damaged { path: path.to_owned(), reason });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| JournalOpenError::of_sqlite(path, error);
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        SIGNATURE.check(path, &connection).map_err(file_error)?;
        configure(&connection).map_err(failed)?;
        SIGNATURE.create_tables(&mut connection, SCHEMA).map_err(failed)?;
        let cache = WriterCache::read(&connection).map_err(failed)?;
        // The checkpoint moves the WAL that a crash has left into the file, since a user might delete the WAL. On a
        // full disk the WAL remains.
        match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0)) {
            Ok(false) => {}
            Ok(true) => {
                tracing::warn!(path = %path.display(), "another process reads the journal; its -wal remains a part of it")
            }
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the -wal of the journal remains a part of it")
            }
        }
        Ok(SqliteJournal { connection, cache: Some(cache), usage: None, tail_events: TAIL_EVENTS, _lock: lock })
    }

    /// Takes the cache. The caller returns it after a successful operation.
    fn take_cache(&mut self) -> Result<WriterCache, StoreError> {
        match self.cache.take() {
            Some(cache) => Ok(cache),
            None => Ok(WriterCache::read(&self.connection)?),
        }
    }

    /// Returns, for each server that has or had events, the last stored event of its last session. Its instance is 0
    /// if none is stored.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn last_events(&mut self) -> Result<Vec<EventId>, StoreError> {
        let of = |table, condition| {
            format!(
                "(SELECT coalesce(max(instance), 0) FROM {table} i \
                 WHERE i.server = s.id AND i.session = s.session AND {condition})"
            )
        };
        let (filled, tail) = (of("by_id", "true"), of("event", index::IS_TAIL));
        let mut find = self.connection.prepare(&format!("SELECT id, session, max({filled}, {tail}) FROM server s"))?;
        let mut rows = find.query([])?;
        let mut last = Vec::new();
        while let Some(row) = rows.next()? {
            let (session, instance) = (unsigned(row.get(1)?)?, unsigned(row.get(2)?)?);
            last.push(EventId { server: ServerId(row.get(0)?), session, instance });
        }
        Ok(last)
    }

    /// Returns the id drawn for the server that owns this file. The first call stores `drawn` durably before it
    /// returns. A new file belongs to a new server, since its sessions begin again.
    ///
    /// # Errors
    /// The file cannot be read or written, or is damaged.
    pub fn drawn_server(&mut self, drawn: ServerId) -> Result<ServerId, StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = transaction.query_row("SELECT server FROM drawn", [], |row| row.get(0)).optional()?;
        if found.is_none() {
            transaction.execute("INSERT INTO drawn VALUES (1, ?)", [drawn.0])?;
        }
        transaction.commit()?;
        Ok(found.map_or(drawn, ServerId))
    }

    /// Opens a read-only connection to the file, for another thread.
    ///
    /// # Errors
    /// The system refuses to open the file.
    pub fn reader(path: &Path) -> Result<SqliteReader, JournalOpenError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| JournalOpenError::of_sqlite(path, error);
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
        Ok(SqliteReader { connection })
    }
}

/// Reader of a journal to which another thread appends. A query finds all events appended before it.
#[derive(Debug)]
pub struct SqliteReader {
    connection: Connection,
}

impl SqliteReader {
    /// Runs a slice of a query. Returns whether it was the last one.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn advance(&mut self, cursor: &mut QueryCursor) -> Result<bool, StoreError> {
        cursor.advance(&mut self.connection)
    }

    /// Checks that the journal has, or had, the event or server that an answered query names.
    ///
    /// # Errors
    /// [`StoreError::NoEvent`] or [`StoreError::NoServer`] if the query found no event for this reason. Other errors
    /// mean that the file cannot be read.
    pub fn check_names(&mut self, cursor: &QueryCursor) -> Result<(), StoreError> {
        cursor.check_names(&self.connection)
    }

    /// Answers a valid query without slices, however long it takes.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn query(&mut self, query: &Query) -> Result<QueryPage, StoreError> {
        query::answer(&mut self.connection, query)
    }
}

impl Journal for SqliteJournal {
    type Error = StoreError;

    fn last_session(&mut self, server: ServerId) -> Result<LastSession, StoreError> {
        let mut found = self.connection.prepare_cached("SELECT session, time FROM server WHERE id = ?")?;
        let mut rows = found.query([server.0])?;
        match rows.next()? {
            Some(row) => Ok(LastSession { session: unsigned(row.get(0)?)?, timestamp: timestamp(row.get(1)?)? }),
            None => Ok(LastSession::NONE),
        }
    }

    fn append(&mut self, events: &[Event]) -> Result<usize, StoreError> {
        let mut cache = self.take_cache()?;
        let appended = append::append(&mut self.connection, &mut cache, &mut self.usage, self.tail_events, events)?;
        self.cache = Some(cache);
        Ok(appended)
    }

    /// Removal frees space in the file for later appends; the file does not shrink.
    fn trim(&mut self, retention: &Retention, now: Timestamp, budget: usize) -> Result<Vec<u64>, StoreError> {
        let mut cache = self.take_cache()?;
        let removed = trim::trim(&mut self.connection, &mut cache, &mut self.usage, retention, now, budget)?;
        self.cache = Some(cache);
        Ok(removed)
    }

    fn query(&mut self, query: &Query) -> Result<QueryPage, StoreError> {
        query::answer(&mut self.connection, query)
    }
}

/// Locks a file beside the journal, not the journal itself: closing a file would release the locks that SQLite holds
/// on it in this process.
fn lock(path: &Path) -> Result<File, JournalOpenError> {
    let system = |error| JournalOpenError::of_system(path, error);
    let file =
        File::options().create(true).truncate(false).write(true).open(sibling_path(path, "-lock")).map_err(system)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(JournalOpenError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(system(error)),
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.pragma_update(None, "wal_autocheckpoint", 8192)
}

#[cfg(test)]
mod tests;
