//! Known answers of section 18.6 of `docs/wire.md`. `tests/clients/known_answers.py` derives them with other libraries.

use super::cipher::Suite;
use super::handshake_datagram::{HandshakeDatagram, Step};
use super::key_schedule::RealmKeys;
use super::layer::tests::NameVerifier;
use super::noise::static_public;
use super::origin::{OriginContext, OriginSigner};
use super::realm::SigningKey;
use super::secret::{SECRET_BYTES, Secret};
use super::{RealmCredentials, SecurityEffect, SecurityLayer, SecuritySettings};
use crate::message::Epoch;
use crate::proto::effect::{ArrivedDatagram, Path};
use crate::time::{ClockReading, Instant, WallTime};
use crate::wire::{self, Header, Kind};
use bytes::Bytes;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const GROUP: u16 = 7500;

/// The two peers of the vectors.
#[derive(Clone, Copy)]
enum Party {
    Initiator,
    Responder,
}

impl Party {
    fn epoch(self) -> Epoch {
        let bits = match self {
            Party::Initiator => 0x0102_0304_0506_0708,
            Party::Responder => 0x1112_1314_1516_1718,
        };
        Epoch::new(bits).unwrap()
    }

    fn address(self) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, self.first_byte()], 4000))
    }

    /// Returns the first byte of this side's secrets, which otherwise count up.
    fn first_byte(self) -> u8 {
        match self {
            Party::Initiator => 0x20,
            Party::Responder => 0x60,
        }
    }

    fn static_private(self) -> Secret {
        Secret::new(ascending(self.first_byte() - 0x10))
    }

    fn certificate(self) -> Vec<u8> {
        let name = match self {
            Party::Initiator => "A.test",
            Party::Responder => "B.test",
        };
        [&static_public(&self.static_private())[..], name.as_bytes()].concat()
    }

    fn suite(self) -> Suite {
        match self {
            Party::Initiator => Suite::Aes256Gcm,
            Party::Responder => Suite::ChaCha20Poly1305,
        }
    }

    /// Returns the secret that this side draws second.
    fn group_secret(self) -> Secret {
        Secret::new(ascending(self.first_byte() + 1))
    }

    /// Returns the random bytes from which this side derives its ephemeral key.
    fn ephemeral_seed(self) -> Secret {
        Secret::new(ascending(self.first_byte() + 4))
    }

    /// Returns the secret that this side draws after the ephemeral key and the nonce of a datagram.
    fn pairwise_secret(self) -> Secret {
        Secret::new(ascending(self.ephemeral_seed().bytes()[0] + 2))
    }

    /// Draws the cookie secret, the group secret, and then what the handshake needs.
    fn layer(self) -> SecurityLayer {
        let mut next = self.first_byte();
        let secrets = Box::new(move |bytes: &mut [u8]| {
            bytes.iter_mut().zip(next..).for_each(|(byte, value)| *byte = value);
            next += 1;
        });
        let credentials = RealmCredentials {
            realm_secret: Secret::new(ascending(0)),
            static_private: self.static_private(),
            certificate: self.certificate().into(),
            suite: self.suite(),
            revision: 0,
            signing_key: None,
        };
        let (address, forget) = (self.address(), Duration::from_secs(60));
        let settings = SecuritySettings {
            group: GROUP,
            address,
            peers_max: 10,
            forget,
            logs_keys: false,
            holds_until_verified: false,
        };
        let verifier = Box::new(NameVerifier::default());
        SecurityLayer::new(settings, credentials, verifier, secrets, self.epoch(), Instant::ZERO)
    }
}

fn ascending(first: u8) -> [u8; SECRET_BYTES] {
    std::array::from_fn(|at| first + at as u8)
}

/// Returns a datagram of open mode with five bytes of padding.
fn datagram(side: Party, kind: Kind, receiver: Option<Epoch>) -> Bytes {
    let header = Header { kind, group: GROUP, epoch: side.epoch(), number: 9, count: 45, uptime_ms: 1500, receiver };
    wire::with_check_value(&wire::padding(&header, &[1, 2, 3, 4, 5]))
}

/// The vectors, a line each.
#[derive(Default)]
struct KnownAnswers(String);

impl KnownAnswers {
    fn add(&mut self, name: &str, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut lines = hex.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap());
        writeln!(self.0, "{name} {}", lines.next().unwrap_or_default()).unwrap();
        lines.for_each(|line| writeln!(self.0, "  {line}").unwrap());
    }

    fn add_derived(&mut self, name: &str, secret: &Secret, info: &[u8], bytes: usize) {
        let mut out = vec![0; bytes];
        secret.expand(info, &mut out);
        self.add(name, &out);
    }

    fn add_keys(&mut self, side: Party, receiver: Party) {
        let (group_secret, pairwise_secret) = (side.group_secret(), side.pairwise_secret());
        let (group, epoch) = (GROUP.to_be_bytes(), side.epoch().bits().to_be_bytes());
        let sender = [&[0, side.suite().mode(), 0][..], &group, &epoch].concat();
        let receiver = receiver.epoch().bits().to_be_bytes();
        self.add_derived("data-key", &group_secret, &[b"seqcast 1 data", &sender[..]].concat(), 36);
        self.add_derived("control-key", &group_secret, &[b"seqcast 1 control", &sender[..]].concat(), 36);
        let info = [b"seqcast 1 directed", &sender[..], &receiver].concat();
        self.add_derived("directed-key", &pairwise_secret, &info, 36);
        let info = [b"seqcast 1 pairwise control", &sender[..], &receiver].concat();
        self.add_derived("pairwise-control-key", &pairwise_secret, &info, 36);
    }
}

