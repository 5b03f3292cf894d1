//! Repair between a few peers on a wire that drops the copies a test selects.

mod interest;
mod path_limit;
mod permissions;
mod queue;
mod settings;
mod suppression;

use super::*;
use crate::message::QuestionFailure;
use crate::offset::PollCase;
use crate::proto::question::{Answer, AnswerContent, PART_BYTES_MAX, Poll, Question};
use crate::wire::{self, Kind, Record};
use std::cell::Cell;

/// A copy of a datagram in flight.
struct Copy<'a> {
    path: Path,
    bytes: &'a Bytes,
}

impl Copy<'_> {
    /// Returns the epoch of its sender.
    fn epoch(&self) -> Epoch {
        wire::decode(self.bytes.clone()).unwrap().header.epoch
    }

    /// Returns the number of a datagram of multicast data.
    fn dseq(&self) -> Option<u64> {
        let header = wire::decode(self.bytes.clone()).unwrap().header;
        (header.kind == Kind::Data).then_some(header.number)
    }

    fn records(&self) -> Vec<Record> {
        wire::decode(self.bytes.clone()).unwrap().records
    }
}

/// Hosts on one wire without latency.
struct Lan {
    hosts: Vec<Host>,
    millis: u64,
    reports: Vec<Vec<String>>,
    repaired: u64,
    /// Events of multicast liveness, each with the host that reported it.
    events: Vec<(usize, &'static str)>,
    /// Messages, verdicts and losses that each client of each host got.
    given: Vec<(usize, ClientId, Message)>,
    verdicts: Vec<(ClientId, Verdict)>,
    losses: Vec<(usize, Target, LossScope)>,
    answers: Vec<Answer>,
}

impl Lan {
    /// Creates `count` peers with these settings; host 0 began at 1000 and publishes, the others began at 0 and want
    /// `a`.
    fn new(count: usize, change: impl Fn(&mut Settings)) -> Lan {
        let mut lan = Lan::unmet(count, change);
        lan.run(1000, |_| false);
        lan
    }

    /// Does the same before any peer has sent an announcement.
    fn unmet(count: usize, change: impl Fn(&mut Settings)) -> Lan {
        let hosts = (0..count).map(|n| {
            let number = n as u64 + 1;
            let mut settings = Settings { reliability: Duration::from_secs(2), ..settings(&format!("h{n}.test")) };
            change(&mut settings);
            let peer =
                Peer::new(settings, Epoch::new(number).unwrap(), Rng::new(number), at(if n == 0 { 1000 } else { 0 }));
            Host { peer, address: SocketAddr::from(([127, 0, 0, 1], 9000 + number as u16)) }
        });
        let mut lan = Lan {
            hosts: hosts.collect(),
            millis: 1000,
            reports: vec![Vec::new(); count],
            repaired: 0,
            events: Vec::new(),
            given: Vec::new(),
            verdicts: Vec::new(),
            losses: Vec::new(),
            answers: Vec::new(),
        };
        for host in 1..count {
            lan.hosts[host].subscribe(0, "a");
        }
        lan
    }

    fn publish(&mut self, subject: &str) {
        self.publish_bytes(subject, 1);
    }

    fn publish_bytes(&mut self, subject: &str, bytes: usize) {
        self.request_bytes(subject, bytes);
        self.tick();
    }

    /// Publishes without sealing the datagram.
    fn request_bytes(&mut self, subject: &str, bytes: usize) {
        let message = Message::new(subject.parse().unwrap(), vec![b'x'; bytes]);
        let input = Input::ClientRequest { client: CLIENT, request: ClientRequest::Publish(message) };
        self.hosts[0].peer.handle(at(self.millis), input);
    }

    fn tick(&mut self) {
        self.hosts[0].peer.handle(at(self.millis), Input::Tick);
    }

    /// Advances the time from one deadline of a host to the next, in whole milliseconds; copies for which `drops` holds
    /// are lost.
    fn run(&mut self, millis: u64, mut drops: impl FnMut(&Copy) -> bool) {
        let end = self.millis + millis;
        self.settle(&mut drops);
        while self.millis < end {
            let deadlines = self.hosts.iter_mut().filter_map(|host| host.peer.poll_deadline());
            let next = deadlines.map(|deadline| deadline.as_nanos().div_ceil(1_000_000)).min();
            self.millis = next.unwrap_or(end).clamp(self.millis + 1, end);
            for host in &mut self.hosts {
                host.peer.handle(at(self.millis), Input::Tick);
            }
            self.settle(&mut drops);
        }
    }

    fn settle(&mut self, drops: &mut impl FnMut(&Copy) -> bool) {
        let mut quiet = false;
        while !quiet {
            quiet = true;
            for from in 0..self.hosts.len() {
                while let Some(effect) = self.hosts[from].peer.poll_effect() {
                    quiet = false;
                    self.effect(from, effect, drops);
                }
                self.hosts[from].peer.assert_invariants();
            }
        }
    }

