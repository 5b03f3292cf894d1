//! Security layers that exchange datagrams, with strangers and replays.

mod origin;

use super::*;
use crate::proto::effect::Path;
use crate::rng::Rng;
use crate::security::LoggedKeys;
use crate::security::credentials::CertifiedHost;
use crate::security::handshake_datagram::{COOKIE_BYTES, HandshakeDatagram};
use crate::security::noise::STATIC_KEY_BYTES;
use crate::security::realm::{PeerKeys, PeerPermissions, SigningKey};
use crate::time::WallTime;
use crate::wire::{self, Header};
use bytes::BytesMut;
use std::collections::BTreeSet;

const GROUP: u16 = 7500;
const FORGET: Duration = Duration::from_secs(60);

/// Returns the signing key of a host, which follows from its static key.
fn test_signing_key(static_key: &[u8; STATIC_KEY_BYTES]) -> SigningKey {
    SigningKey::from_seed(static_key)
}

/// Trusts certificates that consist of the static key and a name.
#[derive(Default)]
pub(in crate::security) struct NameVerifier {
    pub(in crate::security) distrusted: Option<&'static str>,
    /// Time from which no certificate is valid.
    pub(in crate::security) valid_until: Option<WallTime>,
    revoked: Option<[u8; STATIC_KEY_BYTES]>,
}

impl CertificateVerifier for NameVerifier {
    fn verify(
        &mut self,
        certificate: &[u8],
        static_key: &[u8; STATIC_KEY_BYTES],
        _now: WallTime,
    ) -> Result<CertifiedHost, String> {
        let (key, name) = certificate.split_first_chunk::<STATIC_KEY_BYTES>().ok_or("it is too short")?;
        if key != static_key {
            return Err("the certificate is of another key".to_owned());
        }
        let name = std::str::from_utf8(name).map_err(|error| error.to_string())?;
        if self.revoked == Some(*static_key) {
            return Err(format!("{name} is revoked"));
        }
        if self.distrusted == Some(name) {
            return Err(format!("{name} is not trusted"));
        }
        let name = name.parse().map_err(|_| "it has no name".to_owned())?;
        let keys = PeerKeys { signing: *test_signing_key(static_key).public(), static_key: *static_key };
        Ok(CertifiedHost { name, keys, permissions: PeerPermissions::all(), valid_until: self.valid_until })
    }

    fn is_revoked(&self, keys: &PeerKeys) -> bool {
        self.revoked == Some(keys.static_key)
    }
}

/// A datagram of a handshake under way.
#[derive(Clone, Debug)]
struct Transit {
    from: SocketAddr,
    /// Its receiver, also if it goes to the group.
    to: SocketAddr,
    path: Path,
    bytes: Bytes,
}

impl Transit {
    /// Returns the number of the step in a handshake.
    fn step(&self) -> u8 {
        self.bytes[5]
    }
}

const HELLO: u8 = 6;

/// A peer, reduced to its security layer.
struct Node {
    layer: SecurityLayer,
    epoch: Epoch,
    address: SocketAddr,
    number: u64,
    /// Datagrams that the core would receive.
    received: Vec<Bytes>,
    /// Times of arrival of those that waited for a handshake or a signature.
    deferred_arrivals: Vec<Instant>,
    names: Vec<String>,
    refusals: Vec<String>,
    expired: Vec<String>,
    revoked: Vec<String>,
    newer_revisions: Vec<u64>,
    /// Names of publishers with the numbers of datagrams that others have forged.
    forged: Vec<(String, u64)>,
    /// Secrets that a log of keys gets.
    logged: Vec<LoggedSecret>,
}

impl Node {
    fn new(name: &str, realm: u8, number: u64, distrusted: Option<&'static str>) -> Node {
        let static_private = Secret::new([u8::try_from(number).unwrap(); SECRET_BYTES]);
        let mut certificate = crate::security::static_public(&static_private).to_vec();
        certificate.extend(name.bytes());
        let credentials = RealmCredentials {
            realm_secret: Secret::new([realm; SECRET_BYTES]),
            static_private,
            certificate: certificate.into(),
            suite: if number.is_multiple_of(2) { Suite::Aes256Gcm } else { Suite::ChaCha20Poly1305 },
            revision: 0,
            signing_key: None,
        };
        let mut rng = Rng::new(number);
        let secrets = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| rng.next_u32() as u8));
        let epoch = Epoch::new(number).unwrap();
        let address = SocketAddr::from(([10, 0, 0, u8::try_from(number).unwrap()], 4000));
        let settings = SecuritySettings {
            group: GROUP,
            address,
            peers_max: 100,
            forget: FORGET,
            logs_keys: true,
            holds_until_verified: false,
        };
        let verifier = Box::new(NameVerifier { distrusted, ..NameVerifier::default() });
        Node {
            layer: SecurityLayer::new(settings, credentials, verifier, secrets, epoch, Instant::ZERO),
            epoch,
            address,
            number: 0,
            received: Vec::new(),
            deferred_arrivals: Vec::new(),
            names: Vec::new(),
            refusals: Vec::new(),
            expired: Vec::new(),
            revoked: Vec::new(),
            newer_revisions: Vec::new(),
            forged: Vec::new(),
            logged: Vec::new(),
        }
    }

    fn tick(&mut self, now: Instant) {
        self.layer.tick(clock(now));
    }

    /// Begins another epoch, as the core does with its next datagram.
    fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = Epoch::new(epoch).unwrap();
        self.layer.begin_epoch(self.epoch);
    }

    /// Returns the next datagram of open mode of this peer.
    fn datagram(&mut self, kind: Kind, receiver: Option<Epoch>) -> Bytes {
        self.number += 1;
        let header =
            Header { kind, group: GROUP, epoch: self.epoch, number: self.number, count: 0, uptime_ms: 7, receiver };
        wire::padding(&header, &[7; 60])
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, path: Path, bytes: &Bytes) {
        let datagram = ArrivedDatagram { from, path, bytes: bytes.clone(), arrived: now };
        let opened = self.layer.receive(clock(now), datagram);
        self.received.extend(opened);
    }

    /// Takes the effects of the layer, and returns what is to be sent: each datagram with its path and its receiver,
    /// which is this node itself for the group.
    fn sent(&mut self) -> Vec<Transit> {
        let (mut sent, from) = (Vec::new(), self.address);
        while let Some(effect) = self.layer.poll_effect() {
            match effect {
                SecurityEffect::Send { to, bytes } => sent.push(Transit { from, to, path: Path::Unicast, bytes }),
                SecurityEffect::Multicast { bytes } => {
                    sent.push(Transit { from, to: from, path: Path::Multicast, bytes });
                }
                SecurityEffect::Receive(datagram) => {
                    self.deferred_arrivals.push(datagram.arrived);
                    self.received.push(datagram.bytes);
                }
                SecurityEffect::Authenticated { name, .. } => self.names.push(name.to_string()),
                SecurityEffect::Refused { reason, .. } => self.refusals.push(reason),
                SecurityEffect::Key(secret) => self.logged.push(secret),
                SecurityEffect::Expired { name, .. } => self.expired.push(name.to_string()),
                SecurityEffect::Revoked { name, .. } => self.revoked.push(name.to_string()),
                SecurityEffect::NewerRevocations { revision, .. } => self.newer_revisions.push(revision),
                SecurityEffect::ForgedOrigin { name, number, .. } => self.forged.push((name.to_string(), number)),
            }
        }
        sent
    }

    /// Returns a HELLO that this node makes now.
    fn hello(&mut self, now: Instant) -> Bytes {
        self.layer.hello.due = now;
        self.tick(now);
        self.sent().into_iter().find(|sent| sent.step() == HELLO).unwrap().bytes
    }

    /// Passes a datagram to this node, and returns the one that it answers with, if it does.
    fn answer(&mut self, now: Instant, from: SocketAddr, bytes: &Bytes) -> Option<Bytes> {
        let path = if bytes[5] == HELLO { Path::Multicast } else { Path::Unicast };
        self.receive(now, from, path, bytes);
        let mut sent = self.sent();
        assert!(sent.len() <= 1, "{sent:?}");
        sent.pop().map(|sent| {
            assert_eq!(sent.to, from);
            sent.bytes
        })
    }
}

