//! The receiver's side of pacing: the size of the advertised window and the schedule of the reports that carry it.

use super::settings::{ACTIVE, PATIENCE, PaceSettings, RESEND_PATIENCE, cost};
use crate::message::Dseq;
use crate::time::{Instant, nanos};
use std::time::Duration;

/// Minimum interval between two reports to a publisher, for each of its receivers. It bounds the time that a publisher
/// spends on reports, whatever their number.
const REPORT_INTERVAL: Duration = Duration::from_micros(20);

/// Time after the last datagram during which every heartbeat repeats the report, because the last report may have been
/// lost.
const REPEAT: Duration = Duration::from_millis(200);

/// Divisor of the window: a report is due when the receiver has read this fraction of it since the last report.
const PARTS: u64 = 4;

/// The whole buffer as a scale, and the smallest scale that drops can lead to.
const SCALE_ALL: u64 = 1024;
const SCALE_MIN: u64 = 32;
/// Minimum interval between two halvings of the scale: datagrams sent under the old window still arrive for a while.
const HALVING_INTERVAL: Duration = Duration::from_millis(20);
/// Growth of the scale in parts of [`SCALE_ALL`] per second: up to the last proven scale, and beyond it.
const GROWTH: u64 = 1024;
const GROWTH_BEYOND: u64 = 64;
/// Number of milliseconds in which the slower growth adds one part.
const GROWTH_STEP: u64 = 1000_u64.div_ceil(GROWTH_BEYOND);

/// Maximum number of skipped datagrams that are charged; each costs as much as the datagram after them.
const SKIPPED_MAX: u64 = 1024;

/// Queue fullness from which the window shrinks: the datagrams in flight and the queue have about the same size.
const BACKLOG_MIN: u64 = SCALE_ALL / 4;
/// Queue fullness from which the window is zero. The rest of the queue is for datagrams that are already in flight.
const BACKLOG_FULL: u64 = SCALE_ALL / 16 * 15;
/// Queue fullness from which a queue is ignored if its reader is slower than the floor.
const BACKLOG_LONG: u64 = SCALE_ALL / 4 * 3;
/// Interval at which the peer checks the queues while they close the window, because readers do not report their
/// progress.
const BACKLOG_INTERVAL: Duration = Duration::from_millis(1);

/// Change of the available window against the advertised one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowChange {
    /// About the same.
    None,
    /// Half of it or less.
    Less,
    /// Twice as much or more.
    More,
}

/// Receive window of this peer, shared by all publishers.
#[derive(Clone, Debug)]
pub struct ReceiveWindow {
    bytes: u64,
    /// Advertised part of the buffer, of [`SCALE_ALL`]. It falls when the system has dropped datagrams.
    scale: u64,
    /// Largest scale that has caused no drops, as far as is known.
    proven: u64,
    /// Time of the last update of the scale, and time of its last halving.
    scaled_at: Instant,
    halved_at: Option<Instant>,
    /// Number of publishers that share the buffer, as last advertised.
    sharers: usize,
    /// Bytes received by multicast.
    received_bytes: u64,
    /// Part of the window that the fullest local queue permits, of [`SCALE_ALL`]; and the part last advertised.
    reader_scale: u64,
    advertised_scale: u64,
    /// Start of the current measurement of a long queue, and the bytes received by then; time of the last check of the
    /// queues.
    long_queue: Option<(Instant, u64)>,
    checked_at: Instant,
    /// True if the long queue is ignored.
    is_ignored: bool,
    /// Minimum number of bytes that the peer must receive within [`PATIENCE`].
    floor_bytes: u64,
}

impl ReceiveWindow {
    /// Creates the window of a peer that has dropped nothing yet.
    pub fn new(settings: &PaceSettings, now: Instant) -> ReceiveWindow {
        let (scale, proven) = (SCALE_ALL, SCALE_ALL);
        ReceiveWindow {
            bytes: settings.room_bytes,
            scale,
            proven,
            scaled_at: now,
            halved_at: None,
            sharers: 1,
            received_bytes: 0,
            reader_scale: SCALE_ALL,
            advertised_scale: SCALE_ALL,
            long_queue: None,
            checked_at: now,
            is_ignored: false,
            floor_bytes: (settings.floor.saturating_mul(nanos(PATIENCE) / 1_000_000) / 1000).max(1),
        }
    }

    /// Handles drops by the system because the buffer was full. Returns true if the windows become smaller.
    pub fn on_overrun(&mut self, now: Instant) -> bool {
        self.grow(now);
        if self.halved_at.is_some_and(|at| now.since(at) < HALVING_INTERVAL) {
            return false;
        }
        self.halved_at = Some(now);
        self.proven = (self.scale * 3 / 4).max(SCALE_MIN);
        self.scale = (self.scale / 2).max(SCALE_MIN);
        true
    }

