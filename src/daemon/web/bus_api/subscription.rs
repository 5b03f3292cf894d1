//! Subscriptions by HTTP: their begin, their notices, and their end.

use super::{CallRefusal, invalid};
use crate::clock::Clock;
use crate::daemon::mailbox::{PushError, SubscriptionRequest};
use crate::daemon::subscription_queue::{Notice, QueueLimits, SubscriptionQueue};
use crate::daemon::web::WebContext;
use crate::daemon::web::messages::MessageRefusal;
use crate::daemon::web::reports::await_answer;
use crate::listener::http_api::url_subject::{parse_parameters, parse_pattern};
use crate::listener::notice::{dropped_json, loss_json, message_json};
use crate::listener::permissions::{Denial, DeniedAction, Permissions};
use crate::message::{DeliveryMode, SubId, SubscriptionFilter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Limits of the queue between the engine and a subscription.
const LIMITS: QueueLimits = QueueLimits { count_max: 8192, bytes_max: 2 << 20 };
/// Form of the messages of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoticeFormat {
    /// A JSON object with the metadata.
    Json,
    /// The payload alone.
    Payload,
}

/// A subscription that a request asks for.
#[derive(Debug)]
pub(super) struct SubscriptionCall {
    /// The subscription as the engine knows it.
    pub(super) request: SubscriptionRequest,
    pub(super) format: NoticeFormat,
}

impl SubscriptionCall {
    /// Reads the request of a client with these permissions. `path` is the path behind `/sub/`.
    pub(super) fn parse(path: &str, query: &str, permissions: &Permissions) -> Result<SubscriptionCall, CallRefusal> {
        let pattern = parse_pattern(path).map_err(invalid)?;
        let [format, queue, delivery] = parse_parameters(query, ["format", "queue", "delivery"]).map_err(invalid)?;
        let format = match format.as_deref() {
            None | Some("json") => NoticeFormat::Json,
            Some("payload") => NoticeFormat::Payload,
            Some(_) => return Err(invalid("format is json or payload")),
        };
        let mode = match delivery.as_deref() {
            None => None,
            Some("repair") => Some(DeliveryMode::Repair),
            Some("live") => Some(DeliveryMode::Live),
            Some(_) => return Err(invalid("delivery is repair or live")),
        };
        let queue = queue.map(|queue| queue.parse()).transpose().map_err(invalid)?;
        if !permissions.subscribe.permits_pattern(&pattern) {
            return Err(MessageRefusal::Denied(Denial::new(DeniedAction::Subscribe, pattern)).into());
        }
        let wanted = SubscriptionFilter { queue, ..SubscriptionFilter::from(pattern) };
        Ok(SubscriptionCall { request: SubscriptionRequest { wanted, mode, wants_discovery: false }, format })
    }
}

impl SubscriptionCall {
    /// Returns whether the subscription is in a queue group, from which it takes messages.
    pub(super) fn is_in_queue(&self) -> bool {
        self.request.wanted.queue.is_some()
    }
}

/// A subscription. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct HttpSubscription {
    context: Arc<WebContext>,
    pub(super) sub: SubId,
    pub(super) queue: Arc<SubscriptionQueue>,
    /// Number of dropped notices that are counted already.
    dropped: AtomicU64,
    _permit: OwnedSemaphorePermit,
}

impl HttpSubscription {
    /// Begins a subscription, which takes a permit of `room`.
    ///
    /// # Errors
    /// There are too many, or the engine refuses it or does not answer.
    pub(super) async fn begin(
        context: &Arc<WebContext>,
        request: SubscriptionRequest,
        room: &Arc<Semaphore>,
    ) -> Result<HttpSubscription, CallRefusal> {
        let permit = Arc::clone(room).try_acquire_owned().map_err(|_| MessageRefusal::Busy)?;
        let sub = SubId(context.next_sub.fetch_add(1, Ordering::Relaxed));
        let queue = Arc::new(SubscriptionQueue::new(LIMITS));
        let begun = context.reports.subscribe(sub, request, Arc::clone(&queue)).map_err(|error| match error {
            PushError::Full(_) => MessageRefusal::Busy,
            PushError::Closed => MessageRefusal::NoAnswer,
        })?;
        // From here on the subscription ends even if the client leaves before the answer.
        let subscription = HttpSubscription {
            context: Arc::clone(context),
            sub,
            queue,
            dropped: AtomicU64::default(),
            _permit: permit,
        };
        match await_answer(&begun).await {
            Some(Ok(())) => Ok(subscription),
            Some(Err(refusal)) => Err(invalid(refusal)),
            None => Err(MessageRefusal::NoAnswer.into()),
        }
    }

    /// Waits for room for a notice of this size, if it is large. Without room the notice is dropped and counted, and the
    /// result is the notice of that instead.
    pub(super) async fn room_for(&self, bytes: usize) -> Result<Option<SemaphorePermit<'_>>, Notice> {
        self.context.bus.notice_room(bytes).await.ok_or_else(|| {
            self.context.counts.dropped.fetch_add(1, Ordering::Relaxed);
            Notice::Dropped(1)
        })
    }

    /// Counts notices that are sent to the client.
    pub(super) fn on_sent(&self, sent: SentNotices) {
        let counts = &self.context.counts;
        counts.delivered.fetch_add(sent.messages, Ordering::Relaxed);
        counts.losses.fetch_add(sent.losses, Ordering::Relaxed);
        self.on_dropped(sent.dropped);
    }

    fn on_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        self.context.counts.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Waits until the server stops.
    pub(super) async fn stopped(&self) {
        let mut stop = self.context.bus.stop.subscribe();
        // The sender lives as long as the context.
        drop(stop.wait_for(|is_stopping| *is_stopping).await);
    }

    /// Counts a connection that the server ends.
    pub(super) fn on_ended(&self, reason: &'static str) {
        if let Some(connections) = self.context.connections.get() {
            connections.on_ended(reason);
        }
    }
}

/// Numbers of notices that a client is sent together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentNotices {
    messages: u64,
    losses: u64,
    /// Number of notices whose drop is reported.
    dropped: u64,
}

impl SentNotices {
    /// Adds a notice.
    pub(super) fn add(&mut self, notice: &Notice) {
        match notice {
            Notice::Message(_) => self.messages += 1,
            Notice::Loss(_) => self.losses += 1,
            Notice::Dropped(count) => self.dropped += count,
            Notice::Joined(_) => {}
        }
    }
}

impl Drop for HttpSubscription {
    fn drop(&mut self) {
        // The client gets no further report of these.
        let (_, _, dropped) = self.queue.fill();
        self.on_dropped(dropped.saturating_sub(self.dropped.load(Ordering::Relaxed)));
        self.context.reports.end_subscription(self.sub);
    }
}

/// Returns the name and the JSON of a notice; `None` if clients do not get it.
pub(super) fn notice_json(notice: &Notice) -> Option<(&'static str, String)> {
    match notice {
        Notice::Message(delivery) => Some(("message", message_json(delivery, Clock::now().wall))),
        Notice::Loss(loss) => Some(("loss", loss_json(loss))),
        Notice::Dropped(count) => Some(("dropped", dropped_json(*count))),
        Notice::Joined(_) => None,
    }
}
