//! Events that applications have posted in transactions of their own. The service claims them, registers them, and
//! removes them when they are fed into their streams.
//!
//! A peer may end at any step. So each event is registered under a source timestamp that was stored with the claim.
//! Once the peer has read its journal again, an event that is claimed and still posted was never registered.

use super::effect::{StreamEffect, StreamNotice};
use super::registration::JournalRegistration;
use super::{RETRY_TIME, ServedStream, StreamService};
use crate::event::model::{EventId, Payload, Registration};
use crate::event::refusal::{EventRefusal, EventRefusalKind};
use crate::event::stream::name::StreamName;
use crate::event::stream::store::{PostedEvent, StreamStore};
use crate::event::timestamp::Timestamp;
use crate::subject::event_type::EventType;
use crate::time::{ClockReading, Instant};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

/// Polling interval for posted events.
const INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of events of a stream that are claimed and not in it yet.
const WAITING_MAX: usize = 1024;
/// Maximum bytes of data registered at a time, unless it is one event.
const BATCH_BYTES: usize = 1 << 20;

/// State of posted events in progress.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Last event of this server that the journal held at the start.
    held: EventId,
    /// Claimed events: the index of the stream, and the stamp.
    waiting: BTreeSet<(usize, Timestamp)>,
    /// Claimed events that are in their streams once the turn is stored.
    fed: Vec<(usize, Timestamp)>,
    /// Batches to register, each as one session, one after the other. Their order is kept even if one is refused.
    queue: VecDeque<Vec<PostedEvent>>,
    /// True while a batch is being registered.
    is_registering: bool,
    /// True if a batch was refused; the outbox pauses from the next run on,
    is_refused: bool,
    /// Time until which registration pauses.
    paused_until: Instant,
    /// Events that are never registered, and the reasons.
    rejected: Vec<(PostedEvent, String)>,
    /// Last assigned stamp. No stamp is assigned twice, however the clock moves.
    stamp: Timestamp,
    due: Instant,
}

impl Outbox {
    pub(super) fn new(held: EventId) -> Outbox {
        Outbox {
            held,
            waiting: BTreeSet::new(),
            fed: Vec::new(),
            queue: VecDeque::new(),
            is_registering: false,
            is_refused: false,
            paused_until: Instant::ZERO,
            rejected: Vec::new(),
            stamp: Timestamp::MIN,
            due: Instant::ZERO,
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Records that an event of this server with that source timestamp is fed.
    pub(super) fn on_fed(&mut self, stream: usize, stamp: Option<Timestamp>) {
        self.fed.extend(stamp.map(|stamp| (stream, stamp)));
    }

    /// Records that the pending batch is registered.
    pub(super) fn on_registered(&mut self) {
        (self.is_registering, self.due) = (false, Instant::ZERO);
    }

    /// Takes back a batch that was refused.
    pub(super) fn on_refused(&mut self, posted: Vec<PostedEvent>, refusal: EventRefusal) {
        (self.is_registering, self.due) = (false, Instant::ZERO);
        match refusal.kind {
            EventRefusalKind::Invalid if posted.len() == 1 => {
                self.rejected.extend(posted.into_iter().map(|posted| (posted, refusal.text.clone())));
            }
            // One of the events is invalid: each is now registered by itself.
            EventRefusalKind::Invalid => {
                posted.into_iter().rev().for_each(|posted| self.queue.push_front(vec![posted]))
            }
            EventRefusalKind::Busy
            | EventRefusalKind::Unavailable
            | EventRefusalKind::Full
            | EventRefusalKind::Stopping => {
                self.is_refused = true;
                self.queue.push_front(posted);
            }
        }
    }

    /// Discards fed and claimed events of a turn that was not stored; later turns find them again.
    pub(super) fn roll_back(&mut self) {
        self.fed.clear();
        for batch in std::mem::take(&mut self.queue) {
            self.discard(&batch);
        }
    }

    fn discard(&mut self, batch: &[PostedEvent]) {
        let stamps: BTreeSet<Timestamp> = batch.iter().map(|posted| posted.stamp).collect();
        self.waiting.retain(|(_, stamp)| !stamps.contains(stamp));
    }

    /// Queues claimed events in batches.
    fn enqueue(&mut self, stream: impl Fn(&PostedEvent) -> usize, claimed: Vec<PostedEvent>) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for posted in claimed {
            self.waiting.insert((stream(&posted), posted.stamp));
            bytes += posted.data.bytes().len();
            if BATCH_BYTES < bytes && !batch.is_empty() {
                self.queue.push_back(std::mem::take(&mut batch));
                bytes = posted.data.bytes().len();
            }
            batch.push(posted);
        }
        if !batch.is_empty() {
            self.queue.push_back(batch);
        }
    }
}

impl StreamService {
    /// Removes the events fed in earlier turns, which are stored by now.
    pub(super) fn commit_outbox(&mut self) {
        for fed in self.outbox.fed.drain(..) {
            self.outbox.waiting.remove(&fed);
        }
    }