/// Returns the readings of clocks that began together.
fn clock(now: Instant) -> ClockReading {
    ClockReading { instant: now, wall: WallTime::from_nanos(now.as_nanos()) }
}

/// Peers and the datagrams of handshakes between them.
struct Lan {
    nodes: Vec<Node>,
    now: Instant,
    /// Every datagram of a handshake so far, a HELLO once for each receiver.
    log: Vec<Transit>,
}

impl Lan {
    fn new(nodes: impl IntoIterator<Item = Node>) -> Lan {
        Lan { nodes: nodes.into_iter().collect(), now: Instant::ZERO, log: Vec::new() }
    }

    /// Seals a multicast of a node and delivers it to all others; returns its bytes.
    fn multicast(&mut self, node: usize, open: &Bytes) -> Bytes {
        let bytes = self.nodes[node].layer.seal(None, open).unwrap();
        let (from, now) = (self.nodes[node].address, self.now);
        for (other, receiver) in self.nodes.iter_mut().enumerate() {
            if other != node {
                receiver.receive(now, from, Path::Multicast, &bytes);
            }
        }
        bytes
    }

    /// Delivers datagrams of handshakes, except those that are lost, until none is left; then lets time pass until the
    /// next ones, and so on. `is_lost` gets the position in the log.
    fn run(&mut self, time: Duration, mut is_lost: impl FnMut(usize, &Transit) -> bool) {
        let end = self.now + time;
        loop {
            loop {
                let sent: Vec<Transit> = self.nodes.iter_mut().flat_map(Node::sent).collect();
                if sent.is_empty() {
                    break;
                }
                for sent in sent {
                    let now = self.now;
                    let to_group = sent.path == Path::Multicast;
                    for receiver in &mut self.nodes {
                        if if to_group { receiver.address == sent.from } else { receiver.address != sent.to } {
                            continue;
                        }
                        let transit = Transit { to: receiver.address, ..sent.clone() };
                        if !is_lost(self.log.len(), &transit) {
                            receiver.receive(now, transit.from, transit.path, &transit.bytes);
                        }
                        self.log.push(transit);
                    }
                }
            }
            let due = self.nodes.iter().map(|node| node.layer.deadline()).min().unwrap();
            if end < due {
                break;
            }
            self.now = self.now.max(due);
            let now = self.now;
            self.nodes.iter_mut().for_each(|node| node.tick(now));
        }
        self.now = end;
    }

    /// Lets the nodes find each other.
    fn meet(&mut self) {
        self.run(Duration::from_millis(1500), |_, _| false);
        self.nodes.iter_mut().for_each(|node| node.received.clear());
    }
}

fn pair() -> Lan {
    Lan::new([Node::new("A", 1, 1, None), Node::new("B", 1, 2, None)])
}

/// Returns whether this is a HELLO of the second node of a pair. Without it, only the second one begins handshakes.
fn is_hello_of_b(transit: &Transit) -> bool {
    transit.step() == HELLO && transit.from.ip() == std::net::IpAddr::from([10, 0, 0, 2])
}