    fn effect(&mut self, from: usize, effect: Effect, drops: &mut impl FnMut(&Copy) -> bool) {
        let (path, to, bytes) = match effect {
            Effect::Multicast(bytes) => (Path::Multicast, None, bytes),
            Effect::Unicast { to, bytes } => (Path::Unicast, Some(to), bytes),
            effect => return self.record_effect(from, effect),
        };
        for host in 0..self.hosts.len() {
            if host == from || to.is_some_and(|to| self.hosts[host].address != to) {
                continue;
            }
            if !drops(&Copy { path, bytes: &bytes }) {
                let input = Input::Datagram { from: self.hosts[from].address, path, bytes: bytes.clone() };
                self.hosts[host].peer.handle(at(self.millis), input);
                self.hosts[host].peer.handle(at(self.millis), Input::Tick);
            }
        }
    }

    fn record_effect(&mut self, host: usize, effect: Effect) {
        let report = match effect {
            Effect::Answer { answer, .. } => return self.answers.extend(answer),
            Effect::Deliver { to, deliveries, .. } => {
                for delivery in deliveries {
                    for target in to.iter() {
                        self.given.push((host, target.client, delivery.message.clone()));
                        self.verdicts.push((target.client, delivery.verdict));
                    }
                    self.repaired += u64::from(delivery.repaired);
                    let mark = if delivery.repaired { "r" } else { "" };
                    self.reports[host].push(format!("{}{mark}", delivery.seq.map_or(0, |seq| seq.count())));
                }
                return;
            }
            Effect::Report { loss, to } => {
                self.losses.extend(to.iter().map(|target| (host, *target, loss.what.clone())));
                match loss.what {
                    LossScope::Messages { first, last, count, .. } => {
                        format!("lost {}-{} {count} {}", first.count(), last.count(), loss.reason)
                    }
                    LossScope::Datagrams { first, last, messages } => {
                        format!("unverified {first}-{last} {messages} {}", loss.reason)
                    }
                    LossScope::Tail { .. } => format!("{}", loss.reason),
                    LossScope::Inbox { messages } => format!("inbox {messages}"),
                }
            }
            Effect::Rejoin => return self.events.push((host, "rejoin")),
            Effect::Member { event: MemberEvent::MulticastDead, .. } => return self.events.push((host, "dead")),
            Effect::Member { event: MemberEvent::MulticastRestored, .. } => return self.events.push((host, "back")),
            _ => return,
        };
        self.reports[host].push(report);
    }

