//! Subscriptions as server-sent events.

use super::CallRefusal;
use super::subscription::{HttpSubscription, NoticeFormat, SentNotices, SubscriptionCall, notice_json};
use crate::daemon::http_server::{ACKNOWLEDGE_TIME, STALLED};
use crate::daemon::subscription_queue::Notice;
use crate::daemon::web::WebContext;
use crate::daemon::web::event_stream::event_stream;
use crate::daemon::web::queue_reader::QueueReader;
use crate::listener::http_api::server_sent_event::{put_event, put_payload_event};
use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Number of chunks that wait for a client. Further notices wait in the queue of the subscription, which counts those
/// for which it has no room.
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
    let (mut chunk, mut sent) = (BEGIN.to_vec(), SentNotices::default());
    loop {
        let bytes = Bytes::from(std::mem::take(&mut chunk));
        match tokio::time::timeout(ACKNOWLEDGE_TIME, chunks.send(bytes)).await {
            Ok(Ok(())) => subscription.on_sent(std::mem::take(&mut sent)),
            Ok(Err(_)) => return Ok(()),
            Err(_) => {
                subscription.on_ended(STALLED);
                return Ok(());
            }
        }
        match tokio::time::timeout(KEEPALIVE, reader.next()).await {
            Err(_) => chunk.extend_from_slice(ALIVE),
            Ok(first) => {
                let Some(first) = first? else { return Ok(()) };
                let mut next = Some(first);
                while let Some(notice) = next {
                    put_notice(&mut chunk, format, &notice);
                    sent.add(&notice);
                    next = if chunk.len() < CHUNK_BYTES { reader.try_next() } else { None };
                }
            }
        }
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
