//! Events with an identity: registered in the journal of the peer, found there again, subscribed to.

use super::{Bus, SubscribeError, Subscription};
use crate::daemon::parts::PartReceiver;
use crate::event::model::{Event, EventId, Registration};
use crate::event::refusal::EventRefusal;
use crate::event::store::{Query, QueryPage};
use crate::listener::event::{EventAnswer, EventAnswerPart, EventRequest, RegisteredSession};
use crate::subject::event_type::TypePattern;
use crossbeam_channel::RecvTimeoutError;
use std::fmt;
use std::time::Duration;

/// How long the journal may take for an answer, or the next part of one: what a busy disk takes, and more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Why events were not registered or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventError {
    /// The peer refuses; nothing was done.
    Refused(EventRefusal),
    /// The peer did not answer in time. What was to be registered may be stored all the same.
    Timeout,
    /// More parts of the answer came than an answer has; the rest of it was dropped.
    TooMany,
    /// The bus was closed, or its peer went away, before there was an answer. What was to be registered may be stored all the same.
    Closed,
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventError::Refused(refusal) => refusal.fmt(f),
            EventError::Timeout => {
                write!(f, "the peer did not answer in time; what was to be registered may be stored all the same")
            }
            EventError::TooMany => {
                write!(f, "the answer of the peer has too many parts; update the peer, or ask for fewer events")
            }
            EventError::Closed => {
                write!(
                    f,
                    "the bus was closed or its peer went away; what was to be registered may be stored all the same"
                )
            }
        }
    }
}

impl std::error::Error for EventError {}

pub(super) type EventReply = Result<EventAnswer, EventRefusal>;

/// Events that are being registered.
#[derive(Debug)]
pub struct PendingRegistration {
    requested: Vec<Registration>,
    told: PartReceiver<EventReply>,
}

impl PendingRegistration {
    /// Waits until they are stored, which they then are for good: they survive a crash of the host. Gives them with their identities,
    /// in the order of the request.
    ///
    /// # Errors
    /// None of them is stored, or it is not known.
    pub fn wait(self) -> Result<Vec<Event>, EventError> {
        match next(&self.told)? {
            EventAnswer::Registered(registered) => Ok(events(registered, self.requested)),
            EventAnswer::Found(_) => Err(EventError::Closed),
        }
    }
}

impl Bus {
    /// Asks the peer to create events: stored in its journal first, then acknowledged, then multicast. All of one call are one session.
    ///
    /// # Errors
    /// None of them is stored, or it is not known.
    pub fn register(&self, requested: Vec<Registration>) -> Result<Vec<Event>, EventError> {
        self.begin_register(requested)?.wait()
    }

    /// As [`Bus::register`], without waiting for the answer: the way to have many sessions stored together. The peer takes some
    /// thousands before the first is answered.
    ///
    /// # Errors
    /// The bus is closed.
    pub fn begin_register(&self, requested: Vec<Registration>) -> Result<PendingRegistration, EventError> {
        let told = self.shared.link.request_events(EventRequest::Register(requested.clone()))?;
        Ok(PendingRegistration { requested, told })
    }

    /// Finds events in the journal of the peer: its own, and those of others that it follows.
    ///
    /// # Errors
    /// The question makes no sense; the journal cannot be read; no answer in time.
    pub fn find_events(&self, query: Query) -> Result<QueryPage, EventError> {
        let told = self.shared.link.request_events(EventRequest::Query(query))?;
        let mut answer = QueryPage::default();
        loop {
            let EventAnswer::Found(EventAnswerPart { events, is_last, more_follows }) = next(&told)? else {
                return Err(EventError::Closed);
            };
            answer.events.extend(events);
            if is_last {
                return Ok(QueryPage { more_follows, ..answer });
            }
        }
    }

    /// Subscribes to the events whose type one of the patterns matches, from whichever peer. Each comes once, as a message;
    /// [`Event::of_message`] reads it.
    ///
    /// # Errors
    /// As [`Bus::subscribe`].
    pub fn subscribe_events(
        &self,
        patterns: impl IntoIterator<Item = TypePattern>,
    ) -> Result<Subscription, SubscribeError> {
        self.subscribe_all(patterns.into_iter().flat_map(|pattern| pattern.subject_patterns()))
    }
}

/// The events that were made of these.
fn events(registered: RegisteredSession, requested: Vec<Registration>) -> Vec<Event> {
    let RegisteredSession { server, session, timestamp } = registered;
    let event = |(instance, registration)| {
        let Registration { event_type, source_timestamp, payload } = registration;
        Event { id: EventId { server, session, instance }, event_type, timestamp, source_timestamp, payload }
    };
    (1..).zip(requested).map(event).collect()
}

fn next(told: &PartReceiver<EventReply>) -> Result<EventAnswer, EventError> {
    match told.recv_timeout(ANSWER_TIMEOUT) {
        Ok(answer) => answer.map_err(EventError::Refused),
        Err(RecvTimeoutError::Timeout) => Err(EventError::Timeout),
        Err(RecvTimeoutError::Disconnected) if told.has_overflowed() => Err(EventError::TooMany),
        Err(RecvTimeoutError::Disconnected) => Err(EventError::Closed),
    }
}