    /// Claims and registers posted events.
    pub(super) fn run_outbox<S>(&mut self, store: &mut S, now: ClockReading)
    where
        S: StreamStore + ?Sized,
        S::Error: fmt::Display,
    {
        if now.instant < self.outbox.due {
            return;
        }
        self.outbox.due = now.instant + INTERVAL;
        if let Err(error) = self.claim(store, now) {
            self.outbox.due = now.instant + RETRY_TIME;
            self.effects.push_back(StreamEffect::Notice(StreamNotice::Failed(error.to_string())));
        }
    }

    fn claim<S: StreamStore + ?Sized>(&mut self, store: &mut S, now: ClockReading) -> Result<(), S::Error> {
        for (posted, reason) in std::mem::take(&mut self.outbox.rejected) {
            store.quarantine(posted.number, &reason)?;
            self.outbox.waiting.retain(|(_, stamp)| *stamp != posted.stamp);
            self.effects.push_back(StreamEffect::Notice(StreamNotice::Quarantined(posted.number, reason)));
        }
        if std::mem::take(&mut self.outbox.is_refused) {
            self.outbox.paused_until = now.instant + RETRY_TIME;
        }
        for stream in 0..self.streams.len() {
            self.check(store, stream)?;
        }
        if self.outbox.is_registering || now.instant < self.outbox.paused_until {
            return Ok(());
        }
        if self.outbox.queue.is_empty() {
            self.claim_new(store, now)?;
        }
        if let Some(batch) = self.outbox.queue.pop_front() {
            self.post(batch);
        }
        Ok(())
    }

    fn claim_new<S: StreamStore + ?Sized>(&mut self, store: &mut S, now: ClockReading) -> Result<(), S::Error> {
        let (mut open, mut remaining): (Vec<StreamName>, usize) = (Vec::new(), WAITING_MAX);
        for (number, stream) in self.streams.iter().enumerate().filter(|(_, stream)| stream.is_checked) {
            let of_stream = (number, Timestamp::MIN)..=(number, Timestamp::MAX);
            let left = WAITING_MAX.saturating_sub(self.outbox.waiting.range(of_stream).count());
            let settings = &stream.settings;
            let may_block = settings.limits.may_block();
            let is_blocked = may_block && settings.limits.is_blocked(store.contents(&settings.name)?.bytes);
            if 0 < left && !is_blocked {
                open.push(settings.name.clone());
                remaining = remaining.min(left);
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        let now = Timestamp::from(now.wall).max(self.outbox.stamp.following());
        let claimed = store.claim(self.server, &open, now, remaining)?;
        self.outbox.stamp = claimed.last().map_or(self.outbox.stamp, |posted| posted.stamp);
        self.enqueue(claimed);
        Ok(())
    }

    fn enqueue(&mut self, claimed: Vec<PostedEvent>) {
        let streams = &self.streams;
        let index = |posted: &PostedEvent| {
            let is_posted_for = |stream: &ServedStream| stream.settings.name == posted.stream;
            streams.iter().position(is_posted_for).expect("only events of these streams are claimed")
        };
        self.outbox.enqueue(index, claimed);
    }

    /// Registers the events that were claimed before and are still posted, unless that is in progress. It does so once
    /// the journal has been read up to its end at the start.
    fn check<S: StreamStore + ?Sized>(&mut self, store: &mut S, stream: usize) -> Result<(), S::Error> {
        let of = &mut self.streams[stream];
        let covered = of.feeds.get(&self.server).map_or(super::start(self.server), |feed| feed.covered);
        if of.is_checked || covered < self.outbox.held {
            return Ok(());
        }
        let claimed = store.claimed(self.server, &of.settings.name)?;
        of.is_checked = true;
        let stamps: BTreeSet<Timestamp> = claimed.iter().map(|posted| posted.stamp).collect();
        // A rollback may bring back the events fed in this turn.
        let Outbox { waiting, fed, .. } = &mut self.outbox;
        waiting.retain(|(index, stamp)| *index != stream || stamps.contains(stamp) || fed.contains(&(stream, *stamp)));
        let is_new = |posted: &PostedEvent| !self.outbox.waiting.contains(&(stream, posted.stamp));
        let new = claimed.into_iter().filter(is_new).collect();
        self.enqueue(new);
        Ok(())
    }

    fn post(&mut self, batch: Vec<PostedEvent>) {
        let registration = |posted: &PostedEvent| Registration {
            event_type: EventType::new([posted.stream.as_str(), posted.kind.as_str()]).expect("two short subtypes"),
            source_timestamp: Some(posted.stamp),
            payload: Some(Payload::Json(posted.data.clone())),
        };
        let registrations = batch.iter().map(registration).collect();
        let number = self.numbers;
        self.numbers += 1;
        self.outbox.is_registering = true;
        self.registering.insert(number, JournalRegistration::Posted(batch));
        self.effects.push_back(StreamEffect::Register { number, registrations });
    }

    /// Cancels a registration claimed in a turn that could not be stored. Returns whether the number belongs to one.
    pub(super) fn cancel_claim(&mut self, number: u64) -> bool {
        let is_posted = matches!(self.registering.get(&number), Some(JournalRegistration::Posted(_)));
        if is_posted && let Some(JournalRegistration::Posted(batch)) = self.registering.remove(&number) {
            self.outbox.discard(&batch);
            self.outbox.is_registering = false;
        }
        is_posted
    }
}
