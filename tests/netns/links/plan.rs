//! The faults, and the order in which they happen.

use super::World;
use super::cluster::Node;
use super::limits;
use super::site::{GATEWAYS, Site};
use super::wan::SITES;
use crate::support::command::now;
use crate::support::wait::let_time_pass;
use seqcast::rng::Rng;
use std::ops::Range;
use std::time::Duration;

/// Time from which on a run is long: sites are cut off for longer then.
const LONG_RUN: Duration = Duration::from_secs(240);
/// Duration of a cut in a long run, in milliseconds.
const LONG_CUT: Range<u64> = 60_000..61_000;
/// Duration of a cut in the test suite, in milliseconds: longer than a silent gateway counts as alive.
const SHORT_CUT: Range<u64> = 8_000..10_000;
/// Time between the return of a gateway and the next fault: a gateway must have been heard for three rounds before
/// another one dies, and it must retain what came in 5 s.
pub const RECOVERY_TIME: Duration = Duration::from_secs(6);
/// A fault. All end before the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LinkFault {
    /// A gateway is killed, and started again.
    KillGateway,
    /// A node of the cluster is killed, and started again.
    KillNode,
    /// A site does not reach the cluster.
    CutSite,
    /// A site does not reach the cluster, whose stream discards messages that the site has not read.
    DiscardUnread,
    /// The stream takes nothing new.
    FillStream,
    /// There is no room on the disk of a node. It is killed after that, and started again.
    FillDisk,
}

const FAULTS: [LinkFault; 7] = [
    LinkFault::KillGateway,
    LinkFault::KillGateway,
    LinkFault::KillNode,
    LinkFault::CutSite,
    LinkFault::DiscardUnread,
    LinkFault::FillStream,
    LinkFault::FillDisk,
];

/// Lets a fault happen to a random part, and waits until everything has recovered.
fn disturb(world: &World, fault: LinkFault, sites: &mut [Site], nodes: &mut [Node], rng: &mut Rng) {
    let (site, node) = (&mut sites[rng.below(SITES as u64) as usize], rng.below(nodes.len() as u64) as usize);
    let last = |range: Range<u64>, rng: &mut Rng| {
        let_time_pass(Duration::from_millis(rng.between(range.start, range.end)), "the fault lasts");
    };
    let cut = || if LONG_RUN <= world.duration { LONG_CUT } else { SHORT_CUT };
    match fault {
        LinkFault::KillGateway => {
            let gateway = 1 + rng.below(GATEWAYS as u64) as usize;
            world.note(&format!("gateway {gateway} of site {} is killed", site.number));
            site.gateways[gateway - 1].kill();
            world.note_death(site.number);
            last(1_000..8_000, rng);
            site.gateways[gateway - 1] = site.start_gateway(gateway);
        }
        LinkFault::KillNode => {
            world.note(&format!("node {} is killed", node + 1));
            nodes[node].kill();
            last(1_000..8_000, rng);
            nodes[node].start();
        }
        LinkFault::CutSite => {
            world.note(&format!("site {} is cut off", site.number));
            site.lan.cut();
            last(cut(), rng);
            site.lan.join();
        }
        LinkFault::DiscardUnread => {
            let site = site.number;
            world.note(&format!("site {site} is cut off, and the stream discards messages"));
            let read_to = || sites.iter().map(Site::position).min().expect("there are sites");
            if limits::prepare_discard(nodes, read_to) {
                let begun = now();
                sites[site - 1].lan.cut();
                last(cut(), rng);
                limits::discard(nodes);
                limits::restore(nodes);
                world.note_discard(site, begun..now());
                sites[site - 1].lan.join();
            } else {
                world.note("the sites are too far behind: the stream discards nothing");
            }
        }
        LinkFault::FillStream => {
            limits::fill(nodes);
            world.note("the stream is full");
            last(3_000..6_000, rng);
            limits::restore(nodes);
        }
        LinkFault::FillDisk => {
            world.note(&format!("the disk of node {} is full", node + 1));
            nodes[node].fill_disk();
            last(1_000..5_000, rng);
            nodes[node].kill();
            nodes[node].clear_disk();
            nodes[node].start();
        }
    }
    sites.iter().for_each(Site::await_gateways);
    let read_to: Vec<u64> = sites.iter().map(Site::position).collect();
    world.note(&format!("all gateways carry shares; the sites have read the stream up to {read_to:?}"));
    let_time_pass(RECOVERY_TIME, "what the gateways retain covers the next fault");
}

/// Lets each fault happen in random order, again and again for the configured time.
pub fn disturb_for_long(world: &World, sites: &mut [Site], nodes: &mut [Node], rng: &mut Rng) {
    loop {
        let mut faults = FAULTS.to_vec();
        while !faults.is_empty() {
            let fault = faults.swap_remove(rng.below(faults.len() as u64) as usize);
            disturb(world, fault, sites, nodes, rng);
        }
        world.note_totals();
        if world.duration <= now().since(world.begun) {
            return;
        }
    }
}
