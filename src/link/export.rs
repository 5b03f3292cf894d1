//! The exports of a gateway: the envelope of each message, and the manifests that follow.
//!
//! A gateway counts all messages of its LAN, also those of the shares that other gateways carry, and retains the last
//! ones of these. If it takes over a share, it exports those that it has not seen at the cluster. Its manifests then
//! name what it has counted, so that importers learn of what the gateway before it did not send.

use super::bye::GatewayBye;
use super::envelope::LinkEnvelope;
use super::manifest::{ENTRIES_MAX, LinkManifest, ManifestEntry};
use super::shares::{ANNOUNCE_INTERVAL, LISTEN_ALONE_TIME, SHARES, share_of};
use super::site_name::SiteName;
pub use super::stream_counts::Export;
pub(super) use super::stream_counts::LinkStreamKey;
use super::stream_counts::{CountedMessage, StreamCounts};
use crate::message::{Delivery, Epoch};
use crate::subject::Subject;
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Time without a message of a share after which a round names its streams.
const MANIFEST_DELAY: Duration = Duration::from_millis(20);
/// Maximum interval of the rounds of a share. Those that name nothing show importers whether they missed one, and are
/// sent with each second announcement.
pub(super) const ROUND_INTERVAL: Duration = ANNOUNCE_INTERVAL.saturating_mul(2);
const _: () = assert!(2 * ROUND_INTERVAL.as_millis() < LISTEN_ALONE_TIME.as_millis(), "two rounds are heard");
/// Maximum time by which a round that names nothing comes early, to be sent with another one.
const IDLE_ROUND_ADVANCE: Duration = Duration::from_millis(500);
/// Minimum time between two rounds of a share that importers request.
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);
/// Time from a take-over to its first round. Messages of the gateway before are still under way.
const TAKE_OVER_DELAY: Duration = Duration::from_secs(1);
/// Time from the release of a share to its first requested round: the next gateway may have to start before it exports
/// what this one counts.
const RELEASE_DELAY: Duration = Duration::from_secs(2);
/// Minimum time for which the last rounds of a gateway name the streams once more.
const LAST_ROUNDS_TIME: Duration = Duration::from_secs(5);
/// Time for which a message of a share that another gateway carries is retained: longer than a take-over takes.
pub(super) const STANDBY_TIME: Duration = Duration::from_secs(5);
/// Maximum bytes of these messages.
pub(super) const STANDBY_BYTES_MAX: usize = 64 << 20;
/// Bytes that each of them counts beside its body, for the envelope and the entry of the queue.
const STANDBY_ENTRY_BYTES: usize = 256;

/// Count of a share at a gateway.
#[derive(Debug)]
struct CountedShare {
    is_carried: bool,
    /// True from a release to the next round.
    is_released: bool,
    /// Number of the last message.
    last_number: u64,
    /// Number up to which the last round named the streams.
    named_to: u64,
    /// Numbers up to which rounds had named the streams some time ago. The last rounds of the gateway begin there, as
    /// nobody can request one of the rounds since then later.
    named_before: [u64; 2],
    named_before_at: Instant,
    /// Streams with messages behind that number, if this gateway carries the share.
    unnamed: Vec<LinkStreamKey>,
    /// Time of the next round. The first one, which names nothing, shows importers that the gateway exists.
    round_at: Instant,
    /// Latest time of the next round, even if messages keep coming.
    round_by: Instant,
    /// Time before which no message causes a round.
    rounds_from: Instant,
    /// Number from which an importer has requested a round.
    requested: Option<u64>,
    /// Time before which no requested round takes place.
    requests_from: Instant,
}

/// A message of a share that another gateway carries.
#[derive(Debug)]
struct StandbyMessage {
    at: Instant,
    export: Export,
}

impl StandbyMessage {
    /// Returns the bytes that the message counts towards [`STANDBY_BYTES_MAX`].
    fn bytes(&self) -> usize {
        STANDBY_ENTRY_BYTES + self.export.message.body_bytes()
    }
}

/// The exporting side of a gateway.
#[derive(Debug)]
pub struct Exporter {
    streams: StreamCounts,
    shares: [CountedShare; SHARES as usize],
    /// Messages of the shares that other gateways carry, oldest first.
    standby: VecDeque<StandbyMessage>,
    standby_bytes: usize,
    /// True once the last rounds are scheduled.
    is_leaving: bool,
}

impl CountedShare {
    fn new() -> CountedShare {
        CountedShare {
            is_carried: false,
            is_released: false,
            last_number: 0,
            named_to: 0,
            named_before: [0; 2],
            named_before_at: Instant::ZERO,
            unnamed: Vec::new(),
            round_at: Instant::ZERO,
            round_by: Instant::ZERO,
            rounds_from: Instant::ZERO,
            requested: None,
            requests_from: Instant::ZERO,
        }
    }

