//! Requests of the LAN and of the cluster, as far as the gateway handles them.

use super::Gateway;
use crate::link::envelope::LinkEnvelope;
use crate::link::hub_sender::HubSender;
use crate::link::interest_summary::{LanInterest, LanReceivers};
use crate::link::pending_request::RequestOrigin;
use crate::link::request_relay::RelayCounts;
use crate::link::shares::share_of;
use crate::link::system_messages::{CALL_PREFIX, GatewayAnnouncement, SUBJECT_HEADER};
use crate::message::{Delivery, Epoch, Message};
use crate::subject::pattern_set::PatternSet;
use crate::subject::{Pattern, Subject};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of peers with a gateway whose subscriptions are known. Those of further ones count as interest of the
/// site.
const GATEWAY_PEERS_MAX: usize = 256;
/// Maximum number of patterns of one of them.
const GATEWAY_PATTERNS_MAX: usize = 1024;

/// The subscriptions of the other gateways of the LAN, by the epochs of their peers.
#[derive(Debug, Default)]
pub(super) struct LanGateways {
    patterns: Arc<BTreeMap<Epoch, PatternSet>>,
}

impl LanGateways {
    /// Notes the announcement of a gateway. A peer has one gateway, which never changes its subscriptions.
    pub(super) fn on_announcement(&mut self, delivery: &Delivery) {
        let peer = delivery.publisher.epoch;
        if self.patterns.contains_key(&peer) || GATEWAY_PEERS_MAX <= self.patterns.len() {
            return;
        }
        // An announcement that cannot be read is counted elsewhere.
        let Ok(announcement) = serde_json::from_slice::<GatewayAnnouncement>(&delivery.message.payload) else { return };
        if announcement.patterns.len() <= GATEWAY_PATTERNS_MAX {
            let patterns = announcement.patterns.iter().filter_map(|text| text.parse::<Pattern>().ok()).collect();
            Arc::make_mut(&mut self.patterns).insert(peer, patterns);
        }
    }
}

impl Gateway {
    /// Returns the subscriptions of the other gateways of the LAN, by the epochs of their peers. They are no interest of
    /// the site.
    pub fn lan_gateways(&self) -> &Arc<BTreeMap<Epoch, PatternSet>> {
        &self.lan_gateways.patterns
    }

    /// Returns whether a request waits for the number of its receivers.
    pub fn has_lookup(&self) -> bool {
        self.relay.has_lookup()
    }

    /// Returns the next request whose receivers on the LAN are to be counted: its number and its subject.
    pub fn poll_lookup(&mut self) -> Option<(u64, Subject)> {
        self.relay.poll_lookup()
    }

    /// Handles the number of a request's receivers on the LAN, without gateways.
    pub fn on_receivers(&mut self, number: u64, receivers: LanReceivers) {
        self.relay.on_receivers(number, receivers);
    }

    /// Handles the subscriptions on the LAN, without those of gateways.
    pub fn on_lan_interest(&mut self, now: Instant, interest: &LanInterest) {
        self.relay.on_lan_interest(now, interest);
    }

    /// Handles a message of the cluster about interest, a request or a reply. `is_unserved` says that the cluster itself
    /// reports that nobody has received a request.
    pub fn on_relay_message(&mut self, now: Instant, message: Message, is_unserved: bool, sender: &HubSender) {
        if self.is_for_another_gateway(&message) {
            return;
        }
        if !self.relay.on_hub_message(now, message, is_unserved, sender) {
            self.counts.invalid += 1;
        }
    }

    /// Returns whether another gateway of this site handles a request of another one: the one that carries the share of
    /// its subject.
    fn is_for_another_gateway(&self, message: &Message) -> bool {
        let is_call = message.subject.as_str().starts_with(CALL_PREFIX);
        let subject = is_call.then(|| message.headers.field(SUBJECT_HEADER)?.parse().ok()).flatten();
        subject.is_some_and(|subject: Subject| !self.election.answers(share_of(&subject)))
    }

    /// Returns the counts of requests.
    pub fn request_counts(&self) -> RelayCounts {
        self.relay.counts
    }

    /// Handles a request of the LAN, or a reply to one of another site. Returns whether the message is one.
    pub(super) fn on_request_delivery(&mut self, now: Instant, delivery: &Delivery) -> bool {
        let message = &delivery.message;
        if self.relay.on_lan_reply(now, message) {
            return true;
        }
        if message.reply.is_none() || LinkEnvelope::is_in(&message.headers) {
            return false;
        }
        if self.settings.exports.matches(&message.subject) {
            self.exporter.on_unexported(delivery);
        }
        if !delivery.replayed && self.election.answers(share_of(&message.subject)) {
            self.relay.on_request(now, RequestOrigin::Lan, message.clone());
        }
        true
    }

    /// Handles a request of a client of the cluster.
    pub(super) fn on_client_request(&mut self, now: Instant, message: Message) {
        self.relay.on_request(now, RequestOrigin::Client, message);
    }
}
