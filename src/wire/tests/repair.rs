//! Tests of repair and pacing on the wire: requests, manifests, EXPIRED, RECEIVER_REPORT, and the fields of
//! announcements.

use super::*;
use crate::subject::SubjectError;

#[test]
fn repair_records_decode_to_the_same() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let report = receiver_report(&mut rng);
        for record in [request(&mut rng), manifest(&mut rng), expired(&mut rng), announcement(&mut rng), report] {
            let sealed = encode_control(&header(Kind::Control), &record, 0);
            let datagram = decode(sealed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(datagram.records, [record], "seed {seed}");
            assert_eq!(datagram.messages_begun(), 0, "no message begins in a control datagram");
        }
    }
}

#[test]
fn range_limit_fills_a_datagram() {
    for bytes_max in [576, 577, 1400, 1472, 8900, DATAGRAM_BYTES_MAX] {
        let ranges = |count: usize| -> Vec<Range> {
            (1..=count as u64).map(|at| Range { first: Dseq(at * 3), last: Dseq(at * 3 + 1) }).collect()
        };
        let bytes = |record: &Record| encode_control(&header(Kind::Control), record, 0).len();
        let max = ResendRequest::ranges_max(bytes_max);
        let request = |count| {
            let epoch = header(Kind::Data).epoch;
            Record::ResendRequest(ResendRequest {
                epoch,
                directed: true,
                manifests_only: false,
                unicast: false,
                ranges: ranges(count),
            })
        };
        let length = bytes(&request(max));
        assert!(length <= bytes_max && bytes_max < length + 16, "{max} ranges make {length} of {bytes_max} bytes");
        assert_eq!(ExpiryNotice::ranges_max(bytes_max), max);
        let receiver = header(Kind::Directed).receiver;
        assert!(bytes(&Record::Expired(ExpiryNotice { receiver, ranges: ranges(max) })) <= bytes_max);
    }
    assert_eq!(ResendRequest::ranges_max(0), 0);
    assert_eq!(ResendRequest::ranges_max(usize::MAX), ResendRequest::ranges_max(DATAGRAM_BYTES_MAX));
}

