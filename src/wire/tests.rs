//! Tests of the wire: the examples of `docs/wire.md`, and properties drawn from a seed.

mod beacon;
mod interest;
mod repair;
mod vectors;

use super::*;
use crate::message::{Dseq, Epoch, Headers, Message, PeerName, Stamp};
use crate::rng::Rng;
use crate::seqno::Seq;
use crate::subject::Subject;
use crate::time::WallTime;
use std::time::Duration;

/// A datagram of `docs/wire.md`.
struct Example {
    /// Name of its block.
    name: &'static str,
    /// Output of the encoder.
    sealed: Bytes,
    header: Header,
    meaning: Meaning,
}

/// Expected meaning of a datagram.
#[derive(Debug, PartialEq)]
enum Meaning {
    Messages(Vec<Sent>),
    Records(Vec<Record>),
}

#[test]
fn nearly_full_datagram_is_padded_to_full_size() {
    let mut filled = 0;
    for payload in 1..700 {
        let sealed = |pads: bool| {
            let mut builder = Builder::new(1000);
            let message = Message::new("a".parse().unwrap(), vec![7; payload]);
            while builder.push(&Entry { message: (&message).into(), seq: None, stamp: None, chain: None }) {}
            let messages = builder.messages();
            if pads {
                builder.pad();
            }
            let (kind, epoch) = (Kind::Directed, Epoch::new(1).unwrap());
            let header = Header { kind, group: 1, epoch, number: 1, count: 0, uptime_ms: 0, receiver: Some(epoch) };
            (builder.seal(&header), messages)
        };
        let (plain, messages) = sealed(false);
        let (padded, _) = sealed(true);
        // A record has at least four bytes.
        let is_filled = (4..=125).contains(&(1000 - plain.len()));
        assert_eq!(padded.len(), if is_filled { 1000 } else { plain.len() }, "payloads of {payload} bytes");
        let datagram = decode(padded).unwrap();
        assert_eq!(datagram.records.iter().map(Record::messages_begun).sum::<u64>(), messages);
        filled += u64::from(is_filled);
    }
    assert!(100 < filled && filled < 690, "{filled} datagrams are padded");
}

/// Proves: W37, W117
#[test]
fn encoder_agrees_with_the_specified_bytes() {
    let blocks = blocks(include_str!("../../docs/wire.md"), "hex");
    let encoded: Vec<_> =
        examples().into_iter().map(|example| (example.name.to_owned(), hex(&example.sealed))).collect();
    assert_eq!(encoded, blocks);
}

/// Returns the blocks of a kind of the specification, "```KIND NAME": name and digits.
fn blocks(text: &str, kind: &str) -> Vec<(String, String)> {
    let block = |part: &str| {
        let (name, rest) = part.split_once('\n').unwrap();
        let (body, _) = rest.split_once("```").unwrap();
        let digits = body.lines().map(|line| line.split('#').next().unwrap().replace(' ', "")).collect();
        (name.to_owned(), digits)
    };
    text.split(&format!("```{kind} ")).skip(1).map(block).collect()
}

#[test]
fn specification_examples_decode_to_their_meaning() {
    for example in examples() {
        let datagram = decode(example.sealed).unwrap_or_else(|e| panic!("{}: {e}", example.name));
        assert_eq!(datagram.header, example.header, "{}", example.name);
        let meaning = match example.meaning {
            Meaning::Messages(_) => Meaning::Messages(datagram.records.iter().flat_map(received).collect()),
            Meaning::Records(_) => Meaning::Records(datagram.records),
        };
        assert_eq!(meaning, example.meaning, "{}", example.name);
    }
}