/// Proves: W178
#[test]
fn first_datagram_waits_for_the_handshake() {
    let mut lan = pair();
    let (a, now) = (lan.nodes[0].address, lan.now);
    let early = lan.nodes[0].datagram(Kind::Data, None);
    lan.multicast(0, &early);
    let hello = lan.nodes[0].hello(now);
    lan.nodes[1].receive(now, a, Path::Multicast, &hello);
    let open: Vec<Bytes> = (0..3).map(|_| lan.nodes[0].datagram(Kind::Data, None)).collect();
    let arrivals = [now, now + Duration::from_millis(1), now + Duration::from_millis(2)];
    for (open, arrived) in open.iter().zip(arrivals) {
        lan.now = arrived;
        drop(lan.multicast(0, open));
    }
    assert!(lan.nodes[1].received.is_empty());
    lan.run(Duration::from_millis(1), |_, transit| is_hello_of_b(transit));
    assert_eq!(lan.nodes[1].received, open, "in open mode, in order, without the one before the HELLO");
    assert_eq!(lan.nodes[1].deferred_arrivals, arrivals);
    assert_eq!(lan.nodes[1].layer.counters().discard_unauthenticated, 1);
    assert_eq!((&lan.nodes[0].names[..], &lan.nodes[1].names[..]), (&["B".to_owned()][..], &["A".to_owned()][..]));
    // The handshake has given both sides the keys of the other.
    let answer = lan.nodes[1].datagram(Kind::Control, None);
    lan.multicast(1, &answer);
    assert_eq!(lan.nodes[0].received, [answer]);
    assert_eq!(
        lan.log.iter().filter(|transit| transit.step() != HELLO).count(),
        6,
        "six datagrams for both directions"
    );
}

/// Proves: W178, W187
#[test]
fn datagram_of_unknown_epoch_causes_no_answer() {
    let mut lan = pair();
    let (now, from) = (lan.now, lan.nodes[0].address);
    for kind in [Kind::Data, Kind::Control] {
        let open = lan.nodes[0].datagram(kind, None);
        let bytes = lan.nodes[0].layer.seal(None, &open).unwrap();
        lan.nodes[1].receive(now, from, Path::Multicast, &bytes);
        lan.nodes[1].receive(now, from, Path::Unicast, &bytes);
    }
    assert!(lan.nodes[1].sent().is_empty());
    assert_eq!(lan.nodes[1].layer.counters().discard_unauthenticated, 4);
    assert_eq!(lan.nodes[1].layer.deferral.deadline(), None, "nothing waits");
}

/// Proves: W187
#[test]
fn only_valid_hello_begins_a_handshake() {
    let mut lan = pair();
    let (now, a) = (lan.now, lan.nodes[0].address);
    let hello = lan.nodes[0].hello(now);
    let refused = |lan: &mut Lan, from: SocketAddr, path, bytes: &Bytes| {
        lan.nodes[1].receive(now, from, path, bytes);
        assert!(lan.nodes[1].sent().is_empty(), "{from} {path:?}");
    };
    refused(&mut lan, a, Path::Unicast, &hello);
    refused(&mut lan, SocketAddr::from(([10, 0, 0, 9], 4000)), Path::Multicast, &hello);
    refused(&mut lan, SocketAddr::new(a.ip(), 4001), Path::Multicast, &hello);
    let mut other = Node::new("C", 9, 3, None);
    let (foreign, from) = (other.hello(now), other.address);
    refused(&mut lan, from, Path::Multicast, &foreign);
    // Somebody sends this node its own HELLO.
    let (own, from) = (lan.nodes[1].hello(now), lan.nodes[1].address);
    refused(&mut lan, from, Path::Multicast, &own);
    assert_eq!(lan.nodes[1].layer.counters().discard_handshake, 5);
    assert_eq!(lan.nodes[1].answer(now, a, &hello).map(|request| request.len()), Some(hello.len()));
}

/// Proves: W187
#[test]
fn hellos_are_frequent_at_first() {
    let mut node = Node::new("A", 1, 1, None);
    let mut hello_times = |from: Duration, to: Duration| {
        let mut times = Vec::new();
        while node.layer.deadline() <= Instant::ZERO + to {
            let now = node.layer.deadline().max(Instant::ZERO + from);
            node.tick(now);
            let hellos = node.sent().into_iter().filter(|sent| sent.step() == HELLO);
            times.extend(hellos.map(|_| now.as_nanos() / 1_000_000 - from.as_millis() as u64));
        }
        let address = SocketAddr::from(([10, 0, 0, 77], 4000));
        node.layer.on_address(address);
        times
    };
    let (start, seconds) = (Duration::ZERO, Duration::from_secs);
    assert_eq!(hello_times(start, seconds(3)), [0, 20, 60, 140, 300, 1300, 2300]);
    assert_eq!(hello_times(seconds(9), seconds(11)), [0, 20, 60, 140, 300, 1300], "with another address");
    node.begin_epoch(9);
    node.tick(Instant::ZERO + seconds(12));
    let hello = node.sent().remove(0).bytes;
    let mut other = Node::new("B", 1, 2, None);
    let to = SocketAddr::from(([10, 0, 0, 77], 4000));
    assert!(other.answer(Instant::ZERO, to, &hello).is_some(), "it names the new epoch and address");
}

/// Proves: W188
#[test]
fn each_hello_causes_at_most_one_request() {
    let mut lan = pair();
    let (now, a) = (lan.now, lan.nodes[0].address);
    let hello = lan.nodes[0].hello(now);
    assert!(lan.nodes[1].answer(now, a, &hello).is_some());
    for millis in [20, 100, 251, 1000] {
        lan.nodes[1].layer.hello.due = now + Duration::from_secs(9);
        lan.nodes[1].tick(now + Duration::from_millis(millis));
        assert!(lan.nodes[1].sent().is_empty(), "after {millis} ms");
    }
    assert!(lan.nodes[1].layer.exchanges.is_empty());
    for at in [2, 2, 3] {
        let now = now + Duration::from_secs(at);
        assert_eq!(lan.nodes[1].answer(now, a, &hello).map(|request| request.len()), Some(hello.len()));
    }
}

