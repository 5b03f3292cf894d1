//! A signer and a verifier, with lost, repeated and forged SIGNATUREs and datagrams.

use super::*;
use crate::message::Epoch;
use crate::security::origin::{HASH_BYTES, HASHES_MAX, OriginSigner};
use crate::security::realm::{SIGNATURE_BYTES, SigningKey};
use crate::wire::{self, Header, Kind};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;

fn context() -> OriginContext {
    OriginContext { group: 7500, epoch: Epoch::new(5).unwrap() }
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn key() -> Arc<SigningKey> {
    Arc::new(SigningKey::from_seed(&[7; 32]))
}

/// Returns a datagram of open mode.
fn datagram(number: u64, text: &str) -> Bytes {
    let OriginContext { group, epoch } = context();
    let header = Header { kind: Kind::Data, group, epoch, number, count: 0, uptime_ms: 7, receiver: None };
    wire::padding(&header, text.as_bytes())
}

struct Pair {
    signer: OriginSigner,
    verifier: OriginVerifier,
}

impl Pair {
    fn new() -> Pair {
        let verifier = OriginVerifier::new(*key().public(), context(), at(0));
        Pair { signer: OriginSigner::new(key(), context()), verifier }
    }

    /// Sends datagrams with these numbers, and returns the SIGNATUREs of full batches.
    fn send(&mut self, numbers: impl IntoIterator<Item = u64>) -> Vec<Vec<u8>> {
        numbers
            .into_iter()
            .filter_map(|number| self.signer.on_sent(number, None, &datagram(number, "genuine")))
            .collect()
    }

    fn receive(&mut self, millis: u64, number: u64, text: &str) -> OriginVerdict {
        let (verdict, displaced) =
            self.verifier.on_datagram(at(millis), number, OriginHash::of(&datagram(number, text)));
        assert_eq!(displaced, 0);
        verdict
    }

    /// Passes a SIGNATURE on, and returns the numbers of verified and forged datagrams.
    fn sign(&mut self, millis: u64, body: &[u8]) -> [u64; 2] {
        match self.verifier.on_signature(at(millis), body) {
            SignatureOutcome::Valid { counts, .. } => [counts.verified, counts.forged],
            outcome => panic!("{outcome:?}"),
        }
    }
}

/// Returns the number of the first datagram in a SIGNATURE, and the number of hashes.
fn range(body: &[u8]) -> (u64, usize) {
    let body = SignatureBody::decode(body).unwrap();
    (body.first, body.hashes.len())
}

/// Proves: W197
#[test]
fn signatures_follow_in_intervals_and_full_batches() {
    let mut pair = Pair::new();
    assert_eq!((pair.signer.deadline(), pair.signer.on_tick(at(1000))), (None, None));
    assert_eq!(pair.send(1..=3), [[0; 0]; 0]);
    assert_eq!(pair.signer.deadline(), Some(Instant::ZERO), "the first one after a pause is signed at once");
    assert_eq!(range(&pair.signer.on_tick(at(1000)).unwrap()), (1, 3));
    pair.send(4..=4);
    assert_eq!((pair.signer.deadline(), pair.signer.on_tick(at(1019))), (Some(at(1020)), None));
    assert_eq!(range(&pair.signer.on_tick(at(1020)).unwrap()), (1, 4), "with the batch before");
    let full = pair.send(5..=200);
    assert_eq!(full.iter().map(|body| range(body)).collect::<Vec<_>>(), [(4, 65), (5, 128), (69, 128)]);
    assert_eq!(full[1].len(), 8 + 1024 + 64);
    assert_eq!(pair.signer.on_tick(at(1025)), None, "the clock was not read since");
    assert_eq!(pair.signer.deadline(), Some(at(1045)));
    assert_eq!(range(&pair.signer.on_tick(at(1045)).unwrap()), (133, 68));
}

/// Proves: W198
#[test]
fn last_signature_of_a_burst_is_repeated_once() {
    let mut pair = Pair::new();
    pair.send(1..=3);
    let body = pair.signer.on_tick(at(1000)).unwrap();
    assert_eq!((pair.signer.on_tick(at(1010)), pair.signer.deadline()), (None, Some(at(1020))));
    assert_eq!(pair.signer.on_tick(at(1020)), Some(body));
    assert_eq!((pair.signer.on_tick(at(1040)), pair.signer.deadline()), (None, None));
}

#[test]
fn resent_and_skipped_numbers_leave_no_holes() {
    let mut pair = Pair::new();
    pair.send([7, 8]);
    assert_eq!(pair.send([7, 3]), [[0; 0]; 0], "they are signed already, or of before");
    let jump = pair.send([20]);
    assert_eq!(jump.iter().map(|body| range(body)).collect::<Vec<_>>(), [(7, 2)]);
    assert_eq!(range(&pair.signer.on_tick(at(1000)).unwrap()), (20, 1), "without the batch before");
    for number in [7, 8, 20] {
        pair.receive(1000, number, "genuine");
    }
    assert_eq!(pair.sign(1000, &jump[0]), [2, 0]);
}

/// Proves: W202
#[test]
fn forgotten_datagrams_sent_again_share_a_signature() {
    let mut pair = Pair::new();
    pair.send(1..=5000);
    pair.send((1..=100).chain(200..=210));
    let covered = [at(1000), at(1005)].map(|now| range(&pair.signer.sign_resent(now).unwrap().body));
    assert_eq!(covered, [(1, 100), (200, 11)]);
    assert_eq!(pair.signer.sign_resent(at(1010)), None);
}

/// Proves: W202
#[test]
fn resent_datagram_brings_its_signature_again() {
    let mut pair = Pair::new();
    let bodies = pair.send(1..=6400);
    pair.sign(0, bodies.last().unwrap());
    assert!(pair.signer.sign_resent(at(500)).is_none());
    let address: SocketAddr = "10.0.0.2:4000".parse().unwrap();
    for (number, to) in [(3000, None), (3000, Some(address)), (3127, None), (3128, None), (5, Some(address))] {
        assert_eq!(pair.signer.on_sent(number, to, &datagram(number, "genuine")), None);
    }
    // Old hashes are forgotten, so this SIGNATURE covers only what is sent again.
    let expected = [
        (500, (5, 1), vec![Some(address)]),
        (505, (3000, 128), vec![None, Some(address)]),
        (510, (3128, 128), vec![None]),
    ];
    let old = pair.receive(500, 5, "genuine");
    for (millis, numbers, receivers) in expected {
        assert!(pair.signer.deadline().unwrap() <= at(millis));
        assert!(millis == 500 || pair.signer.sign_resent(at(millis - 1)).is_none());
        let signature = pair.signer.sign_resent(at(millis)).unwrap();
        assert_eq!((range(&signature.body), signature.receivers), (numbers, receivers.into_iter().collect()));
        if millis == 500 {
            assert_eq!((old, pair.sign(500, &signature.body)), (OriginVerdict::Pending, [1, 0]));
        }
        let outcome = pair.verifier.on_signature(at(millis), &signature.body);
        assert_eq!(outcome, SignatureOutcome::Old, "nothing waits for it");
    }
    assert!(pair.signer.sign_resent(at(9000)).is_none());
}

/// Proves: W198
#[test]
fn single_lost_signature_does_no_harm() {
    let mut pair = Pair::new();
    let mut bodies = pair.send(1..=192);
    (1..=192).for_each(|number| assert_eq!(pair.receive(5, number, "genuine"), OriginVerdict::Pending));
    assert_eq!(pair.sign(6, &bodies.remove(0)), [64, 0]);
    assert_eq!(pair.sign(6, &bodies.remove(1)), [128, 0]);
    assert_eq!(pair.receive(7, 64, "genuine"), OriginVerdict::Verified, "resent");
    let mut pair = Pair::new();
    let bodies = pair.send(1..=192);
    (1..=192).for_each(|number| assert_eq!(pair.receive(5, number, "genuine"), OriginVerdict::Pending));
    assert_eq!(pair.sign(6, &bodies[2]), [128, 0], "two were lost");
    assert_eq!(pair.verifier.expire(at(105)), 64);
    assert_eq!(pair.receive(106, 64, "genuine"), OriginVerdict::Pending);
    assert_eq!(pair.sign(107, &bodies[0]), [1, 0], "it comes late");
}

/// Proves: W199
#[test]
fn forged_datagram_is_found_before_and_after_signature() {
    let mut pair = Pair::new();
    let signed = |pair: &mut Pair, number, millis| {
        pair.send([number]);
        pair.signer.on_tick(at(millis)).unwrap()
    };
    // It comes first, or second, or after the signature.
    assert_eq!(pair.receive(100, 1, "forged"), OriginVerdict::Pending);
    assert_eq!(pair.receive(101, 1, "genuine"), OriginVerdict::Pending);
    let body = signed(&mut pair, 1, 102);
    assert_eq!(pair.sign(102, &body), [1, 1]);
    assert_eq!(pair.receive(103, 1, "forged"), OriginVerdict::Forged);
    assert_eq!(pair.receive(103, 1, "genuine"), OriginVerdict::Verified);
    // The publisher was idle at the time.
    assert_eq!(pair.receive(200, 2, "forged"), OriginVerdict::Pending);
    assert_eq!([pair.verifier.expire(at(299)), pair.verifier.expire(at(300))], [0, 1]);
    assert!(!pair.verifier.is_waiting());
    let body = signed(&mut pair, 2, 9000);
    let outcome = pair.verifier.on_signature(at(9000), &body);
    let counts = OriginCounts { forged: 1, forged_number: Some(2), ..OriginCounts::default() };
    assert_eq!(outcome, SignatureOutcome::Valid { numbers: 1..=2, counts }, "it is counted as unverified already");
}

#[test]
fn forged_signature_says_nothing() {
    let mut pair = Pair::new();
    pair.send([1]);
    let body = pair.signer.on_tick(at(0)).unwrap();
    pair.receive(0, 1, "genuine");
    let other = OriginContext { epoch: Epoch::new(6).unwrap(), ..context() };
    for context in [other, OriginContext { group: 7501, ..context() }] {
        let mut signer = OriginSigner::new(key(), context);
        signer.on_sent(1, None, &datagram(1, "genuine"));
        let replayed = signer.on_tick(at(0)).unwrap();
        assert_eq!(pair.verifier.on_signature(at(0), &replayed), SignatureOutcome::Discarded, "{context:?}");
    }
    for byte in 0..body.len() {
        let mut changed = body.clone();
        changed[byte] ^= 1;
        pair.verifier.ungranted = BATCH_MAX;
        assert_eq!(pair.verifier.on_signature(at(0), &changed), SignatureOutcome::Discarded, "byte {byte}");
        let outcome = pair.verifier.on_signature(at(0), &body[..byte]);
        assert_eq!(outcome, SignatureOutcome::Discarded, "{byte} bytes");
    }
    let long = [&[0; 8][..], &[0; HASH_BYTES * (HASHES_MAX + 1)], &[0; SIGNATURE_BYTES]].concat();
    assert_eq!(SignatureBody::decode(&long), None);
    let overflow = [&[0xff; 8][..], &[0; HASH_BYTES * 2], &[0; SIGNATURE_BYTES]].concat();
    assert_eq!(SignatureBody::decode(&overflow), None);
    assert_eq!(pair.sign(1, &body), [1, 0]);
}

/// Proves: W200
#[test]
fn replayed_and_excess_signatures_are_not_verified() {
    let mut pair = Pair::new();
    pair.send([1]);
    let body = pair.signer.on_tick(at(0)).unwrap();
    pair.sign(0, &body);
    let level = pair.verifier.verifications.clone();
    assert_eq!(pair.verifier.on_signature(at(0), &body), SignatureOutcome::Old);
    assert_eq!(pair.verifier.verifications.has(99), level.has(99));
    let mut forged = body.clone();
    forged[7] = 2;
    let granted = (0..1000).filter(|_| pair.verifier.grant_verification(at(0))).count();
    assert_eq!(granted, 99);
    assert_eq!(pair.verifier.on_signature(at(0), &forged), SignatureOutcome::Discarded);
    // Each batch of datagrams brings one more.
    (2..130).for_each(|number| assert_eq!(pair.receive(0, number, "genuine"), OriginVerdict::Pending));
    let granted = (0..1000).filter(|_| pair.verifier.grant_verification(at(0))).count();
    assert_eq!(granted, 2);
}

/// Proves: W200
#[test]
fn replays_leave_new_signatures_their_budget() {
    let mut pair = Pair::new();
    let signatures = pair.send(1..=5056);
    for body in &signatures {
        assert_eq!(pair.sign(0, body), [0, 0]);
    }
    // These hashes are forgotten, and each SIGNATURE displaces those of the other one.
    for _ in 0..150 {
        for (number, body) in [(1, &signatures[0]), (200, &signatures[3])] {
            pair.receive(0, number, "genuine");
            pair.verifier.on_signature(at(0), body);
        }
    }
    let new = pair.send(5057..=5120).remove(0);
    pair.receive(0, 5057, "genuine");
    assert_eq!(pair.sign(0, &new), [1, 0]);
}

/// Proves: W201
#[test]
fn datagrams_and_hashes_are_bounded() {
    let mut pair = Pair::new();
    let first: Vec<u64> = (1..=5000).collect();
    let hash = |number: &u64| OriginHash::of(&datagram(*number, "genuine"));
    let displaced: u64 = first.iter().map(|number| pair.verifier.on_datagram(at(5), *number, hash(number)).1).sum();
    assert_eq!((displaced, pair.verifier.pending.len()), (5000 - 4096, 4096));
    assert_eq!(pair.verifier.expire(at(500)), 4096);
    assert_eq!(pair.receive(500, 5001, "genuine"), OriginVerdict::Pending);
    assert_eq!((pair.verifier.pending.len(), pair.verifier.overdue.len()), (1, 4095), "overdue ones give way");
    for body in pair.send(1..=64 * 100) {
        pair.sign(501, &body);
    }
    assert_eq!((pair.verifier.signed.len(), pair.verifier.overdue.len()), (4096 + 64, 0));
    let oldest = 6400 - 4096 - 63;
    assert_eq!(pair.receive(502, oldest, "genuine"), OriginVerdict::Verified);
    assert_eq!(pair.receive(502, oldest - 1, "genuine"), OriginVerdict::Pending);
}

#[test]
fn reports_are_at_least_a_second_apart() {
    let mut verifier = Pair::new().verifier;
    assert_eq!(
        [0, 10, 999, 1000, 1500].map(|millis| verifier.allow_report(at(millis))),
        [true, false, false, true, false]
    );
    assert!(verifier.has_key(key().public()) && !verifier.has_key(&[0; 32]));
}
