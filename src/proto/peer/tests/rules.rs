//! Rules of `docs/wire.md` that an outside implementation and the program once read differently.

use super::*;
use crate::wire::{Header, Kind, PeerAnnouncement, Record};

/// Replaces the checksum after a change of the bytes.
fn sealed(mut bytes: Vec<u8>) -> Bytes {
    let check = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&check.to_be_bytes());
    bytes.into()
}

/// Returns the datagram with this record of four bytes at its end.
fn with_record(bytes: &Bytes, record: [u8; 4]) -> Bytes {
    sealed([&bytes[..bytes.len() - 4], &record].concat())
}

/// Returns a CONTROL datagram of the publisher without records.
fn recordless(p: &Host, number: u64) -> Bytes {
    let (kind, group, epoch) = (Kind::Control, 7500, p.peer.epoch());
    let header = Header { kind, group, epoch, number, count: 0, uptime_ms: 10, receiver: None };
    let padded = wire::encode_control(&header, &Record::Heartbeat(Box::new(announce(p))), 0);
    sealed(padded[..36].to_vec())
}

fn announce(p: &Host) -> PeerAnnouncement {
    let mut peer = Host::of(settings("P.test"), p.peer.epoch().bits(), 0);
    let hello = wire::decode(peer.tick(0).remove(0)).unwrap();
    let [Record::Hello(hello), ..] = &hello.records[..] else { panic!("a HELLO") };
    hello.announce.clone()
}

/// Returns the unicast datagrams among the effects, with their only record.
fn unicasts(effects: Vec<Effect>) -> Vec<(SocketAddr, Record)> {
    let unicast = |effect| match effect {
        Effect::Unicast { to, bytes } => Some((to, wire::decode(bytes).unwrap().records.remove(0))),
        _ => None,
    };
    effects.into_iter().filter_map(unicast).collect()
}

/// Proves: W17
#[test]
fn run_beside_unknown_record_counts_as_missing() {
    let (mut s, mut p) = pair("a", 1000);
    let unknown = with_record(&p.publish(1001, "a"), [0x03, 0, 0, 0]);
    s.receive(1001, p.address, &unknown);
    assert_eq!((s.take_reports(), s.peer.counters().unknown_records), (vec![], 1));
    let next = p.publish(1002, "b");
    s.receive(1002, p.address, &next);
    s.tick_quietly(1100);
    assert_eq!(s.take_reports(), ["unverified 1-1 1"]);
}

/// Proves: W20
#[test]
fn control_without_records_moves_no_number() {
    let (mut s, mut p) = pair("a", 1000);
    let first = p.publish(1001, "a");
    s.receive(1001, p.address, &first);
    p.publish(1002, "a");
    for number in [(1 << 63) - 2, (1 << 63) - 1] {
        s.receive(1003, p.address, &recordless(&p, number));
    }
    let beat = p.tick(1022).remove(0);
    s.receive(1022, p.address, &beat);
    s.tick_quietly(1100);
    assert_eq!(s.take_reports(), ["a", "unverified 2-2 1"], "the heartbeat announces the lost one");
    assert_eq!((s.peer.counters().discard_stale_control, s.peer.counters().discard_quarantined), (0, 0));
}

/// Proves: W4, W12
#[test]
fn discard_counts_for_first_check_that_fails() {
    let (mut s, mut p) = pair("a", 1000);
    let datagram = p.publish(1001, "a");
    let nowhere = SocketAddr::from(([239, 1, 1, 1], 9));
    let mut other_group = datagram[..datagram.len() - 4].to_vec();
    other_group[7] ^= 1;
    let damaged = Bytes::from([&datagram[..datagram.len() - 1], &[!datagram[datagram.len() - 1]]].concat());
    s.receive(1001, nowhere, &sealed(other_group.clone()));
    assert_eq!((s.peer.counters().discard_group, s.peer.counters().discard_source), (1, 0));
    s.receive(1001, nowhere, &datagram);
    assert_eq!(s.peer.counters().discard_source, 1);
    other_group[4] = 9;
    s.receive(1001, nowhere, &sealed(other_group));
    assert_eq!((s.peer.counters().discard_malformed, s.peer.counters().discard_group), (1, 1));
    s.receive(1001, nowhere, &damaged);
    assert_eq!((s.peer.counters().discard_check, s.peer.counters().discard_source), (1, 1));
    p.receive(1001, nowhere, &damaged);
    assert_eq!((p.peer.counters().discard_own, p.peer.counters().discard_check), (1, 0));
}

