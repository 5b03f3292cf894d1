//! Suppression: messages without subscribers are not sent, and no receiver misses anything because of that.

use super::queue::is_news;
use super::*;
use crate::wire::{Header, Interest, InterestEntry};

/// Returns suppressing hosts, after the time in which they must send everything.
fn suppression(count: usize) -> Lan {
    let mut lan = Lan::new(count, |settings| settings.suppresses = true);
    lan.run(5_000, |_| false);
    lan
}

impl Lan {
    fn high(&self) -> u64 {
        self.hosts[0].peer.outbound.sent().0.0
    }

    /// Publishes at the first host; returns the number of datagrams that it took.
    fn cost(&mut self, subject: &str) -> u64 {
        let before = self.high();
        self.publish(subject);
        self.run(0, |_| false);
        self.high() - before
    }

    fn receivers(&mut self, host: usize, subject: &str) -> (u64, bool) {
        self.hosts[host].peer.receivers(ClientId(7), &subject.parse().unwrap())
    }

    fn want(&mut self, host: usize, sub: u32, pattern: &str, wants_discovery: bool) -> u64 {
        let wanted = pattern.parse::<Pattern>().unwrap().into();
        let request = ClientRequest::Subscribe { sub: SubId(sub), wanted, mode: DeliveryMode::Repair, wants_discovery };
        self.hosts[host].peer.handle(at(self.millis), Input::ClientRequest { client: ClientId(7), request });
        self.hosts[host].peer.subscriptions_version()
    }
}

/// Returns whether a copy is from this host.
fn is_from(copy: &Copy, host: u64) -> bool {
    let Header { epoch, .. } = wire::decode(copy.bytes.clone()).unwrap().header;
    epoch.bits() == host + 1
}

/// Proves: W143, publish-suppression
#[test]
fn suppressed_message_takes_no_number() {
    let mut lan = Lan::new(3, |settings| settings.suppresses = true);
    assert_eq!(lan.cost("x"), 1, "a peer that has just begun sends everything");
    lan.run(5_000, |_| false);
    assert_eq!(lan.cost("a"), 1);
    assert_eq!((0..5).map(|_| lan.cost("x")).sum::<u64>(), 0);
    assert_eq!(lan.cost("a"), 1);
    lan.want(0, 1, "x", false);
    assert_eq!(lan.cost("x"), 0, "local clients get the message without a datagram");
    lan.run(3_000, |_| false);
    assert_eq!(
        (lan.take_reports(1).as_str(), lan.take_reports(2).as_str(), lan.take_reports(0).as_str()),
        ("1, 2", "1, 2", "0")
    );
    assert_eq!(lan.hosts[0].peer.counters().messages_suppressed, 6);
    assert_eq!(lan.hosts[0].peer.counters().messages_published, 9);
    lan.want(1, 1, "x", false);
    lan.run(1, |_| false);
    assert_eq!(lan.cost("x"), 1);
    assert_eq!(lan.take_reports(1), "2", "one was sent of this subject before");
    lan.hosts[1].peer.handle(at(lan.millis), Input::Detach { client: ClientId(7) });
    lan.run(1, |_| false);
    assert_eq!(lan.cost("x"), 0);
    let (rows, _) = lan.hosts[0].peer.history_rows(&"x".parse().unwrap(), 9);
    assert_eq!(rows[0].count, 2, "the two messages sent");
}

/// Proves: W146, W147
#[test]
fn subscription_is_confirmed_by_all_suppressing_peers() {
    let mut lan = suppression(3);
    let version = lan.want(1, 1, "x", false);
    assert!(lan.hosts[1].peer.confirmed() < version);
    lan.run(2, |_| false);
    assert!(version <= lan.hosts[1].peer.confirmed());
    assert_eq!(lan.cost("x"), 1);
    // Neither the announcement nor the confirmations arrive: both are repeated.
    let version = lan.want(1, 2, "y", false);
    lan.run(30, |copy| is_news(copy) || is_from(copy, 0));
    assert!(lan.hosts[1].peer.confirmed() < version);
    lan.run(200, |copy| is_news(copy) && copy.path == Path::Multicast);
    assert!(version <= lan.hosts[1].peer.confirmed());
    assert_eq!(lan.cost("y"), 1);
}

