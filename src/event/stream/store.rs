//! Operations on a store of streams and their results, as values, and the trait that all stores implement.
//!
//! A store numbers the events of each stream. It retains them until every registered consumer has accepted them (003,
//! section 2.3.1). [`StreamLimits`] bound the events retained for consumers that never accept them.

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
    /// Type of the event.
    pub kind: StreamType,
    /// Data of the event: a JSON text.
    pub data: Json,
    /// Time at which the event was registered.
    pub time: Timestamp,
    /// Id of the event on the bus.
    pub origin: EventId,
    /// Source timestamp, if the event was added to this stream with one: for example that of a [`PostedEvent`].
    pub stamp: Option<Timestamp>,
}

/// An event that an application has inserted into the store within its own transaction (003, section 3.2.1). The event
/// is in no stream until a peer has claimed and registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostedEvent {
    /// Number of the event among all events ever posted.
    pub number: u64,
    /// Stream for which the event is posted.
    pub stream: StreamName,
    /// Type of the event.
    pub kind: StreamType,
    /// Data of the event: a JSON text.
    pub data: Json,
    /// Source timestamp under which the event is registered. It is not earlier than the claim, and differs from that of
    /// every other event that the same server has claimed.
    pub stamp: Timestamp,
}

/// Configuration of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Name of the stream. Events added to it have types of two subtypes: this name, and the type in the stream.
    pub name: StreamName,
    /// Patterns of further events in the stream. An event belongs to it if a pattern matches, and its last subtype is a
    /// valid stream type.
    pub types: Vec<TypePattern>,
    /// Limits of the retained events.
    pub limits: StreamLimits,
}

impl StreamSettings {
    /// Returns the patterns of all events that may belong to the stream.
    pub fn patterns(&self) -> Vec<TypePattern> {
        let own = format!("{}/?", self.name).parse().expect("a name and a wildcard are a pattern");
        [own].into_iter().chain(self.types.iter().cloned()).collect()
    }
}

/// Limits of the events retained for consumers that do not accept them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum age of an event. With [`Policy::Lapse`] older events are removed.
    pub age: Option<Duration>,
    /// Maximum bytes of data. Beyond it, [`Policy::Lapse`] removes the oldest events, and [`Policy::Block`] refuses new
    /// ones.
    pub bytes: Option<u64>,
    /// Policy at the limits.
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
    /// The consumer lapses: the store removes the events and reports their range.
    #[default]
    Lapse,
    /// The store removes no event, and refuses new ones until the consumer has accepted some.
    Block,
}

impl Policy {
    /// Returns the name in the configuration and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Policy::Lapse => "lapse",
            Policy::Block => "block",
        }
    }
}

/// A range of removed events that a consumer had not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedRange {
    /// Id of the first event.
    pub first: StreamId,
    /// Id of the last event.
    pub last: StreamId,
    /// Number of events, of all types.
    pub count: u64,
}

impl MissedRange {
    /// Returns this range, extended by a later one.
    pub fn merge(self, later: MissedRange) -> MissedRange {
        MissedRange { first: self.first, last: later.last, count: self.count + later.count }
    }
}

/// A registered consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRow {
    /// Name of the consumer.
    pub consumer: Consumer,
    /// Position up to which the consumer has accepted all events.
    pub position: StreamId,
    /// Events missed since the last registration, if the consumer has lapsed. It gets no events until it registers
    /// again.
    pub lapsed: Option<MissedRange>,
    /// Time of the first registration.
    pub registered: Timestamp,
    /// Time of the last request.
    pub last_request: Timestamp,
    /// Number of retained events after the position, of all types.
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
    /// Bytes of the data of these events.
    pub bytes: u64,
}

impl Contents {
    /// Returns the position before the first retained event. The retained events are always the last ones, and their
    /// ids have no gaps.
    pub fn start(&self) -> StreamId {
        StreamId::from_number(self.last.number().saturating_sub(self.events)).expect("not beyond the last id")
    }

    /// Returns the number of retained events after a position.
    pub fn count_after(&self, position: StreamId) -> u64 {
        self.last.number().saturating_sub(position.max(self.start()).number())
    }
}

