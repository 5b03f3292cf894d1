//! Rules of `docs/wire.md`, one by one, as another peer sees them.

use super::*;
use crate::proto::send::AnnouncementKind;
use crate::seqno::Seq;
use crate::wire::{
    Builder, Entry, ExpiryNotice, Header, InterestRequest, Kind, PeerAnnouncement, Range, ReceiverReport, Record,
    ResendRequest,
};

/// Room that a question leaves for its answer.
const QUESTION_BYTES: usize = 256;

/// Returns the HELLOs among multicast datagrams: whether each wants an answer, and whether it has room for one.
fn hellos(datagrams: &[Bytes]) -> Vec<(bool, bool)> {
    let hello = |bytes: &Bytes| match &wire::decode(bytes.clone()).unwrap().records[..] {
        [Record::Hello(hello), ..] => Some((hello.wants_reply, QUESTION_BYTES <= bytes.len())),
        _ => None,
    };
    datagrams.iter().filter_map(hello).collect()
}

/// Returns the pending unicast datagrams of a host, with their first record.
fn unicasts(host: &mut Host) -> Vec<(SocketAddr, usize, Record)> {
    let unicast = |effect| match effect {
        Effect::Unicast { to, bytes } => Some((to, bytes.len(), wire::decode(bytes).unwrap().records.remove(0))),
        _ => None,
    };
    host.drain().into_iter().filter_map(unicast).collect()
}

fn unicast(host: &mut Host, millis: u64, from: SocketAddr, bytes: Bytes) {
    host.peer.handle(at(millis), Input::Datagram { from, path: Path::Unicast, bytes });
}

/// Returns a control datagram of `from` with this record.
fn control(from: &mut Host, millis: u64, record: &Record) -> Bytes {
    let peer = &mut from.peer;
    peer.announcements.control.datagram(at(millis).instant, &peer.origin, 0, record, 0)
}

/// Returns a heartbeat of `from` with these changes.
fn heartbeat(from: &mut Host, millis: u64, change: impl FnOnce(&mut PeerAnnouncement)) -> Bytes {
    let datagram =
        wire::decode(from.peer.announcement_datagram(at(millis), AnnouncementKind::Heartbeat, None, 0)).unwrap();
    let Record::Heartbeat(mut announce) = datagram.records[0].clone() else { unreachable!("a heartbeat") };
    change(&mut announce);
    wire::encode_control(&datagram.header, &Record::Heartbeat(announce), 0)
}

/// Returns a subscriber and a publisher that know each other.
fn acquainted(pattern: &str) -> (Host, Host) {
    let (mut s, mut p) = pair(pattern, 1000);
    s.tick(1000).iter().for_each(|hello| p.receive(1000, s.address, hello));
    s.drain();
    p.drain();
    (s, p)
}

/// Proves: W49
#[test]
fn unanswered_hello_is_repeated_and_padded() {
    for heard in [false, true] {
        let mut p = Host::new("P.test", 2, 1000);
        let mut sent = Vec::new();
        for millis in 1000..1400 {
            if heard && millis == 1050 {
                let other = Host::new("S.test", 1, 1050).tick(1050).remove(0);
                p.receive(millis, SocketAddr::from(([127, 0, 0, 1], 9001)), &other);
            }
            let datagrams = p.tick(millis);
            sent.extend(hellos(&datagrams).into_iter().map(|(wants_reply, has_room)| (millis, wants_reply, has_room)));
        }
        let times: Vec<u64> = sent.iter().map(|(millis, ..)| *millis).collect();
        assert_eq!(times, [1000, 1020, 1060, 1140]);
        for (millis, wants_reply, has_room) in sent {
            assert_eq!(wants_reply, !heard || millis < 1050, "at {millis}");
            assert!(has_room || !wants_reply, "at {millis}");
        }
    }
}