/// Proves: W15
#[test]
fn truncated_examples_are_refused() {
    for Example { name, sealed, header, .. } in examples() {
        let ends = record_ends(&sealed, header.bytes());
        for length in 0..sealed.len() {
            assert!(decode(sealed.slice(..length)).is_err(), "{name} cut to {length}");
        }
        // With a matching check value, only a cut between two records leaves a complete datagram.
        for length in 0..sealed.len() - CHECK_BYTES {
            let mut cut = sealed.slice(..length).to_vec();
            repair(&mut cut);
            assert_eq!(decode(cut.into()).is_ok(), ends.contains(&length), "{name} cut to {length}");
        }
    }
}

/// Returns the ends of the header and of each record of a datagram.
fn record_ends(sealed: &[u8], header_bytes: usize) -> Vec<usize> {
    let mut ends = vec![header_bytes];
    while let Some([_, _, high, low, ..]) = sealed.get(ends[ends.len() - 1]..sealed.len() - CHECK_BYTES) {
        ends.push(ends[ends.len() - 1] + RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low])));
    }
    ends
}

#[test]
fn flipped_bits_are_refused_and_never_panic() {
    for Example { name, sealed, .. } in examples() {
        for bit in 0..sealed.len() * 8 {
            let mut bytes = sealed.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(bytes.clone().into()).is_err(), "{name}, bit {bit}");
            bytes.truncate(sealed.len() - CHECK_BYTES);
            repair(&mut bytes);
            read_all(bytes.into());
        }
    }
}

/// Proves: W158
#[test]
fn random_bytes_behind_a_good_header_never_panic() {
    let seed = 0x5eed_0001;
    let mut rng = Rng::new(seed);
    let examples = examples();
    for _ in 0..20_000 {
        let example = &examples[rng.below(examples.len() as u64) as usize];
        let mut bytes = example.sealed.to_vec();
        bytes.truncate(example.header.bytes() + rng.below(bytes.len() as u64) as usize);
        for _ in 0..rng.below(8) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u32() as u8;
        }
        repair(&mut bytes);
        read_all(bytes.into());
    }
}

