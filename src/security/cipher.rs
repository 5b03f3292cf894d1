//! Authenticated ciphers: one key seals the datagrams of one kind of one sender.

use super::secret::Secret;
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use std::fmt;

/// Bytes that a sealed datagram has after its records.
pub const TAG_BYTES: usize = 16;
/// Bytes by which a sealed datagram is longer than the same in open mode: a tag instead of a check value.
pub const KEYED_BYTES: usize = TAG_BYTES - 4;
/// Bytes of the number at the end of a nonce.
const NUMBER_BYTES: usize = 8;
/// Bytes of a nonce before the number.
pub(super) const SALT_BYTES: usize = aead::NONCE_LEN - NUMBER_BYTES;
/// Bytes of a cipher's key.
pub(super) const KEY_BYTES: usize = 32;

/// Cipher of a sender. Each sender chooses its own, and the mode byte of its datagrams names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// AES-256 in Galois/Counter Mode, NIST SP 800-38D.
    Aes256Gcm,
    /// ChaCha20-Poly1305, RFC 8439; faster where the processor has no instructions for AES.
    ChaCha20Poly1305,
}

impl Suite {
    /// Returns the mode byte of this suite.
    pub fn mode(self) -> u8 {
        match self {
            Suite::Aes256Gcm => 1,
            Suite::ChaCha20Poly1305 => 2,
        }
    }

    /// Returns the suite of a mode byte; `None` if the mode is open or unknown.
    pub fn of_mode(mode: u8) -> Option<Suite> {
        match mode {
            1 => Some(Suite::Aes256Gcm),
            2 => Some(Suite::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// Returns the name, as in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Suite::Aes256Gcm => "aes-256-gcm",
            Suite::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Suite::Aes256Gcm => &aead::AES_256_GCM,
            Suite::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

/// A key of a suite, with the first part of its nonces.
pub(super) struct AeadKey {
    key: LessSafeKey,
    salt: [u8; SALT_BYTES],
}

impl AeadKey {
    /// Derives the key for one purpose from a secret: 32 bytes of the key, then the salt.
    pub(super) fn derive(suite: Suite, secret: &Secret, info: &[u8]) -> AeadKey {
        let mut bytes = [0; KEY_BYTES + SALT_BYTES];
        secret.expand(info, &mut bytes);
        let (key, salt) = bytes.split_at(KEY_BYTES);
        let key = UnboundKey::new(suite.algorithm(), key).expect("both suites have keys of 32 bytes");
        AeadKey { key: LessSafeKey::new(key), salt: salt.try_into().expect("the rest is the salt") }
    }

    /// Encrypts `text` in place, and returns the tag that authenticates it and `associated`. A number must never be
    /// used for two different texts.
    pub(super) fn seal(&self, number: u64, associated: &[u8], text: &mut [u8]) -> [u8; TAG_BYTES] {
        self.seal_with(self.nonce(number), associated, text)
    }

    /// Works as [`AeadKey::seal`], with a whole nonce.
    pub(super) fn seal_with(
        &self,
        nonce: [u8; aead::NONCE_LEN],
        associated: &[u8],
        text: &mut [u8],
    ) -> [u8; TAG_BYTES] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(associated), text);
        let tag = tag.expect("a datagram is far below the limits of both suites");
        tag.as_ref().try_into().expect("the tags of both suites have 16 bytes")
    }

    /// Decrypts in place a text that its tag follows; returns the text, or `None` if the key, the number or any byte
    /// differs from those that were sealed.
    pub(super) fn open<'t>(&self, number: u64, associated: &[u8], text: &'t mut [u8]) -> Option<&'t mut [u8]> {
        self.open_with(self.nonce(number), associated, text)
    }

    /// Works as [`AeadKey::open`], with a whole nonce.
    pub(super) fn open_with<'t>(
        &self,
        nonce: [u8; aead::NONCE_LEN],
        associated: &[u8],
        text: &'t mut [u8],
    ) -> Option<&'t mut [u8]> {
        self.key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(associated), text).ok()
    }

    fn nonce(&self, number: u64) -> [u8; aead::NONCE_LEN] {
        let mut nonce = [0; aead::NONCE_LEN];
        let (salt, end) = nonce.split_at_mut(SALT_BYTES);
        salt.copy_from_slice(&self.salt);
        end.copy_from_slice(&number.to_be_bytes());
        nonce
    }
}

impl fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AeadKey").finish_non_exhaustive()
    }
}
