//! The header field, the manifest, the shares and the election. Random topologies have a file of their own.

mod durable;
mod exports;
mod faults;
mod flood;
mod gateways;
mod hostile_hub;
mod requests;
mod topology;

use super::bye::{BYE_BYTES_MAX, GatewayBye, InvalidBye};
use super::envelope::{ENVELOPE_BYTES_MAX, EnvelopeField, InvalidEnvelope, LinkEnvelope, RemotePublisher};
use super::manifest::{ENTRIES_MAX, InvalidManifest, LinkManifest, MANIFEST_BYTES_MAX, ManifestBatch, ManifestEntry};
use super::position::{NumberingEnd, PublisherPosition, StreamPoint};
use super::shares::{Election, GATEWAY_TIMEOUT, SHARES, share_of};
use super::site_loss::{SiteLoss, SiteReport, SiteTail};
use crate::message::{Count, Epoch, Headers};
use crate::seqno::Seq;
use crate::subject::{SUBJECT_BYTES_MAX, Subject};
use crate::time::Instant;
use std::time::Duration;

fn epoch(bits: u64) -> Epoch {
    Epoch::new(bits).expect("not 0")
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn envelope() -> LinkEnvelope {
    let seq = Seq::new(0x5c19_adc0_0000_0007).unwrap();
    let position = PublisherPosition {
        seq: Some(seq),
        offset: Some(4711),
        numbered_from: Some(seq.frame()),
        ..PublisherPosition::default()
    };
    let gateway = epoch(0x6b1f_90a2_c3d4_e5f6);
    LinkEnvelope {
        site: "plant1".parse().unwrap(),
        share: 3,
        number: 1207,
        publisher: RemotePublisher { epoch: epoch(0xb41c_09e2_aa70_d355), name: Some("A.test".parse().unwrap()) },
        point: StreamPoint { gateway, first_number: 1102, ordinal: 18, position },
    }
}

#[test]
fn envelope_is_read_as_written() {
    let whole = envelope();
    let value = "plant1 6b1f90a2c3d4e5f6 3 1207 1102 18 b41c09e2aa70d355 A.test 5c19adc000000007 4711 b8335b8";
    assert_eq!(whole.to_value(), value);
    assert_eq!(LinkEnvelope::from_value(value), Ok(whole.clone()));
    let mut bare = whole.clone();
    (bare.publisher.name, bare.point.position) = (None, PublisherPosition::default());
    assert_eq!(LinkEnvelope::from_value(&bare.to_value()), Ok(bare));
    let mut renumbered = whole;
    let seq = Seq::new(0x5c19_adb0_0000_0009).unwrap();
    renumbered.point.position.before = Some(NumberingEnd { seq, offset: None, numbered_from: Some(seq.frame()) });
    let value = format!("{value} 5c19adb000000009 - b8335b6");
    assert_eq!(renumbered.to_value(), value);
    // A later version may append words.
    assert_eq!(LinkEnvelope::from_value(&format!("{value} more")), Ok(renumbered));
}

#[test]
fn cut_or_wrong_envelope_is_refused() {
    let value = envelope().to_value();
    let words: Vec<&str> = value.split(' ').collect();
    for cut in 0..words.len() {
        assert!(LinkEnvelope::from_value(&words[..cut].join(" ")).is_err(), "{cut} words");
        for wrong in ["", "?", "a/b", "a.b c"] {
            let mut words = words.clone();
            words[cut] = wrong;
            assert!(LinkEnvelope::from_value(&words.join(" ")).is_err(), "word {cut} is {wrong:?}");
        }
    }
    let error = |value: &str| LinkEnvelope::from_value(value).unwrap_err();
    assert_eq!(error("plant1"), InvalidEnvelope::Missing(EnvelopeField::Gateway));
    let of_other_share = value.replacen(" 3 ", " 16 ", 1);
    assert_eq!(error(&of_other_share), InvalidEnvelope::Malformed(EnvelopeField::Share));
    let begun_later = value.replacen(" 1102 ", " 1208 ", 1);
    assert_eq!(error(&begun_later), InvalidEnvelope::Malformed(EnvelopeField::FirstNumber));
    assert_eq!(error(&"x".repeat(ENVELOPE_BYTES_MAX + 1)), InvalidEnvelope::TooLong);
}

#[test]
fn envelope_replaces_one_of_another_site() {
    let headers = Headers::from_pairs([("unit", "bar"), ("seqcast-origin", "x"), ("Seqcast-Origin", "y")]).unwrap();
    let exported = envelope().add_to(&headers).unwrap();
    assert_eq!(exported.iter().count(), 2);
    assert_eq!(LinkEnvelope::find(&exported), Some(Ok(envelope())));
}

#[test]
fn documented_examples_are_read() {
    let page = include_str!("../../docs/links.md");
    let block = |language: &str| {
        let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
        rest.split_once("\n```").unwrap().0
    };
    assert_eq!(LinkEnvelope::from_value(block("text")), Ok(envelope()));
    assert_eq!(ManifestBatch::from_json(block("json").as_bytes()), Ok(batch_of(&[manifest(), idle_manifest()])));
    let read = GatewayBye::from_json(block("js").as_bytes()).unwrap();
    assert_eq!((read.gateway, read.named_to[3], read.named_to[4]), (bye().gateway, Some(1207), None));
}

#[test]
fn reports_of_losses_are_read_as_written() {
    let subject: Subject = "plant.7".parse().unwrap();
    for count in [Count::Exact(40), Count::from_bounds(1, 9), Count::from_bounds(0, u64::MAX)] {
        for is_durable in [false, true] {
            let (origin, subject) = (envelope(), subject.clone());
            let loss = SiteLoss { origin, subject, count, follows: true, is_durable };
            assert_eq!(SiteReport::from_json(&loss.to_json()), Some(SiteReport::Loss(Box::new(loss))));
        }
    }
    let tail = SiteTail { site: envelope().site, gateway: envelope().point.gateway };
    assert_eq!(SiteReport::from_json(&tail.to_json()), Some(SiteReport::Tail(tail)));
    let origin = envelope().to_value();
    let largest = "x".repeat(5_000);
    for report in [
        "{}".to_owned(),
        "[7]".to_owned(),
        r#"{"site":"plant1","gateway":"6b1f90a2c3d4e5f6","tail":false}"#.to_owned(),
        r#"{"site":"a.b","gateway":"6b1f90a2c3d4e5f6","tail":true}"#.to_owned(),
        format!(r#"{{"subject":"a","origin":"{origin}","follows":true,"lost_min":9,"lost_max":1}}"#),
        format!(r#"{{"subject":"a..b","origin":"{origin}","follows":true,"lost_min":1,"lost_max":1}}"#),
        format!(r#"{{"subject":"a","origin":"{largest}","follows":true,"lost_min":1,"lost_max":1}}"#),
    ] {
        assert_eq!(SiteReport::from_json(report.as_bytes()), None, "{report}");
    }
}

fn manifest() -> LinkManifest {
    let LinkEnvelope { site, share, publisher, point, .. } = envelope();
    let subject = "plant.press.1".parse().unwrap();
    let entries = vec![ManifestEntry { publisher, subject, last_number: 1207, last: point }];
    let gateway = point.gateway;
    LinkManifest {
        site,
        gateway,
        share,
        carries: true,
        after: 1199,
        named_to: 1207,
        received: 1207,
        part: 0,
        parts: 1,
        entries,
    }
}

fn idle_manifest() -> LinkManifest {
    LinkManifest { share: 4, carries: false, after: 12, named_to: 12, received: 15, entries: Vec::new(), ..manifest() }
}

/// Returns the manifests as those of one message, which has room for them.
fn batch_of(manifests: &[LinkManifest]) -> ManifestBatch {
    let mut batch = ManifestBatch::default();
    manifests.iter().for_each(|manifest| assert_eq!(batch.add(manifest.clone()), None));
    batch
}

#[test]
fn manifests_are_read_as_written() {
    let text = concat!(
        r#"{"site":"plant1","gateway":"6b1f90a2c3d4e5f6","shares":["#,
        r#"{"share":3,"carries":true,"after":1199,"named_to":1207,"streams":["#,
        r#"{"publisher":"b41c09e2aa70d355","name":"A.test","subject":"plant.press.1","first":1102,"last":1207,"ordinal":18,"#,
        r#""seq":"5c19adc000000007","offset":4711,"frame":"b8335b8"}]},"#,
        r#"{"share":4,"carries":false,"after":12,"received":15},"#,
        r#"{"share":3,"carries":true,"after":0,"part":1,"parts":3}]}"#,
    );
    let part =
        LinkManifest { after: 0, named_to: 0, received: 0, part: 1, parts: 3, entries: Vec::new(), ..manifest() };
    let batch = batch_of(&[manifest(), idle_manifest(), part]);
    assert_eq!(String::from_utf8(batch.to_json().unwrap()).unwrap(), text);
    assert_eq!(ManifestBatch::from_json(text.as_bytes()), Ok(batch));
    assert_eq!(ManifestBatch::default().to_json(), None);
}

#[test]
fn message_takes_limited_manifests() {
    let mut batch = batch_of(&vec![idle_manifest(); usize::from(SHARES)]);
    let full = batch.add(idle_manifest()).unwrap();
    assert_eq!([full.into_iter().count(), batch.into_iter().count()], [16, 1]);
    let entry = &manifest().entries[0];
    let of = |count| LinkManifest { entries: vec![entry.clone(); count], ..manifest() };
    let mut batch = batch_of(&[of(ENTRIES_MAX - 1), of(1), of(0)]);
    let full = batch.add(of(1)).unwrap();
    assert_eq!([full.into_iter().count(), batch.into_iter().count()], [3, 1]);
}

#[test]
fn manifest_with_contradictions_is_refused() {
    let error = |change: &dyn Fn(&mut LinkManifest)| {
        let mut manifest = manifest();
        change(&mut manifest);
        ManifestBatch::from_json(&batch_of(&[idle_manifest(), manifest]).to_json().unwrap()).unwrap_err()
    };
    assert_eq!(error(&|manifest| manifest.parts = 0), InvalidManifest::Round);
    assert_eq!(error(&|manifest| manifest.after = 1208), InvalidManifest::Round);
    assert_eq!(error(&|manifest| manifest.received = 1206), InvalidManifest::Round);
    assert_eq!(error(&|manifest| manifest.share = SHARES), InvalidManifest::Malformed("share"));
    assert_eq!(error(&|manifest| manifest.entries[0].last_number = 1208), InvalidManifest::Stream);
    assert_eq!(error(&|manifest| manifest.entries[0].last_number = 1199), InvalidManifest::Stream);
    assert_eq!(error(&|manifest| manifest.entries[0].last.ordinal = 0), InvalidManifest::Stream);
    assert_eq!(error(&|manifest| manifest.entries[0].last.first_number = 1208), InvalidManifest::Stream);
}

#[test]
fn manifests_beyond_their_limits_are_refused() {
    let text = String::from_utf8(batch_of(&[manifest()]).to_json().unwrap()).unwrap();
    let error = |from: &str, to: &str, count: usize| {
        let (first, rest) = text.split_once(from).unwrap();
        let (part, last) = rest.split_once(to).unwrap();
        let part = vec![format!("{from}{part}{to}"); count].join(",");
        ManifestBatch::from_json(format!("{first}{part}{last}").as_bytes()).unwrap_err()
    };
    let of_share = r#"{"share""#;
    assert_eq!(error(of_share, "}]}", 0), InvalidManifest::Malformed("shares"));
    assert_eq!(error(of_share, "}]}", usize::from(SHARES) + 1), InvalidManifest::TooManyShares);
    assert_eq!(error(r#"{"publisher""#, "}", ENTRIES_MAX + 1), InvalidManifest::TooManyEntries);
    assert_eq!(ManifestBatch::from_json(&vec![b' '; MANIFEST_BYTES_MAX + 1]), Err(InvalidManifest::TooLong));
    assert_eq!(ManifestBatch::from_json(b"{}"), Err(InvalidManifest::Malformed("JSON")));
}

fn bye() -> GatewayBye {
    let mut named_to = [None; SHARES as usize];
    (named_to[3], named_to[15]) = (Some(1207), Some(0));
    GatewayBye { site: "plant1".parse().unwrap(), gateway: epoch(0x6b1f_90a2_c3d4_e5f6), named_to }
}

#[test]
fn bye_is_read_as_written() {
    let text = concat!(
        r#"{"site":"plant1","gateway":"6b1f90a2c3d4e5f6","named_to":"#,
        "[null,null,null,1207,null,null,null,null,null,null,null,null,null,null,null,0]}"
    );
    assert_eq!(String::from_utf8(bye().to_json()).unwrap(), text);
    assert_eq!(GatewayBye::from_json(text.as_bytes()), Ok(bye()));
    let site = "s".repeat(32).parse().unwrap();
    let largest = GatewayBye { site, gateway: epoch(u64::MAX), named_to: [Some(u64::MAX); SHARES as usize] };
    assert_eq!(largest.to_json().len(), 421);
    assert_eq!(GatewayBye::from_json(&largest.to_json()), Ok(largest));
}

#[test]
fn wrong_bye_is_refused() {
    let text = String::from_utf8(bye().to_json()).unwrap();
    let error = |from: &str, to: &str| GatewayBye::from_json(text.replacen(from, to, 1).as_bytes()).unwrap_err();
    assert_eq!(error("{", ""), InvalidBye::Malformed("JSON"));
    assert_eq!(error("1207", "-1"), InvalidBye::Malformed("JSON"));
    assert_eq!(error("plant1", "a b"), InvalidBye::Malformed("site"));
    assert_eq!(error("6b1f90a2c3d4e5f6", "6"), InvalidBye::Malformed("gateway"));
    assert_eq!(error("null,", ""), InvalidBye::Malformed("named_to"));
    assert_eq!(error("null,", "null,null,"), InvalidBye::Malformed("named_to"));
    assert_eq!(error("{", &" ".repeat(BYE_BYTES_MAX)), InvalidBye::TooLong);
}

#[test]
fn largest_manifest_and_envelope_keep_their_limits() {
    let seq = Seq::new(u64::MAX).unwrap();
    let before = Some(NumberingEnd { seq, offset: Some(u32::MAX), numbered_from: Some(seq.frame()) });
    let position = PublisherPosition {
        seq: Some(seq),
        offset: Some(u32::MAX),
        numbered_from: Some(seq.frame()),
        before,
        is_sparse: false,
    };
    let point = StreamPoint { gateway: epoch(u64::MAX), first_number: u64::MAX, ordinal: u64::MAX, position };
    let publisher = RemotePublisher { epoch: epoch(u64::MAX), name: Some("n".repeat(64).parse().unwrap()) };
    let site = "s".repeat(32).parse().unwrap();
    let envelope = LinkEnvelope { site, share: 15, number: u64::MAX, publisher: publisher.clone(), point };
    assert_eq!(LinkEnvelope::from_value(&envelope.to_value()), Ok(envelope.clone()));
    // JSON writes a quotation mark as two bytes.
    let subject = "\"".repeat(SUBJECT_BYTES_MAX).parse().unwrap();
    let entry = ManifestEntry { publisher, subject, last_number: u64::MAX, last: point };
    let (site, gateway) = (envelope.site, point.gateway);
    let manifest = LinkManifest {
        site,
        gateway,
        share: 15,
        carries: false,
        after: u64::MAX - 1,
        named_to: u64::MAX,
        received: u64::MAX,
        part: u32::MAX - 1,
        parts: u32::MAX,
        entries: vec![entry; ENTRIES_MAX],
    };
    // A signature takes further bytes of the message.
    let text = batch_of(std::slice::from_ref(&manifest)).to_json().unwrap();
    assert!(text.len() + 1024 <= MANIFEST_BYTES_MAX, "{} bytes", text.len());
    assert_eq!(ManifestBatch::from_json(&text), Ok(batch_of(&[manifest])));
}

#[test]
fn every_share_has_subjects() {
    let mut counts = [0; SHARES as usize];
    for number in 0..16_000 {
        counts[usize::from(share_of(&format!("plant.{number}.speed").parse().unwrap()))] += 1;
    }
    assert!(counts.iter().all(|count| (700..1_300).contains(count)), "{counts:?}");
}

#[test]
fn dead_gateway_is_replaced_within_three_seconds() {
    let (a, b) = (epoch(1), epoch(2));
    let mut election = Election::new(a);
    election.set_linked(at(0), true);
    election.on_tick(at(2_499));
    assert!(!election.is_ready(), "another one may carry the shares");
    election.on_tick(at(2_500));
    assert!(election.is_ready());
    assert_eq!(election.carried().count(), 0, "the others may not have heard it yet");
    election.on_announcement(at(2_700), b, true);
    election.on_tick(at(2_750));
    let shared = election.carried().count();
    assert!((1..usize::from(SHARES)).contains(&shared), "{shared}");
    // The last announcement came just before the other gateway died.
    let taken = (0..3_000).map(|millis| at(2_750 + millis)).find(|now| {
        election.on_tick(*now);
        election.carried().count() == usize::from(SHARES)
    });
    assert_eq!(taken, Some(at(2_700) + GATEWAY_TIMEOUT));
    assert!(election.deadline(at(6_000)).is_none());
}

#[test]
fn gateway_listens_longer_while_another_one_carries() {
    let mut election = Election::new(epoch(1));
    election.set_linked(at(0), true);
    let is_ready = |election: &mut Election, millis: u64, other_is_ready: bool| {
        election.on_announcement(at(millis), epoch(2), other_is_ready);
        election.is_ready()
    };
    assert!(![1_000, 3_000, 4_999].into_iter().any(|millis| is_ready(&mut election, millis, true)));
    assert!(is_ready(&mut election, 5_000, true));
    election.pause(at(6_000));
    assert!(!is_ready(&mut election, 9_000, true));
    assert!(is_ready(&mut election, 9_100, false), "nobody else carries the shares");
}

#[test]
fn gateway_that_was_stopped_listens_again() {
    let mut election = Election::new(epoch(1));
    election.set_linked(at(0), true);
    election.on_tick(at(2_500));
    election.on_tick(at(2_750));
    assert_eq!(election.carried().count(), usize::from(SHARES));
    election.pause(at(9_000));
    assert_eq!((election.carried().count(), election.is_ready()), (0, false));
    election.on_tick(at(11_500));
    assert!(election.is_ready());
}

#[test]
fn gateway_without_its_cluster_carries_nothing() {
    let mut election = Election::new(epoch(1));
    election.set_linked(at(1_500), true);
    election.on_announcement(at(1_500), epoch(2), false);
    election.on_tick(at(4_000));
    election.on_tick(at(4_250));
    assert_eq!(election.carried().count(), usize::from(SHARES));
    election.set_linked(at(4_300), false);
    assert_eq!((election.carried().count(), election.is_ready()), (0, false));
}
