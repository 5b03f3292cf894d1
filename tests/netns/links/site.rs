//! A site: two peers for programs, and two gateways, one of which can stand in for the other one.

use super::events;
use super::wan::{SITES, SiteLan};
use crate::netns::group;
use crate::netns::lan::Peer;
use crate::support::wait::{wait_until, wait_until_some};
use serde_json::Value;

/// Peers for programs at each site. Programs publish at the first one.
pub const PROGRAM_PEERS: usize = 2;
/// Gateways of each site.
pub const GATEWAYS: usize = 2;

/// The parts of a site.
pub struct Site {
    pub number: usize,
    pub lan: SiteLan,
    link: String,
    pub programs: Vec<Peer>,
    pub gateways: Vec<Peer>,
}

impl Site {
    /// Starts a site whose gateways have this value of the key `link`.
    pub fn start(number: usize, lan: SiteLan, link: &str) -> Site {
        let start = |index: usize| {
            let events = if index == events::PEER { events::settings(number) } else { Vec::new() };
            let settings: Vec<&str> = REPAIR.into_iter().chain(events.iter().map(String::as_str)).collect();
            lan.hosts[index].start_peer(&format!("P{number}{}.test", index + 1), group(), &settings)
        };
        let programs = (0..PROGRAM_PEERS).map(start).collect();
        let mut site = Site { number, lan, link: format!("link={link}"), programs, gateways: Vec::new() };
        site.gateways = (1..=GATEWAYS).map(|gateway| site.start_gateway(gateway)).collect();
        site
    }

    /// Starts a gateway, the first or the second one.
    pub fn start_gateway(&self, gateway: usize) -> Peer {
        let number = self.number;
        let imports: Vec<String> = self.imported().map(|site| format!("s{site}.>")).collect();
        let [own, imports] = [format!("site=s{number}"), format!("link-import={} ; hub.>", imports.join(" ; "))];
        let [live, durable] = ["live", "durable"].map(|mode| format!("link-{mode}=s{number}.{mode}.>"));
        let settings = [&own, &self.link, &live, &durable, &imports].map(String::as_str);
        let settings = [&REPAIR[..], &settings, &STREAM, &events::GATEWAY_SETTINGS].concat();
        let host = self.lan.hosts[PROGRAM_PEERS + gateway - 1];
        host.start_peer(&format!("G{number}{gateway}.test"), group(), &settings)
    }

    /// Returns the numbers of the other sites.
    pub fn imported(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.number;
        (1..=SITES).filter(move |site| *site != own)
    }

    /// Returns the place up to which the site has read the stream.
    pub fn position(&self) -> u64 {
        let read = |gateway: &Peer| gateway.report("links")["link"]["durable"]["position"].as_u64();
        wait_until_some(|| "a gateway reads the stream".into(), || self.gateways.iter().find_map(read))
    }

    /// Waits until both gateways carry shares and store durable messages, and one of them reads those of others.
    pub fn await_gateways(&self) {
        wait_until(&format!("the gateways of site {} carry all shares and use the stream", self.number), || {
            let links: Vec<Value> = self.gateways.iter().map(|peer| peer.report("links")["link"].clone()).collect();
            let shares: Vec<u64> = links.iter().map(|link| link["shares"].as_u64().unwrap_or_default()).collect();
            let is_open = |link: &Value| link["durable"]["open"] == true && link["durable"]["fault"].is_null();
            let reads = |link: &Value| link["durable"]["position"].is_u64();
            shares.iter().sum::<u64>() == 16
                && !shares.contains(&0)
                && links.iter().all(is_open)
                && links.iter().any(reads)
        });
    }
}

/// Lost datagrams of a LAN are requested again.
const REPAIR: [&str; 1] = ["reliability=10 sec"];

/// Settings of the stream: it fits the disks of the nodes, and each has a copy.
const STREAM: [&str; 2] = ["link-stream-size=24mb", "link-stream-copies=3"];
