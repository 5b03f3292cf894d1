//! The link as a client of the peer for the replication of events.

use super::LinkError;
use super::lan::LanClient;
use crate::clock::Clock;
use crate::daemon::engine_core::EngineCore;
use crate::daemon::mailbox::SubscriptionRequest;
use crate::daemon::remote_permissions::RemotePermissions;
use crate::daemon::subscription_queue::{QueueLimits, SubscriptionQueue};
use crate::listener::replication::{REQUEST_PREFIX, SERVER_PREFIX};
use crate::message::{ClientId, DeliveryMode, Epoch, Refusal, SubId, SubscriptionFilter};
use crate::proto::effect::ClientRequest;
use crate::proto::peer::inbox_of;
use crate::subject::Pattern;
use crate::subject::permitted_subjects::PermittedSubjects;
use crate::time::ClockReading;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits of the queue. Followers request again what is beyond them.
const LIMITS: QueueLimits = QueueLimits { count_max: 65_536, bytes_max: 32 << 20 };
/// Subscriptions to announcements, to requests, and to the answers of servers. Those to exported subjects are below.
const SUBS: [SubId; 3] = [SubId(1 << 20), SubId((1 << 20) + 1), SubId((1 << 20) + 2)];

/// Subscriptions of the link to the replication of events.
#[derive(Clone, Debug)]
pub(super) struct EventClient {
    pub(super) queue: Arc<SubscriptionQueue>,
    client: ClientId,
    /// Bits of the present epoch of this peer. The engine stores those of a new one.
    epoch: Arc<AtomicU64>,
    permissions: Arc<RemotePermissions>,
}

impl EventClient {
    /// Subscribes for the client of the link.
    ///
    /// # Errors
    /// The peer refuses a subscription.
    pub(super) fn open(core: &mut EngineCore, lan: &LanClient) -> Result<EventClient, LinkError> {
        let client = EventClient {
            queue: Arc::new(SubscriptionQueue::new(LIMITS)),
            client: lan.client,
            epoch: Arc::new(AtomicU64::new(core.peer.epoch().bits())),
            permissions: core.protection.remote_permissions(),
        };
        let patterns = [format!("{SERVER_PREFIX}*"), format!("{REQUEST_PREFIX}*"), format!("{}*", client.inbox())];
        for (sub, pattern) in SUBS.into_iter().zip(patterns) {
            client.subscribe(core, Clock::now(), sub, &pattern).map_err(LinkError::Refused)?;
        }
        Ok(client)
    }

    /// Continues under a new epoch of this peer, to which servers answer.
    pub(super) fn on_new_epoch(&self, core: &mut EngineCore, now: ClockReading) {
        self.epoch.store(core.peer.epoch().bits(), Ordering::Relaxed);
        let [.., answers] = SUBS;
        core.request_or_report(now, self.client, ClientRequest::Unsubscribe { sub: answers });
        if let Err(refusal) = self.subscribe(core, now, answers, &format!("{}*", self.inbox())) {
            tracing::error!(?refusal, "the link cannot request events for other sites");
        }
    }

    /// Returns the subject of the answers of servers, without the number at its end.
    pub(super) fn inbox(&self) -> String {
        let epoch = Epoch::new(self.epoch.load(Ordering::Relaxed)).expect("the bits of an epoch are not 0");
        format!("{}{}.", inbox_of(epoch), self.client.0)
    }

    /// Returns the subjects on which a peer may publish.
    pub(super) fn permitted(&self, publisher: Epoch) -> PermittedSubjects {
        self.permissions.of(publisher)
    }

    fn subscribe(&self, core: &mut EngineCore, now: ClockReading, sub: SubId, pattern: &str) -> Result<(), Refusal> {
        let pattern: Pattern = pattern.parse().expect("words and numbers");
        let wanted = SubscriptionFilter { pattern, glob: None, queue: None };
        let request = SubscriptionRequest { wanted, mode: Some(DeliveryMode::Repair), wants_discovery: false };
        core.subscribe(now, self.client, sub, request, Arc::clone(&self.queue))
    }
}
