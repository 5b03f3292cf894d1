//! Streams in a PostgreSQL database, which several peers and applications can share.
//!
//! The tables are those of [`sqlite`](super::sqlite). What is done survives a crash of the server's host when it is answered, as long as the server
//! has `fsync` on. Whoever changes something holds one lock of the database, as with SQLite, until that is stored: so ids rise in the order
//! in which they can be read, without gaps, and nobody waits for somebody who waits for him. The events that are kept are always the last ones,
//! which is why they are counted by their ids.
//!
//! A server that is away is asked again with the next step, but a second after the last try at the earliest.

mod connection;
mod outbox;
mod rows;
mod schema;

pub use outbox::add_event_in;

use super::column_values::{id, signed};
use super::error::{StepError, StreamFault, StreamStorageError};
use super::store::BatchStore;
use crate::daemon::clock::Clock;
use crate::event::model::{EventId, ServerId};
use crate::event::stream::model::{PageBudget, StreamPage};
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::stream::store::{
    ConsumerRow, Contents, NewEvent, PostedEvent, StreamLimits, StreamStore, StreamStoreError, TrimReport,
};
use crate::event::timestamp::Timestamp;
use crate::time::Instant;
pub(super) use connection::PostgresAddress;
use connection::{NO_ANSWER, PostgresConnection, PostgresSession, column};
use rows::{
    consumer, consumers, cover, covered, find, find_or_create, insert, put_consumer, read, trim, update_contents,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// After so long a server that is away is tried again: nobody waits for it with every step.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Begins a step; the second number of the lock is that of our table, so that each schema has its own.
const BEGIN: &str =
    "BEGIN; SELECT pg_advisory_xact_lock(1936027507, 'seqcast_streams'::regclass::oid::int4); SAVEPOINT step";

/// Streams in a database.
pub struct PostgresStreams {
    address: PostgresAddress,
    connection: Option<PostgresConnection>,
    /// Why the last try to connect failed, and until when nobody tries again.
    backoff: Option<(Instant, StreamFault)>,
    batch: PostgresBatch,
}

/// Whether several steps are stored together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PostgresBatch {
    /// Each on its own.
    Inactive,
    /// From the next step that changes something on.
    Armed,
    /// Something was changed, over the connection that there is.
    Active,
    /// The server has taken all of it back, for this reason.
    RolledBack(StreamFault),
}

impl fmt::Debug for PostgresStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStreams")
            .field("at", &self.address.at)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

impl PostgresStreams {
    /// Opens the database at `postgres://[user[:password]@]host[:port][/database]`, and makes our tables in its current schema.
    ///
    /// # Errors
    /// The address is none, the server is away, or the tables are not ours or of another version; nothing is changed then.
    ///
    /// # Panics
    /// Within an asynchronous task, which it would block; so does all else.
    pub fn open(url: &str) -> Result<PostgresStreams, StreamStorageError> {
        let address =
            PostgresAddress::parse(url).map_err(|fault| StreamStorageError { at: "postgres".into(), fault })?;
        let connection = PostgresConnection::connect(&address, true)
            .map_err(|fault| StreamStorageError { at: address.at.clone(), fault })?;
        Ok(PostgresStreams { address, connection: Some(connection), backoff: None, batch: PostgresBatch::Inactive })
    }

    fn error(&self, fault: StreamFault) -> StreamStorageError {
        StreamStorageError { at: self.address.at.clone(), fault }
    }

    fn open_connection(&mut self) -> Result<&mut PostgresConnection, StreamFault> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let is_backing_off = |(until, _): &&(Instant, StreamFault)| Clock::now().instant < *until;
                if let Some((_, fault)) = self.backoff.as_ref().filter(is_backing_off) {
                    return Err(fault.clone());
                }
                let connected = PostgresConnection::connect(&self.address, false);
                self.backoff =
                    connected.as_ref().err().map(|fault| (Clock::now().instant + RECONNECT_INTERVAL, fault.clone()));
                connected?
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Does something over the connection, which is given up if nothing more comes of it.
    fn run_step<T, E>(
        &mut self,
        bytes: usize,
        step: impl AsyncFnOnce(&PostgresSession) -> Result<T, E>,
    ) -> Result<T, StreamStoreError<StreamFault>>
    where
        E: From<StreamFault> + Into<StepError>,
    {
        let done = self.open_connection()?.run(bytes, step).map_err(E::into);
        if matches!(done, Err(StreamStoreError::Store(StreamFault::Unreachable(_)))) {
            self.connection = None;
        }
        done
    }

