//! The gateways of other sites: which ones live, and which ones have ended.

use super::bye::GatewayBye;
use super::site_name::SiteName;
use crate::message::Epoch;
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time without a manifest after which a gateway counts as dead: five rounds may be lost. By then its last manifests
/// have left the standby.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(6);
/// Maximum number of gateways that are watched.
const WATCHED_MAX: usize = 4096;
/// Maximum number of gateways whose end is not accounted for yet.
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
        if self.heard.len() < WATCHED_MAX || self.heard.contains_key(&watched) {
            self.heard.insert(watched, now);
        }
    }

    /// Notes that a gateway has said that it ends. That counts once everything that came before it has left the standby.
    /// Without room for it the gateway counts as silent later.
    pub(super) fn on_bye(&mut self, now: Instant, bye: GatewayBye) {
        if self.byes.len() < BYES_MAX && self.heard.remove(&(bye.site.clone(), bye.gateway)).is_some() {
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