    /// Counts bytes received by multicast.
    pub fn on_received(&mut self, bytes: usize) {
        self.received_bytes += bytes as u64;
    }

    /// Updates the window from the fullness of the fullest local queue, of 1,024. The peer waits for the reader of that
    /// queue as a publisher waits for a receiver: while it reads at least the floor.
    pub fn on_backlog(&mut self, now: Instant, fullness: u64) -> WindowChange {
        self.checked_at = now;
        if fullness < BACKLOG_LONG {
            (self.long_queue, self.is_ignored) = (None, false);
        }
        if BACKLOG_LONG <= fullness {
            let (since, received_bytes) = *self.long_queue.get_or_insert((now, self.received_bytes));
            if PATIENCE <= now.since(since) {
                self.is_ignored |= self.received_bytes - received_bytes < self.floor_bytes;
                self.long_queue = Some((now, self.received_bytes));
            }
        }
        self.reader_scale = match self.is_ignored {
            true => SCALE_ALL,
            false => (BACKLOG_FULL.saturating_sub(fullness) * SCALE_ALL / (BACKLOG_FULL - BACKLOG_MIN)).min(SCALE_ALL),
        };
        let change = match (self.reader_scale, self.advertised_scale) {
            (more, advertised) if advertised * 2 < more || advertised < more && more == SCALE_ALL => WindowChange::More,
            (less, advertised) if less * 2 < advertised => WindowChange::Less,
            _ => WindowChange::None,
        };
        if self.reader_scale == SCALE_ALL {
            self.advertised_scale = SCALE_ALL;
        }
        change
    }

    /// Returns whether local queues make the window smaller.
    pub fn is_reduced(&self) -> bool {
        self.reader_scale < SCALE_ALL
    }

    /// Returns the time of the next check of the queues, while they close the window.
    pub fn deadline(&self) -> Option<Instant> {
        (self.advertised_scale == 0).then_some(self.checked_at + BACKLOG_INTERVAL)
    }

    /// Returns [`ReceiveWindow::window`] and records that it is advertised.
    pub fn advertise(&mut self, now: Instant, sharers: usize) -> u64 {
        self.advertised_scale = self.reader_scale;
        self.window(now, sharers)
    }

    /// Returns the window to advertise to each of `sharers` publishers. It is 0 only while a local queue is full.
    pub fn window(&mut self, now: Instant, sharers: usize) -> u64 {
        self.grow(now);
        let bytes = self.bytes / SCALE_ALL * self.scale / sharers.max(1) as u64;
        (bytes * self.reader_scale / SCALE_ALL).max(self.reader_scale.min(1))
    }

    /// Updates the number of publishers that share the buffer. Returns true if it grew, so that each needs a smaller
    /// window.
    pub fn on_sharers(&mut self, sharers: usize) -> bool {
        std::mem::replace(&mut self.sharers, sharers) < sharers
    }

    fn grow(&mut self, now: Instant) {
        // Only whole steps of the slower growth count; the remainder counts with the next call.
        let mut millis = nanos(now.since(self.scaled_at)) / 1_000_000 / GROWTH_STEP * GROWTH_STEP;
        self.scaled_at = self.scaled_at + Duration::from_millis(millis);
        for (most, growth) in [(self.proven, GROWTH), (SCALE_ALL, GROWTH_BEYOND)] {
            if self.scale < most {
                let grown = (self.scale + millis.saturating_mul(growth) / 1000).min(most);
                millis -= ((grown - self.scale) * 1000 / growth).min(millis);
                self.scale = grown;
            }
        }
    }
}

/// Progress of this peer in one publisher's multicast stream, and the state of its reports.
#[derive(Clone, Debug)]
pub struct ReceiveProgress {
    /// Highest datagram read.
    high: Dseq,
    /// Highest datagram reported.
    advertised: Dseq,
    /// Time of the last report.
    reported_at: Option<Instant>,
    /// Bytes read since then, and the number of bytes that makes the next report due.
    unreported: u64,
    due_bytes: u64,
    /// Cost of the largest datagram so far, in bytes as windows count.
    largest: u64,
    /// Window before the first report, in bytes.
    first_bytes: u64,
    /// Arrival of the last data datagram.
    data_at: Instant,
    /// True if a report is due as soon as the minimum interval has passed.
    is_due: bool,
    /// True if the last advertised window was smaller because of local queues.
    is_reduced: bool,
    /// Lowest requested datagram, as last reported; and the time at which it changed.
    awaited: Option<Dseq>,
    changed: Option<Instant>,
}

