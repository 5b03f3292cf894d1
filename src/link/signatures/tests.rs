//! Tests of signed messages between two gateways, and of a third party that changes or forges them.

use super::realm_trust::RealmTrust;
use super::signer::LinkSigner;
use super::verifier::{LinkVerifier, SignatureCounts};
use super::{CERTIFICATE_HEADER, CERTIFICATE_PREFIX, SIGNATURE_HEADER};
use crate::event::server_origin::ServerOrigin;
use crate::link::durable::{DURABLE_HEADER, ID_HEADER};
use crate::link::event_relay::{OVERHEAD_BYTES, REQUEST_HEADER};
use crate::link::hub_sender::HubSender;
use crate::link::site_name::SiteName;
use crate::message::{Epoch, Headers, Message};
use crate::rng::Rng;
use crate::security::batch_signature::BatchCodeKey;
use crate::security::realm::{
    Certificate, CertificateFields, HostIdentity, PeerKeys, PeerPermissions, RealmMode, RealmName, SigningKey, Trust,
    TrustAnchor, Validity, VerifiedPeer,
};
use crate::security::{CertificateVerifier, CertifiedHost, ProvenCertificate, Secret};
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use crate::time::{ClockReading, Instant, WallTime};
use std::time::Duration;

const SECRET: [u8; 32] = [7; 32];
/// Seconds since 1970 at which the tests begin.
const BEGIN: u64 = 1_800_000_000;

impl CertificateVerifier for Trust {
    fn verify(&mut self, certificate: &[u8], key: &[u8; 32], now: WallTime) -> Result<CertifiedHost, String> {
        let VerifiedPeer { name, keys, permissions, .. } =
            self.check(certificate, key, now).map_err(|refusal| refusal.to_string())?;
        Ok(CertifiedHost { name, keys, permissions, valid_until: None })
    }

    fn is_revoked(&self, keys: &PeerKeys) -> bool {
        Trust::is_revoked(self, keys.fingerprint())
    }
}

fn authority() -> SigningKey {
    SigningKey::from_seed(&[9; 32])
}

fn other_secret() -> Secret {
    Secret::new([8; 32])
}

fn realm() -> RealmName {
    "works".parse().unwrap()
}

