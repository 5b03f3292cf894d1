//! The WebSockets of the FTN18 listener: messages in both directions, and the closing of each connection (RFC 6455,
//! section 5.5.1).

use super::client::{AccountedMessage, Overload, StreamClient};
use super::context::{BUSY, BYTE_TIME, PING_TIME, RequestContext};
use super::counts::HttpCounts;
use crate::daemon::http_server::{ConnectionGuard, STALLED, SocketFault};
use crate::daemon::stream_service::input::ClientMessage;
use crate::listener::ftn18::call::MESSAGE_BYTES;
use crate::listener::ftn18::session::CallOutput;
use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum bytes of a message that are read. A message of more than [`MESSAGE_BYTES`] is read before it is refused. A
/// connection that ends with unread bytes is reset, and the client would not see the Close frame.
pub(super) const MESSAGE_BYTES_READ: usize = 4 * MESSAGE_BYTES;
/// Maximum time for a client to answer a Close frame.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Interval between checks of the number of open connections, while the server stops.
const CLOSE_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Reason why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseReason {
    /// The client has closed the connection, or is gone.
    Client,
    /// The peer stops.
    Stopping,
    /// The client does not answer, or does not read.
    Stalled,
    /// The client holds the most memory of all clients.
    Evicted,
    /// More messages wait for the client than it may leave unread.
    Slow,
    /// Too many requests of all clients wait, and an answer to a group was not taken.
    Overload,
    /// Another connection of the consumer took its place, or its stream cannot be pushed.
    Replaced,
    /// A frame breaks the protocol.
    Protocol,
    /// A text is not UTF-8.
    Encoding,
    /// A message is too large.
    TooLarge,
}

impl CloseReason {
    /// Returns the code and reason of the Close frame; `None` where the client has sent one, or is gone.
    fn frame(self) -> Option<(u16, &'static str)> {
        Some(match self {
            CloseReason::Client => return None,
            CloseReason::Stopping => (1001, "the server stops"),
            CloseReason::Stalled => (1001, STALLED),
            CloseReason::Protocol => (1002, "the client breaks the WebSocket protocol"),
            CloseReason::Encoding => (1007, "a message is not UTF-8"),
            CloseReason::TooLarge => (1009, "a message has more than 65536 bytes"),
            CloseReason::Evicted => (1013, "the client holds most of the memory: see listener-memory"),
            CloseReason::Slow => (1013, "too many messages wait for the client"),
            CloseReason::Overload => (1013, BUSY),
            CloseReason::Replaced => (1000, "nothing more is pushed here"),
        })
    }

    /// Returns the close reason for an error of the socket.
    fn of(error: axum::Error) -> CloseReason {
        match SocketFault::of(error) {
            SocketFault::Gone => CloseReason::Client,
            SocketFault::Stalled => CloseReason::Stalled,
            SocketFault::Protocol => CloseReason::Protocol,
            SocketFault::Encoding => CloseReason::Encoding,
            SocketFault::TooLarge => CloseReason::TooLarge,
        }
    }
}

/// Waits until no WebSocket is open.
pub(super) async fn wait_until_closed(counts: &HttpCounts) {
    while 0 < counts.open_websockets.load(Ordering::Relaxed) {
        tokio::time::sleep(CLOSE_CHECK_INTERVAL).await;
    }
}

/// Serves a WebSocket until it ends.
pub(super) async fn serve_websocket(context: RequestContext, mut socket: WebSocket, stream: usize) {
    // The HTTP server counts the connection as ended when it becomes a WebSocket.
    let _guard = ConnectionGuard::new(&context.shared.connections);
    let counts = &context.shared.counts;
    counts.websockets.fetch_add(1, Ordering::Relaxed);
    counts.open_websockets.fetch_add(1, Ordering::Relaxed);
    let mut end = context.shared.end.clone();
    let close_reason = tokio::select! {
        close_reason = run_until_close(&context, &mut socket, stream) => close_reason,
        () = context.account.evicted() => if context.account.is_slow() { CloseReason::Slow } else { CloseReason::Evicted },
        _ = end.changed() => CloseReason::Stopping,
    };
    if let Some((code, reason)) = close_reason.frame() {
        if !matches!(close_reason, CloseReason::Stopping | CloseReason::Replaced) {
            context.shared.connections.on_ended(reason);
        }
        let frame = CloseFrame { code, reason: reason.into() };
        // A client that is gone, or reads nothing, needs no frame.
        drop(tokio::time::timeout(CLOSE_TIME, socket.send(Message::Close(Some(frame)))).await);
    }
    // This read sends the answer to the client's Close frame, or receives the client's answer to the server's.
    let rest = async { while let Some(Ok(_)) = socket.recv().await {} };
    drop(tokio::time::timeout(CLOSE_TIME, rest).await);
    counts.open_websockets.fetch_sub(1, Ordering::Relaxed);
}

