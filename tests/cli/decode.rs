//! `decode` and the dissector for Wireshark: both print the same of every fixture and of real traffic.

use crate::support::TempDir;
use crate::support::command::Place;
use crate::support::dissector::{DatagramPair, decode_with_both};
use crate::support::exit_code::{DONE, FAILED};
use crate::support::root;
use std::collections::BTreeSet;
use std::fs;

/// Header of a capture in the format pcap, little-endian, of IP packets without a link layer.
const CAPTURE_HEADER: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 101, 0, 0, 0];

/// Returns a capture with these UDP payloads, a packet for each.
fn capture(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = CAPTURE_HEADER.to_vec();
    for payload in payloads {
        let udp_bytes = u16::try_from(8 + payload.len()).unwrap();
        let mut packet = vec![0x45, 0];
        packet.extend((20 + udp_bytes).to_be_bytes());
        packet.extend([0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 1, 239, 255, 83, 67]);
        for field in [40_000, 7_500, udp_bytes, 0] {
            packet.extend(u16::to_be_bytes(field));
        }
        packet.extend(payload);
        let packet_bytes = u32::try_from(packet.len()).unwrap();
        for field in [1_700_000_000, 250_000, packet_bytes, packet_bytes] {
            bytes.extend(u32::to_le_bytes(field));
        }
        bytes.extend(packet);
    }
    bytes
}

/// Returns the examples of the specification of the wire, and the inputs of the fuzz target of the decoder.
fn fixtures() -> Vec<Vec<u8>> {
    let specification = fs::read_to_string(root().join("docs/wire.md")).unwrap();
    let digits = |block: &str| -> String {
        let (_, body) = block.split_once('\n').unwrap();
        let lines = body.split("```").next().unwrap().lines();
        lines.map(|line| line.split('#').next().unwrap().replace(' ', "")).collect()
    };
    let bytes = |digits: String| {
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    };
    let blocks = ["```hex ", "```beacon "].into_iter().flat_map(|mark| specification.split(mark).skip(1));
    let mut fixtures: Vec<Vec<u8>> = blocks.map(|block| bytes(digits(block))).collect();
    assert!(10 < fixtures.len());
    let mut files: Vec<_> =
        fs::read_dir(root().join("tests/corpus/decode")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    fixtures.extend(files.into_iter().map(|file| fs::read(file).unwrap()));
    fixtures
}

fn decode_fixtures(payloads: &[Vec<u8>]) -> Vec<DatagramPair> {
    let directory = TempDir::new();
    let file = directory.file("fixtures.pcap", capture(payloads));
    decode_with_both(&Place::new(), &file)
}

#[test]
fn dissector_and_decoder_agree_on_every_fixture() {
    let fixtures = fixtures();
    let pairs = decode_fixtures(&fixtures);
    assert_eq!(pairs.len(), fixtures.len());
    for pair in pairs.iter().filter(|pair| pair.discarded.is_none()) {
        assert_eq!(pair.dissected, pair.decoded);
        assert_eq!(pair.defects, [""; 0], "{pair:?}");
    }
    let records: BTreeSet<&str> = pairs.iter().flat_map(|pair| &pair.records).map(String::as_str).collect();
    let known = [
        "beacon",
        "bye",
        "expired",
        "fragment",
        "heartbeat",
        "hello",
        "interest",
        "interest_request",
        "manifest",
        "receiver_report",
        "resend_request",
        "run",
    ];
    assert_eq!(records, BTreeSet::from(known));
}

#[test]
fn discarded_datagram_is_named_by_both() {
    let valid = fixtures().swap_remove(0);
    let with = |at: usize, byte: u8| {
        let mut bytes = valid.clone();
        bytes[at] = byte;
        bytes
    };
    let damaged = with(30, !valid[30]);
    let keyed = with(3, 1);
    let pairs = decode_fixtures(&[damaged, keyed, with(0, 0x54)]);
    let discards: Vec<_> = pairs.iter().map(|pair| pair.discarded.as_deref()).collect();
    assert_eq!(discards, [Some("check"), Some("mode")], "another protocol is left out");
    assert_eq!(pairs[0].defects, ["bad_check"]);
    assert_eq!(pairs[1].dissected, pairs[1].decoded, "the header of a keyed datagram");
    assert!(pairs[1].decoded.contains_key("epoch"), "{:?}", pairs[1]);
}

#[test]
fn damaged_capture_exits_1_after_its_datagrams() {
    let place = Place::new();
    let directory = TempDir::new();
    let whole = capture(&fixtures()[..3]);
    let cut = directory.file("cut.pcap", &whole[..whole.len() - 1]);
    let outcome = place.run(&["decode", cut.to_str().unwrap()]).exits(FAILED).reports(&["ends inside a packet"]);
    assert_eq!(outcome.stdout.lines().filter(|line| !line.starts_with(' ')).count(), 2, "{outcome:#?}");

    let lying = directory.file("lying.pcap", [&whole[..32], &[0xff, 0xff, 0xff, 0x7f], &whole[36..]].concat());
    place.run(&["decode", lying.to_str().unwrap()]).exits(FAILED).reports(&["packet 1", "malformed"]);
    let text = directory.file("notes.txt", "a text");
    place.run(&["decode", text.to_str().unwrap()]).exits(FAILED).reports(&["no", "capture", "tcpdump"]);
    place.run(&["decode", "absent.pcap"]).exits(FAILED).reports(&["absent.pcap", "No such file"]);
}

#[test]
fn capture_is_printed_as_text() {
    let place = Place::new();
    let outcome = place.run_with_input(&["decode", "-"], &capture(&fixtures()[..1])).exits(DONE);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines[0].starts_with("1 2023-11-14T22:13:20.250000000Z 10.0.0.1:40000 > 239.255.83.67:7500"), "{lines:#?}");
    assert!(lines[1].starts_with("  "), "a record is indented: {lines:#?}");
    assert!(outcome.stderr.contains("1 datagram decoded, 0 discarded"), "{}", outcome.stderr);
}
