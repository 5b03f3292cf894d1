//! Costs of one datagram from an unproven address, for that address and for the peers that hear it.

use super::*;
use crate::message::{Dseq, Queue};
use crate::proto::send::AnnouncementKind;
use crate::wire::{Header, InterestRequest, Kind, PeerAnnouncement, Range, ReceiverReport, Record, ResendRequest};

/// Maximum number of datagrams to an unproven address, for each datagram from there.
const MOST: usize = 3;

/// Claim of a forged datagram.
type Claim = fn(&mut Header, &mut PeerAnnouncement);

/// Returns a datagram forged in the name of `victim`, which knows nothing of it and never answers.
fn forged(victim: &mut Host, change: impl FnOnce(&mut Header, &mut PeerAnnouncement)) -> Bytes {
    let datagram =
        wire::decode(victim.peer.announcement_datagram(at(1000), AnnouncementKind::Heartbeat, None, 0)).unwrap();
    let Record::Heartbeat(mut announce) = datagram.records[0].clone() else { unreachable!("a heartbeat") };
    let mut header = datagram.header;
    change(&mut header, &mut announce);
    wire::encode_control(&header, &Record::Heartbeat(announce), 0)
}

/// Advances the time by 100 s and returns the sizes of the datagrams to `address`.
fn sent_to(host: &mut Host, address: SocketAddr) -> Vec<usize> {
    let (mut sent, mut millis) = (Vec::new(), 1000);
    while millis < 101_000 {
        host.peer.handle(at(millis), Input::Tick);
        while let Some(effect) = host.peer.poll_effect() {
            if let Effect::Unicast { to, bytes } = effect
                && to == address
            {
                sent.push(bytes.len());
            }
        }
        let deadline = host.peer.poll_deadline().expect("a peer announces itself periodically");
        millis = deadline.as_nanos().div_ceil(1_000_000).max(millis + 1);
    }
    sent
}

/// Returns a subscriber that runs since 0 s.
fn subscriber() -> Host {
    let mut host = Host::new("S.test", 1, 0);
    host.subscribe(0, ">");
    host.tick(900);
    host
}

/// Proves: W159
#[test]
fn unproven_datagram_gets_three_small_answers_at_most() {
    let claims: [(&str, Claim); 5] = [
        ("that it suppresses messages", |_, announce| {
            announce.heartbeat = Duration::from_secs(60);
            announce.interest =
                Some(wire::InterestAnnouncement { version: 1, suppresses: true, wants_confirmation: true });
        }),
        ("its own interval", |_, _| {}),
        ("an interval of 60 s", |_, announce| announce.heartbeat = Duration::from_secs(60)),
        ("many missing messages", |header, announce| (header.count, announce.high) = (1_000_000, Dseq(1_000_000))),
        ("a long life", |header, _| header.uptime_ms = 50_000_000),
    ];
    for (claim, change) in claims {
        let (mut host, mut victim) = (subscriber(), Host::new("victim", 77, 0));
        let bytes = forged(&mut victim, change);
        host.receive(1000, victim.address, &bytes);
        let sent = sent_to(&mut host, victim.address);
        assert!((1..=MOST).contains(&sent.len()) && sent.iter().all(|bytes| *bytes <= 300), "{claim}: {sent:?}");
    }
    let (mut host, mut victim) = (subscriber(), Host::new("victim", 77, 0));
    for _ in 0..2 {
        victim.publish(1000, "a");
    }
    let data = victim.publish(1000, "b");
    host.receive(1000, victim.address, &data);
    let sent = sent_to(&mut host, victim.address);
    assert!(sent.len() <= MOST && sent.iter().all(|bytes| *bytes <= 300), "data after a gap: {sent:?}");
}

