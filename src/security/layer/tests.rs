//! Security layers that exchange datagrams, with strangers and replays.

use super::*;
use crate::rng::Rng;
use crate::security::handshake_datagram::{COOKIE_BYTES, HandshakeDatagram};
use crate::wire::{self, Header};
use std::collections::BTreeSet;

const GROUP: u16 = 7500;
const FORGET: Duration = Duration::from_secs(60);

/// Trusts certificates that consist of the static key and a name.
pub(in crate::security) struct NameVerifier {
    pub(in crate::security) distrusted: Option<&'static str>,
}

impl CertificateVerifier for NameVerifier {
    fn verify(
        &mut self,
        certificate: &[u8],
        static_key: &[u8; STATIC_KEY_BYTES],
        _now: WallTime,
    ) -> Result<PeerName, String> {
        let (key, name) = certificate.split_first_chunk::<STATIC_KEY_BYTES>().ok_or("it is too short")?;
        if key != static_key {
            return Err("the certificate is of another key".to_owned());
        }
        let name = std::str::from_utf8(name).map_err(|error| error.to_string())?;
        if self.distrusted == Some(name) {
            return Err(format!("{name} is not trusted"));
        }
        name.parse().map_err(|_| "it has no name".to_owned())
    }
}

/// A datagram under way.
#[derive(Clone, Debug)]
struct Transit {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Bytes,
}

/// A peer, reduced to its security layer.
struct Node {
    layer: SecurityLayer,
    epoch: Epoch,
    address: SocketAddr,
    number: u64,
    /// Datagrams that the core would receive.
    received: Vec<Bytes>,
    names: Vec<String>,
    refusals: Vec<String>,
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
        };
        let mut rng = Rng::new(number);
        let secrets = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| rng.next_u32() as u8));
        let epoch = Epoch::new(number).unwrap();
        let settings = SecuritySettings { group: GROUP, peers_max: 100, forget: FORGET };
        let verifier = Box::new(NameVerifier { distrusted });
        Node {
            layer: SecurityLayer::new(settings, credentials, verifier, secrets, epoch, Instant::ZERO),
            epoch,
            address: SocketAddr::from(([10, 0, 0, u8::try_from(number).unwrap()], 4000)),
            number: 0,
            received: Vec::new(),
            names: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Returns the next datagram of open mode of this peer.
    fn datagram(&mut self, kind: Kind, receiver: Option<Epoch>) -> Bytes {
        self.number += 1;
        let header =
            Header { kind, group: GROUP, epoch: self.epoch, number: self.number, count: 0, uptime_ms: 7, receiver };
        // The padding makes it larger than the first datagram of a handshake.
        wire::padding(&header, &[7; 60])
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, path: Path, bytes: &Bytes) {
        let now = ClockReading { instant: now, wall: WallTime::from_nanos(0) };
        let opened = self.layer.receive(now, from, path, bytes.clone());
        self.received.extend(opened);
    }

    /// Takes the effects of the layer, and returns what is to be sent.
    fn sent(&mut self) -> Vec<Transit> {
        let mut sent = Vec::new();
        while let Some(effect) = self.layer.poll_effect() {
            match effect {
                SecurityEffect::Send { to, bytes } => sent.push(Transit { from: self.address, to, bytes }),
                SecurityEffect::Receive { bytes, .. } => self.received.push(bytes),
                SecurityEffect::Authenticated { name, .. } => self.names.push(name.to_string()),
                SecurityEffect::Refused { reason, .. } => self.refusals.push(reason),
            }
        }
        sent
    }
}

/// Peers and the unicasts between them.
struct Lan {
    nodes: Vec<Node>,
    now: Instant,
    /// Every unicast so far.
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

    /// Delivers unicasts, except those that `is_lost` names by their position in the log, until none is left; then lets
    /// a time pass and starts again.
    fn run(&mut self, time: Duration, mut is_lost: impl FnMut(usize) -> bool) {
        let end = self.now + time;
        loop {
            loop {
                let sent: Vec<Transit> = self.nodes.iter_mut().flat_map(Node::sent).collect();
                if sent.is_empty() {
                    break;
                }
                for transit in sent {
                    self.log.push(transit.clone());
                    if is_lost(self.log.len() - 1) {
                        continue;
                    }
                    let now = self.now;
                    let receiver = self.nodes.iter_mut().find(|node| node.address == transit.to);
                    if let Some(receiver) = receiver {
                        receiver.receive(now, transit.from, Path::Unicast, &transit.bytes);
                    }
                }
            }
            let due = self.nodes.iter().map(|node| node.layer.deadline()).min().unwrap();
            if end < due {
                break;
            }
            self.now = self.now.max(due);
            let now = self.now;
            self.nodes.iter_mut().for_each(|node| node.layer.tick(now));
        }
        self.now = end;
    }

