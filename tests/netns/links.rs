//! Three sites over a cluster of three nodes. Gateways and nodes are killed, sites are cut off, disks of nodes are full,
//! and a twentieth of the packets is lost, on each LAN and between the sites. An observer at each site compares the
//! messages that its programs get with those that the programs of the other sites published.
//!
//! In the test suite each fault happens once; `tools/links` lets the same run for any given time.

mod account;
mod cluster;
mod relay;
mod wan;

use super::group;
use super::lan::{Peer, in_namespaces_for};
use crate::support::bus::message;
use crate::support::command::now;
use crate::support::wait::{let_time_pass, wait_until};
use account::{LinkDelivery, LinkTotals, LinkViolation, SiteAccount};
use cluster::Node;
use seqcast::bus::{Bus, Notice, RecvError};
use seqcast::clock::random_u64;
use seqcast::rng::Rng;
use seqcast::time::Instant;
use std::collections::BTreeMap;
use std::env;
use std::ops::Range;
use std::panic;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use wan::{SITES, SiteLan, Wan};

/// Subjects of each site.
const SUBJECTS: usize = 24;
/// Messages that a site publishes at a time.
const BURST: usize = 4;
/// Time between two bursts.
const BURST_INTERVAL: Duration = Duration::from_millis(20);
/// Time from which on a run is long: sites are cut off for longer then.
const LONG_RUN: Duration = Duration::from_secs(600);
/// Duration of a cut in a long run, in milliseconds.
const LONG_CUT: Range<u64> = 60_000..61_000;
/// Duration of a cut in the test suite, in milliseconds: longer than a silent gateway counts as alive.
const SHORT_CUT: Range<u64> = 8_000..10_000;
/// Time between the return of a gateway and the next fault: a gateway must have been heard for three rounds before
/// another one dies, and it must retain what came in 5 s.
const RECOVERY_TIME: Duration = Duration::from_secs(6);
/// Maximum time from the last fault until each message is accounted for.
const SETTLE_TIME: Duration = Duration::from_secs(90);
/// Time after that in which an unwanted message or report may still come.
const CALM_TIME: Duration = Duration::from_secs(3);
/// Time around a take-over within which what the LAN loses may concern a message.
const UNDER_WAY: Duration = Duration::from_secs(2);
/// Maximum number of messages that may come again for each take-over: those of two datagrams.
const REPEATED_MAX: u64 = 2 * BURST as u64;
/// Maximum number of violations that are printed.
const REPORTS_MAX: usize = 20;

/// Programs publish, and faults happen.
const PUBLISHING: u8 = 0;
/// Programs read what is left.
const SETTLING: u8 = 1;
const OVER: u8 = 2;

/// A fault. All end before the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LinkFault {
    /// A gateway is killed, and started again.
    KillGateway,
    /// A node of the cluster is killed, and started again.
    KillNode,
    /// A site does not reach the cluster.
    CutSite,
    /// There is no room on the disk of a node. It is killed after that, and started again.
    FillDisk,
}

const FAULTS: [LinkFault; 5] =
    [LinkFault::KillGateway, LinkFault::KillGateway, LinkFault::KillNode, LinkFault::CutSite, LinkFault::FillDisk];

/// A site: a peer for its programs, and two gateways.
struct Site {
    number: usize,
    lan: SiteLan,
    link: String,
    programs: Peer,
    gateways: Vec<Peer>,
}

impl Site {
    fn start(number: usize, lan: SiteLan, link: &str) -> Site {
        let programs = lan.hosts[0].start_peer(&format!("P{number}.test"), group(), &REPAIR);
        let mut site = Site { number, lan, link: format!("link={link}"), programs, gateways: Vec::new() };
        site.gateways = (1..=2).map(|gateway| site.start_gateway(gateway)).collect();
        site
    }

