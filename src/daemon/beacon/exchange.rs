//! The exchange of beacons, as a state machine: when this peer sends one, and which peers of other groups it knows. It
//! reads no clock and uses no socket.
//!
//! At most one beacon leaves in 60 s, so a peer that starts with a wrong group hears of this one after 60 s at most.
//! The usual interval is longer on purpose: most of the time this peer may then answer a newcomer at once.

use crate::message::{Epoch, PeerName};
use crate::time::Instant;
use crate::wire::Beacon;
use std::net::IpAddr;
use std::time::Duration;

/// Minimum time between two beacons of this peer (W164).
const SPACING: Duration = Duration::from_secs(60);
/// Usual time between two beacons of this peer.
const INTERVAL: Duration = Duration::from_secs(3 * 60);
/// Time after its last beacon for which a peer is remembered: two beacons may be lost.
const LIFETIME: Duration = Duration::from_secs(7 * 60);
/// Maximum number of remembered peers.
const PEERS_MAX: usize = 16;
/// Maximum number of remembered peers at one IP address: no host alone can fill the list.
const PEERS_OF_ADDRESS_MAX: usize = 4;

/// A peer of another group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForeignPeer {
    /// Source address of its beacons.
    pub(crate) address: IpAddr,
    pub(crate) name: PeerName,
    pub(crate) epoch: Epoch,
    pub(crate) group: IpAddr,
    /// UDP port of its group.
    pub(crate) port: u16,
    /// Arrival of its last beacon.
    pub(super) heard: Instant,
}

/// Beacons sent and heard by a peer.
#[derive(Debug)]
pub(super) struct BeaconExchange {
    group: IpAddr,
    port: u16,
    /// Time of the next beacon of this peer.
    next: Instant,
    last: Option<Instant>,
    /// True if the next beacon is early, because of a newcomer of another group.
    is_early: bool,
    /// Peers of other groups, in the order in which they were first heard.
    peers: Vec<ForeignPeer>,
}

impl BeaconExchange {
    /// Creates the exchange of a peer of this group that starts now.
    pub(super) fn new(group: IpAddr, port: u16, now: Instant) -> BeaconExchange {
        BeaconExchange { group, port, next: now, last: None, is_early: false, peers: Vec::new() }
    }

    /// Returns whether a beacon must be sent now, and schedules the one after it.
    pub(super) fn poll_send(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        (self.last, self.next, self.is_early) = (Some(now), now + INTERVAL, false);
        true
    }

    /// Handles a beacon of another peer.
    pub(super) fn on_beacon(&mut self, now: Instant, address: IpAddr, beacon: Beacon) {
        let Beacon { epoch, name, group, port } = beacon;
        self.peers.retain(|peer| peer.epoch == epoch || peer.address != address || peer.name != name);
        if (group, port) == (self.group, self.port) {
            self.peers.retain(|peer| peer.epoch != epoch || peer.address != address);
            if self.is_early {
                self.next = self.last.map_or(now, |last| last + INTERVAL);
                self.is_early = false;
            }
            return;
        }
        let heard = ForeignPeer { address, name, epoch, group, port, heard: now };
        let is_same = |peer: &&mut ForeignPeer| peer.epoch == epoch && peer.address == address;
        if let Some(known) = self.peers.iter_mut().find(is_same) {
            *known = heard;
            return;
        }
        let at_address = self.peers.iter().filter(|peer| peer.address == address).count();
        if PEERS_MAX <= self.peers.len() || PEERS_OF_ADDRESS_MAX <= at_address {
            return;
        }
        self.peers.push(heard);
        let early = self.last.map_or(now, |last| now.max(last + SPACING));
        if early < self.next {
            (self.next, self.is_early) = (early, true);
        }
    }

    /// Forgets the peers whose beacons have ended.
    pub(super) fn expire(&mut self, now: Instant) {
        self.peers.retain(|peer| now.since(peer.heard) < LIFETIME);
    }

    /// Returns the peers of other groups, in the order in which they were first heard.
    pub(super) fn peers(&self) -> &[ForeignPeer] {
        &self.peers
    }
}

