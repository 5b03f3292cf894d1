//! Messages for the page: subscriptions whose messages and losses are sent as events, and publishing.
//!
//! A subscription shows what a person can read. Messages beyond that are counted, and so are those that the client is
//! too slow for.

use super::WebContext;
use super::event_stream::{encode_event, event_stream};
use super::reports::await_answer;
use crate::clock::Clock;
use crate::daemon::mailbox::{PushError, SubscriptionRequest};
use crate::daemon::queue_reader::QueueReader;
use crate::daemon::subscription_queue::{NoticeRef, QueueLimits, SubscriptionQueue};
use crate::listener::notice::CountJson;
use crate::listener::permissions::{Denial, DeniedAction, Permissions};
use crate::listener::rv::message::RvMessage;
use crate::message::{DeliveryRef, Loss, LossScope, Message, SubId, SubscriptionFilter, Verdict};
use crate::subject::{Pattern, Subject};
use axum::body::Bytes;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;

/// Maximum number of subscriptions of all pages together.
pub(super) const SUBSCRIPTIONS_MAX: usize = 16;
/// Maximum bytes of a published message, as JSON.
pub(super) const PUBLISH_BYTES_MAX: usize = 256 << 10;
/// Limits of the queue between the engine and a subscription.
const LIMITS: QueueLimits = QueueLimits { count_max: 1000, bytes_max: 4 << 20 };
/// Maximum number of events that wait for a client.
const QUEUE: usize = 256;
/// Maximum number of messages of a subscription that are shown of one reading.
const SHOWN_MAX: usize = 50;
/// Pause between two readings of a queue, so that a fast publisher does not keep the server busy.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of bytes of a payload that are shown.
const PAYLOAD_BYTES_MAX: usize = 1024;
/// Maximum number of bytes of a message of Rendezvous whose fields are shown.
const FIELDS_BYTES_MAX: usize = 64 << 10;
/// Interval of events without content, by which the system notices that a client is gone.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Reason why a subscription or a message is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MessageRefusal {
    /// The request is not valid; holds the reason.
    Invalid(String),
    /// The account of the client does not permit it.
    Denied(Denial),
    /// Too many subscriptions of pages, or publishers wait for the network.
    Busy,
    /// The peer does not answer.
    NoAnswer,
}

/// Parses the pattern of a subscription, to which the client may subscribe.
pub(super) fn parse_pattern(pattern: &str, permissions: &Permissions) -> Result<Pattern, MessageRefusal> {
    let pattern: Pattern = pattern.parse().map_err(|error| MessageRefusal::Invalid(format!("{error}")))?;
    match permissions.subscribe.permits_pattern(&pattern) {
        true => Ok(pattern),
        false => Err(MessageRefusal::Denied(Denial::new(DeniedAction::Subscribe, pattern))),
    }
}

/// Begins a subscription. The answer is a stream of events.
pub(super) async fn subscribe(context: &Arc<WebContext>, pattern: Pattern) -> Result<Response, MessageRefusal> {
    let permit = Arc::clone(&context.subscriptions).try_acquire_owned().map_err(|_| MessageRefusal::Busy)?;
    let sub = SubId(context.next_sub.fetch_add(1, Ordering::Relaxed));
    let queue = Arc::new(SubscriptionQueue::new(LIMITS));
    let request = SubscriptionRequest { wanted: SubscriptionFilter::from(pattern), mode: None, wants_discovery: false };
    let begun = context.reports.subscribe(sub, request, Arc::clone(&queue)).map_err(|error| match error {
        PushError::Full(_) => MessageRefusal::Busy,
        PushError::Closed => MessageRefusal::NoAnswer,
    })?;
    let (events, response) = event_stream(QUEUE);
    let (sender, answered) = oneshot::channel();
    let context = Arc::clone(context);
    // The task goes on if the client leaves before the subscription has begun, and then ends it.
    tokio::spawn(async move {
        let outcome = match await_answer(&begun).await {
            Some(outcome) => outcome.map_err(|refusal| MessageRefusal::Invalid(refusal.to_string())),
            None => Err(MessageRefusal::NoAnswer),
        };
        let has_begun = outcome.is_ok();
        drop(sender.send(outcome));
        if has_begun {
            send_notices(&queue, &events).await;
        }
        context.reports.end_subscription(sub);
        drop(permit);
    });
    answered.await.unwrap_or(Err(MessageRefusal::NoAnswer)).map(|()| response)
}

