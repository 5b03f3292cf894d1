//! Keyed peers: a security layer between each peer and the network.
//!
//! The oracle sees what the core sends and receives, which is in open mode. A datagram that the layer opens must be one
//! that a peer has sent.

use super::World;
use crate::message::Epoch;
use crate::proto::certified::CertifiedPeer;
use crate::proto::effect::{ArrivedDatagram, Input, Path};
use crate::rng::Rng;
use crate::security::realm::{PeerKeys, PeerPermissions, SigningKey};
use crate::security::{
    CertificateVerifier, CertifiedHost, RealmCredentials, SECRET_BYTES, STATIC_KEY_BYTES, Secret, SecurityEffect,
    SecurityLayer, SecuritySettings, Suite, static_public,
};
use crate::sim::machine::Packet;
use crate::sim::scenario::FaultKind;
use crate::sim::truth::DatagramId;
use crate::time::{ClockReading, Instant, WallTime, nanos};
use crate::wire::CHECK_BYTES;
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;

/// Reason of a host for not trusting one of the revoked hosts.
const REVOKED: &str = "its keys are revoked";
/// The host that signs what it publishes.
const SIGNING_HOST: usize = 0;
/// The host that holds signed data until it is verified.
const HOLDING_HOST: usize = 1;

/// Trusts every host whose keys are not revoked. A certificate is a name, so that handshakes are those of the product.
struct HostVerifier {
    revoked: Vec<PeerKeys>,
}

impl CertificateVerifier for HostVerifier {
    fn verify(
        &mut self,
        certificate: &[u8],
        static_key: &[u8; STATIC_KEY_BYTES],
        _: WallTime,
    ) -> Result<CertifiedHost, String> {
        let name = std::str::from_utf8(certificate).map_err(|error| error.to_string())?;
        let name = name.parse().map_err(|error| format!("{error}"))?;
        let keys = keys(*static_key);
        if self.revoked.contains(&keys) {
            return Err(REVOKED.to_owned());
        }
        Ok(CertifiedHost { name, keys, permissions: PeerPermissions::all(), valid_until: None })
    }

    fn is_revoked(&self, keys: &PeerKeys) -> bool {
        self.revoked.contains(keys)
    }
}

/// Returns the private static key of a host.
fn static_private(host: usize) -> Secret {
    Secret::new([host as u8 + 1; SECRET_BYTES])
}

/// Returns the signing key of a host, which follows from its static key.
fn signing_key(static_key: &[u8; STATIC_KEY_BYTES]) -> SigningKey {
    SigningKey::from_seed(static_key)
}

fn keys(static_key: [u8; STATIC_KEY_BYTES]) -> PeerKeys {
    PeerKeys { signing: *signing_key(&static_key).public(), static_key }
}

