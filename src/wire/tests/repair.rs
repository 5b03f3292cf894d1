//! Tests of what repair adds: requests, manifests, EXPIRED, and the fields of announcements.

use super::*;

#[test]
fn what_is_said_of_repair_decodes_to_the_same() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        for record in [request(&mut rng), manifest(&mut rng), expired(&mut rng), announcement(&mut rng)] {
            let sealed = encode_control(&header(Kind::Control), &record, 0);
            let datagram = decode(sealed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(datagram.records, [record], "seed {seed}");
            assert_eq!(datagram.messages_begun(), 0, "nothing begins in a control datagram");
        }
    }
}

#[test]
fn ranges_fill_a_datagram_to_the_last() {
    for bytes_max in [576, 577, 1400, 1472, 8900, DATAGRAM_BYTES_MAX] {
        let ranges = |count: usize| -> Vec<Range> {
            (1..=count as u64).map(|at| Range { first: Dseq(at * 3), last: Dseq(at * 3 + 1) }).collect()
        };
        let bytes = |record: &Record| encode_control(&header(Kind::Control), record, 0).len();
        let max = ResendRequest::ranges_max(bytes_max);
        let request = |count| {
            let epoch = header(Kind::Data).epoch;
            Record::ResendRequest(ResendRequest { epoch, directed: true, manifests_only: false, ranges: ranges(count) })
        };
        let length = bytes(&request(max));
        assert!(length <= bytes_max && bytes_max < length + 16, "{max} ranges make {length} of {bytes_max} bytes");
        assert_eq!(Expired::ranges_max(bytes_max), max);
        let receiver = header(Kind::Directed).receiver;
        assert!(bytes(&Record::Expired(Expired { receiver, ranges: ranges(max) })) <= bytes_max);
    }
    assert_eq!(ResendRequest::ranges_max(0), 0);
    assert_eq!(ResendRequest::ranges_max(usize::MAX), ResendRequest::ranges_max(DATAGRAM_BYTES_MAX));
}

#[test]
fn the_contents_of_a_datagram_are_what_decoding_finds() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let kind = if rng.chance(0.5) { Kind::Data } else { Kind::Directed };
        let (sealed, begun) = data(&mut rng, 1400, kind);
        let records = decode(sealed.clone()).unwrap().records;
        let expected: Vec<Content> = records.iter().map(content).collect();
        let contents = contents_of(&sealed);
        assert_eq!(contents, expected, "seed {seed}");
        assert_eq!(contents.iter().map(Content::messages_begun).sum::<u64>(), begun, "seed {seed}");
        let mut kept = Vec::new();
        put_contents(&sealed, &mut kept);
        assert_eq!(decode_contents(&kept.into()), contents, "seed {seed}");
    }
}

#[test]
fn a_manifest_is_filled_to_the_size_of_a_datagram() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let bytes_max = [576, 1400, 8900][rng.below(3) as usize];
        let mut builder = ManifestBuilder::new(bytes_max, Dseq(7), 42);
        assert!(builder.is_empty());
        let mut pushed = Vec::new();
        loop {
            let contents = contents_of(&data(&mut rng, bytes_max, Kind::Data).0);
            let record = |datagrams| Record::Manifest(Manifest { first: Dseq(7), before: 42, datagrams });
            let mut with = pushed.clone();
            with.push(contents.clone());
            let bytes = encode_control(&header(Kind::Control), &record(with), 0).len();
            let is_taken = builder.push(&contents);
            // The first is always taken, and may be a little longer than the datagram was.
            assert_eq!(is_taken, bytes <= bytes_max || pushed.is_empty(), "seed {seed}: {bytes} of {bytes_max}");
            if !is_taken {
                break;
            }
            assert!(bytes <= bytes_max + 16, "seed {seed}: {bytes} of {bytes_max}");
            pushed.push(contents);
        }
        assert_eq!(builder.finish(), Manifest { first: Dseq(7), before: 42, datagrams: pushed }, "seed {seed}");
    }
}