/// Proves: W188
#[test]
fn replayed_hellos_do_not_disturb_others() {
    let mut lan = pair();
    let mut former = Node::new("A", 1, 1, None);
    let (now, a, b) = (lan.now, lan.nodes[0].address, lan.nodes[1].address);
    let hello = lan.nodes[0].hello(now);
    let request = lan.nodes[1].answer(now, a, &hello).unwrap();
    // A stranger replays those of former epochs of the same host, and datagrams in their names.
    let (mut bytes_in, mut bytes_out) = (0, 0);
    for epoch in 1000..4000 {
        former.begin_epoch(epoch);
        let hello = former.hello(now);
        let open = former.datagram(Kind::Data, None);
        let sealed = former.layer.seal(None, &open).unwrap();
        bytes_in += hello.len();
        bytes_out += lan.nodes[1].answer(now, a, &hello).map_or(0, |request| request.len());
        for _ in 0..20 {
            lan.nodes[1].receive(now, a, Path::Multicast, &sealed);
        }
        if epoch == 1500 {
            // The handshake with the present epoch continues meanwhile.
            let cookie = lan.nodes[0].answer(now, b, &request).unwrap();
            let init = lan.nodes[1].answer(now, a, &cookie).unwrap();
            let response = lan.nodes[0].answer(now, b, &init).unwrap();
            let sealed = lan.nodes[0].datagram(Kind::Data, None);
            lan.multicast(0, &sealed);
            let last = lan.nodes[1].answer(now, a, &response).unwrap();
            let keys = lan.nodes[0].answer(now, b, &last).unwrap();
            assert_eq!(lan.nodes[1].answer(now, a, &keys), None);
            assert_eq!(lan.nodes[1].received, [sealed], "it waited");
        }
    }
    assert_eq!(bytes_out, bytes_in);
    assert_eq!(lan.nodes[1].layer.exchanges.len(), handshake::EXCHANGES_MAX);
    assert_eq!(lan.nodes[1].names, ["A"]);
    assert_eq!(lan.nodes[1].layer.counters().limited_handshakes, 0);
}

/// Proves: W179
#[test]
fn replayed_request_is_answered_once() {
    let mut lan = pair();
    let (now, a, b) = (lan.now, lan.nodes[0].address, lan.nodes[1].address);
    let hello = lan.nodes[0].hello(now);
    let request = lan.nodes[1].answer(now, a, &hello).unwrap();
    assert!(lan.nodes[0].answer(now, b, &request).is_some());
    for number in 0..10_000u32 {
        let from = SocketAddr::from((number.to_be_bytes(), 9));
        assert_eq!(lan.nodes[0].answer(now, from, &request), None);
    }
    assert_eq!(lan.nodes[0].layer.counters().limited_handshakes, 0, "no budget is used up");
    // A member can use up the budget of REQUESTs for a moment.
    let answered = (0..3000).filter(|_| {
        let request = lan.nodes[1].answer(now, a, &hello).unwrap();
        lan.nodes[0].answer(now, b, &request).is_some()
    });
    assert_eq!(answered.count(), 1999);
    assert_eq!(lan.nodes[0].layer.counters().limited_handshakes, 1001);
}

/// Proves: W189
#[test]
fn claimed_epoch_elsewhere_blocks_no_handshake() {
    let mut lan = pair();
    let (now, a) = (lan.now, lan.nodes[0].address);
    let mut thief = Node::new("C", 1, 3, None);
    thief.begin_epoch(lan.nodes[0].epoch.bits());
    let claim = thief.hello(now);
    assert!(lan.nodes[1].answer(now, thief.address, &claim).is_some());
    let hello = lan.nodes[0].hello(now);
    assert!(lan.nodes[1].answer(now, a, &hello).is_some(), "each address has its own handshake");
    lan.nodes.push(thief);
    lan.meet();
    assert!(lan.nodes[0].names.contains(&"B".to_owned()) || lan.nodes[2].names.contains(&"B".to_owned()));
}

/// Proves: W189
#[test]
fn other_init_does_not_end_a_handshake() {
    let mut lan = pair();
    let (now, a, b) = (lan.now, lan.nodes[0].address, lan.nodes[1].address);
    let hello = lan.nodes[0].hello(now);
    let init = |lan: &mut Lan| {
        lan.nodes[1].layer.exchanges.clear();
        let request = lan.nodes[1].answer(now, a, &hello).unwrap();
        let cookie = lan.nodes[0].answer(now, b, &request).unwrap();
        lan.nodes[1].answer(now, a, &cookie).unwrap()
    };
    let (old, new) = (init(&mut lan), init(&mut lan));
    let response = lan.nodes[0].answer(now, b, &new).unwrap();
    assert_eq!(lan.nodes[0].answer(now, b, &old), None, "it comes late");
    assert_eq!(lan.nodes[0].answer(now, b, &new), Some(response.clone()), "the same answer again");
    let last = lan.nodes[1].answer(now, a, &response).unwrap();
    assert!(lan.nodes[0].answer(now, b, &last).is_some());
    assert_eq!(lan.nodes[0].names, ["B"]);
    assert_eq!(lan.nodes[0].answer(now, b, &new), None, "a stranger replays it");
    assert!(lan.nodes[0].layer.exchanges.is_empty());
}

#[test]
fn logged_secrets_open_datagrams_of_a_peer() {
    let mut lan = Lan::new([Node::new("A", 1, 1, None), Node::new("B", 1, 2, None), Node::new("C", 1, 3, None)]);
    lan.meet();
    let mut keys = LoggedKeys::default();
    lan.nodes[0].logged.iter().for_each(|secret| keys.add(secret));
    let mut opens = |from: usize, kind: Kind, to: Option<usize>| {
        let (address, receiver) = (to.map(|to| lan.nodes[to].address), to.map(|to| lan.nodes[to].epoch));
        let open = lan.nodes[from].datagram(kind, receiver.filter(|_| kind == Kind::Directed));
        let sealed = lan.nodes[from].layer.seal(address, &open).unwrap();
        let mut forged = sealed.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(keys.open(&forged.into()), None);
        let opened = keys.open(&sealed);
        assert!(opened.is_none() || opened == Some(wire::with_check_value(&open)));
        opened.is_some()
    };
    for from in 0..3 {
        assert!([Kind::Data, Kind::Control].iter().all(|kind| opens(from, *kind, None)), "{from} to the group");
    }
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        let is_logged = from == 0 || to == 0;
        for kind in [Kind::Control, Kind::Directed] {
            assert_eq!(opens(from, kind, Some(to)), is_logged, "{kind:?} from {from} to {to}");
        }
    }
    // Another epoch of the same peer has other keys.
    lan.nodes[0].begin_epoch(9);
    let open = lan.nodes[0].datagram(Kind::Data, None);
    let sealed = lan.nodes[0].layer.seal(None, &open).unwrap();
    assert_eq!(keys.open(&sealed), None);
    drop(lan.nodes[0].sent());
    lan.nodes[0].logged.iter().for_each(|secret| keys.add(secret));
    assert_eq!(keys.open(&sealed), Some(wire::with_check_value(&open)));
}

