//! Target `keyed`: datagrams and time into the security layer of a peer, from strangers, a member and a replayer.

use super::script::Script;
use crate::message::Epoch;
use crate::proto::effect::{ArrivedDatagram, Path};
use crate::rng::Rng;
use crate::security::realm::{PeerKeys, PeerPermissions, SigningKey};
use crate::security::{
    CertificateVerifier, CertifiedHost, RealmCredentials, SECRET_BYTES, STATIC_KEY_BYTES, Secret, SecurityEffect,
    SecurityLayer, SecuritySettings, Suite, static_public,
};
use crate::time::{ClockReading, Instant, WallTime};
use crate::wire::{self, Header, Kind};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const GROUP: u16 = 7500;
/// Maximum bytes of a datagram of the handshake.
const HANDSHAKE_BYTES_MAX: usize = 1200;
const VICTIM: usize = 0;
const MEMBER: usize = 1;

/// Runs the target: each byte chooses what happens next. Every datagram that the victim opens is one that the member
/// has sealed, and what it sends is not larger than a datagram of a handshake.
pub fn keyed(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut world = KeyedWorld::new();
    while !script.is_done() {
        world.step(&mut script);
        world.exchange(&mut script);
    }
}

struct StaticKeyVerifier;

impl CertificateVerifier for StaticKeyVerifier {
    fn verify(
        &mut self,
        certificate: &[u8],
        static_key: &[u8; STATIC_KEY_BYTES],
        _now: WallTime,
    ) -> Result<CertifiedHost, String> {
        match certificate == static_key {
            true => Ok(CertifiedHost {
                name: "B.fuzz".parse().expect("a name"),
                keys: PeerKeys { signing: *signing_key().public(), static_key: *static_key },
                permissions: PeerPermissions::all(),
                valid_until: None,
            }),
            false => Err("another key".to_owned()),
        }
    }

    fn is_revoked(&self, _: &PeerKeys) -> bool {
        false
    }
}

struct KeyedWorld {
    layers: [SecurityLayer; 2],
    now: Instant,
    number: u64,
    /// Datagrams of the member in open mode.
    sealed: Vec<Bytes>,
    /// Every datagram that was sent so far, with its sender.
    log: Vec<(usize, Bytes)>,
}

/// Returns the key with which both hosts sign.
fn signing_key() -> SigningKey {
    SigningKey::from_seed(&[9; 32])
}

fn address(peer: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, peer as u8 + 1], 4000))
}

fn epoch(peer: usize) -> Epoch {
    Epoch::new(peer as u64 + 1).expect("not 0")
}

