//! Tests of the publisher's side of repair, on datagrams as the sending side makes them.

use super::recently_resent::{LINGER, LINGER_ALONE, RESENT_TIME};
use super::*;
use crate::message::Message;
use crate::proto::Settings;
use crate::proto::send::{Origin, SendStream};
use crate::rng::Rng;
use crate::seqno::{Frame, Seq};
use crate::wire::{Content, ContentKind, Entry, RETAINED_BYTES_MIN, contents_of, sealed_allocation_max};
use std::collections::BTreeSet;
use std::time::Duration;

const DATAGRAM_BYTES: usize = 1400;
const FAR: RingSettings =
    RingSettings { bytes_max: 64 << 20, time: Duration::from_secs(30), manifest_bytes_max: 64 << 20 };

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

fn epoch(bits: u64) -> Epoch {
    Epoch::new(bits).expect("not 0")
}

/// A publisher's stream: the ring under test, and its model, a list of all sent datagrams.
struct Stream {
    send: SendStream,
    ring: Ring,
    sent: Vec<(u64, Bytes)>,
    subjects: Vec<u64>,
}

impl Stream {
    fn new(receiver: Option<Epoch>, settings: RingSettings) -> Stream {
        let peer = crate::proto::peer::tests::settings("P.test");
        let peer = Settings { datagram_bytes_max: DATAGRAM_BYTES, ..peer };
        let send = SendStream::new(receiver, &peer);
        Stream { send, ring: Ring::new(settings, Dseq(0)), sent: Vec::new(), subjects: vec![0; 5] }
    }

    fn publish(&mut self, now: Instant, rng: &mut Rng, payload_bytes: usize, seal: bool) {
        let subject = rng.below(5) as usize;
        self.subjects[subject] += 1;
        let seq = Seq::from_parts(Frame::new(9).unwrap(), self.subjects[subject]).filter(|_| subject != 0);
        let message = Message::new(format!("a.{subject}").parse().unwrap(), vec![subject as u8; payload_bytes]);
        let entry = Entry { message: (&message).into(), seq, stamp: None, chain: None };
        let origin = Origin { group: 1, epoch: epoch(7), started: Instant::ZERO };
        let mut out = Vec::new();
        self.send.push(now, &origin, &entry, &mut out);
        if seal {
            self.send.seal(now, &origin, &mut out);
        }
        for datagram in out {
            self.ring.push(now, datagram.dseq, datagram.before, &datagram.bytes);
            self.sent.push((datagram.before, datagram.bytes));
        }
    }

    /// Creates a stream of `datagrams` datagrams of about `bytes` each.
    fn of(datagrams: usize, bytes: usize, settings: RingSettings) -> Stream {
        let mut stream = Stream::new(None, settings);
        let mut rng = Rng::new(1);
        while stream.sent.len() < datagrams {
            stream.publish(at(0), &mut rng, bytes - 70, true);
        }
        stream
    }

    fn high(&self) -> Dseq {
        Dseq(self.sent.len() as u64)
    }

    fn bytes(&self, dseq: Dseq) -> &Bytes {
        &self.sent[dseq.0 as usize - 1].1
    }

    /// Returns the contents of a datagram, read from the datagram itself.
    fn contents(&self, dseq: Dseq) -> (u64, Vec<Content>) {
        let (before, bytes) = &self.sent[dseq.0 as usize - 1];
        (*before, contents_of(bytes))
    }

    fn assert_found(&self, dseq: Dseq) {
        let expected = if self.ring.trail() <= dseq {
            RingContent::Datagram(self.bytes(dseq).clone())
        } else if self.ring.manifest_trail() <= dseq {
            let (before, contents) = self.contents(dseq);
            RingContent::Manifest(before, contents)
        } else {
            RingContent::Expired
        };
        assert_eq!(self.ring.find(dseq), expected, "{dseq}");
        assert_eq!(self.ring.contents(dseq), (expected != RingContent::Expired).then(|| self.contents(dseq)));
    }
}

fn settings(rate_min: u64) -> ResendSettings {
    ResendSettings { rate_min, datagram_bytes_max: DATAGRAM_BYTES, requesters_max: 1024, ring_bytes: 1 << 40 }
}

fn ranges(ranges: &[(u64, u64)]) -> Vec<Range> {
    ranges.iter().map(|&(first, last)| Range { first: Dseq(first), last: Dseq(last) }).collect()
}

fn request(list: &[(u64, u64)]) -> ResendRequest {
    ResendRequest { epoch: epoch(7), directed: false, manifests_only: false, unicast: false, ranges: ranges(list) }
}

fn drain(resends: &mut Resends, now: Instant, ring: &Ring) -> Vec<ResendAnswer> {
    std::iter::from_fn(|| resends.poll_answer(now, ring, |_| None)).collect()
}

