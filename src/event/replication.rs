//! Replication of events between peers: announcements of servers, requests of followers, and the pages that answer them.
//!
//! A server announces on one subject the events that it registers, and periodically itself. Each announcement names two
//! positions of its journal and all events between them. A follower that has everything up to the first position has
//! everything up to the second one then.

use super::model::{Event, EventId};
use super::store::QueryPage;
use super::timestamp::Timestamp;
use crate::subject::event_type::TypePattern;
use std::time::Duration;

/// Time without announcements after which a server is unreachable: three and a half intervals of announcements without
/// events.
pub const SERVER_TIMEOUT: Duration = Duration::from_secs(35);
/// Instance after all events of a session. No event has it.
pub const INSTANCE_END: u64 = i64::MAX as u64;
/// Bytes that a buffered event counts beside its payload.
const EVENT_BYTES: usize = 256;

/// The announcement of a server about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Time at which its journal was opened.
    pub opened: Timestamp,
    /// True if it registers events: it has made sure that no other peer uses its server id.
    pub is_held: bool,
    /// True if its peer follows other servers.
    pub follows: bool,
    /// Position in the journal after which the events begin.
    pub since: EventId,
    /// Position up to which, inclusive, there are no other events. It is not before `since`, and of the same server.
    pub until: EventId,
    /// The events between the two positions, in their order.
    pub events: Vec<Event>,
}

/// A follower's request to a server: the events after a position, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationRequest {
    /// Position in the journal; it need not be that of an event.
    pub after: EventId,
    /// Patterns of the wanted types. An event is wanted if one of them matches its type.
    pub types: Vec<TypePattern>,
}

/// A part of the answer to a [`ReplicationRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationPage {
    /// Position up to which this part and those before contain all requested events.
    pub covered: EventId,
    /// True if the server has more events after `covered`.
    pub more_follows: bool,
    /// The events of this part.
    pub events: Vec<Event>,
}

impl Announcement {
    /// Returns whether it is valid: ids rise from the first position to the second.
    pub fn is_sound(&self) -> bool {
        are_between(self.since, &self.events, self.until)
    }

    /// Returns the approximate bytes of its events in memory.
    pub(super) fn bytes(&self) -> usize {
        self.events.iter().map(|event| EVENT_BYTES + event.payload_size()).sum()
    }
}

impl ReplicationPage {
    /// Builds the answer to `question` from the events of the journal, with at most `bytes_max` bytes of events, or one
    /// event. `size` returns the bytes of an event. Events without a size are left out.
    pub fn new(
        question: &ReplicationRequest,
        found: QueryPage,
        bytes_max: usize,
        size: impl Fn(&Event) -> Option<usize>,
    ) -> ReplicationPage {
        let mut page =
            ReplicationPage { covered: question.after, more_follows: found.more_follows, events: Vec::new() };
        let mut bytes = 0;
        for event in found.events {
            let id = event.id;
            if is_wanted(&question.types, &event)
                && let Some(size) = size(&event)
            {
                bytes += size;
                if bytes_max < bytes && !page.events.is_empty() {
                    page.more_follows = true;
                    break;
                }
                page.events.push(event);
            }
            page.covered = id;
        }
        if !page.more_follows {
            // A session is stored as a whole, so the last one is complete.
            page.covered.instance = INSTANCE_END;
        }
        page
    }

    /// Returns whether the page can be an answer to `question` that makes progress.
    pub(super) fn answers(&self, question: &ReplicationRequest) -> bool {
        are_between(question.after, &self.events, self.covered) && (question.after < self.covered || !self.more_follows)
    }
}

/// Splits the events of a session into announcements of at most `bytes_max` bytes of events, or one event. `head` is
/// the announcement of the position before, without events. `size` returns the bytes of an event.
pub fn parts(
    head: &Announcement,
    events: &[Event],
    bytes_max: usize,
    size: impl Fn(&Event) -> usize,
) -> Vec<Announcement> {
    let mut parts: Vec<Announcement> = Vec::new();
    let mut bytes = 0;
    for event in events {
        bytes += size(event);
        if parts.is_empty() || bytes_max < bytes {
            let since = parts.last().map_or(head.until, |part| part.until);
            parts.push(Announcement { since, events: Vec::new(), ..head.clone() });
            bytes = size(event);
        }
        let part = parts.last_mut().expect("one was begun");
        part.until = event.id;
        part.events.push(event.clone());
    }
    if let Some(last) = parts.last_mut() {
        last.until.instance = INSTANCE_END;
    }
    parts
}

/// Returns whether all ids are valid ids of events of one server and rise from the first position to the last.
fn are_between(since: EventId, events: &[Event], until: EventId) -> bool {
    let ids = events.iter().map(|event| event.id);
    let is_rising = [since].into_iter().chain(ids.clone()).is_sorted_by(|one, next| one < next);
    is_rising
        && events.last().map_or(since, |event| event.id) <= until
        && since.server == until.server
        && until.session < INSTANCE_END
        && ids.into_iter().all(|id| id.is_of_event() && id.instance < INSTANCE_END)
}

/// Returns whether one of the patterns matches the type of the event.
pub(super) fn is_wanted(types: &[TypePattern], event: &Event) -> bool {
    types.iter().any(|pattern| pattern.matches(&event.event_type))
}