    fn deadline(&self) -> Instant {
        match self.requested {
            Some(_) => self.round_at.min(self.requests_from.max(self.rounds_from)),
            None => self.round_at,
        }
    }

    /// Schedules the round that follows a message.
    fn schedule_round(&mut self, now: Instant) {
        if self.is_carried {
            self.round_at = (now + MANIFEST_DELAY).max(self.rounds_from).min(self.round_by);
        }
    }

    /// Lets the next round be due now if it names nothing and would be due within this time.
    fn hasten_idle_round(&mut self, now: Instant, advance: Duration) {
        let is_idle = !self.is_carried || self.named_to == self.last_number;
        if is_idle && self.rounds_from <= now && self.round_at <= now + advance {
            self.round_at = now;
        }
    }

    /// Returns whether the next round is one that an importer has requested, and the number after which it begins.
    fn begin_round(&mut self, now: Instant) -> Option<u64> {
        self.round_by = now + ROUND_INTERVAL;
        self.round_at = self.round_by;
        if LAST_ROUNDS_TIME < now.since(self.named_before_at) {
            self.named_before = [self.named_before[1], self.named_to];
            self.named_before_at = now;
        }
        if now < self.requests_from {
            return None;
        }
        let requested = self.requested.take()?;
        self.requests_from = now + REQUEST_INTERVAL;
        Some(requested.min(self.named_to))
    }
}

impl Exporter {
    /// Creates the exporting side of a gateway in this epoch. It carries no share yet.
    pub fn new(site: SiteName, gateway: Epoch) -> Exporter {
        Exporter {
            streams: StreamCounts::new(site, gateway),
            shares: std::array::from_fn(|_| CountedShare::new()),
            standby: VecDeque::new(),
            standby_bytes: 0,
            is_leaving: false,
        }
    }

    /// Returns the epoch of the gateway.
    pub fn gateway(&self) -> Epoch {
        self.streams.gateway()
    }

    /// Counts a message that the LAN delivered. Returns it with its envelope if this gateway carries the share of the
    /// subject. Messages of other sites, repeated and replayed ones, and subjects that begin with `_` never cross.
    pub fn on_delivery(&mut self, now: Instant, delivery: &Delivery) -> Option<Export> {
        let share = &mut self.shares[usize::from(share_of(&delivery.message.subject))];
        let CountedMessage { export, previous, .. } = self.streams.count(delivery, &mut share.last_number)?;
        if share.is_carried && previous.is_none_or(|previous| previous <= share.named_to) {
            share.unnamed.push(export.key());
        }
        share.schedule_round(now);
        let is_carried = share.is_carried;
        if is_carried {
            return Some(export);
        }
        self.retain(StandbyMessage { at: now, export });
        None
    }

    /// Notes a message of the LAN on an exported subject that is not exported, such as a request. Importers do not miss
    /// it, although its publisher has numbered it.
    pub fn on_unexported(&mut self, delivery: &Delivery) {
        self.streams.on_unexported(delivery);
    }

    /// Notes a message that came back from the cluster in the name of this site.
    pub fn on_returned(&mut self, envelope: &LinkEnvelope, subject: &Subject) {
        let key = LinkStreamKey { publisher: envelope.publisher.epoch, subject: subject.clone() };
        if envelope.point.gateway != self.gateway() {
            self.streams.on_returned(&key, envelope.point.position.seq);
        }
    }

    /// Returns whether this gateway carries the share.
    pub fn carries(&self, share: u8) -> bool {
        self.shares.get(usize::from(share)).is_some_and(|share| share.is_carried)
    }

    /// Ends the exports of a share, which another gateway carries from now on.
    pub fn release(&mut self, share: u8) {
        let state = &mut self.shares[usize::from(share)];
        (state.is_carried, state.is_released) = (false, true);
        state.unnamed.clear();
    }

    /// Begins the exports of a share. Returns the retained messages that have not come back from the cluster. Messages
    /// without a number are not among them: importers could not drop what they get twice.
    pub fn take_over(&mut self, now: Instant, share: u8) -> Vec<Export> {
        let named_to = self.shares[usize::from(share)].named_to;
        let unnamed = self.streams.streams_behind(share, named_to);
        let state = &mut self.shares[usize::from(share)];
        (state.is_carried, state.is_released) = (true, false);
        state.unnamed = unnamed;
        state.rounds_from = now + TAKE_OVER_DELAY;
        state.round_by = state.rounds_from;
        state.round_at = state.rounds_from;
        let (taken, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.standby).into_iter().partition(|waiting| waiting.export.envelope.share == share);
        self.standby = kept;
        self.standby_bytes = self.standby.iter().map(StandbyMessage::bytes).sum();
        let is_missing = |export: &Export| {
            let returned = self.streams.get(&export.key()).and_then(|stream| stream.returned);
            export.envelope.point.position.seq.is_some_and(|seq| returned.is_none_or(|returned| returned < seq))
        };
        taken.into_iter().map(|waiting| waiting.export).filter(is_missing).collect()
    }

