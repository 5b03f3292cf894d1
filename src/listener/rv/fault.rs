//! Faults of Rendezvous clients, each of which ends the connection.

use super::message::RvDecodeError;
use std::fmt;

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RvFault {
    /// A frame does not begin with a length of at least 8 and the magic word.
    Frame,
    /// A frame is longer than the limit.
    FrameTooLong {
        /// Length of the frame in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// An envelope is malformed.
    Message(RvDecodeError),
    /// An envelope has no kind, or an unknown one.
    Letter,
    /// A client sent an envelope that only a daemon sends.
    DaemonLetter,
    /// An envelope has no subject, or its subject or reply subject has another type.
    Subject,
    /// A client sent a message, a listen or a cancel before its session began.
    NoSession,
    /// An init is refused with this error code of the protocol.
    Init(InitError),
    /// The client did not complete the handshake in time.
    HandshakeTime,
    /// The connection is not encrypted but must be.
    NotEncrypted,
}

/// Reason for which an init is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitError {
    /// Another network than that of the peer: the service belongs to one network.
    Network,
    /// The service is not a port.
    Service,
    /// The network text is too long.
    NetworkText,
    /// Another service than that of the peer.
    OtherService,
    /// The listener has accounts, and the client presented no certificate of one.
    Account,
}

impl InitError {
    /// Returns the error code of the protocol.
    pub fn code(self) -> i32 {
        match self {
            InitError::Network => 5,
            InitError::Service => 18,
            InitError::NetworkText => 19,
            InitError::OtherService | InitError::Account => 20,
        }
    }
}

impl fmt::Display for RvFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RvFault::Frame => write!(f, "a frame does not begin with its length and 9955eeaa"),
            RvFault::FrameTooLong { bytes, bytes_max } => {
                write!(f, "a frame has {bytes} bytes; the limit is {bytes_max}")
            }
            RvFault::Message(error) => error.fmt(f),
            RvFault::Letter => write!(f, "an envelope has no valid mtype"),
            RvFault::DaemonLetter => write!(f, "the client sent an mtype of daemons"),
            RvFault::Subject => write!(f, "an envelope has no valid subject or reply subject"),
            RvFault::NoSession => write!(f, "the client sent messages before its session began"),
            RvFault::Init(InitError::Network) => write!(f, "the client names another network than that of this peer"),
            RvFault::Init(InitError::Service) => write!(f, "the service of the client is not a port"),
            RvFault::Init(InitError::NetworkText) => write!(f, "the network of the client is too long"),
            RvFault::Init(InitError::OtherService) => {
                write!(f, "the client names another service than the port of this group")
            }
            RvFault::Init(InitError::Account) => write!(f, "the client has no certificate of an account"),
            RvFault::HandshakeTime => write!(f, "the client did not complete the handshake in time"),
            RvFault::NotEncrypted => write!(f, "the connection is not encrypted"),
        }
    }
}

impl std::error::Error for RvFault {}
