//! Imports from the stream of the cluster: each message once, in the order of its publisher on each subject.
//!
//! The stream keeps an order of its own. A message that an exporter had to send again stands behind later ones, so the
//! importer holds these back until it comes. What does not come in time is reported as lost.
//!
//! The *position* is the place in the stream up to which everything is delivered. It is stored at the cluster, and another
//! gateway continues there. What it has seen on the LAN behind the position it delivers again: the LAN may have lost it
//! for others, and the gateway that could have repeated it is gone. Peers drop what they have ([`RepeatFilter`]), except
//! for messages of clients, which have no numbers.
//!
//! [`RepeatFilter`]: crate::link::repeat_filter::RepeatFilter

use super::stored::{DurableOrigin, StoredMessage};
use crate::link::envelope::LinkEnvelope;
use crate::link::position::StreamPoint;
use crate::link::remote_stream_key::RemoteStreamKey;
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
/// Time for which the first message that is read of a stream, and that was not heard on the LAN, may be one that the
/// stream keeps twice. Then later ones were delivered before it, and what seems to be missing is not certain to be lost.
const DOUBT_TIME: Duration = Duration::from_secs(600);
/// Maximum number of such streams. Beyond it losses of one of them may be reported that did not take place.
const DOUBTED_MAX: usize = 262_144;
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
    stream: Option<(RemoteStreamKey, StreamPoint)>,
}

