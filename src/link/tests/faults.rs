//! Whole gateways with their LANs and a hub: random faults, and what each site has delivered and reported.

use super::super::durable::DurableSettings;
use super::super::envelope::LinkEnvelope;
use super::super::gateway::Gateway;
use super::super::gateway_settings::GatewaySettings;
use super::super::hub_sender::HubSender;
use super::super::site_loss::SiteReport;
use super::super::system_messages::{INTEREST_PREFIX, LOSS_SUBJECT};
use super::{at, epoch};
use crate::message::{Delivery, Epoch, Message, Publisher, Verdict};
use crate::rng::Rng;
use crate::seqno::{Frame, Seq};
use crate::subject::pattern_set::PatternSet;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::subject::{Pattern, Subject};
use crate::time::{Instant, WallTime, nanos};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Number of runs.
const SEEDS: u64 = 60;
/// Number of subjects.
const TOPICS: u64 = 6;
const STEP: Duration = Duration::from_millis(10);

/// A publisher and a subject.
type Stream = (Epoch, Subject);

/// A gateway and its connection to the hub.
struct Host {
    site: usize,
    gateway: Gateway,
    /// Messages that the hub has sent to it.
    arriving: VecDeque<Message>,
    /// Deliveries of the LAN that wait while it is paused.
    waiting: VecDeque<Delivery>,
    is_linked: bool,
    /// Time at which it runs, or is connected, again.
    paused_until: Instant,
    linked_from: Instant,
    is_gone: bool,
    /// True if no fault meets it.
    is_steady: bool,
}

/// Messages and reports that the programs of a site have seen.
#[derive(Default)]
struct Seen {
    delivered: BTreeMap<Stream, Vec<Seq>>,
    reported: BTreeMap<Stream, (u64, u64)>,
}

struct Model {
    rng: Rng,
    now: Instant,
    hosts: Vec<Host>,
    seen: Vec<Seen>,
    /// The publisher of each site, and its last number of each subject.
    last: Vec<BTreeMap<u64, (Seq, u32)>>,
    sent: BTreeMap<Stream, Vec<Seq>>,
    loss_chance: f64,
    fault_chance: f64,
    is_steady: bool,
}

/// Sums over all runs, so that the test knows that its faults took place.
#[derive(Debug, Default)]
struct Totals {
    delivered: u64,
    reported: u64,
    exact: u64,
    ranges: u64,
    tails: u64,
}

impl Model {
    fn draw(seed: u64) -> Model {
        let mut rng = Rng::new(seed);
        let sites = rng.between(2, 3) as usize;
        let mut model = Model {
            now: at(0),
            hosts: Vec::new(),
            seen: (0..sites).map(|_| Seen::default()).collect(),
            last: vec![BTreeMap::new(); sites],
            sent: BTreeMap::new(),
            loss_chance: [0.0, 0.02][rng.below(2) as usize],
            fault_chance: [0.0, 0.002, 0.006][rng.below(3) as usize],
            is_steady: rng.chance(0.5),
            rng,
        };
        for site in 0..sites {
            let is_steady = model.is_steady;
            model.start(site, is_steady);
            (0..model.rng.below(3)).for_each(|_| model.start(site, false));
        }
        model
    }

    fn start(&mut self, site: usize, is_steady: bool) {
        let all = || [">".parse::<Pattern>().unwrap()].into_iter().collect();
        let settings = GatewaySettings {
            site: format!("site{site}").parse().unwrap(),
            exports: all(),
            imports: all(),
            services: PatternSet::default(),
            inbox: "_INBOX.0000000000000001.link.".to_owned(),
            durable: DurableSettings::default(),
            message_bytes_max: 1 << 20,
            permitted: PermittedSubjects::all(),
        };
        let gateway = Gateway::new(settings, epoch(self.rng.next_u64() | 1), self.now);
        self.hosts.push(Host {
            site,
            gateway,
            arriving: VecDeque::new(),
            waiting: VecDeque::new(),
            is_linked: false,
            paused_until: self.now,
            linked_from: self.now,
            is_gone: false,
            is_steady,
        });
    }

