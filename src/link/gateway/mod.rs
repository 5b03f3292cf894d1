//! A gateway: what it does with each message of its LAN and of the cluster.
//!
//! It exports and imports the shares that it carries, and retains the last messages of the others, so that it can
//! continue where another gateway of its site ends.
//!
//! Messages of the cluster wait in a queue until the LAN takes the next one. Only then does the gateway account for
//! them, if it still carries their shares. So a message for which the queue has no room counts as lost, and one that
//! waits while another gateway takes over is not delivered by both.

mod announcing;
mod events;
mod importing;
mod manifests;
mod requests;
mod restoring;
mod unannounced_gateways;

use self::events::event_relay;
use self::unannounced_gateways::UnannouncedGateways;
use super::durable::DurableGateway;
use super::envelope::{LinkEnvelope, ORIGIN_HEADER};
use super::event_relay::{EVENT_PREFIX, EventRelay};
use super::export::{Export, Exporter, ROUND_INTERVAL};
use super::gateway_counts::{GatewayCounts, SiteConflict, SiteCounts};
use super::gateway_settings::GatewaySettings;
use super::gateway_watch::{GatewayWatch, SILENCE_MAX};
use super::hub_sender::HubSender;
use super::import::ImportLedger;
use super::import_queue::{HubContent, HubItem, ImportQueue};
use super::import_standby::ImportStandby;
use super::local_subjects::stays_local;
use super::manifest::ManifestBatch;
use super::position::StreamPoint;
use super::remote_stream_key::RemoteStreamKey;
use super::request_relay::RequestRelay;
use super::shares::{Election, GATEWAY_TIMEOUT, LEASE, SHARES};
use super::site_loss::SiteLoss;
use super::site_name::SiteName;
use super::system_messages::{
    ANNOUNCE_SUBJECT, BYE_PREFIX, LOSS_SUBJECT, MANIFEST_PREFIX, REQUEST_PREFIX, RESTORE_PREFIX, RequestText,
    system_subject,
};
use super::unsent_messages::UnsentMessages;
use crate::message::{Delivery, Epoch, Headers, Message};
use crate::subject::pattern_set::PatternSet;
use crate::time::Instant;
use requests::LanGateways;
use std::collections::{BTreeMap, VecDeque};

/// Maximum bytes from the cluster that wait for the LAN. Further messages count as lost.
pub const UNREAD_BYTES_MAX: usize = 64 << 20;

/// A gateway of a site.
#[derive(Debug)]
pub struct Gateway {
    settings: GatewaySettings,
    epoch: Epoch,
    is_linked: bool,
    election: Election,
    exporter: Exporter,
    ledger: ImportLedger,
    durable: DurableGateway,
    /// Messages and manifests of the cluster that wait for the LAN.
    unread: ImportQueue,
    standby: ImportStandby,
    /// Manifests that are held back, oldest first.
    held: ImportQueue,
    watch: GatewayWatch,
    announce_at: Instant,
    /// Time until which the other gateways know that this one lives, and that before the last announcement.
    lease_end: Instant,
    lease_before: Instant,
    /// Conflict of the name of the site with that of others, once one is known.
    conflict: Option<SiteConflict>,
    /// Time from which a gateway of this site that no announcement has named is on another LAN.
    settled: Instant,
    to_hub: UnsentMessages,
    to_lan: VecDeque<Message>,
    /// The announcement that the LAN has not taken yet.
    announcement: Option<Message>,
    /// Losses that another gateway has reported before a message that it has not delivered yet, with the point of that.
    reported: BTreeMap<RemoteStreamKey, StreamPoint>,
    /// Losses that nobody has reported, although another gateway carries their shares.
    unreported: Vec<SiteLoss>,
    unannounced: UnannouncedGateways,
    counts: GatewayCounts,
    sites: BTreeMap<SiteName, SiteCounts>,
    /// Time since which this gateway is connected.
    linked_at: Instant,
    relay: RequestRelay,
    lan_gateways: LanGateways,
    events: EventRelay,
}

impl Gateway {
    /// Creates a gateway that starts now, without a connection.
    pub fn new(settings: GatewaySettings, epoch: Epoch, now: Instant) -> Gateway {
        Gateway {
            epoch,
            is_linked: false,
            election: Election::new(epoch),
            exporter: Exporter::new(settings.site.clone(), epoch),
            ledger: ImportLedger::new(settings.site.clone()),
            durable: DurableGateway::new(&settings.durable, &settings.site, &settings.imports, epoch, now),
            unread: ImportQueue::default(),
            standby: ImportStandby::default(),
            held: ImportQueue::default(),
            watch: GatewayWatch::default(),
            announce_at: now,
            lease_end: now + LEASE,
            lease_before: now + LEASE,
            conflict: None,
            settled: now + GATEWAY_TIMEOUT,
            to_hub: UnsentMessages::default(),
            to_lan: VecDeque::new(),
            announcement: None,
            reported: BTreeMap::new(),
            unreported: Vec::new(),
            unannounced: UnannouncedGateways::default(),
            counts: GatewayCounts::default(),
            sites: BTreeMap::new(),
            linked_at: now,
            relay: RequestRelay::new(settings.clone(), epoch, now),
            lan_gateways: LanGateways::default(),
            events: event_relay(&settings, epoch, now),
            settings,
        }
    }

