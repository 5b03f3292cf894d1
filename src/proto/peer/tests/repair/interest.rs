//! Exchange of subscriptions between peers.

use super::*;
use crate::message::{SubId, SubscriptionFilter};
use crate::proto::mutant::{Mutant, Mutants};
use crate::subject::Subject;

fn subject(text: &str) -> Subject {
    text.parse().unwrap()
}

/// Returns the known subscriptions of another host: pattern and count of each entry, and whether they are complete.
fn known(lan: &Lan, host: usize, other: usize) -> (Vec<(String, u32)>, bool) {
    let epoch = lan.hosts[other].peer.epoch();
    let rows = lan.hosts[host].peer.remote_rows();
    let entries = rows.iter().filter(|row| row.publisher.epoch == epoch);
    let mut entries: Vec<_> = entries.map(|row| (row.wanted.pattern.to_string(), row.count)).collect();
    entries.sort();
    (entries, lan.hosts[host].peer.remote_interest.is_known(epoch))
}

fn subscribe(lan: &mut Lan, host: usize, sub: u32, pattern: &str, queue: Option<&str>) {
    let queue = queue.map(|name| name.parse().unwrap());
    let wanted = SubscriptionFilter { queue, ..pattern.parse::<Pattern>().unwrap().into() };
    let request =
        ClientRequest::Subscribe { sub: SubId(sub), wanted, mode: DeliveryMode::Repair, wants_discovery: false };
    lan.hosts[host].peer.handle(at(lan.millis), Input::ClientRequest { client: ClientId(2), request });
}

/// Proves: W137, W142
#[test]
fn subscriptions_become_known_and_end_at_all_peers() {
    let mut lan = Lan::new(3, |_| {});
    assert_eq!(known(&lan, 0, 1), (vec![("a".to_owned(), 1)], true));
    subscribe(&mut lan, 1, 1, "a", None);
    subscribe(&mut lan, 1, 2, "b.*", Some("q"));
    subscribe(&mut lan, 2, 1, "b.>", Some("q"));
    lan.run(1, |_| false);
    assert_eq!(known(&lan, 0, 1), (vec![("a".to_owned(), 2), ("b.*".to_owned(), 1)], true));
    assert_eq!(known(&lan, 2, 1), known(&lan, 0, 1));
    let receivers = |lan: &mut Lan, text: &str| lan.hosts[0].peer.receivers(ClientId(1), &subject(text));
    assert_eq!(receivers(&mut lan, "a"), (3, true));
    assert_eq!(receivers(&mut lan, "b.c"), (1, true), "a queue group counts once");
    assert_eq!(receivers(&mut lan, "c"), (0, true));
    lan.hosts[1].peer.handle(at(lan.millis), Input::Detach { client: ClientId(2) });
    lan.run(1, |_| false);
    assert_eq!(receivers(&mut lan, "a"), (2, true));
    lan.hosts[2].peer.handle(at(lan.millis), Input::Stop);
    lan.run(10, |_| false);
    assert_eq!(receivers(&mut lan, "a"), (1, true), "subscriptions end when their peer leaves");
    assert_eq!(receivers(&mut lan, "b.c"), (0, true));
}

#[test]
fn receiver_count_is_cached_until_interest_changes() {
    let mut lan = Lan::new(3, |_| {});
    let publish = |lan: &mut Lan, text: &str| {
        let message = Message::new(subject(text), "x");
        lan.hosts[0].peer.publish(at(lan.millis), ClientId(1), &message).unwrap();
        lan.hosts[0].peer.receivers(ClientId(1), &message.subject)
    };
    assert_eq!(publish(&mut lan, "a"), (2, true));
    assert_eq!(lan.hosts[0].peer.publication.route.receivers, Some(2));
    assert_eq!(publish(&mut lan, "a"), (2, true));
    // A change counts at once: a local one even before the next publish, and a remote one.
    subscribe(&mut lan, 0, 1, "a", None);
    assert_eq!(lan.hosts[0].peer.receivers(ClientId(1), &subject("a")), (3, true));
    assert_eq!(publish(&mut lan, "a"), (3, true));
    subscribe(&mut lan, 1, 2, "*", None);
    lan.run(1, |_| false);
    assert_eq!(lan.hosts[0].peer.receivers(ClientId(1), &subject("a")), (4, true));
    assert_eq!(publish(&mut lan, "a"), (4, true));
    // The count of another subject is not used for this one.
    assert_eq!(lan.hosts[0].peer.receivers(ClientId(1), &subject("b")), (1, true));
    assert_eq!(publish(&mut lan, "a"), (4, true));
    assert_eq!(publish(&mut lan, "b"), (1, true));
    assert_eq!(publish(&mut lan, "a"), (4, true));
    lan.hosts[0].peer.handle(at(lan.millis), Input::Detach { client: ClientId(2) });
    assert_eq!(publish(&mut lan, "a"), (3, true));
    lan.hosts[1].peer.handle(at(lan.millis), Input::Stop);
    lan.run(10, |_| false);
    assert_eq!(publish(&mut lan, "a"), (1, true));
}

