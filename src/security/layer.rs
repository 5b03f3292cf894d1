//! The security layer: it stands between the core and the sockets of a keyed peer, without I/O.
//!
//! The core knows datagrams of open mode only. The layer seals each one that leaves, opens each one that arrives, and
//! makes the handshakes by which peers give each other their keys. The core receives nothing that a member of the realm
//! did not seal for this group and, if it is for one receiver, for this peer.

mod expiry;
mod handshake;
mod origin;

use super::association::{Association, OpenFailure};
use super::cipher::{Suite, TAG_BYTES};
use super::cookie::CookieJar;
use super::counters::SecurityCounters;
use super::credentials::{CertificateVerifier, RealmCredentials};
use super::deferral::Deferral;
use super::exchange::{HandshakeExchange, RemoteEndpoint};
use super::handshake_datagram;
use super::handshake_limits::HandshakeLimits;
use super::hello_schedule::HelloSchedule;
use super::key_log::LoggedSecret;
use super::key_schedule::{RealmKeys, SenderContext};
use super::origin::{OriginContext, OriginHold, OriginSigner};
use super::own_keys::OwnKeys;
use super::realm::CERTIFICATE_BYTES_MAX;
use super::secret::{SECRET_BYTES, Secret};
use crate::message::{Epoch, MessageOrigin, PeerName};
use crate::proto::effect::ArrivedDatagram;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::{ClockReading, Instant};
use crate::wire::{self, KeyChoice, KeyedHeader, Kind, MAGIC, MODE_OPEN, VERSION};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// Source of random bytes that nobody can guess. The simulator replaces it by a seeded generator.
pub type SecretSource = Box<dyn FnMut(&mut [u8]) + Send>;

/// Limits and identity of a security layer.
#[derive(Clone, Debug)]
pub struct SecuritySettings {
    /// The group's number in every datagram.
    pub group: u16,
    /// Address of the inbox, which is the source of every sent datagram.
    pub address: SocketAddr,
    /// Maximum number of epochs of other peers whose keys are known.
    pub peers_max: usize,
    /// Time without a datagram after which the keys of an epoch are forgotten.
    pub forget: Duration,
    /// True if each secret is an effect, for a log of keys.
    pub logs_keys: bool,
    /// True if DATA of peers that sign is held until its signature is verified.
    pub holds_until_verified: bool,
}

/// Outputs of the layer.
#[derive(Clone, Debug, PartialEq)]
pub enum SecurityEffect {
    /// Send a datagram of a handshake.
    Send {
        /// Where to.
        to: SocketAddr,
        /// The UDP payload.
        bytes: Bytes,
    },
    /// Send a datagram of a handshake wherever the multicasts of the core go.
    Multicast {
        /// The UDP payload.
        bytes: Bytes,
    },
    /// A datagram that waited for the keys of its sender, or for a SIGNATURE, is open now and goes to the core.
    Receive(ArrivedDatagram),
    /// A peer has proven its identity.
    Authenticated {
        /// Its epoch.
        epoch: Epoch,
        /// Its address.
        address: SocketAddr,
        /// Name in its certificate.
        name: PeerName,
        /// Subjects on which its certificate lets it publish.
        publish: PermittedSubjects,
        /// Proof of the publisher of what it sends to the group, when that goes to the core.
        origin: MessageOrigin,
    },
    /// A member of the realm has sent data in the name of this peer, which has signed other data. This is reported at
    /// most once a second for each epoch.
    ForgedOrigin {
        /// The epoch.
        epoch: Epoch,
        /// Its address.
        address: SocketAddr,
        /// Name in its certificate.
        name: PeerName,
        /// Number of the forged datagram.
        number: u64,
    },
    /// A secret belongs into the log of keys.
    Key(LoggedSecret),
    /// The certificate of a peer has expired. Nothing more of it is accepted.
    Expired {
        /// Its epoch.
        epoch: Epoch,
        /// Its address.
        address: SocketAddr,
        /// Name in its certificate.
        name: PeerName,
    },
    /// The keys of a peer are revoked. Nothing more of it is accepted.
    Revoked {
        /// Its epoch.
        epoch: Epoch,
        /// Its address.
        address: SocketAddr,
        /// Name in its certificate.
        name: PeerName,
    },
    /// A HELLO of an authenticated peer states a later revision of the list of revoked hosts than this peer has. Any host
    /// that knows the realm's secret can make such a HELLO.
    NewerRevocations {
        /// Its epoch.
        epoch: Epoch,
        /// Its address.
        address: SocketAddr,
        /// The revision that it has.
        revision: u64,
    },
    /// A member of the realm is not trusted. This is reported at most once in 10 s for each host.
    Refused {
        /// Its address.
        address: SocketAddr,
        /// Reason, with what to do.
        reason: String,
    },
}