/// Proves: W189
#[test]
fn next_hello_heals_different_keys() {
    let mut lan = pair();
    lan.meet();
    // B begins another handshake, at whose end A has new keys, while B never gets the KEYS.
    lan.nodes[1].layer.associations.values_mut().for_each(Association::on_doubt);
    lan.run(Duration::from_secs(2), |_, transit| transit.step() == 5);
    assert_eq!((lan.nodes[0].names.len(), lan.nodes[1].names.len()), (2, 1));
    lan.run(Duration::from_secs(3), |_, _| false);
    assert_eq!((lan.nodes[0].names.len(), lan.nodes[1].names.len()), (3, 2));
    for (from, to) in [(0, 1), (1, 0)] {
        let (address, source, now) = (lan.nodes[to].address, lan.nodes[from].address, lan.now);
        let open = lan.nodes[from].datagram(Kind::Control, None);
        let sealed = lan.nodes[from].layer.seal(Some(address), &open).unwrap();
        lan.nodes[to].receive(now, source, Path::Unicast, &sealed);
        assert_eq!(lan.nodes[to].received, [open]);
    }
}

#[test]
fn resent_datagram_has_the_same_bytes() {
    let mut lan = pair();
    lan.meet();
    for kind in [Kind::Data, Kind::Directed] {
        let receiver = (kind == Kind::Directed).then_some(lan.nodes[1].epoch);
        let (open, to) = (lan.nodes[0].datagram(kind, receiver), lan.nodes[1].address);
        let sealed = |lan: &mut Lan, to| lan.nodes[0].layer.seal(to, &open).unwrap();
        assert_eq!(sealed(&mut lan, Some(to)), sealed(&mut lan, None), "{kind:?}");
    }
}

/// Proves: W184
#[test]
fn each_lost_handshake_datagram_is_repeated() {
    for step in 0..=HELLO {
        for times in 1..=3 {
            let mut lan = pair();
            let mut lost = 0;
            lan.run(Duration::from_secs(1), |_, transit| {
                let is_lost = transit.step() == step && lost < times;
                lost += usize::from(is_lost);
                is_hello_of_b(transit) || is_lost
            });
            assert_eq!(lan.nodes[0].names, ["B"], "{times} of step {step}");
            assert_eq!(lan.nodes[1].names, ["A"], "{times} of step {step}");
        }
    }
}

/// Proves: W186
#[test]
fn crossing_handshakes_end_in_one_association() {
    let mut rng = Rng::new(3);
    for loss in [0.0, 0.1, 0.3] {
        for seed in 0..20 {
            let mut lan = Lan::new((1..=6).map(|number| Node::new(&format!("N{number}"), 1, number, None)));
            lan.run(Duration::from_secs(8), |_, _| rng.chance(loss));
            for node in &lan.nodes {
                assert_eq!(node.layer.associations(), 5, "loss {loss}, run {seed}");
                let names: BTreeSet<&String> = node.names.iter().collect();
                assert_eq!(names.len(), 5);
                assert!(node.refusals.is_empty());
            }
            for from in 0..6 {
                for to in (0..6).filter(|to| *to != from) {
                    let (address, source, now) = (lan.nodes[to].address, lan.nodes[from].address, lan.now);
                    let open = lan.nodes[from].datagram(Kind::Control, None);
                    let sealed = lan.nodes[from].layer.seal(Some(address), &open).unwrap();
                    lan.nodes[to].receive(now, source, Path::Unicast, &sealed);
                    assert_eq!(lan.nodes[to].received.pop(), Some(open), "loss {loss}, run {seed}: same keys");
                }
            }
        }
    }
}

/// Proves: W172, W174
#[test]
fn changed_byte_is_never_accepted() {
    let mut lan = pair();
    lan.meet();
    let (from, to) = (lan.nodes[0].address, lan.nodes[1].address);
    let receiver = lan.nodes[1].epoch;
    for (kind, to) in [(Kind::Data, None), (Kind::Control, None), (Kind::Control, Some(to)), (Kind::Directed, Some(to))]
    {
        let open = lan.nodes[0].datagram(kind, (kind == Kind::Directed).then_some(receiver));
        let sealed = lan.nodes[0].layer.seal(to, &open).unwrap();
        let path = if to.is_some() { Path::Unicast } else { Path::Multicast };
        for at in 0..sealed.len() * 8 {
            let mut changed = sealed.to_vec();
            changed[at / 8] ^= 1 << (at % 8);
            // The core discards what is no datagram of this version.
            if 24 <= at {
                lan.nodes[1].receive(Instant::ZERO, from, path, &changed.into());
            }
            lan.nodes[1].sent();
        }
        assert!(lan.nodes[1].received.is_empty(), "{kind:?}");
        lan.nodes[1].receive(Instant::ZERO, from, path, &sealed);
        assert_eq!(lan.nodes[1].received.pop(), Some(open), "{kind:?}");
    }
}

