//! Durable messages: those that outlast an outage, in a stream of the cluster (JetStream).
//!
//! ```text
//!  spool::Spool                messages of the LAN until the stream has stored them
//!  stored_import::StoredImport messages of the stream -> each once to the LAN, losses
//! ```
//!
//! The gateway that carries a share sends its messages to the stream, and the gateway that carries the first share reads
//! the stream for the whole site. The announcements of the gateways say how far each one is.

mod announcement;
mod delivered_messages;
mod held_messages;
mod hub_position;
mod reading_start;
mod restore_request;
mod restoring;
mod retained_messages;
mod spool;
mod stored;
mod stored_import;
mod stored_subjects;
mod uncertain_streams;

pub use self::hub_position::{HubPosition, StoredArrival};
pub use self::reading_start::{ReadingStart, StartedReading, StoredPosition};
pub use self::restore_request::{MissingMessages, RestoreRequest};
pub use self::spool::{SpoolSize, SpoolTicket, StoreOutcome, UNANSWERED_MAX};
pub use self::stored::{DURABLE_HEADER, ID_HEADER, SIGNATURE_HEADER, STORED_HEADER};

use self::announcement::AnnouncedStream;
pub(super) use self::announcement::DurableAnnouncement;
use self::held_messages::HeldStream;
use self::restoring::RequestedMessages;
use self::spool::{RETAIN_TIME, Spool};
use self::stored::{StoredMessage, durable_message, stored_arrival};
use self::stored_import::{StoredDelivery, StoredImport};
use self::stored_subjects::StoredSubjects;
use super::envelope::LinkEnvelope;
use super::remote_stream_key::RemoteStreamKey;
use super::shares::{GATEWAY_TIMEOUT, GATEWAYS_MAX, SHARES, share_of};
use super::site_loss::SiteLoss;
use super::site_name::SiteName;
use super::stream_counts::StreamCounts;
use crate::message::{Delivery, Epoch, Message};
use crate::subject::Subject;
use crate::subject::pattern_set::PatternSet;
use crate::time::{Instant, WallTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// The share whose gateway reads the stream of the cluster.
const STREAM_SHARE: u8 = 0;
/// Maximum time for which a gateway waits until another one has sent earlier messages. By then the connection of that one
/// does not return soon.
const DRAIN_TIME: Duration = Duration::from_secs(60);
/// Maximum number of streams that an announcement names in which the gateway waits.
const ANNOUNCED_STREAMS_MAX: usize = 64;
/// Delay between taking over share 0 and reading the stream. In that time the gateway hears what its predecessor
/// delivered.
const READ_DELAY: Duration = Duration::from_secs(1);

/// Settings of a gateway for durable messages.
#[derive(Clone, Debug, Default)]
pub struct DurableSettings {
    /// Subjects whose messages it sends to the stream.
    pub exports: PatternSet,
    /// Name of the cluster's stream.
    pub stream: String,
    /// Maximum bytes of the messages that the stream has not stored. Further ones are lost.
    pub spool_bytes_max: usize,
    /// Maximum rate at which messages of the stream are delivered to the LAN, in bytes per second.
    pub bytes_per_second: u64,
}

/// Counts of the durable messages of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurableCounts {
    /// Messages that the stream has stored.
    pub stored: u64,
    /// Messages that were sent to the stream once more, since it had lost them.
    pub restored: u64,
    /// Messages that were not stored because the spool was full, or because the stream never takes them. Importers
    /// report them as lost.
    pub unstored: u64,
    /// Messages of the stream that were delivered to the LAN.
    pub imported: u64,
    /// Messages of the stream that were read more than once.
    pub repeated: u64,
    /// Messages of the stream that cannot be read.
    pub invalid: u64,
    /// Messages that the limits of the stream removed before this site read them. Not all were for this site.
    pub discarded: u64,
}

