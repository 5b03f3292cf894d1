//! Operations on a store of streams and their results, as values, and the trait that all stores implement.
//!
//! A store numbers the events of each stream. It retains them until every registered consumer has accepted them (003,
//! section 2.3.1). [`StreamLimits`] handle consumers that never do.

pub mod memory;

use super::model::{PageBudget, StreamPage};
use super::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::model::{EventId, Json, ServerId};
use crate::event::timestamp::Timestamp;
use crate::subject::event_type::TypePattern;
use std::collections::BTreeSet;
use std::time::Duration;

/// A new event for a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Its type.
    pub kind: StreamType,
    /// A JSON text.
    pub data: Json,
    /// Time at which it was registered.
    pub time: Timestamp,
    /// Id of the event on the bus.
    pub origin: EventId,
    /// Source timestamp, if it was added to this stream with one: for example that of an event [posted](PostedEvent)
    /// here.
    pub stamp: Option<Timestamp>,
}

/// An event that an application has put into the store within a transaction of its own (003, section 3.2.1). It is in
/// no stream until the peer that has claimed it has registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostedEvent {
    /// Its number among all events ever posted.
    pub number: u64,
    /// Stream that it is posted for.
    pub stream: StreamName,
    /// Its type.
    pub kind: StreamType,
    /// A JSON text.
    pub data: Json,
    /// Source timestamp of its registration. It is not earlier than the claim, and differs from that of every other
    /// event that the same server has claimed.
    pub stamp: Timestamp,
}

/// A stream, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Its name. Events added to it have types of two subtypes: the name, and the type in the stream.
    pub name: StreamName,
    /// Patterns of further events in it. An event belongs to it if one of them matches, and its last subtype is a valid
    /// stream type.
    pub types: Vec<TypePattern>,
    /// Limits of the retained events.
    pub limits: StreamLimits,
}

impl StreamSettings {
    /// Returns the patterns of all events that may belong to it.
    pub fn patterns(&self) -> Vec<TypePattern> {
        let own = format!("{}/?", self.name).parse().expect("a name and a wildcard are a pattern");
        [own].into_iter().chain(self.types.iter().cloned()).collect()
    }
}

/// Limits of the events retained for consumers that do not accept them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum age; older events are removed.
    pub age: Option<Duration>,
    /// Maximum bytes of data; beyond it the oldest events are removed.
    pub bytes: Option<u64>,
    /// Policy at the limit.
    pub policy: Policy,
}

impl StreamLimits {
    /// Returns whether an event of that time exceeds the maximum age.
    pub fn is_old(&self, now: Timestamp, time: Timestamp) -> bool {
        let age_micros = i128::from(now.as_micros()) - i128::from(time.as_micros());
        self.age.is_some_and(|age| (age.as_micros() as i128) < age_micros)
    }

    /// Returns whether these limits can ever block additions.
    pub fn may_block(&self) -> bool {
        self.policy == Policy::Block && self.bytes.is_some()
    }

    /// Returns whether additions are blocked while the retained data has this number of bytes.
    pub fn is_blocked(&self, bytes: u64) -> bool {
        self.policy == Policy::Block && self.bytes.is_some_and(|max| max <= bytes)
    }
}

/// Handling of a consumer that does not accept events until a limit is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The consumer lapses: the events are removed, and the range is reported.
    #[default]
    Lapse,
    /// No event is removed, and none is added until the consumer has accepted some.
    Block,
}

/// A range of events that a consumer has not accepted and that are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedRange {
    /// The first of them.
    pub first: StreamId,
    /// The last of them.
    pub last: StreamId,
    /// Number of them, of all types.
    pub count: u64,
}

impl MissedRange {
    /// Returns the range extended by the events missed after it.
    pub fn merge(self, later: MissedRange) -> MissedRange {
        MissedRange { first: self.first, last: later.last, count: self.count + later.count }
    }
}

/// A registered consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRow {
    /// Name of the consumer.
    pub consumer: Consumer,
    /// Position up to which it has accepted all events.
    pub position: StreamId,
    /// Events missed since its last registration. A lapsed consumer gets no events until it registers again.
    pub lapsed: Option<MissedRange>,
    /// Time of its first registration.
    pub registered: Timestamp,
    /// Time of its last operation.
    pub last_request: Timestamp,
    /// Number of events behind its position, of all types.
    pub lag: u64,
}

impl ConsumerRow {
    /// Returns the row of a consumer that registers now for the first time, or again ([`StreamStore::register`]).
    pub fn registered(
        before: Option<&ConsumerRow>,
        consumer: &Consumer,
        contents: &Contents,
        now: Timestamp,
    ) -> ConsumerRow {
        let (position, lapsed, last_request) = (contents.start(), None, now);
        match before.cloned() {
            Some(row) if row.lapsed.is_some() => ConsumerRow { position, lapsed, last_request, ..row },
            Some(row) => ConsumerRow { last_request, ..row },
            None => {
                let (consumer, lag) = (consumer.clone(), contents.events);
                ConsumerRow { consumer, position, lapsed, registered: now, last_request, lag }
            }
        }
    }
}

/// Contents of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Last assigned id.
    pub last: StreamId,
    /// Number of retained events.
    pub events: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

impl Contents {
    /// Returns the position before the first retained event. The retained events are always the last ones, and their
    /// ids have no gaps.
    pub fn start(&self) -> StreamId {
        StreamId::from_number(self.last.number().saturating_sub(self.events)).expect("not beyond the last id")
    }

    /// Returns the number of retained events after a position.
    pub fn behind(&self, position: StreamId) -> u64 {
        self.last.number().saturating_sub(position.max(self.start()).number())
    }
}

