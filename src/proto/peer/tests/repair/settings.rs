//! Settings of repair, each with two values that lead to two outcomes.

use super::*;
use crate::wire::{Range, ResendRequest};

fn is_lost(copy: &Copy) -> bool {
    copy.path == Path::Multicast && matches!(copy.dseq(), Some(1 | 2))
}

#[test]
fn loss_is_reported_after_the_reliability_time() {
    for reliability in [500, 2000] {
        let mut lan = Lan::new(2, |settings| settings.reliability = Duration::from_millis(reliability));
        lan.publish("a");
        lan.publish("a");
        let lost = |copy: &Copy| copy.dseq() == Some(1);
        lan.run(reliability - 10, lost);
        assert_eq!(lan.take_reports(1), "", "{reliability} ms");
        lan.run(30, lost);
        assert_eq!(lan.take_reports(1), "lost 1-1 1 DEADLINE, 2", "{reliability} ms");
    }
}

#[test]
fn datagram_within_the_resend_size_is_resent() {
    for (resend_size, reports) in [(4 << 20, "1r, 2r, 3"), (0, "lost 1-2 2 EXPIRED, 3")] {
        let mut lan = Lan::new(2, |settings| {
            settings.recovery.ring.bytes_max = resend_size;
            settings.recovery.ring.manifest_bytes_max = resend_size;
        });
        (0..3).for_each(|_| lan.publish("a"));
        lan.run(300, is_lost);
        assert_eq!(lan.take_reports(1), reports, "{resend_size} bytes");
    }
}

#[test]
fn stopping_peer_answers_until_its_linger_time() {
    for linger in [500, 2000] {
        let mut lan = Lan::new(2, |settings| settings.recovery.linger = Duration::from_millis(linger));
        lan.publish("a");
        lan.run(100, |_| false);
        let (began, from) = (lan.millis, lan.hosts[1].address);
        lan.hosts[0].peer.handle(at(began), Input::Stop);
        let epoch = lan.hosts[0].peer.epoch();
        let ranges = vec![Range { first: Dseq(1), last: Dseq(1) }];
        let request = ResendRequest { epoch, directed: false, manifests_only: false, unicast: false, ranges };
        let record = Record::ResendRequest(request);
        let stopped = (1..4000).find(|after| {
            let now = at(began + after);
            // The receiver requests so often that the publisher never sees a pause.
            if after % 50 == 0 {
                let peer = &mut lan.hosts[1].peer;
                let bytes = peer.announcements.control.datagram(now.instant, &peer.origin, 0, &record, 0);
                lan.hosts[0].peer.handle(now, Input::Datagram { from, path: Path::Unicast, bytes });
            }
            lan.hosts[0].peer.handle(now, Input::Tick);
            lan.hosts[0].drain().contains(&Effect::Stopped)
        });
        assert_eq!(stopped, Some(linger));
    }
}
