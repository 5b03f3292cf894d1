//! Handshakes of the security layer.
//!
//! ```text
//! initiator                                     responder
//!     REQUEST  ───────────────────────────────────►          a nonce
//!     ◄─────────────────────────────────── COOKIE            the nonce, a cookie; no state
//!     INIT     ───────────────────────────────────►          the cookie, e
//!     ◄─────────────────────────────────── RESPONSE          e, ee, s, es, certificate
//!     FINAL    ───────────────────────────────────►          s, se, psk, keys, certificate
//!     ◄─────────────────────────────────── KEYS              keys
//! ```

use super::{SecurityEffect, SecurityLayer, draw};
use crate::message::{Epoch, PeerName};
use crate::security::association::{Association, EpochSecrets, RemoteHost};
use crate::security::deferral::DeferredDatagram;
use crate::security::exchange::{HandshakeExchange, HandshakeProgress};
use crate::security::handshake_datagram::{
    HandshakeDatagram, NONCE_BYTES, REQUEST_BYTES, Step, cookie_body, init_body, request_body, split_cookie_body,
    split_init_body,
};
use crate::security::noise::{Noise, NoiseKeys, STATIC_KEY_BYTES};
use crate::security::realm::CERTIFICATE_BYTES_MAX;
use crate::time::{ClockReading, Instant};
use crate::wire::KeyedHeader;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of handshakes in progress, including those that have failed lately.
const EXCHANGES_MAX: usize = 1024;
/// Maximum number of handshakes of each second that this peer begins, and that it answers.
const RATE_MAX: u32 = 500;
/// The same, with one IP address.
const ADDRESS_RATE_MAX: u32 = 100;

/// Counts of handshakes in the present second.
#[derive(Debug)]
pub(super) struct HandshakeLimits {
    begun: RateLimit,
    answered: RateLimit,
}

#[derive(Debug)]
struct RateLimit {
    since: Instant,
    total: u32,
    by_address: BTreeMap<IpAddr, u32>,
}

impl HandshakeLimits {
    pub(super) fn new(now: Instant) -> HandshakeLimits {
        HandshakeLimits { begun: RateLimit::new(now), answered: RateLimit::new(now) }
    }
}

impl RateLimit {
    fn new(now: Instant) -> RateLimit {
        RateLimit { since: now, total: 0, by_address: BTreeMap::new() }
    }

    /// Returns whether one more handshake is allowed, and counts it.
    fn allow(&mut self, now: Instant, address: IpAddr) -> bool {
        if 1 <= now.since(self.since).as_secs() {
            *self = RateLimit::new(now);
        }
        if RATE_MAX <= self.total {
            return false;
        }
        let of_address = self.by_address.entry(address).or_default();
        if ADDRESS_RATE_MAX <= *of_address {
            return false;
        }
        *of_address += 1;
        self.total += 1;
        true
    }
}

impl SecurityLayer {
    /// Handles a datagram of an epoch whose keys are not known: begins a handshake, and defers the datagram.
    pub(super) fn on_unknown_epoch(&mut self, now: Instant, epoch: Epoch, datagram: DeferredDatagram) {
        let from = datagram.from;
        let is_refused = self.exchanges.get(&epoch).is_some_and(HandshakeExchange::is_backed_off);
        // A stranger may have sent the datagram from the address of a victim, so the answer is not larger.
        if !self.exchanges.contains_key(&epoch) && REQUEST_BYTES <= datagram.bytes.len() {
            self.begin(now, epoch, from);
        }
        if is_refused || !self.deferral.push(now, epoch, datagram) {
            self.counters.discard_unauthenticated += 1;
        }
    }

    /// Begins a handshake as the initiator.
    fn begin(&mut self, now: Instant, epoch: Epoch, to: SocketAddr) {
        if EXCHANGES_MAX <= self.exchanges.len() || !self.limits.begun.allow(now, to.ip()) {
            self.counters.limited_handshakes += 1;
            return;
        }
        let (nonce, bytes) = self.seal_handshake(Step::Request, epoch, request_body());
        self.effects.push_back(SecurityEffect::Send { to, bytes: bytes.clone() });
        self.exchanges.insert(epoch, HandshakeExchange::sent(now, to, HandshakeProgress::Requesting { nonce }, bytes));
    }

