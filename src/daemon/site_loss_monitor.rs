//! Losses of messages of other sites: the peer subscribes to the reports of the gateways of its LAN, counts them, and
//! publishes advisories about them on this host.

use super::advisories::{self, SiteAdvisory};
use super::clients::ClientTransport;
use super::engine_core::EngineCore;
use super::mailbox::SubscriptionRequest;
use super::site_losses::SiteLosses;
use super::subscription_queue::{NoticeRef, QueueLimits, SubscriptionQueue};
use crate::link::envelope::RemotePublisher;
use crate::link::site_loss::SiteReport;
use crate::link::site_name::SiteName;
use crate::link::system_messages::{ANNOUNCE_SUBJECT, GATEWAY_SUBJECTS, LOSS_SUBJECT};
use crate::message::{DeliveryMode, Epoch, Publisher, Reason, SubId, SubscriptionFilter};
use crate::proto::advisory::{AdvisoryStream, INBOUND_BCAST, Throttle};
use crate::subject::{Pattern, Subject};
use crate::time::{ClockReading, Instant};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// Interval between two looks whether the LAN has a gateway.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Limits of the queue of reports. Each turn of the engine empties it.
const LIMITS: QueueLimits = QueueLimits { count_max: 16_384, bytes_max: 4 << 20 };
/// Maximum number of publishers in other sites with advisories of their own. Those about further ones name the site
/// alone.
const ADVISED_MAX: usize = 1024;

/// The publisher, or the site with unknown publishers, that an advisory is about.
type AdvisedOrigin = (SiteName, Option<Epoch>);

/// Sums of the losses of one origin until its next advisory.
#[derive(Debug)]
struct SiteThrottle {
    throttle: Throttle,
    publisher: Option<RemotePublisher>,
    /// Number of tails since the last advisory.
    tails: u64,
    /// Time until which the origin keeps its place, so that its next advisory comes at most once an interval.
    kept_until: Instant,
}

/// The losses of messages of other sites, as far as this peer knows them.
#[derive(Debug)]
pub(crate) struct SiteLossMonitor {
    losses: SiteLosses,
    /// Reports of the gateways, once the LAN has one.
    reports: Option<Arc<SubscriptionQueue>>,
    /// Time of the next look for a gateway; `None` after the last one.
    look_at: Option<Instant>,
    throttles: BTreeMap<AdvisedOrigin, SiteThrottle>,
}

impl SiteLossMonitor {
    /// Creates the monitor of a peer that starts now.
    pub(crate) fn new(now: Instant) -> SiteLossMonitor {
        SiteLossMonitor { losses: SiteLosses::default(), reports: None, look_at: Some(now), throttles: BTreeMap::new() }
    }

    /// Returns the losses.
    pub(crate) fn losses(&self) -> &SiteLosses {
        &self.losses
    }

