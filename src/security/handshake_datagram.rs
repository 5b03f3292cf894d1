//! Datagrams of the handshake, which every member of the realm can open and no stranger can make.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------------------------------+---------------+---------------+
//! |     magic = 0x5343 ("SC")     |  version = 1  |   mode = 1    |  0
//! +---------------+---------------+---------------+---------------+
//! |   kind = 3    |     step      |             group             |  4
//! +---------------+---------------+-------------------------------+
//! |                        epoch, not 0                           |  8
//! |                                                               |
//! +---------------------------------------------------------------+
//! |     receiver: an epoch; 0 in a HELLO and in a SIGNATURE        | 16
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                      nonce (12 bytes)                         | 24
//! |                                                               |
//! |                                                               |
//! +---------------------------------------------------------------+
//! |                  body, encrypted · tag (16)                  ... 36
//! +---------------------------------------------------------------+
//! ```

use super::cipher::{AeadKey, TAG_BYTES};
#[cfg(test)]
use super::key_schedule::RealmKeys;
use crate::message::Epoch;
use crate::wire::{MAGIC, VERSION};
use bytes::Bytes;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Mode byte of handshake datagrams: they are sealed by AES-256-GCM, whatever suites the peers use otherwise.
const MODE: u8 = 1;
/// Kind byte of handshake datagrams.
pub(super) const KIND: u8 = 3;
/// Bytes of the nonce, which is random.
pub(super) const NONCE_BYTES: usize = 12;
/// Bytes before the body.
const HEADER_BYTES: usize = 36;
/// Bytes of the body of a HELLO, of a REQUEST and of a COOKIE, which are equal: an answer to an unproven address is
/// never larger than what came from there.
const COOKIE_BODY_BYTES: usize = NONCE_BYTES + COOKIE_BYTES;
/// Bytes of a cookie.
pub(super) const COOKIE_BYTES: usize = 16;
/// Bytes to which the initiator pads its INIT, so that the RESPONSE is not larger.
const INIT_BODY_BYTES: usize = 1148;

/// Message of a handshake, in the order in which they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The initiator has a HELLO of an epoch whose keys it does not have, or knows that its keys are not the newest.
    Request,
    /// The responder proves that it is at its address, and returns a cookie by which the initiator proves the same.
    Cookie,
    /// The initiator returns the cookie, with the first message of the Noise pattern.
    Init,
    /// Second message of the pattern, with the certificate of the responder.
    Response,
    /// Third message of the pattern, with the keys and the certificate of the initiator.
    Final,
    /// Keys of the responder.
    Keys,
    /// A peer names its epoch and its address to the group, so that others begin handshakes with it.
    Hello,
    /// A peer signs hashes of the data that it has sent to the group.
    Signature,
}

const STEPS: [Step; 8] =
    [Step::Request, Step::Cookie, Step::Init, Step::Response, Step::Final, Step::Keys, Step::Hello, Step::Signature];

/// A decoded datagram of a handshake. It is authentic: a member of the realm has made it, maybe long ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HandshakeDatagram {
    pub(super) step: Step,
    pub(super) group: u16,
    /// Epoch of the sender.
    pub(super) epoch: Epoch,
    /// Epoch of the receiver; `None` for the group.
    pub(super) receiver: Option<Epoch>,
    pub(super) nonce: [u8; NONCE_BYTES],
    pub(super) body: Vec<u8>,
}

impl HandshakeDatagram {
    /// Encrypts the datagram by the key of its sender's epoch. Its nonce must be fresh and random.
    pub(super) fn seal(&self, key: &AeadKey) -> Bytes {
        let step = STEPS.iter().position(|step| *step == self.step).expect("every step is listed");
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.body.len() + TAG_BYTES);
        bytes.extend(MAGIC.to_be_bytes());
        bytes.extend([VERSION, MODE, KIND, u8::try_from(step).expect("there are few")]);
        bytes.extend(self.group.to_be_bytes());
        bytes.extend(self.epoch.bits().to_be_bytes());
        bytes.extend(self.receiver.map_or(0, Epoch::bits).to_be_bytes());
        bytes.extend(self.nonce);
        bytes.extend(&self.body);
        let (header, body) = bytes.split_at_mut(HEADER_BYTES);
        let tag = key.seal_with(self.nonce, header, body);
        bytes.extend(tag);
        bytes.into()
    }

    /// Decrypts a datagram of this kind; `None` if it was not made by a member of the realm, or breaks the layout.
    #[cfg(test)]
    pub(super) fn open(bytes: &[u8], keys: &RealmKeys) -> Option<HandshakeDatagram> {
        let sealed = SealedHandshake::decode(bytes)?;
        sealed.open(&keys.handshake(sealed.group, sealed.epoch))
    }
}

/// A datagram that claims to be one of a handshake. Nothing in it is authentic.
#[derive(Clone, Copy, Debug)]
pub(super) struct SealedHandshake<'d> {
    pub(super) step: Step,
    pub(super) group: u16,
    /// Epoch of the sender.
    pub(super) epoch: Epoch,
    receiver: Option<Epoch>,
    nonce: [u8; NONCE_BYTES],
    header: &'d [u8],
    /// The encrypted body with its tag.
    sealed: &'d [u8],
}