/// Proves: W47, W159
#[test]
fn silent_unproven_peer_gets_three_datagrams() {
    let (mut s, p) = pair("a", 1000);
    let mut heard = Vec::new();
    for millis in (1000..70_000).step_by(100) {
        s.tick_quietly(millis);
        let beats = unicasts(s.drain());
        heard.extend(beats.iter().filter(|(to, _)| *to == p.address).map(|_| millis));
    }
    // The first of the three answered the datagrams that `pair` passed to it.
    assert_eq!(heard, [2000, 3000]);
}

/// Returns the unicast heartbeat that a host of [`pair`] sends at 3000.
fn heartbeat_with_token(host: &mut Host) -> Bytes {
    host.tick_quietly(3000);
    let unicast = |effect| if let Effect::Unicast { bytes, .. } = effect { Some(bytes) } else { None };
    host.drain().into_iter().find_map(unicast).expect("a heartbeat with a token")
}

/// Proves: W99
#[test]
fn unicast_bye_carries_token_and_echo() {
    let (mut s, mut p) = pair("a", 1000);
    let bytes = heartbeat_with_token(&mut s);
    let input = Input::Datagram { from: s.address, path: Path::Unicast, bytes };
    p.peer.handle(at(3001), input);
    p.drain();
    p.peer.handle(at(3002), Input::Stop);
    let byes = unicasts(p.drain());
    let [(to, Record::Bye(bye)), ..] = &byes[..] else { panic!("a unicast BYE: {byes:?}") };
    assert_eq!((*to, bye.directed_receiver), (s.address, Some(s.peer.epoch())));
    assert!(bye.token.is_some() && bye.echo.is_some(), "{bye:?}");
}

/// Proves: W54
#[test]
fn stopped_peer_answers_a_token_with_bye() {
    let (mut s, mut p) = pair("a", 1000);
    let bytes = heartbeat_with_token(&mut s);
    p.peer.handle(at(3001), Input::Stop);
    p.drain();
    p.peer.handle(at(3002), Input::Datagram { from: s.address, path: Path::Unicast, bytes });
    let answers = unicasts(p.drain());
    let [(to, Record::Bye(bye))] = &answers[..] else { panic!("a unicast BYE: {answers:?}") };
    assert!(*to == s.address && bye.echo.is_some(), "{bye:?}");
}

/// Proves: W89
#[test]
fn question_with_foreign_reply_subject_is_counted_unanswered() {
    let (mut s, mut p) = pair("a", 1000);
    s.tick(1300).iter().for_each(|datagram| p.receive(1300, s.address, datagram));
    let subject = format!("{}HISTORY", inbox_of(p.peer.epoch()));
    for (reply, refused) in
        [(None, 1), (Some("elsewhere".to_owned()), 2), (Some(format!("{}X.1", inbox_of(s.peer.epoch()))), 3)]
    {
        let reply = reply.map(|reply| reply.parse().unwrap());
        let message = Message { reply, ..Message::new(subject.parse().unwrap(), &b"\x09"[..]) };
        s.peer.handle(at(1301), Input::ClientRequest { client: CLIENT, request: ClientRequest::Publish(message) });
        s.tick_quietly(1301);
        for effect in s.drain() {
            if let Effect::Unicast { bytes, .. } = effect {
                p.peer.handle(at(1302), Input::Datagram { from: s.address, path: Path::Unicast, bytes });
            }
        }
        p.tick_quietly(1302);
        assert_eq!(p.peer.counters().history_refused, refused);
        let is_directed = |effect: &Effect| matches!(effect, Effect::Unicast { bytes, .. } if bytes[4] == 1);
        assert!(!p.drain().iter().any(is_directed), "no answer");
    }
}