fn trust(mode: RealmMode) -> RealmTrust {
    let anchor = match mode {
        RealmMode::Realm => TrustAnchor::OwnKey,
        RealmMode::Pki => TrustAnchor::Authority(*authority().public()),
    };
    RealmTrust::new(mode, &Secret::new(SECRET), Box::new(Trust::new(realm(), anchor)))
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Returns a verifier of a gateway that imports everything, and takes `erp.>` of clients.
fn verifier(mode: RealmMode) -> LinkVerifier {
    let set = |text: &str| PatternSet::from_iter(patterns(&[text]));
    LinkVerifier::new(trust(mode), set(">"), set("erp.>"))
}

/// Returns the certificate of the host with this seed, signed by the authority.
fn certificate(seed: u8, publish: &[&str], validity: Validity) -> ProvenCertificate {
    let identity = HostIdentity::from_seed(&[seed; 32]);
    let permissions = PeerPermissions { publish: patterns(publish), subscribe: patterns(&[">"]) };
    let (name, keys) = (format!("G{seed}.test").parse().unwrap(), *identity.keys());
    let fields = CertificateFields { realm: realm(), name, keys, validity, serial: 1, permissions };
    let certificate = Certificate::sign(fields, &authority()).unwrap();
    ProvenCertificate::new(&certificate.encode(), &Secret::new(SECRET))
}

fn signer_with(seed: u8, certificate: ProvenCertificate) -> LinkSigner {
    let identity = HostIdentity::from_seed(&[seed; 32]);
    let gateway = Epoch::new(u64::from(seed)).unwrap();
    let (site, code_key) = ("plant1".parse().unwrap(), BatchCodeKey::of(&Secret::new(SECRET)));
    LinkSigner::new(site, gateway, identity.shared_signing_key(), code_key, certificate)
}

fn signer(seed: u8, publish: &[&str]) -> LinkSigner {
    signer_with(seed, certificate(seed, publish, Validity::default()))
}

/// Returns the clocks this number of seconds after the begin.
fn at(seconds: u64) -> ClockReading {
    let wall = WallTime::from_nanos((BEGIN + seconds) * 1_000_000_000);
    ClockReading { instant: Instant::ZERO + Duration::from_secs(seconds), wall }
}

fn announce(signer: &mut LinkSigner, verifier: &mut LinkVerifier, now: ClockReading) -> bool {
    signer.on_link(now.instant, true);
    let announcement = signer.poll(now, || None).expect("it is due");
    assert!(announcement.subject.as_str().starts_with(CERTIFICATE_PREFIX));
    verifier.on_certificate(now, &announcement)
}

fn message(subject: &str, fields: &[(&str, &str)]) -> Message {
    let headers = Headers::from_pairs(fields.iter().copied()).unwrap();
    Message { headers, ..Message::new(subject.parse().unwrap(), "payload") }
}

fn live(subject: &str, site: &str) -> Message {
    message(subject, &[("Seqcast-Origin", &format!("{site} 1 2 3")), ("Unit", "mm"), ("A", "1"), ("A", "2")])
}

fn sign(signer: &mut LinkSigner, now: ClockReading, messages: Vec<Message>) -> Vec<Message> {
    signer.sign(now, messages).into_iter().map(|signed| signed.expect("fields that can be written")).collect()
}

fn sign_one(signer: &mut LinkSigner, now: ClockReading, message: Message) -> Message {
    sign(signer, now, vec![message]).remove(0)
}

const PLANT: [&str; 2] = ["plant.>", "_SEQCAST.LINK.SITE.plant1"];

#[test]
fn signed_messages_open_in_any_order() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    assert!(announce(&mut signer, &mut verifier, at(0)), "the first announcement asks for others");
    let mut waiting: Vec<Message> = (0..150).map(|number| live(&format!("plant.{number}"), "plant1")).collect();
    let mut signed = Vec::new();
    let mut waits = waiting.drain(..);
    while let Some(message) = signer.poll(at(0), || waits.next()) {
        signed.push(message);
    }
    assert_eq!((signed.len(), signer.signed_count), (150, 150));
    let mut rng = Rng::new(1);
    while !signed.is_empty() {
        let message = signed.remove(rng.below(signed.len() as u64) as usize);
        let opened = verifier.open(at(1), message.clone()).expect("a right signature");
        assert_eq!(opened.message, live(message.subject.as_str(), "plant1"));
        assert!(opened.sender.may_act_for(&"plant1".parse().unwrap()));
    }
    assert_eq!(
        verifier.counts(),
        SignatureCounts { verified: 151, ..SignatureCounts::default() },
        "with the announcement"
    );
}

#[test]
fn order_and_spaces_of_fields_do_not_count() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(0));
    let signed = sign_one(&mut signer, at(0), live("plant.x", "plant1"));
    let mut fields: Vec<(String, String)> =
        signed.headers.iter().map(|(key, value)| (key.to_owned(), format!(" {value} "))).collect();
    let signature = fields.remove(0);
    // The two fields with one name stay in their order.
    fields.rotate_left(1);
    fields.push((signature.0, signature.1.trim().to_owned()));
    let pairs = fields.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let headers = Headers::from_pairs(pairs).unwrap();
    assert!(verifier.open(at(0), Message { headers, ..signed }).is_some());
}

#[test]
fn any_change_of_a_message_is_refused() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(0));
    let signed = sign_one(&mut signer, at(0), live("plant.x", "plant1"));
    let with = |key: &str, value: Option<&str>| {
        let others = signed.headers.iter().filter(|(name, _)| *name != key);
        let headers = Headers::from_pairs(others.chain(value.map(|value| (key, value)))).unwrap();
        Message { headers, ..signed.clone() }
    };
    let signature = with("x", None).headers.iter().next().unwrap().1.to_owned();
    let changed = [
        Message { subject: "plant.y".parse().unwrap(), ..signed.clone() },
        Message { payload: "other".into(), ..signed.clone() },
        Message { reply: Some("plant.y".parse().unwrap()), ..signed.clone() },
        with("Unit", Some("m")),
        with("Unit", None),
        with("Other", Some("m")),
        with(DURABLE_HEADER, Some("0")),
        with("Seqcast-Origin", Some("plant1 1 2 4")),
        with(SIGNATURE_HEADER, Some(&signature[1..])),
        with(SIGNATURE_HEADER, Some(&format!("{signature}AAAA"))),
        with(SIGNATURE_HEADER, Some("")),
    ];
    for (index, message) in changed.iter().enumerate() {
        assert_eq!(verifier.open(at(0), message.clone()), None, "change {index}");
        assert_eq!(verifier.counts().bad_signatures, index as u64 + 1);
    }
    assert!(verifier.open(at(0), with("Nats-Expected-Stream", Some("PLANTS"))).is_some(), "the stream adds it");
    assert_eq!(verifier.problem(at(0).instant), None, "any client of the cluster can cause it");
}

