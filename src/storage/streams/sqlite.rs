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

pub use outbox::add_event_in;

use super::column_values::{damaged, id, signed, timestamp, unsigned};
use super::error::{StepError, StreamFault, StreamStorageError};
use super::store::BatchStore;
use crate::event::model::{EventId, Json, ServerId};
use crate::event::stream::model::{PASSED_MAX, PageBudget, StreamEvent, StreamPage};
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::stream::store::{
    ConsumerRow, Contents, MissedRange, NewEvent, Policy, PostedEvent, StreamLimits, StreamStore, StreamStoreError,
    TrimReport,
};
use crate::event::timestamp::Timestamp;
use crate::storage::sqlite_file::{SqliteFileError, check_header, is_corruption, retry_busy};
use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Version of the tables; a file of any other version is refused.
const VERSION: i64 = 1;
/// Prefix of the application ids of our other files: "sq".
const OTHER_APPLICATION_PREFIX: i32 = 0x7371;

const SCHEMA: &str = "
    CREATE TABLE seqcast_version (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL) STRICT;
    INSERT INTO seqcast_version VALUES (1, 1);
    CREATE TABLE seqcast_streams (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, last INTEGER NOT NULL, events INTEGER NOT NULL, bytes INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE seqcast_events (
        stream INTEGER, id INTEGER, type TEXT NOT NULL, data TEXT NOT NULL, time INTEGER NOT NULL,
        server INTEGER NOT NULL, session INTEGER NOT NULL, instance INTEGER NOT NULL, PRIMARY KEY (stream, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE seqcast_covered (
        stream INTEGER, server INTEGER, session INTEGER NOT NULL, instance INTEGER NOT NULL, PRIMARY KEY (stream, server)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE seqcast_consumers (
        stream INTEGER, user TEXT, component TEXT, position INTEGER NOT NULL,
        missed_first INTEGER, missed_last INTEGER, missed_count INTEGER,
        registered INTEGER NOT NULL, heard INTEGER NOT NULL, PRIMARY KEY (stream, user, component)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE seqcast_outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT CHECK (0 < number),
        stream TEXT NOT NULL CHECK (length(stream) BETWEEN 1 AND 32),
        type TEXT NOT NULL CHECK (length(type) BETWEEN 1 AND 16 AND type NOT GLOB '*[^A-Z_]*'),
        data TEXT NOT NULL CHECK (json_valid(data)),
        server INTEGER, stamp INTEGER, refused TEXT
    ) STRICT;
    CREATE INDEX seqcast_outbox_claimed ON seqcast_outbox (server, stream, stamp) WHERE refused IS NULL;
";

impl From<rusqlite::Error> for StreamFault {
    fn from(error: rusqlite::Error) -> StreamFault {
        let words = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StreamFault::Full(words),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StreamFault::Busy,
            _ if is_corruption(&error) => StreamFault::Damaged(words),
            Some(
                ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::SystemIoFailure,
            ) => StreamFault::Unreachable(words),
            _ => StreamFault::Other(words),
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
        let open = || -> Result<Connection, StreamFault> {
            let flags =
                OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut connection = Connection::open_with_flags(path, flags)?;
            connection.busy_handler(Some(retry_busy))?;
            connection.set_prepared_statement_cache_capacity(64);
            let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
            if application >> 16 == OTHER_APPLICATION_PREFIX {
                return Err(StreamFault::Foreign("a journal, an archive or a shared state of ours".into()));
            }
            let is_ours = check_version(&connection)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            if !is_ours {
                // Another process may be creating them too.
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                if !check_version(&transaction)? {
                    transaction.execute_batch(SCHEMA)?;
                }
                transaction.commit()?;
            }
            Ok(connection)
        };
        let connection = open().map_err(wrong)?;
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

/// Returns whether our tables exist; an error if they are of another version, or not ours.
fn check_version(connection: &Connection) -> Result<bool, StreamFault> {
    let names = "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'seqcast_*' AND type = 'table'";
    if connection.query_row(names, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(false);
    }
    let found = connection.query_row("SELECT version FROM seqcast_version", [], |row| row.get(0));
    match found.map_err(|error| StreamFault::Foreign(format!("seqcast_version: {error}")))? {
        VERSION => Ok(true),
        found => Err(StreamFault::Version { found, known: VERSION }),
    }
}

fn rolled_back() -> StreamFault {
    StreamFault::Full("what was done together with it was taken back".into())
}

fn event_id(row: &Row<'_>, from: usize) -> Result<EventId, StreamFault> {
    let (session, instance) = (unsigned(row.get(from + 1)?)?, unsigned(row.get(from + 2)?)?);
    Ok(EventId { server: ServerId(row.get(from)?), session, instance })
}

/// Finds number and contents of a stream; `None` if the stream was never used.
fn find(connection: &Connection, stream: &StreamName) -> Result<Option<(i64, Contents)>, StreamFault> {
    let mut find =
        connection.prepare_cached("SELECT number, last, events, bytes FROM seqcast_streams WHERE name = ?")?;
    let mut rows = find.query([stream.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (events, bytes) = (unsigned(row.get(2)?)?, unsigned(row.get(3)?)?);
    Ok(Some((row.get(0)?, Contents { last: id(row.get(1)?)?, events, bytes })))
}

fn find_or_create(connection: &Connection, stream: &StreamName) -> Result<(i64, Contents), StreamFault> {
    if let Some(found) = find(connection, stream)? {
        return Ok(found);
    }
    connection
        .prepare_cached("INSERT INTO seqcast_streams (name, last, events, bytes) VALUES (?, 0, 0, 0)")?
        .execute([stream.as_str()])?;
    Ok((connection.last_insert_rowid(), Contents::default()))
}

fn update_contents(connection: &Connection, stream: i64, contents: &Contents) -> Result<(), StreamFault> {
    connection
        .prepare_cached("UPDATE seqcast_streams SET last = ?, events = ?, bytes = ? WHERE number = ?")?
        .execute(params![signed(contents.last.number())?, signed(contents.events)?, signed(contents.bytes)?, stream])?;
    Ok(())
}

fn covered(connection: &Connection, stream: i64) -> Result<BTreeMap<ServerId, EventId>, StreamFault> {
    let mut find =
        connection.prepare_cached("SELECT server, session, instance FROM seqcast_covered WHERE stream = ?")?;
    let mut rows = find.query([stream])?;
    let mut places = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let place = event_id(row, 0)?;
        places.insert(place.server, place);
    }
    Ok(places)
}

fn consumer_row(row: &Row<'_>, of: &Contents) -> Result<ConsumerRow, StreamFault> {
    let name = |text: String| text.parse().map_err(|_| damaged("a user"));
    let component = |text: String| text.parse().map_err(|_| damaged("a component"));
    let missed = |first: Option<i64>| -> Result<Option<MissedRange>, StreamFault> {
        let Some(first) = first else { return Ok(None) };
        Ok(Some(MissedRange { first: id(first)?, last: id(row.get(4)?)?, count: unsigned(row.get(5)?)? }))
    };
    let position = id(row.get(2)?)?;
    Ok(ConsumerRow {
        consumer: Consumer { user: name(row.get(0)?)?, component: component(row.get(1)?)? },
        position,
        lapsed: missed(row.get(3)?)?,
        registered: timestamp(row.get(6)?)?,
        heard: timestamp(row.get(7)?)?,
        behind: of.behind(position),
    })
}

const CONSUMER: &str = "SELECT user, component, position, missed_first, missed_last, missed_count, registered, heard \
    FROM seqcast_consumers WHERE stream = ?1";

fn consumer(
    connection: &Connection,
    (stream, of): (i64, &Contents),
    consumer: &Consumer,
) -> Result<Option<ConsumerRow>, StreamFault> {
    let mut find = connection.prepare_cached(&format!("{CONSUMER} AND user = ?2 AND component = ?3"))?;
    let mut rows = find.query(params![stream, consumer.user.as_str(), consumer.component.as_str()])?;
    rows.next()?.map(|row| consumer_row(row, of)).transpose()
}

fn consumers(connection: &Connection, (stream, of): (i64, &Contents)) -> Result<Vec<ConsumerRow>, StreamFault> {
    let mut find = connection.prepare_cached(&format!("{CONSUMER} ORDER BY user, component"))?;
    let mut rows = find.query([stream])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(consumer_row(row, of)?);
    }
    Ok(found)
}

fn put_consumer(connection: &Connection, stream: i64, row: &ConsumerRow) -> Result<(), StreamFault> {
    let missed = |of: fn(&MissedRange) -> u64| row.lapsed.as_ref().map(|missed| signed(of(missed))).transpose();
    connection.prepare_cached("REPLACE INTO seqcast_consumers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?.execute(
        params![
            stream,
            row.consumer.user.as_str(),
            row.consumer.component.as_str(),
            signed(row.position.number())?,
            missed(|missed| missed.first.number())?,
            missed(|missed| missed.last.number())?,
            missed(|missed| missed.count)?,
            row.registered.as_micros(),
            row.heard.as_micros(),
        ],
    )?;
    Ok(())
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

    fn place(&self) -> String {
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
            Some((number, _)) => Ok(covered(connection, number)?.into_values().collect()),
            None => Ok(Vec::new()),
        })
    }

    fn add(
        &mut self,
        stream: &StreamName,
        events: &[NewEvent],
        places: &[EventId],
        limits: &StreamLimits,
    ) -> Result<Vec<Option<StreamId>>, StreamStoreError<StreamStorageError>> {
        self.change(|connection| {
            let (number, mut contents) = find_or_create(connection, stream)?;
            let mut known = covered(connection, number)?;
            let mut insert = connection.prepare_cached("INSERT INTO seqcast_events VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
            let (mut ids, mut changed) = (Vec::with_capacity(events.len()), BTreeSet::new());
            for NewEvent { kind, data, time, origin, stamp } in events {
                if known.get(&origin.server).is_some_and(|known| origin <= known) {
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
                known.insert(origin.server, *origin);
                changed.insert(origin.server);
                ids.push(Some(contents.last));
            }
            for place in places {
                if known.get(&place.server).is_none_or(|known| known < place) {
                    known.insert(place.server, *place);
                    changed.insert(place.server);
                }
            }
            let mut cover = connection.prepare_cached("REPLACE INTO seqcast_covered VALUES (?, ?, ?, ?)")?;
            for server in changed {
                let place = known[&server];
                cover.execute(params![number, server.0, signed(place.session)?, signed(place.instance)?])?;
            }
            update_contents(connection, number, &contents)?;
            Ok(ids)
        })
    }

    fn read(
        &mut self,
        stream: &StreamName,
        after: StreamId,
        want: Option<&BTreeSet<StreamType>>,
        mut room: PageBudget,
    ) -> Result<StreamPage, StreamStorageError> {
        self.read_only(|connection| {
            let (mut page, mut passed) = (StreamPage::new(after), 0);
            let Some((number, contents)) = find(connection, stream)? else { return Ok(page) };
            let mut read = connection.prepare_cached(
                "SELECT id, type, data, time, server, session, instance FROM seqcast_events \
                 WHERE stream = ? AND ? < id ORDER BY id",
            )?;
            let mut rows = read.query(params![number, signed(after.number())?])?;
            while let Some(row) = rows.next()? {
                let (found, kind) = (id(row.get(0)?)?, row.get_ref(1)?.as_str().map_err(|_| damaged("a type"))?);
                if want.is_none_or(|want| want.contains(kind)) {
                    let data = Bytes::from(row.get::<_, String>(2)?);
                    let event = StreamEvent {
                        id: found,
                        kind: kind.parse().map_err(|_| damaged("a type"))?,
                        data: Json::from_stored(data).map_err(|_| damaged("JSON"))?,
                        time: timestamp(row.get(3)?)?,
                        origin: event_id(row, 4)?,
                    };
                    if !page.take(event, &mut room) {
                        return Ok(page);
                    }
                } else if passed == PASSED_MAX {
                    page.more_follows = true;
                    return Ok(page);
                } else {
                    passed += 1;
                }
                page.covered = found;
            }
            // Events added meanwhile come after that.
            page.covered = page.covered.max(contents.last);
            Ok(page)
        })
    }

    fn register(
        &mut self,
        stream: &StreamName,
        who: &Consumer,
        now: Timestamp,
    ) -> Result<Option<ConsumerRow>, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let (number, contents) = find_or_create(connection, stream)?;
            let before = consumer(connection, (number, &contents), who)?;
            let row = ConsumerRow::registered(before.as_ref(), who, &contents, now);
            put_consumer(connection, number, &row)?;
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
            let Some((number, contents)) = find(connection, stream)? else {
                return Err(StreamStoreError::NotRegistered);
            };
            let mut row = consumer(connection, (number, &contents), who)?.ok_or(StreamStoreError::NotRegistered)?;
            if let Some(missed) = row.lapsed {
                return Err(StreamStoreError::Lapsed(missed));
            }
            row.position = accepted.min(contents.last).max(row.position);
            row.heard = now;
            put_consumer(connection, number, &row)?;
            Ok(row.position)
        })
    }

    fn reset(&mut self, stream: &StreamName, who: &Consumer, position: StreamId) -> Result<bool, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let Some((number, contents)) = find(connection, stream)? else { return Ok(false) };
            let Some(row) = consumer(connection, (number, &contents), who)? else { return Ok(false) };
            let row = ConsumerRow { position: position.min(contents.last), lapsed: None, ..row };
            put_consumer(connection, number, &row)?;
            Ok(true)
        })
    }

    fn remove(&mut self, stream: &StreamName, who: &Consumer) -> Result<bool, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let Some((number, _)) = find(connection, stream)? else { return Ok(false) };
            let mut remove = connection
                .prepare_cached("DELETE FROM seqcast_consumers WHERE stream = ? AND user = ? AND component = ?")?;
            Ok(0 < remove.execute(params![number, who.user.as_str(), who.component.as_str()])?)
        })
    }

    fn consumers(&mut self, stream: &StreamName) -> Result<Vec<ConsumerRow>, StreamStorageError> {
        self.read_only(|connection| {
            let Some((number, contents)) = find(connection, stream)? else { return Ok(Vec::new()) };
            consumers(connection, (number, &contents))
        })
    }

    fn find(&mut self, stream: &StreamName, origin: EventId) -> Result<Option<StreamId>, StreamStorageError> {
        self.read_only(|connection| {
            let Some((number, _)) = find(connection, stream)? else { return Ok(None) };
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
        self.read_only(|connection| Ok(find(connection, stream)?.map_or(Contents::default(), |(_, contents)| contents)))
    }

    fn trim(
        &mut self,
        stream: &StreamName,
        limits: &StreamLimits,
        now: Timestamp,
        budget: usize,
    ) -> Result<TrimReport, StreamStorageError> {
        self.change_unconditionally(|connection| {
            let Some((number, contents)) = find(connection, stream)? else { return Ok(TrimReport::default()) };
            Ok(trim(connection, (number, contents), limits, now, budget)?)
        })
    }
}

fn trim(
    connection: &Connection,
    (number, mut contents): (i64, Contents),
    limits: &StreamLimits,
    now: Timestamp,
    budget: usize,
) -> Result<TrimReport, StreamFault> {
    let mut trimmed = TrimReport::default();
    let readers = consumers(connection, (number, &contents))?;
    let active = readers.iter().filter(|row| row.lapsed.is_none());
    let floor = active.map(|row| row.position).min();
    let before = contents;
    let mut end = None;
    {
        let mut oldest = connection.prepare_cached(
            "SELECT id, time, octet_length(data) FROM seqcast_events WHERE stream = ? ORDER BY id LIMIT ?",
        )?;
        let mut rows = oldest.query(params![number, i64::try_from(budget).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            let (found, time, bytes) = (id(row.get(0)?)?, timestamp(row.get(1)?)?, unsigned(row.get(2)?)?);
            let is_read = floor.is_some_and(|floor| found <= floor);
            let is_much = limits.bytes.is_some_and(|max| max < contents.bytes);
            let is_excess = limits.policy == Policy::Lapse && (limits.is_old(now, time) || is_much);
            if !is_read && !is_excess {
                break;
            }
            contents.events = contents.events.checked_sub(1).ok_or_else(|| damaged("a count of events"))?;
            contents.bytes = contents.bytes.checked_sub(bytes).ok_or_else(|| damaged("a count of bytes"))?;
            end = Some(found);
        }
    }
    let Some(end) = end else { return Ok(trimmed) };
    for row in readers.into_iter().filter(|row| row.position < end) {
        let mut gone = connection
            .prepare_cached("SELECT min(id), count(*) FROM seqcast_events WHERE stream = ? AND ? < id AND id <= ?")?;
        let bounds = params![number, signed(row.position.number())?, signed(end.number())?];
        let (first, count) =
            gone.query_row(bounds, |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, i64>(1)?)))?;
        let Some(first) = first else { continue };
        let missed = MissedRange { first: id(first)?, last: end, count: unsigned(count)? };
        let lapsed = Some(row.lapsed.map_or(missed, |before| before.and(missed)));
        trimmed.missed.push((row.consumer.clone(), missed));
        put_consumer(connection, number, &ConsumerRow { lapsed, position: end, ..row })?;
    }
    connection
        .prepare_cached("DELETE FROM seqcast_events WHERE stream = ? AND id <= ?")?
        .execute(params![number, signed(end.number())?])?;
    update_contents(connection, number, &contents)?;
    trimmed.removed = before.events - contents.events;
    Ok(trimmed)
}

#[cfg(test)]
#[path = "sqlite/tests.rs"]
mod tests;
