//! The server side of WebSockets (RFC 6455), without I/O, for listeners whose protocol is a stream of bytes: the
//! opening handshake, and frames in both directions.

mod frames;
mod handshake;

pub use frames::{WebSocketReader, WebSocketWriter};
pub use handshake::{
    HANDSHAKE_BYTES_MAX, OVERLOAD_RESPONSE, OriginPolicy, UpgradeRefusal, UpgradeRequest, parse_upgrade,
};

use std::fmt;

/// Fault of a client that ends its WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebSocketFault {
    /// The request is not that of a WebSocket, or its page may not connect.
    Refused(UpgradeRefusal),
    /// A frame breaks the protocol.
    Protocol,
    /// The handshake is not complete in time.
    Timeout,
}

impl WebSocketFault {
    /// Returns the kind of the fault, for counters.
    pub fn kind(self) -> &'static str {
        match self {
            WebSocketFault::Refused(refusal) => refusal.kind(),
            WebSocketFault::Protocol => "WebSocket protocol",
            WebSocketFault::Timeout => "no WebSocket in time",
        }
    }
}

impl fmt::Display for WebSocketFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebSocketFault::Refused(refusal) => refusal.fmt(f),
            WebSocketFault::Protocol => write!(f, "the client breaks the WebSocket protocol"),
            WebSocketFault::Timeout => write!(f, "the client has not opened the WebSocket in time"),
        }
    }
}

impl std::error::Error for WebSocketFault {}