#[test]
fn certificate_limits_sites_and_subjects() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(0));
    let own = ("Seqcast-Origin", "plant1");
    for (message, expected) in [
        (live("plant.x", "plant1"), true),
        (live("plant.x", "hq"), false),
        (live("hq.x", "plant1"), false),
        (message("plant.x", &[]), false),
        (message("_SEQCAST.LINK.MANIFEST.plant1", &[]), true),
        (message("_SEQCAST.LINK.MANIFEST.hq", &[]), false),
        (message("_SEQCAST.LINK.BYE.plant1", &[]), true),
        (message("_SEQCAST.LINK.BYE.hq", &[]), false),
        (message("_SEQCAST.LINK.INTEREST.plant1", &[]), true),
        (message("_SEQCAST.LINK.INTEREST.hq", &[]), false),
        (message("_SEQCAST.LINK.REQUEST.hq", &[]), true),
        (message("_SEQCAST.LINK.CALL.hq", &[own, ("Seqcast-Subject", "plant.x")]), true),
        (message("_SEQCAST.LINK.CALL.hq", &[own, ("Seqcast-Subject", "hq.x")]), false),
        (message("_SEQCAST.LINK.CALL.hq", &[("Seqcast-Origin", "hq"), ("Seqcast-Subject", "plant.x")]), false),
        (message("_SEQCAST.LINK.CALL.hq", &[own]), false),
        (message("_SEQCAST.LINK.CALL.hq", &[own, ("Seqcast-Subject", "_INBOX.x.1")]), false),
        (message("_SEQCAST.LINK.REPLY.hq.0000000000000001.7", &[own]), true),
        (message("_SEQCAST.LINK.REPLY.hq.0000000000000001.7", &[("Seqcast-Origin", "hq")]), false),
        (message("_SEQCAST.LINK.REPLY.hq.0000000000000001.8", &[]), false),
        (message("_SEQCAST.LINK.EVENT.SERVER.plant1.7", &[]), true),
        (message("_SEQCAST.LINK.EVENT.SERVER.hq.7", &[]), false),
        (message("_SEQCAST.LINK.EVENT.FOLLOW.plant1", &[]), true),
        (message("_SEQCAST.LINK.EVENT.FOLLOW.hq", &[]), false),
        (message("_SEQCAST.LINK.EVENT.QUERY.hq.7", &[("Seqcast-Link", "plant1 1 2")]), true),
        (message("_SEQCAST.LINK.EVENT.QUERY.hq.7", &[("Seqcast-Link", "hq 1 2")]), false),
        (message("_SEQCAST.LINK.EVENT.PAGE.hq.7", &[("Seqcast-Site", "plant1 1")]), true),
        (message("_SEQCAST.LINK.EVENT.PAGE.hq.7", &[("Seqcast-Site", "hq 1")]), false),
        (message("_SEQCAST.LINK.GATEWAY", &[]), false),
        (message("_SEQCAST.LINK.EVENT.x", &[]), false),
    ] {
        let text = format!("{message:?}");
        let signed = sign_one(&mut signer, at(0), message);
        let denied = verifier.counts().denied;
        assert_eq!(verifier.open(at(0), signed).is_some(), expected, "{text}");
        assert_eq!(verifier.counts().denied - denied, u64::from(!expected));
    }
}