/// Proves: W175, W176
#[test]
fn replayed_control_and_foreign_address_are_discarded() {
    let mut lan = pair();
    lan.meet();
    let (from, to) = (lan.nodes[0].address, lan.nodes[1].address);
    let open = lan.nodes[0].datagram(Kind::Control, None);
    let sealed = lan.multicast(0, &open);
    let directed = lan.nodes[0].datagram(Kind::Control, None);
    let pairwise = lan.nodes[0].layer.seal(Some(to), &directed).unwrap();
    let now = lan.now;
    lan.nodes[1].receive(now, from, Path::Unicast, &pairwise);
    assert_eq!(lan.nodes[1].received.drain(..).collect::<Vec<_>>(), [open, directed]);
    for bytes in [&sealed, &pairwise] {
        lan.nodes[1].receive(now, from, Path::Multicast, bytes);
        lan.nodes[1].receive(now, from, Path::Unicast, bytes);
        lan.nodes[1].receive(now, to, Path::Unicast, bytes);
    }
    assert!(lan.nodes[1].received.is_empty());
    let counters = lan.nodes[1].layer.counters();
    // Control to the group never comes by unicast.
    assert_eq!((counters.discard_replayed, counters.discard_forged, counters.discard_source), (3, 1, 2));
    // Another handshake with the same epoch does not forget what was accepted.
    lan.nodes[0].layer.associations.clear();
    lan.meet();
    assert_eq!(lan.nodes[1].names, ["A", "A"]);
    lan.nodes[1].receive(now, from, Path::Multicast, &sealed);
    lan.nodes[1].receive(now, from, Path::Unicast, &pairwise);
    assert!(lan.nodes[1].received.is_empty());
    // Data is left to the ledger of the core.
    let open = lan.nodes[0].datagram(Kind::Data, None);
    let sealed = lan.multicast(0, &open);
    lan.nodes[1].receive(now, from, Path::Multicast, &sealed);
    assert_eq!(lan.nodes[1].received, [open.clone(), open]);
}

/// Every member can seal what the sender sends to the group.
/// Proves: W176
#[test]
fn forged_control_number_does_not_block_later_control() {
    let mut lan = pair();
    lan.meet();
    let last = lan.nodes[0].number;
    lan.nodes[0].number += 1 << 20;
    let forged = lan.nodes[0].datagram(Kind::Control, None);
    lan.multicast(0, &forged);
    lan.nodes[0].number = last;
    let honest = lan.nodes[0].datagram(Kind::Control, None);
    let sealed = lan.multicast(0, &honest);
    assert_eq!(lan.nodes[1].received, [forged, honest]);
    let (now, from) = (lan.now, lan.nodes[0].address);
    lan.nodes[1].receive(now, from, Path::Multicast, &sealed);
    assert_eq!(lan.nodes[1].layer.counters().discard_replayed, 1);
}

/// Proves: W173
#[test]
fn other_members_cannot_open_pairwise_datagrams() {
    let mut lan = Lan::new((1..=3).map(|number| Node::new(&format!("N{number}"), 1, number, None)));
    lan.meet();
    let (from, to) = (lan.nodes[0].address, lan.nodes[1].address);
    let open = lan.nodes[0].datagram(Kind::Control, None);
    let sealed = lan.nodes[0].layer.seal(Some(to), &open).unwrap();
    let now = lan.now;
    lan.nodes[2].receive(now, from, Path::Unicast, &sealed);
    assert!(lan.nodes[2].received.is_empty());
    assert_eq!(lan.nodes[2].layer.counters().discard_forged, 1);
    lan.nodes[1].receive(now, from, Path::Unicast, &sealed);
    assert_eq!(lan.nodes[1].received, [open]);
}

/// Proves: W173
#[test]
fn group_keys_do_not_seal_records_for_one() {
    let mut lan = pair();
    lan.meet();
    let (from, now) = (lan.nodes[0].address, lan.now);
    for record in 0x40..=0x4b {
        for path in [Path::Multicast, Path::Unicast] {
            let open = lan.nodes[0].datagram(Kind::Control, None);
            let mut content = BytesMut::from(&open[..open.len() - 4]);
            content[36] = record;
            let sealed = lan.nodes[0].layer.seal(None, &wire::into_open(content)).unwrap();
            lan.nodes[1].receive(now, from, path, &sealed);
            let is_for_one = [0x43, 0x44, 0x45, 0x49, 0x4b].contains(&record) || path == Path::Unicast;
            assert_eq!(lan.nodes[1].received.pop().is_none(), is_for_one, "{record:x} {path:?}");
        }
    }
    assert_eq!(lan.nodes[1].layer.counters().discard_forged, 5 + 12);
}

/// Proves: W180, W182
#[test]
fn stranger_gets_no_answer() {
    let mut lan = Lan::new([Node::new("A", 1, 1, None), Node::new("B", 1, 2, None), Node::new("C", 9, 3, None)]);
    // C has another realm secret.
    lan.meet();
    assert_eq!((&lan.nodes[0].names[..], &lan.nodes[2].names[..]), (&["B".to_owned()][..], &[][..]));
    let stranger = lan.nodes[2].address;
    for transit in &lan.log {
        assert!(transit.step() == HELLO || transit.from != stranger && transit.to != stranger, "{transit:?}");
        assert!(transit.bytes.len() == 80 || 2 <= transit.step() && transit.bytes.len() <= 1200, "{transit:?}");
    }
}

/// Proves: W185
#[test]
fn distrusted_peer_is_refused_with_the_reason() {
    let mut lan = Lan::new([Node::new("A", 1, 1, Some("B")), Node::new("B", 1, 2, None)]);
    lan.meet();
    assert_eq!(lan.nodes[0].refusals, ["B is not trusted"]);
    assert_eq!((lan.nodes[0].layer.associations(), lan.nodes[1].layer.associations()), (0, 0));
    let open = lan.nodes[1].datagram(Kind::Data, None);
    lan.multicast(1, &open);
    lan.run(Duration::from_secs(1), |_, _| false);
    assert!(lan.nodes[0].received.is_empty());
}

/// Proves: W177
#[test]
fn open_mode_is_not_accepted() {
    let mut lan = pair();
    lan.meet();
    let from = lan.nodes[0].address;
    for kind in [Kind::Data, Kind::Control] {
        let open = lan.nodes[0].datagram(kind, None);
        lan.nodes[1].receive(Instant::ZERO, from, Path::Multicast, &open);
    }
    assert!(lan.nodes[1].received.is_empty());
    assert_eq!(lan.nodes[1].layer.counters().discard_open, 2);
}