    fn start_gateway(&self, gateway: usize) -> Peer {
        let own = format!("link-live=s{}.live.>", self.number);
        let others: Vec<String> = self.imported().map(|site| format!("s{site}.live.>")).collect();
        let [site, others] = [format!("site=s{}", self.number), format!("link-import={}", others.join(" ; "))];
        let settings = [&REPAIR[..], &[site.as_str(), &self.link, &own, &others]].concat();
        self.lan.hosts[gateway].start_peer(&format!("G{}{gateway}.test", self.number), group(), &settings)
    }

    /// Returns the numbers of the other sites.
    fn imported(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.number;
        (1..=SITES).filter(move |site| *site != own)
    }

    /// Waits until both gateways carry shares.
    fn await_gateways(&self) {
        wait_until(&format!("the gateways of site {} carry all shares", self.number), || {
            let shares = self.gateways.iter().map(|gateway| gateway.report("links")["link"]["shares"].as_u64());
            let shares: Vec<u64> = shares.map(Option::unwrap_or_default).collect();
            shares.iter().sum::<u64>() == 16 && !shares.contains(&0)
        });
    }
}

/// Event after which another gateway of a site takes over.
struct TakeOver {
    /// The site; `None` if it may be any.
    site: Option<usize>,
    /// True if a gateway was killed.
    is_death: bool,
    at: Instant,
}

/// State that all threads share.
struct World {
    phase: AtomicU8,
    begun: Instant,
    /// Times at which the messages of each subject were published.
    published: Mutex<BTreeMap<String, Vec<Instant>>>,
    /// Accounts of the sites.
    accounts: Vec<Mutex<SiteAccount>>,
    take_overs: Mutex<Vec<TakeOver>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn is(&self, phase: u8) -> bool {
        self.phase.load(Ordering::Relaxed) == phase
    }

    fn account(&self, site: usize) -> MutexGuard<'_, SiteAccount> {
        lock(&self.accounts[site - 1])
    }

    /// Returns the number of messages on each subject that a site imports.
    fn published_for(&self, site: &Site) -> BTreeMap<String, usize> {
        let own = format!("s{}.", site.number);
        let published = lock(&self.published);
        let others = published.iter().filter(|(subject, _)| !subject.starts_with(&own));
        others.map(|(subject, times)| (subject.clone(), times.len())).collect()
    }

    fn judge(&self, site: &Site) -> (LinkTotals, Vec<LinkViolation>) {
        let counts = self.published_for(site);
        let published = lock(&self.published);
        let take_overs = lock(&self.take_overs);
        let of_site = || take_overs.iter().filter(|one| one.site.is_none_or(|number| number == site.number));
        let in_tail = |subject: &str, number: usize| {
            let at = published[subject][number];
            of_site().any(|one| one.is_death && at < one.at && one.at.since(at) < UNDER_WAY)
        };
        let may_repeat = |at: Instant| of_site().any(|one| one.at.since(at).max(at.since(one.at)) < UNDER_WAY);
        self.account(site.number).judge(&counts, in_tail, may_repeat)
    }

    fn note_take_over(&self, site: Option<usize>, is_death: bool) {
        lock(&self.take_overs).push(TakeOver { site, is_death, at: now() });
    }

    fn note(&self, what: &str) {
        println!("{:7.1} s: {what}", now().since(self.begun).as_secs_f64());
    }
}

/// Publishes numbered messages of a site.
fn publish(world: &World, site: usize, bus: &Bus) {
    let mut next = 0;
    while world.is(PUBLISHING) {
        for _ in 0..BURST {
            let subject = format!("s{site}.live.{}", next % SUBJECTS);
            let number = next / SUBJECTS;
            bus.publish_blocking(message(&subject, &number.to_string())).expect("the peer of the programs lives");
            lock(&world.published).entry(subject).or_default().push(now());
            next += 1;
        }
        let_time_pass(BURST_INTERVAL, "the load has a rate");
    }
}

