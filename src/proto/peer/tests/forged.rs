//! Datagrams that a neighbour forges from the address of an honest publisher, or that a faulty publisher sends. One of
//! them costs no message without a report, and the receiver recovers.

use super::*;
use crate::proto::send::AnnouncementKind;
use crate::wire::{Header, PeerAnnouncement, Record};

/// Returns a heartbeat that another sender forged from the publisher's own at this time; the publisher knows nothing of
/// it.
fn forged(p: &mut Host, millis: u64, change: impl FnOnce(&mut Header, &mut PeerAnnouncement)) -> Bytes {
    forged_as(p, millis, Record::Heartbeat, change)
}

fn forged_as(
    p: &mut Host,
    millis: u64,
    record: impl FnOnce(Box<PeerAnnouncement>) -> Record,
    change: impl FnOnce(&mut Header, &mut PeerAnnouncement),
) -> Bytes {
    let control = p.peer.announcements.control.clone();
    let datagram =
        wire::decode(p.peer.announcement_datagram(at(millis), AnnouncementKind::Heartbeat, None, 0)).unwrap();
    p.peer.announcements.control = control;
    let Record::Heartbeat(mut announce) = datagram.records[0].clone() else { unreachable!("a heartbeat") };
    let mut header = datagram.header;
    change(&mut header, &mut announce);
    wire::encode_control(&header, &record(announce), 0)
}

/// Runs a publisher that sends a message each 100 ms to a subscriber, from `from` to `to`, with its heartbeats. Returns
/// the reports to clients of the subscriber.
fn run(s: &mut Host, p: &mut Host, from: u64, to: u64) -> Vec<String> {
    for millis in (from..to).step_by(20) {
        if millis.is_multiple_of(100) {
            let data = p.publish(millis, "a");
            s.receive(millis, p.address, &data);
        }
        p.tick(millis).iter().for_each(|datagram| s.receive(millis, p.address, datagram));
        s.tick_quietly(millis);
    }
    s.take_reports()
}

/// Returns `count` deliveries of the subject, and nothing else.
fn deliveries(count: usize) -> Vec<String> {
    vec!["a".to_owned(); count]
}

/// Proves: W161
#[test]
fn forged_uptime_withholds_nothing_from_later_subscription() {
    let (mut s, mut p) = pair("a", 1000);
    assert_eq!(run(&mut s, &mut p, 1100, 2000), deliveries(9));
    let bytes = forged(&mut p, 2000, |header, _| header.uptime_ms += 60_000);
    s.receive(2000, p.address, &bytes);
    s.subscribe_as(2010, 7, "a", DeliveryMode::Repair);
    let mut delivered = [0, 0];
    for millis in (2100..6000_u64).step_by(20) {
        if millis.is_multiple_of(100) {
            let data = p.publish(millis, "a");
            s.receive(millis, p.address, &data);
        }
        p.tick(millis).iter().for_each(|datagram| s.receive(millis, p.address, datagram));
        s.tick_quietly(millis);
        for effect in s.drain() {
            if let Effect::Deliver { to, deliveries } = effect {
                let is_later = |target: &Target| target.sub == SubId(7);
                delivered[0] += deliveries.len() * to.iter().filter(|target| !is_later(target)).count();
                delivered[1] += deliveries.len() * to.iter().filter(|target| is_later(target)).count();
            }
        }
    }
    assert_eq!(delivered, [39, 39], "to the earlier and to the later subscription");
    let row = &s.peer.loss_rows()[0];
    assert_eq!((row.msg_loss.count, row.unverified.count), (0, 0));
}

/// Proves: W161, W56
#[test]
fn forged_bye_does_not_end_a_live_epoch() {
    let (mut s, mut p) = pair("a", 1000);
    assert_eq!(run(&mut s, &mut p, 1100, 2000), deliveries(9));
    let bye = forged_as(&mut p, 2000, Record::Bye, |_, _| {});
    s.receive(2000, p.address, &bye);
    assert_eq!(s.peer.member_rows(at(2000))[0].state, MemberState::Left);
    let reports = run(&mut s, &mut p, 2100, 6000);
    assert_eq!(reports, deliveries(39), "the next datagram proves that the epoch goes on");
    assert_eq!(s.peer.member_rows(at(6000))[0].state, MemberState::Up);
    assert_eq!(s.peer.counters().forged_byes, 1);
}