/// Proves: W171
#[test]
fn new_epoch_has_new_keys() {
    let mut lan = pair();
    lan.meet();
    lan.nodes[0].epoch = Epoch::new(77).unwrap();
    let open = lan.nodes[0].datagram(Kind::Control, None);
    lan.multicast(0, &open);
    let to = lan.nodes[1].address;
    assert_eq!(lan.nodes[0].layer.seal(Some(to), &open), None, "its former keys are not used");
    lan.meet();
    assert_eq!(lan.nodes[1].names, ["A", "A"]);
    let to = lan.nodes[1].address;
    let open = lan.nodes[0].datagram(Kind::Control, None);
    let sealed = lan.nodes[0].layer.seal(Some(to), &open).unwrap();
    let (from, now) = (lan.nodes[0].address, lan.now);
    lan.nodes[1].receive(now, from, Path::Unicast, &sealed);
    let back = lan.nodes[1].datagram(Kind::Control, None);
    let sealed = lan.nodes[1].layer.seal(Some(from), &back).unwrap();
    lan.nodes[0].receive(now, to, Path::Unicast, &sealed);
    assert_eq!((&lan.nodes[1].received[..], &lan.nodes[0].received[..]), (&[open][..], &[back][..]));
}

#[test]
fn silent_peer_is_forgotten_and_found_again() {
    let mut lan = pair();
    lan.meet();
    lan.run(FORGET * 2, |_, _| true);
    assert_eq!(lan.nodes[1].layer.associations(), 0);
    let to = lan.nodes[1].address;
    let open = lan.nodes[0].datagram(Kind::Control, None);
    assert_eq!(lan.nodes[0].layer.seal(Some(to), &open), None);
    assert_eq!(lan.nodes[0].layer.counters().discard_unsent, 1);
    lan.meet();
    assert_eq!(lan.nodes[1].layer.associations(), 1);
}

/// Proves: W181, W183
#[test]
fn cookie_proves_the_addresses_of_both() {
    let mut lan = pair();
    let (now, a, b) = (lan.now, lan.nodes[0].address, lan.nodes[1].address);
    let elsewhere = SocketAddr::from(([10, 0, 0, 9], 9));
    let hello = lan.nodes[0].hello(now);
    let request = lan.nodes[1].answer(now, a, &hello).unwrap();
    let cookie = lan.nodes[0].answer(now, b, &request).unwrap();
    assert!(lan.nodes[0].layer.exchanges.is_empty(), "a REQUEST leaves nothing behind");
    assert_eq!(lan.nodes[1].answer(now, elsewhere, &cookie), None, "it comes from another address");
    let next_request = lan.nodes[1].answer(now, a, &hello).unwrap();
    assert_eq!(lan.nodes[1].answer(now, a, &cookie), None, "it answers another REQUEST");
    let cookie = lan.nodes[0].answer(now, b, &next_request).unwrap();
    let init = lan.nodes[1].answer(now, a, &cookie).unwrap();
    assert_eq!(lan.nodes[0].answer(now, elsewhere, &init), None, "its cookie is of another address");
    assert!(lan.nodes[0].layer.exchanges.is_empty());
    let late = now + Duration::from_secs(120);
    assert_eq!(lan.nodes[0].answer(late, b, &init), None, "its cookie is old");
    assert!(lan.nodes[0].answer(now, b, &init).is_some());
}

/// Proves: W180
#[test]
fn changed_or_multicast_request_is_discarded() {
    let mut lan = pair();
    let (now, a, b) = (lan.now, lan.nodes[0].address, lan.nodes[1].address);
    let hello = lan.nodes[0].hello(now);
    let request = lan.nodes[1].answer(now, a, &hello).unwrap();
    lan.nodes[0].receive(now, b, Path::Multicast, &request);
    for at in 0..request.len() {
        let mut changed = request.to_vec();
        changed[at] ^= 1;
        lan.nodes[0].receive(now, b, Path::Unicast, &changed.into());
    }
    assert!(lan.nodes[0].sent().is_empty(), "each byte is authenticated");
    assert!(lan.nodes[0].answer(now, b, &request).is_some());
}

#[test]
fn key_of_small_order_is_discarded() {
    let mut lan = pair();
    let (now, a, b) = (lan.now, lan.nodes[0].address, lan.nodes[1].address);
    let hello = lan.nodes[1].hello(now);
    let request = lan.nodes[0].answer(now, b, &hello).unwrap();
    let cookie = lan.nodes[1].answer(now, a, &request).unwrap();
    let init = lan.nodes[0].answer(now, b, &cookie).unwrap();
    // A member of the realm replaces the ephemeral key, behind the cookie and the length of the message.
    let layer = &lan.nodes[0].layer;
    let mut datagram = HandshakeDatagram::open(&init, &layer.realm_keys).unwrap();
    datagram.body[COOKIE_BYTES + 2..][..STATIC_KEY_BYTES].fill(0);
    let init = datagram.seal(&layer.own.handshake_key);
    assert_eq!(lan.nodes[1].answer(now, a, &init), None);
    assert_eq!(lan.nodes[1].layer.counters().discard_handshake, 1);
}

/// Proves: W171
#[test]
fn each_handshake_has_new_pairwise_keys() {
    let mut lan = pair();
    lan.meet();
    let (receiver, to) = (lan.nodes[1].epoch, lan.nodes[1].address);
    let open = lan.nodes[0].datagram(Kind::Directed, Some(receiver));
    let mut sealed = BTreeSet::new();
    // The core gives the other up, and numbers what it sends to it from the start when it returns.
    for _ in 0..3 {
        sealed.insert(lan.nodes[0].layer.seal(Some(to), &open).unwrap());
        lan.nodes[0].layer.on_departed(receiver);
        assert_eq!(lan.nodes[0].layer.seal(Some(to), &open), None);
        lan.meet();
    }
    assert_eq!(sealed.len(), 3);
}

