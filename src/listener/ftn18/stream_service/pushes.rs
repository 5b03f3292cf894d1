//! Pushes groups of events to consumers over their connections.

use super::effect::{ConnectionId, StreamEffect, StreamNotice};
use super::search::SearchRequester;
use super::store_faults::store_fault;
use super::{LIVE_WAITING, RETRY_TIME, StreamService};
use crate::event::stream::live_pusher::{self, LivePusher};
use crate::event::stream::model::{LIST_EVENTS_MAX, PageBudget};
use crate::event::stream::name::{Consumer, StreamId, StreamType};
use crate::event::stream::pusher::{self, Pusher, PusherAction};
use crate::event::stream::store::StreamStore;
use crate::event::timestamp::Timestamp;
use crate::listener::ftn18::call::Version;
use crate::listener::ftn18::fault::{CallFault, FaultName};
use crate::listener::ftn18::message::ENVELOPE_BYTES;
use crate::listener::ftn18::session::PushId;
use crate::time::{ClockReading, Instant};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Maximum number of pushes over one connection.
const PUSHES_MAX: usize = 16;
/// Assumed maximum difference of the clocks of two hosts, in microseconds.
const CLOCKS_MICROS: i64 = 1_000_000;
/// Maximum bytes of a group, unless it is one event. Several groups of each consumer may wait for a slow client.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// Maximum number of groups that a live consumer has not answered.
const LIVE_GROUPS_MAX: usize = 2;

/// Pusher of a reliable or live consumer.
#[derive(Debug)]
pub(super) enum PushMode {
    Reliable(Pusher),
    Live(LivePusher),
}

/// A consumer to which events are pushed over a connection.
#[derive(Debug)]
pub(super) struct PushedConsumer {
    pub(super) stream: usize,
    pub(super) consumer: Consumer,
    pub(super) want: Option<BTreeSet<StreamType>>,
    pub(super) version: Version,
    /// Timestamp before which a live consumer gets no events.
    pub(super) since: Timestamp,
    pub(super) mode: PushMode,
}

/// A request to push the events of a stream to a consumer.
#[derive(Debug)]
pub(super) struct PushRequest {
    /// Index of the stream.
    pub(super) stream: usize,
    pub(super) consumer: Consumer,
    pub(super) want: Option<BTreeSet<StreamType>>,
    pub(super) version: Version,
}

impl StreamService {
    /// Handles a consumer's answer to a group.
    pub fn on_answer(&mut self, now: Instant, conn: ConnectionId, push: PushId, seq: u32, is_accepted: bool) {
        let Some(pushed) = self.pushes.get_mut(&(conn, push)) else { return };
        match &mut pushed.mode {
            PushMode::Reliable(pusher) => pusher.on_answer(now, seq, is_accepted),
            PushMode::Live(pusher) => pusher.on_answer(seq),
        }
        self.awake.insert((conn, push));
    }

    /// Handles the end of a connection: ends its pushes and searches. Other calls are completed, but not answered.
    pub fn on_close(&mut self, conn: ConnectionId) {
        self.pushes_of(conn).collect::<Vec<_>>().into_iter().for_each(|key| self.end_push(key));
        self.searches.retain(|search| !matches!(search.requester, SearchRequester::Call(from, _) if from.conn == conn));
    }

    fn pushes_of(&self, conn: ConnectionId) -> impl Iterator<Item = (ConnectionId, PushId)> {
        self.pushes.range((conn, PushId(0))..=(conn, PushId(u64::MAX))).map(|(key, _)| *key)
    }

    pub(super) fn end_push(&mut self, key: (ConnectionId, PushId)) {
        let Some(push) = self.pushes.remove(&key) else { return };
        self.awake.remove(&key);
        let consumer = (push.stream, push.consumer);
        if self.reliable_pushes.get(&consumer) == Some(&key) {
            self.reliable_pushes.remove(&consumer);
        }
    }