/// The reason why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamStoreError<E> {
    /// The consumer is not registered.
    NotRegistered,
    /// The consumer has lapsed, and must register again.
    Lapsed(MissedRange),
    /// The stream is full until consumers have accepted events ([`Policy::Block`]), or there is no further id.
    Full,
    /// The store failed.
    Store(E),
}

impl<E> From<E> for StreamStoreError<E> {
    fn from(error: E) -> StreamStoreError<E> {
        StreamStoreError::Store(error)
    }
}

/// A store of streams.
pub trait StreamStore {
    /// The reason why the store failed.
    type Error;

    /// Checks whether the store is usable, without a request to it if possible. If the store is unreachable, tries
    /// again, unless the last attempt was just now.
    ///
    /// # Errors
    /// The store is unreachable.
    fn check(&mut self) -> Result<(), Self::Error>;

    /// Returns the position in each server's journal up to which the stream is fed.
    ///
    /// # Errors
    /// The store cannot be read.
    fn covered(&mut self, stream: &StreamName) -> Result<Vec<EventId>, Self::Error>;

    /// Adds the events, in this order, all or none of them; when it returns they survive a crash of the host. Events of
    /// a server come in the order of their origins. Those at or before the position up to which its journal is fed are
    /// in the stream already. `covered` holds the new positions. A claimed event of the server with the stream and the
    /// stamp of an added one is no longer posted. Returns the ids, and `None` for events that are in the stream
    /// already.
    ///
    /// # Errors
    /// The events cannot be added, and none of them is.
    fn add(
        &mut self,
        stream: &StreamName,
        events: &[NewEvent],
        covered: &[EventId],
        limits: &StreamLimits,
    ) -> Result<Vec<Option<StreamId>>, StreamStoreError<Self::Error>>;

    /// Returns the events after `after` that are of one of the types and fit. An event that does not fit an empty page
    /// is returned alone. The page ends after about [`PASSED_MAX`](super::model::PASSED_MAX) events of other types.
    ///
    /// # Errors
    /// The store cannot be read.
    fn read(
        &mut self,
        stream: &StreamName,
        after: StreamId,
        want: Option<&BTreeSet<StreamType>>,
        budget: PageBudget,
    ) -> Result<StreamPage, Self::Error>;

    /// Registers a consumer, or records that it is there again. A known consumer continues from its position. A lapsed
    /// or new one begins at the first retained event. Returns its row as it was before, if it was registered.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn register(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        now: Timestamp,
    ) -> Result<Option<ConsumerRow>, Self::Error>;

    /// Moves the position of the consumer forward to `accepted`, but not beyond the last event, and never back. Returns
    /// the position.
    ///
    /// # Errors
    /// The consumer is not registered, or has lapsed, or the store cannot be changed.
    fn accept(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        accepted: StreamId,
        now: Timestamp,
    ) -> Result<StreamId, StreamStoreError<Self::Error>>;

    /// Sets the position of a consumer to any value up to the last event. The consumer is no longer lapsed. Returns
    /// whether it is registered.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn reset(&mut self, stream: &StreamName, consumer: &Consumer, position: StreamId) -> Result<bool, Self::Error>;

    /// Removes a consumer. Returns whether it was registered.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn remove(&mut self, stream: &StreamName, consumer: &Consumer) -> Result<bool, Self::Error>;

    /// Returns all consumers, in the order of their names.
    ///
    /// # Errors
    /// The store cannot be read.
    fn consumers(&mut self, stream: &StreamName) -> Result<Vec<ConsumerRow>, Self::Error>;

    /// Returns the stream id of an event by its id on the bus, if it is in the stream. The event is one of the last.
    ///
    /// # Errors
    /// The store cannot be read.
    fn find(&mut self, stream: &StreamName, origin: EventId) -> Result<Option<StreamId>, Self::Error>;

    /// Claims for the server at most `count_max` posted events of these streams that no server has claimed. They come
    /// in the order of their numbers.
    ///
    /// # Errors
    /// The store cannot be changed, and nothing is claimed.
    fn claim(
        &mut self,
        server: ServerId,
        streams: &[StreamName],
        now: Timestamp,
        count_max: usize,
    ) -> Result<Vec<PostedEvent>, Self::Error>;

    /// Returns the events that the server has claimed for the stream and that are still posted, in the order of their
    /// numbers.
    ///
    /// # Errors
    /// The store cannot be read.
    fn claimed(&mut self, server: ServerId, stream: &StreamName) -> Result<Vec<PostedEvent>, Self::Error>;

    /// Sets a claimed event aside, since it can never be registered, for an operator to examine.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn quarantine(&mut self, number: u64, reason: &str) -> Result<(), Self::Error>;

    /// Returns the contents of the stream.
    ///
    /// # Errors
    /// The store cannot be read.
    fn contents(&mut self, stream: &StreamName) -> Result<Contents, Self::Error>;

    /// Removes at most `budget` events: those that every consumer has accepted, if there is a consumer, and those
    /// beyond the limits. Reports their number and the events that consumers missed. If `budget` events were removed,
    /// there may be more.
    ///
    /// # Errors
    /// The store cannot be changed, and nothing is removed.
    fn trim(
        &mut self,
        stream: &StreamName,
        limits: &StreamLimits,
        now: Timestamp,
        budget: usize,
    ) -> Result<TrimReport, Self::Error>;
}

/// Result of [`StreamStore::trim`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrimReport {
    /// Number of removed events.
    pub removed: u64,
    /// Events that consumers missed by it, in the order of the consumers' names.
    pub missed: Vec<(Consumer, MissedRange)>,
}
