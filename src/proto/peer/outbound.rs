//! State of sending: the multicast stream with its pacer, the datagrams that can be resent, and the open datagrams
//! of all streams.

use crate::message::{Dseq, Epoch};
use crate::proto::Settings;
use crate::proto::pace::Pacer;
use crate::proto::resend::{Resends, Ring};
use crate::proto::send::{SealedDatagram, SendStream};
use crate::time::Instant;

/// Streams that this peer sends.
pub(super) struct Outbound {
    /// The multicast stream.
    pub(super) multicast: SendStream,
    /// Pacer of the multicast stream, with its queued datagrams.
    pub(super) pacer: Pacer,
    /// Datagrams of the multicast stream that can be resent.
    pub(super) ring: Ring,
    /// Requests for datagrams of all streams.
    pub(super) resends: Resends,
    /// Peers with an open directed datagram.
    open: Vec<Epoch>,
    /// Time of the first record of the oldest open datagram.
    opened: Option<Instant>,
    /// Sealed datagrams that were neither sent nor queued by the pacer; empty between inputs.
    pub(super) sealed: Vec<SealedDatagram>,
}

impl Outbound {
    /// Creates the streams of a peer that starts now.
    pub(super) fn new(settings: &Settings, now: Instant) -> Outbound {
        Outbound {
            multicast: SendStream::new(None, settings),
            pacer: Pacer::new(&settings.pace, settings.recovery.ring.bytes_max, now),
            ring: Ring::new(settings.recovery.ring, Dseq(0)),
            resends: Resends::new(settings.resends(), now),
            open: Vec::new(),
            opened: None,
            sealed: Vec::new(),
        }
    }

    /// Begins the multicast stream of a new epoch, after all datagrams of the old one have left.
    pub(super) fn begin_epoch(&mut self, settings: &Settings, now: Instant) {
        assert!(!self.multicast.is_open() && self.pacer.is_empty(), "all datagrams of the old epoch have left");
        self.multicast = SendStream::new(None, settings);
        self.pacer = Pacer::resumed(&settings.pace, settings.recovery.ring.bytes_max, now);
        self.ring = Ring::new(settings.recovery.ring, Dseq(0));
        self.resends = Resends::new(settings.resends(), now);
    }

    /// Returns the last sent datagram of the multicast stream, and the number of messages begun up to it.
    pub(super) fn sent(&self) -> (Dseq, u64) {
        match self.pacer.first_queued() {
            Some(first) => (Dseq(first.dseq.0 - 1), first.before),
            None => (self.multicast.high(), self.multicast.count()),
        }
    }

    /// Returns the last datagram of the multicast stream that has a message, sealed or open.
    pub(super) fn last(&self) -> Dseq {
        Dseq(self.multicast.high().0 + u64::from(self.multicast.is_open()))
    }

    /// Records that a datagram may be opened now.
    pub(super) fn record_opened(&mut self, now: Instant) {
        self.opened.get_or_insert(now);
    }

    /// Records that the datagram of the directed stream to a peer is open.
    pub(super) fn record_open_directed(&mut self, to: Epoch) {
        if !self.open.contains(&to) {
            self.open.push(to);
        }
    }

    /// Returns the time of the first record of the oldest open datagram.
    pub(super) fn opened(&self) -> Option<Instant> {
        self.opened
    }

    /// Ends all open datagrams, which the caller seals. Returns the peers with an open directed datagram.
    pub(super) fn take_open(&mut self) -> Vec<Epoch> {
        self.opened = None;
        std::mem::take(&mut self.open)
    }

    /// Checks that every sealed datagram was sent or queued, and that the pacer queues the end of the multicast stream.
    pub(super) fn assert_invariants(&self) {
        assert!(self.sealed.is_empty(), "every sealed datagram was sent or queued");
        assert!(self.sent().0 <= self.multicast.high(), "only sealed datagrams are sent");
    }
}