#[test]
fn forged_messages_do_not_hide_a_problem() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(0));
    let forged = sign_one(&mut signer, at(0), live("plant.x", "plant1"));
    let denied = sign_one(&mut signer, at(0), live("hq.x", "plant1"));
    assert_eq!(verifier.open(at(0), denied), None);
    assert_eq!(verifier.open(at(1), Message { payload: "other".into(), ..forged }), None);
    verifier.on_certificate(at(1), &Message::new("_SEQCAST.LINK.CERTIFICATE.x".parse().unwrap(), "x"));
    let foreign = ProvenCertificate::new(certificate(2, &PLANT, Validity::default()).certificate(), &other_secret());
    let foreign = Message::new("_SEQCAST.LINK.CERTIFICATE.x".parse().unwrap(), [b"\0", &foreign.bytes()[..]].concat());
    let self_signed = HostIdentity::from_seed(&[3; 32]);
    let name = "G3.test".parse().unwrap();
    let own = Certificate::sign_own(realm(), name, &self_signed, PeerPermissions::all(), 1).unwrap();
    let own = ProvenCertificate::new(&own.encode(), &other_secret());
    let own = Message::new("_SEQCAST.LINK.CERTIFICATE.x".parse().unwrap(), [b"\0", &own.bytes()[..]].concat());
    assert!([foreign, own].iter().all(|announcement| !verifier.on_certificate(at(1), announcement)));
    let counts = verifier.counts();
    assert_eq!((counts.bad_signatures, counts.invalid_certificates, counts.untrusted), (1, 1, 1));
    assert!(verifier.problem(at(0).instant).is_some_and(|problem| problem.contains("does not permit")));
    assert_eq!(verifier.problem(at(1).instant), None);
}

#[test]
fn accepted_message_ends_the_doubt_of_a_clock() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(0));
    let old = sign_one(&mut signer, at(0), live("plant.x", "plant1"));
    assert_eq!(verifier.open(at(400), old), None);
    assert!(verifier.problem(at(400).instant).is_some_and(|problem| problem.contains("a clock is wrong")));
    let present = sign_one(&mut signer, at(400), live("plant.x", "plant1"));
    assert!(verifier.open(at(400), present).is_some());
    assert_eq!(verifier.problem(at(400).instant), None, "it was left over from before an outage");
    assert_eq!(verifier.counts().stale, 1);
}

#[test]
fn host_without_a_site_is_no_gateway() {
    let (mut signer, mut verifier) = (signer(1, &["plant.>", "_SEQCAST.LINK.*"]), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(0));
    for subject in ["_SEQCAST.LINK.REQUEST.hq", "_SEQCAST.LINK.BYE.plant1", "plant.x"] {
        let signed = sign_one(&mut signer, at(0), live(subject, "plant1"));
        assert_eq!(verifier.open(at(0), signed), None);
    }
    assert_eq!(verifier.counts().denied, 4, "with the announcement");
}

#[test]
fn unsigned_messages_are_those_of_named_clients() {
    let mut verifier = verifier(RealmMode::Pki);
    let opened = verifier.open(at(0), message("erp.x", &[("Seqcast-Stored", "S 7"), ("Unit", "mm")])).unwrap();
    assert_eq!((opened.message, opened.sender), (message("erp.x", &[("Unit", "mm")]), HubSender::Client));
    let reply = message("_SEQCAST.LINK.REPLY.hq.0000000000000001.7", &[]);
    assert_eq!(verifier.open(at(0), reply).unwrap().sender, HubSender::Client, "the relay decides");
    for refused in [message("plant.x", &[]), live("erp.x", "hq"), message("_SEQCAST.LINK.BYE.hq", &[])] {
        assert_eq!(verifier.open(at(0), refused), None);
    }
    assert_eq!(verifier.counts(), SignatureCounts { unsigned: 3, ..SignatureCounts::default() });
}

#[test]
fn replayed_messages_of_gateways_are_refused() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(0));
    let manifest = || message("_SEQCAST.LINK.MANIFEST.plant1", &[]);
    let signed = sign(&mut signer, at(0), vec![manifest(), manifest(), manifest()]);
    let later = sign(&mut signer, at(0), vec![manifest()]);
    for message in [&signed[0], &signed[2], &later[0]] {
        assert!(verifier.open(at(0), message.clone()).is_some());
    }
    for message in [&signed[0], &signed[1], &signed[2], &later[0]] {
        assert_eq!(verifier.open(at(0), message.clone()), None);
    }
    assert_eq!(verifier.counts().repeated, 4);
    // Many batches within one moment do not advance the time beyond what the clocks may differ.
    for _ in 0..1000 {
        sign(&mut signer, at(0), vec![manifest()]);
    }
    let last = sign_one(&mut signer, at(0), manifest());
    assert!(verifier.open(at(0), last).is_some());
    // Replies to all requests of a gateway come in one order.
    let reply = |number: u64| {
        message(&format!("_SEQCAST.LINK.REPLY.hq.0000000000000001.{number}"), &[("Seqcast-Origin", "plant1")])
    };
    let replies = [8, 7].map(|number| sign_one(&mut signer, at(0), reply(number)));
    let accepted = [&replies[0], &replies[1], &replies[0], &replies[1]];
    let accepted = accepted.map(|reply| verifier.open(at(0), reply.clone()).is_some());
    assert_eq!(accepted, [true, true, false, false]);
    // One that has not heard the gateway accepts what is not older than the clocks may differ.
    let mut other = self::verifier(RealmMode::Pki);
    announce(&mut signer, &mut other, at(0));
    assert!(other.open(at(300), signed[0].clone()).is_some());
    assert_eq!(other.open(at(301), signed[1].clone()), None);
    assert_eq!(other.counts().stale, 1);
}