/// A durable message for the LAN, or a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DurableDelivery {
    /// Site of the message; `None` if a client of the cluster has sent it.
    pub(super) site: Option<SiteName>,
    pub(super) message: Message,
    /// Whether the LAN can take it. Its header fields have no room for another one otherwise.
    pub(super) is_deliverable: bool,
    /// The loss before it.
    pub(super) loss: Option<SiteLoss>,
}

/// Another gateway that sends earlier messages.
#[derive(Clone, Copy, Debug)]
struct DrainingGateway {
    since: Instant,
    /// Time of its last announcement.
    announced_at: Instant,
}

/// The durable messages of a gateway.
#[derive(Debug)]
pub struct DurableGateway {
    exports: PatternSet,
    /// Name of the stream.
    stream: String,
    /// Subjects that the stream keeps.
    stored_subjects: StoredSubjects,
    started: Instant,
    streams: StreamCounts,
    numbers: [u64; SHARES as usize],
    spool: Spool,
    import: StoredImport,
    /// Messages that other sites have requested.
    requested: RequestedMessages,
    /// Time from which this gateway reads the stream.
    reads_from: Option<Instant>,
    /// Other gateways that send messages from before this one listened, in shares that they do not carry any more; at
    /// most as many as a site has.
    draining: BTreeMap<Epoch, DrainingGateway>,
    /// Position at which this gateway stopped to read the stream.
    own_position: Option<HubPosition>,
    /// Time of the position that this gateway has stored since it began to read the stream. It is some time behind: what
    /// was delivered before it is on the LAN by now.
    stored_time: Option<WallTime>,
    /// The last stream that was announced as one in which this gateway waits.
    announced_to: Option<RemoteStreamKey>,
    counts: DurableCounts,
}

impl DurableGateway {
    /// Creates the durable part of a gateway of `site` that starts now, and that takes the subjects of `imports`.
    pub(super) fn new(
        durable: &DurableSettings,
        site: &SiteName,
        imports: &PatternSet,
        epoch: Epoch,
        now: Instant,
    ) -> DurableGateway {
        DurableGateway {
            exports: durable.exports.clone(),
            stream: durable.stream.clone(),
            stored_subjects: StoredSubjects::default(),
            started: now,
            streams: StreamCounts::new(site.clone(), epoch),
            numbers: [0; SHARES as usize],
            spool: Spool::new(durable.spool_bytes_max),
            import: StoredImport::new(site.clone(), imports.clone(), durable.bytes_per_second),
            requested: RequestedMessages::default(),
            reads_from: None,
            draining: BTreeMap::new(),
            own_position: None,
            stored_time: None,
            announced_to: None,
            counts: DurableCounts::default(),
        }
    }

    /// Returns the counts.
    pub fn counts(&self) -> DurableCounts {
        DurableCounts { repeated: self.import.repeated, invalid: self.import.invalid, ..self.counts }
    }

    /// Returns the size of what waits for the stream.
    pub fn spool_size(&self) -> SpoolSize {
        self.spool.size()
    }

    /// Sets the subjects that the stream keeps. `has_live`: this site exports live messages on some of them.
    pub(super) fn set_stored_subjects(&mut self, now: Instant, subjects: PatternSet, has_live: bool) {
        self.stored_subjects.set(now, subjects, has_live);
    }

    /// Notes that some site exports live messages on a subject.
    pub(super) fn on_live_export(&mut self, subject: &Subject) {
        self.stored_subjects.on_live(subject);
    }

    /// Handles the begin or the end of the connection to the cluster.
    pub(super) fn on_link(&mut self, now: Instant) {
        self.stored_subjects.on_link(now);
    }

    /// Returns the subjects that need no subscription at the cluster: all their messages are read from the stream.
    pub fn stream_only_subjects(&self, now: Instant) -> PatternSet {
        self.stored_subjects.stream_only(now)
    }

