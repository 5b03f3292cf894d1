//! Subscriptions as WebSockets: each notice is a text with a JSON object.

use super::subscription::{HttpSubscription, NoticeFormat, SentNotices, SubscriptionCall, notice_json};
use super::{CallRefusal, invalid};
use crate::daemon::http_server::{ACKNOWLEDGE_TIME, ConnectionGuard, STALLED, SocketFault};
use crate::daemon::queue_reader::QueueReader;
use crate::daemon::subscription_queue::Notice;
use crate::daemon::web::WebContext;
use crate::listener::notice::message_json_bytes;
use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Idle time after which the server pings a client. After a second idle time without an answer it closes the
/// connection.
const PING_TIME: Duration = Duration::from_secs(30);
/// Maximum time for a client to answer a Close frame.
const CLOSE_TIME: Duration = Duration::from_millis(500);
/// Bytes a second that a client must take of a large notice, after [`ACKNOWLEDGE_TIME`].
const LARGE_NOTICE_RATE: u64 = 64 << 10;
/// Maximum bytes of a message of a client. None has a meaning.
const MESSAGE_BYTES_READ: usize = 64 << 10;

/// Reason why the server ends a WebSocket of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketEnd {
    /// The client has closed the connection, or is gone.
    Client,
    /// The peer stops.
    Stopping,
    /// The client does not answer, or does not read.
    Stalled,
    /// The client sends a message.
    Message,
    /// The client breaks the protocol.
    Protocol,
    /// A message of the client is too large.
    TooLarge,
}

impl SocketEnd {
    /// Returns the code and reason of the Close frame; `None` if the client has sent one, or is gone.
    fn frame(self) -> Option<(u16, &'static str)> {
        Some(match self {
            SocketEnd::Client => return None,
            SocketEnd::Stopping => (1001, "the server stops"),
            SocketEnd::Stalled => (1001, STALLED),
            SocketEnd::Protocol => (1002, "the client breaks the WebSocket protocol"),
            SocketEnd::Message => (1003, "this WebSocket only sends: publish by POST /pub/SUBJECT"),
            SocketEnd::TooLarge => (1009, "a message of the client is too large"),
        })
    }

    fn of(error: axum::Error) -> SocketEnd {
        match SocketFault::of(error) {
            SocketFault::Gone => SocketEnd::Client,
            SocketFault::Stalled => SocketEnd::Stalled,
            SocketFault::Protocol | SocketFault::Encoding => SocketEnd::Protocol,
            SocketFault::TooLarge => SocketEnd::TooLarge,
        }
    }
}

/// Returns whether a request asks for a WebSocket.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|upgrade| upgrade.to_str().ok());
    upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
}

/// Begins a subscription whose notices are the messages of a WebSocket.
pub(super) async fn answer_websocket(
    context: &Arc<WebContext>,
    call: SubscriptionCall,
    request: &Parts,
) -> Result<Response, CallRefusal> {
    if call.format != NoticeFormat::Json {
        return Err(invalid("a WebSocket has the format json: losses are messages beside those of the bus"));
    }
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut request.clone(), context).await {
        Ok(upgrade) => upgrade.max_message_size(MESSAGE_BYTES_READ).max_frame_size(MESSAGE_BYTES_READ),
        Err(refused) => return Ok(refused.into_response()),
    };
    let subscription = HttpSubscription::begin(context, call.request, &context.bus.subscriptions).await?;
    let context = Arc::clone(context);
    Ok(upgrade.on_upgrade(move |socket| async move { serve(&context, subscription, socket).await }))
}

