//! Streams in a PostgreSQL database, which several peers and applications can share.
//!
//! The tables are those of [`sqlite`](super::sqlite). What is done survives a crash of the server's host when it is answered, as long as the server
//! has `fsync` on. Whoever changes something holds one lock of the database, as with SQLite, until that is stored: so ids rise in the order
//! in which they can be read, without gaps, and nobody waits for somebody who waits for him. The events that are kept are always the last ones,
//! which is why they are counted by their ids.
//!
//! A server that is away is asked again with the next step, but a second after the last try at the earliest.

mod link;
mod outbox;
mod rows;
mod schema;

pub use outbox::add_event_in;

use super::error::{Fault, Refusal, StreamError};
use super::row::{id, signed};
use super::store::Batches;
use crate::daemon::clock::Clock;
use crate::event::model::{EventId, ServerId};
use crate::event::stream::model::{PageBudget, StreamPage};
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::stream::store::{
    ConsumerRow, Contents, NewEvent, PostedEvent, StreamLimits, StreamStore, StreamStoreError, TrimReport,
};
use crate::event::timestamp::Timestamp;
use crate::time::Instant;
pub(super) use link::Address;
use link::{Link, NO_ANSWER, Session, column};
use rows::{consumer, consumers, cover, covered, find, find_or_make, insert, note, put_consumer, read, trim};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// After so long a server that is away is tried again: nobody waits for it with every step.
const REST_TIME: Duration = Duration::from_secs(1);

/// Begins a step; the second number of the lock is that of our table, so that each schema has its own.
const BEGIN: &str =
    "BEGIN; SELECT pg_advisory_xact_lock(1936027507, 'seqcast_streams'::regclass::oid::int4); SAVEPOINT step";

/// Streams in a database.
pub struct PostgresStreams {
    address: Address,
    link: Option<Link>,
    /// Why the last try to connect failed, and until when nobody tries again.
    rest: Option<(Instant, Fault)>,
    batch: Batch,
}

