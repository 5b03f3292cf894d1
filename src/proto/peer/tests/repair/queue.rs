//! Queue groups: the recipients of messages, while members come and go.

use super::*;
use crate::message::{Headers, SubId, SubscriptionFilter};
use crate::proto::mutant::{Mutant, Mutants};
use std::collections::BTreeMap;

fn wanted(pattern: &str, queue: Option<&str>) -> SubscriptionFilter {
    let queue = queue.map(|name| name.parse().unwrap());
    SubscriptionFilter { queue, ..pattern.parse::<Pattern>().unwrap().into() }
}

impl Lan {
    /// Creates peers that know each other, without subscriptions.
    pub(super) fn of_queues(count: usize, change: impl Fn(&mut Settings)) -> Lan {
        let mut lan = Lan::new(count, change);
        for host in 1..count {
            lan.hosts[host].peer.handle(at(lan.millis), Input::Detach { client: CLIENT });
        }
        lan.run(2, |_| false);
        lan
    }

    pub(super) fn join(&mut self, host: usize, sub: u32, pattern: &str, queue: Option<&str>) {
        let wanted = wanted(pattern, queue);
        let request =
            ClientRequest::Subscribe { sub: SubId(sub), wanted, mode: DeliveryMode::Repair, wants_discovery: false };
        self.hosts[host].peer.handle(at(self.millis), Input::ClientRequest { client: ClientId(sub), request });
    }

    pub(super) fn leave(&mut self, host: usize, sub: u32) {
        self.hosts[host].peer.handle(at(self.millis), Input::Detach { client: ClientId(sub) });
    }

    pub(super) fn send(&mut self, host: usize, subject: &str, headers: &str, payload: &str) {
        let headers = Headers::from_block(Bytes::copy_from_slice(headers.as_bytes()));
        let message = Message { headers, ..Message::new(subject.parse().unwrap(), payload.to_owned()) };
        let input = Input::ClientRequest { client: CLIENT, request: ClientRequest::Publish(message) };
        self.hosts[host].peer.handle(at(self.millis), input);
        self.hosts[host].peer.handle(at(self.millis), Input::Tick);
    }

    /// Returns the recipients, by host and client, and their payloads. Checks that there were no headers but `headers`.
    pub(super) fn given(&mut self, headers: &str) -> Vec<((usize, u32), String)> {
        let given = std::mem::take(&mut self.given);
        let row = |(host, client, message): (usize, ClientId, Message)| {
            assert_eq!(message.headers.block(), headers.as_bytes(), "{message:?}");
            ((host, client.0), String::from_utf8(message.payload.to_vec()).unwrap())
        };
        given.into_iter().map(row).collect()
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        let rows = self.hosts.iter().flat_map(|host| host.peer.counters().rows());
        rows.filter(|(counter, ..)| *counter == name).map(|(_, count, _)| count).sum()
    }
}

pub(super) fn is_news(copy: &Copy) -> bool {
    copy.records().iter().any(|record| matches!(record, Record::Interest(_)))
}

