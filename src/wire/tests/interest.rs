//! INTEREST and INTEREST_REQUEST.

use super::*;
use crate::message::{Queue, QueueError, SubscriptionFilter};
use crate::subject::glob::Glob;
use crate::subject::{Pattern, SubjectError};

fn entry(pattern: &str, glob: Option<&str>, queue: Option<&str>, count: u32) -> InterestEntry {
    let glob = glob.map(|text| Glob::new(text.as_bytes()).unwrap());
    let queue = queue.map(|text| text.parse::<Queue>().unwrap());
    InterestEntry { wanted: SubscriptionFilter { pattern: pattern.parse::<Pattern>().unwrap(), glob, queue }, count }
}

pub(super) fn example() -> Record {
    let entries =
        vec![entry("a.b", None, None, 0), entry("a.>", Some("a.[xy]"), None, 2), entry("jobs", None, Some("q"), 1)];
    Record::Interest(Interest { after: 3, upto: 7, high: 300, base: 2, entries })
}

pub(super) fn example_request() -> Record {
    let epoch = header(Kind::Directed).receiver.unwrap();
    Record::InterestRequest(InterestRequest { epoch, from: 7, base: 0 })
}

#[test]
fn interest_record_round_trips_with_its_size() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut text = |most: u64, letters: &[u8]| -> String {
            (0..=rng.below(most)).map(|_| letters[rng.below(letters.len() as u64) as usize] as char).collect()
        };
        let entries: Vec<InterestEntry> = (0..seed % 5)
            .map(|n| {
                let (pattern, glob, queue) = (text(250, b"abc"), text(250, b"a*?[]"), text(250, b"q-"));
                let count = [0, 1, 127, 128, INTEREST_COUNT_MAX][n as usize];
                entry(&pattern, Some(&glob[..]).filter(|_| n % 2 == 0), Some(&queue[..]).filter(|_| n % 3 == 0), count)
            })
            .collect();
        let bytes: usize = entries.iter().map(InterestEntry::bytes).sum();
        let record = Interest { after: seed, upto: seed + 1, high: seed + 9, base: seed % 9, entries };
        let record = Record::Interest(record);
        let sealed = encode_control(&header(Kind::Control), &record, 0);
        assert_eq!(Interest::room(sealed.len()), bytes, "seed {seed}");
        assert_eq!(decode(sealed).unwrap().records, [record], "seed {seed}");
    }
}

/// Proves: W136
#[test]
fn each_malformed_interest_record_has_its_error() {
    let versions = |after: u64, upto: u64, high: u64| format!("{after:016x}{upto:016x}{high:016x}{:016x}", 1);
    let interest_record = |rest: &str| record("48", "00", &format!("{} {rest}", versions(1, 2, 3)));
    let epoch = "1112131415161718";
    for (records, expected) in [
        (record("48", "00", &format!("{} 0000", versions(2, 2, 3))), DecodeError::Versions),
        (record("48", "00", &format!("{} 0000", versions(1, 4, 3))), DecodeError::Versions),
        (record("48", "00", &format!("{} 0000", versions(1, 2, 1 << 63))), DecodeError::Number(1 << 63)),
        (record("48", "00", &format!("{:016x}{:016x}{:016x}{:016x} 0000", 1, 2, 3, 4)), DecodeError::Versions),
        (interest_record("ffff 00 01 61 01"), DecodeError::Truncated),
        (interest_record("0001 00 01 61"), DecodeError::Truncated),
        (interest_record("0001 00 03 61 01"), DecodeError::Truncated),
        (interest_record("0001 00 01 61 01 00"), DecodeError::Trailing { record: 0x48, bytes: 1 }),
        (interest_record("0001 04 01 61 01"), DecodeError::Flags(4)),
        (interest_record("0001 00 00 01 01"), DecodeError::Subject(SubjectError::Empty)),
        (interest_record("0001 02 01 61 00 01"), DecodeError::Queue(QueueError::Empty)),
        (interest_record("0001 02 01 61 01 20 01"), DecodeError::Queue(QueueError::Character(0))),
        (interest_record("0001 00 01 61 8000"), DecodeError::Varint),
        (record("49", "00", &format!("{:016x}{:016x}{:016x}", 0, 1, 1)), DecodeError::Epoch),
        (record("49", "00", &format!("{epoch}{:016x}{:016x}", 1u64 << 63, 1)), DecodeError::Number(1 << 63)),
        (record("49", "00", &format!("{epoch}{:016x}", 1)), DecodeError::Truncated),
    ] {
        assert_eq!(
            super::repair::decode_records(Kind::Control, &records),
            Err(DiscardReason::Malformed(expected)),
            "{records}"
        );
    }
}
