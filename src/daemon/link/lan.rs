//! The link as a client of the peer.

use super::LinkError;
use super::lan_query::{LanAnswer, LanQuery, LanQuestion};
use crate::clock::Clock;
use crate::daemon::clients::ClientTransport;
use crate::daemon::engine_core::EngineCore;
use crate::daemon::mailbox::{EngineCommand, Mailbox, PushError, SubscriptionRequest};
use crate::daemon::subscription_queue::{QueueLimits, SubscriptionQueue};
use crate::link::gateway_settings::GatewaySettings;
use crate::link::system_messages::{ANNOUNCE_SUBJECT, LOSS_SUBJECT};
use crate::message::{ClientId, Epoch, Message, SubId, SubscriptionFilter};
use crate::proto::effect::ClientRequest;
use crate::subject::Pattern;
use crate::subject::pattern_set::PatternSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Limits of the queue between the engine and one subscription of the link.
const LIMITS: QueueLimits = QueueLimits { count_max: 262_144, bytes_max: 64 << 20 };

/// Reason why a message is not published.
#[derive(Debug)]
pub(super) enum PublishFailure {
    /// There is no room yet. Holds the message.
    Full(Box<Message>),
    /// The peer has ended.
    Ended,
}

/// The subscription to one pattern.
#[derive(Debug)]
pub(super) struct LanSubscription {
    /// Index of the pattern in [`LanClient::patterns`].
    pub(super) index: usize,
    pub(super) queue: Arc<SubscriptionQueue>,
}

/// The link as a client of the peer.
#[derive(Debug)]
pub(super) struct LanClient {
    mailbox: Arc<Mailbox>,
    pub(super) client: ClientId,
    /// The patterns. A subject belongs to the first one that matches it.
    pub(super) patterns: Vec<Pattern>,
    pub(super) subscriptions: Vec<LanSubscription>,
}

impl LanClient {
    /// Subscribes to everything that a gateway of these settings needs of its LAN.
    ///
    /// # Errors
    /// The certificate of this host does not permit the subjects of gateways, or the peer refuses a subscription.
    pub(super) fn open(core: &mut EngineCore, settings: &GatewaySettings) -> Result<LanClient, LinkError> {
        let now = Clock::now();
        for subject in [ANNOUNCE_SUBJECT, LOSS_SUBJECT] {
            if !settings.permitted.permits(&subject.parse().expect("a constant that is a subject")) {
                return Err(LinkError::NotPermitted(subject.to_owned()));
            }
        }
        let client = core.clients.add(now, "link".into(), ClientTransport::Embedded(BTreeMap::new()));
        // Otherwise the link would receive what it imports.
        core.request(now, client, ClientRequest::Echo(false)).map_err(LinkError::Refused)?;
        let patterns = settings.of_lan();
        let mut subscriptions = Vec::new();
        for (index, pattern) in patterns.iter().enumerate() {
            let queue = Arc::new(SubscriptionQueue::new(LIMITS));
            let wanted = SubscriptionFilter::from(pattern.clone());
            let request = SubscriptionRequest { wanted, mode: None, wants_discovery: false };
            let sub = SubId(index as u32);
            core.subscribe(now, client, sub, request, Arc::clone(&queue)).map_err(LinkError::Refused)?;
            subscriptions.push(LanSubscription { index, queue });
        }
        Ok(LanClient { mailbox: Arc::clone(&core.mailbox), client, patterns, subscriptions })
    }

    /// Publishes a message.
    ///
    /// # Errors
    /// There is no room yet, or the peer has ended.
    pub(super) fn publish(&self, message: Message) -> Result<(), PublishFailure> {
        let command = EngineCommand::Publish { client: self.client, message };
        match self.mailbox.push(command, Duration::ZERO) {
            Ok(()) => Ok(()),
            Err(PushError::Full(refused)) => match *refused {
                EngineCommand::Publish { message, .. } => Err(PublishFailure::Full(Box::new(message))),
                _ => unreachable!("the mailbox returns the command"),
            },
            Err(PushError::Closed) => Err(PublishFailure::Ended),
        }
    }

    /// Asks the engine about the subscriptions of the LAN, without those of `gateways`. Returns false if the mailbox is
    /// full: there will be no answer, and the request ends by its timeout.
    pub(super) fn query(
        &self,
        gateways: &Arc<BTreeMap<Epoch, PatternSet>>,
        question: LanQuestion,
        answer: &Sender<LanAnswer>,
    ) -> bool {
        let (gateways, answer) = (Arc::clone(gateways), answer.clone());
        let query = LanQuery { client: self.client, gateways, question, answer };
        self.mailbox.push(EngineCommand::Link(query), Duration::ZERO).is_ok()
    }
}

impl Drop for LanClient {
    /// Ends the subscriptions. The engine would fill their queues for nobody.
    fn drop(&mut self) {
        drop(self.mailbox.push(EngineCommand::Detach { client: self.client }, Duration::ZERO));
    }
}