#[test]
fn unwanted_messages_are_sent_without_interest() {
    for (interest, datagrams) in [(false, 5), (true, 0)] {
        let mut lan = Lan::new(2, |settings| settings.suppresses = interest);
        lan.run(5_000, |_| false);
        assert_eq!((0..5).map(|_| lan.cost("x")).sum::<u64>(), datagrams, "{interest}");
    }
}

/// Proves: W146
#[test]
fn peers_without_suppression_are_not_awaited() {
    let mut lan = Lan::new(2, |_| {});
    let version = lan.want(1, 1, "x", false);
    assert!(version <= lan.hosts[1].peer.confirmed());
    lan.run(6_000, |_| false);
    assert_eq!(lan.cost("y"), 1);
}

/// Proves: W147
#[test]
fn flush_waits_until_peers_know_the_subscription() {
    let mut lan = Lan::new(3, |_| {});
    lan.run(1_000, |_| false);
    let flush = |lan: &mut Lan, sub, pattern| {
        let version = lan.want(1, sub, pattern, false);
        assert!(lan.hosts[1].peer.flush_subscriptions(at(lan.millis)));
        version
    };
    let version = flush(&mut lan, 1, "x");
    lan.run(5, |_| false);
    assert!(!lan.hosts[1].peer.is_flushing(version));
    assert!([0, 2].into_iter().all(|host| lan.receivers(host, "x") == (1, true)));
    // The advertised change is lost, and then the first question.
    let version = flush(&mut lan, 2, "y");
    lan.run(10, |copy| is_news(copy) || is_from(copy, 1));
    assert!(lan.hosts[1].peer.is_flushing(version));
    assert_eq!(lan.receivers(0, "y"), (0, true), "this is why the client waits");
    lan.run(100, |_| false);
    assert!(!lan.hosts[1].peer.is_flushing(version));
    assert_eq!(lan.receivers(0, "y"), (1, true));
    // A peer that does not answer is waited for once.
    let version = flush(&mut lan, 3, "z");
    lan.run(100, |copy| is_from(copy, 0));
    assert!(lan.hosts[1].peer.is_flushing(version));
    lan.hosts[1].peer.end_flush();
    assert!(!lan.hosts[1].peer.is_flushing(version));
    let version = lan.want(1, 4, "z.z", false);
    lan.hosts[1].peer.flush_subscriptions(at(lan.millis));
    lan.run(5, |copy| is_from(copy, 0));
    assert!(!lan.hosts[1].peer.is_flushing(version), "the third host has answered");
}

/// Proves: W143
#[test]
fn uncertain_interest_prevents_suppression() {
    let mut lan = suppression(2);
    assert_eq!(lan.cost("x"), 0);
    lan.want(1, 1, "y", false);
    lan.run(1_100, is_news);
    assert_eq!(lan.cost("x"), 1, "an advertised change is missing");
    lan.run(3_000, |_| false);
    assert_eq!(lan.cost("x"), 0);
    // A peer that has sent no announcement is heard.
    let datagram = Host::new("C.test", 9, lan.millis).publish(lan.millis, "a");
    let address = SocketAddr::from(([127, 0, 0, 1], 9099));
    lan.hosts[0].receive(lan.millis, address, &datagram);
    assert_eq!(lan.cost("x"), 1);
}

