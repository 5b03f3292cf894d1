//! Changes of keys within an epoch, revocations, and changes of the realm's secret.

use super::*;
use crate::security::own_keys::{ANNOUNCEMENT_TIME_MAX, PHASE_TIME_MIN};

fn trio() -> Lan {
    Lan::new([Node::new("A", 1, 1, None), Node::new("B", 1, 2, None), Node::new("C", 1, 3, None)])
}

/// Returns whether a datagram to the group has a key of an odd phase.
fn is_odd(sealed: &Bytes) -> bool {
    KeyedHeader::decode(sealed).unwrap().key == KeyChoice::of_phase(1)
}

impl Lan {
    /// Lets a node get a list of revoked hosts with one host, or none.
    fn revoke(&mut self, node: usize, revision: u64, revoked: Option<usize>) {
        let revoked = revoked.map(|revoked| &self.nodes[revoked].layer.credentials.static_private);
        let revoked = revoked.map(crate::security::static_public);
        let layer = &mut self.nodes[node].layer;
        let credentials = RealmCredentials { revision, ..layer.credentials.clone() };
        layer.on_credentials(credentials, Box::new(NameVerifier { revoked, ..NameVerifier::default() }));
    }

    /// Sends a datagram of a node to the group, and returns it as the others receive it.
    fn send(&mut self, node: usize) -> Bytes {
        let open = self.nodes[node].datagram(Kind::Data, None);
        self.multicast(node, &open)
    }

    /// Sends a control datagram to one node alone, and returns whether that accepts it.
    fn is_heard(&mut self, from: usize, to: usize) -> bool {
        let (address, source, now) = (self.nodes[to].address, self.nodes[from].address, self.now);
        let open = self.nodes[from].datagram(Kind::Control, None);
        let Some(sealed) = self.nodes[from].layer.seal(Some(address), &open) else { return false };
        self.nodes[to].receive(now, source, Path::Unicast, &sealed);
        self.nodes[to].received.pop() == Some(open)
    }
}

/// Proves: W193, W194
#[test]
fn keys_change_without_losing_a_datagram() {
    let mut rng = Rng::new(11);
    for lost in [0.0, 0.3] {
        let mut lan = trio();
        lan.meet();
        let (mut odd, mut missing) = (0, 0);
        for step in 0..750 {
            if step % 250 == 10 {
                lan.revoke(0, step, None);
            }
            odd += u32::from(is_odd(&lan.send(0)));
            lan.run(Duration::from_millis(100), |_, _| rng.chance(lost));
            let received = [1, 2].map(|receiver| (receiver, !lan.nodes[receiver].received.is_empty()));
            lan.nodes.iter_mut().for_each(|node| node.received.clear());
            for (receiver, is_received) in received {
                // Handshakes whose datagrams are lost take longer than the announcement.
                assert!(is_received || 0.0 < lost, "step {step} at {receiver}");
                missing += u32::from(!is_received);
                let is_heard = lan.is_heard(0, receiver) && lan.is_heard(receiver, 0);
                assert!(is_heard || 0.0 < lost, "step {step} with {receiver}");
            }
        }
        assert_eq!(lan.nodes[0].layer.counters().rekeyed, 3);
        // Announcements at steps 10, 260 and 510; the keys change 0 to 6 s later.
        assert!((370..=550).contains(&odd), "{odd}");
        assert!(missing <= 60, "{missing} of 1,500 at a loss of {lost}");
    }
}

/// Proves: W193
#[test]
fn silent_peer_does_not_delay_a_phase() {
    let mut lan = trio();
    lan.meet();
    lan.revoke(0, 1, None);
    let silent = lan.nodes[2].address;
    let is_lost = |_: usize, transit: &Transit| transit.to == silent || transit.from == silent;
    lan.run(Duration::from_secs(1), is_lost);
    assert!(!is_odd(&lan.send(0)), "C may still be there");
    lan.run(ANNOUNCEMENT_TIME_MAX - Duration::from_secs(2), is_lost);
    assert!(is_odd(&lan.send(0)));
}

/// Proves: W193
#[test]
fn phases_have_a_minimum_distance() {
    let mut lan = trio();
    lan.meet();
    lan.revoke(0, 1, None);
    lan.run(Duration::from_secs(1), |_, _| false);
    lan.revoke(0, 2, None);
    let rekeyed = |lan: &Lan| lan.nodes[0].layer.counters().rekeyed;
    lan.run(PHASE_TIME_MIN - Duration::from_secs(3), |_, _| false);
    assert_eq!(rekeyed(&lan), 1);
    lan.run(Duration::from_secs(3), |_, _| false);
    assert_eq!(rekeyed(&lan), 2);
}