    /// Returns the next message for the cluster.
    pub fn poll_hub(&mut self) -> Option<Message> {
        match self.events.take_turn() {
            true => self.events.poll_hub().or_else(|| self.relay.poll_hub()).or_else(|| self.to_hub.pop()),
            false => self.relay.poll_hub().or_else(|| self.to_hub.pop()).or_else(|| self.events.poll_hub()),
        }
    }

    /// Returns the next message for the LAN.
    pub fn poll_lan(&mut self, now: Instant) -> Option<Message> {
        self.check_lease(now);
        loop {
            // Nothing else may delay it: others take over what a silent gateway carries.
            if let Some(announcement) = self.announcement.take() {
                self.lease_before = std::mem::replace(&mut self.lease_end, now + LEASE);
                return Some(announcement);
            }
            if self.events.take_turn()
                && let Some(message) = self.events.poll_lan()
            {
                return Some(message);
            }
            if let Some(message) = self.to_lan.pop_front().or_else(|| self.relay.poll_lan()) {
                return Some(message);
            }
            if let Some(item) = self.unread.pop() {
                self.account(now, item);
            } else if let Some(message) = self.events.poll_lan() {
                return Some(message);
            } else {
                self.import_stored(now)?;
            }
        }
    }

    /// Returns the durable messages of this gateway.
    pub fn durable(&self) -> &DurableGateway {
        &self.durable
    }

    /// Returns the durable messages of this gateway, for what happens to them.
    pub fn durable_mut(&mut self) -> &mut DurableGateway {
        &mut self.durable
    }

    /// Takes back a message for which the LAN has no room yet.
    pub fn put_back(&mut self, message: Message) {
        match message.subject.as_bytes() == ANNOUNCE_SUBJECT.as_bytes() {
            true => {
                self.announcement.get_or_insert(message);
                self.lease_end = self.lease_before;
            }
            false => self.to_lan.push_front(message),
        }
    }

    /// Returns the time of the next [`Gateway::on_tick`].
    pub fn deadline(&self, now: Instant) -> Instant {
        let timers = [self.announce_at].into_iter().chain(self.election.deadline(now));
        let rounds = (self.is_linked && self.to_hub.has_room()).then(|| self.exporter.deadline());
        let held = self.held.front().map(|item| item.at + importing::HOLD_TIME);
        let others = self.relay.deadline().into_iter().chain(self.durable.deadline(now));
        timers.chain(rounds).chain(held).chain(others).min().expect("the announcement is a timer")
    }

    /// Handles the begin or the end of the connection to the cluster.
    pub fn on_link(&mut self, now: Instant, is_linked: bool) {
        if is_linked && !self.is_linked {
            self.linked_at = now;
            if self.election.has_ready_others() {
                // They have exported these messages, and this gateway has not seen them return.
                self.exporter.forget_standby();
            }
        }
        self.is_linked = is_linked;
        self.announce_at = now;
        self.election.set_linked(now, is_linked);
        self.relay.on_link(now, is_linked);
        self.durable.on_link(now);
        if !is_linked {
            // Live messages do not wait for the cluster to return.
            self.counts.unsent += self.to_hub.clear();
            self.events.on_disconnect();
        }
        self.on_tick(now);
    }

    /// Handles a message of the LAN.
    pub fn on_delivery(&mut self, now: Instant, delivery: &Delivery) {
        self.check_lease(now);
        let message = &delivery.message;
        if message.subject.as_bytes() == ANNOUNCE_SUBJECT.as_bytes() {
            self.lan_gateways.on_announcement(delivery);
            return self.on_announcement(now, message);
        }
        if message.subject.as_bytes() == LOSS_SUBJECT.as_bytes() {
            return self.on_loss_report(message);
        }
        if self.on_request_delivery(now, delivery) || self.durable.on_delivery(now, delivery) {
            return;
        }
        match LinkEnvelope::find(&message.headers) {
            Some(Ok(envelope)) => self.on_imported(&envelope, &message.subject),
            Some(Err(_)) => {}
            None if self.settings.exports.matches(&message.subject) => {
                if let Some(export) = self.exporter.on_delivery(now, delivery) {
                    self.export(export);
                }
            }
            None => {}
        }
    }

