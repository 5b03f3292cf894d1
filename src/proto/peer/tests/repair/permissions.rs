//! A publisher whose certificate permits few subjects. Its messages on others are accounted for, and go to no client.

use super::queue::is_news;
use super::*;
use crate::message::MessageOrigin;
use crate::proto::certified::{CertifiedPeer, OwnCertificate};
use crate::proto::effect::DeniedPublication;
use crate::proto::history::Selection;
use crate::subject::permitted_subjects::{HostPermissions, PermittedSubjects};

impl Host {
    /// Hands in the certificate of the epoch with this number, which permits these patterns.
    fn certify(&mut self, millis: u64, number: u64, patterns: &[&str]) {
        self.certify_as(millis, number, "B.test", patterns);
    }

    /// Does the same with a name.
    fn certify_as(&mut self, millis: u64, number: u64, name: &str, patterns: &[&str]) {
        let publish = PermittedSubjects::of(patterns.iter().map(|text| text.parse().unwrap()));
        let certified = CertifiedPeer { name: Some(name.parse().unwrap()), publish, origin: None };
        let epoch = Epoch::new(number).unwrap();
        self.peer.handle(at(millis), Input::Authenticated { epoch, certified });
    }
}

/// Returns a subscriber of everything, and a publisher that may publish on `line.>`.
fn limited_pair() -> (Host, Host) {
    let mut subscriber = Host::new("S.test", 1, 0);
    subscriber.subscribe(0, ">");
    subscriber.certify(1000, 2, &["line.>"]);
    let mut publisher = Host::new("P.test", 2, 1000);
    for hello in publisher.tick(1000) {
        subscriber.receive(1000, publisher.address, &hello);
    }
    subscriber.drain();
    (subscriber, publisher)
}

fn denied_count(host: &Host) -> u64 {
    host.peer.counters().messages_denied
}

#[test]
fn denied_messages_are_counted_and_reported_at_intervals() {
    let (mut s, mut p) = limited_pair();
    let mut reported = Vec::new();
    for (millis, subjects, denied) in
        [(1001, "line.a cmd.stop cmd.stop line.a", 2), (5000, "cmd.go", 3), (11_001, "line.b cmd.go", 4)]
    {
        s.receive(millis, p.address, &p.publish(millis, subjects));
        for effect in s.drain() {
            match effect {
                Effect::Denied(DeniedPublication { publisher, member, subject }) => {
                    reported.push(format!("{publisher} of {} on {subject}", member.unwrap()));
                }
                effect => delivered(effect)
                    .iter()
                    .for_each(|delivery| assert!(delivery.message.subject.as_str().starts_with("line."))),
            }
        }
        assert_eq!(denied_count(&s), denied);
    }
    assert_eq!(reported, ["P.1 of B.test on cmd.stop", "P.1 of B.test on cmd.go"]);
    assert_eq!(s.peer.counters().messages_delivered, 3);
    let row = &s.peer.loss_rows()[0];
    assert_eq!((row.msg_loss.count, row.not_sub.count, row.repeat.count, row.unverified.count), (0, 0, 0, 0));
}

#[test]
fn delivered_message_states_the_proof_of_its_publisher() {
    for origin in [None, Some(MessageOrigin::Group), Some(MessageOrigin::Publisher)] {
        let (mut s, mut p) = limited_pair();
        let (epoch, publish) = (Epoch::new(2).unwrap(), PermittedSubjects::all());
        let certified = CertifiedPeer { name: Some("B.test".parse().unwrap()), publish, origin };
        s.peer.handle(at(1000), Input::Authenticated { epoch, certified });
        s.receive(1001, p.address, &p.publish(1001, "line.a line.b"));
        let found: Vec<_> = s.drain().into_iter().flat_map(delivered).map(|delivery| delivery.origin).collect();
        assert_eq!(found, [origin; 2]);
        let proven = origin.map(|_| MessageOrigin::Publisher);
        assert_eq!(s.peer.origin_of(epoch, true), proven, "only the two have the keys");
        let own = OwnCertificate { name: proven.map(|_| "S.test".parse().unwrap()), ..OwnCertificate::default() };
        s.peer.handle(at(1002), Input::OwnCertificate(own));
        assert_eq!(s.peer.own_origin(), proven);
    }
}

#[test]
fn lost_denied_messages_are_reported_like_others() {
    let (mut s, mut p) = limited_pair();
    let (first, _lost, third) =
        (p.publish(1001, "cmd line.a"), p.publish(1002, "cmd cmd"), p.publish(1003, "cmd line.a"));
    s.receive(1001, p.address, &first);
    s.receive(1003, p.address, &third);
    s.tick_quietly(1008);
    assert_eq!(s.take_reports(), ["line.a", "line.a", "lost cmd 2-3 2"]);
    let row = &s.peer.loss_rows()[0];
    assert_eq!((row.msg_loss.count, row.unverified.count, row.inconsistencies, denied_count(&s)), (2, 0, 0, 2));
}

