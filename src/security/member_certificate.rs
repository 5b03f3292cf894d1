//! The certificate of a host with the proof that the host knows the realm's secret.
//!
//! ```text
//!   0 +------------------------------------+
//!     | proof                              |  16 bytes
//!  16 +------------------------------------+
//!     | certificate                        |  at most 960 bytes
//!     +------------------------------------+
//! ```
//!
//! In the mode `realm` hosts sign their certificates themselves, so the signature says nothing about the membership. In
//! a handshake the secret does. Here the proof does: the first bytes of an HMAC-SHA-256 of the certificate, by a key that
//! is derived from the secret.

use super::batch_signature::CertificateId;
use super::realm::CERTIFICATE_BYTES_MAX;
use super::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use ring::hmac::{HMAC_SHA256, Key, sign};
use subtle::ConstantTimeEq;

/// Bytes of a proof.
const PROOF_BYTES: usize = 16;
/// Maximum length in bytes.
pub const MEMBER_CERTIFICATE_BYTES_MAX: usize = PROOF_BYTES + CERTIFICATE_BYTES_MAX;

/// Input of the derivation of the key from the realm's secret.
const KEY_INFO: &[u8] = b"seqcast 1 link member";

/// The key of the proofs of membership in a realm.
#[derive(Clone, Debug)]
pub struct MembershipKey(Key);

impl MembershipKey {
    /// Returns the key of a realm with this secret.
    pub fn of(realm_secret: &Secret) -> MembershipKey {
        MembershipKey(Key::new(HMAC_SHA256, realm_secret.derive(KEY_INFO).bytes()))
    }

    fn proof(&self, certificate: &[u8]) -> [u8; PROOF_BYTES] {
        *sign(&self.0, certificate).as_ref().first_chunk().expect("HMAC-SHA-256 gives 32 bytes")
    }
}

/// A certificate with the proof of membership. Neither has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenCertificate {
    bytes: Bytes,
}

impl ProvenCertificate {
    /// Returns the certificate of a host that knows the realm's secret.
    pub fn new(certificate: &[u8], realm_secret: &Secret) -> ProvenCertificate {
        let proof = MembershipKey::of(realm_secret).proof(certificate);
        ProvenCertificate { bytes: [&proof, certificate].concat().into() }
    }

    /// Takes bytes of a host; `None` if they are too many or too few.
    pub fn decode(bytes: Bytes) -> Option<ProvenCertificate> {
        (PROOF_BYTES..=MEMBER_CERTIFICATE_BYTES_MAX).contains(&bytes.len()).then_some(ProvenCertificate { bytes })
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Reads what [`ProvenCertificate::to_text`] has written; `None` if it is something else.
    pub fn from_text(text: &str) -> Option<ProvenCertificate> {
        let is_short = text.len() <= MEMBER_CERTIFICATE_BYTES_MAX.div_ceil(3) * 4;
        ProvenCertificate::decode(is_short.then(|| STANDARD_NO_PAD.decode(text).ok()).flatten()?.into())
    }

    /// Returns the bytes in base64 without padding.
    pub fn to_text(&self) -> String {
        STANDARD_NO_PAD.encode(&self.bytes)
    }

    /// Returns the certificate.
    pub fn certificate(&self) -> &[u8] {
        &self.bytes[PROOF_BYTES..]
    }

    /// Returns the id of the certificate.
    pub fn id(&self) -> CertificateId {
        CertificateId::of(self.certificate())
    }

    /// Returns whether the host knows the secret of the realm with this key.
    pub fn is_of_member(&self, key: &MembershipKey) -> bool {
        self.bytes[..PROOF_BYTES].ct_eq(&key.proof(self.certificate())).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_prove_their_certificates() {
        let (secret, other) = (Secret::new([1; 32]), Secret::new([2; 32]));
        let member = ProvenCertificate::new(b"certificate", &secret);
        assert_eq!(ProvenCertificate::from_text(&member.to_text()).as_ref(), Some(&member));
        assert_eq!(member.certificate(), b"certificate");
        assert_eq!(member.id(), CertificateId::of(b"certificate"));
        let [key, other] = [secret, other].map(|secret| MembershipKey::of(&secret));
        assert!(member.is_of_member(&key) && !member.is_of_member(&other));
        for bit in 0..member.bytes().len() * 8 {
            let mut changed = member.bytes().to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!ProvenCertificate::decode(changed.into()).unwrap().is_of_member(&key));
        }
    }

    #[test]
    fn texts_of_other_lengths_are_refused() {
        for bytes in [0, PROOF_BYTES - 1, MEMBER_CERTIFICATE_BYTES_MAX + 1, 100_000] {
            assert_eq!(ProvenCertificate::from_text(&STANDARD_NO_PAD.encode(vec![0; bytes])), None, "{bytes}");
        }
        assert_eq!(ProvenCertificate::from_text("no base64"), None);
    }
}
