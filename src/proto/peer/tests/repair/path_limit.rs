//! Paths that drop large datagrams without a word, and paths that drop datagrams for other reasons.

use super::*;
use crate::proto::peer::PathLimit;

/// Bytes of a message that fills many datagrams.
const LARGE: usize = 200_000;

fn is_large(copy: &Copy) -> bool {
    1300 < copy.bytes.len()
}

fn path_limit(lan: &Lan, host: usize) -> Option<PathLimit> {
    lan.hosts[host].peer.path_limit().cloned()
}

/// Proves: W101, W112, resend
#[test]
fn smaller_datagrams_replace_those_that_never_arrive() {
    let mut lan = Lan::new(2, |settings| settings.recovery.history.bytes_max = 2 * LARGE);
    lan.publish_bytes("a", LARGE);
    lan.run(1200, is_large);
    let row = lan.hosts[0].peer.member_rows(at(lan.millis)).remove(0);
    let receivers = vec![(row.publisher, lan.hosts[1].address)];
    assert_eq!(path_limit(&lan, 0), Some(PathLimit { failing: 1392, arriving: 1200, receivers }));
    assert_eq!(lan.hosts[0].peer.settings().datagram_bytes_max, 1200);
    lan.run(1000, is_large);
    assert_eq!(lan.take_reports(1), "1r", "the receiver got the message from the history");
    let resent = lan.hosts[0].peer.resend_counters().bytes;
    assert!(resent < 6 * LARGE as u64, "{resent} bytes");
    lan.publish_bytes("a", LARGE);
    let mut large = 0;
    lan.run(1000, |copy| {
        large += usize::from(is_large(copy));
        is_large(copy)
    });
    assert_eq!((lan.take_reports(1).as_str(), large), ("2", 0), "no large datagram is sent any more");
    assert_eq!(path_limit(&lan, 1), None, "the other direction is not known");
    let row = &lan.hosts[1].peer.loss_rows()[0];
    assert_eq!((row.msg_loss.count, row.unverified.count, row.inconsistencies), (0, 0, 0));
}

#[test]
fn single_large_datagrams_reveal_the_limit() {
    let mut lan = Lan::new(2, |_| {});
    for _ in 0..30 {
        lan.publish_bytes("a", 1300);
        lan.publish("a");
        lan.run(50, is_large);
    }
    lan.run(1000, is_large);
    assert_eq!(path_limit(&lan, 0).map(|limit| (limit.failing, limit.arriving)), Some((1370, 1200)));
    let expected: Vec<String> = (1..=60).map(|seq| seq.to_string()).collect();
    assert_eq!(lan.take_reports(1).replace('r', ""), expected.join(", "));
}

#[test]
fn lossy_paths_limit_no_datagrams() {
    for (percent, seeds) in [(5, 2), (30, 4), (60, 4), (90, 2)] {
        for seed in 0..seeds {
            let mut loss = Rng::new(seed);
            let mut lan = Lan::new(3, |_| {});
            lan.publish_bytes("a", LARGE);
            let mut drops = |_: &Copy| loss.chance(f64::from(percent) / 100.0);
            lan.run(300, &mut drops);
            lan.publish_bytes("a", LARGE);
            lan.run(1000, &mut drops);
            assert_eq!(path_limit(&lan, 0), None, "{percent} %, seed {seed}");
        }
    }
}

#[test]
fn bursts_of_loss_limit_no_datagrams() {
    for seed in 0..12 {
        let mut loss = Rng::new(seed);
        let mut lan = Lan::new(2, |_| {});
        for _ in 0..8 {
            lan.publish_bytes("a", LARGE / 4);
            // For a while everything is lost, or all multicasts, or all data.
            let what = loss.below(3);
            lan.run(loss.below(200), |copy| match what {
                0 => true,
                1 => copy.path == Path::Multicast,
                _ => copy.dseq().is_some(),
            });
            lan.run(loss.below(200), |_| false);
        }
        assert_eq!(path_limit(&lan, 0), None, "seed {seed}");
    }
}
