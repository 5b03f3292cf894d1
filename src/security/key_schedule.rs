//! The key schedule: which key is derived from which secret (`docs/wire.md` section 18).

use super::cipher::{AeadKey, Suite};
use super::secret::Secret;
use crate::message::Epoch;

/// Keys that every member of a realm derives from the realm's secret.
#[derive(Debug)]
pub(super) struct RealmKeys {
    realm_secret: Secret,
    /// Pre-shared key of the handshake.
    pub(super) psk: Secret,
}

impl RealmKeys {
    pub(super) fn new(realm_secret: &Secret) -> RealmKeys {
        RealmKeys { realm_secret: realm_secret.clone(), psk: realm_secret.derive(b"seqcast 1 psk") }
    }

    /// Returns the key that seals the datagrams of an epoch's handshakes, so that strangers get no answer. Their nonces
    /// are random, so each epoch has a key of its own.
    pub(super) fn handshake(&self, group: u16, epoch: Epoch) -> AeadKey {
        let mut info = b"seqcast 1 handshake\0".to_vec();
        info.extend(group.to_be_bytes());
        info.extend(epoch.bits().to_be_bytes());
        AeadKey::derive(Suite::Aes256Gcm, &self.realm_secret, &info)
    }
}

/// Sender of keyed datagrams, with everything that its keys depend on except secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SenderContext {
    pub(super) suite: Suite,
    /// Number of changes of the sender's secrets.
    pub(super) phase: u8,
    pub(super) group: u16,
    pub(super) epoch: Epoch,
}

impl SenderContext {
    /// Derives the key for the datagrams of one purpose.
    fn key(&self, secret: &Secret, purpose: &str, receiver: Option<Epoch>) -> AeadKey {
        let mut info = format!("seqcast 1 {purpose}").into_bytes();
        info.extend([0, self.suite.mode(), self.phase]);
        info.extend(self.group.to_be_bytes());
        info.extend(self.epoch.bits().to_be_bytes());
        info.extend(receiver.into_iter().flat_map(|receiver| receiver.bits().to_be_bytes()));
        AeadKey::derive(self.suite, secret, &info)
    }
}

/// Keys of the datagrams that a sender sends to the group.
#[derive(Debug)]
pub(super) struct GroupKeys {
    pub(super) data: AeadKey,
    pub(super) control: AeadKey,
}

impl GroupKeys {
    /// Derives the keys from the secret that the sender gives to every member.
    pub(super) fn new(sender: &SenderContext, group_secret: &Secret) -> GroupKeys {
        GroupKeys { data: sender.key(group_secret, "data", None), control: sender.key(group_secret, "control", None) }
    }
}

/// Keys of the datagrams that a sender sends to one receiver.
#[derive(Debug)]
pub(super) struct PairwiseKeys {
    pub(super) directed: AeadKey,
    pub(super) control: AeadKey,
}

impl PairwiseKeys {
    /// Derives the keys from the secret that the sender gives to this receiver alone.
    pub(super) fn new(sender: &SenderContext, pairwise_secret: &Secret, receiver: Epoch) -> PairwiseKeys {
        PairwiseKeys {
            directed: sender.key(pairwise_secret, "directed", Some(receiver)),
            control: sender.key(pairwise_secret, "pairwise control", Some(receiver)),
        }
    }
}
