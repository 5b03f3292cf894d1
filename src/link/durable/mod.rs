//! Durable messages: those that outlast an outage, in a stream of the cluster (JetStream).
//!
//! ```text
//!  spool::Spool                messages of the LAN until the stream has stored them
//!  stored_import::StoredImport messages of the stream -> each once to the LAN, losses
//! ```
//!
//! The gateway that carries a share sends its messages to the stream, and the gateway that carries the first share reads
//! the stream for the whole site. The announcements of the gateways say how far each one is.

mod spool;
mod stored;
mod stored_import;

pub use self::spool::{SpoolSize, SpoolTicket, StoreOutcome};
pub use self::stored::{DURABLE_HEADER, ID_HEADER, SIGNATURE_HEADER, STORED_HEADER};

use self::spool::{RETAIN_TIME, Spool};
use self::stored::{StoredMessage, durable_message, stored_place};
use self::stored_import::{StoredDelivery, StoredImport};
use super::envelope::LinkEnvelope;
use super::remote_stream_key::RemoteStreamKey;
use super::shares::{GATEWAY_TIMEOUT, SHARES, share_of};
use super::site_loss::SiteLoss;
use super::site_name::SiteName;
use super::stream_counts::StreamCounts;
use crate::message::{Delivery, Epoch, Message};
use crate::subject::Subject;
use crate::subject::pattern_set::PatternSet;
use crate::time::Instant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The share whose gateway reads the stream of the cluster.
const STREAM_SHARE: u8 = 0;
/// Maximum time for which a gateway waits until another one has sent earlier messages. By then the connection of that one
/// does not return soon.
const DRAIN_TIME: Duration = Duration::from_secs(60);
/// Time after the begin of that share at which the gateway reads the stream: by then it has seen on the LAN what the one
/// before it has delivered.
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

/// State of a gateway's durable messages, for the other gateways of its LAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DurableAnnouncement {
    /// Milliseconds since it began to listen to the LAN.
    listening_ms: u64,
    /// Age in milliseconds of its oldest message that is not stored; 0 if all are.
    unstored_ms: u64,
    /// Whether it sends messages of shares that others carry.
    draining: bool,
    /// Place in the stream up to which everything was delivered some time ago, as far as it knows.
    position: u64,
}

/// Counts of the durable messages of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurableCounts {
    /// Messages that the stream has stored.
    pub stored: u64,
    /// Messages that were not stored because the spool was full, or because the stream never takes them. Importers
    /// report them as lost.
    pub unstored: u64,
    /// Messages of the stream that were delivered to the LAN.
    pub imported: u64,
    /// Messages of the stream that were read more than once.
    pub repeated: u64,
    /// Messages of the stream that cannot be read.
    pub invalid: u64,
    /// Places of the stream that its limits removed before this site read them. Not all held a message for this site.
    pub discarded: u64,
}

/// A durable message for the LAN, or a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DurableDelivery {
    /// Site of the message; `None` if a client of the cluster has sent it.
    pub(super) site: Option<SiteName>,
    pub(super) message: Message,
    /// The loss before it.
    pub(super) loss: Option<SiteLoss>,
}

/// Another gateway that sends earlier messages.
#[derive(Clone, Copy, Debug)]
struct DrainingGateway {
    since: Instant,
    /// Time of its last announcement.
    heard_at: Instant,
}

/// The durable messages of a gateway.
#[derive(Debug)]
pub struct DurableGateway {
    exports: PatternSet,
    /// Name of the stream.
    stream: String,
    /// Subjects that the stream keeps.
    stream_subjects: PatternSet,
    started: Instant,
    streams: StreamCounts,
    numbers: [u64; SHARES as usize],
    spool: Spool,
    import: StoredImport,
    /// Time from which this gateway reads the stream.
    reads_from: Option<Instant>,
    /// Other gateways that send messages from before this one listened, in shares that they do not carry any more.
    draining: BTreeMap<Epoch, DrainingGateway>,
    /// The highest position that this gateway has reached, or that another one has announced.
    known_position: u64,
    /// The highest position that is known to be stored. It is some time behind: what was delivered before it is on the
    /// LAN by now.
    stored_position: u64,
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
            stream_subjects: PatternSet::default(),
            started: now,
            streams: StreamCounts::new(site.clone(), epoch),
            numbers: [0; SHARES as usize],
            spool: Spool::new(durable.spool_bytes_max),
            import: StoredImport::new(site.clone(), imports.clone(), durable.bytes_per_second),
            reads_from: None,
            draining: BTreeMap::new(),
            known_position: 0,
            stored_position: 0,
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