#[test]
fn durable_messages_carry_their_certificate() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    let origin = ("Seqcast-Origin", "plant1 1 2 3");
    let durable = message("plant.x", &[origin, (DURABLE_HEADER, "0"), (ID_HEADER, "7")]);
    let signed = sign_one(&mut signer, at(0), durable);
    // It arrived in the stream at once, and is read a year later.
    let year = 365 * 86_400;
    let opened = verifier.open_stored(at(year), at(1).wall, signed.clone()).expect("a right signature");
    assert_eq!(opened.message, signed, "it can be verified again");
    assert_eq!(verifier.open_stored(at(year), at(301).wall, signed.clone()), None, "it was sent again later");
    let without = Headers::from_pairs(signed.headers.iter().filter(|(key, _)| *key != CERTIFICATE_HEADER)).unwrap();
    let mut other = self::verifier(RealmMode::Pki);
    assert_eq!(other.open_stored(at(year), at(1).wall, Message { headers: without, ..signed }), None);
    assert_eq!((verifier.counts().stale, other.counts().unknown_certificates), (1, 1));
}

#[test]
fn positions_are_of_gateways_of_their_site() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    let mut position = |site: &str| {
        let subject = format!("_SEQCAST.LINK.POSITION.S.{site}");
        sign_one(&mut signer, at(0), message(&subject, &[]))
    };
    let (own, other) = (position("plant1"), position("hq"));
    for _ in 0..2 {
        let opened = verifier.open_stored(at(1_000), at(1).wall, own.clone());
        assert!(opened.is_some(), "several readers may read it again, without an announcement");
    }
    assert_eq!(verifier.open_stored(at(1_000), at(301).wall, own.clone()), None, "somebody has stored it again");
    assert_eq!(verifier.open_stored(at(1_000), at(1).wall, other), None);
    let changed = Message { payload: "7".into(), ..own };
    assert_eq!(verifier.open_stored(at(1_000), at(1).wall, changed), None);
    let counts = verifier.counts();
    assert_eq!((counts.stale, counts.denied, counts.bad_signatures, counts.verified), (1, 1, 1, 2));
}

#[test]
fn certificate_counts_while_it_is_valid() {
    let validity = Validity { not_before: BEGIN, not_after: BEGIN + 100 };
    let mut signer = signer_with(1, certificate(1, &PLANT, validity));
    let mut verifier = verifier(RealmMode::Pki);
    announce(&mut signer, &mut verifier, at(0));
    let mut opens = |second: u64| {
        let signed = sign_one(&mut signer, at(second), live("plant.x", "plant1"));
        verifier.open(at(second), signed).is_some()
    };
    assert_eq!([0, 100, 101].map(&mut opens), [true, true, false]);
    let durable = message("plant.x", &[("Seqcast-Origin", "plant1 1"), (DURABLE_HEADER, "0")]);
    let signed = sign_one(&mut signer, at(50), durable);
    assert!(verifier.open_stored(at(5000), at(200).wall, signed.clone()).is_none(), "it was stored too late");
    assert!(verifier.open_stored(at(5000), at(50).wall, signed).is_some());
}