    /// Lets every node multicast an announcement, and the handshakes end.
    fn meet(&mut self) {
        for node in 0..self.nodes.len() {
            let open = self.nodes[node].datagram(Kind::Control, None);
            self.multicast(node, &open);
        }
        self.run(Duration::from_secs(1), |_| false);
        self.nodes.iter_mut().for_each(|node| node.received.clear());
    }
}

fn pair() -> Lan {
    Lan::new([Node::new("A", 1, 1, None), Node::new("B", 1, 2, None)])
}

/// Proves: W178
#[test]
fn first_datagram_waits_for_the_handshake() {
    let mut lan = pair();
    let open: Vec<Bytes> = (0..3).map(|_| lan.nodes[0].datagram(Kind::Data, None)).collect();
    open.iter().for_each(|open| drop(lan.multicast(0, open)));
    assert!(lan.nodes[1].received.is_empty());
    lan.run(Duration::from_millis(1), |_| false);
    assert_eq!(lan.nodes[1].received, open, "in open mode, in order");
    assert_eq!((&lan.nodes[0].names[..], &lan.nodes[1].names[..]), (&["B".to_owned()][..], &["A".to_owned()][..]));
    // The handshake has given both sides the keys of the other.
    let answer = lan.nodes[1].datagram(Kind::Control, None);
    lan.multicast(1, &answer);
    assert_eq!(lan.nodes[0].received, [answer]);
    assert_eq!(lan.log.len(), 6, "six datagrams for both directions");
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
    for lost in 0..6 {
        for times in 1..=3 {
            let mut lan = pair();
            let open = lan.nodes[0].datagram(Kind::Data, None);
            lan.multicast(0, &open);
            lan.run(Duration::from_secs(1), |at| (lost..lost + times).contains(&at));
            assert_eq!(lan.nodes[0].names, ["B"], "{times} from {lost} on");
            assert_eq!(lan.nodes[1].names, ["A"], "{times} from {lost} on");
            if times == 1 {
                assert_eq!(lan.nodes[1].received, [open], "{lost}");
            }
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
            for _ in 0..8 {
                for node in 0..6 {
                    let open = lan.nodes[node].datagram(Kind::Control, None);
                    lan.multicast(node, &open);
                }
                lan.run(Duration::from_secs(1), |_| rng.chance(loss));
            }
            for node in &lan.nodes {
                assert_eq!(node.layer.associations(), 5, "loss {loss}, run {seed}");
                let names: BTreeSet<&String> = node.names.iter().collect();
                assert_eq!(names.len(), 5);
                assert!(node.refusals.is_empty());
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
    assert_eq!((counters.discard_replayed, counters.discard_source), (4, 2));
    // Another handshake with the same epoch does not forget what was accepted.
    lan.nodes[0].layer.associations.clear();
    let open = lan.nodes[1].datagram(Kind::Control, None);
    lan.multicast(1, &open);
    lan.run(Duration::from_secs(1), |_| false);
    assert_eq!(lan.nodes[1].names, ["A", "A"]);
    lan.nodes[1].receive(now, from, Path::Multicast, &sealed);
    assert!(lan.nodes[1].received.is_empty());
    // Data is left to the ledger of the core.
    let open = lan.nodes[0].datagram(Kind::Data, None);
    let sealed = lan.multicast(0, &open);
    lan.nodes[1].receive(now, from, Path::Multicast, &sealed);
    assert_eq!(lan.nodes[1].received, [open.clone(), open]);
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

/// Proves: W180, W182
#[test]
fn stranger_gets_no_answer_larger_than_its_datagram() {
    let mut lan = Lan::new([Node::new("A", 1, 1, None), Node::new("B", 1, 2, None), Node::new("C", 9, 3, None)]);
    // C has another realm secret.
    lan.meet();
    assert_eq!((&lan.nodes[0].names[..], &lan.nodes[2].names[..]), (&["B".to_owned()][..], &[][..]));
    let stranger = lan.nodes[2].address;
    let open = lan.nodes[2].datagram(Kind::Data, None);
    let bytes = lan.multicast(2, &open).len();
    let answers: Vec<usize> = lan.nodes.iter_mut().flat_map(Node::sent).map(|sent| sent.bytes.len()).collect();
    assert!(answers.iter().all(|answer| *answer <= bytes), "{answers:?} for {bytes}");
    // A smaller datagram gets no answer.
    let now = lan.now + FORGET;
    let small = bytes::Bytes::copy_from_slice(&lan.multicast(2, &open)[..60]);
    lan.nodes.iter_mut().for_each(|node| node.layer.tick(now));
    lan.nodes[0].sent();
    lan.nodes[0].layer.exchanges.clear();
    lan.nodes[0].receive(now, stranger, Path::Multicast, &small);
    assert!(lan.nodes[0].sent().is_empty());
    // Its handshake datagrams are answered by nobody, and those of members by none larger before the COOKIE.
    for transit in &lan.log {
        let step = transit.bytes[5];
        assert!(step == 0 || transit.from != stranger && transit.to != stranger, "{transit:?}");
        assert!(2 <= step || transit.bytes.len() == 80, "{}", transit.bytes.len());
        assert!(transit.bytes.len() <= 1200);
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
    lan.run(Duration::from_secs(1), |_| false);
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
    lan.run(FORGET * 2, |_| false);
    assert_eq!(lan.nodes[1].layer.associations(), 0);
    let to = lan.nodes[1].address;
    let open = lan.nodes[0].datagram(Kind::Control, None);
    assert_eq!(lan.nodes[0].layer.seal(Some(to), &open), None);
    assert_eq!(lan.nodes[0].layer.counters().discard_unsent, 1);
    lan.meet();
    assert_eq!(lan.nodes[1].layer.associations(), 1);
}

/// Proves: W179
#[test]
fn flood_of_unknown_epochs_is_limited() {
    let mut lan = pair();
    let mut rng = Rng::new(5);
    let mut datagram = lan.nodes[0].datagram(Kind::Data, None).to_vec();
    datagram[3] = 1;
    let (mut bytes_in, mut bytes_out) = (0, 0);
    for number in 0..100_000u32 {
        datagram[8..16].copy_from_slice(&(rng.next_u64() | 1).to_be_bytes());
        let from = SocketAddr::from((number.to_be_bytes(), 9));
        lan.nodes[1].receive(Instant::ZERO, from, Path::Multicast, &Bytes::copy_from_slice(&datagram));
        bytes_in += datagram.len();
        bytes_out += lan.nodes[1].sent().iter().map(|sent| sent.bytes.len()).sum::<usize>();
    }
    let layer = &lan.nodes[1].layer;
    assert_eq!(layer.exchanges.len(), 500);
    assert!(bytes_out <= bytes_in && bytes_out <= 500 * 80, "{bytes_out} of {bytes_in}");
    assert_eq!(layer.counters().limited_handshakes, 99_500);
    assert!(0 < layer.counters().discard_unauthenticated, "no more than 4 MiB wait");
}

/// Proves: W181, W183
#[test]
fn cookie_proves_the_addresses_of_both() {
    let mut lan = pair();
    let open = lan.nodes[0].datagram(Kind::Data, None);
    lan.multicast(0, &open);
    let (a, b, elsewhere) = (lan.nodes[0].address, lan.nodes[1].address, SocketAddr::from(([10, 0, 0, 9], 9)));
    let now = lan.now;
    let send = |lan: &mut Lan, node: usize, from, bytes: &Bytes| {
        lan.nodes[node].receive(now, from, Path::Unicast, bytes);
        lan.nodes[node].sent()
    };
    let request = lan.nodes[1].sent().remove(0).bytes;
    let foreign_cookie = send(&mut lan, 0, elsewhere, &request).remove(0);
    assert_eq!(foreign_cookie.to, elsewhere);
    assert!(lan.nodes[0].layer.exchanges.is_empty(), "a REQUEST leaves nothing behind");
    let cookie = send(&mut lan, 0, b, &request).remove(0).bytes;
    assert!(send(&mut lan, 1, elsewhere, &cookie).is_empty(), "it comes from another address");
    let mut other = pair();
    other.nodes[1].layer.secrets = Box::new(|bytes| bytes.fill(9));
    other.nodes[1].layer.on_unknown_epoch(now, lan.nodes[0].epoch, deferred(a, &open));
    let other_request = other.nodes[1].sent().remove(0).bytes;
    let other_cookie = send(&mut lan, 0, b, &other_request).remove(0).bytes;
    assert!(send(&mut lan, 1, a, &other_cookie).is_empty(), "it answers another REQUEST");
    let init = send(&mut lan, 1, a, &cookie).remove(0).bytes;
    assert!(send(&mut lan, 0, elsewhere, &init).is_empty(), "its cookie is of another address");
    assert!(lan.nodes[0].layer.exchanges.is_empty());
    assert_eq!(send(&mut lan, 0, b, &init).len(), 1);
    let late = ClockReading { instant: now + Duration::from_secs(120), wall: WallTime::from_nanos(0) };
    lan.nodes[0].layer.exchanges.clear();
    lan.nodes[0].layer.receive(late, b, Path::Unicast, init);
    assert!(lan.nodes[0].sent().is_empty(), "its cookie is old");
}

/// Proves: W180
#[test]
fn handshake_through_the_group_is_discarded() {
    let mut lan = pair();
    let open = lan.nodes[0].datagram(Kind::Data, None);
    lan.multicast(0, &open);
    let request = lan.nodes[1].sent().remove(0);
    let now = lan.now;
    lan.nodes[0].receive(now, request.from, Path::Multicast, &request.bytes);
    assert!(lan.nodes[0].sent().is_empty());
    for at in 0..request.bytes.len() {
        let mut changed = request.bytes.to_vec();
        changed[at] ^= 1;
        lan.nodes[0].receive(now, request.from, Path::Unicast, &changed.into());
    }
    // Some of them look like data of an unknown epoch.
    let steps: Vec<u8> = lan.nodes[0].sent().iter().map(|sent| sent.bytes[5]).collect();
    assert!(steps.iter().all(|step| *step == 0), "each byte is authenticated: {steps:?}");
    lan.nodes[0].receive(now, request.from, Path::Unicast, &request.bytes);
    assert_eq!(lan.nodes[0].sent().len(), 1);
}

fn deferred(from: SocketAddr, bytes: &Bytes) -> DeferredDatagram {
    DeferredDatagram { from, path: Path::Multicast, bytes: bytes.clone() }
}

#[test]
fn key_of_small_order_is_discarded() {
    let mut lan = pair();
    let open = lan.nodes[1].datagram(Kind::Data, None);
    lan.multicast(1, &open);
    let now = lan.now;
    let (a, b) = (lan.nodes[0].address, lan.nodes[1].address);
    let request = lan.nodes[0].sent().remove(0).bytes;
    lan.nodes[1].receive(now, a, Path::Unicast, &request);
    let cookie = lan.nodes[1].sent().remove(0).bytes;
    lan.nodes[0].receive(now, b, Path::Unicast, &cookie);
    let init = lan.nodes[0].sent().remove(0).bytes;
    // A member of the realm replaces the ephemeral key, behind the cookie and the length of the message.
    let key = &lan.nodes[0].layer.realm_keys.handshake;
    let mut datagram = HandshakeDatagram::open(&init, key).unwrap();
    datagram.body[COOKIE_BYTES + 2..][..STATIC_KEY_BYTES].fill(0);
    let init = datagram.seal(key);
    lan.nodes[1].receive(now, a, Path::Unicast, &init);
    assert!(lan.nodes[1].sent().is_empty());
    assert_eq!(lan.nodes[1].layer.counters().discard_handshake, 1);
}

#[test]
fn claimed_epoch_of_another_host_is_refused() {
    let mut lan = pair();
    lan.meet();
    let a = lan.nodes[0].epoch;
    let mut thief = Node::new("C", 1, 3, None);
    thief.epoch = a;
    let SecurityLayer { settings, credentials, secrets, .. } = &mut thief.layer;
    thief.layer.own = own_keys(settings, credentials.suite, secrets, a);
    lan.nodes.push(thief);
    let open = lan.nodes[1].datagram(Kind::Control, None);
    lan.multicast(1, &open);
    lan.run(Duration::from_secs(1), |_| false);
    assert!(lan.nodes[1].refusals[0].contains("of another host"), "{:?}", lan.nodes[1].refusals);
    lan.nodes[1].received.clear();
    let open = lan.nodes[0].datagram(Kind::Control, None);
    lan.multicast(0, &open);
    assert_eq!(lan.nodes[1].received, [open], "the association with the owner of the epoch continues");
}
