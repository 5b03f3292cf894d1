//! Hubs and sites that send more, or other things, than they should.

use super::super::envelope::LinkEnvelope;
use super::super::import::{ImportLedger, Imported, SITES_MAX};
use super::super::manifest::{LinkManifest, ManifestEntry};
use super::super::position::StreamPoint;
use super::super::shares::{SHARES, share_of};
use super::{envelope, epoch, manifest};
use crate::message::Count;
use crate::subject::Subject;

fn subject(number: u64) -> Subject {
    format!("plant.{number}").parse().unwrap()
}

fn of_site(site: &str) -> LinkEnvelope {
    LinkEnvelope { site: site.parse().unwrap(), ..envelope() }
}

#[test]
fn flooding_site_evicts_its_own_streams() {
    let mut ledger = ImportLedger::with_limit("home".parse().unwrap(), 100);
    let (quiet, flooding) = (of_site("quiet"), of_site("flooding"));
    assert_eq!(ledger.on_message(&quiet, &subject(0)), Imported::Deliver(None));
    for number in 0..1_000 {
        assert_eq!(ledger.on_message(&flooding, &subject(number)), Imported::Deliver(None));
    }
    assert_eq!(ledger.on_message(&quiet, &subject(0)), Imported::Repeated);
    assert_eq!(ledger.on_message(&flooding, &subject(999)), Imported::Repeated);
    assert_eq!(ledger.on_message(&flooding, &subject(0)), Imported::Deliver(None), "it was evicted");
}

/// Returns the message with this number of a gateway, the first of a stream of its own.
fn first_of_stream(gateway: u64, number: u64) -> (LinkEnvelope, Subject) {
    let subject = subject(number);
    let mut envelope = LinkEnvelope { share: share_of(&subject), number, ..of_site("flooding") };
    envelope.point = StreamPoint { gateway: epoch(gateway), first_number: number, ordinal: 1, ..envelope.point };
    (envelope, subject)
}

/// Returns the later message of a stream.
fn later(mut envelope: LinkEnvelope, number: u64, ordinal: u64) -> LinkEnvelope {
    let seq = envelope.point.position.seq.and_then(|seq| seq.forward(ordinal - envelope.point.ordinal));
    (envelope.number, envelope.point.ordinal, envelope.point.position.seq) = (number, ordinal, seq);
    envelope
}

fn loss(imported: Imported) -> Option<Count> {
    let Imported::Deliver(loss) = imported else { panic!("it is delivered: {imported:?}") };
    loss.map(|loss| loss.count)
}

/// Returns a ledger that has evicted the first ones of 1,000 streams of gateway 1.
fn flooded() -> ImportLedger {
    let mut ledger = ImportLedger::with_limit("home".parse().unwrap(), 100);
    for share in 0..SHARES {
        for gateway in [1, 2] {
            let manifest = LinkManifest {
                gateway: epoch(gateway),
                share,
                after: 0,
                named_to: 0,
                received: 0,
                entries: Vec::new(),
                site: "flooding".parse().unwrap(),
                ..manifest()
            };
            assert_eq!(ledger.on_manifest(&manifest, |_| true).request, None);
        }
    }
    for number in 1..=1_000 {
        let (envelope, subject) = first_of_stream(1, number);
        assert_eq!(ledger.on_message(&envelope, &subject), Imported::Deliver(None));
    }
    ledger
}

#[test]
fn evicted_stream_does_not_count_as_lost() {
    let mut ledger = flooded();
    let (first, subject) = first_of_stream(1, 7);
    let next = later(first, 1_001, 21);
    assert_eq!(loss(ledger.on_message(&next, &subject)), Some(Count::Between { min: 0, max: 20 }));
    // A manifest names another evicted one.
    let (named, subject) = first_of_stream(1, 8);
    let entry = ManifestEntry { publisher: named.publisher.clone(), subject, last_number: 8, last: named.point };
    let manifest = LinkManifest {
        site: named.site,
        gateway: epoch(1),
        share: named.share,
        named_to: 1_001,
        received: 1_001,
        after: 0,
        entries: vec![entry],
        ..manifest()
    };
    let imported = ledger.on_manifest(&manifest, |_| true);
    let counts: Vec<Count> = imported.losses.iter().map(|loss| loss.count).collect();
    assert_eq!(counts, [Count::Between { min: 0, max: 1 }]);
    // A stream that began later was not evicted.
    let (begun, subject) = first_of_stream(1, 1_002);
    assert_eq!(loss(ledger.on_message(&later(begun, 1_006, 5), &subject)), Some(Count::Exact(4)));
}

