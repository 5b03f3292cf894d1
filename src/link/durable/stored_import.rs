//! Imports from the stream of the cluster: each message once, in the order of its publisher on each subject.
//!
//! The stream keeps an order of its own. A message that an exporter had to send again stands behind later ones, so the
//! importer holds these back until it comes. What does not come in time is reported as lost.
//!
//! The *position* is the place in the stream up to which everything is delivered. It is stored at the cluster, and another
//! gateway continues there. What was delivered behind it, that gateway has seen on the LAN.

use super::stored::{DurableOrigin, StoredMessage};
use crate::link::envelope::LinkEnvelope;
use crate::link::export::LinkStreamKey;
use crate::link::position::StreamPoint;
use crate::link::site_loss::SiteLoss;
use crate::link::site_name::SiteName;
use crate::message::{Count, Epoch};
use crate::subject::Subject;
use crate::subject::pattern_set::PatternSet;
use crate::time::Instant;
use lru::LruCache;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;

/// Time for which messages wait for an earlier one of their stream: longer than an exporter needs to take over and to
/// send again.
const HOLD_TIME: Duration = Duration::from_secs(15);
/// Maximum bytes of these messages. Further ones wait in the stream.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes that wait for the LAN. Further ones wait in the stream.
const READY_BYTES_MAX: usize = 4 << 20;
/// Maximum number of shares of gateways that are remembered.
const CONTACTS_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("not 0");
/// Maximum number of streams that are remembered. The account of a forgotten one begins anew.
const STREAMS_MAX: usize = 262_144;
/// Maximum number of places behind the position whose messages were delivered. Messages beyond it may be delivered twice
/// when another gateway continues.
const DELIVERED_MAX: usize = 1 << 20;
/// Time by which deliveries may be ahead of the permitted rate.
const BURST_TIME: Duration = Duration::from_millis(20);

/// Outcome of a durable message for the LAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredDelivery {
    pub(super) stored: StoredMessage,
    /// The loss before it.
    pub(super) loss: Option<SiteLoss>,
}

#[derive(Debug)]
struct HeldMessage {
    at: Instant,
    origin: DurableOrigin,
    stored: StoredMessage,
}

/// A message that was handed on, and that the LAN may not have taken yet.
#[derive(Debug)]
struct Unconfirmed {
    sequence: u64,
    /// Its stream and its point; `None` for a message of a client.
    stream: Option<(LinkStreamKey, StreamPoint)>,
}

/// Place of a message in its stream, compared with the last one.
enum Place {
    /// It was delivered or reported.
    Covered,
    /// It is the next one. The number of lost messages before it is given.
    Next(Option<Count>),
    /// Messages before it may still come.
    Early,
}

/// The importing side of a gateway for durable messages.
#[derive(Debug)]
pub(super) struct StoredImport {
    own: SiteName,
    imports: PatternSet,
    bytes_per_second: u64,
    /// The last place that was read, if this gateway reads the stream.
    read_to: Option<u64>,
    /// Places that were read and whose messages the LAN has not taken.
    open: BTreeSet<u64>,
    /// Places behind the position whose messages this gateway or another one has delivered.
    delivered: BTreeSet<u64>,
    /// The first number that was read of each share of a gateway.
    contacts: LruCache<(Epoch, u8), u64>,
    /// The last point of each stream that was delivered.
    last: LruCache<LinkStreamKey, StreamPoint>,
    /// The last point of each stream with messages that wait for the LAN.
    ready_to: BTreeMap<LinkStreamKey, StreamPoint>,
    held: BTreeMap<LinkStreamKey, VecDeque<HeldMessage>>,
    held_bytes: usize,
    ready: VecDeque<StoredDelivery>,
    ready_bytes: usize,
    /// The message that was returned last, without its content.
    unconfirmed: Option<Unconfirmed>,
    /// Time at which all deliveries so far would have ended at the permitted rate.
    paid_to: Instant,
    /// Number of messages that came more than once.
    pub(super) repeated: u64,
    /// Number of messages that cannot be read.
    pub(super) invalid: u64,
}

impl StoredImport {
    /// Creates the importing side of a site, which takes the subjects of `imports` at this rate in bytes per second.
    pub(super) fn new(own: SiteName, imports: PatternSet, bytes_per_second: u64) -> StoredImport {
        StoredImport {
            own,
            imports,
            bytes_per_second,
            read_to: None,
            open: BTreeSet::new(),
            delivered: BTreeSet::new(),
            contacts: LruCache::new(CONTACTS_MAX),
            last: LruCache::unbounded(),
            ready_to: BTreeMap::new(),
            held: BTreeMap::new(),
            held_bytes: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            unconfirmed: None,
            paid_to: Instant::ZERO,
            repeated: 0,
            invalid: 0,
        }
    }

    /// Begins to read the stream behind a position.
    pub(super) fn start(&mut self, position: u64) {
        self.stop();
        self.read_to = Some(position);
        self.delivered = self.delivered.split_off(&(position + 1));
    }