    fn take_reports(&mut self, host: usize) -> String {
        std::mem::take(&mut self.reports[host]).join(", ")
    }
}

/// Proves: W107, W124, resend
#[test]
fn missing_datagram_is_requested_and_delivered_in_place() {
    let mut lan = Lan::new(2, |_| {});
    for _ in 0..3 {
        lan.publish("a");
    }
    lan.run(300, |copy| copy.path == Path::Multicast && matches!(copy.dseq(), Some(1 | 2)));
    assert_eq!(lan.take_reports(1), "1r, 2r, 3");
    let row = &lan.hosts[1].peer.loss_rows()[0];
    assert_eq!((row.repaired.count, row.msg_loss.count, row.datagrams.repaired), (2, 0, 2));
    assert_eq!(lan.hosts[1].peer.counters().requests_sent, 1, "one request for a gap");
    assert_eq!(lan.hosts[0].peer.counters().resends, 2);
}

#[test]
fn lost_tail_is_repaired_by_repeated_requests() {
    let mut lan = Lan::new(2, |_| {});
    lan.publish("a");
    let mut requests = 0;
    lan.run(500, |copy| {
        let is_request = copy.records().iter().any(|record| matches!(record, Record::ResendRequest(_)));
        requests += u32::from(is_request);
        copy.path == Path::Multicast && copy.dseq().is_some() || is_request && requests < 4
    });
    assert_eq!((lan.take_reports(1).as_str(), requests), ("1r", 4));
}

/// Proves: W47, W111, blackhole
#[test]
fn missing_multicast_is_reported_and_repaired_by_unicast() {
    let mut lan = Lan::new(8, |_| {});
    lan.run(2000, |_| false);
    let events =
        |lan: &mut Lan| lan.events.drain(..).filter(|(host, _)| *host == 3).map(|(_, e)| e).collect::<Vec<_>>();
    events(&mut lan);
    // A switch has forgotten every port.
    let began = lan.millis;
    let mut found = None;
    for _ in 0..5000 {
        lan.publish("a");
        lan.run(1, |copy| copy.path == Path::Multicast);
        if (1..8).all(|host| lan.hosts[host].peer.counters().multicast_dead == 7) {
            let resent = lan.hosts[0].peer.resend_counters().resent_multicast;
            found.get_or_insert((lan.millis - began, resent));
        }
    }
    lan.run(1500, |copy| copy.path == Path::Multicast);
    let (found, resent) = found.expect("all are found");
    assert!(found <= 2251, "a publisher within two heartbeats, others a little later: {found} ms");
    assert_eq!(lan.hosts[3].peer.counters().rejoins, 2, "at once, and again after a while");
    for host in 1..8 {
        let reports = std::mem::take(&mut lan.reports[host]);
        assert_eq!(reports.len(), 5000, "{:?}", reports.last());
        assert!(reports.iter().enumerate().all(|(at, report)| report.trim_end_matches('r') == (at + 1).to_string()));
    }
    assert_eq!(
        lan.hosts[0].peer.resend_counters().resent_multicast,
        resent,
        "no receiver would have received the multicast"
    );
    let dead = [vec!["dead"; 7], vec!["rejoin"; 2]].concat();
    let mut reports = events(&mut lan);
    reports.sort_unstable();
    assert_eq!(reports, dead);
    lan.run(2000, |_| false);
    assert_eq!(events(&mut lan), ["back"; 7]);
}

/// Proves: suppress
#[test]
fn loss_at_source_costs_few_requests_and_resends() {
    let mut lan = Lan::new(30, |_| {});
    let mut requests = 0;
    lan.publish("a");
    lan.publish("a");
    let mut first = true;
    lan.run(300, |copy| {
        requests += u32::from(copy.records().iter().any(|record| matches!(record, Record::ResendRequest(_))));
        // No receiver gets the multicast of the first datagram; later copies are resends.
        let lost = copy.path == Path::Multicast && copy.dseq() == Some(1) && first;
        first &= copy.dseq() != Some(2);
        lost
    });
    for host in 1..30 {
        assert_eq!(lan.take_reports(host), "1r, 2");
    }
    assert!(requests <= 10, "{requests} requests");
    assert!(lan.hosts[0].peer.counters().resends <= 2);
}

/// Proves: W120
#[test]
fn evicted_datagram_is_repaired_from_history() {
    let mut lan = Lan::new(2, |settings| settings.recovery.ring.bytes_max = 0);
    for _ in 0..4 {
        lan.publish("a");
        lan.publish("other");
    }
    let lost = |copy: &Copy| copy.path == Path::Multicast && copy.dseq().is_some_and(|dseq| dseq <= 6);
    lan.run(500, lost);
    assert_eq!(lan.take_reports(1), "1r, 2r, 3r, 4");
    let row = &lan.hosts[1].peer.loss_rows()[0];
    assert_eq!((row.msg_loss.count, row.unverified.count, row.inconsistencies), (0, 0, 0));
    assert_eq!((row.datagrams.pending, row.datagrams.lost, row.datagrams.unverified), (0, 0, 0));
}

/// Proves: W77, W120
#[test]
fn message_evicted_from_history_is_lost_exactly() {
    let mut lan = Lan::new(2, |settings| {
        settings.recovery.ring.bytes_max = 0;
        settings.recovery.history.count_max = 2;
    });
    for _ in 0..5 {
        lan.publish("a");
        lan.publish("other");
    }
    lan.run(500, |copy| copy.path == Path::Multicast && copy.dseq().is_some_and(|dseq| dseq <= 8));
    assert_eq!(lan.take_reports(1), "lost 1-1 1 EXPIRED, lost 2-2 1 EXPIRED, lost 3-3 1 EXPIRED, 4r, 5");
    let row = &lan.hosts[1].peer.loss_rows()[0];
    assert_eq!((row.msg_loss.count, row.unverified.count, row.inconsistencies), (3, 0, 0));
    assert_eq!((row.datagrams.lost, row.datagrams.unverified, row.datagrams.pending), (3, 0, 0));
    assert_eq!(row.datagrams.repaired, 5, "each of the eight missing datagrams is counted once");
}

/// Proves: W122
#[test]
fn datagram_without_trace_is_unverified_until_next_number() {
    let mut lan = Lan::new(2, |settings| {
        settings.recovery.ring.bytes_max = 0;
        settings.recovery.ring.manifest_bytes_max = 0;
    });
    for _ in 0..3 {
        lan.publish("a");
    }
    lan.run(100, |copy| copy.path == Path::Multicast && copy.dseq().is_some_and(|dseq| dseq <= 2));
    assert_eq!(lan.take_reports(1), "lost 1-2 2 EXPIRED, 3");
}

/// Proves: W76
#[test]
fn unanswered_loss_is_reported_after_reliability_time() {
    let mut lan = Lan::new(2, |_| {});
    lan.publish("a");
    lan.publish("a");
    let lost = |copy: &Copy| copy.dseq() == Some(1);
    lan.run(1990, lost);
    assert_eq!(lan.take_reports(1), "");
    lan.run(30, lost);
    assert_eq!(lan.take_reports(1), "lost 1-1 1 DEADLINE, 2");
}

/// Proves: W76
#[test]
fn deadline_advances_only_while_publisher_is_heard() {
    let mut lan = Lan::new(2, |_| {});
    lan.publish("a");
    lan.publish("a");
    lan.run(1, |copy| copy.dseq() == Some(1));
    lan.run(3000, |_| true);
    assert_eq!(lan.take_reports(1), "", "not heard for three seconds");
    lan.run(1200, |_| false);
    assert_eq!(lan.take_reports(1), "1r, 2");
}

/// Proves: W80
#[test]
fn returning_publisher_still_repairs_missing_datagrams() {
    let mut lan = Lan::new(2, |settings| settings.forget = Duration::from_secs(8));
    lan.publish("a");
    lan.publish("a");
    lan.run(1, |copy| copy.dseq() == Some(1));
    let is_over = |lan: &Lan| lan.reports[1].iter().any(|report| report == "CRASHED");
    (0..12_000).for_each(|_| {
        if !is_over(&lan) {
            lan.run(1, |_| true)
        }
    });
    assert_eq!(lan.take_reports(1), "SILENT, CRASHED");
    // Within the grace after which what is missing of a publisher that is gone would be lost.
    lan.publish("a");
    let drops_unicast = |copy: &Copy| copy.dseq() == Some(1) && copy.path == Path::Unicast;
    lan.run(1000, drops_unicast);
    assert_eq!(lan.take_reports(1), "", "the gap has its time again");
    lan.run(900, |_| false);
    assert_eq!(lan.take_reports(1), "1r, 2, 3");
}

#[test]
fn large_messages_are_repaired_fragment_by_fragment() {
    let mut lan = Lan::new(2, |_| {});
    lan.publish_bytes("a", 5000);
    lan.run(300, |copy| copy.path == Path::Multicast && matches!(copy.dseq(), Some(1 | 3)));
    assert_eq!(lan.take_reports(1), "1r");
    assert_eq!(lan.hosts[0].peer.counters().history_answered, 0);
}

/// Runs a small message, a large one in datagrams 2 to 5, a small one at the end of 5, and one more. The datagrams of
/// `missing` are lost and not in the ring any more. Returns the reports, and the number of questions to the history.
fn large_from_the_history(missing: &[u64], change: impl Fn(&mut Settings)) -> (String, u64) {
    let mut lan = Lan::new(2, |settings| {
        settings.recovery.ring.bytes_max = 0;
        change(settings);
    });
    lan.publish("a");
    for bytes in [5000, 1] {
        lan.request_bytes("a", bytes);
    }
    lan.tick();
    lan.publish("a");
    let lost = |copy: &Copy| copy.path == Path::Multicast && copy.dseq().is_some_and(|dseq| missing.contains(&dseq));
    lan.run(1900, lost);
    let row = &lan.hosts[1].peer.loss_rows()[0];
    let reports = lan.reports[1].iter();
    let repaired = reports.clone().filter(|report| report.ends_with('r')).count() as u64;
    let reported_lost = reports.filter(|report| report.starts_with("lost")).count() as u64;
    assert_eq!((row.repaired.count, row.msg_loss.count, row.inconsistencies), (repaired, reported_lost, 0));
    assert_eq!((row.datagrams.pending, row.datagrams.buffered, row.datagrams.unverified), (0, 0, 0));
    (lan.take_reports(1), lan.hosts[0].peer.counters().history_answered)
}

/// Proves: W120
#[test]
fn evicted_large_message_is_fetched_from_history() {
    for (missing, reports, questions) in [
        (&[2][..], "1, 2r, 3, 4", 1),
        (&[3], "1, 2r, 3, 4", 1),
        (&[2, 3], "1, 2r, 3, 4", 1),
        (&[3, 4], "1, 2r, 3, 4", 1),
        (&[2, 4], "1, 2r, 3, 4", 1),
        // The small message after it is fetched too.
        (&[5], "1, 2r, 3r, 4", 2),
        (&[2, 3, 4, 5], "1, 2r, 3r, 4", 2),
        (&[1, 2, 3, 4, 5], "1r, 2r, 3r, 4", 3),
    ] {
        assert_eq!(large_from_the_history(missing, |_| {}), (reports.to_owned(), questions), "{missing:?}");
    }
}

#[test]
fn expired_large_message_is_reported_lost_once() {
    for missing in [&[2][..], &[3], &[3, 4], &[2, 4], &[2, 3, 4]] {
        let (reports, _) = large_from_the_history(missing, |settings| settings.recovery.history.count_max = 0);
        assert_eq!(reports, "1, lost 2-2 1 EXPIRED, 3, 4", "{missing:?}");
    }
    // Messages after it in its last datagram are lost after it.
    let (reports, _) = large_from_the_history(&[5], |settings| settings.recovery.history.count_max = 0);
    assert_eq!(reports, "1, lost 2-2 1 EXPIRED, lost 3-3 1 EXPIRED, 4");
    // The history has dropped it, but not the message after it.
    let (reports, _) = large_from_the_history(&[2, 5], |settings| settings.recovery.history.count_max = 2);
    assert_eq!(reports, "1, lost 2-2 1 EXPIRED, 3r, 4");
}

#[test]
fn unwanted_large_message_is_not_fetched() {
    let mut lan = Lan::new(2, |settings| settings.recovery.ring.bytes_max = 0);
    lan.publish_bytes("other", 5000);
    lan.publish("a");
    lan.run(500, |copy| copy.path == Path::Multicast && copy.dseq().is_some_and(|dseq| dseq < 4));
    assert_eq!((lan.take_reports(1).as_str(), lan.hosts[0].peer.counters().history_answered), ("1", 0));
}

#[test]
fn large_message_waits_until_its_beginning_is_known() {
    let mut lan = Lan::new(2, |settings| settings.recovery.ring.bytes_max = 0);
    lan.publish_bytes("a", 5000);
    lan.publish("a");
    let mut manifests = 0;
    let mut lost = |copy: &Copy| {
        let is_of_first = |record: &Record| matches!(record, Record::Manifest(manifest) if manifest.first == Dseq(1));
        let is_first = copy.records().iter().any(is_of_first);
        manifests += u32::from(is_first);
        copy.path == Path::Multicast && matches!(copy.dseq(), Some(1 | 3)) || is_first && manifests < 5
    };
    lan.run(20, &mut lost);
    assert_eq!(lan.hosts[0].peer.counters().history_answered, 0);
    lan.run(480, &mut lost);
    assert_eq!((lan.take_reports(1).as_str(), lan.hosts[0].peer.counters().history_answered), ("1r, 2", 1));
    // If its content never becomes known, the message is given up with it.
    lan.publish_bytes("a", 5000);
    lan.publish("a");
    lan.run(3000, |copy| {
        let is_of_first = |record: &Record| matches!(record, Record::Manifest(manifest) if manifest.first == Dseq(6));
        copy.path == Path::Multicast && matches!(copy.dseq(), Some(6 | 8)) || copy.records().iter().any(is_of_first)
    });
    assert_eq!(
        (lan.take_reports(1).as_str(), lan.hosts[0].peer.counters().history_answered),
        ("lost 3-3 1 DEADLINE, 4", 1)
    );
    assert_eq!(lan.hosts[1].peer.loss_rows()[0].inconsistencies, 0);
}

#[test]
fn unanswered_fetch_of_large_message_ends_at_deadline() {
    for missing in [1, 3] {
        let mut lan = Lan::new(2, |settings| settings.recovery.ring.bytes_max = 0);
        lan.publish_bytes("a", 5000);
        lan.publish("a");
        let mut questions = 0;
        let lost = |copy: &Copy| copy.path == Path::Multicast && copy.dseq() == Some(missing);
        lan.run(1990, |copy| {
            let is_directed = wire::decode(copy.bytes.clone()).unwrap().header.kind == Kind::Directed;
            questions += u32::from(is_directed);
            is_directed || lost(copy)
        });
        assert_eq!(lan.take_reports(1), "");
        assert!(5 <= questions, "{questions} questions");
        lan.run(30, lost);
        assert_eq!(lan.take_reports(1), "lost 1-1 1 DEADLINE, 2");
        let row = &lan.hosts[1].peer.loss_rows()[0];
        assert_eq!((row.msg_loss.count, row.unverified.count, row.inconsistencies), (1, 0, 0));
    }
}

#[test]
fn late_datagrams_end_the_fetch_of_large_message() {
    let mut copies = Vec::new();
    for answers in [false, true] {
        let mut lan = Lan::new(2, |settings| settings.recovery.ring.bytes_max = 0);
        lan.publish("a");
        lan.publish_bytes("a", 5000);
        lan.publish("a");
        let lost = |copy: &Copy| copy.path == Path::Multicast && matches!(copy.dseq(), Some(1 | 2 | 4));
        lan.run(30, |copy| {
            let is_lost = lost(copy);
            if is_lost {
                copies.push(copy.bytes.clone());
            }
            // The content of the first datagram stays unknown, so nothing is delivered meanwhile.
            let is_directed = wire::decode(copy.bytes.clone()).unwrap().header.kind == Kind::Directed;
            let is_of_first =
                |record: &Record| matches!(record, Record::Manifest(manifest) if manifest.first == Dseq(1));
            is_lost || is_directed && !answers || copy.records().iter().any(is_of_first)
        });
        assert_eq!(lan.take_reports(1), "");
        let from = lan.hosts[0].address;
        for bytes in std::mem::take(&mut copies).into_iter().rev() {
            lan.hosts[1].peer.handle(at(lan.millis), Input::Datagram { from, path: Path::Multicast, bytes });
            lan.settle(&mut |_| false);
        }
        lan.run(200, |_| false);
        assert_eq!(lan.take_reports(1), "1r, 2r, 3", "answered: {answers}");
        let row = &lan.hosts[1].peer.loss_rows()[0];
        assert_eq!((row.msg_loss.count, row.repeat.count, row.inconsistencies), (0, 0, 0));
    }
}

#[test]
fn messages_larger_than_an_answer_are_fetched_once() {
    let mut lan = Lan::new(2, |settings| {
        settings.recovery.ring.bytes_max = 0;
        settings.recovery.history.bytes_max = 8 << 20;
        settings.recovery.history.total_bytes_max = 64 << 20;
    });
    let bytes = [1_500_000, 700_000, 700_000, 100_000];
    for bytes in bytes {
        lan.publish_bytes("a", bytes);
    }
    lan.publish("a");
    lan.run(1000, |copy| copy.path == Path::Multicast && copy.dseq().is_some_and(|dseq| dseq % 50 == 7));
    assert_eq!(lan.take_reports(1), "1r, 2r, 3r, 4r, 5");
    assert_eq!(lan.hosts[0].peer.counters().history_answered, 4, "once for each");
    assert_eq!(lan.hosts[1].peer.loss_rows()[0].inconsistencies, 0);
}

#[test]
fn later_subscription_does_not_count_large_message_twice() {
    let mut lan = Lan::new(2, |settings| settings.recovery.ring.bytes_max = 0);
    lan.publish("a");
    lan.publish_bytes("b", 5000);
    // The history does not answer, so the content of the second datagram is known long before the first is settled.
    let lost = |copy: &Copy| match wire::decode(copy.bytes.clone()).unwrap().header.kind {
        Kind::Data => copy.path == Path::Multicast && matches!(copy.dseq(), Some(1 | 2)),
        kind => kind == Kind::Directed,
    };
    lan.run(500, lost);
    let (sub, pattern) = (SubId(9), "b".parse::<Pattern>().unwrap().into());
    let request = ClientRequest::Subscribe { sub, wanted: pattern, mode: DeliveryMode::Repair, wants_discovery: false };
    lan.hosts[1].peer.handle(at(lan.millis), Input::ClientRequest { client: CLIENT, request });
    lan.run(3000, lost);
    assert_eq!(lan.take_reports(1), "lost 1-1 1 DEADLINE", "the later subscription is owed no part of the message");
    assert_eq!(lan.hosts[1].peer.loss_rows()[0].inconsistencies, 0);
}

#[test]
fn live_subscription_continues_while_repair_subscription_waits() {
    let mut lan = Lan::new(2, |_| {});
    let (sub, pattern) = (SubId(9), "a".parse::<Pattern>().unwrap().into());
    let request = ClientRequest::Subscribe { sub, wanted: pattern, mode: DeliveryMode::Live, wants_discovery: false };
    lan.hosts[1].peer.handle(at(lan.millis), Input::ClientRequest { client: ClientId(2), request });
    lan.run(1, |_| false);
    lan.publish("a");
    lan.run(5, |_| false);
    assert_eq!(lan.take_reports(1), "1, 1");
    lan.publish("a");
    lan.publish("a");
    let lost = |copy: &Copy| copy.dseq() == Some(2);
    lan.run(20, lost);
    assert_eq!(lan.take_reports(1), "lost 2-2 1 DISABLED, 3", "the live one, with the number missing");
    lan.run(200, |_| false);
    assert_eq!(lan.take_reports(1), "2r, 3");
}

/// Proves: W72
#[test]
fn gap_found_before_subscription_is_not_its_loss() {
    let mut lan = Lan::new(2, |settings| settings.recovery.history.count_max = 2);
    lan.hosts[1].peer.handle(
        at(lan.millis),
        Input::ClientRequest { client: CLIENT, request: ClientRequest::Unsubscribe { sub: SubId(1) } },
    );
    let now = lan.millis;
    lan.hosts[1].subscribe_as(now, 3, "a", DeliveryMode::Live);
    lan.run(1, |_| false);
    let mut missed = None;
    lan.publish("a");
    lan.run(1, |_| false);
    for _ in 0..4 {
        lan.publish("a");
    }
    // The second is missing. Its manifest is requested, because no subscription wants the datagram itself.
    lan.run(20, |copy| {
        let is_missed = copy.dseq() == Some(2);
        missed = missed.clone().or(is_missed.then(|| copy.bytes.clone()));
        is_missed || is_request(copy)
    });
    assert_eq!(lan.take_reports(1), "1, lost 2-2 1 DISABLED, 3, 4, 5");

    // The manifest arrives after a subscription in mode repair began. The history has dropped the message, the ring has
    // not.
    let now = lan.millis;
    lan.hosts[1].subscribe_as(now, 2, "a", DeliveryMode::Repair);
    let datagrams = vec![wire::contents_of(&missed.unwrap())];
    let record = Record::Manifest(wire::Manifest { first: Dseq(2), before: 1, datagrams });
    let origin = Origin { group: 7500, epoch: Epoch::new(1).unwrap(), started: at(1000).instant };
    let bytes = Control::new().datagram(at(lan.millis).instant, &origin, 5, &record, 0);
    let from = lan.hosts[0].address;
    lan.hosts[1].peer.handle(at(lan.millis), Input::Datagram { from, path: Path::Unicast, bytes });
    lan.run(100, |_| false);
    assert_eq!(lan.take_reports(1), "", "a gap before its start is no loss of the later subscription");
    lan.publish("a");
    lan.run(5, |_| false);
    assert_eq!(lan.take_reports(1), "6, 6", "both are at the end of the stream");
}

/// Proves: W102, proof
#[test]
fn unproven_address_gets_no_more_than_it_sent() {
    let mut lan = Lan::new(2, |_| {});
    lan.publish("a");
    lan.run(100, |_| false);
    // A third peer hears everything and sends one HELLO, but never receives an answer and so proves nothing.
    let unknown = SocketAddr::from(([127, 0, 0, 9], 9));
    let mut third = Host { address: unknown, ..Host::new("x.test", 9, lan.millis) };
    let hello = third.tick(lan.millis).remove(0);
    let origin = Origin { group: 7500, epoch: Epoch::new(9).unwrap(), started: at(lan.millis).instant };
    let range = wire::Range { first: Dseq(1), last: Dseq(1) };
    let request = wire::ResendRequest {
        epoch: Epoch::new(1).unwrap(),
        directed: false,
        manifests_only: false,
        unicast: false,
        ranges: vec![range],
    };
    let mut control = Control::new();
    let (mut sent, mut got) = (hello.len(), 0);
    lan.hosts[0].receive(lan.millis, unknown, &hello);
    for n in 0..200 {
        let record = Record::ResendRequest(request.clone());
        let bytes = control.datagram(at(lan.millis + 5).instant, &origin, 0, &record, 0);
        sent += bytes.len();
        let input = Input::Datagram { from: unknown, path: Path::Unicast, bytes };
        lan.hosts[0].peer.handle(at(lan.millis + n / 100), input);
        for effect in lan.hosts[0].drain() {
            if let Effect::Unicast { to, bytes } = effect
                && to == unknown
            {
                assert_eq!(bytes[4], 2, "no history is given out");
                got += bytes.len();
            }
        }
    }
    assert!(got <= sent, "{got} bytes for {sent}");
    assert_eq!(lan.hosts[0].peer.counters().requests_unproven, 200);
}

/// Proves: W101, proof
#[test]
fn address_is_proven_despite_lost_announcements() {
    let mut lan = Lan::unmet(2, |_| {});
    lan.run(1000, |copy| copy.path == Path::Unicast);
    lan.publish("a");
    let mut announcements = 0;
    lan.run(300, |copy| {
        announcements += u32::from(copy.path == Path::Unicast);
        copy.path == Path::Multicast && copy.dseq().is_some() || copy.path == Path::Unicast && announcements <= 5
    });
    assert_eq!(lan.take_reports(1), "1r", "after {announcements} words");
}

#[test]
fn remote_and_local_histories_answer_questions() {
    let mut lan = Lan::new(2, |_| {});
    for _ in 0..3 {
        lan.publish("a");
    }
    lan.run(50, |_| false);
    let poll = |offset| Question::Poll(vec![Poll { subject: "a".parse().unwrap(), offset, count: 10 }]);
    let query = |lan: &mut Lan, host: usize, peer: u64, question| {
        let (id, timeout) = (7, Duration::from_millis(500));
        let request = ClientRequest::QueryHistory { id, peer: Epoch::new(peer).unwrap(), question, timeout };
        lan.hosts[host].peer.handle(at(lan.millis), Input::ClientRequest { client: CLIENT, request });
    };
    for host in [1, 0] {
        query(&mut lan, host, 1, poll(0));
        let mut answers = Vec::new();
        for _ in 0..20 {
            let millis = lan.millis;
            for from in 0..2 {
                lan.hosts[from].peer.handle(at(millis), Input::Tick);
                while let Some(effect) = lan.hosts[from].peer.poll_effect() {
                    match effect {
                        Effect::Answer { client: CLIENT, id: 7, answer } => answers.push(answer.unwrap()),
                        effect => lan.effect(from, effect, &mut |_| false),
                    }
                }
            }
            lan.millis += 1;
        }
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        let AnswerContent::Poll { answers, .. } = &answer.content else { panic!("{answer:?}") };
        assert_eq!((answer.epoch, answer.high, answers[0].case), (Epoch::new(1).unwrap(), Dseq(3), PollCase::Recovery));
    }
    query(&mut lan, 1, 5, poll(0));
    let unknown = lan.hosts[1].drain();
    assert_eq!(unknown, [Effect::Answer { client: CLIENT, id: 7, answer: Err(QuestionFailure::UnknownPeer) }]);
    query(&mut lan, 1, 1, poll(0));
    lan.hosts[1].drain();
    lan.hosts[1].peer.handle(at(lan.millis + 500), Input::Tick);
    let late = Effect::Answer { client: CLIENT, id: 7, answer: Err(QuestionFailure::Timeout) };
    assert!(lan.hosts[1].drain().contains(&late));
}

/// Proves: W167
#[test]
fn questions_about_reports_are_answered_in_parts() {
    let mut lan = Lan::new(2, |_| {});
    lan.run(50, |_| false);
    let report: Vec<u8> = (0..PART_BYTES_MAX + 1).map(|at| at as u8).collect();
    // A client asks another peer, then its own.
    for peer in [1, 2] {
        let (id, timeout) = (7, Duration::from_millis(500));
        let question = Question::Report(Bytes::from_static(b"{}"));
        let request = ClientRequest::QueryHistory { id, peer: Epoch::new(peer).unwrap(), question, timeout };
        lan.hosts[1].peer.handle(at(lan.millis), Input::ClientRequest { client: CLIENT, request });
        let mut parts = Vec::new();
        for _ in 0..20 {
            let now = at(lan.millis);
            for host in 0..2 {
                lan.hosts[host].peer.handle(now, Input::Tick);
                while let Some(effect) = lan.hosts[host].peer.poll_effect() {
                    match effect {
                        Effect::QueryReport { from, reply, query } => {
                            assert_eq!((from, &*query), (Epoch::new(2).unwrap(), &b"{}"[..]));
                            lan.hosts[host].peer.answer_report(now, from, &reply, Ok(&report));
                        }
                        Effect::Answer { client: CLIENT, id: 7, answer } => parts.push(answer.unwrap()),
                        effect => lan.effect(host, effect, &mut |_| false),
                    }
                }
            }
            lan.millis += 1;
        }
        assert_eq!(parts.iter().map(|part| (part.part, part.last)).collect::<Vec<_>>(), [(0, false), (1, true)]);
        let bytes = parts.iter().flat_map(|part| match &part.content {
            AnswerContent::Report(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        });
        assert!(bytes.eq(report.iter().copied()), "the parts of peer {peer} are the report");
    }
}

/// Proves: W126
#[test]
fn publisher_learns_losses_of_its_receivers() {
    let mut lan = Lan::new(2, |_| {});
    lan.publish("a");
    lan.publish("a");
    lan.run(4000, |copy| copy.dseq() == Some(1));
    assert_eq!(lan.take_reports(1), "lost 1-1 1 DEADLINE, 2");
    let report = lan.hosts[0].peer.outbound_rows();
    assert_eq!(report.len(), 1);
    assert_eq!((report[0].report.lost_min, report[0].report.lost_max, report[0].report.missing), (1, 1, 1));
}

/// Proves: W127, linger
#[test]
fn stopping_peer_answers_until_requests_cease() {
    let mut lan = Lan::new(2, |_| {});
    lan.publish("a");
    let lost = |copy: &Copy| copy.path == Path::Multicast && copy.dseq() == Some(1);
    lan.settle(&mut { lost });
    lan.hosts[0].peer.handle(at(lan.millis), Input::Stop);
    let mut stopped = None;
    for _ in 0..400 {
        lan.millis += 1;
        let millis = lan.millis;
        lan.hosts.iter_mut().for_each(|host| host.peer.handle(at(millis), Input::Tick));
        for from in 0..2 {
            while let Some(effect) = lan.hosts[from].peer.poll_effect() {
                match effect {
                    Effect::Stopped => stopped = Some(millis),
                    effect if stopped.is_none() || from == 1 => lan.effect(from, effect, &mut { lost }),
                    effect => panic!("after the stop: {effect:?}"),
                }
            }
        }
    }
    assert_eq!(lan.take_reports(1), "1r");
    let after = stopped.unwrap() - 2000;
    assert!((100..=400).contains(&after), "{after} ms");
    let hello = Host::new("x.test", 9, lan.millis).tick(lan.millis).remove(0);
    lan.hosts[0].receive(lan.millis, SocketAddr::from(([127, 0, 0, 9], 9)), &hello);
    lan.hosts[0].peer.handle(at(lan.millis + 60_000), Input::Tick);
    assert_eq!(
        (lan.hosts[0].drain(), lan.hosts[0].peer.poll_deadline()),
        (vec![], None),
        "a stopped peer ignores its input"
    );
}

#[test]
fn expired_ends_no_other_gap_of_unheard_publisher() {
    let mut lan = Lan::new(2, |settings| settings.reliability = Duration::from_secs(3));
    for _ in 0..4 {
        lan.publish("a");
    }
    // The first and third are missing, and nothing answers; then nothing is heard for longer than the time left.
    lan.run(1000, |copy| copy.path == Path::Multicast && matches!(copy.dseq(), Some(1 | 3)) || is_request(copy));
    lan.run(3000, |_| true);
    lan.millis += 1;
    let record = Record::Expired(wire::ExpiryNotice {
        receiver: None,
        ranges: vec![wire::Range { first: Dseq(1), last: Dseq(1) }],
    });
    let origin = Origin { group: 7500, epoch: Epoch::new(1).unwrap(), started: at(1000).instant };
    let bytes = Control::new().datagram(at(lan.millis).instant, &origin, 4, &record, 0);
    let from = lan.hosts[0].address;
    lan.hosts[1].peer.handle(at(lan.millis), Input::Datagram { from, path: Path::Unicast, bytes });
    lan.settle(&mut |_| true);
    assert_eq!(lan.take_reports(1), "lost 1-1 1 EXPIRED, 2", "the third is still awaited");
    lan.run(1200, |_| false);
    assert_eq!(lan.take_reports(1), "3r, 4");
}

fn is_request(copy: &Copy) -> bool {
    copy.records().iter().any(|record| matches!(record, Record::ResendRequest(_)))
}

#[test]
fn first_loss_is_reported_to_older_live_subscription() {
    let mut s = Host::new("S.test", 1, 0);
    s.subscribe_as(0, 1, "a", DeliveryMode::Live);
    let mut p = Host::new("P.test", 2, 1_000);
    for hello in p.tick(1_000) {
        s.receive(1_000, p.address, &hello);
    }
    s.drain();
    let (_lost, next) = (p.publish(1_001, "a"), p.publish(1_002, "a"));
    s.receive(1_002, p.address, &next);
    s.peer.handle(at(1_010), Input::Tick);
    let reports = s.take_reports();
    assert!(reports.contains(&"lost a 1-1 1".to_owned()) && reports.last() == Some(&"a+1".to_owned()), "{reports:?}");
    assert_eq!(s.peer.loss_rows()[0].msg_loss.count, 1, "and show loss says so");
}

/// Proves: W107
#[test]
fn unheard_publisher_gets_requests_once_heard_again() {
    let mut lan = Lan::new(2, |_| {});
    let is_second = |copy: &Copy| copy.dseq() == Some(2);
    for millis in [10, 1, 20] {
        lan.publish("a");
        lan.run(millis, is_second);
    }
    let (publisher, requests) = (Epoch::new(1).unwrap(), Cell::new(0));
    let cut = |copy: &Copy| {
        let is_request = copy.records().iter().any(|record| matches!(record, Record::ResendRequest(_)));
        requests.set(requests.get() + u32::from(is_request));
        copy.epoch() == publisher
    };
    // The publisher counts as heard for one and a half heartbeat intervals.
    lan.run(1600, cut);
    assert!(3 < requests.replace(0), "requests are repeated");
    lan.run(5000, cut);
    assert_eq!(requests.get(), 0, "the publisher cannot answer");
    lan.run(1100, |_| false);
    assert_eq!(lan.repaired, 1, "a request follows as soon as the publisher is heard");
}
