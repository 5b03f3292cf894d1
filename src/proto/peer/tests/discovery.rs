//! Publisher discovery for subscriptions that begin with publishers' histories.

use super::*;

/// Subscribes with discovery.
fn subscribe(host: &mut Host, millis: u64, sub: u32) {
    let (sub, pattern) = (SubId(sub), "a.>".parse::<Pattern>().unwrap().into());
    let request = ClientRequest::Subscribe { sub, wanted: pattern, mode: DeliveryMode::Repair, wants_discovery: true };
    host.peer.handle(at(millis), Input::ClientRequest { client: CLIENT, request });
}

/// Returns the notifications of subscriptions: `sub:uid`, or `sub:all`.
fn known(host: &mut Host) -> String {
    let known = host.drain().into_iter().filter_map(|effect| match effect {
        Effect::PublisherKnown { to, publisher } => {
            Some(format!("{}:{}", to.sub.0, publisher.map_or("all".to_owned(), |publisher| publisher.uid.to_string())))
        }
        _ => None,
    });
    known.collect::<Vec<String>>().join(" ")
}

fn meet(host: &mut Host, other: &mut Host, millis: u64) {
    for hello in other.tick(millis) {
        host.receive(millis, other.address, &hello);
    }
}

#[test]
fn discovery_completes_after_the_time_to_answer() {
    let (mut older, mut young) = (Host::new("O.test", 2, 0), Host::new("S.test", 1, 10_000));
    young.tick_quietly(10_000);
    subscribe(&mut young, 10_000, 1);
    assert_eq!(known(&mut young), "1:0", "the peer itself; others have had no time to answer");
    older.tick(1);
    meet(&mut young, &mut older, 10_100);
    assert_eq!(known(&mut young), "1:1");
    young.peer.handle(at(10_499), Input::Tick);
    assert_eq!(known(&mut young), "");
    assert!(young.peer.poll_deadline().unwrap() <= at(10_500).instant);
    young.peer.handle(at(10_500), Input::Tick);
    assert_eq!(known(&mut young), "1:all");
    subscribe(&mut young, 10_600, 2);
    assert_eq!(known(&mut young), "2:0 2:1 2:all", "a later subscription gets all at once");
}

#[test]
fn younger_publisher_is_not_reported_to_older_subscription() {
    let mut host = Host::new("S.test", 1, 0);
    subscribe(&mut host, 5_000, 1);
    known(&mut host);
    let mut later = Host::new("L.test", 2, 6_000);
    meet(&mut host, &mut later, 6_000);
    assert_eq!(known(&mut host), "", "all its data is owed");
    subscribe(&mut host, 6_500, 2);
    assert_eq!(known(&mut host), "2:0 2:1 2:all");
    // This publisher started before the subscription and is heard only now.
    let mut earlier = Host::new("E.test", 3, 1_000);
    earlier.tick(1_000);
    meet(&mut host, &mut earlier, 7_000);
    assert_eq!(known(&mut host), "1:2 2:2");
    // Ended subscriptions are not notified.
    host.peer.handle(
        at(7_001),
        Input::ClientRequest { client: CLIENT, request: ClientRequest::Unsubscribe { sub: SubId(1) } },
    );
    let mut third = Host::new("T.test", 4, 1_000);
    third.tick(1_000);
    meet(&mut host, &mut third, 7_100);
    assert_eq!(known(&mut host), "2:3");
    host.peer.handle(at(7_200), Input::Detach { client: CLIENT });
    let mut fourth = Host::new("F.test", 5, 1_000);
    fourth.tick(1_000);
    meet(&mut host, &mut fourth, 7_300);
    assert_eq!(known(&mut host), "");
}

#[test]
fn silent_publisher_is_reported_once_heard_again() {
    let (mut host, mut other) = (Host::new("S.test", 1, 0), Host::new("O.test", 2, 100));
    meet(&mut host, &mut other, 100);
    (1..80).for_each(|step| drop(host.tick(100 + step * 100)));
    subscribe(&mut host, 8_100, 1);
    assert_eq!(known(&mut host), "1:0 1:all");
    meet(&mut host, &mut other, 8_200);
    assert_eq!(known(&mut host), "1:1");
}

#[test]
fn returning_publisher_is_reported_before_its_message() {
    let (mut host, mut other) = pair("none", 100);
    (1..80).for_each(|step| drop(host.tick(100 + step * 100)));
    subscribe(&mut host, 8_100, 7);
    host.drain();
    let datagram = other.publish(8_200, "a.b");
    host.receive(8_200, other.address, &datagram);
    let order: Vec<&str> = host
        .drain()
        .iter()
        .filter_map(|effect| match effect {
            Effect::PublisherKnown { .. } => Some("known"),
            Effect::Deliver { .. } => Some("message"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["known", "message"]);
}

#[test]
fn forgotten_publisher_is_reported_to_newer_subscriptions_only() {
    let (mut host, mut other) = (Host::new("S.test", 1, 0), Host::new("O.test", 2, 100));
    meet(&mut host, &mut other, 100);
    subscribe(&mut host, 1_000, 1);
    assert_eq!(known(&mut host), "1:0 1:1 1:all");
    (1..140).for_each(|step| drop(host.tick(1_000 + step * 1_000)));
    assert!(host.peer.member_rows(at(140_000)).is_empty(), "forgotten");
    subscribe(&mut host, 141_000, 2);
    assert_eq!(known(&mut host), "2:0 2:all");
    for step in 0..5 {
        meet(&mut host, &mut other, 142_000 + step * 1_000);
    }
    assert_eq!(known(&mut host), "2:2");
}

#[test]
fn local_subscription_sees_published_numbers() {
    let mut host = Host::new("S.test", 1, 0);
    host.subscribe(0, "a.>");
    for _ in 0..2 {
        let request = ClientRequest::Publish(Message::new("a.b".parse().unwrap(), &b"x"[..]));
        host.peer.handle(at(1), Input::ClientRequest { client: CLIENT, request });
    }
    host.peer.handle(at(1), Input::Tick);
    let counts: Vec<u64> = host
        .drain()
        .into_iter()
        .flat_map(delivered)
        .inspect(|delivery| assert_eq!(delivery.verdict, Verdict::Direct))
        .map(|delivery| delivery.seq.unwrap().count())
        .collect();
    assert_eq!(counts, [1, 2]);
}
