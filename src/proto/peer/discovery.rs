//! Publisher discovery for subscriptions that begin with publishers' histories: notices of each publisher, and of the
//! end of the discovery.

use super::Peer;
use crate::message::{ClientId, Epoch, Publisher, Target};
use crate::proto::effect::Effect;
use crate::proto::stats::MemberState;
use crate::time::{ClockReading, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Listening time after which all peers that heard this peer's HELLOs have answered. The last HELLO is sent after 140
/// ms.
const DISCOVERY: Duration = Duration::from_millis(500);

/// Maximum time to wait until suppressing peers know a subscription.
pub const CONFIRMATION_MAX: Duration = Duration::from_secs(2);

/// Maximum time that a flush waits for peers that suppress nothing. The request for a confirmation is repeated 20, 60
/// and 140 ms after the first one.
pub const FLUSH_MAX: Duration = Duration::from_millis(250);

/// Subscriptions that are notified of publishers.
#[derive(Debug)]
pub(super) struct PublisherDiscovery {
    /// Start time of each subscription.
    since: BTreeMap<Target, Instant>,
    /// Members that each target need not be notified of again, until the member is removed.
    notified: BTreeSet<(Target, Epoch)>,
    /// Targets without the notice that all publishers are named: each with its version of the local subscriptions, and
    /// the deadline of its wait for confirmations from suppressing peers.
    waiting: Vec<(Target, u64, Instant)>,
    /// Time at which all present peers can be known.
    discovered: Instant,
    /// True if that time has passed.
    pub(super) is_discovered: bool,
}

impl PublisherDiscovery {
    /// Creates an empty discovery for a peer that begins to listen now.
    pub(super) fn new(now: Instant) -> PublisherDiscovery {
        PublisherDiscovery {
            since: BTreeMap::new(),
            notified: BTreeSet::new(),
            waiting: Vec::new(),
            discovered: now + DISCOVERY,
            is_discovered: false,
        }
    }

    /// Restarts the discovery time when the first HELLO leaves, which the other peers answer.
    pub(super) fn on_first_hello(&mut self, now: Instant) {
        self.discovered = now + DISCOVERY;
    }

    pub(super) fn end(&mut self, target: Target) {
        self.since.remove(&target);
        self.notified.retain(|(notified, _)| *notified != target);
        self.waiting.retain(|(waiting, ..)| *waiting != target);
    }

    pub(super) fn detach(&mut self, client: ClientId) {
        self.since.retain(|target, _| target.client != client);
        self.notified.retain(|(target, _)| target.client != client);
        self.waiting.retain(|(target, ..)| target.client != client);
    }

    /// Removes a member, so that subscriptions are notified of it again.
    pub(super) fn remove_member(&mut self, epoch: Epoch) {
        self.notified.retain(|(_, notified)| *notified != epoch);
    }

    /// Returns the time at which all present peers can be known, until it has passed.
    pub(super) fn discovery(&self) -> Option<Instant> {
        (!self.is_discovered).then_some(self.discovered)
    }

    /// Returns the next deadline of the waiting targets, if there are any: discovery first, then the end of the wait
    /// for confirmations.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let until = self.waiting.iter().map(|(.., until)| *until).min()?;
        Some(if self.is_discovered { until.max(self.discovered) } else { self.discovered })
    }
}

impl Peer {
    /// Returns the time at which all other peers can be known, until that has passed.
    pub fn discovery(&self) -> Option<Instant> {
        self.discovery.discovery()
    }

    /// Begins to notify a subscription of publishers: first of those known now, beginning with this peer.
    pub(super) fn begin_discovery(&mut self, now: ClockReading, target: Target) {
        if self.discovery.since.contains_key(&target) {
            return;
        }
        self.discovery.since.insert(target, now.instant);
        let mut known: Vec<Publisher> = self
            .members
            .values()
            .filter(|member| member.state == MemberState::Up)
            .map(|member| member.publisher.clone())
            .collect();
        known.push(self.own_publisher());
        known.sort_by_key(|publisher| publisher.uid);
        for publisher in known {
            self.discovery.notified.insert((target, publisher.epoch));
            self.effects.push_back(Effect::PublisherKnown { to: target, publisher: Some(publisher) });
        }
        self.discovery.waiting.push((target, self.interest.version(), now.instant + CONFIRMATION_MAX));
        self.on_discovery_tick(now);
    }

    /// Ends the discovery once the present peers have had time to answer, and notifies targets that all publishers are
    /// named.
    pub(super) fn on_discovery_tick(&mut self, now: ClockReading) {
        if self.discovery.discovered <= now.instant {
            self.discovery.is_discovered = true;
            let confirmed = if self.discovery.waiting.is_empty() { 0 } else { self.confirmed() };
            for (to, version, until) in std::mem::take(&mut self.discovery.waiting) {
                if until <= now.instant || version <= confirmed {
                    self.effects.push_back(Effect::PublisherKnown { to, publisher: None });
                } else {
                    self.discovery.waiting.push((to, version, until));
                }
            }
        }
    }

    /// Notifies subscriptions of a publisher that is heard, for the first time or again. Subscriptions that are owed
    /// all of its messages anyway are excluded. A publisher that was known until `absent` and then removed is not new
    /// to older subscriptions.
    pub(super) fn notify_discovery(&mut self, epoch: Epoch, absent: Option<Instant>) {
        let Some(member) = self.members.get(&epoch) else { return };
        let birth = member.bcast.birth();
        for (to, since) in &self.discovery.since {
            if !self.discovery.notified.insert((*to, epoch)) {
                continue;
            }
            let is_owed_all = birth.is_some_and(|birth| *since <= birth);
            if !is_owed_all && absent.is_none_or(|absent| absent < *since) {
                self.effects.push_back(Effect::PublisherKnown { to: *to, publisher: Some(member.publisher.clone()) });
            }
        }
    }
}
