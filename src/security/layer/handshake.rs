//! Handshakes of the security layer.
//!
//! ```text
//! initiator                                     responder
//!     ◄─────────────────────────────────── HELLO             to the group: the responder's address
//!     REQUEST  ───────────────────────────────────►          a nonce
//!     ◄─────────────────────────────────── COOKIE            the nonce, a cookie; no state
//!     INIT     ───────────────────────────────────►          the cookie, e
//!     ◄─────────────────────────────────── RESPONSE          e, ee, s, es, certificate
//!     FINAL    ───────────────────────────────────►          s, se, psk, keys, certificate
//!     ◄─────────────────────────────────── KEYS              keys
//! ```

use super::{SecurityEffect, SecurityLayer, draw};
use crate::message::{Epoch, MessageOrigin};
use crate::proto::effect::{ArrivedDatagram, Path};
use crate::security::association::{Association, EpochSecrets, GivenSecret, KeysAnswer, RemoteHost};
use crate::security::credentials::CertifiedHost;
use crate::security::exchange::{ExchangeDue, HandshakeExchange, HandshakeProgress, RemoteEndpoint};
use crate::security::handshake_datagram::{
    HandshakeDatagram, HelloBody, NONCE_BYTES, SealedHandshake, Step, cookie_body, init_body, request_body,
    split_cookie_body, split_init_body,
};
use crate::security::key_log::LoggedSecret;
use crate::security::key_schedule::SenderContext;
use crate::security::noise::{Noise, NoiseKeys, STATIC_KEY_BYTES};
use crate::security::realm::CERTIFICATE_BYTES_MAX;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::{ClockReading, Instant};
use crate::wire::KeyedHeader;
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;

/// Minimum silence after which the keys of a peer may be forgotten for those of another one.
const EVICTION_SILENCE: Duration = Duration::from_secs(5);
/// Maximum number of handshakes in progress, including those that have failed lately.
pub(super) const EXCHANGES_MAX: usize = 2048;

impl SecurityLayer {
    /// Sends a HELLO to the group, if one is due.
    pub(super) fn send_hello(&mut self, now: Instant) {
        if self.hello.due <= now {
            self.hello.on_sent(now);
            let body = HelloBody::new(self.settings.address, self.own.newest().phase, self.credentials.revision);
            let (_, bytes) = self.seal_handshake(Step::Hello, None, body.encode());
            self.effects.push_back(SecurityEffect::Multicast { bytes });
        }
    }

    /// Handles a datagram of a handshake.
    pub(super) fn on_handshake(&mut self, now: ClockReading, from: SocketAddr, path: Path, bytes: &Bytes) {
        let own = self.own.sender.epoch;
        let sealed = SealedHandshake::decode(bytes);
        if let Some(epoch) = sealed.as_ref().filter(|sealed| sealed.step == Step::Signature).map(|sealed| sealed.epoch)
            && self.associations.get(&epoch).is_none_or(|association| association.host.address != from)
        {
            let datagram = ArrivedDatagram { from, path, bytes: bytes.clone(), arrived: now.instant };
            return self.defer(now.instant, RemoteEndpoint { epoch, address: from }, datagram);
        }
        let datagram = sealed.and_then(|sealed| {
            // Peers send a HELLO every second, so the key of those that are known is at hand.
            let goes_to_group = matches!(sealed.step, Step::Hello | Step::Signature);
            let known = self.associations.get(&sealed.epoch).filter(|_| goes_to_group);
            match known.filter(|association| association.host.address == from) {
                Some(association) => sealed.open(&association.handshake_key),
                None => sealed.open(&self.realm_keys.handshake(sealed.group, sealed.epoch)),
            }
        });
        let datagram = datagram.filter(|datagram| {
            let is_for_this = match datagram.receiver {
                // A HELLO goes to the group. So does a SIGNATURE, unless it is over data that is sent again to one peer.
                None => path == Path::Multicast || datagram.step == Step::Signature,
                Some(receiver) => path == Path::Unicast && receiver == own,
            };
            is_for_this && datagram.group == self.settings.group && datagram.epoch != own
        });
        let is_handled = datagram.is_some_and(|datagram| {
            let remote = RemoteEndpoint { epoch: datagram.epoch, address: from };
            match datagram.step {
                Step::Hello => self.on_hello(now.instant, remote, &datagram),
                Step::Request => self.on_request(now.instant, remote, &datagram),
                Step::Cookie => self.on_cookie(now.instant, remote, &datagram),
                Step::Init => self.on_init(now.instant, remote, &datagram),
                Step::Response => self.on_response(now, remote, &datagram),
                Step::Final => self.on_final(now, remote, &datagram),
                Step::Keys => self.on_keys(now, remote, &datagram),
                Step::Signature => self.on_signature(now.instant, &datagram),
            }
            .is_some()
        });
        if !is_handled {
            self.counters.discard_handshake += 1;
        }
    }