impl ReceiveProgress {
    /// Creates the progress for a publisher that had sent up to `below` at the first contact. The publisher assumes the
    /// first window beyond that.
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
            is_reduced: false,
            awaited: None,
            changed: None,
        }
    }

    /// Returns the highest datagram read.
    pub fn high(&self) -> Dseq {
        self.high
    }

    /// Records a data datagram received by multicast. Returns true if a report is due.
    pub fn on_data(&mut self, now: Instant, dseq: Dseq, bytes: usize) -> bool {
        let cost = cost(bytes);
        // Skipped datagrams used their share of the window, wherever they were lost.
        let steps = dseq.0.saturating_sub(self.high.0).clamp(1, SKIPPED_MAX);
        self.unreported += cost * steps;
        self.largest = self.largest.max(cost);
        self.high = self.high.max(dseq);
        self.data_at = now;
        self.due_bytes <= self.unreported
    }

    /// Records a control message received by multicast that names the highest datagram. All datagrams up to it have
    /// been read or were lost. Returns true if a report is due: if much may be unreported, or if the last report may
    /// have been lost.
    pub fn on_control(&mut self, now: Instant, high: Dseq) -> bool {
        self.high = self.high.max(high);
        let unreported = (self.high.0 - self.advertised.0).saturating_mul(self.largest);
        // A publisher that waits for requested datagrams sends no data until a report confirms their arrival.
        let is_waited_for = self.changed.is_some_and(|at| now.since(at) <= RESEND_PATIENCE);
        self.first_bytes / PARTS <= unreported
            || now.since(self.data_at) <= REPEAT && self.is_active(now)
            || is_waited_for
    }

    /// Corrects the progress after a wrong control message: the publisher has sent no more than `high`.
    pub fn rewind_to(&mut self, high: Dseq) {
        (self.high, self.advertised) = (self.high.min(high), self.advertised.min(high));
    }

    /// Schedules a report if the lowest requested datagram makes one due.
    pub fn on_awaited(&mut self, now: Instant, awaited: Option<Dseq>) {
        self.is_due |= self.concerns_publisher(now, awaited);
    }

    /// Returns whether the lowest requested datagram makes a report due. One is due if the publisher continues without
    /// knowing of the request. If the publisher may wait for that datagram, a report is due when its distance has
    /// halved, or the last report is old.
    fn concerns_publisher(&self, now: Instant, awaited: Option<Dseq>) -> bool {
        match self.awaited {
            None => awaited.is_some() && self.first_bytes / PARTS <= self.unreported,
            advertised if advertised == awaited => false,
            advertised => {
                let lag = self.lag(advertised);
                let is_old = self.reported_at.is_none_or(|at| RESEND_PATIENCE / 4 <= now.since(at));
                self.first_bytes <= lag.saturating_mul(self.largest) && (is_old || self.lag(awaited) <= lag / 2)
            }
        }
    }

    /// Returns whether [`ReceiveProgress::on_awaited`] schedules a report that is not due already.
    pub fn is_changed_by(&self, now: Instant, awaited: Option<Dseq>) -> bool {
        !self.is_due && self.concerns_publisher(now, awaited)
    }

    /// Returns the number of datagrams from the requested one to the highest.
    fn lag(&self, awaited: Option<Dseq>) -> u64 {
        awaited.map_or(0, |awaited| (self.high.0 + 1).saturating_sub(awaited.0))
    }

    /// Returns whether the publisher shares the buffer.
    pub fn is_active(&self, now: Instant) -> bool {
        self.reported_at.is_some_and(|at| now.since(at) <= ACTIVE)
    }

    /// Schedules a report for when the minimum interval has passed.
    pub fn schedule_report(&mut self) {
        self.is_due = true;
    }

    /// Cancels the report, because the publisher has left.
    pub fn cancel_report(&mut self) {
        self.is_due = false;
    }

    /// Returns the earliest time of the report that is due to a publisher with this number of receivers; `None` if none
    /// is due.
    pub fn deadline(&self, receivers: usize) -> Option<Instant> {
        let interval = REPORT_INTERVAL * u32::try_from(receivers).unwrap_or(u32::MAX);
        let next = self.reported_at.map_or(Instant::ZERO, |at| at + interval);
        self.is_due.then_some(next)
    }

    /// Returns whether the last advertised window was smaller because of local queues.
    pub fn is_reduced(&self) -> bool {
        self.is_reduced
    }

    /// Records a sent report with its window, whether local queues made it smaller, and the lowest requested datagram.
    pub fn on_reported(&mut self, now: Instant, window: u64, is_reduced: bool, awaited: Option<Dseq>) {
        self.is_reduced = is_reduced;
        if std::mem::replace(&mut self.awaited, awaited) != awaited {
            self.changed = Some(now);
        }
        (self.advertised, self.reported_at) = (self.high, Some(now));
        (self.unreported, self.is_due) = (0, false);
        self.due_bytes = window / PARTS;
    }
}