#[test]
fn revoked_and_foreign_certificates_are_refused() {
    use crate::security::realm::{RevocationList, RevocationListFields};
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(0));
    let signed = sign_one(&mut signer, at(0), live("plant.x", "plant1"));
    assert!(verifier.open(at(0), signed.clone()).is_some());
    let keys = HostIdentity::from_seed(&[1; 32]).keys().fingerprint();
    let fields =
        RevocationListFields { realm: realm(), revision: 1, hosts: [(keys, "G1.test".parse().unwrap())].into() };
    let list = RevocationList::sign(fields, &authority()).unwrap();
    let mut hosts = Trust::new(realm(), TrustAnchor::Authority(*authority().public()));
    hosts.set_revocations(&list);
    verifier.set_trust(at(1), RealmTrust::new(RealmMode::Pki, &Secret::new(SECRET), Box::new(hosts)));
    assert_eq!(verifier.open(at(1), signed), None);
    assert!(!announce(&mut signer, &mut verifier, at(1)));
    let counts = verifier.counts();
    assert_eq!((counts.untrusted, counts.unknown_certificates, verifier.certificates()), (2, 1, 0));
    // The host signs for itself, which this mode does not allow.
    let identity = HostIdentity::from_seed(&[3; 32]);
    let own = Certificate::sign_own(realm(), "G3.test".parse().unwrap(), &identity, PeerPermissions::all(), 1).unwrap();
    let own = ProvenCertificate::new(&own.encode(), &Secret::new(SECRET));
    assert!(!announce(&mut signer_with(3, own), &mut verifier, at(2)));
}

#[test]
fn clients_do_not_know_the_secret() {
    let identity = HostIdentity::from_seed(&[3; 32]);
    let own = Certificate::sign_own(realm(), "G3.test".parse().unwrap(), &identity, PeerPermissions::all(), 1).unwrap();
    for (secret, expected) in [(SECRET, true), ([8; 32], false)] {
        let mut verifier = verifier(RealmMode::Realm);
        let mut signer = signer_with(3, ProvenCertificate::new(&own.encode(), &Secret::new(secret)));
        assert_eq!(announce(&mut signer, &mut verifier, at(0)), expected);
        let signed = sign_one(&mut signer, at(0), live("plant.x", "hq"));
        assert_eq!(verifier.open(at(0), signed).is_some(), expected, "it may speak for every site");
    }
}

#[test]
fn new_certificate_is_announced_before_its_first_message() {
    let (mut signer, mut verifier) = (signer(1, &["plant.>"]), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(0));
    let code_key = BatchCodeKey::of(&Secret::new(SECRET));
    signer.set_realm(at(1).instant, code_key, certificate(1, &PLANT, Validity::default()));
    let mut waits = Some(live("plant.x", "plant1"));
    let first = signer.poll(at(1), || waits.take()).unwrap();
    assert!(!verifier.on_certificate(at(1), &first), "it asks nobody");
    let signed = signer.poll(at(1), || waits.take()).unwrap();
    assert!(verifier.open(at(1), signed).is_some());
    signer.on_certificate_request(at(1).instant);
    let none = signer.poll(at(1), || None);
    assert_eq!(none, None, "it has just been announced");
    assert!(signer.poll(at(2), || None).is_some());
}

#[test]
fn signed_headers_of_events_fit_their_room() {
    let (site, highest) = ("s".repeat(SiteName::BYTES_MAX), Epoch::new(u64::MAX).unwrap());
    let origin = ServerOrigin::relayed_headers(&site, highest);
    let request = format!("{site} {highest} {}", u64::MAX);
    let fields: Vec<(&str, &str)> = origin.iter().chain([(REQUEST_HEADER, request.as_str())]).collect();
    let page = message("_SEQCAST.LINK.EVENT.PAGE.hq.7", &fields);
    let signed = sign(&mut signer(1, &PLANT), at(0), vec![page; 64]);
    // The cluster counts the line with the version and the empty one, too.
    let bytes = signed.iter().map(|message| "NATS/1.0\r\n\r\n".len() + message.headers.block().len()).max();
    assert!(bytes.is_some_and(|bytes| bytes <= OVERHEAD_BYTES), "{bytes:?}");
}

#[test]
fn unsent_messages_are_returned_at_disconnection() {
    let mut signer = signer(1, &PLANT);
    signer.on_link(at(0).instant, true);
    assert!(signer.poll(at(0), || None).is_some());
    let mut waits = (0..10).map(|_| live("plant.x", "plant1"));
    assert!(signer.poll(at(0), || waits.next()).is_some());
    assert_eq!(signer.on_link(at(1).instant, false).len(), 9);
    assert_eq!(signer.poll(at(9), || None), None, "nothing is announced");
}