    /// Returns whether both sides have the keys of each other.
    fn is_known(&self, remote: RemoteEndpoint) -> bool {
        let association = self.associations.get(&remote.epoch);
        association.is_some_and(|association| association.host.address == remote.address && association.is_sound())
    }

    /// Begins a handshake because a pairwise datagram has come from a peer whose keys may have changed, unless a handshake
    /// with it is in progress or has failed lately.
    pub(super) fn renew_keys(&mut self, now: Instant, remote: RemoteEndpoint) {
        if !self.exchanges.contains_key(&remote) {
            self.begin_handshake(now, remote);
        }
    }

    /// Begins a handshake as the initiator, unless there is no need, or one has failed lately. Each HELLO causes at most one
    /// REQUEST, which is not larger.
    fn on_hello(&mut self, now: Instant, remote: RemoteEndpoint, hello: &HandshakeDatagram) -> Option<()> {
        let hello = HelloBody::decode(&hello.body).filter(|hello| hello.is_of(remote.address))?;
        let RemoteEndpoint { epoch, address } = remote;
        let association = self.associations.get_mut(&epoch);
        if let Some(association) = association.filter(|association| association.host.address == address) {
            association.last_hello = now;
            association.on_phase(hello.phase);
            if self.credentials.revision < hello.revision {
                let revision = hello.revision;
                self.effects.push_back(SecurityEffect::NewerRevocations { epoch, address, revision });
            }
        }
        if !self.is_known(remote) {
            self.begin_handshake(now, remote);
        }
        Some(())
    }

    /// Begins a handshake, or begins it again if it has got no answer yet.
    fn begin_handshake(&mut self, now: Instant, remote: RemoteEndpoint) {
        let can_begin = match self.exchanges.get(&remote).map(|exchange| &exchange.progress) {
            None => self.make_room_for_exchange(),
            Some(HandshakeProgress::Requesting { .. }) => true,
            Some(_) => return,
        };
        if !can_begin {
            self.counters.limited_handshakes += 1;
            return;
        }
        let (nonce, bytes) = self.seal_handshake(Step::Request, Some(remote.epoch), request_body());
        self.send_step(now, remote, HandshakeProgress::Requesting { nonce }, bytes);
    }

    /// Answers a REQUEST, without keeping anything but its nonce. A stranger can replay REQUESTs, so each counts once.
    fn on_request(&mut self, now: Instant, remote: RemoteEndpoint, request: &HandshakeDatagram) -> Option<()> {
        if !self.limits.is_new(request.nonce) {
            return None;
        }
        if !self.limits.allow_request(now) {
            self.counters.limited_handshakes += 1;
            return Some(());
        }
        let cookie = self.cookies.cookie(now, remote.address, remote.epoch);
        let (_, bytes) = self.seal_handshake(Step::Cookie, Some(remote.epoch), cookie_body(request.nonce, cookie));
        self.effects.push_back(SecurityEffect::Send { to: remote.address, bytes });
        Some(())
    }