/// Serves a WebSocket until it ends.
async fn serve(context: &WebContext, subscription: HttpSubscription, mut socket: WebSocket) {
    // The HTTP server counts the connection as ended when it becomes a WebSocket.
    let _guard = context.connections.get().map(ConnectionGuard::new);
    let end = tokio::select! {
        end = send_until_end(&subscription, &mut socket) => end,
        () = subscription.stopped() => SocketEnd::Stopping,
    };
    if let Some((code, reason)) = end.frame() {
        if end != SocketEnd::Stopping {
            subscription.on_ended(reason);
        }
        let frame = CloseFrame { code, reason: reason.into() };
        // A client that is gone, or reads nothing, needs no frame.
        drop(tokio::time::timeout(CLOSE_TIME, socket.send(Message::Close(Some(frame)))).await);
    }
    // This read sends the answer to the client's Close frame, or receives the client's answer to the server's.
    let rest = async { while let Some(Ok(_)) = socket.recv().await {} };
    drop(tokio::time::timeout(CLOSE_TIME, rest).await);
}

async fn send_until_end(subscription: &HttpSubscription, socket: &mut WebSocket) -> SocketEnd {
    match send_notices(subscription, socket).await {
        Ok(never) => match never {},
        Err(end) => end,
    }
}

/// Sends the notices of a subscription until the connection ends. Meanwhile a slow client's notices wait in the queue,
/// which counts those for which it has no room.
async fn send_notices(subscription: &HttpSubscription, socket: &mut WebSocket) -> Result<Infallible, SocketEnd> {
    let reader = QueueReader::new(&subscription.queue).map_err(|error| {
        tracing::warn!(%error, "a subscription by HTTP has ended");
        SocketEnd::Stopping
    })?;
    let mut is_pinged = false;
    loop {
        tokio::select! {
            notice = reader.next() => {
                let notice = notice.ok().flatten().ok_or(SocketEnd::Stopping)?;
                send_notice(subscription, socket, &notice).await?;
            }
            message = socket.recv() => {
                is_pinged = false;
                match message.ok_or(SocketEnd::Client)?.map_err(SocketEnd::of)? {
                    Message::Text(_) | Message::Binary(_) => return Err(SocketEnd::Message),
                    Message::Ping(_) | Message::Pong(_) => {}
                    Message::Close(_) => return Err(SocketEnd::Client),
                }
            }
            () = tokio::time::sleep(PING_TIME) => {
                if std::mem::replace(&mut is_pinged, true) {
                    return Err(SocketEnd::Stalled);
                }
                send(socket, Message::Ping(Bytes::new())).await?;
            }
        }
    }
}

/// Sends a notice as a text. The number of bytes of all large texts is limited.
async fn send_notice(
    subscription: &HttpSubscription,
    socket: &mut WebSocket,
    notice: &Notice,
) -> Result<(), SocketEnd> {
    let bytes = match notice {
        Notice::Message(delivery) => message_json_bytes(&delivery.message),
        _ => 0,
    };
    let (room, json) = match subscription.room_for(bytes).await {
        Ok(room) => (room, notice_json(notice)),
        Err(dropped) => {
            let json = notice_json(&dropped).map(|(_, json)| Message::Text(json.into()));
            return send(socket, json.expect("a drop has a text")).await;
        }
    };
    let Some((_, json)) = json else { return Ok(()) };
    let text = Message::Text(json.into());
    if room.is_some() {
        // Others wait for the room.
        let time = ACKNOWLEDGE_TIME + Duration::from_secs(bytes as u64 / LARGE_NOTICE_RATE);
        tokio::time::timeout(time, send(socket, text)).await.map_err(|_| SocketEnd::Stalled)??;
    } else {
        send(socket, text).await?;
    }
    let mut sent = SentNotices::default();
    sent.add(notice);
    subscription.on_sent(sent);
    Ok(())
}

/// Sends a message, however long a client takes that reads slowly. The system ends the connection of one that
/// acknowledges nothing for [`ACKNOWLEDGE_TIME`].
async fn send(socket: &mut WebSocket, message: Message) -> Result<(), SocketEnd> {
    socket.send(message).await.map_err(SocketEnd::of)
}