    /// Returns the next message for the stream. [`DurableGateway::on_outcome`] gets the answer.
    pub fn poll_store(&mut self, now: Instant) -> Option<(SpoolTicket, Message)> {
        self.expire_draining(now);
        if self.draining.values().any(|draining| now < draining.since + DRAIN_TIME) {
            return None;
        }
        let (ticket, message) = self.spool.poll(now)?;
        Some((ticket, message.clone()))
    }

    /// Forgets gateways that are silent.
    fn expire_draining(&mut self, now: Instant) {
        self.draining.retain(|_, draining| now.since(draining.announced_at) < GATEWAY_TIMEOUT);
    }

    /// Handles the answer of the stream to a message.
    pub fn on_outcome(&mut self, now: Instant, ticket: SpoolTicket, outcome: StoreOutcome) {
        let is_sent_again = self.spool.on_outcome(now, ticket, outcome);
        if ticket.is_restored() {
            return;
        }
        match outcome {
            StoreOutcome::Stored { .. } | StoreOutcome::Duplicate { .. } => {
                self.counts.stored += u64::from(!is_sent_again)
            }
            StoreOutcome::Refused => self.counts.unstored += 1,
            StoreOutcome::Failed => {}
        }
    }

    /// Returns whether this gateway reads the stream now.
    pub fn reads(&self, now: Instant) -> bool {
        self.reads_from.is_some_and(|from| from <= now)
    }

    /// Begins to read the stream behind the stored position. A site that has none is owed what comes from now on. If it
    /// cannot be read, a gateway continues where it has stopped itself, or begins with the stream. A stream that was made
    /// anew is read from its begin, and one that has lost its last messages from its present end on.
    pub fn start_reading(&mut self, start: ReadingStart) -> StartedReading {
        let ReadingStart { stored, is_own, first, last, is_new } = start;
        let reached = match stored {
            _ if is_new => HubPosition::default(),
            StoredPosition::None => last,
            StoredPosition::Unreadable => self.own_position.unwrap_or_default(),
            // Only this gateway knows that it has delivered more, or begun again before the stored position.
            StoredPosition::At(stored) if is_own => self.own_position.unwrap_or(stored),
            StoredPosition::At(stored) => stored,
        };
        let position = HubPosition { sequence: reached.sequence.min(last.sequence), ..reached };
        let removed = first.saturating_sub(1).saturating_sub(position.sequence);
        self.counts.discarded += removed;
        self.stored_time = None;
        let position = HubPosition { sequence: position.sequence + removed, ..position };
        StartedReading { position, read_from: self.import.start(position), removed }
    }

    /// Reads and delivers what is behind an earlier stream sequence: the stream has subjects that this gateway has not
    /// read.
    pub fn rewind(&mut self, sequence: u64) {
        self.import.rewind(sequence);
    }

    /// Accepts messages from the begin of the stream on: the sequence of the position is that of a later message.
    pub fn accept_earlier(&mut self) {
        self.import.accept_earlier(0);
    }

    /// Returns whether messages wait for the stream.
    pub fn has_spooled(&self) -> bool {
        !self.spool.is_empty()
    }

    /// Returns whether further messages of the stream may be read.
    pub fn has_room(&self) -> bool {
        self.import.has_room()
    }

    /// Handles a message of the stream; `None` in place of one that is no message of the bus.
    pub fn on_stored(&mut self, now: Instant, arrival: StoredArrival, message: Option<Message>) {
        let stored = message.and_then(|message| StoredMessage::read(arrival, message));
        self.import.on_stored(now, arrival, stored);
    }

    /// Notes that a message of the stream is not accepted, or was read before.
    pub fn on_refused(&mut self, arrival: StoredArrival) {
        self.import.on_refused(arrival);
    }

    /// Returns the position up to which everything is delivered, while this gateway reads the stream.
    pub fn position(&self) -> Option<HubPosition> {
        self.import.position()
    }

    /// Returns whether everything that was read is delivered.
    pub fn is_delivered(&self) -> bool {
        self.import.is_delivered()
    }