/// Proves: W8, W13, W15, W18, W21, W22, W23, W24, W26, W27, W30, W31, W32, W33
#[test]
fn each_malformed_record_has_its_error() {
    let data = "534301000000 1d4c 0102030405060708 0000000000000007 000000000000002a 000005dc";
    let control = "534301000200 1d4c 0102030405060708 0000000000000009 000000000000002d 000005dc";
    let run = "5c19adc000000002 03 612e62 0001 02 6869";
    let fragment = "5c19adc000000002 03 612e62 00000001 00000064 0000000a";
    let announce = "0000000000000007 0000000000000008 0000000000000008 000003e8 00002710";
    for (header, records, expected) in [
        (data.replace("000000000000002a", "8000000000000000"), String::new(), DecodeError::Number(1 << 63)),
        (data.replace("0000000000000007", "0000000000000000"), String::new(), DecodeError::Number(0)),
        (data.replace("0102030405060708", "0000000000000000"), String::new(), DecodeError::Epoch),
        (data.replace("534301000000", "534301000300"), String::new(), DecodeError::Kind(3)),
        (data.replace("534301000000", "534301000100") + "0000000000000000", String::new(), DecodeError::Epoch),
        (data.into(), record("01", "20", run), DecodeError::Flags(0x20)),
        (data.into(), record("01", "02", run), DecodeError::Flags(0x02)),
        (data.into(), record("01", "05", run), DecodeError::Flags(0x05)),
        (data.into(), record("01", "00", &run.replace("0001 02", "0000 02")), DecodeError::RunEmpty),
        (data.into(), record("01", "00", &run.replace("0001 02", "0002 02")), DecodeError::Truncated),
        (data.into(), record("01", "00", &(run.to_owned() + "00")), DecodeError::Trailing { record: 1, bytes: 1 }),
        (
            data.into(),
            record("01", "00", &(run.replace("000000002", "7ffffffff").replace("0001 02", "0002 02") + "00")),
            DecodeError::RunRange,
        ),
        (data.into(), record("01", "00", &run.replace("000000002", "000000000")), DecodeError::Seq(0x5c19adc000000000)),
        (
            data.into(),
            record("01", "00", &run.replace("612e62", "612e2e")),
            DecodeError::Subject(crate::subject::SubjectError::EmptyToken(2)),
        ),
        (data.into(), record("01", "00", &run.replace("02 6869", "8200 6869")), DecodeError::Varint),
        (data.into(), record("01", "00", &run.replace("02 6869", "ffffffff7f 6869")), DecodeError::Varint),
        (data.into(), record("01", "00", &run.replace("02 6869", "ffffff7f 6869")), DecodeError::Truncated),
        (
            data.into(),
            record("01", "10", &run.replace("02 6869", "02 012a 00 6869")),
            DecodeError::Reply(crate::subject::SubjectError::Wildcard),
        ),
        (
            data.into(),
            record("01", "01", &run.replace("000000002", "000000002 17066b710b706c00 00000007")),
            DecodeError::StampInside,
        ),
        (
            data.into(),
            record("01", "03", &run.replace("000000002", "000000001 17066b710b706c00 00000007 5c19adc000000001")),
            DecodeError::Chain,
        ),
        (data.into(), record("02", "00", fragment), DecodeError::FragmentEmpty),
        (
            data.into(),
            record("02", "00", &(fragment.replace("00000064", "00000002") + "ff")),
            DecodeError::FragmentRange,
        ),
        (
            data.into(),
            record("02", "00", &(fragment.replace("0000000a", "00000063") + "ffff")),
            DecodeError::FragmentRange,
        ),
        (
            data.into(),
            record("02", "00", &(fragment.replace("00000064", "00810001") + "ff")),
            DecodeError::FragmentTotal(0x0081_0001),
        ),
        (
            data.into(),
            record("02", "00", &(fragment.replace("0000000a", "00000000") + "ff")),
            DecodeError::FragmentIndex(1),
        ),
        (
            data.into(),
            record("02", "00", &(fragment.replace("00000001 ", "00000000 ") + "ff")),
            DecodeError::FragmentIndex(0),
        ),
        (
            data.into(),
            record("02", "00", &(fragment.replace("00000001 ", "00000007 ") + "ff")),
            DecodeError::FragmentIndex(7),
        ),
        (
            data.into(),
            record("02", "00", &(fragment.replace("00000001 ", "00000002 ").replace("0000000a", "00000001") + "ff")),
            DecodeError::FragmentIndex(2),
        ),
        (
            data.into(),
            record("01", "00", run) + &record("02", "00", &(fragment.to_owned() + "ff")),
            DecodeError::FragmentOrder,
        ),
        (
            data.into(),
            record("02", "00", &(fragment.to_owned() + "ff")) + &record("01", "00", run),
            DecodeError::FragmentOrder,
        ),
        (control.into(), record("01", "00", run), DecodeError::Misplaced { record: 1, kind: Kind::Control }),
        (control.into(), record("03", "00", ""), DecodeError::Misplaced { record: 3, kind: Kind::Control }),
        (data.into(), record("40", "00", ""), DecodeError::Misplaced { record: 0x40, kind: Kind::Data }),
        (control.into(), record("40", "00", announce), DecodeError::Truncated),
        (control.into(), record("40", "00", &announce.replace("000003e8", "00000000")), DecodeError::Interval),
        (
            control.into(),
            record("40", "00", &(announce.to_owned() + &"00".repeat(24) + "01 ff")),
            DecodeError::NameEncoding,
        ),
        (
            control.into(),
            record("40", "00", &(announce.to_owned() + &"00".repeat(24) + "00")),
            DecodeError::Name(crate::message::NameError::Empty),
        ),
        (
            control.into(),
            record("40", "00", &(announce.to_owned() + &"00".repeat(24) + "01 41 80 0002 ff")),
            DecodeError::Truncated,
        ),
        (control.into(), "40".into(), DecodeError::Truncated),
        (control.into(), "40000001".into(), DecodeError::Truncated),
    ] {
        let mut bytes = unhex(&(header + &records));
        repair(&mut bytes);
        assert_eq!(decode(bytes.into()), Err(DiscardReason::Malformed(expected)), "{records}");
    }
}

