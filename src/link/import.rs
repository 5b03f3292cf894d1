//! The account of a site that imports from others: which message is delivered, and how many are missing.
//!
//! An importer is owed the messages that a gateway counts after the importer has first heard of the gateway. It keeps
//! the last point of each stream: a later point of a message or of a manifest proves what is missing in between.

use super::bye::GatewayBye;
use super::envelope::LinkEnvelope;
use super::export::LinkStreamKey;
use super::imported_stream::ImportedStream;
use super::manifest::{LinkManifest, ManifestEntry};
use super::position::{StreamPoint, one_more, sum};
use super::received_share::ReceivedShare;
use super::shares::{SHARES, share_of};
use super::site_loss::{SiteLoss, SiteTail};
use super::site_name::SiteName;
use crate::message::{Count, Epoch};
use crate::subject::Subject;
use lru::LruCache;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// Maximum number of streams that are remembered. The site with the most streams loses its oldest one first. The
/// account of an evicted stream begins anew: the loss before its next message is a range that begins with 0, and a
/// gateway that dies then may cause repeated messages of it.
pub const IMPORTED_STREAMS_MAX: usize = 262_144;
/// Maximum number of sites that are remembered. Messages of further sites are refused.
pub const SITES_MAX: usize = 256;
/// Maximum number of gateways of a site that are remembered.
pub const SITE_GATEWAYS_MAX: usize = 64;

/// Maximum number of losses that wait for the next manifest of their share. Further ones are not reported.
const GIVEN_UP_MAX: usize = 65_536;

/// Number of whole rounds after the first contact with a gateway from which that one accounts for the messages of a
/// dead one. Their connections differ, so a single round could be older than the contact.
const SETTLED_ROUNDS: usize = 3;

/// Outcome of a message from the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    /// The message is delivered. If messages are missing before it, their loss is reported first.
    Deliver(Option<SiteLoss>),
    /// The message is from this site. It is dropped.
    OwnSite,
    /// The message was delivered before, or its loss was reported. It is dropped.
    Repeated,
    /// There are [`SITES_MAX`] other sites. The message is dropped.
    TooManySites,
}

/// A round of manifests that this site needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundRequest {
    /// The gateway.
    pub gateway: Epoch,
    /// The share.
    pub share: u8,
    /// The round names the streams with messages behind this number.
    pub after: u64,
}

/// Outcome of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedManifest {
    /// Losses that the manifest proves.
    pub losses: Vec<SiteLoss>,
    /// Request to the gateway, if an earlier manifest was lost.
    pub request: Option<RoundRequest>,
}

/// Whether a gateway still accounts for what it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GatewayLife {
    Living,
    /// No manifest of it has come yet, or it counts as dead. If it sends manifests, it lives.
    #[default]
    Silent,
    /// It has said that it ends. A later manifest is a repeated one.
    Left,
}

/// State of a gateway.
#[derive(Debug, Default)]
struct ReceivedGateway {
    shares: [Option<ReceivedShare>; SHARES as usize],
    life: GatewayLife,
}

/// How far the account of a share of a site is complete.
#[derive(Clone, Copy, Debug)]
struct SiteContact {
    /// Contact with the gateway with which the account began.
    since: u64,
    /// Whether this is the first account of the site.
    is_first: bool,
    /// Events at which the last whole rounds had arrived, oldest first.
    settled: [u64; SETTLED_ROUNDS],
}

/// State of another site.
#[derive(Debug)]
struct SiteLedger {
    gateways: LruCache<Epoch, ReceivedGateway>,
    /// Contact with the site, for each share.
    contacts: [Option<SiteContact>; SHARES as usize],
    /// Account of each stream.
    streams: LruCache<LinkStreamKey, ImportedStream>,
}

/// The ledger of a site that imports from others.
#[derive(Debug)]
pub struct ImportLedger {
    own: SiteName,
    sites: BTreeMap<SiteName, SiteLedger>,
    /// Number of streams of all sites, and its limit.
    streams: usize,
    streams_max: usize,
    /// Number of messages and manifests so far.
    events: u64,
    /// Losses that the next manifests of their shares report: the gateways that knew their number have ended.
    given_up: Vec<SiteLoss>,
}

impl ImportLedger {
    /// Creates the ledger of this site, which has received nothing yet.
    pub fn new(own: SiteName) -> ImportLedger {
        ImportLedger::with_limit(own, IMPORTED_STREAMS_MAX)
    }

