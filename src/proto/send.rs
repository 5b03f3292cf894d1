//! Sending side: packs records, numbers and seals datagrams, splits large messages, and schedules heartbeats.

use crate::message::{Dseq, Epoch, MessageRef};
use crate::proto::Settings;
use crate::proto::mutant::{Mutant, Mutants};
use crate::seqno::Seq;
use crate::time::Instant;
use crate::wire::{
    self, Builder, CheckValue, Entry, Header, Kind, PeerAnnouncement, RETAINED_BYTES_MIN, Record, entry,
};
use bytes::Bytes;
use std::time::Duration;

/// Interval from the last datagram to the first heartbeat; the intervals then double (R3).
pub const HEARTBEAT_FIRST: Duration = Duration::from_millis(20);

/// Schedule of heartbeats: at +20, 60, 140, 300, 620 ms … after the last datagram, then at the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatTimer {
    next: Instant,
    interval: Duration,
    interval_max: Duration,
    /// Time of the last heartbeat. A publisher that never pauses still sends one heartbeat per interval.
    last: Instant,
}

impl HeartbeatTimer {
    /// Creates the schedule after a datagram sent now; the intervals grow up to `interval_max`.
    pub fn new(now: Instant, interval_max: Duration) -> HeartbeatTimer {
        let interval = HEARTBEAT_FIRST.min(interval_max);
        HeartbeatTimer { next: now + interval, interval, interval_max, last: now }
    }

    /// Creates the schedule of a starting peer: at 0, +20, 60, 140 ms …
    pub fn starting(now: Instant, interval_max: Duration) -> HeartbeatTimer {
        HeartbeatTimer { next: now, interval: HEARTBEAT_FIRST / 2, interval_max, last: now }
    }

    /// Creates a schedule at the fixed interval from the first heartbeat on.
    pub fn steady(now: Instant, interval_max: Duration) -> HeartbeatTimer {
        HeartbeatTimer { next: now + interval_max, interval: interval_max, interval_max, last: now }
    }

    /// Restarts the sequence after a datagram was sent.
    pub fn on_datagram(&mut self, now: Instant) {
        let soon = HeartbeatTimer::new(now, self.interval_max);
        *self = HeartbeatTimer { next: soon.next.min(self.last + self.interval_max), last: self.last, ..soon };
    }

    /// Returns the time of the next heartbeat.
    pub fn deadline(&self) -> Instant {
        self.next
    }

    /// Returns whether a heartbeat is due; if so, the next one is scheduled.
    pub fn take_due(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        // Rule: heartbeat
        self.interval = (self.interval * 2).min(self.interval_max);
        self.next = now + self.interval;
        self.last = now;
        true
    }
}

/// Header fields that all datagrams of one epoch of the peer share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The group's number.
    pub group: u16,
    /// Epoch of the peer.
    pub epoch: Epoch,
    /// Start time of the epoch.
    pub started: Instant,
}

impl Origin {
    fn header(&self, now: Instant, kind: Kind, number: u64, count: u64, receiver: Option<Epoch>) -> Header {
        let uptime = now.since(self.started).as_millis();
        let uptime_ms = u32::try_from(uptime).unwrap_or(u32::MAX);
        Header { kind, group: self.group, epoch: self.epoch, number, count, uptime_ms, receiver }
    }
}

/// A datagram that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedDatagram {
    /// Number of the datagram.
    pub dseq: Dseq,
    /// Number of messages begun in all earlier datagrams of its stream.
    pub before: u64,
    /// The UDP payload.
    pub bytes: Bytes,
}

/// One stream of numbered datagrams: the multicast stream, or the directed stream to one peer.
#[derive(Debug)]
pub struct SendStream {
    receiver: Option<Epoch>,
    builder: Builder,
    bytes_max: usize,
    check_value: CheckValue,
    high: Dseq,
    /// Number of messages begun in all sealed datagrams.
    count: u64,
    mutants: Mutants,
}

impl SendStream {
    /// Creates a stream without datagrams; `receiver` makes it a directed one.
    pub fn new(receiver: Option<Epoch>, settings: &Settings) -> SendStream {
        let Settings { datagram_bytes_max: bytes_max, check_value, mutants, .. } = *settings;
        let builder = Builder::with_check_value(bytes_max, check_value);
        SendStream { receiver, builder, bytes_max, check_value, high: Dseq(0), count: 0, mutants }
    }

    /// Continues after a datagram of the same stream, up to which `count` messages were begun.
    pub fn resume(&mut self, high: Dseq, count: u64) {
        assert!(self.high == Dseq(0) && !self.is_open(), "only a stream without datagrams is resumed");
        (self.high, self.count) = (high, count);
    }

    /// Sets the maximum size of later datagrams, in bytes of UDP payload: 576 to 65,507.
    ///
    /// # Panics
    /// If a datagram is open, which may be larger.
    pub fn limit_bytes(&mut self, bytes_max: usize) {
        assert!(!self.is_open(), "an open datagram may be larger");
        (self.builder, self.bytes_max) = (Builder::with_check_value(bytes_max, self.check_value), bytes_max);
    }

    /// Returns the last datagram sealed.
    pub fn high(&self) -> Dseq {
        self.high
    }

    /// Returns the number of messages begun in all sealed datagrams.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether records wait for the datagram to be sealed.
    pub fn is_open(&self) -> bool {
        !self.builder.is_empty()
    }

    /// Packs a message, and appends datagrams that became full to `out`.
    pub fn push(&mut self, now: Instant, origin: &Origin, entry: &Entry<'_>, out: &mut Vec<SealedDatagram>) {
        if self.builder.push(entry) {
            return;
        }
        if wire::fits_alone(entry, self.bytes_max) {
            self.builder.pad();
            self.seal(now, origin, out);
            let fits = self.builder.push(entry);
            assert!(fits, "an entry that fits alone fits an empty datagram");
            return;
        }
        self.push_fragments(now, origin, entry, out);
    }