/// Proves: W194
#[test]
fn former_keys_open_what_is_late() {
    let mut lan = trio();
    lan.meet();
    let open = lan.nodes[0].datagram(Kind::Data, None);
    let late = lan.nodes[0].layer.seal(None, &open).unwrap();
    lan.revoke(0, 1, None);
    lan.run(Duration::from_secs(14), |_, _| false);
    let from = lan.nodes[0].address;
    let arrive = |lan: &mut Lan| {
        let now = lan.now;
        lan.nodes[1].receive(now, from, Path::Unicast, &late);
        lan.nodes[1].received.pop().is_some()
    };
    assert!(arrive(&mut lan));
    lan.run(Duration::from_secs(2), |_, _| false);
    assert!(!arrive(&mut lan));
    assert_eq!(lan.nodes[1].layer.counters().discard_unauthenticated, 1);
    let resent = lan.nodes[0].layer.seal(None, &open).unwrap();
    assert!(is_odd(&resent) && !is_odd(&late), "a datagram is resent by the present keys");
}

/// Proves: W194
#[test]
fn former_pairwise_keys_need_a_new_phase() {
    for has_new_phase in [false, true] {
        let mut lan = pair();
        lan.meet();
        let (receiver, to, from) = (lan.nodes[1].epoch, lan.nodes[1].address, lan.nodes[0].address);
        let open = lan.nodes[0].datagram(Kind::Directed, Some(receiver));
        let sealed = lan.nodes[0].layer.seal(Some(to), &open).unwrap();
        match has_new_phase {
            true => lan.revoke(0, 1, None),
            false => lan.nodes[0].layer.on_departed(receiver),
        }
        lan.meet();
        let now = lan.now;
        lan.nodes[1].receive(now, from, Path::Unicast, &sealed);
        assert_eq!(lan.nodes[1].received.len(), usize::from(has_new_phase));
    }
}

/// Proves: W195
#[test]
fn keys_of_crashed_run_end_after_revocation() {
    for is_revoked in [false, true] {
        let mut lan = trio();
        lan.meet();
        if is_revoked {
            lan.revoke(1, 1, None);
        }
        // A has crashed. Somebody goes on sending to the group with its keys.
        let crashed = lan.nodes[0].address;
        let is_of_crashed = |_: usize, transit: &Transit| transit.to == crashed || transit.from == crashed;
        let mut delivered = 0;
        for _ in 0..2 * FORGET.as_secs() {
            let forged = lan.nodes[0].datagram(Kind::Control, None);
            lan.multicast(0, &forged);
            delivered += lan.nodes[1].received.drain(..).count() as u64;
            lan.run(Duration::from_secs(1), is_of_crashed);
            assert!(lan.is_heard(1, 2) && lan.is_heard(2, 1), "the other peer stays known");
        }
        let seconds = if is_revoked { FORGET.as_secs() } else { 2 * FORGET.as_secs() };
        assert!((seconds - 1..=seconds + 2).contains(&delivered), "{delivered}");
    }
}

/// Proves: W173, W193
#[test]
fn pairwise_datagram_of_new_phase_begins_a_handshake() {
    let mut lan = pair();
    lan.meet();
    lan.revoke(0, 1, None);
    let is_hello = |_: usize, transit: &Transit| transit.step() == HELLO;
    lan.run(ANNOUNCEMENT_TIME_MAX + Duration::from_secs(1), is_hello);
    drop(lan.send(0));
    assert!(lan.nodes[1].received.is_empty(), "B does not know of the phase");
    assert!(lan.is_heard(0, 1));
    lan.run(Duration::from_millis(1), is_hello);
    drop(lan.send(0));
    assert_eq!(lan.nodes[1].received.len(), 1);
}

/// Proves: W193
#[test]
fn datagram_of_missed_phase_waits_for_the_handshake() {
    let mut lan = trio();
    lan.meet();
    lan.revoke(0, 1, None);
    // B hears no HELLO before the keys change.
    let to_b = lan.nodes[1].address;
    lan.run(ANNOUNCEMENT_TIME_MAX + Duration::from_millis(900), |_, transit| transit.to == to_b);
    drop(lan.send(0));
    assert_eq!((lan.nodes[1].received.len(), lan.nodes[2].received.len()), (0, 1));
    assert_eq!(lan.nodes[1].layer.counters().discard_unauthenticated, 1);
    let (now, from) = (lan.now, lan.nodes[0].address);
    let hello = lan.nodes[0].hello(now);
    lan.nodes[1].receive(now, from, Path::Multicast, &hello);
    drop(lan.send(0));
    assert!(lan.nodes[1].received.is_empty());
    lan.run(Duration::from_millis(1), |_, _| false);
    assert_eq!(lan.nodes[1].received.len(), 1, "it waited");
}

