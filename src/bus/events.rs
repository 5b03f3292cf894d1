//! Events with an identity: programs register them in the peer's journal, find them there again, and subscribe to
//! them.

use super::{Bus, SubscribeError, Subscription};
use crate::daemon::answer_parts::PartReceiver;
use crate::event::model::{Event, EventId, Registration};
use crate::event::refusal::EventRefusal;
use crate::event::store::{Query, QueryPage};
use crate::listener::event::{EventAnswer, EventAnswerPart, EventRequest, RegisteredSession};
use crate::subject::event_type::TypePattern;
use crossbeam_channel::RecvTimeoutError;
use std::fmt;
use std::time::Duration;

/// Time limit for an answer of the journal, or for its next part; more than a busy disk takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Reason why events were not registered or found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventError {
    /// The peer refuses the request; nothing was done.
    Refused(EventRefusal),
    /// The peer did not answer in time. The events of the request may be stored all the same.
    Timeout,
    /// The answer came in more parts than an answer may have; the rest was dropped.
    TooMany,
    /// The bus was closed, or its peer went away, before the answer. The events of the request may be stored all the
    /// same.
    Closed,
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventError::Refused(refusal) => refusal.fmt(f),
            EventError::Timeout => {
                write!(f, "the peer did not answer in time; it may have stored the events of the request all the same")
            }
            EventError::TooMany => {
                write!(f, "the answer of the peer has too many parts; update the peer, or request fewer events")
            }
            EventError::Closed => {
                write!(
                    f,
                    "the bus was closed or its peer ended; it may have stored the events of the request all the same"
                )
            }
        }
    }
}

impl std::error::Error for EventError {}

pub(super) type EventReply = Result<EventAnswer, EventRefusal>;

/// A registration of events that is not answered yet.
#[derive(Debug)]
pub struct PendingRegistration {
    requested: Vec<Registration>,
    answers: PartReceiver<EventReply>,
}

impl PendingRegistration {
    /// Waits until the events are stored, so that they survive a crash of the host. Returns them with their
    /// identities, in the order of the request.
    ///
    /// # Errors
    /// Either none of the events is stored, or the outcome is unknown.
    pub fn wait(self) -> Result<Vec<Event>, EventError> {
        match next(&self.answers)? {
            EventAnswer::Registered(registered) => Ok(events(registered, self.requested)),
            EventAnswer::Found(_) => Err(EventError::Closed),
        }
    }
}

impl Bus {
    /// Registers events: the peer stores them in its journal, then acknowledges, then multicasts them. All events of
    /// one call form one session.
    ///
    /// # Errors
    /// Either none of the events is stored, or the outcome is unknown.
    pub fn register(&self, requested: Vec<Registration>) -> Result<Vec<Event>, EventError> {
        self.begin_register(requested)?.wait()
    }

    /// Registers events like [`Bus::register`], without waiting for the answer, so that many sessions can be stored
    /// together. The peer accepts up to 4,096 unanswered requests of a client.
    ///
    /// # Errors
    /// The bus is closed.
    pub fn begin_register(&self, requested: Vec<Registration>) -> Result<PendingRegistration, EventError> {
        let answers = self.shared.link.request_events(EventRequest::Register(requested.clone()))?;
        Ok(PendingRegistration { requested, answers })
    }

    /// Finds events in the journal of the peer: its own, and those of other peers that it follows.
    ///
    /// # Errors
    /// The query is invalid, the journal cannot be read, or the answer does not arrive in time.
    pub fn find_events(&self, query: Query) -> Result<QueryPage, EventError> {
        let answers = self.shared.link.request_events(EventRequest::Query(query))?;
        let mut answer = QueryPage::default();
        loop {
            let EventAnswer::Found(EventAnswerPart { events, is_last, more_follows }) = next(&answers)? else {
                return Err(EventError::Closed);
            };
            answer.events.extend(events);
            if is_last {
                return Ok(QueryPage { more_follows, ..answer });
            }
        }
    }

    /// Subscribes to the events of every peer whose type matches one of the patterns. Each event is delivered once, as
    /// a message that [`Event::of_message`] decodes.
    ///
    /// # Errors
    /// The same as of [`Bus::subscribe`].
    pub fn subscribe_events(
        &self,
        patterns: impl IntoIterator<Item = TypePattern>,
    ) -> Result<Subscription, SubscribeError> {
        self.subscribe_all(patterns.into_iter().flat_map(|pattern| pattern.subject_patterns()))
    }
}

/// Returns the events that the peer created from these registrations.
fn events(registered: RegisteredSession, requested: Vec<Registration>) -> Vec<Event> {
    let RegisteredSession { server, session, timestamp } = registered;
    let event = |(instance, registration)| {
        let Registration { event_type, source_timestamp, payload } = registration;
        Event { id: EventId { server, session, instance }, event_type, timestamp, source_timestamp, payload }
    };
    (1..).zip(requested).map(event).collect()
}

fn next(answers: &PartReceiver<EventReply>) -> Result<EventAnswer, EventError> {
    match answers.recv_timeout(ANSWER_TIMEOUT) {
        Ok(answer) => answer.map_err(EventError::Refused),
        Err(RecvTimeoutError::Timeout) => Err(EventError::Timeout),
        Err(RecvTimeoutError::Disconnected) if answers.has_overflowed() => Err(EventError::TooMany),
        Err(RecvTimeoutError::Disconnected) => Err(EventError::Closed),
    }
}