#[test]
fn contents_agree_with_the_decoded_records() {
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

/// Proves: W119
#[test]
fn manifest_is_filled_to_the_datagram_size() {
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
            // An empty manifest takes any description, which may be slightly longer than its datagram.
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

/// Proves: W119
#[test]
fn two_long_subjects_make_the_longest_manifest() {
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

/// Returns the content of a record, from its decoded form.
fn content(record: &Record) -> Content {
    match record {
        Record::Run(run) => Content {
            subject: run.subject.clone(),
            seq: run.first,
            chain: run.chain,
            event: run.event,
            kind: ContentKind::Run { count: run.count },
        },
        Record::Fragment(part) => Content {
            subject: part.subject.clone(),
            seq: part.seq,
            chain: part.chain,
            event: part.event,
            kind: ContentKind::Part { index: part.index, total: part.total },
        },
        other => panic!("not data: {other:?}"),
    }
}

/// Returns a datagram with messages, often with a part of one at an end, and the number of messages begun in it.
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
    let unicast = rng.chance(0.5);
    Record::ResendRequest(ResendRequest { epoch, directed, manifests_only, unicast, ranges: ranges(rng) })
}

fn expired(rng: &mut Rng) -> Record {
    let receiver = if rng.chance(0.5) { Epoch::new(rng.next_u64() | 1) } else { None };
    Record::Expired(ExpiryNotice { receiver, ranges: ranges(rng) })
}

fn receiver_report(rng: &mut Rng) -> Record {
    let epoch = Epoch::new(rng.next_u64() | 1).unwrap();
    let mut number = || rng.below(NUMBER_LIMIT);
    let (taken, window, dropped) = (Dseq(number()), number(), number());
    let awaited = (dropped % 2 == 0).then(|| Dseq(1 + number() / 2));
    Record::ReceiverReport(ReceiverReport { epoch, taken, window, awaited, dropped })
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
        overrun: number() & 7,
        directed_lost: number() & 7,
    };
    let report = if rng.chance(0.5) { Some(Box::new(report)) } else { None };
    let mut version = || Some(rng.below(NUMBER_LIMIT)).filter(|version| version % 2 == 0);
    let (interest, interest_known) = (version(), version());
    let interest = interest.map(|version| InterestAnnouncement {
        version,
        suppresses: rng.chance(0.5),
        wants_confirmation: rng.chance(0.5),
    });
    let mut share = || {
        let (settled, served) = (Dseq(rng.below(NUMBER_LIMIT)), rng.below(NUMBER_LIMIT));
        ShareCount { settled, served, returned: rng.below(NUMBER_LIMIT) }
    };
    let queue = QueueReport { multicast: share(), directed: share() };
    let queue = rng.chance(0.5).then(|| Box::new(queue));
    let announce = PeerAnnouncement { token, echo, report, interest, interest_known, queue, ..announce() };
    match rng.below(3) {
        0 => Record::Heartbeat(Box::new(announce)),
        1 => Record::Hello(Box::new(Hello { cookie: rng.next_u64(), wants_reply: rng.chance(0.5), announce })),
        _ => Record::Bye(Box::new(announce)),
    }
}

/// Returns a unicast heartbeat with all fields.
pub(super) fn heartbeat_with_fields() -> Record {
    let report =
        Report { missing: 12, repaired: 9, pending: 1, unverified: 1, lost_min: 2, lost_max: 3, ..Report::default() };
    Record::Heartbeat(Box::new(PeerAnnouncement {
        trail: Dseq(2),
        manifest_trail: Dseq(1),
        directed_receiver: header(Kind::Directed).receiver,
        token: Some(0x2122_2324_2526_2728),
        echo: Some(0x3132_3334_3536_3738),
        report: Some(Box::new(report)),
        interest: Some(InterestAnnouncement { version: 300, suppresses: true, wants_confirmation: true }),
        interest_known: Some(7),
        ..announce()
    }))
}

pub(super) fn example_request() -> Record {
    let epoch = header(Kind::Directed).receiver.unwrap();
    let ranges = vec![Range { first: Dseq(3), last: Dseq(3) }, Range { first: Dseq(5), last: Dseq(300) }];
    Record::ResendRequest(ResendRequest { epoch, directed: false, manifests_only: true, unicast: false, ranges })
}

pub(super) fn example_directed_request() -> Record {
    let epoch = header(Kind::Directed).receiver.unwrap();
    let ranges = vec![Range { first: Dseq(1), last: Dseq(2) }];
    Record::ResendRequest(ResendRequest { epoch, directed: true, manifests_only: false, unicast: false, ranges })
}

/// Returns the manifest of three datagrams: one of two runs and the first part of a message, its second part, and an
/// empty one.
pub(super) fn example_manifest() -> Record {
    let run = |raw: Option<u64>, count: u16| Content {
        subject: "a.b".parse().unwrap(),
        seq: raw.map(|raw| Seq::new(raw).unwrap()),
        chain: None,
        event: false,
        kind: ContentKind::Run { count },
    };
    let chained = Content { chain: Seq::new(0x5c19_ad80_0000_0063), ..run(Some(0x5c19_adc0_0000_0001), 2) };
    let part = |index| Content {
        subject: "c".parse().unwrap(),
        event: true,
        kind: ContentKind::Part { index, total: 12 },
        ..run(Some(0x5c19_adc0_0000_0004), 1)
    };
    let datagrams = vec![vec![chained, run(None, 1), part(0)], vec![part(1)], vec![]];
    Record::Manifest(Manifest { first: Dseq(7), before: 42, datagrams })
}

pub(super) fn example_expired(receiver: Option<Epoch>) -> Record {
    Record::Expired(ExpiryNotice { receiver, ranges: vec![Range { first: Dseq(1), last: Dseq(4) }] })
}

pub(super) fn example_receiver_report() -> Record {
    let epoch = header(Kind::Directed).receiver.unwrap();
    let (taken, awaited) = (Dseq(300), Some(Dseq(291)));
    Record::ReceiverReport(ReceiverReport { epoch, taken, window: 3_670_016, awaited, dropped: 2 })
}

/// Proves: W8, W15, W18, W103, W116, W117, W118, W121, W128
#[test]
fn each_malformed_repair_record_has_its_error() {
    let epoch = "1112131415161718";
    let range = |first: u64, last: u64| format!("{first:016x}{last:016x}");
    let seq = "5c19adc000000001";
    let run = |flags: &str, rest: &str| format!("{flags} 03 612e62 {rest}");
    let manifest =
        |entries: &str| record("44", "00", &format!("0000000000000007 000000000000002a 0001 0001 {entries}"));
    let request = |flags: &str, rest: &str| record("43", flags, &format!("{epoch} {rest}"));
    let too_many = |count: u16| request("00", &format!("{count:04x} {}", range(1, 2)));
    let (one, large) = ("0000000000000001", "8000000000000000");
    let report = |epoch: &str, taken: &str, window: &str, rest: &str| {
        record("4b", "00", &format!("{epoch}{taken}{window}{rest}"))
    };
    let beyond_the_last = format!("{:016x} {:016x} 0002 0000 0000", (1u64 << 63) - 1, 0);
    for (records, expected) in [
        (record("43", "00", &format!("0000000000000000 0001 {}", range(1, 2))), DecodeError::Epoch),
        (request("03", &format!("0001 {}", range(1, 2))), DecodeError::Flags(3)),
        (request("00", "0000"), DecodeError::Ranges),
        (request("00", &format!("0001 {}", range(0, 2))), DecodeError::Ranges),
        (request("00", &format!("0001 {}", range(2, 1))), DecodeError::Ranges),
        (request("00", &format!("0002 {} {}", range(1, 4), range(4, 5))), DecodeError::Ranges),
        (request("00", &format!("0002 {} {}", range(7, 8), range(1, 2))), DecodeError::Ranges),
        (request("00", &format!("0001 {}", range(1, 1 << 63))), DecodeError::Number(1 << 63)),
        (request("00", &format!("0001 {}", range(u64::MAX, u64::MAX))), DecodeError::Number(u64::MAX)),
        (too_many(2), DecodeError::Truncated),
        (too_many(u16::MAX), DecodeError::Truncated),
        (request("00", &format!("0001 {} 00", range(1, 2))), DecodeError::Trailing { record: 0x43, bytes: 1 }),
        (record("45", "00", "0000"), DecodeError::Ranges),
        (record("45", "00", "ffff"), DecodeError::Truncated),
        (record("45", "00", &format!("0001 {} 00", range(1, 2))), DecodeError::Trailing { record: 0x45, bytes: 1 }),
        (record("45", "02", &format!("0000000000000000 0001 {}", range(1, 2))), DecodeError::Epoch),
        (record("45", "02", &format!("0001 {}", range(1, 2))), DecodeError::Truncated),
        (report("0000000000000000", one, one, one), DecodeError::Epoch),
        (report(epoch, large, one, one), DecodeError::Number(1 << 63)),
        (report(epoch, one, large, one), DecodeError::Number(1 << 63)),
        (report(epoch, one, one, &format!("{large} {one}")), DecodeError::Number(1 << 63)),
        (report(epoch, one, one, &format!("{one} {large}")), DecodeError::Number(1 << 63)),
        (report(epoch, one, one, &format!("{one} 00")), DecodeError::Truncated),
        (report(epoch, one, one, &format!("{one} {one} 00")), DecodeError::Trailing { record: 0x4b, bytes: 1 }),
        (record("44", "00", "0000000000000000 000000000000002a 0001 0000"), DecodeError::Number(0)),
        (record("44", "00", "0000000000000007 800000000000002a 0001 0000"), DecodeError::Number((1 << 63) + 42)),
        (record("44", "00", "0000000000000007 000000000000002a 0000"), DecodeError::ManifestEmpty),
        (record("44", "00", "0000000000000007 000000000000002a 0002 0000"), DecodeError::Truncated),
        (record("44", "00", "0000000000000007 000000000000002a ffff 0000"), DecodeError::Truncated),
        (record("44", "00", &beyond_the_last), DecodeError::Number(1 << 63)),
        (
            record("44", "00", &format!("0000000000000007 7fffffffffffffff 0001 0001 {}", run("04", "0001"))),
            DecodeError::Number(1 << 63),
        ),
        (manifest(""), DecodeError::Truncated),
        (manifest(&run("01", &format!("{seq} 0001"))), DecodeError::Flags(0x01)),
        (manifest(&run("10", &format!("{seq} 0001"))), DecodeError::Flags(0x10)),
        (manifest(&run("06", &format!("{seq} 0001"))), DecodeError::Flags(0x06)),
        (manifest(&format!("00 00 {seq} 0001")), DecodeError::Subject(SubjectError::Empty)),
        (manifest(&format!("00 01 2a {seq} 0001")), DecodeError::Subject(SubjectError::Wildcard)),
        (manifest(&format!("00 ff 2a {seq} 0001")), DecodeError::Truncated),
        (manifest(&run("00", "5c19adc000000000 0001")), DecodeError::Seq(0x5c19_adc0_0000_0000)),
        (manifest(&run("02", &format!("{seq} {seq} 0001"))), DecodeError::Chain),
        (manifest(&run("02", "5c19adc000000002 5c19ad8000000063 0001")), DecodeError::Chain),
        (manifest(&run("00", &format!("{seq} 0000"))), DecodeError::RunEmpty),
        (manifest(&run("00", "5c19adc7ffffffff 0002")), DecodeError::RunRange),
        (manifest(&run("00", &format!("{seq} 0001 00"))), DecodeError::Trailing { record: 0x44, bytes: 1 }),
        (manifest(&run("20", &format!("{seq} 00000000 00810001"))), DecodeError::FragmentTotal(0x0081_0001)),
        (manifest(&run("20", &format!("{seq} 00000000 00000000"))), DecodeError::FragmentIndex(0)),
        (manifest(&run("20", &format!("{seq} 00000002 00000002"))), DecodeError::FragmentIndex(2)),
        (manifest(&run("20", &format!("{seq} 00000007 00000064"))), DecodeError::FragmentIndex(7)),
        (manifest(&run("00", &format!("{seq} 0001"))).replace("0001 0001", "0001 0002"), DecodeError::Truncated),
        (
            record(
                "44",
                "00",
                &format!("0000000000000007 0000000000000000 0001 0002 {} 24 00 00000001 00000064", run("04", "0001")),
            ),
            DecodeError::FragmentOrder,
        ),
    ] {
        assert_eq!(decode_records(Kind::Control, &records), Err(DiscardReason::Malformed(expected)), "{records}");
    }
    for record_type in ["43", "44", "45", "48", "49", "4b"] {
        let kind = Kind::Data;
        let expected = DecodeError::Misplaced { record: u8::from_str_radix(record_type, 16).unwrap(), kind };
        assert_eq!(decode_records(kind, &record(record_type, "00", "")), Err(DiscardReason::Malformed(expected)));
    }
}

/// Proves: W45
#[test]
fn repeated_or_truncated_known_field_is_refused() {
    let announce = "00".repeat(24) + "000003e8 00002710" + &"00".repeat(24) + "01 41";
    let token = "01 0008 2122232425262728";
    let echo = "02 0008 3132333435363738";
    let report = |min: &str, max: &str| format!("03 0030 {} {min:0>16} {max:0>16}", "0000000000000001".repeat(4));
    let unknown = "7f 0003 ffffff";
    let read = |fields: &str| decode_records(Kind::Control, &record("40", "00", &format!("{announce}{fields}")));
    let whole = read(&format!("{echo}{unknown}{}{token}", report("2", "3"))).unwrap();
    let [Record::Heartbeat(heartbeat)] = &whole.records[..] else { panic!("{whole:?}") };
    assert_eq!((heartbeat.token, heartbeat.echo), (Some(0x2122_2324_2526_2728), Some(0x3132_3334_3536_3738)));
    let report_is =
        Report { missing: 1, repaired: 1, pending: 1, unverified: 1, lost_min: 2, lost_max: 3, ..Report::default() };
    assert_eq!(heartbeat.report.as_deref(), Some(&report_is));
    let field = |field| Err(DiscardReason::Malformed(DecodeError::Field(field)));
    for known in [token, echo] {
        let number = if known == token { 1 } else { 2 };
        assert_eq!(read(&format!("{known}{unknown}{known}")), field(number), "twice");
        assert_eq!(read(&format!("{}{}", &known[..8], "00".repeat(8))), field(number), "0");
        assert_eq!(read(&format!("0{number} 0007 {}", "11".repeat(7))), field(number), "short");
        assert_eq!(read(&format!("0{number} 0009 {}", "11".repeat(9))), field(number), "long");
        assert_eq!(read(&format!("0{number} 0000")), field(number), "empty");
        assert_eq!(read(&format!("0{number} ffff 00")), Err(DiscardReason::Malformed(DecodeError::Truncated)));
    }
    assert_eq!(read(&format!("{}{}", report("2", "3"), report("2", "3"))), field(3), "twice");
    assert_eq!(read(&report("3", "2")), field(3), "more at least than at most");
    assert_eq!(read(&format!("03 002f {}", "00".repeat(47))), field(3), "short");
    assert_eq!(read(&format!("03 0031 {}", "00".repeat(49))), field(3), "long");
    let directed = "08 0008 0000000000000005";
    let whole = read(&format!("{}{directed}", report("2", "3"))).unwrap();
    let [Record::Heartbeat(heartbeat)] = &whole.records[..] else { panic!("{whole:?}") };
    assert_eq!(heartbeat.report.as_deref(), Some(&Report { directed_lost: 5, ..report_is }));
    assert_eq!(read(directed), field(8), "without a report");
    assert_eq!(read(&format!("{}{directed}{directed}", report("2", "3"))), field(8), "twice");
    assert_eq!(read(&format!("{}08 0008 {}", report("2", "3"), "00".repeat(8))), field(8), "0");
    assert_eq!(read(&format!("{}08 0007 {}", report("2", "3"), "11".repeat(7))), field(8), "short");
    assert!(read(&format!("{}08 0008 80{}", report("2", "3"), "00".repeat(7))).is_err(), "too large");
    let (interest, known) = ("04 0009 0000000000000007 ff", "05 0008 0000000000000009");
    let whole = read(&format!("{known}{interest}")).unwrap();
    let [Record::Heartbeat(heartbeat)] = &whole.records[..] else { panic!("{whole:?}") };
    let announcement = InterestAnnouncement { version: 7, suppresses: true, wants_confirmation: true };
    assert_eq!(
        (heartbeat.interest, heartbeat.interest_known),
        (Some(announcement), Some(9)),
        "other flags are ignored"
    );
    assert_eq!(read(&format!("{interest}{interest}")), field(4), "twice");
    assert_eq!(read(&format!("{known}{known}")), field(5), "twice");
    assert_eq!(read("04 0008 0000000000000007"), field(4), "short");
    assert_eq!(read("05 0009 000000000000000900"), field(5), "long");
    let negative = Err(DiscardReason::Malformed(DecodeError::Number(1 << 63)));
    assert_eq!(read("05 0008 8000000000000000"), negative, "not below 2^63");
    assert_eq!(read(&report("0", "8000000000000000")), negative, "not below 2^63");
}

/// Proves: W103
#[test]
fn flags_of_later_versions_are_ignored() {
    for (record_type, example) in
        [("43", example_directed_request()), ("45", example_expired(Epoch::new(7))), ("4b", example_receiver_report())]
    {
        let sealed = encode_control(&header(Kind::Control), &example, 0);
        let body = hex(&sealed[Header::SHORT_BYTES + RECORD_HEADER_BYTES..sealed.len() - CHECK_BYTES]);
        assert_eq!(decode_records(Kind::Control, &record(record_type, "fa", &body)).unwrap().records, [example]);
    }
}

#[test]
fn truncated_record_with_matching_length_is_refused() {
    for Example { name, sealed, header, meaning } in examples() {
        let Meaning::Records(records) = meaning else { continue };
        let start = header.bytes() + RECORD_HEADER_BYTES;
        if header.kind != Kind::Control || name == "hello" {
            continue;
        }
        // A cut between fields gives a valid shorter announcement; a truncated report is invalid.
        let fields: &[usize] = match name {
            "heartbeat-fields" => &[63, 74, 85, 136, 148],
            "heartbeat-queue" => &[63, 114, 125, 136],
            _ => &[],
        };
        for length in 0..sealed.len() - CHECK_BYTES - start {
            let mut bytes = sealed[..start + length].to_vec();
            bytes[start - 2..start].copy_from_slice(&(length as u16).to_be_bytes());
            repair(&mut bytes);
            let decoded = decode(bytes.into());
            assert_eq!(decoded.is_ok(), fields.contains(&length), "{name} cut to {length}: {records:?}");
        }
    }
}

/// Proves: W158
#[test]
fn changed_byte_is_refused_or_encodes_back() {
    for Example { name, sealed, header, .. } in examples() {
        for at in header.bytes()..sealed.len() - CHECK_BYTES {
            for byte in 0..=u8::MAX {
                let mut bytes = sealed[..sealed.len() - CHECK_BYTES].to_vec();
                bytes[at] = byte;
                repair(&mut bytes);
                let Ok(datagram) = decode(bytes.into()) else { continue };
                if header.kind != Kind::Control {
                    continue;
                }
                for record in datagram.records {
                    let again = decode(encode_control(&header, &record, 0)).unwrap();
                    assert_eq!(again.records, [record], "{name}: {byte:#04x} at {at}");
                }
            }
        }
    }
}

/// Proves: W158
#[test]
fn hostile_manifest_costs_memory_proportional_to_bytes() {
    // Maximum number of entries that fit a datagram, and maximum number of datagrams: 4 and 2 bytes each.
    let entry = "04 00 0001";
    let entries = (DATAGRAM_BYTES_MAX - 200) / 4;
    let body = format!("0000000000000007 000000000000002a 0001 {entries:04x} 04 01 61 0001");
    let many = record("44", "00", &(body + &entry.repeat(entries - 1)));
    let decoded = decode_records(Kind::Control, &many).unwrap();
    let [Record::Manifest(manifest)] = &decoded.records[..] else { panic!("a manifest") };
    assert_eq!(manifest.datagrams[0].len(), entries);
    assert!(size_of::<Content>() <= 80, "an entry of 4 bytes becomes {} bytes", size_of::<Content>());
    let datagrams = (DATAGRAM_BYTES_MAX - 200) / 2;
    let body = format!("0000000000000007 000000000000002a {datagrams:04x}");
    let decoded = decode_records(Kind::Control, &record("44", "00", &(body + &"0000".repeat(datagrams)))).unwrap();
    let [Record::Manifest(manifest)] = &decoded.records[..] else { panic!("a manifest") };
    assert_eq!(manifest.datagrams.len(), datagrams);
}

/// Decodes a datagram with these records, given in hexadecimal.
pub(super) fn decode_records(kind: Kind, records: &str) -> Result<Datagram, DiscardReason> {
    let mut bytes = Vec::new();
    header(kind).encode(&mut bytes);
    bytes.extend(unhex(records));
    repair(&mut bytes);
    decode(bytes.into())
}