#[test]
fn client_without_echo_receives_no_own_messages() {
    let mut lan = Lan::of_queues(2, |_| {});
    let echo = |lan: &mut Lan, is_on| {
        let request = ClientRequest::Echo(is_on);
        lan.hosts[0].peer.handle(at(lan.millis), Input::ClientRequest { client: CLIENT, request });
    };
    let own = |lan: &mut Lan, sub, pattern, queue| {
        let request = ClientRequest::Subscribe {
            sub: SubId(sub),
            wanted: wanted(pattern, queue),
            mode: DeliveryMode::Repair,
            wants_discovery: false,
        };
        lan.hosts[0].peer.handle(at(lan.millis), Input::ClientRequest { client: CLIENT, request });
    };
    own(&mut lan, 1, "a.*", None);
    own(&mut lan, 2, "a.*", Some("q"));
    own(&mut lan, 3, "a.*", Some("r"));
    let receivers = |lan: &mut Lan, client| lan.hosts[0].peer.receivers(client, &"a.b".parse().unwrap());
    assert_eq!(receivers(&mut lan, CLIENT), (3, true));
    echo(&mut lan, false);
    assert_eq!((receivers(&mut lan, CLIENT), receivers(&mut lan, ClientId(9))), ((0, true), (3, true)));
    lan.send(0, "a.b", "", "nobody");
    lan.run(50, |_| false);
    assert_eq!(lan.given(""), []);
    // Other members are chosen every time, local and remote ones.
    lan.join(0, 8, "a.b", Some("q"));
    lan.join(1, 7, "a.>", Some("r"));
    lan.join(1, 6, "a.>", None);
    lan.run(2, |_| false);
    assert_eq!((receivers(&mut lan, CLIENT), receivers(&mut lan, ClientId(9))), ((3, true), (4, true)));
    for _ in 0..50 {
        lan.send(0, "a.b", "", "x");
    }
    lan.run(50, |_| false);
    let mut given = lan.given("");
    given.sort();
    let expected = [(0, 8), (1, 6), (1, 7)].map(|who| vec![(who, "x".to_owned()); 50]).concat();
    assert_eq!(given, expected);
    // The member gets messages of other publishers like any other.
    lan.send(1, "a.b", "", "other");
    lan.run(50, |_| false);
    assert!(lan.given("").contains(&((0, CLIENT.0), "other".to_owned())));
    echo(&mut lan, true);
    assert_eq!(receivers(&mut lan, CLIENT), (4, true));
}

/// Proves: W148, W151
#[test]
fn group_messages_are_shared_across_all_members() {
    let mut lan = Lan::of_queues(3, |_| {});
    let members = [(0, 1, "work.*"), (1, 2, "work.>"), (1, 3, "work.a"), (2, 4, ">"), (2, 5, "work.*")];
    for (host, sub, pattern) in members {
        lan.join(host, sub, pattern, Some("q"));
    }
    lan.join(2, 6, "work.a", Some("r"));
    lan.join(1, 7, "work.a", None);
    lan.join(0, 8, "work.*", None);
    lan.run(2, |_| false);
    for number in 0..1000 {
        lan.send(number % 2, "work.a", "k: v\r\n", &number.to_string());
        lan.run(u64::from(number % 10 == 0), |_| false);
    }
    lan.run(50, |_| false);
    let mut got: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for ((_, client), payload) in lan.given("k: v\r\n") {
        got.entry(client).or_default().push(payload);
    }
    let all: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    for client in 6..=8 {
        let mut payloads = got.remove(&client).unwrap();
        payloads.sort_by_key(|payload| payload.parse::<u32>().unwrap());
        assert_eq!(payloads, all, "client {client} gets all");
    }
    for (client, payloads) in &got {
        assert!((150..250).contains(&payloads.len()), "client {client} has {} of 1000", payloads.len());
    }
    let mut shares = got.into_values().flatten().collect::<Vec<_>>();
    shares.sort_by_key(|payload| payload.parse::<u32>().unwrap());
    assert_eq!(shares, all, "each of them once");
    assert_eq!((lan.counter("queue_returned"), lan.counter("queue_unserved")), (0, 0));
}

#[test]
fn contradictory_queue_group_options_are_refused() {
    let mut lan = Lan::of_queues(1, |_| {});
    let (host, now) = (&mut lan.hosts[0], at(lan.millis));
    for (queue, mode, wants_discovery, expected) in [
        (Some("q"), DeliveryMode::Live, false, Some(Refusal::QueueLive)),
        (Some("q"), DeliveryMode::Repair, true, Some(Refusal::QueueDiscovery)),
        (Some("q"), DeliveryMode::Repair, false, None),
        (None, DeliveryMode::Live, true, None),
    ] {
        let (client, sub, wanted) = (CLIENT, SubId(7), wanted("a", queue));
        let request = ClientRequest::Subscribe { sub, wanted, mode, wants_discovery };
        host.peer.handle(now, Input::ClientRequest { client, request });
        let mut refused = host.drain();
        refused.retain(|effect| matches!(effect, Effect::Refuse { .. }));
        let rows = usize::from(expected.is_none());
        let expected = expected.map(|refusal| Effect::Refuse { client, sub: Some(sub), refusal });
        assert_eq!((refused, host.peer.sub_rows().len()), (Vec::from_iter(expected), rows));
        host.peer.handle(now, Input::Detach { client });
    }
}