/// Proves: W50, W51
#[test]
fn hello_is_answered_once_in_15_ms() {
    let (mut s, mut p) = (Host::new("S.test", 1, 0), Host::new("P.test", 2, 1000));
    s.tick(900);
    let mut answers = Vec::new();
    for (millis, bytes) in [(1000, 256), (1010, 256), (1015, 256), (1040, 0)] {
        let hello = p.peer.announcement_datagram(
            at(millis),
            AnnouncementKind::Hello { cookie: millis, wants_reply: true },
            None,
            bytes,
        );
        s.receive(millis, p.address, &hello);
        for (to, length, record) in unicasts(&mut s) {
            if let Record::Hello(answer) = record {
                assert!(to == p.address && length <= hello.len() && !answer.wants_reply);
                answers.push(answer.cookie);
            }
        }
    }
    assert_eq!(answers, [1000, 1015], "the second was too early, and the last has no room for an answer");
}

/// Proves: W52
#[test]
fn answer_with_foreign_cookie_is_discarded() {
    let (mut s, mut p) = (Host::new("S.test", 1, 0), Host::new("P.test", 2, 1000));
    for (cookie, is_known) in [(s.peer.announcements.cookie ^ 1, false), (s.peer.announcements.cookie, true)] {
        let answer =
            p.peer.announcement_datagram(at(1000), AnnouncementKind::Hello { cookie, wants_reply: false }, None, 0);
        unicast(&mut s, 1000, p.address, answer);
        assert_eq!(s.peer.members.contains(&p.peer.epoch()), is_known);
    }
    assert_eq!(s.peer.counters().discard_unknown_peer, 1);
}

/// Proves: W62
#[test]
fn datagram_for_another_receiver_is_discarded() {
    let (mut s, mut p) = acquainted(">");
    let mut other = Host::new("O.test", 3, 1000);
    other.tick(1000).iter().for_each(|hello| p.receive(1000, other.address, hello));
    p.drain();
    let datagram = p.direct(1100, &format!("_INBOX.{}.1", other.peer.epoch()));
    s.receive(1100, p.address, &datagram);
    assert_eq!((s.take_reports(), s.peer.counters().discard_other_receiver), (vec![], 1));
    let data = p.publish(1101, "a");
    unicast(&mut s, 1101, p.address, data);
    let inbox = format!("_INBOX.{}.1", s.peer.epoch());
    let direct = p.direct(1102, &inbox);
    s.receive(1102, p.address, &direct);
    assert_eq!(s.take_reports(), ["a", &inbox], "either kind may come either way");
}

/// Proves: W44
#[test]
fn directed_messages_need_no_seq() {
    let (mut s, mut p) = acquainted("_INBOX.>");
    let inbox = format!("_INBOX.{}.1", s.peer.epoch());
    let first = p.direct(1100, &inbox);
    let Record::Run(run) = &wire::decode(first.clone()).unwrap().records[0] else { panic!("a run") };
    assert_eq!(run.first, None);
    s.receive(1100, p.address, &first);
    // The receiver ignores a sequence number in a directed message: the two have the same one.
    for number in [2, 3] {
        let (kind, epoch, receiver) = (Kind::Directed, p.peer.epoch(), Some(s.peer.epoch()));
        let header = Header { kind, group: 7500, epoch, number, count: number - 1, uptime_ms: 101, receiver };
        let message = Message::new(inbox.parse().unwrap(), &b"x"[..]);
        let mut builder = Builder::new(1400);
        let seq = Seq::new(0x5c19_adc0_0000_0002);
        assert!(builder.push(&Entry { message: (&message).into(), seq, stamp: None, chain: None }));
        s.receive(1101, p.address, &builder.seal(&header));
    }
    assert_eq!(s.take_reports(), [&inbox[..]; 3]);
}

/// Proves: W100
#[test]
fn echo_counts_only_by_unicast_to_its_receiver() {
    let (mut s, mut p) = acquainted("a");
    let (own, other, publisher) = (s.peer.epoch(), Epoch::new(99).unwrap(), p.peer.epoch());
    let token = s.peer.members.get(&publisher).expect("a member").proof.token;
    for (path, receiver, is_proven) in
        [(Path::Multicast, own, false), (Path::Unicast, other, false), (Path::Unicast, own, true)]
    {
        let bytes = heartbeat(&mut p, 1100, |announce| {
            (announce.echo, announce.directed_receiver) = (Some(token), Some(receiver));
        });
        s.peer.handle(at(1100), Input::Datagram { from: p.address, path, bytes });
        assert_eq!(s.peer.members.get(&publisher).expect("a member").proof.is_proven, is_proven, "{path:?} {receiver}");
    }
}