    /// Sets the subjects that the stream keeps. Messages of the cluster on these come from the stream only.
    pub fn set_stream_subjects(&mut self, subjects: PatternSet) {
        self.stream_subjects = subjects;
    }

    /// Returns the next message for the stream. [`DurableGateway::on_outcome`] gets the answer.
    pub fn poll_store(&mut self, now: Instant) -> Option<(SpoolTicket, Message)> {
        self.draining.retain(|_, draining| now.since(draining.heard_at) < GATEWAY_TIMEOUT);
        if self.draining.values().any(|draining| now < draining.since + DRAIN_TIME) {
            return None;
        }
        let (ticket, message) = self.spool.poll(now)?;
        Some((ticket, message.clone()))
    }

    /// Handles the answer of the stream to a message.
    pub fn on_outcome(&mut self, now: Instant, ticket: SpoolTicket, outcome: StoreOutcome) {
        match outcome {
            StoreOutcome::Stored => self.counts.stored += 1,
            StoreOutcome::Refused => self.counts.unstored += 1,
            StoreOutcome::Failed => {}
        }
        self.spool.on_outcome(now, ticket, outcome);
    }

    /// Returns whether this gateway reads the stream now.
    pub fn reads(&self, now: Instant) -> bool {
        self.reads_from.is_some_and(|from| from <= now)
    }

    /// Begins to read the stream, whose last place is given, behind the stored position, or behind the one that is known
    /// from announcements if that is later. Returns the position. A stream that ends before it was made anew: it is read
    /// from its begin.
    pub fn start_reading(&mut self, stored: u64, last: u64) -> u64 {
        let mut position = stored.max(self.known_position);
        if last < position {
            (position, self.known_position, self.stored_position) = (0, 0, 0);
            self.import.on_position(u64::MAX);
        }
        self.import.start(position);
        position
    }

    /// Begins again to read the stream, behind an earlier place: the stream has subjects that this gateway has not read.
    pub fn read_again(&mut self, position: u64) {
        self.import.start(position);
    }

    /// Returns whether messages wait for the stream.
    pub fn has_spooled(&self) -> bool {
        self.spool.size().bytes != 0
    }

    /// Returns whether further messages of the stream may be read.
    pub fn has_room(&self) -> bool {
        self.import.has_room()
    }

    /// Handles a message of the stream at this place; `None` in place of one that is no message of the bus.
    pub fn on_stored(&mut self, now: Instant, sequence: u64, message: Option<Message>) {
        let stored = message.and_then(|message| StoredMessage::read(sequence, message));
        self.import.on_stored(now, sequence, stored);
    }

    /// Notes that the message of the stream at this place is not accepted.
    pub fn on_refused(&mut self, sequence: u64) {
        self.import.on_refused(sequence);
    }

    /// Notes that the stream has removed this number of places that this site has not read.
    pub fn on_discarded(&mut self, count: u64) {
        self.counts.discarded += count;
    }

    /// Returns the place in the stream up to which everything is delivered, while this gateway reads the stream.
    pub fn position(&self) -> Option<u64> {
        self.import.position()
    }

    /// Notes that the cluster has stored this position.
    pub fn on_position(&mut self, position: u64) {
        self.stored_position = self.stored_position.max(position);
        self.import.on_position(position);
    }

    /// Ends the reading of the stream. What was read and not delivered is read again.
    pub fn stop_reading(&mut self) {
        if let Some(position) = self.import.stop() {
            self.known_position = self.known_position.max(position);
        }
    }

