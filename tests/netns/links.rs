//! Three sites over a cluster of three nodes. Gateways and nodes are killed, sites are cut off, disks of nodes are full,
//! the stream discards messages or takes none, and a twentieth of the packets is lost, on each LAN and between the
//! sites. Observers at each site compare the messages that its programs get with those that the programs of the other
//! sites published; a client of the cluster takes part, and peers follow the events of a server.
//!
//! In the test suite each fault happens once; `tools/links` lets the same run for any given time.

mod account;
mod clients;
mod cluster;
mod events;
mod limits;
mod plan;
mod relay;
mod site;
mod wan;
mod world;

use super::lan::in_namespaces_for;
use crate::support::command::now;
use crate::support::wait::{let_time_pass, wait_until_some};
use clients::CalmWindow;
use cluster::Node;
use plan::{RECOVERY_TIME, disturb_for_long};
use seqcast::bus::Bus;
use seqcast::clock::random_u64;
use seqcast::event::model::Event;
use seqcast::rng::Rng;
use site::{PROGRAM_PEERS, Site};
use std::collections::BTreeMap;
use std::env;
use std::panic;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use wan::{SITES, Wan};
use world::{DURABLE_SUBJECTS, LIVE_SUBJECTS, LOSS_SUBJECT, Phase, World, observers};

/// Maximum time from the last fault until each message is accounted for.
const SETTLE_TIME: Duration = Duration::from_secs(120);
/// Time after that in which an unwanted message or report may still come.
const CALM_TIME: Duration = Duration::from_secs(3);
/// Maximum number of violations that are printed for each observer.
const REPORTS_MAX: usize = 20;

/// Returns a number from the environment, which `tools/links` sets.
fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn duration() -> Duration {
    Duration::from_secs(setting("LINKS_SECS").unwrap_or(0))
}

#[test]
fn sites_account_for_each_message_despite_faults() {
    let name = "netns::links::sites_account_for_each_message_despite_faults";
    in_namespaces_for(
        name,
        duration() + Duration::from_secs(600),
        || (Vec::new(), ()),
        || {
            let seed = setting("LINKS_SEED").unwrap_or_else(random_u64);
            println!("seed {seed}, {} s", duration().as_secs());
            let mut rng = Rng::new(seed);
            let wan = Wan::new();
            let mut nodes = Node::start_cluster(&wan.nodes);
            let link = Node::addresses(&wan.nodes);
            let mut sites: Vec<Site> =
                (1..).zip(&wan.lans).map(|(number, lan)| Site::start(number, *lan, &link)).collect();
            sites.iter().for_each(Site::await_gateways);
            let shared = Arc::new(World::new(duration()));
            let buses: Vec<[Bus; PROGRAM_PEERS]> =
                sites.iter().map(|site| [0, 1].map(|peer| site.programs[peer].attach())).collect();
            let events = thread::scope(|scope| {
                let world = &*shared;
                for (number, buses) in (1..).zip(&buses) {
                    for (peer, bus) in buses.iter().enumerate() {
                        let patterns = sites[number - 1].imported().map(|site| format!("s{site}.>"));
                        for pattern in patterns.chain(["hub.>".to_owned(), LOSS_SUBJECT.to_owned()]) {
                            scope.spawn(move || world.observe(number, peer, bus, &pattern));
                        }
                    }
                    scope.spawn(move || world.publish(number, &buses[0]));
                }
                let server = &buses[events::SERVER as usize - 1][events::PEER];
                let events = scope.spawn(move || events::register(world, server));
                let outcome = panic::catch_unwind(panic::AssertUnwindSafe(|| {
                    let client = clients::start(&shared, wan.nodes[0], link.clone());
                    run(world, &mut sites, &mut nodes, &mut rng);
                    client
                }));
                // The other threads end in any case.
                world.enter(Phase::Over);
                let client = outcome.unwrap_or_else(|panic| panic::resume_unwind(panic));
                client.join().expect("the client works");
                events.join().expect("the server has acknowledged its events")
            });
            conclude(&shared, &buses, &events, seed);
        },
    );
}

/// Begins the accounts, lets the faults happen, and waits until each message is accounted for.
fn run(world: &World, sites: &mut [Site], nodes: &mut [Node], rng: &mut Rng) {
    let expected = (LIVE_SUBJECTS + DURABLE_SUBJECTS) * (SITES - 1);
    let streams = || observers().map(|[site, peer]| world.account(site, peer).streams()).collect::<Vec<usize>>();
    let shown = || format!("each observer gets {expected} streams, not {:?}", streams());
    wait_until_some(shown, || streams().iter().all(|count| *count == expected).then_some(()));
    let_time_pass(RECOVERY_TIME, "each gateway has heard three rounds of the others");
    let numbers = world.published();
    observers().for_each(|[site, peer]| world.account(site, peer).begin(&numbers));
    pass_calm_time(world, numbers);
    sites.iter().for_each(|site| site.lan.lose());
    world.note("faults begin");
    disturb_for_long(world, sites, nodes, rng);
    let lost: u64 = sites.iter().map(|site| site.lan.heal()).sum();
    assert!(100 < lost, "the LANs lost {lost} datagrams only");
    world.note(&format!("faults end; the LANs lost {lost} datagrams"));
    let_time_pass(RECOVERY_TIME, "the last messages come without a fault");
    pass_calm_time(world, world.published());
    world.enter(Phase::Settling);
    let stopped = now();
    while !world.is_settled() && now().since(stopped) < SETTLE_TIME {
        let_time_pass(Duration::from_millis(500), "a look at all accounts costs much");
    }
    world.note("settled");
    let_time_pass(CALM_TIME, "a message that comes twice or too late would come now");
}

/// Lets some time pass without a fault.
fn pass_calm_time(world: &World, from: BTreeMap<String, usize>) {
    let_time_pass(CALM_TIME, "messages are published without a fault");
    world.note_calm(CalmWindow { from, to: world.published() });
    let_time_pass(CALM_TIME, "the last of them arrive without a fault");
}

/// Reports the errors found; there must be none.
fn conclude(world: &World, buses: &[[Bus; PROGRAM_PEERS]], events: &[Event], seed: u64) {
    world.note_totals();
    let mut violations: Vec<String> = world.calm_violations();
    let discarding = world.discarding_sites();
    for [site, peer] in observers() {
        let verdict = world.judge(site, peer);
        let found = verdict.violations.iter().map(|violation| {
            format!("site {site}, peer {peer}: {violation}, published at {:?}", world.times(violation))
        });
        violations.extend(found.take(REPORTS_MAX));
        let [live, durable] = [verdict.live.delivered, verdict.durable.delivered];
        assert!(1_000 < live && 500 < durable, "site {site} got {live} live messages, {durable} durable ones");
        let discarded = verdict.durable.reported_min;
        assert!(0 < discarded || !discarding.contains(&site), "the stream discarded messages for site {site}");
    }
    assert!(100 < events.len(), "the server acknowledged {} events", events.len());
    for (number, site) in (1..).zip(buses) {
        let stopped = now();
        let mut difference = events::difference(&site[events::PEER], events);
        while difference.is_some() && now().since(stopped) < SETTLE_TIME {
            let_time_pass(Duration::from_millis(500), "a whole journal is read");
            difference = events::difference(&site[events::PEER], events);
        }
        violations.extend(difference.map(|difference| format!("journal of site {number}: {difference}")));
    }
    violations.iter().for_each(|violation| println!("{violation}"));
    assert!(violations.is_empty(), "{} violations of seed {seed}", violations.len());
}