/// Whether several steps are stored together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Batch {
    /// Each on its own.
    No,
    /// From the next step that changes something on.
    Wanted,
    /// Something was changed, over the connection that there is.
    Begun,
    /// The server has taken all of it back, for this reason.
    Lost(Fault),
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
    pub fn open(url: &str) -> Result<PostgresStreams, StreamError> {
        let address = Address::parse(url).map_err(|fault| StreamError { at: "postgres".into(), fault })?;
        let link = Link::connect(&address, true).map_err(|fault| StreamError { at: address.at.clone(), fault })?;
        Ok(PostgresStreams { address, link: Some(link), rest: None, batch: Batch::No })
    }

    fn error(&self, fault: Fault) -> StreamError {
        StreamError { at: self.address.at.clone(), fault }
    }

    fn linked(&mut self) -> Result<&mut Link, Fault> {
        let link = match self.link.take() {
            Some(link) => link,
            None => {
                let is_resting = |(until, _): &&(Instant, Fault)| Clock::now().instant < *until;
                if let Some((_, fault)) = self.rest.as_ref().filter(is_resting) {
                    return Err(fault.clone());
                }
                let connected = Link::connect(&self.address, false);
                self.rest = connected.as_ref().err().map(|fault| (Clock::now().instant + REST_TIME, fault.clone()));
                connected?
            }
        };
        Ok(self.link.insert(link))
    }

    /// Does something over the connection, which is given up if nothing more comes of it.
    fn over<T, E>(
        &mut self,
        bytes: usize,
        step: impl AsyncFnOnce(&Session) -> Result<T, E>,
    ) -> Result<T, StreamStoreError<Fault>>
    where
        E: From<Fault> + Into<Refusal>,
    {
        let done = self.linked()?.run(bytes, step).map_err(E::into);
        if matches!(done, Err(StreamStoreError::Store(Fault::Away(_)))) {
            self.link = None;
        }
        done
    }

    /// The same with nothing begun: a server that has closed the connection since, as one that was restarted has, is asked once more.
    fn anew<T, E>(
        &mut self,
        bytes: usize,
        step: impl AsyncFn(&Session) -> Result<T, E>,
    ) -> Result<T, StreamStoreError<Fault>>
    where
        E: From<Fault> + Into<Refusal>,
    {
        let was_linked = self.link.is_some();
        match self.over(bytes, &step) {
            Err(StreamStoreError::Store(Fault::Away(why))) if was_linked && why != NO_ANSWER => self.over(bytes, &step),
            done => done,
        }
    }

    /// Whatever was begun is over.
    fn lose(&mut self, fault: &Fault) {
        self.link = None;
        self.batch = Batch::Lost(fault.clone());
    }

    /// Does something as a whole, or not at all.
    fn change<T>(
        &mut self,
        bytes: usize,
        step: impl AsyncFnOnce(&Session) -> Result<T, Refusal>,
    ) -> Result<T, StreamStoreError<StreamError>> {
        let done = self.step(bytes, step);
        done.map_err(|refused| StreamError::refused(&self.address.at, refused))
    }

    fn step<T>(&mut self, bytes: usize, step: impl AsyncFnOnce(&Session) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let is_alone = self.batch == Batch::No;
        match &self.batch {
            Batch::Lost(fault) => return Err(fault.clone().into()),
            Batch::Begun => {
                let next = async |session: &Session| session.simple("RELEASE step; SAVEPOINT step").await;
                if let Err(StreamStoreError::Store(fault)) = self.over(0, next) {
                    self.lose(&fault);
                    return Err(fault.into());
                }
            }
            Batch::No | Batch::Wanted => {
                if let Err(refused) = self.anew(0, async |session: &Session| session.simple(BEGIN).await) {
                    // Over the next connection nothing is begun.
                    self.link = None;
                    return Err(refused);
                }
                if !is_alone {
                    self.batch = Batch::Begun;
                }
            }
        }
        let done = self.over(bytes, async |session: &Session| {
            let done = step(session).await;
            let end = match (&done, is_alone) {
                (Ok(_), true) => "COMMIT",
                (Ok(_), false) | (Err(StreamStoreError::Store(Fault::Away(_))), _) => return done,
                (Err(_), true) => "ROLLBACK",
                (Err(_), false) => "ROLLBACK TO step",
            };
            match session.simple(end).await {
                Err(Fault::Away(why)) if done.is_ok() => Err(unknown(&why).into()),
                Err(fault) if done.is_ok() => Err(fault.into()),
                // Nobody goes on over this connection.
                Err(_) => Err(Fault::Away("what was begun could not be taken back".into()).into()),
                Ok(()) => done,
            }
        });
        if let (Err(StreamStoreError::Store(fault)), None, false) = (&done, &self.link, is_alone) {
            self.batch = Batch::Lost(fault.clone());
        }
        done
    }

    /// The same for what only the store can refuse.
    fn change_surely<T>(&mut self, step: impl AsyncFnOnce(&Session) -> Result<T, Refusal>) -> Result<T, StreamError> {
        self.change(0, step).map_err(StreamError::surely)
    }

    fn look<T>(&mut self, bytes: usize, look: impl AsyncFn(&Session) -> Result<T, Fault>) -> Result<T, StreamError> {
        let done = match &self.batch {
            Batch::Lost(fault) => Err(fault.clone().into()),
            Batch::No | Batch::Wanted => self.anew(bytes, look),
            Batch::Begun => {
                let done = self.over(bytes, look);
                if let Err(StreamStoreError::Store(fault)) = &done {
                    // The server does nothing more within what was begun.
                    self.lose(&fault.clone());
                }
                done
            }
        };
        done.map_err(|refused| StreamError::surely(StreamError::refused(&self.address.at, refused)))
    }
}

/// The answer to the end of a transaction did not come.
fn unknown(why: &str) -> Fault {
    Fault::Away(format!("{why}; it is not known whether what was done last is stored"))
}

impl Batches for PostgresStreams {
    fn begin(&mut self) {
        self.batch = Batch::Wanted;
    }

