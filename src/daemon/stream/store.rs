//! The stores of streams that a peer can have: what they do beside what every store does, and the one that was chosen.

use super::error::StreamError;
use super::postgres::PostgresStreams;
use super::sqlite::SqliteStreams;
use crate::event::model::{EventId, ServerId};
use crate::event::stream::model::{Page, Room};
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::stream::store::{ConsumerRow, Contents, Limits, NewEvent, Posted, Refused, StreamStore, Trimmed};
use crate::event::timestamp::Timestamp;
use std::collections::BTreeSet;

/// A store that can store several steps together, so that they share the waiting for the disk.
pub trait Batches: StreamStore<Error = StreamError> + Send {
    /// What is done from now on is stored together by [`commit`](Batches::commit). A step that is refused changes nothing, and the
    /// others stand. Others can write until something is changed.
    fn begin(&mut self);

    /// Stores what was done since it was begun; it survives a crash of the host then.
    ///
    /// # Errors
    /// It cannot be stored, and nothing of it was done; or the store is away, and it may not be known whether it was.
    fn commit(&mut self) -> Result<(), StreamError>;

    /// Where it is, for people; without any password.
    fn place(&self) -> String;

    /// Whether other peers may have the same streams in it.
    fn is_shared(&self) -> bool;
}

/// A store of one kind or the other.
#[derive(Debug)]
pub enum AnyStreams {
    /// A file.
    Sqlite(SqliteStreams),
    /// A server.
    Postgres(Box<PostgresStreams>),
}

impl AnyStreams {
    fn store(&mut self) -> &mut dyn Batches {
        match self {
            AnyStreams::Sqlite(store) => store,
            AnyStreams::Postgres(store) => &mut **store,
        }
    }
}

impl Batches for AnyStreams {
    fn begin(&mut self) {
        self.store().begin();
    }

    fn commit(&mut self) -> Result<(), StreamError> {
        self.store().commit()
    }

    fn place(&self) -> String {
        match self {
            AnyStreams::Sqlite(store) => store.place(),
            AnyStreams::Postgres(store) => store.place(),
        }
    }

    fn is_shared(&self) -> bool {
        match self {
            AnyStreams::Sqlite(store) => store.is_shared(),
            AnyStreams::Postgres(store) => store.is_shared(),
        }
    }
}

impl StreamStore for AnyStreams {
    type Error = StreamError;

    fn check(&mut self) -> Result<(), StreamError> {
        self.store().check()
    }

    fn covered(&mut self, stream: &StreamName) -> Result<Vec<EventId>, StreamError> {
        self.store().covered(stream)
    }

    fn add(
        &mut self,
        stream: &StreamName,
        events: &[NewEvent],
        covered: &[EventId],
        limits: &Limits,
    ) -> Result<Vec<Option<StreamId>>, Refused<StreamError>> {
        self.store().add(stream, events, covered, limits)
    }

    fn read(
        &mut self,
        stream: &StreamName,
        after: StreamId,
        want: Option<&BTreeSet<StreamType>>,
        room: Room,
    ) -> Result<Page, StreamError> {
        self.store().read(stream, after, want, room)
    }

    fn register(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        now: Timestamp,
    ) -> Result<Option<ConsumerRow>, StreamError> {
        self.store().register(stream, consumer, now)
    }

    fn accept(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        accepted: StreamId,
        now: Timestamp,
    ) -> Result<StreamId, Refused<StreamError>> {
        self.store().accept(stream, consumer, accepted, now)
    }

    fn reset(&mut self, stream: &StreamName, consumer: &Consumer, position: StreamId) -> Result<bool, StreamError> {
        self.store().reset(stream, consumer, position)
    }

    fn remove(&mut self, stream: &StreamName, consumer: &Consumer) -> Result<bool, StreamError> {
        self.store().remove(stream, consumer)
    }

    fn consumers(&mut self, stream: &StreamName) -> Result<Vec<ConsumerRow>, StreamError> {
        self.store().consumers(stream)
    }

    fn find(&mut self, stream: &StreamName, origin: EventId) -> Result<Option<StreamId>, StreamError> {
        self.store().find(stream, origin)
    }

    fn claim(
        &mut self,
        server: ServerId,
        streams: &[StreamName],
        now: Timestamp,
        count_max: usize,
    ) -> Result<Vec<Posted>, StreamError> {
        self.store().claim(server, streams, now, count_max)
    }

    fn claimed(&mut self, server: ServerId, stream: &StreamName) -> Result<Vec<Posted>, StreamError> {
        self.store().claimed(server, stream)
    }

    fn set_aside(&mut self, number: u64, why: &str) -> Result<(), StreamError> {
        self.store().set_aside(number, why)
    }

    fn contents(&mut self, stream: &StreamName) -> Result<Contents, StreamError> {
        self.store().contents(stream)
    }

    fn trim(
        &mut self,
        stream: &StreamName,
        limits: &Limits,
        now: Timestamp,
        budget: usize,
    ) -> Result<Trimmed, StreamError> {
        self.store().trim(stream, limits, now, budget)
    }
}