/// Proves: W193
#[test]
fn hello_of_earlier_phase_begins_no_handshake() {
    let mut lan = trio();
    lan.meet();
    let (now, from) = (lan.now, lan.nodes[0].address);
    let recorded = lan.nodes[0].hello(now);
    lan.revoke(0, 1, None);
    lan.run(Duration::from_secs(5), |_, _| false);
    let handshakes = lan.nodes[1].layer.counters().authenticated;
    for _ in 0..3 {
        let now = lan.now;
        lan.nodes[1].receive(now, from, Path::Multicast, &recorded);
        assert!(lan.nodes[1].sent().is_empty());
    }
    assert_eq!((handshakes, lan.nodes[1].layer.counters().discard_handshake), (3, 0));
}

/// Proves: W195
#[test]
fn revoked_host_reads_and_sends_nothing() {
    let mut lan = trio();
    lan.meet();
    for node in [0, 1] {
        lan.revoke(node, 1, Some(2));
        drop(lan.nodes[node].sent());
        assert_eq!(lan.nodes[node].revoked, ["C"]);
    }
    drop(lan.send(2));
    assert!(lan.nodes[0].received.is_empty() && lan.nodes[1].received.is_empty(), "at once");
    assert!(!lan.is_heard(2, 0) && !lan.is_heard(0, 2));
    lan.run(Duration::from_secs(1), |_, _| false);
    lan.nodes.iter_mut().for_each(|node| node.received.clear());
    for from in [0, 1] {
        drop(lan.send(from));
    }
    assert_eq!([0, 1, 2].map(|node| lan.nodes[node].received.len()), [1, 1, 0]);
    assert_eq!(lan.nodes[0].refusals, ["C is revoked"]);
    assert!(lan.is_heard(0, 1) && lan.is_heard(1, 0));
}

/// Proves: W196
#[test]
fn newer_revision_is_reported() {
    let mut lan = trio();
    lan.meet();
    lan.revoke(0, 7, None);
    lan.run(Duration::from_secs(1), |_, _| false);
    for node in [1, 2] {
        assert!(lan.nodes[node].newer_revisions.iter().all(|revision| *revision == 7));
        assert!(!lan.nodes[node].newer_revisions.is_empty());
        lan.revoke(node, 7, None);
        drop(lan.nodes[node].sent());
        lan.nodes[node].newer_revisions.clear();
    }
    lan.run(Duration::from_secs(5), |_, _| false);
    assert!(lan.nodes.iter().all(|node| node.newer_revisions.is_empty()));
}

#[test]
fn other_realm_secret_keeps_associations() {
    let mut lan = trio();
    lan.meet();
    let rotate = |lan: &mut Lan, node: usize| {
        let credentials = RealmCredentials {
            realm_secret: Secret::new([9; SECRET_BYTES]),
            ..lan.nodes[node].layer.credentials.clone()
        };
        lan.nodes[node].layer.on_credentials(credentials, Box::new(NameVerifier::default()));
    };
    rotate(&mut lan, 0);
    lan.run(Duration::from_secs(3), |_, _| false);
    drop(lan.send(0));
    assert_eq!((lan.nodes[1].received.len(), lan.nodes[2].received.len()), (1, 1));
    lan.nodes.push(Node::new("D", 9, 4, None));
    lan.run(Duration::from_secs(2), |_, _| false);
    assert_eq!(lan.nodes[3].names, ["A"], "B and C have the former secret");
    rotate(&mut lan, 1);
    lan.run(Duration::from_secs(2), |_, _| false);
    assert_eq!(lan.nodes[3].names, ["A", "B"]);
    // Keys that change go to those alone that have the present secret.
    lan.revoke(0, 1, None);
    lan.run(ANNOUNCEMENT_TIME_MAX + Duration::from_secs(1), |_, _| false);
    lan.nodes.iter_mut().for_each(|node| node.received.clear());
    drop(lan.send(0));
    assert_eq!([1, 2, 3].map(|node| lan.nodes[node].received.len()), [1, 0, 1]);
}