#[test]
fn evicted_stream_counts_at_no_other_gateway() {
    let mut ledger = flooded();
    // The other gateway has counted the stream too, under another number, and carries it now.
    let (first, subject) = first_of_stream(2, 7);
    let named = LinkManifest {
        site: first.site.clone(),
        gateway: epoch(2),
        share: first.share,
        carries: false,
        after: 0,
        named_to: 0,
        received: 900,
        ..manifest()
    };
    let none = LinkManifest { entries: Vec::new(), ..named };
    ledger.on_manifest(&none, |_| true);
    let next = later(first, 901, 21);
    assert_eq!(loss(ledger.on_message(&next, &subject)), Some(Count::Between { min: 0, max: 20 }));
}

#[test]
fn import_of_another_gateway_is_not_delivered_again() {
    let mut ledger = ImportLedger::new("home".parse().unwrap());
    let (first, subject) = first_of_stream(1, 7);
    ledger.on_imported(&later(first.clone(), 8, 2), &subject);
    assert_eq!(ledger.on_message(&first, &subject), Imported::Repeated);
    assert_eq!(ledger.on_message(&later(first.clone(), 8, 2), &subject), Imported::Repeated);
    // The other gateway has reported the loss of two messages; an earlier one changes nothing.
    ledger.on_imported(&later(first.clone(), 11, 5), &subject);
    ledger.on_imported(&later(first.clone(), 10, 4), &subject);
    assert_eq!(loss(ledger.on_message(&later(first.clone(), 13, 7), &subject)), Some(Count::Exact(1)));
    // The contact with the gateway was the first message: later streams are owed whole.
    let (other, subject) = first_of_stream(1, 9);
    let other = later(LinkEnvelope { share: first.share, ..other }, 14, 3);
    assert_eq!(loss(ledger.on_message(&other, &subject)), Some(Count::Exact(2)));
}

#[test]
fn import_of_own_or_excess_site_changes_nothing() {
    let mut ledger = ImportLedger::new("plant1".parse().unwrap());
    ledger.on_imported(&envelope(), &subject(0));
    for site in 0..SITES_MAX {
        ledger.on_imported(&of_site(&format!("site{site}")), &subject(0));
    }
    ledger.on_imported(&of_site("another"), &subject(0));
    assert_eq!(ledger.on_message(&of_site("site0"), &subject(0)), Imported::Repeated);
    assert_eq!(ledger.on_message(&of_site("another"), &subject(0)), Imported::TooManySites);
}

#[test]
fn too_many_sites_are_refused() {
    let mut ledger = ImportLedger::new("home".parse().unwrap());
    for site in 0..SITES_MAX {
        let imported = ledger.on_message(&of_site(&format!("site{site}")), &subject(0));
        assert_eq!(imported, Imported::Deliver(None));
    }
    assert_eq!(ledger.on_message(&of_site("another"), &subject(0)), Imported::TooManySites);
    assert_eq!(ledger.on_message(&of_site("site0"), &subject(0)), Imported::Repeated);
}

#[test]
fn numbers_that_jump_are_counted() {
    let mut ledger = ImportLedger::new("home".parse().unwrap());
    let mut envelope = envelope();
    ledger.on_message(&envelope, &subject(0));
    (envelope.number, envelope.point.ordinal) = (u64::MAX, u64::MAX);
    envelope.point.position.seq = envelope.point.position.seq.and_then(|seq| seq.forward(1));
    let Imported::Deliver(Some(loss)) = ledger.on_message(&envelope, &subject(0)) else { panic!("it is delivered") };
    assert_eq!(loss.count, Count::Exact(u64::MAX - 19));
    assert_eq!(ledger.on_message(&envelope, &subject(0)), Imported::Repeated);
}

#[test]
fn unnumbered_message_is_delivered_once() {
    let mut ledger = ImportLedger::new("home".parse().unwrap());
    let mut envelope = envelope();
    envelope.point.position.seq = None;
    assert_eq!(ledger.on_message(&envelope, &subject(0)), Imported::Deliver(None));
    assert_eq!(ledger.on_message(&envelope, &subject(0)), Imported::Repeated);
    envelope.point.ordinal += 3;
    let Imported::Deliver(Some(loss)) = ledger.on_message(&envelope, &subject(0)) else { panic!("it is delivered") };
    assert_eq!(loss.count, Count::Exact(2));
}

#[test]
fn manifest_of_own_site_is_ignored() {
    let mut ledger = ImportLedger::new("plant1".parse().unwrap());
    assert_eq!(ledger.on_message(&envelope(), &subject(0)), Imported::OwnSite);
    let imported = ledger.on_manifest(&manifest(), |_| true);
    assert_eq!((imported.losses.len(), imported.request), (0, None));
    assert_eq!(ledger.on_gateway_end(&"plant1".parse().unwrap(), epoch(1)), None);
}