/// Proves: W149, W151
#[test]
fn unknown_members_and_client_stamps_get_nothing() {
    let mut lan = Lan::of_queues(2, |_| {});
    lan.join(1, 1, "a", Some("q"));
    lan.join(1, 2, "a", None);
    lan.run(2, is_news);
    lan.send(0, "a", "Seqcast-Queue: 0000000000000002 q\r\nk: v\r\nseqcast-queue: x\r\n", "x");
    lan.run(2, is_news);
    assert_eq!(lan.given("k: v\r\n"), [((1, 2), "x".to_owned())]);
    // Messages without headers are sent in a batch, and still reach no other member.
    (0..3).for_each(|number| lan.send(0, "a", "", &number.to_string()));
    lan.run(2, is_news);
    assert_eq!(lan.given("").into_iter().map(|(who, _)| who).collect::<Vec<_>>(), [(1, 2); 3]);
    lan.run(2000, |_| false);
    lan.send(0, "a", "", "y");
    lan.run(2, |_| false);
    assert_eq!(lan.given(""), [((1, 2), "y".to_owned()), ((1, 1), "y".to_owned())]);
}

/// Proves: W152, W154, W153
#[test]
fn returned_message_goes_to_another_member() {
    let mut lan = Lan::of_queues(3, |_| {});
    lan.join(1, 1, "a", Some("q"));
    lan.join(2, 2, "a", Some("q"));
    lan.join(1, 3, "a", None);
    lan.run(2, |_| false);
    lan.leave(1, 1);
    for number in 0..20 {
        lan.send(0, "a", "k: v\r\n", &number.to_string());
        lan.run(5, is_news);
    }
    let (mut all, mut shares) = (Vec::new(), Vec::new());
    for (who, payload) in lan.given("k: v\r\n") {
        if who == (1, 3) { all.push(payload) } else { shares.push((who, payload)) }
    }
    let expected: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(all, expected, "a plain subscription gets no second copy");
    assert!(shares.iter().all(|(who, _)| *who == (2, 2)));
    assert_eq!(shares.into_iter().map(|(_, payload)| payload).collect::<Vec<_>>(), expected);
    assert!(0 < lan.counter("queue_returned"));
    assert_eq!(["queue_unserved", "queue_lost", "queue_uncertain"].map(|name| lan.counter(name)), [0; 3]);
}

/// Proves: W153
#[test]
fn returned_message_without_another_member_is_counted() {
    let mut lan = Lan::of_queues(3, |_| {});
    lan.join(1, 1, "a", Some("q"));
    lan.join(2, 2, "a", Some("q"));
    lan.run(2, |_| false);
    // Both members leave, and the publisher does not learn of that.
    lan.leave(1, 1);
    lan.leave(2, 2);
    lan.send(0, "a", "", "x");
    lan.run(10, is_news);
    assert_eq!(lan.given(""), []);
    assert_eq!((lan.counter("queue_returned"), lan.counter("queue_unserved")), (2, 1));
}

/// A returned message that does not arrive counts among the losses of the directed stream, though no client of the
/// publisher wants its subject. That holds for large and small messages, and for a missing beginning or end.
///
/// Proves: W153
#[test]
fn returned_message_that_does_not_arrive_is_counted() {
    for (bytes, lost) in [(1, 1), (3_000, 1), (3_000, 2), (3_000, 3)] {
        let mut lan = Lan::of_queues(2, |settings| settings.reliability = Duration::from_millis(50));
        lan.join(1, 1, "a", Some("q"));
        lan.run(2, |_| false);
        lan.leave(1, 1);
        lan.send(0, "a", "", &"x".repeat(bytes));
        let is_lost = |copy: &Copy| {
            let header = wire::decode(copy.bytes.clone()).unwrap().header;
            header.kind == Kind::Directed && header.number == lost
        };
        lan.run(300, |copy| is_news(copy) || is_lost(copy) || is_request(copy));
        lan.run(3_000, |_| false);
        assert_eq!(lan.given(""), []);
        assert_eq!((lan.counter("queue_returned"), lan.counter("queue_unserved")), (1, 0));
        let counted: u64 = lan.hosts[0].peer.loss_rows().iter().map(|row| row.ibx_loss.count).sum();
        assert_eq!(counted, 1, "of {bytes} bytes without datagram {lost}");
    }
}