/// Returns the number of datagrams with which 64 peers that know each other answer one multicast of an address.
fn answers_of_many(address: SocketAddr, multicast: &Bytes) -> usize {
    const PEERS: u64 = 64;
    let announcement = |number: u64| {
        let mut host = Host::new("S.test", 100 + number, 0);
        host.address.set_port(10_000 + host.peer.epoch().bits() as u16);
        (number, host.address, host.tick(900).remove(0))
    };
    let announcements: Vec<_> = (0..PEERS).map(announcement).collect();
    let answers = |number: u64| {
        let mut host = Host::new("S.test", 100 + number, 0);
        host.subscribe(0, ">");
        for (_, from, hello) in announcements.iter().filter(|(other, ..)| *other != number) {
            host.receive(900, *from, hello);
        }
        host.receive(1000, address, multicast);
        sent_to(&mut host, address).len()
    };
    (0..PEERS).map(answers).sum()
}

/// Proves: W159
#[test]
fn forged_multicast_is_answered_by_few_peers() {
    let mut victim = Host::new("victim", 7777, 0);
    let bytes = forged(&mut victim, |header, announce| (header.count, announce.high) = (1000, Dseq(1000)));
    let answers = answers_of_many(victim.address, &bytes);
    // Eight peers answer each of the three times, on average; 192 would be all.
    assert!((1..=48).contains(&answers), "{answers}");
}

/// Data of an epoch that looks younger waits for its announcement, and is large enough for a HELLO that requests it.
/// Proves: W159
#[test]
fn forged_data_is_answered_by_few_peers() {
    let mut victim = Host::new("victim", 7777, 700);
    let data = victim.publish_large(750, "a", 300).into_iter().find(|bytes| bytes[4] == 0).expect("a datagram of data");
    let greetings = answers_of_many(victim.address, &data);
    assert!((1..=24).contains(&greetings), "{greetings}");
}

/// Proves: W160
#[test]
fn forged_epochs_do_not_keep_out_honest_peers() {
    // Each epoch sends two datagrams, so that none looks like a forged one that was heard once.
    for datagrams in [1, 2] {
        forged_epochs_leave_room(datagrams);
    }
}

fn forged_epochs_leave_room(datagrams: u64) {
    let mut host = subscriber();
    for number in 0..1100 {
        let mut unknown = Host::new("stranger", 1000 + number, 0);
        unknown.address.set_ip([192, 0, 2, 66].into());
        unknown.address.set_port(10_000 + number as u16);
        for step in 0..datagrams {
            let bytes = forged(&mut unknown, |header, _| header.number += step);
            host.receive(1000 + number, unknown.address, &bytes);
        }
    }
    let mut p = Host::new("P.test", 2, 3000);
    for millis in (3000..3100).step_by(20) {
        p.tick(millis).iter().for_each(|announcement| host.receive(millis, p.address, announcement));
    }
    let data = p.publish(3100, "a");
    host.receive(3100, p.address, &data);
    assert_eq!(host.take_reports(), ["a"]);
    assert_eq!(host.peer.counters().discard_peers_full, 0);
    assert!(host.peer.member_rows(at(3100)).len() <= 1024);
}

/// Returns the pending unicast datagrams of a host.
fn unicasts(host: &mut Host) -> Vec<Bytes> {
    let unicast = |effect| if let Effect::Unicast { bytes, .. } = effect { Some(bytes) } else { None };
    host.drain().into_iter().filter_map(unicast).collect()
}

/// Proves: W102, W106
#[test]
fn unproven_request_gets_one_answer_if_padded() {
    let (own, requester) = (Epoch::new(2).unwrap(), Epoch::new(1).unwrap());
    let ranges = vec![Range { first: Dseq(1), last: Dseq(1) }];
    let resend = ResendRequest { epoch: own, directed: false, manifests_only: false, unicast: false, ranges };
    let interest = InterestRequest { epoch: own, from: 0, base: 0 };
    for record in [Record::ResendRequest(resend), Record::InterestRequest(interest)] {
        let (mut s, mut p) = pair("a", 1000);
        s.tick(1000).iter().for_each(|hello| p.receive(1000, s.address, hello));
        p.publish(1001, "a");
        unicasts(&mut p);
        for (millis, padded, answers) in [(1100, 255, 0), (1110, 256, 1), (1111, 256, 0), (1120, 256, 1)] {
            let number = 1000 + millis;
            let kind = Kind::Control;
            let header =
                Header { kind, group: 7500, epoch: requester, number, count: 0, uptime_ms: 1000, receiver: None };
            let bytes = wire::encode_control(&header, &record, padded);
            p.peer.handle(at(millis), Input::Datagram { from: s.address, path: Path::Unicast, bytes });
            let sent = unicasts(&mut p);
            assert_eq!(sent.len(), answers, "{padded} bytes at {millis} ms");
            for answer in sent {
                assert!(answer.len() <= padded);
                let records = wire::decode(answer).unwrap().records;
                assert!(matches!(&records[..], [Record::Heartbeat(announce)] if announce.token.is_some()));
            }
        }
        assert_eq!(p.peer.counters().requests_unproven, 4);
    }
}

