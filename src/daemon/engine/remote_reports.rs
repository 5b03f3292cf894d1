//! Reports of this peer for other peers: the same as `show` gives to clients of this host, at a bounded rate.

use super::Engine;
use crate::message::Epoch;
use crate::proto::question::{ANSWER_BYTES_MAX, Refused};
use crate::subject::Subject;
use crate::time::{ClockReading, Instant};
use serde_json::{Value, json};
use std::time::Duration;

/// Time that one report may take from the rate of all: 20 reports a second.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum lead of reports over that rate: 20 reports at once.
const REPORTS_AHEAD: Duration = Duration::from_secs(1);

/// The rule for queries of other peers.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteReports {
    /// True if other peers get reports.
    is_allowed: bool,
    /// Time from which the reports so far keep to the rate.
    due: Instant,
}

impl RemoteReports {
    /// Creates the rule of a peer that starts now.
    pub(super) fn new(is_allowed: bool, now: Instant) -> RemoteReports {
        RemoteReports { is_allowed, due: now }
    }

    /// Allows or forbids reports to other peers from now on.
    pub(super) fn allow(&mut self, is_allowed: bool) {
        self.is_allowed = is_allowed;
    }

    /// Admits a query of another peer, or returns the reason for a refusal.
    fn admit(&mut self, now: Instant) -> Result<(), Refused> {
        if !self.is_allowed {
            return Err(Refused::NoReports);
        }
        if now + REPORTS_AHEAD < self.due {
            return Err(Refused::Busy);
        }
        self.due = self.due.max(now) + REPORT_INTERVAL;
        Ok(())
    }
}

impl Engine {
    /// Answers a query for a report. A client may ask its own peer by name; that is not limited.
    pub(super) fn answer_report(&mut self, now: ClockReading, from: Epoch, reply: &Subject, query: &[u8]) {
        let is_own = from == self.core.peer.epoch();
        let admitted = if is_own { Ok(()) } else { self.remote_reports.admit(now.instant) };
        let report = admitted.map(|()| self.report_bytes(now, query));
        self.core.peer.answer_report(now, from, reply, report.as_deref().map_err(|reason| *reason));
        self.core.apply_effects(now);
    }

    /// Returns a report in JSON, or an object with the reason why there is none.
    fn report_bytes(&mut self, now: ClockReading, query: &[u8]) -> Vec<u8> {
        let answer = match serde_json::from_slice::<Value>(query) {
            Ok(query) if query.get("ping").is_some() => self.pong(now),
            Ok(query) => self.show(now, &query),
            Err(error) => json!({ "error": format!("the query is not JSON: {error}") }),
        };
        let bytes = answer.to_string().into_bytes();
        if bytes.len() <= ANSWER_BYTES_MAX {
            return bytes;
        }
        let text = format!("the report has {} bytes, more than {ANSWER_BYTES_MAX}; ask for fewer rows", bytes.len());
        json!({ "error": text }).to_string().into_bytes()
    }

    /// Returns who answers, and its wall clock.
    fn pong(&self, now: ClockReading) -> Value {
        json!({
            "peer": self.core.peer.settings().name.as_str(),
            "epoch": self.core.peer.epoch().to_string(),
            "wall_ns": now.wall.as_nanos(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_keep_to_their_rate() {
        let mut now = Instant::from_nanos(0);
        let mut reports = RemoteReports::new(true, now);
        let admitted = |reports: &mut RemoteReports, now| (0..100).filter(|_| reports.admit(now).is_ok()).count();
        assert_eq!(admitted(&mut reports, now), 21);
        assert_eq!(reports.admit(now), Err(Refused::Busy));
        now = now + Duration::from_millis(100);
        assert_eq!(admitted(&mut reports, now), 2);
        now = now + Duration::from_secs(60);
        assert_eq!(admitted(&mut reports, now), 21);
    }

    #[test]
    fn peer_without_permission_refuses_every_query() {
        let now = Instant::from_nanos(0);
        assert_eq!(RemoteReports::new(false, now).admit(now), Err(Refused::NoReports));
    }
}