/// Proves: W56
#[test]
fn heartbeat_reopens_epoch_after_forged_bye() {
    let (mut s, mut p) = pair("a", 1000);
    let bye = forged_as(&mut p, 1000, Record::Bye, |_, _| {});
    s.receive(1010, p.address, &bye);
    assert_eq!(s.peer.member_rows(at(1010))[0].state, MemberState::Left);
    for millis in (1020..3000).step_by(20) {
        p.tick(millis).iter().for_each(|datagram| s.receive(millis, p.address, datagram));
    }
    assert_eq!(s.peer.member_rows(at(3000))[0].state, MemberState::Up);
}

/// Proves: W60, W161
#[test]
fn forged_control_number_does_not_block_later_announcements() {
    let (mut s, mut p) = pair("a", 1000);
    assert_eq!(run(&mut s, &mut p, 1100, 2000), deliveries(9));
    let bytes = forged(&mut p, 2000, |header, _| header.number = (1 << 63) - 1);
    s.receive(2000, p.address, &bytes);
    assert_eq!(s.peer.counters().discard_quarantined, 1);
    // The last message is lost, and only a heartbeat announces it.
    let _lost = p.publish(2100, "a");
    for millis in (2120..2300).step_by(20) {
        p.tick(millis).iter().for_each(|datagram| s.receive(millis, p.address, datagram));
        s.tick_quietly(millis);
    }
    assert_eq!(s.peer.loss_rows()[0].datagrams.unverified, 1, "the lost tail is found");
}

/// A plausible forged number is accepted; two honest announcements after it prove that it was forged.
/// Proves: W60, W161
#[test]
fn plausible_forged_control_number_is_corrected() {
    // At 6100 ms a window ends in which the receiver looks for the fastest datagram.
    let uptimes = [(2000, 0), (2000, 4500), (2000, 62_000), (6100, u32::MAX / 2)];
    for (at_millis, uptime) in uptimes {
        let (mut s, mut p) = pair("a", 1000);
        assert_eq!(run(&mut s, &mut p, 1100, at_millis), deliveries((at_millis as usize - 1100) / 100));
        let bytes = forged(&mut p, at_millis, |header, _| {
            header.number += (1 << 20) - 1;
            header.uptime_ms += uptime;
        });
        s.receive(at_millis, p.address, &bytes);
        assert_eq!(s.peer.counters().discard_quarantined, u64::from(60_000 < uptime), "only the uptime is implausible");
        let _lost = p.publish(at_millis + 100, "a");
        for millis in (at_millis + 120..at_millis + 8000).step_by(20) {
            p.tick(millis).iter().for_each(|datagram| s.receive(millis, p.address, datagram));
            s.tick_quietly(millis);
        }
        assert_eq!(s.peer.loss_rows()[0].datagrams.unverified, 1, "the lost tail is found");
        assert_eq!(s.peer.member_rows(at(at_millis + 8000))[0].state, MemberState::Up);
    }
}

/// Proves: W60
#[test]
fn first_contact_with_forged_control_number_is_corrected() {
    let mut s = Host::new("S.test", 1, 0);
    s.subscribe(0, "a");
    let mut p = Host::new("P.test", 2, 1_000);
    let bytes = forged(&mut p, 1000, |header, _| header.number = (1 << 63) - 1);
    s.receive(1000, p.address, &bytes);
    let reports = run(&mut s, &mut p, 1100, 2000);
    assert_eq!(reports, deliveries(9));
    let _lost = p.publish(2000, "a");
    for millis in (2020..2300).step_by(20) {
        p.tick(millis).iter().for_each(|datagram| s.receive(millis, p.address, datagram));
        s.tick_quietly(millis);
    }
    assert_eq!(s.peer.loss_rows()[0].datagrams.unverified, 1, "the lost tail is found");
}