impl SealedHandshake<'_> {
    /// Decodes the header of a datagram; `None` if it breaks the layout.
    pub(super) fn decode(bytes: &[u8]) -> Option<SealedHandshake<'_>> {
        let (header, sealed) = bytes.split_at_checked(HEADER_BYTES)?;
        let [m0, m1, VERSION, MODE, KIND, step, g0, g1, rest @ ..] = header else { return None };
        if u16::from_be_bytes([*m0, *m1]) != MAGIC {
            return None;
        }
        let (epoch, rest) = rest.split_first_chunk()?;
        let (receiver, rest) = rest.split_first_chunk()?;
        Some(SealedHandshake {
            step: *STEPS.get(usize::from(*step))?,
            group: u16::from_be_bytes([*g0, *g1]),
            epoch: Epoch::new(u64::from_be_bytes(*epoch))?,
            receiver: Epoch::new(u64::from_be_bytes(*receiver)),
            nonce: *rest.first_chunk()?,
            header,
            sealed,
        })
    }

    /// Decrypts the datagram by the key of its sender's epoch; `None` if no member of the realm made it, or if its body
    /// or its receiver is not one of its step.
    pub(super) fn open(&self, key: &AeadKey) -> Option<HandshakeDatagram> {
        let SealedHandshake { step, group, epoch, receiver, nonce, header, sealed } = *self;
        let mut body = sealed.to_vec();
        let bytes = key.open_with(nonce, header, &mut body)?.len();
        body.truncate(bytes);
        let has_size = match step {
            Step::Hello | Step::Request | Step::Cookie => body.len() == COOKIE_BODY_BYTES,
            Step::Init => body.len() == INIT_BODY_BYTES,
            Step::Response | Step::Final | Step::Keys | Step::Signature => true,
        };
        let goes_to_group = matches!(step, Step::Hello | Step::Signature);
        let is_valid = has_size && receiver.is_none() == goes_to_group;
        is_valid.then_some(HandshakeDatagram { step, group, epoch, receiver, nonce, body })
    }
}

/// The statements of a peer about itself in a HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HelloBody {
    /// Address of its inbox, as one of IPv6.
    ip: Ipv6Addr,
    port: u16,
    /// The phase of its keys that it has announced last.
    pub(super) phase: u8,
    /// Revision of its list of revoked hosts; 0 if it has none.
    pub(super) revision: u64,
}

impl HelloBody {
    pub(super) fn new(address: SocketAddr, phase: u8, revision: u64) -> HelloBody {
        HelloBody { ip: ipv6(address.ip()), port: address.port(), phase, revision }
    }

    /// Returns the bytes: address, port, phase and revision, then zeros.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = [&self.ip.octets()[..], &self.port.to_be_bytes(), &[self.phase]].concat();
        body.extend(self.revision.to_be_bytes());
        body.resize(COOKIE_BODY_BYTES, 0);
        body
    }

    /// Decodes the body of a HELLO; `None` if it is truncated.
    pub(super) fn decode(body: &[u8]) -> Option<HelloBody> {
        let (ip, rest) = body.split_first_chunk::<16>()?;
        let (port, rest) = rest.split_first_chunk()?;
        let ([phase], rest) = rest.split_first_chunk()?;
        let revision = u64::from_be_bytes(*rest.first_chunk()?);
        Some(HelloBody { ip: Ipv6Addr::from(*ip), port: u16::from_be_bytes(*port), phase: *phase, revision })
    }

    /// Returns whether this is the address in it.
    pub(super) fn is_of(&self, address: SocketAddr) -> bool {
        self.ip == ipv6(address.ip()) && self.port == address.port()
    }
}

fn ipv6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Returns the body of a REQUEST: zeros, which make it as large as its answer.
pub(super) fn request_body() -> Vec<u8> {
    vec![0; COOKIE_BODY_BYTES]
}

/// Returns the body of a COOKIE: the nonce of the REQUEST, then the cookie.
pub(super) fn cookie_body(request_nonce: [u8; NONCE_BYTES], cookie: [u8; COOKIE_BYTES]) -> Vec<u8> {
    [&request_nonce[..], &cookie].concat()
}

/// Returns the nonce and the cookie in the body of a COOKIE.
pub(super) fn split_cookie_body(body: &[u8]) -> Option<([u8; NONCE_BYTES], [u8; COOKIE_BYTES])> {
    let (nonce, cookie) = body.split_first_chunk()?;
    Some((*nonce, cookie.try_into().ok()?))
}

/// Returns the body of an INIT: the cookie, the length of the Noise message, the message, and padding.
pub(super) fn init_body(cookie: [u8; COOKIE_BYTES], message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).expect("the first message is an ephemeral key and a tag");
    let mut body = [&cookie[..], &length.to_be_bytes(), message].concat();
    assert!(body.len() <= INIT_BODY_BYTES, "the first message is short");
    body.resize(INIT_BODY_BYTES, 0);
    body
}

/// Returns the cookie and the Noise message in the body of an INIT.
pub(super) fn split_init_body(body: &[u8]) -> Option<([u8; COOKIE_BYTES], &[u8])> {
    let (cookie, rest) = body.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    Some((*cookie, rest.get(..usize::from(u16::from_be_bytes(*length)))?))
}