    /// The same with nothing begun: a server that has closed the connection since, as one that was restarted has, is asked once more.
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
            Err(StreamStoreError::Store(StreamFault::Unreachable(why))) if was_connected && why != NO_ANSWER => {
                self.run_step(bytes, &step)
            }
            done => done,
        }
    }

    /// Whatever was begun is over.
    fn abandon_batch(&mut self, fault: &StreamFault) {
        self.connection = None;
        self.batch = PostgresBatch::RolledBack(fault.clone());
    }

    /// Does something as a whole, or not at all.
    fn change<T>(
        &mut self,
        bytes: usize,
        step: impl AsyncFnOnce(&PostgresSession) -> Result<T, StepError>,
    ) -> Result<T, StreamStoreError<StreamStorageError>> {
        let done = self.step(bytes, step);
        done.map_err(|refused| StreamStorageError::refused(&self.address.at, refused))
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
                if let Err(refused) =
                    self.run_with_reconnect(0, async |session: &PostgresSession| session.simple(BEGIN).await)
                {
                    // Over the next connection nothing is begun.
                    self.connection = None;
                    return Err(refused);
                }
                if !is_alone {
                    self.batch = PostgresBatch::Active;
                }
            }
        }
        let done = self.run_step(bytes, async |session: &PostgresSession| {
            let done = step(session).await;
            let end = match (&done, is_alone) {
                (Ok(_), true) => "COMMIT",
                (Ok(_), false) | (Err(StreamStoreError::Store(StreamFault::Unreachable(_))), _) => return done,
                (Err(_), true) => "ROLLBACK",
                (Err(_), false) => "ROLLBACK TO step",
            };
            match session.simple(end).await {
                Err(StreamFault::Unreachable(why)) if done.is_ok() => Err(unknown(&why).into()),
                Err(fault) if done.is_ok() => Err(fault.into()),
                // Nobody goes on over this connection.
                Err(_) => Err(StreamFault::Unreachable("what was begun could not be taken back".into()).into()),
                Ok(()) => done,
            }
        });
        if let (Err(StreamStoreError::Store(fault)), None, false) = (&done, &self.connection, is_alone) {
            self.batch = PostgresBatch::RolledBack(fault.clone());
        }
        done
    }

    /// The same for what only the store can refuse.
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
        let done = match &self.batch {
            PostgresBatch::RolledBack(fault) => Err(fault.clone().into()),
            PostgresBatch::Inactive | PostgresBatch::Armed => self.run_with_reconnect(bytes, read_only),
            PostgresBatch::Active => {
                let done = self.run_step(bytes, read_only);
                if let Err(StreamStoreError::Store(fault)) = &done {
                    // The server does nothing more within what was begun.
                    self.abandon_batch(&fault.clone());
                }
                done
            }
        };
        done.map_err(|refused| {
            StreamStorageError::expect_store_error(StreamStorageError::refused(&self.address.at, refused))
        })
    }
}