/// Proves: W143, W145
#[test]
fn silent_peer_with_confirmed_subscriptions_is_served() {
    let mut lan = suppression(2);
    assert_eq!((lan.cost("a"), lan.cost("x")), (1, 0));
    // Beyond the time in which a member is given up, and forgotten.
    for _ in 0..5 {
        lan.run(31_000, |copy| is_from(copy, 1));
        assert_eq!((lan.cost("a"), lan.cost("x")), (1, 0));
    }
    assert!(lan.hosts[0].peer.member_rows(at(lan.millis)).is_empty());
    assert_eq!(
        lan.hosts[0].peer.receivers(CLIENT, &"a".parse().unwrap()),
        (0, true),
        "a silent peer does not count as a receiver"
    );
    assert_eq!(lan.take_reports(1), "1, 2, 3, 4, 5, 6");
    lan.run(3_000, |_| false);
    assert_eq!((lan.cost("a"), lan.cost("x")), (1, 0));
    assert_eq!(lan.hosts[0].peer.receivers(CLIENT, &"a".parse().unwrap()), (1, true));
    // A peer that sends BYE wants nothing more.
    lan.hosts[1].peer.handle(at(lan.millis), Input::Stop);
    assert_eq!(lan.cost("a"), 1, "the peer may continue in a new epoch");
    lan.run(1_100, |_| false);
    assert_eq!(lan.cost("a"), 0);
}

/// Proves: W57, W145
#[test]
fn later_run_replaces_the_lost_one() {
    let mut lan = suppression(2);
    lan.run(130_000, |copy| is_from(copy, 1));
    assert_eq!(lan.cost("a"), 1);
    let successor = Settings { suppresses: true, ..settings("h1.test") };
    lan.hosts[1] = Host::of(successor, 7, lan.millis);
    lan.run(2_000, |_| false);
    assert_eq!(lan.cost("a"), 0);
}

/// Proves: W57
#[test]
fn namesake_on_the_same_host_replaces_nothing() {
    let mut lan = Lan::new(3, |settings| {
        settings.suppresses = true;
        if settings.name.as_str() == "h2.test" {
            settings.name = "h1.test".parse().unwrap();
        }
    });
    lan.want(1, 1, "x", false);
    lan.run(5_000, |_| false);
    for _ in 0..3 {
        lan.run(50_000, |copy| is_from(copy, 1));
        assert_eq!((lan.cost("x"), lan.cost("y")), (1, 0));
    }
    assert_eq!(lan.take_reports(1), "1, 2, 3");
}

#[test]
fn unconfirming_peer_is_awaited_once() {
    let mut lan = suppression(2);
    let version = lan.want(1, 1, "x", false);
    lan.run(100, |copy| is_from(copy, 0));
    assert!(lan.hosts[1].peer.confirmed() < version);
    lan.hosts[1].peer.skip_confirmation(version);
    assert_eq!(lan.hosts[1].peer.confirmed(), version);
    let version = lan.want(1, 2, "y", false);
    assert_eq!(lan.hosts[1].peer.confirmed(), version);
    lan.run(2_000, |_| false);
    let version = lan.want(1, 3, "z", false);
    assert!(lan.hosts[1].peer.confirmed() < version, "the peer has answered since, so it is awaited again");
    lan.run(10, |_| false);
    assert_eq!(lan.hosts[1].peer.confirmed(), version);
}

/// Proves: W146
#[test]
fn forgotten_suppressing_peer_must_confirm_after_return() {
    let mut lan = Lan::new(2, |settings| settings.suppresses = settings.name.as_str() == "h0.test");
    // The second host hears nothing of the first host until it has removed that member, and then only its data.
    lan.run(FORGOTTEN + 5_000, |copy| is_from(copy, 0));
    let version = lan.want(1, 1, "x", false);
    assert_eq!(lan.hosts[1].peer.confirmed(), version, "no other peer is known");
    lan.publish("a");
    lan.run(0, |copy| is_from(copy, 0) && copy.dseq().is_none());
    assert_eq!(lan.hosts[1].peer.member_rows(at(lan.millis)).len(), 1);
    assert!(lan.hosts[1].peer.confirmed() < version, "the peer is known to suppress messages");
}

