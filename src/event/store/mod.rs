//! What a journal of events is asked and what it answers, as values, and the trait that all journals implement.
//!
//! A journal keeps events in the order in which this peer learned of them. That order is their arrival, which decides between
//! events of two servers with one timestamp (seed 004, "Event ordering"). Since sessions and timestamps of a server rise together, and
//! the events of a server are appended in the order of their ids, the natural order is that of timestamp and arrival.

pub mod memory;
pub mod retention;

use super::model::{Event, EventId, ServerId};
use super::timestamp::Timestamp;
use crate::subject::event_type::TypePattern;
use retention::Retention;
use std::fmt;

/// The most events in one answer; what is left out is told by [`QueryPage::more_follows`].
pub const ANSWER_EVENTS_MAX: usize = 4096;
/// From this size on an answer takes no further event: that of payloads and types, and [`EVENT_BYTES`] for each event.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
/// What an event takes beside payload and type, about.
pub const EVENT_BYTES: usize = 128;
/// The most patterns of a question.
pub const TYPES_MAX: usize = 1024;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Of each type that one of these matches, or of each type, the greatest event in the natural order; in the order of the types'
    /// subjects. Has no limit but that of an answer's bytes.
    Latest(Option<Vec<TypePattern>>),
    /// Events in the order of a time.
    Series(Series),
    /// The events of one server in the order of their ids.
    Server(ServerQuery),
}

/// Which events, in which order, and from where on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Those whose type one of these matches; all, if it is not said.
    pub types: Option<Vec<TypePattern>>,
    /// Those with a timestamp in this span.
    pub time: TimeSpan,
    /// Those with a source timestamp in this span; if it has a bound, events without one are left out.
    pub source_time: TimeSpan,
    /// The time that orders them.
    pub by: SeriesOrder,
    /// From the latest to the earliest. Those with the same time are in the natural order, or in its reverse.
    pub is_descending: bool,
    /// Only what stands behind this event; nothing, if it is not among those that are meant.
    pub after: Option<EventId>,
    /// So many at most.
    pub limit: Option<usize>,
}

/// A span of time with both its ends in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpan {
    /// Not before this.
    pub from: Option<Timestamp>,
    /// Not behind this.
    pub to: Option<Timestamp>,
}

impl TimeSpan {
    /// Whether it has a bound at all.
    pub fn is_bounded(self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// Whether the time lies in it; what has none lies only in a span without bounds.
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
    /// When the event was registered.
    #[default]
    Time,
    /// When it occurred; events without a source timestamp are left out.
    SourceTime,
}

/// Events of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerQuery {
    /// Which.
    pub server: ServerId,
    /// Those with a greater id, of the same server; it need not be there.
    pub after: Option<EventId>,
    /// So many at most.
    pub limit: Option<usize>,
}

/// Why a question makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// A span ends before it begins.
    Reversed {
        /// Its beginning.
        from: Timestamp,
        /// Its end.
        to: Timestamp,
    },
    /// So many patterns.
    Types(usize),
    /// What stands behind an event of one server is asked of another one.
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
                write!(f, "the span begins at {from}, after its end at {to}: exchange the two")
            }
            QueryError::Types(count) => {
                write!(f, "{count} patterns of types in one question, {TYPES_MAX} are allowed: ask several questions")
            }
            QueryError::OtherServer { after, server } => {
                write!(f, "{after} is no event of server {server}: ask for events of server {}", after.server)
            }
        }
    }
}

impl std::error::Error for QueryError {}

impl Query {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// Why not.
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

    /// How many events the answer has at most.
    pub fn limit(&self) -> usize {
        let limit = match self {
            Query::Latest(_) => return usize::MAX,
            Query::Series(series) => series.limit,
            Query::Server(of_server) => of_server.limit,
        };
        limit.map_or(ANSWER_EVENTS_MAX, |limit| limit.min(ANSWER_EVENTS_MAX))
    }
}

/// What a journal has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryPage {
    /// The events, in the order that was asked for.
    pub events: Vec<Event>,
    /// Whether there are more, which a limit has cut off.
    pub more_follows: bool,
}

/// An answer in the making: takes events until a limit is reached.
#[derive(Debug)]
pub struct QueryPageBuilder {
    answer: QueryPage,
    left: usize,
    bytes: usize,
}

impl QueryPageBuilder {
    /// Of a question.
    pub fn new(query: &Query) -> QueryPageBuilder {
        QueryPageBuilder { answer: QueryPage::default(), left: query.limit(), bytes: 0 }
    }

    /// Whether it has taken none.
    pub fn is_empty(&self) -> bool {
        self.answer.events.is_empty()
    }

    /// How many more events it takes at most.
    pub fn remaining(&self) -> usize {
        self.left
    }

    /// Takes the next event, if there is room. Whether to go on: not once one was left out.
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

    /// What was taken.
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
    /// None yet.
    pub const NONE: LastSession = LastSession { session: 0, timestamp: Timestamp::MIN };
}

/// A store of events.
pub trait Journal {
    /// Why it cannot do what is asked.
    type Error;

    /// The last session of the server; [`LastSession::NONE`] if there was none.
    ///
    /// # Errors
    /// The store cannot be read.
    fn last_session(&mut self, server: ServerId) -> Result<LastSession, Self::Error>;

    /// Stores the events, all or none of them; when it returns they survive a crash of the host. Those that are stored already are
    /// passed over. Gives how many were not. The events of each server come in the order of their ids.
    ///
    /// # Errors
    /// They cannot be stored, and none of them is.
    fn append(&mut self, events: &[Event]) -> Result<usize, Self::Error>;

    /// Removes so many events at most that shall not be kept: those of the first rule first, of each rule from the earliest in the
    /// natural order on. Gives how many of each rule; if they are as many as they may be, there may be more. The last sessions of servers
    /// stay known.
    ///
    /// # Errors
    /// The store cannot be changed, and nothing is removed.
    fn trim(&mut self, retention: &Retention, now: Timestamp, budget: usize) -> Result<Vec<u64>, Self::Error>;

    /// Answers a question that makes sense.
    ///
    /// # Errors
    /// The store cannot be read.
    fn query(&mut self, query: &Query) -> Result<QueryPage, Self::Error>;
}
