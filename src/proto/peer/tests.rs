//! One or two peers and a wire between them, driven by hand.

use super::*;
use crate::message::{
    Cause, ClientId, Count, Delivery, DeliveryMode, Dseq, LossScope, Message, PeerName, Reason, Refusal, SubId, Target,
    Targets, Verdict,
};
use crate::proto::advisory::{Advisory, AdvisoryStream};
use crate::proto::effect::{ArrivedDatagram, ClientRequest, MemberEvent, Path};
use crate::proto::mutant::Mutants;
use crate::proto::send::Control;
use crate::proto::stats::MemberState;
use crate::proto::{Recovery, WindowSettings};
use crate::time::WallTime;
use crate::wire::{self, CheckValue};
use bytes::Bytes;
use std::net::SocketAddr;

mod batch;
mod bounds;
mod conformance;
mod discovery;
mod forged;
mod invariants;
mod poll;
mod repair;
mod rules;
mod settings;
mod transcript;

const CLIENT: ClientId = ClientId(1);

pub(crate) fn settings(name: &str) -> Settings {
    let window = WindowSettings { bytes: 4 << 20, time: Duration::from_secs(10), bytes_max: 64 << 20 };
    Settings {
        name: name.parse::<PeerName>().unwrap(),
        group: 7500,
        datagram_bytes_max: 1400,
        check_value: CheckValue::Crc32c,
        message_bytes_max: 8 << 20,
        heartbeat: Duration::from_secs(1),
        reliability: Duration::from_millis(5),
        recovery: Recovery::modest(),
        forget: Duration::from_secs(60),
        pub_window: window,
        sub_window: window,
        frame_messages_max: crate::seqno::COUNT_MAX,
        hold_bytes_max: 64 << 20,
        reassembly_bytes_max: 64 << 20,
        reassembly_sets_max: 64,
        gaps_max: 8192,
        peers_max: 1024,
        client_subscriptions_max: 1000,
        subscriptions_max: 1000,
        interest_max: 1000,
        suppresses: false,
        match_cache_max: 1000,
        advisory_interval: Duration::from_secs(1),
        advisory_subjects_max: 64,
        pace: crate::proto::pace::PaceSettings::auto(4 << 20),
        mutants: Mutants::default(),
    }
}

/// A peer with its address; `millis` is the time of the whole test.
struct Host {
    peer: Peer,
    address: SocketAddr,
}

impl Host {
    fn new(name: &str, number: u64, millis: u64) -> Host {
        Host::of(settings(name), number, millis)
    }

    fn of(settings: Settings, number: u64, millis: u64) -> Host {
        let epoch = Epoch::new(number).unwrap();
        let peer = Peer::new(settings, epoch, Rng::new(number), at(millis));
        Host { peer, address: SocketAddr::from(([127, 0, 0, 1], 9000 + number as u16)) }
    }

    fn subscribe(&mut self, millis: u64, pattern: &str) {
        self.subscribe_as(millis, 1, pattern, DeliveryMode::Repair);
    }

    fn subscribe_as(&mut self, millis: u64, sub: u32, pattern: &str, mode: DeliveryMode) {
        let request = ClientRequest::Subscribe {
            sub: SubId(sub),
            wanted: pattern.parse::<Pattern>().unwrap().into(),
            mode,
            wants_discovery: false,
        };
        self.peer.handle(at(millis), Input::ClientRequest { client: CLIENT, request });
    }

    /// Publishes `subjects` as one datagram and returns it.
    fn publish(&mut self, millis: u64, subjects: &str) -> Bytes {
        for subject in subjects.split(' ') {
            let request = ClientRequest::Publish(Message::new(subject.parse().unwrap(), &b"x"[..]));
            self.peer.handle(at(millis), Input::ClientRequest { client: CLIENT, request });
        }
        let mut sent = self.tick(millis);
        sent.retain(|bytes| bytes[4] == 0);
        assert_eq!(sent.len(), 1, "one datagram of data");
        sent.remove(0)
    }

    /// Publishes one message of `payload` bytes and returns its datagrams.
    fn publish_large(&mut self, millis: u64, subject: &str, payload: usize) -> Vec<Bytes> {
        let request = ClientRequest::Publish(Message::new(subject.parse().unwrap(), vec![7; payload]));
        self.peer.handle(at(millis), Input::ClientRequest { client: CLIENT, request });
        self.tick(millis)
    }

    /// Advances the time and returns the multicasts.
    fn tick(&mut self, millis: u64) -> Vec<Bytes> {
        self.peer.handle(at(millis), Input::Tick);
        self.drain()
            .into_iter()
            .filter_map(|e| if let Effect::Multicast(bytes) = e { Some(bytes) } else { None })
            .collect()
    }

    fn drain(&mut self) -> Vec<Effect> {
        self.peer.assert_invariants();
        std::iter::from_fn(|| self.peer.poll_effect()).collect()
    }

    fn receive(&mut self, millis: u64, from: SocketAddr, bytes: &Bytes) {
        self.receive_by(Path::Multicast, millis, from, bytes);
    }

    fn receive_by(&mut self, path: Path, millis: u64, from: SocketAddr, bytes: &Bytes) {
        let input = Input::Datagram { from, path, bytes: bytes.clone() };
        self.peer.handle(at(millis), input);
    }

    /// Returns the reports to clients: messages as `subject`, `subject+n` for n missing before it, losses in words.
    fn take_reports(&mut self) -> Vec<String> {
        let deliver = |delivery: Delivery| match delivery.verdict {
            Verdict::Skip(count) => format!("{}+{count}", delivery.message.subject),
            _ => delivery.message.subject.to_string(),
        };
        let report = |effect: Effect| match effect {
            Effect::Deliver { deliveries, .. } => deliveries.map(deliver).collect(),
            Effect::Report { loss, .. } => {
                let limit = if loss.reason == Reason::Overflow { " OVERFLOW" } else { "" };
                vec![match loss.what {
                    LossScope::Messages { subject, first, last, count } => {
                        format!("lost {subject} {}-{} {count}{limit}", first.count(), last.count())
                    }
                    LossScope::Datagrams { first, last, messages } => {
                        format!("unverified {first}-{last} {messages}{limit}")
                    }
                    LossScope::Tail { after } => format!("{} after {after}", loss.reason),
                    LossScope::Inbox { messages } => format!("inbox {messages}{limit}"),
                }]
            }
            _ => Vec::new(),
        };
        self.drain().into_iter().flat_map(report).collect()
    }
}

/// Returns the deliveries of an effect.
fn delivered(effect: Effect) -> Vec<Delivery> {
    if let Effect::Deliver { deliveries, .. } = effect { deliveries.collect() } else { Vec::new() }
}