#[test]
fn denied_large_messages_are_assembled_and_counted() {
    let (mut s, mut p) = limited_pair();
    for (millis, subject) in [(1001, "cmd"), (1002, "line.a"), (1003, "cmd")] {
        for datagram in p.publish_large(millis, subject, 5_000) {
            s.receive(millis, p.address, &datagram);
        }
    }
    assert_eq!(s.take_reports(), ["line.a"]);
    let row = &s.peer.loss_rows()[0];
    assert_eq!((row.msg_loss.count, row.unverified.count, denied_count(&s)), (0, 0, 2));
    // A large message without its second datagram is lost, wherever it was published.
    let mut datagrams = p.publish_large(1004, "cmd", 5_000);
    datagrams.remove(1);
    datagrams.iter().for_each(|datagram| s.receive(1004, p.address, datagram));
    s.tick_quietly(1010);
    assert_eq!(s.take_reports(), ["lost cmd 3-3 1"]);
    assert_eq!(s.peer.counters().inconsistencies, 0);
}

#[test]
fn answers_to_inboxes_need_no_permission() {
    let (mut s, mut p) = limited_pair();
    for hello in s.tick(1000) {
        p.receive(1000, s.address, &hello);
    }
    p.drain();
    s.drain();
    s.certify(1050, 2, &[]);
    let inbox = format!("_INBOX.{}.1", s.peer.epoch());
    s.receive(1100, p.address, &p.direct(1100, &inbox));
    let of_listener = "_INBOX.Xk3v7Q9mZ2b8Lw4N1c6R5t.1";
    s.receive(1101, p.address, &p.publish(1101, of_listener));
    s.receive(1102, p.address, &p.publish(1102, "line.a"));
    assert_eq!(s.take_reports(), [inbox.as_str(), of_listener]);
    assert_eq!(denied_count(&s), 1);
}

#[test]
fn denied_messages_are_repaired_and_not_delivered() {
    let mut lan = Lan::new(2, |_| {});
    lan.hosts[1].certify(lan.millis, 1, &["b"]);
    for _ in 0..3 {
        lan.publish("a");
        lan.run(1, |copy| copy.path == Path::Multicast && copy.dseq().is_some());
    }
    lan.publish("a");
    lan.run(1000, |_| false);
    assert_eq!(lan.take_reports(1), "");
    let row = &lan.hosts[1].peer.loss_rows()[0];
    assert_eq!((row.repaired.count, row.msg_loss.count, row.datagrams.repaired), (3, 0, 3));
    assert_eq!((denied_count(&lan.hosts[1]), row.inconsistencies), (4, 0));
}

#[test]
fn late_joiner_gets_no_denied_history() {
    let mut lan = Lan::new(2, |_| {});
    lan.hosts[1].certify(lan.millis, 1, &["line.>"]);
    for subject in ["cmd", "line.a", "cmd"] {
        lan.publish(subject);
    }
    lan.run(100, |_| false);
    let selection = Selection { newest: Some(10), age: None };
    let poll = |text: &str| Poll { subject: text.parse().unwrap(), offset: 0, count: 10 };
    for question in [
        Question::List { pattern: ">".parse().unwrap(), selection, from: 0, limit: 10 },
        Question::Poll(vec![poll("cmd"), poll("line.a")]),
    ] {
        let request = ClientRequest::QueryHistory {
            id: 7,
            peer: Epoch::new(1).unwrap(),
            question,
            timeout: Duration::from_millis(500),
        };
        lan.hosts[1].peer.handle(at(lan.millis), Input::ClientRequest { client: CLIENT, request });
        lan.run(100, |_| false);
    }
    let [
        Answer { content: AnswerContent::List { listed, .. }, .. },
        Answer { content: AnswerContent::Poll { answers, .. }, .. },
    ] = &lan.answers[..]
    else {
        panic!("{:?}", lan.answers)
    };
    assert_eq!(listed.iter().map(|listed| listed.subject.as_str()).collect::<Vec<_>>(), ["line.a"]);
    let cases: Vec<_> =
        answers.iter().map(|answer| (answer.subject.as_str(), answer.case, answer.span.is_some())).collect();
    assert_eq!(cases, [("cmd", PollCase::NoEvent, false), ("line.a", PollCase::Recovery, true)]);
}

#[test]
fn denied_messages_of_queue_groups_are_not_lost() {
    let mut lan = Lan::of_queues(3, |_| {});
    lan.join(1, 1, "a", Some("q"));
    lan.join(2, 2, "a", Some("q"));
    lan.run(2, |_| false);
    lan.hosts[1].certify(lan.millis, 1, &["b"]);
    for number in 0..40 {
        lan.send(0, "a", "", &number.to_string());
        lan.run(5, |_| false);
    }
    lan.run(3000, |_| false);
    let given = lan.given("");
    assert!(given.iter().all(|(who, _)| *who == (2, 2)), "{given:?}");
    assert_eq!(given.len() as u64 + denied_count(&lan.hosts[1]), 40);
    let names = ["queue_unserved", "queue_lost", "queue_uncertain", "queue_returned"];
    assert_eq!(names.map(|name| lan.counter(name)), [0; 4]);
}