/// Proves: W12, W14
#[test]
fn foreign_versions_modes_and_damage_are_distinguished() {
    let good = examples().swap_remove(0).sealed;
    let with = |at: usize, byte: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = byte;
        decode(bytes.into())
    };
    assert_eq!(decode(Bytes::new()), Err(DiscardReason::Foreign));
    assert_eq!(decode(Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n")), Err(DiscardReason::Foreign));
    assert_eq!(with(1, 0x44), Err(DiscardReason::Foreign));
    assert_eq!(with(2, 2), Err(DiscardReason::Version(2)));
    assert_eq!(with(3, 1), Err(DiscardReason::Mode(1)));
    assert_eq!(with(20, 1), Err(DiscardReason::Check));
}

/// Proves: W16, W19
#[test]
fn unknown_fields_are_skipped() {
    let control = "534301000200 1d4c 0102030405060708 0000000000000009 000000000000002d 000005dc";
    let data = "534301000000 1d4c 0102030405060708 0000000000000007 000000000000002a 000005dc";
    let field = "41" /* the name */
        .to_owned()
        + "80 0002 ffff"
        + "81 0000";
    let announce = "00".repeat(24) + "000003e8 00002710" + &"00".repeat(24) + "01";
    let mut bytes =
        unhex(&(control.to_owned() + &record("46", "ff", "0102") + &record("40", "ff", &(announce + &field))));
    repair(&mut bytes);
    let datagram = decode(bytes.into()).unwrap();
    assert!(matches!(&datagram.records[..], [Record::Heartbeat(a)] if a.name.as_str() == "A"));
    let mut bytes = unhex(
        &(data.to_owned()
            + &record("3f", "ff", "0102")
            + &record("3f", "00", "")
            + &record("ff", "ff", "")
            + &record("00", "ff", "07")),
    );
    repair(&mut bytes);
    assert_eq!(decode(bytes.into()).unwrap().records, [Record::UnknownData(0x3f)]);
}

/// Proves: W28, W29
#[test]
fn empty_meta_and_arbitrary_header_bytes_are_accepted() {
    let data = "534301000000 1d4c 0102030405060708 0000000000000007 000000000000002a 000005dc";
    for headers in [&b""[..], b"no colon", b"\xff\0\r", b"Seqcast-Queue: nobody\r\n", b": \r\n\r\n"] {
        let run = format!("5c19adc000000002 03 612e62 0001 02 00 {:02x} {} 6869", headers.len(), hex(headers));
        let mut bytes = unhex(&(data.to_owned() + &record("01", "10", &run)));
        repair(&mut bytes);
        let datagram = decode(bytes.into()).unwrap();
        let sent: Vec<Sent> = datagram.records.iter().flat_map(received).collect();
        assert_eq!((sent.len(), &sent[0].message.payload[..]), (1, &b"hi"[..]));
        assert_eq!((sent[0].message.headers.block().as_ref(), sent[0].message.reply.is_none()), (headers, true));
    }
}

/// Proves: W1, W36
#[test]
fn built_datagrams_decode_to_the_same() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let bytes_max = [576, 1400, 1472, 8900, DATAGRAM_BYTES_MAX][rng.below(5) as usize];
        let mut builder = Builder::new(bytes_max);
        let mut sent: Vec<Sent> = Vec::new();
        let mut next: Option<Sent> = None;
        for _ in 0..rng.below(200) {
            let sending = following(&mut rng, next.as_ref());
            let pushed = builder.push(&sending.entry());
            assert!(pushed || !builder.is_empty() || !fits_alone(&sending.entry(), bytes_max), "seed {seed}");
            if pushed {
                sent.push(sending.clone());
            }
            next = Some(sending);
        }
        assert_eq!(builder.messages(), sent.len() as u64, "seed {seed}");
        let header = header(if rng.chance(0.5) { Kind::Data } else { Kind::Directed });
        let sealed = builder.seal(&header);
        assert!(sealed.len() <= bytes_max, "seed {seed}");
        assert!(builder.is_empty() && builder.messages() == 0);
        let datagram = decode(sealed.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!((datagram.header, datagram.messages_begun()), (header, sent.len() as u64), "seed {seed}");
        let received: Vec<Sent> = datagram.records.iter().flat_map(received).collect();
        assert_eq!(received, sent, "seed {seed}");
        // Decoded messages encode back to the same bytes.
        for (index, sending) in received.iter().enumerate() {
            assert!(builder.push(&sending.entry()), "seed {seed}, message {index}");
        }
        assert_eq!(builder.seal(&header), sealed, "seed {seed}");
    }
}