/// Proves: W65
#[test]
fn forged_high_costs_no_later_datagram() {
    for high in [20, 1_048_566] {
        let mut settings = settings("S.test");
        settings.reliability = Duration::from_secs(2);
        let (mut s, mut p) = pair_of(settings, "a", 1000);
        assert_eq!(run(&mut s, &mut p, 1100, 2000), deliveries(9));
        let bytes = forged(&mut p, 2000, |_, announce| announce.high = Dseq(announce.high.0 + high));
        s.receive(2000, p.address, &bytes);
        assert_eq!(run(&mut s, &mut p, 2100, 6000), deliveries(39), "{high}");
        let row = &s.peer.loss_rows()[0];
        assert_eq!((row.datagrams.unverified, row.datagrams.pending, row.datagrams.lost), (0, 0, 0), "{high}");
        s.peer.assert_invariants();
    }
}

#[test]
fn forged_high_without_repair_costs_no_message() {
    let (mut s, mut p) = pair("a", 1000);
    assert_eq!(run(&mut s, &mut p, 1100, 2000), deliveries(9));
    let bytes = forged(&mut p, 2000, |_, announce| announce.high = Dseq(announce.high.0 + 20));
    s.receive(2000, p.address, &bytes);
    s.tick_quietly(2050);
    assert_eq!(run(&mut s, &mut p, 2100, 6000), deliveries(39));
    assert_eq!(s.peer.loss_rows()[0].datagrams.unverified, 0);
    s.peer.assert_invariants();
}

/// Returns a datagram that another sender forges in place of the publisher's next one. A peer with the same history as
/// the publisher publishes `subjects` in it.
fn forged_data(published: u64, subjects: &str) -> Bytes {
    let mut forger = Host::new("P.test", 2, 1000);
    forger.tick(1000);
    for index in 0..published {
        forger.publish(1001 + index, "a");
    }
    forger.publish(1500, subjects)
}

/// Does the same with `count` empty messages.
fn forged_data_of_empty_messages(published: u64, count: usize) -> Bytes {
    let mut forger = Host::of(Settings { datagram_bytes_max: 65_507, ..settings("P.test") }, 2, 1000);
    forger.tick(1000);
    for index in 0..published {
        forger.publish(1001 + index, "a");
    }
    for _ in 0..count {
        let request = ClientRequest::Publish(Message::new("a".parse().unwrap(), Bytes::new()));
        forger.peer.handle(at(1500), Input::ClientRequest { client: CLIENT, request });
    }
    let mut sent = forger.tick(1500);
    sent.retain(|bytes| bytes[4] == 0);
    assert_eq!(sent.len(), 1, "one datagram of data");
    sent.remove(0)
}

/// Returns a subscriber and a publisher, three of whose messages have arrived.
fn pair_with_three() -> (Host, Host) {
    let (mut s, mut p) = (Host::new("S.test", 1, 0), Host::new("P.test", 2, 1000));
    s.subscribe(0, "a");
    p.tick(1000).iter().for_each(|datagram| s.receive(1000, p.address, datagram));
    for millis in 1001..1004 {
        let data = p.publish(millis, "a");
        s.receive(millis, p.address, &data);
    }
    assert_eq!(s.take_reports(), deliveries(3));
    (s, p)
}

/// Proves: W66
#[test]
fn forged_data_costs_only_reported_messages() {
    for count in [300, 60_000] {
        check_forged_data_cost(count);
    }
}

fn check_forged_data_cost(count: usize) {
    let (mut s, mut p) = pair_with_three();
    let forged = forged_data_of_empty_messages(3, count);
    s.receive(1600, p.address, &forged);
    assert_eq!(s.take_reports().len(), count);
    let mut reports = Vec::new();
    for millis in 2000..2020 {
        let data = p.publish(millis, "a");
        s.receive(millis, p.address, &data);
        reports.extend(s.take_reports());
    }
    // The forged datagram replaces the first of 20. The second one, which contradicts it, is discarded until the third
    // agrees.
    assert_eq!(reports[0], "unverified 4-5 0..2");
    assert_eq!(reports[1..], deliveries(18));
    let counters = s.peer.counters();
    assert_eq!((counters.forgeries_detected, counters.discard_duplicate, counters.discard_contradiction), (1, 1, 1));
    assert_eq!(s.peer.loss_rows()[0].msg_loss.count, 0);
}