    fn commit(&mut self) -> Result<(), StreamError> {
        match std::mem::replace(&mut self.batch, Batch::No) {
            Batch::No | Batch::Wanted => return Ok(()),
            Batch::Lost(fault) => return Err(self.error(fault)),
            Batch::Begun => {}
        }
        // If the server has given the transaction up, the first of the two is refused; the second never would be.
        let done = self.over(0, async |session: &Session| session.simple("RELEASE step; COMMIT").await);
        done.map_err(|refused| {
            self.link = None;
            match StreamError::surely(StreamError::refused(&self.address.at, refused)) {
                StreamError { at, fault: Fault::Away(why) } => StreamError { at, fault: unknown(&why) },
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
    type Error = StreamError;

    fn check(&mut self) -> Result<(), StreamError> {
        let checked = match &self.batch {
            Batch::Lost(fault) => Err(fault.clone()),
            Batch::No | Batch::Wanted | Batch::Begun => self.linked().map(drop),
        };
        checked.map_err(|fault| self.error(fault))
    }

    fn covered(&mut self, stream: &StreamName) -> Result<Vec<EventId>, StreamError> {
        self.look(0, async |session: &Session| Ok(covered(session, stream).await?.into_values().collect()))
    }

    fn add(
        &mut self,
        stream: &StreamName,
        events: &[NewEvent],
        places: &[EventId],
        limits: &StreamLimits,
    ) -> Result<Vec<Option<StreamId>>, StreamStoreError<StreamError>> {
        let bytes = events.iter().map(|event| event.data.bytes().len()).sum();
        self.change(bytes, async |session: &Session| {
            let (found, known) = tokio::join!(find_or_make(session, stream), covered(session, stream));
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
                note(session, found)
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
    ) -> Result<StreamPage, StreamError> {
        let kinds: Option<Vec<&str>> = want.map(|want| want.iter().map(StreamType::as_str).collect());
        self.look(room.bytes, async |session: &Session| {
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
    ) -> Result<Option<ConsumerRow>, StreamError> {
        self.change_surely(async |session: &Session| {
            let found = find_or_make(session, stream).await?;
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
    ) -> Result<StreamId, StreamStoreError<StreamError>> {
        let (user, component) = (who.user.as_str(), who.component.as_str());
        self.change(0, async |session: &Session| {
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

    fn reset(&mut self, stream: &StreamName, who: &Consumer, position: StreamId) -> Result<bool, StreamError> {
        let (user, component) = (who.user.as_str(), who.component.as_str());
        self.change_surely(async |session: &Session| {
            let reset = r#"UPDATE seqcast_consumers c SET position = least($4, s.last),
                missed_first = NULL, missed_last = NULL, missed_count = NULL
                FROM seqcast_streams s WHERE s.name = $1 AND c.stream = s.number AND c."user" = $2 AND c.component = $3"#;
            let position = signed(position.number())?;
            Ok(0 < session.change(reset, &[&stream.as_str(), &user, &component, &position]).await?)
        })
    }

    fn remove(&mut self, stream: &StreamName, who: &Consumer) -> Result<bool, StreamError> {
        let (user, component) = (who.user.as_str(), who.component.as_str());
        self.change_surely(async |session: &Session| {
            let remove = r#"DELETE FROM seqcast_consumers c USING seqcast_streams s
                WHERE s.name = $1 AND c.stream = s.number AND c."user" = $2 AND c.component = $3"#;
            Ok(0 < session.change(remove, &[&stream.as_str(), &user, &component]).await?)
        })
    }

    fn consumers(&mut self, stream: &StreamName) -> Result<Vec<ConsumerRow>, StreamError> {
        self.look(0, async |session: &Session| {
            let Some(found) = find(session, stream).await? else { return Ok(Vec::new()) };
            consumers(session, &found).await
        })
    }

    fn find(&mut self, stream: &StreamName, origin: EventId) -> Result<Option<StreamId>, StreamError> {
        self.look(0, async |session: &Session| {
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
    ) -> Result<Vec<PostedEvent>, StreamError> {
        let names: Vec<&str> = streams.iter().map(StreamName::as_str).collect();
        // Mostly there is nothing, and then nobody is to wait.
        if self.look(0, async |session: &Session| outbox::is_empty(session, &names).await)? {
            return Ok(Vec::new());
        }
        self.change_surely(async |session: &Session| Ok(outbox::claim(session, server, &names, now, count_max).await?))
    }

    fn claimed(&mut self, server: ServerId, stream: &StreamName) -> Result<Vec<PostedEvent>, StreamError> {
        self.look(0, async |session: &Session| outbox::claimed(session, server, stream).await)
    }

    fn quarantine(&mut self, number: u64, why: &str) -> Result<(), StreamError> {
        self.change_surely(async |session: &Session| Ok(outbox::quarantine(session, signed(number)?, why).await?))
    }

    fn contents(&mut self, stream: &StreamName) -> Result<Contents, StreamError> {
        self.look(0, async |session: &Session| {
            Ok(find(session, stream).await?.map_or(Contents::default(), |found| found.contents))
        })
    }

    fn trim(
        &mut self,
        stream: &StreamName,
        limits: &StreamLimits,
        now: Timestamp,
        budget: usize,
    ) -> Result<TrimReport, StreamError> {
        self.change_surely(async |session: &Session| match find(session, stream).await? {
            Some(found) => Ok(trim(session, found, limits, now, budget).await?),
            None => Ok(TrimReport::default()),
        })
    }
}

#[cfg(test)]
#[path = "postgres/tests.rs"]
mod tests;