    fn on_cookie(&mut self, now: Instant, remote: RemoteEndpoint, datagram: &HandshakeDatagram) -> Option<()> {
        let (nonce, cookie) = split_cookie_body(&datagram.body)?;
        let HandshakeProgress::Requesting { nonce: expected } = self.exchanges.get(&remote)?.progress else {
            return None;
        };
        if expected != nonce {
            return None;
        }
        if !self.limits.begun.allow(now, remote.address.ip()) {
            self.counters.limited_handshakes += 1;
            self.end_exchange(remote);
            return Some(());
        }
        let prologue = self.prologue(self.own.sender.epoch, remote.epoch);
        let ephemeral_seed = draw(&mut self.secrets);
        let mut noise = Noise::initiate(&self.noise_keys(&prologue), ephemeral_seed);
        let body = init_body(cookie, &noise.write(&[])?);
        let (_, bytes) = self.seal_handshake(Step::Init, Some(remote.epoch), body);
        self.send_step(now, remote, HandshakeProgress::Initiating { noise: Box::new(noise) }, bytes);
        self.deferral.on_proven(remote);
        Some(())
    }

    fn on_init(&mut self, now: Instant, remote: RemoteEndpoint, init: &HandshakeDatagram) -> Option<()> {
        let (cookie, message) = split_init_body(&init.body)?;
        if !self.cookies.is_valid(now, remote.address, remote.epoch, &cookie) {
            return None;
        }
        match self.exchanges.get(&remote) {
            // Of two handshakes that cross, the one of the lower epoch continues.
            Some(exchange) if exchange.is_initiated() && self.own.sender.epoch < remote.epoch => return Some(()),
            Some(HandshakeExchange {
                progress: HandshakeProgress::Responding { init: answered, .. },
                datagram,
                ..
            }) => {
                // Another INIT is an old one, and must not end the handshake.
                let bytes = (*answered == init.body).then(|| datagram.clone())?;
                self.effects.push_back(SecurityEffect::Send { to: remote.address, bytes });
                return Some(());
            }
            Some(HandshakeExchange { progress: HandshakeProgress::Refused, .. }) => return None,
            _ => {}
        }
        if !self.limits.is_new(init.nonce) {
            return None;
        }
        let has_room = self.exchanges.contains_key(&remote) || self.make_room_for_exchange();
        if !has_room || !self.limits.answered.allow(now, remote.address.ip()) {
            self.counters.limited_handshakes += 1;
            return Some(());
        }
        let prologue = self.prologue(remote.epoch, self.own.sender.epoch);
        let ephemeral_seed = draw(&mut self.secrets);
        let mut noise = Noise::respond(&self.noise_keys(&prologue), ephemeral_seed);
        noise.read(message)?;
        let message = noise.write(&self.credentials.certificate)?;
        let (_, bytes) = self.seal_handshake(Step::Response, Some(remote.epoch), message);
        let progress = HandshakeProgress::Responding { noise: Box::new(noise), init: init.body.clone() };
        self.send_step(now, remote, progress, bytes);
        self.deferral.on_proven(remote);
        Some(())
    }

    fn on_response(&mut self, now: ClockReading, remote: RemoteEndpoint, response: &HandshakeDatagram) -> Option<()> {
        let HandshakeProgress::Initiating { noise } = &mut self.exchanges.get_mut(&remote)?.progress else {
            return None;
        };
        let certificate = noise.read(&response.body)?;
        let static_key = noise.remote_static()?;
        let Some(host) = self.admit(now, remote, &certificate, &static_key) else { return Some(()) };
        let pairwise_secret = draw(&mut self.secrets);
        let payload = self.own.secrets_with(&pairwise_secret, now.instant).encode(&self.credentials.certificate);
        let HandshakeProgress::Initiating { mut noise } = self.exchanges.remove(&remote)?.progress else {
            return None;
        };
        let message = noise.write(&payload)?;
        let (_, bytes) = self.seal_handshake(Step::Final, Some(remote.epoch), message);
        let transport = Box::new(noise.into_transport());
        let given = GivenSecret { sender: *self.own.newest(), pairwise_secret };
        let progress = HandshakeProgress::Finishing { transport, host, given };
        self.send_step(now.instant, remote, progress, bytes);
        Some(())
    }

