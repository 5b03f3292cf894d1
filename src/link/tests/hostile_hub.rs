//! A hub that repeats and reorders what gateways send, one that is away for a day, and sites whose clocks are apart.

use super::super::bye::GatewayBye;
use super::super::durable::{DurableGateway, DurableSettings, ReadingStart, StoreOutcome, StoredArrival};
use super::super::export::{Export, Exporter};
use super::super::gateway::Gateway;
use super::super::gateway_settings::GatewaySettings;
use super::super::import::{ImportLedger, Imported};
use super::super::manifest::LinkManifest;
use super::super::site_loss::SiteLoss;
use super::exports::carrier;
use super::{at, epoch};
use crate::message::{Delivery, Message, Publisher, Verdict};
use crate::rng::Rng;
use crate::seqno::Frame;
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::{Instant, WallTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of subjects.
const TOPICS: u64 = 3;
const DAY: Duration = Duration::from_secs(86_400);

fn patterns(text: &str) -> PatternSet {
    text.parse::<Pattern>().into_iter().collect()
}

/// Returns message `number`, from 1, of a publisher whose clock shows this time. Its payload is its number on its topic.
fn delivery(prefix: &str, number: u64, clock: WallTime) -> Delivery {
    let (topic, count) = (number % TOPICS, number.div_ceil(TOPICS));
    let verdict = if count == 1 { Verdict::Start(WallTime::EPOCH) } else { Verdict::Next };
    let publisher = Publisher { name: None, epoch: epoch(77), uid: 1 };
    let message = Message::new(format!("{prefix}.{topic}").parse().unwrap(), count.to_string());
    let seq = Frame::at(clock).first().forward(count - 1).unwrap();
    Delivery::new(message, publisher, Some(seq), verdict)
}

fn number_of(message: &Message) -> u64 {
    String::from_utf8_lossy(&message.payload).parse().unwrap()
}

/// Something that a gateway sends to other sites.
#[derive(Clone)]
enum GatewayOutput {
    Message(Box<Export>),
    Round(Vec<LinkManifest>),
    Bye(Box<GatewayBye>),
}

/// The messages that an importing site has delivered, and its losses, by subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SiteAccount {
    delivered: BTreeMap<String, Vec<u64>>,
    lost: BTreeMap<String, (u64, u64)>,
}

impl SiteAccount {
    fn add_loss(&mut self, loss: &SiteLoss) {
        let (min, max) = self.lost.entry(loss.subject.to_string()).or_default();
        (*min, *max) = (*min + loss.count.min(), max.saturating_add(loss.count.max()));
    }

    fn add_message(&mut self, message: &Message) {
        self.delivered.entry(message.subject.to_string()).or_default().push(number_of(message));
    }

    /// Checks that the first `sent` messages of each topic were delivered once and in order, or reported with their exact
    /// number. Returns the number of reported ones.
    fn assert_exact(&self, prefix: &str, sent: u64, case: &str) -> u64 {
        let topics = (0..TOPICS).map(|topic| {
            let subject = format!("{prefix}.{topic}");
            let delivered = self.delivered.get(&subject).map_or(&[][..], Vec::as_slice);
            assert!(delivered.is_sorted_by(|one, next| one < next), "{case}, {subject}: {delivered:?}");
            let (min, max) = self.lost.get(&subject).copied().unwrap_or_default();
            let lost = sent - delivered.len() as u64;
            assert_eq!((min, max), (lost, lost), "{case}, {subject}: {delivered:?}");
            lost
        });
        topics.sum()
    }
}

/// An importing site.
struct Importer {
    ledger: ImportLedger,
    account: SiteAccount,
}

impl Importer {
    fn new() -> Importer {
        Importer { ledger: ImportLedger::new("hq".parse().unwrap()), account: SiteAccount::default() }
    }

