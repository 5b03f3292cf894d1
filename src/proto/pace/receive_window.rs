//! The receiver's side of pacing: how much room there is, and whom to tell of it when.

use super::{PATIENCE, PaceSettings, RESEND_PATIENCE, cost};
use crate::message::Dseq;
use crate::time::{Instant, nanos};
use std::time::Duration;

/// A publisher counts as one of those that share the room for so long after a report to it.
pub(super) const ACTIVE: Duration = Duration::from_millis(100);

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
/// Milliseconds in which the slower growth is one.
const GROWTH_STEP: u64 = 1000_u64.div_ceil(GROWTH_BEYOND);

/// A datagram that was skipped counts like the one that came after it, for so many at most.
const SKIPPED_MAX: u64 = 1024;

/// From this fullness of the fullest local queue on less room is told: what is on its way and the queue have the same size, about.
const BACKLOG_MIN: u64 = SCALE_ALL / 4;
/// From here on none is: what is left is for what comes at once all the same.
const BACKLOG_FULL: u64 = SCALE_ALL / 16 * 15;
/// From here on a queue whose reader takes less than the floor is not heeded any more.
const BACKLOG_LONG: u64 = SCALE_ALL / 4 * 3;
/// While no room was told because of it, the queues are looked at once in this time: who reads them tells nobody.
const BACKLOG_INTERVAL: Duration = Duration::from_millis(1);

/// Whether the room has become something else than what was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowChange {
    /// About the same.
    None,
    /// Half of it or less.
    Less,
    /// Twice as much or more.
    More,
}

/// How much this peer can take of all publishers together.
#[derive(Clone, Debug)]
pub struct ReceiveWindow {
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
    /// Bytes taken by multicast so far.
    taken: u64,
    /// What the readers of local queues leave of the room, of [`SCALE_ALL`]; and how much of it was told last.
    readers: u64,
    advertised: u64,
    /// Since when a queue is long, and what was taken by then; when the queues were looked at last.
    long: Option<(Instant, u64)>,
    looked: Instant,
    /// Whether that queue is not heeded.
    is_hopeless: bool,
    /// What is to be taken of publishers in [`PATIENCE`] at least.
    floor_bytes: u64,
}

