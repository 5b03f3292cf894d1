//! One signature over a batch of messages, each of which can be verified without the others.
//!
//! A signature costs as much as sending a message. So a host signs up to 64 messages at once: their hashes are the leaves
//! of a Merkle tree, and the signature is one of its root. Each message has a copy of the signature, and the hashes that
//! lead from its own leaf to the root:
//!
//! ```text
//!   0 +------------------------------------+
//!     | version = 1 (1) | messages n (1)   |  1 to 64 messages in the batch
//!   2 +------------------------------------+
//!     | index of this message (1)          |  0 to n - 1, in the order of sending
//!   3 +------------------------------------+
//!     | time of the batch                  |  8 bytes, microseconds since 1970
//!  11 +------------------------------------+
//!     | run of the signer                  |  8 bytes, random
//!  19 +------------------------------------+
//!     | id of the signer's certificate     |  16 bytes
//!  35 +------------------------------------+
//!     | signature, Ed25519                 |  64 bytes
//!  99 +------------------------------------+
//!     | code of the realm                  |  16 bytes
//! 115 +------------------------------------+
//!     | hashes beside the path to the root |  32 bytes each, the lowest first, at most 6
//!     +------------------------------------+
//! ```
//!
//! Numbers are big-endian. The signed text is `seqcast 1 link batch` and a zero byte, the bytes 0, 1 and 3 to 34, and
//! the root. The hash of a leaf is the SHA-256 of `seqcast 1 link message`, a zero byte and the parts of the message; of
//! an inner node that of `seqcast 1 link node`, a zero byte and the hashes of its two children. A node without a
//! neighbour at its right is its own parent. Neither of the three texts begins like another one, and each part of a
//! message has its length before it: 4 bytes.
//!
//! The code is the first bytes of an HMAC-SHA-256 of the signed text, by a key that is derived from the realm's secret.
//! Everybody can make a wrong signature, and its check costs 40 us. The check of the code costs about 1 us, and only
//! members of the realm can make a right one.

use super::realm::{KEY_BYTES, SIGNATURE_BYTES, SigningKey, is_signed_by};
use super::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::digest::{Context, SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};
use subtle::ConstantTimeEq;

/// Maximum number of messages in a batch.
pub const BATCH_MESSAGES_MAX: usize = 64;
/// Bytes of the id of a certificate.
pub const CERTIFICATE_ID_BYTES: usize = 16;
/// Maximum length of a signature as text.
pub const BATCH_SIGNATURE_TEXT_MAX: usize = SIGNATURE_MAX.div_ceil(3) * 4;

/// Version of the layout.
const VERSION: u8 = 1;
const HASH_BYTES: usize = 32;
/// Bytes before the hashes.
const FIXED_BYTES: usize = 3 + 8 + 8 + CERTIFICATE_ID_BYTES + SIGNATURE_BYTES + CODE_BYTES;
/// Bytes of the code of the realm.
const CODE_BYTES: usize = 16;
/// Maximum number of hashes beside a path.
const PATH_MAX: usize = BATCH_MESSAGES_MAX.ilog2() as usize;
const SIGNATURE_MAX: usize = FIXED_BYTES + PATH_MAX * HASH_BYTES;

const BATCH_LABEL: &[u8] = b"seqcast 1 link batch\0";
const MESSAGE_LABEL: &[u8] = b"seqcast 1 link message\0";
const NODE_LABEL: &[u8] = b"seqcast 1 link node\0";
/// Input of the derivation of the key of codes from the realm's secret.
const CODE_KEY_INFO: &[u8] = b"seqcast 1 link batch";

/// The key of the codes of a realm, by which its members recognize each other's batches.
#[derive(Clone, Debug)]
pub struct BatchCodeKey {
    secret: Secret,
    key: hmac::Key,
}

impl BatchCodeKey {
    /// Returns the key of a realm with this secret.
    pub fn of(realm_secret: &Secret) -> BatchCodeKey {
        let secret = realm_secret.derive(CODE_KEY_INFO);
        let key = hmac::Key::new(HMAC_SHA256, secret.bytes());
        BatchCodeKey { secret, key }
    }

    fn code(&self, signed_text: &[u8]) -> [u8; CODE_BYTES] {
        *hmac::sign(&self.key, signed_text).as_ref().first_chunk().expect("HMAC-SHA-256 gives 32 bytes")
    }
}