/// Reads what comes to a site for a pattern.
fn observe(world: &World, site: usize, bus: &Bus, pattern: &str) {
    let subscription = bus.subscribe(pattern.parse().expect("a pattern")).expect("subscribed");
    while !world.is(OVER) {
        match subscription.recv_timeout(Duration::from_millis(200)) {
            Ok(Notice::Message(delivery)) => {
                let subject = delivery.message.subject.to_string();
                let from = LinkDelivery { gateway: delivery.publisher.epoch, at: now() };
                let mut account = world.account(site);
                match subject == LOSS_SUBJECT {
                    true => account.on_report(&delivery.message.payload),
                    false => account.on_message(from, &subject, &delivery.message.payload),
                }
            }
            Ok(Notice::Loss(loss)) => world.account(site).on_lan_loss(&loss.what),
            Err(RecvError::Empty) => {}
            other => panic!("the observer of site {site} is too slow: {other:?}"),
        }
    }
}

/// Lets a fault happen to a random part, and waits until everything has recovered.
fn disturb(world: &World, fault: LinkFault, sites: &mut [Site], nodes: &mut [Node], rng: &mut Rng) {
    let (site, node) = (&mut sites[rng.below(SITES as u64) as usize], rng.below(nodes.len() as u64) as usize);
    let last = |range: Range<u64>, rng: &mut Rng| {
        let_time_pass(Duration::from_millis(rng.between(range.start, range.end)), "the fault lasts");
    };
    match fault {
        LinkFault::KillGateway => {
            let gateway = 1 + rng.below(2) as usize;
            world.note(&format!("gateway {gateway} of site {} is killed", site.number));
            site.gateways[gateway - 1].kill();
            world.note_take_over(Some(site.number), true);
            last(1_000..8_000, rng);
            site.gateways[gateway - 1] = site.start_gateway(gateway);
        }
        LinkFault::KillNode => {
            world.note(&format!("node {} is killed", node + 1));
            nodes[node].kill();
            world.note_take_over(None, false);
            last(1_000..8_000, rng);
            nodes[node].start();
        }
        LinkFault::CutSite => {
            world.note(&format!("site {} is cut off", site.number));
            site.lan.cut();
            world.note_take_over(Some(site.number), false);
            last(if LONG_RUN <= secs() { LONG_CUT } else { SHORT_CUT }, rng);
            site.lan.join();
        }
        LinkFault::FillDisk => {
            world.note(&format!("the disk of node {} is full", node + 1));
            nodes[node].fill_disk();
            last(1_000..5_000, rng);
            nodes[node].kill();
            world.note_take_over(None, false);
            nodes[node].clear_disk();
            nodes[node].start();
        }
    }
    sites.iter().for_each(Site::await_gateways);
    world.note("all gateways carry shares");
    let_time_pass(RECOVERY_TIME, "what the gateways retain covers the next fault");
}

/// Lets each fault happen in random order, again and again for the configured time.
fn disturb_for_long(world: &World, sites: &mut [Site], nodes: &mut [Node], rng: &mut Rng) {
    loop {
        let mut faults = FAULTS.to_vec();
        while !faults.is_empty() {
            let fault = faults.swap_remove(rng.below(faults.len() as u64) as usize);
            disturb(world, fault, sites, nodes, rng);
        }
        for site in &*sites {
            let (totals, violations) = world.judge(site);
            world.note(&format!("site {}: {totals:?}, {} messages open", site.number, violations.len()));
        }
        if secs() <= now().since(world.begun) {
            return;
        }
    }
}

/// Returns a number from the environment, which `tools/links` sets.
fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn secs() -> Duration {
    Duration::from_secs(setting("LINKS_SECS").unwrap_or(0))
}