/// A peer returns a message and answers a HELLO before its datagram is sealed. Then the datagram is lost and the peer
/// crashes. Its last report counts the message as returned, so it must also cover the datagram.
///
/// Proves: W156
#[test]
fn report_of_a_returned_message_covers_its_datagram() {
    let mut lan = Lan::of_queues(2, |settings| settings.forget = Duration::from_secs(5));
    lan.join(1, 1, "a", Some("q"));
    lan.run(1_100, |_| false);
    lan.leave(1, 1);
    lan.run(1, |_| true);
    let (now, address) = (at(lan.millis), lan.hosts[1].address);
    lan.send(0, "a", "", "x");
    lan.hosts[0].peer.send_hello(now, address);
    let from = lan.hosts[0].address;
    for effect in std::iter::from_fn(|| lan.hosts[0].peer.poll_effect()).collect::<Vec<_>>() {
        let (path, bytes) = match effect {
            Effect::Multicast(bytes) => (Path::Multicast, bytes),
            Effect::Unicast { bytes, .. } => (Path::Unicast, bytes),
            _ => continue,
        };
        lan.hosts[1].peer.handle(now, Input::Datagram { from, path, bytes });
    }
    let silenced = lan.hosts[1].peer.epoch();
    let mut answers = 0;
    lan.settle(&mut |copy| {
        let is_answer = copy.epoch() == silenced && copy.records().iter().any(|r| matches!(r, Record::Hello(_)));
        answers += u32::from(is_answer);
        !is_answer
    });
    lan.run(8_000, |copy| copy.epoch() == silenced);
    assert_eq!((answers, lan.counter("queue_returned")), (1, 1));
    let returns_lost: u64 = lan.hosts[0].peer.loss_rows().iter().map(|row| row.ibx_loss.count).sum();
    assert_eq!((lan.counter("queue_uncertain"), returns_lost), (0, 1));
}

/// Proves: W153
#[test]
fn returned_message_goes_to_local_member() {
    let mut lan = Lan::of_queues(2, |_| {});
    lan.join(1, 1, "a", Some("q"));
    lan.run(2, |_| false);
    lan.leave(1, 1);
    lan.send(0, "a", "", "x");
    lan.join(0, 2, "a", Some("q"));
    lan.run(10, is_news);
    assert_eq!(lan.given(""), [((0, 2), "x".to_owned())]);
}

/// Proves: W156, W157
#[test]
fn assignments_lost_in_transit_are_counted_once() {
    let lost = |mutants: Mutants| {
        let mut lan = Lan::of_queues(2, |settings| {
            (settings.reliability, settings.mutants) = (Duration::from_millis(50), mutants);
        });
        lan.join(1, 1, "a", Some("q"));
        lan.run(2, |_| false);
        (0..4).for_each(|number| lan.send(0, "a", "", &number.to_string()));
        lan.run(300, |copy| copy.dseq().is_some_and(|dseq| dseq == 2 || dseq == 4) || is_request(copy));
        lan.run(5_000, |_| false);
        assert_eq!(lan.given("").len(), 2);
        (lan.counter("queue_lost"), lan.counter("queue_uncertain"))
    };
    assert_eq!(lost(Mutants::default()), (2, 0));
    assert_eq!(lost(Mutants::only(Mutant::QueueUnreported)), (0, 0));
}

/// Proves: W157
#[test]
fn assignments_of_a_crashed_peer_are_uncertain() {
    let mut lan = Lan::of_queues(2, |_| {});
    lan.join(1, 1, "a", Some("q"));
    lan.run(2, |_| false);
    lan.send(0, "a", "", "1");
    lan.run(1_100, |_| false);
    let silenced = lan.hosts[1].peer.epoch();
    lan.send(0, "a", "", "2");
    lan.run(3_600, |copy| copy.epoch() == silenced);
    assert_eq!((lan.counter("queue_lost"), lan.counter("queue_uncertain")), (0, 1), "the first is confirmed");
    assert_eq!(lan.given("").len(), 2);
}

