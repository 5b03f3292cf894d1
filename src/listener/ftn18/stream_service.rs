//! The stream service executes calls about streams: it adds and numbers events, registers and polls consumers, and
//! pushes groups of events.
//!
//! The service first registers an added event in the journal of the peer, with the type `STREAM/TYPE`; the peer then
//! publishes it on the bus. The service *feeds* streams: it adds to them the events in the journals of this and of
//! other servers. So a stream has the events that were added to it at this peer and at any followed peer. The only I/O
//! here is that of the store. The shell begins and commits the store's transactions, and sends answers only after the
//! commit.

mod calls;
mod consumer_limit;
mod effect;
mod feed;
mod lapse_reports;
mod outbox;
mod pushes;
mod registration;
mod requests;
mod search;
mod store_faults;

pub use effect::{CallOrigin, ConnectionId, Settings, StreamEffect, StreamNotice};

use super::session::PushId;
use crate::event::model::{EventId, ServerId};
use crate::event::stream::model::PageBudget;
use crate::event::stream::name::{Consumer, StreamId, StreamType};
use crate::event::stream::store::{StreamSettings, StreamStore};
use crate::event::timestamp::Timestamp;
use crate::time::{ClockReading, Instant};
use lapse_reports::LapseReports;
use outbox::Outbox;
use pushes::{PushMode, PushedConsumer};
use registration::{JournalRegistration, PendingAdd};
use search::StreamSearch;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

/// Interval at which accepted events are removed.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of events removed at a time.
const TRIM_EVENTS: usize = 4096;
/// Delay before the service retries an operation that the store refused.
const RETRY_TIME: Duration = Duration::from_secs(1);
/// Maximum number of fed events of this server whose stream ids are remembered until their registration is confirmed.
const FED_MAX: usize = 65_536;
/// Polling interval of a shared store.
const SHARED_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number and bytes of events that wait for a live consumer.
const LIVE_WAITING: PageBudget = PageBudget { events: 10_000, bytes: 16 << 20 };

/// Progress of one stream in the journal of one server.
#[derive(Debug)]
struct Feed {
    /// Position in the journal up to which the stream is fed.
    covered: EventId,
    /// True while events after `covered` are requested from the journal.
    is_requested: bool,
    /// True if the journal may hold more events after `covered`.
    has_unread: bool,
}

#[derive(Debug)]
struct ServedStream {
    settings: StreamSettings,
    feeds: BTreeMap<ServerId, Feed>,
    /// Time before which the stream is not fed, because the store refused events.
    paused_until: Option<Instant>,
    /// Position in a shared store up to which the pushes were notified of events.
    seen: StreamId,
    /// True once all earlier claims of this server are registered, or their registration is in progress.
    is_checked: bool,
}

/// Service of the streams of a peer.
#[derive(Debug)]
pub struct StreamService {
    /// Id of the server of this peer.
    server: ServerId,
    settings: Settings,
    streams: Vec<ServedStream>,
    /// Pending registrations, by number.
    registering: BTreeMap<u64, JournalRegistration>,
    /// Number of the next registration.
    registration_next: u64,
    /// Calls whose events are registered, but not fed yet, by index of the stream and id.
    unfed: BTreeMap<(usize, EventId), PendingAdd>,
    /// Stream ids of fed events whose registration is not confirmed yet, by id and index of the stream.
    fed: BTreeMap<(EventId, usize), StreamId>,
    pushes: BTreeMap<(ConnectionId, PushId), PushedConsumer>,
    /// Connection and push of each reliable consumer.
    reliable_pushes: BTreeMap<(usize, Consumer), (ConnectionId, PushId)>,
    push_next: u64,
    outbox: Outbox,
    /// Searches that have found no event yet.
    searches: VecDeque<StreamSearch>,
    /// Events that were fetched rather than received from the bus; true if they were lost on the bus.
    fetched: BTreeMap<EventId, bool>,
    /// Time of the next poll of the shared store.
    shared_poll_due: Instant,
    /// Pushes whose pushers may have an action.
    awake: BTreeSet<(ConnectionId, PushId)>,
    trim_due: Instant,
    lapses: LapseReports,
    /// Time at which reads that the store refused are retried.
    retry_at: Option<Instant>,
    effects: VecDeque<StreamEffect>,
}