    fn on_final(&mut self, now: ClockReading, remote: RemoteEndpoint, datagram: &HandshakeDatagram) -> Option<()> {
        if self.complete(now, remote, datagram).is_some() {
            return Some(());
        }
        // The KEYS that answered this FINAL may be lost.
        let association = self.associations.get(&remote.epoch)?;
        let answer = association.keys_answer.as_ref().filter(|answer| answer.final_nonce == datagram.nonce)?;
        let bytes = answer.datagram.clone();
        let is_at_its_address = association.host.address == remote.address;
        is_at_its_address.then(|| self.effects.push_back(SecurityEffect::Send { to: remote.address, bytes }))
    }

    /// Completes a handshake as the responder.
    fn complete(&mut self, now: ClockReading, remote: RemoteEndpoint, datagram: &HandshakeDatagram) -> Option<()> {
        let HandshakeProgress::Responding { noise, .. } = &mut self.exchanges.get_mut(&remote)?.progress else {
            return None;
        };
        let payload = noise.read(&datagram.body)?;
        let static_key = noise.remote_static()?;
        let (secrets, certificate) = EpochSecrets::decode(&payload)?;
        let Some(host) = self.admit(now, remote, certificate, &static_key) else { return Some(()) };
        let HandshakeProgress::Responding { noise, .. } = self.exchanges.remove(&remote)?.progress else {
            return None;
        };
        let pairwise_secret = draw(&mut self.secrets);
        let message = noise.into_transport().write(&self.own.secrets_with(&pairwise_secret, now.instant).encode(&[]));
        let (_, bytes) = self.seal_handshake(Step::Keys, Some(remote.epoch), message);
        self.effects.push_back(SecurityEffect::Send { to: remote.address, bytes: bytes.clone() });
        let given = GivenSecret { sender: *self.own.newest(), pairwise_secret };
        let mut association = self.associate(now.instant, remote.epoch, host, &given, &secrets);
        association.keys_answer = Some(KeysAnswer { final_nonce: datagram.nonce, datagram: bytes });
        self.establish(now, remote, association);
        Some(())
    }

    fn on_keys(&mut self, now: ClockReading, remote: RemoteEndpoint, datagram: &HandshakeDatagram) -> Option<()> {
        let progress = &mut self.exchanges.get_mut(&remote)?.progress;
        let HandshakeProgress::Finishing { transport, host, given } = progress else { return None };
        let payload = transport.read(&datagram.body)?;
        let (secrets, _) = EpochSecrets::decode(&payload)?;
        let (host, given) = (host.clone(), given.clone());
        self.exchanges.remove(&remote);
        let association = self.associate(now.instant, remote.epoch, host, &given, &secrets);
        self.establish(now, remote, association);
        Some(())
    }

    /// Returns the association that follows from what the sides of a handshake have given each other.
    fn associate(
        &mut self,
        now: Instant,
        remote: Epoch,
        host: RemoteHost,
        given: &GivenSecret,
        secrets: &EpochSecrets,
    ) -> Association {
        self.log_keys(remote, given, secrets);
        let handshake_key = self.realm_keys.handshake(self.settings.group, remote);
        Association::new(remote, host, handshake_key, given, secrets, now)
    }