    /// The publisher of a site sends a message, which every program of its LAN receives.
    fn publish(&mut self, site: usize) {
        let topic = self.rng.below(TOPICS);
        let subject: Subject = format!("plant.{topic}").parse().unwrap();
        let publisher = epoch(1_000 + site as u64);
        let frame = Frame::at(WallTime::from_nanos(100_000_000_000 + nanos(self.now.since(Instant::ZERO))));
        let (seq, offset, verdict) = match self.last[site].get(&topic) {
            None => (frame.first(), self.rng.next_u32(), Verdict::Start(WallTime::EPOCH)),
            Some((seq, offset)) => {
                let is_first = seq.frame() < frame && self.rng.chance(0.5);
                let next = if is_first { frame.first() } else { seq.forward(1).unwrap() };
                (next, offset.wrapping_add(1), Verdict::Next)
            }
        };
        self.last[site].insert(topic, (seq, offset));
        self.sent.entry((publisher, subject.clone())).or_default().push(seq);
        let publisher = Publisher { name: None, epoch: publisher, uid: 1 };
        let delivery = Delivery {
            offset: Some(offset).filter(|_| seq.count() == 1),
            ..Delivery::new(Message::new(subject, "x"), publisher, Some(seq), verdict)
        };
        self.deliver_on_lan(site, None, &delivery);
    }

    /// Delivers a message to the gateways of a site, apart from the one that published it. It waits for one that is
    /// paused.
    fn deliver_on_lan(&mut self, site: usize, but: Option<usize>, delivery: &Delivery) {
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            if host.site != site || Some(index) == but || host.is_gone {
                continue;
            }
            match host.paused_until <= self.now {
                true => host.gateway.on_delivery(self.now, delivery),
                false => host.waiting.push_back(delivery.clone()),
            }
        }
    }

    /// The programs of a site receive a message of one of its gateways.
    fn on_gateway_message(&mut self, from: usize, message: Message) {
        let site = self.hosts[from].site;
        let seen = &mut self.seen[site];
        if message.subject.as_bytes() == LOSS_SUBJECT.as_bytes() {
            // A tail has no stream; the gateways count them.
            if let SiteReport::Loss(loss) = SiteReport::from_json(&message.payload).unwrap() {
                let sum = seen.reported.entry((loss.origin.publisher.epoch, loss.subject)).or_default();
                sum.0 += loss.count.min();
                sum.1 = sum.1.saturating_add(loss.count.max());
            }
        } else if let Some(envelope) = LinkEnvelope::find(&message.headers) {
            let LinkEnvelope { publisher, point, .. } = envelope.unwrap();
            let stream = (publisher.epoch, message.subject.clone());
            seen.delivered.entry(stream).or_default().push(point.position.seq.unwrap());
        }
        let publisher = Publisher { name: None, epoch: epoch(2_000 + from as u64), uid: 2 };
        self.deliver_on_lan(site, Some(from), &Delivery::new(message, publisher, None, Verdict::Unnumbered));
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            if host.is_gone || self.now < host.paused_until {
                continue;
            }
            if host.gateway.deadline(self.now) <= self.now {
                host.gateway.on_tick(self.now);
            }
            if host.is_linked != (host.linked_from <= self.now) {
                host.is_linked = !host.is_linked;
                host.gateway.on_link(self.now, host.is_linked);
            }
            for _ in 0..self.rng.below(40) {
                let Some(message) = host.arriving.pop_front() else { break };
                match message.subject.as_bytes().starts_with(b"_SEQCAST.") {
                    true => host.gateway.on_system_message(self.now, message, &HubSender::AnyClient),
                    false => host.gateway.on_hub_message(self.now, message),
                }
            }
            host.waiting.drain(..).for_each(|delivery| host.gateway.on_delivery(self.now, &delivery));
            // The LAN of a site, or its connection to the hub, is slow at times.
            let slow = self.now.since(Instant::ZERO).as_millis() / 500 % 7 == index as u128 % 7;
            let room = if slow { self.rng.below(2) as usize } else { usize::MAX };
            self.carry_out(index, room);
        }
    }

    /// Carries out at most `room` effects of each kind.
    fn carry_out(&mut self, index: usize, room: usize) {
        for _ in 0..room {
            let Some(message) = self.hosts[index].gateway.poll_lan(self.now) else { break };
            self.on_gateway_message(index, message);
        }
        for _ in 0..room {
            let gateway = &mut self.hosts[index].gateway;
            // The interest of the sites is no part of the accounts.
            let of_accounts = |message: &Message| !message.subject.as_str().starts_with(INTEREST_PREFIX);
            let Some(message) = std::iter::from_fn(|| gateway.poll_hub()).find(of_accounts) else { break };
            if !self.hosts[index].is_linked {
                continue;
            }
            for other in (0..self.hosts.len()).filter(|other| *other != index) {
                let is_lost = self.rng.chance(self.loss_chance);
                let host = &mut self.hosts[other];
                if host.is_linked && !host.is_gone && !is_lost {
                    host.arriving.push_back(message.clone());
                }
            }
        }
    }

    /// Something happens to a gateway that is not steady.
    fn disturb(&mut self) {
        let index = self.rng.below(self.hosts.len() as u64) as usize;
        let duration = Duration::from_millis(self.rng.between(50, 8_000));
        let (now, site) = (self.now, self.hosts[index].site);
        let host = &mut self.hosts[index];
        if host.is_steady || host.is_gone {
            return;
        }
        match self.rng.below(5) {
            0 => host.is_gone = true,
            1 => {
                host.gateway.on_stop(now);
                self.carry_out(index, usize::MAX);
                self.hosts[index].is_gone = true;
            }
            2 => {
                host.linked_from = now + duration;
                host.arriving.clear();
            }
            3 => host.paused_until = now + duration,
            _ => {}
        }
        if self.rng.chance(0.5) && self.hosts.iter().filter(|host| host.site == site && !host.is_gone).count() < 4 {
            self.start(site, false);
        }
    }

    /// Compares what a site has delivered and reported of a stream with what was sent.
    fn check(&self, seed: u64, site: usize, stream: &Stream, totals: &mut Totals) {
        let seen = &self.seen[site];
        let delivered = seen.delivered.get(stream).map_or(&[][..], Vec::as_slice);
        let (min, max) = seen.reported.get(stream).copied().unwrap_or_default();
        let context = format!("seed {seed}: {stream:?} at site{site}");
        assert!(delivered.windows(2).all(|pair| pair[0] < pair[1]), "{context}: repeated, or out of order");
        let home = (stream.0.bits() - 1_000) as usize;
        if home == site {
            assert_eq!((delivered, max), (&[][..], 0), "{context}: it came back");
            return;
        }
        let missing = (self.sent[stream].len() - delivered.len()) as u64;
        // A site whose last gateway has died does not know what it had reported.
        if self.is_steady {
            assert!(min <= missing && missing <= max, "{context}: {missing} missing, reported {min}..{max}");
            totals.exact += u64::from(min == max && 0 < missing);
            totals.ranges += u64::from(min < max);
        }
        totals.delivered += delivered.len() as u64;
        totals.reported += min;
    }
}

