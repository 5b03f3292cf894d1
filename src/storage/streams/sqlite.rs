//! Streams in a SQLite file: the peer's own, or that of an application, which adds events within its own transactions.
//!
//! | table | a row is |
//! |---|---|
//! | `seqcast_streams` | a stream: its last id, and the number and bytes of its retained events |
//! | `seqcast_events` | a retained event |
//! | `seqcast_consumers` | a registered consumer |
//! | `seqcast_outbox` | an event that an application has posted, and that is in no stream yet |
//! | `seqcast_covered` | the position up to which the journal of a server was scanned for a stream |
//! | `seqcast_version` | the version of these tables; one row |
//!
//! A step survives a crash of the host once it is answered: WAL with `synchronous=FULL`
//! (<https://sqlite.org/wal.html>). Several steps between [`BatchStore::begin`] and [`BatchStore::commit`] share the
//! wait for the disk.

mod outbox;
mod rows;
mod schema;

pub use outbox::add_event_in;

use super::column_values::{StreamRecord, id, signed};
use super::error::{StepError, StreamFault, StreamStorageError};
use super::store::BatchStore;
use crate::event::model::{EventId, ServerId};
use crate::event::stream::model::{PageBudget, StreamPage};
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::stream::store::{
    ConsumerRow, Contents, NewEvent, PostedEvent, StreamLimits, StreamStore, StreamStoreError, TrimReport,
};
use crate::event::timestamp::Timestamp;
use crate::storage::sqlite_file::{SqliteFileError, check_header, is_corruption};
use rows::{consumer, consumers, covered, find, find_or_create, put_consumer, read, trim, update_contents};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use schema::VERSION;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

impl From<rusqlite::Error> for StreamFault {
    fn from(error: rusqlite::Error) -> StreamFault {
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StreamFault::Full(text),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StreamFault::Busy,
            _ if is_corruption(&error) => StreamFault::Damaged(text),
            Some(
                ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::SystemIoFailure,
            ) => StreamFault::Unreachable(text),
            _ => StreamFault::Other(text),
        }
    }
}

impl From<rusqlite::Error> for StepError {
    fn from(error: rusqlite::Error) -> StepError {
        StreamStoreError::Store(error.into())
    }
}

/// Streams in a file.
#[derive(Debug)]
pub struct SqliteStreams {
    connection: Connection,
    path: PathBuf,
    batch: SqliteBatch,
}

/// State of a batch of steps that are committed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SqliteBatch {
    /// No batch: each step is committed on its own.
    Inactive,
    /// A batch begins with the next step that changes something.
    Armed,
    /// Other processes hold the file; the batch does not wait for it again.
    Busy,
    /// Changes are pending.
    Active,
    /// SQLite has rolled back the batch, because the disk is full or fails.
    RolledBack,
}

impl SqliteStreams {
    /// Opens the file, or creates it, with our tables in it. Other processes of this host may have it open.
    ///
    /// # Errors
    /// The file is not a SQLite file, our tables in it are of another version, or the system refuses it. Nothing is
    /// changed then.
    pub fn open(path: &Path) -> Result<SqliteStreams, StreamStorageError> {
        let wrong = |fault| StreamStorageError { at: path.display().to_string(), fault };
        check_header(path).map_err(|why| wrong(file_error(why)))?;
        let connection = schema::open(path).map_err(wrong)?;
        Ok(SqliteStreams { connection, path: path.to_owned(), batch: SqliteBatch::Inactive })
    }

    fn error(&self, fault: StreamFault) -> StreamStorageError {
        StreamStorageError { at: self.path.display().to_string(), fault }
    }

    fn refused(&self, refused: StepError) -> StreamStoreError<StreamStorageError> {
        StreamStorageError::refused(&self.path.display().to_string(), refused)
    }

    /// Runs a step as one transaction or savepoint, all or nothing.
    fn change<T>(
        &mut self,
        step: impl FnOnce(&Connection) -> Result<T, StepError>,
    ) -> Result<T, StreamStoreError<StreamStorageError>> {
        if self.batch == SqliteBatch::Armed {
            if let Err(error) = self.connection.execute_batch("BEGIN IMMEDIATE") {
                let fault = StreamFault::from(error);
                self.batch = if fault == StreamFault::Busy { SqliteBatch::Busy } else { SqliteBatch::Armed };
                return Err(self.refused(fault.into()));
            }
            self.batch = SqliteBatch::Active;
        }
        let [begin, end, back] = match self.batch {
            SqliteBatch::Active => ["SAVEPOINT step", "RELEASE step", "ROLLBACK TO step; RELEASE step"],
            SqliteBatch::Inactive | SqliteBatch::Armed => ["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"],
            SqliteBatch::Busy => return Err(self.refused(StreamFault::Busy.into())),
            SqliteBatch::RolledBack => return Err(self.refused(rolled_back().into())),
        };
        let run = || -> Result<T, StepError> {
            self.connection.execute_batch(begin)?;
            let done = step(&self.connection).and_then(|done| Ok(self.connection.execute_batch(end).map(|()| done)?));
            if done.is_err() {
                // If the transaction is over already, nothing remains to roll back.
                drop(self.connection.execute_batch(back));
            }
            done
        };
        let done = run().map_err(|refused| self.refused(refused));
        if self.batch == SqliteBatch::Active && self.connection.is_autocommit() {
            self.batch = SqliteBatch::RolledBack;
        }
        done
    }