#[test]
fn large_messages_are_reassembled() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let bytes_max = [576, 1400, 8900, DATAGRAM_BYTES_MAX][rng.below(4) as usize];
        let mut sending = following(&mut rng, None);
        sending.message.payload = noise(&mut rng, 100_000);
        let (meta, body) = body_of((&sending.message).into());
        let mut builder = Builder::new(bytes_max);
        let small = Sent { stamp: None, chain: None, seq: Seq::new(9), message: message("small", b"x") };
        for _ in 0..rng.below(40) {
            builder.push(&small.entry());
        }
        let (mut offset, mut number, mut index) = (0, 100, 0);
        let mut collected = Vec::new();
        while offset < body.len() {
            let taken = builder.push_fragment(&sending.entry(), &body, index, offset);
            if taken == 0 {
                assert!(!builder.is_empty(), "seed {seed}: an empty builder takes some");
                builder.seal(&header(Kind::Data));
                continue;
            }
            offset += taken;
            let is_last = offset == body.len();
            assert!(!builder.push(&small.entry()) || is_last, "seed {seed}: no record follows an unfinished part");
            let begun = builder.messages();
            let sealed = builder.seal(&Header { number, ..header(Kind::Data) });
            assert!(sealed.len() <= bytes_max, "seed {seed}");
            let datagram = decode(sealed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(datagram.messages_begun(), begun);
            let fragment = datagram.records.iter().find_map(|r| match r {
                Record::Fragment(fragment) => Some(fragment.clone()),
                _ => None,
            });
            let fragment = fragment.unwrap();
            assert_eq!((fragment.index, fragment.total as usize), (index, body.len()), "seed {seed}");
            assert_eq!(fragment.is_last(), is_last, "seed {seed}");
            assert_eq!(
                (fragment.seq, fragment.stamp, fragment.chain, fragment.meta),
                (sending.seq, sending.stamp, sending.chain, meta),
                "seed {seed}"
            );
            assert_eq!(fragment.offset as usize, collected.len());
            collected.extend_from_slice(&fragment.chunk);
            (number, index) = (number + 1, index + 1);
        }
        let message = assemble(sending.message.subject.clone(), sending.message.event, meta, collected.into());
        assert_eq!(message, Ok(sending.message), "seed {seed}");
    }
}

#[test]
fn malformed_message_bodies_are_refused() {
    let subject: Subject = "a".parse().unwrap();
    let too_large = Bytes::from(vec![0; crate::message::MESSAGE_BYTES_MAX + 1]);
    let bytes = too_large.len();
    assert_eq!(assemble(subject.clone(), false, false, too_large), Err(DecodeError::MessageTooLarge(bytes)));
    assert_eq!(assemble(subject.clone(), false, true, Bytes::from_static(b"\x05a")), Err(DecodeError::Truncated));
    assert_eq!(assemble(subject, false, true, Bytes::from_static(b"\x00\x80\x00")), Err(DecodeError::Varint));
}