/// Returns each answer as text: its receiver and its datagrams.
fn describe(answers: &[ResendAnswer]) -> String {
    let text = |answer: &ResendAnswer| match answer {
        ResendAnswer::Resend { to: ResendTarget::Group, dseq, .. } => format!("group {dseq}"),
        ResendAnswer::Resend { to: ResendTarget::Member(to), dseq, .. } => format!("{:x} {dseq}", to.bits()),
        ResendAnswer::Manifest { to, manifest } => {
            format!("{:x} manifest {}+{}", to.bits(), manifest.first, manifest.datagrams.len())
        }
        ResendAnswer::Expired { to, expired } => {
            let gone = expired.ranges.iter().map(|range| format!(" {}-{}", range.first, range.last));
            format!("{:x} expired{}", to.bits(), gone.collect::<String>())
        }
    };
    answers.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Runs one line of a story: at this time in microseconds, this requester requests these ranges. Returns the answers.
fn request_resends(resends: &mut Resends, stream: &Stream, micros: u64, from: u64, list: &[(u64, u64)]) -> String {
    resends.on_request(at(micros), epoch(from), &request(list), stream.high());
    describe(&drain(resends, at(micros), &stream.ring))
}

// ---- the ring

/// Proves: W10, W125, resend
#[test]
fn random_rings_agree_with_all_sent_datagrams() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let bytes_max = [0, 6000, 30_000, 1 << 20][rng.below(4) as usize];
        let manifest_bytes_max = [0, 2000, 100_000][rng.below(3) as usize];
        let time = Duration::from_millis([20, 200, 100_000][rng.below(3) as usize]);
        let mut stream = Stream::new(None, RingSettings { bytes_max, time, manifest_bytes_max });
        let mut now = 0;
        for _ in 0..1000 {
            now += rng.below(2000);
            let payload_bytes = [0, 10, 300, 5000][rng.below(4) as usize];
            let seal = rng.chance(0.3);
            stream.publish(at(now), &mut rng, payload_bytes, seal);
            if rng.chance(0.05) {
                stream.ring.on_tick(at(now));
            }
            stream.ring.assert_invariants();
            assert!(stream.ring.bytes() <= bytes_max + manifest_bytes_max + 4096, "seed {seed}");
            if !stream.sent.is_empty() {
                stream.assert_found(Dseq(rng.between(1, stream.high().0)));
            }
            assert_eq!(stream.ring.find(stream.high().next()), RingContent::Expired);
        }
        assert_eq!(stream.ring.trail() <= stream.high(), 0 < bytes_max, "seed {seed}");
        stream.ring.on_tick(at(now) + 11 * time);
        assert_eq!(stream.ring.manifest_trail(), stream.high().next(), "seed {seed}: everything has expired");
    }
}

/// Proves: W112
#[test]
fn manifests_outlast_datagrams_ten_times() {
    let bytes_max = 100_000;
    let stream = Stream::of(3000, 1400, RingSettings { bytes_max, manifest_bytes_max: bytes_max, ..FAR });
    let (datagrams, manifests) = (3001 - stream.ring.trail().0, 3001 - stream.ring.manifest_trail().0);
    assert!(55 <= datagrams && 10 * datagrams <= manifests, "{manifests} manifests, {datagrams} datagrams");
    let mut stream = Stream::of(10, 1400, FAR);
    for (millis, trails) in [(29_999, (1, 1)), (30_001, (11, 1)), (299_999, (11, 1)), (300_001, (11, 11))] {
        stream.ring.on_tick(at(millis * 1000));
        assert_eq!((stream.ring.trail().0, stream.ring.manifest_trail().0), trails, "after {millis} ms");
    }
}

#[test]
fn datagram_is_retained_for_the_resend_time() {
    for (resend_time, trail) in [(1, 11), (30, 1)] {
        let mut stream = Stream::of(10, 1400, RingSettings { time: Duration::from_secs(resend_time), ..FAR });
        stream.ring.on_tick(at(2_000_000));
        assert_eq!(stream.ring.trail(), Dseq(trail), "{resend_time} s");
    }
}

/// The builder packs into allocations as large as the largest datagram. The ring must not keep them.
#[test]
fn ring_copies_short_datagrams_and_counts_their_overhead() {
    let stream = Stream::of(20_000, 72, RingSettings { bytes_max: 1 << 20, ..FAR });
    let kept = stream.high().0 + 1 - stream.ring.trail().0;
    assert!((8000..14_000).contains(&kept), "1 MiB has {kept} datagrams of about 70 bytes");
    let mut stream = Stream::of(1, 100, FAR);
    let bytes = Bytes::from(stream.sent[0].1.to_vec());
    stream.ring.push(at(0), Dseq(2), 1, &bytes);
    assert!(bytes.is_unique());
    assert!(stream.ring.bytes() < 20_000, "{} bytes for two short datagrams", stream.ring.bytes());
    assert_eq!(Ring::new(FAR, Dseq(0)).bytes(), 0, "an unused ring needs no memory");
}

#[test]
fn ring_keeps_long_datagrams_and_counts_their_allocations() {
    let bytes_max = 1 << 20;
    let mut stream = Stream::new(None, RingSettings { bytes_max, ..FAR });
    stream.send.limit_bytes(8972);
    (0..400).for_each(|_| stream.publish(at(0), &mut Rng::new(1), 8000, true));
    assert!(stream.ring.bytes() <= bytes_max + FAR.manifest_bytes_max);
    let trail = stream.ring.trail().0 as usize;
    let mut kept_bytes = 0;
    for (index, (_, bytes)) in stream.sent.iter_mut().enumerate() {
        let datagram = std::mem::take(bytes);
        let length = datagram.len();
        assert!((RETAINED_BYTES_MIN..=8972).contains(&length), "{length} bytes");
        match datagram.try_into_mut() {
            Ok(evicted) => {
                assert!(index + 1 < trail, "{} was evicted", index + 1);
                assert!(evicted.capacity() <= sealed_allocation_max(length), "{} for {length}", evicted.capacity());
            }
            Err(_) => kept_bytes += length,
        }
    }
    assert!(bytes_max * 3 / 4 < kept_bytes && kept_bytes <= bytes_max, "{kept_bytes} bytes are kept");
}