    fn receive(&mut self, item: &GatewayOutput) {
        match item {
            GatewayOutput::Message(export) => {
                if let Imported::Deliver(loss) = self.ledger.on_message(&export.envelope, &export.message.subject) {
                    loss.iter().for_each(|loss| self.account.add_loss(loss));
                    self.account.add_message(&export.message);
                }
            }
            GatewayOutput::Round(round) => {
                for manifest in round {
                    self.ledger.on_heard(&manifest.site, manifest.gateway);
                    let imported = self.ledger.on_manifest(manifest, |_| true);
                    imported.losses.iter().for_each(|loss| self.account.add_loss(loss));
                }
            }
            GatewayOutput::Bye(bye) => drop(self.ledger.on_bye(bye)),
        }
    }
}

/// A gateway whose messages and manifests are recorded.
struct Recorder {
    gateway: Exporter,
    now: Instant,
    items: Vec<GatewayOutput>,
}

impl Recorder {
    fn new() -> Recorder {
        let mut recorder = Recorder { gateway: carrier(1), now: at(0), items: Vec::new() };
        recorder.pass(Duration::from_secs(4));
        recorder
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + Duration::from_millis(250);
            while let Some(round) = self.gateway.poll_round(self.now) {
                self.items.push(GatewayOutput::Round(round));
            }
        }
    }

    /// Publishes messages up to this number, at a rate of 40 a second.
    fn publish(&mut self, numbers: std::ops::RangeInclusive<u64>, clock: WallTime) {
        for number in numbers {
            let export = self.gateway.on_delivery(self.now, &delivery("plant", number, clock));
            self.items.push(GatewayOutput::Message(Box::new(export.expect("it carries the share"))));
            if number.is_multiple_of(10) {
                self.pass(Duration::from_millis(250));
            }
        }
    }

    /// Lets the gateway leave. Returns everything that it has sent since the last call.
    fn end(mut self) -> Vec<GatewayOutput> {
        self.pass(Duration::from_secs(2));
        self.gateway.on_stop();
        while let Some(round) = self.gateway.poll_round(self.now) {
            self.items.push(GatewayOutput::Round(round));
        }
        self.items.push(GatewayOutput::Bye(Box::new(self.gateway.bye())));
        self.items
    }
}

/// Returns a clock that shows this number of seconds since 1970.
fn clock(seconds: u64) -> WallTime {
    WallTime::from_nanos(seconds * 1_000_000_000)
}

/// Returns the items in an order in which each is at most `distance` places from its own.
fn reordered<T>(rng: &mut Rng, items: Vec<T>, distance: u64) -> Vec<T> {
    let mut keyed: Vec<(u64, T)> =
        items.into_iter().enumerate().map(|(at, item)| (at as u64 + rng.below(distance + 1), item)).collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, item)| item).collect()
}

#[test]
fn replays_of_a_hub_deliver_nothing_again() {
    let mut recorder = Recorder::new();
    recorder.publish(1..=300, clock(100_000));
    let items = recorder.end();
    let is_lost = |at: &usize| matches!(items[*at], GatewayOutput::Message(_)) && at.is_multiple_of(7);
    let mut importer = Importer::new();
    (0..items.len()).filter(|at| !is_lost(at)).for_each(|at| importer.receive(&items[at]));
    let account = importer.account.clone();
    assert!(30 < account.assert_exact("plant", 100, "first pass"));
    let mut rng = Rng::new(1);
    let mut replay = |items: &mut dyn Iterator<Item = &GatewayOutput>, case: &str| {
        items.for_each(|item| importer.receive(item));
        assert_eq!(importer.account, account, "{case}");
    };
    replay(&mut items.iter(), "in order, with the messages that were lost at first");
    replay(&mut items.iter().rev(), "in reverse order");
    for run in 0..5 {
        let shuffled = reordered(&mut rng, items.iter().collect(), 10_000);
        replay(&mut shuffled.into_iter(), &format!("shuffled {run}"));
    }
}

#[test]
fn reordered_hub_is_accounted_for_exactly() {
    let mut reported = 0;
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut recorder = Recorder::new();
        let first = recorder.items.len();
        recorder.publish(1..=TOPICS, clock(100_000));
        let settled = recorder.items.len();
        recorder.publish(TOPICS + 1..=300, clock(100_000));
        let disturbed = recorder.items.len();
        let mut items = recorder.end();
        let last = items.split_off(disturbed);
        let middle = reordered(&mut rng, items.split_off(settled), 1 + seed % 20);
        let mut importer = Importer::new();
        assert!(first < settled);
        items.iter().chain(&middle).chain(&last).for_each(|item| importer.receive(item));
        reported += importer.account.assert_exact("plant", 100, &format!("seed {seed}"));
    }
    assert!(0 < reported, "messages that come behind later ones count as lost");
}