/// The security layer of one peer.
pub struct SecurityLayer {
    settings: SecuritySettings,
    credentials: RealmCredentials,
    realm_keys: RealmKeys,
    verifier: Box<dyn CertificateVerifier>,
    secrets: SecretSource,
    cookies: CookieJar,
    own: OwnKeys,
    associations: BTreeMap<Epoch, Association>,
    /// Epoch of the last peer that has authenticated itself at an address.
    epochs: BTreeMap<SocketAddr, Epoch>,
    exchanges: BTreeMap<RemoteEndpoint, HandshakeExchange>,
    hello: HelloSchedule,
    limits: HandshakeLimits,
    deferral: Deferral,
    hold: OriginHold,
    counters: SecurityCounters,
    effects: VecDeque<SecurityEffect>,
    /// Time of the next search for associations to forget.
    next_expiry: Instant,
    /// True if the list of revoked hosts is newer than at the last tick.
    has_newer_list: bool,
    /// Time of the first tick with the present list of revoked hosts; `None` before the first change.
    list_since: Option<Instant>,
    /// Time of the next search for datagrams that no SIGNATURE has covered in time; `None` if none waits for one.
    next_origin_search: Option<Instant>,
}

impl SecurityLayer {
    /// Creates the layer of a peer whose epoch begins now.
    ///
    /// # Panics
    /// If the certificate is too long.
    pub fn new(
        settings: SecuritySettings,
        credentials: RealmCredentials,
        verifier: Box<dyn CertificateVerifier>,
        mut secrets: SecretSource,
        epoch: Epoch,
        now: Instant,
    ) -> SecurityLayer {
        assert!(credentials.certificate.len() <= CERTIFICATE_BYTES_MAX, "the certificate fits a handshake");
        let realm_keys = RealmKeys::new(&credentials.realm_secret);
        let cookies = CookieJar::new(draw(&mut secrets));
        let sender = SenderContext { suite: credentials.suite, phase: 0, group: settings.group, epoch };
        let mut layer = SecurityLayer {
            own: OwnKeys::new(sender, draw(&mut secrets), &realm_keys),
            realm_keys,
            cookies,
            verifier,
            secrets,
            associations: BTreeMap::new(),
            epochs: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            hello: HelloSchedule::new(),
            limits: HandshakeLimits::new(now),
            deferral: Deferral::default(),
            hold: OriginHold::default(),
            counters: SecurityCounters::default(),
            effects: VecDeque::new(),
            next_expiry: now + EXPIRY_INTERVAL,
            has_newer_list: false,
            list_since: None,
            next_origin_search: None,
            settings,
            credentials,
        };
        layer.own.signer = new_signer(&layer.credentials, &sender);
        layer.log_key(layer.own.logged_group());
        layer
    }

    /// Reports a secret if there is a log of keys.
    fn log_key(&mut self, secret: LoggedSecret) {
        if self.settings.logs_keys {
            self.effects.push_back(SecurityEffect::Key(secret));
        }
    }

    /// Seals a datagram of the core, which goes to the group or to the address of one peer. Returns `None` if the keys
    /// of that peer are not known any more.
    pub fn seal(&mut self, to: Option<SocketAddr>, datagram: &Bytes) -> Option<Bytes> {
        let open = wire::unchecked_header(datagram)?;
        if open.epoch != self.own.sender.epoch {
            self.begin_epoch(open.epoch);
        }
        let receiver = match (open.kind, to) {
            (Kind::Data, _) | (Kind::Control, None) => None,
            (Kind::Directed, _) => open.receiver,
            (Kind::Control, Some(to)) => self.epochs.get(&to).copied(),
        };
        let is_pairwise = open.kind == Kind::Directed || open.kind == Kind::Control && to.is_some();
        if open.kind == Kind::Data {
            self.on_data_sent(open.number, to, datagram);
        }
        let association = receiver.and_then(|receiver| self.associations.get(&receiver));
        let sender = self.own.sender;
        let (choice, key) = match (is_pairwise, association.and_then(|association| association.send_key(open.kind))) {
            (false, _) => (KeyChoice::of_phase(sender.phase), self.own.group_key(open.kind, open.number)),
            (true, Some(key)) => (KeyChoice::Pairwise { is_odd_phase: self.own.newest().phase % 2 == 1 }, key),
            (true, None) => {
                self.counters.discard_unsent += 1;
                return None;
            }
        };
        let mut bytes = wire::into_keyed(datagram, sender.suite.mode(), choice, TAG_BYTES);
        let (header, records) = bytes.split_at_mut(open.bytes());
        let tag = key.seal(open.number, header, records);
        bytes.extend(tag);
        Some(bytes.into())
    }

