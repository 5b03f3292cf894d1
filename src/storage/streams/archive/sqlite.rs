//! An archive in a SQLite file.
//!
//! | table | row |
//! |---|---|
//! | `archive` | one row: the stream and server of the archive, and the event after which it begins |
//! | `event` | an event |
//! | `gap` | events that are missing |
//!
//! Stored events survive a crash of the host: WAL with `synchronous=FULL` (<https://sqlite.org/wal.html>).

use super::super::error::{StreamFault, StreamStorageError};
use super::super::sqlite::file_error;
use super::{ArchiveGap, ArchiveSource, ArchiveStore, foreign_archive};
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::StreamId;
use crate::storage::sqlite_file::{FileSignature, check_header, retry_busy};
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};
use std::path::{Path, PathBuf};

/// "sqar".
const SIGNATURE: FileSignature = FileSignature { application_id: 0x7371_6172, version: 1 };

const SCHEMA: &str = "
    CREATE TABLE archive (
        one INTEGER PRIMARY KEY CHECK (one = 1), server INTEGER NOT NULL, stream TEXT NOT NULL, after INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE event (
        id INTEGER PRIMARY KEY, type TEXT NOT NULL, data TEXT NOT NULL, time TEXT NOT NULL, origin TEXT NOT NULL
    ) STRICT;
    CREATE TABLE gap (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, count INTEGER, noticed TEXT NOT NULL) STRICT;
";

const LAST: &str = "SELECT max((SELECT after FROM archive), ifnull((SELECT max(id) FROM event), 0), ifnull((SELECT max(last) FROM gap), 0))";

/// An archive in a SQLite file.
#[derive(Debug)]
pub(super) struct SqliteArchive {
    connection: Connection,
    path: PathBuf,
    last: StreamId,
}

impl SqliteArchive {
    pub(super) fn open(path: &Path, source: &ArchiveSource, after: StreamId) -> Result<SqliteArchive, StreamFault> {
        check_header(path).map_err(file_error)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_handler(Some(retry_busy))?;
        SIGNATURE.check(path, &connection).map_err(file_error)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        SIGNATURE.create_tables(&mut connection, SCHEMA)?;
        let of = connection.query_row("SELECT server, stream FROM archive", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        });
        match of.optional()? {
            None => {
                let values = params![i64::from(source.server.0), source.stream.as_str(), number(after)];
                connection.execute("INSERT INTO archive VALUES (1, ?, ?, ?)", values)?;
            }
            Some((server, stream))
                if (server, stream.as_str()) != (i64::from(source.server.0), source.stream.as_str()) =>
            {
                return Err(foreign_archive(server.unsigned_abs(), &stream));
            }
            Some(_) => {}
        }
        let last = last(&connection)?;
        Ok(SqliteArchive { connection, path: path.to_owned(), last })
    }

    /// Runs a step as one transaction, unless another process has written to the archive meanwhile.
    fn change(
        &mut self,
        end: StreamId,
        step: impl FnOnce(&Connection) -> Result<(), StreamFault>,
    ) -> Result<(), StreamStorageError> {
        let known = self.last;
        let change = || -> Result<(), StreamFault> {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if last(&transaction)? != known {
                return Err(StreamFault::Busy);
            }
            step(&transaction)?;
            Ok(transaction.commit()?)
        };
        change().map_err(|fault| StreamStorageError { location: self.path.display().to_string(), fault })?;
        self.last = end;
        Ok(())
    }
}

impl ArchiveStore for SqliteArchive {
    fn last(&self) -> StreamId {
        self.last
    }

    fn store(&mut self, events: &[StreamEvent]) -> Result<(), StreamStorageError> {
        let Some(end) = events.last() else { return Ok(()) };
        self.change(end.id, |connection| {
            let mut insert = connection.prepare_cached("INSERT INTO event VALUES (?, ?, ?, ?, ?)")?;
            for StreamEvent { id, kind, data, time, origin } in events {
                let (time, origin) = (time.to_string(), origin.to_string());
                insert.execute(params![number(*id), kind.as_str(), data.as_str(), time, origin])?;
            }
            Ok(())
        })
    }

    fn store_gap(&mut self, gap: ArchiveGap) -> Result<(), StreamStorageError> {
        let ArchiveGap { first, last, count, detected } = gap;
        self.change(last, |connection| {
            let count = count.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
            let values = params![number(first), number(last), count, detected.to_string()];
            connection.execute("INSERT INTO gap VALUES (?, ?, ?, ?)", values)?;
            Ok(())
        })
    }

    fn count_from(&mut self, first: StreamId) -> Result<u64, StreamStorageError> {
        let count = self
            .connection
            .query_row("SELECT count(*) FROM event WHERE ? <= id", [number(first)], |row| row.get::<_, i64>(0));
        count
            .map(i64::unsigned_abs)
            .map_err(|error| StreamStorageError { location: self.path.display().to_string(), fault: error.into() })
    }
}

fn number(id: StreamId) -> i64 {
    i64::try_from(id.number()).expect("at most 18 digits")
}

fn last(connection: &Connection) -> Result<StreamId, StreamFault> {
    let last = connection.query_row(LAST, [], |row| row.get::<_, i64>(0))?;
    let id = u64::try_from(last).ok().and_then(StreamId::from_number);
    id.ok_or_else(|| StreamFault::Damaged(format!("{last} is no id of an event")))
}