/// Proves: W148
#[test]
fn unreachable_peers_are_never_chosen() {
    let mut rng = Rng::new(1);
    let epoch = |bits| Epoch::new(bits).unwrap();
    let mut others = super::super::super::queue::GroupPeers::default();
    [(1, 3), (2, 1), (3, 5)].into_iter().for_each(|(peer, members)| others.add(epoch(peer), members));
    let mut shares = |own: u64, eligible: [bool; 3]| {
        let mut shares = BTreeMap::new();
        for _ in 0..4000 {
            let chosen = others.choose(own, |epoch| eligible[epoch.bits() as usize - 1], &mut rng);
            *shares.entry(chosen.map(|chosen| chosen.map_or(0, Epoch::bits))).or_insert(0u32) += 1;
        }
        shares.into_iter().map(|(who, count)| (who, (count + 200) / 400)).collect::<Vec<_>>()
    };
    assert_eq!(shares(1, [true, true, true]), [(Some(0), 1), (Some(1), 3), (Some(2), 1), (Some(3), 5)]);
    assert_eq!(shares(0, [false, true, false]), [(Some(2), 10)]);
    assert_eq!(shares(4, [false, false, false]), [(Some(0), 10)]);
    assert_eq!(shares(0, [false, false, false]), [(None, 10)]);
}

/// Proves: W155
#[test]
fn group_loss_is_reported_from_zero_to_all() {
    let mut lan = Lan::of_queues(2, |settings| settings.reliability = Duration::from_millis(50));
    lan.join(1, 1, "a", Some("q"));
    lan.join(1, 2, "a", None);
    lan.run(2, |_| false);
    lan.send(0, "a", "", "1");
    lan.run(2, |_| false);
    let mut effects = Vec::new();
    let lost = [2, 3];
    for payload in ["2", "3", "4"] {
        lan.send(0, "a", "", payload);
    }
    for _ in 0..100 {
        lan.run(1, |copy| copy.dseq().is_some_and(|dseq| lost.contains(&dseq)) || is_request(copy));
        effects.append(&mut lan.losses);
    }
    let missing = |client: u32| {
        let given = effects.iter().filter(|(_, to, _)| to.client == ClientId(client));
        given.map(|(_, _, what)| what.clone()).collect::<Vec<_>>()
    };
    let count_of = |missing: &[LossScope]| match missing {
        [LossScope::Messages { count, .. }] => *count,
        other => panic!("{other:?}"),
    };
    let messages = |client| {
        let all = missing(client);
        count_of(&all.into_iter().filter(|what| matches!(what, LossScope::Messages { .. })).collect::<Vec<_>>())
    };
    assert_eq!(messages(2), Count::Exact(2));
    assert_eq!(messages(1), Count::Between { min: 0, max: 2 });
    let verdict =
        |client| lan.verdicts.iter().rev().find(|(to, _)| *to == ClientId(client)).map(|(_, verdict)| *verdict);
    assert_eq!(verdict(2), Some(Verdict::Skip(Count::Exact(2))));
    assert_eq!(verdict(1), Some(Verdict::Skip(Count::Between { min: 0, max: 2 })));
}

/// Proves: W148
#[test]
fn groups_beyond_the_stamp_limit_are_counted_unserved() {
    let mut lan = Lan::of_queues(2, |_| {});
    (0..70).for_each(|sub| lan.join(1, 10 + sub, "a", Some(&format!("q{sub:02}"))));
    lan.run(20, |_| false);
    lan.send(0, "a", "", "x");
    lan.run(2, |_| false);
    let got: Vec<u32> = lan.given("").into_iter().map(|((_, client), _)| client).collect();
    assert_eq!(got, (10..74).collect::<Vec<_>>());
    assert_eq!(lan.counter("queue_unserved"), 6);
}