fn at(millis: u64) -> ClockReading {
    let nanos = millis * 1_000_000;
    ClockReading { instant: Instant::from_nanos(nanos), wall: WallTime::from_nanos(1_700_000_000_000_000_000 + nanos) }
}

/// Returns a subscriber of `pattern` that began at 0, and a publisher that began at `millis`, whose HELLO was heard.
fn pair(pattern: &str, millis: u64) -> (Host, Host) {
    pair_of(settings("S.test"), pattern, millis)
}

/// Does the same with these settings of the subscriber.
fn pair_of(settings: Settings, pattern: &str, millis: u64) -> (Host, Host) {
    let mut subscriber = Host::of(settings, 1, 0);
    subscriber.subscribe(0, pattern);
    let mut publisher = Host::new("P.test", 2, millis);
    for hello in publisher.tick(millis) {
        subscriber.receive(millis, publisher.address, &hello);
    }
    subscriber.drain();
    (subscriber, publisher)
}

/// Proves: W37
#[test]
fn wanted_messages_are_delivered_and_unwanted_ones_counted() {
    let (mut s, mut p) = pair("a.*", 1000);
    let datagram = p.publish(1001, "a.b c a.d a.d");
    s.receive(1001, p.address, &datagram);
    assert_eq!(s.take_reports(), ["a.b", "a.d", "a.d"]);
    s.receive(1002, p.address, &datagram);
    assert_eq!(s.take_reports(), [""; 0], "delivered once");
    let row = &s.peer.loss_rows()[0];
    assert_eq!((row.not_sub.count, row.publisher.to_string().as_str()), (1, "P.1"));
    assert_eq!(s.peer.counters().discard_duplicate, 1);
}

/// Proves: W77, W84, cross-check
#[test]
fn next_message_of_the_subject_proves_exact_loss() {
    let (mut s, mut p) = pair(">", 1000);
    let (first, _lost) = (p.publish(1001, "a b"), p.publish(1002, "a a b"));
    let (other, next) = (p.publish(1003, "c"), p.publish(1004, "a"));
    s.receive(1001, p.address, &first);
    assert_eq!(s.take_reports(), ["a", "b"]);
    s.receive(1003, p.address, &other);
    assert_eq!(s.take_reports(), [""; 0], "the stream's first waits for the gap");
    s.tick_quietly(1008);
    assert_eq!(s.take_reports(), ["c", "unverified 2-2 3"]);
    s.receive(1009, p.address, &next);
    assert_eq!(s.take_reports(), ["lost a 2-3 2", "a+2"]);
    assert_eq!(s.peer.loss_rows()[0].msg_loss.count, 2);
    assert_eq!(s.peer.loss_rows()[0].unverified.count, 1);
    assert_eq!(s.peer.counters().inconsistencies, 0);
}

impl Host {
    /// Advances the time; the effects remain in the peer.
    fn tick_quietly(&mut self, millis: u64) {
        self.peer.handle(at(millis), Input::Tick);
    }
}

/// Proves: W83, release
#[test]
fn held_message_proves_loss_while_other_subjects_continue() {
    let (mut s, mut p) = pair(">", 1000);
    let first = p.publish(1001, "a b");
    let _lost = p.publish(1002, "a");
    let third = p.publish(1003, "b a");
    s.receive(1001, p.address, &first);
    s.receive(1003, p.address, &third);
    assert_eq!(s.take_reports(), ["a", "b", "b"]);
    s.tick_quietly(1008);
    assert_eq!(s.take_reports(), ["lost a 2-2 1", "a+1"], "the loss explains the whole gap");
}

/// Proves: W76, gap
#[test]
fn reordering_within_the_grace_causes_no_loss() {
    let (mut s, mut p) = pair(">", 1000);
    let (one, two, three) = (p.publish(1001, "a"), p.publish(1002, "a"), p.publish(1003, "a"));
    for datagram in [&three, &one, &two] {
        s.receive(1003, p.address, datagram);
    }
    s.tick_quietly(1100);
    assert_eq!(s.take_reports(), ["a"; 3]);
}

/// Proves: heartbeat
#[test]
fn lost_tail_is_reported_after_the_heartbeat() {
    let (mut s, mut p) = pair("a", 1000);
    let first = p.publish(1001, "a");
    s.receive(1001, p.address, &first);
    let _lost = p.publish(1002, "a");
    let beats = p.tick(1022);
    assert_eq!(beats.len(), 1);
    s.receive(1022, p.address, &beats[0]);
    s.tick_quietly(1026);
    assert_eq!(s.take_reports(), ["a"]);
    s.tick_quietly(1027);
    assert_eq!(s.take_reports(), ["unverified 2-2 1"]);
}

/// Proves: W68, W82, baseline
#[test]
fn lost_first_message_is_reported_to_older_receiver() {
    let (mut s, mut p) = pair("a", 1000);
    let _lost = p.publish(1001, "a");
    let second = p.publish(1002, "a");
    s.receive(1002, p.address, &second);
    s.tick_quietly(1007);
    assert_eq!(s.take_reports(), ["lost a 1-1 1", "a+1"]);
}

/// Proves: W55, W68, baseline
#[test]
fn older_receiver_is_owed_everything_before_bye() {
    let mut s = Host::new("S.test", 1, 0);
    s.subscribe(0, "a");
    let mut p = Host::new("P.test", 2, 1000);
    let _lost = [p.publish(1001, "a"), p.publish(1002, "a b")];
    p.peer.handle(at(1010), Input::Stop);
    let byes = p.tick(1010);
    s.receive(1010, p.address, &byes[byes.len() - 1]);
    s.tick_quietly(1015);
    assert_eq!(s.take_reports(), ["unverified 1-2 3"]);
    assert_eq!(s.peer.member_rows(at(1015))[0].state, MemberState::Left);
    let mut late = Host::new("L.test", 3, 1005);
    late.subscribe(1005, "a");
    late.receive(1010, p.address, &byes[byes.len() - 1]);
    late.tick_quietly(1015);
    assert_eq!(late.take_reports(), [""; 0], "a late joiner cannot know earlier messages");
}

/// Proves: W68
#[test]
fn late_joiner_is_owed_data_after_first_contact() {
    let mut p = Host::new("P.test", 2, 0);
    let _before = p.publish(10, "a");
    let mut s = Host::new("S.test", 1, 1000);
    s.subscribe(1000, ">");
    let (one, _lost, three) = (p.publish(1001, "a"), p.publish(1002, "b"), p.publish(1003, "a"));
    s.receive(1001, p.address, &one);
    s.receive(1003, p.address, &three);
    s.tick_quietly(1010);
    assert_eq!(s.take_reports(), ["a", "a", "unverified 3-3 1"]);
    assert_eq!(s.peer.loss_rows()[0].datagrams.baseline, Dseq(1));
}