    /// Ends the reading, and returns the position if this gateway has read. What was read and not delivered is read again
    /// by the gateway that continues.
    pub(super) fn stop(&mut self) -> Option<u64> {
        self.confirm();
        let position = self.position();
        self.read_to = None;
        self.open.clear();
        self.held.clear();
        self.ready.clear();
        self.ready_to.clear();
        (self.held_bytes, self.ready_bytes) = (0, 0);
        position
    }

    /// Returns whether further messages of the stream may be read.
    pub(super) fn has_room(&self) -> bool {
        self.read_to.is_some() && self.ready_bytes < READY_BYTES_MAX && self.held_bytes < HELD_BYTES_MAX
    }

    /// Returns the place up to which everything is delivered, if this gateway reads the stream.
    pub(super) fn position(&self) -> Option<u64> {
        let read_to = self.read_to?;
        Some(self.open.first().map_or(read_to, |first| first - 1))
    }

    /// Notes that the position is stored: nobody reads what is before it again.
    pub(super) fn on_position(&mut self, position: u64) {
        self.delivered = self.delivered.split_off(&position.saturating_add(1));
    }

    /// Notes that another gateway has delivered the message at this place.
    pub(super) fn on_heard(&mut self, sequence: u64, key: Option<LinkStreamKey>, point: Option<StreamPoint>) {
        self.note_delivered(sequence);
        if let Some((key, point)) = key.zip(point) {
            self.advance(key, point);
        }
    }

    /// Handles a message of the stream; `None` in place of one that cannot be read.
    pub(super) fn on_stored(&mut self, now: Instant, sequence: u64, stored: Option<StoredMessage>) {
        if self.read_to.is_none_or(|read_to| sequence <= read_to) {
            return;
        }
        self.read_to = Some(sequence);
        let Some(stored) = stored else { return self.invalid += 1 };
        let subject = &stored.message.subject;
        if subject.as_bytes().first() == Some(&b'_') || !self.imports.matches(subject) {
            return;
        }
        stored.origin.iter().for_each(|origin| self.note_contact(origin));
        let was_delivered = self.delivered.remove(&sequence);
        match stored.origin.clone() {
            Some(origin) if origin.envelope.site == self.own => {}
            Some(origin) if was_delivered => {
                let key = key_of(&origin, &stored.message.subject);
                self.advance(key.clone(), origin.envelope.point);
                self.release(&key);
            }
            Some(origin) => self.on_origin(now, origin, stored),
            None if was_delivered => {}
            None => {
                self.open.insert(sequence);
                self.push_ready(StoredDelivery { stored, loss: None });
            }
        }
    }

    fn note_delivered(&mut self, sequence: u64) {
        self.delivered.insert(sequence);
        if DELIVERED_MAX < self.delivered.len() {
            self.delivered.pop_first();
        }
    }

    fn on_origin(&mut self, now: Instant, origin: DurableOrigin, stored: StoredMessage) {
        let key = key_of(&origin, &stored.message.subject);
        let place = self.place(&key, &origin);
        if !matches!(place, Place::Covered) {
            self.open.insert(stored.sequence);
        }
        match place {
            Place::Covered => self.repeated += 1,
            Place::Next(missing) => {
                self.deliver(key.clone(), origin, stored, missing);
                self.release(&key);
            }
            Place::Early => {
                self.held_bytes += stored.bytes();
                let held = self.held.entry(key).or_default();
                let is_earlier = |other: &HeldMessage| other.origin.envelope.point.precedes(&origin.envelope.point);
                let index = held.partition_point(is_earlier);
                held.insert(index, HeldMessage { at: now, origin, stored });
            }
        }
    }

    /// Returns the last point of a stream that was delivered or waits for the LAN.
    fn last_point(&self, key: &LinkStreamKey) -> Option<&StreamPoint> {
        self.ready_to.get(key).or_else(|| self.last.peek(key))
    }

    fn place(&self, key: &LinkStreamKey, origin: &DurableOrigin) -> Place {
        if self.last_point(key).is_some_and(|last| origin.envelope.point.is_covered_by(last)) {
            return Place::Covered;
        }
        match self.missing_before(key, origin) {
            Some(missing) if origin.lost < missing.min() => Place::Early,
            missing => Place::Next(missing),
        }
    }

    /// Returns the number of messages before this one that were not delivered. All messages of a stream are owed if it
    /// began after the first contact with its gateway.
    fn missing_before(&self, key: &LinkStreamKey, origin: &DurableOrigin) -> Option<Count> {
        let LinkEnvelope { share, point, .. } = &origin.envelope;
        match self.last_point(key) {
            Some(last) => point.missing_since(last),
            None => {
                let contact = *self.contacts.peek(&(point.gateway, *share))?;
                let missing = point.ordinal - 1;
                Some(Count::Exact(missing)).filter(|_| contact <= point.first_number && 0 < missing)
            }
        }
    }