/// Gateway that has delivered a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deliverer {
    Own,
    Other,
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
    /// Places behind the position whose messages were delivered.
    delivered: BTreeMap<u64, Deliverer>,
    /// The first number that was read of each share of a gateway.
    contacts: LruCache<(SiteName, Epoch, u8), u64>,
    /// The last point of each stream that was delivered.
    last: LruCache<RemoteStreamKey, StreamPoint>,
    /// Streams whose last point may be an old one, and the time until which that is so.
    doubted: BTreeMap<RemoteStreamKey, Instant>,
    /// The last point of each stream with messages that wait for the LAN.
    ready_to: BTreeMap<RemoteStreamKey, StreamPoint>,
    held: BTreeMap<RemoteStreamKey, VecDeque<HeldMessage>>,
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
            delivered: BTreeMap::new(),
            contacts: LruCache::new(CONTACTS_MAX),
            last: LruCache::unbounded(),
            doubted: BTreeMap::new(),
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
    pub(super) fn on_heard(&mut self, sequence: u64, key: Option<RemoteStreamKey>, point: Option<StreamPoint>) {
        self.note_delivered(sequence, Deliverer::Other);
        if let Some((key, point)) = key.zip(point) {
            self.doubted.remove(&key);
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
        let deliverer = self.delivered.remove(&sequence);
        match (stored.origin.clone(), deliverer) {
            (Some(origin), _) if origin.envelope.site == self.own => {}
            (Some(origin), Some(deliverer)) => {
                let key = key_of(&origin, &stored.message.subject);
                self.advance(key.clone(), origin.envelope.point);
                if deliverer == Deliverer::Other && origin.envelope.point.position.seq.is_some() {
                    self.open.insert(sequence);
                    self.push_ready(StoredDelivery { stored, loss: None });
                }
                self.release(now, &key);
            }
            (Some(origin), None) => self.on_origin(now, origin, stored),
            (None, Some(_)) => {}
            (None, None) => {
                self.open.insert(sequence);
                self.push_ready(StoredDelivery { stored, loss: None });
            }
        }
    }

    fn note_delivered(&mut self, sequence: u64, deliverer: Deliverer) {
        let known = self.delivered.entry(sequence).or_insert(deliverer);
        if deliverer == Deliverer::Own {
            *known = Deliverer::Own;
        }
        if DELIVERED_MAX < self.delivered.len() {
            self.delivered.pop_first();
        }
    }

    /// Skips a place of the stream.
    pub(super) fn on_refused(&mut self, sequence: u64) {
        self.read_to = self.read_to.map(|read_to| read_to.max(sequence));
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
                self.deliver(now, key.clone(), origin, stored, missing);
                self.release(now, &key);
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
    fn last_point(&self, key: &RemoteStreamKey) -> Option<&StreamPoint> {
        self.ready_to.get(key).or_else(|| self.last.peek(key))
    }

    fn place(&self, key: &RemoteStreamKey, origin: &DurableOrigin) -> Place {
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
    fn missing_before(&self, key: &RemoteStreamKey, origin: &DurableOrigin) -> Option<Count> {
        let LinkEnvelope { site, share, point, .. } = &origin.envelope;
        match self.last_point(key) {
            Some(last) => point.missing_since(last),
            None => {
                let contact = *self.contacts.peek(&(site.clone(), point.gateway, *share))?;
                let missing = point.ordinal - 1;
                Some(Count::Exact(missing)).filter(|_| contact <= point.first_number && 0 < missing)
            }
        }
    }

    /// Notes the first number of each share of a gateway that was read.
    fn note_contact(&mut self, origin: &DurableOrigin) {
        let LinkEnvelope { site, share, number, point, .. } = &origin.envelope;
        let first = self.contacts.get_or_insert_mut((site.clone(), point.gateway, *share), || *number);
        *first = (*first).min(*number);
    }

    /// Delivers the messages that waited for the last one.
    fn release(&mut self, now: Instant, key: &RemoteStreamKey) {
        while let Some(first) = self.held.get(key).and_then(VecDeque::front) {
            let origin = first.origin.clone();
            let place = self.place(key, &origin);
            if matches!(place, Place::Early) {
                return;
            }
            let Some(stored) = self.pop_held(key) else { return };
            match place {
                Place::Next(missing) => self.deliver(now, key.clone(), origin, stored, missing),
                _ => {
                    self.repeated += 1;
                    self.open.remove(&stored.sequence);
                }
            }
        }
    }

    fn pop_held(&mut self, key: &RemoteStreamKey) -> Option<StoredMessage> {
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
        let due: Vec<RemoteStreamKey> =
            self.held.iter().filter(|(_, held)| is_due(held)).map(|(key, _)| key.clone()).collect();
        for key in due {
            let Some(origin) = self.held.get(&key).and_then(VecDeque::front).map(|first| first.origin.clone()) else {
                continue;
            };
            let missing = self.missing_before(&key, &origin);
            if let Some(stored) = self.pop_held(&key) {
                self.deliver(now, key.clone(), origin, stored, missing);
            }
            self.release(now, &key);
        }
    }

    /// Returns the time of the next [`StoredImport::on_tick`] or [`StoredImport::poll`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        let held = self.held.values().flatten().map(|message| message.at + HOLD_TIME).min();
        let paid = (!self.ready.is_empty()).then_some(self.paid_to);
        held.into_iter().chain(paid).min()
    }

    fn deliver(
        &mut self,
        now: Instant,
        key: RemoteStreamKey,
        origin: DurableOrigin,
        stored: StoredMessage,
        missing: Option<Count>,
    ) {
        let subject = stored.message.subject.clone();
        let is_known = self.last_point(&key).is_some();
        if !is_known && origin.lost < origin.envelope.point.ordinal - 1 {
            if DOUBTED_MAX <= self.doubted.len() {
                self.doubted.pop_first();
            }
            self.doubted.insert(key.clone(), now + DOUBT_TIME);
        }
        // Another gateway may have delivered them before this one heard of the stream, unless their LAN has lost them.
        let is_doubted = self.doubted.get(&key).is_some_and(|until| now < *until);
        let doubt = |missing: Count| match is_doubted && origin.lost < missing.min() {
            true => Count::from_bounds(0, missing.max()),
            false => missing,
        };
        let missing = missing.map(doubt);
        let missing = missing.filter(|missing| 0 < missing.max());
        self.ready_to.insert(key, origin.envelope.point);
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
        self.note_delivered(sequence, Deliverer::Own);
        if let Some((key, point)) = stream {
            if self.ready_to.get(&key).is_some_and(|last| last.is_covered_by(&point)) {
                self.ready_to.remove(&key);
            }
            self.advance(key, point);
        }
    }

    fn advance(&mut self, key: RemoteStreamKey, mut point: StreamPoint) {
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
pub(super) fn key_of(origin: &DurableOrigin, subject: &Subject) -> RemoteStreamKey {
    RemoteStreamKey::new(&origin.envelope, subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::durable::{DURABLE_HEADER, STORED_HEADER};
    use crate::link::envelope::RemotePublisher;
    use crate::link::position::PublisherPosition;
    use crate::link::shares::share_of;
    use crate::message::{Headers, Message};
    use crate::seqno::{Frame, Seq};
    use crate::subject::Pattern;

    const SUBJECT: &str = "orders.1";

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    fn seq(number: u64) -> Seq {
        Seq::from_parts(Frame::new(7).unwrap(), number).unwrap()
    }

    /// Returns the envelope of the message with this number, which is also its ordinal.
    fn envelope(number: u64) -> LinkEnvelope {
        let subject: Subject = SUBJECT.parse().unwrap();
        let position = PublisherPosition { seq: Some(seq(number)), ..PublisherPosition::default() };
        LinkEnvelope {
            site: "plant1".parse().unwrap(),
            share: share_of(&subject),
            number,
            publisher: RemotePublisher { epoch: Epoch::new(1).unwrap(), name: None },
            point: StreamPoint { gateway: Epoch::new(100).unwrap(), first_number: 1, ordinal: number, position },
        }
    }

    fn import() -> StoredImport {
        let imports = [SUBJECT.parse::<Pattern>().unwrap()].into_iter().collect();
        let mut import = StoredImport::new("hq".parse().unwrap(), imports, u64::MAX);
        import.start(100);
        import
    }

    fn read(import: &mut StoredImport, now: Instant, place: u64, number: u64) {
        let headers = envelope(number).add_to(&Headers::from_pairs([(DURABLE_HEADER, "0")]).unwrap()).unwrap();
        let message = Message { headers, ..Message::new(SUBJECT.parse().unwrap(), number.to_string()) };
        import.on_stored(now, place, StoredMessage::read(place, message));
    }

    fn hear(import: &mut StoredImport, place: u64, number: u64) {
        let key = RemoteStreamKey::new(&envelope(number), &SUBJECT.parse().unwrap());
        import.on_heard(place, Some(key), Some(envelope(number).point));
    }

    /// Returns the numbers of the messages for the LAN, with the losses before them.
    fn delivered(import: &mut StoredImport, now: Instant) -> Vec<(String, Option<Count>)> {
        import.on_tick(now);
        let deliveries = std::iter::from_fn(|| import.poll(now));
        let texts = deliveries.map(|delivery| {
            let number = String::from_utf8_lossy(&delivery.stored.message.payload).into_owned();
            assert!(delivery.stored.to_delivery("S").unwrap().headers.iter().any(|(key, _)| key == STORED_HEADER));
            (number, delivery.loss.map(|loss| loss.count))
        });
        texts.collect()
    }

    #[test]
    fn gap_behind_unheard_stream_is_doubtful() {
        let mut import = import();
        // The stream has the first one twice, and the second one before the position.
        read(&mut import, at(0), 101, 40);
        read(&mut import, at(0), 102, 42);
        assert_eq!(delivered(&mut import, at(1)), [("40".into(), None)]);
        assert_eq!(delivered(&mut import, at(16)), [("42".into(), Some(Count::from_bounds(0, 1)))]);
        read(&mut import, at(700), 103, 44);
        assert_eq!(delivered(&mut import, at(716)), [("44".into(), Some(Count::Exact(1)))], "it is known by now");
    }

    #[test]
    fn gap_behind_heard_stream_is_lost() {
        let mut import = import();
        hear(&mut import, 99, 40);
        read(&mut import, at(0), 101, 42);
        assert_eq!(delivered(&mut import, at(16)), [("42".into(), Some(Count::Exact(1)))]);
    }

    #[test]
    fn messages_of_another_gateway_are_delivered_again() {
        let mut import = import();
        hear(&mut import, 101, 40);
        hear(&mut import, 102, 41);
        read(&mut import, at(0), 101, 40);
        read(&mut import, at(0), 102, 41);
        read(&mut import, at(0), 103, 42);
        let expected = ["40", "41", "42"].map(|number| (number.to_owned(), None));
        assert_eq!(delivered(&mut import, at(0)), expected, "the LAN may have lost them for others");
        assert_eq!(import.poll(at(0)), None);
        assert_eq!(import.position(), Some(103));
        import.start(101);
        read(&mut import, at(1), 102, 41);
        assert!(delivered(&mut import, at(1)).is_empty(), "this gateway has delivered it");
    }
}
