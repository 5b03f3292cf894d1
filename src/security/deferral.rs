//! Datagrams of peers whose handshake is in progress. They wait for its end.

use super::exchange::RemoteEndpoint;
use crate::proto::effect::ArrivedDatagram;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum cost of what is deferred for one handshake.
const HANDSHAKE_COST_MAX: usize = 64 << 10;
/// Maximum cost in all.
const TOTAL_COST_MAX: usize = 4 << 20;
/// Cost of a datagram besides its bytes: the memory that manages it.
const DATAGRAM_COST: usize = 256;
/// Time for which the datagrams of a handshake wait, from the first one on.
const TIME_MAX: Duration = Duration::from_millis(250);

/// The deferred datagrams of each handshake, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Deferral {
    handshakes: BTreeMap<RemoteEndpoint, DeferredDatagrams>,
    total_cost: usize,
}

#[derive(Debug)]
struct DeferredDatagrams {
    until: Instant,
    cost: usize,
    /// True once the other side has proven its address.
    is_proven: bool,
    datagrams: Vec<ArrivedDatagram>,
}

impl Deferral {
    /// Defers a datagram. Returns the number of datagrams that are discarded: this one if there is no room for it, or
    /// those of the oldest handshake whose address is not proven. A stranger that replays a HELLO proves none.
    pub(super) fn push(&mut self, now: Instant, remote: RemoteEndpoint, datagram: ArrivedDatagram) -> usize {
        let cost = DATAGRAM_COST + datagram.bytes.len();
        if HANDSHAKE_COST_MAX < self.handshakes.get(&remote).map_or(0, |deferred| deferred.cost) + cost {
            return 1;
        }
        let mut discarded = 0;
        while TOTAL_COST_MAX < self.total_cost + cost {
            let unproven = self.handshakes.iter().filter(|(other, deferred)| !deferred.is_proven && **other != remote);
            let Some(oldest) = unproven.min_by_key(|(_, deferred)| deferred.until).map(|(other, _)| *other) else {
                return discarded + 1;
            };
            discarded += self.take(oldest).len();
        }
        self.total_cost += cost;
        let deferred = self.handshakes.entry(remote).or_insert_with(|| DeferredDatagrams {
            until: now + TIME_MAX,
            cost: 0,
            is_proven: false,
            datagrams: Vec::new(),
        });
        deferred.cost += cost;
        deferred.datagrams.push(datagram);
        discarded
    }

    /// Records that the other side of a handshake has proven its address.
    pub(super) fn on_proven(&mut self, remote: RemoteEndpoint) {
        if let Some(deferred) = self.handshakes.get_mut(&remote) {
            deferred.is_proven = true;
        }
    }

    /// Takes out the datagrams of a handshake.
    pub(super) fn take(&mut self, remote: RemoteEndpoint) -> Vec<ArrivedDatagram> {
        let Some(deferred) = self.handshakes.remove(&remote) else { return Vec::new() };
        self.total_cost -= deferred.cost;
        deferred.datagrams
    }

    /// Drops the datagrams that have waited too long, and returns their number.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        let due: Vec<RemoteEndpoint> =
            self.handshakes.iter().filter(|(_, deferred)| deferred.until <= now).map(|(remote, _)| *remote).collect();
        due.into_iter().map(|remote| self.take(remote).len()).sum()
    }

    /// Returns the time at which the next datagrams expire.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.handshakes.values().map(|deferred| deferred.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Epoch;
    use crate::proto::effect::Path;

    fn remote(bits: u64) -> RemoteEndpoint {
        RemoteEndpoint { epoch: Epoch::new(bits).unwrap(), address: "10.0.0.1:7".parse().unwrap() }
    }

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Returns a datagram of this cost.
    fn datagram(cost: usize) -> ArrivedDatagram {
        let bytes = vec![0; cost - DATAGRAM_COST].into();
        let from = "10.0.0.1:7".parse().unwrap();
        ArrivedDatagram { from, path: Path::Multicast, bytes, arrived: at(0) }
    }

    #[test]
    fn deferred_cost_and_time_are_limited() {
        let mut deferral = Deferral::default();
        for bits in 1..=64 {
            assert_eq!(deferral.push(at(0), remote(bits), datagram(HANDSHAKE_COST_MAX)), 0, "4 MiB in all");
            deferral.on_proven(remote(bits));
        }
        assert_eq!(deferral.push(at(0), remote(65), datagram(DATAGRAM_COST)), 1);
        assert_eq!(deferral.take(remote(1)).len(), 1);
        assert_eq!(deferral.push(at(10), remote(99), datagram(HANDSHAKE_COST_MAX - DATAGRAM_COST)), 0);
        assert_eq!(deferral.push(at(20), remote(99), datagram(DATAGRAM_COST)), 0);
        assert_eq!(deferral.push(at(20), remote(99), datagram(DATAGRAM_COST)), 1, "64 KiB of one handshake");
        assert_eq!((deferral.deadline(), deferral.expire(at(249))), (Some(at(250)), 0));
        assert_eq!((deferral.expire(at(250)), deferral.deadline()), (63, Some(at(260))));
        assert_eq!((deferral.expire(at(260)), deferral.total_cost), (2, 0));
    }

    #[test]
    fn unproven_address_gives_way_to_others() {
        let mut deferral = Deferral::default();
        deferral.push(at(0), remote(1), datagram(HANDSHAKE_COST_MAX));
        deferral.on_proven(remote(1));
        let discarded: usize =
            (2..=1000).map(|bits| deferral.push(at(bits), remote(bits), datagram(HANDSHAKE_COST_MAX))).sum();
        assert_eq!(discarded, 999 - 63, "the oldest ones");
        assert_eq!([1, 937, 938, 1000].map(|bits| deferral.take(remote(bits)).len()), [1, 0, 1, 1]);
    }
}
