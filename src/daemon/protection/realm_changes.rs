//! Changes of the realm of a running peer: files that were read again, and lists of revoked hosts of others.

use super::KeyedProtection;
#[cfg(feature = "links")]
use super::Protection;
#[cfg(feature = "links")]
use crate::daemon::link_realm::{LinkRealm, LinkRealmUpdates};
use crate::daemon::log;
use crate::daemon::running_realm::{RealmChanges, RealmReloadError, RevocationRefusal};
use crate::time::{Instant, WallTime};

impl KeyedProtection {
    /// Continues with the realm, which has changed.
    fn on_realm(&mut self) {
        self.layer.on_credentials(self.realm.credentials(), self.realm.verifier());
        #[cfg(feature = "links")]
        self.link.iter().for_each(|link| link.put(self.realm.link_realm()));
    }

    /// Takes over the files of the realm.
    pub(super) fn reload(&mut self, now: WallTime) -> Result<RealmChanges, RealmReloadError> {
        let changes = self.realm.read_again(now)?;
        self.on_realm();
        Ok(changes)
    }

    /// Takes over the list of another peer that was asked for it; returns whether there is a new one.
    pub(super) fn take_over_revocations(&mut self, now: Instant) -> bool {
        let Some((peer, answer)) = self.inquiry.take_answer(now) else { return false };
        let list = match answer {
            Ok(list) => list,
            Err(failure) => {
                tracing::debug!(%peer, %failure, "this peer gives no list of revoked hosts");
                return false;
            }
        };
        let revision = list.fields().revision;
        match self.realm.adopt(list) {
            Ok(names) => {
                log::revocations(&names, revision, peer);
                self.on_realm();
                true
            }
            Err(refusal @ RevocationRefusal::NotNewer(_)) => {
                tracing::debug!(%peer, %refusal, "a list of revoked hosts is refused");
                false
            }
            Err(refusal) => {
                tracing::warn!(%peer, %refusal, "a list of revoked hosts is refused");
                false
            }
        }
    }
}

#[cfg(feature = "links")]
impl Protection {
    /// Returns the realm for the link to other sites, and where it finds later changes; `None` in open mode.
    pub(crate) fn open_link(&mut self) -> Option<(LinkRealm, LinkRealmUpdates)> {
        match self {
            Protection::Open => None,
            Protection::Keyed(keyed) => {
                let updates = keyed.link.insert(LinkRealmUpdates::default()).clone();
                Some((keyed.realm.link_realm(), updates))
            }
        }
    }
}