/// Proves: W136
#[test]
fn queue_names_refuse_ascii_space_and_control_only() {
    for name in ["a\u{85}b", "a\u{a0}b", "a\u{3000}b"] {
        assert!(name.parse::<Queue>().is_ok(), "{name:?}");
    }
    for name in ["", "a b", "a\tb", "a\u{7f}b"] {
        assert!(name.parse::<Queue>().is_err(), "{name:?}");
    }
}

/// Passes a unicast datagram to `host`.
fn receive_alone(host: &mut Host, millis: u64, from: SocketAddr, bytes: &Bytes) {
    host.peer.handle(at(millis), Input::Datagram { from, path: Path::Unicast, bytes: bytes.clone() });
}

/// Reports to `host` that `receiver` has read up to `taken` and has room for one byte. Returns the answers.
fn report(host: &mut Host, receiver: &mut Host, taken: u64, millis: u64) -> Vec<Bytes> {
    let report = ReceiverReport { epoch: host.peer.epoch(), taken: Dseq(taken), window: 1, awaited: None, dropped: 0 };
    let (now, record) = (at(millis).instant, Record::ReceiverReport(report));
    let bytes = receiver.peer.announcements.control.datagram(now, &receiver.peer.origin, 0, &record, 0);
    receive_alone(host, millis, receiver.address, &bytes);
    unicasts(host)
}

/// Returns whether some of 100 datagrams are held.
fn is_publish_blocked(host: &mut Host) -> bool {
    (0..100).for_each(|_| drop(host.publish_large(3000, "a", 1000)));
    host.peer.has_queued()
}

/// Proves: pace-proven, W133
#[test]
fn unproven_report_does_not_block_the_publisher() {
    let (mut s, mut p) = (Host::new("S.test", 1, 0), Host::new("P.test", 2, 0));
    s.tick(1000).iter().for_each(|announcement| p.receive(1000, s.address, announcement));
    p.tick_quietly(2000);
    unicasts(&mut p);
    let datagrams = report(&mut p, &mut s, 0, 3000);
    assert_eq!(datagrams.len(), 1, "the peer requests a proof of the address");
    assert!(!is_publish_blocked(&mut p));
    datagrams.iter().for_each(|announcement| receive_alone(&mut s, 3001, p.address, announcement));
    unicasts(&mut s).iter().for_each(|echo| receive_alone(&mut p, 3002, s.address, echo));
    assert!(report(&mut p, &mut s, 100, 3003).is_empty());
    assert!(is_publish_blocked(&mut p));
}

/// Proves: W101
#[test]
fn lost_proof_is_requested_again() {
    let (mut s, mut p) = (Host::new("S.test", 1, 0), Host::new("P.test", 2, 0));
    s.tick(1000).iter().for_each(|announcement| p.receive(1000, s.address, announcement));
    p.tick_quietly(2000);
    unicasts(&mut p);
    // The answer to the first token is lost, and the same token would not be answered again.
    for millis in [3000, 3060] {
        let datagrams = report(&mut p, &mut s, 0, millis);
        datagrams.iter().for_each(|announcement| receive_alone(&mut s, millis, p.address, announcement));
        let answers = unicasts(&mut s);
        assert_eq!(answers.len(), 1, "at {millis} ms");
        if millis == 3060 {
            answers.iter().for_each(|echo| receive_alone(&mut p, millis, s.address, echo));
        }
    }
    assert!(p.peer.member_rows(at(3060))[0].is_proven);
}
