//! The stream service executes calls about streams: it adds and numbers events, registers and polls consumers, and
//! pushes groups.
//!
//! An added event is first registered in the journal of the peer, with the type `STREAM/TYPE`, and then published on
//! the bus. Streams are fed from the journals of this and of other servers. So a stream holds what was added to it at
//! any peer that is followed. There is no I/O here but that of the store. The shell begins and commits its
//! transactions, and sends answers only after the commit.

mod effect;
mod faults;
mod feed;
mod outbox;
mod requests;
mod search;

pub use effect::{ConnectionId, Settings, StreamEffect, StreamNotice};
use faults::{internal, refused};
use outbox::Outbox;
use search::{SearchRequester, StreamSearch};

use super::call::{Call, Version};
use super::fault::{CallFault, FaultName};
use super::message::ENVELOPE_BYTES;
use super::session::{CallId, CallResult, PushId};
use crate::event::model::{EventId, Json, Payload, Registration, ServerId};
use crate::event::refusal::{EventRefusal, EventRefusalKind};
use crate::event::stream::live_pusher::{self, LivePusher};
use crate::event::stream::model::{LIST_EVENTS_MAX, PageBudget};
use crate::event::stream::name::{Consumer, StreamId, StreamName, StreamType, UserName};
use crate::event::stream::push::{self, Pusher, PusherAction};
use crate::event::stream::store::{ConsumerRow, MissedRange, PostedEvent, StreamSettings, StreamStore};
use crate::event::timestamp::Timestamp;
use crate::subject::event_type::EventType;
use crate::time::{ClockReading, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which accepted events are removed.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of events removed at a time.
const TRIM_EVENTS: usize = 4096;
/// Delay before an operation that the store refused is retried.
const RETRY_TIME: Duration = Duration::from_secs(1);
/// Maximum number of fed events of this server whose ids are remembered until the registration is confirmed.
const FED_MAX: usize = 65_536;
/// Maximum number of consumers that are pushed to over one connection.
const PUSHES_MAX: usize = 16;
/// Polling interval of a shared store.
const SHARED_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Assumed maximum difference of the clocks of two hosts, in microseconds.
const CLOCKS_MICROS: i64 = 1_000_000;
/// Maximum number of consumers of a stream: all of them are examined once a second. With the longest names they fit a
/// frame.
const CONSUMERS_MAX: usize = 10_000;
/// Maximum bytes of a group, unless it is one event. Several groups of each consumer wait for slow clients.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// Maximum number of groups that a live consumer has not answered.
const LIVE_GROUPS_MAX: usize = 2;
/// Maximum number and bytes of events that wait for a live consumer.
const LIVE_WAITING: PageBudget = PageBudget { events: 10_000, bytes: 16 << 20 };

/// Progress of one stream in the journal of one server.
#[derive(Debug)]
struct Feed {
    covered: EventId,
    is_asked: bool,
    /// True if the journal may hold more events behind `covered`.
    has_news: bool,
}

#[derive(Debug)]
struct ServedStream {
    settings: StreamSettings,
    feeds: BTreeMap<ServerId, Feed>,
    /// Time before which the stream is not fed, because the store refused it.
    paused_until: Option<Instant>,
    /// Position in a shared store behind which events are new.
    seen: StreamId,
    /// True once all earlier claims of this server are known to be registered or are being registered.
    is_checked: bool,
}

#[derive(Debug)]
enum PushMode {
    Reliable(Pusher),
    Live(LivePusher),
}

#[derive(Debug)]
struct PushedConsumer {
    stream: usize,
    consumer: Consumer,
    want: Option<BTreeSet<StreamType>>,
    version: Version,
    /// Time from which a live consumer wants events.
    since: Timestamp,
    mode: PushMode,
}

/// Events that consumers missed and that are not reported yet. They are reported at once, and then once a second.
#[derive(Debug, Default)]
struct LapseReports {
    /// Missed in this turn, which may be rolled back.
    new: Vec<((usize, Consumer), MissedRange)>,
    /// Missed according to the store.
    stored: BTreeMap<(usize, Consumer), MissedRange>,
    /// Time before which nothing is reported.
    due: Instant,
}

impl LapseReports {
    fn settle(&mut self) {
        for (who, missed) in self.new.drain(..) {
            let before = self.stored.remove(&who);
            self.stored.insert(who, before.map_or(missed, |before| before.and(missed)));
        }
    }

    /// Returns the events to report now.
    fn take(&mut self, now: Instant) -> BTreeMap<(usize, Consumer), MissedRange> {
        if self.stored.is_empty() || now < self.due {
            return BTreeMap::new();
        }
        self.due = now + TRIM_INTERVAL;
        std::mem::take(&mut self.stored)
    }
}

/// A caller that has added an event and is not answered yet.
#[derive(Clone, Copy, Debug)]
struct PendingAdd {
    conn: ConnectionId,
    call: CallId,
    /// Bytes of the data.
    bytes: u64,
}

/// The origin of a registration.
#[derive(Debug)]
enum JournalRegistration {
    /// A call, and the index of its stream.
    Call(PendingAdd, usize),
    /// Posted events, for which no caller waits.
    PostedEvent(Vec<PostedEvent>),
}

/// Executes calls about streams.
#[derive(Debug)]
pub struct StreamService {
    /// Id of the local server, whose events are registered here.
    server: ServerId,
    settings: Settings,
    streams: Vec<ServedStream>,
    /// Pending registrations, by number.
    registering: BTreeMap<u64, JournalRegistration>,
    numbers: u64,
    /// Calls whose events are registered and not fed yet.
    unfed: BTreeMap<(usize, EventId), PendingAdd>,
    /// Events that are fed, and whose registration is not confirmed yet.
    fed: BTreeMap<(EventId, usize), StreamId>,
    pushes: BTreeMap<(ConnectionId, PushId), PushedConsumer>,
    /// Connection and push of each reliable consumer.
    places: BTreeMap<(usize, Consumer), (ConnectionId, PushId)>,
    push_next: u64,
    outbox: Outbox,
    /// Searches that have found nothing yet.
    searches: VecDeque<StreamSearch>,
    /// Events that were fetched rather than received from the bus; true if they were lost on the bus.
    fetched: BTreeMap<EventId, bool>,
    /// Time of the next poll of the shared store.
    shared_poll_due: Instant,
    /// Pushes that may have an action to do.
    awake: BTreeSet<(ConnectionId, PushId)>,
    trim_due: Instant,
    lapses: LapseReports,
    /// Time to retry what the store refused.
    retry: Option<Instant>,
    effects: VecDeque<StreamEffect>,
}

impl StreamService {
    /// Creates the service for these streams. `held` is the last event of each server that the journal holds.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn new<S: StreamStore + ?Sized>(
        store: &mut S,
        settings: Settings,
        server: ServerId,
        held: &[EventId],
    ) -> Result<StreamService, S::Error> {
        let mut streams = Vec::new();
        for settings in &settings.streams {
            let feed = |covered: EventId| Feed { covered, is_asked: false, has_news: true };
            let mut feeds: BTreeMap<ServerId, Feed> =
                held.iter().map(|id| (id.server, feed(start(id.server)))).collect();
            feeds.extend(store.covered(&settings.name)?.into_iter().map(|place| (place.server, feed(place))));
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
            numbers: 0,
            unfed: BTreeMap::new(),
            fed: BTreeMap::new(),
            pushes: BTreeMap::new(),
            places: BTreeMap::new(),
            push_next: 0,
            outbox: Outbox::new(held.iter().find(|id| id.server == server).copied().unwrap_or(start(server))),
            searches: VecDeque::new(),
            fetched: BTreeMap::new(),
            shared_poll_due: Instant::ZERO,
            awake: BTreeSet::new(),
            trim_due: Instant::ZERO,
            lapses: LapseReports::default(),
            retry: None,
            effects: VecDeque::new(),
        })
    }

    /// Returns the next effect. The caller must have committed the store before.
    pub fn poll_effect(&mut self) -> Option<StreamEffect> {
        self.commit_outbox();
        self.lapses.settle();
        self.effects.pop_front().map(requests::into_answer)
    }

    /// Handles a call about the stream with this index.
    pub fn on_call<S>(
        &mut self,
        store: &mut S,
        now: ClockReading,
        from: (ConnectionId, CallId),
        stream: usize,
        user: UserName,
        what: Call,
    ) where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let (conn, call) = from;
        let name = self.streams[stream].settings.name.clone();
        let time = Timestamp::from(now.wall);
        let who = |component| Consumer { user, component };
        let done = match what {
            Call::Ping { .. } => unreachable!("a ping is answered where it comes in"),
            Call::Add { kind, data } => return self.add(store, from, stream, &kind, data),
            Call::Register(component) if component.is_live() => Err(CallFault::new(
                FaultName::LiveNotAllowed,
                "LIVE is not registered: call readyToReceive or pollEvents",
            )),
            Call::Register(component) => register(store, &name, &who(component), time).map(|_| CallResult::Accepted),
            Call::Poll { component, last, want, answer_bytes_max } => {
                let bytes = answer_bytes_max - ENVELOPE_BYTES;
                let room = PageBudget { events: LIST_EVENTS_MAX, bytes };
                let requester = SearchRequester::Call(conn, call, who(component));
                let search = StreamSearch::new(requester, stream, last.unwrap_or(StreamId::START), want, room);
                return self.search(store, search, time);
            }
            Call::Ready { component, want, version } => {
                let consumer = who(component);
                self.ready(store, now, conn, (stream, consumer, want, version)).map(|()| CallResult::Accepted)
            }
        };
        self.effects.push_back(StreamEffect::CallResult { conn, call, done });
    }

    fn add<S: StreamStore + ?Sized>(
        &mut self,
        store: &mut S,
        (conn, call): (ConnectionId, CallId),
        stream: usize,
        kind: &StreamType,
        data: Json,
    ) where
        S::Error: fmt::Display,
    {
        let settings = &self.streams[stream].settings;
        let is_full = match settings.limits.may_block() {
            true => store
                .contents(&settings.name)
                .map(|contents| settings.limits.is_blocked(contents.bytes + self.bytes_under_way(stream))),
            false => store.check().map(|()| false),
        };
        let done = match is_full {
            Err(error) => Err(internal(error)),
            Ok(true) => {
                let text = format!("the stream {} is full: a consumer has to accept events first", settings.name);
                Err(CallFault::new(FaultName::DefenseRejected, text))
            }
            Ok(false) => {
                let subtypes = [settings.name.as_str(), kind.as_str()];
                let event_type = EventType::new(subtypes).expect("two short words");
                let number = self.numbers;
                self.numbers += 1;
                let caller = PendingAdd { conn, call, bytes: data.bytes().len() as u64 };
                let payload = Some(Payload::Json(data));
                self.registering.insert(number, JournalRegistration::Call(caller, stream));
                let registrations = vec![Registration { event_type, source_timestamp: None, payload }];
                return self.effects.push_back(StreamEffect::Register { number, registrations });
            }
        };
        self.effects.push_back(StreamEffect::CallResult { conn, call, done });
    }

    /// Returns the bytes of added events that are not in the stream yet.
    fn bytes_under_way(&self, stream: usize) -> u64 {
        let registering = self.registering.values().filter_map(|registering| match registering {
            JournalRegistration::Call(caller, of) if *of == stream => Some(caller.bytes),
            JournalRegistration::Call(..) | JournalRegistration::PostedEvent(_) => None,
        });
        let unfed = self.unfed.iter().filter(|((of, _), _)| *of == stream).map(|(_, caller)| caller.bytes);
        registering.chain(unfed).sum()
    }

    /// Takes the result of a registration.
    pub fn on_registered(&mut self, number: u64, registered: Result<EventId, EventRefusal>) {
        match (self.registering.remove(&number), registered) {
            (None, _) => return,
            (Some(JournalRegistration::PostedEvent(posted)), Err(refusal)) => self.outbox.on_refused(posted, refusal),
            (Some(JournalRegistration::PostedEvent(_)), Ok(id)) => {
                self.outbox.on_registered();
                self.fed = self.fed.split_off(&(id, 0));
            }
            (Some(JournalRegistration::Call(PendingAdd { conn, call, .. }, _)), Err(refusal)) => {
                let name = match refusal.kind {
                    EventRefusalKind::Busy => FaultName::DefenseRejected,
                    EventRefusalKind::Invalid => FaultName::InvalidRequest,
                    EventRefusalKind::Unavailable | EventRefusalKind::Full | EventRefusalKind::Stopping => {
                        FaultName::InternalError
                    }
                };
                let done = Err(CallFault::new(name, refusal.text));
                self.effects.push_back(StreamEffect::CallResult { conn, call, done });
            }
            (Some(JournalRegistration::Call(caller, stream)), Ok(id)) => {
                match self.fed.remove(&(id, stream)) {
                    Some(id) => {
                        let PendingAdd { conn, call, .. } = caller;
                        self.effects.push_back(StreamEffect::CallResult {
                            conn,
                            call,
                            done: Ok(CallResult::Added(id)),
                        });
                    }
                    None => {
                        self.unfed.insert((stream, id), caller);
                    }
                }
                if let Some(feed) = self.streams[stream].feeds.get(&self.server) {
                    self.fail_missing(stream, feed.covered);
                }
                // Events arrive in their order, so no call waits for earlier ones.
                self.fed = self.fed.split_off(&(id, 0));
            }
        }
        if self.registering.is_empty() {
            self.fed.clear();
        }
    }

    /// Handles a consumer's answer to a group.
    pub fn on_answer(&mut self, now: Instant, conn: ConnectionId, push: PushId, seq: u32, is_accepted: bool) {
        let Some(of) = self.pushes.get_mut(&(conn, push)) else { return };
        match &mut of.mode {
            PushMode::Reliable(pusher) => pusher.on_answer(now, seq, is_accepted),
            PushMode::Live(pusher) => pusher.on_answer(seq),
        }
        self.awake.insert((conn, push));
    }

    /// Handles the end of a connection. Its calls are completed, but not answered.
    pub fn on_close(&mut self, conn: ConnectionId) {
        self.pushes_of(conn).collect::<Vec<_>>().into_iter().for_each(|place| self.end_push(place));
        self.searches.retain(|search| !matches!(search.requester, SearchRequester::Call(of, ..) if of == conn));
    }

    fn pushes_of(&self, conn: ConnectionId) -> impl Iterator<Item = (ConnectionId, PushId)> {
        self.pushes.range((conn, PushId(0))..=(conn, PushId(u64::MAX))).map(|(place, _)| *place)
    }

    fn end_push(&mut self, place: (ConnectionId, PushId)) {
        let Some(push) = self.pushes.remove(&place) else { return };
        self.awake.remove(&place);
        let key = (push.stream, push.consumer);
        if self.places.get(&key) == Some(&place) {
            self.places.remove(&key);
        }
    }

    fn ready<S>(
        &mut self,
        store: &mut S,
        now: ClockReading,
        conn: ConnectionId,
        (stream, consumer, want, version): (usize, Consumer, Option<BTreeSet<StreamType>>, Version),
    ) -> Result<(), CallFault>
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        if PUSHES_MAX <= self.pushes_of(conn).count() {
            let text = format!("{PUSHES_MAX} consumers are pushed to over this connection: open another one");
            return Err(CallFault::new(FaultName::DefenseRejected, text));
        }
        let bytes = version.push_bytes_max().min(GROUP_BYTES_MAX) - ENVELOPE_BYTES;
        let room = PageBudget { events: LIST_EVENTS_MAX, bytes };
        let mode = if consumer.component.is_live() {
            PushMode::Live(LivePusher::new(live_pusher::Settings {
                room,
                groups_max: LIVE_GROUPS_MAX,
                waiting: LIVE_WAITING,
            }))
        } else {
            let name = &self.streams[stream].settings.name;
            let time = Timestamp::from(now.wall);
            let accepted =
                store.accept(name, &consumer, StreamId::START, time).map_err(|why| refused(&consumer, why))?;
            // A new push of the consumer replaces an earlier one, perhaps over a dead connection.
            if let Some((conn, push)) = self.places.get(&(stream, consumer.clone())).copied() {
                self.end_push((conn, push));
                self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: false });
            }
            let (groups_max, delay) = (self.settings.groups_max, self.settings.delay);
            PushMode::Reliable(Pusher::new(push::Settings { room, groups_max, delay }, accepted))
        };
        let place = (conn, PushId(self.push_next));
        self.push_next += 1;
        if matches!(mode, PushMode::Reliable(_)) {
            self.places.insert((stream, consumer.clone()), place);
        }
        let since = live_since(now);
        self.pushes.insert(place, PushedConsumer { stream, consumer, want, version, since, mode });
        self.awake.insert(place);
        Ok(())
    }

    /// Does what is due or has become possible.
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
            for feed in stream.feeds.values_mut().filter(|feed| feed.has_news && !feed.is_asked) {
                (feed.has_news, feed.is_asked) = (false, true);
                self.effects.push_back(StreamEffect::Find { stream: number, after: feed.covered });
            }
        }
        for ((stream, consumer), missed) in self.lapses.take(now.instant) {
            let stream = self.streams[stream].settings.name.clone();
            self.effects.push_back(StreamEffect::StreamNotice(StreamNotice::Lapsed { stream, consumer, missed }));
        }
        self.run_outbox(store, now);
        if self.settings.is_shared && self.shared_poll_due <= now.instant {
            self.shared_poll_due = now.instant + SHARED_POLL_INTERVAL;
            if let Err(error) = self.poll_shared_store(store) {
                self.shared_poll_due = now.instant + RETRY_TIME;
                self.effects.push_back(StreamEffect::StreamNotice(StreamNotice::Failed(error.to_string())));
            }
        }
        if self.retry.is_some_and(|until| until <= now.instant) {
            self.retry = None;
            for (place, push) in &mut self.pushes {
                if let PushMode::Reliable(pusher) = &mut push.mode {
                    pusher.on_events_added();
                    self.awake.insert(*place);
                }
            }
        }
        let due = |push: &PushedConsumer| matches!(&push.mode, PushMode::Reliable(p) if p.deadline().is_some_and(|then| then <= now.instant));
        self.awake.extend(self.pushes.iter().filter(|(_, push)| due(push)).map(|(place, _)| *place));
        // A pusher that only passes unwanted events continues in the next turn.
        for place in std::mem::take(&mut self.awake) {
            self.run_push(store, now, place);
        }
        self.run_searches(store, Timestamp::from(now.wall));
        if self.trim_due <= now.instant {
            self.trim(store, now);
        }
    }

    fn run_push<S>(&mut self, store: &mut S, now: ClockReading, place: (ConnectionId, PushId))
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let Some(of) = self.pushes.get_mut(&place) else { return };
        let ((conn, push), version) = (place, of.version);
        let name = &self.streams[of.stream].settings.name;
        let pusher = match &mut of.mode {
            PushMode::Live(pusher) => {
                while let Some((seq, events)) = pusher.poll() {
                    let events = Arc::new(events);
                    self.effects.push_back(StreamEffect::Group { conn, push, version, seq, events });
                }
                return;
            }
            PushMode::Reliable(pusher) => pusher,
        };
        while let Some(step) = pusher.poll(now.instant) {
            match step {
                PusherAction::Read { after, room } => match store.read(name, after, of.want.as_ref(), room) {
                    Ok(page) => {
                        let is_transient = page.events.is_empty() && page.more_follows;
                        pusher.on_page(now.instant, page);
                        if is_transient {
                            self.awake.insert(place);
                            return;
                        }
                    }
                    Err(error) => {
                        pusher.on_read_failed();
                        self.retry = Some(now.instant + RETRY_TIME);
                        self.effects.push_back(StreamEffect::StreamNotice(StreamNotice::Failed(error.to_string())));
                    }
                },
                PusherAction::Send { seq, events } => {
                    self.effects.push_back(StreamEffect::Group { conn, push, version, seq, events });
                }
                PusherAction::Accept(up_to) => {
                    let accepted = store.accept(name, &of.consumer, up_to, Timestamp::from(now.wall));
                    if accepted.is_err() {
                        // The consumer was removed, reset or has lapsed, or the cause is unknown. It reconnects and
                        // learns it.
                        self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: true });
                        return self.end_push(place);
                    }
                }
                PusherAction::Close => {
                    self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: true });
                    return self.end_push(place);
                }
            }
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
                    self.effects.push_back(StreamEffect::StreamNotice(StreamNotice::Failed(error.to_string())));
                    continue;
                }
            };
            if trimmed.removed == TRIM_EVENTS as u64 {
                self.trim_due = now.instant;
            }
            for (consumer, missed) in trimmed.missed {
                let who = (number, consumer);
                // The consumer learns that when it reconnects.
                if let Some(place) = self.places.get(&who).copied() {
                    self.end_push(place);
                    self.effects.push_back(StreamEffect::PushEnd { conn: place.0, push: place.1, is_closed: true });
                }
                self.lapses.new.push((who, missed));
            }
        }
    }

    /// Rolls back all work since the last poll of effects, because it could not be stored. Neither its results nor
    /// events read since are sent. Pushed consumers must reconnect.
    ///
    /// # Errors
    /// The store cannot be read; the caller must retry.
    pub fn roll_back<S: StreamStore + ?Sized>(&mut self, store: &mut S, why: &str) -> Result<(), S::Error> {
        let done = self.restore_from_store(store, why);
        if done.is_err() {
            (0..self.streams.len()).for_each(|stream| self.fail_unfed(stream, why));
        }
        done
    }

    fn restore_from_store<S: StreamStore + ?Sized>(&mut self, store: &mut S, why: &str) -> Result<(), S::Error> {
        let mut effects = std::mem::take(&mut self.effects);
        effects.retain(|effect| match effect {
            StreamEffect::Group { .. } => false,
            StreamEffect::Register { number, .. } => !self.cancel_claim(*number),
            _ => true,
        });
        self.outbox.roll_back();
        self.lapses.new.clear();
        effects.iter_mut().for_each(|effect| requests::fail(effect, why));
        self.effects = effects;
        self.end_searches(why, |_| true);
        for (conn, push) in self.pushes.keys().copied().collect::<Vec<_>>() {
            self.end_push((conn, push));
            self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: true });
        }
        for stream in &mut self.streams {
            stream.is_checked = false;
            let places = store.covered(&stream.settings.name)?;
            for (server, feed) in &mut stream.feeds {
                let place = places.iter().find(|place| place.server == *server);
                (feed.covered, feed.has_news) = (place.copied().unwrap_or(start(*server)), true);
            }
            stream.seen = store.contents(&stream.settings.name)?.last;
        }
        // Events that are fed again get other ids.
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
        let of_push = |push: &PushedConsumer| match &push.mode {
            PushMode::Reliable(pusher) => pusher.deadline(),
            PushMode::Live(_) => None,
        };
        let pushes = self.pushes.values().filter_map(of_push);
        let paused_until = self.streams.iter().filter_map(|stream| stream.paused_until);
        let looks = self.settings.is_shared.then_some(self.shared_poll_due);
        let lapses = (!self.lapses.stored.is_empty()).then_some(self.lapses.due);
        let all = pushes.chain(paused_until).chain(looks).chain(lapses).chain(self.retry).chain([self.outbox.due()]);
        all.fold(self.trim_due, Instant::min)
    }
}

