//! Imports from the stream of the cluster: each message once, in the order of its publisher on each subject.
//!
//! The stream keeps an order of its own. A message that an exporter had to send again stands behind later ones, so the
//! importer holds these back until it comes. What does not come in time is reported as lost.
//!
//! The [position](HubPosition) is the message up to which everything is delivered. It is stored at the cluster, and
//! another gateway continues there. What it has seen on the LAN behind the position it delivers again: the LAN may have
//! lost it for others, and the gateway that could have repeated it is gone. Peers drop what they have
//! ([`RepeatFilter`]), except for messages of clients, which have no numbers.
//!
//! A gateway that begins to read reads some messages before the position as well: they show how far each stream was. It
//! delivers those that are later than the position, so that their sequences were those of other messages, and those that
//! follow the last message of their streams that this gateway knows to be delivered: the copy of the stream that was
//! read before may have lacked them.
//!
//! [`RepeatFilter`]: crate::link::repeat_filter::RepeatFilter

mod holding;
mod review;
mod waiting;

use super::delivered_messages::{DeliveredMessages, Deliverer};
use super::held_messages::HeldMessages;
use super::hub_position::{HubPosition, StoredArrival};
use super::stored::{DurableOrigin, StoredMessage};
use super::uncertain_streams::UncertainStreams;
use crate::link::envelope::LinkEnvelope;
use crate::link::local_subjects::stays_local;
use crate::link::position::StreamPoint;
use crate::link::remote_stream_key::RemoteStreamKey;
use crate::link::site_loss::SiteLoss;
use crate::link::site_name::SiteName;
use crate::message::{Count, Epoch};
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::subject::pattern_set::PatternSet;
use crate::time::{Instant, WallTime};
use lru::LruCache;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;

/// Maximum bytes of the messages that wait for earlier ones. Further ones wait in the stream.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes that wait for the LAN. Further ones wait in the stream.
const READY_BYTES_MAX: usize = 4 << 20;
/// Maximum number of shares of gateways whose first number is remembered.
const FIRST_NUMBERS_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("not 0");
/// Maximum number of streams that are remembered. The account of a forgotten one begins anew.
const STREAMS_MAX: usize = 262_144;
/// Number of messages before the position that a gateway reads when it begins.
const REVIEWED_MAX: u64 = 500;
/// Maximum number of messages behind the position whose arrivals are known. Beyond it another gateway begins earlier.
const ARRIVALS_MAX: usize = 1 << 20;
/// Time by which deliveries may be ahead of the permitted rate.
const BURST_TIME: Duration = Duration::from_millis(20);

/// A durable message for the LAN, and the loss before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredDelivery {
    pub(super) stored: StoredMessage,
    pub(super) loss: Option<SiteLoss>,
}

/// The message that `poll` returned last, until the next call confirms it.
#[derive(Debug)]
struct Unconfirmed {
    arrival: StoredArrival,
    /// Its stream and its point; `None` for a message of a client.
    stream: Option<(RemoteStreamKey, StreamPoint)>,
}