    /// Creates the ledger with this maximum number of streams.
    pub(super) fn with_limit(own: SiteName, streams_max: usize) -> ImportLedger {
        ImportLedger { own, sites: BTreeMap::new(), streams: 0, streams_max, events: 0, given_up: Vec::new() }
    }

    /// Accounts for a message.
    pub fn on_message(&mut self, envelope: &LinkEnvelope, subject: &Subject) -> Imported {
        let LinkEnvelope { site, share, publisher, point, .. } = envelope;
        if *site == self.own {
            return Imported::OwnSite;
        }
        let Some(received) = self.contact(envelope) else { return Imported::TooManySites };
        let Some(ledger) = self.site(site) else { return Imported::TooManySites };
        let key = LinkStreamKey { publisher: publisher.epoch, subject: subject.clone() };
        let missing = match ledger.on_point(*share, &received, &key, point, 1) {
            Some(PointOutcome::Covered) => return Imported::Repeated,
            Some(PointOutcome::Later(missing)) => missing,
            None => {
                let (missing, stream) = ledger.begin_stream(*share, &received, point, 1, 0);
                self.insert(site, key, stream);
                missing
            }
        };
        let loss = |count| SiteLoss::of_live(envelope.clone(), subject.clone(), count, true);
        Imported::Deliver(Some(missing).filter(|missing| 0 < missing.max()).map(loss))
    }

    /// Notes that another gateway of this site has delivered a message to the LAN. That one has reported what was lost
    /// before it.
    pub fn on_imported(&mut self, envelope: &LinkEnvelope, subject: &Subject) {
        let LinkEnvelope { site, publisher, point, .. } = envelope;
        if *site == self.own || self.contact(envelope).is_none() {
            return;
        }
        let key = LinkStreamKey { publisher: publisher.epoch, subject: subject.clone() };
        match self.site(site).and_then(|ledger| ledger.streams.get_mut(&key)) {
            Some(stream) if stream.last.precedes(point) => stream.skip_to(*point),
            Some(_) => {}
            None => self.insert(site, key, ImportedStream::new(*point)),
        }
    }

    /// Notes the contact with the gateway of a message. Returns its state of the share; `None` if there are too many
    /// sites.
    fn contact(&mut self, envelope: &LinkEnvelope) -> Option<ReceivedShare> {
        let LinkEnvelope { site, share, number, point, .. } = envelope;
        self.events += 1;
        let first = ReceivedShare::new(number - 1, number - 1, self.events);
        let received = self.site(site)?.share(point.gateway, *share, first);
        received.highest = received.highest.max(*number);
        Some(*received)
    }

    /// Accounts for a manifest. Reports the losses of the streams whose subject `wants` selects.
    pub fn on_manifest(&mut self, manifest: &LinkManifest, wants: impl Fn(&Subject) -> bool) -> ImportedManifest {
        let LinkManifest { site, gateway, share: index, named_to, received, part, parts, entries, .. } = manifest;
        self.events += 1;
        let events = self.events;
        let Some(ledger) = Some(site).filter(|site| **site != self.own).and_then(|site| self.site(site)) else {
            return ImportedManifest::default();
        };
        let unknown = ReceivedShare::new(*received, *named_to, events);
        let share = ledger.share(*gateway, *index, unknown);
        let is_settled = share.on_part(manifest) && named_to == received;
        share.awaited_rounds = share.awaited_rounds.saturating_sub(usize::from(is_settled));
        share.follows_death &= share.awaited_rounds != 0;
        share.on_received(*received);
        let share = *share;
        if is_settled && ledger.is_complete(*index, &share) {
            ledger.settle(*index, events);
        }
        let is_due = |loss: &mut SiteLoss| loss.origin.site == *site && loss.origin.share == *index;
        let mut losses: Vec<SiteLoss> = self.given_up.extract_if(.., is_due).collect();
        for entry in entries.iter().filter(|entry| wants(&entry.subject)) {
            if let Some(count) = self.on_entry(manifest, &share, entry) {
                let (publisher, number, point) = (entry.publisher.clone(), entry.last_number, entry.last);
                let origin = LinkEnvelope { site: site.clone(), share: *index, number, publisher, point };
                losses.push(SiteLoss::of_live(origin, entry.subject.clone(), count, false));
            }
        }
        let is_behind =
            part + 1 == *parts && share.named_to < if share.awaited_rounds == 0 { *named_to } else { *received };
        let request = RoundRequest { gateway: *gateway, share: *index, after: share.named_to };
        ImportedManifest { losses, request: is_behind.then_some(request) }
    }

