//! What a store of streams is asked and what it answers, as values, and the trait that all stores implement.
//!
//! A store numbers the events of each stream, and keeps them until every registered consumer has accepted them (003, section 2.3.1).
//! Consumers that never do are dealt with by [`StreamLimits`].

pub mod memory;

use super::model::{PageBudget, StreamPage};
use super::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::model::{EventId, Json, ServerId};
use crate::event::timestamp::Timestamp;
use crate::subject::event_type::TypePattern;
use std::collections::BTreeSet;
use std::time::Duration;

/// An event that is to stand in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Its type.
    pub kind: StreamType,
    /// A JSON text.
    pub data: Json,
    /// When it was registered.
    pub time: Timestamp,
    /// What it is on the bus.
    pub origin: EventId,
    /// The source timestamp, if it was added to this stream with one: that of what was [posted](PostedEvent) here, for example.
    pub stamp: Option<Timestamp>,
}

/// An event that an application has put into the store within a transaction of its own (003, section 3.2.1). It stands in no stream before
/// the peer that has claimed it has registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostedEvent {
    /// Its number among what was ever posted.
    pub number: u64,
    /// For which stream.
    pub stream: StreamName,
    /// Its type.
    pub kind: StreamType,
    /// A JSON text.
    pub data: Json,
    /// The source timestamp that it is registered with: later than when it was claimed, or then, and not that of another one that the
    /// same server has claimed.
    pub stamp: Timestamp,
}

/// A stream, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Its name. What is added to it has event types of two subtypes: the name, and what is called the type in the stream.
    pub name: StreamName,
    /// The events that stand in it beside those: of these types, if the last subtype is a type that streams have.
    pub types: Vec<TypePattern>,
    /// How much is kept.
    pub limits: StreamLimits,
}

impl StreamSettings {
    /// The types of all that may stand in it.
    pub fn patterns(&self) -> Vec<TypePattern> {
        let own = format!("{}/?", self.name).parse().expect("a short word");
        [own].into_iter().chain(self.types.iter().cloned()).collect()
    }
}

/// How much of a stream is kept for consumers that do not accept it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLimits {
    /// Events that are older go.
    pub age: Option<Duration>,
    /// The oldest go while the data of all has more bytes.
    pub bytes: Option<u64>,
    /// What is done at the limit.
    pub policy: Policy,
}

impl StreamLimits {
    /// Whether an event of that time is older than is kept.
    pub fn is_old(&self, now: Timestamp, time: Timestamp) -> bool {
        let age_micros = i128::from(now.as_micros()) - i128::from(time.as_micros());
        self.age.is_some_and(|age| (age.as_micros() as i128) < age_micros)
    }

    /// Whether anything is ever not added.
    pub fn may_block(&self) -> bool {
        self.policy == Policy::Block && self.bytes.is_some()
    }

    /// Whether nothing more is added, since the data of what is kept has so many bytes.
    pub fn is_blocked(&self, bytes: u64) -> bool {
        self.policy == Policy::Block && self.bytes.is_some_and(|max| max <= bytes)
    }
}

/// What is done with a consumer that does not accept events until a limit is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// It lapses: the events go, and it is told which.
    #[default]
    Lapse,
    /// Nothing goes, and nothing more is added before it has accepted some.
    Block,
}

/// Events that a consumer has not accepted, and that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedRange {
    /// The first of them.
    pub first: StreamId,
    /// The last of them.
    pub last: StreamId,
    /// How many, of all types.
    pub count: u64,
}

impl MissedRange {
    /// With what was missed behind it.
    pub fn and(self, later: MissedRange) -> MissedRange {
        MissedRange { first: self.first, last: later.last, count: self.count + later.count }
    }
}

/// A registered consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRow {
    /// Who.
    pub consumer: Consumer,
    /// It has accepted everything up to this.
    pub position: StreamId,
    /// What it missed since it registered last; as long as it has not registered again, it gets nothing.
    pub lapsed: Option<MissedRange>,
    /// When it was registered first.
    pub registered: Timestamp,
    /// When something was heard of it last.
    pub heard: Timestamp,
    /// Events behind its position, of all types.
    pub behind: u64,
}

impl ConsumerRow {
    /// The row of a consumer that is registered now, or again ([`StreamStore::register`]).
    pub fn registered(before: Option<&ConsumerRow>, who: &Consumer, of: &Contents, now: Timestamp) -> ConsumerRow {
        let (position, lapsed, heard) = (of.start(), None, now);
        match before.cloned() {
            Some(row) if row.lapsed.is_some() => ConsumerRow { position, lapsed, heard, ..row },
            Some(row) => ConsumerRow { heard, ..row },
            None => {
                let (consumer, behind) = (who.clone(), of.events);
                ConsumerRow { consumer, position, lapsed, registered: now, heard, behind }
            }
        }
    }
}

/// What stands in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The last id that was given.
    pub last: StreamId,
    /// How many events are kept.
    pub events: u64,
    /// The bytes of their data.
    pub bytes: u64,
}

impl Contents {
    /// Before the first event that is kept: those are always the last ones, and their ids have no gaps.
    pub fn start(&self) -> StreamId {
        StreamId::from_number(self.last.number().saturating_sub(self.events)).expect("not beyond the last id")
    }