#[test]
fn padding_reaches_the_requested_size() {
    let record = Record::Heartbeat(Box::new(announce()));
    let plain = encode_control(&header(Kind::Control), &record, 0);
    for wanted in plain.len()..plain.len() + 40 {
        let padded = encode_control(&header(Kind::Control), &record, wanted);
        assert!((wanted..wanted + 4).contains(&padded.len()), "{wanted} {}", padded.len());
        assert_eq!(decode(padded).unwrap().records, std::slice::from_ref(&record));
    }
    assert_eq!(encode_control(&header(Kind::Control), &record, DATAGRAM_BYTES_MAX).len(), DATAGRAM_BYTES_MAX);
}

/// Proves: W16
#[test]
fn skipped_records_reserve_no_memory() {
    let mut builder = Builder::new(1000);
    let messages = ["a", "b"].map(|subject| message(subject, &[7; 10]));
    for message in &messages {
        assert!(builder.push(&Entry { message: message.into(), seq: None, stamp: None, chain: None }));
    }
    let sealed = builder.seal(&header(Kind::Data));
    // PAD, and a control record of an unknown type.
    for skipped in [PAD, 0x7f] {
        let mut bytes = sealed[..sealed.len() - CHECK_BYTES].to_vec();
        for _ in 0..1000 {
            bytes.extend([skipped, 0, 0, 8]);
            bytes.extend([0; 8]);
        }
        bytes.extend([0; CHECK_BYTES]);
        let records = decode_with(bytes.into(), CheckValue::Unused, Vec::with_capacity).unwrap().records;
        assert_eq!((records.len(), records.capacity()), (2, 2), "{skipped:#x}");
    }
}

/// Content of a message on the wire; the property tests compare it on both sides.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    message: Message,
    seq: Option<Seq>,
    stamp: Option<Stamp>,
    chain: Option<Seq>,
}

impl Sent {
    fn entry(&self) -> Entry<'_> {
        Entry { message: (&self.message).into(), seq: self.seq, stamp: self.stamp, chain: self.chain }
    }
}

fn received(record: &Record) -> Vec<Sent> {
    let Record::Run(run) = record else { panic!("no run: {record:?}") };
    let sent = |(at, message)| Sent {
        message,
        seq: run.first.map(|seq| seq.forward(at as u64).unwrap()),
        stamp: run.stamp.filter(|_| at == 0),
        chain: run.chain.filter(|_| at == 0),
    };
    assert_eq!(run.messages().len(), usize::from(run.count));
    run.messages().enumerate().map(sent).collect()
}

/// Draws a message that often extends the run of the previous one.
fn following(rng: &mut Rng, before: Option<&Sent>) -> Sent {
    let payload_bytes = [0, 1, 20, 127, 128, 300, 20_000][rng.below(7) as usize];
    let payload = noise(rng, payload_bytes);
    if let Some(before) = before.filter(|_| rng.chance(0.7)) {
        let seq = before.seq.and_then(|seq| seq.forward(1));
        if seq.is_some() == before.seq.is_some() {
            let message = Message { payload, ..before.message.clone() };
            return Sent { message, seq, stamp: None, chain: None };
        }
    }
    let subject = ["a", "a.b", "RSF.REC.PAC.NaE", "grün.ß"][rng.below(4) as usize];
    let mut message = Message { event: rng.chance(0.2), ..message(subject, &payload) };
    if rng.chance(0.2) {
        message.reply = Some("_INBOX.1.2".parse().unwrap());
    }
    if rng.chance(0.2) {
        message.headers = Headers::from_pairs([("key", "value")]).unwrap();
    }
    let frame = 1000 + rng.below(1 << 28);
    let count = [1, 1, 2, 77, crate::seqno::COUNT_MAX][rng.below(5) as usize];
    let seq = Seq::new((frame << 35) + count).filter(|_| rng.chance(0.9));
    let stamp = Stamp { time: WallTime::from_nanos(rng.next_u64()), offset: rng.next_u32() };
    let stamp = Some(stamp).filter(|_| seq.is_some_and(|seq| seq.count() == 1));
    let chain = Seq::new(((frame - 1 - rng.below(900)) << 35) + 5).filter(|_| stamp.is_some() && rng.chance(0.5));
    Sent { message, seq, stamp, chain }
}