    /// Notes that a gateway has died. Returns the loss of an unknown number of messages, unless another gateway of the
    /// site was heard before the last streams were named: that one accounts for the rest.
    pub fn on_gateway_end(&mut self, site: &SiteName, gateway: Epoch) -> Option<SiteTail> {
        let events = self.events;
        self.give_up(site, gateway);
        let ledger = self.sites.get_mut(site)?;
        let ended = ledger.gateways.peek_mut(&gateway).filter(|gateway| gateway.life == GatewayLife::Living)?;
        ended.life = GatewayLife::Silent;
        let heard = ended.shares.map(|share| share.is_some());
        let mut is_open = false;
        for share in (0..SHARES).filter(|share| heard[usize::from(*share)]) {
            if !ledger.await_rounds(share, true) {
                ledger.begin_anew(share, events);
                is_open = true;
            }
        }
        is_open.then(|| SiteTail { site: site.clone(), gateway })
    }

    /// Notes that a gateway has left. Returns the loss of an unknown number of messages if its last rounds did not
    /// arrive, unless another gateway of the site was heard early enough: that one accounts for the rest.
    pub fn on_bye(&mut self, bye: &GatewayBye) -> Option<SiteTail> {
        let events = self.events;
        self.give_up(&bye.site, bye.gateway);
        let ledger = self.sites.get_mut(&bye.site)?;
        let left = ledger.gateways.peek_mut(&bye.gateway).filter(|gateway| gateway.life != GatewayLife::Left)?;
        left.life = GatewayLife::Left;
        let mut is_open = false;
        for (share, (received, named_to)) in (0..SHARES).zip(left.shares.into_iter().zip(bye.named_to)) {
            let Some(received) = received else { continue };
            let is_whole = match named_to {
                Some(named_to) => named_to <= received.named_to,
                // It was to account for a dead gateway.
                None => !received.follows_death,
            };
            if ledger.complete_gateways(share).next().is_none() {
                ledger.begin_anew(share, events);
                is_open |= !is_whole;
            } else if !is_whole {
                ledger.await_rounds(share, true);
            }
        }
        is_open.then(|| SiteTail { site: bye.site.clone(), gateway: bye.gateway })
    }

    /// Notes that a manifest of a gateway has come, although it may wait before [`ImportLedger::on_manifest`]: the gateway
    /// lives.
    pub fn on_heard(&mut self, site: &SiteName, gateway: Epoch) {
        if *site != self.own
            && let Some(ledger) = self.site(site)
        {
            ledger.revive(gateway);
        }
    }

    /// Reports what only a gateway knew that has ended.
    fn give_up(&mut self, site: &SiteName, gateway: Epoch) {
        let Some(ledger) = self.sites.get_mut(site) else { return };
        for (key, stream) in ledger.streams.iter_mut() {
            if let Some(count) = stream.give_up(gateway)
                && self.given_up.len() < GIVEN_UP_MAX
            {
                self.given_up.push(stream.loss(site, key, count));
            }
        }
    }

    /// Ends the open accounts of shares that another gateway of this site carries from now on. Returns what may be lost.
    pub fn give_up_shares(&mut self, shares: &[u8]) -> Vec<SiteLoss> {
        let mut losses = Vec::new();
        for (site, ledger) in &mut self.sites {
            let of_shares = ledger.streams.iter_mut().filter(|(key, _)| shares.contains(&share_of(&key.subject)));
            for (key, stream) in of_shares {
                if let Some(count) = stream.give_up_open() {
                    losses.push(stream.loss(site, key, count));
                }
            }
        }
        losses
    }

