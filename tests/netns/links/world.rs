//! State that the programs, the observers and the faults share.

use super::account::{LinkDelivery, LinkVerdict, LinkViolation, LossCauses, SiteAccount, runs};
use super::clients::{CalmWindow, DeliveryCounts};
use super::site::PROGRAM_PEERS;
use super::wan::SITES;
use crate::support::bus::message;
use crate::support::command::now;
use crate::support::wait::let_time_pass;
use seqcast::bus::{Bus, Notice, RecvError};
use seqcast::time::Instant;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Subjects of the live messages of each site.
pub const LIVE_SUBJECTS: usize = 24;
/// Subjects of the durable messages of each site.
pub const DURABLE_SUBJECTS: usize = 8;
/// Live messages that a site publishes at a time, with one durable message.
const BURST: usize = 4;
/// Time between two bursts.
const BURST_INTERVAL: Duration = Duration::from_millis(20);
/// Time around a death within which a message may be in a datagram that the LAN loses.
const UNDER_WAY: Duration = Duration::from_secs(2);
/// Subject of the reports of losses between sites.
pub const LOSS_SUBJECT: &str = "_SEQCAST.LINK.LOSS";

/// Phases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Programs publish, and faults happen.
    Publishing,
    /// Programs read what is left.
    Settling,
    Over,
}

/// A time at which the stream discarded messages that a site had not read.
struct DiscardTime {
    site: usize,
    time: Range<Instant>,
}

/// Deliveries to the programs at one peer of a site.
#[derive(Default)]
struct Observer {
    account: Mutex<SiteAccount>,
    /// Messages of the client of the cluster.
    of_client: Mutex<DeliveryCounts>,
}

/// The shared state.
pub struct World {
    /// Time for which faults happen.
    pub duration: Duration,
    pub begun: Instant,
    phase: AtomicU8,
    /// Times at which the messages of each subject were published.
    published: Mutex<BTreeMap<String, Vec<Instant>>>,
    /// Observers of each site, one at each of its peers for programs.
    observers: Vec<Observer>,
    /// Deliveries to the client of the cluster.
    hub: Mutex<DeliveryCounts>,
    calm: Mutex<Vec<CalmWindow>>,
    /// Sites of which a gateway was killed, and when.
    deaths: Mutex<BTreeMap<usize, Vec<Instant>>>,
    discards: Mutex<Vec<DiscardTime>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub fn new(duration: Duration) -> World {
        World {
            duration,
            begun: now(),
            phase: AtomicU8::new(Phase::Publishing as u8),
            published: Mutex::default(),
            observers: (0..SITES * PROGRAM_PEERS).map(|_| Observer::default()).collect(),
            hub: Mutex::default(),
            calm: Mutex::default(),
            deaths: Mutex::default(),
            discards: Mutex::default(),
        }
    }

