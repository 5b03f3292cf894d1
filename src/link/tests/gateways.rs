//! Gateways of a site that start, fall silent, return, leave and die, as an importing site sees them.

use super::super::bye::GatewayBye;
use super::super::export::{Export, Exporter};
use super::super::import::{ImportLedger, Imported};
use super::super::shares::SHARES;
use super::super::site_loss::SiteTail;
use super::super::site_name::SiteName;
use super::exports::{carrier, delivery, seq};
use super::{at, epoch};
use crate::message::{Count, Delivery, Message, Publisher, Verdict};
use crate::seqno::Frame;
use crate::time::{Instant, WallTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// The site `plant1` with its publisher, and the ledger of a site that imports from it.
struct Plant {
    ledger: ImportLedger,
    now: Instant,
    /// Number of messages of each topic.
    published: BTreeMap<u64, u64>,
}

impl Plant {
    fn new() -> Plant {
        Plant { ledger: ImportLedger::new("home".parse().unwrap()), now: at(0), published: BTreeMap::new() }
    }

    /// Publishes the next message of a topic. All gateways count it. Returns the exports.
    fn publish(&mut self, topic: u64, gateways: &mut [&mut Exporter]) -> Vec<Export> {
        let published = self.published.entry(topic).or_default();
        let first = Frame::new(1_000).unwrap().first();
        let verdict = if *published == 0 { Verdict::Start(WallTime::EPOCH) } else { Verdict::Next };
        let seq = first.forward(*published).unwrap();
        *published += 1;
        let publisher = Publisher { name: None, epoch: epoch(77), uid: 1 };
        let subject = format!("plant.{topic}").parse().unwrap();
        let delivery = Delivery::new(Message::new(subject, "x"), publisher, Some(seq), verdict);
        gateways.iter_mut().filter_map(|gateway| gateway.on_delivery(self.now, &delivery)).collect()
    }

    /// Returns the loss that a message proves.
    fn receive(&mut self, export: &Export) -> Option<Count> {
        match self.ledger.on_message(&export.envelope, &export.message.subject) {
            Imported::Deliver(loss) => loss.map(|loss| loss.count),
            other => panic!("{other:?}"),
        }
    }

    /// Publishes a message of a topic and receives it. Returns the loss that it proves.
    fn send(&mut self, topic: u64, gateways: &mut [&mut Exporter]) -> Option<Count> {
        let exports = self.publish(topic, gateways);
        assert_eq!(exports.len(), 1, "one gateway carries it");
        self.receive(&exports[0])
    }

    /// Lets time pass, and receives the rounds of these gateways. Returns the losses that they prove.
    fn pass(&mut self, seconds: u64, gateways: &mut [&mut Exporter]) -> Vec<Count> {
        let mut losses = Vec::new();
        for _ in 0..seconds * 4 {
            self.now = self.now + Duration::from_millis(250);
            for gateway in &mut *gateways {
                while let Some(round) = gateway.poll_round(self.now) {
                    for manifest in round {
                        self.ledger.on_heard(&manifest.site, manifest.gateway);
                        let imported = self.ledger.on_manifest(&manifest, |_| true);
                        losses.extend(imported.losses.into_iter().map(|loss| loss.count));
                        if let Some(request) = imported.request {
                            gateway.on_request(request.share, request.after);
                        }
                    }
                }
            }
        }
        losses
    }

    /// Receives a round of each share of a gateway.
    fn hear(&mut self, gateway: &mut Exporter) {
        for manifest in std::iter::from_fn(|| gateway.poll_round(self.now)).take(usize::from(SHARES)).flatten() {
            self.ledger.on_heard(&manifest.site, manifest.gateway);
            assert_eq!(self.ledger.on_manifest(&manifest, |_| true).losses, []);
        }
    }

    fn end(&mut self, gateway: &Exporter) -> Option<SiteTail> {
        self.ledger.on_gateway_end(&plant(), gateway.gateway())
    }
}

fn plant() -> SiteName {
    "plant1".parse().unwrap()
}

fn tail(gateway: &Exporter) -> Option<SiteTail> {
    Some(SiteTail { site: plant(), gateway: gateway.gateway() })
}

#[test]
fn gateway_that_returns_may_die_again() {
    let mut plant = Plant::new();
    let mut gateway = carrier(1);
    plant.pass(3, &mut [&mut gateway]);
    assert_eq!(plant.send(0, &mut [&mut gateway]), None);
    assert_eq!(plant.end(&gateway), tail(&gateway));
    // A late message does not revive it: nobody would watch it.
    assert_eq!(plant.send(0, &mut [&mut gateway]), None);
    assert_eq!(plant.end(&gateway), None);
    plant.pass(3, &mut [&mut gateway]);
    assert_eq!(plant.end(&gateway), tail(&gateway));
}

#[test]
fn gateway_that_returns_accounts_for_others() {
    let mut plant = Plant::new();
    let (mut first, mut second) = (carrier(1), Exporter::new(self::plant(), epoch(2)));
    plant.pass(5, &mut [&mut first, &mut second]);
    assert_eq!(plant.end(&second), None);
    plant.pass(5, &mut [&mut first, &mut second]);
    assert_eq!(plant.publish(0, &mut [&mut first, &mut second]).len(), 1, "it is lost");
    assert_eq!(plant.end(&first), None);
    assert_eq!(plant.pass(5, &mut [&mut second]), [Count::Exact(1)]);
}

/// Lets a gateway leave. Its last rounds arrive if `is_received`.
fn leave(plant: &mut Plant, gateway: &mut Exporter, is_received: bool) -> (Vec<Count>, Option<SiteTail>) {
    gateway.on_stop();
    let losses = if is_received { plant.pass(1, &mut [gateway]) } else { Vec::new() };
    while gateway.poll_round(plant.now).is_some() {}
    let bye = gateway.bye();
    assert_eq!(GatewayBye::from_json(&bye.to_json()).as_ref(), Ok(&bye));
    let tail = plant.ledger.on_bye(&bye);
    assert_eq!(plant.ledger.on_bye(&bye), None, "it has left");
    (losses, tail)
}

#[test]
fn gateway_after_a_bye_accounts_for_everything() {
    let mut plant = Plant::new();
    let mut first = carrier(1);
    plant.pass(5, &mut [&mut first]);
    assert_eq!(plant.send(0, &mut [&mut first]), None);
    assert_eq!(leave(&mut plant, &mut first, true), (vec![], None));
    let mut second = carrier(2);
    plant.pass(1, &mut [&mut second]);
    assert_eq!(plant.send(1, &mut [&mut second]), None, "no message is missing before it");
    assert_eq!(plant.publish(2, &mut [&mut second]).len(), 1, "it is lost");
    assert_eq!(plant.pass(1, &mut [&mut second]), [Count::Exact(1)]);
    assert_eq!(plant.end(&second), tail(&second));
}

#[test]
fn gateway_that_has_left_accounts_for_nothing() {
    let mut plant = Plant::new();
    let (mut first, mut second) = (carrier(1), Exporter::new(self::plant(), epoch(2)));
    plant.pass(5, &mut [&mut first, &mut second]);
    assert_eq!(leave(&mut plant, &mut second, true), (vec![], None));
    // The hub repeats its last manifests.
    second.on_stop();
    plant.pass(1, &mut [&mut second]);
    assert_eq!(plant.end(&first), tail(&first));
    assert_eq!(plant.end(&second), None);
}

#[test]
fn bye_without_its_last_rounds_is_a_tail() {
    let mut plant = Plant::new();
    let mut gateway = carrier(1);
    plant.pass(5, &mut [&mut gateway]);
    assert_eq!(plant.publish(0, &mut [&mut gateway]).len(), 1, "it is lost");
    assert_eq!(leave(&mut plant, &mut gateway, false), (vec![], tail(&gateway)));
}

#[test]
fn last_rounds_before_a_bye_name_everything() {
    let mut plant = Plant::new();
    let mut gateway = carrier(1);
    plant.pass(5, &mut [&mut gateway]);
    plant.publish(0, &mut [&mut gateway]);
    (0..SHARES).for_each(|share| gateway.release(share));
    plant.publish(0, &mut [&mut gateway]);
    assert_eq!(leave(&mut plant, &mut gateway, true), (vec![Count::Exact(2)], None));
}

#[test]
fn other_gateway_accounts_for_an_incomplete_bye() {
    let mut plant = Plant::new();
    let (mut first, mut second) = (carrier(1), Exporter::new(self::plant(), epoch(2)));
    plant.pass(5, &mut [&mut first, &mut second]);
    assert_eq!(plant.publish(0, &mut [&mut first, &mut second]).len(), 1, "it is lost");
    assert_eq!(leave(&mut plant, &mut first, false), (vec![], None));
    assert_eq!(plant.pass(5, &mut [&mut second]), [Count::Exact(1)]);
    assert_eq!(plant.end(&second), tail(&second));
}

#[test]
fn dead_gateway_without_its_heir_is_a_tail() {
    let mut plant = Plant::new();
    let (mut first, mut second) = (carrier(1), Exporter::new(self::plant(), epoch(2)));
    plant.pass(5, &mut [&mut first, &mut second]);
    assert_eq!(plant.publish(0, &mut [&mut first, &mut second]).len(), 1, "it is lost");
    assert_eq!(plant.end(&first), None);
    // It leaves before it has named what the dead one did not, and says nothing of the shares of others.
    assert_eq!(plant.ledger.on_bye(&second.bye()), tail(&second));
}

#[test]
fn gateway_that_joins_under_traffic_becomes_complete() {
    let mut plant = Plant::new();
    let (mut first, mut second) = (carrier(1), Exporter::new(self::plant(), epoch(2)));
    plant.pass(5, &mut [&mut first]);
    assert_eq!(plant.send(0, &mut [&mut first]), None);
    // The first gateway has heard the second one, and releases its shares.
    (0..SHARES).for_each(|share| first.release(share));
    for second_of_run in 0..8 {
        if second_of_run == 1 {
            for export in (0..SHARES).flat_map(|share| second.take_over(plant.now, share)).collect::<Vec<_>>() {
                assert_eq!(plant.receive(&export), None);
            }
        }
        for topic in 0..4 {
            let exports = plant.publish(topic, &mut [&mut first, &mut second]);
            exports.iter().for_each(|export| assert_eq!(plant.receive(export), None));
        }
        assert_eq!(plant.pass(1, &mut [&mut first, &mut second]), []);
    }
    assert_eq!(plant.send(9, &mut [&mut first, &mut second]), None, "a new stream begins");
    assert_eq!(plant.end(&first), None, "the second one accounts for everything");
    assert_eq!(plant.end(&second), tail(&second));
}

#[test]
fn stream_of_a_new_gateway_is_counted_later() {
    let mut plant = Plant::new();
    let (mut first, mut second) = (carrier(1), carrier(2));
    plant.pass(5, &mut [&mut first]);
    assert_eq!(plant.publish(0, &mut [&mut first]).len(), 1, "it is lost");
    (0..SHARES).for_each(|share| first.release(share));
    assert_eq!(plant.send(0, &mut [&mut first, &mut second]), None);
    assert_eq!(plant.pass(5, &mut [&mut first, &mut second]), [Count::Exact(1)]);
}

/// Lets one gateway continue for another in a later frame, after a loss that the publisher's numbers do not prove.
fn continued() -> (Plant, Exporter, Exporter) {
    let mut plant = Plant::new();
    let (mut first, mut second) = (carrier(1), carrier(2));
    plant.pass(5, &mut [&mut first]);
    let start = delivery(seq(0, 1), Some(100), Verdict::Start(WallTime::EPOCH));
    let export = first.on_delivery(plant.now, &start).unwrap();
    assert_eq!(plant.receive(&export), None);
    first.on_delivery(plant.now, &delivery(seq(0, 2), None, Verdict::Next)).expect("it is lost");
    (0..SHARES).for_each(|share| first.release(share));
    let next = delivery(seq(1, 1), Some(102), Verdict::Next);
    assert_eq!(first.on_delivery(plant.now, &next), None);
    let export = second.on_delivery(plant.now, &next).unwrap();
    assert_eq!(plant.receive(&export), None, "the first gateway knows the number");
    (plant, first, second)
}

#[test]
fn gateway_before_closes_the_account_exactly() {
    let (mut plant, mut first, mut second) = continued();
    assert_eq!(plant.pass(5, &mut [&mut first, &mut second]), [Count::Exact(1)]);
    assert_eq!(plant.end(&first), None);
    assert_eq!(plant.pass(5, &mut [&mut second]), []);
}

#[test]
fn account_is_a_range_without_the_gateway_before() {
    let (mut plant, first, mut second) = continued();
    assert_eq!(plant.end(&first), tail(&first));
    assert_eq!(plant.pass(2, &mut [&mut second]), [Count::Between { min: 0, max: 1 }]);
}

#[test]
fn gateway_heard_before_bye_leaves_a_tail() {
    let mut plant = Plant::new();
    let (mut first, mut second, mut third) = (carrier(1), carrier(2), carrier(3));
    plant.pass(5, &mut [&mut first]);
    plant.hear(&mut second);
    assert_eq!(leave(&mut plant, &mut first, true), (vec![], None));
    assert_eq!(plant.publish(0, &mut [&mut second]).len(), 1, "it is lost");
    // The third gateway is heard at once, and has not counted the message.
    plant.pass(1, &mut [&mut third]);
    assert_eq!(plant.end(&second), tail(&second));
}

#[test]
fn gateways_after_a_bye_count_one_by_one() {
    let mut plant = Plant::new();
    let (mut first, mut second, mut third) = (carrier(1), carrier(2), carrier(3));
    plant.pass(5, &mut [&mut first]);
    assert_eq!(leave(&mut plant, &mut first, true), (vec![], None));
    plant.hear(&mut second);
    assert_eq!(plant.publish(0, &mut [&mut second]).len(), 1, "it is lost");
    plant.pass(1, &mut [&mut third]);
    assert_eq!(plant.end(&second), tail(&second));
}

#[test]
fn gateways_after_a_tail_count_one_by_one() {
    let mut plant = Plant::new();
    let (mut first, mut second, mut third) = (carrier(1), carrier(2), carrier(3));
    plant.pass(5, &mut [&mut first]);
    assert_eq!(plant.end(&first), tail(&first));
    plant.hear(&mut second);
    assert_eq!(plant.publish(0, &mut [&mut second]).len(), 1, "it is lost");
    plant.pass(1, &mut [&mut third]);
    assert_eq!(plant.end(&second), tail(&second));
}

/// Lets a gateway leave after two others were heard. The earlier one of these has counted a lost message before.
fn bye_after_two_others() -> (Plant, Exporter, Exporter) {
    let mut plant = Plant::new();
    let (mut first, mut second, mut third) = (carrier(1), carrier(2), carrier(3));
    plant.pass(5, &mut [&mut first]);
    plant.hear(&mut second);
    assert_eq!(plant.publish(0, &mut [&mut second]).len(), 1, "it is lost");
    plant.hear(&mut third);
    (0..SHARES).for_each(|share| second.release(share));
    assert_eq!(plant.send(0, &mut [&mut second, &mut third]), None);
    assert_eq!(leave(&mut plant, &mut first, true), (vec![], None));
    (plant, second, third)
}

#[test]
fn earliest_gateway_at_bye_leaves_a_tail() {
    let (mut plant, second, mut third) = bye_after_two_others();
    plant.pass(1, &mut [&mut third]);
    assert_eq!(plant.end(&second), tail(&second));
}

#[test]
fn earliest_gateway_at_a_bye_closes_accounts() {
    let (mut plant, mut second, mut third) = bye_after_two_others();
    assert_eq!(plant.pass(5, &mut [&mut second, &mut third]), [Count::Exact(1)]);
    assert_eq!(plant.end(&second), None);
}

#[test]
fn gateway_without_manifests_accounts_for_no_other() {
    let mut plant = Plant::new();
    let (mut first, mut second) = (carrier(1), carrier(2));
    // It is heard in all shares.
    (0..200).for_each(|topic| assert_eq!(plant.send(topic, &mut [&mut second]), None));
    plant.pass(5, &mut [&mut first]);
    assert_eq!(plant.publish(0, &mut [&mut first]).len(), 1, "it is lost");
    assert_eq!(plant.end(&first), tail(&first));
}
