//! Tests of the simulator itself: a dead network, and histories that the oracle must refuse.

use crate::message::{
    Cause, ClientId, Count, Delivery, DeliveryMode, Dseq, Epoch, Loss, LossScope, Message, Publisher, Reason, SubId,
    Target, Verdict,
};
use crate::proto::effect::Path;
use crate::proto::mutant::Mutants;
use crate::rng::Rng;
use crate::seqno::Seq;
use crate::sim::oracle::Oracle;
use crate::sim::report::Violation;
use crate::sim::scenario::{Faults, MILLIS, NetworkConditions, SECOND, Scenario};
use crate::sim::truth::DatagramId;
use crate::sim::world::World;
use crate::time::{ClockReading, Instant, WallTime, nanos};
use crate::wire::{Builder, Entry, Header, Kind};
use crate::{message::Stamp, seqno::Frame};
use bytes::Bytes;
use std::time::Duration;

#[test]
fn dead_network_delivers_and_reports_nothing() {
    let mut scenario = Scenario::draw_with(3, Faults::default(), Mutants::default());
    scenario.weather = NetworkConditions { loss: 1.0, ..NetworkConditions::default() };
    (scenario.heal_at, scenario.end) = (20 * SECOND, 19 * SECOND);
    let outcome = World::new(&scenario, false).run();
    assert_eq!(outcome.figures.copies, outcome.figures.copies_dropped);
    assert_eq!((outcome.figures.owed, outcome.figures.reports_unverified), (0, 0));
    assert!(
        outcome.findings.violations.iter().all(|found| found.text.contains("never met")),
        "{:?}",
        outcome.findings.violations
    );
}

/// A hand-made history of one publisher and one subscriber: the test dictates the reports of the subscriber.
struct Story {
    oracle: Oracle,
    epoch: Epoch,
    sent: Vec<(DatagramId, Message, Seq)>,
    builder: Builder,
}

const GRACE: Duration = Duration::from_millis(5);
const PUBLISHER: usize = 0;
const SUBSCRIBER: usize = 1;
const TARGET: Target = Target { client: ClientId(1), sub: SubId(1) };

fn now(at: u64) -> ClockReading {
    ClockReading { instant: Instant::from_nanos(at), wall: WallTime::from_nanos(at) }
}

impl Story {
    /// Creates a story with repair off.
    fn new(messages: u64) -> Story {
        Story::of(messages, GRACE, DeliveryMode::Repair)
    }

    /// Creates a subscriber that starts a second before the publisher. The publisher then sends `messages` on "a",
    /// one in each datagram.
    fn of(messages: u64, reliability: Duration, mode: DeliveryMode) -> Story {
        let mut settings = Scenario::draw_with(1, Faults::default(), Mutants::default()).hosts[0].settings.clone();
        (settings.recovery.grace, settings.reliability) = (GRACE, reliability);
        let mut rng = Rng::new(1);
        let mut epoch = || Epoch::new(rng.next_u64()).unwrap();
        let (publisher, subscriber) = (epoch(), epoch());
        let mut oracle = Oracle::new(MILLIS, 0);
        oracle.truth.is_strict = false;
        oracle.on_start(0, now(0), 0, publisher, &settings);
        oracle.on_start(0, now(0), 1, subscriber, &settings);
        oracle.add_live_side(SUBSCRIBER);
        oracle.truth.streams[0].born = SECOND;
        oracle.on_subscribe(MILLIS, SUBSCRIBER, TARGET, &"a".parse().unwrap(), mode);
        let mut story = Story { oracle, epoch: publisher, sent: Vec::new(), builder: Builder::new(1400) };
        (0..messages).for_each(|nth| story.send(2 * SECOND + nth * MILLIS, nth));
        story
    }