impl PartialEq for BatchCodeKey {
    fn eq(&self, other: &BatchCodeKey) -> bool {
        self.secret == other.secret
    }
}

impl Eq for BatchCodeKey {}

/// The id of a certificate: the first bytes of its SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertificateId([u8; CERTIFICATE_ID_BYTES]);

impl CertificateId {
    /// Returns the id of an encoded certificate.
    pub fn of(certificate: &[u8]) -> CertificateId {
        let whole = digest(&SHA256, certificate);
        CertificateId(*whole.as_ref().first_chunk().expect("SHA-256 gives 32 bytes"))
    }
}

/// A hash in the tree of a batch: of a message, or of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchHash([u8; HASH_BYTES]);

impl BatchHash {
    /// Returns the hash of a message with these parts.
    pub fn of_message<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> BatchHash {
        let mut context = Context::new(&SHA256);
        context.update(MESSAGE_LABEL);
        for part in parts {
            context.update(&(part.len() as u32).to_be_bytes());
            context.update(part);
        }
        BatchHash::finish(context)
    }

    fn of_node(left: BatchHash, right: BatchHash) -> BatchHash {
        let mut context = Context::new(&SHA256);
        for part in [NODE_LABEL, &left.0, &right.0] {
            context.update(part);
        }
        BatchHash::finish(context)
    }

    fn finish(context: Context) -> BatchHash {
        BatchHash(context.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes"))
    }
}

/// Statements of a signature about its whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchDescription {
    /// Number of messages, 1 to [`BATCH_MESSAGES_MAX`].
    pub messages: u8,
    /// Time of the batch in microseconds since 1970. The signer's next batch has a higher one.
    pub time_micros: u64,
    /// Random number of the signer's run, in which the times ascend.
    pub run: u64,
    /// Certificate with the key of the signer.
    pub certificate: CertificateId,
}

impl BatchDescription {
    /// Returns the text that is signed for the batch with this root.
    fn signed_text(&self, root: BatchHash) -> Vec<u8> {
        let BatchDescription { messages, time_micros, run, certificate } = self;
        let (time, run) = (time_micros.to_be_bytes(), run.to_be_bytes());
        [BATCH_LABEL, &[VERSION, *messages], &time, &run, &certificate.0, &root.0].concat()
    }
}

/// The signature of a message in a batch. It may be wrong: [`SignedRoot::is_signed_by`] checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSignature {
    /// The batch.
    pub batch: BatchDescription,
    /// Index of the message in the batch.
    pub index: u8,
    signature: [u8; SIGNATURE_BYTES],
    code: [u8; CODE_BYTES],
    path: HashPath,
}

/// The hashes beside the path from a message to the root, the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HashPath {
    hashes: [BatchHash; PATH_MAX],
    length: usize,
}

impl HashPath {
    const EMPTY: HashPath = HashPath { hashes: [BatchHash([0; HASH_BYTES]); PATH_MAX], length: 0 };

    /// Appends a hash. There are at most [`PATH_MAX`].
    fn push(&mut self, hash: BatchHash) {
        self.hashes[self.length] = hash;
        self.length += 1;
    }

    fn as_slice(&self) -> &[BatchHash] {
        &self.hashes[..self.length]
    }
}

/// The root of a batch with its signature. It is the same for each message of the batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SignedRoot {
    batch: BatchDescription,
    root: BatchHash,
    signature: [u8; SIGNATURE_BYTES],
}

impl SignedRoot {
    /// Returns whether the owner of this Ed25519 public key has signed the batch.
    pub fn is_signed_by(&self, public: &[u8; KEY_BYTES]) -> bool {
        is_signed_by(public, &self.batch.signed_text(self.root), &self.signature)
    }
}