    /// Handles a datagram of a handshake.
    pub(super) fn on_handshake(&mut self, now: ClockReading, from: SocketAddr, bytes: &Bytes) {
        let datagram = HandshakeDatagram::open(bytes, &self.realm_keys.handshake).filter(|datagram| {
            datagram.group == self.settings.group
                && datagram.receiver == self.own.sender.epoch
                && datagram.epoch != self.own.sender.epoch
        });
        let is_handled = datagram.is_some_and(|datagram| {
            match datagram.step {
                Step::Request => self.on_request(now.instant, from, &datagram),
                Step::Cookie => self.on_cookie(now.instant, from, &datagram),
                Step::Init => self.on_init(now.instant, from, &datagram),
                Step::Response => self.on_response(now, from, &datagram),
                Step::Final => self.on_final(now, from, &datagram),
                Step::Keys => self.on_keys(now, from, &datagram),
            }
            .is_some()
        });
        if !is_handled {
            self.counters.discard_handshake += 1;
        }
    }

    /// Answers a REQUEST, without keeping anything.
    fn on_request(&mut self, now: Instant, from: SocketAddr, request: &HandshakeDatagram) -> Option<()> {
        let cookie = self.cookies.cookie(now, from, request.epoch);
        let (_, bytes) = self.seal_handshake(Step::Cookie, request.epoch, cookie_body(request.nonce, cookie));
        self.effects.push_back(SecurityEffect::Send { to: from, bytes });
        Some(())
    }

    fn on_cookie(&mut self, now: Instant, from: SocketAddr, datagram: &HandshakeDatagram) -> Option<()> {
        let (nonce, cookie) = split_cookie_body(&datagram.body)?;
        let exchange = self.exchanges.get(&datagram.epoch)?;
        let HandshakeProgress::Requesting { nonce: expected } = &exchange.progress else { return None };
        if *expected != nonce || exchange.address != from {
            return None;
        }
        let prologue = self.prologue(self.own.sender.epoch, datagram.epoch);
        let ephemeral_seed = draw(&mut self.secrets);
        let mut noise = Noise::initiate(&self.noise_keys(&prologue), ephemeral_seed);
        let body = init_body(cookie, &noise.write(&[])?);
        let (_, bytes) = self.seal_handshake(Step::Init, datagram.epoch, body);
        self.effects.push_back(SecurityEffect::Send { to: from, bytes: bytes.clone() });
        let progress = HandshakeProgress::Initiating { noise: Box::new(noise) };
        self.exchanges.insert(datagram.epoch, HandshakeExchange::sent(now, from, progress, bytes));
        Some(())
    }

    fn on_init(&mut self, now: Instant, from: SocketAddr, init: &HandshakeDatagram) -> Option<()> {
        let (cookie, message) = split_init_body(&init.body)?;
        if !self.cookies.is_valid(now, from, init.epoch, &cookie) {
            return None;
        }
        match self.exchanges.get(&init.epoch) {
            // Of two handshakes that cross, the one of the lower epoch continues.
            Some(exchange) if exchange.is_initiator() && self.own.sender.epoch < init.epoch => return Some(()),
            Some(HandshakeExchange {
                progress: HandshakeProgress::Responding { init: answered, .. },
                address,
                datagram,
                ..
            }) if *answered == init.body && *address == from => {
                self.effects.push_back(SecurityEffect::Send { to: from, bytes: datagram.clone() });
                return Some(());
            }
            _ => {}
        }
        let has_room = self.exchanges.contains_key(&init.epoch) || self.exchanges.len() < EXCHANGES_MAX;
        if !has_room || !self.limits.answered.allow(now, from.ip()) {
            self.counters.limited_handshakes += 1;
            return Some(());
        }
        let prologue = self.prologue(init.epoch, self.own.sender.epoch);
        let ephemeral_seed = draw(&mut self.secrets);
        let mut noise = Noise::respond(&self.noise_keys(&prologue), ephemeral_seed);
        noise.read(message)?;
        let message = noise.write(&self.credentials.certificate)?;
        let (_, bytes) = self.seal_handshake(Step::Response, init.epoch, message);
        self.effects.push_back(SecurityEffect::Send { to: from, bytes: bytes.clone() });
        let progress = HandshakeProgress::Responding { noise: Box::new(noise), init: init.body.clone() };
        self.exchanges.insert(init.epoch, HandshakeExchange::responded(now, from, progress, bytes));
        Some(())
    }