/// Proves: W72
#[test]
fn messages_without_subscription_are_not_lost() {
    let (mut s, mut p) = pair("a", 1000);
    s.receive(1001, p.address, &p.publish(1001, "a"));
    s.peer.handle(
        at(1002),
        Input::ClientRequest { client: CLIENT, request: ClientRequest::Unsubscribe { sub: SubId(1) } },
    );
    s.receive(1003, p.address, &p.publish(1003, "a"));
    s.subscribe(1004, "a");
    s.receive(1005, p.address, &p.publish(1005, "a"));
    assert_eq!(s.take_reports(), ["a", "a"]);
    assert_eq!(s.peer.loss_rows()[0].not_sub.count, 1);
}

/// Proves: W72
#[test]
fn older_datagram_causes_no_loss_for_new_subscription() {
    let (mut s, mut p) = pair("b", 1000);
    let [one, two, three, four] = [1001, 1002, 1003, 1004].map(|millis| p.publish(millis, "a"));
    s.receive(1001, p.address, &one);
    s.receive(1003, p.address, &three);
    let request = ClientRequest::Subscribe {
        sub: SubId(2),
        wanted: "a".parse::<Pattern>().unwrap().into(),
        mode: DeliveryMode::Repair,
        wants_discovery: false,
    };
    s.peer.handle(at(1004), Input::ClientRequest { client: CLIENT, request });
    s.receive(1005, p.address, &two);
    s.receive(1006, p.address, &four);
    assert_eq!(s.take_reports(), ["a"], "the second was under way when the subscription began");
    assert_eq!(s.peer.counters().inconsistencies, 0);
}

#[test]
fn message_at_subscription_time_is_not_lost() {
    let (mut s, mut p) = pair("b", 1000);
    let (large, next, last) = (p.publish_large(1004, "a", 2000), p.publish(1004, "a"), p.publish(1005, "a"));
    // The large message will never be complete.
    s.receive(1004, p.address, &large[1]);
    s.receive(1004, p.address, &next);
    let request = ClientRequest::Subscribe {
        sub: SubId(2),
        wanted: "a".parse::<Pattern>().unwrap().into(),
        mode: DeliveryMode::Repair,
        wants_discovery: false,
    };
    s.peer.handle(at(1004), Input::ClientRequest { client: CLIENT, request });
    s.tick_quietly(1009);
    s.receive(1010, p.address, &last);
    assert_eq!(s.take_reports(), ["lost a 1-1 1", "a"], "the second message arrived without a subscription");
}

/// Proves: W72, W73
#[test]
fn delayed_datagram_does_not_make_successors_younger() {
    let (mut s, mut p) = pair("b", 1000);
    let [one, two, _lost] = [1001, 1002, 1003].map(|millis| p.publish(millis, "a"));
    s.receive(1001, p.address, &one);
    let request = ClientRequest::Subscribe {
        sub: SubId(2),
        wanted: "a".parse::<Pattern>().unwrap().into(),
        mode: DeliveryMode::Repair,
        wants_discovery: false,
    };
    s.peer.handle(at(2000), Input::ClientRequest { client: CLIENT, request });
    s.receive(3000, p.address, &two);
    s.receive(3001, p.address, &p.publish(3001, "a"));
    s.tick_quietly(3006);
    assert_eq!(s.take_reports(), ["a", "unverified 3-3 1"], "the second and third were sent before the subscription");
}

/// Proves: W73
#[test]
fn unread_datagram_does_not_make_successors_older() {
    let (mut s, mut p) = pair("b", 1000);
    s.peer.handle(at(2000), Input::Arrived { path: Path::Multicast, at: at(1000).instant });
    s.receive(2000, p.address, &p.publish(2000, "a"));
    let request = ClientRequest::Subscribe {
        sub: SubId(2),
        wanted: "a".parse::<Pattern>().unwrap().into(),
        mode: DeliveryMode::Repair,
        wants_discovery: false,
    };
    s.peer.handle(at(2001), Input::ClientRequest { client: CLIENT, request });
    let [one, _lost, three] = [2100, 2101, 2102].map(|millis| p.publish(millis, "a"));
    for (millis, datagram) in [(2100, one), (2102, three)] {
        s.peer.handle(at(millis), Input::Arrived { path: Path::Multicast, at: at(millis).instant });
        s.receive(millis, p.address, &datagram);
    }
    s.tick_quietly(2107);
    assert_eq!(s.take_reports(), ["a", "lost a 3-3 1", "a+1"]);
}

/// Proves: W32, W35
#[test]
fn large_message_is_reassembled_or_lost_as_one() {
    let (mut s, mut p) = pair("a", 1000);
    let mut send = |millis: u64, payload: usize| p.publish_large(millis, "a", payload);
    let (whole, broken, headless, last) = (send(1001, 5000), send(1002, 5000), send(1003, 5000), send(1004, 9));
    assert_eq!((whole.len(), last.len()), (4, 1));
    for datagram in whole.iter().rev().chain(&broken[..2]).chain(&broken[3..]).chain(&headless[1..]).chain(&last) {
        s.receive(1005, p.address, datagram);
    }
    let delivered: Vec<usize> = s
        .drain()
        .into_iter()
        .flat_map(|effect| delivered(effect).into_iter().map(|delivery| delivery.message.payload.len()))
        .collect();
    assert_eq!(delivered, [5000]);
    s.tick_quietly(1010);
    assert_eq!(s.take_reports(), ["lost a 2-2 1", "lost a 3-3 1", "a"]);
}

/// Proves: overflow
#[test]
fn incomplete_large_message_is_lost_beside_earlier_losses() {
    let (mut s, other) = pair("a", 1000);
    let tiny_frames = Settings { frame_messages_max: 2, ..settings("P.test") };
    let mut p = Host { address: other.address, ..Host::of(tiny_frames, 2, 1000) };
    let small: Vec<Bytes> = (0..4).map(|index| p.publish(1001 + index, "a")).collect();
    let large = p.publish_large(1005, "a", 3000);
    s.receive(1001, p.address, &small[0]);
    s.take_reports();
    // Two frames come after the first message, each linked to the one before it: both messages of the last but one
    // frame are missing, and one of the first frame, whose end is unknown.
    s.receive(1005, p.address, &large[0]);
    s.receive(1005, p.address, &large[2]);
    s.tick_quietly(1012);
    assert_eq!(s.take_reports(), ["lost a 1-1 3..4", "unverified 2-4 1"]);
    assert_eq!(s.peer.loss_rows()[0].inconsistencies, 0);
}