    /// Notes that the cluster has stored this position of this gateway.
    pub fn on_position(&mut self, position: HubPosition) {
        self.stored_time = position.at;
        self.import.on_position(position);
    }

    /// Ends the reading of the stream. What was read and not delivered is read again. Returns the position at which this
    /// gateway has stopped last; `None` if it has never read.
    pub fn stop_reading(&mut self) -> Option<HubPosition> {
        self.own_position = self.import.stop().or(self.own_position);
        self.stored_time = None;
        self.own_position
    }

    /// Handles a message of the LAN. Returns whether it belongs to the durable ones.
    pub(super) fn on_delivery(&mut self, now: Instant, delivery: &Delivery) -> bool {
        let message = &delivery.message;
        if let Some(stored) = message.headers.field(STORED_HEADER) {
            if stored.split(' ').next() == Some(self.stream.as_str()) {
                self.on_delivered_by_other(message);
            }
            return true;
        }
        if !self.exports.matches(&message.subject) || LinkEnvelope::is_in(&message.headers) {
            return false;
        }
        let share = share_of(&message.subject);
        let Some(counted) = self.streams.count(delivery, &mut self.numbers[usize::from(share)]) else { return true };
        let is_spooled = durable_message(counted).is_ok_and(|message| self.spool.push(now, share, message));
        self.counts.unstored += u64::from(!is_spooled);
        true
    }

    fn on_delivered_by_other(&mut self, message: &Message) {
        let Some(arrival) = stored_arrival(&message.headers, &self.stream) else { return };
        let envelope = LinkEnvelope::find(&message.headers).and_then(Result::ok);
        let key = envelope.as_ref().map(|envelope| RemoteStreamKey::new(envelope, &message.subject));
        self.import.on_delivered_by_other(arrival, key, envelope.map(|envelope| envelope.point));
    }

    /// Returns whether a message of the cluster comes from the stream, too.
    pub fn is_stored(&self, message: &Message) -> bool {
        let headers = &message.headers;
        headers.field(DURABLE_HEADER).is_some()
            || self.stored_subjects.matches(&message.subject) && !LinkEnvelope::is_in(headers)
    }

    /// Returns the next message of the stream for the LAN.
    pub(super) fn poll_lan(&mut self, now: Instant) -> Option<DurableDelivery> {
        let StoredDelivery { stored, loss } = self.import.poll(now)?;
        let site = stored.origin.as_ref().map(|origin| origin.envelope.site.clone());
        Some(match stored.to_delivery(&self.stream) {
            Ok(message) => {
                self.counts.imported += 1;
                DurableDelivery { site, message, is_deliverable: true, loss }
            }
            Err(_) => DurableDelivery { site, message: stored.message, is_deliverable: false, loss },
        })
    }

    /// Handles a message that was to be delivered to the LAN, and is not.
    pub(super) fn on_withdrawn(&mut self, message: &Message) {
        if message.headers.field(STORED_HEADER).is_some() {
            self.import.withdraw();
        }
    }

    /// Reports messages that did not arrive within the hold time, and releases those behind them.
    pub(super) fn on_tick(&mut self, now: Instant) {
        self.expire_draining(now);
        self.spool.on_tick(now);
        self.import.on_tick(now);
    }