#[test]
fn repeated_announcement_requests_nothing() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    signer.on_link(at(0).instant, true);
    let announcement = signer.poll(at(0), || None).expect("it is due");
    assert!(verifier.on_certificate(at(0), &announcement));
    assert!(!verifier.on_certificate(at(0), &announcement));
    let unsigned = Message { headers: Headers::new(), ..announcement.clone() };
    assert!(!verifier.on_certificate(at(0), &unsigned));
    // The first byte of an announcement that requests nothing cannot be changed.
    let other = signer.poll(at(2), || None).expect("it is due");
    assert!(!verifier.on_certificate(at(2), &other));
    let changed = Message { payload: [b"\x01", &other.payload[1..]].concat().into(), ..other };
    assert!(!verifier.on_certificate(at(2), &changed));
    let counts = verifier.counts();
    assert_eq!((counts.repeated, counts.unsigned, counts.bad_signatures, counts.verified), (1, 1, 1, 1));
}

#[test]
fn clock_set_back_begins_a_new_run() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(1_000));
    let manifest = || message("_SEQCAST.LINK.MANIFEST.plant1", &[]);
    let ahead = sign_one(&mut signer, at(1_000), manifest());
    assert!(verifier.open(at(1_000), ahead).is_some());
    let slightly = sign_one(&mut signer, at(950), manifest());
    assert!(verifier.open(at(950), slightly).is_some(), "the times still ascend");
    assert_eq!(signer.take_notice(), None);
    let back = sign_one(&mut signer, at(0), manifest());
    assert!(verifier.open(at(0), back.clone()).is_some());
    assert_eq!(verifier.open(at(0), back), None, "the new run ascends as well");
    assert!(signer.take_notice().is_some_and(|notice| notice.contains("1000 s")));
}