#[test]
fn mixed_lengths_leave_half_the_ring_usable() {
    let bytes_max = 2 << 20;
    let mut one_in_forty = [1472; 40];
    one_in_forty[7] = 100;
    let patterns: [&[usize]; 7] =
        [&[100, 1472], &[100, 8000], &one_in_forty, &[1000, 1100], &[4095, 4096, 8900], &[1472], &[65_000, 100]];
    for lengths in patterns {
        let mut ring = Ring::new(RingSettings { bytes_max, manifest_bytes_max: 0, ..FAR }, Dseq(0));
        let length_of = |number: u64| lengths[number as usize % lengths.len()];
        let high = 10_000;
        for number in 1..=high {
            ring.push(at(0), Dseq(number), number, &Bytes::from(vec![1; length_of(number)]));
        }
        ring.assert_invariants();
        assert_ne!(ring.trail(), Dseq(1), "{lengths:?}: the ring is full");
        let kept_bytes: usize = (ring.trail().0..=high).map(|number| length_of(number) + 512).sum();
        // The pacer lets the publisher be half of the ring ahead of the receivers, in bytes of receive windows.
        assert!(bytes_max / 2 <= kept_bytes, "{lengths:?}: {kept_bytes} bytes");
    }
}

// ---- recipients of answers

/// Proves: W113, W111, blackhole
#[test]
fn receiver_without_multicast_gets_unicast_resends() {
    let stream = Stream::of(4, 100, FAR);
    let mut resends = Resends::new(settings(8 << 20), at(0));
    let request_unicast = |resends: &mut Resends, micros, from| {
        let request = ResendRequest { unicast: true, ..request(&[(1, 1)]) };
        resends.on_request(at(micros), epoch(from), &request, stream.high());
        describe(&drain(resends, at(micros), &stream.ring))
    };
    for (micros, from) in (0..).step_by(500).zip([1, 2, 3, 1, 2]) {
        assert_eq!(request_unicast(&mut resends, micros, from), format!("{from:x} 1"));
    }
    assert_eq!(request_resends(&mut resends, &stream, 3000, 4, &[(1, 1)]), "4 1");
    assert_eq!(request_resends(&mut resends, &stream, 3500, 5, &[(1, 1)]), "group 1");
    assert_eq!(request_unicast(&mut resends, 4000, 1), "1 1");
}

/// Proves: W113, suppress
#[test]
fn first_requester_gets_unicast_second_causes_multicast() {
    let stream = Stream::of(20, 1400, FAR);
    let mut resends = Resends::new(settings(1 << 30), at(0));
    assert_eq!(request_resends(&mut resends, &stream, 0, 0xa, &[(3, 4), (9, 9)]), "a 3, a 4, a 9");
    assert_eq!(request_resends(&mut resends, &stream, 2_000, 0xa, &[(3, 5)]), "a 5", "3 and 4 are under way");
    assert_eq!(request_resends(&mut resends, &stream, 3_000, 0xb, &[(4, 4)]), "group 4", "a second requester");
    assert_eq!(request_resends(&mut resends, &stream, 12_900, 0xc, &[(4, 4)]), "", "the request crossed the resend");
    assert_eq!(request_resends(&mut resends, &stream, 12_900, 0xa, &[(3, 4)]), "a 3", "again, for the same");
    assert_eq!(
        request_resends(&mut resends, &stream, 13_000, 0xb, &[(4, 4)]),
        "b 4",
        "the requester may receive no multicast"
    );
    assert_eq!(request_resends(&mut resends, &stream, 13_100, 0xc, &[(4, 4)]), "group 4");
    assert_eq!(request_resends(&mut resends, &stream, 1_100_000, 0xb, &[(9, 9)]), "b 9", "forgotten after a second");
    assert_eq!(resends.counters().suppressed, 2 + 1 + 1);
    assert!(resends.is_idle());
    // Two peers request at once.
    resends.on_request(at(2_200_000), epoch(0xa), &request(&[(7, 8)]), stream.high());
    resends.on_request(at(2_200_000), epoch(0xb), &request(&[(8, 9)]), stream.high());
    assert!(!resends.is_idle());
    let answers = drain(&mut resends, at(2_200_000), &stream.ring);
    assert_eq!(describe(&answers), "a 7, group 8, b 9");
    let ResendAnswer::Resend { bytes, .. } = &answers[1] else { panic!("{answers:?}") };
    assert_eq!(bytes, stream.bytes(Dseq(8)));
    resends.assert_invariants();
}

