//! A store of streams in memory, the reference for the other stores.

use super::{
    ConsumerRow, Contents, MissedRange, NewEvent, Policy, PostedEvent, StreamLimits, StreamStore, StreamStoreError,
    TrimReport,
};
use crate::event::model::{EventId, Json, ServerId};
use crate::event::stream::model::{PASSED_MAX, PageBudget, StreamEvent, StreamPage};
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType};
use crate::event::timestamp::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

/// Streams in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStreams {
    streams: BTreeMap<StreamName, MemoryStream>,
    posted: Vec<PostEntry>,
    posts: u64,
}

#[derive(Clone, Debug)]
struct PostEntry {
    /// The posted event. Its stamp is valid once it is claimed.
    posted: PostedEvent,
    claimed: Option<ServerId>,
    is_quarantined: bool,
}

#[derive(Clone, Debug, Default)]
struct MemoryStream {
    events: Vec<StreamEvent>,
    last: StreamId,
    covered: BTreeMap<ServerId, EventId>,
    consumers: BTreeMap<Consumer, ConsumerEntry>,
}

#[derive(Clone, Copy, Debug)]
struct ConsumerEntry {
    position: StreamId,
    lapsed: Option<MissedRange>,
    registered: Timestamp,
    last_request: Timestamp,
}

impl MemoryStream {
    fn bytes(&self) -> u64 {
        self.events.iter().map(|event| event.data.bytes().len() as u64).sum()
    }

    /// Returns the number of the oldest events that all consumers have accepted, or that exceed the limits.
    fn removable(&self, limits: &StreamLimits, now: Timestamp) -> usize {
        let active = self.consumers.values().filter(|entry| entry.lapsed.is_none());
        let floor = active.map(|entry| entry.position).min();
        let mut bytes = self.bytes();
        let is_removable = |event: &&StreamEvent| {
            let is_accepted = floor.is_some_and(|floor| event.id <= floor);
            let exceeds_bytes = limits.bytes.is_some_and(|max| max < bytes);
            bytes -= event.data.bytes().len() as u64;
            is_accepted || limits.policy == Policy::Lapse && (limits.is_old(now, event.time) || exceeds_bytes)
        };
        self.events.iter().take_while(is_removable).count()
    }

    /// Returns the position before the first retained event.
    fn start(&self) -> StreamId {
        let before = |event: &StreamEvent| StreamId::from_number(event.id.number() - 1).expect("less than an id");
        self.events.first().map_or(self.last, before)
    }

    fn row(&self, consumer: &Consumer, entry: &ConsumerEntry) -> ConsumerRow {
        let ConsumerEntry { position, lapsed, registered, last_request } = *entry;
        let lag = self.events.iter().filter(|event| position < event.id).count() as u64;
        ConsumerRow { consumer: consumer.clone(), position, lapsed, registered, last_request, lag }
    }

    fn active_consumer(&mut self, consumer: &Consumer) -> Result<&mut ConsumerEntry, StreamStoreError<Infallible>> {
        match self.consumers.get_mut(consumer) {
            None => Err(StreamStoreError::NotRegistered),
            Some(ConsumerEntry { lapsed: Some(missed), .. }) => Err(StreamStoreError::Lapsed(*missed)),
            Some(entry) => Ok(entry),
        }
    }
}

impl PostEntry {
    fn is_claimed_by(&self, server: ServerId) -> bool {
        self.claimed == Some(server) && !self.is_quarantined
    }
}

impl MemoryStreams {
    fn stream(&mut self, name: &StreamName) -> &mut MemoryStream {
        self.streams.entry(name.clone()).or_default()
    }

    /// Posts an event, as an application does within a transaction.
    pub fn post(&mut self, stream: &StreamName, kind: &StreamType, data: &Json) {
        self.posts += 1;
        let (stream, kind, data) = (stream.clone(), kind.clone(), data.clone());
        let posted = PostedEvent { number: self.posts, stream, kind, data, stamp: Timestamp::MIN };
        self.posted.push(PostEntry { posted, claimed: None, is_quarantined: false });
    }
}

impl StreamStore for MemoryStreams {
    type Error = Infallible;