#[test]
fn clients_cannot_cause_checks_of_signatures() {
    let (mut genuine, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    announce(&mut genuine, &mut verifier, at(0));
    // It names the certificate of another host, and does not know the secret.
    let certificate = certificate(1, &PLANT, Validity::default());
    let gateway = Epoch::new(9).unwrap();
    let key = HostIdentity::from_seed(&[2; 32]).shared_signing_key();
    let site: SiteName = "plant1".parse().unwrap();
    let mut client =
        LinkSigner::new(site.clone(), gateway, key.clone(), BatchCodeKey::of(&other_secret()), certificate.clone());
    for _ in 0..3_000 {
        let forged = sign_one(&mut client, at(0), live("plant.x", "plant1"));
        assert_eq!(verifier.open(at(0), forged), None);
    }
    let signed = sign_one(&mut genuine, at(0), live("plant.x", "plant1"));
    assert!(verifier.open(at(0), signed).is_some());
    // A member of the realm that forges is limited, together with the host that it names.
    let mut member = LinkSigner::new(site, gateway, key, BatchCodeKey::of(&Secret::new(SECRET)), certificate);
    for _ in 0..1_001 {
        let forged = sign_one(&mut member, at(0), live("plant.x", "plant1"));
        assert_eq!(verifier.open(at(0), forged), None);
    }
    let durable = message("plant.x", &[("Seqcast-Origin", "plant1 1"), (DURABLE_HEADER, "0")]);
    let [signed, durable, later] = [live("plant.x", "plant1"), durable, live("plant.x", "plant1")]
        .map(|message| sign_one(&mut genuine, at(0), message));
    assert_eq!(verifier.open(at(0), signed), None);
    assert!(verifier.open_stored(at(0), at(0).wall, durable).is_some(), "the stream has a rate of its own");
    assert!(verifier.open(at(1), later).is_some());
    assert_eq!(verifier.counts().bad_signatures, 4_002);
}

#[test]
fn new_secret_reaches_gateways_one_after_the_other() {
    let (mut signer, mut verifier) = (signer(1, &PLANT), verifier(RealmMode::Pki));
    announce(&mut signer, &mut verifier, at(0));
    let anchor = || TrustAnchor::Authority(*authority().public());
    let rotated = || RealmTrust::new(RealmMode::Pki, &other_secret(), Box::new(Trust::new(realm(), anchor())));
    let opens = |verifier: &mut LinkVerifier, signer: &mut LinkSigner, second: u64| {
        let signed = sign_one(signer, at(second), live("plant.x", "plant1"));
        verifier.open(at(second), signed).is_some()
    };
    // The signer gets it first, and the verifier 250 s later.
    let certificate = certificate(1, &PLANT, Validity::default());
    signer.set_realm(at(0).instant, BatchCodeKey::of(&other_secret()), certificate.clone());
    assert!(opens(&mut verifier, &mut signer, 250));
    verifier.set_trust(at(250), rotated());
    assert!([250, 299, 301, 850].iter().all(|second| opens(&mut verifier, &mut signer, *second)));
    // A gateway that never gets it is refused some minutes later.
    let mut former = signer_with(1, certificate);
    assert!(opens(&mut verifier, &mut former, 849));
    assert!(!opens(&mut verifier, &mut former, 851));
}

/// Announces a certificate that the host with this number has signed itself, with this secret.
fn self_signed(number: u64, secret: &Secret) -> Message {
    let mut seed = [1; 32];
    seed[..8].copy_from_slice(&number.to_be_bytes());
    let name = format!("G{number}.test").parse().unwrap();
    let own = HostIdentity::from_seed(&seed);
    let own = Certificate::sign_own(realm(), name, &own, PeerPermissions::all(), 1).unwrap();
    let payload = [b"\0", &ProvenCertificate::new(&own.encode(), secret).bytes()[..]].concat();
    Message::new("_SEQCAST.LINK.CERTIFICATE.x".parse().unwrap(), payload)
}

#[test]
fn flood_of_certificates_is_bounded() {
    let mut verifier = verifier(RealmMode::Pki);
    let mut rng = Rng::new(1);
    for _ in 0..2000 {
        let payload: Vec<u8> = (0..rng.below(1200)).map(|_| rng.below(256) as u8).collect();
        verifier.on_certificate(at(0), &Message::new("_SEQCAST.LINK.CERTIFICATE.x".parse().unwrap(), payload));
    }
    let counts = verifier.counts();
    assert_eq!((counts.untrusted, counts.invalid_certificates + counts.excess_certificates), (20, 1980), "{counts:?}");
    assert_eq!(verifier.certificates(), 0);
}

#[test]
fn flood_does_not_keep_members_out() {
    for mode in [RealmMode::Pki, RealmMode::Realm] {
        let mut verifier = verifier(mode);
        for number in 0..500 {
            verifier.on_certificate(at(0), &self_signed(number, &other_secret()));
        }
        let counts = verifier.counts();
        assert_eq!((counts.untrusted, counts.excess_certificates), (20, 480), "{mode}");
        match mode {
            RealmMode::Pki => {
                assert!(announce(&mut signer(1, &PLANT), &mut verifier, at(0)));
            }
            RealmMode::Realm => {
                verifier.on_certificate(at(0), &self_signed(1, &Secret::new(SECRET)));
            }
        }
        assert_eq!(verifier.certificates(), 1, "{mode}");
        // Members can make certificates that the authority has not signed. They have a budget of their own, too.
        for number in 0..500 {
            verifier.on_certificate(at(1), &self_signed(number, &Secret::new(SECRET)));
        }
        assert_eq!(
            verifier.counts().excess_certificates - counts.excess_certificates,
            300 - u64::from(mode == RealmMode::Realm)
        );
    }
}

#[test]
fn refused_certificate_is_checked_once() {
    let mut verifier = verifier(RealmMode::Pki);
    for _ in 0..5_000 {
        verifier.on_certificate(at(0), &self_signed(1, &Secret::new(SECRET)));
    }
    let counts = verifier.counts();
    assert_eq!((counts.untrusted, counts.excess_certificates), (5_000, 0));
    assert!(verifier.problem(at(0).instant).is_some(), "a member of the realm sends it");
}

#[test]
fn only_stored_messages_bring_their_certificate() {
    let durable = |number: u64| {
        let fields = [("Seqcast-Origin", "plant1 1 2 3"), (DURABLE_HEADER, "0"), (ID_HEADER, "7")];
        message(&format!("plant.{number}"), &fields)
    };
    let mut verifier = verifier(RealmMode::Pki);
    let genuine = sign_one(&mut signer(1, &PLANT), at(0), durable(0));
    assert_eq!(verifier.open(at(0), genuine.clone()), None);
    assert_eq!((verifier.counts().unknown_certificates, verifier.certificates()), (1, 0));
    for number in 0..500u64 {
        let certificate = self_signed(number, &other_secret()).payload.slice(1..);
        let certificate = ProvenCertificate::decode(certificate).unwrap();
        let forged = sign_one(&mut signer_with(1, certificate), at(0), durable(number));
        assert_eq!(verifier.open_stored(at(0), at(0).wall, forged), None);
    }
    let counts = verifier.counts();
    assert_eq!((counts.untrusted, counts.excess_certificates), (200, 300));
    assert!(verifier.open_stored(at(0), at(0).wall, genuine).is_some());
}