    /// Handles a message of the cluster on a subject of the system.
    pub fn on_system_message(&mut self, now: Instant, message: Message, sender: &HubSender) {
        let subject = message.subject.as_bytes();
        if subject.starts_with(EVENT_PREFIX.as_bytes()) {
            self.on_event_message(now, &message, sender);
        } else if subject.starts_with(MANIFEST_PREFIX.as_bytes()) {
            self.on_manifests(now, &message, sender);
        } else if subject.starts_with(BYE_PREFIX.as_bytes()) {
            self.on_bye(now, &message, sender);
        } else if subject.strip_prefix(RESTORE_PREFIX.as_bytes()) == Some(self.settings.site.as_str().as_bytes()) {
            self.on_restore_request(now, &message);
        } else if subject.strip_prefix(REQUEST_PREFIX.as_bytes()) == Some(self.settings.site.as_str().as_bytes()) {
            self.on_request(&message);
        }
    }

    /// Sets the subjects that the stream of the cluster keeps.
    pub fn set_stored_subjects(&mut self, now: Instant, subjects: PatternSet) {
        let GatewaySettings { exports, durable, .. } = &self.settings;
        let live = exports.intersection(&subjects);
        let has_live = live.patterns().iter().any(|pattern| !durable.exports.contains(pattern));
        self.durable.set_stored_subjects(now, subjects, has_live);
    }

    /// Returns whether [`Gateway::on_hub_message`] does something with a message: one that this site imports, or an own one
    /// that returns. Those of the stream are read from there, and those of the system by subscriptions of their own.
    pub fn uses_hub_message(&self, message: &Message) -> bool {
        let is_own = || {
            let origin = message.headers.field(ORIGIN_HEADER).and_then(|value| value.split(' ').next());
            origin == Some(self.settings.site.as_str())
        };
        let may_cross = !stays_local(message.subject.as_bytes()) && !self.durable.is_stored(message);
        may_cross && (self.settings.imports.matches(&message.subject) || is_own())
    }

    /// Handles a message of the cluster on another subject.
    pub fn on_hub_message(&mut self, now: Instant, message: Message) {
        if stays_local(message.subject.as_bytes()) || self.durable.is_stored(&message) {
            return;
        }
        let content = match LinkEnvelope::find(&message.headers) {
            Some(Ok(envelope)) if envelope.site == self.settings.site => {
                return self.exporter.on_returned(&envelope, &message.subject);
            }
            _ if !self.settings.imports.matches(&message.subject) => return,
            Some(Err(_)) if LinkEnvelope::is_relayed(&message.headers) => return,
            Some(Ok(envelope)) => {
                self.durable.on_live_export(&message.subject);
                HubContent::OfSite(Box::new(envelope), message)
            }
            Some(Err(_)) => return self.counts.invalid += 1,
            None => HubContent::OfClient(message),
        };
        if self.unread.bytes() < UNREAD_BYTES_MAX {
            self.unread.push(HubItem { at: now, content });
        } else {
            self.counts.unread += 1;
        }
    }

    /// Does what is due.
    pub fn on_tick(&mut self, now: Instant) {
        self.check_lease(now);
        let was_ready = self.election.is_ready();
        self.election.on_tick(now);
        if was_ready != self.election.is_ready() {
            self.announce_at = now;
        }
        self.relay.on_tick(now);
        self.exporter.expire_standby(now);
        while let Some(item) = self.standby.pop_settled(now) {
            self.settle(item);
        }
        self.release_held(now);
        self.durable.on_tick(now);
        self.request_restoring(now);
        self.expire_conflict(now);
        self.update_shares(now);
        self.end_gateways(now);
        self.announce_if_due(now);
        self.events.on_tick(now, self.carried());
        if self.is_linked {
            self.send_rounds(now);
        }
    }

    /// Counts a message of the cluster that is none of the bus.
    pub fn on_invalid(&mut self) {
        self.counts.invalid += 1;
    }

    /// Counts messages that the client of the cluster has dropped before this gateway. Their streams show which.
    pub fn on_unread(&mut self, count: u64) {
        self.counts.unread += count;
    }

    /// Counts messages of the LAN that were dropped before this gateway.
    pub fn on_unheard(&mut self, count: u64) {
        self.counts.unheard += count;
    }

    /// Counts a message with these header fields that the cluster did not take, if it was an exported one.
    pub fn on_unsent(&mut self, headers: &Headers) {
        self.counts.unsent += u64::from(LinkEnvelope::is_in(headers));
    }

