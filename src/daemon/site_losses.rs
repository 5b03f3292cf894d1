//! Losses of messages of other sites, as the gateways of the LAN report them: by site, publisher and subject, in bounded
//! memory.

use crate::link::envelope::RemotePublisher;
use crate::link::site_loss::{SiteLoss, SiteTail};
use crate::link::site_name::SiteName;
use crate::message::{Count, Epoch, PeerName};
use crate::subject::Subject;
use crate::time::{ClockReading, Instant, WallTime};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of sites; as many as a gateway remembers.
const SITES_MAX: usize = 256;
/// Maximum number of streams with counts of their own, of all sites together. Each takes a few hundred bytes.
const STREAMS_MAX: usize = 10_000;
/// Time within which reports of one tail count once. Each gateway of the LAN reports it, up to a few seconds apart.
const TAIL_TIME: Duration = Duration::from_secs(30);

/// Lost messages of one stream, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SiteTally {
    min: u64,
    max: u64,
    /// Number of times that the last gateway of the site ended with an unknown number of messages behind it.
    pub(crate) tails: u64,
    /// Time of the last report.
    pub(crate) at: Option<WallTime>,
}

impl SiteTally {
    /// Returns the number of lost messages. Nothing bounds it after a tail.
    pub(crate) fn lost(&self) -> Count {
        Count::from_bounds(self.min, if self.tails == 0 { self.max } else { u64::MAX })
    }

    fn add(&mut self, other: SiteTally) {
        // A hostile program may claim any numbers.
        self.min = self.min.saturating_add(other.min);
        self.max = self.max.saturating_add(other.max);
        self.tails = self.tails.saturating_add(other.tails);
        self.at = self.at.max(other.at);
    }

    fn is_zero(&self) -> bool {
        self.max == 0 && self.tails == 0
    }
}

/// Messages that a row counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SiteLossScope {
    /// Messages of all subjects of a publisher, or of unknown publishers.
    Publisher,
    /// Messages of this subject.
    Subject(Subject),
    /// Messages of further publishers and subjects.
    Others,
    /// Messages of unknown publishers and subjects, behind the last ones that are known.
    Tail,
}

/// A row of `show loss` about another site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteLossRow {
    pub(crate) site: SiteName,
    /// The publisher in the other site; `None` if it is not known.
    pub(crate) publisher: Option<RemotePublisher>,
    pub(crate) scope: SiteLossScope,
    pub(crate) tally: SiteTally,
}

/// Losses of one publisher in another site.
#[derive(Debug, Default)]
struct PublisherOfSite {
    name: Option<PeerName>,
    subjects: BTreeMap<Subject, SiteTally>,
}

/// Losses of one site.
#[derive(Debug, Default)]
struct LossesOfSite {
    publishers: BTreeMap<Epoch, PublisherOfSite>,
    /// Losses of all further streams.
    others: SiteTally,
    tails: SiteTally,
    /// The gateway of the last tail, and the time.
    last_tail: Option<(Epoch, Instant)>,
}

/// Losses of messages of other sites, since this peer has listened to the reports.
#[derive(Debug)]
pub(crate) struct SiteLosses {
    sites: BTreeMap<SiteName, LossesOfSite>,
    /// Number of streams of all sites.
    streams: usize,
    streams_max: usize,
    /// Number of reports counted for other streams of their sites, or not at all, because there are too many.
    pub(crate) unlisted: u64,
}

impl Default for SiteLosses {
    fn default() -> SiteLosses {
        SiteLosses::new(STREAMS_MAX)
    }
}

impl SiteLosses {
    fn new(streams_max: usize) -> SiteLosses {
        SiteLosses { sites: BTreeMap::new(), streams: 0, streams_max, unlisted: 0 }
    }

