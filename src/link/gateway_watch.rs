//! The gateways of other sites: which ones live, and which ones have ended.

use super::bye::GatewayBye;
use super::export::ROUND_INTERVAL;
use super::import::SITE_GATEWAYS_MAX;
use super::site_name::SiteName;
use crate::message::Epoch;
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time without a manifest after which a gateway counts as dead: three rounds may be lost, and the fourth one may be
/// late. By then its last manifests have left the standby.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(6);
const _: () = assert!(4 * ROUND_INTERVAL.as_millis() < SILENCE_MAX.as_millis(), "three rounds may be lost");
/// Maximum number of gateways that are watched, of all sites. Each site has [`SITE_GATEWAYS_MAX`].
const WATCHED_MAX: usize = 4096;
/// Maximum number of gateways whose end is not accounted for yet, of all sites.
const BYES_MAX: usize = 1024;

/// The lives of other sites' gateways.
#[derive(Debug, Default)]
pub(super) struct GatewayWatch {
    /// Time of the last manifest of each gateway.
    heard: BTreeMap<(SiteName, Epoch), Instant>,
    /// Ends of gateways, and the times at which they count.
    byes: VecDeque<(Instant, GatewayBye)>,
}

impl GatewayWatch {
    /// Notes a manifest of a gateway.
    pub(super) fn on_manifest(&mut self, now: Instant, site: &SiteName, gateway: Epoch) {
        let watched = (site.clone(), gateway);
        let has_room = || self.heard.len() < WATCHED_MAX && gateways_of(&self.heard, site).count() < SITE_GATEWAYS_MAX;
        if self.heard.contains_key(&watched) || has_room() {
            self.heard.insert(watched, now);
        }
    }

    /// Notes that a gateway has said that it ends. That counts once everything that came before it has left the standby.
    /// Without room for it the gateway counts as silent later.
    pub(super) fn on_bye(&mut self, now: Instant, bye: GatewayBye) {
        let of_site = self.byes.iter().filter(|(_, other)| other.site == bye.site).count();
        let has_room = self.byes.len() < BYES_MAX && of_site < SITE_GATEWAYS_MAX;
        if has_room && self.heard.remove(&(bye.site.clone(), bye.gateway)).is_some() {
            self.byes.push_back((now + SILENCE_MAX, bye));
        }
    }

    /// Returns the next end of a gateway that counts by now, unless earlier manifests wait: ends from the time `oldest`
    /// on do not count yet.
    pub(super) fn pop_bye(&mut self, now: Instant, oldest: Option<Instant>) -> Option<GatewayBye> {
        self.byes.front().filter(|(at, _)| *at <= now && oldest.is_none_or(|oldest| *at < oldest))?;
        self.byes.pop_front().map(|(_, bye)| bye)
    }

    /// Removes the gateways that are silent.
    pub(super) fn take_silent(&mut self, now: Instant) -> Vec<(SiteName, Epoch)> {
        let is_silent = |heard: &Instant| SILENCE_MAX <= now.since(*heard);
        let silent: Vec<(SiteName, Epoch)> =
            self.heard.iter().filter(|(_, heard)| is_silent(heard)).map(|(gateway, _)| gateway.clone()).collect();
        self.heard.retain(|_, heard| !is_silent(heard));
        silent
    }
}

/// Returns what a table has about the gateways of a site.
pub(super) fn gateways_of<'a, T>(
    table: &'a BTreeMap<(SiteName, Epoch), T>,
    site: &'a SiteName,
) -> impl Iterator<Item = &'a T> {
    let first = (site.clone(), Epoch::new(1).expect("not 0"));
    table.range(first..).take_while(move |((of, _), _)| of == site).map(|(_, entry)| entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_of_a_site_leaves_room_for_others() {
        let mut watch = GatewayWatch::default();
        let [flood, hq]: [SiteName; 2] = ["flood", "hq"].map(|name| name.parse().unwrap());
        let bye = |site: &SiteName, gateway| GatewayBye { site: site.clone(), gateway, named_to: Default::default() };
        for number in 1..10_000 {
            let gateway = Epoch::new(number).unwrap();
            watch.on_manifest(Instant::ZERO, &flood, gateway);
            watch.on_bye(Instant::ZERO, bye(&flood, gateway));
        }
        assert_eq!((watch.heard.len(), watch.byes.len()), (SITE_GATEWAYS_MAX, SITE_GATEWAYS_MAX));
        let gateway = Epoch::new(7).unwrap();
        watch.on_manifest(Instant::ZERO, &hq, gateway);
        assert_eq!(gateways_of(&watch.heard, &hq).count(), 1);
        watch.on_bye(Instant::ZERO, bye(&hq, gateway));
        assert_eq!(watch.byes.back().map(|(_, bye)| &bye.site), Some(&hq));
    }
}