#[test]
fn two_long_subjects_without_payload_make_the_longest_manifest() {
    let long =
        |letter: &str| Sent { seq: Seq::new(9), stamp: None, chain: None, message: message(&letter.repeat(248), b"") };
    let mut builder = Builder::new(576);
    assert!(builder.push(&long("a").entry()) && builder.push(&long("b").entry()));
    assert!(!builder.push(&long("c").entry()));
    let sealed = builder.seal(&header(Kind::Data));
    let mut manifests = ManifestBuilder::new(576, Dseq(7), 42);
    assert!(manifests.push(&contents_of(&sealed)));
    let record = Record::Manifest(manifests.finish());
    let bytes = encode_control(&header(Kind::Control), &record, 0).len();
    assert_eq!((sealed.len(), bytes), (576 - 8, 576 + 8));
}

/// What a record held, by its decoded form.
fn content(record: &Record) -> Content {
    match record {
        Record::Run(run) => Content {
            subject: run.subject.clone(),
            seq: run.first,
            chain: run.chain,
            event: run.event,
            what: ContentKind::Run { count: run.count },
        },
        Record::Fragment(part) => Content {
            subject: part.subject.clone(),
            seq: part.seq,
            chain: part.chain,
            event: part.event,
            what: ContentKind::Part { index: part.index, total: part.total },
        },
        other => panic!("not data: {other:?}"),
    }
}

/// A datagram with messages, often with a part of one at an end; and how many messages it began.
fn data(rng: &mut Rng, bytes_max: usize, kind: Kind) -> (Bytes, u64) {
    let mut builder = Builder::new(bytes_max);
    let large = following(rng, None);
    let body = noise(rng, 3 * bytes_max);
    if rng.chance(0.3) {
        builder.push_fragment(&large.entry(), &body, 2, body.len() - 100);
    }
    let mut next: Option<Sent> = None;
    for _ in 0..rng.below(40) {
        let sent = following(rng, next.as_ref());
        builder.push(&sent.entry());
        next = Some(sent);
    }
    if rng.chance(0.3) {
        builder.push_fragment(&large.entry(), &body, 0, 0);
    }
    let begun = builder.messages();
    (builder.seal(&header(kind)), begun)
}

fn ranges(rng: &mut Rng) -> Vec<Range> {
    let mut ranges = Vec::new();
    let mut high = 0;
    for _ in 0..=rng.below(40) {
        let first = high + 1 + rng.below(3);
        high = first + if rng.chance(0.5) { 0 } else { rng.below(1 << 40) };
        ranges.push(Range { first: Dseq(first), last: Dseq(high) });
    }
    ranges
}

fn request(rng: &mut Rng) -> Record {
    let (directed, manifests_only) = [(false, false), (false, true), (true, false)][rng.below(3) as usize];
    let epoch = Epoch::new(rng.next_u64() | 1).unwrap();
    Record::ResendRequest(ResendRequest { epoch, directed, manifests_only, ranges: ranges(rng) })
}

fn expired(rng: &mut Rng) -> Record {
    let receiver = if rng.chance(0.5) { Epoch::new(rng.next_u64() | 1) } else { None };
    Record::Expired(Expired { receiver, ranges: ranges(rng) })
}

fn manifest(rng: &mut Rng) -> Record {
    let mut builder = ManifestBuilder::new(DATAGRAM_BYTES_MAX, Dseq(7), rng.below(1 << 62));
    for _ in 0..=rng.below(20) {
        assert!(builder.push(&contents_of(&data(rng, 1400, Kind::Data).0)));
    }
    Record::Manifest(builder.finish())
}

fn announcement(rng: &mut Rng) -> Record {
    let token = |rng: &mut Rng| if rng.chance(0.5) { Some(rng.next_u64() | 1) } else { None };
    let (token, echo) = (token(rng), token(rng));
    let mut number = || rng.below(NUMBER_LIMIT);
    let report = Report {
        missing: number(),
        repaired: number(),
        pending: number(),
        unverified: number(),
        lost_min: 3,
        lost_max: number().max(3),
    };
    let report = if rng.chance(0.5) { Some(Box::new(report)) } else { None };
    let announce = Announce { token, echo, report, ..announce() };
    match rng.below(3) {
        0 => Record::Heartbeat(announce),
        1 => Record::Hello(Hello { cookie: rng.next_u64(), wants_reply: rng.chance(0.5), announce }),
        _ => Record::Bye(announce),
    }
}
