//! Cost of keyed datagrams, of what strangers send, and of handshakes.

use super::{Figures, clock, median, nanos_each};
use bytes::Bytes;
use seqcast::message::Epoch;
use seqcast::proto::effect::{ArrivedDatagram, Path};
use seqcast::rng::Rng;
use seqcast::security::realm::{
    Certificate, HostIdentity, PeerKeys, PeerPermissions, RealmName, Trust, TrustAnchor, VerifiedPeer,
};
use seqcast::security::{
    CertificateVerifier, CertifiedHost, RealmCredentials, STATIC_KEY_BYTES, Secret, SecurityEffect, SecurityLayer,
    SecuritySettings, Suite,
};
use seqcast::time::{ClockReading, Instant, WallTime};
use seqcast::wire::{Builder, Entry, Header, Kind};
use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Duration;

const GROUP: u16 = 7500;
/// Peers that shake hands with one.
const PEERS: u32 = 1000;
const REPEATS: usize = 20_000;

/// Trusts the members of a realm, as a peer does, but stores no names.
pub struct UnpinnedTrust(Trust);

impl UnpinnedTrust {
    pub fn new(trust: Trust) -> UnpinnedTrust {
        UnpinnedTrust(trust)
    }
}

impl CertificateVerifier for UnpinnedTrust {
    fn verify(
        &mut self,
        certificate: &[u8],
        static_key: &[u8; STATIC_KEY_BYTES],
        now: WallTime,
    ) -> Result<CertifiedHost, String> {
        let checked = self.0.check(certificate, static_key, now).map_err(|refusal| refusal.to_string())?;
        let VerifiedPeer { name, keys, permissions, .. } = checked;
        Ok(CertifiedHost { name, keys, permissions, valid_until: None })
    }

    fn is_revoked(&self, _: &PeerKeys) -> bool {
        false
    }
}

/// A member of the realm, reduced to its security layer.
struct Member {
    layer: SecurityLayer,
    epoch: Epoch,
    address: SocketAddr,
}

impl Member {
    fn new(number: u32) -> Member {
        let realm: RealmName = "bench".parse().expect("a name");
        let mut rng = Rng::new(u64::from(number));
        let mut seed = [0; 32];
        seed.fill_with(|| rng.next_u32() as u8);
        let identity = HostIdentity::from_seed(&seed);
        let name = format!("host-{number}").parse().expect("a name");
        let certificate = Certificate::sign_own(realm.clone(), name, &identity, PeerPermissions::all(), 1);
        let credentials = RealmCredentials {
            realm_secret: Secret::new([7; 32]),
            static_private: Secret::new(*identity.static_private()),
            certificate: certificate.expect("it fits").encode().into(),
            suite: Suite::Aes256Gcm,
            revision: 0,
            signing_key: None,
        };
        let [_, b, c, d] = (number + 1).to_be_bytes();
        let address = SocketAddr::from(([10, b, c, d], 4000));
        let epoch = Epoch::new(u64::from(number) + 1).expect("not 0");
        let settings = SecuritySettings {
            group: GROUP,
            address,
            peers_max: 2000,
            forget: Duration::from_secs(60),
            logs_keys: false,
            holds_until_verified: false,
        };
        let trust = Box::new(UnpinnedTrust(Trust::new(realm, TrustAnchor::OwnKey)));
        let secrets = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| rng.next_u32() as u8));
        let layer = SecurityLayer::new(settings, credentials, trust, secrets, epoch, Instant::ZERO);
        Member { layer, epoch, address }
    }

    /// Returns a sealed multicast with one message of `bytes` bytes.
    fn datagram(&mut self, number: u64, bytes: usize) -> Bytes {
        let (kind, epoch) = (Kind::Data, self.epoch);
        let header = Header { kind, group: GROUP, epoch, number, count: 0, uptime_ms: 0, receiver: None };
        let mut builder = Builder::new(1500);
        let message = seqcast::message::Message::new("a.b".parse().expect("valid"), Bytes::from(vec![7; bytes]));
        assert!(builder.push(&Entry { message: (&message).into(), seq: None, stamp: None, chain: None }));
        self.layer.seal(None, &builder.seal(&header)).expect("the group's key is there")
    }

    fn receive(&mut self, now: ClockReading, from: SocketAddr, path: Path, bytes: Bytes) -> Option<Bytes> {
        self.layer.receive(now, ArrivedDatagram { from, path, bytes, arrived: now.instant })
    }
}

