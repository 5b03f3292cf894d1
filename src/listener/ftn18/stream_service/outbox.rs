//! Events that applications have posted within their own transactions. The service claims them, registers them, and
//! removes them once it has fed them into their streams.
//!
//! A peer may fail at any step. So it registers each event under a source timestamp that was stored with the claim.
//! After a restart it first reads its journal to the end. An event that is claimed, and still posted then, was never
//! registered.

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
/// Maximum number of claimed events of a stream that are not in the stream yet.
const WAITING_MAX: usize = 1024;
/// Maximum bytes of data in a registration, unless it has one event.
const BATCH_BYTES: usize = 1 << 20;

/// State of posted events in progress.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Last event of this server in the journal at the start.
    journal_end: EventId,
    /// Claimed events that are not in their streams yet: the index of the stream, and the stamp.
    claimed: BTreeSet<(usize, Timestamp)>,
    /// Claimed events that were fed in this turn, which may be rolled back.
    fed: Vec<(usize, Timestamp)>,
    /// Batches to register one after the other, each as one session. A refused batch keeps its position.
    queue: VecDeque<Vec<PostedEvent>>,
    /// True while a batch is being registered.
    is_registering: bool,
    /// True if a batch was refused. The next run then pauses the registration.
    is_refused: bool,
    /// Time until which registration pauses.
    paused_until: Instant,
    /// Events to quarantine, since they can never be registered, with the reasons.
    rejected: Vec<(PostedEvent, String)>,
    /// Last assigned stamp. No stamp is assigned twice, however the clock moves.
    stamp: Timestamp,
    /// Time of the next run.
    due: Instant,
}

impl Outbox {
    pub(super) fn new(journal_end: EventId) -> Outbox {
        Outbox {
            journal_end,
            claimed: BTreeSet::new(),
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

    /// Handles the refusal of a batch.
    pub(super) fn on_refused(&mut self, posted: Vec<PostedEvent>, refusal: EventRefusal) {
        (self.is_registering, self.due) = (false, Instant::ZERO);
        match refusal.kind {
            EventRefusalKind::Invalid if posted.len() == 1 => {
                self.rejected.extend(posted.into_iter().map(|posted| (posted, refusal.text.clone())));
            }
            // One of the events is invalid: each one is now registered separately.
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
        self.claimed.retain(|(_, stamp)| !stamps.contains(stamp));
    }

    /// Queues claimed events in batches.
    fn enqueue(&mut self, stream: impl Fn(&PostedEvent) -> usize, claimed: Vec<PostedEvent>) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for posted in claimed {
            self.claimed.insert((stream(&posted), posted.stamp));
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
    /// Removes the claimed events that were fed in earlier turns, which are now stored.
    pub(super) fn commit_outbox(&mut self) {
        for fed in self.outbox.fed.drain(..) {
            self.outbox.claimed.remove(&fed);
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
            self.outbox.claimed.retain(|(_, stamp)| *stamp != posted.stamp);
            self.effects.push_back(StreamEffect::Notice(StreamNotice::Quarantined(posted.number, reason)));
        }
        if std::mem::take(&mut self.outbox.is_refused) {
            self.outbox.paused_until = now.instant + RETRY_TIME;
        }
        for stream in 0..self.streams.len() {
            self.recover_claims(store, stream)?;
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
            let left = WAITING_MAX.saturating_sub(self.outbox.claimed.range(of_stream).count());
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

    /// Queues the events that an earlier run of the peer has claimed and not registered. It does so once, when the
    /// stream is fed up to the end that the journal had at the start.
    fn recover_claims<S: StreamStore + ?Sized>(&mut self, store: &mut S, stream: usize) -> Result<(), S::Error> {
        let served = &mut self.streams[stream];
        let covered = served.feeds.get(&self.server).map_or(super::start(self.server), |feed| feed.covered);
        if served.is_checked || covered < self.outbox.journal_end {
            return Ok(());
        }
        let claimed = store.claimed(self.server, &served.settings.name)?;
        served.is_checked = true;
        let stamps: BTreeSet<Timestamp> = claimed.iter().map(|posted| posted.stamp).collect();
        // After a rollback, the events fed in this turn are still to be registered.
        let Outbox { claimed: waiting, fed, .. } = &mut self.outbox;
        waiting.retain(|(index, stamp)| *index != stream || stamps.contains(stamp) || fed.contains(&(stream, *stamp)));
        let is_new = |posted: &PostedEvent| !self.outbox.claimed.contains(&(stream, posted.stamp));
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
        let number = self.registration_next;
        self.registration_next += 1;
        self.outbox.is_registering = true;
        self.registering.insert(number, JournalRegistration::Posted(batch));
        self.effects.push_back(StreamEffect::Register { number, registrations });
    }

    /// Cancels the registration with this number if it is of posted events, whose claim could not be stored. Returns
    /// whether it is.
    pub(super) fn cancel_claim(&mut self, number: u64) -> bool {
        let is_posted = matches!(self.registering.get(&number), Some(JournalRegistration::Posted(_)));
        if is_posted && let Some(JournalRegistration::Posted(batch)) = self.registering.remove(&number) {
            self.outbox.discard(&batch);
            self.outbox.is_registering = false;
        }
        is_posted
    }
}