    /// Counts a reported loss. Returns false if it belongs to a site for which there is no room.
    pub(crate) fn on_loss(&mut self, now: ClockReading, loss: &SiteLoss) -> bool {
        let SiteLoss { origin, subject, count, .. } = loss;
        let is_full = self.streams_max <= self.streams;
        let Some(site) = self.site(&origin.site) else { return false };
        let publisher = site.publishers.get(&origin.publisher.epoch);
        let is_known = publisher.is_some_and(|publisher| publisher.subjects.contains_key(subject));
        let tally = if is_full && !is_known {
            &mut site.others
        } else {
            let publisher = site.publishers.entry(origin.publisher.epoch).or_default();
            publisher.name = origin.publisher.name.clone().or(publisher.name.take());
            publisher.subjects.entry(subject.clone()).or_default()
        };
        tally.add(SiteTally { min: count.min(), max: count.max(), tails: 0, at: Some(now.wall) });
        match (is_known, is_full) {
            (true, _) => {}
            (false, true) => self.unlisted += 1,
            (false, false) => self.streams += 1,
        }
        true
    }

    /// Counts a reported tail. Returns false if another gateway has reported it, or if there is no room for the site.
    pub(crate) fn on_tail(&mut self, now: ClockReading, tail: &SiteTail) -> bool {
        let Some(site) = self.site(&tail.site) else { return false };
        let is_repeated =
            site.last_tail.is_some_and(|(gateway, at)| gateway == tail.gateway && now.instant.since(at) < TAIL_TIME);
        if !is_repeated {
            site.last_tail = Some((tail.gateway, now.instant));
            site.tails.add(SiteTally { tails: 1, at: Some(now.wall), ..SiteTally::default() });
        }
        !is_repeated
    }

    fn site(&mut self, name: &SiteName) -> Option<&mut LossesOfSite> {
        if SITES_MAX <= self.sites.len() && !self.sites.contains_key(name) {
            self.unlisted += 1;
            return None;
        }
        Some(self.sites.entry(name.clone()).or_default())
    }

    /// Returns a row for each publisher of each site, and one for what is not known of a publisher. Rows of a site are
    /// together, most lost messages first.
    pub(crate) fn rows(&self) -> Vec<SiteLossRow> {
        self.sites.iter().flat_map(|(site, losses)| sorted(losses.publisher_rows(site))).collect()
    }

    /// Returns a row for each stream, and the further ones that [`SiteLossScope`] has, in the same order.
    pub(crate) fn rows_by_subject(&self) -> Vec<SiteLossRow> {
        self.sites.iter().flat_map(|(site, losses)| sorted(losses.subject_rows(site))).collect()
    }
}

impl LossesOfSite {
    fn publisher_rows(&self, site: &SiteName) -> Vec<SiteLossRow> {
        let mut unknown = self.others;
        unknown.add(self.tails);
        let of_publisher = |(epoch, losses): (&Epoch, &PublisherOfSite)| {
            let mut tally = SiteTally::default();
            losses.subjects.values().for_each(|of_subject| tally.add(*of_subject));
            let publisher = RemotePublisher { epoch: *epoch, name: losses.name.clone() };
            SiteLossRow { site: site.clone(), publisher: Some(publisher), scope: SiteLossScope::Publisher, tally }
        };
        let unknown =
            SiteLossRow { site: site.clone(), publisher: None, scope: SiteLossScope::Publisher, tally: unknown };
        self.publishers.iter().map(of_publisher).chain([unknown]).filter(|row| !row.tally.is_zero()).collect()
    }

    fn subject_rows(&self, site: &SiteName) -> Vec<SiteLossRow> {
        let row = |publisher, scope, tally| SiteLossRow { site: site.clone(), publisher, scope, tally };
        let of_publisher = |(epoch, losses): (&Epoch, &PublisherOfSite)| -> Vec<SiteLossRow> {
            let publisher = RemotePublisher { epoch: *epoch, name: losses.name.clone() };
            let rows = losses.subjects.iter();
            rows.map(|(subject, tally)| row(Some(publisher.clone()), SiteLossScope::Subject(subject.clone()), *tally))
                .collect()
        };
        let further = [row(None, SiteLossScope::Others, self.others), row(None, SiteLossScope::Tail, self.tails)];
        self.publishers.iter().flat_map(of_publisher).chain(further).filter(|row| !row.tally.is_zero()).collect()
    }
}

