//! The check of the clocks of other peers against that of this host.

use super::{NetworkSetup, is_up, span_text};
use crate::daemon::health::finding::{Check, Finding, Severity};
use crate::proto::stats::MemberRow;
use crate::seqno::FRAME_SHIFT;
use std::time::Duration;

/// Minimum difference of two clocks that is a finding: a time frame of sequence numbers.
const SKEW_MIN: Duration = Duration::from_nanos(1 << FRAME_SHIFT);
/// Maximum age of a measurement. A clock may have been set since.
const SKEW_AGE_MAX: Duration = Duration::from_secs(600);

/// Returns the finding about the clock that differs most from that of this host.
pub(super) fn check_skew(network: &NetworkSetup, peers: &[MemberRow]) -> Option<Finding> {
    let skew = |peer: &MemberRow| {
        let (nanos, age) = peer.clock_offset.filter(|_| is_up(peer))?;
        (age <= SKEW_AGE_MAX && SKEW_MIN <= Duration::from_nanos(nanos.unsigned_abs())).then_some(nanos)
    };
    let skewed = peers.iter().filter_map(|peer| Some((peer, skew(peer)?)));
    let (peer, nanos) = skewed.clone().max_by_key(|(_, nanos)| nanos.unsigned_abs())?;
    let direction = if nanos < 0 { "behind" } else { "ahead of" };
    let more = match skewed.count() - 1 {
        0 => String::new(),
        more => format!("; the clocks of {more} more peers differ by a time frame or more, too"),
    };
    let NetworkSetup { name, address, .. } = network;
    let (span, host) = (span_text(Duration::from_nanos(nanos.unsigned_abs())), peer.address.ip());
    Some(Finding {
        check: Check::Skew,
        severity: Severity::Warning,
        found: format!(
            "the clock of {} on the host {host} is {span} {direction} that of {name} on the host {address}{more}",
            peer.publisher
        ),
        effect: "the stamps of messages, and the time frames of their numbers, differ between the hosts",
        fix: "synchronize the clocks of both hosts; look at: timedatectl timesync-status".to_owned(),
    })
}
