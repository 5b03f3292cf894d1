//! Streams in a PostgreSQL database, which several peers and applications can share.
//!
//! The tables are those of [`sqlite`](super::sqlite). A step survives a crash of the server's host once the server has
//! answered it, if the server runs with `fsync` on. Each writer holds one lock of the database until its change is
//! committed, as with SQLite. So ids become readable in ascending order without gaps, and no deadlock can occur. The
//! retained events are always the last ones of a stream, so their number follows from their ids.
//!
//! If the server is unreachable, the next step tries to reconnect, at the earliest one second after the last attempt.

mod connection;
mod outbox;
mod rows;
mod schema;
mod tls;

pub use outbox::add_event_in;

use super::column_values::{id, signed};
use super::error::{StepError, StreamFault, StreamStorageError};
use super::store::BatchStore;
use crate::clock::Clock;
use crate::event::model::{EventId, ServerId};
use crate::event::stream::model::{PageBudget, StreamPage};
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::stream::store::{
    ConsumerRow, Contents, NewEvent, PostedEvent, StreamLimits, StreamStore, StreamStoreError, TrimReport,
};
use crate::event::timestamp::Timestamp;
use crate::time::Instant;
use connection::{NO_ANSWER, PostgresConnection, PostgresSession, column};
pub(super) use connection::{PostgresAddress, connection_fault};
use rows::{
    consumers, cover, covered, find, find_consumer, find_or_create, insert, read, trim, update_contents,
    upsert_consumer,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Minimum time between two attempts to connect to an unreachable server, so that not every step waits for it.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Begins a step. The second number of the lock is the oid of the table of streams, so that each schema has its own
/// lock.
const BEGIN: &str =
    "BEGIN; SELECT pg_advisory_xact_lock(1936027507, 'seqcast_streams'::regclass::oid::int4); SAVEPOINT step";

/// Streams in a database.
pub struct PostgresStreams {
    address: PostgresAddress,
    connection: Option<PostgresConnection>,
    /// Pause after a connection that failed.
    backoff: Option<ReconnectPause>,
    batch: PostgresBatch,
}

/// Pause before the next attempt to connect.
struct ReconnectPause {
    until: Instant,
    /// Fault of the last attempt.
    fault: StreamFault,
}

/// State of a batch of steps that are committed together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PostgresBatch {
    /// No batch: each step is committed on its own.
    Inactive,
    /// A batch begins with the next step that changes something.
    Armed,
    /// Changes are pending on the current connection.
    Active,
    /// The server has rolled back the batch, for this reason.
    RolledBack(StreamFault),
}

impl fmt::Debug for PostgresStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStreams")
            .field("location", &self.address.location)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

impl PostgresStreams {
    /// Opens the database at `postgres://[user[:password]@]host[:port][/database]`, and creates the tables in its
    /// current schema.
    ///
    /// # Errors
    /// The address is invalid, the server is unreachable, or tables of these names are of another program or version.
    /// The database is then unchanged.
    ///
    /// # Panics
    /// Panics if the caller is an asynchronous task, which this function would block. The other methods do as well.
    pub fn open(url: &str) -> Result<PostgresStreams, StreamStorageError> {
        let address =
            PostgresAddress::parse(url).map_err(|fault| StreamStorageError { location: "postgres".into(), fault })?;
        let connection = PostgresConnection::connect(&address, schema::create)
            .map_err(|fault| StreamStorageError { location: address.location.clone(), fault })?;
        Ok(PostgresStreams { address, connection: Some(connection), backoff: None, batch: PostgresBatch::Inactive })
    }

    fn error(&self, fault: StreamFault) -> StreamStorageError {
        StreamStorageError { location: self.address.location.clone(), fault }
    }

    fn open_connection(&mut self) -> Result<&mut PostgresConnection, StreamFault> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                if let Some(pause) = self.backoff.as_ref().filter(|pause| Clock::now().instant < pause.until) {
                    return Err(pause.fault.clone());
                }
                let connected = PostgresConnection::connect(&self.address, schema::check);
                self.backoff = connected.as_ref().err().map(|fault| ReconnectPause {
                    until: Clock::now().instant + RECONNECT_INTERVAL,
                    fault: fault.clone(),
                });
                connected?
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Runs a step over the connection, and drops a connection that is no longer usable.
    fn run_step<T, E>(
        &mut self,
        bytes: usize,
        step: impl AsyncFnOnce(&PostgresSession) -> Result<T, E>,
    ) -> Result<T, StreamStoreError<StreamFault>>
    where
        E: From<StreamFault> + Into<StepError>,
    {
        let result = self.open_connection()?.run(bytes, step).map_err(E::into);
        if matches!(result, Err(StreamStoreError::Store(StreamFault::Unreachable(_)))) {
            self.connection = None;
        }
        result
    }