/// Delivers the datagrams of handshakes between a hub and the others for a time. Returns the processor time of the hub.
fn shake_hands(hub: &mut Member, others: &mut [Member], time: Duration) -> Duration {
    let (mut spent, mut now) = (Duration::ZERO, Instant::ZERO);
    while now < Instant::ZERO + time {
        let reading = ClockReading { instant: now, wall: WallTime::from_nanos(0) };
        let started = clock();
        hub.layer.tick(reading);
        spent += clock() - started;
        let mut has_sent = true;
        while std::mem::take(&mut has_sent) {
            for other in others.iter_mut() {
                if other.layer.deadline() <= now {
                    other.layer.tick(reading);
                }
                while let Some(effect) = other.layer.poll_effect() {
                    let (path, bytes) = match effect {
                        SecurityEffect::Send { bytes, .. } => (Path::Unicast, bytes),
                        SecurityEffect::Multicast { bytes } => (Path::Multicast, bytes),
                        _ => continue,
                    };
                    has_sent = true;
                    let started = clock();
                    drop(hub.receive(reading, other.address, path, bytes));
                    spent += clock() - started;
                }
            }
            while let Some(effect) = hub.layer.poll_effect() {
                has_sent = true;
                match effect {
                    SecurityEffect::Send { to, bytes } => {
                        let receiver = others.iter_mut().find(|other| other.address == to).expect("a member");
                        drop(receiver.receive(reading, hub.address, Path::Unicast, bytes));
                    }
                    SecurityEffect::Multicast { bytes } => {
                        for other in others.iter_mut() {
                            drop(other.receive(reading, hub.address, Path::Multicast, bytes.clone()));
                        }
                    }
                    _ => {}
                }
            }
        }
        now = now + STEP;
    }
    spent
}

/// Simulated time between two looks at the deadlines.
const STEP: Duration = Duration::from_millis(5);
/// Simulated time for the handshakes, of which a peer begins and answers at most 500 a second.
const HANDSHAKE_TIME: Duration = Duration::from_secs(6);

/// Measures handshakes of many peers with one.
fn handshakes(figures: &mut Figures) {
    let each = |_| {
        let mut hub = Member::new(0);
        let mut others: Vec<Member> = (1..=PEERS).map(Member::new).collect();
        let spent = shake_hands(&mut hub, &mut others, HANDSHAKE_TIME);
        assert_eq!(hub.layer.associations(), PEERS as usize, "{:?}", hub.layer.counters());
        spent.as_nanos() as f64 / 1e6
    };
    figures.add_in("ms", format!("handshakes of {PEERS} peers with one: its time"), median((0..3).map(each).collect()));
}

/// Measures datagrams of a member, and those that are refused.
pub fn security(figures: &mut Figures) {
    let now = ClockReading { instant: Instant::ZERO + HANDSHAKE_TIME, wall: WallTime::from_nanos(0) };
    for payload in [64, 1300] {
        let (mut receiver, mut senders) = (Member::new(0), [Member::new(1)]);
        shake_hands(&mut receiver, &mut senders, Duration::from_secs(1));
        let [sender] = &mut senders;
        let genuine = sender.datagram(1, payload);
        let opened = receiver.receive(now, sender.address, Path::Multicast, genuine.clone());
        assert!(opened.is_some(), "the handshake is done");
        let bytes = genuine.len();
        let mut flipped = genuine.to_vec();
        *flipped.last_mut().expect("a tag") ^= 1;
        let mut unknown = flipped.clone();
        unknown[8..16].copy_from_slice(&0x5eed_u64.to_be_bytes());
        let mut handshake = flipped.clone();
        handshake[4] = 3;
        let mut figure = |name: &str, from: SocketAddr, datagram: Bytes, is_accepted: bool| {
            let nanos = nanos_each(REPEATS, || {
                for _ in 0..REPEATS {
                    let opened = receiver.receive(now, from, Path::Unicast, black_box(datagram.clone()));
                    assert_eq!(black_box(opened).is_some(), is_accepted);
                }
            });
            figures.add(format!("{name}, {bytes} bytes"), nanos);
        };
        let stranger = SocketAddr::from(([10, 9, 9, 9], 4000));
        figure("open a datagram", sender.address, genuine.clone(), true);
        figure("refuse a flipped tag", sender.address, flipped.into(), false);
        figure("refuse a known epoch at another address", stranger, genuine, false);
        figure("refuse an unknown epoch", stranger, unknown.into(), false);
        figure("refuse a forged handshake", stranger, handshake.into(), false);
        assert_eq!(receiver.layer.poll_effect(), None, "nothing is answered");
        let mut number = 1;
        let nanos = nanos_each(REPEATS, || {
            for _ in 0..REPEATS {
                number += 1;
                black_box(sender.datagram(number, payload));
            }
        });
        figures.add(format!("pack and seal a datagram, {bytes} bytes"), nanos);
    }
    handshakes(figures);
}
