//! Queries to a journal of events and their answers, as values, and the trait that all journals implement.
//!
//! A journal keeps events in the order in which this peer learned of them. That order is their arrival, which decides
//! between events of two servers with one timestamp (seed 004, "Event ordering"). Sessions and timestamps of a server
//! rise together, and the events of a server are appended in the order of their ids. The natural order is therefore
//! that of timestamp and arrival.

pub mod memory;
pub mod retention;

use super::model::{Event, EventId, ServerId};
use super::timestamp::Timestamp;
use crate::subject::event_type::TypePattern;
use retention::Retention;
use std::fmt;

/// Maximum number of events in one answer; [`QueryPage::more_follows`] reports that events were left out.
pub const ANSWER_EVENTS_MAX: usize = 4096;
/// Size from which an answer takes no further event: bytes of payloads and types, plus [`EVENT_BYTES`] for each event.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Approximate bytes that an event takes beside payload and type.
pub const EVENT_BYTES: usize = 128;
/// Maximum number of patterns in a query.
pub const TYPES_MAX: usize = 1024;

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The greatest event in the natural order of each type, or of each type that one of these patterns matches. The
    /// events come in the order of the types' subjects. Only the bytes of an answer limit their number.
    Latest(Option<Vec<TypePattern>>),
    /// Events ordered by a time.
    Series(Series),
    /// The events of one server in the order of their ids.
    Server(ServerQuery),
}

/// A selection of events, their order and their first position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Patterns of the wanted types; `None` for all types.
    pub types: Option<Vec<TypePattern>>,
    /// Span of the wanted timestamps.
    pub time: TimeSpan,
    /// Span of the wanted source timestamps. If it has a bound, events without a source timestamp are left out.
    pub source_time: TimeSpan,
    /// The time that orders them.
    pub by: SeriesOrder,
    /// True to order from the latest to the earliest. Events with the same time are in the natural order, or in its
    /// reverse.
    pub is_descending: bool,
    /// Event after which the answer begins. The answer is empty if the event is not in the selection.
    pub after: Option<EventId>,
    /// Maximum number of events.
    pub limit: Option<usize>,
}

/// A span of time that includes both its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpan {
    /// Earliest time.
    pub from: Option<Timestamp>,
    /// Latest time.
    pub to: Option<Timestamp>,
}

impl TimeSpan {
    /// Returns whether it has a bound at all.
    pub fn is_bounded(self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// Returns whether the time lies in the span. An absent time lies only in a span without bounds.
    pub fn contains(self, time: Option<Timestamp>) -> bool {
        match time {
            Some(time) => self.from.is_none_or(|from| from <= time) && self.to.is_none_or(|to| time <= to),
            None => !self.is_bounded(),
        }
    }
}

/// The time that orders a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesOrder {
    /// Time at which the event was registered.
    #[default]
    Time,
    /// Time at which it occurred; events without a source timestamp are left out.
    SourceTime,
}

/// Events of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerQuery {
    /// Id of the server.
    pub server: ServerId,
    /// Id after which the answer begins, of the same server; the event need not exist.
    pub after: Option<EventId>,
    /// Maximum number of events.
    pub limit: Option<usize>,
}

/// The reason why a query is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryError {
    /// A span ends before it begins.
    Reversed {
        /// Its beginning.
        from: Timestamp,
        /// Its end.
        to: Timestamp,
    },
    /// The query has too many patterns, namely this number.
    Types(usize),
    /// The query names an event of a server other than the queried one.
    OtherServer {
        /// The event.
        after: EventId,
        /// The server.
        server: ServerId,
    },
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::Reversed { from, to } => {
                write!(f, "the span begins at {from}, after its end at {to}: swap the two")
            }
            QueryError::Types(count) => {
                write!(f, "the query has {count} patterns of types, at most {TYPES_MAX} are allowed: split it")
            }
            QueryError::OtherServer { after, server } => {
                write!(f, "{after} is no event of server {server}: query events of server {}", after.server)
            }
        }
    }
}

impl std::error::Error for QueryError {}