    /// How many events are kept behind a place.
    pub fn behind(&self, position: StreamId) -> u64 {
        self.last.number().saturating_sub(position.max(self.start()).number())
    }
}

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamStoreError<E> {
    /// The consumer is not registered.
    NotRegistered,
    /// The consumer has lapsed, and has to register again before it goes on.
    Lapsed(MissedRange),
    /// There is no room before consumers have accepted some ([`Policy::Block`]), or no further id.
    Full,
    /// The store fails.
    Store(E),
}

impl<E> From<E> for StreamStoreError<E> {
    fn from(error: E) -> StreamStoreError<E> {
        StreamStoreError::Store(error)
    }
}

/// A store of streams.
pub trait StreamStore {
    /// Why it cannot do what is asked.
    type Error;

    /// Whether there is anything to be said against using it, as far as that is known without asking it. One that is away is tried again, unless
    /// that was tried just now.
    ///
    /// # Errors
    /// It is away.
    fn check(&mut self) -> Result<(), Self::Error>;

    /// Up to where the journal of each server was looked through for the stream.
    ///
    /// # Errors
    /// The store cannot be read.
    fn covered(&mut self, stream: &StreamName) -> Result<Vec<EventId>, Self::Error>;

    /// Adds the events, in this order, all or none of them; when it returns they survive a crash of the host. Those of a server come in the order of
    /// their origins; those at or before the place up to which its journal was looked through are there already. `covered` are the
    /// places up to which it was looked through now. What its server had claimed, which has the stream and the stamp of one that is added, is
    /// no longer posted. Gives the ids; `None` for those that are there already.
    ///
    /// # Errors
    /// They cannot be added, and none of them is.
    fn add(
        &mut self,
        stream: &StreamName,
        events: &[NewEvent],
        covered: &[EventId],
        limits: &StreamLimits,
    ) -> Result<Vec<Option<StreamId>>, StreamStoreError<Self::Error>>;

    /// What stands behind `after`, is of one of the types, and fits. An event that does not fit an empty page stands there alone. After about
    /// [`PASSED_MAX`](super::model::PASSED_MAX) events of other types the page ends.
    ///
    /// # Errors
    /// The store cannot be read.
    fn read(
        &mut self,
        stream: &StreamName,
        after: StreamId,
        want: Option<&BTreeSet<StreamType>>,
        room: PageBudget,
    ) -> Result<StreamPage, Self::Error>;

    /// Registers a consumer, or notes that it is there again: then it goes on where it was, or, if it has lapsed, with the first event that
    /// is kept. A new one begins there. Gives its row as it was before, if it was there.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn register(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        now: Timestamp,
    ) -> Result<Option<ConsumerRow>, Self::Error>;

    /// Up to where the consumer has accepted; moves that forward to `accepted`, but not beyond the last event, and never back.
    ///
    /// # Errors
    /// It is not registered, or has lapsed; the store cannot be changed.
    fn accept(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        accepted: StreamId,
        now: Timestamp,
    ) -> Result<StreamId, StreamStoreError<Self::Error>>;

    /// Sets the position of a consumer, wherever that is, but not beyond the last event; it has not lapsed then. Gives whether it is registered.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn reset(&mut self, stream: &StreamName, consumer: &Consumer, position: StreamId) -> Result<bool, Self::Error>;

    /// Removes a consumer. Gives whether it was registered.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn remove(&mut self, stream: &StreamName, consumer: &Consumer) -> Result<bool, Self::Error>;

    /// All consumers, in the order of their names.
    ///
    /// # Errors
    /// The store cannot be read.
    fn consumers(&mut self, stream: &StreamName) -> Result<Vec<ConsumerRow>, Self::Error>;

    /// The id of an event that stands in the stream, by what it is on the bus. It is one of the last.
    ///
    /// # Errors
    /// The store cannot be read.
    fn find(&mut self, stream: &StreamName, origin: EventId) -> Result<Option<StreamId>, Self::Error>;

    /// Claims for the server what is posted for these streams and nobody has claimed, so many at most, in the order of their numbers.
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

    /// What the server has claimed for the stream and is still posted, in the order of the numbers.
    ///
    /// # Errors
    /// The store cannot be read.
    fn claimed(&mut self, server: ServerId, stream: &StreamName) -> Result<Vec<PostedEvent>, Self::Error>;

    /// Sets what was claimed aside, since it can never be registered: people are to look at it.
    ///
    /// # Errors
    /// The store cannot be changed.
    fn quarantine(&mut self, number: u64, why: &str) -> Result<(), Self::Error>;

    /// What stands in the stream.
    ///
    /// # Errors
    /// The store cannot be read.
    fn contents(&mut self, stream: &StreamName) -> Result<Contents, Self::Error>;

    /// Removes so many events at most: those that every consumer has accepted, if there is one, and those beyond the limits. Gives how many,
    /// and what consumers missed by that. If as many were removed as may be, there may be more.
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

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrimReport {
    /// How many events.
    pub removed: u64,
    /// What consumers missed by it, in the order of their names.
    pub missed: Vec<(Consumer, MissedRange)>,
}