    /// Reports the secrets of a handshake if there is a log of keys: those of the other side, and the pairwise one that
    /// it got from this side.
    fn log_keys(&mut self, remote: Epoch, given: &GivenSecret, secrets: &EpochSecrets) {
        let own = given.sender;
        let other = SenderContext { suite: secrets.suite, phase: secrets.phase, epoch: remote, ..own };
        for (sender, receiver, secret) in [
            (other, None, &secrets.group_secret),
            (other, Some(own.epoch), &secrets.pairwise_secret),
            (own, Some(remote), &given.pairwise_secret),
        ] {
            self.log_key(LoggedSecret { sender, receiver, secret: secret.clone() });
        }
    }

    /// Adds an association, and opens the datagrams that waited for it.
    fn establish(&mut self, now: ClockReading, remote: RemoteEndpoint, mut association: Association) {
        let RemoteEndpoint { epoch, address } = remote;
        let CertifiedHost { name, permissions, .. } = association.host.certified.clone();
        let publish = PermittedSubjects::of(permissions.publish);
        if !self.has_room(now.instant, epoch) {
            self.counters.limited_handshakes += 1;
            self.end_exchange(remote);
            return;
        }
        if let Some(former) = self.remove_association(epoch) {
            association.inherit(former, now.instant);
        } else if self.settings.peers_max <= self.associations.len()
            && let Some(silent) = self.silent_longest(now.instant)
        {
            self.counters.evicted += 1;
            self.remove_association(silent);
        }
        let is_verified = association.origin.is_some() && self.settings.holds_until_verified;
        let origin = if is_verified { MessageOrigin::Publisher } else { MessageOrigin::Group };
        self.associations.insert(epoch, association);
        self.epochs.insert(address, epoch);
        self.counters.authenticated += 1;
        self.effects.push_back(SecurityEffect::Authenticated { epoch, address, name, publish, origin });
        for datagram in self.deferral.take(remote) {
            let (from, path, arrived) = (datagram.from, datagram.path, datagram.arrived);
            let Some(keyed) = KeyedHeader::decode(&datagram.bytes) else {
                self.on_handshake(now, from, path, &datagram.bytes);
                continue;
            };
            if let Some(bytes) = self.open(now, datagram, &keyed) {
                self.effects.push_back(SecurityEffect::Receive(ArrivedDatagram { from, path, bytes, arrived }));
            }
        }
    }

    /// Returns the other side of a handshake if it is trusted and there is room for its keys. Otherwise the handshake
    /// ends, before this side has given any secret.
    fn admit(
        &mut self,
        now: ClockReading,
        remote: RemoteEndpoint,
        certificate: &[u8],
        static_key: &[u8; STATIC_KEY_BYTES],
    ) -> Option<RemoteHost> {
        match self.verify(now, remote.epoch, certificate, static_key) {
            Ok(_) if !self.has_room(now.instant, remote.epoch) => {
                self.counters.limited_handshakes += 1;
                self.end_exchange(remote);
                self.exchanges.insert(remote, HandshakeExchange::backed_off(now.instant));
                None
            }
            Ok(certified) => Some(RemoteHost { address: remote.address, certified }),
            Err(reason) => {
                self.refuse(now.instant, remote, reason);
                None
            }
        }
    }

    /// Returns whether the keys of an epoch can be added: they replace others of it, there is room, or a silent peer can
    /// be evicted.
    fn has_room(&self, now: Instant, epoch: Epoch) -> bool {
        self.associations.len() < self.settings.peers_max
            || self.associations.contains_key(&epoch)
            || self.silent_longest(now).is_some()
    }

    /// Returns the peer that has been silent longest, if it has been for some seconds.
    fn silent_longest(&self, now: Instant) -> Option<Epoch> {
        let (epoch, association) = self.associations.iter().min_by_key(|(_, association)| association.last_heard)?;
        (EVICTION_SILENCE <= now.since(association.last_heard)).then_some(*epoch)
    }