    /// Notes the first number of each share of a gateway that was read.
    fn note_contact(&mut self, origin: &DurableOrigin) {
        let LinkEnvelope { share, number, point, .. } = &origin.envelope;
        let first = self.contacts.get_or_insert_mut((point.gateway, *share), || *number);
        *first = (*first).min(*number);
    }

    /// Delivers the messages that waited for the last one.
    fn release(&mut self, key: &LinkStreamKey) {
        while let Some(first) = self.held.get(key).and_then(VecDeque::front) {
            let origin = first.origin.clone();
            let place = self.place(key, &origin);
            if matches!(place, Place::Early) {
                return;
            }
            let Some(stored) = self.pop_held(key) else { return };
            match place {
                Place::Next(missing) => self.deliver(key.clone(), origin, stored, missing),
                _ => {
                    self.repeated += 1;
                    self.open.remove(&stored.sequence);
                }
            }
        }
    }

    fn pop_held(&mut self, key: &LinkStreamKey) -> Option<StoredMessage> {
        let held = self.held.get_mut(key)?;
        let first = held.pop_front()?;
        if held.is_empty() {
            self.held.remove(key);
        }
        self.held_bytes -= first.stored.bytes();
        Some(first.stored)
    }

    /// Reports the messages that did not come in time as lost, and delivers those that waited for them.
    pub(super) fn on_tick(&mut self, now: Instant) {
        let is_due = |held: &VecDeque<HeldMessage>| held.iter().any(|message| message.at + HOLD_TIME <= now);
        let due: Vec<LinkStreamKey> =
            self.held.iter().filter(|(_, held)| is_due(held)).map(|(key, _)| key.clone()).collect();
        for key in due {
            let Some(origin) = self.held.get(&key).and_then(VecDeque::front).map(|first| first.origin.clone()) else {
                continue;
            };
            let missing = self.missing_before(&key, &origin);
            if let Some(stored) = self.pop_held(&key) {
                self.deliver(key.clone(), origin, stored, missing);
            }
            self.release(&key);
        }
    }

    /// Returns the time of the next [`StoredImport::on_tick`] or [`StoredImport::poll`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        let held = self.held.values().flatten().map(|message| message.at + HOLD_TIME).min();
        let paid = (!self.ready.is_empty()).then_some(self.paid_to);
        held.into_iter().chain(paid).min()
    }

    fn deliver(&mut self, key: LinkStreamKey, origin: DurableOrigin, stored: StoredMessage, missing: Option<Count>) {
        let subject = stored.message.subject.clone();
        self.ready_to.insert(key, origin.envelope.point);
        let missing = missing.filter(|missing| 0 < missing.max());
        let loss = missing.map(|count| SiteLoss { origin: origin.envelope, subject, count, follows: true });
        self.push_ready(StoredDelivery { stored, loss });
    }

    fn push_ready(&mut self, delivery: StoredDelivery) {
        self.ready_bytes += delivery.stored.bytes();
        self.ready.push_back(delivery);
    }

    /// Returns the next message for the LAN, at the permitted rate. The LAN has taken the one before.
    pub(super) fn poll(&mut self, now: Instant) -> Option<StoredDelivery> {
        self.confirm();
        if now + BURST_TIME < self.paid_to {
            return None;
        }
        let next = self.ready.pop_front()?;
        self.ready_bytes -= next.stored.bytes();
        let stream = next.stored.origin.as_ref().map(|origin| key_of(origin, &next.stored.message.subject));
        let point = next.stored.origin.as_ref().map(|origin| origin.envelope.point);
        self.unconfirmed = Some(Unconfirmed { sequence: next.stored.sequence, stream: stream.zip(point) });
        let cost = next.stored.bytes() as u64 * 1_000_000_000 / self.bytes_per_second.max(1);
        self.paid_to = self.paid_to.max(now) + Duration::from_nanos(cost);
        Some(next)
    }

    /// Notes that the message that was returned last does not get to the LAN.
    pub(super) fn withdraw(&mut self) {
        self.unconfirmed = None;
    }

    /// Notes that the LAN has taken the message that was returned last, or will do so.
    fn confirm(&mut self) {
        let Some(Unconfirmed { sequence, stream }) = self.unconfirmed.take() else { return };
        self.open.remove(&sequence);
        self.note_delivered(sequence);
        if let Some((key, point)) = stream {
            if self.ready_to.get(&key).is_some_and(|last| last.is_covered_by(&point)) {
                self.ready_to.remove(&key);
            }
            self.advance(key, point);
        }
    }

    fn advance(&mut self, key: LinkStreamKey, mut point: StreamPoint) {
        if let Some(last) = self.last.get(&key) {
            if point.is_covered_by(last) {
                return;
            }
            point.position = point.position.completed_by(last.position);
        }
        if self.last.put(key, point).is_none() && STREAMS_MAX < self.last.len() {
            self.last.pop_lru();
        }
    }
}

/// Returns the stream of a durable message.
pub(super) fn key_of(origin: &DurableOrigin, subject: &Subject) -> LinkStreamKey {
    LinkStreamKey { publisher: origin.envelope.publisher.epoch, subject: subject.clone() }
}