    /// Notes that an importer knows everything of a share only up to the number `after`.
    pub fn on_request(&mut self, share: u8, after: u64) {
        if let Some(share) = self.shares.get_mut(usize::from(share)) {
            share.requested = Some(share.requested.map_or(after, |earlier| earlier.min(after)));
        }
    }

    /// Returns the manifests of a round that is due. A gateway that does not carry the share names streams on request
    /// only. If any round is due, those that name nothing come early: one message then carries all of them.
    pub fn poll_round(&mut self, now: Instant) -> Option<Vec<LinkManifest>> {
        for share in self.shares.iter_mut().filter(|share| share.is_released) {
            share.is_released = false;
            share.requests_from = share.requests_from.max(now + RELEASE_DELAY);
        }
        let index = self.shares.iter().position(|share| share.deadline() <= now)?;
        self.hasten_idle_rounds(now, IDLE_ROUND_ADVANCE);
        let share = &mut self.shares[index];
        let requested = share.begin_round(now);
        let mut after = share.named_to;
        let mut named = Vec::new();
        if share.is_carried || requested.is_some() {
            share.named_to = share.last_number;
            named = std::mem::take(&mut share.unnamed);
        }
        let (carries, named_to, received) = (share.is_carried, share.named_to, share.last_number);
        if let Some(requested) = requested {
            after = requested;
            named = self.streams.streams_behind(index as u8, after);
        }
        let mut entries = named.into_iter().filter_map(|key| {
            // The count of a stream that was evicted begins anew with its next message.
            let stream = self.streams.get(&key)?;
            let (publisher, last_number, last) = (stream.publisher.clone(), stream.last_number, stream.last);
            Some(ManifestEntry { publisher, subject: key.subject, last_number, last })
        });
        let part = |part: usize, entries| LinkManifest {
            site: self.streams.site().clone(),
            gateway: self.streams.gateway(),
            share: index as u8,
            carries,
            after,
            named_to,
            received,
            part: part as u32,
            parts: 0,
            entries,
        };
        let mut round = vec![part(0, entries.by_ref().take(ENTRIES_MAX).collect())];
        while let Some(next) =
            Some(entries.by_ref().take(ENTRIES_MAX).collect::<Vec<_>>()).filter(|next| !next.is_empty())
        {
            round.push(part(round.len(), next));
        }
        let parts = round.len() as u32;
        round.iter_mut().for_each(|manifest| manifest.parts = parts);
        Some(round)
    }

    /// Lets the rounds that name nothing and that are due within this time take place now.
    pub(super) fn hasten_idle_rounds(&mut self, now: Instant, advance: Duration) {
        self.shares.iter_mut().for_each(|share| share.hasten_idle_round(now, advance));
    }

    /// Schedules the last rounds of a gateway that leaves: those of all shares are due at once, and name everything.
    pub fn on_stop(&mut self) {
        for share in &mut self.shares {
            share.is_released = false;
            (share.round_at, share.rounds_from, share.requests_from) = (Instant::ZERO, Instant::ZERO, Instant::ZERO);
            share.requested = Some(share.requested.unwrap_or(u64::MAX).min(share.named_before[0]));
        }
        self.is_leaving = true;
    }

    /// Returns the announcement of a gateway that leaves, after its last rounds.
    pub fn bye(&self) -> GatewayBye {
        let named_to = |share: &CountedShare| (share.is_carried || self.is_leaving).then_some(share.named_to);
        let named_to = self.shares.each_ref().map(named_to);
        GatewayBye { site: self.streams.site().clone(), gateway: self.gateway(), named_to }
    }

    /// Returns the time of the next round.
    pub fn deadline(&self) -> Instant {
        self.shares.iter().map(CountedShare::deadline).min().expect("there are shares")
    }

    fn retain(&mut self, waiting: StandbyMessage) {
        let now = waiting.at;
        self.standby_bytes += waiting.bytes();
        self.standby.push_back(waiting);
        self.expire_standby(now);
    }

    /// Drops all retained messages.
    pub(super) fn forget_standby(&mut self) {
        self.standby.clear();
        self.standby_bytes = 0;
    }

    /// Drops retained messages that are too old or too much.
    pub(super) fn expire_standby(&mut self, now: Instant) {
        while let Some(oldest) = self.standby.front()
            && (STANDBY_TIME < now.since(oldest.at) || STANDBY_BYTES_MAX < self.standby_bytes)
        {
            self.standby_bytes -= oldest.bytes();
            self.standby.pop_front();
        }
    }
}
