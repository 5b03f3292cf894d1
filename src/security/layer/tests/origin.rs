//! Peers that sign what they publish, and a member that publishes in the name of another one.

use super::*;
use std::sync::Arc;

const SIGNATURE: u8 = 7;

impl Node {
    /// Returns this node, which signs from now on.
    fn signing(mut self) -> Node {
        let static_key = crate::security::static_public(&self.layer.credentials.static_private);
        let key = Arc::new(test_signing_key(&static_key));
        let context = OriginContext { group: GROUP, epoch: self.epoch };
        self.layer.own.signer = Some(OriginSigner::new(Arc::clone(&key), context));
        self.layer.credentials.signing_key = Some(key);
        self
    }

    fn origin_counters(&self) -> [u64; 3] {
        let counters = self.layer.counters();
        [counters.origin_verified, counters.origin_unverified, counters.origin_forged]
    }
}

/// Returns two nodes of which the first signs.
fn signing_pair() -> Lan {
    Lan::new([Node::new("A", 1, 1, None).signing(), Node::new("B", 1, 2, None)])
}

/// Returns a member that has the group keys of the first node of a pair.
fn forger() -> Node {
    // The same random numbers give it the same secret.
    Node::new("A", 1, 1, None)
}

/// Returns a datagram of open mode in the name of a node.
fn forged(of: &Node, number: u64) -> Bytes {
    let Node { epoch, .. } = *of;
    let header = Header { kind: Kind::Data, group: GROUP, epoch, number, count: 0, uptime_ms: 7, receiver: None };
    wire::padding(&header, b"forged")
}

/// Returns two nodes that have met, of which the first signs and the second holds what is not verified.
fn holding_pair() -> Lan {
    let mut lan = signing_pair();
    lan.nodes[1].layer.settings.holds_until_verified = true;
    lan.meet();
    lan
}

fn publish(lan: &mut Lan, count: usize) -> Vec<Bytes> {
    let open: Vec<Bytes> = (0..count).map(|_| lan.nodes[0].datagram(Kind::Data, None)).collect();
    open.iter().for_each(|open| drop(lan.multicast(0, open)));
    open
}

const REPORT_TIME: Duration = Duration::from_millis(50);

/// Proves: W199
#[test]
fn forged_data_is_reported_within_50_ms() {
    let mut lan = signing_pair();
    lan.meet();
    let (mut forger, from, now) = (forger(), lan.nodes[0].address, lan.now);
    let text = forged(&lan.nodes[0], lan.nodes[0].number + 1);
    let sealed = forger.layer.seal(None, &text).unwrap();
    lan.nodes[1].receive(now, from, Path::Multicast, &sealed);
    let open = publish(&mut lan, 3);
    lan.run(REPORT_TIME, |_, _| false);
    assert_eq!(lan.nodes[1].forged, [("A".to_owned(), lan.nodes[0].number - 2)]);
    assert_eq!(lan.nodes[1].origin_counters(), [3, 0, 1]);
    assert_eq!(lan.nodes[1].received, [vec![text], open].concat(), "they were passed on at once");
    // From now on the layer knows better.
    lan.nodes[1].received.clear();
    let now = lan.now;
    lan.nodes[1].receive(now, from, Path::Unicast, &sealed);
    assert_eq!((lan.nodes[1].received.len(), lan.nodes[1].origin_counters()), (0, [3, 0, 2]));
    assert_eq!(lan.nodes[1].forged.len(), 1, "one report a second");
    assert!(lan.nodes[0].forged.is_empty());
}

#[test]
fn honest_data_is_verified_despite_losses() {
    for lost in 0..20 {
        let mut lan = signing_pair();
        lan.meet();
        let met = lan.log.iter().filter(|transit| transit.step() == SIGNATURE).count();
        assert_eq!(met, 0, "nothing to sign");
        let (mut signatures, mut count) = (0, 0);
        for batch in 0..10 {
            count += 7 * batch;
            publish(&mut lan, 7 * batch);
            lan.run(Duration::from_millis(7), |_, transit| {
                signatures += u32::from(transit.step() == SIGNATURE);
                transit.step() == SIGNATURE && signatures == lost
            });
        }
        lan.run(Duration::from_millis(200), |_, _| false);
        assert_eq!(lan.nodes[1].origin_counters(), [count as u64, 0, 0], "SIGNATURE {lost} is lost");
    }
}

#[test]
fn uncovered_data_is_counted_in_time() {
    let mut lan = signing_pair();
    lan.meet();
    let open = publish(&mut lan, 5);
    lan.run(Duration::from_millis(99), |_, transit| transit.step() == SIGNATURE);
    assert_eq!(lan.nodes[1].origin_counters(), [0, 0, 0]);
    lan.run(Duration::from_millis(51), |_, _| false);
    assert_eq!((lan.nodes[1].origin_counters(), &lan.nodes[1].received), ([0, 5, 0], &open));
}

