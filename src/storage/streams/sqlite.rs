//! Streams in a SQLite file of the peer, or of an application that adds events within its own transactions.
//!
//! | table | row |
//! |---|---|
//! | `seqcast_streams` | a stream: its last id, and the number and bytes of its retained events |
//! | `seqcast_events` | a retained event |
//! | `seqcast_consumers` | a registered consumer |
//! | `seqcast_outbox` | an event that an application has posted, and that is in no stream yet |
//! | `seqcast_covered` | the position up to which a stream has the events of a server's journal |
//! | `seqcast_version` | one row: the version of these tables |
//!
//! A step survives a crash of the host once its function returns: WAL with `synchronous=FULL`
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
use rows::{consumers, covered, find, find_consumer, find_or_create, read, trim, update_contents, upsert_consumer};
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
    /// Other processes have locked the file. Further steps of the batch do not wait for it again.
    Busy,
    /// Changes are pending.
    Active,
    /// SQLite has rolled back the batch, because the disk is full or has failed.
    RolledBack,
}

impl SqliteStreams {
    /// Opens the file, or creates it, and creates missing tables. Other processes of this host may have the file open.
    ///
    /// # Errors
    /// The file is not a SQLite file, its tables are of another version, or the system refuses to open it. The file is
    /// then unchanged.
    pub fn open(path: &Path) -> Result<SqliteStreams, StreamStorageError> {
        let error_of = |fault| StreamStorageError { location: path.display().to_string(), fault };
        check_header(path).map_err(|reason| error_of(file_error(reason)))?;
        let connection = schema::open(path).map_err(error_of)?;
        Ok(SqliteStreams { connection, path: path.to_owned(), batch: SqliteBatch::Inactive })
    }

    fn error(&self, fault: StreamFault) -> StreamStorageError {
        StreamStorageError { location: self.path.display().to_string(), fault }
    }

    fn with_location(&self, error: StepError) -> StreamStoreError<StreamStorageError> {
        StreamStorageError::with_location(&self.path.display().to_string(), error)
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
                return Err(self.with_location(fault.into()));
            }
            self.batch = SqliteBatch::Active;
        }
        let [begin, end, back] = match self.batch {
            SqliteBatch::Active => ["SAVEPOINT step", "RELEASE step", "ROLLBACK TO step; RELEASE step"],
            SqliteBatch::Inactive | SqliteBatch::Armed => ["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"],
            SqliteBatch::Busy => return Err(self.with_location(StreamFault::Busy.into())),
            SqliteBatch::RolledBack => return Err(self.with_location(rolled_back().into())),
        };
        let run = || -> Result<T, StepError> {
            self.connection.execute_batch(begin)?;
            let result =
                step(&self.connection).and_then(|result| Ok(self.connection.execute_batch(end).map(|()| result)?));
            if result.is_err() {
                // If the transaction is over already, nothing remains to roll back.
                drop(self.connection.execute_batch(back));
            }
            result
        };
        let result = run().map_err(|error| self.with_location(error));
        if self.batch == SqliteBatch::Active && self.connection.is_autocommit() {
            self.batch = SqliteBatch::RolledBack;
        }
        result
    }

    /// Runs a change that no state of a stream or consumer can refuse.
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

pub(super) fn file_error(reason: SqliteFileError) -> StreamFault {
    match reason {
        SqliteFileError::Foreign(what) => StreamFault::Foreign(what.into()),
        SqliteFileError::Version(version) => StreamFault::Version { found: version.into(), supported: VERSION },
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
                    outbox::remove_registered(connection, origin.server, stream, *stamp)?;
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
        budget: PageBudget,
    ) -> Result<StreamPage, StreamStorageError> {
        self.read_only(|connection| match find(connection, stream)? {
            Some(record) => read(connection, record, after, want, budget),
            None => Ok(StreamPage::new(after)),
        })
    }

    fn register(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        now: Timestamp,
    ) -> Result<Option<ConsumerRow>, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let record = find_or_create(connection, stream)?;
            let before = find_consumer(connection, record, consumer)?;
            let row = ConsumerRow::registered(before.as_ref(), consumer, &record.contents, now);
            upsert_consumer(connection, record.number, &row)?;
            Ok(before)
        })
    }

    fn accept(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        accepted: StreamId,
        now: Timestamp,
    ) -> Result<StreamId, StreamStoreError<StreamStorageError>> {
        self.change(|connection| {
            let Some(record) = find(connection, stream)? else { return Err(StreamStoreError::NotRegistered) };
            let mut row = find_consumer(connection, record, consumer)?.ok_or(StreamStoreError::NotRegistered)?;
            if let Some(missed) = row.lapsed {
                return Err(StreamStoreError::Lapsed(missed));
            }
            row.position = accepted.min(record.contents.last).max(row.position);
            row.last_request = now;
            upsert_consumer(connection, record.number, &row)?;
            Ok(row.position)
        })
    }

    fn reset(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        position: StreamId,
    ) -> Result<bool, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let Some(record) = find(connection, stream)? else { return Ok(false) };
            let Some(row) = find_consumer(connection, record, consumer)? else { return Ok(false) };
            let row = ConsumerRow { position: position.min(record.contents.last), lapsed: None, ..row };
            upsert_consumer(connection, record.number, &row)?;
            Ok(true)
        })
    }

    fn remove(&mut self, stream: &StreamName, consumer: &Consumer) -> Result<bool, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let Some(StreamRecord { number, .. }) = find(connection, stream)? else { return Ok(false) };
            let mut remove = connection
                .prepare_cached("DELETE FROM seqcast_consumers WHERE stream = ? AND user = ? AND component = ?")?;
            Ok(0 < remove.execute(params![number, consumer.user.as_str(), consumer.component.as_str()])?)
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
        // Usually no event is posted. The query then takes no lock.
        if self.read_only(|connection| outbox::is_empty(connection, &names))? {
            return Ok(Vec::new());
        }
        self.change_unconditionally(|connection| Ok(outbox::claim(connection, server, &names, now, count_max)?))
    }

    fn claimed(&mut self, server: ServerId, stream: &StreamName) -> Result<Vec<PostedEvent>, StreamStorageError> {
        self.read_only(|connection| outbox::claimed(connection, server, stream))
    }

    fn quarantine(&mut self, number: u64, reason: &str) -> Result<(), StreamStorageError> {
        self.change_unconditionally(|connection| Ok(outbox::quarantine(connection, signed(number)?, reason)?))
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