fn sorted(mut rows: Vec<SiteLossRow>) -> Vec<SiteLossRow> {
    rows.sort_by_key(|row| Reverse((row.tally.min, row.tally.max, row.tally.tails)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::site_loss::SiteReport;

    fn now(millis: u64) -> ClockReading {
        let instant = Instant::ZERO + Duration::from_millis(millis);
        ClockReading { instant, wall: WallTime::from_nanos(1_000_000_000 + millis * 1_000_000) }
    }

    fn loss(site: &str, publisher: u64, subject: &str, count: Count) -> SiteLoss {
        let origin = format!("{site} 6b1f90a2c3d4e5f6 3 1207 1102 18 {publisher:016x} A.test - - -");
        let max = Some(count.max()).filter(|max| *max != u64::MAX);
        let report = serde_json::json!({
            "origin": origin, "subject": subject, "follows": true, "lost_min": count.min(), "lost_max": max,
        });
        match SiteReport::from_json(report.to_string().as_bytes()) {
            Some(SiteReport::Loss(loss)) => *loss,
            other => panic!("{other:?}"),
        }
    }

    fn tail(site: &str, gateway: u64) -> SiteTail {
        SiteTail { site: site.parse().unwrap(), gateway: Epoch::new(gateway).unwrap() }
    }

    /// Returns rows as texts: site, epoch of the publisher, scope, lost, tails.
    fn texts(rows: Vec<SiteLossRow>) -> Vec<String> {
        let text = |row: SiteLossRow| {
            let publisher = row
                .publisher
                .map_or("-".to_owned(), |publisher| publisher.epoch.to_string().trim_start_matches('0').to_owned());
            let scope = match row.scope {
                SiteLossScope::Subject(subject) => subject.to_string(),
                other => format!("{other:?}"),
            };
            let lost = row.tally.lost();
            let max = if lost.max() == u64::MAX { "-".to_owned() } else { lost.max().to_string() };
            format!("{} {publisher} {scope} {}..{max} {}", row.site, lost.min(), row.tally.tails)
        };
        rows.into_iter().map(text).collect()
    }

    #[test]
    fn losses_have_rows_by_publisher_and_subject() {
        let mut losses = SiteLosses::new(3);
        for (site, publisher, subject, count) in [
            ("plant1", 7, "a", Count::Exact(3)),
            ("plant1", 7, "b", Count::from_bounds(1, 9)),
            ("plant1", 8, "a", Count::Exact(40)),
            ("plant1", 7, "a", Count::Exact(2)),
            ("plant1", 9, "a", Count::Exact(5)),
            ("hq", 1, "c", Count::from_bounds(0, u64::MAX)),
        ] {
            assert!(losses.on_loss(now(0), &loss(site, publisher, subject, count)));
        }
        assert_eq!(
            texts(losses.rows()),
            [
                "hq - Publisher 0..- 0",
                "plant1 8 Publisher 40..40 0",
                "plant1 7 Publisher 6..14 0",
                "plant1 - Publisher 5..5 0"
            ]
        );
        assert_eq!(
            texts(losses.rows_by_subject()),
            [
                "hq - Others 0..- 0",
                "plant1 8 a 40..40 0",
                "plant1 7 a 5..5 0",
                "plant1 - Others 5..5 0",
                "plant1 7 b 1..9 0"
            ]
        );
        assert_eq!(losses.unlisted, 2);
    }

    #[test]
    fn tail_that_several_gateways_report_counts_once() {
        let mut losses = SiteLosses::default();
        assert!(losses.on_tail(now(0), &tail("plant1", 7)));
        assert!(!losses.on_tail(now(3_000), &tail("plant1", 7)));
        assert!(losses.on_tail(now(4_000), &tail("plant1", 8)));
        assert!(losses.on_tail(now(40_000), &tail("plant1", 8)), "it has returned and ended again");
        assert_eq!(texts(losses.rows()), ["plant1 - Publisher 0..- 3"]);
        assert_eq!(texts(losses.rows_by_subject()), ["plant1 - Tail 0..- 3"]);
    }

    #[test]
    fn number_of_sites_is_bounded() {
        let mut losses = SiteLosses::default();
        for number in 0..SITES_MAX {
            assert!(losses.on_tail(now(0), &tail(&format!("s{number}"), 7)));
        }
        assert!(!losses.on_tail(now(0), &tail("more", 7)));
        assert!(!losses.on_loss(now(0), &loss("more", 7, "a", Count::Exact(1))));
        assert!(losses.on_loss(now(0), &loss("s7", 7, "a", Count::Exact(1))));
        assert_eq!((losses.rows().len(), losses.unlisted), (SITES_MAX + 1, 2));
    }
}