/// Proves: W35
#[test]
fn evicted_large_message_is_reported_as_overflow() {
    let limited = Settings { reassembly_sets_max: 1, ..settings("S.test") };
    let (mut s, mut p) = pair_of(limited, "a", 1000);
    let (taken, whole) = (p.publish_large(1001, "a", 2000), p.publish_large(1002, "a", 2000));
    for datagram in [&taken[0], &whole[1], &whole[0], &taken[1]] {
        s.receive(1002, p.address, datagram);
    }
    s.tick_quietly(1010);
    assert_eq!(s.take_reports(), ["lost a 1-1 1 OVERFLOW", "a"]);
}

/// Proves: W55, W58, W80, W59, epoch, silence
#[test]
fn silence_new_epoch_and_bye_are_reported() {
    let (mut s, mut p) = pair("a", 1000);
    s.receive(1001, p.address, &p.publish(1001, "a"));
    assert_eq!(s.take_reports(), ["a"]);
    s.tick_quietly(4500);
    assert_eq!(s.take_reports(), [""; 0]);
    s.tick_quietly(4501);
    assert_eq!(s.take_reports(), ["SILENT after 1"]);
    // The same socket, a new run: the old one has crashed.
    let mut again = Host { address: p.address, ..Host::new("P.test", 3, 5000) };
    for hello in again.tick(5000) {
        s.receive(5000, again.address, &hello);
    }
    s.receive(5001, again.address, &again.publish(5001, "a"));
    assert_eq!(s.take_reports(), ["a"], "the new epoch's first message is no repeat");
    for millis in [5040, 5120] {
        again.tick(millis).iter().for_each(|hello| s.receive(millis, again.address, hello));
    }
    assert_eq!(s.take_reports(), ["CRASHED after 1"], "repeated, while the former run stays silent");
    let _lost = again.publish(5122, "a");
    again.peer.handle(at(5123), Input::Stop);
    let byes: Vec<Effect> = again.drain();
    let Some(Effect::Multicast(bye)) = byes.last() else { panic!("{byes:?}") };
    s.receive(5123, again.address, bye);
    s.tick_quietly(5130);
    assert_eq!(s.take_reports(), ["unverified 2-2 1"], "the BYE announces the final number");
    let states: Vec<MemberState> = s.peer.member_rows(at(5130)).iter().map(|row| row.state).collect();
    assert_eq!(states, [MemberState::Crashed, MemberState::Left]);
    again.peer.handle(at(5320), Input::Tick);
    again.peer.handle(at(5420), Input::Tick);
    assert!(again.drain().contains(&Effect::Stopped));
}