/// Proves: W112
#[test]
fn too_large_datagrams_are_answered_by_manifests() {
    let mut stream = Stream::of(3, 1400, FAR);
    stream.publish(at(0), &mut Rng::new(1), 400, true);
    let mut resends = Resends::new(settings(1 << 30), at(0));
    assert_eq!(request_resends(&mut resends, &stream, 0, 0xa, &[(1, 1)]), "a 1");
    resends.limit_datagrams(epoch(0xa), 600);
    assert_eq!(request_resends(&mut resends, &stream, 20_000, 0xa, &[(1, 4)]), "a manifest 1+3, a 4");
    assert_eq!(request_resends(&mut resends, &stream, 40_000, 0xb, &[(1, 1)]), "group 1", "others get them");
    assert!(resends.is_idle());
}

#[test]
fn repeated_resend_names_its_requester() {
    let stream = Stream::of(3, 1400, FAR);
    let mut resends = Resends::new(settings(1 << 30), at(0));
    let mut repeated_for = |micros: u64, from: u64| {
        resends.on_request(at(micros), epoch(from), &request(&[(1, 1)]), stream.high());
        let answers = drain(&mut resends, at(micros), &stream.ring);
        let [ResendAnswer::Resend { repeated_for, .. }] = answers[..] else { panic!("{answers:?}") };
        repeated_for.map(Epoch::bits)
    };
    let found = [(0, 0xa), (20_000, 0xa), (40_000, 0xb), (60_000, 0xb), (2_000_000, 0xb)];
    assert_eq!(found.map(|(micros, from)| repeated_for(micros, from)), [None, Some(0xa), None, Some(0xb), None]);
}

/// After a loss at the source every receiver requests the datagram, each after a delay of its own, until it gets an
/// answer.
/// Proves: suppress
#[test]
fn thousand_requesters_of_one_datagram_cause_two_resends() {
    let stream = Stream::of(20, 1400, FAR);
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut resends = Resends::new(settings(1 << 20), at(0));
        let mut requests: Vec<(u64, u64)> = (1..=1000).map(|from| (rng.below(30_000), from)).collect();
        requests.sort_unstable();
        let (mut heard_by_all, mut sent, latency) = (None, 0, 1000);
        for (micros, from) in requests {
            if heard_by_all.is_some_and(|heard| heard <= micros) {
                continue;
            }
            resends.on_request(at(micros), epoch(from), &request(&[(5, 5)]), stream.high());
            for answer in drain(&mut resends, at(micros), &stream.ring) {
                sent += 1;
                if matches!(answer, ResendAnswer::Resend { to: ResendTarget::Group, .. }) {
                    heard_by_all = Some(micros + latency);
                }
            }
        }
        assert!(heard_by_all.is_some() && sent == 2, "seed {seed}: {sent} resends");
    }
    let mut resends = Resends::new(settings(1 << 20), at(0));
    for from in 1..=1000 {
        resends.on_request(at(0), epoch(from), &request(&[(5, 5)]), stream.high());
    }
    assert_eq!(describe(&drain(&mut resends, at(0), &stream.ring)), "group 5", "all at once");
}

