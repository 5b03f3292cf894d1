//! Time for which messages wait for earlier ones of their streams.

use super::StoredImport;
use crate::link::durable::held_messages::HeldArrival;
use crate::time::Instant;
use std::time::Duration;

/// Time for which messages wait for an earlier one of their stream: longer than an exporter needs to take over and to
/// send again.
const GAP_TIMEOUT: Duration = Duration::from_secs(15);
/// Time after which a gateway that has had room all the while has read everything.
const READ_TIME: Duration = Duration::from_secs(1);

impl StoredImport {
    /// Reports messages that did not arrive within the hold time, and releases those behind them.
    pub(in crate::link::durable) fn on_tick(&mut self, now: Instant) {
        self.note_room(now);
        while let Some(oldest) = self.held.oldest().filter(|oldest| self.hold_end(oldest) <= now) {
            let key = oldest.key.clone();
            // Another gateway may have delivered some of them.
            self.release(now, &key);
            let first = self.held.first(&key);
            let missing = first.and_then(|first| self.missing_before(&key, first.origin.as_ref()?));
            if let Some(stored) = self.held.pop_first(&key) {
                self.deliver(now, key.clone(), stored, missing);
            }
            self.release(now, &key);
        }
    }

    /// Notes whether the LAN is behind.
    pub(super) fn note_room(&mut self, now: Instant) {
        if self.is_lan_behind() {
            self.lan_was_behind = Some(now);
        }
    }

    /// Returns the time until which a message waits for earlier ones. A gateway that reads what the stream has stored long
    /// ago may come to them later: then it reads on until [`GAP_TIMEOUT`] behind the message.
    pub(super) fn hold_end(&self, held: &HeldArrival) -> Instant {
        let end = held.since + GAP_TIMEOUT;
        let read_to = self.arrivals.back().map_or(0, |last| last.at.as_nanos());
        let has_read_on = held.at.as_nanos().saturating_add(GAP_TIMEOUT.as_nanos() as u64) <= read_to;
        match self.lan_was_behind {
            Some(behind) if !has_read_on => end.max(behind + READ_TIME),
            _ => end,
        }
    }
}