impl StreamService {
    /// Creates the service for these streams. `journal_ends` has the last event of each server in the journal.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn new<S: StreamStore + ?Sized>(
        store: &mut S,
        settings: Settings,
        server: ServerId,
        journal_ends: &[EventId],
    ) -> Result<StreamService, S::Error> {
        let mut streams = Vec::new();
        for settings in &settings.streams {
            let feed = |covered: EventId| Feed { covered, is_requested: false, has_unread: true };
            let mut feeds: BTreeMap<ServerId, Feed> =
                journal_ends.iter().map(|id| (id.server, feed(start(id.server)))).collect();
            feeds.extend(store.covered(&settings.name)?.into_iter().map(|position| (position.server, feed(position))));
            let seen = store.contents(&settings.name)?.last;
            streams.push(ServedStream {
                settings: settings.clone(),
                feeds,
                paused_until: None,
                seen,
                is_checked: false,
            });
        }
        Ok(StreamService {
            server,
            settings,
            streams,
            registering: BTreeMap::new(),
            registration_next: 0,
            unfed: BTreeMap::new(),
            fed: BTreeMap::new(),
            pushes: BTreeMap::new(),
            reliable_pushes: BTreeMap::new(),
            push_next: 0,
            outbox: Outbox::new(journal_ends.iter().find(|id| id.server == server).copied().unwrap_or(start(server))),
            searches: VecDeque::new(),
            fetched: BTreeMap::new(),
            shared_poll_due: Instant::ZERO,
            awake: BTreeSet::new(),
            trim_due: Instant::ZERO,
            lapses: LapseReports::default(),
            retry_at: None,
            effects: VecDeque::new(),
        })
    }

    /// Returns the next effect. The caller must have committed the store before.
    pub fn poll_effect(&mut self) -> Option<StreamEffect> {
        self.commit_outbox();
        self.lapses.settle();
        self.effects.pop_front().map(requests::into_answer)
    }

    /// Runs all actions that are due.
    pub fn run<S>(&mut self, store: &mut S, now: ClockReading)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        for (number, stream) in self.streams.iter_mut().enumerate() {
            if stream.paused_until.is_some_and(|until| now.instant < until) {
                continue;
            }
            stream.paused_until = None;
            for feed in stream.feeds.values_mut().filter(|feed| feed.has_unread && !feed.is_requested) {
                (feed.has_unread, feed.is_requested) = (false, true);
                self.effects.push_back(StreamEffect::Find { stream: number, after: feed.covered });
            }
        }
        for ((stream, consumer), missed) in self.lapses.take(now.instant) {
            let stream = self.streams[stream].settings.name.clone();
            self.effects.push_back(StreamEffect::Notice(StreamNotice::Lapsed { stream, consumer, missed }));
        }
        self.run_outbox(store, now);
        if self.settings.is_shared && self.shared_poll_due <= now.instant {
            self.shared_poll_due = now.instant + SHARED_POLL_INTERVAL;
            if let Err(error) = self.poll_shared_store(store) {
                self.shared_poll_due = now.instant + RETRY_TIME;
                self.effects.push_back(StreamEffect::Notice(StreamNotice::Failed(error.to_string())));
            }
        }
        if self.retry_at.is_some_and(|until| until <= now.instant) {
            self.retry_at = None;
            for (key, push) in &mut self.pushes {
                if let PushMode::Reliable(pusher) = &mut push.mode {
                    pusher.on_events_added();
                    self.awake.insert(*key);
                }
            }
        }
        let due = |push: &PushedConsumer| matches!(&push.mode, PushMode::Reliable(p) if p.deadline().is_some_and(|then| then <= now.instant));
        self.awake.extend(self.pushes.iter().filter(|(_, push)| due(push)).map(|(key, _)| *key));
        // A pusher that has only skipped unwanted events continues in the next turn.
        for key in std::mem::take(&mut self.awake) {
            self.run_push(store, now, key);
        }
        self.run_searches(store, Timestamp::from(now.wall));
        if self.trim_due <= now.instant {
            self.trim(store, now);
        }
    }

    fn trim<S>(&mut self, store: &mut S, now: ClockReading)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        self.trim_due = now.instant + TRIM_INTERVAL;
        for number in 0..self.streams.len() {
            let StreamSettings { name, limits, .. } = &self.streams[number].settings;
            let trimmed = match store.trim(name, limits, Timestamp::from(now.wall), TRIM_EVENTS) {
                Ok(trimmed) => trimmed,
                Err(error) => {
                    self.effects.push_back(StreamEffect::Notice(StreamNotice::Failed(error.to_string())));
                    continue;
                }
            };
            if trimmed.removed == TRIM_EVENTS as u64 {
                self.trim_due = now.instant;
            }
            for (consumer, missed) in trimmed.missed {
                let consumer = (number, consumer);
                // The consumer gets the error when it reconnects.
                if let Some((conn, push)) = self.reliable_pushes.get(&consumer).copied() {
                    self.end_push((conn, push));
                    self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: true });
                }
                self.lapses.new.push((consumer, missed));
            }
        }
    }

    /// Rolls back all work since the last poll of effects, because it could not be stored. Neither its results nor the
    /// events read since are sent. Consumers with pushes must reconnect.
    ///
    /// # Errors
    /// The store cannot be read; the caller must retry.
    pub fn roll_back<S: StreamStore + ?Sized>(&mut self, store: &mut S, reason: &str) -> Result<(), S::Error> {
        let done = self.restore_from_store(store, reason);
        if done.is_err() {
            (0..self.streams.len()).for_each(|stream| self.fail_unfed(stream, reason));
        }
        done
    }

    fn restore_from_store<S: StreamStore + ?Sized>(&mut self, store: &mut S, reason: &str) -> Result<(), S::Error> {
        let mut effects = std::mem::take(&mut self.effects);
        effects.retain(|effect| match effect {
            StreamEffect::Group { .. } => false,
            StreamEffect::Register { number, .. } => !self.cancel_claim(*number),
            _ => true,
        });
        self.outbox.roll_back();
        self.lapses.new.clear();
        effects.iter_mut().for_each(|effect| requests::fail(effect, reason));
        self.effects = effects;
        self.end_searches(reason, |_| true);
        for (conn, push) in self.pushes.keys().copied().collect::<Vec<_>>() {
            self.end_push((conn, push));
            self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: true });
        }
        for stream in &mut self.streams {
            stream.is_checked = false;
            let positions = store.covered(&stream.settings.name)?;
            for (server, feed) in &mut stream.feeds {
                let position = positions.iter().find(|position| position.server == *server);
                (feed.covered, feed.has_unread) = (position.copied().unwrap_or(start(*server)), true);
            }
            stream.seen = store.contents(&stream.settings.name)?.last;
        }
        // Events that the service feeds again get other ids.
        let own = self.server;
        let covered = |stream: usize| self.streams[stream].feeds.get(&own).map(|feed| feed.covered);
        self.fed.retain(|(origin, stream), _| covered(*stream).is_some_and(|covered| *origin <= covered));
        if self.settings.is_shared {
            self.find_fed(store)?;
        }
        Ok(())
    }

    /// Returns the time of the next [run](StreamService::run) if nothing happens before.
    pub fn deadline(&self) -> Instant {
        if !self.awake.is_empty() || !self.searches.is_empty() {
            return Instant::ZERO;
        }
        let push_deadline = |push: &PushedConsumer| match &push.mode {
            PushMode::Reliable(pusher) => pusher.deadline(),
            PushMode::Live(_) => None,
        };
        let pushes = self.pushes.values().filter_map(push_deadline);
        let paused_until = self.streams.iter().filter_map(|stream| stream.paused_until);
        let shared_poll = self.settings.is_shared.then_some(self.shared_poll_due);
        let lapses = self.lapses.deadline();
        let all =
            pushes.chain(paused_until).chain(shared_poll).chain(lapses).chain(self.retry_at).chain([self.outbox.due()]);
        all.fold(self.trim_due, Instant::min)
    }
}

/// Returns the position before the first event of a server.
fn start(server: ServerId) -> EventId {
    EventId { server, session: 0, instance: 0 }
}

/// Returns whether a consumer that wants these types wants events of this type.
fn is_wanted(want: Option<&BTreeSet<StreamType>>, kind: &StreamType) -> bool {
    want.is_none_or(|want| want.contains(kind))
}

#[cfg(test)]
#[path = "stream_service/tests.rs"]
mod tests;