    /// Announces to the other gateways and to other sites that this one ends. What came from the cluster is delivered
    /// first, and the last manifests name everything that was exported.
    pub fn on_stop(&mut self, now: Instant) {
        self.check_lease(now);
        self.account_all(now);
        self.announce(now, true);
        if self.is_linked {
            self.exporter.on_stop();
            // They are few, and the BYE would name what no round has named.
            let mut batch = ManifestBatch::default();
            while let Some(round) = self.exporter.poll_round(now + ROUND_INTERVAL) {
                self.send_round(&mut batch, round);
            }
            self.send_manifests(&batch);
            let bye = self.exporter.bye();
            self.to_hub.push(Message::new(system_subject(BYE_PREFIX, &self.settings.site), bye.to_json()));
        }
        (0..SHARES).for_each(|share| self.exporter.release(share));
    }

    /// Returns the counts.
    pub fn counts(&self) -> &GatewayCounts {
        &self.counts
    }

    /// Returns the counts of the other sites, by their names.
    pub fn sites(&self) -> &BTreeMap<SiteName, SiteCounts> {
        &self.sites
    }

    /// Returns the number of shares that this gateway carries.
    pub fn carried_shares(&self) -> usize {
        (0..SHARES).filter(|share| self.exporter.carries(*share)).count()
    }

    /// Returns the conflict of the name of the site with that of others, if there is one.
    pub fn conflict(&self) -> Option<&SiteConflict> {
        self.conflict.as_ref()
    }

    /// Releases all shares if the host has stopped this gateway until others count it as dead.
    fn check_lease(&mut self, now: Instant) {
        if self.lease_end < now {
            self.lease_end = now + LEASE;
            self.announce_at = now;
            self.election.pause(now);
            (0..SHARES).for_each(|share| self.exporter.release(share));
            // The gateways of other sites need time to be heard again.
            self.linked_at = now;
            if self.election.has_ready_others() {
                // They deliver these messages.
                let (theirs, own): (VecDeque<Message>, VecDeque<Message>) =
                    self.to_lan.drain(..).partition(|message| LinkEnvelope::is_in(&message.headers));
                theirs.iter().for_each(|message| self.durable.on_withdrawn(message));
                self.to_lan = own;
            }
            self.durable.set_carried(now, |_| false);
        }
    }

    /// Takes over the shares that this gateway carries from now on, and releases the others.
    fn update_shares(&mut self, now: Instant) {
        let is_changed = |share: &u8| self.exporter.carries(*share) != self.election.carries(*share);
        let changed: Vec<u8> = (0..SHARES).filter(is_changed).collect();
        let released: Vec<u8> = changed.iter().copied().filter(|share| self.exporter.carries(*share)).collect();
        if !released.is_empty() {
            self.account_before_release(now, &released);
        }
        for share in changed {
            if self.exporter.carries(share) {
                self.exporter.release(share);
                continue;
            }
            for export in self.exporter.take_over(now, share) {
                self.counts.taken_over += 1;
                self.export(export);
            }
            self.unread.put_first(self.standby.take_over(share));
            self.report_unreported(share);
        }
        self.durable.set_carried(now, |share| self.exporter.carries(share));
    }

    /// Accounts for gateways of other sites that have said that they end, and for those that are silent.
    fn end_gateways(&mut self, now: Instant) {
        // Its last manifests come first.
        let oldest = self.unread.front().map(|item| item.at + SILENCE_MAX);
        while let Some(bye) = self.watch.pop_bye(now, oldest) {
            let tail = self.ledger.on_bye(&bye);
            self.report_tail(tail);
        }
        // After an outage of the connection they need time to be heard again.
        if !self.is_linked || now.since(self.linked_at) < SILENCE_MAX {
            return;
        }
        for (site, gateway) in self.watch.take_silent(now) {
            let tail = self.ledger.on_gateway_end(&site, gateway);
            self.report_tail(tail);
        }
    }

    fn on_request(&mut self, message: &Message) {
        match serde_json::from_slice::<RequestText>(&message.payload) {
            Ok(request) if request.gateway == self.epoch.to_string() => {
                self.exporter.on_request(request.share, request.after);
            }
            Ok(_) => {}
            Err(_) => self.counts.invalid += 1,
        }
    }

    /// Sends a message to the cluster. If there is no room, importers find that it is missing.
    fn export(&mut self, export: Export) {
        let Export { envelope, message } = export;
        match envelope.add_to(&message.headers) {
            Ok(headers) if self.to_hub.has_room() => {
                self.counts.exported += 1;
                self.to_hub.push(Message { headers, ..message });
            }
            Ok(_) => self.counts.unsent += 1,
            Err(_) => self.counts.invalid += 1,
        }
    }

    /// Returns the counts of a site. The ledger and [`Gateway::import_stored`] bound the number of sites.
    fn site(&mut self, site: &SiteName) -> &mut SiteCounts {
        self.sites.entry(site.clone()).or_default()
    }
}