    /// Begins a phase.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub fn is_publishing(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == Phase::Publishing as u8
    }

    pub fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == Phase::Over as u8
    }

    fn observer(&self, site: usize, peer: usize) -> &Observer {
        &self.observers[(site - 1) * PROGRAM_PEERS + peer]
    }

    /// Returns the account of the programs at a peer of a site.
    pub fn account(&self, site: usize, peer: usize) -> MutexGuard<'_, SiteAccount> {
        lock(&self.observer(site, peer).account)
    }

    /// Returns what came to the client of the cluster.
    pub fn hub_deliveries(&self) -> MutexGuard<'_, DeliveryCounts> {
        lock(&self.hub)
    }

    /// Notes that a message was published.
    pub fn on_published(&self, subject: &str) {
        let mut published = lock(&self.published);
        match published.get_mut(subject) {
            Some(times) => times.push(now()),
            None => drop(published.insert(subject.to_owned(), vec![now()])),
        }
    }

    /// Returns the number of messages on each subject.
    pub fn published(&self) -> BTreeMap<String, usize> {
        lock(&self.published).iter().map(|(subject, times)| (subject.clone(), times.len())).collect()
    }

    /// Compares what came to the programs at a peer of a site with what the programs of other sites published.
    pub fn judge(&self, site: usize, peer: usize) -> LinkVerdict {
        let own = format!("s{site}.");
        let mut counts = self.published();
        counts.retain(|subject, _| !subject.starts_with(&own) && !subject.starts_with("hub."));
        let published = lock(&self.published);
        let deaths = lock(&self.deaths);
        let discards = lock(&self.discards);
        let causes = LossCauses {
            in_tail: |subject: &str, number: usize| {
                let at = published[subject][number];
                deaths.get(&site).into_iter().flatten().any(|death| at < *death && death.since(at) < UNDER_WAY)
            },
            is_discarded: |subject: &str, number: usize| {
                let at = published[subject][number];
                let is_within = |time: &Range<Instant>| time.start < at + UNDER_WAY && at < time.end;
                discards.iter().any(|discard| is_within(&discard.time))
            },
        };
        self.account(site, peer).judge(&counts, &causes)
    }

    /// Returns whether everything is accounted for at each peer of each site.
    pub fn is_settled(&self) -> bool {
        observers().all(|[site, peer]| self.judge(site, peer).violations.is_empty())
    }

    /// Returns a sentence for each message that did not come once in a time without faults: at a peer of a site those
    /// of the client of the cluster, at that client those of the sites.
    pub fn calm_violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for window in lock(&self.calm).iter() {
            for [site, peer] in observers() {
                let found = lock(&self.observer(site, peer).of_client).violations(window, "hub.");
                violations.extend(found.into_iter().map(|violation| format!("site {site}, peer {peer}: {violation}")));
            }
            let found = self.hub_deliveries().violations(window, "s");
            violations.extend(found.into_iter().map(|violation| format!("client of the cluster: {violation}")));
        }
        violations
    }

    /// Returns the sites that have been away while the stream discarded messages.
    pub fn discarding_sites(&self) -> Vec<usize> {
        lock(&self.discards).iter().map(|discard| discard.site).collect()
    }

    /// Notes that messages came once each in this time, in which nothing failed.
    pub fn note_calm(&self, window: CalmWindow) {
        lock(&self.calm).push(window);
    }

    /// Returns when the missing messages of a violation were published, in seconds since the begin: the first and the last
    /// one of each run.
    pub fn times(&self, violation: &LinkViolation) -> Vec<[u64; 2]> {
        let (LinkViolation::Unreported { subject, missing, .. } | LinkViolation::Overreported { subject, missing, .. }) =
            violation
        else {
            return Vec::new();
        };
        let published = lock(&self.published);
        runs(missing).into_iter().map(|run| run.map(|at| published[subject][at].since(self.begun).as_secs())).collect()
    }

    /// Notes that a gateway of a site was killed.
    pub fn note_death(&self, site: usize) {
        lock(&self.deaths).entry(site).or_default().push(now());
    }

    /// Notes that the stream discarded messages while a site did not read.
    pub fn note_discard(&self, site: usize, time: Range<Instant>) {
        lock(&self.discards).push(DiscardTime { site, time });
    }

    /// Prints a sentence.
    pub fn note(&self, what: &str) {
        println!("{:7.1} s: {what}", now().since(self.begun).as_secs_f64());
    }

    /// Prints what has come so far.
    pub fn note_totals(&self) {
        for [site, peer] in observers() {
            let LinkVerdict { live, durable, violations } = self.judge(site, peer);
            let open = violations.len();
            self.note(&format!(
                "site {site}, peer {peer}: live {live:?}, durable {durable:?}, {open} violations so far"
            ));
            let (deliveries, repeated) = lock(&self.observer(site, peer).of_client).totals();
            self.note(&format!(
                "site {site}, peer {peer}: {deliveries} messages of the client, {repeated} of them again"
            ));
        }
        let (deliveries, repeated) = self.hub_deliveries().totals();
        self.note(&format!("client: {deliveries} messages of the sites, {repeated} of them again"));
    }

    /// Publishes numbered messages of a site.
    pub fn publish(&self, site: usize, bus: &Bus) {
        let publish = |subject: String, number: usize| {
            bus.publish_blocking(message(&subject, &number.to_string())).expect("the peer of the programs lives");
            self.on_published(&subject);
        };
        let (mut live, mut durable) = (0, 0);
        while self.is_publishing() {
            for _ in 0..BURST {
                publish(format!("s{site}.live.{}", live % LIVE_SUBJECTS), live / LIVE_SUBJECTS);
                live += 1;
            }
            publish(format!("s{site}.durable.{}", durable % DURABLE_SUBJECTS), durable / DURABLE_SUBJECTS);
            durable += 1;
            let_time_pass(BURST_INTERVAL, "the load has a rate");
        }
    }

    /// Reads what comes to a peer of a site for a pattern.
    pub fn observe(&self, site: usize, peer: usize, bus: &Bus, pattern: &str) {
        let subscription = bus.subscribe(pattern.parse().expect("a pattern")).expect("subscribed");
        while !self.is_over() {
            match subscription.recv_timeout(Duration::from_millis(200)) {
                Ok(Notice::Message(delivery)) => {
                    let (subject, payload) = (delivery.message.subject.to_string(), &delivery.message.payload);
                    let from = LinkDelivery { gateway: delivery.publisher.epoch, at: now() };
                    match subject.split('.').next() {
                        Some("_SEQCAST") => self.account(site, peer).on_report(payload),
                        Some("hub") => lock(&self.observer(site, peer).of_client).on_message(&subject, payload),
                        _ => self.account(site, peer).on_message(from, &subject, payload),
                    }
                }
                Ok(Notice::Loss(loss)) => self.account(site, peer).on_lan_loss(&loss.what),
                Err(RecvError::Empty) => {}
                other => panic!("the observer at peer {peer} of site {site} is too slow: {other:?}"),
            }
        }
    }
}

/// Returns the numbers of all sites with those of their peers for programs.
pub fn observers() -> impl Iterator<Item = [usize; 2]> {
    (1..=SITES).flat_map(|site| (0..PROGRAM_PEERS).map(move |peer| [site, peer]))
}
