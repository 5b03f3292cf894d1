//! The WebSockets of the FTN18 listener: messages in both directions, and how each connection ends (RFC 6455, section 5.5.1).

use super::http::{BUSY, BYTE_TIME, Busy, Client, Counts, PING_TIME, Place, STALLED, Way};
use super::serve::ToClient;
use crate::listener::ftn18::call::MESSAGE_BYTES;
use crate::listener::ftn18::session::Output;
use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tungstenite::Error;

/// Bytes of a message that are read. One of more than [`MESSAGE_BYTES`] is refused after it has been read, since a connection
/// that ends with unread bytes is reset, and the client would not see the Close frame.
pub(super) const MESSAGE_BYTES_READ: usize = 4 * MESSAGE_BYTES;
/// Maximum time for a client to answer a Close frame.
pub(super) const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Time between two looks at the number of open connections, while the server ends.
const LOOK_TIME: Duration = Duration::from_millis(5);

/// Why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client has closed it, or is gone.
    Client,
    /// The peer stops.
    Stopping,
    /// The client does not answer, or does not read.
    Stalled,
    /// The client holds most of the memory of all clients.
    Evicted,
    /// More messages wait for the client than it may leave unread.
    Behind,
    /// Too many requests of all clients wait, and an answer to a group was not taken.
    Busy,
    /// Another connection of the consumer took its place, or its stream cannot be pushed.
    Replaced,
    /// A frame breaks the protocol.
    Protocol,
    /// A text is not UTF-8.
    Encoding,
    /// A message is too large.
    TooLarge,
}

impl End {
    /// Returns the code and reason of the Close frame; `None` where the client has sent one, or is gone.
    fn frame(self) -> Option<(u16, &'static str)> {
        Some(match self {
            End::Client => return None,
            End::Stopping => (1001, "the server stops"),
            End::Stalled => (1001, STALLED),
            End::Protocol => (1002, "the client breaks the WebSocket protocol"),
            End::Encoding => (1007, "a message is not UTF-8"),
            End::TooLarge => (1009, "a message has more than 65536 bytes"),
            End::Evicted => (1013, "the client holds most of the memory: see listener-memory"),
            End::Behind => (1013, "too many messages wait for the client"),
            End::Busy => (1013, BUSY),
            End::Replaced => (1000, "nothing more is pushed here"),
        })
    }

    /// Returns why nothing more can be read.
    fn of(error: axum::Error) -> End {
        match error.into_inner().downcast_ref::<Error>() {
            Some(Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)) => End::Client,
            Some(Error::Protocol(_)) => End::Protocol,
            Some(Error::Utf8(_)) => End::Encoding,
            Some(Error::Capacity(_)) => End::TooLarge,
            // The kernel timed out because the client acknowledged nothing.
            Some(Error::Io(error)) if error.kind() == ErrorKind::TimedOut => End::Stalled,
            _ => End::Client,
        }
    }
}

/// Waits until no WebSocket is open.
pub(super) async fn until_none(counts: &Counts) {
    while 0 < counts.conversations.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK_TIME).await;
    }
}

/// Serves a WebSocket until it ends.
pub(super) async fn converse(way: Way, mut socket: WebSocket, stream: usize) {
    // The server takes the connection for ended when it has become a WebSocket.
    let _place = Place::new(&way.shared.counts);
    let counts = &way.shared.counts;
    counts.websockets.fetch_add(1, Ordering::Relaxed);
    counts.conversations.fetch_add(1, Ordering::Relaxed);
    let mut end = way.shared.end.clone();
    let why = tokio::select! {
        why = converse_until_end(&way, &mut socket, stream) => why,
        () = way.holder.evicted() => if way.holder.is_behind() { End::Behind } else { End::Evicted },
        _ = end.changed() => End::Stopping,
    };
    if let Some((code, reason)) = why.frame() {
        if !matches!(why, End::Stopping | End::Replaced) {
            counts.on_ended(reason);
        }
        let frame = CloseFrame { code, reason: reason.into() };
        // A client that is gone, or reads nothing, needs no frame.
        drop(tokio::time::timeout(CLOSE_TIME, socket.send(Message::Close(Some(frame)))).await);
    }
    // The answer to a Close frame is sent, or awaited.
    let rest = async { while let Some(Ok(_)) = socket.recv().await {} };
    drop(tokio::time::timeout(CLOSE_TIME, rest).await);
    counts.conversations.fetch_sub(1, Ordering::Relaxed);
}

/// Sends a message to a client that reads.
async fn send(socket: &mut WebSocket, message: Message) -> Result<(), End> {
    let bytes = match &message {
        Message::Text(text) => text.len(),
        _ => 0,
    };
    let time = PING_TIME + BYTE_TIME.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
    match tokio::time::timeout(time, socket.send(message)).await {
        Ok(sent) => sent.map_err(End::of),
        Err(_) => Err(End::Stalled),
    }
}

async fn converse_until_end(way: &Way, socket: &mut WebSocket, stream: usize) -> End {
    match exchange(way, socket, stream).await {
        Ok(never) => match never {},
        Err(end) => end,
    }
}

/// Exchanges messages until the connection ends.
async fn exchange(way: &Way, socket: &mut WebSocket, stream: usize) -> Result<std::convert::Infallible, End> {
    let mut session = way.session(true);
    let (client, mut told) = Client::open(way).ok_or(End::Busy)?;
    let mut is_pinged = false;
    // What the client holds: an answer that is sent next, and groups until it has answered them.
    let (mut answer, mut groups) = (None, BTreeMap::new());
    loop {
        while let Some(output) = session.poll_output() {
            if let Output::Answered { push, seq, .. } = output {
                groups.remove(&(push, seq));
            }
            if let Some(text) = client.call(output, stream, &mut session).map_err(|Busy| End::Busy)? {
                send(socket, Message::Text(text.into())).await?;
            }
        }
        drop(answer.take());
        tokio::select! {
            what = told.recv() => match what.ok_or(End::Stopping)? {
                (ToClient::Done(call, done), held) => {
                    session.on_done(call, done);
                    answer = held;
                }
                (ToClient::Group { push, version, seq, events }, held) => {
                    session.on_group(push, version, seq, &events);
                    groups.insert((push, seq), held);
                }
                (ToClient::PushEnd { is_closed: true, .. }, _) => return Err(End::Replaced),
                (ToClient::PushEnd { push, .. }, _) => {
                    session.on_push_end(push);
                    groups.retain(|(of, _), _| *of != push);
                }
            },
            message = socket.recv(), if !session.is_full() => {
                is_pinged = false;
                let bytes = match message.ok_or(End::Client)?.map_err(End::of)? {
                    Message::Text(text) => text.into(),
                    Message::Binary(bytes) => bytes,
                    Message::Ping(_) | Message::Pong(_) => continue,
                    Message::Close(_) => return Err(End::Client),
                };
                session.on_message(text(&bytes)?);
            }
            () = tokio::time::sleep(PING_TIME) => {
                // What it answers is not read while it has asked for so much.
                if std::mem::replace(&mut is_pinged, true) && !session.is_full() {
                    return Err(End::Stalled);
                }
                send(socket, Message::Ping(Bytes::new())).await?;
            }
        }
    }
}

/// Returns the text of a message.
fn text(bytes: &Bytes) -> Result<&str, End> {
    if MESSAGE_BYTES < bytes.len() {
        return Err(End::TooLarge);
    }
    std::str::from_utf8(bytes).map_err(|_| End::Encoding)
}