/// Proves: W149, W150
#[test]
fn largest_message_is_assigned_and_retained_unstamped() {
    let mut lan = Lan::of_queues(2, |_| {});
    (0..3).for_each(|sub| lan.join(1, 10 + sub, "a", Some(&format!("q{sub}"))));
    lan.run(2, |_| false);
    let payload = "x".repeat(lan.hosts[0].peer.settings().message_bytes_max);
    lan.send(0, "a", "", &payload);
    lan.run(500, |_| false);
    assert_eq!(lan.given("").into_iter().map(|(_, payload)| payload.len()).collect::<Vec<_>>(), [payload.len(); 3]);
    lan.send(0, "a", "k: v\r\n", "y");
    lan.run(2, |_| false);
    assert_eq!(lan.given("k: v\r\n").len(), 3);
    let question = Question::Poll(vec![Poll { subject: "a".parse().unwrap(), offset: 0, count: 1 }]);
    for host in 0..2 {
        let peer = lan.hosts[0].peer.epoch();
        let request =
            ClientRequest::QueryHistory { id: 1, peer, question: question.clone(), timeout: Duration::from_secs(1) };
        lan.hosts[host].peer.handle(at(lan.millis), Input::ClientRequest { client: CLIENT, request });
        lan.run(5, |_| false);
        let answers = std::mem::take(&mut lan.answers);
        let span = answers.iter().find_map(|answer| match &answer.content {
            AnswerContent::Poll { answers, .. } => answers[0].span,
            _ => None,
        });
        let offset = span.unwrap().last.wrapping_sub(1);
        let question = Question::Poll(vec![Poll { subject: "a".parse().unwrap(), offset, count: 1 }]);
        let request = ClientRequest::QueryHistory { id: 2, peer, question, timeout: Duration::from_secs(1) };
        lan.hosts[host].peer.handle(at(lan.millis), Input::ClientRequest { client: CLIENT, request });
        lan.run(5, |_| false);
        let answers = std::mem::take(&mut lan.answers);
        let events = answers.iter().find_map(|answer| match &answer.content {
            AnswerContent::Poll { answers, .. } => Some(&answers[0].events),
            _ => None,
        });
        assert_eq!(events.unwrap()[0].message.headers.block(), &b"k: v\r\n"[..], "host {host}");
    }
}

/// Lets members come and go, or loses datagrams, or both. Returns the number of messages delivered twice, and the
/// difference between undelivered messages and counted ones.
fn churn(seed: u64, (changes, loss): (bool, bool), mutants: Mutants) -> (usize, usize) {
    let mut rng = Rng::new(seed);
    let mut lan = Lan::of_queues(4, |settings| settings.mutants = mutants);
    let mut members: BTreeMap<u32, usize> = BTreeMap::new();
    let (mut published, mut next) = (Vec::new(), 10);
    for host in 0..4 {
        members.insert(host as u32 + 1, host);
        lan.join(host, host as u32 + 1, "a", Some("q"));
    }
    lan.run(5, |_| false);
    for number in 0..200 {
        match rng.below(8) {
            0 if changes => {
                members.insert(next, rng.below(4) as usize);
                lan.join(members[&next], next, "a", Some("q"));
                next += 1;
            }
            1 if changes && 1 < members.len() => {
                let sub = *members.keys().nth(rng.below(members.len() as u64) as usize).unwrap();
                lan.leave(members.remove(&sub).unwrap(), sub);
            }
            _ => {}
        }
        let host = rng.below(4) as usize;
        // The publisher knows if it has no member.
        if lan.hosts[host].peer.receivers(CLIENT, &"a".parse().unwrap()).0 != 0 {
            published.push(number.to_string());
        }
        lan.send(host, "a", "", &number.to_string());
        let mut dice = rng.fork();
        lan.run(rng.below(4), |_| loss && dice.below(10) == 0);
    }
    lan.run(6_000, |_| false);
    let mut given: BTreeMap<String, usize> = BTreeMap::new();
    lan.given("").into_iter().for_each(|(_, payload)| *given.entry(payload).or_default() += 1);
    let twice = given.values().filter(|times| 1 < **times).count();
    let missing = published.iter().filter(|payload| !given.contains_key(*payload)).count();
    let counted: u64 = ["queue_unserved", "queue_lost"].map(|name| lan.counter(name)).iter().sum();
    (twice, missing.abs_diff(counted as usize))
}

