//! How streams are fed: from the journals of the servers, as far as each was looked through; and what a store that is shared gets from
//! other peers.

use super::{
    FED_MAX, Feed, LIVE_WAITING, PendingAdd, PushMode, PushedConsumer, RETRY_TIME, StreamService, is_wanted, start,
};
use crate::event::follow::FetchedEvent;
use crate::event::model::{Event, EventId, Json, Payload, ServerId};
use crate::event::store::QueryPage;
use crate::event::stream::model::StreamEvent;
use crate::event::stream::name::StreamId;
use crate::event::stream::store::{NewEvent, Policy, StreamSettings, StreamStore, StreamStoreError};
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::session::CallResult;
use crate::listener::ftn18::stream_service::effect::{StreamEffect, StreamNotice};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Fetched events that are remembered until they stand in all streams.
const FETCHED_MAX: usize = 65_536;

impl StreamService {
    /// The journal holds events of this server that it did not hold before.
    pub fn on_events_added(&mut self, server: ServerId) {
        for stream in &mut self.streams {
            let feed = Feed { covered: start(server), is_asked: false, has_news: true };
            stream.feeds.entry(server).or_insert(feed).has_news = true;
        }
    }

    /// These events did not come by the bus as they were registered: they are fetched, and news follow.
    pub fn on_fetched(&mut self, events: &[FetchedEvent]) {
        self.fetched.extend(events.iter().map(|fetched| (fetched.id, fetched.is_lost)));
        while FETCHED_MAX < self.fetched.len() {
            self.fetched.pop_first();
        }
    }

    /// What was fetched and stands in all streams is remembered no longer.
    fn prune_fetched(&mut self, server: ServerId) {
        if self.fetched.is_empty() {
            return;
        }
        let feeds = self.streams.iter().filter_map(|stream| stream.feeds.get(&server));
        let Some(done) = feeds.map(|feed| feed.covered).min() else { return };
        let done: Vec<EventId> = self.fetched.range(start(server)..=done).map(|(id, _)| *id).collect();
        for id in done {
            self.fetched.remove(&id);
        }
    }