/// The answer to the end of a transaction did not come.
fn unknown(why: &str) -> StreamFault {
    StreamFault::Unreachable(format!("{why}; it is not known whether what was done last is stored"))
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
        // If the server has given the transaction up, the first of the two is refused; the second never would be.
        let done = self.run_step(0, async |session: &PostgresSession| session.simple("RELEASE step; COMMIT").await);
        done.map_err(|refused| {
            self.connection = None;
            match StreamStorageError::expect_store_error(StreamStorageError::refused(&self.address.at, refused)) {
                StreamStorageError { at, fault: StreamFault::Unreachable(why) } => {
                    StreamStorageError { at, fault: unknown(&why) }
                }
                error => error,
            }
        })
    }

    fn place(&self) -> String {
        self.address.at.clone()
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl StreamStore for PostgresStreams {
    type Error = StreamStorageError;

    fn check(&mut self) -> Result<(), StreamStorageError> {
        let checked = match &self.batch {
            PostgresBatch::RolledBack(fault) => Err(fault.clone()),
            PostgresBatch::Inactive | PostgresBatch::Armed | PostgresBatch::Active => self.open_connection().map(drop),
        };
        checked.map_err(|fault| self.error(fault))
    }

    fn covered(&mut self, stream: &StreamName) -> Result<Vec<EventId>, StreamStorageError> {
        self.read_only(0, async |session: &PostgresSession| Ok(covered(session, stream).await?.into_values().collect()))
    }

    fn add(
        &mut self,
        stream: &StreamName,
        events: &[NewEvent],
        places: &[EventId],
        limits: &StreamLimits,
    ) -> Result<Vec<Option<StreamId>>, StreamStoreError<StreamStorageError>> {
        let bytes = events.iter().map(|event| event.data.bytes().len()).sum();
        self.change(bytes, async |session: &PostgresSession| {
            let (found, known) = tokio::join!(find_or_create(session, stream), covered(session, stream));
            let (mut found, mut known) = (found?, known?);
            let before = found.contents.last;
            let (mut ids, mut new) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
            let (mut changed, contents) = (BTreeSet::new(), &mut found.contents);
            // Of each server the stamps of what may have been posted.
            let mut posted = BTreeMap::new();
            for event in events {
                let NewEvent { data, origin, stamp, .. } = event;
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
                known.insert(origin.server, *origin);
                changed.insert(origin.server);
                if let Some(stamp) = stamp {
                    posted.entry(origin.server).or_insert_with(Vec::new).push(stamp.as_micros());
                }
                new.push(event);
                ids.push(Some(contents.last));
            }
            for place in places {
                if known.get(&place.server).is_none_or(|known| known < place) {
                    known.insert(place.server, *place);
                    changed.insert(place.server);
                }
            }
            let changed: Vec<EventId> = changed.iter().map(|server| known[server]).collect();
            let number = found.number;
            tokio::try_join!(
                insert(session, number, signed(before.number())?, &new),
                cover(session, number, &changed),
                update_contents(session, found)
            )?;
            for (server, stamps) in posted {
                outbox::done(session, server, stream, &stamps).await?;
            }
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
        let kinds: Option<Vec<&str>> = want.map(|want| want.iter().map(StreamType::as_str).collect());
        self.read_only(room.bytes, async |session: &PostgresSession| {
            let page = StreamPage::new(after);
            match find(session, stream).await? {
                Some(found) => read(session, &found, page, kinds.as_deref(), room).await,
                None => Ok(page),
            }
        })
    }

    fn register(
        &mut self,
        stream: &StreamName,
        who: &Consumer,
        now: Timestamp,
    ) -> Result<Option<ConsumerRow>, StreamStorageError> {
        self.change_unconditionally(async |session: &PostgresSession| {
            let found = find_or_create(session, stream).await?;
            let before = consumer(session, &found, who).await?;
            let row = ConsumerRow::registered(before.as_ref(), who, &found.contents, now);
            put_consumer(session, found.number, &row).await?;
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
        let (user, component) = (who.user.as_str(), who.component.as_str());
        self.change(0, async |session: &PostgresSession| {
            let accept = r#"UPDATE seqcast_consumers c SET position = greatest(c.position, least($4, s.last)), heard = $5
                FROM seqcast_streams s WHERE s.name = $1 AND c.stream = s.number AND c."user" = $2 AND c.component = $3
                AND c.missed_first IS NULL RETURNING c.position"#;
            let (accepted, heard) = (signed(accepted.number())?, now.as_micros());
            let rows = session.rows(accept, &[&stream.as_str(), &user, &component, &accepted, &heard]).await?;
            if let Some(row) = rows.first() {
                return Ok(id(column(row, 0)?)?);
            }
            let Some(found) = find(session, stream).await? else { return Err(StreamStoreError::NotRegistered) };
            let lapsed = consumer(session, &found, who).await?.and_then(|row| row.lapsed);
            Err(lapsed.map_or(StreamStoreError::NotRegistered, StreamStoreError::Lapsed))
        })
    }

    fn reset(&mut self, stream: &StreamName, who: &Consumer, position: StreamId) -> Result<bool, StreamStorageError> {
        let (user, component) = (who.user.as_str(), who.component.as_str());
        self.change_unconditionally(async |session: &PostgresSession| {
            let reset = r#"UPDATE seqcast_consumers c SET position = least($4, s.last),
                missed_first = NULL, missed_last = NULL, missed_count = NULL
                FROM seqcast_streams s WHERE s.name = $1 AND c.stream = s.number AND c."user" = $2 AND c.component = $3"#;
            let position = signed(position.number())?;
            Ok(0 < session.change(reset, &[&stream.as_str(), &user, &component, &position]).await?)
        })
    }

    fn remove(&mut self, stream: &StreamName, who: &Consumer) -> Result<bool, StreamStorageError> {
        let (user, component) = (who.user.as_str(), who.component.as_str());
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
        // Mostly there is nothing, and then nobody is to wait.
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

    fn quarantine(&mut self, number: u64, why: &str) -> Result<(), StreamStorageError> {
        self.change_unconditionally(async |session: &PostgresSession| {
            Ok(outbox::quarantine(session, signed(number)?, why).await?)
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
#[path = "postgres/tests.rs"]
mod tests;
