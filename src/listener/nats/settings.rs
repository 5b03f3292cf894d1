//! Settings of the NATS listener.

use crate::listener::access::Access;
use crate::message::{Epoch, PeerName};
use std::time::Duration;

/// Configuration and limits of the listener.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the peer, which clients see as the name of the server.
    pub peer: PeerName,
    /// Epoch of the peer, from which the server id is derived.
    pub epoch: Epoch,
    /// Accounts that may use the listener.
    pub access: Access,
    /// Encryption that INFO announces; the shell performs it.
    pub tls: Tls,
    /// Maximum number of bytes of a line after its first word. A longer line is an error and ends the connection.
    pub line_bytes_max: usize,
    /// Maximum number of bytes of the headers and payload of a message. A larger message is an error and ends the
    /// connection before it is read.
    pub payload_bytes_max: usize,
    /// Maximum number of bytes of a line after its first word from an unauthenticated client. A longer line is an
    /// error and ends the connection.
    pub unauthenticated_bytes_max: usize,
    /// Maximum number of bytes of a client's subscription id. A subscription with a longer id is refused with an
    /// error.
    pub sid_bytes_max: usize,
    /// Maximum number of subscriptions of one client. A further subscription is refused with an error.
    pub subscriptions_max: usize,
    /// Time that an unauthenticated client has to authenticate. After it, the connection ends with an error.
    pub auth_time: Duration,
    /// Time without data from the client after which the listener sends PING.
    pub ping_interval: Duration,
    /// Maximum number of unanswered PINGs. Instead of a further PING, the connection ends with an error.
    pub pings_max: u32,
}

impl Settings {
    /// Returns the limits of nats-server, for a peer that needs no authentication.
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

/// Encryption of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// Connections are not encrypted.
    #[default]
    None,
    /// The client may encrypt the connection.
    Available,
    /// The client must encrypt the connection.
    Required,
    /// The client must encrypt the connection and present a certificate.
    Certified,
}