    /// Returns the number of messages of a named stream that are missing.
    fn on_entry(&mut self, manifest: &LinkManifest, received: &ReceivedShare, entry: &ManifestEntry) -> Option<Count> {
        let key = LinkStreamKey { publisher: entry.publisher.epoch, subject: entry.subject.clone() };
        let ledger = self.site(&manifest.site)?;
        let missing = match ledger.on_point(manifest.share, received, &key, &entry.last, 0) {
            Some(PointOutcome::Covered) => return None,
            Some(PointOutcome::Later(missing)) => missing,
            None => {
                let owed = entry.last_number.saturating_sub(received.baseline);
                let (missing, stream) = ledger.begin_stream(manifest.share, received, &entry.last, 0, owed);
                self.insert(&manifest.site, key, stream);
                missing
            }
        };
        Some(missing).filter(|missing| 0 < missing.max())
    }

    /// Returns the ledger of a site; `None` if there are too many sites.
    fn site(&mut self, site: &SiteName) -> Option<&mut SiteLedger> {
        if !self.sites.contains_key(site) {
            if SITES_MAX <= self.sites.len() {
                return None;
            }
            let gateways = LruCache::new(NonZeroUsize::new(SITE_GATEWAYS_MAX).expect("the limit is not 0"));
            let ledger = SiteLedger { gateways, contacts: Default::default(), streams: LruCache::unbounded() };
            self.sites.insert(site.clone(), ledger);
        }
        self.sites.get_mut(site)
    }

    /// Begins the account of a stream of a known site.
    fn insert(&mut self, site: &SiteName, key: LinkStreamKey, stream: ImportedStream) {
        if self.streams_max <= self.streams
            && let Some(largest) = self.sites.values_mut().max_by_key(|site| site.streams.len())
            && let Some((key, evicted)) = largest.streams.pop_lru()
        {
            self.streams -= 1;
            largest.on_eviction(share_of(&key.subject), &evicted.last);
        }
        if let Some(ledger) = self.sites.get_mut(site) {
            self.streams += usize::from(ledger.streams.put(key, stream).is_none());
        }
    }
}

/// Outcome of a point of a known stream.
enum PointOutcome {
    /// It is not later than the last one.
    Covered,
    /// This number of messages is missing.
    Later(Count),
}

impl SiteContact {
    fn new(event: u64) -> SiteContact {
        SiteContact { since: event, is_first: true, settled: [event; SETTLED_ROUNDS] }
    }
}

impl SiteLedger {
    /// Returns the state of a share of a gateway; at first contact it is `first`. All gateways heard in the
    /// first rounds of a site count as heard at once. The account of a later one is complete once rounds of the earlier
    /// ones have arrived.
    fn share(&mut self, gateway: Epoch, share: u8, mut first: ReceivedShare) -> &mut ReceivedShare {
        let site = *self.contacts[usize::from(share)].get_or_insert(SiteContact::new(first.contact));
        let is_early = site.is_first && site.settled[0] == site.since;
        if is_early {
            first.contact = site.since;
        }
        let known = self.gateways.get_or_insert_mut(gateway, ReceivedGateway::default);
        if known.shares[usize::from(share)].is_none() && !is_early && !self.await_rounds(share, false) {
            // Everything before it was named, or is reported as a tail.
            self.begin_anew(share, first.contact);
        }
        let known = self.gateways.get_or_insert_mut(gateway, ReceivedGateway::default);
        known.shares[usize::from(share)].get_or_insert(first)
    }

    /// Notes that a gateway that was silent sends manifests again, so that its next end is noticed. Messages do not
    /// count: they may be late, and nobody watches a gateway that sends no manifests.
    fn revive(&mut self, gateway: Epoch) {
        if let Some(gateway) = self.gateways.peek_mut(&gateway)
            && gateway.life == GatewayLife::Silent
        {
            gateway.life = GatewayLife::Living;
        }
    }

    /// Accounts for a point of a stream: of a message if `delivered` is 1, of a manifest if it is 0. Returns `None` if
    /// nothing is known of the stream.
    fn on_point(
        &mut self,
        share: u8,
        received: &ReceivedShare,
        key: &LinkStreamKey,
        point: &StreamPoint,
        delivered: u64,
    ) -> Option<PointOutcome> {
        let SiteLedger { gateways, contacts, streams } = self;
        let contact = contacts[usize::from(share)];
        let (since, settled) = contact.map_or((0, 0), |site| (site.since, site.settled[0]));
        let is_complete = |gateway| {
            let gateway = gateways.peek(&gateway).filter(|gateway| gateway.life == GatewayLife::Living);
            let received = gateway.and_then(|gateway| gateway.shares[usize::from(share)]);
            received.is_some_and(|received| received.contact <= settled)
        };
        let stream = streams.get_mut(key)?;
        let mut missing = Count::Exact(0);
        if delivered == 0 && stream.last.precedes(point) {
            missing = one_more(Some(stream.advance(*point, is_complete)));
        } else if delivered != 0 && !point.is_covered_by(&stream.last) {
            missing = stream.advance(*point, is_complete);
        } else if delivered != 0 {
            return Some(PointOutcome::Covered);
        }
        let missing = sum(missing, stream.close(point, received, since, settled, is_complete));
        if stream.is_open() {
            self.await_rounds(share, false);
        }
        Some(PointOutcome::Later(missing))
    }

