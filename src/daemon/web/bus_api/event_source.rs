//! Subscriptions as server-sent events.

use super::CallRefusal;
use super::subscription::{HttpSubscription, NoticeFormat, SentNotices, SubscriptionCall, notice_json};
use crate::clock::Clock;
use crate::daemon::queue_reader::QueueReader;
use crate::daemon::subscription_queue::Notice;
use crate::daemon::web::WebContext;
use crate::daemon::web::event_stream::event_stream;
use crate::listener::http_api::server_sent_event::{MessageEvent, put_event, put_payload_event};
use crate::listener::notice::{message_json_around_payload, message_json_overhead_bytes};
use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Number of chunks that wait for a client. Further notices wait in the queue of the subscription, which counts those for
/// which it has no room.
const CHUNKS: usize = 1;
/// Bytes from which a chunk takes no further notice.
const CHUNK_BYTES: usize = 32 << 10;
/// Interval of comments, so that proxies keep the connection, and the system notices that a client is gone.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The comment.
const ALIVE: &[u8] = b": alive\n\n";
/// The first lines: the time in milliseconds after which a browser connects again.
const BEGIN: &[u8] = b"retry: 1000\n: subscribed\n\n";
/// Field by which nginx passes events on at once.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Begins a subscription whose notices are the events of the answer.
pub(super) async fn answer_events(context: &Arc<WebContext>, call: SubscriptionCall) -> Result<Response, CallRefusal> {
    let format = call.format;
    let subscription = HttpSubscription::begin(context, call.request, &context.bus.subscriptions).await?;
    let (chunks, mut response) = event_stream(CHUNKS);
    response.headers_mut().insert(UNBUFFERED, HeaderValue::from_static("no"));
    tokio::spawn(async move {
        tokio::select! {
            sent = send_events(&subscription, format, &chunks) => if let Err(error) = sent {
                tracing::warn!(%error, "a subscription by HTTP has ended");
            },
            () = subscription.stopped() => {}
            () = chunks.closed() => {}
        }
    });
    Ok(response)
}

/// Sends the notices of a subscription until it ends, or the client reads nothing.
async fn send_events(subscription: &HttpSubscription, format: NoticeFormat, chunks: &Sender<Bytes>) -> io::Result<()> {
    let reader = QueueReader::new(&subscription.queue)?;
    let mut events = EventSender { subscription, chunks, chunk: BEGIN.to_vec(), sent: SentNotices::default() };
    while events.send().await {
        match tokio::time::timeout(KEEPALIVE, reader.next()).await {
            Err(_) => events.chunk.extend_from_slice(ALIVE),
            Ok(first) => {
                let Some(first) = first? else { return Ok(()) };
                let mut next = Some(first);
                while let Some(notice) = next {
                    if !events.put(format, notice).await {
                        return Ok(());
                    }
                    next = if events.chunk.len() < CHUNK_BYTES { reader.try_next() } else { None };
                }
            }
        }
    }
    Ok(())
}

/// The events of a subscription, in chunks.
struct EventSender<'a> {
    subscription: &'a HttpSubscription,
    chunks: &'a Sender<Bytes>,
    /// The chunk that is sent next.
    chunk: Vec<u8>,
    /// Notices that end in it.
    sent: SentNotices,
}

impl EventSender<'_> {
    /// Sends the chunk. Returns false if the connection has ended. The system ends one whose client acknowledges nothing
    /// for [`ACKNOWLEDGE_TIME`](crate::daemon::http_server::ACKNOWLEDGE_TIME).
    async fn send(&mut self) -> bool {
        let bytes = Bytes::from(std::mem::take(&mut self.chunk));
        let is_sent = self.chunks.send(bytes).await.is_ok();
        if is_sent {
            self.subscription.on_sent(std::mem::take(&mut self.sent));
        }
        is_sent
    }

    /// Appends a notice as an event. A large message is sent in parts, so that a client which reads slowly makes
    /// progress. Returns false if the connection has ended.
    async fn put(&mut self, format: NoticeFormat, notice: Notice) -> bool {
        let Notice::Message(delivery) = &notice else {
            self.put_small(format, &notice);
            return true;
        };
        let message = &delivery.message;
        if message.body_bytes() <= CHUNK_BYTES {
            self.put_small(format, &notice);
            return true;
        }
        let overhead = if format == NoticeFormat::Json { message_json_overhead_bytes(message) } else { 0 };
        let _room = match self.subscription.room_for(overhead).await {
            Ok(room) => room,
            Err(dropped) => {
                put_notice(&mut self.chunk, format, &dropped);
                return true;
            }
        };
        let mut event = match format {
            NoticeFormat::Payload => MessageEvent::of_payload(&message.payload),
            NoticeFormat::Json => {
                let (head, tail) = message_json_around_payload(delivery, Clock::now().wall);
                MessageEvent::of_json(&head, &tail, &message.payload)
            }
        };
        while event.put_part(&mut self.chunk) {
            if CHUNK_BYTES <= self.chunk.len() && !self.send().await {
                return false;
            }
        }
        self.sent.add(&notice);
        true
    }

    fn put_small(&mut self, format: NoticeFormat, notice: &Notice) {
        put_notice(&mut self.chunk, format, notice);
        self.sent.add(notice);
    }
}

/// Appends a notice as an event.
fn put_notice(chunk: &mut Vec<u8>, format: NoticeFormat, notice: &Notice) {
    match notice {
        Notice::Message(delivery) if format == NoticeFormat::Payload => {
            put_payload_event(chunk, &delivery.message.payload);
        }
        notice => {
            if let Some((name, json)) = notice_json(notice) {
                put_event(chunk, name, &json);
            }
        }
    }
}