fn run(seed: u64, totals: &mut Totals) {
    let mut model = Model::draw(seed);
    let (loss_chance, fault_chance) = (model.loss_chance, model.fault_chance);
    model.loss_chance = 0.0;
    // The sites get to know each other.
    (0..800).for_each(|_| model.step());
    model.loss_chance = loss_chance;
    for _ in 0..3_000 {
        for site in 0..model.seen.len() {
            if model.rng.chance(0.3) {
                model.publish(site);
            }
        }
        if model.rng.chance(fault_chance) {
            model.disturb();
        }
        model.step();
    }
    model.loss_chance = 0.0;
    (0..1_500).for_each(|_| model.step());
    for site in 0..model.seen.len() {
        model.sent.keys().for_each(|stream| model.check(seed, site, stream, totals));
    }
    for host in model.hosts.iter().filter(|host| model.is_steady && !host.is_gone) {
        assert_eq!(host.gateway.conflict(), None, "seed {seed}: a conflict at site{}", host.site);
        totals.tails += host.gateway.sites().values().map(|counts| counts.tails).sum::<u64>();
    }
}

#[test]
fn gateway_whose_lan_takes_nothing_releases_its_shares() {
    let mut model = Model::draw(1);
    model.hosts.truncate(1);
    let gateway = &mut model.hosts[0].gateway;
    gateway.on_link(at(0), true);
    let mut run = |from: u64, to: u64, takes: bool| {
        for now in (from..to).step_by(10).map(at) {
            gateway.on_tick(now);
            while let Some(message) = gateway.poll_lan(now) {
                if !takes {
                    gateway.put_back(message);
                    break;
                }
            }
        }
        gateway.carried_shares()
    };
    assert_eq!(run(0, 4_000, true), 16);
    assert_eq!(run(4_000, 5_000, false), 16);
    assert_eq!(run(5_000, 6_000, false), 0);
    assert_eq!(run(6_000, 10_000, true), 16);
}

#[test]
fn gateways_account_for_every_message_once() {
    let mut totals = Totals::default();
    for seed in 0..SEEDS {
        run(seed, &mut totals);
    }
    assert!(10_000 < totals.delivered && 100 < totals.reported, "{totals:?}");
    assert!(100 < totals.exact && totals.ranges < totals.exact / 4, "{totals:?}");
    // A gateway lives at each of these sites.
    assert_eq!(totals.tails, 0, "{totals:?}");
}