fn noise(rng: &mut Rng, bytes: usize) -> Bytes {
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        noise.extend_from_slice(&rng.next_u64().to_be_bytes());
    }
    noise.truncate(bytes);
    noise.into()
}

fn message(subject: &str, payload: &[u8]) -> Message {
    Message::new(subject.parse().unwrap(), payload.to_vec())
}

#[test]
fn sealed_allocations_stay_within_their_bound() {
    for bytes_max in [1000, 1472, 8900, 65_507] {
        let mut builder = Builder::new(bytes_max);
        for payload in (0..bytes_max - 100).step_by(bytes_max / 150).chain(0..300) {
            for kind in [Kind::Data, Kind::Directed] {
                let message = message("a.b", &vec![7; payload]);
                let entry = Entry { message: (&message).into(), seq: Seq::new(9), stamp: None, chain: None };
                assert!(builder.push(&entry), "{payload} of {bytes_max}");
                let sealed = builder.seal(&header(kind));
                let bytes = sealed.len();
                // A vector takes the whole allocation over. The reference count and the allocator take 56 bytes besides.
                let allocated = Vec::from(sealed).capacity();
                if bytes < RETAINED_BYTES_MIN {
                    assert!(allocated <= 2 * bytes + 8, "{allocated} bytes for {bytes}");
                } else {
                    assert!(allocated + 56 <= sealed_allocation_max(bytes), "{allocated} bytes for {bytes}");
                }
            }
        }
    }
}

fn header(kind: Kind) -> Header {
    let receiver = (kind == Kind::Directed).then(|| Epoch::new(0x1112_1314_1516_1718).unwrap());
    let (number, count) = if kind == Kind::Control { (9, 45) } else { (7, 42) };
    let epoch = Epoch::new(0x0102_0304_0506_0708).unwrap();
    Header { kind, group: 7500, epoch, number, count, uptime_ms: 1500, receiver }
}

fn announce() -> PeerAnnouncement {
    PeerAnnouncement {
        high: Dseq(7),
        trail: Dseq(8),
        manifest_trail: Dseq(8),
        heartbeat: Duration::from_secs(1),
        pub_window_time: Duration::from_secs(10),
        directed_high: Dseq(0),
        directed_count: 0,
        directed_receiver: None,
        name: "A.test".parse::<PeerName>().unwrap(),
        token: None,
        echo: None,
        report: None,
        interest: None,
        interest_known: None,
        queue: None,
    }
}

/// Decodes a datagram and reads everything in it.
fn read_all(bytes: Bytes) {
    let Ok(datagram) = decode(bytes) else { return };
    for record in &datagram.records {
        match record {
            Record::Run(run) => assert_eq!(run.messages().count(), usize::from(run.count)),
            Record::Fragment(f) => {
                if let Ok(message) = assemble(f.subject.clone(), f.event, f.meta, f.chunk.clone()) {
                    assert!(message.payload.len() <= f.chunk.len());
                }
            }
            _ => {}
        }
    }
}

/// Returns a record in hexadecimal, with its length filled in.
fn record(record_type: &str, flags: &str, body: &str) -> String {
    let bytes = unhex(body).len();
    format!("{record_type}{flags}{bytes:04x}{body}")
}

