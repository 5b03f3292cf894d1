//! The identity of a host: a key that signs, and a key for handshakes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use curve25519_dalek::MontgomeryPoint;
use ring::digest::{Context, SHA256};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bytes of a key, of a seed and of a realm's secret.
pub const KEY_BYTES: usize = 32;
/// Bytes of an Ed25519 signature.
pub const SIGNATURE_BYTES: usize = 64;
/// Bytes of a fingerprint.
pub(super) const FINGERPRINT_BYTES: usize = 32;

/// Salt of the two keys that are derived from one seed.
const SEED_SALT: &[u8] = b"seqcast identity 1";
/// First bytes of the input of a fingerprint.
const FINGERPRINT_CONTEXT: &[u8] = b"seqcast fingerprint 1";
/// Start of a fingerprint as text.
const FINGERPRINT_PREFIX: &str = "SHA256:";

/// An Ed25519 key that signs. `Debug` shows the public half alone.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: [u8; KEY_BYTES],
}

impl SigningKey {
    /// Returns the key of a seed: 32 bytes from the system's randomness, or derived from such bytes.
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> SigningKey {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are a seed");
        let public = pair.public_key().as_ref().try_into().expect("a public key has 32 bytes");
        SigningKey { pair, public }
    }

    /// Returns the public half.
    pub fn public(&self) -> &[u8; KEY_BYTES] {
        &self.public
    }

    /// Signs a message.
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.pair.sign(message).as_ref().try_into().expect("a signature has 64 bytes")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", STANDARD_NO_PAD.encode(self.public))
    }
}

/// Returns whether `signature` is that of the message by the owner of the public key.
pub(in crate::security) fn is_signed_by(
    public: &[u8; KEY_BYTES],
    message: &[u8],
    signature: &[u8; SIGNATURE_BYTES],
) -> bool {
    UnparsedPublicKey::new(&ED25519, public).verify(message, signature).is_ok()
}

/// The public keys of a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PeerKeys {
    /// Ed25519 key that verifies signatures of the host.
    pub signing: [u8; KEY_BYTES],
    /// X25519 key that the host proves in a handshake.
    pub static_key: [u8; KEY_BYTES],
}

impl PeerKeys {
    /// Returns the fingerprint of both keys.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut context = Context::new(&SHA256);
        for part in [FINGERPRINT_CONTEXT, &self.signing, &self.static_key] {
            context.update(part);
        }
        Fingerprint(context.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes"))
    }
}

impl fmt::Debug for PeerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerKeys({})", self.fingerprint())
    }
}

/// The fingerprint of a host's keys: a SHA-256 that people can compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint([u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    /// Takes the bytes of a fingerprint.
    pub(super) fn from_bytes(bytes: [u8; FINGERPRINT_BYTES]) -> Fingerprint {
        Fingerprint(bytes)
    }

    /// Returns the bytes.
    pub(super) fn bytes(&self) -> &[u8; FINGERPRINT_BYTES] {
        &self.0
    }
}

/// Reason why a text is no fingerprint: it is not `SHA256:` and 43 characters of base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintError;

impl fmt::Display for FingerprintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a fingerprint is {FINGERPRINT_PREFIX} and 43 characters of base64")
    }
}

impl std::error::Error for FingerprintError {}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FINGERPRINT_PREFIX}{}", STANDARD_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Fingerprint, FingerprintError> {
        let digits = text.strip_prefix(FINGERPRINT_PREFIX).ok_or(FingerprintError)?;
        let mut bytes = [0; FINGERPRINT_BYTES];
        match STANDARD_NO_PAD.decode_slice(digits, &mut bytes) {
            Ok(FINGERPRINT_BYTES) => Ok(Fingerprint(bytes)),
            _ => Err(FingerprintError),
        }
    }
}

/// The identity of a host. `Debug` shows the fingerprint alone.
pub struct HostIdentity {
    signing: Arc<SigningKey>,
    /// X25519 private key, erased when the identity is dropped.
    static_private: Zeroizing<[u8; KEY_BYTES]>,
    keys: PeerKeys,
}

impl HostIdentity {
    /// Derives both keys from one seed of 32 random bytes.
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> HostIdentity {
        let signing = derive(SEED_SALT, seed, b"ed25519");
        let static_private = derive(SEED_SALT, seed, b"x25519");
        HostIdentity::from_seeds(&signing, &static_private)
    }