#[test]
fn clocks_apart_change_no_account() {
    // In 1970, hours apart, and in 2170.
    for seconds in [1, 1_700_000_000, 1_700_040_000, 6_311_433_600] {
        let mut recorder = Recorder::new();
        recorder.publish(1..=60, clock(seconds));
        let items = recorder.end();
        let mut importer = Importer::new();
        let mut number = 0;
        for item in &items {
            number += u64::from(matches!(item, GatewayOutput::Message(_)));
            if !matches!(item, GatewayOutput::Message(_)) || number % 10 != 5 {
                importer.receive(item);
            }
        }
        assert_eq!(importer.account.assert_exact("plant", 20, &format!("{seconds} s")), 6);
    }
}

/// Returns the messages with these numbers as a gateway sends them to the stream of the cluster.
fn stored_messages(numbers: std::ops::RangeInclusive<u64>) -> Vec<Message> {
    let mut exporter = durable_gateway("plant1", "orders.>", "none", epoch(1));
    numbers.clone().for_each(|number| {
        let is_durable = exporter.on_delivery(at(0), &delivery("orders", number, clock(100_000)));
        assert!(is_durable);
    });
    let mut messages = Vec::new();
    while let Some((ticket, message)) = exporter.poll_store(at(0)) {
        exporter.on_outcome(at(0), ticket, StoreOutcome::Stored { sequence: 1 });
        messages.push(message);
    }
    assert_eq!(messages.len() as u64, numbers.end() - numbers.start() + 1);
    // The shares take turns; the publisher sent them in the order of their numbers.
    messages.sort_by_key(number_of);
    messages
}

fn durable_gateway(site: &str, exports: &str, imports: &str, own: crate::message::Epoch) -> DurableGateway {
    let exports = if exports == "none" { PatternSet::default() } else { patterns(exports) };
    let imports = if imports == "none" { PatternSet::default() } else { patterns(imports) };
    let settings =
        DurableSettings { exports, stream: "SEQCAST".into(), spool_bytes_max: 64 << 20, bytes_per_second: 1 << 40 };
    let mut gateway = DurableGateway::new(&settings, &site.parse().unwrap(), &imports, own, at(0));
    gateway.set_carried(at(0), |_| true);
    gateway
}

/// Returns the arrival of the message at this place of a stream.
fn arrival(place: usize) -> StoredArrival {
    let sequence = place as u64 + 1;
    StoredArrival { sequence, at: WallTime::from_nanos(sequence) }
}

#[test]
fn replayed_and_reordered_stream_is_delivered_once() {
    let messages = stored_messages(1..=300);
    let mut reported = 0;
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut importer = durable_gateway("hq", "none", "orders.>", epoch(2));
        let mut now = at(10_000);
        assert!(importer.reads(now));
        importer.start_reading(ReadingStart::default());
        // The stream keeps some messages twice, and in another order than they were sent; the first and the last ones of
        // each topic are where they belong.
        let (head, rest) = messages.split_at(TOPICS as usize);
        let (middle, tail) = rest.split_at(rest.len() - TOPICS as usize);
        let twice = middle.iter().flat_map(|message| vec![message; 1 + usize::from(rng.chance(0.1))]);
        let twice: Vec<&Message> = twice.collect();
        let middle = reordered(&mut rng, twice, 30);
        let kept: Vec<&Message> = head.iter().chain(middle).chain(tail).collect();
        // The hub delivers places of the stream again, and some behind later ones.
        let mut places: Vec<usize> = (0..kept.len()).collect();
        for at in TOPICS as usize..places.len() - TOPICS as usize - 1 {
            if rng.chance(0.02) {
                places.swap(at, at + 1);
            }
        }
        let mut account = SiteAccount::default();
        let mut drain = |importer: &mut DurableGateway, now: Instant| {
            while let Some(delivery) = importer.poll_lan(now) {
                delivery.loss.iter().for_each(|loss| account.add_loss(loss));
                account.add_message(&delivery.message);
            }
        };
        for (read, place) in places.iter().enumerate() {
            importer.on_stored(now, arrival(*place), Some(kept[*place].clone()));
            if rng.chance(0.2) {
                let earlier = places[rng.below(read as u64 + 1) as usize];
                importer.on_stored(now, arrival(earlier), Some(kept[earlier].clone()));
            }
            now = now + Duration::from_millis(10);
            importer.on_tick(now);
            drain(&mut importer, now);
        }
        // Messages that never came are reported in time, one gap of a stream after the other.
        now = now + Duration::from_secs(20);
        for _ in 0..100 {
            importer.on_tick(now);
            drain(&mut importer, now);
        }
        reported += account.assert_exact("orders", 100, &format!("seed {seed}"));
        assert!(importer.has_room() && importer.position() == Some(arrival(kept.len() - 1).into()), "seed {seed}");
    }
    assert!(0 < reported, "places that come behind later ones count as lost");
}