/// Appends the check value.
fn repair(bytes: &mut Vec<u8>) {
    let check = crc32c::crc32c(bytes);
    bytes.extend_from_slice(&check.to_be_bytes());
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns one datagram for each record and for each optional part.
fn examples() -> Vec<Example> {
    let seq = |raw: u64| Seq::new(raw).unwrap();
    let stamp = Some(Stamp { time: WallTime::from_nanos(0x1706_6b71_0b70_6c00), offset: 7 });
    let plain = |payload: &[u8], raw: u64| Sent {
        message: message("a.b", payload),
        seq: Some(seq(raw)),
        stamp: None,
        chain: None,
    };
    let first = Sent { stamp, ..plain(b"hi", 0x5c19_adc0_0000_0001) };
    let chained = Sent { chain: Some(seq(0x5c19_ad80_0000_0063)), ..first.clone() };
    let mut rich = plain(b"hi", 0x5c19_adc0_0000_0003);
    rich.message.event = true;
    rich.message.reply = Some("r.1".parse().unwrap());
    rich.message.headers = Headers::from_pairs([("k", "v")]).unwrap();
    let unseq = Sent { seq: None, ..plain(b"hi", 1) };
    let hello = Hello { cookie: 0, wants_reply: true, announce: announce() };
    let directed_receiver = Epoch::new(0x1112_1314_1516_1718);
    let directed = PeerAnnouncement { directed_high: Dseq(3), directed_count: 4, directed_receiver, ..announce() };
    let [message_first, message_last] = vectors::whole_message();
    vec![
        of_messages("run", Kind::Data, vec![first, plain(b"", 0x5c19_adc0_0000_0002)]),
        of_messages("run-chain", Kind::Data, vec![chained]),
        of_messages("run-meta-event", Kind::Data, vec![rich]),
        of_messages("run-unseq", Kind::Data, vec![unseq.clone()]),
        of_messages("run-directed", Kind::Directed, vec![unseq]),
        vectors::stamped(Kind::Data),
        vectors::stamped(Kind::Directed),
        of_fragment(plain(b"hello, world", 0x5c19_adc0_0000_0004)),
        message_first,
        message_last,
        of_control("heartbeat", Record::Heartbeat(Box::new(directed)), 0),
        of_control("hello", Record::Hello(Box::new(hello)), 128),
        of_control("bye", Record::Bye(Box::new(announce())), 0),
        of_control("heartbeat-fields", repair::heartbeat_with_fields(), 0),
        of_control("heartbeat-queue", vectors::heartbeat_with_queue(), 0),
        of_control("resend-request", repair::example_request(), 0),
        of_control("resend-request-directed", repair::example_directed_request(), 0),
        of_control("manifest", repair::example_manifest(), 0),
        of_control("expired", repair::example_expired(None), 0),
        of_control("expired-directed", repair::example_expired(header(Kind::Directed).receiver), 0),
        of_control("receiver-report", repair::example_receiver_report(), 0),
        of_control("interest", interest::example(), 0),
        of_control("interest-request", interest::example_request(), 0),
    ]
}

fn of_messages(name: &'static str, kind: Kind, messages: Vec<Sent>) -> Example {
    let mut builder = Builder::new(1400);
    assert!(messages.iter().all(|sent| builder.push(&sent.entry())));
    let header = header(kind);
    Example { name, sealed: builder.seal(&header), header, meaning: Meaning::Messages(messages) }
}

/// Returns the second part of a message whose first seven bytes were in the previous datagram.
fn of_fragment(sent: Sent) -> Example {
    let (meta, body) = body_of((&sent.message).into());
    let mut builder = Builder::new(1400);
    assert_eq!(builder.push_fragment(&sent.entry(), &body, 1, 7), 5);
    let header = header(Kind::Data);
    let (total, chunk) = (body.len() as u32, Bytes::copy_from_slice(&body[7..]));
    let Sent { message, seq, stamp, chain } = sent;
    let fragment =
        Fragment { subject: message.subject, seq, stamp, chain, event: false, meta, index: 1, total, offset: 7, chunk };
    let meaning = Meaning::Records(vec![Record::Fragment(fragment)]);
    Example { name: "fragment", sealed: builder.seal(&header), header, meaning }
}

fn of_control(name: &'static str, record: Record, padded_to: usize) -> Example {
    let header = header(Kind::Control);
    let sealed = encode_control(&header, &record, padded_to);
    Example { name, sealed, header, meaning: Meaning::Records(vec![record]) }
}