    /// Runs a step outside a transaction. If the server has closed the connection, as after a restart, reconnects once
    /// and runs the step again.
    fn run_with_reconnect<T, E>(
        &mut self,
        bytes: usize,
        step: impl AsyncFn(&PostgresSession) -> Result<T, E>,
    ) -> Result<T, StreamStoreError<StreamFault>>
    where
        E: From<StreamFault> + Into<StepError>,
    {
        let was_connected = self.connection.is_some();
        match self.run_step(bytes, &step) {
            Err(StreamStoreError::Store(StreamFault::Unreachable(reason))) if was_connected && reason != NO_ANSWER => {
                self.run_step(bytes, &step)
            }
            result => result,
        }
    }

    /// Drops the connection and marks the batch as rolled back.
    fn abandon_batch(&mut self, fault: &StreamFault) {
        self.connection = None;
        self.batch = PostgresBatch::RolledBack(fault.clone());
    }

    /// Runs a step as one transaction or savepoint, all or nothing.
    fn change<T>(
        &mut self,
        bytes: usize,
        step: impl AsyncFnOnce(&PostgresSession) -> Result<T, StepError>,
    ) -> Result<T, StreamStoreError<StreamStorageError>> {
        let result = self.step(bytes, step);
        result.map_err(|error| StreamStorageError::with_location(&self.address.location, error))
    }

    fn step<T>(
        &mut self,
        bytes: usize,
        step: impl AsyncFnOnce(&PostgresSession) -> Result<T, StepError>,
    ) -> Result<T, StepError> {
        let is_alone = self.batch == PostgresBatch::Inactive;
        match &self.batch {
            PostgresBatch::RolledBack(fault) => return Err(fault.clone().into()),
            PostgresBatch::Active => {
                let next = async |session: &PostgresSession| session.simple("RELEASE step; SAVEPOINT step").await;
                if let Err(StreamStoreError::Store(fault)) = self.run_step(0, next) {
                    self.abandon_batch(&fault);
                    return Err(fault.into());
                }
            }
            PostgresBatch::Inactive | PostgresBatch::Armed => {
                if let Err(error) =
                    self.run_with_reconnect(0, async |session: &PostgresSession| session.simple(BEGIN).await)
                {
                    // The next connection has no transaction.
                    self.connection = None;
                    return Err(error);
                }
                if !is_alone {
                    self.batch = PostgresBatch::Active;
                }
            }
        }
        let result = self.run_step(bytes, async |session: &PostgresSession| {
            let result = step(session).await;
            let end = match (&result, is_alone) {
                (Ok(_), true) => "COMMIT",
                (Ok(_), false) | (Err(StreamStoreError::Store(StreamFault::Unreachable(_))), _) => return result,
                (Err(_), true) => "ROLLBACK",
                (Err(_), false) => "ROLLBACK TO step",
            };
            match session.simple(end).await {
                Err(StreamFault::Unreachable(reason)) if result.is_ok() => Err(unknown(&reason).into()),
                Err(fault) if result.is_ok() => Err(fault.into()),
                // The caller drops the connection.
                Err(_) => Err(StreamFault::Unreachable("the step could not be rolled back".into()).into()),
                Ok(()) => result,
            }
        });
        if let (Err(StreamStoreError::Store(fault)), None, false) = (&result, &self.connection, is_alone) {
            self.batch = PostgresBatch::RolledBack(fault.clone());
        }
        result
    }

    /// Runs a change that no state of a stream or consumer can refuse.
    fn change_unconditionally<T>(
        &mut self,
        step: impl AsyncFnOnce(&PostgresSession) -> Result<T, StepError>,
    ) -> Result<T, StreamStorageError> {
        self.change(0, step).map_err(StreamStorageError::expect_store_error)
    }

    fn read_only<T>(
        &mut self,
        bytes: usize,
        read_only: impl AsyncFn(&PostgresSession) -> Result<T, StreamFault>,
    ) -> Result<T, StreamStorageError> {
        let result = match &self.batch {
            PostgresBatch::RolledBack(fault) => Err(fault.clone().into()),
            PostgresBatch::Inactive | PostgresBatch::Armed => self.run_with_reconnect(bytes, read_only),
            PostgresBatch::Active => {
                let result = self.run_step(bytes, read_only);
                if let Err(StreamStoreError::Store(fault)) = &result {
                    // The server refuses all further statements of the transaction.
                    self.abandon_batch(&fault.clone());
                }
                result
            }
        };
        result.map_err(|error| {
            StreamStorageError::expect_store_error(StreamStorageError::with_location(&self.address.location, error))
        })
    }
}

/// Returns the fault for a missing answer to the end of a transaction.
fn unknown(reason: &str) -> StreamFault {
    StreamFault::Unreachable(format!("{reason}; it is unknown whether the last step is stored"))
}