    /// Begins the account of a stream with this point, which was delivered or is missing. Returns the number of missing
    /// messages; at most `owed` of them precede the first contact with the gateway.
    fn begin_stream(
        &mut self,
        share: u8,
        received: &ReceivedShare,
        point: &StreamPoint,
        delivered: u64,
        owed: u64,
    ) -> (Count, ImportedStream) {
        let counted = received.missing_at_first(point, point.ordinal - delivered, owed);
        if self.is_complete(share, received) || point.first_number <= received.evicted_to {
            return (counted, ImportedStream::new(*point));
        }
        if self.complete_gateways(share).next().is_none() {
            return (sum(counted, Count::from_bounds(0, u64::MAX)), ImportedStream::new(*point));
        }
        let counted = if counted.is_exact() { counted.min() } else { 0 };
        let settled = self.contacts[usize::from(share)].map_or(0, |site| site.settled[0]);
        let stream = ImportedStream::open(*point, received, settled, counted.saturating_add(delivered));
        (Count::Exact(counted), stream)
    }

    /// Returns whether all messages before the first contact with a gateway have been named, so that its account is
    /// complete.
    fn is_complete(&self, share: u8, received: &ReceivedShare) -> bool {
        self.contacts[usize::from(share)].is_some_and(|site| received.contact <= site.settled[0])
    }

    /// Returns the states of a share at the living gateways whose account of it is complete.
    fn complete_gateways(&mut self, share: u8) -> impl Iterator<Item = &mut ReceivedShare> {
        let settled = self.contacts[usize::from(share)].map_or(0, |site| site.settled[0]);
        let living = self.gateways.iter_mut().filter(|(_, gateway)| gateway.life == GatewayLife::Living);
        let shares = living.filter_map(move |(_, gateway)| gateway.shares[usize::from(share)].as_mut());
        shares.filter(move |received| received.contact <= settled)
    }

    /// Begins the account of a share anew, with the living gateway that was heard first. It alone knows what it has
    /// counted before the others were heard. Without one, the account begins at this event.
    fn begin_anew(&mut self, share: u8, event: u64) {
        let living = self.gateways.iter().filter(|(_, gateway)| gateway.life == GatewayLife::Living);
        let heard =
            living.filter_map(|(_, gateway)| gateway.shares[usize::from(share)]).map(|received| received.contact);
        let since = heard.min().unwrap_or(event);
        self.contacts[usize::from(share)] = Some(SiteContact { is_first: false, ..SiteContact::new(since) });
        self.await_rounds(share, false);
    }

    /// Awaits rounds of the living gateways whose account of a share is complete. Returns false if there are none.
    fn await_rounds(&mut self, share: u8, follows_death: bool) -> bool {
        let awaited = self.complete_gateways(share).map(|received| {
            received.awaited_rounds = SETTLED_ROUNDS;
            received.follows_death |= follows_death;
        });
        awaited.count() != 0
    }

    /// Notes that a stream was evicted, so that it does not count as a new one later.
    fn on_eviction(&mut self, share: u8, last: &StreamPoint) {
        for (gateway, received) in self.gateways.iter_mut() {
            let Some(received) = &mut received.shares[usize::from(share)] else { continue };
            if *gateway == last.gateway {
                received.evicted_to = received.evicted_to.max(last.first_number);
            } else {
                (received.evicted_to, received.is_evicting) = (received.highest, true);
            }
        }
    }

    /// Notes a whole round that names everything up to now.
    fn settle(&mut self, share: u8, event: u64) {
        if let Some(site) = &mut self.contacts[usize::from(share)] {
            site.settled.rotate_left(1);
            site.settled[SETTLED_ROUNDS - 1] = event;
        }
    }
}
