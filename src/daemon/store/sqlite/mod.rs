//! The journal of events in a SQLite file, which `sqlite3` opens as well.
//!
//! | table | a row is |
//! |---|---|
//! | `event` | an event; `arrival` is the order in which this peer learned of them. A JSON payload is text, a binary one a blob, with its type's name in `payload_type` |
//! | `type` | an event type of which there are events, as the subject on which its events travel; how many of them are in the orders, the bytes of their payloads, and a time before which none is |
//! | `server` | a server with the last session of it that was ever stored |
//! | `by_id`, `by_type`, `by_time`, `by_source_time` | where an event stands in that order |
//! | `filled` | the one row: these four hold the events up to this arrival |
//! | `drawn` | the one row, if `server-id` is `auto`: the number that was drawn for the server whose file this is |
//!
//! Times are microseconds since 1970. What was appended is in the file, and survives a crash of the host, when [`Journal::append`]
//! returns: WAL with `synchronous=FULL` (<https://sqlite.org/wal.html>).
//!
//! An append writes rows behind the last one, and nothing else. The orders, whose places are all over the file, get the last few
//! thousand events at once, so that a page is written once for many of them; questions go through what
//! is not there yet (the tail) one by one.

mod append;
mod query;
mod series;
mod trim;
mod types;

pub use query::QueryCursor;

use super::error::{JournalOpenError, StoreError};
use crate::daemon::sqlite_file::{FileSignature, check_header, is_wal_damaged, sibling_path};
use crate::event::model::{Event, EventId, ServerId};
use crate::event::store::retention::Retention;
use crate::event::store::{Journal, LastSession, Query, QueryPage};
use crate::event::timestamp::Timestamp;
use append::WriterCache;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};
use std::fs::{File, TryLockError};
use std::path::Path;
use trim::RetentionUsage;

/// "sqca".
const SIGNATURE: FileSignature = FileSignature { application_id: 0x7371_6361, version: 2 };
/// From so many events on the tail goes into the orders. A question goes through the tail, which takes it a fraction of a
/// millisecond; an append that fills the orders takes some milliseconds more.
const TAIL_EVENTS: usize = 4096;
/// Prepared statements that are kept.
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
    /// What is known of the file without reading it; unknown after an append that was rolled back.
    cache: Option<WriterCache>,
    /// What retention knows of the file, once it was asked for and as long as nothing was rolled back that changed it.
    usage: Option<RetentionUsage>,
    /// From so many events on the tail goes into the orders.
    tail_events: usize,
    /// Given back when the connection is closed.
    _lock: File,
}

impl SqliteJournal {
    /// Opens the file, or makes it. Nobody else can, until this is dropped or its process has ended: a file beside it, with `-lock`
    /// behind its name, is locked, and stays there.
    ///
    /// # Errors
    /// It is in use, none of ours, damaged, of another version, or the system refuses it; nothing is changed then.
    pub fn open(path: &Path) -> Result<SqliteJournal, JournalOpenError> {
        let lock = lock(path)?;
        let file_error = |file_error| JournalOpenError::file_error(path, SIGNATURE, file_error);
        check_header(path).map_err(file_error)?;
        if is_wal_damaged(path).map_err(|error| JournalOpenError::of_system(path, error))? {
            let why = "in its -wal file stands something else than what was written".to_owned();
            return Err(JournalOpenError::Damaged { path: path.to_owned(), why });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| JournalOpenError::of_sqlite(path, error);
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        SIGNATURE.check(path, &connection).map_err(file_error)?;
        configure(&connection).map_err(failed)?;
        SIGNATURE.create_tables(&mut connection, SCHEMA).map_err(failed)?;
        let cache = WriterCache::read(&connection).map_err(failed)?;
        // What a crash has left in the WAL goes into the file, so that nobody deletes it. On a full disk it stays.
        match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0)) {
            Ok(false) => {}
            Ok(true) => {
                tracing::warn!(path = %path.display(), "somebody reads the journal: its -wal stays a part of it")
            }
            Err(error) => tracing::warn!(%error, path = %path.display(), "the -wal of the journal stays a part of it"),
        }
        Ok(SqliteJournal { connection, cache: Some(cache), usage: None, tail_events: TAIL_EVENTS, _lock: lock })
    }

    /// What is known, to be put back when what is done with it succeeds.
    fn take_cache(&mut self) -> Result<WriterCache, StoreError> {
        match self.cache.take() {
            Some(cache) => Ok(cache),
            None => Ok(WriterCache::read(&self.connection)?),
        }
    }

    /// Of each server of which there are events, or were, the last event of its last session that is stored; instance 0 if none is.
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
        let (filled, tail) = (of("by_id", "true"), of("event", query::IS_TAIL));
        let mut find = self.connection.prepare(&format!("SELECT id, session, max({filled}, {tail}) FROM server s"))?;
        let mut rows = find.query([])?;
        let mut last = Vec::new();
        while let Some(row) = rows.next()? {
            let (session, instance) = (query::unsigned(row.get(1)?)?, query::unsigned(row.get(2)?)?);
            last.push(EventId { server: ServerId(row.get(0)?), session, instance });
        }
        Ok(last)
    }

    /// The number that was drawn for the server whose file this is. The first time it is the one given here, and is in the file, come what
    /// may, before this returns: a new file is a new server, since its sessions begin anew.
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

    /// A second view of the same file, for questions only.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn reader(path: &Path) -> Result<SqliteReader, JournalOpenError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| JournalOpenError::of_sqlite(path, error);
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
        Ok(SqliteReader { connection })
    }
}

/// A view of a journal that another thread writes. It sees what was appended before it is asked.
#[derive(Debug)]
pub struct SqliteReader {
    connection: Connection,
}

impl SqliteReader {
    /// Does a slice of the work for an answer. Whether that was the last one.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn advance(&mut self, search: &mut QueryCursor) -> Result<bool, StoreError> {
        search.advance(&mut self.connection)
    }

    /// Whether the journal has, or had, what an answered question names.
    ///
    /// # Errors
    /// [`StoreError::NoEvent`] and [`StoreError::NoServer`] if nothing was found because it has not; or the file cannot be read.
    pub fn check_names(&mut self, search: &QueryCursor) -> Result<(), StoreError> {
        search.check_names(&self.connection)
    }

    /// Answers a question that makes sense, however long that takes.
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
            Some(row) => {
                Ok(LastSession { session: query::unsigned(row.get(0)?)?, timestamp: query::timestamp(row.get(1)?)? })
            }
            None => Ok(LastSession::NONE),
        }
    }

    fn append(&mut self, events: &[Event]) -> Result<usize, StoreError> {
        let mut cache = self.take_cache()?;
        let appended = append::append(&mut self.connection, &mut cache, &mut self.usage, self.tail_events, events)?;
        self.cache = Some(cache);
        Ok(appended)
    }

    /// What is removed leaves room in the file for what is appended; the file gets no shorter.
    fn trim(&mut self, retention: &Retention, now: Timestamp, budget: usize) -> Result<Vec<u64>, StoreError> {
        let mut cache = self.take_cache()?;
        let removed = trim::trim(&mut self.connection, &mut cache, &mut self.usage, retention, (now, budget))?;
        self.cache = Some(cache);
        Ok(removed)
    }

    fn query(&mut self, query: &Query) -> Result<QueryPage, StoreError> {
        query::answer(&mut self.connection, query)
    }
}

/// Locks the file beside it, not itself: to close a file takes away the locks that SQLite has on it in this process.
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

/// A part of an id as SQLite counts: to 2^63 - 1.
fn signed(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::Range)
}

#[cfg(test)]
mod tests;