    /// Returns the time of the next [`DurableGateway::on_tick`].
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let begin = self.reads_from.filter(|from| now < *from);
        self.import.deadline().into_iter().chain(self.spool.deadline(now)).chain(begin).min()
    }

    /// Begins or ends to carry shares.
    pub(super) fn set_carried(&mut self, now: Instant, carries: impl Fn(u8) -> bool) {
        (0..SHARES).for_each(|share| self.spool.set_carried(share, carries(share)));
        if carries(STREAM_SHARE) {
            self.reads_from.get_or_insert(now + READ_DELAY);
        } else {
            self.reads_from = None;
            self.stop_reading();
        }
    }

    /// Returns what this gateway announces. `elects` selects the shares that it carries or is about to.
    /// It names streams in which this gateway waits, in at most `bytes_max` bytes.
    pub(super) fn announcement(
        &mut self,
        now: Instant,
        bytes_max: usize,
        elects: impl Fn(u8) -> bool,
    ) -> DurableAnnouncement {
        let oldest = self.spool.oldest(elects);
        DurableAnnouncement {
            listening_ms: now.since(self.started).as_millis() as u64,
            unstored_ms: oldest.map_or(0, |oldest| now.since(oldest).as_millis() as u64),
            draining: self.spool.is_draining(),
            position_time: self.stored_time.map_or(0, WallTime::as_nanos),
            held: self.announced_streams(now, bytes_max),
        }
    }

    /// Returns the streams behind those of the last announcement in which this gateway waits.
    fn announced_streams(&mut self, now: Instant, bytes_max: usize) -> Vec<AnnouncedStream> {
        let (mut announced, mut bytes, mut last_key) = (Vec::new(), 0, None);
        let behind = self.announced_to.take();
        for HeldStream { key, last, waiting } in self.import.held_streams(now, behind.as_ref()) {
            let stream = AnnouncedStream::new(&key, last, waiting);
            bytes += stream.bytes();
            if bytes_max < bytes || ANNOUNCED_STREAMS_MAX <= announced.len() {
                self.announced_to = last_key;
                break;
            }
            announced.push(stream);
            last_key = Some(key);
        }
        announced
    }

    /// Handles the announcement of another gateway. `elects` selects the shares that it carries or is about to.
    pub(super) fn on_announcement(
        &mut self,
        now: Instant,
        gateway: Epoch,
        announced: &DurableAnnouncement,
        elects: impl Fn(u8) -> bool,
    ) {
        let DurableAnnouncement { listening_ms, unstored_ms, draining, position_time, .. } = *announced;
        self.on_announced_streams(announced);
        // The other gateway matters only if it may hold messages from before this one listened.
        let is_earlier =
            before(now, listening_ms) < self.started && before(now, unstored_ms) < self.started + RETAIN_TIME;
        if !(draining && is_earlier) {
            self.draining.remove(&gateway);
        } else if self.draining.len() < GATEWAYS_MAX || self.draining.contains_key(&gateway) {
            self.draining.entry(gateway).or_insert(DrainingGateway { since: now, announced_at: now }).announced_at =
                now;
        }
        if 0 < position_time {
            self.import.forget_delivered(WallTime::from_nanos(position_time));
        }
        let heard_from = before(now, listening_ms) + RETAIN_TIME;
        let stored_to = before(now, unstored_ms.saturating_add(RETAIN_TIME.as_millis() as u64));
        for share in (0..SHARES).filter(|share| elects(*share)) {
            self.spool.on_carrier(now, share, heard_from, stored_to);
        }
    }

    fn on_announced_streams(&mut self, announced: &DurableAnnouncement) {
        for (key, last) in announced.held.iter().take(ANNOUNCED_STREAMS_MAX).filter_map(AnnouncedStream::read) {
            self.import.on_held_by_other(key, last);
        }
    }

    /// Handles the last announcement of a gateway that leaves.
    pub(super) fn on_departure(&mut self, gateway: Epoch, announced: &DurableAnnouncement) {
        self.draining.remove(&gateway);
        self.on_announced_streams(announced);
    }
}

