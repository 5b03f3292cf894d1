//! The rules of a realm by which a gateway trusts other hosts.

use super::known_certificate::KnownCertificate;
use super::signature_refusal::SignatureRefusal;
use crate::security::batch_signature::BatchCodeKey;
use crate::security::realm::{Certificate, RealmMode};
use crate::security::{CertificateVerifier, MembershipKey, ProvenCertificate, Secret};
use crate::time::WallTime;

/// The rules of a realm by which a verifier trusts hosts.
pub struct RealmTrust {
    mode: RealmMode,
    membership: MembershipKey,
    code_key: BatchCodeKey,
    hosts: Box<dyn CertificateVerifier>,
}

impl std::fmt::Debug for RealmTrust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RealmTrust({})", self.mode)
    }
}

impl RealmTrust {
    /// Creates the rules of a realm with this mode and secret, whose certificates `hosts` checks.
    pub fn new(mode: RealmMode, secret: &Secret, hosts: Box<dyn CertificateVerifier>) -> RealmTrust {
        RealmTrust { mode, membership: MembershipKey::of(secret), code_key: BatchCodeKey::of(secret), hosts }
    }

    /// Returns the key of the codes in the signatures of members.
    pub fn code_key(&self) -> &BatchCodeKey {
        &self.code_key
    }

    /// Returns whether the host of a certificate knows the secret of the realm.
    pub(super) fn is_of_member(&self, member: &ProvenCertificate) -> bool {
        member.is_of_member(&self.membership)
    }

    /// Checks a certificate, apart from its validity in time. `is_member` says whether its host knows the secret.
    pub(super) fn check(
        &mut self,
        member: ProvenCertificate,
        is_member: bool,
        now: WallTime,
    ) -> Result<KnownCertificate, SignatureRefusal> {
        let untrusted = |reason: String| SignatureRefusal::Untrusted { reason, is_member };
        let certificate = Certificate::decode(member.certificate()).map_err(|error| untrusted(error.to_string()))?;
        let fields = certificate.fields();
        if self.mode == RealmMode::Realm && !is_member {
            return Err(untrusted(format!("the host '{}' does not know the secret of the realm", fields.name)));
        }
        // Stored messages may be older than the end of the validity, which is checked for each message.
        let second = |seconds: u64| WallTime::from_nanos(seconds.saturating_mul(1_000_000_000));
        let end = Some(fields.validity.not_after).filter(|end| *end != 0).map(second);
        let at = end.map_or(now, |end| now.min(end)).max(second(fields.validity.not_before));
        let host = self.hosts.verify(member.certificate(), &fields.keys.static_key, at).map_err(untrusted)?;
        Ok(KnownCertificate::new(member, certificate, host))
    }
}
