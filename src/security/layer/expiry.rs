//! End of associations: peers that the core gives up, silent ones, expired certificates, and revoked hosts.

use super::{SecurityEffect, SecurityLayer};
use crate::message::Epoch;
use crate::security::association::Association;
use crate::time::ClockReading;

impl SecurityLayer {
    /// Forgets the keys of hosts that are on the list.
    pub(super) fn forget_revoked(&mut self) {
        let SecurityLayer { verifier, associations, epochs, counters, effects, .. } = self;
        associations.retain(|epoch, Association { host, .. }| {
            let is_revoked = verifier.is_revoked(&host.certified.keys);
            if is_revoked {
                counters.revoked += 1;
                let (address, name) = (host.address, host.certified.name.clone());
                effects.push_back(SecurityEffect::Revoked { epoch: *epoch, address, name });
            }
            !is_revoked
        });
        epochs.retain(|_, epoch| associations.contains_key(epoch));
    }

    /// Forgets the keys of silent peers, and of those whose certificate has expired. After a revocation it forgets also
    /// those of peers that have proven nothing since: a run that has crashed changes its keys no more, and a revoked host
    /// can seal datagrams to the group with them.
    pub(super) fn expire_associations(&mut self, now: ClockReading) {
        let SecurityLayer { settings, associations, epochs, counters, effects, list_since, .. } = self;
        let proof_since = list_since.filter(|since| settings.forget <= now.instant.since(*since));
        associations.retain(|epoch, Association { host, last_heard, last_proven, .. }| {
            let has_expired = host.certified.valid_until.is_some_and(|until| until <= now.wall);
            if has_expired {
                counters.expired += 1;
                let (address, name) = (host.address, host.certified.name.clone());
                effects.push_back(SecurityEffect::Expired { epoch: *epoch, address, name });
            }
            let is_unproven = proof_since.is_some_and(|since| *last_proven < since);
            !has_expired && !is_unproven && now.instant.since(*last_heard) < settings.forget
        });
        epochs.retain(|_, epoch| associations.contains_key(epoch));
    }

    /// Forgets the keys of an epoch that the core gives up. If the epoch returns, the core may number what it sends to
    /// it from the start, and so it needs new keys.
    pub fn on_departed(&mut self, epoch: Epoch) {
        self.remove_association(epoch);
    }

    pub(super) fn remove_association(&mut self, epoch: Epoch) -> Option<Association> {
        let former = self.associations.remove(&epoch)?;
        if self.epochs.get(&former.host.address) == Some(&epoch) {
            self.epochs.remove(&former.host.address);
        }
        Some(former)
    }
}