    /// Runs a change that only the store can refuse.
    fn change_unconditionally<T>(
        &mut self,
        step: impl FnOnce(&Connection) -> Result<T, StepError>,
    ) -> Result<T, StreamStorageError> {
        self.change(step).map_err(StreamStorageError::expect_store_error)
    }

    fn read_only<T>(
        &self,
        read_only: impl FnOnce(&Connection) -> Result<T, StreamFault>,
    ) -> Result<T, StreamStorageError> {
        read_only(&self.connection).map_err(|fault| self.error(fault))
    }
}

pub(super) fn file_error(why: SqliteFileError) -> StreamFault {
    match why {
        SqliteFileError::Foreign(what) => StreamFault::Foreign(what.into()),
        SqliteFileError::Version(version) => StreamFault::Version { found: version.into(), known: VERSION },
        SqliteFileError::Truncated { bytes, wanted } => {
            StreamFault::Damaged(format!("it has {bytes} of {wanted} bytes"))
        }
        SqliteFileError::System(error) => StreamFault::Unreachable(error.to_string()),
        SqliteFileError::Sqlite(error) => error.into(),
    }
}

fn rolled_back() -> StreamFault {
    StreamFault::Full("the steps of its batch were rolled back".into())
}

impl BatchStore for SqliteStreams {
    fn begin(&mut self) {
        self.batch = SqliteBatch::Armed;
    }

    fn commit(&mut self) -> Result<(), StreamStorageError> {
        match std::mem::replace(&mut self.batch, SqliteBatch::Inactive) {
            SqliteBatch::Inactive | SqliteBatch::Armed | SqliteBatch::Busy => return Ok(()),
            SqliteBatch::RolledBack => return Err(self.error(rolled_back())),
            SqliteBatch::Active => {}
        }
        self.connection.execute_batch("COMMIT").map_err(|error| {
            // If the transaction is over already, nothing remains to roll back.
            drop(self.connection.execute_batch("ROLLBACK"));
            self.error(error.into())
        })
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn is_shared(&self) -> bool {
        false
    }
}

impl StreamStore for SqliteStreams {
    type Error = StreamStorageError;

    fn check(&mut self) -> Result<(), StreamStorageError> {
        Ok(())
    }

    fn covered(&mut self, stream: &StreamName) -> Result<Vec<EventId>, StreamStorageError> {
        self.read_only(|connection| match find(connection, stream)? {
            Some(record) => Ok(covered(connection, record.number)?.into_values().collect()),
            None => Ok(Vec::new()),
        })
    }