/// Lets a gateway work at this time, without a hub if it is away. Returns the live messages that it sends to the hub.
fn work(gateway: &mut Gateway, now: Instant) -> usize {
    gateway.on_tick(now);
    while gateway.poll_lan(now).is_some() {}
    let sent = std::iter::from_fn(|| gateway.poll_hub());
    sent.filter(|message| message.subject.as_bytes().starts_with(b"plant.")).count()
}

#[test]
fn hub_away_for_a_day_takes_bounded_memory() {
    let settings = GatewaySettings {
        site: "plant1".parse().unwrap(),
        exports: patterns("plant.>"),
        imports: PatternSet::default(),
        services: PatternSet::default(),
        inbox: "_INBOX.0000000000000001.link.".to_owned(),
        durable: DurableSettings {
            exports: patterns("orders.>"),
            stream: "SEQCAST".into(),
            spool_bytes_max: 1 << 20,
            bytes_per_second: 1 << 20,
        },
        message_bytes_max: 1 << 20,
        permitted: PermittedSubjects::all(),
    };
    let spool_bytes_max = settings.durable.spool_bytes_max;
    let mut gateway = Gateway::new(settings, epoch(1), at(0));
    gateway.on_link(at(0), true);
    let mut now = at(0);
    let step = Duration::from_millis(500);
    let pass = |gateway: &mut Gateway, now: &mut Instant, time: Duration| {
        let end = *now + time;
        let mut sent = 0;
        while *now < end {
            *now = *now + step;
            sent += work(gateway, *now);
        }
        sent
    };
    pass(&mut gateway, &mut now, Duration::from_secs(6));
    assert_eq!(gateway.carried_shares(), 16);
    gateway.on_link(now, false);
    let published = DAY.as_secs() / 10;
    for number in 1..=published {
        for prefix in ["plant", "orders"] {
            gateway.on_delivery(now, &delivery(prefix, number, clock(100_000)));
        }
        assert_eq!(pass(&mut gateway, &mut now, Duration::from_secs(10)), 0, "nothing waits for the hub");
        assert!(gateway.durable().spool_size().bytes <= spool_bytes_max);
    }
    let (waiting, unstored) = (gateway.durable().spool_size().messages as u64, gateway.durable().counts().unstored);
    assert!(1_000 < waiting && waiting + unstored == published, "{waiting} wait, {unstored} had no room");
    gateway.on_link(now, true);
    let late = pass(&mut gateway, &mut now, Duration::from_secs(6));
    assert!(late <= 2, "live messages are retained for 5 s, and {late} were sent");
    assert_eq!(gateway.carried_shares(), 16);
    while let Some((ticket, _)) = gateway.durable_mut().poll_store(now) {
        gateway.durable_mut().on_outcome(now, ticket, StoreOutcome::Stored { sequence: 1 });
    }
    assert_eq!((gateway.durable().counts().stored, gateway.durable().spool_size().bytes), (waiting, 0));
}
