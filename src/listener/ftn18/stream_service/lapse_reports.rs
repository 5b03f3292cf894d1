//! Reports of lapsed consumers.

use crate::event::stream::name::Consumer;
use crate::event::stream::store::MissedRange;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum interval between two reports.
const INTERVAL: Duration = Duration::from_secs(1);

/// Unreported events that consumers have missed. The first report is immediate; further ones follow once a second.
#[derive(Debug, Default)]
pub(super) struct LapseReports {
    /// Events missed in this turn, which may be rolled back.
    pub(super) new: Vec<((usize, Consumer), MissedRange)>,
    /// Events missed in earlier turns, which are stored.
    stored: BTreeMap<(usize, Consumer), MissedRange>,
    /// Time before which nothing is reported.
    due: Instant,
}

impl LapseReports {
    /// Records that the events missed in this turn are stored.
    pub(super) fn settle(&mut self) {
        for (consumer, missed) in self.new.drain(..) {
            let before = self.stored.remove(&consumer);
            self.stored.insert(consumer, before.map_or(missed, |before| before.merge(missed)));
        }
    }

    /// Returns the events to report now.
    pub(super) fn take(&mut self, now: Instant) -> BTreeMap<(usize, Consumer), MissedRange> {
        if self.stored.is_empty() || now < self.due {
            return BTreeMap::new();
        }
        self.due = now + INTERVAL;
        std::mem::take(&mut self.stored)
    }

    /// Returns the time of the next report, if one is pending.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.stored.is_empty()).then_some(self.due)
    }
}