    fn send(&mut self, at: u64, nth: u64) {
        let envelope = Message::new("a".parse().unwrap(), Bytes::new());
        self.oracle.findings.now = at;
        let message = self.oracle.on_publish(PUBLISHER, envelope, 8, false);
        let seq = Frame::new(7).unwrap().first().forward(nth).unwrap();
        let stamp = (nth == 0).then_some(Stamp { time: Frame::new(7).unwrap().start(), offset: 0 });
        assert!(self.builder.push(&Entry { message: (&message).into(), seq: Some(seq), stamp, chain: None }));
        let header = Header {
            kind: Kind::Data,
            group: 7500,
            epoch: self.epoch,
            number: nth + 1,
            count: nth,
            uptime_ms: (at / MILLIS) as u32,
            receiver: None,
        };
        let bytes = self.builder.seal(&header);
        let id = self.oracle.on_sent(at, now(at), PUBLISHER, &bytes, None);
        self.sent.push((id, message, seq));
    }

    fn arrive(&mut self, at: u64, nth: usize) {
        self.oracle.on_copy(at, SUBSCRIBER, self.sent[nth].0, true);
        self.oracle.on_read(at, SUBSCRIBER, self.sent[nth].0, (([10, 0, 0, 1], 7500).into(), Path::Multicast));
    }

    fn publisher(&self) -> Publisher {
        Publisher { name: None, epoch: self.epoch, uid: 1 }
    }

    fn deliver(&mut self, at: u64, nth: usize, verdict: Verdict) {
        let (_, message, seq) = self.sent[nth].clone();
        let delivery = Delivery {
            message,
            publisher: self.publisher(),
            seq: Some(seq),
            offset: None,
            verdict,
            repaired: false,
            replayed: false,
            origin: None,
        };
        self.oracle.on_deliver(at, SUBSCRIBER, &[TARGET], &delivery);
    }

    fn report(&mut self, at: u64, what: LossScope, reason: Reason) {
        let loss = Loss { publisher: self.publisher(), what, reason, cause: Cause::Network, at: WallTime::EPOCH };
        self.oracle.on_report(at, SUBSCRIBER, &[TARGET], &loss);
    }

    fn lose(&mut self, at: u64, first: usize, last: usize, count: Count) {
        let (first, last) = (self.sent[first].2, self.sent[last].2);
        self.report(at, LossScope::Messages { subject: "a".parse().unwrap(), first, last, count }, Reason::Disabled);
    }

    fn unverified(&mut self, at: u64, first: u64, last: u64, count: u64) {
        let what = LossScope::Datagrams { first: Dseq(first), last: Dseq(last), messages: Count::Exact(count) };
        self.report(at, what, Reason::Disabled);
    }

    /// Returns the rules that were broken so far, in order.
    fn rules(&self) -> Vec<&'static str> {
        let mut rules: Vec<_> = self.oracle.findings.violations.iter().map(|found: &Violation| found.rule).collect();
        rules.dedup();
        rules
    }
}

const T: u64 = 2 * SECOND + 10 * MILLIS;

/// Checks a story of three messages of which the second is lost. `act` gives the reports of the peer.
fn check(act: impl FnOnce(&mut Story), expected: &[&str]) {
    check_story(Story::new(3), act, expected);
}

fn check_story(mut story: Story, act: impl FnOnce(&mut Story), expected: &[&str]) {
    story.arrive(T, 0);
    story.deliver(T, 0, Verdict::Start(WallTime::EPOCH));
    story.arrive(T, 2);
    act(&mut story);
    if expected.is_empty() {
        story.oracle.finish(20 * SECOND, &[]);
    }
    assert_eq!(story.rules(), expected);
}

const LATER: u64 = T + 5 * MILLIS;