impl ReceiveWindow {
    /// Nothing dropped yet.
    pub fn new(settings: &PaceSettings, now: Instant) -> ReceiveWindow {
        let (scale, proven) = (SCALE_ALL, SCALE_ALL);
        ReceiveWindow {
            bytes: settings.room_bytes,
            scale,
            proven,
            scaled: now,
            cut: None,
            sharers: 1,
            taken: 0,
            readers: SCALE_ALL,
            advertised: SCALE_ALL,
            long: None,
            looked: now,
            is_hopeless: false,
            floor_bytes: (settings.floor.saturating_mul(nanos(PATIENCE) / 1_000_000) / 1000).max(1),
        }
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

    /// So many bytes were taken by multicast.
    pub fn on_received(&mut self, bytes: usize) {
        self.taken += bytes as u64;
    }

    /// The fullest queue of a local subscription is so full, of 1,024. Its reader is waited for like a receiver: while it
    /// takes as much as the floor.
    pub fn on_backlog(&mut self, now: Instant, fullness: u64) -> WindowChange {
        self.looked = now;
        if fullness < BACKLOG_LONG {
            (self.long, self.is_hopeless) = (None, false);
        }
        if BACKLOG_LONG <= fullness {
            let (since, taken) = *self.long.get_or_insert((now, self.taken));
            if PATIENCE <= now.since(since) {
                self.is_hopeless |= self.taken - taken < self.floor_bytes;
                self.long = Some((now, self.taken));
            }
        }
        self.readers = match self.is_hopeless {
            true => SCALE_ALL,
            false => (BACKLOG_FULL.saturating_sub(fullness) * SCALE_ALL / (BACKLOG_FULL - BACKLOG_MIN)).min(SCALE_ALL),
        };
        let change = match (self.readers, self.advertised) {
            (more, advertised) if advertised * 2 < more || advertised < more && more == SCALE_ALL => WindowChange::More,
            (less, advertised) if less * 2 < advertised => WindowChange::Less,
            _ => WindowChange::None,
        };
        if self.readers == SCALE_ALL {
            self.advertised = SCALE_ALL;
        }
        change
    }

    /// Whether less room is told because of the queues.
    pub fn is_short(&self) -> bool {
        self.readers < SCALE_ALL
    }

    /// When to look at the queues again, while nobody may send because of them.
    pub fn deadline(&self) -> Option<Instant> {
        (self.advertised == 0).then_some(self.looked + BACKLOG_INTERVAL)
    }

    /// As [`ReceiveWindow::window`], and it is told.
    pub fn tell(&mut self, now: Instant, sharers: usize) -> u64 {
        self.advertised = self.readers;
        self.window(now, sharers)
    }

    /// The window to tell to each of so many publishers that share the room; 0 only while a local queue is full.
    pub fn window(&mut self, now: Instant, sharers: usize) -> u64 {
        self.grow(now);
        let bytes = self.bytes / SCALE_ALL * self.scale / sharers.max(1) as u64;
        (bytes * self.readers / SCALE_ALL).max(self.readers.min(1))
    }

    /// So many publishers share the room. True if they are more than before, so that each must be told of less.
    pub fn on_sharers(&mut self, sharers: usize) -> bool {
        std::mem::replace(&mut self.sharers, sharers) < sharers
    }

    fn grow(&mut self, now: Instant) {
        // In whole steps of the slower growth: what is less waits for the next call.
        let mut millis = nanos(now.since(self.scaled)) / 1_000_000 / GROWTH_STEP * GROWTH_STEP;
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
pub struct ReceiveProgress {
    /// The highest datagram taken.
    high: Dseq,
    /// The highest datagram told of.
    advertised: Dseq,
    /// When that was.
    reported_at: Option<Instant>,
    /// Bytes taken since then, and how many make the next report due.
    unreported: u64,
    due_bytes: u64,
    /// What the largest datagram so far counts.
    largest: u64,
    /// The window before the first report.
    first_bytes: u64,
    /// When the last datagram of data came.
    data_at: Instant,
    /// Whether a report is due as soon as the last one is old enough.
    is_due: bool,
    /// Whether less room was told because of local queues.
    is_short: bool,
    /// The lowest datagram that is asked for, as told last; and when it became another one.
    awaited: Option<Dseq>,
    changed: Option<Instant>,
}

impl ReceiveProgress {
    /// Nothing taken yet of a publisher that had sent up to `below` at the first contact. It takes this peer to have the first
    /// window beyond that.
    pub fn new(settings: &PaceSettings, below: Dseq) -> ReceiveProgress {
        ReceiveProgress {
            high: below,
            advertised: below,
            reported_at: None,
            unreported: 0,
            due_bytes: settings.first_bytes / PARTS,
            largest: cost(0),
            first_bytes: settings.first_bytes,
            data_at: Instant::ZERO,
            is_due: false,
            is_short: false,
            awaited: None,
            changed: None,
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
        self.unreported += cost * steps;
        self.largest = self.largest.max(cost);
        self.high = self.high.max(dseq);
        self.data_at = now;
        self.due_bytes <= self.unreported
    }

    /// A word came by multicast that names the highest datagram: what was sent up to it has been taken, or will not come.
    /// True if a report is due: if much may be untold, or if the last report may have been lost.
    pub fn on_control(&mut self, now: Instant, high: Dseq) -> bool {
        self.high = self.high.max(high);
        let unreported = (self.high.0 - self.advertised.0).saturating_mul(self.largest);
        // A publisher that waits for what was asked for sends no data until it knows that it has come.
        let is_waited_for = self.changed.is_some_and(|at| now.since(at) <= RESEND_PATIENCE);
        self.first_bytes / PARTS <= unreported
            || now.since(self.data_at) <= REPEAT && self.is_active(now)
            || is_waited_for
    }

    /// The publisher has sent no more than this: what told of more was wrong.
    pub fn rewind_to(&mut self, high: Dseq) {
        (self.high, self.advertised) = (self.high.min(high), self.advertised.min(high));
    }

    /// This is the lowest datagram that is asked for. A report is due if the publisher was not told that one is and goes on, or may
    /// wait for that and it is less far back now: by half at least, or for long enough that it would seem stuck.
    pub fn on_awaited(&mut self, now: Instant, awaited: Option<Dseq>) {
        self.is_due |= match self.awaited {
            None => awaited.is_some() && self.first_bytes / PARTS <= self.unreported,
            advertised if advertised == awaited => false,
            advertised => {
                let lag = self.lag(advertised);
                let is_old = self.reported_at.is_none_or(|at| RESEND_PATIENCE / 4 <= now.since(at));
                self.first_bytes <= lag.saturating_mul(self.largest) && (is_old || self.lag(awaited) <= lag / 2)
            }
        };
    }

    /// How many datagrams there are from one that is asked for on.
    fn lag(&self, awaited: Option<Dseq>) -> u64 {
        awaited.map_or(0, |awaited| (self.high.0 + 1).saturating_sub(awaited.0))
    }

    /// Whether the publisher shares the room.
    pub fn is_active(&self, now: Instant) -> bool {
        self.reported_at.is_some_and(|at| now.since(at) <= ACTIVE)
    }

    /// A report is due, as soon as the last one is old enough.
    pub fn schedule_report(&mut self) {
        self.is_due = true;
    }

    /// No report is due any more: the publisher has gone.
    pub fn cancel_report(&mut self) {
        self.is_due = false;
    }

    /// When the report that is due may be told, where the publisher has so many receivers; `None` if none is due.
    pub fn deadline(&self, receivers: usize) -> Option<Instant> {
        let interval = REPORT_INTERVAL * u32::try_from(receivers).unwrap_or(u32::MAX);
        let next = self.reported_at.map_or(Instant::ZERO, |at| at + interval);
        self.is_due.then_some(next)
    }

    /// Whether less room was told because of local queues.
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// A report is told with this window, which may be small because of local queues, and this datagram that is asked for.
    pub fn on_reported(&mut self, now: Instant, (window, is_short): (u64, bool), awaited: Option<Dseq>) {
        self.is_short = is_short;
        if std::mem::replace(&mut self.awaited, awaited) != awaited {
            self.changed = Some(now);
        }
        (self.advertised, self.reported_at) = (self.high, Some(now));
        (self.unreported, self.is_due) = (0, false);
        self.due_bytes = window / PARTS;
    }
}