    /// Begins to push to a consumer.
    pub(super) fn begin_push<S>(
        &mut self,
        store: &mut S,
        now: ClockReading,
        conn: ConnectionId,
        request: PushRequest,
    ) -> Result<(), CallFault>
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let PushRequest { stream, consumer, want, version } = request;
        if PUSHES_MAX <= self.pushes_of(conn).count() {
            let text = format!("{PUSHES_MAX} consumers are pushed to over this connection: open another one");
            return Err(CallFault::new(FaultName::DefenseRejected, text));
        }
        let bytes = version.push_bytes_max().min(GROUP_BYTES_MAX) - ENVELOPE_BYTES;
        let budget = PageBudget { events: LIST_EVENTS_MAX, bytes };
        let mode = if consumer.component.is_live() {
            PushMode::Live(LivePusher::new(live_pusher::Settings {
                budget,
                groups_max: LIVE_GROUPS_MAX,
                waiting: LIVE_WAITING,
            }))
        } else {
            let name = &self.streams[stream].settings.name;
            let time = Timestamp::from(now.wall);
            let accepted =
                store.accept(name, &consumer, StreamId::START, time).map_err(|error| store_fault(&consumer, error))?;
            // A new push of the consumer replaces an earlier one, whose connection may be dead.
            if let Some((conn, push)) = self.reliable_pushes.get(&(stream, consumer.clone())).copied() {
                self.end_push((conn, push));
                self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: false });
            }
            let (groups_max, delay) = (self.settings.groups_max, self.settings.delay);
            PushMode::Reliable(Pusher::new(pusher::Settings { budget, groups_max, delay }, accepted))
        };
        let key = (conn, PushId(self.push_next));
        self.push_next += 1;
        if matches!(mode, PushMode::Reliable(_)) {
            self.reliable_pushes.insert((stream, consumer.clone()), key);
        }
        let since = live_since(now);
        self.pushes.insert(key, PushedConsumer { stream, consumer, want, version, since, mode });
        self.awake.insert(key);
        Ok(())
    }

    /// Runs the pusher of a consumer.
    pub(super) fn run_push<S>(&mut self, store: &mut S, now: ClockReading, key: (ConnectionId, PushId))
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        let Some(pushed) = self.pushes.get_mut(&key) else { return };
        let ((conn, push), version) = (key, pushed.version);
        let name = &self.streams[pushed.stream].settings.name;
        let pusher = match &mut pushed.mode {
            PushMode::Live(pusher) => {
                while let Some((seq, events)) = pusher.poll() {
                    let events = Arc::new(events);
                    self.effects.push_back(StreamEffect::Group { conn, push, version, seq, events });
                }
                return;
            }
            PushMode::Reliable(pusher) => pusher,
        };
        while let Some(action) = pusher.poll(now.instant) {
            match action {
                PusherAction::Read { after, budget } => match store.read(name, after, pushed.want.as_ref(), budget) {
                    Ok(page) => {
                        let is_transient = page.events.is_empty() && page.more_follows;
                        pusher.on_page(now.instant, page);
                        if is_transient {
                            self.awake.insert(key);
                            return;
                        }
                    }
                    Err(error) => {
                        pusher.on_read_failed();
                        self.retry_at = Some(now.instant + RETRY_TIME);
                        self.effects.push_back(StreamEffect::Notice(StreamNotice::Failed(error.to_string())));
                    }
                },
                PusherAction::Send { seq, events } => {
                    self.effects.push_back(StreamEffect::Group { conn, push, version, seq, events });
                }
                PusherAction::Accept(up_to) => {
                    let accepted = store.accept(name, &pushed.consumer, up_to, Timestamp::from(now.wall));
                    if accepted.is_err() {
                        // The consumer was removed or reset, or has lapsed, or the store failed. The consumer gets
                        // the error when it reconnects.
                        self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: true });
                        return self.end_push(key);
                    }
                }
                PusherAction::Close => {
                    self.effects.push_back(StreamEffect::PushEnd { conn, push, is_closed: true });
                    return self.end_push(key);
                }
            }
        }
    }
}

/// Returns the timestamp from which a live consumer that connects now gets events, less the assumed difference of
/// clocks.
fn live_since(now: ClockReading) -> Timestamp {
    let micros = Timestamp::from(now.wall).as_micros() - CLOCKS_MICROS;
    Timestamp::from_micros(micros).unwrap_or(Timestamp::MIN)
}
