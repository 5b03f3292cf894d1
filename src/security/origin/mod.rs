//! Signatures over sent data, by which receivers know its publisher among the members of the group.
//!
//! Group keys prove that a member has sealed a datagram, not which one: every member has them. So a publisher also signs
//! hashes of its DATA datagrams, many at once, since a signature costs as much as sealing a hundred datagrams. It sends
//! them to the group in a SIGNATURE, a datagram of the handshake's kind with this body:
//!
//! ```text
//!  0 +------------------------------------+
//!    | number of the first datagram       |  8 bytes
//!  8 +------------------------------------+
//!    | hashes of datagrams with ascending |  8 bytes each, 1 to 128 of them
//!    | numbers                            |
//!    +------------------------------------+
//!    | signature by the host, Ed25519     |  64 bytes
//!    +------------------------------------+
//! ```
//!
//! Each SIGNATURE repeats the hashes of the one before, so that the loss of a single one does no harm. If several are
//! lost, a receiver gets others with the datagrams that it requests again.
//!
//! A receiver passes datagrams on at once, or holds them until a SIGNATURE covers them.

mod hold;
mod signer;
mod verifier;

pub(super) use hold::OriginHold;
pub(super) use signer::{OriginSigner, RepeatedSignature};
pub(super) use verifier::{OriginVerdict, OriginVerifier, SignatureOutcome};

use super::realm::SIGNATURE_BYTES;
use crate::message::Epoch;
use crate::wire::CHECK_BYTES;
use ring::digest::{SHA256, digest};

/// Maximum number of datagrams whose hashes a SIGNATURE is the first to contain.
const BATCH_MAX: usize = 64;
/// Maximum number of hashes in a SIGNATURE: those of its batch and of the batch before. It has 1,148 bytes then, and so
/// fits each path that handshakes fit.
const HASHES_MAX: usize = 2 * BATCH_MAX;
/// Bytes of a hash. Whoever forges a datagram needs another text with the same hash, which takes 2^63 attempts.
const HASH_BYTES: usize = 8;
/// First bytes of the signed text. No other signed text of seqcast begins with them.
const LABEL: &[u8] = b"seqcast 1 origin\0";

/// The first bytes of the SHA-256 of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OriginHash([u8; HASH_BYTES]);

impl OriginHash {
    /// Returns the hash of a datagram in open mode, without its check value. So it does not depend on keys, which may be
    /// others when the datagram is sent again.
    pub(super) fn of(datagram: &[u8]) -> OriginHash {
        let content = &datagram[..datagram.len().saturating_sub(CHECK_BYTES)];
        let whole = digest(&SHA256, content);
        OriginHash(*whole.as_ref().first_chunk().expect("SHA-256 gives 32 bytes"))
    }
}

/// The epoch whose datagrams are signed. A signature holds for no other epoch or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OriginContext {
    pub(super) group: u16,
    pub(super) epoch: Epoch,
}

impl OriginContext {
    /// Returns the text that is signed. `content` is the body of the SIGNATURE up to the signature.
    fn signed_text(self, content: &[u8]) -> Vec<u8> {
        let (group, epoch) = (self.group.to_be_bytes(), self.epoch.bits().to_be_bytes());
        [LABEL, &group, &epoch, content].concat()
    }
}

/// The decoded body of a SIGNATURE. Its signature may be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SignatureBody<'a> {
    /// Number of the first datagram.
    first: u64,
    /// Number of the last datagram.
    last: u64,
    hashes: Vec<OriginHash>,
    /// Everything before the signature.
    content: &'a [u8],
    signature: [u8; SIGNATURE_BYTES],
}

impl SignatureBody<'_> {
    /// Decodes a body; `None` if it breaks the layout.
    fn decode(bytes: &[u8]) -> Option<SignatureBody<'_>> {
        let (content, signature) = bytes.split_last_chunk::<SIGNATURE_BYTES>()?;
        let (first, hashes) = content.split_first_chunk()?;
        let (hashes, rest) = hashes.as_chunks::<HASH_BYTES>();
        if !rest.is_empty() || !(1..=HASHES_MAX).contains(&hashes.len()) {
            return None;
        }
        let first = u64::from_be_bytes(*first);
        let last = first.checked_add(hashes.len() as u64 - 1)?;
        let hashes = hashes.iter().copied().map(OriginHash).collect();
        Some(SignatureBody { first, last, hashes, content, signature: *signature })
    }
}