#[test]
fn sites_account_for_each_message_despite_faults() {
    let name = "netns::links::sites_account_for_each_message_despite_faults";
    in_namespaces_for(
        name,
        secs() + Duration::from_secs(600),
        || (Vec::new(), ()),
        || {
            let seed = setting("LINKS_SEED").unwrap_or_else(random_u64);
            println!("seed {seed}, {} s", secs().as_secs());
            let mut rng = Rng::new(seed);
            let wan = Wan::new();
            let mut nodes = Node::start_cluster(&wan.nodes);
            let link = Node::addresses(&wan.nodes);
            let mut sites: Vec<Site> =
                (1..).zip(&wan.lans).map(|(number, lan)| Site::start(number, *lan, &link)).collect();
            sites.iter().for_each(Site::await_gateways);
            let world = World {
                phase: AtomicU8::new(PUBLISHING),
                begun: now(),
                published: Mutex::default(),
                accounts: (0..SITES).map(|_| Mutex::default()).collect(),
                take_overs: Mutex::default(),
            };
            let buses: Vec<Bus> = sites.iter().map(|site| site.programs.attach()).collect();
            thread::scope(|scope| {
                for (number, bus) in (1..).zip(&buses) {
                    let world = &world;
                    let patterns = sites[number - 1].imported().map(|site| format!("s{site}.live.>"));
                    for pattern in patterns.chain([LOSS_SUBJECT.to_owned()]) {
                        scope.spawn(move || observe(world, number, bus, &pattern));
                    }
                    scope.spawn(move || publish(world, number, bus));
                }
                let run = panic::AssertUnwindSafe(|| run(&world, &mut sites, &mut nodes, &mut rng));
                let outcome = panic::catch_unwind(run);
                // The other threads end in any case.
                world.phase.store(OVER, Ordering::Relaxed);
                outcome.unwrap_or_else(|panic| panic::resume_unwind(panic));
            });
            conclude(&world, &sites, seed);
        },
    );
}

/// Begins the accounts, lets the faults happen, and waits until each message is accounted for.
fn run(world: &World, sites: &mut [Site], nodes: &mut [Node], rng: &mut Rng) {
    let expected = SUBJECTS * (SITES - 1);
    wait_until("each stream reaches each site", || {
        sites.iter().all(|site| world.account(site.number).streams() == expected)
    });
    let_time_pass(RECOVERY_TIME, "each gateway has heard three rounds of the others");
    for site in &*sites {
        let numbers = world.published_for(site);
        world.account(site.number).begin(&numbers);
    }
    sites.iter().for_each(|site| site.lan.lose());
    world.note("faults begin");
    disturb_for_long(world, sites, nodes, rng);
    let lost: u64 = sites.iter().map(|site| site.lan.heal()).sum();
    assert!(100 < lost, "the LANs lost {lost} datagrams only");
    world.note(&format!("faults end; the LANs lost {lost} datagrams"));
    let_time_pass(RECOVERY_TIME, "the last messages come without a fault");
    world.phase.store(SETTLING, Ordering::Relaxed);
    let stopped = now();
    while sites.iter().any(|site| !world.judge(site).1.is_empty()) && now().since(stopped) < SETTLE_TIME {
        let_time_pass(Duration::from_millis(500), "a look at all accounts costs much");
    }
    world.note("settled");
    let_time_pass(CALM_TIME, "a message that comes twice or too late would come now");
}

/// Reports the errors found; there must be none.
fn conclude(world: &World, sites: &[Site], seed: u64) {
    let mut violations = 0;
    for site in sites {
        let (totals, found) = world.judge(site);
        println!("site {}: {totals:?}", site.number);
        for violation in found.iter().take(REPORTS_MAX) {
            println!("site {}: {violation}", site.number);
        }
        violations += found.len();
        let take_overs = lock(&world.take_overs).len() as u64;
        assert!(totals.repeated <= REPEATED_MAX * take_overs, "{} came again, seed {seed}", totals.repeated);
        assert!(1_000 < totals.delivered, "site {} got {} messages, seed {seed}", site.number, totals.delivered);
    }
    assert_eq!(violations, 0, "violations of seed {seed}");
}

/// Subject of the reports of losses between sites.
const LOSS_SUBJECT: &str = "_SEQCAST.LINK.LOSS";

/// Lost datagrams of a LAN are requested again.
const REPAIR: [&str; 1] = ["reliability=10 sec"];
