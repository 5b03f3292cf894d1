//! Faults of NATS clients, each of which ends the connection, and the errors that clients get.

use super::command::Op;
use crate::listener::output_buffer::OutputBuffer;
use crate::listener::permissions::{Denial, DeniedAction};
use crate::message::Queue;
use std::borrow::Cow;
use std::fmt;

/// Text of the error that nats-server sends to an unauthenticated client for any reason.
const AUTHORIZATION_VIOLATION: &str = "Authorization Violation";

/// Reason for the end of a connection. [`NatsSession::on_fault`](super::NatsSession::on_fault) reports it to the
/// client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NatsFault {
    /// A line does not begin with an operation of clients, or a payload is not followed by CR LF.
    UnknownOperation,
    /// A line is longer than the limit.
    LineTooLong,
    /// Headers and payload of a message are larger than the limit.
    PayloadTooLong {
        /// Size of headers and payload, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// An operation has too few or too many arguments.
    Arguments(Op),
    /// The size in a PUB or HPUB is not a number of at most nine digits, or the headers are larger than the total
    /// size.
    Size(Op),
    /// HPUB from a client that has not announced header support.
    NoHeaders,
    /// The object after CONNECT cannot be read.
    Connect(ConnectFault),
    /// The client is not authenticated.
    Unauthorized(AuthenticationFailure),
    /// The client did not authenticate in time.
    AuthTimeout,
    /// The client has left too many PINGs unanswered.
    Stale,
    /// The connection is not encrypted, but must be.
    NotEncrypted,
    /// The client sent an error of its own and expects no reply.
    ClientError,
}

/// Fault of the object after CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectFault {
    /// The text is not JSON; the position of the error is given by line and column.
    Json {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// The value is not an object.
    NoObject,
    /// A member is of the wrong type.
    Member {
        /// Name of the member.
        name: &'static str,
        /// Type that the member must have.
        wanted: &'static str,
    },
    /// The protocol is neither 0 nor 1.
    Protocol,
    /// `no_responders` is set without `headers`.
    NoRespondersNeedHeaders,
}

/// Reason why a client is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationFailure {
    /// The client sent a command before CONNECT.
    NotConnected,
    /// No account matches the credentials.
    Wrong,
    /// No account matches the client's certificate, and CONNECT has no credentials.
    Certificate,
    /// The client sent a JWT.
    Jwt,
}

impl NatsFault {
    /// Returns the text of the `-ERR` line without the quotes: that of nats-server where it has one. Client libraries
    /// compare the whole text, so it contains nothing more.
    pub(crate) fn protocol_text(&self) -> Cow<'static, str> {
        match self {
            NatsFault::Unauthorized(_) => AUTHORIZATION_VIOLATION.into(),
            fault => fault.to_string().into(),
        }
    }
}

impl fmt::Display for NatsFault {
    /// Writes the reason for the log: the text of the `-ERR` line, followed by details that the client must not see.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NatsFault::UnknownOperation => write!(f, "Unknown Protocol Operation"),
            NatsFault::LineTooLong => write!(f, "maximum control line exceeded"),
            NatsFault::PayloadTooLong { .. } => write!(f, "Maximum Payload Violation"),
            NatsFault::Arguments(op) => write!(f, "Parser Error: {op} is {}", op.usage()),
            NatsFault::Size(op) => write!(f, "Parser Error: bad size in {op}: {}", op.usage()),
            NatsFault::NoHeaders => write!(f, "message headers not supported: CONNECT did not say \"headers\":true"),
            NatsFault::Connect(fault) => fault.fmt(f),
            NatsFault::Unauthorized(reason) => write!(f, "{AUTHORIZATION_VIOLATION}: {reason}"),
            NatsFault::AuthTimeout => write!(f, "Authentication Timeout"),
            NatsFault::Stale => write!(f, "Stale Connection"),
            NatsFault::NotEncrypted => write!(f, "Secure Connection - TLS Required"),
            NatsFault::ClientError => write!(f, "the client sent -ERR"),
        }
    }
}

impl fmt::Display for AuthenticationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthenticationFailure::NotConnected => "the client sent a command before CONNECT",
            AuthenticationFailure::Wrong => "no account has the credentials in CONNECT",
            AuthenticationFailure::Certificate => {
                "no account has a name of the client's certificate, and CONNECT has no credentials"
            }
            AuthenticationFailure::Jwt => {
                "CONNECT has a JWT, and accounts have a user and password, a token or an nkey"
            }
        })
    }
}

impl fmt::Display for ConnectFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectFault::Json { line, column } => {
                write!(f, "Parser Error: CONNECT is not followed by JSON (line {line}, column {column})")
            }
            ConnectFault::NoObject => write!(f, "Parser Error: CONNECT must be followed by a JSON object"),
            ConnectFault::Member { name, wanted } => write!(f, "Parser Error: \"{name}\" in CONNECT must be {wanted}"),
            ConnectFault::Protocol => write!(f, "invalid client protocol"),
            ConnectFault::NoRespondersNeedHeaders => write!(f, "no responders requires headers support"),
        }
    }
}

impl std::error::Error for NatsFault {}

impl From<ConnectFault> for NatsFault {
    fn from(fault: ConnectFault) -> NatsFault {
        NatsFault::Connect(fault)
    }
}

/// Writes an `-ERR` line.
pub(super) fn put_error(out: &mut OutputBuffer, text: impl fmt::Display) {
    out.put(format!("-ERR '{text}'\r\n").as_bytes());
}

/// Returns the error of nats-server for a denied action, without the quotes. `queue` is the queue group of a denied
/// subscription.
pub(super) fn violation(denial: &Denial, queue: Option<&Queue>) -> String {
    let Denial { action, subject } = denial;
    let action = match action {
        DeniedAction::Publish => "Publish to",
        DeniedAction::Reply => "Publish with Reply of",
        DeniedAction::Subscribe => "Subscription to",
        DeniedAction::Command => unreachable!("the protocol has no such command"),
    };
    let queue = queue.map(|queue| format!(" using queue \"{queue}\"")).unwrap_or_default();
    format!("Permissions Violation for {action} \"{subject}\"{queue}")
}