    /// Returns the time of the next advisory.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.throttles.values().filter_map(|origin| origin.throttle.deadline()).min()
    }

    /// Looks for a gateway, or counts what the gateways have reported, and publishes the advisories that are due.
    /// `is_gateway` says whether this peer is one.
    pub(crate) fn on_turn(&mut self, core: &mut EngineCore, is_gateway: bool, now: ClockReading) {
        if self.look_at.is_some_and(|at| at <= now.instant) {
            self.look_at = Some(now.instant + LOOK_INTERVAL);
            if is_gateway || is_any_gateway_known(core) {
                self.look_at = None;
                self.subscribe(core, now);
            }
        }
        let Some(reports) = self.reports.clone() else { return };
        let subjects_max = core.peer.settings().advisory_subjects_max;
        // It fails if nothing waits.
        let _ = reports.drain(|notice| match notice {
            NoticeRef::Message(delivery) => self.on_report(now, delivery.payload, subjects_max),
            NoticeRef::Dropped(count) => self.losses.unlisted += count,
            NoticeRef::Loss(_) | NoticeRef::Joined(_) => {}
        });
        if self.deadline().is_some_and(|at| at <= now.instant) {
            self.advise(core, now);
        }
    }

    fn subscribe(&mut self, core: &mut EngineCore, now: ClockReading) {
        let client = core.clients.add(now, "sites".into(), ClientTransport::Embedded(BTreeMap::new()));
        let queue = Arc::new(SubscriptionQueue::new(LIMITS));
        let wanted = SubscriptionFilter::from(LOSS_SUBJECT.parse::<Pattern>().expect("a constant that is a pattern"));
        let request = SubscriptionRequest { wanted, mode: Some(DeliveryMode::Repair), wants_discovery: false };
        match core.subscribe(now, client, SubId(0), request, Arc::clone(&queue)) {
            Ok(()) => self.reports = Some(queue),
            Err(refusal) => {
                tracing::info!(?refusal, "losses of other sites stay unknown: no subscription to {LOSS_SUBJECT}");
                core.detach(now, client);
            }
        }
    }

    fn on_report(&mut self, now: ClockReading, report: &[u8], subjects_max: usize) {
        match SiteReport::from_json(report) {
            Some(SiteReport::Loss(loss)) if self.losses.on_loss(now, &loss) => {
                let sums = self.throttle(now.instant, &loss.origin.site, Some(&loss.origin.publisher));
                sums.throttle.on_lost(&loss.subject, loss.count, Reason::Reported, &[], subjects_max);
            }
            Some(SiteReport::Tail(tail)) if self.losses.on_tail(now, &tail) => {
                let sums = self.throttle(now.instant, &tail.site, None);
                sums.tails += 1;
                sums.throttle.on_tail(Reason::Reported);
            }
            _ => {}
        }
    }

    /// Returns the sums of a publisher in another site, or those of the site. The number of sites is bounded before.
    fn throttle(&mut self, now: Instant, site: &SiteName, publisher: Option<&RemotePublisher>) -> &mut SiteThrottle {
        if ADVISED_MAX <= self.throttles.len() {
            self.throttles.retain(|_, origin| origin.throttle.deadline().is_some() || now < origin.kept_until);
        }
        let has_room = self.throttles.len() < ADVISED_MAX;
        let is_known = |publisher: &&RemotePublisher| {
            has_room || self.throttles.contains_key(&(site.clone(), Some(publisher.epoch)))
        };
        let publisher = publisher.filter(is_known);
        match self.throttles.entry((site.clone(), publisher.map(|publisher| publisher.epoch))) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(SiteThrottle {
                throttle: Throttle::new(AdvisoryStream::Bcast),
                publisher: publisher.cloned(),
                tails: 0,
                kept_until: now,
            }),
        }
    }

    fn advise(&mut self, core: &mut EngineCore, now: ClockReading) {
        let (interval, scid) = (core.peer.settings().advisory_interval, core.peer.settings().group);
        let me = core.me();
        let subject: Subject = INBOUND_BCAST.parse().expect("a constant that is a subject");
        for ((site, _), origin) in &mut self.throttles {
            let publisher = Publisher { name: None, ..me.clone() };
            let Some(sums) = origin.throttle.take_due(now.instant, interval, false, &publisher, scid) else { continue };
            origin.kept_until = now.instant + interval;
            let tails = std::mem::take(&mut origin.tails);
            if let Some(to) = core.peer.targets(&subject) {
                let advisory = SiteAdvisory { site, publisher: origin.publisher.as_ref(), tails, sums: &sums };
                core.clients.advise(now, &to, advisories::site_delivery(&advisory, me.clone()));
            }
        }
    }
}

/// Returns whether a client of another peer subscribes to the messages of gateways, as gateways alone do.
fn is_any_gateway_known(core: &mut EngineCore) -> bool {
    let subject: Subject = ANNOUNCE_SUBJECT.parse().expect("a constant that is a subject");
    let pattern: Pattern = GATEWAY_SUBJECTS.parse().expect("a constant that is a pattern");
    core.peer.is_subscribed_elsewhere(&subject, &pattern)
}