    /// Returns the identity with an Ed25519 key of its own seed, and this X25519 private key.
    pub fn from_seeds(signing: &[u8; KEY_BYTES], static_private: &[u8; KEY_BYTES]) -> HostIdentity {
        let signing = SigningKey::from_seed(signing);
        let keys = PeerKeys { signing: *signing.public(), static_key: x25519_public(static_private) };
        HostIdentity { signing: Arc::new(signing), static_private: Zeroizing::new(*static_private), keys }
    }

    /// Returns the key that signs for this host.
    pub fn signing_key(&self) -> &SigningKey {
        &self.signing
    }

    /// Returns the same key for a holder that outlives this identity.
    pub fn shared_signing_key(&self) -> Arc<SigningKey> {
        Arc::clone(&self.signing)
    }

    /// Returns the X25519 private key for handshakes, unclamped.
    pub fn static_private(&self) -> &[u8; KEY_BYTES] {
        &self.static_private
    }

    /// Returns the public keys.
    pub fn keys(&self) -> &PeerKeys {
        &self.keys
    }
}

impl fmt::Debug for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostIdentity({})", self.keys.fingerprint())
    }
}

/// Returns the public half of an X25519 private key.
fn x25519_public(private: &[u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    MontgomeryPoint::mul_base_clamped(*private).to_bytes()
}

/// Output length of [`derive()`].
struct DerivedKeyLength;

impl KeyType for DerivedKeyLength {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

/// Derives a key from a secret: HKDF of RFC 5869 with SHA-256.
fn derive(salt: &[u8], secret: &[u8], info: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
    let parts = [info];
    let expanded = extracted.expand(&parts, DerivedKeyLength).expect("32 bytes are one block");
    expanded.fill(&mut *key).expect("the length is that of a key");
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
        std::array::from_fn(|index| digit(2 * index))
    }

    /// RFC 5869, appendix A.1: the first 32 of its 42 bytes, which do not depend on the length.
    #[test]
    fn derivation_agrees_with_rfc_5869() {
        let salt: [u8; 13] = bytes("000102030405060708090a0b0c");
        let info: [u8; 10] = bytes("f0f1f2f3f4f5f6f7f8f9");
        let expected: [u8; 32] = bytes("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
        assert_eq!(*derive(&salt, &[0x0b; 22], &info), expected);
    }

    /// RFC 8032, section 7.1, test 2.
    #[test]
    fn signature_agrees_with_rfc_8032() {
        let key = SigningKey::from_seed(&bytes("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"));
        assert_eq!(*key.public(), bytes("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"));
        let expected: [u8; 64] = bytes(
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        );
        assert_eq!(key.sign(&[0x72]), expected);
        assert!(is_signed_by(key.public(), &[0x72], &expected));
        assert!(!is_signed_by(key.public(), &[0x73], &expected));
    }

    /// RFC 7748, section 6.1: the keys of Bob.
    #[test]
    fn static_key_agrees_with_rfc_7748() {
        let private = bytes("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let public: [u8; 32] = bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
        let identity = HostIdentity::from_seeds(&[1; 32], &private);
        assert_eq!((identity.static_private(), identity.keys().static_key), (&private, public));
    }

    #[test]
    fn one_seed_gives_two_unrelated_keys() {
        let (one, other) = (HostIdentity::from_seed(&[1; 32]), HostIdentity::from_seed(&[2; 32]));
        assert_ne!(one.keys(), other.keys());
        assert_ne!(one.keys().signing, one.keys().static_key);
        assert_ne!(one.static_private(), &[1; 32]);
        let again = HostIdentity::from_seed(&[1; 32]);
        assert_eq!((one.keys(), one.static_private()), (again.keys(), again.static_private()));
    }

    #[test]
    fn fingerprints_are_read_back_or_refused() {
        let keys = *HostIdentity::from_seed(&[1; 32]).keys();
        let fingerprint = keys.fingerprint();
        let text = fingerprint.to_string();
        assert_eq!((text.len(), text.parse()), (50, Ok(fingerprint)));
        let swapped = PeerKeys { signing: keys.static_key, static_key: keys.signing };
        assert_ne!(swapped.fingerprint(), fingerprint);
        for wrong in [&text[..49], &text[7..], "SHA256:", "", &format!("{text}A")] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(FingerprintError), "{wrong}");
        }
    }

    #[test]
    fn debug_output_has_no_private_key() {
        let identity = HostIdentity::from_seeds(&[3; 32], &[4; 32]);
        let text = format!("{identity:?} {:?} {:?}", identity.signing_key(), identity.keys());
        for secret in [[3_u8; 32], [4; 32]] {
            assert!(
                !text.contains(&STANDARD_NO_PAD.encode(secret)) && !text.contains(&format!("{secret:?}")),
                "{text}"
            );
        }
    }
}