    /// Works as [`Builder::extend`].
    #[inline]
    pub fn extend(&mut self, payload: &[u8]) -> bool {
        self.builder.extend(payload)
    }

    /// Works as [`Builder::open_run`].
    pub fn open_run(&self) -> Option<(Seq, usize)> {
        self.builder.open_run()
    }

    /// Works as [`Builder::entries`].
    pub fn entries(&self, at: usize) -> &[u8] {
        self.builder.entries(at)
    }

    /// Returns the location that a byte of the open datagram has once it is sealed; `None` while that datagram is too
    /// short to be retained.
    pub fn sealed_location(&self, at: usize) -> Option<usize> {
        (RETAINED_BYTES_MIN <= self.open_records().len()).then(|| at - self.unused_start())
    }

    /// Works as [`SendStream::sealed_location`] for the entry of the message pushed last. Returns `None` also if that
    /// message was split into fragments.
    pub fn last_entry_location(&self, message: MessageRef<'_>) -> Option<usize> {
        self.sealed_location(self.builder.run_end()? - entry::bytes_of(message))
    }

    /// Returns the records so far as they will lie in the sealed datagram, behind a header of zeros.
    pub fn open_records(&self) -> &[u8] {
        if self.is_open() { self.entries(self.unused_start()) } else { &[] }
    }

    /// Returns the bytes at the start of the builder's buffer that the header leaves unused.
    fn unused_start(&self) -> usize {
        Header::BYTES_MAX - if self.receiver.is_some() { Header::BYTES_MAX } else { Header::SHORT_BYTES }
    }

    fn push_fragments(&mut self, now: Instant, origin: &Origin, entry: &Entry<'_>, out: &mut Vec<SealedDatagram>) {
        let (_, body) = wire::body_of(entry.message);
        let (mut index, mut offset) = (0, 0);
        while offset < body.len() {
            let taken = self.builder.push_fragment(entry, &body, index, offset);
            if taken == 0 {
                assert!(self.is_open(), "an empty datagram has room for a fragment");
                self.seal(now, origin, out);
                continue;
            }
            offset += taken;
            index += 1;
            if offset < body.len() {
                self.seal(now, origin, out);
            }
        }
    }

    /// Seals the open datagram, if there is one.
    pub fn seal(&mut self, now: Instant, origin: &Origin, out: &mut Vec<SealedDatagram>) {
        if !self.is_open() {
            return;
        }
        // Rule: number
        self.high = self.high.next();
        let messages = self.builder.messages();
        let kind = if self.receiver.is_some() { Kind::Directed } else { Kind::Data };
        let mut before = self.count;
        if self.mutants.is(Mutant::CountOffByOne) {
            before = before.saturating_sub(1);
        }
        let header = origin.header(now, kind, self.high.0, before, self.receiver);
        out.push(SealedDatagram { dseq: self.high, before: self.count, bytes: self.builder.seal(&header) });
        self.count += messages;
    }
}

/// Creates control datagrams, whose numbers rise by one with each.
#[derive(Clone, Debug)]
pub struct Control {
    number: u64,
}

impl Control {
    /// Creates a counter before the first control datagram.
    pub fn new() -> Control {
        Control { number: 0 }
    }

    /// Creates a control datagram with one record; `count` messages were begun in all multicast datagrams so far. It is
    /// padded to `bytes` if it is shorter.
    pub fn datagram(&mut self, now: Instant, origin: &Origin, count: u64, record: &Record, bytes: usize) -> Bytes {
        self.number += 1;
        wire::encode_control(&origin.header(now, Kind::Control, self.number, count, None), record, bytes)
    }
}

impl Default for Control {
    fn default() -> Control {
        Control::new()
    }
}

/// One of the three records that announce a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnouncementKind {
    /// The peer is still present.
    Heartbeat,
    /// The peer has started.
    Hello {
        /// Cookie that is echoed in the answer.
        cookie: u64,
        /// True if an answer is requested.
        wants_reply: bool,
    },
    /// The peer is leaving.
    Bye,
}

impl AnnouncementKind {
    /// Returns the record of this kind.
    pub fn record(self, announce: PeerAnnouncement) -> Record {
        match self {
            AnnouncementKind::Heartbeat => Record::Heartbeat(Box::new(announce)),
            AnnouncementKind::Hello { cookie, wants_reply } => {
                Record::Hello(Box::new(wire::Hello { cookie, wants_reply, announce }))
            }
            AnnouncementKind::Bye => Record::Bye(Box::new(announce)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: W46
    #[test]
    fn heartbeats_decay_to_interval_and_restart_after_data() {
        let mut beat = HeartbeatTimer::new(Instant::ZERO, Duration::from_secs(1));
        let mut due = Vec::new();
        for millis in 0..4000 {
            if beat.take_due(Instant::ZERO + Duration::from_millis(millis)) {
                due.push(millis);
            }
        }
        assert_eq!(due, [20, 60, 140, 300, 620, 1260, 2260, 3260]);
        beat.on_datagram(Instant::ZERO + Duration::from_millis(4000));
        assert_eq!(beat.deadline(), Instant::ZERO + Duration::from_millis(4020));
        for millis in 4000..10_000 {
            beat.on_datagram(Instant::ZERO + Duration::from_millis(millis));
            if beat.take_due(Instant::ZERO + Duration::from_millis(millis)) {
                due.push(millis);
            }
        }
        assert_eq!(due[8..], [4260, 5260, 6260, 7260, 8260, 9260], "a busy publisher beats once per interval");
    }
}