/// Proves: W62
#[test]
fn inbox_reply_reaches_only_its_owner() {
    let (mut s, mut p) = pair("_INBOX.>", 1000);
    for hello in s.tick(1000) {
        p.receive(1000, s.address, &hello);
    }
    p.drain();
    let inbox = format!("_INBOX.{}.1", s.peer.epoch());
    let mut reply = |millis| -> Bytes {
        let request = ClientRequest::Publish(Message::new(inbox.parse().unwrap(), &b"x"[..]));
        p.peer.handle(at(millis), Input::ClientRequest { client: CLIENT, request });
        p.peer.handle(at(millis), Input::Tick);
        let to_one = |e| match e {
            Effect::Unicast { to, bytes } if bytes[4] == 1 => Some((to, bytes)),
            _ => None,
        };
        let sent: Vec<(SocketAddr, Bytes)> = p.drain().into_iter().filter_map(to_one).collect();
        let [(to, bytes)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(*to, s.address);
        bytes.clone()
    };
    let (one, _lost, three) = (reply(1100), reply(1101), reply(1102));
    s.receive(1102, p.address, &one);
    s.receive(1102, p.address, &three);
    s.tick_quietly(1110);
    assert_eq!(s.take_reports(), [inbox.as_str(), inbox.as_str(), "inbox 1"]);
    assert_eq!(s.peer.loss_rows()[0].ibx_loss.count, 1);
}

#[test]
fn publisher_learns_of_lost_inbox_messages() {
    let (mut s, mut p) = pair("_INBOX.>", 1000);
    for hello in s.tick(1000) {
        p.receive(1000, s.address, &hello);
    }
    p.drain();
    let inbox = format!("_INBOX.{}.1", s.peer.epoch());
    let (one, _lost, three) = (p.direct(1100, &inbox), p.direct(1101, &inbox), p.direct(1102, &inbox));
    s.receive(1102, p.address, &one);
    s.receive(1102, p.address, &three);
    s.tick_quietly(1110);
    assert_eq!(s.peer.loss_rows()[0].ibx_loss.count, 1);
    let advisories = advisories_of(&mut s, &mut p, &[2100, 3200]);
    let [advisory] = &advisories[..] else { panic!("one report of one loss: {advisories:?}") };
    assert_eq!((advisory.stream, advisory.lost_min, advisory.lost_max), (AdvisoryStream::OutboundPtp, 1, 1));
    assert_eq!((advisory.reason, &advisory.publisher.epoch), (Reason::Reported, &s.peer.epoch()));
    assert_eq!(p.peer.outbound_rows()[0].report.directed_lost, 1);
    // The receiver's report on the next epoch of the publisher begins with 0.
    p.peer.handle(at(3300), Input::AddressChanged);
    assert_eq!(p.peer.outbound_rows(), []);
}

/// Passes what `from` sends at these times on to `to`, and returns the advisories of `to` about losses elsewhere.
fn advisories_of(from: &mut Host, to: &mut Host, times: &[u64]) -> Vec<Advisory> {
    let mut advisories = Vec::new();
    for &millis in times {
        from.peer.handle(at(millis), Input::Tick);
        for effect in from.drain() {
            match effect {
                Effect::Unicast { bytes, .. } => to.receive_by(Path::Unicast, millis, from.address, &bytes),
                Effect::Multicast(bytes) => to.receive(millis, from.address, &bytes),
                _ => {}
            }
        }
        to.peer.handle(at(millis), Input::Tick);
        let advised = |effect| if let Effect::Advise { advisory, .. } = effect { Some(advisory) } else { None };
        advisories.extend(to.drain().into_iter().filter_map(advised).filter(|one| one.stream.is_outbound()));
    }
    advisories
}

#[test]
fn inbox_reply_reaches_subscriptions_in_both_modes() {
    let (mut s, mut p) = pair("_INBOX.>", 1000);
    s.subscribe_as(1000, 2, "_INBOX.>", DeliveryMode::Live);
    for hello in s.tick(1000) {
        p.receive(1000, s.address, &hello);
    }
    p.drain();
    let reply = p.direct(1100, &format!("_INBOX.{}.1", s.peer.epoch()));
    s.receive(1100, p.address, &reply);
    let to = |effect| if let Effect::Deliver { to, .. } = effect { Some(to) } else { None };
    let targets: Vec<Targets> = s.drain().into_iter().filter_map(to).collect();
    let both = [1, 2].map(|sub| Target { client: CLIENT, sub: SubId(sub) });
    assert_eq!(targets, [Targets::from(both)]);
}

/// Proves: W61, silence
#[test]
fn directed_datagram_does_not_delay_multicast_silence() {
    let (mut s, mut p) = pair("a", 1000);
    for hello in s.tick(1000) {
        p.receive(1000, s.address, &hello);
    }
    s.receive(1001, p.address, &p.publish(1001, "a"));
    let _lost = p.publish(2000, "a");
    let inbox = format!("_INBOX.{}.1", s.peer.epoch());
    s.receive(4000, p.address, &p.direct(4000, &inbox));
    s.tick_quietly(4501);
    assert_eq!(s.take_reports(), ["a", "SILENT after 1"]);
}

#[test]
fn announcement_for_former_run_causes_no_loss() {
    // Any member of a keyed group can seal a multicast in the name of another one.
    for (path, expected) in [(Path::Unicast, &["inbox 1"][..]), (Path::Multicast, &[])] {
        let (mut s, mut p) = pair(">", 1000);
        for hello in s.tick(1000) {
            p.receive(1000, s.address, &hello);
        }
        p.drain();
        let inbox = format!("_INBOX.{}.1", s.peer.epoch());
        let request = ClientRequest::Publish(Message::new(inbox.parse().unwrap(), &b"x"[..]));
        p.peer.handle(at(1100), Input::ClientRequest { client: CLIENT, request });
        p.peer.handle(at(1100), Input::Tick);
        p.drain();
        p.peer.handle(at(2100), Input::Tick);
        let is_announcement = |bytes: &Bytes| {
            wire::decode(bytes.clone())
                .unwrap()
                .records
                .iter()
                .any(|record| matches!(record, wire::Record::Heartbeat(_)))
        };
        let to_one = |e| match e {
            Effect::Unicast { bytes, .. } if is_announcement(&bytes) => Some(bytes),
            _ => None,
        };
        let heartbeat = p.drain().into_iter().find_map(to_one).unwrap();
        let mut again = Host::new("S.test", 77, 2000);
        again.subscribe(2000, ">");
        again.receive_by(Path::Unicast, 2100, p.address, &heartbeat);
        again.tick_quietly(2200);
        assert_eq!(again.take_reports(), Vec::<String>::new());
        s.receive_by(path, 2100, p.address, &heartbeat);
        s.tick_quietly(2200);
        assert_eq!(s.take_reports(), expected);
    }
}

/// Proves: W80
#[test]
fn old_datagrams_do_not_revive_a_forgotten_peer() {
    let (mut s, mut p) = pair(">", 1000);
    let (old, hello) = (p.publish(1100, "a"), p.tick(1200).remove(0));
    s.receive(1100, p.address, &old);
    s.receive(1200, p.address, &hello);
    for millis in (5000..5000 + FORGOTTEN).step_by(1000) {
        s.tick_quietly(millis);
    }
    assert_eq!(s.take_reports(), ["a", "SILENT after 1", "CRASHED after 1"]);
    s.receive(200_000, p.address, &old);
    s.receive(200_000, p.address, &hello);
    assert_eq!((s.take_reports(), s.peer.counters().discard_old_epoch), (vec![], 2));
}

#[test]
fn inbox_overrun_does_not_slow_publishers() {
    let window_after = |path| {
        let (mut s, _) = pair("a", 1000);
        s.peer.handle(at(1004), Input::Overrun { path, drops: 1, datagrams_max: 1 });
        assert_eq!(s.peer.counters().kernel_drops, 1);
        s.peer.inbound.receive_window.window(at(1004).instant, 1)
    };
    assert_eq!(window_after(Path::Multicast) * 2, window_after(Path::Unicast));
}

/// Returns the effects of a loss of two datagrams, `overrun` of which the kernel of S dropped: the causes in reports
/// and in advisories, of S and then of the publisher.
fn causes(overrun: u64) -> [Vec<Cause>; 3] {
    let (mut s, mut p) = pair("a", 1000);
    s.tick(1000).iter().for_each(|hello| p.receive(1000, s.address, hello));
    s.receive(1001, p.address, &p.publish(1001, "a"));
    let (_two, _three, four) = (p.publish(1002, "a"), p.publish(1003, "a"), p.publish(1004, "a"));
    if 0 < overrun {
        s.peer.handle(at(1004), Input::Overrun { path: Path::Multicast, drops: 1, datagrams_max: overrun });
    }
    s.receive(1004, p.address, &four);
    s.peer.handle(at(1009), Input::Tick);
    s.peer.handle(at(2100), Input::Tick);
    let (mut reports, mut inbound, mut announcements) = (Vec::new(), Vec::new(), Vec::new());
    for effect in s.drain() {
        match effect {
            Effect::Report { loss, .. } => reports.push(loss.cause),
            Effect::Advise { advisory, .. } => inbound.push(advisory.cause),
            Effect::Unicast { bytes, .. } => announcements.push(bytes),
            _ => {}
        }
    }
    for bytes in announcements {
        p.peer.handle(at(2100), Input::Datagram { from: s.address, path: Path::Unicast, bytes });
    }
    p.peer.handle(at(2101), Input::Tick);
    let advised = |effect| if let Effect::Advise { advisory, .. } = effect { Some(advisory.cause) } else { None };
    let outbound = p.drain().into_iter().filter_map(advised).collect();
    assert_eq!(s.peer.loss_rows()[0].overrun, overrun);
    [reports, inbound, outbound]
}

/// Proves: W126
#[test]
fn loss_cause_agrees_in_reports_and_advisories() {
    let all = |cause| [vec![cause], vec![cause], vec![cause]];
    assert_eq!(causes(0), all(Cause::Network));
    assert_eq!(causes(1), all(Cause::Mixed { overrun: 1, network: 1 }));
    assert_eq!(causes(2), all(Cause::LocalOverrun { datagrams: 2 }));
}

/// Proves: W63, quarantine
#[test]
fn implausible_jump_needs_a_second_datagram() {
    let (mut s, mut p) = pair("a", 1000);
    let ours = p.publish(1001, "a");
    s.receive(1001, p.address, &ours);
    let far = |number: u64| {
        let header = crate::wire::Header {
            kind: crate::wire::Kind::Data,
            group: 7500,
            epoch: Epoch::new(2).unwrap(),
            number,
            count: number * 2,
            uptime_ms: 1,
            receiver: None,
        };
        let message = Message::new("a".parse().unwrap(), &b"y"[..]);
        let mut builder = crate::wire::Builder::new(1400);
        assert!(builder.push(&crate::wire::Entry { message: (&message).into(), seq: None, stamp: None, chain: None }));
        builder.seal(&header)
    };
    let forged = far(1 << 40);
    s.receive(1002, p.address, &forged);
    s.receive(1003, p.address, &forged);
    assert_eq!(s.peer.counters().discard_quarantined, 2);
    s.receive(1004, p.address, &p.publish(1004, "a"));
    assert_eq!(s.take_reports(), ["a", "a"], "the ledger did not change");
    s.receive(1005, p.address, &far(1 << 40));
    s.receive(1005, p.address, &ours);
    s.receive(1005, p.address, &far((1 << 40) + 2));
    s.tick_quietly(1100);
    assert_eq!(
        s.peer.loss_rows()[0].datagrams.high,
        Dseq((1 << 40) + 2),
        "a second datagram confirms the jump, a duplicate does not"
    );
    s.peer.assert_invariants();
}

#[test]
fn hello_makes_peer_known_by_name() {
    let mut s = Host::new("S.test", 1, 0);
    let mut p = Host::new("P.test", 2, 1000);
    for hello in p.tick(1000) {
        s.receive(1000, p.address, &hello);
    }
    let is_named_up = |effect: &Effect| match effect {
        Effect::Member { publisher, event: MemberEvent::Up } => publisher.to_string() == "P.1",
        _ => false,
    };
    assert!(s.drain().iter().any(is_named_up));
}

/// Proves: W3
#[test]
fn own_multicast_is_discarded_even_if_truncated() {
    let (_, mut p) = pair("a", 1000);
    p.subscribe(1000, "a");
    let datagram = p.publish(1001, "a");
    assert_eq!(p.take_reports(), [""; 0], "delivered on the spot, drained by `publish`");
    let mut cut = datagram.to_vec();
    cut.truncate(16);
    for bytes in [datagram, cut.into()] {
        p.receive(1002, p.address, &bytes);
    }
    assert_eq!((p.take_reports(), p.peer.counters().discard_own), (vec![], 2));
    let short = Bytes::from_static(b"SC\x01\0\0\0\0\0\0\0\0\0\0\0\0");
    p.receive(1002, p.address, &short);
    assert_eq!(p.peer.counters().discard_own, 2, "one byte short of an epoch");
}

#[test]
fn returned_multicasts_do_not_divide_published_messages() {
    let (_, mut p) = pair("a", 1000);
    p.subscribe(1000, "a");
    p.drain();
    let before = p.peer.counters().clone();
    for _ in 0..4 {
        let request = ClientRequest::Publish(Message::new("a".parse().unwrap(), &b"x"[..]));
        p.peer.handle(at(1001), Input::ClientRequest { client: CLIENT, request });
        p.peer.handle(at(1001), Input::OwnDatagrams { datagrams: 3, bytes: 200 });
    }
    p.peer.handle(at(1001), Input::Tick);
    let deliveries = |effect: &Effect| match effect {
        Effect::Deliver { deliveries, .. } => Some(deliveries.len()),
        _ => None,
    };
    let delivered: Vec<usize> = p.drain().iter().filter_map(deliveries).collect();
    assert_eq!(delivered, [4], "all messages together");
    let after = p.peer.counters();
    assert_eq!(
        (after.datagrams_in, after.bytes_in, after.discard_own),
        (before.datagrams_in + 12, before.bytes_in + 800, before.discard_own + 12)
    );
}

/// Proves: W46
#[test]
fn huge_heartbeat_interval_does_not_prevent_silence() {
    let (mut s, mut p) = pair("a", 1000);
    p.peer.settings.heartbeat = Duration::from_secs(1_000_000);
    for datagram in p.tick(1020).into_iter().chain(p.tick(1060)) {
        s.receive(1060, p.address, &datagram);
    }
    s.tick_quietly(1060 + 209_000);
    assert_eq!(s.take_reports(), [""; 0]);
    s.tick_quietly(1060 + 210_000);
    assert_eq!(s.take_reports(), ["SILENT after 0"]);
}

/// Proves: W58
#[test]
fn epoch_is_bound_to_its_address() {
    let (mut s, mut p) = pair("a", 1000);
    let datagram = p.publish(1001, "a");
    s.receive(1001, SocketAddr::from(([127, 0, 0, 1], 1)), &datagram);
    assert_eq!(s.take_reports(), [""; 0]);
    assert_eq!(s.peer.counters().discard_source, 1);
}

#[test]
fn advisory_is_immediate_and_oversized_publish_refused() {
    let (mut s, mut p) = pair("a", 1000);
    let sub = SubId(2);
    let pattern = crate::proto::advisory::INBOUND_BCAST.parse::<Pattern>().unwrap().into();
    let request = ClientRequest::Subscribe { sub, wanted: pattern, mode: DeliveryMode::Repair, wants_discovery: false };
    s.peer.handle(at(1000), Input::ClientRequest { client: CLIENT, request });
    s.receive(1001, p.address, &p.publish(1001, "a"));
    let _lost = p.publish(1002, "a");
    s.receive(1003, p.address, &p.publish(1003, "a"));
    s.tick_quietly(1008);
    let advised: Vec<Effect> = s.drain().into_iter().filter(|e| matches!(e, Effect::Advise { .. })).collect();
    let [Effect::Advise { to, advisory }] = &advised[..] else { panic!("{advised:?}") };
    assert_eq!(to.as_ref(), [Target { client: CLIENT, sub }]);
    assert_eq!((advisory.lost_min, advisory.scid, advisory.subjects.len()), (1, 7500, 1));
    assert_eq!((advisory.reason, advisory.unverified), (Reason::Disabled, 0));
    let request = ClientRequest::Publish(Message::new("a".parse().unwrap(), vec![0; (8 << 20) + 1]));
    s.peer.handle(at(1009), Input::ClientRequest { client: CLIENT, request });
    let refusal = Refusal::MessageTooLarge { bytes: (8 << 20) + 1, bytes_max: 8 << 20 };
    assert_eq!(s.drain(), [Effect::Refuse { client: CLIENT, sub: None, refusal }]);
}

#[test]
fn duplicate_name_is_reported_once_per_peer() {
    let (mut s, mut p) = pair("a", 1000);
    let mut namesake = Host::new("P.test", 3, 1000);
    for millis in (1000..4000).step_by(10) {
        for host in [&mut p, &mut namesake] {
            for datagram in host.tick(millis) {
                s.receive(millis, host.address, &datagram);
            }
        }
        s.tick_quietly(millis);
    }
    let effects: Vec<Effect> = s
        .drain()
        .into_iter()
        .filter(|e| matches!(e, Effect::Member { event: MemberEvent::DuplicateName, .. }))
        .collect();
    assert_eq!(effects.len(), 2, "one report for each of the two peers");
}

/// Time for which a silent peer is remembered, plus the time after which an ended one is forgotten. A peer silent for
/// longer is unknown.
const FORGOTTEN: u64 = 2 * 60_000 + 4000;

/// Proves: W80
#[test]
fn forgotten_peer_returns_without_a_second_loss_report() {
    let (mut s, mut p) = pair("a", 1000);
    for millis in [1001, 1002, 1003] {
        s.receive(millis, p.address, &p.publish(millis, "a"));
    }
    assert_eq!(s.take_reports(), ["a", "a", "a"]);
    let _unheard = p.publish(2000, "a");
    for millis in (5000..5000 + FORGOTTEN).step_by(1000) {
        s.tick_quietly(millis);
    }
    assert_eq!(s.take_reports(), ["SILENT after 3", "CRASHED after 3"]);
    assert_eq!(s.peer.member_rows(at(200_000)), []);
    s.receive(200_000, p.address, &p.publish(200_000, "a"));
    s.tick_quietly(200_010);
    assert_eq!(s.take_reports(), ["a"], "the reported end covers the messages sent meanwhile");
    assert_eq!(s.peer.loss_rows()[0].datagrams.baseline, Dseq(4));
    assert_eq!(s.peer.counters().inconsistencies, 0);
}

/// Proves: W80
#[test]
fn old_heartbeat_of_forgotten_epoch_opens_no_gap() {
    let (mut s, mut p) = pair("a", 1000);
    for millis in [1001, 1002] {
        s.receive(millis, p.address, &p.publish(millis, "a"));
    }
    // The heartbeat is sealed before the third datagram and in flight until the epoch is forgotten.
    let late = p.tick(1022).pop().expect("a heartbeat after 20 ms");
    s.receive(1030, p.address, &p.publish(1030, "a"));
    assert_eq!(s.take_reports(), ["a", "a", "a"]);
    for millis in (5000..5000 + FORGOTTEN).step_by(1000) {
        s.tick_quietly(millis);
    }
    assert_eq!(s.take_reports(), ["SILENT after 3", "CRASHED after 3"]);
    s.receive(200_000, p.address, &late);
    s.tick_quietly(200_010);
    assert_eq!(s.peer.loss_rows()[0].datagrams.baseline, Dseq(3), "all up to the third was delivered");
    s.receive(200_020, p.address, &p.publish(200_020, "a"));
    s.tick_quietly(200_030);
    assert_eq!(s.take_reports(), ["a"]);
    assert_eq!(s.peer.counters().discard_contradiction, 0);
}

/// Proves: W71
#[test]
fn directed_stream_continues_after_either_peer_forgot() {
    for forgetful in [true, false] {
        let (mut s, mut p) = pair("_INBOX.>", 1000);
        for hello in s.tick(1000) {
            p.receive(1000, s.address, &hello);
        }
        p.drain();
        let inbox = format!("_INBOX.{}.1", s.peer.epoch());
        for millis in [1100, 1101, 1102] {
            let reply = p.direct(millis, &inbox);
            s.receive(millis, p.address, &reply);
        }
        assert_eq!(s.take_reports(), [inbox.as_str(); 3]);
        let end = 5000 + FORGOTTEN;
        for millis in (2000..end).step_by(1000) {
            let (announcements, to_p) = (p.tick(millis), s.tick(millis));
            let (receiver, from, announcements) =
                if forgetful { (&mut s, p.address, announcements) } else { (&mut p, s.address, to_p) };
            announcements.iter().for_each(|datagram| receiver.receive(millis, from, datagram));
        }
        s.drain();
        for datagram in s.tick(end) {
            p.receive(end, s.address, &datagram);
        }
        for datagram in p.tick(end) {
            s.receive(end, p.address, &datagram);
        }
        p.drain();
        let reply = p.direct(end + 1, &inbox);
        s.receive(end + 1, p.address, &reply);
        s.tick_quietly(end + 10);
        assert_eq!(s.take_reports(), [inbox.as_str()], "the publisher forgot: {forgetful}");
    }
}

/// Proves: W54
#[test]
fn repeated_bye_reports_the_directed_stream_end() {
    let (mut s, mut p) = pair("_INBOX.>", 1000);
    for hello in s.tick(1000) {
        p.receive(1000, s.address, &hello);
    }
    p.drain();
    let _lost = p.direct(1100, &format!("_INBOX.{}.1", s.peer.epoch()));
    p.peer.handle(at(1101), Input::Stop);
    let byes = p.drain();
    let [Effect::Unicast { .. }, Effect::Multicast(heard)] = &byes[..] else { panic!("{byes:?}") };
    s.receive(1101, p.address, heard);
    p.peer.handle(at(1121), Input::Tick);
    for effect in p.drain() {
        if let Effect::Unicast { bytes, .. } = effect {
            s.receive_by(Path::Unicast, 1121, p.address, &bytes);
        }
    }
    s.tick_quietly(1130);
    assert_eq!(s.take_reports(), ["inbox 1"]);
    assert_eq!(s.peer.member_rows(at(1130))[0].state, MemberState::Left);
}

/// Proves: W59
#[test]
fn delayed_datagram_of_former_run_ends_no_epoch() {
    let mut s = Host::new("S.test", 1, 0);
    s.subscribe(0, "a");
    let mut departed = Host::new("P.test", 2, 5_500);
    departed.tick(5_500);
    let late = departed.publish(5_600, "a");
    let announcements: Vec<Bytes> = [5_640, 5_700, 5_900].iter().flat_map(|millis| departed.tick(*millis)).collect();
    let mut p = Host { address: departed.address, ..Host::new("P.test", 3, 6_000) };
    for millis in (6_000..9_000).step_by(20) {
        p.tick(millis).iter().for_each(|datagram| s.receive(millis, p.address, datagram));
        // Datagrams sent in this half second arrive after two later ones, first some, then all at once.
        match millis {
            7_500 => s.receive(millis, p.address, &late),
            7_540 => s.receive(millis, p.address, &announcements[0]),
            7_560 => s.receive(millis, p.address, &announcements[1]),
            8_800 => s.receive(millis, p.address, &announcements[2]),
            _ => {}
        }
        assert!(!s.take_reports().iter().any(|report| report.starts_with("CRASHED")), "at {millis}");
    }
}

/// Proves: W58, W80
#[test]
fn old_datagrams_do_not_revive_a_departed_peer() {
    let (mut s, mut p) = pair("a", 1000);
    s.receive(1001, p.address, &p.publish(1001, "a"));
    p.peer.handle(at(1002), Input::Stop);
    let late = p.drain();
    let Some(Effect::Multicast(bye)) = late.last() else { panic!("{late:?}") };
    s.receive(1002, p.address, bye);
    s.tick_quietly(62_000);
    assert_eq!(s.take_reports(), ["a"]);
    assert_eq!(s.peer.member_rows(at(62_000)), []);
    s.receive(62_001, p.address, bye);
    s.receive(62_001, p.address, &pair("a", 1000).1.publish(1001, "a"));
    assert_eq!((s.take_reports(), s.peer.member_rows(at(62_001))), (vec![], vec![]));
    assert_eq!(s.peer.counters().discard_old_epoch, 2);
}

#[test]
fn gap_without_repair_settles_despite_missing_multicast() {
    let (mut s, mut p) = pair("a", 1000);
    for hello in s.tick(1000) {
        p.receive(1000, s.address, &hello);
    }
    let inbox = format!("_INBOX.{}.1", s.peer.epoch());
    let [_lost, two] = [4000, 4001].map(|millis| p.direct(millis, &inbox));
    s.receive(4001, p.address, &two);
    s.tick_quietly(4006);
    assert_eq!(s.take_reports(), ["inbox 1"]);
    assert!(s.peer.poll_deadline().is_some_and(|deadline| at(4006).instant < deadline), "ticks move the deadline");
}

impl Host {
    /// Publishes to one peer's inbox and returns the datagram.
    fn direct(&mut self, millis: u64, inbox: &str) -> Bytes {
        let request = ClientRequest::Publish(Message::new(inbox.parse().unwrap(), &b"x"[..]));
        self.peer.handle(at(millis), Input::ClientRequest { client: CLIENT, request });
        self.peer.handle(at(millis), Input::Tick);
        let directed = |e| if let Effect::Unicast { bytes, .. } = e { Some(bytes) } else { None };
        let mut sent: Vec<Bytes> = self.drain().into_iter().filter_map(directed).collect();
        sent.retain(|bytes| bytes[4] == 1);
        assert_eq!(sent.len(), 1, "one directed datagram");
        sent.remove(0)
    }
}

/// Proves: W70
#[test]
fn age_ends_when_the_datagram_arrives() {
    // The publisher starts first, and publishes before the subscriber listens. Its announcement reports an uptime of 60
    // ms. If that arrived at 60, and remained unread or waited for a key, the datagram is not owed. If it arrived only
    // just now, the publisher started after the subscriber.
    let mut p = Host::new("P.test", 2, 0);
    let _before = p.publish(20, "a");
    let bytes = p.tick(60).pop().expect("an announcement is due");
    let (from, path) = (p.address, Path::Multicast);
    let arrival = |millis| Input::Arrived { path, at: at(millis).instant };
    let datagram = || Input::Datagram { from, path, bytes: bytes.clone() };
    let deferred = Input::Deferred(ArrivedDatagram { from, path, bytes: bytes.clone(), arrived: at(60).instant });
    for (inputs, reports) in [
        (vec![arrival(60), datagram()], vec![]),
        (vec![arrival(399), deferred], vec![]),
        (vec![arrival(399), datagram()], vec!["unverified 1-1 1"]),
    ] {
        let mut s = Host::new("S.test", 1, 50);
        s.subscribe(50, "a");
        s.tick(50);
        for input in inputs {
            s.peer.handle(at(400), input);
        }
        s.tick_quietly(405);
        assert_eq!(s.take_reports(), reports);
    }
}

/// Proves: W123
#[test]
fn data_of_unannounced_publisher_triggers_one_hello() {
    let mut p = Host::new("P.test", 2, 2_000);
    p.tick(2_000);
    let data: Vec<Bytes> = (0..2).map(|index| p.publish_large(2_010 + index, "a", 1_000).remove(0)).collect();
    let mut s = Host::new("S.test", 1, 1_000);
    s.tick(1_000);
    let expired = wire::ExpiryNotice { receiver: None, ranges: vec![wire::Range { first: Dseq(1), last: Dseq(1) }] };
    let control =
        p.peer.announcements.control.datagram(at(2_020).instant, &p.peer.origin, 2, &wire::Record::Expired(expired), 0);
    let mut greetings = Vec::new();
    for bytes in [&control, &data[0], &data[1]] {
        s.receive(2_020, p.address, bytes);
        let is_to_p = |effect: &Effect| matches!(effect, Effect::Unicast { to, .. } if *to == p.address);
        greetings.push(s.drain().iter().filter(|effect| is_to_p(effect)).count());
    }
    assert_eq!(greetings, [0, 1, 0]);
}

/// Returns a publisher, its first datagrams and a subscriber. The publisher runs since 2,000 and sends `count`
/// datagrams from `millis` on. The subscriber runs since 5,000 and knows none of them.
fn published_before_listening(millis: u64, count: u64) -> (Host, Vec<Bytes>, Host) {
    let mut p = Host::new("P.test", 2, 2_000);
    p.tick(2_000);
    let datagrams = (0..count).map(|index| p.publish(millis + index, "a")).collect();
    let mut s = Host::new("S.test", 1, 5_000);
    s.subscribe(5_000, "a");
    s.drain();
    (p, datagrams, s)
}

/// Proves: W72, W85
#[test]
fn gap_behind_delayed_datagram_may_predate_subscription() {
    let (mut p, old, mut s) = published_before_listening(3_000, 4);
    // S first hears only a datagram that P resent at the request of another peer.
    s.receive(6_000, p.address, &old[0]);
    let fresh = p.publish(6_001, "a");
    s.receive(6_001, p.address, &fresh);
    s.tick_quietly(6_010);
    assert_eq!(s.take_reports(), ["a", "lost a 2-4 0..3", "a+0..3"]);
}

/// Proves: W123, W69, baseline
#[test]
fn resent_data_does_not_make_publisher_younger() {
    for sends_heartbeat in [false, true] {
        let (mut p, datagrams, mut s) = published_before_listening(2_010, 3);
        // Sealed when the publisher had been running for 12 ms, and sent again after four seconds.
        s.receive(6_000, p.address, &datagrams[2]);
        if sends_heartbeat {
            let ranges = vec![wire::Range { first: Dseq(1), last: Dseq(1) }];
            let expired = wire::Record::Expired(wire::ExpiryNotice { receiver: None, ranges });
            let origin = &p.peer.origin;
            let control = p.peer.announcements.control.datagram(at(6_100).instant, origin, 3, &expired, 0);
            s.receive(6_100, p.address, &control);
        }
        (0..30).for_each(|step| s.peer.handle(at(6_200 + step * 100), Input::Tick));
        let reports: &[&str] = if sends_heartbeat { &["a"] } else { &["unverified 1-2 0..2", "a"] };
        assert_eq!(s.take_reports(), reports, "data before the start of listening is not owed");
    }
}
