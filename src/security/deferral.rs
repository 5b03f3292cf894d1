//! Datagrams of epochs whose keys are not known yet. They wait for the handshake.

use crate::message::Epoch;
use crate::proto::effect::Path;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum bytes deferred for one epoch.
const EPOCH_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes deferred in all.
const TOTAL_BYTES_MAX: usize = 4 << 20;
/// Time for which the datagrams of an epoch wait, from the first one on.
const TIME_MAX: Duration = Duration::from_millis(250);

/// A datagram as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeferredDatagram {
    pub(super) from: SocketAddr,
    pub(super) path: Path,
    pub(super) bytes: Bytes,
}

/// The deferred datagrams of each epoch, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Deferral {
    epochs: BTreeMap<Epoch, DeferredEpoch>,
    total_bytes: usize,
}

#[derive(Debug)]
struct DeferredEpoch {
    until: Instant,
    bytes: usize,
    datagrams: Vec<DeferredDatagram>,
}

impl Deferral {
    /// Defers a datagram. Returns false if there is no room for it.
    pub(super) fn push(&mut self, now: Instant, epoch: Epoch, datagram: DeferredDatagram) -> bool {
        let bytes = datagram.bytes.len();
        let deferred = self.epochs.get(&epoch).map_or(0, |deferred| deferred.bytes);
        if EPOCH_BYTES_MAX < deferred + bytes || TOTAL_BYTES_MAX < self.total_bytes + bytes {
            return false;
        }
        self.total_bytes += bytes;
        let deferred = self.epochs.entry(epoch);
        let deferred =
            deferred.or_insert_with(|| DeferredEpoch { until: now + TIME_MAX, bytes: 0, datagrams: Vec::new() });
        deferred.bytes += bytes;
        deferred.datagrams.push(datagram);
        true
    }

    /// Takes out the datagrams of an epoch.
    pub(super) fn take(&mut self, epoch: Epoch) -> Vec<DeferredDatagram> {
        let Some(deferred) = self.epochs.remove(&epoch) else { return Vec::new() };
        self.total_bytes -= deferred.bytes;
        deferred.datagrams
    }

    /// Drops the datagrams that have waited too long, and returns their number.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        let due: Vec<Epoch> =
            self.epochs.iter().filter(|(_, deferred)| deferred.until <= now).map(|(epoch, _)| *epoch).collect();
        due.into_iter().map(|epoch| self.take(epoch).len()).sum()
    }

    /// Returns the time at which the next datagrams expire.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.epochs.values().map(|deferred| deferred.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferred_bytes_and_time_are_limited() {
        let epoch = |bits| Epoch::new(bits).unwrap();
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let datagram = |bytes: usize| DeferredDatagram {
            from: "10.0.0.1:7".parse().unwrap(),
            path: Path::Multicast,
            bytes: vec![0; bytes].into(),
        };
        let mut deferral = Deferral::default();
        let accepted = (1..=70).filter(|bits| deferral.push(at(0), epoch(*bits), datagram(EPOCH_BYTES_MAX))).count();
        assert_eq!(accepted, 64, "4 MiB in all");
        assert_eq!(deferral.take(epoch(1)).len(), 1);
        assert!(deferral.push(at(10), epoch(99), datagram(EPOCH_BYTES_MAX - 1)));
        assert!(deferral.push(at(20), epoch(99), datagram(1)));
        assert!(!deferral.push(at(20), epoch(99), datagram(1)), "64 KiB of one epoch");
        assert_eq!((deferral.deadline(), deferral.expire(at(249))), (Some(at(250)), 0));
        assert_eq!((deferral.expire(at(250)), deferral.deadline()), (63, Some(at(260))));
        assert_eq!((deferral.expire(at(260)), deferral.total_bytes), (2, 0));
    }
}