/// Sends a message to a client that reads.
async fn send(socket: &mut WebSocket, message: Message) -> Result<(), CloseReason> {
    let bytes = match &message {
        Message::Text(text) => text.len(),
        _ => 0,
    };
    let time = PING_TIME + BYTE_TIME.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
    match tokio::time::timeout(time, socket.send(message)).await {
        Ok(sent) => sent.map_err(CloseReason::of),
        Err(_) => Err(CloseReason::Stalled),
    }
}

async fn run_until_close(context: &RequestContext, socket: &mut WebSocket, stream: usize) -> CloseReason {
    match exchange(context, socket, stream).await {
        Ok(never) => match never {},
        Err(end) => end,
    }
}

/// Exchanges messages until the connection ends.
async fn exchange(
    context: &RequestContext,
    socket: &mut WebSocket,
    stream: usize,
) -> Result<std::convert::Infallible, CloseReason> {
    let mut session = context.session(true);
    let (client, mut messages) = StreamClient::open(context).ok_or(CloseReason::Overload)?;
    let mut is_pinged = false;
    // Memory held by the client: the answer that is sent next, and the groups that it has not answered.
    let (mut answer, mut groups) = (None, BTreeMap::new());
    loop {
        while let Some(output) = session.poll_output() {
            if let CallOutput::Answered { push, seq, .. } = output {
                groups.remove(&(push, seq));
            }
            if let Some(text) = client.call(output, stream, &mut session).map_err(|Overload| CloseReason::Overload)? {
                send(socket, Message::Text(text.into())).await?;
            }
        }
        drop(answer.take());
        tokio::select! {
            received = messages.recv() => {
                let AccountedMessage { message, reservation } = received.ok_or(CloseReason::Stopping)?;
                match message {
                    ClientMessage::CallResult(call, done) => {
                        session.on_result(call, done);
                        answer = reservation;
                    }
                    ClientMessage::Group { push, version, seq, events } => {
                        session.on_group(push, version, seq, &events);
                        groups.insert((push, seq), reservation);
                    }
                    ClientMessage::PushEnd { is_closed: true, .. } => return Err(CloseReason::Replaced),
                    ClientMessage::PushEnd { push, .. } => {
                        session.on_push_end(push);
                        groups.retain(|(of, _), _| *of != push);
                    }
                }
            }
            message = socket.recv(), if !session.is_full() => {
                is_pinged = false;
                let bytes = match message.ok_or(CloseReason::Client)?.map_err(CloseReason::of)? {
                    Message::Text(text) => text.into(),
                    Message::Binary(bytes) => bytes,
                    Message::Ping(_) | Message::Pong(_) => continue,
                    Message::Close(_) => return Err(CloseReason::Client),
                };
                session.on_message(text(&bytes)?);
            }
            () = tokio::time::sleep(PING_TIME) => {
                // While the client has the maximum number of pending requests, its pong is not read.
                if std::mem::replace(&mut is_pinged, true) && !session.is_full() {
                    return Err(CloseReason::Stalled);
                }
                send(socket, Message::Ping(Bytes::new())).await?;
            }
        }
    }
}

/// Returns the text of a message.
fn text(bytes: &Bytes) -> Result<&str, CloseReason> {
    if MESSAGE_BYTES < bytes.len() {
        return Err(CloseReason::TooLarge);
    }
    std::str::from_utf8(bytes).map_err(|_| CloseReason::Encoding)
}