/// Signs a batch of messages with these hashes, in their order. `batch.messages` is set by their number.
///
/// # Panics
/// There is no message, or there are more than [`BATCH_MESSAGES_MAX`].
pub fn sign_batch(
    key: &SigningKey,
    code_key: &BatchCodeKey,
    batch: BatchDescription,
    hashes: &[BatchHash],
) -> Vec<BatchSignature> {
    assert!((1..=BATCH_MESSAGES_MAX).contains(&hashes.len()), "a batch has 1 to {BATCH_MESSAGES_MAX} messages");
    let batch = BatchDescription { messages: hashes.len() as u8, ..batch };
    let mut paths = vec![HashPath::EMPTY; hashes.len()];
    let mut level = hashes.to_vec();
    let mut height = 0;
    while 1 < level.len() {
        for (index, path) in paths.iter_mut().enumerate() {
            level.get((index >> height) ^ 1).iter().for_each(|hash| path.push(**hash));
        }
        level = level.chunks(2).map(parent).collect();
        height += 1;
    }
    let text = batch.signed_text(level[0]);
    let (signature, code) = (key.sign(&text), code_key.code(&text));
    let signed = paths.into_iter().zip(0..);
    signed.map(|(path, index)| BatchSignature { batch, index, signature, code, path }).collect()
}

fn parent(children: &[BatchHash]) -> BatchHash {
    match children {
        [left, right] => BatchHash::of_node(*left, *right),
        _ => children[0],
    }
}

impl BatchSignature {
    /// Returns the root of the batch if the message has this hash.
    pub fn root(&self, message: BatchHash) -> SignedRoot {
        let mut hash = message;
        let mut path = self.path.as_slice().iter();
        let (mut index, mut count) = (self.index, self.batch.messages);
        while 1 < count {
            if index % 2 == 1 {
                hash = BatchHash::of_node(*path.next().expect("the length was checked"), hash);
            } else if index + 1 < count {
                hash = BatchHash::of_node(hash, *path.next().expect("the length was checked"));
            }
            (index, count) = (index / 2, count.div_ceil(2));
        }
        SignedRoot { batch: self.batch, root: hash, signature: self.signature }
    }

    /// Returns whether a member of the realm with this key has made the batch with this root. The member need not be the
    /// signer.
    pub fn is_of_member(&self, root: &SignedRoot, key: &BatchCodeKey) -> bool {
        self.code.ct_eq(&key.code(&self.batch.signed_text(root.root))).into()
    }

    /// Returns the bytes.
    pub fn encode(&self) -> Vec<u8> {
        let BatchDescription { messages, time_micros, run, certificate } = self.batch;
        let mut bytes = vec![VERSION, messages, self.index];
        bytes.extend(time_micros.to_be_bytes());
        bytes.extend(run.to_be_bytes());
        bytes.extend(certificate.0);
        bytes.extend(self.signature);
        bytes.extend(self.code);
        bytes.extend(self.path.as_slice().iter().flat_map(|hash| hash.0));
        bytes
    }

    /// Decodes bytes; `None` if they break the layout.
    pub fn decode(bytes: &[u8]) -> Option<BatchSignature> {
        let (&[version, messages, index], rest) = bytes.split_first_chunk()?;
        let (time_micros, rest) = rest.split_first_chunk()?;
        let (run, rest) = rest.split_first_chunk()?;
        let (certificate, rest) = rest.split_first_chunk()?;
        let (signature, rest) = rest.split_first_chunk()?;
        let (code, rest) = rest.split_first_chunk()?;
        let (hashes, left) = rest.as_chunks::<HASH_BYTES>();
        let is_valid = version == VERSION
            && usize::from(messages) <= BATCH_MESSAGES_MAX
            && index < messages
            && left.is_empty()
            && hashes.len() == path_length(index, messages);
        let batch = BatchDescription {
            messages,
            time_micros: u64::from_be_bytes(*time_micros),
            run: u64::from_be_bytes(*run),
            certificate: CertificateId(*certificate),
        };
        let decoded = || {
            let mut path = HashPath::EMPTY;
            hashes.iter().for_each(|hash| path.push(BatchHash(*hash)));
            BatchSignature { batch, index, signature: *signature, code: *code, path }
        };
        is_valid.then(decoded)
    }

    /// Returns the bytes in base64 without padding.
    pub fn to_text(&self) -> String {
        STANDARD_NO_PAD.encode(self.encode())
    }

    /// Reads what [`BatchSignature::to_text`] has written; `None` if it is something else.
    pub fn from_text(text: &str) -> Option<BatchSignature> {
        let is_short = text.len() <= BATCH_SIGNATURE_TEXT_MAX;
        BatchSignature::decode(&is_short.then(|| STANDARD_NO_PAD.decode(text).ok()).flatten()?)
    }
}

