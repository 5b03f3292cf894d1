//! Random topologies of sites, gateways and hubs: every message arrives once or is reported, and none returns.

use super::super::bye::GatewayBye;
use super::super::envelope::LinkEnvelope;
use super::super::export::{Export, Exporter};
use super::super::import::{ImportLedger, Imported};
use super::super::manifest::{LinkManifest, ManifestBatch};
use super::super::shares::{Election, SHARES};
use super::super::site_loss::SiteTail;
use super::super::site_name::SiteName;
use super::{at, epoch};
use crate::message::{Count, Delivery, Epoch, Message, Publisher, Verdict};
use crate::rng::Rng;
use crate::seqno::{Frame, Seq};
use crate::subject::pattern_set::PatternSet;
use crate::subject::{Pattern, Subject};
use crate::time::{Instant, WallTime, nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Number of runs.
const SEEDS: u64 = 300;
/// Number of subjects.
const TOPICS: usize = 4;
const PATTERNS: [&str; 6] = ["plant.>", "plant.*", "plant.0", "plant.1", "plant.2", "plant.3"];

/// A publisher and a subject.
type Stream = (Epoch, Subject);

/// A publisher in a site, with its last number of each subject.
struct ModelPublisher {
    site: usize,
    epoch: Epoch,
    last: BTreeMap<usize, (Seq, u32)>,
}

/// A gateway, and the queues of each hub to each site.
struct ModelGateway {
    site: usize,
    election: Election,
    exporter: Exporter,
    /// Messages of each stream that the LAN has lost before this gateway since the last delivery.
    skipped: BTreeMap<Stream, u64>,
    /// The last delivery of each stream.
    delivered: BTreeMap<Stream, Seq>,
    /// Streams of which the gateway's own queue has dropped messages since then.
    dropped: BTreeSet<Stream>,
    died_at: Option<Instant>,
    /// Time until which the hubs pass nothing of it on.
    silent_until: Instant,
    has_left: bool,
    queues: BTreeMap<(usize, usize), VecDeque<Crossing>>,
}

/// A message or a manifest on its way through a hub.
#[derive(Clone)]
enum Crossing {
    Message(Export),
    Manifest(LinkManifest),
    Bye(GatewayBye),
}

/// A site: its ledger, and the messages that it delivered and reported of each stream.
struct ModelSite {
    name: SiteName,
    /// Time by which the clock of the site is ahead. The clocks of two sites may be years apart.
    clock_ahead: Duration,
    hubs: BTreeSet<usize>,
    exports: PatternSet,
    imports: PatternSet,
    ledger: ImportLedger,
    delivered: BTreeMap<Stream, Vec<Seq>>,
    reported: BTreeMap<Stream, (u64, u64)>,
    tails: BTreeSet<SiteName>,
}

/// A run of the model.
struct Model {
    rng: Rng,
    now: Instant,
    sites: Vec<ModelSite>,
    gateways: Vec<ModelGateway>,
    publishers: Vec<ModelPublisher>,
    sent: BTreeMap<Stream, Vec<Seq>>,
    /// Chances of a hub to lose or to repeat something, and of a LAN to lose a message before a gateway.
    drop_chance: f64,
    repeat_chance: f64,
    skip_chance: f64,
    /// Chance of a gateway's own queue to drop a message.
    queue_chance: f64,
    kill_chance: f64,
    /// Chances of a gateway to leave, of another one to start, and of the hubs to pass nothing of it on for 6 s.
    leave_chance: f64,
    start_chance: f64,
    silence_chance: f64,
    /// Sites of which a gateway has died, was silent, or has left without its last rounds.
    bereaved: BTreeSet<usize>,
    /// Streams of which a queue has dropped messages at the end of a frame: no number proves how many.
    unproven: BTreeSet<Stream>,
}

impl Model {
    fn draw(seed: u64) -> Model {
        let mut rng = Rng::new(seed);
        let hubs = rng.between(1, 2) as usize;
        let sites: Vec<ModelSite> = (0..rng.between(2, 5)).map(|site| ModelSite::draw(&mut rng, site, hubs)).collect();
        let publishers = (0..rng.between(1, 6)).map(|_| ModelPublisher {
            site: rng.below(sites.len() as u64) as usize,
            epoch: epoch(rng.next_u64() | 1),
            last: BTreeMap::new(),
        });
        let mut model = Model {
            publishers: publishers.collect(),
            gateways: Vec::new(),
            sites,
            now: at(0),
            sent: BTreeMap::new(),
            drop_chance: [0.0, 0.05, 0.3][rng.below(3) as usize],
            repeat_chance: [0.0, 0.1][rng.below(2) as usize],
            skip_chance: [0.0, 0.05][rng.below(2) as usize],
            queue_chance: [0.0, 0.0, 0.03][rng.below(3) as usize],
            kill_chance: [0.0, 0.0, 0.01, 0.03][rng.below(4) as usize],
            leave_chance: [0.0, 0.02][rng.below(2) as usize],
            start_chance: [0.0, 0.01][rng.below(2) as usize],
            silence_chance: [0.0, 0.0, 0.0, 0.01][rng.below(4) as usize],
            bereaved: BTreeSet::new(),
            unproven: BTreeSet::new(),
            rng,
        };
        for site in 0..model.sites.len() {
            (0..model.rng.between(1, 3)).for_each(|_| model.start_gateway(site));
        }
        model
    }

    fn start_gateway(&mut self, site: usize) {
        let epoch = epoch(self.rng.next_u64() | 1);
        self.gateways.push(ModelGateway {
            site,
            election: Election::new(epoch),
            exporter: Exporter::new(self.sites[site].name.clone(), epoch),
            skipped: BTreeMap::new(),
            delivered: BTreeMap::new(),
            dropped: BTreeSet::new(),
            died_at: None,
            silent_until: Instant::ZERO,
            has_left: false,
            queues: BTreeMap::new(),
        });
    }

    fn elect(&mut self) {
        let now = self.now;
        let living: Vec<(usize, Epoch)> = self.gateways.iter().filter_map(ModelGateway::living).collect();
        for own in 0..self.gateways.len() {
            let gateway = &mut self.gateways[own];
            let Some((site, epoch)) = gateway.living() else { continue };
            gateway.election.set_linked(now, true);
            for (_, other) in living.iter().filter(|(other_site, other)| *other_site == site && *other != epoch) {
                gateway.election.on_announcement(now, *other, true);
            }
            for share in 0..SHARES {
                let gateway = &mut self.gateways[own];
                match (gateway.election.carries(share), gateway.exporter.carries(share)) {
                    (true, false) => {
                        let exports = gateway.exporter.take_over(now, share);
                        exports.into_iter().for_each(|export| self.cross(own, Crossing::Message(export)));
                    }
                    (false, true) => gateway.exporter.release(share),
                    _ => {}
                }
            }
        }
    }

    /// Puts something into the queues of the gateway's hubs to all sites, its own among them.
    fn cross(&mut self, gateway: usize, crossing: Crossing) {
        if self.now < self.gateways[gateway].silent_until {
            return;
        }
        let hubs = self.sites[self.gateways[gateway].site].hubs.clone();
        for (site, hub) in (0..self.sites.len()).flat_map(|site| hubs.iter().map(move |hub| (site, *hub))) {
            if !self.sites[site].hubs.contains(&hub) || self.rng.chance(self.drop_chance) {
                continue;
            }
            let queue = self.gateways[gateway].queues.entry((hub, site)).or_default();
            queue.push_back(crossing.clone());
            if self.rng.chance(self.repeat_chance) {
                // A hub that replays sends the same again, at once or later.
                queue.push_back(queue[self.rng.below(queue.len() as u64) as usize].clone());
            }
        }
    }

    fn publish(&mut self, is_skippable: bool) {
        let publisher = self.rng.below(self.publishers.len() as u64) as usize;
        let topic = self.rng.below(TOPICS as u64) as usize;
        self.publish_on(publisher, topic, is_skippable);
    }

    fn publish_on(&mut self, publisher: usize, topic: usize, is_skippable: bool) {
        let ModelPublisher { site, epoch, last } = &mut self.publishers[publisher];
        let (site, epoch) = (*site, *epoch);
        let subject: Subject = format!("plant.{topic}").parse().unwrap();
        let stream = (epoch, subject.clone());
        let is_whole =
            |gateway: &ModelGateway| !gateway.skipped.contains_key(&stream) && !gateway.dropped.contains(&stream);
        let is_whole = self.gateways.iter().all(is_whole);
        let clock = self.now.since(Instant::ZERO) + self.sites[site].clock_ahead;
        let frame = Frame::at(WallTime::from_nanos(100_000_000_000 + nanos(clock)));
        let start = (frame.first(), self.rng.next_u32(), Verdict::Start(WallTime::EPOCH));
        let (seq, offset, verdict) = match last.get(&topic) {
            None => start,
            // The publisher has forgotten the subject, and numbers it anew.
            Some((seq, _)) if seq.frame() < frame && is_whole && self.rng.chance(0.2) => start,
            Some((seq, offset)) => {
                let is_first = seq.frame() < frame && self.rng.chance(0.5);
                let next = if is_first { frame.first() } else { seq.forward(1).unwrap() };
                (next, offset.wrapping_add(1), Verdict::Next)
            }
        };
        last.insert(topic, (seq, offset));
        self.sent.entry(stream.clone()).or_default().push(seq);
        if !self.sites[site].exports.matches(&subject) {
            return;
        }
        let publisher = Publisher { name: None, epoch, uid: 1 };
        let delivery = Delivery {
            // The offset travels with the first message of a frame.
            offset: Some(offset).filter(|_| seq.count() == 1),
            ..Delivery::new(Message::new(subject, "x"), publisher, Some(seq), verdict)
        };
        let may_skip = is_skippable && verdict == Verdict::Next;
        for at in 0..self.gateways.len() {
            let is_skipped = may_skip && self.rng.chance(self.skip_chance);
            let is_dropped = may_skip && self.rng.chance(self.queue_chance);
            self.deliver_on_lan(at, site, &delivery, is_skipped, is_dropped);
        }
    }

    /// Delivers a message to a gateway of the site, or loses it on the LAN or in the queue of the gateway.
    fn deliver_on_lan(&mut self, at: usize, site: usize, delivery: &Delivery, is_lost: bool, is_dropped: bool) {
        let gateway = &mut self.gateways[at];
        if gateway.living().is_none_or(|(own, _)| own != site) {
            return;
        }
        let stream = (delivery.publisher.epoch, delivery.message.subject.clone());
        if is_lost {
            *gateway.skipped.entry(stream).or_default() += 1;
            return;
        }
        let mut delivery = delivery.clone();
        if let Some(skipped) = gateway.skipped.remove(&stream) {
            delivery.verdict = Verdict::Skip(Count::Exact(skipped));
        }
        if is_dropped && gateway.delivered.contains_key(&stream) {
            gateway.dropped.insert(stream);
            return;
        }
        let seq = delivery.seq.unwrap();
        let last = gateway.delivered.insert(stream.clone(), seq);
        if gateway.dropped.remove(&stream) && last.map(Seq::frame) != Some(seq.frame()) {
            self.unproven.insert(stream);
        }
        if let Some(export) = gateway.exporter.on_delivery(self.now, &delivery) {
            self.cross(at, Crossing::Message(export));
        }
    }

    /// Receives the next message or manifest of a gateway's hub at a site.
    fn receive(&mut self, gateway: usize, hub: usize, site: usize) {
        let queue = self.gateways[gateway].queues.get_mut(&(hub, site));
        let Some(crossing) = queue.and_then(VecDeque::pop_front) else { return };
        let ModelSite { name, imports, ledger, delivered, reported, tails, .. } = &mut self.sites[site];
        match crossing {
            Crossing::Message(Export { envelope, message }) => {
                let headers = envelope.add_to(&message.headers).unwrap();
                assert_eq!(LinkEnvelope::find(&headers), Some(Ok(envelope.clone())));
                if envelope.site == *name {
                    for other in self.gateways.iter_mut().filter(|other| other.site == site) {
                        other.exporter.on_returned(&envelope, &message.subject);
                    }
                }
                if !imports.matches(&message.subject) {
                    return;
                }
                let Imported::Deliver(loss) = ledger.on_message(&envelope, &message.subject) else { return };
                let key = (envelope.publisher.epoch, message.subject.clone());
                if let Some(loss) = loss {
                    add(reported.entry(key.clone()).or_default(), loss.count);
                }
                delivered.entry(key).or_default().push(envelope.point.position.seq.unwrap());
                // The site's LAN delivers the import to its gateways, which must not export it.
                let publisher = Publisher { name: None, epoch: epoch(u64::MAX), uid: 0 };
                let import = Delivery::new(Message { headers, ..message }, publisher, None, Verdict::Unnumbered);
                for gateway in self.gateways.iter_mut().filter(|gateway| gateway.site == site) {
                    assert_eq!(gateway.exporter.on_delivery(self.now, &import), None, "an import was exported");
                }
            }
            Crossing::Bye(bye) => {
                let tail = ledger.on_bye(&GatewayBye::from_json(&bye.to_json()).expect("it is written by a gateway"));
                tails.extend(tail.map(|tail| tail.site));
            }
            Crossing::Manifest(manifest) => {
                ledger.on_heard(&manifest.site, manifest.gateway);
                let imported = ledger.on_manifest(&manifest, |subject| imports.matches(subject));
                for loss in imported.losses {
                    add(reported.entry((loss.origin.publisher.epoch, loss.subject)).or_default(), loss.count);
                }
                if let Some(request) = imported.request {
                    self.gateways[gateway].exporter.on_request(request.share, request.after);
                }
            }
        }
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(self.rng.below(120));
        self.elect();
        for gateway in 0..self.gateways.len() {
            if self.gateways[gateway].died_at.is_none() {
                self.send_rounds(gateway);
            }
            let queues: Vec<(usize, usize)> = self.gateways[gateway].queues.keys().copied().collect();
            for (hub, site) in queues {
                (0..self.rng.below(24)).for_each(|_| self.receive(gateway, hub, site));
            }
        }
        self.end_dead_gateways();
    }

    /// Sites notice that a gateway has died once nothing has come from it for a while.
    fn end_dead_gateways(&mut self) {
        let now = self.now;
        let has_ended = |gateway: &&ModelGateway| {
            let is_silent = match gateway.died_at {
                Some(died) => !gateway.has_left && Duration::from_secs(3) < now.since(died),
                // It has been silent for 5 of 6 seconds.
                None => now < gateway.silent_until && gateway.silent_until.since(now) < Duration::from_secs(1),
            };
            is_silent && gateway.queues.values().all(VecDeque::is_empty)
        };
        for gateway in self.gateways.iter().filter(has_ended) {
            let home = self.sites[gateway.site].name.clone();
            for site in &mut self.sites {
                if let Some(SiteTail { site: of, .. }) = site.ledger.on_gateway_end(&home, gateway.exporter.gateway()) {
                    assert_eq!(of, home);
                    site.tails.insert(of);
                }
            }
        }
    }

    /// Kills a gateway. What it has sent still arrives. Another one may take its place.
    fn kill_one(&mut self) {
        let chosen = self.rng.below(self.gateways.len() as u64) as usize;
        if self.gateways[chosen].died_at.is_none() {
            self.gateways[chosen].died_at = Some(self.now);
            let site = self.gateways[chosen].site;
            self.bereaved.insert(site);
            let is_last = !self.gateways.iter().any(|gateway| gateway.site == site && gateway.died_at.is_none());
            if is_last || self.rng.chance(0.5) {
                self.start_gateway(site);
            }
        }
    }

    /// Returns the number of living gateways of a site.
    fn living_of(&self, site: usize) -> usize {
        self.gateways.iter().filter(|gateway| gateway.living().is_some_and(|(of, _)| of == site)).count()
    }

    /// Lets a gateway leave. Others carry its shares at once, and one starts if there are none.
    fn leave_one(&mut self) {
        let chosen = self.rng.below(self.gateways.len() as u64) as usize;
        let Some((site, epoch)) = self.gateways[chosen].living() else { return };
        if self.living_of(site) == 1 || self.rng.chance(0.3) {
            self.join(site);
        }
        let is_heard = self.now >= self.gateways[chosen].silent_until && self.rng.chance(0.7);
        let chance = self.drop_chance;
        if is_heard {
            self.drop_chance = 0.0;
        } else {
            self.bereaved.insert(site);
        }
        self.gateways[chosen].exporter.on_stop();
        self.send_rounds(chosen);
        let bye = self.gateways[chosen].exporter.bye();
        self.cross(chosen, Crossing::Bye(bye));
        self.drop_chance = chance;
        // Without its BYE, the others notice that it is silent.
        (self.gateways[chosen].died_at, self.gateways[chosen].has_left) = (Some(self.now), is_heard);
        let now = self.now;
        for other in self.gateways.iter_mut().filter(|other| other.site == site) {
            other.election.on_departure(now, epoch);
        }
    }

    /// Starts a gateway beside others. Its first rounds pass, so that other sites are owed what it counts.
    fn join(&mut self, site: usize) {
        self.start_gateway(site);
        let chance = std::mem::take(&mut self.drop_chance);
        self.send_rounds(self.gateways.len() - 1);
        self.drop_chance = chance;
    }

    /// Sends the rounds of a gateway that are due.
    fn send_rounds(&mut self, gateway: usize) {
        while let Some(round) = self.gateways[gateway].exporter.poll_round(self.now) {
            for manifest in round {
                let mut batch = ManifestBatch::default();
                batch.add(manifest);
                let batch = ManifestBatch::from_json(&batch.to_json().expect("it has a manifest"));
                for manifest in batch.expect("it is written by a gateway") {
                    self.cross(gateway, Crossing::Manifest(manifest));
                }
            }
        }
    }

    /// Lets the hubs pass nothing of a gateway on for a while.
    fn silence_one(&mut self) {
        let chosen = self.rng.below(self.gateways.len() as u64) as usize;
        if let Some((site, _)) = self.gateways[chosen].living() {
            self.bereaved.insert(site);
            self.gateways[chosen].silent_until = self.now + Duration::from_secs(6);
        }
    }

    /// Lets gateways die, leave, start and fall silent.
    fn change_gateways(&mut self) {
        if self.rng.chance(self.kill_chance) {
            self.kill_one();
        }
        if self.rng.chance(self.leave_chance) {
            self.leave_one();
        }
        if self.rng.chance(self.start_chance) {
            let site = self.rng.below(self.sites.len() as u64) as usize;
            if self.living_of(site) < 3 {
                self.join(site);
            }
        }
        if self.rng.chance(self.silence_chance) {
            self.silence_one();
        }
    }

    /// Receives everything that is in the queues of the hubs.
    fn receive_all(&mut self) {
        for gateway in 0..self.gateways.len() {
            let lengths: Vec<_> = self.gateways[gateway].queues.iter().map(|(at, queue)| (*at, queue.len())).collect();
            for ((hub, site), length) in lengths {
                (0..length).for_each(|_| self.receive(gateway, hub, site));
            }
        }
    }
}

impl ModelSite {
    fn draw(rng: &mut Rng, number: u64, hubs: usize) -> ModelSite {
        let name: SiteName = format!("site{number}").parse().unwrap();
        let mut patterns = || {
            let drawn = (0..rng.between(1, 3)).map(|_| PATTERNS[rng.below(PATTERNS.len() as u64) as usize]);
            drawn.map(|pattern| pattern.parse::<Pattern>().unwrap()).collect::<PatternSet>()
        };
        let (exports, imports) = (patterns(), patterns());
        let mut connected: BTreeSet<usize> = (0..hubs).filter(|_| rng.chance(0.7)).collect();
        connected.insert(rng.below(hubs as u64) as usize);
        ModelSite {
            clock_ahead: Duration::from_secs([0, rng.below(86_400), rng.below(1_000_000_000)][rng.below(3) as usize]),
            ledger: ImportLedger::new(name.clone()),
            name,
            hubs: connected,
            exports,
            imports,
            delivered: BTreeMap::new(),
            reported: BTreeMap::new(),
            tails: BTreeSet::new(),
        }
    }
}

impl ModelGateway {
    /// Returns the site and the epoch of a living gateway.
    fn living(&self) -> Option<(usize, Epoch)> {
        self.died_at.is_none().then(|| (self.site, self.exporter.gateway()))
    }
}

fn add(sum: &mut (u64, u64), count: Count) {
    *sum = (sum.0.saturating_add(count.min()), sum.1.saturating_add(count.max()));
}

/// Sums over all runs, so that the test knows that its faults took place.
#[derive(Default, Debug)]
struct Totals {
    delivered: u64,
    reported: u64,
    /// Streams with an exact report although a gateway died, with a range, and with a tail of unknown extent.
    exact: u64,
    ranges: u64,
    tails: u64,
    /// Streams of sites where no gateway died, and those of them with a range: one gateway has continued for another,
    /// and the publisher's numbers at the two cannot be compared.
    undisturbed: u64,
    undisturbed_ranges: u64,
}

fn run(seed: u64, totals: &mut Totals) {
    let mut model = Model::draw(seed);
    // Some rounds of manifests establish the contact between sites before the first message.
    let chances = (model.drop_chance, model.repeat_chance);
    (model.drop_chance, model.repeat_chance) = (0.0, 0.0);
    while model.now < at(6_000) {
        model.step();
        model.receive_all();
    }
    (model.drop_chance, model.repeat_chance) = chances;
    for _ in 0..model.rng.between(50, 400) {
        (0..model.rng.below(4)).for_each(|_| model.publish(true));
        model.step();
        model.change_gateways();
    }
    // The LAN reports its last losses with a later message.
    for publisher in 0..model.publishers.len() {
        let epoch = model.publishers[publisher].epoch;
        for topic in 0..TOPICS {
            let stream = (epoch, format!("plant.{topic}").parse().unwrap());
            let is_behind =
                |gateway: &ModelGateway| gateway.skipped.contains_key(&stream) || gateway.dropped.contains(&stream);
            if model.gateways.iter().any(is_behind) {
                model.publish_on(publisher, topic, false);
            }
        }
    }
    (model.drop_chance, model.repeat_chance) = (0.0, 0.0);
    for _ in 0..120 {
        model.step();
        model.now = model.now + Duration::from_millis(100);
        model.receive_all();
    }
    for site in 0..model.sites.len() {
        model.sent.keys().for_each(|stream| model.check(seed, site, stream, totals));
    }
}

impl Model {
    /// Compares what a site has delivered and reported of a stream with what was sent.
    fn check(&self, seed: u64, at: usize, stream: &Stream, totals: &mut Totals) {
        let site = &self.sites[at];
        let sent = &self.sent[stream];
        let home = self.publishers.iter().find(|other| other.epoch == stream.0).unwrap().site;
        let delivered = site.delivered.get(stream).map_or(&[][..], Vec::as_slice);
        let (min, max) = site.reported.get(stream).copied().unwrap_or_default();
        let context = format!("seed {seed}: {} of {} at {}", stream.1, self.sites[home].name, site.name);
        assert!(delivered.windows(2).all(|pair| pair[0] < pair[1]), "{context}: repeated, or out of order");
        let crosses = home != at
            && !self.sites[home].hubs.is_disjoint(&site.hubs)
            && self.sites[home].exports.matches(&stream.1)
            && site.imports.matches(&stream.1);
        if !crosses {
            assert_eq!((delivered, max), (&[][..], 0), "{context}: does not cross");
            return;
        }
        let missing = (sent.len() - delivered.len()) as u64;
        let is_open = site.tails.contains(&self.sites[home].name);
        if self.unproven.contains(stream) {
            assert!(min <= missing, "{context}: {missing} missing, reported {min} at least");
            return;
        }
        let is_contained = min <= missing && (missing <= max || is_open);
        assert!(is_contained, "{context}: {missing} missing, reported {min}..{max}, {is_open}");
        if self.bereaved.contains(&home) {
            totals.exact += u64::from(min == max && !is_open);
            totals.ranges += u64::from(min < max);
            totals.tails += u64::from(is_open);
        } else {
            assert!(!is_open, "{context}: a tail although no gateway has died");
            totals.undisturbed += 1;
            totals.undisturbed_ranges += u64::from(min < max);
        }
        totals.delivered += delivered.len() as u64;
        totals.reported += min;
    }
}

#[test]
fn sites_account_for_every_message_once() {
    let mut totals = Totals::default();
    for seed in 0..SEEDS {
        run(seed, &mut totals);
    }
    assert!(10_000 < totals.delivered && 1_000 < totals.reported, "{totals:?}");
    assert!(100 < totals.exact && 0 < totals.ranges && 100 < totals.tails, "{totals:?}");
    let disturbed = totals.exact + totals.ranges;
    assert!(10 * totals.ranges < disturbed, "{totals:?}");
    assert!(1_000 < totals.undisturbed && 50 * totals.undisturbed_ranges < totals.undisturbed, "{totals:?}");
}