/// The reason why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamStoreError<E> {
    /// The consumer is not registered.
    NotRegistered,
    /// The consumer has lapsed and must register again.
    Lapsed(MissedRange),
    /// The stream is full until consumers have accepted events ([`Policy::Block`]), or no id is left.
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

    /// Checks whether the store is usable, if possible without a request to it. Tries to reconnect to an unreachable
    /// store, unless the last attempt was just now.
    ///
    /// # Errors
    /// The store is unreachable.
    fn check(&mut self) -> Result<(), Self::Error>;

    /// Returns, for each server, the position up to which the stream has the events of the server's journal.
    ///
    /// # Errors
    /// The store cannot be read.
    fn covered(&mut self, stream: &StreamName) -> Result<Vec<EventId>, Self::Error>;

    /// Adds the events in this order, all or none of them. They survive a crash of the host once this function returns.
    /// The events of a server are in the order of their origins. The stream has those up to the
    /// [covered](StreamStore::covered) position of their server already. `covered` holds the new positions. A posted
    /// event with the server, stream and stamp of an added one is removed. Returns the ids of the added events, and
    /// `None` for events that are in the stream already.
    ///
    /// # Errors
    /// The events cannot be added; none of them is added.
    fn add(
        &mut self,
        stream: &StreamName,
        events: &[NewEvent],
        covered: &[EventId],
        limits: &StreamLimits,
    ) -> Result<Vec<Option<StreamId>>, StreamStoreError<Self::Error>>;

    /// Returns the events after `after` that are of one of the types and fit the budget. An event that does not fit an
    /// empty page forms a page of its own. The page ends after about [`PASSED_MAX`](super::model::PASSED_MAX) events of
    /// other types.
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

    /// Registers a consumer, or records a further registration. A registered consumer continues from its position. A
    /// lapsed or new consumer begins at the first retained event. Returns the previous row of the consumer, if it was
    /// registered.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn register(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        now: Timestamp,
    ) -> Result<Option<ConsumerRow>, Self::Error>;

    /// Moves the position of the consumer forward to `accepted`, at most to the last event, and never back. Returns the
    /// position.
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

    /// Sets the position of a consumer to any value up to the last event. A lapsed consumer becomes active again.
    /// Returns whether the consumer is registered.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn reset(&mut self, stream: &StreamName, consumer: &Consumer, position: StreamId) -> Result<bool, Self::Error>;

    /// Removes a consumer. Returns whether the consumer was registered.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn remove(&mut self, stream: &StreamName, consumer: &Consumer) -> Result<bool, Self::Error>;

    /// Returns all consumers, in the order of their names.
    ///
    /// # Errors
    /// The store cannot be read.
    fn consumers(&mut self, stream: &StreamName) -> Result<Vec<ConsumerRow>, Self::Error>;

    /// Returns the stream id of the event with this id on the bus, if it is in the stream. The event is a recent one.
    ///
    /// # Errors
    /// The store cannot be read.
    fn find(&mut self, stream: &StreamName, origin: EventId) -> Result<Option<StreamId>, Self::Error>;

    /// Claims at most `count_max` unclaimed posted events of these streams for the server. Returns them in the order of
    /// their numbers.
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

    /// Returns the posted events of the stream that the server has claimed, in the order of their numbers.
    ///
    /// # Errors
    /// The store cannot be read.
    fn claimed(&mut self, server: ServerId, stream: &StreamName) -> Result<Vec<PostedEvent>, Self::Error>;

    /// Quarantines a claimed event that can never be registered, for an operator to examine.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn quarantine(&mut self, number: u64, reason: &str) -> Result<(), Self::Error>;

    /// Returns the contents of the stream.
    ///
    /// # Errors
    /// The store cannot be read.
    fn contents(&mut self, stream: &StreamName) -> Result<Contents, Self::Error>;

    /// Removes at most `budget` events: those that every consumer has accepted, if a consumer is registered, and those
    /// beyond the limits. Returns their number and the events that consumers missed. If `budget` events were removed,
    /// more may be removable.
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
    /// Events that consumers missed because of the removal, in the order of the consumers' names.
    pub missed: Vec<(Consumer, MissedRange)>,
}