    fn on_response(&mut self, now: ClockReading, from: SocketAddr, response: &HandshakeDatagram) -> Option<()> {
        let exchange = self.exchanges.get_mut(&response.epoch).filter(|exchange| exchange.address == from)?;
        let HandshakeProgress::Initiating { noise } = &mut exchange.progress else { return None };
        let certificate = noise.read(&response.body)?;
        let static_key = noise.remote_static()?;
        let name = match self.verify(now, response.epoch, &certificate, &static_key) {
            Ok(name) => name,
            Err(reason) => {
                self.refuse(now.instant, response.epoch, from, reason);
                return Some(());
            }
        };
        let secrets = self.own.secrets_for(response.epoch, &static_key).encode();
        let payload = [&secrets[..], &self.credentials.certificate].concat();
        let HandshakeProgress::Initiating { mut noise } = self.exchanges.remove(&response.epoch)?.progress else {
            return None;
        };
        let message = noise.write(&payload)?;
        let (_, bytes) = self.seal_handshake(Step::Final, response.epoch, message);
        self.effects.push_back(SecurityEffect::Send { to: from, bytes: bytes.clone() });
        let host = RemoteHost { address: from, name, static_key };
        let progress = HandshakeProgress::Finishing { transport: Box::new(noise.into_transport()), host };
        self.exchanges.insert(response.epoch, HandshakeExchange::sent(now.instant, from, progress, bytes));
        Some(())
    }

    fn on_final(&mut self, now: ClockReading, from: SocketAddr, datagram: &HandshakeDatagram) -> Option<()> {
        if self.complete(now, from, datagram).is_some() {
            return Some(());
        }
        // The KEYS that answered the first FINAL may be lost.
        let association =
            self.associations.get(&datagram.epoch).filter(|association| association.host.address == from)?;
        let bytes = association.keys_datagram.clone()?;
        self.effects.push_back(SecurityEffect::Send { to: from, bytes });
        Some(())
    }

    /// Completes a handshake as the responder.
    fn complete(&mut self, now: ClockReading, from: SocketAddr, datagram: &HandshakeDatagram) -> Option<()> {
        let epoch = datagram.epoch;
        let exchange = self.exchanges.get_mut(&epoch).filter(|exchange| exchange.address == from)?;
        let HandshakeProgress::Responding { noise, .. } = &mut exchange.progress else { return None };
        let payload = noise.read(&datagram.body)?;
        let static_key = noise.remote_static()?;
        let (secrets, certificate) = EpochSecrets::decode(&payload)?;
        let name = match self.verify(now, epoch, certificate, &static_key) {
            Ok(name) => name,
            Err(reason) => {
                self.refuse(now.instant, epoch, from, reason);
                return Some(());
            }
        };
        let HandshakeProgress::Responding { noise, .. } = self.exchanges.remove(&epoch)?.progress else { return None };
        let message = noise.into_transport().write(&self.own.secrets_for(epoch, &static_key).encode());
        let (_, bytes) = self.seal_handshake(Step::Keys, epoch, message);
        self.effects.push_back(SecurityEffect::Send { to: from, bytes: bytes.clone() });
        let host = RemoteHost { address: from, name, static_key };
        let mut association = Association::new(&self.own, epoch, &secrets, host, now.instant);
        association.keys_datagram = Some(bytes);
        self.establish(now, epoch, association);
        Some(())
    }

    fn on_keys(&mut self, now: ClockReading, from: SocketAddr, datagram: &HandshakeDatagram) -> Option<()> {
        let exchange = self.exchanges.get_mut(&datagram.epoch).filter(|exchange| exchange.address == from)?;
        let HandshakeProgress::Finishing { transport, host } = &mut exchange.progress else { return None };
        let payload = transport.read(&datagram.body)?;
        let (secrets, _) = EpochSecrets::decode(&payload)?;
        let host = host.clone();
        self.exchanges.remove(&datagram.epoch);
        let association = Association::new(&self.own, datagram.epoch, &secrets, host, now.instant);
        self.establish(now, datagram.epoch, association);
        Some(())
    }