#[test]
fn signatures_wait_for_the_handshake() {
    let mut lan = signing_pair();
    let (a, now) = (lan.nodes[0].address, lan.now);
    let hello = lan.nodes[0].hello(now);
    lan.nodes[1].receive(now, a, Path::Multicast, &hello);
    publish(&mut lan, 3);
    lan.run(Duration::from_millis(15), |_, transit| is_hello_of_b(transit));
    assert_eq!(lan.nodes[1].names, ["A"]);
    assert_eq!(lan.nodes[1].origin_counters(), [3, 0, 0], "without the repeated SIGNATURE");
    // A new handshake with the same epoch continues with what was signed.
    let resent = forged(&lan.nodes[0], 2);
    let sealed = forger().layer.seal(None, &resent).unwrap();
    lan.nodes[1].layer.associations.values_mut().for_each(Association::on_doubt);
    lan.run(Duration::from_secs(2), |_, _| false);
    assert_eq!(lan.nodes[1].names.len(), 2);
    let now = lan.now;
    lan.nodes[1].receive(now, a, Path::Unicast, &sealed);
    assert_eq!(lan.nodes[1].origin_counters(), [3, 0, 1]);
}

#[test]
fn new_epoch_signs_for_itself() {
    let mut lan = signing_pair();
    lan.meet();
    publish(&mut lan, 3);
    lan.nodes[0].begin_epoch(77);
    lan.meet();
    publish(&mut lan, 4);
    lan.run(Duration::from_millis(100), |_, _| false);
    assert_eq!(lan.nodes[1].origin_counters(), [7, 0, 0], "the former epoch has signed its last data");
    assert_eq!(lan.nodes[0].layer.signs_origin(), !lan.nodes[1].layer.signs_origin());
}

/// Proves: W200
#[test]
fn stranger_and_members_cannot_replay_signatures() {
    let mut lan = signing_pair();
    lan.meet();
    publish(&mut lan, 3);
    lan.run(Duration::from_millis(100), |_, _| false);
    let signature = lan.log.iter().find(|transit| transit.step() == SIGNATURE).unwrap().clone();
    let (now, elsewhere) = (lan.now, SocketAddr::from(([10, 0, 0, 9], 4000)));
    let (before, handshakes) = (lan.nodes[1].origin_counters(), lan.nodes[1].layer.counters().discard_handshake);
    lan.nodes[1].receive(now, signature.from, Path::Multicast, &signature.bytes);
    assert_eq!(lan.nodes[1].layer.counters().discard_signature, 0, "an old one costs nothing");
    lan.nodes[1].receive(now, elsewhere, Path::Multicast, &signature.bytes);
    assert_eq!(lan.nodes[1].layer.counters().discard_unauthenticated, 1);
    lan.nodes[1].receive(now, signature.from, Path::Unicast, &signature.bytes);
    assert_eq!(lan.nodes[1].layer.counters().discard_handshake, handshakes, "it may come by unicast");
    // Another member signs with its own key.
    let mut other = Node::new("A", 1, 1, None);
    let key = Arc::new(test_signing_key(&[9; 32]));
    let context = OriginContext { group: GROUP, epoch: other.epoch };
    other.layer.own.signer = Some(OriginSigner::new(key, context));
    let text = forged(&lan.nodes[0], 100);
    let sealed = other.layer.seal(None, &text).unwrap();
    lan.nodes[1].receive(now, signature.from, Path::Multicast, &sealed);
    other.tick(now);
    let sent = other.sent().into_iter().find(|sent| sent.step() == SIGNATURE).unwrap();
    lan.nodes[1].receive(now, signature.from, Path::Multicast, &sent.bytes);
    assert_eq!((lan.nodes[1].layer.counters().discard_signature, lan.nodes[1].origin_counters()), (1, before));
}

/// Proves: W203
#[test]
fn held_data_follows_its_signature_in_order() {
    let mut lan = holding_pair();
    let began = lan.now;
    let mut open = publish(&mut lan, 3);
    for (kind, receiver) in [(Kind::Control, None), (Kind::Directed, Some(lan.nodes[1].epoch))] {
        let datagram = lan.nodes[0].datagram(kind, receiver);
        let to = receiver.map(|_| lan.nodes[1].address);
        let sealed = lan.nodes[0].layer.seal(to, &datagram).unwrap();
        let path = if receiver.is_some() { Path::Unicast } else { Path::Multicast };
        let (from, now) = (lan.nodes[0].address, lan.now);
        lan.nodes[1].receive(now, from, path, &sealed);
        open.push(datagram);
    }
    let directed = open.pop().unwrap();
    assert_eq!(lan.nodes[1].received, [directed], "other members have no keys for it");
    lan.nodes[1].received.clear();
    lan.run(Duration::from_millis(1), |_, _| false);
    assert_eq!((&lan.nodes[1].received, lan.nodes[1].deferred_arrivals.last()), (&open, Some(&began)));
    lan.nodes[1].received.clear();
    open = publish(&mut lan, 10);
    lan.run(Duration::from_millis(18), |_, _| false);
    assert!(lan.nodes[1].received.is_empty());
    lan.run(Duration::from_millis(2), |_, _| false);
    assert_eq!((&lan.nodes[1].received, lan.nodes[1].origin_counters()), (&open, [13, 0, 0]));
    assert_eq!(lan.nodes[1].layer.counters().discard_unverified, 0);
}