/// Proves: W112, resend
#[test]
fn evicted_datagrams_are_answered_by_manifest_or_expired() {
    let stream = Stream::of(4000, 1400, RingSettings { bytes_max: 30_000, manifest_bytes_max: 60_000, ..FAR });
    let (trail, manifests) = (stream.ring.trail().0, stream.ring.manifest_trail().0);
    assert!(1 < manifests && manifests + 50 < trail && trail < 4000, "{manifests} {trail}");
    let mut resends = Resends::new(settings(1 << 30), at(0));
    let list = [(1, 1), (7, manifests + 1), (manifests + 5, manifests + 5), (trail - 1, trail + 1)];
    let expected = format!(
        "a expired 1-1 7-{}, a manifest {manifests}+2, a manifest {}+1, a manifest {}+1, a {trail}, a {}",
        manifests - 1,
        manifests + 5,
        trail - 1,
        trail + 1
    );
    assert_eq!(request_resends(&mut resends, &stream, 0, 0xa, &list), expected);
    // The requester gets all known contents, in the minimum number of datagrams.
    let all = ResendRequest { manifests_only: true, ..request(&[(manifests, 4000)]) };
    let outcome = resends.on_request(at(1), epoch(0xa), &all, stream.high());
    assert_eq!(outcome, RequestOutcome { accepted: 4001 - manifests, ..RequestOutcome::default() });
    let mut next = manifests;
    let answers = drain(&mut resends, at(1), &stream.ring);
    for answer in &answers {
        let ResendAnswer::Manifest { manifest, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((manifest.first.0, manifest.before), (next, stream.contents(Dseq(next)).0));
        for contents in &manifest.datagrams {
            assert_eq!(*contents, stream.contents(Dseq(next)).1);
            assert!(matches!(contents[0].kind, ContentKind::Run { count: 1 }));
            next += 1;
        }
    }
    assert_eq!(next, 4001);
    assert!(answers.len() as u64 <= (4001 - manifests).div_ceil(60), "{} manifests", answers.len());
    // The requester gets ranges of expired datagrams, up to the limit of a datagram.
    let gaps: Vec<_> = (1..=90).map(|at| (2 * at, 2 * at)).collect();
    resends.on_request(at(2), epoch(0xa), &request(&gaps), stream.high());
    let answers = drain(&mut resends, at(2), &stream.ring);
    let counts = answers.iter().map(|answer| match answer {
        ResendAnswer::Expired { expired, .. } => expired.ranges.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(counts.collect::<Vec<_>>(), [ExpiryNotice::ranges_max(DATAGRAM_BYTES), 90 - 84]);
}

/// Proves: W112
#[test]
fn directed_stream_is_resent_to_its_receiver_only() {
    let stream = Stream::of(9, 500, FAR);
    let mut inbox = Stream::new(Some(epoch(0xa)), RingSettings { bytes_max: 20_000, manifest_bytes_max: 0, ..FAR });
    for _ in 0..100 {
        inbox.publish(at(0), &mut Rng::new(2), 1000, true);
    }
    let trail = inbox.ring.trail().0;
    assert!(10 < trail && trail < 95 && inbox.ring.manifest_trail().0 == trail);
    let mut resends = Resends::new(settings(1 << 30), at(0));
    let mine = ResendRequest { directed: true, ..request(&[(3, 4), (trail - 1, trail), (100, 100)]) };
    for from in [0xa, 0xb] {
        resends.on_request(at(0), epoch(from), &mine, Dseq(100));
        resends.on_request(at(0), epoch(from), &request(&[(4, 4)]), stream.high());
    }
    let rings = |receiver: Epoch| (receiver == epoch(0xa)).then_some(&inbox.ring);
    let answers: Vec<_> = std::iter::from_fn(|| resends.poll_answer(at(0), &stream.ring, rings)).collect();
    let expected =
        format!("a expired 3-4 {0}-{0}, a {trail}, a 100, b expired 3-4 {0}-{trail} 100-100, group 4", trail - 1);
    assert_eq!(describe(&answers), expected);
    let receivers = answers.iter().filter_map(|answer| match answer {
        ResendAnswer::Expired { expired, .. } => expired.receiver,
        _ => None,
    });
    assert_eq!(receivers.collect::<Vec<_>>(), [epoch(0xa), epoch(0xb)]);
    let resent = answers.iter().filter_map(|answer| match answer {
        ResendAnswer::Resend { directed, dseq, bytes, .. } => {
            let of = if *directed { &inbox } else { &stream };
            assert_eq!(bytes, of.bytes(*dseq));
            Some(*directed)
        }
        _ => None,
    });
    assert_eq!(resent.collect::<Vec<_>>(), [true, true, false]);
    resends.on_request(at(2_999), epoch(0xa), &mine, Dseq(100));
    let answers: Vec<_> = std::iter::from_fn(|| resends.poll_answer(at(2_999), &stream.ring, rings)).collect();
    assert_eq!(describe(&answers), format!("a expired 3-4 {0}-{0}", trail - 1), "the others are under way");
}

/// The model: each wanted number by itself, and every resend ever made.
#[derive(Default)]
struct Twin {
    datagrams: BTreeMap<Epoch, BTreeSet<u64>>,
    contents: BTreeMap<Epoch, BTreeSet<u64>>,
    resent: BTreeMap<u64, (ResendTarget, Instant)>,
}

impl Twin {
    fn on_request(&mut self, now: Instant, from: Epoch, request: &ResendRequest, high: Dseq) -> RequestOutcome {
        let beyond_high = request.ranges.iter().filter(|range| high < range.last).count() as u64;
        let mut outcome = RequestOutcome { beyond_high, ..RequestOutcome::default() };
        for number in request.ranges.iter().flat_map(|range| range.first.0..=range.last.0) {
            let answered = self
                .resent
                .get(&number)
                .filter(|(to, at)| now < *at + if *to == ResendTarget::Group { LINGER } else { LINGER_ALONE });
            let answered = answered.map(|(to, _)| *to);
            if high.0 < number {
                continue;
            } else if request.manifests_only {
                self.contents.entry(from).or_default().insert(number);
                outcome.accepted += 1;
            } else if answered.is_some_and(|to| to == ResendTarget::Group || to == ResendTarget::Member(from)) {
                outcome.suppressed += 1;
            } else {
                self.datagrams.entry(from).or_default().insert(number);
                outcome.accepted += 1;
            }
        }
        outcome
    }

    fn wanted(&self, from: Epoch) -> BTreeSet<u64> {
        [&self.datagrams, &self.contents].into_iter().filter_map(|of| of.get(&from)).flatten().copied().collect()
    }

    fn lowest(&self) -> Option<u64> {
        [&self.datagrams, &self.contents].into_iter().flat_map(BTreeMap::values).flatten().min().copied()
    }

    fn wants_datagram(&self, number: u64) -> Vec<Epoch> {
        self.datagrams.iter().filter(|(_, wanted)| wanted.contains(&number)).map(|(from, _)| *from).collect()
    }

    /// Removes the numbers of an answer from the wanted ones, and checks that it is the right answer.
    fn on_answer(&mut self, now: Instant, answer: &ResendAnswer, stream: &Stream) {
        let (trail, manifests) = (stream.ring.trail().0, stream.ring.manifest_trail().0);
        match answer {
            ResendAnswer::Resend { to, directed, dseq, bytes, .. } => {
                assert!(!directed && trail <= dseq.0 && Some(dseq.0) == self.lowest(), "the oldest first");
                assert_eq!(bytes, stream.bytes(*dseq));
                let requesters = self.wants_datagram(dseq.0);
                let last = self.resent.insert(dseq.0, (*to, now)).filter(|(_, at)| now < *at + RESENT_TIME);
                let others = |than: Epoch| requesters.iter().any(|requester| *requester != than);
                let group = match last {
                    Some((ResendTarget::Group, _)) => false,
                    Some((ResendTarget::Member(last), _)) => others(last),
                    None => 1 < requesters.len(),
                };
                match to {
                    ResendTarget::Group => assert!(group),
                    ResendTarget::Member(to) => {
                        assert!(requesters.contains(to) && (!group || last == Some((ResendTarget::Member(*to), now))))
                    }
                }
                for (_, wanted) in self.datagrams.iter_mut().chain(&mut self.contents).filter(|(from, _)| {
                    // A requester of the contents learns them from the datagram, too.
                    *to == ResendTarget::Group || *to == ResendTarget::Member(**from)
                }) {
                    wanted.remove(&dseq.0);
                }
            }
            ResendAnswer::Manifest { to, manifest } => {
                assert_eq!(Some(manifest.first.0), self.lowest(), "the oldest first");
                assert_eq!(manifest.before, stream.contents(manifest.first).0);
                for (number, contents) in (manifest.first.0..).zip(&manifest.datagrams) {
                    assert_eq!(*contents, stream.contents(Dseq(number)).1);
                    let was_requested = self.contents.entry(*to).or_default().remove(&number);
                    let gone = number < trail && self.datagrams.entry(*to).or_default().remove(&number);
                    assert!(manifests <= number && (was_requested || gone), "{number} was requested");
                }
            }
            ResendAnswer::Expired { to, expired } => {
                assert_eq!(expired.receiver, None);
                assert_eq!(Some(expired.ranges[0].first.0), self.lowest(), "the oldest first");
                for number in expired.ranges.iter().flat_map(|range| range.first.0..=range.last.0) {
                    assert!(number < manifests && self.wanted(*to).contains(&number), "{number} was requested");
                    self.datagrams.entry(*to).or_default().remove(&number);
                    self.contents.entry(*to).or_default().remove(&number);
                }
            }
        }
    }
}

/// Proves: resend, suppress
#[test]
fn random_requests_agree_with_reference_model() {
    // Each seed has 400 requests of up to five ranges.
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let limits = RingSettings { bytes_max: 20_000, time: Duration::from_secs(5), manifest_bytes_max: 4000 };
        let mut stream = Stream::new(None, limits);
        let mut resends = Resends::new(settings(1 << 30), at(0));
        let mut model = Twin::default();
        let mut micros = 0;
        for _ in 0..400 {
            micros += if rng.chance(0.5) { rng.below(3000) } else { rng.below(30_000) };
            for _ in 0..rng.below(4) {
                let payload_bytes = rng.below(900) as usize;
                stream.publish(at(micros), &mut rng, payload_bytes, true);
            }
            let from = epoch(rng.between(1, 4));
            if rng.chance(0.01) {
                resends.remove_requester(from);
                model.datagrams.remove(&from);
                model.contents.remove(&from);
            }
            let mut first = stream.high().0.saturating_sub(rng.below(120)).max(1);
            let mut list = Vec::new();
            for _ in 0..rng.between(1, 5) {
                let last = first + rng.below(4);
                list.push((first, last));
                first = last + rng.between(1, 9);
            }
            let request = ResendRequest { manifests_only: rng.chance(0.2), ..request(&list) };
            let expected = model.on_request(at(micros), from, &request, stream.high());
            assert_eq!(resends.on_request(at(micros), from, &request, stream.high()), expected, "seed {seed}");
            resends.assert_invariants();
            for _ in 0..rng.below(12) {
                let Some(answer) = resends.poll_answer(at(micros), &stream.ring, |_| None) else { break };
                model.on_answer(at(micros), &answer, &stream);
                resends.assert_invariants();
            }
            assert_eq!(resends.is_idle(), model.lowest().is_none(), "seed {seed}");
        }
        while let Some(deadline) = resends.deadline() {
            for answer in drain(&mut resends, deadline.max(at(micros)), &stream.ring) {
                model.on_answer(deadline.max(at(micros)), &answer, &stream);
            }
        }
        assert_eq!(model.lowest(), None, "seed {seed}: every request is answered");
    }
}

// ---- the budget

/// Proves: W114, budget
#[test]
fn request_storm_stays_within_quarter_of_live_rate() {
    let stream = Stream::of(20_000, 1400, FAR);
    let mut resends = Resends::new(settings(1_000_000), at(0));
    let mut log: Vec<(u64, usize)> = Vec::new();
    let mut rng = Rng::new(3);
    for millis in 0..4000 {
        // 20 MB/s for two seconds.
        if (1000..3000).contains(&millis) {
            resends.on_sent(at(millis * 1000), 20_000);
        }
        for _ in 0..3 {
            let first = rng.between(1, 19_000);
            let from = epoch(rng.between(1, 64));
            resends.on_request(at(millis * 1000), from, &request(&[(first, first + 900)]), stream.high());
        }
        for answer in drain(&mut resends, at(millis * 1000), &stream.ring) {
            let ResendAnswer::Resend { bytes, .. } = answer else { panic!("{answer:?}") };
            log.push((millis, bytes.len()));
        }
        assert!(resends.deadline().is_some_and(|next| at(millis * 1000) < next), "all wait for the budget");
    }
    let sent = |from: u64, to: u64| -> u64 {
        log.iter().filter(|(millis, _)| (from..to).contains(millis)).map(|(_, bytes)| *bytes as u64).sum()
    };
    for (from, to, rate) in [(0, 1000, 1000), (2050, 3000, 5000), (0, 4000, 5000), (1000, 4000, 5000)] {
        assert!(sent(from, to) <= BURST_BYTES + (to - from) * rate, "{from}..{to}: {}", sent(from, to));
    }
    for from in (100..900).chain(2100..2900) {
        let rate = if from < 1000 { 1000 } else { 5000 };
        assert!(sent(from, from + 100) <= 100 * rate + 1400, "{from}: {} bytes in 100 ms", sent(from, from + 100));
    }
    // The budget is used: nearly all of it while there is demand.
    assert!(
        900_000 <= sent(100, 1000) * 10 / 9 && 4_300_000 <= sent(2050, 3000),
        "{} {}",
        sent(100, 1000),
        sent(2050, 3000)
    );
    assert_eq!(resends.counters().bytes, sent(0, 4000));
    assert!(0 < resends.counters().waits);
}

#[test]
fn answers_without_live_data_keep_the_resend_rate() {
    let stream = Stream::of(2000, 1400, FAR);
    for resend_rate in [100_000, 1_000_000] {
        let mut resends = Resends::new(settings(resend_rate), at(0));
        // Several peers send requests, each for no more datagrams than it can miss.
        for requester in 0..10 {
            let first = 1 + 200 * requester;
            resends.on_request(at(0), epoch(100 + requester), &request(&[(first, first + 199)]), stream.high());
        }
        (0..1000).for_each(|millis| drop(drain(&mut resends, at(millis * 1000), &stream.ring)));
        let (bytes, most) = (resends.counters().bytes, BURST_BYTES + resend_rate);
        assert!(most * 9 / 10 < bytes && bytes <= most, "{bytes} of {most} in a second");
    }
}

/// 63 members each request a part of the history of their own, or all request all of it; one more requests little.
/// Proves: W114, budget
#[test]
fn large_requests_do_not_delay_small_ones() {
    let stream = Stream::of(64 * 300, 1400, FAR);
    for everything in [false, true] {
        let mut resends = Resends::new(settings(1_000_000), at(0));
        for from in 0..63 {
            let part = if everything { (1, stream.high().0) } else { (300 * from + 1, 300 * from + 300) };
            resends.on_request(at(0), epoch(from + 1), &request(&[part]), stream.high());
        }
        let (mut answered, mut last_little) = (BTreeMap::new(), None);
        let little = [(19_190, 19_190), (19_195, 19_195)];
        for millis in 0..2000 {
            if millis == 500 {
                resends.on_request(at(500_000), epoch(64), &request(&little), stream.high());
            }
            for answer in drain(&mut resends, at(millis * 1000), &stream.ring) {
                let ResendAnswer::Resend { to, dseq, .. } = answer else { panic!("{answer:?}") };
                let (ResendTarget::Member(from), Dseq(number)) = (to, dseq) else { continue };
                *answered.entry(from).or_insert(0) += 1;
                if from == epoch(64) && number == little[1].0 {
                    last_little = Some(millis);
                }
            }
            resends.assert_invariants();
        }
        if everything {
            let counters = resends.counters();
            assert!(1500 <= counters.resent_multicast && counters.resent_unicast <= 2, "{counters:?}");
            continue;
        }
        // 1 MB/s and 64 requesters: a share is a datagram each 90 ms.
        assert!(last_little.is_some_and(|millis| millis <= 500 + 2 * 90 + 5), "{last_little:?}");
        let shares: Vec<i32> = answered.into_values().take(63).collect();
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(shares.len() == 63 && 20 <= *least && *most <= least + 3, "{shares:?}");
    }
}

// ---- bad input

/// Proves: W104, W115
#[test]
fn absurd_requests_cost_work_proportional_to_their_bytes() {
    let mut stream = Stream::of(3000, 200, RingSettings { bytes_max: 100_000, manifest_bytes_max: 10_000, ..FAR });
    let mut resends = Resends::new(settings(1 << 30), at(0));
    let high = stream.high();
    let outcome = resends.on_request(at(0), epoch(1), &request(&[(1, u64::MAX / 2)]), high);
    assert_eq!(outcome, RequestOutcome { accepted: 3000, beyond_high: 1, ..RequestOutcome::default() });
    let outcome = resends.on_request(at(0), epoch(2), &request(&[(1 << 40, 1 << 62)]), high);
    assert_eq!(outcome, RequestOutcome { beyond_high: 1, ..RequestOutcome::default() });
    // Of thousands of ranges, those beyond the limit are refused, and the oldest are kept.
    let odd: Vec<_> = (0..1500).map(|at| (2 * at + 1, 2 * at + 1)).collect();
    resends.on_request(at(0), epoch(3), &request(&odd[200..]), high);
    let outcome = resends.on_request(at(0), epoch(3), &request(&odd[..200]), high);
    assert_eq!((outcome.refused, resends.counters().over_limit), (200, 1500 - RANGES_EACH_MAX as u64));
    resends.assert_invariants();
    let mut expired = 0;
    while let Some(deadline) = resends.deadline() {
        for answer in drain(&mut resends, deadline.max(at(0)), &stream.ring) {
            if let ResendAnswer::Expired { to, expired: gone } = answer
                && to == epoch(1)
            {
                assert_eq!(gone.ranges.len(), 1, "coalesced");
                expired += gone.ranges[0].datagrams();
            }
        }
        resends.assert_invariants();
    }
    assert_eq!(expired, stream.ring.manifest_trail().0 - 1);
    // The ring is emptied while a request waits.
    resends.on_request(at(399_000_000), epoch(1), &request(&[(1, 3000)]), high);
    stream.ring.on_tick(at(400_000_000));
    assert_eq!(describe(&drain(&mut resends, at(400_000_000), &stream.ring)), "1 expired 1-3000");
}

/// Resends of distant numbers from the middle of others' ranges split these ranges.
#[test]
fn random_requests_keep_stored_ranges_bounded() {
    let stream = Stream::of(9000, 72, FAR);
    let mut resends = Resends::new(ResendSettings { requesters_max: 40, ..settings(1 << 40) }, at(0));
    let mut rng = Rng::new(5);
    let mut micros = 0;
    for _ in 0..4000 {
        micros += rng.below(300);
        let from = epoch(rng.between(1, 50));
        let mut list = Vec::new();
        let mut first = rng.between(1, 6000);
        let count = if rng.chance(0.5) { rng.between(1, 3) } else { rng.between(1, 2000) };
        while (list.len() as u64) < count {
            let last = first + if rng.chance(0.0005) { rng.below(5000) } else { 0 };
            list.push((first, last));
            first = last + 2;
        }
        let request = ResendRequest { manifests_only: rng.chance(0.2), directed: false, ..request(&list) };
        resends.on_request(at(micros), from, &request, stream.high());
        for _ in 0..rng.below(40) {
            if resends.poll_answer(at(micros), &stream.ring, |_| None).is_none() {
                break;
            }
        }
        resends.assert_invariants();
        if rng.chance(0.01) {
            resends.remove_requester(from);
        }
    }
    let counters = resends.counters();
    assert!(0 < counters.over_limit && 0 < counters.requests_refused, "{counters:?}");
}

/// Proves: W115
#[test]
fn floods_of_requests_are_refused_and_counted() {
    let stream = Stream::of(100, 1400, FAR);
    let mut resends = Resends::new(ResendSettings { requesters_max: 2, ..settings(1) }, at(0));
    resends.sent = 1 << 30;
    let flood = request(&[(1, u64::MAX / 2)]);
    let looked_at = (0..100_000)
        .filter(|micros| {
            let outcome = resends.on_request(at(*micros), epoch(1), &flood, stream.high());
            drain(&mut resends, at(*micros), &stream.ring);
            outcome.refused < u64::MAX / 2
        })
        .count();
    assert_eq!(looked_at as u64, REQUESTS_BURST + 99, "in 0.1 s");
    assert_eq!(resends.counters().requests_refused, 100_000 - looked_at as u64);
    assert!(resends.counters().bytes <= BURST_BYTES + 1);
    // Other requesters are still served, up to the limit on requesters.
    assert_eq!(resends.on_request(at(100_000), epoch(2), &request(&[(7, 7)]), stream.high()).accepted, 1);
    let refused = resends.on_request(at(100_000), epoch(3), &request(&[(7, 9)]), stream.high());
    assert_eq!(refused, RequestOutcome { refused: 3, ..RequestOutcome::default() });
    resends.remove_requester(epoch(1));
    assert_eq!(resends.on_request(at(100_000), epoch(3), &request(&[(7, 9)]), stream.high()).accepted, 3);
    resends.assert_invariants();
}

/// Proves: credit
#[test]
fn requester_gets_no_more_than_it_can_miss() {
    const LIVE: u64 = 1_000_000;
    let stream = Stream::of(100, 1400, FAR);
    let mut resends = Resends::new(ResendSettings { ring_bytes: LIVE, ..settings(1 << 30) }, at(0));
    let flood = |resends: &mut Resends, from: u64, micros: u64| {
        let before = resends.counters().bytes;
        for micros in (micros..micros + 10_000_000).step_by(10_000) {
            resends.on_request(at(micros), epoch(from), &request(&[(1, 100)]), stream.high());
            drain(resends, at(micros), &stream.ring);
        }
        resends.counters().bytes - before
    };
    resends.on_sent(at(0), LIVE as usize);
    let (most, datagram) = (BURST_BYTES + CREDIT_TIMES * LIVE, DATAGRAM_BYTES as u64);
    let bytes = flood(&mut resends, 1, 1_000_000);
    assert!((most - 2 * datagram..=most).contains(&bytes), "{bytes} of {most}");
    assert!(resends.is_idle() && 0 < resends.counters().requests_refused);
    resends.on_sent(at(20_000_000), 50_000);
    let bytes = flood(&mut resends, 1, 20_000_000);
    assert!((198_000..=202_000).contains(&bytes), "{bytes} after 50,000 more");
    // The credit that another requester used up makes no difference.
    assert!(LIVE < flood(&mut resends, 2, 40_000_000));
    resends.assert_invariants();
}
