//! Faults of WebSockets: the reasons for which reading or writing fails.

use std::io::ErrorKind;
use tungstenite::Error;
use tungstenite::error::ProtocolError;

/// Reason why a WebSocket fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketFault {
    /// The client is gone.
    Gone,
    /// The kernel timed out because the client acknowledged nothing.
    Stalled,
    /// A frame breaks the protocol.
    Protocol,
    /// A text is not UTF-8.
    Encoding,
    /// A message is too large.
    TooLarge,
}

impl SocketFault {
    /// Returns the fault of an error.
    pub(crate) fn of(error: axum::Error) -> SocketFault {
        match error.into_inner().downcast_ref::<Error>() {
            Some(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => SocketFault::Gone,
            Some(Error::Protocol(_)) => SocketFault::Protocol,
            Some(Error::Utf8(_)) => SocketFault::Encoding,
            Some(Error::Capacity(_)) => SocketFault::TooLarge,
            Some(Error::Io(error)) if error.kind() == ErrorKind::TimedOut => SocketFault::Stalled,
            _ => SocketFault::Gone,
        }
    }
}