/// Proves: W199, W203
#[test]
fn held_forgery_gives_way_to_genuine_data() {
    let mut lan = holding_pair();
    let (mut forger, from, now) = (forger(), lan.nodes[0].address, lan.now);
    let next = lan.nodes[0].number + 1;
    for number in [next, next, next + 9] {
        let sealed = forger.layer.seal(None, &forged(&lan.nodes[0], number)).unwrap();
        lan.nodes[1].receive(now, from, Path::Multicast, &sealed);
    }
    let open = publish(&mut lan, 3);
    lan.run(REPORT_TIME, |_, _| false);
    assert_eq!((&lan.nodes[1].received, lan.nodes[1].origin_counters()), (&open, [3, 0, 2]));
    assert_eq!(lan.nodes[1].forged, [("A".to_owned(), next)]);
    lan.run(Duration::from_millis(100), |_, _| false);
    assert_eq!(lan.nodes[1].layer.counters().discard_unverified, 1, "nobody has signed the one ahead");
    assert_eq!(lan.nodes[1].received, open);
}

/// Proves: W202, W203
#[test]
fn held_data_without_signature_is_verified_when_resent() {
    let mut lan = holding_pair();
    let open = publish(&mut lan, 4);
    lan.run(Duration::from_millis(99), |_, transit| transit.step() == SIGNATURE);
    let discarded = |lan: &Lan| lan.nodes[1].layer.counters().discard_unverified;
    assert_eq!(discarded(&lan), 0);
    let heartbeat = lan.nodes[0].datagram(Kind::Control, None);
    lan.multicast(0, &heartbeat);
    lan.run(Duration::from_millis(1), |_, _| false);
    assert_eq!((discarded(&lan), &lan.nodes[1].received), (4, &vec![heartbeat]), "now it announces what is missing");
    lan.nodes[1].received.clear();
    // It is requested, and sent again by unicast.
    let (from, now) = (lan.nodes[0].address, lan.now);
    for open in &open {
        let to = Some(lan.nodes[1].address);
        let sealed = lan.nodes[0].layer.seal(to, open).unwrap();
        lan.nodes[1].receive(now, from, Path::Unicast, &sealed);
    }
    assert!(lan.nodes[1].received.is_empty());
    let mut paths = Vec::new();
    lan.run(Duration::from_millis(10), |_, transit| {
        paths.extend((transit.step() == SIGNATURE).then_some(transit.path));
        false
    });
    assert_eq!((&lan.nodes[1].received, paths), (&open, vec![Path::Unicast]));
}

/// Proves: W201
#[test]
fn held_datagrams_are_bounded() {
    let mut lan = holding_pair();
    let (mut forger, from, now) = (forger(), lan.nodes[0].address, lan.now);
    for number in 1000..6000 {
        let sealed = forger.layer.seal(None, &forged(&lan.nodes[0], number)).unwrap();
        lan.nodes[1].receive(now, from, Path::Multicast, &sealed);
    }
    assert_eq!(lan.nodes[1].layer.counters().discard_unverified, 5000 - 4096);
    let heartbeat = lan.nodes[0].datagram(Kind::Control, None);
    lan.multicast(0, &heartbeat);
    assert_eq!(lan.nodes[1].received, [heartbeat], "it finds no room to wait");
    lan.nodes[1].received.clear();
    lan.run(Duration::from_millis(100), |_, _| false);
    assert_eq!(lan.nodes[1].layer.counters().discard_unverified, 5000);
    let open = publish(&mut lan, 3);
    lan.run(Duration::from_millis(20), |_, _| false);
    assert_eq!(lan.nodes[1].received, open);
}

#[test]
fn held_data_of_departed_peer_is_discarded() {
    let mut lan = holding_pair();
    publish(&mut lan, 3);
    let epoch = lan.nodes[0].epoch;
    lan.nodes[1].layer.on_departed(epoch);
    lan.run(Duration::from_millis(150), |_, transit| transit.step() == HELLO);
    assert_eq!(lan.nodes[1].layer.counters().discard_unverified, 3);
    assert!(lan.nodes[1].received.is_empty());
}