/// Proves: W144
#[test]
fn confirmations_are_some_milliseconds_apart() {
    let mut lan = suppression(2);
    let before = lan.hosts[0].peer.counters().datagrams_unicast;
    for sub in 0..100 {
        lan.want(1, sub, "x", false);
        lan.run(1, |_| false);
    }
    let answers = lan.hosts[0].peer.counters().datagrams_unicast - before;
    assert!((10..40).contains(&answers), "{answers} answers in 100 ms");
}

#[test]
fn discovery_waits_two_seconds_for_missing_confirmations() {
    let mut lan = suppression(2);
    let known = |lan: &mut Lan| {
        let effects = lan.hosts[1].drain();
        effects.iter().filter(|effect| matches!(effect, Effect::PublisherKnown { publisher: None, .. })).count()
    };
    lan.want(1, 1, "x", true);
    assert_eq!(known(&mut lan), 0);
    let began = lan.millis;
    // No datagram from this host arrives, and none to it.
    let mut host = lan.hosts.pop().unwrap();
    while host.drain().iter().all(|effect| !matches!(effect, Effect::PublisherKnown { publisher: None, .. })) {
        lan.millis += 1;
        host.peer.handle(at(lan.millis), Input::Tick);
    }
    assert_eq!(lan.millis - began, 2_000);
}

/// Returns an INTEREST in the name of this host that ends its subscriptions to a pattern with the version `upto`.
fn forged_end(lan: &Lan, host: usize, pattern: &str, upto: u64) -> Bytes {
    let Host { peer, .. } = &lan.hosts[host];
    let wanted = pattern.parse::<Pattern>().unwrap().into();
    let entries = vec![InterestEntry { wanted, count: 0 }];
    let record = Interest { after: peer.subscriptions_version(), upto, high: upto, base: 0, entries };
    let mut control = peer.announcements.control.clone();
    control.datagram(at(lan.millis).instant, &peer.origin, 0, &Record::Interest(record), 0)
}

/// Proves: W142
#[test]
fn forged_end_of_subscription_is_corrected_and_reported() {
    for ahead in [1, 1000, 1 << 20] {
        let mut lan = suppression(3);
        assert_eq!(lan.cost("a"), 1);
        for host in [1, 2] {
            let forged = forged_end(&lan, host, "a", lan.hosts[host].peer.subscriptions_version() + ahead);
            let from = lan.hosts[host].address;
            lan.hosts[0].receive(lan.millis, from, &forged);
        }
        assert_eq!(lan.cost("a"), 0, "the forged subscriptions count");
        lan.run(50, |_| false);
        assert_eq!(lan.cost("a"), 1);
        for host in [1, 2] {
            assert_eq!(lan.hosts[host].peer.counters().interest_forgeries, 1);
            assert_eq!(lan.hosts[0].peer.counters().interest_forgeries, 0);
            let version = lan.hosts[host].peer.subscriptions_version();
            assert!(version <= lan.hosts[host].peer.confirmed(), "the correction is confirmed");
        }
        assert_eq!(lan.cost("x"), 0, "other messages are suppressed again");
        let version = lan.want(1, 1, "x", false);
        lan.run(20, |_| false);
        assert!(version <= lan.hosts[1].peer.confirmed());
        assert_eq!(lan.cost("x"), 1);
    }
}

/// Proves: W142
#[test]
fn lost_correction_is_repeated_with_next_heartbeats() {
    let mut lan = suppression(2);
    let forged = forged_end(&lan, 1, "a", 100);
    let from = lan.hosts[1].address;
    lan.hosts[0].receive(lan.millis, from, &forged);
    lan.run(500, |_| true);
    assert_eq!(lan.cost("a"), 0);
    // One announcement suffices for messages to be sent, and two for the table to be right.
    lan.run(1_000, |copy| copy.path == Path::Unicast);
    assert_eq!(lan.cost("a"), 1);
    assert_eq!(lan.cost("x"), 1);
    lan.run(2_000, |_| false);
    assert_eq!((lan.cost("a"), lan.cost("x")), (1, 0));
    assert_eq!(lan.hosts[1].peer.counters().interest_forgeries, 1);
}