/// Proves: W190
#[test]
fn peer_without_room_gets_no_secret() {
    let mut lan = Lan::new((1..=3).map(|number| Node::new(&format!("N{number}"), 1, number, None)));
    lan.nodes[0].layer.settings.peers_max = 1;
    let second = lan.nodes[1].address;
    let is_of_second = |transit: &Transit| transit.from == second || transit.to == second;
    lan.run(Duration::from_secs(1), |_, transit| is_of_second(transit));
    assert_eq!(lan.nodes[0].names, ["N3"]);
    let met = lan.log.len();
    for _ in 0..30 {
        let open = lan.nodes[2].datagram(Kind::Control, None);
        lan.multicast(2, &open);
        lan.run(Duration::from_secs(1), |_, _| false);
    }
    assert_eq!(lan.nodes[0].names, ["N3"], "no eviction of a peer that sends");
    let first = lan.nodes[0].address;
    let to_second = |transit: &&Transit| transit.from == first && transit.to == second && transit.step() != HELLO;
    let steps: BTreeSet<u8> = lan.log[met..].iter().filter(to_second).map(Transit::step).collect();
    assert!(steps.iter().all(|step| *step < 4), "neither FINAL nor KEYS: {steps:?}");
    assert!(0 < lan.nodes[0].layer.counters().limited_handshakes);
    // After some seconds of silence the other one gets its place.
    lan.run(Duration::from_secs(8), |_, _| false);
    assert_eq!((&lan.nodes[0].names[..2], lan.nodes[0].layer.associations()), (&["N3".into(), "N2".into()][..], 1));
    assert!(0 < lan.nodes[0].layer.counters().evicted);
}

/// Proves: W191
#[test]
fn expired_certificate_ends_the_association() {
    let mut lan = pair();
    let valid_until = Some(WallTime::from_nanos(5_000_000_000));
    lan.nodes[0].layer.verifier = Box::new(NameVerifier { valid_until, ..NameVerifier::default() });
    lan.meet();
    lan.run(Duration::from_secs(3), |_, _| false);
    assert!(lan.nodes[0].expired.is_empty() && lan.nodes[0].layer.associations() == 1);
    lan.nodes[0].layer.verifier = Box::new(NameVerifier { distrusted: Some("B"), valid_until, revoked: None });
    lan.run(Duration::from_secs(3), |_, _| false);
    assert_eq!((&lan.nodes[0].expired[..], lan.nodes[0].layer.associations()), (&["B".to_owned()][..], 0));
    let open = lan.nodes[1].datagram(Kind::Control, None);
    lan.multicast(1, &open);
    assert!(lan.nodes[0].received.is_empty());
    assert_eq!(lan.nodes[0].layer.counters().expired, 1);
    lan.run(Duration::from_secs(6), |_, _| false);
    assert_eq!(lan.nodes[0].refusals, ["B is not trusted"], "once in 10 s");
}

/// Proves: W192
#[test]
fn recorded_datagrams_are_too_old_for_new_members() {
    let mut lan = pair();
    let recorded: Vec<Bytes> = [Kind::Data, Kind::Control, Kind::Data]
        .map(|kind| {
            let open = lan.nodes[0].datagram(kind, None);
            lan.multicast(0, &open)
        })
        .into();
    lan.run(Duration::from_secs(4), |_, _| true);
    let recent = lan.nodes[0].datagram(Kind::Data, None);
    let recent_sealed = lan.multicast(0, &recent);
    lan.meet();
    assert_eq!((lan.nodes[1].names.len(), lan.nodes[1].received.len()), (1, 0));
    let (now, from) = (lan.now, lan.nodes[0].address);
    for sealed in &recorded {
        lan.nodes[1].receive(now, from, Path::Multicast, sealed);
    }
    assert!(lan.nodes[1].received.is_empty());
    assert_eq!(lan.nodes[1].layer.counters().discard_replayed, 3);
    lan.nodes[1].receive(now, from, Path::Multicast, &recent_sealed);
    assert_eq!(lan.nodes[1].received, [recent], "it may have been on its way");
    // A member gets older data by unicast, if it asks for it.
    for sealed in &recorded {
        lan.nodes[1].receive(now, from, Path::Unicast, sealed);
    }
    let counters = lan.nodes[1].layer.counters();
    assert_eq!((lan.nodes[1].received.len(), counters.discard_replayed, counters.discard_forged), (3, 3, 1));
}

#[test]
fn replayed_data_keeps_no_association_alive() {
    let mut lan = pair();
    lan.meet();
    let open = lan.nodes[0].datagram(Kind::Data, None);
    let (data, from) = (lan.multicast(0, &open), lan.nodes[0].address);
    let open = lan.nodes[0].datagram(Kind::Control, None);
    let control = lan.multicast(0, &open);
    for second in 0..70 {
        let now = lan.now;
        lan.nodes[1].receive(now, from, Path::Multicast, &data);
        lan.nodes[1].receive(now, from, Path::Multicast, &control);
        assert_eq!(lan.nodes[1].layer.associations(), usize::from(second <= 60), "{second}");
        lan.run(Duration::from_secs(1), |_, _| true);
    }
}

/// Proves: W185
#[test]
fn claimed_epoch_of_another_host_is_refused() {
    let mut lan = pair();
    lan.meet();
    let mut thief = Node::new("C", 1, 3, None);
    thief.begin_epoch(lan.nodes[0].epoch.bits());
    lan.nodes.push(thief);
    lan.run(Duration::from_secs(1), |_, _| false);
    assert!(lan.nodes[1].refusals[0].contains("of another host"), "{:?}", lan.nodes[1].refusals);
    lan.nodes[1].received.clear();
    let open = lan.nodes[0].datagram(Kind::Control, None);
    lan.multicast(0, &open);
    assert_eq!(lan.nodes[1].received, [open], "the association with the owner of the epoch continues");
}

mod rekey;
