//! Settings of the Rendezvous listener.

use crate::listener::access::Access;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Settings and limits of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Accounts that may use the listener. A client is known only by its certificate.
    pub access: Access,
    /// Number by which clients know this daemon, as an address. It is unique in the LAN and differs in each run.
    pub host: Ipv4Addr,
    /// The only service that the listener serves: the port of the group.
    pub service: u16,
    /// The only network that the listener serves: the address of the group.
    pub group: IpAddr,
    /// Maximum size of a message on the bus in bytes. A larger one is dropped, and its sender gets an advisory.
    pub message_bytes_max: usize,
    /// Maximum size in bytes of a frame whose sender gets an advisory. A larger one ends the connection.
    pub frame_bytes_max: usize,
    /// Maximum size in bytes of a frame before the session has begun.
    pub unauthenticated_bytes_max: usize,
    /// Maximum number of different subjects to which a client listens.
    pub subscriptions_max: usize,
    /// Time within which a client must complete the handshake.
    pub handshake_time: Duration,
}

/// Service and port of Rendezvous daemons.
const DEFAULT_SERVICE: u16 = 7500;
/// Maximum bytes of an envelope besides its message.
pub const ENVELOPE_BYTES: usize = 64 << 10;

impl Default for Settings {
    /// Returns settings without access control, with the limits of Rendezvous.
    fn default() -> Settings {
        Settings {
            access: Access::default(),
            host: Ipv4Addr::LOCALHOST,
            service: DEFAULT_SERVICE,
            group: Ipv4Addr::new(239, 255, 83, 67).into(),
            message_bytes_max: 8 << 20,
            frame_bytes_max: (64 << 20) + ENVELOPE_BYTES,
            unauthenticated_bytes_max: 8 << 10,
            subscriptions_max: 100_000,
            handshake_time: Duration::from_secs(10),
        }
    }
}
