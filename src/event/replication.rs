//! Replication of events between peers: announcements of servers, requests of followers, and the pages that answer
//! these requests.
//!
//! A server announces the events that it registers on one subject. Without events it announces itself periodically.
//! Each announcement names two positions of the server's journal and holds all events between them. A follower that has
//! all events up to the first position then has all events up to the second.

use super::model::{Event, EventId};
use super::store::QueryPage;
use super::timestamp::Timestamp;
use crate::subject::event_type::TypePattern;
use std::time::Duration;

/// Time without announcements after which a server is unreachable: three and a half intervals of announcements without
/// events.
pub const SERVER_TIMEOUT: Duration = Duration::from_secs(35);
/// Instance after the last event of any session. No event has this instance.
pub const INSTANCE_END: u64 = i64::MAX as u64;
/// Bytes counted for a buffered event in addition to its payload.
const EVENT_BYTES: usize = 256;

/// A server's announcement of itself and of its new events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Time at which the server's journal was opened.
    pub opened: Timestamp,
    /// True if the server holds its id and registers events: no other peer uses that id.
    pub is_held: bool,
    /// True if the server's peer follows other servers.
    pub follows: bool,
    /// Position in the journal before the announced events.
    pub since: EventId,
    /// Last position of the announced range, in the journal of the same server; at or after `since`.
    pub until: EventId,
    /// All events after `since` up to `until`, in the order of their ids.
    pub events: Vec<Event>,
}

/// A follower's request to a server for the events after a position, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationRequest {
    /// Position in the journal; no event need have it.
    pub after: EventId,
    /// Patterns of the wanted types. An event is wanted if one of them matches its type.
    pub types: Vec<TypePattern>,
}

/// One page of the answer to a [`ReplicationRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationPage {
    /// Position up to which this page and the earlier ones contain all requested events.
    pub covered: EventId,
    /// True if the server has more events after `covered`.
    pub more_follows: bool,
    /// The events of this page.
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
    /// Builds the answer to `request` from the events found in the journal: at most `bytes_max` bytes of events, or one
    /// larger event. `size` returns the size of an event in bytes. An event without a size is omitted.
    pub fn new(
        request: &ReplicationRequest,
        found: QueryPage,
        bytes_max: usize,
        size: impl Fn(&Event) -> Option<usize>,
    ) -> ReplicationPage {
        let mut page = ReplicationPage { covered: request.after, more_follows: found.more_follows, events: Vec::new() };
        let mut bytes = 0;
        for event in found.events {
            let id = event.id;
            if is_wanted(&request.types, &event)
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

    /// Returns whether the page can be an answer to `request` that makes progress.
    pub(super) fn answers(&self, request: &ReplicationRequest) -> bool {
        are_between(request.after, &self.events, self.covered) && (request.after < self.covered || !self.more_follows)
    }
}

/// Splits the events of a session into announcements of at most `bytes_max` bytes of events each, or one larger event.
/// `previous` is the announcement before the session, without events. `size` returns the size of an event in bytes.
pub fn split_session(
    previous: &Announcement,
    events: &[Event],
    bytes_max: usize,
    size: impl Fn(&Event) -> usize,
) -> Vec<Announcement> {
    let mut announcements: Vec<Announcement> = Vec::new();
    let mut bytes = 0;
    for event in events {
        bytes += size(event);
        if announcements.is_empty() || bytes_max < bytes {
            let since = announcements.last().map_or(previous.until, |last| last.until);
            announcements.push(Announcement { since, events: Vec::new(), ..previous.clone() });
            bytes = size(event);
        }
        let last = announcements.last_mut().expect("an announcement was begun");
        last.until = event.id;
        last.events.push(event.clone());
    }
    if let Some(last) = announcements.last_mut() {
        last.until.instance = INSTANCE_END;
    }
    announcements
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