/// Returns the number of hashes beside the path of a message.
fn path_length(mut index: u8, mut count: u8) -> usize {
    let mut length = 0;
    while 1 < count {
        length += usize::from(index % 2 == 1 || index + 1 < count);
        (index, count) = (index / 2, count.div_ceil(2));
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn description() -> BatchDescription {
        BatchDescription { messages: 0, time_micros: 5, run: 7, certificate: CertificateId::of(b"certificate") }
    }

    fn code_key(seed: u8) -> BatchCodeKey {
        BatchCodeKey::of(&Secret::new([seed; 32]))
    }

    fn hash(number: usize) -> BatchHash {
        BatchHash::of_message([&b"plant.7"[..], &(number as u64).to_be_bytes()])
    }

    #[test]
    fn each_message_of_each_batch_verifies() {
        let key = SigningKey::from_seed(&[1; 32]);
        for count in 1..=BATCH_MESSAGES_MAX {
            let hashes: Vec<BatchHash> = (0..count).map(hash).collect();
            let signatures = sign_batch(&key, &code_key(1), description(), &hashes);
            let roots: Vec<SignedRoot> =
                signatures.iter().zip(&hashes).map(|(signature, hash)| signature.root(*hash)).collect();
            assert!(roots.iter().all(|root| *root == roots[0]), "{count} messages have one root");
            assert!(roots[0].is_signed_by(key.public()));
            assert!(signatures.iter().all(|signature| signature.is_of_member(&roots[0], &code_key(1))));
            assert!(!signatures[0].is_of_member(&roots[0], &code_key(2)));
            for (index, signature) in signatures.iter().enumerate() {
                let text = signature.to_text();
                assert!(text.len() <= BATCH_SIGNATURE_TEXT_MAX);
                assert_eq!(BatchSignature::from_text(&text).as_ref(), Some(signature));
                let other = signature.root(hash((index + 1) % (count + 1)));
                assert!(!other.is_signed_by(key.public()), "message {index} of {count} is another one");
            }
        }
    }

    #[test]
    fn any_changed_bit_is_refused() {
        let (key, other) = (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]));
        let mut rng = Rng::new(3);
        for count in [1, 2, 3, 7, 37, 64] {
            let hashes: Vec<BatchHash> = (0..count).map(hash).collect();
            let signatures = sign_batch(&key, &code_key(1), description(), &hashes);
            let index = rng.below(count as u64) as usize;
            let bytes = signatures[index].encode();
            assert!(!signatures[index].root(hashes[index]).is_signed_by(other.public()));
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let is_signed = BatchSignature::decode(&changed).is_some_and(|signature| {
                    let root = signature.root(hashes[index]);
                    root.is_signed_by(key.public()) && signature.is_of_member(&root, &code_key(1))
                });
                assert!(!is_signed, "bit {bit} of message {index} of {count}");
            }
        }
    }

    #[test]
    fn swapped_paths_are_refused() {
        let key = SigningKey::from_seed(&[1; 32]);
        let hashes: Vec<BatchHash> = (0..64).map(hash).collect();
        let signatures = sign_batch(&key, &code_key(1), description(), &hashes);
        for (index, signature) in signatures.iter().enumerate() {
            let mut swapped = signature.clone();
            swapped.path.hashes.swap(index % 6, (index + 1) % 6);
            assert!(!swapped.root(hashes[index]).is_signed_by(key.public()));
            let moved = BatchSignature { index: (signature.index + 1) % 64, ..signature.clone() };
            assert!(!moved.root(hashes[index]).is_signed_by(key.public()));
        }
    }

    #[test]
    fn parts_of_messages_are_unambiguous() {
        let hashes = [&["a.b", "c"][..], &["a.bc", ""], &["a.b", "c", ""], &["", "a.bc"]]
            .map(|parts| BatchHash::of_message(parts.iter().map(|part| part.as_bytes())));
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash));
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut rng = Rng::new(5);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..rng.below(320)).map(|_| rng.below(256) as u8).collect();
            if let [version, messages, index, ..] = &mut bytes[..] {
                (*version, *messages, *index) = (VERSION, *messages % 70, *index % 70);
            }
            if let Some(signature) = BatchSignature::decode(&bytes) {
                assert_eq!(signature.encode(), bytes, "what decodes encodes back");
                signature.root(hash(1));
            }
            let text: String = bytes.iter().map(|byte| char::from(byte % 127)).collect();
            assert_eq!(BatchSignature::from_text(&text), None);
        }
    }
}
