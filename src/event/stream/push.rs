//! Pushes a stream to one reliable consumer over one connection (003, section 2.2.2): reads what it wants, groups it, sends the groups
//! with sequence numbers that begin at 0 and have no gap, several at a time, and counts as delivered what the consumer says it has
//! accepted, and what it does not want.

use super::model::{PageBudget, StreamEvent, StreamPage};
use super::name::StreamId;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The last sequence number that fits the type on the wire.
const SEQ_MAX: u32 = i32::MAX as u32;
/// How long a group that the consumer did not accept rests before it is sent again; each further time twice as long,
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// up to this.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How groups are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What a group holds at most. An event that is larger stands alone.
    pub room: PageBudget,
    /// Groups that are sent and not accepted yet, at most.
    pub groups_max: usize,
    /// How long an event waits for others at most while the consumer has groups to accept; if it has none, no event waits.
    pub delay: Duration,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PusherAction {
    /// To read what is wanted behind this; [`Pusher::on_page`] takes it.
    Read {
        /// Behind this.
        after: StreamId,
        /// So much.
        room: PageBudget,
    },
    /// To send this group; [`Pusher::on_answer`] takes the answer.
    Send {
        /// Its number.
        seq: u32,
        /// The events.
        events: Arc<Vec<StreamEvent>>,
    },
    /// All up to this is delivered, or not wanted.
    Accept(StreamId),
    /// There is no further number: the connection is to be closed, and the consumer to come again.
    Close,
}

#[derive(Debug)]
struct EventGroup {
    seq: u32,
    events: Arc<Vec<StreamEvent>>,
    /// Nothing that is wanted stands between its last event and here.
    covered: StreamId,
    state: GroupState,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupState {
    Sent,
    Accepted,
    /// To be sent again then.
    Backoff(Instant),
}

/// Pushes to one consumer.
#[derive(Debug)]
pub struct Pusher {
    settings: Settings,
    /// Sent, in their order; the first one is not accepted, unless that was to be told.
    groups: VecDeque<EventGroup>,
    seq_next: u32,
    /// To be sent next.
    pending_events: Vec<StreamEvent>,
    room: PageBudget,
    /// Since when the first of them waits.
    since: Instant,
    /// Nothing more fits.
    is_full: bool,
    /// What stands up to here is gathered, sent, or not wanted.
    read: StreamId,
    accepted: StreamId,
    is_reading: bool,
    /// There may be events behind what was read.
    has_unread: bool,
}

impl Pusher {
    /// Begins behind what the consumer has accepted before.
    pub fn new(settings: Settings, accepted: StreamId) -> Pusher {
        Pusher {
            settings,
            groups: VecDeque::new(),
            seq_next: 0,
            pending_events: Vec::new(),
            room: settings.room,
            since: Instant::ZERO,
            is_full: false,
            read: accepted,
            accepted,
            is_reading: false,
            has_unread: true,
        }
    }

    /// What the consumer has accepted.
    pub fn accepted(&self) -> StreamId {
        self.accepted
    }

    /// Events were added to the stream.
    pub fn on_events_added(&mut self) {
        self.has_unread = true;
    }

    /// What was to be read.
    pub fn on_page(&mut self, now: Instant, page: StreamPage) {
        self.is_reading = false;
        if self.pending_events.is_empty() {
            self.since = now;
        }
        for event in &page.events {
            if self.room.take(event) {
                continue;
            }
            // It came alone, and stands in a group of its own.
            if !self.pending_events.is_empty() {
                (self.is_full, self.has_unread) = (true, true);
                return;
            }
            self.room.events = 0;
        }
        let is_ended = page.more_follows && !page.events.is_empty();
        self.pending_events.extend(page.events);
        self.read = page.covered;
        self.is_full = is_ended || self.room.events == 0;
        self.has_unread |= page.more_follows;
    }

    /// Nothing could be read; to be tried again when something is added.
    pub fn on_read_failed(&mut self) {
        self.is_reading = false;
    }

    /// What the consumer says of a group. One that was not sent, or is accepted, does not count.
    pub fn on_answer(&mut self, now: Instant, seq: u32, is_accepted: bool) {
        let Some(group) = self.groups.iter_mut().find(|group| group.seq == seq && group.state == GroupState::Sent)
        else {
            return;
        };
        if is_accepted {
            group.state = GroupState::Accepted;
        } else {
            let rest = BACKOFF_MIN.saturating_mul(1 << group.failures.min(10)).min(BACKOFF_MAX);
            group.failures += 1;
            group.state = GroupState::Backoff(now + rest);
        }
    }

    /// What to do next.
    pub fn poll(&mut self, now: Instant) -> Option<PusherAction> {
        let before = self.accepted;
        while self.groups.front().is_some_and(|group| group.state == GroupState::Accepted) {
            let group = self.groups.pop_front().expect("there is a first one");
            self.accepted = group.covered;
        }
        // What is not wanted is delivered when what stands before it is.
        if self.groups.is_empty() && self.pending_events.is_empty() {
            self.accepted = self.read;
        }
        if before < self.accepted {
            return Some(PusherAction::Accept(self.accepted));
        }
        let due = |state: GroupState| matches!(state, GroupState::Backoff(until) if until <= now);
        if let Some(group) = self.groups.iter_mut().find(|group| due(group.state)) {
            group.state = GroupState::Sent;
            return Some(PusherAction::Send { seq: group.seq, events: Arc::clone(&group.events) });
        }
        if self.groups.len() < self.settings.groups_max {
            if self.is_due(now) {
                return Some(self.send());
            }
            if self.has_unread && !self.is_reading && !self.is_full {
                (self.is_reading, self.has_unread) = (true, false);
                return Some(PusherAction::Read { after: self.read, room: self.room });
            }
        }
        None
    }

    /// When to poll again if nothing happens before.
    pub fn deadline(&self) -> Option<Instant> {
        let resting = self.groups.iter().filter_map(|group| match group.state {
            GroupState::Backoff(until) => Some(until),
            GroupState::Sent | GroupState::Accepted => None,
        });
        let is_waiting = !self.pending_events.is_empty() && self.groups.len() < self.settings.groups_max;
        let pending_events = is_waiting.then(|| self.since + self.settings.delay);
        resting.chain(pending_events).min()
    }

    /// Whether what is gathered is to be sent.
    fn is_due(&self, now: Instant) -> bool {
        let is_over = self.is_full || self.groups.is_empty() || self.settings.delay <= now.since(self.since);
        !self.pending_events.is_empty() && is_over && !(self.groups.is_empty() && self.is_reading && !self.is_full)
    }

    fn send(&mut self) -> PusherAction {
        if SEQ_MAX < self.seq_next {
            return PusherAction::Close;
        }
        let (seq, events) = (self.seq_next, Arc::new(std::mem::take(&mut self.pending_events)));
        self.seq_next += 1;
        self.is_full = false;
        self.room = self.settings.room;
        let group =
            EventGroup { seq, events: Arc::clone(&events), covered: self.read, state: GroupState::Sent, failures: 0 };
        self.groups.push_back(group);
        PusherAction::Send { seq, events }
    }
}

#[cfg(test)]
#[path = "push/tests.rs"]
mod tests;
