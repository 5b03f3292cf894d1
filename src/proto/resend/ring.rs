//! Retransmit ring: memory of a stream's recent datagrams, and for a longer time of their contents (R6, A7).
//!
//! A long datagram stays in the memory in which it was sealed; a short one is copied and does not keep its original
//! allocation alive. The ring counts both. Their manifests are written at the same time into a log of their own.

use super::log::{DatagramLog, EntrySource};
use crate::message::Dseq;
use crate::time::Instant;
use crate::wire::{Content, contents_of, decode_contents, put_contents};
use bytes::Bytes;
use std::time::Duration;

/// Factor by which manifests are kept longer than datagrams (R6).
const MANIFEST_TIMES: u32 = 10;

/// Limits of one stream's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSettings {
    /// Maximum bytes of memory for datagrams, with the overhead of storage. The oldest leave beyond it. 0 keeps none.
    /// The overhead is 20 bytes for each datagram, and a small amount for each sixteenth of the ring. A datagram of at
    /// least [`RETAINED_BYTES_MIN`](crate::wire::RETAINED_BYTES_MIN) bytes has 96 to 128 bytes more, and counts a
    /// thirty-second of its bytes for unused memory behind it.
    pub bytes_max: usize,
    /// Maximum age of a datagram.
    pub time: Duration,
    /// Maximum bytes of memory for manifests, which are kept ten times as long. The oldest leave beyond it. 0 keeps
    /// none, as for directed streams.
    pub manifest_bytes_max: usize,
}

/// Remembered part of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingContent {
    /// The whole datagram, with the bytes as they were sent.
    Datagram(Bytes),
    /// Contents of the datagram, and the number of messages begun in all datagrams before it.
    Manifest(u64, Vec<Content>),
    /// Nothing.
    Expired,
}

/// Memory of one stream.
#[derive(Debug)]
pub struct Ring {
    settings: RingSettings,
    datagrams: DatagramLog,
    manifests: DatagramLog,
    /// Scratch buffer for the manifest of one datagram.
    scratch: Vec<u8>,
}

impl Ring {
    /// Creates the memory of a stream whose last datagram so far was `high`, which is not remembered; 0 for a new
    /// stream.
    pub fn new(settings: RingSettings, high: Dseq) -> Ring {
        let next = high.next().0;
        Ring {
            settings,
            datagrams: DatagramLog::new(settings.bytes_max, next),
            manifests: DatagramLog::new(settings.manifest_bytes_max, next),
            scratch: Vec::new(),
        }
    }

    /// Adds a sealed datagram, before which `before` messages were begun in the stream.
    ///
    /// # Panics
    /// If its number is not the next one.
    pub fn push(&mut self, now: Instant, dseq: Dseq, before: u64, bytes: &Bytes) {
        assert_eq!(dseq.0, self.datagrams.next(), "datagrams are numbered without gaps");
        self.on_tick(now);
        self.datagrams.push(now, before, EntrySource::of_datagram(bytes));
        if self.settings.manifest_bytes_max == 0 {
            self.manifests.push(now, before, EntrySource::Copy(&[]));
            return;
        }
        put_contents(bytes, &mut self.scratch);
        self.manifests.push(now, before, EntrySource::Copy(&self.scratch));
        self.scratch.clear();
    }

    /// Removes expired datagrams and manifests. The cost grows with the number removed.
    pub fn on_tick(&mut self, now: Instant) {
        let time = self.settings.time;
        self.datagrams.expire(now, time);
        self.manifests.expire(now, time.saturating_mul(MANIFEST_TIMES));
    }

    /// Returns the oldest datagram that can be resent; the one after the last if none can.
    pub fn trail(&self) -> Dseq {
        Dseq(self.datagrams.trail())
    }

    /// Returns the oldest datagram whose content is known; the one after the last if there is none.
    pub fn manifest_trail(&self) -> Dseq {
        Dseq(self.datagrams.trail().min(self.manifests.trail()))
    }

    /// Returns whether a datagram of at most `bytes_max` bytes can be resent.
    pub fn has_datagram(&self, dseq: Dseq, bytes_max: usize) -> bool {
        self.datagrams.find(dseq.0).is_some_and(|(_, bytes)| bytes.as_slice().len() <= bytes_max)
    }

    /// Returns the remembered part of a datagram.
    pub fn find(&self, dseq: Dseq) -> RingContent {
        if let Some((_, bytes)) = self.datagrams.find(dseq.0) {
            return RingContent::Datagram(bytes.to_bytes());
        }
        self.contents(dseq).map_or(RingContent::Expired, |(before, contents)| RingContent::Manifest(before, contents))
    }

    /// Returns the contents of a datagram and the number of messages begun before it; `None` if they are no longer
    /// known.
    pub fn contents(&self, dseq: Dseq) -> Option<(u64, Vec<Content>)> {
        if let Some((before, bytes)) = self.manifests.find(dseq.0) {
            return Some((before, decode_contents(&bytes.to_bytes())));
        }
        let (before, bytes) = self.datagrams.find(dseq.0)?;
        Some((before, contents_of(&bytes.to_bytes())))
    }

    /// Returns the bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.datagrams.bytes() + self.manifests.bytes() + self.scratch.capacity()
    }

    /// Checks the limits, and that both memories are of the same stream.
    pub fn assert_invariants(&self) {
        self.datagrams.assert_invariants();
        self.manifests.assert_invariants();
        assert_eq!(self.datagrams.next(), self.manifests.next());
    }
}
