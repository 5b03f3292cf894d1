//! Tests of beacons: their bytes in `docs/wire.md`, and bytes that are no beacon.

use super::*;

fn example(group: &str) -> Beacon {
    Beacon {
        epoch: Epoch::new(0x0102_0304_0506_0708).unwrap(),
        name: "S.test".parse().unwrap(),
        group: group.parse().unwrap(),
        port: 7500,
    }
}

/// Returns the beacon with other bytes from `at` on, and a check value that fits.
fn changed(at: usize, by: &[u8]) -> Bytes {
    let mut bytes = example("239.255.83.67").encode().to_vec();
    bytes.truncate(bytes.len() - CHECK_BYTES);
    bytes[at..at + by.len()].copy_from_slice(by);
    sealed(&bytes)
}

fn sealed(content: &[u8]) -> Bytes {
    [content, &crc32c::crc32c(content).to_be_bytes()].concat().into()
}

/// Proves: W162
#[test]
fn beacon_has_the_specified_bytes() {
    let examples = [("v4", example("239.255.83.67")), ("v6", example("ff15::5343"))];
    let encoded = examples.clone().map(|(name, beacon)| (name.to_owned(), hex(&beacon.encode())));
    assert_eq!(encoded.as_slice(), blocks(include_str!("../../../docs/wire.md"), "beacon"));
    for (_, beacon) in examples {
        assert_eq!(Beacon::decode(&unhex(&hex(&beacon.encode())).into()), Ok(beacon));
    }
    let longest = Beacon { name: "n".repeat(PeerName::BYTES_MAX).parse().unwrap(), ..example("ff15::5343") };
    assert_eq!(longest.encode().len(), Beacon::BYTES_MAX);
    assert_eq!(Beacon::decode(&longest.encode()), Ok(longest));
}

/// Proves: W163
#[test]
fn damaged_or_impossible_beacons_are_refused() {
    let malformed = |error| Err(DiscardReason::Malformed(error));
    let whole = example("239.255.83.67").encode();
    let content = &whole[..whole.len() - CHECK_BYTES];
    for cut in 0..content.len() {
        assert!(Beacon::decode(&whole.slice(..cut)).is_err(), "{cut}");
        assert!(Beacon::decode(&sealed(&content[..cut])).is_err(), "{cut}");
    }
    assert_eq!(Beacon::decode(&changed(0, b"SC")), Err(DiscardReason::Foreign));
    assert_eq!(Beacon::decode(&changed(2, &[2])), Err(DiscardReason::Version(2)));
    assert_eq!(Beacon::decode(&changed(3, &[1])), Ok(example("239.255.83.67")));
    assert_eq!(Beacon::decode(&[&whole[..20], &[0; 10]].concat().into()), Err(DiscardReason::Check));
    assert_eq!(Beacon::decode(&changed(4, &[0; 8])), malformed(DecodeError::Epoch));
    assert_eq!(Beacon::decode(&changed(12, &[0, 0])), malformed(DecodeError::Group));
    assert_eq!(Beacon::decode(&changed(14, &[5])), malformed(DecodeError::Group));
    assert_eq!(Beacon::decode(&changed(16, &[10, 0, 0, 7])), malformed(DecodeError::Group));
    assert_eq!(Beacon::decode(&changed(15, &[255])), malformed(DecodeError::Truncated));
    assert_eq!(Beacon::decode(&changed(15, &[5])), malformed(DecodeError::BeaconTrailing(1)));
    assert_eq!(Beacon::decode(&changed(20, &[0xff])), malformed(DecodeError::NameEncoding));
    let escape = Beacon::decode(&changed(20, b"\x1b"));
    assert!(matches!(escape, Err(DiscardReason::Malformed(DecodeError::Name(_)))), "{escape:?}");
}