/// Proves: W66
#[test]
fn announcement_corrects_forged_data() {
    let (mut s, mut p) = pair_with_three();
    let forged = forged_data(3, "a a a");
    s.receive(1600, p.address, &forged);
    s.take_reports();
    let real = p.publish(2000, "a");
    s.receive(2000, p.address, &real);
    let mut reports = Vec::new();
    for millis in (2020..2300).step_by(20) {
        p.tick(millis).iter().for_each(|datagram| s.receive(millis, p.address, datagram));
        s.tick_quietly(millis);
        reports.extend(s.take_reports());
    }
    assert_eq!(reports, ["unverified 4-4 0..1"]);
    let next = p.publish(2300, "a");
    s.receive(2300, p.address, &next);
    assert_eq!(s.take_reports(), ["a"]);
}

/// Proves: W66
#[test]
fn publisher_recovers_from_forged_data_far_ahead() {
    let (mut s, mut p) = pair_with_three();
    let mut forger = Host::new("P.test", 2, 1000);
    forger.tick(1000);
    let ahead = (0..10).map(|index| forger.publish(1001 + index, "a a a a a a a a")).last().unwrap();
    s.receive(1600, p.address, &ahead);
    let reports = run(&mut s, &mut p, 2000, 6000);
    let delivered = reports.iter().filter(|report| report.starts_with('a')).count();
    let unverified: Vec<_> = reports.iter().filter(|report| report.starts_with("unverified")).collect();
    assert!(39 <= delivered + unverified.len() && 30 <= delivered, "{reports:?}");
    assert_eq!(run(&mut s, &mut p, 6000, 8000), deliveries(20), "{reports:?}");
}

/// Proves: W67
#[test]
fn forged_number_of_subject_withholds_no_later_message() {
    let (mut s, mut p, mut forger) =
        (Host::new("S.test", 1, 0), Host::new("P.test", 2, 1000), Host::new("P.test", 2, 1000));
    s.subscribe(0, "a");
    p.tick(1000).iter().for_each(|datagram| s.receive(1000, p.address, datagram));
    forger.tick(1000);
    // The forger's datagram has as many messages as that of the publisher, but one more of them on this subject.
    forger.publish(1001, "a a");
    for (millis, subjects) in [(1001, "a b"), (1002, "a")] {
        let data = p.publish(millis, subjects);
        s.receive(millis, p.address, &data);
    }
    let forged = [1002, 1003].map(|millis| forger.publish(millis, "a"))[1].clone();
    s.receive(1003, p.address, &forged);
    s.take_reports();
    let own = [1003, 1004, 1005].map(|millis| p.publish(millis, "a"));
    own.iter().for_each(|data| s.receive(1006, p.address, data));
    assert_eq!(s.take_reports(), ["unverified 3-3 0..1", "a", "a"]);
}

/// Returns a publisher that knows the inbox of a subscriber, and three of whose directed messages have arrived.
fn pair_with_directed() -> (Host, Host, String) {
    let mut settings = settings("S.test");
    settings.reliability = Duration::from_secs(1);
    let (mut s, mut p) = (Host::of(settings, 1, 0), Host::new("P.test", 2, 1000));
    let inbox = format!("_INBOX.{}.1", s.peer.epoch());
    s.subscribe(0, &inbox);
    p.tick(1000).iter().for_each(|datagram| s.receive(1000, p.address, datagram));
    s.tick(1000).iter().for_each(|datagram| p.receive(1000, s.address, datagram));
    assert_eq!(direct(&mut s, &mut p, &inbox, 1010), [&inbox[..]; 3]);
    (s, p, inbox)
}

/// Sends three directed messages, then a heartbeat, and returns the reports to the subscriber's client within 5 s.
fn direct(s: &mut Host, p: &mut Host, inbox: &str, from: u64) -> Vec<String> {
    for millis in from..from + 3 {
        let data = p.direct(millis, inbox);
        s.receive(millis, p.address, &data);
    }
    for millis in (from + 3..from + 5000).step_by(50) {
        let datagram = p.peer.announcement_datagram(at(millis), AnnouncementKind::Heartbeat, Some(s.peer.epoch()), 0);
        s.peer.handle(at(millis), Input::Datagram { from: p.address, path: Path::Unicast, bytes: datagram });
        s.tick_quietly(millis);
    }
    s.take_reports()
}