/// Sends the notices of a subscription to its client, until either ends.
async fn send_notices(queue: &SubscriptionQueue, events: &Sender<Bytes>) {
    let keepalive = async {
        loop {
            tokio::time::sleep(KEEPALIVE).await;
            // A client that has not read the last one needs no further one.
            drop(events.try_send(Bytes::from_static(b": alive\n\n")));
        }
    };
    tokio::select! {
        ended = read_notices(queue, events) => if let Err(error) = ended {
            tracing::warn!(%error, "a subscription of the page has ended");
        },
        () = keepalive => {}
        () = events.closed() => {}
    }
}

/// Reads the notices of a subscription until it ends. Meanwhile a slow client's notices wait in the queue, which drops
/// and counts what has no room.
async fn read_notices(queue: &SubscriptionQueue, events: &Sender<Bytes>) -> io::Result<()> {
    let reader = QueueReader::new(queue)?;
    let mut feed = NoticeFeed { events, shown: 0, omitted: 0 };
    while reader.read(|notice| feed.take(notice)).await? {
        loop {
            feed.report_omitted();
            tokio::time::sleep(PAUSE).await;
            if feed.omitted == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// The notices of a subscription on their way to its client.
struct NoticeFeed<'a> {
    events: &'a Sender<Bytes>,
    /// Number of messages taken in this reading.
    shown: usize,
    /// Number of notices that were not sent since the last report of them.
    omitted: u64,
}

impl NoticeFeed<'_> {
    /// Takes a notice.
    fn take(&mut self, notice: NoticeRef<'_>) {
        match notice {
            NoticeRef::Message(_) if SHOWN_MAX <= self.shown => self.omitted += 1,
            NoticeRef::Message(delivery) => {
                self.shown += 1;
                self.omitted += u64::from(!self.send(&message_event(delivery)));
            }
            NoticeRef::Loss(loss) => self.omitted += u64::from(!self.send(&loss_event(loss))),
            NoticeRef::Dropped(count) => self.omitted += count,
            NoticeRef::Joined(_) => {}
        }
    }

    /// Reports the number of notices that were not sent, if there is room for the report. Ends a reading.
    fn report_omitted(&mut self) {
        self.shown = 0;
        if 0 < self.omitted && self.send(&json!({ "type": "omitted", "count": self.omitted })) {
            self.omitted = 0;
        }
    }

    /// Sends an event. Returns false if the client has no room for it.
    fn send(&self, event: &Value) -> bool {
        self.events.try_send(encode_event("notice", &event.to_string())).is_ok()
    }
}

/// Returns a message as JSON, with the beginning of its payload.
fn message_event(delivery: &DeliveryRef<'_>) -> Value {
    let shown = &delivery.payload[..delivery.payload.len().min(PAYLOAD_BYTES_MAX)];
    let (first, missing) = match delivery.verdict {
        Verdict::Skip(count) => (false, Some(json!(CountJson::from(count)))),
        Verdict::First | Verdict::Start(_) => (true, None),
        Verdict::Next | Verdict::Unnumbered | Verdict::Direct => (false, None),
    };
    json!({
        "type": "message",
        "time_ns": Clock::now().wall.as_nanos(),
        "subject": delivery.subject.as_str(),
        "publisher": delivery.publisher.name.as_ref().map(|name| name.as_str()),
        "user": delivery.publisher.to_string(),
        "payload": String::from_utf8_lossy(shown),
        "bytes": delivery.payload.len(),
        "is_text": std::str::from_utf8(delivery.payload).is_ok(),
        "fields": fields_text(delivery.payload),
        "first": first,
        "missing": missing,
        "repaired": delivery.repaired,
    })
}

/// Returns the beginning of the fields of a message of Rendezvous as text; `None` if the payload is none, or is large.
fn fields_text(payload: &[u8]) -> Option<String> {
    if FIELDS_BYTES_MAX < payload.len() {
        return None;
    }
    let mut text = RvMessage::decode(payload).ok()?.to_string();
    let mut ends = (0..=text.len().min(PAYLOAD_BYTES_MAX)).rev();
    text.truncate(ends.find(|end| text.is_char_boundary(*end)).expect("a text begins at a boundary"));
    Some(text)
}

/// Returns a loss as JSON.
fn loss_event(loss: &Loss) -> Value {
    let (subject, count) = match &loss.what {
        LossScope::Messages { subject, count, .. } => (Some(subject.as_str()), json!(CountJson::from(*count))),
        LossScope::Datagrams { messages, .. } => (None, json!(CountJson::from(*messages))),
        LossScope::Inbox { messages } => (None, json!(messages)),
        LossScope::Tail { .. } => (None, Value::Null),
    };
    json!({
        "type": "loss",
        "time_ns": Clock::now().wall.as_nanos(),
        "subject": subject,
        "publisher": loss.publisher.name.as_ref().map(|name| name.as_str()),
        "user": loss.publisher.to_string(),
        "count": count,
        "reason": loss.reason.as_str(),
        "cause": loss.cause.as_str(),
    })
}

/// A message that a page publishes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishRequest {
    subject: String,
    payload: String,
}