    /// Returns the trusted host of a certificate. An epoch belongs to the host that was the first to prove it.
    fn verify(
        &mut self,
        now: ClockReading,
        epoch: Epoch,
        certificate: &[u8],
        static_key: &[u8; STATIC_KEY_BYTES],
    ) -> Result<CertifiedHost, String> {
        if self
            .associations
            .get(&epoch)
            .is_some_and(|association| association.host.certified.keys.static_key != *static_key)
        {
            return Err(format!("it claims the epoch {epoch} of another host"));
        }
        if CERTIFICATE_BYTES_MAX < certificate.len() {
            return Err("its certificate is too long".to_owned());
        }
        self.verifier.verify(certificate, static_key, now.wall)
    }

    fn refuse(&mut self, now: Instant, remote: RemoteEndpoint, reason: String) {
        self.end_exchange(remote);
        self.exchanges.insert(remote, HandshakeExchange::refused(now));
        self.counters.refused += 1;
        if self.limits.allow_refusal(now, remote.address.ip()) {
            self.effects.push_back(SecurityEffect::Refused { address: remote.address, reason });
        }
    }

    /// Sends a datagram of a handshake, and continues the exchange with it.
    fn send_step(&mut self, now: Instant, remote: RemoteEndpoint, progress: HandshakeProgress, bytes: Bytes) {
        self.effects.push_back(SecurityEffect::Send { to: remote.address, bytes: bytes.clone() });
        self.exchanges.insert(remote, HandshakeExchange::sent(now, progress, bytes));
    }

    /// Returns whether there is room for one more exchange. The one that ends first of those that give way is removed:
    /// a stranger that replays HELLOs ends its own ones in this way.
    fn make_room_for_exchange(&mut self) -> bool {
        if self.exchanges.len() < EXCHANGES_MAX {
            return true;
        }
        let giving_way = self.exchanges.iter().filter(|(_, exchange)| exchange.gives_way());
        let first = giving_way.min_by_key(|(_, exchange)| exchange.due).map(|(remote, _)| *remote);
        first.is_some_and(|remote| {
            self.end_exchange(remote);
            true
        })
    }

    /// Removes an exchange with the datagrams that wait for it.
    fn end_exchange(&mut self, remote: RemoteEndpoint) {
        self.exchanges.remove(&remote);
        self.counters.discard_unauthenticated += self.deferral.take(remote).len() as u64;
    }

    /// Repeats the datagrams of handshakes that are due, and ends those that have failed.
    pub(super) fn repeat_exchanges(&mut self, now: Instant) {
        let due = self.exchanges.iter_mut().filter(|(_, exchange)| exchange.due <= now);
        let due: Vec<(RemoteEndpoint, ExchangeDue)> =
            due.map(|(remote, exchange)| (*remote, exchange.on_due(now))).collect();
        for (remote, due) in due {
            match due {
                ExchangeDue::Repeat(bytes) => {
                    self.effects.push_back(SecurityEffect::Send { to: remote.address, bytes });
                }
                ExchangeDue::BackOff { may_be_complete: false } => {}
                ExchangeDue::BackOff { may_be_complete: true } => {
                    // The other side may have new keys, of which this side has none.
                    let association = self.associations.get_mut(&remote.epoch);
                    association.into_iter().for_each(Association::on_doubt);
                }
                ExchangeDue::End => self.end_exchange(remote),
            }
        }
    }

    /// Seals a datagram of a handshake, and returns it with its nonce.
    pub(super) fn seal_handshake(
        &mut self,
        step: Step,
        receiver: Option<Epoch>,
        body: Vec<u8>,
    ) -> ([u8; NONCE_BYTES], Bytes) {
        let mut nonce = [0; NONCE_BYTES];
        (self.secrets)(&mut nonce);
        let (group, epoch) = (self.settings.group, self.own.sender.epoch);
        let datagram = HandshakeDatagram { step, group, epoch, receiver, nonce, body };
        (nonce, datagram.seal(&self.own.handshake_key))
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
