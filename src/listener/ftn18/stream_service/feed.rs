//! Feeds streams from the journals of servers, and detects events that other peers have fed into a shared store.

use super::effect::{StreamEffect, StreamNotice};
use super::pushes::{PushMode, PushedConsumer};
use super::registration::PendingAdd;
use super::{FED_MAX, Feed, LIVE_WAITING, RETRY_TIME, StreamService, is_wanted, start};
use crate::event::follower::FetchedEvent;
use crate::event::model::{Event, EventId, Json, Payload, ServerId};
use crate::event::store::QueryPage;
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::StreamId;
use crate::event::stream::store::{NewEvent, Policy, StreamSettings, StreamStore, StreamStoreError};
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::session::CallResult;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Maximum number of fetched events that are remembered until all streams are fed with them.
const FETCHED_MAX: usize = 65_536;

impl StreamService {
    /// Records that the journal holds new events of this server.
    pub fn on_events_added(&mut self, server: ServerId) {
        for stream in &mut self.streams {
            let feed = Feed { covered: start(server), is_requested: false, has_unread: true };
            stream.feeds.entry(server).or_insert(feed).has_unread = true;
        }
    }

    /// Handles all events of one server that the journal has just stored, in their order. Feeds them at once to the
    /// streams that have all earlier events. The other streams are fed from the journal later.
    pub fn on_stored<S>(&mut self, store: &mut S, now: Instant, events: &[Event])
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let Some(server) = events.first().map(|event| event.id.server) else { return };
        for stream in 0..self.streams.len() {
            let feed = Feed { covered: start(server), is_requested: false, has_unread: true };
            let is_paused = self.streams[stream].paused_until.is_some();
            let feed = self.streams[stream].feeds.entry(server).or_insert(feed);
            if feed.has_unread || feed.is_requested || is_paused {
                feed.has_unread = true;
            } else {
                let fed = events.partition_point(|event| event.id <= feed.covered);
                self.feed(store, now, stream, &events[fed..], false);
            }
        }
    }

    /// Records events that were fetched rather than received from the bus. [`StreamService::on_events_added`] follows.
    pub fn on_fetched(&mut self, events: &[FetchedEvent]) {
        self.fetched.extend(events.iter().map(|fetched| (fetched.id, fetched.is_lost)));
        while FETCHED_MAX < self.fetched.len() {
            self.fetched.pop_first();
        }
    }

    /// Removes the fetched events with which all streams are fed.
    fn prune_fetched(&mut self, server: ServerId) {
        if self.fetched.is_empty() {
            return;
        }
        let feeds = self.streams.iter().filter_map(|stream| stream.feeds.get(&server));
        let Some(covered) = feeds.map(|feed| feed.covered).min() else { return };
        let passed: Vec<EventId> = self.fetched.range(start(server)..=covered).map(|(id, _)| *id).collect();
        for id in passed {
            self.fetched.remove(&id);
        }
    }

    /// Handles the journal's events after a position; `None` if the journal could not be read.
    pub fn on_found<S>(&mut self, store: &mut S, now: Instant, stream: usize, after: EventId, found: Option<QueryPage>)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let Some(feed) = self.streams[stream].feeds.get_mut(&after.server) else { return };
        feed.is_requested = false;
        if after != feed.covered {
            // The service was rolled back after the query.
            feed.has_unread = true;
            return;
        }
        let Some(QueryPage { events, more_follows }) = found else {
            feed.has_unread = true;
            self.pause(now, stream);
            return self.fail_unfed(stream, "the journal cannot be read");
        };
        self.feed(store, now, stream, &events, more_follows);
    }

    /// Adds the next events of a server to a stream. `more_follows` is true if the journal has later events.
    fn feed<S>(&mut self, store: &mut S, now: Instant, stream: usize, events: &[Event], more_follows: bool)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let Some(covered) = events.last().map(|event| event.id) else { return };
        if self.skip_fed(store, stream, covered) {
            return;
        }
        let settings = &self.streams[stream].settings;
        let (ids, new): (Vec<EventId>, Vec<NewEvent>) =
            events.iter().filter_map(|event| Some((event.id, new_event(settings, event)?))).unzip();
        // A nearly full stream takes a part of the events.
        let (mut count, mut position) = (new.len(), covered);
        let added = loop {
            match store.add(&settings.name, &new[..count], &[position], &settings.limits) {
                Err(StreamStoreError::Full) if 1 < count => {
                    count /= 2;
                    position = ids[count - 1];
                }
                added => break added,
            }
        };
        match added {
            Ok(numbers) => {
                let feed = self.streams[stream].feeds.get_mut(&covered.server).expect("the caller has found the feed");
                feed.covered = position;
                feed.has_unread |= more_follows || position < covered;
                if position < covered {
                    self.pause(now, stream);
                }
                for ((id, number), event) in ids.into_iter().zip(numbers).zip(new) {
                    self.outbox.on_fed(stream, event.stamp.filter(|_| id.server == self.server));
                    if let Some(number) = number.or_else(|| self.find(store, stream, id)) {
                        self.on_fed(stream, id, number, event);
                    }
                }
                if !self.settings.is_shared {
                    self.prune_fetched(covered.server);
                }
                self.schedule_trim(store, now, stream);
                if covered.server == self.server {
                    self.fail_missing(stream, position);
                }
            }
            Err(error) => self.on_add_failed(now, stream, covered.server, error),
        }
    }

    /// Schedules trimming at once if a size limit of the stream is exceeded.
    fn schedule_trim<S: StreamStore + ?Sized>(&mut self, store: &mut S, now: Instant, stream: usize) {
        let StreamSettings { name, limits, .. } = &self.streams[stream].settings;
        let Some(max) = limits.bytes.filter(|_| limits.policy == Policy::Lapse) else { return };
        // If the size cannot be read, a later run trims the stream.
        if store.contents(name).is_ok_and(|contents| max < contents.bytes) {
            self.trim_due = now;
        }
    }

    /// Schedules a retry to add events of this server, and fails the calls that wait for them.
    fn on_add_failed<E: fmt::Display>(
        &mut self,
        now: Instant,
        stream: usize,
        server: ServerId,
        error: StreamStoreError<E>,
    ) {
        if let Some(feed) = self.streams[stream].feeds.get_mut(&server) {
            feed.has_unread = true;
        }
        self.pause(now, stream);
        if let StreamStoreError::Store(error) = error {
            self.fail_unfed(stream, &error.to_string());
            self.effects.push_back(StreamEffect::Notice(StreamNotice::Failed(error.to_string())));
        }
    }

    /// Returns whether another peer that shares the store has fed the stream with the events of a server up to
    /// `covered`. If so, moves the feed there.
    fn skip_fed<S: StreamStore + ?Sized>(&mut self, store: &mut S, stream: usize, covered: EventId) -> bool {
        let served = &mut self.streams[stream];
        let (Some(feed), true) = (served.feeds.get_mut(&covered.server), self.settings.is_shared) else { return false };
        // A read error is detected when events are added.
        let positions = if covered.server == self.server { None } else { store.covered(&served.settings.name).ok() };
        let mut positions = positions.into_iter().flatten();
        let position = positions.find(|fed| fed.server == covered.server && covered <= *fed);
        if let Some(position) = position {
            (feed.covered, feed.has_unread) = (position, true);
        }
        position.is_some()
    }

    /// Looks up events fed in a turn that was rolled back. Another peer may have fed them meanwhile, under another id.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn find_fed<S: StreamStore + ?Sized>(&mut self, store: &mut S) -> Result<(), S::Error> {
        for (origin, stream) in self.fed.keys().copied().collect::<Vec<_>>() {
            match store.find(&self.streams[stream].settings.name, origin)? {
                Some(id) => self.fed.insert((origin, stream), id),
                None => self.fed.remove(&(origin, stream)),
            };
        }
        for stream in 0..self.streams.len() {
            let Some(position) = self.streams[stream].feeds.get(&self.server).map(|feed| feed.covered) else {
                continue;
            };
            let waiting = self.unfed.range((stream, start(self.server))..=(stream, position));
            for key in waiting.map(|(key, _)| *key).collect::<Vec<_>>() {
                if let Some(id) = store.find(&self.streams[stream].settings.name, key.1)?
                    && let Some(PendingAdd { from, .. }) = self.unfed.remove(&key)
                {
                    self.effects.push_back(StreamEffect::CallCompleted {
                        conn: from.conn,
                        call: from.call,
                        result: Ok(CallResult::Added(id)),
                    });
                }
            }
            self.fail_missing(stream, position);
        }
        Ok(())
    }

    /// Returns the stream id of an event of this server that another peer has fed, if a caller may wait for this id.
    fn find<S: StreamStore + ?Sized>(&self, store: &mut S, stream: usize, origin: EventId) -> Option<StreamId> {
        let is_awaited = self.unfed.contains_key(&(stream, origin)) || !self.registering.is_empty();
        let name = &self.streams[stream].settings.name;
        if origin.server == self.server && is_awaited { store.find(name, origin).ok().flatten() } else { None }
    }

    /// Fails all calls whose events are not in the stream although it is fed up to `position`. The journal lost or
    /// removed these events before.
    pub(super) fn fail_missing(&mut self, stream: usize, position: EventId) {
        let lost = self.unfed.range((stream, start(position.server))..=(stream, position)).map(|(key, _)| *key);
        for key in lost.collect::<Vec<_>>() {
            if let Some(PendingAdd { from, .. }) = self.unfed.remove(&key) {
                let text = format!("the event {} is registered, but is not in the stream", key.1);
                let result = Err(CallFault::new(FaultName::InternalError, text));
                self.effects.push_back(StreamEffect::CallCompleted { conn: from.conn, call: from.call, result });
            }
        }
    }

    /// Fails all calls whose events cannot be added to the stream now, so that no caller waits longer.
    pub(super) fn fail_unfed(&mut self, stream: usize, reason: &str) {
        let (failed, rest) = std::mem::take(&mut self.unfed).into_iter().partition(|((of, _), _)| *of == stream);
        self.unfed = rest;
        let failed: BTreeMap<(usize, EventId), PendingAdd> = failed;
        for ((_, id), PendingAdd { from, .. }) in failed {
            let text = format!("the event {id} is registered, and will be added to the stream later: {reason}");
            let result = Err(CallFault::new(FaultName::InternalError, text));
            self.effects.push_back(StreamEffect::CallCompleted { conn: from.conn, call: from.call, result });
        }
    }

    fn pause(&mut self, now: Instant, stream: usize) {
        self.streams[stream].paused_until = Some(now + RETRY_TIME);
    }

    fn on_fed(&mut self, stream: usize, origin: EventId, id: StreamId, NewEvent { kind, data, time, .. }: NewEvent) {
        if origin.server == self.server {
            match self.unfed.remove(&(stream, origin)) {
                Some(PendingAdd { from, .. }) => {
                    self.effects.push_back(StreamEffect::CallCompleted {
                        conn: from.conn,
                        call: from.call,
                        result: Ok(CallResult::Added(id)),
                    });
                }
                None if self.registering.is_empty() => {}
                None => {
                    self.fed.insert((origin, stream), id);
                    if FED_MAX < self.fed.len() {
                        self.fed.pop_first();
                    }
                }
            }
        }
        if self.settings.is_shared {
            // The poll of the shared store returns the event with those of other peers, in the order of the ids.
            self.shared_poll_due = Instant::ZERO;
        } else {
            self.on_new(stream, &StreamEvent { id, kind, data, time, origin });
        }
    }

    /// Notifies the pushes of a new event in the stream.
    fn on_new(&mut self, stream: usize, event: &StreamEvent) {
        let fetched = self.fetched.get(&event.origin).copied();
        for (key, push) in self.pushes.iter_mut().filter(|(_, push)| push.stream == stream) {
            match &mut push.mode {
                PushMode::Reliable(pusher) => pusher.on_events_added(),
                PushMode::Live(_) if !is_wanted(push.want.as_ref(), &event.kind) => continue,
                // The bus has lost the event, and the journal has it: a live consumer must detect a missing event.
                PushMode::Live(pusher) if fetched == Some(true) => pusher.on_loss(),
                // The event may precede the push: its server was unknown, or the event waited in the journal.
                PushMode::Live(_)
                    if (fetched == Some(false) || event.origin.server == self.server) && event.time < push.since =>
                {
                    continue;
                }
                PushMode::Live(pusher) => pusher.on_event(event.clone()),
            }
            self.awake.insert(*key);
        }
    }

    /// Notifies the pushes of events that any peer has added to a shared store.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn poll_shared_store<S: StreamStore + ?Sized>(&mut self, store: &mut S) -> Result<(), S::Error> {
        for number in 0..self.streams.len() {
            let name = self.streams[number].settings.name.clone();
            let last = store.contents(&name)?.last;
            let is_of_stream = |push: &&mut PushedConsumer| push.stream == number;
            if last <= self.streams[number].seen {
                continue;
            }
            if !self.pushes.values_mut().filter(is_of_stream).any(|push| matches!(push.mode, PushMode::Live(_))) {
                self.streams[number].seen = last;
                for (key, push) in self.pushes.iter_mut().filter(|(_, push)| push.stream == number) {
                    if let PushMode::Reliable(pusher) = &mut push.mode {
                        pusher.on_events_added();
                        self.awake.insert(*key);
                    }
                }
                continue;
            }
            let page = store.read(&name, self.streams[number].seen, None, LIVE_WAITING)?;
            self.streams[number].seen = page.covered;
            page.events.iter().for_each(|event| self.on_new(number, event));
            if page.more_follows {
                self.shared_poll_due = Instant::ZERO;
                return Ok(());
            }
        }
        let servers: BTreeSet<ServerId> = self.fetched.keys().map(|id| id.server).collect();
        servers.into_iter().for_each(|server| self.prune_fetched(server));
        Ok(())
    }
}

/// Converts an event to an event of the stream; returns `None` if it does not belong to the stream. The last subtype
/// must be a valid stream type. The payload must be JSON, or absent, which becomes null.
fn new_event(settings: &StreamSettings, event: &Event) -> Option<NewEvent> {
    let subtypes: Vec<_> = event.event_type.subtypes().collect();
    let last = subtypes.last()?;
    let is_added = subtypes.len() == 2 && subtypes[0] == settings.name.as_str();
    if !is_added && !settings.types.iter().any(|pattern| pattern.matches(&event.event_type)) {
        return None;
    }
    let data = match &event.payload {
        None => Json::from_bytes(Bytes::from_static(b"null")).expect("a JSON text"),
        Some(Payload::Json(json)) => json.clone(),
        Some(Payload::Binary { .. }) => return None,
    };
    let stamp = event.source_timestamp.filter(|_| is_added);
    Some(NewEvent { kind: last.parse().ok()?, data, time: event.timestamp, origin: event.id, stamp })
}