#[test]
fn oracle_accepts_truth_and_refuses_each_falsehood() {
    let third = |story: &mut Story| story.deliver(LATER, 2, Verdict::Skip(Count::Exact(1)));
    check(
        |story| {
            story.unverified(LATER, 2, 2, 1);
            story.lose(LATER, 1, 1, Count::Exact(1));
            third(story);
        },
        &[],
    );
    check(third, &["O6"]);
    check(
        |story| {
            story.lose(LATER, 1, 1, Count::Exact(2));
            third(story);
        },
        &["O6"],
    );
    check(
        |story| {
            story.lose(LATER, 0, 1, Count::Exact(2));
            third(story);
        },
        &["O3", "O2"],
    );
    check(
        |story| {
            story.lose(T + 4 * MILLIS, 1, 1, Count::Exact(1));
            third(story);
        },
        &["O3"],
    );
    check(|story| story.unverified(LATER, 2, 3, 2), &["O5"]);
    check(|story| story.unverified(LATER, 2, 2, 2), &["O5"]);
    check(|story| story.unverified(LATER, 2, 4, 2), &["O4"]);
    check(
        |story| {
            story.lose(LATER, 1, 1, Count::Exact(1));
            story.arrive(LATER + MILLIS, 1);
            story.deliver(LATER + MILLIS, 1, Verdict::Next);
        },
        &["O2", "O7"],
    );
    check(
        |story| {
            story.lose(LATER, 1, 1, Count::Exact(1));
            third(story);
            third(story);
        },
        &["O7"],
    );
    check(|story| story.deliver(LATER, 1, Verdict::Next), &["O4"]);
    check(
        |story| {
            story.report(LATER, LossScope::Tail { after: Dseq(3) }, Reason::Silent);
        },
        &["O5"],
    );
}

#[test]
fn oracle_expects_loss_reports_by_delivery_mode() {
    let reliability = Duration::from_secs(5);
    let check_report_at = |mode, at, expected: &[&str]| {
        let act = |story: &mut Story| {
            story.unverified(at, 2, 2, 1);
            story.lose(at, 1, 1, Count::Exact(1));
            story.deliver(at, 2, Verdict::Skip(Count::Exact(1)));
        };
        check_story(Story::of(3, reliability, mode), act, expected);
    };
    check_report_at(DeliveryMode::Live, LATER, &[]);
    check_report_at(DeliveryMode::Live, LATER + 4 * SECOND, &["O8"]);
    check_report_at(DeliveryMode::Repair, LATER, &["O3"]);
}

#[test]
fn message_is_covered_from_silence_to_next_report() {
    let probe = Story::new(5);
    let beat = nanos(probe.oracle.runs[SUBSCRIBER].settings.heartbeat);
    let silent_after = beat * 7 / 2;
    // Datagrams 2 and 3 come late, while their publisher is silent. They do not announce the fourth, which was lost.
    let (second, third) = (T + 10 * beat, T + 13 * beat);
    let (due, announced) = (third + silent_after, T + 25 * beat);
    let check = |after_third: &[(u64, u64)], expected: &[&str]| {
        let mut story = Story::new(5);
        let silent = |story: &mut Story, at, after| {
            story.report(at, LossScope::Tail { after: Dseq(after) }, Reason::Silent);
        };
        story.arrive(T, 0);
        story.deliver(T, 0, Verdict::Start(WallTime::EPOCH));
        silent(&mut story, T + silent_after, 1);
        for (at, nth) in [(second, 1), (third, 2)] {
            story.arrive(at, nth);
            story.deliver(at, nth, Verdict::Next);
        }
        after_third.iter().for_each(|(at, after)| silent(&mut story, *at, *after));
        story.arrive(announced, 4);
        story.unverified(announced + 5 * MILLIS, 4, 4, 1);
        story.lose(announced + 5 * MILLIS, 3, 3, Count::Exact(1));
        story.deliver(announced + 5 * MILLIS, 4, Verdict::Skip(Count::Exact(1)));
        story.oracle.finish(60 * SECOND, &[]);
        assert_eq!(story.rules(), expected, "{after_third:?}");
    };
    check(&[(due, 3)], &[]);
    check(&[], &["O8"]);
    check(&[(due + SECOND, 3)], &["O8"]);
    // A receiver that knows the datagram must not wait for another announcement of its publisher.
    check(&[(due, 5)], &["O8"]);
}

#[test]
fn unreported_owed_message_is_a_violation() {
    let mut story = Story::new(3);
    story.arrive(T, 0);
    story.deliver(T, 0, Verdict::Start(WallTime::EPOCH));
    story.oracle.runs[SUBSCRIBER].ended = 20 * SECOND;
    story.oracle.runs[SUBSCRIBER].subs[0].end = 20 * SECOND;
    story.oracle.finish(20 * SECOND, &[]);
    assert_eq!(story.rules(), ["O1"], "the second and third neither arrived nor were reported");
}
