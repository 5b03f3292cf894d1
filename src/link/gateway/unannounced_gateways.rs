//! Gateways that send manifests in the name of this site although no announcement on its LAN names them: they are on
//! another LAN with the same name.

use crate::link::gateway_watch::SILENCE_MAX;
use crate::message::Epoch;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for which a gateway sends such manifests before it counts as one of another LAN.
const CONFLICT_TIME: Duration = Duration::from_secs(5);
/// Maximum number of such gateways. Further ones are ignored.
const GATEWAYS_MAX: usize = 64;

/// Times of the first and of the last manifest of a gateway.
#[derive(Debug)]
struct ManifestTimes {
    first: Instant,
    last: Instant,
}

/// The gateways of this site that no announcement names.
#[derive(Debug, Default)]
pub(super) struct UnannouncedGateways {
    gateways: BTreeMap<Epoch, ManifestTimes>,
}

impl UnannouncedGateways {
    /// Notes a manifest of such a gateway.
    pub(super) fn on_manifest(&mut self, now: Instant, gateway: Epoch) {
        if self.gateways.len() < GATEWAYS_MAX || self.gateways.contains_key(&gateway) {
            self.gateways.entry(gateway).or_insert(ManifestTimes { first: now, last: now }).last = now;
        }
    }

    /// Forgets a gateway that is one of this LAN.
    pub(super) fn remove(&mut self, gateway: Epoch) {
        self.gateways.remove(&gateway);
    }

    /// Forgets the gateways that are silent.
    pub(super) fn expire(&mut self, now: Instant) {
        self.gateways.retain(|_, times| now.since(times.last) < SILENCE_MAX);
    }

    /// Returns whether one of them has sent manifests for long enough.
    pub(super) fn are_in_conflict(&self) -> bool {
        self.gateways.values().any(|times| CONFLICT_TIME <= times.last.since(times.first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn conflict_ends_with_the_manifests() {
        let (gateway, mut gateways) = (Epoch::new(7).unwrap(), UnannouncedGateways::default());
        for second in 0..5 {
            gateways.on_manifest(at(second), gateway);
            assert!(!gateways.are_in_conflict());
        }
        gateways.on_manifest(at(5), gateway);
        gateways.expire(at(10));
        assert!(gateways.are_in_conflict());
        gateways.expire(at(11));
        assert!(!gateways.are_in_conflict());
        // Some repeated manifests at once are no conflict.
        (0..20).for_each(|_| gateways.on_manifest(at(20), gateway));
        assert!(!gateways.are_in_conflict());
        (1..1_000).for_each(|number| gateways.on_manifest(at(20), Epoch::new(number).unwrap()));
        assert_eq!(gateways.gateways.len(), GATEWAYS_MAX);
        gateways.remove(gateway);
        assert_eq!(gateways.gateways.len(), GATEWAYS_MAX - 1);
    }
}
