//! The NATS listener: the client protocol of nats-server, as unmodified client libraries speak it, in front of the bus.
//!
//! [`NatsParser`] cuts a client's bytes into [`NatsCommand`]s, [`NatsSession`] answers them or turns them into what is asked of the peer, and
//! writes what the peer delivers. `docs/listeners.md` says what is served and what is not. JetStream, accounts with subjects of their own,
//! clusters and leaf nodes are deliberately absent.

mod connect;
mod info;
mod message_writer;
pub mod nkey;
mod parser;
mod session;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use parser::{NatsCommand, NatsParser, Op, Pub};
pub use session::NatsSession;

use crate::listener::access::Access;
use crate::message::{Epoch, PeerName};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The version of the protocol that is claimed: that of a server whose core is served completely. Clients read features from it.
pub const VERSION: &str = "2.10.0";

/// What nats-server tells a client that has not proven who it is, whatever the reason.
const AUTHORIZATION_VIOLATION: &str = "Authorization Violation";

/// What the listener needs to know, and its limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The peer, which clients see as the name of the server.
    pub peer: PeerName,
    /// Its run, which makes the server's id.
    pub epoch: Epoch,
    /// Who may use the listener.
    pub access: Access,
    /// What clients are told about encryption; the shell does it.
    pub tls: Tls,
    /// Bytes of a line behind its first word; a longer one is an error that ends the connection.
    pub line_bytes_max: usize,
    /// Bytes of headers and payload of a message; a larger one is an error that ends the connection, before it is read.
    pub payload_bytes_max: usize,
    /// Bytes of a line behind its first word before the client has proven who it is, where it has to: a longer one is an error that
    /// ends the connection.
    pub unauthenticated_bytes_max: usize,
    /// Bytes of a client's name for a subscription; one with a longer name is refused with an error.
    pub sid_bytes_max: usize,
    /// Subscriptions of one client; one more is refused with an error.
    pub subscriptions_max: usize,
    /// How long a client may take to prove who it is, where it has to; then the connection ends with an error.
    pub auth_time: Duration,
    /// How long nothing may be heard of a client before it is asked whether it is there.
    pub ping_interval: Duration,
    /// Such questions without an answer; instead of one more, the connection ends with an error.
    pub pings_max: u32,
}

impl Settings {
    /// The limits of nats-server, for a peer that anybody may use.
    pub fn new(peer: PeerName, epoch: Epoch) -> Settings {
        Settings {
            peer,
            epoch,
            access: Access::default(),
            tls: Tls::None,
            line_bytes_max: 4096,
            payload_bytes_max: 1 << 20,
            unauthenticated_bytes_max: 4096,
            sid_bytes_max: 64,
            subscriptions_max: 100_000,
            auth_time: Duration::from_secs(2),
            ping_interval: Duration::from_secs(120),
            pings_max: 2,
        }
    }
}

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// They are not.
    #[default]
    None,
    /// They may be, as the client likes.
    Available,
    /// They must be.
    Required,
}

/// Why a connection ends: [`NatsSession::on_fault`] tells the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NatsFault {
    /// A line begins with no operation that clients have, or a payload is not followed by CR LF.
    UnknownOperation,
    /// A line is longer than the limit.
    LineTooLong,
    /// Headers and payload of a message are larger than the limit.
    PayloadTooLong {
        /// Their size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// An operation has too few or too many arguments.
    Arguments(Op),
    /// The size in a PUB or HPUB is no number of at most nine digits, or the headers are larger than the whole.
    Size(Op),
    /// HPUB of a client that has not said that it knows headers.
    NoHeaders,
    /// The object behind CONNECT cannot be read.
    Connect(ConnectFault),
    /// The client has not proven who it is.
    Unauthorized(AuthenticationFailure),
    /// The client took too long to prove who it is.
    AuthTimeout,
    /// The client has not answered for too long.
    Stale,
    /// The connection must be encrypted and is not.
    NotEncrypted,
    /// The client sent an error of its own, after which it expects nothing.
    ClientError,
}

/// What is wrong with the object behind CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectFault {
    /// It is no JSON; where, by line and column.
    Json {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// It is no object.
    NoObject,
    /// A member is of the wrong type.
    Member {
        /// Which one.
        name: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// A protocol that is neither 0 nor 1.
    Protocol,
    /// `no_responders` without `headers`.
    NoRespondersNeedHeaders,
}

/// Why a client is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationFailure {
    /// It began with something else than CONNECT.
    NotConnected,
    /// No account has these credentials.
    Wrong,
    /// It came with a JWT.
    Jwt,
}

impl NatsFault {
    /// Text of the `-ERR` line, without the quotes: that of nats-server where it has one. Client libraries compare the whole text, so it
    /// never says more.
    pub(crate) fn protocol_text(&self) -> Cow<'static, str> {
        match self {
            NatsFault::Unauthorized(_) => AUTHORIZATION_VIOLATION.into(),
            fault => fault.to_string().into(),
        }
    }
}

impl fmt::Display for NatsFault {
    /// Writes the reason for the log: the text of the `-ERR` line, and behind it what the client must not be told.
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