impl KeyedWorld {
    fn new() -> KeyedWorld {
        let layer = |peer: usize| {
            let static_private = Secret::new([peer as u8 + 1; SECRET_BYTES]);
            let credentials = RealmCredentials {
                realm_secret: Secret::new([7; SECRET_BYTES]),
                certificate: Bytes::copy_from_slice(&static_public(&static_private)),
                static_private,
                suite: if peer == MEMBER { Suite::Aes256Gcm } else { Suite::ChaCha20Poly1305 },
                revision: 0,
                signing_key: (peer == MEMBER).then(|| Arc::new(signing_key())),
            };
            let (address, forget) = (address(peer), Duration::from_secs(10));
            let settings = SecuritySettings {
                group: GROUP,
                address,
                peers_max: 4,
                forget,
                logs_keys: false,
                holds_until_verified: peer == VICTIM,
            };
            let mut rng = Rng::new(peer as u64);
            let secrets = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| rng.next_u32() as u8));
            SecurityLayer::new(settings, credentials, Box::new(StaticKeyVerifier), secrets, epoch(peer), Instant::ZERO)
        };
        let layers = [layer(VICTIM), layer(MEMBER)];
        KeyedWorld { layers, now: Instant::ZERO, number: 0, sealed: Vec::new(), log: Vec::new() }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let path = script.choose(&[Path::Multicast, Path::Unicast]);
        match script.u8() % 5 {
            // A stranger sends anything.
            0 => {
                let count = usize::from(script.u8());
                let bytes = Bytes::copy_from_slice(script.take(count));
                self.arrive(VICTIM, address(script.choose(&[MEMBER, 7])), path, bytes);
            }
            // The member sends.
            1 => {
                let (kind, to) = match script.u8() % 4 {
                    0 => (Kind::Data, None),
                    1 => (Kind::Control, None),
                    2 => (Kind::Directed, Some(address(VICTIM))),
                    _ => (Kind::Control, Some(address(VICTIM))),
                };
                let open = self.datagram(kind);
                if let Some(bytes) = self.layers[MEMBER].seal(to, &open) {
                    self.sealed.push(open);
                    self.log.push((MEMBER, bytes.clone()));
                    self.arrive(VICTIM, address(MEMBER), path, bytes);
                }
            }
            // Somebody replays a datagram to either side, changed or not.
            2 => {
                let Some((sender, bytes)) = self.log.get(usize::from(script.u16()) % self.log.len().max(1)).cloned()
                else {
                    return;
                };
                let mut changed = bytes.to_vec();
                if script.flag() {
                    let at = usize::from(script.u16()) % changed.len();
                    changed[at] ^= script.u8();
                }
                let receiver = script.choose(&[VICTIM, MEMBER]);
                self.arrive(receiver, address(script.choose(&[sender, 7])), path, changed.into());
            }
            3 => {
                self.now = self.now + Duration::from_millis(u64::from(script.u16()));
                let now = ClockReading { instant: self.now, wall: WallTime::from_nanos(0) };
                self.layers
                    .iter_mut()
                    .filter(|layer| layer.deadline() <= now.instant)
                    .for_each(|layer| layer.tick(now));
            }
            _ => {
                self.number += u64::from(script.u16());
            }
        }
    }

    /// Delivers what both sides send, except for the datagrams that the input chooses to lose.
    fn exchange(&mut self, script: &mut Script<'_>) {
        let lost = script.u8();
        for turn in 0..8 {
            for sender in [VICTIM, MEMBER] {
                for effect in std::iter::from_fn(|| self.layers[sender].poll_effect()).collect::<Vec<_>>() {
                    match effect {
                        SecurityEffect::Send { to, bytes } => {
                            assert!(bytes.len() <= HANDSHAKE_BYTES_MAX, "{} bytes", bytes.len());
                            self.log.push((sender, bytes.clone()));
                            if lost & 1 << turn == 0 && to == address(1 - sender) {
                                self.arrive(1 - sender, address(sender), Path::Unicast, bytes);
                            }
                        }
                        SecurityEffect::Multicast { bytes } => {
                            assert!(bytes.len() <= HANDSHAKE_BYTES_MAX, "{} bytes", bytes.len());
                            self.log.push((sender, bytes.clone()));
                            if lost & 1 << turn == 0 {
                                self.arrive(1 - sender, address(sender), Path::Multicast, bytes);
                            }
                        }
                        SecurityEffect::Receive(datagram) => self.check_opened(sender, &datagram.bytes),
                        SecurityEffect::Authenticated { address: from, .. } => assert_eq!(from, address(1 - sender)),
                        SecurityEffect::ForgedOrigin { number, .. } => panic!("{number} is of the member"),
                        SecurityEffect::Key(_) => panic!("there is no log of keys"),
                        SecurityEffect::Expired { name, .. } => panic!("{name} has no limit in time"),
                        SecurityEffect::Revoked { name, .. } => panic!("{name} is revoked"),
                        SecurityEffect::NewerRevocations { .. } => panic!("there is no list of revoked hosts"),
                        SecurityEffect::Refused { reason, .. } => panic!("{reason}"),
                    }
                }
            }
        }
    }

    fn arrive(&mut self, receiver: usize, from: SocketAddr, path: Path, bytes: Bytes) {
        let now = ClockReading { instant: self.now, wall: WallTime::from_nanos(0) };
        let datagram = ArrivedDatagram { from, path, bytes, arrived: self.now };
        if let Some(bytes) = self.layers[receiver].receive(now, datagram) {
            self.check_opened(receiver, &bytes);
        }
    }

    /// Checks that the victim opens only what the member has sealed. What is no datagram of this version is passed on.
    fn check_opened(&self, receiver: usize, bytes: &Bytes) {
        let is_foreign = wire::unchecked_header(bytes).is_none();
        assert!(is_foreign || receiver == VICTIM && self.sealed.contains(bytes), "{receiver} opened {bytes:?}");
    }

    /// Returns the next datagram of the member.
    fn datagram(&mut self, kind: Kind) -> Bytes {
        self.number += 1;
        let receiver = (kind == Kind::Directed).then_some(epoch(VICTIM));
        let header =
            Header { kind, group: GROUP, epoch: epoch(MEMBER), number: self.number, count: 0, uptime_ms: 0, receiver };
        wire::padding(&header, &[0; 60])
    }
}
