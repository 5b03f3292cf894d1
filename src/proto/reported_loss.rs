//! Loss of this peer's streams, as one receiver reports it.

use crate::message::MissingDatagrams;
use crate::proto::advisory::Throttle;
use crate::time::WallTime;
use crate::wire::Report;

/// Last report of a receiver, and the part of it that advisories have counted.
#[derive(Debug, Default)]
pub struct ReportedLoss {
    /// The report.
    pub report: Option<Report>,
    /// Time of its last change.
    pub at: Option<WallTime>,
    /// Datagrams that the receiver gave up last.
    missing: MissingDatagrams,
    /// True if no advisory has counted those datagrams.
    is_uncounted: bool,
}

impl ReportedLoss {
    /// Handles a further report, and adds the difference to the sums of advisories about the multicast stream and the
    /// directed one.
    pub fn on_report(&mut self, report: Report, at: WallTime, throttle: &mut Throttle, directed: &mut Throttle) {
        if self.report != Some(report) {
            self.at = Some(at);
        }
        let before = self.report.replace(report).unwrap_or_default();
        let more = |now: u64, before: u64| now.saturating_sub(before);
        // The report is untrusted and may contain any value.
        let directed_lost = more(report.directed_lost, before.directed_lost);
        directed.on_report(directed_lost, directed_lost, 0, MissingDatagrams::default(), false);
        let lost_min = more(report.lost_min, before.lost_min);
        let lost = (lost_min, more(report.lost_max, before.lost_max).max(lost_min));
        // Datagrams that the receiver gave up. Their messages may follow in a later report.
        let gone = |report: Report| report.missing.saturating_sub(report.repaired).saturating_sub(report.pending);
        let datagrams = more(gone(report), gone(before));
        if 0 < datagrams {
            let missing = MissingDatagrams { datagrams, overrun: more(report.overrun, before.overrun) };
            let uncounted = if self.is_uncounted { self.missing } else { MissingDatagrams::default() };
            (self.missing, self.is_uncounted) = (uncounted.plus(missing), true);
        }
        let unverified = more(report.unverified, before.unverified);
        if 0 < lost.1 || 0 < unverified {
            throttle.on_report(lost.0, lost.1, unverified, self.missing, self.is_uncounted);
            self.is_uncounted = false;
        }
    }
}