/// Returns the time that is this number of milliseconds before another one.
fn before(now: Instant, ms: u64) -> Instant {
    Instant::ZERO + now.since(Instant::ZERO).saturating_sub(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: Instant = Instant::from_nanos(10_000_000_000);

    fn durable() -> DurableGateway {
        let (site, epoch) = ("hq".parse().unwrap(), Epoch::new(1).unwrap());
        DurableGateway::new(&DurableSettings::default(), &site, &PatternSet::default(), epoch, STARTED)
    }

    #[test]
    fn reading_begins_where_stream_and_position_allow() {
        let start = ReadingStart {
            stored: StoredPosition::At(HubPosition::of_sequence(100)),
            is_own: false,
            first: 1,
            last: HubPosition::of_sequence(200),
            is_new: false,
        };
        for (what, start, expected) in [
            ("the stored position", start, 100),
            ("a site without a position", ReadingStart { stored: StoredPosition::None, ..start }, 200),
            ("a position that cannot be read", ReadingStart { stored: StoredPosition::Unreadable, ..start }, 0),
            ("the stream has lost its end", ReadingStart { last: HubPosition::of_sequence(90), ..start }, 90),
            ("another stream", ReadingStart { last: HubPosition::of_sequence(90), is_new: true, ..start }, 0),
            ("another stream that has more", ReadingStart { is_new: true, ..start }, 0),
            ("messages were removed", ReadingStart { first: 151, ..start }, 150),
            ("all were removed", ReadingStart { first: 201, ..start }, 200),
        ] {
            let mut durable = durable();
            let StartedReading { position, removed, .. } = durable.start_reading(start);
            let expected = HubPosition::of_sequence(expected);
            assert_eq!((position, durable.position()), (expected, Some(expected)), "{what}");
            assert_eq!(removed, start.first.saturating_sub(101), "{what}");
            assert_eq!(durable.counts().discarded, removed, "{what}");
        }
    }

    #[test]
    fn removed_messages_leave_the_time_of_the_position() {
        let stored = HubPosition { sequence: 100, at: Some(WallTime::from_nanos(7)) };
        let start = ReadingStart { stored: StoredPosition::At(stored), first: 151, ..ReadingStart::default() };
        let start = ReadingStart { last: HubPosition::of_sequence(200), ..start };
        // Another copy of the stream may have the first message at an earlier place.
        let expected = HubPosition { sequence: 150, ..stored };
        assert_eq!(durable().start_reading(start).position, expected);
    }

    #[test]
    fn removed_messages_are_counted_once() {
        let mut durable = durable();
        let start = ReadingStart {
            stored: StoredPosition::At(HubPosition::of_sequence(100)),
            is_own: true,
            first: 151,
            last: HubPosition::of_sequence(200),
            is_new: false,
        };
        for _ in 0..2 {
            assert_eq!(durable.start_reading(start).position.sequence, 150);
            durable.stop_reading();
        }
        assert_eq!(durable.counts().discarded, 50);
    }

    #[test]
    fn last_reader_continues_at_its_own_position() {
        let mut durable = durable();
        let start = ReadingStart {
            stored: StoredPosition::At(HubPosition::of_sequence(1_000)),
            is_own: true,
            first: 1,
            last: HubPosition::of_sequence(2_000),
            is_new: false,
        };
        durable.start_reading(start);
        durable.rewind(900);
        durable.on_refused(StoredArrival { sequence: 905, at: WallTime::from_nanos(905) });
        durable.stop_reading();
        assert_eq!(durable.start_reading(start).position.sequence, 905, "the rest is still to be read");
        durable.stop_reading();
        let start = ReadingStart { stored: StoredPosition::At(HubPosition::of_sequence(950)), is_own: false, ..start };
        assert_eq!(durable.start_reading(start).position.sequence, 950);
        durable.stop_reading();
        let start = ReadingStart { stored: StoredPosition::Unreadable, ..start };
        assert_eq!(durable.start_reading(start).position.sequence, 950, "another one's writing in its place");
    }

    #[test]
    fn draining_gateways_are_bounded_and_expire() {
        let (mut durable, now) = (durable(), STARTED);
        let announced = DurableAnnouncement { listening_ms: 5_000, draining: true, ..DurableAnnouncement::default() };
        for gateway in 2..200 {
            durable.on_announcement(now, Epoch::new(gateway).unwrap(), &announced, |_| false);
        }
        assert_eq!(durable.draining.len(), GATEWAYS_MAX);
        durable.on_tick(now + GATEWAY_TIMEOUT);
        assert!(durable.draining.is_empty());
    }
}