/// Publishes the message of a request body for a client with these permissions.
pub(super) fn publish(context: &WebContext, permissions: &Permissions, body: &[u8]) -> Result<(), MessageRefusal> {
    let request: PublishRequest =
        serde_json::from_slice(body).map_err(|error| MessageRefusal::Invalid(format!("the message: {error}")))?;
    let subject: Subject =
        request.subject.parse().map_err(|error| MessageRefusal::Invalid(format!("the subject: {error}")))?;
    if !permissions.publish.permits(&subject) {
        return Err(MessageRefusal::Denied(Denial::new(DeniedAction::Publish, subject)));
    }
    let message = Message::new(subject, request.payload.into_bytes());
    if context.message_bytes_max < message.body_bytes() {
        let most = context.message_bytes_max;
        return Err(MessageRefusal::Invalid(format!("a message has at most {most} bytes: see message-size")));
    }
    context.reports.publish(message).map_err(|error| match error {
        PushError::Full(_) => MessageRefusal::Busy,
        PushError::Closed => MessageRefusal::NoAnswer,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Count, Delivery, Epoch, Publisher};
    use tokio::sync::mpsc::{Receiver, channel};

    fn delivery(payload: &[u8]) -> Delivery {
        let publisher = Publisher { name: Some("B.test".parse().unwrap()), epoch: Epoch::new(7).unwrap(), uid: 1 };
        let message = Message::new("plant.a".parse().unwrap(), payload.to_vec());
        Delivery::new(message, publisher, None, Verdict::Skip(Count::Between { min: 0, max: 3 }))
    }

    /// Returns the events that wait for a client.
    fn received(events: &mut Receiver<Bytes>) -> Vec<Value> {
        let texts =
            std::iter::from_fn(|| events.try_recv().ok()).map(|event| String::from_utf8(event.to_vec()).unwrap());
        texts.map(|text| serde_json::from_str(text.trim().split_once("data: ").unwrap().1).unwrap()).collect()
    }

    #[test]
    fn message_shows_what_was_missing_before_it() {
        let event = message_event(&(&delivery(b"17.5")).into());
        let shown =
            ["subject", "publisher", "payload", "bytes", "is_text", "missing"].map(|field| event[field].clone());
        let expected =
            [json!("plant.a"), json!("B.test"), json!("17.5"), json!(4), json!(true), json!({ "min": 0, "max": 3 })];
        assert_eq!(shown, expected);
        let long = message_event(&(&delivery(&[0xff; 5000])).into());
        assert_eq!((&long["bytes"], &long["is_text"]), (&json!(5000), &json!(false)));
        assert_eq!(long["payload"].as_str().unwrap().chars().count(), PAYLOAD_BYTES_MAX);
    }

    #[test]
    fn messages_beyond_the_limit_are_counted() {
        let (sender, mut events) = channel(QUEUE);
        let mut feed = NoticeFeed { events: &sender, shown: 0, omitted: 0 };
        let delivery = delivery(b"1");
        (0..SHOWN_MAX + 7).for_each(|_| feed.take(NoticeRef::Message(&(&delivery).into())));
        feed.take(NoticeRef::Dropped(5));
        feed.report_omitted();
        let events = received(&mut events);
        assert_eq!(events.len(), SHOWN_MAX + 1);
        assert_eq!(events[SHOWN_MAX], json!({ "type": "omitted", "count": 12 }));
    }

    #[test]
    fn slow_client_learns_how_much_it_missed() {
        let (sender, mut events) = channel(2);
        let mut feed = NoticeFeed { events: &sender, shown: 0, omitted: 0 };
        let delivery = delivery(b"1");
        (0..5).for_each(|_| feed.take(NoticeRef::Message(&(&delivery).into())));
        feed.report_omitted();
        assert_eq!(received(&mut events).len(), 2);
        feed.report_omitted();
        assert_eq!(received(&mut events), [json!({ "type": "omitted", "count": 3 })]);
    }
}
