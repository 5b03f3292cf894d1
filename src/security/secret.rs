//! Secrets, from which keys are derived.

use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use std::fmt;
use subtle::ConstantTimeEq;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// 32 secret bytes. They are overwritten when the value is dropped, `Debug` does not show them, and a comparison takes
/// the same time whatever they are.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// Takes 32 bytes that nobody can guess.
    pub fn new(bytes: [u8; SECRET_BYTES]) -> Secret {
        Secret(bytes)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// Fills `out` with bytes that only this secret and `info` determine: HKDF-Expand of RFC 5869 with SHA-256.
    pub(super) fn expand(&self, info: &[u8], out: &mut [u8]) {
        let prk = Prk::new_less_safe(HKDF_SHA256, &self.0);
        let parts = [info];
        let okm = prk.expand(&parts, OutputBytes(out.len())).expect("at most 255 blocks are derived");
        okm.fill(out).expect("the length is that of the output");
    }

    /// Derives another secret.
    pub(super) fn derive(&self, info: &[u8]) -> Secret {
        let mut bytes = [0; SECRET_BYTES];
        self.expand(info, &mut bytes);
        Secret(bytes)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Number of bytes to derive.
struct OutputBytes(usize);

impl KeyType for OutputBytes {
    fn len(&self) -> usize {
        self.0
    }
}
