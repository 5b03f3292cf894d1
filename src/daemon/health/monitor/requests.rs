//! The check of requests: a publisher is heard, and no datagram that was requested from it arrives. It then hears nothing
//! of this peer, or its answers are too large for the path. The publisher's own checks distinguish the two; this check
//! says at its receivers that something is wrong.

use super::{EVENT_TIME, NetworkSetup, is_up, named_hosts};
use crate::daemon::health::finding::{Check, Finding, Severity};
use crate::message::{Epoch, Reason};
use crate::proto::stats::{LossRow, MemberRow};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum number of datagrams that were requested in vain, since one was last repaired, that is a finding. A single one
/// may get lost as often as it is requested.
const UNANSWERED_MIN: u64 = 3;

/// Minimum time for which a datagram is requested. With less time its publisher may only be slow.
const REQUEST_TIME_MIN: Duration = Duration::from_millis(500);

/// Totals of the datagrams of a publisher that were missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTotals {
    /// Datagrams that arrived after they were missing.
    pub(crate) repaired: u64,
    /// Datagrams that did not arrive.
    pub(crate) missed: u64,
    /// Reports of a loss that was not repaired in time, although it was requested.
    pub(crate) unrepaired_reports: u64,
}

impl RequestTotals {
    /// Returns the totals of a row of `show loss`.
    pub(crate) fn of(row: &LossRow) -> RequestTotals {
        let reports = Reason::ALL.iter().zip(row.reasons).find(|(reason, _)| **reason == Reason::Deadline);
        RequestTotals {
            repaired: row.datagrams.repaired,
            missed: row.datagrams.lost + row.datagrams.unverified,
            unrepaired_reports: reports.map_or(0, |(_, count)| count),
        }
    }
}

/// Requests to one publisher.
#[derive(Clone, Copy, Debug, Default)]
struct PublisherRequests {
    /// Totals of the sample before.
    last: RequestTotals,
    /// Number of missed datagrams when one was last repaired.
    missed_before: u64,
    /// Time of the last report of a loss that was not repaired, unless a datagram was repaired since.
    reported: Option<Instant>,
}

impl PublisherRequests {
    fn is_unanswered(&self, now: Instant) -> bool {
        let is_recent = self.reported.is_some_and(|at| now.since(at) < EVENT_TIME);
        is_recent && UNANSWERED_MIN <= self.last.missed.saturating_sub(self.missed_before)
    }
}

/// Requests of this peer that were not answered.
#[derive(Debug, Default)]
pub(super) struct UnansweredRequests {
    publishers: BTreeMap<Epoch, PublisherRequests>,
}

impl UnansweredRequests {
    /// Compares the totals of each publisher with those of the sample before.
    pub(super) fn observe(&mut self, now: Instant, totals: &[(Epoch, RequestTotals)]) {
        let former = std::mem::take(&mut self.publishers);
        for (epoch, totals) in totals {
            let mut requests = former.get(epoch).copied().unwrap_or_default();
            if totals.repaired != requests.last.repaired {
                (requests.missed_before, requests.reported) = (totals.missed, None);
            } else if requests.last.unrepaired_reports < totals.unrepaired_reports {
                requests.reported = Some(now);
            }
            requests.last = *totals;
            self.publishers.insert(*epoch, requests);
        }
    }

    /// Returns the finding about publishers that answer no requests.
    pub(super) fn check(&self, network: &NetworkSetup, now: Instant, peers: &[MemberRow]) -> Option<Finding> {
        if network.reliability < REQUEST_TIME_MIN {
            return None;
        }
        let is_meant = |peer: &&MemberRow| {
            let requests = self.publishers.get(&peer.publisher.epoch);
            is_up(peer) && requests.is_some_and(|requests| requests.is_unanswered(now))
        };
        let silent: Vec<&MemberRow> = peers.iter().filter(is_meant).collect();
        let host = silent.first()?.address.ip();
        Some(Finding {
            check: Check::Requests,
            severity: Severity::Warning,
            found: format!("requests for missing datagrams of {} stay unanswered", named_hosts(&silent)),
            effect: "what is missing here stays lost: those peers hear nothing of this one, or their larger datagrams do \
                     not arrive",
            fix: format!(
                "run 'seqcast health' on the host {host}, whose firewall must admit UDP from {}; seqcast doctor --with \
                 {host} tests both directions and large datagrams",
                network.address
            ),
        })
    }
}
