//! The receiver's side of pacing: how much room there is, and whom to tell of it when.

use super::{PaceSettings, cost};
use crate::message::Dseq;
use crate::time::{Instant, nanos};
use std::time::Duration;

/// A publisher counts as one of those that share the room for so long after a report to it.
pub const ACTIVE: Duration = Duration::from_millis(100);

/// A report is told to a publisher at most once in this time for each receiver that it has: so reports cost it a limited
/// part of its time however many there are.
const REPORT_INTERVAL: Duration = Duration::from_micros(20);

/// After the last datagram a report is told again with the heartbeats that follow for so long: it may have been lost.
const REPEAT: Duration = Duration::from_millis(200);

/// A report is due when one part in this many of the window was taken since the last one.
const PARTS: u64 = 4;

/// All of the room; and how little of it is told however much was dropped.
const SCALE_ALL: u64 = 1024;
const SCALE_MIN: u64 = 32;
/// The room told is halved at most once in this time: what was sent for the room before comes for a while.
const CUT_INTERVAL: Duration = Duration::from_millis(20);
/// How fast it grows again: parts of [`SCALE_ALL`] in a second, up to what was too much lately; and beyond that.
const GROWTH: u64 = 1024;
const GROWTH_BEYOND: u64 = 64;

/// A datagram that was skipped counts like the one that came after it, for so many at most.
const SKIPPED_MAX: u64 = 1024;

/// How much this peer can take of all publishers together.
#[derive(Clone, Debug)]
pub struct Room {
    bytes: u64,
    /// The part of it that is told, of [`SCALE_ALL`]: less after the system has dropped something.
    scale: u64,
    /// What was not too much, as far as known.
    proven: u64,
    /// When the scale was reckoned last, and when it was halved last.
    scaled: Instant,
    cut: Option<Instant>,
    /// Publishers that share it, as told last.
    sharers: usize,
}

impl Room {
    /// Nothing dropped yet.
    pub fn new(settings: &PaceSettings, now: Instant) -> Room {
        let (scale, proven) = (SCALE_ALL, SCALE_ALL);
        Room { bytes: settings.room_bytes, scale, proven, scaled: now, cut: None, sharers: 1 }
    }

    /// The system dropped something for want of room. True if that makes the windows smaller.
    pub fn on_overrun(&mut self, now: Instant) -> bool {
        self.grow(now);
        if self.cut.is_some_and(|cut| now.since(cut) < CUT_INTERVAL) {
            return false;
        }
        self.cut = Some(now);
        self.proven = (self.scale * 3 / 4).max(SCALE_MIN);
        self.scale = (self.scale / 2).max(SCALE_MIN);
        true
    }

    /// The window to tell to each of so many publishers that share the room.
    pub fn window(&mut self, now: Instant, sharers: usize) -> u64 {
        self.grow(now);
        (self.bytes / SCALE_ALL * self.scale / sharers.max(1) as u64).max(1)
    }

    /// So many publishers share the room. True if they are more than before, so that each must be told of less.
    pub fn on_sharers(&mut self, sharers: usize) -> bool {
        std::mem::replace(&mut self.sharers, sharers) < sharers
    }

    fn grow(&mut self, now: Instant) {
        let mut millis = nanos(now.since(self.scaled)) / 1_000_000;
        self.scaled = self.scaled + Duration::from_millis(millis);
        for (most, growth) in [(self.proven, GROWTH), (SCALE_ALL, GROWTH_BEYOND)] {
            if self.scale < most {
                let grown = (self.scale + millis.saturating_mul(growth) / 1000).min(most);
                millis -= ((grown - self.scale) * 1000 / growth).min(millis);
                self.scale = grown;
            }
        }
    }
}

/// What was taken of one publisher's multicasts, and what it was told of that.
#[derive(Clone, Debug)]
pub struct Taking {
    /// The highest datagram taken.
    high: Dseq,
    /// The highest datagram told of.
    told: Dseq,
    /// When that was.
    told_at: Option<Instant>,
    /// Bytes taken since then, and how many make the next report due.
    untold: u64,
    due_bytes: u64,
    /// What the largest datagram so far counts.
    largest: u64,
    /// The window before the first report.
    first_bytes: u64,
    /// When the last datagram of data came.
    data_at: Instant,
    /// Whether a report is due as soon as the last one is old enough.
    is_due: bool,
}

impl Taking {
    /// Nothing taken yet of a publisher that had sent up to `below` at the first contact. It takes this peer to have the first
    /// window beyond that.
    pub fn new(settings: &PaceSettings, below: Dseq) -> Taking {
        Taking {
            high: below,
            told: below,
            told_at: None,
            untold: 0,
            due_bytes: settings.first_bytes / PARTS,
            largest: cost(0),
            first_bytes: settings.first_bytes,
            data_at: Instant::ZERO,
            is_due: false,
        }
    }

    /// The highest datagram taken.
    pub fn high(&self) -> Dseq {
        self.high
    }

    /// A datagram of data came by multicast. True if a report is due.
    pub fn on_data(&mut self, now: Instant, dseq: Dseq, bytes: usize) -> bool {
        let cost = cost(bytes);
        // What was skipped took its share of the window, wherever it was lost.
        let steps = dseq.0.saturating_sub(self.high.0).clamp(1, SKIPPED_MAX);
        self.untold += cost * steps;
        self.largest = self.largest.max(cost);
        self.high = self.high.max(dseq);
        self.data_at = now;
        self.due_bytes <= self.untold
    }

    /// A word came by multicast that names the highest datagram: what was sent up to it has been taken, or will not come.
    /// True if a report is due: if much may be untold, or if the last report may have been lost.
    pub fn on_word(&mut self, now: Instant, high: Dseq) -> bool {
        self.high = self.high.max(high);
        let untold = (self.high.0 - self.told.0).saturating_mul(self.largest);
        self.first_bytes / PARTS <= untold || now.since(self.data_at) <= REPEAT && self.is_active(now)
    }

    /// Whether the publisher shares the room.
    pub fn is_active(&self, now: Instant) -> bool {
        self.told_at.is_some_and(|at| now.since(at) <= ACTIVE)
    }

    /// A report is due, as soon as the last one is old enough.
    pub fn make_due(&mut self) {
        self.is_due = true;
    }

    /// No report is due any more: the publisher has gone.
    pub fn forgo(&mut self) {
        self.is_due = false;
    }

    /// When the report that is due may be told, where the publisher has so many receivers; `None` if none is due.
    pub fn deadline(&self, receivers: usize) -> Option<Instant> {
        let interval = REPORT_INTERVAL * u32::try_from(receivers).unwrap_or(u32::MAX);
        let next = self.told_at.map_or(Instant::ZERO, |at| at + interval);
        self.is_due.then_some(next)
    }

    /// A report is told with this window.
    pub fn on_told(&mut self, now: Instant, window: u64) {
        (self.told, self.told_at) = (self.high, Some(now));
        (self.untold, self.is_due) = (0, false);
        self.due_bytes = window / PARTS;
    }
}
