//! Reports of this peer for other peers: the same as `show` gives to clients of this host, at a bounded rate and of a
//! bounded size. The engine makes them between its other work, so they take little of its time.

use super::Engine;
use crate::clock::Clock;
use crate::daemon::show::LIMIT_MAX;
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
/// Part of the engine's time that reports may take: a twentieth.
const TIME_SHARE: u32 = 20;
/// Maximum number of rows of a report for another peer. About as many fit into an answer.
const REMOTE_ROWS_MAX: usize = 4_000;

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

    /// Checks a query of another peer for a report. Returns the reason for a refusal.
    fn check(&self, now: Instant) -> Result<(), Refused> {
        if !self.is_allowed {
            return Err(Refused::NoReports);
        }
        self.check_rate(now)
    }

    /// Checks a query of another peer that is answered always, but not at any rate.
    fn check_rate(&self, now: Instant) -> Result<(), Refused> {
        if now + REPORTS_AHEAD < self.due {
            return Err(Refused::Busy);
        }
        Ok(())
    }

    /// Counts a report that took the engine this time.
    fn charge(&mut self, now: Instant, time: Duration) {
        self.due = self.due.max(now) + REPORT_INTERVAL.max(TIME_SHARE * time);
    }
}

impl Engine {
    /// Answers a query for a report. A client may ask its own peer by name; that is not limited. The list of revoked
    /// hosts is no report: all peers of the realm need it.
    pub(super) fn answer_report(&mut self, now: ClockReading, from: Epoch, reply: &Subject, query: &[u8]) {
        let report = if from == self.core.peer.epoch() {
            Ok(self.report_bytes(now, query, LIMIT_MAX))
        } else {
            let is_for_realm = parse(query).is_ok_and(|query| self.core.protection.answers(&query));
            let checked = match is_for_realm {
                true => self.remote_reports.check_rate(now.instant),
                false => self.remote_reports.check(now.instant),
            };
            checked.map(|()| {
                let start = Clock::now().instant;
                let report = self.report_bytes(now, query, REMOTE_ROWS_MAX);
                self.remote_reports.charge(now.instant, Clock::now().instant.since(start));
                report
            })
        };
        self.core.peer.answer_report(now, from, reply, report.as_deref().map_err(|reason| *reason));
        self.core.apply_effects(now);
    }

    /// Returns a report in JSON of at most `rows_max` rows, or an object with the reason why there is none.
    fn report_bytes(&mut self, now: ClockReading, query: &[u8], rows_max: usize) -> Vec<u8> {
        let answer = match parse(query) {
            Ok(query) if query.get("ping").is_some() => self.pong(now),
            Ok(query) => {
                let list = self.core.protection.revocations_answer(&query);
                list.unwrap_or_else(|| self.show_limited(now, &query, rows_max))
            }
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

fn parse(query: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_keep_to_their_rate() {
        let mut now = Instant::from_nanos(0);
        let mut reports = RemoteReports::new(true, now);
        // Returns the number of 100 queries at once that get a report, if each report takes this time.
        let admitted = |reports: &mut RemoteReports, now, micros| {
            let mut admit = || reports.check(now).map(|()| reports.charge(now, Duration::from_micros(micros)));
            (0..100).filter(|_| admit().is_ok()).count()
        };
        assert_eq!(admitted(&mut reports, now, 100), 21);
        assert_eq!(reports.check(now), Err(Refused::Busy));
        now = now + Duration::from_millis(100);
        assert_eq!(admitted(&mut reports, now, 100), 2);
        now = now + Duration::from_secs(60);
        assert_eq!(admitted(&mut reports, now, 100), 21);
        // Reports that take long come at a lower rate: 100 ms of 2 s.
        now = now + Duration::from_secs(60);
        assert_eq!(admitted(&mut reports, now, 100_000), 1);
        now = now + Duration::from_millis(999);
        assert_eq!(admitted(&mut reports, now, 100_000), 0);
        now = now + Duration::from_millis(1);
        assert_eq!(admitted(&mut reports, now, 100_000), 1);
    }

    #[test]
    fn peer_without_permission_refuses_every_query() {
        let now = Instant::from_nanos(0);
        let mut reports = RemoteReports::new(false, now);
        assert_eq!((reports.check(now), reports.check_rate(now)), (Err(Refused::NoReports), Ok(())));
        reports.allow(true);
        assert_eq!(reports.check(now), Ok(()));
    }
}