    /// Begins a new epoch of the core. The other peers get its keys in new handshakes.
    fn begin_epoch(&mut self, epoch: Epoch) {
        self.sign_rest();
        let sender = SenderContext { epoch, phase: 0, ..self.own.sender };
        self.own = OwnKeys::new(sender, draw(&mut self.secrets), &self.realm_keys);
        self.own.signer = new_signer(&self.credentials, &sender);
        self.log_key(self.own.logged_group());
        self.associations.values_mut().for_each(Association::on_own_epoch);
        // Answers to handshakes of the former epoch are not for this one.
        self.exchanges.clear();
        self.hello = HelloSchedule::new();
    }

    /// Continues at another address of the inbox, which the next HELLOs state.
    pub fn on_address(&mut self, address: SocketAddr) {
        self.settings.address = address;
        self.hello = HelloSchedule::new();
    }

    /// Continues with other keys of the realm, another certificate, or another list of revoked hosts. The keys that other
    /// peers have already stay valid. If the list is newer, the layer forgets the keys of revoked hosts, and draws keys
    /// that only the others get; if the certificate is another one, it draws keys, too, and so shows it to the others.
    ///
    /// # Panics
    /// If the certificate is too long.
    pub fn on_credentials(&mut self, credentials: RealmCredentials, verifier: Box<dyn CertificateVerifier>) {
        assert!(credentials.certificate.len() <= CERTIFICATE_BYTES_MAX, "the certificate fits a handshake");
        self.realm_keys = RealmKeys::new(&credentials.realm_secret);
        let SenderContext { group, epoch, .. } = self.own.sender;
        self.own.handshake_key = self.realm_keys.handshake(group, epoch);
        for (epoch, association) in &mut self.associations {
            association.handshake_key = self.realm_keys.handshake(group, *epoch);
        }
        let has_newer_list = self.credentials.revision < credentials.revision;
        let has_other_certificate = self.credentials.certificate != credentials.certificate;
        self.credentials = credentials;
        self.verifier = verifier;
        if has_newer_list {
            self.has_newer_list = true;
            self.forget_revoked();
        }
        if has_newer_list || has_other_certificate {
            // The others learn of the certificate in the handshakes of the next phase.
            self.own.want_change();
        }
        // The other sides of these handshakes have used the former keys.
        self.exchanges.clear();
        self.hello = HelloSchedule::new();
    }

    /// Handles a datagram that arrived. Returns the datagram for the core, if there is one now.
    pub fn receive(&mut self, now: ClockReading, datagram: ArrivedDatagram) -> Option<Bytes> {
        let counter = match *datagram.bytes {
            // The core counts what is no datagram of this version.
            [m0, m1, version, ..] if u16::from_be_bytes([m0, m1]) != MAGIC || version != VERSION => {
                return Some(datagram.bytes);
            }
            [_, _, _, MODE_OPEN, ..] => &mut self.counters.discard_open,
            [_, _, _, mode, ..] if Suite::of_mode(mode).is_none() => &mut self.counters.discard_malformed,
            [_, _, _, _, handshake_datagram::KIND, ..] => {
                self.on_handshake(now, datagram.from, datagram.path, &datagram.bytes);
                return None;
            }
            _ => match KeyedHeader::decode(&datagram.bytes) {
                Some(keyed) => return self.open(now, datagram, &keyed),
                None => &mut self.counters.discard_malformed,
            },
        };
        *counter += 1;
        None
    }

    fn open(&mut self, now: ClockReading, mut datagram: ArrivedDatagram, keyed: &KeyedHeader) -> Option<Bytes> {
        let header = &keyed.header;
        let own = self.own.sender.epoch;
        if header.group != self.settings.group
            || header.epoch == own
            || header.receiver.is_some_and(|receiver| receiver != own)
        {
            self.counters.discard_other += 1;
            return None;
        }
        let remote = RemoteEndpoint { epoch: header.epoch, address: datagram.from };
        let Some(association) = self.associations.get_mut(&header.epoch) else {
            self.defer(now.instant, remote, datagram);
            return None;
        };
        let counter = if association.host.address != datagram.from {
            &mut self.counters.discard_source
        } else {
            // The other side may have the keys of a handshake whose last datagram is under way.
            let is_finishing = self.exchanges.get(&remote).is_some_and(HandshakeExchange::is_finishing);
            let sealed = is_finishing.then(|| datagram.bytes.clone());
            match association.open(now.instant, keyed, datagram.path, &mut datagram.bytes) {
                Ok(bytes) => {
                    if header.kind == Kind::Control {
                        association.last_heard = now.instant;
                    }
                    let signs = association.origin.is_some();
                    if matches!(keyed.key, KeyChoice::Pairwise { .. }) && !association.is_sound() {
                        self.renew_keys(now.instant, remote);
                    }
                    if signs {
                        return self.check_origin(now.instant, header, ArrivedDatagram { bytes, ..datagram });
                    }
                    return Some(bytes);
                }
                Err(OpenFailure::UnknownPhase) => {
                    self.defer(now.instant, remote, datagram);
                    return None;
                }
                Err(OpenFailure::Forged) => match sealed {
                    Some(bytes) => {
                        self.defer(now.instant, remote, ArrivedDatagram { bytes, ..datagram });
                        return None;
                    }
                    None => &mut self.counters.discard_forged,
                },
                Err(OpenFailure::Replayed) => &mut self.counters.discard_replayed,
            }
        };
        *counter += 1;
        None
    }