#[test]
fn forged_directed_high_costs_no_message() {
    for high in [2, 20, 1_000_000] {
        let (mut s, mut p, inbox) = pair_with_directed();
        let control = p.peer.announcements.control.clone();
        let datagram = p.peer.announcement_datagram(at(7000), AnnouncementKind::Heartbeat, Some(s.peer.epoch()), 0);
        p.peer.announcements.control = control;
        let datagram = wire::decode(datagram).unwrap();
        let Record::Heartbeat(mut announce) = datagram.records[0].clone() else { unreachable!("a heartbeat") };
        (announce.directed_high, announce.directed_count) = (Dseq(3 + high), 3 + high);
        let bytes = wire::encode_control(&datagram.header, &Record::Heartbeat(announce), 0);
        s.peer.handle(at(7000), Input::Datagram { from: p.address, path: Path::Unicast, bytes });
        assert_eq!(direct(&mut s, &mut p, &inbox, 7010), [&inbox[..]; 3], "{high}");
        assert_eq!(s.peer.loss_rows()[0].ibx_loss.count, 0, "{high}");
        s.peer.assert_invariants();
    }
}

#[test]
fn forged_directed_data_costs_only_reported_messages() {
    let (mut s, mut p, inbox) = pair_with_directed();
    let mut forger = Host::new("P.test", 2, 1000);
    forger.tick(1000);
    s.tick(6900).iter().for_each(|datagram| forger.receive(6900, s.address, datagram));
    let forged = (0..10).map(|index| forger.direct(6900 + index, &inbox)).last().unwrap();
    s.receive(7000, p.address, &forged);
    let reports: Vec<String> =
        [7010, 13_000, 19_000].iter().flat_map(|from| direct(&mut s, &mut p, &inbox, *from)).collect();
    // The tenth of them is the forged one, which cannot be distinguished from the publisher's own.
    let delivered = reports.iter().filter(|report| **report == inbox).count();
    assert_eq!(9 - delivered as u64, s.peer.loss_rows()[0].ibx_loss.count, "{reports:?}");
    assert!(6 <= delivered, "{reports:?}");
    assert_eq!(direct(&mut s, &mut p, &inbox, 25_000), [&inbox[..]; 3]);
}

#[test]
fn forged_high_is_not_reported_as_read() {
    let (mut s, mut p) = pair("a", 1000);
    assert_eq!(run(&mut s, &mut p, 1100, 2000), deliveries(9));
    let bytes = forged(&mut p, 2000, |_, announce| announce.high = Dseq(announce.high.0 + 1000));
    s.receive(2000, p.address, &bytes);
    let epoch = p.peer.epoch();
    let read = |s: &Host| s.peer.members.get(&epoch).expect("a member").receive_progress.high();
    assert!(Dseq(1000) < read(&s));
    run(&mut s, &mut p, 2100, 2200);
    assert_eq!(read(&s), p.peer.outbound.sent().0);
}

/// A publisher cannot have sent this data: it is the first datagram, and names messages before it. Or it is far ahead.
/// Proves: W64
#[test]
fn forged_first_contact_by_data_reports_nothing() {
    for (number, count) in [(1, 5), ((1 << 20) + 1, 9), (1 << 62, 1 << 62)] {
        let mut s = Host::new("S.test", 1, 0);
        s.subscribe(0, "a");
        let mut p = Host::new("P.test", 2, 900);
        let mut bytes = p.publish(950, "a").to_vec();
        bytes[16..24].copy_from_slice(&u64::to_be_bytes(number));
        bytes[24..32].copy_from_slice(&u64::to_be_bytes(count));
        let content = bytes.len() - 4;
        let check = crc32c::crc32c(&bytes[..content]);
        bytes[content..].copy_from_slice(&check.to_be_bytes());
        assert_eq!(wire::decode(bytes.clone().into()).map(|datagram| datagram.header.number), Ok(number));
        s.receive(1200, p.address, &bytes.into());
        (1200..4000).step_by(20).for_each(|millis| s.tick_quietly(millis));
        let reports = s.take_reports();
        assert!(reports.iter().all(|report| report == "a"), "{number}: {reports:?}");
    }
}