    /// Adds an association, and opens the datagrams that waited for it.
    fn establish(&mut self, now: ClockReading, epoch: Epoch, mut association: Association) {
        let RemoteHost { address, name, .. } = association.host.clone();
        if self.settings.peers_max <= self.associations.len() && !self.associations.contains_key(&epoch) {
            self.counters.limited_handshakes += 1;
            self.counters.discard_unauthenticated += self.deferral.take(epoch).len() as u64;
            return;
        }
        if let Some(former) = self.associations.remove(&epoch) {
            association.inherit(former);
        }
        self.associations.insert(epoch, association);
        self.epochs.insert(address, epoch);
        self.counters.authenticated += 1;
        self.effects.push_back(SecurityEffect::Authenticated { epoch, address, name });
        for datagram in self.deferral.take(epoch) {
            let Some(keyed) = KeyedHeader::decode(&datagram.bytes) else { continue };
            let (from, path) = (datagram.from, datagram.path);
            if let Some(bytes) = self.open(now, datagram, &keyed) {
                self.effects.push_back(SecurityEffect::Receive { from, path, bytes });
            }
        }
    }

    /// Returns the name of a trusted host. An epoch belongs to the host that was the first to prove it.
    fn verify(
        &mut self,
        now: ClockReading,
        epoch: Epoch,
        certificate: &[u8],
        static_key: &[u8; STATIC_KEY_BYTES],
    ) -> Result<PeerName, String> {
        if self.associations.get(&epoch).is_some_and(|association| association.host.static_key != *static_key) {
            return Err(format!("it claims the epoch {epoch} of another host"));
        }
        if CERTIFICATE_BYTES_MAX < certificate.len() {
            return Err("its certificate is too long".to_owned());
        }
        self.verifier.verify(certificate, static_key, now.wall)
    }

    fn refuse(&mut self, now: Instant, epoch: Epoch, address: SocketAddr, reason: String) {
        self.exchanges.insert(epoch, HandshakeExchange::refused(now, address));
        self.counters.discard_unauthenticated += self.deferral.take(epoch).len() as u64;
        self.counters.refused += 1;
        self.effects.push_back(SecurityEffect::Refused { address, reason });
    }

    /// Repeats the datagrams of handshakes that are due, and ends those that have failed.
    pub(super) fn repeat_exchanges(&mut self, now: Instant) {
        let effects = &mut self.effects;
        self.exchanges.retain(|_, exchange| {
            if now < exchange.due {
                return true;
            }
            if exchange.is_backed_off() {
                return false;
            }
            let to = exchange.address;
            effects.extend(exchange.repeat(now).map(|bytes| SecurityEffect::Send { to, bytes }));
            true
        });
    }

    /// Seals a datagram of a handshake, and returns it with its nonce.
    fn seal_handshake(&mut self, step: Step, receiver: Epoch, body: Vec<u8>) -> ([u8; NONCE_BYTES], Bytes) {
        let mut nonce = [0; NONCE_BYTES];
        (self.secrets)(&mut nonce);
        let (group, epoch) = (self.settings.group, self.own.sender.epoch);
        let datagram = HandshakeDatagram { step, group, epoch, receiver, nonce, body };
        (nonce, datagram.seal(&self.realm_keys.handshake))
    }

    fn noise_keys<'a>(&'a self, prologue: &'a [u8]) -> NoiseKeys<'a> {
        NoiseKeys { static_private: &self.credentials.static_private, psk: &self.realm_keys.psk, prologue }
    }

    /// Returns what both sides of a handshake mix into its keys: they agree on group and epochs, or the handshake fails.
    fn prologue(&self, initiator: Epoch, responder: Epoch) -> Vec<u8> {
        let mut prologue = b"seqcast 1 prologue\0".to_vec();
        prologue.extend(self.settings.group.to_be_bytes());
        prologue.extend(initiator.bits().to_be_bytes());
        prologue.extend(responder.bits().to_be_bytes());
        prologue
    }
}
