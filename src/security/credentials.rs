//! The credentials of a security layer's own host, and the check of those of others.

use super::cipher::Suite;
use super::noise::STATIC_KEY_BYTES;
use super::realm::{PeerKeys, PeerPermissions, SigningKey};
use super::secret::Secret;
use crate::message::PeerName;
use crate::time::WallTime;
use bytes::Bytes;
use std::sync::Arc;

/// Keys and certificate of this host in its realm.
#[derive(Clone, Debug)]
pub struct RealmCredentials {
    /// Secret of the realm.
    pub realm_secret: Secret,
    /// Private half of this host's X25519 key.
    pub static_private: Secret,
    /// Certificate of this host, at most [`CERTIFICATE_BYTES_MAX`](super::realm::CERTIFICATE_BYTES_MAX) bytes.
    pub certificate: Bytes,
    /// Cipher of the datagrams that this host sends.
    pub suite: Suite,
    /// Revision of the list of revoked hosts; 0 if there is none.
    pub revision: u64,
    /// Ed25519 key of this host if it signs what it publishes in epochs that begin from now on, `None` otherwise.
    pub signing_key: Option<Arc<SigningKey>>,
}

/// A host whose certificate is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedHost {
    /// Name in the certificate.
    pub name: PeerName,
    /// Keys in the certificate.
    pub keys: PeerKeys,
    /// Permissions of the host's programs.
    pub permissions: PeerPermissions,
    /// Time from which the certificate is not valid; `None` if it is valid for ever.
    pub valid_until: Option<WallTime>,
}

/// Checks certificates of other hosts.
pub trait CertificateVerifier: Send {
    /// Returns the host that the certificate describes, and whose handshake proved that it holds the private half of
    /// `static_key`.
    ///
    /// # Errors
    /// Returns the reason why this host does not trust the other.
    fn verify(
        &mut self,
        certificate: &[u8],
        static_key: &[u8; STATIC_KEY_BYTES],
        now: WallTime,
    ) -> Result<CertifiedHost, String>;

    /// Returns whether the keys of a host that was trusted are revoked.
    fn is_revoked(&self, keys: &PeerKeys) -> bool;
}