/// Proves: W104, W121, W134, W139
#[test]
fn records_for_another_epoch_change_nothing() {
    let (mut s, mut p) = acquainted("a");
    let (publisher, other) = (p.peer.epoch(), Epoch::new(99).unwrap());
    let ranges = vec![Range { first: Dseq(1), last: Dseq(1) }];
    let request = |epoch| {
        let ranges = ranges.clone();
        Record::ResendRequest(ResendRequest { epoch, directed: false, manifests_only: false, unicast: false, ranges })
    };
    let report =
        |epoch| Record::ReceiverReport(ReceiverReport { epoch, taken: Dseq(0), window: 1, awaited: None, dropped: 0 });
    let interest = |epoch| Record::InterestRequest(InterestRequest { epoch, from: 0, base: 0 });
    let elsewhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let discarded = p.peer.counters().discard_unknown_peer;
    for (record, from, discards) in [
        (request(other), s.address, (1, 0)),
        (report(other), s.address, (2, 0)),
        (interest(other), s.address, (3, 0)),
        (request(publisher), elsewhere, (3, 1)),
        (report(publisher), elsewhere, (3, 2)),
        (interest(publisher), elsewhere, (3, 3)),
    ] {
        let bytes = control(&mut s, 1100, &record);
        unicast(&mut p, 1100, from, bytes);
        let counters = p.peer.counters();
        assert_eq!((counters.discard_old_epoch, counters.discard_unknown_peer - discarded), discards, "{record:?}");
        assert_eq!((counters.requests_received, counters.requests_unproven, counters.reports_received), (0, 0, 0));
    }
    let first = p.publish(1101, "a");
    s.receive(1101, p.address, &first);
    let _lost = p.publish(1102, "a");
    let third = p.publish(1103, "a");
    s.receive(1103, p.address, &third);
    for (receiver, discards, reports) in [(Some(other), 1, &["a"][..]), (None, 1, &["lost a 2-2 1", "a+1"])] {
        let ranges = vec![Range { first: Dseq(2), last: Dseq(2) }];
        let bytes = control(&mut p, 1103, &Record::Expired(ExpiryNotice { receiver, ranges }));
        unicast(&mut s, 1103, p.address, bytes);
        assert_eq!(
            (s.take_reports(), s.peer.counters().discard_other_receiver),
            (reports.iter().map(ToString::to_string).collect(), discards)
        );
    }
}

/// Proves: W105, W110
#[test]
fn first_request_is_padded_and_respects_mode() {
    for mode in [DeliveryMode::Repair, DeliveryMode::Live] {
        let mut s = Host::of(Settings { reliability: Duration::from_secs(2), ..settings("S.test") }, 1, 0);
        s.subscribe_as(0, 1, "a", mode);
        let mut p = Host::new("P.test", 2, 1000);
        p.tick(1000).iter().for_each(|hello| s.receive(1000, p.address, hello));
        let [first, _lost, third] = [1001, 1002, 1003].map(|millis| p.publish(millis, "a"));
        s.receive(1001, p.address, &first);
        s.receive(1003, p.address, &third);
        s.drain();
        let mut requests = Vec::new();
        for millis in 1004..1020 {
            s.tick_quietly(millis);
            requests.extend(unicasts(&mut s).into_iter().filter_map(|(_, bytes, record)| match record {
                Record::ResendRequest(request) => Some((millis, QUESTION_BYTES <= bytes, request.manifests_only)),
                _ => None,
            }));
        }
        assert_eq!(requests.first(), Some(&(1008, true, mode == DeliveryMode::Live)), "{mode:?}");
    }
}

/// Proves: W9, W41
#[test]
fn publisher_without_frames_begins_an_epoch() {
    let mut p = Host::of(Settings { frame_messages_max: 1, ..settings("P.test") }, 2, 1000);
    let last_frame = WallTime::from_nanos(4_611_686_018_000_000_000);
    let mut epochs = vec![p.peer.epoch()];
    for millis in 1000..1003 {
        let now = ClockReading { wall: last_frame, ..at(millis) };
        let request = ClientRequest::Publish(Message::new("a".parse().unwrap(), &b"x"[..]));
        p.peer.handle(now, Input::ClientRequest { client: CLIENT, request });
        p.peer.handle(now, Input::Tick);
        epochs.push(p.peer.epoch());
    }
    assert!(epochs[0] == epochs[1] && epochs[1] != epochs[2] && epochs[2] != epochs[3], "{epochs:?}");
    assert_eq!(p.peer.counters().messages_unnumbered, 0);
}