/// Proves: W138
#[test]
fn lost_interest_update_is_requested() {
    let mut lan = Lan::new(2, |_| {});
    let is_record = |copy: &Copy| {
        copy.path == Path::Multicast && copy.records().iter().any(|record| matches!(record, Record::Interest(_)))
    };
    subscribe(&mut lan, 1, 1, "b", None);
    lan.run(1, is_record);
    assert_eq!(known(&lan, 0, 1).0, [("a".to_owned(), 1)]);
    // The next announcement shows that there is more.
    let is_known = |lan: &Lan| known(lan, 0, 1) == (vec![("a".to_owned(), 1), ("b".to_owned(), 1)], true);
    lan.run(1100, is_record);
    assert!(is_known(&lan));
    assert!(0 < lan.hosts[1].peer.counters().interest_answered);
    lan.run(5_000, is_record);
    assert_eq!(lan.hosts[0].peer.counters().interest_requested, 1, "once is enough");
}

/// Proves: W139
#[test]
fn many_subscriptions_are_learned_by_requests() {
    let mut lan = Lan::new(2, |settings| {
        (settings.subscriptions_max, settings.client_subscriptions_max) = (5_000, 5_000);
        settings.interest_max = 20_000;
    });
    (0..4_000).for_each(|sub| subscribe(&mut lan, 1, sub, &format!("many.subscriptions.number.{sub}"), None));
    lan.run(1_100, |copy| copy.records().iter().any(|record| matches!(record, Record::Interest(_))));
    assert!(!known(&lan, 0, 1).1);
    assert_eq!(lan.hosts[0].peer.receivers(ClientId(1), &subject("none")), (0, false));
    lan.run(3_000, |_| false);
    assert_eq!((known(&lan, 0, 1).0.len(), known(&lan, 0, 1).1), (4_001, true));
    assert_eq!(lan.hosts[0].peer.receivers(ClientId(1), &subject("many.subscriptions.number.7")), (1, true));
}

#[test]
fn subscriptions_beyond_the_limit_are_not_known() {
    for (interest_max, is_known) in [(4, false), (1000, true)] {
        let mut lan = Lan::new(2, |settings| settings.interest_max = interest_max);
        assert_eq!(known(&lan, 0, 1), (vec![("a".to_owned(), 1)], true));
        (0..3).for_each(|sub| subscribe(&mut lan, 1, sub, &format!("b.{sub}"), None));
        lan.run(100, |_| false);
        assert_eq!(known(&lan, 0, 1).1, is_known, "{interest_max} entries");
        assert_eq!(lan.hosts[0].peer.counters().interest_overflow != 0, !is_known);
    }
}

#[test]
fn new_peer_does_not_claim_complete_interest() {
    let mut host = Host::new("S.test", 1, 0);
    assert_eq!(host.peer.receivers(ClientId(1), &subject("a")), (0, false));
    host.tick(600);
    assert_eq!(host.peer.receivers(ClientId(1), &subject("a")), (0, true));
}

/// Proves: W139
#[test]
fn spent_budget_still_answers_interest_requests() {
    let known_after = |mutants: Mutants| {
        let mut lan = Lan::new(2, |settings| {
            settings.recovery.resend_rate_min = 1;
            settings.mutants = mutants;
        });
        // Repair has spent the whole budget.
        let (instant, peer) = (at(lan.millis).instant, &mut lan.hosts[1].peer);
        while peer.outbound.resends.spend(instant, 100) {}
        subscribe(&mut lan, 1, 1, "b", None);
        lan.run(1, |copy| copy.records().iter().any(|record| matches!(record, Record::Interest(_))));
        lan.run(1_500, |_| false);
        known(&lan, 0, 1).1
    };
    assert!(known_after(Mutants::default()));
    assert!(!known_after(Mutants::only(Mutant::InterestStarves)));
}

/// Proves: W137
#[test]
fn new_epoch_advertises_subscriptions_without_request() {
    let mut lan = Lan::new(2, |_| {});
    subscribe(&mut lan, 1, 1, "b", None);
    lan.run(100, |_| false);
    let now = at(lan.millis);
    lan.hosts[1].peer.handle(now, Input::AddressChanged);
    lan.hosts[1].peer.handle(now, Input::Tick);
    lan.run(20, |copy| copy.records().iter().any(|record| matches!(record, Record::InterestRequest(_))));
    assert_eq!(known(&lan, 0, 1), (vec![("a".to_owned(), 1), ("b".to_owned(), 1)], true));
}

#[test]
fn reply_follows_its_peer_to_another_address() {
    let mut lan = Lan::new(2, |_| {});
    let inbox = format!("_INBOX.{}.7", lan.hosts[1].peer.epoch());
    subscribe(&mut lan, 1, 1, &inbox, None);
    lan.run(100, |_| false);
    lan.publish(&inbox);
    assert_eq!(lan.hosts[0].peer.seqno_rows(1).len(), 0, "the inbox belongs to its peer alone");
    lan.run(1, |_| false);

    lan.hosts[1].peer.handle(at(lan.millis), Input::AddressChanged);
    // The shell discards what the former epoch has not sent.
    lan.hosts[1].drain();
    lan.hosts[1].address.set_port(9902);
    lan.run(20, |_| false);
    lan.publish(&inbox);
    lan.run(1, |_| false);
    let received = lan.given.iter().filter(|(host, _, message)| *host == 1 && message.subject.as_str() == inbox);
    assert_eq!(received.count(), 2);
}