    /// Handles a message of the LAN. Returns whether it belongs to the durable ones.
    pub(super) fn on_delivery(&mut self, now: Instant, delivery: &Delivery) -> bool {
        let message = &delivery.message;
        if let Some(place) = message.headers.field(STORED_HEADER) {
            if place.split(' ').next() == Some(self.stream.as_str()) {
                self.on_heard(message);
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

    fn on_heard(&mut self, message: &Message) {
        let Some(sequence) = stored_place(&message.headers, &self.stream) else { return };
        let envelope = LinkEnvelope::find(&message.headers).and_then(Result::ok);
        let key = envelope.as_ref().map(|envelope| RemoteStreamKey::new(envelope, &message.subject));
        self.import.on_heard(sequence, key, envelope.map(|envelope| envelope.point));
    }

    /// Returns whether a message of the cluster comes from the stream, too.
    pub fn is_stored(&self, message: &Message) -> bool {
        let headers = &message.headers;
        headers.field(DURABLE_HEADER).is_some() || self.keeps(&message.subject) && !LinkEnvelope::is_in(headers)
    }

    /// Returns whether the stream keeps this subject.
    pub(super) fn keeps(&self, subject: &Subject) -> bool {
        self.stream_subjects.matches(subject)
    }

    /// Returns the next message of the stream for the LAN.
    pub(super) fn poll_lan(&mut self, now: Instant) -> Option<DurableDelivery> {
        loop {
            let StoredDelivery { stored, loss } = self.import.poll(now)?;
            let Ok(message) = stored.to_delivery(&self.stream) else {
                self.counts.invalid += 1;
                continue;
            };
            let site = stored.origin.as_ref().map(|origin| origin.envelope.site.clone());
            self.counts.imported += 1;
            return Some(DurableDelivery { site, message, loss });
        }
    }

    /// Handles a message that was to be delivered to the LAN, and is not.
    pub(super) fn on_withdrawn(&mut self, message: &Message) {
        if message.headers.field(STORED_HEADER).is_some() {
            self.import.withdraw();
        }
    }

    /// Does what is due.
    pub(super) fn on_tick(&mut self, now: Instant) {
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
    pub(super) fn announcement(&self, now: Instant, elects: impl Fn(u8) -> bool) -> DurableAnnouncement {
        let oldest = self.spool.oldest(elects);
        DurableAnnouncement {
            listening_ms: now.since(self.started).as_millis() as u64,
            unstored_ms: oldest.map_or(0, |oldest| now.since(oldest).as_millis() as u64),
            draining: self.spool.is_draining(),
            position: self.stored_position,
        }
    }

    /// Handles the announcement of another gateway. `elects` selects the shares that it carries or is about to.
    pub(super) fn on_announcement(
        &mut self,
        now: Instant,
        gateway: Epoch,
        announced: &DurableAnnouncement,
        elects: impl Fn(u8) -> bool,
    ) {
        let DurableAnnouncement { listening_ms, unstored_ms, draining, position } = *announced;
        // Everything else this gateway has, too.
        let is_earlier =
            before(now, listening_ms) < self.started && before(now, unstored_ms) < self.started + RETAIN_TIME;
        if draining && is_earlier {
            self.draining.entry(gateway).or_insert(DrainingGateway { since: now, heard_at: now }).heard_at = now;
        } else {
            self.draining.remove(&gateway);
        }
        if 0 < position {
            self.known_position = self.known_position.max(position);
            self.on_position(position);
        }
        let heard_from = before(now, listening_ms) + RETAIN_TIME;
        let stored_to = before(now, unstored_ms.saturating_add(RETAIN_TIME.as_millis() as u64));
        for share in (0..SHARES).filter(|share| elects(*share)) {
            self.spool.on_carrier(share, heard_from, stored_to);
        }
    }

    /// Notes that another gateway has left.
    pub(super) fn on_departure(&mut self, gateway: Epoch) {
        self.draining.remove(&gateway);
    }
}

/// Returns the time that is this number of milliseconds before another one.
fn before(now: Instant, ms: u64) -> Instant {
    Instant::ZERO + now.since(Instant::ZERO).saturating_sub(Duration::from_millis(ms))
}