#[test]
fn each_message_is_served_once_or_counted() {
    for seed in 0..12 {
        for what in [(true, false), (false, true), (true, true)] {
            assert_eq!(churn(seed, what, Mutants::default()), (0, 0), "seed {seed} {what:?}");
        }
    }
    let caught = |mutant| (0..3).any(|seed| churn(seed, (true, false), Mutants::only(mutant)) != (0, 0));
    assert!(caught(Mutant::QueueOfReceiver));
    let is_unreported = |seed| churn(seed, (true, true), Mutants::only(Mutant::QueueUnreported)) != (0, 0);
    assert!((0..12).any(is_unreported));
}

/// Proves: W152
#[test]
fn unreturned_messages_are_missed() {
    let served = |mutants: Mutants| {
        let mut lan = Lan::of_queues(3, |settings| settings.mutants = mutants);
        lan.join(1, 1, "a", Some("q"));
        lan.join(2, 2, "a", Some("q"));
        lan.run(2, |_| false);
        lan.leave(1, 1);
        (0..20).for_each(|number| lan.send(0, "a", "", &number.to_string()));
        lan.run(50, |_| false);
        lan.given("").len()
    };
    assert_eq!(served(Mutants::default()), 20);
    assert!(served(Mutants::only(Mutant::QueueMessageDropped)) < 20);
}

/// Proves: W142
#[test]
fn silent_members_are_neither_chosen_nor_counted() {
    let mut lan = Lan::of_queues(3, |_| {});
    lan.join(1, 1, "a", Some("q"));
    lan.join(1, 2, "b", None);
    lan.join(2, 3, "a", Some("q"));
    lan.run(2, |_| false);
    let receivers = |lan: &mut Lan, subject: &str| lan.hosts[0].peer.receivers(CLIENT, &subject.parse().unwrap());
    assert_eq!(receivers(&mut lan, "b"), (1, true));
    let silenced = lan.hosts[1].peer.epoch();
    lan.run(3_600, |copy| copy.epoch() == silenced);
    assert_eq!(receivers(&mut lan, "b"), (0, true), "subscriptions of a silent peer end");
    (0..20).for_each(|_| lan.send(0, "a", "", "x"));
    lan.run(50, |copy| copy.epoch() == silenced);
    assert_eq!(lan.given(""), vec![((2, 3), "x".to_owned()); 20]);
    lan.run(1_100, |_| false);
    assert_eq!(receivers(&mut lan, "b"), (1, true), "the peer is heard again");
}

/// Proves: W148
#[test]
fn groups_with_only_silent_members_are_unserved() {
    let unserved = |mutants: Mutants| {
        let mut lan = Lan::of_queues(2, |settings| settings.mutants = mutants);
        lan.join(1, 1, "a", Some("q"));
        lan.run(2, |_| false);
        let silenced = lan.hosts[1].peer.epoch();
        lan.run(3_600, |copy| copy.epoch() == silenced);
        lan.send(0, "a", "", "x");
        lan.run(50, |_| false);
        (lan.given("").len(), lan.counter("queue_unserved"))
    };
    assert_eq!(unserved(Mutants::default()), (0, 1));
    assert_eq!(unserved(Mutants::only(Mutant::QueueUnreachable)), (1, 0));
}

/// Proves: W57, W142
#[test]
fn restarted_peer_replaces_its_former_run_at_once() {
    let mut lan = Lan::of_queues(3, |_| {});
    lan.join(1, 1, "a", Some("q"));
    lan.join(2, 3, "a", Some("q"));
    lan.run(2, |_| false);
    // Killed and started again at another port of the same host, without its clients.
    let settings = lan.hosts[1].peer.settings().clone();
    let instant = at(lan.millis);
    lan.hosts[1].peer = Peer::new(settings, Epoch::new(77).unwrap(), Rng::new(77), instant);
    lan.hosts[1].address.set_port(9077);
    lan.run(300, |_| false);
    assert_eq!(lan.hosts[0].peer.receivers(CLIENT, &"a".parse().unwrap()), (1, true));
    (0..20).for_each(|_| lan.send(0, "a", "", "x"));
    lan.run(50, |_| false);
    assert_eq!(lan.given(""), vec![((2, 3), "x".to_owned()); 20]);
}