#[test]
fn member_without_permission_may_return_messages() {
    let mut lan = Lan::of_queues(3, |_| {});
    lan.join(1, 1, "a", Some("q"));
    lan.join(2, 2, "a", Some("q"));
    lan.join(0, 3, "a", None);
    lan.run(2, |_| false);
    lan.hosts[0].certify(lan.millis, 2, &[]);
    lan.leave(1, 1);
    for number in 0..20 {
        lan.send(0, "a", "k: v\r\n", &number.to_string());
        lan.run(5, is_news);
    }
    let (plain, shares): (Vec<_>, Vec<_>) = lan.given("k: v\r\n").into_iter().partition(|(who, _)| *who == (0, 3));
    assert!(shares.iter().all(|(who, _)| *who == (2, 2)), "{shares:?}");
    assert_eq!((plain.len(), shares.len()), (20, 20));
    assert!(0 < lan.counter("queue_returned"));
    assert_eq!(denied_count(&lan.hosts[0]), 0);
}

#[test]
fn certificate_of_this_host_limits_its_clients() {
    let mut host = Host::new("S.test", 1, 0);
    let only = |text: &str| PermittedSubjects::of([text.parse().unwrap()]);
    let permissions = HostPermissions { publish: only("line.>"), subscribe: only("cmd.*") };
    host.peer.handle(at(0), Input::OwnCertificate(OwnCertificate { name: None, permissions }));
    let own_inbox = format!("_INBOX.{}.1", host.peer.epoch());
    for (subject, is_permitted) in
        [("line.a", true), ("cmd.a", false), ("line.a", true), ("line", false), (own_inbox.as_str(), true)]
    {
        let subject: Subject = subject.parse().unwrap();
        let published = host.peer.publish_payload(at(1), CLIENT, &subject, b"x");
        let expected = if is_permitted { Ok(()) } else { Err(Refusal::PublishDenied(subject)) };
        assert_eq!(published, expected);
    }
    for (sub, (pattern, is_permitted)) in (0..).zip([
        ("cmd.a", true),
        ("cmd.*", true),
        ("cmd.>", false),
        (">", false),
        ("_INBOX.>", true),
        ("_RV.>", true),
    ]) {
        let pattern: Pattern = pattern.parse().unwrap();
        let (sub, wanted) = (SubId(sub), pattern.clone().into());
        let request = ClientRequest::Subscribe { sub, wanted, mode: DeliveryMode::Repair, wants_discovery: false };
        let expected = if is_permitted { Ok(()) } else { Err(Refusal::SubscribeDenied(pattern)) };
        assert_eq!(host.peer.request(at(2), CLIENT, request), expected);
    }
    assert_eq!((host.peer.counters().refusals, host.peer.counters().messages_published), (4, 3));
    host.drain();
    let selection = Selection { newest: None, age: None };
    for (pattern, is_permitted) in [("cmd.*", true), ("line.>", false)] {
        let question = Question::List { pattern: pattern.parse().unwrap(), selection, from: 0, limit: 10 };
        let (peer, timeout) = (host.peer.epoch(), Duration::from_millis(500));
        host.peer.request(at(3), CLIENT, ClientRequest::QueryHistory { id: 7, peer, question, timeout }).unwrap();
        let is_denied = |effect: &Effect| matches!(effect, Effect::Answer { answer: Err(QuestionFailure::Denied), .. });
        assert_eq!(host.drain().iter().any(is_denied), !is_permitted, "{pattern}");
    }
}

#[test]
fn name_of_another_certificate_is_foreign() {
    for (host_with_the_name, expected) in [("this one", 1), ("another", 1), ("its own", 0), ("none", 0)] {
        let mut s = Host::new("S.test", 1, 0);
        if host_with_the_name == "this one" {
            let own = OwnCertificate { name: Some("P.test".parse().unwrap()), ..OwnCertificate::default() };
            s.peer.handle(at(0), Input::OwnCertificate(own));
        }
        s.certify(1000, 2, &[]);
        let mut p = Host::new("P.test", 2, 1000);
        for hello in p.tick(1000) {
            s.receive(1000, p.address, &hello);
        }
        match host_with_the_name {
            "another" => s.certify_as(1100, 9, "P.test", &[]),
            "its own" => s.certify_as(1100, 2, "P.test", &[]),
            _ => s.certify_as(1100, 9, "A.test", &[]),
        }
        let row = &s.peer.member_rows(at(1100))[0];
        assert_eq!((row.has_foreign_name, s.peer.counters().foreign_names), (expected == 1, expected));
        let is_event = |effect: &Effect| matches!(effect, Effect::Member { event: MemberEvent::ForeignName, .. });
        assert_eq!(s.drain().iter().filter(|effect| is_event(effect)).count() as u64, expected);
    }
}
