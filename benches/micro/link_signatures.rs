//! Cost of the signatures of a link, for each message.

use super::{Figures, nanos_each};
use seqcast::link::signatures::realm_trust::RealmTrust;
use seqcast::link::signatures::signer::LinkSigner;
use seqcast::link::signatures::verifier::LinkVerifier;
use seqcast::message::{Epoch, Headers, Message};
use seqcast::security::batch_signature::BatchCodeKey;
use seqcast::security::realm::{Certificate, HostIdentity, PeerPermissions, RealmMode, RealmName, Trust, TrustAnchor};
use seqcast::security::{ProvenCertificate, Secret};
use seqcast::subject::Pattern;
use seqcast::subject::pattern_set::PatternSet;
use seqcast::time::{ClockReading, Instant, WallTime};
use std::hint::black_box;

/// Messages of a round.
const MESSAGES: usize = 6400;
const NOW: ClockReading =
    ClockReading { instant: Instant::ZERO, wall: WallTime::from_nanos(1_800_000_000_000_000_000) };

/// Adds the figures of signing and of verifying messages of 64 bytes in batches.
pub fn link_signatures(figures: &mut Figures) {
    let (realm, secret): (RealmName, _) = ("bench".parse().expect("a name"), Secret::new([7; 32]));
    let identity = HostIdentity::from_seed(&[1; 32]);
    let name = "host-1".parse().expect("a name");
    let own = Certificate::sign_own(realm.clone(), name, &identity, PeerPermissions::all(), 1).expect("it fits");
    let certificate = ProvenCertificate::new(&own.encode(), &secret);
    let (site, gateway) = ("plant1".parse().expect("a name"), Epoch::new(7).expect("not 0"));
    let code_key = BatchCodeKey::of(&secret);
    let mut signer = LinkSigner::new(site, gateway, identity.shared_signing_key(), code_key, certificate);
    signer.on_link(NOW.instant, true);
    let announcement = signer.poll(NOW, || None).expect("it is due");
    let origin = "plant1 6b1f90a2c3d4e5f6 3 1207 1102 18 b41c09e2aa70d355 A.test 5c19adc000000007 4711 b8335b8";
    let headers = Headers::from_pairs([("Seqcast-Origin", origin)]).expect("a field");
    let message = Message { headers, ..Message::new("plant.press.1".parse().expect("a subject"), vec![b'x'; 64]) };
    for batch in [1, 64] {
        let sign = |signer: &mut LinkSigner| -> Vec<Message> {
            let batches = (0..MESSAGES / batch).flat_map(|_| signer.sign(NOW, vec![message.clone(); batch]));
            batches.flatten().collect()
        };
        let nanos = nanos_each(MESSAGES, || drop(black_box(sign(&mut signer))));
        figures.add(format!("sign a message of 64 bytes, batches of {batch}"), nanos);
        let signed = sign(&mut signer);
        let all: PatternSet = [">".parse::<Pattern>().expect("a pattern")].into_iter().collect();
        let nanos = nanos_each(MESSAGES, || {
            let hosts = Box::new(super::security::UnpinnedTrust::new(Trust::new(realm.clone(), TrustAnchor::OwnKey)));
            let trust = RealmTrust::new(RealmMode::Realm, &secret, hosts);
            let mut verifier = LinkVerifier::new(trust, all.clone(), all.clone());
            verifier.on_certificate(NOW, &announcement);
            let opened = signed.iter().filter_map(|message| verifier.open(NOW, message.clone())).count();
            assert_eq!(opened, MESSAGES);
        });
        figures.add(format!("verify a message of 64 bytes, batches of {batch}"), nanos);
    }
}