#[cfg(test)]
impl ForeignPeer {
    /// Returns a peer for tests of its readers.
    pub(crate) fn example(name: &str, address: IpAddr, group: IpAddr, port: u16) -> ForeignPeer {
        let epoch = Epoch::new(u64::from(port)).unwrap();
        ForeignPeer { address, name: name.parse().unwrap(), epoch, group, port, heard: Instant::from_nanos(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: (&str, u16) = ("239.1.2.3", 7500);
    const OTHER: (&str, u16) = ("239.1.2.3", 7501);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn exchange() -> BeaconExchange {
        BeaconExchange::new(OWN.0.parse().unwrap(), OWN.1, at(0))
    }

    fn beacon(name: &str, epoch: u64, (group, port): (&str, u16)) -> Beacon {
        Beacon { epoch: Epoch::new(epoch).unwrap(), name: name.parse().unwrap(), group: group.parse().unwrap(), port }
    }

    fn host(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// Returns the seconds up to `end` at which the peer sends.
    fn sent(exchange: &mut BeaconExchange, seconds: std::ops::Range<u64>) -> Vec<u64> {
        seconds.filter(|second| exchange.poll_send(at(*second))).collect()
    }

    fn names(exchange: &BeaconExchange) -> Vec<&str> {
        exchange.peers().iter().map(|peer| peer.name.as_str()).collect()
    }

    /// Proves: W164
    #[test]
    fn beacons_leave_at_start_and_at_intervals() {
        assert_eq!(sent(&mut exchange(), 0..600), [0, 180, 360, 540]);
    }

    /// Proves: W164, W165
    #[test]
    fn newcomer_of_another_group_is_answered_early() {
        let mut first = exchange();
        assert_eq!(sent(&mut first, 0..100), [0]);
        first.on_beacon(at(100), host(2), beacon("B", 2, OTHER));
        first.on_beacon(at(100), host(2), beacon("B", 2, OTHER));
        assert_eq!(sent(&mut first, 100..400), [100, 280]);
        // The next newcomer comes 10 s after a beacon, so it waits for 50 s.
        let mut second = exchange();
        assert_eq!(sent(&mut second, 0..10), [0]);
        second.on_beacon(at(10), host(2), beacon("B", 2, OTHER));
        assert_eq!(sent(&mut second, 10..300), [60, 240]);
        // A flood of newcomers does not exceed the rate.
        let mut flooded = exchange();
        let mut times = Vec::new();
        for second in 0..600 {
            flooded.on_beacon(at(second), host((second % 250) as u8), beacon("B", 2 + second, OTHER));
            flooded.expire(at(second));
            times.extend(sent(&mut flooded, second..second + 1));
        }
        assert!(times.windows(2).all(|pair| 60 <= pair[1] - pair[0]), "{times:?}");
    }

    /// Proves: W165
    #[test]
    fn beacon_of_the_own_group_replaces_the_answer() {
        let mut exchange = exchange();
        assert_eq!(sent(&mut exchange, 0..10), [0]);
        exchange.on_beacon(at(10), host(2), beacon("B", 2, OTHER));
        exchange.on_beacon(at(11), host(3), beacon("C", 3, OWN));
        assert_eq!(sent(&mut exchange, 11..300), [180]);
    }

    /// Proves: W166
    #[test]
    fn foreign_peers_are_bounded_and_expire() {
        let mut exchange = exchange();
        for epoch in 1..=100 {
            exchange.on_beacon(at(0), host(2), beacon(&format!("B{epoch}"), epoch, OTHER));
        }
        assert_eq!(names(&exchange), ["B1", "B2", "B3", "B4"]);
        for number in 3..100 {
            exchange.on_beacon(at(1), host(number), beacon("C", u64::from(number), OTHER));
        }
        assert_eq!(exchange.peers().len(), PEERS_MAX);
        exchange.on_beacon(at(100), host(2), beacon("B2", 2, OTHER));
        exchange.expire(at(419));
        assert_eq!(exchange.peers().len(), PEERS_MAX);
        exchange.expire(at(421));
        assert_eq!(names(&exchange), ["B2"]);
        exchange.expire(at(520));
        assert!(exchange.peers().is_empty());
    }

    /// Proves: W166
    #[test]
    fn restarted_foreign_peer_is_replaced_or_forgotten() {
        let mut exchange = exchange();
        exchange.on_beacon(at(0), host(2), beacon("B", 1, OTHER));
        exchange.on_beacon(at(1), host(2), beacon("B", 2, ("239.9.9.9", 7501)));
        exchange.on_beacon(at(2), host(3), beacon("B", 3, OTHER));
        let groups = |exchange: &BeaconExchange| {
            exchange.peers().iter().map(|peer| (peer.epoch.bits(), peer.group.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(groups(&exchange), [(2, "239.9.9.9".to_owned()), (3, "239.1.2.3".to_owned())]);
        exchange.on_beacon(at(3), host(2), beacon("B", 4, OWN));
        assert_eq!(groups(&exchange), [(3, "239.1.2.3".to_owned())]);
    }
}