/// Runs the handshake, adds its datagrams, and returns both layers.
fn handshake(answers: &mut KnownAnswers) -> [SecurityLayer; 2] {
    let mut layers = [Party::Initiator.layer(), Party::Responder.layer()];
    let now = ClockReading { instant: Instant::ZERO + Duration::from_secs(2), wall: WallTime::from_nanos(0) };
    let (initiator, responder) = (Party::Initiator.address(), Party::Responder.address());
    for (layer, side) in layers.iter_mut().zip([Party::Initiator, Party::Responder]) {
        for kind in [Kind::Data, Kind::Control] {
            layer.seal(None, &datagram(side, kind, None)).expect("it has the keys of the group");
        }
        layer.tick(ClockReading { instant: Instant::ZERO, ..now });
    }
    // The initiator has the HELLO of the responder first.
    layers[0].poll_effect().expect("its own HELLO");
    let steps = ["hello", "request", "cookie", "init", "response", "final", "keys"];
    for (number, step) in steps.into_iter().enumerate() {
        let (sender, from) = if number % 2 == 0 { (1, responder) } else { (0, initiator) };
        let mut sent = std::iter::from_fn(|| layers[sender].poll_effect());
        let sent = sent.find_map(|effect| match effect {
            SecurityEffect::Multicast { bytes } => Some((Path::Multicast, bytes)),
            SecurityEffect::Send { bytes, .. } => Some((Path::Unicast, bytes)),
            _ => None,
        });
        let (path, bytes) = sent.expect("the next step");
        answers.add(step, &bytes);
        layers[1 - sender].receive(now, ArrivedDatagram { from, path, bytes, arrived: now.instant });
    }
    layers
}

/// Adds the SIGNATURE of the initiator over its `open-data`.
fn add_signature(answers: &mut KnownAnswers, realm_secret: &Secret) {
    let seed = ascending(0x40);
    let key = Arc::new(SigningKey::from_seed(&seed));
    answers.add("signing-seed", &seed);
    answers.add("signing-key", key.public());
    let (group, epoch) = (GROUP, Party::Initiator.epoch());
    let mut signer = OriginSigner::new(key, OriginContext { group, epoch });
    assert_eq!(signer.on_sent(9, None, &datagram(Party::Initiator, Kind::Data, None)), None);
    let body = signer.on_tick(Instant::ZERO).expect("the first one is signed at once");
    let nonce = std::array::from_fn(|at| 0x30 + at as u8);
    let datagram = HandshakeDatagram { step: Step::Signature, group, epoch, receiver: None, nonce, body };
    answers.add("signature", &datagram.seal(&RealmKeys::new(realm_secret).handshake(group, epoch)));
}

#[test]
fn documented_known_answers_are_those_of_this_version() {
    let mut answers = KnownAnswers::default();
    let realm_secret = Secret::new(ascending(0));
    answers.add("realm-secret", realm_secret.bytes());
    answers.add_derived("psk", &realm_secret, b"seqcast 1 psk", 32);
    for side in [Party::Initiator, Party::Responder] {
        answers.add("mode", &[side.suite().mode()]);
        answers.add("group", &GROUP.to_be_bytes());
        answers.add("epoch", &side.epoch().bits().to_be_bytes());
        answers.add("static-private", side.static_private().bytes());
        answers.add("certificate", &side.certificate());
        answers.add("group-secret", side.group_secret().bytes());
        answers.add("pairwise-secret", side.pairwise_secret().bytes());
        answers.add("next-numbers", &[[0, 0, 0, 0, 0, 0, 0, 10]; 2].concat());
        answers.add("origin", &[0]);
        answers.add_derived("ephemeral-private", &side.ephemeral_seed(), b"ephemeral", 32);
        let info = [b"seqcast 1 handshake\0", &GROUP.to_be_bytes()[..], &side.epoch().bits().to_be_bytes()].concat();
        answers.add_derived("handshake-key", &realm_secret, &info, 36);
        let receiver = if matches!(side, Party::Initiator) { Party::Responder } else { Party::Initiator };
        answers.add_keys(side, receiver);
    }
    let mut layers = handshake(&mut answers);
    for (side, receiver) in [(Party::Initiator, Party::Responder), (Party::Responder, Party::Initiator)] {
        let layer = &mut layers[usize::from(matches!(side, Party::Responder))];
        let (epoch, address) = (receiver.epoch(), receiver.address());
        for (name, kind, to) in [
            ("data", Kind::Data, None),
            ("control", Kind::Control, None),
            ("directed", Kind::Directed, Some(address)),
            ("pairwise-control", Kind::Control, Some(address)),
        ] {
            let open = datagram(side, kind, (kind == Kind::Directed).then_some(epoch));
            answers.add(&format!("open-{name}"), &open);
            answers.add(&format!("sealed-{name}"), &layer.seal(to, &open).unwrap());
        }
    }
    add_signature(&mut answers, &realm_secret);
    let page = include_str!("../../docs/wire.md");
    let documented = page.split("```known-answers\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(documented, Some(&answers.0[..]), "the vectors of docs/wire.md, section 18.6:\n{}", answers.0);
}
