//! The realm of a peer, as its link to other sites needs it.

use crate::link::signatures::realm_trust::RealmTrust;
use crate::security::ProvenCertificate;
use crate::security::realm::SigningKey;
use std::sync::{Arc, Mutex, PoisonError};

/// Keys and rules of the realm.
#[derive(Debug)]
pub(crate) struct LinkRealm {
    /// Name of the realm.
    pub(crate) name: String,
    pub(crate) trust: RealmTrust,
    /// Certificate of this host, which contains the public half of `key`.
    pub(crate) certificate: ProvenCertificate,
    pub(crate) key: Arc<SigningKey>,
}

/// Latest realm for the thread of the link, set after a reload or a new revocation list.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkRealmUpdates(Arc<Mutex<Option<LinkRealm>>>);

impl LinkRealmUpdates {
    /// Replaces the realm that the link has not taken yet.
    pub(crate) fn put(&self, realm: LinkRealm) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(realm);
    }

    /// Removes and returns the realm, if it has changed since the last call.
    pub(crate) fn take(&self) -> Option<LinkRealm> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