/// The case *follows* of section 9.4: the message begins a frame, so clients see its time, and nothing is missing.
#[test]
fn chained_frame_is_delivered_as_start() {
    let (mut s, met) = pair("a", 1000);
    let mut p =
        Host { address: met.address, ..Host::of(Settings { frame_messages_max: 1, ..settings("P.test") }, 2, 1000) };
    let datagrams = [1001, 1002, 1003, 1004].map(|millis| p.publish(millis, "a"));
    let mut verdicts = Vec::new();
    for (index, datagram) in datagrams.iter().enumerate().filter(|(index, _)| *index != 2) {
        s.receive(1001 + index as u64, p.address, datagram);
        s.tick_quietly(1010);
        verdicts.extend(s.drain().into_iter().flat_map(delivered).map(|delivery| delivery.verdict));
    }
    let [Verdict::Start(first), Verdict::Start(second), Verdict::Skip(missing)] = verdicts[..] else {
        panic!("{verdicts:?}")
    };
    assert!(first < second && missing == Count::Exact(1), "{verdicts:?}");
    assert_eq!(s.peer.loss_rows()[0].msg_loss.count, 1, "of the third, not before the second");
}

/// Proves: W88, W82
#[test]
fn forgotten_subject_begins_again_and_gap_is_reported() {
    let window = WindowSettings { bytes: 0, time: Duration::from_secs(1), bytes_max: 1 << 20 };
    let (mut s, mut p) = pair_of(Settings { sub_window: window, ..settings("S.test") }, ">", 1000);
    let first = p.publish(1001, "a");
    s.receive(1001, p.address, &first);
    // Another subject continues, so the window rotates.
    for millis in (2000..8000).step_by(1000) {
        let other = p.publish(millis, "b");
        s.receive(millis, p.address, &other);
        s.tick_quietly(millis);
    }
    assert_eq!(s.take_reports().len(), 7);
    let _lost = p.publish(8001, "a");
    let third = p.publish(8002, "a");
    s.receive(8002, p.address, &third);
    s.tick_quietly(8010);
    let effects = s.drain();
    let unverified = |effect: &Effect| match effect {
        Effect::Report { loss, .. } => matches!(loss.what, LossScope::Datagrams { messages: Count::Exact(1), .. }),
        _ => false,
    };
    assert_eq!(effects.iter().filter(|effect| unverified(effect)).count(), 1, "{effects:?}");
    let verdicts: Vec<Verdict> = effects.into_iter().flat_map(delivered).map(|delivery| delivery.verdict).collect();
    assert_eq!(verdicts, [Verdict::First]);
}

/// Proves: W54
#[test]
fn bye_is_sent_three_times_with_final_numbers() {
    let (_, mut p) = acquainted("a");
    p.publish(1050, "a");
    let last = Message::new("a".parse().unwrap(), &b"x"[..]);
    p.peer.handle(at(1100), Input::ClientRequest { client: CLIENT, request: ClientRequest::Publish(last) });
    p.peer.handle(at(1100), Input::Stop);
    let mut sent = Vec::new();
    for millis in 1100..4000 {
        p.tick_quietly(millis);
        for effect in p.drain() {
            let (path, bytes) = match effect {
                Effect::Multicast(bytes) => (Path::Multicast, bytes),
                Effect::Unicast { bytes, .. } => (Path::Unicast, bytes),
                _ => continue,
            };
            let datagram = wire::decode(bytes).unwrap();
            match &datagram.records[0] {
                Record::Bye(bye) => sent.push((path, bye.high, datagram.header.count)),
                Record::Run(_) => assert!(sent.is_empty(), "data after a BYE at {millis}"),
                other => panic!("after a BYE at {millis}: {other:?}"),
            }
        }
    }
    // The address of S is not proven: it got one datagram before, and gets three in all (W159).
    let paths = [Path::Unicast, Path::Multicast, Path::Unicast, Path::Multicast, Path::Multicast];
    assert_eq!(sent, paths.map(|path| (path, Dseq(2), 2)));
}
