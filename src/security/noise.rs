//! The handshake `Noise_XXpsk3_25519_AESGCM_SHA256` (Noise Protocol Framework, revision 34), with the cryptography of
//! `ring` and `curve25519-dalek`. Its randomness is an argument.

use super::cipher::TAG_BYTES;
use super::secret::{SECRET_BYTES, Secret};
use curve25519_dalek::MontgomeryPoint;
use curve25519_dalek::traits::IsIdentity;
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::digest::{self, SHA256};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, TransportState};
use zeroize::Zeroizing;

const PATTERN: &str = "Noise_XXpsk3_25519_AESGCM_SHA256";
/// Position of the pre-shared key in the pattern: after the third message.
const PSK_POSITION: u8 = 3;
/// Bytes of an X25519 key, private or public.
pub const STATIC_KEY_BYTES: usize = 32;
/// Maximum bytes that the handshake adds to a payload: two keys and two tags.
pub(super) const OVERHEAD_BYTES: usize = 2 * STATIC_KEY_BYTES + 2 * TAG_BYTES;

/// Keys of this side of a handshake, and the values on which both sides must agree.
pub(super) struct NoiseKeys<'a> {
    pub(super) static_private: &'a Secret,
    pub(super) psk: &'a Secret,
    pub(super) prologue: &'a [u8],
}

/// A handshake in progress.
pub(super) struct Noise(HandshakeState);

/// A handshake that is complete. It protects what the two sides still exchange in it.
pub(super) struct NoiseTransport(TransportState);

impl Noise {
    /// Begins a handshake. `ephemeral_seed` are 32 fresh random bytes.
    pub(super) fn initiate(keys: &NoiseKeys<'_>, ephemeral_seed: Secret) -> Noise {
        Noise(builder(keys, ephemeral_seed).build_initiator().expect("the keys of the pattern are set"))
    }

    /// Answers a handshake. `ephemeral_seed` are 32 fresh random bytes.
    pub(super) fn respond(keys: &NoiseKeys<'_>, ephemeral_seed: Secret) -> Noise {
        Noise(builder(keys, ephemeral_seed).build_responder().expect("the keys of the pattern are set"))
    }

    /// Returns the next message of this side; `None` if a key of the other side is unusable: every private key gives the
    /// same secret with a key of small order.
    pub(super) fn write(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let mut message = vec![0; payload.len() + OVERHEAD_BYTES];
        let bytes = self.0.write_message(payload, &mut message).ok()?;
        message.truncate(bytes);
        Some(message)
    }

    /// Returns the payload of the next message of the other side; `None` if the message is not authentic, or comes out
    /// of turn.
    pub(super) fn read(&mut self, message: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut payload = Zeroizing::new(vec![0; message.len()]);
        let bytes = self.0.read_message(message, &mut payload).ok()?;
        payload.truncate(bytes);
        Some(payload)
    }

    /// Returns the static key of the other side, once a message has proven that it holds the private half.
    pub(super) fn remote_static(&self) -> Option<[u8; STATIC_KEY_BYTES]> {
        self.0.get_remote_static()?.try_into().ok()
    }

    /// Completes the handshake after its third message.
    pub(super) fn into_transport(self) -> NoiseTransport {
        NoiseTransport(self.0.into_transport_mode().expect("all three messages were exchanged"))
    }
}

impl NoiseTransport {
    /// Encrypts a message to the other side.
    pub(super) fn write(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut message = vec![0; payload.len() + OVERHEAD_BYTES];
        let bytes = self.0.write_message(payload, &mut message).expect("the message fits");
        message.truncate(bytes);
        message
    }

    /// Decrypts the next message of the other side; `None` if it is not authentic.
    pub(super) fn read(&mut self, message: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut payload = Zeroizing::new(vec![0; message.len()]);
        let bytes = self.0.read_message(message, &mut payload).ok()?;
        payload.truncate(bytes);
        Some(payload)
    }
}

