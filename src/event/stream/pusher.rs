//! Pushes a stream to one reliable consumer over one connection (003, section 2.2.2). The pusher reads the wanted
//! events, groups them, and sends several groups at a time. Their sequence numbers begin at 0 and have no gap. Events
//! count as delivered when the consumer has accepted them, or does not want them.

use super::model::{PageBudget, StreamEvent, StreamPage};
use super::name::StreamId;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Last sequence number that fits the type on the wire.
const SEQ_MAX: u32 = i32::MAX as u32;
/// Wait before a group that the consumer did not accept is sent again. It doubles with each further failure.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Maximum of that wait.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Settings of the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum size of a group. A larger event has a group of its own.
    pub budget: PageBudget,
    /// Maximum number of sent groups that the consumer has not accepted.
    pub groups_max: usize,
    /// Maximum time that an event waits for further ones while the consumer has groups to accept. Without such groups,
    /// no event waits.
    pub delay: Duration,
}

/// An action that the pusher requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PusherAction {
    /// Read the wanted events after a position. The caller passes them to [`Pusher::on_page`].
    Read {
        /// Position after which events are wanted.
        after: StreamId,
        /// Maximum size of the read.
        budget: PageBudget,
    },
    /// Send this group. The caller passes the answer to [`Pusher::on_answer`].
    Send {
        /// Sequence number of the group.
        seq: u32,
        /// The events.
        events: Arc<Vec<StreamEvent>>,
    },
    /// Record that all events up to this position are delivered, or not wanted.
    Accept(StreamId),
    /// Close the connection, because no sequence number is left. The consumer must reconnect.
    Close,
}

#[derive(Debug)]
struct EventGroup {
    seq: u32,
    events: Arc<Vec<StreamEvent>>,
    /// Position up to which no wanted event follows its last event.
    covered: StreamId,
    state: GroupState,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupState {
    Sent,
    Accepted,
    /// The group is sent again at this time.
    Backoff(Instant),
}

/// Pusher for one reliable consumer over one connection.
#[derive(Debug)]
pub struct Pusher {
    settings: Settings,
    /// Sent groups in their order. The pusher removes the first one once it is accepted.
    groups: VecDeque<EventGroup>,
    seq_next: u32,
    /// Events of the next group.
    pending_events: Vec<StreamEvent>,
    budget: PageBudget,
    /// Time since which the first pending event waits.
    since: Instant,
    /// True if no further event fits the next group.
    is_full: bool,
    /// Position up to which all wanted events are pending or sent.
    read: StreamId,
    accepted: StreamId,
    is_reading: bool,
    /// True if there may be events after `read`.
    has_unread: bool,
}

impl Pusher {
    /// Creates a pusher that begins after the accepted position.
    pub fn new(settings: Settings, accepted: StreamId) -> Pusher {
        Pusher {
            settings,
            groups: VecDeque::new(),
            seq_next: 0,
            pending_events: Vec::new(),
            budget: settings.budget,
            since: Instant::ZERO,
            is_full: false,
            read: accepted,
            accepted,
            is_reading: false,
            has_unread: true,
        }
    }

    /// Returns the accepted position.
    pub fn accepted(&self) -> StreamId {
        self.accepted
    }

    /// Records that events were added to the stream.
    pub fn on_events_added(&mut self) {
        self.has_unread = true;
    }

    /// Handles the result of a read.
    pub fn on_page(&mut self, now: Instant, page: StreamPage) {
        self.is_reading = false;
        if self.pending_events.is_empty() {
            self.since = now;
        }
        for event in &page.events {
            if self.budget.take(event) {
                continue;
            }
            // An event that exceeds the maximum size has a group of its own.
            if !self.pending_events.is_empty() {
                (self.is_full, self.has_unread) = (true, true);
                return;
            }
            self.budget.events = 0;
        }
        let is_ended = page.more_follows && !page.events.is_empty();
        self.pending_events.extend(page.events);
        self.read = page.covered;
        self.is_full = is_ended || self.budget.events == 0;
        self.has_unread |= page.more_follows;
    }

    /// Records that a read failed. The pusher retries when events are added.
    pub fn on_read_failed(&mut self) {
        self.is_reading = false;
    }

    /// Handles the consumer's answer to a group. An answer to a group that was not sent, or is accepted, is ignored.
    pub fn on_answer(&mut self, now: Instant, seq: u32, is_accepted: bool) {
        let Some(group) = self.groups.iter_mut().find(|group| group.seq == seq && group.state == GroupState::Sent)
        else {
            return;
        };
        if is_accepted {
            group.state = GroupState::Accepted;
        } else {
            let wait = BACKOFF_MIN.saturating_mul(1 << group.failures.min(10)).min(BACKOFF_MAX);
            group.failures += 1;
            group.state = GroupState::Backoff(now + wait);
        }
    }

    /// Returns the next action.
    pub fn poll(&mut self, now: Instant) -> Option<PusherAction> {
        let before = self.accepted;
        while self.groups.front().is_some_and(|group| group.state == GroupState::Accepted) {
            let group = self.groups.pop_front().expect("there is a first one");
            self.accepted = group.covered;
        }
        // Unwanted events count as delivered once all events before them are delivered.
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
                return Some(PusherAction::Read { after: self.read, budget: self.budget });
            }
        }
        None
    }

    /// Returns the time of the next poll if nothing happens before.
    pub fn deadline(&self) -> Option<Instant> {
        let backoffs = self.groups.iter().filter_map(|group| match group.state {
            GroupState::Backoff(until) => Some(until),
            GroupState::Sent | GroupState::Accepted => None,
        });
        let is_waiting = !self.pending_events.is_empty() && self.groups.len() < self.settings.groups_max;
        let pending_events = is_waiting.then(|| self.since + self.settings.delay);
        backoffs.chain(pending_events).min()
    }

    /// Returns whether the pending events must be sent now.
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
        self.budget = self.settings.budget;
        let group =
            EventGroup { seq, events: Arc::clone(&events), covered: self.read, state: GroupState::Sent, failures: 0 };
        self.groups.push_back(group);
        PusherAction::Send { seq, events }
    }
}

#[cfg(test)]
#[path = "pusher/tests.rs"]
mod tests;
