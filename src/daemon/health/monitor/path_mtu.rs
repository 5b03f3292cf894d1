//! The check of the datagram size: larger datagrams than some size do not arrive at other peers.

use super::list;
use crate::daemon::health::finding::{Check, Finding, Severity};
use crate::proto::peer::PathLimit;

/// Returns the finding about a size of datagrams that does not arrive. It stays until the peer is restarted, because
/// the peer sends smaller ones until then.
pub(super) fn check_mtu(limit: &PathLimit) -> Finding {
    let PathLimit { failing, arriving, receivers } = limit;
    let hosts = list(receivers, |(publisher, address)| format!("{publisher} on the host {}", address.ip()));
    let measure = receivers.first().map_or(String::new(), |(_, address)| {
        format!("; to measure the path, run: seqcast doctor --with {}", address.ip())
    });
    Finding {
        check: Check::Mtu,
        severity: Severity::Warning,
        found: format!(
            "datagrams of {failing} bytes do not arrive at {hosts}, those of {arriving} bytes do; this peer sends no \
             larger ones until it is restarted"
        ),
        effect: "messages sent before came late or were lost",
        fix: format!("raise the MTU on the way to that host, or set datagram-size: {arriving} bytes{measure}"),
    }
}
