//! Limit of the size of datagrams while the peer runs, because larger ones do not arrive at some receivers.

use super::Peer;
use crate::message::{Epoch, Publisher};
use crate::proto::path_probe::PathSizes;
use crate::time::{ClockReading, Instant};
use std::net::SocketAddr;

/// Maximum number of receivers that a report names.
const RECEIVERS_MAX: usize = 64;

/// Size of datagrams that do not arrive at some receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathLimit {
    /// Size in bytes of UDP payload that does not arrive, the smallest of all receivers.
    pub failing: usize,
    /// Size in bytes of UDP payload that arrives at all of them.
    pub arriving: usize,
    /// The first receivers whose path was found limited, with their addresses: 64 at most.
    pub receivers: Vec<(Publisher, SocketAddr)>,
}

impl Peer {
    /// Returns the size of datagrams that do not arrive at some receivers, once there is one. This peer sends smaller
    /// ones until it is restarted.
    pub fn path_limit(&self) -> Option<&PathLimit> {
        self.path_limit.as_ref()
    }

    /// Handles the resend of a datagram that was resent to the same member shortly before.
    pub(super) fn on_repeated_resend(&mut self, now: Instant, to: Epoch, bytes: usize) {
        if self.stop.is_none() {
            self.path_probes.on_repeated_resend(now, to, bytes);
        }
    }

    /// Sends the padded heartbeats that are due, and applies the results of the searches that have ended.
    pub(super) fn on_path_tick(&mut self, now: ClockReading) {
        while let Some(probe) = self.path_probes.poll_probe(now.instant, &mut self.rng) {
            self.send_probe(now, probe);
        }
        while let Some((receiver, sizes)) = self.path_probes.poll_result(now.instant) {
            self.on_path_sizes(now, receiver, sizes);
        }
    }

    fn on_path_sizes(&mut self, now: ClockReading, receiver: Epoch, sizes: PathSizes) {
        let Some(member) = self.members.get(&receiver) else { return };
        let row = (member.publisher.clone(), member.address);
        let PathSizes { arriving, failing } = sizes;
        let limit = self.path_limit.get_or_insert(PathLimit { failing, arriving, receivers: Vec::new() });
        (limit.failing, limit.arriving) = (failing.min(limit.failing), arriving.min(limit.arriving));
        if limit.receivers.len() < RECEIVERS_MAX && !limit.receivers.contains(&row) {
            limit.receivers.push(row);
        }
        // Rule: resend
        self.outbound.resends.limit_datagrams(receiver, arriving);
        self.limit_datagrams(now, arriving);
    }

    /// Limits the size of later datagrams of all streams, in bytes of UDP payload. A sealed datagram never changes, so
    /// receivers that larger ones do not reach get the messages of those from the history.
    fn limit_datagrams(&mut self, now: ClockReading, bytes_max: usize) {
        if self.settings.datagram_bytes_max <= bytes_max {
            return;
        }
        self.settle();
        self.flush(now);
        self.settings.datagram_bytes_max = bytes_max;
        self.outbound.multicast.limit_bytes(bytes_max);
        for member in self.members.values_mut() {
            member.directed.limit_bytes(bytes_max);
        }
    }
}
