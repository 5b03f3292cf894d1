//! Queries to a journal of events and their answers, as values, and the trait that all journals implement.
//!
//! A journal stores events in the order of their arrival at this peer. The arrival decides between events of two
//! servers with one timestamp (seed 004, "Event ordering"). Sessions and timestamps of a server rise together, and the
//! events of a server are appended in the order of their ids. The natural order is therefore that of timestamp and
//! arrival.

pub mod memory;
pub mod retention;

use super::model::{Event, EventId, ServerId};
use super::timestamp::Timestamp;
use crate::subject::event_type::TypePattern;
use retention::Retention;
use std::fmt;

/// Maximum number of events in one answer; [`QueryPage::more_follows`] reports that further events were omitted.
pub const ANSWER_EVENTS_MAX: usize = 4096;
/// Size at which an answer takes no further event: bytes of payloads and types, plus [`EVENT_BYTES`] for each event.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Approximate size of an event in bytes, without payload and type.
pub const EVENT_BYTES: usize = 128;
/// Maximum number of patterns in a query.
pub const TYPES_MAX: usize = 1024;

/// A query to a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The last event, in the natural order, of each type that matches one of these patterns, or of each type if
    /// `None`. The events are in the order of the types' subjects. Only the size of an answer in bytes limits their
    /// number.
    Latest(Option<Vec<TypePattern>>),
    /// Events ordered by a time.
    Series(Series),
    /// The events of one server in the order of their ids.
    Server(ServerQuery),
}

/// A selection of events, their order and the position after which they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Patterns of the wanted types; `None` for all types.
    pub types: Option<Vec<TypePattern>>,
    /// Span of the wanted timestamps.
    pub time: TimeSpan,
    /// Span of the wanted source timestamps. If it has a bound, events without a source timestamp are omitted.
    pub source_time: TimeSpan,
    /// Time by which the events are ordered.
    pub by: SeriesOrder,
    /// True for the order from the latest to the earliest event. Events with the same time are in the natural order, or
    /// reversed if this is true.
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
    /// Returns whether the span has a bound.
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
    /// Time at which the event occurred, by its source timestamp; events without one are omitted.
    SourceTime,
}

/// Events of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerQuery {
    /// Id of the server.
    pub server: ServerId,
    /// Id of the same server after which the answer begins. No event need have this id.
    pub after: Option<EventId>,
    /// Maximum number of events.
    pub limit: Option<usize>,
}

/// The reason why a query is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryError {
    /// The end of a span is before its beginning.
    Reversed {
        /// Its beginning.
        from: Timestamp,
        /// Its end.
        to: Timestamp,
    },
    /// The query has too many patterns. Holds their number.
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
    /// Returns the patterns of the wanted types; `None` for all types.
    pub fn types(&self) -> Option<&[TypePattern]> {
        match self {
            Query::Latest(types) => types.as_deref(),
            Query::Series(series) => series.types.as_deref(),
            Query::Server(_) => None,
        }
    }

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
            Query::Server(server_query) => server_query.limit,
        };
        limit.map_or(ANSWER_EVENTS_MAX, |limit| limit.min(ANSWER_EVENTS_MAX))
    }
}

/// The answer of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryPage {
    /// The events, in the requested order.
    pub events: Vec<Event>,
    /// True if a limit omitted further events.
    pub more_follows: bool,
}

/// Builder of an answer, which takes events until a limit is reached.
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

    /// Returns whether the answer has no event.
    pub fn is_empty(&self) -> bool {
        self.answer.events.is_empty()
    }

    /// Returns the maximum number of further events.
    pub fn remaining(&self) -> usize {
        self.left
    }

    /// Appends the next event if the limits allow it. Otherwise returns false, and the caller stops.
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

/// The last session of a server that a journal stores, or once stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSession {
    /// Number of the session; 0 if there was none.
    pub session: u64,
    /// Timestamp of the session.
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

    /// Stores the events, all or none of them. They survive a crash of the host once this function returns. It skips
    /// events that are stored already, and returns the number of new ones. The caller passes the events of each server
    /// in the order of their ids.
    ///
    /// # Errors
    /// The events cannot be stored; none of them is stored.
    fn append(&mut self, events: &[Event]) -> Result<usize, Self::Error>;

    /// Removes at most `budget` events that exceed the retention, rule by rule. Within a rule, removal begins at the
    /// earliest event in the natural order. Returns the number of events removed for each rule; if their sum is
    /// `budget`, more events may exceed the retention. The journal still returns the last sessions of servers.
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