    fn check(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn covered(&mut self, stream: &StreamName) -> Result<Vec<EventId>, Infallible> {
        Ok(self.stream(stream).covered.values().copied().collect())
    }

    fn add(
        &mut self,
        stream: &StreamName,
        events: &[NewEvent],
        covered: &[EventId],
        limits: &StreamLimits,
    ) -> Result<Vec<Option<StreamId>>, StreamStoreError<Infallible>> {
        let name = stream;
        let stream = self.stream(name);
        let mut new = stream.clone();
        let (mut ids, mut added_stamps) = (Vec::new(), Vec::new());
        let mut bytes = new.bytes();
        for NewEvent { kind, data, time, origin, stamp } in events {
            if new.covered.get(&origin.server).is_some_and(|covered| origin <= covered) {
                ids.push(None);
                continue;
            }
            if limits.is_blocked(bytes) {
                return Err(StreamStoreError::Full);
            }
            new.last = StreamId::from_number(new.last.number() + 1).ok_or(StreamStoreError::Full)?;
            new.covered.insert(origin.server, *origin);
            added_stamps.extend(stamp.map(|stamp| (origin.server, stamp)));
            let (kind, data) = (kind.clone(), data.clone());
            bytes += data.bytes().len() as u64;
            new.events.push(StreamEvent { id: new.last, kind, data, time: *time, origin: *origin });
            ids.push(Some(new.last));
        }
        for position in covered {
            let last = new.covered.entry(position.server).or_insert(*position);
            *last = (*position).max(*last);
        }
        *stream = new;
        let is_added = |post: &PostEntry| {
            post.posted.stream == *name
                && added_stamps.iter().any(|(server, stamp)| post.is_claimed_by(*server) && post.posted.stamp == *stamp)
        };
        self.posted.retain(|post| !is_added(post));
        Ok(ids)
    }

    fn read(
        &mut self,
        stream: &StreamName,
        after: StreamId,
        want: Option<&BTreeSet<StreamType>>,
        mut budget: PageBudget,
    ) -> Result<StreamPage, Infallible> {
        let stream = self.stream(stream);
        let (mut page, mut passed) = (StreamPage::new(after), 0);
        for event in stream.events.iter().filter(|event| after < event.id) {
            if want.is_none_or(|want| want.contains(&event.kind)) {
                if !page.take(event.clone(), &mut budget) {
                    return Ok(page);
                }
            } else if passed == PASSED_MAX {
                page.more_follows = true;
                return Ok(page);
            } else {
                passed += 1;
            }
            page.covered = event.id;
        }
        page.covered = page.covered.max(stream.last);
        Ok(page)
    }

    fn register(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        now: Timestamp,
    ) -> Result<Option<ConsumerRow>, Infallible> {
        let stream = self.stream(stream);
        let before = stream.consumers.get(consumer).map(|entry| stream.row(consumer, entry));
        let start = stream.start();
        let new = ConsumerEntry { position: start, lapsed: None, registered: now, last_request: now };
        let entry = stream.consumers.entry(consumer.clone()).or_insert(new);
        if entry.lapsed.take().is_some() {
            entry.position = start;
        }
        entry.last_request = now;
        Ok(before)
    }

    fn accept(
        &mut self,
        stream: &StreamName,
        consumer: &Consumer,
        accepted: StreamId,
        now: Timestamp,
    ) -> Result<StreamId, StreamStoreError<Infallible>> {
        let stream = self.stream(stream);
        let last = stream.last;
        let entry = stream.active_consumer(consumer)?;
        entry.position = accepted.min(last).max(entry.position);
        entry.last_request = now;
        Ok(entry.position)
    }

    fn reset(&mut self, stream: &StreamName, consumer: &Consumer, position: StreamId) -> Result<bool, Infallible> {
        let stream = self.stream(stream);
        let last = stream.last;
        let Some(entry) = stream.consumers.get_mut(consumer) else { return Ok(false) };
        (entry.position, entry.lapsed) = (position.min(last), None);
        Ok(true)
    }

    fn remove(&mut self, stream: &StreamName, consumer: &Consumer) -> Result<bool, Infallible> {
        Ok(self.stream(stream).consumers.remove(consumer).is_some())
    }

    fn consumers(&mut self, stream: &StreamName) -> Result<Vec<ConsumerRow>, Infallible> {
        let stream = self.stream(stream);
        Ok(stream.consumers.iter().map(|(consumer, entry)| stream.row(consumer, entry)).collect())
    }

    fn find(&mut self, stream: &StreamName, origin: EventId) -> Result<Option<StreamId>, Infallible> {
        Ok(self.stream(stream).events.iter().rfind(|event| event.origin == origin).map(|event| event.id))
    }

    fn claim(
        &mut self,
        server: ServerId,
        streams: &[StreamName],
        now: Timestamp,
        count_max: usize,
    ) -> Result<Vec<PostedEvent>, Infallible> {
        let of_server = self.posted.iter().filter(|post| post.claimed == Some(server));
        let last = of_server.map(|post| post.posted.stamp).max();
        let mut stamp = last.map_or(now, |last| now.max(last.following()));
        let is_free = |post: &&mut PostEntry| {
            post.claimed.is_none() && !post.is_quarantined && streams.contains(&post.posted.stream)
        };
        let mut claimed = Vec::new();
        for post in self.posted.iter_mut().filter(is_free).take(count_max) {
            (post.claimed, post.posted.stamp) = (Some(server), stamp);
            claimed.push(post.posted.clone());
            stamp = stamp.following();
        }
        Ok(claimed)
    }

    fn claimed(&mut self, server: ServerId, stream: &StreamName) -> Result<Vec<PostedEvent>, Infallible> {
        let claimed = self.posted.iter().filter(|post| post.is_claimed_by(server) && post.posted.stream == *stream);
        Ok(claimed.map(|post| post.posted.clone()).collect())
    }

    fn quarantine(&mut self, number: u64, _: &str) -> Result<(), Infallible> {
        self.posted.iter_mut().filter(|post| post.posted.number == number).for_each(|post| post.is_quarantined = true);
        Ok(())
    }

    fn contents(&mut self, stream: &StreamName) -> Result<Contents, Infallible> {
        let stream = self.stream(stream);
        Ok(Contents { last: stream.last, events: stream.events.len() as u64, bytes: stream.bytes() })
    }

    fn trim(
        &mut self,
        stream: &StreamName,
        limits: &StreamLimits,
        now: Timestamp,
        budget: usize,
    ) -> Result<TrimReport, Infallible> {
        let stream = self.stream(stream);
        let count = stream.removable(limits, now).min(budget);
        let removed: Vec<StreamEvent> = stream.events.drain(..count).collect();
        let mut report = TrimReport { removed: removed.len() as u64, missed: Vec::new() };
        for (consumer, entry) in &mut stream.consumers {
            let mut lost = removed.iter().filter(|event| entry.position < event.id);
            let Some(first) = lost.next() else { continue };
            let last = removed.last().expect("there is a first one").id;
            let missed = MissedRange { first: first.id, last, count: 1 + lost.count() as u64 };
            entry.lapsed = Some(entry.lapsed.map_or(missed, |before| before.merge(missed)));
            entry.position = last;
            report.missed.push((consumer.clone(), missed));
        }
        Ok(report)
    }
}