/// Returns the position before the first event of a server.
fn start(server: ServerId) -> EventId {
    EventId { server, session: 0, instance: 0 }
}

/// Returns the time from which a live consumer that connects now gets events. It allows for the difference of hosts'
/// clocks.
fn live_since(now: ClockReading) -> Timestamp {
    let micros = Timestamp::from(now.wall).as_micros() - CLOCKS_MICROS;
    Timestamp::from_micros(micros).unwrap_or(Timestamp::MIN)
}

/// Registers a consumer unless the maximum number is reached. Returns its row as it was before.
fn register<S>(
    store: &mut S,
    name: &StreamName,
    consumer: &Consumer,
    now: Timestamp,
) -> Result<Option<ConsumerRow>, CallFault>
where
    S: StreamStore + ?Sized,
    S::Error: fmt::Display,
{
    let before = store.register(name, consumer, now).map_err(internal)?;
    if before.is_none() && CONSUMERS_MAX < store.consumers(name).map_err(internal)?.len() {
        store.remove(name, consumer).map_err(internal)?;
        let text = format!("the stream {name} has {CONSUMERS_MAX} consumers: remove those that come no more");
        return Err(CallFault::new(FaultName::DefenseRejected, text));
    }
    Ok(before)
}

fn is_wanted(want: Option<&BTreeSet<StreamType>>, kind: &StreamType) -> bool {
    want.is_none_or(|want| want.contains(kind))
}

#[cfg(test)]
#[path = "stream_service/tests.rs"]
mod tests;