    fn add(
        &mut self,
        stream: &StreamName,
        events: &[NewEvent],
        positions: &[EventId],
        limits: &StreamLimits,
    ) -> Result<Vec<Option<StreamId>>, StreamStoreError<StreamStorageError>> {
        self.change(|connection| {
            let StreamRecord { number, mut contents } = find_or_create(connection, stream)?;
            let mut scanned = covered(connection, number)?;
            let mut insert = connection.prepare_cached("INSERT INTO seqcast_events VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
            let (mut ids, mut changed) = (Vec::with_capacity(events.len()), BTreeSet::new());
            for NewEvent { kind, data, time, origin, stamp } in events {
                if scanned.get(&origin.server).is_some_and(|scanned| origin <= scanned) {
                    ids.push(None);
                    continue;
                }
                if limits.is_blocked(contents.bytes) {
                    return Err(StreamStoreError::Full);
                }
                contents.last = StreamId::from_number(contents.last.number() + 1).ok_or(StreamStoreError::Full)?;
                contents.events += 1;
                contents.bytes += data.bytes().len() as u64;
                insert.execute(params![
                    number,
                    signed(contents.last.number())?,
                    kind.as_str(),
                    data.as_str(),
                    time.as_micros(),
                    origin.server.0,
                    signed(origin.session)?,
                    signed(origin.instance)?,
                ])?;
                if let Some(stamp) = stamp {
                    outbox::done(connection, origin.server, stream, *stamp)?;
                }
                scanned.insert(origin.server, *origin);
                changed.insert(origin.server);
                ids.push(Some(contents.last));
            }
            for position in positions {
                if scanned.get(&position.server).is_none_or(|scanned| scanned < position) {
                    scanned.insert(position.server, *position);
                    changed.insert(position.server);
                }
            }
            let mut cover = connection.prepare_cached("REPLACE INTO seqcast_covered VALUES (?, ?, ?, ?)")?;
            for server in changed {
                let position = scanned[&server];
                cover.execute(params![number, server.0, signed(position.session)?, signed(position.instance)?])?;
            }
            update_contents(connection, StreamRecord { number, contents })?;
            Ok(ids)
        })
    }

    fn read(
        &mut self,
        stream: &StreamName,
        after: StreamId,
        want: Option<&BTreeSet<StreamType>>,
        room: PageBudget,
    ) -> Result<StreamPage, StreamStorageError> {
        self.read_only(|connection| match find(connection, stream)? {
            Some(record) => read(connection, record, after, want, room),
            None => Ok(StreamPage::new(after)),
        })
    }

    fn register(
        &mut self,
        stream: &StreamName,
        who: &Consumer,
        now: Timestamp,
    ) -> Result<Option<ConsumerRow>, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let record = find_or_create(connection, stream)?;
            let before = consumer(connection, record, who)?;
            let row = ConsumerRow::registered(before.as_ref(), who, &record.contents, now);
            put_consumer(connection, record.number, &row)?;
            Ok(before)
        })
    }

    fn accept(
        &mut self,
        stream: &StreamName,
        who: &Consumer,
        accepted: StreamId,
        now: Timestamp,
    ) -> Result<StreamId, StreamStoreError<StreamStorageError>> {
        self.change(|connection| {
            let Some(record) = find(connection, stream)? else { return Err(StreamStoreError::NotRegistered) };
            let mut row = consumer(connection, record, who)?.ok_or(StreamStoreError::NotRegistered)?;
            if let Some(missed) = row.lapsed {
                return Err(StreamStoreError::Lapsed(missed));
            }
            row.position = accepted.min(record.contents.last).max(row.position);
            row.last_request = now;
            put_consumer(connection, record.number, &row)?;
            Ok(row.position)
        })
    }

    fn reset(&mut self, stream: &StreamName, who: &Consumer, position: StreamId) -> Result<bool, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let Some(record) = find(connection, stream)? else { return Ok(false) };
            let Some(row) = consumer(connection, record, who)? else { return Ok(false) };
            let row = ConsumerRow { position: position.min(record.contents.last), lapsed: None, ..row };
            put_consumer(connection, record.number, &row)?;
            Ok(true)
        })
    }

    fn remove(&mut self, stream: &StreamName, who: &Consumer) -> Result<bool, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let Some(StreamRecord { number, .. }) = find(connection, stream)? else { return Ok(false) };
            let mut remove = connection
                .prepare_cached("DELETE FROM seqcast_consumers WHERE stream = ? AND user = ? AND component = ?")?;
            Ok(0 < remove.execute(params![number, who.user.as_str(), who.component.as_str()])?)
        })
    }

    fn consumers(&mut self, stream: &StreamName) -> Result<Vec<ConsumerRow>, StreamStorageError> {
        self.read_only(|connection| {
            let Some(record) = find(connection, stream)? else { return Ok(Vec::new()) };
            consumers(connection, record)
        })
    }

    fn find(&mut self, stream: &StreamName, origin: EventId) -> Result<Option<StreamId>, StreamStorageError> {
        self.read_only(|connection| {
            let Some(StreamRecord { number, .. }) = find(connection, stream)? else { return Ok(None) };
            let mut find = connection.prepare_cached(
                "SELECT id FROM seqcast_events WHERE stream = ? AND server = ? AND session = ? AND instance = ? ORDER BY id DESC LIMIT 1",
            )?;
            let values = params![number, origin.server.0, signed(origin.session)?, signed(origin.instance)?];
            let found: Option<i64> = find.query_row(values, |row| row.get(0)).optional()?;
            found.map(id).transpose()
        })
    }

    fn claim(
        &mut self,
        server: ServerId,
        streams: &[StreamName],
        now: Timestamp,
        count_max: usize,
    ) -> Result<Vec<PostedEvent>, StreamStorageError> {
        let names = outbox::names(streams);
        // Usually nothing is posted, and then no lock is taken.
        if self.read_only(|connection| outbox::is_empty(connection, &names))? {
            return Ok(Vec::new());
        }
        self.change_unconditionally(|connection| Ok(outbox::claim(connection, server, &names, now, count_max)?))
    }

    fn claimed(&mut self, server: ServerId, stream: &StreamName) -> Result<Vec<PostedEvent>, StreamStorageError> {
        self.read_only(|connection| outbox::claimed(connection, server, stream))
    }

    fn quarantine(&mut self, number: u64, why: &str) -> Result<(), StreamStorageError> {
        self.change_unconditionally(|connection| Ok(outbox::quarantine(connection, signed(number)?, why)?))
    }

    fn contents(&mut self, stream: &StreamName) -> Result<Contents, StreamStorageError> {
        self.read_only(|connection| Ok(find(connection, stream)?.map_or(Contents::default(), |record| record.contents)))
    }

    fn trim(
        &mut self,
        stream: &StreamName,
        limits: &StreamLimits,
        now: Timestamp,
        budget: usize,
    ) -> Result<TrimReport, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let Some(record) = find(connection, stream)? else { return Ok(TrimReport::default()) };
            Ok(trim(connection, record, limits, now, budget)?)
        })
    }
}

#[cfg(test)]
mod tests;