    /// What the journal holds behind a place; `None` if it could not be looked at.
    pub fn on_found<S>(&mut self, store: &mut S, now: Instant, stream: usize, after: EventId, found: Option<QueryPage>)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let Some(feed) = self.streams[stream].feeds.get_mut(&after.server) else { return };
        feed.is_asked = false;
        if after != feed.covered {
            // It was asked before something was taken back.
            feed.has_news = true;
            return;
        }
        let Some(QueryPage { events, more_follows }) = found else {
            feed.has_news = true;
            self.rest(now, stream);
            return self.fail_unfed(stream, "the journal cannot be read");
        };
        let Some(covered) = events.last().map(|event| event.id) else { return };
        if self.skip_fed(store, stream, covered) {
            return;
        }
        let settings = &self.streams[stream].settings;
        let (ids, new): (Vec<EventId>, Vec<NewEvent>) =
            events.iter().filter_map(|event| Some((event.id, new_event(settings, event)?))).unzip();
        // What a stream that is nearly full does not take as a whole, it takes in part.
        let (mut count, mut place) = (new.len(), covered);
        let added = loop {
            match store.add(&settings.name, &new[..count], &[place], &settings.limits) {
                Err(StreamStoreError::Full) if 1 < count => {
                    count /= 2;
                    place = ids[count - 1];
                }
                added => break added,
            }
        };
        match added {
            Ok(numbers) => {
                let feed = self.streams[stream].feeds.get_mut(&after.server).expect("it was there just now");
                feed.covered = place;
                feed.has_news |= more_follows || place < covered;
                if place < covered {
                    self.rest(now, stream);
                }
                for ((id, number), event) in ids.into_iter().zip(numbers).zip(new) {
                    self.outbox.on_fed(stream, event.stamp.filter(|_| id.server == self.server));
                    if let Some(number) = number.or_else(|| self.find(store, stream, id)) {
                        self.on_fed(stream, id, number, event);
                    }
                }
                if !self.settings.is_shared {
                    self.prune_fetched(after.server);
                }
                let StreamSettings { name, limits, .. } = &self.streams[stream].settings;
                let is_limited = limits.policy == Policy::Lapse && limits.bytes.is_some();
                // What cannot be read is trimmed later.
                let bytes = if is_limited { store.contents(name).map_or(0, |contents| contents.bytes) } else { 0 };
                if limits.bytes.is_some_and(|max| max < bytes) {
                    self.trim_due = now;
                }
                if after.server == self.server {
                    self.fail_missing(stream, place);
                }
            }
            Err(refused) => {
                let feed = self.streams[stream].feeds.get_mut(&after.server).expect("it was there just now");
                feed.has_news = true;
                self.rest(now, stream);
                if let StreamStoreError::Store(error) = refused {
                    self.fail_unfed(stream, &error.to_string());
                    self.effects.push_back(StreamEffect::StreamNotice(StreamNotice::Failed(error.to_string())));
                }
            }
        }
    }

    /// Whether another peer that shares the store has looked through the journal of a server up to there, so that nothing is left to be done.
    fn skip_fed<S: StreamStore + ?Sized>(&mut self, store: &mut S, stream: usize, covered: EventId) -> bool {
        let of = &mut self.streams[stream];
        let (Some(feed), true) = (of.feeds.get_mut(&covered.server), self.settings.is_shared) else { return false };
        // What cannot be read now is found out when it is added.
        let places = if covered.server == self.server { None } else { store.covered(&of.settings.name).ok() };
        let place = places.into_iter().flatten().find(|place| place.server == covered.server && covered <= *place);
        if let Some(place) = place {
            (feed.covered, feed.has_news) = (place, true);
        }
        place.is_some()
    }

    /// After a turn that was taken back: what was fed in it another peer may have fed meanwhile, under another id.
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
            let Some(place) = self.streams[stream].feeds.get(&self.server).map(|feed| feed.covered) else { continue };
            let waiting = self.unfed.range((stream, start(self.server))..=(stream, place));
            for key in waiting.map(|(key, _)| *key).collect::<Vec<_>>() {
                if let Some(id) = store.find(&self.streams[stream].settings.name, key.1)?
                    && let Some(PendingAdd { conn, call, .. }) = self.unfed.remove(&key)
                {
                    self.effects.push_back(StreamEffect::CallResult { conn, call, done: Ok(CallResult::Added(id)) });
                }
            }
            self.fail_missing(stream, place);
        }
        Ok(())
    }

    /// The id of an event of this server that another peer has fed, if somebody may wait for it.
    fn find<S: StreamStore + ?Sized>(&self, store: &mut S, stream: usize, origin: EventId) -> Option<StreamId> {
        let is_awaited = self.unfed.contains_key(&(stream, origin)) || !self.registering.is_empty();
        let name = &self.streams[stream].settings.name;
        if origin.server == self.server && is_awaited { store.find(name, origin).ok().flatten() } else { None }
    }

    /// What was added up to there and does not stand in the stream by now never will: the journal lost it, or removed it before.
    pub(super) fn fail_missing(&mut self, stream: usize, place: EventId) {
        let lost = self.unfed.range((stream, start(place.server))..=(stream, place)).map(|(key, _)| *key);
        for key in lost.collect::<Vec<_>>() {
            if let Some(PendingAdd { conn, call, .. }) = self.unfed.remove(&key) {
                let text = format!("the event {} is registered, but does not stand in the stream", key.1);
                let done = Err(CallFault::new(FaultName::InternalError, text));
                self.effects.push_back(StreamEffect::CallResult { conn, call, done });
            }
        }
    }

    /// What was added cannot be put into the stream now: nobody waits until it can.
    pub(super) fn fail_unfed(&mut self, stream: usize, why: &str) {
        let (failed, rest) = std::mem::take(&mut self.unfed).into_iter().partition(|((of, _), _)| *of == stream);
        self.unfed = rest;
        let failed: BTreeMap<(usize, EventId), PendingAdd> = failed;
        for ((_, id), PendingAdd { conn, call, .. }) in failed {
            let text = format!("the event {id} is registered, and will stand in the stream later: {why}");
            let done = Err(CallFault::new(FaultName::InternalError, text));
            self.effects.push_back(StreamEffect::CallResult { conn, call, done });
        }
    }

    fn rest(&mut self, now: Instant, stream: usize) {
        self.streams[stream].paused_until = Some(now + RETRY_TIME);
    }

    fn on_fed(&mut self, stream: usize, origin: EventId, id: StreamId, NewEvent { kind, data, time, .. }: NewEvent) {
        if origin.server == self.server {
            match self.unfed.remove(&(stream, origin)) {
                Some(PendingAdd { conn, call, .. }) => {
                    self.effects.push_back(StreamEffect::CallResult { conn, call, done: Ok(CallResult::Added(id)) });
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
            // It is found with those of others, in the order of the ids.
            self.shared_poll_due = Instant::ZERO;
        } else {
            self.on_new(stream, &StreamEvent { id, kind, data, time, origin });
        }
    }

    /// The stream has one more event.
    fn on_new(&mut self, stream: usize, event: &StreamEvent) {
        let fetched = self.fetched.get(&event.origin).copied();
        for (place, push) in self.pushes.iter_mut().filter(|(_, push)| push.stream == stream) {
            match &mut push.mode {
                PushMode::Reliable(pusher) => pusher.on_events_added(),
                PushMode::Live(_) if !is_wanted(push.want.as_ref(), &event.kind) => continue,
                // The bus has lost it, and the journal has it: a live consumer is told that something is missing.
                PushMode::Live(pusher) if fetched == Some(true) => pusher.on_loss(),
                // It may have been registered long before anybody heard of its server, or have waited in the journal.
                PushMode::Live(_)
                    if (fetched == Some(false) || event.origin.server == self.server) && event.time < push.since =>
                {
                    continue;
                }
                PushMode::Live(pusher) => pusher.on_event(event.clone()),
            }
            self.awake.insert(*place);
        }
    }

    /// What others have added to a store that is shared.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn poll_shared_store<S: StreamStore + ?Sized>(&mut self, store: &mut S) -> Result<(), S::Error> {
        for number in 0..self.streams.len() {
            let name = self.streams[number].settings.name.clone();
            let last = store.contents(&name)?.last;
            let of_stream = |push: &&mut PushedConsumer| push.stream == number;
            if last <= self.streams[number].seen {
                continue;
            }
            if !self.pushes.values_mut().filter(of_stream).any(|push| matches!(push.mode, PushMode::Live(_))) {
                self.streams[number].seen = last;
                for (place, push) in self.pushes.iter_mut().filter(|(_, push)| push.stream == number) {
                    if let PushMode::Reliable(pusher) = &mut push.mode {
                        pusher.on_events_added();
                        self.awake.insert(*place);
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

/// What an event is in a stream, if it stands there: its last subtype must be a type that streams have, and its payload JSON, or nothing, which is null.
fn new_event(settings: &StreamSettings, event: &Event) -> Option<NewEvent> {
    let subtypes: Vec<_> = event.event_type.subtypes().collect();
    let last = subtypes.last()?;
    let is_own = subtypes.len() == 2 && subtypes[0] == settings.name.as_str();
    if !is_own && !settings.types.iter().any(|pattern| pattern.matches(&event.event_type)) {
        return None;
    }
    let data = match &event.payload {
        None => Json::from_bytes(Bytes::from_static(b"null")).expect("a JSON text"),
        Some(Payload::Json(json)) => json.clone(),
        Some(Payload::Binary { .. }) => return None,
    };
    let stamp = event.source_timestamp.filter(|_| is_own);
    Some(NewEvent { kind: last.parse().ok()?, data, time: event.timestamp, origin: event.id, stamp })
}