impl World<'_> {
    /// Returns the keys of a host, as its certificate and its realm state them.
    fn credentials(&self, host: usize) -> RealmCredentials {
        RealmCredentials {
            realm_secret: Secret::new([1; SECRET_BYTES]),
            static_private: static_private(host),
            certificate: self.machines[host].spec.settings.name.to_string().into(),
            suite: if host.is_multiple_of(2) { Suite::Aes256Gcm } else { Suite::ChaCha20Poly1305 },
            revision: self.machines[host].revision,
            signing_key: (host == SIGNING_HOST).then(|| Arc::new(signing_key(&static_public(&static_private(host))))),
        }
    }

    /// Returns the rule by which a host trusts others.
    fn verifier(&self, host: usize) -> HostVerifier {
        let revoked = self.machines[host].revoked;
        let hosts = (0..self.machines.len()).filter(|other| revoked >> other & 1 == 1);
        HostVerifier { revoked: hosts.map(|other| keys(static_public(&static_private(other)))).collect() }
    }

    /// Lets a host know that other ones are revoked, besides those before.
    pub(super) fn revoke(&mut self, host: usize, hosts: u64) {
        let machine = &mut self.machines[host];
        machine.revoked |= hosts;
        machine.revision += 1;
        let (credentials, verifier) = (self.credentials(host), self.verifier(host));
        if let Some(layer) = &mut self.machines[host].security {
            layer.on_credentials(credentials, Box::new(verifier));
            self.apply_security_effects(host);
        }
    }

    /// Creates the security layer of a peer that starts; `None` if the peers of this scenario are in open mode.
    pub(super) fn security_layer(&mut self, host: usize, epoch: Epoch, now: ClockReading) -> Option<SecurityLayer> {
        if !self.scenario.faults.has(FaultKind::Keyed) {
            return None;
        }
        let (credentials, verifier) = (self.credentials(host), self.verifier(host));
        let settings = &self.machines[host].spec.settings;
        let layer = SecuritySettings {
            group: settings.group,
            address: self.machines[host].address,
            peers_max: settings.peers_max,
            forget: settings.forget,
            logs_keys: false,
            holds_until_verified: host == HOLDING_HOST,
        };
        let mut rng: Rng = self.rng.fork();
        let secrets = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| rng.next_u32() as u8));
        Some(SecurityLayer::new(layer, credentials, Box::new(verifier), secrets, epoch, now.instant))
    }

    /// Returns what leaves the host when its peer sends a datagram; `None` if nothing does.
    pub(super) fn seal(
        &mut self,
        host: usize,
        to: Option<SocketAddr>,
        id: DatagramId,
        datagram: &Bytes,
    ) -> Option<Bytes> {
        let Some(layer) = &mut self.machines[host].security else { return Some(datagram.clone()) };
        self.sent_ids.insert(content(datagram), id);
        layer.seal(to, datagram)
    }

    /// Passes a datagram that the host has read to its peer, unless its security layer discards or defers it. `arrived`
    /// is its earliest arrival.
    pub(super) fn receive(&mut self, host: usize, packet: Packet, arrived: Instant) {
        let machine = &mut self.machines[host];
        let now = machine.now(self.now);
        let Packet { id, from, path, bytes } = packet;
        let Some(layer) = &mut machine.security else {
            self.report_read(host, id, from, path);
            return self.input(host, Input::Datagram { from, path, bytes });
        };
        if let Some(bytes) = layer.receive(now, ArrivedDatagram { from, path, bytes, arrived }) {
            let id = self.identify_opened(host, from, &bytes);
            self.report_read(host, id, from, path);
            self.input(host, Input::Datagram { from, path, bytes });
        }
        // Datagrams that waited for this one come before the next one.
        self.apply_security_effects(host);
    }

    /// Applies the effects of the host's security layer.
    pub(super) fn apply_security_effects(&mut self, host: usize) {
        while let Some(effect) = self.machines[host].security.as_mut().and_then(SecurityLayer::poll_effect) {
            match effect {
                SecurityEffect::Send { to, bytes } => {
                    if let Some(to) = self.machines.iter().position(|machine| machine.address == to) {
                        self.carry(host, to, Path::Unicast, DatagramId::Unidentified, &bytes);
                    }
                }
                SecurityEffect::Multicast { bytes } => {
                    for to in 0..self.machines.len() {
                        if to != host && self.scenario.reaches(host, to) {
                            self.carry(host, to, Path::Multicast, DatagramId::Unidentified, &bytes);
                        }
                    }
                }
                SecurityEffect::Receive(datagram) => self.pass_deferred(host, datagram),
                SecurityEffect::Authenticated { epoch, name, publish, origin, .. } => {
                    self.log(|| format!("host {host} has the keys of {name}, epoch {epoch}"));
                    let certified = CertifiedPeer { name: Some(name), publish, origin: Some(origin) };
                    self.input(host, Input::Authenticated { epoch, certified });
                }
                SecurityEffect::ForgedOrigin { name, number, .. } => {
                    let text = format!("host {host} says that datagram {number} of {name} is forged");
                    self.oracle.findings.add("forged", text);
                }
                SecurityEffect::Key(_) => unreachable!("there is no log of keys"),
                SecurityEffect::Revoked { name, .. } => self.log(|| format!("host {host}: {name} is revoked")),
                // The scenario says when a host learns of a revocation.
                SecurityEffect::NewerRevocations { .. } => {}
                SecurityEffect::Expired { name, .. } => {
                    self.oracle.findings.add("expired", format!("host {host} says that {name} has expired"));
                }
                SecurityEffect::Refused { reason, .. } if reason == REVOKED => {}
                SecurityEffect::Refused { address, reason } => {
                    self.oracle.findings.add("refused", format!("host {host} does not trust {address}: {reason}"));
                }
            }
        }
    }

    /// Lets the time of the host's security layer pass, and drains what that makes its peer do.
    pub(super) fn tick_security(&mut self, host: usize, now: ClockReading) {
        if let Some(layer) = self.machines[host].security.as_mut().filter(|layer| layer.deadline() <= now.instant) {
            layer.tick(now);
            self.apply_security_effects(host);
            self.drain(host);
        }
    }

    /// Passes a datagram that waited for keys or for a signature, and reports to the oracle when it arrived.
    fn pass_deferred(&mut self, host: usize, datagram: ArrivedDatagram) {
        let machine = &self.machines[host];
        let (run, waited) = (machine.run, machine.now(self.now).instant.since(datagram.arrived));
        let id = self.identify_opened(host, datagram.from, &datagram.bytes);
        let arrived = self.oracle.runs[run].last_arrival.replace(self.now - nanos(waited).min(self.now));
        self.report_read(host, id, datagram.from, datagram.path);
        self.input(host, Input::Deferred(datagram));
        self.oracle.runs[run].last_arrival = arrived;
    }

    /// Returns the id of a datagram that the security layer has opened.
    fn identify_opened(&mut self, host: usize, from: SocketAddr, bytes: &Bytes) -> DatagramId {
        let is_of_this_version = crate::wire::unchecked_header(bytes).is_some();
        let id = self.sent_ids.get(&content(bytes)).copied().unwrap_or(DatagramId::Unidentified);
        if is_of_this_version && id == DatagramId::Unidentified {
            let text = format!("host {host} opened a datagram from {from} that nobody sent");
            self.oracle.findings.add("forged", text);
        }
        self.oracle.on_copy(self.now, self.machines[host].run, id, true);
        id
    }

    /// Reports to the oracle that the host's peer reads a datagram.
    fn report_read(&mut self, host: usize, id: DatagramId, from: SocketAddr, path: Path) {
        self.oracle.on_read(self.now, self.machines[host].run, id, (from, path));
        self.log(|| format!("host {host} receives {id:?} from {from}"));
    }
}

/// Returns a datagram of open mode without its check value, which is lost when it is sealed.
fn content(datagram: &Bytes) -> Bytes {
    datagram.slice(..datagram.len().saturating_sub(CHECK_BYTES))
}