impl Query {
    /// Checks whether the query is valid.
    ///
    /// # Errors
    /// Returns the reason why it is invalid.
    pub fn check(&self) -> Result<(), QueryError> {
        match self {
            Query::Latest(Some(types)) | Query::Series(Series { types: Some(types), .. })
                if TYPES_MAX < types.len() =>
            {
                Err(QueryError::Types(types.len()))
            }
            Query::Latest(_) => Ok(()),
            Query::Series(series) => [series.time, series.source_time].into_iter().try_for_each(|span| match span {
                TimeSpan { from: Some(from), to: Some(to) } if to < from => Err(QueryError::Reversed { from, to }),
                _ => Ok(()),
            }),
            Query::Server(ServerQuery { server, after: Some(after), .. }) if after.server != *server => {
                Err(QueryError::OtherServer { after: *after, server: *server })
            }
            Query::Server(_) => Ok(()),
        }
    }

    /// Returns the maximum number of events of the answer.
    pub fn limit(&self) -> usize {
        let limit = match self {
            Query::Latest(_) => return usize::MAX,
            Query::Series(series) => series.limit,
            Query::Server(of_server) => of_server.limit,
        };
        limit.map_or(ANSWER_EVENTS_MAX, |limit| limit.min(ANSWER_EVENTS_MAX))
    }
}

/// The answer of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryPage {
    /// The events, in the requested order.
    pub events: Vec<Event>,
    /// True if a limit has cut off further events.
    pub more_follows: bool,
}

/// An answer under construction: it takes events until a limit is reached.
#[derive(Debug)]
pub struct QueryPageBuilder {
    answer: QueryPage,
    left: usize,
    bytes: usize,
}

impl QueryPageBuilder {
    /// Creates an empty answer to a query.
    pub fn new(query: &Query) -> QueryPageBuilder {
        QueryPageBuilder { answer: QueryPage::default(), left: query.limit(), bytes: 0 }
    }

    /// Returns whether it has taken no event.
    pub fn is_empty(&self) -> bool {
        self.answer.events.is_empty()
    }

    /// Returns the maximum number of further events.
    pub fn remaining(&self) -> usize {
        self.left
    }

    /// Takes the next event if the limits allow it. Returns false once an event was left out; the caller then stops.
    pub fn take(&mut self, event: Event) -> bool {
        if self.left == 0 || ANSWER_BYTES_MAX <= self.bytes {
            self.answer.more_follows = true;
            return false;
        }
        self.left -= 1;
        self.bytes += EVENT_BYTES + event.event_type.subject().as_bytes().len() + event.payload_size();
        self.answer.events.push(event);
        true
    }

    /// Returns the answer.
    pub fn end(self) -> QueryPage {
        self.answer
    }
}

/// The last session of a server that a journal holds, or once held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSession {
    /// Its number; 0 if there was none.
    pub session: u64,
    /// Its timestamp.
    pub timestamp: Timestamp,
}

impl LastSession {
    /// The value for a server without sessions.
    pub const NONE: LastSession = LastSession { session: 0, timestamp: Timestamp::MIN };
}

/// A store of events.
pub trait Journal {
    /// The reason why the store failed.
    type Error;

    /// Returns the last session of the server; [`LastSession::NONE`] if there was none.
    ///
    /// # Errors
    /// The store cannot be read.
    fn last_session(&mut self, server: ServerId) -> Result<LastSession, Self::Error>;

    /// Stores the events, all or none of them; when it returns they survive a crash of the host. Events that are stored
    /// already are skipped. Returns the number of new ones. The events of each server come in the order of their ids.
    ///
    /// # Errors
    /// The events cannot be stored, and none of them is.
    fn append(&mut self, events: &[Event]) -> Result<usize, Self::Error>;

    /// Removes at most `budget` events that exceed the retention. The first rule comes first; within a rule removal
    /// begins at the earliest event in the natural order. Returns the number of events removed for each rule; if their
    /// sum is `budget`, there may be more. The last sessions of servers stay known.
    ///
    /// # Errors
    /// The store cannot be changed, and nothing is removed.
    fn trim(&mut self, retention: &Retention, now: Timestamp, budget: usize) -> Result<Vec<u64>, Self::Error>;

    /// Answers a valid query.
    ///
    /// # Errors
    /// The store cannot be read.
    fn query(&mut self, query: &Query) -> Result<QueryPage, Self::Error>;
}
