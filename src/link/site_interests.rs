//! The interest of other sites, as their gateways announce it.

use super::gateway_watch::gateways_of;
use super::import::SITE_GATEWAYS_MAX;
use super::interest_summary::{InterestSummary, SummaryAnnouncement};
use super::site_name::SiteName;
use crate::message::Epoch;
use crate::subject::Subject;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Interval of the announcements of a gateway.
pub(super) const SUMMARY_INTERVAL: Duration = Duration::from_secs(2);
/// Time without an announcement after which a summary is forgotten: three may be lost.
pub const SUMMARY_TIMEOUT: Duration = Duration::from_secs(7);
/// Maximum number of summaries, of all sites. Each site has [`SITE_GATEWAYS_MAX`]. Those of further gateways are ignored.
const SUMMARIES_MAX: usize = 4096;
/// Maximum bytes of all summaries, and of those of a site: 64 gateways with 512 patterns of 60 bytes have 4 MiB. Those that
/// exceed it are ignored.
const SUMMARIES_BYTES_MAX: usize = 32 << 20;
const SITE_BYTES_MAX: usize = 4 << 20;
/// Bytes that a pattern counts beside its text.
const PATTERN_BYTES: usize = 64;

/// The summary of a gateway.
#[derive(Debug)]
struct GatewaySummary {
    at: Instant,
    summary: InterestSummary,
    bytes: usize,
}

/// The summaries of the gateways of other sites. A site may have a receiver if one of its gateways says so.
#[derive(Debug, Default)]
pub(super) struct SiteInterests {
    summaries: BTreeMap<(SiteName, Epoch), GatewaySummary>,
    bytes: usize,
}

impl SiteInterests {
    /// Notes the announcement of a gateway. Returns false if there is no room for it.
    pub(super) fn on_announcement(&mut self, now: Instant, announcement: SummaryAnnouncement) -> bool {
        let SummaryAnnouncement { site, gateway, summary, .. } = announcement;
        let (count, text_bytes) = summary.size();
        let bytes = PATTERN_BYTES * (count + 1) + text_bytes;
        let of_site = || gateways_of(&self.summaries, &site);
        let key = (site.clone(), gateway);
        let before = self.summaries.get(&key).map_or(0, |before| before.bytes);
        let (others, of_others) = (self.bytes - before, of_site().map(|known| known.bytes).sum::<usize>() - before);
        let is_known = self.summaries.contains_key(&key);
        let has_place = is_known || self.summaries.len() < SUMMARIES_MAX && of_site().count() < SITE_GATEWAYS_MAX;
        if !has_place || SUMMARIES_BYTES_MAX < others + bytes || SITE_BYTES_MAX < of_others + bytes {
            return false;
        }
        self.bytes = others + bytes;
        self.summaries.insert(key, GatewaySummary { at: now, summary, bytes });
        true
    }

    /// Forgets the summaries of silent gateways.
    pub(super) fn expire(&mut self, now: Instant) {
        self.summaries.retain(|_, heard| now.since(heard.at) < SUMMARY_TIMEOUT);
        self.bytes = self.summaries.values().map(|heard| heard.bytes).sum();
    }

    /// Returns the sites in which a subscription may match the subject, in order.
    pub(super) fn sites(&self, subject: &Subject) -> Vec<SiteName> {
        self.sites_that(|summary| summary.matches(subject))
    }

    /// Returns the sites in which the member of a queue group may match the subject, in order.
    pub(super) fn group_sites(&self, subject: &Subject) -> Vec<SiteName> {
        self.sites_that(|summary| summary.matches_group(subject))
    }

    fn sites_that(&self, is_chosen: impl Fn(&InterestSummary) -> bool) -> Vec<SiteName> {
        let chosen = self.summaries.iter().filter(|(_, heard)| is_chosen(&heard.summary));
        chosen.map(|((site, _), _)| site.clone()).collect::<BTreeSet<SiteName>>().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::interest_summary::LanInterest;
    use super::*;
    use crate::subject::Pattern;
    use crate::subject::pattern_set::PatternSet;

    fn announcement(site: &str, gateway: u64, patterns: impl Iterator<Item = String>) -> SummaryAnnouncement {
        let plain = patterns.map(|text| text.parse::<Pattern>().unwrap()).collect();
        let imports = PatternSet::from_iter([">".parse::<Pattern>().unwrap()]);
        let summary = InterestSummary::new(&LanInterest { plain, ..LanInterest::default() }, &imports);
        SummaryAnnouncement { site: site.parse().unwrap(), gateway: Epoch::new(gateway).unwrap(), asks: false, summary }
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn sites(interests: &SiteInterests, subject: &str) -> Vec<String> {
        interests.sites(&subject.parse().unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn site_counts_while_one_gateway_says_so() {
        let mut interests = SiteInterests::default();
        let one = |text: &str| std::iter::once(text.to_owned());
        interests.on_announcement(at(0), announcement("hq", 1, one("a.>")));
        interests.on_announcement(at(1_000), announcement("hq", 2, std::iter::empty()));
        interests.on_announcement(at(1_000), announcement("lab", 3, one("a.b")));
        assert_eq!(sites(&interests, "a.b"), ["hq", "lab"]);
        interests.expire(at(7_000));
        assert_eq!(sites(&interests, "a.b"), ["lab"], "the gateway is silent");
        interests.on_announcement(at(7_000), announcement("lab", 3, std::iter::empty()));
        assert_eq!(sites(&interests, "a.b"), [""; 0]);
    }

    #[test]
    fn flood_of_summaries_is_bounded() {
        let mut interests = SiteInterests::default();
        let token = "x".repeat(200);
        let patterns = |count: u64| (0..count).map(|index| format!("{token}.{index}"));
        for gateway in 1..6_000 {
            interests.on_announcement(at(0), announcement("flood", gateway, patterns(200)));
        }
        assert!(interests.bytes <= SITE_BYTES_MAX && interests.summaries.len() <= SITE_GATEWAYS_MAX);
        assert!(interests.on_announcement(at(0), announcement("hq", 1, patterns(200))), "another site has room");
        // A summary that grows beyond the room leaves the one before.
        for gateway in 2..63 {
            interests.on_announcement(at(0), announcement("hq", gateway, patterns(250)));
        }
        interests.on_announcement(at(0), announcement("hq", 63, std::iter::once("a.b".to_owned())));
        assert!(!interests.on_announcement(at(0), announcement("hq", 63, patterns(250))));
        assert_eq!(sites(&interests, "a.b"), ["hq"]);
        for site in 0..100 {
            (1..60).for_each(|gateway| {
                interests.on_announcement(at(0), announcement(&format!("s{site}"), gateway, patterns(200)));
            });
        }
        assert!(interests.bytes <= SUMMARIES_BYTES_MAX && interests.summaries.len() <= SUMMARIES_MAX);
        interests.expire(at(7_000));
        assert_eq!((interests.bytes, interests.summaries.len()), (0, 0));
    }
}