/// Order of a message in its stream, compared with the last one.
enum MessageOrder {
    /// It was delivered or reported.
    Repeated,
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
    /// Stream sequence of the last message read, if this gateway reads the stream.
    read_to: Option<u64>,
    /// Position up to which everything was delivered when this gateway began to read.
    delivered_to: HubPosition,
    /// Arrivals of the messages that were read behind the position, in their order. The times ascend.
    arrivals: VecDeque<StoredArrival>,
    /// Stream sequences of messages that were read and that the LAN has not taken.
    open: BTreeSet<u64>,
    /// Messages behind the position that were delivered.
    delivered: DeliveredMessages,
    /// The first number that was read of each share of a gateway.
    first_numbers: LruCache<(SiteName, Epoch, u8), u64>,
    /// The last point of each stream that was delivered.
    last: LruCache<RemoteStreamKey, StreamPoint>,
    /// Later points, which another gateway has delivered, and behind which it waits for messages.
    awaited_behind: BTreeMap<RemoteStreamKey, StreamPoint>,
    uncertain_streams: UncertainStreams,
    /// Streams of which only messages before the position have shown how far they were.
    reviewed: BTreeSet<RemoteStreamKey>,
    /// The last point of each stream with messages that wait for the LAN.
    ready_to: BTreeMap<RemoteStreamKey, StreamPoint>,
    /// Messages that wait for earlier ones of their streams.
    held: HeldMessages,
    /// The last time at which nothing was read, since the LAN had to take too many bytes before.
    lan_was_behind: Option<Instant>,
    /// Time before which no further request for the earlier ones is due.
    request_at: Instant,
    /// The last gap that a request named, if others wait for the next one: its stream, and the message behind it.
    requested_to: Option<(RemoteStreamKey, Seq)>,
    ready: VecDeque<StoredDelivery>,
    ready_bytes: usize,
    unconfirmed: Option<Unconfirmed>,
    /// Time of the next delivery at the permitted rate.
    next_delivery_at: Instant,
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
            delivered_to: HubPosition::default(),
            arrivals: VecDeque::new(),
            open: BTreeSet::new(),
            delivered: DeliveredMessages::default(),
            first_numbers: LruCache::new(FIRST_NUMBERS_MAX),
            last: LruCache::unbounded(),
            awaited_behind: BTreeMap::new(),
            uncertain_streams: UncertainStreams::default(),
            reviewed: BTreeSet::new(),
            ready_to: BTreeMap::new(),
            held: HeldMessages::default(),
            lan_was_behind: None,
            request_at: Instant::ZERO,
            requested_to: None,
            ready: VecDeque::new(),
            ready_bytes: 0,
            unconfirmed: None,
            next_delivery_at: Instant::ZERO,
            repeated: 0,
            invalid: 0,
        }
    }

    /// Begins to read the stream behind a position. Returns the stream sequence behind which it reads.
    pub(super) fn start(&mut self, position: HubPosition) -> u64 {
        self.stop();
        let from = position.sequence.saturating_sub(REVIEWED_MAX);
        (self.read_to, self.delivered_to) = (Some(from), position);
        self.reviewed.clear();
        from
    }

    /// Reads and delivers what is behind an earlier stream sequence.
    pub(super) fn rewind(&mut self, sequence: u64) {
        self.accept_earlier(sequence);
        self.delivered_to = self.delivered_to.up_to(sequence);
    }

    /// Accepts messages behind an earlier stream sequence. Those up to the position are not delivered.
    pub(super) fn accept_earlier(&mut self, sequence: u64) {
        self.read_to = self.read_to.map(|read_to| read_to.min(sequence));
        self.arrivals.clear();
    }

    /// Ends the reading, and returns the position if this gateway has read. What was read and not delivered is read again
    /// by the gateway that continues.
    pub(super) fn stop(&mut self) -> Option<HubPosition> {
        self.confirm();
        let position = self.position();
        self.read_to = None;
        self.arrivals.clear();
        self.open.clear();
        (self.held, self.lan_was_behind) = (HeldMessages::default(), None);
        self.ready.clear();
        self.ready_to.clear();
        self.ready_bytes = 0;
        position
    }

    /// Returns whether further messages of the stream may be read.
    pub(super) fn has_room(&self) -> bool {
        self.read_to.is_some() && !self.is_lan_behind() && self.held.bytes() < HELD_BYTES_MAX
    }

    /// Returns whether too many bytes wait for the LAN for further ones to be read.
    fn is_lan_behind(&self) -> bool {
        READY_BYTES_MAX <= self.ready_bytes
    }

    /// Returns the position up to which everything is delivered, if this gateway reads the stream.
    pub(super) fn position(&self) -> Option<HubPosition> {
        let read_to = self.read_to?;
        let reached = self.open.first().map_or(read_to, |first| first - 1);
        let count = self.arrivals.partition_point(|arrival| arrival.sequence <= reached);
        let last = count.checked_sub(1).map(|index| self.arrivals[index]);
        Some(last.filter(|last| !self.delivered_to.covers(*last)).map_or(self.delivered_to, HubPosition::from))
    }

    /// Returns whether everything that was read is delivered.
    pub(super) fn is_delivered(&self) -> bool {
        self.open.is_empty()
    }

    /// Notes that this position of this gateway is stored.
    pub(super) fn on_position(&mut self, position: HubPosition) {
        position.at.into_iter().for_each(|at| self.forget_delivered(at));
        let passed = self.arrivals.partition_point(|arrival| arrival.sequence <= position.sequence);
        self.arrivals.drain(..passed);
        self.delivered_to = position;
    }

    /// Forgets the deliveries of messages up to this time: a gateway of the site has stored its position there.
    pub(super) fn forget_delivered(&mut self, at: WallTime) {
        self.delivered.forget(at);
    }

    /// Notes that another gateway has delivered the message that arrived then.
    pub(super) fn on_delivered_by_other(
        &mut self,
        arrival: StoredArrival,
        key: Option<RemoteStreamKey>,
        point: Option<StreamPoint>,
    ) {
        self.delivered.put(arrival, Deliverer::Other);
        if let Some((key, point)) = key.zip(point) {
            self.uncertain_streams.remove(&key);
            self.advance(key, point);
        }
    }

    /// Handles a message of the stream; `None` in place of one that cannot be read.
    pub(super) fn on_stored(&mut self, now: Instant, arrival: StoredArrival, stored: Option<StoredMessage>) {
        if !self.read(arrival) {
            return;
        }
        let is_before = self.delivered_to.covers(arrival);
        let Some(stored) = stored else {
            self.invalid += u64::from(!is_before);
            return;
        };
        let subject = &stored.message.subject;
        if stays_local(subject.as_bytes()) || !self.imports.matches(subject) {
            return;
        }
        let known = self.delivered.deliverer(arrival);
        let Some(origin) = &stored.origin else {
            if !is_before && known.is_none() {
                self.open.insert(arrival.sequence);
                self.push_ready(now, StoredDelivery { stored, loss: None });
            }
            return;
        };
        self.note_first_number(origin, || stored.is_restored());
        if origin.envelope.site == self.own {
            return;
        }
        let (key, point) = (key_of(origin, subject), origin.envelope.point);
        if is_before && !self.is_undelivered(arrival, &key, origin) {
            return self.review(key, point);
        }
        let elsewhere = self.delivered.deliverer_elsewhere(arrival);
        let is_own = [known, elsewhere].contains(&Some(Deliverer::Own));
        if known.or(elsewhere.filter(|_| !is_own)).is_none() {
            return self.on_site_message(now, key, stored);
        }
        self.advance(key.clone(), point);
        if !is_own && point.position.seq.is_some() {
            self.open.insert(arrival.sequence);
            self.push_ready(now, StoredDelivery { stored, loss: None });
        }
        self.release(now, &key);
    }

    /// Notes that a message was read. Returns false if it, or a later one, was read before.
    fn read(&mut self, arrival: StoredArrival) -> bool {
        let is_next = self.read_to.is_some_and(|read_to| read_to < arrival.sequence);
        if is_next {
            self.read_to = Some(arrival.sequence);
            // Another server may have a clock that is behind.
            let last = self.arrivals.back().map(|last| last.at).or(self.delivered_to.at);
            let at = last.map_or(arrival.at, |last| last.max(arrival.at));
            self.arrivals.push_back(StoredArrival { at, ..arrival });
            if ARRIVALS_MAX < self.arrivals.len() {
                self.arrivals.pop_front();
            }
        }
        is_next
    }

    /// Skips a message of the stream.
    pub(super) fn on_refused(&mut self, arrival: StoredArrival) {
        self.read(arrival);
    }

    fn on_site_message(&mut self, now: Instant, key: RemoteStreamKey, stored: StoredMessage) {
        match self.order(&key, &stored) {
            MessageOrder::Repeated => self.repeated += 1,
            MessageOrder::Next(missing) => {
                self.open.insert(stored.arrival.sequence);
                self.deliver(now, key.clone(), stored, missing);
                self.release(now, &key);
            }
            MessageOrder::Early => {
                self.open.insert(stored.arrival.sequence);
                self.held.put(now, key, stored);
            }
        }
    }

    /// Returns the last point of a stream that was delivered or waits for the LAN.
    fn last_point(&self, key: &RemoteStreamKey) -> Option<&StreamPoint> {
        let (ready, last) = (self.ready_to.get(key), self.last.peek(key));
        ready.filter(|ready| last.is_none_or(|last| !ready.precedes(last))).or(last)
    }

    fn order(&self, key: &RemoteStreamKey, stored: &StoredMessage) -> MessageOrder {
        let Some(origin) = &stored.origin else { return MessageOrder::Next(None) };
        if self.last_point(key).is_some_and(|last| origin.envelope.point.is_covered_by(last)) {
            return MessageOrder::Repeated;
        }
        match self.missing_before(key, origin) {
            Some(missing) if !origin.explains(missing) => MessageOrder::Early,
            missing => MessageOrder::Next(missing),
        }
    }

    /// Returns the number of messages before this one that were not delivered. All messages of a stream are owed if it
    /// began after the first contact with its gateway.
    fn missing_before(&self, key: &RemoteStreamKey, origin: &DurableOrigin) -> Option<Count> {
        let LinkEnvelope { site, share, point, .. } = &origin.envelope;
        match self.awaited_before(key, point).or_else(|| self.last_point(key)) {
            Some(last) => point.missing_since(last),
            None => {
                let first = *self.first_numbers.peek(&(site.clone(), point.gateway, *share))?;
                let missing = point.ordinal - 1;
                Some(Count::Exact(missing)).filter(|_| first <= point.first_number && 0 < missing)
            }
        }
    }

    /// Notes the first number of each share of a gateway that was read. Those of restored messages do not count.
    fn note_first_number(&mut self, origin: &DurableOrigin, is_restored: impl FnOnce() -> bool) {
        let LinkEnvelope { site, share, number, point, .. } = &origin.envelope;
        let key = (site.clone(), point.gateway, *share);
        let first = self.first_numbers.get(&key);
        if first.is_none_or(|first| number < first) && !is_restored() {
            self.first_numbers.put(key, *number);
        }
    }

    /// Delivers the messages that waited for the last one.
    fn release(&mut self, now: Instant, key: &RemoteStreamKey) {
        while let Some(first) = self.held.first(key) {
            let order = self.order(key, first);
            if matches!(order, MessageOrder::Early) {
                return;
            }
            let Some(stored) = self.held.pop_first(key) else { return };
            match order {
                MessageOrder::Next(missing) => self.deliver(now, key.clone(), stored, missing),
                _ => {
                    self.repeated += 1;
                    self.open.remove(&stored.arrival.sequence);
                }
            }
        }
    }

    /// Returns the time of the next [`StoredImport::on_tick`], [`StoredImport::poll`] or
    /// [`StoredImport::restore_requests`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        let held = self.held.oldest().map(|oldest| self.hold_end(oldest));
        let ready = (!self.ready.is_empty()).then_some(self.next_delivery_at);
        held.into_iter().chain(self.request_due()).chain(ready).min()
    }

    /// Delivers a message of another site, before which this number is missing.
    fn deliver(&mut self, now: Instant, key: RemoteStreamKey, stored: StoredMessage, missing: Option<Count>) {
        let Some(origin) = &stored.origin else { return };
        let is_awaited = self.awaited_before(&key, &origin.envelope.point).is_some();
        let is_unknown = !is_awaited && self.last_point(&key).is_none();
        if is_unknown && origin.lost < origin.envelope.point.ordinal - 1 {
            self.uncertain_streams.put(now, key.clone());
        }
        // Another gateway may have delivered them before this one heard of the stream, unless their LAN has lost them.
        let is_uncertain = !is_awaited && self.uncertain_streams.contains(now, &key);
        let missing = missing.map(|missing| match is_uncertain && !origin.explains(missing) {
            true => Count::from_bounds(0, missing.max()),
            false => missing,
        });
        let loss = missing.filter(|missing| 0 < missing.max()).map(|count| SiteLoss {
            origin: origin.envelope.clone(),
            subject: stored.message.subject.clone(),
            count,
            follows: true,
            is_durable: true,
        });
        self.ready_to.insert(key, origin.envelope.point);
        self.push_ready(now, StoredDelivery { stored, loss });
    }

    fn push_ready(&mut self, now: Instant, delivery: StoredDelivery) {
        self.ready_bytes += delivery.stored.bytes();
        self.ready.push_back(delivery);
        self.note_room(now);
    }

    /// Returns the next message for the LAN, at the permitted rate. The LAN has taken the one before.
    pub(super) fn poll(&mut self, now: Instant) -> Option<StoredDelivery> {
        self.confirm();
        if now + BURST_TIME < self.next_delivery_at {
            return None;
        }
        let next = self.ready.pop_front()?;
        self.ready_bytes -= next.stored.bytes();
        self.note_room(now);
        let origin = next.stored.origin.as_ref();
        let stream = origin.map(|origin| (key_of(origin, &next.stored.message.subject), origin.envelope.point));
        self.unconfirmed = Some(Unconfirmed { arrival: next.stored.arrival, stream });
        let cost = next.stored.bytes() as u64 * 1_000_000_000 / self.bytes_per_second.max(1);
        self.next_delivery_at = self.next_delivery_at.max(now) + Duration::from_nanos(cost);
        Some(next)
    }

    /// Notes that the message that was returned last does not get to the LAN.
    pub(super) fn withdraw(&mut self) {
        self.unconfirmed = None;
    }

    /// Notes that the LAN has taken the message that was returned last, or will do so.
    fn confirm(&mut self) {
        let Some(Unconfirmed { arrival, stream }) = self.unconfirmed.take() else { return };
        self.open.remove(&arrival.sequence);
        self.delivered.put(arrival, Deliverer::Own);
        if let Some((key, point)) = stream {
            if self.ready_to.get(&key).is_some_and(|last| last.is_covered_by(&point)) {
                self.ready_to.remove(&key);
            }
            self.advance(key, point);
        }
    }

    fn advance(&mut self, key: RemoteStreamKey, mut point: StreamPoint) {
        if self.awaited_behind.get(&key).is_some_and(|awaited| awaited.is_covered_by(&point)) {
            self.awaited_behind.remove(&key);
        }
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
    use crate::link::durable::{DURABLE_HEADER, HeldStream, STORED_HEADER};
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
        assert_eq!(import.start(position(100)), 0);
        import
    }

    /// Returns the arrival of the message with this stream sequence, one each second.
    fn arrival(sequence: u64) -> StoredArrival {
        StoredArrival { sequence, at: WallTime::from_nanos(sequence * 1_000_000_000) }
    }

    fn position(sequence: u64) -> HubPosition {
        HubPosition::from(arrival(sequence))
    }

    fn read(import: &mut StoredImport, now: Instant, sequence: u64, number: u64) {
        read_at(import, now, arrival(sequence), number);
    }

    fn read_at(import: &mut StoredImport, now: Instant, arrival: StoredArrival, number: u64) {
        let headers = envelope(number).add_to(&Headers::from_pairs([(DURABLE_HEADER, "0")]).unwrap()).unwrap();
        let message = Message { headers, ..Message::new(SUBJECT.parse().unwrap(), number.to_string()) };
        import.on_stored(now, arrival, StoredMessage::read(arrival, message));
    }

    fn hear(import: &mut StoredImport, sequence: u64, number: u64) {
        let (envelope, message) = (envelope(number), Message::new(SUBJECT.parse().unwrap(), ""));
        let key = RemoteStreamKey::new(&envelope, &message.subject);
        import.on_delivered_by_other(arrival(sequence), Some(key), Some(envelope.point));
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

    /// Lets the import read a message of a client that fills the room for those that wait for the LAN.
    fn fill(import: &mut StoredImport, now: Instant, sequence: u64) {
        let of_client = Message::new(SUBJECT.parse().unwrap(), vec![b'x'; READY_BYTES_MAX]);
        import.on_stored(now, arrival(sequence), StoredMessage::read(arrival(sequence), of_client));
    }

    #[test]
    fn message_waits_for_what_is_not_read() {
        let mut import = StoredImport { bytes_per_second: 200_000, ..import() };
        hear(&mut import, 99, 40);
        read(&mut import, at(0), 101, 42);
        [102, 103].into_iter().for_each(|sequence| fill(&mut import, at(0), sequence));
        assert_eq!((delivered(&mut import, at(0)).len(), import.has_room()), (1, false));
        assert_eq!(import.request_due(), Some(at(1)), "it may be missing all the same");
        assert!(delivered(&mut import, at(20)).is_empty(), "it may be in the stream");
        assert_eq!((delivered(&mut import, at(21)).len(), import.has_room()), (1, true));
        read(&mut import, at(21), 104, 41);
        assert_eq!(delivered(&mut import, at(60)), ["41", "42"].map(|number| (number.to_owned(), None)));
    }

    #[test]
    fn message_waits_until_enough_was_read() {
        let mut import = StoredImport { bytes_per_second: 200_000, ..import() };
        hear(&mut import, 99, 40);
        read(&mut import, at(0), 101, 42);
        [102, 116].into_iter().for_each(|sequence| fill(&mut import, at(0), sequence));
        assert_eq!(delivered(&mut import, at(0)).len(), 1);
        import.on_tick(at(14));
        assert_eq!(import.held.oldest().map(|oldest| oldest.since), Some(at(0)));
        import.on_tick(at(15));
        assert!(import.held.oldest().is_none(), "messages of 15 s behind it were read");
        let mut idle = self::import();
        hear(&mut idle, 99, 40);
        read(&mut idle, at(0), 101, 42);
        assert_eq!(idle.deadline(), Some(at(1)), "the request");
        assert_eq!(delivered(&mut idle, at(15)).len(), 1, "everything is read");
    }

    #[test]
    fn all_gaps_of_a_stream_are_requested() {
        let mut import = import();
        hear(&mut import, 99, 40);
        for (sequence, number) in [(101, 43), (102, 44), (103, 47)] {
            read(&mut import, at(0), sequence, number);
        }
        assert!(import.restore_requests(at(0)).is_empty());
        let requests = import.restore_requests(at(1));
        let requested = requests.values().next().expect("a request").messages();
        let gaps: Vec<_> = requested.map(|gap| (gap.after, gap.before, gap.count_max)).collect();
        assert_eq!(gaps, [(Some(seq(40)), seq(43), 2), (Some(seq(44)), seq(47), 2)]);
        assert!(import.restore_requests(at(2)).is_empty());
        assert_eq!(import.restore_requests(at(3)).len(), 1);
    }

    #[test]
    fn many_gaps_are_requested_in_turn() {
        let mut import = import();
        hear(&mut import, 99, 40);
        (1..=100).for_each(|gap| read(&mut import, at(0), 100 + gap, 40 + 2 * gap));
        let mut requested = |now: Instant| -> Vec<u64> {
            let requests = import.restore_requests(now);
            requests
                .values()
                .flat_map(|request| request.messages().collect::<Vec<_>>())
                .map(|gap| gap.before.count())
                .collect()
        };
        let [first, next] = [at(1), at(1) + Duration::from_millis(100)].map(&mut requested);
        let all: Vec<u64> = (1..=100).map(|gap| 40 + 2 * gap).collect();
        assert_eq!((first.len(), [first.clone(), next].concat()), (64, all));
        assert_eq!((requested(at(2)).len(), requested(at(4))), (0, first), "from the begin");
    }

    #[test]
    fn gap_behind_heard_stream_is_lost() {
        let mut import = import();
        hear(&mut import, 99, 40);
        read(&mut import, at(0), 101, 42);
        assert_eq!(delivered(&mut import, at(16)), [("42".into(), Some(Count::Exact(1)))]);
    }

    #[test]
    fn gap_before_which_another_gateway_waited_is_lost() {
        let [mut killed, mut next] = [import(), import()];
        hear(&mut killed, 99, 40);
        read(&mut killed, at(0), 101, 42);
        let HeldStream { key, last, .. } = killed.held_streams(at(0), None).next().expect("a stream waits");
        assert_eq!(killed.held_streams(at(0), Some(&key)).next(), None);
        next.on_held_by_other(key.clone(), last);
        read(&mut next, at(1), 101, 39);
        assert_eq!(delivered(&mut next, at(1)), [("39".into(), None)], "an earlier one, again");
        read(&mut next, at(1), 102, 42);
        assert!(delivered(&mut next, at(15)).is_empty());
        assert_eq!(next.held_streams(at(15), None).map(|held| held.last).collect::<Vec<_>>(), [last]);
        assert_eq!(delivered(&mut next, at(16)), [("42".into(), Some(Count::Exact(1)))]);
        next.on_held_by_other(key, last);
        read(&mut next, at(17), 103, 43);
        assert_eq!(delivered(&mut next, at(17)), [("43".into(), None)], "what was delivered since then counts");
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
        assert_eq!(import.position(), Some(position(103)));
        for time in [1, 2] {
            import.start(position(101));
            read(&mut import, at(time), 102, 41);
            assert!(delivered(&mut import, at(time)).is_empty(), "this gateway has delivered it");
        }
    }

    #[test]
    fn message_heard_before_each_restart_is_delivered_once() {
        let mut import = import();
        hear(&mut import, 101, 40);
        for _ in 0..2 {
            import.start(position(100));
            read(&mut import, at(0), 101, 40);
        }
        assert_eq!(delivered(&mut import, at(0)), [("40".into(), None)], "what was not delivered is read again");
    }

    #[test]
    fn messages_before_the_position_show_their_streams() {
        let mut import = import();
        assert_eq!(import.start(position(1_000)), 500);
        read(&mut import, at(0), 998, 41);
        read(&mut import, at(0), 999, 40);
        assert_eq!((delivered(&mut import, at(0)), import.position()), (Vec::new(), Some(position(1_000))));
        read(&mut import, at(0), 1_001, 40);
        read(&mut import, at(0), 1_002, 43);
        assert_eq!(delivered(&mut import, at(16)), [("43".into(), Some(Count::Exact(1)))], "40 came twice");
        assert_eq!(import.repeated, 1);
    }

    #[test]
    fn message_that_the_copy_before_lacked_is_delivered() {
        let mut import = import();
        hear(&mut import, 99, 40);
        import.start(position(200));
        read(&mut import, at(0), 101, 41);
        read(&mut import, at(0), 102, 42);
        // The message between them was delivered, or came late.
        read(&mut import, at(0), 103, 44);
        read(&mut import, at(0), 104, 45);
        read(&mut import, at(0), 201, 46);
        let expected = ["41", "42", "46"].map(|number| (number.to_owned(), None));
        assert_eq!((delivered(&mut import, at(0)), import.position()), (expected.into(), Some(position(201))));
        import.start(position(500));
        read(&mut import, at(0), 202, 47);
        assert!(delivered(&mut import, at(0)).is_empty(), "it is too old");
    }

    #[test]
    fn messages_behind_a_lost_end_are_new() {
        let mut import = import();
        read(&mut import, at(0), 101, 40);
        assert_eq!(delivered(&mut import, at(0)).len(), 1);
        import.start(HubPosition { sequence: 100, ..position(101) });
        read_at(&mut import, at(0), StoredArrival { sequence: 101, ..arrival(102) }, 41);
        assert_eq!(delivered(&mut import, at(0)), [("41".into(), None)]);
    }

    #[test]
    fn other_message_with_a_known_sequence_is_delivered() {
        let mut import = import();
        read(&mut import, at(0), 101, 40);
        read(&mut import, at(0), 102, 41);
        hear(&mut import, 103, 42);
        assert_eq!(delivered(&mut import, at(0)).len(), 2);
        // The copy that is read now has them two sequences earlier.
        import.start(position(101));
        for (sequence, number) in [(99, 40), (100, 41), (101, 42), (102, 43), (103, 44)] {
            read_at(&mut import, at(1), StoredArrival { sequence, ..arrival(sequence + 2) }, number);
        }
        let expected = ["42", "43", "44"].map(|number| (number.to_owned(), None));
        assert_eq!(delivered(&mut import, at(1)), expected, "the LAN may have lost 42 for others");
        let last = StoredArrival { sequence: 103, ..arrival(105) };
        assert_eq!(import.position(), Some(last.into()));
    }

    #[test]
    fn held_message_that_another_gateway_delivers_is_dropped() {
        let mut import = import();
        hear(&mut import, 99, 40);
        read(&mut import, at(0), 101, 42);
        hear(&mut import, 102, 42);
        assert!(delivered(&mut import, at(16)).is_empty());
        assert_eq!((import.position(), import.deadline()), (Some(position(101)), None));
    }
}