impl BatchStore for PostgresStreams {
    fn begin(&mut self) {
        self.batch = PostgresBatch::Armed;
    }

    fn commit(&mut self) -> Result<(), StreamStorageError> {
        match std::mem::replace(&mut self.batch, PostgresBatch::Inactive) {
            PostgresBatch::Inactive | PostgresBatch::Armed => return Ok(()),
            PostgresBatch::RolledBack(fault) => return Err(self.error(fault)),
            PostgresBatch::Active => {}
        }
        // If the server has aborted the transaction, RELEASE is refused; a COMMIT alone would succeed.
        let result = self.run_step(0, async |session: &PostgresSession| session.simple("RELEASE step; COMMIT").await);
        result.map_err(|error| {
            self.connection = None;
            match StreamStorageError::expect_store_error(StreamStorageError::with_location(
                &self.address.location,
                error,
            )) {
                StreamStorageError { location, fault: StreamFault::Unreachable(reason) } => {
                    StreamStorageError { location, fault: unknown(&reason) }
                }
                error => error,
            }
        })
    }

    fn location(&self) -> String {
        self.address.location.clone()
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl StreamStore for PostgresStreams {
    type Error = StreamStorageError;

    fn check(&mut self) -> Result<(), StreamStorageError> {
        let result = match &self.batch {
            PostgresBatch::RolledBack(fault) => Err(fault.clone()),
            PostgresBatch::Inactive | PostgresBatch::Armed | PostgresBatch::Active => self.open_connection().map(drop),
        };
        result.map_err(|fault| self.error(fault))
    }

    fn covered(&mut self, stream: &StreamName) -> Result<Vec<EventId>, StreamStorageError> {
        self.read_only(0, async |session: &PostgresSession| Ok(covered(session, stream).await?.into_values().collect()))
    }

    fn add(
        &mut self,
        stream: &StreamName,
        events: &[NewEvent],
        positions: &[EventId],
        limits: &StreamLimits,
    ) -> Result<Vec<Option<StreamId>>, StreamStoreError<StreamStorageError>> {
        let bytes = events.iter().map(|event| event.data.bytes().len()).sum();
        self.change(bytes, async |session: &PostgresSession| {
            let (found, scanned) = tokio::join!(find_or_create(session, stream), covered(session, stream));
            let (mut found, mut scanned) = (found?, scanned?);
            let before = found.contents.last;
            let (mut ids, mut new) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
            let (mut changed, contents) = (BTreeSet::new(), &mut found.contents);
            // Stamps of events that may have been posted, by server.
            let mut posted = BTreeMap::new();
            for event in events {
                let NewEvent { data, origin, stamp, .. } = event;
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
                scanned.insert(origin.server, *origin);
                changed.insert(origin.server);
                if let Some(stamp) = stamp {
                    posted.entry(origin.server).or_insert_with(Vec::new).push(stamp.as_micros());
                }
                new.push(event);
                ids.push(Some(contents.last));
            }
            for position in positions {
                if scanned.get(&position.server).is_none_or(|scanned| scanned < position) {
                    scanned.insert(position.server, *position);
                    changed.insert(position.server);
                }
            }
            let changed: Vec<EventId> = changed.iter().map(|server| scanned[server]).collect();
            let number = found.number;
            tokio::try_join!(
                insert(session, number, signed(before.number())?, &new),
                cover(session, number, &changed),
                update_contents(session, found)
            )?;
            for (server, stamps) in posted {
                outbox::remove_registered(session, server, stream, &stamps).await?;
            }
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
        let kinds: Option<Vec<&str>> = want.map(|want| want.iter().map(StreamType::as_str).collect());
        self.read_only(budget.bytes, async |session: &PostgresSession| {
            let page = StreamPage::new(after);
            match find(session, stream).await? {
                Some(found) => read(session, &found, page, kinds.as_deref(), budget).await,
                None => Ok(page),
            }
        })
    }

    fn register(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        now: Timestamp,
    ) -> Result<Option<ConsumerRow>, StreamStorageError> {
        self.change_unconditionally(async |session: &PostgresSession| {
            let found = find_or_create(session, stream).await?;
            let before = find_consumer(session, &found, consumer).await?;
            let row = ConsumerRow::registered(before.as_ref(), consumer, &found.contents, now);
            upsert_consumer(session, found.number, &row).await?;
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
        let (user, component) = (consumer.user.as_str(), consumer.component.as_str());
        self.change(0, async |session: &PostgresSession| {
            let accept = r#"UPDATE seqcast_consumers c SET position = greatest(c.position, least($4, s.last)), heard = $5
                FROM seqcast_streams s WHERE s.name = $1 AND c.stream = s.number AND c."user" = $2 AND c.component = $3
                AND c.missed_first IS NULL RETURNING c.position"#;
            let (accepted, last_request) = (signed(accepted.number())?, now.as_micros());
            let rows = session.rows(accept, &[&stream.as_str(), &user, &component, &accepted, &last_request]).await?;
            if let Some(row) = rows.first() {
                return Ok(id(column(row, 0)?)?);
            }
            let Some(found) = find(session, stream).await? else { return Err(StreamStoreError::NotRegistered) };
            let lapsed = find_consumer(session, &found, consumer).await?.and_then(|row| row.lapsed);
            Err(lapsed.map_or(StreamStoreError::NotRegistered, StreamStoreError::Lapsed))
        })
    }

    fn reset(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        position: StreamId,
    ) -> Result<bool, StreamStorageError> {
        let (user, component) = (consumer.user.as_str(), consumer.component.as_str());
        self.change_unconditionally(async |session: &PostgresSession| {
            let reset = r#"UPDATE seqcast_consumers c SET position = least($4, s.last),
                missed_first = NULL, missed_last = NULL, missed_count = NULL
                FROM seqcast_streams s WHERE s.name = $1 AND c.stream = s.number AND c."user" = $2 AND c.component = $3"#;
            let position = signed(position.number())?;
            Ok(0 < session.change(reset, &[&stream.as_str(), &user, &component, &position]).await?)
        })
    }

    fn remove(&mut self, stream: &StreamName, consumer: &Consumer) -> Result<bool, StreamStorageError> {
        let (user, component) = (consumer.user.as_str(), consumer.component.as_str());
        self.change_unconditionally(async |session: &PostgresSession| {
            let remove = r#"DELETE FROM seqcast_consumers c USING seqcast_streams s
                WHERE s.name = $1 AND c.stream = s.number AND c."user" = $2 AND c.component = $3"#;
            Ok(0 < session.change(remove, &[&stream.as_str(), &user, &component]).await?)
        })
    }

    fn consumers(&mut self, stream: &StreamName) -> Result<Vec<ConsumerRow>, StreamStorageError> {
        self.read_only(0, async |session: &PostgresSession| {
            let Some(found) = find(session, stream).await? else { return Ok(Vec::new()) };
            consumers(session, &found).await
        })
    }

    fn find(&mut self, stream: &StreamName, origin: EventId) -> Result<Option<StreamId>, StreamStorageError> {
        self.read_only(0, async |session: &PostgresSession| {
            let find = "SELECT id FROM seqcast_events WHERE stream = (SELECT number FROM seqcast_streams WHERE name = $1) \
                AND server = $2 AND session = $3 AND instance = $4 ORDER BY id DESC LIMIT 1";
            let (server, session_number) = (i64::from(origin.server.0), signed(origin.session)?);
            let instance = signed(origin.instance)?;
            let rows = session.rows(find, &[&stream.as_str(), &server, &session_number, &instance]).await?;
            rows.first().map(|row| id(column(row, 0)?)).transpose()
        })
    }

    fn claim(
        &mut self,
        server: ServerId,
        streams: &[StreamName],
        now: Timestamp,
        count_max: usize,
    ) -> Result<Vec<PostedEvent>, StreamStorageError> {
        let names: Vec<&str> = streams.iter().map(StreamName::as_str).collect();
        // Usually no event is posted. The query then takes no lock.
        if self.read_only(0, async |session: &PostgresSession| outbox::is_empty(session, &names).await)? {
            return Ok(Vec::new());
        }
        self.change_unconditionally(async |session: &PostgresSession| {
            Ok(outbox::claim(session, server, &names, now, count_max).await?)
        })
    }

    fn claimed(&mut self, server: ServerId, stream: &StreamName) -> Result<Vec<PostedEvent>, StreamStorageError> {
        self.read_only(0, async |session: &PostgresSession| outbox::claimed(session, server, stream).await)
    }

    fn quarantine(&mut self, number: u64, reason: &str) -> Result<(), StreamStorageError> {
        self.change_unconditionally(async |session: &PostgresSession| {
            Ok(outbox::quarantine(session, signed(number)?, reason).await?)
        })
    }

    fn contents(&mut self, stream: &StreamName) -> Result<Contents, StreamStorageError> {
        self.read_only(0, async |session: &PostgresSession| {
            Ok(find(session, stream).await?.map_or(Contents::default(), |found| found.contents))
        })
    }

    fn trim(
        &mut self,
        stream: &StreamName,
        limits: &StreamLimits,
        now: Timestamp,
        budget: usize,
    ) -> Result<TrimReport, StreamStorageError> {
        self.change_unconditionally(async |session: &PostgresSession| match find(session, stream).await? {
            Some(found) => Ok(trim(session, found, limits, now, budget).await?),
            None => Ok(TrimReport::default()),
        })
    }
}

#[cfg(test)]
mod tests;