    /// Defers a datagram of a peer whose handshake is in progress. Everything else of unknown epochs and phases is
    /// discarded, and never causes anything to be sent.
    fn defer(&mut self, now: Instant, remote: RemoteEndpoint, datagram: ArrivedDatagram) {
        let is_in_progress = self.exchanges.get(&remote).is_some_and(|exchange| !exchange.has_ended());
        let discarded = if is_in_progress { self.deferral.push(now, remote, datagram) } else { 1 };
        self.counters.discard_unauthenticated += discarded as u64;
    }

    /// Handles the passing of time: sends HELLOs, repeats datagrams of handshakes, and drops what has waited too long.
    pub fn tick(&mut self, now: ClockReading) {
        if std::mem::take(&mut self.has_newer_list) {
            self.list_since = Some(now.instant);
        }
        let SecurityLayer { own, associations, epochs, .. } = self;
        // A run that has ended never gets the keys of the next phase.
        let has_ended = |epoch: &Epoch, association: &Association| {
            let last_sign = association.last_heard.max(association.last_hello);
            SILENCE_TIME <= now.instant.since(last_sign) || epochs.get(&association.host.address) != Some(epoch)
        };
        let is_known_to_all = |phase| {
            associations
                .iter()
                .all(|(epoch, association)| association.has_phase(phase) || has_ended(epoch, association))
        };
        if own.on_tick(now.instant, is_known_to_all) {
            let group_secret = draw(&mut self.secrets);
            self.own.announce(group_secret, now.instant);
            self.counters.rekeyed += 1;
            self.log_key(self.own.logged_group());
            self.hello = HelloSchedule::new();
        }
        self.send_hello(now.instant);
        self.tick_origin(now.instant);
        self.repeat_exchanges(now.instant);
        self.counters.discard_unauthenticated += self.deferral.expire(now.instant) as u64;
        if self.next_expiry <= now.instant {
            self.next_expiry = now.instant + EXPIRY_INTERVAL;
            self.expire_associations(now);
        }
    }

    /// Returns the latest time for the next [`SecurityLayer::tick`].
    pub fn deadline(&self) -> Instant {
        let exchanges = self.exchanges.values().map(|exchange| exchange.due).min();
        let others = [self.next_expiry, self.hello.due].into_iter().chain(self.deferral.deadline());
        let others = others.chain(self.origin_deadline());
        others.chain(exchanges).min().expect("there are at least two")
    }

    /// Returns the next output, or `None` if there are no more.
    pub fn poll_effect(&mut self) -> Option<SecurityEffect> {
        self.effects.pop_front()
    }

    /// Returns the suite of sent datagrams.
    pub fn suite(&self) -> Suite {
        self.credentials.suite
    }

    /// Returns whether this peer signs what it publishes.
    pub fn signs_origin(&self) -> bool {
        self.own.signer.is_some()
    }

    /// Returns whether this peer verifies what the peer with this epoch publishes.
    pub fn verifies_origin(&self, epoch: Epoch) -> bool {
        self.associations.get(&epoch).is_some_and(|association| association.origin.is_some())
    }

    /// Returns whether this peer has the keys of an epoch.
    pub fn has_keys_of(&self, epoch: Epoch) -> bool {
        self.associations.contains_key(&epoch)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &SecurityCounters {
        &self.counters
    }

    /// Returns the number of epochs of other peers whose keys are known.
    pub fn associations(&self) -> usize {
        self.associations.len()
    }
}

/// Time without a HELLO or CONTROL after which a peer is not waited for any more before a phase begins. Peers send a HELLO
/// each second.
const SILENCE_TIME: Duration = Duration::from_secs(3);
/// Time between two searches for associations to forget.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Returns what signs DATA in an epoch that begins; `None` if the host does not sign.
fn new_signer(credentials: &RealmCredentials, sender: &SenderContext) -> Option<OriginSigner> {
    let context = OriginContext { group: sender.group, epoch: sender.epoch };
    credentials.signing_key.clone().map(|key| OriginSigner::new(key, context))
}

/// Draws a fresh random secret.
fn draw(secrets: &mut SecretSource) -> Secret {
    let mut bytes = [0; SECRET_BYTES];
    secrets(&mut bytes);
    Secret::new(bytes)
}

#[cfg(test)]
pub(super) mod tests;