fn builder<'a>(keys: &NoiseKeys<'a>, ephemeral_seed: Secret) -> Builder<'a> {
    let params: NoiseParams = PATTERN.parse().expect("the pattern is well-formed");
    Builder::with_resolver(params, Box::new(Resolver { ephemeral_seed }))
        .local_private_key(keys.static_private.bytes())
        .and_then(|builder| builder.psk(PSK_POSITION, keys.psk.bytes()))
        .and_then(|builder| builder.prologue(keys.prologue))
        .expect("each key is set once")
}

/// Returns the public half of a static key.
pub fn static_public(private: &Secret) -> [u8; STATIC_KEY_BYTES] {
    MontgomeryPoint::mul_base_clamped(*private.bytes()).to_bytes()
}

/// Resolves the names in the pattern to functions.
struct Resolver {
    ephemeral_seed: Secret,
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(EphemeralRandom(self.ephemeral_seed.clone())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let keys = || X25519Keys { private: Secret::new([0; SECRET_BYTES]), public: [0; STATIC_KEY_BYTES] };
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(keys()) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::new(Sha256(digest::Context::new(&SHA256))) as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM).then(|| Box::new(AesGcm(None)) as Box<dyn Cipher>)
    }
}

/// The randomness of one handshake, which draws one ephemeral key.
struct EphemeralRandom(Secret);

impl Random for EphemeralRandom {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.expand(b"ephemeral", dest);
        self.0 = self.0.derive(b"next");
        Ok(())
    }
}

struct X25519Keys {
    private: Secret,
    public: [u8; STATIC_KEY_BYTES],
}

impl Dh for X25519Keys {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        STATIC_KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        SECRET_BYTES
    }

    fn set(&mut self, privkey: &[u8]) {
        self.private = Secret::new(privkey.try_into().expect("private keys have 32 bytes"));
        self.public = static_public(&self.private);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), snow::Error> {
        let mut private = Zeroizing::new([0; SECRET_BYTES]);
        rng.try_fill_bytes(&mut *private)?;
        self.set(&*private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        self.private.bytes()
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        // Other lengths come from snow's buffers, which have room for longer keys.
        let public = pubkey.first_chunk().ok_or(snow::Error::Dh)?;
        let shared = MontgomeryPoint(*public).mul_clamped(*self.private.bytes());
        if shared.is_identity() {
            return Err(snow::Error::Dh);
        }
        out[..STATIC_KEY_BYTES].copy_from_slice(shared.as_bytes());
        Ok(())
    }
}

struct Sha256(digest::Context);

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        SHA256.block_len()
    }

    fn hash_len(&self) -> usize {
        SHA256.output_len()
    }

    fn reset(&mut self) {
        self.0 = digest::Context::new(&SHA256);
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        let digest = self.0.clone().finish();
        out[..digest.as_ref().len()].copy_from_slice(digest.as_ref());
    }
}

/// AES-256-GCM; `None` until its key is set.
struct AesGcm(Option<LessSafeKey>);

impl AesGcm {
    fn key(&self) -> &LessSafeKey {
        self.0.as_ref().expect("a cipher is used after its key is set")
    }

    /// Returns the nonce of the specification: four bytes of zeros, then the number, big-endian.
    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; aead::NONCE_LEN];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; SECRET_BYTES]) {
        let key = UnboundKey::new(&aead::AES_256_GCM, key).expect("the key has 32 bytes");
        self.0 = Some(LessSafeKey::new(key));
    }

    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (text, tag_room) = out.split_at_mut(plaintext.len());
        text.copy_from_slice(plaintext);
        let tag = self.key().seal_in_place_separate_tag(Self::nonce(nonce), Aad::from(authtext), text);
        let tag = tag.expect("a message of the handshake is far below the limit");
        tag_room[..tag.as_ref().len()].copy_from_slice(tag.as_ref());
        plaintext.len() + tag.as_ref().len()
    }

    fn decrypt(&self, nonce: u64, authtext: &[u8], ciphertext: &[u8], out: &mut [u8]) -> Result<usize, snow::Error> {
        let mut text = ciphertext.to_vec();
        let text = self.key().open_in_place(Self::nonce(nonce), Aad::from(authtext), &mut text);
        let text = text.map_err(|_| snow::Error::Decrypt)?;
        out[..text.len()].copy_from_slice(text);
        Ok(text.len())
    }
}
